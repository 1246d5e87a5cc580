# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The base class of mixers, and the call of attention that a mixer prepares.

A mixer projects hidden states to the inputs of attention, such as queries, keys and values, and prepares the call of
an attention function. A linear mixer (mixers/linear.py) also computes decays. Attention does not depend on mixers.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers import initialization as init
from transformers.utils import logging

from configuration_lion.registry import MIXERS

from ..attention.implementation_names import FORMS
from ..attention.tracing import is_readable
from ..sequence.border_states import BorderStates, pass_borders
from ..sequence.layout import Layout
from ..tokens import Tokens


logger = logging.get_logger(__name__)


def warn_of_weights(what: str) -> None:
    logger.warning_once(
        f"{what} has no attention weights: they are computed once more in the full form, which takes time and memory "
        "quadratic in the length."
    )


class AttentionCall(NamedTuple):
    """
    A call of attention that a mixer prepared: `attention(*inputs)` returns the output, or a pair of the output and the
    weights or `None`. Linear mixers give query, key and value, `(batch, heads, length, head_dim)`, and then the inputs
    that `Mixer.needs` names.
    """

    attention: Callable | None
    inputs: tuple


# Attributes that describe a method of the class, or its forms. A subclass that overrides the method must set them
# again: until then they have the values of `Mixer`, so that a class claims nothing that its method does not do.
ATTRIBUTES_OF = {
    "forward": (
        *("forms", "needs", "has_scans", "has_rotary_positions", "segment_states", "shares_sequences"),
        "decay_of_keys",
    ),
    "log_decay": ("decay_of_keys",),
    "beta": ("decay_of_keys",),
    "forms": ("has_scans", "segment_states", "shares_sequences", "decay_of_keys"),
}


