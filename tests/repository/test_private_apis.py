# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Private names of other libraries are in one file, and each works, or does without."""

import ast
import importlib
import inspect
import pkgutil
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
PACKAGES = ["configuration_lion", "modeling_lion"]
PACKAGES += [f"{name}_lion" for name in ("tokenization", "training", "retrieval", "hub_upload", "deploy")]
# What libraries ask subclasses to define, to override, or to read of themselves.
EXTENSION_POINTS = {
    "_adjust_missing_and_unexpected_keys": "transformers: which weights may be missing from a checkpoint",
    "_apply": "torch: what a module does when it is cast or moved",
    "_asdict": "Python: named tuples",
    "_attn_implementation": "transformers: the name of the attention function, which every model reads",
    "_can_compile_fullgraph": "transformers: whether a model compiles as one graph",
    "_can_record_outputs": "transformers: which modules give the outputs of layers",
    "_exit": "Python: os._exit, which ends a process at once",
    "_fields": "Python: named tuples",
    "_fsdp_plan": "transformers: modules of a head that FSDP2 gathers",
    "_input_embed_layer": "transformers: the name of the input embeddings",
    "_init_transformers_backbone": "transformers: what a backbone overrides",
    "_init_weights": "transformers: the initial weights of a module",
    "_keep_in_fp32_modules": "transformers: what stays in float32 when a model is quantised",
    "_keep_in_fp32_modules_strict": "transformers: what stays in float32 in every half precision",
    "_keys_to_ignore_on_load_unexpected": "transformers: weights of a checkpoint that a model has not",
    "_no_split_modules": "transformers: what a device map keeps together",
    "_output_attentions": "transformers: where a configuration keeps the value of its property",
    "_replace": "Python: named tuples",
    "_supports_flash_attn": "transformers: whether a model computes by flash attention",
    "_supports_flex_attn": "transformers: whether a model computes by torch's flex attention",
    "_supports_sdpa": "transformers: whether a model computes by torch's fused attention",
    "_tied_weights_keys": "transformers: weights that are one",
    "_python_dispatch": "torch: the module of the modes that follow operators, which are made to be subclassed",
    "_prepare_inputs": "transformers: how a Trainer moves a batch to its device",
}


# What classes override although no library asks for it: nothing public does the same.
OVERRIDDEN = {
    "_load_model": "sentence-transformers 6.2: the model that a module computes with, here the graph of a runtime",
}


# What Python, torch and pydantic give every class.
OF_METACLASSES = {"_abc_impl", "_backward_cls", "_is_protocol"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


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
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in (
            "delattr",
            "getattr",
            "hasattr",
            "setattr",
        ):
            names = [x.value for x in node.args[1:2] if isinstance(x, ast.Constant)]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
        private = [name for name in names if is_private(name) or name == "__dict__"]
        found += [f"{path}:{node.lineno}: {name}" for name in private if name not in own | EXTENSION_POINTS.keys()]
    assert found == []


def test_private_names_that_classes_override_are_known():
    """Methods and attributes of ours, also of mixins, by which a class replaces what it inherits from a library."""
    found = set()
    for room in PACKAGES:
        for module in pkgutil.walk_packages(importlib.import_module(room).__path__, f"{room}."):
            for kind in filter(inspect.isclass, vars(importlib.import_module(module.name)).values()):
                is_ours = {base: base.__module__.partition(".")[0] in PACKAGES for base in kind.__mro__}
                inherited = {name for base, ours in is_ours.items() if not ours for name in vars(base)}
                inherited |= {x for base, ours in is_ours.items() if not ours for x in inspect.get_annotations(base)}
                own = {name for base, ours in is_ours.items() if ours for name in vars(base)}
                found |= {name for name in own & inherited if is_private(name)}
    assert found - OF_METACLASSES - EXTENSION_POINTS.keys() == OVERRIDDEN.keys()


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
