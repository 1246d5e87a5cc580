# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Wrong inputs and damaged files: each a clear error that says what is wrong and what to do, never NaN or a guess."""

import json

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoModel, AutoModelForMaskedLM, BertConfig, BertModel, DynamicCache

from modeling_lion import LionForImageClassification, LionForMaskedLM, LionModel


IDS = torch.randint(1, 40, (2, 5), generator=torch.Generator().manual_seed(0))
PIXELS = torch.ones(2, 3, 6, 8)
EMBEDS = torch.ones(2, 5, 16)
MASK = torch.ones(2, 12, dtype=torch.bool)

# class and modality, inputs, what the error must say. Vocabulary 40, 24 positions, 2 token types, images of 6x8
# pixels in 3 channels, patches of 2x2, hidden size 16.
WRONG_INPUTS = {
    "token too large": ("text", {"input_ids": IDS + 40}, ["input_ids", "vocab_size", "0 to 39", "tokenizer"]),
    "token negative": ("text", {"input_ids": IDS - 40}, ["input_ids", "vocab_size", "0 to 39"]),
    "tokens not integers": ("text", {"input_ids": IDS.float()}, ["input_ids", "integers", "float32"]),
    "tokens without batch": ("text", {"input_ids": IDS[0]}, ["input_ids", "(batch, length)", "(5,)"]),
    "no tokens": ("text", {"input_ids": IDS[:, :0]}, ["input_ids", "length above 0", "(2, 0)"]),
    "token type": (
        "text",
        {"input_ids": IDS, "token_type_ids": torch.full_like(IDS, 2)},
        ["token_type_ids", "holds 2", "type_vocab_size"],
    ),
    "token type shape": (
        "text",
        {"input_ids": IDS, "token_type_ids": IDS[:, :3]},
        ["token_type_ids", "(2, 5)", "(2, 3)"],
    ),
    "position": (
        "text",
        {"input_ids": IDS, "position_ids": torch.arange(20, 25)[None]},
        ["position_ids", "24", "max_position_embeddings"],
    ),
    "position shape": ("text", {"input_ids": IDS, "position_ids": IDS[:, :3]}, ["position_ids", "(2, 5)", "(2, 3)"]),
    "position shape and a mask": (
        "text",
        {"input_ids": IDS, "position_ids": IDS[:, :3], "attention_mask": torch.arange(5)[None].expand(2, -1) > 0},
        ["position_ids", "(2, 5)", "(2, 3)"],
    ),
    "too long": (
        "text",
        {"input_ids": torch.ones(1, 25, dtype=torch.long)},
        ["25 tokens", "max_position_embeddings", "24", "truncation=True"],
    ),
    "too long and padded": (
        "text",
        {"input_ids": torch.ones(1, 25, dtype=torch.long), "attention_mask": torch.arange(25)[None] > 0},
        ["25 tokens", "max_position_embeddings"],
    ),
    "mask length": ("text", {"input_ids": IDS, "attention_mask": IDS[:, :4]}, ["attention_mask", "(2, 5)", "(2, 4)"]),
    "mask of four dimensions": (
        "text",
        {"input_ids": IDS, "attention_mask": torch.ones(2, 1, 5, 5)},
        ["attention_mask", "(batch, length)", "(2, 1, 5, 5)"],
    ),
    "ids and embeds": ("text", {"input_ids": IDS, "inputs_embeds": EMBEDS}, ["either", "input_ids", "inputs_embeds"]),
    "neither ids nor embeds": ("text", {}, ["either", "input_ids", "inputs_embeds"]),
    "embeds width": ("text", {"inputs_embeds": EMBEDS[..., :12]}, ["inputs_embeds", "16", "(2, 5, 12)"]),
    "embeds without batch": ("text", {"inputs_embeds": EMBEDS[0]}, ["inputs_embeds", "batch", "(5, 16)"]),
    "packed borders": (
        "text",
        {"input_ids": IDS, "cu_seq_lens_q": torch.tensor([0, 3, 4])},
        ["cu_seqlens", "length 5", "[0, 3, 4]"],
    ),
    "rows packed differently": (
        "text",
        {
            "input_ids": IDS,
            "position_ids": torch.tensor([[0, 1, 0, 1, 2], [0, 1, 2, 0, 1]]),
            "output_hidden_states": True,
        },
        ["different rows", "output_hidden_states", "one row"],
    ),
    "image for text": ("text", {"pixel_values": PIXELS}, ['modality="text"', "input_ids", "pixel_values"]),
    "text for image": ("image", {"input_ids": IDS}, ['modality="image"', "pixel_values"]),
    "image and text": ("image", {"pixel_values": PIXELS, "inputs_embeds": EMBEDS}, ['modality="image"', "no text"]),
    "no image": ("image", {}, ['modality="image"', "pixel_values"]),
    "image size": (
        "image",
        {"pixel_values": torch.ones(1, 3, 8, 8)},
        ["8x8", "image_size", "6x8", "interpolate_pos_encoding"],
    ),
    "image not of whole patches": ("image", {"pixel_values": torch.ones(1, 3, 7, 8)}, ["7x8", "2x2", "patch_size"]),
    "channels": ("image", {"pixel_values": PIXELS[:, :1]}, ["num_channels", "3", "(2, 1, 6, 8)", "RGB"]),
    "image without batch": ("image", {"pixel_values": PIXELS[0]}, ["(batch, num_channels, height, width)"]),
    "image mask": (
        "image",
        {"pixel_values": PIXELS, "attention_mask": torch.ones(2, 12)},
        ["attention_mask", "(2, 13)", "(2, 12)"],
    ),
    "no mask token": (
        "image",
        {"pixel_values": PIXELS, "bool_masked_pos": MASK},
        ["bool_masked_pos", "mask token", "LionForMaskedImageModeling"],
    ),
    "masked patches": (
        "LionForMaskedImageModeling",
        {"pixel_values": PIXELS, "bool_masked_pos": MASK[:, :11]},
        ["bool_masked_pos", "(2, 12)", "(2, 11)"],
    ),
    "a cache of keys": (
        "text",
        {"input_ids": IDS, "past_key_values": DynamicCache()},
        ["past_key_values", "DynamicCache", "Prefix tuning"],
    ),
    "packing of an image": (
        "image",
        {"pixel_values": PIXELS, "cu_seq_lens_q": torch.tensor([0, 3])},
        ["cu_seq_lens_q"],
    ),
    "patches of a text": ("text", {"input_ids": IDS, "bool_masked_pos": MASK}, ["bool_masked_pos", "'text'"]),
    "borders in a list": ("text", {"input_ids": IDS, "cu_seq_lens_q": [0, 5]}, ["a tensor", "a list"]),
    "numbers of one row": ("text", {"input_ids": IDS, "seq_idx": IDS[0]}, ["seq_idx", "(2, 5)", "(5,)"]),
    "a negative mask": ("text", {"input_ids": IDS, "attention_mask": -torch.ones_like(IDS)}, ["below 0"]),
    "choices missing": ("LionForMultipleChoice", {"input_ids": IDS}, ["num_choices", "(2, 5)"]),
    "no choices": ("LionForMultipleChoice", {}, ["num_choices", "neither"]),
    "image for a text head": ("LionForMaskedLM", {"pixel_values": PIXELS}, ['modality="text"', "input_ids"]),
    "no image for a head": ("LionForImageClassification", {}, ['modality="image"', "pixel_values"]),
}


