# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What the layers of one call of a model share, since their inputs have the same shapes."""

from collections.abc import Callable, Hashable

from torch import Tensor


class CallPlan:
    """
    Made once per call of a model, where nothing is traced. Layers that pass it to `lion_attention` are trusted to pass
    inputs that fit, and kernels find what depends on shapes where the first layer has left it.
    """

    def __init__(self):
        self.made: dict[Hashable, object] = {}

    def share(self, make: Callable, *tensors: Tensor, options: tuple = ()):
        """`make(*tensors, *options)`, which depends on shapes, strides, dtypes and devices of the tensors only."""
        key = [make, options]
        for x in tensors:
            key += x.shape, x.stride(), x.dtype, x.device
        key = tuple(key)
        found = self.made.get(key)
        if found is None:
            found = self.made[key] = make(*tensors, *options)
        return found


def planned(plan: CallPlan | None, make: Callable, *tensors: Tensor, options: tuple = ()):
    """`CallPlan.share`, or, without a plan, what is for this call alone."""
    return make(*tensors, *options) if plan is None else plan.share(make, *tensors, options=options)
