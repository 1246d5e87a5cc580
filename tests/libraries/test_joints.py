# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What is right alone is right where it meets others: an encoder's prompts, a tokenizer's special tokens, limits of
length, graphs in a server, traces. Each test has the right value of a public kind of report; add yours.
"""

import copy
import json
import os
import pickle
import re
import time
import warnings
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import transformers
from bag_of_words import use_bag_of_words
from deploy_lion import ExportedModel, cli, export_checkpoint
from deploy_lion.export import exported
from hub_checkpoints import linear_checkpoint
from hub_upload_lion.checkpoint import load_model
from peft import AutoPeftModel, LoraConfig, get_peft_model
from retrieval_lion import encoders, sources
from retrieval_lion.documents import Document, passages_of
from retrieval_lion.passages import encode_passages
from retrieval_lion.search import index as search_index
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from modeling_lion import LionConfig, LionModel, linearize


WORDS = "a the lion owl sleeps roars hunts at night in shade of tall trees query document find : . ,"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
PROMPTS = {"query": "query : find ", "document": "document : "}
TEXTS = ["the lion roars", "an owl sleeps at night in the shade of tall trees.", "a lion hunts"]
# What tokenizers put around a text: BERT, then as Llama, as ESM and T5, and nothing.
TEMPLATES = {
    "both": "[CLS] $A [SEP]",
    "first": "[CLS] $A",
    "last": "$A [SEP]",
    "two": "[CLS] [CLS] $A [SEP]",
    "none": "",
}


def tokenizer_with(template: str, longest: int = 100_000) -> PreTrainedTokenizerFast:
    vocabulary = {word: n for n, word in enumerate([*SPECIAL, *WORDS.split()])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    if template:
        ids = [(token, vocabulary[token]) for token in SPECIAL if token in template]
        tokenizer.post_processor = TemplateProcessing(single=template, special_tokens=ids)
    named = {"pad_token": "[PAD]", "unk_token": "[UNK]"}
    named |= {f"{name}_token": f"[{name.upper()}]" for name in ("cls", "sep") if f"[{name.upper()}]" in template}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=longest, **named)


def encoder_folder(
    folder: Path, kind: str = "lion", template: str = TEMPLATES["both"], longest: int = 100_000, **options
) -> Path:
    """A folder of sentence-transformers around a tiny LION ("lion", packed) or BERT ("bert", padded)."""
    torch.manual_seed(0)
    common = SIZES | {"vocab_size": len(SPECIAL) + len(WORDS.split()), "initializer_range": 0.3, "pad_token_id": 0}
    model = LionModel(LionConfig(**common), add_pooling_layer=False)
    if kind == "bert":
        model = BertModel(BertConfig(**common, max_position_embeddings=256), add_pooling_layer=False)
    model.save_pretrained(folder / "model")
    tokenizer_with(template, longest).save_pretrained(folder / "model")
    modules = [Transformer(str(folder / "model")), Pooling(32), Normalize()]
    encoder = SentenceTransformer(modules=modules, device="cpu", **options)
    encoder.max_seq_length = longest
    encoder.save(str(folder / "encoder"))
    return folder / "encoder"


@pytest.fixture(autouse=True)
def float32(monkeypatch):
    monkeypatch.setattr("retrieval_lion.encoders.has_fast_bfloat16", lambda: False)


def document(text: str, name: str | None = None) -> Document:
    return Document(name, text, ((0, len(text)),))


# A linear part of a model that builds its parts itself (CLIP, SigLIP by fixed classes, the others by AutoModel)


def of_two_parts(name: str) -> transformers.PreTrainedModel:
    """A tiny model of images and texts, with weights that make a difference to its outputs."""
    torch.manual_seed(0)
    text = SIZES | {"vocab_size": 60, "max_position_embeddings": 64, "initializer_range": 0.3}
    tokens = {"bos_token_id": 1, "eos_token_id": 2}
    vision = SIZES | {"image_size": 32, "patch_size": 8, "initializer_range": 0.3}
    if name == "Llava":
        parts = {"text_config": transformers.LlamaConfig(**text, num_key_value_heads=2)}
        parts |= {"vision_config": transformers.CLIPVisionConfig(**vision, initializer_factor=10.0)}
        config = transformers.LlavaConfig(**parts, image_token_id=59, vision_feature_layer=-1)
        return transformers.LlavaForConditionalGeneration(config).eval()
    if name == "VisionTextDualEncoder":
        parts = transformers.ViTConfig(**vision), BertConfig(**text)
        config = transformers.VisionTextDualEncoderConfig.from_vision_text_configs(*parts)
        return transformers.VisionTextDualEncoderModel(config).eval()
    config = getattr(transformers, f"{name}Config")(text_config=text | tokens, vision_config=vision)
    model = getattr(transformers, f"{name}Model")(config).eval()
    for weight in model.parameters():
        weight.data.normal_(0, 0.2)
    return model


def outputs(model: transformers.PreTrainedModel) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    ids, is_llava = torch.randint(3, 50, (2, 7), generator=generator), "Llava" in type(model).__name__
    images = torch.randn(2, 3, 32, 32, generator=generator)
    if is_llava:
        ids = torch.cat([torch.full((2, 16), 59), ids], dim=1)
    with torch.no_grad():
        found = model(input_ids=ids, pixel_values=images, attention_mask=torch.ones_like(ids))
    return found.logits if is_llava else torch.cat([found.text_embeds, found.image_embeds])


PARTS = [
    ("CLIP", ["vision_model"]),
    ("Siglip", ["vision_model"]),
    ("Siglip", ["text_model", "vision_model"]),
    ("VisionTextDualEncoder", ["text_model"]),
    ("Llava", ["model.vision_tower"]),
]


@pytest.mark.parametrize(("name", "parts"), PARTS, ids=[f"{name}-{len(parts)}" for name, parts in PARTS])
def test_linear_parts_come_back_linear(name, parts, tmp_path):
    model = of_two_parts(name)
    source, config, before = type(model), model.config.to_dict(), outputs(model)
    given = model.config
    assert linearize(model, parts=parts, exact_length=0, window=1) is model
    assert given.to_dict() == config and not isinstance(given, type(model.config))
    assert type(model).__name__ == f"Lion{source.__name__}"
    expected = outputs(model)
    assert abs(expected - before).max() > 1e-4
    model.save_pretrained(tmp_path)
    auto = transformers.AutoModelForImageTextToText if name == "Llava" else transformers.AutoModel
    loaded = auto.from_pretrained(tmp_path).eval()
    assert type(loaded) is type(model) and torch.equal(outputs(loaded), expected)
    loaded.set_attn_implementation("sdpa")
    assert torch.equal(outputs(loaded), before)
    loaded.set_attn_implementation("lion_parallel")
    assert abs(outputs(loaded) - expected).max() < 1e-4
    exact = auto.from_pretrained(tmp_path, attn_implementation="sdpa").eval()
    assert torch.equal(outputs(exact), before)
    # Never softmax in silence.
    with pytest.raises(ValueError, match="has no part `lion`, and would silently stay softmax"):
        outputs(source.from_pretrained(tmp_path).eval())
    assert torch.equal(outputs(source.from_pretrained(tmp_path, attn_implementation="sdpa").eval()), before)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == f"lion-{given.model_type}"


@pytest.mark.parametrize("name", ["CLIP", "Siglip", "VisionTextDualEncoder", "Llava"])
def test_a_whole_that_would_lose_its_linear_part_is_not_saved(name, tmp_path):
    model = of_two_parts(name)
    part = "model.vision_tower" if name == "Llava" else "vision_model"
    tower = linearize(model.get_submodule(part), exact_length=0, window=1)
    expected = outputs(model)
    with pytest.raises(ValueError, match=re.escape(f'`linearize(model, parts=["{part}"])`, or save `model.{part}`')):
        model.save_pretrained(tmp_path / "whole")
    state = model.state_dict()  # of those who load it into a model that they make themselves
    assert any(".lion." in key for key in state)
    tower.save_pretrained(tmp_path / "tower")
    loaded = transformers.AutoModel.from_pretrained(tmp_path / "tower").eval()
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(loaded(images).last_hidden_state, tower(images).last_hidden_state)
    softmax = type(tower).source_class.from_pretrained(tmp_path / "tower").eval()
    with pytest.raises(ValueError, match="has no part `lion`, and would silently stay softmax"):
        softmax(images)
    model.config.vision_config = tower.config  # which a class that asks AutoModel for its parts reads
    if name in ("CLIP", "Siglip"):
        with pytest.raises(ValueError, match="would be loaded with softmax"):
            model.save_pretrained(tmp_path / "whole")
        return
    model.save_pretrained(tmp_path / "whole")
    assert torch.equal(outputs(type(model).from_pretrained(tmp_path / "whole").eval()), expected)


def test_an_encoder_beside_a_decoder_is_not_lost_either(tmp_path):
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    sizes |= {"vocab_size": 40, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    model = transformers.BartModel(transformers.BartConfig(**sizes)).eval()
    with pytest.raises(ValueError, match="no part of this BartModel with a configuration of its own"):
        linearize(model, parts=["encoder"])
    linearize(model.encoder)
    with pytest.raises(ValueError, match="would be loaded with softmax in `encoder`"):
        model.save_pretrained(tmp_path)


def test_parts_that_cannot_become_linear_are_named():
    model = of_two_parts("CLIP")
    with pytest.raises(
        ValueError, match=re.escape("Give those parts that can: `linearize(model, parts=['vision_model'])`")
    ):
        linearize(model)
    with pytest.raises(ValueError, match="is causal"):
        linearize(model, parts=["vision_model", "text_model"])
    for wrong, said in ((["vision"], "`parts` has 'vision'"), ([], "`parts` is empty: give some of 'text_model'")):
        with pytest.raises(ValueError, match=said):
            linearize(model, parts=wrong)
    assert type(model) is transformers.CLIPModel and not any("lion" in key for key in model.state_dict())


@pytest.mark.parametrize(("name", "part"), [("CLIP", "vision_model"), ("Siglip", "text_model")])
def test_a_linear_part_is_loaded_from_the_folder_of_the_whole(name, part, tmp_path):
    """As transformers loads a CLIPVisionModel from a CLIPModel's folder (transformers#18853)."""
    model = linearize(of_two_parts(name), parts=[part], exact_length=0, window=1)
    model.save_pretrained(tmp_path)
    tower = model.get_submodule(part)
    loaded = type(tower).from_pretrained(tmp_path).eval()
    inputs = torch.randn(2, 3, 32, 32) if part == "vision_model" else torch.randint(3, 50, (2, 7))
    assert torch.equal(loaded(inputs).last_hidden_state, tower(inputs).last_hidden_state)
    with pytest.raises(ValueError, match="has no part `lion`, and would silently stay softmax"):
        type(tower).source_class.from_pretrained(tmp_path)(inputs)


