# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The protocol of bench_images.py and bench_text.py: all models have one shape and one recipe, and the learning rate and
the range of initial weights are searched, as much for each. Trials have one seed, and the validation split chooses;
three other seeds of the choice count, or those of `--seeds`. With `--beyond_edges`, each search goes on until its best
trial has neither the highest nor the lowest learning rate. Otherwise it is that of bench_search.py, with softmax
attention, the Transformer, as the model whose time all others have where time is equal. In a third stage, "one
change", the recommended LION trains with one field changed, at the learning rate and the initial weights that were
chosen for it, with the same three seeds; and so do LION-LIT, LION-D and LION-S with what the paper's models have
(`AS_PUBLISHED`). In a fourth, "three times the steps", the choice trains for so long.
"""

import argparse
import json
import shlex
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean

from bench_search import STAGES, Search, search_arguments
from jackknife import Record, append_values
from measure import RESULTS, is_ours, read_rows, torch_threads
from peers.trials import AS_PUBLISHED, SEEDS
from reports.cells import base_of
from reports.paired import rate_among
from reports.real import LONGER, has_same_time
from trainings import MODELS, Experiment, TrainingParser, count, last_layer_full, make_config


NAMED = (*MODELS,)  # without mixers of one's own, which come later
TRANSFORMER = "softmax"
RECOMMENDED = "LION"
ONE_CHANGE = "one change"
OTHER_STAGES = (ONE_CHANGE, LONGER)  # are run if they are asked for
# Weights begin as in BERT and DeiT, or in a wider range.
TRIALS = ({}, {"rate": 2.0}, {"initializer_range": 0.1}, {"initializer_range": 0.1, "rate": 2.0})
MOST_BEYOND = 6  # trials of `--beyond_edges`: an untrainable task may have no best rate
MOST = 1.02  # the most parameters of a model ÷ the fewest


def changes_of(layers: int, modality: str) -> dict[str, dict]:
    """The fields of each change of `RECOMMENDED` and of the paper's models, by contestant."""
    changes = {
        "no convolution": {"conv_kernel": 0},
        "heads read both ways": {"head_directions": "both"},
        "last layer full": last_layer_full(layers, modality),
        "one key head": {"num_key_heads": 1},
        "no gate in the MLP": {"use_gated_mlp": False},
        "initial weights of 0.02": {"initializer_range": 0.02},
        "convolution over 7 tokens": {"conv_kernel": 7},
    }
    if modality == "image":
        changes["no positions"] = {"position_embedding_type": "none"}
    return {f"{RECOMMENDED}, {name}": fields for name, fields in changes.items()} | AS_PUBLISHED


