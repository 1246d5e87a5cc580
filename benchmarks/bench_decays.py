# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
How long heads should remember before training: LION-D and -S trained from several initial decays, all else equal.

    python benchmarks/bench_decays.py                # all four tasks: two hours on a CPU core
    python benchmarks/bench_decays.py --tasks mlm    # one: half an hour

Tasks, sizes and trainings are those of `bench_quality.py`, and so are the table, `quality.csv`, and the way to go on
after a stop. They are compared on the validation split: a default chosen by that leaves the test split for the
comparison with other models.
"""

from collections.abc import Callable
from functools import partial
from unittest.mock import patch

import torch
from bench_quality import SCALES, chosen_tasks, common_arguments, load_data, models_of, train_once
from report import write_pages

from modeling_lion import LionConfig
from modeling_lion.mixers import decay
from modeling_lion.mixers.decay import initial_decay_logits


def normal(config: LionConfig) -> torch.Tensor:
    """As in the published code: N(0, 1), a half-life of one token for the median head."""
    return torch.randn(config.num_scans * config.num_attention_heads)


# Half-lives in tokens; the default is from half a token to the context. Another one has to be no worse on any task,
# and better on one.
INITIAL_DECAYS: dict[str, Callable[[LionConfig], torch.Tensor]] = {
    "default": initial_decay_logits,
    "1 token to the context": partial(initial_decay_logits, shortest_half_life=1),
    "4 tokens to the context": partial(initial_decay_logits, shortest_half_life=4),
    "1 token to a quarter of the context": partial(initial_decay_logits, shortest_half_life=1, contexts=1 / 4),
    "4 tokens to a quarter of the context": partial(initial_decay_logits, shortest_half_life=4, contexts=1 / 4),
    "16 tokens to 4 contexts": partial(initial_decay_logits, shortest_half_life=16, contexts=4),
    "normal logits": normal,
}


def main(args: list[str] | None = None) -> None:
    parser = common_arguments(__doc__, ["LION-D", "LION-S"], [0, 1])
    args = parser.parse_args(args)
    for task in chosen_tasks(parser, args):
        data = load_data(task, SCALES[args.scale][task], args.cache_dir)
        for model in models_of(data, args.models):
            for name, initial in INITIAL_DECAYS.items():
                for seed in args.seeds:
                    with patch.object(decay, "initial_decay_logits", initial):
                        train_once(task, model, seed, data, args, initial_decays=name)
    write_pages(args.output_dir, args.scale)


if __name__ == "__main__":
    main()
