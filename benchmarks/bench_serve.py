# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
`lion serve` under load, by the length of the texts: requests a second, their time, and memory.

    python benchmarks/bench_serve.py                       # half an hour on two cores
    python benchmarks/bench_serve.py --infinity PROGRAM    # beside infinity_emb, in an environment of its own

Servers are processes of their own, with one thread each to compute. Clients ask them in turn, several at a time, each
text by itself. "sentence-transformers" is the same server with the batches of its `encode`: 32 texts, sorted by length
and padded. Then one client sends short texts, alone and beside an endless stream of long ones. Rows go to
serve_load.csv.

`--latency` measures instead how long a text of 256 tokens takes beside a server of a few lines around `encode`
(FastAPI), with 1 and 8 clients that send one after the other. Rows go to serve_latency.csv, with the CPU time of the
servers.
"""

import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import fmean, median

import add_examples  # noqa: F401 (examples/ can be imported from here on)
import numpy as np
import torch
import uvicorn
from measure import append_rows, is_measured, make_parser


ROOT = Path(__file__).parents[1]
MODEL = ROOT / "checkpoints" / "lion-minilm-l6"
LION, PADDED, INFINITY = "lion serve", "sentence-transformers", "infinity-emb"
EIGHT, FASTAPI = "lion serve --workers 8", "FastAPI"
LENGTHS = ("32", "128", "512", "2048", "8192", "32 to 2048")  # the last: each request another
AT_ONCE = 32  # texts that a batch of `encode` has
CLIENTS = 16
SHORT, LONG = 16, 29_000  # tokens of a short text, and of those that are sent beside it
TOKENS, CLIENTS_OF_LATENCY = 256, (1, 8)
PAUSE = 0.05  # seconds between two short texts
TIMEOUT = 600


def serve_padded(model: str, port: int) -> None:
    """The server, computed as `SentenceTransformer.encode` does: in one queue."""
    from deploy_lion.serve.app import make_app
    from deploy_lion.serve.engines import Engine
    from deploy_lion.serve.loading import load_engine
    from deploy_lion.serve.settings import Settings

    def groups(engine: Engine, rows: list) -> list[list[int]]:
        order = sorted(range(len(rows)), key=lambda n: -len(rows[n]))
        return [order[first : first + AT_ONCE] for first in range(0, len(rows), AT_ONCE)]

    Engine.groups = groups
    app = make_app(load_engine(model), Path(model).name, Settings(timeout=TIMEOUT, short_tokens=2**30))
    uvicorn.run(app, port=port, log_level="warning")


def serve_fastapi(model: str, port: int) -> None:
    """The server that everybody writes."""
    from fastapi import FastAPI
    from sentence_transformers import SentenceTransformer

    import modeling_lion  # noqa: F401 (which registers LION)

    app, encoder = FastAPI(), SentenceTransformer(model, device="cpu")

    @app.get("/health")
    def health() -> dict:
        return {}

    @app.post("/embeddings")
    def embeddings(body: dict) -> dict:
        vectors = encoder.encode([body["input"]], normalize_embeddings=True)
        return {"data": [{"embedding": vector} for vector in vectors.tolist()]}

    uvicorn.run(app, port=port, log_level="warning")


@contextmanager
def server(kind: str, args) -> Iterator[tuple[str, int]]:
    """Start a server; its address and process id."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    model = str(args.model)
    options = ["--port", str(port)]
    commands = {
        LION: [sys.executable, "-m", "deploy_lion.cli", "serve", model, "--threads", "1", *options],
        PADDED: [sys.executable, __file__, "--as_server", PADDED, "--model", model, *options],
        FASTAPI: [sys.executable, __file__, "--as_server", FASTAPI, "--model", model, *options],
        INFINITY: [args.infinity, "v2", "--model-id", model, "--engine", "torch", "--device", "cpu", *options],
    }
    commands[LION] += ["--timeout", str(TIMEOUT)]
    commands[EIGHT] = [*commands[LION], "--workers", "8"]
    process = subprocess.Popen(commands[kind], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=one_thread())
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{address}/health")
                break
            except (urllib.error.URLError, ConnectionError):
                if process.poll() is not None:
                    raise RuntimeError(f"{kind} has ended with {process.returncode}.") from None
                time.sleep(0.5)
        yield address, process.pid
    finally:
        process.terminate()
        process.wait()


