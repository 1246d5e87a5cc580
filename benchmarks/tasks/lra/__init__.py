# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The tasks of the Long Range Arena (Tay et al., 2020, arXiv 2011.04006), and some that are learnt in minutes, without
downloads: each is generated, or uses text and images that are installed with Python and scikit-learn.
"""

from .definitions import Definitions
from .digits import Digits
from .listops import ListOps
from .neighbour import Neighbour
from .pathfinder import Pathfinder
from .recall import Recall
from .retrieval import Retrieval
from .scenes import Scenes
from .task import NO_LABEL, PAD_ID, SPLITS, Task, load_task
from .text import Text


LRA_TASKS: dict[str, type[Task]] = {
    task.name: task for task in (ListOps, Text, Retrieval, Pathfinder, Digits, Neighbour, Recall, Scenes, Definitions)
}

__all__ = [
    "NO_LABEL",
    "PAD_ID",
    "SPLITS",
    "LRA_TASKS",
    "Definitions",
    "Digits",
    "ListOps",
    "Neighbour",
    "Pathfinder",
    "Recall",
    "Retrieval",
    "Scenes",
    "Task",
    "Text",
    "load_task",
]
