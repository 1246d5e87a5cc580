# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Sequence parallelism: several processes share a sequence, one segment each. This module has the exchange between them,
its gradients, and the methods of a model.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad
from transformers import PreTrainedConfig

from ..attention.decay_mask import wide_dtype
from ..attention.numerics import accumulation_dtype
from ..attention.tracing import is_tracing
from ..tokens import take_tokens
from .border_states import BorderStates, Joins, pass_borders
from .halo import Halo, WithHalo
from .layout import Layout
from .segments import what_is_full


PER_TOKEN = ("input_ids", "attention_mask", "token_type_ids", "position_ids", "inputs_embeds", "labels")


@dataclass
class SharedLayout(Layout):
    """
    A batch of sequences of which this process has one segment.

    Attributes:
        group: the processes, in the order of their segments.
        counts: the number of real tokens of each row in each segment, `(num_segments, batch)`, int64.
        lengths: the number of tokens of each segment, padding included.
        has_inner_padding: whether there is padding between real tokens of a sequence.
    """

    group: "dist.ProcessGroup | None" = None
    counts: Tensor | None = None
    lengths: tuple[int, ...] = ()
    has_inner_padding: bool = False

    is_segment = True

    def tokens_before(self) -> Tensor:
        """The number of real tokens of each row before this segment, `(batch, 1)`."""
        return self.counts[: dist.get_rank(self.group)].sum(dim=0).unsqueeze(1)

    def with_halo(self, hidden_states: Tensor, reach: int) -> WithHalo:
        is_real = self.tokens.is_real
        halo = self.halo(hidden_states, is_real, reach)
        return super().with_halo(hidden_states, reach) if halo is None else halo.with_halo(hidden_states, is_real)

    def positions_around(self, reach: int) -> Tensor:
        positions = self.tokens.position_ids
        if reach == 0:
            return positions
        positions = positions.unsqueeze(-1).to(wide_dtype(positions.device))
        around = self.halo(positions, None, reach).with_halo(positions, None)
        return around.hidden_states.squeeze(-1).long()

    def along(self, attention: Callable, joins: Joins) -> Callable:
        return partial(self.attend, attention, joins)

    def attend(
        self, attention: Callable, joins: Joins, query: Tensor, key: Tensor, value: Tensor, *gates, **options
    ) -> tuple[Tensor, None]:
        """Attention in this segment, after an exchange of border states with the other processes."""
        states = self.exchange(joins.segment_states(key, value, *gates, options["head_directions"]))
        return joins.in_segment(attention, query, key, value, *gates, border_states=states, **options)

    def pool(self, hidden_states: Tensor, reduce: Callable[[Tensor, Tensor | None], Tensor], pooling: str) -> Tensor:
        """The first real token (`"cls"`) or the mean of all real tokens (`"mean"`) of whole sequences."""
        weights = torch.ones(hidden_states.shape[:2], dtype=torch.bool, device=hidden_states.device)
        if self.tokens.is_real is not None:
            weights = self.tokens.is_real
        total = self.counts.sum(dim=0).clamp(min=1)
        if pooling == "cls":
            weights = weights & (self.tokens_before() + weights.cumsum(dim=1) == 1)
            total = torch.ones_like(total)
        weighted, dtype = hidden_states * weights.unsqueeze(-1).to(hidden_states.dtype), hidden_states.dtype
        pooled = weighted.sum(dim=1, dtype=accumulation_dtype(dtype))
        return (GatherTensors.apply(pooled, self.group).sum(0) / total.unsqueeze(1)).to(dtype)

    def halo(self, hidden_states: Tensor, is_real: Tensor | None, radius: int) -> Halo | None:
        """The halo of this segment: `radius` tokens on both sides; with inner padding, the nearest real ones."""
        if radius == 0:
            return None
        rank, own = dist.get_rank(self.group), min(radius, hidden_states.shape[1])
        real = torch.ones_like(hidden_states[..., 0]) if is_real is None else is_real
        marked = torch.cat((hidden_states, real.unsqueeze(-1).to(hidden_states.dtype)), dim=-1)
        first, last = (x.to(accumulation_dtype(x.dtype)) for x in (self.first(marked, own), self.last(marked, own)))
        absent = radius - own
        edges = torch.stack((pad(first, (0, 0, 0, absent)), pad(last, (0, 0, absent, 0))))
        first, last = GatherTensors.apply(edges, self.group).unbind(1)
        sizes = [min(radius, length) for length in self.lengths]
        before = [x[:, radius - n :] for x, n in zip(last[:rank], sizes[:rank], strict=True)]
        after = [x[:, :n] for x, n in zip(first[rank + 1 :], sizes[rank + 1 :], strict=True)]
        none = first[rank, :, :0]
        before = self.last(torch.cat((none, *before), dim=1), radius)
        after = self.first(torch.cat((none, *after), dim=1), radius)
        near = torch.cat((before, after), dim=1)[..., -1] != 0
        before, after = (x[..., :-1].to(hidden_states.dtype) for x in (before, after))
        return Halo(before, after, near, self.has_inner_padding)

    def first(self, marked: Tensor, count: int) -> Tensor:
        """The first `count` tokens of `(batch, tokens, channels)`, at most; see `last`."""
        return real_in_front(marked)[:, :count] if self.has_inner_padding else marked[:, :count]

    def last(self, marked: Tensor, count: int) -> Tensor:
        """
        The last `count` tokens of `(batch, tokens, channels)`, at most, in order. With inner padding, real tokens are
        preferred. The last channel is 1 for real tokens and 0 for padding.
        """
        return real_in_front(marked.flip(1))[:, :count].flip(1) if self.has_inner_padding else marked[:, -count:]

    def exchange(self, sent: BorderStates) -> BorderStates:
        """Send the states of this segment, and return those that it receives; differentiable."""
        shape = (*sent.forward.shape[:2], *sent.forward_factor.shape[2:])
        factors = (x.expand(shape) for x in (sent.forward_factor, sent.backward_factor))
        given = sent.forward, sent.backward, *factors
        everything = GatherTensors.apply(torch.cat([x.flatten() for x in given]), self.group)
        by_kind = everything.split([x.numel() for x in given], dim=1)
        by_kind = (x.reshape(-1, *y.shape) for x, y in zip(by_kind, given, strict=True))
        of_all = [BorderStates(*states) for states in zip(*by_kind, strict=True)]
        return pass_borders(of_all)[dist.get_rank(self.group)]


