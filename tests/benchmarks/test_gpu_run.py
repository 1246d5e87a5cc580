# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""benchmarks/gpu/: a rehearsal of what a GPU is to run, and how its results are read."""

import gzip
import hashlib
import importlib
import os
import re
import signal
import subprocess
import sys
import time
from importlib.metadata import distributions, packages_distributions, version
from pathlib import Path

import pytest
import torch
from measure import append_rows, read_rows
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from reports.names import PASSES
from tasks import fashion_mnist


ROOT = Path(__file__).parents[2]
pytest.importorskip("tomllib", reason="Python 3.11 has it")
check, speed, tree = (importlib.import_module(f"gpu.{name}") for name in ("check", "speed", "tree"))
gpu_tables = importlib.import_module("reports.gpu")
run = importlib.import_module("gpu.run")


# Hides from every process of a call what was not named.
ONLY = """
import sys
from importlib.machinery import PathFinder
find_spec = PathFinder.find_spec
PathFinder.find_spec = classmethod(lambda _, name, *rest: None if name in {hidden} else find_spec(name, *rest))
"""


def named_packages() -> set[str]:
    """The distributions that the page names, and what these need."""
    page = " ".join((ROOT / "docs" / "benchmarks" / "gpu.md").read_text().split())
    names = re.search(r"with torch for CUDA, (.*?)\. It needs no network", page)[1]
    todo, found = ["torch", *re.split(r", | and ", names)], set()
    while todo:
        name = canonicalize_name(todo.pop())
        if name not in found and distributions(name=name):
            found.add(name)
            requirements = [Requirement(x) for d in distributions(name=name) for x in d.requires or []]
            todo += [x.name for x in requirements if x.marker is None or x.marker.evaluate({"extra": ""})]
    return found


