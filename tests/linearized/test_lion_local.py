# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""`attn_implementation="lion_local"` gives transformers' own encoders with windows what "sdpa" gives, or "eager"."""

import copy
import itertools
import re
from pathlib import Path

import pytest
import torch
import transformers
from hub_checkpoints import TEXTS, text_tokenizer
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from torch import Tensor
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    BertConfig,
    ModernBertConfig,
    ModernBertForMaskedLM,
    PreTrainedModel,
    pipeline,
)
from transformers.masking_utils import create_bidirectional_sliding_window_mask

from modeling_lion import LionConfig, LionModel, linearize
from modeling_lion.linearized import lion_local
from modeling_lion.linearized.lion_local import ADDED_TO_WINDOW


LENGTH, WINDOW = 150, 5
SIZES = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 24,
    "num_attention_heads": 4,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = {"num_key_value_heads": 2, "head_dim": 8}  # keys and values for pairs of heads
LAYERS = {"num_hidden_layers": 3, "layer_types": ["sliding_attention", "sliding_attention", "full_attention"]}
T5_GEMMA = SIZES | GROUPED | LAYERS | {"sliding_window": WINDOW, "query_pre_attn_scalar": 8}
# Name of the model class, fields of its configuration, and what of transformers computes the same.
MODELS = {
    "modernbert": (
        "ModernBertModel",
        SIZES | LAYERS | {"local_attention": 2 * WINDOW, "cls_token_id": 1, "sep_token_id": 2},
        "sdpa",
    ),
    "neomme": (
        "NeoMMEModel",
        SIZES
        | LAYERS
        | GROUPED
        | {
            "head_dim": 16,
            "embedding_rank": 8,
            "sliding_window": WINDOW,
            "per_layer_config": {1: {"sliding_window": 2 * WINDOW}, 2: {"sliding_window": None}},
        },
        "sdpa",
    ),
    "ultrabert": ("UltrabertModel", SIZES | LAYERS | GROUPED | {"sliding_window": WINDOW}, "sdpa"),
    "embedding_gemma2": (
        "EmbeddingGemma2TextModel",
        SIZES
        | LAYERS
        | GROUPED
        | {
            "sliding_window": WINDOW,
            "global_head_dim": 16,
            "num_global_key_value_heads": 1,
            "hidden_size_per_layer_input": 8,
            "embedding_dim": 16,
        },
        "sdpa",
    ),
    "privacy_filter": (  # has attention sinks
        "OpenAIPrivacyFilterModel",
        SIZES
        | GROUPED
        | {
            "num_hidden_layers": 2,
            "sliding_window": WINDOW,
            "num_local_experts": 3,
            "num_experts_per_tok": 2,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
        },
        "eager",
    ),
    "t5gemma": (
        "T5GemmaEncoderModel",
        {"encoder": T5_GEMMA | {"attn_logit_softcapping": None}, "decoder": T5_GEMMA, "is_encoder_decoder": False},
        "eager",
    ),
    "t5gemma_with_soft_caps": (
        "T5GemmaEncoderModel",
        {"encoder": T5_GEMMA | {"attn_logit_softcapping": 2.0}, "decoder": T5_GEMMA, "is_encoder_decoder": False},
        "eager",
    ),
}


def pair(name: str, **fields) -> tuple[PreTrainedModel, PreTrainedModel]:
    """
    A small random model as transformers computes it, and the same with "lion_local"; in float64, or in float32 where
    "eager" takes its softmax in float32 and makes NaN of float64.
    """
    class_name, own_fields, truth = MODELS[name]
    model_class = getattr(transformers, class_name, None)
    if model_class is None:
        pytest.skip(f"transformers {transformers.__version__} has no {class_name}.")
    torch.manual_seed(0)
    config = model_class.config_class(**(copy.deepcopy(own_fields) | fields))
    theirs = model_class._from_config(config, attn_implementation=truth).eval()
    theirs = theirs if truth == "eager" else theirs.double()
    ours = copy.deepcopy(theirs)
    ours.set_attn_implementation("lion_local")
    return theirs, ours


LOOSE = {"atol": 1e-5, "rtol": 1e-4}


def tolerance(name: str) -> dict[str, float]:
    return LOOSE if MODELS[name][2] == "eager" else {"atol": 1e-9, "rtol": 1e-7}


def inputs(padding: str, length: int = LENGTH) -> dict[str, Tensor]:
    torch.manual_seed(1)
    real = torch.ones(2, length, dtype=torch.long)
    gaps = {"none": [], "left": [slice(0, 60)], "right": [slice(length - 60, length)], "inner": [slice(40, 90)]}
    for gap in gaps[padding]:
        real[0, gap] = 0
    found = {"input_ids": torch.randint(3, 40, (2, length)) * real}
    return found if padding == "none" else found | {"attention_mask": real}