def shared_layout(
    config: PreTrainedConfig,
    inputs: Tensor,
    layout: Layout,
    position_ids: Tensor | None,
    group: "dist.ProcessGroup",
    output_attentions: bool = False,
) -> SharedLayout:
    """
    The layout of a segment of shared sequences, for which the processes exchange their numbers of tokens. `layout` is
    that of the segment alone. `position_ids`, if the caller gave any, count in the whole sequences. Raises a
    ValueError for what processes cannot share.
    """
    if layout.tokens.cu_seqlens is not None or output_attentions:
        raise ValueError(
            "Processes that share a sequence take one sequence a row, not packed ones (`cu_seq_lens_q` or "
            "`position_ids` that start again), and give no attention weights (`output_attentions`)."
        )
    if is_tracing(inputs):
        raise ValueError("Sequence parallelism works in eager mode only: leave out torch.compile and export.")
    batch, length = inputs.shape[:2]
    sizes, lengths = gather(torch.tensor([batch, length], device=inputs.device), group).T.tolist()
    if len(set(sizes)) > 1:
        raise ValueError(
            f"The processes of a sequence have batches of {sizes} rows: give all of them segments of the same rows."
        )
    real = torch.ones(batch, length, dtype=torch.bool, device=inputs.device)
    real = real if layout.tokens.is_real is None else layout.tokens.is_real
    token = sum(lengths[: dist.get_rank(group)]) + torch.arange(length, device=inputs.device)
    # For each row: its first real token, the token after its last real one, and the number of real tokens. A segment
    # without real tokens gives a first one behind the end of all sequences, and 0 for the other two.
    begin = torch.where(real, token, torch.iinfo(torch.long).max).amin(1)
    end = torch.where(real, token + 1, 0).amax(1)
    begin, end, counts = gather(torch.stack((begin, end, real.sum(1))), group).unbind(1)
    has_inner_padding = bool((end.amax(0) - begin.amin(0) > counts.sum(0)).any())
    if has_inner_padding and config.sliding_window is not None:
        raise ValueError(
            "`attention_mask` has padding between real tokens: where processes share a sequence, a layer with a "
            "window (`layer_types`, 'sliding_attention') takes texts that are padded at their ends only."
        )
    options = {"group": group, "counts": counts, "lengths": tuple(lengths), "has_inner_padding": has_inner_padding}
    shared = SharedLayout(layout.tokens, **options)
    if position_ids is None:
        positions = layout.tokens.position_ids + shared.tokens_before()
        shared.tokens = replace(layout.tokens, position_ids=positions)
    else:
        starts = ((layout.tokens.position_ids == 0) & real).any(1) & (shared.tokens_before().squeeze(1) > 0)
        if gather(starts.any().long(), group).any():  # in all processes
            raise ValueError(
                "`position_ids` start again where another process goes on: processes that share a sequence take one "
                "sequence a row, not packed ones."
            )
    if config.scales_with_length:
        shared.sequence_lengths = gather(shared.tokens.sequence_lengths(), group).amax(0)
    return shared


