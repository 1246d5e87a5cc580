# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""LionConfig: defaults, round trips, presets, and errors that name the field, its value and what to do."""

import copy
import json
import pickle

import pytest
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig

from configuration_lion import PRESETS, LionConfig, lion_preset, published_fields


DEFAULTS = [
    # modality, mixer_type: layer_norm_eps, position_embedding_type, head_directions, conv_kernel
    ("text", "lit", 1e-12, "absolute", "alternate", 3),
    ("text", "decay", 1e-12, "none", "alternate", 3),
    ("text", "selective", 1e-12, "none", "alternate", 3),
    ("text", "softmax", 1e-12, "absolute", "both", 0),
    ("image", "lit", 1e-6, "absolute", "alternate", 3),
    ("image", "decay", 1e-6, "absolute", "alternate", 3),
    ("image", "selective", 1e-6, "absolute", "alternate", 3),
    ("image", "softmax", 1e-6, "absolute", "both", 0),
    ("image", "luna", 1e-6, "absolute", "both", 0),
]
FIELDS = ["layer_norm_eps", "position_embedding_type", "head_directions", "conv_kernel"]


@pytest.mark.parametrize(("modality", "mixer_type", "eps", "positions", "directions", "taps"), DEFAULTS)
def test_defaults_follow_modality_and_mixer(modality, mixer_type, eps, positions, directions, taps):
    config = LionConfig(modality=modality, mixer_type=mixer_type)
    assert [getattr(config, name) for name in FIELDS] == [eps, positions, directions, taps]


def test_the_defaults_are_the_recommended_presets():
    assert LionConfig().to_dict() == lion_preset("lion-text-base").to_dict()
    assert LionConfig(modality="image").to_dict() == lion_preset("lion-image-base").to_dict()
    assert LionConfig(num_attention_heads=3).head_directions == "both"  # they cannot alternate
    assert LionConfig(layer_types=["sliding_attention"] * 12).conv_kernel == 0


def test_rotary_positions_carry_order():
    for mixer_type in ("lit", "selective", "softmax"):
        assert LionConfig(mixer_type=mixer_type, rope_parameters={}).position_embedding_type == "none"


@pytest.mark.parametrize("positions", ["table", "rotary", "none", "cyclic"])
def test_the_length_is_limited_by_a_table_of_positions_alone(positions, tmp_path):
    fields = {"mixer_type": "lit" if positions == "table" else "selective"}
    fields |= {"position_embedding_type": "cyclic"} if positions == "cyclic" else {}
    fields |= {"rope_parameters": {}} if positions == "rotary" else {}
    config = LionConfig(**fields, max_position_embeddings=99)
    config.save_pretrained(tmp_path / "new")
    stored = json.loads((tmp_path / "new" / "config.json").read_text())
    without_initial = {name: value for name, value in stored.items() if name != "initial_context_length"}
    (tmp_path / "by hand").mkdir()
    (tmp_path / "by hand" / "config.json").write_text(json.dumps(without_initial | {"max_position_embeddings": 99}))
    LionConfig(**fields).save_pretrained(tmp_path / "default")
    changed = LionConfig.from_pretrained(tmp_path / "default", max_position_embeddings=99)
    loaded = [LionConfig.from_pretrained(tmp_path / name) for name in ("new", "by hand")]
    for length in (config, *loaded, changed):
        assert length.max_position_embeddings == (99 if positions in ("table", "rotary") else 2**20)
        assert length.context_length == length.initial_context_length == 99
        assert length.longest_text == (99 if positions == "table" else None)
    assert LionConfig(**fields).context_length == 512
    for name in ("max_position_embeddings", "initial_context_length"):
        named = "max_position_embeddings" if positions in ("table", "rotary") else name
        with pytest.raises(StrictDataclassError, match=f"`{named}` is 0; give at"):
            LionConfig(**fields, **{name: 0})


