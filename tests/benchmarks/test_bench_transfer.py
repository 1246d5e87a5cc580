# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Models trained further: splits share nothing, rows are made once, and what is reported is what was measured."""

import copy
import importlib
from collections import Counter

import numpy as np
import pytest
import torch
from hub_checkpoints import text_tokenizer
from transformers import BertConfig, BertModel

from modeling_lion import linearize


PACKAGES = ("asyncio", "email")


@pytest.fixture
def bench(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "datasets"))
    return importlib.import_module("bench_transfer")


@pytest.fixture
def report(bench):
    return importlib.import_module("reports.transfer")


def test_splits_share_no_module_and_texts_do_not_name_their_package(bench):
    per_split = (("test", 12), ("validation", 5), ("train", 20))
    for package in PACKAGES:
        found = bench.collect(package, per_split)
        texts = {split: [text for module in modules for text in module] for split, modules in found.items()}
        assert all(len(texts[split]) >= count for split, count in per_split)
        everything = [text[: bench.START].lower() for split in texts.values() for text in split]
        assert len(set(everything)) == len(everything)
        assert not any(package in text.lower() for split in texts.values() for text in split)
        assert all(len(module) <= bench.PER_MODULE for modules in found.values() for module in modules)
    with pytest.raises(ValueError, match=r"email has fewer docstrings than 9000: take another"):
        bench.collect("email", (("train", 9000),))


def test_labels_say_where_the_texts_come_from(bench):
    modules = {
        package: [[f"{package} {module} {n}" for n in range(1 + module)] for module in range(4)] for package in "abc"
    }
    columns = bench.topics(modules, 9)
    assert columns["label"] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert all("abc"[label] == text[0] for text, label in zip(columns["text"], columns["label"], strict=True))
    columns = bench.pairs(modules, 60)
    assert sum(columns["label"]) == 30
    for (text, *two), label in zip(*columns.values(), strict=True):
        assert text not in two and text[0] == two[0][0] == two[1][0]
        assert text[:3] == two[label][:3] and text[:3] != two[1 - label][:3]
    assert {texts[0][0] for texts in columns["text"]} == set("abc")


def test_the_nearer_text_is_chosen_by_cosine(bench):
    """Batches are made of lists of texts; the answer is that of `embeddings`, text by text, without padding."""
    torch.manual_seed(0)
    tokenizer = text_tokenizer()
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    encoder = BertModel(BertConfig(vocab_size=len(tokenizer), **sizes)).eval()
    lists = [torch.randint(5, len(tokenizer), (n,)).tolist() for n in (3, 9, 4, 1, 2, 7)]
    batch = bench.collate_lists(tokenizer)(
        [{"input_ids": lists[:3], "label": 1}, {"input_ids": lists[3:], "label": 0}]
    )
    with torch.no_grad():
        found = bench.NearerText(encoder)(**batch)
        means = [encoder(torch.tensor([ids])).last_hidden_state.mean(1) for ids in lists]
    for n, logits in enumerate(found["logits"]):
        text, *two = means[3 * n : 3 * n + 3]
        cosines = torch.cat([torch.cosine_similarity(text, other) for other in two])
        torch.testing.assert_close(logits, bench.NearerText.SCALE * cosines, rtol=0, atol=1e-4)
    wanted = torch.nn.functional.cross_entropy(found["logits"], torch.tensor([1, 0]))
    torch.testing.assert_close(found["loss"], wanted)


def row(seed: int, right: list[bool] | None, report, **columns) -> dict:
    cells = (
        {"right": None} if right is None else {"right": report.pack_bits(np.array(right)), "test_examples": len(right)}
    )
    return {"task": "topic", "seed": seed} | cells | columns


def test_the_learning_rate_is_chosen_by_the_first_seed_and_the_validation_split(report):
    rows = [
        row(
            0,
            None,
            report,
            learning_rate=rate,
            validation_accuracy=accuracy,
            validation_loss=loss,
            test_accuracy=1 - rate,
        )
        for rate, accuracy, loss in ((0.1, 0.5, 1.0), (0.2, 0.7, 3.0), (0.3, 0.6, 2.0))
    ]
    rows.append(rows[0] | {"seed": 1, "validation_accuracy": 0.9})
    assert report.best_rate(rows) == 0.2
    assert report.best_rate([row | {"task": "mlm"} for row in rows]) == 0.1  # by the loss


