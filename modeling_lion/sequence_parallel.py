# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
One sequence over several processes (SPEC §3 "chunk", two levels up): each holds a slice of the tokens.

Embeddings, projections and MLPs see tokens one by one, and attention needs of the other slices what it needs of other
segments in border_states.py: one state per direction and head, and how much of a state survives a slice. So a layer
sends D x (D + 1) numbers per direction, head and sequence, and two decays, however long the slices are; the backward
sends the gradients of those states the other way.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable
from transformers.utils.import_utils import is_tracing

from .border_states import BorderStates, pass_borders


PER_TOKEN = ("input_ids", "attention_mask", "token_type_ids", "position_ids", "inputs_embeds", "labels")


@dataclass
class SequenceShard:
    """
    This process's slice of a batch of sequences.

    Attributes:
        group: the processes, in the order of their slices.
        counts: real tokens of every row in every slice, `(num_slices, batch)`, int64.
    """

    group: "dist.ProcessGroup"
    counts: Tensor

    @classmethod
    def of(cls, inputs: Tensor, attention_mask: Tensor | None, group: "dist.ProcessGroup") -> "SequenceShard":
        """
        Args:
            inputs: `(batch, length of the slice, ...)`.
            attention_mask: `(batch, length of the slice)`, bool, or `None`.

        Raises:
            ValueError: if the processes have batches of different sizes, or under torch.compile and export.
        """
        if is_tracing(inputs):
            raise ValueError("Sequence parallelism works in eager mode only: leave out torch.compile and export.")
        batch, length = inputs.shape[:2]
        sizes = gather(torch.tensor([batch], device=inputs.device), group).flatten().tolist()
        if len(set(sizes)) > 1:
            raise ValueError(
                f"The processes of a sequence have batches of {sizes} rows: give all of them slices of the same rows."
            )
        counts = torch.full((batch,), length, device=inputs.device)
        if attention_mask is not None:
            counts = attention_mask.sum(dim=1)
        return cls(group, gather(counts, group))

    def position_ids(self, attention_mask: Tensor | None, length: int) -> Tensor:
        """Positions in the whole sequence, counting real tokens; `(batch, length)`."""
        before = self.counts[: dist.get_rank(self.group)].sum(dim=0).unsqueeze(1)
        if attention_mask is None:
            return before + torch.arange(length, device=before.device)
        return (before + attention_mask.cumsum(dim=1) - 1).clamp(min=0)

    def pool(self, hidden_states: Tensor, attention_mask: Tensor | None, pooling: str) -> Tensor:
        """The first real token (`"cls"`) or the mean of all real tokens (`"mean"`) of the whole sequences."""
        weights = torch.ones(hidden_states.shape[:2], dtype=torch.bool, device=hidden_states.device)
        if attention_mask is not None:
            weights = attention_mask
        total = self.counts.sum(dim=0).clamp(min=1)
        if pooling == "cls":
            before = self.counts[: dist.get_rank(self.group)].sum(dim=0).unsqueeze(1)
            weights = weights & (before + weights.cumsum(dim=1) == 1)
            total = torch.ones_like(total)
        pooled = (hidden_states * weights.unsqueeze(-1).to(hidden_states.dtype)).sum(dim=1)
        return SumOverProcesses.apply(pooled, self.group) / total.unsqueeze(1).to(pooled.dtype)

    def exchange(self, given: BorderStates) -> BorderStates:
        """What this slice gets, from what it gives; differentiable."""
        shape = (*given.right.shape[:2], *given.keep_right.shape[2:])
        keep_right, keep_left = (x.expand(shape) for x in (given.keep_right, given.keep_left))
        return BorderStates(*ExchangeBorders.apply(given.right, given.left, keep_right, keep_left, self.group))


def gather(x: Tensor, group: "dist.ProcessGroup") -> Tensor:
    """`x` of every process, `(num_processes, *x.shape)`."""
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, x.contiguous(), group=group)
    return torch.stack(parts)


class ExchangeBorders(torch.autograd.Function):
    """
    `pass_borders` over processes. With what slice i gives, R_i, and lets through, r_i, slice i + 1 gets
    S_{i+1} = R_i + r_i S_i. The gradients obey the same recurrence from the other end, A_i = dS_i + r_i A_{i+1}, with
    dR_i = A_{i+1} and dr_i = A_{i+1} · S_i: the backward is `pass_borders` with left and right in each other's place.
    """

    @staticmethod
    def forward(ctx, right: Tensor, left: Tensor, keep_right: Tensor, keep_left: Tensor, group):
        everything = gather(torch.cat([x.flatten() for x in (right, left, keep_right, keep_left)]), group)
        sizes = [x.numel() for x in (right, left, keep_right, keep_left)]
        rights, lefts, *keeps = everything.split(sizes, dim=1)
        rights, lefts = rights.view(-1, *right.shape), lefts.view(-1, *right.shape)
        keeps = [x.reshape(-1, *keep_right.shape) for x in keeps]
        given = [BorderStates(*slices) for slices in zip(rights, lefts, *keeps, strict=True)]
        got = pass_borders(given)[dist.get_rank(group)]
        ctx.group = group
        ctx.save_for_backward(got.right, got.left, *keeps)
        return got.right, got.left

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_right: Tensor, grad_left: Tensor):
        right, left, keeps_right, keeps_left = ctx.saved_tensors
        grads = gather(torch.stack((grad_right, grad_left)), ctx.group)
        given = [
            BorderStates(right=grad[1], left=grad[0], keep_right=keep_left, keep_left=keep_right)
            for grad, keep_right, keep_left in zip(grads, keeps_right, keeps_left, strict=True)
        ]
        got = pass_borders(given)[dist.get_rank(ctx.group)]
        d_keep_right, d_keep_left = (
            (grad * state).sum_to_size(keeps_right.shape[1:]) for grad, state in ((got.left, right), (got.right, left))
        )
        return got.left, got.right, d_keep_right, d_keep_left, None


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


def slice_of_inputs(inputs: dict, group: "dist.ProcessGroup") -> dict:
    """This process's slices of the per-token tensors in `inputs`; the rest as it is. See `shard_inputs`."""
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
    """The labels that count, of all slices, divided by the number of processes: a float32 scalar."""
    count = (labels != -100).sum().float()
    dist.all_reduce(count, group=group)
    return count / dist.get_world_size(group)
