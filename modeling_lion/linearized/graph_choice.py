# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The choice between softmax and linear attention in exported graphs (`choosing_graphs`), which serve every length: by
the length of the batch, padding included, since a graph has no rows of different kinds.
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
    What a graph computes in some of its attention modules. Its inputs are queries, keys and values `(batch, heads,
    length, head_dim)`, which tokens are real, `(batch, length)`, if there is a mask, and the weights of the branch.

    Attributes:
        sizes: the shapes of the inputs; `None` for each size that is known at run time only.
        longest: the number of tokens up to which softmax is computed.
        weights: names of the weights.
        has_mask: whether the fourth input is a mask.
        scaling: of the scores.
        reach: of the window in which the module computes softmax, if it has one.
        form: of linear attention.
        branch: any one whose function this is; its weights are inputs.
        least_length, dtypes: of the inputs.
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
        """With fewer tokens, chunks and blocks may be one, or nothing beyond the window, which is another graph."""
        return max(65, self.branch.window + 1)

    @property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        return tuple(torch.bool if n == 3 and self.has_mask else torch.float32 for n in range(len(self.sizes)))

    def short(self, query: Tensor, key: Tensor, value: Tensor, *others: Tensor) -> tuple[Tensor]:
        """Exact attention, for at most `longest` tokens."""
        mask = dense_mask(query, others[0] if self.has_mask else None, self.reach)
        return (scaled_dot_product_attention(query, key, value, mask, scale=self.scaling).transpose(1, 2),)

    def long(self, query: Tensor, key: Tensor, value: Tensor, *others: Tensor) -> tuple[Tensor]:
        """Linear attention, for more tokens."""
        weights = dict(zip(self.weights, others[self.has_mask :], strict=True))
        is_real = others[0] if self.has_mask else None
        arguments = query, key, value, Tokens(is_real).with_order(), self.scaling, self.form
        return (torch.func.functional_call(self.branch, weights, arguments)[0],)


def choose_in_graph(
    branch: LinearBranch,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    is_real: Tensor | None,
    scaling: float | None,
    form: str,
    reach: int | None,
) -> Tensor:
    """
    Softmax for a short batch, the linear attention of a branch for a long one, chosen at run time: `(batch, length,
    heads, head_dim)`. It has no gradients.
    """
    weights = dict(branch.named_parameters())
    inputs = (query, key, value, *(() if is_real is None else (is_real,)), *weights.values())
    form = "chunk" if form == "auto" else form
    exact = branch.config.lion_exact_length
    rest = tuple(weights), is_real is not None, scaling, reach, form, branch
    batch, heads, length, _ = query.shape
    shape = batch, length, heads, value.shape[-1]
    return chosen_in_graph(LinearizedChoice(sizes_of(inputs), exact, *rest), inputs, [value.dtype], [shape])[0]
