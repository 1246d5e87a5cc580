# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Tables of `bench_images.py` and `bench_text.py`, beside published results."""

import statistics
from collections import defaultdict
from itertools import combinations

from reports.cells import footnote, in_order, markdown_table, mean_std, of_last_choice, panel
from reports.names import COLORS
from reports.registry import Read, picture, table
from reports.search import STAGES


STAGE_TITLES = dict(zip(STAGES, ("Equal steps", "Equal time: as many steps as take the Transformer's"), strict=True))
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
# The tasks of the picture.
PICTURED = {"7x7": "images", "mlm": "masked language modeling", "section": "package → section"}
# A model whose training step takes so close to the Transformer's time has no trainings of its own with equal time:
# those with equal steps are.
SAME_TIME = 0.05
# Scores of the seeds of each contestant, in percent.
Scores = dict[str, list[float]]


def has_same_time(ratio: float) -> bool:
    """Whether a training step takes so many times as long as the Transformer's, up to `SAME_TIME`."""
    return abs(ratio - 1) <= SAME_TIME


def standard_error(values: list[float]) -> float:
    return statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


def differ(first: list[float], second: list[float]) -> bool:
    """Whether means differ by more than two standard errors of their difference."""
    error = (standard_error(first) ** 2 + standard_error(second) ** 2) ** 0.5
    return abs(statistics.mean(first) - statistics.mean(second)) > 2 * error


def first_of(scores: Scores) -> str:
    """The model with the best mean."""
    return max(scores, key=lambda name: statistics.mean(scores[name]))


def with_place(name: str, scores: Scores) -> str:
    """Mean ± deviation, and whether it is "first" or "level" with the first, of which none is said for one model."""
    cell, first = mean_std(scores[name], 1), first_of(scores)
    if len(scores) == 1 or min(map(len, scores.values())) < 2:
        return cell
    return f"{cell}, first" if name == first else cell if differ(scores[name], scores[first]) else f"{cell}, level"


def in_published_order(scores: Scores, theirs: dict[str, float]) -> str:
    """How many pairs of models are in the order of a published column."""
    names = [name for name in scores if theirs.get(name) is not None and len(scores[name]) > 1]
    pairs = [pair for pair in combinations(names, 2) if differ(*(scores[name] for name in pair))]
    rises = lambda pair, of: of(pair[0]) < of(pair[1])
    same = [x for x in pairs if rises(x, theirs.get) == rises(x, lambda name: statistics.mean(scores[name]))]
    return f"{len(same)} of {len(pairs)}" if pairs else ""


def score_tables(
    columns: dict[str, dict[str, Scores]],
    ratios: dict[str, dict[str, float]],
    published: list[dict],
    of: dict[str, str],
) -> str:
    """
    A table for each stage: the first one with times and published results, which hold for all.

    Args:
        columns: by stage and title the scores.
        ratios: by title the time of a training step ÷ the Transformer's, by contestant.
        published: rows of published.csv.
        of: the titles of published columns that stand beside ours, and for those of scores the first of ours.
    """
    theirs = {row["model"]: row for row in published}
    tables = []
    for stage, scores in columns.items():
        names = list(dict.fromkeys(name for of_column in scores.values() for name in of_column))
        names.sort(key=lambda name: [*theirs, name].index(name))
        header, lines = [""], {name: [name] for name in names}
        for title, of_column in scores.items():
            header.append(title)
            for name, line in lines.items():
                line.append(with_place(name, of_column) if name in of_column else "")
        for title, of_column in ({} if tables else ratios).items():
            header.append(f"time of a step ÷ softmax, {title}")
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
        tables += [f"{STAGE_TITLES[stage]}:", markdown_table(header, list(lines.values()))]
        if orders:
            tables.append(
                "Of the pairs of models whose scores differ by more than two standard errors, "
                f"{'; '.join(orders)} (chance: half)."
            )
    return "\n\n".join(tables)


def scores_of(rows: list[dict], stage: str, titles: dict[str, str], score: str) -> dict[str, Scores]:
    """The scores of a stage by title."""
    found, rows = defaultdict(lambda: defaultdict(list)), of_last_choice(rows)
    for key, title in titles.items():
        for row in rows:
            if (row["task"], row["stage"]) == (key, stage):
                found[title][row["contestant"]].append(100 * row[score])
    return {title: dict(scores) for title, scores in found.items()}


def by_stage(rows: list[dict], titles: dict[str, str], score: str) -> dict[str, dict[str, Scores]]:
    """The scores of the seeds that did not choose, by stage and title."""
    found = {stage: scores_of(rows, stage, titles, score) for stage in STAGES}
    return {stage: scores for stage, scores in found.items() if scores}


def step_ratios(speed: list[dict], titles: dict[str, str]) -> dict[str, dict[str, float]]:
    of = {title: {row["contestant"]: row["ratio"] for row in speed if row["task"] == x} for x, title in titles.items()}
    return {without_score(title): found for title, found in of.items() if found}


