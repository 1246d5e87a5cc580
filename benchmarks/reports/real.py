# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Tables of `bench_images.py` and `bench_text.py`, beside published results."""

import statistics
from collections import defaultdict
from collections.abc import Callable
from itertools import combinations

from jackknife import with_values

from reports.cells import (
    about_cells,
    base_of,
    footnote,
    in_order,
    markdown_table,
    of_last_choice,
    panel,
    score_cell,
)
from reports.names import PUBLISHED_LIONS, colors_of
from reports.paired import (
    Score,
    Scores,
    about_trials,
    cell,
    differ,
    edges,
    note,
    over_seeds_alone,
    reference_of,
    without_reference,
)
from reports.registry import Read, picture, table
from reports.search import STAGES


STAGE_TITLES = dict(zip(STAGES, ("Equal steps", "Equal time: as many steps as take the Transformer's"), strict=True))
LONGER = "three times the steps"
# The column of the table for each task of bench_images.py.
IMAGES = {"7x7": "7 × 7 patches, test %", "14x14": "14 × 14 patches, test %"}
# The column for each task of bench_text.py, and how a score is told.
TEXTS = {
    "mlm": "masked LM, test accuracy %",
    "section": "section, test accuracy %",
    "facets": "facets, test micro F1 %",
    "sentiment": "sentiment, test Pearson × 100",
    "documents": "documents, test accuracy %",
}
# Tables of trainings, the columns of their tasks, and the score.
SOURCES = (("real_images", IMAGES, "test_accuracy"), ("real_text", TEXTS, "test_score"))
LOCAL = "local mean"  # in the first rows: what near tokens alone give
# The models from which differences are told: a ViT, and BERT with rotary positions.
REFERENCES = {"real_images": "softmax", "real_text": "softmax (rotary)"}
# The tasks of the picture.
PICTURED = {"7x7": "images", "mlm": "masked language modeling", "section": "package → section"}
# A model whose training step takes so close to the Transformer's time has no trainings of its own with equal time:
# those with equal steps are.
SAME_TIME = 0.05


def has_same_time(ratio: float) -> bool:
    """Whether a training step takes so many times as long as the Transformer's, up to `SAME_TIME`."""
    return abs(ratio - 1) <= SAME_TIME


def in_published_order(scores: Scores, theirs: dict[str, float]) -> str:
    """How many pairs of models are in the order of a published column, of those with a difference."""
    names = [name for name in scores if theirs.get(name) is not None]
    pairs = [pair for pair in combinations(names, 2) if differ(*(scores[name] for name in pair))]
    rises = lambda pair, of: of(pair[0]) < of(pair[1])
    mean = lambda name: statistics.mean(scores[name].values())
    same = [x for x in pairs if rises(x, theirs.get) == rises(x, mean)]
    return f"{len(same)} of {len(pairs)}" if pairs else ""


def score_tables(
    columns: dict[str, dict[str, Scores]],
    ratios: dict[str, dict[str, float]],
    marks: dict[str, dict[str, str]],
    trials: str,
    reference: str,
    published: list[dict],
    of: dict[str, str],
    timed: str = "softmax",
) -> str:
    """
    A table for each stage: the first one with times and published results, which hold for all.

    Args:
        columns: by stage and title the scores.
        ratios: by title the time of a training step ÷ that of the model `timed`, by contestant.
        marks: by title those of `edges`, by contestant.
        trials: of `about_trials`.
        reference: the model from which differences are told; the first one, if no column has it.
        published: rows of published.csv.
        of: the titles of published columns that stand beside ours, and for those of scores the first of ours.
    """
    theirs = {row["model"]: row for row in published}
    reference = reference_of([x for of_stage in columns.values() for x in of_stage.values()], reference)
    tables = []
    for stage, scores in columns.items():
        names = list(dict.fromkeys(name for of_column in scores.values() for name in of_column))
        names.sort(key=lambda name: [reference, LOCAL, *theirs, name].index(name))
        header, lines = [""], {name: [name] for name in names}
        for title, of_column in scores.items():
            header.append(title)
            for name, line in lines.items():
                mark = marks.get(title, {}).get(name, "")
                line.append(cell(name, of_column, reference, mark) if name in of_column else "")
        for title, of_column in ({} if tables else ratios).items():
            header.append(f"time of a step ÷ {timed}, {title}")
            for name, line in lines.items():
                line.append(f"{of_column[name]:.2f}" if name in of_column else "")
        for title in () if tables else of:
            header.append(f"published: {title}")
            for name, line in lines.items():
                value = theirs.get(name, {}).get(title)
                line.append("" if value is None else str(value))
        orders = [
            f"{order} in {ours.split(', ')[0]} are in the order of {title}"
            for title, ours in ({} if tables else of).items()
            if (order := in_published_order(scores.get(ours, {}), {x: row[title] for x, row in theirs.items()}))
        ]
        if tables:
            sentences = over_seeds_alone(scores, lambda name: reference), without_reference(scores, reference)
        else:
            sentences = note(scores, reference, any(any(x.values()) for x in marks.values())), trials
        about = " ".join(filter(None, sentences))
        tables += [f"{STAGE_TITLES[stage]}:", markdown_table(header, list(lines.values())), *[about] * bool(about)]
        if orders:
            tables.append(
                f"Of the pairs of models whose difference has an interval without 0, {'; '.join(orders)} (chance: "
                "half)."
            )
    return "\n\n".join(tables)


