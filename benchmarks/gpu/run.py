# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What a GPU has to say about LION, one command for each part, with the Python that runs this and without installing
anything:

    python benchmarks/gpu/run.py check tune quick --out outputs/gpu --minutes 8
    python benchmarks/gpu/run.py figures models --out outputs/gpu --minutes 4
    python benchmarks/gpu/run.py all --out outputs/gpu --minutes 60
    python benchmarks/gpu/run.py paper --out outputs/gpu --data fashion    # again, until it says that all is there
    python benchmarks/gpu/run.py all --out outputs/rehearsal --rehearse    # on a CPU, small

A call prints what it will do and how long each part may take, and ends by itself after --minutes. It fails if a part
does: if nothing was checked, for example, or if a case is wrong. What it found is in the folder --out at once, and the
next call with that folder goes on from there: report.md, tables, a picture, the tuned config.py, the outcomes of the
checks, and logs.tar.gz. Each part but `check` uses the tuned tiles of that folder. docs/benchmarks/gpu.md says what
each part does. No setting of the GPU is changed.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path


sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gpu.tree import ROOT, python_path  # noqa: E402
from gpu.worker import end_with_parent  # noqa: E402


CONFIG = ROOT / "modeling_lion" / "triton" / "config.py"
DIMS = {64: 170, 128: 90, 32: 60}  # seconds of tuning, by head dimension
PROCESSES = os.cpu_count() or 12  # that check cases: each compiles most of the time