CONFIGS = {
    "defaults": {},
    "image": {"modality": "image", "image_size": (32, 64), "patch_size": [8, 16], "patch_order": "snake"},
    # Each is the default of the other modality or mixer, or as published, given explicitly.
    "text like an image": {"layer_norm_eps": 1e-6},
    "image like a text": {"modality": "image", "layer_norm_eps": 1e-12},
    "published text": {"mixer_initializer_range": 0.02} | published_fields("text"),
    "published image": {"modality": "image", "patch_order": "snake"} | published_fields("image"),
    "lit without positions": {"mixer_type": "lit", "position_embedding_type": "none"},
    "decay with positions": {"mixer_type": "decay", "position_embedding_type": "absolute"},
    "rotary": {"rope_parameters": {"rope_type": "linear", "rope_theta": 100.0, "factor": 2.0}},
    "rotary by layer type": {
        "mixer_type": "softmax",
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 5}, "sliding_attention": None},
    },
    "labels": {"id2label": {0: "no", 1: "yes"}, "label2id": {"no": 0, "yes": 1}, "problem_type": "regression"},
    "integers": {"hidden_dropout_prob": 0, "classifier_dropout": 0},
}


@pytest.mark.parametrize("name", CONFIGS)
def test_round_trips(name, tmp_path):
    config = LionConfig(**CONFIGS[name])
    config.save_pretrained(tmp_path)
    copies = {
        "dict": LionConfig.from_dict(config.to_dict()),
        "diff": LionConfig.from_dict(config.to_diff_dict()),
        "file": LionConfig.from_pretrained(tmp_path),
        "auto": AutoConfig.from_pretrained(tmp_path),
        "copy": copy.deepcopy(config),
        "pickle": pickle.loads(pickle.dumps(config)),
    }
    expected = config.to_dict()
    for field, value in CONFIGS[name].items():
        assert getattr(config, field) == value, field
    for way, other in copies.items():
        assert type(other) is LionConfig
        found = other.to_dict()
        for key in (found.keys() | expected.keys()) - {"_name_or_path"}:
            value, wanted = found.get(key), expected.get(key)
            as_list = lambda x: list(x) if isinstance(x, tuple) else x
            assert as_list(value) == as_list(wanted), (way, key)
        assert other.patch_grid == config.patch_grid and other.context_length == config.context_length


def test_update_from_string():
    config = LionConfig()
    config.update_from_string("hidden_size=96,chunk_size=16,mixer_type=decay,attention_layer_norm=true")
    config.validate()
    assert (config.hidden_size, config.chunk_size, config.mixer_type) == (96, 16, "decay")
    assert config.attention_layer_norm is True


def test_fields_of_a_mixer_that_is_set_later_are_asked_for():
    config = LionConfig()
    config.mixer_type, config.feature_map, config.normalization = "delta", "silu", "rms"
    config.head_directions = "alternate"
    with pytest.raises(StrictDataclassError, match="`mixer_type` was set to 'delta', whose fields largest_beta .*:"):
        config.validate()
    config.largest_beta = 1.0
    config.validate()


def test_sizes():
    config = LionConfig(modality="image", image_size=(32, 48), patch_size=8, mixer_type="decay", patch_order="snake")
    config.head_directions = "both"
    assert (config.image_shape, config.patch_shape, config.patch_grid) == ((32, 48), (8, 8), (4, 6))
    assert (config.context_length, config.num_scans) == (25, 2)
    for mixer_type in ("lit", "softmax", "luna"):
        config.mixer_type = mixer_type
        assert config.num_scans == 1
    assert LionConfig(max_position_embeddings=99).context_length == 99


PUBLISHED = {  # the sizes of the paper: hidden_size, heads, layers
    "image-tiny": (192, 3, 12),
    "image-small": (384, 6, 12),
    "image-base": (768, 12, 12),
    "text-base": (768, 12, 12),
    "text-large": (1024, 16, 24),
}


