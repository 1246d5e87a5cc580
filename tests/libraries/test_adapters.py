# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Adapters of peft and quantised weights: the decays are trained like the rest, and never rounded."""

import importlib
import json

import peft
import pytest
import torch
from conftest import mixer_fields
from hub_checkpoints import linear_encoder
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, BitsAndBytesConfig, pipeline
from transformers.quantizers.quantizers_utils import should_convert_module

from modeling_lion import LionConfig, LionForMaskedLM, LionForSequenceClassification, LionTokenizer


# peft asks transformers 5.23 for what that has renamed.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")

TINY = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 96, "vocab_size": 50}


@pytest.fixture
def saved(mixer, tmp_path) -> str:
    model = LionForSequenceClassification(LionConfig(**mixer_fields(mixer), initializer_range=0.1, **TINY))
    model.save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


@pytest.fixture
def batch() -> dict[str, torch.Tensor]:
    ids = torch.randint(1, 50, (8, 12))
    mask = torch.ones_like(ids)
    mask[::2, 7:] = 0
    return {"input_ids": ids, "attention_mask": mask, "labels": torch.arange(8) % 2}


def train(model: torch.nn.Module, batch: dict[str, torch.Tensor], steps: int = 20) -> list[float]:
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    losses = []
    for _ in range(steps):
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def test_lora_trains_saves_loads_and_merges(mixer, saved, batch, tmp_path):
    base = AutoModelForSequenceClassification.from_pretrained(saved)
    # The decays of LION-D are no matrix: trained as they are.
    whole = ["decay"] if mixer == "decay" else None
    config = peft.LoraConfig(task_type="SEQ_CLS", target_modules="all-linear", modules_to_save=whole)
    model = peft.get_peft_model(base, config)
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert any("decay" in name for name in trained) == (mixer in ("decay", "selective", "delta", "hybrid"))
    adapted = {name.split(".")[-4] for name in trained if ".lora_A." in name}
    assert adapted >= {"q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj"}
    assert ("decay_proj" in adapted) == (mixer in ("selective", "delta", "hybrid"))
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    losses = train(model, batch)
    assert losses[-1] < losses[0] / 4
    moved = {name for name, parameter in model.named_parameters() if not parameter.equal(before[name])}
    assert moved == trained

    model.eval().save_pretrained(tmp_path / "adapter")
    expected = model(**batch).logits
    base = AutoModelForSequenceClassification.from_pretrained(saved)
    loaded = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    torch.testing.assert_close(loaded(**batch).logits, expected, atol=0, rtol=0)
    merged = loaded.merge_and_unload()
    merged.save_pretrained(tmp_path / "merged")
    merged = AutoModelForSequenceClassification.from_pretrained(tmp_path / "merged")
    assert isinstance(merged, LionForSequenceClassification)
    torch.testing.assert_close(merged(**batch).logits, expected, atol=1e-5, rtol=1e-5)


