# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Queries that need a passage and what stands in front of it: the subject of a section, and words of a later passage.

A guide is cut at its headings, which are removed, and each section into passages. A query is a heading and one or two
words, as "Hyperparameter Optimization: storage synchronizing". The label follows from the structure of the guide. It
is the one passage

- that has these words, each of which no other passage of its section has;
- that has no word of the heading, while text in front of it in the same section has all of them;

and no passage of the corpus has such a word and all words of the heading. The heading says something that the name of
the document does not, and it is the heading of one section only. The words stand in other passages, too. So neither
the heading alone finds the passage, nor the words alone. Words are compared by their beginnings (`stems`).
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from retrieval_lion.documents import headings_of
from retrieval_lion.formats.section import HEADINGS, with_heading
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
from training_lion.scripts.passages import Query, SplitDocument

from modeling_lion import split_passages


# In reStructuredText: a line that maybe has signs above, and has as many below.
RST_HEADING = re.compile(
    r"^(?:([^\w\s])\1{2,}[ \t]*\n)?[ \t]?(\w[^\n]{0,79}?)[ \t]*\n([^\w\s])\3{2,}[ \t]*$", re.MULTILINE
)
# What is removed of markup: targets, names of directives, options, signs of roles and links.
MARKUP = (
    (r"^[ \t]*\.\. _.*$|^[ \t]+:[\w-]+:.*$", ""),
    (r"^([ \t]*)\.\. [\w:-]+::", r"\1"),
    (r"\[([^\]\n]+)\]\([^)\n]+\)", r"\1"),
    (r"(:[\w:+-]+:)?`[~!]?([^`<]*?)\s*(<[^`>]*>)?`_{0,2}", r"\2"),
    (r"(?<!`)``(?!`)|\*\*|::(?=\s)", ""),
)
WORD = re.compile(r"[A-Za-z][a-z]{3,}")
STEM = 5  # letters by which words are compared
MOST_WORDS = 6  # of a heading
RARE, COMMON = 3, 400  # in how many passages of the corpus a word of a query is
MIN_PASSAGE, MIN_LETTERS = 200, 0.85  # characters of a passage, and the share of letters and spaces: prose
# Words that say nothing of a subject.
GENERAL = re.findall(
    r"\w+",
    """
    about above advanced also another available basic below certain change changes class classes code common default
    details different documentation example examples feature features file following function functions general given
    guide however information instead introduction just like look make method methods more much name names need note
    notes option options other overview parameter parameters possible provide quick really reference return section
    setup simple specific start started summary support sure thing things think true tutorial type types usage used
    using value values version want well work works
""",
)


class SectionedDocument(NamedTuple):
    """
    Attributes:
        split: the name, and the passages in order, without headings.
        headings: of each passage, from the top.
        sections: the number of each passage's section.
    """

    split: SplitDocument
    headings: list[str]
    sections: list[int]


class SectionQuery(NamedTuple):
    """
    Attributes:
        query: the heading and the words; its passage is counted over all documents.
        distance: characters of the text behind the passage in front that names the subject.
    """

    query: Query
    distance: int


def stem(word: str) -> str:
    return word.lower()[:STEM]


WITHOUT_SUBJECT = frozenset(map(stem, [*GENERAL, *ENGLISH_STOP_WORDS]))


def stems(text: str) -> list[str]:
    """The beginnings of the words that have a subject, in order."""
    return [x for x in map(stem, WORD.findall(text)) if x not in WITHOUT_SUBJECT]


def without_markup(text: str) -> str:
    for pattern, replacement in MARKUP:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return text


def headings_in(text: str, is_rst: bool) -> list[tuple[int, int, int, str]]:
    """Find headings: in Markdown as `headings_of`, in reStructuredText of all signs, also with a line above."""
    if not is_rst:
        return headings_of(text, is_rst=False)
    levels: dict[tuple[bool, str], int] = {}
    found = []
    for x in RST_HEADING.finditer(text):
        if len(x[0].strip().split("\n")[-1]) >= len(x[2]):
            level = levels.setdefault((x[1] is not None, x[3]), len(levels) + 1)
            found.append((x.start(), x.end(), level, " ".join(x[2].strip("`* ").split())))
    return found


def cut_at_headings(name: str, text: str, is_rst: bool) -> SectionedDocument:
    """Split a guide into passages under the same headings. Its first heading is added to its name."""
    text = without_markup(text.replace("\r", ""))
    found = headings_in(text, is_rst)
    path: list[tuple[int, str]] = []
    passages, headings, sections = [], [], []
    borders = [(0, 0, 0, ""), *found, (len(text), len(text), 0, "")]
    for number, ((_, begin, level, words), (end, *_)) in enumerate(zip(borders, borders[1:], strict=False)):
        path = with_heading(path, level, words) if words else path
        for first, last in split_passages(text[begin:end]):
            passage = " ".join(text[begin:end][first:last].split())
            if WORD.search(passage):
                passages.append(passage)
                headings.append(HEADINGS.join(x for _, x in path))
                sections.append(number)
    title = found[0][3] if found else name
    return SectionedDocument(SplitDocument(f"{name}: {title}", passages), headings, sections)


