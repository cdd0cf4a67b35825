"""Texts of a pull request comment about a report, within its limits, and code spans."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from selectolax.lexbor import LexborHTMLParser

from tests.support.reports import NO_QUERIES, document, report
from vmrag_link.errors import UsageInvalid
from vmrag_link.markdown_text import format_code
from vmrag_link.ops.report.comment import MARKER, MAX_LINES, format_comment
from vmrag_link.ops.report.comment_data import (
    CommentAnswer,
    CommentChunk,
    CommentData,
    CommentDocument,
    CommentNote,
    MissingThing,
    build_comment_data,
    parse_comment_data,
)
from vmrag_link.ops.report.gitlab import escape_references
from vmrag_link.ops.report.records import (
    AnswerChange,
    AnswerText,
    ComparedQueries,
    DocumentCounts,
    ListedQuery,
    ReportSummary,
)
from vmrag_link.ops.verify.verify_commits import PinFinding
from vmrag_link.sources.outdated import CitingNote

HEAD = "1a2b3c4d" * 5
RUN = "https://github.example/them/project/actions/runs/9"
LONG = "words before it, " * 20


def chunk(text: str, document: str = "handbook/a.md") -> AnswerText:
    return AnswerText(document, text)


def change(
    before: AnswerText | None,
    after: AnswerText | None,
    *,
    query: str = "when?",
    place: int = 1,
    missing: tuple[str, ...] = (),
    below: bool = False,
) -> AnswerChange:
    return AnswerChange(query, 1, place, before, after, missing, below)


def summary(*answers: AnswerChange, documents: int = 0, findings: tuple[PinFinding, ...] = ()) -> ReportSummary:
    lines = [document(number, ("handbook", f"{number}.md"), None, "text") for number in range(documents)]
    queries = ComparedQueries("q", max(3, len(answers)), answers=answers)
    with report(lines, queries=queries, findings=findings) as result:
        return result.summary


def said(report_summary: ReportSummary) -> str:
    return format_comment(build_comment_data(7, report_summary, HEAD), RUN)


def test_both_texts_begin_shortly_before_the_difference():
    body = said(summary(change(chunk(f"{LONG}after 30 seconds. {LONG}"), chunk(f"{LONG}after 5 seconds. {LONG}"))))
    before, after = (line for line in body.splitlines() if line.startswith("  - "))
    assert before.startswith("  - before: `handbook/a.md`: `…before it, words before it, after 30 seconds. words")
    assert after.startswith("  - after: `handbook/a.md`: `…before it, words before it, after 5 seconds. words")
    assert before.endswith("…`")


def test_different_documents_are_shown_from_their_beginning():
    body = said(
        summary(change(chunk("Ask Ada."), chunk("Ask Bob.", "handbook/b.md")), change(None, chunk("New."), place=2))
    )
    assert "- before: `handbook/a.md`: `Ask Ada.`\n  - after: `handbook/b.md`: `Ask Bob.`\n" in body
    assert "first difference at place 2:\n  - before: nothing\n  - after: `handbook/a.md`: `New.`\n" in body


def test_comment_lists_missed_expectations_first_then_best_ranks():
    one, other = chunk("a"), chunk("b")
    report = summary(
        change(one, other, query="third", place=3),
        change(one, other, query="second"),
        change(one, other, query="first", place=9, missing=("handbook/gone.md",)),
    )
    shown = [line.split("`")[1] for line in said(report).splitlines() if line.startswith("- `") and "place" in line]
    assert shown == ["first", "second", "third"]
    assert "Missing at the pin:\n\n- `handbook/gone.md`, which answers should contain" in said(report)


def test_comment_counts_and_folds_changes_at_lower_ranks():
    one, other = chunk("a"), chunk("b", "handbook/b.md")
    below = change(one, other, query="low", place=3, below=True)
    body = said(summary(change(one, other, query="high"), below))
    assert "1 of 3 questions has another answer, 1 more differs further down." in body
    assert "- `low`, further down: first difference at place 3: `handbook/a.md` → `handbook/b.md`\n\n</details>" in body
    assert "3 questions asked: no first place changes, 1 differs further down." in said(summary(below))


def test_largest_comment_stays_within_the_limits():
    long = chunk("`x` " * 2000, "n" * 900)
    answers = [change(long, chunk("y" * 5000), query="q" * 900, missing=(f"m{number}",)) for number in range(300)]
    findings = tuple(PinFinding("KNOWLEDGE_DROPPED", "error", HEAD, "", "") for _ in range(300))
    report = summary(*answers, documents=300, findings=findings)
    listed = (ListedQuery("q" * 900, 1),) * 300, (ListedQuery("q", 1),)
    queries = msgspec.structs.replace(report.queries, total=600, added=listed[0], removed=listed[1])
    citing = (CitingNote("n" * 900, ("p" * 900,)),) * 300
    data = build_comment_data(7, msgspec.structs.replace(report, queries=queries, citing=citing), HEAD)
    data = msgspec.structs.replace(data, pin_conflict=True)
    body = format_comment(parse_comment_data(msgspec.json.encode(data)), RUN, of_fork=True)
    assert MAX_LINES - 5 < len(body.splitlines()) <= MAX_LINES
    assert len(body) < 20_000
    assert "295 more questions" in body
    assert "- and 294 more\n" in body
    assert "- new questions: `q" in body
    assert " and 297 more\n- removed question: `q`\n" in body
    assert "300 documents differ: 300 added." in body


@pytest.mark.parametrize("text", ["\u200b", "\U000e0041", "\x7f", "`", "@a", "#1", "\U00020000", "<", "a "], ids=ascii)
def test_comment_stays_below_the_hosts_limit_for_any_data(text):
    """The data of a fork's job can hold the longest texts of any characters."""
    name, question, excerpt = ((text * 200)[:length] for length in (200, 200, 162))
    chunks = CommentChunk(name, excerpt), CommentChunk(name, excerpt)
    data = CommentData(
        *(2**53, HEAD),
        questions=10**9,
        answers_changed=10**9 - 50,
        answers_below=50,
        answers=tuple(CommentAnswer(question, 2**53, *chunks, True, below) for below in [False] * 25 + [True] * 25),
        questions_added=10**9,
        added=(question,) * 10,
        questions_removed=10**9,
        removed=(question,) * 10,
        documents_changed=DocumentCounts(10**9, 10**9, 10**9, 10**9),
        documents=(CommentDocument("moved", name, name),) * 50,
        notes_citing=10**9,
        notes=(CommentNote(name, name),) * 10,
        things_missing=10**9,
        missing=(MissingThing("EXPECTED", name),) * 50,
    )
    body = format_comment(parse_comment_data(msgspec.json.encode(data)), RUN, of_fork=True)
    assert len(body) <= 65_536
    assert len(escape_references(body)) <= 1_000_000
    assert body.splitlines()[-1].endswith("it is not verified.")


