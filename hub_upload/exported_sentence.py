# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The module that modules.json names in encoders that version 0.2 exported. Nothing else imports it."""

from deploy_lion.export.exported_sentence import ExportedTransformer  # noqa: F401
