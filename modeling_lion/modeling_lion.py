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

from collections.abc import Callable
from json import JSONDecodeError
from pickle import UnpicklingError

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import (
    BaseModelOutputWithPooling,
    ImageClassifierOutput,
    MaskedImageModelingOutput,
    MaskedLMOutput,
    MultipleChoiceModelOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.modeling_utils import AttentionInterface
from transformers.processing_utils import Unpack
from transformers.pytorch_utils import apply_chunking_to_forward
from transformers.utils import TransformersKwargs, auto_docstring, logging
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .attention_report import AttentionReport, attention_report
from .border_states import BorderStates, segment_attention, segment_states
from .configuration_lion import LionConfig
from .embeddings import LionImageEmbeddings, LionTextEmbeddings, patch_grid
from .feature_map import PositiveRandomFeatures
from .kernel_auto import auto_attention
from .kernel_chunk import chunk_attention
from .kernel_naive import naive_attention
from .kernel_parallel import parallel_attention
from .kernel_rnn import rnn_attention
from .lion_kernel import accumulation_dtype, check_borders
from .long_encoding import encode_in_segments
from .mixer_decay import DecayMixer, FixedDecay, initial_decay_logits
from .mixer_diagonal import DiagonalMixer
from .mixer_lit import LitMixer
from .mixer_luna import LunaMixer
from .mixer_selective import DecayGate, SelectiveMixer
from .mixer_softmax import SoftmaxMixer
from .padding import packed_borders, packed_positions, padding_mask
from .patch_order import scan_attention, scan_orders
from .sequence_parallel import SequenceShard, labels_per_process, slice_of_inputs


logger = logging.get_logger(__name__)

MIXERS = {
    "lit": LitMixer,
    "decay": DecayMixer,
    "selective": SelectiveMixer,
    "diagonal": DiagonalMixer,
    "softmax": SoftmaxMixer,
    "luna": LunaMixer,
}


def eager_attention(query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor | None = None, **kwargs):
    """The full form that returns its weights: the reference, in the accumulation dtype. Arguments of `lion_kernel`."""
    dtype = accumulation_dtype(query.dtype)
    with torch.autocast(query.device.type, enabled=False):
        output, weights = naive_attention(*(x.to(dtype) for x in (query, key, value)), log_decay, **kwargs)
    return output.to(value.dtype), weights.to(value.dtype)


# An interface of our own: the names below are LION's alone, so no other model in the process can be given one by
# mistake. "eager" is the library's own name for a form that returns weights and is passed as the default instead.
ALL_ATTENTION_FUNCTIONS = AttentionInterface()
KERNELS = {
    "auto": auto_attention,
    "parallel": parallel_attention,
    "chunk": chunk_attention,
    "rnn": rnn_attention,
}
for _name, _kernel in KERNELS.items():
    ALL_ATTENTION_FUNCTIONS[_name] = _kernel


def attention_names(config: LionConfig) -> tuple[str, ...]:
    """What `attn_implementation` may be besides "eager", which is the reference, where nothing else is installed."""
    return ("sdpa",) if config.uses_softmax else tuple(KERNELS)


class LionAttention(nn.Module):
    """Bidirectional linear attention: a mixer makes queries, keys, values and decays, a kernel computes with them."""

    def __init__(self, config: LionConfig, layer_idx: int = 0):
        super().__init__()
        self.config = config
        self.mixer = MIXERS[config.mixer_type](config, layer_idx)
        self.layer_norm = nn.LayerNorm(config.hidden_size, eps=1e-5) if config.attention_layer_norm else None
        # Dropout of single weights would need the full matrix; dropping mixed values is the same in every kernel.
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)
        self.o_proj = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        memory: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """
        Args:
            hidden_states: `(batch, length, hidden_size)`.
            attention_mask: of `Mixer.layer_mask`.
            memory: a second stream of hidden states, which only some mixers read and write (mixer_luna.py).

        Returns:
            The mixed hidden states, the weights if asked for, and the memory for the next layer.
        """
        kwargs["output_attentions"] = kwargs.get("output_attentions", self.config.output_attentions)
        if isinstance(self.mixer, LitMixer):
            output, weights = self.linear_attention(hidden_states, attention_mask, **kwargs)
        else:
            output, weights, memory = self.mixer(hidden_states, attention_mask, memory, **kwargs)
        if self.layer_norm is not None:
            output = self.layer_norm(output)
        return self.o_proj(self.dropout(output)), weights, memory

    def linear_attention(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None,
        output_attentions: bool | None,
        scans: Tensor | None = None,
        cu_seq_lens_q: Tensor | None = None,
        border_states: BorderStates | SequenceShard | None = None,
        **kwargs,
    ) -> tuple[Tensor, Tensor | None]:
        """A kernel on what a linear mixer makes of the hidden states; `(batch, length, hidden_size)` and weights."""
        implementation = self.config._attn_implementation
        if implementation == "auto" and output_attentions:
            implementation = "eager"
        inputs = self.mixer(hidden_states, attention_mask)
        options = {"scans": scans, "border_states": border_states, "cu_seqlens": cu_seq_lens_q}
        kernel = ALL_ATTENTION_FUNCTIONS.get_interface(implementation, eager_attention)
        output, weights = self.mix(*inputs, kernel=kernel, **options)
        if weights is None and output_attentions:
            logger.warning_once(
                f'The "{implementation}" kernel has no attention weights: they are computed once '
                "more in the full form, which takes time and memory quadratic in the length."
            )
            _, weights = self.mix(*inputs, kernel=eager_attention, **options)
        return output.transpose(1, 2).flatten(2), weights

    def mix(
        self,
        *inputs: Tensor,
        kernel: Callable,
        scans: Tensor | None,
        border_states: BorderStates | SequenceShard | None,
        **kwargs,
    ):
        """Call a kernel on the mixer's outputs, directly, along scans, or on one segment of a longer sequence."""
        kwargs |= {"normalization": self.config.normalization, "chunk_size": self.config.chunk_size}
        if scans is not None:
            return scan_attention(kernel, *inputs, scans=scans, **kwargs)
        if isinstance(border_states, SequenceShard):  # the other segments are in other processes
            border_states = border_states.exchange(segment_states(*inputs[1:]))
        if border_states is not None:
            return segment_attention(kernel, *inputs, border_states=border_states, **kwargs)
        return kernel(*inputs, **kwargs)

    def segment_states(self, hidden_states: Tensor, attention_mask: Tensor | None) -> BorderStates:
        """What a segment of a longer sequence gives to the others (border_states.py)."""
        _, key, value, log_decay = self.mixer(hidden_states, attention_mask)
        return segment_states(key, value, log_decay)