def test_comment_lists_notes_that_cite_changes():
    notes = tuple(CitingNote(f"notes/{number}.md", (f"src/a.py:{number}", "src/b.py")) for number in range(1, 5))
    alone = msgspec.structs.replace(summary(), citing=notes[:1])
    assert build_comment_data(7, alone, HEAD).has_news
    assert "\n1 note cites changed files, and may be outdated: `notes/1.md` cites `src/a.py:1`.\n" in said(alone)
    body = said(msgspec.structs.replace(summary(documents=1), citing=notes))
    assert "\n4 notes cite changed files, and may be outdated: `notes/1.md` cites `src/a.py:1`, " in body
    assert "`notes/3.md` cites `src/a.py:3` and 1 more.\n" in body


def test_comment_without_queries_explains_it_and_without_changes_is_silent():
    result = msgspec.structs.replace(summary(documents=1), queries=NO_QUERIES)
    assert "There are no golden queries. 1 document differs: 1 added." in said(result)
    assert build_comment_data(7, result, HEAD).has_news
    assert not build_comment_data(7, summary(), HEAD).has_news
    assert said(summary()).startswith(f"{MARKER}\n### This pull request no longer changes")


def test_comment_data_of_a_large_report_stay_within_limits():
    """The longest texts, in the longest letters."""
    long = "\U00020000" * 900
    one, other = chunk(long, long), chunk(long[1:] + "a", f"{long[1:]}b")
    report = summary(
        *(change(one, other, query=long, missing=(f"{number}{long}",)) for number in range(60)), documents=60
    )
    lines = tuple(
        msgspec.structs.replace(document, kind="moved", doc_id=long, old_doc_id=long) for document in report.documents
    )
    listed = (ListedQuery(long, 1),) * 20
    queries = msgspec.structs.replace(report.queries, total=80, added=listed, removed=listed)
    data = build_comment_data(7, msgspec.structs.replace(report, documents=lines, queries=queries), HEAD)
    assert parse_comment_data(msgspec.json.encode(data)) == data


