# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""`lion convert` of encoders of transformers; tests/linearized/ has what `linearize` does to them."""

import json
import shutil

import pytest
import torch
from deploy_lion.cli import main
from hub_checkpoints import TEXTS, text_checkpoint, text_tokenizer
from hub_upload_lion import convert_encoder
from PIL import Image
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
from transformers import (
    AutoConfig,
    AutoFeatureExtractor,
    AutoModel,
    AutoModelForImageClassification,
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    GPT2Config,
    GPT2Model,
    ModernBertConfig,
    ModernBertModel,
    RobertaConfig,
    RobertaModel,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessorPil,
    Wav2Vec2Config,
    Wav2Vec2FeatureExtractor,
    Wav2Vec2Model,
    pipeline,
)
from transformers.models.auto.image_processing_auto import AutoImageProcessor


SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40}
POSITIONS = 64


def save_text_encoder(folder, model_class=BertForMaskedLM, config_class=BertConfig, **options):
    """A random encoder and a tokenizer that lets longer texts pass."""
    torch.manual_seed(0)
    tokenizer = text_tokenizer()
    extra = 2 if config_class is RobertaConfig else 0  # rows of the table before the first position
    fields = {"vocab_size": len(tokenizer), "max_position_embeddings": POSITIONS + extra, "initializer_range": 0.3}
    model_class(config_class(**SIZES | fields | {"pad_token_id": 0 if not extra else 1}), **options).save_pretrained(
        folder
    )
    tokenizer.save_pretrained(folder)
    return folder


def test_a_text_encoder_with_its_head_and_tokenizer(tmp_path, capsys):
    source = save_text_encoder(tmp_path / "bert")
    words = ["--mixer", "decay", "--feature_map", "relu", "--window", "4", "--exact_length", "9", "--layers", "1"]
    assert main(["convert", str(source), str(tmp_path / "lion"), *words, "--positions", "cyclic"]) == 0
    printed = capsys.readouterr().out
    assert "BertForMaskedLM to LionBertForMaskedLM: 1 of 2 attention modules became linear (decay, relu" in printed
    assert "at most 9 tokens" in printed and "No text is too long" in printed and "examples/distill.py" in printed
    model, info = AutoModelForMaskedLM.from_pretrained(tmp_path / "lion", output_loading_info=True)
    assert not any(info.values())
    new = [x.numel() for name, x in model.named_parameters() if ".lion." in name]
    assert f"New: {sum(new):,} weights of {model.num_parameters():,}" in printed and sum(new) > 0
    assert [sizes is not None for sizes in model.config.lion_layers.values()] == [False, True]
    assert (model.config.lion_mixer, model.config.lion_window, model.config.lion_exact_length) == ("decay", 4, 9)
    before = BertForMaskedLM.from_pretrained(source)
    ids = torch.randint(5, 40, (2, 9))
    with torch.no_grad():
        assert torch.equal(model(ids).logits, before(ids).logits)
        assert not torch.allclose(model(ids.repeat(1, 5)).logits, before(ids.repeat(1, 5)).logits, atol=1e-3)
        assert model(ids.repeat(1, 20)).logits.isfinite().all()
    assert AutoTokenizer.from_pretrained(tmp_path / "lion").model_max_length > 1e9
    assert len(pipeline("fill-mask", str(tmp_path / "lion"))("The lion [MASK].")) == 5


@pytest.mark.parametrize("config_class", [BertConfig, RobertaConfig, ModernBertConfig])
def test_the_longest_text_is_that_of_a_table_of_positions(config_class, tmp_path):
    models = {BertConfig: BertModel, RobertaConfig: RobertaModel, ModernBertConfig: ModernBertModel}
    source = save_text_encoder(tmp_path / "source", models[config_class], config_class)
    said = convert_encoder(source, tmp_path / "lion")
    found = AutoTokenizer.from_pretrained(tmp_path / "lion").model_max_length
    if config_class is ModernBertConfig:
        assert found > 1e9 and "No text is too long" in said
    else:
        assert found == POSITIONS and f"Longest text: {POSITIONS} tokens" in said


