# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Results that the layers of one model call share, since their inputs have the same shapes."""

from collections.abc import Callable, Hashable

import torch
from torch import Tensor

from ..private_apis import num_dispatch_modes


class CallPlan:
    """A cache for one model call, unless a graph is traced, of results that depend only on shapes."""

    def __init__(self):
        self.made: dict[Hashable, object] = {}


def planned(plan: CallPlan | None, make: Callable, *tensors: Tensor, options: tuple = ()):
    """
    `make(*tensors, *options)`, computed once per plan, or anew without a plan or in compiled code. The result may
    depend only on the options, on shapes, strides, dtypes and devices of the tensors, and on the grad mode and the
    dispatch modes, which differ between layers if some are checkpointed.
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
