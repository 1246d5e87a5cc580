# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Fine-tune a LION model on labels of words, such as named entities or parts of speech, with the Trainer
(docs/guides/tokens.md).

    python examples/run_token_classification.py --train_file train.conll --validation_file test.conll \
        --model_name_or_path my-lion --do_train --do_eval --output_dir my-tagger
    python examples/run_token_classification.py --model_name_or_path my-tagger --do_predict --predict_file new.conll \
        --output_dir my-tags
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from sklearn.metrics import f1_score
from training_lion.scripts import arguments, class_names, data_files, models, training
from training_lion.scripts.arguments import option
from transformers import AutoModelForTokenClassification, DataCollatorForTokenClassification, EvalPrediction, Trainer


CONLL = (".conll", ".bio", ".iob2", ".tsv", ".txt")
TYPES = (
    *CONLL,
    *(name for name in data_files.TABLES if data_files.FILE_TYPES[name] != "csv"),
)  # a cell of .csv holds no list
BIO = re.compile(r"O|[BI]-.+")
IGNORED = -100  # the label of tokens that are not the first piece of a word


@dataclass
class TokenArguments(arguments.FileArguments):
    max_seq_length: int | None = option("Do not train on sentences with more tokens. Not given: train on all.")


@dataclass(frozen=True)
class Sentence:
    """Words with their tags (`None` if they are to be predicted), and where they are from."""

    words: list[str]
    tags: list[str] | None
    place: str


def read_conll(file: str, name: str, has_tags: bool) -> Iterator[Sentence]:
    """
    Yield the sentences of a file with a word and its columns on each line. A line "# …" in front of a sentence is a
    comment. Raises a ValueError if a line has no tag or not as many columns as others, or if words have numbers.
    """
    with open(file, encoding="utf-8-sig") as lines:
        lines = [line.strip(" \t\n") for line in lines]  # no other white space: it may be in words
    rows = [columns_of(line) for line in lines if line and not line.startswith(("# ", "-DOCSTART-"))]
    width, known = len(rows[0]) if rows else 0, {row[-1] for row in rows}
    has_tabs = any("\t" in line for line in lines if not line.startswith("# "))
    words, tags, first, counts = [], [], 0, []
    for number, line in enumerate([*lines, ""], start=1):
        columns = columns_of(line)
        if not line or columns[0] == "-DOCSTART-":
            if words:
                counts.append(words in ([str(n + start) for n in range(len(words))] for start in (0, 1)))
                yield Sentence(words, tags if has_tags else None, f"{name}, sentence from line {first},")
            words, tags = [], []
            continue
        if line.startswith("# ") and not words and not (has_tags and len(columns) == width and columns[-1] in known):
            if has_tags or has_tabs or len(columns) != width:
                continue
            raise ValueError(
                f"{name} line {number}: {line!r} is a comment or a word: separate the columns by tabs, or remove it."
            )
        if has_tags and len(columns) < 2:
            raise ValueError(f"{name} line {number}: {line!r} has no tag. Write the word, a tab and its tag.")
        if len(columns) != width:
            raise ValueError(
                f"{name} line {number}: {line!r} has {len(columns)} columns, the lines before it have {width}. "
                "Separate the columns by tabs if words have blanks in them."
            )
        first = first if words else number
        words.append(columns[0].strip(" "))
        tags.append(class_names.class_name(columns[-1]))
    if counts and all(counts) and width > 1:
        raise ValueError(f"{name} has the numbers of the words in its first column: remove it, so words are first.")


def columns_of(line: str) -> list[str]:
    return re.split(r"\t" if "\t" in line else " +", line)


