# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Everything that can be served gives the numbers of its own library; what cannot is refused at the start."""

import json

import numpy as np
import pytest
import torch
from deploy_lion.export.export_checkpoint import export_checkpoint
from deploy_lion.serve import loading
from deploy_lion.serve.app import make_app
from deploy_lion.serve.loading import Files, load_engine
from hub_checkpoints import image_checkpoint, linear_checkpoint, text_checkpoint, text_tokenizer
from hub_upload_lion import create_bundle
from hub_upload_lion.sentence_modules import MODULES
from peft import LoraConfig, PeftModel, get_peft_model
from sentence_checkpoints import sentence_checkpoint
from sentence_transformers import CrossEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.base.modules import Dense
from sentence_transformers.cross_encoder.modules import LogitScore
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, StaticEmbedding, Transformer
from sentence_transformers.sparse_encoder.modules import SpladePooling
from starlette.testclient import TestClient
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertModel,
    ModernBertConfig,
    ModernBertForSequenceClassification,
    ModernBertModel,
    Qwen3Config,
    Qwen3ForCausalLM,
    pipeline,
)


# PEFT asks models whether they checkpoint activations, by the name of transformers 5.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated")
TEXTS = ["The lion sleeps.", "A lion roars at night. " * 15, "It hunts", "At dawn, with its pride. " * 3]
PAIRS = [("The lion?", text) for text in TEXTS]
SMALL = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 48}
SMALL |= {"vocab_size": 80, "max_position_embeddings": 256, "initializer_range": 0.2}
LABELS = {0: "cat", 1: "lion", 2: "zebra"}


def saved(model, folder):
    """A model of transformers with a tokenizer."""
    model.save_pretrained(folder)
    tokenizer = text_tokenizer()
    tokenizer.model_max_length = 10**9
    tokenizer.save_pretrained(folder)
    return folder


def plain_bert(folder):
    return saved(BertModel(BertConfig(**SMALL)), folder)


def plain_modernbert(folder):
    special = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
    return saved(ModernBertModel(ModernBertConfig(**SMALL, **special, local_attention=8)), folder)


def lion_encoder(folder, **fields):
    torch.manual_seed(0)
    model = Transformer(str(text_checkpoint(folder / "model", "LionModel", **fields)), max_seq_length=100_000)
    return sentence_checkpoint(folder / "encoder", model, Pooling(32, "cls"), Normalize())


ENCODERS = {
    "a LION": lambda folder: text_checkpoint(folder / "x", "LionModel", pooling="mean"),
    "a masked LION": lambda folder: text_checkpoint(folder / "x"),
    "an encoder around a LION": lion_encoder,
    "a linear BERT": lambda folder: linear_checkpoint(folder / "x", "BertModel"),
    "a BERT": lambda folder: plain_bert(folder / "x"),
    "a ModernBERT": lambda folder: plain_modernbert(folder / "x"),
}


def embed(engine, texts, **fields):
    with TestClient(make_app(engine, "model")) as client:
        answer = client.post("/embed", json={"inputs": texts, **fields})
    assert answer.status_code == 200, answer.text
    return np.array(answer.json())


@pytest.mark.parametrize("kind", ENCODERS)
def test_encoders(kind, tmp_path):
    torch.manual_seed(0)
    folder = str(ENCODERS[kind](tmp_path))
    reference = SentenceTransformer(folder, device="cpu")
    if kind == "a linear BERT":
        reference.max_seq_length = 1000  # its table of positions has 64 and is read again
    expected = reference.encode(TEXTS, normalize_embeddings=True)
    np.testing.assert_allclose(embed(load_engine(folder), TEXTS), expected, atol=1e-5)


@pytest.mark.parametrize("modules", [[], [Normalize()]], ids=["plain", "normalized"])
def test_a_saved_truncate_dim(modules, tmp_path):
    encoder = SentenceTransformer(
        modules=[Transformer(str(plain_bert(tmp_path / "x"))), Pooling(32), *modules], device="cpu", truncate_dim=8
    )
    encoder.save(str(tmp_path / "encoder"))
    expected = encoder.encode(TEXTS, normalize_embeddings=True)
    assert expected.shape == (4, 8)
    np.testing.assert_allclose(embed(load_engine(str(tmp_path / "encoder")), TEXTS), expected, atol=1e-5)


