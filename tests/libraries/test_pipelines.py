# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Pipelines end to end from saved folders: every task, mixer and kernel; a batch gives what single inputs give."""

import numpy as np
import pytest
import torch
from conftest import mixer_fields
from hub_checkpoints import linear_checkpoint
from PIL import Image
from tokenization_lion import LionTokenizer, lion_image_processor
from transformers import pipeline

from modeling_lion import (
    LionConfig,
    LionForImageClassification,
    LionForMaskedLM,
    LionForSequenceClassification,
    LionForTokenClassification,
    LionModel,
)


# With each mixer the default and another kernel; test_modeling_lion.py has all that go together.
KERNELS = {"lit": ("auto", "parallel"), "decay": ("auto", "eager", "rnn"), "selective": ("auto", "chunk")}
MIXERS = tuple(KERNELS)
FORMS = ("lion", "lion_rnn")  # of encoders that became linear
TEXTS = [
    "The lion sleeps.",
    "A lion roars, and the whole savanna listens to it for the rest of the night.",
    "Rain",
    "Two zebras drink at the river while the lion sleeps in the shade of a tree!",
]


@pytest.fixture(scope="module")
def tokenizer():
    return LionTokenizer.train_from_iterator(TEXTS * 5, vocab_size=150, model_max_length=64)