class LionMLP(nn.Module):
    def __init__(self, config: LionConfig):
        super().__init__()
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size)
        self.activation = ACT2FN[config.hidden_act]
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.down_proj(self.activation(self.up_proj(hidden_states)))


class LionLayer(GradientCheckpointingLayer):
    """Attention and MLP, each with a residual; LayerNorm before each of them (ViT) or after (BERT)."""

    def __init__(self, config: LionConfig, layer_idx: int = 0):
        super().__init__()
        self.is_pre_norm = config.norm_position == "pre"
        self.chunk_size_feed_forward = config.chunk_size_feed_forward
        self.attention = LionAttention(config, layer_idx)
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.mlp = LionMLP(config)
        self.mlp_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        memory: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[Tensor, Tensor | None]:
        """The hidden states, and the memory for the next layer: see `LionAttention`."""
        # Normed states have no name, so that inference frees them early.
        mixed, _, memory = self.attention(
            self.attention_norm(hidden_states) if self.is_pre_norm else hidden_states, attention_mask, memory, **kwargs
        )
        hidden_states = hidden_states + self.dropout(mixed)
        del mixed
        if not self.is_pre_norm:
            hidden_states = self.attention_norm(hidden_states)
        hidden_states = hidden_states + self.dropout(
            apply_chunking_to_forward(self.feed_forward, self.chunk_size_feed_forward, 1, hidden_states)
        )
        return hidden_states if self.is_pre_norm else self.mlp_norm(hidden_states), memory

    def segment_states(self, hidden_states: Tensor, attention_mask: Tensor | None) -> BorderStates:
        normed = self.attention_norm(hidden_states) if self.is_pre_norm else hidden_states
        return self.attention.segment_states(normed, attention_mask)

    def feed_forward(self, hidden_states: Tensor) -> Tensor:
        return self.mlp(self.mlp_norm(hidden_states) if self.is_pre_norm else hidden_states)