def without_score(title: str) -> str:
    return title.split(", test")[0]


@table("real images", csv=("real_images", "real_images_speed"))
def real_images(read: Read) -> str:
    rows, speed = read("real_images"), read("real_images_speed")
    scores = by_stage(rows, IMAGES, "test_accuracy")
    of = {"ImageNet top-1, base size, %": next(iter(next(iter(scores.values()), {})), "")}
    times = {"training time ÷ softmax, images": ""}
    return score_tables(scores, step_ratios(speed, IMAGES), read("published"), of | times)


@table("real text", csv=("real_text", "real_text_speed"))
def real_text(read: Read) -> str:
    rows, speed = read("real_text"), read("real_text_speed")
    of = {
        "C4 masked-LM accuracy, large, %": TEXTS["mlm"],
        "GLUE, large": TEXTS["section"],
        "training time ÷ softmax, masked LM": "",
    }
    scores = by_stage(rows, TEXTS, "test_score")
    ratios = step_ratios(speed, TEXTS)
    for title, of_column in scores.get("equal time", {}).items():
        both = (ratios.get(without_score(x), {}) for x in (title, TEXTS["mlm"]))  # each starts from a language model
        steps_take = [{name for name, ratio in of.items() if has_same_time(ratio)} for of in both]
        same = set.intersection(*steps_take)
        steps = scores["equal steps"].get(title, {})
        scores["equal time"][title] = {name: steps[name] for name in steps if name in same} | of_column
    return score_tables(scores, ratios, read("published"), of)


def all_scores(read: Read, stage: str) -> dict[str, Scores]:
    """The scores of a stage by title, on images and on texts."""
    found = [scores_of(read(name), stage, titles, score) for name, titles, score in SOURCES]
    return {title: scores for of_source in found for title, scores in of_source.items()}


def all_ratios(read: Read) -> dict[str, dict[str, float]]:
    """Times of a training step ÷ the Transformer's, on images and on texts."""
    found = [step_ratios(read(f"{name}_speed"), titles) for name, titles, _ in SOURCES]
    return {title: ratios for of_source in found for title, ratios in of_source.items()}


def beside(scores: list[float], reference: list[float]) -> str:
    """Mean ± deviation, and where it is by over two standard errors, that it is "better" or "worse" than another."""
    cell = mean_std(scores, 1)
    if not differ(scores, reference):
        return cell
    return f"{cell}, {'better' if statistics.mean(scores) > statistics.mean(reference) else 'worse'}"


@table("one change", csv=("real_images", "real_images_speed", "real_text", "real_text_speed"))
def one_change(read: Read) -> str:
    """The recommended LION with one field changed, on images and texts: scores, and times of a step ÷ LION's."""
    reference, ratios = all_scores(read, "equal steps"), all_ratios(read)
    changed = {
        title: scores for title, scores in all_scores(read, "one change").items() if "LION" in reference.get(title, {})
    }
    names = list(dict.fromkeys(name for scores in changed.values() for name in scores))
    header, lines = [""], {name: [name] for name in ("LION", *names)}
    for title, scores in changed.items():
        times, recommended = ratios.get(without_score(title), {}), reference[title]["LION"]
        are_timed = "LION" in times and any(name in times for name in scores)
        header += [title, *[f"time of a step ÷ LION, {without_score(title)}"] * are_timed]
        for name, line in lines.items():
            values = scores.get(name, recommended if name == "LION" else None)
            line.append("" if values is None else beside(values, recommended))
            if are_timed:
                line.append(f"{times[name] / times['LION']:.2f}" if name in times else "")
    return markdown_table(header, list(lines.values())) if names else ""


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
    handles, firsts = {}, []
    for axis, (name, unit, models, times) in zip(axes[0], panels, strict=True):
        best = models[first_of(models)]
        firsts.append({x for x, values in models.items() if not differ(values, best)})
        for model, values in models.items():
            spread = statistics.stdev(values) if len(values) > 1 else 0
            handles[model] = axis.errorbar(
                times[model], statistics.mean(values), spread, fmt="o", color=COLORS[model], elinewidth=1
            )
        axis.set(xscale="log", xlim=(0.45, 4.5))
        panel(axis, name, "time of a training step ÷ softmax (log scale)", unit, [0.5, 1, 2, 4])
    handles = {name: handles[name] for name in in_order(handles)}
    figure.legend(handles.values(), handles, loc="outside right center")
    everywhere = in_order(set.intersection(*firsts))
    are = "is" if len(everywhere) == 1 else "are"
    message = f"{' and '.join(everywhere)} {are} first or level in each panel. " if everywhere else ""
    figure.suptitle(f"{message}Up is better, left is faster")
    speed = [row for name, *_ in SOURCES for row in read(f"{name}_speed")]
    footnote(figure, speed, "medians of a step; mean ± standard deviation over seeds")
    return figure
