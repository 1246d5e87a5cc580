# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The command `lion serve` (docs/guides/serve.md), under the name that it had in earlier releases."""

import sys

from deploy_lion.cli import main


if __name__ == "__main__":
    sys.exit(main(["serve", *sys.argv[1:]]))
