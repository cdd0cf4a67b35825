"""Which documents are records, and what their scores become."""

from __future__ import annotations

import pytest

from vmrag_link.documents.import_base import ROOT
from vmrag_link.models import KNOWLEDGE, NOTES_MARK, SOURCE, Collection
from vmrag_link.retrieval.records import (
    ASKED_FAVOR,
    FIRST_RANKS,
    MAX_SHORT_RECORD_PASSAGES,
    USUAL_FAVOR,
    PassageAddress,
    RecordKind,
    RecordQuestion,
    find_record_kind,
    has_text,
    holds_records,
)

PLAIN, ASKING = "pagefind index size", "why did we choose pagefind"


@pytest.mark.parametrize(
    ("doc_id", "kind"),
    [
        ("docs/adr/0007-use-pagefind.md", RecordKind.DECISION),
        ("architecture-decisions/search.md", RecordKind.DECISION),
        ("docs/ADR-0007.md", RecordKind.DECISION),
        ("packages/search/decisions/2024/pagefind.md", RecordKind.DECISION),
        ("notes/search.md", RecordKind.DECISION),
        ("CHANGELOG.md", RecordKind.CHANGES),
        ("packages/search/CHANGES.rst", RecordKind.CHANGES),
        ("docs/release-notes.de.md", RecordKind.CHANGES),
        ("README.md", RecordKind.README),
        ("readme.zh-cn.md", RecordKind.README),
        ("packages/search/README.md", None),
        ("docs/quadratic.md", None),
        ("docs/release-notes/index.md", None),
        ("docs/changes-in-layout.md", None),
        ("docs/adr.md", None),
        ("docs/making-decisions.md", None),
    ],
)
def test_kind_of_document_follows_from_path(doc_id, kind):
    assert find_record_kind(doc_id) == kind


@pytest.mark.parametrize(
    ("collection", "records"),
    [
        (Collection("memory", kind=SOURCE, metadata='{"folder":"notes",' + NOTES_MARK), True),
        (Collection("docs", kind=SOURCE), False),
        (Collection("memory", import_base=ROOT), True),
        (Collection("handbook", import_base="docs"), False),
        (Collection("team-notes", import_base="docs/notes"), True),
        (Collection("knowledge_dolt", kind=KNOWLEDGE), True),
    ],
)
def test_collection_of_notes_holds_records(collection, records):
    assert holds_records(collection) == records


def promote(question: str, pages: list[int], records: dict[int, RecordKind], scores: dict[int, int]) -> list[int]:
    """Return the rows, the best first."""
    result = {row: score * 10**15 for row, score in enumerate(pages)} | {
        row: score * 10**15 for row, score in scores.items()
    }
    new = RecordQuestion(question).promote_rows(result, records, lambda row: PassageAddress("docs", str(row), 0, 1))
    assert new.keys() <= records.keys()
    assert all(new[row] >= result[row] for row in new)
    return sorted(result, key=lambda row: (-(result | new)[row], row))


PAGES = [1000, 990, 980, 970, 960]
NOTE, OTHER = 50, 51


def test_record_ranks_before_pages_that_answer_as_well():
    assert promote(PLAIN, PAGES, {NOTE: RecordKind.DECISION}, {NOTE: 800})[0] == NOTE


def test_record_ranks_among_first_if_it_answers_about_as_well():
    near = USUAL_FAVOR[RecordKind.DECISION].near
    assert promote(PLAIN, PAGES, {NOTE: RecordKind.DECISION}, {NOTE: near}).index(NOTE) == FIRST_RANKS - 1
    assert promote(PLAIN, PAGES, {NOTE: RecordKind.DECISION}, {NOTE: near - 1})[-1] == NOTE