def linear_batch(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Twice as long: some of its rows are longer than an encoder that became linear computes by softmax."""
    return {name: x if name == "labels" else x.repeat(1, 3) for name, x in batch.items()}


def test_lora_on_an_encoder_that_became_linear(batch, tmp_path):
    """The parts of LION are trained as they are beside the adapters of the encoder's own projections."""
    batch = linear_batch(batch)
    base = linear_encoder("BertForSequenceClassification")
    base.save_pretrained(tmp_path / "base")
    config = peft.LoraConfig(task_type="SEQ_CLS", target_modules=["query", "value"], modules_to_save=["lion"])
    model = peft.get_peft_model(base, config)
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    before = {name: model.get_parameter(name).detach().clone() for name in trained}
    losses = train(model, batch)
    assert losses[-1] < losses[0] / 4
    assert any(".lion." in name for name in trained) and any(".query.lora_A." in name for name in trained)
    assert all(not model.get_parameter(name).equal(before[name]) for name in trained)
    with torch.no_grad():
        expected = model.eval()(**batch).logits
    model.save_pretrained(tmp_path / "adapter")
    base = AutoModelForSequenceClassification.from_pretrained(tmp_path / "base")
    loaded = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    with torch.no_grad():
        assert torch.equal(loaded(**batch).logits, expected)
    loaded.merge_and_unload().save_pretrained(tmp_path / "merged")
    merged = AutoModelForSequenceClassification.from_pretrained(tmp_path / "merged")
    assert type(merged).__name__ == "LionBertForSequenceClassification"
    torch.testing.assert_close(merged(**batch).logits, expected, atol=1e-5, rtol=1e-5)


def test_layers_that_keep_softmax_have_nothing_for_an_adapter(batch):
    """peft wraps their markers as it wraps the parts with weights."""
    batch = linear_batch(batch)
    model = linear_encoder("BertForSequenceClassification", options={"layers": "alternate"})
    with torch.no_grad():
        expected = model(**batch).logits
    config = peft.LoraConfig(task_type="SEQ_CLS", target_modules=["query", "value"], modules_to_save=["lion"])
    model = peft.get_peft_model(model, config).eval()
    with torch.no_grad():
        torch.testing.assert_close(model(**batch).logits, expected, atol=0, rtol=0)
    losses = train(model, batch)
    assert losses[-1] < losses[0] / 4


@pytest.mark.parametrize("bits", [8, 4])
def test_quantised_weights_of_an_encoder_that_became_linear(bits, batch, tmp_path):
    batch = linear_batch(batch)
    sizes = {"hidden_size": 128, "intermediate_size": 256}
    plain = linear_encoder("BertForSequenceClassification", **sizes, initializer_range=0.1)
    plain.save_pretrained(tmp_path)
    quantization_config = BitsAndBytesConfig(**{f"load_in_{bits}bit": True}, bnb_4bit_quant_type="nf4")
    options = {"quantization_config": quantization_config, "device_map": "cpu"}
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path, **options).eval()
    assert not model.bert.encoder.layer[0].attention.self.query.weight.is_floating_point()
    for name, parameter in model.named_parameters():
        if ".lion." in name:  # as they were
            torch.testing.assert_close(parameter, plain.get_parameter(name), atol=0, rtol=0)
    inputs = {name: x for name, x in batch.items() if name != "labels"}
    with torch.no_grad():
        states = [m.base_model(**inputs).last_hidden_state for m in (model, plain)]
    assert (states[0] - states[1]).norm() < {8: 0.05, 4: 0.25}[bits] * states[1].norm()


@pytest.mark.axes(bits=[8, 4], dtype=[torch.float32, torch.bfloat16])
def test_quantised_weights(bits, dtype, mixer, saved, batch):
    quantization_config = BitsAndBytesConfig(
        **{f"load_in_{bits}bit": True}, bnb_4bit_quant_type="nf4", llm_int8_skip_modules=["classifier"]
    )
    model = AutoModelForSequenceClassification.from_pretrained(
        saved, quantization_config=quantization_config, dtype=dtype, device_map="cpu"
    )
    plain = AutoModelForSequenceClassification.from_pretrained(saved)
    decays = {name: parameter for name, parameter in model.named_parameters() if "decay" in name}
    assert any(decays) == (mixer in ("decay", "selective", "delta", "hybrid"))
    for name, parameter in decays.items():  # as they were, not a bit less
        torch.testing.assert_close(parameter, plain.get_parameter(name), atol=0, rtol=0)
    layer = model.lion.layers[0]
    for module in (layer.attention.mixer.q_proj, layer.attention.o_proj, layer.mlp.up_proj, layer.mlp.down_proj):
        assert not module.weight.is_floating_point()
    states = [m.lion(batch["input_ids"], batch["attention_mask"]).last_hidden_state.float() for m in (model, plain)]
    assert (states[0] - states[1]).norm() < {8: 0.05, 4: 0.25}[bits] * states[1].norm()
    # What a quantised model can't be itself, an adapter can: trained.
    adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="SEQ_CLS", target_modules="all-linear"))
    losses = train(adapted, batch, steps=8)
    assert losses[-1] < losses[0]


