# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
One sequence in segments (SPEC §3 "chunk", one level up): because it is too long for the memory, or because several
processes share it.

Embeddings, projections and MLPs see tokens one by one. Linear attention needs of another segment only what a chunk
passes on: per direction and head one state Σ_t exp(log decay from t to the border) k_t ⊗ [v_t | 1], and how much of
another state is left behind the segment. With the states that reach its two borders, a segment is attended to as if
the whole sequence were there. So what processes send, D x (D + 1) numbers per direction, head and sequence and two
decays, does not grow with the length; their gradients go the other way. Short convolutions, and softmax within a
window, need the hidden states of the few tokens on both sides that they reach (`Halo`).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils import logging
from transformers.utils.import_utils import is_tracing

from ..attention.decay import ChunkSums, LogDecay, chunk_sums, finite_log_decay, over_tokens, wide_dtype
from ..attention.numerics import accumulation_dtype, normalize, without_autocast
from ..attention.plain import split_ones, with_ones
from ..mixers.short_conv import Halo
from .input_checks import check_inputs
from .padding import text_layout


PER_TOKEN = ("input_ids", "attention_mask", "token_type_ids", "position_ids", "inputs_embeds", "labels")


@dataclass
class BorderStates:
    """
    One state per direction, `(batch, heads, head_dim, value_dim + 1)`: keys times values, and a column of keys.

    As what a segment gives: `forward` to the segments behind it, `backward` to those before it, and `forward_keep`,
    `backward_keep` in [0, 1], `(1 or batch, 1 or heads, 1 or head_dim, 1)`, what is left of another state behind it.
    As what a segment gets: `forward` has come from before it, `backward` from behind it, decayed up to its borders.
    """

    forward: Tensor
    backward: Tensor
    forward_keep: Tensor | None = None
    backward_keep: Tensor | None = None


def segment_factors(log_decay: LogDecay, query: Tensor, head_directions: str) -> ChunkSums:
    """What is left between each token and the borders of a segment, `(1 or b, 1 or h, length, 1 or head_dim)`."""
    log_decays = over_tokens(finite_log_decay(log_decay, query, head_directions=head_directions), query)
    sums = chunk_sums(*(x.unsqueeze(-1) if x.dim() == 3 else x for x in log_decays), dim=-2)
    return ChunkSums(*(x.exp() for x in sums))


def segment_states(key: Tensor, value: Tensor, log_decay: LogDecay, head_directions: str) -> BorderStates:
    """What a segment gives to the others. Arguments as in `lion_attention`; computed in the accumulation dtype."""
    dtype = accumulation_dtype(key.dtype)
    with without_autocast(key):
        key, value = key.to(dtype), with_ones(value.to(dtype))
        factors = segment_factors(log_decay, key, head_directions)
        return BorderStates(
            forward=(key * factors.to_end).transpose(-1, -2) @ value,
            backward=(key * factors.to_start).transpose(-1, -2) @ value,
            forward_keep=factors.to_end[:, :, :1].transpose(-1, -2),
            backward_keep=factors.to_start[:, :, -1:].transpose(-1, -2),
        )


def pass_borders(given: list[BorderStates]) -> list[BorderStates]:
    """What each segment gets, from what all of them give, in the order of the sequence."""
    zero = torch.zeros_like(given[0].forward)
    forward, backward = [zero], [zero]
    for states in given[:-1]:
        forward.append(torch.addcmul(states.forward, forward[-1], states.forward_keep))
    for states in given[:0:-1]:
        backward.append(torch.addcmul(states.backward, backward[-1], states.backward_keep))
    return [BorderStates(*states) for states in zip(forward, backward[::-1], strict=True)]