def test_windows_in_linear_time(tmp_path):
    folder = str(plain_modernbert(tmp_path / "x"))
    engine = load_engine(folder, attn_implementation="lion_local")
    assert engine.model[0].model.config._attn_implementation == "lion_local"
    expected = SentenceTransformer(folder, device="cpu").encode(TEXTS, normalize_embeddings=True)
    np.testing.assert_allclose(embed(engine, TEXTS), expected, atol=1e-5)


def test_a_choice_of_dtype(tmp_path):
    engine = load_engine(str(plain_bert(tmp_path / "x")), dtype="bfloat16")
    assert engine.model[0].model.dtype == torch.bfloat16 and engine.about.dtype == "bfloat16"
    assert embed(engine, TEXTS).shape == (4, 32)


@pytest.mark.parametrize("task", ["FEATURE_EXTRACTION", None])
@pytest.mark.parametrize("base", ["an encoder around a LION", "a BERT"])
def test_adapters_on_encoders(base, task, tmp_path):
    """The pooling is that of the base."""
    torch.manual_seed(0)
    folder = str(ENCODERS[base](tmp_path))
    reference = SentenceTransformer(folder, device="cpu")
    config = LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False, task_type=task)
    get_peft_model(AutoModel.from_pretrained(folder), config).save_pretrained(tmp_path / "adapter")
    before = reference.encode(TEXTS, normalize_embeddings=True)
    reference[0].model = PeftModel.from_pretrained(reference[0].model, str(tmp_path / "adapter"))
    expected = reference.encode(TEXTS, normalize_embeddings=True)
    assert abs(expected - before).max() > 1e-2
    np.testing.assert_allclose(embed(load_engine(str(tmp_path / "adapter")), TEXTS), expected, atol=1e-5)


def test_an_adapter_in_a_folder_beside_its_base(tmp_path, monkeypatch):
    """It names the base as seen from a folder above it, and has modules and prompts of its own."""
    torch.manual_seed(0)
    base = plain_bert(tmp_path / "checkpoints" / "base")
    encoder = SentenceTransformer(str(base), device="cpu")
    config = LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False, task_type="FEATURE_EXTRACTION")
    encoder.add_adapter(config)
    modules = [encoder[0], Pooling(32, "cls"), Normalize()]
    adapted = SentenceTransformer(modules=modules, device="cpu", prompts={"query": "The lion: "})
    adapted.max_seq_length = 20
    adapter = tmp_path / "checkpoints" / "adapter"
    adapted.save(str(adapter))
    path = adapter / "adapter_config.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps(settings | {"base_model_name_or_path": "checkpoints/base"}))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    engine = load_engine(str(adapter))
    expected = adapted.encode(TEXTS, normalize_embeddings=True)
    np.testing.assert_allclose(embed(engine, TEXTS, truncate=True), expected, atol=1e-5)
    assert engine.about.max_input_tokens == 20 and engine.about.prompts["query"] == "The lion: "
    for missing in ("checkpoints/other", str(tmp_path / "other"), "../other", "a/b/c"):
        path.write_text(json.dumps(settings | {"base_model_name_or_path": missing}))
        refuse(adapter, f"`base_model_name_or_path` '{missing}' is no folder")


def classifiers(folder):
    yield "LION", text_checkpoint(folder / "lion", "LionForSequenceClassification", id2label=LABELS, pooling="mean")
    special = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
    config = ModernBertConfig(**SMALL, **special, id2label=LABELS)
    yield "ModernBERT", saved(ModernBertForSequenceClassification(config), folder / "modernbert")
    yield "linear", linear_checkpoint(folder / "linear", "BertForSequenceClassification", id2label=LABELS)


