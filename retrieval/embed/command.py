# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The command `lion embed`: encode a corpus (Parquet, JSONL or text files), and write vectors as Parquet."""

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

from ..memory import keep_freed_memory
from ..sources import check_source, default_model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", help="Parquet, JSONL or text files, or folders of them")
    parser.add_argument("--out", type=Path, required=True, help="folder for Parquet files")
    parser.add_argument("--model", help="encoder, as in `lion search --model` (same default)")
    parser.add_argument("--text_column", default="text", help="column or field with texts (default: %(default)s)")
    parser.add_argument("--id_column", default="id", help="column of ids (default: %(default)s, else file and place)")
    parser.add_argument(
        "--name_column",
        default="name",
        help="column or field with names to put in front of passages (default: %(default)s, or none)",
    )
    parser.add_argument("--one_pass", action="store_true", help="encode each text in one pass, if trained for it")
    parser.add_argument("--whole_texts", action="store_true", help="write one vector per text, not per passage")
    parser.add_argument("--with_text", action="store_true", help="also write the text of each passage")
    parser.add_argument(
        "--shard_passages",
        type=int,
        default=1000,
        help="passages per file; a killed worker loses at most one file (default: %(default)s)",
    )
    parser.add_argument("--ray", action="store_true", help="run on a Ray cluster instead of in this process")


def run(args: argparse.Namespace) -> None:
    packages = {"pyarrow": "embed"} | ({"ray": "ray"} if args.ray else {})
    for package, extra in packages.items():
        if find_spec(package) is None:
            raise ImportError(f'{package} is not installed: in a clone of the repository, pip install ".[{extra}]".')
    model = args.model or default_model()
    check_source(model)
    model = str(Path(model).resolve()) if Path(model).is_dir() else model

    print(f"Encoder: {model}", file=sys.stderr, flush=True)
    keep_freed_memory()
    from tqdm import tqdm

    from .corpus import Columns
    from .job import CUT, Settings, begin_job, finish, work, work_on_cluster

    columns = Columns(args.text_column, args.id_column, args.name_column)
    names = ("one_pass", "whole_texts", "with_text", "shard_passages")
    settings = Settings(columns, **{name: getattr(args, name) for name in names})
    options = {"unit": " passages", "mininterval": 0.5 if sys.stderr.isatty() else 10}
    with tqdm(desc="Counting", **options) as progress:
        job = begin_job(args.files, args.out.resolve(), model, settings, progress.update)
    if job.left_out:
        print(job.left_out, file=sys.stderr, flush=True)
    missing = job.missing()
    total, left = (sum(job.shards[n].passages for n in numbers) for numbers in (range(len(job.shards)), missing))
    with tqdm(desc="Embedding", total=total, initial=total - left, **options) as progress:
        for count in work_on_cluster(job) if args.ray else work(job):
            progress.update(count)
    files, passages, cut = finish(job)
    print(f"Wrote {passages:,} vectors to {args.out} ({files:,} Parquet files).")
    if lost := cut.sentence("passage"):
        print(f"{lost} The column `{CUT}` has the number for each passage.", file=sys.stderr)
