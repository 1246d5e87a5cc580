# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The softmax encoders of transformers that a LION can start from (convert/warm_start.py), one table entry each: how
their classes, weights and fields map to those of LION, and which weights are folded together. Encoders that cannot be
expressed are listed with the reason.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from transformers import PreTrainedConfig


# Fields with the same name and meaning in BERT, ViT and LION. A family lists all other fields that it reads: some
# models have further fields, without effect, in their configurations.
SHARED_FIELDS = (
    *("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act", "layer_norm_eps"),
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "initializer_range"),
    *("vocab_size", "type_vocab_size", "max_position_embeddings", "pad_token_id", "tie_word_embeddings"),
    *("image_size", "patch_size", "num_channels"),
)
# The name of a field of the source, or a function of its configuration.
Source = str | Callable[[PreTrainedConfig], object]
# Maps weights, by the names that they would have in a LION, to weights of which some are folded together.
Fold = Callable[[dict[str, Tensor], PreTrainedConfig], dict[str, Tensor]]


@dataclass(frozen=True)
class Need:
    """Required values of a field of the source, and why; ignored if the field is absent."""

    name: str
    values: Callable[[PreTrainedConfig], tuple]
    reason: str


@dataclass(frozen=True)
class Head:
    """A class of the source: the corresponding LION class, and what differs from its family."""

    model: str
    names: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, object] = field(default_factory=dict)
    fields: Mapping[str, Source] = field(default_factory=dict)
    needs: tuple[Need, ...] = ()


@dataclass(frozen=True)
class Family:
    """
    Classes of transformers that share an encoder.

    Attributes:
        title: its usual name.
        classes: the prefix of the names of its classes.
        heads: by the rest of the name.
        names: patterns in the names of weights, without the prefix of the encoder, and their replacements; applied in
            order, before those of the head.
        constants: fields of `LionConfig` that are the same for the whole family.
        fields: fields of `LionConfig` that have another name in the source, or are computed.
        needs: required values of fields.
        prefixes: names of the encoder in models with a head.
        joint: patterns of weights that stack several LION weights along their rows, and how many; the parts are then
            named `<name>.0`, `<name>.1`, ...
        shared_layers: pattern of the layers that are applied several times, with the number of the group; the copies
            are then named `layers.0`, `layers.1`, ...
        folds: applied in order to the weights, after they are renamed.
        zeros: patterns of LION weights that are 0 if the source has none.
        twice: pattern of weights that are a second name of another weight.
        vision: the field with the configuration of the image encoder, in models of images and texts.
        antialias: whether positions are smoothed for a smaller grid of patches.
    """

    title: str
    classes: str
    heads: Mapping[str, Head]
    names: Mapping[str, str]
    constants: Mapping[str, object]
    fields: Mapping[str, Source] = field(default_factory=dict)
    needs: tuple[Need, ...] = ()
    prefixes: tuple[str, ...] = ()
    joint: Mapping[str, int] = field(default_factory=dict)
    shared_layers: str | None = None
    folds: tuple[Fold, ...] = ()
    zeros: tuple[str, ...] = ()
    twice: str = r"^(cls\.predictions|predictions|lm_head)\.bias$"
    vision: str | None = None
    antialias: bool = False


# What is folded


def positions_from_0(weights: dict[str, Tensor], config: PreTrainedConfig) -> dict[str, Tensor]:
    """Positions count from 0 in LION, and from `pad_token_id` + 1 in the source, where the rows before are unused."""
    name = "embeddings.position_embeddings.weight"
    return weights | {name: weights[name][config.pad_token_id + 1 :]}


def distillation_token_as_register(weights: dict[str, Tensor], config: PreTrainedConfig) -> dict[str, Tensor]:
    """A register has no position, so that of the distillation token, the second one, is added to the token."""
    weights = dict(weights)
    positions = weights["embeddings.position_embeddings"]
    token = weights.pop("embeddings.distillation_token")
    weights["embeddings.register_tokens"] = token + positions[:, 1:2]
    weights["embeddings.position_embeddings"] = torch.cat((positions[:, :1], positions[:, 2:]), dim=1)
    return weights