class LionPooler(nn.Module):
    """
    One vector for a sequence: that of its first real token, or the mean of its real tokens; for text, the first
    token's goes through BERT's dense tanh layer.
    """

    def __init__(self, config: LionConfig):
        super().__init__()
        self.pooling = config.pooling
        self.dense = None
        if config.modality == "text" and config.pooling == "cls":
            self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None,
        cu_seqlens: Tensor | None = None,
        shard: SequenceShard | None = None,
    ) -> Tensor:
        """`(batch, hidden_size)`; of packed rows `(batch * num_sequences, hidden_size)`."""
        if cu_seqlens is not None:
            lengths = cu_seqlens.diff().tolist()
            sequences = hidden_states.split(lengths, dim=1)
            masks = [None] * len(lengths) if attention_mask is None else attention_mask.split(lengths, dim=1)
            return torch.stack([self(*pair) for pair in zip(sequences, masks, strict=True)], dim=1).flatten(0, 1)
        if shard is not None:
            pooled = shard.pool(hidden_states, attention_mask, self.pooling)
            return pooled if self.dense is None else torch.tanh(self.dense(pooled))
        if self.pooling == "mean":
            if attention_mask is None:
                return hidden_states.mean(dim=1)
            weights = attention_mask.to(hidden_states.dtype).unsqueeze(-1)
            return (hidden_states * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)
        if attention_mask is None:
            pooled = hidden_states[:, 0]
        else:
            first = attention_mask.int().argmax(dim=1)  # not 0 where padding is on the left
            pooled = hidden_states[torch.arange(first.shape[0], device=first.device), first]
        return pooled if self.dense is None else torch.tanh(self.dense(pooled))


class UsesSoftmax:
    """An attribute that says whether a model's mixer is softmax attention; False where only the class is known."""

    def __get__(self, model: PreTrainedModel | None, model_class: type | None = None) -> bool:
        return model is not None and model.config.uses_softmax


