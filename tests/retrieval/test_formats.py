# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Files of every format are read with the places of their texts, and what is not read is said with the reason."""

import builtins
import bz2
import gzip
import io
import json
import lzma
import os
import sys
import zipfile
from email.message import EmailMessage
from pathlib import Path

import docx
import matplotlib.pyplot as plt
import pypdfium2
import pytest
from bag_of_words import use_bag_of_words
from docx.oxml import OxmlElement
from docx.oxml.ns import nsmap, qn
from matplotlib.backends.backend_pdf import PdfPages
from pypdfium2 import raw
from retrieval_lion import documents, folders
from retrieval_lion.formats import archives, mail, readers
from retrieval_lion.formats.code import split_lines
from retrieval_lion.formats.pdf import in_paragraphs
from retrieval_lion.formats.section import LONGEST, SHORTEST, SkippedFile, decode
from retrieval_lion.search import index as search_index
from retrieval_lion.search.searcher import find_files


def sections(name: str, data: bytes | str) -> list[tuple]:
    """Text, place and name of what is read in a file."""
    found = readers.sections_of(data.encode() if isinstance(data, str) else data, name)
    return [(" ".join(x.text.split()), x.place, x.name) for x in found]


def why_skipped(name: str, data: bytes | str) -> str:
    with pytest.raises(SkippedFile) as error:
        sections(name, data)
    assert name in str(error.value)
    return error.value.reason


def passages(file: Path, root: Path) -> list[tuple[str, str, str | None]]:
    """Text, place and name of the passages of a file."""
    return [(x.text, x.place, x.name) for x in documents.passages_of(str(file), str(root))]


PAGE = """<!DOCTYPE html><html><head><title>Pumps and more - ACME</title><style>p {}</style></head><body>
<nav><a href="/">Start here</a></nav><header>ACME Inc.</header><div role="search">Find</div>
<main><p>Before all.</p><h1>Pumps <a class="headerlink">¶</a></h1><p>A <b>pump</b> moves
water.</p>
<h2>Install</h2><ul><li>Open<li>Close</ul><pre>if x:
    pump()</pre>
<h3>On Debian</h3><table><tr><th>Part</th><th>Price</th></tr><tr><td>Valve<td>7</table>
<h2>Empty</h2><script>evil()</script><aside>See &amp; hear</aside></main>
<footer>Imprint</footer></body></html>"""


def test_the_main_text_of_a_page_by_headings():
    assert sections("a.html", PAGE) == [
        ("Before all.", "", None),
        ("A pump moves water.", "Pumps", "Pumps"),
        ("Open Close if x: pump()", "Pumps > Install", "Pumps > Install"),
        ("Part | Price Valve | 7", "Pumps > Install > On Debian", "Pumps > Install > On Debian"),
        ("See & hear", "Pumps > Empty", "Pumps > Empty"),
    ]
    (_, _, install, table, _) = readers.sections_of(PAGE.encode(), "a.html")
    assert install.text == "Open\nClose\n\nif x:\n    pump()" and table.text == "Part | Price\nValve | 7"


def test_pages_without_marks_encodings_and_broken_ones():
    """What is outside of a small main part is read, too; a title stands for a missing heading."""
    page = "<title>The title</title><nav>Menu</nav><p>Words outside of it, many of them.</p><main>In it.</main>"
    assert sections("a.htm", page) == [("Words outside of it, many of them. In it.", "The title", "The title")]
    repeated = "<title>Pumps - ACME</title><p>Before.</p><h2>Pumps</h2><p>After.</p>"
    assert [x[1] for x in sections("a.html", repeated)] == ["Pumps - ACME", "Pumps"]
    for data in (
        "<p>Où est le café</p>".encode("latin-1"),
        '<meta charset="iso-8859-1"><p>Où est le café</p>'.encode("latin-1"),
        "<p>Où est le café</p>".encode("utf-16"),
        '<?xml version="1.0" encoding="UTF-8"?><html><body><p>Où est le café</p></body></html>'.encode(),
        "<p>Où est <!-- not --> le café<b".encode(),
    ):
        assert [x[0] for x in sections("a.html", data)] == ["Où est le café"]
    assert sections("a.html", b" ") == [] == sections("a.html", b"<title>ACME</title><nav>Only a menu</nav>")


WORDS = "A pump moves water all day long, and it rests at night."


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<pre>a\x0cb&#11;c&#x1B;</pre><h1>Pu\x1bmps</h1>&#65534;d", [("a b c", ""), ("d", "Pu mps")]),
        ("<p>a\ufdd4b&#xFDD4;c\0d &#60;</p>", [("a b c d <", "")]),
        ("<h1>A</h1><h2>B</h2><h2>C</h2><p>x</p><h1>D</h1>", [("B", "A > B"), ("x", "A > C"), ("D", "D")]),
        ("<h2>All <div><p>of it</p></div></h2>x", [("of it x", "All")]),
        ("<h1><div>One<br>Two</div></h1><p>x</p>", [("x", "One Two")]),
        (f"<form><header>ACME</header><p>{WORDS}</p><footer>Imprint</footer></form>", [(WORDS, "")]),
        (f"<title>ACME</title><header><h1>Pumps</h1>Menu</header><main>{WORDS}</main>", [(WORDS, "Pumps")]),
        (f"<header><h1>ACME</h1></header><h1>Pumps</h1><p>{WORDS}</p>", [(WORDS, "Pumps")]),
        (f"<div role='banner'><h1> </h1></div><aside>{WORDS}</aside><p>Short.</p>", [(f"{WORDS} Short.", "")]),
        (f"<div role='banner'>ACME</div>{WORDS}<aside>See also</aside><form>Find</form>", [(WORDS, "")]),
    ],
)
def test_parts_of_pages_that_are_read_and_left_out(page, expected):
    assert [(text, place) for text, place, _ in sections("a.html", page)] == expected


