# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The choice between softmax and linear attention in exported graphs that serve every length (`choosing_graphs`). It
depends on the length of the batch, padding included, since a graph computes all rows in the same way.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ..attention.export_graph import chosen_in_graph, sizes_of
from ..tokens import Tokens
from .branch import LinearBranch
from .lion_local import dense_mask


@dataclass(frozen=True)
class LinearizedChoice:
    """
    A function of a graph that chooses between softmax and linear attention at run time. Its inputs are queries, keys
    and values, `(batch, heads, length, head_dim)`, an optional mask of real tokens, `(batch, length)`, and the weights
    of the branch.

    Attributes:
        sizes, longest: as in `Choice`; softmax computes up to `longest` tokens.
        weights: the names of the weights.
        reach: number of tokens on each side in the module's own softmax window, if it has one.
        branch: one of the branches that the function serves; their weights are inputs.
    """

    sizes: tuple[tuple[int | None, ...], ...]
    longest: int
    weights: tuple[str, ...]
    has_mask: bool
    scaling: float | None
    reach: int | None
    form: str
    branch: LinearBranch = field(compare=False)

    @property
    def least_length(self) -> int:
        """With fewer tokens, a single chunk or block, or no token beyond the window, would specialize the graph."""
        return max(65, self.branch.window + 1)

    @property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        return tuple(torch.bool if n == 3 and self.has_mask else torch.float32 for n in range(len(self.sizes)))

    def short(self, query: Tensor, key: Tensor, value: Tensor, *others: Tensor) -> tuple[Tensor]:
        mask = dense_mask(query, others[0] if self.has_mask else None, self.reach)
        return (scaled_dot_product_attention(query, key, value, mask, scale=self.scaling).transpose(1, 2),)

    def long(self, query: Tensor, key: Tensor, value: Tensor, *others: Tensor) -> tuple[Tensor]:
        weights = dict(zip(self.weights, others[self.has_mask :], strict=True))
        is_real = others[0] if self.has_mask else None
        arguments = query, key, value, Tokens(is_real).with_order(), self.scaling, self.form
        return (torch.func.functional_call(self.branch, weights, arguments)[0],)


def choose_in_graph(call, query: Tensor, key: Tensor, value: Tensor, is_real: Tensor | None) -> Tensor:
    """
    Softmax for a short batch or linear attention for a long one, `(batch, length, heads, head_dim)`, for a
    `ModuleCall` (attention_functions.py); no gradients.
    """
    branch, form = call.module.lion, "chunk" if call.form == "auto" else call.form
    weights = dict(branch.named_parameters())
    inputs = (query, key, value, *(() if is_real is None else (is_real,)), *weights.values())
    rest = tuple(weights), is_real is not None, call.options["scaling"], call.reach, form, branch
    choice = LinearizedChoice(sizes_of(inputs), branch.config.lion_exact_length, *rest)
    batch, heads, length, _ = query.shape
    return chosen_in_graph(choice, inputs, [value.dtype], [(batch, length, heads, value.shape[-1])])[0]