@pytest.mark.parametrize("way", ["parts", "before"])
def test_a_linear_encoder_of_images_before_a_decoder(way, tmp_path):
    """`VisionEncoderDecoderModel` (transformers#33992) has one class, and none for AutoModel."""
    torch.manual_seed(0)
    encoder = transformers.ViTModel(transformers.ViTConfig(**SIZES, image_size=32, patch_size=8)).eval()
    pixels, ids = torch.randn(1, 3, 32, 32), torch.randint(3, 50, (1, 5))
    inputs = {"pixel_values": pixels, "decoder_input_ids": ids}
    states = encoder(pixels).last_hidden_state
    if way == "before":
        linearize(encoder, exact_length=0, window=1)
    decoder = BertConfig(**SIZES, vocab_size=60, is_decoder=True, add_cross_attention=True)
    decoder = transformers.BertLMHeadModel(decoder).eval()
    model = transformers.VisionEncoderDecoderModel(encoder=encoder, decoder=decoder).eval()
    if way == "parts":
        linearize(model, parts=["encoder"], exact_length=0, window=1)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path).eval()
    assert type(loaded.encoder).__name__ == "LionViTModel"
    assert abs(model.encoder(pixels).last_hidden_state - states).max() > 1e-4
    assert torch.equal(loaded(**inputs).logits, model(**inputs).logits)


