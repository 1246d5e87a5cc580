# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The tables of a page for a paper: LaTeX (with the package booktabs), from their Markdown."""

import re

import pandas


SYMBOLS = {"±": r"$\pm$", "÷": r"$\div$", "×": r"$\times$", "−": "$-$", "→": r"$\to$", "♮": r"$\natural$", "²": "$^2$"}
SYMBOLS |= {"↑": r"$\uparrow$", "↓": r"$\downarrow$"}
SYMBOLS |= {"≤": r"$\le$", "≥": r"$\ge$", "–": "--", "…": r"\ldots{}"}


def latex_tables(text: str) -> str:
    """A `tabular` for each Markdown table of a text, and what stands between them as comments."""
    parts = re.split(r"((?:^\|.*(?:\n|$))+)", text, flags=re.MULTILINE)
    lines = [latex_table(part) if part.startswith("|") else comment(part) for part in parts if part.strip()]
    return "\n".join(lines)


def comment(text: str) -> str:
    return "\n".join(f"% {line}" for line in text.splitlines() if line)


def latex_table(markdown: str) -> str:
    header, _, *rows = ([cell.strip() for cell in line[1:-1].split("|")] for line in markdown.strip().splitlines())
    frame = pandas.DataFrame(rows, columns=header)
    columns = "l" + "r" * (len(header) - 1)
    text = frame.to_latex(index=False, escape=True, column_format=columns)
    for symbol, command in SYMBOLS.items():
        text = text.replace(symbol, command)
    return text
