# Copyright 2026 The LION for transformers authors. All rights reserved.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""PyTorch LION model (Afzal et al., arXiv 2502.16249): bidirectional linear attention for text and images."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.backbone_utils import BackboneMixin
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import (
    BackboneOutput,
    BaseModelOutputWithPooling,
    ImageClassifierOutput,
    MaskedImageModelingOutput,
    MaskedLMOutput,
    MultipleChoiceModelOutput,
    QuestionAnsweringModelOutput,
    SemanticSegmenterOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.modeling_utils import AttentionInterface
from transformers.processing_utils import Unpack
from transformers.pytorch_utils import apply_chunking_to_forward
from transformers.utils import TransformersKwargs, auto_docstring
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from configuration_lion.configuration_lion import LionConfig
from configuration_lion.registry import find_mixer

from .attention.implementation_names import (
    SupportsSoftmax,
    attention_names,
    name_of_form,
    name_of_softmax_attention,
)
from .attention.numerics import accumulation_dtype
from .attention.plan import CallPlan
from .attention.report import AttentionReport, attention_report
from .attention.tracing import is_readable
from .blocks import LionMaskedLMHead, LionMLP, LionPooler, make_norm
from .embeddings import LionImageEmbeddings, LionTextEmbeddings, join_patches, patch_grid
from .mixers.mixer import Mixer, check_own_weights, init_own_weights, start_by_fan_in
from .mixers.softmax import SlidingMixer, SoftmaxMixer, eager_softmax
from .pretrained import PretrainedOverrides, check_config
from .sequence.input_checks import check_inputs, check_one_row
from .sequence.layout import Layout, Memory, text_layout
from .sequence.rotary import rotary_embeddings, rotary_tables
from .sequence.scans import image_layout
from .sequence.segments import SEGMENT_LENGTH, encode_in_segments, goes_in_segments
from .sequence.sequence_parallel import SequenceParallelModel, shared_layout
from .sequence.tiles import is_faster_in_tiles
from .tokens import Tokens, in_one_row, indexed_borders, read_text, real_tokens


def mixer_class(config: LionConfig, layer_type: str) -> type[Mixer]:
    """The mixer class of a layer type: that of `mixer_type`, or one of the softmax mixers."""
    if layer_type == "sliding_attention":
        return SlidingMixer
    is_softmax = config.layer_types and layer_type == "full_attention"
    return SoftmaxMixer if is_softmax else find_mixer(config.mixer_type)


# transformers' attention functions, for softmax mixers. The forms of other mixers (`Mixer.forms`) are not registered,
# so that no other model in the process can get one by mistake.
ALL_ATTENTION_FUNCTIONS = AttentionInterface()


class LionAttention(nn.Module):
    """A mixer, the attention function whose inputs it makes, and the output projection."""

    def __init__(self, config: LionConfig, layer_idx: int = 0):
        super().__init__()
        self.config = config
        self.mixer = mixer_class(config, config.layer_type(layer_idx))(config, layer_idx)
        self.layer_norm = make_norm(config, eps=1e-5) if config.attention_layer_norm else None
        # Dropout of attention weights would need the full matrix; dropping mixed values works with every kernel.
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)
        self.o_proj = nn.Linear(config.hidden_size, config.hidden_size)
        start_by_fan_in([*self.mixer.named_children(), ("o_proj", self.o_proj)], config)

    def forward(
        self,
        hidden_states: Tensor,
        layout: Layout,
        output_attentions: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[Tensor, Tensor | None]:
        """
        The output, `(batch, length, hidden_size)`, and the attention weights, `(batch, heads, length, keys)`, if
        `output_attentions`, otherwise `None`. The layout has padding, packing, rotary tables, scans and halos.
        """
        if "attention_mask" in kwargs:
            raise ValueError("Layers take no `attention_mask`: give `layout`, or call the model.")
        output_attentions = self.config.output_attentions if output_attentions is None else output_attentions
        name = self.mixer.attention_name(bool(output_attentions))
        attention = self.mixer.forms.get(name)
        if attention is None and name:
            attention = ALL_ATTENTION_FUNCTIONS.get_interface(name, eager_softmax)
        call = self.mixer(hidden_states, layout, attention=attention)
        output = call.attention(*call.inputs)
        output, weights = output if isinstance(output, tuple) else (output, None)
        if weights is None and output_attentions:
            weights = self.mixer.weights(call, layout)
        if self.mixer.has_heads_first:
            output = output.transpose(1, 2)
        return layout.by_token(self.project, output.flatten(2)), weights

    def project(self, output: Tensor) -> Tensor:
        if self.layer_norm is not None:
            output = self.layer_norm(output)
        return self.o_proj(self.dropout(output))


class LionLayer(GradientCheckpointingLayer):
    """Attention and MLP, each with a residual and a norm before (ViT) or after it (BERT)."""

    def __init__(self, config: LionConfig, layer_idx: int = 0):
        super().__init__()
        self.is_pre_norm = config.norm_position == "pre"
        self.layer_type = config.layer_type(layer_idx)
        self.chunk_size_feed_forward = config.chunk_size_feed_forward
        self.attention = LionAttention(config, layer_idx)
        self.attention_norm = make_norm(config)
        self.mlp = LionMLP(config)
        self.mlp_norm = make_norm(config)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, hidden_states: Tensor, layout: Layout, **kwargs: Unpack[TransformersKwargs]) -> Tensor:
        """Returns the next hidden states, `(batch, length, hidden_size)`; arguments as in `LionAttention`."""
        # The normed states are not assigned to a variable, so that inference frees them early.
        mixed, _ = self.attention(self.normed(hidden_states), layout, **kwargs)
        return layout.by_token(self.add_and_feed_forward, hidden_states, mixed)

    def add_and_feed_forward(self, hidden_states: Tensor, mixed: Tensor) -> Tensor:
        """The residuals, norms and MLP after attention, whose output is `mixed`."""
        hidden_states = hidden_states + self.dropout(mixed)
        if not self.is_pre_norm:
            hidden_states = self.attention_norm(hidden_states)
        fed_forward = (
            apply_chunking_to_forward(self.feed_forward, self.chunk_size_feed_forward, 1, hidden_states)
            if self.chunk_size_feed_forward
            else self.feed_forward(hidden_states)
        )
        hidden_states = hidden_states + self.dropout(fed_forward)
        return hidden_states if self.is_pre_norm else self.mlp_norm(hidden_states)

    def computed_in_tiles(self) -> list[nn.Module]:
        """The modules that are called on one tile of tokens at a time if the layout has tiles."""
        wholes = self, self.attention, self.attention.mixer
        return [part for whole in wholes for part in whole.children() if part not in wholes]

    def normed(self, hidden_states: Tensor) -> Tensor:
        return self.attention_norm(hidden_states) if self.is_pre_norm else hidden_states

    def feed_forward(self, hidden_states: Tensor) -> Tensor:
        return self.mlp(self.mlp_norm(hidden_states) if self.is_pre_norm else hidden_states)


