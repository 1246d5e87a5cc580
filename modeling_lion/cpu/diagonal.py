# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Attention whose decays differ between the channels of the keys, by hand, for the CPU: the chunk form (cpu/chunk.py),
with halves of halves inside chunks (attention/plain_diagonal.py).

What is left on the way from a token to the borders of its block of 1, 2, 4, ... tokens is a product of numbers in
[0, 1], and that of a block of twice as many tokens follows from those of its halves, 0 and 1:

    from_start[1] *= to_end[0, first token]       to_end[0] *= to_end[1, first token]
    from_end[0] *= to_start[1, last token]        to_start[1] *= to_start[0, last token]

So there is one exponential per decay, and no sum. Where two halves meet, Q = [q from_end | q from_start] of the halves
0 and 1, K = [k to_end | k to_start], and the weights between them are Q[1] K[0]ᵀ and Q[0] K[1]ᵀ. With dQ and dK of
such a pair and G the gradient of the weights:

    dQ[1] = G[1, 0] K[0]      dK[0] = G[1, 0]ᵀ Q[1]      dq_F += from_start dQ[1]      dk_F += to_end dK[0]

and likewise for the other direction, B. All levels together, d forward_t = Σ_{j≤t} (k_j dk_F,j - q_j dq_F,j), in
every channel: what key t has in common with queries behind it, less what of that has been used up.
"""

from functools import partial

import torch
from torch import Tensor

from ..attention.decay import close_directions
from ..attention.kernels import register_kernels
from ..attention.numerics import accumulation_dtype
from ..attention.plain_diagonal import chunk_of, diagonal_chunk_body
from .chunk import ChunkDecays, compute_gradients_in_chunks, compute_in_chunks
from .common import Scratch, cpu_operator, slices_of, slices_of_all
from .lit import allocate_state


# Tokens of a block whose halves are too small for matrix products of their own: all of it, and a mask.
TILE = 16
LARGEST_CHUNK = 64


def halves(x: Tensor, half: int) -> tuple[Tensor, Tensor]:
    """The first and the second halves of all blocks of 2 * half tokens of `(..., c, d)`, `(blocks, half, d)` each."""
    return x.view(-1, 2, half, x.shape[-1]).unbind(1)


def blocks(x: Tensor, half: int, i: int, j: int) -> Tensor:
    """Of tiles `(tiles, c, c)`, what queries in halves i have with keys in halves j, `(tiles, blocks, half, half)`."""
    return x.unflatten(2, (-1, 2, half)).unflatten(1, (-1, 2, half))[:, :, i, :, :, j].diagonal(0, 1, 3).movedim(-1, 1)


def halvings(size: int) -> list[int]:
    """1, 2, 4, ... up to half of a power of two."""
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


class DiagonalDecays(ChunkDecays):
    """As `ChunkDecays`, for log decays `(b, h, length, d)`, in chunks of a power of two."""

    def __init__(self, query, key, value, forward, backward, chunk_size: int, head_directions: str):
        heads, length = query.shape[1:3]
        chunk = chunk_of(length, min(chunk_size, LARGEST_CHUNK))
        # One-way heads have both directions, one of which is 0: their neighbours need the other.
        self.cut(query, key, value, (-(-length // chunk), chunk), is_one_way=False)
        self.length, self.tile = length, min(TILE, chunk)
        same = forward.data_ptr() == backward.data_ptr() and forward.stride() == backward.stride()
        self.is_symmetric = same and head_directions == "both"
        self.log_decays = slices_of_all(self.pairs, *close_directions(forward, backward, heads, head_directions))
        token = torch.arange(self.tile)
        # By level: where queries and keys are in one block, and in different halves of it.
        self.masks = {
            half: ((token[:, None] // half) ^ (token // half) == 1).to(accumulation_dtype(query.dtype))
            for half in halvings(self.tile)
        }
        self.found_at, self.kept_at = None, {}

    def start(self, s: int, n: slice, scratch: Scratch) -> None:
        """What is left in blocks of one token: `from_start`, `to_end`, `from_end` and `to_start`."""
        pairs = len(self.log_decays[s][0])
        shape = pairs, n.stop - n.start, self.chunk, self.head_dim
        names = ("from start", "to end", "from end", "to start")
        self.left = from_start, to_end, from_end, to_start = [scratch(name, *shape) for name in names]
        from_start.fill_(1)
        from_end.fill_(1)
        tokens = slice(n.start * self.chunk, min(n.stop * self.chunk, self.length))
        for out, log_decay in zip((to_end, to_start), self.log_decays[s], strict=True):
            out = out.view(pairs, -1, self.head_dim)
            real = tokens.stop - tokens.start
            if self.is_symmetric and log_decay is self.log_decays[s][1]:
                out.copy_(to_end.view_as(out))
            else:
                torch.exp(log_decay[:, tokens], out=out[:, :real])
            out[:, real:] = 1
        self.found_at = None

    def double(self, half: int) -> None:
        """From blocks of `half` tokens to blocks of twice as many."""
        from_start, to_end, from_end, to_start = (halves(x, half) for x in self.left)
        from_start[1].mul_(to_end[0][:, :1])
        to_end[0].mul_(to_end[1][:, :1])
        from_end[0].mul_(to_start[1][:, -1:])
        to_start[1].mul_(to_start[0][:, -1:])

    def keep(self, s: int, n: slice, scratch: Scratch) -> None:
        """What is left in whole chunks is known."""
        self.found_at = s, n.start
        _, to_end, _, to_start = self.left
        for way, through in enumerate((to_end[:, :, 0], to_start[:, :, -1])):
            kept = scratch(f"through {way}", len(through), self.num_chunks, self.head_dim)
            kept[:, n] = through
            self.kept_at[way] = kept

    def factors(self, of_queries: bool, s: int, n: slice) -> list[Tensor]:
        """What queries or keys are scaled with, for each direction, `(bh, n, c, d)`."""
        from_start, to_end, from_end, to_start = self.left
        return [from_start, from_end] if of_queries else [to_end, to_start]

    def keeps(self, s: int) -> list[tuple[Tensor, ...]]:
        return [self.kept_at[way].unsqueeze(-1).unbind(1) for way in range(2)]

    def scale_queries(self, q: Tensor, s: int, n: slice, scratch: Scratch) -> Tensor:
        self.find(s, n, scratch)
        return super().scale_queries(q, s, n, scratch)

    def scale_keys(self, k: Tensor, s: int, n: slice, scratch: Scratch) -> Tensor:
        self.find(s, n, scratch)
        return super().scale_keys(k, s, n, scratch)

    def find(self, s: int, n: slice, scratch: Scratch) -> None:
        """What is left in whole chunks, if it is not there."""
        if self.found_at != (s, n.start):
            self.start(s, n, scratch)
            for half in halvings(self.chunk):
                self.double(half)
            self.found_at = s, n.start

    def scale_halves(self, q: Tensor, k: Tensor, half: int, scratch: Scratch) -> tuple[Tensor, Tensor]:
        """Q and K of a level, `(bh * n, c, d)`."""
        from_start, to_end, from_end, to_start = (halves(x, half) for x in self.left)
        scaled = []
        for name, x, factors in (("Q", q, (from_end[0], from_start[1])), ("K", k, (to_end[0], to_start[1]))):
            out = scratch(name, *x.shape)
            for part, factor, target in zip(halves(x, half), factors, halves(out, half), strict=True):
                torch.mul(part, factor, out=target)
            scaled.append(scratch.operand(name, out))
        return tuple(scaled)

    def inside_gradients(self, q, k, g, dq, dk, s: int, n: slice, scratch: Scratch) -> Tensor:
        found = [scratch(name, *q.shape).zero_() for name in ("dq F", "dk F", "dq B", "dk B")]
        weights = self.weights(q, k, s, n, scratch, g, found[0::2], found[1::2])
        wide = [scratch.wide("q", q), scratch.wide("k", k)]
        own = g.diagonal(0, 1, 2).unsqueeze(-1)
        for out, other, ahead, back in zip((dq, dk), wide[::-1], found[:2], found[2:], strict=True):
            torch.add(ahead, back, out=out).addcmul_(own, other)
        if self.gradient is not None:
            for is_backward, (of_queries, of_keys) in enumerate((found[:2], found[2:])):
                crossing = of_keys.mul_(wide[1]).addcmul_(of_queries, wide[0], value=-1)
                out = self.gradient_of(is_backward, s, n)
                out.copy_(running_sums_(crossing, is_backward).view(out.shape))
        return weights

    def weights(self, q: Tensor, k: Tensor, s: int, n: slice, scratch: Scratch, g=None, dq=None, dk=None) -> Tensor:
        """The weights and, given their gradients `g`, dq and dk of both directions, but for tokens with themselves."""
        q, k = scratch.wide("q", q), scratch.wide("k", k)
        self.start(s, n, scratch)
        weights = scratch("weights", len(q), self.chunk, self.chunk)
        per_chunk = self.chunk // self.tile
        tiles = scratch("tiles", len(q) * per_chunk, self.tile, self.tile)
        own = torch.sum(torch.mul(q, k, out=scratch("Q", *q.shape)), -1)
        tiles.zero_().diagonal(0, 1, 2).copy_(own.view(-1, self.tile))
        diagonal = lambda x: x.unflatten(2, (-1, self.tile)).unflatten(1, (-1, self.tile)).diagonal(0, 1, 3)
        if g is not None:
            g_tiles = scratch("g tiles", *tiles.shape)
            g_tiles.view(-1, per_chunk, self.tile, self.tile).copy_(diagonal(g).movedim(-1, 1))
            d_scaled = scratch("dQ", *q.shape), scratch("dK", *k.shape)
        for half in halvings(self.chunk):
            scaled = self.scale_halves(q, k, half, scratch)
            if half < self.tile:
                scaled_q, scaled_k = (x.view(-1, self.tile, self.head_dim) for x in scaled)
                mask = self.masks[half]
                product = scratch.product(scaled_q, scaled_k.transpose(1, 2), scratch("tile", *tiles.shape))
                tiles.addcmul_(product, mask)
                if g is not None:
                    d_product = scratch.operand("tile", torch.mul(g_tiles, mask, out=product))
                    d_q, d_k = (x.view(-1, self.tile, self.head_dim) for x in d_scaled)
                    scratch.product(d_product, scaled_k, d_q)
                    scratch.product(d_product.transpose(1, 2), scaled_q, d_k)
            else:
                scaled_q, scaled_k = (halves(x, half) for x in scaled)
                for i, j in ((0, 1), (1, 0)):
                    out = blocks(weights, half, i, j)
                    product = scratch("block", out.shape[:2].numel(), half, half)
                    scratch.product(scaled_q[i], scaled_k[j].transpose(1, 2), product)
                    out.copy_(product.view(out.shape))
                    if g is not None:
                        product.view(out.shape).copy_(blocks(g, half, i, j))
                        d_product = scratch.operand("block", product)
                        d_q, d_k = (halves(x, half) for x in d_scaled)
                        scratch.product(d_product, scaled_k[j], d_q[i])
                        scratch.product(d_product.transpose(1, 2), scaled_q[i], d_k[j])
            if g is not None:
                from_start, to_end, from_end, to_start = (halves(x, half) for x in self.left)
                for outs, d, (first, second), ahead in (
                    (dq, d_scaled[0], (from_end, from_start), 1),
                    (dk, d_scaled[1], (to_end, to_start), 0),
                ):
                    d = halves(d, half)
                    # Queries in the second half and keys in the first one are those that read forward.
                    halves(outs[0], half)[ahead].addcmul_(d[ahead], (first, second)[ahead][ahead])
                    halves(outs[1], half)[1 - ahead].addcmul_(d[1 - ahead], (first, second)[1 - ahead][1 - ahead])
            self.double(half)
        self.keep(s, n, scratch)
        diagonal(weights).movedim(-1, 1).copy_(tiles.view(-1, per_chunk, self.tile, self.tile))
        return weights

    def start_gradient(self, like: Tensor) -> None:
        shape = self.batch, self.heads, *self.chunks, self.head_dim
        self.gradient = [like.new_empty(shape) for _ in range(2)]
        self.by_slice = [slices_of(x, self.pairs) for x in self.gradient]

    def gradient_of(self, way: int, s: int, n: slice) -> Tensor:
        """`(bh, n, c, d)`"""
        return self.by_slice[way][s][:, n]

    def add_between(self, queries, keys, through: Tensor, s: int, n: slice, scratch: Scratch) -> None:
        shape = (-1, n.stop - n.start, self.chunk, self.ways, self.head_dim)
        through = through.view(-1, n.stop - n.start, self.ways, self.head_dim)
        (q, dq), (k, dk) = ([x.view(shape).unbind(3) for x in pair] for pair in (queries, keys))
        for way in range(self.ways):
            of_queries = torch.mul(q[way], dq[way], out=scratch("of queries", *q[way].shape))
            total = of_queries.sum(-2).addcmul_(through[:, :, way], self.kept_at[way][:, n])
            crossing = of_queries.neg_().addcmul_(k[way], dk[way])
            running_sums_(crossing, is_backward=way == 1).add_(total.unsqueeze(-2))
            self.gradient_of(way, s, n).add_(crossing)

    def gradients(self, length: int, forward: Tensor, backward: Tensor) -> tuple[Tensor, Tensor]:
        return tuple(x.flatten(2, 3)[:, :, :length].contiguous() for x in self.gradient)


cpu_diagonal = cpu_operator(
    "diagonal",
    partial(compute_in_chunks, make_decays=DiagonalDecays),
    partial(compute_gradients_in_chunks, make_decays=DiagonalDecays),
    diagonal_chunk_body,
    allocate_state,
)
register_kernels("cpu", diagonal=cpu_diagonal)
