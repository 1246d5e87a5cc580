# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Find the files of a folder, by the rules of .gitignore, and say which were skipped."""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .characters import printable
from .sources import check_folder


if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec
RULES = ".gitignore"
GIT = ".git"
PACKAGES = {"node_modules", "bower_components", "site-packages"}
VIRTUAL_ENVIRONMENT = "pyvenv.cfg"  # a file in its folder
UNSAID = {GIT, RULES, "__pycache__"}
# Why something in a folder is not looked at.
HIDDEN, PACKAGE = "hidden", "installed packages"
OUTSIDE, BROKEN, LINKED = "link out of the folder", "broken link", "link to a folder"
UNREADABLE = "cannot be read"
IN_FOLDER = {HIDDEN, PACKAGE, RULES, OUTSIDE, BROKEN, LINKED, UNREADABLE}
NAMED = 2  # so many files with the same reason are named, more are counted


class Found(NamedTuple):
    """
    The files of a folder.

    Attributes:
        files: what may be read, sorted.
        folder: where they are.
        skipped: paths of files and folders that are not read, and the reason for each.
    """

    files: list[str]
    folder: str
    skipped: list[tuple[str, str]]


class Rules(NamedTuple):
    """Rules in the form of .gitignore, of files below a folder."""

    folder: str
    spec: "GitIgnoreSpec"

    @classmethod
    def of(cls, folder: str, lines: Iterable[str]) -> "Rules":
        """
        Compile the lines of rules.

        Raises:
            ImportError: if pathspec is not installed.
            ValueError: if a line is no pattern.
        """
        try:
            from pathspec import GitIgnoreSpec
        except ImportError as error:
            raise ImportError(
                "pathspec is not installed, which reads .gitignore, --include and --exclude: pip install pathspec."
            ) from error
        try:
            return cls(folder, GitIgnoreSpec.from_lines(lines))
        except (ValueError, re.error) as error:
            raise ValueError(f"--include and --exclude take patterns in the form of .gitignore: {error}.") from error

    @classmethod
    def in_folder(cls, folder: str) -> list["Rules"]:
        """Return the rules of the .gitignore in a folder, if there is one, without lines that are no patterns."""
        file = Path(folder, RULES)
        if not file.is_file():
            return []
        lines = file.read_text(encoding="utf-8-sig", errors="replace").splitlines()
        try:
            return [cls.of(folder, lines)]
        except ValueError:
            return [cls.of(folder, filter(cls.is_pattern, lines))]

    @classmethod
    def is_pattern(cls, line: str) -> bool:
        try:
            cls.of("", [line])
        except ValueError:
            return False
        return True

    def match(self, path: str) -> bool | None:
        """Return whether a path matches, `None` if no rule is about it. Paths of folders end with a separator."""
        return self.spec.check_file(path[len(self.folder) :].replace(os.sep, "/").lstrip("/")).include


def is_ignored(path: str, rules: Sequence[Rules]) -> bool:
    """Return whether rules, outer ones first, ignore a path: the innermost ones that are about it decide."""
    return next((found for x in reversed(rules) if (found := x.match(path)) is not None), False)


def rules_above(folder: str) -> list[Rules]:
    """Return the rules of the folders above one within its clone of git; none if they ignore the folder itself."""
    above = [str(path) for path in Path(folder).parents]
    count = next((n for n, path in enumerate([folder, *above]) if os.path.exists(os.path.join(path, GIT))), 0)
    rules = [rule for path in reversed(above[:count]) for rule in Rules.in_folder(path)]
    return [] if is_ignored(f"{folder}{os.sep}", rules) else rules


