# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""sentence-transformers loads a LION folder as it is, and trains it; what else is in a batch changes nothing."""

import importlib
import json

import pytest
import torch
from conftest import mixer_fields
from hub_checkpoints import image_checkpoint, linear_checkpoint
from PIL import Image
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from transformers import AutoProcessor, AutoTokenizer, BertConfig, BertModel

from modeling_lion import LionConfig, LionForMaskedLM, LionModel, LionTokenizer, linearize


ANIMALS = ("lion", "owl", "fish", "snake", "horse", "bee", "whale", "wolf", "bat", "goat")
SOUNDS = ("roars", "hoots", "bubbles", "hisses", "neighs", "buzzes", "sings", "howls", "squeaks", "bleats")
SMALL_BERT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
SMALL_BERT |= {"vocab_size": 80, "max_position_embeddings": 256, "initializer_range": 0.2}
TEXTS = ["It roars.", "The owl hoots from a tall tree, at night, in the shade of the hill.", "A bee"]


@pytest.fixture
def folder(mixer, tmp_path) -> str:
    texts = [*TEXTS, *ANIMALS, *SOUNDS, "At dawn the animal that"]
    tokenizer = LionTokenizer.train_from_iterator(texts * 3, vocab_size=300)
    tiny = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    if mixer == "lit with rotary positions":
        mixer, tiny["rope_parameters"] = "lit", {"rope_theta": 100.0}
    config = LionConfig(**mixer_fields(mixer), vocab_size=len(tokenizer), initializer_range=0.1, **tiny)
    LionForMaskedLM(config).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


@pytest.mark.parametrize("mixer", ["lit", "selective"])  # with a table of positions, and without
@pytest.mark.parametrize("padding_side", ["right", "left"])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_batch_is_its_texts_one_by_one(pooling, padding_side, folder, tmp_path):
    tokens = Transformer(folder)
    tokens.tokenizer.padding_side = padding_side
    encoder = SentenceTransformer(modules=[tokens, Pooling(32, pooling_mode=pooling)], device="cpu")
    together = encoder.encode(TEXTS, convert_to_tensor=True)
    alone = torch.stack([encoder.encode(text, convert_to_tensor=True) for text in TEXTS])
    inputs = tokens.tokenizer(TEXTS, padding=True, padding_side="right", return_tensors="pt")
    with torch.no_grad():
        states = tokens.model(**inputs).last_hidden_state
    mask = inputs["attention_mask"].unsqueeze(-1)
    expected = (states * mask).sum(1) / mask.sum(1) if pooling == "mean" else states[:, 0]
    for vectors in (together, alone):
        torch.testing.assert_close(vectors, expected, atol=2e-6, rtol=2e-6)
    encoder.save(str(tmp_path / "encoder"))
    loaded = SentenceTransformer(str(tmp_path / "encoder"), device="cpu")
    torch.testing.assert_close(loaded.encode(TEXTS, convert_to_tensor=True), together, atol=2e-6, rtol=2e-6)


LONG = ("the owl hoots " * 400, "the owl hoots " * 400 + "the lion roars " * 400)  # the same first 512 tokens


@pytest.mark.parametrize("mixer", ["decay", "selective", "lit with rotary positions"])
def test_without_a_table_of_positions_texts_are_read_to_the_end(folder, mixer, tmp_path):
    """With rotary positions, after the length of the training is raised, to which sentence-transformers truncates."""
    encoder = SentenceTransformer(folder, device="cpu")
    if mixer == "lit with rotary positions":
        assert encoder.max_seq_length == 512
        encoder[0].model.config.max_position_embeddings = encoder.max_seq_length = 10_000
    assert encoder.encode(TEXTS).shape == (3, 32)
    first, second = encoder.encode(LONG)
    assert abs(first - second).max() > 1e-3
    encoder.save(str(tmp_path / "saved"))
    again = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert abs(again.encode(LONG) - [first, second]).max() < 2e-6
    again.max_seq_length = 64  # what somebody chose stays
    again.save(str(tmp_path / "cut"))
    cut = SentenceTransformer(str(tmp_path / "cut"), device="cpu")
    assert cut.max_seq_length == 64 and abs(cut.encode(LONG[0]) - cut.encode(LONG[1])).max() == 0