def test_recommended_presets():
    for modality, sizes in {"text": ("small", "base", "large"), "image": ("small", "base")}.items():
        for size in sizes:
            config = lion_preset(f"lion-{modality}-{size}", num_labels=7)
            shape = PUBLISHED.get(f"{modality}-{size}", PUBLISHED["image-small"])
            assert (config.hidden_size, config.num_attention_heads, config.num_hidden_layers) == shape
            assert config.modality == modality and config.num_labels == 7
            assert (config.mixer_type, config.head_directions) == ("selective", "alternate")
            assert (config.feature_map, config.use_gated_mlp) == ("relu", True)
    assert lion_preset("lion-text-small", head_directions="both").head_directions == "both"


def test_published_presets():
    names = [name for name in PRESETS if name.split("-")[1] in ("lit", "d", "s")]
    assert len(names) == 15 and len(PRESETS) == 20
    for name in names:
        config = lion_preset(name, num_labels=7)
        _, mixer, size = name.split("-", 2)
        assert (config.hidden_size, config.num_attention_heads, config.num_hidden_layers) == PUBLISHED[size]
        assert config.intermediate_size == 4 * config.hidden_size and config.num_labels == 7
        assert config.mixer_type == {"lit": "lit", "d": "decay", "s": "selective"}[mixer]
        assert config.modality == size.partition("-")[0]
        assert (config.head_directions, config.conv_kernel, config.mixer_initializer_range) == ("both", 0, 0.02)
        assert config.feature_map == ("elu" if name.startswith("lion-lit-image") else "silu_norm")  # SPEC §1


def test_a_preset_has_as_many_parameters_with_a_gate_as_without():
    widths = {"text-small": 1536, "text-base": 3072, "text-large": 4128, "image-small": 1536, "image-base": 3072}
    for name, width in ((f"lion-{size}", width) for size, width in widths.items()):
        assert lion_preset(name, use_gated_mlp=False).intermediate_size == width
        assert lion_preset(name, use_gated_mlp=False, intermediate_size=7).intermediate_size == 7
    assert lion_preset("lion-s-text-base", use_gated_mlp=True).intermediate_size == 2048
    for name in ("lion-text-base", "lion-image-base"):  # a window is for layers that are named
        with pytest.raises(StrictDataclassError, match="`sliding_window` is 32"):
            lion_preset(name, sliding_window=32)


def test_fields_set_one_by_one():
    config = LionConfig(num_hidden_layers=3)
    config.layer_types = ["sliding_attention", "linear_attention", "full_attention"]
    with pytest.raises(StrictDataclassError, match="`sliding_window` is None, and `layer_types` has 'sliding_att"):
        config.validate()
    config.sliding_window = 8
    config.validate()
    config.layer_types = ["linear_attention"] * 3
    config.validate()
    stored = LionConfig(num_hidden_layers=2).to_dict()
    loaded = LionConfig.from_dict(stored, layer_types=["linear_attention", "sliding_attention"])
    assert loaded.sliding_window == 64
    given = {"max_position_embeddings": 512, "initial_context_length": 2048}
    assert LionConfig(**given).context_length == 2048
    assert LionConfig(**given, position_embedding_type="absolute").context_length == 512


# As a development version of 0.2 wrote it, with fields that have been deleted since.
SAVED_BY_0_2 = """
{"architectures": ["LionForMaskedLM"], "attention_layer_norm": false, "attention_probs_dropout_prob": 0.0,
"auto_map": {"AutoConfig": "configuration_lion.LionConfig", "AutoModel": "modeling_lion.LionModel"}, "chunk_size":
64, "classifier_bias": true, "classifier_dropout": null, "conv_kernel": 3, "decay_activation": "sigmoid",
"decay_rank": 16, "dtype": "float32", "embedding_norm": true, "embedding_size": null, "feature_map": "relu",
"first_norm": true, "head_directions": "alternate", "hidden_act": "gelu", "hidden_dropout_prob": 0.0, "hidden_size":
16, "image_size": 224, "initial_context_length": 512, "initializer_range": 0.02, "intermediate_size": 24,
"layer_norm_eps": 1e-12, "layer_types": ["linear_attention", "sliding_attention"], "local_window": 0,
"luna_activation": "softmax", "luna_length": 16, "luna_tie_kv": false, "max_position_embeddings": 1048576,
"mixer_initializer_range": null, "mixer_type": "selective", "mlp_bias": true, "modality": "text", "model_type":
"lion", "norm_bias": true, "norm_position": "pre", "norm_type": "layer_norm", "normalization": "sum",
"num_attention_heads": 2, "num_channels": 3, "num_hidden_layers": 2, "num_key_heads": null, "num_register_tokens": 0,
"out_features": null, "out_indices": null, "pad_token_id": 0, "patch_order": "raster", "patch_size": 16,
"pooler_act": null, "pooler_norm": false, "pooling": "mean", "position_embedding_type": "none", "proj_bias": true,
"qkv_bias": true, "rope_parameters": null, "semantic_loss_ignore_index": 255, "sliding_window": 64,
"tie_word_embeddings": true, "transformers_version": "5.23.0", "type_vocab_size": 2, "use_cls_token": true,
"use_gated_mlp": true, "use_lm_transform": true, "use_prediction_head": false, "vocab_size": 40}
"""


