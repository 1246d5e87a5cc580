# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
import argparse
import re

import pytest
import torch
import transformers
from hub_upload_lion import warm_start_from_softmax
from hub_upload_lion.convert import convert_checkpoint as convert
from hub_upload_lion.convert.families import VIT_NAMES
from hub_upload_lion.convert.warm_start import rename
from PIL import Image
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForImageClassification,
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    GPT2Config,
    GPT2Model,
    PreTrainedModel,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessorPil,
    pipeline,
)

import modeling_lion
from modeling_lion import LionTokenizer


SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40}
MIXERS = ["lit", "decay", "selective"]


def bert(built_class: type = BertForMaskedLM, **fields) -> PreTrainedModel:
    torch.manual_seed(0)
    options = {"vocab_size": 40, "max_position_embeddings": 32, "hidden_act": "relu", "layer_norm_eps": 1e-7}
    return randomised(built_class(BertConfig(**(SIZES | options | fields))))


def vit(built_class: type = ViTForImageClassification, **fields) -> PreTrainedModel:
    torch.manual_seed(0)
    options = {"image_size": 16, "patch_size": 4, "layer_norm_eps": 1e-5, "id2label": {0: "a", 1: "b", 2: "c"}}
    return randomised(built_class(ViTConfig(**(SIZES | options | fields))))


@torch.no_grad()
def randomised(model: PreTrainedModel) -> PreTrainedModel:
    """No weight is left at a value that a new model would have, too."""
    for parameter in model.parameters():
        parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


def weight(model: torch.nn.Module, name: str) -> torch.Tensor:
    return model.state_dict()[name]


@pytest.mark.parametrize("mixer_type", MIXERS)
@pytest.mark.parametrize("make", [bert, vit])
def test_every_weight_with_a_counterpart_is_carried(make, mixer_type):
    source = make()
    model, report = warm_start_from_softmax(source, mixer_type=mixer_type)
    assert report.dropped == []
    new = "feature_map|window_gate" if mixer_type == "lit" else "decay|feature_map|window_gate"
    assert {re.search(rf"\.mixer\..*({new})", name)[1] for name in report.new} <= set(new.split("|"))
    left = set(source.state_dict()) - {"cls.predictions.bias"}
    assert report.carried.keys() == left
    assert len(set(report.carried.values())) == len(left)
    for old, new in report.carried.items():
        assert torch.equal(weight(model, new), weight(source, old)), (old, new)
    assert set(model.state_dict()) == set(report.carried.values()) | set(report.new)


def test_pairs_of_names_are_the_right_ones():
    """Equal shapes could hide a wrong pair, so some are written out."""
    _, report = warm_start_from_softmax(bert(BertForSequenceClassification))
    layer = "bert.encoder.layer.1."
    for old, new in {
        "bert.embeddings.LayerNorm.bias": "lion.embeddings.layer_norm.bias",
        layer + "attention.self.key.weight": "lion.layers.1.attention.mixer.k_proj.weight",
        layer + "attention.output.dense.weight": "lion.layers.1.attention.o_proj.weight",
        layer + "attention.output.LayerNorm.weight": "lion.layers.1.attention_norm.weight",
        layer + "intermediate.dense.bias": "lion.layers.1.mlp.up_proj.bias",
        layer + "output.dense.bias": "lion.layers.1.mlp.down_proj.bias",
        layer + "output.LayerNorm.bias": "lion.layers.1.mlp_norm.bias",
        "bert.pooler.dense.weight": "lion.pooler.dense.weight",
        "classifier.weight": "classifier.weight",
    }.items():
        assert report.carried[old] == new
    _, report = warm_start_from_softmax(vit())
    assert report.carried["vit.layers.0.layernorm_before.bias"] == "lion.layers.0.attention_norm.bias"
    assert report.carried["vit.layers.0.layernorm_after.bias"] == "lion.layers.0.mlp_norm.bias"
    assert report.carried["vit.layernorm.bias"] == "lion.norm.bias"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("encoder.layer.7.attention.attention.value.bias", "layers.7.attention.mixer.v_proj.bias"),
        ("encoder.layer.7.attention.output.dense.weight", "layers.7.attention.o_proj.weight"),
        ("encoder.layer.7.intermediate.dense.weight", "layers.7.mlp.up_proj.weight"),
        ("encoder.layer.7.output.dense.weight", "layers.7.mlp.down_proj.weight"),
        ("encoder.layer.7.layernorm_after.weight", "layers.7.mlp_norm.weight"),
    ],
)
def test_earlier_releases_name_the_weights_of_vit_otherwise(old, new):
    assert rename(old, VIT_NAMES) == new


