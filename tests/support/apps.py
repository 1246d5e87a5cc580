# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The page of `lion app`, as tests make it."""

import asyncio
from pathlib import Path

import gradio
from deploy_lion.app.page import build_app


def built_app(folder: Path) -> gradio.Blocks:
    """The page of a checkpoint. Gradio leaves event loops open unless it is called inside of one."""

    async def build() -> gradio.Blocks:
        return build_app(folder)

    return asyncio.run(build())
