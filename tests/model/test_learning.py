# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Whether a model can tell left from right (SPEC §11): by symmetry, and by what it learns."""

import pytest
import torch

from configuration_lion import LionConfig, lion_preset, published_fields
from modeling_lion import LionForMaskedLM, LionModel


SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
SYMBOLS, LENGTH = 32, 32


@pytest.mark.parametrize("fields", [{}, {"conv_kernel": 3}, {"head_directions": "alternate"}], ids=str)
@pytest.mark.parametrize("mixer_type", ["lit", "decay", "selective"])
def test_what_a_reversed_text_becomes(mixer_type, fields):
    """As published, f(reversed x) = reversed f(x); heads of one direction and filters with sides differ."""
    torch.manual_seed(0)
    published = published_fields("text") | SIZES | {"position_embedding_type": "none", "vocab_size": 50}
    config = LionConfig(mixer_type=mixer_type, **published | fields)
    model = LionModel(config).double().eval()
    tokens = torch.randint(0, 50, (2, 20))
    with torch.no_grad():
        ahead, back = model(tokens).last_hidden_state, model(tokens.flip(1)).last_hidden_state.flip(1)
    if fields:
        assert (ahead - back).abs().max() > 1e-3
    else:
        torch.testing.assert_close(ahead, back)


def share_of_left_neighbours(steps: int, **fields) -> list[float]:
    """Share of tokens whose left neighbour is named rightly after training, at that length and at 8 times it."""
    torch.manual_seed(0)
    config = lion_preset("lion-text-small", vocab_size=SYMBOLS + 1, **SIZES, max_position_embeddings=LENGTH, **fields)
    model = LionForMaskedLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=steps, pct_start=0.1)

    def batch(rows: int, length: int):
        tokens = torch.randint(1, SYMBOLS + 1, (rows, length))
        return tokens, torch.cat((torch.zeros(rows, 1, dtype=torch.long), tokens[:, :-1]), dim=1)

    for _ in range(steps):
        tokens, neighbours = batch(16, LENGTH)
        model(input_ids=tokens, labels=neighbours).loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    shares = []
    with torch.no_grad():
        for length in (LENGTH, 8 * LENGTH):
            tokens, neighbours = batch(32, length)
            shares.append((model(input_ids=tokens).logits.argmax(-1) == neighbours).double().mean().item())
    return shares


@pytest.mark.slow
def test_the_recommended_model_knows_its_left_neighbour():
    trained, longer = share_of_left_neighbours(120)
    assert trained >= 0.99 and longer >= 0.95


@pytest.mark.slow
def test_one_way_heads_are_enough_to_know_it():
    trained, longer = share_of_left_neighbours(200, conv_kernel=0)
    assert trained >= 0.95 and longer >= 0.9
