# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""One's own data files, for all scripts: which are taken, what is wrong with one, and their rows."""

import codecs
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from datasets import Dataset, DatasetDict, IterableDatasetDict, load_dataset
from datasets import Image as ImageColumn
from datasets.exceptions import DatasetsError
from PIL import Image
from transformers import TrainingArguments
from transformers.utils import logging


logger = logging.get_logger(__name__)

FILE_TYPES = {".txt": "text", ".json": "json", ".jsonl": "json", ".csv": "csv", ".parquet": "parquet"}
TABLES = tuple(name for name, kind in FILE_TYPES.items() if kind != "text")  # with columns


@dataclass
class FileArguments:
    """Arguments of the scripts that read files of one's own."""

    train_file: str | None = field(default=None, metadata={"help": "Training data of your own."})
    validation_file: str | None = field(default=None, metadata={"help": "Validation data of your own."})
    predict_file: str | None = field(default=None, metadata={"help": "Data to predict for, with --do_predict."})
    max_train_samples: int | None = field(default=None, metadata={"help": "Use at most so many training examples."})
    max_eval_samples: int | None = field(default=None, metadata={"help": "Use at most so many validation examples."})


def needed_files(file_args: FileArguments, training_args: TrainingArguments, types: tuple[str, ...]) -> dict[str, str]:
    """
    The files of "train", "validation" and "predict" that the work needs, checked by `check_files`.

    Raises:
        ValueError: if one is not given, or --predict_file without --do_predict.
    """
    work = {
        "do_train": ("train", training_args.do_train),
        "do_eval": ("validation", training_args.do_eval),
        "do_predict": ("predict", training_args.do_predict),
    }
    if file_args.predict_file is not None and not training_args.do_predict:
        raise ValueError("Give --do_predict and --predict_file together.")
    files = {}
    for name, (split, is_asked) in work.items():
        if is_asked:
            files[split] = getattr(file_args, f"{split}_file")
            if files[split] is None:
                raise ValueError(f"--{name} needs --{split}_file.")
    return check_files(files, types)


def check_files(files: dict[str, str | None], types: tuple[str, ...] = tuple(FILE_TYPES)) -> dict[str, str]:
    """
    The files that are given, by the split that they are for, once they look like what `load_files` reads.

    Args:
        files: `"train"` stands for `--train_file`, and so on. `None` is left out. types: endings that are taken.

    Raises:
        FileNotFoundError: if one does not exist.
        ValueError: if one is a folder, empty, of a type that is not taken, or text that is not UTF-8.
    """
    files = {split: file for split, file in files.items() if file is not None}
    for split, file in files.items():
        path, name = Path(file), f"--{split}_file {file}"
        if not path.exists():
            raise FileNotFoundError(f"{name} does not exist.")
        if path.suffix not in types:
            raise ValueError(f"{name} is none of the known types: {', '.join(types)}.")
        if not path.is_file():
            raise ValueError(f"{name} is a folder: give a file.")
        if path.stat().st_size == 0:
            raise ValueError(f"{name} is empty: give a file that has rows.")
        if path.suffix != ".parquet":
            check_utf8(path, name)
    return files


def check_utf8(path: Path, name: str) -> None:
    """Raise a ValueError for the first line that is not UTF-8: else training would stop there."""
    decoder, lines = codecs.getincrementaldecoder("utf-8")(), 0
    with path.open("rb") as file:
        while True:
            part = file.read(2**20)
            try:
                decoder.decode(part, final=not part)
            except UnicodeDecodeError as error:
                line = lines + error.object.count(b"\n", 0, error.start) + 1
                is_utf16 = line == 1 and error.object.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
                raise ValueError(
                    f"{name} is not UTF-8 text (line {line}: byte 0x{error.object[error.start]:02x}). Save it as "
                    f"UTF-8, for example by `iconv -f {'utf-16' if is_utf16 else 'latin1'} -t utf-8 {path} > new"
                    f"{path.suffix}`."
                ) from None
            if not part:
                return
            lines += part.count(b"\n")


def load_files(
    files: dict[str, str], columns: tuple[str, ...] = (), split: str | None = None, **options
) -> Dataset | DatasetDict | IterableDatasetDict:
    """
    The rows of files of `check_files`, by split. The files may be of several types.

    Args:
        columns: what they must have. split: a part of the only file, as in `"train[:5%]"`. options: of
            `datasets.load_dataset`.

    Raises:
        ValueError: if they cannot be read, have no rows or lack a column.
    """
    datasets = {name: load_file(name, file, split=split or name, **options) for name, file in files.items()}
    for name, dataset in datasets.items():
        if missing := [column for column in columns if column not in dataset.column_names]:
            raise ValueError(
                f"--{name}_file {files[name]} has no column {' and '.join(missing)}, but "
                f"{', '.join(dataset.column_names)}: rename its columns."
            )
    if split is not None:
        return datasets.popitem()[1]
    return (IterableDatasetDict if options.get("streaming") else DatasetDict)(datasets)


def load_file(name: str, file: str, **options) -> Dataset:
    """The rows of the file of `--<name>_file`; raises as `load_files` does."""
    kind, what = FILE_TYPES[Path(file).suffix], f"--{name}_file {file}"
    try:
        dataset = load_dataset(kind, data_files={name: file}, **options)
        columns = list(next(iter(dataset)))
    except StopIteration:
        raise ValueError(f"{what} has no rows: give a file that has some.") from None
    except (DatasetsError, ValueError) as error:  # what pyarrow and pandas raise are ValueErrors
        cause = error
        while cause.__cause__ is not None or cause.__context__ is not None:
            cause = cause.__cause__ or cause.__context__
        if isinstance(cause, StopIteration):
            raise ValueError(f"{what} has no rows: give a file that has some.") from None
        raise ValueError(f"{what} cannot be read as {kind}: {cause}") from error
    if kind == "csv" and len(columns) == 1 and (found := [x for x in (";", "\t") if x in columns[0]]):
        raise ValueError(f"{what} has one column, {columns[0]!r}: separate columns by commas, not by {found[0]!r}.")
    return dataset


def number_names(places: Mapping[str, str], names: Iterable[str], what: str) -> dict[str, int]:
    """
    The number of each label of the data.

    Args:
        places: the labels of the data, names of classes or their numbers, with the place where each is first.
        names: of all classes, in order.
        what: has these names; for the message.

    Raises:
        ValueError: if the data has a label that is neither.
    """
    ids = {name: i for i, name in enumerate(names)}
    numbers = {str(i): i for i in ids.values()}
    if places.keys() <= numbers.keys() and not places.keys() <= ids.keys():
        return numbers
    if unknown := sorted(places.keys() - ids.keys()):
        found = ", ".join(f"{name} ({places[name]})" for name in unknown[:5])
        raise ValueError(f"{what} has the labels {', '.join(ids)}; the data has {found}.")
    return ids


def read_image(file: dict, mode: str) -> Image.Image | None:
    """
    An image of its "path" or its "bytes", in a mode of Pillow; `None`, with a warning, if it is damaged: training goes
    on without it.
    """
    try:
        if file["bytes"] is None:  # by way of its path, a damaged file would stay open
            file = file | {"bytes": Path(file["path"]).read_bytes()}
        return ImageColumn().decode_example(file).convert(mode)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:  # SyntaxError: a broken PNG
        name = file["path"] or f"An image of {len(file['bytes'])} bytes"
        logger.warning_once(f"{name} cannot be read ({error}). It is left out: fix or remove it.")
        return None
