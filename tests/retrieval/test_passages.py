# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Passages of documents: where they are, and vectors of them from one pass over the document."""

import re

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from retrieval_lion import passages
from retrieval_lion.passages import LONGEST, PACKED_TOKENS, SHORTEST
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from transformers import AutoConfig, AutoModel, BertConfig, BertModel

from modeling_lion import (
    LionConfig,
    LionForMaskedLM,
    LionModel,
    LionTokenizer,
    encode_passages,
    linearize,
    split_passages,
)
from modeling_lion.sequence import segments


DOCUMENTS = [
    "The lion sleeps in the sun.\n\nIt roars at night, and hunts before the sun rises.",
    "An owl.",
    "Wolves hunt together. " * 60,
    "A bear, alone, sleeps all winter long in a cave.",
]
NAMES = ["lion", "the owl", "wolves", "bear"]


@pytest.fixture(scope="module")
def tokenizer():
    return LionTokenizer.train_from_iterator([*DOCUMENTS, *NAMES, ":"], vocab_size=150)


def make_model(tokenizer, **fields) -> LionModel:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 48}
    return LionModel(LionConfig(vocab_size=len(tokenizer), **sizes, **fields), add_pooling_layer=False).eval()


@torch.no_grad()
def mean_of_tokens(model, tokenizer, text: str, span: tuple[int, int]) -> np.ndarray:
    """The definition: the mean over the tokens of a span, after one pass over the text in float64."""
    words = tokenizer(text, return_tensors="pt", return_offsets_mapping=True)
    (states,) = model.double()(input_ids=words["input_ids"]).last_hidden_state
    model.float()
    first, end = words["offset_mapping"][0].T
    return states[(first < span[1]) & (end > span[0])].mean(0).numpy()


