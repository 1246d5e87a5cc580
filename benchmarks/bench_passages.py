# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Passages that know their document: does it help to read a document in one pass, and what does it cost?

    pip install ".[distill]"                              # the teacher, all-MiniLM-L6-v2
    python benchmarks/bench_passages.py                   # half an hour of a CPU core
    python benchmarks/bench_passages.py --trained "pieces" "pieces with names" "one pass" "one pass with names" \
        --seeds 0 1 2                                     # and what trainings of 60 steps make of each reading: hours

Documents are guides in the source distributions of packages on PyPI (`GUIDES`). A query is the first sentence of a
passage, which is taken out of it, with the name of the document in front or without (examples/passages.py). Rows go to
passages.csv: for each encoder and way to read (`passages.READINGS`) one of all queries, and one for each range of
places of the passage in its document. Standard errors are clustered by document, since its queries are alike.

`--trained` trains by train_passages.py on documents of another kind, the docstrings of installed packages and the
manual pages of this machine (`training_documents`), all weights or, with --lora_rank, additions of low rank to the
encoder's matrices. A trained encoder is used again only for the same start, data and arguments.
"""

import random
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median

import add_examples  # noqa: F401 (examples/ can be imported from here on)
import documents as sources
import torch
import train_passages
from bench_retrieval import GUIDES, weights_hash
from measure import append_rows, digest, interleaved, is_measured, make_parser
from report import write_pages
from retrieval_lion.encoders import merge_adapter
from retrieval_lion.sources import base_of_adapter
from torch import nn
from training_lion.distillation import find_teacher
from training_lion.scripts import passages
from training_lion.scripts.ranking import mean_and_error
from transformers import AutoModel, AutoTokenizer


ROOT = Path(__file__).parents[1]


CHECKPOINTS = ROOT / "checkpoints"
DATA_DIR = ROOT / "outputs" / "passages"
OF_A_PACKAGE = 6
CHARACTERS = 3_000, 40_000  # of a document
PLACES = 0, 2_000, 8_000, CHARACTERS[1]  # characters in front of a passage
EVERYWHERE = PLACES[0], PLACES[-1]
TRAINING_CHARACTERS = 3_000, 60_000
TRAINING_PACKAGES = (
    *("asyncio", "concurrent", "email", "http", "json", "logging", "multiprocessing", "unittest", "urllib", "xml"),
    *("importlib", "tkinter", "ctypes", "datasets", "gradio", "huggingface_hub", "IPython", "jinja2", "joblib"),
    *("matplotlib", "mpmath", "networkx", "numpy", "pandas", "pydantic", "selenium", "sklearn", "tornado"),
    *("accelerate", "peft", "onnx", "onnxruntime", "openvino", "sentence_transformers", "tokenizers", "httpx"),
    *("fsspec", "rich", "click", "typer", "hypothesis", "pytest", "PIL", "fontTools", "pygments", "setuptools", "pip"),
    *("fastapi", "starlette", "uvicorn", "trio", "anyio", "attr", "dill", "jsonschema", "nbformat", "nbclient"),
    *("jupyter_client", "traitlets", "prompt_toolkit", "jedi", "parso", "yaml", "tqdm", "narwhals", "pyarrow"),
    *("bitsandbytes", "tensorboard", "pyparsing", "psutil", "regex", "wcwidth", "websocket", "werkzeug", "zmq"),
    *("debugpy", "pexpect", "gradio_client", "onnxscript", "onnx_ir"),
)
MANUALS = Path("/usr/share/man")
MAX_MANUALS = 700
HELD_OUT = 100  # of the training documents, to choose by
ALL = list(passages.READINGS)
PIECES = [name for name in ALL if name.startswith("pieces")]
# What is measured without a training here, by the name of the encoder.
UNTRAINED = {"all-MiniLM-L6-v2": PIECES, "lion-minilm-l6": ALL, "lion-minilm-l6-passages": ALL}
STARTS = ("lion-minilm-l6", "all-MiniLM-L6-v2")  # of trainings
TRAINING_ARGUMENTS = [
    *("--do_train", "--per_device_train_batch_size", "6", "--lr_scheduler_type", "cosine"),
    *("--use_cpu", "--save_strategy", "no", "--report_to", "none"),
]
TIMED_DOCUMENTS, TIMED_REPEATS = 20, 3


def training_documents(cache_dir: Path) -> tuple[Path, Path]:
    """Files of documents to train on, and held-out ones: docstrings by module, and manual pages if there are any."""
    files = cache_dir / "train.jsonl", cache_dir / "validation.jsonl"
    if not all(file.is_file() for file in files):
        found = [x for package in TRAINING_PACKAGES for x in sources.documents_of_package(package)]
        documents = list(sources.without_repeats(found, TRAINING_CHARACTERS))
        if MANUALS.is_dir():
            manuals = sources.documents_of_manuals(MANUALS, MAX_MANUALS)
            documents += sources.without_repeats(manuals, TRAINING_CHARACTERS)
        random.Random(0).shuffle(documents)
        sources.write_documents(files[1], documents[:HELD_OUT])
        sources.write_documents(files[0], documents[HELD_OUT:])
    return files


def encoder_files(folder: str) -> list[Path]:
    return [Path(folder, name) for name in ("config.json", "model.safetensors", "tokenizer.json")]


def folder_of(name: str, teacher: str) -> str:
    """The folder of an encoder of `UNTRAINED`."""
    return teacher if name == "all-MiniLM-L6-v2" else str(CHECKPOINTS / name)


def find_control(args, name: str, reading: str, seed: int, teacher: str) -> tuple[Path, list[str]]:
    """The folder of a training, whose name changes with all that makes the encoder, and the training's arguments."""
    train_file, _ = training_documents(args.data_dir)
    start = folder_of(name, teacher)
    arguments = ["--reading", reading, "--max_steps", str(args.steps), "--seed", str(seed)]
    arguments += ["--document_tokens", str(args.document_tokens), *TRAINING_ARGUMENTS]
    arguments += ["--learning_rate", "5e-5" if args.lora_rank is None else "5e-4"]
    arguments += ["--bf16"] * (args.training_dtype == "bfloat16")
    arguments += [] if args.lora_rank is None else ["--lora_rank", str(args.lora_rank)]
    made_of = digest(*encoder_files(start), *encoder_files(teacher), train_file, arguments)
    folder = args.data_dir / f"{name} {reading} {args.steps} {seed} {made_of}".replace(" ", "-")
    files = ["--model_name_or_path", start, "--teacher_name_or_path", teacher, "--train_file", str(train_file)]
    return folder, [*files, "--output_dir", str(folder), *arguments]


