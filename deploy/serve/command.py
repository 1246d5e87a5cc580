# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The command `lion serve`: serve a model over HTTP."""

import argparse
import ipaddress
import math
import os
import socket
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from retrieval_lion.memory import keep_freed_memory
from retrieval_lion.sources import check_folder, default_model

from ..export.exported import check_installed
from .settings import Settings


if TYPE_CHECKING:
    from .engines import Engine

KEY = "LION_API_KEY"
LIMITS = [x for x in fields(Settings) if x.metadata]
# Import names of the packages of the extra `serve`.
NEEDED = ("orjson", "prometheus_client", "pydantic", "sentence_transformers", "starlette", "uvicorn")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        nargs="?",
        help="folder or Hub repository: an encoder, a classifier, a reranker, or a graph of one "
        "(default with --search: that of `lion search`)",
    )
    parser.add_argument(
        "--search", metavar="FOLDER", help="answer /search with the files of a folder, as `lion search`"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to serve at (default: %(default)s, this machine)")
    parser.add_argument("--port", type=int, default=8080, help="port (default: %(default)s)")
    parser.add_argument("--name", help="name of the model for clients (default: the name of the folder)")
    parser.add_argument(
        "--task", choices=("embed", "classify", "rerank"), help="task of the model (default: found from its files)"
    )
    parser.add_argument("--attn_implementation", metavar="NAME", help="such as lion_local (default: the model's own)")
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16", "float16"), help="dtype of the weights (default: float32)"
    )
    parser.add_argument("--device", help="such as cpu or cuda:1 (default: a GPU if there is one)")
    parser.add_argument("--threads", type=int, help="threads of a batch (default: PyTorch's, one per core)")
    parser.add_argument(
        "--workers", type=int, help="batches of short requests to compute at once (default on a CPU: cores / threads)"
    )
    parser.add_argument("--trust_remote_code", action="store_true", help="run code that comes with the weights")
    parser.add_argument(
        "--max_input_tokens", type=int, help="most tokens of a text (default: the limit of the model, at most 32768)"
    )
    for limit in LIMITS:
        option = {"type": type(limit.default), "default": limit.default, "help": limit.metadata["help"]}
        parser.add_argument(f"--{limit.name}", **option)
    parser.add_argument("--accept_token_ids", action="store_true", help="accept token ids instead of texts")
    parser.add_argument("--api_key", help=f"key that requests must send (default: ${KEY}, or none)")
    parser.add_argument("--cors_origins", nargs="+", default=[], help="origins of pages to allow (default: none)")
    parser.add_argument(
        "--allowed_hosts",
        nargs="+",
        help="host names to accept (default: those of this machine if --host is local, else any)",
    )


def run(args: argparse.Namespace) -> None:
    limits = [limit.name for limit in LIMITS]
    for name in ("max_input_tokens", "threads", "workers", *limits):
        value = getattr(args, name)
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"--{name} is {value}: give a number above 0.")
    if args.model is None and args.search is None:
        raise ValueError("give a model to serve, or --search FOLDER.")
    key = key_of(args.api_key)
    check_installed("serve", NEEDED)
    if args.search is not None:
        check_installed("search", ("platformdirs",))
        check_folder(args.search)
    args.model = args.model or default_model()
    address, args.port = check_port(args.host, args.port)
    hosts = args.allowed_hosts or default_hosts(args.host, address)
    # Otherwise tokenizers start threads on all cores, with the priority of the first queue.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

    keep_freed_memory()
    import torch
    import uvicorn

    from .app import make_app
    from .loading import load_engine

    if args.threads is not None:
        torch.set_num_threads(args.threads)
    if args.search is not None:
        check_searchable(args.model)
    options = {name: getattr(args, name) for name in ("attn_implementation", "dtype", "device", "trust_remote_code")}
    engine = load_engine(args.model, task=args.task, max_input_tokens=args.max_input_tokens, **options)
    for note in engine.about.notes:
        print(note, flush=True)
    search = None
    if args.search is not None:
        from .searching import FolderSearch

        search = FolderSearch(args.model, args.search, **options)
        search.prepare()
    workers = args.workers or default_workers(engine)
    settings = Settings(**{name: getattr(args, name) for name in (*limits, "accept_token_ids")}, workers=workers)
    name = args.name or (Path(args.model).resolve().name if Path(args.model).is_dir() else args.model)
    app = make_app(
        engine,
        name,
        settings,
        aliases=[args.model],
        api_key=key,
        cors_origins=args.cors_origins,
        allowed_hosts=hosts,
        search=search,
    )
    most = f"{engine.about.max_input_tokens:,}"
    about = f"{engine.about.task}, texts of up to {most} tokens, {'no key' if key is None else 'with a key'}"
    host = f"[{args.host}]" if ":" in args.host else args.host
    print(f"{name} ({about}): http://{host}:{args.port}", flush=True)
    uvicorn.run(
        app,
        host=args.host,
        port=args.port,
        http="h11",
        ws="none",
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=round(args.timeout) + 1,
    )


def check_searchable(model: str) -> None:
    """Raise a ValueError if a folder or Hub repository has no encoder that a search can load."""
    from .loading import Files

    files = Files(model)
    if files.is_exported:
        raise ValueError(f"--search needs an encoder, and {model} is a graph: give the folder that was exported.")
    if (task := files.task()) != "embed":
        raise ValueError(f"--search needs an encoder, and {model} is a model to {task}.")


def default_workers(engine: "Engine") -> int:
    """Return how many batches use all cores. A graph takes its memory for each, and a GPU computes one at a time."""
    import torch

    from ..export.exported import ExportedModel

    if engine.model.device.type != "cpu" or isinstance(engine.modules[0].model, ExportedModel):
        return 1
    return max(1, available_cores() // torch.get_num_threads())


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def key_of(given: str | None) -> str | None:
    """Return the key that requests must send, or `None`. Raises a ValueError if it is empty."""
    key = os.environ.get(KEY) if given is None else given
    if key is None:
        return None
    if not key.strip():
        raise ValueError(f"{KEY if given is None else '--api_key'} is empty: give a key, or leave it out for none.")
    return key.strip()


def default_hosts(host: str, address: str) -> list[str]:
    """Return the host names to accept at an address: none is any."""
    names = list(dict.fromkeys(("localhost", "127.0.0.1", "::1", host)))
    return names if ipaddress.ip_address(address).is_loopback else []


def check_port(host: str, port: int) -> tuple[str, int]:
    """
    Return the IP address of a host, and the port, for 0 a free one. Raises a ValueError if the server cannot listen
    there: uvicorn would say so only after the model is loaded.
    """
    try:
        if not 0 <= port < 2**16:  # getaddrinfo would take it modulo 2**16
            raise OverflowError("ports are 0 to 65535")
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        (family, kind, *_, address), *_ = found
        with socket.socket(family, kind) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(address)
            return one.getsockname()[:2]
    except (OSError, OverflowError) as error:
        raise ValueError(f"--host {host} --port {port} cannot be used ({error}): give others.") from error
