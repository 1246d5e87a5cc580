# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What `lion embed` costs beside `SentenceTransformer.encode`: CPU time, in one process, in turns.

    pip install ".[distill,embed]"                        # with the encoder to compare with, all-MiniLM-L6-v2
    python benchmarks/bench_embed.py                      # two minutes of a CPU core

The encoder is lion-minilm-l6-passages, an adapter, which `lion embed` takes by default and merges. Beside it are
`encode` with the same encoder, and with all-MiniLM-L6-v2, in the same dtype, batches of 32. Texts are random words:
short ones, of 3 to 60 words, and passages of 35 to 260 words, 200 to 1,500 characters. Rows go to embed.csv. The times
of `lion embed` include reading JSONL, counting passages and writing Parquet, and no loading.
"""

import json
import random
import tempfile
from functools import partial
from pathlib import Path
from statistics import median

import add_examples  # noqa: F401 (examples/ can be imported from here on)
import torch
from measure import append_rows, interleaved, is_measured, make_parser
from report import write_pages
from retrieval_lion.embed.job import Job, Settings, Worker, begin_job, make_shards
from retrieval_lion.encoders import load_encoder
from sentence_transformers import SentenceTransformer
from training_lion.distillation import find_teacher


ADAPTER = Path(__file__).parents[1] / "checkpoints" / "lion-minilm-l6-passages"
WORDS = ("lion", "sleeps", "in", "the", "shade", "and", "roars", "at", "night", "hunts", "before", "dawn", "river")
KINDS = {"short texts": (1800, 3, 60), "passages": (200, 35, 260)}  # how many, and the range of their words
EMBED, ENCODE, TEACHER = "lion embed", "encode", "encode, all-MiniLM-L6-v2"


def texts_of(count: int, low: int, high: int) -> list[str]:
    """Texts whose lengths are spread on a logarithmic scale, as those of people are."""
    generator = random.Random(0)
    lengths = [round(low * (high / low) ** generator.random()) for _ in range(count)]
    return [" ".join(generator.choices(WORDS, k=length)) for length in lengths]


def embed(worker: Worker, job: Job) -> None:
    for number, _ in enumerate(make_shards(job.files, job.settings)):
        for _ in worker.make(number):
            pass
        job.part(number).unlink()


def main(args: list[str] | None = None) -> None:
    parser = make_parser(__doc__, "twenty texts, one repeat")
    parser.add_argument("--model", type=Path, default=ADAPTER, help="folder of the encoder")
    parser.add_argument(
        "--teacher", help="folder of the encoder to compare with; not given: all-MiniLM-L6-v2 from PyPI"
    )
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args(args)
    torch.set_num_threads(args.threads)
    path, encoder = args.output_dir / "embed.csv", load_encoder(args.model)
    options = {"model_kwargs": {"dtype": encoder.dtype}, "device": "cpu"}
    teacher = SentenceTransformer(find_teacher(args.teacher), **options).eval()
    for kind, (count, *words) in KINDS.items():
        texts = texts_of(20 if args.quick else count, *words)
        cases = [{"texts": kind, "way": way, "model": args.model.name} for way in (EMBED, ENCODE, TEACHER)]
        if is_measured(path, cases) and not args.again:
            continue
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "texts.jsonl")
            file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
            job = begin_job([file], Path(folder, "vectors"), str(args.model), Settings())
            encode = {"normalize_embeddings": True, "show_progress_bar": False}
            calls = {
                EMBED: partial(embed, Worker(job), job),
                ENCODE: partial(encoder.encode, texts, **encode),
                TEACHER: partial(teacher.encode, texts, **encode),
            }
            seconds = interleaved(calls, 1 if args.quick else args.repeats)
        for case in cases:
            mine = seconds[case["way"]]
            row = case | {
                "count": len(texts),
                "dtype": str(encoder.dtype).removeprefix("torch."),
                "seconds": median(mine),
            }
            for name, other in (("of_encode", ENCODE), ("of_teacher", TEACHER)):
                row[name] = median(a / b for a, b in zip(mine, seconds[other], strict=True))
            append_rows(path, [row])
            print(row, flush=True)
    write_pages(args.output_dir)


if __name__ == "__main__":
    main()