def one_thread() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}


def ask(address: str, name: str, text: str) -> tuple[float, np.ndarray]:
    """Seconds, and the vector."""
    data = json.dumps({"input": text, "model": name}).encode()
    request = urllib.request.Request(f"{address}/embeddings", data, {"Content-Type": "application/json"})
    begin = time.perf_counter()
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        found = json.load(answer)
    return time.perf_counter() - begin, np.array(found["data"][0]["embedding"])


def text_of(tokens: int, generator: random.Random) -> str:
    words = ("lion", "river", "night", "grass", "shade", "dawn")  # a token each
    return " ".join(generator.choices(words, k=max(1, tokens - 2)))


def texts_of(length: str, count: int) -> list[str]:
    generator = random.Random(length)
    low, _, high = length.partition(" to ")
    lengths = [int(low)] * count
    if high:  # as many short as long ones, on a logarithmic scale
        lengths = [round(int(low) * (int(high) / int(low)) ** generator.random()) for _ in range(count)]
    return [text_of(n, generator) for n in lengths]


def peak_memory(pid: int) -> int:
    """The most that a process had so far, in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) // 1024


def figures(seconds: list[float]) -> dict[str, float]:
    return {"p50": float(np.percentile(seconds, 50)), "p95": float(np.percentile(seconds, 95))}


def load(args, servers: dict[str, tuple[str, int]], path: Path) -> None:
    """Requests per second of all servers in turn, by length."""
    for length in args.lengths:
        cases = [{"server": kind, "tokens": length, "model": args.model.name} for kind in servers]
        if is_measured(path, cases) and not args.again:
            continue
        low, _, high = length.partition(" to ")
        texts = texts_of(length, max(CLIENTS, min(256, 40_000 // int(high or low))))
        walls: dict[str, list[float]] = {kind: [] for kind in servers}
        times, vectors = {kind: [] for kind in servers}, {}
        with ThreadPoolExecutor(CLIENTS) as pool:
            for _ in range(args.repeats):
                for kind, (address, _) in servers.items():
                    begin = time.perf_counter()
                    answers = list(pool.map(partial(ask, address, args.model.name), texts))
                    walls[kind].append(time.perf_counter() - begin)
                    times[kind] += [seconds for seconds, _ in answers]
                    vectors[kind] = np.stack([vector for _, vector in answers])
        for case in cases:
            kind = case["server"]
            row = case | {"clients": CLIENTS, "requests": len(texts), "per_second": len(texts) / median(walls[kind])}
            row |= figures(times[kind]) | {"memory_mb": peak_memory(servers[kind][1])}
            row["difference"] = float(abs(vectors[kind] - vectors[LION]).max())
            append_rows(path, [row])
            print(f"{length:>12} tokens, {kind}: {row['per_second']:.2f} a second, p95 {row['p95']:.2f} s", flush=True)


def beside(args, servers: dict[str, tuple[str, int]], path: Path) -> None:
    """Short texts of one client: alone, and beside a stream of long ones."""
    case = {"server": LION, "model": args.model.name}
    names = (f"{SHORT}", f"{SHORT} beside {LONG}")
    if is_measured(path, [case | {"tokens": name, "clients": 1} for name in names]) and not args.again:
        return
    (address, pid), generator = servers[LION], random.Random(0)
    stop = threading.Event()

    def stream() -> None:
        while not stop.is_set():
            ask(address, args.model.name, text_of(LONG, generator))

    with ThreadPoolExecutor(1) as pool:
        for name in names:
            if name != names[0]:
                pool.submit(stream)
                time.sleep(1)
            seconds, begin = [], time.perf_counter()
            while time.perf_counter() - begin < args.seconds:
                seconds.append(ask(address, args.model.name, text_of(SHORT, generator))[0])
                time.sleep(PAUSE)
            row = case | {"tokens": name, "clients": 1, "requests": len(seconds)}
            row |= {"per_second": len(seconds) / args.seconds} | figures(seconds)
            append_rows(path, [row | {"memory_mb": peak_memory(pid), "difference": 0.0}])
            print(f"{name} tokens: p50 {row['p50']:.3f}, p95 {row['p95']:.3f} s", flush=True)
        stop.set()


def cpu_seconds(pid: int) -> float:
    """The CPU time that a process had so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def latency(args, servers: dict[str, tuple[str, int]], path: Path) -> None:
    """Times of texts of one length, by the number of clients, of all servers in turn."""
    for clients in CLIENTS_OF_LATENCY:
        cases = [{"server": kind, "clients": clients, "model": args.model.name} for kind in servers]
        if is_measured(path, cases) and not args.again:
            continue
        texts = texts_of(str(TOKENS), 16)
        times, cpu, walls = ({kind: [] for kind in servers} for _ in range(3))
        with ThreadPoolExecutor(clients) as pool:
            for repeat in range(args.repeats + 1):
                for kind, (address, pid) in servers.items():
                    before, begin = cpu_seconds(pid), time.perf_counter()
                    found = [seconds for seconds, _ in pool.map(partial(ask, address, args.model.name), texts)]
                    if repeat:  # the first time, servers warm up
                        walls[kind].append(time.perf_counter() - begin)
                        cpu[kind].append((cpu_seconds(pid) - before) / len(texts))
                        times[kind].append(fmean(found))
        for case in cases:
            kind = case["server"]
            ratios = [mine / theirs for mine, theirs in zip(times[kind], times[FASTAPI], strict=True)]
            row = case | {"tokens": TOKENS, "requests": len(texts) * args.repeats, "mean": fmean(times[kind])}
            row |= {"of_fastapi": median(ratios), "per_second": len(texts) / median(walls[kind])}
            append_rows(path, [row | {"cpu_seconds": fmean(cpu[kind])}])
            print(f"{clients} clients, {kind}: {row}", flush=True)


