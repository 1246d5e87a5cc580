# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What the tests of the server share: a small encoder, an engine that waits, and a server of its own thread."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
import uvicorn
from deploy_lion.serve.engines import Description, Dropped, Row
from hub_checkpoints import text_checkpoint
from sentence_checkpoints import sentence_checkpoint
from sentence_transformers.sentence_transformer.modules import Transformer


def sentence_encoder(parent: Path) -> Path:
    """A folder of an encoder around a LION without a limit of length, with prompts."""
    torch.manual_seed(0)
    model = Transformer(str(text_checkpoint(parent / "model", "LionModel", pooling="mean")), max_seq_length=100_000)
    prompts = {"query": "The lion: ", "document": "At night, "}
    return sentence_checkpoint(parent / "encoder", model, prompts=prompts)


class Slow:
    """
    An engine that waits for `go`, or to be cancelled. The vector of a text is its length; each word is a token. It
    fails for 13 tokens.
    """

    def __init__(self, log: list | None = None):
        self.about = Description("embed", 100_000, None, 2, 50, "float32", "slow")
        self.go, self.batches, self.is_cancelled = threading.Event(), [] if log is None else log, threading.Event()

    def twin(self) -> "Slow":
        return self

    def tokenize(self, inputs, side=None) -> list[Row]:
        return [Row({"input_ids": [1] * len(text.split())}) for text in inputs]

    def cancel(self) -> None:
        self.is_cancelled.set()

    def resume(self) -> None:
        self.is_cancelled.clear()

    def compute(self, rows) -> list[np.ndarray]:
        self.batches.append([len(row) for row in rows])
        while not self.go.wait(0.01):
            if self.is_cancelled.is_set():
                raise Dropped
        if any(len(row) == 13 for row in rows):
            raise FloatingPointError("thirteen")
        return [np.array([len(row), 1.0], dtype=np.float32) for row in rows]


@contextmanager
def running(app) -> Iterator[int]:
    """The port of a server in a thread of its own, as `lion serve` starts it."""
    config = uvicorn.Config(app, port=0, http="h11", ws="none", log_level="warning", access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            thread.join(0.01)
            assert thread.is_alive()
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()
