# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Passages that only the text around them explains: pieces, or one pass over the document?

    pip install ".[distill]"                          # the source, all-MiniLM-L6-v2
    python benchmarks/bench_context.py                # sections of guides: half an hour of a CPU core
    python benchmarks/bench_context.py --show 20      # print queries and their passages
    python benchmarks/bench_context.py --data FOLDER  # sets of ConTEB, each a folder in FOLDER (tasks/conteb.py)
    python benchmarks/bench_context.py --training_file sections.jsonl    # of other packages, for train_passages.py

Without --data, documents are guides of packages on PyPI (`bench_retrieval.GUIDES`), on which no encoder here was
trained, without their headings; tasks/sections.py describes the queries. Ways to read (`READINGS`):

- "pieces": each passage by itself; "with names": the name of the document in front; "with headings": the name and all
  headings above; "with the passage before": that in front, of which the vector has nothing;
- "512 tokens at a time": rows of passages, each the mean of its tokens, as encoders with 512 positions can;
- "one pass": the whole document in one row; "with names": the name in front of each passage.

Rows go to context.csv, those of ConTEB to conteb.csv: of all queries, and of those whose subject is named at some
distance (`DISTANCES`, characters between). `ranks_with_names` and `ranks_without_names` are those of the queries'
passages, 11 for all beyond 10, and `owners` the queries' documents: from them, differences of two rows have an error,
too. Standard errors are clustered by document. `time_of_named_pieces` is CPU time ÷ that of all-MiniLM-L6-v2 for
pieces with names, in turns; without names, for pieces. "by softmax" is LION's checkpoint with its own softmax
attention at every length. --adapter FOLDER measures one more encoder, in pieces and in one pass, with names.
--training_file writes guides of other packages with such queries, whose words other sections may have, too, and those
that have none.
"""

import json
import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

import add_examples  # noqa: F401 (examples/ can be imported from here on)
import documents as sources
import torch
from bench_passages import DATA_DIR, folder_of, load
from bench_retrieval import GUIDES, weights_hash
from measure import append_rows, interleaved, is_measured, make_parser
from report import write_pages
from retrieval_lion.documents import TEXT_FILES, read_text
from retrieval_lion.folders import files_of_folder
from retrieval_lion.passages import token_rows
from tasks.conteb import read_set
from tasks.sections import SectionedDocument, cut_at_headings, take_section_queries
from torch import Tensor, nn
from training_lion.distillation import find_teacher
from training_lion.scripts import passages
from training_lion.scripts.passages import LONGEST_DOCUMENT, LONGEST_PIECE, Query, Row, SplitDocument
from training_lion.scripts.ranking import mean_and_error, ndcg_of_ranks, ranks_of
from transformers import PreTrainedTokenizerBase

from modeling_lion.attention.numerics import has_fast_bfloat16


SECTIONS = "sections"
CHARACTERS = 3_000, 60_000  # of a guide
MOST_DOCUMENTS, MOST_QUERIES = 60, 8  # guides, and queries of each
# To train on.
TRAINING_GUIDES = (
    *("aiohttp", "anyio", "attrs", "babel", "cattrs", "click", "falcon", "jinja2", "marshmallow", "passlib", "pytest"),
    *("rq", "sqlalchemy", "structlog", "tornado", "trio", "werkzeug"),
)
MOST_TRAINING_QUERIES = 16  # of a guide
DISTANCES = 0, 1, 1_000, CHARACTERS[1]  # characters between the subject's passage and that of the query
EVERYWHERE = DISTANCES[0], DISTANCES[-1]
TEACHER, SOFTMAX, LION, ADAPTER = (
    "all-MiniLM-L6-v2",
    "lion-minilm-l6 by softmax",
    "lion-minilm-l6",
    "lion-minilm-l6-passages",
)
NAMED_PIECES, BEFORE = "pieces with names", "pieces with the passage before"
BY_ROWS = "512 tokens at a time"
TIMED_DOCUMENTS, TIMED_REPEATS = 6, 3
# What `retrieval_lion.load_encoder` takes, too: the nearest neighbours are the same, and CPUs with AMX are faster.
DTYPE = torch.bfloat16 if has_fast_bfloat16() else torch.float32


class Texts(NamedTuple):
    """
    Attributes:
        name: of the set.
        documents: all passages of which are candidates.
        headings: of all passages; `None` if the documents have neither headings nor names.
        queries: with the index of their passage.
        distances: of each query, in characters.
    """

    name: str
    documents: list[SplitDocument]
    headings: list[str] | None
    queries: list[Query]
    distances: Tensor


def read_with_headings(tokenizer: PreTrainedTokenizerBase, texts: Texts) -> list[Row]:
    """Rows of passages with the document's name and their headings in front."""
    bodies = [passage for x in texts.documents for passage in x.passages]
    names = [x.name for x in texts.documents for _ in x.passages]
    above = [f"{name} > {path}: {x}" for name, path, x in zip(names, texts.headings or [], bodies, strict=True)]
    return passages.text_rows(tokenizer, above, LONGEST_PIECE)