class LionMemoryLayer(LionLayer):
    """
    A layer whose mixer changes `layout.memory` (mixers/luna.py). `forward` takes and returns the memory, since
    gradient checkpointing does not see tensors inside a layout.
    """

    def __call__(self, hidden_states: Tensor, layout: Layout, **kwargs: Unpack[TransformersKwargs]) -> Tensor:
        hidden_states, layout.memory.states = super().__call__(hidden_states, layout, layout.memory.states, **kwargs)
        return hidden_states

    def forward(  # type: ignore[override]
        self, hidden_states: Tensor, layout: Layout, memory: Tensor | None, **kwargs: Unpack[TransformersKwargs]
    ) -> tuple[Tensor, Tensor | None]:
        layout.memory.states = memory
        hidden_states = super().forward(hidden_states, layout, **kwargs)
        return hidden_states, layout.memory.states


def layer_class(config: LionConfig) -> type[LionLayer]:
    return LionMemoryLayer if find_mixer(config.mixer_type).has_memory else LionLayer


@auto_docstring(custom_intro="The base class of all LION models: configuration, loading, kernels by name.")
class LionPreTrainedModel(PretrainedOverrides, SequenceParallelModel, PreTrainedModel):
    config: LionConfig
    base_model_prefix = "lion"
    supports_gradient_checkpointing = True
    input_modalities: tuple[str, ...] = ("text", "image")
    _can_compile_fullgraph = True
    _can_record_outputs = {"hidden_states": LionLayer, "attentions": LionAttention}
    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = SupportsSoftmax()
    _modalities: tuple[str, ...] = ("text", "image")

    def __init__(self, config: LionConfig, *inputs, **kwargs):
        check_config(type(self), config, LionConfig)
        super().__init__(config, *inputs, **kwargs)
        # Modules that a device_map does not split and accelerate's FSDP gathers as a whole. FSDP raises an error for a
        # class that is not in the model. It handles word embeddings, and a decoder tied to them, itself.
        self._no_split_modules = [layer_class(config).__name__]
        self._no_split_modules += ["LionImageEmbeddings"] * (config.modality == "image")

    def get_correct_attn_implementation(self, requested_attention: str | None, is_init_check: bool = False) -> str:
        is_form = self.config.uses_mixer_type and requested_attention in (None, "eager", *attention_names(self.config))
        if not self.config.has_softmax_layers or is_form and not find_mixer(self.config.mixer_type).is_softmax:
            return name_of_form(requested_attention, self.config)
        requested_attention = name_of_softmax_attention(requested_attention, self.config)
        chosen = super().get_correct_attn_implementation(requested_attention, is_init_check)
        possible = mixer_class(self.config, "full_attention").attention_functions
        if possible is not None and chosen not in possible:
            raise ValueError(
                f"`attn_implementation={chosen!r}` cannot compute `mixer_type` {self.config.mixer_type!r}: use one of "
                f"{', '.join(possible)}."
            )
        return chosen

    def resize_token_embeddings(self, *args, **kwargs) -> nn.Module:
        """`PreTrainedModel.resize_token_embeddings`. Raises a ValueError for image models."""
        if self.config.modality != "text":
            raise ValueError(
                "An image model has no token embeddings to resize: its embeddings are of patches. Set `image_size` or "
                "`patch_size` in the config of a new model."
            )
        return super().resize_token_embeddings(*args, **kwargs)

    def attention_report(self, tokens: list[int], **inputs: Tensor) -> list[AttentionReport | None]:
        """
        Report what each linear layer attends to: exact attention rows, rows of the decay mask and receptive fields, in
        memory linear in the length.

        Args:
            tokens: positions whose rows to report, the same in every row of the batch. For images, 0 is the CLS token.
            inputs: inputs of the model, by name.

        Returns:
            An `AttentionReport` for each linear layer, `None` for softmax layers.

        Raises:
            ValueError: if there are no linear layers with one decay mask per head, or a position is not in the input.
        """
        return attention_report(self, tokens, **inputs)

    @torch.no_grad()
    def _init_weights(self, module):
        super()._init_weights(module)
        init_own_weights(module, self.config)


