# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Image models whose output has the shape of the image: feature maps for other models, and semantic segmentation."""

from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers.backbone_utils import BackboneMixin
from transformers.modeling_outputs import BackboneOutput, SemanticSegmenterOutput
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, auto_docstring
from transformers.utils.generic import can_return_tuple

from .embeddings import patch_grid
from .modeling_lion import LionConfig, LionModel, LionPreTrainedModel
from .numerics import is_readable


def patch_maps(config: PreTrainedConfig, tokens: Tensor, pixel_values: Tensor) -> Tensor:
    """Of `(batch, length, channels)`, without the tokens before the patches: `(batch, channels, rows, columns)`."""
    return tokens[:, config.num_prefix_tokens :].transpose(1, 2).unflatten(2, patch_grid(config, pixel_values))


@auto_docstring(custom_intro="LION as a backbone: the hidden states of chosen layers as feature maps.")
class LionBackbone(BackboneMixin, LionPreTrainedModel):
    # Where the Hub's `auto_map` looks for every class; modeling_lion.py imports them.
    __module__ = LionPreTrainedModel.__module__

    main_input_name = "pixel_values"
    input_modalities = ("image",)
    _modalities = ("image",)

    def __init__(self, config: LionConfig):
        super().__init__(config)
        self.num_features = [config.hidden_size] * len(self.stage_names)
        self.lion = LionModel(config, add_pooling_layer=False)
        self.post_init()

    def _init_transformers_backbone(self) -> None:
        self.config.set_output_features_output_indices(self.config.out_features, self.config.out_indices)
        super()._init_transformers_backbone()

    @can_return_tuple
    @auto_docstring
    def forward(
        self,
        pixel_values: Tensor,
        interpolate_pos_encoding: bool = True,
        output_hidden_states: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BackboneOutput:
        r"""
        interpolate_pos_encoding (`bool`, *optional*, defaults to `True`):
            Whether images of other sizes than `config.image_size` are taken, with interpolated positions.
        """
        options = {"interpolate_pos_encoding": interpolate_pos_encoding, "output_hidden_states": True} | kwargs
        outputs = self.lion(pixel_values=pixel_values, return_dict=True, **options)
        stages = dict(zip(self.stage_names, outputs.hidden_states, strict=True))
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        return BackboneOutput(
            feature_maps=tuple(patch_maps(self.config, stages[name], pixel_values) for name in self.out_features),
            hidden_states=outputs.hidden_states if output_hidden_states else None,
            attentions=outputs.attentions,
        )


@auto_docstring(custom_intro="LION with one linear layer on every patch, for semantic segmentation.")
class LionForSemanticSegmentation(LionPreTrainedModel):
    __module__ = LionPreTrainedModel.__module__

    main_input_name = "pixel_values"
    input_modalities = ("image",)
    _modalities = ("image",)

    def __init__(self, config: LionConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        if config.num_labels < 2:
            raise ValueError(f"`num_labels` is {config.num_labels}; give 2 or more classes (the background is one).")
        self.lion = LionModel(config, add_pooling_layer=False)
        dropout = config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout
        self.dropout = nn.Dropout(dropout)
        self.decode_head = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    @auto_docstring
    def forward(
        self,
        pixel_values: Tensor | None = None,
        labels: Tensor | None = None,
        interpolate_pos_encoding: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> SemanticSegmenterOutput:
        r"""
        labels (`torch.LongTensor` of shape `(batch_size, height, width)`, *optional*):
            The class of each pixel, in `[0, config.num_labels)`; `config.semantic_loss_ignore_index` for pixels that
            do not count. The logits are of patches, `(batch_size, num_labels, rows, columns)`; the loss interpolates
            them to the size of the labels.
        """
        outputs = self.lion(
            pixel_values=pixel_values,
            interpolate_pos_encoding=interpolate_pos_encoding,
            return_dict=True,
            **kwargs,
        )
        logits = patch_maps(self.config, self.decode_head(self.dropout(outputs.last_hidden_state)), pixel_values)
        loss = None if labels is None else segmentation_loss(logits, labels, self.config.semantic_loss_ignore_index)
        return SemanticSegmenterOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


def segmentation_loss(logits: Tensor, labels: Tensor, ignore_index: int) -> Tensor:
    """
    The mean cross entropy of the pixels that count, 0 where none does.

    Args:
        logits: `(batch, num_labels, rows, columns)`, interpolated to the size of the labels.
        labels: `(batch, height, width)`, int64.
    """
    if labels.dim() != 3 or len(labels) != len(logits):
        raise ValueError(
            f"`labels` must be (batch, height, width), the class of each pixel, for {len(logits)} images; got "
            f"{tuple(labels.shape)}."
        )
    labels = labels.to(logits.device).long()
    counts = labels != ignore_index
    if labels.device.type == "cpu" and is_readable(labels):
        wrong = labels[counts & ((labels < 0) | (labels >= logits.shape[1]))]
        if wrong.numel():
            raise ValueError(
                f"`labels` holds {wrong[0].item()}, outside 0 to {logits.shape[1] - 1} (`num_labels`): set "
                f"`num_labels`, or give pixels that do not count {ignore_index} (`semantic_loss_ignore_index`)."
            )
    logits = nn.functional.interpolate(logits.float(), size=labels.shape[1:], mode="bilinear", align_corners=False)
    total = nn.functional.cross_entropy(logits, labels, ignore_index=ignore_index, reduction="sum")
    return total / counts.sum().clamp(min=1)
