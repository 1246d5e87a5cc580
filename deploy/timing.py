# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Interleaved timing of calls."""

import math
import time
from collections.abc import Callable

import torch


def cpu_seconds(calls: dict[str, Callable[[], object]], repeats: int, budget: float = math.inf) -> dict[str, list]:
    """
    Measure the seconds of CPU time of each call, with one thread, which other processes disturb least. Calls take
    turns, so that a change of the machine's speed affects all of them. No round begins after `budget` seconds.
    """
    seconds = {name: [] for name in calls}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    begin = time.process_time()
    try:
        for n in range(repeats):
            if n and time.process_time() - begin > budget:
                break
            for name, call in calls.items():
                start = time.process_time()
                call()
                seconds[name].append(time.process_time() - start)
    finally:
        torch.set_num_threads(threads)
    return seconds
