# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The checkpoints that come with the repository: they load as they are, offline, and know what is near to what."""

from pathlib import Path

import numpy as np
import pytest
import torch
from deploy_lion import ExportedModel
from hub_upload_lion.publish.clean_process import run_in_clean_process
from made_once import made_by_recipes
from retrieval_lion.documents import Document
from retrieval_lion.encoders import SentenceEncoder, load_encoder
from safetensors import safe_open
from sentence_transformers import SentenceTransformer
from torch.nn import functional as F
from transformers import AutoConfig, AutoModel, AutoTokenizer, BertConfig, BertModel

import modeling_lion


CHECKPOINTS = Path(__file__).parents[2] / "checkpoints"
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # of peft
FOLDER, ADAPTER = CHECKPOINTS / "lion-minilm-l6", CHECKPOINTS / "lion-minilm-l6-passages"


@pytest.fixture(scope="module", params=[FOLDER, ADAPTER], ids=lambda folder: folder.name)
def sentences(request) -> SentenceTransformer:
    return load_encoder(request.param).float()


def test_what_is_in_the_folder():
    """Half the space on disk, float32 in memory, no code, all layers linear beyond 512 tokens."""
    with safe_open(FOLDER / "model.safetensors", "pt") as weights:
        assert {weights.get_slice(name).get_dtype() for name in weights.keys()} == {"F16"}  # noqa: SIM118
    assert sum(file.stat().st_size for file in FOLDER.rglob("*")) < 50e6
    assert sum(file.stat().st_size for file in ADAPTER.rglob("*")) < 5e6
    assert not list(CHECKPOINTS.rglob("*.py"))
    config = AutoConfig.from_pretrained(FOLDER)
    assert config.lion_exact_length == 512 and config.lion_positions == "cyclic"
    assert len(config.lion_layers) == 6 and all(config.lion_layers.values())


def test_the_adapter_loads_by_transformers_and_sentence_transformers(monkeypatch):
    """The adapter names its encoder relative to the top of the repository; merged weights give the same."""
    monkeypatch.chdir(CHECKPOINTS.parent)
    text = "gunicorn: By default the port is 8000."
    encoder = SentenceTransformer("checkpoints/lion-minilm-l6-passages", device="cpu", local_files_only=True)
    vector = encoder.encode(text)
    np.testing.assert_allclose(load_encoder(ADAPTER).float().encode(text), vector, atol=1e-2)  # it may be in bfloat16
    model = AutoModel.from_pretrained("checkpoints/lion-minilm-l6-passages", add_pooling_layer=False).eval()
    tokenizer = AutoTokenizer.from_pretrained("checkpoints/lion-minilm-l6-passages")
    with torch.no_grad():
        states = model(**tokenizer(text, return_tensors="pt")).last_hidden_state
    np.testing.assert_allclose(F.normalize(states.mean(1)[0], dim=0), vector, atol=1e-5)
    base = SentenceTransformer(str(FOLDER), device="cpu").encode(text)
    assert 0.5 < float(base @ vector) < 0.98  # it is another encoder


@torch.no_grad()
def test_short_texts_are_those_of_bert():
    """Its weights are those of a BERT, which gives the same up to 512 tokens, to the bit."""
    model = AutoModel.from_pretrained(FOLDER).eval()
    weights = {name: x for name, x in model.state_dict().items() if ".lion." not in name}
    config = {name: x for name, x in model.config.to_dict().items() if not name.startswith(("lion_", "attn_"))}
    source = BertModel(BertConfig(**config | {"model_type": "bert"})).eval()
    source.load_state_dict(weights)
    ids = torch.randint(1000, 20_000, (1, 513), generator=torch.Generator().manual_seed(0))
    short = ids[:, :512]
    assert torch.equal(model(short).last_hidden_state, source(short).last_hidden_state)
    assert model(ids).last_hidden_state.isfinite().all()


def test_near_texts_are_near(sentences):
    model = sentences[0].auto_model
    assert type(model).__name__ == "LionBertModel"
    pairs = {
        "How do I read a zip file?": "Open an archive and extract its members.",
        "The cat sleeps on the sofa.": "A kitten is taking a nap on the couch.",
        "Return the largest element of a list.": "Compute the maximum of a sequence.",
        "The train to Paris leaves at noon.": "At twelve o'clock there is a train that goes to Paris.",
    }
    asked, answers = (sentences.encode(list(texts)) for texts in (pairs, pairs.values()))
    assert (sentences.similarity(asked, answers).argmax(1) == torch.arange(len(pairs))).all()
    torch.testing.assert_close(torch.from_numpy(asked).norm(dim=1), torch.ones(len(pairs)))


def test_passages_know_their_document():
    """The same sentences in documents with two names: queries that name the document find its passages."""
    sentence = "By default the port is 8000. Set the variable PORT to listen on another one, as root only below 1024."
    encoder = SentenceEncoder(load_encoder(ADAPTER), in_pieces=True)
    names = ["gunicorn", "redis"]
    documents = [Document(name, sentence, ((0, len(sentence)),)) for name in names]
    vectors = torch.cat(encoder.encode_documents(documents))
    queries = encoder.encode_queries([f"{name}: which port does it listen on?" for name in names])
    assert ((queries @ vectors.T).argmax(1) == torch.tensor([0, 1])).all()


