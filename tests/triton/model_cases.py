# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Whole models on a GPU against the definition in float64, with all gradients: padded, packed, compiled, captured in a
CUDA graph, under autocast, and trained. Without a GPU the same cases run on the CPU, small.
`python benchmarks/gpu/run.py check` runs this file beside triton_cases.py:

    pytest tests/triton/model_cases.py

Errors are relative to the largest number of a tensor, and at most twice the largest of the definition in that dtype.
"""

import copy

import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    ModernBertConfig,
    ModernBertForMaskedLM,
    Trainer,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
)

from configuration_lion import LionConfig, published_fields
from modeling_lion import LionForImageClassification, LionForMaskedLM, linearize


DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ON_GPU = DEVICE == "cuda"
# Sizes of encoders: heads of 64, as most have, and more tokens than one chunk.
SIZES = {"hidden_size": 128, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 256}
LENGTH = 600 if ON_GPU else 40
SIDE = 96 if ON_GPU else 24  # of images, in patches of 4: 577 or 37 tokens
CUT = LENGTH // 3  # tokens of padding
VOCABULARY = 100
PUBLISHED = {"LIT": "lit", "D": "decay", "S": "selective"}
MODELS = [*PUBLISHED, "recommended"]
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
# What is always allowed, by dtype.
ALLOWED = {torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 4e-2}
on_a_gpu = pytest.mark.skipif(not ON_GPU, reason="needs a GPU")


@pytest.fixture(autouse=True)
def exact_convolutions():
    """On a GPU, torch computes convolutions of float32 patches in TensorFloat-32 unless told otherwise."""
    convolutions = torch.backends.cudnn.conv
    before, convolutions.fp32_precision = convolutions.fp32_precision, "ieee"
    yield
    convolutions.fp32_precision = before


def make_model(name: str, modality: str, dtype: torch.dtype = torch.float32, **fields) -> torch.nn.Module:
    torch.manual_seed(0)
    fields = SIZES | {"modality": modality, "hidden_dropout_prob": 0.0, "initializer_range": 0.1} | fields
    if name in PUBLISHED:
        fields = published_fields(modality) | {"mixer_type": PUBLISHED[name]} | fields
    if modality == "image":
        config = LionConfig(image_size=SIDE, patch_size=4, num_labels=5, **fields)
        return LionForImageClassification(config).to(DEVICE, dtype).eval()
    config = LionConfig(vocab_size=VOCABULARY, max_position_embeddings=LENGTH, **fields)
    return LionForMaskedLM(config).to(DEVICE, dtype).eval()


def make_inputs(modality: str, batch: int = 2) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    if modality == "image":
        pixels = torch.randn(batch, 3, SIDE, SIDE, generator=generator)
        return {"pixel_values": pixels.to(DEVICE), "labels": torch.arange(batch, device=DEVICE) % 5}
    ids = torch.randint(5, VOCABULARY, (batch, LENGTH), generator=generator).to(DEVICE)
    return {"input_ids": ids, "labels": ids}


def results_of(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The loss, the logits and the gradients of all parameters, by name."""
    model.zero_grad()
    dtype = next(model.parameters()).dtype
    outputs = model(**{name: x.to(dtype) if x.is_floating_point() else x for name, x in inputs.items()})
    outputs.loss.backward()
    gradients = {name: x.grad.clone() for name, x in model.named_parameters() if x.grad is not None}
    return {"loss": outputs.loss.detach(), "logits": outputs.logits.detach(), **gradients}


def exact_copy(model: torch.nn.Module, implementation: str = "eager") -> torch.nn.Module:
    """The same weights in float64, with attention as it is defined."""
    model = copy.deepcopy(model).double()
    model.set_attn_implementation(implementation)
    return model


def error(result: torch.Tensor, right: torch.Tensor) -> float:
    """Relative to the largest number, infinite for NaN."""
    result = result.double()
    if not result.isfinite().all():
        return float("inf")
    return float((result - right).abs().max() / right.abs().max().clamp(min=1e-6))


