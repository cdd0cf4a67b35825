"""The header row above a row of a table, in every format that has tables."""

from __future__ import annotations

import time

import pytest

from vmrag_link.conversion.outlines import choose_outline
from vmrag_link.documents.chunking import split_text
from vmrag_link.documents.table_headers import TableHeaders
from vmrag_link.models import Chunking

PIPED = "| name | unit |\n|:---|---:|\n| rotor | kPa |\n"
TABLES = {
    "pipes.md": (f"Words.\n\n{PIPED}\nend of it\n", "| name | unit |"),
    "bare.md": ("name | unit\n--- | ---\nrotor | kPa\n\nend of it\n", "name | unit"),
    "html.mdx": (
        "<table>\n<thead>\n<tr>\n  <th id=n>name</th>\n  <th><b>unit</b></th>\n</tr>\n</thead>\n<tr><td>rotor</td></tr>\n</table>\n\nend of it\n",
        "name | unit",
    ),
    "page.html": ("Words.\n\nname\tunit\nrotor\tkPa\nvalve\tbar\n\nend of it", "name | unit"),
    "table.org": (
        "|------+------|\n| name | unit |\n|------+------|\n| rotor | kPa |\n\nend of it\n",
        "| name | unit |",
    ),
    "grid.rst": (
        "+-------+------+\n| name  | unit |\n+=======+======+\n| rotor | kPa  |\n+-------+------+\n\nend of it\n",
        "| name | unit |",
    ),
    "simple.rst": ("=====  ====\nname   unit\n=====  ====\nrotor  kPa\n=====  ====\n\nend of it\n", "name unit"),
    "list.rst": (
        ".. list-table:: Limits\n   :header-rows: 1\n\n   * - name\n     - unit\n   * - rotor\n     - kPa\n\nend of it\n",
        "name | unit",
    ),
    "csv.rst": (
        '.. csv-table:: Limits\n   :header: "name", "unit"\n\n   "rotor", "kPa"\n\nend of it\n',
        '"name", "unit"',
    ),
    "implicit.adoc": ("|===\n|name |unit\n\n|rotor\n|kPa\n|===\n\nend of it\n", "|name |unit"),
    "stated.adoc": ('[%header,cols="1,1"]\n|===\n|name |unit\n|rotor |kPa\n|===\n\nend of it\n', "|name |unit"),
    "table.mediawiki": (
        '{| class="wikitable"\n|+ Limits\n|-\n! scope="col" | name !! unit\n|-\n| rotor || kPa\n|}\n\nend of it\n',
        "name | unit",
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_have_their_own_headers(name):
    text, header = TABLES[name]
    first = text.partition("end of it\n")[0]
    other = first.replace("name", "part").replace("unit", "mass").replace("rotor", "shaft")
    headers = TableHeaders(f"{first}\nbetween tables\n\nmore\n\n{other}", choose_outline(name))
    assert headers.find_header(first.index("rotor")) == header
    after = len(f"{first}\nbetween tables\n\nmore\n\n")
    assert headers.find_header(after - len("more\n\n")) == ""
    assert headers.find_header(after + other.index("shaft")) == header.replace("name", "part").replace("unit", "mass")


def test_table_without_a_header_gives_none_to_the_text_behind_it():
    bare, table = "===  ===\none  two\n===  ===\n", TABLES["simple.rst"][0]
    headers = TableHeaders(text := f"{bare}\nbetween\n\n{table}", "rst")
    assert headers.find_header(text.index("between")) == ""
    assert headers.find_header(text.index("rotor")) == "name unit"


@pytest.mark.parametrize("name", TABLES)
def test_row_has_the_header_of_its_table(name):
    text, header = TABLES[name]
    headers = TableHeaders(text, choose_outline(name))
    assert headers.find_header(text.index("rotor")) == header
    assert headers.find_header(text.index("name")) == ""
    assert headers.find_header(text.index("end of it")) == ""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("fence.md", f"```\n{PIPED}```\n"),
        ("rule.md", "a | b\n\n---|---\nrotor\n"),
        ("layout.md", "<table><tr><td>name</td></tr>\n<tr><td>rotor</td></tr></table>\n"),
        ("grid.rst", "+---+\n| n |\n+---+\n| rotor |\n+---+\n"),
        ("two.rst", "=== ===\nrotor x\n=== ===\n"),
        ("rows.adoc", "|===\n\n|rotor\n|===\n"),
        ("list.rst", ".. list-table::\n\n   * - rotor\n   * - kPa\n"),
    ],
)
def test_row_of_table_without_header_has_none(name, text):
    assert TableHeaders(text, choose_outline(name)).find_header(text.index("rotor")) == ""


def test_long_table_is_cut_between_its_rows():
    rows = "".join(f"| rotor_{number} | A sentence. Another one. | {number} |\n" for number in range(200))
    text = f"# Limits\n\n| name | about | kPa |\n|---|---|---|\n{rows}\nend of it\n"
    pieces = split_text(text, Chunking("headings", 1000, 0))
    assert "".join(piece.text for piece in pieces) == text
    assert len(pieces) > 8
    assert all(piece.text.startswith("| rotor_") for piece in pieces[1:-1])
    headers = TableHeaders(text)
    assert {headers.find_header(piece.start) for piece in pieces[1:-1]} == {"| name | about | kPa |"}


@pytest.mark.parametrize(
    "unit",
    ["<table>\n", "<table><tr>\n</table>\n", "|===\n", "|===\n|a\n", "{|\n", "{|\n|}\n", "+--+\n", "+--+\n| a |\n", "== ==\n", "== ==\na\n",
     "a|b\n-|-\n", ".. list-table::\n", ".. list-table::\n   * - a\n", "<table>" + "\n" * 4000 + "</table>\n", "<th" * 50 + "\n"],
)  # fmt: skip
@pytest.mark.parametrize("outline", ["markdown", "rst", "asciidoc", "mediawiki", "org"])
@pytest.mark.sample(15)
def test_headers_take_linear_time(unit, outline):
    text = (unit * (60_000 // len(unit) + 1))[:60_000]
    start = time.process_time()
    TableHeaders(text, outline)
    assert time.process_time() - start < 2