class Run:
    """A call: its folder, its time, and the processes that it starts."""

    def __init__(self, arguments: argparse.Namespace, scratch: Path):
        self.arguments, self.out, self.rehearses = arguments, arguments.out, arguments.rehearse
        self.end = self.stop = time.monotonic() + 60 * arguments.minutes  # of the call, and of a part
        self.faults = []
        self.device = "rehearsal" if self.rehearses else "cuda"
        self.logs = scratch / "logs"
        self.logs.mkdir()
        (scratch / "path").mkdir()
        self.environment = os.environ | {
            "PYTHONPATH": python_path(scratch / "path", arguments.wheels),
            "PYTHONUNBUFFERED": "1",
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "OMP_NUM_THREADS": "1",
        }
        if self.rehearses:
            self.environment |= {"CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "0"}
        self.scratch, self.archive = scratch, self.out / "logs.tar.gz"
        if self.archive.exists():
            with tarfile.open(self.archive) as packed:
                packed.extractall(self.logs, filter="data")

    def python(
        self, name: str, *arguments: object, seconds: float, echo: bool = True, fine=(0, -1), **environment: str
    ) -> int:
        """
        Run Python with these arguments, at most so long, and add what it prints to a log; its exit code, -1 if it was
        stopped. Any other than those that are `fine` is a fault of the call.
        """
        seconds = min(seconds, self.stop - time.monotonic() - 5)
        if seconds < 1:
            return -1
        command = [sys.executable, *map(str, arguments)]
        with (self.logs / f"{name}.log").open("a") as log:
            log.write(f"\n$ {' '.join(command)}\n")
            log.flush()
            position = log.tell()
            process = subprocess.Popen(
                command, cwd=ROOT, env=self.environment | environment, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=end_with_parent,
            )  # fmt: skip
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                code = -1
            finally:
                if process.poll() is None or code == -1:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                with tarfile.open(self.archive, "w:gz") as packed:
                    for path in sorted(self.logs.iterdir()):
                        packed.add(path, path.name)
        text = (self.logs / f"{name}.log").read_bytes()[position:].decode(errors="replace")
        if code not in fine:
            self.faults.append(f"{name} ended with {code}")
        if echo or code not in fine:
            print(text[-3000:] if code not in fine else text, end="", flush=True)
        return code

    def bench(self, script: str, *arguments: object, seconds: float, name: str | None = None) -> int:
        """One of the scripts of benchmarks/, on this device, with its table in the folder."""
        where = ("--device", self.device, "--output_dir", self.out)
        return self.python(
            name or script, f"benchmarks/{script}.py", *where, *arguments, "--minutes", seconds / 60, seconds=seconds
        )

    @cached_property
    def about(self) -> str:
        """GPU and versions, from a process of its own: this one imports neither torch nor the model."""
        code = "from measure import about_gpu; print(about_gpu())"
        command = [sys.executable, "-c", code]
        result = subprocess.run(command, cwd=ROOT, env=self.environment, capture_output=True, text=True)
        if result.returncode:
            raise SystemExit(f"This Python cannot run the benchmarks:\n{result.stderr[-2000:]}")
        about = result.stdout.strip()
        if "no GPU" in about and not self.rehearses:
            raise SystemExit(f"{about}; give --rehearse to see that everything runs.")
        return about


def check(run: Run) -> str:
    from gpu.check import CASES, REHEARSED, key_of_sources, outcomes, summary

    file, key = run.out / "check.jsonl", key_of_sources(run.about)
    passed, count = run.scratch / "passed", run.scratch / "count"
    passed.write_text("\n".join(case for case, x in outcomes(file, key).items() if x["outcome"] != "failed"))
    count.write_text("0")
    options = ["-q", "--tb=short", "-p", "gpu.outcomes", "-p", "no:cacheprovider", "-W", "default", "--color=no"]
    options += ["--continue-on-collection-errors"]
    environment = {"LION_OUTCOMES": str(file), "LION_PASSED": str(passed), "LION_COUNT": str(count), "LION_KEY": key}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # of others that are installed
    if run.rehearses:
        options += ["-k", REHEARSED]
        environment |= {"TRITON_INTERPRET": "1"}
    else:
        options += ["-p", "xdist", "-n", PROCESSES, "--dist", "worksteal", "--max-worker-restart", 200]
    run.python("check", "-m", "pytest", *options, *CASES, seconds=380, echo=False, fine=(0, 5, -1), **environment)
    text = summary(outcomes(file, key), int(count.read_text()))
    if not text.startswith("0 of "):
        run.faults.append(f"check: {text.splitlines()[0]}")
    return text


def quick(run: Run) -> str:
    from gpu.speed import eight_numbers

    lengths = (64, 96) if run.rehearses else (512, 4096)
    size = ("--batch_size", 1, "--seconds", 0.1) if run.rehearses else ("--seconds", 2)
    run.bench(
        "bench_kernels", "--lengths", *lengths, "--kernels", "flash", "cudnn", "auto", *size, seconds=150, name="quick"
    )  # fmt: skip
    return eight_numbers(run.out / "kernels_gpu.csv", lengths)


def values_of(file: Path) -> dict:
    """The names that a config.py defines."""
    values = {}
    exec(file.read_text(), values)
    return values


def install_tiles(run: Run) -> None:
    """Put the tiles that an earlier call has tuned into the code, unless they are of kernels with other options."""
    found = run.out / "config.py"
    if not run.rehearses and found.exists() and values_of(found)["COLUMNS"] == values_of(CONFIG)["COLUMNS"]:
        shutil.copy(found, CONFIG)


def tune(run: Run) -> str:
    found = run.out / "config.py"
    if run.rehearses:
        shutil.copy(CONFIG, found)
    for dim, seconds in ({64: 150} if run.rehearses else DIMS).items():
        seconds = min(seconds, run.stop - time.monotonic() - 20)
        if seconds < 10:
            break
        options = ("--dtypes", "bfloat16", "--dims", dim, "--seconds", seconds, "--times", run.out / "tuning.csv")
        options += ("--rehearse", "--file", found) if run.rehearses else ()
        run.python("tune", "benchmarks/tune_triton.py", *options, seconds=seconds + 60)
        if run.rehearses:
            continue
        shutil.copy(CONFIG, found)
        options = ("--compile", "--architectures", "here", "--dtypes", "bfloat16", "float16", "--dims", dim)
        code = run.python("tune", "benchmarks/tune_triton.py", *options, seconds=75, echo=False)
        print({0: "every form compiles without faults", -1: "no time was left to compile every form"}.get(code, ""))
    written = values_of(found if found.exists() else CONFIG)
    about = [f"{'/'.join(map(str, key))}: measured on {gpu}" for key, gpu in written["MEASURED"].items()]
    about += [f"the full form is faster up to {written['PARALLEL_UP_TO']} tokens"]
    return "\n".join([*about, f"{found.name} is for {CONFIG.relative_to(ROOT)}"])


def figures(run: Run) -> str:
    from gpu.speed import figures_table
    from report import reader
    from reports.gpu import draw_kernels_on_a_gpu
    from training_lion.scripts.pictures import plt, save

    size = ("--batch_size", 1, "--seconds", 0.1) if run.rehearses else ()
    kernels = ("--kernels", "flash", "cudnn", "auto", "plain", "without division", "two passes")
    if run.bench("bench_kernels", *size, *kernels, seconds=360, name="figures") > 0:
        for length in (1024, 512, 4096, 128, 16384, 65536):  # what one length breaks leaves the others
            run.bench("bench_kernels", *size, *kernels, "--lengths", length, seconds=120, name="figures")
    compiled = ("--kernels", "flash", "cudnn", "compiled plain")
    lengths = (64,) if run.rehearses else (1024, 4096)
    run.bench("bench_kernels", *size, *compiled, "--lengths", *lengths, seconds=120, name="figures")
    save(draw_kernels_on_a_gpu(reader(run.out), plt), run.out / "figures.png")
    return figures_table(run.out / "kernels_gpu.csv")


def models(run: Run) -> str:
    from gpu.speed import models_table

    steps = ("--modes", "train", "--repeats", 20)
    lions = ("LION-LIT", "LION-D", "LION-S", "LION")
    published = ("--text_lengths", 128, "--image_sizes", 224, "--document_lengths", "--batch_size", 256)
    documents = ("--text_lengths", "--image_sizes", "--document_lengths", 8192, "--batch_size", 8)
    of_documents = ()
    if run.rehearses:
        steps, lions = ("--modes", "train", "--repeats", 1, "--layers", 1, "--base_layers", 1), ("LION-LIT",)
        published = ("--text_lengths", "--image_sizes", 32, "--document_lengths", "--batch_size", 1)
        documents = ("--text_lengths", "--image_sizes", "--document_lengths", 16, "--batch_size", 1)
        of_documents = ("--models", "ModernBERT-base", "ModernBERT-base, linear")
    names = ("BERT", "ViT", *lions, "BERT, linear", "ViT, linear")
    run.bench("bench_models", *steps, *published, "--models", *names, seconds=270, name="models")
    run.bench("bench_models", *steps, *documents, *of_documents, seconds=150, name="models")
    return models_table(run.out / "models_gpu.csv")


def paper(run: Run) -> str:
    if run.arguments.data is None and not run.rehearses:
        return "needs --data, the folder with the files of Debian's package dataset-fashion-mnist"
    from gpu.speed import paper_table

    options = ["--seeds", run.arguments.seeds]
    if run.arguments.data is not None:
        options += ["--data", run.arguments.data.resolve()]
    if run.rehearses:
        options += ["--images", 64, "--epochs", 1, "--batch_size", 32, "--layers", 1, "--seeds", 1]
        options += ["--models", "softmax", "LION-S♮", "two Mamba-2"]
    run.bench("gpu/fashion", *options, seconds=25 * 60, name="paper")
    return paper_table(run.out / "paper_gpu.csv")


# In the order in which they count, with their minutes.
PARTS: dict[str, tuple[Callable[[Run], str], float]] = {
    "check": (check, 3),
    "tune": (tune, 4),
    "quick": (quick, 1),
    "figures": (figures, 3),
    "models": (models, 4),
    "paper": (paper, 25),
}
LEAST = 20  # seconds, for less than which no part is begun


def shares(parts: list[str], minutes: float) -> dict[str, float]:
    """
    The minutes of each part: those of PARTS, or all more or less in the same ratio. If there are less, `paper` gets
    what the others leave.
    """
    usual = {part: PARTS[part][1] for part in parts}
    missing = max(0.0, sum(usual.values()) - minutes)
    if missing and "paper" in usual:
        usual["paper"] = max(0.0, usual["paper"] - missing)
    total = sum(usual.values())
    return {part: minutes * x / total for part, x in usual.items()}


def title(is_rehearsal: bool) -> str:
    return "# Rehearsal, without a GPU: its times say nothing" if is_rehearsal else "# What a GPU says"


def add_to_report(file: Path, part: str, text: str, heading: str = title(False)) -> None:
    """The parts in their order, each as the last call of it left it."""
    sections = {}
    for section in file.read_text().split("\n## ")[1:] if file.exists() else []:
        name, _, body = section.partition("\n")
        sections[name] = body.strip()
    sections[part] = text
    report = [f"\n## {name}\n\n{sections[name]}\n" for name in PARTS if name in sections]
    file.write_text(f"{heading}\n" + "".join(report))


def run_parts(run: Run, parts: list[str]) -> None:
    """Run some parts, each for its share of the time, and report each at once."""
    report, heading = run.out / "report.md", title(run.rehearses)
    if report.exists() and not report.read_text().startswith(heading + "\n"):
        raise SystemExit(f"{report} is {'not ' if run.rehearses else ''}that of a rehearsal: give another --out")
    print(run.about, flush=True)
    plan = shares(parts, run.arguments.minutes)
    print("plan: " + ", ".join(f"{part} at most {minutes:.1f} min" for part, minutes in plan.items()), flush=True)
    for part, minutes in plan.items():
        start = time.monotonic()
        if run.end - start < LEAST or minutes * 60 < LEAST:
            print(f"{part}: no time is left; call again", flush=True)
            continue
        later = sum(list(plan.values())[parts.index(part) + 1 :])
        run.stop = max(start + 60 * minutes, run.end - 60 * later)  # with what earlier parts have left
        if part != "check":
            install_tiles(run)
        text = PARTS[part][0](run)
        add_to_report(report, part, f"{run.about}\n\n{text}", heading)
        print(f"\n== {part}, {time.monotonic() - start:.0f} s\n{text}\n", flush=True)
    if run.faults:
        raise SystemExit("FAULTS: " + "; ".join(run.faults))


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Meanwhile, a signal that asks for the end raises SystemExit, so that `Run.python` kills what it has started."""
    numbers = signal.SIGTERM, signal.SIGINT, signal.SIGHUP
    before = {number: signal.signal(number, lambda number, _: sys.exit(128 + number)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main(args: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=[*PARTS, "all"], metavar="part", help=", ".join([*PARTS, "all"]))
    parser.add_argument("--out", type=Path, required=True, help="folder of what is found, and of earlier calls")
    parser.add_argument("--minutes", type=float, default=9, help="the call ends after so many; default: 9")
    parser.add_argument("--rehearse", action="store_true", help="small, on the CPU, to see that it runs")
    parser.add_argument("--data", type=Path, help="paper: folder with the files of dataset-fashion-mnist")
    parser.add_argument("--seeds", type=int, default=3, help="paper: trainings of each model; default: 3")
    parser.add_argument("--wheels", type=Path, help="folder with wheels of flash-linear-attention")
    arguments = parser.parse_args(args)
    arguments.out = arguments.out.resolve()
    arguments.out.mkdir(parents=True, exist_ok=True)
    chosen = list(PARTS) if "all" in arguments.parts else [part for part in PARTS if part in arguments.parts]
    with ended_by_signals(), tempfile.TemporaryDirectory() as scratch:
        run_parts(Run(arguments, Path(scratch)), chosen)


if __name__ == "__main__":
    main()