def initialized(model_class, config):
    """A model with weights large enough that every input gives different answers."""
    torch.manual_seed(0)
    model = model_class(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "decay.bias" not in name and "decay_proj" not in name and parameter.dim() > 1:
                parameter.normal_(std=0.3)
    return model


def config_of(modality, mixer, **fields):
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    return LionConfig(modality=modality, chunk_size=4, **(mixer_fields(mixer) | sizes | fields))


@pytest.fixture
def save_text_model(tmp_path, tokenizer):
    def save(model_class, mixer, **fields):
        config = config_of("text", mixer, vocab_size=len(tokenizer), max_position_embeddings=64, **fields)
        initialized(model_class, config).save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        return str(tmp_path)

    return save


@pytest.fixture
def save_image_model(tmp_path):
    def save(model_class, mixer, **fields):
        config = config_of("image", mixer, **({"image_size": 16, "patch_size": 4} | fields))
        initialized(model_class, config).save_pretrained(tmp_path)
        lion_image_processor(config).save_pretrained(tmp_path)
        return str(tmp_path)

    return save


@pytest.fixture
def image_files(tmp_path):
    generator = np.random.default_rng(0)
    files = []
    for i, size in enumerate([(16, 16), (30, 20), (9, 40)]):
        files.append(str(tmp_path / f"{i}.png"))
        Image.fromarray(generator.integers(0, 256, (*size, 3), dtype=np.uint8)).save(files[-1])
    return files


def assert_same(actual, expected):
    """Nested answers are equal, floats within float32 rounding."""
    assert type(actual) is type(expected)
    if isinstance(actual, dict):
        assert actual.keys() == expected.keys()
        for key in actual:
            assert_same(actual[key], expected[key])
    elif isinstance(actual, list | tuple):
        assert len(actual) == len(expected)
        for a, b in zip(actual, expected, strict=True):
            assert_same(a, b)
    elif isinstance(actual, torch.Tensor):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    elif isinstance(actual, float | np.floating):
        assert actual == pytest.approx(expected, rel=1e-4, abs=1e-5)
    else:
        assert actual == expected


def check(task, folder, inputs, kernels=None, **kwargs):
    """The answers one by one, after a check that several kernels and batch sizes give them."""
    expected = None
    for kernel in kernels or KERNELS[LionConfig.from_pretrained(folder).mixer_type]:
        pipe = pipeline(task, model=folder, model_kwargs={"attn_implementation": kernel})
        assert pipe.model.config._attn_implementation == kernel
        one_by_one = [pipe(x, **kwargs) for x in inputs]
        expected = one_by_one if expected is None else expected
        assert_same(one_by_one, expected)
        assert_same(list(pipe(list(inputs), batch_size=1, **kwargs)), expected)
        assert_same(list(pipe(list(inputs), batch_size=3, **kwargs)), expected)
    return expected


@pytest.mark.parametrize("mixer", MIXERS)
def test_fill_mask(save_text_model, tokenizer, mixer):
    folder = save_text_model(LionForMaskedLM, mixer)
    texts = [text.replace("lion", "[MASK]") for text in TEXTS if "lion" in text]
    answers = check("fill-mask", folder, texts, top_k=3)
    for text, answer in zip(texts, answers, strict=True):
        assert len(answer) == 3 and answer[0]["score"] >= answer[1]["score"]
        for choice in answer:
            assert choice["token_str"] == tokenizer.decode([choice["token"]])
            assert "[MASK]" not in choice["sequence"] and choice["sequence"] != text


@pytest.mark.parametrize("mixer", MIXERS)
def test_text_classification(save_text_model, mixer):
    folder = save_text_model(LionForSequenceClassification, mixer, id2label={0: "calm", 1: "wild", 2: "wet"})
    answers = check("text-classification", folder, TEXTS, top_k=None)
    for answer in answers:
        assert {choice["label"] for choice in answer} == {"calm", "wild", "wet"}
        assert sum(choice["score"] for choice in answer) == pytest.approx(1)
    assert len({answer[0]["score"] for answer in answers}) == len(TEXTS)


def test_token_classification(save_text_model):
    labels = {0: "O", 1: "B-ANIMAL", 2: "I-ANIMAL"}
    folder = save_text_model(LionForTokenClassification, "selective", id2label=labels)
    answers = check("token-classification", folder, TEXTS, ignore_labels=[])
    for text, answer in zip(TEXTS, answers, strict=True):
        assert "".join(text[token["start"] : token["end"]] for token in answer) == text.replace(" ", "")
    groups = check("token-classification", folder, TEXTS, aggregation_strategy="simple", ignore_labels=[])
    for text, answer in zip(TEXTS, groups, strict=True):
        assert all(text[group["start"] : group["end"]].lower().split() for group in answer)


def test_zero_shot_classification(save_text_model):
    labels = ["contradiction", "neutral", "entailment"]
    folder = save_text_model(
        LionForSequenceClassification,
        "selective",
        id2label=dict(enumerate(labels)),
        label2id={label: i for i, label in enumerate(labels)},
    )
    candidates = ["animals", "the weather of the savanna", "rivers"]
    answers = check("zero-shot-classification", folder, TEXTS, candidate_labels=candidates)
    for text, answer in zip(TEXTS, answers, strict=True):
        assert answer["sequence"] == text and sorted(answer["labels"]) == sorted(candidates)
        assert sum(answer["scores"]) == pytest.approx(1)


def test_feature_extraction(save_text_model, tokenizer):
    folder = save_text_model(LionModel, "selective")
    pipe = pipeline("feature-extraction", model=folder)
    features = [pipe(text, return_tensors=True) for text in TEXTS]
    for text, feature in zip(TEXTS, features, strict=True):
        length = len(tokenizer(text)["input_ids"])
        assert feature.shape == (1, length, 32)
    for kernel in KERNELS["selective"]:
        pipe = pipeline("feature-extraction", model=folder, model_kwargs={"attn_implementation": kernel})
        for feature, batched in zip(features, pipe(TEXTS, batch_size=3, return_tensors=True), strict=True):
            # The pipeline hands out the padded positions of a batch too.
            torch.testing.assert_close(batched[:, : feature.shape[1]], feature, rtol=1e-4, atol=1e-5)


@pytest.mark.axes(mixer=MIXERS, patch_order=["raster", "snake"], num_channels=[1, 3])
def test_image_classification(save_image_model, image_files, mixer, patch_order, num_channels):
    folder = save_image_model(
        LionForImageClassification,
        mixer,
        patch_order=patch_order,
        num_channels=num_channels,
        id2label={0: "lion", 1: "zebra"},
    )
    answers = check("image-classification", folder, image_files)
    for answer in answers:
        assert {choice["label"] for choice in answer} == {"lion", "zebra"}
        assert sum(choice["score"] for choice in answer) == pytest.approx(1)
    assert len({answer[0]["score"] for answer in answers}) == len(image_files)
    opened = pipeline("image-classification", model=folder)(Image.open(image_files[1]))
    assert_same(opened, answers[1])


def test_image_feature_extraction(save_image_model, image_files):
    folder = save_image_model(LionModel, "selective", image_size=(16, 8))
    answers = check("image-feature-extraction", folder, image_files)
    assert all(np.shape(answer) == (1, 1 + 4 * 2, 32) for answer in answers)
    pooled = check("image-feature-extraction", folder, image_files, pool=True)
    assert all(np.shape(answer) == (1, 32) for answer in pooled)


def test_long_text_is_truncated(save_text_model):
    pipe = pipeline("text-classification", model=save_text_model(LionForSequenceClassification, "lit"))
    with pytest.raises(ValueError, match="max_position_embeddings"):
        pipe(" ".join(TEXTS * 10))
    assert pipe(" ".join(TEXTS * 10), truncation=True)[0]["score"] > 0


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("fill-mask", "BertForMaskedLM"),
        ("text-classification", "BertForSequenceClassification"),
        ("token-classification", "BertForTokenClassification"),
    ],
)
def test_encoders_that_became_linear(tmp_path, task, name):
    """Short texts, which are softmax, and longer ones, alone and beside each other."""
    folder = str(linear_checkpoint(tmp_path, name))
    texts = ["The [MASK] sleeps in the shade.", "A [MASK] roars at night. " + "It hunts at dawn, with its pride. " * 5]
    options = {"ignore_labels": []} if task == "token-classification" else {"top_k": 2}
    answers = check(task, folder, texts, FORMS, **options)
    softmax = pipeline(task, model=folder, model_kwargs={"attn_implementation": "sdpa"})
    short, long = (softmax(text, **options) for text in texts)
    assert answers[0] == short and answers[1] != long


def test_features_and_images_of_encoders_that_became_linear(tmp_path, image_files):
    folder = str(linear_checkpoint(tmp_path / "text", "BertModel"))
    (features,) = check("feature-extraction", folder, ["It roars. " * 20], FORMS, return_tensors=True)
    assert features.shape == (1, 62, 32)
    folder = str(linear_checkpoint(tmp_path / "image", "ViTForImageClassification"))
    answers = check("image-classification", folder, image_files, FORMS)
    assert len({answer[0]["score"] for answer in answers}) == len(image_files)
