# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Measure how well the kernels agree on a checkpoint: the error of each against the definition, evaluated in float64.
Also report values inside the model that show numerical problems: decays, denominators, and where the first NaN arose.
"""

import argparse
import math
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from modeling_lion.attention.lion_attention import DECAYS_ONLY
from modeling_lion.attention.reference import reference_attention
from modeling_lion.linearized.branch import KeptAttention, LinearBranch
from modeling_lion.modeling_lion import LionAttention
from modeling_lion.sequence.layout import Layout

from .checkpoint import find_checkpoint, load_model
from .sample_inputs import model_batches, sample_inputs
from .traits import traits_of


DTYPES = ("float64", "float32", "bfloat16")
# The tolerance as a multiple of the rounding error of the reference form. In half precision all forms round the same
# values and add in float32, so errors differ little (by a factor of up to 1.8 in 36 models). In float32 and float64
# the order of addition matters more.
ALLOWANCE = {"float64": 8, "float32": 8, "bfloat16": 3, "float16": 3}
# The largest tolerance, relative to the largest output: with more, wrong outputs would pass.
COARSEST = 0.125


class HeadNumerics(NamedTuple):
    """
    One attention head of one layer.

    Attributes:
        smallest_decay: the minimum λ over all tokens (and scans), in [0, 1].
        smallest_denominator: the minimum |Σ_j A_ij| over all tokens, without the factor D^-1/2; `None` with
            `normalization="none"`.
        first_nan: the first token, counted from 0, whose decay or scores are not finite.
    """

    layer: int
    head: int
    smallest_decay: float
    smallest_denominator: float | None
    first_nan: int | None


@dataclass(frozen=True)
class Numerics:
    """
    The result of `numerics_report`.

    Attributes:
        heads: every head of every linear layer. Softmax attention has no decays, and no denominators that could be 0.
        first_nan: the first weight, or else the first module in the order of computation, with a value that is not
            finite; `None` if there is none.
    """

    heads: tuple[HeadNumerics, ...]
    first_nan: str | None

    def table(self) -> list[list[str]]:
        """Return rows of text, a header first."""
        cell = lambda x: "-" if x is None else f"{x:.3g}" if isinstance(x, float) else str(x)
        header = ["layer", "head", "smallest λ", "smallest denominator", "first NaN at token"]
        return [header, *([cell(x) for x in head] for head in self.heads)]


@dataclass(frozen=True)
class KernelError:
    """
    The largest absolute error of the encoder's outputs with one kernel, dtype and kind of padding.

    Attributes:
        failure: why nothing was computed, as may happen with a user's mixer; the error is then NaN.
    """

    kernel: str
    dtype: str
    padding: str
    error: float
    tolerance: float
    failure: str | None = None

    @property
    def passed(self) -> bool:
        return self.error <= self.tolerance  # False for NaN


@dataclass(frozen=True)
class Verification:
    """
    The result of `verify_checkpoint`.

    Attributes:
        errors: one entry per kernel, dtype and padding.
        scale: the largest absolute value of the reference's outputs.
        inputs: a description of the inputs.
        numerics: the result of `numerics_report`.
        exact_length: up to how many tokens a linearized model computes softmax; 0 for a LION.
        is_exact: whether inputs of at most `exact_length` tokens give what softmax gives, to the bit; `None` if no
            input is so short.
    """

    errors: tuple[KernelError, ...]
    scale: float
    inputs: str
    numerics: Numerics
    exact_length: int = 0
    is_exact: bool | None = None

    @property
    def passed(self) -> bool:
        is_finite = self.numerics.first_nan is None
        return is_finite and self.is_exact is not False and all(error.passed for error in self.errors)

    def by_kernel(self) -> dict[tuple[str, str], list[KernelError]]:
        """Return the errors by kernel and dtype."""
        return {key: [*errors] for key, errors in groupby(self.errors, key=lambda e: (e.kernel, e.dtype))}

    def worst(self, kernel: str, dtype: str) -> KernelError:
        """
        Return the entry with the largest error over all kinds of padding. NaN is larger than any number.

        Args:
            kernel: for example `"chunk"`.
            dtype: for example `"float32"`.
        """
        return max(self.by_kernel()[kernel, dtype], key=lambda e: (e.error != e.error, e.error))


def verify_checkpoint(
    checkpoint: str | Path,
    *,
    file: str | Path | None = None,
    dtypes: tuple[str, ...] = DTYPES,
    seed: int = 0,
    revision: str | None = None,
) -> Verification:
    """
    Compare every kernel, in several dtypes and kinds of padding, with the definition in float64 (SPEC §1, §2, §9).

    An error is the largest difference of an output (hidden state or pooled vector) at a real token from the float64
    reference, which computes each sequence alone, without padding. The tolerance is measured: `ALLOWANCE` times the
    error of the reference form in that dtype, on the same sequences alone, or times the rounding of the largest output
    if that is more; at most `COARSEST` times the largest output. (For float64 it is the error in float32, times the
    ratio of the precisions.)

    Args:
        checkpoint: a folder, a Trainer's output or a Hub repository. Code in it is not run.
        file: a text or an image to compute on; by default inputs are random.
        dtypes: names of the dtypes to compute in.
        seed: seed of random inputs.
        revision: branch, tag or commit of a Hub repository.

    Returns:
        The errors by kernel, dtype and padding; `passed` of the result says whether all are within their tolerance.

    Raises:
        ValueError: if this is not a LION checkpoint, a dtype is not one of `ALLOWANCE`, `file` cannot be read, or
            nothing can be computed in float64.
        OSError: if the checkpoint does not exist.
    """
    for dtype in dtypes:
        if dtype not in ALLOWANCE:
            raise ValueError(f"{dtype!r} is no dtype to compute in: choose among {', '.join(ALLOWANCE)}.")
    reference_model = load_model(checkpoint, dtype=torch.float64, revision=revision)
    traits = traits_of(reference_model)
    reference_model.set_attn_implementation(traits.reference)
    # A Trainer saves the tokenizer in its output folder, in each checkpoint there, or in both.
    sources = [find_checkpoint(checkpoint), checkpoint] if Path(checkpoint).is_dir() else [checkpoint]
    samples = sample_inputs(reference_model, *sources, file=file, seed=seed, revision=revision)
    try:
        reference = encode(reference_model, samples, "none")
    except Exception as error:
        raise ValueError(
            f"{checkpoint} cannot be computed in float64, with which all dtypes are compared ({in_words(error)})."
        ) from error
    scale = max(float(x.abs().max()) for x in reference)
    paddings, kernels = traits.paddings, traits.forms
    measured: dict = {}
    are_exact: list[bool | None] = []
    for dtype in dict.fromkeys((*dtypes, "float32")):
        model = load_model(checkpoint, dtype=getattr(torch, dtype), revision=revision)
        found = errors_of(model, samples, reference, kernels if dtype in dtypes else ())
        measured |= {(kernel, dtype, padding): error for (kernel, padding), error in found.items()}
        are_exact += map(partial(equals_softmax, model), samples)
    unit = {dtype: torch.finfo(getattr(torch, dtype)).eps for dtype in (*dtypes, "float32")}
    rounding = {dtype: measured[traits.reference, dtype, "none"][0] for dtype in unit}
    rounding["float64"] = rounding["float32"] * torch.finfo(torch.float64).eps / unit["float32"]
    tolerances = {
        dtype: min(ALLOWANCE[dtype] * max(unit[dtype] * scale, rounding[dtype]), COARSEST * scale) for dtype in dtypes
    }
    errors = tuple(
        KernelError(kernel, dtype, padding, error, tolerances[dtype], failure)
        for dtype in dtypes
        for kernel in kernels
        for padding in paddings
        for error, failure in [measured[kernel, dtype, padding]]
    )
    sizes = ", ".join("x".join(map(str, x.shape)) for x in samples)
    kind = "images of size" if traits.modality == "image" else "sequences of length"
    inputs = f"{'random ' if file is None else ''}{kind} {sizes}{'' if file is None else f' from {Path(file).name}'}"
    numerics = numerics_report(reference_model, samples)
    is_exact = min((found for found in are_exact if found is not None), default=None)
    return Verification(errors, scale, inputs, numerics, traits.exact_length, is_exact)


def errors_of(
    model: PreTrainedModel, samples: list[Tensor], reference: list[Tensor], kernels: Iterable[str]
) -> dict[tuple[str, str], tuple[float, str | None]]:
    """
    Measure each kernel and padding, and the reference form without padding. Values are the largest error and `None`,
    or NaN and why nothing was computed.
    """
    traits = traits_of(model)
    found: dict[tuple[str, str], tuple[float, str | None]] = {}
    for kernel in dict.fromkeys((traits.reference, *kernels)):
        model.set_attn_implementation(kernel)
        for padding in traits.paddings if kernel in kernels else ("none",):
            try:
                found[kernel, padding] = largest_error(encode(model, samples, padding), reference), None
            except Exception as error:  # of any class: the mixer may be a user's code
                found[kernel, padding] = math.nan, in_words(error)
    return found


def in_words(error: Exception) -> str:
    """Return the class and the first line of an error."""
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"


@torch.no_grad()
def equals_softmax(model: PreTrainedModel, sample: Tensor) -> bool | None:
    """Return whether an input gives what softmax gives, to the bit; `None` if it is longer than `exact_length`."""
    traits = traits_of(model)
    if not traits.exact_length or traits.modality == "text" and len(sample) > traits.exact_length:
        return None
    model.set_attn_implementation("sdpa")
    expected = encode(model, [sample], "none")
    if len(expected[0]) > traits.exact_length:
        return None
    for form in traits.forms:
        model.set_attn_implementation(form)
        if not all(map(torch.equal, encode(model, [sample], "none"), expected)):
            return False
    return True


@torch.no_grad()
def encode(model: PreTrainedModel, samples: list[Tensor], padding: str) -> list[Tensor]:
    """Return the encoder's outputs in float64: hidden states at real tokens of each sample, then pooled vectors."""
    hidden_states: list[Tensor] = []
    pooled: list[Tensor] = []
    for inputs in model_batches(model, samples, padding):
        outputs = model.base_model(**inputs)
        rows = outputs.last_hidden_state.double()
        mask = inputs.get("attention_mask")
        hidden_states += rows if mask is None else [row[m] for row, m in zip(rows, mask.bool(), strict=True)]
        if outputs.get("pooler_output") is not None:
            pooled += outputs.pooler_output.double()
    return hidden_states + pooled