@auto_docstring
class LionPreTrainedModel(PreTrainedModel):
    config: LionConfig
    base_model_prefix = "lion"
    supports_gradient_checkpointing = True
    input_modalities = ("text", "image")
    _can_compile_fullgraph = True
    _can_record_outputs = {"hidden_states": LionLayer, "attentions": LionAttention}
    # What the class can be built for; a head for one modality says so.
    _modalities = ("text", "image")
    # Whether the loss needs no more of other slices of a sequence than their number of labels.
    _supports_sequence_parallel = True

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        # FSDP2 gives a sharded model a new class, made in a file of torch; the library would save that file as the
        # model's code, and its name as the class to load.
        first, *others = cls.__bases__
        if others and first.__module__.startswith("torch.distributed"):
            cls.__name__, cls.__module__ = others[0].__name__, others[0].__module__

    def __init__(self, config: LionConfig, *inputs, **kwargs):
        if isinstance(config, PreTrainedConfig) and type(config).model_type != LionConfig.model_type:
            raise ValueError(
                f"{type(self).__name__} takes a LionConfig, and this is a {type(config).__name__}. `lion convert "
                "--from-pretrained` makes a LION of a trained BERT or ViT."
            )
        if isinstance(config, LionConfig):
            config.validate()  # fields may have been set one by one
            if config.modality not in self._modalities:
                raise ValueError(
                    f"{type(self).__name__} takes `modality` {self._modalities[0]!r}, and it is {config.modality!r}: "
                    f"use a class for {config.modality} (LionModel takes both), or another config."
                )
        super().__init__(config, *inputs, **kwargs)
        # What a device_map keeps together and accelerate's FSDP gathers at a time. FSDP stops at a class that is not
        # in the model, and gathers word embeddings by itself, together with a decoder that is tied to them.
        self._no_split_modules = ["LionLayer"] + ["LionImageEmbeddings"] * (config.modality == "image")

    # Which of the library's attention functions there are: none for linear attention.
    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = UsesSoftmax()

    def get_correct_attn_implementation(self, requested_attention: str | None, is_init_check: bool = False) -> str:
        if self.config.uses_softmax:
            if requested_attention in KERNELS and requested_attention != "auto":
                raise ValueError(
                    f"`attn_implementation={requested_attention!r}` is a kernel of linear attention, and `mixer_type` "
                    f"{self.config.mixer_type!r} computes softmax attention. Use the library's names: "
                    '"sdpa" (or "auto", the default), "eager" (returns attention weights), "flash_attention_2", ...'
                )
            requested_attention = None if requested_attention == "auto" else requested_attention
            chosen = super().get_correct_attn_implementation(requested_attention, is_init_check)
            possible = MIXERS[self.config.mixer_type].attention_functions
            if possible is not None and chosen not in possible:
                raise ValueError(
                    f"`attn_implementation={chosen!r}` cannot compute `mixer_type` {self.config.mixer_type!r}: use "
                    f"one of {', '.join(possible)}."
                )
            return chosen
        if requested_attention is None:
            return "auto"
        if requested_attention not in (*KERNELS, "eager"):
            raise ValueError(
                f"`attn_implementation={requested_attention!r}` is not a LION kernel. LION computes linear attention, "
                'so softmax kernels do not apply (but to `mixer_type="softmax"`). Use "parallel" (short inputs), '
                '"chunk" (long inputs), "rnn" (token by token), "auto" (chooses by length, the default) or "eager" '
                "(returns attention weights)."
            )
        return requested_attention

    def set_sequence_parallel(self, group: "torch.distributed.ProcessGroup | None") -> None:
        """
        Let the processes of a group share every sequence: from now on each gives `forward` its slice of the tokens
        (`shard_inputs`), in the order of their ranks, and gets the hidden states and logits of that slice. What layers
        send does not depend on the length. All processes must call `forward` and `backward` together.

        `pooler_output` is the same in all processes. The mean of their losses is the loss of the whole sequences, and
        the mean of their gradients its gradient: what DDP and FSDP make of them.

        Args:
            group: the processes of one sequence, also as a one-dimensional DeviceMesh. `None` ends it.

        Raises:
            ValueError: for models of images, whose patches are not cut into slices, and for question answering, whose
                loss is over all tokens at once.
        """
        if group is not None and self.config.uses_softmax:
            raise ValueError(
                "Processes share a sequence by the states of linear attention, which `mixer_type` "
                f"{self.config.mixer_type!r} has not: use another mixer."
            )
        if group is not None and (self.config.modality != "text" or not self._supports_sequence_parallel):
            raise ValueError(
                f"{type(self).__name__} of `modality` {self.config.modality!r} cannot share a sequence among "
                "processes: use LionModel, LionForMaskedLM, LionForSequenceClassification, "
                "LionForTokenClassification or LionForMultipleChoice, for text."
            )
        self.base_model.sequence_group = group.get_group() if hasattr(group, "get_group") else group

    def shard_inputs(self, inputs: dict) -> dict:
        """
        This process's slice of a batch of whole sequences, the same in all processes of `set_sequence_parallel`.

        Args:
            inputs: arguments of `forward` by name. Of `input_ids`, `attention_mask`, `token_type_ids`, `position_ids`,
                `inputs_embeds` and of `labels` per token, `(batch, length, ...)`, a slice of the length is taken.

        Raises:
            ValueError: if there is no group, or there are fewer tokens than processes.
        """
        if self.base_model.sequence_group is None:
            raise ValueError("There is no group of processes: call `set_sequence_parallel` first.")
        return slice_of_inputs(inputs, self.base_model.sequence_group)

    def loss_of_slice(self, labels: Tensor, **kwargs) -> Tensor:
        """`loss_function` for labels per token, each with the weight that it has in the whole sequences."""
        group = self.base_model.sequence_group
        if group is not None and kwargs.get("num_items_in_batch") is None:
            kwargs["num_items_in_batch"] = labels_per_process(labels, group)
        return self.loss_function(labels=labels, **kwargs)

    def resize_token_embeddings(self, *args, **kwargs) -> nn.Module:
        """`PreTrainedModel.resize_token_embeddings`, for text."""
        if self.config.modality != "text":
            raise ValueError(
                "An image model has no token embeddings to resize: its embeddings are of patches. Set `image_size` or "
                "`patch_size` in the config of a new model."
            )
        return super().resize_token_embeddings(*args, **kwargs)

    def attention_report(self, tokens: list[int], **inputs: Tensor) -> list[AttentionReport]:
        """
        What each layer looks at, in memory that grows with the length and not with its square.

        Args:
            tokens: positions whose rows are wanted, the same in every row of the batch. For images 0 is the CLS token.
            inputs: as for the model.

        Returns:
            One `AttentionReport` per layer: exact attention rows, rows of the decay mask, receptive fields.

        Raises:
            ValueError: if the mixer is not a linear one, or a position is not in the input.
        """
        return attention_report(self, tokens, **inputs)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *args, output_loading_info: bool = False, **kwargs):
        """`PreTrainedModel.from_pretrained`, with errors for damaged weights and for those of another mixer."""
        try:
            model, info = super().from_pretrained(
                pretrained_model_name_or_path, *args, output_loading_info=True, **kwargs
            )
        except FileNotFoundError as error:
            raise OSError(
                f"The weights in {pretrained_model_name_or_path} are incomplete ({error}): download or save them "
                "again."
            ) from error
        except (SafetensorError, JSONDecodeError, UnicodeDecodeError) as error:  # a file of weights, or their index
            raise OSError(
                f"The weights in {pretrained_model_name_or_path} are damaged or cut short ({error}): download or "
                "save them again."
            ) from error
        except UnpicklingError as error:  # torch reads tensors alone; its message advises to run what else is in there
            raise OSError(
                f"The weights in {pretrained_model_name_or_path} are a pickle that holds more than tensors, or no "
                "weights at all. Nothing of it was run, and nothing should be: get them as safetensors, which "
                "save_pretrained writes."
            ) from error
        # Weights of mixers that are left over or absent in a layer that is neither.
        others = []
        for names in (info["unexpected_keys"], info["missing_keys"]):
            for name in names:
                layer, is_mixers, weight = name.partition(".mixer.")
                is_bias = weight in ("q_proj.bias", "k_proj.bias", "v_proj.bias")  # of another `qkv_bias`
                if is_mixers and not is_bias and f"{layer}.mixer.q_proj.weight" not in names:
                    others.append(name)
        if others:
            raise ValueError(
                f"The weights in {pretrained_model_name_or_path} are of another mixer than `mixer_type` "
                f"{model.config.mixer_type!r}, or of another `feature_map` than {model.config.feature_map!r}: they "
                f"differ in {', '.join(sorted(others)[:3])}{', …' if len(others) > 3 else ''}. Load them with the "
                "configuration they were saved with. To start these anew on purpose, make the model from the "
                "configuration and call load_state_dict(state_dict, strict=False)."
            )
        return (model, info) if output_loading_info else model

    @torch.no_grad()
    def _init_weights(self, module):
        super()._init_weights(module)
        if isinstance(module, FixedDecay):
            init.copy_(module.bias, initial_decay_logits(self.config))
        elif isinstance(module, DecayGate):
            init.copy_(module.bias, module.bias_of(initial_decay_logits(self.config)))
            if module.log_rate_bias is not None:
                init.zeros_(module.log_rate_bias)
            if self.config.mixer_type == "diagonal":  # as strong as a gate that reads the hidden states themselves
                init.normal_(module.weight, std=module.in_features**-0.5)
        elif isinstance(module, PositiveRandomFeatures):
            init.copy_(module.projection, module.random_projection())
        elif isinstance(module, LunaMixer) and module.memory is not None:
            init.normal_(module.memory, std=1.0)  # as large as what the LayerNorms of the other layers make of it
        elif isinstance(module, LionImageEmbeddings):
            init.trunc_normal_(module.cls_token, std=self.config.initializer_range)
            if module.position_embeddings is not None:
                init.trunc_normal_(module.position_embeddings, std=self.config.initializer_range)
            if module.mask_token is not None:
                init.zeros_(module.mask_token)


