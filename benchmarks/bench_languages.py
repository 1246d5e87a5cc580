# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Search in other languages: for how many questions of the Debian FAQ an encoder finds the right section first.

    apt-get download debian-faq debian-faq-de debian-faq-fr debian-faq-ja debian-faq-ru
    for package in debian-faq*.deb; do dpkg-deb -x $package outputs/faq; done
    python benchmarks/bench_languages.py outputs/faq --models checkpoints/lion-minilm-l6-passages multilingual

A query is the heading of a section, and the passages are the first 1,500 characters of all sections, without headings.
Both are read as `lion search` does. Questions in another language are the headings of sections with the same numbers.
Each encoder takes a minute or two of one CPU core.
"""

import argparse
import re
from itertools import product
from pathlib import Path

import torch
from retrieval_lion.documents import Document
from retrieval_lion.encoders import SentenceEncoder, load_encoder
from retrieval_lion.formats.html import read
from retrieval_lion.formats.section import HEADINGS, LONGEST


NUMBER = re.compile(r"(\d+(?:\.\d+)+)\.?\s+(.+)")  # and the question behind it
ENGLISH = "en"


def main(*arguments: str) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the packages were unpacked")
    parser.add_argument("--models", nargs="+", required=True, help="folders of sentence encoders")
    args = parser.parse_args(arguments or None)
    (root,) = args.folder.rglob("FAQ")
    languages = [ENGLISH, *sorted(path.name for path in root.iterdir() if path.is_dir() and path.name != "images")]
    faq = {language: sections(root, language) for language in languages}
    common = sorted(set.intersection(*(set(found) for found in faq.values())))
    print(f"{len(common)} questions. For how many the right section is first, by languages of questions and sections:")
    for model in args.models:
        first = first_hits(SentenceEncoder(load_encoder(model), in_pieces=True), faq, common)
        print(f"\n{model}\n\n| questions | {' | '.join(languages)} |\n|---|{'---|' * len(languages)}")
        for asked in languages:
            print(f"| {asked} | {' | '.join(str(first[asked, language]) for language in languages)} |")


def sections(root: Path, language: str) -> dict[str, tuple[str, str]]:
    """Return the question and the text of each section, by its number."""
    found = {}
    for path in sorted(root.glob("*.en.html") if language == ENGLISH else (root / language).glob("*.html")):
        for text, place, _ in read(path.read_bytes(), path.name):
            if heading := NUMBER.fullmatch(str(place).split(HEADINGS)[-1]):
                found[heading[1]] = heading[2], text[:LONGEST]
    return found


def first_hits(
    encoder: SentenceEncoder, faq: dict[str, dict[str, tuple[str, str]]], numbers: list[str]
) -> dict[tuple[str, str], int]:
    """Count the questions whose section is nearest, by the languages of questions and sections."""
    queries = {name: encoder.encode_queries([found[n][0] for n in numbers]) for name, found in faq.items()}
    texts = {}
    for name, found in faq.items():
        documents = [Document(None, found[n][1], ((0, len(found[n][1])),)) for n in numbers]
        texts[name] = torch.cat(encoder.encode_documents(documents))
    right = torch.arange(len(numbers))
    return {(a, b): int(((queries[a] @ texts[b].T).argmax(1) == right).sum()) for a, b in product(faq, faq)}


if __name__ == "__main__":
    main()