def assert_near(results: dict, exact: dict, naive: dict | None = None, dtype: torch.dtype = torch.float32) -> None:
    """All results, or a message that names the worst one. A sum of few numbers has as much noise as the worst has."""
    assert results.keys() == exact.keys()
    allowed = ALLOWED[dtype] + 2 * max([error(x, exact[name]) for name, x in naive.items()] if naive else [0.0])
    errors = {name: error(results[name], right) for name, right in exact.items()}
    name = max(errors, key=errors.get)
    assert errors[name] <= allowed, f"{name} is off by {errors[name]:.1e} of the largest, allowed are {allowed:.1e}"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("modality", ["text", "image"])
@pytest.mark.parametrize("name", MODELS)
def test_forward_and_gradients(name, modality, dtype):
    model, inputs = make_model(name, modality, dtype), make_inputs(modality)
    results = results_of(model, inputs)
    exact = results_of(exact_copy(model), inputs)
    model.set_attn_implementation("eager")
    assert_near(results, exact, results_of(model, inputs), dtype)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", MODELS)
def test_padding(name, side):
    model, inputs = make_model(name, "text"), make_inputs("text", batch=1)
    padding = torch.zeros(1, CUT, dtype=torch.long, device=DEVICE)
    values = {"input_ids": 0, "labels": -100, "attention_mask": 0}
    rows = inputs | {"attention_mask": torch.ones_like(inputs["input_ids"])}
    rows = {name: x[:, CUT:] for name, x in rows.items()}
    padded = {
        name: torch.cat((padding + values[name], x) if side == "left" else (x, padding + values[name]), 1)
        for name, x in rows.items()
    }
    both = {name: torch.cat((inputs.get(name, torch.ones_like(x)), x)) for name, x in padded.items()}
    assert_near(results_of(model, both), results_of(exact_copy(model), both))
    model.eval()
    with torch.no_grad():
        logits = model(**both).logits[1:]
        alone = exact_copy(model)(**rows).logits
    assert error(logits[:, CUT:] if side == "left" else logits[:, :-CUT], alone) <= ALLOWED[torch.float32]


