# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Compare an exported graph with torch: errors, with a tolerance that is measured, and times."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

import torch
from hub_upload_lion.sample_inputs import pad_sequences
from hub_upload_lion.traits import traits_of
from hub_upload_lion.verify import COARSEST
from torch import Tensor, nn
from transformers import PreTrainedModel

from ..timing import cpu_seconds
from .exported import FEW, ExportedModel


SECONDS_PER_LENGTH = 4  # of CPU time, after which no call is repeated
# The tolerance, as a multiple of torch's rounding error in the same dtype. Measured errors were up to 2, 0.8 and 1
# times that error. For bfloat16 it is `COARSEST`: OpenVINO also computes decays in it, which torch never does.
ALLOWANCE = {"float32": 8, "float16": 2, "int8": 2}


@dataclass(frozen=True)
class Comparison:
    """
    The comparison of the runtime and torch on one input.

    Attributes:
        inputs: description of the input.
        error: the largest difference of any output from torch in float32.
        scale: the largest absolute output.
        tolerance: the largest allowed `error`.
        seconds, torch_seconds: median CPU time per call with one thread; `None` if not measured.
    """

    inputs: str
    error: float
    scale: float
    seconds: float | None = None
    torch_seconds: float | None = None
    tolerance: float | None = None


def random_inputs(model: PreTrainedModel, batch: int, length: int, padding: str = "right") -> dict[str, Tensor]:
    """Make padded texts of several lengths, the longest of `length` tokens; or images, whatever the `length`."""
    generator, config, traits = torch.Generator().manual_seed(length), model.config, traits_of(model)
    if traits.modality == "image":
        return {"pixel_values": torch.randn(batch, *traits.image_shape, generator=generator)}
    lengths = torch.linspace(length, 1, batch).round().int().tolist()
    rows = [torch.randint(config.vocab_size, (n,), generator=generator) for n in lengths]
    ids, mask = (x[:, :length] if padding == "right" else x for x in pad_sequences(rows, padding, 0))
    inputs = {"input_ids": ids, "attention_mask": mask}
    if getattr(config, "type_vocab_size", 0) > 1:
        inputs["token_type_ids"] = torch.randint(config.type_vocab_size, ids.shape, generator=generator)
    return inputs


