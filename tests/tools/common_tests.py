# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
transformers' own common tests of models, over every mixer, kernel and recommended preset: `make test-common`, or
`python tests/tools/common_tests.py [pytest's options]`.

The tests are not in the installed package. They come from the source distribution of the installed version, by pip,
into `--cache_dir`. That has no tests of generation and of its exporters, which are left out here; tests/hub_upload has
those of our exports.
"""

import argparse
import subprocess
import sys
import tarfile
from pathlib import Path

import transformers


ROOT = Path(__file__).resolve().parents[2]
# Modules that the common tests import and the source distribution lacks.
LEFT_OUT = {
    "generation/test_utils.py": "class GenerationTesterMixin:\n    pass\n",
    "exporters/test_export.py": "class ExportTesterMixin:\n    pass\n",
    "utils/test_configuration_utils.py": "config_common_kwargs = {}\n",
}


def fetch(cache_dir: Path) -> Path:
    """The folder that has `tests/test_modeling_common.py` of the installed version."""
    name = f"transformers-{transformers.__version__}"
    folder = cache_dir / name
    if not (folder / "tests" / "__init__.py").exists():
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation"]
        source = ["--no-binary", "transformers", f"transformers=={transformers.__version__}"]
        subprocess.run([*pip, "--dest", str(cache_dir), *source], check=True)
        with tarfile.open(cache_dir / f"{name}.tar.gz") as archive:
            members = [member for member in archive.getmembers() if member.name.startswith(f"{name}/tests/")]
            archive.extractall(cache_dir, members, filter="data")
        for path, text in LEFT_OUT.items():
            path = folder / "tests" / path
            path.parent.mkdir(exist_ok=True)
            (path.parent / "__init__.py").touch()
            path.write_text(text)
        (folder / "tests" / "__init__.py").touch()
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache_dir", type=Path, default=ROOT / "outputs" / "common_tests", help="for the tests")
    args, options = parser.parse_known_args()
    args.cache_dir.mkdir(parents=True, exist_ok=True)
    folder = fetch(args.cache_dir)
    # Their folder is the root, or theirs and ours would both be `tests`.
    (folder / "tests" / "test_lion.py").write_text((Path(__file__).parent / "common_test_cases.py").read_text())
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider -q\n")
    command = [sys.executable, "-m", "pytest", "--rootdir", str(folder), "-c", str(folder / "pytest.ini")]
    return subprocess.run([*command, *options, "tests/test_lion.py"], cwd=folder).returncode


if __name__ == "__main__":
    sys.exit(main())
