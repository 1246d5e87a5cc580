# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Random problems for kernels and models, and the float64 truth to compare with. tests/repository/test_reliability.py
tries a few of them, tests/tools/soak.py as many as there is time for.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest import mock

import torch
from attention_forms import DTYPES, EXTREMES, FORMS, extreme_decays, naive
from conftest import MIXERS, OTHERS_MIXERS, TINY, mixer_fields
from hypothesis import strategies as st
from torch import Tensor

from configuration_lion.registry import find_mixer
from modeling_lion import LionConfig, LionModel
from modeling_lion.attention.decay_mask import LogDecay, decay_mask, finite_log_decay, over_tokens
from modeling_lion.attention.implementation_names import attention_names
from modeling_lion.attention.numerics import accumulation_dtype, divide
from modeling_lion.cpu import chunk as cpu_chunk
from modeling_lion.cpu import parallel as cpu_parallel
from modeling_lion.cpu import scratch as cpu_common


@contextmanager
def poisoned_memory() -> Iterator[None]:
    """NaN in memory that nobody wrote."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def part_of(shape: tuple[int, ...], x: Tensor, *index) -> Tensor:
    """`x` as a part of a tensor that is NaN elsewhere."""
    whole = x.new_full(shape, torch.nan)
    whole[index] = x
    return whole[index]


# How a tensor (batch, heads, length, dim) may lie in memory. What is expanded holds other numbers than before.
LAYOUTS = {
    "contiguous": lambda x: x,
    "as in the model": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "of one projection for all": lambda x: part_of(
        (x.shape[0], x.shape[2], 3, x.shape[1], x.shape[3]), x.transpose(1, 2), slice(None), slice(None), 1
    ).transpose(1, 2),
    "every other number": lambda x: part_of((*x.shape, 2), x, ..., 0),
    "heads first": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "length first": lambda x: x.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3),
    "channels before tokens": lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
    "channels first": lambda x: x.permute(3, 0, 1, 2).contiguous().permute(1, 2, 3, 0),
    "some tokens of more": lambda x: part_of(
        (*x.shape[:2], x.shape[2] + 3, x.shape[3]), x, slice(None), slice(None), slice(2, -1)
    ),
    "some heads of more": lambda x: part_of((x.shape[0], x.shape[1] + 2, *x.shape[2:]), x, slice(None), slice(1, -1)),
    "one sequence for all": lambda x: x[:1].expand_as(x),
    "one head for all": lambda x: x[:, :1].expand_as(x),
    "one head of one sequence for all": lambda x: x[:1, :1].expand_as(x),
    "one token for all": lambda x: x[:, :, :1].expand_as(x),
    "one channel for all": lambda x: x[..., :1].expand_as(x),
    "one number for all": lambda x: x[:1, :1, :1, :1].expand_as(x),
}


@dataclass(repr=False)
class KernelProblem:
    kernel: str
    inputs: list[Tensor]  # query, key, value, log_decay or not
    weights: Tensor  # of the output, in a sum
    options: dict
    tile_elements: int
    slice_tokens: int
    described: dict

    def __repr__(self) -> str:
        cut = f"tile_elements={self.tile_elements}, slice_tokens={self.slice_tokens}"
        return f"KernelProblem({self.kernel}, {self.described}, {self.options}, {cut})"

    def evaluate(self, kernel, dtype: torch.dtype | None = None) -> list[Tensor]:
        """The output and the gradients of all inputs."""
        inputs = [x.to(dtype or x.dtype).detach().requires_grad_() for x in self.inputs]
        output, _ = kernel(*inputs, **self.options)
        weights = self.weights.to(output.dtype)
        found = torch.autograd.grad(output, inputs, weights, allow_unused=True)
        return [
            output.detach(),
            *(torch.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)),
        ]

    def sizes_of_terms(self) -> list[Tensor]:
        """How large, at most, the sums of absolute values are that make the output and each gradient."""
        query, key, value, *decays = (x.double() for x in self.inputs)
        weights, borders = self.weights.double(), self.options["cu_seqlens"]

        def mask(decays: list[Tensor]) -> Tensor:
            log_decay = finite_log_decay(LogDecay(*(decays or [None]) * 2), query, borders)
            return decay_mask(*over_tokens(log_decay, query))

        scores = (query @ key.transpose(2, 3)) * mask(decays)
        if is_sum := self.options["normalization"] == "sum":
            inverse = divide(torch.ones_like(scores[..., :1]), scores.sum(-1, keepdim=True)).abs()
        else:
            inverse = torch.full_like(scores[..., :1], query.shape[-1] ** -0.5)
        output, n = ((scores @ value) * inverse).abs(), weights.abs() * inverse
        inputs = [query.abs().requires_grad_(), key.abs().requires_grad_(), *(x.requires_grad_() for x in decays)]
        all_scores = (inputs[0] @ inputs[1].transpose(2, 3)) * mask(inputs[2:])
        shares = n @ value.abs().transpose(2, 3) + is_sum * (n * output).sum(-1, keepdim=True)
        found = torch.autograd.grad((all_scores * shares).sum(), inputs, allow_unused=True)
        d_query, d_key, *d_decay = (torch.zeros(1) if x is None else x for x in found)
        all_scores = all_scores.detach()
        sizes = [(all_scores @ value.abs()) * inverse, d_query, d_key, all_scores.transpose(2, 3) @ n, *d_decay]
        return [x.abs().max() for x in sizes]

    def check(self) -> None:
        """At most twice the error of the naive form that computes as wide as SPEC §5 asks, or rounding."""
        with (
            mock.patch.object(cpu_parallel, "MATRIX_TILE_ELEMENTS", self.tile_elements),
            mock.patch.object(cpu_chunk, "TOKENS_AT_ONCE", self.slice_tokens),
            poisoned_memory(),
        ):
            results = self.evaluate(FORMS[self.kernel])
        exact = self.evaluate(naive, torch.float64)
        narrow = self.evaluate(naive, torch.float32)
        dtype = accumulation_dtype(self.inputs[0].dtype)
        eps = torch.finfo(dtype).eps
        # In float64 the definition itself is as far from the truth as what is tried. And decays like e^-95, which are
        # just not 0 in float32, take digits from the sums that they are in, in every form other ones.
        unit, roundings = (1, 512) if dtype == torch.float32 else (4 * eps / torch.finfo(torch.float32).eps, 256)
        names = ["output", "d query", "d key", "d value", "d log_decay"]
        sources = [self.inputs[2], *self.inputs]
        for name, result, right, near, size, source in zip(
            names, results, exact, narrow, self.sizes_of_terms(), sources, strict=False
        ):
            assert result.shape == source.shape and result.dtype == source.dtype, name
            assert result.isfinite().all(), f"{name} is not finite"
            tolerance = max(2 * unit * (near - right).abs().max(), roundings * eps * max(1, size))
            tolerance += torch.finfo(source.dtype).eps * right.abs().max()
            if cpu_common.Scratch(self.inputs[2]).is_mixed:  # products of bfloat16, each of which is rounded to it
                tolerance += 4 * torch.finfo(torch.bfloat16).eps * max(1, size)
            error = (result.double() - right).abs().max()
            assert error <= tolerance, f"{name} is off by {error:.2e}, allowed are {tolerance:.2e}"


@st.composite
def kernel_problems(draw, max_length: int, max_scores: int) -> KernelProblem:
    """
    Kernels whose bodies are written by hand, in the ways they cut their work, on inputs that lie in memory in any way.

    Args:
        max_scores: elements of A, of all heads and sequences together.
    """
    mixer = draw(st.sampled_from(["lit", "decay", "selective"]))
    dtype = draw(st.sampled_from(DTYPES))
    slice_tokens = draw(st.sampled_from([1, 20, 300, 1000, 3072]))
    tile_elements = draw(st.sampled_from([3, 300, 5000, 40_000, 400_000]))
    near_a_limit = st.sampled_from([slice_tokens, slice_tokens // 2, 66, 132, int(tile_elements**0.5)])
    length = draw(st.one_of(st.integers(1, max_length), near_a_limit.flatmap(lambda n: st.integers(n - 1, n + 1))))
    length = min(max(length, 1), max_length)
    rows = max(1, max_scores // length**2)
    heads = draw(st.integers(1, min(13, rows)))
    batch = draw(st.integers(1, min(5, max(1, rows // heads))))
    head_dim, value_dim = draw(st.sampled_from([1, 2, 5, 8, 16])), draw(st.sampled_from([1, 3, 6, 16]))

    random = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    rand = lambda *shape: torch.rand(*shape, generator=random, dtype=torch.float64)
    normalization = draw(st.sampled_from(["sum", "none"]))
    shift = 0.1 if normalization == "sum" else -0.5
    query, key = (rand(2, batch, heads, length, head_dim) + shift).to(dtype)
    value, weights = torch.randn(2, batch, heads, length, value_dim, generator=random, dtype=torch.float64).to(dtype)
    layouts = st.sampled_from(list(LAYOUTS))
    shared = draw(st.none() | layouts)
    chosen = [shared or draw(layouts) for _ in range(3)] + [draw(layouts), draw(layouts)]
    tensors = [LAYOUTS[name](x) for name, x in zip(chosen, (query, key, value), strict=False)]
    weights = LAYOUTS[chosen[3]](weights)
    kind = None
    if mixer != "lit":
        shape = (heads,) if mixer == "decay" else (batch, heads, length)
        decay = torch.log(0.02 + 0.98 * rand(*shape))
        if kind := draw(st.none() | st.sampled_from(EXTREMES)):
            decay = extreme_decays(kind, shape, torch.float64)
        if mixer == "selective":
            decay = LAYOUTS[chosen[4]](decay.unsqueeze(-1)).squeeze(-1)
            if draw(st.booleans()):  # padding
                kept = rand(batch, 1, length) < draw(st.floats(0, 1))
                tensors[1], decay = tensors[1] * kept[..., None], torch.where(kept, decay, 0)
        tensors.append(decay.to(accumulation_dtype(dtype)))
    borders = draw(st.none() | st.sets(st.integers(1, max(1, length - 1)), max_size=6))
    return KernelProblem(
        kernel=draw(st.sampled_from(["parallel", "chunk"])),
        inputs=tensors,
        weights=weights,
        options={
            "normalization": normalization,
            "chunk_size": max(draw(st.integers(1, length + 2)), length // 300),
            "cu_seqlens": None if borders is None else torch.tensor(sorted({0, *borders, length})),
        },
        tile_elements=max(tile_elements, length**2 // 200),
        slice_tokens=max(slice_tokens, length // 50),
        described={"mixer": mixer, "dtype": dtype, "value": tuple(value.shape), "layouts": chosen, "decays": kind},
    )


@dataclass
class ModelProblem:
    """A model, and sequences for it; and how these are put into rows."""

    fields: dict
    kernel: str
    lengths: list[int]
    layout: str  # "left", "right", "interior", "packed" or "packed and padded"
    decay_shift: float
    borders_given: bool
    autocast: bool
    seed: int

    def models(self) -> tuple[LionModel, LionModel]:
        """The model, and one of the same weights that computes the definition; both in float64."""
        torch.manual_seed(self.seed)
        config = LionConfig(**(TINY | self.fields))
        reference = LionModel._from_config(config, attn_implementation="eager").double().eval()
        with torch.no_grad():
            for name, parameter in reference.named_parameters():
                if "decay" in name and name.endswith("bias") and "log_rate" not in name:
                    parameter += self.decay_shift
        model = LionModel._from_config(LionConfig(**(TINY | self.fields)), attn_implementation=self.kernel)
        model = model.double().eval()
        model.load_state_dict(reference.state_dict())
        return model, reference

    def rows(self, sequences: list[Tensor]) -> tuple[dict, list[tuple[int, Tensor]]]:
        """Inputs that hold the sequences, and where each of them is: its row and its positions."""
        lengths = [len(x) for x in sequences]
        if self.layout == "packed and padded":
            borders = torch.tensor([0, *(n + 2 for n in lengths)]).cumsum(0)
            places = [a + torch.randperm(n + 2)[:n].sort().values for a, n in zip(borders, lengths, strict=False)]
            ids, mask = torch.zeros(2, 1, int(borders[-1]), dtype=torch.long)
            for place, sequence in zip(places, sequences, strict=True):
                ids[0, place], mask[0, place] = sequence, 1
            inputs = {"input_ids": ids, "attention_mask": mask, "cu_seq_lens_q": borders.int()}
            return inputs, [(0, place) for place in places]
        if self.layout == "packed":
            borders = torch.tensor([0, *lengths]).cumsum(0)
            inputs = {"input_ids": torch.cat(sequences)[None]}
            if self.borders_given:
                inputs["cu_seq_lens_q"] = borders.int()
            else:
                inputs["position_ids"] = torch.cat([torch.arange(n) for n in lengths])[None]
            return inputs, [(0, torch.arange(*pair)) for pair in zip(borders[:-1], borders[1:], strict=True)]
        width = max(lengths) + (self.layout == "interior") * 3
        places = []
        for n in lengths:
            start = {"left": width - n, "right": 0}.get(self.layout)
            places.append(torch.randperm(width)[:n].sort().values if start is None else torch.arange(start, start + n))
        ids, mask = torch.zeros(2, len(lengths) + 1, width, dtype=torch.long)  # the last row is nothing but padding
        for row, (place, sequence) in enumerate(zip(places, sequences, strict=True)):
            ids[row, place], mask[row, place] = sequence, 1
        return {"input_ids": ids, "attention_mask": mask}, list(enumerate(places))

    def check(self) -> None:
        """Hidden states, pooled states and gradients of all weights are those of the sequences one by one."""
        with poisoned_memory():
            model, reference = self.models()
            sequences = [torch.randint(1, TINY["vocab_size"], (n,)) for n in self.lengths]
            inputs, places = self.rows(sequences)
            weights = [torch.randn(n, TINY["hidden_size"], dtype=torch.float64) for n in self.lengths]
            pooled_weights = torch.randn(len(sequences), TINY["hidden_size"], dtype=torch.float64)
            results = self.run(model, inputs, places, weights, pooled_weights)
            one_by_one = [
                self.run(reference, {"input_ids": x[None]}, [(0, torch.arange(len(x)))], [w], p[None])
                for x, w, p in zip(sequences, weights, pooled_weights, strict=True)
            ]
            expected = {
                name: torch.cat([x[name] for x in one_by_one])
                if name in ("hidden", "pooled")
                else sum(x[name] for x in one_by_one)
                for name in results
            }
            for name, result in results.items():
                right = expected[name]
                assert result.isfinite().all(), f"{name} is not finite"
                error, allowed = (result - right).abs().max(), 1e-11 * right.abs().max().clamp(min=1)
                assert result.shape == right.shape and error <= allowed, f"{name} is off by {error:.1e}"
            if self.autocast:
                self.check_autocast(model, inputs, places, expected["hidden"])

    def run(self, model, inputs, places, weights, pooled_weights) -> dict[str, Tensor]:
        model.zero_grad()
        outputs = model(**inputs)
        assert outputs.last_hidden_state.isfinite().all()
        hidden = [outputs.last_hidden_state[row, place] for row, place in places]
        pooled = outputs.pooler_output[: len(places)]
        loss = sum((x * w).sum() for x, w in zip(hidden, weights, strict=True)) + (pooled * pooled_weights).sum()
        loss.backward()
        gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        return {"hidden": torch.cat(hidden).detach(), "pooled": pooled.detach()} | gradients

    def check_autocast(self, model, inputs, places, expected) -> None:
        """In bfloat16, twice the error of the definition in bfloat16, and some rounding."""
        errors = {}
        for kernel in (self.kernel, "eager"):
            model.float().set_attn_implementation(kernel)
            model.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                output = model(**inputs).last_hidden_state
            output.float().square().mean().backward()
            assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
            hidden = torch.cat([output[row, place] for row, place in places]).double()
            assert hidden.isfinite().all()
            errors[kernel] = (hidden - expected).abs().max()
        allowed = 2 * errors["eager"] + 16 * torch.finfo(torch.bfloat16).eps * expected.abs().max()
        assert errors[self.kernel] <= allowed, f"in bfloat16 off by {errors[self.kernel]}, allowed are {allowed}"


@st.composite
def model_problems(draw, max_length: int = 24) -> ModelProblem:
    """Every mixer in every kernel that computes it, on text padded or packed in any way."""
    mixer = draw(st.sampled_from([name for name in MIXERS if name not in OTHERS_MIXERS]))
    feature_map = draw(st.sampled_from(["silu_norm", "elu", "relu", "identity"]))
    choices = {} if mixer == "hybrid" else find_mixer(mixer).choices
    heads = draw(st.sampled_from([2, 4, 8] if "head_directions" in choices else [1, 2, 4, 8]))
    rope = draw(st.sampled_from([None, {}, {"rope_theta": 100.0}, {"rope_type": "linear", "factor": 2.0}]))
    layout = draw(st.sampled_from(["left", "right", "interior", "packed", "packed and padded"]))
    has_convolution = mixer not in ("softmax", "luna")
    num_layers = draw(st.integers(1, 3))
    fields = mixer_fields(mixer, num_layers) | {
        "rope_parameters": None if mixer == "luna" else rope,
        "head_directions": "both" if heads == 1 else draw(st.sampled_from(["both", "alternate"])),
        "feature_map": feature_map,
        "normalization": "none" if feature_map == "identity" else draw(st.sampled_from(["sum", "none"])),
        "num_attention_heads": heads,
        "num_hidden_layers": num_layers,
        "norm_position": draw(st.sampled_from(["pre", "post"])),
        "pooling": draw(st.sampled_from(["cls", "mean"])),
        "attention_layer_norm": draw(st.booleans()),
        "position_embedding_type": draw(st.sampled_from(["none", "absolute"])),
        "chunk_size": draw(st.integers(1, 2 * max_length)),
        "max_position_embeddings": 6 * max_length,
        "conv_kernel": draw(st.sampled_from([0, 1, 3, 9])) if has_convolution else 0,
        "luna_activation": draw(st.sampled_from(["softmax", "softplus", "elu"])),
        "luna_tie_kv": draw(st.booleans()),
        "qkv_bias": draw(st.booleans()),
    }
    if choices:  # with the mixer's own feature map
        wrong = {name: possible for name, possible in choices.items() if fields[name] not in possible}
        fields |= {name: draw(st.sampled_from(possible)) for name, possible in wrong.items()}
        fields |= {k: v for k, v in find_mixer(mixer).defaults.items() if k == "feature_map"}
    return ModelProblem(
        fields=fields,
        kernel=draw(st.sampled_from([*attention_names(LionConfig(**(TINY | fields))), "auto"])),
        lengths=draw(st.lists(st.integers(1, max_length), min_size=1, max_size=5)),
        layout=layout,
        decay_shift=draw(st.sampled_from([0.0, 0.0, 40.0, -40.0, 800.0, -800.0])),
        borders_given=draw(st.booleans()),
        autocast=draw(st.booleans()),
        seed=draw(st.integers(0, 2**32)),
    )


def inference_and_gradient(model, ids: torch.Tensor, segment_length: int) -> list[torch.Tensor]:
    """What a `LionModel` makes of texts, `encode_long` included, and a gradient; to compare between threads."""
    with torch.no_grad():
        outputs = model(ids, output_hidden_states=True)
        results = [*outputs.hidden_states, outputs.pooler_output]
        if "full_attention" not in model.config.layer_types_in_use:
            encoded = model.encode_long(ids, segment_length=segment_length, show_progress=False)
            results.append(encoded.last_hidden_state)
    loss = model(ids).last_hidden_state.square().mean()
    return [*results, *torch.autograd.grad(loss, model.layers[0].attention.o_proj.weight)]