def test_windows_alone_in_linear_time(tmp_path, capsys):
    source = save_text_encoder(tmp_path / "modernbert", ModernBertModel, ModernBertConfig)
    assert main(["convert", str(source), str(tmp_path / "lion"), "--layers", "none"]) == 0
    assert "0 of 2 attention modules became linear: the model computes what its source" in capsys.readouterr().out
    ids = torch.randint(5, 40, (1, 300))
    before, after = (
        AutoModel.from_pretrained(tmp_path / name)(ids).last_hidden_state for name in ("modernbert", "lion")
    )
    torch.testing.assert_close(after, before, atol=1e-5, rtol=1e-5)


@pytest.fixture(scope="module")
def sentence_folder(tmp_path_factory):
    """An encoder of sentence-transformers."""
    folder = tmp_path_factory.mktemp("sentences")
    save_text_encoder(folder / "roberta", RobertaModel, RobertaConfig)
    modules = [Transformer(str(folder / "roberta")), Pooling(24, pooling_mode="mean"), Dense(24, 8), Normalize()]
    encoder = SentenceTransformer(modules=modules, device="cpu", prompts={"query": "the "})
    encoder.max_seq_length = 20
    encoder.save(str(folder / "encoder"))
    return folder / "encoder"


@pytest.mark.parametrize("positions", [None, "cyclic"])
@pytest.mark.parametrize("place", ["", "0_Transformer"])
def test_an_encoder_of_sentence_transformers(sentence_folder, tmp_path, capsys, place, positions):
    """Also of an earlier release, which had the model in a folder of its own."""
    source = tmp_path / "encoder"
    shutil.copytree(sentence_folder, source)
    settings = json.loads((source / "sentence_bert_config.json").read_text()) | {"max_seq_length": 20}
    (source / "sentence_bert_config.json").write_text(json.dumps(settings))
    if place:
        (source / place).mkdir()
        for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
            (source / name).rename(source / place / name)
        (source / "sentence_bert_config.json").rename(source / place / "sentence_roberta_config.json")
        modules = json.loads((source / "modules.json").read_text())
        modules[0]["path"] = place
        (source / "modules.json").write_text(json.dumps(modules))
    words = [] if positions is None else ["--positions", positions]
    assert main(["convert", str(source), str(tmp_path / "lion"), *words]) == 0
    assert "Modules of sentence-transformers: Pooling, Dense, Normalize." in capsys.readouterr().out
    theirs, ours = (SentenceTransformer(str(folder), device="cpu") for folder in (sentence_folder, tmp_path / "lion"))
    assert type(ours[0].auto_model).__name__ == "LionRobertaModel"
    for options in ({}, {"prompt_name": "query"}):
        expected, found = (encoder.encode(TEXTS, **options) for encoder in (theirs, ours))
        assert found.shape == (len(TEXTS), 8) and abs(found - expected).max() < 1e-6
    long = " ".join(TEXTS)
    whole = len(text_tokenizer()(long)["input_ids"])
    assert whole > 20 and ours.tokenize([long])["input_ids"].shape[1] == (whole if positions else 20)


def test_encoders_that_hold_something_else_are_refused(sentence_folder, tmp_path):
    source = tmp_path / "encoder"
    shutil.copytree(sentence_folder, source)
    settings = source / "sentence_bert_config.json"
    text = settings.read_text()
    settings.write_text(text.replace("feature-extraction", "text-generation"))
    with pytest.raises(ValueError, match="`transformer_task` in .* is 'text-generation'; it can be one of feature"):
        convert_encoder(source, tmp_path / "lion")
    settings.write_text(text)
    modules = source / "modules.json"
    modules.write_text(modules.read_text().replace("transformer.Transformer", "router.Router"))
    with pytest.raises(ValueError, match="first module of .* is .*Router, and only a Transformer"):
        convert_encoder(source, tmp_path / "lion")
    assert not (tmp_path / "lion").exists()


def test_an_image_encoder_with_its_processor(tmp_path):
    torch.manual_seed(0)
    labels = {0: "cat", 1: "lion", 2: "zebra"}
    config = ViTConfig(image_size=16, patch_size=4, id2label=labels, initializer_range=0.3, **SIZES)
    ViTForImageClassification(config).save_pretrained(tmp_path / "vit")
    mean = [0.1, 0.2, 0.3]
    ViTImageProcessorPil(size={"height": 16, "width": 16}, image_mean=mean).save_pretrained(tmp_path / "vit")
    said = convert_encoder(tmp_path / "vit", tmp_path / "lion")
    assert "LionViTForImageClassification" in said and "at most 17 tokens" in said  # patches and CLS
    assert "text" not in said
    model = AutoModelForImageClassification.from_pretrained(tmp_path / "lion")
    assert model.config.id2label == labels
    assert list(AutoImageProcessor.from_pretrained(tmp_path / "lion").image_mean) == mean
    picture = Image.effect_noise((20, 10), 80).convert("RGB")
    answers = [pipeline("image-classification", str(tmp_path / name))(picture) for name in ("vit", "lion")]
    assert answers[0] == answers[1] and {x["label"] for x in answers[1]} == set(labels.values())


