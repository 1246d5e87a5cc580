# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""run_token_classification.py learns tags of words, measures entities as CoNLL does, and says what is wrong."""

import json
import random
import shutil
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import ClassLabel, Dataset, Features, List, Value
from transformers import (
    AutoModelForTokenClassification,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    EvalPrediction,
)

from modeling_lion import LionConfig, LionForMaskedLM, LionTokenizer, linearize


TINY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
QUIET = ["--use_cpu", "--dataloader_pin_memory", "False", "--disable_tqdm", "True", "--report_to", "none"]
PARTS = {"PER": ["Anna", "Ben", "Clara Maria"], "LOC": ["Paris", "New York"], None: ["visits", "likes", "leaves"]}


def sentences(count: int, seed: int) -> list[tuple[list[str], list[str]]]:
    """Words and tags, as in "Clara Maria likes Paris ."."""
    numbers, rows = random.Random(seed), []
    for _ in range(count):
        words, tags = [], []
        for kind in ("PER", None, "LOC"):
            for n, word in enumerate(numbers.choice(PARTS[kind]).split()):
                words.append(word)
                tags.append("O" if kind is None else f"{'I' if n else 'B'}-{kind}")
        rows.append(([*words, "."], [*tags, "O"]))
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Files of several types, and a model that has read the words."""
    folder = tmp_path_factory.mktemp("tags")
    train, test = sentences(48, 0), sentences(12, 1)
    blocks = ["".join(f"{word} NN {tag}\n" for word, tag in zip(*row, strict=True)) for row in train]
    (folder / "train.conll").write_text("-DOCSTART- -X- O\n\n" + "\n".join(blocks), encoding="utf-8")
    rows = [json.dumps({"tokens": words, "ner_tags": tags}) for words, tags in test]
    (folder / "test.jsonl").write_text("\n".join(rows), encoding="utf-8")
    Dataset.from_dict({"tokens": [words for words, _ in test]}).to_parquet(folder / "new.parquet")
    tokenizer = LionTokenizer.train_from_iterator([" ".join(words) for words, _ in train], vocab_size=70)
    torch.manual_seed(0)  # a fixture of the module is made before `repeatable`
    LionForMaskedLM(LionConfig(vocab_size=len(tokenizer), initializer_range=0.1, **TINY)).save_pretrained(
        folder / "model"
    )
    tokenizer.save_pretrained(folder / "model")
    return folder


def arguments(folder: Path, output_dir: Path, *more: str) -> list[str]:
    return [
        *("--model_name_or_path", str(folder / "model"), "--train_file", str(folder / "train.conll")),
        *("--validation_file", str(folder / "test.jsonl"), "--output_dir", str(output_dir), *QUIET),
        *("--cache_dir", str(output_dir.parent / "cache"), "--learning_rate", "5e-3"),
        *("--per_device_train_batch_size", "4", "--num_train_epochs", "2", *more),
    ]


@pytest.mark.slow
def test_it_learns_and_its_predictions_are_the_models(folder, tmp_path):
    """Trained on CoNLL, evaluated on JSONL, and applied to Parquet."""
    module, out = import_module("run_token_classification"), tmp_path / "out"
    predict = ("--do_predict", "--predict_file", str(folder / "new.parquet"))
    module.main(arguments(folder, out, "--do_train", "--do_eval", *predict))
    metrics = json.loads((out / "eval_results.json").read_text())
    assert metrics["eval_f1"] > 0.9 and metrics["eval_accuracy"] > 0.9 and (out / "training.png").exists()
    rows = [json.loads(line) for line in (out / "predictions.jsonl").read_text(encoding="utf-8").splitlines()]
    test = sentences(12, 1)
    assert [row["tokens"] for row in rows] == [words for words, _ in test]

    model, tokenizer = AutoModelForTokenClassification.from_pretrained(out).eval(), AutoTokenizer.from_pretrained(out)
    assert list(model.config.id2label.values()) == ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    for row in rows:
        inputs = tokenizer(row["tokens"], is_split_into_words=True, return_tensors="pt")
        with torch.no_grad():
            probabilities = model(**inputs).logits[0].softmax(-1)
        firsts = [inputs.word_ids().index(n) for n in range(len(row["tokens"]))]
        scores, labels = probabilities[firsts].max(-1)
        assert row["labels"] == [model.config.id2label[i] for i in labels.tolist()]
        np.testing.assert_allclose(row["scores"], scores, rtol=1e-4)
    # The same sentences were evaluated.
    right = [
        a == b for row, (_, tags) in zip(rows, test, strict=True) for a, b in zip(row["labels"], tags, strict=True)
    ]
    assert metrics["eval_accuracy"] == pytest.approx(np.mean(right))
    found, true = (
        [module.entities(tags) for tags in x] for x in ([row["labels"] for row in rows], [t for _, t in test])
    )
    hits = sum(len(a & b) for a, b in zip(found, true, strict=True))
    assert metrics["eval_precision"] == pytest.approx(hits / sum(map(len, found)))
    assert metrics["eval_recall"] == pytest.approx(hits / sum(map(len, true)))


@pytest.mark.slow
def test_evaluated_alone_the_model_says_what_the_labels_are(folder, tmp_path):
    """Numbers are those of its labels, and each word of a long text has one label."""
    module, out = import_module("run_token_classification"), tmp_path / "out"
    module.main(arguments(folder, out, "--do_train", "--do_eval"))
    names = ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    rows = [json.dumps({"tokens": words, "tags": [names.index(t) for t in tags]}) for words, tags in sentences(12, 1)]
    (tmp_path / "numbers.jsonl").write_text("\n".join(rows))
    words = [word for row, _ in sentences(300, 2) for word in row]
    (tmp_path / "long.txt").write_text("\n".join([*words, "\u200b"]), encoding="utf-8")
    more = ["--model_name_or_path", str(out), "--validation_file", str(tmp_path / "numbers.jsonl"), "--do_eval"]
    more += ["--do_predict", "--predict_file", str(tmp_path / "long.txt")]
    module.main([*more, "--output_dir", str(tmp_path / "again"), "--cache_dir", str(tmp_path / "cache"), *QUIET])
    before, after = (json.loads((x / "eval_results.json").read_text()) for x in (out, tmp_path / "again"))
    assert before["eval_f1"] == pytest.approx(after["eval_f1"])
    (row,) = map(json.loads, (tmp_path / "again" / "predictions.jsonl").read_text(encoding="utf-8").splitlines())
    assert row["tokens"] == [*words, "\u200b"] and len(row["labels"]) == len(row["scores"]) == len(words) + 1 > 1000


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O O", set()),
        ("B-A I-A O B-A", {("A", 0, 2), ("A", 3, 4)}),
        ("B-A B-A I-A", {("A", 0, 1), ("A", 1, 3)}),
        ("I-A I-A", {("A", 0, 2)}),  # as CoNLL 2003 writes it
        ("B-A I-B I-B", {("A", 0, 1), ("B", 1, 3)}),
        ("O I-A-B B-A-B", {("A-B", 1, 2), ("A-B", 2, 3)}),
    ],
)
def test_entities(tags, expected):
    assert import_module("run_token_classification").entities(tags.split()) == expected


def test_metrics():
    module = import_module("run_token_classification")
    labels = np.array([[-100, 1, 2, 0, -100, 1], [-100, 0, 1, 0, -100, -100]])
    answers = np.array([[3, 1, 2, 0, 3, 0], [0, 0, 1, 2, 1, 1]])
    prediction = EvalPrediction(predictions=(answers, answers / 9), label_ids=labels)
    # There are A 0-2, A 3-4; and A 1-2. Found are A 0-2; and A 1-3.
    expected = {"accuracy": 5 / 7, "precision": 1 / 2, "recall": 1 / 3, "f1": 2 / 5}
    assert module.measure(prediction, ["O", "B-A", "I-A", "B-B"]) == pytest.approx(expected)
    other = module.measure(prediction, ["NOUN", "VERB", "ADJ", "X"])
    assert other == pytest.approx({"accuracy": 5 / 7, "f1_macro": (2 / 3 + 4 / 5 + 2 / 3) / 3})
    nothing = EvalPrediction(predictions=(labels * 0, labels * 0.0), label_ids=labels * 0)
    assert module.measure(nothing, ["O", "B-A"]) == {"accuracy": 1, "precision": 0, "recall": 0, "f1": 0}


def test_each_word_has_a_piece(folder):
    module = import_module("run_token_classification")
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    words = ["Anna", "", "\u200b", "New York", "\u200bBen", "."]
    encoded = module.encode_words(words, tokenizer)
    pieces = tokenizer.convert_ids_to_tokens(encoded["input_ids"])
    firsts = [pieces[first] for first in encoded["firsts"]]
    assert firsts[0].startswith("a") and firsts[3].startswith("n") and firsts[4].startswith("b") and firsts[5] == "."
    assert firsts[1] == firsts[2] == "[UNK]" and len({*encoded["firsts"]}) == len(words)


def test_tags_are_names_numbers_or_classes(tmp_path):
    module = import_module("run_token_classification")
    rows = {"tokens": [["a", "b"], ["c"]], "tags": [[10, 9], [0]]}
    numbers = list(module.read_table(Dataset.from_dict(rows), "file", True))
    assert [sentence.tags for sentence in numbers] == [["10", "9"], ["0"]]
    assert import_module("training_lion.scripts.class_names").in_order(module.tag_places(numbers)) == ["0", "9", "10"]
    classes = Features({"tokens": List(Value("string")), "tags": List(ClassLabel(names=["O", "B-A"]))})
    Dataset.from_dict(rows | {"tags": [[0, 1], [1]]}, features=classes).to_parquet(tmp_path / "data.parquet")
    (read,) = module.load_sentences({"train": str(tmp_path / "data.parquet")}, str(tmp_path / "cache")).values()
    assert [sentence.tags for sentence in read] == [["O", "B-A"], ["B-A"]]


def test_columns_are_separated_by_tabs_or_blanks(tmp_path):
    module = import_module("run_token_classification")
    text = "\ufeffNew York\tB-A\r\n10\u00a0000\tO\r\n\r\n \t \n-DOCSTART-\tO\n\nend\tO"
    (tmp_path / "data.tsv").write_bytes(text.encode())
    first, second = module.read_conll(str(tmp_path / "data.tsv"), "file", True)
    assert first == module.Sentence(["New York", "10\u00a0000"], ["B-A", "O"], "file, sentence from line 1,")
    assert second == module.Sentence(["end"], ["O"], "file, sentence from line 7,")


def test_long_sentences_are_left_out_of_training_and_named(folder, capsys):
    module = import_module("run_token_classification")
    rows = [module.Sentence(["Anna"] * n, ["O"] * n, f"file, row {n},") for n in (1, 2, 30)]
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    dataset = module.encode_split(rows, tokenizer, {"O": 0}, None)
    assert len(module.leave_out_long(dataset, rows, None)) == 3 and not capsys.readouterr().out
    assert len(module.leave_out_long(dataset, rows, 20)) == 2
    assert "1 sentences have more tokens than --max_seq_length 20" in (out := capsys.readouterr().out)
    assert f"file, row 30, has {len(dataset[2]['input_ids'])}" in out
    with pytest.raises(ValueError, match="every training sentence has more tokens"):
        module.leave_out_long(dataset, rows, 2)
    with pytest.raises(ValueError, match="row 30, has .* tokens, .* positions for 20 .*: split the sentence"):
        module.encode_split(rows, tokenizer, {"O": 0}, 20)


@pytest.mark.parametrize("positions", ["cyclic", None])
def test_sentences_may_be_longer_than_a_table_that_is_read_again(positions, folder, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    fields = TINY | {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    encoder = BertForMaskedLM(BertConfig(max_position_embeddings=7, **fields))
    linearize(encoder, window=2, exact_length=7, positions=positions).save_pretrained(tmp_path / "encoder")
    tokenizer.save_pretrained(tmp_path / "encoder")
    more = ["--model_name_or_path", str(tmp_path / "encoder"), "--do_train", "--max_steps", "1"]
    args = arguments(folder, tmp_path / "out", *more)
    if positions is None:
        with pytest.raises(ValueError, match="the model has positions for 7 .*: split the sentence"):
            import_module("run_token_classification").main(args)
    else:
        assert import_module("run_token_classification").main(args).state.global_step == 1


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.conll", "Anna B-PER\nlikes\n", "a.conll line 2: 'likes' has no tag. Write the word, a tab"),
        (
            "a.conll",
            "Anna B-PER\nNew York B-LOC\n",
            "line 2: 'New York B-LOC' has 3 columns, the lines before it have 2. Separate",
        ),
        ("a.conll", "\n\n", "a.conll has no sentences"),
        ("a.conll", "", "a.conll is empty"),
        ("a.conll", "Anna B-PRE\n", r"B-PRE \(--validation_file .*a.conll, sentence from line 1\)"),
        ("a.csv", "tokens,tags\na,O\n", "none of the known types: .conll, .*.parquet"),
        ("a.jsonl", '{"words": ["a"], "tags": ["O"]}', "has the columns words, tags: rename those"),
        ("a.jsonl", '{"tokens": ["a"]}', "has the columns tokens: rename"),
        ("a.jsonl", '{"tokens": ["a", "b"], "tags": ["O"]}', "a.jsonl, row 1, has 2 words and 1 tags"),
        ("a.jsonl", '{"tokens": "a b", "tags": ["O"]}', """row 1, has the "tokens" 'a b'. Give a list of words"""),
        ("a.jsonl", '{"tokens": ["a"], "tags": [0.5]}', r'row 1, has the "tags" 0.5. Give names or whole'),
        ("a.jsonl", '{"tokens": [], "tags": []}', "row 1, has no words: remove it"),
        ("a.jsonl", '{"tokens": [', "a.jsonl cannot be read as json"),
    ],
)
def test_bad_files(folder, tmp_path, name, text, message):
    (tmp_path / name).write_text(text, encoding="utf-8")
    more = ("--do_train", "--do_eval", "--validation_file", str(tmp_path / name))
    with pytest.raises(ValueError, match=message):
        import_module("run_token_classification").main(arguments(folder, tmp_path / "out", *more))
    assert not (tmp_path / "out" / "config.json").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ((), "nothing to do"),
        (("--do_predict",), "--do_predict needs --predict_file"),
        (("--do_eval", "--predict_file", "x"), "Give --do_predict and --predict_file together"),
    ],
)
def test_contradictions(folder, tmp_path, more, message):
    with pytest.raises(ValueError, match=message):
        import_module("run_token_classification").main(arguments(folder, tmp_path / "out", *more))


def test_another_head_is_asked_for(folder, tmp_path):
    module = import_module("run_token_classification")
    config = LionConfig.from_pretrained(folder / "model")
    config.id2label, config.architectures = {0: "NOUN", 1: "VERB"}, ["LionForTokenClassification"]
    shutil.copytree(folder / "model", tmp_path / "model")
    config.save_pretrained(tmp_path / "model")
    change = arguments(folder, tmp_path / "out", "--do_train", "--model_name_or_path", str(tmp_path / "model"))
    with pytest.raises(ValueError, match="classes B-LOC, .* of the training sentences.*--ignore_mismatched_sizes"):
        module.main(change)
