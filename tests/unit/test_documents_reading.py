"""Titles and front matter."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tests.support.long import examples
from vmrag_link.conversion.front_matter import FrontMatterRefused
from vmrag_link.conversion.outlines import find_title
from vmrag_link.conversion.reading import convert_text, find_markdown_title
from vmrag_link.models import encode_canonical_json


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
def test_title_is_the_first_separate_heading(text: str, title: str) -> None:
    assert find_markdown_title(text) == title


@given(
    st.lists(
        st.sampled_from(["# A", "## B b #", "```", "text", "", "===", "---", "    # c", "> # q", "* # l", " # D", "`"])
    )
)
def test_short_cuts_agree_with_the_parser(lines: list[str]) -> None:
    text = "\n".join(lines)
    tokens = MarkdownIt("commonmark").parse(text)
    headings = [
        tokens[at + 1].children or []
        for at, token in enumerate(tokens)
        if token.type == "heading_open" and not token.level
    ]
    titles = [" ".join("".join(span.content or " " for span in spans).split()) for spans in headings]
    assert find_markdown_title(text) == next(filter(None, titles), "")


def test_find_markdown_title_finds_distant_heading_in_large_file_quickly() -> None:
    text = (
        "```\n# no\n```\n"
        + "A line of text - with words.\n\n" * 2_000
        + "# Far\n"
        + "more text\n\n" * 200_000
        + "# Further\n"
    )
    start = time.process_time()
    assert find_markdown_title(text) == "Far"
    assert time.process_time() - start < 5


def test_plain_heading_on_top_needs_no_parser() -> None:
    program = (
        "import sys; from vmrag_link.conversion.reading import convert_text\n"
        "convert_text('# Title\\n', 'markdown'); convert_text('no heading', 'markdown'); convert_text('T\\n=', 'rst'); convert_text('t', 'text')\n"
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
def test_title_of_restructuredtext_is_its_first_ruled_line(text: str, title: str) -> None:
    assert find_title(text, "rst") == title


def test_front_matter_becomes_metadata_and_leaves_the_text() -> None:
    source = "---\nid: 12\nok: true\nday: 2024-05-01\n3: x\nnested: {a: [1, null, 2.5]}\n---\n# Title\n"
    text = convert_text(source, "markdown")
    assert text.metadata == {"id": 12, "ok": True, "day": "2024-05-01", "3": "x", "nested": {"a": [1, None, 2.5]}}
    assert (text.title, text.content) == ("Title", "# Title\n")


def test_title_in_the_front_matter_goes_before_the_headings() -> None:
    assert convert_text("---\r\ntitle: Stated\r\n...\r\n## Overview\r\n", "markdown").title == "Stated"
    assert convert_text("---\ntitle: [no, text]\n---\n## Overview\n", "markdown").title == "Overview"


@pytest.mark.parametrize(
    "block", ["- a list", "just text", "", "a: [unclosed", "a: *nobody", "a\tb: \x07", '"\\U00110000": 1']
)
def test_invalid_front_matter_is_text(block: str) -> None:
    source = f"---\n{block}\n---\n# Title\n"
    text = convert_text(source, "markdown")
    assert (text.metadata, text.content) == ({}, source)


@pytest.mark.parametrize(
    "line",
    [
        "a: !!bool maybe",
        'a: !!int ""',
        "a: !!int x",
        "a: !!seq foo",
        "a: !!map [[x, y]]",
        "a: !!map foo",
        "a: !!str [x]",
        "a: !!timestamp [b]",
        f"a: {'9' * 400}:59.0",
        f"a: 1{':59' * 400}.5",
        "a: .nan",
        "a: .inf",
        "a: 1.0e+400",
        "a: 99999999999999999999",
        f"a: {'9' * 5000}",
        'a: "\\0"',
        'a: "\\ud800"',
        "a: !!python/object/apply:os.system [ls]",
        "a: !!binary aGk=",
        "b: !!set {c}",
        "[a]: 1",
        "a: 1\n\na: 2",
        "a: &x [1]\n\nb: *x",
        "a: " + "[" * 5000 + "]" * 5000,
    ],
)
def test_mapping_that_no_metadata_can_hold_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(FrontMatterRefused) as refused:
        convert_text(f"---\ntitle: Fine\n{line}\n---\n# Title\n", "markdown")
    assert refused.value.line in (3, 5)
    assert refused.value.reason


def outcome(source: str) -> tuple[dict[str, Any], int | None]:
    """The metadata, or the line that was refused."""
    try:
        return convert_text(source, "markdown").metadata, None
    except FrontMatterRefused as refused:
        return {}, refused.line


SCALARS = st.one_of(
    st.sampled_from(
        [
            "",
            "x",
            "~",
            "yes",
            "1",
            "-0",
            "0x1F",
            "0b" + "1" * 99,
            "1:59:59",
            "1_0.5e+400",
            ".inf",
            "2024-13-45",
            "9" * 99,
        ]
    ),
    st.text(max_size=8),
)
TAGS = st.sampled_from(
    [None, None, None, "!", "!x"]
    + [f"!!{name}" for name in "bool int float null str seq map set omap pairs binary timestamp merge value".split()]
)


def properties(draw: st.DrawFn, anchors: list[str]) -> dict[str, Any]:
    tag, anchor = draw(TAGS), draw(st.sampled_from([None, None, None, "a", "b"]))
    anchors += [anchor] if anchor else []
    return {"anchor": anchor, "tag": f"tag:yaml.org,2002:{tag[2:]}" if tag and tag.startswith("!!") else tag}


def node(draw: st.DrawFn, anchors: list[str], depth: int) -> Iterator[yaml.Event]:
    kind = draw(st.sampled_from(["scalar", "scalar", "alias", "sequence", "mapping"] if depth else ["scalar"]))
    if kind == "alias" and anchors:
        yield yaml.AliasEvent(draw(st.sampled_from(anchors)))
        return
    given = properties(draw, anchors)
    if kind in ("sequence", "mapping"):
        start, end, element = (
            (yaml.SequenceStartEvent, yaml.SequenceEndEvent, 1)
            if kind == "sequence"
            else (yaml.MappingStartEvent, yaml.MappingEndEvent, 2)
        )
        yield start(**given, implicit=given["tag"] is None, flow_style=draw(st.booleans()))
        for _ in range(draw(st.integers(0, 3)) * element):
            yield from node(draw, anchors, depth - 1)
        yield end()
    else:
        style = draw(st.sampled_from([None, '"', "'"]))
        yield yaml.ScalarEvent(**given, implicit=(given["tag"] is None,) * 2, value=draw(SCALARS), style=style)


@st.composite
def event_streams(draw: st.DrawFn) -> str:
    """A mapping of YAML events: any tag on any node, anchors, aliases, complex keys; or letters
    that mean something to YAML.
    """
    anchors: list[str] = []
    value = list(node(draw, anchors, 3))
    try:
        return yaml.emit(
            [
                yaml.StreamStartEvent(),
                yaml.DocumentStartEvent(explicit=False),
                yaml.MappingStartEvent(anchor=None, tag=None, implicit=True, flow_style=False),
                yaml.ScalarEvent(None, None, (True, True), "title"),
                *value,
                yaml.MappingEndEvent(),
                yaml.DocumentEndEvent(explicit=False),
                yaml.StreamEndEvent(),
            ]
        )
    except yaml.YAMLError:
        return draw(st.text(alphabet="ab:&*!{}[],-?|>'\"% \n\t#~09.", max_size=200))


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(event_streams())
def test_random_front_matter_is_parsed_or_rejected(block: str) -> None:
    source = f"---\n{block}\n---\ntext\n"
    metadata, line = outcome(source)
    assert json.loads(encode_canonical_json(metadata)) == metadata
    assert line is None or 1 < line <= source.count("\n") + 1


@pytest.mark.parametrize(
    "block",
    [
        "a: " + "[" * 60_000,
        "a: 1" + ":1" * 30_000,
        "a: " + "9" * 60_000,
        "? " * 30_000,
        "\n".join(f"k{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 200)).replace("*a0", "x"),
    ],
)
def test_front_matter_that_would_grow_without_bounds_is_refused_or_text(block: str) -> None:
    source = f"---\n{block}\n---\ntext\n"
    assert outcome(source)[0] == {}


def test_unclosed_or_late_dashes_are_text() -> None:
    for source in ("\n---\na: 1\n---\n", "---\na: 1\n", "----\na: 1\n----\n", "text"):
        assert convert_text(source, "markdown").content == source
        assert convert_text(source, "markdown").metadata == {}
