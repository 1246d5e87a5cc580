# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Collect English text without a download: the docstrings of the Python installation that runs this script.

    python examples/docstrings.py --output_dir outputs/docstrings

Files are parsed, never imported. A text is one paragraph. There are no duplicates, and no file gives both training and
validation texts.
"""

import argparse

from training_lion.scripts.docstrings import write_docstrings


def main(args: list[str] | None = None) -> None:
    """Run with these arguments, or those of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--max_bytes", type=int, default=10_000_000)
    arguments = parser.parse_args(args)
    for name, value in write_docstrings(arguments.output_dir, max_bytes=arguments.max_bytes).items():
        print(f"{name:24} {value}")


if __name__ == "__main__":
    main()