@auto_docstring
class LionModel(LionPreTrainedModel):
    # Heads and the mask token of pre-training are no part of the encoder: loading it alone leaves them out.
    _keys_to_ignore_on_load_unexpected = [
        r"^classifier\.",
        r"^qa_outputs\.",
        r"^lm_head\.",
        r"^decoder\.",
        r"mask_token$",
    ]

    def __init__(self, config: LionConfig, add_pooling_layer: bool = True, use_mask_token: bool = False):
        r"""
        add_pooling_layer (`bool`, *optional*, defaults to `True`):
            Whether to make `pooler_output`.
        use_mask_token (`bool`, *optional*, defaults to `False`):
            Whether to have a mask token, for masked image modeling.
        """
        super().__init__(config)
        self.is_text = config.modality == "text"
        if self.is_text:
            self.embeddings = LionTextEmbeddings(config)
        else:
            self.main_input_name = "pixel_values"
            self.embeddings = LionImageEmbeddings(config, use_mask_token)
        self.layers = nn.ModuleList([LionLayer(config, i) for i in range(config.num_hidden_layers)])
        is_pre_norm = config.norm_position == "pre"
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps) if is_pre_norm else None
        self.pooler = LionPooler(config) if add_pooling_layer else None
        # SPEC §5: the decays stay float32, when the model is loaded in half precision and when it is quantised.
        parts = {part for name, _ in self.named_parameters() for part in name.split(".")}
        self._keep_in_fp32_modules_strict = {part for part in parts if part.startswith("decay")}
        # What quantisers leave out; some compare this pattern with names of modules, some with those of parameters.
        self._keep_in_fp32_modules = {f".*{part}" for part in self._keep_in_fp32_modules_strict}
        self.gradient_checkpointing = False
        self.sequence_group = None
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.embeddings.word_embeddings if self.is_text else self.embeddings.patch_embeddings

    def set_input_embeddings(self, value: nn.Module):
        if self.is_text:
            self.embeddings.word_embeddings = value
        else:
            self.embeddings.patch_embeddings = value

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
            Which patches are replaced by the mask token.
        cu_seq_lens_q (`torch.Tensor` of shape `(num_sequences + 1,)`, *optional*):
            Borders of sequences packed into each row, from 0 to the length. Read from `position_ids` that start again
            at 0 if not given, but not under `torch.compile`, where they must be given. `pooler_output` has one row per
            sequence.
        """
        self.check_inputs(input_ids, inputs_embeds, pixel_values)
        scans, shard = None, None
        if self.is_text:
            inputs = input_ids if inputs_embeds is None else inputs_embeds
            attention_mask = padding_mask(attention_mask, inputs)
            if cu_seq_lens_q is None:
                cu_seq_lens_q = packed_borders(position_ids, attention_mask)
            else:
                check_borders(cu_seq_lens_q, inputs.shape[1])
                if position_ids is None:
                    position_ids = packed_positions(cu_seq_lens_q, inputs.shape[1])
            if self.sequence_group is not None:
                if cu_seq_lens_q is not None or kwargs.get("output_attentions", self.config.output_attentions):
                    raise ValueError(
                        "Processes that share a sequence take one sequence a row, not packed ones (`cu_seq_lens_q` or "
                        "`position_ids` that start again), and give no attention weights (`output_attentions`)."
                    )
                shard = SequenceShard.of(inputs, attention_mask, self.sequence_group)
                if position_ids is None:
                    position_ids = shard.position_ids(attention_mask, inputs.shape[1])
            hidden_states = self.embeddings(input_ids, token_type_ids, position_ids, inputs_embeds, attention_mask)
        else:
            hidden_states = self.embeddings(pixel_values, bool_masked_pos, interpolate_pos_encoding)
            if self.config.num_scans > 1:
                grid = patch_grid(self.config, pixel_values)
                scans = scan_orders(self.config.patch_order, *grid, device=hidden_states.device)
            attention_mask = padding_mask(attention_mask, hidden_states)
        layer_mask = MIXERS[self.config.mixer_type].layer_mask(
            self.config, hidden_states, attention_mask, cu_seq_lens_q
        )
        memory = None
        for layer in self.layers:
            # By position what may need a gradient: else checkpointing would lose it.
            hidden_states, memory = layer(
                hidden_states,
                layer_mask,
                memory,
                scans=scans,
                border_states=shard,
                cu_seq_lens_q=cu_seq_lens_q,
                **kwargs,
            )
        if self.norm is not None:
            hidden_states = self.norm(hidden_states)
        pooled = None
        if self.pooler is not None:
            pooled = self.pooler(hidden_states, attention_mask, cu_seq_lens_q, shard)
        return BaseModelOutputWithPooling(last_hidden_state=hidden_states, pooler_output=pooled)

    @torch.no_grad()
    def encode_long(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        *,
        segment_length: int = 16384,
        show_progress: bool = True,
    ) -> BaseModelOutputWithPooling:
        """
        Encode a text of any length, with the result of `forward` but the memory of one segment besides the hidden
        states: a million tokens fit where one forward pass would not. For inference; nothing is truncated.

        Args:
            input_ids, attention_mask, token_type_ids, position_ids: as in `forward`, `(batch, length)`.
            segment_length: tokens that are computed at once.
            show_progress: whether to draw a progress bar.

        Raises:
            ValueError: if the model reads images, or the inputs do not fit.
        """
        hidden_states, attention_mask = encode_in_segments(
            self, input_ids, attention_mask, token_type_ids, position_ids, segment_length, show_progress
        )
        pooled = self.pooler(hidden_states, attention_mask) if self.pooler is not None else None
        return BaseModelOutputWithPooling(last_hidden_state=hidden_states, pooler_output=pooled)

    def check_inputs(self, input_ids: Tensor | None, inputs_embeds: Tensor | None, pixel_values: Tensor | None):
        if self.is_text and pixel_values is not None:
            raise ValueError('This LionModel has `modality="text"`: pass `input_ids`, not `pixel_values`.')
        if self.is_text and (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Pass either `input_ids` or `inputs_embeds`.")
        for name, inputs, width in (
            ("input_ids", input_ids, ()),
            ("inputs_embeds", inputs_embeds, (self.config.hidden_size,)),
        ):
            if inputs is not None and (inputs.shape[2:] != width or inputs.dim() < 2 or inputs.shape[1] == 0):
                shape = ", ".join(("batch", "length", *map(str, width)))
                raise ValueError(f"`{name}` must be ({shape}), with a length above 0; got {tuple(inputs.shape)}.")
        if not self.is_text and (pixel_values is None or input_ids is not None or inputs_embeds is not None):
            raise ValueError('This LionModel has `modality="image"`: pass `pixel_values=...`, by name, and no text.')


class LionMaskedLMHead(nn.Module):
    """BERT's head: dense, activation, LayerNorm, and a decoder that is tied to the word embeddings."""

    def __init__(self, config: LionConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = ACT2FN[config.hidden_act]
        self.layer_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.decoder(self.layer_norm(self.activation(self.dense(hidden_states))))


@auto_docstring
class LionForMaskedLM(LionPreTrainedModel):
    _modalities = ("text",)
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
            The tokens to predict, in `[0, config.vocab_size)`; -100 where there is nothing to predict.
        """
        outputs = self.lion(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, return_dict=True, **kwargs
        )
        logits = self.lm_head(outputs.last_hidden_state)
        loss = None
        if labels is not None:
            loss = self.loss_of_slice(labels, logits=logits, vocab_size=self.config.vocab_size, **kwargs)
        return MaskedLMOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class LionTextClassifier(LionPreTrainedModel):
    """What the text heads with one linear layer share."""

    _modalities = ("text",)

    def __init__(self, config: LionConfig, num_labels: int, add_pooling_layer: bool):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.lion = LionModel(config, add_pooling_layer=add_pooling_layer)
        dropout = config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(config.hidden_size, num_labels)
        self.post_init()


@auto_docstring
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
            Classes (int64), numbers to regress on (`num_labels=1`, float), or 0/1 per label (float). Which of these
            is read from `config.problem_type`, or guessed from the labels if that is not set.
        """
        outputs = self.lion(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, return_dict=True, **kwargs
        )
        logits = self.classifier(self.dropout(outputs.pooler_output))
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config, **kwargs)
        return SequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


