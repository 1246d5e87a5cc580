# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""`lion export`: graphs for ONNX Runtime and OpenVINO, and what runs them."""