def real_outputs(model: PreTrainedModel, tokens: dict[str, Tensor]) -> Tensor:
    output = model(**tokens).last_hidden_state
    mask = tokens.get("attention_mask")
    return output if mask is None else output[mask.bool()]


@pytest.mark.parametrize("padding", ["none", "left", "inner"])
@pytest.mark.parametrize("name", MODELS)
def test_outputs_and_gradients(name, padding):
    results = []
    for model in pair(name):
        output = real_outputs(model, inputs(padding))
        (output**2).mean().backward()
        results.append([output.detach(), *(x.grad for x in model.parameters() if x.grad is not None)])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, **tolerance(name))


# What else makes such masks: decoders that draft for another model, and read its keys and values.
REFUSED = {
    "diffusion_gemma": "diffusion_gemma_text",
    "gemma4_assistant": "gemma4_text",
    "gemma4_unified_assistant": "gemma4_unified_text",
    "muse_glimmer_assistant": "muse_glimmer_assistant",
}


def test_every_model_with_such_windows_is_known():
    folder = Path(transformers.__file__).parent / "models"
    paths = [
        path
        for path in folder.glob("*/modeling_*.py")
        if create_bidirectional_sliding_window_mask.__name__ in path.read_text(encoding="utf-8")
    ]
    computed = {re.sub("_text$", "", name) for name in ADDED_TO_WINDOW} | {"t5gemma"}
    assert {path.parent.name for path in paths} <= computed | REFUSED.keys()


@pytest.mark.parametrize("name", MODELS)
def test_windows_get_no_mask_of_all_pairs(name, monkeypatch):
    _, model = pair(name)
    seen = []
    attention = lion_local.windowed

    def watch(query, key, value, tokens, *args):
        seen.append(tokens.is_real)
        return attention(query, key, value, tokens, *args)

    monkeypatch.setattr(lion_local, "windowed", watch)
    model(**inputs("none"))
    model(**inputs("right"))
    assert [None if mask is None else mask.shape for mask in seen] == (
        [] if "soft_caps" in name else [None, None, (2, LENGTH), (2, LENGTH)]
    )


@pytest.mark.parametrize("name", ["modernbert", "ultrabert", "privacy_filter", "t5gemma_with_soft_caps"])
def test_dropout(name):
    outputs = []
    for model in pair(name, **({} if "t5" in name else {"attention_dropout": 0.3})):
        if "t5" in name:
            for layer in model.encoder.layers:
                layer.self_attn.attention_dropout = 0.3
        model.train()
        torch.manual_seed(2)
        outputs.append(real_outputs(model, inputs("left")))
    torch.testing.assert_close(*outputs, **tolerance(name))


@pytest.mark.parametrize("name", MODELS)
def test_returned_weights(name):
    theirs, ours = (model.float() for model in pair(name))
    theirs.set_attn_implementation("eager")
    found = [model(**inputs("right"), output_attentions=True) for model in (ours, theirs)]
    rows = inputs("right")["attention_mask"].bool()
    for our_weights, their_weights in zip(*(x.attentions for x in found), strict=True):
        assert our_weights.shape == (2, 4, LENGTH, LENGTH)
        torch.testing.assert_close(*(x.transpose(1, 2)[rows] for x in (our_weights, their_weights)), **LOOSE)
    torch.testing.assert_close(*(x.last_hidden_state[rows] for x in found), **LOOSE)


@pytest.mark.parametrize("name", ["modernbert", "ultrabert", "privacy_filter", "t5gemma_with_soft_caps"])
def test_packed_sequences_are_each_on_their_own(name):
    theirs, ours = pair(name)
    borders = [0, 30, 31, 100, LENGTH]
    ids = inputs("none")["input_ids"][:1]
    parts = [ids[:, start:end] for start, end in zip(borders, borders[1:], strict=False)]
    expected = torch.cat([theirs(part).last_hidden_state for part in parts], dim=1)
    position_ids = torch.cat([torch.arange(part.shape[1]) for part in parts]).unsqueeze(0)
    borders = torch.tensor(borders, dtype=torch.int32)
    found = ours(ids, position_ids=position_ids, cu_seq_lens_q=borders, cu_seq_lens_k=borders)
    torch.testing.assert_close(found.last_hidden_state, expected, **tolerance(name))


@pytest.mark.parametrize("dtype", [torch.bool, torch.float64])
def test_a_mask_of_ones_own(dtype):
    torch.manual_seed(3)
    seen = torch.rand(2, 1, LENGTH, LENGTH) < 0.3
    seen |= torch.eye(LENGTH, dtype=torch.bool)
    mask = seen if dtype == torch.bool else torch.zeros(seen.shape, dtype=dtype).masked_fill(~seen, -1e9)
    theirs, ours = (model(inputs("none")["input_ids"], mask).last_hidden_state for model in pair("modernbert"))
    torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=1e-7)