@torch.no_grad()
def compare(
    model: PreTrainedModel, folder: Path, dtype: str, lengths: tuple[int, ...], repeats: int = 5
) -> list[Comparison]:
    """
    Compare a graph with torch, and time both. Inputs are batches of texts (padded left, right and in between, of one
    token and of several chunks) or of images.

    Args:
        folder: the folder of the graph.
        dtype: the dtype of the graph.
        lengths: lengths of the texts to time.
        repeats: how often to time each call.

    Raises:
        ValueError: if an error is above its tolerance: `ALLOWANCE` times the rounding error of torch in the same dtype
            on the same inputs; in bfloat16, and for texts that are timed, `COARSEST` times the largest output. In int8
            the latter must only be finite.
    """
    exported = ExportedModel(folder, threads=1)
    # The rounding error of torch in the dtype of the graph: against float32, and for float32 against float64.
    rounded = in_dtype_of(model, dtype)
    exact = deepcopy(model).double() if dtype == "float32" else model
    traits = traits_of(model)
    limit, chunk, longest = traits.longest_text, traits.chunk_size, traits.exact_length
    sizes = [(1, 1, "right"), (3, chunk // 2 + 3, "left"), (4, 3 * chunk + 5, "right"), (2, 6 * chunk, "interior")]
    if longest:  # on both sides of it; without padding beyond, where torch chooses for each row
        sizes = [(1, 1, "right"), (3, longest, "right"), (1, longest + 1, "right"), (1, 2 * longest + 5, "right")]
    if traits.modality == "image":
        sizes = [(1, 1, ""), (3, 1, "")]
    found = []
    for batch, length, padding in sizes:
        length = max(1, length if limit is None else min(length, limit - 1))
        inputs = random_inputs(model, batch, length, padding)
        expected = model(**inputs)
        row = compared(inputs, exported(**inputs), expected, padding if batch > 1 else "")
        tolerance = COARSEST * row.scale
        if dtype in ALLOWANCE:
            of_both = (expected if x is model else x(**in_dtype(inputs, x.dtype)) for x in (rounded, exact))
            rounding = max(largest_difference(*of_both, inputs)[0], torch.finfo(torch.float32).eps * row.scale)
            tolerance = ALLOWANCE[dtype] * rounding
        found.append(checked(row, tolerance, dtype))
    timed = [n for n in lengths if limit is None or n <= limit]
    for length in timed[:1] if traits.modality == "image" else timed:
        row = timed_comparison(model, exported, random_inputs(model, 1, length), repeats)
        # How int8 rounds depends on the range of all activations, which grows with the length.
        found.append(checked(row, torch.finfo().max if dtype == "int8" else COARSEST * row.scale, dtype))
    return found


def checked(row: Comparison, tolerance: float, dtype: str) -> Comparison:
    """Return the row with its tolerance. Raises a ValueError if its error is above, or NaN."""
    if not row.error <= tolerance:
        raise ValueError(
            f"The graph differs from the model by {row.error:.2g} on {row.inputs}, where outputs are up to "
            f"{row.scale:.3g} and {dtype} may round by {tolerance:.2g}: export with dtype float32; if it is, "
            "please report it with the configuration."
        )
    return replace(row, tolerance=tolerance)


def timed_comparison(
    model: PreTrainedModel, exported: ExportedModel, inputs: dict[str, Tensor], repeats: int
) -> Comparison:
    """Time both on an input. The first call also allocates memory, and only counts if there is no other."""
    outputs = {}

    def call(name: str, network: nn.Module) -> None:
        outputs[name] = network(**inputs)

    calls = {name: partial(call, name, x) for name, x in (("exported", exported), ("torch", model))}
    measured = cpu_seconds(calls, repeats + 1, SECONDS_PER_LENGTH)
    seconds = {name: median(times[1:] or times) for name, times in measured.items()}
    row = compared(inputs, outputs["exported"], outputs["torch"], "")
    return replace(row, seconds=seconds["exported"], torch_seconds=seconds["torch"])


def compared(
    inputs: dict[str, Tensor], outputs: Mapping[str, Tensor], expected: Mapping[str, Tensor], padding: str
) -> Comparison:
    size = " x ".join(map(str, next(iter(inputs.values())).shape))
    return Comparison(
        size + (f", padded {padding}" if padding else ""), *largest_difference(outputs, expected, inputs)
    )


def in_dtype(inputs: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """Convert the floating-point inputs to a dtype."""
    return {name: x.to(dtype) if x.is_floating_point() else x for name, x in inputs.items()}


def largest_difference(
    outputs: Mapping[str, Tensor], expected: Mapping[str, Tensor], inputs: dict[str, Tensor]
) -> tuple[float, float]:
    """Return the largest difference at real tokens (NaN if there is one), and the largest expected output."""
    error = scale = 0.0
    for name, values in outputs.items():
        truth = expected[name]
        if values.shape[:2] == inputs.get("attention_mask", values.new_empty(0)).shape:  # of real tokens only
            values, truth = (x[inputs["attention_mask"].bool()] for x in (values, truth))
        error = max(error, float((values - truth).abs().max()), key=lambda x: (x != x, x))  # NaN is the largest
        scale = max(scale, float(truth.abs().max()))
    return error, scale


@torch.no_grad()
def in_dtype_of(model: PreTrainedModel, dtype: str) -> PreTrainedModel:
    """
    Return the model as torch computes it with the weights of a graph. Those of float16 are widened, and int8 is
    emulated by rounding in float32.
    """
    if dtype not in ALLOWANCE or dtype == "float32":
        return model
    rounded = deepcopy(model)
    if dtype == "float16":
        for name, parameter in rounded.named_parameters():
            if "decay" not in name:
                parameter.copy_(parameter.half())
        return rounded
    for name, layer in rounded.named_modules():
        if isinstance(layer, nn.Linear) and "decay" not in name:
            weight = layer.weight.detach()  # a copy: it may be tied to word embeddings
            layer.weight = nn.Parameter(round_to_int8(weight, weight.abs().amax(1, keepdim=True), 127))
            layer.register_forward_pre_hook(lambda layer, args: (round_to_int8(*args, range_of(*args), 255),))
        elif isinstance(layer, nn.Embedding) and layer.weight.numel() >= FEW:
            weight = layer.weight.detach()
            layer.weight = nn.Parameter(round_to_int8(weight, weight.abs().amax(1, keepdim=True), 127))
    return rounded


def range_of(x: Tensor) -> Tensor:
    """Return the range of activations that runtimes quantise: from the smallest to the largest number, including 0."""
    return x.max().clamp(min=0) - x.min().clamp(max=0)


def round_to_int8(x: Tensor, size: Tensor, steps: int) -> Tensor:
    """Round `x` to `steps` steps of a range of `size`. 0 stays 0."""
    step = size.clamp(min=torch.finfo(x.dtype).tiny) / steps
    return (x / step).round() * step