@pytest.mark.parametrize("name", WRONG_INPUTS)
def test_wrong_inputs(name, find_case):
    which, inputs, named = WRONG_INPUTS[name]
    case = find_case("LionModel", which) if which in ("text", "image") else find_case(which)
    model = case.model_class(case.config(position_embedding_type="absolute"))
    with pytest.raises(ValueError) as error:
        model(**inputs)
    for word in named:
        assert word in str(error.value)


def test_head_for_the_other_modality(head, find_case):
    other = find_case("LionModel", "image" if head.modality == "text" else "text").config()
    with pytest.raises(ValueError) as error:
        head.model_class(other)
    for word in (head.class_name, head.modality, repr(other.modality), "LionModel"):
        assert word in str(error.value)


# Files


@pytest.fixture
def saved(find_case, tmp_path):
    """A folder with a saved model, in one file or in shards."""

    def save(max_shard_size="1GB", class_name="LionForMaskedLM", **fields):
        case = find_case(class_name)
        case.model_class(case.config(**fields)).save_pretrained(tmp_path, max_shard_size=max_shard_size)
        return tmp_path

    return save


DAMAGES = {
    "empty": lambda data: b"",
    "cut in the length": lambda data: data[:4],
    "cut in the header": lambda data: data[:50],
    "cut in the weights": lambda data: data[:-100],
    "overwritten": lambda data: b"\xff" * 64 + data[64:],
    "not a file of weights": lambda data: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
}


LOADERS = [LionForMaskedLM, LionModel, AutoModel, AutoModelForMaskedLM]


@pytest.mark.axes(damage=DAMAGES, loader=LOADERS[1:3], max_shard_size=["1GB", "4KB"])
def test_damaged_weights(damage, max_shard_size, loader, saved):
    folder = saved(max_shard_size)
    files = sorted(folder.glob("*.safetensors"))
    assert (len(files) > 1) == (max_shard_size == "4KB")
    victim = files[len(files) // 2]
    victim.write_bytes(DAMAGES[damage](victim.read_bytes()))
    with pytest.raises(OSError, match="damaged or cut short.*download or save them again") as error:
        loader.from_pretrained(folder)
    assert str(folder) in str(error.value)


def test_missing_shard(saved):
    folder = saved("4KB")
    shard = sorted(folder.glob("*.safetensors"))[1]
    shard.unlink()
    with pytest.raises(OSError, match=f"incomplete.*{shard.name}.*download or save them again"):
        LionForMaskedLM.from_pretrained(folder)


@pytest.mark.parametrize("content", [b"{bad", b"\xff\xfe\x00", b""])
def test_damaged_index(content, saved):
    folder = saved("4KB")
    (folder / "model.safetensors.index.json").write_bytes(content)
    with pytest.raises(OSError, match="damaged or cut short.*download or save them again"):
        LionForMaskedLM.from_pretrained(folder)


@pytest.mark.parametrize(
    "content",
    [[], None, "model.safetensors", {}, {"weight_map": {}}, {"weight_map": {"a": "b"}, "metadata": 3}]
    + [{"weight_map": weight_map, "metadata": {}} for weight_map in ([], {"a": 3})],
)
def test_index_of_the_wrong_shape(content, saved):
    folder = saved("4KB")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps(content))
    with pytest.raises(
        OSError, match=f"{index} is no index of weights: .* `metadata` and `weight_map`.*save the weights"
    ):
        LionForMaskedLM.from_pretrained(folder)


