# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What the three forms of the paper cost: time and memory of the parallel form, of the recurrent form, and of chunks of
several sizes between them.

    python benchmarks/bench_forms.py            # ten minutes of a CPU core
    python benchmarks/bench_forms.py --quick    # to 512 tokens

All are plain PyTorch (attention/plain.py), which computes each form as it is written: kernels for a CPU or a GPU
choose sizes of their own. One sequence, 12 heads of 64, LION-S in float32, forward. The peak memory is that of a
process for each case, less that of its inputs. Rows go to forms.csv; what this machine has there is measured again
only with --again.
"""

from collections.abc import Callable
from functools import partial

import torch
from measure import (
    append_rows,
    attention_inputs,
    in_new_process,
    interleaved,
    is_measured,
    make_parser,
    peak_memory,
    summary,
)
from report import write_pages

from modeling_lion.attention.decay_mask import LogDecay, finite_log_decay
from modeling_lion.attention.lion_attention import PLAIN_BODIES
from modeling_lion.attention.plain import run_plain


LENGTHS = (1024, 2048, 4096)
CHUNKS = (16, 64, 256, 1024)


def make_call(form: str, chunk_size: int | None, length: int) -> Callable[[], torch.Tensor]:
    query, key, value, log_decay = attention_inputs("LION-S", 1, length)
    decays = finite_log_decay(LogDecay(log_decay, log_decay), query)
    inputs = (query, key, value, *decays, chunk_size or length, "sum", "both")
    return torch.no_grad()(partial(run_plain, PLAIN_BODIES[form], *inputs))


def peak_memory_of(form: str, chunk_size: int | None, length: int) -> int:
    """Bytes beyond those of the inputs."""
    call = make_call(form, chunk_size, length)
    before = peak_memory()
    call()
    return peak_memory() - before


def measure(length: int, repeats: int) -> list[dict]:
    """A row for each form; `chunk_size` is `None` for those that have no chunks."""
    cases = [("rnn", None), *(("chunk", size) for size in CHUNKS if size < length), ("parallel", None)]
    times = interleaved({case: make_call(*case, length) for case in cases}, repeats)
    rows = []
    for case, seconds in times.items():
        memory = in_new_process(peak_memory_of, *case, length)
        row = {"length": length, "form": case[0], "chunk_size": case[1], "peak_memory_bytes": memory}
        rows.append(row | summary(seconds))
        print(f"{length} tokens, {case}: {rows[-1]['median']:.3f} s, {memory / 2**20:.0f} MiB", flush=True)
    return rows


def main(args: list[str] | None = None) -> None:
    parser = make_parser(__doc__, "to 512 tokens")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args(args)
    torch.set_num_threads(args.threads)
    path = args.output_dir / "forms.csv"
    for length in [256, 512] if args.quick else args.lengths:
        if args.again or not is_measured(path, [{"length": length}]):
            append_rows(path, measure(length, args.repeats))
    write_pages(args.output_dir)


if __name__ == "__main__":
    main()
