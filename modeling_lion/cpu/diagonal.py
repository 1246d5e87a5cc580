# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Attention whose decays differ between the channels of the keys, a hand-written kernel for the CPU: the chunk form
(cpu/chunk.py), which halves chunks again and again inside (attention/plain_diagonal.py).

The decay from a token to the borders of its block of 1, 2, 4, ... tokens is a product of numbers in [0, 1]. For a
block of twice as many tokens it follows from those of its halves, 0 and 1:

    from_start[1] *= to_end[0, first token]       to_end[0] *= to_end[1, first token]
    from_end[0] *= to_start[1, last token]        to_start[1] *= to_start[0, last token]

So there is one exponential per decay, and no sum. For two adjacent halves, 0 and 1, Q = [q from_end | q from_start]
and K = [k to_end | k to_start], and the weights between them are Q[1] K[0]ᵀ and Q[0] K[1]ᵀ. With G the gradient of the
weights:

    dQ[1] = G[1, 0] K[0]      dK[0] = G[1, 0]ᵀ Q[1]      dq_F += from_start dQ[1]      dk_F += to_end dK[0]

and likewise for the other direction, B. Over all levels, d forward_t = Σ_{j≤t} (k_j dk_F,j - q_j dq_F,j) in every
channel: what the keys up to t give to later queries, less what queries up to t have got of it.
"""

from functools import partial

import torch
from torch import Tensor

from ..attention.decay import close_directions
from ..attention.kernels import register_kernels
from ..attention.numerics import accumulation_dtype
from ..attention.plain_diagonal import chunk_of, diagonal_chunk_body
from .chunk import Cut, Part, Workspace, compute_gradients_in_chunks, compute_in_chunks
from .common import Scratch, cpu_operator, slices_of_all
from .lit import allocate_state


# Tokens of a block whose halves are too small for separate matrix products: all are multiplied, and masked.
TILE = 16
LARGEST_CHUNK = 64


def halves(x: Tensor, half: int) -> tuple[Tensor, Tensor]:
    """The first and the second halves of all blocks of 2 * half tokens of `(..., c, d)`, `(blocks, half, d)` each."""
    return x.view(-1, 2, half, x.shape[-1]).unbind(1)


def blocks(x: Tensor, half: int, i: int, j: int) -> Tensor:
    """
    The parts of tiles `(tiles, c, c)` for queries in halves i and keys in halves j, `(tiles, blocks, half, half)`.
    """
    return x.unflatten(2, (-1, 2, half)).unflatten(1, (-1, 2, half))[:, :, i, :, :, j].diagonal(0, 1, 3).movedim(-1, 1)


def halvings(size: int) -> list[int]:
    """1, 2, 4, ... up to half of `size`, a power of two."""
    return [1 << n for n in range(size.bit_length() - 1)]


def running_sums_(x: Tensor, is_backward: bool) -> Tensor:
    """The sums up to each token of a chunk, or from it on, of `(..., c, d)`, in place."""
    for half in halvings(x.shape[-2]):
        first, second = halves(x, half)
        if is_backward:
            first += second[:, :1]
        else:
            second += first[:, -1:]
    return x


class BlockProducts:
    """
    The decay from each token to the borders of its block.

    Attributes:
        memory: of all of them, `(4, bh, p, c, d)`.
        from_start, to_end, from_end, to_start: `(bh, p, c, d)` each, named as in `ChunkSums`.
    """

    def __init__(self, memory: Tensor):
        self.memory = memory
        self.from_start, self.to_end, self.from_end, self.to_start = memory

    def of_halves(self, half: int) -> list[tuple[Tensor, Tensor]]:
        """The first and the second halves of blocks of 2 * half tokens, `(blocks, half, d)` each, in that order."""
        first, second = self.memory.view(4, -1, 2, half, self.memory.shape[-1]).unbind(2)
        return list(zip(first, second, strict=True))

    def double(self, half: int) -> None:
        """From blocks of `half` tokens to blocks of twice as many."""
        from_start, to_end, from_end, to_start = self.of_halves(half)
        from_start[1].mul_(to_end[0][:, :1])
        to_end[0].mul_(to_end[1][:, :1])
        from_end[0].mul_(to_start[1][:, -1:])
        to_start[1].mul_(to_start[0][:, -1:])


class DiagonalDecays:
    """As `TokenDecays` (cpu/chunk.py), for log decays `(b, h, length, d)`, in chunks of a power of two."""

    def __init__(self, query, key, value, forward, backward, chunk_size: int, head_directions: str):
        heads, length = query.shape[1:3]
        chunk = chunk_of(length, min(chunk_size, LARGEST_CHUNK))
        # Heads that read one way compute both directions here, one of them 0.
        self.cut = Cut(query, key, value, (-(-length // chunk), chunk), ways=2)
        self.tile = min(TILE, chunk)
        # An operator gets other objects than its caller passes, even for one tensor.
        self.is_symmetric = forward.is_set_to(backward) and head_directions == "both"
        log_decays = close_directions(forward, backward, heads, head_directions)
        self.log_decays = slices_of_all(self.cut.pairs, *log_decays)
        token = torch.arange(self.tile)
        # By level: 1 where query and key are in different halves of one block.
        self.masks = {
            half: ((token[:, None] // half) ^ (token // half) == 1).to(accumulation_dtype(query.dtype))
            for half in halvings(self.tile)
        }
        self.d_log_decays: tuple[Tensor, Tensor] | None = None

    def start_gradient(self, like: Tensor) -> None:
        """From now on, gradients of the log decays are wanted."""
        cut = self.cut
        shape = cut.batch, cut.heads, cut.num_chunks, cut.chunk, cut.head_dim
        self.d_log_decays = like.new_empty(shape), like.new_empty(shape)
        self.d_by_slice = slices_of_all(cut.pairs, *self.d_log_decays)

    def gradients(self, forward: Tensor, backward: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of the log decays, `(b, h, length, d)`."""
        return tuple(x.flatten(2, 3)[:, :, : self.cut.length].contiguous() for x in self.d_log_decays)

    def of_slice(self, s: int, work: Workspace) -> "DiagonalDecaysOfSlice":
        return DiagonalDecaysOfSlice(self, s, work.scratch)