def test_parts_are_trained_adapted_and_copied(tmp_path):
    """LLaVA#1694 (a trained tower that is not loaded again), peft#3114, UltraRAG#111 (pickles of classes)."""
    model = linearize(of_two_parts("CLIP"), parts=["vision_model"], mixer="decay", exact_length=0, window=1)
    expected = outputs(model)
    assert torch.equal(outputs(copy.deepcopy(model)), expected)
    assert torch.equal(outputs(pickle.loads(pickle.dumps(model))), expected)
    optimizer = torch.optim.SGD(model.vision_model.parameters(), 0.1)
    inputs = {"input_ids": torch.randint(3, 50, (2, 7)), "pixel_values": torch.randn(2, 3, 32, 32)}
    model.train()(**inputs, return_loss=True).loss.backward()
    trained = [name for name, weight in model.named_parameters() if ".lion." in name and weight.grad.abs().sum() > 0]
    assert len({name.rpartition(".lion.")[0] for name in trained}) == 2
    optimizer.step()
    model.eval().save_pretrained(tmp_path / "model")
    loaded = transformers.AutoModel.from_pretrained(tmp_path / "model").eval()
    assert torch.equal(outputs(loaded), outputs(model))
    loaded.add_adapter(LoraConfig(target_modules=["q_proj"], r=4, init_lora_weights=False))
    expected = outputs(loaded.eval())
    loaded.save_pretrained(tmp_path / "adapter")
    base = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())["base_model_name_or_path"]
    again = transformers.AutoModel.from_pretrained(base).eval()
    again.load_adapter(str(tmp_path / "adapter"))
    assert torch.equal(outputs(again.eval()), expected)


