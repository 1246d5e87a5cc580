# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Two Mamba-2, and a stand-in for Vim (Zhu et al., 2024), as peers: bidirectional encoders made of transformers' own
Mamba2 and Mamba mixers, in the backbone of LION, so that nothing but the mixer differs. (peers/hydra.py has Hydra,
which is one mixer.)

What differs from Vim's paper: there, a block is a mixer alone, with one input projection for both directions, whose
results are added before one output projection. Here, each direction is a whole mixer with `expand=1`, the results are
added, and an MLP follows as in the other models.

On a GPU the mixers take the kernels of mamba-ssm and causal-conv1d where transformers finds them. Elsewhere
transformers has only references. Mamba2's scan is linear attention with a decay for each token, one-way and without a
division, so LION's kernels compute it there: a training step of a mixer takes 0.5 to 0.9 of the time (one thread, 49
to 256 tokens). Mamba has a decay for each number of its state, so no matrix product computes it. Here, a loop over the
tokens does, with a backward pass of its own: a training step of a mixer takes 0.4 of the time that it takes with the
parallel scan of mambapy, which transformers would use. For one sequence, inference scans chunks of it at once.
"""

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional as F
from transformers import Mamba2Config, Mamba2Model, MambaConfig, MambaModel
from transformers.models.mamba import modeling_mamba
from transformers.models.mamba2 import modeling_mamba2
from transformers.utils.import_utils import is_mamba_ssm_available

from modeling_lion import LionConfig
from modeling_lion.attention.decay_mask import LogDecay
from modeling_lion.attention.lion_attention import lion_attention
from modeling_lion.attention.numerics import accumulation_dtype
from modeling_lion.sequence.layout import Layout


SMALL_STEP = 2048  # numbers of a step, up to which Vim's inference scans in chunks


def mamba2_mixers(config: LionConfig, count: int) -> list[nn.Module]:
    heads = {"num_heads": config.num_attention_heads, "head_dim": config.head_dim, "n_groups": 1}
    sizes = {"state_size": 64, "expand": 1, "chunk_size": config.chunk_size}
    mamba = Mamba2Config(hidden_size=config.hidden_size, num_hidden_layers=count, vocab_size=8, **heads, **sizes)
    return [block.mixer for block in Mamba2Model(mamba).layers]


def vim_mixers(config: LionConfig, count: int) -> list[nn.Module]:
    mamba = MambaConfig(hidden_size=config.hidden_size, num_hidden_layers=count, vocab_size=8, expand=1)
    return [block.mixer for block in MambaModel(mamba).layers]


def flip_odd_heads(x: Tensor) -> Tensor:
    """`(batch, heads, length, ...)`, every second head from its end."""
    heads = x.unflatten(1, (-1, 2))
    return torch.stack([heads[:, :, 0], heads[:, :, 1].flip(2)], 2).flatten(1, 2)


def causal_attention(query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor) -> Tensor:
    """
    Linear attention of heads that all read forward, without a division.

    Args:
        query, key, value: of `lion_attention`.
        log_decay: `(batch, heads, length)`, of the step *to* each token.
    """
    leaving = torch.cat([log_decay[:, :, 1:], torch.zeros_like(log_decay[:, :, :1])], 2)
    if query.shape[1] % 2:
        decay = LogDecay(leaving, torch.full_like(leaving, -torch.inf))
        return lion_attention(query, key, value, decay, normalization="none")[0] * query.shape[-1] ** 0.5
    # Heads of LION that read one way do so alternately.
    query, key, value, leaving = (flip_odd_heads(x) for x in (query, key, value, leaving))
    decay = LogDecay(leaving, leaving)
    output, _ = lion_attention(query, key, value, decay, normalization="none", head_directions="alternate")
    return flip_odd_heads(output) * query.shape[-1] ** 0.5


def scan_of_mamba2(hidden_states, dt, A, B, C, chunk_size, D, dt_bias, dt_limit, **kwargs) -> Tensor:
    """`modeling_mamba2.mamba2_chunk_scan` of one group, without states around it."""
    assert B.shape[2] == 1
    assert kwargs.get("initial_states") is None and not kwargs.get("return_final_states")
    dtype = accumulation_dtype(hidden_states.dtype)
    hidden_states, B, C = (x.to(dtype) for x in (hidden_states, B, C))
    dt = F.softplus(dt + dt_bias).clamp(*dt_limit)
    query, key = (x.transpose(1, 2).expand(-1, len(A), -1, -1) for x in (C, B))
    value = (hidden_states * dt[..., None]).transpose(1, 2)
    output = causal_attention(query, key, value, (A * dt).transpose(1, 2))
    return output.transpose(1, 2) + D[:, None] * hidden_states


class SelectiveScan(Function):
    """
    The recurrence of Mamba (Gu and Dao, 2023, algorithm 2): `h ← exp(dt A) h + dt u B`, and of each token `C h`.

    Shapes, with `size` channels and `state` numbers in each: `u`, `dt` and the result `(length, batch, size)`, `A`
    `(state, size)`, `B` and `C` `(length, state, batch)`.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, u: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
        A, B, C = A[:, None], B[..., None], C[..., None]
        inputs, output = u * dt, torch.empty_like(u)
        states = u.new_zeros(len(u) + 1, len(A), *u.shape[1:])  # before the first token, and after each
        for t in range(len(u)):
            torch.mul(inputs[t], B[t], out=states[t + 1])
            states[t + 1].addcmul_((dt[t] * A).exp_(), states[t])
            torch.sum(C[t] * states[t + 1], 0, out=output[t])
        ctx.save_for_backward(u, dt, A, B, C, states)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad_output: Tensor) -> tuple[Tensor, ...]:
        u, dt, A, B, C, states = ctx.saved_tensors
        inputs, grad_inputs, grad_dt = u * dt, torch.empty_like(u), torch.empty_like(dt)
        grad_A, grad_B, grad_C = torch.zeros_like(A), torch.empty_like(B), torch.empty_like(C)
        grad = torch.zeros_like(states[0])  # of the state after token t
        for t in reversed(range(len(u))):
            grad.addcmul_(grad_output[t], C[t])
            torch.sum(grad_output[t] * states[t + 1], -1, keepdim=True, out=grad_C[t])
            torch.sum(inputs[t] * grad, -1, keepdim=True, out=grad_B[t])
            torch.sum(B[t] * grad, 0, out=grad_inputs[t])
            grad.mul_((dt[t] * A).exp_())
            of_exponent = grad * states[t]
            torch.sum(of_exponent * A, 0, out=grad_dt[t])
            grad_A += (of_exponent * dt[t]).sum(1, keepdim=True)
        grad_u = grad_inputs * dt
        return grad_u, grad_dt.addcmul_(grad_inputs, u), grad_A[:, 0], grad_B[..., 0], grad_C[..., 0]