@pytest.mark.parametrize(
    ("source", "dropped"),
    [
        (BertForPreTraining, {"bert.pooler.dense", "cls.seq_relationship"}),
        (BertForTokenClassification, set()),
    ],
)
def test_what_has_no_counterpart_is_reported(source, dropped):
    _, report = warm_start_from_softmax(bert(source))
    assert {name.rsplit(".", 1)[0] for name in report.dropped} == dropped
    assert all(name.rsplit(".", 1)[0] in str(report) for name in report.dropped)


def test_configuration_comes_along():
    model, _ = warm_start_from_softmax(bert(BertForSequenceClassification, id2label={0: "no", 1: "yes", 2: "so"}))
    config = model.config
    assert (config.hidden_act, config.layer_norm_eps, config.initial_context_length) == ("relu", 1e-7, 32)
    assert (config.position_embedding_type, config.norm_position, config.pooling) == ("cyclic", "post", "cls")
    assert (config.feature_map, config.local_window, config.longest_text) == ("hedgehog", 64, None)
    assert (config.id2label, config.num_labels) == ({0: "no", 1: "yes", 2: "so"}, 3)
    config = warm_start_from_softmax(vit(), patch_order="snake", feature_map="silu_norm")[0].config
    assert (config.norm_position, config.pooling, config.image_shape) == ("pre", "cls", (16, 16))
    assert (config.patch_order, config.feature_map, config.layer_norm_eps) == ("snake", "silu_norm", 1e-5)


@pytest.mark.parametrize(
    "overrides", [{"mixer_type": "luna"}, {"feature_map": "identity", "normalization": "none"}], ids=str
)
def test_defaults_leave_room_for_overrides(overrides):
    """A window needs heads of linear attention with a denominator; nobody asked for it here."""
    config = warm_start_from_softmax(bert(), **overrides)[0].config
    assert config.local_window == 0 and overrides.items() <= vars(config).items()


def test_heads_may_read_one_way():
    """All weights are carried all the same; a convolution is new."""
    model, report = warm_start_from_softmax(bert(num_attention_heads=2), head_directions="alternate", conv_kernel=3)
    assert (model.config.head_directions, model.config.conv_kernel) == ("alternate", 3)
    names = ("q_conv", "k_conv", "v_conv", "decay_proj", "feature_map", "window_gate")
    assert all(any(name in weight for name in names) for weight in report.new)


def test_positions_can_be_left_behind():
    model, report = warm_start_from_softmax(bert(), position_embedding_type="none")
    assert report.dropped == ["bert.embeddings.position_embeddings.weight"]
    assert model.lion.embeddings.position_embeddings is None


@pytest.mark.parametrize("mixer_type", ["decay", "selective", "diagonal"])
@pytest.mark.parametrize("fields", [{}, {"patch_order": "snake"}])
def test_decays_start_open(mixer_type, fields):
    """Half of the first token is left at the end of the longest input, in every head, layer and scan."""
    model, _ = warm_start_from_softmax(vit(), mixer_type=mixer_type, **fields)
    hidden_states = torch.randn(2, 17, 24)
    for layer in model.lion.layers:
        log_decay = layer.attention.mixer(hidden_states).inputs[3].forward
        assert log_decay.shape[-1 if mixer_type == "decay" else 1] == 3 * (1 + bool(fields))
        decay = log_decay if mixer_type == "decay" else log_decay[:, :, 1:]
        torch.testing.assert_close(decay.exp() ** model.config.context_length, torch.full_like(decay, 0.5))


