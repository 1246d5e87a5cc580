# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""`lion embed`: encode a corpus, in one process or on a cluster. A job that was stopped can be resumed."""
