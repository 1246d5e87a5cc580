# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""`lion search`: search files by meaning. A background process keeps the encoder loaded."""
