# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Softmax attention in the backbone of LION is that of transformers' BERT and ViT, whatever computes it."""

import math

import pytest
import torch
from hub_checkpoints import text_checkpoint
from hub_upload_lion import convert_original_state_dict, verify_checkpoint
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    BertConfig,
    BertForMaskedLM,
    ViTConfig,
    ViTForImageClassification,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from configuration_lion import published_fields
from modeling_lion import LionConfig, LionForImageClassification, LionForMaskedLM
from modeling_lion.mixers.softmax import eager_softmax


SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "initializer_range": 0.3,
}
CHOICES = ["sdpa", "eager"]
# Names of weights in ViT, and in LION.
OF_VIT = {
    "vit.": "lion.",
    "patch_embeddings.projection": "patch_embeddings",
    "attention.q_": "attention.mixer.q_",
    "attention.k_": "attention.mixer.k_",
    "attention.v_": "attention.mixer.v_",
    "layernorm_before": "attention_norm",
    "layernorm_after": "mlp_norm",
    "layernorm": "norm",
    "mlp.fc1": "mlp.up_proj",
    "mlp.fc2": "mlp.down_proj",
}


def softmax_config(modality: str, **fields) -> LionConfig:
    """LION as published, with softmax in every layer."""
    return LionConfig(**published_fields(modality) | SIZES | fields | {"modality": modality, "mixer_type": "softmax"})


@pytest.mark.parametrize("choice", CHOICES)
def test_equals_bert(choice, equal):
    bert = BertForMaskedLM(BertConfig(vocab_size=40, **SIZES)).double().eval()
    config = softmax_config("text", vocab_size=40, max_position_embeddings=512)
    model = LionForMaskedLM._from_config(config, attn_implementation=choice).double().eval()
    model.load_state_dict(convert_original_state_dict(bert.state_dict(), config))
    bert.set_attn_implementation("eager")
    input_ids = torch.randint(1, 40, (3, 9))
    mask = torch.arange(9) < torch.tensor([[9], [4], [1]])
    inputs = {"input_ids": input_ids, "attention_mask": mask.long(), "output_attentions": choice == "eager"}
    actual, expected = model(**inputs), bert(**inputs)
    equal(actual.logits[mask], expected.logits[mask])
    for weights, right in zip(actual.attentions or (), expected.attentions or (), strict=True):
        equal(weights.transpose(1, 2)[mask], right.transpose(1, 2)[mask])


@pytest.mark.parametrize("choice", CHOICES)
def test_equals_vit(choice, equal):
    vit = ViTForImageClassification(ViTConfig(image_size=12, patch_size=4, **SIZES)).double().eval()
    config = softmax_config("image", image_size=12, patch_size=4, pooling="cls", layer_norm_eps=1e-12)
    model = LionForImageClassification._from_config(config, attn_implementation=choice).double().eval()
    weights = {}
    for name, weight in vit.state_dict().items():
        for old, new in OF_VIT.items():
            name = name.replace(old, new)
        weights[name] = weight
    model.load_state_dict(weights)
    pixel_values = torch.randn(2, 3, 12, 12, dtype=torch.float64)
    equal(model(pixel_values).logits, vit(pixel_values).logits)


def test_the_kernels_of_linear_attention_are_refused(find_case):
    case = find_case("LionModel", "text")
    for name in ("chunk", "parallel", "rnn"):
        with pytest.raises(ValueError, match=f"'{name}'.*linear attention.*'softmax'.*\"sdpa\".*\"eager\""):
            case.model("softmax", name)
    for name, chosen in ((None, "sdpa"), ("auto", "sdpa"), ("sdpa", "sdpa"), ("eager", "eager")):
        assert case.model("softmax", name).config._attn_implementation == chosen
    with pytest.raises(ImportError, match="FlashAttention2"):
        case.model("softmax", "flash_attention_2")