@pytest.mark.parametrize(
    ("data", "charset", "expected"),
    [
        ("Löwe".encode("utf-16"), None, "Löwe"),
        ("Löwe".encode("utf-32"), None, "Löwe"),
        (b"L\xf6we", None, "Löwe"),
        ("Où est le café, là".encode() + b"\xff", None, "Où est le café, là\ufffd"),
        ("ö".encode() * 98 + b"\xff\xff", None, "Ã¶" * 98 + "ÿÿ"),
        ("ö".encode() * 99 + b"\xff\xff", None, "ö" * 99 + "\ufffd\ufffd"),
        ("Löwe".encode(), "iso-8859-1", "Löwe"),
        (b"L\xf6we\x93", "iso-8859-1", "Löwe“"),
        (b"L\xf6we", "utf-8", "Löwe"),
        (b"L\xf6we", "nonsense", "Löwe"),
        (b"L\xf6we", "base64", "Löwe"),
        (b"L\xf6we", "idna", "Löwe"),
        ("ライオン".encode("iso-2022-jp"), "iso-2022-jp", "ライオン"),
        ("Лев".encode("koi8-r"), "koi8-r", "Лев"),
        (b"L\0w\0", "utf-16-le", "Lw"),
    ],
)
def test_encodings(data, charset, expected):
    assert decode(data, "a.txt", charset) == expected


def pdf_of(pages: list[str]) -> bytes:
    data = io.BytesIO()
    with PdfPages(data) as pdf:
        for page in pages:
            figure = plt.figure()
            figure.text(0.1, 0.5, page)
            pdf.savefig(figure)
            plt.close(figure)
    return data.getvalue()


def test_lines_of_pdf_are_joined():
    lines = [
        "A lion sleeps in the shade of a tree, as li\x02ons do.",
        "It eats.",
        "Owls fly by night, without any sound,",
        "far.",
    ]
    assert in_paragraphs("\r\n".join(lines)) == (
        "A lion sleeps in the shade of a tree, as lions do.\nIt eats.\nOwls fly by night, without any sound, far."
    )


def test_pdf_by_pages():
    data = pdf_of(["A lion sleeps in the\nshade of a tree, still.\nOwls.", "", "A zebra . . . . . . . 17"])
    assert sections("a.pdf", data) == [
        ("A lion sleeps in the shade of a tree, still. Owls.", "page 1", None),
        ("A zebra 17", "page 3", None),
    ]
    assert why_skipped("scan.pdf", pdf_of([""])) == "no text, as scans"
    assert why_skipped("half.pdf", data[:300]) == "damaged" == why_skipped("no.pdf", b"%PDF-1.4 rubbish")


def test_headings_and_passwords_of_pdf(monkeypatch):
    """As PDFium gives them: matplotlib writes neither."""

    class Bookmark:
        def __init__(self, level, title, page):
            self.level, self.title, self.page = level, title, page

        def get_title(self):
            return self.title

        def get_dest(self):
            return None if self.page is None else self

        def get_index(self):
            return self.page

    toc = [Bookmark(0, "Animals", 1), Bookmark(1, "Lions", 1), Bookmark(1, "Owls", 2), Bookmark(0, "Nowhere", None)]
    monkeypatch.setattr(pypdfium2.PdfDocument, "get_toc", lambda self: iter(toc))
    names = [name for *_, name in sections("a.pdf", pdf_of(["One", "Two", "Three", "Four"]))]
    assert names == [None, "Animals", "Animals > Owls", "Animals > Owls"]

    def locked(data):
        raise pypdfium2.PdfiumError("Failed to load document", err_code=raw.FPDF_ERR_PASSWORD)

    monkeypatch.setattr(pypdfium2, "PdfDocument", locked)
    assert why_skipped("a.pdf", b"%PDF") == "encrypted"