def test_an_adapter_does_not_name_the_softmax_model_as_its_base(tmp_path):
    """Of a model with adapters only these are saved (sentence-transformers#3246): it would be loaded with softmax."""
    BertModel(BertConfig(**SIZES, vocab_size=40)).save_pretrained(tmp_path / "bert")
    model = linearize(BertModel.from_pretrained(tmp_path / "bert"), exact_length=4, window=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of PEFT, about gradient checkpointing
        get_peft_model(model, LoraConfig(target_modules=["query"])).save_pretrained(tmp_path / "adapter")
    assert not json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())["base_model_name_or_path"]
    with pytest.raises((ValueError, OSError)):
        AutoPeftModel.from_pretrained(tmp_path / "adapter")


# Vectors that are not finite (chroma#7420: such a record is found by every query, or by none)


@pytest.mark.parametrize("kind", ["lion", "bert"])
def test_vectors_that_are_not_finite_are_refused(kind, tmp_path, capsys):
    folder = encoder_folder(tmp_path, kind)
    path = next(folder.rglob("model.safetensors"))
    weights = load_file(path)
    name = next(name for name in weights if "word_embeddings" in name)
    weights[name][len(SPECIAL) + WORDS.split().index("owl")] = float("nan")
    save_file(weights, path, metadata={"format": "pt"})
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text(TEXTS[1])
    model = ["--model", str(folder)]
    for call in (
        ["embed", str(tmp_path / "a.jsonl"), "--out", str(tmp_path / "out")],
        ["search", str(tmp_path / "texts"), "lion", "--cache_dir", str(tmp_path), "--keep_minutes", "0"],
        ["search", str(tmp_path / "texts"), "owl", "--cache_dir", str(tmp_path), "--keep_minutes", "0"],
    ):
        assert cli.main([*call, *model]) == 1
        said = capsys.readouterr()
        assert "The encoder gives numbers that are not finite for " in said.err and "nan" not in said.out


# Settings of a tokenizer's file (quackformers#34, spiceai#13416): all-MiniLM-L6-v2 pads and cuts at 128 there


@pytest.mark.parametrize("kind", ["lion", "bert"])
def test_padding_and_truncation_of_a_tokenizer_file_change_nothing(kind, tmp_path):
    folder, texts = encoder_folder(tmp_path, kind, prompts=PROMPTS), [*TEXTS, "the lion roars at night . " * 8]
    expected = SentenceTransformer(str(folder), device="cpu").encode_document(texts, normalize_embeddings=True)
    path = next(folder.rglob("tokenizer.json"))
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.enable_padding(length=24)
    tokenizer.enable_truncation(12)
    tokenizer.save(str(path))
    encoder = encoders.SentenceEncoder(encoders.load_encoder(folder), in_pieces=True)
    np.testing.assert_allclose(encoder.encode_texts(texts), expected, atol=1e-5)
    found = torch.cat(encoder.encode_documents(list(map(document, texts))))
    np.testing.assert_allclose(found, expected, atol=1e-5)


# Prompts (sentence-transformers#1735, #3054)


@pytest.mark.parametrize("kind", ["lion", "bert"])
@pytest.mark.parametrize(
    "options",
    [
        {"prompts": PROMPTS},
        {"prompts": PROMPTS, "default_prompt_name": "query"},
        {"prompts": {"query": "query : "}},
        {},
    ],
    ids=["both", "default", "query only", "none"],
)
def test_search_reads_with_the_prompts_of_an_encoder(options, kind, tmp_path):
    folder = encoder_folder(tmp_path, kind, **options)
    truth = SentenceTransformer(str(folder), device="cpu")
    encoder = encoders.SentenceEncoder(encoders.load_encoder(folder), in_pieces=True)
    named = [f"lion: {text}" for text in TEXTS]
    found = torch.cat(encoder.encode_documents([document(text, "lion") for text in TEXTS]))
    assert abs(found - truth.encode_document(named, convert_to_tensor=True)).max() < 1e-5
    queries = encoder.encode_queries(TEXTS)
    assert abs(queries - truth.encode_query(TEXTS, convert_to_tensor=True)).max() < 1e-5
    assert abs(encoder.encode_texts(TEXTS) - truth.encode_document(TEXTS, convert_to_tensor=True)).max() < 1e-5
    if options.get("prompts") == PROMPTS:
        assert abs(queries - truth.encode(TEXTS, prompt="", convert_to_tensor=True)).max() > 0.05


