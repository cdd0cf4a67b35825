"""Files of each format as Markdown, and errors for those that cannot be converted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vmrag_link.conversion.converter import ConvertedFile, Converter
from vmrag_link.conversion.limits import ConversionLimits
from vmrag_link.conversion.outlines import choose_outline, find_title
from vmrag_link.documents.chunking import HeaderPaths
from vmrag_link.errors import ConversionFailed, FormatUnsupported

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def converter() -> Iterator[Converter]:
    with Converter(ConversionLimits(max_bytes=1 << 20, max_text=1 << 20)) as opened:
        yield opened


def refusal(converter: Converter, data: bytes, name: str, **given: str) -> str:
    """The reason why a file is not converted; the message begins with its name."""
    with pytest.raises(ConversionFailed) as failed:
        converter.convert(data, name=name, **given)
    assert failed.value.message == f"{name} {failed.value.details['reason']}."
    assert failed.value.hint
    return str(failed.value.details["reason"])


# -- which format it is


@pytest.mark.parametrize(
    ("name", "media_type", "file_type"),
    [
        ("a.MD", "", "markdown"),
        ("a.md", "text/plain; charset=utf-8", "markdown"),
        ("a.tsv", "application/octet-stream", "csv"),
        ("guide", "text/html", "html"),
        ("paper.pdf", "text/html; charset=utf-8", "html"),
        ("feed", "application/rss+xml", "xml"),
        ("openapi", "application/vnd.oai+json", "json"),
        ("script.py", "text/plain", "text"),
        ("a.md", "application/x-unheard-of", "markdown"),
    ],
)
def test_specific_media_type_overrides_the_file_name(
    converter: Converter, name: str, media_type: str, file_type: str
) -> None:
    data = {"xml": b"<a/>", "json": b"[]"}.get(file_type, b"text")
    assert converter.convert(data, name=name, media_type=media_type).file_type == file_type


@pytest.mark.parametrize(
    ("name", "media_type", "reason"),
    [
        ("a.exe", "", "is .exe, which cannot be converted"),
        ("picture", "image/svg+xml", "is image/svg+xml, which cannot be converted"),
        ("Makefile", "", "has no file type"),
        ("x", "text/\x1b[2J", "is text/\\x1b[2j, which cannot be converted"),
    ],
)
def test_convert_rejects_unsupported_formats(converter: Converter, name: str, media_type: str, reason: str) -> None:
    with pytest.raises(FormatUnsupported) as refused:
        converter.convert(b"x", name=name, media_type=media_type)
    assert refused.value.message == f"{name} {reason}."
    assert "markdown" in refused.value.hint


# -- which encoding it has


@pytest.mark.parametrize(
    ("data", "name", "charset", "text"),
    [
        ("caf\u00e9".encode(), "a.txt", "", "caf\u00e9"),
        (b"\xef\xbb\xbfcaf\xc3\xa9", "a.txt", "iso-8859-1", "caf\u00e9"),
        (b"\x93caf\xe9\x94", "a.txt", "ISO-8859-1", "\u201ccaf\u00e9\u201d"),
        ("caf\u00e9".encode("utf-16"), "a.txt", "utf-16", "caf\u00e9"),
        ("\u65e5\u672c".encode("shift_jis"), "a.txt", "Shift_JIS", "\u65e5\u672c"),
        (b"<meta charset='windows-1251'><p>\xcf\xf0\xe8", "a.html", "", "\u041f\u0440\u0438"),
        ("<meta charset=iso-8859-1><p>caf\u00e9".encode(), "a.html", "", "caf\u00e9"),
        ("a\tb\n1\t\u00e9".encode("utf-16"), "a.csv", "", "a: 1\nb: \u00e9"),
    ],
)
def test_texts_are_read_in_the_encoding_that_they_have(
    converter: Converter, data: bytes, name: str, charset: str, text: str
) -> None:
    assert converter.convert(data, name=name, charset=charset).text == text


@pytest.mark.parametrize(
    ("data", "name", "charset", "reason"),
    [
        (b"caf\xe9", "a.txt", "", "is not UTF-8 (byte 3)"),
        (b"caf\xe9", "a.html", "utf-8", "is not utf-8 (byte 3)"),
        (b"<meta charset=punycode>\xe9", "a.html", "", "is not UTF-8 (byte 23)"),
        (b"x", "a.txt", "unicode_escape", "has the unknown encoding 'unicode_escape'"),
        (b"a\0b", "a.adoc", "", "contains NUL bytes"),
        (b"a\0b", "a.txt", "utf-8", "contains NUL characters"),
        (b"PK\x03\x04\x14\0\x06\0", "a.csv", "", "contains NUL bytes"),
        (b"x" * (1 << 20) + b"x", "a.txt", "", "is larger than 1 MiB"),
    ],
)
def test_convert_rejects_invalid_text_with_the_reason(
    converter: Converter, data: bytes, name: str, charset: str, reason: str
) -> None:
    assert refusal(converter, data, name, charset=charset) == reason


# -- formats that are stored as they are written


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("= The Guide\nAuthor <a@example.org>\n:toc:\n\ntext", "The Guide"),
        ("// comment\n:icons: font\n= The Guide", "The Guide"),
        ("////\n= No\n////\n\n== Yes", "Yes"),
        ("----\n= No\n----\n\n# Yes", "Yes"),
        ("The Guide\n=========\n\ntext", "The Guide"),
        ("[#here]\nThe Guide\n--------", "The Guide"),
        ("some text\nanother line\n------------\nno\n------------", ""),
        ("listing:\n----\n= No\n----", ""),
        ("text\n\n```ruby\n# No\n```\n\n== Yes", "Yes"),
        ("text\n\n```c++,linenums\n# No\n```\n\n== Yes", "Yes"),
        ("=no title", ""),
        ("", ""),
    ],
)
def test_title_of_asciidoc_is_its_first_heading(text: str, title: str) -> None:
    assert find_title(text, "asciidoc") == title


def test_asciidoc_and_mdx_keep_their_text_and_lose_their_front_matter(converter: Converter) -> None:
    asciidoc = "= Guide\n\n[source,java]\n----\nint x = 1;  // <1>\n----\n"
    assert converter.convert(f"---\ntags: a\n---\n{asciidoc}".encode(), name="x.adoc") == ConvertedFile(
        asciidoc, "Guide", "asciidoc", {"tags": "a"}
    )
    mdx = 'import Tabs from "@theme/Tabs";\n\n# Guide {#guide}\n\n<Tabs>\n  # no\n</Tabs>\n'
    assert converter.convert(mdx.encode(), name="x.mdx") == ConvertedFile(mdx, "Guide {#guide}", "mdx", {})
    assert converter.convert(b"---\ntitle: Stated\n---\n# T\n", name="x.mdx").title == "Stated"


def test_every_own_document_is_stored_unchanged(converter: Converter) -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    assert len(pages) > 10
    for page in pages:
        converted = converter.convert(page.read_bytes(), name=page.name)
        heading = page.read_text().partition("\n")[0]
        assert (converted.text, f"# {converted.title}", converted.metadata) == (page.read_text(), heading, {})


# -- data


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("name,age\nBob,3\nAl,4\n", "name: Bob\nage: 3\n\nname: Al\nage: 4"),
        ('name;note\r\nBob;"a, b\r\nc"\r\n', "name: Bob\nnote: a, b\r\nc"),
        ("a\tb\n1,5\t2\n", "a: 1,5\nb: 2"),
        (",a,a\n0,x,y,z\n", "column 1: 0\na: x\na: y\ncolumn 4: z"),
        ("a,b\n,\n\n1,\n", "a: 1"),
        ("a,b", "a, b"),
        ('a,b\n"x""y",  2 \n', 'a: x"y\nb:   2 '),
        ("", ""),
    ],
)
def test_each_row_of_a_table_is_a_paragraph_of_named_values(converter: Converter, data: str, text: str) -> None:
    assert converter.convert(data.encode(), name="x.csv") == ConvertedFile(text, "", "csv", {})


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ('{"a": 1.10, "b": 12345678901234567890123, "a": "x\\ny"}', "a: 1.10\nb: 12345678901234567890123\na: x\ny"),
        ('{"x": {"y": null, "z": [1, true, "t"]}, "w": {}}', "x.y: null\nx.z: 1, true, t\n\nw: {}"),
        ('[{"id": 1, "in": {"k": "v"}}, {"id": 2, "l": []}]', "id: 1\nin.k: v\n\nid: 2\nl: []"),
        ('{"items": [{"n": 1}, {"n": 2}]}', "items.n: 1\n\nitems.n: 2"),
        ("[[1, 2], [3]]", "1, 2\n3"),
        ('"half \\ud83d and \\u0000"', "half \ufffd and \ufffd"),
        ('{"": 1, "two\\nlines": 2}', '"": 1\ntwo lines: 2'),
        ("\ufeff[]", "[]"),
    ],
)
def test_each_value_of_json_is_a_line_with_its_path(converter: Converter, data: str, text: str) -> None:
    assert converter.convert(data.encode(), name="x.json").text == text


def test_json_of_one_meaning_gives_one_text_and_its_title(converter: Converter) -> None:
    value = {"title": " The  API ", "paths": {"/users": {"get": {"summary": "List users"}}}}
    compact, spread = (json.dumps(value, indent=indent).encode() for indent in (None, 4))
    converted = converter.convert(compact, name="x.json")
    assert converted == converter.convert(spread, name="x.json")
    assert converted.title == "The API"
    assert "paths./users.get.summary: List users" in converted.text


def test_each_line_of_json_lines_is_a_paragraph(converter: Converter) -> None:
    assert converter.convert(b'{"a": 1}\n\n{"a": 2}\r\n', name="x.jsonl").text == "a: 1\n\na: 2"
    assert refusal(converter, b'{"a": 1}\n{"a": 2\n', "x.jsonl").startswith("line 2: is not JSON")


def test_xml_is_its_texts_and_attributes_with_their_paths(converter: Converter) -> None:
    feed = """<?xml version="1.0" encoding="iso-8859-1"?>
    <rss version="2"><channel><title>News</title>
      <item id="1"><title>caf\u00e9</title><text>Use <b>this</b> &amp; <code>that</code>.</text></item>
      <item id="2"><title>B</title><code>
          if x:
              y
      </code><done/></item>
    </channel></rss>"""
    assert converter.convert(feed.encode("iso-8859-1"), name="feed.xml") == ConvertedFile(
        "rss@version: 2\nrss.channel.title: News\nrss.channel.item@id: 1\nrss.channel.item.title: caf\u00e9\n"
        "rss.channel.item.text: Use this & that.\n\n"
        "rss.channel.item@id: 2\nrss.channel.item.title: B\nrss.channel.item.code: if x:\n    y\nrss.channel.item.done",
        "News",
        "xml",
        {},
    )


def notebook(*cells: dict[str, Any], **metadata: Any) -> bytes:
    return json.dumps({"nbformat": 4, "cells": cells, "metadata": metadata}).encode()


def test_notebook_has_its_cells_and_outputs(converter: Converter) -> None:
    picture = "data:image/png;base64,iVBORw0KGgo="
    data = notebook(
        {"cell_type": "raw", "source": "---\nauthor: me\n---"},
        {"cell_type": "markdown", "source": ["# Analysis\n", f"A ![chart]({picture})."], "attachments": {"x": 1}},
        {
            "cell_type": "code",
            "source": "print('```')",
            "outputs": [
                {"output_type": "stream", "name": "stdout", "text": ["\x1b[31m```\x1b[0m\n"]},
                {"output_type": "display_data", "data": {"image/png": "iVBORw0KGgo="}},
                {"output_type": "execute_result", "data": {"text/html": "<p>", "text/plain": ["   a\n", "0  1"]}},
                {"output_type": "display_data", "data": {"text/markdown": "**bold**", "text/plain": "<Markdown>"}},
                {"output_type": "error", "ename": "E", "evalue": "v", "traceback": []},
            ],
        },
        language_info={"name": "python"},
    )
    assert converter.convert(data, name="x.ipynb") == ConvertedFile(
        "\n# Analysis\nA ![chart]().\n\n````python\nprint('```')\n````\n\n````\n```\n````\n\n"
        "```\n   a\n0  1\n```\n\n**bold**\n\n```\nE: v\n```",
        "Analysis",
        "notebook",
        {"author": "me"},
    )


def test_notebook_that_states_a_title_has_that_within_reason(converter: Converter) -> None:
    cell = {"cell_type": "markdown", "source": "# Heading"}
    assert converter.convert(notebook(cell, title=" The \n title"), name="x.ipynb").title == "The title"
    assert converter.convert(notebook(cell, title="x" * 5000), name="x.ipynb").title == "x" * 1000


def test_notebook_of_format_3_is_read(converter: Converter) -> None:
    cells = [
        {"cell_type": "heading", "level": 2, "source": ["Old"]},
        {"cell_type": "code", "input": "1", "outputs": [{"output_type": "pyout", "text": "1"}]},
    ]
    data = json.dumps({"worksheets": [{"cells": cells}]}).encode()
    converted = converter.convert(data, name="x.ipynb")
    assert (converted.title, converted.text) == ("Old", "## Old\n\n```\n1\n```\n\n```\n1\n```")


@pytest.mark.parametrize(
    ("data", "name", "reason"),
    [
        (b"{'a': 1}", "x.json", "is not JSON (Expecting property name"),
        (b"", "x.json", "is not JSON"),
        (b'{"a": 1} x', "x.json", "is not JSON"),
        (b"<a><b></a>", "x.xml", "is not valid XML (mismatched tag"),
        (b"", "x.xml", "is not valid XML (no element found"),
        (b"[]", "x.ipynb", "is not a notebook (it has no cells)"),
        (b"x", "x.ipynb", "is not a notebook ("),
    ],
)
def test_file_with_a_false_type_is_rejected(converter: Converter, data: bytes, name: str, reason: str) -> None:
    assert refusal(converter, data, name).startswith(reason)


@pytest.mark.parametrize(
    ("data", "name", "reason"),
    [
        (b"[" * 100_000 + b"]" * 100_000, "x.json", "nests deeper than 200 levels"),
        (b'{"a":' * 300 + b"1" + b"}" * 300, "x.json", "nests deeper than 200 levels"),
        (b"<a>" * 300 + b"</a>" * 300, "x.xml", "nests deeper than 200 levels"),
        (b"[" * 100_000, "x.ipynb", "is not a notebook"),
        (
            b'{"' + b"k" * 500_000 + b'": [' + b"{},[1]," * 10 + b"0]}",
            "x.json",
            "would become a text of more than 1 MiB",
        ),
        (b"x" * 100_000 + b",y\n" + b"1,2\n" * 100, "x.csv", "would become a text of more than 1 MiB"),
        (b'<!DOCTYPE a [<!ENTITY x "ha">]><a>&x;</a>', "x.xml", "declares entities, which are not supported"),
    ],
)
def test_bomb_ends_in_an_error_for_that_file(converter: Converter, data: bytes, name: str, reason: str) -> None:
    assert refusal(converter, data, name).startswith(reason)
    assert converter.convert(b"[1]", name="next.json").text == "1"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("<div>" * 100_000, "takes more than 1 seconds of computing to be converted"),
        ("".join(f"<p><b a{number}></p>" for number in range(5000)), "needs more than 256 MiB of memory"),
    ],
)
@pytest.mark.sample(1)
def test_page_that_nests_without_end_is_an_error_for_that_page(source: str, reason: str) -> None:
    with Converter(ConversionLimits(max_cpu_seconds=1, max_memory=256 << 20)) as converter:
        assert refusal(converter, source.encode(), "x.html").startswith(reason)
        assert converter.convert(b"<p>next", name="next.html").text == "next"


def test_entity_of_another_file_is_not_read(converter: Converter) -> None:
    data = b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><a>&x; text</a>'
    assert converter.convert(data, name="x.xml").text == "a: &x; text"


# -- pages

HTML = """<!doctype html><html><head><title> The
 Title </title><style>p {}</style></head><body>