def largest_error(outputs: list[Tensor], reference: list[Tensor]) -> float:
    """Return the largest absolute difference; NaN if there is one in either."""
    return float(torch.stack([(x - y).abs().max() for x, y in zip(outputs, reference, strict=True)]).max())


@torch.no_grad()
def numerics_report(model: PreTrainedModel, samples: list[Tensor]) -> Numerics:
    """
    Record the decays and denominators of a model while it computes, in memory quadratic in the length.

    Args:
        model: a model in eval mode.
        samples: token ids `(length,)`, or pixels `(channels, height, width)`, one tensor for each input.

    Returns:
        The decays and denominators of each head, and where the first number that is not finite arose.
    """
    first_nan = next((f"the weight {name}" for name, x in model.state_dict().items() if not x.isfinite().all()), None)
    names = {module: name or type(model).__name__ for name, module in model.named_modules()}
    reports: dict[nn.Module, list[Tensor]] = {}
    bad_modules = []

    def look(module, args, kwargs, output):
        if isinstance(module, LionAttention) and module.mixer.needs == DECAYS_ONLY:
            reports.setdefault(module, []).append(head_numbers(module, *args, **kwargs))
        elif isinstance(module, LinearBranch):
            reports.setdefault(module, []).append(linearized_numbers(module, *args, output=output[0]))
        output = output[0] if isinstance(output, tuple) else output
        if isinstance(output, Tensor) and not output.isfinite().all():
            bad_modules.append(names[module])

    with ExitStack() as hooks:  # after a global hook, even a removed one, torch.compile would warn for ever
        for module in names:
            hooks.enter_context(module.register_forward_hook(look, with_kwargs=True))
        for sample in samples:
            model.base_model(**model_batches(model, [sample], "none")[0])
    divides = getattr(model.config, "normalization", None) == "sum"
    attentions = (module for module in names if isinstance(module, LionAttention | LinearBranch | KeptAttention))
    heads = [
        HeadNumerics(layer, head, decay, denominator if divides else None, int(bad) if bad < math.inf else None)
        for layer, attention in enumerate(attentions)
        if attention in reports  # softmax has none
        for head, (decay, denominator, bad) in enumerate(torch.stack(reports[attention]).amin(0).tolist())
    ]
    if first_nan is None and bad_modules:
        first_nan = f"the output of {bad_modules[0]}"
    return Numerics(tuple(heads), first_nan)


