# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The tables of encoders on docs/compatibility.md and in docs/encoders.csv, from what `linearize` does with tiny models
of tests/support/encoders.py.

    python tests/tools/encoder_table.py     # writes them
"""

import argparse
import csv
import io
import re
import sys
import warnings
from itertools import groupby
from pathlib import Path

import torch
import transformers


ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from encoders import ENCODERS, REFUSED, Encoder, image, text, wave  # noqa: E402


PAGE = ROOT / "docs" / "compatibility.md"
CSV = ROOT / "docs" / "encoders.csv"  # with classes and heads
BLOCK = r"(?<=<!-- begin: encoders -->\n)(.*?)(?=<!-- end -->)"


def heads_of(encoder: Encoder) -> list[str]:
    """Names of the classes with heads that become linear, without the name of the model."""
    names = []
    for head in encoder.heads():
        try:
            encoder.linear(encoder.model(torch.float32, model_class=head))
        except (TypeError, ValueError):
            continue
        names.append(re.sub(r".*?(?=For[A-Z]|$)", "", head.__name__, count=1) or head.__name__)
    return sorted(set(names))


def positions_of(encoder: Encoder, model: transformers.PreTrainedModel) -> str:
    """What a text longer than those of training finds."""
    if model.config.lion_position_table is not None:
        table = model.base_model.get_submodule(model.config.lion_position_table[0])
        return "table, `cyclic`" if type(table).forward is torch.nn.Embedding.forward else "table"
    names = " ".join(type(module).__name__ for module in model.modules()).lower()
    if "rotary" in names or "rope" in names:
        return "rotary"
    if encoder.make_inputs is wave:
        return "convolution"
    return "sinusoidal" if "sinusoidal" in names else "of the input's size"


def notes_of(encoder: Encoder, model: transformers.PreTrainedModel, has_window: bool) -> str:
    notes = []
    if not model._supports_sdpa:
        notes.append('exact by `"eager"`')
    if has_window:
        notes.append('windows: `layers="global"`')
    if encoder.needs_example:
        notes.append("needs `example_inputs`")
    if encoder.make_inputs not in (text, wave, image):
        notes.append({"video": "clips", "whisper_features": "spectrograms"}.get(encoder.make_inputs.__name__, ""))
    return "; ".join(note for note in notes if note)


def has_windows(encoder: Encoder) -> bool:
    """Whether "global" leaves some layers out."""
    if encoder.needs_example:
        return False
    model = encoder.linear(encoder.model(torch.float32), layers="global")
    return None in model.config.lion_layers.values()


def encoder_rows() -> list[tuple[str, ...]]:
    """A row for each model type: the type, the class, its heads, its positions, and a note; in Markdown."""
    rows = []
    for encoder in ENCODERS:
        model = encoder.linear(encoder.model(torch.float32))
        notes = notes_of(encoder, model, has_windows(encoder))
        rows.append(
            (encoder.model_type, str(encoder), " ".join(heads_of(encoder)), positions_of(encoder, model), notes)
        )
    return sorted(rows)


def tables(rows: list[tuple[str, ...]]) -> str:
    """In Markdown: the model types that become linear, by their positions, and the refused classes."""
    lines = [f"{len({row[0] for row in rows})} model types:", "", "| positions | model types |", "|---|---|"]
    for positions, of_kind in groupby(sorted(rows, key=lambda row: row[3]), key=lambda row: row[3]):
        names = (f"`{name}`" + f" ({notes})" * bool(notes) for name, *_, notes in of_kind)
        lines.append(f"| {positions} | {', '.join(names)} |")
    lines += ["", "Refused, before anything is changed:", "", "| reason | classes |", "|---|---|"]
    for reason, encoders in groupby(sorted(REFUSED, key=lambda x: x.why_refused), key=lambda x: x.why_refused):
        names = ", ".join(sorted(f"`{x.class_name}`{why_this(x)}" for x in encoders))
        lines.append(f"| {reason} | {names} |")
    return "\n".join(lines) + "\n"


def as_csv(rows: list[tuple[str, ...]]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerows([("model_type", "class", "heads", "positions", "notes"), *rows])
    return file.getvalue()


def why_this(encoder: Encoder) -> str:
    """The field of its configuration by which a class is refused that is not otherwise."""
    fields = ("use_relative_position_bias", "is_decoder", "position_embeddings_type")
    given = [f"{name}={encoder.fields[name]!r}" for name in fields if name in encoder.fields]
    return f" with `{given[0]}`" if given else ""


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    page, rows = PAGE.read_text(encoding="utf-8"), encoder_rows()
    PAGE.write_text(re.sub(BLOCK, lambda _: tables(rows), page, flags=re.DOTALL), encoding="utf-8")
    CSV.write_text(as_csv(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
