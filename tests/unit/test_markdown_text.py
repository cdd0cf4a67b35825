"""The job's summary shows text as text, within the runner's limit."""

from __future__ import annotations

import pytest
from markdown_it import MarkdownIt

from vmrag_link import markdown_text

HOSTILE = "<img src=x onerror=y> [link](javascript:z) | `code` **b** @who #1 \x1b[31m\u202e ::error:: &amp; \\"


def rendered(markdown: str) -> str:
    return MarkdownIt("commonmark").enable("table").render(markdown)


def test_untrusted_text_stays_text() -> None:
    html = rendered(markdown_text.format_table("T", ("a", "b"), [(HOSTILE, "x"), ("y", "z")]))
    assert html.count("<td>") == 4
    assert html.count("<tr>") == 3
    for tag in ("<img", "<a", "<code", "<strong", "\x1b", "\u202e"):
        assert tag not in html
    assert "::error::" not in markdown_text.escape_markdown(HOSTILE)
    assert "&lt;img src=x onerror=y&gt; [link](javascript:z) | `code` **b** @who #1 \\x1b[31m\\u202e" in html


@pytest.mark.parametrize(
    "plain",
    [
        "docs/a_b-c.md (file), it's 12:30; +3 -4 = 7?",
        "1. guide/x.md #0 (0.5)",
        "feature adds 1 document.",
        "über straße",
    ],
)
def test_text_without_markup_is_not_escaped(plain: str) -> None:
    assert markdown_text.escape_markdown(plain) == plain


@pytest.mark.parametrize(
    "begin", ["1. x", "12) x", "- x", "+ x", "=", "    x", "# x", "> x", "* x", "~~~", "```", "|a|"]
)
def test_paragraph_begins_nothing_else(begin: str) -> None:
    assert rendered(f"before\n\n{markdown_text.escape_paragraph(begin)}\n\nafter").count("<p>") == 3


def test_github_makes_no_link_emoji_formula_or_mention_of_it() -> None:
    shown = markdown_text.escape_markdown("http://x.y WWW.x.y a@b.c @who #12 GH-12 :smile: $x$ ~~x~~ __x__ _x_")
    for name in ("://", "WWW.", "@", "#12", "GH-", ":smile:", "$", "~", "__x", "_x", "x_"):
        assert name not in shown.replace("&#", "&")


def test_newline_stays_in_its_cell() -> None:
    html = rendered(markdown_text.format_table("T", ("a",), [("one\n\n## two\n| three |",)]))
    assert html.count("<tr>") == 2
    assert "<h2>two" not in html


@pytest.mark.parametrize("rows", [1, 40, 9000])
def test_long_row_displaces_no_other(rows: int) -> None:
    given = [("short", str(number)) for number in range(rows)] + [("long", "<" * 2_000_000)] * 2
    text = markdown_text.format_table("T", ("a", "b"), given)
    assert len(text.encode()) <= markdown_text.MAX_BYTES
    shown = text.count("| short |")
    assert shown == rows or f"{rows + 2 - shown} more rows are in the log." in text
    assert ("| long |" in text) is (rows < 9000)


def test_short_rows_are_whole() -> None:
    assert "…" not in markdown_text.format_table("T", ("a",), [("x" * 900,)] * 100)
