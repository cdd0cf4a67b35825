"""A report as Markdown: untrusted text stays text, and it stays within the limit of a job's
summary.
"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from selectolax.lexbor import LexborHTMLParser

from tests.support.long import examples
from tests.support.reports import document, report, revision
from vmrag_link.golden.queries import RankedChunk
from vmrag_link.markdown_text import MAX_BYTES, cut_to_bytes, escape_markdown
from vmrag_link.ops.report.markdown import format_markdown
from vmrag_link.ops.report.rankings import build_rank_rows
from vmrag_link.ops.report.records import (
    ComparedQueries,
    FieldChange,
    KnowledgeReport,
    QueryChange,
    ReportedCollection,
    RevisionList,
    TextChange,
)
from vmrag_link.ops.verify.verify_commits import PinFinding
from vmrag_link.sources.outdated import CitingNote
from vmrag_link.worddiff import Piece

OURS = set("html head body h2 h3 p table thead tbody tr th td details summary ins del br".split())
HOSTILE = (
    "</summary></details></p></td></table><script>alert(1)</script>",
    "<img src=x onerror=y> [l](javascript:z) ![i](http://x/y) <http://x.y> www.x.com @who #1",
    "\n\n# heading\n\n| a | b |\n| --- | --- |\n\n```\n\n    code\n\n<details>",
    "::error::x\n::set-output name=a::b\n##[group]c\n::stop-commands::d",
    "\x1b[31m\u202e\u2066\x00 &lt;b&gt; &#60;b&#62; \\<b\\>",
)


def shown_of(knowledge_report: KnowledgeReport, limit: int = MAX_BYTES) -> str:
    with knowledge_report:
        return format_markdown(knowledge_report, limit=limit)


def rendered(markdown_text: str) -> LexborHTMLParser:
    return LexborHTMLParser(MarkdownIt("commonmark").enable("table").render(markdown_text))


def hostile(word: str) -> KnowledgeReport:
    """A report in which every text is this one."""
    pieces = (Piece("equal", word), Piece("delete", word), Piece("insert", word), Piece("omitted", word))
    query = QueryChange(word, 1, "ranking", (RankedChunk(word, 1, 0.5),), (), word, word, (word,), (word,))
    result = revision(3, word, author=word, subject=word)
    return report(
        [
            document(
                1,
                (word, word),
                f"{word} before",
                f"{word} after",
                old=("x", word),
                title=word,
                fields={word: (word, "x")},
            )
        ],
        base=word,
        head=word,
        queries=ComparedQueries(word, 1, (query,), not_compared=word, hint=word),
        gained=[result],
        lost=RevisionList((result,), 2),
        collections=(ReportedCollection("modified", word, (FieldChange(word, TextChange(pieces, 3)),)),),
        findings=(PinFinding("KNOWLEDGE_DROPPED", "error", word, word, word),),
        citing=(CitingNote(word, (word, word)),),
    )


@pytest.mark.parametrize("word", HOSTILE)
def test_untrusted_text_adds_no_markup_to_the_summary(word: str) -> None:
    shown = shown_of(hostile(word))
    page = rendered(shown)
    assert {element.tag for element in page.css("*")} <= OURS
    assert not any(element.attributes for element in page.css("*"))
    assert len(page.css("h2, h3")) == len(rendered(shown_of(hostile("word"))).css("h2, h3"))
    assert [len(row.css("td, th")) for row in page.css("tr")] == [
        len(row.css("td, th")) for row in rendered(shown_of(hostile("word"))).css("tr")
    ]
    assert not [line for line in shown.splitlines() if line.lstrip().startswith("::") or "##[" in line]
    assert not {"\x1b", "\u202e", "\x00"} & set(shown)


def many(number: int, length: int) -> KnowledgeReport:
    return report(
        document(index, ("guide", f"page-{index:05}.md"), None if index % 3 else "<old> ", "word-<x> " * length)
        for index in range(1, number + 1)
    )


@pytest.mark.parametrize(
    ("number", "length", "limit"), [(1, 8000, 100_000), (60, 300, 100_000), (2000, 40, MAX_BYTES), (500, 8, 100_000)]
)
def test_summary_stays_below_the_limit_with_a_share_for_each_document(number: int, length: int, limit: int) -> None:
    shown = shown_of(many(number, length), limit)
    assert len(shown.encode()) <= limit
    page = rendered(shown)
    rows, details = page.css("tbody")[-1].css("tr"), page.css("details")
    assert len(rows) == number or f"{number - len(rows)} more rows" in page.body.text()
    assert len(details) == number or f"{number - len(details)} more documents" in page.body.text()
    assert number == 500 or len(details) == number
    sizes = [len(detail.text()) for detail in details]
    assert min(sizes) * 2 >= max(sizes)
    assert number == 500 or "characters more" in page.body.text()


def test_short_report_is_whole() -> None:
    shown = shown_of(many(3, 20))
    assert "…" not in shown
    assert rendered(shown).css("ins")[0].text(separator=" ").count("word-<x>") == 20


def test_long_names_leave_room_for_changes() -> None:
    result = report(
        document(number, ("guide", "n" * 1000 + str(number)), "old", "new " * 50) for number in range(1, 150)
    )
    details = rendered(shown_of(result, 100_000)).css("details")
    assert len(details) == 149
    assert all("new" in detail.css_first("ins").text() for detail in details)


def test_answers_come_first_then_documents_then_revisions_without_trailers() -> None:
    brought = revision(4, "Add TLS\n\nvmrag-x: y")
    joining = msgspec.structs.replace(
        revision(3, "Merge branch 'x'\n\nvmrag-theirs: abc"), parents=("a" * 32, brought.revision)
    )
    query = QueryChange("what?", 3, "ranking", (), (RankedChunk("g/b.md", 0, 0.7),))
    opaque = "0f8fad5b-d9cb-469f-a165-70867728950e"
    documents = [document(1, ("library", opaque), "old", "new", title="A page, with a title")]
    shown = shown_of(report(documents, queries=ComparedQueries("q", 1, (query,)), gained=[joining, brought]))
    heads = [line.removeprefix("### ") for line in shown.splitlines() if line.startswith("### ")]
    assert heads == [
        "Knowledge",
        "Golden queries that change",
        "Documents",
        "Differences",
        "Revisions",
    ]
    assert "vmrag-theirs" not in shown
    assert "| Merge branch 'x'<br>brings Add TLS |" in shown
    assert f"library/{opaque} (A page, with a title)" in shown
    assert "&#44;" not in shown


@pytest.mark.parametrize(
    ("before", "after", "marks"),
    [("gxyz", "zxy", ["▲ 2", "=", "="]), ("gx", "x", ["="]), ("xy", "nx", ["new", "▼ 1"]), ("xyz", "zxy", ["▲ 2", "▼ 1", "▼ 1"])],
)  # fmt: skip
def test_chunk_that_rose_after_a_removal_has_no_arrow(before: str, after: str, marks: list[str]) -> None:
    sides = [tuple(RankedChunk(f"c/{letter}", 0, 0.5) for letter in some) for some in (before, after)]
    assert [
        rank_row.mark for rank_row in build_rank_rows(QueryChange("q", 1, "ranking", *sides), {}) if rank_row.after
    ] == marks


def test_rankings_are_side_by_side() -> None:
    before, after = (
        (RankedChunk("guide/a.md", 0, 0.9), RankedChunk("guide/b.md", 0, 0.5)),
        (RankedChunk("guide/b.md", 0, 0.7),),
    )
    missed = ("guide/a.md is not among the first 2.",)
    query = QueryChange("what?", 3, "ranking", before, after, "", "", (), missed)
    scores = QueryChange("else?", 4, "scores", after, after, "", "", (), ())
    page = rendered(shown_of(report(queries=ComparedQueries("q.yaml", 2, (query, scores)))))
    [row] = page.css("tbody")[-1].css("tr")
    assert [cell.text(separator="\n") for cell in row.css("td")] == [
        "what?\n(line 3)",
        "1. guide/a.md #0 (0.9) gone\n2. guide/b.md #0 (0.5)",
        f"{missed[0]}\n1. guide/b.md #0 (0.7)",
    ]


@settings(max_examples=examples(300))
@given(st.text(max_size=40), st.integers(-3, 300))
def test_beginning_of_a_text_fits_the_limit(value: str, room: int) -> None:
    kept = cut_to_bytes(value, room)
    assert value.startswith(kept)
    assert len(escape_markdown(kept).encode()) <= max(room, 0)
    assert kept == value or len(escape_markdown(value).encode()) > room
