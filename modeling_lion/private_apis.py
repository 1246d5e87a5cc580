# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
All private names of torch and transformers that LION uses, and internals of other models: why each is needed, and what
happens without it. Names that these libraries ask subclasses to define or override, such as `_init_weights` or
`_no_split_modules`, are not included.
"""

import sys
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from transformers import PreTrainedModel
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.utils.output_capturing import _CAN_RECORD_REGISTRY


def phi_rotary_embedding() -> type[nn.Module]:
    """
    Phi's rotary embedding, which computes the frequencies of every `rope_type` and supports `partial_rotary_factor`.
    transformers has no shared class for this; another model with `partial_rotary_factor` would also work.
    """
    from transformers.models.phi.modeling_phi import PhiRotaryEmbedding  # lazily: a configuration needs no model

    return PhiRotaryEmbedding


def eager_attention_of(module: nn.Module) -> Callable:
    """
    The "eager" function of an attention module of transformers, which supports soft caps and sinks and returns
    attention weights. Every modeling file defines one under the same name; a class that is derived in another file
    uses that of its parent.
    """
    files = (sys.modules[parent.__module__] for parent in type(module).__mro__)
    return next(file.eager_attention_forward for file in files if hasattr(file, "eager_attention_forward"))


def model_mappings() -> dict[str, Mapping]:
    """
    For each Auto class of models, by name, its mapping from a configuration class to one or several model classes.
    `AutoModel.register` writes these mappings; no public function reads them.
    """
    classes = {name: value for name, value in vars(modeling_auto).items() if name.startswith("AutoModel")}
    mappings = {name: getattr(value, "_model_mapping", None) for name, value in classes.items()}
    return {name: mapping for name, mapping in mappings.items() if mapping is not None}


def replace_registered_configs(replace: Callable[[dict], dict]) -> None:
    """Replace the dictionary of registered configurations. `AutoConfig.register` would need all classes at import."""
    CONFIG_MAPPING._extra_content = replace(CONFIG_MAPPING._extra_content)


def register_recorded_outputs(model_class: type[PreTrainedModel]) -> None:
    """Let models of a class return hidden states and attentions, which otherwise only a constructor registers."""
    dict.__setitem__(_CAN_RECORD_REGISTRY, str(model_class), model_class._can_record_outputs)


def forget_weight_conversions(model: PreTrainedModel) -> None:
    """
    Save a model under the current names of its weights. `from_pretrained` remembers how it renamed the weights of an
    old checkpoint; saving would restore the old names, which a new model type has no rules to load.
    """
    model._weight_conversions = None


def scan(step: Callable, first: Tensor, inputs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """
    A loop that stays one operator in a graph, even if the number of steps is known only at run time: `step(state,
    inputs of one step)` returns the next state and an output. Returns the last state, and the outputs of all steps.
    torch has no public loop over tensors that exporters support.
    """
    from torch._higher_order_ops.scan import scan as scan_operator  # lazily: few graphs have one

    return scan_operator(step, first, inputs)


# Whether `torch.func` transforms are active, for which custom operators have no rules. torch has no public way.
is_torch_func_active = torch._C._are_functorch_transforms_active
# The number of active modes that intercept every operator, for example to count or trace operators or to compute
# shapes only. torch has no public way to ask.
num_dispatch_modes = torch._C._len_torch_dispatch_stack

# `view` of a temporary tensor, which autograd does not register as a view: hooks may then change it in place, which
# autograd forbids for a view that an autograd function returns. `clone` would also work, at the cost of a copy.
view_of_temporary = torch.ops.aten._unsafe_view.default


def is_transformed() -> bool:
    """Whether `torch.func` or forward-mode derivatives are active. torch has no public way to ask for either."""
    return is_torch_func_active() or forward_ad._current_level >= 0


def is_batched_by_vmap(x: Tensor) -> bool:
    """Whether `torch.func.vmap` wraps a tensor, so that its values cannot be read. (Under `grad` they can.)"""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(x):
        if functorch.is_batchedtensor(x):
            return True
        x = functorch.get_unwrapped(x)
    return False


def is_exporting() -> bool:
    """
    Whether `torch.export` is tracing. In torch 2.9 the public function is also true under `torch.compile`; it serves
    as a fallback if torch removes the private flag.
    """
    flag = getattr(torch.compiler, "_is_exporting_flag", None)
    return torch.compiler.is_exporting() if flag is None else flag


def assert_in_graph(condition: Tensor, message: str) -> None:
    """Raise a RuntimeError with this message when a graph runs, if `condition`, `()`, bool, is False."""
    torch._assert_async(condition, message)


def has_backward_hooks(module: nn.Module) -> bool:
    """Whether a module has backward hooks, such as those of opacus. torch has no public way to ask."""
    return bool(module._backward_hooks)


def has_hooks(module: nn.Module) -> bool:
    """
    Whether the module or a part of it has hooks that see or change inputs or outputs, or is wrapped by Accelerate or
    by FSDP (version 1), which fetch weights for every call; processes would wait for each other if their numbers of
    calls differed. Two kinds of hooks do not count: those by which transformers captures hidden states, which stay on
    the layers after the first call that asked for them, and those that repeat a table of positions.
    """
    parts = list(module.modules())
    hooks = (hook for x in parts for hook in (*x._forward_hooks.values(), *x._forward_pre_hooks.values()))
    is_watched = any(
        getattr(hook, "__name__", "") not in ("output_capturing_hook", "wrap_positions") for hook in hooks
    )
    return is_watched or any(hasattr(x, "_hf_hook") or hasattr(x, "_fsdp_wrapped_module") for x in parts)


def fused_attention_with_sums() -> Callable | None:
    """
    torch's fused softmax attention for CPUs. Unlike the public function, it also returns the log-sum-exp of the
    scores. `None` if torch does not have it; separate products and a softmax then compute the same.
    """
    return getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)


def softmax_backward_(grad: Tensor, weights: Tensor) -> Tensor:
    """
    The gradient of the scores of a softmax over the last dimension, w ∘ (grad - Σ grad ∘ w), computed in place of
    `grad`. The private operator takes one pass over memory, the public ones three.
    """
    if hasattr(torch, "_softmax_backward_data"):
        return torch._softmax_backward_data(grad, weights, -1, grad.dtype, grad_input=grad)
    return grad.sub_((grad * weights).sum(-1, keepdim=True)).mul_(weights)


def version_of(x: Tensor) -> int | None:
    """A number that every in-place change increases; `None` for tensors of inference mode, which have none."""
    return None if x.is_inference() else x._version