def test_questions_in_only_one_file_are_listed_and_change_no_answer():
    report = summary(documents=1)
    queries = ComparedQueries(
        "q", 2, added=(ListedQuery("why `not`?", 3), ListedQuery("how?", 4)), removed=(ListedQuery("who?", 1),)
    )
    body = said(msgspec.structs.replace(report, queries=queries))
    assert (
        "\n\nThere are no golden queries. 2 questions are new, 1 is removed. 1 document differs: 1 added.\n\n" in body
    )
    assert "\n\n- new questions: ``why `not`?``, `how?`\n- removed question: `who?`\n\n" in body
    alone = build_comment_data(7, msgspec.structs.replace(summary(), queries=queries), HEAD)
    assert (alone.total_answers, alone.has_news) == (0, False)


@pytest.mark.parametrize("more", [{"questions_added": 0}, {"questions_removed": 0}])
def test_more_questions_than_are_counted_are_refused(more):
    queries = ComparedQueries("q", 2, added=(ListedQuery("a", 3),), removed=(ListedQuery("b", 1),))
    data = build_comment_data(7, msgspec.structs.replace(summary(documents=1), queries=queries), HEAD)
    content = msgspec.json.encode(msgspec.to_builtins(data) | more)
    with pytest.raises(UsageInvalid):
        parse_comment_data(content)


def test_opaque_id_has_its_title_next_to_it():
    opaque = "library/0f8fad5b-d9cb-469f-a165-70867728950e"
    report = summary(change(chunk("a", opaque), chunk("b")), documents=1)
    line = msgspec.structs.replace(
        report.documents[0], collection="library", doc_id=opaque.removeprefix("library/"), title="Key `rotation`"
    )
    queries = msgspec.structs.replace(report.queries, titles={opaque: "Key `rotation`"})
    body = said(msgspec.structs.replace(report, documents=(line,), queries=queries))
    assert f"  - before: ``{opaque} (Key `rotation`)``: `a`\n" in body
    assert f"- added: ``{opaque} (Key `rotation`)``\n" in body


def test_undecodable_names_survive_in_comment_data():
    report = summary(change(chunk("a\udc80"), chunk("b", "x/\udcff.md"), query="\udcff?"))
    assert "`\\udcff?`" in format_comment(
        parse_comment_data(msgspec.json.encode(build_comment_data(7, report, HEAD))), RUN
    )


@given(content=st.binary(max_size=60))
@example(b"")
@example(b"null")
def test_parse_comment_data_rejects_invalid_data(content):
    with pytest.raises(UsageInvalid):
        parse_comment_data(content)


@given(st.text())
@example("`")
@example("``a`")
@example(" ` ")
@example("\\`")
@example("<!-- @everyone -->")
def test_code_span_shows_text_in_one_line_and_nothing_else(text):
    line = f"- x {format_code(text)} y"
    assert len(line.splitlines()) == 1
    page = LexborHTMLParser(MarkdownIt("commonmark").render(line))
    [item] = page.css("code")
    item.decompose()
    assert page.body.text().strip() in ("x  y", "x y")


def test_code_span_replaces_blanks_hidden_characters_and_mentions():
    assert format_code(" a\n\n b ") == "`a b`"
    assert format_code("a\u202eb") == "`a\\u202eb`"
    assert format_code("ask @ada, or a@b.example, or @ all") == "`ask @ ada, or a@ b.example, or @ all`"
    assert format_code("``") == "``` `` ```"


def test_data_are_those_of_json_alone():
    data = build_comment_data(7, summary(change(chunk("a"), None)), HEAD)
    assert parse_comment_data(msgspec.json.encode(data)) == data
    assert isinstance(data, CommentData)