def trainings(read: Read, name: str) -> list[dict]:
    """The rows of a table, with the values of test examples where they were kept."""
    return with_values(read(name), read(f"{name}_examples"))


def scores_of(rows: list[dict], stage: str, titles: dict[str, str], score: str) -> dict[str, Scores]:
    """The scores of a stage in percent, by title."""
    found, rows = defaultdict(lambda: defaultdict(dict)), of_last_choice(rows)
    for key, title in titles.items():
        for row in rows:
            if (row["task"], row["stage"]) == (key, stage):
                of_seed = found[title][row["contestant"]][row["seed"]] = Score(100 * row[score])
                if row.get("jackknife") is not None:
                    of_seed.of_examples = 100 * row["jackknife"]
    return {title: dict(scores) for title, scores in found.items()}


def by_stage(rows: list[dict], titles: dict[str, str], score: str) -> dict[str, dict[str, Scores]]:
    """The scores of the seeds that did not choose, by stage and title."""
    found = {stage: scores_of(rows, stage, titles, score) for stage in STAGES}
    return {stage: scores for stage, scores in found.items() if scores}


def marks_of(rows: list[dict], titles: dict[str, str]) -> dict[str, dict[str, str]]:
    """`edges` by title and contestant."""
    found = defaultdict(dict)
    for (task, name), mark in edges(rows).items():
        if task in titles:
            found[titles[task]][name] = mark
    return found


def with_same_time(
    scores: dict[str, dict[str, Scores]], ratios: dict[str, dict[str, float]], also: str = ""
) -> dict[str, dict[str, Scores]]:
    """
    `by_stage` where models that have no trainings with equal time have those with equal steps, since their steps take
    as long as the Transformer's, and with `also`, a title, those of this task, from which they start.
    """
    of_steps, of_time = (scores.get(stage, {}) for stage in STAGES)
    filled = {}
    for title, of_column in of_time.items():
        both = (ratios.get(without_score(x), {}) for x in (title, also or title))
        same = set.intersection(*({name for name, ratio in of.items() if has_same_time(ratio)} for of in both))
        filled[title] = {name: x for name, x in of_steps.get(title, {}).items() if name in same} | of_column
    return scores | {STAGES[1]: filled} if filled else scores


def step_ratios(speed: list[dict], titles: dict[str, str]) -> dict[str, dict[str, float]]:
    of = {title: {row["contestant"]: row["ratio"] for row in speed if row["task"] == x} for x, title in titles.items()}
    return {without_score(title): found for title, found in of.items() if found}


def without_score(title: str) -> str:
    return title.split(", test")[0]


@table("real images", csv=("real_images", "real_images_speed"), shown=r"^\| (?!LION-[DS]♮)")
def real_images(read: Read) -> str:
    rows, speed = trainings(read, "real_images"), read("real_images_speed")
    ratios = step_ratios(speed, IMAGES)
    scores = with_same_time(by_stage(rows, IMAGES, "test_accuracy"), ratios)
    of = {"ImageNet top-1, base size, %": next(iter(next(iter(scores.values()), {})), "")}
    times = {"training time ÷ softmax, images": ""}
    marks, reference = marks_of(rows, IMAGES), REFERENCES["real_images"]
    trials = about_trials(rows, IMAGES)
    return score_tables(scores, ratios, marks, trials, reference, read("published"), of | times)


@table("real text", csv=("real_text", "real_text_speed"))
def real_text(read: Read) -> str:
    rows, speed = trainings(read, "real_text"), read("real_text_speed")
    of = {
        "C4 masked-LM accuracy, large, %": TEXTS["mlm"],
        "GLUE, large": TEXTS["section"],
        "training time ÷ softmax, masked LM": "",
    }
    ratios = step_ratios(speed, TEXTS)
    scores = with_same_time(by_stage(rows, TEXTS, "test_score"), ratios, TEXTS["mlm"])
    marks, trials = marks_of(rows, TEXTS), about_trials(rows, TEXTS)
    return score_tables(scores, ratios, marks, trials, REFERENCES["real_text"], read("published"), of)


@table("real text today", csv="real_text_today")
def real_text_today(read: Read) -> str:
    """On Debian's lists of another day."""
    rows = trainings(read, "real_text_today")
    scores = by_stage(rows, TEXTS, "test_score")
    return score_tables(scores, {}, marks_of(rows, TEXTS), about_trials(rows, TEXTS), REFERENCES["real_text"], [], {})


def all_scores(read: Read, stage: str) -> dict[str, Scores]:
    """The scores of a stage by title, on images and on texts."""
    found = [scores_of(trainings(read, name), stage, titles, score) for name, titles, score in SOURCES]
    return {title: scores for of_source in found for title, scores in of_source.items()}


