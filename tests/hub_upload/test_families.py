# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Every class of transformers that a LION can start from: with softmax in all layers, it computes the same."""

import inspect
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from hub_upload_lion.cli import main
from hub_upload_lion.convert.families import FAMILIES, REFUSED, positions_from_0
from hub_upload_lion.convert.warm_start import load_encoder, save_warm_start, warm_start_from_softmax
from PIL import Image
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
from transformers import (
    AutoModel,
    AutoTokenizer,
    BitImageProcessorPil,
    CLIPImageProcessorPil,
    DeiTImageProcessorPil,
    PreTrainedModel,
    RobertaTokenizer,
    SiglipImageProcessorPil,
)
from transformers.models.auto.image_processing_auto import AutoImageProcessor

import modeling_lion
from configuration_lion import LionConfig


# What softmax attention has not.
NEW = re.compile(r"\.mixer\.(decay|feature_map|key_feature_map|window_gate)")


SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40}
# Neither 2 nor the padding, so that a wrong row of a table of positions shows.
SPECIAL = {"pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3}
TEXT = SIZES | SPECIAL | {"vocab_size": 40, "max_position_embeddings": 32}
EVEN = {"num_attention_heads": 2}
IMAGE = SIZES | {"image_size": 16, "patch_size": 4}
TEXT_TOWER = {"text_config": TEXT | {"num_hidden_layers": 1}, "vision_config": IMAGE}
# What a small model of each family has besides, by its `model_type`.
FIELDS = {
    "distilbert": SPECIAL | {"dim": 24, "n_layers": 2, "n_heads": 3, "hidden_dim": 40, "activation": "relu"},
    "electra": TEXT | {"embedding_size": 16},
    "albert": TEXT | {"embedding_size": 16, "num_hidden_layers": 4, "num_hidden_groups": 2},
    "nomic_bert": TEXT | EVEN,
    "gte": TEXT | EVEN,
    "eurobert": TEXT | {"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32, "mask_token_id": 4},
    "vit_mae": IMAGE | {"mask_ratio": 0.0},
    "dinov2": IMAGE | {"layerscale_value": 0.5},
    "dinov2_with_registers": IMAGE | {"num_register_tokens": 3, "layerscale_value": 0.5},
    "clip": TEXT_TOWER,
    "siglip": TEXT_TOWER,
}
# Of families that share a table, these classes are enough. ModernBERT is in test_warm_start.py.
FEWER = {
    "xlm-roberta": ("Model", "ForSequenceClassification"),
    "camembert": ("Model", "ForMaskedLM"),
    "modernbert": (),
}
NAMES = [
    (model_type, family.classes + suffix)
    for model_type, family in FAMILIES.items()
    for suffix in FEWER.get(model_type, family.heads)
]
VARIANTS = [
    ("electra", "ElectraModel", {"embedding_size": 24}),
    ("electra", "ElectraForMultipleChoice", {"summary_activation": ""}),
    ("eurobert", "EuroBertForSequenceClassification", {"classifier_pooling": "bos", "attention_bias": True}),
    ("eurobert", "EuroBertForSequenceClassification", {"classifier_pooling": "mean", "mlp_bias": True}),
    ("eurobert", "EuroBertForMaskedLM", {"tie_word_embeddings": True, "mlp_bias": True}),
    ("dinov2", "Dinov2ForImageClassification", {"use_swiglu_ffn": True}),
    ("siglip_vision_model", "SiglipVisionModel", {"vision_use_head": False}),
]


def make(model_type: str, name: str, **fields) -> PreTrainedModel:
    """A small model in which no weight has the value of a new one, norms and biases included."""
    torch.manual_seed(0)
    built_class = getattr(transformers, name)
    is_text = FAMILIES[model_type].constants["modality"] == "text"
    options = FIELDS.get(model_type, TEXT if is_text else IMAGE)
    if "Classification" in name:
        options = options | {"id2label": {0: "a", 1: "b", 2: "c"}}
    model = built_class(built_class.config_class(**(options | fields)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


def make_inputs(source: PreTrainedModel, model_type: str) -> tuple[dict[str, torch.Tensor], torch.Tensor | None]:
    """
    Inputs, and which tokens are real: padded on the right, and also on the left where the source counts real tokens,
    as LION does, and does not pool what is first, be it padding.
    """
    torch.manual_seed(1)
    family = FAMILIES[model_type]
    if family.constants["modality"] == "image":
        return {"pixel_values": torch.randn(2, 3, 16, 16, dtype=torch.float64)}, None
    mask = torch.arange(17) < torch.tensor([[17], [9], [5]])
    if positions_from_0 in family.folds and type(source).__name__.endswith(("MaskedLM", "TokenClassification")):
        mask[2] = mask[2].flip(0)
    input_ids = torch.where(mask, torch.randint(4, 40, mask.shape), SPECIAL["pad_token_id"])
    inputs = {"input_ids": input_ids, "attention_mask": mask.long()}
    has_types = "token_type_ids" in inspect.signature(source.forward).parameters
    if has_types and getattr(source.config, "type_vocab_size", 0) > 1:
        inputs["token_type_ids"] = (torch.arange(17) > 2).long() * mask
    if type(source).__name__.endswith("MultipleChoice"):
        inputs = {key: x.unsqueeze(0) for key, x in inputs.items()}
    return inputs, mask


def outputs_of(source: PreTrainedModel, inputs: dict[str, torch.Tensor], model_name: str) -> dict[str, torch.Tensor]:
    """By our names. Of a model whose head has no counterpart, what its encoder gives."""
    name = type(source).__name__
    if name in ("CLIPModel", "SiglipModel", "CLIPVisionModelWithProjection"):
        source = source.vision_model
    elif model_name == "LionModel" and name.endswith("PreTraining"):
        source = source.base_model
    outputs = dict(source(**inputs))
    outputs["logits"] = outputs.get("prediction_logits", outputs.get("logits"))
    if "ids_restore" in outputs:  # the patches of ViT-MAE are in a random order
        states, order = outputs["last_hidden_state"], outputs["ids_restore"].unsqueeze(-1)
        patches = torch.take_along_dim(states[:, 1:], order, dim=1)
        outputs["last_hidden_state"] = torch.cat((states[:, :1], patches), dim=1)
    return {key: value for key, value in outputs.items() if isinstance(value, torch.Tensor)}


@pytest.mark.parametrize(("model_type", "name", "fields"), [(*names, {}) for names in NAMES] + VARIANTS)
def test_of_softmax_layers_it_is_the_same_model(model_type, name, fields, tmp_path):
    """From folder to folder: hidden states, poolers and heads, of padded texts, with their types and positions."""
    source, family = make(model_type, name, **fields), FAMILIES[model_type]
    source.save_pretrained(tmp_path / "source")
    model, report = warm_start_from_softmax(tmp_path / "source", "none")
    head = family.heads[name.removeprefix(family.classes)]
    assert type(model).__name__ == head.model and not report.new
    model.save_pretrained(tmp_path / "lion")
    built_class = AutoModel if head.model == "LionModel" else type(model)
    model, info = built_class.from_pretrained(tmp_path / "lion", output_loading_info=True)
    assert not any(info.values())
    inputs, mask = make_inputs(source, model_type)
    with torch.no_grad():
        expected = outputs_of(source.double(), inputs, head.model)
        actual = model.double()(**inputs)
    wanted = {"last_hidden_state", "pooler_output"} if head.model == "LionModel" else set(actual)
    compared = wanted & expected.keys()
    assert compared >= wanted - {"pooler_output"}
    for key in compared:
        value, right = actual[key], expected[key]
        if mask is not None and right.shape[:2] == mask.shape:
            value, right = value[mask], right[mask]
        torch.testing.assert_close(value, right, rtol=0, atol=1e-5 * right.abs().max().item())


@pytest.mark.parametrize(
    ("model_type", "name"),
    [next(names for names in NAMES if names[0] == model_type) for model_type, _ in dict(NAMES).items()],
)
def test_only_what_linear_layers_add_is_new(model_type, name):
    source = make(model_type, name)
    model, report = warm_start_from_softmax(source)
    assert model.config.layer_types is None and report.new and all(NEW.search(new) for new in report.new)
    inputs, _ = make_inputs(source, model_type)
    inputs = {key: x.float() if x.is_floating_point() else x for key, x in inputs.items()}
    with torch.no_grad():
        assert model(**inputs).last_hidden_state.isfinite().all()


@pytest.mark.parametrize("name", ["Dinov2WithRegistersModel", "SiglipVisionModel"])
def test_no_token_before_the_patches_decays(name):
    model, _ = warm_start_from_softmax(make(dict(map(reversed, NAMES))[name], name), patch_order="snake")
    log_decay = model.layers[0].attention.mixer(torch.randn(2, 20, 24)).inputs[3].forward
    num_first = {"Dinov2WithRegistersModel": 4, "SiglipVisionModel": 0}[name]
    assert (log_decay[:, :, :num_first] == 0).all() and (log_decay[:, :, num_first:] < 0).all()
    with torch.no_grad():  # and every kernel knows how many there are
        states = []
        for kernel in ("parallel", "chunk", "rnn"):
            model.set_attn_implementation(kernel)
            states.append(model(pixel_values=torch.ones(1, 3, 16, 16)).last_hidden_state)
    torch.testing.assert_close(states[1:], states[:1] * 2, rtol=0, atol=1e-4)


def test_what_is_new_in_a_model_of_these_shapes_is_initialised():
    """Also by way of the meta device, where nothing is left of what the modules were made with."""
    config = LionConfig(modality="image", num_register_tokens=3, pooling="attention", **IMAGE)
    with torch.device("meta"):
        model = modeling_lion.LionModel(config)
    model.to_empty(device="cpu")
    for parameter in model.parameters():
        torch.nn.init.constant_(parameter, torch.nan)
    model.init_weights()
    for name in ("embeddings.register_tokens", "pooler.attention.probe"):
        assert 0.01 < model.get_parameter(name).std() < 0.04
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_what_has_no_counterpart_is_reported():
    _, report = warm_start_from_softmax(make("electra", "ElectraForPreTraining"))
    assert {name.split(".")[0] for name in report.dropped} == {"discriminator_predictions"}
    _, report = warm_start_from_softmax(make("siglip", "SiglipForImageClassification"))
    assert {name.split(".")[1] for name in report.dropped} == {"head"}


@pytest.mark.parametrize(
    ("model_type", "name", "fields", "message"),
    [
        ("roberta", "RobertaModel", {"is_decoder": True}, "RoBERTa has `is_decoder` True, a decoder"),
        ("bert", "BertModel", {"position_embedding_type": "relative_key"}, "`position_embedding_type` 'relative_key'"),
        ("roberta", "RobertaForMaskedLM", {"hidden_act": "relu"}, "`hidden_act` 'relu', its head always has 'gelu'"),
        ("nomic_bert", "NomicBertModel", {"head_dim": 6}, "`head_dim` 6, .* take a model of such heads .head_dim=12"),
        ("bert", "BertForQuestionAnswering", {"num_labels": 3}, "`num_labels` 3, and answers .*num_labels=2"),
        ("vit", "ViTModel", {"pooler_output_size": 8}, "`pooler_output_size` 8, .*add_pooling_layer=False"),
        ("electra", "ElectraForMultipleChoice", {"summary_type": "mean"}, "`summary_type` 'mean', .*first token"),
        ("albert", "AlbertModel", {"inner_group_num": 2}, "`inner_group_num` 2"),
    ],
)
def test_what_a_model_may_not_have(model_type, name, fields, message):
    with pytest.raises(ValueError, match=message):
        warm_start_from_softmax(make(model_type, name, **fields))


@pytest.mark.parametrize(
    ("config", "name", "message"),
    [
        ("MPNetConfig", "MPNetModel", "MPNetModel has no counterpart: a 'mpnet' adds a learnt bias .*all-MiniLM"),
        ("DebertaV2Config", "DebertaV2ForMaskedLM", "relative positions.*Start from a RoBERTa"),
        ("BeitConfig", "BeitModel", "learnt bias for each distance.*Start from a ViT"),
        ("GPT2Config", "GPT2Model", "is a decoder, and LION reads in both directions"),
        ("FNetConfig", "FNetModel", "FNetModel .'fnet'. has no counterpart; .*BERT, RoBERTa, .*SigLIP"),
        ("RobertaConfig", "RobertaForCausalLM", "of a RoBERTa, a warm start needs one of RobertaModel, RobertaFor"),
        ("CLIPConfig", "CLIPForImageClassification", "of a CLIP .images., a warm start needs one of CLIPModel"),
    ],
)
def test_classes_without_a_counterpart_are_refused_before_they_are_loaded(config, name, message, tmp_path):
    getattr(transformers, config)(architectures=[name]).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=message):
        warm_start_from_softmax(tmp_path)


def test_no_family_is_both_known_and_refused():
    assert not FAMILIES.keys() & REFUSED.keys()


def test_no_weight_that_is_missing_becomes_a_random_one(tmp_path):
    make("roberta", "RobertaForMaskedLM").save_pretrained(tmp_path)
    model, report = warm_start_from_softmax(load_encoder(tmp_path, AutoModel))
    assert model.config.pooler_act == "none" and not any("pooler" in name for name in report.carried)
    with pytest.raises(ValueError, match="not complete: classifier.bias, classifier.weight would be random"):
        load_encoder(tmp_path, transformers.RobertaForTokenClassification)


def test_fields_of_other_families_are_unread():
    """Configurations on the Hub carry many: this one stands in those of some BERTs."""
    model, report = warm_start_from_softmax(make("bert", "BertModel", embedding_size=24))
    assert model.config.embedding_size is None and all(NEW.search(name) for name in report.new)


def test_weights_of_half_precision_are_folded_in_float32():
    source = make("dinov2", "Dinov2Model").bfloat16()
    model, _ = warm_start_from_softmax(source)
    layer = source.encoder.layer[1]
    expected = layer.attention.o_proj.weight.float() * layer.layer_scale1.lambda1.float().unsqueeze(1)
    assert torch.equal(model.layers[1].attention.o_proj.weight, expected)


def test_another_pooling_leaves_the_dense_layer_behind():
    model, report = warm_start_from_softmax(make("vit", "ViTModel"), pooling="mean")
    assert model.pooler.dense is None
    assert {name.rsplit(".", 1)[0] for name in report.dropped} == {"pooler.dense"}


# Folders with what belongs to a model

TEXTS = ["the lion sleeps", "a lion roars at night, and the zebra runs", "the zebra " * 40]
PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 255, (23, 31, 3), dtype=np.uint8))


@pytest.fixture(scope="module")
def sentence_folder(tmp_path_factory) -> Path:
    """A RoBERTa as sentence-transformers saves it, with a tokenizer of bytes, pooling, a dense layer and prompts."""
    folder = tmp_path_factory.mktemp("sentence")
    tokenizer = RobertaTokenizer().train_new_from_iterator(TEXTS, vocab_size=300)
    make("roberta", "RobertaModel", vocab_size=len(tokenizer)).save_pretrained(folder / "roberta")
    tokenizer.model_max_length = 30
    tokenizer.save_pretrained(folder / "roberta")
    modules = [Transformer(str(folder / "roberta")), Pooling(24, pooling_mode="mean"), Dense(24, 8), Normalize()]
    SentenceTransformer(modules=modules, device="cpu", prompts={"query": "the "}).save(str(folder / "encoder"))
    return folder / "encoder"


@pytest.mark.parametrize("place", ["", "0_Transformer"])
def test_command_takes_an_encoder_of_sentence_transformers(sentence_folder, tmp_path, capsys, place):
    """Also of an earlier release, which had the model in a folder of its own."""
    source = tmp_path / "encoder"
    shutil.copytree(sentence_folder, source)
    if place:
        (source / place).mkdir()
        moved = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
        for name in moved:
            (source / name).rename(source / place / name)
        (source / "sentence_bert_config.json").rename(source / place / "sentence_roberta_config.json")
        modules = json.loads((source / "modules.json").read_text())
        modules[0]["path"] = place
        (source / "modules.json").write_text(json.dumps(modules))
    words = ["convert", "--from-pretrained", str(source), str(tmp_path / "lion"), "--linear_layers", "none"]
    assert main(words) == 0
    assert "Modules of sentence-transformers: Pooling, Dense, Normalize." in capsys.readouterr().out
    theirs, ours = (SentenceTransformer(str(folder), device="cpu") for folder in (sentence_folder, tmp_path / "lion"))
    assert isinstance(ours[0].auto_model, modeling_lion.LionModel)
    assert type(ours.tokenizer) is type(theirs.tokenizer)
    for options in ({}, {"prompt_name": "query"}):
        expected, found = (encoder.encode(TEXTS, **options) for encoder in (theirs, ours))
        assert found.shape == (3, 8) and abs(found - expected).max() < 1e-5
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "lion")
    assert tokenizer(TEXTS).input_ids == AutoTokenizer.from_pretrained(source / place)(TEXTS).input_ids
    assert tokenizer.model_max_length == 30


