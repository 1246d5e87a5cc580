# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The limits of a server, which are options of `lion serve`. Nothing here imports torch."""

from dataclasses import dataclass, field
from typing import Any


def limit(default: int | float, help_text: str) -> Any:
    return field(default=default, metadata={"help": f"{help_text} (default: %(default)s)"})


@dataclass(frozen=True)
class Settings:
    """Limits of a server. Each has the help text of its option."""

    max_texts: int = limit(2048, "most texts in a request")
    max_body_bytes: int = limit(8 * 2**20, "largest body of a request")
    max_requests: int = limit(500, "most requests at once; others are refused")
    short_tokens: int = limit(1024, "requests of at most this many tokens in all go before others")
    max_batch_tokens: int = limit(16384, "most tokens to compute at once")
    timeout: float = limit(60.0, "seconds for a request; new ones are refused while one has waited for half of them")
    accept_token_ids: bool = False
    workers: int = 1
