# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The paper's road for texts, in small: masked language modeling of manuals, then fine-tuning on labels that people gave.

    python benchmarks/bench_text.py                # eight hours of a CPU core; it goes on if stopped
    python benchmarks/bench_text.py --tasks mlm section --contestants softmax LION
    python benchmarks/bench_text.py --scale gpu    # BERT-small's sizes
    python benchmarks/bench_text.py --mixers retention.py
    python benchmarks/bench_text.py --tasks mlm --steps 100 --trials 2 --seeds 1 2 --output_dir outputs/mine
    python benchmarks/bench_text.py --quick

tasks/real_data.py fetches and describes the data. Every training is a call of examples/run_mlm.py or run_glue.py, with
one tokenizer for all. BERT is softmax attention with learnt positions ("softmax") or rotary ones, the reference of the
table, in the backbone of the others. All have norms before each block, and an MLP whose width makes parameters equal
within 2 %.

The protocol is in rate_search.py; here, masked language modeling has six trials. Of a fine-tuning, whose weights are
there, four learning rates are searched. It starts from the model that the contestant has of this seed and stage: a
trial of seed 0 from the chosen trial of seed 0. All models pool by the mean. Where time is equal, masked language
modeling and fine-tuning both have as many steps as take the Transformer's time, unless a step takes about as long
(`reports.real.SAME_TIME`) in both.

