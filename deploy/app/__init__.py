# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""`lion app`: a page in the browser that shows a checkpoint, and search by meaning."""
