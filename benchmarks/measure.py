# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What the benchmarks share: interleaved timing, peak memory, a description of the machine, tables."""

import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import transformers


def interleaved(functions: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """
    Seconds per call: of CPU time with one thread, which other processes disturb least, and of the clock with several,
    whose waiting for each other is no work. The functions take turns, so that a machine that slows down slows down
    all of them; every one runs once before it counts.
    """
    now = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    for function in functions.values():
        function()
    seconds = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            start = now()
            function()
            seconds[name].append(now() - start)
    return seconds


def summary(seconds: list[float]) -> dict[str, float]:
    return {"median": statistics.median(seconds), "min": min(seconds), "max": max(seconds)}


def peak_memory_in_new_process(script: str, *arguments: str) -> int:
    """Peak resident memory, in bytes, of `python script *arguments`, which must end with `print_peak_memory()`."""
    command = [sys.executable, script, *arguments]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return int(output.split()[-1])


def peak_memory() -> int:
    """The peak resident memory of this process so far, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # unlike ru_maxrss, this knows nothing of the process that started this one
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if "VmHWM" in line) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def print_peak_memory() -> None:
    """Print `peak_memory` as the last word of this process's output."""
    print(peak_memory())


def machine() -> dict[str, str | int]:
    """Versions and CPU, for the JSON beside every result."""
    cpu = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.split(":")[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")
        ]
        cpu = names[0] if names else cpu
    return {
        "cpu": cpu,
        "capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def write_json(path: Path, results: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine(), "results": results}, indent=1) + "\n")


def read_json(path: Path):
    """What `write_json` wrote; `None` if it did not."""
    return json.loads(path.read_text())["results"] if path.exists() else None


def print_table(header: list[str], rows: list[list[str]]) -> None:
    """A Markdown table."""
    for row in (header, ["---"] * len(header), *rows):
        print("| " + " | ".join(row) + " |")