@pytest.mark.slow
def test_no_text_is_too_long(sentences):
    """What comes late in a long text counts."""
    filler = "The weather was fine and everybody was content. " * 150
    ends = [filler + end for end in ("Rockets fly to the moon.", "Bread is baked in an oven.")]
    assert sentences.tokenize(ends)["input_ids"].shape[1] > 1200
    query = sentences.encode(["astronauts in space", "a recipe for a cake"])
    similarities = sentences.similarity(query, sentences.encode(ends))
    assert similarities[0, 0] > similarities[0, 1] and similarities[1, 1] > similarities[1, 0]


SENTENCES = ["By default the port is 8000.", "Logs go to the standard output, one line for each request."]
DOCUMENTS = {
    "gunicorn": f"{SENTENCES[0]}\n\n{SENTENCES[1] * 12}\n\nSet the variable PORT to listen on another one.",
    "redis": "Keys expire after a while, which EXPIRE sets in seconds.",
}


def answer_encodings(request: dict) -> dict:
    """Hidden states of rows, and vectors of texts by sentence-transformers, with the code beside the weights."""
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers import AutoModel

    model = AutoModel.from_pretrained(request["source"], trust_remote_code=True).eval()
    with torch.no_grad():
        states = [model(input_ids=ids).last_hidden_state for ids in request["rows"]]
    encoder = SentenceTransformer(request["source"], device="cpu", trust_remote_code=True)
    name = type(encoder[0].auto_model).__module__
    return {"states": states, "vectors": encoder.encode(request["texts"], convert_to_tensor=True), "module": name}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # exporters use what torch calls deprecated
def test_vectors_are_the_same_on_every_road(tmp_path_factory):
    """Texts, and passages in one pass: by transformers, sentence-transformers, a bundle without this package, ONNX."""
    folder = FOLDER
    tokenizer, texts = AutoTokenizer.from_pretrained(folder), [*DOCUMENTS.values(), *SENTENCES]
    graph, bundle = (made_by_recipes(name, tmp_path_factory) for name in ("my-graph", "my-bundle"))

    # The rows of documents whose passages have names, by the definition.
    spans = [modeling_lion.split_passages(text, 20, 200) for text in DOCUMENTS.values()]
    rows, of_passages = [], []
    for (name, text), found in zip(DOCUMENTS.items(), spans, strict=True):
        ids, borders = [tokenizer.cls_token_id], []
        for first, end in found:
            named = tokenizer(f"{name}: {text[first:end]}", add_special_tokens=False)["input_ids"]
            borders.append((len(ids), len(ids) + len(named)))
            ids += named
        rows.append(torch.tensor([[*ids, tokenizer.sep_token_id]]))
        of_passages.append(borders)
    rows += [torch.tensor([tokenizer(text)["input_ids"]]) for text in texts]
    of_passages += [[(0, row.shape[1])] for row in rows[len(DOCUMENTS) :]]
    assert len(of_passages[0]) > 4

    def means(states: list[torch.Tensor]) -> torch.Tensor:
        """Unit vectors, of the passages and then of the texts."""
        pairs = zip(states, of_passages, strict=True)
        return F.normalize(torch.stack([x[0, a:b].mean(0) for x, borders in pairs for a, b in borders]), dim=-1)

    @torch.no_grad()
    def by(model: torch.nn.Module) -> torch.Tensor:
        return means([model(input_ids=ids).last_hidden_state for ids in rows])

    truth = by(AutoModel.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval())
    naive = by(AutoModel.from_pretrained(folder, attn_implementation="eager").eval())
    tolerance = 2 * (naive - truth).abs().max().item()
    assert tolerance < 1e-5

    model = AutoModel.from_pretrained(folder).eval()
    other = run_in_clean_process(
        answer_encodings,
        {"source": str(bundle), "rows": rows, "texts": texts, "num_threads": torch.get_num_threads()},
        bundle,
    )
    assert other["module"].startswith("transformers_modules.")
    found = {
        "transformers": by(model),
        "a bundle without this package": means(other["states"]),
        "ONNX Runtime": by(ExportedModel(graph, threads=1)),
    }
    count = sum(map(len, spans))
    encoders = {
        "sentence-transformers": folder,
        "the bundle": bundle,
        "ONNX in sentence-transformers": graph,
    }
    of_texts = {"sentence-transformers without this package": other["vectors"]}
    for name, source in encoders.items():
        options = {"device": "cpu", "local_files_only": True, "trust_remote_code": source == graph}
        encoder = SentenceTransformer(str(source), **options).eval()
        of_texts[name] = encoder.encode(texts, convert_to_tensor=True)
        if name != "ONNX in sentence-transformers":  # `encode_passages` packs documents, which graphs cannot
            encoded = modeling_lion.encode_passages(encoder, list(DOCUMENTS.values()), spans, names=list(DOCUMENTS))
            found[f"encode_passages, {name}"] = torch.from_numpy(encoded.vectors)
    encoded = modeling_lion.encode_passages((model, tokenizer), list(DOCUMENTS.values()), spans, names=list(DOCUMENTS))
    found["encode_passages"] = F.normalize(torch.from_numpy(encoded.vectors), dim=-1)
    for name, vectors in found.items():
        np.testing.assert_allclose(vectors, truth[: len(vectors)], atol=tolerance, rtol=0, err_msg=name)
        assert len(vectors) in (len(truth), count)
    for name, vectors in of_texts.items():
        np.testing.assert_allclose(vectors, truth[count:], atol=tolerance, rtol=0, err_msg=name)
