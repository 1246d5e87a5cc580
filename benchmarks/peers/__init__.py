# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What LION is compared with: stand-ins for other models, and what is tried for each contestant."""
