# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The code that is saved beside weights, and the rules by which transformers loads it."""

import ast
import json
import sys
from pathlib import Path

import pytest
import torch
import transformers
from conftest import TINY, TINY_IMAGE
from hub_checkpoints import linear_encoder, text_tokenizer
from processes import run_without_package
from sentence_transformers import SentenceTransformer
from transformers import AutoModelForMaskedLM, BertConfig, ModernBertConfig, ModernBertModel
from transformers.dynamic_module_utils import get_imports, get_relative_imports

import configuration_lion
import modeling_lion
from modeling_lion import LionConfig, LionForMaskedLM, LionModel, lion_image_processor
from modeling_lion.portable_code import PACKAGES, Module, body_of, portable_code, shipped_modules, write_portable_code


FILES = ["configuration_lion.py", "modeling_lion.py", "triton_lion.py"]
# Names that transformers looks for before it runs a file from the Hub, and what those need themselves.
REQUIREMENTS = {"torch", "transformers", "safetensors", "huggingface_hub", "numpy"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("code")
    write_portable_code(folder)
    return folder


def test_three_files_and_always_the_same(folder):
    assert sorted(path.name for path in folder.iterdir()) == FILES
    first = portable_code()
    portable_code.cache_clear()
    assert portable_code() == first
    for text in first.values():
        assert text.splitlines()[1].startswith("# Generated from the package lion-transformers ")


@pytest.mark.parametrize("name", FILES)
def test_a_file_imports_only_what_a_user_has(name, folder):
    # get_imports is what transformers checks: it leaves out imports inside `try`, which may fail.
    assert set(get_imports(folder / name)) <= REQUIREMENTS | sys.stdlib_module_names


@pytest.mark.parametrize("name", FILES)
def test_a_file_finds_its_neighbours(name, folder):
    tree = ast.parse((folder / name).read_text(encoding="utf-8"))
    relative = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]
    assert all(node.level == 1 and f"{node.module}.py" in FILES for node in relative)
    # transformers finds them by a regular expression, which reads comments and docstrings, too.
    assert set(get_relative_imports(folder / name)) == {node.module for node in relative}


def test_triton_comes_with_the_first_tensor_on_a_gpu(folder):
    tree = ast.parse((folder / "modeling_lion.py").read_text(encoding="utf-8"))
    at_once = {node.module for node in tree.body if isinstance(node, ast.ImportFrom) and node.level}
    assert at_once == {"configuration_lion"}


def test_every_module_and_every_line_is_there():
    code = "".join(portable_code().values())
    for module, _ in shipped_modules().values():
        for node in module.tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not list(module.own_imports(ast.walk(node))):
                assert ast.get_source_segment(module.source, node) in code, (module.path, node.name)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("def scale():\n    return 1\n", "def scale():\n    return 2\n"),
        ("from math import exp\n", "def exp(x):\n    return x\n"),
        ("from torch import nn as layers\n", "layers = 3\n"),
    ],
)
def test_a_name_that_is_defined_twice_is_refused(first, second, tmp_path):
    """In one file, the second would take the place of the first."""
    modules, state = {}, ({}, {}, {})
    for name, source in (("one", first), ("two", second)):
        (tmp_path / f"{name}.py").write_text(source)
        modules[f"modeling_lion.{name}"] = (Module(f"modeling_lion.{name}", tmp_path / f"{name}.py"), "modeling_lion")
    body_of(modules["modeling_lion.one"][0], "modeling_lion", modules, *state)
    with pytest.raises(ValueError, match="is defined twice in modeling_lion.py.*two.py"):
        body_of(modules["modeling_lion.two"][0], "modeling_lion", modules, *state)


@pytest.mark.parametrize(
    "source", ["from . import one\n", "from .one import scale as size\n", "from .none import x\n"]
)
def test_an_import_that_has_no_place_in_one_file_is_refused(source, tmp_path):
    (tmp_path / "two.py").write_text(source)
    module = Module("modeling_lion.two", tmp_path / "two.py")
    modules = {"modeling_lion.two": (module, "modeling_lion")}
    with pytest.raises(ValueError, match=r"write `from \.module import name`"):
        body_of(module, "modeling_lion", modules, {}, {}, {})


