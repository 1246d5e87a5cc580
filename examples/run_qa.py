# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Fine-tune a LION model to find the answers to questions in texts, with the Trainer, and measure it as SQuAD does
(docs/guides/questions.md).

    python examples/run_qa.py --train_file train-v1.1.json --validation_file dev-v1.1.json --do_train --do_eval \
        --model_name_or_path my-lion --output_dir my-reader
    python examples/run_qa.py --model_name_or_path my-reader --do_predict --predict_file questions.jsonl \
        --output_dir my-answers
"""

import json
import re
import string
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from datasets import Dataset
from training_lion.scripts import arguments, data_files, models, training
from training_lion.scripts.arguments import option
from transformers import (
    AutoModelForQuestionAnswering,
    DataCollatorWithPadding,
    EvalPrediction,
    Trainer,
    TrainingArguments,
)


TYPES = tuple(
    name for name in data_files.TABLES if data_files.FILE_TYPES[name] != "csv"
)  # a cell of .csv holds no list
KINDS = {list: "a list", str: "a text", int: "a whole number"}  # of values in files
NO_ANSWER = 0  # the token to which both ends of no answer point: [CLS]
POSITIONS = ("start_positions", "end_positions")  # the labels


@dataclass
class QaArguments(arguments.FileArguments):
    version_2_with_negative: bool = option("Questions may have no answer, as in version 2.0 of SQuAD.", False)
    null_score_diff_threshold: float = option("Give no answer if that scores more than this above the best one.", 0.0)
    max_answer_length: int = option("Longest answer, in tokens.", 30)
    n_best_size: int = option("Answers in nbest_predictions.json for each question.", 20)
    max_seq_length: int | None = option("Tokens of a question and a window of its text. Not given: whole texts.")
    doc_stride: int = option("Tokens that two windows of a text share.", 128)

    def check(self, model_args: arguments.ModelArguments, training_args: TrainingArguments) -> None:
        for name, least in (("n_best_size", 1), ("doc_stride", 0)):
            if (value := getattr(self, name)) < least:
                raise ValueError(f"--{name} is {value}; give {least} or more.")
        if training_args.label_smoothing_factor:
            raise ValueError("--label_smoothing_factor is not for places in texts: leave it out.")


@dataclass(frozen=True)
class Question:
    """A question about a text, with its answers and the characters of the text at which they start."""

    id: str
    question: str
    context: str
    answers: list[tuple[str, int]]


def part(mapping: object, key: str, kind: type, place: str):
    """Return `mapping[key]`. Raises a ValueError if there is none of this type."""
    value = mapping.get(key) if isinstance(mapping, dict) else None
    if not isinstance(value, kind):
        raise ValueError(f'{place} has no "{key}", {KINDS[kind]}: add it.')
    return value


def squad_rows(data: list, name: str) -> Iterator[tuple[str, dict]]:
    """Yield questions in SQuAD's format as rows of a table, each with its place. A missing part is a ValueError."""
    for a, article in enumerate(data):
        for p, paragraph in enumerate(part(article, "paragraphs", list, f"{name}: data[{a}]")):
            place = f"{name}: data[{a}].paragraphs[{p}]"
            context = part(paragraph, "context", str, place)
            for q, row in enumerate(part(paragraph, "qas", list, place)):
                yield f"{place}.qas[{q}]", {**row, "context": context} if isinstance(row, dict) else row


def load_rows(file: str, name: str, split: str, cache_dir: str | None) -> Iterator[tuple[str, dict]]:
    """Yield the rows of a file, each with its place. Raises a ValueError if the file cannot be read."""
    if Path(file).suffix.lower() == ".parquet":
        rows = data_files.load_files({split: file}, cache_dir=cache_dir)[split]
    else:
        rows = data_files.read_json(file, name)
    if isinstance(rows, dict) and isinstance(data := rows.get("data"), list):
        is_table = bool(data) and isinstance(data[0], dict) and "question" in data[0]
        yield from ((f"{name}: data[{n}]", row) for n, row in enumerate(data)) if is_table else squad_rows(data, name)
        return
    rows = [rows] if isinstance(rows, dict) else rows
    yield from ((f"{name}, row {n}", row) for n, row in enumerate(rows, start=1))


