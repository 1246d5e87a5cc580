# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What the sources of the Triton kernels must not contain: the transpose of a product as the first operand of another
one. For Hopper GPUs, Triton 3.4 to 3.7.0 compile it to wrong numbers, without a message.
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
    """Follows through the functions of some sources which names may hold the result of a product."""

    def __init__(self, sources: list[str]):
        trees = [ast.parse(source) for source in sources]
        nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        self.functions = {node.name: node for node in nodes}
        self.names = defaultdict(set)  # by function, those that may hold a product
        self.returning = {"dot"}  # functions that may return one
        self.found = set()
        size = -1
        while size != (size := len(self.returning) + sum(map(len, self.names.values()))):
            for function in self.functions.values():
                self.follow(function)

    def holds(self, node: ast.AST, function: str) -> bool:
        """Whether an expression may hold a product. What is loaded does not, nor what other functions return."""
        if isinstance(node, ast.Call):
            called = name_of(node.func)
            if called in self.returning:
                return True
            if called in self.functions or called == "load":
                return False
        if isinstance(node, ast.Name):
            return node.id in self.names[function]
        return any(self.holds(child, function) for child in ast.iter_child_nodes(node))

    def follow(self, function: ast.FunctionDef) -> None:
        name = function.name
        for node in ast.walk(function):
            if isinstance(node, ast.Assign | ast.AugAssign) and self.holds(node.value, name):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                self.names[name] |= {x.id for target in targets for x in ast.walk(target) if isinstance(x, ast.Name)}
            elif isinstance(node, ast.Return) and node.value is not None and self.holds(node.value, name):
                self.returning.add(name)
            elif isinstance(node, ast.Call):
                self.follow_call(node, name)

    def follow_call(self, call: ast.Call, function: str) -> None:
        called = name_of(call.func)
        if called in self.functions:
            parameters = [x.arg for x in self.functions[called].args.args]
            self.names[called] |= {
                parameter
                for parameter, argument in zip(parameters, call.args, strict=False)
                if self.holds(argument, function)
            }
        if called in ("dot", "product"):
            for node in ast.walk(call.args[0]):
                is_transposed = isinstance(node, ast.Call) and name_of(node.func) in ("trans", "permute", "T")
                if (is_transposed or name_of(node) == "T") and self.holds(node, function):
                    self.found.add(f"line {call.lineno}: {ast.unparse(call)}")


def test_no_product_with_the_transpose_of_a_product():
    sources = [path.read_text() for path in FOLDER.glob("*.py")]
    products = Products(sources)
    assert {"product", "dots", "times_state"} <= products.returning - {"load_tile"}
    assert not products.found


@pytest.mark.parametrize(
    ("lines", "is_wrong"),
    [
        ("s = tl.dot(q, k)\ny = tl.dot(tl.trans(s.to(v.dtype)), v)", True),
        ("s = tl.dot(q, k)\ns = tl.where(m, s, 0.0)\ny = product(tl.trans(s), v, y)", True),
        ("s = scores(q, k)\ny = tl.dot(tl.trans(s), v)", True),
        ("s = tl.dot(q, k)\ny = multiply(s, v)", True),
        ("s = tl.dot(q, k)\ny = tl.dot(s.T, v)", True),
        ("s, z = both(q, k)\nt = z * 2\ny = tl.dot(tl.trans(t), v)", True),
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
