# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Make a Hugging Face Space that shows a checkpoint: the page of `lion app`, the model, and the code of both."""

import os
import subprocess
import sys
from importlib.metadata import requires, version
from importlib.util import find_spec
from pathlib import Path

import yaml
from packaging.requirements import Requirement

from ..checkpoint import copy_file
from ..export.exported import check_installed
from .clean_process import HIDDEN
from .refusals import bundle_files


DISTRIBUTION = "lion-transformers"
MODEL = "model"  # the folder of the weights
# Whatever else lies in these folders of a Space is from an earlier upload.
FOLDERS = (*HIDDEN, MODEL)
APP = """# The page of the command `lion app`, for the model in this folder. https://huggingface.co/docs/hub/spaces
from pathlib import Path

from hub_upload_lion.app.page import build_app, launch_app


app = build_app(Path(__file__).with_name("model"))

if __name__ == "__main__":
    launch_app(app)
    app.block_thread()
"""
README = """
# {title}

Try a LION, bidirectional linear attention for transformers, in the browser. `lion upload --space` made this page. The
model and its card are in `{model}`; the other folders are the code of the package {distribution} {version}, under the
licence Apache-2.0. On your own machine: `pip install -r requirements.txt gradio`, then `python app.py`.
"""


def create_space(bundle: Path, target: Path, title: str, license: str | None) -> None:
    """
    Make the folder of a Space that shows the model of a bundle. Then start the page once, without serving it, in a
    process that takes the code from the folder.

    Args:
        bundle: a folder of `create_bundle`. Its Python files are not copied, since the Space has the whole package.
        target: the folder to make.
        title: the title of the Space.
        license: of the model, for the Space's header.

    Raises:
        ValueError: if the page does not start.
        ImportError: if what the page needs is not installed.
    """
    from ..app.page import NEEDED

    check_installed("app", NEEDED)
    target.mkdir(parents=True)
    for path in bundle_files(bundle):
        if path.suffix != ".py":
            copy_file(path, target / MODEL / path.relative_to(bundle))
    for package in HIDDEN:
        folder = Path(find_spec(package).origin).parent
        for path in sorted([*folder.rglob("*.py"), *folder.rglob("*.md")]):
            copy_file(path, target / package / path.relative_to(folder))
    header = {
        "title": title,
        "emoji": "🦁",
        "colorFrom": "blue",
        "colorTo": "yellow",
        "sdk": "gradio",
        "sdk_version": version("gradio"),
        "app_file": "app.py",
        "pinned": False,
        "license": license,
    }
    header = yaml.safe_dump(header, sort_keys=False, allow_unicode=True)
    names = {"title": title, "model": MODEL, "distribution": DISTRIBUTION, "version": version(DISTRIBUTION)}
    (target / "README.md").write_text(f"---\n{header}---\n{README.format(**names)}", encoding="utf-8")
    (target / "app.py").write_text(APP, encoding="utf-8")
    (target / "requirements.txt").write_text("\n".join(requirements("app")) + "\n", encoding="utf-8")
    check_space(target)


def requirements(*extras: str) -> list[str]:
    """What this package needs with some of its extras, as lines of a requirements.txt. Spaces bring gradio."""
    lines = []
    for requirement in map(Requirement, requires(DISTRIBUTION)):
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
            if requirement.name == DISTRIBUTION:
                lines += requirements(*requirement.extras)
            elif requirement.name != "gradio":
                lines.append(f"{requirement.name}{requirement.specifier}")
    return list(dict.fromkeys(lines))


def check_space(folder: Path) -> None:
    """Raise a ValueError if the page of a Space does not start in a process that imports the code from its folder."""
    code = (
        "import app, sys\n"
        f"loaded = [sys.modules[x].__file__ for x in {HIDDEN!r} if x in sys.modules]\n"
        "strange = [path for path in loaded if not path.startswith(sys.argv[1])]\n"
        "assert not strange, strange"
    )
    process = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": "", "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        timeout=600,
    )
    if process.returncode:
        raise ValueError(f"The page in {folder} does not start. It ended with:\n{process.stderr[-3000:]}")