def test_a_prompt_that_pooling_leaves_out_is_left_out(tmp_path):
    encoder_folder(tmp_path, prompts=PROMPTS)
    pooling = next((tmp_path / "encoder").glob("*Pooling/config.json"))
    pooling.write_text(json.dumps(json.loads(pooling.read_text()) | {"include_prompt": False}))
    truth = SentenceTransformer(str(tmp_path / "encoder"), device="cpu")
    expected = truth.encode_document(TEXTS, convert_to_tensor=True)
    encoder = encoders.SentenceEncoder(encoders.load_encoder(tmp_path / "encoder"))
    assert abs(torch.cat(encoder.encode_documents(list(map(document, TEXTS)))) - expected).max() < 1e-5
    with pytest.raises(ValueError, match="leaves its prompt out of the mean"):
        encode_passages(truth.eval(), TEXTS)


def test_embed_writes_vectors_with_the_prompt_for_documents(tmp_path):
    folder, corpus = encoder_folder(tmp_path, prompts=PROMPTS, default_prompt_name="query"), tmp_path / "a.jsonl"
    corpus.write_text("".join(json.dumps({"id": str(n), "text": x}) + "\n" for n, x in enumerate(TEXTS)))
    expected = SentenceTransformer(str(folder), device="cpu").encode_document(TEXTS)
    for n, options in enumerate(([], ["--whole_texts"])):
        out = tmp_path / f"out{n}"
        assert cli.main(["embed", str(corpus), "--out", str(out), "--model", str(folder), *options]) == 0
        rows = sorted(pq.read_table(out).to_pylist(), key=lambda row: row["id"])
        np.testing.assert_allclose([row["vector"] for row in rows], expected, atol=1e-5)


def test_passages_of_one_pass_have_read_the_prompt(tmp_path):
    """It stands in front of each part of a document, and is of no passage."""
    encoder = SentenceTransformer(str(encoder_folder(tmp_path, prompts=PROMPTS)), device="cpu").eval()
    text = "the lion roars . " * 20
    spans = [(n * 17, n * 17 + 16) for n in range(20)]
    model, tokenizer = encoder[0].auto_model, encoder.tokenizer
    parts = [(0, 20), (0, 9), (9, 18), (18, 20)]
    found = {20: encode_passages(encoder, [text], [spans], max_document_tokens=1000)}
    found[9] = encode_passages(encoder, [text], [spans], max_document_tokens=2 + 2 + 4 * 9 + 3)
    for first, end in parts:
        ids = tokenizer(PROMPTS["document"] + text[first * 17 : end * 17], return_tensors="pt")
        with torch.no_grad():
            (states,) = model(**ids).last_hidden_state
        means = states[3 : 3 + 4 * (end - first)].view(-1, 4, 32).mean(1)
        actual = found[20 if end - first == 20 else 9].vectors[first:end]
        np.testing.assert_allclose(actual, torch.nn.functional.normalize(means, dim=-1), atol=1e-5)


# Special tokens (sentence-transformers#2964; ESM, Gemma and Llama have their own)


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
@pytest.mark.parametrize("prompts", [{}, PROMPTS], ids=["", "prompt"])
def test_passages_have_the_special_tokens_of_the_tokenizer(template, prompts, tmp_path):
    encoder = SentenceTransformer(str(encoder_folder(tmp_path, template=template, prompts=prompts)), device="cpu")
    found = encode_passages(encoder.eval(), TEXTS, [[]] * 3).document_vectors
    np.testing.assert_allclose(found, encoder.encode_document(TEXTS), atol=1e-5)
    whole = encode_passages(encoder, ["", *TEXTS], [[], *([(0, len(text))] for text in TEXTS)])
    prompt, prefix = prompts.get("document", ""), template.split().index("$A") if template else 0
    for text, vector in zip(TEXTS, whole.vectors, strict=True):
        before = prefix + len(encoder.tokenizer.tokenize(prompt))
        length = len(encoder.tokenizer.tokenize(text))
        with torch.no_grad():
            (states,) = (
                encoder[0].auto_model(**encoder.tokenizer(prompt + text, return_tensors="pt")).last_hidden_state
            )
        mean = torch.nn.functional.normalize(states[before : before + length].mean(0), dim=0)
        np.testing.assert_allclose(vector, mean, atol=1e-5)


# Files that change and keep their size and time (rsync -t, SOURCE_DATE_EPOCH, FAT)


