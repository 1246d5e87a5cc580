# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What the sources of the Triton kernels must not contain: a transpose as the first operand of a product. For Hopper
GPUs, Triton 3.4 to 3.7.0 compile it to wrong numbers, without a message, where the tile was computed before. The
kernels load such an operand transposed (`load_transposed`), which costs as little.

Where that load is changed before the product, as by the rounding to TensorFloat-32, a product on a Hopper GPU takes it
from registers, not from shared memory. That is not known to be wrong; which kernels do it is written down here.
"""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

import modeling_lion


FOLDER = Path(modeling_lion.__file__).parent / "triton"
TRANSPOSE, LOAD, COMPUTED = "a transpose", "a transposed load", "computed from "


def computed(labels: set[str]) -> set[str]:
    return {x if x == TRANSPOSE or x.startswith(COMPUTED) else COMPUTED + x for x in labels}


def name_of(node: ast.AST) -> str:
    """`dot` of `tl.dot` and of `dot`."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


class Products:
    """
    Follows through the functions of some sources where transposes go. Labels of an expression say what it may hold: a
    transpose, a transposed load, what the function has from a parameter, by its name, or what is computed from these.
    """

    def __init__(self, sources: list[str]):
        trees = [ast.parse(source) for source in sources]
        nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        self.functions = {node.name: node for node in nodes}
        self.parameters = {node.name: [x.arg for x in node.args.args] for node in nodes}
        # By function: labels of its names, of what it returns, and of first operands of products.
        self.names = {name: {x: {x} for x in some} for name, some in self.parameters.items()}
        self.returned, self.first = defaultdict(set), defaultdict(set)
        self.found, self.of_changed_loads, self.count = set(), set(), 0
        state = None
        while state != (state := self.size()):
            for name, function in self.functions.items():
                for node in ast.walk(function):
                    self.follow(node, name)

    def size(self) -> int:
        tables = (*self.names.values(), self.returned, self.first)
        return sum(len(labels) for table in tables for labels in table.values())

    def labels(self, node: ast.AST, function: str) -> set[str]:
        if isinstance(node, ast.Name):
            return self.names[function].get(node.id, set())
        if name_of(node) in ("dtype", "shape"):
            return set()
        own = {TRANSPOSE} if isinstance(node, ast.Attribute) and node.attr == "T" else set()
        if isinstance(node, ast.Call):
            called = name_of(node.func)
            if called == "load_transposed":
                return {LOAD}
            if called in self.functions:
                return self.through_call(node, self.returned[called], function)
            if called in ("load", "dot"):
                return set()
            own = {TRANSPOSE} if called in ("trans", "permute") else own
        labels = own.union(*(self.labels(child, function) for child in ast.iter_child_nodes(node)))
        return computed(labels) if isinstance(node, ast.Call | ast.BinOp) else labels

    def through_call(self, call: ast.Call, labels: set[str], function: str) -> set[str]:
        """Labels of the called function as labels of the function that calls it."""
        arguments = dict(zip(self.parameters[name_of(call.func)], call.args, strict=False))
        found = labels & {TRANSPOSE, LOAD, COMPUTED + LOAD}
        for x in labels:
            if (name := x.removeprefix(COMPUTED)) in arguments:
                of_argument = self.labels(arguments[name], function)
                found |= of_argument if x == name else computed(of_argument)
        return found

    def follow(self, node: ast.AST, function: str) -> None:
        if isinstance(node, ast.Assign | ast.AugAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self.assign(target, node.value, function)
        elif isinstance(node, ast.Return) and node.value is not None:
            self.returned[function] |= self.labels(node.value, function)
        elif isinstance(node, ast.Call):
            called = name_of(node.func)
            if called == "dot":
                self.count += 1
                first = self.labels(node.args[0], function)
            elif called in self.functions:
                first = self.through_call(node, self.first[called] - {TRANSPOSE, LOAD, COMPUTED + LOAD}, function)
            else:
                return
            self.first[function] |= first
            if TRANSPOSE in first:
                self.found.add(f"{function}, line {node.lineno}: {ast.unparse(node)}")
            if COMPUTED + LOAD in first:
                self.of_changed_loads.add(function)

    def assign(self, target: ast.AST, value: ast.AST, function: str) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for one, of_one in zip(target.elts, value.elts, strict=True):
                self.assign(one, of_one, function)
        else:
            labels = self.labels(value, function)
            for name in (x.id for x in ast.walk(target) if isinstance(x, ast.Name)):
                self.names[function].setdefault(name, set())
                self.names[function][name] = self.names[function][name] | labels


def test_no_product_of_a_transpose():
    products = Products([path.read_text() for path in FOLDER.glob("*.py")])
    assert products.count > 0 and not products.found
    assert products.of_changed_loads == {"chunk_states_kernel", "partial_states_kernel"}


@pytest.mark.parametrize(
    ("lines", "is_changed"),
    [
        ("x = load_transposed(p)\ny = tl.dot(x, v)", False),
        ("x = load_transposed(p)\ny = tl.dot(v, x * 2)", False),
        ("x = load_transposed(p)\ny = tl.dot(rounded(x), v)", True),
        ("x = load_transposed(p) * m\ny = tl.dot(x, v)", True),
        ("x = load_transposed(p)\ny = product(x, v)", True),
        ("x = tl.load(p)\ny = product(x, v)", False),
    ],
)
def test_changed_loads_are_seen(lines, is_changed):
    helpers = """
def load_transposed(p):
    return tl.load(p)
def rounded(a):
    return tl.where(a == a, a + 1, a)
def product(a, b):
    a = rounded(a.to(b.dtype))
    return tl.dot(a, b)
"""
    body = "\n    ".join(lines.splitlines())
    products = Products([f"{helpers}\ndef kernel(v, m, p, y):\n    {body}\n"])
    assert products.of_changed_loads == ({"kernel"} if is_changed else set()) and not products.found


@pytest.mark.parametrize(
    ("lines", "is_wrong"),
    [
        ("y = tl.dot(tl.trans(s.to(v.dtype)), v)", True),
        ("s = tl.trans(tl.dot(q, k))\ns = tl.where(m, s, 0.0)\ny = product(s, v, y)", True),
        ("s, z = q, tl.trans(k)\ny = tl.dot(z, v)", True),
        ("s, z = q, tl.trans(k)\ny = tl.dot(s, v)", False),
        ("y = tl.dot(turned(q), v)", True),
        ("y = multiply(q, v)", True),
        ("s = tl.dot(q, k)\ny = tl.dot(s.T, v)", True),
        ("s, z = both(q, k)\nt = z * 2\ny = tl.dot(t, v)", True),
        ("y = product(rounded(q), rounded(tl.trans(v)), y)", False),
        ("y = product(rounded(tl.trans(q)), v, y)", True),
        ("x = tl.load(p)\nif m: x = tl.trans((x * m).to(x.dtype))\ny = product(x, v, y)", True),
        ("s = tl.dot(k, tl.trans(q))\ny = tl.dot(s, v)", False),
        ("y = product(s, tl.trans(v), y)", False),
        ("x = tl.load(p)\ny = product(x, v, y)", False),
    ],
)
def test_such_products_are_seen(lines, is_wrong):
    helpers = """
def product(a, b, accumulator):
    a, b = a.to(b.dtype), b
    return tl.dot(a, b, accumulator)
def rounded(a):
    return tl.where(a == a, a + 1, a)
def turned(a):
    return tl.permute(a, (1, 0))
def both(a, b):
    return a, tl.trans(tl.dot(a, b))
"""
    if "multiply" in lines:
        helpers += "def multiply(a, b):\n    return tl.dot(tl.trans(a), b)\n"
    body = "\n    ".join(lines.splitlines())
    products = Products([f"{helpers}\ndef kernel(q, k, v, m, p, s, y):\n    {body}\n"])
    assert bool(products.found) == is_wrong, products.found
