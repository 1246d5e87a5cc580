# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What names in code refer to: labels are what the compiler does, and the benchmark runs and goes on."""

import dis
import pickle
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from transformers import BertConfig, BertModel

from modeling_lion import linearize


@pytest.fixture
def labels():
    return import_module("tasks.bindings")


@pytest.fixture
def bench():
    return import_module("bench_bindings")


def found(labels, source: str) -> list[str]:
    """The names of a source with their kinds and, behind "@", the line of the nearest binding."""
    code, lines, line = labels.read_code(source), [], 1
    for word in code.words:
        lines.append(line)
        line += word == "¶"
    places = ["" if x.binding is None else f"@{lines[x.binding]}" for x in code.names]
    return [f"{x.name} {x.kind}{place}" for x, place in zip(code.names, places, strict=True)]


# Every line of a source is one line of code.
SOURCES = {
    "imports": (
        "import os.path, json as j\nfrom a import b as c, d\nos, j, c, d.e\n",
        ["os module@1", "j module@1", "c imported@2", "d imported@2", "e attribute"],
    ),
    "globals and built-ins": (
        "x = 1\ndef f():\n    global y\n    y = x\n    return len, y, f\nclass K: pass\nK, f, y\n",
        ["x global@1", "y global@4", "x global@1", "len builtin", "y global@4", "f function@2"]
        + ["K class@6", "f function@2", "y global@4"],
    ),
    "a built-in that the file binds": ("def f(): return len\nlen = 1\n", ["len global@2", "len global@2"]),
    "nonlocal": (
        "def f(x):\n    y = 1\n    def g():\n        nonlocal y, x\n        y = x\n    return g\n",
        ["y local@2", "y local@5", "x parameter@1", "g function@3"],
    ),
    "comprehensions": (
        "x = 1\nz = [x for x in [x for _ in x] if x]\nw = {k: v for k in x for v in k}\n",
        ["x global@1", "z global@2"]
        + ["x local@2", "x local@2", "x global@1", "_ local@2", "x global@1", "x local@2"]
        + ["w global@3", "k local@3", "v local@3", "k local@3", "x global@1", "v local@3", "k local@3"],
    ),
    "a walrus in a comprehension": (
        "def f(p):\n    [last := x for x in p]\n    return last\n",
        ["last local@2", "x local@2", "x local@2", "p parameter@1", "last local@2"],
    ),
    "class scopes": (
        "x = 1\nclass K:\n    x = 2\n    y = x, [x for _ in x]\n    def m(self): return x, self.x, y\n",
        ["x global@1", "x local@3", "y local@4", "x local@3", "x global@1", "_ local@4", "x local@3"]
        + ["x global@1", "self parameter@5", "x attribute"],  # nothing that m sees binds y
    ),
    "private names": (
        "class _K:\n    __a = 1\n    def m(self, __b): return __b, _K.__a\n__a = 2\n",
        ["_K__a local@2", "_K__b parameter@3", "_K class@1", "__a attribute", "__a global@4"],
    ),
    "parameters": (
        "def f(a, /, b, *c, d=(lambda e, *g: e), **h):\n    b = a\n    return b, c, d, h\n",
        ["e parameter@1", "b parameter@2", "a parameter@1"]
        + ["b parameter@2", "c parameter@1", "d parameter@1", "h parameter@1"],
    ),
    "what the head of a function reads": (
        "t = 1\n@t\ndef f(t: t = t) -> t: return t\n",
        ["t global@1", "t global@1", "t global@1", "t global@1", "t global@1", "t parameter@3"],
    ),
    "annotations that are not evaluated": (
        "from __future__ import annotations\nfrom a import T\ndef f(x: T) -> T:\n    y: T = x\n    return y\n",
        ["T imported@2", "T imported@2", "y local@4", "T imported@2", "x parameter@3", "y local@4"],
    ),
    "except, with and for": (
        "def f():\n    try: pass\n    except (OSError) as e: e\n    with e as w, w: pass\n    for i in w: i\n",
        ["OSError builtin", "e local@3", "e local@3", "w local@4", "w local@4"]
        + ["i local@5", "w local@4", "i local@5"],
    ),
    "patterns": (
        "def f(x):\n  match x:\n    case [a, *b]: a, b\n    case {'k': c, **d}: c, d\n    case int() as e: e\n",
        ["x parameter@1", "a local@3", "b local@3", "c local@4", "d local@4", "int builtin", "e local@5"],
    ),
    "star imports": ("from a import *\nimport b\nb, len, x\n", ["b module@2"]),
    "names of several kinds": (
        "try: import a\nexcept ImportError: a = None\na\nimport b\nb = b.c\n",
        ["ImportError builtin", "c attribute"],
    ),
    "lines that are not ASCII": (
        "é = 'ü', 1\nprint('ü', é.ä)\n",
        ["é global@1", "print builtin", "é global@1", "ä attribute"],
    ),
    "names that nothing binds": ("print(__name__, nothing)\n", ["print builtin"]),
}