def read_question(row: dict, place: str, needs_answer: bool, is_version_2: bool) -> Question:
    """Make a question of its row. Raises a ValueError if something is missing or wrong."""
    if not isinstance(row, dict) or not isinstance(row.get("id"), str | int):
        raise ValueError(f'{place} has no "id", a text or a whole number: add it.')
    place = f"{place} (id {row['id']!r})"
    for key in ("question", "context"):
        if not part(row, key, str, place).strip():
            raise ValueError(f'{place} has an empty "{key}": fill it in, or remove the question.')
    has_answer = needs_answer and not row.get("is_impossible")
    answers = read_answers(row.get("answers"), place) if has_answer else []
    if needs_answer and not answers and not is_version_2:
        raise ValueError(f"{place} has no answer: give --version_2_with_negative, or remove the question.")
    for answer, start in answers:
        there = row["context"][start : start + len(answer)]
        if start < 0 or not answer.strip() or there != answer:
            raise ValueError(
                f'{place} has the answer {answer!r} at "answer_start" {start}, where its text has {there!r}: correct '
                "the place (in characters, from 0) or the answer."
            )
    return Question(str(row["id"]), row["question"], row["context"], answers)


def read_answers(answers: object, place: str) -> list[tuple[str, int]]:
    """Return answers and their places, from a list of pairs (SQuAD) or two lists (datasets). Else a ValueError."""
    fields = (("text", str), ("answer_start", int))
    if isinstance(answers, list):
        rows = [[part(x, *field, f"{place}, answer {n},") for field in fields] for n, x in enumerate(answers, start=1)]
        return [(text, start) for text, start in rows]
    if not isinstance(answers, dict):
        raise ValueError(f'{place} has no "answers": add them, as {{"text": [...], "answer_start": [...]}}.')
    texts, starts = (part(answers, name, list, f'{place} in its "answers"') for name, _ in fields)
    if len(texts) != len(starts):
        raise ValueError(f"{place} has {len(texts)} answers and {len(starts)} places: give each answer its place.")
    rows = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
    return read_answers(rows, place)


def load_questions(files: dict[str, str], is_version_2: bool, cache_dir: str | None) -> dict[str, list[Question]]:
    """
    Load the questions by split. `is_version_2`: questions may have no answer. Raises a ValueError if there are none,
    or one is incomplete, has the id of another, or is not answered by its text.
    """
    questions = {}
    for split, file in files.items():
        name, places = f"--{split}_file {file}", {}
        questions[split] = []
        for place, row in load_rows(file, name, split, cache_dir):
            question = read_question(row, place, split != "predict", is_version_2)
            if question.id in places:
                other = places[question.id]
                raise ValueError(f'{place} has the "id" {question.id!r} of {other}: give each question its own.')
            places[question.id] = place
            questions[split].append(question)
        if not questions[split]:
            raise ValueError(f"{name} has no questions: give a file that has some.")
    return questions


def check_room(questions: list[Question], tokenizer, limit: int, stride: int) -> None:
    """Raise a ValueError if a question leaves no room for its text in `limit` tokens."""
    special = len(tokenizer("", "")["input_ids"])
    for question in questions:
        length = len(tokenizer(question.question, add_special_tokens=False)["input_ids"])
        if length + special + stride >= limit:
            raise ValueError(
                f"--max_seq_length {limit} leaves no room for the text of the question {question.id!r}: its {length} "
                f"tokens, {special} special ones and --doc_stride {stride} are as many. Give more, or leave it out."
            )


def answer_tokens(
    answer: str, start: int, starts: list[int], ends: list[int], is_first: bool, is_last: bool
) -> tuple[int, int] | None:
    """
    Return the first and the last token of an answer, which begins at the character `start`, in a window of its text
    whose tokens reach from `starts` to `ends`; `None` if the window does not have all of it. `is_first`, `is_last`:
    whether the window is the first or the last of the text.
    """
    start, end = start + len(answer) - len(answer.lstrip()), start + len(answer.rstrip())
    if not starts or not (is_first or starts[0] <= start) or not (is_last or end <= ends[-1]):
        return None
    first, last = int(np.searchsorted(ends, start, side="right")), int(np.searchsorted(starts, end)) - 1
    return (first, last) if first <= last else None