def test_models_are_compared_example_by_example(report):
    generator = np.random.default_rng(0)
    ours, theirs = generator.random((2, 3, 203)) < 0.7
    tables = [
        {seed: row(seed, list(right), report, test_accuracy=right.mean()) for seed, right in enumerate(rights)}
        for rights in (ours, theirs)
    ]
    for rights, table in zip((ours, theirs), tables, strict=True):
        for seed, right in enumerate(rights):
            assert (report.unpack_bits(table[seed]["right"], 203) == right).all()
    gain, error = report.difference(*tables)
    by_example = 100 * (ours.astype(float) - theirs).mean(0)
    assert gain == pytest.approx(by_example.mean()) and error == pytest.approx(by_example.std() / 203**0.5)
    del tables[0][1]  # only seeds that both have
    gain, _ = report.difference(*tables)
    assert gain == pytest.approx(100 * (ours[[0, 2]].mean() - theirs[[0, 2]].mean()))
    tables[0][0]["right"] = None
    assert report.difference(*tables) == (pytest.approx(gain), None)


@pytest.fixture
def arguments(tmp_path) -> list[str]:
    """A small BERT, and a LION made of it."""
    torch.manual_seed(0)
    tokenizer = text_tokenizer()
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    teacher = BertModel(BertConfig(vocab_size=len(tokenizer), **sizes))
    for name, model in (
        ("teacher", teacher),
        ("lion", linearize(copy.deepcopy(teacher), exact_length=0, positions="cyclic")),
    ):
        model.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
    folders = ["--teacher", str(tmp_path / "teacher"), "--model", str(tmp_path / "lion"), "--packages", *PACKAGES]
    return [*folders, "--quick", "--output_dir", str(tmp_path / "out"), "--cache_dir", str(tmp_path / "cache")]


@pytest.mark.slow
def test_all_models_of_a_task_run_once_and_are_reported(bench, arguments, tmp_path):
    bench.main([*arguments, "--tasks", "pairs", "--models", "teacher", "windows alone", "--seeds", "0", "1"])
    bench.main([*arguments, "--tasks", "digits", "--seeds", "0"])
    path = tmp_path / "out" / "transfer.csv"
    rows = bench.read_rows(path)
    assert Counter((row["task"], row["model"]) for row in rows) == {
        ("pairs", "teacher"): 2 + 1 + 1,  # two rates, the other seed, before
        ("pairs", "windows alone"): 2 + 1,
        ("digits", "teacher"): 2 + 1,  # two rates, before
        ("digits", "LION"): 2 + 1,
    }
    for found in rows:
        right = importlib.import_module("reports.transfer").unpack_bits(found["right"], found["test_examples"])
        assert right.mean() == pytest.approx(found["test_accuracy"])
    before = [row for row in rows if row["learning_rate"] == 0 and row["task"] == "digits"]
    assert {row["train_seconds"] for row in before} == {None} and len({row["test_loss"] for row in before}) == 2
    page = (tmp_path / "out" / "quality.md").read_text(encoding="utf-8")
    assert "| teacher, before |" in page and "| windows alone |" in page

    # A window-only model stays one while it is trained.
    gates = [
        parameter
        for folder in (tmp_path / "cache").glob("transfer_pairs_*/windows")
        for name, parameter in bench.AutoModelForSequenceClassification.from_pretrained(folder).named_parameters()
        if name.endswith("lion.gate_bias")
    ]
    assert gates and all((gate == -1e4).all() for gate in gates)

    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([lines[0], *lines[2:], ""]), encoding="utf-8")
    bench.main([*arguments, "--models", "teacher", "--tasks", "pairs", "--seeds", "0"])
    again = path.read_text(encoding="utf-8").splitlines()
    assert again[:-1] == [lines[0], *lines[2:]] and again[-1].startswith("quick,pairs,teacher,0,0,")
    path.write_text(path.read_text(encoding="utf-8").replace("steps=2", "steps=3"), encoding="utf-8")
    with pytest.raises(ValueError, match="of another experiment"):
        bench.main([*arguments, "--tasks", "pairs"])


@pytest.mark.slow
def test_a_masked_language_model_is_trained_converted_and_distilled(bench, arguments, tmp_path):
    bench.main([*arguments, "--tasks", "mlm", "--models", "teacher", "LION", "--seeds", "0"])
    rows = bench.read_rows(tmp_path / "out" / "transfer.csv")
    before = {row["model"]: row["test_loss"] for row in rows if row["learning_rate"] == 0}
    trained = [row["test_loss"] for row in rows if row["learning_rate"] > 0 and row["model"] == "LION"]
    assert len(rows) == 2 * (2 + 1) and before["LION"] != before["teacher"]
    assert len(set(trained)) == 2 and before["LION"] not in trained