def files_of_folder(folder: str | Path, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> Found:
    """
    Return the files in a folder and its subfolders, without hidden ones, links that lead out of the folder, installed
    packages, and what the rules of .gitignore name, there and in folders above within a clone of git.

    Args:
        include: take only files that match one of these patterns, in the form of .gitignore.
        exclude: leave out files and folders that match one of these.

    Raises:
        FileNotFoundError: if there is no such folder.
        ValueError: if there are no such files.
        ImportError: if there are rules or patterns, and pathspec is not installed.
    """
    folder = str(check_folder(folder))
    root = os.path.realpath(folder)
    wanted, unwanted = (Rules.of(root, patterns) if patterns else None for patterns in (include, exclude))
    found = Found([], folder, [])
    for path, reason in walk(root, rules_above(root), unwanted):
        shown = os.path.join(folder, os.path.relpath(path, root))
        if reason is not None:
            found.skipped.append((shown, reason))
        elif wanted is None or wanted.match(path):
            found.files.append(shown)
    if not found.files:
        which = " that --include and --exclude leave" if include or exclude else ""
        raise ValueError(f"{folder} has no files to search{which}. {skipped_in_words(found.skipped)}".rstrip())
    return found._replace(files=sorted(found.files))


def walk(root: str, rules: list[Rules], unwanted: Rules | None) -> Iterator[tuple[str, str | None]]:
    """Yield the files in a folder with `None`, and files and folders that are skipped with the reason."""
    waiting = [(root, rules)]
    while waiting:
        folder, above = waiting.pop()
        try:
            rules = above + Rules.in_folder(folder)
            with os.scandir(folder) as found:
                entries = list(found)
        except OSError:
            yield folder + os.sep, UNREADABLE
            continue
        for entry in entries:
            is_folder = entry.is_dir(follow_symlinks=False)
            path = entry.path + (os.sep if is_folder else "")
            if entry.name in UNSAID or (unwanted is not None and unwanted.match(path)):
                continue
            if reason := why_not(entry, root, is_ignored(path, rules)):
                yield path, reason
            elif is_folder:
                waiting.append((entry.path, rules))
            elif entry.is_file():
                yield path, None


def why_not(entry: os.DirEntry, root: str, is_ignored: bool) -> str | None:
    """Return why an entry of a folder is not looked at, or `None`."""
    if entry.name.startswith("."):
        return HIDDEN
    if is_ignored:
        return RULES
    if entry.is_symlink():
        if not os.path.exists(entry.path):
            return BROKEN
        if not Path(entry.path).resolve().is_relative_to(root):
            return OUTSIDE
        return LINKED if entry.is_dir() else None
    if entry.is_dir() and (entry.name in PACKAGES or os.path.exists(os.path.join(entry.path, VIRTUAL_ENVIRONMENT))):
        return PACKAGE
    return None


def skipped_in_words(skipped: Iterable[tuple[str, str]]) -> str:
    """
    Say what was skipped, by ending and reason; empty if nothing was.

    Args:
        skipped: paths, and the reason for each.
    """
    files: dict[tuple[str, str], list[str]] = defaultdict(list)
    others: Counter[str] = Counter()
    for path, reason in skipped:
        name = printable(os.path.basename(path))
        if reason in IN_FOLDER:
            others[reason] += 1
        else:
            files[reason, ending_of(name)].append(name)
    groups = sorted(files.items(), key=lambda item: (-len(item[1]), item[0]))
    words = [
        f"{', '.join(sorted(names)) if len(names) <= NAMED else f'{len(names):,} {ending}'} ({reason})"
        for (reason, ending), names in groups
    ]
    rest = ", ".join(f"{count:,} ({reason})" for reason, count in others.most_common())
    if not words:
        return f"Skipped: {rest}." if rest else ""
    count = sum(map(len, files.values()))
    return f"Skipped {count:,} file{'s' * (count > 1)}: {', '.join(words)}{rest and f'; besides {rest}'}."


def ending_of(name: str) -> str:
    """Return the ending of a file name, with "min" if there is one; the whole name if it has none."""
    stem, ending = os.path.splitext(name.lower())
    return (".min" if stem.endswith(".min") else "") + ending if ending else name
