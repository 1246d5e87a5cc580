# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Private names of other libraries are in one file, and each works, or does without."""

import ast
from pathlib import Path

import pytest
import torch
from torch import nn

from configuration_lion.private_apis import default_generation_parameters
from modeling_lion import private_apis


ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    "modeling_lion",
    "configuration_lion",
    "tokenization",
    "training",
    "retrieval",
    "hub_upload",
    "deploy",
    "examples",
    "benchmarks",
)
# What libraries ask subclasses to define, to override, or to read of themselves.
EXTENSION_POINTS = {
    "_adjust_missing_and_unexpected_keys": "transformers: which weights may be missing from a checkpoint",
    "_apply": "torch: what a module does when it is cast or moved",
    "_asdict": "Python: named tuples",
    "_attn_implementation": "transformers: the name of the attention function, which every model reads",
    "_exit": "Python: os._exit, which ends a process at once",
    "_fields": "Python: named tuples",
    "_init_transformers_backbone": "transformers: what a backbone overrides",
    "_init_weights": "transformers: the initial weights of a module",
    "_keep_in_fp32_modules": "transformers: what stays in float32 when a model is quantised",
    "_keep_in_fp32_modules_strict": "transformers: what stays in float32 in every half precision",
    "_no_split_modules": "transformers: what a device map keeps together",
    "_output_attentions": "transformers: where a configuration keeps the value of its property",
    "_replace": "Python: named tuples",
    "_supports_sdpa": "transformers: whether a model computes by torch's fused attention",
    "_python_dispatch": "torch: the module of the modes that follow operators, which are made to be subclassed",
    "_prepare_inputs": "transformers: how a Trainer moves a batch to its device",
}


def test_private_names_are_in_one_file():
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths if path.name != "private_apis.py"}
    nodes = [(path, node) for path, tree in trees.items() for node in ast.walk(tree)]
    own = {node.name for _, node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    own |= {node.id for _, node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own -= EXTENSION_POINTS.keys()
    found = []
    for path, node in nodes:
        names = []
        if isinstance(node, ast.Attribute):
            names = [node.attr]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
        private = [name for name in names if name.startswith("_") and not name.startswith("__")]
        found += [f"{path}:{node.lineno}: {name}" for name in private if name not in own | EXTENSION_POINTS.keys()]
    assert found == []


def test_transforms_are_seen():
    seen = []

    def look(x):
        seen.append((private_apis.is_transformed(), private_apis.is_batched_by_vmap(x)))
        return x.sum()

    x = torch.ones(2, 3)
    look(x)
    torch.func.grad(look)(x)
    torch.func.vmap(look)(x)
    torch.func.vmap(torch.func.grad(look))(x)
    assert seen == [(False, False), (True, False), (True, True), (True, True)]
    assert not private_apis.is_transformed()
    with torch.autograd.forward_ad.dual_level():
        assert private_apis.is_transformed()


def test_hooks_are_seen():
    module = nn.Linear(2, 2)
    assert not private_apis.has_backward_hooks(module)
    handle = module.register_full_backward_hook(lambda *args: None)
    assert private_apis.has_backward_hooks(module)
    handle.remove()
    assert not private_apis.has_backward_hooks(module)


@pytest.mark.parametrize("is_there", [True, False])
def test_gradient_of_a_softmax(is_there, monkeypatch):
    """With the operator of torch, and where it is gone."""
    if not is_there:
        monkeypatch.delattr(torch, "_softmax_backward_data")
    scores = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    grad = torch.randn(3, 5, dtype=torch.float64)
    (expected,) = torch.autograd.grad(scores.softmax(-1), scores, grad)
    torch.testing.assert_close(private_apis.softmax_backward_(grad, scores.detach().softmax(-1)), expected)


def test_names_of_generation():
    assert {"num_beams", "temperature"} <= set(default_generation_parameters())
