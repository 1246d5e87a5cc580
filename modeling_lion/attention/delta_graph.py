# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The gated delta rule (SPEC §14) in graphs that serve every length, like attention/export_graph.py for linear attention.
A loop of the graph passes states. Runtimes have no triangular solve, so products of blocks invert the triangular
matrices. (A series of powers of such a matrix would lose all digits where keys repeat.)
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..private_apis import scan
from .export_graph import least_log_decay
from .tracing import is_known_true, is_symbolic


# Size of the blocks that are not divided further.
SMALLEST_BLOCK = 16


def graph_delta_body(query, key, value, log_decay, beta, chunk_size):
    """`delta_chunk_body` for any number of chunks."""
    length, (head_dim, value_dim) = query.shape[2], (key.shape[-1], value.shape[-1])
    # If the length may fit one chunk, there is one chunk more, since a single chunk would specialize the graph.
    spare = is_symbolic(length) and not is_known_true(length > chunk_size)
    num_chunks = (length + (1 + spare) * chunk_size - 1) // chunk_size
    padding, chunks = num_chunks * chunk_size - length, (num_chunks, chunk_size)
    query, key, value = (pad(x, (0, 0, 0, padding)).unflatten(2, chunks) for x in (query, key, value))
    log_decay, beta = (pad(x, (0, padding)).unflatten(2, chunks) for x in (log_decay, beta))
    log_decay = log_decay.clamp(min=least_log_decay(log_decay.dtype))
    through = log_decay.cumsum(-1)
    before, total = through - log_decay, through[..., -1:]
    from_start, to_end = before.exp().unsqueeze(-1), (total - before).exp()
    token = torch.arange(chunk_size, device=query.device)
    sees = (token.unsqueeze(1) >= token).to(query.dtype)
    mask = (before.unsqueeze(-1) - before.unsqueeze(-2)).clamp(max=0).exp() * beta.unsqueeze(-2) * sees
    keys = key.transpose(-1, -2)
    reads = key @ keys * mask
    # OpenVINO multiplies wrongly in seven dimensions, of which some are known at run time only.
    inverse = unit_triangular_inverse(reads.flatten(0, 2)).view(reads.shape)
    missing, read = (inverse @ torch.cat((value, key * from_start), dim=-1)).split((value_dim, head_dim), dim=-1)
    writes = (key * (to_end * beta).unsqueeze(-1)).transpose(-1, -2)
    # A chunk turns the state S into (keep - writes read) S + writes missing.
    keep = torch.eye(head_dim, dtype=key.dtype, device=key.device) * total.exp().unsqueeze(-1)
    states = pass_matrices(keep - writes @ read, writes @ missing)
    output = query @ keys * mask @ (missing - read @ states) + (query * from_start) @ states
    return output.flatten(2, 3).index_select(2, torch.arange(length, device=output.device))


def pass_matrices(factors: Tensor, added: Tensor) -> Tensor:
    """The state before each chunk, `(b, h, n, d, e)`, at first 0; chunk n turns it into factor_n S + added_n."""
    first = torch.zeros_like(added[:, :, 0])
    if not is_symbolic(added.shape[2]):
        states = [first]
        for factor, x in zip(factors.unbind(2)[:-1], added.unbind(2)[:-1], strict=True):
            states.append(factor @ states[-1] + x)
        return torch.stack(states, dim=2)

    def step(state: Tensor, of_chunk: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return of_chunk[0] @ state + of_chunk[1], state.clone()

    return scan(step, first, (factors.movedim(2, 0), added.movedim(2, 0)))[1].movedim(0, 2)


def unit_triangular_inverse(matrix: Tensor) -> Tensor:
    """(I + the part of `matrix`, `(..., c, c)`, below its diagonal)⁻¹."""
    size = matrix.shape[-1]
    if size > SMALLEST_BLOCK and size % 2 == 0:
        half = size // 2
        below = matrix[..., half:, :half]
        blocks = torch.stack((matrix[..., :half, :half], matrix[..., half:, half:]), dim=-3)
        first, second = unit_triangular_inverse(blocks).unbind(-3)
        above = torch.zeros_like(below)
        rows = torch.cat((first, above), dim=-1), torch.cat((-(second @ below @ first), second), dim=-1)
        return torch.cat(rows, dim=-2)
    row = torch.arange(size, device=matrix.device).unsqueeze(1)
    inverse, block = torch.eye(size, dtype=matrix.dtype, device=matrix.device), 1
    while block < size:  # join pairs of inverted blocks of the diagonal
        is_between = (row // (2 * block) == row.T // (2 * block)) & (row // block > row.T // block)
        inverse = inverse - inverse @ (matrix * is_between.to(matrix.dtype)) @ inverse
        block *= 2
    return inverse