Every training is a row of real_text.csv and is not repeated; real_text_examples.csv has what each test text changes.
Trained language models are kept in the data's folder, or in the cache of an output folder of your own, and made again
if they are missing. real_text_speed.csv has the times of a training step beside the Transformer's. `section` and
`facets` have Debian's lists, which change by the day; with `--lists_of_today` they have a table of their own,
real_text_today.csv.
"""

import json
import shutil
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import torch
from bench_search import STAGES
from jackknife import MOST, Record, jackknife_values
from measure import is_ours, read_rows
from peers.auto_classes import auto_classes_of
from rate_search import TRIALS, RateSearch, chosen_contestants, rate_arguments, run_search
from report import begin_run, write_pages
from reports.real import has_same_time
from run_glue import main as run_glue
from run_mlm import main as run_mlm
from tasks.real_data import SPLITS, digest, prepare, write_all
from tokenization_lion import LionTokenizer
from trainings import OWN_MIXERS, Data, Experiment, TrainingParser, chosen_tasks, make_config, sizes
from transformers import AutoTokenizer

from modeling_lion import LionForMaskedLM, LionForSequenceClassification


CONTESTANTS = (
    *("softmax (rotary)", "softmax", "LION-LIT", "LION-D", "LION-S", "LION", "LION-Delta", "local mean", "GLA"),
    *("Hydra", "two Mamba-2"),
)
# Trials. Learning rates are higher than for images, since trainings are short.
PRE_TRAINING = (*TRIALS, *({"initializer_range": 0.1, "rate": rate} for rate in (4.0, 8.0)))
FINE_TUNING = ({}, {"rate": 2.0}, {"rate": 4.0}, {"rate": 8.0})
OF_LISTS = ("section", "facets")  # tasks whose texts are Debian's lists, which change by the day
POOLED = {"pooling": "mean"}  # better than the state of [CLS] for BERT, too
# What run_glue.py measures for each task; for masked language modeling the accuracy on masked tokens.
METRICS = {
    "mlm": "accuracy",
    "section": "accuracy",
    "facets": "f1_micro",
    "sentiment": "pearson",
    "documents": "accuracy",
}
CPU, GPU, QUICK = sizes(96, 3, 4), sizes(512, 8, 8), sizes(32, 2, 4, intermediate_size=256)
# `length`: tokens of a text; `vocab_size`: of the tokenizer.
SCALES = {
    "cpu": {
        "mlm": Experiment({"length": 512, "vocab_size": 4_000, "evaluated": 300}, CPU, 400, 8, 2e-3, examples=10**6),
        "section": Experiment({"length": 128, "evaluated": 2_000}, CPU, 150, 32, 2e-3, examples=5_000),
        "facets": Experiment({"length": 128, "evaluated": 2_000}, CPU, 150, 32, 2e-3, examples=5_000),
        "sentiment": Experiment({"length": 64, "evaluated": 2_000}, CPU, 200, 32, 2e-3, examples=7_000),
        "documents": Experiment({"length": 512, "evaluated": 2_000}, CPU, 100, 8, 2e-3, examples=1_000),
    },
    "gpu": {
        "mlm": Experiment(
            {"length": 1_024, "vocab_size": 16_000, "evaluated": 10**5}, GPU, 20_000, 64, 2.5e-4, examples=10**6
        ),
        "section": Experiment({"length": 256, "evaluated": 10**5}, GPU, 3_000, 64, 5e-5, examples=10**5),
        "facets": Experiment({"length": 256, "evaluated": 10**5}, GPU, 3_000, 64, 5e-5, examples=10**5),
        "sentiment": Experiment({"length": 128, "evaluated": 10**5}, GPU, 2_000, 64, 5e-5, examples=10**5),
        "documents": Experiment({"length": 1_024, "evaluated": 10**5}, GPU, 1_000, 32, 5e-5, examples=10**5),
    },
    "quick": {
        "mlm": Experiment({"length": 32, "vocab_size": 300, "evaluated": 9}, QUICK, 3, 4, examples=20),
        "section": Experiment({"length": 32, "evaluated": 9}, QUICK, 2, 4, examples=20),
        "facets": Experiment({"length": 32, "evaluated": 9}, QUICK, 2, 4, examples=20),
        "sentiment": Experiment({"length": 32, "evaluated": 9}, QUICK, 2, 4, examples=20),
        "documents": Experiment({"length": 32, "evaluated": 9}, QUICK, 2, 4, examples=20),
    },
}
RECIPE = {
    "lr_scheduler_type": "cosine",
    "weight_decay": 0.01,
    "adam_beta2": 0.98,
    "save_strategy": "no",
    "logging_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
    "dataloader_pin_memory": torch.cuda.is_available(),
    "bf16": torch.cuda.is_available(),
}


RESULTS_OF_RUN = "all_results.json"
NEIGHBOURS = 10  # pieces of manuals, of which one text has several, that count as one test example


def words(**options) -> list[str]:
    """A command line of these options."""
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


def tokenizer_of(folder: Path, texts: Path, vocab_size: int):
    """One for all models: trained on the manuals once, as two trainings may differ."""
    if not (folder / "tokenizer_config.json").exists():
        with texts.open(encoding="utf-8") as lines:
            LionTokenizer.train_from_iterator(lines, vocab_size).save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


class TextSearch(RateSearch):
    """
    The protocol for one task.

    Args:
        folder: of `prepare`. mlm: the search of masked language modeling, of another task.

    Raises:
        ValueError: if the table has trainings of this task on other data.
    """

    table = "real_text"
    metrics = ("validation_loss", "validation_score", "test_score")
    program = "bench_text.py"

    def __init__(
        self, task: str, experiment: Experiment, folder: Path, args: Namespace, mlm: "TextSearch | None" = None
    ):
        self.folder, self.mlm = folder, mlm
        if args.lists_of_today and task in OF_LISTS:
            self.table, self.further_options = "real_text_today", " --lists_of_today"
        models = (args.data if is_ours(args.output_dir) else args.cache_dir) / "models"
        self.models = models / (f"{args.scale}-{args.steps}" if args.steps else args.scale)
        about = {"data": digest(folder, "manuals")} if mlm is None else {"data": digest(folder, task)} | POOLED
        experiment = replace(experiment, task=experiment.task | about)
        first = (experiment if mlm is None else mlm.experiment).task
        self.tokenizer_dir = self.models / f"tokenizer_{first['vocab_size']}_{first['data']}"
        tokenizer = tokenizer_of(self.tokenizer_dir, folder / "manuals" / "train.txt", first["vocab_size"])
        model_class = LionForMaskedLM if mlm is None else LionForSequenceClassification
        config = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
        config |= {"max_position_embeddings": experiment.task["length"], "sparse_prediction": mlm is None}
        config |= {} if mlm is None else POOLED
        super().__init__(task, experiment, Data(model_class, config, {}, None), args)
        name = f"data={about['data']}"
        if others := [row for row in read_rows(self.path, **self.about) if name not in row["settings"].split()]:
            raise ValueError(
                f"{self.path} has trainings of {task} on other data than {name}, which {folder} has "
                f"({others[0]['settings']}): give another --output_dir"
                + (" or, for a table of their own, --lists_of_today." if task in OF_LISTS else ".")
            )

    def grid(self) -> list[dict]:
        return list(PRE_TRAINING if self.mlm is None else FINE_TUNING)

    def output_dir(self, case: dict) -> Path:
        name = f"{case['contestant']}-{case['stage']}-{case['trial']}-{case['seed']}"
        if case["contestant"] in OWN_MIXERS:
            name += f"-{OWN_MIXERS[case['contestant']]}"
        return self.models / self.task / name.replace(" ", "_")

    def columns(self, case: dict, model: str, experiment: Experiment, record: Record | None = None) -> dict:
        output_dir, task = self.output_dir(case), experiment.task
        shutil.rmtree(output_dir, ignore_errors=True)
        arguments = RECIPE | {
            "output_dir": output_dir,
            "seed": case["seed"],
            "max_steps": experiment.steps,
            "warmup_steps": max(1, experiment.steps // 10),
            "per_device_train_batch_size": experiment.batch_size,
            "per_device_eval_batch_size": 2 * experiment.batch_size,
            "learning_rate": experiment.learning_rate,
            "max_seq_length": task["length"],
            "max_train_samples": experiment.examples,
            "max_eval_samples": task["evaluated"],
            "cache_dir": self.models / "cache",
        }
        if self.mlm is None:
            run, kind, name = run_mlm, "txt", "manuals"
            make_config(model, experiment, self.data).save_pretrained(output_dir)
            start = {"config_name": output_dir, "tokenizer_name": self.tokenizer_dir}
        else:
            run, kind, name = run_glue, "jsonl", self.task
            overrides = ",".join(f"{field}={value}" for field, value in POOLED.items())
            start = {"model_name_or_path": self.mlm.trained(case), "config_overrides": overrides}
        arguments |= self.report_of(case)  # behind the language model, which may have to be trained and has its own
        files = {split: self.folder / name / f"{split}.{kind}" for split in SPLITS}
        with auto_classes_of(model):
            options = {"train_file": files["train"], "validation_file": files["validation"]} | start | arguments
            trained = run(["--do_train", *words(do_eval=True, **options)])
            options = {"validation_file": files["test"]} | arguments | {"report_to": "none"}
            options |= {"output_dir": output_dir / "test", "model_name_or_path": output_dir}
            tester = run(words(do_eval=True, **options))
            if record is not None:
                output = tester.predict(tester.eval_dataset)
                most = max(len(output.label_ids) // NEIGHBOURS, 3) if self.mlm is None else MOST
                record(jackknife_values(tester.compute_metrics, METRICS[self.task], output, most))
        found = {"validation": read_metrics(output_dir), "test": read_metrics(output_dir / "test")}
        if self.mlm is not None:
            shutil.rmtree(output_dir)  # nobody starts from it
        row = {"metric": METRICS[self.task], "parameters": trained.model.num_parameters()}
        for split, metrics in found.items():
            row |= {f"{split}_loss": metrics["eval_loss"], f"{split}_score": metrics[f"eval_{METRICS[self.task]}"]}
        return row | {"train_seconds": found["validation"]["train_runtime"]}

    def has_same_time(self, contestant: str, ratio: float) -> bool:
        """Also of the language model that a fine-tuning starts from."""
        ratios = [ratio]
        if self.mlm is not None and (trial := self.mlm.choice(contestant)) is not None:
            ratios += [self.mlm.times({contestant: trial})[contestant]]
        return all(map(has_same_time, ratios))

    def best(self, rows: list[dict]) -> dict:
        return max(rows, key=lambda row: (row["validation_score"], -row["validation_loss"]))

    def trained(self, case: dict) -> Path:
        """
        The language model from which a fine-tuning of `case` starts, trained again if it is not there.

        Raises:
            ValueError: if the learning rate of its training has not been searched.
        """
        contestant, steps = case["contestant"], self.experiment.steps
        if (trial := self.choice(contestant)) is None:
            raise ValueError(f"{contestant} has no language model yet: give --tasks mlm {case['task']}.")
        if case["stage"] == STAGES[1]:
            steps = self.steps_in(self.times({contestant: trial})[contestant])
        case = case | {"task": self.task, "trial": trial}
        folder = self.output_dir(case)
        if not (folder / "test" / RESULTS_OF_RUN).exists():  # the last file of a training
            model, experiment = self.make(contestant, trial)
            self.columns(case, model, replace(experiment, steps=steps))
        return folder


def read_metrics(folder: Path) -> dict:
    return json.loads((folder / RESULTS_OF_RUN).read_text(encoding="utf-8"))


def quick_texts(folder: Path) -> Path:
    """A folder as `prepare` makes it, of texts without sense."""
    words = [f"{a}{b}{c}" for a in "bdgklm" for b in "aeiou" for c in "nrst"]
    pick = lambda i, n: [words[(i * i + 7 * j * j + i * j) % len(words)] for j in range(n)]
    texts = [" ".join(pick(i, 12 + i % 30)) for i in range(120)]
    labels = {
        "section": lambda i: words[i % 4],
        "facets": lambda i: words[: i % 3],
        "sentiment": lambda i: i % 9 / 2 - 2,
        "documents": lambda i: words[i % 5],
    }
    rows = {"manuals": [(text, {"text": text}) for text in texts]}
    rows |= {task: [(x, {"text": x, "label": of(i)}) for i, x in enumerate(texts)] for task, of in labels.items()}
    write_all(folder, rows, 0, [])
    return folder


def text_arguments() -> TrainingParser:
    """The arguments of this benchmark: those of `rate_arguments` and its own."""
    parser = rate_arguments(__doc__, SCALES, list(CONTESTANTS))
    parser.add_argument(
        "--lists_of_today",
        action="store_true",
        help=f"{' and '.join(OF_LISTS)}, whose texts change by the day, in a table of their own: real_text_today.csv",
    )
    return parser


def main(args: list[str] | None = None) -> None:
    parser = text_arguments()
    args = parser.parse_args(args)
    contestants = chosen_contestants(parser, args, list(CONTESTANTS))
    tasks = chosen_tasks(parser, args, SCALES)
    if args.beyond_edges and "mlm" in tasks:
        parser.error(
            "--beyond_edges would change the language models from which fine-tunings in the table started: leave the "
            "task mlm out."
        )
    begin_run(args)
    experiments = SCALES[args.scale]
    folder = quick_texts(args.cache_dir / "texts") if args.scale == "quick" else prepare(args.data, args.archives)
    mlm = TextSearch("mlm", experiments["mlm"], folder, Namespace(**vars(args) | {"beyond_edges": False}))
    of_task = lambda task: mlm if task == "mlm" else TextSearch(task, experiments[task], folder, args, mlm)
    for search in [of_task(task) for task in tasks]:  # data that a table refuses end the run before a training
        run_search(search, contestants, args)
    write_pages(args.output_dir, args.scale)


if __name__ == "__main__":
    main()