def read_with_passage_before(tokenizer: PreTrainedTokenizerBase, texts: Texts) -> list[Row]:
    """Rows of two passages each, with the name of the document in front. The vector is the second one's mean."""
    rows: list[Row] = []
    for document in texts.documents:
        for before, passage in zip(["", *document.passages], document.passages, strict=False):
            front = f"{document.name}: {before} "
            span = (len(front), len(front) + len(passage))
            (row,) = token_rows(tokenizer, 0, front + passage, [span], None, LONGEST_DOCUMENT)
            first, end = row.spans[0].tolist()
            over = min(max(0, len(row.input_ids) - LONGEST_PIECE), first - 1)  # of the text in front, behind [CLS]
            ids = [row.input_ids[0], *row.input_ids[1 + over :]][:LONGEST_PIECE]
            rows.append(Row(ids, [(first - over, min(end - over, LONGEST_PIECE), len(rows))]))
    return rows


def read_as(reading: str, longest: int, tokenizer: PreTrainedTokenizerBase, texts: Texts) -> list[Row]:
    """Rows by a way of `passages.READINGS`, of at most so many tokens."""
    return passages.make_rows(tokenizer, texts.documents, reading, longest)


READINGS: dict[str, Callable[[PreTrainedTokenizerBase, Texts], list[Row]]] = {
    **{x: partial(read_as, x, LONGEST_DOCUMENT) for x in passages.READINGS},
    BY_ROWS: partial(read_as, "one pass", LONGEST_PIECE),
    f"{BY_ROWS} with names": partial(read_as, "one pass with names", LONGEST_PIECE),
    "pieces with headings": read_with_headings,
    BEFORE: read_with_passage_before,
}
ONE_PASS, ONE_PASS_NAMED = "one pass", "one pass with names"
ENCODERS = {
    TEACHER: ["pieces", NAMED_PIECES, "pieces with headings", BEFORE, f"{BY_ROWS} with names"],
    SOFTMAX: [ONE_PASS_NAMED],
    LION: [ONE_PASS, ONE_PASS_NAMED],
    ADAPTER: [NAMED_PIECES, "pieces with headings", f"{BY_ROWS} with names", ONE_PASS_NAMED],
}
# Of documents without names.
PLAIN = {TEACHER: ["pieces", BY_ROWS], SOFTMAX: [ONE_PASS], LION: [ONE_PASS], ADAPTER: ["pieces", ONE_PASS]}


def guides(folder: Path, packages: tuple[str, ...]) -> Iterator[SectionedDocument]:
    """The guides of packages, of which pip downloads those that are not in the folder."""
    for package in packages:
        next(sources.documents_of_source(package, folder))  # which are there from here on
        for path in map(Path, files_of_folder(folder / package).files):
            if path.suffix in TEXT_FILES and not sources.NO_GUIDES.search(path.name):
                text = read_text(path)
                if CHARACTERS[0] <= len(text) < CHARACTERS[1]:
                    yield cut_at_headings(package, text, is_rst=path.suffix != ".md")


def sections_of_guides(folder: Path, packages: tuple[str, ...], most: int) -> Texts:
    documents, found = take_section_queries(guides(folder, packages), most, MOST_QUERIES)
    headings = [path for x in documents for path in x.headings]
    distances = torch.tensor([x.distance for x in found])
    return Texts(SECTIONS, [x.split for x in documents], headings, [x.query for x in found], distances)


