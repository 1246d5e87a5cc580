# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The limits of a server, which are options of `lion serve`. Nothing here imports torch."""

from dataclasses import dataclass, field
from typing import Any


def limit(default: int | float, help_text: str) -> Any:
    return field(default=default, metadata={"help": f"{help_text} (default: %(default)s)"})


@dataclass(frozen=True)
class Settings:
    """Limits of a server, each with what it limits."""

    max_texts: int = limit(2048, "of a request")
    max_body_bytes: int = limit(8 * 2**20, "of a request")
    max_requests: int = limit(500, "served at once; others are refused")
    short_tokens: int = limit(1024, "requests of at most so many tokens, in all, go before others")
    max_batch_tokens: int = limit(16384, "computed at once")
    timeout: float = limit(60.0, "seconds of a request; once one has waited for half of them, no others are taken")
    accept_token_ids: bool = False
