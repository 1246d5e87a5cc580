# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""transformers' own encoders with windows, by `attn_implementation="lion_local"`: equal to sdpa, or refused."""

import pytest
import torch
from hub_checkpoints import text_tokenizer
from sentence_transformers import SentenceTransformer
from tokenization_lion import LionTokenizer
from torch.func import functional_call
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, Trainer, TrainingArguments, pipeline

import modeling_lion  # noqa: F401 (registers "lion_local")
from modeling_lion.attention import transformers_windows
from modeling_lion.attention.kernels import KERNELS
from modeling_lion.attention.transformers_windows import EXCESS, lion_local_attention


SIZES = {"vocab_size": 99, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "pad_token_id": 0}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2}
LAYERS = {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
GROUPED = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
T5 = SIZES | TOKENS | LAYERS | GROUPED | {"sliding_window": 4, "query_pre_attn_scalar": 8}
# By model type: its configuration, and transformers' own function that is exact for it.
MODELS = {
    "modernbert": (SIZES | TOKENS | LAYERS | {"num_attention_heads": 4, "local_attention": 10}, "sdpa"),
    "neomme": (
        SIZES | GROUPED | {"head_dim": 16, "sliding_window": 6, "embedding_rank": 16}
        | {"layer_types": ["sliding_attention", "sliding_attention", "full_attention"]},
        "sdpa",
    ),
    "ultrabert": (SIZES | TOKENS | LAYERS | GROUPED | {"sliding_window": 5}, "sdpa"),
    "embedding_gemma2_text": (
        SIZES | TOKENS | GROUPED | {"sliding_window": 3, "sliding_window_pattern": 3, "global_head_dim": 16}
        | {"hidden_size_per_layer_input": 8, "embedding_dim": 12},
        "sdpa",
    ),
    "openai_privacy_filter": (
        SIZES | GROUPED | {"eos_token_id": 2, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 5},
        "eager",
    ),
    "t5_gemma_module": (T5 | {"attn_logit_softcapping": None}, "eager"),
}  # fmt: skip
LENGTH = 45


def make_model(model_type, implementation, dtype=torch.float64, **overrides):
    """A small random model, the same for every implementation."""
    values = MODELS[model_type][0] | overrides
    torch.manual_seed(0)
    if model_type == "t5_gemma_module":
        part = {name: value for name, value in values.items() if name != "layer_types"} | LAYERS
        config = AutoConfig.for_model("t5gemma", encoder=part, decoder=part | {"is_decoder": True})
        config.is_encoder_decoder = False
        from transformers import T5GemmaEncoderModel

        model = T5GemmaEncoderModel._from_config(config, attn_implementation=implementation)
    else:
        model = AutoModel.from_config(AutoConfig.for_model(model_type, **values), attn_implementation=implementation)
    for name, parameter in model.named_parameters():  # the sinks start as memory that nobody wrote
        if "sinks" in name:
            torch.nn.init.normal_(parameter)
    return model.to(dtype).eval()


def make_batch(padding="none", length=LENGTH):
    ids = torch.randint(3, 99, (2, length), generator=torch.Generator().manual_seed(1))
    real = torch.ones_like(ids)
    if padding == "left":
        real[0, :17] = 0
    elif padding == "right":
        real[0, 20:], real[1, -1:] = 0, 0
    elif padding == "inner":
        real[0, 9:13], real[1, 20:34] = 0, 0
    return {"input_ids": ids.where(real.bool(), 0), "attention_mask": real}


def close(found, expected, real=None, tolerance=1e-9):
    if real is not None:
        found, expected = found[real.bool()], expected[real.bool()]
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.fixture
def counted(monkeypatch):
    """How often windows were computed by hand."""
    calls = []
    kernel = KERNELS["cpu", "softmax_window"]
    monkeypatch.setitem(KERNELS, ("cpu", "softmax_window"), lambda *args: calls.append(1) or kernel(*args))
    monkeypatch.setattr("modeling_lion.attention.softmax_window.is_dense_fastest", lambda *args: False)
    return calls


@pytest.mark.parametrize("padding", ["none", "left", "right", "inner"])
@pytest.mark.parametrize("model_type", MODELS)
def test_equal_with_gradients(model_type, padding, counted):
    batch = make_batch(padding)
    real = batch["attention_mask"]
    exact, results = MODELS[model_type][1], []
    # The softmax of "eager" is float32 whatever the inputs are.
    dtype, tolerance = (torch.float64, 1e-9) if exact == "sdpa" else (torch.float32, 1e-5)
    for implementation in (exact, "lion_local"):
        model = make_model(model_type, implementation, dtype)
        hidden = model(**batch).last_hidden_state
        weights = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(2), dtype=hidden.dtype)
        (hidden * weights * real[..., None]).sum().backward()
        gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        results.append((hidden.detach(), gradients))
    assert counted
    (expected, right), (found, gradients) = results
    close(found, expected, real, tolerance)
    assert gradients.keys() == right.keys()
    for name, gradient in gradients.items():
        size = max(1, right[name].abs().max())
        assert (gradient - right[name]).abs().max() <= 3 * tolerance * size, name


