"""Titles, front matter and HTML."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from vmrag_link.documents.reading import markdown_title, page, rst_title


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("# Plain title\n\ntext", "Plain title"),
        ("\n  \n## Second level ##\n", "Second level"),
        ("#   Many   spaces  \n", "Many spaces"),
        ("text first\n\n# Later\n", "Later"),
        ("```\n# in a fence\n```\n# Real\n", "Real"),
        ("~~~sh\n# never closed\n", ""),
        ("    # indented code\n\n# Real", "Real"),
        ("> # quoted\n\n- # listed\n\n# Real", "Real"),
        ("Underlined\n==========\n", "Underlined"),
        ("Two lines\nunderlined\n---\n", "Two lines underlined"),
        ("---\n\ntext\n", ""),
        ("# The `code` and *stress* of [a link](http://x.y)\n", "The code and stress of a link"),
        ("# A [reference]\n\n[reference]: http://x.y\n", "A reference"),
        ("# ![logo](x.png) Name <b>bold</b> &amp; more\n", "logo Name bold & more"),
        ("#\n\n# Named\n", "Named"),
        ("#hashtag\n\ntext", ""),
        ("# C#\n", "C#"),
        ("old\r\r# Mac\r", "Mac"),
        ("<div>\n# in html\n</div>\n\n# Real", "Real"),
        ("", ""),
    ],
)
def test_the_title_is_the_first_heading_that_stands_by_itself(text: str, title: str) -> None:
    assert markdown_title(text) == title


@given(
    st.lists(
        st.sampled_from(["# A", "## B b #", "```", "text", "", "===", "---", "    # c", "> # q", "* # l", " # D", "`"])
    )
)
def test_the_short_cuts_agree_with_the_parser(lines: list[str]) -> None:
    text = "\n".join(lines)
    tokens = MarkdownIt("commonmark").parse(text)
    headings = [
        tokens[at + 1].children or []
        for at, token in enumerate(tokens)
        if token.type == "heading_open" and not token.level
    ]
    titles = [" ".join("".join(span.content or " " for span in spans).split()) for spans in headings]
    assert markdown_title(text) == next(filter(None, titles), "")


def test_a_heading_far_down_is_found_and_a_large_file_does_not_wait() -> None:
    text = (
        "```\n# no\n```\n"
        + "A line of text - with words.\n\n" * 5_000
        + "# Far\n"
        + "more text\n\n" * 200_000
        + "# Further\n"
    )
    start = time.process_time()
    assert markdown_title(text) == "Far"
    assert time.process_time() - start < 5


def test_a_plain_heading_on_top_needs_no_parser() -> None:
    program = (
        "import sys; from vmrag_link.documents.reading import page\n"
        "page('# Title\\n', 'markdown'); page('no heading', 'markdown'); page('T\\n=', 'rst'); page('t', 'text')\n"
        "print(sorted({'markdown_it', 'yaml'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Title\n=====\n\ntext", "Title"),
        ("=======\n Title\n=======\n", "Title"),
        (".. _label:\n\nTitle\n~~~~~\n", "Title"),
        ("text before\n\nTitle\r\n-----\r\n", "Title"),
        ("Too short\n===\n", ""),
        ("    Indented\n    ========\n", ""),
        ("paragraph\nof lines\n--------\n", ""),
        ("text\n\n----\n\ntext", ""),
        ("", ""),
    ],
)
def test_the_title_of_restructuredtext_is_its_first_ruled_line(text: str, title: str) -> None:
    assert rst_title(text) == title


def test_front_matter_becomes_metadata_and_leaves_the_text() -> None:
    source = "---\nid: 12\nok: true\nday: 2024-05-01\n3: x\nnested: {a: [1, null, 2.5]}\n---\n# Title\n"
    found = page(source, "markdown")
    assert found.metadata == {"id": 12, "ok": True, "day": "2024-05-01", "3": "x", "nested": {"a": [1, None, 2.5]}}
    assert (found.title, found.content) == ("Title", "# Title\n")


def test_a_title_in_the_front_matter_goes_before_the_headings() -> None:
    assert page("---\r\ntitle: Stated\r\n...\r\n## Overview\r\n", "markdown").title == "Stated"
    assert page("---\ntitle: [no, text]\n---\n## Overview\n", "markdown").title == "Overview"


@pytest.mark.parametrize(
    "block",
    [
        "- a list",
        "just text",
        "",
        "a: [unclosed",
        "a: &x [1]\nb: *x",
        "a: .nan",
        "a: .inf",
        'a: "\\0"',
        'a: "\\ud800"',
        "a: !!python/object/apply:os.system [ls]",
        "a: !!binary aGk=",
        "a: 99999999999999999999",
        "a: 1\na: 2",
        "[a]: 1",
        "a: " + "[" * 5000 + "]" * 5000,
        "a: !!int x",
        "b: !!set {c}",
        "a\tb: \x07",
    ],
)
def test_front_matter_that_cannot_be_metadata_is_just_text(block: str) -> None:
    source = f"---\n{block}\n---\n# Title\n"
    found = page(source, "markdown")
    assert (found.metadata, found.content) == ({}, source)


def test_dashes_further_down_or_never_closed_are_no_front_matter() -> None:
    for source in ("\n---\na: 1\n---\n", "---\na: 1\n", "----\na: 1\n----\n", "text"):
        assert page(source, "markdown").content == source
        assert page(source, "markdown").metadata == {}


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


def test_html_becomes_the_text_that_a_reader_sees() -> None:
    found = page(HTML, "html")
    assert found.title == "The Title"
    assert found.content == (
        "Heading\n\nOne bold word.\nNext line\n\nfirst\nsecond item\n\na\tb\n1\t2\n\ndef f():\n    return 1\n\n\nlast & least"
    )


def test_html_without_a_title_is_named_by_its_first_heading() -> None:
    assert page("<h1>Head <em>ing</em></h1>text", "html").title == "Head ing"
    assert page("<title> </title><p>text", "html").title == ""
    assert page("", "html").content == ""
    assert page("plain", "html").content == "plain"


def test_html_may_nest_deeper_than_the_stack() -> None:
    assert page("<div>" * 5000 + "deep" + "</div>" * 5000 + "<p>after", "html").content == "deep\n\nafter"