@auto_docstring(custom_intro="LION without a task head: hidden states of texts or images, and one vector for each.")
class LionModel(LionPreTrainedModel):
    # Task heads and the mask token of pretraining: an encoder loaded from a checkpoint of a task ignores them.
    _keys_to_ignore_on_load_unexpected = [
        r"^(classifier|qa_outputs|lm_head|decode_head|decoder)\.",
        r"mask_token$",
    ]

    def __init__(self, config: LionConfig, add_pooling_layer: bool = True, use_mask_token: bool = False):
        r"""
        add_pooling_layer (`bool`, *optional*, defaults to `True`):
            Whether to compute `pooler_output`.
        use_mask_token (`bool`, *optional*, defaults to `False`):
            Whether to add a mask token, for masked image modeling.
        """
        super().__init__(config)
        self.is_text = config.modality == "text"
        self._input_embed_layer = "word_embeddings" if self.is_text else "patch_embeddings"
        if self.is_text:
            self.embeddings = LionTextEmbeddings(config)
        else:
            self.main_input_name = "pixel_values"
            self.embeddings = LionImageEmbeddings(config, use_mask_token)
        self.rotary_embeddings = rotary_embeddings(config)
        self.layers = nn.ModuleList([layer_class(config)(config, i) for i in range(config.num_hidden_layers)])
        self.norm = make_norm(config) if config.norm_position == "pre" else None
        self.pooler: LionPooler | None = LionPooler(config) if add_pooling_layer else None
        check_own_weights(self)
        self.keep_decays_in_float32()
        self.gradient_checkpointing = False
        self.sequence_group = None
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    @auto_docstring
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        pixel_values: Tensor | None = None,
        bool_masked_pos: Tensor | None = None,
        interpolate_pos_encoding: bool | None = None,
        cu_seq_lens_q: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPooling:
        r"""
        bool_masked_pos (`torch.BoolTensor` of shape `(batch_size, num_patches)`, *optional*):
            True for patches that the mask token replaces.
        cu_seq_lens_q (`torch.Tensor` of shape `(num_sequences + 1,)`, *optional*):
            Borders of packed sequences: from 0 to the length if all rows have the same borders, or from 0 to
            `batch_size * sequence_length`, counted through all rows. If not given, they are read from `seq_idx`, the
            number of each token's sequence, or else from `position_ids` that return to the first position. In a graph,
            such as that of `torch.compile`, they must be given, the same for all rows. `pooler_output` has one row per
            sequence.
        """
        if not self.is_text and pixel_values is None and input_ids is not None and input_ids.is_floating_point():
            input_ids, pixel_values = None, input_ids  # a positional argument, as for a ViT
        seq_idx = kwargs.get("seq_idx") if cu_seq_lens_q is None else None
        packing = {"position_ids": position_ids, "cu_seq_lens_q": cu_seq_lens_q, "seq_idx": seq_idx}
        changes = {"bool_masked_pos": bool_masked_pos, "past_key_values": kwargs.get("past_key_values")}
        check_inputs(self.config, input_ids, inputs_embeds, pixel_values, **packing, **changes)
        if self.is_text:
            inputs: Any = input_ids if inputs_embeds is None else inputs_embeds
            cu_seq_lens_q = indexed_borders(seq_idx, inputs) if cu_seq_lens_q is None else cu_seq_lens_q
            tokens, shape = read_text(inputs, attention_mask, position_ids, cu_seq_lens_q), inputs.shape[:2]
            if is_one_row := tokens.differ_by_row(shape[1]):
                check_one_row(self.config, kwargs)
                rows = input_ids, token_type_ids, inputs_embeds, inputs
                input_ids, token_type_ids, inputs_embeds, inputs = (in_one_row(x, shape[0]) for x in rows)
                tokens = tokens.in_one_row(shape[0])
            layout = text_layout(self.config, inputs, tokens)
            if self.sequence_group is not None:
                wants_weights = kwargs.get("output_attentions", self.config.output_attentions)
                layout = shared_layout(self.config, inputs, layout, position_ids, self.sequence_group, wants_weights)
            if inputs_embeds is None and goes_in_segments(self, input_ids, layout, kwargs):
                like_ids = [None if x is None else x.expand_as(input_ids) for x in (token_type_ids, position_ids)]
                return self.encode_long(input_ids, attention_mask, *like_ids, show_progress=False)
            hidden_states = self.embeddings(input_ids, token_type_ids, layout.tokens.position_ids, inputs_embeds)
            layout.rotary_tables = rotary_tables(self.rotary_embeddings, hidden_states, layout)
        else:
            is_one_row = False
            changes = {"bool_masked_pos": bool_masked_pos, "interpolate_pos_encoding": interpolate_pos_encoding}
            hidden_states = self.embeddings(pixel_values, **changes)
            is_real = real_tokens(attention_mask, hidden_states)
            layout = image_layout(self.config, hidden_states, patch_grid(self.config, pixel_values), is_real)
        if not layout.is_segment:  # there, softmax layers have windows, which read `tokens`
            for layer_type in self.config.layer_types_in_use - {"linear_attention"}:
                softmax: Any = mixer_class(self.config, layer_type)
                layout.masks[layer_type] = softmax.layer_mask(self.config, hidden_states, layout.tokens)
        layout.memory = Memory() if find_mixer(self.config.mixer_type).has_memory else None
        layout.has_tiles = is_faster_in_tiles(self, hidden_states)
        layout.plan = CallPlan() if is_readable(hidden_states) else None
        kwargs.setdefault("output_attentions", self.config.output_attentions)
        for layer in self.layers:
            # Positional, since gradient checkpointing would lose gradients of tensors that are passed by name.
            hidden_states = layer(hidden_states, layout, **kwargs)
        if self.norm is not None:
            hidden_states = self.norm(hidden_states)
        pooled = None
        if self.pooler is not None:
            pooled = self.pooler(hidden_states, layout)
        if is_one_row:
            hidden_states = hidden_states.view(*shape, -1)
        return BaseModelOutputWithPooling(last_hidden_state=hidden_states, pooler_output=pooled)

    @torch.no_grad()
    def encode_long(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        *,
        segment_length: int = SEGMENT_LENGTH,
        show_progress: bool = True,
    ) -> BaseModelOutputWithPooling:
        """
        Encode a text of any length, for inference. The result is that of `forward`, and nothing is truncated. Besides
        the hidden states, it needs the memory of one segment only: a million tokens fit where a single forward pass
        would not. `forward` calls this for texts of more than 16,384 tokens in a batch of more than 131,072 tokens.

        Args:
            input_ids, attention_mask, token_type_ids, position_ids: as in `forward`, `(batch, length)`.
            segment_length: number of tokens per segment.
            show_progress: whether to draw a progress bar.

        Returns:
            As `forward`: `last_hidden_state`, `(batch, length, hidden_size)`, and `pooler_output`.

        Raises:
            ValueError: if the model reads images, is in training mode or has layers that see all tokens at once, or
                the inputs do not fit.
        """
        hidden_states, is_real = encode_in_segments(
            self, input_ids, attention_mask, token_type_ids, position_ids, segment_length, show_progress
        )
        pooled = self.pooler(hidden_states, Layout(Tokens(is_real))) if self.pooler is not None else None
        return BaseModelOutputWithPooling(last_hidden_state=hidden_states, pooler_output=pooled)