def test_every_model_is_tested():
    assert EXCESS.keys() == MODELS.keys()


@pytest.mark.parametrize("length", [1, 2, 300])
def test_lengths(length):
    batch = make_batch(length=length)
    expected, found = (make_model("modernbert", name)(**batch).last_hidden_state for name in ("sdpa", "lion_local"))
    close(found, expected)


@pytest.mark.parametrize("model_type", ["modernbert", "ultrabert"])
def test_packed_sequences_are_apart(model_type):
    lengths = (20, 1, 24)
    borders = torch.tensor([0, *lengths]).cumsum(0).int()
    model = make_model(model_type, "lion_local")
    ids = make_batch()["input_ids"][:1]
    positions = torch.cat([torch.arange(n) for n in lengths])[None]
    found = model(ids, position_ids=positions, cu_seq_lens_q=borders, cu_seq_lens_k=borders).last_hidden_state
    alone = make_model(model_type, "sdpa")
    expected = torch.cat([alone(part).last_hidden_state for part in ids.split(lengths, dim=1)], dim=1)
    close(found, expected)


def test_dropout_is_that_of_sdpa():
    results = []
    for implementation in ("sdpa", "lion_local"):
        model = make_model("modernbert", implementation, attention_dropout=0.3).train()
        torch.manual_seed(3)
        results.append(model(**make_batch("right")).last_hidden_state)
    close(*results[::-1], make_batch("right")["attention_mask"])


def test_a_mask_of_pairs_is_taken_as_it_is():
    batch = make_batch()
    pairs = torch.rand(2, 1, LENGTH, LENGTH, generator=torch.Generator().manual_seed(4)) < 0.5
    pairs |= torch.eye(LENGTH, dtype=torch.bool)
    batch["attention_mask"] = pairs
    expected, found = (make_model("modernbert", name)(**batch).last_hidden_state for name in ("sdpa", "lion_local"))
    close(found, expected)


def test_switched_saved_and_loaded(tmp_path):
    model = make_model("modernbert", "sdpa")
    expected = model(**make_batch("left")).last_hidden_state
    model.set_attn_implementation("lion_local")
    close(model(**make_batch("left")).last_hidden_state, expected, make_batch("left")["attention_mask"])
    model.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path, attn_implementation="lion_local", dtype=torch.float64)
    close(loaded(**make_batch("left")).last_hidden_state, expected, make_batch("left")["attention_mask"])
    assert AutoModel.from_pretrained(tmp_path).config._attn_implementation == "sdpa"


def test_bfloat16_is_as_good_as_sdpa():
    batch = make_batch("right", 400)
    real = batch["attention_mask"].bool()
    exact = make_model("modernbert", "sdpa")(**batch).last_hidden_state[real]
    errors = [
        (make_model("modernbert", name, torch.bfloat16)(**batch).last_hidden_state[real].double() - exact)
        .square()
        .mean()
        .sqrt()
        for name in ("sdpa", "lion_local")
    ]
    assert errors[1] <= 1.2 * errors[0]


@pytest.mark.filterwarnings("ignore:`.*gradient_checkpointing.*` is deprecated:FutureWarning")
def test_gradient_checkpointing():
    model = make_model("modernbert", "lion_local").train()
    model(**make_batch("inner")).last_hidden_state.square().sum().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model.gradient_checkpointing_enable()
    model(**make_batch("inner")).last_hidden_state.square().sum().backward()
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        close(parameter.grad, gradient)


def test_gradients_of_each_example():
    model = make_model("modernbert", "lion_local")
    ids = make_batch()["input_ids"]
    weights = dict(model.named_parameters())

    def loss(weights, ids):
        return functional_call(model, weights, (ids[None],)).last_hidden_state.square().sum()

    one_by_one = [torch.func.grad(loss)(weights, x) for x in ids]
    for n, x in enumerate(ids):
        model.zero_grad()
        loss(weights, x).backward()
        for name, gradient in one_by_one[n].items():
            close(gradient, weights[name].grad)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ["modernbert", "openai_privacy_filter"])
