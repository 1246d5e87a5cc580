# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Sentences end where they end, and the one nearest to a query is shown at its place."""

import pytest
from bag_of_words import BagOfWords
from retrieval_lion.search.index import Answer
from retrieval_lion.search.snippets import place_of_snippet, sentences, snippets


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ask Dr. Smith. He knows!", ["Ask Dr. Smith.", "He knows!"]),
        (
            "Use e.g. a file, i.e. one. See Fig. 3 of No. 5. End",
            ["Use e.g. a file, i.e. one.", "See Fig. 3 of No. 5.", "End"],
        ),
        (
            "J. R. R. Tolkien wrote it. So did Prof. M. Curie.",
            ["J. R. R. Tolkien wrote it.", "So did Prof. M. Curie."],
        ),
        ("Version 3.11 takes 0.5 s. It is out.", ["Version 3.11 takes 0.5 s.", "It is out."]),
        ("It costs 5. Then it ends... or not. Yes", ["It costs 5.", "Then it ends... or not.", "Yes"]),
        ("Wait etc. and go. (Or stay.) “Go.” Now", ["Wait etc. and go.", "(Or stay.)", "“Go.”", "Now"]),
        ("One line\ngoes on. Next", ["One line\ngoes on.", "Next"]),
        (
            "Title\n=====\n\nText\n\n- one\n- two: b\n1. First. More",
            ["Title", "Text", "one", "two: b", "1. First.", "More"],
        ),
        ("def roar():\n    return 1", ["def roar():", "return 1"]),
        ("狮子睡觉。它吼叫！", ["狮子睡觉。", "它吼叫！"]),
        ("\n--- \n *** ", []),
    ],
)
def test_sentences(text, expected):
    assert [text[first:end] for first, end in sentences(text)] == expected


def test_the_nearest_sentence_is_shown_at_its_place():
    bag = BagOfWords()

    def nearest(query: str, text: str, document: str | None = "Zoo > Lion", place: str = "a.md:7") -> tuple[str, str]:
        answer = Answer(0.5, document, place, text, 0, len(text))
        ((first, end),) = snippets(bag, bag.vector(query), [answer])
        return text[first:end], place_of_snippet(answer, first)

    text = "# Lion\n\nA lion sleeps. It roars\nat night.\n\n    An owl hunts."
    assert nearest("roars at night", text) == ("It roars\nat night.", "a.md:9")
    assert nearest("an owl", text) == ("An owl hunts.", "a.md:12")
    assert nearest("lion", text) == ("A lion sleeps.", "a.md:9")  # not the heading, which is in the name
    assert nearest("lion", "# Lion") == ("Lion", "a.md:7")
    assert nearest("an owl", text, None, "a.pdf: page 3") == ("An owl hunts.", "a.pdf: page 3")
    assert nearest("lion", "***") == ("***", "a.md:7")
    assert snippets(bag, bag.vector("lion"), []) == []