def mean_of_two_classifiers(weights: dict[str, Tensor], config: PreTrainedConfig) -> dict[str, Tensor]:
    """
    The mean of the logits of the CLS and the distillation token is one linear layer of both tokens, concatenated.
    """
    weights = dict(weights)
    for kind in ("weight", "bias"):
        both = [weights.pop(f"{token}_classifier.{kind}", None) for token in ("cls", "distillation")]
        if both[0] is not None:
            weights[f"classifier.{kind}"] = (torch.cat(both, dim=1) if kind == "weight" else sum(both)) / 2
    return weights


def layer_scale(weights: dict[str, Tensor], config: PreTrainedConfig) -> dict[str, Tensor]:
    """A factor for each output channel of a linear layer is a factor for each of its rows."""
    weights = dict(weights)
    for number, module in ((1, "attention.o_proj"), (2, "mlp.down_proj")):
        for name in [name for name in weights if name.endswith(f".layer_scale{number}.lambda1")]:
            factor, layer = weights.pop(name), name.removesuffix(f"layer_scale{number}.lambda1")
            weights[f"{layer}{module}.weight"] = weights[f"{layer}{module}.weight"] * factor.unsqueeze(1)
            weights[f"{layer}{module}.bias"] = weights[f"{layer}{module}.bias"] * factor
    return weights


def key_value_heads(weights: dict[str, Tensor], config: PreTrainedConfig) -> dict[str, Tensor]:
    """Keys and values that several heads share are repeated for each head."""
    times = config.num_attention_heads // config.num_key_value_heads

    def repeated(x: Tensor) -> Tensor:
        return x.unflatten(0, (config.num_key_value_heads, -1)).repeat_interleave(times, dim=0).flatten(0, 1)

    return {name: repeated(x) if re.search(r"mixer\.[kv]_proj", name) else x for name, x in weights.items()}


# What is refused