@pytest.mark.parametrize("kind", ["LION", "ModernBERT", "linear"])
def test_classifiers(kind, tmp_path):
    """The scores of transformers' pipeline, of texts and pairs, in both formats."""
    torch.manual_seed(0)
    folder = str(dict(classifiers(tmp_path))[kind])
    expected = pipeline("text-classification", folder, device="cpu", top_k=None)(TEXTS)
    with TestClient(make_app(load_engine(folder), "model")) as client:
        for body in ({"inputs": [[text] for text in TEXTS]}, {"inputs": [[text] for text in TEXTS], "truncate": None}):
            found = client.post("/predict", json=body).json()
            assert [[x["label"] for x in row] for row in found] == [[x["label"] for x in row] for row in expected]
            scores = [np.array([[x["score"] for x in row] for row in rows]) for rows in (found, expected)]
            np.testing.assert_allclose(*scores, atol=1e-5)
        assert client.post("/", json={"inputs": TEXTS[1]}).json() == [found[1]]
        rows = client.post("/classify", json={"input": TEXTS}).json()["data"]
        assert [row["label"] for row in rows] == [row[0]["label"] for row in expected]
        for row, scores in zip(rows, expected, strict=True):
            by_label = {x["label"]: x["score"] for x in scores}
            np.testing.assert_allclose(row["probs"], [by_label[x] for x in LABELS.values()], atol=1e-5)
        model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
        with torch.no_grad():
            logits = model(**AutoTokenizer.from_pretrained(folder)(*PAIRS[0], return_tensors="pt")).logits[0]
        raw = {
            x["label"]: x["score"]
            for x in client.post("/predict", json={"inputs": PAIRS[0], "raw_scores": True}).json()
        }
        np.testing.assert_allclose([raw[x] for x in LABELS.values()], logits.numpy(), atol=1e-5)
        assert client.get("/info").json()["model_type"]["classifier"]["id2label"] == {
            "0": "cat",
            "1": "lion",
            "2": "zebra",
        }
        assert client.post("/embed", json={"inputs": "a"}).status_code == 404
        assert client.post("/predict", json={"inputs": [["a", "b", "c"]]}).status_code == 422


def test_several_labels_at_once(tmp_path):
    folder = text_checkpoint(
        tmp_path, "LionForSequenceClassification", id2label=LABELS, problem_type="multi_label_classification"
    )
    expected = pipeline("text-classification", str(folder), device="cpu", top_k=None)([TEXTS[0]])[0]
    with TestClient(make_app(load_engine(str(folder)), "model")) as client:
        found = client.post("/predict", json={"inputs": TEXTS[0]}).json()
    assert [x["label"] for x in found] == [x["label"] for x in expected]
    np.testing.assert_allclose([x["score"] for x in found], [x["score"] for x in expected], atol=1e-5)


@pytest.mark.parametrize("base", ["LionForSequenceClassification", "LionModel"])
def test_adapters_on_classifiers(base, tmp_path):
    """Also where only the adapter has classes."""
    folder = text_checkpoint(tmp_path / "base", base, id2label=LABELS)
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    config = LoraConfig(
        r=2, target_modules=["q_proj", "o_proj", "up_proj"], init_lora_weights=False, task_type="SEQ_CLS"
    )
    model = get_peft_model(model, config).eval()
    model.save_pretrained(tmp_path / "adapter")
    with torch.no_grad():
        logits = model(**AutoTokenizer.from_pretrained(folder)(TEXTS[0], return_tensors="pt")).logits[0]
    with TestClient(make_app(load_engine(str(tmp_path / "adapter")), "model")) as client:
        found = client.post("/predict", json={"inputs": TEXTS[0], "raw_scores": True}).json()
    np.testing.assert_allclose([x["score"] for x in found], sorted(logits.tolist(), reverse=True), atol=1e-5)


@pytest.fixture(scope="module")
def reranker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reranker")
    text_checkpoint(folder / "model", "LionForSequenceClassification", num_labels=1, pooling="mean")
    CrossEncoder(str(folder / "model"), device="cpu").save_pretrained(str(folder / "cross"))
    return folder


@pytest.mark.parametrize("name", ["model", "cross"])
def test_rerankers(name, reranker):
    """The scores of `CrossEncoder.predict`, in the formats of TEI and of Cohere."""
    expected = CrossEncoder(str(reranker / name), device="cpu").predict(PAIRS)
    order = np.argsort(-expected).tolist()
    with TestClient(make_app(load_engine(str(reranker / name)), "model")) as client:
        body = {"query": "The lion?", "texts": TEXTS}
        found = client.post("/rerank", json=body | {"return_text": True}).json()
        assert [x["index"] for x in found] == order and [x["text"] for x in found] == [TEXTS[n] for n in order]
        np.testing.assert_allclose([x["score"] for x in found], expected[order], atol=1e-5)
        raw = client.post("/", json=body | {"raw_scores": True}).json()
        np.testing.assert_allclose([1 / (1 + np.exp(-x["score"])) for x in raw], expected[order], atol=1e-5)
        documents = [TEXTS[0], {"text": TEXTS[1]}, *TEXTS[2:]]
        body = {"query": "The lion?", "documents": documents, "top_n": 2, "return_documents": True, "model": "model"}
        results = client.post("/v1/rerank", json=body).json()["results"]
        assert [x["index"] for x in results] == order[:2]
        assert [x["document"]["text"] for x in results] == [TEXTS[n] for n in order[:2]]
        np.testing.assert_allclose([x["relevance_score"] for x in results], expected[order[:2]], atol=1e-5)
        assert client.post("/rerank", json={"query": "a"}).status_code == 422
        assert client.post("/rerank", json={"query": "a", "documents": [{"title": "b"}]}).status_code == 422
        answer = client.post("/rerank", json={"query": " ", "texts": ["a"]})
        assert answer.status_code == 400 and answer.json()["error"]["message"] == "`query` is empty; give a text."
        assert client.post("/embed", json={"inputs": "a"}).status_code == 404