def real_in_front(marked: Tensor) -> Tensor:
    """Move the tokens of `(batch, tokens, channels)` whose last channel is not 0 to the front, in order."""
    return take_tokens(marked, (marked[..., -1] == 0).long().argsort(dim=1, stable=True))


def gather(x: Tensor, group: "dist.ProcessGroup") -> Tensor:
    """Stack the tensors `x` of all processes: `(num_processes, *x.shape)`."""
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, x.contiguous(), group=group)
    return torch.stack(parts)


class GatherTensors(torch.autograd.Function):
    """`gather`, with a gradient: the sum over processes of their gradients of this process's tensor."""

    @staticmethod
    def forward(ctx, x: Tensor, group):
        ctx.group = group
        return gather(x, group)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        total = grad.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=ctx.group)
        return total[dist.get_rank(ctx.group)], None


def shared_loss(loss_function: Callable, group: "dist.ProcessGroup", labels: Tensor, **kwargs) -> Tensor:
    """`loss_function` for labels per token, divided by the number of labels in the whole sequences."""
    if kwargs.get("num_items_in_batch") is None:
        count = (labels != -100).sum().float()
        dist.all_reduce(count, group=group)
        kwargs["num_items_in_batch"] = count / dist.get_world_size(group)
    return loss_function(labels=labels, **kwargs)


class SequenceParallelModel:
    # Whether the loss needs only the number of labels from other segments.
    _supports_sequence_parallel = True
    _has_labels_per_token = False

    def set_sequence_parallel(self, group: "dist.ProcessGroup | None") -> None:
        """
        Let the processes of a group share every sequence. From then on, each process calls `forward` with its segment
        of the tokens (`shard_inputs`), in the order of ranks, and gets the hidden states and logits of that segment.
        All processes must call `forward` and `backward` together. The amount of communication does not depend on the
        length.

        `pooler_output` is the same in all processes. The mean of their losses is the loss of the whole sequences, and
        the mean of their gradients, which DDP and FSDP compute, is its gradient.

        Args:
            group: the processes of one sequence, or a one-dimensional DeviceMesh. `None` to stop sharing.

        Raises:
            ValueError: for image models, for layers of full attention, and for question answering, whose loss needs
                all tokens at once.
        """
        mixers = [layer.attention.mixer for layer in self.base_model.layers]
        if group is not None and not all(mixer.shares_sequences for mixer in mixers):
            raise ValueError(
                "Processes share a sequence by the states of `lion_attention` and by the tokens of a window, and some "
                f"layers need more ({what_is_full(self.config)}): use other layers."
            )
        if group is not None and (self.config.modality != "text" or not self._supports_sequence_parallel):
            raise ValueError(
                f"{type(self).__name__} of `modality` {self.config.modality!r} cannot share a sequence among "
                "processes: use LionModel, LionForMaskedLM, LionForSequenceClassification, "
                "LionForTokenClassification or LionForMultipleChoice, for text."
            )
        group = group.get_group() if hasattr(group, "get_group") else group
        self.base_model.sequence_group = group
        if self._has_labels_per_token:
            loss_function = self.loss_function
            if getattr(loss_function, "func", None) is shared_loss:  # of an earlier call
                loss_function = loss_function.args[0]
            self.loss_function: Callable = (
                loss_function if group is None else partial(shared_loss, loss_function, group)
            )

    def shard_inputs(self, inputs: dict) -> dict:
        """
        Cut the segment of this process from a batch of whole sequences, which all processes of the group must pass.

        Args:
            inputs: arguments of `forward` by name. `input_ids`, `attention_mask`, `token_type_ids`, `position_ids`,
                `inputs_embeds` and `labels` per token, `(batch, length, ...)`, or of choices `(batch, choices, length,
                ...)`, are cut into segments.

        Raises:
            ValueError: if there is no group, or there are fewer tokens than processes.
        """
        if (group := self.base_model.sequence_group) is None:
            raise ValueError("There is no group of processes: call `set_sequence_parallel` first.")
        rank, size = dist.get_rank(group), dist.get_world_size(group)
        has_ids = inputs.get("input_ids") is not None
        tokens = inputs["input_ids"] if has_ids else inputs["inputs_embeds"]
        dim = tokens.dim() - (1 if has_ids else 2)  # 2 behind choices
        length = tokens.shape[dim]
        if length < size:
            raise ValueError(f"The sequences have {length} tokens, fewer than the {size} processes that share them.")
        first, end = (length * n // size for n in (rank, rank + 1))
        names = PER_TOKEN if self._has_labels_per_token else [name for name in PER_TOKEN if name != "labels"]
        are_cut = {name: x for name, x in inputs.items() if name in names and x is not None}
        are_cut = {name: x for name, x in are_cut.items() if x.shape[dim : dim + 1] == (length,)}
        return inputs | {name: x.narrow(dim, first, end - first).contiguous() for name, x in are_cut.items()}
