"""The job's summary shows text as text, within the runner's limit."""

from __future__ import annotations

import pytest
from markdown_it import MarkdownIt

from vmrag_link import markdown_text

HOSTILE = "<img src=x onerror=y> [link](javascript:z) | `code` **b** @who #1 \x1b[31m\u202e ::error:: &amp; \\"


def rendered(markdown: str) -> str:
    return MarkdownIt("commonmark").enable("table").render(markdown)


def test_a_strangers_text_is_text() -> None:
    html = rendered(markdown_text.table("T", ("a", "b"), [(HOSTILE, "x"), ("y", "z")]))
    assert html.count("<td>") == 4
    assert html.count("<tr>") == 3
    for tag in ("<img", "<a", "<code", "<strong", "\x1b", "\u202e"):
        assert tag not in html
    assert "::error::" not in markdown_text.text(HOSTILE)
    assert "&lt;img src=x onerror=y&gt; [link](javascript:z) | `code` **b** @who #1 \\x1b[31m\\u202e" in html


def test_a_newline_stays_in_its_cell() -> None:
    html = rendered(markdown_text.table("T", ("a",), [("one\n\n## two\n| three |",)]))
    assert html.count("<tr>") == 2
    assert "<h2>two" not in html


@pytest.mark.parametrize("rows", [1, 40, 9000])
def test_a_long_row_displaces_no_other(rows: int) -> None:
    given = [("short", str(number)) for number in range(rows)] + [("long", "<" * 2_000_000)] * 2
    text = markdown_text.table("T", ("a", "b"), given)
    assert len(text.encode()) <= markdown_text.LIMIT
    shown = text.count("| short |")
    assert shown == rows or f"{rows + 2 - shown} more rows are in the log." in text
    assert ("| long |" in text) is (rows < 9000)


def test_short_rows_are_whole() -> None:
    assert "…" not in markdown_text.table("T", ("a",), [("x" * 900,)] * 100)
