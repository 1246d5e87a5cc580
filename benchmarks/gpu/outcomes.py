# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
A plugin of pytest that writes every outcome down at once, leaves out what has passed before, and ends a process that
can use its GPU no more. `python benchmarks/gpu/run.py check` runs pytest with it; these variables tell it the files:

    LION_OUTCOMES   a line of JSON for each case: `id`, `outcome`, `seconds`, `message`, and the `key` of the sources
    LION_PASSED     a line for each case that is left out
    LION_COUNT      how many cases there are, with those
"""

import json
import os
from pathlib import Path

import pytest
import torch
from gpu.check import in_order


OUTCOMES, PASSED, COUNT, KEY = (os.environ.get(f"LION_{x}", "") for x in ("OUTCOMES", "PASSED", "COUNT", "KEY"))


@pytest.hookimpl(trylast=True)  # after -k
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    Path(COUNT).write_text(str(len(items)))
    passed = set(Path(PASSED).read_text().splitlines())
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
    left = {item.nodeid: item for item in items if item.nodeid not in passed}
    processes = getattr(config, "workerinput", {}).get("workercount", 1)
    items[:] = [left[case] for case in in_order(list(left), processes)]


def first_error(report: pytest.TestReport) -> str:
    """The error in a line or two."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return (crash.message if crash else str(report.longrepr or ""))[:400]


class Writer:
    """In the process that starts the others, or in the only one."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.write(report, report.outcome, report.duration)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be imported is a case that failed."""
        if report.failed:
            self.write(report, "failed")

    def write(self, report: pytest.TestReport | pytest.CollectReport, outcome: str, seconds: float = 0.0) -> None:
        message = "" if outcome == "passed" else first_error(report)
        line = {"id": report.nodeid, "outcome": outcome, "seconds": round(seconds, 3), "message": message, "key": KEY}
        with Path(OUTCOMES).open("a") as file:
            file.write(json.dumps(line) + "\n")


class Watcher:
    """In a process that others replace: after an illegal access, a GPU refuses everything that the process asks."""

    def __init__(self):
        self.has_failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.has_failed |= report.failed

    def pytest_runtest_logfinish(self) -> None:
        if self.has_failed and torch.cuda.is_available():
            try:
                torch.cuda.synchronize()
            except RuntimeError:
                os._exit(1)
        self.has_failed = False


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Watcher() if hasattr(config, "workerinput") else Writer())
