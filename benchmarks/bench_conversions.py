# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Ways to make an encoder linear, one change at a time: how near are they to softmax in texts of which they see the far
part through the linear sum only?

    pip install ".[distill]"
    python benchmarks/bench_conversions.py              # two hours of a CPU core; goes on where it was stopped
    python benchmarks/bench_conversions.py --seeds 0    # 40 minutes
    python benchmarks/bench_conversions.py --quick      # a few steps, to see that it runs

Each way trains what it adds to all-MiniLM-L6-v2 for 100 steps on docstrings, as in examples/distill.py, and is judged
by texts of Perl's documentation, as in bench_branches.py: all lengths are computed linearly. `time` of a text is that
of the encoder's own attention = 1, both in turns; it is measured for the first seed.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

import add_examples  # noqa: F401 (examples/ can be imported from here on)
import torch
from bench_branches import LENGTHS, NAMED_TEXTS, NAMES, POD, names_found, texts_of_pod
from hub_upload_lion.convert.encoder import load_encoder
from measure import append_rows, in_new_process, interleaved, is_measured, make_parser
from report import write_pages
from torch import Tensor, nn
from training_lion import distillation
from training_lion.distillation_arguments import DistillationArguments, DistillationTrainingArguments
from training_lion.distillation_data import of_length
from training_lion.scripts.docstrings import write_docstrings
from transformers import AutoTokenizer, PreTrainedModel

from modeling_lion import linearize
from modeling_lion.linearized.branch import LinearBranch


DATA_DIR = Path(__file__).parents[1] / "outputs" / "conversions"
WINDOW = 128
JUDGED, TIMED = (512, 2048), (2048, 8192)  # tokens


def features_of_all_heads(branch: LinearBranch) -> None:
    """Let the features of each head read the queries and keys of all heads."""
    for features in (branch.query_map, branch.key_map):
        heads, size = features.weight.shape[:2]
        features.mix = nn.Parameter(torch.eye(heads * size))
        features.register_forward_pre_hook(mix_heads)


def mix_heads(features: nn.Module, inputs: tuple[Tensor]) -> Tensor:
    return (inputs[0].flatten(-2) @ features.mix.to(inputs[0].dtype)).view_as(inputs[0])


def twice_the_features(branch: LinearBranch) -> None:
    """Give each head twice the features; the new ones begin as turned vectors."""
    for name in ("query_map", "key_map"):
        features = getattr(branch, name)
        size = features.weight.shape[-1]
        turned = nn.init.orthogonal_(torch.empty(size, size), generator=torch.Generator().manual_seed(0))
        features.weight = nn.Parameter(torch.cat((features.weight.data, features.weight.data @ turned), -1))


def set_windows(windows: tuple[int, ...], model: PreTrainedModel) -> None:
    """Windows by layer."""
    for branch, window in zip(distillation.lion_branches(model), windows, strict=True):
        branch.window = window


def of_each(change: Callable[[LinearBranch], None], model: PreTrainedModel) -> None:
    for branch in distillation.lion_branches(model):
        change(branch)


class Way(NamedTuple):
    """Options of `linearize`, and what is changed in the linear encoder before it trains."""

    options: dict = {}  # noqa: RUF012 (never changed)
    change: Callable[[PreTrainedModel], None] = lambda model: None


WAYS = {
    "as the checkpoint": Way(),
    "delta over all tokens": Way({"mixer": "delta"}),
    "decays of the keys": Way({"mixer": "selective"}),
    "layers 3 and 6 softmax": Way({"layers": [0, 1, 3, 4]}),
    "layers 5 and 6 softmax": Way({"layers": [0, 1, 2, 3]}),
    "windows of 256, 256, 256, then 1": Way(change=partial(set_windows, (256, 256, 256, 1, 1, 1))),
    "windows of 1, 1, 1, then 256": Way(change=partial(set_windows, (1, 1, 1, 256, 256, 256))),
    "windows of 256": Way({"window": 256}),
    "twice the features": Way(change=partial(of_each, twice_the_features)),
    "features of all heads": Way(change=partial(of_each, features_of_all_heads)),
}