def scan_in_chunks(u: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
    """`SelectiveScan` in about √length steps: of few numbers, where a step costs more than its arithmetic."""
    length, batch, size = u.shape
    steps = math.ceil(length**0.5)
    chunks = math.ceil(length / steps)

    def split(x: Tensor) -> Tensor:  # (length, …) to (steps, chunks, …)
        return F.pad(x, (0, 0, 0, 0, 0, chunks * steps - length)).unflatten(0, (chunks, steps)).transpose(0, 1)

    u, dt, B, C = (split(x) for x in (u, dt, B.mT, C.mT))  # (steps, chunks, batch, size or state)
    u_rows, dt_rows, B_rows, C_rows = (x.flatten(1, 2) for x in (u, dt, B, C))
    output = SelectiveScan.apply(u_rows, dt_rows, A, B_rows.mT, C_rows.mT).unflatten(1, (chunks, batch))
    passed = dt.cumsum(0)[..., None, :]  # of a chunk's steps up to a token
    inputs = (u * dt)[..., None, :] * B[..., None]
    ends = (((passed[-1] - passed) * A).exp_() * inputs).sum(0)  # states behind chunks with nothing in front of them
    starts = torch.zeros_like(ends)
    for n in range(1, chunks):
        starts[n] = (passed[-1, n - 1] * A).exp_() * starts[n - 1] + ends[n - 1]
    output = output + ((passed * A).exp_() * starts * C[..., None]).sum(-2)
    return output.transpose(0, 1).flatten(0, 1)[:length]


def scan_of_mamba(hidden_states, dt, A, B, C, D, z, delta_bias, delta_softplus, return_last_state, **kwargs) -> Tensor:
    """`modeling_mamba.mamba_selective_scan` without states around it."""
    assert delta_softplus and not return_last_state
    dtype = accumulation_dtype(hidden_states.dtype)
    dt = F.softplus(dt + delta_bias[:, None])
    u, dt = (x.to(dtype).permute(2, 0, 1).contiguous() for x in (hidden_states, dt))
    B, C = (x.to(dtype).permute(2, 1, 0).contiguous() for x in (B, C))
    is_small = u[0].numel() * A.shape[1] <= SMALL_STEP and not torch.is_grad_enabled()
    scan = scan_in_chunks if is_small else SelectiveScan.apply
    if hidden_states.is_cuda and dtype == torch.float32:
        from gpu.mamba_scan import TritonSelectiveScan  # needs triton

        scan = TritonSelectiveScan.apply
    output = scan(u, dt, A.to(dtype).T.contiguous(), B, C).permute(1, 2, 0)
    return ((output + D[:, None] * hidden_states) * F.silu(z)).to(hidden_states.dtype)


@contextmanager
def fast_scan(device: torch.device) -> Iterator[None]:
    """In this context, transformers' mixers take the scans of this file, unless mamba-ssm computes them on a GPU."""
    with ExitStack() as stack:
        if device.type == "cpu" or not is_mamba_ssm_available():
            stack.enter_context(patch.object(modeling_mamba, "mamba_selective_scan", scan_of_mamba))
            stack.enter_context(patch.object(modeling_mamba2, "mamba2_chunk_scan", scan_of_mamba2))
        yield


# Mixers of transformers, with the weights that its models begin with.
MAMBA_PEERS = {"two Mamba-2": mamba2_mixers, "Vim": vim_mixers}


class BidirectionalMamba(nn.Module):
    """Two mixers, one of which reads from the end; in the place of LION's attention, and with its arguments."""

    def __init__(self, mixer: nn.Module, reverse_mixer: nn.Module):
        super().__init__()
        self.mixer, self.reverse_mixer = mixer, reverse_mixer

    def forward(self, hidden_states: Tensor, layout: Layout, **kwargs) -> tuple[Tensor, None]:
        """
        Args:
            hidden_states: `(batch, length, hidden_size)`.
            layout: says which tokens are real.

        Returns:
            The mixed hidden states, and `None` for the weights of other mixers.
        """
        attention_mask = layout.tokens.is_real
        reverse_mask = None if attention_mask is None else attention_mask.flip(1)
        with fast_scan(hidden_states.device):
            mixed = self.mixer(hidden_states, attention_mask=attention_mask)
            reverse = self.reverse_mixer(hidden_states.flip(1), attention_mask=reverse_mask).flip(1)
        return mixed + reverse, None


def use_mamba(model: nn.Module, peer: str) -> nn.Module:
    """A LION with linear attention, whose attention this replaces by the mixers of a peer."""
    layers = model.base_model.layers
    mixers = MAMBA_PEERS[peer](model.config, 2 * len(layers))
    for layer, mixer, reverse_mixer in zip(layers, mixers[::2], mixers[1::2], strict=True):
        layer.attention = BidirectionalMamba(mixer, reverse_mixer)
    return model
