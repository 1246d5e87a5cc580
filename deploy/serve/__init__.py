# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""`lion serve`: encoders, classifiers and rerankers over HTTP."""
