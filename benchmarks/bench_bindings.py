# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Names in code: which encoders know what a name refers to when its binding stands far away?

    python benchmarks/bench_bindings.py --tasks 2048     # two hours of a CPU core; goes on where it was stopped
    python benchmarks/bench_bindings.py --tasks 8192     # the same texts in longer parts
    python benchmarks/bench_bindings.py --models "windows alone" LION --seeds 0 --times 10
    python benchmarks/bench_bindings.py --steps 80 --output_dir outputs/mine    # of both stages together
    python benchmarks/bench_bindings.py --tasks "2048, more files"    # four times the texts for training
    python benchmarks/bench_bindings.py --tasks encoder  # a pretrained encoder, in pieces and in one pass
    python benchmarks/bench_bindings.py --quick          # a few steps, to see that it runs

Each name in a Python file is an imported module, an imported name, a function, a class, a global, a parameter, a
local, a built-in or an attribute; Python itself says which (tasks/bindings.py). Files are those of the standard
library and of installed packages; the test has other packages than the training. Models learn from scratch, first on
parts of 256 tokens, then on longer ones, and are tested on texts of that length and on longer ones. "pieces of N" are
read one by one, with an overlap of a quarter, in training and in the test; each name is judged in the piece in whose
middle it stands.

Rows go to bindings.csv, one for each range of distances, in tokens, between a name and the nearest place that binds
it, and one for all labels. Ranges leave out the names that have one meaning only in all training texts: those can be
known by heart. "the name alone" guesses the most frequent meaning of a name in training, or of all names. Standard
errors are clustered by file.
"""

import hashlib
import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from random import Random
from typing import NamedTuple

import add_examples  # noqa: F401 (examples/ can be imported from here on)
import numpy as np
import torch
from bench_length import MODELS as OF_LENGTH
from bench_length import WINDOW, quiet
from datasets import Dataset, DatasetDict, load_from_disk
from measure import append_rows, digest, forget_peak_memory, in_new_process, peak_memory, torch_threads
from report import begin_run, write_pages
from reports.bindings import ALL, NAME_ALONE
from retrieval_lion.documents import files_of_package, read_text
from run_token_classification import encode_words
from tasks.bindings import KINDS, Code, read_code
from tasks.generated import NO_LABEL, PAD_ID
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from training_lion.scripts.ranking import mean_and_error
from trainings import (
    AS_RECOMMENDED,
    ROTARY,
    Data,
    Experiment,
    accuracy,
    comparison_arguments,
    divided,
    is_measured,
    make_trainer,
    pad_with_labels,
    reporting,
    run_mlm,
    sizes,
    start,
    tiny,
)
from transformers import AutoModelForTokenClassification, AutoTokenizer, PreTrainedTokenizerFast, set_seed

from modeling_lion import LionForTokenClassification


TRAINING_PACKAGES = (
    *(
        "concurrent",
        "ctypes",
        "email",
        "http",
        "importlib",
        "logging",
        "multiprocessing",
        "tkinter",
        "xml",
    ),
    *("PIL", "accelerate", "datasets", "gradio", "huggingface_hub", "matplotlib", "mpmath", "numpy", "peft"),
    *("prompt_toolkit", "pydantic", "pygments", "sklearn", "sympy", "torch", "transformers"),
)
TEST_PACKAGES = ("IPython", "asyncio", "fontTools", "jinja2", "networkx", "pandas")
RANGES = ((0, 64), (64, 512), (512, 2048), (2048, 10**9))  # tokens to the binding, the last one excluded
SPECIAL = ("[PAD]", "[UNK]")
COLUMNS = ("input_ids", "labels")  # that models read
# All has a number for each token: `distance` to the binding (-1: none), whether the name is `counted` in ranges, and
# what the name alone says.
ABOUT = ("distance", "counted", "guess")


class Reader(NamedTuple):
    """
    A model of trainings.py, `None` for the encoder of the texts; fields by the number of layers, and the size of the
    pieces it reads (`None`: whole).
    """

    base: str | None
    fields: Callable[[int], dict]
    piece: int | None = None


def windows_and_full(layers: int) -> dict:
    """As in ModernBERT: the first of each three layers is full."""
    types = ["sliding_attention" if n % 3 else "full_attention" for n in range(layers)]
    rope = {"full_attention": ROTARY, "sliding_attention": ROTARY}
    return AS_RECOMMENDED | {"layer_types": types, "sliding_window": WINDOW, "rope_parameters": rope}


WHOLE = "softmax (rotary)", OF_LENGTH["softmax (rotary)"][1]
MODELS = {
    "windows alone": Reader(*OF_LENGTH["windows alone"]),
    "LION": Reader(*OF_LENGTH["LION"]),
    "softmax, pieces of 512": Reader(*WHOLE, piece=512),
    "softmax, pieces of 256": Reader(*WHOLE, piece=256),
    "windows, every third layer full": Reader("softmax (rotary)", windows_and_full),
    "LION, last layer full": Reader(*OF_LENGTH["LION, last layer full"]),
    "LION, last layer full, no positions": Reader(*OF_LENGTH["LION, last layer full, no positions"]),
    "LION-Delta": Reader("LION-Delta", lambda layers: {}),
    "LION-S": Reader("LION-S", lambda layers: AS_RECOMMENDED),
    "softmax (rotary)": Reader(*WHOLE),
}
ENCODER = Path(__file__).parents[1] / "checkpoints" / "lion-minilm-l6"
# The encoder computes softmax up to 512 tokens, and is linear beyond them.
OF_ENCODER = {
    f"{ENCODER.name}, pieces of 512": Reader(None, lambda layers: {}, piece=512),
    ENCODER.name: Reader(None, lambda layers: {}),
}
READERS = MODELS | OF_ENCODER


@dataclass(frozen=True)
class Texts:
    """
    Args:
        lengths: tokens of the texts of each test; shorter files are left out of it.
        files, test_files: read of each package, at most.
        min_bytes: of a file.
        vocab_size: pieces of words, learnt from the training files.
        encoder: folder of an encoder whose tokens are read, in place of such pieces.
        train, test: import names of packages.
    """

    lengths: tuple[int, ...] = (2048, 8192)
    files: int = 200
    test_files: int = 200
    min_bytes: int = 12_000
    vocab_size: int = 8192
    encoder: Path | None = None
    train: tuple[str, ...] = TRAINING_PACKAGES
    test: tuple[str, ...] = TEST_PACKAGES

    @property
    def encoder_name(self) -> str | None:
        return self.encoder and self.encoder.name

    def settings(self) -> str:
        tokens = f"encoder={self.encoder_name}" if self.encoder else f"vocab_size={self.vocab_size}"
        return f"data={data_of(self)} files={self.files} test_files={self.test_files} {tokens}"

    def paths(self, packages: tuple[str, ...], count: int) -> list[Path]:
        """So many files of each package but its tests, the same ones each time."""
        found = []
        for package in packages:
            files, root = files_of_package(package)
            files = [Path(file) for file in files if "test" not in os.path.relpath(file, root).lower()]
            files = sorted(path for path in files if path.stat().st_size >= self.min_bytes)
            Random(0).shuffle(files)
            found += files[:count]
        return found


@cache
def data_of(texts: Texts) -> str:
    """Return the digest of all files: those of another version of a package are other data."""
    return digest(*texts.paths(texts.train, texts.files), *texts.paths(texts.test, texts.test_files))


@dataclass(frozen=True)
class Bindings:
    """Texts and the trainings on them, one after the other."""

    texts: Texts
    stages: tuple[Experiment, ...]
    models: tuple[str, ...] = tuple(MODELS)

    def trained_for(self, steps: int | None, times: int) -> "Bindings":
        """With other steps of all stages together (`divided`)."""
        return replace(self, stages=divided(self.stages, steps, times))

    def settings(self) -> str:
        return f"{self.texts.settings()} " + " then ".join(stage.settings() for stage in self.stages)


def stages(shape: dict, length: int, tokens: int, steps: tuple[int, int], rate: float) -> tuple[Experiment, ...]:
    """Parts of 256 tokens, then of `length`, with so many tokens in each step."""
    parts = (min(256, length), length)
    return tuple(
        Experiment({"length": part}, shape, steps=count, batch_size=max(1, tokens // part), learning_rate=rate)
        for part, count in zip(parts, steps, strict=True)
    )


CPU, GPU = sizes(128, 3, 4), sizes(128, 4, 4)
CPU_TEXTS = Texts(files=20, test_files=40)
ON_2048 = stages(CPU, 2048, 4096, (120, 40), 2e-3)
SCALES: dict[str, dict[str, Bindings]] = {
    "cpu": {
        "2048": Bindings(CPU_TEXTS, ON_2048),
        # The same texts, and as many tokens in all.
        "8192": Bindings(CPU_TEXTS, (ON_2048[0], replace(ON_2048[1], task={"length": 8192}, batch_size=1, steps=20))),
        "2048, more files": Bindings(replace(CPU_TEXTS, files=200), ON_2048),
        "encoder": Bindings(
            replace(CPU_TEXTS, encoder=ENCODER),
            (Experiment({"length": 2048}, {}, steps=300, batch_size=1, learning_rate=2e-4),),
            tuple(OF_ENCODER),
        ),
    },
    "gpu": {
        "2048": Bindings(Texts(), stages(GPU, 2048, 2**15, (4000, 4000), 1e-3)),
        "8192": Bindings(Texts((8192,), min_bytes=40_000), stages(GPU, 8192, 2**15, (4000, 4000), 1e-3)),
    },
    "quick": {
        "2048": Bindings(
            Texts((512, 1024), files=3, test_files=3, vocab_size=600, train=("json", "email"), test=("logging",)),
            stages(tiny(), 512, 1024, (2, 2), 1e-3),
        )
    },
}


def train_tokenizer(codes: list[Code], vocab_size: int) -> PreTrainedTokenizerFast:
    """Pieces of words, which tell case and keep operators whole."""
    tokenizer = Tokenizer(models.WordPiece(unk_token=SPECIAL[1], max_input_chars_per_word=200))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordPieceTrainer(vocab_size=vocab_size, special_tokens=list(SPECIAL), show_progress=False)
    tokenizer.train_from_iterator((" ".join(code.words) for code in codes), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=SPECIAL[0], unk_token=SPECIAL[1])


def read_files(paths: list[Path]) -> list[Code]:
    """Files that Python compiles and symtable and ast agree on."""
    codes = []
    for path in paths:
        try:
            codes.append(read_code(read_text(path)))
        except ValueError as error:
            print(f"left out: {path}: {error}", flush=True)
    return codes


def count_meanings(codes: list[Code]) -> tuple[dict[str, Counter], int]:
    """How often each name has each kind, by name, and the most frequent kind of all. Attributes show what they are."""
    of_name, of_all = defaultdict(Counter), Counter()
    for code in codes:
        for occurrence in code.names:
            if occurrence.kind != "attribute":
                of_name[occurrence.name][KINDS.index(occurrence.kind)] += 1
                of_all[KINDS.index(occurrence.kind)] += 1
    return dict(of_name), of_all.most_common(1)[0][0]


def to_row(code: Code, tokenizer, meanings: dict[str, Counter], common: int) -> dict[str, list[int]]:
    """A file as tokens, with the label of a name at its first piece, and `ABOUT` it."""
    encoded = encode_words(code.words, tokenizer)
    firsts, count = encoded["firsts"], len(encoded["input_ids"])
    row = {"input_ids": encoded["input_ids"], "labels": [NO_LABEL] * count, "guess": [common] * count}
    row |= {"distance": [-1] * count, "counted": [0] * count, "binding": [-1] * count}
    for word, name, kind, binding in code.names:
        first, of_name = firsts[word], meanings.get(name, {})
        row["labels"][first] = KINDS.index(kind)
        if kind == "attribute":
            row["guess"][first] = KINDS.index(kind)  # the dot says so
        elif of_name:
            row["guess"][first] = of_name.most_common(1)[0][0]
        if binding is not None:
            row["binding"][first] = firsts[binding]
            row["distance"][first] = abs(firsts[binding] - first)
            row["counted"][first] = int(len(of_name) != 1)
    return row


def cut_off(row: dict[str, list[int]], length: int) -> dict[str, list[int]]:
    """The first tokens of a file. A name whose binding is cut off has no label."""
    row = {name: values[:length] for name, values in row.items()}
    row["labels"] = [NO_LABEL if b >= length else x for x, b in zip(row["labels"], row["binding"], strict=True)]
    return row


def load_texts(texts: Texts, cache_dir: Path) -> DatasetDict:
    """Files of the training and of the test, whole."""
    paths = {"train": texts.paths(texts.train, texts.files), "test": texts.paths(texts.test, texts.test_files)}
    files = [(str(path), path.stat().st_size) for of_split in paths.values() for path in of_split]
    labels = Path(__file__).with_name("tasks") / "bindings.py"
    key = json.dumps([vars(texts), files, labels.read_text(encoding="utf-8")], default=str)
    folder = cache_dir / f"bindings-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    if not (folder / "dataset_dict.json").is_file():
        codes = {split: read_files(of_split) for split, of_split in paths.items()}
        if texts.encoder:
            tokenizer = AutoTokenizer.from_pretrained(texts.encoder)
        else:
            tokenizer = train_tokenizer(codes["train"], texts.vocab_size)
        meanings, common = count_meanings(codes["train"])
        rows = {split: [to_row(code, tokenizer, meanings, common) for code in x] for split, x in codes.items()}
        DatasetDict({split: Dataset.from_list(x) for split, x in rows.items()}).save_to_disk(folder)
    return load_from_disk(folder)


def in_pieces(row: dict[str, list[int]], size: int, overlap: int) -> Iterator[dict[str, list[int]]]:
    """
    A text in pieces that overlap. Each label is in one piece: the one in whose middle the token is, or at whose end if
    the text begins or ends there.
    """
    count = len(row["labels"])
    starts = range(0, max(1, count - overlap), size - overlap)
    for begin in starts:
        end = min(begin + size, count)
        low = begin + (overlap // 2 if begin else 0)
        high = end if end == count else end - (overlap - overlap // 2)
        piece = {name: values[begin:end] for name, values in row.items()}
        piece["labels"] = [x if low <= begin + n < high else NO_LABEL for n, x in enumerate(piece["labels"])]
        yield piece


def cut(rows: Iterable[dict[str, list[int]]], length: int, piece: int | None) -> Dataset:
    """Texts in parts of so many tokens, or in smaller pieces that overlap by a quarter."""
    size, overlap = (length, 0) if piece is None or piece >= length else (piece, piece // 4)
    pieces = [{**part, "text": n} for n, row in enumerate(rows) for part in in_pieces(row, size, overlap)]
    return Dataset.from_list([part for part in pieces if any(x != NO_LABEL for x in part["labels"])])


def cut_test(files: Dataset, length: int, piece: int | None = None) -> Dataset:
    """The first `length` tokens of the files that have so many, as models read them (`cut`)."""
    return cut((cut_off(row, length) for row in files if len(row["labels"]) >= length), length, piece)


def data_for(files: Dataset, length: int, reader: Reader, vocab_size: int) -> Data:
    """Make the training data of a stage."""
    size = min(length, reader.piece or length)
    config = {"vocab_size": vocab_size, "max_position_embeddings": size, "pad_token_id": PAD_ID}
    return Data(
        LionForTokenClassification,
        config | {"num_labels": len(KINDS)},
        {"train": cut(files, length, reader.piece)},
        pad_with_labels,
        trainer={"compute_metrics": accuracy, "preprocess_logits_for_metrics": run_mlm.most_likely},
    )


def score(dataset: Dataset, answers: list[np.ndarray]) -> list[dict]:
    """Accuracy of answers to each token: of all labels, and of counted names by their distance from the binding."""
    columns = {name: np.concatenate(dataset[name]) for name in ("labels", *ABOUT)}
    owners = np.repeat(dataset["text"], [len(labels) for labels in dataset["labels"]])
    right, is_label = np.concatenate(answers) == columns["labels"], columns["labels"] != NO_LABEL
    rows = []
    for low, high in (ALL, *RANGES):
        chosen = is_label.copy()
        if low is not None:
            chosen &= (columns["counted"] == 1) & (columns["distance"] >= low) & (columns["distance"] < high)
        if chosen.any():
            mean, error = mean_and_error(torch.from_numpy(right[chosen]), torch.from_numpy(owners[chosen]))
            row = {"min_distance": low, "max_distance": high, "names": int(chosen.sum())}
            rows.append(row | {"accuracy": mean, "accuracy_error": error})
    return rows


def train_and_test(name: str, seed: int, bindings: Bindings, cache_dir: Path, report: dict) -> list[dict]:
    """Rows of a model; `report` has arguments of `reporting`."""
    reader, texts = READERS[name], load_texts(bindings.texts, cache_dir)
    fields = reader.fields(bindings.stages[-1].config.get("num_hidden_layers"))
    experiments, data = [], []
    for stage in bindings.stages:
        length = stage.task["length"]
        data.append(data_for(texts["train"], length, reader, bindings.texts.vocab_size))
        pieces = max(1, stage.batch_size * length // data[-1].config["max_position_embeddings"])
        experiments.append(replace(stage, variant=fields, batch_size=pieces))
    if reader.base is None:
        set_seed(seed)
        model = AutoModelForTokenClassification.from_pretrained(bindings.texts.encoder, num_labels=len(KINDS))
    else:
        model = start(reader.base, seed, experiments[-1], data[-1])
    forget_peak_memory()  # of the preparation
    before, begin = peak_memory(), time.process_time()
    for stage, of_stage in zip(experiments, data, strict=True):
        trainer, columns = make_trainer(model, seed, stage, of_stage, cache_dir, disable_tqdm=True, **report)
        quiet(trainer).train()
    about = {"parameters": model.num_parameters(), "train_cpu_seconds": time.process_time() - begin}
    about |= {"memory_bytes": peak_memory() - before}
    rows = []
    for length in bindings.texts.lengths:
        test, begin = cut_test(texts["test"], length, reader.piece), time.process_time()
        found = trainer.predict(test.select_columns(columns))
        about |= {"tokens": length, "test_cpu_seconds": time.process_time() - begin}
        print(f"    loss {found.metrics['test_loss']:.3f}", flush=True)
        answers = [row[: len(labels)] for row, labels in zip(found.predictions, test["labels"], strict=True)]
        rows += [about | row for row in score(test, answers)]
    return rows


def guess(bindings: Bindings, cache_dir: Path) -> list[dict]:
    """Rows of what the name alone says."""
    files, rows = load_texts(bindings.texts, cache_dir)["test"], []
    costs = dict.fromkeys(("parameters", "train_cpu_seconds", "memory_bytes", "test_cpu_seconds"))
    for length in bindings.texts.lengths:
        test = cut_test(files, length)
        rows += [costs | {"tokens": length} | row for row in score(test, [np.array(x) for x in test["guess"]])]
    return rows


def main(args: list[str] | None = None) -> None:
    args = comparison_arguments(args, __doc__, SCALES, READERS)
    path = args.output_dir / "bindings.csv"
    begin_run(args)
    with torch_threads(args.threads):
        for task in args.tasks:
            bindings = SCALES[args.scale][task].trained_for(args.steps, args.times)
            names = [name for name in bindings.models if name in args.models]
            for seed, name in [(None, NAME_ALONE)] * bool(names) + [*product(args.seeds, names)]:
                case = {"scale": args.scale, "encoder": bindings.texts.encoder_name, "files": bindings.texts.files}
                case |= {"model": name, "seed": seed, "times": 1 if seed is None else args.times}
                case |= {"trained_tokens": bindings.stages[-1].task["length"]}
                settings = bindings.texts.settings() if seed is None else bindings.settings()
                if is_measured(path, case, settings):
                    continue
                print(f"{task}, {name}, {case['times']} times the steps, seed {seed}", flush=True)
                if seed is None:
                    rows = guess(bindings, args.cache_dir)
                else:
                    report = reporting(args, task, name, args.times, seed)
                    rows = in_new_process(train_and_test, name, seed, bindings, args.cache_dir, report)
                append_rows(path, [case | row | {"settings": settings} for row in rows])
                for row in rows:
                    place = f"{row['tokens']} tokens, {row['min_distance']}"
                    print(f"    {place}: {row['accuracy']:.3f} of {row['names']}", flush=True)
    write_pages(args.output_dir, args.scale)


if __name__ == "__main__":
    main()