def all_ratios(read: Read) -> dict[str, dict[str, float]]:
    """Times of a training step ÷ the Transformer's, on images and on texts."""
    found = [step_ratios(read(f"{name}_speed"), titles) for name, titles, _ in SOURCES]
    return {title: ratios for of_source in found for title, ratios in of_source.items()}


CHANGED = ("real_images", "real_images_speed", "real_text", "real_text_speed")


@table("one change", csv=CHANGED)
def one_change(read: Read) -> str:
    """The recommended LION, and models of one's own."""
    return changes(read, lambda name: name not in PUBLISHED_LIONS)


@table("one change of published models", csv=CHANGED)
def one_change_of_published(read: Read) -> str:
    """The paper's models with what the paper has and they have not."""
    return changes(read, lambda name: name in PUBLISHED_LIONS)


def changes(read: Read, is_shown: Callable[[str], bool]) -> str:
    """Models with one field changed, behind each as it is: scores, and times of a step ÷ that of the model itself."""
    reference, ratios = all_scores(read, "equal steps"), all_ratios(read)
    columns, names = {}, {}
    for title, scores in all_scores(read, "one change").items():
        bases = set(filter(is_shown, {base_of(name) for name in scores} & reference.get(title, {}).keys()))
        if scores := {name: of_seed for name, of_seed in scores.items() if base_of(name) in bases}:
            columns[title] = {base: reference[title][base] for base in bases} | scores
            names |= dict.fromkeys(columns[title])
    bases = sorted({base_of(name) for name in names}, key=lambda name: (name != "LION", name))
    lines = {name: [name] for base in bases for name in (base, *(x for x in names if x != base == base_of(x)))}
    header = [""]
    for title, scores in columns.items():
        times = ratios.get(without_score(title), {})
        are_timed = any(name in times and base_of(name) in times for name in scores if name != base_of(name))
        header += [title, *[f"time of a step ÷ unchanged, {without_score(title)}"] * are_timed]
        for name, line in lines.items():
            line.append(cell(name, scores, base_of(name)) if name in scores else "")
            if are_timed:
                is_timed = {name, base_of(name)} <= times.keys()
                line.append(f"{times[name] / times[base_of(name)]:.2f}" if is_timed else "")
    about = "Behind the semicolon: the difference from the model without a change, as in the tables of real data."
    about = f"{about} {over_seeds_alone(columns, base_of)}".rstrip()
    return f"{markdown_table(header, list(lines.values()))}\n\n{about}" if columns else ""


@table("longer trainings", csv=("real_images", "real_text"))
def longer(read: Read) -> str:
    """Scores with three times the steps beside those of the same seeds with the steps of the tables."""
    columns, with_fewer = {}, all_scores(read, "equal steps")
    for title, scores in all_scores(read, LONGER).items():
        before = with_fewer.get(title, {})
        same = {x: {seed: before[x][seed] for seed in scores[x] if seed in before.get(x, {})} for x in scores}
        columns |= {title: same, f"{LONGER}, {title}": scores}
    names = in_order(dict.fromkeys(name for scores in columns.values() for name in scores))
    cells = lambda name: (score_cell(x[name].values()) if x.get(name) else "" for x in columns.values())
    lines = [[name, *cells(name)] for name in names]
    note = about_cells(scores.values() for of in columns.values() for scores in of.values())
    return f"{markdown_table(['', *columns], lines)}\n\n{note}." if columns else ""


@picture("scores_by_time")
def draw_scores(read: Read, plt):
    """The scores of all models by the time of a training step, on images and on texts."""
    scores, ratios = all_scores(read, "equal steps"), all_ratios(read)
    panels = []
    for key, name in PICTURED.items():
        title = (IMAGES | TEXTS)[key]
        times, of_title = ratios.get(without_score(title), {}), scores.get(title, {})
        if models := {model: of_title[model] for model in in_order(of_title) if model in times}:
            panels.append((name, title.split(", ")[-1], models, times))
    if not panels:
        return None
    figure, axes = plt.subplots(1, len(panels), figsize=(3.6 * len(panels) + 1.6, 3.7), squeeze=False)
    handles, colors = {}, colors_of(in_order(x for _, _, models, _ in panels for x in models))
    for axis, (name, unit, models, times) in zip(axes[0], panels, strict=True):
        for model, of_seed in models.items():
            values = list(of_seed.values())
            spread = statistics.stdev(values) if len(values) > 1 else 0
            handles[model] = axis.errorbar(
                times[model], statistics.mean(values), spread, fmt="o", color=colors[model], elinewidth=1
            )
        axis.set(xscale="log", xlim=(0.45, 4.5))
        panel(axis, name, "time of a training step ÷ softmax (log scale)", unit, [0.5, 1, 2, 4])
    handles = {name: handles[name] for name in in_order(handles)}
    figure.legend(handles.values(), handles, loc="outside right center")
    figure.suptitle("Up is better, left is faster")
    speed = [row for name, *_ in SOURCES for row in read(f"{name}_speed")]
    footnote(figure, speed, "medians of a step; mean ± standard deviation over seeds")
    return figure
