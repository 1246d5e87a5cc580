# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The tokens of one model call: which are real, where packed sequences begin, their positions, and which are neighbours
(SPEC §4). No other module reads the masks, borders and positions that users pass.

`LionModel` and linearized models make one `Tokens` per call. Its methods zero padded tokens, make window masks, move
real tokens together, and split packed rows into sequences.
"""

import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import wraps

import torch
from torch import Tensor
from torch.nn.functional import pad

from .attention.tracing import is_readable
from .private_apis import assert_in_graph, version_of


# A mask that is added to scores hides a token if its number is at most this.
HIDDEN = -1e4


@dataclass
class Tokens:
    """
    Attributes:
        is_real: False for padding, `(batch, length)`, bool; `None` if all are known to be real.
        cu_seqlens: borders of packed sequences, which do not see each other, `(num_sequences + 1,)`, int: from 0 to
            `length` if every row has the same borders, or from 0 to `batch * length`, counted through all rows. `None`
            for one sequence in each row.
        position_ids: positions of a text, `(batch or 1, length)`, int64.
        order: the index of the token at each place, `(batch, length)`, int64, in an order in which the real tokens of
            every sequence are contiguous: leading padding first, then the real tokens, then all other padding. Windows
            and convolutions, which see a few neighbours, use it to skip padded tokens. `None` if no padding is between
            real tokens, and in models that need no neighbours.
        place: the place of each token, the inverse of `order`.
        row_lengths: the number of real tokens in each row, if `read_mask` could read it.
        window: the number of tokens on each side that a query sees, if `read_mask` read a mask that hides others.
    """

    is_real: Tensor | None = None
    cu_seqlens: Tensor | None = None
    position_ids: Tensor | None = None
    order: Tensor | None = None
    place: Tensor | None = None
    row_lengths: list[int] | None = None
    window: int | None = None

    def with_order(self) -> "Tokens":
        """
        These tokens, with their `order` if padding is between real tokens of the same sequence. A graph cannot read
        the mask and always gets an order, which is the identity without such padding.
        """
        is_real = self.is_real
        if is_real is None or is_readable(is_real) and not has_inner_padding(is_real, self.cu_seqlens):
            return self
        place = contiguous_places(is_real, self.cu_seqlens)
        return replace(self, order=place.argsort(dim=1), place=place)

    def contiguous(self) -> "Tokens":
        """These tokens in the order of `reordered`; the result has no `order` itself."""
        if self.order is None:
            return self
        return replace(self, is_real=self.reordered(self.is_real), order=None, place=None)

    def rows(self, index: Tensor) -> "Tokens":
        """The rows of the batch with these indices, without borders."""
        is_real, order, place = (None if x is None else x[index] for x in (self.is_real, self.order, self.place))
        return Tokens(is_real, order=order, place=place)

    def reordered(self, x: Tensor, dim: int = 1) -> Tensor:
        """Reorder `(batch, ..., length, ...)` along `dim` by `order`; differentiable."""
        return x if self.order is None else take_tokens(x, self.order, dim)

    def restored(self, x: Tensor, dim: int = 1) -> Tensor:
        """Undo `reordered`; differentiable."""
        return x if self.order is None else take_tokens(x, self.place, dim)

    def zero_padding(self, x: Tensor) -> Tensor:
        """Set padded tokens of `(batch, length, ...)` to 0."""
        return x if self.is_real is None else x * self.is_real.view(*x.shape[:2], *[1] * (x.dim() - 2)).to(x.dtype)

    def fold(self, key: Tensor, log_decay: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """
        Keys, `(batch, length, heads, head_dim)`, and log decays, `(heads,)`, `(batch, heads, length)` or `None`, with
        which a padded token has no effect: key 0 and λ = 1 (SPEC §4).
        """
        if self.is_real is not None and log_decay is not None:
            log_decay = log_decay.view(1, -1, 1) if log_decay.dim() == 1 else log_decay
            log_decay = torch.where(self.is_real[:, None], log_decay, 0)
        return self.zero_padding(key), log_decay

    def window_positions(self, like: Tensor, reach: int) -> Tensor:
        """
        Positions of the tokens of `like`, `(batch, length, ...)`, for a window of `reach` tokens on each side: `(1 or
        batch, length)`, int64. Their differences are distances in real tokens, by `order`; between different sequences
        they are more than `reach`.
        """
        length = like.shape[1]
        token = torch.arange(length, device=like.device).unsqueeze(0)
        position = token if self.order is None else self.place
        return position if self.cu_seqlens is None else position + sequence_offsets(self.cu_seqlens, length, reach)

    def seen(self, like: Tensor, reach: int | None, queries: Tensor | slice = slice(None)) -> Tensor:
        """
        Which keys each query, all by default, sees in `like`, `(batch, length, ...)`: the real tokens of its sequence
        that are at most `reach` real tokens away, all of them if it is `None`; `(1 or batch, 1, queries, length)`,
        bool.
        """
        reach = like.shape[1] if reach is None else reach
        position = self.window_positions(like, reach)
        return window_mask(position[:, queries], position, reach, self.is_real).unsqueeze(1)

    def sequence(self, like: Tensor) -> Tensor:
        """The number of the packed sequence that each token of `(batch, length, ...)` belongs to, `(length,)`."""
        if self.cu_seqlens is None:
            return torch.zeros(like.shape[1], dtype=torch.long, device=like.device)
        return sequence_of_each_token(self.cu_seqlens, like.shape[1])

    def sequence_lengths(self) -> Tensor:
        """The last position of a real token in the sequence of each token plus 1, `(batch or 1, 1 or length)`."""
        ends = self.position_ids + 1
        ends = ends if self.is_real is None else ends * self.is_real
        if self.cu_seqlens is None:
            return ends.amax(dim=1, keepdim=True)
        sequence = self.sequence(ends)
        longest = ends.new_zeros(len(ends), len(self.cu_seqlens) - 1)
        return longest.scatter_reduce(1, sequence.expand_as(ends), ends, "amax")[:, sequence]

    def differ_by_row(self, length: int) -> bool:
        """Whether rows have different borders; False in a graph, where they cannot be read."""
        if self.cu_seqlens is None or not is_readable(self.cu_seqlens):
            return False
        return int(self.cu_seqlens[-1]) != length

    def sequences_as_rows(self, like: Tensor, are_equal: bool = False) -> Iterator[tuple[Tensor, Tensor]]:
        """
        Put each sequence of the packed rows `like`, `(batch, length, ...)`, into a row of its own, without padding.
        Leave out sequences without real tokens.

        Yield groups of sequences of similar lengths, padded to the longest one; if `are_equal`, of one length. A group
        is a pair: the indices of tokens, counted through all rows, and a mask of real tokens, `(sequences, longest)`
        each.
        """
        batch, length = like.shape[:2]
        borders = torch.tensor([0, length]) if self.cu_seqlens is None else self.cu_seqlens
        borders = borders.to(like.device).long()
        if not self.differ_by_row(length):
            starts = torch.arange(batch, device=like.device).unsqueeze(1) * length
            borders = torch.cat(((starts + borders[:-1]).flatten(), starts[-1] + length))
        real = torch.arange(batch * length, device=like.device)
        real = real if self.is_real is None else real[self.is_real.flatten()]
        sequence = torch.searchsorted(borders, real, right=True) - 1
        lengths = torch.bincount(sequence, minlength=len(borders) - 1)
        starts = lengths.cumsum(0) - lengths
        sizes = lengths if are_equal else lengths.clamp(min=1).log2().ceil().long()
        for size in sizes[lengths > 0].unique().tolist():
            some = ((sizes == size) & (lengths > 0)).nonzero().flatten()
            position = torch.arange(int(lengths[some].max()), device=like.device)
            token = (starts[some].unsqueeze(1) + position).clamp(max=len(real) - 1)
            yield real[token], position < lengths[some].unsqueeze(1)

    def in_one_row(self, batch: int) -> "Tokens":
        """These tokens with all rows concatenated to one, for borders that differ by row. Without an `order`."""
        is_real, position_ids = (in_one_row(x, batch) for x in (self.is_real, self.position_ids))
        return Tokens(is_real, self.cu_seqlens, position_ids)


def read_text(
    inputs: Tensor,
    attention_mask: Tensor | None = None,
    position_ids: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
) -> Tokens:
    """
    The tokens of a text, `(batch, length, ...)`, without an `order`. If `cu_seqlens` is `None`, borders are read from
    `position_ids` (`packed_borders`). If `position_ids` is `None`, positions are computed (`token_positions`). The
    `attention_mask` is 1 for real tokens and 0 for padding. Raises a ValueError if a mask or borders do not fit.
    """
    batch, length = inputs.shape[:2]
    is_real = real_tokens(attention_mask, inputs)
    if cu_seqlens is None:
        cu_seqlens = packed_borders(position_ids, is_real, batch)
    else:
        check_borders(cu_seqlens, length, batch)
    tokens = Tokens(is_real, cu_seqlens, position_ids)
    if position_ids is None:
        tokens.position_ids = token_positions(tokens, inputs)
    return tokens


def real_tokens(attention_mask: Tensor | None, inputs: Tensor) -> Tensor | None:
    """`Tokens.is_real` from a mask. Raises a ValueError unless it fits `inputs`, `(batch, length, ...)`."""
    if attention_mask is None:
        return None
    if attention_mask.shape != inputs.shape[:2]:
        raise ValueError(
            f"`attention_mask` must be (batch, length) = {tuple(inputs.shape[:2])}, 1 for real tokens and 0 "
            f"for padding; got {tuple(attention_mask.shape)}."
        )
    if attention_mask.dtype != torch.bool and is_readable(attention_mask) and (attention_mask < 0).any():
        raise ValueError(
            "`attention_mask` has numbers below 0, like masks that are added to scores; give 1 (or True) for real "
            "tokens and 0 (or False) for padding."
        )
    is_real = attention_mask.bool()
    return is_real if may_pad(is_real) else None


def may_pad(is_real: Tensor) -> bool:
    """Whether a mask may hide a token: read on a CPU; True on an accelerator, where reading stalls, and in a graph."""
    return is_real.device.type != "cpu" or not is_readable(is_real) or not bool(is_real.all())


def read_once(read: Callable[..., Tokens]) -> Callable[..., Tokens]:
    """Share the last result of `read` among the layers of a call, for the same mask object in the same version."""
    last = threading.local()

    @wraps(read)
    def read_or_recall(mask: Tensor, *options) -> Tokens:
        version = version_of(mask) if is_readable(mask) else None
        if version is None:
            return read(mask, *options)
        key = version, torch.is_inference_mode_enabled(), options  # autograd cannot save tensors of inference mode
        if getattr(last, "key", None) != key or last.mask() is not mask:
            last.result = read(mask, *options)
            last.mask, last.key = weakref.ref(mask), key
        return last.result

    return read_or_recall


@read_once
def read_mask(mask: Tensor, batch: int, has_window: bool = False) -> Tokens:
    """
    The tokens, with their `order`, of a mask that transformers passes to an attention function.

    Args:
        mask: `(batch, length)`, bool, False for padding; or `(batch or 1, 1, queries or 1, keys)`, bool or added to
            scores, which hides padding, or separates packed sequences with the same borders in every row.
        has_window: whether the mask may also hide keys outside of a window.

    Raises:
        ValueError: if the mask hides other pairs of tokens, or cannot be read, as in a graph.
    """
    tokens = Tokens(mask) if mask.dim() == 2 else None
    if tokens is None and is_readable(mask):
        seen = mask if mask.dtype == torch.bool else mask > HIDDEN
        is_mask = mask.shape[1] == 1 and (mask.dtype == torch.bool or bool(((mask == 0) | ~seen).all()))
        tokens = tokens_of_pairs(seen[:, 0], has_window) if is_mask else None
    if tokens is not None and tokens.is_real is not None:
        is_real = tokens.is_real.expand(batch, -1)
        lengths = is_real.sum(-1).tolist() if is_readable(mask) else None
        return replace(tokens, is_real=is_real, row_lengths=lengths).with_order()
    if tokens is not None:
        return tokens
    raise ValueError(
        f"`attention_mask` {tuple(mask.shape)} is neither padding nor packing, and the text is longer than "
        "`lion_exact_length`: linear attention cannot hide pairs of tokens. Give a mask (batch, length), or "
        '`cu_seq_lens_q` for packed sequences, or use `attn_implementation="sdpa"`.'
    )


def tokens_of_pairs(seen: Tensor, has_window: bool) -> Tokens | None:
    """The tokens of a mask `(batch or 1, queries or 1, keys)`, bool; `None` if it hides other pairs of tokens."""
    if seen.shape[1] == 1:
        return Tokens(seen[:, 0])
    is_real = seen.diagonal(dim1=-2, dim2=-1).contiguous()  # a copy: `read_once` keeps it, and not the mask of pairs
    padding = is_real.unsqueeze(1).expand_as(seen)
    if torch.equal(seen, padding):
        return Tokens(is_real)
    if has_window:
        token = torch.arange(seen.shape[-1], device=seen.device)
        reach = int(((token.unsqueeze(1) - token).abs() * seen).max())
        if torch.equal(seen, window_mask(token, token, reach) & padding):
            return Tokens(is_real, window=reach)
    sequence = pad(~seen[0].diagonal(-1), (1, 0)).cumsum(0)
    if len(seen) > 1 or not torch.equal(seen[0], sequence.unsqueeze(0) == sequence.unsqueeze(1)):
        return None
    return Tokens(cu_seqlens=pad(sequence.bincount().cumsum(0), (1, 0)).to(torch.int32))


def packed_borders(position_ids: Tensor | None, is_real: Tensor | None, batch: int) -> Tensor | None:
    """
    The `cu_seqlens` of `Tokens` from positions, `(batch or 1, length)`: a sequence begins where the position returns
    to the first one of its row, if all other steps are +1 and at least one is (SPEC §13). Other positions are not
    packing. Steps are differences between consecutive real tokens; positions may also count the padding between them.
    `None` if nothing is packed, or if positions cannot be read. A graph raises a RuntimeError when it runs if they say
    that something is.
    """
    is_graph = torch.compiler.is_compiling()
    if position_ids is None or not (is_graph or is_readable(position_ids)):
        return None
    token = torch.arange(position_ids.shape[1], device=position_ids.device).unsqueeze(0)
    is_real = torch.ones_like(position_ids, dtype=torch.bool) if is_real is None else is_real
    position_ids = position_ids.expand_as(is_real)
    last_real = torch.where(is_real, token, -1).cummax(dim=1).values[:, :-1]
    step = position_ids[:, 1:] - position_ids.gather(1, last_real.clamp(min=0))
    follows = is_real[:, 1:] & (last_real >= 0)
    first = position_ids.gather(1, is_real.int().argmax(dim=1, keepdim=True))
    rises = follows & ((step == 1) | (step == token[:, 1:] - last_real))
    returns = follows & (position_ids[:, 1:] == first) & ~rises
    is_packing = (rises | returns | ~follows).all(dim=1, keepdim=True) & rises.any(dim=1, keepdim=True)
    begins = pad(returns & is_packing, (1, 0))
    if is_graph:
        assert_in_graph(~begins.any(), "In a graph, packed sequences need `cu_seq_lens_q`: positions are not read.")
        return None
    if not begins.any():
        return None
    begins[:, 0] = True
    return borders_at(begins[:1] if bool((begins == begins[:1]).all()) else begins.expand(batch, -1))


def indexed_borders(seq_idx: Tensor | None, inputs: Tensor) -> Tensor | None:
    """
    The `cu_seqlens` of `Tokens`, counted through all rows, from the number of each token's sequence, `(batch,
    length)`, which `DataCollatorWithFlattening` can give; `None` without numbers. Raises a ValueError if they do not
    fit `inputs`, `(batch, length, ...)`, or cannot be read, as in a graph.
    """
    if seq_idx is None:
        return None
    if seq_idx.shape != inputs.shape[:2]:
        raise ValueError(
            f"`seq_idx` must be (batch, length) = {tuple(inputs.shape[:2])}, the number of each token's sequence; got "
            f"{tuple(seq_idx.shape)}."
        )
    if not is_readable(seq_idx):
        raise ValueError("A graph does not read `seq_idx`: give `cu_seq_lens_q`, the borders of packed sequences.")
    return borders_at(pad(seq_idx.diff(dim=1) != 0, (1, 0), value=True))


def borders_at(begins: Tensor) -> Tensor:
    """The `cu_seqlens`, counted through all rows, of tokens that begin a sequence, `(batch, length)`, bool."""
    starts = begins.flatten().nonzero().flatten()
    return torch.cat((starts, starts.new_full((1,), begins.numel())))


def check_borders(cu_seqlens: Tensor, length: int, batch: int = 1, may_be_empty: bool = False) -> None:
    """
    Raise a ValueError unless borders rise from 0 to `length`, or to `batch * length`. Equal neighbours are borders of
    an empty sequence, which are refused unless `may_be_empty`. Kernels check this on the CPU only. On an accelerator
    every read stalls, so the model checks once for all layers. A graph only checks, when it runs, that they end at
    `length`.
    """
    is_tensor = isinstance(cu_seqlens, Tensor)
    if not is_tensor or cu_seqlens.dim() != 1 or cu_seqlens.dtype not in (torch.int32, torch.int64):
        got = f"{tuple(cu_seqlens.shape)}, {cu_seqlens.dtype}" if is_tensor else f"a {type(cu_seqlens).__name__}"
        raise ValueError(
            "cu_seqlens must be the borders of packed sequences, a tensor (num_sequences + 1,), int32 or int64; got "
            f"{got}."
        )
    if not is_readable(cu_seqlens):
        if torch.compiler.is_compiling():  # a graph cannot concatenate the rows, as borders that differ need it
            assert_in_graph(cu_seqlens[-1] == length, "In a graph, cu_seqlens must be the same in all rows.")
        return
    borders = cu_seqlens.tolist()
    rising = sorted(borders if may_be_empty else set(borders))
    if borders[:1] != [0] or borders[-1] not in (length, batch * length) or borders != rising:
        or_all = f", or to that of all rows, {batch * length}" if batch > 1 else ""
        raise ValueError(f"cu_seqlens must rise from 0 to the length {length}{or_all}; got {borders}.")


def token_positions(tokens: Tokens, inputs: Tensor) -> Tensor:
    """
    Positions that count real tokens only and restart in every packed sequence (SPEC §4), `(batch or 1, length)`,
    int64. A padded token has the position of the real one before it, or 0. `inputs` are `(batch, length, ...)`.
    """
    is_real, (batch, length) = tokens.is_real, inputs.shape[:2]
    token = torch.arange(length, device=inputs.device)
    last = token.unsqueeze(0) if is_real is None else is_real.cumsum(dim=1) - 1
    if tokens.cu_seqlens is None:
        return last.clamp(min=0)
    if tokens.differ_by_row(length):
        return token_positions(tokens.in_one_row(batch), inputs.new_empty(1, batch * length)).view(batch, length)
    first = tokens.cu_seqlens[tokens.sequence(inputs)]
    before = last[:, first] if is_real is None else last[:, first] + ~is_real[:, first]  # how many are before it
    return (last - before).clamp(min=0)


def in_one_row(x: Tensor | None, batch: int) -> Tensor | None:
    """Concatenate the rows of `(batch or 1, length, ...)`: `(1, batch * length, ...)`."""
    return None if x is None else x.expand(batch, *x.shape[1:]).reshape(1, -1, *x.shape[2:])


def cyclic_positions(position_ids: Tensor, size: int, first: int = 0) -> Tensor:
    """Map positions to rows of a table whose `size` rows from `first` on repeat; rows before `first` do not."""
    return torch.where(position_ids < first, position_ids, (position_ids - first) % size + first)


def sequence_of_each_token(cu_seqlens: Tensor, length: int) -> Tensor:
    """The number of the packed sequence that each token belongs to, `(length,)`, int64."""
    position = torch.arange(length, device=cu_seqlens.device)
    return torch.searchsorted(cu_seqlens, position, right=True) - 1


def sequence_offsets(cu_seqlens: Tensor, length: int, reach: int) -> Tensor:
    """Added to positions, `(length,)`, these offsets put different sequences more than `reach` apart."""
    return sequence_of_each_token(cu_seqlens, length) * (reach + 1)


def window_mask(query_position: Tensor, key_position: Tensor, reach: int, is_real: Tensor | None = None) -> Tensor:
    """
    Which keys a query sees, `(..., q, k)`, bool: the real tokens at most `reach` positions away. Positions, `(..., q)`
    and `(..., k)`, int64, include the `sequence_offsets`; `is_real` is `(..., k)`, bool.
    """
    seen = (query_position.unsqueeze(-1) - key_position.unsqueeze(-2)).abs() <= reach
    return seen if is_real is None else seen & is_real.unsqueeze(-2)


def has_inner_padding(is_real: Tensor, cu_seqlens: Tensor | None) -> bool:
    """Whether there is padding between real tokens of the same sequence. Arguments as in `Tokens`."""
    follows = is_real[:, :-1]  # a token whose neighbour in the same sequence is real
    if cu_seqlens is not None:
        follows = follows.index_fill(1, cu_seqlens[1:-1].long() - 1, False)
    begins = is_real & ~pad(follows, (1, 0))
    if cu_seqlens is None:
        return bool((begins.sum(1) > 1).any())
    before = pad(begins.cumsum(1), (1, 0))[:, cu_seqlens.long()]
    return bool((before.diff(dim=1) > 1).any())


def contiguous_places(is_real: Tensor, cu_seqlens: Tensor | None) -> Tensor:
    """The attribute `place` of `Tokens`; the identity without inner padding."""
    length = is_real.shape[1]
    token = torch.arange(length, device=is_real.device)
    first, end = torch.zeros_like(token), torch.full_like(token, length)
    if cu_seqlens is not None:
        sequence = sequence_of_each_token(cu_seqlens, length)
        first, end = cu_seqlens[sequence].long(), cu_seqlens[sequence + 1].long()
    before = lambda x: pad(x.long().cumsum(1), (1, 0))  # the count before each token, and before the end
    real_before = before(is_real)
    own, total = real_before[:, :-1] - real_before[:, first], real_before[:, end] - real_before[:, first]
    leads = ~is_real & (own == 0)  # padding before the first real token
    leading = before(leads)
    leading = leading[:, end] - leading[:, first]
    after = torch.where(leads, token, token - own + total)
    return torch.where(is_real, first + leading + own, after)


def take_tokens(x: Tensor, index: Tensor, dim: int = 1) -> Tensor:
    """Reorder `(batch, ..., length, ...)` along `dim` by an index `(batch, length)`."""
    batch, length = index.shape
    if dim == 1:  # one index for all rows; gather would expand it to every element
        rows = torch.arange(batch, device=index.device).unsqueeze(1) * length
        return x.flatten(0, 1).index_select(0, (rows + index).flatten()).view(x.shape)
    shape = [batch, *[1] * (x.dim() - 1)]
    shape[dim] = length
    return x.gather(dim, index.view(shape).expand_as(x))
