# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The first columns of the table of mixers on docs/compatibility.md are what the code does."""

import contextlib
import re
from pathlib import Path

import pytest
import torch
from tools import encoder_table

from modeling_lion import LionConfig, LionModel


PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 32,
    "vocab_size": 50,
}
PACKED = {
    "cu_seq_lens_q": torch.tensor([0, 8, 20], dtype=torch.int32),
    "position_ids": torch.tensor([[*range(8), *range(12)]]),
}


def table() -> dict[tuple[str, str], bool]:
    """Whether the table says yes, by the layers of a row and the column."""
    lines = re.search(r"(?:^\|.*\n)+", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[0].splitlines()
    header, _, *rows = ([cell.strip() for cell in line[1:-1].split("|")] for line in lines)
    return {
        (row[0], column): cell == "yes" for row in rows for column, cell in zip(header[1:7], row[1:7], strict=True)
    }


def configurations(layers: str) -> list[LionConfig]:
    """Configurations of the models that a row is about."""
    if layers.startswith("linear"):
        kind = "sliding_attention" if "sliding" in layers else "full_attention"
        return [LionConfig(**SIZES, layer_types=["linear_attention", kind])]
    return [LionConfig(**SIZES, mixer_type=name) for name in re.findall(r"`(\w+)`", layers)]


def uses(model: LionModel, column: str):
    """What a column is about, once for each name in it."""
    ids = torch.arange(1, 21)[None]

    def with_kernel(name: str, **options):
        model.set_attn_implementation(name)
        return model(ids, **options)

    if column == "packing":
        return [lambda: with_kernel("eager", **PACKED)]
    if column == "`encode_long`":
        return [lambda: model.encode_long(ids, segment_length=8, show_progress=False)]
    if column == "`attention_report`":
        return [lambda: model.attention_report([0], input_ids=ids)]
    names = re.findall(r"`(\w+)`", column)
    if "output_attentions" in names:
        return [lambda: with_kernel("eager", output_attentions=True).attentions[-1].shape]
    return [lambda name=name: with_kernel(name) for name in names]


@pytest.mark.parametrize("layers", dict.fromkeys(layers for layers, _ in table()))
def test_the_table_of_mixers(layers):
    says_yes = {column: cell for (row, column), cell in table().items() if row == layers}
    for config in configurations(layers):
        model = LionModel(config).eval()
        for column, is_yes in says_yes.items():
            for use in uses(model, column):
                expected = contextlib.nullcontext() if is_yes else pytest.raises(ValueError)
                with torch.no_grad(), expected:
                    use()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_tables_of_encoders():
    """`python tests/tools/encoder_table.py` writes them."""
    made = encoder_table.tables()
    assert re.search(encoder_table.BLOCK, PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)[0] == made
    assert int(made.split()[0]) >= 40