@pytest.fixture
def registered(monkeypatch):
    """An attention function of the user's, registered with transformers; what it was called with."""
    calls = []

    def function(module, query, key, value, attention_mask, **kwargs):
        calls.append((attention_mask, kwargs))
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)

    monkeypatch.setitem(AttentionInterface._global_mapping, "mine", function)
    monkeypatch.setitem(AttentionInterface._global_mapping, "my_flash", function)
    return calls


def test_registered_functions(registered, find_case, equal, monkeypatch):
    case = find_case("LionModel", "text")
    model = case.model("softmax")
    input_ids, mask = torch.randint(1, 40, (2, 9)), torch.ones(2, 9)
    expected = model(input_ids).last_hidden_state
    model.set_attn_implementation("mine")
    equal(model(input_ids).last_hidden_state, expected)
    assert len(registered) == 2
    mask[0, 5:] = 0
    with pytest.raises(ValueError, match='no mask function for `attn_implementation="mine"`.*AttentionMaskInterface'):
        model(input_ids, attention_mask=mask)
    monkeypatch.setitem(AttentionMaskInterface._global_mapping, "mine", sdpa_mask)
    padded = model(input_ids, attention_mask=mask).last_hidden_state
    equal(padded[:1, :5], model(input_ids[:1, :5]).last_hidden_state)


def test_flash_attention_is_told_where_packed_sequences_begin(registered, find_case, monkeypatch):
    """There is none on a CPU: what it would be called with."""
    monkeypatch.setitem(AttentionMaskInterface._global_mapping, "my_flash", lambda attention_mask, **_: attention_mask)
    model = find_case("LionModel", "text").model("softmax")
    model.config._attn_implementation_internal = "my_flash"  # set_attn_implementation would look for the real one
    borders = torch.tensor([0, 4, 9])
    model(torch.randint(1, 40, (1, 9)), cu_seq_lens_q=borders)
    mask, kwargs = registered[0]
    assert mask is None and kwargs["cu_seq_lens_q"].tolist() == kwargs["cu_seq_lens_k"].tolist() == [0, 4, 9]
    assert kwargs["max_length_q"] == kwargs["max_length_k"] == 5 and kwargs["cu_seq_lens_q"].dtype == torch.int32
    padding = torch.ones(1, 9)
    padding[0, 8] = 0
    with pytest.raises(ValueError, match="packed sequences or padded ones, not both"):
        model(torch.randint(1, 40, (1, 9)), attention_mask=padding, cu_seq_lens_q=borders)
    with pytest.raises(ValueError, match="eager.*output_attentions"):
        model(torch.randint(1, 40, (1, 9)), cu_seq_lens_q=borders, output_attentions=True)


@pytest.mark.parametrize("mixer", ["softmax", "luna"])
def test_a_checkpoint_is_verified_with_what_computes_it(mixer, tmp_path):
    result = verify_checkpoint(text_checkpoint(tmp_path / mixer, mixer_type=mixer))
    assert result.passed and {e.kernel for e in result.errors} == {"sdpa"}
    assert not result.numerics.heads and result.numerics.first_nan is None


def test_eager_form():
    query, key, value = torch.randn(3, 1, 2, 5, 4, dtype=torch.float64)
    mask = torch.tensor([True, True, False, True, False])[None, None, None]
    output, weights = eager_softmax(None, query, key, value, mask, 0.5)
    for i in range(5):
        scores = [math.exp(0.5 * query[0, 1, i] @ key[0, 1, j]) if mask[0, 0, 0, j] else 0.0 for j in range(5)]
        right = torch.tensor(scores, dtype=torch.float64) / sum(scores)
        torch.testing.assert_close(weights[0, 1, i], right)
        torch.testing.assert_close(output[0, i, 1], right @ value[0, 1])
    assert (eager_softmax(None, query, key, value, torch.zeros_like(mask), 0.5)[0] == 0).all()