def read_table(dataset: Dataset, name: str, has_tags: bool) -> Iterator[Sentence]:
    """Yield the sentences of a table with the columns "tokens" and "tags" or "ner_tags". Else a ValueError."""
    column = next((column for column in ("tags", "ner_tags") if column in dataset.column_names), None)
    if "tokens" not in dataset.column_names or has_tags and column is None:
        raise ValueError(
            f'{name} has the columns {", ".join(dataset.column_names)}: rename those of words and tags to "tokens" '
            'and "tags".'
        )
    if has_tags and not isinstance(dataset.features[column], class_names.LISTS):
        raise ValueError(f'{name}, row 1, has the "{column}" {dataset[0][column]!r:.80}. Give a list of names.')
    tags = class_names.label_names(dataset, column, name) if has_tags else [None] * len(dataset)
    for number, (words, of_row) in enumerate(zip(dataset["tokens"], tags, strict=True), start=1):
        place = f"{name}, row {number},"
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise ValueError(f'{place} has the "tokens" {words!r:.80}. Give a list of words.')
        if has_tags and len(of_row) != len(words):
            raise ValueError(f"{place} has {len(words)} words and {len(of_row)} tags. Give each word one tag.")
        yield Sentence(words, of_row, place)


def load_sentences(files: dict[str, str], cache_dir: str | None) -> dict[str, list[Sentence]]:
    """Load sentences by split. Raises a ValueError if there are none, one has no words, or a file is unreadable."""
    sentences = {}
    for split, file in files.items():
        name, has_tags = f"--{split}_file {file}", split != "predict"
        if Path(file).suffix.lower() in CONLL:
            sentences[split] = list(read_conll(file, name, has_tags))
        else:
            dataset = data_files.load_files({split: file}, cache_dir=cache_dir)[split]
            sentences[split] = list(read_table(dataset, name, has_tags))
        if not sentences[split]:
            raise ValueError(f"{name} has no sentences: give a file that has some.")
        if empty := [sentence.place for sentence in sentences[split] if not sentence.words]:
            raise ValueError(f"{empty[0]} has no words: remove it.")
    return sentences


def tag_places(sentences: list[Sentence]) -> dict[str, str]:
    """Return the tags of sentences, each with the place where it first occurs."""
    return class_names.first_places([x.tags for x in sentences], (x.place.rstrip(",") for x in sentences))


def encode_words(words: list[str], tokenizer) -> dict[str, list[int]]:
    """
    Tokenize a sentence. "firsts" has the position of the first piece of each word.

    Words are joined by blanks, since some tokenizers read a blank as the beginning of the next word. A word without
    tokens, such as a control character, is read as an unknown word, so that it has a label.
    """
    encoding = tokenizer(" ".join(words), truncation=False, verbose=False)
    firsts, start = [], 0
    for word in words:
        pieces = (encoding.char_to_token(place) for place in range(start, start + len(word)))
        firsts.append(next((piece for piece in pieces if piece is not None), None))
        start += len(word) + 1
    if None in firsts:
        unknown = tokenizer.unk_token or "?"
        words = [unknown if first is None else word for word, first in zip(words, firsts, strict=True)]
        return encode_words(words, tokenizer)
    return {**encoding, "firsts": firsts}


def encode_split(sentences: list[Sentence], tokenizer, ids: dict[str, int] | None, longest: int | None) -> Dataset:
    """
    Tokenize sentences, with labels if `ids` has the numbers of the tags. Sentences stay whole. Raises a ValueError if
    one is longer than the model's table of positions.
    """

    def encode(row: dict) -> dict[str, list[int]]:
        encoded = encode_words(row["words"], tokenizer)
        length = len(encoded["input_ids"])
        models.check_length(f"{row['place']} has", length, longest, "split the sentence")
        if ids is not None:
            encoded["labels"] = [IGNORED] * length
            for first, tag in zip(encoded["firsts"], row["tags"], strict=True):
                encoded["labels"][first] = ids[tag]
        return encoded

    rows = Dataset.from_list([vars(sentence) for sentence in sentences])
    return rows.map(encode, remove_columns=rows.column_names, desc="tokenizing")


def leave_out_long(dataset: Dataset, sentences: list[Sentence], limit: int | None) -> Dataset:
    """Return the sentences of up to `limit` tokens, for training. Prints how many are left out."""
    lengths = [len(tokens) for tokens in dataset["input_ids"]]
    kept = [row for row, length in enumerate(lengths) if limit is None or length <= limit]
    if not kept:
        raise ValueError(f"--max_seq_length is {limit}: every training sentence has more tokens.")
    if len(kept) < len(lengths):
        row = next(row for row, length in enumerate(lengths) if length > limit)
        print(
            f"{len(lengths) - len(kept)} sentences have more tokens than --max_seq_length {limit} and are left out of "
            f"the training. {sentences[row].place} has {lengths[row]}."
        )
    return dataset.select(kept)


