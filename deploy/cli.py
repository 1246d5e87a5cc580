# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The command `lion`."""

import argparse
import contextlib
import io
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError


# The module of each command, with `add_arguments(parser)` and `run(args)`. It is imported only if the command is
# called. `run` returns the exit code, or `None` for success.
COMMANDS = {
    "bundle": (
        "hub_upload_lion.publish.bundle",
        "create a complete Hub repository from a trained checkpoint, in a folder",
    ),
    "upload": ("hub_upload_lion.publish.upload", "publish a checkpoint on the Hugging Face Hub"),
    "verify": (
        "hub_upload_lion.verify",
        "measure how well the kernels agree on a checkpoint, and report decays and denominators",
    ),
    "check": (".check", "compare an encoder with itself: in batches, padded, in other dtypes, saved and as a graph"),
    "export": (".export.export_checkpoint", "write a graph for ONNX Runtime or OpenVINO, and compare it with torch"),
    "app": (
        ".app.page",
        "try a checkpoint in the browser: fill masks, classify, search, see what heads read, measure time",
    ),
    "convert": (
        "hub_upload_lion.convert.convert_checkpoint",
        "give an encoder of transformers linear attention, or convert published weights",
    ),
    "serve": (".serve.command", "serve an encoder, a classifier or a reranker over HTTP"),
    "search": ("retrieval_lion.search.command", "find passages of your files by meaning, offline"),
    "embed": ("retrieval_lion.embed.command", "write the vectors of a corpus, in one process or on a cluster (Ray)"),
}
# Commands that load checkpoints in this process, so that users may bring files with mixers.
WITH_MIXERS = {"app", "bundle", "check", "convert", "export", "upload", "verify"}
# The extra with what a command imports, where it has another name.
EXTRAS = dict.fromkeys(("bundle", "check", "upload"), "embeddings") | dict.fromkeys(("convert", "verify"), "vision")


# Errors of what was given, which are told without a traceback; ImportError if a package such as Pillow is missing.
EXPECTED = (ValueError, OSError, ImportError, StrictDataclassError, SafetensorError, RuntimeError)


def main(arguments: list[str] | None = None) -> int:
    """
    Run the command `lion`.

    Args:
        arguments: the command line without the program's name; by default that of the process.

    Returns:
        The exit code: 0 for success, 1 for an error with a message, 130 after Ctrl-C.

    Raises:
        SystemExit: if the arguments are wrong.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # what the encoding of an output lacks ends no command
    name = "".join(arguments[:1])
    try:
        with ended_in_order():
            return run_command(arguments)
    except ModuleNotFoundError as error:
        extra = EXTRAS.get(name, name)
        advice = f"In a clone of the repository, pip install '.[{extra}]' installs what this command needs."
        print(f"lion {name}: {error}. {advice}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"lion {name}: interrupted.", file=sys.stderr)
        return 130


@contextlib.contextmanager
def ended_in_order() -> Iterator[None]:
    """Let a command remove what it has not finished before SIGTERM ends it."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may change what signals do
        return
    is_ended = False

    def end(*_) -> None:
        nonlocal is_ended
        is_ended = True
        sys.exit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        if is_ended:
            signal.raise_signal(signal.SIGTERM)


def run_command(arguments: list[str]) -> int:
    """Parse a command line and run it. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="lion", description="Search, serve, embed, convert, check, export and publish."
    )
    versions = ", ".join(f"{name} {version(name)}" for name in ("lion-transformers", "torch", "transformers"))
    parser.add_argument("--version", action="version", version=versions)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    chosen = None
    for name, (module_name, help_text) in COMMANDS.items():
        command = commands.add_parser(name, help=help_text, description=f"{help_text[0].upper()}{help_text[1:]}.")
        if name in arguments[:1]:
            chosen, module = command, import_module(module_name, __package__)
            if name in WITH_MIXERS:
                words = "Python files that register mixers or feature maps of your own"
                command.add_argument("--mixers", nargs="+", type=Path, metavar="FILE", default=(), help=words)
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    if chosen is None:
        args = parser.parse_args(arguments)
    else:  # options may stand between the words, as in `lion search FOLDER --top 3 "query"`
        args = chosen.parse_intermixed_args(arguments[1:], argparse.Namespace(command=arguments[0]))
    mixers = vars(args).pop("mixers", ())
    source = missing_source(args)
    missing = source and f"There is no file or folder {source}"
    if source and (Path(source).is_absolute() or source.startswith((".", "~")) or source.count("/") > 1):
        print(f"lion {args.command}: {missing}.", file=sys.stderr)  # the Hub cannot have such a name either
        return 1
    if missing:
        print(f"{missing}: it is looked for on the Hugging Face Hub.", file=sys.stderr, flush=True)
    # What peft does not do yet, and nobody else can.
    warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
    try:
        if mixers:
            import_module("modeling_lion.mixers.import_mixers").import_mixers(mixers)
        return args.run(args) or 0
    except BrokenPipeError:  # what reads the output has ended, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ModuleNotFoundError:
        raise  # `main` names the extra
    except EXPECTED as error:
        if isinstance(error, RuntimeError) and "mismatched" not in str(error):  # of weights and their configuration
            raise
        is_of_file = not missing or type(error) in (FileExistsError, FileNotFoundError)
        cause = "" if is_of_file else f"{missing}, so it was looked for on the Hugging Face Hub: "
        print(f"lion {args.command}: {cause}{error}", file=sys.stderr)
        return 1


def missing_source(args: argparse.Namespace) -> str:
    """Return the checkpoint if it is not a local file or folder, else "". Errors of the Hub may not name it."""
    source = next((getattr(args, x) for x in ("checkpoint", "model", "source") if hasattr(args, x)), None)
    return "" if source is None or Path(source).exists() else str(source)


if __name__ == "__main__":
    sys.exit(main())
