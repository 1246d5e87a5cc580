# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The protocol of `bench_search.py` as data: its contestants, and what is tried for each of them. Every contestant has
eight trials, fixed before they were run.

A trial is fields of `LionConfig` that replace those of the contestant. `rate` multiplies the learning rate, and
`fan_in` gives the mixers of two Mamba-2 and Vim the initial weights of their authors; `norm_type` replaces all norms.
The first trial changes nothing.
"""

TRIALS = 8
SEARCH_SEED = 0
SEEDS = (1, 2, 3)  # of the choice: the seed that chose does not count
CONTESTANTS = (
    *("softmax", "LION", "LION-Delta", "LION-Delta, two key heads", "LION, one key head", "LION, last layer full"),
    *("two Mamba-2", "Vim", "Hydra", "GLA", "local mean"),
    *("LION-D", "LION-D, no division", "LION-D, N(0, 1) decays"),
    *("LION-S", "LION-S, no division", "LION-S, listed decays"),
)

# What the paper's models for texts have and ours have not, φ = identity without a division, and the listing's decays.
NO_DIVISION = {"feature_map": "identity", "normalization": "none"}
AS_PUBLISHED = {
    "LION-LIT, no division": NO_DIVISION | {"attention_layer_norm": True},
    "LION-D, no division": NO_DIVISION,
    "LION-S, no division": NO_DIVISION,
    "LION-D, N(0, 1) decays": {"mixer_type": "decay_listed"},
    "LION-S, listed decays": {"mixer_type": "selective_listed"},
}

RATES = ({}, {"rate": 2.0}, {"rate": 4.0})
NORMS, UNGATED, WIDE_START = {"norm_type": "rms_norm"}, {"use_gated_mlp": False}, {"initializer_range": 0.1}
# Two axes of each contestant's own.
OWN: dict[str, tuple[dict, dict]] = {
    "softmax": ({"num_attention_heads": 2}, {"position_embedding_type": "absolute", "rope_parameters": None}),
    "LION": ({"num_attention_heads": 2}, {"conv_kernel": 5}),
    # The next two were added after the searches of the others.
    "LION-Delta": ({"num_attention_heads": 2}, {"feature_map": "identity"}),
    "LION-Delta, two key heads": ({"num_key_heads": 1}, {"feature_map": "identity"}),
    "LION, one key head": ({"num_key_heads": 2}, {"normalization": "none"}),
    "LION, last layer full": ({"num_attention_heads": 2}, {"rope_parameters": None}),
    "two Mamba-2": ({"num_attention_heads": 2}, {"fan_in": True}),
    "Vim": ({"rate": 0.5}, {"fan_in": True}),  # its mixer has no heads
    "Hydra": ({"num_attention_heads": 2}, {"hydra_state": 32}),
    "GLA": ({"num_attention_heads": 2}, {"rate": 0.5}),
    "local mean": ({"neighbours": 1}, {"neighbours": 7}),
    "LION-D": ({"num_attention_heads": 2}, {"conv_kernel": 3}),
    "LION-S": ({"num_attention_heads": 2}, {"conv_kernel": 3}),
}


def trials_of(contestant: str) -> list[dict]:
    """Eight settings, the same for every scale; those of a model for what `AS_PUBLISHED` changes in it."""
    own = contestant.partition(",")[0] if contestant in AS_PUBLISHED else contestant
    return [*RATES, NORMS, UNGATED, WIDE_START, *OWN[own]]
