# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Read tables of texts in files of the user, with errors that name what is wrong in them."""

import codecs
import csv
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path

import pyarrow
from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict, load_dataset
from datasets.exceptions import DatasetsError
from pyarrow import parquet
from retrieval_lion.documents import read_text
from transformers import PreTrainedTokenizerBase, TrainingArguments
from transformers.utils import logging

from .arguments import FileArguments, needed_data, needed_splits
from .class_names import NUMBER


logger = logging.get_logger(__name__)
FILE_TYPES = {".txt": "text", ".json": "json", ".jsonl": "json", ".csv": "csv", ".parquet": "parquet"}
TABLES = tuple(name for name, kind in FILE_TYPES.items() if kind != "text")  # with columns
HALF = re.compile(r"\\u[dD][89a-fA-F]")  # an escaped surrogate, alone or in a pair
MOST_FAULTS = 10  # in a message
FILE_NAME = re.compile(r"\S+\.(txt|md|rst|html?|xml|json|pdf|docx?|eml|log)", re.IGNORECASE)
TEXT_FILES_HELP = 'Folder of the text files that are named in the column of texts. "no": the names are the texts.'


def needed_files(data_args: FileArguments, training_args: TrainingArguments, types: tuple[str, ...]) -> dict[str, str]:
    """Return the needed files (`needed_data`), checked by `check_files`."""
    return check_files(needed_data(data_args, training_args, "file"), types)


def check_files(files: dict[str, str | None], types: tuple[str, ...] = tuple(FILE_TYPES)) -> dict[str, str]:
    """
    Return the files that are given, by split: `"train"` stands for `--train_file`, and so on. Raises a
    FileNotFoundError or a ValueError for one that is missing, empty, a folder, not of `types`, or not UTF-8.
    """
    files = {split: file for split, file in files.items() if file is not None}
    for split, file in files.items():
        path, name = Path(file), f"--{split}_file {file}"
        if not path.exists():
            raise FileNotFoundError(f"{name} does not exist.")
        if path.suffix.lower() not in types:
            raise ValueError(f"{name} is none of the known types: {', '.join(types)}.")
        if not path.is_file():
            raise ValueError(f"{name} is a folder: give a file.")
        if path.stat().st_size == 0:
            raise ValueError(f"{name} is empty: give a file that has rows.")
        if path.suffix.lower() != ".parquet":
            check_utf8(path, name)
    return files