def encode_questions(questions: list[Question], tokenizer, qa_args: QaArguments, longest: int | None) -> Dataset:
    """
    Make windows of the questions' texts (one for each, unless --max_seq_length is given), with the ends of the first
    answers. "row" is the question of a window, "first" the first token of its text, and "starts" and "ends" are the
    characters of the text's tokens. Raises a ValueError if a question with its text is longer than the model's table
    of positions, or leaves no room for windows.
    """
    options = {"truncation": False, "verbose": False}
    if qa_args.max_seq_length is not None:
        check_room(questions, tokenizer, qa_args.max_seq_length, qa_args.doc_stride)
        options = {"truncation": "only_second", "return_overflowing_tokens": True}
        options |= {"max_length": qa_args.max_seq_length, "stride": qa_args.doc_stride}

    def encode(rows: dict[str, list]) -> dict[str, list]:
        encoding = tokenizer(rows["question"], rows["context"], return_offsets_mapping=True, **options)
        samples = encoding.pop("overflow_to_sample_mapping", list(range(len(rows["id"]))))
        all_offsets = encoding.pop("offset_mapping")
        windows = []
        for window, (sample, offsets) in enumerate(zip(samples, all_offsets, strict=True)):
            what = f"The question {rows['id'][sample]!r} and its text have"
            models.check_length(what, len(offsets), longest, f"give --max_seq_length {longest}")
            tokens = [token for token, side in enumerate(encoding.sequence_ids(window)) if side == 1]
            starts, ends = ([offsets[token][side] for token in tokens] for side in (0, 1))
            first = tokens[0] if tokens else NO_ANSWER
            is_first = window == 0 or samples[window - 1] != sample
            is_last = window == len(samples) - 1 or samples[window + 1] != sample
            found = answer_tokens(rows["answer"][sample], rows["start"][sample], starts, ends, is_first, is_last)
            positions = (NO_ANSWER, NO_ANSWER) if found is None else (first + found[0], first + found[1])
            windows.append((rows["row"][sample], first, starts, ends, *positions))
        names = ("row", "first", "starts", "ends", *POSITIONS)
        return {**encoding, **dict(zip(names, map(list, zip(*windows, strict=True)), strict=True))}

    columns = {name: [getattr(question, name) for question in questions] for name in ("id", "question", "context")}
    firsts = [question.answers[0] if question.answers else ("", 0) for question in questions]
    columns |= {"answer": [text for text, _ in firsts], "start": [start for _, start in firsts]}
    rows = Dataset.from_dict(columns | {"row": list(range(len(questions)))})
    return rows.map(encode, batched=True, remove_columns=rows.column_names, desc="tokenizing")


