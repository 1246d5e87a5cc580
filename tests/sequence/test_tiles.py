# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Inference in tiles of tokens computes what it computes of all tokens at once."""

import pytest
import torch
from conftest import assert_equal

from modeling_lion import LionConfig, LionForMaskedLM, LionModel
from modeling_lion.sequence import tiles


SIZES = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 48}
SIZES |= {"vocab_size": 50, "chunk_size": 16, "initializer_range": 0.3}
HYBRID = {
    "layer_types": ["linear_attention", "sliding_attention"],
    "sliding_window": 5,
    "rope_parameters": {
        "linear_attention": None,
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
    },
}
MODELS = {
    "lit": {"mixer_type": "lit"},
    "decay": {"mixer_type": "decay", "norm_position": "pre"},
    "selective": {"mixer_type": "selective", "conv_kernel": 5},
    "wide convolution": {"mixer_type": "selective", "conv_kernel": 19, "use_gated_mlp": True},
    "softmax": {"mixer_type": "softmax", "rope_parameters": {"rope_type": "default", "rope_theta": 100.0}},
    "luna": {"mixer_type": "luna"},
    "hybrid": {"mixer_type": "selective", "conv_kernel": 3} | HYBRID,
    "one key head": {"mixer_type": "selective", "num_key_heads": 1, "conv_kernel": 3},
}
LENGTH = 90


@pytest.fixture
def small_tiles(monkeypatch):
    """Sets the tokens of a tile."""
    return lambda tokens: monkeypatch.setattr(tiles, "TILE_TOKENS", tokens)


def make_model(name: str, model_class: type = LionModel, **fields) -> LionModel:
    torch.manual_seed(0)
    return model_class(LionConfig(**(SIZES | MODELS[name] | fields))).double().eval()


def make_inputs(kind: str) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    inputs = {"input_ids": torch.randint(0, 50, (2, LENGTH), generator=generator)}
    if kind == "packed":
        lengths = (40, 1, 13, 36)
        inputs["position_ids"] = torch.cat([torch.arange(n) for n in lengths]).expand(2, -1)
    elif kind != "whole":
        mask = torch.ones(2, LENGTH, dtype=torch.long)
        mask[0, {"left": slice(0, 30), "right": slice(70, None), "interior": slice(25, 60)}[kind]] = 0
        inputs["attention_mask"] = mask
    return inputs


def tokens_of_mlp(model: LionModel) -> list[int]:
    """Filled with the tokens that the first MLP gets in every call; no hook, which would end the tiles."""
    seen, forward = [], model.base_model.layers[0].mlp.forward
    model.base_model.layers[0].mlp.forward = lambda x: seen.append(x.shape[:-1].numel()) or forward(x)
    return seen


@pytest.mark.parametrize("kind", ["whole", "left", "interior", "packed"])
@pytest.mark.parametrize("name", MODELS)
def test_equals_all_at_once(name, kind, small_tiles):
    model, inputs = make_model(name), make_inputs(kind)
    real = inputs.get("attention_mask", torch.ones(2, LENGTH)).bool()
    with torch.no_grad():
        expected = model(**inputs, output_hidden_states=True)
        seen = tokens_of_mlp(model)
        for tile_tokens in ([1] if kind == "interior" else []) + [16, 17, LENGTH, 100]:
            small_tiles(tile_tokens)
            actual = model(**inputs, output_hidden_states=True)
            assert max(seen) <= tile_tokens and sum(seen) == 2 * LENGTH
            seen.clear()
            assert_equal(actual.pooler_output, expected.pooler_output)
            for states, truth in zip(actual.hidden_states, expected.hidden_states, strict=True):
                assert_equal(states[real], truth[real])


@pytest.mark.parametrize("name", MODELS)
def test_is_as_exact_in_bfloat16(name, small_tiles):
    model, inputs = make_model(name), make_inputs("right")
    real = inputs["attention_mask"].bool()
    with torch.no_grad():
        truth = model(**inputs).last_hidden_state[real]
        model = model.bfloat16()
        error = (model(**inputs).last_hidden_state[real] - truth).abs().max()
        small_tiles(16)
        found = model(**inputs).last_hidden_state[real]
    assert found.dtype == torch.bfloat16
    assert (found - truth).abs().max() <= 2 * error


