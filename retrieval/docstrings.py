# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Read the docstrings of Python files. Files are parsed, never imported."""

import ast
import os
import sysconfig
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple


SKIPPED_FOLDERS = {"__pycache__", "site-packages", "test", "tests", "testing"}


def python_folders() -> list[str]:
    """Return the folders of the standard library and of the installed packages."""
    paths = sysconfig.get_paths()
    return sorted({os.path.realpath(paths[name]) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def python_files(folders: Iterable[str]) -> list[str]:
    """Return the Python files in these folders and their subfolders, sorted, without tests."""
    files = set()
    for folder in folders:
        for parent, children, names in os.walk(folder):
            children[:] = [child for child in children if child not in SKIPPED_FOLDERS]
            files.update(os.path.join(parent, name) for name in names if name.endswith(".py"))
    return sorted(files)


class Docstring(NamedTuple):
    name: str  # import name: module.Class.method
    text: str
    line: int  # where the definition begins, 0 for a module


def module_name(file: str | Path, folder: str | Path) -> str:
    """Return the import name of a file that lies below `folder`, an entry of `sys.path`."""
    parts = Path(file).relative_to(folder).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def docstrings(file: str | Path, module: str = "") -> Iterator[Docstring]:
    """Yield the docstrings of a file, outer definitions first; none if it cannot be parsed. `module` is its name."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # files may have invalid escapes
            tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    nodes = deque([(tree, module)])
    while nodes:
        node, name = nodes.popleft()
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            name = name if isinstance(node, ast.Module) else f"{name}.{node.name}".lstrip(".")
            if text := ast.get_docstring(node):
                yield Docstring(name, text, getattr(node, "lineno", 0))
        nodes.extend((child, name) for child in ast.iter_child_nodes(node))


def split_paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a text, each on one line, without empty ones."""
    return [words for paragraph in text.split("\n\n") if (words := " ".join(paragraph.split()))]