NO_DECODER = tuple(
    Need(name, lambda config: (False, None), "a decoder, and LION is bidirectional: take an encoder")
    for name in ("is_decoder", "add_cross_attention")
)
ABSOLUTE = Need(
    "position_embedding_type",
    lambda config: ("absolute", None),
    "positions relative to each other, which only absolute and rotary ones have a counterpart here: take such a model",
)
WHOLE_HEADS = Need(
    "head_dim",
    lambda config: (config.hidden_size // config.num_attention_heads, None),
    "and here it is `hidden_size` / `num_attention_heads`: take a model of such heads",
)
GELU = Need("hidden_act", lambda config: ("gelu",), "its head always has 'gelu', and LION has one for both: 'gelu'")
START_AND_END = Need("num_labels", lambda config: (2,), "and answers to questions have a start and an end: 2")
SAME_POOLER_SIZE = Need(
    "pooler_output_size",
    lambda config: (config.hidden_size, None),
    "and a pooler gives `hidden_size` numbers here: load the model with add_pooling_layer=False",
)

# Classes of text models

MASKED_LM = Head("LionForMaskedLM")
MODEL = Head("LionModel")
FEW_HEADS = {
    "Model": MODEL,
    "ForMaskedLM": MASKED_LM,
    "ForSequenceClassification": Head("LionForSequenceClassification"),
    "ForTokenClassification": Head("LionForTokenClassification"),
}
TEXT_HEADS = {
    **FEW_HEADS,
    "ForQuestionAnswering": Head("LionForQuestionAnswering", needs=(START_AND_END,)),
    "ForMultipleChoice": Head("LionForMultipleChoice"),
}
# A dense layer and an activation after the first token belong to the pooler in LION.
POOLING_CLASSIFIER = {r"^classifier\.dense\.": "pooler.dense.", r"^classifier\.out_proj\.": "classifier."}

POST_NORM_TEXT = {"modality": "text", "norm_position": "post", "pooling": "cls"}
BERT_TEXT = {**POST_NORM_TEXT, "position_embedding_type": "absolute"}
BERT_NAMES = {
    r"embeddings\.LayerNorm\.": "embeddings.layer_norm.",
    r"^encoder\.layer\.": "layers.",
    r"attention\.self\.([qkv])(uery|ey|alue)\.": r"attention.mixer.\1_proj.",
    r"attention\.output\.dense\.": "attention.o_proj.",
    r"attention\.output\.LayerNorm\.": "attention_norm.",
    r"intermediate\.dense\.": "mlp.up_proj.",
    r"(layers\.\d+)\.output\.dense\.": r"\1.mlp.down_proj.",
    r"(layers\.\d+)\.output\.LayerNorm\.": r"\1.mlp_norm.",
    r"^cls\.predictions\.transform\.dense\.": "lm_head.dense.",
    r"^cls\.predictions\.transform\.(LayerNorm|layer_norm)\.": "lm_head.layer_norm.",
    r"^cls\.predictions\.decoder\.": "lm_head.decoder.",
}
# Llama's names, which later encoders share.
LLAMA_NAMES = {
    r"self_attn\.o_proj\.": "attention.o_proj.",
    r"self_attn\.([qkv])_proj\.": r"attention.mixer.\1_proj.",
}
POST_NORM_LLAMA_NAMES = {
    **BERT_NAMES,
    **LLAMA_NAMES,
    r"post_attention_layernorm\.": "attention_norm.",
    r"post_mlp_layernorm\.": "mlp_norm.",
}
ROTARY = {"rope_parameters": "rope_parameters"}
BERT = Family(
    "BERT",
    "Bert",
    heads={**TEXT_HEADS, "ForPreTraining": MASKED_LM},
    names=BERT_NAMES,
    constants=BERT_TEXT,
    needs=(*NO_DECODER, ABSOLUTE),
    prefixes=("bert",),
)


def roberta(title: str, classes: str) -> Family:
    """RoBERTa and models built like it."""
    return Family(
        title,
        classes,
        heads={
            **TEXT_HEADS,
            "ForMaskedLM": Head("LionForMaskedLM", needs=(GELU,)),
            "ForSequenceClassification": Head("LionForSequenceClassification", POOLING_CLASSIFIER),
        },
        names=BERT_NAMES,
        constants=BERT_TEXT,
        fields={"max_position_embeddings": lambda config: config.max_position_embeddings - config.pad_token_id - 1},
        needs=(*NO_DECODER, ABSOLUTE),
        prefixes=("roberta",),
        folds=(positions_from_0,),
    )


DISTILBERT = Family(
    "DistilBERT",
    "DistilBert",
    heads={
        **TEXT_HEADS,
        "ForSequenceClassification": Head("LionForSequenceClassification", constants={"pooler_act": "relu"}),
        "ForMultipleChoice": Head("LionForMultipleChoice", constants={"pooler_act": "relu"}),
    },
    names={
        r"embeddings\.LayerNorm\.": "embeddings.layer_norm.",
        r"^transformer\.layer\.": "layers.",
        r"attention\.([qkv])_lin\.": r"attention.mixer.\1_proj.",
        r"attention\.out_lin\.": "attention.o_proj.",
        r"sa_layer_norm\.": "attention_norm.",
        r"ffn\.lin1\.": "mlp.up_proj.",
        r"ffn\.lin2\.": "mlp.down_proj.",
        r"output_layer_norm\.": "mlp_norm.",
        r"^vocab_transform\.": "lm_head.dense.",
        r"^vocab_layer_norm\.": "lm_head.layer_norm.",
        r"^vocab_projector\.": "lm_head.decoder.",
        r"^pre_classifier\.": "pooler.dense.",
    },
    constants={**BERT_TEXT, "type_vocab_size": 0, "layer_norm_eps": 1e-12},
    fields={
        "hidden_act": "activation",
        "intermediate_size": "hidden_dim",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "classifier_dropout": "seq_classif_dropout",
    },
    prefixes=("distilbert",),
)
SUMMARY = (
    Need("summary_type", lambda config: ("first",), "and a choice is here read from the first token: 'first'"),
    Need("summary_use_proj", lambda config: (True,), "and there is a dense layer here: True"),
)
ELECTRA = Family(
    "ELECTRA",
    "Electra",
    heads={
        **TEXT_HEADS,
        # The discriminator's head, one number per token, is for pre-training alone.
        "ForPreTraining": MODEL,
        "ForMaskedLM": Head(
            "LionForMaskedLM",
            {
                r"^generator_predictions\.dense\.": "lm_head.dense.",
                r"^generator_predictions\.LayerNorm\.": "lm_head.layer_norm.",
                r"^generator_lm_head\.": "lm_head.decoder.",
            },
            needs=(GELU,),
        ),
        "ForSequenceClassification": Head("LionForSequenceClassification", POOLING_CLASSIFIER, {"pooler_act": "gelu"}),
        "ForMultipleChoice": Head(
            "LionForMultipleChoice",
            {r"^sequence_summary\.summary\.": "pooler.dense."},
            fields={"pooler_act": lambda config: config.summary_activation or "linear"},
            needs=SUMMARY,
        ),
    },
    names={**BERT_NAMES, r"^embeddings_project\.": "embeddings.projection."},
    constants=BERT_TEXT,
    fields={
        "embedding_size": lambda config: config.embedding_size if config.embedding_size != config.hidden_size else None
    },
    needs=(*NO_DECODER, ABSOLUTE),
    prefixes=("electra",),
)
ALBERT = Family(
    "ALBERT",
    "Albert",
    heads={**TEXT_HEADS, "ForPreTraining": MASKED_LM},
    names={
        r"embeddings\.LayerNorm\.": "embeddings.layer_norm.",
        r"^encoder\.embedding_hidden_mapping_in\.": "embeddings.projection.",
        r"attention\.([qkv])(uery|ey|alue)\.": r"attention.mixer.\1_proj.",
        r"attention\.dense\.": "attention.o_proj.",
        r"attention\.LayerNorm\.": "attention_norm.",
        r"ffn\.": "mlp.up_proj.",
        r"ffn_output\.": "mlp.down_proj.",
        r"full_layer_layer_norm\.": "mlp_norm.",
        r"^pooler\.": "pooler.dense.",
        r"^predictions\.LayerNorm\.": "lm_head.layer_norm.",
        r"^predictions\.(dense|decoder)\.": r"lm_head.\1.",
    },
    constants=BERT_TEXT,
    fields={"embedding_size": "embedding_size", "classifier_dropout": "classifier_dropout_prob"},
    needs=(
        ABSOLUTE,
        Need(
            "inner_group_num", lambda config: (1,), "and groups of several layers have no counterpart: take one of 1"
        ),
    ),
    prefixes=("albert",),
    shared_layers=r"^encoder\.albert_layer_groups\.(\d+)\.albert_layers\.0\.",
)
NOMIC_BERT = Family(
    "NomicBERT",
    "NomicBert",
    heads=FEW_HEADS,
    names=POST_NORM_LLAMA_NAMES,
    constants={
        **POST_NORM_TEXT,
        "position_embedding_type": "none",
        "use_gated_mlp": True,
        "qkv_bias": False,
        "proj_bias": False,
        "mlp_bias": False,
    },
    fields=ROTARY,
    needs=(WHOLE_HEADS,),
    prefixes=("nomic_bert",),
)
GTE = Family(
    "GTE",
    "Gte",
    heads={**FEW_HEADS, "ForMaskedLM": Head("LionForMaskedLM", needs=(GELU,))},
    names=POST_NORM_LLAMA_NAMES,
    constants={**POST_NORM_TEXT, "position_embedding_type": "none", "use_gated_mlp": True},
    fields=ROTARY,
    prefixes=("gte",),
    zeros=(r"mlp\.(gate|up)_proj\.bias$",),  # only the last linear layer of the MLP has one
)
EUROBERT = Family(
    "EuroBERT",
    "EuroBert",
    heads={
        **FEW_HEADS,
        "ForMaskedLM": Head("LionForMaskedLM", {r"^lm_head\.": "lm_head.decoder."}),
        "ForSequenceClassification": Head(
            "LionForSequenceClassification",
            {r"^dense\.": "pooler.dense."},
            {"pooler_act": "gelu"},
            {"pooling": lambda config: {"bos": "cls"}.get(config.classifier_pooling, config.classifier_pooling)},
        ),
    },
    names={
        **LLAMA_NAMES,
        r"^embed_tokens\.": "embeddings.word_embeddings.",
        r"input_layernorm\.": "attention_norm.",
        r"post_attention_layernorm\.": "mlp_norm.",
    },
    constants={
        "modality": "text",
        "position_embedding_type": "none",
        "norm_position": "pre",
        "norm_type": "rms_norm",
        "embedding_norm": False,
        "use_gated_mlp": True,
        "use_lm_transform": False,
        "type_vocab_size": 0,
        "pooling": "mean",
    },
    fields={
        **ROTARY,
        "mlp_bias": "mlp_bias",
        "layer_norm_eps": "rms_norm_eps",
        "qkv_bias": "attention_bias",
        "proj_bias": "attention_bias",
        "attention_probs_dropout_prob": "attention_dropout",
    },
    needs=(WHOLE_HEADS,),
    prefixes=("model",),
    folds=(key_value_heads,),
    zeros=(r"^lm_head\.decoder\.bias$",),
    twice="^$",
)
MODERNBERT = Family(
    "ModernBERT",
    "ModernBert",
    heads={
        **TEXT_HEADS,
        "ForMaskedLM": Head("LionForMaskedLM", {r"^head\.": "lm_head.", r"^decoder\.": "lm_head.decoder."}),
        "ForQuestionAnswering": Head(
            "LionForQuestionAnswering", {r"^classifier\.": "qa_outputs."}, needs=(START_AND_END,)
        ),
    },
    names={
        r"embeddings\.tok_embeddings\.": "embeddings.word_embeddings.",
        r"embeddings\.norm\.": "embeddings.layer_norm.",
        r"^final_norm\.": "norm.",
        r"attn_norm\.": "attention_norm.",
        **{rf"attn\.Wqkv\.(weight|bias)\.{n}$": rf"attention.mixer.{name}_proj.\1" for n, name in enumerate("qkv")},
        r"attn\.Wo\.": "attention.o_proj.",
        **{rf"mlp\.Wi\.(weight|bias)\.{n}$": rf"mlp.{name}_proj.\1" for n, name in enumerate(("gate", "up"))},
        r"mlp\.Wo\.": "mlp.down_proj.",
        r"^head\.norm\.": "head.layer_norm.",
    },
    constants={
        "modality": "text",
        "position_embedding_type": "none",
        "norm_position": "pre",
        "first_norm": False,
        "use_gated_mlp": True,
        "use_prediction_head": True,
        "type_vocab_size": 0,
    },
    fields={
        **ROTARY,
        **{name: name for name in ("norm_bias", "mlp_bias", "classifier_bias")},
        "hidden_act": "hidden_activation",
        "layer_norm_eps": "norm_eps",
        "qkv_bias": "attention_bias",
        "proj_bias": "attention_bias",
        "pooling": "classifier_pooling",
    },
    needs=(
        Need(
            "classifier_activation",
            lambda config: (config.hidden_activation,),
            "and LION has one for it and for `hidden_activation`, `hidden_act`: take a model where they are the same",
        ),
    ),
    prefixes=("model",),
    joint={r"attn\.Wqkv\.": 3, r"mlp\.Wi\.": 2},
    zeros=(r"^lm_head\.decoder\.bias$",),
)

# Classes of image models

IMAGE = {"modality": "image", "norm_position": "pre", "pooling": "cls", "position_embedding_type": "absolute"}
QKV_BIAS = {"qkv_bias": "qkv_bias"}
CLASSIFIER = Head("LionForImageClassification")
DENSE_POOLER = Head("LionModel", fields={"pooler_act": "pooler_act"}, needs=(SAME_POOLER_SIZE,))
# First the names of earlier releases of transformers.
VIT_NAMES = {
    r"^encoder\.layer\.": "layers.",
    r"attention\.attention\.([qkv])(uery|ey|alue)\.": r"attention.mixer.\1_proj.",
    r"attention\.output\.dense\.": "attention.o_proj.",
    r"intermediate\.dense\.": "mlp.up_proj.",
    r"(layers\.\d+)\.output\.dense\.": r"\1.mlp.down_proj.",
    r"patch_embeddings\.projection\.": "patch_embeddings.",
    r"attention\.([qkv]_proj)\.": r"attention.mixer.\1.",
    r"(layernorm_before|norm1)\.": "attention_norm.",
    r"(layernorm_after|norm2)\.": "mlp_norm.",
    r"mlp\.fc1\.": "mlp.up_proj.",
    r"mlp\.fc2\.": "mlp.down_proj.",
    r"^layernorm\.": "norm.",
}
VIT = Family(
    "ViT",
    "ViT",
    heads={"Model": DENSE_POOLER, "ForImageClassification": CLASSIFIER},
    names=VIT_NAMES,
    constants=IMAGE,
    fields=QKV_BIAS,
    prefixes=("vit",),
)
VIT_MAE = replace(
    VIT,
    title="ViT-MAE",
    classes="ViTMAE",
    # The decoder is for pre-training alone.
    heads={"Model": MODEL, "ForPreTraining": MODEL},
)
DEIT = Family(
    "DeiT",
    "DeiT",
    heads={
        "Model": DENSE_POOLER,
        "ForImageClassification": CLASSIFIER,
        "ForImageClassificationWithTeacher": Head("LionForImageClassification", constants={"pooling": "prefix"}),
    },
    names=VIT_NAMES,
    constants={**IMAGE, "num_register_tokens": 1},
    fields=QKV_BIAS,
    prefixes=("deit",),
    folds=(distillation_token_as_register, mean_of_two_classifiers),
)


def dinov2_mlp_size(config: PreTrainedConfig) -> int:
    """A gated MLP has two thirds of the features, rounded up to a multiple of 8."""
    size = int(config.hidden_size * config.mlp_ratio)
    return (int(size * 2 / 3) + 7) // 8 * 8 if config.use_swiglu_ffn else size


def dinov2(title: str, classes: str, prefix: str, antialias: bool) -> Family:
    """DINOv2, with and without registers."""
    return Family(
        title,
        classes,
        heads={
            "Model": MODEL,
            "ForImageClassification": Head("LionForImageClassification", constants={"pooling": "cls_mean"}),
        },
        names={
            **VIT_NAMES,
            # Earlier releases had both in one.
            **{
                rf"mlp\.weights_in\.(weight|bias)\.{n}$": rf"mlp.{name}_proj.\1"
                for n, name in enumerate(("gate", "up"))
            },
            r"mlp\.weights_out\.": "mlp.down_proj.",
        },
        constants=IMAGE,
        fields={
            **QKV_BIAS,
            "num_register_tokens": lambda config: getattr(config, "num_register_tokens", 0),
            "intermediate_size": dinov2_mlp_size,
            "use_gated_mlp": "use_swiglu_ffn",
            "hidden_act": lambda config: "silu" if config.use_swiglu_ffn else config.hidden_act,
        },
        prefixes=(prefix,),
        joint={r"mlp\.weights_in\.": 2},
        folds=(layer_scale,),
        antialias=antialias,
    )


CLIP_NAMES = {
    r"^encoder\.layers\.": "layers.",
    r"^embeddings\.class_embedding$": "embeddings.cls_token",
    r"^embeddings\.patch_embedding\.": "embeddings.patch_embeddings.",
    r"^embeddings\.position_embedding\.weight$": "embeddings.position_embeddings",
    r"^pre_layrnorm\.": "embeddings.layer_norm.",
    r"self_attn\.out_proj\.": "attention.o_proj.",
    r"self_attn\.([qkv])_proj\.": r"attention.mixer.\1_proj.",
    r"(layers\.\d+)\.layer_norm1\.": r"\1.attention_norm.",
    r"(layers\.\d+)\.layer_norm2\.": r"\1.mlp_norm.",
    r"mlp\.fc1\.": "mlp.up_proj.",
    r"mlp\.fc2\.": "mlp.down_proj.",
}


def clip(classes: str, heads: Mapping[str, Head], vision: str | None = None) -> Family:
    """The image encoder of CLIP, alone or (`vision`) in a model with a text encoder, which is dropped."""
    return Family(
        "CLIP (images)",
        classes,
        heads=heads,
        names={**CLIP_NAMES, r"^post_layernorm\.": "pooler.layer_norm."},
        constants={**IMAGE, "embedding_norm": True, "pooler_norm": True},
        fields={"attention_probs_dropout_prob": "attention_dropout"},
        prefixes=("vision_model",),
        zeros=(r"^embeddings\.patch_embeddings\.bias$",),
        vision=vision,
    )


def siglip(classes: str, heads: Mapping[str, Head], vision: str | None = None) -> Family:
    """The image encoder of SigLIP, alone or (`vision`) in a model with a text encoder, which is dropped."""
    return Family(
        "SigLIP (images)",
        classes,
        heads=heads,
        names={
            r"^head\.probe$": "pooler.attention.probe",
            **{
                rf"^head\.attention\.in_proj_(weight|bias)\.{n}$": rf"pooler.attention.{name}_proj.\1"
                for n, name in enumerate("qkv")
            },
            r"^head\.attention\.out_proj\.": "pooler.attention.o_proj.",
            r"^head\.layernorm\.": "pooler.attention.layer_norm.",
            r"^head\.mlp\.": "pooler.attention.mlp.",
            r"^post_layernorm\.": "norm.",
            **CLIP_NAMES,
        },
        constants={**IMAGE, "use_cls_token": False, "pooling": "mean"},
        fields={"attention_probs_dropout_prob": "attention_dropout"},
        prefixes=("vision_model",),
        joint={r"head\.attention\.in_proj_": 3},
        vision=vision,
    )


ATTENTION_POOLING = Head(
    "LionModel", fields={"pooling": lambda config: "attention" if getattr(config, "vision_use_head", True) else "mean"}
)

# By the `model_type` of a configuration.
FAMILIES = {
    "bert": BERT,
    "roberta": roberta("RoBERTa", "Roberta"),
    "xlm-roberta": roberta("XLM-RoBERTa", "XLMRoberta"),
    "camembert": roberta("CamemBERT", "Camembert"),
    "distilbert": DISTILBERT,
    "electra": ELECTRA,
    "albert": ALBERT,
    "nomic_bert": NOMIC_BERT,
    "gte": GTE,
    "eurobert": EUROBERT,
    "modernbert": MODERNBERT,
    "vit": VIT,
    "vit_mae": VIT_MAE,
    "deit": DEIT,
    "dinov2": dinov2("DINOv2", "Dinov2", "dinov2", antialias=False),
    "dinov2_with_registers": dinov2(
        "DINOv2 with registers", "Dinov2WithRegisters", "dinov2_with_registers", antialias=True
    ),
    "clip_vision_model": clip("CLIPVisionModel", {"": MODEL, "WithProjection": MODEL}),
    "clip": clip("CLIPModel", {"": MODEL}, vision="vision_config"),
    "siglip_vision_model": siglip("SiglipVisionModel", {"": ATTENTION_POOLING}),
    "siglip": siglip("Siglip", {"Model": ATTENTION_POOLING, "ForImageClassification": CLASSIFIER}, "vision_config"),
}

RELATIVE = "adds a learnt bias for each distance to the scores of softmax, which linear attention has none of"
DECODER = "is a decoder, and LION reads in both directions"
PYRAMID = "has layers of several sizes, and those of LION have one"
WINDOWS = "has attention of its own kind in every layer"
TEXTS = "a RoBERTa, a BERT or a ModernBERT"
IMAGES = "a ViT or a DINOv2"
# By `model_type`: why it cannot be expressed, and what to use instead.
REFUSED = {
    "mpnet": (RELATIVE, "a BERT or RoBERTa of the same purpose (all-MiniLM-L12-v2 for all-mpnet-base-v2)"),
    "deberta": ("computes scores of contents with relative positions, which no layer of LION does", TEXTS),
    "deberta-v2": ("computes scores of contents with relative positions, which no layer of LION does", TEXTS),
    "beit": (RELATIVE, IMAGES),
    "data2vec-vision": (RELATIVE, IMAGES),
    "t5": (RELATIVE, TEXTS),
    "xlnet": ("computes scores of contents with relative positions, which no layer of LION does", TEXTS),
    "longformer": (WINDOWS, "a ModernBERT, whose windows are kept"),
    "big_bird": (WINDOWS, "a ModernBERT, whose windows are kept"),
    "convbert": (WINDOWS, TEXTS),
    "mobilebert": ("has bottlenecks around every layer", "a DistilBERT"),
    "dinov3_vit": ("turns by the rows and columns of an image, and rotary positions are for text here", IMAGES),
    "swin": (PYRAMID, IMAGES),
    "swinv2": (PYRAMID, IMAGES),
    "convnext": ("has convolutions, and no attention that could become linear", IMAGES),
    "resnet": ("has convolutions, and no attention that could become linear", IMAGES),
    "siglip2": ("takes images as patches of any number, with sizes beside them", "a SigLIP"),
    "siglip2_vision_model": ("takes images as patches of any number, with sizes beside them", "a SigLIP"),
    **dict.fromkeys(("gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma", "opt", "gpt_neox"), (DECODER, TEXTS)),
}


def titles() -> list[str]:
    """The titles of all families."""
    return list(dict.fromkeys(family.title for family in FAMILIES.values()))


def find_head(model_type: str, name: str) -> tuple[Family, Head]:
    """
    The table entries of a class of transformers.

    Raises:
        ValueError: if it has none, with the reason and what to use instead, or the list of supported models.
    """
    family = FAMILIES.get(model_type)
    if family is None:
        if model_type in REFUSED:
            reason, instead = REFUSED[model_type]
            raise ValueError(f"{name} has no counterpart: a {model_type!r} {reason}. Start from {instead}.")
        raise ValueError(
            f"{name} ({model_type!r}) has no counterpart; a warm start needs one of {', '.join(titles())}."
        )
    head = family.heads.get(name.removeprefix(family.classes)) if name.startswith(family.classes) else None
    if head is None:
        names = ", ".join(family.classes + suffix for suffix in family.heads)
        raise ValueError(f"{name} has no counterpart; of a {family.title}, a warm start needs one of {names}.")
    return family, head
