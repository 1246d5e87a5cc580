# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What the benchmarks share: inputs of attention, interleaved timing, peak memory, results as CSV files.
"""

import argparse
import csv
import fcntl
import hashlib
import io
import math
import platform
import re
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from datetime import date
from functools import cache
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path

import torch
import transformers
from gpu.sources import digest_of
from torch import Tensor


# The encoder that comes with the repository.
CHECKPOINT = Path(__file__).parents[1] / "checkpoints" / "lion-minilm-l6"
RESULTS = Path(__file__).parent / "results"
# Runs what is for a GPU on the CPU, to see that it runs: a device beside "cpu" and "cuda".
REHEARSAL = "rehearsal"


def attention_inputs(
    mixer: str, batch: int, length: int, heads: int = 12, dim: int = 64, dtype=torch.float32, device: str = "cpu"
) -> list[Tensor]:
    """
    For LION-LIT, -D or -S, in the model's layout: query, key and value `(batch, heads, length, dim)` and,
    unless for LIT, the log decay in float32, half-lives from 1 to 1000 tokens. "LION" has the inputs of LION-S.
    """
    torch.manual_seed(length)
    rand = lambda *shape: torch.rand(*shape, device=device)
    query, key, value = (rand(batch, length, heads, dim).to(dtype).transpose(1, 2) for _ in range(3))
    of_token = (batch, heads, length)
    shape = {"LION-D": (heads,), "LION-S": of_token, "LION": of_token}.get(mixer)
    log_decay = [] if shape is None else [-(10.0 ** (-3 * rand(*shape)))]
    return [query, key, value - 0.5, *log_decay]


def host_seconds(function: Callable[[], object]) -> float:
    """
    Seconds of CPU time with one thread, which other processes disturb least, and of the clock with several, whose
    waiting for each other is no work.
    """
    now = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    start = now()
    function()
    return now() - start


def gpu_seconds(function: Callable[[], object]) -> float:
    """Seconds on the GPU."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    function()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


def interleaved(
    functions: dict[str, Callable[[], object]], repeats: int, device: str = "cpu", budget: float = math.inf
) -> dict[str, list[float]]:
    """
    Seconds per call. The functions take turns, so that a machine that slows down slows down all of them; every one
    runs once before it counts. After `budget` seconds, 5 repeats are enough.
    """
    time_call = gpu_seconds if device == "cuda" else host_seconds
    for function in functions.values():
        function()
    seconds = {name: [] for name in functions}
    stop = time.monotonic() + budget
    for repeat in range(repeats):
        if repeat >= 5 and time.monotonic() > stop:
            break
        for name, function in functions.items():
            seconds[name].append(time_call(function))
    return seconds


def digest(*parts: object) -> str:
    """Say whether something is the same: what files contain, and other values as they are written."""
    contents = (part.read_bytes() if isinstance(part, Path) else repr(part).encode() for part in parts)
    return hashlib.sha256(b"".join(hashlib.sha256(content).digest() for content in contents)).hexdigest()[:12]


def summary(seconds: list[float]) -> dict[str, float]:
    """Columns of a table for the times of one function."""
    return {"median": statistics.median(seconds), "min": min(seconds), "max": max(seconds)}


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Let torch have so many threads in this block; `None`: as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def in_new_process(function: Callable, *args):
    """Call a function at the top of a module in a process of its own with as many threads as this one."""
    context, threads = get_context("spawn"), torch.get_num_threads()
    with ProcessPoolExecutor(1, context, torch.set_num_threads, (threads,)) as pool:
        return pool.submit(function, *args).result()


def proc_bytes(file: str, name: str) -> int:
    """A figure that Linux has of this process ("self/status") or of the machine ("meminfo")."""
    lines = Path("/proc", file).read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024


def peak_memory() -> int:
    """The peak resident memory of this process so far, or since `forget_peak_memory`, in bytes."""
    if Path("/proc/self/status").exists():  # unlike ru_maxrss, this knows nothing of the process that started this one
        return proc_bytes("self/status", "VmHWM")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def forget_peak_memory() -> None:
    """Let `peak_memory` begin anew, where Linux can."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def limit_memory() -> None:
    """Make lack of memory an error in this process, and not the end of some process."""
    limit = proc_bytes("self/status", "VmSize") + proc_bytes("meminfo", "MemAvailable")
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def make_parser(description: str, quick: str, has_gpu: bool = False, goes_on: bool = True) -> argparse.ArgumentParser:
    """The arguments that all benchmarks of speed and memory have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--threads", type=int, default=1)
    if goes_on:
        parser.add_argument("--again", action="store_true", help="measure again what is already in the table")
    parser.add_argument("--output_dir", type=Path, default=RESULTS, help="folder of the table")
    if has_gpu:
        parser.add_argument(
            "--device",
            choices=["cpu", *["cuda"] * torch.cuda.is_available(), REHEARSAL],
            default="cpu",
            help="rehearsal: what a GPU would run, on the CPU",
        )
        seconds = lambda minutes: time.monotonic() + 60 * float(minutes)
        parser.add_argument(
            "--minutes",
            type=seconds,
            dest="deadline",
            default=math.inf,
            help="start no new measurement after this time",
        )
    return parser


