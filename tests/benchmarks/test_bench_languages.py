# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""bench_languages.py pairs the questions of a language with the sections of another one, by their numbers."""

from importlib import import_module

import torch


SECTION = "<h2>{n}.{m}. What is a {word}?</h2><p>{word} text</p>"
WORDS = ["lion", "owl", "zebra", "eel"]


class Encoder:
    """Knows the words of English, and that "eule" is an owl."""

    in_pieces = True

    def encode_queries(self, texts):
        known = lambda text: [float(word in text.replace("eule", "owl")) for word in WORDS]
        return torch.tensor([known(text) for text in texts])

    def encode_documents(self, documents):
        return [self.encode_queries([x.text[a:b] for a, b in x.spans]) for x in documents]


def test_hits_are_counted_by_languages(tmp_path, monkeypatch, capsys):
    module = import_module("bench_languages")
    root = tmp_path / "x" / "FAQ"
    for name, words in (("", WORDS), ("de/", ["loewe", "eule", "pferd", "aal"])):
        (root / name).mkdir(parents=True, exist_ok=True)
        for n in (1, 2):
            page = "".join(SECTION.format(n=n, m=m, word=words[2 * n + m - 3]) for m in (1, 2))
            page = f"<h1>Chapter {n}. Animals</h1>{page}"
            (root / name / f"page{n}{'.html' if name else '.en.html'}").write_text(page)
    monkeypatch.setattr(module, "load_encoder", lambda model: Encoder())
    monkeypatch.setattr(module, "SentenceEncoder", lambda encoder, in_pieces: encoder)
    module.main(str(tmp_path), "--models", "folder")
    printed = capsys.readouterr().out
    assert printed.startswith("4 questions.") and "| questions | en | de |" in printed
    # What the encoder does not know is nearest to the first section, which is right for the first question.
    assert "| en | 4 | 2 |" in printed and "| de | 2 | 2 |" in printed