def test_a_folder_saved_by_0_2(tmp_path, log):
    """It loads silently, and the deleted fields are gone when it is saved again."""
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 24}
    expected = LionConfig(vocab_size=40, layer_types=["linear_attention", "sliding_attention"], **sizes)
    (tmp_path / "config.json").write_text(SAVED_BY_0_2)
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert log == []
    assert loaded.to_dict().keys() - expected.to_dict().keys() <= {
        "_name_or_path",
        "architectures",
        "auto_map",
        "dtype",
    }
    assert all(getattr(loaded, name) == getattr(expected, name) for name in LionConfig.__annotations__)
    rebuilt = AutoConfig.for_model(**json.loads(SAVED_BY_0_2))  # as inside of another configuration
    assert rebuilt.to_diff_dict() == loaded.to_diff_dict() and log == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("local_window", 4),
        ("embedding_norm", False),
        ("norm_type", "rms_norm"),
        ("pooler_act", "gelu"),
        ("num_register_tokens", 4),
        ("decay_activation", "softplus"),
    ],
)
def test_a_folder_that_needs_a_deleted_field_says_what_computes_it(name, value, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(json.loads(SAVED_BY_0_2) | {name: value}))
    with pytest.raises(
        ValueError, match=f"has `{name}` {value!r}.*no longer has.*trust_remote_code=True.*lion convert"
    ):
        AutoConfig.from_pretrained(tmp_path)


def test_a_stored_configuration_is_rebuilt_inside_of_another(log):
    stored = LionConfig.from_dict(LionConfig().to_dict() | {"attention_dropout": 0.1})
    assert AutoConfig.for_model(**stored.to_dict()).attention_dropout == 0.1
    assert any("`attention_dropout` has no effect" in message for message in log)


def test_text_with_fields_of_images_is_told_of(log):
    LionConfig(image_size=384, use_cls_token=False)
    assert [message.split()[0] for message in log] == ["`image_size`", "`use_cls_token`"]
    assert all('set `modality="image"`' in message for message in log)
    log.clear()
    LionConfig.from_dict(LionConfig().to_dict())
    LionConfig(modality="image", image_size=384, use_cls_token=False)
    assert log == []


def test_a_preset_has_the_feature_map_of_its_mixer():
    assert lion_preset("lion-lit-image-tiny").feature_map == "elu"
    assert lion_preset("lion-lit-image-tiny", mixer_type="decay").feature_map == "silu_norm"
    assert lion_preset("lion-s-image-tiny", mixer_type="lit").feature_map == "elu"
    assert lion_preset("lion-lit-image-tiny", feature_map="silu_norm").feature_map == "silu_norm"
    assert lion_preset("lion-lit-text-base").feature_map == "silu_norm"


def test_a_field_that_is_none_is_refused():
    with pytest.raises(ValueError, match="no field `hiden_size`; did you mean `hidden_size`"):
        lion_preset("lion-s-text-base", hiden_size=32)
    with pytest.raises(ValueError, match=r"no field `wings`\."):
        lion_preset("lion-s-text-base", wings=2, mane=True)
    assert lion_preset("lion-s-text-base", id2label={0: "a"}, dtype="bfloat16", output_attentions=True).num_labels == 1


