# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""`lion check` finds what it is made for, in tiny models that have one mistake each, and nothing in those without."""

import json
from pathlib import Path

import pytest
import torch
from deploy_lion import cli
from deploy_lion.check import difference
from hub_checkpoints import text_checkpoint, text_tokenizer
from sentence_checkpoints import sentence_checkpoint
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    LlamaConfig,
    LlamaForCausalLM,
    ModernBertConfig,
    ModernBertModel,
    PreTrainedModel,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from modeling_lion.attention.lion_attention import lion_attention
from modeling_lion.mixers.linear import LinearMixer


SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
SIZES |= {"vocab_size": 90, "initializer_range": 0.3, "max_position_embeddings": 64, "pad_token_id": 0}


def saved(folder: Path, model: PreTrainedModel, **options) -> Path:
    model.save_pretrained(folder)
    text_tokenizer().save_pretrained(folder)
    settings = folder / "tokenizer_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"model_max_length": 64} | options))
    return folder


def bert(folder: Path, kind: type = BertModel, **options) -> Path:
    return saved(folder, kind(BertConfig(**SIZES)), **options)


def check(capsys, folder: Path, *options: str) -> tuple[int, dict[str, dict]]:
    """The exit status, and what was found, by the names of the checks."""
    code = cli.main(["check", str(folder), "--json", *options])
    found = json.loads(capsys.readouterr().out)
    assert found["holds"] is (code == 0)
    return code, {finding["check"]: finding for finding in found["checks"]}


def failed(found: dict[str, dict]) -> dict[str, str]:
    """The smallest input of each check that fails."""
    return {name: finding["smallest"] for name, finding in found.items() if finding["status"] == "fails"}


@pytest.mark.parametrize("kind", ["encoder", "sentence encoder", "classifier", "LION"])
def test_models_without_a_mistake(kind, tmp_path, capsys):
    kinds = {"classifier": BertForSequenceClassification}
    folder = bert(tmp_path / "model", kinds.get(kind, BertModel))
    if kind == "LION":
        folder = text_checkpoint(tmp_path / "lion", "LionModel", pooling="mean")
    if kind == "sentence encoder":
        prompts = {"query": "the lion ", "document": "a pride "}
        folder = sentence_checkpoint(tmp_path / "encoder", folder, Pooling(32), prompts=prompts)
    code, found = check(capsys, folder)
    assert code == 0, failed(found)
    assert found["long texts"]["detail"].startswith(f"cut at {128 if kind == 'LION' else 64} tokens without a warning")
    assert found["padded right"]["error"] < 1e-5
    assert found["kernels and dtypes" if kind == "LION" else "bfloat16"]["error"] > 1e-4
    assert ("prompts" in found) is (kind == "sentence encoder")
    if kind == "encoder":
        assert cli.main(["check", str(folder)]) == 0
        said = capsys.readouterr().out
        assert "All checks hold." in said and "padded right               holds" in said


def test_numbers_that_are_not_finite(tmp_path, capsys):
    """Also where the text alone gives them, to which others are compared. JSON has no name for them."""
    model = BertModel(BertConfig(**SIZES))
    model.encoder.layer[0].output.dense.bias.data[0] = torch.nan
    code = cli.main(["check", str(saved(tmp_path, model)), "--json", "--seconds", "3"])
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert code == 1 and not found["holds"]
    (padded,) = (x for x in found["checks"] if x["check"] == "padded right")
    assert padded["status"] == "fails" and padded["error"] is None and padded["smallest"]
    ones, with_nan = torch.ones(3), torch.tensor([1, torch.nan, 1])
    assert difference(ones, with_nan, 1e-6) == difference(with_nan, ones, 1e-6) == torch.inf


def test_a_mask_that_is_dropped(tmp_path, capsys):
    AttentionInterface.register("no_mask", sdpa_attention_forward)
    AttentionMaskInterface.register("no_mask", lambda *args, **kwargs: None)
    code, found = check(capsys, bert(tmp_path), "--attn_implementation", "no_mask")
    assert code == 1 and failed(found) == {"padded right": "3 tokens beside 8"}


def test_a_kernel_that_is_wrong(tmp_path, capsys, monkeypatch):
    """What `lion verify` finds is one row of a LION's."""
    folder = text_checkpoint(tmp_path, "LionModel", pooling="mean")

    def forgets_the_last_token(query, key, value, log_decay, **kwargs):
        key = key.clone()
        key[:, :, -1] = 0
        return lion_attention(query, key, value, log_decay, **kwargs)

    monkeypatch.setitem(LinearMixer.forms, "chunk", forgets_the_last_token)
    code, found = check(capsys, folder)
    assert code == 1 and failed(found) == {"kernels and dtypes": "chunk in float32, padding none"}
    assert {"bfloat16", "float16"}.isdisjoint(found)
    assert found["kernels and dtypes"]["detail"].startswith("The kernels do not agree with the float64 reference: ")