def scores_of_reranker(engine):
    with TestClient(make_app(engine, "model")) as client:
        found = client.post("/rerank", json={"query": "The lion?", "texts": TEXTS}).json()
    return [x["score"] for x in sorted(found, key=lambda x: x["index"])]


def test_a_reranker_with_a_default_prompt_and_an_activation(reranker, tmp_path):
    """As `CrossEncoder.predict` takes them from the files."""
    options = {"prompts": {"q": "It hunts at night. "}, "default_prompt_name": "q", "activation_fn": torch.nn.Tanh()}
    cross = CrossEncoder(str(reranker / "model"), device="cpu", **options)
    cross.save_pretrained(str(tmp_path))
    engine = load_engine(str(tmp_path))
    np.testing.assert_allclose(scores_of_reranker(engine), cross.predict(PAIRS), atol=1e-5)
    assert abs(cross.predict(PAIRS) - cross.predict(PAIRS, prompt="")).max() > 1e-3
    with TestClient(make_app(load_engine(str(tmp_path), task="classify"), "model")) as client:
        body = {"inputs": [PAIRS[0], [TEXTS[0]]], "raw_scores": True}
        found = [row[0]["score"] for row in client.post("/predict", json=body).json()]
        found += [row["probs"][0] for row in client.post("/classify", json={"input": TEXTS}).json()["data"]]
    raw = {"activation_fn": torch.nn.Identity()}
    expected = [cross.predict(x, **raw) for x in (PAIRS[0], TEXTS[0])]
    expected += [cross.predict(x, activation_fn=torch.nn.Sigmoid()) for x in TEXTS]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_chosen_activation_of_several_classes(tmp_path):
    text_checkpoint(tmp_path / "model", "LionForSequenceClassification", id2label=LABELS)
    cross = CrossEncoder(str(tmp_path / "model"), device="cpu", activation_fn=torch.nn.Sigmoid())
    cross.save_pretrained(str(tmp_path / "cross"))
    with TestClient(make_app(load_engine(str(tmp_path / "cross")), "model")) as client:
        (found,) = client.post("/classify", json={"input": TEXTS[0]}).json()["data"]
    np.testing.assert_allclose(found["probs"], cross.predict(TEXTS[0]), atol=1e-5)


def test_a_reranker_whose_score_is_a_layer_of_its_own(tmp_path):
    """The configuration of its model has two labels by default."""
    score = Dense(32, 1, activation_function=torch.nn.Identity(), module_output_name="scores")
    cross = CrossEncoder(modules=[Transformer(str(plain_bert(tmp_path / "x"))), Pooling(32), score], device="cpu")
    cross.save_pretrained(str(tmp_path / "cross"))
    engine = load_engine(str(tmp_path / "cross"))
    assert engine.about.task == "rerank" and engine.about.labels == ["LABEL_0"]
    np.testing.assert_allclose(scores_of_reranker(engine), cross.predict(PAIRS), atol=1e-5)


