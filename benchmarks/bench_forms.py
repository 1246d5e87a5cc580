# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What the three forms of the paper cost: time and memory of the parallel form, of the recurrent form, and of chunks of
several sizes between them, which pass states as Mamba-2 does, or are those of the published loop; beside softmax.

    python benchmarks/bench_forms.py            # a quarter of an hour of a CPU core
    python benchmarks/bench_forms.py --quick    # to 512 tokens

All are plain PyTorch (attention/plain.py), which computes each form as it is written: kernels for a CPU or a GPU
choose sizes of their own. Softmax is torch's scaled_dot_product_attention, which stores no matrix of scores. The
published loop, which the package does not have, is below. One sequence, 12 heads of 64,
LION-S in float32, forward. The peak memory is that of a process for each case, less that of its inputs. Rows go to
forms.csv; what this machine has there is measured again only with --again.
"""

from collections.abc import Callable
from functools import partial, reduce

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
from torch import Tensor
from torch.nn import functional as F

from modeling_lion.attention.decay_mask import LogDecay, finite_log_decay
from modeling_lion.attention.lion_attention import PLAIN_BODIES
from modeling_lion.attention.plain import run_plain


LENGTHS = (1024, 2048, 4096)
CHUNKS = (16, 64, 256, 1024)
CHUNKED = ("chunk", "pairs", "keys")


def published_loop(
    query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, chunk_size: int, all_queries: bool
) -> tuple[Tensor, None]:
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
    return output, None


def make_call(form: str, chunk_size: int | None, length: int) -> Callable[[], tuple[Tensor, Tensor | None]]:
    query, key, value, log_decay = attention_inputs("LION-S", 1, length)
    if form == "softmax":
        return torch.no_grad()(lambda: (F.scaled_dot_product_attention(query, key, value), None))
    if form in ("pairs", "keys"):
        loop = partial(published_loop, query, key, value, log_decay, chunk_size, form == "keys")
        return torch.no_grad()(loop)
    decays = finite_log_decay(LogDecay(log_decay, log_decay), query)
    inputs = (query, key, value, *decays, chunk_size or length, "sum", "both")
    return torch.no_grad()(partial(run_plain, PLAIN_BODIES[form], *inputs))


def peak_memory_of(form: str, chunk_size: int | None, length: int) -> int:
    """Bytes beyond those of the inputs."""
    call = make_call(form, chunk_size, length)
    before = peak_memory()
    call()
    return peak_memory() - before


def cases_of(length: int) -> list[tuple[str, int | None]]:
    """The forms with their chunk sizes, `None` for those that have no chunks."""
    chunked = [(form, size) for form in CHUNKED for size in CHUNKS if size < length]
    return [("rnn", None), *chunked, ("parallel", None), ("softmax", None)]


def measure(length: int, cases: list[tuple[str, int | None]], repeats: int) -> list[dict]:
    """A row for each case."""
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
        columns = lambda case, length=length: {"length": length, "form": case[0], "chunk_size": case[1]}
        cases = [case for case in cases_of(length) if args.again or not is_measured(path, [columns(case)])]
        if cases:
            append_rows(path, measure(length, cases, args.repeats))
    write_pages(args.output_dir)


if __name__ == "__main__":
    main()