class RateSearch(Search):
    """
    The protocol for one task; `Search` has its arguments.

    Attributes:
        variants: by contestant, its entry in `trainings.MODELS` and the fields of its configuration that differ.
        program: of the command of a row.
        further_options: of that command, besides those of every search.
    """

    time_of = TRANSFORMER
    variants: dict[str, tuple[str, dict]] = {}
    program = ""
    further_options = ""
    comparable = (*Search.comparable, ONE_CHANGE)

    @property
    def changes(self) -> dict[str, dict]:
        return changes_of(self.experiment.config["num_hidden_layers"], self.data.config.get("modality", "text"))

    def unchanged(self, contestant: str) -> str:
        """The model that a contestant is, or is a change of."""
        return base_of(contestant) if contestant in self.changes else contestant

    def grid(self) -> list[dict]:
        """The trials of every contestant."""
        return list(TRIALS)

    def all_trials(self, contestant: str) -> dict[int, dict]:
        """
        By number the grid, the trials behind it that the table has, and if all of the grid that was asked for is
        there, one to come: while the best one has the highest or the lowest learning rate of those that have all else
        in common with it, with twice or half of that, until there are `MOST_BEYOND` behind the grid.
        """
        trials, name = dict(enumerate(self.grid())), self.unchanged(contestant)
        most, asked = len(trials) + MOST_BEYOND, [*trials][: self.args.trials]
        rows = {row["trial"]: row for row in read_rows(self.path, **self.about, contestant=name, stage="trial")}
        for number in sorted(rows.keys() - trials):
            trials[number] = json.loads(rows[number]["setting"])
        if rows.keys() >= {*asked} and len(trials) < most:
            best = trials[self.best([*rows.values()])["trial"]]
            low, rate, high = rate_among([trials[number] for number in rows], best)
            if not low < rate < high:
                trials[len(trials)] = best | {"rate": rate * (2.0 if rate == high else 0.5)}
        return trials

    def numbers(self, contestant: str) -> list[int]:
        of_grid = range(len(self.grid()))
        beyond = [x for x in self.all_trials(contestant) if x not in of_grid] if self.args.beyond_edges else []
        return [*of_grid[: self.args.trials], *beyond]

    def choice(self, contestant: str) -> int | None:
        return super().choice(self.unchanged(contestant))

    def changes_among(self, contestants: Iterable[str]) -> list[str]:
        """The changes of these contestants."""
        return [name for name in self.changes if base_of(name) in {*contestants}]

    def one_change(self, contestants: Iterable[str]) -> None:
        """
        The seeds that count, of each change of these contestants.

        Raises:
            ValueError: if the trials of such a contestant are not all there.
        """
        for name in self.changes_among(contestants):
            self.train_choice(name, ONE_CHANGE)

    def train_choice(self, contestant: str, stage: str, steps: int | None = None) -> None:
        """
        The seeds that count, with what was chosen in equal steps.

        Raises:
            ValueError: if trials are missing.
        """
        if (number := self.choice(contestant)) is None:
            raise ValueError(
                f"{base_of(contestant)} has no trials for {self.task} yet: run the stage {STAGES[0]!r} first."
            )
        for seed in self.args.seeds:
            self.train(contestant, stage, number, seed, steps)

    def make(self, contestant: str, number: int) -> tuple[str, Experiment]:
        trial = dict(self.all_trials(contestant)[number])  # fewer --trials do not undo a search
        rate = self.experiment.learning_rate * trial.pop("rate", 1.0)
        unchanged = self.unchanged(contestant)
        model, fields = self.variants.get(unchanged, (unchanged, {}))
        fields = fields | self.changes.get(contestant, {})
        return model, replace(self.experiment, learning_rate=rate, variant=trial | fields)

    def fit(self, case: dict, model: str, experiment: Experiment) -> dict:
        is_change = case["stage"] == ONE_CHANGE
        options = f"--contestants {base_of(case['contestant']) if is_change else case['contestant']!r}"
        options += f" --stages {case['stage']!r}" * (case["stage"] in OTHER_STAGES)
        options += f" --stages {shlex.join(STAGES)}" * (case["stage"] == STAGES[1])
        options += f" --steps {self.args.steps}" if self.args.steps else ""
        options += f" --trials {self.args.trials}" if self.args.trials else ""
        options += " --beyond_edges" * self.args.beyond_edges + self.further_options
        options += f" --seeds {shlex.join(map(str, self.args.seeds))}" * (tuple(self.args.seeds) != SEEDS)
        options += f" --mixers {shlex.join(self.args.mixers)}" * (model not in NAMED)
        options += "" if is_ours(self.args.output_dir) else f" --output_dir {shlex.quote(str(self.args.output_dir))}"
        command = f"python benchmarks/{self.program} --scale {self.args.scale} --tasks {self.task} {options}"
        # Before the row of the training, which says that all is done.
        record = None if case["stage"] == "trial" else partial(append_values, self.path, case)
        return {"command": command} | self.columns(case, model, experiment, record)

    def columns(self, case: dict, model: str, experiment: Experiment, record: Record | None = None) -> dict:
        """Columns of the row of a training but for the command, as `Search.fit` has them."""
        return super().fit(case, model, experiment, record)

    def has_same_time(self, contestant: str, ratio: float) -> bool:
        return has_same_time(ratio)

    def check_parameters(self, contestants: Iterable[str]) -> None:
        """
        Raises:
            ValueError: if a contestant has over `MOST` times as many parameters as another, or the Transformer.
        """
        counts = {}
        for name in dict.fromkeys([TRANSFORMER, *contestants]):
            model, experiment = self.make(name, 0)
            counts[name] = count(model, make_config(model, experiment, self.data), self.data)
        if max(counts.values()) > MOST * min(counts.values()):
            raise ValueError(f"{self.task}: parameters differ by more than {MOST - 1:.0%}: {counts}.")


