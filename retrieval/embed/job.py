# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Jobs that encode a corpus. Each shard, some passages, becomes one Parquet file, which appears only when it is complete.
If a worker dies, the shards without a file are encoded again, and no others.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from modeling_lion import split_passages

from ..documents import Document
from ..encoders import READING, Cut, SentenceEncoder, load_encoder
from ..files import hash_of, replaced, state_of
from ..folders import skipped_in_words
from ..passages import LONGEST
from ..sources import hash_of_model
from .corpus import MANIFEST, Columns, File, Place, find_files, read_texts


CUT = "cut_tokens"  # column: how many tokens of a passage the encoder did not read
BATCH_CHARACTERS = 40_000  # encoded at once


class Shard(NamedTuple):
    """
    A part of a corpus: some passages that follow each other.

    Attributes:
        file, row: the `Place` of the text that has the first one.
        first: the number of the first passage in this text.
        passages: how many passages there are.
    """

    file: int
    row: int
    first: int
    passages: int


@dataclass(frozen=True)
class Settings:
    """
    The settings of a job.

    Attributes:
        columns: names of the columns of the corpus.
        one_pass: encode each text in one pass, instead of passage by passage.
        whole_texts: encode each text as one passage.
        with_text: write passages beside their vectors.
        shard_passages: how many passages a shard has. A longer text of `whole_texts` counts as several, and a text
            that is read in one pass is not divided.
    """

    columns: Columns = Columns()
    one_pass: bool = False
    whole_texts: bool = False
    with_text: bool = False
    shard_passages: int = 1000

    def find(self) -> Callable[[str], list[tuple[int, int]]]:
        """Return a function that splits a text into passages. It keeps the last result: a text may be long."""
        return lru_cache(1)(lambda text: [(0, len(text))] if self.whole_texts else split_passages(text))


@dataclass(frozen=True)
class Job:
    """
    What each worker gets.

    Attributes:
        settings: how texts are read.
        files: the corpus.
        states: size and time of modification of each file when it was divided.
        shards: its parts.
        folder: where files are written; all workers must see it.
        model: the encoder, as `load_encoder` takes it.
        left_out: what is in the folders of the corpus and is not read, in words.
    """

    settings: Settings
    files: Sequence[File]
    states: Sequence[tuple[int, int]]
    shards: Sequence[Shard]
    folder: Path
    model: str
    left_out: str = ""

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
    settings: Settings,
    say: Callable[[int], object] = lambda passages: None,
) -> Job:
    """
    Start a job, or resume one that was stopped. Arguments are as in `Job`.

    Args:
        sources: files and folders of the corpus.
        say: is called with the number of passages of each new shard, while the corpus is divided.

    Raises:
        FileNotFoundError, ValueError: if there is nothing to read, or the folder has vectors of other files, of
            another encoder or with other settings.
    """
    if settings.shard_passages < 1:
        raise ValueError(f"--shard_passages is {settings.shard_passages}: give at least 1.")
    manifest = folder / MANIFEST
    is_new = not manifest.is_file()
    is_folder = not folder.exists() or folder.is_dir()
    others = [x for x in folder.iterdir() if not x.name.startswith(f"_{MANIFEST}")] if folder.is_dir() else []
    if is_new and (not is_folder or others):
        raise ValueError(f"{folder} exists, and was not written by `lion embed`: give another --out.")
    files, skipped = find_files(sources, folder)
    states = [state_of(file.path)[:2] for file in files]
    about = asdict(settings) | {
        "columns": list(settings.columns),
        "files": [[*file, hash_of(file.path)] for file in files],
        "model": hash_of_model(model),
        "reading": READING,
    }
    before = {} if is_new else json.loads(manifest.read_text(encoding="utf-8"))
    other = [name for name, value in about.items() if before.get(name) != value]
    if other and any(folder.glob("part-*.parquet")):  # without vectors there is nothing to resume
        raise ValueError(
            f"{folder} has vectors with other settings ({', '.join(other)}): give the same to go on, or another --out."
        )
    shards = [] if other else [Shard(*shard) for shard in before["shards"]]
    blank = 0
    if other:

        def count_blank() -> None:
            nonlocal blank
            blank += 1

        for shard in make_shards(files, settings, count_blank):
            shards.append(shard)
            say(shard.passages)
        if not shards:
            raise ValueError(f"There is nothing to encode: no file has a text in {settings.columns.text!r}.")
        with replaced(manifest) as unfinished:
            unfinished.write_text(json.dumps(about | {"shards": shards}), encoding="utf-8")
    left_out = [skipped_in_words(skipped), f"Left out {blank:,} empty text{'s' * (blank > 1)}." if blank else ""]
    return Job(settings, files, states, shards, folder, model, " ".join(filter(None, left_out)))