def test_every_quantiser_leaves_the_decays_out(mixer, saved):
    """bitsandbytes and quanto ask for names of modules, torchao for those of parameters."""
    model = AutoModelForSequenceClassification.from_pretrained(saved)
    patterns = list(model._keep_in_fp32_modules)
    for name, parameter in model.named_parameters():
        is_converted = should_convert_module(name, patterns)
        assert is_converted == should_convert_module(name.rpartition(".")[0], patterns) or parameter.dim() == 1
        assert is_converted == ("decay" not in name)


def test_new_words_are_trained_beside_lora(batch):
    """`trainable_token_indices`: rows of the table of words, which the head of masked words shares."""
    base = LionForMaskedLM(LionConfig(**TINY))
    before = base.lion.embeddings.word_embeddings.weight.detach().clone()
    model = peft.get_peft_model(base, peft.LoraConfig(target_modules=["q_proj"], trainable_token_indices=[7, 9]))
    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    losses = train(model, inputs | {"labels": torch.full_like(batch["input_ids"], 7)}, steps=5)
    assert losses[-1] < losses[0]
    with pytest.raises(ValueError, match="`input_ids` holds 50, outside 0 to 49"):
        model(torch.tensor([[50]]))
    expected = model.eval()(**inputs).logits
    merged = model.merge_and_unload()
    weight = merged.lion.embeddings.word_embeddings.weight
    assert merged.lm_head.decoder.weight is weight
    assert (weight != before).any(1).nonzero().flatten().tolist() == [7, 9]
    torch.testing.assert_close(merged(**inputs).logits, expected)


def test_replaced_decays_are_an_error():
    """As optimum-quanto replaces every linear layer, subclasses included, unless told which to leave out."""
    model = LionForMaskedLM(LionConfig(**TINY))
    mixer = model.lion.layers[0].attention.mixer
    mixer.decay_proj = torch.nn.Linear(mixer.decay_proj.in_features, mixer.decay_proj.out_features)
    with pytest.raises(TypeError, match='has become a Linear.*exclude="\\*decay\\*"'):
        model(torch.tensor([[7, 8]]))


@pytest.mark.slow
@pytest.mark.parametrize(("quantize", "mixer_type"), [([], "selective"), (["--quantize", "nf4"], "decay")])
def test_the_example_leaves_a_classifier(quantize, mixer_type, tmp_path):
    texts = {"It roars at night.": "loud", "It sleeps in the shade.": "quiet"}
    tokenizer = LionTokenizer.train_from_iterator(list(texts), vocab_size=60)
    before = LionForMaskedLM(LionConfig(mixer_type=mixer_type, **(TINY | {"vocab_size": len(tokenizer)})))
    before.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    rows = [json.dumps({"text": text, "label": label}) for text, label in texts.items()] * 8
    (tmp_path / "train.jsonl").write_text("\n".join(rows), encoding="utf-8")

    def run(output_dir, *more):
        importlib.import_module("finetune_lora").main(
            ["--model", str(tmp_path / "model"), "--train_file", str(tmp_path / "train.jsonl"), *quantize, "--use_cpu"]
            + ["--output_dir", str(output_dir), "--max_steps", "24", "--save_steps", "16", "--learning_rate", "0.01"]
            + ["--report_to", "none", "--disable_tqdm", "True", "--dataloader_pin_memory", "False", *more]
        )
        return load_file(output_dir / "adapter_model.safetensors")

    whole = run(tmp_path / "lora")
    if not quantize:
        resumed = run(tmp_path / "resumed", "--resume_from_checkpoint", str(tmp_path / "lora" / "checkpoint-16"))
        assert whole.keys() == resumed.keys() and all(torch.equal(whole[name], resumed[name]) for name in whole)
    classify = pipeline("text-classification", model=str(tmp_path / "lora" / "merged"), device="cpu")
    assert [answer["label"] for answer in classify(list(texts))] == list(texts.values())
    decays = {name: parameter for name, parameter in classify.model.named_parameters() if ".decay" in name}
    trained = [
        name for name in decays if name.endswith("decay_proj.weight" if mixer_type == "selective" else "decay.bias")
    ]
    assert len(trained) == 2 and not any(decays[name].equal(before.get_parameter(name)) for name in trained)