def head_numbers(attention: LionAttention, hidden_states: Tensor, layout: Layout, *args, **kwargs) -> Tensor:
    """Return `(heads, 3)`: smallest λ, smallest |denominator|, first token that is not finite (inf if none)."""
    query, key, value, log_decays = attention.mixer(hidden_states, layout).inputs
    one_scan = partial(reference_attention, head_directions=attention.config.head_directions or "both")
    reference = layout.along(one_scan, attention.mixer.joins)
    _, weights = reference(query, key, value, log_decays, normalization="none")
    log_decay = log_decays.forward  # the same backward
    denominators = weights[0].sum(-1) * query.shape[-1] ** 0.5  # (heads, length)
    heads, length = denominators.shape
    if log_decay is None:
        decays = torch.ones_like(denominators)
    else:
        decays = log_decay.exp().reshape(-1, heads, length if log_decay.dim() == 3 else 1)  # (scans, heads, length)
        decays = decays.amin(0).expand(heads, length)
    bad = ~(denominators.isfinite() & decays.isfinite())
    first = torch.where(bad.any(-1), bad.int().argmax(-1), math.inf)
    return torch.stack([decays.amin(-1), denominators.abs().amin(-1), first.to(decays.dtype)], dim=-1)


def linearized_numbers(
    branch: LinearBranch, query: Tensor, key: Tensor, value: Tensor, *others, output: Tensor
) -> Tensor:
    """`head_numbers` of a linearized model, without denominators: they are sums of positive numbers."""
    heads = query.shape[1]
    decays = torch.ones(heads, dtype=query.dtype)
    if branch.decay is not None:
        log_decay = branch.decay(key.transpose(1, 2))  # (heads,), or more
        decays = (log_decay if log_decay.dim() == 1 else log_decay.amin((0, 2))).exp().to(query.dtype)
    bad = ~output.isfinite().all(-1).all(0).transpose(0, 1)  # (heads, length)
    first = torch.where(bad.any(-1), bad.int().argmax(-1), math.inf)
    return torch.stack([decays, torch.full_like(decays, math.nan), first.to(decays.dtype)], dim=-1)