@pytest.mark.parametrize("mixer", ["lit"])
def test_a_table_of_positions_ends_texts(folder):
    encoder = SentenceTransformer(folder, device="cpu")
    assert encoder.max_seq_length == 512
    first, second = encoder.encode(LONG)
    assert abs(first - second).max() == 0


def test_an_encoder_becomes_linear_in_place(tmp_path):
    """Short texts keep their vectors to the bit, also beside long ones; saved, loaded, and from a plain folder."""
    plain = linear_checkpoint(tmp_path / "plain", "BertModel")
    bert = BertModel(BertConfig(**SMALL_BERT)).eval()
    bert.save_pretrained(tmp_path / "bert")
    AutoTokenizer.from_pretrained(plain).save_pretrained(tmp_path / "bert")
    encoder = SentenceTransformer(str(tmp_path / "bert"), device="cpu")
    texts = ["It roars.", "The lion sleeps in the shade. " * 20, "A lion"]
    before = [encoder.encode(text) for text in texts]
    linearize(encoder[0].auto_model, exact_length=24, window=8, positions="cyclic")
    encoder.max_seq_length = 10_000
    after = encoder.encode(texts, batch_size=3)
    for n in (0, 2):
        assert (encoder.encode(texts[n]) == before[n]).all() and abs(after[n] - before[n]).max() < 2e-6
    assert abs(after[1] - before[1]).max() > 1e-3
    encoder.save(str(tmp_path / "saved"))
    loaded = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert type(loaded[0].auto_model).__name__ == "LionBertModel"
    loaded.max_seq_length = 10_000
    assert (loaded.encode(texts, batch_size=3) == after).all()
    folder = SentenceTransformer(str(plain), device="cpu")  # sentence-transformers averages its tokens
    (pooled,) = folder.encode(texts[:1])
    assert pooled.shape == (32,) and type(folder[0].auto_model).__name__ == "LionBertModel"


def test_an_image_model_embeds_images(tmp_path):
    folder = image_checkpoint(tmp_path / "image")
    pictures = [Image.new("RGB", (40, 30), color) for color in ("tan", "navy")]
    with torch.no_grad():
        inputs = AutoProcessor.from_pretrained(folder)(pictures, return_tensors="pt")
        states = LionModel.from_pretrained(folder)(**inputs).last_hidden_state
    encoder = SentenceTransformer(str(folder), device="cpu")
    assert encoder.tokenizer is None or not hasattr(encoder.tokenizer, "vocab")
    torch.testing.assert_close(encoder.encode(pictures, convert_to_tensor=True), states.mean(1), atol=2e-6, rtol=2e-6)


@pytest.fixture
def example():
    return importlib.import_module("train_embeddings")


@pytest.fixture
def train(example, folder, tmp_path):
    """Train on sentences about animals, with these arguments besides; returns the folder of the encoder."""
    pairs = [
        {"anchor": f"{start} the {animal}{end}", "positive": f"the animal that {sound}{end}"}
        for animal, sound in zip(ANIMALS, SOUNDS, strict=True)
        for start in ("At dawn", "At night", "In the shade")
        for end in (".", " from a tree.")
    ]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)), encoding="utf-8")

    def run(name: str, *args: str) -> str:
        output = str(tmp_path / name)
        example.main(
            ["--model", folder, "--train_file", str(tmp_path / "pairs.jsonl"), "--pooling", "cls", "--use_cpu"]
            + ["--output_dir", output, "--learning_rate", "5e-3", "--per_device_train_batch_size", "16", *args]
            + ["--report_to", "none", "--disable_tqdm", "True", "--dataloader_pin_memory", "False"]
            + ["--save_strategy", "no"]
        )
        return output

    return run


