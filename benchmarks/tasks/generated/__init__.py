# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Tasks that show one thing each and are learnt in minutes: to recall values, to tell left from right, to find what
stands far above. Two of the Long Range Arena label whole sequences. Examples are generated, from docstrings of this
Python installation where they need text.
"""

from .definitions import Definitions
from .listops import ListOps
from .neighbour import Neighbour
from .pathfinder import Pathfinder
from .recall import Recall
from .task import NO_LABEL, PAD_ID, SPLITS, Task, load_task


TASKS: dict[str, type[Task]] = {task.name: task for task in (Recall, Neighbour, Definitions)}
OF_SEQUENCES: dict[str, type[Task]] = {task.name: task for task in (ListOps, Pathfinder)}  # with one label each

__all__ = [
    "NO_LABEL",
    "OF_SEQUENCES",
    "PAD_ID",
    "SPLITS",
    "TASKS",
    "Definitions",
    "ListOps",
    "Neighbour",
    "Pathfinder",
    "Recall",
    "Task",
    "load_task",
]
