# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What the layers of one call of a model share, since their inputs have the same shapes."""

from collections.abc import Callable, Hashable

import torch
from torch import Tensor

from ..private_apis import num_dispatch_modes


class CallPlan:
    """
    Made once per call of a model, where nothing is traced. Layers that pass it to `lion_attention` are trusted to pass
    inputs that fit, and kernels find what depends on shapes where the first layer has left it.
    """

    def __init__(self):
        self.made: dict[Hashable, object] = {}


def planned(plan: CallPlan | None, make: Callable, *tensors: Tensor, options: tuple = ()):
    """
    `make(*tensors, *options)`, which depends on shapes, strides, dtypes and devices of the tensors only, and on what
    differs between layers if some are checkpointed: made once for a plan, or, without one, for this call alone, as in
    layers that are compiled one by one.
    """
    if plan is None or torch.compiler.is_compiling():
        return make(*tensors, *options)
    key = [make, options, torch.is_grad_enabled(), num_dispatch_modes()]
    for x in tensors:
        key += x.shape, x.stride(), x.dtype, x.device
    key = tuple(key)
    found = plan.made.get(key)
    if found is None:
        found = plan.made[key] = make(*tensors, *options)
    return found