def test_a_file_that_keeps_its_size_and_time_is_read_anew(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("the lion roars")
    os.utime(tmp_path / "a.txt", (1, 1))
    made, path = search_index.Index(None, use_bag_of_words(monkeypatch)), str(tmp_path / "a.txt")

    def read() -> list[str]:
        list(made.update([path], lambda file: passages_of(file, str(tmp_path))))
        return [passage.text for passage in made.get(made.keys)]

    monkeypatch.setattr(search_index, "TICK", -(10**12))
    assert read() == read() == ["the lion roars"]
    time.sleep(0.02)  # a tick of this disk
    (tmp_path / "b").write_text("the owl sleeps")
    os.utime(tmp_path / "b", (1, 1))
    (tmp_path / "b").replace(tmp_path / "a.txt")
    assert read() == ["the owl sleeps"]
    with (tmp_path / "a.txt").open("r+") as file:
        file.write("an")
    os.utime(tmp_path / "a.txt", (1, 1))
    assert read() == ["ane owl sleeps"]


def test_a_file_that_was_just_written_is_read_next_time(tmp_path, monkeypatch):
    """A disk whose clock ticks every other second, as FAT's: nothing but the contents changes."""
    (tmp_path / "a.txt").write_text("the lion roars")
    made, state = search_index.Index(None, use_bag_of_words(monkeypatch)), (14, time.time_ns(), time.time_ns(), 7)
    monkeypatch.setattr(search_index, "state_of", lambda path: state)
    for text in ("the lion roars", "the owl sleeps"):
        (tmp_path / "a.txt").write_text(text)
        list(made.update([str(tmp_path / "a.txt")], lambda file: passages_of(file, str(tmp_path))))
        assert [passage.text for passage in made.get(made.keys)] == [text]


def test_embed_and_models_see_contents_that_keep_their_size_and_time(tmp_path, capsys):
    folder, corpus = encoder_folder(tmp_path), tmp_path / "a.jsonl"
    call = ["embed", str(corpus), "--out", str(tmp_path / "out"), "--model", str(folder)]
    before = sources.files_of_model(str(folder))
    for word in ("lions", "zebra"):
        corpus.write_text(json.dumps({"text": word}))
        os.utime(corpus, (1, 1))
        code = cli.main(call)
    assert code == 1 and "has vectors with other settings (files)" in capsys.readouterr().err
    weights = folder / "model.safetensors"
    status, data = weights.stat(), weights.read_bytes()
    weights.with_suffix(".new").write_bytes(data[:-4] + b"1234")
    os.utime(weights.with_suffix(".new"), ns=(status.st_atime_ns, status.st_mtime_ns))
    weights.with_suffix(".new").replace(weights)
    assert sources.files_of_model(str(folder)) != before
    corpus.write_text(json.dumps({"text": "lions"}))
    os.utime(corpus, (2, 2))  # the same contents
    weights.write_bytes(data)
    assert cli.main(call) == 0


# A call of `lion embed` that failed before the first vector


@pytest.mark.parametrize("wrong", [["--text_column", "body"], ["--model", "gone/away"], ["--model", "{corpus}"]])
def test_what_failed_to_start_does_not_stop_the_right_call(wrong, tmp_path, capsys):
    folder, corpus = encoder_folder(tmp_path), tmp_path / "a.jsonl"
    corpus.write_text(json.dumps({"text": "the lion"}))
    (tmp_path / "no_model").mkdir()
    call = ["embed", str(corpus), "--out", str(tmp_path / "out"), "--model", str(folder)]
    assert cli.main([*call, *(x.format(corpus=tmp_path / "no_model") for x in wrong)]) == 1
    (tmp_path / "out").mkdir(exist_ok=True)
    (tmp_path / "out" / "__embed.json.0123456789ab").write_text("{")  # of a process that was killed
    assert cli.main(call) == 0, capsys.readouterr().err
    assert pq.read_table(tmp_path / "out").num_rows == 1
    assert cli.main([*call, "--whole_texts"]) == 1 and "other settings (whole_texts)" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["BertModel", "BertForSequenceClassification"])
@pytest.mark.parametrize("side", ["right", "left"])
def test_a_graph_that_chooses_by_columns_runs_short_texts_apart(side, kind, tmp_path, monkeypatch):
    """The same with a runtime that is exact up to `lion_exact_length` columns, as graphs are, and linear beyond."""
    folder = linear_checkpoint(tmp_path / "graph", kind)
    (folder / "model.onnx").write_bytes(b"")
    exact, linear = load_model(folder), load_model(folder)
    linear.config.lion_exact_length = 0
    runs = []

    def compute(feeds: dict) -> list[np.ndarray]:
        runs.append(feeds["input_ids"].shape)
        inputs = {name: torch.from_numpy(x) for name, x in feeds.items()}
        return [(exact if runs[-1][1] <= 24 else linear)(**inputs)[0].numpy()]

    names = ["input_ids", "attention_mask"], ["last_hidden_state" if kind == "BertModel" else "logits"]
    monkeypatch.setattr(exported, "open_onnx", lambda path, threads: (*names, torch.no_grad()(compute), None, None))
    graph, lengths, width = ExportedModel(folder), [3, 20, 24, 25, 60], 60
    ids, mask = torch.zeros(2, 5, width, dtype=torch.int64)
    columns = [slice(n) if side == "right" else slice(width - n, None) for n in lengths]
    for n, place in enumerate(columns):
        ids[n, place], mask[n, place] = torch.randint(5, 70, (lengths[n],)), 1
    with torch.no_grad():
        expected = exact(input_ids=ids, attention_mask=mask)[0]
        if side == "right":
            (found,) = graph(input_ids=ids, attention_mask=mask).values()
            for n, place in enumerate(columns):
                of_row = (n, place) if kind == "BertModel" else n
                assert abs(found[of_row] - expected[of_row]).max() < 1e-5, lengths[n]
            assert runs == [(2, 60), (3, 24)]
            (short,) = graph(input_ids=ids[:2], attention_mask=mask[:2]).values()
            assert runs[2:] == [(2, 20)] and short.shape == found[:2].shape
        else:  # the positions of a table are those of the columns, so that none can be left out
            graph(input_ids=ids, attention_mask=mask)
            assert runs == [(5, 60)]
        runs.clear()
        graph(input_ids=ids[:, :24], attention_mask=torch.ones(5, 24, dtype=torch.int64))
        assert runs == [(5, 24)]