def best_spans(start_logits: np.ndarray, end_logits: np.ndarray, longest: int, count: int) -> list[tuple]:
    """
    Return the `count` best spans of up to `longest` tokens, best first: score, first token, last token. The score is
    the sum of the first token's start logit and the last token's end logit.
    """
    width = min(longest, len(start_logits))
    if width == 0:
        return []
    padded = np.concatenate([end_logits, np.full(width - 1, -np.inf)])
    scores = start_logits[:, None] + np.lib.stride_tricks.sliding_window_view(padded, width)  # (first token, length)
    scores = scores.ravel()
    best = np.argpartition(-scores, count)[:count] if count < len(scores) else np.arange(len(scores))
    best = best[np.argsort(-scores[best], kind="stable")]
    best = best[np.isfinite(scores[best])]
    return [(float(scores[i]), int(i // width), int(i // width + i % width)) for i in best]


def best_texts(
    context: str, window: dict[str, list[int]], start_logits: np.ndarray, end_logits: np.ndarray, qa_args: QaArguments
) -> dict[str, float]:
    """Return the best --n_best_size answers in a window of a text, each with the score of its best place."""
    count = qa_args.n_best_size
    while True:
        spans, texts = best_spans(start_logits, end_logits, qa_args.max_answer_length, count), {}
        for score, first, last in spans:
            if text := context[window["starts"][first] : window["ends"][last]].strip():
                texts.setdefault(text, score)
        if len(texts) >= qa_args.n_best_size or len(spans) < count:
            return texts
        count *= 4  # some are the same text in several places


def find_answers(
    prediction: tuple[np.ndarray, np.ndarray], windows: Dataset, questions: list[Question], qa_args: QaArguments
) -> list[dict[str, float]]:
    """
    Return for each question the best answers with their scores, best first, from start and end logits of all windows.
    With --version_2_with_negative, "" (no answer) is one of them, with the lowest score that it has in a window.
    """
    found: list[dict[str, float]] = [{} for _ in questions]
    places = windows.select_columns(["row", "first", "starts", "ends"])
    for window, start_logits, end_logits in zip(places, *prediction, strict=True):
        answers = found[window["row"]]
        tokens = slice(window["first"], window["first"] + len(window["starts"]))
        logits = (x[tokens].astype(np.float64) for x in (start_logits, end_logits))
        for text, score in best_texts(questions[window["row"]].context, window, *logits, qa_args).items():
            answers[text] = max(score, answers.get(text, score))
        if qa_args.version_2_with_negative:
            null_score = float(start_logits[NO_ANSWER]) + float(end_logits[NO_ANSWER])
            answers[""] = min(null_score, answers.get("", null_score))
    for row, answers in enumerate(found):
        ranked = sorted(answers.items(), key=lambda pair: -pair[1])
        found[row] = dict(ranked[: qa_args.n_best_size]) | {text: x for text, x in ranked if not text}
    return found


def choose(answers: dict[str, float], threshold: float) -> str:
    """Return the best answer, or "" if that scores more than `threshold` above it."""
    texts = [text for text in answers if text]
    if not texts or "" in answers and answers[""] - answers[texts[0]] > threshold:
        return ""
    return texts[0]


def words_of(answer: str) -> list[str]:
    """Return the words that SQuAD compares: in lower case, without punctuation and articles."""
    answer = "".join(character for character in answer.lower() if character not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", answer).split()


def score(answer: str, truths: list[str], is_version_2: bool) -> tuple[float, float]:
    """Return exact match and F1 of an answer, the best over the true ones, as SQuAD's own scripts define them."""
    if is_version_2:
        truths = [truth for truth in truths if words_of(truth)] or [""]
    words, exact, f1 = words_of(answer), 0.0, 0.0
    for truth in map(words_of, truths):
        same, shared = float(words == truth), sum((Counter(words) & Counter(truth)).values())
        exact = max(exact, same)
        if shared or is_version_2:  # whose scripts count an empty answer to an empty one
            f1 = max(f1, 2 * shared / (len(words) + len(truth)) if shared else same)
    return exact, f1


def measure(
    prediction: EvalPrediction, windows: Dataset, questions: list[Question], qa_args: QaArguments
) -> dict[str, float]:
    """Compute the metrics of an evaluation of these windows, in percent, as SQuAD does."""
    found, scores = find_answers(prediction.predictions, windows, questions, qa_args), []
    for question, answers in zip(questions, found, strict=True):
        truths, answer = [text for text, _ in question.answers], choose(answers, qa_args.null_score_diff_threshold)
        scores.append(score(answer, truths, qa_args.version_2_with_negative))
    return dict(zip(("exact_match", "f1"), (100 * np.mean(scores, axis=0)).tolist(), strict=True))


def write_predictions(trainer: Trainer, windows: Dataset, questions: list[Question], qa_args: QaArguments) -> None:
    """Write predictions.json and nbest_predictions.json in the output folder."""
    prediction = trainer.predict(windows.remove_columns(list(POSITIONS))).predictions
    chosen, best = {}, {}
    for question, answers in zip(questions, find_answers(prediction, windows, questions, qa_args), strict=True):
        chosen[question.id] = choose(answers, qa_args.null_score_diff_threshold)
        weights = np.exp(np.array([*answers.values()]) - max(answers.values(), default=0.0))
        best[question.id] = [
            {"text": text, "score": value, "probability": weight}
            for (text, value), weight in zip(answers.items(), (weights / weights.sum()).tolist(), strict=True)
        ]
    for name, content in (("predictions.json", chosen), ("nbest_predictions.json", best)):
        training.save_text(trainer, name, json.dumps(content, ensure_ascii=False, indent=1) + "\n")


def main(args: list[str] | None = None) -> Trainer:
    """Run with these arguments, or those of the command line; returns the Trainer."""
    setup = training.start(QaArguments, args)
    model_args, qa_args, training_args, config, checkpoint = setup
    files = data_files.needed_files(qa_args, training_args, TYPES)
    questions = load_questions(files, qa_args.version_2_with_negative, model_args.cache_dir)
    questions = {split: qa_args.limit(split, rows) for split, rows in questions.items()}
    tokenizer = models.load_tokenizer(model_args.model_name_or_path, model_args.cache_dir)
    model = models.load_model(AutoModelForQuestionAnswering, model_args, config)
    longest = models.longest_text(model)
    windows = {split: encode_questions(rows, tokenizer, qa_args, longest) for split, rows in questions.items()}
    evaluated = {"windows": windows.get("validation"), "questions": questions.get("validation")}
    metrics = partial(measure, **evaluated, qa_args=qa_args)
    trainer = training.make_trainer(setup, model, windows, tokenizer, metrics, DataCollatorWithPadding(tokenizer))
    training.train_and_evaluate(trainer, checkpoint)
    if training_args.do_predict:
        write_predictions(trainer, windows["predict"], questions["predict"], qa_args)
    return trainer


if __name__ == "__main__":
    main()