def recorded(outputs: Any) -> dict[str, Any]:
    """Return the fields of a head's output that come from the layers."""
    return {"hidden_states": outputs.hidden_states, "attentions": outputs.attentions}


@auto_docstring(custom_intro="LION with a masked language modeling head.")
class LionForMaskedLM(LionPreTrainedModel):
    _modalities = ("text",)
    _has_labels_per_token = True
    _tied_weights_keys = {"lm_head.decoder.weight": "lion.embeddings.word_embeddings.weight"}
    _fsdp_plan = {"lm_head.decoder": "keep_full_weight"}

    def __init__(self, config: LionConfig):
        super().__init__(config)
        self.lion = LionModel(config, add_pooling_layer=False)
        self.lm_head = LionMaskedLMHead(config)
        self.post_init()

    def get_output_embeddings(self) -> nn.Linear:
        return self.lm_head.decoder

    def set_output_embeddings(self, new_embeddings: nn.Linear):
        self.lm_head.decoder = new_embeddings

    @can_return_tuple
    @auto_docstring
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> MaskedLMOutput:
        r"""
        labels (`torch.LongTensor` of shape `(batch_size, sequence_length)`, *optional*):
            The ids of the tokens to predict, in `[0, config.vocab_size)`; -100 for tokens without a prediction. While
            training with `config.sparse_prediction`, `logits` has predicted tokens only, `(count, vocab_size)`.
        """
        outputs = self.lion(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, return_dict=True, **kwargs
        )
        hidden_states = outputs.last_hidden_state
        if self.config.sparse_prediction and self.training and labels is not None:
            labels = labels.to(hidden_states.device)
            is_predicted = labels != -100
            hidden_states, labels = hidden_states[is_predicted], labels[is_predicted]
        logits = self.lm_head(hidden_states)
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, logits=logits, vocab_size=self.config.vocab_size, **kwargs)
        return MaskedLMOutput(loss=loss, logits=logits, **recorded(outputs))