def main(args: list[str] | None = None) -> None:
    parser = make_parser(__doc__, "short texts, one repeat")
    parser.add_argument("--model", type=Path, default=MODEL, help="folder of the sentence encoder")
    parser.add_argument("--lengths", nargs="*", default=LENGTHS, help="lengths of texts, in tokens")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=120, help="of short texts, alone and beside long ones")
    parser.add_argument("--infinity", help="the program infinity_emb, to measure it, too")
    parser.add_argument("--latency", action="store_true", help="measure the time of a text beside FastAPI")
    parser.add_argument("--as_server", choices=(PADDED, FASTAPI), help="run as this server")
    parser.add_argument("--port", type=int, default=8080, help="port of that server")
    args = parser.parse_args(args)
    if args.as_server:
        torch.set_num_threads(args.threads)
        serve = {PADDED: serve_padded, FASTAPI: serve_fastapi}[args.as_server]
        serve(str(args.model), args.port)
        return
    if args.quick:
        args.lengths, args.repeats, args.seconds = ("32", "128"), 1, 10
    path = args.output_dir / "serve_load.csv"
    with ExitStack() as stack:
        if args.latency:
            servers = {kind: stack.enter_context(server(kind, args)) for kind in (LION, EIGHT, FASTAPI)}
            latency(args, servers, args.output_dir / "serve_latency.csv")
            return
        kinds = [LION, PADDED, *[INFINITY] * bool(args.infinity)]
        servers = {kind: stack.enter_context(server(kind, args)) for kind in kinds}
        load(args, servers, path)
        beside(args, servers, path)


if __name__ == "__main__":
    main()
