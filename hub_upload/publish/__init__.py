# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""`lion bundle` and `lion upload`: complete repositories for the Hub, model cards."""