def classifier_dropout(config: LionConfig) -> nn.Dropout:
    return nn.Dropout(config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout)


def classification_loss(
    model: PreTrainedModel, labels: Tensor, logits: Tensor, num_items_in_batch: Tensor | int | None = None, **kwargs
) -> Tensor:
    """transformers' loss, divided by `num_items_in_batch` for every problem type, not for single labels only."""
    loss = model.loss_function(labels, logits, model.config, num_items_in_batch=num_items_in_batch, **kwargs)
    if num_items_in_batch is None or model.config.problem_type == "single_label_classification":
        return loss
    return loss * labels.numel() / num_items_in_batch


class LionTextClassifier(LionPreTrainedModel):
    """The base of the text models with a classification head."""

    _modalities = ("text",)

    def __init__(self, config: LionConfig, num_labels: int, add_pooling_layer: bool):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.lion = LionModel(config, add_pooling_layer=add_pooling_layer)
        self.dropout = classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, num_labels)
        self.post_init()

    def classify(self, states: Tensor) -> Tensor:
        """Logits, `(..., num_labels)`, of pooled vectors or hidden states, `(..., hidden_size)`."""
        return self.classifier(self.dropout(states))


@auto_docstring(custom_intro="LION with a classification or regression head on one vector for each text.")
class LionForSequenceClassification(LionTextClassifier):
    def __init__(self, config: LionConfig):
        super().__init__(config, config.num_labels, add_pooling_layer=True)

    @can_return_tuple
    @auto_docstring
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> SequenceClassifierOutput:
        r"""
        labels (`torch.Tensor` of shape `(batch_size,)` or `(batch_size, num_labels)`, *optional*):
            Classes (int64), numbers to regress on (`num_labels=1`, float), or 0/1 per label (float).
            `config.problem_type` says which; if it is not set, the labels decide.
        """
        outputs = self.lion(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, return_dict=True, **kwargs
        )
        logits = self.classify(outputs.pooler_output)
        loss = None if labels is None else classification_loss(self, labels, logits, **kwargs)
        return SequenceClassifierOutput(loss=loss, logits=logits, **recorded(outputs))


