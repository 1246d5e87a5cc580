# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The base of all mixers, and the call of attention that a mixer prepares.

A mixer projects hidden states to queries, keys and values, and says how attention is to be called with them. A linear
mixer (mixers/linear.py) also computes the decays. Attention does not depend on mixers.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers import initialization as init

from configuration_lion.registry import MIXERS

from ..sequence.layout import Layout
from .local_window import LocalWindow


class AttentionCall(NamedTuple):
    """
    A call of attention that a mixer prepared.

    Attributes:
        attention: `attention(*inputs)` returns the output, or a pair of the output and the weights or `None`.
        inputs: query, key, value `(batch, heads, length, head_dim)` and, from linear mixers, the log decays.
        window: the softmax window inside the heads of linear attention, if any (mixers/local_window.py).
        memory: a second stream of hidden states for the next layer (mixers/luna.py).
    """

    attention: Callable | None
    inputs: tuple
    window: LocalWindow | None = None
    memory: Tensor | None = None


class Mixer(nn.Module):
    """
    The projections to queries, keys and values. Whatever else the package has to know of a mixer is an attribute of
    its class. Initial values of a module's own weights, not those of its children, are set by its method
    `init_own_weights(config)`, with functions of `transformers.initialization`: until then they are empty memory.

    Attributes:
        name: the mixer's `LionConfig.mixer_type`.
        title, description: the mixer's line on a model card: a name, and a phrase that follows the word "attention".
        fields: fields of `LionConfig` that only this mixer has, with their defaults, which JSON can hold.
        is_linear: whether it is linear attention: `forward` then returns the inputs of `lion_attention`.
        has_decays: whether order matters without positions.
        has_memory: whether it passes a second stream of hidden states from layer to layer.
        tensor_parallel_plan: how transformers splits the parts that this mixer has besides its projections; `None` if
            attention cannot be split by heads.
        layer_type: the type of its layer.
        reach: how many tokens on each side of a segment of a longer sequence it needs (sequence/halo.py).
        window: how many tokens on each side a softmax window sees; 0 without a window.
        has_heads_first: whether attention returns `(batch, heads, length, head_dim)` rather than `(batch, length,
            heads, head_dim)`.
        eager_attention: the form of attention that returns its weights.
    """

    name: str
    title: str | None = None
    description = ""
    fields: dict[str, Any] = {}
    is_linear = has_decays = has_memory = False
    tensor_parallel_plan: dict[str, str] | None = None
    reach = window = 0
    has_heads_first = False
    eager_attention: Callable

    def __init__(self, config: PreTrainedConfig, layer_idx: int = 0):
        super().__init__()
        self.config = config
        self.layer_type = config.layer_type(layer_idx)
        self.head_dim = config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=config.qkv_bias)
        self.k_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=config.qkv_bias)
        self.v_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=config.qkv_bias)

    def attention_name(self, output_attentions: bool) -> str:
        """The name of the attention function, as for `attn_implementation`."""
        raise TypeError(f"{type(self).__name__} names no attention function.")

    def forward(
        self,
        hidden_states: Tensor,
        layout: Layout,
        memory: Tensor | None = None,
        attention: Callable | None = None,
    ) -> AttentionCall:
        """
        Args:
            hidden_states: `(batch, length, hidden_size)`.
            layout: padding, packing and positions of the tokens (sequence/layout.py).
            memory: a second stream of hidden states, which only some mixers read and write.
            attention: the function named by `attention_name`; `None` if only the inputs are needed.
        """
        raise TypeError(f"{type(self).__name__} has no forward.")

    def weights(self, call: AttentionCall, layout: Layout) -> Tensor:
        """The weights of a call, `(batch, heads, length, keys)`, computed again by the form that returns them."""
        raise TypeError(f"{type(self).__name__} has no weights.")

    def split_heads(self, x: Tensor) -> Tensor:
        """`(batch, length, hidden_size)` to `(batch, heads, length, head_dim)`."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)


MixerClass = TypeVar("MixerClass", bound=type[Mixer])


def register_mixer(mixer: MixerClass) -> MixerClass:
    """
    Make a mixer known by its `name`: in `LionConfig.mixer_type`, in saved models, in the tests and the benchmarks.
    Where a model with it is saved, the file of the class goes beside the weights.

    Args:
        mixer: a subclass of `Mixer`, for linear attention of `modeling_lion.mixers.linear.LinearMixer`.

    Returns:
        The class, so that this may be a decorator.

    Raises:
        ValueError: if the class has no name, or another class has it.
    """
    name = getattr(mixer, "name", None)
    if not isinstance(name, str) or not name:
        raise ValueError(f"{mixer.__name__} has no `name`: give the class one, which `mixer_type` is to be.")
    known = MIXERS.get(name)
    if isinstance(known, type) and known.__qualname__ != mixer.__qualname__:
        raise ValueError(f"The mixer {name!r} is {known.__qualname__}: give {mixer.__name__} another `name`.")
    MIXERS[name] = mixer
    return mixer


def start_by_fan_in(projections: Iterable[tuple[str, nn.Module]], config: PreTrainedConfig) -> None:
    """
    Mark the projections in a mixer and the one after it, whose weights have their own initial scale (SPEC §12). The
    mark is an attribute of the linear layer, which `init_own_weights` reads. A subclass of `nn.Linear` would be missed
    by torch's dynamic quantization; and their parent could only set the weights a second time, since transformers
    initialises children first, which would change the random numbers of all weights that follow.
    """
    std = config.mixer_initializer_range
    for name, module in projections:
        if isinstance(module, nn.Linear) and not name.startswith("decay"):
            module.initializer_range = config.hidden_size**-0.5 if std is None else std


def check_own_weights(model: nn.Module) -> None:
    """
    Raises:
        ValueError: if no module of a class that sets initial values has weights of its own: transformers would not
            call it, since all of its weights, none, have been set. Or if a mixer has a buffer that is not saved and
            that nobody sets: it would be empty memory in a loaded model.
    """
    for mixer in (x for x in model.modules() if isinstance(x, Mixer)):
        for name in dict(mixer.named_buffers()).keys() - mixer.state_dict().keys():
            owner = mixer.get_submodule(name.rpartition(".")[0])
            if not hasattr(owner, "init_own_weights"):
                raise ValueError(
                    f"The buffer {name} of {type(mixer).__name__} would be empty in a model that was loaded: register "
                    f"it without `persistent=False`, or set its value in {type(owner).__name__}.init_own_weights, too."
                )
    modules: dict[type, list[nn.Module]] = {}
    for module in model.modules():
        if hasattr(module, "init_own_weights"):
            modules.setdefault(type(module), []).append(module)
    for kind, found in modules.items():
        if any([*module.parameters(recurse=False), *module.buffers(recurse=False)] for module in found):
            continue
        children = ", ".join(name for name, _ in found[0].named_children())
        raise ValueError(
            f"{kind.__name__}.init_own_weights would not be called, since a {kind.__name__} has no parameter of its "
            f"own: give the method to the class of the child whose values it sets ({children}), as a subclass."
        )


def init_own_weights(module: nn.Module, config: PreTrainedConfig) -> None:
    """Initialise one module, without its children; modules that are not LION's are left unchanged."""
    if hasattr(module, "initializer_range"):
        init.normal_(module.weight, std=module.initializer_range)
    elif hasattr(module, "init_own_weights"):
        module.init_own_weights(config)