def check_utf8(path: Path, name: str) -> None:
    """Raise a ValueError for the first line that is not UTF-8, at which training would stop."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                is_utf16 = number == 1 and line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
                encoding = "utf-16" if is_utf16 else "windows-1252"
                raise ValueError(
                    f"{name} is not UTF-8 text (line {number}: byte 0x{line[error.start]:02x}). Save it as UTF-8, for "
                    f"example by `iconv -f {encoding} -t utf-8 {path} > new{path.suffix}`, or as CSV UTF-8 in Excel."
                ) from None


def load_files(
    files: dict[str, str], columns: tuple[str, ...] = (), streaming: bool | None = None, cache_dir: str | None = None
) -> DatasetDict | IterableDatasetDict:
    """
    Load the rows of files (from `check_files`) by split. Files may be of several types. Raises a ValueError if one
    cannot be read, has no rows, or lacks one of `columns` or a value in it.

    Cells of .csv are strings, or `None` if they are empty: "007", "NA" and "2024-01-01" do not change. Values of .json
    and .jsonl have the types that are written. If `streaming` is given, `datasets` reads JSON, which leaves large
    files on the disk, and values may be missing; if it is true, rows are read while they are used.
    """
    datasets = {}
    for split, file in files.items():
        kind, what = FILE_TYPES[Path(file).suffix.lower()], f"--{split}_file {file}"
        try:
            if kind == "csv" and streaming:
                dataset = IterableDataset.from_generator(read_csv, gen_kwargs={"file": file, "what": what})
            elif kind == "csv":
                dataset = to_dataset(list(read_csv(file, what)), what)
            elif kind == "text" or streaming is not None:
                options = {"streaming": bool(streaming), "cache_dir": cache_dir}
                dataset = load_dataset(kind, data_files={split: file}, split=split, **options)
            else:
                dataset = to_dataset(read_json(file, what), what) if kind == "json" else read_parquet(file)
            has_rows = next(iter(dataset), None) if streaming else len(dataset)
        except (DatasetsError, ValueError, NotImplementedError) as error:  # what pyarrow raises are ValueErrors
            if what in str(error):
                raise
            cause: BaseException = error
            while (inner := cause.__cause__ or cause.__context__) is not None:
                cause = inner
            raise ValueError(f"{what} cannot be read as {kind}: {cause}") from error
        if not has_rows:
            raise ValueError(f"{what} has no rows: give a file that has some.")
        check_columns(dataset, columns, what, has_values=streaming is None)
        datasets[split] = dataset
    return (IterableDatasetDict if streaming else DatasetDict)(datasets)


def read_csv(file: str, what: str) -> Iterator[dict[str, str | None]]:
    """Yield the rows of a table with a header, all cells as strings. Raises a ValueError for any other file."""
    csv.field_size_limit(sys.maxsize)
    with open(file, encoding="utf-8-sig", newline="") as lines:
        reader = csv.reader(lines, strict=True)
        names = next(reader, [])
        if len(names) == 1 and (found := [x for x in (";", "\t") if x in names[0]]):
            raise ValueError(f"{what} has one column, {names[0]!r}: separate columns by commas, not by {found[0]!r}.")
        if len({*names}) < len(names):
            raise ValueError(f"{what} has two columns of one name in {', '.join(names)}: rename one.")
        try:
            for cells in reader:
                if cells and len(cells) != len(names):
                    raise ValueError(
                        f"{what} line {reader.line_num} has {len(cells)} cells, its header {len(names)} "
                        f"({', '.join(names)}): put texts that have commas in them into quotes."
                    )
                if cells:
                    yield {name: cell or None for name, cell in zip(names, cells, strict=True)}
        except csv.Error as error:
            raise ValueError(f"{what} line {reader.line_num} cannot be read as csv: {error}.") from None


def parse_json(text: str) -> object:
    """Parse JSON. NaN and Infinity, which JSON does not have and Python writes for missing values, become `None`."""
    return json.loads(text, parse_constant=lambda name: None)


def read_json(file: str, what: str) -> list | dict:
    """Read a JSON file: a list of rows, one row per line, or an object. Raises a ValueError for any other file."""
    text = Path(file).read_text(encoding="utf-8-sig")
    try:
        content = parse_json(text)
        check_characters([content] if isinstance(content, dict) else content, text, what)
        return [content] if Path(file).suffix.lower() == ".jsonl" else content
    except json.JSONDecodeError as error:
        if not error.msg.startswith("Extra data"):  # else a row on each line
            raise ValueError(f"{what} cannot be read as json: {error}. Write or fetch it again.") from None
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):
        try:
            rows += [parse_json(line)] if line.strip() else []
        except json.JSONDecodeError as error:
            raise ValueError(f"{what} line {number} cannot be read as json: {error}. Write it again.") from None
    check_characters(rows, text, what)
    return rows


def check_characters(rows: object, text: str, what: str) -> None:
    """Raise a ValueError for the first row with a single surrogate, which tokenizers reject."""
    if not HALF.search(text):
        return
    for number, row in enumerate(rows if isinstance(rows, list) else [rows], start=1):
        written = json.dumps(row, ensure_ascii=False)
        try:
            written.encode()
        except UnicodeEncodeError as error:
            near = written[max(0, error.start - 30) : error.start]
            raise ValueError(
                f"{what}, row {number}, has half of a character (\\u{ord(written[error.start]):x}) behind {near!r}: "
                "write the whole character, or remove it."
            ) from None


def to_dataset(rows: list[dict] | dict, what: str) -> Dataset:
    """Make a dataset of rows, or of one row, with the columns of all. Values of mixed types become JSON."""
    rows = [rows] if isinstance(rows, dict) else rows
    if other := [row for row in rows if not isinstance(row, dict)]:
        raise ValueError(f"{what} has the row {other[0]!r:.80}: write rows as objects of columns and values.")
    columns = {name: [row.get(name) for row in rows] for name in dict.fromkeys(chain.from_iterable(rows))}
    for name, values in columns.items():
        try:
            Dataset.from_dict({name: values})
        except (ValueError, TypeError, OverflowError):
            columns[name] = [x if isinstance(x, str | None) else json.dumps(x, ensure_ascii=False) for x in values]
    return Dataset.from_dict(columns)


def read_parquet(file: str) -> Dataset:
    """Read a file without a cache, which may be of an earlier file of this name. Categories become their values."""
    table = parquet.read_table(file)
    fields = [field.with_type(plain_type(field.type)) for field in table.schema]
    return Dataset(table.cast(pyarrow.schema(fields, table.schema.metadata)))


def plain_type(kind: pyarrow.DataType) -> pyarrow.DataType:
    """Return a type of Arrow without the forms that tools choose for speed: categories, large lists, views."""
    types = pyarrow.types
    if types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if types.is_string_view(kind):
        return pyarrow.string()
    if types.is_binary_view(kind):
        return pyarrow.binary()
    if types.is_large_list(kind) or types.is_list(kind) or types.is_list_view(kind) or types.is_large_list_view(kind):
        return pyarrow.list_(plain_type(kind.value_type))
    return kind


def check_columns(
    dataset: Dataset | IterableDataset,
    columns: Iterable[str],
    what: str,
    has_values: bool = True,
    fix: str = "rename its columns",
) -> None:
    """
    Raise a ValueError if `what`, the name of the data, lacks columns, with `fix` as advice. With `has_values`, also if
    a value in them is missing.
    """
    names = dataset.column_names or list(next(iter(dataset)))
    if missing := [column for column in columns if column not in names]:
        raise ValueError(f"{what} has no column {' and '.join(missing)}, but {', '.join(names)}: {fix}.")
    for column in columns if has_values else ():
        values = dataset.select_columns([column]).with_format("arrow")[:][column]  # images are not decoded
        if values.null_count:
            row = values.is_null().to_pylist().index(True) + 1
            more = f" and {values.null_count - 1} more" if values.null_count > 1 else ""
            raise ValueError(f"{what} has no {column!r} in row {row}{more}: fill it in, or remove the row.")


def check_texts(dataset: Dataset, columns: Iterable[str], what: str) -> None:
    """Raise a ValueError if `what`, the name of the data, lacks columns, or a value in them is missing or no text."""
    check_columns(dataset, columns, what)
    for column in columns:
        if "string" not in (dtype := getattr(dataset.features[column], "dtype", "lists")):
            raise ValueError(f"{what} has {dtype} in the column {column!r}, where texts are read: quote them.")


def find_texts(
    dataset: Dataset | IterableDataset,
    what: str,
    given: list[str] | None = None,
    pairs: Iterable[tuple[str, str]] = (),
    how: str = ' "text"',
) -> tuple[str, ...]:
    """
    Return the columns of the texts: `given`; else "text", one of `pairs`, or the only column of texts in the first
    rows. Otherwise raises a ValueError about `what`, the name of the data, that says `how` to name them.
    """
    if given is not None:
        check_columns(dataset, given, what)
        return tuple(given)
    rows = [{name: x for name, x in row.items() if name != "label"} for row in islice(dataset, 1000)]
    columns = {name: [row[name] for row in rows if row.get(name) is not None] for name in dict.fromkeys(chain(*rows))}
    texts = [name for name, values in columns.items() if values and all(isinstance(x, str) for x in values)]
    texts = [name for name in texts if name == "text" or not all(map(NUMBER.fullmatch, columns[name]))]
    if len(columns) == 1 and not any(columns.values()):
        texts = [*columns]  # rows may be empty at first
    texts = next((names for names in (("text",), *pairs) if {*names} <= {*texts}), tuple(texts))
    if len(texts) != 1 and texts not in pairs:
        among = ", ".join(dataset.column_names or columns)
        raise ValueError(f"{what} has {len(texts)} columns of texts among {among}: name the one to read{how}.")
    return texts


def tokenize(dataset: Dataset, tokenizer: PreTrainedTokenizerBase, columns: Sequence[str], length: int, what: str):
    """
    Tokenize texts, or pairs of texts, and cut them off at `length` tokens. Returns a dataset without other columns,
    and says how many of `what` were cut off.
    """

    def encode(rows: dict[str, list]) -> dict[str, list]:
        encoded = tokenizer(*(rows[name] for name in columns), truncation=True, max_length=length)
        return {**encoded, "is_cut": [bool(x.overflowing) for x in encoded.encodings]}

    encoded = dataset.map(encode, batched=True, remove_columns=dataset.column_names)
    if cut := sum(encoded["is_cut"]):
        print(f"{what}: {cut} of {len(dataset)} texts are cut off at {length} tokens; see --max_seq_length.")
    return encoded.remove_columns("is_cut")


def needed_only(datasets: Mapping, training_args: TrainingArguments) -> dict:
    """Return the splits that are needed. Raises a ValueError if one is missing."""
    needed = needed_splits(training_args)
    if missing := [split for split in needed if split not in datasets]:
        raise ValueError(f"The data has no split {' and '.join(missing)}; it has {', '.join(datasets)}.")
    return {split: datasets[split] for split in needed}


def warn_of_seen_rows(training_args: TrainingArguments) -> None:
    """Warn if a run that does not train holds rows of the training data out: which training has not read them."""
    if not training_args.do_train:
        logger.warning(
            "--do_eval without validation data takes a part of the training data: that which a training with "
            "--do_eval and the same --seed holds out. A training without --do_eval has read it."
        )


def load_texts(file: str, texts: tuple[str, ...], labels: tuple[str, ...], folder: str | None) -> Dataset:
    """
    Load the columns `texts` and `labels` of `--train_file`, with a value in each row. Texts may be in files of
    `folder`, as in `read_text_files`.
    """
    files, what = check_files({"train": file}, TABLES), f"--train_file {file}"
    dataset = load_files(files, texts + labels)["train"]
    check_texts(dataset, texts, what)
    return read_text_files(dataset, texts, what, folder).select_columns([*texts, *labels])


def read_text_files(dataset: Dataset, columns: Iterable[str], what: str, folder: str | None) -> Dataset:
    """
    Replace names of files in `folder` by their texts, as `TEXT_FILES_HELP` says. Raises a ValueError if a file cannot
    be read or is empty, or if columns name files and `folder` is `None`. `what` names the table: "--train_file a.csv".
    """
    if folder == "no":
        return dataset
    if folder is not None and not os.path.isdir(folder):
        raise ValueError(f"--text_files {folder} is no folder: give the one that the names in {what} are in.")
    for column in columns:
        texts, beside = dataset[column][:], Path(what.split(" ", 1)[1]).parent
        if folder is None:
            some = [text for text in texts[:100] if isinstance(text, str)]
            if some and (all(map(FILE_NAME.fullmatch, some)) or all(os.path.isfile(beside / text) for text in some)):
                raise ValueError(
                    f"{what} has names of files in the column {column!r} ({some[0]}): give --text_files FOLDER to "
                    f"read them from there ({beside} is the folder of the table), or --text_files no if the names are "
                    "the texts."
                )
            continue
        faults = []
        for row, name in enumerate(texts):
            try:
                texts[row] = read_text(Path(folder, name))
            except (OSError, ValueError) as error:
                hint = ": write / for \\" if "\\" in name and os.sep == "/" else ""
                faults.append(f"row {row + 1}: the file {name!r} cannot be read: {error}{hint}")
                continue
            if not texts[row].strip():
                faults.append(f"row {row + 1}: the file {name!r} is empty: fill it in, or remove the row.")
        if faults:
            more = [f"and {len(faults) - MOST_FAULTS} more rows"] if len(faults) > MOST_FAULTS else []
            raise ValueError("\n".join([f"{what} {faults[0]}", *faults[1:MOST_FAULTS], *more]))
        # The new column first: without any, a table has no rows.
        dataset = dataset.add_column(read := f"{column} read", texts).remove_columns(column)
        dataset = dataset.rename_column(read, column)
    return dataset