def test_an_encoder_of_sounds_with_its_feature_extractor(tmp_path):
    torch.manual_seed(0)
    convolutions = {"conv_dim": (8, 8), "conv_kernel": (10, 4), "conv_stride": (40, 4), "num_feat_extract_layers": 2}
    positions = {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}
    Wav2Vec2Model(Wav2Vec2Config(**SIZES, **convolutions, **positions)).save_pretrained(tmp_path / "sounds")
    Wav2Vec2FeatureExtractor(sampling_rate=8000).save_pretrained(tmp_path / "sounds")
    said = convert_encoder(tmp_path / "sounds", tmp_path / "lion", exact_length=0)
    assert "LionWav2Vec2Model: 2 of 2" in said
    assert AutoFeatureExtractor.from_pretrained(tmp_path / "lion").sampling_rate == 8000
    assert AutoModel.from_pretrained(tmp_path / "lion")(torch.randn(1, 4000)).last_hidden_state.isfinite().all()


def test_an_encoder_that_was_saved_without_a_pooler_gets_none(tmp_path):
    source = save_text_encoder(tmp_path / "bert", BertModel, add_pooling_layer=False)
    convert_encoder(source, tmp_path / "lion")
    assert not [name for name in load_file(tmp_path / "lion" / "model.safetensors") if "pooler" in name]


def test_weights_in_half_precision(tmp_path):
    source = save_text_encoder(tmp_path / "bert")
    assert main(["convert", str(source), str(tmp_path / "lion"), "--dtype", "bfloat16"]) == 0
    weights = load_file(tmp_path / "lion" / "model.safetensors")
    assert {x.dtype for x in weights.values()} == {torch.bfloat16}
    assert AutoConfig.from_pretrained(tmp_path / "lion").dtype == torch.bfloat16


def test_what_cannot_be_converted_is_refused_and_leaves_nothing_behind(tmp_path, capsys):
    GPT2Model(GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=9)).save_pretrained(tmp_path / "gpt2")
    text_checkpoint(tmp_path / "lions")
    source = save_text_encoder(tmp_path / "bert", BertModel)
    convert_encoder(source, tmp_path / "linear")
    broken = shutil.copytree(source, tmp_path / "broken")
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    unknown = shutil.copytree(source, tmp_path / "unknown")
    (unknown / "config.json").write_text(json.dumps(config | {"architectures": ["FancyBertModel"]}))
    torch.save({}, tmp_path / "published.pt")
    before = sorted(tmp_path.iterdir())
    for name, words, message in (
        ("gpt2", [], "is causal"),
        ("lions", [], "'lion' model, which is linear already"),
        ("linear", [], "'lion-bert' model, which is linear already"),
        ("broken", [], "are not complete: encoder.layer.2"),
        ("unknown", [], "FancyBertModel, which is no class of transformers"),
        ("bert", ["--layers", "0,2"], "the model has layers 0 to 1"),
        ("bert", ["--task", "mlm", "--num_heads", "2"], "is no file, and so an encoder of transformers: drop --num_"),
        (
            "published.pt",
            ["--window", "8", "--task", "mlm"],
            "is a file, and so a published checkpoint: drop --window",
        ),
        ("absent.pt", ["--task", "mlm"], "There is no file or folder"),
    ):
        assert main(["convert", str(tmp_path / name), str(tmp_path / "out"), *words]) == 1
        assert message in capsys.readouterr().err, name
        assert sorted(tmp_path.iterdir()) == before


def test_an_encoder_without_a_tokenizer(tmp_path):
    torch.manual_seed(0)
    BertModel(BertConfig(vocab_size=40, **SIZES)).save_pretrained(tmp_path / "bert")
    assert "has no tokenizer or processor: save one" in convert_encoder(tmp_path / "bert", tmp_path / "lion")