@pytest.fixture
def only_what_is_named(tmp_path, monkeypatch):
    """Calls find no package that the page does not name."""
    named = named_packages()
    hidden = {
        name
        for name, some in packages_distributions().items()
        if not {canonicalize_name(x) for x in some} & (named | {"lion-transformers"})
    }
    assert "hypothesis" in hidden and not hidden & {"torch", "pytest", "xdist", "numpy", "modeling_lion"}
    (tmp_path / "hiding").mkdir()
    (tmp_path / "hiding" / "sitecustomize.py").write_text(ONLY.format(hidden=hidden))
    path = [str(tmp_path / "hiding"), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    code = "import importlib.util as u; print(u.find_spec('hypothesis'), u.find_spec('pytest').name)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "None pytest\n"
    return tmp_path / "out"


@pytest.mark.slow
def test_tables_need_only_what_is_named(only_what_is_named):
    code = "import bench_kernels, bench_models, gpu.fashion"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "benchmarks", capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
def test_rehearsal(only_what_is_named, capsys, monkeypatch):
    """Three of the parts, since the others start the same processes; a second call finds that all is there."""
    tmp_path = only_what_is_named
    command = [sys.executable, "benchmarks/gpu/run.py", "check", "--rehearse", "--out", tmp_path]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
    assert re.search("\n0 of [1-9]", result.stdout) and "\nplan: check at most 9.0 min\n" in result.stdout
    monkeypatch.setattr(run.Run, "about", "no GPU")  # which each call asks of a process of its own
    outputs = []
    for part in ("quick", "paper", "paper"):
        run.main([part, "--rehearse", "--out", str(tmp_path)])
        outputs.append(capsys.readouterr().out)
    assert len(outputs[2]) < len(outputs[1])
    report = (tmp_path / "report.md").read_text()
    assert [line[3:] for line in report.splitlines() if line.startswith("## ")] == ["check", "quick", "paper"]
    assert (
        report.startswith("# Rehearsal, ") and report.count("no GPU") == 3 and f"torch {torch.__version__}" in report
    )
    assert "| LION-LIT | " in report and "| softmax | " in report
    names = {"report.md", "check.jsonl", "kernels_gpu.csv", "paper_gpu.csv", "logs.tar.gz"}
    assert {path.name for path in tmp_path.iterdir()} == names


def test_a_call_that_checks_nothing_fails(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(run.Run, "about", "no GPU")
    monkeypatch.setattr(run.sys, "executable", "false")  # as if pytest could not start
    with pytest.raises(SystemExit, match="check ended with 1; check: NOTHING WAS CHECKED: of 0 cases, none has run"):
        run.main(["check", "--rehearse", "--out", str(tmp_path)])
    assert "NOTHING" in (tmp_path / "report.md").read_text()
    monkeypatch.setattr(run.Run, "about", "H100")
    with pytest.raises(SystemExit, match="another --out"):
        run.main(["check", "--out", str(tmp_path)])


@pytest.mark.parametrize("part", ["check", "tune", "quick", "figures", "models", "paper"])
def test_parts_but_the_check_take_the_tiles_of_an_earlier_call(tmp_path, monkeypatch, part):
    monkeypatch.setattr(run.Run, "about", "H100")
    code, out = tmp_path / "config.py", tmp_path / "out"
    out.mkdir()
    monkeypatch.setattr(run, "CONFIG", code)
    seen = []
    monkeypatch.setitem(run.PARTS, part, (lambda call: seen.append(code.read_text()) or "", 1))
    text = "COLUMNS = {'sizes': ('tile',)}\nTABLE = "
    for columns, expected in (("tile", "0" if part == "check" else "1"), ("tiles", "0")):
        code.write_text(f"{text}0")
        (out / "config.py").write_text(f"{text}1".replace("tile", columns))
        run.main([part, "--out", str(out)])
        assert seen.pop() == f"{text}{expected}"
    run.main([part, "--out", str(tmp_path / "rehearsal"), "--rehearse"])
    assert seen.pop() == f"{text}0"


def test_shares_of_the_time():
    """A quarter of an hour, in two calls that leave something for the start of the machine; and what is left out."""
    assert run.shares(["check", "tune", "quick"], 8) == {"check": 3, "tune": 4, "quick": 1}
    assert min(run.shares(["figures", "models"], 4).values()) > 1.5
    page = (ROOT / "docs" / "benchmarks" / "gpu.md").read_text()
    minutes = [
        int(x) for x in re.findall(r"\npython benchmarks/gpu/run.py [a-z ]+ --out outputs/gpu --minutes (\d+)", page)
    ]
    assert len(minutes) == 2 and sum(minutes) <= 13 and max(minutes) <= 10
    parts = list(run.PARTS)
    short, all_of_them, long = (run.shares(parts, n) for n in (9, 20, 80))
    assert short["paper"] == 0 and min(short[part] for part in parts[:-1]) * 60 > run.LEAST
    assert all_of_them == {part: run.PARTS[part][1] for part in parts[:-1]} | {"paper": 5}
    assert long == {part: 2 * run.PARTS[part][1] for part in parts}
    for found, n in ((short, 9), (all_of_them, 20), (long, 80)):
        assert sum(found.values()) == pytest.approx(n)


CHILD = """
import sys
from pathlib import Path
from types import SimpleNamespace
sys.path.insert(0, "benchmarks")
from gpu import run
run.Run.about = "no GPU"
code = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(100)"
run.PARTS["check"] = (lambda call: call.python("check", "-c", code, call.out / "pid", seconds=100), 1)
run.main(["check", "--rehearse", "--out", sys.argv[1]])
"""


def is_running(process: int) -> bool:
    stat = Path(f"/proc/{process}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_call_that_is_ended_ends_what_it_started(tmp_path, number):
    call = subprocess.Popen([sys.executable, "-c", CHILD, tmp_path], cwd=ROOT, stdout=subprocess.DEVNULL)
    file, stop = tmp_path / "pid", time.monotonic() + 60
    while not (file.exists() and file.read_text()) and time.monotonic() < stop:
        time.sleep(0.05)
    child = int(file.read_text())
    assert is_running(child)
    call.send_signal(number)
    assert call.wait(30) == (-number if number == signal.SIGKILL else 128 + number)
    stop = time.monotonic() + 10
    while is_running(child) and time.monotonic() < stop:
        time.sleep(0.05)
    assert not is_running(child)
    assert (tmp_path / "logs.tar.gz").exists() == (number != signal.SIGKILL)


def test_packages_without_installation(tmp_path):
    path = tree.python_path(tmp_path)
    names = ("tokenization_lion", "training_lion", "hub_upload_lion", "modeling_lion")
    code = f"import importlib.metadata, importlib.util\nfor x in {names}: print(importlib.util.find_spec(x).origin)\n"
    code += "print(importlib.metadata.version('lion-transformers'))"
    environment = os.environ | {"PYTHONPATH": path}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    *files, number = found.stdout.split()
    assert files == [str((tmp_path if x != "modeling_lion" else ROOT) / x / "__init__.py") for x in names]
    assert number == version("lion-transformers")


@pytest.mark.parametrize("processes", [1, 3, 4])
def test_what_most_often_failed_is_checked_first(processes):
    """At the start of what each process gets, as many cases in a row."""
    cases = [
        f"f::{name}[{x}-{mixer}-{i}]"
        for i in range(3)
        for name in "ab"
        for x in ("tf32", "torch.float32")
        for mixer in ("lit", "decay", "selective")
    ]
    found = check.in_order(cases, processes)
    assert sorted(found) == sorted(cases)
    size = len(cases) // processes
    for i in range(processes):
        own = [check.comes_first(case) for case in found[i * size : (i + 1) * size]]
        assert sum(own) in (12 // processes, -(-12 // processes)) and own == sorted(own, reverse=True)


OUTCOMES = """
import pytest
@pytest.mark.parametrize("n", range(3))
def test_n(n):
    assert n != 1, "is one"
"""


@pytest.mark.slow
def test_what_has_passed_is_left_out(tmp_path):
    (tmp_path / "test_it.py").write_text(OUTCOMES)
    file, passed = tmp_path / "check.jsonl", tmp_path / "passed"
    passed.write_text("test_it.py::test_n[0]\n")
    environment = {"LION_OUTCOMES": str(file), "LION_PASSED": str(passed), "LION_KEY": "k"}
    environment |= {"LION_COUNT": str(tmp_path / "count"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    path = os.pathsep.join([str(ROOT / "benchmarks"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "gpu.outcomes", "-p", "xdist", "-n", "1"]
    subprocess.run(command, cwd=tmp_path, env=os.environ | environment | {"PYTHONPATH": path}, capture_output=True)
    found = check.outcomes(file, "k")
    assert {name: x["outcome"] for name, x in found.items()} == {
        "test_it.py::test_n[1]": "failed",
        "test_it.py::test_n[2]": "passed",
    }
    assert (tmp_path / "count").read_text() == "3"
    assert "is one" in found["test_it.py::test_n[1]"]["message"]


def test_the_least_time_of_attention():
    """Computed by hand for one row of bench_kernels.py: 12 heads of 64, in bfloat16."""
    tokens = 12 * 1024
    assert gpu_tables.work("softmax", 1024, 1, PASSES[0]) == (4 * 1024 * 64 * tokens, 8 * 64 * tokens)
    assert gpu_tables.work("LION-LIT", 1024, 1, PASSES[0]) == (4 * 64 * 64 * tokens, 8 * 64 * tokens)
    assert gpu_tables.work("LION-D", 1024, 1, PASSES[0])[0] == (4 * 64 * 64 + 8 * 64 * 64) * tokens
    assert gpu_tables.work("LION-S", 64, 1, PASSES[1])[0] == 18 * 64 * 64 * 12 * 64  # one chunk needs no states


def test_ratios_and_shares_of_the_limits(tmp_path):
    table = tmp_path / "kernels_gpu.csv"
    common = {"batch": 1, "min": 1.0, "max": 1.0, "error": None, "note": None, "gpu": "H100"}
    limits = {("matrix product", 1000): 2e-6, ("copy", 1000): 1e-6}  # 1e15 operations and 2e9 bytes a second
    rows = [
        {"length": n, "pass": PASSES[0], "mixer": "limit", "kernel": kernel, "median": x}
        for (kernel, n), x in limits.items()
    ]
    times = {("softmax", "flash"): 0.04, ("softmax", "cudnn"): None, ("LION-S", "auto"): 0.01}
    rows += [
        {"length": 1024, "pass": PASSES[0], "mixer": mixer, "kernel": kernel, "median": x}
        for (mixer, kernel), x in times.items()
    ]
    append_rows(table, [common | row for row in rows])
    found = gpu_tables.Kernels(read_rows(table))
    assert found.ratio(1024, PASSES[0], "LION-S") == 0.25
    operations, size, share = found.rates(1024, PASSES[0], "LION-S")
    assert size == pytest.approx((8 * 64 + 8) * 12 * 1024 / 0.01) and share == pytest.approx(size / 2e9)
    assert "| LION-S | 0.25 |" in speed.figures_table(table).replace(" \\|  |", " |")
    assert "| … asked | 0.80 \\| 0.80 |" in speed.figures_table(table)
    old, new = ({"gpu": "H100", "sources": x} for x in (None, "new"))
    assert gpu_tables.same_sources([old, new, new]) == [new, new] and gpu_tables.same_sources([]) == []
    page = gpu_tables.kernels_on_a_gpu(lambda name: read_rows(tmp_path / f"{name}.csv"))
    assert "| softmax, time of a batch |  |" in page  # nothing was measured with gradients


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Three images for training and two for the test, in the format of the package."""
    for prefix, count in (("train", 3), ("t10k", 2)):
        for kind, shape in (("images", (count, 28, 28)), ("labels", (count,))):
            name = f"{prefix}-{kind}-idx{len(shape)}-ubyte.gz"
            head = bytes([0, 0, 8, len(shape)]) + b"".join(n.to_bytes(4, "big") for n in shape)
            numbers = torch.arange(torch.Size(shape).numel()) % 10
            packed = gzip.compress(head + bytes(numbers.tolist()))
            (tmp_path / name).write_bytes(packed)
            monkeypatch.setitem(fashion_mnist.SHA256, name, hashlib.sha256(packed).hexdigest())
    return tmp_path


def test_fashion_mnist(folder):
    images, labels = fashion_mnist.load_fashion_mnist(folder, "test")
    assert (images.shape, images.dtype, labels.tolist()) == ((2, 28, 28), torch.uint8, [0, 1])
    assert images[0, 0].tolist() == [x % 10 for x in range(28)] and images[1, 0, 0] == 784 % 10


def test_another_fashion_mnist_is_refused(folder):
    name = "train-labels-idx1-ubyte.gz"
    (folder / name).write_bytes(gzip.compress(bytes(11)))
    with pytest.raises(ValueError, match=f"{name} has the SHA-256"):
        fashion_mnist.load_fashion_mnist(folder, "train")
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match="dataset-fashion-mnist"):
        fashion_mnist.load_fashion_mnist(folder, "train")


SCAN = """
import torch
from gpu.mamba_scan import TritonSelectiveScan
from peers.mamba import SelectiveScan
torch.manual_seed(0)
u, grad = torch.randn(2, 7, 3, 40)
dt, A, B, C = torch.rand(7, 3, 40), -torch.rand(16, 40), torch.randn(7, 16, 3), torch.randn(7, 16, 3)
results = []
for scan, dtype in ((TritonSelectiveScan, torch.float32), (SelectiveScan, torch.float64)):
    leaves = [x.to(dtype).requires_grad_() for x in (u, dt, A, B, C)]
    output = scan.apply(*leaves)
    results.append([output, *torch.autograd.grad(output, leaves, grad.to(dtype))])
for found, right in zip(*results, strict=True):
    assert right.abs().max() > 0.5
    torch.testing.assert_close(found.double(), right, rtol=1e-5, atol=1e-5)
"""


@pytest.mark.slow
def test_scan_of_vim_in_triton():
    """Results and gradients, in Triton's interpreter, beside the loop in float64."""
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT / "benchmarks")}
    result = subprocess.run([sys.executable, "-c", SCAN], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-2000:]


@pytest.mark.slow
def test_both_trainings_of_images_have_one_recipe():
    """ViT-Ti's shape with an even number of heads, equal parameters, and as many steps with as many images."""
    fashion = importlib.import_module("gpu.fashion")
    experiment = importlib.import_module("bench_images").SCALES["gpu"]["14x14"]
    models = [fashion.make_model(name, 0) for name in fashion.MODELS]
    counts = [model.num_parameters() for model in models]
    assert max(counts) < 1.02 * min(counts)
    for model in models:
        shape = {name: getattr(model.config, name) for name in ("hidden_size", "num_hidden_layers", "patch_size")}
        assert shape.items() <= experiment.config.items()
        assert model.config.num_attention_heads == experiment.config["num_attention_heads"] == 6
    options = fashion.EPOCHS * (fashion.IMAGES // fashion.BATCH_SIZE), fashion.BATCH_SIZE, fashion.LEARNING_RATE
    assert options == (experiment.steps, experiment.batch_size, experiment.learning_rate)