@auto_docstring(custom_intro="LION with a classification head on every token, for example for named entities.")
class LionForTokenClassification(LionTextClassifier):
    _has_labels_per_token = True

    def __init__(self, config: LionConfig):
        super().__init__(config, config.num_labels, add_pooling_layer=False)

    @can_return_tuple
    @auto_docstring
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TokenClassifierOutput:
        r"""
        labels (`torch.LongTensor` of shape `(batch_size, sequence_length)`, *optional*):
            The class of each token, in `[0, config.num_labels)`; -100 for tokens that do not count.
        """
        outputs = self.lion(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, return_dict=True, **kwargs
        )
        logits = self.classify(outputs.last_hidden_state)
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, logits=logits, config=self.config, **kwargs)
        return TokenClassifierOutput(loss=loss, logits=logits, **recorded(outputs))


@auto_docstring(custom_intro="LION with a question answering head: the first and the last token of an answer.")
class LionForQuestionAnswering(LionPreTrainedModel):
    _modalities = ("text",)
    _supports_sequence_parallel = False

    def __init__(self, config: LionConfig):
        super().__init__(config)
        self.lion = LionModel(config, add_pooling_layer=False)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    @can_return_tuple
    @auto_docstring
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> QuestionAnsweringModelOutput:
        outputs = self.lion(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, return_dict=True, **kwargs
        )
        start_logits, end_logits = self.qa_outputs(outputs.last_hidden_state).unbind(-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            is_real, logits = real_tokens(attention_mask, start_logits), [start_logits, end_logits]
            if is_real is not None:  # padding is no answer: a text has the same loss in every batch
                logits = [x.masked_fill(~is_real, torch.finfo(x.dtype).min) for x in logits]
            loss = self.loss_function(*logits, start_positions, end_positions, **kwargs)
        both = {"start_logits": start_logits.contiguous(), "end_logits": end_logits.contiguous()}
        return QuestionAnsweringModelOutput(loss=loss, **both, **recorded(outputs))


@auto_docstring(custom_intro="LION with a multiple choice head, which scores each of several texts.")
class LionForMultipleChoice(LionTextClassifier):
    # The loss is a mean over the batch, which the Trainer has to divide when it accumulates gradients.
    accepts_loss_kwargs = False

    def __init__(self, config: LionConfig):
        super().__init__(config, num_labels=1, add_pooling_layer=True)

    @can_return_tuple
    @auto_docstring
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> MultipleChoiceModelOutput:
        r"""
        input_ids (`torch.LongTensor` of shape `(batch_size, num_choices, sequence_length)`, *optional*):
            One sequence per choice. `attention_mask`, `token_type_ids`, `position_ids` and `seq_idx` have the same
            shape. In packed rows, which all have the same borders, sequence n of each choice belongs to one question.
        inputs_embeds (`torch.FloatTensor` of shape `(batch_size, num_choices, length, hidden_size)`, *optional*):
            Embedded tokens instead of `input_ids`.
        labels (`torch.LongTensor` of shape `(batch_size,)`, *optional*):
            The right choice, in `[0, num_choices)`.
        """
        given = [x for x in (input_ids, inputs_embeds) if x is not None]
        if len(given) != 1 or given[0].dim() != (3 if inputs_embeds is None else 4):
            raise ValueError(
                "Pass either `input_ids`, (batch, num_choices, length), or `inputs_embeds`, (batch, num_choices, "
                f"length, hidden_size); got {' and '.join(str(tuple(x.shape)) for x in given) or 'neither'}."
            )
        num_choices = given[0].shape[1]
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        if (seq_idx := kwargs.get("seq_idx")) is not None:
            kwargs["seq_idx"] = seq_idx.flatten(0, -2)
        outputs = self.lion(*(None if x is None else x.flatten(0, 1) for x in inputs), return_dict=True, **kwargs)
        logits = self.classify(outputs.pooler_output)  # of each packed sequence of each choice
        logits = logits.view(len(given[0]), num_choices, -1).transpose(1, 2).reshape(-1, num_choices)
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels.to(logits.device))
        return MultipleChoiceModelOutput(loss=loss, logits=logits, **recorded(outputs))