def entities(tags: list[str]) -> set[tuple[str, int, int]]:
    """
    Return the entities in BIO tags: type, first word, word behind the last one. As in CoNLL's evaluation, an "I" that
    does not continue an entity of its type begins one.
    """
    spans, kind, first = set(), None, 0
    for place, tag in enumerate([*tags, "O"]):
        prefix, _, name = tag.partition("-")
        continues = prefix == "I" and name == kind
        if kind is not None and not continues:
            spans.add((kind, first, place))
        if not continues:
            kind, first = (None if prefix == "O" else name), place
    return spans


def measure(prediction: EvalPrediction, names: list[str]) -> dict[str, float]:
    """Compute the metrics of an evaluation of labels with these names."""
    (answers, _), labels = prediction.predictions, prediction.label_ids
    counts = labels != IGNORED
    metrics = {"accuracy": float(np.mean(answers[counts] == labels[counts]))}
    if not all(BIO.fullmatch(name) for name in names):
        f1 = f1_score(labels[counts], answers[counts], average="macro", zero_division=0.0)
        return metrics | {"f1_macro": float(f1)}
    right = found = there = 0
    for row, is_word in enumerate(counts):
        predicted, true = (entities([names[i] for i in x[row][is_word]]) for x in (answers, labels))
        right, found, there = right + len(predicted & true), found + len(predicted), there + len(true)
    return metrics | {
        "precision": right / found if found else 0.0,
        "recall": right / there if there else 0.0,
        "f1": 2 * right / (found + there) if found + there else 0.0,
    }


def most_likely(logits: torch.Tensor, labels: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the labels and their probabilities, so that evaluation stores these and not all logits."""
    scores, answers = logits.float().softmax(dim=-1).max(dim=-1)
    return answers, scores


def write_predictions(trainer: Trainer, names: list[str], dataset: Dataset, sentences: list[Sentence]) -> None:
    """Write predictions.jsonl in the output folder: the words of each sentence, their labels and probabilities."""
    answers, scores = trainer.predict(dataset).predictions
    rows = []
    for row, (sentence, firsts) in enumerate(zip(sentences, dataset["firsts"], strict=True)):
        labels = [names[i] for i in answers[row][firsts]]
        rows.append({"tokens": sentence.words, "labels": labels, "scores": scores[row][firsts].tolist()})
    training.save_rows(trainer, rows)


def main(args: list[str] | None = None) -> Trainer:
    """Run with these arguments, or those of the command line; returns the Trainer."""
    setup = training.start(TokenArguments, args)
    model_args, token_args, training_args, config, checkpoint = setup
    files = data_files.needed_files(token_args, training_args, TYPES)
    sentences = load_sentences(files, model_args.cache_dir)
    sentences = {split: token_args.limit(split, rows) for split, rows in sentences.items()}
    if training_args.do_train:
        tags = class_names.in_order(tag_places(sentences["train"]))
        class_names.set_labels(config, tags, model_args, "ForTokenClassification", "training sentences")
    names, ids = [*config.id2label.values()], {}
    for split, rows in sentences.items():
        if split != "predict":
            ids[split] = class_names.number_names(tag_places(rows), names, "The model", not training_args.do_train)
    tokenizer = models.load_tokenizer(model_args.model_name_or_path, model_args.cache_dir)
    model = models.load_model(AutoModelForTokenClassification, model_args, config)
    longest = models.longest_text(model)
    datasets = {split: encode_split(rows, tokenizer, ids.get(split), longest) for split, rows in sentences.items()}
    if training_args.do_train:
        datasets["train"] = leave_out_long(datasets["train"], sentences["train"], token_args.max_seq_length)
    collator, metrics = DataCollatorForTokenClassification(tokenizer), partial(measure, names=names)
    options = {"preprocess_logits_for_metrics": most_likely}
    trainer = training.make_trainer(setup, model, datasets, tokenizer, metrics, collator, **options)
    training.train_and_evaluate(trainer, checkpoint)
    if training_args.do_predict:
        write_predictions(trainer, names, datasets["predict"], sentences["predict"])
    return trainer


if __name__ == "__main__":
    main()
