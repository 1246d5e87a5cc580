# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The tasks on which models are trained and compared."""
