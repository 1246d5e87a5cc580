# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""One's own data files, for all scripts: which are taken, what is wrong with one, and their rows."""

import codecs
from pathlib import Path

from datasets import Dataset, DatasetDict, IterableDatasetDict, load_dataset
from datasets.exceptions import DatasetsError


FILE_TYPES = {".txt": "text", ".json": "json", ".jsonl": "json", ".csv": "csv", ".parquet": "parquet"}
TABLES = tuple(name for name, kind in FILE_TYPES.items() if kind != "text")  # with columns


def check_files(files: dict[str, str | None], types: tuple[str, ...] = tuple(FILE_TYPES)) -> dict[str, str]:
    """
    The files that are given, by the split that they are for, once they look like what `load_files` reads.

    Args:
        files: `"train"` stands for `--train_file`, and so on. `None` is left out. types: endings that are taken.

    Raises:
        FileNotFoundError: if one does not exist.
        ValueError: if one is a folder, empty, of another type (than taken, or than the others), or text that is not
            UTF-8.
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
    if len({FILE_TYPES[Path(file).suffix] for file in files.values()}) > 1:
        raise ValueError(f"{' and '.join(files.values())} are of different types: give files of one type.")
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
    files: dict[str, str], columns: tuple[str, ...] = (), **options
) -> Dataset | DatasetDict | IterableDatasetDict:
    """
    The rows of files of `check_files`, by split.

    Args:
        columns: what they must have. options: of `datasets.load_dataset`.

    Raises:
        ValueError: if they cannot be read, have no rows or lack a column.
    """
    names = " and ".join(f"--{split}_file {file}" for split, file in files.items())
    kind = FILE_TYPES[Path(next(iter(files.values()))).suffix]
    try:
        datasets = load_dataset(kind, data_files=files, **options)
        for dataset in datasets.values() if isinstance(datasets, dict) else [datasets]:
            next(iter(dataset))
    except StopIteration:
        raise ValueError(f"{names} has no rows: give a file that has some.") from None
    except (DatasetsError, ValueError) as error:  # what pyarrow and pandas raise are ValueErrors
        cause = error
        while cause.__cause__ is not None or cause.__context__ is not None:
            cause = cause.__cause__ or cause.__context__
        if isinstance(cause, StopIteration):
            raise ValueError(f"{names} has no rows: give a file that has some.") from None
        raise ValueError(f"{names} cannot be read as {kind}: {cause}") from error
    for split, dataset in datasets.items() if isinstance(datasets, dict) else ():
        if missing := [name for name in columns if name not in dataset.column_names]:
            raise ValueError(
                f"--{split}_file {files[split]} has no column {' and '.join(missing)}, but "
                f"{', '.join(dataset.column_names)}: rename its columns."
            )
    return datasets