def write_training_file(path: Path, folder: Path, packages: tuple[str, ...]) -> None:
    """Write the guides of packages as `read_documents` reads them, those with queries and those without."""
    everything = list(guides(folder, packages))
    found, queries = take_section_queries(everything, len(everything), MOST_TRAINING_QUERIES, is_strict=False)
    first, lines = 0, []
    for document in [*found, *(x for x in everything if x not in found)]:
        name, texts = document.split.name, document.split.passages
        own = [x.query for x in queries if first <= x.query.passage < first + len(texts)]
        lines.append({"name": name, "passages": texts})
        lines[-1] |= {"queries": [{"passage": x.passage - first, "text": x.text} for x in own]} if own else {}
        first += len(texts)
    path.write_text(
        "".join(json.dumps(x, ensure_ascii=False) + "\n" for x in lines if x["passages"]), encoding="utf-8"
    )
    print(f"{path}: {len(lines)} documents, {len(found)} of them with {len(queries)} queries", flush=True)


def conteb(folder: Path) -> Iterator[Texts]:
    """The sets in a folder."""
    sets = (
        [x for x in sorted(folder.iterdir()) if x.is_dir() and not x.name.startswith(".")] if folder.is_dir() else []
    )
    if not sets:
        raise FileNotFoundError(f"--data {folder} has no folders: give one with a folder for each set of ConTEB.")
    for path in sets:
        documents, queries = read_set(path)
        yield Texts(path.name, documents, None, queries, torch.zeros(len(queries), dtype=torch.long))


def show(texts: Texts, count: int) -> None:
    """Print some queries and their passages."""
    of_passage = [x.name for x in texts.documents for _ in x.passages]
    all_passages = [passage for x in texts.documents for passage in x.passages]
    for query in random.Random(0).sample(texts.queries, min(count, len(texts.queries))):
        above = texts.headings[query.passage] if texts.headings else ""
        print(f"{query.text}\n    {of_passage[query.passage]} > {above}\n    {all_passages[query.passage][:400]}\n")


def open_encoder(name: str, folder: str) -> tuple[nn.Module, PreTrainedTokenizerBase]:
    model, tokenizer = load(folder, DTYPE)
    if name == SOFTMAX:
        model.set_attn_implementation("sdpa")
    return model, tokenizer


def time_readings(
    encoder: tuple[nn.Module, PreTrainedTokenizerBase], teacher: str, texts: Texts, readings: list[str]
) -> dict[str, float]:
    """The time of each way to read some documents ÷ that of the source for pieces, with names if there are any."""
    documents = random.Random(0).sample(texts.documents, min(TIMED_DOCUMENTS, len(texts.documents)))
    kept = [x in documents for x in texts.documents for _ in x.passages]
    headings = [x for x, is_kept in zip(texts.headings, kept, strict=True) if is_kept] if texts.headings else None
    some = texts._replace(documents=[x for x in texts.documents if x in documents], headings=headings)
    reference = NAMED_PIECES if texts.headings else "pieces"
    calls = {}
    for key, (model, tokenizer), reading in [
        ("", load(teacher, DTYPE), reference),
        *((x, encoder, x) for x in readings),
    ]:
        calls[key] = partial(passages.encode_rows, model, READINGS[reading](tokenizer, some), tokenizer.pad_token_id)
    seconds = {x: median(times) for x, times in interleaved(calls, TIMED_REPEATS).items()}
    return {x: seconds[x] / seconds[""] for x in readings}


def ranks(encoder: tuple[nn.Module, PreTrainedTokenizerBase], texts: Texts, reading: str) -> dict[str, Tensor]:
    """The ranks of the queries' passages, with and without the name of the document in front, if it has one."""
    model, tokenizer = encoder
    vectors = passages.encode_rows(model, READINGS[reading](tokenizer, texts), tokenizer.pad_token_id)
    vectors = vectors[: sum(len(x.passages) for x in texts.documents)]  # without those of documents
    answers = torch.tensor([query.passage for query in texts.queries])
    found = {}
    for what, is_named in (("with_names", True), ("without_names", False)):
        if texts.headings is not None or not is_named:
            words = passages.text_rows(tokenizer, [x.words(is_named) for x in texts.queries], LONGEST_PIECE)
            of_queries = passages.encode_rows(model, words, tokenizer.pad_token_id)
            found[what] = ranks_of(of_queries @ vectors.T, answers)
    return found