def make_shards(
    files: Sequence[File], settings: Settings, say_blank: Callable[[], object] = lambda: None
) -> Iterator[Shard]:
    """
    Divide a corpus into shards. `say_blank` is as in `read_texts`. Raises what that raises, so that a bad file stops
    the job at its start and not after hours.
    """
    find, begin, passages, size = settings.find(), None, 0, 0
    for place, (*_, text) in read_texts(files, settings.columns, say_blank=say_blank):
        spans = find(text)
        for number, (first, end) in enumerate(spans):
            begin = begin or (*place, number)
            passages, size = passages + 1, size + max(1, (end - first) // LONGEST)
            may_end = number + 1 == len(spans) or not settings.one_pass
            if size >= settings.shard_passages and may_end:
                yield Shard(*begin, passages)
                begin, passages, size = None, 0, 0
    if begin:
        yield Shard(*begin, passages)


class Worker:
    """Loads the encoder, and writes the files of shards."""

    def __init__(self, job: Job):
        self.job, self.find = job, job.settings.find()
        self.encoder = SentenceEncoder(load_encoder(job.model), in_pieces=not job.settings.one_pass)
        if job.settings.one_pass and self.encoder.in_pieces:
            raise ValueError(
                f"{job.model} cannot encode a text in one pass, for which a LION or a linearized encoder with mean "
                "pooling is needed: leave --one_pass out."
            )
        self.size = self.encoder.encode_texts(["size"]).shape[1]

    def make(self, number: int) -> Iterator[int]:
        """Write the file of a shard, unless it exists. Yields how many passages have been read since the last time."""
        path, shard = self.job.part(number), self.job.shards[number]
        if path.is_file():  # a repeated call of Ray
            yield shard.passages
            return
        table = yield from self.table(shard)
        try:
            with replaced(path) as unfinished:
                pq.write_table(table, unfinished)
        except FileNotFoundError:
            if not path.is_file():  # else another process has ended the same job meanwhile
                raise

    def texts(self, shard: Shard) -> Iterator[tuple[str, int, Document]]:
        """
        Yield the texts of a shard with their passages in it: id of the text, number of the first, document.

        Raises:
            ValueError: if a file has changed since the corpus was divided.
        """
        left, first, last = shard.passages, shard.first, shard.file
        for place, (own, name, text) in read_texts(self.job.files, self.job.settings.columns, Place(*shard[:2])):
            if spans := tuple(self.find(text)[first : first + left]):
                yield own, first, Document(name, text, spans)
            left, first, last = left - len(spans), 0, place.file
            if not left:
                break
        for file, state in zip(self.job.files[shard.file : last + 1], self.job.states[shard.file :], strict=False):
            if state_of(file.path)[:2] != state:
                raise ValueError(f"{file.path} has changed since the job began: start again, with another --out.")

    def table(self, shard: Shard) -> Iterator[int]:
        """Encode a shard, as `make`. Returns a table with a row for each passage."""
        texts = list(self.texts(shard))
        rows = [(own, first + n, *span) for own, first, x in texts for n, span in enumerate(x.spans)]
        documents = [x for *_, x in texts]
        if self.encoder.in_pieces:
            documents = [Document(x.name, x.text[a:b], ((0, b - a),)) for x in documents for a, b in x.spans]
        order = sorted(range(len(documents)), key=lambda n: -len(documents[n].text))  # so that there is little padding
        found: list[tuple[torch.Tensor, np.ndarray]] = []
        for batch in batches(documents[n] for n in order):
            found += zip(*self.encoder.encode_and_count(batch), strict=True)
            yield sum(len(x.spans) for x in batch)
        vectors, cut = zip(*(found[n] for n in np.argsort(order)), strict=True)
        own, number, first, end = zip(*rows, strict=True)
        columns = {
            "id": pa.array(own, pa.string()),
            "passage": pa.array(number, pa.int32()),
            "first": pa.array(first, pa.int64()),
            "end": pa.array(end, pa.int64()),
            CUT: pa.array(np.concatenate(cut), pa.int32()),
        }
        if self.job.settings.with_text:
            columns["text"] = pa.array([x.text[a:b] for *_, x in texts for a, b in x.spans], pa.string())
        flat = pa.array(torch.cat(vectors).flatten().numpy(), pa.float32())
        return pa.table(columns | {"vector": pa.FixedSizeListArray.from_arrays(flat, self.size)})


def batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Group documents, in order, into lists of up to `BATCH_CHARACTERS` characters."""
    batch: list[Document] = []
    size = 0
    for document in documents:
        if batch and size + len(document.text) > BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
        batch.append(document)
        size += len(document.text)
    if batch:
        yield batch


def work(job: Job) -> Iterator[int]:
    """Encode the missing shards in this process. Yields how many passages have been read since the last time."""
    missing = job.missing()
    worker = Worker(job) if missing else None
    for number in missing:
        yield from worker.make(number)


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
            return {"passages": sum(self.worker.make(row["item"]))}

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