@pytest.mark.parametrize(
    ("source", "overrides", "mixer_type"),
    [
        (bert, {}, "lit"),
        (bert, {"mixer_type": "decay"}, "decay"),
        (bert, {"local_window": 0}, "selective"),
        (bert, {"position_embedding_type": "none"}, "selective"),
        (bert, {"position_embedding_type": "none", "rope_parameters": {}}, "lit"),
        (vit, {}, "selective"),
    ],
)
def test_decays_are_for_what_has_no_window_or_no_positions(source, overrides, mixer_type):
    assert warm_start_from_softmax(source(), **overrides)[0].config.mixer_type == mixer_type


def test_decays_learn_from_the_start():
    model, _ = warm_start_from_softmax(bert(), mixer_type="selective")
    ids = torch.randint(0, 40, (2, 11))
    model(input_ids=ids, labels=ids).loss.backward()
    for layer in model.lion.layers:
        gate = layer.attention.mixer.decay_proj
        assert gate.weight.grad.abs().max() > 0 and gate.bias.grad.abs().max() > 0


@pytest.mark.parametrize(
    ("source", "overrides", "message"),
    [
        (lambda: bert(is_decoder=True), {}, "decoder"),
        (bert, {"num_attention_heads": 4}, "weights are those of 3 heads"),
        (bert, {"num_key_heads": 1}, "`num_key_heads` is 1, but the weights have a query and a key for each of 3"),
        (bert, {"intermediate_size": 44}, "change the shapes.*up_proj.weight"),
    ],
)
def test_what_cannot_be_carried_is_refused(source, overrides, message):
    with pytest.raises(ValueError, match=message):
        warm_start_from_softmax(source(), **overrides)


def run_command(*words) -> None:
    parser = argparse.ArgumentParser()
    convert.add_arguments(parser)
    convert.run(parser.parse_args([str(word) for word in words]))


def test_command_makes_a_text_model_with_its_tokenizer(tmp_path, capsys):
    source = bert()
    source.save_pretrained(tmp_path / "bert")
    tokenizer = LionTokenizer.train_from_iterator(["the lion sleeps", "a lion roars"], vocab_size=40)
    tokenizer.model_max_length = 99  # more than the table of positions has
    tokenizer.save_pretrained(tmp_path / "bert")
    run_command(
        "--from-pretrained", tmp_path / "bert", tmp_path / "lion", "--mixer_type", "decay", "--local_window", "4"
    )
    report = capsys.readouterr().out
    assert "New: 10 weights: lion.layers.*.attention.mixer.decay.bias, lion" in report
    model, info = AutoModelForMaskedLM.from_pretrained(tmp_path / "lion", output_loading_info=True)
    assert not any(info.values())
    assert (model.config.mixer_type, model.config.local_window) == ("decay", 4)
    assert torch.equal(model.lion.embeddings.word_embeddings.weight, source.bert.embeddings.word_embeddings.weight)
    converted = AutoTokenizer.from_pretrained(tmp_path / "lion")
    assert converted.get_vocab() == tokenizer.get_vocab() and converted.model_max_length > 1e9
    absolute = ["--position_embedding_type", "absolute"]
    run_command("--from-pretrained", tmp_path / "bert", tmp_path / "absolute", *absolute)
    assert AutoTokenizer.from_pretrained(tmp_path / "absolute").model_max_length == 32
    assert len(pipeline("fill-mask", model=str(tmp_path / "lion"))("the [MASK] sleeps")) == 5
    assert isinstance(AutoModel.from_pretrained(tmp_path / "lion"), modeling_lion.LionModel)


