# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Collect English text without a download: the docstrings of a Python installation. Files are parsed, never imported. A
text is one paragraph. There are no duplicates, and no file gives both training and validation texts.
"""

import random
from collections.abc import Iterable, Iterator
from pathlib import Path

from retrieval_lion.docstrings import docstrings, python_files, python_folders, split_paragraphs


MIN_WORDS = 8
MIN_LETTERS = 0.85  # share of letters and spaces: leaves out tables, code and formulas
MAX_PARAGRAPHS = 60  # of one file, so that no file dominates
VALIDATION_EVERY = 20  # files


def paragraphs(file: str | Path) -> Iterator[str]:
    """Yield the English paragraphs of a file's docstrings, each on one line; none if the file cannot be parsed."""
    for docstring in docstrings(file):
        yield from filter(is_prose, split_paragraphs(docstring.text))


def is_prose(text: str) -> bool:
    letters = sum(character.isalpha() or character == " " for character in text)
    return len(text.split()) >= MIN_WORDS and letters >= MIN_LETTERS * len(text) and ">>>" not in text


def collect_docstrings(
    folders: Iterable[str], max_bytes: int = 10_000_000, seed: int = 0
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """
    Collect texts for training and for validation, by file.

    Args:
        folders: folders to search.
        max_bytes: stop at about this much text; files are visited in random order.
        seed: seed of that order. The first file and every 20th after it are held out.

    Returns:
        `(train, validation)`, each a dict from file name to the texts that this file was the first to have.

    Raises:
        ValueError: if the folders have too little text to split.
    """
    files = python_files(folders)
    random.Random(seed).shuffle(files)
    seen: set[str] = set()
    train: dict[str, list[str]] = {}
    validation: dict[str, list[str]] = {}
    size = 0
    for file in files:
        texts = []
        for text in paragraphs(file):
            if text.lower() not in seen:
                seen.add(text.lower())
                texts.append(text)
        texts = texts[:MAX_PARAGRAPHS]
        if not texts:
            continue
        size += sum(len(text.encode("utf-8", "replace")) + 1 for text in texts)
        split = validation if (len(train) + len(validation)) % VALIDATION_EVERY == 0 else train
        split[file] = texts
        if size >= max_bytes:
            break
    if not train or not validation:
        raise ValueError(f"There are too few docstrings in {', '.join(map(str, folders))}.")
    return train, validation


def write_docstrings(output_dir: str | Path, **kwargs) -> dict[str, int | str]:
    """Write the docstrings of this Python to `train.txt` and `validation.txt`. Returns counts and file names."""
    output_dir = Path(output_dir)
    output_dir.mkdir(parents=True, exist_ok=True)
    summary: dict[str, int | str] = {}
    for split, texts_of in zip(("train", "validation"), collect_docstrings(python_folders(), **kwargs), strict=True):
        texts = [text for texts in texts_of.values() for text in texts]
        path = output_dir / f"{split}.txt"
        path.write_text("\n".join(texts) + "\n", encoding="utf-8", errors="replace")
        summary |= {
            f"{split}_file": str(path),
            f"{split}_source_files": len(texts_of),
            f"{split}_paragraphs": len(texts),
            f"{split}_bytes": path.stat().st_size,
        }
    return summary