@pytest.mark.parametrize("case", SOURCES)
def test_labels(labels, case):
    source, expected = SOURCES[case]
    assert found(labels, source) == expected


def test_f_strings_have_no_labels_and_scopes_behind_them_are_right(labels):
    source = "x = 1\ny = f'{[x for x in x]} {x:{x}}', [x for x in (lambda y: y)(x)]\n"
    assert found(labels, source) == [
        *("x global@1", "y global@2", "x local@2", "x local@2", "y parameter@2", "x global@1")
    ]


def test_words_are_tokens(labels):
    code = labels.read_code("def f(a):  # not this\n\n    return 'text' + 1.5e3\n")
    assert code.words == ["def", "f", "(", "a", ")", ":", "¶", "»", "return", '""', "+", "0", "¶", "«"]


@pytest.mark.parametrize("source", ["def f(:\n", "x = (1\n", "if x:\n  y\n z\n", "x = 'a\n"])
def test_what_cannot_be_compiled_is_refused(labels, source):
    with pytest.raises(ValueError, match="cannot be read"):
        labels.read_code(source)


def operations(code) -> dict[tuple[int, int], set[str]]:
    """How compiled code loads names, by the line and column where each is written."""
    found: dict[tuple[int, int], set[str]] = {}
    for instruction in dis.get_instructions(code):
        place = instruction.positions
        if instruction.opname.startswith("LOAD_") and place.lineno is not None:
            found.setdefault((place.lineno, place.col_offset), set()).add(instruction.opname)
    for constant in code.co_consts:
        if hasattr(constant, "co_code"):
            for place, names in operations(constant).items():
                found.setdefault(place, set()).update(names)
    return found


@pytest.mark.skipif(sys.version_info < (3, 11), reason="compiled code has no columns before Python 3.11")
@pytest.mark.parametrize("module", ["argparse", "dataclasses", "asyncio.base_events"])
def test_kinds_are_how_compiled_code_loads_names(labels, module):
    """Another truth than symtable: names of functions are loaded as fast or enclosed ones, all others by name."""
    source = Path(import_module(module).__file__).read_text(encoding="utf-8")
    assert source.isascii()  # so that columns are bytes
    loads, checked = operations(compile(source, module, "exec")), Counter()
    tokenize = import_module("tokenize")
    lines = iter(source.splitlines(keepends=True))
    tokens = [x for x in tokenize.generate_tokens(lambda: next(lines, "")) if x.type not in labels.LEFT_OUT]
    for name in labels.read_code(source).names:
        by = {x for x in loads.get(tokens[name.word].start, ()) if x != "LOAD_ATTR" and x != "LOAD_METHOD"}
        if name.kind == "attribute" or not by & {"LOAD_FAST", "LOAD_DEREF", "LOAD_GLOBAL", "LOAD_NAME"}:
            continue
        if name.kind == "parameter":
            assert by & {"LOAD_FAST", "LOAD_DEREF"}, (name, by)
        elif name.kind in ("builtin", "global"):
            assert by & {"LOAD_GLOBAL", "LOAD_NAME"}, (name, by)
        checked[name.kind] += 1
    assert checked["parameter"] > 100 and checked["builtin"] > 50 and checked["global"] > 5, checked


def test_each_label_is_in_the_piece_in_whose_middle_it_stands(bench):
    for count in (1, 9, 10, 11, 16, 17, 40):
        row = {"input_ids": list(range(count)), "labels": list(range(count))}
        pieces = list(bench.in_pieces(row, 10, 4))
        assert all(len(piece["labels"]) == len(piece["input_ids"]) <= 10 for piece in pieces)
        kept = [[x for x in piece["labels"] if x != bench.NO_LABEL] for piece in pieces]
        assert sum(kept, []) == list(range(count))
        for piece, labels in zip(pieces[:-1], kept, strict=False):
            assert piece["input_ids"][-1] - labels[-1] == 2 and piece["input_ids"][-1] < count - 1
        for piece, labels in zip(pieces[1:], kept[1:], strict=False):
            assert labels[0] - piece["input_ids"][0] == 2
    whole = {"labels": list(range(7)), "input_ids": list(range(7))}
    assert list(bench.in_pieces(whole, 7, 0)) == [whole]


@pytest.fixture
def code_rows(bench, labels):
    train = [
        labels.read_code(x)
        for x in ("import os\nlong_name = os\n", "def f(long_name, b): return long_name, long_name, b.os\n")
    ]
    test = labels.read_code("import os\nlong_name = os.b\nimport b\nb, long_name, new\nnew = 1\n")
    tokenizer = bench.train_tokenizer(train, 40)
    return bench.to_row(test, tokenizer, *bench.count_meanings(train)), test, tokenizer