def test_record_needs_less_if_question_is_about_a_choice():
    near = ASKED_FAVOR[RecordKind.DECISION].near
    assert promote(ASKING, PAGES, {NOTE: RecordKind.DECISION}, {NOTE: near}).index(NOTE) == FIRST_RANKS - 1
    assert promote(PLAIN, PAGES, {NOTE: RecordKind.DECISION}, {NOTE: near})[-1] == NOTE


def test_two_records_rank_among_first_after_best_page():
    both = {NOTE: RecordKind.DECISION, OTHER: RecordKind.DECISION}
    assert promote(PLAIN, PAGES, both, {NOTE: 600, OTHER: 550})[:4] == [0, NOTE, OTHER, 1]
    assert promote(PLAIN, PAGES, both, {NOTE: 600, OTHER: 400})[:4] == [0, 1, NOTE, 2], "too far below the other one"


@pytest.mark.parametrize(
    ("passages", "rank"), [(MAX_SHORT_RECORD_PASSAGES, 1), (MAX_SHORT_RECORD_PASSAGES + 1, len(PAGES) + 1)]
)
def test_passages_of_short_record_share_its_best_score(passages, rank):
    scores = {row: score * 10**15 for row, score in enumerate(PAGES)} | {NOTE: 10**18, OTHER: 6 * 10**17}
    records = dict.fromkeys((NOTE, OTHER), RecordKind.DECISION)
    new = RecordQuestion(PLAIN).promote_rows(scores, records, lambda row: PassageAddress("docs", "a.md", row, passages))
    assert sorted(scores, key=lambda row: -(scores | new)[row]).index(OTHER) == rank


@pytest.mark.parametrize(
    ("passage", "says"),
    [
        ("# 4. One repository\n\n## Status\n\nAccepted\n", False),
        ("# 1. Record decisions\n\nDate: 2024-02-05\n", False),
        ("## Decision\n\nShop, crawler and manual move into a monorepo.\n", True),
    ],
)
def test_passage_with_title_and_status_alone_has_no_text(passage, says):
    assert has_text(passage) == says


def test_changelog_gains_only_for_question_about_change():
    records = {NOTE: RecordKind.CHANGES}
    assert promote("since which version is there a dark mode", PAGES, records, {NOTE: 800})[0] == NOTE
    assert promote("how do I set the dark mode", PAGES, records, {NOTE: 800})[-1] == NOTE


@pytest.mark.parametrize(
    ("question", "title", "named"),
    [
        ("what changed in 3.1.0", "Version 3.1.0", True),
        ("what changed in 3.1", "## [v3.1.0] - 2024-11-13", True),
        ("changes of v3.1.0", "3.1 (2024)", True),
        ("what changed in 3.1.0", "Version 3.1.1", False),
        ("what changed in 3.1.0", "Version 13.1.0", False),
        ("what changed in 3.1", "Version 3.10", False),
        ("what changed in 1.0", "1 June", False),
        ("what changed in 3.1.0", "Version 3.2.0\n\nAfter 3.1.0 was released", False),
        ("what changed last", "Version 3.1.0", False),
    ],
)
def test_title_of_section_names_version_of_question(question, title, named):
    assert RecordQuestion(question).names_version(f"\n{title}\n") == named


def test_scores_above_best_page_differ_in_no_shown_digit():
    scores = {0: 10**18, NOTE: 9 * 10**17, OTHER: 95 * 10**16}
    new = RecordQuestion(PLAIN).promote_rows(
        scores, {NOTE: RecordKind.DECISION, OTHER: RecordKind.DECISION}, lambda row: PassageAddress("", str(row), 0, 1)
    )
    assert scores[0] < new[NOTE] < new[OTHER]
    assert round(new[OTHER] / 10**18, 6) == 1


def test_scores_stay_if_all_documents_are_records():
    scores = {NOTE: 10**18, OTHER: 10**17}
    assert (
        RecordQuestion(ASKING).promote_rows(
            scores, dict.fromkeys(scores, RecordKind.DECISION), lambda row: PassageAddress("", "", row, 1)
        )
        == {}
    )
