# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Properties of a model that the tools need: of a LION, or of a linearized encoder of transformers (`linearize`)."""

from transformers import PreTrainedModel

from configuration_lion import AUTO_MODELS
from configuration_lion.registry import find_mixer
from modeling_lion.attention.implementation_names import attention_names
from modeling_lion.linearized.attention_functions import LINEARIZED_FORMS
from modeling_lion.linearized.branch import LinearBranch
from modeling_lion.linearized.config import LinearizedConfig
from modeling_lion.linearized.model_inputs import longest_text


MODALITIES = {"input_ids": "text", "pixel_values": "image", "input_values": "audio"}
# Tokens of a chunk of the kernels, if the configuration has no field for it.
CHUNK = 64


class Traits:
    """
    Properties of a `LionModel`, with or without a task head, that uploads and exports need.

    Attributes:
        modality: "text", "image" or "audio".
        forms: the names of `attn_implementation` to compare, and the form of attention of each.
        default_form: the name that a model has by default.
        reference: the name of the definition, which the others are compared with.
        paddings: where texts can be padded.
        has_linear_layers: whether any layer is linear.
        has_weights: whether the model can return attention weights.
        chunk_size: tokens of a chunk.
        exact_length: inputs of at most this many tokens are computed by softmax; 0 for none.
        longest_text: most tokens, if there is a table of positions; `None` without a limit.
        image_shape: channels, height and width of images.
        auto_classes: the names of the classes that each Auto class loads.
    """

    default_form = "auto"
    reference = "eager"
    exact_length = 0
    has_weights = True

    def __init__(self, model: PreTrainedModel):
        self.model, self.config, self.longest_text = model, model.config, longest_text(model)
        self.set_up()

    def set_up(self) -> None:
        config = self.config
        self.modality = config.modality
        self.forms = {name: name for name in attention_names(config)}
        self.has_linear_layers = config.has_linear_layers
        mixer = find_mixer(config.mixer_type)
        self.has_weights = mixer.is_softmax or not config.uses_mixer_type or "eager" in mixer.forms
        self.paddings: tuple[str, ...] = (
            ("none", "right", "left", "interior") if self.modality == "text" else ("none",)
        )
        self.chunk_size = config.chunk_size
        self.image_shape = (config.num_channels, *config.image_shape)
        self.auto_classes = {name: (model,) for name, model in AUTO_MODELS[config.modality].items()}

    @property
    def longest_sample(self) -> int:
        """Tokens of a text that is long enough for every code path: two and a half chunks."""
        return 2 * self.chunk_size + self.chunk_size // 2 + 1


class LinearizedTraits(Traits):
    """Properties of a linearized encoder. Most give positions to padding as well, so texts are not padded left."""

    default_form = "lion"
    reference = "lion_parallel"
    chunk_size = CHUNK

    def set_up(self) -> None:
        config = self.config
        self.modality = MODALITIES.get(self.model.main_input_name)
        if self.modality is None:
            raise ValueError(
                f"A {type(self.model).__name__} reads `{self.model.main_input_name}`, for which the tools have no "
                f"inputs: they have some for {', '.join(MODALITIES)}."
            )
        self.forms = LINEARIZED_FORMS
        self.has_linear_layers = any(isinstance(x, LinearBranch) for x in self.model.modules())
        self.paddings = ("none", "right") if self.modality == "text" else ("none",)
        self.exact_length = config.lion_exact_length
        size = getattr(config, "image_size", None) or (1, 1)
        self.image_shape = (getattr(config, "num_channels", 3), *((size, size) if isinstance(size, int) else size))
        self.auto_classes = config.auto_classes

    @property
    def longest_sample(self) -> int:
        """Tokens of a text that is computed linearly, and is longer than the window on both sides."""
        return self.exact_length + 2 * self.config.lion_window + super().longest_sample


def traits_of(model: PreTrainedModel) -> Traits:
    return (LinearizedTraits if isinstance(model.config, LinearizedConfig) else Traits)(model)
