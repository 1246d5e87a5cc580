# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Everything that needs a GPU, in one command with a time limit: correctness, tuning and benchmarks of the kernels.

    python benchmarks/gpu_session.py --minutes 28 --output_dir outputs/gpu
    python benchmarks/gpu_session.py --steps correctness tuning --minutes 9      # a part, if time comes in pieces
    python benchmarks/gpu_session.py --dry_run                                   # what it would run; needs no GPU

Every step has a share of the time and is stopped when it is used up; what it has written until then is kept. After
every step `session.json` says what was run, how it ended, and how long it took; the output of each step is beside it.
The tuning writes modeling_lion/triton_config.py, of which the new one is copied there, too.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path


ROOT = Path(__file__).resolve().parent.parent
# Step, its share of the time, and what it runs; "{output}" is the output folder. The short benchmark comes before the
# tuning, so that a session that ends early has figures.
STEPS = {
    "correctness": (
        0.25,
        ["-m", "pytest", "-q", "-ra", "--tb=short", "-p", "no:cacheprovider", "tests/triton_cases.py"],
    ),
    "first_figures": (0.1, ["benchmarks/bench_gpu.py", "--parts", "kernels", "--lengths", "1024", "128"]),
    "tuning": (0.2, ["benchmarks/tune_triton.py", "--bits", "16", "--dims", "64"]),
    "kernels": (0.25, ["benchmarks/bench_gpu.py", "--parts", "kernels"]),
    "models": (0.2, ["benchmarks/bench_gpu.py", "--parts", "models"]),
}


def run(name: str, command: list[str], seconds: float, folder: Path) -> dict:
    """Run a step for at most `seconds`; its output goes to `<name>.txt`."""
    start = time.monotonic()
    with open(folder / f"{name}.txt", "w") as log:
        process = subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            code = None
    lines = (folder / f"{name}.txt").read_text(errors="replace").splitlines()
    took = round(time.monotonic() - start)
    return {"step": name, "exit_code": code, "stopped": code is None, "seconds": took, "last_lines": lines[-5:]}


def command_of(step: str, seconds: float, folder: Path) -> list[str]:
    _, command = STEPS[step]
    if "bench_gpu" in command[0]:
        # A part of the time is for a last row and the plots.
        return [*command, "--minutes", f"{0.7 * seconds / 60:.1f}", "--output_dir", str(folder / step)]
    if step == "tuning":
        return [*command, "--seconds", f"{0.8 * seconds:.0f}"]
    return command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=28)
    parser.add_argument("--steps", nargs="+", choices=list(STEPS), default=list(STEPS))
    parser.add_argument("--dry_run", action="store_true")
    parser.add_argument("--output_dir", type=Path, default=ROOT / "outputs" / "gpu")
    arguments = parser.parse_args()
    folder = arguments.output_dir.resolve()
    end = time.monotonic() + 60 * arguments.minutes
    done = []
    for i, step in enumerate(arguments.steps):
        # What an earlier step left of its share goes to the later ones.
        shares = [STEPS[name][0] for name in arguments.steps[i:]]
        seconds = max(0.0, end - time.monotonic()) * shares[0] / sum(shares)
        command = command_of(step, seconds, folder)
        print(f"{step}, at most {seconds:.0f} s: python {' '.join(command)}", flush=True)
        if arguments.dry_run:
            continue
        folder.mkdir(parents=True, exist_ok=True)
        done.append(run(step, command, seconds, folder))
        if step == "tuning":
            shutil.copy(ROOT / "modeling_lion" / "triton_config.py", folder / "triton_config.py")
        (folder / "session.json").write_text(json.dumps(done, indent=1) + "\n")
        print("\n".join(done[-1]["last_lines"]), flush=True)
    if any(result["exit_code"] != 0 for result in done):
        raise SystemExit("Not every step ended well: " + ", ".join(r["step"] for r in done if r["exit_code"] != 0))


if __name__ == "__main__":
    main()
