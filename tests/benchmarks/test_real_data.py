# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Real data: what is extracted, that nothing is on two sides of a split, and that scripts take the files."""

import io
import json
import tarfile
from collections import defaultdict

from tasks import real_data


PAGE = """<html><body><nav>menu</nav><div class="navheader">Prev</div><div role="main">
<h1>Index<a class="headerlink" href="#x">¶</a></h1><p>Nodes of an
<code><span>ino</span><span>de</span></code>.</p><ul><li>one</li><li>two</li></ul><pre>a = b
c</pre><script>x()</script></div><footer>end</footer></body></html>"""
PACKAGES = """Package: liba-dev
Source: a (1.0)
Description: library A
Description-md5: 11
Tag: role::devel-lib, devel::library,
 implemented-in::c
Section: libdevel

Package: b
Description: game
Section: non-free/games

Package: b
Description: an older record
Section: games

Package: c
Description: game
Section: games
"""
DESCRIPTIONS = """Package: liba-dev
Description-md5: 11
Description-en: library A
 Reads and
 writes.
 .
 Quickly.
"""


def test_text_of_a_page():
    assert real_data.page_text(PAGE) == "Index Nodes of an inode. one two a = b c"
    assert real_data.page_text(b"<p>no main part</p><p>here</p>") == "no main part here"


def test_pages_are_in_english_and_differ(tmp_path):
    text = "word " * 100
    for place in (
        "net/index.html",
        "net/tcp.html",
        "net/copy.html",
        "translations/it/tcp.html",
        "net/drivers/e1.html",
    ):
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"<p>{text}{'more' if 'e1' in place else ''}</p>")
    (tmp_path / "short.html").write_text("<p>short</p>")
    pages = list(real_data.read_pages("linux", tmp_path))
    assert [(page.place, page.part) for page in pages] == [
        ("net/copy.html", "linux/net"),
        ("net/drivers/e1.html", "linux/net"),
    ]
    assert [page.group for page in pages] == ["linux/net/copy.html", "linux/net/drivers"]


def test_descriptions_of_packages():
    first, second = real_data.described(PACKAGES, DESCRIPTIONS)
    assert first == {
        "name": "liba-dev",
        "source": "a",
        "section": "libdevel",
        "tags": ["devel::library", "implemented-in::c", "role::devel-lib"],
        "text": "library A Reads and writes. Quickly.",
    }
    assert second == {"name": "b", "source": "b", "section": "games", "tags": [], "text": "game"}


def tar_of(files: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return content.getvalue()


def test_ratings_of_reviews(tmp_path):
    lines = {
        "h/movieReviewSnippets_GroundTruth.txt": b"1\t-0.6\tToo tepid\n2\t3.5\tGorgeous\n",
        "h/amazonReviewSnippets_GroundTruth.txt": "\ufeff7_1\t1.25\tgood sound\n7_2\t-2\tbad\tlens\n".encode(),
    }
    path = tmp_path / "v.tar.gz"
    path.write_bytes(tar_of({"v/hutto_ICWSM_2014.tar.gz": tar_of(lines)}))
    found = [tuple(row.values()) for row in real_data.rated(path)]
    assert found == [
        ("movieReviewSnippets/1", "Too tepid", -0.6),
        ("movieReviewSnippets/2", "Gorgeous", 3.5),
        ("amazonReviewSnippets/7", "good sound", 1.25),
        ("amazonReviewSnippets/7", "bad\tlens", -2.0),
    ]


def rows_with_groups() -> list[tuple[str, dict]]:
    return [(f"source{i // 3}", {"text": f"text {i}", "label": ["a", "b"][: i % 3]}) for i in range(300)]


def test_no_group_is_on_two_sides(tmp_path):
    rows, sides = rows_with_groups(), defaultdict(set)
    real_data.write_all(tmp_path, {"facets": rows}, 0, [])
    group_of = {row["text"]: group for group, row in rows}
    found = []
    for split in real_data.SPLITS:
        lines = (tmp_path / "facets" / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
        found += [json.loads(line) for line in lines]
        for line in lines:
            sides[group_of[json.loads(line)["text"]]].add(split)
    assert all(len(splits) == 1 for splits in sides.values()) and {*map(min, sides.values())} == {*real_data.SPLITS}
    assert sorted(found, key=str) == sorted((row for _, row in rows), key=str)
    digest = real_data.digest(tmp_path, "facets")
    real_data.write_all(tmp_path, {"facets": rows[::-1]}, 0, [])
    assert real_data.digest(tmp_path, "facets") == digest  # whatever order they were found in
    for other in ([*rows[:-1], (rows[-1][0], {"text": "text 299.", "label": ["a", "b"]})], rows[1:]):
        real_data.write_all(tmp_path, {"facets": other}, 0, [])
        assert real_data.digest(tmp_path, "facets") != digest
    assert {real_data.split_of("source1", seed) for seed in range(40)} == {*real_data.SPLITS}


def test_labels_that_are_not_trained_on_are_left_out(tmp_path):
    rows = [(f"g{i}", {"text": f"text {i}", "label": "a"}) for i in range(50)]
    held_out = next(f"x{i}" for i in range(100) if real_data.split_of(f"x{i}", 0) == "test")
    rows += [(held_out, {"text": "unknown", "label": "b"}), (held_out, {"text": "known", "label": "a"})]
    real_data.write_splits(tmp_path, rows, 0)
    test = (tmp_path / "test.jsonl").read_text()
    assert '"known"' in test and '"unknown"' not in test
