# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What a script says of a row is what `pipeline()` of its folder says: in any order, twice, for every preset."""

import json
import random
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
    pipeline,
)

from modeling_lion import LionForMaskedLM, LionTokenizer, linearize, lion_preset


pytestmark = pytest.mark.slow
QUIET = ["--use_cpu", "--dataloader_pin_memory", "False", "--disable_tqdm", "True", "--report_to", "none"]
# Arguments that change the order and number of rows in a training, and must not elsewhere.
TRAINING = ["--do_train", "--do_eval", "--max_steps", "4", "--learning_rate", "5e-3", "--save_strategy", "no"]
TRAINING += ["--train_sampling_strategy", "group_by_length", "--dataloader_drop_last", "True"]
TRAINING += ["--per_device_eval_batch_size", "5", *QUIET]
SIZE = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 64}
WORDS = ["lion", "owl", "wolf", "bear", "fine", "dull", "day", "night", "hunts", "sleeps", "roars", "in", "the", "sun"]
TOLERANCE = {"rel": 1e-4, "abs": 1e-5}


def save_preset(folder: Path, preset: str) -> None:
    """A small LION of a preset, with its tokenizer."""
    tokenizer = LionTokenizer.train_from_iterator([" ".join(WORDS)], vocab_size=100)
    config = lion_preset(
        preset, **SIZE, vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, initializer_range=0.2
    )
    torch.manual_seed(0)
    LionForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def save_linearized(folder: Path, of: str) -> None:
    """An encoder of transformers, whose attention is linear in texts of more than 8 tokens."""
    tokenizer = LionTokenizer.train_from_iterator([" ".join(WORDS)], vocab_size=100)
    fields = SIZE | {"vocab_size": len(tokenizer), "initializer_range": 0.2, "pad_token_id": tokenizer.pad_token_id}
    torch.manual_seed(0)
    if of == "BERT":
        model = BertForMaskedLM(BertConfig(**fields))
    else:
        special = {"cls_token_id": tokenizer.cls_token_id, "sep_token_id": tokenizer.sep_token_id}
        special |= {"bos_token_id": tokenizer.cls_token_id, "eos_token_id": tokenizer.sep_token_id}
        model = ModernBertForMaskedLM(ModernBertConfig(**fields, **special, local_attention=8))
    linearize(model, window=4, exact_length=8).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


# Encoders for texts by name, and what saves one in a folder. Other sizes of a preset are of the same kind.
KINDS = ("lion-text-small", "lion-lit-text-base", "lion-d-text-base", "lion-s-text-base")
ENCODERS: dict[str, Callable[[Path], None]] = {name: partial(save_preset, preset=name) for name in KINDS}
ENCODERS |= {f"linearized {name}": partial(save_linearized, of=name) for name in ("BERT", "ModernBERT")}
IMAGE_PRESETS = ("lion-image-small", "lion-lit-image-tiny", "lion-d-image-tiny", "lion-s-image-tiny")


@pytest.fixture(params=ENCODERS)
def source(request, tmp_path) -> str:
    ENCODERS[request.param](tmp_path / "encoder")
    return str(tmp_path / "encoder")


def texts(count: int = 7) -> list[str]:
    """Texts of several lengths: shuffled, then sorted by length, then each twice."""
    numbers = random.Random(0)
    rows = [" ".join(numbers.choices(WORDS, k=numbers.randint(1, 30))) for _ in range(count)]
    return [*rows, *sorted(rows, key=len), *(text for text in rows for _ in range(2))]