def test_compiled(model_type):
    model = make_model(model_type, "lion_local", torch.float32)
    batch = make_batch("right", 300)
    real = batch["attention_mask"].bool()
    with torch.no_grad():
        expected = model(**batch).last_hidden_state[real]
        found = torch.compile(model, backend="aot_eager")(**batch).last_hidden_state[real]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_exported_for_every_length():
    model = make_model("modernbert", "lion_local", torch.float32)
    batch = make_batch("right", 300)
    length = torch.export.Dim("length", min=2, max=2000)
    exported = torch.export.export(
        model, (), batch, dynamic_shapes={name: {1: length} for name in batch}, strict=False
    ).module()
    for batch in (make_batch("left", 300), make_batch("right", 77)):
        real = batch["attention_mask"].bool()
        found = exported(**batch).last_hidden_state[real]
        torch.testing.assert_close(found, model(**batch).last_hidden_state[real], rtol=1e-4, atol=1e-5)


REFUSED = {
    "no window": ("bert", {}, "This is 'bert'"),
    "causal": ("llama", GROUPED, "This is 'llama'"),
    "causal with windows": ("modernbert-decoder", TOKENS | {"num_attention_heads": 4}, "'modernbert-decoder'"),
}


@pytest.mark.parametrize("model_type, values, message", REFUSED.values(), ids=REFUSED)
def test_other_models_are_refused(model_type, values, message):
    config = AutoConfig.for_model(model_type, **SIZES | {"num_attention_heads": 4} | values)
    model = AutoModel.from_config(config, attn_implementation="lion_local").eval()
    with pytest.raises(ValueError, match=message):
        model(torch.tensor([[1, 2, 3]]))


def test_what_windows_cannot_compute_is_refused():
    capped = make_model("t5_gemma_module", "lion_local", attn_logit_softcapping=50.0)
    with pytest.raises(ValueError, match="`attn_logit_softcapping` is 50.0"):
        capped(**make_batch())
    sinks = make_model("openai_privacy_filter", "lion_local", attention_dropout=0.1).train()
    with pytest.raises(ValueError, match="`attention_dropout` is 0.1 in a layer with attention sinks"):
        sinks(**make_batch())


def test_a_gpu_with_flash_attention_computes_windows_by_it(monkeypatch):
    """Which options it is called with; there is no GPU here."""
    called = {}

    def flash(module, query, key, value, attention_mask, **options):
        called.update(options)
        return query.transpose(1, 2), None

    monkeypatch.setattr(transformers_windows, "runs_flash_attention", lambda query: True)
    monkeypatch.setitem(transformers_windows.ALL_ATTENTION_FUNCTIONS._local_mapping, "flash_attention_2", flash)
    layer = make_model("modernbert", "lion_local").layers[0].attn
    query = torch.randn(1, 4, 9, 8)
    lion_local_attention(layer, query, query, query, None, sliding_window=layer.sliding_window)
    assert called["sliding_window"] == 6 and called["is_causal"] is False


def masked_lm(implementation, folder):
    """A saved masked language model of ModernBERT's kind, with its tokenizer."""
    tokenizer = text_tokenizer()
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("pad", "cls", "sep")}
    values = MODELS["modernbert"][0] | ids | {"vocab_size": len(tokenizer)}
    torch.manual_seed(0)
    config = AutoConfig.for_model("modernbert", **values)
    AutoModelForMaskedLM.from_config(config, attn_implementation=implementation).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def test_pipelines_and_sentence_transformers(tmp_path):
    folder = masked_lm("sdpa", tmp_path)
    text = "a lion [MASK] in the grass"
    scores, vectors = [], []
    for name in ("sdpa", "lion_local"):
        options = {"model_kwargs": {"attn_implementation": name}}
        filled = pipeline("fill-mask", model=folder, tokenizer=LionTokenizer.from_pretrained(folder), **options)(text)
        scores.append([answer["score"] for answer in filled])
        encoder = SentenceTransformer(folder, **options)
        assert encoder[0].model.config._attn_implementation == name
        vectors.append(encoder.encode([text * 20, "grass"]))
    assert scores[0] == pytest.approx(scores[1], rel=1e-4)
    assert vectors[0] == pytest.approx(vectors[1], abs=1e-5)


def test_trained_by_the_trainer(tmp_path):
    folder = masked_lm("sdpa", tmp_path / "model")
    ids = torch.randint(5, 30, (8, 90), generator=torch.Generator().manual_seed(0))
    rows = [{"input_ids": x, "labels": x} for x in ids]
    losses = []
    for name in ("sdpa", "lion_local"):
        model = AutoModelForMaskedLM.from_pretrained(folder, attn_implementation=name)
        options = TrainingArguments(
            tmp_path / name, max_steps=3, learning_rate=1e-2, report_to=[], use_cpu=True, seed=1, logging_steps=1
        )
        trainer = Trainer(model, options, train_dataset=rows)
        trainer.train()
        losses.append([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4) and losses[0][-1] < losses[0][0]
