# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Makes the packages of this repository importable where nothing can be installed: a folder of links, and a path."""

import os
import zipfile
from pathlib import Path

import tomllib  # new in Python 3.11
from gpu.sources import ROOT


def link_packages(folder: Path) -> None:
    """
    Fill a folder with what an installation would add: the packages whose folders have other names
    (`tool.setuptools.package-dir`), and the metadata that `importlib.metadata` reads.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for package, source in project["tool"]["setuptools"]["package-dir"].items():
        (folder / package).symlink_to(ROOT / source, target_is_directory=True)
    about = project["project"]
    metadata = folder / f"{about['name'].replace('-', '_')}-{about['version']}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    lines = [f"Name: {about['name']}", f"Version: {about['version']}"]
    lines += [f"Requires-Dist: {requirement}" for requirement in about["dependencies"]]
    metadata.write_text("\n".join(["Metadata-Version: 2.1", *lines, ""]))


def python_path(folder: Path, wheels: Path | None = None) -> str:
    """
    PYTHONPATH of processes that import the packages, the benchmarks and what the tests share.

    Args:
        folder: an empty one, which is filled.
        wheels: a folder whose `*.whl` are unpacked there, too.
    """
    link_packages(folder)
    for wheel in sorted(wheels.glob("*.whl")) if wheels else []:
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(folder)
    places = [folder, ROOT, *(ROOT / x for x in ("benchmarks", "tests", "tests/support"))]
    return os.pathsep.join([*map(str, places), *filter(None, [os.environ.get("PYTHONPATH")])])