def test_encoders_that_hold_something_else_are_refused(sentence_folder, tmp_path):
    source = tmp_path / "encoder"
    shutil.copytree(sentence_folder, source)
    settings = source / "sentence_bert_config.json"
    text = settings.read_text()
    settings.write_text(text.replace("feature-extraction", "text-generation"))
    with pytest.raises(ValueError, match="`transformer_task` in .* is 'text-generation'; it can be one of feature"):
        save_warm_start(source, tmp_path / "lion")
    settings.write_text(text)
    modules = source / "modules.json"
    modules.write_text(modules.read_text().replace("transformer.Transformer", "router.Router"))
    with pytest.raises(ValueError, match="first module of .* is .*Router, and only a Transformer"):
        save_warm_start(source, tmp_path / "lion")
    assert not (tmp_path / "lion").exists()


@pytest.mark.parametrize(
    ("model_type", "name", "processor", "fields"),
    [
        ("clip", "CLIPModel", CLIPImageProcessorPil, {"size": {"shortest_edge": 16}, "crop_size": 16}),
        ("siglip_vision_model", "SiglipVisionModel", SiglipImageProcessorPil, {"size": {"height": 16, "width": 16}}),
        ("deit", "DeiTForImageClassification", DeiTImageProcessorPil, {"size": 18, "crop_size": 16}),
        # Images of another size than the model's own, and no squares: positions are interpolated.
        ("dinov2", "Dinov2Model", BitImageProcessorPil, {"size": 18, "crop_size": {"height": 12, "width": 16}}),
        (
            "dinov2_with_registers",
            "Dinov2WithRegistersModel",
            BitImageProcessorPil,
            {"size": 18, "crop_size": {"height": 12, "width": 8}},
        ),
    ],
)
def test_image_processors_come_along(model_type, name, processor, fields, tmp_path):
    source = make(model_type, name)
    source.save_pretrained(tmp_path / "source")
    processor(image_mean=[0.1, 0.2, 0.3], **fields).save_pretrained(tmp_path / "source")
    report = save_warm_start(tmp_path / "source", tmp_path / "lion", "none")
    assert ("interpolated" in report) == ("dinov2" in model_type)
    pixels = [
        AutoImageProcessor.from_pretrained(tmp_path / folder)(PICTURE, return_tensors="pt").pixel_values
        for folder in ("source", "lion")
    ]
    assert torch.equal(*pixels)
    model = AutoModel.from_pretrained(tmp_path / "lion")
    assert model.config.image_shape == tuple(pixels[0].shape[2:])
    encoder = source.vision_model if model_type == "clip" else source.base_model
    with torch.no_grad():
        expected, found = (encode(pixel_values=pixels[0]).last_hidden_state for encode in (encoder, model))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * expected.abs().max().item())
