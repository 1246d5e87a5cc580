# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Generate the tasks of the Long Range Arena, in its sizes, as data sets for `datasets.load_from_disk`.

    python benchmarks/make_lra.py --output_dir outputs/lra
    python benchmarks/make_lra.py --output_dir outputs/lra --tasks listops pathfinder --train_size 1000 --num_proc 4
"""

import argparse
from pathlib import Path

from tasks.lra import LRA_TASKS, load_task


def main(args: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--tasks", nargs="+", choices=LRA_TASKS, default=list(LRA_TASKS))
    parser.add_argument("--train_size", type=int, default=96_000, help="examples for training")
    parser.add_argument("--eval_size", type=int, default=2_000, help="examples for validation, and for the test")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--num_proc", type=int, help="processes that generate examples")
    parser.add_argument("--cache_dir", help="folder in which generated examples are cached")
    arguments = parser.parse_args(args)
    sizes = {"train": arguments.train_size, "validation": arguments.eval_size, "test": arguments.eval_size}
    for name in arguments.tasks:
        task = LRA_TASKS[name]()
        datasets = load_task(task, sizes, arguments.cache_dir, arguments.seed, arguments.num_proc)
        datasets.save_to_disk(arguments.output_dir / name)
        lengths = [len(ids) for ids in datasets["test"]["input_ids"]]
        print(
            f"{name:12} {', '.join(f'{len(part)} {split}' for split, part in datasets.items())}; "
            f"{min(lengths)} to {max(lengths)} tokens, classes {', '.join(task.labels)}"
        )


if __name__ == "__main__":
    main()