def verification_table(verification: Verification) -> list[list[str]]:
    """Return rows of text, a header first: kernel and dtype, largest error per kind of padding, tolerance."""
    paddings = dict.fromkeys(e.padding for e in verification.errors)
    rows = [["kernel", "dtype", *(f"padding: {p}" for p in paddings), "tolerance", ""]]
    for (kernel, dtype), entries in verification.by_kernel().items():
        failure = next((e.failure for e in entries if e.failure is not None), "")
        verdict = "ok" if all(e.passed for e in entries) else f"FAILED {failure}".rstrip()
        errors = ("-" if e.failure else f"{e.error:.1e}" for e in entries)
        rows.append([kernel, dtype, *errors, f"{entries[0].tolerance:.1e}", verdict])
    return rows


def summary(verification: Verification) -> list[str]:
    """Summarise in a line on the kernels, and one on decays, denominators and softmax, if the model has any."""
    if not verification.passed:
        failed = [f"{e.kernel} in {e.dtype}, padding {e.padding}" for e in verification.errors if not e.passed]
        about = [f"{len(failed)} of {len(verification.errors)} differ, the first {failed[0]}"] if failed else []
        if verification.numerics.first_nan is not None:
            about.append(f"the first number that is not finite is {verification.numerics.first_nan}")
        if verification.is_exact is False:
            about.append(f"inputs of up to {verification.exact_length} tokens do not get what softmax gives")
        return [f"The kernels do not agree with the float64 reference: {'; '.join(about)}."]
    kernels, dtypes = (
        ", ".join(dict.fromkeys(x)) for x in zip(*((e.kernel, e.dtype) for e in verification.errors), strict=True)
    )
    share = max(e.error / e.tolerance for e in verification.errors)
    lines = [
        f"All kernels agree with the float64 reference ({kernels}; {dtypes}), on {verification.inputs}: the largest "
        f"error is {share:.0%} of what rounding allows."
    ]
    smallest = {
        name: [getattr(head, f"smallest_{name}") for head in verification.numerics.heads]
        for name in ("decay", "denominator")
    }
    found = [f"the smallest {name} is {min(x):.3g}" for name, x in smallest.items() if x and None not in x]
    if verification.is_exact is not None:
        found.append(f"inputs of up to {verification.exact_length} tokens get what softmax gives, to the bit")
    return lines + [f"{line[0].upper()}{line[1:]}." for line in ["; ".join(found)] if line]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", help="folder, Trainer output or Hub repository")
    parser.add_argument("--file", type=Path, help="a text or image file to compute on (default: random inputs)")
    parser.add_argument("--dtypes", nargs="+", default=DTYPES, metavar="DTYPE", help="default: " + " ".join(DTYPES))
    parser.add_argument("--seed", type=int, default=0, help="seed of the random inputs")
    parser.add_argument("--revision", help="branch, tag or commit of a Hub repository")
    parser.add_argument("--table", action="store_true", help="print all errors and heads even if all kernels agree")


def run(args: argparse.Namespace) -> int:
    verification = verify_checkpoint(
        args.checkpoint, file=args.file, dtypes=tuple(args.dtypes), seed=args.seed, revision=args.revision
    )
    if verification.passed and not args.table:
        print("\n".join(summary(verification)))
        return 0
    print(f"Largest error against the float64 reference, on {verification.inputs}.")
    print(f"The largest output is {verification.scale:.3g}.\n")
    print_table(verification_table(verification))
    if verification.numerics.heads:
        print("\nInside the model, on the same inputs, in float64:\n")
        print_table(verification.numerics.table())
    if verification.is_exact is not None:
        verb = "get" if verification.is_exact else "do NOT get"
        print(f"\nInputs of up to {verification.exact_length} tokens {verb} what softmax gives, to the bit.")
    if verification.numerics.first_nan is not None:
        print(f"\nThe first number that is not finite: {verification.numerics.first_nan}.")
    print("\nAll kernels agree." if verification.passed else "\nFAILED: see above.")
    return 0 if verification.passed else 1


def print_table(rows: list[list[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
