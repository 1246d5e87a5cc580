# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""run_qa.py learns to find answers, gives the best ones there are, measures as SQuAD does, and says what is wrong."""

import json
import random
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

from modeling_lion import LionForMaskedLM, LionTokenizer, lion_preset


TINY = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
QUIET = ["--use_cpu", "--dataloader_pin_memory", "False", "--disable_tqdm", "True", "--report_to", "none"]


def paragraphs(count: int, seed: int) -> list[dict]:
    """In SQuAD's format: who lives where, and a question that is not answered."""
    numbers, found = random.Random(seed), []
    for n in range(count):
        who, where = numbers.choice(["Anna", "Ben", "Clara"]), numbers.choice(["Paris", "New York", "Rome"])
        rain = ["It rains. " * numbers.randint(0, 3) for _ in range(2)]
        context = f"{rain[0]}{who} lives in {where}. {rain[1]}"
        questions = [
            {"id": f"{n}-{key}", "question": question, "answers": [{"text": x, "answer_start": context.index(x)}]}
            for key, question, x in (("who", "Who lives?", who), ("where", "In what town?", where))
        ]
        questions.append({"id": f"{n}-when", "question": "When?", "answers": [], "is_impossible": True})
        found.append({"context": context, "qas": questions})
    return found


def table(found: list[dict]) -> list[dict]:
    """The same as the rows of `datasets`."""
    return [
        {key: row[key] for key in ("id", "question")}
        | {"context": paragraph["context"]}
        | {"answers": {key: [x[key] for x in row["answers"]] for key in ("text", "answer_start")}}
        for paragraph in found
        for row in paragraph["qas"]
    ]