def test_command_makes_an_image_model_with_its_processor(tmp_path):
    vit().save_pretrained(tmp_path / "vit")
    mean = [0.1, 0.2, 0.3]
    ViTImageProcessorPil(size={"height": 16, "width": 16}, image_mean=mean).save_pretrained(tmp_path / "vit")
    (tmp_path / "labels.txt").write_text("cat\nlion\nzebra\n")
    words = ["--patch_order", "snake", "--labels", tmp_path / "labels.txt"]
    run_command("--from-pretrained", tmp_path / "vit", tmp_path / "lion", *words)
    config = AutoModelForImageClassification.from_pretrained(tmp_path / "lion").config
    assert config.patch_order == "snake" and config.label2id == {"cat": 0, "lion": 1, "zebra": 2}
    classify = pipeline("image-classification", model=str(tmp_path / "lion"))
    assert list(classify.image_processor.image_mean) == mean
    assert {answer["label"] for answer in classify(Image.new("RGB", (20, 10), "tan"))} == {"cat", "lion", "zebra"}


def test_command_says_what_is_missing_and_leaves_nothing_behind(tmp_path, capsys):
    bert(BertModel).save_pretrained(tmp_path / "bert")
    run_command("--from-pretrained", tmp_path / "bert", tmp_path / "lion")
    report = capsys.readouterr().out
    assert "has no tokenizer" in report and "train before use" in report
    GPT2Model(GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=9)).save_pretrained(tmp_path / "gpt2")
    with pytest.raises(ValueError, match="GPT2Model"):
        run_command("--from-pretrained", tmp_path / "gpt2", tmp_path / "other")
    with pytest.raises(ValueError, match="drop --task"):
        run_command("--from-pretrained", tmp_path / "bert", tmp_path / "other", "--task", "mlm")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bert", "gpt2", "lion"]


# ModernBERT: most of its layers see a window, and stay

MODERNBERTS = {
    "ModernBertModel": "LionModel",
    "ModernBertForMaskedLM": "LionForMaskedLM",
    "ModernBertForSequenceClassification": "LionForSequenceClassification",
    "ModernBertForTokenClassification": "LionForTokenClassification",
    "ModernBertForQuestionAnswering": "LionForQuestionAnswering",
    "ModernBertForMultipleChoice": "LionForMultipleChoice",
}
BIASES = ("norm_bias", "attention_bias", "mlp_bias", "classifier_bias")


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """To 1e-5: ModernBERT turns its queries and keys in float32."""
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5 * expected.abs().max().item())


def modernbert(name: str = "ModernBertForMaskedLM", **fields) -> PreTrainedModel:
    torch.manual_seed(0)
    special = {f"{token}_token_id": i for i, token in enumerate(("pad", "bos", "eos", "cls", "sep"))}
    sizes = SIZES | {"num_hidden_layers": 4, "vocab_size": 60, "local_attention": 8, "initializer_range": 0.3}
    config = transformers.ModernBertConfig(**(sizes | special | fields))
    return randomised(getattr(transformers, name)(config)).double()


@pytest.mark.parametrize("fields", [{}, {"classifier_pooling": "mean"} | dict.fromkeys(BIASES, True)])
@pytest.mark.parametrize("name", MODERNBERTS)
def test_a_modernbert_of_softmax_layers_is_the_same_model(name, fields):
    source = modernbert(name, **fields)
    model, report = warm_start_from_softmax(source, linear_layers="none")
    assert type(model).__name__ == MODERNBERTS[name] and not report.new and not report.dropped
    input_ids = torch.randint(5, 60, (3, 37))
    mask = torch.arange(37) < torch.tensor([[37], [20], [5]])
    inputs = {"input_ids": input_ids, "attention_mask": mask.long()}
    if name.endswith("Choice"):
        inputs = {key: x.unsqueeze(0) for key, x in inputs.items()}
    expected, actual = source(**inputs).to_tuple(), model.double()(**inputs)
    for value, right in zip(actual.to_tuple(), expected, strict=False):
        is_per_token = right.shape[:2] == mask.shape
        assert_close(value[mask] if is_per_token else value, right[mask] if is_per_token else right)