@auto_docstring
class LionForTokenClassification(LionTextClassifier):
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
        logits = self.classifier(self.dropout(outputs.last_hidden_state))
        loss = None
        if labels is not None:
            loss = self.loss_of_slice(labels, logits=logits, config=self.config, **kwargs)
        return TokenClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


@auto_docstring
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
            loss = self.loss_function(start_logits, end_logits, start_positions, end_positions, **kwargs)
        return QuestionAnsweringModelOutput(
            loss=loss,
            start_logits=start_logits.contiguous(),
            end_logits=end_logits.contiguous(),
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


@auto_docstring
class LionForMultipleChoice(LionTextClassifier):
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
            One sequence per choice. `attention_mask`, `token_type_ids` and `position_ids` have the same shape.
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
        outputs = self.lion(*(None if x is None else x.flatten(0, 1) for x in inputs), return_dict=True, **kwargs)
        logits = self.classifier(self.dropout(outputs.pooler_output)).view(-1, num_choices)
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels.to(logits.device))
        return MultipleChoiceModelOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


@auto_docstring
class LionForImageClassification(LionPreTrainedModel):
    main_input_name = "pixel_values"
    input_modalities = ("image",)
    _modalities = ("image",)

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
        outputs = self.lion(
            pixel_values=pixel_values,
            interpolate_pos_encoding=interpolate_pos_encoding,
            attention_mask=attention_mask,
            return_dict=True,
            **kwargs,
        )
        logits = self.classifier(outputs.pooler_output)
        loss = None if labels is None else self.loss_function(labels, logits, self.config, **kwargs)
        return ImageClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