def test_whatever_is_saved_has_the_code_beside_it(tmp_path):
    config = LionConfig(**TINY | TINY_IMAGE, modality="image", num_channels=1)
    model = LionModel(config)
    saved = {"model": model, "config": config, "processor": lion_image_processor(config)}
    for name, x in saved.items():
        x.save_pretrained(tmp_path / name)
        assert sorted(path.name for path in (tmp_path / name).glob("*.py")) == FILES, name
    processor = json.loads((tmp_path / "processor" / "preprocessor_config.json").read_text())
    assert processor["auto_map"] == {"AutoImageProcessor": "modeling_lion.LionGrayscaleImageProcessorPil"}


@pytest.mark.slow
def test_a_saved_model_computes_the_same_without_the_package(tmp_path, find_case):
    """And what that process saves loads once more: there, transformers copies the files."""
    case = find_case("LionForMaskedLM")
    model = case.model_class(case.config()).eval()
    inputs = case.inputs(model.config, torch.float32)
    model.save_pretrained(tmp_path / "saved")
    torch.save((inputs, model(**inputs).to_tuple()), tmp_path / "expected.pt")
    names = configuration_lion.AUTO_MODELS["text"].items()
    auto_class = next(name for name, class_name in names if class_name == case.class_name)
    code = f"""
import torch, transformers
auto_class = {auto_class!r}
inputs, expected = torch.load("expected.pt")
for source in ("saved", "again"):
    model = getattr(transformers, auto_class).from_pretrained(source, trust_remote_code=True).eval()
    assert all(torch.equal(x, y) for x, y in zip(model(**inputs).to_tuple(), expected, strict=True))
    model.save_pretrained("again")
print(type(model).__module__)
"""
    assert run_without_package(code, tmp_path).strip().endswith(".modeling_lion")
    assert sorted(path.name for path in (tmp_path / "again").glob("*.py")) == FILES


def test_a_linear_encoder_is_saved_with_its_code(tmp_path):
    model = linear_encoder()
    model.config.auto_map = {"AutoModel": "somebody/encoder--modeling_encoder.Encoder"}  # of its source
    model.save_pretrained(tmp_path)
    assert sorted(path.name for path in tmp_path.glob("*.py")) == FILES
    auto_map = json.loads((tmp_path / "config.json").read_text())["auto_map"]
    assert auto_map["AutoConfig"] == "modeling_lion.LionBertConfig"
    assert auto_map["AutoModel"] == "modeling_lion.LionBertModel"
    known = {name for name, x in vars(transformers).items() if BertConfig in getattr(x, "_model_mapping", ())}
    assert auto_map.keys() == known | {"AutoConfig"} and len(known) == 10
    for name in known:
        source = getattr(transformers, name)._model_mapping[BertConfig]
        assert auto_map[name] == f"modeling_lion.Lion{source.__name__}"
    # With the package it is the package's class, whoever else may run code.
    model = AutoModelForMaskedLM.from_pretrained(tmp_path, trust_remote_code=True)
    assert type(model) is modeling_lion.LionBertForMaskedLM