class LionImageModel(LionPreTrainedModel):
    """The base of the image models with a head."""

    main_input_name = "pixel_values"
    input_modalities = _modalities = ("image",)


@auto_docstring(custom_intro="LION with a classification head on one vector for each image.")
class LionForImageClassification(LionImageModel):
    def __init__(self, config: LionConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.lion = LionModel(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels) if config.num_labels > 0 else nn.Identity()
        self.post_init()

    @can_return_tuple
    @auto_docstring
    def forward(
        self,
        pixel_values: Tensor | None = None,
        labels: Tensor | None = None,
        interpolate_pos_encoding: bool | None = None,
        attention_mask: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> ImageClassifierOutput:
        r"""
        labels (`torch.Tensor` of shape `(batch_size,)` or `(batch_size, num_labels)`, *optional*):
            Classes (int64), numbers to regress on (`num_labels=1`, float), or 0/1 per label (float).
        """
        options = {"interpolate_pos_encoding": interpolate_pos_encoding, "attention_mask": attention_mask}
        outputs = self.lion(pixel_values=pixel_values, return_dict=True, **options, **kwargs)
        logits = self.classifier(outputs.pooler_output)
        loss = None if labels is None else classification_loss(self, labels, logits, **kwargs)
        return ImageClassifierOutput(loss=loss, logits=logits, **recorded(outputs))


@auto_docstring(custom_intro="LION with a linear decoder to pixels, for masked image modeling (SimMIM).")
class LionForMaskedImageModeling(LionImageModel):
    accepts_loss_kwargs = False  # as LionForMultipleChoice

    def __init__(self, config: LionConfig):
        super().__init__(config)
        self.lion = LionModel(config, add_pooling_layer=False, use_mask_token=True)
        patch_height, patch_width = config.patch_shape
        self.decoder = nn.Linear(config.hidden_size, patch_height * patch_width * config.num_channels)
        self.post_init()

    @can_return_tuple
    @auto_docstring
    def forward(
        self,
        pixel_values: Tensor | None = None,
        bool_masked_pos: Tensor | None = None,
        interpolate_pos_encoding: bool | None = None,
        attention_mask: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> MaskedImageModelingOutput:
        r"""
        bool_masked_pos (`torch.BoolTensor` of shape `(batch_size, num_patches)`, *optional*):
            True for patches that the mask token replaces. If given, the loss is their mean absolute error.
        """
        options = {"interpolate_pos_encoding": interpolate_pos_encoding, "attention_mask": attention_mask}
        options |= {"bool_masked_pos": bool_masked_pos}
        outputs = self.lion(pixel_values=pixel_values, return_dict=True, **options, **kwargs)
        rows, columns = patch_grid(self.config, pixel_values)
        patch_shape = (self.config.num_channels, *self.config.patch_shape)
        patches = self.decoder(outputs.last_hidden_state[:, self.config.num_prefix_tokens :]).unflatten(2, patch_shape)
        reconstruction = join_patches(patches, rows, columns)
        loss = None
        if bool_masked_pos is not None:
            dtype = accumulation_dtype(reconstruction.dtype)  # in float16, sums over all pixels would overflow
            error = (reconstruction.to(dtype) - pixel_values).abs()
            mask = bool_masked_pos.to(error.dtype)[:, :, None, None, None].expand(-1, -1, *patch_shape)
            mask = join_patches(mask, rows, columns)
            loss = (error * mask).sum() / mask.sum().clamp(min=1)
        return MaskedImageModelingOutput(loss=loss, reconstruction=reconstruction, **recorded(outputs))


def patch_maps(config: PreTrainedConfig, tokens: Tensor, pixel_values: Tensor) -> Tensor:
    """The patches among `tokens`, `(batch, length, channels)`, as `(batch, channels, rows, columns)`."""
    return tokens[:, config.num_prefix_tokens :].transpose(1, 2).unflatten(2, patch_grid(config, pixel_values))


@auto_docstring(custom_intro="LION as a backbone: feature maps from the hidden states of chosen layers.")
class LionBackbone(BackboneMixin, LionImageModel):
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
            Whether to accept images of other sizes than `config.image_size`, with interpolated positions.
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
class LionForSemanticSegmentation(LionImageModel):
    accepts_loss_kwargs = False  # as LionForMultipleChoice

    def __init__(self, config: LionConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        if config.num_labels < 2:
            raise ValueError(f"`num_labels` is {config.num_labels}; give 2 or more classes (the background is one).")
        self.lion = LionModel(config, add_pooling_layer=False)
        self.dropout = classifier_dropout(config)
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
        options = {"interpolate_pos_encoding": interpolate_pos_encoding}
        outputs = self.lion(pixel_values=pixel_values, return_dict=True, **options, **kwargs)
        logits = patch_maps(self.config, self.decode_head(self.dropout(outputs.last_hidden_state)), pixel_values)
        loss = None if labels is None else segmentation_loss(logits, labels, self.config.semantic_loss_ignore_index)
        return SemanticSegmenterOutput(loss=loss, logits=logits, **recorded(outputs))


def segmentation_loss(logits: Tensor, labels: Tensor, ignore_index: int) -> Tensor:
    """
    The mean cross entropy over the pixels whose label is not `ignore_index`, 0 if there are none, of logits `(batch,
    num_labels, rows, columns)`, interpolated to the size of the labels, `(batch, height, width)`, int64.
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


__all__ = [
    "LionBackbone",
    "LionForImageClassification",
    "LionForMaskedImageModeling",
    "LionForMaskedLM",
    "LionForMultipleChoice",
    "LionForQuestionAnswering",
    "LionForSemanticSegmentation",
    "LionForSequenceClassification",
    "LionForTokenClassification",
    "LionModel",
    "LionPreTrainedModel",
]
