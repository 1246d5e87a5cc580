# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Every private name of torch and transformers that LION uses, and internals of other models, in one place: why each is
needed, and what happens where it is gone. What these libraries ask subclasses to define or override, such as
`_init_weights` or `_no_split_modules`, is not among them.
"""

import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from transformers import GenerationConfig


def default_generation_parameters() -> list[str]:
    """
    Names that a configuration may carry though they are no fields of it: arguments of generation, which transformers
    moves there. Without the function nothing is known of them, and they are refused as other unknown names are.
    """
    function = getattr(GenerationConfig, "_get_default_generation_params", dict)
    return list(function())


def phi_rotary_embedding() -> type[nn.Module]:
    """
    Phi's rotary embedding, whose frequencies are those of every `rope_type`, for a part of the channels. transformers
    shares no class for them; without Phi's, that of another model with `partial_rotary_factor` does the same.
    """
    from transformers.models.phi.modeling_phi import PhiRotaryEmbedding  # here: a configuration needs no model

    return PhiRotaryEmbedding


def eager_attention_of(module: nn.Module) -> Callable:
    """
    The function by which an attention module of transformers computes under "eager", with soft caps, sinks and weights
    to return. Every file of a model has its own, under one name; a class derived elsewhere has that of its parent.
    """
    files = (sys.modules[parent.__module__] for parent in type(module).__mro__)
    return next(file.eager_attention_forward for file in files if hasattr(file, "eager_attention_forward"))


def is_torch_func_active() -> bool:
    """Whether `torch.func` transforms are at work, for which operators have no rules. torch has no public question."""
    return torch._C._are_functorch_transforms_active()


def is_transformed() -> bool:
    """
    Whether `torch.func` or forward-mode derivatives are at work, which have no rules for hand-written operators; torch
    has no public question for either.
    """
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def is_batched_by_vmap(x: Tensor) -> bool:
    """Whether `torch.func.vmap` wraps a tensor, whose values then cannot be asked for. (Of `grad` they can.)"""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(x):
        if functorch.is_batchedtensor(x):
            return True
        x = functorch.get_unwrapped(x)
    return False


def is_exporting() -> bool:
    """
    Whether `torch.export` is at work. In torch 2.9 the public function is also true of every `torch.compile`; without
    the flag behind it, the public one answers.
    """
    flag = getattr(torch.compiler, "_is_exporting_flag", None)
    return torch.compiler.is_exporting() if flag is None else flag


def has_backward_hooks(module: nn.Module) -> bool:
    """Whether somebody reads gradients of a module, as libraries do for those of each example; not told otherwise."""
    return bool(module._backward_hooks)


def has_hooks(module: nn.Module) -> bool:
    """
    Whether somebody watches what a module, or a part of it, gets or gives; or accelerate fetches its weights for every
    call, by a hook of its own kind.
    """
    parts = module.modules()
    return any(part._forward_hooks or part._forward_pre_hooks or hasattr(part, "_hf_hook") for part in parts)


def softmax_backward_(grad: Tensor, weights: Tensor) -> Tensor:
    """
    The gradient of the scores of a softmax over the last dimension, in the memory of `grad`: w ∘ (grad - Σ grad ∘ w).
    The operator takes one pass; without it, three do the same.
    """
    if hasattr(torch, "_softmax_backward_data"):
        return torch._softmax_backward_data(grad, weights, -1, grad.dtype, grad_input=grad)
    return grad.sub_((grad * weights).sum(-1, keepdim=True)).mul_(weights)
