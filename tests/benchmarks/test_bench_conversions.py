# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The benchmark of conversions trains and measures each way, and changes only what its name says."""

from argparse import Namespace
from importlib import import_module

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast


WORDS = ["[PAD]", "[UNK]", "this", "document", "is", "about", "lions", "owls", "and", "wolves", "night", "day", "hunt"]
LAYERS = 6


@pytest.fixture
def bench():
    return import_module("bench_conversions")


@pytest.fixture
def teacher(tmp_path) -> str:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": LAYERS, "num_attention_heads": 2, "intermediate_size": 64}
    config = BertConfig(vocab_size=len(WORDS), max_position_embeddings=512, initializer_range=0.3, **sizes)
    BertModel(config).save_pretrained(tmp_path / "teacher")
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")
    tokenizer.save_pretrained(tmp_path / "teacher")
    return str(tmp_path / "teacher")


def sentences(count: int, seed: int) -> list[str]:
    generator = torch.Generator().manual_seed(seed)
    return [" ".join(WORDS[n] for n in torch.randint(2, len(WORDS), (40,), generator=generator)) for _ in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "way",
    ["as the checkpoint", "delta over all tokens", "layers 5 and 6 softmax", "twice the features"]
    + ["features of all heads", "windows of 1, 1, 1, then 256"],
)
def test_a_way_trains_and_is_measured(bench, teacher, tmp_path, way):
    (tmp_path / "train.txt").write_text("\n".join(sentences(60, 0)), encoding="utf-8")
    pod = tmp_path / "pod"
    pod.mkdir()
    for n in range(3):
        text = "\n\n".join(sentences(100, n + 1))
        (pod / f"perl{n}.pod").write_text(f"=head1 NAME\n\nperl{n} - a guide\n\n=head1 TEXT\n\n{text}\n", "utf-8")
    row = bench.measure(way, 0, teacher, Namespace(quick=True, steps=2, seeds=[0], data_dir=tmp_path, pod=pod))
    assert row["new_weights"] > 0 and row["time_2048"] > 0
    assert all(0 <= row[f"{what}_{n}"] <= 1 for what in ("neighbour_overlap", "names_found") for n in bench.JUDGED)


def test_changes_begin_as_their_names_say(bench, teacher):
    def output(way) -> torch.Tensor:
        model = bench.make_linear(way, teacher)
        model.config.lion_exact_length = 0
        with torch.no_grad():
            return model(input_ids=torch.arange(600)[None] % len(WORDS)).last_hidden_state

    plain = output(bench.Way())
    torch.testing.assert_close(output(bench.WAYS["features of all heads"]), plain)
    same = bench.Way(change=bench.partial(bench.set_windows, (bench.WINDOW,) * LAYERS))
    assert torch.equal(output(same), plain)
    for name in ("twice the features", "windows of 1, 1, 1, then 256", "decays of the keys"):
        assert not torch.allclose(output(bench.WAYS[name]), plain, atol=1e-4), name
