# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Answer the requests of `lion search` with an encoder, and with indexes of the folders that it has read."""

import hashlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..documents import Document, documents_of, documents_of_docstrings, files_of_package
from ..encoders import READING, SentenceEncoder, load_encoder
from ..files import state_of
from ..folders import files_of_folder, skipped_in_words
from ..formats.section import SkippedFile
from ..sources import files_of_model
from .index import Index, nearest_line
from .vectors import SavedVectors


FIRST_ANSWER = 10.0  # seconds, after which first answers are shown while reading goes on
TICK = 2 * 10**9  # nanoseconds: the coarsest resolution of file times, that of FAT


class Texts:
    """
    The documents in a folder or of a package. Only files that have changed are read again.

    Args:
        folder: the folder to search, with its subfolders, if `package` is `None`.
        package: an import name, or `STANDARD_LIBRARY`.
        include, exclude: patterns of files, as `files_of_folder` takes them.
    """

    def __init__(
        self, folder: str | None, package: str | None, include: Sequence[str] = (), exclude: Sequence[str] = ()
    ):
        self.folder, self.package, self.include, self.exclude = folder, package, include, exclude
        self.found: dict[str, tuple[tuple[int, ...], list[Document], str | None]] = {}

    def documents(self) -> tuple[list[Document], list[str]]:
        """
        Return the documents, outermost names first, and what was left out and why, a line or none.

        Raises:
            FileNotFoundError, ValueError: if there is nothing to search.
        """
        if self.package is None:
            files, root, skipped = files_of_folder(self.folder, self.include, self.exclude)
            read = documents_of
        else:
            (files, root), skipped, read = files_of_package(self.package), [], documents_of_docstrings
        before, self.found = self.found, {}
        for file in files:
            try:
                now, state = time.time_ns(), state_of(file)
                if before.get(file, ((), [], None))[0] == state:
                    self.found[file] = before[file]
                else:
                    # A file that has just changed can change again and keep its times: read it next time, too.
                    is_certain = max(state[1:3]) < now - TICK
                    self.found[file] = (state if is_certain else (), list(read(file, root)), None)
            except SkippedFile as error:
                self.found[file] = (state if is_certain and error.is_lasting else (), [], error.reason)
            except OSError as error:
                self.found[file] = ((), [], error.strerror or str(error))
        documents = [document for _, of_file, _ in self.found.values() for document in of_file]
        skipped = skipped + [(file, reason) for file, (*_, reason) in self.found.items() if reason]
        left_out = [words] if (words := skipped_in_words(skipped)) else []
        if not documents:
            what = "no docstring of a public name." if self.package else "no text."
            raise ValueError(" ".join([f"There is nothing to search in {root}: {what}", *left_out]))
        return sorted(documents, key=lambda document: (document.places[0].count("."), document)), left_out


class Searcher:
    """
    Answers requests with one encoder, which the first request loads.

    Args:
        model, base: as `load_encoder` takes them.
    """

    def __init__(self, model: str, base: str | None = None):
        self.model, self.base, self.files = model, base, files_of_model(model, base)
        self.encoder = None
        self.sources: dict[Path, tuple[Texts, SavedVectors]] = {}

    def answers(self, request: dict) -> Iterator[dict]:
        """
        Read what has not been read, and answer a query.

        Args:
            request: a dict of `query` (if empty, nothing is answered), `folder` or `package`, `top`, `seconds` (or
                `None`), `one_pass` and `cache_dir`; perhaps `include` and `exclude`, lists of patterns of files.

        Yields:
            Events, dicts with one key: `message` (to show), `progress` (the number of passages that have been read,
            and of all) or `first` (answers after `FIRST_ANSWER` seconds). The last event has `answers` and `progress`.
            An answer is a dict of `score`, `document`, `place`, `text` and `line` (the nearest line).

        Raises:
            ValueError, OSError, ImportError: with a message for users.
        """
        begin = time.monotonic()
        folder, package = request["folder"], request["package"]
        source = folder if package is None else f"package {package}"
        files = tuple(request.get("include") or ()), tuple(request.get("exclude") or ())
        about = repr((source, *(files if any(files) else ()), self.model, self.files, request["one_pass"], READING))
        path = Path(request["cache_dir"]) / hashlib.sha256(about.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        if path not in self.sources:
            self.sources[path] = Texts(folder, package, *files), SavedVectors(path)
            if note := self.sources[path][1].note:
                yield {"message": note}
        texts, vectors = self.sources[path]
        documents, left_out = texts.documents()
        yield from ({"message": line} for line in left_out)
        if self.encoder is None:
            self.encoder = load_encoder(self.model, base=self.base)
        encoder = SentenceEncoder(self.encoder, in_pieces=not request["one_pass"])
        if encoder.in_pieces:  # so that passages with words of the query can be read first
            documents = [piece for document in documents for piece in document.in_pieces()]
        index, query = Index(documents, vectors), request["query"]
        is_first_given = False
        yield {"progress": index.passages()}
        for progress in index.read_and_save(encoder, query, request["seconds"]):
            yield {"progress": progress}
            if query and not is_first_given and time.monotonic() - begin > FIRST_ANSWER and progress[0] < progress[1]:
                is_first_given = True
                yield {"first": best(query, index, encoder, request["top"])}
        found = best(query, index, encoder, request["top"]) if query else []
        if lost := encoder.cut.sentence():
            yield {"message": lost}
        yield {"answers": found, "progress": index.passages()}


def best(query: str, index: Index, encoder: SentenceEncoder, top: int) -> list[dict]:
    """Return the answers to a query among the passages that have been read."""
    (of_query,) = encoder.encode_queries([query])
    found = []
    for answer in index.search(of_query, top):
        line, place = nearest_line(encoder, of_query, answer)
        found.append(answer._asdict() | {"place": place, "line": line})
    return found