def zip_of(files: dict[str, str | bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return data.getvalue()


def test_documents_of_word():
    document = docx.Document()
    document.add_paragraph("Before.")
    document.add_heading("Pumps", 0)
    document.add_heading("Install", 1)
    paragraph = document.add_paragraph("Open it,\tthen ")
    paragraph.add_run("close it.").bold = True
    document.add_heading("On Debian", 2)
    table = document.add_table(2, 2)
    for cell, text in zip((x for row in table.rows for x in row.cells), ("Part", "Price", "Valve", "7"), strict=True):
        cell.text = text
    document.add_heading("Sell", 1)
    document.add_paragraph("At once.")
    data = io.BytesIO()
    document.save(data)
    assert sections("a.docx", data.getvalue()) == [
        ("Before.", "", None),
        ("Open it, then close it.", "Pumps > Install", "Pumps > Install"),
        ("Part | Price Valve | 7", "Pumps > Install > On Debian", "Pumps > Install > On Debian"),
        ("At once.", "Pumps > Sell", "Pumps > Sell"),
    ]
    assert why_skipped("half.docx", data.getvalue()[:1000]) == "damaged"
    assert why_skipped("other.docx", zip_of({"a.txt": "A lion."})) == "damaged"


def test_notes_and_headings_without_text_in_documents_of_word():
    document, notes = docx.Document(), {}
    document.add_heading("Pumps", 1)
    run = document.add_heading("Install", 2).insert_paragraph_before("Open it").add_run()
    for kind in ("footnote", "endnote"):
        run._r.append(OxmlElement(f"w:{kind}Reference", {qn("w:id"): "2"}))
        note = f"<w:{kind} w:id='2'><w:p><w:r><w:t>A {kind}.</w:t></w:r></w:p></w:{kind}>"
        notes[f"word/{kind}s.xml"] = f"<w:{kind}s xmlns:w='{nsmap['w']}'>{note}</w:{kind}s>"
    data = io.BytesIO()
    document.save(data)
    with zipfile.ZipFile(data, "a") as archive:
        for name, xml in notes.items():
            archive.writestr(name, xml)
    assert sections("a.docx", data.getvalue()) == [
        ("Open it (A footnote.) (A endnote.)", "Pumps", "Pumps"),
        ("Install", "Pumps > Install", "Pumps > Install"),
    ]


URN = "urn:oasis:names:tc:opendocument:xmlns"
ODT = f"""<?xml version="1.0"?><office:document-content xmlns:office="{URN}:office:1.0"
 xmlns:text="{URN}:text:1.0" xmlns:table="{URN}:table:1.0">
<office:body><office:text><text:tracked-changes><text:p>Deleted.</text:p></text:tracked-changes>
<text:h text:outline-level="1">Pumps</text:h>
<text:p>A<text:s text:c="2"/>pump<text:note>
<text:note-citation>1</text:note-citation><text:p>Foot.</text:p></text:note>
moves<text:tab/><text:span>water</text:span>.</text:p><text:section><text:h text:outline-level="2">Parts</text:h>
<table:table><table:table-row><table:table-cell><text:p>Valve</text:p></table:table-cell><table:table-cell><text:p>7</text:p>
</table:table-cell></table:table-row></table:table></text:section></office:text></office:body></office:document-content>"""


def test_open_documents():
    files = {"content.xml": ODT, "META-INF/manifest.xml": "<manifest/>"}
    assert sections("a.odt", zip_of(files)) == [
        ("A pump (Foot.) moves water.", "Pumps", "Pumps"),
        ("Valve | 7", "Pumps > Parts", "Pumps > Parts"),
    ]
    locked = files | {"META-INF/manifest.xml": "<manifest><encryption-data/></manifest>"}
    assert why_skipped("a.odt", zip_of(locked)) == "encrypted"


EPUB = {
    "META-INF/container.xml": '<container xmlns="urn:x"><rootfile full-path="OPS/book.opf"/></container>',
    "OPS/book.opf": '<package xmlns="http://www.idpf.org/2007/opf"><manifest><item id="b" href="second%20one.xhtml"/>'
    '<item id="a" href="../first.xhtml"/></manifest><spine><itemref idref="a"/><itemref idref="b"/></spine></package>',
    "first.xhtml": "<html><body><h1>Dawn</h1><p>A lion wakes.</p></body></html>",
    "OPS/second one.xhtml": "<html><body><p>It sleeps again.</p></body></html>",
}


def test_books_in_reading_order():
    assert sections("a.epub", zip_of(EPUB)) == [
        ("A lion wakes.", "Dawn", "Dawn"),
        ("It sleeps again.", "part 2", None),
    ]
    assert why_skipped("a.epub", zip_of(EPUB | {"META-INF/rights.xml": "<rights/>"})) == "encrypted"
    missing = EPUB["OPS/book.opf"].replace("<spine>", '<spine><itemref idref="c"/>').replace("second", "no")
    assert sections("a.epub", zip_of(EPUB | {"OPS/book.opf": missing})) == [("A lion wakes.", "Dawn", "Dawn")]
    assert why_skipped("a.epub", zip_of(EPUB | {"OPS/book.opf": missing.replace("first", "no")})) == "damaged"


def test_what_unpacks_to_too_much_is_not_unpacked(monkeypatch):
    monkeypatch.setattr(archives, "MOST_UNPACKED", 10_000)
    bomb = zip_of({"word/document.xml": b"0" * 1_000_000})
    assert len(bomb) < 2000
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda self, name: pytest.fail("it was unpacked"))
    assert why_skipped("bomb.docx", bomb) == why_skipped("bomb.odt", bomb) == "unpacks to too much"
    locked = bytearray(zip_of({"word/document.xml": b"A lion."}))
    locked[locked.index(b"PK\x01\x02") + 8] |= 1  # as zip -e marks it
    assert why_skipped("a.docx", bytes(locked)) == "encrypted"


def test_entities_of_xml_are_not_expanded():
    bomb = ODT.replace(
        "<office:document-content", '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><office:document-content'
    )
    data = zip_of({"content.xml": bomb.replace("A<text:s", "&b;<text:s"), "META-INF/manifest.xml": ""})
    assert "ha" not in sections("a.odt", data)[0][0]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_rows_of_tables_have_the_names_of_their_columns(separator):
    rows = [["name", "note"], ["Ada", '"first, of\nall"'], ["Bob", ""], ["Cy", "x" * SHORTEST], ["Di", "last"]]
    data = "\r\n".join(separator.join(row) for row in rows)
    assert sections("a.csv", data) == [
        ("name: Ada; note: first, of all", 2, None),
        ("name: Bob name: Cy; note: " + "x" * SHORTEST, 4, None),
        ("name: Di; note: last", 6, None),
    ]


def test_cells_beyond_the_columns_and_empty_first_lines_are_kept():
    data = "\n  \nid,comment\n1,The lion sleeps, and the zebra escapes\n"
    assert sections("a.csv", data) == [("id: 1; comment: The lion sleeps; and the zebra escapes", 4, None)]


def test_tables_without_names_and_of_numbers():
    assert sections("a.tsv", "Ada\t1815\nBob\t1932\n") == [("Ada | 1815 Bob | 1932", 1, None)]
    assert sections("a.csv", "one line") == [("one line", 1, None)]
    assert why_skipped("a.csv", "x,y\n1.5,2e-3\n-3,4\n") == "only numbers"
    assert sections("a.csv", "") == []
    assert sections("a.csv", ",name,E\n0,Ada,x\n") == [("0; name: Ada; E: x", 2, None)]
    assert sections("a.csv", "E1,e\nx,y\n") == [("E1: x; e: y", 2, None)]
    assert sections("a.csv", "1e5,e\nx,y\n") == [("1e5 | e x | y", 1, None)]
    assert sections("a.csv", "Report,,\na,b,c\n") == [("Report | | a | b | c", 1, None)]


def test_json_by_paths():
    users = [{"name": f"User {n}", "note": "word " * 150, "at": [1.5] * 99, "none": None} for n in range(3)]
    data = {"title": "People", "users": users, "deep": {"er": {"text": "w " * LONGEST}}, "data": "A" * 400}
    found = sections("a.json", json.dumps(data))
    assert [place for _, place, _ in found] == ["title", "users[1]", "users[2]", "deep.er.text"]
    assert found[0][0].startswith("title: People name: User 0; note: word") and "1.5" not in found[0][0]
    assert not any("AAA" in text for text, *_ in found)
    lines = sections("a.jsonl", '{"q": "Who?"}\n\n{"q": "Why?", "n": 3}\n["a", "b"]\n')
    assert lines == [("q: Who?", 1, None), ("q: Why?; n: 3 a, b", 3, None)]
    assert sections("a.json", '// A lion\n{"a": 1}') == [('// A lion {"a": 1}', 1, None)]
    assert sections("a.json", '{"a": 1}\n{"b": 2}') == [("a: 1 b: 2", 1, None)]
    assert sections("a.jsonl", "{\n{}") == [("{ {}", 1, None)]
    assert sections("a.json", " \n") == sections("a.jsonl", "") == sections("a.ipynb", "") == []
    assert why_skipped("a.json", '{"a": "' + "A lion. " * 99) == "minified, or of long lines"
    assert sections("a.jsonl", '{"q": "Who?"}\n{"q": "Wh') == [('q: Who? {"q": "Wh', 1, None)]
    assert why_skipped("deep.json", "[" * 100_000) == "damaged"


def test_notebooks_by_cells():
    cells = [
        {"cell_type": "markdown", "source": ["# Lions\n", "They roar.\n", "## Food"]},
        {"cell_type": "code", "source": "eat()", "outputs": [{"text": "A" * 1000}]},
        {"cell_type": "code", "source": []},
        {"cell_type": "markdown", "source": "# Owls #"},
    ]
    expected = [
        ("# Lions They roar. ## Food", "cell 1", "Lions > Food"),
        ("eat()", "cell 2", "Lions > Food"),
        ("# Owls #", "cell 4", "Owls"),
    ]
    assert sections("a.ipynb", json.dumps({"cells": cells})) == expected
    old = {"worksheets": [{"cells": [{"cell_type": "code", "input": "eat()"}]}]}
    assert sections("a.ipynb", json.dumps(old)) == [("eat()", "cell 1", None)]


PYTHON = '''"""Tools."""
import os

LIMIT = 3


# Remove a file.
@cached
def remove(path):
    return os.remove(path)


class Box:
    """Holds things."""

    def _open(self):
        """Open it."""

        def lid():
            pass

        {body}

    size = 4


async def last(): ...
'''


def test_python_by_definitions_with_and_without_docstrings(tmp_path):
    body = "\n        ".join(f"call_number_{n}(self)" for n in range(60))
    (tmp_path / "pkg").mkdir()
    file = tmp_path / "pkg" / "tools.py"
    file.write_text(PYTHON.format(body=body), newline="\r\n")
    found = passages(file, tmp_path)
    assert [(place, name) for _, place, name in found] == [
        ("pkg/tools.py:1", "pkg.tools"),
        ("pkg/tools.py:7", "pkg.tools.remove"),
        ("pkg/tools.py:13", "pkg.tools.Box"),
        ("pkg/tools.py:16", "pkg.tools.Box._open"),
        ("pkg/tools.py:19", "pkg.tools.Box._open"),
        ("pkg/tools.py:72", "pkg.tools.Box._open"),
        ("pkg/tools.py:83", "pkg.tools.Box"),
        ("pkg/tools.py:86", "pkg.tools.last"),
    ]
    assert found[1][0].startswith("# Remove a file.\n@cached\ndef remove") and found[3][0].endswith('"""Open it."""')
    lines = file.read_text().split("\n")
    for text, place, _ in found:
        assert lines[int(place.rsplit(":")[-1]) - 1] == text.split("\n")[0]
    assert sections("a.py", "# Free software.\nimport os\n\n\ndef f(): ...\n") == [("def f(): ...", 5, "f")]
    assert why_skipped("__init__.py", "import os\n") == "only imports"
    assert sections("old.py", 'print "Python 2"\n') == [('print "Python 2"', 1, None)]


def test_other_code_is_split_before_definitions(tmp_path):
    functions = [f"int f{n}(int x) {{\n" + f"  x += {n};\n\n" * 70 + "  return x;\n}\n" for n in range(5)]
    file = tmp_path / "a.c"
    file.write_text("\n".join(functions))
    found = passages(file, tmp_path)
    assert [text.split("(")[0] for text, *_ in found] == [f"int f{n}" for n in range(5)]
    assert [place for _, place, _ in found] == [f"a.c:{1 + 144 * n}" for n in range(5)]
    assert {name for *_, name in found} == {"a.c"}


@pytest.mark.parametrize("lines", [["x" * 700] * 9, ["", "x", ""], [], ["x" * 5000, "y"], ["  a", "", "b"] * 700])
def test_lines_are_split_without_loss(lines):
    parts = list(split_lines(lines))
    assert [line for a, b in parts for line in lines[a:b]] == lines and all(a < b for a, b in parts)
    assert all(sum(len(x) + 1 for x in lines[a:b]) <= LONGEST + 1 or b == a + 1 for a, b in parts)


def test_latex_by_headings():
    text = r"""\documentclass{article}
\begin{document}
Before.

\section{Pumps \emph{and} more}\label{sec:pumps}
A pump.
\subsection*{Parts}
A valve.
\section[Short]{Sell}
"""
    assert [(place, name) for _, place, name in sections("a.tex", text)] == [
        (3, None),
        (5, "Pumps and more"),
        (7, "Pumps and more > Parts"),
        (9, "Sell"),
    ]
    assert sections("part.tex", "Only a part.") == [("Only a part.", 1, None)]
    whole = "\\section{Not yet}\n\\begin{document}A lion.\n\\section{Owls}"
    assert sections("a.tex", whole) == [("A lion.", 2, None), ("\\section{Owls}", 3, "Owls")]
    assert sections("a.tex", "\\begin{document}") == []


def message(subject: str, text: str) -> EmailMessage:
    made = EmailMessage()
    made["Subject"], made["From"], made["To"] = subject, "ada@example.org", "bob@example.org"
    made.set_content(text)
    return made


def test_mail_with_attachments():
    first = message("Über Löwen", "Sie brüllen.")
    first.add_alternative("<p>Sie <b>brüllen</b>.</p>", subtype="html")
    second = message("Report", "Attached.")
    second.add_attachment(b"name,note\nAda,first\n", maintype="text", subtype="csv", filename="table.csv")
    second.add_attachment(b"name,note\nBob,second\n", maintype="text", subtype="csv", filename="table.csv")
    second.add_attachment(b"\x89PNG\x00", maintype="image", subtype="png", filename="a.png")
    second.add_attachment(PAGE.encode(), maintype="text", subtype="html", filename="page.html")
    head = "From: ada@example.org To: bob@example.org"
    assert sections("a.eml", bytes(first)) == [(f"Subject: Über Löwen {head} Sie brüllen.", "", "Über Löwen")]
    box = b"".join(b"From ada Mon Jan  5 10:00:00 2026\n" + bytes(x) + b"\n" for x in (first, second))
    found = sections("a.mbox", box)
    assert [(place, name) for _, place, name in found][:5] == [
        ("message 1", "Über Löwen"),
        ("message 2", "Report"),
        ("message 2 > table.csv: line 2", "table.csv"),
        ("message 2 > table.csv: line 2", "table.csv"),
        ("message 2 > page.html", "page.html"),
    ]
    assert found[1][0] == f"Subject: Report {head} Attached: table.csv, table.csv, a.png, page.html Attached."
    assert [text for text, *_ in found[2:4]] == ["name: Ada; note: first", "name: Bob; note: second"]
    only = EmailMessage()
    only.set_content("<h1>Lions</h1><p>They roar.</p>", subtype="html")
    assert sections("a.eml", bytes(only)) == [("Lions They roar.", "", None)]
    bad = b"Subject: A lion\nTo: <\nFrom: =?utf-8?q?=ff?= <a@b\n\nIt roars."
    assert sections("a.eml", bad)[0][0].endswith("It roars.")
    odd = b"Content-Type: text/plain; charset=nonsense\n\nA lion \xff roars."
    assert sections("a.eml", odd) == [("A lion ÿ roars.", "", None)]
    assert sections("a.eml", b"\nA l\xf6we roars.") == [("A löwe roars.", "", None)]
    koi8 = b"Content-Type: text/html; charset=koi8-r\n\n<p>" + "Лев".encode("koi8-r")
    assert sections("a.eml", koi8) == [("Лев", "", None)]


def test_messages_of_a_box_begin_with_a_time_and_fail_alone(monkeypatch):
    times = "Mon Jan  5 10:00:00 2026", "Tue, 6 Jan 2026 10:00 +0100", "Wed Jan  7 10:00:00 +0000 2026"
    body = "\nA lion.\n\nFrom tomorrow on, and all of 2026, it sleeps.\n\n"
    box = "".join(f"From 1@x {time}\r\nSubject: {n}\r\n{body}" for n, time in enumerate(times)).encode()
    found = sections("a.mbox", box)
    assert [name for *_, name in found] == ["0", "1", "2"]
    assert all(text.endswith("A lion. From tomorrow on, and all of 2026, it sleeps.") for text, *_ in found)
    read = mail.text_of
    monkeypatch.setattr(mail, "text_of", lambda body: 1 / (body["Subject"] != "1") and read(body))
    assert [(place, name) for _, place, name in sections("a.mbox", box)] == [("message 1", "0"), ("message 3", "2")]
    monkeypatch.setattr(mail, "text_of", lambda body: 1 / 0)
    assert why_skipped("a.mbox", box) == "damaged"


LOG = "".join(f"2026-01-{n % 28 + 1:02} 10:00:00 INFO worker[{n}]: done\n" for n in range(30))


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("app.log", "Started.", "log"),
        ("server.txt", LOG, "log"),
        ("server.out", LOG, "log"),
        ("a.min.js", "var a=1", "minified"),
        ("bundle.js", "function(a){return a}; " * 500, "minified, or of long lines"),
        (
            "key.txt",
            "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVowMTIzNDU2Nzg5YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXo\n" * 9,
            "encoded data",
        ),
        ("package-lock.json", "{}", "lock file"),
        ("Cargo.lock", "version = 3", "lock file"),
        ("a_pb2.pyi", "# Generated by protoc. DO NOT EDIT!\nx: int", "generated"),
        ("a.svg", "<svg/>", "picture"),
    ],
)
def test_junk_is_recognised(name, text, reason, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(SkippedFile) as error:
        passages(tmp_path / name, tmp_path)
    assert error.value.reason == reason and name in str(error.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("chat.txt", "".join(f"[2026-01-{n % 28 + 1:02}, 10:00] Ada: Good morning!\n" for n in range(30))),
        ("one_line.txt", "A lion sleeps in the shade. " * 40_000),
        ("diary.md", "2026-01-01 An error of mine.\n" * 4),
        ("rules.md", "DO NOT EDIT the wiki.\n"),
        ("drawn.txt", "=" * 80 + "\nA title\n" + "=" * 80),
        ("chinese.txt", "狮子在树荫下睡觉" * 100),
        ("links.txt", "https://example.org/a/long/path/to/some/page/about/lions?and=owls#and-more\n" * 9),
        ("README", "A lion."),
        ("settings.toml", "[lion]\nroars = true\n"),
        ("data.yaml", "lions:\n  - name: Leo\n"),
    ],
)
def test_what_people_write_is_no_junk(name, text, tmp_path):
    (tmp_path / name).write_text(text)
    found = passages(tmp_path / name, tmp_path)
    assert "".join(text.split()) == "".join("".join(x.split()) for x, *_ in found)
    assert all(place.startswith(f"{name}:") for _, place, _ in found)


