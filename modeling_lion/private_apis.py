# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
All private names of torch and transformers that LION uses, and internals of other models, in one place: why each is
needed, and what happens without it. Names that these libraries ask subclasses to define or override, such as
`_init_weights` or `_no_split_modules`, are not included.
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
    Phi's rotary embedding, which has the frequencies of every `rope_type` and supports `partial_rotary_factor`.
    transformers has no shared class for them; that of any other model with `partial_rotary_factor` would do.
    """
    from transformers.models.phi.modeling_phi import PhiRotaryEmbedding  # lazily: a configuration needs no model

    return PhiRotaryEmbedding


def eager_attention_of(module: nn.Module) -> Callable:
    """
    The "eager" function of an attention module of transformers, which supports soft caps and sinks and returns
    weights. Every modeling file has its own, under the same name; a class derived in another file uses that of its
    parent.
    """
    files = (sys.modules[parent.__module__] for parent in type(module).__mro__)
    return next(file.eager_attention_forward for file in files if hasattr(file, "eager_attention_forward"))


def model_mappings() -> dict[str, Mapping]:
    """
    The mapping of each Auto class of models, by its name, from the class of a configuration to one or several classes
    of models. `AutoModel.register` writes them; nothing public reads them.
    """
    classes = {name: value for name, value in vars(modeling_auto).items() if name.startswith("AutoModel")}
    mappings = {name: getattr(value, "_model_mapping", None) for name, value in classes.items()}
    return {name: mapping for name, mapping in mappings.items() if mapping is not None}


def replace_registered_configs(replace: Callable[[dict], dict]) -> None:
    """
    Replace the dictionary of configuration classes that were registered with the Auto classes, by model type. With
    `AutoConfig.register` alone, every class would have to be there at import.
    """
    CONFIG_MAPPING._extra_content = replace(CONFIG_MAPPING._extra_content)


def register_recorded_outputs(model_class: type[PreTrainedModel]) -> None:
    """
    Let models of a class return hidden states and attention weights. transformers notes by class which outputs it can
    record when it constructs a model; one that was given this class later, or unpickled, would return neither.
    """
    dict.__setitem__(_CAN_RECORD_REGISTRY, str(model_class), model_class._can_record_outputs)


def forget_weight_conversions(model: PreTrainedModel) -> None:
    """
    Let a model be saved under the names that its weights have. `from_pretrained` keeps how it renamed those of an old
    checkpoint, and saving would give them their old names, for which a new model type has no rules.
    """
    model._weight_conversions = None


def saves_adapter_alone(model: nn.Module) -> bool:
    """
    Whether `save_pretrained` writes the adapters of a model and not its weights, after `add_adapter`. The public
    `active_adapters` raises an error without PEFT or adapters.
    """
    return getattr(model, "_hf_peft_config_loaded", False)


def scan(step: Callable, first: Tensor, inputs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """
    A loop that a graph keeps as one, also for a number of steps that is known at run time only: `step(state, inputs of
    a step)` returns the next state and an output. torch has no public loop over tensors that exporters write.

    Returns:
        The last state, and the outputs of all steps.
    """
    from torch._higher_order_ops.scan import scan as scan_operator  # lazily: few graphs have one

    return scan_operator(step, first, inputs)


# Whether `torch.func` transforms are active, for which custom operators have no rules. torch has no public way.
is_torch_func_active = torch._C._are_functorch_transforms_active
# How many modes see every operator before it computes, such as those that count operators, trace them or compute
# shapes only. torch has no public way to ask.
num_dispatch_modes = torch._C._len_torch_dispatch_stack

# `view` of a temporary tensor, which autograd takes for no view: it forbids to change one of an autograd function in
# place, as hooks do. `clone` would do, for a copy.
view_of_temporary = torch.ops.aten._unsafe_view.default


def is_transformed() -> bool:
    """
    Whether `torch.func` or forward-mode derivatives are active, for which custom operators have no rules. torch has no
    public way to ask for either.
    """
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
    Whether `torch.export` is tracing. In torch 2.9 the public function is also true under `torch.compile`; it is used
    if the flag behind it is gone.
    """
    flag = getattr(torch.compiler, "_is_exporting_flag", None)
    return torch.compiler.is_exporting() if flag is None else flag


def has_backward_hooks(module: nn.Module) -> bool:
    """
    Whether a module has backward hooks, as of libraries for gradients per example. torch has no public way to ask.
    """
    return bool(module._backward_hooks)


def has_hooks(module: nn.Module) -> bool:
    """
    Whether a hook on the module or on a part of it sees or changes what goes in or out. Accelerate's own kind counts,
    too, which fetches weights for every call. The hooks by which transformers captures hidden states do not count:
    they stay on the layers after the first call that asked for them. Nor do those that read a table of positions
    again.
    """
    parts = list(module.modules())
    hooks = (hook for x in parts for hook in (*x._forward_hooks.values(), *x._forward_pre_hooks.values()))
    is_watched = any(
        getattr(hook, "__name__", "") not in ("output_capturing_hook", "wrap_positions") for hook in hooks
    )
    return is_watched or any(hasattr(x, "_hf_hook") for x in parts)


def fused_attention_with_sums() -> Callable | None:
    """
    torch's fused softmax attention for a CPU, which also returns the logarithms of the sums that it divides by; the
    public function does not. `None` without it: products and softmax are then computed one after the other.
    """
    return getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)


def softmax_backward_(grad: Tensor, weights: Tensor) -> Tensor:
    """
    The gradient of the scores of a softmax over the last dimension, w ∘ (grad - Σ grad ∘ w), in the memory of `grad`.
    The private operator takes one pass; without it there are three.
    """
    if hasattr(torch, "_softmax_backward_data"):
        return torch._softmax_backward_data(grad, weights, -1, grad.dtype, grad_input=grad)
    return grad.sub_((grad * weights).sum(-1, keepdim=True)).mul_(weights)


def version_of(x: Tensor) -> int | None:
    """A number that rises with every change in place; `None` for a tensor that has none (of inference mode)."""
    return None if x.is_inference() else x._version
