# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The same search for LION and its peers on the task `recall`: the protocol of docs/benchmarks/recall.md.

    python benchmarks/bench_search.py                               # two hours of a CPU core
    python benchmarks/bench_search.py --contestants softmax LION    # a part of it
    python benchmarks/bench_search.py --steps 200 --trials 3 --seeds 1 2 --output_dir outputs/mine    # less of it
    python benchmarks/bench_search.py --quick                       # a few steps, to see that it runs

For each contestant: eight trials with one seed (peers/trials.py), the choice by the validation split, three other
seeds of the choice with equal steps, and three again for as long as LION trains. A training is a row of search.csv and
is not repeated, so that a stopped run goes on where it was. Its `stage` is "trial", "equal steps" or "equal time".
search_speed.csv has the times of a step.
"""

import argparse
import json
import time
from dataclasses import replace

import bench_recall
import torch
from jackknife import Record
from measure import add_columns, append_rows, interleaved, read_rows, summary, torch_threads
from peers.trials import AS_PUBLISHED, CONTESTANTS, SEARCH_SEED, SEEDS, trials_of
from report import begin_run, write_pages
from reports.search import STAGES, best_trial
from trainings import (
    AS_RECOMMENDED,
    METRICS,
    Data,
    Experiment,
    TrainingParser,
    check_comparable,
    chosen_tasks,
    last_layer_full,
    load_data,
    make_step,
    positive,
    reporting,
    same_settings,
    train,
    training_arguments,
)


SCALES = {scale: {"recall": tasks["recall"]} for scale, tasks in bench_recall.SCALES.items()}
TIME_OF = "LION"  # whose time all have, where time is equal
CHANGES = {
    "LION, one key head": {"num_key_heads": 1},
    "LION-Delta, two key heads": {"num_key_heads": 2},
} | AS_PUBLISHED
OF_TRAININGS = ("rate", "fan_in", "norm_type")  # in trials, no fields of `LionConfig`


def make_experiment(contestant: str, trial: dict, experiment: Experiment) -> tuple[str, Experiment]:
    """The model of `trainings.MODELS` and what to train: the contestant with the settings of a trial."""
    variant = {name: value for name, value in trial.items() if name not in OF_TRAININGS}
    model = "softmax (rotary)" if contestant == "softmax" else contestant.partition(",")[0]
    if contestant == "LION, last layer full":
        variant = last_layer_full(experiment.config["num_hidden_layers"]) | variant
    else:
        variant = CHANGES.get(contestant, {}) | variant
    if model != "LION":
        variant = AS_RECOMMENDED | variant
    rate = experiment.learning_rate * trial.get("rate", 1.0)
    of_model = {"fan_in": trial.get("fan_in", False), "rms_norm": trial.get("norm_type") == "rms_norm"}
    return model, replace(experiment, variant=variant, learning_rate=rate, **of_model)


class Search:
    """
    The protocol for one task. Others may have other trials (`numbers`, `make`), trainings (`fit`) or scores (`best`).

    Args:
        task, experiment, data: as those of trainings.py.
        args: of the command line.
    """

    table = "search"  # of the trainings; that of times ends with "_speed"
    time_of = TIME_OF
    metrics = METRICS
    comparable: tuple[str, ...] = ("trial", STAGES[0])  # stages whose rows stand beside each other

    def __init__(self, task: str, experiment: Experiment, data: Data, args: argparse.Namespace):
        self.task, self.data, self.args = task, data, args
        self.experiment = replace(experiment, steps=args.steps or experiment.steps)
        self.about = {"scale": args.scale, "task": task}
        self.path = args.output_dir / f"{self.table}.csv"

    def all_trials(self, contestant: str) -> list[dict]:
        return trials_of(contestant)

    def numbers(self, contestant: str) -> list[int]:
        """Numbers of the trials to choose from."""
        return [*range(len(self.all_trials(contestant)))][: self.args.trials]

    def trials_to_train(self, contestant: str) -> list[int]:
        """Numbers of the trials to train: none where there is one alone, which needs no search."""
        numbers = self.numbers(contestant)
        return numbers if len(numbers) > 1 else []

    def make(self, contestant: str, number: int) -> tuple[str, Experiment]:
        return make_experiment(contestant, self.all_trials(contestant)[number], self.experiment)

    def fit(self, case: dict, model: str, experiment: Experiment, record: Record | None = None) -> dict:
        """
        Columns of the row of a training; `case` has those that tell it from others, and `record` gets the
        `jackknife_values` of the test split.
        """
        data, options = self.data, self.report_of(case)
        return train(model, case["seed"], experiment, data, self.args.cache_dir, record, **options)

    def report_of(self, case: dict) -> dict:
        """The arguments of `reporting` for the training of a case."""
        return reporting(self.args, self.task, *(case[x] for x in ("contestant", "stage", "trial", "seed")))

    def best(self, rows: list[dict]) -> dict:
        return best_trial(rows)

    def train(self, contestant: str, stage: str, number: int, seed: int, steps: int | None = None) -> None:
        """
        Add a training to the table unless it is there.

        Raises:
            ValueError: if it is there with another setting, other sizes, steps or data, or other contestants are.
        """
        model, experiment = self.make(contestant, number)
        experiment = replace(experiment, steps=steps or experiment.steps)
        case = self.about | {"contestant": contestant, "stage": stage, "trial": number, "seed": seed}
        what = {"setting": json.dumps(self.all_trials(contestant)[number]), "settings": experiment.settings(model)}
        if found := read_rows(self.path, **case):
            if found[-1]["setting"] == what["setting"] and same_settings(found[-1]["settings"], what["settings"]):
                return
            raise ValueError(
                f"{self.path} has another training for {case} ({found[-1]['setting']}, {found[-1]['settings']}): give "
                "another --output_dir."
            )
        if stage in self.comparable:
            rows = [row for row in read_rows(self.path, **self.about) if row["stage"] in self.comparable]
            check_comparable(self.path, rows, what["settings"])
        print(f"{self.task}, {contestant}, {stage}, trial {number} {what['setting']}, seed {seed}", flush=True)
        begin = time.process_time()
        row = self.fit(case, model, experiment)
        row |= {"steps": experiment.steps, "train_cpu_seconds": time.process_time() - begin}
        row = case | {"setting": what["setting"]} | row | {"settings": what["settings"]}
        add_columns(self.path, *row)  # a table of an earlier version may lack some
        append_rows(self.path, [row])
        scores = {name: round(row[name], 3) for name in self.metrics if row.get(name) is not None}
        print(f"    {scores} in {row['train_cpu_seconds']:.0f} s of CPU time", flush=True)

    def choice(self, contestant: str) -> int | None:
        """The number of the best trial, `None` while trials are missing. One alone needs no training to be chosen."""
        rows = read_rows(self.path, **self.about, contestant=contestant, stage="trial")
        numbers = self.numbers(contestant)
        if {row["trial"] for row in rows} >= {*numbers}:
            return self.best(rows)["trial"]
        return numbers[0] if len(numbers) == 1 else None

    def equal_steps(self, contestant: str) -> None:
        """All trials, unless there is one alone, then the other seeds of the best one."""
        trained = []
        while left := [x for x in self.trials_to_train(contestant) if x not in trained]:
            self.train(contestant, "trial", left[0], SEARCH_SEED)  # what comes next may depend on it
            trained.append(left[0])
        for seed in self.args.seeds:
            self.train(contestant, "equal steps", self.choice(contestant), seed)

    def equal_time(self, contestants: list[str]) -> None:
        """With as many steps as take the time of `time_of`'s, of contestants whose trials are all there."""
        choices = {name: self.choice(name) for name in dict.fromkeys([self.time_of, *contestants])}
        choices = {name: number for name, number in choices.items() if number is not None}
        if self.time_of not in choices:
            print(
                f"{self.task}: no equal time, since {self.time_of}, whose time it is, has not been trained: add it to "
                "--contestants.",
                flush=True,
            )
            return
        ratios = self.times(choices)
        for name in (x for x in contestants if x in choices and not self.has_same_time(x, ratios[x])):
            for seed in self.args.seeds:
                self.train(name, "equal time", choices[name], seed, self.steps_in(ratios[name]))

    def has_same_time(self, contestant: str, ratio: float) -> bool:
        """Whether a model whose step takes so many times as long needs no trainings besides those with equal steps."""
        return False

    def steps_in(self, ratio: float) -> int:
        """As many as take the time of `time_of`'s, of which each takes so many times as long."""
        return max(1, round(self.experiment.steps / ratio))

    def times(self, choices: dict[str, int]) -> dict[str, float]:
        """Time of a training step ÷ `time_of`'s by contestant: once measured, always read from the table."""
        path = self.args.output_dir / f"{self.table}_speed.csv"
        known = {row["contestant"]: row["ratio"] for row in read_rows(path, **self.about)}
        if choices.keys() <= known.keys():
            return known
        # CPU time of one thread is disturbed least; a GPU is timed by the clock.
        with torch_threads(None if torch.cuda.is_available() else 1):
            steps = {name: make_step(*self.make(name, number), self.data) for name, number in choices.items()}
            found = {name: summary(seconds) for name, seconds in interleaved(steps, self.args.repeats).items()}
        rows = []
        for name in (name for name in choices if name not in known):
            ratio = found[name]["median"] / found[self.time_of]["median"]
            rows.append(self.about | {"contestant": name, "trial": choices[name], "ratio": ratio} | found[name])
        append_rows(path, rows)
        return {row["contestant"]: row["ratio"] for row in read_rows(path, **self.about)}