@pytest.mark.slow
def test_linear_encoders_compute_the_same_without_the_package(tmp_path):
    """Several beside each other, with code of their own; and what that process saves loads once more."""
    ids, mask, expected = torch.randint(5, 60, (3, 70)), torch.ones(3, 70, dtype=torch.long), {}
    mask[1, 6:] = mask[2, 40:] = 0
    options = {"num_hidden_layers": 3, "global_attn_every_n_layers": 2, "local_attention": 8, "vocab_size": 76}
    options |= {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 48, "pad_token_id": 0}
    modern = ModernBertModel(ModernBertConfig(**options)).eval()
    modern = modeling_lion.linearize(modern, layers="global", exact_length=8, window=4)
    other = linear_encoder()
    other.init_weights()
    for name, model in {"bert": linear_encoder(), "other": other, "modern": modern}.items():
        model.save_pretrained(tmp_path / name)
        text_tokenizer().save_pretrained(tmp_path / name)
        for form in ("lion", "lion_parallel", "lion_chunk", "lion_rnn", "sdpa"):
            model.set_attn_implementation(form)
            expected[name, form] = model(ids, attention_mask=mask)[0].detach()
    folder = str(tmp_path / "bert")
    text = "The lion [MASK] in the shade." + " A lion roars at night, and hunts at dawn with its pride." * 3
    answer = transformers.pipeline("fill-mask", folder)(text)
    vector = SentenceTransformer(folder, device="cpu").encode(text)
    torch.save((ids, mask, expected, text, answer, torch.tensor(vector)), tmp_path / "expected.pt")
    code = """
import json, torch, transformers
from sentence_transformers import SentenceTransformer
ids, mask, expected, text, answer, vector = torch.load("expected.pt", weights_only=False)
trust = {"trust_remote_code": True}
models = {}
for name in ("bert", "other", "modern", "again"):
    auto_class = transformers.AutoModel if name == "modern" else transformers.AutoModelForMaskedLM
    models[name] = auto_class.from_pretrained(name, **trust).eval()
    if name == "modern":
        models["bert"].save_pretrained("again")
for (name, form), outputs in expected.items():
    for model in [models[name]] + [models["again"]] * (name == "bert"):
        model.set_attn_implementation(form)
        assert torch.equal(model(ids, attention_mask=mask)[0], outputs), (name, form)
assert len({type(model).__module__ for model in models.values()}) == 4
assert transformers.pipeline("fill-mask", "bert", **trust)(text) == answer
assert (SentenceTransformer("bert", device="cpu", **trust).encode(text) == vector.numpy()).all()

def refuses(load, words):
    try:
        load("bert")
    except ValueError as error:
        assert words in str(error), error
    else:
        raise AssertionError("loaded")

refuses(lambda x: transformers.AutoModel.from_pretrained(x, trust_remote_code=False), "trust_remote_code=True")
config = json.load(open("bert/config.json"))
del config["auto_map"]
json.dump(config, open("bert/config.json", "w"))
refuses(transformers.AutoModel.from_pretrained, "`lion-bert` but Transformers does not recognize this architecture")
"""
    run_without_package(code, tmp_path)
    assert sorted(path.name for path in (tmp_path / "again").glob("*.py")) == FILES


@pytest.mark.slow
def test_without_hand_written_kernels_plain_operations_compute(tmp_path):
    """Kernels enter themselves; with their folders taken away, the model computes the same."""
    torch.manual_seed(0)
    configs = [{"mixer_type": mixer} for mixer in ("lit", "decay", "selective", "delta")]
    configs.append({"layer_types": ["linear_attention", "sliding_attention"], "sliding_window": 2})
    configs.append({"num_key_heads": 1})
    ids, expected = torch.randint(1, 40, (2, 70)), []
    for n, fields in enumerate(configs):
        model = LionForMaskedLM(LionConfig(**TINY | {"max_position_embeddings": 70}, **fields)).eval()
        model.save_pretrained(tmp_path / str(n))
        expected.append(model(ids).logits.detach())
    torch.save((ids, expected), tmp_path / "expected.pt")
    for name, path in PACKAGES.items():
        for source in path.rglob("*.py"):
            place = tmp_path / name / source.relative_to(path)
            if place.parent.name not in ("cpu", "triton"):
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(source.read_bytes())
    code = """
import sys
sys.path.insert(0, ".")
sys.meta_path[:] = [x for x in sys.meta_path if "ditable" not in repr(x)]  # it would find the folders in the checkout
for name in ("configuration_lion", "modeling_lion", "tokenization_lion"):
    del sys.modules[name]
import pathlib, torch, modeling_lion
from modeling_lion.attention.kernels import KERNELS
assert pathlib.Path(modeling_lion.__file__).resolve().is_relative_to(pathlib.Path.cwd()), modeling_lion
assert not KERNELS, KERNELS
ids, expected = torch.load("expected.pt")
for n, logits in enumerate(expected):
    model = modeling_lion.LionForMaskedLM.from_pretrained(str(n)).eval()
    for form in ("auto", "parallel", "chunk", "rnn") if n < 5 else ("auto",):
        model.set_attn_implementation(form)
        torch.testing.assert_close(model(ids).logits, logits, atol=1e-4, rtol=1e-4)
"""
    run_without_package(code, tmp_path)