def rate_arguments(
    description: str, scales: dict[str, dict[str, Experiment]], contestants: list[str]
) -> TrainingParser:
    """The arguments of both benchmarks."""
    parser = search_arguments(description, scales)
    parser.add_argument("--contestants", nargs="+", help=f"not given: {', '.join(contestants)}")
    parser.add_argument(
        "--beyond_edges",
        action="store_true",
        help="further trials of each contestant, until neither the highest nor the lowest learning rate is the best",
    )
    parser.add_argument("--stages", nargs="+", choices=(*STAGES, *OTHER_STAGES), default=STAGES)
    parser.add_argument(
        "--mixers",
        nargs="+",
        default=[],
        metavar="FILE",
        help="files that register mixers (`modeling_lion.register_mixer`), each of which is a contestant, too",
    )
    parser.add_argument(
        "--data",
        type=Path,
        help="folder of tasks/real_data.py; not given: outputs/real, or `data` in a folder of your own",
    )
    parser.add_argument(
        "--archives", type=Path, help="files that were fetched before; not given: in the data's folder"
    )
    parser.add_argument("--repeats", type=int, default=7, help="repeats of each timing")
    parser.add_argument("--quick", action="store_true", help="scale quick: a few steps, to see that it runs")
    return parser


def chosen_contestants(parser: TrainingParser, args: argparse.Namespace, known: list[str]) -> list[str]:
    """
    The contestants that were asked for, or all, and mixers of one's own. Unknown names end the program with a message.

    `--quick` becomes the scale "quick", and mixers of one's own enter `trainings.MODELS` under their names.
    """
    if args.quick:
        args.scale, args.repeats = "quick", 2
    if args.beyond_edges and args.trials == 1:
        parser.error("--beyond_edges goes on from the best of several trials: give more --trials.")
    own = parser.add_mixers(args.mixers)
    if unknown := {*(args.contestants or ())} - {*known, *own}:
        parser.error(f"there is no contestant {' and no '.join(sorted(unknown))}: {', '.join([*known, *own])}")
    return list(dict.fromkeys([*(args.contestants or known), *own]))


def what_comes(search: RateSearch, contestants: list[str]) -> str:
    """
    How many trainings are not in the table yet, and the minutes of CPU time that those of the repository say: of the
    same model, or for one of your own the mean of all.
    """
    args, missing = search.args, {}
    for name in contestants if STAGES[0] in args.stages else ():
        rows = read_rows(search.path, **search.about, contestant=name)
        is_there = {(row["stage"], row["trial" if row["stage"] == "trial" else "seed"]) for row in rows}
        asked = {("trial", number) for number in search.trials_to_train(name)}
        missing[name] = len((asked | {(STAGES[0], seed) for seed in args.seeds}) - is_there)
    text = ", ".join(f"{count} of {name}" for name, count in missing.items() if count) or "none"
    text += ", and trials beyond edges" * args.beyond_edges
    counts = [*missing.items()]
    if STAGES[1] in args.stages:
        rows = read_rows(search.path, **search.about, stage=STAGES[1])
        is_there = {(row["contestant"], row["seed"]) for row in rows}
        further = len({*product(contestants, args.seeds)} - is_there)
        text += f", and up to {further} with equal time"
        counts.append((search.time_of, further))
    minutes, steps = defaultdict(list), search.experiment.steps
    known = read_rows(RESULTS / f"{search.table}.csv", **search.about, stage=STAGES[0])
    same = [row for row in known if row["steps"] == steps]
    for row in same or known:
        minutes[row["contestant"]].append(row["train_cpu_seconds"] / 60 / row["steps"] * steps)
    if minutes and any(count for _, count in counts):
        of_all = [x for of_model in minutes.values() for x in of_model]
        total = sum(count * fmean(minutes.get(name, of_all)) for name, count in counts)
        bound = "" if same else "at least "
        text += f"; {bound}some {total:.1f} minutes of CPU time, as trainings of the repository say"
        text += "" if same else f" of other steps: an evaluation takes as long after {steps:,}"
    return f"{search.task}: trainings to come: {text}."


def run_search(search: RateSearch, contestants: list[str], args: argparse.Namespace) -> None:
    """All stages of a task that were asked for, then the times of steps."""
    search.check_parameters(contestants)
    print(what_comes(search, contestants), flush=True)
    with torch_threads(args.threads):
        for contestant in contestants if "equal steps" in args.stages else ():
            search.equal_steps(contestant)
        if "equal time" in args.stages:
            search.equal_time(contestants)
        for contestant in contestants if LONGER in args.stages else ():
            search.train_choice(contestant, LONGER, 3 * search.experiment.steps)
        if ONE_CHANGE in args.stages:
            search.one_change(contestants)
            contestants = [*contestants, *search.changes_among(contestants)]
        choices = {name: search.choice(name) for name in dict.fromkeys([search.time_of, *contestants])}
        if None not in choices.values():
            search.times(choices)
