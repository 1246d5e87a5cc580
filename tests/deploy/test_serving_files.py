# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The Dockerfile and the unit of systemd in examples/serving/. Neither Docker nor systemd runs here: the steps and the
commands of the files do, in processes.
"""

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from configparser import ConfigParser
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest


ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / "examples" / "serving"
INSTALLED = "/opt/lion"


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile with their arguments."""
    lines = (FILES / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    return [tuple(line.split(maxsplit=1)) for line in lines if line.strip() and not line.startswith("#")]


def unit() -> dict[str, str]:
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str
    parser.read(FILES / "lion.service")
    return dict(parser["Service"])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@contextmanager
def started(command: list[str], folder: Path, environment: dict[str, str]):
    """A server that answers, and ends with what it answers when it is asked to."""
    port = free_port()
    process = subprocess.Popen([*command, "--port", str(port)], cwd=folder, env=environment)
    address, stop = f"http://127.0.0.1:{port}", time.monotonic() + 400
    try:
        while True:
            assert process.poll() is None and time.monotonic() < stop
            with suppress(URLError, ConnectionError):
                assert json.load(urlopen(f"{address}/health")) == {"status": "ok"}
                break
            time.sleep(0.5)
        yield address
        process.terminate()
        assert process.wait(60) in (0, -signal.SIGTERM)
    finally:
        process.kill()
        process.wait()


def vector_of(address: str, **headers) -> list[float]:
    data = json.dumps({"input": "a lion sleeps"}).encode()
    answer = json.load(
        urlopen(Request(f"{address}/v1/embeddings", data, {"Content-Type": "application/json"} | headers))
    )
    return answer["data"][0]["embedding"]


@pytest.mark.slow
def test_the_image_has_what_it_installs_and_serves(tmp_path):
    """Its build context is installed, apart from the packages that it needs, and its command and health check run."""
    steps = instructions()
    assert [name for name, _ in steps] == (
        ["FROM", "ENV", "WORKDIR", "COPY", "RUN", "RUN", "USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"]
    )
    (_, workdir), (_, copied), (_, install) = steps[2:5]
    assert workdir == INSTALLED and copied == ". ."
    *pip, package = shlex.split(install)
    assert pip[:2] == ["pip", "install"]
    context = tmp_path / "context"
    context.mkdir()
    first, *kept, last = (FILES / "Dockerfile.dockerignore").read_text().split()
    assert (first, last) == ("*", "**/__pycache__")
    for name in kept:
        source, target = ROOT / name[1:], context / name[1:]
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    assert (context / pip[pip.index("--constraint") + 1]).is_file() and package == ".[serve,search]"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    site = tmp_path / "site"
    subprocess.run([*command, "--target", site, "."], cwd=context, check=True, timeout=300)
    (_, health), (_, entry), (_, arguments) = steps[-3:]
    script, *options = json.loads(entry) + json.loads(arguments)
    environment = os.environ | {"PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    with started([sys.executable, str(site / "bin" / script), *options], context, environment) as address:
        assert len(vector_of(address)) == 384
        check = json.loads(health[health.index("[") :])
        program = check[2].replace("http://127.0.0.1:8080", address)
        assert program != check[2]
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def in_the_clone(text: str) -> str:
    """A text of the unit, with the folders of this clone and of this Python."""
    return text.replace(f"{INSTALLED}/.venv/bin", str(Path(sys.executable).parent)).replace(INSTALLED, str(ROOT))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_unit(tmp_path):
    program = Path(in_the_clone(shlex.split(unit()["ExecStart"])[0]))
    text = in_the_clone((FILES / "lion.service").read_text())
    if not program.is_file():  # this package was not installed, as with PYTHONPATH
        text = text.replace(str(program), sys.executable)
    (tmp_path / "lion.service").write_text(text)
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(tmp_path / "lion.service")]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert found.returncode == 0 and "lion.service" not in found.stderr, found.stderr


@pytest.mark.slow
def test_the_command_of_the_unit_serves_and_stops(tmp_path):
    """With the unit's environment, and the key of its file."""
    service = unit()
    program, *options = shlex.split(in_the_clone(service["ExecStart"]))
    assert Path(program).name == "lion"
    port = options.index("--port")
    del options[port : port + 2]  # `started` has one that is free
    own = dict(pair.split("=", 1) for pair in shlex.split(service["Environment"]))
    own = {name: value.replace("/var/cache/lion", str(tmp_path)) for name, value in own.items()}
    environment = os.environ | own | {"LION_API_KEY": "secret", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "deploy_lion.cli", *options]
    with started(command, Path(in_the_clone(service["WorkingDirectory"])), environment) as address:
        assert len(vector_of(address, Authorization="Bearer secret")) == 384
        with pytest.raises(URLError, match="401"):
            vector_of(address)
