# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The tables of docs/benchmarks/ and docs/research/ablations.md, and their pictures, from the benchmarks' CSV files.

    python benchmarks/report.py                                # from benchmarks/results
    python benchmarks/report.py --results_dir outputs/bench    # your own: pages of its tables, and images/, there

Every benchmark does this when it ends. The text of these pages is written by hand; what stands between
`<!-- begin: NAME -->` and `<!-- end -->` is made by the function that `reports/` registers under that name. Our pages
show at most eleven rows of a table, without some columns, and link to its CSV file. Your own pages have the whole
tables, and the pictures, of your folder under the same headings, without the text, which is about ours. Beside them
are the tables in LaTeX, `latex/NAME.tex`, the pictures as PDF, and manifest.json: the commands that were run and the
digests of the files they read, the commit of the report, versions, days, machines and digests of the CSV files and
data.
"""

import argparse
import json
import re
import subprocess
from pathlib import Path

import add_examples  # noqa: F401 (examples/ can be imported from here on)
import reports  # noqa: F401 (which registers all tables)
from measure import RESULTS, is_ours, machine, read_rows
from PIL import Image, ImageChops
from reports.latex import latex_tables
from reports.registry import PICTURES, TABLES, Read
from retrieval_lion.files import replaced
from tasks.real_data import sha256


DOCS = Path(__file__).parents[1] / "docs"
PAGES = [
    DOCS / "benchmarks" / f"{name}.md"
    for name in ("index", "speed", "gpu", "memory", "runtimes", "retrieval", "recall", "real")
]
QUICK = "**A trial of a few steps** (`--quick`): it shows that all runs, and says nothing about the models."
GENERATED_TABLES = ("lra", "recall", "search")
GENERATED = "generated: the fields in the column settings are the data"
IN_README = "documents_by_length"  # a picture with a second file for dark pages: the site inverts all by itself
PAGES += [DOCS / "research" / f"{name}.md" for name in ("ablations", "distillation")]


def fill(page: str, texts: dict[str, str]) -> str:
    """
    The page with other texts between its markers.

    Raises:
        ValueError: if a marker has no end, no text, or a name that another one has.
    """
    parts = re.split(r"(<!-- begin: (?:.*?) -->\n)(.*?)(<!-- end -->)", page, flags=re.DOTALL)
    names = marker_names(page)
    if len(parts) != 4 * len(names) + 1 or not texts.keys() >= set(names) or len(set(names)) < len(names):
        raise ValueError(f"The page has markers for {names}; possible are, once each and with an end, {list(texts)}.")
    parts[2::4] = [f"\n{texts[name].strip() or 'Not measured.'}\n\n" for name in names]
    return "".join(parts)


def only_measured(page: str, texts: dict[str, str], drawn: set[str]) -> str:
    """The tables and pictures of a page that were made, under its headings, without its text; "" if none was."""
    page = re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE)
    title, *sections = re.split(r"^(?=#)", page, flags=re.MULTILINE)[1:]
    kept = []
    for section in (title, *sections):
        heading, _, body = section.partition("\n")
        found = re.findall(r"<!-- begin: (.*?) -->|^(!\[.*\]\(\.\./images/(.*?)\.png\))$", body, flags=re.MULTILINE)
        made = [texts.get(name, "").strip() or picture * (file in drawn) for name, picture, file in found]
        if made := [text.replace("../images/", "images/") for text in made if text]:
            kept += [heading] * (section is not title) + made
    return "\n\n".join([title.partition("\n")[0], *kept]) + "\n" if kept else ""


def darken(path: Path) -> None:
    """Write NAME_dark.png, as the style sheet of the site shows pictures on a dark page: light is dark, hues stay."""
    hue, *others = ImageChops.invert(Image.open(path).convert("RGB")).convert("HSV").split()
    hue = hue.point(lambda x: (x + 128) % 256)
    Image.merge("HSV", (hue, *others)).convert("RGB").save(path.with_stem(f"{path.stem}_dark"))


def marker_names(page: str) -> list[str]:
    return re.findall(r"<!-- begin: (.*?) -->", page)


def reader(results_dir: Path, scale: str = "cpu") -> Read:
    """
    Returns the function that reads the CSV files of a folder, of which "published" is always the repository's, and of
    files with a column `scale` the rows of one scale.
    """

    def read(name: str, **values) -> list[dict]:
        folder = RESULTS if name == "published" else results_dir
        rows = read_rows(folder / f"{name}.csv", **values)
        return [row for row in rows if row.get("scale", scale) == scale]

    return read


def write_latex(results_dir: Path, texts: dict[str, str], scale: str) -> None:
    """`latex/NAME.tex` for each table that was made."""
    folder = results_dir / "latex"
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        if "|" in text:
            text += f"\n\n{QUICK}" * (scale == "quick")
            (folder / f"{name.replace(' ', '_')}.tex").write_text(latex_tables(text), encoding="utf-8")


def run_of(args: argparse.Namespace) -> dict:
    """
    A run for the manifest: its command line, all options, and the digests of the mixers and the configuration that it
    reads.
    """
    files = [*getattr(args, "mixers", ()), *filter(None, [args.config])]
    options = {name: value for name, value in vars(args).items() if name not in ("command", "config", "mixers")}
    run = {"command": args.command, "options": options, "files": {str(x): sha256(Path(x)) for x in files}}
    return json.loads(json.dumps(run, default=str))


def begin_run(args: argparse.Namespace) -> None:
    """Write the manifest of a folder of one's own before a run, which may be stopped, leaves rows there."""
    if not is_ours(args.output_dir):
        write_manifest(args.output_dir, run_of(args))