def test_rows_have_labels_at_first_pieces_and_distances_in_pieces(bench, code_rows):
    row, test, tokenizer = code_rows
    assert len(row["labels"]) == len(row["input_ids"]) > len(test.words)  # some words have several pieces
    at = [n for n, x in enumerate(row["labels"]) if x != bench.NO_LABEL]
    assert [bench.KINDS[row["labels"][n]] for n in at] == [
        *("global", "module", "attribute", "module", "global", "global", "global")
    ]
    starts, place = [], 0
    for word in test.words:
        starts.append(place)
        place += len(tokenizer(word)["input_ids"])
    assert at == [starts[x.word] for x in test.names]
    expected = [-1 if x.binding is None else abs(starts[x.binding] - starts[x.word]) for x in test.names]
    assert [row["distance"][n] for n in at] == expected and expected[1] > 3
    # os is a module wherever it was seen, `long_name` has two meanings, b one, and `new` was not seen.
    assert [row["counted"][n] for n in at] == [1, 0, 0, 0, 1, 1, 1]
    assert [bench.KINDS[row["guess"][n]] for n in at[1:]] == [
        *("module", "attribute", "parameter", "parameter", "parameter", "parameter")
    ]


def test_bindings_that_are_cut_off_have_no_label(bench, code_rows):
    row, *_ = code_rows
    end = max(n for n, x in enumerate(row["labels"]) if x != bench.NO_LABEL)  # where `new` is bound
    short = bench.cut_off(row, end)
    lost = [n for n in range(end) if short["labels"][n] != row["labels"][n]]
    assert [row["binding"][n] for n in lost] == [end] and len(short["input_ids"]) == end


def test_tests_have_the_first_tokens_of_files_that_are_long_enough(bench):
    files = [
        {"labels": [n % 3 for n in range(count)], "binding": [-1] * count, "distance": [5] * count}
        for count in (11, 7)
    ]
    (whole,) = bench.cut_test(bench.Dataset.from_list(files), 8)
    assert whole["text"] == 0 and whole["labels"] == files[0]["labels"][:8]
    pieces = bench.cut_test(bench.Dataset.from_list(files), 8, piece=4)
    assert [len(x) for x in pieces["labels"]] == [4, 4, 2] and set(pieces["text"]) == {0}
    assert [x for of_piece in pieces["labels"] for x in of_piece if x != bench.NO_LABEL] == whole["labels"]


def test_scores_are_by_distance(bench):
    rows = {
        "labels": [[1, 2, -100, 3], [4, 5]],
        "distance": [[10, 70, 0, 600], [600, -1]],
        "counted": [[1, 1, 1, 1], [0, 0]],
        "guess": [[0] * 4, [0] * 2],
        "text": [0, 1],
    }
    answers = [np.array([1, 0, 0, 3]), np.array([0, 5])]
    found = {(x["min_distance"], x["max_distance"]): x for x in bench.score(bench.Dataset.from_dict(rows), answers)}
    assert {key: (x["accuracy"], x["names"]) for key, x in found.items()} == {
        (None, None): (pytest.approx(3 / 5), 5),
        (0, 64): (1, 1),
        (64, 512): (0, 1),
        (512, 2048): (1, 1),  # the name of one meaning is left out
    }


def test_readers_are_equal_but_for_what_they_see(bench):
    config = {"vocab_size": 60, "max_position_embeddings": 128, "num_labels": len(bench.KINDS)}
    data = bench.Data(bench.LionForTokenClassification, config, {}, None)
    stage = bench.SCALES["quick"]["2048"].stages[0]
    counts = {}
    for name, reader in bench.MODELS.items():
        model = bench.start(reader.base, 0, bench.replace(stage, variant=reader.fields(2)), data)
        counts[name] = model.num_parameters()
        assert model.config.use_gated_mlp
    assert max(counts.values()) <= 1.02 * min(counts.values()), counts
    assert {name for name, reader in bench.MODELS.items() if reader.piece} == {x for x in counts if "pieces" in x}


def test_another_version_of_a_package_is_other_data(bench, tmp_path, monkeypatch):
    file, texts = tmp_path / "code.py", bench.Texts(train=("a",), test=("b",))
    monkeypatch.setattr(bench.Texts, "paths", lambda self, packages, count: [file])
    settings = []
    for code in ("x = 1", "x = 2", "x = 1"):
        file.write_text(code)
        bench.data_of.cache_clear()
        settings.append(texts.settings())
    assert settings[0] == settings[2] != settings[1] and settings[0].startswith("data=")
    bench.data_of.cache_clear()


