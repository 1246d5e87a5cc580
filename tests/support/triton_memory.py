# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Which memory the programs of a Triton launch read and write, seen in Triton's interpreter: whether they leave the
tensors of the launch, and whether the order in which they run can matter. (A wrong place inside of a tensor shows in
the results instead.)
"""

import numpy as np
import pytest
import torch
from triton.runtime import interpreter


class MemoryAccess:
    """Checks every launch: `check(launch, *args, **options)` runs it and raises an AssertionError."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.reads, self.writes = [], []
        builder = interpreter.InterpreterBuilder
        load, store = builder.create_masked_load, builder.create_masked_store

        def masked_load(this, pointers, mask, *rest):
            self.note(self.reads, this, pointers, mask)
            return load(this, pointers, mask, *rest)

        def masked_store(this, pointers, values, mask, *rest):
            self.note(self.writes, this, pointers, mask)
            return store(this, pointers, values, mask, *rest)

        monkeypatch.setattr(builder, "create_masked_load", masked_load)
        monkeypatch.setattr(builder, "create_masked_store", masked_store)

    def note(self, accesses: list, builder, pointers, mask) -> None:
        # Triton 3.9 refuses any other dtype.
        assert mask.data.dtype == bool, f"a mask of {mask.data.dtype}"
        mask = np.broadcast_to(mask.data, pointers.data.shape).astype(bool)
        accesses.append((pointers.data[mask].ravel(), builder.grid_idx[0]))

    def check(self, launch, kernel, programs, *args, **options) -> None:
        self.reads.clear()
        self.writes.clear()
        launch(kernel, programs, *args, **options)
        spans = [self.span(x) for x in self.tensors(args)]
        for accesses in (self.reads, self.writes):
            addresses = np.concatenate([some for some, _ in accesses] or [np.empty(0, np.uint64)])
            inside = np.zeros(addresses.shape, bool)
            for first, last in spans:
                inside |= (first <= addresses) & (addresses <= last)
            assert inside.all(), f"{kernel.__name__} leaves its tensors"
        assert self.writes, f"{kernel.__name__} writes nothing"
        writes = np.concatenate([some for some, _ in self.writes])
        writers = np.concatenate([np.full(some.shape, program) for some, program in self.writes])
        writes, first = np.unique(writes, return_index=True)
        owner = writers[first]
        for accesses, verb in ((self.writes, "write"), (self.reads, "read and write")):
            for some, program in accesses:
                at = np.searchsorted(writes, some).clip(max=len(writes) - 1)
                shared = (writes[at] == some) & (owner[at] != program)
                assert not shared.any(), f"two programs of {kernel.__name__} {verb} the same number"

    def tensors(self, args):
        for x in args:
            if isinstance(x, tuple):
                yield from self.tensors(x)
            elif isinstance(x, torch.Tensor) and x.numel():
                yield x

    def span(self, x: torch.Tensor) -> tuple[int, int]:
        """Addresses of the first and the last number."""
        last = sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
        return x.data_ptr(), x.data_ptr() + last * x.element_size()
