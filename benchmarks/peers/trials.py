# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The protocol of `bench_search.py` as data: its contestants, and what is tried for each of them. Every contestant has
eight trials, fixed before they were run.

A trial is fields of `LionConfig` that replace those of the contestant. `rate` multiplies the learning rate, and
`fan_in` gives the mixers of two Mamba-2 and Vim the initial weights of their authors; `norm_type` replaces all norms. The
first trial changes nothing.
"""

TRIALS = 8
SEARCH_SEED = 0
SEEDS = (1, 2, 3)  # of the choice: the seed that chose does not count
CONTESTANTS = (
    *("softmax", "LION", "LION-Delta", "LION-Delta, two key heads", "LION, one key head", "LION, last layer full"),
    *("two Mamba-2", "Vim", "Hydra", "GLA", "local mean"),
)

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
}


def trials_of(contestant: str) -> list[dict]:
    """Eight settings, the same for every scale."""
    return [*RATES, NORMS, UNGATED, WIDE_START, *OWN[contestant]]