def other_seed(text: str) -> int:
    if not text.isdecimal() or int(text) == SEARCH_SEED:
        raise argparse.ArgumentTypeError(f"{text!r}: give seeds from 1 on, since trials choose with {SEARCH_SEED}")
    return int(text)


def search_arguments(description: str, scales: dict[str, dict[str, Experiment]]) -> TrainingParser:
    """The arguments of all searches."""
    parser = training_arguments(description, scales)
    add = parser.add_argument
    add(
        "--trials",
        type=positive,
        help="only the first trials of each contestant, so many; 1: no search; not given: all",
    )
    add("--seeds", type=other_seed, nargs="+", default=SEEDS, help="of the trainings that count")
    return parser


def main(args: list[str] | None = None) -> None:
    parser = search_arguments(__doc__, SCALES)
    parser.add_argument("--contestants", nargs="+", choices=CONTESTANTS, default=CONTESTANTS)
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES)
    parser.add_argument("--quick", action="store_true", help="scale quick")
    parser.add_argument("--repeats", type=int, default=7, help="repeats of each timing")
    args = parser.parse_args(args)
    if args.quick:
        args.scale, args.repeats = "quick", 2
    begin_run(args)
    for task in chosen_tasks(parser, args, SCALES):
        experiment = SCALES[args.scale][task]
        search = Search(task, experiment, load_data(task, experiment, args.cache_dir), args)
        with torch_threads(args.threads):
            for contestant in args.contestants if "equal steps" in args.stages else ():
                search.equal_steps(contestant)
            if "equal time" in args.stages:
                search.equal_time(list(args.contestants))
    write_pages(args.output_dir, args.scale)


if __name__ == "__main__":
    main()