def test_experiments_reach_other_processes(bench):
    for of_scale in bench.SCALES.values():
        for bindings in of_scale.values():
            assert pickle.loads(pickle.dumps(bindings)) == bindings and set(bindings.models) <= set(bench.READERS)


def test_the_table_tells_trainings_apart():
    reports = import_module("reports.bindings")
    about = {"encoder": None, "tokens": 8192, "names": 9, "min_distance": None, "max_distance": None}
    about |= {"accuracy_error": 0.01, "train_cpu_seconds": 60, "memory_bytes": None}
    cases = [("LION", 20, 2048, 0, 0.8), ("LION", 20, 8192, 0, 0.9), (reports.NAME_ALONE, 20, 2048, None, 0.7)]
    cases += [(reports.NAME_ALONE, 20, 8192, None, 0.7), ("LION", 200, 2048, 0, 0.95)]
    rows = [
        about
        | {"model": model, "files": files, "times": 1, "trained_tokens": trained, "seed": seed, "accuracy": accuracy}
        for model, files, trained, seed, accuracy in cases
    ]
    tables = [text.splitlines() for text in reports.bindings(lambda name: rows).split("\n\n")]
    first_cells = [[line.split(" | ")[0][2:] for line in lines] for lines in tables]
    names = ["LION, trained on 8,192 tokens", "LION", "the name alone"]
    assert [x[3:] for x in first_cells] == [names, ["LION"]]
    assert [x[0] for x in first_cells] == [
        "8,192 tokens, test %",
        "8,192 tokens, up to 200 files of a package, test %",
    ]


@pytest.mark.slow
def test_runs_once_and_reports(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "in_new_process", lambda function, *args: function(*args))
    args = ["--quick", "--output_dir", str(tmp_path), "--cache_dir", str(tmp_path / "cache")]
    args += ["--models", "LION", "softmax, pieces of 256"]
    bench.main(args)
    rows = import_module("measure").read_rows(tmp_path / "bindings.csv")
    by_model = {name: [x for x in rows if x["model"] == name] for name in ("the name alone", "LION", *args[-1:])}
    about = ("tokens", "min_distance", "names")
    counts = [[tuple(x[name] for name in about) for x in of_model] for of_model in by_model.values()]
    assert counts[0] == counts[1] == counts[2] and sum(map(len, counts)) == len(rows)
    assert [x[:2] for x in counts[0]] == [(512, y) for y in (None, 0, 64)] + [(1024, y) for y in (None, 0, 64, 512)]
    assert all(0 <= x["accuracy"] <= 1 for x in rows)
    assert all(x["train_cpu_seconds"] > 0 and x["test_cpu_seconds"] > 0 for x in by_model["LION"])
    page = (tmp_path / "recall.md").read_text(encoding="utf-8")
    assert "| LION | 1 |" in page and "| the name alone |  |" in page
    text = (tmp_path / "bindings.csv").read_text()
    bench.main(args)
    assert (tmp_path / "bindings.csv").read_text() == text
    (tmp_path / "bindings.csv").write_text(text.replace("steps=2", "steps=3"))
    with pytest.raises(ValueError, match="of another experiment"):
        bench.main(args)


@pytest.mark.slow
def test_an_encoder_is_trained_in_pieces_and_whole(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "in_new_process", lambda function, *args: function(*args))
    quick = bench.SCALES["quick"]["2048"]
    codes = bench.read_files(quick.texts.paths(quick.texts.train, 3))
    tokenizer = bench.train_tokenizer(codes, 300)
    encoder = tmp_path / "encoder"
    tokenizer.save_pretrained(encoder)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=512, **sizes)
    linearize(BertModel(config), window=16, exact_length=512, positions="cyclic").save_pretrained(encoder)
    stage = bench.Experiment({"length": 1024}, {}, steps=2, batch_size=1)
    of_encoder = bench.Bindings(bench.replace(quick.texts, encoder=encoder), (stage,), tuple(bench.OF_ENCODER))
    monkeypatch.setitem(bench.SCALES["quick"], "encoder", of_encoder)
    args = ["--quick", "--output_dir", str(tmp_path), "--cache_dir", str(tmp_path / "cache"), "--tasks", "encoder"]
    bench.main(args)
    rows = import_module("measure").read_rows(tmp_path / "bindings.csv")
    assert {x["model"] for x in rows} == {"the name alone", *bench.OF_ENCODER} and {x["encoder"] for x in rows} == {
        "encoder"
    }
    whole, pieces = ([x["names"] for x in rows if x["model"] == name] for name in bench.OF_ENCODER)
    assert whole == pieces
    assert "| encoder, 1,024 tokens, test % |" in (tmp_path / "recall.md").read_text(encoding="utf-8")
