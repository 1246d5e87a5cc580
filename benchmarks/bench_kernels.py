# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The kernels against softmax attention: time of ours ÷ time of `scaled_dot_product_attention` on the same query, key
and value, forward and forward + backward, for LION-LIT, -D and -S; and whether "auto" chooses the fastest form.

    python benchmarks/bench_kernels.py               # lengths to 16384: about an hour on a small machine
    python benchmarks/bench_kernels.py --quick       # lengths to 1024: minutes
    python benchmarks/bench_kernels.py --lengths 16384 --batch_size 1

Both sides take turns in one process. Before anything is timed, every kernel's output and gradients are compared with
the naive form in float64 on a smaller batch. Rows go to kernels.csv; a case that this machine has there, with the same
versions, is measured again only with --again.
"""

from functools import partial

import torch
from measure import (
    LIONS,
    PASSES,
    append_rows,
    attention_inputs,
    interleaved,
    is_measured,
    lion,
    make_parser,
    run_attention,
    summary,
)
from report import write_page
from torch.nn.functional import scaled_dot_product_attention


# Quadratic forms take minutes beyond this length, and are known to lose.
LONGEST_PARALLEL = 1024
KERNELS = {"sdpa": lambda query, key, value, *log_decay: scaled_dot_product_attention(query, key, value)}
KERNELS |= {form: partial(lion, form=form) for form in ("parallel", "chunk", "auto")}


def make_inputs(mixer: str, batch: int, length: int) -> list[torch.Tensor]:
    return [x.contiguous() for x in attention_inputs(mixer, batch, length)]


def check(form: str, mixer: str, length: int) -> None:
    """Raise an AssertionError unless a form agrees with the naive form in float64, gradients included."""
    length = min(length, 512)
    inputs = make_inputs(mixer, 1, length)
    grad = torch.randn_like(inputs[2])
    naive_form = partial(lion, form="eager")
    exact = run_attention(naive_form, [x.double() for x in inputs], PASSES[1], grad.double())
    naive = run_attention(naive_form, inputs, PASSES[1], grad)
    for result, right, near in zip(run_attention(KERNELS[form], inputs, PASSES[1], grad), exact, naive, strict=True):
        error, allowed = ((x.double() - right).abs().max() for x in (result, near))
        floor = 1e-5 * right.abs().max().clamp(min=1)
        assert error <= max(2 * allowed, floor), f"{form}, {mixer}, {length}: off by {error:.1e}"


def functions(length: int) -> list[tuple[str, str]]:
    """Mixer and kernel of everything that is timed at a length; the first is what the others are compared with."""
    found = [("softmax", "sdpa")]
    for mixer in LIONS:
        found += [(mixer, "parallel")] if length <= LONGEST_PARALLEL and mixer != "LION-LIT" else []
        found += [(mixer, "chunk"), (mixer, "auto")]
    return found


def measure(length: int, batch: int, direction: str, budget: float) -> list[dict]:
    """CPU seconds of all functions, as rows."""
    inputs = {mixer: make_inputs(mixer, batch, length) for mixer in LIONS}
    inputs["softmax"] = inputs["LION-LIT"]
    grad = torch.randn_like(inputs["softmax"][2])
    softmax_seconds = 4e-8 * batch * length**2 * (4 if direction != "forward" else 1)
    repeats = int(max(3, min(25, budget / softmax_seconds)))
    timed = {
        (mixer, name): lambda k=KERNELS[name], m=mixer: run_attention(k, inputs[m], direction, grad)
        for mixer, name in functions(length)
    }
    case = {"length": length, "batch": batch, "pass": direction}
    return [
        case | {"mixer": mixer, "kernel": name} | summary(seconds)
        for (mixer, name), seconds in interleaved(timed, repeats).items()
    ]


def say(rows: list[dict]) -> None:
    """Times relative to softmax attention, and what "auto" lost against the fastest form, or to noise."""
    times = {(row["mixer"], row["kernel"]): row["median"] for row in rows}
    softmax = times.pop(("softmax", "sdpa"))
    words = [f"{rows[0]['length']} tokens, {rows[0]['pass']}, softmax {softmax:.4f} s"]
    for mixer in LIONS:
        auto = times.pop((mixer, "auto"))
        lost = auto / min(time for (name, _), time in times.items() if name == mixer) - 1
        words.append(f"{mixer} ÷ softmax {auto / softmax:.3f} ({lost:+.0%} against the fastest form)")
    print(*words, sep=", ", flush=True)


def main(args: list[str] | None = None) -> None:
    parser = make_parser(__doc__, "lengths to 1024 only")
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 197, 512, 1024, 4096, 16384])
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60.0, help="for softmax attention, per length and pass")
    args = parser.parse_args(args)
    torch.set_num_threads(args.threads)
    lengths = [n for n in args.lengths if n <= 1024] if args.quick else args.lengths
    budget = min(args.seconds, 5.0) if args.quick else args.seconds
    path = args.output_dir / "kernels.csv"
    for length in lengths:
        for mixer in LIONS:
            for form in list(KERNELS)[1:]:
                check(form, mixer, length)
        for direction in PASSES:
            case = {"length": length, "batch": args.batch_size, "pass": direction}
            cases = [case | {"mixer": mixer, "kernel": kernel} for mixer, kernel in functions(length)]
            if args.again or not is_measured(path, cases):
                rows = measure(length, args.batch_size, direction, budget)
                append_rows(path, rows)  # a long run may be cut short
                say(rows)
    write_page(args.output_dir)


if __name__ == "__main__":
    main()
