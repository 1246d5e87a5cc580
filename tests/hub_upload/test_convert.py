# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Converted models compute what the published formulas compute.

The formulas (SPEC §1, §2, §6, §7) are evaluated here once more, on the published names, in float64, with one loop per
head and dense matrices; nothing of the package is used for it.
"""

import argparse
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from deploy_lion.cli import main
from hub_upload_lion import convert_original_state_dict, infer_config
from hub_upload_lion.checkpoint import new_folder
from hub_upload_lion.convert import convert_checkpoint as convert
from hub_upload_lion.convert.original import load_checkpoint, model_class
from PIL import Image
from safetensors.torch import save_file
from transformers import AutoModel, AutoModelForImageClassification, AutoModelForMaskedLM, AutoTokenizer, pipeline

from modeling_lion import LionForMaskedLM, LionTokenizer


HIDDEN, HEADS, LAYERS, WIDE = 12, 3, 2, 20
ROWS, COLUMNS, PATCH, CHANNELS, CLASSES = 3, 4, 2, 3, 5
VOCABULARY, POSITIONS, LENGTH = 30, 16, 9
PROMISE = 1e-5  # of the logits, relative to the largest


def random_weights(shapes: dict[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    weights = {}
    for name, shape in shapes.items():
        scale = 1 if len(shape) < 2 or "embed" in name else 1.5 * shape[-1] ** -0.5
        weights[name] = scale * torch.randn(shape, generator=generator)
        if "norm" in name.lower() and name.endswith("weight"):
            weights[name] = 1 + 0.2 * weights[name]
    return weights


def linear(name: str, outputs: int, inputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def norm(name: str) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (HIDDEN,), f"{name}.bias": (HIDDEN,)}


def image_state_dict(mixer: str, snake: bool = False, positions: bool = False, grid=(ROWS, COLUMNS)) -> dict:
    shapes = {"cls_token": (1, 1, HIDDEN)}
    if positions:
        shapes["pos_embed"] = (1, 1 + grid[0] * grid[1], HIDDEN)
    shapes |= {"patch_embed.proj.weight": (HIDDEN, CHANNELS, PATCH, PATCH), "patch_embed.proj.bias": (HIDDEN,)}
    for i in range(LAYERS):
        block = f"blocks.{i}."
        shapes |= norm(block + "norm1") | norm(block + "norm2")
        shapes |= linear(block + "attn.qkv", 3 * HIDDEN, HIDDEN) | linear(block + "attn.proj", HIDDEN, HIDDEN)
        shapes |= linear(block + "mlp.fc1", WIDE, HIDDEN) | linear(block + "mlp.fc2", HIDDEN, WIDE)
        for name in ("a_i", "a2_i")[: 2 if snake else 1]:
            if mixer == "decay":
                shapes[f"{block}attn.{name}"] = (HEADS,)
            elif mixer == "selective":
                shapes |= linear(f"{block}attn.{name}", HEADS, HIDDEN)
    return random_weights(shapes | norm("norm") | linear("head", CLASSES, HIDDEN))


def text_state_dict(mixer: str, layer_norm: bool, head: str = "mlm") -> dict:
    shapes = {
        "bert.embeddings.word_embeddings.weight": (VOCABULARY, HIDDEN),
        "bert.embeddings.position_embeddings.weight": (POSITIONS, HIDDEN),
        "bert.embeddings.token_type_embeddings.weight": (2, HIDDEN),
        **norm("bert.embeddings.LayerNorm"),
    }
    for i in range(LAYERS):
        layer = f"bert.encoder.layer.{i}."
        for name in ("query", "key", "value"):
            shapes |= linear(f"{layer}attention.self.{name}", HIDDEN, HIDDEN)
        if layer_norm:
            shapes |= norm(layer + "attention.self.layer_norm")
        if mixer == "decay":
            shapes[layer + "attention.self.ai"] = (HEADS,)
        elif mixer == "selective":
            shapes |= linear(layer + "attention.self.Wa_i", HEADS, HIDDEN)
        shapes |= linear(layer + "attention.output.dense", HIDDEN, HIDDEN) | norm(layer + "attention.output.LayerNorm")
        shapes |= linear(layer + "intermediate.dense", WIDE, HIDDEN)
        shapes |= linear(layer + "output.dense", HIDDEN, WIDE) | norm(layer + "output.LayerNorm")
    if head == "mlm":
        shapes |= linear("cls.predictions.transform.dense", HIDDEN, HIDDEN)
        shapes |= norm("cls.predictions.transform.LayerNorm") | {"cls.predictions.bias": (VOCABULARY,)}
    else:
        shapes |= linear("bert.pooler.dense", HIDDEN, HIDDEN) if head == "cls" else {}
        shapes |= linear("classifier", CLASSES, HIDDEN)
    weights = random_weights(shapes)
    if head == "mlm":
        weights["cls.predictions.decoder.weight"] = weights["bert.embeddings.word_embeddings.weight"]
    return weights


class Published:
    """The published formulas, literally."""

    def __init__(self, state_dict: dict, mixer: str, heads: int = HEADS):
        self.weights = {name: tensor.double() for name, tensor in state_dict.items()}
        self.mixer, self.heads = mixer, heads

    def linear(self, name: str, x):
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def norm(self, name: str, x, eps: float):
        centred = x - x.mean(-1, keepdim=True)
        variance = (centred**2).mean(-1, keepdim=True)
        return centred / (variance + eps).sqrt() * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def gelu(self, x):
        return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))

    def mask(self, decays) -> torch.Tensor:
        """M of SPEC §2, for one head: `decays` (length,)."""
        length = len(decays)
        mask = torch.ones(length, length, dtype=torch.float64)
        for i in range(length):
            for j in range(length):
                between = decays[j:i] if i > j else decays[i + 1 : j + 1]
                mask[i, j] = between.prod()
        return mask

    def image_logits(self, image, rows: int, columns: int, pooling: str, snake: bool):
        tokens = [self.weights["cls_token"][0, 0]]
        kernel = self.weights["patch_embed.proj.weight"]
        for r in range(rows):
            for c in range(columns):
                patch = image[:, r * PATCH : (r + 1) * PATCH, c * PATCH : (c + 1) * PATCH].double()
                tokens.append((kernel * patch).sum((1, 2, 3)) + self.weights["patch_embed.proj.bias"])
        x = torch.stack(tokens)
        if "pos_embed" in self.weights:
            x = x + self.weights["pos_embed"][0]
        by_rows = [(r, c) for r in range(rows) for c in (range(columns) if r % 2 == 0 else reversed(range(columns)))]
        by_columns = [(r, c) for c in range(columns) for r in (range(rows) if c % 2 == 0 else reversed(range(rows)))]
        curves = [[0] + [1 + r * columns + c for r, c in curve] for curve in (by_rows, by_columns)]
        raster = list(range(1 + rows * columns))
        for i in range(LAYERS):
            block = f"blocks.{i}."
            h = self.norm(block + "norm1", x, 1e-6)
            query, key, value = self.linear(block + "attn.qkv", h).split(HIDDEN, dim=1)
            outputs = []
            for head in range(self.heads):
                mine = slice(head * HIDDEN // self.heads, (head + 1) * HIDDEN // self.heads)
                q, k = (self.image_feature_map(t[:, mine]) for t in (query, key))
                masks = []
                for order, name in zip(curves, ("a_i", "a2_i"), strict=True) if snake else [(raster, "a_i")]:
                    decays = self.image_decays(f"{block}attn.{name}", h, head)
                    along = self.mask(decays[order])
                    mask = torch.empty_like(along)
                    for a, source in enumerate(order):
                        for b, target in enumerate(order):
                            mask[source, target] = along[a, b]
                    masks.append(mask)
                scores = (q @ k.T) * sum(masks) / len(masks)
                outputs.append(scores @ value[:, mine] / scores.sum(1, keepdim=True))
            x = x + self.linear(block + "attn.proj", torch.cat(outputs, dim=1))
            h = self.norm(block + "norm2", x, 1e-6)
            x = x + self.linear(block + "mlp.fc2", self.gelu(self.linear(block + "mlp.fc1", h)))
        x = self.norm("norm", x, 1e-6)
        return self.linear("head", x[0] if pooling == "cls" else x.mean(0))

    def image_feature_map(self, x):
        if self.mixer == "lit":
            return torch.where(x > 0, x, torch.exp(x) - 1) + 1
        u = x / (1 + torch.exp(-x)) + 0.5
        return u / (u**2).sum(-1, keepdim=True).sqrt()

    def image_decays(self, name: str, x, head: int):
        if self.mixer == "lit":
            return torch.ones(len(x), dtype=torch.float64)
        if self.mixer == "decay":
            return torch.full((len(x),), 1 / (1 + math.exp(-self.weights[name][head])), dtype=torch.float64)
        decays = 1 - torch.sigmoid(self.linear(name, x)[:, head])
        decays[0] = 1  # the CLS token
        return decays

    def text_hidden_states(self, ids, positions: bool):
        embeddings = "bert.embeddings."
        x = self.weights[embeddings + "word_embeddings.weight"][ids]
        x = x + self.weights[embeddings + "token_type_embeddings.weight"][0]
        if positions:
            x = x + self.weights[embeddings + "position_embeddings.weight"][: len(ids)]
        x = self.norm(embeddings + "LayerNorm", x, 1e-12)
        for i in range(LAYERS):
            layer = f"bert.encoder.layer.{i}."
            query, key, value = (self.linear(f"{layer}attention.self.{n}", x) for n in ("query", "key", "value"))
            outputs = []
            for head in range(self.heads):
                size = HIDDEN // self.heads
                mine = slice(head * size, (head + 1) * size)
                decays = torch.ones(len(ids), dtype=torch.float64)
                if self.mixer == "decay":
                    decays = torch.sigmoid(self.weights[layer + "attention.self.ai"][head]).expand(len(ids))
                elif self.mixer == "selective":
                    decays = 1 - torch.sigmoid(self.linear(layer + "attention.self.Wa_i", x)[:, head])
                scores = size**-0.5 * (query[:, mine] @ key[:, mine].T) * self.mask(decays)
                outputs.append(scores @ value[:, mine])
            mixed = torch.cat(outputs, dim=1)
            if layer + "attention.self.layer_norm.weight" in self.weights:
                mixed = self.norm(layer + "attention.self.layer_norm", mixed, 1e-5)
            mixed = self.linear(layer + "attention.output.dense", mixed)
            x = self.norm(layer + "attention.output.LayerNorm", x + mixed, 1e-12)
            wide = self.gelu(self.linear(layer + "intermediate.dense", x))
            x = self.norm(layer + "output.LayerNorm", x + self.linear(layer + "output.dense", wide), 1e-12)
        return x

    def text_logits(self, ids, positions: bool, head: str):
        x = self.text_hidden_states(ids, positions)
        if head == "mlm":
            x = self.gelu(self.linear("cls.predictions.transform.dense", x))
            x = self.norm("cls.predictions.transform.LayerNorm", x, 1e-12)
            return x @ self.weights["bert.embeddings.word_embeddings.weight"].T + self.weights["cls.predictions.bias"]
        if head == "mean":
            return self.linear("classifier", x.mean(0))
        return self.linear("classifier", torch.tanh(self.linear("bert.pooler.dense", x[0])))


def load(state_dict: dict, config):
    model = model_class(state_dict)(config).eval()
    model.load_state_dict(convert_original_state_dict(state_dict, config))
    return model


@torch.no_grad()
def largest_error(model, expected, **inputs) -> float:
    errors = []
    for kernel in ("parallel", "chunk", "rnn", "eager"):
        model.set_attn_implementation(kernel)
        errors.append((model(**inputs).logits - expected).abs().max() / expected.abs().max())
    return max(errors).item()


@pytest.mark.parametrize(
    ("mixer", "snake", "pooling", "positions"),
    [
        ("lit", False, "cls", True),
        ("decay", False, "mean", False),
        ("decay", True, "cls", True),
        ("selective", False, "cls", False),
        ("selective", True, "mean", True),
    ],
)
def test_images_follow_the_published_formulas(mixer, snake, pooling, positions):
    state_dict = image_state_dict(mixer, snake, positions)
    known = {} if mixer != "lit" else {"num_attention_heads": HEADS}
    config = infer_config(state_dict, pooling=pooling, image_size=(ROWS * PATCH, COLUMNS * PATCH), **known)
    assert (config.mixer_type, config.patch_order) == (mixer, "snake" if snake else "raster")
    images = torch.randn(2, CHANNELS, ROWS * PATCH, COLUMNS * PATCH, generator=torch.Generator().manual_seed(2))
    published = Published(state_dict, mixer)
    expected = torch.stack([published.image_logits(image, ROWS, COLUMNS, pooling, snake) for image in images])
    assert largest_error(load(state_dict, config), expected, pixel_values=images) < PROMISE


@pytest.mark.parametrize(
    ("mixer", "layer_norm", "head"),
    [
        ("lit", False, "cls"),
        ("lit", True, "mlm"),
        ("decay", False, "mlm"),
        ("decay", True, "mean"),
        ("selective", False, "mean"),
        ("selective", True, "cls"),
    ],
)
def test_text_follows_the_published_formulas(mixer, layer_norm, head):
    state_dict = text_state_dict(mixer, layer_norm, head)
    known = {} if mixer != "lit" else {"num_attention_heads": HEADS}
    if head == "mean":
        known["pooling"] = "mean"
    config = infer_config(state_dict, **known)
    assert (config.mixer_type, config.attention_layer_norm) == (mixer, layer_norm)
    ids = torch.randint(0, VOCABULARY, (2, LENGTH), generator=torch.Generator().manual_seed(2))
    published = Published(state_dict, mixer)
    expected = torch.stack([published.text_logits(row, mixer == "lit", head) for row in ids])
    assert largest_error(load(state_dict, config), expected, input_ids=ids) < PROMISE


@pytest.mark.parametrize("mixer", ["decay", "lit"])
def test_positions_of_text_can_be_chosen(mixer):
    """The table is in every published file, so that only its user knows whether it is used."""
    state_dict = text_state_dict(mixer, layer_norm=False)
    uses_positions = mixer == "decay"  # the other way round than the recipe
    config = infer_config(
        state_dict, num_attention_heads=HEADS, position_embedding_type="absolute" if uses_positions else "none"
    )
    ids = torch.randint(0, VOCABULARY, (1, LENGTH), generator=torch.Generator().manual_seed(2))
    expected = Published(state_dict, mixer).text_logits(ids[0], uses_positions, "mlm")
    assert largest_error(load(state_dict, config), expected, input_ids=ids) < PROMISE


def wrapped(state_dict: dict, layout: str) -> dict:
    if layout == "composer":
        weights = {f"model.{name}": tensor for name, tensor in state_dict.items()}
        return {"state": {"model": weights, "optimizers": {}}, "rng": [{"numpy": np.random.get_state()}]}
    if layout == "deit":
        arguments = argparse.Namespace(lr=0.1)
        return {"model": state_dict, "optimizer": {"state": {}}, "epoch": 3, "args": arguments}
    if layout == "distributed":
        return {"state_dict": {f"module._orig_mod.{name}": tensor for name, tensor in state_dict.items()}}
    return state_dict


@pytest.mark.parametrize("layout", ["composer", "deit", "distributed"])
def test_training_checkpoints_are_unwrapped(tmp_path, layout):
    state_dict = text_state_dict("decay", layer_norm=False)
    torch.save(wrapped(state_dict, layout), tmp_path / "checkpoint.pt")
    loaded = load_checkpoint(tmp_path / "checkpoint.pt")
    assert loaded.keys() == state_dict.keys()
    assert all(torch.equal(loaded[name], state_dict[name]) for name in loaded)
    assert infer_config(wrapped(state_dict, layout)).to_dict() == infer_config(state_dict).to_dict()
    config = infer_config(state_dict)
    for name, tensor in convert_original_state_dict(wrapped(state_dict, layout), config).items():
        assert torch.equal(tensor, convert_original_state_dict(state_dict, config)[name])


class Payload:
    def __reduce__(self):
        return (print, ("executed",))


def test_pickles_are_never_executed(tmp_path, capsys):
    torch.save({"model": Payload()}, tmp_path / "checkpoint.pt")
    with pytest.raises(ValueError, match="weights only"):
        load_checkpoint(tmp_path / "checkpoint.pt")
    assert "executed" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["checkpoint.pt", "checkpoint.safetensors"])
@pytest.mark.parametrize("share", [0, 0.5])
def test_damaged_files_are_refused(tmp_path, name, share):
    path = tmp_path / name
    state_dict = image_state_dict("decay")
    save_file(state_dict, path) if path.suffix == ".safetensors" else torch.save(state_dict, path)
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    with pytest.raises(ValueError, match=name):
        load_checkpoint(path)


def test_missing_and_unexpected_names_are_listed():
    state_dict = image_state_dict("selective", snake=True)
    config = infer_config(state_dict, pooling="cls", image_size=8)
    state_dict["head_dist.weight"] = state_dict["head.weight"]
    del state_dict["blocks.1.attn.a2_i.bias"], state_dict["norm.weight"]
    with pytest.raises(ValueError) as error:
        convert_original_state_dict(state_dict, config)
    message = str(error.value)
    assert "Missing: blocks.1.attn.a2_i.bias, norm.weight." in message
    assert "Unexpected: head_dist.weight." in message


def test_position_table_is_unexpected_in_no_text_model_and_needed_with_positions():
    state_dict = text_state_dict("selective", layer_norm=False)
    del state_dict["bert.embeddings.position_embeddings.weight"]
    load(state_dict, infer_config(state_dict))
    with pytest.raises(ValueError, match="Missing: bert.embeddings.position_embeddings.weight"):
        convert_original_state_dict(state_dict, infer_config(state_dict, position_embedding_type="absolute"))


def test_two_values_for_one_weight_are_refused():
    state_dict = text_state_dict("decay", layer_norm=False)
    state_dict["cls.predictions.decoder.bias"] = state_dict["cls.predictions.bias"] + 1
    with pytest.raises(ValueError, match="differ"):
        convert_original_state_dict(state_dict, infer_config(state_dict))
    state_dict["cls.predictions.decoder.bias"] = state_dict["cls.predictions.bias"].clone()
    load(state_dict, infer_config(state_dict))


def test_a_decoder_of_its_own_stays_one():
    state_dict = text_state_dict("decay", layer_norm=False)
    tied = infer_config(state_dict)
    state_dict["cls.predictions.decoder.weight"] = state_dict["cls.predictions.decoder.weight"] + 1
    config = infer_config(state_dict)
    assert tied.tie_word_embeddings and not config.tie_word_embeddings
    assert torch.equal(load(state_dict, config).lm_head.decoder.weight, state_dict["cls.predictions.decoder.weight"])
    with pytest.raises(ValueError, match="tie_word_embeddings"):
        convert_original_state_dict(state_dict, tied)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"pooling": "cls", "image_size": 8}, "num_attention_heads"),
        ({"num_attention_heads": HEADS, "image_size": 8}, "pooling"),
        ({"num_attention_heads": HEADS, "pooling": "cls"}, "image_size"),
        ({"hidden_size": 24}, "hidden_size` is 24, but the state dict has 12"),
        ({"head_directions": "alternate"}, "head_directions` is 'alternate', but the state dict has 'both'"),
        ({"mixer_type": "decay"}, "mixer_type"),
        ({"id2label": {0: "a"}}, "1 labels for a head with 5 outputs"),
    ],
)
def test_what_the_state_dict_cannot_show_is_asked_for(fields, message):
    with pytest.raises(ValueError, match=message):
        infer_config(image_state_dict("lit"), **fields)


def test_square_grids_show_the_image_size():
    state_dict = image_state_dict("decay", positions=True, grid=(3, 3))
    assert infer_config(state_dict, pooling="mean").image_shape == (3 * PATCH, 3 * PATCH)
    with pytest.raises(ValueError, match="shapes .*pos_embed"):
        convert_original_state_dict(state_dict, infer_config(state_dict, pooling="mean", image_size=8))


def test_other_layouts_are_refused():
    with pytest.raises(ValueError, match="neither of the published layouts.*encoder.weight"):
        infer_config({"encoder.weight": torch.zeros(1)})
    with pytest.raises(ValueError, match="no state dict"):
        infer_config({"state": {"optimizers": {}}})


def run_command(*words) -> None:
    parser = argparse.ArgumentParser()
    convert.add_arguments(parser)
    convert.run(parser.parse_args([str(word) for word in words]))


def test_command_makes_a_text_model_that_loads_anywhere(tmp_path, capsys):
    tokenizer = LionTokenizer.train_from_iterator(["the lion sleeps", "a lion roars"], vocab_size=VOCABULARY)
    tokenizer.model_max_length = 7  # of the model that it comes from
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    state_dict = text_state_dict("selective", layer_norm=False)
    torch.save(wrapped(state_dict, "composer"), tmp_path / "published.pt")
    run_command(tmp_path / "published.pt", tmp_path / "model", "--task", "mlm", "--tokenizer", tmp_path / "tokenizer")
    report = capsys.readouterr().out
    for word in ("rnn", "chunk", "LionForMaskedLM", "position_embeddings"):
        assert word in report
    model, info = AutoModelForMaskedLM.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not any(info.values())
    assert model.config.tie_word_embeddings
    assert len(pipeline("fill-mask", model=str(tmp_path / "model"))("the [MASK] sleeps")) == 5
    AutoModel.from_pretrained(tmp_path / "model")
    assert AutoTokenizer.from_pretrained(tmp_path / "model").model_max_length > 10**9  # no table of positions
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "published.pt", "tokenizer"]


def test_command_makes_an_image_model_that_loads_anywhere(tmp_path):
    save_file(image_state_dict("decay", snake=True), tmp_path / "published.safetensors")
    (tmp_path / "labels.txt").write_text("\n".join("abcde"))
    words = ["--task", "image-classification", "--pooling", "mean", "--labels", tmp_path / "labels.txt"]
    run_command(tmp_path / "published.safetensors", tmp_path / "model", *words, "--image_size", 6, 8)
    model = AutoModelForImageClassification.from_pretrained(tmp_path / "model")
    assert model.config.image_shape == (6, 8)
    classify = pipeline("image-classification", model=str(tmp_path / "model"))
    assert {answer["label"] for answer in classify(Image.new("RGB", (20, 10), "tan"))} == set("abcde")


def test_command_leaves_nothing_behind_when_it_fails(tmp_path):
    torch.save(text_state_dict("lit", layer_norm=True, head="cls"), tmp_path / "published.pt")
    with pytest.raises(ValueError, match="--num_heads"):
        run_command(tmp_path / "published.pt", tmp_path / "model", "--task", "sequence-classification")
    with pytest.raises(ValueError, match="is one for 'sequence-classification'"):
        run_command(tmp_path / "published.pt", tmp_path / "model", "--task", "mlm")
    with pytest.raises(ValueError, match="--task"):
        run_command(tmp_path / "published.pt", tmp_path / "model")
    with pytest.raises(ValueError, match="no tokenizer in"):
        words = ["--task", "sequence-classification", "--num_heads", HEADS, "--tokenizer", tmp_path]
        run_command(tmp_path / "published.pt", tmp_path / "model", *words)
    with pytest.raises(FileNotFoundError, match="absent.pt"):
        run_command(tmp_path / "absent.pt", tmp_path / "model", "--task", "mlm")
    assert [path.name for path in tmp_path.iterdir()] == ["published.pt"]


def test_options_that_say_nothing_are_refused(tmp_path):
    torch.save(text_state_dict("decay", layer_norm=False), tmp_path / "text.pt")
    torch.save(image_state_dict("decay", positions=True, grid=(3, 3)), tmp_path / "image.pt")
    (tmp_path / "labels.txt").write_text("lion\n")
    with pytest.raises(ValueError, match="no classification head"):
        run_command(tmp_path / "text.pt", tmp_path / "model", "--task", "mlm", "--labels", tmp_path / "labels.txt")
    with pytest.raises(ValueError, match="drop --tokenizer"):
        words = ["--task", "image-classification", "--pooling", "cls", "--tokenizer", tmp_path]
        run_command(tmp_path / "image.pt", tmp_path / "model", *words)


def test_command_fails_when_the_kernels_do(tmp_path, capsys):
    state_dict = text_state_dict("decay", layer_norm=False)
    state_dict["bert.encoder.layer.1.intermediate.dense.bias"][0] = float("nan")
    torch.save(state_dict, tmp_path / "published.pt")
    assert main(["convert", str(tmp_path / "published.pt"), str(tmp_path / "model"), "--task", "mlm"]) == 1
    assert "FAILED: `lion verify" in capsys.readouterr().out


def test_command_refuses_a_folder_that_is_not_empty(tmp_path):
    torch.save(text_state_dict("decay", layer_norm=False), tmp_path / "published.pt")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.txt").write_text("precious")
    with pytest.raises(FileExistsError, match="not empty"):
        run_command(tmp_path / "published.pt", tmp_path / "model", "--task", "mlm")
    assert (tmp_path / "model" / "mine.txt").read_text() == "precious"
    (tmp_path / "model" / "mine.txt").unlink()
    run_command(tmp_path / "published.pt", tmp_path / "model", "--task", "mlm")
    assert LionForMaskedLM.from_pretrained(tmp_path / "model").config.mixer_type == "decay"


def test_an_empty_output_folder_stays_the_same_folder(tmp_path, monkeypatch):
    """A mount point cannot be removed, a link may lead elsewhere, and "." is somebody's working directory."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    (tmp_path / "to new").symlink_to(tmp_path / "new")
    before = (tmp_path / "disk").stat().st_ino
    monkeypatch.chdir(tmp_path / "disk")
    for name in (tmp_path / "link", ".", tmp_path / "to new"):
        with new_folder(name) as folder:
            (folder / "sub").mkdir()
            (folder / "sub" / "file").write_text("1")
        found = Path(name).resolve()
        assert (found / "sub" / "file").read_text() == "1" and [x.name for x in found.iterdir()] == ["sub"]
        shutil.rmtree(found / "sub")
    assert Path.cwd().stat().st_ino == before and (tmp_path / "link").is_symlink()


def test_an_output_folder_is_empty_after_a_failure(tmp_path, monkeypatch):
    def write(then):
        with new_folder(tmp_path) as folder:
            for name in ("a", "b"):
                (folder / name).write_text("1")
            then()

    with pytest.raises(ZeroDivisionError):
        write(lambda: 1 / 0)
    assert not any(tmp_path.iterdir())
    rename, moved = Path.rename, []

    def fails_once(self, target):
        moved.append(target)
        if len(moved) == 2:
            raise OSError("No space left on device")
        return rename(self, target)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(Path, "rename", fails_once)
        write(lambda: None)
    assert not any(tmp_path.iterdir())
    with pytest.raises(FileExistsError, match="got other files in the meantime"):
        write((tmp_path / "mine").touch)
    assert [x.name for x in tmp_path.iterdir()] == ["mine"]