def train(args, name: str, reading: str, seed: int, teacher: str) -> str:
    """The folder of an encoder that was trained for a way to read."""
    folder, arguments = find_control(args, name, reading, seed, teacher)
    if not (folder / "all_results.json").is_file():
        train_passages.main(arguments)
    return str(folder)


def load(folder: str, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, passages.PreTrainedTokenizerBase]:
    base = base_of_adapter(folder)
    first = dtype if base is None else torch.float32  # narrower dtypes lose small changes of weights
    model = AutoModel.from_pretrained(base or folder, add_pooling_layer=False, dtype=first)
    if base is not None:
        model = merge_adapter(model, folder, dtype)
    return model.eval(), AutoTokenizer.from_pretrained(folder)


def time_readings(folder: str, documents: list[passages.SplitDocument], readings: list[str]) -> dict[str, float]:
    """The time of each way to read some documents ÷ that of their pieces, both in turns."""
    model, tokenizer = load(folder)
    rows = {x: passages.make_rows(tokenizer, documents, x, passages.LONGEST_DOCUMENT) for x in ("pieces", *readings)}
    calls = {x: partial(passages.encode_rows, model, rows[x], tokenizer.pad_token_id) for x in rows}
    seconds = {x: median(times) for x, times in interleaved(calls, TIMED_REPEATS).items()}
    return {x: seconds[x] / seconds["pieces"] for x in readings}


def by_place(
    documents: list[passages.SplitDocument], queries: list[passages.Query]
) -> Iterator[tuple[int, int, list[int]]]:
    """
    For all places, and for each range of `PLACES`, the indices of the queries whose passages have as much text in
    front.
    """
    in_front = [sum(map(len, x.passages[:n])) for x in documents for n in range(len(x.passages))]
    for low, high in (EVERYWHERE, *zip(PLACES, PLACES[1:], strict=False)):
        chosen = [n for n, query in enumerate(queries) if low <= in_front[query.passage] < high]
        if chosen:
            yield low, high, chosen