@pytest.mark.parametrize("fields", [{}, {"patch_order": "snake"}, {"use_cls_token": False}])
def test_images(fields, small_tiles):
    image = {"modality": "image", "image_size": (16, 20), "patch_size": 2, "max_position_embeddings": 512}
    model = make_model("selective", **image, **fields)
    inputs = {"pixel_values": torch.randn(3, 3, 16, 20, dtype=torch.float64)}
    with torch.no_grad():
        expected = model(**inputs)
        seen = tokens_of_mlp(model)
        for tile_tokens in (2, 16, 100):
            small_tiles(tile_tokens)
            assert_equal(model(**inputs).last_hidden_state, expected.last_hidden_state)
            assert max(seen) <= tile_tokens
            seen.clear()


@pytest.mark.parametrize("name", ["selective", "hybrid"])
def test_long_texts_in_segments(name, small_tiles):
    model, inputs = make_model(name), make_inputs("right")
    real = inputs["attention_mask"].bool()
    with torch.no_grad():
        expected = model(**inputs).last_hidden_state[real]
    small_tiles(8)
    seen = tokens_of_mlp(model)
    actual = model.encode_long(**inputs, segment_length=32, show_progress=False).last_hidden_state[real]
    assert max(seen) <= 8
    assert_equal(actual, expected)


def test_attention_weights(small_tiles):
    model, inputs = make_model("selective"), make_inputs("whole")
    with torch.no_grad():
        expected = model(**inputs, output_attentions=True).attentions
        small_tiles(16)
        actual = model(**inputs, output_attentions=True).attentions
    for weights, truth in zip(actual, expected, strict=True):
        assert_equal(weights, truth)


def test_what_waits_for_all_tokens_gets_them(small_tiles):
    """Gradients, hooks, and the chunks of the configuration."""
    small_tiles(16)
    model, inputs = make_model("selective"), make_inputs("whole")
    seen = tokens_of_mlp(model)
    model(**inputs).last_hidden_state.sum().backward()
    assert seen == [2 * LENGTH]
    seen.clear()
    with torch.no_grad():
        for part in ("attention.o_proj", "attention.mixer.k_conv", "mlp.up_proj", "mlp_norm"):
            shapes = []
            hook = (
                model.layers[1]
                .get_submodule(part)
                .register_forward_hook(lambda module, args, output, shapes=shapes: shapes.append(args[0].shape[:2]))
            )
            model(**inputs)
            hook.remove()
            assert shapes == [(2, LENGTH)], part
        assert seen == [2 * LENGTH] * 4
        seen.clear()
        whole = []
        model.layers[1].register_forward_hook(lambda module, args, output: whole.append(output.shape[:2]))
        model.layers[1].attention.register_forward_hook(lambda module, args, output: whole.append(output[0].shape[:2]))
        model(**inputs)
        assert whole == [(2, LENGTH)] * 2 and max(seen) <= 16
        seen.clear()
        setattr(model.layers[0].mlp.up_proj, "_hf_hook", object())  # noqa: B010 (as accelerate does)
        model(**inputs)
        assert seen == [2 * LENGTH]
        chunked = make_model("selective", chunk_size_feed_forward=45)
        seen = tokens_of_mlp(chunked)
        chunked(**inputs)
        assert seen == [2 * 45] * 2


@pytest.mark.slow
def test_graphs_have_no_tiles(small_tiles):
    """What is compiled or exported for one length or batch is right for others."""
    small_tiles(16)
    model, inputs = make_model("hybrid", LionForMaskedLM), make_inputs("whole")
    with torch.no_grad():
        expected = model(**inputs).logits
        graphs = []
        compiled = torch.compile(model, backend=lambda graph, _: graphs.append(graph) or graph.forward)
        assert_equal(compiled(**inputs).logits, expected)
        exported = torch.export.export(model, (), inputs, strict=False).module()
        assert_equal(exported(**inputs).logits, expected)
    copies = [node for graph in graphs for node in graph.graph.nodes if "copy_" in str(node.target)]
    assert graphs and not copies


def test_short_texts_and_few_tokens_have_no_tiles():
    model = make_model("lit")
    seen = tokens_of_mlp(model)
    with torch.no_grad():
        model(**make_inputs("whole"))
    assert seen == [2 * LENGTH]
