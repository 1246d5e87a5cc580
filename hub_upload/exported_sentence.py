# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The name by which modules.json of encoders that version 0.2 exported finds its module; nothing else imports it."""

from deploy_lion.export.exported_sentence import ExportedTransformer  # noqa: F401