def indexed(index: search_index.Index, folder: Path) -> tuple[list[str], str]:
    """The texts that an index has of a folder, and what is said of the others."""
    files, read, skipped, _ = find_files({"folder": str(folder), "package": None})
    list(index.update(files, read))
    return [x.text for x in index.get(index.keys)], folders.skipped_in_words(skipped + index.faults())


def test_a_missing_library_is_named_with_its_installation(tmp_path, monkeypatch):
    (tmp_path / "a.pdf").write_bytes(pdf_of(["A lion."]))
    (tmp_path / "b.txt").write_text("An owl.")
    index = search_index.Index(None, use_bag_of_words(monkeypatch))
    with monkeypatch.context() as without:
        without.delitem(sys.modules, "retrieval_lion.formats.pdf", raising=False)
        without.setitem(sys.modules, "pypdfium2", None)
        _, said = indexed(index, tmp_path)
    assert said == 'Skipped 1 file: a.pdf (pip install "lion-transformers[files]").'
    read, said = indexed(index, tmp_path)  # at once, although the file has not changed
    assert said == "" and {text.strip() for text in read} == {"A lion.", "An owl."}


def test_what_is_read_before_an_error_is_searched(tmp_path, monkeypatch):
    attached = message("Report", "A lion.")
    attached.add_attachment(pdf_of(["An owl."]), maintype="application", subtype="pdf", filename="a.pdf")
    (tmp_path / "a.eml").write_bytes(bytes(attached))
    index = search_index.Index(None, use_bag_of_words(monkeypatch))
    with monkeypatch.context() as without:
        without.delitem(sys.modules, "retrieval_lion.formats.pdf", raising=False)
        without.setitem(sys.modules, "pypdfium2", None)
        read, said = indexed(index, tmp_path)
    assert "a.eml (pip install" in said and any("A lion." in text for text in read)
    read, said = indexed(index, tmp_path)
    assert said == "" and any("An owl." in text for text in read)