def test_a_name_near_a_field_is_refused():
    """Kept as it is, as transformers keeps names that it does not know, it would be ignored."""
    for name, field in [
        ("mixer", "mixer_type"), ("hiden_size", "hidden_size"), ("attention_heads", "num_attention_heads"),
        ("key_heads", "num_key_heads"), ("directions", "head_directions"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=f"no field `{name}`; did you mean `{field}`"):
            LionConfig(**{name: 1})
    with pytest.raises(ValueError, match="no field `rope_theta`; give `rope_parameters"):
        LionConfig(rope_theta=1e4)
    known = {"bos_token_id": 1, "max_length": 20, "torch_dtype": "float32", "finetuning_task": "sst2", "size": 3}
    assert LionConfig(**known).size == 3


def test_a_stored_name_near_a_field_is_kept(tmp_path):
    """Somebody else's, or a later LION's: what was saved loads. What is given beside it is checked."""
    config = LionConfig()
    config.pooling_mode = "max"
    config.save_pretrained(tmp_path)
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert loaded.pooling_mode == "max" and loaded.pooling == "mean"
    with pytest.raises(ValueError, match="no field `mixer_typ`; did you mean `mixer_type`"):
        AutoConfig.from_pretrained(tmp_path, mixer_typ="lit")
    assert AutoConfig.from_pretrained(tmp_path, mixer_type="lit").mixer_type == "lit"


def test_a_preset_for_comparison():
    softmax = lion_preset("lion-text-base", mixer_type="softmax")
    assert (softmax.conv_kernel, softmax.head_directions, softmax.pooling) == (0, "both", "mean")


@pytest.mark.parametrize(
    "name, meant",
    [
        ("dropout", "hidden_dropout_prob"),
        ("n_layer", "num_hidden_layers"),
        ("num_heads", "num_attention_heads"),
        ("linear_num_key_heads", "num_key_heads"),
        ("key_dim", "num_key_heads"),
        ("num_key_value_heads", "num_key_heads"),
        ("mixr", "mixer_type"),
        ("pos", "position_embedding_type"),
        ("seq_len", "max_position_embeddings"),
        ("d_model", "hidden_size"),
    ],
)
def test_names_of_other_libraries_are_refused(name, meant):
    with pytest.raises(ValueError, match=f"no field `{name}`.*`{meant}`"):
        LionConfig(**{name: 1})


def test_unknown_preset():
    with pytest.raises(ValueError, match="'lion-x-text-base'.*lion-s-text-base"):
        lion_preset("lion-x-text-base")


# fields, and what the error must name: field, value, fix
WRONG = [
    ({"head_directions": "left"}, ["head_directions", "left", "both", "alternate"]),
    ({"head_directions": "alternate", "num_attention_heads": 3}, ["head_directions", "alternate", "3", "even"]),
    ({"mixer_initializer_range": -0.5}, ["mixer_initializer_range", "-0.5", "0 or a number above"]),
    ({"hidden_size": 100}, ["hidden_size", "100", "num_attention_heads", "12", "multiple"]),
    ({"hidden_size": 0}, ["hidden_size", "0", "at least 1"]),
    ({"num_attention_heads": 0}, ["num_attention_heads", "0", "at least 1"]),
    ({"num_hidden_layers": -1}, ["num_hidden_layers", "-1", "at least 1"]),
    ({"chunk_size": 0}, ["chunk_size", "0", "at least 1"]),
    ({"luna_length": 0}, ["luna_length", "0", "at least 1"]),
    ({"conv_kernel": 4}, ["conv_kernel", "4", "odd", "5", "or 0"]),
    ({"conv_kernel": -1}, ["conv_kernel", "-1", "odd", "3", "or 0"]),
    ({"conv_kernel": 3, "mixer_type": "softmax"}, ["conv_kernel", "3", "softmax", "conv_kernel=0", "selective"]),
    ({"conv_kernel": 3, "mixer_type": "luna"}, ["conv_kernel", "3", "luna", "conv_kernel=0", "selective"]),
    ({"vocab_size": -3}, ["vocab_size", "-3", "at least 1"]),
    ({"decay_activation": "sigmoid"}, ["decay_activation", "leave it out"]),
    ({"pad_token_id": 40, "vocab_size": 40}, ["pad_token_id", "40", "vocab_size"]),
    ({"pad_token_id": -1}, ["pad_token_id", "-1", "vocab_size"]),
    ({"hidden_dropout_prob": 1.0}, ["hidden_dropout_prob", "1.0", "0 <= p < 1"]),
    ({"attention_probs_dropout_prob": -0.1}, ["attention_probs_dropout_prob", "-0.1", "0 <= p < 1"]),
    ({"classifier_dropout": 2}, ["classifier_dropout", "2", "0 <= p < 1"]),
    ({"layer_norm_eps": 0.0}, ["layer_norm_eps", "0.0", "above 0"]),
    ({"initializer_range": -0.5}, ["initializer_range", "-0.5"]),
    ({"hidden_act": "golu"}, ["hidden_act", "golu", "gelu"]),
    ({"feature_map": "identity"}, ["feature_map", "identity", "normalization", '"none"', "silu_norm"]),
    ({"patch_order": "snake"}, ["patch_order", "snake", "modality", "text", "raster"]),
    (
        {"modality": "image", "image_size": 225},
        ["image_size", "225", "patch_size", "16", "224", "240"],
    ),
    ({"modality": "image", "image_size": (32, 33)}, ["image_size", "33", "width", "32", "48"]),
    ({"modality": "image", "image_size": (32, 32, 3)}, ["image_size", "(32, 32, 3)", "tuple of length 2"]),
    ({"modality": "image", "patch_size": 0}, ["patch_size", "0", "positive"]),
    ({"modality": "image", "patch_size": []}, ["patch_size", "[]", "positive"]),
    ({"layer_norm_eps": float("nan")}, ["layer_norm_eps", "nan", "above 0"]),
    ({"initializer_range": float("inf")}, ["initializer_range", "inf", "0 or"]),
    ({"rope_parameters": {}, "modality": "image"}, ["rope_parameters", "image", "None", "absolute"]),
    (
        {"rope_parameters": {"rope_theta": 7}, "mixer_type": "luna"},
        ["rope_parameters", "7", "luna", "None", "softmax"],
    ),
    ({"layer_types": ["linear_attention", "chunked_attention"]}, ["layer_types", "chunked_attention", "sliding_att"]),
    ({"layer_types": ["linear_attention"]}, ["layer_types", "1 entries", "`num_hidden_layers` 12", "each layer"]),
    ({"layer_types": ["linear_attention"] * 12, "mixer_type": "softmax"}, ["layer_types", "'softmax'", '"selective"']),
    ({"layer_types": ["sliding_attention"] * 12, "mixer_type": "luna"}, ["layer_types", "'luna'", "layer_types=None"]),
    ({"sliding_window": 64}, ["`sliding_window` is 64", "sliding_attention"]),
    ({"sliding_window": 0, "layer_types": ["sliding_attention"] * 12}, ["`sliding_window` is 0", "at least 1"]),
    ({"position_embedding_type": "cyclic", "modality": "image"}, ["'cyclic'", "'image'", "absolute"]),
    ({"local_window": 4}, ["local_window", "linearize"]),
    ({"layer_types": ["sliding_attention"] * 12, "conv_kernel": 3}, ["conv_kernel", "layer_types", "conv_kernel=0"]),
    ({"modality": "image", "use_cls_token": False, "pooling": "cls"}, ["'cls'", "use_cls_token", '"mean"']),
    ({"layer_type": "sliding_attention"}, ["layer_type`", "`layer_types`, one for each"]),
    ({"head_dim": 8}, ["head_dim", "num_attention_heads"]),
    ({"rope_scaling": {"factor": 2.0}}, ["rope_scaling", "rope_parameters"]),
    ({"classifier_pooling": "mean"}, ["classifier_pooling", "give `pooling`"]),
    ({"local_attention": 128}, ["local_attention", "sliding_window"]),
    ({"type_vocab_size": -1}, ["type_vocab_size", "-1", "at least 0"]),
    ({"rope_parameters": {"full_attention": {}}}, ["full_attention", "not linear_attention", "add it"]),
    (
        {"rope_parameters": {"linear_attention": {}, "rope_theta": 7}},
        ["rope_parameters", "'rope_theta': 7", "sliding"],
    ),
    ({"rope_parameters": {"global": {}}}, ["rope_parameters", "'global'", "linear_attention", "full_attention"]),
    ({"rope_parameters": {"rope_type": "mrope"}}, ["rope_type", "rope_parameters", "mrope", "yarn", "dynamic"]),
    ({"rope_parameters": {"rope_type": "yarn"}}, ["rope_parameters", "yarn", "factor", "Add it"]),
    ({"rope_parameters": {"rope_type": "linear", "factor": 0.5}}, ["factor", "rope_parameters", "0.5", "at least 1"]),
    ({"rope_parameters": {"rope_theta": -1.0}}, ["rope_theta", "rope_parameters", "-1.0", "above 0"]),
    ({"rope_parameters": {"rope_theta": "big"}}, ["rope_theta", "rope_parameters", "'big'", "above 0"]),
    (
        {"rope_parameters": {"partial_rotary_factor": 1.5}},
        ["partial_rotary_factor", "rope_parameters", "1.5", "most 1"],
    ),
    ({"rope_parameters": {"partial_rotary_factor": 0.01}}, ["rope_parameters", "0 of the 64 channels", "pairs"]),
    ({"rope_parameters": {}, "hidden_size": 36}, ["rope_parameters", "3 of the 3 channels", "num_attention_heads"]),
]
WRONG_TYPES = [
    ({"mixer_type": "luna2"}, ["mixer_type", "luna2", "lit", "decay", "selective", "delta", "softmax", "luna"]),
    ({"luna_activation": "relu"}, ["luna_activation", "relu", "softmax", "softplus", "elu"]),
    ({"norm_position": "middle"}, ["norm_position", "middle", "pre", "post"]),
    ({"pooling": "max"}, ["pooling", "max", "cls", "mean"]),
    ({"modality": "audio"}, ["modality", "audio", "text", "image"]),
    ({"feature_map": "cosine"}, ["feature_map", "cosine", "silu_norm", "hedgehog"]),
    ({"normalization": "softmax"}, ["normalization", "softmax", "sum", "none"]),
    ({"position_embedding_type": "rotary"}, ["position_embedding_type", "rotary", "absolute"]),
    ({"patch_order": "spiral"}, ["patch_order", "spiral", "raster", "snake"]),
    ({"hidden_size": 768.0}, ["hidden_size", "768.0", "int"]),
    ({"attention_layer_norm": "yes"}, ["attention_layer_norm", "yes", "bool"]),
    ({"chunk_size": None}, ["chunk_size", "None", "int"]),
    ({"rope_parameters": 3}, ["rope_parameters", "3", "dict"]),
    ({"conv_kernel": 3.0}, ["conv_kernel", "3.0", "int"]),
]


def check_refused(fields: dict, named: list[str]) -> None:
    with pytest.raises((ValueError, TypeError, StrictDataclassError)) as error:
        LionConfig(**fields)
    for word in named:
        assert word in str(error.value)


@pytest.mark.parametrize(("fields", "named"), WRONG, ids=lambda x: str(x) if isinstance(x, dict) else "")
def test_wrong_fields(fields, named):
    check_refused(fields, named)


def test_wrong_types():
    """transformers compares them with the annotations, in one place for all fields."""
    for fields, named in WRONG_TYPES:
        check_refused(fields, named)


def test_fields_that_were_set_one_by_one_are_checked_by_the_model(encoder):
    config = encoder.config()
    config.num_attention_heads = 3
    with pytest.raises((ValueError, StrictDataclassError), match="num_attention_heads"):
        encoder.model_class(config)