@pytest.mark.parametrize("name", ["modernbert", "embedding_gemma2", "privacy_filter"])
@pytest.mark.parametrize("is_autocast", [False, True])
def test_bfloat16(name, is_autocast):
    """No farther from float32 than twice transformers' own bfloat16, within what a single rounding may do."""
    models = pair(name)
    expected = real_outputs(models[0], inputs("right")).float()
    errors = []
    for model in models:
        model = model.float() if is_autocast else model.bfloat16()
        with torch.autocast("cpu", torch.bfloat16, enabled=is_autocast):
            errors.append((real_outputs(model, inputs("right")).float() - expected).square().mean().sqrt())
    theirs, ours = errors
    assert ours <= 1.5 * theirs + 1e-3


@pytest.mark.parametrize("name", ["modernbert", "privacy_filter", "t5gemma"])
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_gradient_checkpointing(name, use_reentrant):
    _, model = pair(name)
    gradients = []
    for is_checkpointed in (False, True):
        model.train()
        model.zero_grad()
        if is_checkpointed:
            enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
            enable({"use_reentrant": use_reentrant})
            model.enable_input_require_grads()
        real_outputs(model, inputs("inner")).square().mean().backward()
        gradients.append([x.grad for x in model.parameters() if x.grad is not None])
    torch.testing.assert_close(*gradients)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch and transformers give them
@pytest.mark.parametrize("name", ["sdpa", pytest.param("flex_attention", marks=pytest.mark.slow)])
def test_what_computes_on_other_devices(name, monkeypatch):
    """transformers' functions get what they take, tried on a CPU."""
    monkeypatch.setattr(lion_local, "name_on", lambda *args: name)
    theirs, ours = (model.float() for model in pair("modernbert"))
    for padding in ("none", "inner") if name == "sdpa" else ("inner",):  # flex_attention is compiled for each
        with torch.no_grad():
            found, expected = (real_outputs(model, inputs(padding)) for model in (ours, theirs))
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_choice_by_device(monkeypatch):
    config, cuda = ModernBertConfig(), torch.device("cuda")
    for has_flash, dtype, expected in [
        (True, torch.bfloat16, "flash_attention_2"),
        (True, torch.float32, "flex_attention"),
        (False, torch.bfloat16, "flex_attention"),
    ]:
        monkeypatch.setattr(lion_local, "is_flash_attn_2_available", lambda found=has_flash: found)
        assert lion_local.name_on(cuda, dtype, config) == expected
    assert lion_local.name_on(torch.device("mps"), torch.float16, config) == "sdpa"
    assert lion_local.name_on(torch.device("cpu"), torch.bfloat16, config) == "lion_local"


def refused(config, **call):
    model = AutoModel.from_config(config, attn_implementation="lion_local").eval()
    ids = torch.tensor([[3, 4, 5]])
    return model(ids, **dict.fromkeys(call, ids))


