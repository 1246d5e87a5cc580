# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Decays per channel against SPEC §2 written out, and where they must give what decays per token give."""

import math
from functools import partial

import pytest
import torch
from attention_forms import EVERY_FORM, FORMS, naive

from modeling_lion import LionConfig, LionModel
from modeling_lion.attention import lion_attention as attention
from modeling_lion.attention import plain_diagonal as attention_diagonal
from modeling_lion.attention.decay import LogDecay
from modeling_lion.attention.reference import reference_attention
from modeling_lion.layout.scans import scan_attention, scan_orders
from modeling_lion.mixers.linear_decay import DecayGate, initial_decay_logits


BATCH, HEADS, HEAD_DIM, VALUE_DIM = 2, 3, 4, 5


def make_inputs(length: int) -> list[torch.Tensor]:
    """Query, key, value, and one decay for every channel of the keys."""
    query, key = torch.rand(2, BATCH, HEADS, length, HEAD_DIM, dtype=torch.float64)
    value = torch.randn(BATCH, HEADS, length, VALUE_DIM, dtype=torch.float64)
    return [query, key, value, torch.rand(BATCH, HEADS, length, HEAD_DIM, dtype=torch.float64).log()]


@pytest.mark.parametrize("kernel", EVERY_FORM.values(), ids=EVERY_FORM)
def test_every_channel_has_a_mask_of_its_own(kernel, equal):
    query, key, value, log_decay = make_inputs(7)
    decay = log_decay[0, 0].exp()
    weights = torch.zeros(7, 7, dtype=torch.float64)
    for i in range(7):
        for j in range(7):
            path = range(j, i) if j <= i else range(i + 1, j + 1)
            for c in range(HEAD_DIM):
                weights[i, j] += query[0, 0, i, c] * key[0, 0, j, c] * math.prod(float(decay[t, c]) for t in path)
    expected = weights @ value[0, 0] / weights.sum(1, keepdim=True)
    equal(kernel(query, key, value, log_decay, chunk_size=2)[0][0, 0], expected)


@pytest.mark.parametrize("kernel", EVERY_FORM.values(), ids=EVERY_FORM)
def test_equal_channels_are_decays_per_token(kernel, equal):
    query, key, value, log_decay = make_inputs(21)
    log_decay = log_decay[..., 0]
    by_channel = log_decay.unsqueeze(-1).expand_as(key)
    expected, _ = kernel(query, key, value, log_decay, chunk_size=4)
    equal(kernel(query, key, value, by_channel, chunk_size=4)[0], expected)
    scans = scan_orders("hilbert", 4, 5)
    both = {"scans": scans, "normalization": "sum", "chunk_size": 4}
    along_scans = lambda q, k, v, pair, **options: kernel(q, k, v, pair.forward, **options)
    both_scans = lambda x: LogDecay(*[torch.cat((x, x / 2), dim=1)] * 2)
    expected, _ = scan_attention(along_scans, query, key, value, both_scans(log_decay), **both)
    equal(scan_attention(along_scans, query, key, value, both_scans(by_channel), **both)[0], expected)


@pytest.mark.parametrize("form", ["parallel", "chunk"])
@pytest.mark.parametrize("tokens", [1, 50, 150])
def test_slices_of_plain_operations_do_not_matter(tokens, form, monkeypatch, equal):
    """What serves GPUs; on a CPU there is code by hand, tested in test_attention.py."""
    inputs = make_inputs(45)
    expected, _ = naive(*inputs)
    monkeypatch.setattr(attention, "backend_of", lambda *args: "plain")
    monkeypatch.setattr(attention_diagonal, "CHANNEL_TOKENS_AT_ONCE", tokens)
    equal(FORMS[form](*inputs, chunk_size=8)[0], expected)


@pytest.mark.parametrize("head_directions", ["both", "alternate"])
@pytest.mark.parametrize(("length", "chunk_size"), [(5, 64), (16, 16), (40, 32), (150, 64)])
def test_both_directions_have_gradients_of_their_own(length, chunk_size, head_directions, equal):
    """Chunks of one tile, of several, and several of them, with other decays forward than backward."""
    query, key, value, forward = make_inputs(length)
    inputs = query, key, value, forward, forward.flip(1) * 0.3
    results = []
    for attend in (reference_attention, partial(attention.lion_attention, form="chunk", chunk_size=chunk_size)):
        leaves = [x.detach().requires_grad_() for x in inputs]
        output, _ = attend(*leaves[:3], LogDecay(*leaves[3:]), head_directions=head_directions)
        results.append([output, *torch.autograd.grad(output.square().sum(), leaves)])
    for result, expected in zip(*results[::-1], strict=True):
        equal(result, expected)


def test_shapes_are_checked():
    query, key, value, log_decay = make_inputs(5)
    with pytest.raises(ValueError, match=r"log_decay.*head_dim\) = \(2, 3, 5, 4\); got \(2, 3, 5, 3\)"):
        FORMS["chunk"](query, key, value, log_decay[..., :3])


def test_initial_half_lives_are_spread_over_heads_and_channels():
    config = LionConfig(mixer_type="diagonal", num_attention_heads=12)
    half_lives = -math.log(2) / torch.nn.functional.logsigmoid(initial_decay_logits(config).double()).view(12, 64)
    assert half_lives.max().item() == pytest.approx(512, rel=1e-4)
    assert half_lives.min().item() == pytest.approx(1, rel=1e-4)
    assert half_lives[-1, 0].item() == pytest.approx(4, rel=1e-4)
    slowest = half_lives[:, :1] / torch.arange(1, 65)
    torch.testing.assert_close(half_lives, slowest.clamp(min=1), rtol=1e-3, atol=0)


@pytest.mark.parametrize("mixer_type", ["selective", "diagonal"])
def test_softplus_gates_start_where_sigmoid_gates_do(mixer_type, find_case, log, equal):
    case = find_case("LionForMaskedLM")
    bounded = case.model(mixer_type)
    assert not log
    model = case.model(mixer_type, decay_activation="softplus").train()
    assert len(log) == 1 and "softplus" in log[0] and "NaN" in log[0]
    hidden_states = torch.randn(2, 9, 16, dtype=torch.float64)
    mixers = [m.lion.layers[1].attention.mixer for m in (bounded, model)]
    gates = [next(m for m in mixer.modules() if isinstance(m, DecayGate)) for mixer in mixers]
    for gate in gates:
        torch.nn.init.zeros_(gate.weight)
    equal(*(mixer.log_decay(hidden_states) for mixer in mixers))
    torch.nn.init.normal_(gates[1].weight, std=30.0)  # decays from 1 to far below the smallest number
    inputs = case.inputs(model.config) | case.labels(model.config)
    for kernel in ("eager", "parallel", "chunk", "rnn"):
        model.set_attn_implementation(kernel)
        model.zero_grad()
        model(**inputs).loss.backward()
        for name in ("weight", "bias", "log_rate_bias"):
            gradient = getattr(gates[1], name).grad
            assert gradient.isfinite().all() and gradient.any(), (kernel, name)


def test_half_precision_keeps_the_gates_in_float32(tmp_path):
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    model = LionModel(LionConfig(mixer_type="diagonal", decay_activation="softplus", vocab_size=40, **sizes))
    model.save_pretrained(tmp_path)
    loaded = LionModel.from_pretrained(tmp_path, dtype=torch.bfloat16)
    for name, parameter in loaded.named_parameters():
        assert parameter.dtype == (torch.float32 if "decay" in name else torch.bfloat16), name
    assert loaded(torch.randint(1, 40, (2, 9))).last_hidden_state.dtype == torch.bfloat16
