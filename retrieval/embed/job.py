# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Work that is done once: each shard of a corpus becomes one Parquet file, which is there as a whole or not at all.
Whoever dies, what is missing is made again, and nothing twice.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from modeling_lion import split_passages

from ..documents import Document, batches
from ..encoders import READING, Cut, SentenceEncoder, load_encoder
from ..files import hash_of, replaced
from ..sources import hash_of_model
from .corpus import MANIFEST, Columns, Shard, Text, find_files, make_shards, read_shard


CUT = "cut_tokens"  # the column with the number of tokens of a passage that the encoder did not read


@dataclass(frozen=True)
class Job:
    """
    What workers need to know.

    Attributes:
        shards: of the corpus.
        folder: for the files, which all workers see.
        model: as `load_encoder` takes it.
        columns: of the corpus.
        one_pass: whether a text is read in one pass, and not passage by passage.
        whole_texts: whether each text is one passage.
        with_text: whether passages are written beside their vectors.
    """

    shards: Sequence[Shard]
    folder: Path
    model: str
    columns: Columns
    one_pass: bool
    whole_texts: bool
    with_text: bool

    def part(self, number: int) -> Path:
        """The file of a shard."""
        return self.folder / f"part-{number:06}.parquet"

    def missing(self) -> list[int]:
        """Numbers of the shards that have no file."""
        return [number for number in range(len(self.shards)) if not self.part(number).is_file()]


def begin_job(
    sources: Sequence[str | Path],
    folder: Path,
    model: str,
    columns: Columns,
    *,
    one_pass: bool = False,
    whole_texts: bool = False,
    with_text: bool = False,
    shard_bytes: int = 1_000_000,
) -> Job:
    """
    A new job, or the rest of one that was stopped.

    Raises:
        FileNotFoundError, ValueError: if there is nothing to read, or the folder has vectors of other files, of
            another encoder or with other settings.
    """
    if shard_bytes < 1:
        raise ValueError(f"shards of {shard_bytes} bytes have no text: give at least 1.")
    manifest = folder / MANIFEST
    is_new = not manifest.is_file()
    is_folder = not folder.exists() or folder.is_dir()
    others = [x for x in folder.iterdir() if not x.name.startswith(f"_{MANIFEST}")] if folder.is_dir() else []
    if is_new and (not is_folder or others):
        raise ValueError(f"{folder} exists, and was not written by `lion embed`: give another --out.")
    files = find_files(sources, folder)
    settings = {
        "files": [[*file, hash_of(file.path)] for file in files],
        "model": hash_of_model(model),
        "reading": READING,
        "columns": list(columns),
        "one_pass": one_pass,
        "whole_texts": whole_texts,
        "with_text": with_text,
        "shard_bytes": shard_bytes,
    }
    if any(folder.glob("part-*.parquet")):  # else a call failed before the first vector, and nothing is kept of it
        before = json.loads(manifest.read_text(encoding="utf-8"))
        if other := [name for name, value in settings.items() if before.get(name) != value]:
            raise ValueError(
                f"{folder} has vectors with other settings ({', '.join(other)}): give the same to go on, or another "
                "--out."
            )
    shards = make_shards(files, columns, shard_bytes)
    with replaced(manifest) as unfinished:
        unfinished.write_text(json.dumps(settings), encoding="utf-8")
    return Job(shards, folder, model, columns, one_pass, whole_texts, with_text)


class Worker:
    """Makes the files of shards. Loads the encoder."""

    def __init__(self, job: Job):
        self.job, self.encoder = job, SentenceEncoder(load_encoder(job.model), in_pieces=not job.one_pass)
        self.size = self.encoder.encode_texts(["size"]).shape[1]

    def make(self, number: int) -> int:
        """Write the file of a shard, unless it is there; returns the number of its passages."""
        path = self.job.part(number)
        if not path.is_file():
            table = self.table(read_shard(self.job.shards[number], self.job.columns))
            with replaced(path) as unfinished:
                pq.write_table(table, unfinished)
        return pq.read_metadata(path).num_rows

    def table(self, texts: Iterable[Text]) -> pa.Table:
        """The ids, passages and vectors of texts."""
        find = (lambda text: [(0, len(text))]) if self.job.whole_texts else split_passages
        ids, documents = [], []
        for own, name, text in texts:
            ids.append(own)
            documents.append(Document(name, text, tuple(find(text)), ()))
        vectors, cut = [], []
        for batch in batches(documents):
            of_batch, cut_of_batch = self.encoder.encode_and_count(batch)
            vectors += of_batch
            cut += cut_of_batch
        rows = [(own, n, *span) for own, x in zip(ids, documents, strict=True) for n, span in enumerate(x.spans)]
        own, number, first, end = zip(*rows, strict=True) if rows else ([],) * 4
        flat = pa.array(torch.cat(vectors).flatten().numpy() if vectors else [], pa.float32())
        columns = {
            "id": pa.array(own, pa.string()),
            "passage": pa.array(number, pa.int32()),
            "first": pa.array(first, pa.int64()),
            "end": pa.array(end, pa.int64()),
            CUT: pa.array(np.concatenate([*cut, np.zeros(0, int)]), pa.int32()),
        }
        if self.job.with_text:
            spans = [x.text[a:b] for x in documents for a, b in x.spans]
            columns["text"] = pa.array(spans, pa.string())
        return pa.table(columns | {"vector": pa.FixedSizeListArray.from_arrays(flat, self.size)})


def work(job: Job) -> Iterator[int]:
    """Make what is missing in this process; yields the number of passages of each file."""
    missing = job.missing()
    worker = Worker(job) if missing else None
    for number in missing:
        yield worker.make(number)


def work_on_cluster(job: Job) -> Iterator[int]:
    """
    `work`, by as many workers as a Ray cluster has CPUs: the one that `RAY_ADDRESS` or this machine has, else a new
    one on this machine. Ray starts a worker that died again, and gives its shard to another.
    """
    import ray

    missing = job.missing()
    if not missing:
        return
    if not ray.is_initialized():
        ray.init(log_to_driver=False, configure_logging=True, logging_level="warning")

    class RayWorker:
        def __init__(self):
            torch.set_num_threads(1)
            self.worker = Worker(job)

        def __call__(self, row: dict) -> dict:
            return {"passages": self.worker.make(row["item"])}

    cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
    shards = ray.data.from_items([{"item": n} for n in missing], override_num_blocks=min(len(missing), 10_000))
    pool = ray.data.ActorPoolStrategy(min_size=1, max_size=min(cpus, len(missing)))
    for row in shards.map(RayWorker, compute=pool, num_cpus=1).iter_rows():
        yield row["passages"]


def finish(job: Job) -> tuple[int, int, Cut]:
    """Delete what killed processes left; returns the numbers of files and passages of a job that is done, and what
    the encoder did not read."""
    for path in job.folder.glob("_part-*"):
        path.unlink(missing_ok=True)
    passages, cut = 0, Cut()
    for number in range(len(job.shards)):
        tokens = pq.read_table(job.part(number), columns=[CUT])[CUT].to_numpy()
        passages += len(tokens)
        cut.add(tokens)
    return len(job.shards), passages, cut