<script>var x = "no";</script>
<h1>Head<em>ing</em></h1>
<p>One <b>bold</b>
word.<br>Next line</p><!-- no -->
<ul><li>first</li> <li>second <i>item</i></li></ul>
<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>
<pre>
def f():
    return 1
</pre>last &amp; least</body></html>"""


def test_html_becomes_the_text_that_a_reader_sees(converter: Converter) -> None:
    converted = converter.convert(HTML.encode(), name="x.html")
    assert converted.title == "The Title"
    assert converted.text == (
        "# Heading\n\nOne bold word.\nNext line\n\nfirst\nsecond item\n\na\tb\n1\t2\n\n```\ndef f():\n    return 1\n```\n\nlast & least"
    )


@pytest.mark.parametrize(
    ("source", "title", "text"),
    [
        ("<h1>Head <em>ing</em></h1>text", "Head ing", "# Head ing\n\ntext"),
        ("<title> </title><p>text", "", "text"),
        ("<title>The <b> element</title>", "The <b> element", ""),
        ("<h2></h2><h3>a<br>b</h3><pre></pre><pre> ```<b>x</b></pre>", "", "### a\nb\n\n````\n ```x\n````"),
        ("<pre><pre>a</pre>b</pre>c<h4><p>d", "", "```\na\n\nb\n```\n\nc\n\nd"),
        ("", "", ""),
        ("plain", "", "plain"),
        ("<div>" * 2000 + "deep" + "</div>" * 2000 + "<p>after", "", "deep\n\nafter"),
        ("<p><font size=2>a" * 2000 + "<p>b", "", "\n\n".join(["a"] * 2000 + ["b"])),
    ],
)
def test_page_is_read_however_it_is_written(converter: Converter, source: str, title: str, text: str) -> None:
    converted = converter.convert(source.encode(), name="x.html")
    assert (converted.title, converted.text) == (title, text)


def test_page_in_html_has_the_sections_of_its_headings(converter: Converter) -> None:
    page = "<h1>Pump</h1><p>Water.<h2 id=v>Valve <i>Limits</i></h2><pre># no heading\n<b>ls</b></pre><p>Nine bar."
    text = converter.convert(page.encode(), name="pump.html").text
    paths = HeaderPaths(text, choose_outline("pump.html"))
    assert [paths.find_path(text.index(words)) for words in ("Water", "no heading", "Nine")] == [
        "Pump",
        "Pump > Valve Limits",
        "Pump > Valve Limits",
    ]


def test_long_page_out_of_order_is_read(converter: Converter) -> None:
    untidy = "<p>one <b>two <i>three</b> four</i><li>five<div>six</p></div><br><img src=x><td>seven"
    table = f"<table>{'<tr><td>a<td>b' * 3000}</table>"
    source = f"<body>{untidy * 300}{table}<p>end <code>&lt;b&gt;</code>"
    text = converter.convert(source.encode(), name="x.html").text
    assert text.startswith("one two three four\n\nfive\nsix\n\nseven\n\none")
    assert text.endswith("end <b>")
