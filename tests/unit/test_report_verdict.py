"""Sentences of a report, and its severity."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.support.reports import document, report, revision
from vmrag_link.golden.queries import RankedChunk
from vmrag_link.ops.report.rankings import has_improved, has_worsened
from vmrag_link.ops.report.records import (
    AnswerChange,
    ComparedQueries,
    ListedQuery,
    QueryChange,
    ReportedCollection,
    ReportSummary,
    RevisionList,
)
from vmrag_link.ops.report.wording import judge_report
from vmrag_link.ops.verify.verify_commits import PinFinding

SOME = [
    document(1, ("a", "new"), None, "x"),
    document(2, ("b", "one"), "x", "y"),
    document(3, ("b", "other"), "x", "y"),
    document(4, ("b", "moved"), "x", "x", old=("b", "before")),
    document(5, ("c", "gone"), "x", None),
]
WORSE = QueryChange("q", 1, "ranking", (RankedChunk("c/d", 0, 1.0),), (), "", "", (), ("c/d is not the first.",))
ANSWER = AnswerChange("q", 1, 1, None, None)
BELOW = AnswerChange("r", 2, 3, None, None, below=True)
LISTED = ListedQuery("q", 1)
UNMET = ListedQuery("q", 1, ("c/d is not the first.",))
SAME = "3 golden queries rank the same chunks in the same order."
DROPPED = PinFinding("KNOWLEDGE_DROPPED", "error", "ab" * 20, "…", "…")
BACK = PinFinding("MOVED_BACK", "information", "ab" * 20, "…", "")


def queries(*changed: QueryChange, **others: Any) -> ComparedQueries:
    return ComparedQueries("f", 3, changed, **others)


def summary(documents: list[Any] = SOME, **others: Any) -> ReportSummary:
    with report(documents, **others) as made:
        return made.summary


DOCUMENTS = "feature adds 1 document, changes 2, moves 1 and removes 1 in 3 collections."


@pytest.mark.parametrize(
    ("given", "tone", "sentences"),
    [
        ({"documents": []}, "good", ["feature changes no knowledge."]),
        ({}, "good", [DOCUMENTS]),
        ({"documents": SOME[:2], "queries": queries()}, "good", ["feature adds 1 document and changes 1 in 2 collections.", SAME]),
        (
            {"documents": [], "collections": (ReportedCollection("modified", "a", ()),)},
            "good",
            ["feature changes no document, but 1 collection."],
        ),
        (
            {"collections": (ReportedCollection("modified", "a", ()), ReportedCollection("added", "b", ()))},
            "good",
            [f"{DOCUMENTS} The settings of 2 collections differ."],
        ),
        ({"queries": queries(WORSE, answers=(ANSWER,))}, "bad", ["1 golden query is no longer answered as expected.", DOCUMENTS, "1 of 3 golden queries has another answer."]),
        (
            {"queries": queries(msgspec.structs.replace(WORSE, missed_after=()), answers=(ANSWER, BELOW))},
            "look",
            [DOCUMENTS, "1 of 3 golden queries has another answer, 1 more differs further down."],
        ),
        (
            {"queries": queries(msgspec.structs.replace(WORSE, missed_after=()))},
            "look",
            [DOCUMENTS, "1 of 3 golden queries ranks other chunks with the same texts."],
        ),
        (
            {"queries": queries(msgspec.structs.replace(WORSE, line=2, change="scores", missed_after=()), answers=(BELOW,))},
            "look",
            [DOCUMENTS, "3 golden queries asked: no first place changes, 1 differs further down."],
        ),
        (
            {"queries": queries(removed=(LISTED, LISTED))},
            "look",
            [DOCUMENTS, SAME, "2 golden queries are removed."],
        ),
        (
            {"queries": queries(added=(LISTED, LISTED), removed=(LISTED,))},
            "look",
            [DOCUMENTS, "1 golden query ranks the same chunks in the same order.", "2 golden queries are new, 1 is removed."],
        ),
        (
            {"queries": queries(added=(UNMET,), missed=2)},
            "bad",
            [
                "1 new golden query is not answered as expected.",
                DOCUMENTS,
                "2 golden queries rank the same chunks in the same order.",
                "1 golden query is new.",
                "1 golden query was also not answered as expected before.",
            ],
        ),
        ({"queries": queries(msgspec.structs.replace(WORSE, change="scores", missed_after=()))}, "good", [DOCUMENTS, SAME]),
        (
            {"queries": queries(WORSE, missed=3, outdated="Not compared.", answers=(ANSWER,))},
            "bad",
            [
                "1 golden query is no longer answered as expected.",
                DOCUMENTS,
                "1 of 3 golden queries has another answer.",
                "2 golden queries were also not answered as expected before.",
                "Not compared.",
            ],
        ),
        ({"queries": queries(not_compared="The model is missing.", hint="…")}, "look", [DOCUMENTS, "The model is missing."]),
        ({"queries": queries(not_compared="main has no pin or sources that could answer.")}, "good", [DOCUMENTS, "main has no pin or sources that could answer."]),
        (
            {"lost": RevisionList((revision(3, "x"),), 2)},
            "look",
            [DOCUMENTS, "It does not contain 2 revisions that main had."],
        ),
    ],
)  # fmt: skip
def test_verdict_has_the_expected_sentences(given: dict[str, Any], tone: str, sentences: list[str]) -> None:
    report = judge_report(summary(**given))
    assert (report.tone, list(report.sentences)) == (tone, [*sentences, "vmrag verify finds no error."])


def test_verdict_puts_errors_first_and_ignores_information() -> None:
    report = judge_report(summary(findings=(BACK, DROPPED, DROPPED)))
    assert (report.tone, report.sentences) == ("bad", ("vmrag verify finds 2 errors: KNOWLEDGE_DROPPED.", DOCUMENTS))
    assert judge_report(summary(findings=(BACK,))).tone == "good"


def test_verdict_without_verification_claims_nothing() -> None:
    assert judge_report(summary(verified=False)).sentences == (DOCUMENTS,)


def test_full_hash_is_short_in_a_sentence() -> None:
    said = judge_report(summary(head=f"{2:040x}")).sentences[0]
    assert said.startswith("000000000000 adds 1 document")


def test_query_is_worse_or_improved_by_its_misses() -> None:
    lacking = ("lacks",)
    both = msgspec.structs.replace(WORSE, missed_before=lacking)
    better = msgspec.structs.replace(both, missed_after=())
    unasked = msgspec.structs.replace(WORSE, missed_after=(), problem_after="There is no such collection.")
    assert [(has_worsened(change), has_improved(change)) for change in (WORSE, both, better, unasked)] == [
        (True, False),
        (False, False),
        (False, True),
        (True, False),
    ]