# Limits of length that sentence-transformers does not save (sentence-transformers#3575)


def test_an_encoder_that_became_linear_reads_long_texts_after_it_was_saved(tmp_path):
    folder = encoder_folder(tmp_path, "bert", longest=64)
    options = ["--exact_length", "16", "--window", "8", "--positions", "cyclic"]
    assert cli.main(["convert", str(folder), str(tmp_path / "lion"), *options]) == 0
    encoder = SentenceTransformer(str(tmp_path / "lion"), device="cpu")
    assert encoder.max_seq_length == 1_000_000_000  # a number that a person can read
    text = "the lion roars at night . " * 100
    expected = encoder.encode(text)
    encoder.save(str(tmp_path / "saved"))
    assert SentenceTransformer(str(tmp_path / "saved"), device="cpu").max_seq_length == 256  # the table
    for name in ("lion", "saved"):
        loaded = encoders.load_encoder(tmp_path / name)
        assert loaded.max_seq_length == 1_000_000_000 and abs(loaded.encode(text) - expected).max() < 1e-6
    encoder.max_seq_length = 50  # what somebody chose stays
    encoder.save(str(tmp_path / "chosen"))
    assert encoders.load_encoder(tmp_path / "chosen").max_seq_length == 50
    assert encoders.load_encoder(folder).max_seq_length == 64


# torch.jit.trace, which keeps what one length has chosen (transformers#27262)


@pytest.mark.filterwarnings("ignore")  # of torch, on what a trace keeps
def test_a_trace_is_right_at_all_lengths_or_refused():
    config = {"vocab_size": 40, "initializer_range": 0.3} | SIZES
    model = LionModel(LionConfig(**config), add_pooling_layer=False).eval().requires_grad_(False)
    states = lambda ids, mask: model(ids, attention_mask=mask).last_hidden_state
    ids = torch.randint(3, 40, (1, 10))
    traced = torch.jit.trace(states, (ids, torch.ones_like(ids)), check_trace=False)
    for length in (5, 10, 30, 100):
        ids, mask = torch.randint(3, 40, (2, length)), torch.ones(2, length, dtype=torch.int64)
        mask[0, -2:] = 0
        assert abs((traced(ids, mask) - states(ids, mask))[mask.bool()]).max() < 1e-5, length
    encoder = linearize(BertModel(BertConfig(**config)).eval(), exact_length=24, window=4)
    with pytest.raises(ValueError, match="chooses by the length of a text: use `lion export` or `torch.export`"):
        torch.jit.trace(lambda ids: encoder(ids).last_hidden_state, (ids,))


# Mistakes with a next step


def test_what_lion_convert_cannot_take_has_a_next_step(tmp_path, capsys):
    folder = tmp_path / "empty"
    folder.mkdir()
    call = ["convert", str(folder), str(tmp_path / "lion")]
    assert cli.main(call) == 1
    said = capsys.readouterr().err
    assert f"{folder} has no model: there is no config.json. Give a folder that save_pretrained() wrote" in said
    (folder / "pytorch_model.bin").write_bytes(b"")
    assert cli.main(call) == 1 and f"Or give {folder / 'pytorch_model.bin'}." in capsys.readouterr().err
    (folder / "checkpoint-9").mkdir()
    (folder / "checkpoint-9" / "config.json").write_text("{}")
    assert cli.main(call) == 1 and f"Or give {folder / 'checkpoint-9'}." in capsys.readouterr().err