class Mixer(nn.Module):
    """
    The base class of mixers, the part of a layer that mixes tokens. A subclass defines `mix`, which gets whole
    sequences without padding, or `forward`, which gets batches. Class attributes describe the mixer to the package.
    Their values here claim nothing, and the package refuses uses that need more. A module sets the initial values of
    its own weights, not those of its children, in a method `init_own_weights(config)`, with functions of
    `transformers.initialization`: until then they are uninitialised memory.

    Attributes:
        name: the value of `LionConfig.mixer_type`.
        title, description: the mixer on a model card: a name, and a phrase that follows the word "attention".
        fields: fields of `LionConfig` that only this mixer has, with default values that JSON can hold.
        defaults: default values of other fields that are `None` until a configuration is made.
        choices: for fields of `LionConfig`, the values that this mixer supports.
        ranges: for fields that are numbers, what they must be above, and at most.
        projections: the names of the linear layers that `Mixer` makes, from `hidden_size` to `hidden_size`.
        forms: functions that compute attention, by their name in `attn_implementation`: "parallel", "chunk",
            "rnn", and "eager" for a function that returns weights. The name "auto" is always allowed: it is the entry
            of that name, or the first one. `mix` or `forward` gets the chosen function as `attention`.
        needs: the inputs of attention after query, key and value, in order; `None` if attention has other inputs.
            LION's kernels need `("log_decay",)`.
        is_linear: whether it is a `LinearMixer`, with the fields of `LionConfig` for linear attention.
        is_softmax: whether a function of transformers computes it, chosen by `attn_implementation`.
        has_decays: whether order matters without positions: texts then have no learnt positions by default.
        has_memory: whether it changes `layout.memory`, a second stream of hidden states from layer to layer.
        has_scans: whether it reads an image along the `LionConfig.num_scans` orders of `layout.scans`.
        has_rotary_positions: whether it rotates queries and keys by `layout.rotary_tables`.
        reach: the number of tokens that it needs on each side of a segment of a longer text (sequence/halo.py); `None`
            if it needs all. `encode_long` requires a number.
        segment_states: a method; `None` if a segment needs its neighbours only. `segment_states(hidden_states,
            layout)` returns the states that a segment sends to all others (`BorderStates`, sequence/border_states.py).
        pass_states: a function from the states that all segments sent, in order, to those that each one receives, as
            `layout.border_states`.
        shares_sequences: whether several processes can share a sequence (sequence/sequence_parallel.py).
        decay_of_keys: a static method for `linearize`; `None` if keys do not determine the decays.
            `decay_of_keys(num_heads, head_dim)` returns a module that maps keys, `(batch, length, heads, head_dim)`,
            to log λ, as `LinearMixer.log_decay` returns it, or `None` for no decays. For a mixer that needs β, the
            module has a method `beta` that maps keys to it.
        tensor_parallel_plan: how transformers splits the parts of this mixer besides its projections; `None` if
            attention cannot be split by heads.
        layer_type: the type of its layer.
        window: the number of tokens that a softmax window sees on each side; 0 without a window.
        has_heads_first: whether attention returns `(batch, heads, length, head_dim)` rather than `(batch, length,
            heads, head_dim)` or `(batch, length, hidden_size)`.
    """

    name: str
    title: str | None = None
    description = ""
    fields: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    choices: dict[str, tuple[str, ...]] = {}
    ranges: dict[str, tuple[float, float]] = {}
    projections: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")
    forms: dict[str, Callable] = {}
    needs: tuple[str, ...] | None = None
    is_linear = is_softmax = has_decays = has_memory = has_scans = has_rotary_positions = shares_sequences = False
    reach: int | None = None
    segment_states: Callable | None = None
    pass_states = staticmethod(pass_borders)
    decay_of_keys: Callable[[int, int], nn.Module | None] | None = None
    tensor_parallel_plan: dict[str, str] | None = None
    window = 0
    has_heads_first = False

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        for method, names in ATTRIBUTES_OF.items():
            for name in names:
                if method in vars(cls) and name not in vars(cls):
                    setattr(cls, name, vars(Mixer)[name])

    def __init__(self, config: PreTrainedConfig, layer_idx: int = 0):
        super().__init__()
        self.config = config
        self.layer_type = config.layer_type(layer_idx)
        self.head_dim = config.head_dim
        for name in self.projections:
            setattr(self, name, nn.Linear(config.hidden_size, config.hidden_size, bias=config.qkv_bias))

    @property
    def reads_segments(self) -> bool:
        """Whether it can compute a segment of a longer text; a linear mixer also needs `segment_states`."""
        return self.reach is not None and (self.segment_states is not None or not self.is_linear)

    @property
    def takes_padding(self) -> bool:
        """Whether it has a `forward` of its own, which gets batches with padding."""
        return type(self).forward is not Mixer.forward

    def attention_name(self, output_attentions: bool) -> str:
        """The name in `forms`, or of a function of transformers, that computes attention; "" without forms."""
        name = self.config._attn_implementation
        if name not in self.forms:
            name = "auto" if "auto" in self.forms else next(iter(self.forms), "")
        return "eager" if name == "auto" and output_attentions and "eager" in self.forms else name

    def mix(
        self, hidden_states: Tensor, attention: Callable | None = None, border_states: BorderStates | None = None
    ) -> Tensor:
        """
        Mix whole sequences of one length, without padding; the output projection follows. Returns the same shape.

        Args:
            hidden_states: `(sequences, length, hidden_size)`. A segment of a longer text has up to `reach` more tokens
                on each side.
            attention: the chosen function of `forms`; not passed if there are none.
            border_states: the states that a segment receives (`pass_states`); passed only by `encode_long`, and only
                if the class has `segment_states`.
        """
        raise TypeError(f"{type(self).__name__} has neither `mix` nor `forward`.")

    def forward(self, hidden_states: Tensor, layout: Layout, attention: Callable | None = None) -> AttentionCall:
        """
        Prepare the call of attention for a batch. Here it calls `mix`, once for all sequences of one length.

        Args:
            hidden_states: `(batch, length, hidden_size)`.
            layout: padding, packing and positions of the tokens (sequence/layout.py).
            attention: the function named by `attention_name`; `None` without forms, or if only inputs are needed.
        """
        around = layout.with_halo(hidden_states, self.reach or 0)
        options: dict[str, Any] = {"attention": attention, "border_states": layout.border_states}
        mix = partial(self.mix, **{name: given for name, given in options.items() if given is not None})

        def mixed(hidden_states: Tensor) -> Tensor:
            return around.own(each_sequence(mix, hidden_states, around.tokens))

        return AttentionCall(mixed, (around.hidden_states,))

    def weights(self, call: AttentionCall, layout: Layout) -> Tensor | None:
        """Compute the attention weights of a call, `(batch, heads, length, keys)`, by a form that returns them."""
        raise ValueError(
            f"The mixer {self.name!r} has no attention weights: leave out `output_attentions=True`. (A `forward` of "
            "its class can give a call that returns them.)"
        )

    def split_heads(self, x: Tensor) -> Tensor:
        """`(batch, length, hidden_size)` to `(batch, heads, length, head_dim)`."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)


def each_sequence(mix: Callable[[Tensor], Tensor], hidden_states: Tensor, tokens: Tokens) -> Tensor:
    """
    Apply `mix`, which maps `(sequences, length, channels)` to the same shape, to every sequence of `(batch, length,
    channels)`, in one call for all with the same number of real tokens; padded tokens get 0. Raises a ValueError if
    the numbers of real tokens cannot be read, as in a graph.
    """
    masks = [x for x in (tokens.is_real, tokens.cu_seqlens) if x is not None]
    if not masks:
        return checked(mix, hidden_states)
    if not all(map(is_readable, masks)):
        raise ValueError(
            "A mixer with a method `mix` computes the sequences of a batch one by one, which a graph (torch.compile, "
            "export) cannot: leave out `attention_mask` and `cu_seq_lens_q`, or give the class a `forward`, which "
            "takes batches."
        )
    states = hidden_states.flatten(0, 1)
    mixed = torch.zeros_like(states)
    for index, _ in tokens.sequences_as_rows(hidden_states, are_equal=True):
        some = checked(mix, states[index])
        mixed = mixed.to(some.dtype).index_copy(0, index.flatten(), some.flatten(0, 1))
    return mixed.view(hidden_states.shape)


def checked(mix: Callable[[Tensor], Tensor], hidden_states: Tensor) -> Tensor:
    mixed = mix(hidden_states)
    if mixed.shape != hidden_states.shape:
        raise ValueError(
            f"`mix` returned {tuple(mixed.shape)} for hidden states {tuple(hidden_states.shape)}: give the same shape."
        )
    return mixed


MixerClass = TypeVar("MixerClass", bound=type[Mixer])


def register_mixer(mixer: MixerClass) -> MixerClass:
    """
    Register a mixer by its `name`, for `LionConfig.mixer_type`, saved models, tests and benchmarks. A model that is
    saved with it stores the file of the class beside the weights.

    Args:
        mixer: a subclass of `Mixer`; for linear attention, of `modeling_lion.mixers.linear.LinearMixer`.

    Returns:
        The class, so that this function can be a decorator.

    Raises:
        ValueError: if the class has no name or the name of another class, or a form has an unknown name.
    """
    name = getattr(mixer, "name", None)
    if not isinstance(name, str) or not name:
        raise ValueError(f"{mixer.__name__} has no `name`: give the class one, which `mixer_type` is to be.")
    known = MIXERS.get(name)
    if isinstance(known, type) and known.__qualname__ != mixer.__qualname__:
        raise ValueError(f"The mixer {name!r} is {known.__qualname__}: give {mixer.__name__} another `name`.")
    if wrong := mixer.forms.keys() - {*FORMS, "eager"}:
        raise ValueError(
            f"{mixer.__name__} has `forms` named {', '.join(sorted(map(repr, wrong)))}: name them as LION's own, "
            f"{', '.join(map(repr, FORMS))} or 'eager'."
        )
    MIXERS[name] = mixer
    return mixer


def start_by_fan_in(projections: Iterable[tuple[str, nn.Module]], config: PreTrainedConfig) -> None:
    """
    Set the initial scale of a mixer's projections and of the output projection (SPEC §12), as an attribute of the
    linear layers, which `init_own_weights` reads; layers whose class has that method keep their own. (torch's dynamic
    quantization ignores subclasses of `nn.Linear`, and if the parent module drew the weights a second time, the random
    numbers of all later weights would change.)
    """
    std = config.mixer_initializer_range
    for name, module in projections:
        is_plain = isinstance(module, nn.Linear) and not hasattr(module, "init_own_weights")
        if is_plain and not name.startswith("decay"):
            module.initializer_range = config.hidden_size**-0.5 if std is None else std


def check_own_weights(model: nn.Module) -> None:
    """
    Raises:
        ValueError: if a class in a mixer has `init_own_weights` and none of its modules has weights of its own, so
            that transformers would never call it; or if a mixer has a buffer that is neither saved nor initialised,
            which would be uninitialised memory in a loaded model.
    """
    mixers = [x for x in model.modules() if isinstance(x, Mixer)]
    for mixer in mixers:
        for name in dict(mixer.named_buffers()).keys() - mixer.state_dict().keys():
            owner = mixer.get_submodule(name.rpartition(".")[0])
            if not hasattr(owner, "init_own_weights"):
                raise ValueError(
                    f"The buffer {name} of {type(mixer).__name__} would be empty in a model that was loaded: register "
                    f"it without `persistent=False`, or set its value in {type(owner).__name__}.init_own_weights, too."
                )
    modules: dict[type, list[nn.Module]] = {}
    for mixer in mixers:
        for module in mixer.modules():
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
    """Initialise the weights of one module, without its children. Modules of other libraries stay unchanged."""
    if hasattr(module, "initializer_range"):
        init.normal_(module.weight, std=module.initializer_range)
    elif hasattr(module, "init_own_weights"):
        module.init_own_weights(config)
