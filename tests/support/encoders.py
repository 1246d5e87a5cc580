# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Tiny models of the encoders of transformers: those that become linear, and those that are refused with a reason. The
table on docs/compatibility.md is made from them.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pydoc import locate

import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

import modeling_lion
from modeling_lion.private_apis import model_mappings


SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "initializer_range": 0.3,
}
TEXT = SIZES | {
    "vocab_size": 40,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4}
LOCAL = {"num_hidden_layers": 3, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
IMAGE = SIZES | {"image_size": 12, "patch_size": 3}
# Layers without positions in the waveform, which a text beside longer ones would see.
WAVE = SIZES | {
    "vocab_size": 40,
    "conv_dim": (8, 8),
    "conv_kernel": (4, 2),
    "conv_stride": (4, 2),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "feat_extract_norm": "layer",
    "do_stable_layer_norm": False,
    "layerdrop": 0.0,
    "mask_time_prob": 0.0,
    "classifier_proj_size": 8,
    "tdnn_dim": (8, 8),
    "tdnn_kernel": (3, 1),
    "tdnn_dilation": (1, 1),
    "xvector_output_dim": 8,
    "codevector_dim": 8,
    "proj_codevector_dim": 8,
    "num_codevectors_per_group": 4,
}
SPEECH = {  # encoders of encoder-decoder models
    "vocab_size": 40,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 64,
    "init_std": 0.3,
    "num_mel_bins": 6,
    "max_source_positions": 20,
    "decoder_start_token_id": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
XLNET = {"vocab_size": 40, "d_model": 16, "n_head": 2, "d_inner": 24}
T5 = TEXT | {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2}
SWIN = {"image_size": 32, "patch_size": 4, "embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2], "window_size": 4}
VIDEO = SIZES | {"image_size": 8, "patch_size": 4, "num_frames": 4}


def text(config: PreTrainedConfig, batch: int, length: int) -> dict[str, Tensor]:
    return {"input_ids": torch.randint(3, 40, (batch, length))}


def image(config: PreTrainedConfig, batch: int, length: int) -> dict[str, Tensor]:
    config = getattr(config, "vision_config", config)
    size = config.image_size if isinstance(config.image_size, int) else config.image_size[0]
    return {"pixel_values": torch.randn(batch, getattr(config, "num_channels", 3), size, size)}


def image_and_text(config: PreTrainedConfig, batch: int, length: int) -> dict[str, Tensor]:
    return image(config, batch, length) | text(config, batch, length)


def wave(config: PreTrainedConfig, batch: int, length: int) -> dict[str, Tensor]:
    return {"input_values": torch.randn(batch, 8 * length)}


def long_wave(config: PreTrainedConfig, batch: int, length: int) -> dict[str, Tensor]:
    return {"input_values": torch.randn(batch, 384 * length + 127)}


def image_and_noise(config: PreTrainedConfig, batch: int, length: int) -> dict[str, Tensor]:
    """Inputs of masked autoencoders, which put patches into the order of the noise."""
    return image(config, batch, length) | {"noise": torch.arange(16.0).expand(batch, -1)}


def spectrogram(config: PreTrainedConfig, batch: int, length: int) -> dict[str, Tensor]:
    return {"input_values": torch.randn(batch, config.max_length, config.num_mel_bins)}


def whisper_features(config: PreTrainedConfig, batch: int, length: int) -> dict[str, Tensor]:
    return {"input_features": torch.randn(batch, config.num_mel_bins, 2 * config.max_source_positions)}


def video(config: PreTrainedConfig, batch: int, length: int) -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(batch, config.num_frames, 3, 8, 8)}


def video_of_vjepa(config: PreTrainedConfig, batch: int, length: int) -> dict[str, Tensor]:
    return {"pixel_values_videos": torch.randn(batch, 4, 3, 8, 8), "skip_predictor": True}


def series(config: PreTrainedConfig, batch: int, length: int) -> dict[str, Tensor]:
    return {"past_values": torch.randn(batch, config.context_length, config.num_input_channels)}


def patches(config: PreTrainedConfig, batch: int, length: int) -> dict[str, Tensor]:
    """As Siglip 2 reads them: of images of any shape, padded."""
    return {
        "pixel_values": torch.randn(batch, 16, 3 * config.patch_size**2),
        "pixel_attention_mask": torch.ones(batch, 16, dtype=torch.int64),
        "spatial_shapes": torch.tensor([[4, 4]] * batch),
    }


@cache
def exported_names() -> frozenset[str]:
    """The names that transformers exports. To list them imports nothing, and takes half a second."""
    return frozenset(dir(transformers))


@dataclass(frozen=True)
class Encoder:
    """
    A tiny model.

    Args:
        class_name: of transformers, or with its module if transformers does not export it.
        fields: of its configuration.
        make_inputs: a batch of `(batch, length)` tokens, or of the size that the model reads.
        needs_example: whether `linearize` has to be given an input.
        why_refused: a part of the reason, for models that cannot become linear.
    """

    class_name: str
    fields: dict
    make_inputs: Callable[[PreTrainedConfig, int, int], dict[str, Tensor]] = text
    needs_example: bool = False
    why_refused: str | None = None

    @property
    def model_class(self) -> type[PreTrainedModel]:
        name = self.class_name
        return locate(f"transformers.models.{name}") if "." in name else getattr(transformers, name)

    @property
    def is_there(self) -> bool:
        """Whether this release of transformers has it."""
        return "." in self.class_name or self.class_name in exported_names()

    def heads(self) -> dict[type[PreTrainedModel], str]:
        """The other classes of models with its configuration that Auto classes load, and the name of one for each."""
        found, config_class = {}, self.model_class.config_class
        for name, mapping in model_mappings().items():
            if config_class in mapping:
                classes = mapping[config_class]
                for head in classes if isinstance(classes, tuple | list) else (classes,):
                    found.setdefault(head, name)
        found.pop(self.model_class, None)
        return found

    @property
    def model_type(self) -> str:
        return self.model_class.config_class.model_type

    @property
    def can_pad(self) -> bool:
        """Whether a row beside padding is what it is alone, in the encoder as it was."""
        return self.make_inputs in (text, wave) and str(self) != "Data2VecAudioModel"  # its convolutions see padding

    @property
    def can_pickle(self) -> bool:
        """Not with normalized weights in convolutions, and not with the hooks of backbones that have run."""
        return self.make_inputs is not wave and str(self) != "VitPoseBackbone"

    def __str__(self) -> str:
        return self.class_name.rpartition(".")[2] if self.why_refused is None else f"{self.class_name}-refused"

    def linear(self, model: PreTrainedModel, **options) -> PreTrainedModel:
        """`linearize` of a model from `model`, and every weight that it adds drawn at random."""
        if self.needs_example:
            options["example_inputs"] = self.inputs(model.config, batch=1, dtype=model.dtype)
        modeling_lion.linearize(model, **options)
        torch.manual_seed(1)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if ".lion." in name:
                    weight.add_(0.3 * torch.randn_like(weight))
        return model

    def config(self, **fields) -> PreTrainedConfig:
        return self.model_class.config_class(**copy.deepcopy(self.fields) | fields)

    def model(self, dtype: torch.dtype = torch.float64, model_class=None, **fields) -> PreTrainedModel:
        """With random weights, biases and norms included, in evaluation mode."""
        torch.manual_seed(0)
        model = (model_class or self.model_class)(self.config(**fields)).to(dtype).eval()
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(0.1 * torch.randn_like(weight))
            for table in model.modules():
                if isinstance(table, nn.Embedding) and table.padding_idx is not None:
                    table.weight[table.padding_idx] = 0  # as some classes make it when they load
        return model

    def inputs(self, config: PreTrainedConfig, batch: int = 2, length: int = 12, dtype=torch.float64) -> dict:
        made = self.make_inputs(config, batch, length)
        return {
            name: x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x for name, x in made.items()
        }


# Models whose fields are all those of their kind.
OF_TEXT = """
    BertModel BertGenerationEncoder CamembertModel ChineseCLIPTextModel ClapTextModel Data2VecTextModel
    DistilBertModel DPRQuestionEncoder ErnieModel EsmcModel GteModel JinaEmbeddingsV3Model LayoutLMModel
    NomicBertModel RobertaModel RobertaPreLayerNormModel SiglipTextModel Siglip2TextModel SplinterModel
    XLMRobertaModel XLMRobertaXLModel
"""
OF_IMAGES = """
    Aimv2VisionModel AltCLIPVisionModel BeitModel Blip2VisionModel ChineseCLIPVisionModel CLIPVisionModel
    DeiTModel Dinov2Model Dinov2WithRegistersModel DINOv3ViTModel DPTModel GitVisionModel IJepaModel
    InstructBlipVisionModel JanusVisionModel MetaClip2VisionModel MLCDVisionModel Owlv2VisionModel
    OwlViTVisionModel PixioModel PixtralVisionModel RadioModel Sapiens2Model SiglipVisionModel Tipsv2VisionModel
    ViTModel ViTMSNModel
"""
OF_SPEECH = """
    Data2VecAudioModel HubertModel UniSpeechModel UniSpeechSatModel Wav2Vec2Model
"""
ENCODERS = [
    *(Encoder(name, TEXT) for name in OF_TEXT.split()),
    *(Encoder(name, IMAGE, image) for name in OF_IMAGES.split()),
    *(Encoder(name, WAVE, wave) for name in OF_SPEECH.split()),
    Encoder("AlbertModel", TEXT | {"embedding_size": 8}),
    Encoder("AltCLIPTextModel", TEXT | {"project_dim": 8}),
    Encoder("ElectraModel", TEXT | {"embedding_size": 8}),
    Encoder(
        "EmbeddingGemma2TextModel",
        TEXT
        | GROUPED
        | LOCAL
        | {
            "sliding_window": 3,
            "global_head_dim": 8,
            "num_global_key_value_heads": 1,
            "hidden_size_per_layer_input": 8,
            "embedding_dim": 16,
        },
    ),
    Encoder("EsmModel", TEXT | {"mask_token_id": 3, "position_embedding_type": "rotary", "token_dropout": False}),
    Encoder("EuroBertModel", TEXT | GROUPED),
    Encoder("MarkupLMModel", TEXT | {"max_depth": 3, "xpath_unit_hidden_size": 4}),
    Encoder(
        "MobileBertModel",
        TEXT
        | {
            "initializer_range": 0.1,
            "trigram_input": False,
            "embedding_size": 16,
            "intra_bottleneck_size": 16,
            "true_hidden_size": 16,
        },
    ),
    Encoder(
        "ModernBertModel",
        TEXT
        | {
            "num_hidden_layers": 3,
            "layer_types": ["full_attention", "sliding_attention", "full_attention"],
            "local_attention": 6,
            "cls_token_id": 1,
            "sep_token_id": 2,
        },
    ),
    Encoder(
        "NeoMMEModel",
        TEXT
        | GROUPED
        | LOCAL
        | {
            "head_dim": 16,
            "embedding_rank": 8,
            "per_layer_config": {0: {"sliding_window": 3}, 1: {"sliding_window": None}, 2: {"sliding_window": 3}},
        },
    ),
    Encoder(
        "RoCBertModel",
        TEXT
        | {"pronunciation_embed_dim": 8, "pronunciation_vocab_size": 40}
        | {"shape_embed_dim": 8, "shape_vocab_size": 40},
    ),
    Encoder(
        "UltrabertModel",
        TEXT | GROUPED | LOCAL | {"sliding_window": 3},
    ),
    Encoder("XmodModel", TEXT | {"languages": ["en_XX"], "default_language": "en_XX"}),
    Encoder("bart.modeling_bart.BartEncoder", SPEECH),
    Encoder("mbart.modeling_mbart.MBartEncoder", SPEECH),
    Encoder("m2m_100.modeling_m2m_100.M2M100Encoder", SPEECH),
    Encoder("marian.modeling_marian.MarianEncoder", SPEECH),
    Encoder("pegasus.modeling_pegasus.PegasusEncoder", SPEECH),
    Encoder("InternVLVisionModel", IMAGE | {"image_size": (12, 12), "patch_size": (3, 3)}, image),
    Encoder("Sam3ViTModel", IMAGE | {"pretrain_image_size": 12, "window_size": 0}, image),
    Encoder("Siglip2VisionModel", IMAGE | {"num_patches": 16}, patches, needs_example=True),
    Encoder("VitPoseBackbone", IMAGE | {"image_size": (24, 24), "patch_size": (6, 6)}, image),
    Encoder("ViTMAEModel", IMAGE | {"mask_ratio": 0.0}, image_and_noise),
    Encoder("YolosModel", IMAGE | {"image_size": [12, 12], "num_detection_tokens": 3}, image),
    Encoder("SiglipModel", {"text_config": TEXT, "vision_config": IMAGE}, image_and_text),
    Encoder("VivitModel", VIDEO | {"tubelet_size": (2, 4, 4)}, video),
    Encoder(
        "VJEPA2Model",
        SIZES
        | {"crop_size": 8, "patch_size": 4, "frames_per_clip": 4}
        | {"pred_num_hidden_layers": 1, "pred_hidden_size": 24, "pred_num_attention_heads": 2},
        video_of_vjepa,
    ),
    Encoder(
        "ASTModel",
        SIZES | {"patch_size": 3, "max_length": 12, "num_mel_bins": 6, "frequency_stride": 3, "time_stride": 3},
        spectrogram,
    ),
    Encoder("SEWModel", WAVE | {"squeeze_factor": 1}, wave),
    Encoder(
        "moonshine.modeling_moonshine.MoonshineEncoder",
        TEXT
        | {
            "encoder_num_hidden_layers": 2,
            "encoder_num_attention_heads": 2,
            "decoder_num_attention_heads": 2,
        },
        long_wave,
    ),
    Encoder("VoxtralEncoder", SIZES | {"num_mel_bins": 6, "max_source_positions": 20}, whisper_features),
    Encoder("whisper.modeling_whisper.WhisperEncoder", SPEECH, whisper_features),
    Encoder(
        "PatchTSTModel",
        SPEECH
        | {
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "ffn_dim": 24,
            "context_length": 16,
            "patch_length": 2,
            "patch_stride": 2,
            "num_input_channels": 2,
        },
        series,
    ),
    Encoder("VideoMAEModel", VIDEO, video),
    Encoder("Qwen2AudioEncoder", SPEECH, whisper_features),
]

NOT_CALLED = "does not call transformers' attention interface"
BIAS = "adds a bias to its scores"
CAUSAL = "is causal"
CAPPED = "has a soft cap or sinks"
NEVER_CALLING = """
    BigBird Canine ConvBert Deberta DebertaV2 Flaubert FNet IBert MegatronBert MPNet Nystromformer RemBert
    RoFormer Tapas VisualBert XLM Yoso
"""
REFUSED = [
    *(Encoder(f"{name}Model", TEXT, why_refused=NOT_CALLED) for name in NEVER_CALLING.split()),
    Encoder(
        "FunnelModel",
        XLNET | {"d_head": 8, "block_sizes": [1, 1]},
        why_refused=NOT_CALLED,
    ),
    Encoder("LukeModel", TEXT | {"entity_vocab_size": 8, "entity_emb_size": 8}, why_refused=NOT_CALLED),
    Encoder("LongformerModel", TEXT | {"attention_window": 4}, why_refused=NOT_CALLED),
    Encoder("LongT5EncoderModel", T5, why_refused=NOT_CALLED),
    Encoder(
        "SqueezeBertModel",
        TEXT
        | {"embedding_size": 16}
        | dict.fromkeys([f"{x}_groups" for x in ("q", "k", "v", "post_attention", "intermediate", "output")], 1),
        why_refused=NOT_CALLED,
    ),
    Encoder(
        "XLNetModel",
        XLNET | {"n_layer": 2},
        why_refused=NOT_CALLED,
    ),
    Encoder("BlipVisionModel", IMAGE, image, why_refused=NOT_CALLED),
    Encoder("Data2VecVisionModel", IMAGE, image, why_refused=NOT_CALLED),
    Encoder("FlavaImageModel", IMAGE, image, why_refused=NOT_CALLED),
    Encoder(
        "GroupViTVisionModel",
        IMAGE | {"depths": [1, 1], "num_group_tokens": [4, 0], "num_output_groups": [4, 4]},
        image,
        why_refused=NOT_CALLED,
    ),
    Encoder(
        "SamVisionModel",
        IMAGE | {"window_size": 0, "global_attn_indexes": [0], "output_channels": 8},
        image,
        why_refused=NOT_CALLED,
    ),
    Encoder("Swinv2Model", SWIN, image, why_refused=NOT_CALLED),
    Encoder("TimesformerModel", VIDEO, video, why_refused=NOT_CALLED),
    Encoder("SEWDModel", WAVE | {"squeeze_factor": 1}, wave, why_refused=NOT_CALLED),
    Encoder("WavLMModel", WAVE, wave, why_refused=NOT_CALLED),
    Encoder("BeitModel", IMAGE | {"use_relative_position_bias": True}, image, why_refused=BIAS),
    Encoder("MT5EncoderModel", T5, why_refused=BIAS),
    Encoder("SwinModel", SWIN, image, why_refused=BIAS),
    Encoder("T5EncoderModel", T5, why_refused=BIAS),
    Encoder("UMT5EncoderModel", T5, why_refused=BIAS),
    Encoder("Wav2Vec2ConformerModel", WAVE | {"position_embeddings_type": "relative"}, wave, why_refused=BIAS),
    Encoder("BartModel", SPEECH, why_refused=CAUSAL),
    Encoder("BertModel", TEXT | {"is_decoder": True}, why_refused=CAUSAL),
    Encoder("CLIPModel", {"text_config": TEXT, "vision_config": IMAGE}, image_and_text, why_refused=CAUSAL),
    Encoder("CLIPTextModel", TEXT, why_refused=CAUSAL),
    Encoder("GPT2Model", {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 40}, why_refused=CAUSAL),
    Encoder("LlamaModel", TEXT, why_refused=CAUSAL),
    Encoder("ModernBertDecoderModel", TEXT | {"cls_token_id": 1, "sep_token_id": 2}, why_refused=CAUSAL),
    Encoder(
        "SegformerModel",
        {
            "hidden_sizes": [8, 16],
            "depths": [1, 1],
            "num_encoder_blocks": 2,
            "sr_ratios": [2, 1],
            "num_attention_heads": [1, 2],
            "patch_sizes": [3, 3],
            "strides": [2, 2],
            "mlp_ratios": [2, 2],
            "image_size": 32,
        },
        image,
        why_refused="attends to another sequence",
    ),
    Encoder(
        "OpenAIPrivacyFilterModel",
        TEXT
        | GROUPED
        | {
            "sliding_window": 3,
            "num_local_experts": 3,
            "num_experts_per_tok": 2,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
        },
        why_refused=CAPPED,
    ),
    Encoder(
        "T5GemmaEncoderModel",
        {
            "encoder": TEXT | GROUPED | {"layer_types": ["sliding_attention", "full_attention"]},
            "decoder": TEXT | GROUPED | {"layer_types": ["sliding_attention", "full_attention"]},
            "is_encoder_decoder": False,
        },
        why_refused=CAPPED,
    ),
    Encoder(
        "ViTMAEForPreTraining",
        IMAGE
        | {
            "decoder_hidden_size": 16,
            "decoder_num_attention_heads": 2,
            "decoder_num_hidden_layers": 1,
            "decoder_intermediate_size": 24,
        },
        image_and_noise,
        why_refused="outside of the base model",
    ),
]