def test_libraries_that_mail_and_its_attachments_need(monkeypatch):
    """The rest of a message is read before the error."""
    page, attached = EmailMessage(), message("Report", "A lion.")
    page.set_content("<p>A lion.</p>", subtype="html")
    attached.add_attachment(PAGE.encode(), maintype="text", subtype="html", filename="page.html")
    monkeypatch.delitem(sys.modules, "retrieval_lion.formats.html", raising=False)
    monkeypatch.setitem(sys.modules, "lxml", None)
    box = b"From ada Mon Jan  5 10:00:00 2026\n" + bytes(page)
    for name, data, count in (("a.eml", bytes(page), 0), ("a.eml", bytes(attached), 1), ("a.mbox", box, 0)):
        found = []
        with pytest.raises(SkippedFile) as error:
            found.extend(readers.sections_of(data, name))
        assert error.value.reason == readers.INSTALL and not error.value.is_lasting
        assert len(found) == count


def test_rows_without_text_are_no_passages(tmp_path):
    """Such as vectors: lists of numbers are left out."""
    row = json.dumps({"v": [0.25] * 100}) + "\n"
    for rows in (row * 50, "null\n{}\n"):
        (tmp_path / "rows.jsonl").write_text(rows)
        with pytest.raises(SkippedFile, match="has no text"):
            passages(tmp_path / "rows.jsonl", tmp_path)
    (tmp_path / "rows.jsonl").write_text(row + '{"v": [1, 2], "text": "an owl"}\n')
    assert [text.strip() for text, *_ in passages(tmp_path / "rows.jsonl", tmp_path)] == ["v: 1, 2; text: an owl"]


