# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Search the documentation of your Python by meaning: `lion search --package stdlib`, with its options.

    python examples/search.py "how do I read a zip file"              # the docstrings of the standard library
    python examples/search.py --package torch "smaller learning rate over time"

`lion search FOLDER "query"` searches your files (docs/guides/passages.md).
"""

import sys

from deploy_lion import cli


def main(args: list[str] | None = None) -> int:
    """Run with these arguments, or those of the command line; returns the exit code."""
    return cli.main(["search", "--package", "stdlib", *(sys.argv[1:] if args is None else args)])


if __name__ == "__main__":
    sys.exit(main())