def by_distance(texts: Texts) -> Iterator[tuple[int, int, Tensor]]:
    """For all distances, and for each range of `DISTANCES` if there are any, the indices of the queries."""
    for low, high in (EVERYWHERE, *(pairwise(DISTANCES) if texts.distances.any() else ())):
        (chosen,) = ((texts.distances >= low) & (texts.distances < high)).nonzero(as_tuple=True)
        if len(chosen):
            yield low, high, chosen


def in_words(numbers: Tensor) -> str:
    return " ".join(map(str, numbers.tolist()))


def measure(args, texts: Texts, name: str, folder: str, readings: list[str], teacher: str) -> None:
    """Add the rows of an encoder to the table, if they are not there."""
    table = "context" if texts.name == SECTIONS else "conteb"
    path, encoder, times = args.output_dir / f"{table}.csv", None, {}
    owners = passages.owners_of(texts.documents)[[query.passage for query in texts.queries]]
    count = {"documents": len(texts.documents), "candidates": sum(len(x.passages) for x in texts.documents)}
    for reading in readings:
        about = {"set": texts.name, "encoder": name, "reading": reading, "weights": weights_hash(folder)} | count
        about["dtype"] = str(DTYPE).removeprefix("torch.")
        everywhere = dict(zip(("min_distance", "max_distance"), EVERYWHERE, strict=True))
        if is_measured(path, [about | everywhere]) and not args.again:
            continue
        if encoder is None:
            encoder = open_encoder(name, folder)
            times = time_readings(encoder, teacher, texts, readings)
        found = ranks(encoder, texts, reading)
        rows = []
        for low, high, chosen in by_distance(texts):
            row = about | {"min_distance": low, "max_distance": high, "queries": len(chosen)}
            row |= {"time_of_named_pieces": times[reading], "owners": in_words(owners[chosen])}
            for what in ("with_names", "without_names"):
                row |= dict.fromkeys((what, f"{what}_error", f"ranks_{what}"))
                if what in found:
                    gains = ndcg_of_ranks(found[what][chosen])
                    row[what], row[f"{what}_error"] = mean_and_error(gains, owners[chosen])
                    row[f"ranks_{what}"] = in_words(found[what][chosen].clamp(max=11))
            rows.append(row)
        append_rows(path, rows)
        means = ", ".join(f"{what.replace('_', ' ')} {rows[0][what]:.3f}" for what in found)
        print(f"{texts.name}, {name}, {reading}: {means}; time {times[reading]:.2f}", flush=True)


def main(args: list[str] | None = None) -> None:
    parser = make_parser(__doc__, "three guides of one package")
    parser.add_argument("--encoders", nargs="*", choices=list(ENCODERS), default=list(ENCODERS))
    parser.add_argument("--adapter", type=Path, nargs="*", default=[], help="folders of further encoders")
    parser.add_argument("--teacher", help="folder of the softmax encoder; not given: all-MiniLM-L6-v2 from PyPI")
    parser.add_argument("--data", type=Path, help="folder of sets of ConTEB, instead of sections of guides")
    parser.add_argument("--sources_dir", type=Path, default=DATA_DIR / "sources", help="of guides")
    parser.add_argument("--show", type=int, help="only print so many queries")
    parser.add_argument("--training_file", type=Path, help="only write this, JSONL")
    args = parser.parse_args(args)
    if args.training_file:
        write_training_file(args.training_file, args.sources_dir, ("flask",) if args.quick else TRAINING_GUIDES)
        return
    torch.set_num_threads(args.threads)
    teacher = find_teacher(args.teacher)
    chosen = (("flask",), 3) if args.quick else (GUIDES, MOST_DOCUMENTS)
    for texts in [sections_of_guides(args.sources_dir, *chosen)] if args.data is None else conteb(args.data):
        print(f"{texts.name}: {len(texts.documents)} documents, {len(texts.queries)} queries", flush=True)
        if args.show:
            show(texts, args.show)
            continue
        for name in args.encoders:
            folder = folder_of(LION if name == SOFTMAX else name, teacher)
            readings = PLAIN if texts.headings is None else ENCODERS
            measure(args, texts, name, folder, readings[name], teacher)
        for folder in args.adapter:
            readings = ("pieces", ONE_PASS) if texts.headings is None else (NAMED_PIECES, ONE_PASS_NAMED)
            measure(args, texts, folder.name, str(folder), readings, teacher)
    if not args.show:
        write_pages(args.output_dir)


if __name__ == "__main__":
    main()
