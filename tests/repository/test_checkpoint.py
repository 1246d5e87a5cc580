# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The checkpoints that come with the repository: they load as they are, offline, and know what is near to what."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from sentence_transformers import SentenceTransformer

import modeling_lion
from configuration_lion import LionConfig


CHECKPOINTS = Path(__file__).parents[2] / "checkpoints"
FOLDERS = [CHECKPOINTS / "lion-minilm-l6", CHECKPOINTS / "lion-minilm-l6-passages"]


@pytest.fixture(scope="module", params=FOLDERS, ids=lambda folder: folder.name)
def sentences(request) -> SentenceTransformer:
    return SentenceTransformer(str(request.param), device="cpu", local_files_only=True)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_what_is_in_the_folder(folder):
    """Half the space on disk, float32 in memory, no code, and all layers linear."""
    with safe_open(folder / "model.safetensors", "pt") as weights:
        assert {weights.get_slice(name).get_dtype() for name in weights.keys()} == {"F16"}  # noqa: SIM118
    assert sum(file.stat().st_size for file in folder.rglob("*")) < 50e6
    assert not list(folder.rglob("*.py"))
    config = LionConfig.from_pretrained(folder)
    assert config.layer_types_in_use == {"linear_attention"} and config.longest_text is None


def test_near_texts_are_near(sentences):
    model = sentences[0].auto_model
    assert isinstance(model, modeling_lion.LionModel) and model.dtype == torch.float32
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
    filler = "Logs go to the standard output, one line for each request, with the time that it took.\n\n" * 5
    documents, names = [f"{filler}{sentence}\n\n{filler}"] * 2, ["gunicorn", "redis"]
    spans = [[(len(filler), len(filler) + len(sentence))]] * 2
    encoded = modeling_lion.encode_passages(str(FOLDERS[1]), documents, spans, names=names)
    encoder = SentenceTransformer(str(FOLDERS[1]), device="cpu", local_files_only=True)
    queries = encoder.encode([f"{name}: which port does it listen on?" for name in names])
    assert ((queries @ encoded.vectors.T).argmax(1) == [0, 1]).all()


@pytest.mark.slow
def test_no_text_is_too_long(sentences):
    """What comes late in a long text counts."""
    filler = "The weather was fine and everybody was content. " * 150
    ends = [filler + end for end in ("Rockets fly to the moon.", "Bread is baked in an oven.")]
    assert sentences.tokenize(ends)["input_ids"].shape[1] > 1200
    query = sentences.encode(["astronauts in space", "a recipe for a cake"])
    similarities = sentences.similarity(query, sentences.encode(ends))
    assert similarities[0, 0] > similarities[0, 1] and similarities[1, 1] > similarities[1, 0]