FIELDS = {
    "recommended": {},
    "windows": {
        "layer_types": ["linear_attention", "sliding_attention"],
        "sliding_window": 4,
        "position_embedding_type": "cyclic",
    },
    "hybrid": {"layer_types": ["linear_attention", "full_attention"]},
    "one key head": {"num_key_heads": 1},
    "rotary": {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
}


@pytest.mark.parametrize("longest", [20, 16384])
@pytest.mark.parametrize("fields", FIELDS.values(), ids=FIELDS)
def test_vectors_are_means_of_one_pass(tokenizer, fields, longest, monkeypatch):
    """Also of documents that are read in segments."""
    monkeypatch.setattr(segments, "LONG_TEXT", longest)
    monkeypatch.setattr(segments, "TOKENS_IN_ONE_PASS", longest)
    model = make_model(tokenizer, **fields)
    spans = [split_passages(text, 10, 60) for text in DOCUMENTS]
    spans[0] += [(3, 40), (0, 27)]  # out of order, and over others
    encoded = encode_passages((model, tokenizer), DOCUMENTS, spans)
    assert encoded.vectors.dtype == np.float32 and encoded.vectors.flags.c_contiguous
    assert len(encoded) == sum(map(len, spans)) and encoded.spans.tolist() == [list(x) for y in spans for x in y]
    for vector, document, span in zip(encoded.vectors, encoded.documents, encoded.spans.tolist(), strict=True):
        expected = mean_of_tokens(model, tokenizer, DOCUMENTS[document], span)
        np.testing.assert_allclose(vector, expected, atol=5e-6, rtol=0)
    for vector, text in zip(encoded.document_vectors, DOCUMENTS, strict=True):
        states = model(**tokenizer(text, return_tensors="pt")).last_hidden_state.detach()
        np.testing.assert_allclose(vector, states[0].mean(0).numpy(), atol=5e-6, rtol=0)


@pytest.mark.parametrize("kind", ["bert", "roberta", "modernbert", "distilbert"])
def test_vectors_of_an_encoder_that_became_linear(tokenizer, kind):
    """Packed if it takes positions, which begin behind the padding of a RoBERTa; short documents are softmax."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 48}
    if kind == "distilbert":
        sizes = {"dim": 32, "n_heads": 4, "n_layers": 2, "hidden_dim": 48}
    fields = {
        "vocab_size": len(tokenizer),
        "pad_token_id": 0,
        "max_position_embeddings": 60,
        "initializer_range": 0.2,
    }
    model = AutoModel.from_config(AutoConfig.for_model(kind, **sizes, **fields)).eval()
    linearize(model, exact_length=24, window=8, positions=None if kind == "modernbert" else "cyclic")
    encoded = encode_passages((model, tokenizer), DOCUMENTS, lambda text: split_passages(text, 20, 60))
    assert len(encoded) > 20 and {int(x) for x in encoded.documents} == {0, 1, 2, 3}
    for vector, document, span in zip(encoded.vectors, encoded.documents, encoded.spans, strict=True):
        expected = mean_of_tokens(model, tokenizer, DOCUMENTS[document], span)
        assert abs(vector - expected).max() < 2e-5


def test_the_document_counts(tokenizer):
    model, passage = make_model(tokenizer), "It sleeps."
    first, second = (f"{name} {passage}" for name in ("The lion roars.", "An owl hunts."))
    spans = [[(len(text) - len(passage), len(text))] for text in (first, second)]
    vectors = encode_passages((model, tokenizer), [first, second], spans).vectors
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-3


def test_names_stand_in_front_of_each_passage(tokenizer):
    model = make_model(tokenizer)
    spans = [split_passages(text, 10, 60) for text in DOCUMENTS]
    actual = encode_passages((model, tokenizer), DOCUMENTS, spans, names=NAMES)
    named, spans_of_named = [], []
    for text, name, found in zip(DOCUMENTS, NAMES, spans, strict=True):
        parts, places = "", []
        for first, end in found:
            places.append((len(parts), len(parts) + len(name) + 2 + end - first))
            parts += f"{name}: {text[first:end]} "
        named.append(parts)
        spans_of_named.append(places)
    expected = encode_passages((model, tokenizer), named, spans_of_named)
    np.testing.assert_allclose(actual.vectors, expected.vectors, atol=5e-6, rtol=0)
    np.testing.assert_allclose(actual.document_vectors, expected.document_vectors, atol=5e-6, rtol=0)


TOUCHING = "It roars.An owl hunts.It sleeps."
TOUCHING_SPANS = [(0, 9), (9, 22), (22, 32)]


def test_passages_may_touch(tokenizer):
    """A token counts in one of two passages, also if one begins where the other ends."""
    model = make_model(tokenizer)
    encoded = encode_passages((model, tokenizer), [TOUCHING], [TOUCHING_SPANS])
    for vector, span in zip(encoded.vectors, TOUCHING_SPANS, strict=True):
        expected = mean_of_tokens(model, tokenizer, TOUCHING, span)
        np.testing.assert_allclose(vector, expected, atol=5e-6, rtol=0)
    # With a name in front of each, as if blanks were between them.
    named = encode_passages((model, tokenizer), [TOUCHING], [TOUCHING_SPANS], names=["lion"])
    apart, spans = TOUCHING.replace(".", ". "), [(0, 9), (10, 23), (24, 34)]
    expected = encode_passages((model, tokenizer), [apart], [spans], names=["lion"])
    np.testing.assert_array_equal(named.vectors, expected.vectors)


def test_documents_and_rows_that_just_fit(tokenizer, monkeypatch):
    model, calls = make_model(tokenizer), []
    model.register_forward_hook(lambda module, args, output: calls.append(output.last_hidden_state.shape[1]))
    length = len(tokenizer(TOUCHING)["input_ids"])

    def lengths(documents: int, longest: int) -> list[int]:
        calls.clear()
        encode_passages((model, tokenizer), [TOUCHING] * documents, max_document_tokens=longest)
        return calls

    monkeypatch.setattr(passages, "PACKED_TOKENS", 1)
    assert lengths(1, length) == [length] and len(lengths(1, length - 1)) == 2
    monkeypatch.setattr(passages, "PACKED_TOKENS", 3 * length)
    assert lengths(4, length) == [3 * length, length]
    # A part ends where a passage begins, if this is the last token that fits.
    (row,) = passages.token_rows(tokenizer, 0, TOUCHING, TOUCHING_SPANS, None, length)
    for longest in range(int(row.spans[1, 0]) + 1, length):
        first, *_ = passages.token_rows(tokenizer, 0, TOUCHING, TOUCHING_SPANS, None, longest)
        fitting = max(start for start, _ in row.spans.tolist() if start - 1 <= longest - 2)
        assert len(first.input_ids) == fitting + 1 and first.passages.tolist() == list(range(len(first.passages)))
        assert len(first.passages) == [start for start, _ in row.spans.tolist()].index(fitting)


def test_paragraphs_of_just_the_length():
    """The shortest are not joined, and the longest not cut."""
    words = "ab cd. " * 9
    short, long = words[:9] + "x", words[:29] + "x"
    assert split_passages(f"{short}\n\n{long}", 10, 30) == [(0, 10), (12, 42)]
    assert split_passages(f"{short[1:]}\n\n{long}", 10, 41) == [(0, 41)]
    assert [b - a <= 29 for a, b in split_passages(long, 10, 29)] == [True, True]


def test_parts_of_long_documents(tokenizer):
    """A part begins with a passage where one fits, and is read as if it were a document."""
    model, text = make_model(tokenizer), DOCUMENTS[2]
    spans = split_passages(text, 10, 60)
    length = len(tokenizer(text)["input_ids"])
    encoded = encode_passages((model, tokenizer), [text], [spans], max_document_tokens=length // 3)
    end = max(n for n, span in enumerate(spans) if len(tokenizer(text[: span[0]])["input_ids"]) <= length // 3)
    part = encode_passages((model, tokenizer), [text[: spans[end][0]]], [spans[:end]])
    np.testing.assert_allclose(encoded.vectors[:end], part.vectors, atol=5e-6, rtol=0)
    # One passage that is longer than a part is cut off, and the rest of it counts in the document's vector.
    whole = encode_passages((model, tokenizer), [text], [[(0, len(text))]], max_document_tokens=50)
    assert whole.vectors.shape == (1, 32)
    words = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    cut = text[: words[47][1]]
    np.testing.assert_allclose(
        whole.vectors[0], mean_of_tokens(model, tokenizer, cut, (0, len(cut))), atol=5e-6, rtol=0
    )


def test_encoder_of_sentence_transformers(tokenizer, tmp_path):
    """Its folder, it, and what comes behind its pooling."""
    model = make_model(tokenizer)
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    transformer = Transformer(str(tmp_path / "model"))
    encoder = SentenceTransformer(modules=[transformer, Pooling(32, pooling_mode="mean"), Normalize()], device="cpu")
    encoder.save_pretrained(str(tmp_path / "encoder"))
    plain = encode_passages((model, tokenizer), DOCUMENTS)
    for source in (encoder.eval(), tmp_path / "encoder", str(tmp_path / "encoder")):
        encoded = encode_passages(source, DOCUMENTS)
        expected = plain.vectors / np.linalg.norm(plain.vectors, axis=1, keepdims=True)
        np.testing.assert_allclose(encoded.vectors, expected, atol=5e-6, rtol=0)
    # A document as a whole is what the encoder makes of it.
    np.testing.assert_allclose(encoded.document_vectors, encoder.encode(DOCUMENTS), atol=5e-6, rtol=0)
    # What `encode` cuts off is cut off here, and vectors of a model in bfloat16 have length 1 in float32.
    shorter = SentenceTransformer(str(tmp_path / "encoder"), device="cpu", truncate_dim=8).eval()
    actual = encode_passages(shorter, DOCUMENTS)
    assert actual.vectors.shape == (len(encoded), 8) and actual.vectors.flags.c_contiguous
    np.testing.assert_allclose(actual.document_vectors, shorter.encode(DOCUMENTS), atol=5e-6, rtol=0)
    rough = encode_passages(encoder.bfloat16(), DOCUMENTS).vectors
    np.testing.assert_allclose(np.linalg.norm(rough, axis=1), 1, atol=1e-6, rtol=0)
    encoder.float()
    with pytest.raises(ValueError, match="another pooling .None."):
        encode_passages(SentenceTransformer(modules=[transformer], device="cpu").eval(), DOCUMENTS)
    by_cls = SentenceTransformer(modules=[transformer, Pooling(32, pooling_mode="cls")], device="cpu")
    with pytest.raises(ValueError, match="give one whose `pooling_mode` is 'mean'"):
        encode_passages(by_cls.eval(), DOCUMENTS)


def test_many_short_documents_are_packed(tokenizer, monkeypatch):
    model, calls = make_model(tokenizer), []
    model.register_forward_hook(lambda module, args, output: calls.append(output.last_hidden_state.shape))
    encoded = encode_passages((model, tokenizer), ["An owl."] * 1000)
    assert len(encoded) == 1000 and len(calls) < 10
    assert all(batch == 1 and length <= PACKED_TOKENS for batch, length, _ in calls)
    np.testing.assert_allclose(encoded.vectors, encoded.vectors[:1].repeat(1000, 0), atol=5e-6, rtol=0)


def test_nothing(tokenizer):
    encoder = make_model(tokenizer), tokenizer
    assert encode_passages(encoder, []).vectors.shape == (0, 32)
    encoded = encode_passages(encoder, ["", "\n \n"])
    assert len(encoded) == 0 and encoded.document_vectors.shape == (2, 32)
    assert encode_passages(encoder, ["", "An owl."], names=["a", "b"]).documents.tolist() == [1]


def test_single_surrogates_count_as_unknown_characters(tokenizer):
    encoder = make_model(tokenizer), tokenizer
    broken, replaced = (
        encode_passages(encoder, [f"An {x} owl."], [[(3, 4), (5, 9)]], names=[f"owl {x}"]).vectors
        for x in ("\ud83d", "\ufffd")
    )
    np.testing.assert_array_equal(broken, replaced)


def test_passages_without_tokens_have_the_vector_0(tokenizer):
    spans = [(0, 7), (9, 11), (8, 9)]
    encoded = encode_passages((make_model(tokenizer), tokenizer), ["An owl.\n\n\u200b\u200b"], [spans])
    assert np.abs(encoded.vectors[0]).max() > 0 and not encoded.vectors[1:].any()


@pytest.mark.parametrize("span", [(-1, 4), (2, 2), (3, 2), (0, 8)])
def test_no_passage(tokenizer, span):
    message = re.escape(f"`passages` has {span} in document 1, which is no passage of its 7 characters")
    with pytest.raises(ValueError, match=message):
        encode_passages((make_model(tokenizer), tokenizer), ["A", "An  owl"], [[], [span]])


def test_bad_input(tokenizer):
    encoder = make_model(tokenizer), tokenizer
    with pytest.raises(ValueError, match="`documents` is one text"):
        encode_passages(encoder, "An owl.")
    with pytest.raises(ValueError, match="`names` has 1 entries for 2 documents"):
        encode_passages(encoder, ["a", "b"], names=["a"])
    with pytest.raises(ValueError, match="`passages` has 1 entries for 2 documents"):
        encode_passages(encoder, ["a", "b"], [[(0, 1)]])
    with pytest.raises(ValueError, match="one list of .* for each document; that of document 0"):
        encode_passages(encoder, ["An owl.", "A lion."], [(0, 6), (0, 7)])
    with pytest.raises(ValueError, match="document 0 overlap, so `names` cannot"):
        encode_passages(encoder, ["An owl."], [[(0, 6), (3, 7)]], names=["owl"])
    with pytest.raises(ValueError, match="`names` must be a list of strings"):
        encode_passages(encoder, ["a", "b"], names="ab")
    with pytest.raises(ValueError, match="give 0 < shortest <= longest"):
        split_passages("An owl.", 0, 0)
    with pytest.raises(ValueError, match="`max_document_tokens` is 2: give at least 3"):
        encode_passages(encoder, ["a"], max_document_tokens=2)
    with pytest.raises(ValueError, match="call eval"):
        encode_passages((make_model(tokenizer).train(), tokenizer), ["a"])
    masked = LionForMaskedLM(encoder[0].config).eval()  # the encoder in it
    np.testing.assert_array_equal(
        encode_passages((masked, tokenizer), ["An owl."]).vectors,
        encode_passages((masked.lion, tokenizer), ["An owl."]).vectors,
    )
    bert = BertModel(BertConfig(hidden_size=8, num_attention_heads=1, num_hidden_layers=1, intermediate_size=8))
    with pytest.raises(ValueError, match="The encoder is a BertModel: give a LION"):
        encode_passages((bert, tokenizer), ["a"])


@given(st.text(alphabet="ab .!\n\t", max_size=400), st.integers(1, 20), st.integers(0, 20))
@example("a" * 50, 3, 4)
@settings(deadline=None)
def test_passages_have_all_of_a_text(text, shortest, more):
    """Spans are in order, apart, without white space at their ends, and leave out nothing else."""
    spans = split_passages(text, shortest, shortest + more)
    end = 0
    for first, last in spans:
        assert end <= first < last and not text[end:first].strip() and text[first:last] == text[first:last].strip()
        end = last
    assert not text[end:].strip()
    assert all(last - first <= shortest + more for first, last in spans)


def test_passages_are_the_text():
    sentence = "A lion roars at night. "
    text = "\n\n \n".join([sentence * 3, "\t" + sentence * 12, sentence * 100, "x" * 2500, sentence]) + "\n\n"
    spans = split_passages(text)
    assert "".join("".join(text[a:b] for a, b in spans).split()) == "".join(text.split())
    assert all(0 < b - a <= LONGEST and text[a:b].strip() for a, b in spans)
    assert all(b - a >= SHORTEST for a, b in spans[:-1]) and spans == sorted(spans)
    cut = [text[a:b] for a, b in spans if b - a > 1400 and "lion" in text[a:b]]
    assert cut and all(x.rstrip().endswith("night.") for x in cut)
    assert split_passages(" \n\n ") == [] and split_passages("Roar") == [(0, 4)]