def test_missing_weights(saved):
    folder = saved()
    (folder / "model.safetensors").unlink()
    with pytest.raises(OSError, match=r"no file named model\.safetensors"):
        LionForMaskedLM.from_pretrained(folder)


@pytest.mark.axes(
    other=["lit", "decay", "selective"], loader=LOADERS[::3], told_by=["override", "config"], ignore=[False, True]
)
def test_weights_of_another_mixer(mixer, other, told_by, ignore, loader, saved, find_case):
    folder = saved(mixer_type=mixer, position_embedding_type="none", conv_kernel=0)
    choice = {"mixer_type": other}
    if told_by == "config":
        choice = {"config": find_case("LionForMaskedLM").config(other, position_embedding_type="none", conv_kernel=0)}
    load = lambda: loader.from_pretrained(folder, ignore_mismatched_sizes=ignore, **choice)
    is_hybrids = mixer == "hybrid" and other == "selective" and told_by == "override"  # the mixer that it has
    plain = {"position_embedding_type": "none", "conv_kernel": 0}
    weights = [find_case("LionForMaskedLM").model(name, **plain).state_dict() for name in (mixer, other)]
    common = weights[0].keys() & weights[1].keys()
    has_other_shapes = not is_hybrids and any(weights[0][name].shape != weights[1][name].shape for name in common)
    if has_other_shapes and not ignore:  # transformers refuses them, before names are compared
        with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
            load()
        return
    if weights[0].keys() == weights[1].keys() or is_hybrids:  # the same weights, or a mixer's from elsewhere by name
        assert load().config.mixer_type == other
        return
    if mixer == "delta" and told_by == "override":  # its stored configuration has what no other mixer has
        with pytest.raises(StrictDataclassError, match=f"`normalization` is 'rms' with `mixer_type` '{other}'"):
            load()
        return
    with pytest.raises(
        ValueError, match="another mixer than `mixer_type`.*configuration they were saved with"
    ) as error:
        load()
    assert repr(other) in str(error.value) and ".attention.mixer." in str(error.value)


def test_weights_of_another_patch_order(saved, log):
    folder = saved(class_name="LionForImageClassification", mixer_type="decay")
    with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
        LionForImageClassification.from_pretrained(folder, patch_order="snake")
    assert any("decay.bias" in message and "MISMATCH" in message for message in log)


def test_configuration_of_another_model():
    with pytest.raises(ValueError, match=r"LionModel takes a LionConfig, and this is a BertConfig.*lion.linearize"):
        LionModel(BertConfig())


def test_images_have_no_tokens_to_resize(find_case):
    case = find_case("LionForImageClassification")
    with pytest.raises(ValueError, match="image model has no token embeddings to resize"):
        case.model_class(case.config()).resize_token_embeddings(9)


def test_image_checkpoint_in_a_text_class(saved):
    folder = saved(class_name="LionForImageClassification")
    with pytest.raises(ValueError, match="LionForMaskedLM takes `modality` 'text', and it is 'image'"):
        LionForMaskedLM.from_pretrained(folder)


def test_weights_of_another_model_are_reported(tmp_path, log):
    """Nothing fits, all is new: transformers says so, weight by weight, and no number is left to chance."""
    config = BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24, vocab_size=9)
    BertModel(config).save_pretrained(tmp_path)
    model, info = LionModel.from_pretrained(tmp_path, output_loading_info=True)
    assert any("type `bert`" in message and "`lion`" in message for message in log)
    report = next(message for message in log if "LOAD REPORT" in message)
    assert "decay_proj" in report and "MISSING" in report
    assert any("decay_proj" in name for name in info["missing_keys"])
    assert all(weight.isfinite().all() for weight in model.state_dict().values())


def test_a_layer_that_is_missing_is_reported(find_case, tmp_path, log):
    case = find_case("LionModel", "text")
    case.model_class(case.config(num_hidden_layers=1)).save_pretrained(tmp_path)
    model, info = LionModel.from_pretrained(tmp_path, num_hidden_layers=2, output_loading_info=True)
    assert info["missing_keys"] and all(name.startswith("layers.1.") for name in info["missing_keys"])
    assert any("MISSING" in message for message in log)
    assert all(weight.isfinite().all() for weight in model.state_dict().values())
