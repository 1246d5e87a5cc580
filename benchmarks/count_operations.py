# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Count what one layer costs besides arithmetic: operations, calls of functions of `modeling_lion`, and the files that
these are in. Counts are the same on a busy machine. Each is half of what a model of three layers has more than one of
one layer, so that embeddings and heads do not count.

    python benchmarks/count_operations.py
    python benchmarks/count_operations.py --walk LION-S --length 32

The first prints a table; `operations` are those that torch dispatches, with an attention kernel as one of them, as it
is for BERT, and `inside` are those that LION's kernel makes. The second prints what one layer calls, in order.
"""

import argparse
import collections
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import BertConfig, BertModel

import modeling_lion
from configuration_lion import lion_preset
from modeling_lion import LionModel, linearize


PACKAGE = str(Path(modeling_lion.__file__).parent) + os.sep
SIZE = {"hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 256, "vocab_size": 100}


def lion(name: str) -> Callable[[int], nn.Module]:
    return lambda layers: LionModel(lion_preset(name, num_hidden_layers=layers, **SIZE), add_pooling_layer=False)


def bert(layers: int) -> nn.Module:
    return BertModel(BertConfig(num_hidden_layers=layers, **SIZE), add_pooling_layer=False)


MODELS = {
    "LION-LIT": lion("lion-lit-text-base"),
    "LION-D": lion("lion-d-text-base"),
    "LION-S": lion("lion-s-text-base"),
    "LION": lion("lion-text-base"),
    "linearized BERT": lambda layers: linearize(bert(layers), exact_length=256),
    "BERT": bert,
}


def step(model: nn.Module, length: int, trains: bool) -> Callable[[], None]:
    """One call of a model, with its backward pass in training; warmed up."""
    ids = torch.arange(length).unsqueeze(0) % 90
    model.train(trains)

    def run() -> None:
        with nullcontext() if trains else torch.no_grad():
            output = model(ids).last_hidden_state
        if trains:
            output.sum().backward()

    run()
    return run


class Counter(TorchDispatchMode):
    """Counts the operations that are dispatched, and those inside of LION's kernels."""

    def __init__(self):
        super().__init__()
        self.outside = self.inside = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.outside += 1
        if operation.namespace != "lion":
            return operation(*args, **(kwargs or {}))
        with profile(activities=[ProfilerActivity.CPU]) as recorded:
            found = operation(*args, **(kwargs or {}))
        self.inside += sum(event.name.startswith("aten::") and not is_part(event) for event in recorded.events())
        return found


def is_part(event) -> bool:
    """Whether an operation belongs to another one, such as `aten::as_strided` to `aten::transpose`."""
    return event.cpu_parent is not None and event.cpu_parent.name.startswith("aten::")


def walk(run: Callable[[], None]) -> list[tuple[str, str]]:
    """The calls of functions of `modeling_lion`: the file and the name of each."""
    calls = []

    def note(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            calls.append((frame.f_code.co_filename.removeprefix(PACKAGE), frame.f_code.co_qualname))

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


def counts(name: str, length: int, trains: bool) -> tuple[int, int, int, int]:
    """Operations, operations inside of kernels, calls and files of one layer."""
    numbers, calls = [], []
    for layers in (1, 3):
        run = step(MODELS[name](layers), length, trains)
        calls.append(collections.Counter(walk(run)))
        with Counter() as counter:
            run()
        numbers.append((counter.outside, counter.inside, calls[-1].total()))
    files = {file for file, _ in calls[1] - calls[0]}
    return *((more - less) // 2 for less, more in zip(*numbers, strict=True)), len(files)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, nargs="+", default=[32, 512], help="tokens")
    parser.add_argument("--walk", choices=MODELS, help="print what one layer of this model calls, in order")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    if arguments.walk is not None:
        calls = walk(step(MODELS[arguments.walk](2), arguments.length[0], trains=False))
        last = max(n for n, (_, name) in enumerate(calls) if name.endswith("Layer.forward"))
        for file, name in calls[last:]:
            print(f"{file:40} {name}")
        return
    print(f"{'model':18}{'tokens':>8}{'':>11}{'operations':>12}{'inside':>8}{'calls':>7}{'files':>7}")
    for trains in (False, True):
        for length in arguments.length:
            for name in MODELS:
                numbers = "{:>12}{:>8}{:>7}{:>7}".format(*counts(name, length, trains))
                print(f"{name:18}{length:>8}{'training' if trains else 'inference':>11}{numbers}")


if __name__ == "__main__":
    main()