def write_squad(path: Path, found: list[dict]) -> str:
    path.write_text(json.dumps({"version": "v2.0", "data": [{"title": "", "paragraphs": found}]}), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("questions")
    train, test = paragraphs(32, 0), paragraphs(8, 1)
    write_squad(folder / "train.json", train)
    (folder / "test.jsonl").write_text("\n".join(map(json.dumps, table(test))), encoding="utf-8")
    rows = Dataset.from_list(table(test))
    rows.remove_columns("answers").to_parquet(folder / "new.parquet")
    texts = [row["context"] + row["question"] for row in table(train)]
    tokenizer = LionTokenizer.train_from_iterator(texts, vocab_size=90)
    torch.manual_seed(0)  # a fixture of the module is made before `repeatable`
    config = lion_preset("lion-text-base", vocab_size=len(tokenizer), **TINY)
    LionForMaskedLM(config).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    return folder


def arguments(folder: Path, output_dir: Path, *more: str) -> list[str]:
    return [
        *("--model_name_or_path", str(folder / "model"), "--train_file", str(folder / "train.json")),
        *("--validation_file", str(folder / "test.jsonl"), "--output_dir", str(output_dir), *QUIET),
        *("--cache_dir", str(output_dir.parent / "cache"), "--learning_rate", "5e-3", "--version_2_with_negative"),
        *("--per_device_train_batch_size", "4", "--num_train_epochs", "2", *more),
    ]


def direct_answers(model, tokenizer, row: dict, longest: int, **options) -> dict[str, float]:
    """Every answer of up to `longest` tokens, and "", with its score, by trying all of them."""
    inputs = tokenizer(row["question"], row["context"], return_offsets_mapping=True, **options)
    scores = {}
    for n in range(len(inputs["input_ids"]) if options else 1):
        names = ("input_ids", "token_type_ids", "attention_mask")
        window = {name: torch.tensor([inputs[name][n] if options else inputs[name]]) for name in names}
        offsets = inputs["offset_mapping"][n] if options else inputs["offset_mapping"]
        with torch.no_grad():
            outputs = model(**window)
        starts, ends = outputs.start_logits[0].tolist(), outputs.end_logits[0].tolist()
        scores[""] = min(scores.get("", float("inf")), starts[0] + ends[0])
        places = [token for token, part in enumerate(inputs.sequence_ids(n)) if part == 1]
        for first in places:
            for last in places[places.index(first) :][:longest]:
                text = row["context"][offsets[first][0] : offsets[last][1]]
                scores[text] = max(scores.get(text, -float("inf")), starts[first] + ends[last])
    return scores


def check_predictions(folder: Path, model, tokenizer, longest: int, **options) -> None:
    """What the script wrote is what the model says."""
    chosen, best = (json.loads((folder / f"{x}predictions.json").read_text()) for x in ("", "nbest_"))
    for row in table(paragraphs(8, 1)):
        scores = direct_answers(model, tokenizer, row, longest, **options)
        null = scores.pop("")
        ranked = sorted(scores.values(), reverse=True)
        found = [x for x in best[row["id"]] if x["text"]]
        np.testing.assert_allclose([x["score"] for x in found], ranked[: len(found)], rtol=1e-4, atol=1e-4)
        for x in found:
            assert scores[x["text"]] == pytest.approx(x["score"], rel=1e-4, abs=1e-4)
        (none,) = (x["score"] for x in best[row["id"]] if not x["text"])
        assert none == pytest.approx(null, rel=1e-4, abs=1e-4)
        assert chosen[row["id"]] == ("" if null > ranked[0] else found[0]["text"])
        assert sum(x["probability"] for x in best[row["id"]]) == pytest.approx(1)


@pytest.mark.slow
def test_it_learns_and_its_predictions_are_the_models(folder, tmp_path):
    """Trained on SQuAD's JSON, evaluated on JSONL, and applied to Parquet."""
    module, out = import_module("run_qa"), tmp_path / "out"
    more = ("--do_predict", "--predict_file", str(folder / "new.parquet"), "--max_answer_length", "4")
    more += ("--train_sampling_strategy", "group_by_length", "--dataloader_drop_last", "True")
    module.main(arguments(folder, out, "--do_train", "--do_eval", *more, "--n_best_size", "5"))
    metrics = json.loads((out / "eval_results.json").read_text())
    assert metrics["eval_f1"] >= metrics["eval_exact_match"] > 60 and (out / "training.png").exists()
    model, tokenizer = AutoModelForQuestionAnswering.from_pretrained(out).eval(), AutoTokenizer.from_pretrained(out)
    check_predictions(out, model, tokenizer, 4)
    # The same questions were evaluated.
    chosen = json.loads((out / "predictions.json").read_text())
    right = [chosen[row["id"]] == (row["answers"]["text"] or [""])[0] for row in table(paragraphs(8, 1))]
    assert metrics["eval_exact_match"] == pytest.approx(100 * np.mean(right))


@pytest.mark.slow
def test_windows_find_the_answers_of_all_of_them(folder, tmp_path):
    module = import_module("run_qa")
    more = ("--do_train", "--max_seq_length", "24", "--doc_stride", "6", "--num_train_epochs", "4")
    module.main(arguments(folder, tmp_path / "out", *more))
    model = AutoModelForQuestionAnswering.from_pretrained(tmp_path / "out").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    more = ["--do_predict", "--predict_file", str(folder / "new.parquet"), "--max_answer_length", "4", *more[1:5]]
    more += ["--version_2_with_negative", "--model_name_or_path", str(tmp_path / "out"), *QUIET]
    module.main([*more, "--output_dir", str(tmp_path / "new"), "--cache_dir", str(tmp_path / "cache")])
    options = {"max_length": 24, "stride": 6, "truncation": "only_second", "return_overflowing_tokens": True}
    check_predictions(tmp_path / "new", model, tokenizer, 4, **options)


@pytest.mark.parametrize("limit", [None, 20], ids=["whole", "windows"])
def test_labels_are_the_tokens_of_the_answers(folder, limit):
    """In every window that has the whole answer; the windows have all of the text."""
    module = import_module("run_qa")
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    context = "It rains in New York. Anna lives in Rome. " * 3
    spans = ["New York", " Anna ", "Rome. ", "It rains"]
    rows = [module.Question(str(n), "Who?", context, [(x, context.rindex(x))]) for n, x in enumerate(spans)]
    rows.append(module.Question("none", "Who?", context, []))
    windows = module.encode_questions(rows, tokenizer, module.QaArguments(max_seq_length=limit, doc_stride=8), None)
    answered = set()
    for window in windows:
        assert limit is None or len(window["input_ids"]) <= limit
        row, (first, last) = rows[window["row"]], (window["start_positions"], window["end_positions"])
        shift = window["first"]
        if first == 0:
            assert last == 0
            inside = [x for x, start in row.answers if window["starts"][0] <= start + 1]
            inside = [x for x in inside if row.answers[0][1] + len(x.rstrip()) <= window["ends"][-1]]
            assert not inside
            continue
        answered.add(window["row"])
        text = context[window["starts"][first - shift] : window["ends"][last - shift]]
        assert text == row.answers[0][0].strip() and window["starts"][first - shift] >= row.answers[0][1]
    assert answered == {0, 1, 2, 3} and (len(windows) == 5) == (limit is None)
    for n in range(5):
        read = {place for x in windows if x["row"] == n for place in zip(x["starts"], x["ends"], strict=True)}
        whole = tokenizer("Who?", context, return_offsets_mapping=True)
        places = zip(whole["offset_mapping"], whole.sequence_ids(), strict=True)
        assert read == {tuple(x) for x, part in places if part == 1}


def test_answers_may_touch_other_tokens():
    """As in "(Rome)", of which each sign is a token."""
    find, starts, ends = import_module("run_qa").answer_tokens, [0, 1, 5], [1, 5, 6]
    assert [find(x, n, starts, ends, True, True) for n, x in ((0, "("), (1, "Rome"), (5, ")"), (0, "(Rome"))] == [
        (0, 0),
        (1, 1),
        (2, 2),
        (0, 1),
    ]
    # In a window, an answer that begins or ends with it is there.
    assert (
        find("Rome", 1, starts[1:], ends[1:], False, False) == (0, 0) and find(")", 5, [1], [5], False, False) is None
    )
    assert find("Rome", 1, starts[:2], ends[:2], False, False) == (1, 1)


@pytest.mark.parametrize(
    ("answer", "truths", "version_1", "version_2"),
    [
        ("the Lion!", ["lion"], (1, 1), (1, 1)),
        ("a big lion", ["lion", "the small lion"], (0, 2 / 3), (0, 2 / 3)),
        ("lion lion", ["lion"], (0, 2 / 3), (0, 2 / 3)),
        ("", ["lion"], (0, 0), (0, 0)),
        ("lion", ["-"], (0, 0), (0, 0)),
        ("", [], (0, 0), (1, 1)),
        ("lion", [], (0, 0), (0, 0)),
        ("The", ["a", "an"], (1, 0), (1, 1)),
    ],
)
def test_scores_are_those_of_squad(answer, truths, version_1, version_2):
    module = import_module("run_qa")
    assert module.score(answer, truths, False) == pytest.approx(version_1)
    assert module.score(answer, truths, True) == pytest.approx(version_2)


def test_the_best_spans_are_found():
    module, numbers = import_module("run_qa"), np.random.default_rng(0)
    for length, longest, count in ((1, 3, 2), (7, 3, 4), (9, 20, 100), (12, 1, 5)):
        starts, ends = numbers.normal(size=(2, length))
        spans = [(starts[a] + ends[b], a, b) for a in range(length) for b in range(a, min(length, a + longest))]
        expected = sorted(spans, reverse=True)[:count]
        found = module.best_spans(starts, ends, longest, count)
        assert [x[1:] for x in found] == [x[1:] for x in expected]
        np.testing.assert_allclose([x[0] for x in found], [x[0] for x in expected])
    assert module.best_spans(starts[:0], ends[:0], 3, 4) == []


@pytest.mark.parametrize(("threshold", "answer"), [(0.0, ""), (0.5, ""), (1.0, "a"), (2.0, "a")])
def test_no_answer_is_given_above_the_threshold(threshold, answer):
    module = import_module("run_qa")
    assert module.choose({"": 3.0, "a": 2.0, "b": 1.0}, threshold) == answer
    assert module.choose({"a": 2.0}, threshold) == "a" and module.choose({}, threshold) == ""


def test_all_formats_give_the_same_questions(folder, tmp_path):
    module, found = import_module("run_qa"), paragraphs(3, 4)
    rows = table(found)
    Dataset.from_list(rows).to_parquet(tmp_path / "a.parquet")
    files = {"nested.json": write_squad(tmp_path / "nested.json", found), "a.parquet": str(tmp_path / "a.parquet")}
    texts = {"list.json": rows, "data.json": {"version": "1", "data": rows}}
    texts = {name: json.dumps(content) for name, content in texts.items()}
    texts |= {"lines.json": "\n".join(map(json.dumps, rows)), "lines.jsonl": "\n".join(map(json.dumps, rows))}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        files[name] = str(tmp_path / name)
    read = {
        name: module.load_questions({"train": file}, True, str(tmp_path / "cache"))["train"]
        for name, file in files.items()
    }
    assert len(read["nested.json"]) == 9 and all(questions == read["nested.json"] for questions in read.values())


ROW = {"id": "7", "question": "Who?", "context": "Anna lives.", "answers": {"text": ["Anna"], "answer_start": [0]}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": None}, 'row 2 has no "id"'),
        ({"question": None}, r"""row 2 \(id '7'\) has no "question", a text: add it"""),
        ({"context": " "}, 'has an empty "context": fill it in'),
        ({"answers": None}, 'has no "answers": add them'),
        ({"answers": {"text": [], "answer_start": []}}, "no answer: give --version_2_with_negative, or remove"),
        ({"answers": {"text": ["Anna"], "answer_start": []}}, "has 1 answers and 0 places"),
        ({"answers": {"text": ["Anna"]}}, 'in its "answers" has no "answer_start", a list'),
        ({"answers": {"text": ["Anna"], "answer_start": [1]}}, "'Anna' at \"answer_start\" 1, .* has 'nna '"),
        ({"answers": {"text": ["Anna"], "answer_start": [-4]}}, "correct the place"),
        ({"id": "1"}, """row 2 has the "id" '1' of .*row 1: give each question its own"""),
    ],
)
def test_bad_rows(folder, tmp_path, change, message):
    other = ROW | {"id": "1"}
    (tmp_path / "a.jsonl").write_text(json.dumps(other) + "\n" + json.dumps(ROW | change))
    args = arguments(folder, tmp_path / "out", "--do_train", "--train_file", str(tmp_path / "a.jsonl"))
    args.remove("--version_2_with_negative")
    with pytest.raises(ValueError, match=message):
        import_module("run_qa").main(args)
    assert not (tmp_path / "out" / "config.json").exists()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"data": []}, "a.json has no questions"),
        ({"data": [{}]}, r'a.json: data\[0\] has no "paragraphs", a list: add it'),
        ({"data": [{"paragraphs": [{"qas": []}]}]}, r'data\[0\].paragraphs\[0\] has no "context", a text'),
        ({"data": [{"paragraphs": [{"context": "a", "qas": ["Who?"]}]}]}, r'paragraphs\[0\].qas\[0\] has no "id"'),
        (
            {"data": [{"paragraphs": [{"context": "a", "qas": [{"id": 1, "question": "?", "answers": [{}]}]}]}]},
            r'qas\[0\] \(id 1\), answer 1, has no "text", a text',
        ),
        ('{"data": [', "a.json cannot be read as json: .*line 1"),
    ],
)
def test_bad_squad_files(folder, tmp_path, data, message):
    (tmp_path / "a.json").write_text(data if isinstance(data, str) else json.dumps(data))
    more = ("--do_train", "--train_file", str(tmp_path / "a.json"))
    with pytest.raises(ValueError, match=message):
        import_module("run_qa").main(arguments(folder, tmp_path / "out", *more))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--do_eval", "--max_seq_length", "20", "--doc_stride", "15"), "leaves no room for the text of the question"),
        (("--do_eval", "--max_answer_length", "0"), "--max_answer_length is 0; give 1 or more"),
        (("--do_eval", "--doc_stride", "-1"), "--doc_stride is -1"),
        (("--do_predict",), "--do_predict needs --predict_file"),
        (("--do_eval", "--validation_file", "x.csv"), "does not exist"),
    ],
)
def test_contradictions(folder, tmp_path, more, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        import_module("run_qa").main(arguments(folder, tmp_path / "out", *more))


def test_texts_longer_than_the_positions_are_refused(folder):
    module, tokenizer = import_module("run_qa"), AutoTokenizer.from_pretrained(folder / "model")
    rows = [module.Question("7", "Who?", "Anna lives. " * 20, [])]
    with pytest.raises(
        ValueError, match="question '7' and its text have .* positions for 32 .*: give --max_seq_length 32"
    ):
        module.encode_questions(rows, tokenizer, module.QaArguments(), 32)
    assert len(module.encode_questions(rows, tokenizer, module.QaArguments(max_seq_length=32, doc_stride=4), 32)) > 1
