# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What the three forms of the paper cost: time and memory of the parallel form, of the recurrent form, and of chunks of
several sizes between them, which pass states as Mamba-2 does, or are those of the published loop; beside softmax.

    python benchmarks/bench_forms.py              # a quarter of an hour of a CPU core
    python benchmarks/bench_forms.py --training   # forward and backward pass, without the published loop
    python benchmarks/bench_forms.py --quick      # to 512 tokens

All are plain PyTorch (attention/plain.py), which computes each form as it is written: kernels for a CPU or a GPU
choose sizes of their own. Softmax is torch's scaled_dot_product_attention, which stores no matrix of scores. The
published loop, which the package does not have, is below. One sequence, 12 heads of 64, LION-S in float32, forward
unless --training is given. The peak memory is that of a process for each case, less that of its inputs. Rows go to
forms.csv; what this machine has there is measured again only with --again.
"""

from collections.abc import Callable, Sequence
from functools import partial, reduce

import torch
from measure import (
    add_columns,
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
from torch import Tensor
from torch.nn import functional as F

from modeling_lion.attention.decay_mask import LogDecay, finite_log_decay
from modeling_lion.attention.lion_attention import PLAIN_BODIES
from modeling_lion.attention.plain import run_plain


LENGTHS = (1024, 2048, 4096)
CHUNKS = (16, 64, 256, 1024)
LOOPS = ("pairs", "keys")  # the published ones, which write into tensors and so have no gradients


def published_loop(
    query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, chunk_size: int, all_queries: bool
) -> Tensor:
    """
    The sums over chunks as part III of the authors' blog writes them: of queries i and keys j, A_ij = Q_i K_jᵀ ⊙ M_ij,
    then C_i += the sums of its rows, S_i += A_ij V_j, and at last Y_i = S_i / C_i.

    Args:
        query, key, value, log_decay: of `attention_inputs`.
        all_queries: one loop, over chunks of keys: a chunk of the mask has all rows, as in the published listing of
            masks by chunks. Else two loops, as in the formula.
    """
    length = query.shape[2]
    through = log_decay.double().cumsum(-1)  # digits enough to subtract sums of a whole sequence
    before, through = through - log_decay, -through  # below the diagonal, and above it: of two, the smaller counts
    output = torch.empty_like(value)
    for rows in range(0, length, length if all_queries else chunk_size):
        i = slice(rows, length if all_queries else rows + chunk_size)
        numerator, denominator = torch.zeros_like(value[:, :, i]), torch.zeros_like(value[:, :, i, :1])
        for columns in range(0, length, chunk_size):
            j = slice(columns, columns + chunk_size)
            scores = query[:, :, i] @ key[:, :, j].mT
            sides = (before, through) if all_queries or rows == columns else (before if rows > columns else through,)
            log_mask = reduce(torch.minimum, (x[..., i, None] - x[..., None, j] for x in sides))
            scores *= log_mask.to(query.dtype).exp_()
            denominator += scores.sum(-1, keepdim=True)
            numerator += scores @ value[:, :, j]
        output[:, :, i] = numerator / denominator
    return output


def make_call(form: str, chunk_size: int | None, length: int, trains: bool = False) -> Callable[[], Sequence[Tensor]]:
    """A function that computes a form: its output, and what else it has; of a training the gradients of all inputs."""
    inputs = attention_inputs("LION-S", 1, length)
    if not trains:
        return torch.no_grad()(partial(compute, form, chunk_size, *inputs))
    inputs = [x.requires_grad_() for x in inputs]
    given = inputs[: 3 if form == "softmax" else 4]
    return lambda: torch.autograd.grad(compute(form, chunk_size, *inputs)[0], given, inputs[2])


def compute(
    form: str, chunk_size: int | None, query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor
) -> Sequence[Tensor]:
    if form == "softmax":
        return (F.scaled_dot_product_attention(query, key, value),)
    if form in LOOPS:
        return (published_loop(query, key, value, log_decay, chunk_size, form == "keys"),)
    decays = finite_log_decay(LogDecay(log_decay, log_decay), query)
    return run_plain(PLAIN_BODIES[form], query, key, value, *decays, chunk_size or query.shape[2], "sum", "both")


def peak_memory_of(form: str, chunk_size: int | None, length: int, trains: bool) -> int:
    """Bytes beyond those of the inputs."""
    call = make_call(form, chunk_size, length, trains)
    before = peak_memory()
    call()
    return peak_memory() - before


def cases_of(length: int, trains: bool) -> list[tuple[str, int | None]]:
    """The forms with their chunk sizes, `None` for those that have no chunks."""
    forms = ("chunk",) if trains else ("chunk", *LOOPS)
    chunked = [(form, size) for form in forms for size in CHUNKS if size < length]
    return [("rnn", None), *chunked, ("parallel", None), ("softmax", None)]


def measure(length: int, cases: list[tuple[str, int | None]], trains: bool, repeats: int) -> list[dict]:
    """A row for each case."""
    times = interleaved({case: make_call(*case, length, trains) for case in cases}, repeats)
    rows = []
    for case, seconds in times.items():
        memory = in_new_process(peak_memory_of, *case, length, trains)
        rows.append(columns_of(length, case, trains) | {"peak_memory_bytes": memory} | summary(seconds))
        print(f"{length} tokens, {case}: {rows[-1]['median']:.3f} s, {memory / 2**20:.0f} MiB", flush=True)
    return rows


def columns_of(length: int, case: tuple[str, int | None], trains: bool) -> dict:
    return {"length": length, "form": case[0], "chunk_size": case[1], "mode": "training" if trains else None}


def main(args: list[str] | None = None) -> None:
    parser = make_parser(__doc__, "to 512 tokens")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--training", action="store_true", help="forward and backward pass")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args(args)
    torch.set_num_threads(args.threads)
    path, trains = args.output_dir / "forms.csv", args.training
    add_columns(path, "mode")
    for length in [256, 512] if args.quick else args.lengths:
        cases = cases_of(length, trains)
        if not args.again:
            cases = [case for case in cases if not is_measured(path, [columns_of(length, case, trains)])]
        if cases:
            append_rows(path, measure(length, cases, trains, args.repeats))
    write_pages(args.output_dir)


if __name__ == "__main__":
    main()