def data_of(name: str, rows: list[dict]) -> list[str]:
    """The digests of a table's data; what it is in tables without them."""
    settings = [row["settings"] for row in rows if row.get("settings")]
    found = {x for text in settings for x in re.findall(r"\bdata=(\w+)", text)}
    if any("data=" not in text for text in settings):
        found.add(GENERATED if name in GENERATED_TABLES else "not recorded")
    return sorted(found)


def manifest(results_dir: Path, run: dict | None = None) -> dict:
    """
    Describe the source of tables: all runs that the folder has had, this commit and machine, and the digest, machines,
    days and data of each CSV file.

    Args:
        run: of `run_of`, which comes to those that manifest.json has.
    """

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=DOCS.parent, capture_output=True, text=True)
        return done.stdout.strip()

    files = {}
    for path in sorted(results_dir.glob("*.csv")):
        rows = read_rows(path)
        about = {name: sorted({row[name] for row in rows if row.get(name)}) for name in (*machine(), "day")}
        about |= {"data": data_of(path.stem, rows), "rows": len(rows), "sha256": sha256(path)}
        files[path.name] = about
    commit = {"reported_at_commit": git("rev-parse", "HEAD") or None}
    commit["has_changes"] = bool(git("status", "--porcelain", "--untracked-files=no"))
    before = results_dir / "manifest.json"
    runs = json.loads(before.read_text(encoding="utf-8")).get("runs", []) if before.exists() else []
    runs += [x for x in [run and run | commit] if x and x not in runs]
    return commit | {"written_on": machine(), "runs": runs, "files": files}


def write_manifest(results_dir: Path, run: dict | None = None) -> None:
    """Write manifest.json, whole or not at all."""
    about = json.dumps(manifest(results_dir, run), indent=2, ensure_ascii=False)
    with replaced(results_dir / "manifest.json") as unfinished:
        unfinished.write_text(f"{about}\n", encoding="utf-8")


def write_pages(results_dir: Path, scale: str = "cpu") -> list[Path]:
    """
    Write the pages and their pictures: in docs/ from the repository's own tables, else beside the tables, and then
    only what these have measured, with LaTeX, PDF and the manifest.
    """
    ours, read = is_ours(results_dir), reader(results_dir, scale)
    from training_lion.scripts.pictures import plt, save  # takes longer than all tables

    images = (DOCS if ours else results_dir) / "images"
    images.mkdir(parents=True, exist_ok=True)
    figures = {name: figure for name, draw in PICTURES.items() if (figure := draw(read, plt))}
    for name, figure in figures.items():
        if not ours:
            figure.savefig(images / f"{name}.pdf")
        save(figure, images / f"{name}.png")
    if ours and IN_README in figures:
        darken(images / f"{IN_README}.png")
    texts = {name: table.make(read) for name, table in TABLES.items() if ours or table.is_measured}
    texts = {name: TABLES[name].on_page(text) if ours else text for name, text in texts.items()}
    if not ours:
        write_latex(results_dir, texts, scale)
        write_manifest(results_dir)
    written = []
    for source in PAGES:
        page, path = source.read_text(encoding="utf-8"), source if ours else results_dir / source.name
        if page := fill(page, texts) if ours else only_measured(page, texts, set(figures)):
            page = page.replace("\n", f"\n\n{QUICK}\n", 1) if scale == "quick" else page
            path.write_text(page, encoding="utf-8")
            written.append(path)
    print(f"Tables and pictures: {', '.join(map(str, written)) or 'none yet'}")
    return written


def main(args: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results_dir", type=Path, default=RESULTS)
    parser.add_argument("--scale", default="cpu", help="scale of the trainings: cpu or gpu")
    args = parser.parse_args(args)
    write_pages(args.results_dir, args.scale)


if __name__ == "__main__":
    main()
