# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What the sources of the Triton kernels must not contain: a transposed first operand of a product that is not as it was
loaded. For Hopper GPUs, Triton 3.4 to 3.7.0 compile the transpose of a computed tile to wrong numbers, without a
message.
"""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

import modeling_lion


FOLDER = Path(modeling_lion.__file__).parent / "triton"


def name_of(node: ast.AST) -> str:
    """`dot` of `tl.dot` and of `dot`."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


class Products:
    """Follows through the functions of some sources which names may hold anything but a tile as it was loaded."""

    def __init__(self, sources: list[str]):
        trees = [ast.parse(source) for source in sources]
        nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        self.functions = {node.name: node for node in nodes}
        self.names = defaultdict(set)  # by function, those that may hold something computed
        self.computing = set()  # functions that may return it
        self.found, self.transposed = set(), set()
        size = -1
        while size != (size := len(self.computing) + sum(map(len, self.names.values()))):
            for function in self.functions.values():
                self.follow(function)

    def is_loaded(self, node: ast.AST, function: str) -> bool:
        """Whether an expression is a tile as it was loaded, or a number."""
        if isinstance(node, ast.Call):
            called = name_of(node.func)
            return called == "load" or called in self.functions.keys() - self.computing
        if isinstance(node, ast.IfExp):
            return self.is_loaded(node.body, function) and self.is_loaded(node.orelse, function)
        if isinstance(node, ast.Name):
            return node.id not in self.names[function]
        return isinstance(node, ast.Constant)

    def follow(self, function: ast.FunctionDef) -> None:
        name = function.name
        for node in ast.walk(function):
            if isinstance(node, ast.AugAssign) or (
                isinstance(node, ast.Assign) and not self.is_loaded(node.value, name)
            ):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                self.names[name] |= {x.id for target in targets for x in ast.walk(target) if isinstance(x, ast.Name)}
            elif isinstance(node, ast.Return) and node.value is not None and not self.is_loaded(node.value, name):
                self.computing.add(name)
            elif isinstance(node, ast.Call):
                self.follow_call(node, name)

    def follow_call(self, call: ast.Call, function: str) -> None:
        called = name_of(call.func)
        if called in self.functions:
            parameters = [x.arg for x in self.functions[called].args.args]
            self.names[called] |= {
                parameter
                for parameter, argument in zip(parameters, call.args, strict=False)
                if not self.is_loaded(argument, function)
            }
        if called in ("dot", "product"):
            for node in ast.walk(call.args[0]):
                is_call = isinstance(node, ast.Call) and name_of(node.func) in ("trans", "permute", "T")
                if is_call or (isinstance(node, ast.Attribute) and node.attr == "T"):
                    what = node.value if not is_call else node.args[0]
                    seen = self.transposed if self.is_loaded(what, function) else self.found
                    seen.add(f"{function}, line {call.lineno}: {ast.unparse(call)}")


def test_what_is_transposed_first_is_as_it_was_loaded():
    products = Products([path.read_text() for path in FOLDER.glob("*.py")])
    assert products.computing >= {"product", "dots", "times_state"} and "load_tile" not in products.computing
    assert len(products.transposed) == 3 and not products.found


@pytest.mark.parametrize(
    ("lines", "is_wrong"),
    [
        ("s = tl.dot(q, k)\ny = tl.dot(tl.trans(s.to(v.dtype)), v)", True),
        ("s = tl.dot(q, k)\ns = tl.where(m, s, 0.0)\ny = product(tl.trans(s), v, y)", True),
        ("s = scores(q, k)\ny = tl.dot(tl.trans(s), v)", True),
        ("s = tl.dot(q, k)\ny = multiply(s, v)", True),
        ("s = tl.dot(q, k)\ny = tl.dot(s.T, v)", True),
        ("s, z = both(q, k)\nt = z * 2\ny = tl.dot(tl.trans(t), v)", True),
        ("x = tl.load(p) * m\ny = tl.dot(tl.trans(x), v)", True),
        ("x = tl.load(p)\nif m: x = (x * m).to(x.dtype)\ny = product(tl.trans(x), v, y)", True),
        ("s = tl.dot(k, tl.trans(q))\ny = tl.dot(s, v)", False),
        ("s = tl.dot(q, k)\nx = tl.load(p)\ny = tl.dot(tl.trans(x), s)", False),
    ],
)
def test_such_products_are_seen(lines, is_wrong):
    helpers = """
def product(a, b, accumulator):
    return tl.dot(a, b, accumulator)
def scores(a, b):
    c = product(a, b, 0)
    return c
def both(a, b):
    return a, tl.dot(a, b)
def multiply(a, b):
    return tl.dot(tl.trans(a), b)
"""
    body = "\n    ".join(lines.splitlines())
    products = Products([f"{helpers}\ndef kernel(q, k, v, m, p, y):\n    {body}\n"])
    assert bool(products.found) == is_wrong, products.found