class DiagonalDecaysOfSlice:
    """As `TokenDecaysOfSlice` (cpu/chunk.py)."""

    def __init__(self, decays: DiagonalDecays, s: int, scratch: Scratch):
        self.cut, self.scratch, self.tile, self.masks = decays.cut, scratch, decays.tile, decays.masks
        self.is_symmetric, self.log_decays = decays.is_symmetric, decays.log_decays[s]
        # By direction: the decay through every chunk, (bh, n, d), and gradients of the log decays, (bh, n, c, d).
        shape = len(self.log_decays[0]), self.cut.num_chunks, self.cut.head_dim
        self.through = [scratch(f"through, way {way}", *shape) for way in range(2)]
        self.has_gradient = decays.d_log_decays is not None
        self.d_log_decays = decays.d_by_slice[s] if self.has_gradient else None

    def in_tokens(self, part: Part) -> BlockProducts:
        """The products of blocks of one token."""
        cut, pairs = self.cut, part.shape[0]
        left = BlockProducts(self.scratch("left", 4, *part.shape, cut.head_dim))
        left.from_start.fill_(1)
        left.from_end.fill_(1)
        tokens = slice(part.chunks.start * cut.chunk, min(part.chunks.stop * cut.chunk, cut.length))
        real = tokens.stop - tokens.start
        for out, log_decay in zip((left.to_end, left.to_start), self.log_decays, strict=True):
            if self.is_symmetric and out is left.to_start:
                out.copy_(left.to_end)
                continue
            out = out.view(pairs, -1, cut.head_dim)
            torch.exp(log_decay[:, tokens], out=out[:, :real])
            out[:, real:] = 1
        return left

    def factors(self, part: Part) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """What queries and keys of a part are scaled with, by direction, `(bh, p, c, d)` each."""
        left = self.in_tokens(part)
        for half in halvings(self.cut.chunk):
            left.double(half)
        return (left.from_start, left.from_end), (left.to_end, left.to_start)

    def keep(self) -> list[tuple[Tensor, ...]]:
        """
        By direction, the factor of a state that passes each chunk, `(bh, d, 1)`; call it after `weights` of all parts.
        """
        return [x.unsqueeze(-1).unbind(1) for x in self.through]

    def scale_halves(self, q: Tensor, k: Tensor, half: int, left: BlockProducts) -> list[Tensor]:
        """Q and K at a level, `(bh * p, c, d)`."""
        from_start, to_end, from_end, to_start = left.of_halves(half)
        scaled = []
        for name, x, factors in (("Q", q, (from_end[0], from_start[1])), ("K", k, (to_end[0], to_start[1]))):
            out = self.scratch(name, *x.shape)
            for part, factor, target in zip(halves(x, half), factors, halves(out, half), strict=True):
                torch.mul(part, factor, out=target)
            scaled.append(self.scratch.operand(name, out))
        return scaled

    def inside_gradients(self, q: Tensor, k: Tensor, g: Tensor, dq: Tensor, dk: Tensor, part: Part) -> tuple:
        """
        The gradients from inside chunks: write dq and dk, `(bh * p, c, d)`, collect those of the decays, and return
        the results of `weights`; `g` is the gradient of the weights.
        """
        scratch = self.scratch
        by_way = [scratch(name, *q.shape).zero_() for name in ("dq F", "dk F", "dq B", "dk B")]
        results = self.weights(q, k, part, g, by_way[0::2], by_way[1::2])
        wide = [scratch.wide("q", q), scratch.wide("k", k)]
        own = g.diagonal(0, 1, 2).unsqueeze(-1)
        for out, other, ahead, back in zip((dq, dk), wide[::-1], by_way[:2], by_way[2:], strict=True):
            torch.add(ahead, back, out=out).addcmul_(own, other)
        if self.has_gradient:
            for way, (of_queries, of_keys) in enumerate((by_way[:2], by_way[2:])):
                crossing = of_keys.mul_(wide[1]).addcmul_(of_queries, wide[0], value=-1)
                out = self.d_log_decays[way][:, part.chunks]
                out.copy_(running_sums_(crossing, is_backward=way == 1).view(out.shape))
        return results

    def weights(self, q: Tensor, k: Tensor, part: Part, g=None, dq=None, dk=None) -> tuple:
        """
        The weights inside chunks, `(bh * p, c, c)`, and `factors`. With the gradients `g` of the weights, also add to
        dq and dk of both directions, except for the weight of each token with itself.
        """
        scratch, tile, size = self.scratch, self.tile, self.cut.chunk
        q, k = scratch.wide("q", q), scratch.wide("k", k)
        left = self.in_tokens(part)
        per_chunk, in_tiles = size // tile, (-1, tile, self.cut.head_dim)
        tiles = scratch("tiles", len(q) * per_chunk, tile, tile)
        own = torch.sum(torch.mul(q, k, out=scratch("Q", *q.shape)), -1)
        tiles.zero_().diagonal(0, 1, 2).copy_(own.view(-1, tile))
        diagonal = lambda x: x.unflatten(2, (-1, tile)).unflatten(1, (-1, tile)).diagonal(0, 1, 3).movedim(-1, 1)
        if g is not None:
            g_tiles = scratch("g tiles", *tiles.shape)
            g_tiles.view(-1, per_chunk, tile, tile).copy_(diagonal(g))
            d_scaled = scratch("dQ", *q.shape), scratch("dK", *k.shape)
        for half in halvings(size):
            scaled = self.scale_halves(q, k, half, left)
            if half < tile:
                scaled_q, scaled_k = scaled[0].view(in_tiles), scaled[1].view(in_tiles)
                mask = self.masks[half]
                product = scratch.product(scaled_q, scaled_k.transpose(1, 2), scratch("tile", *tiles.shape))
                tiles.addcmul_(product, mask)
                if g is not None:
                    d_product = scratch.operand("tile", torch.mul(g_tiles, mask, out=product))
                    scratch.product(d_product, scaled_k, d_scaled[0].view(in_tiles))
                    scratch.product(d_product.transpose(1, 2), scaled_q, d_scaled[1].view(in_tiles))
            else:
                scaled_q, scaled_k = halves(scaled[0], half), halves(scaled[1], half)
                for i, j in ((0, 1), (1, 0)):
                    out = blocks(part.scores, half, i, j)
                    product = scratch("block", out.shape[:2].numel(), half, half)
                    scratch.product(scaled_q[i], scaled_k[j].transpose(1, 2), product)
                    out.copy_(product.view(out.shape))
                    if g is not None:
                        product.view(out.shape).copy_(blocks(g, half, i, j))
                        d_product = scratch.operand("block", product)
                        scratch.product(d_product, scaled_k[j], halves(d_scaled[0], half)[i])
                        scratch.product(d_product.transpose(1, 2), scaled_q[i], halves(d_scaled[1], half)[j])
            if g is not None:
                from_start, to_end, from_end, to_start = left.of_halves(half)
                for outs, d, (first, second), ahead in (
                    (dq, d_scaled[0], (from_end, from_start), 1),
                    (dk, d_scaled[1], (to_end, to_start), 0),
                ):
                    d = halves(d, half)
                    # Forward: queries in the second half read keys in the first.
                    halves(outs[0], half)[ahead].addcmul_(d[ahead], (first, second)[ahead][ahead])
                    halves(outs[1], half)[1 - ahead].addcmul_(d[1 - ahead], (first, second)[1 - ahead][1 - ahead])
            left.double(half)
        for through, whole in zip(self.through, (left.to_end[:, :, 0], left.to_start[:, :, -1]), strict=True):
            through[:, part.chunks] = whole
        diagonal(part.scores).copy_(tiles.view(-1, per_chunk, tile, tile))
        return part.scores, (left.from_start, left.from_end), (left.to_end, left.to_start)

    def add_between(self, d_scaled_query: Tensor, d_scaled_key: Tensor, through: Tensor, part: Part) -> None:
        """As in `TokenDecaysOfSlice`."""
        shape = (*part.shape, self.cut.ways, self.cut.head_dim)
        through = through.view(*part.shape[:2], self.cut.ways, self.cut.head_dim)
        d_queries, d_keys = (x.view(shape).unbind(3) for x in (d_scaled_query, d_scaled_key))
        for way, (q, dq, k, dk) in enumerate(zip(part.query_by_way, d_queries, part.key_by_way, d_keys, strict=True)):
            of_queries = torch.mul(q, dq, out=self.scratch("of queries", *q.shape))
            total = of_queries.sum(-2).addcmul_(through[:, :, way], self.through[way][:, part.chunks])
            crossing = of_queries.neg_().addcmul_(k, dk)
            running_sums_(crossing, is_backward=way == 1).add_(total.unsqueeze(-2))
            self.d_log_decays[way][:, part.chunks].add_(crossing)


cpu_diagonal = cpu_operator(
    "diagonal",
    partial(compute_in_chunks, make_decays=DiagonalDecays),
    partial(compute_gradients_in_chunks, make_decays=DiagonalDecays),
    diagonal_chunk_body,
    allocate_state,
)
register_kernels("cpu", diagonal=cpu_diagonal)