def main(args: list[str] | None = None) -> None:
    parser = make_parser(__doc__, "a few documents of two packages")
    parser.add_argument("--encoders", nargs="*", choices=list(UNTRAINED), default=list(UNTRAINED))
    parser.add_argument("--teacher", help="folder of the softmax encoder; not given: all-MiniLM-L6-v2 from PyPI")
    parser.add_argument("--trained", nargs="*", choices=ALL, default=[], help="ways to read that are trained for")
    parser.add_argument("--starts", nargs="*", choices=STARTS, default=["lion-minilm-l6"], help="of trainings")
    parser.add_argument("--lora_rank", type=int, help="of trainings; not given: all weights are trained")
    parser.add_argument("--steps", type=int, default=60, help="of a training")
    parser.add_argument(
        "--document_tokens", type=int, default=2048, help="of a training, read of a document in a step"
    )
    parser.add_argument("--seeds", type=int, nargs="*", default=[0], help="of trainings")
    parser.add_argument(
        "--training_dtype",
        choices=["bfloat16", "float32"],
        default="bfloat16",
        help="of a training's products; float32 for CPUs that emulate bfloat16",
    )
    parser.add_argument("--data_dir", type=Path, default=DATA_DIR, help="of documents and trained encoders")
    args = parser.parse_args(args)
    torch.set_num_threads(args.threads)
    teacher = find_teacher(args.teacher)

    file = args.data_dir / f"guides{'-quick' * args.quick}.jsonl"
    if not file.is_file():
        packages = GUIDES[:2] if args.quick else GUIDES
        found = sources.guides_of_packages(packages, args.data_dir / "sources", OF_A_PACKAGE, CHARACTERS)
        sources.write_documents(file, found)
    everything = passages.read_documents(file)
    documents, queries = passages.take_queries(everything, random.Random(0), 0.5, at_most=train_passages.MOST_QUERIES)
    places = list(by_place(documents, queries))
    owners = passages.owners_of(documents)[[query.passage for query in queries]]
    count = {"documents": len(documents), "candidates": sum(len(x.passages) for x in documents)}
    print(f"{count['documents']} documents, {count['candidates']:,} passages, {len(queries):,} queries", flush=True)

    cases = [(name, reading, None, None) for name in args.encoders for reading in UNTRAINED[name]]
    for start in args.starts:
        readings = [x for x in args.trained if start != "all-MiniLM-L6-v2" or x in PIECES]
        cases += [(start, reading, args.steps, seed) for seed in args.seeds for reading in readings]
    path, ratios = args.output_dir / "passages.csv", defaultdict(dict)
    for name, reading, steps, seed in cases:
        folder = folder_of(name, teacher) if steps is None else train(args, name, reading, seed, teacher)
        about = {"encoder": name, "reading": reading, "steps": steps, "seed": seed, "weights": weights_hash(folder)}
        about |= {
            "training_dtype": args.training_dtype if steps else None,
            "lora_rank": args.lora_rank if steps else None,
        } | count
        everywhere = dict(zip(("min_place", "max_place"), EVERYWHERE, strict=True))
        if is_measured(path, [about | everywhere]) and not args.again:
            continue
        if steps is None and name not in ratios:
            ratios[name] = time_readings(folder, documents[:TIMED_DOCUMENTS], UNTRAINED[name])
        found = passages.score_queries(*load(folder), documents, queries, reading)
        rows = []
        for low, high, chosen in places:
            row = about | {"min_place": low, "max_place": high, "queries": len(chosen)}
            for what, values in found.items():
                row[what], row[f"{what}_error"] = mean_and_error(values[chosen], owners[chosen])
            rows.append(row | {"time_of_pieces": ratios[name].get(reading) if steps is None else None})
        append_rows(path, rows)
        means = ", ".join(f"{what.replace('_', ' ')} {values.mean():.3f}" for what, values in found.items())
        print(f"{name}, {reading}, {steps or 'no'} steps: {means}", flush=True)
    write_pages(args.output_dir)


if __name__ == "__main__":
    main()