def test_a_modernbert_in_packed_rows():
    source = modernbert()
    model, _ = warm_start_from_softmax(source, linear_layers="none")
    texts = [torch.randint(5, 60, (1, length)) for length in (13, 1, 22)]
    packed = model.double()(torch.cat(texts, dim=1), cu_seq_lens_q=torch.tensor([0, 13, 14, 36])).logits
    assert_close(packed, torch.cat([source(text).logits for text in texts], dim=1))


@pytest.mark.parametrize(
    ("linear_layers", "kinds"),
    [("global", "LWWL"), ("none", "FWWF"), ("all", "LLLL"), ("alternate", "LWWF"), ([1, 3], "FLWL")],
)
def test_which_layers_become_linear(linear_layers, kinds):
    source = modernbert()
    model, report = warm_start_from_softmax(source, linear_layers)
    names = {"L": "linear_attention", "W": "sliding_attention", "F": "full_attention"}
    assert [model.config.layer_type(i) for i in range(4)] == [names[kind] for kind in kinds]
    assert {int(name.split(".")[2]) for name in report.new} == {i for i, kind in enumerate(kinds) if kind == "L"}
    assert not report.dropped
    theta = {"linear_attention": 160_000.0, "full_attention": 160_000.0, "sliding_attention": 10_000.0}
    rope = model.config.rope_parameters
    wanted = {names[kind] for kind in kinds}
    assert {kind: rope[kind]["rope_theta"] for kind in rope} == {kind: theta[kind] for kind in wanted}


def test_layers_of_a_bert_stay_softmax():
    model, report = warm_start_from_softmax(bert(num_hidden_layers=3), "alternate", mixer_type="decay")
    assert model.config.layer_types == ["linear_attention", "full_attention", "linear_attention"]
    assert {name.split(".")[2] for name in report.new} == {"0", "2"}
    for wrong in ("some", [3]):
        with pytest.raises(ValueError, match="`linear_layers` is .*give one of global, all, none, .*indices"):
            warm_start_from_softmax(bert(), wrong)


@pytest.mark.parametrize(
    ("linear_layers", "overrides", "named"),
    [
        ([0], {"mixer_type": "softmax"}, "`linear_layers` is .0. with `mixer_type` 'softmax'"),
        ("none", {"mixer_type": "decay"}, "`linear_layers` is 'none' with `mixer_type` 'decay'"),
        (3, {}, "`linear_layers` is 3"),
        ("global", {"num_hidden_layers": 2}, "4 layers.*leave out `num_hidden_layers`"),
    ],
)
def test_contradictions(linear_layers, overrides, named):
    with pytest.raises(ValueError, match=named):
        warm_start_from_softmax(modernbert(), linear_layers, **overrides)


def test_modernberts_with_further_fields():
    model, _ = warm_start_from_softmax(modernbert(position_embedding_type="sans_pos"))
    assert model.config.position_embedding_type == "none"
    with pytest.raises(ValueError, match="`classifier_activation` 'silu', .*classifier_activation='gelu'"):
        warm_start_from_softmax(modernbert(classifier_activation="silu"))


def test_command_keeps_the_windows_of_a_modernbert(tmp_path, capsys):
    modernbert().float().save_pretrained(tmp_path / "modernbert")
    run_command("--from-pretrained", tmp_path / "modernbert", tmp_path / "lion", "--linear_layers", "0")
    assert "train before use" in capsys.readouterr().out
    config = AutoConfig.from_pretrained(tmp_path / "lion")
    assert config.layer_types == ["linear_attention", "sliding_attention", "sliding_attention", "full_attention"]
    assert config.sliding_window == 4
