# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The server of examples/serve.py: requests a second by length, beside the same server around sentence-transformers; or a
long run of mixed load with bad requests in it.

    python benchmarks/bench_serve.py                        # a quarter of an hour on two cores
    python benchmarks/bench_serve.py --soak_minutes 120     # errors by kind, and the memory of the server

Two servers are processes of their own, with one thread each to compute; clients ask them in turn, several at a time.
"sentence-transformers" sorts the texts of a batch by length and pads them, 32 at a time, as its `encode` does; the
model is the same. Rows go to serve.csv and serve_soak.csv.
"""

import json
import random
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import add_examples  # noqa: F401 (examples/ can be imported from here on)
import numpy as np
import serve
import torch
import uvicorn
from measure import append_rows, is_measured, make_parser


ROOT = Path(__file__).parents[1]


MODEL = ROOT / "checkpoints" / "lion-minilm-l6"
PADDED = "sentence-transformers"
LENGTHS = ("32", "128", "512", "2048", "8192", "32 to 2048")  # the last: each request another
AT_ONCE = 32  # texts that a batch of `encode` has
CLIENTS = 16
TIMEOUT = 300
# What bad requests are, and the status that each gets.
BAD = {
    400: {"inputs": ["lion", " "]},
    404: None,
    413: {"inputs": "lion " * 40_000},
    422: {"inputs": 3},
}


class PaddedEncoder(serve.LionEncoder):
    """The same encoder, computed as `SentenceTransformer.encode` does."""

    def groups(self, rows: list[list[int]]) -> list[list[int]]:
        order = sorted(range(len(rows)), key=lambda n: -len(rows[n]))
        return [order[first : first + AT_ONCE] for first in range(0, len(rows), AT_ONCE)]


@contextmanager
def server(kind: str, model: Path) -> Iterator[tuple[str, subprocess.Popen]]:
    """Start a server; its address and process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, __file__, "--serve", kind, "--port", str(port), "--model", str(model)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(240):
            try:
                urllib.request.urlopen(f"{address}/health")
                break
            except urllib.error.URLError:
                time.sleep(0.5)
        yield address, process
    finally:
        process.terminate()
        process.wait()


def ask(address: str, body: dict | None, route: str = "/embed") -> tuple[int, object]:
    """Status and answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address + route, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, None


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


def throughput(args) -> None:
    path = args.output_dir / "serve.csv"
    settings = {"model": args.model.name, "clients": CLIENTS}
    with ExitStack() as stack:
        addresses = {kind: stack.enter_context(server(kind, args.model))[0] for kind in ("LION", PADDED)}
        for length in args.lengths:
            if is_measured(path, [{"tokens": length} | settings]) and not args.again:
                continue
            low, _, high = length.partition(" to ")
            texts = texts_of(length, max(CLIENTS, min(256, 40_000 // int(high or low))))
            seconds: dict[str, list[float]] = {kind: [] for kind in addresses}
            vectors = {}
            with ThreadPoolExecutor(CLIENTS) as pool:
                for _ in range(args.repeats):
                    for kind, address in addresses.items():
                        begin = time.perf_counter()
                        answers = list(pool.map(lambda text, to=address: ask(to, {"inputs": text}), texts))
                        seconds[kind].append(time.perf_counter() - begin)
                        vectors[kind] = np.array([answer[0] for status, answer in answers if status == 200])
            difference = abs(vectors["LION"] - vectors[PADDED]).max()
            rates = {kind: len(texts) / median(times) for kind, times in seconds.items()}
            row = {"tokens": length, "requests": len(texts), "difference": float(difference)} | settings
            row |= {"lion_per_second": rates["LION"], "padded_per_second": rates[PADDED]}
            append_rows(path, [row])
            print(f"{length:>12} tokens: {rates['LION']:.1f} requests a second, {PADDED} {rates[PADDED]:.1f}")


def soak(args) -> None:
    """Mixed load: lengths from 8 to 8192 tokens, one to eight texts a request, and one bad request in ten."""
    path = args.output_dir / "serve_soak.csv"
    with server("LION", args.model) as (address, process), ThreadPoolExecutor(CLIENTS) as pool:
        begin, found = time.monotonic(), Counter()
        end = begin + 60 * args.soak_minutes

        def client(seed: int) -> None:
            generator = random.Random(seed)
            while time.monotonic() < end:
                if generator.random() < 0.1:
                    expected = generator.choice(list(BAD))
                    body = BAD[expected]
                    route = "/embed"
                    if body is None:
                        body, route = {"input": "a lion", "model": "no such model"}, "/v1/embeddings"
                    status, _ = ask(address, body, route)
                else:
                    expected = 200
                    length = round(8 * 1024 ** generator.random())
                    count = 1 if length > 1000 else generator.randint(1, 8)
                    status, _ = ask(address, {"inputs": [text_of(length, generator) for _ in range(count)]})
                found[expected, status] += 1

        clients = [pool.submit(client, seed) for seed in range(CLIENTS)]
        while not all(done.done() for done in clients):
            time.sleep(min(60, 6 * args.soak_minutes))
            status = Path(f"/proc/{process.pid}/status").read_text()
            memory = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
            wrong = sum(count for (expected, status), count in found.items() if expected != status)
            row = {"minutes": round((time.monotonic() - begin) / 60, 2), "requests": found.total(), "wrong": wrong}
            row |= {"bad_requests": sum(n for (expected, _), n in found.items() if expected != 200)}
            row |= {"memory_mb": round(memory / 1024), "clients": CLIENTS, "of_minutes": args.soak_minutes}
            append_rows(path, [row])
            print(row, flush=True)
        print({f"{expected} expected, {status}": n for (expected, status), n in sorted(found.items())})


def main(args: list[str] | None = None) -> None:
    parser = make_parser(__doc__, "short texts, one repeat")
    parser.add_argument("--model", type=Path, default=MODEL, help="folder of the sentence encoder")
    parser.add_argument("--lengths", nargs="*", default=LENGTHS, help="lengths of texts, in tokens")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--soak_minutes", type=float, help="send mixed load for so many minutes instead")
    parser.add_argument("--serve", choices=("LION", PADDED), help="run as one of the servers")
    parser.add_argument("--port", type=int, default=8080, help="port of that server")
    args = parser.parse_args(args)
    if args.serve:
        torch.set_num_threads(1)
        encoder = (PaddedEncoder if args.serve == PADDED else serve.LionEncoder)(str(args.model), 32768)
        app = serve.make_server(encoder, args.model.name, timeout=TIMEOUT)
        uvicorn.run(app, port=args.port, log_level="warning")
    elif args.soak_minutes is not None:
        soak(args)
    else:
        if args.quick:
            args.lengths, args.repeats = ("32", "128"), 1
        throughput(args)


if __name__ == "__main__":
    main()