def segment_attention(
    attention: Callable,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: LogDecay,
    *,
    border_states: BorderStates,
    normalization: str,
    head_directions: str = "both",
    **kwargs,
) -> tuple[Tensor, None]:
    """
    One segment's output: `attention`, that is `lion_attention` in any form, inside, and the border states for all
    else.

    Args:
        border_states: what the segment gets, from `pass_borders`. The others as in `lion_attention`.
    """
    (numerator, denominator), _ = attention(
        query, key, value, log_decay, normalization="separate", head_directions=head_directions, **kwargs
    )
    with without_autocast(query):
        query = query.to(accumulation_dtype(query.dtype))
        factors = segment_factors(log_decay, query, head_directions)
        outside = (query * factors.from_start) @ border_states.forward + (
            query * factors.from_end
        ) @ border_states.backward
        outside_numerator, outside_denominator = split_ones(outside)
        numerator, denominator = numerator + outside_numerator, denominator + outside_denominator
        if normalization == "separate":
            return (numerator, denominator), None
        return normalize(numerator, denominator, normalization, query.shape[-1]).to(value.dtype), None


def encode_in_segments(
    model: PreTrainedModel,
    input_ids: Tensor,
    attention_mask: Tensor | None,
    token_type_ids: Tensor | None,
    position_ids: Tensor | None,
    segment_length: int,
    show_progress: bool,
) -> tuple[Tensor, Tensor | None]:
    """
    The encoder of a `LionModel` without its pooler; see `LionModel.encode_long` for the arguments.

    The first pass of a linear layer collects the states at segment borders, the second computes the outputs and writes
    them over the inputs; layers with a window have the second only. Besides one tensor of hidden states, memory holds
    one segment and those states.

    Returns:
        The hidden states `(batch, length, hidden_size)` and the mask of `real_tokens`.
    """
    if not model.is_text:
        raise ValueError('This LionModel has `modality="image"`: `encode_long` reads text.')
    if "full_attention" in model.config.layer_types_in_use:
        raise ValueError(
            "`encode_long` needs layers of linear attention or with a window, and some see all tokens at once "
            f"({what_is_full(model.config)}): call the model."
        )
    if model.training:
        raise ValueError("`encode_long` is for inference: call model.eval() first.")
    check_inputs(model.config, input_ids, None, None, position_ids)
    for name, ids in (("token_type_ids", token_type_ids), ("position_ids", position_ids)):
        if ids is not None and ids.shape != input_ids.shape:
            raise ValueError(f"`{name}` must be {tuple(input_ids.shape)}, as `input_ids`; got {tuple(ids.shape)}.")
    if segment_length < 1:
        raise ValueError(f"`segment_length` is {segment_length}; give at least 1.")
    is_real, cu_seqlens, position_ids = text_layout(input_ids, attention_mask, position_ids)
    if cu_seqlens is not None:
        raise ValueError("`position_ids` start again: `encode_long` takes one long text a row, not packed ones.")
    if model.config.has_windows and is_real is not None:
        check_gaps(*span_of_real_tokens(is_real))

    def split(x: Tensor | None) -> tuple[Tensor | None, ...]:
        num_segments = -(-input_ids.shape[1] // segment_length)
        return (None,) * num_segments if x is None else x.split(segment_length, dim=1)

    shape = (*input_ids.shape, model.config.hidden_size)
    hidden_states = torch.empty(shape, dtype=model.dtype, device=input_ids.device)
    segments, masks, positions = (split(x) for x in (hidden_states, is_real, position_ids))
    for segment, *inputs in zip(segments, split(input_ids), split(token_type_ids), positions, strict=True):
        segment.copy_(model.embeddings(*inputs))

    passes = [2 if layer.layer_type == "linear_attention" else 1 for layer in model.layers]
    with logging.tqdm(
        total=sum(passes) * len(segments), desc="Encoding", unit="segment", disable=not show_progress
    ) as progress:

        def each_segment(layer):
            has_window = layer.attention.mixer.window
            neighbours, end = halos(layer, hidden_states, is_real, segments), 0
            for segment, mask, halo, position in zip(segments, masks, neighbours, positions, strict=True):
                first, end = end, end + segment.shape[1]
                if has_window:
                    position = position_ids[:, first - halo.before.shape[1] : end + halo.after.shape[1]]
                yield segment, mask, halo, model.rotary_embeddings.of_layer(layer.layer_type, segment, position)
                progress.update()

        for layer, num_passes in zip(model.layers, passes, strict=True):
            border_states = [None] * len(segments)
            if num_passes == 2:
                border_states = pass_borders([layer.segment_states(*inputs) for inputs in each_segment(layer)])
            for (segment, mask, *surroundings), states in zip(each_segment(layer), border_states, strict=True):
                options = dict(zip(("neighbours", "position_embeddings"), surroundings, strict=True))
                segment.copy_(layer(segment, mask, border_states=states, **options)[0])
    if model.norm is not None:
        for segment in segments:
            segment.copy_(model.norm(segment))
    return hidden_states, is_real


def encode_passages(
    model: PreTrainedModel,
    input_ids: Tensor,
    spans: Iterable[tuple[int, int]],
    *,
    segment_length: int = 16384,
    show_progress: bool = False,
) -> Tensor:
    """
    One vector for each passage of a text of any length, from one pass over all of it ("late chunking"): the mean of
    the hidden states of its tokens, which have seen the text around the passage. For inference.

    Args:
        model: a `LionModel` of text, as `encode_long` takes it.
        input_ids: `(1, length)`, the whole text.
        spans: of every passage the index of its first token and of the one behind its last. They may overlap.
        segment_length, show_progress: as in `encode_long`.

    Returns:
        `(number of passages, hidden_size)` in the number format of the model.

    Raises:
        ValueError: if there is more than one text, if a span is empty or not within the text, or as in `encode_long`.
    """
    if input_ids.dim() != 2 or len(input_ids) != 1:
        raise ValueError(f"`input_ids` must be one text, (1, length); got {tuple(input_ids.shape)}.")
    spans, length = list(spans), input_ids.shape[1]
    for first, end in spans:
        if not 0 <= first < end <= length:
            raise ValueError(
                f"`spans` has ({first}, {end}), which is no passage of the {length} tokens: give the index of the "
                "first token and of the one behind the last."
            )
    encoded = model.encode_long(input_ids, segment_length=segment_length, show_progress=show_progress)
    (hidden_states,) = encoded.last_hidden_state
    if not spans:
        return hidden_states[:0]
    return torch.stack([hidden_states[first:end].mean(0) for first, end in spans])


def span_of_real_tokens(is_real: Tensor, first: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """
    Of every row: the first real token, the one behind the last, and how many there are, `(batch,)` each; a row
    without any ends before it begins. `first` is the index of the first token of a segment.
    """
    token = first + torch.arange(is_real.shape[1], device=is_real.device)
    begin = torch.where(is_real, token, torch.iinfo(torch.long).max).amin(1)
    end = torch.where(is_real, token + 1, 0).amax(1)
    return begin, end, is_real.sum(1)


def check_gaps(begin: Tensor, end: Tensor, count: Tensor) -> None:
    """Raise a ValueError for rows of `span_of_real_tokens` in which tokens are padded between real ones."""
    if (end - begin > count).any():
        raise ValueError(
            "`attention_mask` has padding between real tokens: in segments, a layer with a window (`layer_types`, "
            "'sliding_attention', or `local_window`) takes texts that are padded at their ends only."
        )


def what_is_full(config: PreTrainedConfig) -> str:
    """The field that gives a model layers of full attention."""
    return "`layer_types` has 'full_attention'" if config.layer_types else f"`mixer_type` is {config.mixer_type!r}"


def halos(
    layer: nn.Module, hidden_states: Tensor, is_real: Tensor | None, segments: tuple[Tensor, ...]
) -> Iterator[Halo | None]:
    """
    What a layer reaches on both sides of each segment, in the order of the sequence; `None` if it reaches none. A
    segment may be overwritten once it has been passed.
    """
    radius = layer.attention.mixer.reach
    before, first = hidden_states[:, :0], 0
    for segment in segments:
        end = first + segment.shape[1]
        if radius == 0:
            yield None
            continue
        near = None
        if is_real is not None:
            near = torch.cat((is_real[:, first - before.shape[1] : first], is_real[:, end : end + radius]), dim=1)
        halo = Halo(layer.normed(before), layer.normed(hidden_states[:, end : end + radius]), near)
        before = torch.cat((before, segment[:, -radius:]), dim=1)[:, -radius:]  # a copy
        yield halo
        first = end


@dataclass
class SharedSequence:
    """
    A batch of sequences of which this process has one segment.

    Attributes:
        group: the processes, in the order of their segments.
        counts: real tokens of every row in every segment, `(num_segments, batch)`, int64.
        lengths: tokens of every segment, padding included.
    """

    group: "dist.ProcessGroup"
    counts: Tensor
    lengths: list[int]

    @classmethod
    def of(
        cls, inputs: Tensor, is_real: Tensor | None, group: "dist.ProcessGroup", has_window: bool = False
    ) -> "SharedSequence":
        """
        Args:
            inputs: `(batch, length of the segment, ...)`.
            is_real: of `real_tokens`.
            has_window: whether layers have one.

        Raises:
            ValueError: if the processes have batches of different sizes, under torch.compile and export, or if
                there is padding between real tokens, and layers with a window.
        """
        if is_tracing(inputs):
            raise ValueError("Sequence parallelism works in eager mode only: leave out torch.compile and export.")
        batch, length = inputs.shape[:2]
        sizes, lengths = gather(torch.tensor([batch, length], device=inputs.device), group).T.tolist()
        if len(set(sizes)) > 1:
            raise ValueError(
                f"The processes of a sequence have batches of {sizes} rows: give all of them segments of the same "
                "rows."
            )
        real = torch.ones(batch, length, dtype=torch.bool, device=inputs.device) if is_real is None else is_real
        spans = span_of_real_tokens(real, sum(lengths[: dist.get_rank(group)]))
        begin, end, counts = gather(torch.stack(spans), group).unbind(1)
        if has_window:
            check_gaps(begin.amin(0), end.amax(0), counts.sum(0))
        return cls(group, counts, lengths)

    def check_positions(self, position_ids: Tensor, is_real: Tensor | None) -> None:
        """Raise a ValueError, in all processes, if a sequence of `(batch or 1, length)` starts again in a segment."""
        starts = position_ids == 0
        starts = (starts if is_real is None else starts & is_real).any(1) & (self.tokens_before().squeeze(1) > 0)
        if gather(starts.any().long(), self.group).any():
            raise ValueError(
                "`position_ids` start again where another process goes on: processes that share a sequence take one "
                "sequence a row, not packed ones."
            )

    def tokens_before(self) -> Tensor:
        """Real tokens of each row in the segments before this one, `(batch, 1)`."""
        return self.counts[: dist.get_rank(self.group)].sum(dim=0).unsqueeze(1)

    def pool(self, hidden_states: Tensor, is_real: Tensor | None, pooling: str) -> Tensor:
        """The first real token (`"cls"`) or the mean of all real tokens (`"mean"`, `"late"`) of whole sequences."""
        weights = torch.ones(hidden_states.shape[:2], dtype=torch.bool, device=hidden_states.device)
        if is_real is not None:
            weights = is_real
        total = self.counts.sum(dim=0).clamp(min=1)
        if pooling == "cls":
            weights = weights & (self.tokens_before() + weights.cumsum(dim=1) == 1)
            total = torch.ones_like(total)
        pooled = (hidden_states * weights.unsqueeze(-1).to(hidden_states.dtype)).sum(dim=1)
        return SumOverProcesses.apply(pooled, self.group) / total.unsqueeze(1).to(pooled.dtype)

    def halo(self, hidden_states: Tensor, is_real: Tensor | None, radius: int) -> Halo | None:
        """
        The tokens of the other segments that a mixer reaches, `radius` on both sides; differentiable. `None` for a
        radius of 0. Arguments as of a mixer.
        """
        if radius == 0:
            return None
        rank, own = dist.get_rank(self.group), min(radius, hidden_states.shape[1])
        real = torch.ones_like(hidden_states[..., 0]) if is_real is None else is_real
        first, last = (
            torch.cat((x.to(accumulation_dtype(x.dtype)), mask.unsqueeze(-1).to(x.dtype)), dim=-1)
            for x, mask in (
                (hidden_states[:, :own], real[:, :own]),
                (hidden_states[:, -own:], real[:, -own:]),
            )
        )
        absent = radius - own
        edges = torch.stack((pad(first, (0, 0, 0, absent)), pad(last, (0, 0, absent, 0))))
        first, last = GatherEdges.apply(edges, self.group).unbind(1)
        sizes = [min(radius, length) for length in self.lengths]
        before = [x[:, radius - n :] for x, n in zip(last[:rank], sizes[:rank], strict=True)]
        after = [x[:, :n] for x, n in zip(first[rank + 1 :], sizes[rank + 1 :], strict=True)]
        none = first[rank, :, :0]
        before, after = torch.cat((none, *before), dim=1)[:, -radius:], torch.cat((none, *after), dim=1)[:, :radius]
        near = torch.cat((before, after), dim=1)[..., -1] != 0
        before, after = (x[..., :-1].to(hidden_states.dtype) for x in (before, after))
        return Halo(before, after, near)

    def surround(self, position_ids: Tensor, radius: int) -> Tensor:
        """Positions `(batch or 1, length)`, and those of the tokens that `halo` gives, on both sides."""
        positions = position_ids.unsqueeze(-1).to(wide_dtype(position_ids.device))
        return self.halo(positions, None, radius).extend(positions, None)[0].squeeze(-1).long()

    def exchange(self, given: BorderStates) -> BorderStates:
        """What this segment gets, from what it gives; differentiable."""
        shape = (*given.forward.shape[:2], *given.forward_keep.shape[2:])
        keeps = (x.expand(shape) for x in (given.forward_keep, given.backward_keep))
        return BorderStates(*ExchangeBorders.apply(given.forward, given.backward, *keeps, self.group))


def gather(x: Tensor, group: "dist.ProcessGroup") -> Tensor:
    """`x` of every process, `(num_processes, *x.shape)`."""
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, x.contiguous(), group=group)
    return torch.stack(parts)


class ExchangeBorders(torch.autograd.Function):
    """
    `pass_borders` over processes. With what segment i gives, F_i, and lets through, f_i, segment i + 1 gets
    S_{i+1} = F_i + f_i S_i. The gradients obey the same recurrence from the other end, A_i = dS_i + f_i A_{i+1}, with
    dF_i = A_{i+1} and df_i = A_{i+1} · S_i: the gradients are `pass_borders` with the directions exchanged.
    """

    @staticmethod
    def forward(ctx, forward: Tensor, backward: Tensor, forward_keep: Tensor, backward_keep: Tensor, group):
        given = (forward, backward, forward_keep, backward_keep)
        everything = gather(torch.cat([x.flatten() for x in given]), group)
        by_kind = everything.split([x.numel() for x in given], dim=1)
        by_kind = [x.reshape(-1, *y.shape) for x, y in zip(by_kind, given, strict=True)]
        got = pass_borders([BorderStates(*states) for states in zip(*by_kind, strict=True)])[dist.get_rank(group)]
        ctx.group = group
        ctx.save_for_backward(got.forward, got.backward, *by_kind[2:])
        return got.forward, got.backward

    @staticmethod
    @once_differentiable
    def backward(ctx, d_forward: Tensor, d_backward: Tensor):
        forward, backward, forward_keeps, backward_keeps = ctx.saved_tensors
        gradients = gather(torch.stack((d_forward, d_backward)), ctx.group)
        given = [
            BorderStates(forward=d[1], backward=d[0], forward_keep=backward_keep, backward_keep=forward_keep)
            for d, forward_keep, backward_keep in zip(gradients, forward_keeps, backward_keeps, strict=True)
        ]
        got = pass_borders(given)[dist.get_rank(ctx.group)]
        d_keeps = (
            (d * state).sum_to_size(forward_keeps.shape[1:])
            for d, state in ((got.backward, forward), (got.forward, backward))
        )
        return got.backward, got.forward, *d_keeps, None


class GatherEdges(torch.autograd.Function):
    """`gather`; its gradient is the sum of what all processes make of this one's tensor."""

    @staticmethod
    def forward(ctx, x: Tensor, group):
        ctx.group = group
        return gather(x, group)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        total = grad.clone()
        dist.all_reduce(total, group=ctx.group)
        return total[dist.get_rank(ctx.group)], None


class SumOverProcesses(torch.autograd.Function):
    """The sum on every process; its gradient is the sum of theirs, since all of them go on from it."""

    @staticmethod
    def forward(ctx, x: Tensor, group):
        ctx.group = group
        total = x.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        total = grad.clone()
        dist.all_reduce(total, group=ctx.group)
        return total, None


def segment_of_inputs(inputs: dict, group: "dist.ProcessGroup") -> dict:
    """This process's segments of the per-token tensors in `inputs`; the rest as it is. See `shard_inputs`."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    tokens = inputs["input_ids"] if inputs.get("input_ids") is not None else inputs["inputs_embeds"]
    length = tokens.shape[1]
    if length < size:
        raise ValueError(f"The sequences have {length} tokens, fewer than the {size} processes that share them.")
    first, end = (length * n // size for n in (rank, rank + 1))

    def part(name: str, x):
        if name not in PER_TOKEN or x is None or x.shape[1:2] != (length,):
            return x
        return x[:, first:end].contiguous()

    return {name: part(name, x) for name, x in inputs.items()}


def labels_per_process(labels: Tensor, group: "dist.ProcessGroup") -> Tensor:
    """The labels that count, of all segments, divided by the number of processes: a float32 scalar."""
    count = (labels != -100).sum().float()
    dist.all_reduce(count, group=group)
    return count / dist.get_world_size(group)


class SequenceParallelModel:
    """The methods of a model whose sequences several processes share."""

    # Whether the loss needs no more of other segments of a sequence than their number of labels.
    _supports_sequence_parallel = True

    def set_sequence_parallel(self, group: "dist.ProcessGroup | None") -> None:
        """
        Let the processes of a group share every sequence: from now on each gives `forward` its segment of the tokens
        (`shard_inputs`), in the order of their ranks, and gets the hidden states and logits of that segment. What
        layers send does not depend on the length. All processes must call `forward` and `backward` together.

        `pooler_output` is the same in all processes. The mean of their losses is the loss of the whole sequences, and
        the mean of their gradients its gradient: what DDP and FSDP make of them.

        Args:
            group: the processes of one sequence, also as a one-dimensional DeviceMesh. `None` ends it.

        Raises:
            ValueError: for models of images, whose patches are not cut into segments, for layers that see all tokens
                at once, and for question answering, whose loss is over all tokens at once.
        """
        if group is not None and "full_attention" in self.config.layer_types_in_use:
            raise ValueError(
                "Processes share a sequence by the states of linear attention and by the tokens of a window, and some "
                f"layers see all tokens at once ({what_is_full(self.config)}): use other layers."
            )
        if group is not None and (self.config.modality != "text" or not self._supports_sequence_parallel):
            raise ValueError(
                f"{type(self).__name__} of `modality` {self.config.modality!r} cannot share a sequence among "
                "processes: use LionModel, LionForMaskedLM, LionForSequenceClassification, "
                "LionForTokenClassification or LionForMultipleChoice, for text."
            )
        self.base_model.sequence_group = group.get_group() if hasattr(group, "get_group") else group

    def shard_inputs(self, inputs: dict) -> dict:
        """
        This process's segment of a batch of whole sequences, the same in all processes of `set_sequence_parallel`.

        Args:
            inputs: arguments of `forward` by name. Of `input_ids`, `attention_mask`, `token_type_ids`, `position_ids`,
                `inputs_embeds` and of `labels` per token, `(batch, length, ...)`, a segment is taken.

        Raises:
            ValueError: if there is no group, or there are fewer tokens than processes.
        """
        if self.base_model.sequence_group is None:
            raise ValueError("There is no group of processes: call `set_sequence_parallel` first.")
        return segment_of_inputs(inputs, self.base_model.sequence_group)

    def loss_of_segment(self, labels: Tensor | None, **kwargs) -> Tensor | None:
        """`loss_function` for labels per token, if any, each with the weight that it has in the whole sequences."""
        if labels is None:
            return None
        group = self.base_model.sequence_group
        if group is not None and kwargs.get("num_items_in_batch") is None:
            kwargs["num_items_in_batch"] = labels_per_process(labels, group)
        return self.loss_function(labels=labels, **kwargs)
