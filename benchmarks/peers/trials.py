# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The protocol of `bench_search.py` as data: its contestants, and what is tried for each of them. Every contestant has
eight trials in every task, fixed before any of them was run.

A trial is fields of `LionConfig` that replace those of the contestant. `rate` multiplies the task's learning rate, and
`fan_in` gives the mixers of Hydra and Vim the initial weights of their authors; `norm_type` replaces all norms. The
first trial changes nothing.
"""

TRIALS = 8
SEARCH_SEED = 0
SEEDS = (1, 2, 3)  # of the choice: the seed that chose does not count
CONTESTANTS = ("softmax", "LION", "LION, one key head", "LION, last layer full", "Hydra", "Vim")

RATES = ({}, {"rate": 2.0}, {"rate": 4.0})
UNGATED, WIDE_START = {"use_gated_mlp": False}, {"initializer_range": 0.1}
# What the model reads out: of tasks that label every token nothing is pooled, and the type of norm takes that place.
POOLING = {"pooled": {"pooling": "cls"}, "per token": {"norm_type": "rms_norm"}}
# Images have learnt positions, and a larger range from the beginning (bench_quality.py).
START = {"text": WIDE_START, "image": {"initializer_range": 0.02}}
# Two axes of each contestant's own.
OWN: dict[str, dict[str, tuple[dict, dict]]] = {
    "softmax": {
        "text": ({"num_attention_heads": 2}, {"position_embedding_type": "absolute", "rope_parameters": None}),
        "image": ({"num_attention_heads": 2}, {"num_attention_heads": 8}),
    },
    "LION": {
        "text": ({"num_attention_heads": 2}, {"conv_kernel": 5}),
        "image": ({"num_attention_heads": 2}, {"conv_kernel": 5}),
    },
    # Added after the searches of all others on scenes, and of all but Vim on recall and digits.
    "LION, one key head": {
        "text": ({"num_key_heads": 2}, {"normalization": "none"}),
        "image": ({"num_key_heads": 2}, {"normalization": "none"}),
    },
    "LION, last layer full": {
        "text": ({"num_attention_heads": 2}, {"rope_parameters": None}),
        "image": ({"num_attention_heads": 2}, {"conv_kernel": 5}),
    },
    "Hydra": {
        "text": ({"num_attention_heads": 2}, {"fan_in": True}),
        "image": ({"num_attention_heads": 2}, {"fan_in": True}),
    },
    "Vim": {  # its mixer has no heads
        "text": ({"rate": 0.5}, {"fan_in": True}),
        "image": ({"rate": 0.5}, {"fan_in": True}),
    },
}


def trials_of(contestant: str, modality: str, is_pooled: bool) -> list[dict]:
    """Eight settings, the same for every scale."""
    pooling = POOLING["pooled" if is_pooled else "per token"]
    return [*RATES, pooling, UNGATED, START[modality], *OWN[contestant][modality]]