def test_one_class_may_be_a_classifier(reranker):
    with TestClient(make_app(load_engine(str(reranker / "model"), task="classify"), "model")) as client:
        (found,) = client.post("/predict", json={"inputs": TEXTS[0]}).json()
    assert 0 < found["score"] < 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "to"), [("encoder", "onnx"), ("encoder", "openvino"), ("plain", "onnx"), ("classifier", "openvino")]
)
def test_graphs(kind, to, tmp_path, traced_once):
    torch.manual_seed(0)
    makers = {
        "encoder": lambda: lion_encoder(tmp_path),
        "plain": lambda: linear_checkpoint(tmp_path / "x", "BertModel"),
        "classifier": lambda: text_checkpoint(
            tmp_path / "x", "LionForSequenceClassification", id2label=LABELS, mixer_type="softmax"
        ),
    }
    source, graph = makers[kind](), tmp_path / "graph"
    export_checkpoint(source, graph, to, lengths=(16,))
    engine = load_engine(str(graph))
    if kind == "classifier":
        expected = pipeline("text-classification", str(source), device="cpu", top_k=None)([TEXTS[0]])[0]
        with TestClient(make_app(engine, "model")) as client:
            found = client.post("/predict", json={"inputs": TEXTS[0]}).json()
        np.testing.assert_allclose([x["score"] for x in found], [x["score"] for x in expected], atol=1e-5)
    else:
        reference = SentenceTransformer(str(source), device="cpu")
        if kind == "plain":
            reference.max_seq_length = 1000  # its table of positions has 64 and is read again
        expected = reference.encode(TEXTS, normalize_embeddings=True)
        np.testing.assert_allclose(embed(engine, TEXTS, truncate=True), expected, atol=1e-4)
        engine.resume()  # after the server has ended
        rows = engine.tokenize(TEXTS, "right")
        np.testing.assert_allclose(np.stack(engine.twin().compute(rows)), np.stack(engine.compute(rows)), atol=1e-5)
    with pytest.raises(ValueError, match="--attn_implementation and --dtype are choices of `lion export`"):
        load_engine(str(graph), dtype="bfloat16")


@pytest.mark.parametrize("exported", loading.EXPORTED)
def test_code_in_the_folder_of_a_graph_is_not_run(tmp_path, exported):
    """Neither that of its config.json, nor a module of its own, with or without modules.json."""
    folder = lion_encoder(tmp_path)
    (folder / "model.onnx").touch()
    code = f"open({str(tmp_path / 'ran')!r}, 'w')\nfrom transformers import BertConfig\n"
    (folder / "own.py").write_text(code + "class Own(BertConfig):\n    model_type = 'own'\n")
    modules = json.loads((folder / MODULES).read_text())
    modules[0]["type"] = exported
    own = [modules[0] | {"type": "own.Own"}, *modules[1:]]
    (folder / MODULES).write_text(json.dumps(own))
    refuse(folder, "'own.Own' in modules.json is code of its own")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Own"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / MODULES).write_text(json.dumps(modules))
    refuse(folder, "trust_remote_code=True")
    (folder / MODULES).unlink()
    refuse(folder, "trust_remote_code=True")
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_a_graph_of_a_reranker(tmp_path):
    """With the prompts and the activation of its files."""
    fields = {"num_labels": 1, "pooling": "mean", "mixer_type": "softmax"}
    text_checkpoint(tmp_path / "model", "LionForSequenceClassification", **fields)
    reranker = CrossEncoder(
        str(tmp_path / "model"), device="cpu", activation_fn=torch.nn.Identity(), prompts={"query": "The lion: "}
    )
    reranker.save_pretrained(str(tmp_path / "cross"))
    export_checkpoint(tmp_path / "cross", tmp_path / "graph", "onnx", lengths=(16,))
    engine = load_engine(str(tmp_path / "graph"))
    assert isinstance(engine.about.activation, torch.nn.Identity) and engine.model.prompts["query"] == "The lion: "
    np.testing.assert_allclose(engine.model.predict(PAIRS), reranker.predict(PAIRS), atol=1e-4)


@pytest.mark.slow
def test_a_bundle(tmp_path, monkeypatch):
    source = lion_encoder(tmp_path)
    # It compares the embeddings with another process's, in test_sentence_modules.py.
    monkeypatch.setattr("hub_upload_lion.publish.bundle.check_embeddings", lambda *args: None)
    create_bundle(source, tmp_path / "bundle")
    expected = SentenceTransformer(str(source), device="cpu").encode(TEXTS, normalize_embeddings=True)
    engine = load_engine(str(tmp_path / "bundle"), trust_remote_code=True)
    np.testing.assert_allclose(embed(engine, TEXTS), expected, atol=1e-5)


def test_what_is_said_of_a_model(tmp_path):
    for name, fields, own in (("decays", {}, None), ("table", {"position_embedding_type": "absolute"}, 128)):
        engine = load_engine(str(lion_encoder(tmp_path / name, **fields)))
        with TestClient(make_app(engine, name)) as client:
            about = client.get("/info").json()
        assert about["max_input_length"] == (own or 32768) and about["model_max_length"] == (own or 100_000)
        assert about["model_type"] == {"embedding": {"pooling": "cls"}} and about["embedding_size"] == 32