@pytest.mark.slow
@pytest.mark.parametrize("mixer", ["selective"])
def test_the_example_learns_what_belongs_together(example, train):
    encoder = SentenceTransformer(train("encoder", "--max_steps", "40"), device="cpu")
    columns = {"anchor": [f"At night the {name}." for name in ANIMALS]}
    columns["positive"] = [f"the animal that {sound}." for sound in SOUNDS]
    assert example.share_found(encoder, columns) >= 0.8  # 0.1 by chance


@pytest.mark.slow
@pytest.mark.parametrize("mixer", ["selective"])
def test_few_texts_in_memory_are_the_same_training(train, folder):
    """A step of SGD, so that weights differ by as much as gradients do."""
    args = ("--max_steps", "1", "--optim", "sgd", "--learning_rate", "1")
    whole, few = (
        LionModel.from_pretrained(train(str(size), *args, *size), add_pooling_layer=False).state_dict()
        for size in ((), ("--mini_batch_size", "3"))
    )
    untrained = LionModel.from_pretrained(folder, add_pooling_layer=False).state_dict()
    distance = lambda weights: max((weights[name] - weight).abs().max() for name, weight in whole.items())
    assert distance(few) <= 1e-3 * distance(untrained)


def test_a_sentence_encoder_keeps_its_modules(example, folder, tmp_path):
    tokens = Transformer(folder, max_seq_length=20)
    modules = [tokens, Pooling(tokens.get_embedding_dimension(), pooling_mode="cls"), Normalize()]
    prompts = {"query": "query: ", "document": "passage: "}
    SentenceTransformer(modules=modules, prompts=prompts, device="cpu").save(str(tmp_path / "encoder"))
    pairs = [{"anchor": f"the {name}", "positive": f"it {sound}"} for name, sound in zip(ANIMALS, SOUNDS, strict=True)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)), encoding="utf-8")
    options = f"--model {tmp_path / 'encoder'} --train_file {tmp_path / 'pairs.jsonl'} --output_dir {tmp_path / 'out'}"
    options += " --max_steps 1 --use_cpu --save_strategy no --report_to none --disable_tqdm True"
    with pytest.raises(ValueError, match="--pooling is mean, but .* has cls: leave it out"):
        example.main([*options.split(), "--pooling", "mean"])
    example.main([*options.split(), "--dataloader_pin_memory", "False"])
    trained = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    assert [type(module) for module in trained] == [Transformer, Pooling, Normalize]
    assert trained[1].pooling_mode == "cls" and trained.prompts == prompts and trained.max_seq_length == 20


@pytest.mark.slow
def test_a_length_beyond_the_table_of_the_source_is_kept(example, tmp_path):
    """An encoder that became linear reads on, with the positions of its table again from the beginning."""
    plain = linear_checkpoint(tmp_path / "plain", "BertModel")
    animals = zip(ANIMALS, SOUNDS, strict=True)
    pairs = [{"anchor": f"the {name}", "positive": f"the animal that {sound}"} for name, sound in animals]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)), encoding="utf-8")
    options = f"--model {plain} --train_file {tmp_path / 'pairs.jsonl'} --output_dir {tmp_path / 'encoder'}"
    options += " --max_seq_length 10000 --max_steps 1 --use_cpu --save_strategy no --report_to none"
    encoder = example.main([*options.split(), "--disable_tqdm", "True", "--dataloader_pin_memory", "False"])
    loaded = SentenceTransformer(str(tmp_path / "encoder"), device="cpu")
    first, second = loaded.encode(LONG)
    assert loaded.max_seq_length == 10_000 and abs(first - second).max() > 1e-3
    assert abs(loaded.encode(LONG) - encoder.encode(LONG)).max() < 2e-6