def torch_device(device: str) -> str:
    return "cpu" if device == REHEARSAL else device


@cache
def model_sources() -> str:
    """Changes with the model, its kernels and their tiles."""
    return digest_of(("modeling_lion", "configuration_lion"))


def gpu(device: str = "cuda") -> dict[str, str | None]:
    """Columns of a table for what is measured on a GPU: times of other sources or other tiles have other values."""
    if device == REHEARSAL:
        return {"gpu": REHEARSAL, "tiles_measured_on": None, "sources": model_sources()}
    from modeling_lion.triton import config as triton_config
    from modeling_lion.triton import launch_options

    tiles = launch_options.architecture(torch.device("cuda", 0)), 16, 64
    about = {"gpu": torch.cuda.get_device_name(), "tiles_measured_on": triton_config.MEASURED.get(tiles)}
    return about | {"sources": model_sources()}


def about_gpu() -> str:
    """GPU and versions, in a line."""
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    others = [f"{package} {version(package)}" for package in ("triton", "transformers", "tokenizers")]
    return ", ".join([name, f"Python {platform.python_version()}", f"torch {torch.__version__}", *others])


def machine() -> dict[str, str | int]:
    """CPU, GPU if there is one, and versions: the last columns of every row."""
    cpu = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.split(":")[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        cpu = names[0] if names else cpu
    capability = torch.backends.cpu.get_cpu_capability()
    if torch.cuda.is_available():
        capability += f", {torch.cuda.get_device_name()}"
    return {
        "cpu": cpu,
        "capability": capability,
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def append_rows(path: Path, rows: list[dict]) -> None:
    """
    Add rows, the machine and the day to a table, which is made if it is not there. Several processes may add to one
    table at a time, and a last line that a killed process left without its end is removed.

    Raises:
        ValueError: if a row has a column that the table has not.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed, and so written
        file.seek(0)
        content = file.read()
        complete = complete_lines(content)
        kept = complete.encode()
        file.truncate(min(len(kept), len(content)))
        file.write(kept[len(content) :])  # the end of a last line that lacks it
        rows = [row | machine() | {"day": date.today().isoformat()} for row in rows]
        columns = next(csv.reader(complete.splitlines()), list(rows[0]))
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        if not complete:
            writer.writeheader()
        for row in rows:
            writer.writerow({name: f"{x:.8g}" if isinstance(x, float) else x for name, x in row.items()})
        file.write(text.getvalue().encode())


def complete_lines(content: bytes) -> str:
    """Without a last line that a killed process has not finished; a whole one, which ends with a day, gets its end."""
    last = content.rpartition(b"\n")[2]
    if re.fullmatch(rb".+,\d{4}-\d\d-\d\d", last):
        return f"{content.decode()}\n"
    return content[: len(content) - len(last)].decode()


def read_rows(path: Path, **values) -> list[dict]:
    """The rows of a table that have these values, the latest last; numbers as numbers, an empty cell as `None`."""
    if not path.exists():
        return []
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        lines = complete_lines(file.read()).splitlines()
    rows = ({name: parse_cell(cell) for name, cell in row.items()} for row in csv.DictReader(lines))
    return [row for row in rows if values.items() <= row.items()]


def parse_cell(cell: str) -> int | float | str | None:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(cell)
    return cell or None


def latest(rows: list[dict], *columns: str) -> dict[tuple, dict]:
    """The last row with each combination of values of some columns."""
    return {tuple(row[name] for name in columns): row for row in rows}


def is_measured(path: Path, cases: list[dict]) -> bool:
    """
    Whether a table has all of these cases from this machine, with these versions and as many threads; on a GPU, cases
    have the columns of `gpu`, and so these sources and tiles.
    """
    return all(read_rows(path, **case, **machine()) for case in cases)


def is_ours(output_dir: Path) -> bool:
    """Whether a folder of tables is the repository's."""
    return output_dir.resolve() == RESULTS.resolve()


def add_columns(path: Path, *columns: str) -> None:
    """Give a table the columns of today's rows that it lacks, empty in its earlier rows, if it is there."""
    if not path.exists():
        return
    with path.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        header, *rows = [*csv.reader(complete_lines(file.read()).splitlines())] or [[]]
        new = [column for column in columns if column not in header]
        if not new or not header:  # a process that was killed may leave an empty file
            return
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([[*header, *new], *([*row, *[""] * len(new)] for row in rows)])
        file.seek(0)
        file.write(text.getvalue().encode())
        file.truncate()


def table_of(args: argparse.Namespace, name: str) -> Path:
    """Where rows go, by the device and the dtype of a run."""
    suffix = "_gpu" if args.device != "cpu" else "" if args.dtype == "float32" else f"_{args.dtype}"
    path = args.output_dir / f"{name}{suffix}.csv"
    if args.device != "cpu":
        add_columns(path, "sources")
    return path