def test_line_ends_of_old_macs(tmp_path):
    words = "About parrots. " * 60
    (tmp_path / "old.md").write_bytes(f"# Birds\r\r{words}\r\r## More\r\rAbout toucans.\r".encode())
    found = passages(tmp_path / "old.md", tmp_path)
    (last,) = [(place, name) for text, place, name in found if "toucans" in text]
    assert last == ("old.md:5", "Birds > More")


def test_single_surrogates_are_replaced(tmp_path):
    cell = {"cell_type": "markdown", "source": "# A \ud800 lion"}
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": [cell]}))
    assert passages(tmp_path / "a.ipynb", tmp_path) == [("# A \ufffd lion", "a.ipynb: cell 1", "A \ufffd lion")]


def test_passages_have_places_that_are_no_lines(tmp_path):
    """Long sections are split; a heading that ends as a line does is not taken for one."""
    file = tmp_path / "a.html"
    file.write_text("<h1>Chapter 1:3</h1>" + "<p>A lion sleeps in the shade of a tree.</p>" * 100)
    found = passages(file, tmp_path)
    assert len(found) > 2 and all(len(text) <= LONGEST for text, *_ in found)
    assert {(place, name) for _, place, name in found} == {("a.html: Chapter 1: 3", "Chapter 1:3")}
    (tmp_path / "menu.html").write_text("<nav>Only a menu</nav>")
    with pytest.raises(SkippedFile, match=r"menu\.html has no text"):
        passages(tmp_path / "menu.html", tmp_path)