@auto_docstring(custom_intro="LION with a linear decoder to pixels, for masked image modeling (SimMIM).")
class LionForMaskedImageModeling(LionPreTrainedModel):
    main_input_name = "pixel_values"
    input_modalities = ("image",)
    _modalities = ("image",)

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
            Which patches are replaced by the mask token and predicted. Gives a loss: the mean absolute error of
            their pixels.
        """
        outputs = self.lion(
            pixel_values=pixel_values,
            bool_masked_pos=bool_masked_pos,
            interpolate_pos_encoding=interpolate_pos_encoding,
            attention_mask=attention_mask,
            return_dict=True,
            **kwargs,
        )
        rows, columns = patch_grid(self.config, pixel_values)
        patch_shape = (self.config.num_channels, *self.config.patch_shape)
        patches = self.decoder(outputs.last_hidden_state[:, 1:]).unflatten(2, patch_shape)
        reconstruction = join_patches(patches, rows, columns)
        loss = None
        if bool_masked_pos is not None:
            error = (reconstruction - pixel_values).abs()
            mask = bool_masked_pos.to(error.dtype)[:, :, None, None, None].expand(-1, -1, *patch_shape)
            mask = join_patches(mask, rows, columns)
            loss = (error * mask).sum() / mask.sum().clamp(min=1)
        return MaskedImageModelingOutput(
            loss=loss,
            reconstruction=reconstruction,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


def join_patches(patches: Tensor, rows: int, columns: int) -> Tensor:
    """`(batch, rows * columns, channels, height, width)` to `(batch, channels, rows * height, columns * width)`."""
    patches = patches.unflatten(1, (rows, columns))
    return patches.permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3)


__all__ = [
    "LionForImageClassification",
    "LionForMaskedImageModeling",
    "LionForMaskedLM",
    "LionForMultipleChoice",
    "LionForQuestionAnswering",
    "LionForSequenceClassification",
    "LionForTokenClassification",
    "LionModel",
    "LionPreTrainedModel",
]
