"""The sections of every format of text: `tests/data/formats` has one file of each."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

from vmrag_link.conversion.outlines import choose_outline, find_title, list_lines
from vmrag_link.documents.chunking import HeaderPaths, join_chunks, read_header_paths, split_document, split_text
from vmrag_link.models import Chunking, Document, content_hash, encode_canonical_json
from vmrag_link.settings import SourceSettings
from vmrag_link.sources.documents import CHUNKING, build_document
from vmrag_link.sources.listings import TreeFile
from vmrag_link.sources.readable import convert_blob

FORMATS = Path(__file__).parents[1] / "data/formats"
SOURCE = SourceSettings("docs", ("**",))

WATER, VALVE, LEVER, DRAIN = "The pump moves water", "nine bar", "the lever twice", "Empty the tank in winter"

SECTIONS = {
    "pump.rst": {WATER: "Pump", VALVE: "Pump > Valve Limits", LEVER: "Pump > Valve Limits > The reset Lever", DRAIN: "Pump > Drain"},
    "pump.adoc": {WATER: "Pump", VALVE: "Pump > Valve Limits", LEVER: "Pump > Valve Limits > Reset Lever", DRAIN: "Pump > Drain"},
    "pump.org": {WATER: "Pump", VALVE: "Pump > Valve Limits", LEVER: "Pump > Valve Limits > The Reset Lever", DRAIN: "Pump > Drain"},
    "pump.mediawiki": {WATER: "Pump", VALVE: "Pump > Valve Limits", LEVER: "Pump > Valve Limits > Reset Lever", DRAIN: "Pump > Drain"},
    "pump.textile": {WATER: "Pump", VALVE: "Pump > Valve Limits", LEVER: "Pump > Valve Limits > Reset Lever", DRAIN: "Pump > Drain"},
    "pump.1": {"moves water": "PUMP(1) > NAME", VALVE: "PUMP(1) > VALVE LIMITS", LEVER: "PUMP(1) > VALVE LIMITS > Reset Lever", DRAIN: "PUMP(1) > DRAIN"},
    "pumpd.8": {"moves water": "PUMPD(8) > NAME", VALVE: "PUMPD(8) > VALVE LIMITS", LEVER: "PUMPD(8) > VALVE LIMITS", DRAIN: "PUMPD(8) > VALVE LIMITS > Winter"},
    "pump.txt": {
        WATER: "Move water from Vim > INTRODUCTION",
        VALVE: "Move water from Vim > VALVE LIMITS",
        LEVER: "Move water from Vim > VALVE LIMITS > Reset Lever",
        DRAIN: "Move water from Vim > VALVE LIMITS > Reset Lever > :PumpDrain",
    },
    "plain.txt": {WATER: "", VALVE: "Valve Limits", "of a configuration": "Valve Limits", DRAIN: "Drain"},
    "pump.md": {WATER: "Water Pump", VALVE: "Valve Limits", LEVER: "Valve Limits > The Reset Lever", DRAIN: "Drain"},
    "pump.mdx": {WATER: "Water Pump", VALVE: "Valve Limits", LEVER: "Valve Limits > Reset Lever"},
    "pump.pod": {WATER: "PUMP", VALVE: "PUMP > Valve Limits", LEVER: "PUMP > Valve Limits"},
    "pump.rdoc": {WATER: "Pump", VALVE: "Pump > Valve Limits"},
    "pump.creole": {WATER: "Pump", VALVE: "Pump > Valve Limits"},
    "pump.texi": {WATER: "Pump > Water", VALVE: "Pump > Water > Valve Limits"},
    "pump.tex": {WATER: "Pump > Water", VALVE: "Pump > Water > Valve Limits"},
    "openapi.yaml": {
        "readValve": "paths > /valves/{id} > get",
        "moveValve": "paths > /valves/{id} > put",
        "drainTank": "paths > /drain > post",
        LEVER: "components > schemas > Lever",
        "/no/heading": "info",
    },
    "settings.yaml": {"opens_at": "valve", "twice": "lever", "never": "lever", "in winter": "drain"},
    "pump.ipynb": {WATER: "Pump", "print": "Pump", VALVE: "Pump > Valve Limits"},
}  # fmt: skip


def read(name: str) -> Document:
    data = (FORMATS / name).read_bytes()
    file = TreeFile(name, "", len(data))
    document = build_document(SOURCE, file, convert_blob(file, data))
    assert isinstance(document, Document)
    return document


@pytest.mark.parametrize("name", SECTIONS)
def test_section_is_right_in_every_format(name):
    document = read(name)
    paths = read_header_paths(document)
    shown = {words: paths.find_path(document.content.index(words)) for words in SECTIONS[name]}
    assert shown == SECTIONS[name]


@pytest.mark.parametrize("name", SECTIONS)
def test_chunk_has_one_section_in_every_format(name):
    document = read(name)
    pieces = split_document(document, CHUNKING["document"])
    assert "".join(piece.text for piece in pieces) == document.content
    for words, section in SECTIONS[name].items():
        (piece,) = (piece for piece in pieces if words in piece.text)
        others = [other for place, other in SECTIONS[name].items() if place in piece.text]
        assert all(f"{other} > ".startswith(f"{min(others)} > ") for other in others), words
        assert section in others


def test_every_file_of_the_formats_has_its_sections():
    assert {path.name for path in FORMATS.iterdir()} == SECTIONS.keys()


def test_operation_is_one_chunk():
    document = read("openapi.yaml")
    pieces = [piece.text for piece in split_document(document, CHUNKING["document"])]
    assert [piece.split()[0] for piece in pieces] == ["openapi:", "paths:", "put:", '"/drain":', "components:"]
    long = document.content.replace("Open a valve", "Open a valve " * 300)
    (put,) = (piece.text for piece in split_text(long, CHUNKING["document"], "yaml") if "moveValve" in piece.text)
    assert put.lstrip().startswith("put:")
    assert put.endswith("nine bar.\n")


def test_section_of_text_without_headings_is_its_title():
    def section(text: str, metadata: str = "{}", name: str = "a.md") -> str:
        return read_header_paths(Document("docs", name, "", text, content_hash(text), metadata)).find_path(0)

    assert section("Words.\n\n# Guide\n") == "Guide"
    assert section("Words.\n\n# One\n\n# Two\n") == ""
    assert section("Words.\n\n# Guide\n", encode_canonical_json({"title": "Front  page"})) == "Front page"
    assert section("Words.\n", encode_canonical_json({"title": 3})) == ""
    assert section("# no heading\n", name="a.json") == ""


def test_passage_that_begins_with_headings_has_the_section_of_its_text():
    text = "# A\n\n## B\n\n### C\nWords.\n\n## D\n"
    paths = HeaderPaths(text)
    assert [paths.find_passage_path(text.index(sign)) for sign in ("# A", "## B", "### C", "Words", "## D")] == [
        "A > B > C",
        "A > B > C",
        "A > B > C",
        "A > B > C",
        "A > D",
    ]
    assert paths.find_path(0) == "A"


@pytest.mark.parametrize(
    ("name", "outline"),
    [("a/b.MD", "markdown"), ("notes/today", "markdown"), ("x.rst", "rst"), ("git.1", "man"), ("a.md.erb", "markdown"),
     ("a.rst.hbs", "rst"), ("conf.adoc.in", "asciidoc"), ("api.yml", "yaml"), ("t.csv", "none")],
)  # fmt: skip
def test_outline_follows_the_name(name, outline):
    assert choose_outline(name) == outline


@pytest.mark.parametrize(
    ("name", "title"),
    [("openapi.yaml", "Pump API"), ("pump.org", "Pump"), ("pump.1", "PUMP(1)"), ("pump.md", "Water Pump"), ("settings.yaml", "settings")],
)  # fmt: skip
def test_title_comes_from_the_outline(name, title):
    assert read(name).title == title


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        ("Title\n=====\n\ntext\n", ["Title"]),
        ("text\nTitle\n=====\n", []),
        ("- item\n---\n", []),
        ("| a |\n---\n", []),
        ("---\na: b\n---\n\n# T\n", ["T"]),
        ("<pre>\n# in\n", ["in"]),
        ("<pre># in</pre>\n# T\n", ["T"]),
        ("<h2>\n  Long\n  title\n</h2>\n", ["Long title"]),
        ("# T {.class #id}\n", ["T"]),
        ("# `a` <b>c</b> ![i](u)\n", ["`a` c i"]),
        ("### `<Page>` <sup>new</sup>\n", ["`<Page>` new"]),
        ("    # code\n", []),
    ],
)
def test_markdown_has_these_headings(text, titles):
    assert [line.title for line in list_lines(text, "markdown") if line.level] == titles
    assert find_title(text, "markdown") == (titles or [""])[0]


HOSTILE = {
    "html comments": "<!--\n",
    "pre": "<pre>\n",
    "headings in HTML": "<h1" + " " * 280 + "\n",
    "closing tags": "<h1>" + "</h2>" * 50 + "\n",
    "brackets": "# " + "[" * 280 + "\n",
    "links": "# " + "[a](" * 70 + "\n",
    "signs": "# " + " #" * 140 + "x\n",
    "blanks": "=a" + " " * 280 + "b\n",
    "stars": "* a" + " " * 290 + "b\n",
    "tags of Org": "* " + ":a" * 140 + " \n",
    "blocks of Org": "".join(f"#+begin_{number}\n" for number in range(2000)),
    "quotes": ".SH " + '"' * 280 + "\n",
    "roles": ":a:`" * 70 + "\n" + "=" * 290 + "\n",
    "rules": "".join("-" * number + "\nx\n" for number in range(4, 600)),
    "tags of Vim": "a" + " *b*" * 70 + " x\n",
    "keys": "a:" * 140 + "\n",
    "anchors": "a: " + "&a " * 90 + "|x\n",
    "aliases": "a: &x [*x,*x,*x]\n",
    "depth": "".join(" " * number + "a:\n" for number in range(900)),
    "tables of wikis": "{|\n",
    "one line": "x" * 40_000,
}


@pytest.mark.parametrize("outline", ["markdown", "mdx", "rst", "asciidoc", "org", "mediawiki", "textile", "man", "creole", "text", "yaml", "latex", "texinfo"])  # fmt: skip
def test_outline_takes_linear_time(outline):
    start = time.process_time()
    for unit in HOSTILE.values():
        text = ("*a.txt*\n" * (outline == "text") + unit * (40_000 // len(unit) + 1))[:40_000]
        lines = list(list_lines(text, outline))
        assert all(one.end == two.start for one, two in itertools.pairwise(lines))
        assert lines[-1].end == len(text)
    assert time.process_time() - start < 10


def test_yaml_of_ten_megabytes_is_cut_in_a_moment():
    text = "openapi: 3.0.0\npaths:\n" + "".join(
        f"  /p{number}:\n    get:\n      summary: &a{number} {'x' * 400}\n      again: *a{number}\n"
        for number in range(20_000)
    )
    start = time.process_time()
    pieces = split_text(text, Chunking("headings", 1000, 0), "yaml")
    assert len(pieces) == 20_000
    assert join_chunks([piece.text for piece in pieces], Chunking("headings", 1000, 0)) == text
    assert time.process_time() - start < 20


@pytest.mark.parametrize(("outline", "begin", "end"), [("markdown", "<h2>\n", "\n</h2>\n"), ("man", ".SH\n", "\n")])
def test_title_is_not_a_page(outline, begin, end):
    text = f"{begin}{'word ' * 100_000}{end}Text.\n"
    assert HeaderPaths(text, outline).find_path(len(text) - 1) == ""
    assert HeaderPaths(f"{begin}Words{end}Text.\n", outline).find_path(20) == "Words"