def make(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def names(found: folders.Found, root: Path) -> list[str]:
    return [Path(file).relative_to(root).as_posix() for file in found.files]


TREE = {
    ".gitignore": "*.tmp\n/build/\n!keep.tmp\n",
    ".hidden/a.txt": "x",
    "a.txt": "x",
    "b.tmp": "x",
    "build/c.txt": "x",
    "keep.tmp": "x",
    "sub/.gitignore": "d.txt\n!e.tmp\n",
    "sub/build/f.txt": "x",
    "sub/d.txt": "x",
    "sub/e.tmp": "x",
    "sub/node_modules/g.txt": "x",
    "env/pyvenv.cfg": "x",
    "env/h.txt": "x",
}


def test_the_rules_of_gitignore(tmp_path):
    """As git reads them: those of a subfolder come before those above, and what is in an ignored folder stays so."""
    make(tmp_path, TREE)
    found = folders.files_of_folder(tmp_path)
    assert names(found, tmp_path) == ["a.txt", "keep.tmp", "sub/build/f.txt", "sub/e.tmp"]
    said = folders.skipped_in_words(found.skipped)
    assert said == "Skipped: 3 (.gitignore), 2 (installed packages), 1 (hidden)."
    make(tmp_path, {".git/config": ""})
    assert names(folders.files_of_folder(tmp_path / "sub"), tmp_path) == ["sub/build/f.txt", "sub/e.tmp"]
    make(tmp_path, {"sub/b.tmp": "x"})  # by the rules above it
    assert "sub/b.tmp" not in names(folders.files_of_folder(tmp_path / "sub"), tmp_path)
    assert names(folders.files_of_folder(tmp_path / "build"), tmp_path) == ["build/c.txt"]  # asked for


def test_rules_after_a_byte_order_mark(tmp_path):
    make(tmp_path, {".gitignore": "\ufeff*.tmp\n", "a.txt": "x", "b.tmp": "x"})
    assert names(folders.files_of_folder(tmp_path), tmp_path) == ["a.txt"]


def test_rules_that_are_no_patterns_match_nothing(tmp_path):
    make(tmp_path, {".gitignore": "build\\\n!\na[z-a]\n*.tmp\n", "a.txt": "x", "b.tmp": "x"})
    assert names(folders.files_of_folder(tmp_path), tmp_path) == ["a.txt"]
    with pytest.raises(ValueError, match="--exclude take patterns in the form of .gitignore"):
        folders.files_of_folder(tmp_path, exclude=["!"])


def test_folders_that_cannot_be_read_are_said(tmp_path, monkeypatch):
    make(tmp_path, {"a.txt": "x", "locked/b.txt": "x"})
    scan = os.scandir

    def scan_or_not(folder):
        if str(folder).endswith("locked"):
            raise PermissionError(13, "Permission denied")
        return scan(folder)

    monkeypatch.setattr(folders.os, "scandir", scan_or_not)
    found = folders.files_of_folder(tmp_path)
    assert names(found, tmp_path) == ["a.txt"]
    assert folders.skipped_in_words(found.skipped) == "Skipped: 1 (cannot be read)."


def test_include_and_exclude(tmp_path):
    make(tmp_path, TREE)
    find = lambda include=(), exclude=(): names(folders.files_of_folder(tmp_path, include, exclude), tmp_path)
    assert find(["*.txt"]) == ["a.txt", "sub/build/f.txt"]
    assert find(["*.txt", "e.tmp"], ["build/"]) == ["a.txt", "sub/e.tmp"]
    assert find(["sub/"]) == ["sub/build/f.txt", "sub/e.tmp"]
    with pytest.raises(ValueError, match="no files to search that --include and --exclude leave"):
        find(["*.xyz"])


def test_links(tmp_path):
    root = tmp_path / "root"
    make(root, {"a.txt": "x", "sub/b.txt": "x"})
    (tmp_path / "secret.txt").write_text("x")
    for link, target in (
        ("loop", "."),
        ("sub/up", root),
        ("self", "self"),
        ("out.txt", tmp_path / "secret.txt"),
        ("in.txt", "a.txt"),
    ):
        (root / link).symlink_to(target)
    os.mkfifo(root / "pipe")
    found = folders.files_of_folder(root)
    assert names(found, root) == ["a.txt", "in.txt", "sub/b.txt"]
    said = folders.skipped_in_words(found.skipped)
    assert said == "Skipped: 2 (link to a folder), 1 (broken link), 1 (link out of the folder)."


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz", "zip"])
def test_compressed_files_are_named_so(ending, tmp_path):
    data = b"A lion sleeps.\n" * 9
    packed = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zip": lambda x: zip_of({"a.txt": x})}
    (tmp_path / f"a.{ending}").write_bytes(packed[ending](data))
    with pytest.raises(SkippedFile) as error:
        documents.read_text(tmp_path / f"a.{ending}")
    assert error.value.reason == "compressed"


def test_rules_need_pathspec(tmp_path, monkeypatch):
    make(tmp_path, {"a.txt": "x"})
    monkeypatch.setitem(sys.modules, "pathspec", None)
    assert names(folders.files_of_folder(tmp_path), tmp_path) == ["a.txt"]
    with pytest.raises(ImportError, match="pip install pathspec"):
        folders.files_of_folder(tmp_path, ["*.txt"])


def test_what_was_skipped_is_counted_by_ending_and_reason():
    skipped = [(f"/x/{n}.png", "no text") for n in range(1200)] + [(f"/x/{n}.min.js", "minified") for n in range(3)]
    skipped += [
        ("/x/b.pdf", "encrypted"),
        ("/x/a.pdf", "encrypted"),
        ("/x/caf\udce9", "damaged"),
        ("/x/.git", "hidden"),
    ]
    assert folders.skipped_in_words(skipped) == (
        "Skipped 1,206 files: 1,200 .png (no text), 3 .min.js (minified), a.pdf, b.pdf (encrypted), "
        "caf\ufffd (damaged); besides 1 (hidden)."
    )
    assert folders.skipped_in_words([]) == ""


def test_a_skipped_file_is_not_opened_again(tmp_path, monkeypatch):
    make(tmp_path, {"a.txt": "A lion.", "b.log": "Started."})
    monkeypatch.setattr(search_index, "TICK", -(10**12))  # what was written just now counts as settled
    index = search_index.Index(None, use_bag_of_words(monkeypatch))
    first = indexed(index, tmp_path)
    monkeypatch.setattr(builtins, "open", lambda *args, **kwargs: pytest.fail("a file was opened"))
    assert indexed(index, tmp_path) == first == (["A lion."], "Skipped 1 file: b.log (log).")