@pytest.mark.parametrize("name", MODELS)
def test_packed(name):
    """Sequences in one row are what they are alone."""
    model, inputs = make_model(name, "text"), make_inputs("text", batch=1)
    parts = [LENGTH // 2, 3, LENGTH - LENGTH // 2 - 3]
    positions = torch.cat([torch.arange(n, device=DEVICE) for n in parts])[None]
    borders = torch.tensor([0, *parts], device=DEVICE).cumsum(0).int()
    exact = exact_copy(model)
    logits = torch.cat([exact(ids).logits for ids in inputs["input_ids"].split(parts, 1)], 1)
    loss = torch.nn.functional.cross_entropy(logits[0], inputs["labels"][0])
    loss.backward()
    gradients = {name: x.grad for name, x in exact.named_parameters() if x.grad is not None}
    for packing in ({}, {"cu_seq_lens_q": borders, "cu_seq_lens_k": borders}):
        results = results_of(model, inputs | {"position_ids": positions} | packing)
        assert_near(results, {"loss": loss.detach(), "logits": logits.detach(), **gradients})


@pytest.mark.parametrize("modality", ["text", "image"])
@pytest.mark.parametrize("name", MODELS)
def test_compiled(name, modality):
    torch.compiler.reset()
    model, inputs = make_model(name, modality), make_inputs(modality)
    exact = results_of(exact_copy(model), inputs)
    model.compile(backend="inductor" if ON_GPU else "aot_eager", fullgraph=True)
    assert_near(results_of(model, inputs), exact)


@on_a_gpu
@pytest.mark.parametrize("modality", ["text", "image"])
@pytest.mark.parametrize("name", MODELS)
def test_cuda_graphs(name, modality):
    """Capture fails on any synchronization with the host, and a replay sees new inputs."""
    model, inputs = make_model(name, modality, torch.bfloat16), make_inputs(modality)
    (x,) = (x.to(torch.bfloat16) if x.is_floating_point() else x for name, x in inputs.items() if name != "labels")
    other, static = x.flip(1), x.clone()
    with torch.no_grad():
        expected = [model(inputs).logits for inputs in (x, other)]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            model(static)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            logits = model(static).logits
        for inputs, right in zip((x, other), expected, strict=True):
            static.copy_(inputs)
            graph.replay()
            assert torch.equal(logits, right)


@pytest.mark.parametrize("modality", ["text", "image"])
@pytest.mark.parametrize("name", MODELS)
def test_autocast(name, modality):
    """Weights and gradients stay in float32."""
    model, inputs = make_model(name, modality), make_inputs(modality)
    exact = results_of(exact_copy(model), inputs)
    with torch.autocast(DEVICE, torch.bfloat16):
        results = results_of(model, inputs)
        model.set_attn_implementation("eager")
        naive = results_of(model, inputs)
    assert all(x.dtype == torch.float32 for name, x in results.items() if name not in ("loss", "logits"))
    assert_near(results, exact, naive, torch.bfloat16)


class Rows(torch.utils.data.Dataset):
    """So many times the same rows."""

    def __init__(self, inputs: dict[str, torch.Tensor]):
        self.inputs = {name: x.cpu() for name, x in inputs.items()}

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return {name: x[index % len(x)] for name, x in self.inputs.items()}


@pytest.mark.parametrize("modality", ["text", "image"])
def test_trainer(modality, tmp_path):
    """Learns what it sees, in bfloat16, and what it saves is what it has."""
    model, inputs = make_model("recommended", modality), make_inputs(modality)
    arguments = TrainingArguments(
        str(tmp_path), max_steps=20, learning_rate=1e-3, per_device_train_batch_size=4, bf16=True, report_to="none",
        disable_tqdm=True, save_strategy="no", dataloader_pin_memory=ON_GPU, use_cpu=not ON_GPU,
    )  # fmt: skip
    first = model(**inputs).loss.item()
    trainer = Trainer(model, arguments, train_dataset=Rows(inputs))
    trainer.train()
    model.eval()
    with torch.no_grad():
        assert model(**inputs).loss.item() < 0.7 * first
    trainer.save_model()
    saved = type(model).from_pretrained(tmp_path).to(DEVICE).state_dict()
    assert all(torch.equal(x, saved[name]) for name, x in model.state_dict().items())


def without_padding(config: type, **fields):
    return config(**{f"{name}_token_id": i for i, name in enumerate(("pad", "bos", "eos", "cls", "sep"))}, **fields)


def test_modernbert_with_lion_local():
    """Windows in linear time give what windows give."""
    torch.manual_seed(0)
    sizes = SIZES | {"num_hidden_layers": 3, "vocab_size": VOCABULARY, "local_attention": 32}
    config = without_padding(ModernBertConfig, **sizes)
    model = ModernBertForMaskedLM._from_config(config, attn_implementation="lion_local").to(DEVICE).eval()
    inputs = make_inputs("text")
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    inputs["attention_mask"][1, LENGTH // 2 :] = 0
    inputs["labels"] = inputs["labels"].masked_fill(inputs["attention_mask"] == 0, -100)
    results, exact = results_of(model, inputs), results_of(exact_copy(model, "sdpa"), inputs)
    for each in (results, exact):  # what stands at padding is read by nobody
        each["logits"] = each["logits"][inputs["attention_mask"] == 1]
    assert_near(results, exact)


@pytest.mark.parametrize("mixer", list(PUBLISHED.values()))
@pytest.mark.parametrize("modality", ["text", "image"])
def test_linearized(modality, mixer):
    """A BERT and a ViT whose attention LION computes: in windows softmax, beyond them linear."""
    torch.manual_seed(0)
    fields = SIZES | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "num_labels": 5}
    if modality == "image":
        model = ViTForImageClassification(ViTConfig(image_size=SIDE, patch_size=4, **fields))
    else:
        config = BertConfig(vocab_size=VOCABULARY, max_position_embeddings=LENGTH, **fields)
        model = BertForSequenceClassification(config)
    model = linearize(model, mixer=mixer, window=8, exact_length=0).to(DEVICE).eval()
    inputs = make_inputs(modality)
    if modality == "text":
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        inputs["attention_mask"][1, LENGTH // 2 :] = 0
        inputs["labels"] = torch.tensor([1, 3], device=DEVICE)
    exact = results_of(copy.deepcopy(model).double(), inputs)
    assert_near(results_of(model, inputs), exact)
