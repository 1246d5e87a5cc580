# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The maps φ of queries and keys, per head vector (SPEC §1). To add one: a function and a line in the table."""

import torch
from torch import Tensor
from torch.nn import functional as F


def silu_norm(x: Tensor) -> Tensor:
    """u / ‖u‖₂ with u = SiLU(x) + 0.5. Every u is above 0.22, so the norm is never 0."""
    shifted = F.silu(x) + 0.5
    return shifted / torch.linalg.vector_norm(shifted, dim=-1, keepdim=True)


def elu(x: Tensor) -> Tensor:
    """ELU(x) + 1, written so that small values keep their digits: exp(x) for x < 0, never (exp(x) - 1) + 1."""
    return torch.where(x > 0, x + 1, x.clamp(max=0).exp())


def identity(x: Tensor) -> Tensor:
    """x; with `normalization="none"`, since scores of either sign may add up to 0."""
    return x


FEATURE_MAPS = {"silu_norm": silu_norm, "elu": elu, "identity": identity}
