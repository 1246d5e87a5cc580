# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Minutes of what tests/repository/test_reliability.py does for seconds; what was tried and survived goes to soak.csv.

    python tests/tools/soak.py --minutes 5
    python tests/tools/soak.py --minutes 5 --parts kernels models

- kernels, models: random problems (tests/support/fuzzing.py) in memory full of NaN, compared with the definition in
float64 - training: steps in bfloat16 autocast on batches of changing lengths; loss finite and falling, memory level
- kills: a training that is killed (SIGKILL) at random moments, many times; what it goes on from, and whether it ends
  with the weights of one that was left alone, bit for bit
- threads: eight threads of inference and gradients on one model, compared bit for bit with one
- server: `lion serve` with texts of 8 to 8,192 tokens, bad requests, and clients that leave; each answer must have its
  status, and memory goes to serve_soak.csv
- files: files of a checkpoint cut, or with bytes overwritten, at random; each must load or give an exception
"""

import argparse
import http.client
import json
import multiprocessing
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import hypothesis
import torch
import transformers
from transformers import AutoModel, AutoTokenizer, Trainer, TrainerCallback, TrainingArguments

from configuration_lion.registry import MIXERS
from modeling_lion import LionConfig, LionForMaskedLM, LionModel, LionTokenizer
from modeling_lion.attention.implementation_names import attention_names


ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / name) for name in ("benchmarks", "examples", "tests", "tests/support")]

from fuzzing import inference_and_gradient, kernel_problems, model_problems  # noqa: E402
from measure import RESULTS, append_rows, in_new_process  # noqa: E402
from training_lion.scripts.checkpoints import last_whole_checkpoint  # noqa: E402


SIZES = {
    "vocab_size": 200,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 96,
    "max_position_embeddings": 512,
    "chunk_size": 32,
}


def deadline(seconds: float):
    end = time.monotonic() + seconds
    return lambda: time.monotonic() < end


def fuzz(seconds: float, *strategies) -> dict:
    """`check` of random problems, as long as there is time, a smallest example of what fails."""
    tried, seed, is_time = 0, 0, deadline(seconds)
    while is_time():

        @hypothesis.seed(seed)
        @hypothesis.settings(
            max_examples=50, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck)
        )
        @hypothesis.given(strategies[seed % len(strategies)])
        def batch(problem):
            nonlocal tried
            tried += 1
            problem.check()

        batch()
        seed += 1
    return {"cases compared with float64": tried}


def soak_kernels(seconds: float) -> dict:
    # Many short ones, and some that are long enough for the slices that kernels work in.
    return fuzz(seconds, *[kernel_problems(300, 200_000)] * 4, kernel_problems(3300, 11_000_000))


def soak_models(seconds: float) -> dict:
    return fuzz(seconds, model_problems(40))


def resident_memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def soak_training(seconds: float) -> dict:
    """Arithmetic sequences of tokens, some of them masked; batches of changing lengths, padded."""
    torch.manual_seed(0)
    model = LionForMaskedLM(LionConfig(**SIZES)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses, memory, is_time = [], [], deadline(seconds)
    while is_time():
        length = 16 * int(torch.randint(1, 11, ()))  # oneDNN keeps compiled products, some MB for every other length
        start, stride = torch.randint(5, 200, (8, 1)), torch.randint(1, 4, (8, 1))
        labels = 5 + (start + stride * torch.arange(length)) % 195
        masked = torch.rand(labels.shape) < 0.3
        masked[:, 0] = True
        mask = torch.arange(length) < torch.randint(length // 2, length + 1, (8, 1))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(labels.masked_fill(masked, 4), mask, labels=labels.masked_fill(~masked | ~mask, -100)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        memory.append(resident_memory())
    assert all(torch.tensor(losses).isfinite()) and all(p.isfinite().all() for p in model.parameters())
    part = len(losses) // 10
    first, last = sum(losses[:part]) / part, sum(losses[-part:]) / part
    assert last < 0.8 * first, f"the loss went from {first} to {last}"
    # The allocator keeps what the longest batches needed; a fifth of the way in, it has seen them.
    before, after = (max(memory[n : n + part]) / 2**20 for n in (2 * part, len(memory) - part))
    assert after < before + 16, f"memory grew from {before} to {after} MiB"
    return {
        "steps": len(losses),
        "losses that are not finite": 0,
        "loss of the first and the last tenth": f"{first:.2f} → {last:.2f}",
        "MiB of memory in the third and the last tenth": f"{before:.0f} → {after:.0f}",
    }


class Steps(TrainerCallback):
    """Notes which checkpoints were written to their end."""

    def __init__(self, path: Path):
        self.path = path

    def on_save(self, args, state, control, **kwargs):
        self.path.write_text(str(state.global_step))


def train(folder: Path) -> None:
    """40 steps with dropout, shuffling and a checkpoint after each; goes on from the last whole one."""
    torch.set_num_threads(1)
    transformers.set_seed(0)
    random_ids = torch.randint(5, 200, (64, 12), generator=torch.Generator().manual_seed(0))
    trainer = Trainer(
        LionForMaskedLM(LionConfig(**SIZES, hidden_dropout_prob=0.1)),
        TrainingArguments(
            output_dir=str(folder),
            use_cpu=True,
            max_steps=40,
            per_device_train_batch_size=4,
            learning_rate=1e-3,
            save_steps=1,
            save_total_limit=3,
            report_to="none",
            disable_tqdm=True,
            seed=0,
        ),
        train_dataset=[{"input_ids": ids, "labels": ids} for ids in random_ids],
        callbacks=[Steps(folder / "saved")],
    )
    trainer.train(resume_from_checkpoint=last_whole_checkpoint(folder))
    trainer.save_model(str(folder / "final"))


def quietly_train(folder: Path) -> None:
    with (folder.parent / f"{folder.name}.log").open("a") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        train(folder)


def weights(folder: Path) -> bytes:
    return (folder / "final" / "model.safetensors").read_bytes()


def soak_kills(seconds: float) -> dict:
    """Trainings in forks of this process, which has loaded all that they need, and has no threads yet."""
    fork = multiprocessing.get_context("fork")
    rng, is_time = random.Random(0), deadline(seconds)
    figures = {"kills": 0, "of these while a checkpoint was written": 0, "trainings": 0}
    with tempfile.TemporaryDirectory() as name:
        alone = Path(name, "alone")
        alone.mkdir()
        started = time.monotonic()
        process = fork.Process(target=quietly_train, args=(alone,))
        process.start()
        process.join()
        assert process.exitcode == 0, Path(name, "alone.log").read_text()
        whole_run = time.monotonic() - started
        while is_time() or figures["trainings"] == 0:
            folder = Path(name, str(figures["trainings"]))
            folder.mkdir()
            while not (folder / "final" / "model.safetensors").exists():
                process = fork.Process(target=quietly_train, args=(folder,))
                process.start()
                process.join(rng.uniform(0, whole_run / 2) if is_time() else None)
                if process.exitcode is None:
                    os.kill(process.pid, signal.SIGKILL)
                    process.join()
                    figures["kills"] += 1
                    saved = folder / "saved"
                    noted = int(saved.read_text() or 0) if saved.exists() else 0
                    found = last_whole_checkpoint(folder)
                    step = int(found.rpartition("-")[2]) if found else 0
                    assert step >= noted, f"checkpoint {noted} is lost: the last one is {step}"
                    newest = max((int(x.name.rpartition("-")[2]) for x in folder.glob("checkpoint-*")), default=0)
                    figures["of these while a checkpoint was written"] += newest > step
                else:
                    assert process.exitcode == 0, Path(name, f"{folder.name}.log").read_text()[-3000:]
            assert weights(folder) == weights(alone), "other weights than those of the training that was left alone"
            figures["trainings"] += 1
            shutil.rmtree(folder)
    return figures | {"checkpoints lost": 0, "trainings that ended with other weights": 0}


def soak_threads(seconds: float) -> dict:
    calls, is_time, seed = 0, deadline(seconds), 0

    def work(ids):
        return inference_and_gradient(model, ids, segment_length=50)

    while is_time():
        mixer = list(MIXERS)[seed % len(MIXERS)]
        torch.manual_seed(seed)
        model = LionModel(LionConfig(**SIZES, mixer_type=mixer)).eval()
        for kernel in [*attention_names(model.config), "auto"]:
            model.set_attn_implementation(kernel)
            longest = 60 if kernel == "rnn" else 400
            inputs = [torch.randint(200, (1 + i % 3, int(torch.randint(1, longest, ())))) for i in range(16)]
            expected = [work(ids) for ids in inputs]
            with ThreadPoolExecutor(8) as pool:
                for result, right in zip(pool.map(work, inputs), expected, strict=True):
                    assert all(torch.equal(x, y) for x, y in zip(result, right, strict=True)), (mixer, kernel)
                    calls += 1
        seed += 1
    return {"calls in 8 threads": calls, "calls that differ from one thread": 0}


def soak_files(seconds: float) -> dict:
    """A damaged file is an exception or, where a change does not matter or is one of numbers, loads; no more."""
    figures, is_time, rng = {"damaged folders": 0, "refused": 0, "loaded": 0}, deadline(seconds), random.Random(0)
    with tempfile.TemporaryDirectory() as name:
        saved = Path(name, "saved")
        LionModel(LionConfig(**SIZES)).save_pretrained(saved, max_shard_size="100KB")
        LionTokenizer.train_from_iterator(["the lion sleeps"] * 5, vocab_size=100).save_pretrained(saved)
        files = sorted(x for x in saved.iterdir() if x.suffix in (".json", ".safetensors"))
        while is_time():
            folder = Path(shutil.copytree(saved, Path(name, "damaged")))
            victim = folder / rng.choice(files).name
            data = bytearray(victim.read_bytes())
            if rng.random() < 0.5:
                data = data[: rng.randrange(len(data))]
            else:
                for _ in range(rng.randint(1, 8)):
                    data[rng.randrange(min(len(data), 4096))] = rng.randrange(256)
            victim.write_bytes(data)
            is_tokenizers = victim.name.startswith("tokenizer")
            try:
                (AutoTokenizer if is_tokenizers else AutoModel).from_pretrained(folder)
                figures["loaded"] += 1
            except Exception:  # of any kind: what must not happen is a crash, and this process would not survive one
                figures["refused"] += 1
            figures["damaged folders"] += 1
            shutil.rmtree(folder)
    return figures | {"crashes": 0}


# What bad requests of the server are, and the status that each gets.
BAD = (
    (400, "/embed", b'{"inputs": ["lion", " "]}'),
    (400, "/embed", b'{"inputs": "\\ud800"}'),
    (400, "/v1/embeddings", b'{"input": [5, 6]}'),
    (404, "/v1/embeddings", b'{"input": "a lion", "model": "no such model"}'),
    (404, "/nowhere", b"{}"),
    (413, "/embed", b'{"inputs": "' + b"lion " * 40_000 + b'"}'),
    (413, "/embed", b'{"inputs": "' + b"lion " * 2_000_000 + b'"}'),
    (422, "/embed", b'{"inputs": 3}'),
)
CLIENTS = 16


def soak_server(seconds: float, output_dir: Path) -> dict:
    """One request in ten is bad, and one in ten is left before its answer. 429 and 504 are for too much work."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    model = str(ROOT / "checkpoints" / "lion-minilm-l6")
    command = [sys.executable, "-m", "deploy_lion.cli", "serve", model, "--port", str(port), "--threads", "1"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    log: list[str] = []
    threading.Thread(target=lambda: log.extend(server.stderr), daemon=True).start()
    found: Counter = Counter()

    def ask(route: str, body: bytes, timeout: float) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
        try:
            connection.request("POST", route, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            return answer.status
        finally:
            connection.close()

    def client(seed: int, is_time) -> None:
        generator = random.Random(seed)
        while is_time():
            kind = generator.random()
            if kind < 0.1:
                status, route, body = generator.choice(BAD)
                try:
                    found["bad requests"] += 1
                    found["wrong"] += ask(route, body, 300) != status
                except ConnectionError:  # a body that is refused before its end
                    found["wrong"] += status != 413
                continue
            length = round(8 * 1024 ** generator.random())
            count = 1 if length > 1000 else generator.randint(1, 8)
            body = json.dumps({"inputs": ["lion " * (length - 2)] * count}).encode()
            if kind < 0.2:
                found["clients that left"] += 1
                with suppress(TimeoutError):
                    ask("/embed", body, 0.05 + generator.random())
                continue
            status = ask("/embed", body, 300)
            found["answered" if status == 200 else f"status {status}"] += 1
            found["wrong"] += status not in (200, 429, 504)
            if status == 429:
                time.sleep(1)

    try:
        is_starting = deadline(300)
        while is_starting():
            with suppress(ConnectionError):
                assert ask("/health", b"", 10) == 405
                break
            time.sleep(0.5)
        is_time, begin = deadline(seconds), time.monotonic()
        with ThreadPoolExecutor(CLIENTS) as pool:
            clients = [pool.submit(client, seed, is_time) for seed in range(CLIENTS)]
            while is_time():
                time.sleep(min(60, seconds / 10))
                lines = Path(f"/proc/{server.pid}/status").read_text().splitlines()
                memory = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) // 1024
                row = {"minutes": round((time.monotonic() - begin) / 60, 2), "requests": found["answered"]}
                row |= {"wrong": found["wrong"], "bad_requests": found["bad requests"], "memory_mb": memory}
                append_rows(output_dir / "serve_soak.csv", [row | {"clients": CLIENTS, "of_minutes": seconds / 60}])
            for done in clients:
                done.result()
    finally:
        server.terminate()
        server.wait()
    assert found["wrong"] == 0, found
    assert not [line for line in log if "Traceback" in line or "never retrieved" in line], "".join(log)[-3000:]
    return {**found, "last memory, MB": memory}


# What to do, and its share of the time.
PARTS = {
    "kernels": (soak_kernels, 0.25),
    "models": (soak_models, 0.15),
    "training": (soak_training, 0.25),
    "kills": (soak_kills, 0.2),
    "threads": (soak_threads, 0.1),
    "files": (soak_files, 0.05),
    "server": (soak_server, 0.25),
}


def run_part(name: str, seconds: float, output_dir: Path) -> dict:
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    options = {"output_dir": output_dir} if name == "server" else {}
    return PARTS[name][0](seconds, **options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5, help="for all parts together")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--output_dir", type=Path, default=RESULTS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    failures, shares = {}, sum(PARTS[name][1] for name in args.parts)
    for name in args.parts:
        try:  # in a process of its own, so that a crash is a failure like any other
            figures = in_new_process(run_part, name, 60 * args.minutes * PARTS[name][1] / shares, args.output_dir)
        except Exception:
            failures[name] = traceback.format_exc()
            figures = {"FAILED": 1}
        rows = [{"minutes": args.minutes, "part": name, "figure": key, "value": x} for key, x in figures.items()]
        append_rows(args.output_dir / "soak.csv", rows)
        print(name, figures, sep=": ", flush=True)
    for name, text in failures.items():
        print(f"\n{name} FAILED:\n{text[-6000:]}")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
