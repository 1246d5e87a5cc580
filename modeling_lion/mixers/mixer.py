# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The base of all mixers, and the call of attention that a mixer prepares.

A mixer projects hidden states to what attention reads, often queries, keys and values, and says how attention is to be
called with them. A linear mixer (mixers/linear.py) also computes the decays. Attention does not depend on mixers.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers import initialization as init

from configuration_lion.registry import MIXERS

from ..attention.implementation_names import FORMS
from ..sequence.border_states import BorderStates, pass_borders
from ..sequence.layout import Layout
from .each_sequence import each_sequence


class AttentionCall(NamedTuple):
    """
    A call of attention that a mixer prepared.

    Attributes:
        attention: `attention(*inputs)` returns the output, or a pair of the output and the weights or `None`.
        inputs: what attention reads; of linear mixers query, key and value, `(batch, heads, length, head_dim)`, and
            then what `Mixer.needs` names.
    """

    attention: Callable | None
    inputs: tuple


# What a class says of one of its methods, or of its forms. A subclass with another method has to say it again: until
# then it is as in `Mixer`, so that nothing is promised that the new method does not keep.
SAID_OF = {
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
    What mixes the tokens of a layer. A subclass has a method `mix`, which sees whole sequences without padding, or a
    `forward`, which sees batches. Whatever else the package has to know of a mixer is an attribute of its class; the
    values here promise nothing, and what needs more is refused. Initial values of a module's own weights, not those
    of its children, are set by its method `init_own_weights(config)`, with functions of
    `transformers.initialization`: until then they are empty memory.

    Attributes:
        name: the mixer's `LionConfig.mixer_type`.
        title, description: the mixer's line on a model card: a name, and a phrase that follows the word "attention".
        fields: fields of `LionConfig` that only this mixer has, with their defaults, which JSON can hold.
        defaults: defaults of other fields that are `None` until a configuration is made.
        choices: the values that this mixer takes of fields that have more.
        projections: the linear layers that `Mixer` makes, from `hidden_size` to `hidden_size`, by name.
        forms: what may compute attention, by its name in `attn_implementation`: "parallel", "chunk", "rnn", and
            "eager" for one that returns weights. "auto", which is always a name, is the first one, or one that has
            this name. `mix` or `forward` gets it as `attention`.
        needs: what attention takes besides query, key and value, in order; `None` if its inputs are others. The
            kernels of LION need `("log_decay",)`.
        is_linear: whether it is a `LinearMixer`, with the fields of `LionConfig` for linear attention.
        is_softmax: whether functions of transformers compute it, as chosen by `attn_implementation`.
        has_decays: whether order matters without positions: texts then have no learnt positions by default.
        has_memory: whether it changes `layout.memory`, a second stream of hidden states from layer to layer.
        has_scans: whether it reads an image along `LionConfig.num_scans` orders, which are `layout.scans`.
        has_rotary_positions: whether it rotates queries and keys by `layout.rotary_tables`.
        reach: how many tokens on each side of a segment of a longer text it needs (sequence/halo.py); `None` if it
            needs all. With a number, `encode_long` works.
        segment_states: a method; `None` if a segment needs its neighbours only. `segment_states(hidden_states,
            layout)` returns what a segment sends to all others, as `BorderStates` (sequence/border_states.py).
        pass_states: from what all segments sent, in order, what each one receives: as `layout.border_states`.
        shares_sequences: whether several processes can share a sequence (sequence/sequence_parallel.py).
        decay_of_keys: a static method, for `linearize`: `decay_of_keys(num_heads, head_dim)` returns a module, or
            `None` for no decays. The module maps keys, `(batch, length, heads, head_dim)`, to log λ, as
            `LinearMixer.log_decay`, and, of a mixer that needs β, has a method `beta` that maps them to it. `None`
            instead of a method: its decays cannot be made of keys.
        tensor_parallel_plan: how transformers splits the parts that this mixer has besides its projections; `None` if
            attention cannot be split by heads.
        layer_type: the type of its layer.
        window: how many tokens on each side a softmax window sees; 0 without a window.
        has_heads_first: whether attention returns `(batch, heads, length, head_dim)` rather than `(batch, length,
            heads, head_dim)` or `(batch, length, hidden_size)`.
    """

    name: str
    title: str | None = None
    description = ""
    fields: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    choices: dict[str, tuple[str, ...]] = {}
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
        for method, said in SAID_OF.items():
            for name in said:
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
        """Whether it can compute a segment of a longer text; linear attention passes states."""
        return self.reach is not None and (self.segment_states is not None or not self.is_linear)

    @property
    def takes_padding(self) -> bool:
        """Whether its `forward` takes batches with padding as they are."""
        return type(self).forward is not Mixer.forward

    def attention_name(self, output_attentions: bool) -> str:
        """The name among `forms`, or of a function of transformers, that computes attention; "" without any."""
        name = self.config._attn_implementation
        if name not in self.forms:
            name = "auto" if "auto" in self.forms else next(iter(self.forms), "")
        return "eager" if name == "auto" and output_attentions and "eager" in self.forms else name

    def mix(
        self, hidden_states: Tensor, attention: Callable | None = None, border_states: BorderStates | None = None
    ) -> Tensor:
        """
        The mixed tokens of whole sequences of one length, without padding, `(sequences, length, hidden_size)`; the
        output projection follows.

        Args:
            hidden_states: `(sequences, length, hidden_size)`; of a segment, with `reach` tokens more on each side,
                where there are any.
            attention: the chosen one of `forms`. Not given to a class without any.
            border_states: what a segment receives, of `pass_states`. Given by `encode_long` to a class that has
                `segment_states`.
        """
        raise TypeError(f"{type(self).__name__} has neither `mix` nor `forward`.")

    def forward(self, hidden_states: Tensor, layout: Layout, attention: Callable | None = None) -> AttentionCall:
        """
        The call of attention for a batch. Here it is `mix` for each sequence: sequences of one length go together.

        Args:
            hidden_states: `(batch, length, hidden_size)`.
            layout: padding, packing and positions of the tokens (sequence/layout.py).
            attention: the function named by `attention_name`; `None` without one, or if only inputs are needed.
        """
        around = layout.with_halo(hidden_states, self.reach or 0)
        options: dict[str, Any] = {"attention": attention, "border_states": layout.border_states}
        mix = partial(self.mix, **{name: given for name, given in options.items() if given is not None})

        def mixed(hidden_states: Tensor) -> Tensor:
            return around.own(each_sequence(mix, hidden_states, around.tokens))

        return AttentionCall(mixed, (around.hidden_states,))

    def weights(self, call: AttentionCall, layout: Layout) -> Tensor | None:
        """The weights of a call, `(batch, heads, length, keys)`, computed again by the form that returns them."""
        raise ValueError(
            f"The mixer {self.name!r} has no attention weights: leave out `output_attentions=True`. (A `forward` of "
            "its class can give a call that returns them.)"
        )

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
        ValueError: if the class has no name, another class has it, or a form has an unknown name.
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
    Mark the projections in a mixer and the one after it, whose weights have their own initial scale (SPEC §12). The
    mark is an attribute of the linear layer, which `init_own_weights` reads. A subclass of `nn.Linear` would be missed
    by torch's dynamic quantization; and their parent could only set the weights a second time, since transformers
    initialises children first, which would change the random numbers of all weights that follow. A class that sets
    its weights itself is left alone.
    """
    std = config.mixer_initializer_range
    for name, module in projections:
        is_plain = isinstance(module, nn.Linear) and not hasattr(module, "init_own_weights")
        if is_plain and not name.startswith("decay"):
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
