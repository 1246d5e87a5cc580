# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The tables of a page for a paper: LaTeX (with the package booktabs), from their Markdown."""

import re


# What LaTeX reads otherwise, and signs that need its mathematics.
CHARACTERS = {x: rf"\{x}" for x in "&%$#_{}"} | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}"}
CHARACTERS |= {"^": r"\textasciicircum{}", "<": "$<$", ">": "$>$", "|": "$|$"}
CHARACTERS |= {"±": r"$\pm$", "÷": r"$\div$", "×": r"$\times$", "·": r"$\cdot$", "−": "$-$", "→": r"$\to$"}
CHARACTERS |= {"↑": r"$\uparrow$", "↓": r"$\downarrow$", "≤": r"$\le$", "≥": r"$\ge$", "≈": r"$\approx$"}
CHARACTERS |= {"∞": r"$\infty$", "♮": r"$\natural$", "½": r"$\frac{1}{2}$", "°": r"$^\circ$"}
CHARACTERS |= {"–": "--", "—": "---", "…": r"\ldots{}", "’": "'", "“": "``", "”": "''", "\u00a0": "~"}
CHARACTERS |= {x: f"$^{{{'0123456789-'[n]}}}$" for n, x in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹⁻")}
CHARACTERS |= {x: f"$_{{{n}}}$" for n, x in enumerate("₀₁₂₃₄₅₆₇₈₉")}
LOWER = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi o pi rho varsigma sigma tau upsilon"
CHARACTERS |= {chr(0x3B1 + n): f"${x if x == 'o' else chr(92) + x}$" for n, x in enumerate(LOWER.split())}
CHARACTERS |= {"φ": r"$\phi$", "χ": r"$\chi$", "ψ": r"$\psi$", "ω": r"$\omega$", "Γ": r"$\Gamma$", "Δ": r"$\Delta$"}
CHARACTERS |= {"Θ": r"$\Theta$", "Λ": r"$\Lambda$", "Σ": r"$\Sigma$", "Φ": r"$\Phi$", "Ω": r"$\Omega$"}
ESCAPED = str.maketrans(CHARACTERS)


def latex_tables(text: str) -> str:
    """
    A `tabular` for each Markdown table of a text, and what stands between them: comments if it ends with a colon, else
    small print, which a page shows.
    """
    parts = re.split(r"((?:^\|.*(?:\n|$))+)", text, flags=re.MULTILINE)
    return "\n".join(latex_table(x) if x.startswith("|") else paragraphs(x) for x in parts if x.strip()) + "\n"


def paragraphs(text: str) -> str:
    found = [" ".join(x.split()) for x in text.split("\n\n") if x.strip()]
    return "\n".join(f"% {x}" if x.endswith(":") else rf"\par{{\footnotesize {escaped(x)}\par}}" for x in found)


def escaped(text: str) -> str:
    """Markdown as LaTeX: `code`, **bold**, links without their address, and the `CHARACTERS`."""
    text = re.sub(r"\[([^\]]*)\]\([^)\s]*\)", r"\1", text).translate(ESCAPED)
    text = re.sub(r"`([^`]*)`", r"\\texttt{\1}", text)
    return re.sub(r"\*\*(.+?)\*\*", r"\\textbf{\1}", text)


def latex_table(markdown: str) -> str:
    header, _, *rows = (line[1:-1].split("|") for line in markdown.strip().splitlines())
    first, *lines = (" & ".join(escaped(cell.strip()) for cell in row) + r" \\" for row in (header, *rows))
    columns = "l" + "r" * (len(header) - 1)
    begin = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", first, r"\midrule"]
    return "\n".join([*begin, *lines, r"\bottomrule", r"\end{tabular}"])