def test_refusals():
    sizes = {name: SIZES[name] for name in ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads")}
    sizes |= {"num_hidden_layers": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    causal = transformers.MistralConfig(**sizes, num_key_value_heads=2, sliding_window=3)
    both_ways = transformers.MistralConfig(**sizes, num_key_value_heads=2, sliding_window=3, is_causal=False)
    decoder = transformers.ModernBertDecoderConfig(**sizes, cls_token_id=1, sep_token_id=2)
    for config in (BertConfig(**sizes), causal, both_ways, decoder):
        with pytest.raises(ValueError, match=f'"{config.model_type}" is not known .* use "sdpa"'):
            refused(config)
    t5_gemma = transformers.T5GemmaConfig(**copy.deepcopy(MODELS["t5gemma"][1] | {"is_encoder_decoder": True}))
    with pytest.raises(ValueError, match='"t5_gemma_module" is causal'):
        refused(t5_gemma, decoder_input_ids=True)
    with pytest.raises(ValueError, match="not a form of the mixer"):
        LionModel(LionConfig(**sizes)).set_attn_implementation("lion_local")


def test_a_linearized_encoder_gives_its_source_again(tmp_path):
    """In the hand and from a folder, as "sdpa" does."""
    config = transformers.ModernBertConfig(**MODELS["modernbert"][1])
    source = AutoModel.from_config(config, attn_implementation="sdpa").eval()
    ids = torch.randint(3, 40, (1, 40), generator=torch.Generator().manual_seed(0))
    expected = source(ids).last_hidden_state
    positions = torch.cat((torch.arange(15), torch.arange(25))).unsqueeze(0)
    packing = {"position_ids": positions, "cu_seq_lens_q": torch.tensor([0, 15, 40], dtype=torch.int32)}
    packed = torch.cat((source(ids[:, :15]).last_hidden_state, source(ids[:, 15:]).last_hidden_state), 1)
    linear = linearize(source, layers="global", exact_length=8, window=2)
    linear.save_pretrained(tmp_path)
    for model in (linear, AutoModel.from_pretrained(tmp_path)):
        assert not torch.allclose(model.eval()(ids).last_hidden_state, expected, atol=1e-4)
        model.set_attn_implementation("lion_local")
        torch.testing.assert_close(model(ids).last_hidden_state, expected)
        torch.testing.assert_close(model(ids, **packing).last_hidden_state, packed)


def test_parts_of_a_model():
    config = transformers.T5GemmaConfig(**copy.deepcopy(MODELS["t5gemma"][1] | {"is_encoder_decoder": True}))
    model = AutoModel.from_config(config, attn_implementation="eager").eval()
    ids = inputs("right")
    call = lambda: model(**ids, decoder_input_ids=ids["input_ids"][:, :5]).last_hidden_state
    expected = call()
    model.set_attn_implementation({"encoder": "lion_local", "decoder": "eager"})
    torch.testing.assert_close(call(), expected, atol=1e-5, rtol=1e-4)


@pytest.fixture
def folder(tmp_path) -> str:
    """A saved ModernBERT for masked words, with a tokenizer."""
    torch.manual_seed(0)
    tokenizer = text_tokenizer()
    _, fields, _ = MODELS["modernbert"]
    config = ModernBertConfig(**(fields | {"vocab_size": len(tokenizer), "local_attention": 4}))
    ModernBertForMaskedLM(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    return str(tmp_path)


def test_from_pretrained_and_pipelines(folder):
    models = [AutoModelForMaskedLM.from_pretrained(folder, attn_implementation=x) for x in ("sdpa", "lion_local")]
    assert models[1].model.config._attn_implementation == "lion_local"
    texts = ["The lion [MASK] in the shade.", "A lion roars at [MASK], with its pride."]
    answers = [
        [[x["score"] for x in found] for found in pipeline("fill-mask", model=model, tokenizer=folder)(texts)]
        for model in models
    ]
    torch.testing.assert_close(*map(torch.tensor, answers))


def test_sentence_transformers(folder):
    vectors = []
    for name in ("sdpa", "lion_local"):
        tokens = Transformer(folder, model_kwargs={"attn_implementation": name})
        encoder = SentenceTransformer(modules=[tokens, Pooling(32)], device="cpu")
        vectors.append(encoder.encode(TEXTS[:3], convert_to_tensor=True))
    torch.testing.assert_close(*vectors, atol=1e-5, rtol=1e-5)
    encoder.save(f"{folder}/encoder")
    loaded = SentenceTransformer(f"{folder}/encoder", device="cpu", model_kwargs={"attn_implementation": "lion_local"})
    assert loaded[0].model.config._attn_implementation == "lion_local"
    torch.testing.assert_close(loaded.encode(TEXTS[:3], convert_to_tensor=True), vectors[1])


TWO_LAYERS = {"num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"]}


@pytest.mark.slow
def test_compile():
    """One graph for all lengths, without and with padding, and for heads that share keys; the first has gradients."""
    for name, paddings, backend in (("modernbert", ["inner"], "aot_eager"), ("ultrabert", ["none", "inner"], "eager")):
        theirs, ours = (model.float() for model in pair(name, **TWO_LAYERS))
        torch.compiler.reset()
        compiled = torch.compile(ours, fullgraph=True, backend=backend, dynamic=True)
        for padding, length in itertools.product(paddings, (LENGTH, LENGTH + 41)):
            tokens = inputs(padding, length)
            with torch.set_grad_enabled(backend == "aot_eager"):
                found, expected = (real_outputs(model, tokens) for model in (compiled, theirs))
            torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
        if found.requires_grad:
            found.square().mean().backward()
            expected.square().mean().backward()
            for our, their in zip(ours.parameters(), theirs.parameters(), strict=True):
                torch.testing.assert_close(our.grad, their.grad, atol=1e-4, rtol=1e-3)
    torch.compiler.reset()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["modernbert", "ultrabert"])
def test_export(name):
    theirs, ours = pair(name, **TWO_LAYERS)
    example = inputs("right")
    sizes = {0: torch.export.Dim("batch", min=1, max=64), 1: torch.export.Dim("length", min=2, max=4096)}
    program = torch.export.export(
        ours, (), example, dynamic_shapes={"input_ids": sizes, "attention_mask": sizes}, strict=False
    ).module()
    for length in (LENGTH, 40, 333):
        for padding in ("right", "inner") if length > 90 else ("right",):
            tokens = inputs(padding, max(length, 61))
            torch.testing.assert_close(
                real_outputs(program, tokens), real_outputs(theirs, tokens), atol=1e-9, rtol=1e-7
            )
