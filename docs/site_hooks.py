# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What mkdocs does beside its plugins. Some pages of the site are files outside of docs/: the README is the first page.
Links in them, and to them, are written for GitHub; here they become links of the site.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File


ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = {
    "README.md": "index.md",
    "SPEC.md": "project/spec.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
}
LINK = re.compile(r"(\]\()(?!https?:|#)([^)#\s]+)")


def on_files(files, config):
    for source, target in OUTSIDE.items():
        files.append(File.generated(config, target, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Links by paths in the repository become links by paths in the site."""
    here = next((source for source, target in OUTSIDE.items() if target == page.file.src_uri), None)
    here = here or f"docs/{page.file.src_uri}"
    folder = posixpath.dirname(page.file.src_uri)

    def moved(match: re.Match) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(here), match[2]))
        target = OUTSIDE.get(path, path.removeprefix("docs/") if path.startswith("docs/") else None)
        return match[0] if target is None else match[1] + posixpath.relpath(target, folder or ".")

    return LINK.sub(moved, markdown)