class Corpus:
    """
    Finds queries in documents.

    Args:
        documents: all of them; each has all passages of its sections.
        is_strict: whether the passage has no word of the heading, no other passage of the corpus fits, and no other
            section has this heading. To train, where few passages are compared, it is enough that no other one of the
            section has the words.
    """

    def __init__(self, documents: Sequence[SectionedDocument], is_strict: bool = True):
        self.documents, self.is_strict = documents, is_strict
        self.stems = [[Counter(stems(x)) for x in document.split.passages] for document in documents]
        self.having: dict[str, set[tuple[int, int]]] = defaultdict(set)
        for n, of_document in enumerate(self.stems):
            for k, counts in enumerate(of_document):
                for x in counts:
                    self.having[x].add((n, k))
        self.sections_under = Counter(heading for x in documents for heading in last_headings(x).values())

    def queries_of(self, number: int) -> Iterator[tuple[int, str, int]]:
        """Yield, of a document, the index of a passage, its query and its distance (`SectionQuery`)."""
        document, counts = self.documents[number], self.stems[number]
        for section, heading in last_headings(document).items():
            of_section = [k for k, x in enumerate(document.sections) if x == section]
            subject = set(stems(heading))
            is_subject = subject - set(stems(document.split.name)) and len(heading.split()) <= MOST_WORDS
            if not is_subject or (self.is_strict and self.sections_under[heading] > 1):
                continue
            for place, k in enumerate(of_section):
                front = named_by(subject, [counts[x] for x in of_section[:place]])
                is_named_here = self.is_strict and subject & counts[k].keys()
                if front is None or is_named_here or not is_prose(document.split.passages[k]):
                    continue
                others = set().union(*(counts[x] for x in of_section if x != k))
                if words := self.words_of(number, k, subject, others):
                    between = of_section[:place][front + 1 :]
                    distance = sum(len(document.split.passages[x]) for x in between)
                    yield k, f"{heading}: {' '.join(words)}", distance

    def words_of(self, number: int, passage: int, subject: set[str], others: set[str]) -> list[str]:
        """The best two words of a passage as they stand there, or one that it repeats, in order; else none."""
        found = {}
        with_subject = set.intersection(*(self.having[x] for x in subject))
        fits_one = lambda x: RARE <= len(self.having[x]) <= COMMON and not self.having[x] & with_subject
        for x, count in self.stems[number][passage].items():
            if x not in others and (fits_one(x) or not self.is_strict):
                found[x] = count * math.log(sum(map(len, self.stems)) / len(self.having[x]))
        best = sorted(found, key=lambda x: -found[x])[:2]
        if sum(self.stems[number][passage][x] for x in best) < 1 + self.is_strict:
            return []
        words = WORD.findall(self.documents[number].split.passages[passage])
        return list(
            dict.fromkeys(next(w.lower() for w in words if stem(w) == stem(x)) for x in words if stem(x) in best)
        )


def last_headings(document: SectionedDocument) -> dict[int, str]:
    """The lowest heading of each section that has one."""
    found = dict(zip(document.sections, document.headings, strict=True))
    return {section: path.rpartition(HEADINGS)[2] for section, path in found.items() if path}


def named_by(subject: set[str], passages: Sequence[Counter]) -> int | None:
    """The last index from which on passages have all stems of a subject; `None` if they have not."""
    missing = set(subject)
    for index in range(len(passages) - 1, -1, -1):
        missing -= passages[index].keys()
        if not missing:
            return index
    return None


def is_prose(passage: str) -> bool:
    letters = sum(x.isalpha() or x == " " for x in passage)
    return len(passage) >= MIN_PASSAGE and letters >= MIN_LETTERS * len(passage)


def take_section_queries(
    documents: Iterable[SectionedDocument], most_documents: int, most_queries: int, is_strict: bool = True
) -> tuple[list[SectionedDocument], list[SectionQuery]]:
    """
    Find queries in documents, at most so many in each, spread over it. Returns the documents with the most queries for
    their length, in order, and the queries. `is_strict` is that of `Corpus`.
    """
    corpus = Corpus(list(documents), is_strict)
    found = {number: list(corpus.queries_of(number)) for number in range(len(corpus.documents))}
    found = {number: x[:: -(-len(x) // most_queries)] for number, x in found.items() if x}
    length = {number: sum(map(len, corpus.documents[number].split.passages)) for number in found}
    best = sorted(found, key=lambda number: -len(found[number]) / length[number])[:most_documents]
    kept, queries, count = [], [], 0
    for number in sorted(best):
        document = corpus.documents[number]
        queries += [SectionQuery(Query(text, document.split.name, count + k), far) for k, text, far in found[number]]
        kept.append(document)
        count += len(document.split.passages)
    return kept, queries
