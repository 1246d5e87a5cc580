# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Jobs that encode a corpus. Each shard becomes one Parquet file, which appears only when it is complete. If a worker
dies, the shards without a file are encoded again, and no others.
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


CUT = "cut_tokens"  # column: how many tokens of a passage the encoder did not read


@dataclass(frozen=True)
class Job:
    """
    The settings of a job, which each worker gets.

    Attributes:
        shards: the parts of the corpus.
        folder: where files are written; all workers must see it.
        model: the encoder, as `load_encoder` takes it.
        columns: names of the columns of the corpus.
        one_pass: encode each text in one pass, instead of passage by passage.
        whole_texts: encode each text as one passage.
        with_text: write passages beside their vectors.
    """

    shards: Sequence[Shard]
    folder: Path
    model: str
    columns: Columns
    one_pass: bool
    whole_texts: bool
    with_text: bool

    def part(self, number: int) -> Path:
        """Return the path of the file of a shard."""
        return self.folder / f"part-{number:06}.parquet"

    def missing(self) -> list[int]:
        """Return the numbers of the shards that have no file."""
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
    Start a job, or resume one that was stopped. Arguments are as in `Job`.

    Args:
        sources: files and folders of the corpus.
        shard_bytes: about how many bytes of text a shard has.

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
    if any(folder.glob("part-*.parquet")):  # without vectors there is nothing to resume
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
    """Loads the encoder, and writes the files of shards."""

    def __init__(self, job: Job):
        self.job, self.encoder = job, SentenceEncoder(load_encoder(job.model), in_pieces=not job.one_pass)
        self.size = self.encoder.encode_texts(["size"]).shape[1]

    def make(self, number: int) -> int:
        """Write the file of a shard, unless it exists. Returns the number of its passages."""
        path = self.job.part(number)
        if not path.is_file():
            table = self.table(read_shard(self.job.shards[number], self.job.columns))
            with replaced(path) as unfinished:
                pq.write_table(table, unfinished)
        return pq.read_metadata(path).num_rows

    def table(self, texts: Iterable[Text]) -> pa.Table:
        """Encode texts. Returns a table with a row for each passage: id, passage, first, end, cut_tokens, vector."""
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
    """Encode the missing shards in this process. Yields the number of passages of each file."""
    missing = job.missing()
    worker = Worker(job) if missing else None
    for number in missing:
        yield worker.make(number)


def work_on_cluster(job: Job) -> Iterator[int]:
    """
    Do `work` on a Ray cluster, with a worker for each CPU: on the cluster of `RAY_ADDRESS` or of this machine, else on
    a new one on this machine. Ray restarts workers that die, and gives their shards to others.
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
    """Delete what killed processes left. Returns the number of files and of passages, and what was not read."""
    for path in job.folder.glob("_part-*"):
        path.unlink(missing_ok=True)
    passages, cut = 0, Cut()
    for number in range(len(job.shards)):
        tokens = pq.read_table(job.part(number), columns=[CUT])[CUT].to_numpy()
        passages += len(tokens)
        cut.add(tokens)
    return len(job.shards), passages, cut
