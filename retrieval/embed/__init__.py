# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""`lion embed`: the vectors of a corpus, in one process or on a cluster, which goes on where it was stopped."""