def refuse(folder, match, **options):
    with pytest.raises((ValueError, OSError), match=match):
        load_engine(str(folder), **options)


def test_the_name_of_a_family_is_no_head(tmp_path):
    for name, task in (("RoFormerModel", "embed"), ("RoFormerForSequenceClassification", "classify")):
        (tmp_path / "config.json").write_text(json.dumps({"architectures": [name]}))
        assert Files(str(tmp_path)).task() == task


def test_what_cannot_be_served_is_refused(tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    refuse(tmp_path / "empty", "has neither config.json nor modules.json")
    refuse(image_checkpoint(tmp_path / "image"), "reads images")
    refuse(text_checkpoint(tmp_path / "tokens", "LionForTokenClassification"), "is a LionForTokenClassification")
    encoder = text_checkpoint(tmp_path / "encoder", "LionModel")
    refuse(encoder, "is a model to embed: --task rerank", task="rerank")
    refuse(encoder, "--max_input_tokens is 1000: this model reads 128 tokens", max_input_tokens=1000)
    classes = text_checkpoint(tmp_path / "classes", "LionForSequenceClassification", id2label=LABELS)
    refuse(classes, "the model has 3 classes, and a reranker has one", task="rerank")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "config.json").write_text("{")
    refuse(tmp_path / "damaged", "config.json is damaged")
    SentenceTransformer(modules=[StaticEmbedding(text_tokenizer().backend_tokenizer, embedding_dim=8)]).save(
        str(tmp_path / "static")
    )
    refuse(tmp_path / "static", "begin with a Transformer")
    masked = Transformer(str(text_checkpoint(tmp_path / "masked")), transformer_task="fill-mask")
    SparseEncoder(modules=[masked, SpladePooling()], device="cpu").save(str(tmp_path / "sparse"))
    refuse(tmp_path / "sparse", "is a SparseEncoder")
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"task_type": "CAUSAL_LM"}))
    refuse(adapter, "adapter for `task_type` 'CAUSAL_LM'")


@pytest.mark.parametrize(
    "template", [None, "{% for m in messages %}lion {{ m['role'] }}: {{ m['content'] }}{% endfor %}"]
)
def test_causal_rerankers_are_refused(template, tmp_path):
    """Their words would be read without the template, and the scores are of another head."""
    sizes = {name: x for name, x in SMALL.items() if name != "num_hidden_layers"}
    config = Qwen3Config(**sizes, num_hidden_layers=1, num_key_value_heads=2, head_dim=16)
    saved(Qwen3ForCausalLM(config), tmp_path / "x")
    tokenizer = text_tokenizer()
    tokenizer.chat_template = template
    tokenizer.save_pretrained(tmp_path / "x")
    model = Transformer(str(tmp_path / "x"), transformer_task="text-generation")
    CrossEncoder(modules=[model, LogitScore(5, 6)], device="cpu").save_pretrained(str(tmp_path / "cross"))
    refuse(tmp_path / "cross", "chat template for its texts, or a causal language model")


def test_pairs_that_are_read_in_another_way_are_refused(reranker, tmp_path):
    """The server is compared with `CrossEncoder.predict`, not with its own tokens."""
    settings = {"text": {"add_special_tokens": False}}
    options = {"transformer_task": "sequence-classification", "processing_kwargs": settings}
    model = Transformer(str(reranker / "model"), **options)
    CrossEncoder(modules=[model], device="cpu").save_pretrained(str(tmp_path))
    refuse(tmp_path, "from the same texts one by one")


def test_a_wrong_number_of_scores_is_refused(reranker, monkeypatch):
    monkeypatch.setattr(CrossEncoder, "num_labels", 2)
    refuse(reranker / "cross", "cannot be served correctly")


def test_padding_that_changes_vectors_is_refused(tmp_path, monkeypatch):
    """As of models that do not look at the mask."""
    folder = plain_bert(tmp_path / "x")
    forward = BertModel.forward
    without = lambda self, input_ids, attention_mask=None, **inputs: forward(self, input_ids, **inputs)
    monkeypatch.setattr(BertModel, "forward", without)
    refuse(folder, "padding changes what this model computes")
    monkeypatch.setattr(loading, "TOLERANCE", 10.0)
    load_engine(str(folder))