def test_a_window_that_is_off_by_one(tmp_path, capsys):
    """It reads 4 tokens on each side, and this one 5: 7 tokens are the first that are tried where that matters."""
    fields = {"local_attention": 8, "global_attn_every_n_layers": 2, "num_hidden_layers": 2}
    folder = saved(tmp_path, ModernBertModel(ModernBertConfig(**SIZES | fields)))

    def wider(module, query, key, value, attention_mask, **kwargs):
        if attention_mask is not None and kwargs.get("sliding_window") is not None:
            wide = attention_mask.clone()
            wide[..., 1:] |= attention_mask[..., :-1]
            wide[..., :-1] |= attention_mask[..., 1:]
            attention_mask = wide
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)

    AttentionInterface.register("wider", wider)
    AttentionMaskInterface.register("wider", ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
    code, found = check(capsys, folder, "--attn_implementation", "wider")
    assert code == 1 and failed(found)["wider as eager attention"] == "7 tokens"
    code, found = check(capsys, folder)
    assert code == 0, failed(found)


def test_positions_that_padding_shifts(tmp_path, capsys):
    code, found = check(capsys, bert(tmp_path / "left", padding_side="left"))
    assert code == 1 and failed(found) == {"padded left": "3 tokens beside 8"}
    _, found = check(capsys, bert(tmp_path / "right"))
    assert found["padded left"]["status"] == "note" and "pads right" in found["padded left"]["detail"]


def test_texts_that_are_longer_than_the_table(tmp_path, capsys):
    code, found = check(capsys, bert(tmp_path, model_max_length=100))
    assert code == 1 and failed(found)["padded right"] == "63 tokens" and failed(found)["long texts"] == "100 tokens"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_a_graph_that_bakes_its_length(tmp_path, capsys):
    folder = bert(tmp_path / "model")
    model = BertModel.from_pretrained(folder, attn_implementation="eager").eval()

    class States(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask):
            return self.model(input_ids, attention_mask).last_hidden_state

    (tmp_path / "graph").mkdir()
    model.config.save_pretrained(tmp_path / "graph")
    names = {"input_names": ["input_ids", "attention_mask"], "output_names": ["last_hidden_state"]}
    ones = torch.ones(1, 8, dtype=torch.int64)
    torch.onnx.export(States(), (ones, ones), tmp_path / "graph" / "model.onnx", dynamo=True, verbose=False, **names)
    capsys.readouterr()
    code, found = check(capsys, folder, "--graph", str(tmp_path / "graph"))
    assert code == 1 and failed(found)["the graph as torch"] == "3 tokens"
    assert "Expected: 8" in found["the graph as torch"]["detail"]
    assert failed(found)["the graph, padded right"] == "3 tokens"
    assert len(failed(found)) == 2


def test_a_missing_graph_is_refused_before_the_checks(tmp_path, capsys):
    (tmp_path / "model.onnx").touch()
    assert cli.main(["check", str(tmp_path)]) == 1
    assert f"is a graph alone: give the folder of its model, and --graph {tmp_path}" in capsys.readouterr().err
    assert cli.main(["check", str(tmp_path), "--graph", "nowhere"]) == 1
    assert "--graph nowhere is no folder with a graph: make it with `lion export`" in capsys.readouterr().err


def test_what_cannot_be_checked_is_refused_by_name(tmp_path, capsys):
    tokenizer = text_tokenizer()
    static = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=8)], device="cpu")
    static.save_pretrained(str(tmp_path / "static"))
    bert(tmp_path / "short")
    bert(tmp_path / "random").joinpath("config.json").write_text(
        json.dumps(BertConfig(**SIZES, architectures=["BertForSequenceClassification"]).to_diff_dict())
    )
    # A reranker that is a causal language model: its weights have no layer of classes.
    reranker = saved(tmp_path / "reranker", LlamaForCausalLM(LlamaConfig(**SIZES)))
    (reranker / "modules.json").write_text("[]")
    (reranker / "config_sentence_transformers.json").write_text('{"model_type": "CrossEncoder"}')
    tokenizer.model_max_length = 2
    tokenizer.save_pretrained(tmp_path / "short")
    for name, message in (
        ("static", "static begins with StaticEmbedding, which is no transformer"),
        ("random", "random are not complete: classifier.bias, classifier.weight would be random."),
        ("reranker", "reranker are not complete: score.weight would be random."),
        ("short", "short reads at most 2 tokens, and a text of one word has 3: raise `model_max_length`"),
    ):
        assert cli.main(["check", str(tmp_path / name)]) == 1
        assert message in capsys.readouterr().err


def test_weights_that_are_cut_short_are_no_traceback(tmp_path, capsys):
    weights = bert(tmp_path / "model") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    assert cli.main(["check", str(tmp_path / "model")]) == 1
    assert capsys.readouterr().err.startswith("lion check: ")