@pytest.mark.parametrize("head", ["Model", "ForConditionalGeneration"])
def test_of_an_encoder_and_a_decoder_the_encoder_is_named(head):
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    sizes |= {"vocab_size": 40, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    model = getattr(transformers, f"Bart{head}")(transformers.BartConfig(**sizes)).eval()
    with pytest.raises(ValueError, match="is causal, and LION reads in both") as error:
        linearize(model)
    (path,) = re.findall("Give its encoder alone, `model.(.*)`", str(error.value))
    assert path == ("encoder" if head == "Model" else "model.encoder")
    linearize(model.get_submodule(path))
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2, "vocab_size": 40}
    model = getattr(transformers, f"T5{head}")(transformers.T5Config(**sizes)).eval()
    with pytest.raises(ValueError, match="`model.encoder`, cannot either: encoder.block.0.*adds a bias"):
        linearize(model)


@pytest.mark.parametrize("name", ["lion-local", "lion local"])
def test_a_misspelt_name_of_attention_is_corrected(name):
    with pytest.raises(ValueError, match='give `attn_implementation="lion_local"`'):
        model = BertModel(BertConfig(**SIZES, vocab_size=40, attn_implementation=name))
        model(torch.ones(1, 4, dtype=torch.int64))


# A graph beside torch, and a text beside others (optimum#2012, text-embeddings-inference#646)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["BertModel", "BertForSequenceClassification"])
def test_in_a_graph_a_text_does_not_depend_on_its_neighbours(kind, tmp_path, traced_once):
    """Short ones are exact, as in torch, also beside texts beyond `lion_exact_length`."""
    folder = linear_checkpoint(tmp_path / "model", kind)
    export_checkpoint(folder, tmp_path / "graph")
    graph, model = ExportedModel(tmp_path / "graph"), load_model(folder)
    lengths, width = [3, 20, 24, 25, 60], 60
    rows = [torch.randint(5, 70, (length,)) for length in lengths]
    inputs = torch.zeros(2, len(rows), width, dtype=torch.int64)
    for (ids, mask), row in zip(inputs.transpose(0, 1), rows, strict=True):
        ids[: len(row)], mask[: len(row)] = row, 1
    with torch.no_grad():
        together = graph(input_ids=inputs[0], attention_mask=inputs[1])[0]
        in_torch = model(input_ids=inputs[0], attention_mask=inputs[1])[0]
        for n, row in enumerate(rows):
            of_row = (n, slice(len(row))) if together.dim() == 3 else n
            assert abs(together[of_row] - in_torch[of_row]).max() < 1e-4, lengths[n]
            alone = graph(input_ids=row[None])[0][0]
            assert abs(together[of_row] - alone).max() < 1e-4, lengths[n]
            assert abs(alone - model(input_ids=row[None])[0][0]).max() < 1e-4
        short = graph(input_ids=inputs[0][:2], attention_mask=inputs[1][:2])[0]
        first = slice(lengths[0] if together.dim() == 3 else None)  # padded tokens have any numbers
        assert short.shape[1:] == together.shape[1:] and abs(short[0] - together[0])[first].max() < 1e-4


# Silent truncation (sentence-transformers#4060)


@pytest.mark.parametrize("template", ["both", "none"])
def test_embed_and_search_say_how_many_tokens_were_not_read(template, tmp_path, capsys):
    folder = encoder_folder(tmp_path, "bert", TEMPLATES[template], longest=16, prompts=PROMPTS)
    texts = tmp_path / "texts"
    texts.mkdir()
    for name, words in (("long", 40), ("short", 5), ("fits", 10 if template == "both" else 12)):
        (texts / f"{name}.txt").write_text("lion " * words)
    out = tmp_path / "out"
    options = ["--model", str(folder), "--name_column", "none", "--whole_texts"]
    corpus = tmp_path / "a.jsonl"
    rows = [{"id": path.stem, "text": path.read_text().strip()} for path in texts.iterdir()]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert cli.main(["embed", str(corpus), "--out", str(out), *options]) == 0
    said = capsys.readouterr().err
    cut = 40 + 2 + (2 if template == "both" else 0) - 16
    assert f"{cut} tokens of 1 passage were not read" in said and "`cut_tokens`" in said
    found = {row["id"]: row["cut_tokens"] for row in pq.read_table(out).to_pylist()}
    assert found == {"long": cut, "short": 0, "fits": 0}
    for query, lost in (("lion", cut + 2), ("lion " * 50, cut + 2 + 50 + 3 + 2 * (template == "both") - 16)):
        (texts / "long.txt").write_text("lion " * 40 + "." * (query != "lion"))  # named "long: ", and read anew
        call = ["search", str(texts), query, "--model", str(folder)]
        call += ["--cache_dir", str(tmp_path), "--keep_minutes", "0"]
        assert cli.main(call) == 0
        said = capsys.readouterr().err
        assert "were not read" in said, said
        assert f"{lost + (query != 'lion')} tokens of {1 + (query != 'lion')} text" in said, said