def write_rows(path: Path, rows: list[dict]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def read_rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


def metrics(folder: Path) -> dict[str, float]:
    return json.loads((folder / "eval_results.json").read_text())


LABELS = {
    "classes": lambda n: ["a", "b", "c"][n % 3],
    "many labels": lambda n: [["a"], ["a", "b"], []][n % 3],
    "fractions": lambda n: n % 3 + 0.5,
}


@pytest.mark.parametrize("kind", LABELS)
def test_texts(source, kind, tmp_path):
    rows = [{"text": text, "label": LABELS[kind](len(text))} for text in texts()]
    file, out = write_rows(tmp_path / "rows.jsonl", rows), tmp_path / "out"
    files = ["--train_file", file, "--validation_file", file, "--do_predict", "--predict_file", file]
    arguments = ["--model_name_or_path", source, "--output_dir", str(out), *files, *TRAINING]
    import_module("run_glue").main(arguments)
    classify, found = (
        pipeline("text-classification", model=str(out), device="cpu"),
        read_rows(out / "predictions.jsonl"),
    )
    assert [row["text"] for row in found] == [row["text"] for row in rows]
    for row in found:
        (scores,) = classify([row["text"]], top_k=None, function_to_apply="none" if kind == "fractions" else None)
        scores = {x["label"]: x["score"] for x in scores}
        if kind == "fractions":
            assert row["score"] == pytest.approx(scores["LABEL_0"], **TOLERANCE)
            continue
        assert row["scores"] == pytest.approx(scores, **TOLERANCE)
        if kind == "classes":
            assert row["label"] == max(scores, key=scores.get)
        else:
            assert {*row["labels"]} == {name for name, score in scores.items() if score > 0.5}
    if kind == "classes":
        right = [row["label"] == row["given_label"] for row in found]
        assert metrics(out)["eval_accuracy"] == pytest.approx(np.mean(right))


def test_words(source, tmp_path):
    rows = [{"tokens": text.split(), "tags": ["B-X" if "l" in x else "O" for x in text.split()]} for text in texts()]
    file, out = write_rows(tmp_path / "rows.jsonl", rows), tmp_path / "out"
    files = ["--train_file", file, "--validation_file", file, "--do_predict", "--predict_file", file]
    arguments = ["--model_name_or_path", source, "--output_dir", str(out), *files, *TRAINING]
    import_module("run_token_classification").main(arguments)
    tag, found, right = pipeline("token-classification", model=str(out), device="cpu", ignore_labels=[]), [], []
    for row, answer in zip(rows, read_rows(out / "predictions.jsonl"), strict=True):
        assert answer["tokens"] == row["tokens"]
        by_place, place = {x["start"]: x for x in tag(" ".join(row["tokens"]))}, 0
        for word, label, score in zip(*(answer[name] for name in ("tokens", "labels", "scores")), strict=True):
            found.append(by_place[place])
            assert label == found[-1]["entity"] and score == pytest.approx(float(found[-1]["score"]), **TOLERANCE)
            place += len(word) + 1
        right += [a == b for a, b in zip(answer["labels"], row["tags"], strict=True)]
    assert metrics(out)["eval_accuracy"] == pytest.approx(np.mean(right))


def test_masked_words(source, tmp_path):
    """With every chosen token masked, so that a pipeline can read what the script reads."""
    file, out, module = tmp_path / "texts.txt", tmp_path / "out", import_module("run_mlm")
    file.write_text("\n".join(texts()), encoding="utf-8")
    arguments = ["--model_name_or_path", source, "--train_file", str(file), "--validation_file", str(file)]
    trainer = module.main([*arguments, "--line_by_line", "--output_dir", str(out), *TRAINING])
    trainer.data_collator.mask_replace_prob, trainer.data_collator.random_replace_prob = 1.0, 0.0
    fill, tokenizer, row = pipeline("fill-mask", model=str(out), device="cpu", top_k=1), trainer.processing_class, 0
    answers = trainer.predict(trainer.eval_dataset).predictions
    for batch in trainer.get_test_dataloader(trainer.eval_dataset):
        for ids, labels in zip(batch["input_ids"], batch["labels"], strict=True):
            ids, (places,) = ids[ids != tokenizer.pad_token_id], torch.nonzero(labels != -100, as_tuple=True)
            text = tokenizer.decode(ids[1:-1])
            if len(places) and tokenizer(text)["input_ids"] == ids.tolist():
                said = [x[0] if isinstance(x, list) else x for x in fill(text)]
                assert [x["token"] for x in said] == answers[row][places].ravel().tolist()
            row += 1
    assert row == len(texts())


@pytest.mark.parametrize("preset", IMAGE_PRESETS)
def test_images(preset, tmp_path):
    """Classes, and the classes of pixels; some images are there twice."""
    numbers, folders = np.random.default_rng(0), {"classes": tmp_path / "classes", "pixels": tmp_path / "pixels"}
    for n in range(10):
        name, shape = ("red", "green")[n % 2], (24 + 8 * (n // 2 % 2), 32, 3)
        pixels = numbers.integers(0, 100, shape) + 150 * np.eye(3, dtype=int)[n % 2]
        paths = [folders["classes"] / name / f"{copy}{n}.png" for copy in "ab"]
        paths += [folders["pixels"] / "images" / f"{n}.png"]
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels.astype(np.uint8)).save(path)
        mask = folders["pixels"] / "masks" / f"{n}.png"
        mask.parent.mkdir(exist_ok=True)
        Image.fromarray(np.where(pixels[..., 0] > 120, n % 2, 2).astype(np.uint8)).save(mask)
    (folders["pixels"] / "classes.txt").write_text("red\ngreen\nground")
    size = SIZE | {
        "image_size": 16,
        "patch_size": 4,
        "initializer_range": 0.2,
    }
    size = ["--config_name", preset, "--config_overrides", ",".join(f"{name}={value}" for name, value in size.items())]
    training = [
        x for x in TRAINING if x not in ("--train_sampling_strategy", "group_by_length")
    ]  # rows have no length

    def run(script: str, kind: str, *more: str):
        folder, out = str(folders[kind]), str(tmp_path / f"{kind}_out")
        arguments = [*size, "--train_dir", folder, "--validation_dir", folder, "--output_dir", out, *training, *more]
        return import_module(script).main(arguments), out

    trainer, out = run("run_image_classification", "classes")
    logits = torch.from_numpy(trainer.predict(trainer.eval_dataset).predictions)
    classify, right = pipeline("image-classification", model=out, device="cpu"), []
    files = sorted(folders["classes"].rglob("*.png"))
    for file, probabilities in zip(files, logits.softmax(-1).tolist(), strict=True):
        scores = {x["label"]: x["score"] for x in classify(str(file), top_k=None)}
        expected = dict(zip(trainer.model.config.id2label.values(), probabilities, strict=True))
        assert scores == pytest.approx(expected, **TOLERANCE)
        right.append(max(scores, key=scores.get) == file.parent.name)
    assert metrics(Path(out))["eval_accuracy"] == pytest.approx(np.mean(right)) and len(right) == 20

    predict = ("--do_predict", "--predict_dir", str(folders["pixels"] / "images"))
    trainer, out = run("run_semantic_segmentation", "pixels", *predict)
    segment, names = pipeline("image-segmentation", model=out, device="cpu"), trainer.model.config.id2label
    for file in sorted((folders["pixels"] / "images").iterdir()):
        written = np.asarray(Image.open(Path(out, "predictions", file.name)))
        said = {x["label"]: np.asarray(x["mask"]) > 0 for x in segment(str(file))}
        for number, name in names.items():
            assert (said.get(name, np.zeros_like(written, bool)) == (written == number)).mean() > 0.999  # ties


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft reads it
def test_adapters(source, tmp_path):
    """The merged model says what the adapter said, of which the labels are the names of the file."""
    rows = [{"text": text, "label": ["x", "y"][len(text) % 2]} for text in texts()]
    file, out = write_rows(tmp_path / "rows.jsonl", rows), tmp_path / "out"
    arguments = ["--model", source, "--train_file", file, "--output_dir", str(out), "--max_steps", "8", *QUIET]
    trainer = import_module("finetune_lora").main([*arguments, "--learning_rate", "5e-3", "--save_strategy", "no"])
    logits = torch.from_numpy(trainer.predict(trainer.train_dataset).predictions)
    classify = pipeline("text-classification", model=str(out / "merged"), device="cpu")
    for row, probabilities in zip(rows, logits.softmax(-1).tolist(), strict=True):
        (scores,) = classify([row["text"]], top_k=None)
        expected = dict(zip("xy", probabilities, strict=True))
        assert {x["label"]: x["score"] for x in scores} == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_sentences(source, tmp_path):
    """The vector of a text is the mean of the pipeline's tokens, in a batch of any order."""
    pairs = [{"anchor": text, "positive": f"{text} at night"} for text in texts()]
    file, out = write_rows(tmp_path / "pairs.jsonl", pairs), str(tmp_path / "out")
    arguments = ["--model", source, "--train_file", file, "--output_dir", out, "--max_steps", "2", *QUIET]
    trained = import_module("train_embeddings").main([*arguments, "--save_strategy", "no"])
    extract = pipeline("feature-extraction", model=out, tokenizer=AutoTokenizer.from_pretrained(out), device="cpu")
    vectors = trained.encode([pair["anchor"] for pair in pairs], batch_size=5)
    for pair, vector in zip(pairs, vectors, strict=True):
        np.testing.assert_allclose(vector, np.mean(extract(pair["anchor"])[0], axis=0), atol=1e-5, rtol=1e-4)