def make_linear(way: Way, teacher: str) -> PreTrainedModel:
    model = load_encoder(teacher, dtype="float32")
    options = {"feature_map": "scaled_hedgehog", "window": WINDOW, "exact_length": 512, "positions": "cyclic"}
    model = linearize(model, **options | way.options)
    way.change(model)
    return model


def train(model: PreTrainedModel, teacher: str, train_file: Path, seed: int, steps: int, output_dir: str) -> float:
    """Train the weights that were added. Returns seconds of CPU time."""
    arguments = DistillationArguments(
        teacher,
        train_file=str(train_file),
        train_lengths=[512, 512, 512, 1024, 2048],
        joined_share=1.0,
        drop_window=0.15,
        rows=128,
    )
    training = DistillationTrainingArguments(
        output_dir=output_dir,
        do_train=True,
        max_steps=steps,
        per_device_train_batch_size=4,
        seed=seed,
        bf16=True,
        use_cpu=True,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    begin = time.process_time()
    distillation.distill(arguments, training, model)
    return time.process_time() - begin


@torch.no_grad()
def time_of(model: PreTrainedModel, ids: Tensor, repeats: int) -> float:
    """The time of a text ÷ that of the encoder's own attention."""

    def run(name: str) -> None:
        with distillation.attention_of(model, name):
            model(input_ids=ids)

    seconds = interleaved({name: partial(run, name) for name in ("lion", "sdpa")}, repeats)
    return median(seconds["lion"]) / median(seconds["sdpa"])


def measure(name: str, seed: int, teacher: str, args) -> dict[str, float]:
    """Train a way, and its columns of conversions.csv."""
    steps = 2 if args.quick else args.steps
    model = make_linear(WAYS[name], teacher)
    row = {"new_weights": sum(x.numel() for x in distillation.lion_parameters(model))}
    with TemporaryDirectory() as folder:
        row["train_cpu_seconds"] = train(model, teacher, args.data_dir / "train.txt", seed, steps, folder)
    model.eval()
    tokenizer = AutoTokenizer.from_pretrained(teacher, model_max_length=10**9)
    documents = texts_of_pod(args.pod)
    for length in JUDGED:
        chosen = of_length(documents, tokenizer, length, 3 if args.quick else LENGTHS[length])
        found = distillation.evaluate(model, chosen, "mean")["both"]
        row |= {f"{what}_{length}": found[what] for what in ("neighbour_overlap", "cosine")}
        named, names = chosen[: NAMED_TEXTS.get(length, 1)], 2 if args.quick else len(NAMES)
        row[f"names_found_{length}"] = names_found(model, tokenizer, named, names, ("both",))["both"]
    for length in TIMED:
        row[f"time_{length}"] = None
        if seed == args.seeds[0] and not (args.quick and length > TIMED[0]):
            ids = of_length(documents, tokenizer, length, 3)[0]["input_ids"]
            row[f"time_{length}"] = time_of(model, ids, 1 if args.quick else 2)
    return row


def main(args: list[str] | None = None) -> None:
    parser = make_parser(__doc__, "a few steps and texts")
    parser.add_argument("--ways", nargs="*", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=100, help="of a training")
    parser.add_argument("--teacher", help="folder of the softmax encoder; not given: all-MiniLM-L6-v2 from PyPI")
    parser.add_argument("--pod", type=Path, default=POD, help="folder with documentation of Perl")
    parser.add_argument("--data_dir", type=Path, default=DATA_DIR, help="of texts")
    args = parser.parse_args(args)
    torch.set_num_threads(args.threads)
    teacher, path = distillation.find_teacher(args.teacher), args.output_dir / "conversions.csv"
    if not (args.data_dir / "train.txt").is_file():
        write_docstrings(args.data_dir, max_bytes=1_000_000 if args.quick else 30_000_000)
    for seed in args.seeds:
        for name in args.ways:
            case = {"way": name, "steps": args.steps, "seed": seed}
            if is_measured(path, [case]) and not args.again:
                continue
            row = in_new_process(measure, name, seed, teacher, args)
            append_rows(path, [case | row])
            print(name, seed, *(f"{what} {x:.4g}" for what, x in row.items() if x is not None), flush=True)
    write_pages(args.output_dir)


if __name__ == "__main__":
    main()
