# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What mkdocs does beside its plugins. Some files of the site are outside of docs/, such as the specification and
the benchmarks' tables. Links in them, and to them, are written for GitHub; here they become links of the site.
"""

import contextlib
import io
import os
import posixpath
import re
from importlib.metadata import metadata
from pathlib import Path
from unittest.mock import patch
from urllib.parse import urlsplit

import deploy_lion
import griffe
import hub_upload_lion
from deploy_lion.cli import main as lion
from mkdocs.structure.files import File

import modeling_lion


ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = {
    "SPEC.md": "project/spec.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
}
OUTSIDE |= {f"benchmarks/results/{x.name}": f"results/{x.name}" for x in ROOT.glob("benchmarks/results/*.csv")}
HELP = re.compile(r"<!-- help: ([\w ]+) -->")
LINK = re.compile(r"(\]\()(?!https?:|#)([^)#\s]+)")
UNIT = re.compile(r"(?<=\d) (?=(?:ms|s|MiB|GiB)\b|%)")


def on_config(config):
    """
    Names that packages import when first asked for are there when its members are listed. Pages link to the
    repository as soon as pyproject.toml has its address.
    """
    for package in (deploy_lion, hub_upload_lion, modeling_lion):
        for name in package.__all__:
            setattr(package, name, getattr(package, name))
    urls = dict(url.split(", ", 1) for url in metadata("lion-transformers").get_all("Project-URL"))
    if address := urls.get("Repository"):
        config.repo_url, config.repo_name = address, urlsplit(address).path.strip("/")
    return config


def on_files(files, config):
    for source, target in OUTSIDE.items():
        files.append(File.generated(config, target, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown, page, config, files):
    """
    Pages get their metadata. Links by paths in the repository become links of the site. In tables, numbers stay
    beside their units.
    """
    page.meta |= config.extra["pages"].get(page.file.src_uri, {})
    here = next((source for source, target in OUTSIDE.items() if target == page.file.src_uri), None)
    here = here or f"docs/{page.file.src_uri}"
    folder = posixpath.dirname(page.file.src_uri)

    def moved(match: re.Match) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(here), match[2]))
        target = OUTSIDE.get(path, path.removeprefix("docs/") if path.startswith("docs/") else None)
        return match[0] if target is None else match[1] + posixpath.relpath(target, folder or ".")

    lines = LINK.sub(moved, markdown).split("\n")
    lines = [UNIT.sub("\u00a0", line) if line.startswith("|") else line for line in lines]
    return HELP.sub(help_of_commands, "\n".join(lines))


def help_of_commands(match: re.Match) -> str:
    """A section with the help of each command of `lion`."""
    sections = []
    for command in match[1].split():
        with (
            contextlib.redirect_stdout(io.StringIO()) as output,
            contextlib.suppress(SystemExit),
            patch.dict(os.environ, {"COLUMNS": "100", "NO_COLOR": "1"}),
        ):
            lion([command, "--help"])
        sections.append(f"## lion {command}\n\n```text\n{output.getvalue().strip()}\n```")
    return "\n\n".join(sections)


class TransformersDocstrings(griffe.Extension):
    """Docstrings as transformers extends them, without links to its own pages and its words on all models."""

    BOILERPLATE = re.compile(r"\n*This model (?:inherits from|is also a).*?\n(?=\n|\Z)", re.DOTALL)
    OTHER_PAGES = re.compile(r"\n*[ ]*\[What are [\w ]+\?\]\([^)]*\)")
    OTHER_NAMES = re.compile(r"\[`~?([\w.]+)`\](?!\()")
    LONG_HEAD = re.compile(r"^(    \w[\w, ]* \([^)\n:]*)\n +([^\n]*)", re.MULTILINE)
    ITEM = re.compile(r"\n(?= *- \*\*\w+\*\* \()")
    TYPE = re.compile(r"^( +[\w, ]+ \()(.*)(\): *)$", re.MULTILINE)
    MARKS = re.compile(r"[`*]|, defaults to .*")  # the default is shown from the signature
    POOLER = re.compile(r"(\*\*pooler_output\*\* \([^\n]*?\) -- ).*?(?=\n *- \*\*|\Z)", re.DOTALL)

    def on_object(self, *, obj, **kwargs):
        if docstring := obj.docstring:
            value = self.BOILERPLATE.sub("\n", self.OTHER_PAGES.sub("", docstring.value))
            value = self.POOLER.sub(r"\1One vector for each sequence, as `config.pooling` says.", value)
            value = self.ITEM.sub("\n\n", value)  # Markdown joins an item to the paragraph before
            while (
                joined := self.LONG_HEAD.sub(r"\1 \2", value)
            ) != value:  # griffe wants an argument's head on one line
                value = joined
            value = self.TYPE.sub(lambda match: match[1] + self.MARKS.sub("", match[2]) + match[3], value)
            docstring.value = self.OTHER_NAMES.sub(r"`\1`", value)
