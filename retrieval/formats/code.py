# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Source code: that of Python by definitions, other files by lines. LaTeX by headings."""

import ast
import re
import warnings
from collections.abc import Iterator

from .section import HEADINGS, LONGEST, SHORTEST, Section, SkippedFile, decode, with_heading


Definition = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
LATEX = re.compile(
    r"^[ \t]*\\(part|chapter|(?:sub){0,2}section|paragraph)\*?\s*(?:\[[^]]*\])?\{((?:[^{}]|\{[^{}]*\})+)\}",
    re.MULTILINE,
)
LATEX_LEVELS = ["part", "chapter", "section", "subsection", "subsubsection", "paragraph"]


def split_lines(lines: list[str]) -> Iterator[tuple[int, int]]:
    """
    Split the lines of a file into parts of at most `LONGEST` characters, if no line is longer.

    A part has at least `SHORTEST` characters. It ends behind an empty line, before the line that is indented least, as
    definitions are. Without empty lines it ends anywhere.

    Yields:
        The index of the first line of each part, and the one behind its last.
    """
    begin = 0
    while begin < len(lines):
        size, best, found = 0, (True, 10**9), len(lines)
        for n in range(begin, len(lines)):
            if n > begin and size >= SHORTEST:
                rank = (bool(lines[n - 1].strip()), len(lines[n]) - len(lines[n].lstrip()))
                if rank < best or (rank[0] and best[0]):
                    best, found = rank, n
            size += len(lines[n]) + 1
            if size > LONGEST and n > begin:
                found = n if found == len(lines) else found
                break
        else:
            found = len(lines)
        yield begin, found
        begin = found


def sections_of_lines(lines: list[str], first: int, name: str | None) -> Iterator[Section]:
    """Yield the parts of lines, without empty lines around them. The first line has the number `first` in its file."""
    for begin, end in split_lines(lines):
        while begin < end and not lines[begin].strip():
            begin += 1
        if text := "\n".join(lines[begin:end]).rstrip():
            yield Section(text, first + begin, name)


def lines_of(data: bytes, file: str) -> list[str]:
    return decode(data, file).replace("\r\n", "\n").replace("\r", "\n").split("\n")


def read_lines(data: bytes, file: str) -> Iterator[Section]:
    """Yield the parts of a file, by its lines."""
    return sections_of_lines(lines_of(data, file), 1, None)


def read_latex(data: bytes, file: str) -> Iterator[Section]:
    """Yield the sections of a document in LaTeX, as it is written, without what stands before its beginning."""
    text = "\n".join(lines_of(data, file))
    head, found, _ = text.partition(r"\begin{document}")
    begin = len(head + found) if found else 0
    path: list[tuple[int, str]] = []
    borders = [
        (begin, 0, ""),
        *((x.start(), *heading_of(x)) for x in LATEX.finditer(text, begin)),
    ]
    for (start, level, heading), (end, *_) in zip(borders, [*borders[1:], (len(text), 0, "")], strict=True):
        if level:
            path = with_heading(path, level, heading)
        first = 1 + text.count("\n", 0, start)
        name = HEADINGS.join(heading for _, heading in path) or None
        yield from sections_of_lines(text[start:end].split("\n"), first, name)


def heading_of(found: re.Match) -> tuple[int, str]:
    return 1 + LATEX_LEVELS.index(found[1]), re.sub(r"\\[a-zA-Z]+\s*|[{}]", "", found[2]).strip()


def read_python(data: bytes, file: str) -> Iterator[Section]:
    """
    Yield the functions and classes of a Python file, and what is between them, named as it is called within the file.
    Of long functions, signature and docstring are the first section. A file that cannot be parsed is read by lines.
    """
    lines = lines_of(data, file)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # files may have invalid escapes
            tree = ast.parse("\n".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        yield from sections_of_lines(lines, 1, None)
        return
    if tree.body and only_imports(tree, 0, len(lines)):
        raise SkippedFile("only imports", f"{file} has only imports.")
    for first, end, name in parts_of(tree, 0, len(lines), "", lines):
        yield from sections_of_lines(lines[first:end], first + 1, name or None)


def parts_of(node: Definition, first: int, end: int, name: str, lines: list[str]) -> Iterator[tuple[int, int, str]]:
    """Yield the parts of a definition: the index of the first line, the one behind the last, and the name."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        docstring = node.body[0].end_lineno if ast.get_docstring(node, clean=False) else None
        is_long = sum(map(len, lines[first:end])) > SHORTEST
        borders = [first, docstring, end] if docstring is not None and docstring < end and is_long else [first, end]
        yield from ((a, b, name) for a, b in zip(borders, borders[1:], strict=False))
        return
    begin = first
    for child in node.body:
        if isinstance(child, DEFINITIONS):
            start = min([child.lineno, *(x.lineno for x in child.decorator_list)]) - 1
            while start > begin and lines[start - 1].lstrip().startswith("#"):
                start -= 1
            if begin < start and not only_imports(node, begin, start):
                yield begin, start, name
            begin = max(begin, child.end_lineno or 0)
            yield from parts_of(child, max(start, first), begin, f"{name}.{child.name}".lstrip("."), lines)
    if begin < end and not only_imports(node, begin, end):
        yield begin, end, name


def only_imports(node: ast.Module | ast.ClassDef, first: int, end: int) -> bool:
    """Return whether a part of a module or a class has statements, and all are imports."""
    found = [child for child in node.body if first <= child.lineno - 1 < end]
    return bool(found) and all(isinstance(child, ast.Import | ast.ImportFrom) for child in found)
