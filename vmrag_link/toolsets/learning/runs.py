"""Results of test runs, and what changed from one run to the next."""

from __future__ import annotations

import msgspec

from vmrag_link.errors import GitReferenceMissing, UsageInvalid
from vmrag_link.git import history, plumbing
from vmrag_link.models import Document, Record
from vmrag_link.ops.documents import named_files as files
from vmrag_link.ops.documents.named_files import NamedFile
from vmrag_link.ops.documents.writing import Landed
from vmrag_link.ops.system import collections
from vmrag_link.toolsets.learning import evidence_records as evidence
from vmrag_link.toolsets.learning import junit
from vmrag_link.toolsets.learning.evidence_records import Evidence, EvidenceItem
from vmrag_link.toolsets.learning.junit import OutputUnreadable, RunComparison, RunCounts, Status
from vmrag_link.workspace import Workspace

RUN = "test_run"
TYPE: evidence.EvidenceType = "test_transition"

MOST_RECORDS = 1000
"""Tests of one run that become evidence of their own: after a broken build, all of them pass."""

MOST_NAMES = 50
"""Tests, or changed files, that are kept by name."""


class RunRequest(Record, frozen=True):
    """`xml`: JUnit XML; `before`: that of a run before. The commits are git's."""

    xml: NamedFile
    before: NamedFile | None = None
    commit_before: str = ""
    commit_after: str = ""
    collection_name: str = collections.TEST_RESULTS


class StoredTransition(Record, frozen=True):
    evidence_id: str
    test_id: str
    before_status: Status
    after_status: Status


class RunReport(Record, frozen=True):
    """`evidence_id` is `run_id`: the run, with all of its transitions and regressions."""

    run_id: str
    tests: RunCounts
    transitions: list[StoredTransition]
    regressions: list[str]
    validation_score: float
    meets_threshold: bool
    evidence_id: str


def log_test_results(ws: Workspace, request: RunRequest) -> Landed[RunReport]:
    """Store a run, and each test that failed before and passes now.

    Raises `UsageInvalid` for what is no JUnit XML, as `files.read` and
    `evidence_records.write_down`.
    """
    after = _parsed(ws, request.xml, "xml_path")
    before = _parsed(ws, request.before, "before_xml") if request.before else {}
    compared = junit.compare(before, after)
    run_id = evidence.new_id()
    stored = [
        StoredTransition(evidence.new_id(), *msgspec.structs.astuple(each)) for each in compared.fixed[:MOST_RECORDS]
    ]
    if len(compared.fixed) > MOST_RECORDS:
        ws.progress.note(f"{len(compared.fixed)} tests pass now that did not; the first {MOST_RECORDS} are evidence.")
    items = tuple(EvidenceItem(each.evidence_id, TYPE, evidence.FIXED) for each in stored)
    whole = Evidence(items, tuple(compared.regressions))
    counts = junit.counts(after)
    report = RunReport(
        run_id, counts, stored, compared.regressions, whole.score, whole.score >= evidence.THRESHOLD, run_id
    )
    commits = {"commit_before": request.commit_before, "commit_after": request.commit_after}
    more = {
        "xml_path": files.key_of(ws.places, request.xml),
        "tests": msgspec.to_builtins(counts),
        "failed_tests": [test for test, status in after.items() if status in ("fail", "error")][:MOST_NAMES],
        **{name: commit for name, commit in commits.items() if commit},
    }
    if changed := _changed(ws, request):
        more["changed_files"] = changed

    def rows(collection: str) -> list[Document]:
        fixed = [_transition(collection, run_id, each, item) for each, item in zip(stored, items, strict=True)]
        return [*fixed, evidence.record(collection, run_id, _run_text(counts, compared), RUN, whole, **more)]

    return evidence.write_down(ws, request.collection_name, rows, report, "write down test results")


def _transition(collection: str, run_id: str, each: StoredTransition, item: EvidenceItem) -> Document:
    text = f"{each.test_id}: {each.before_status}, and now {each.after_status}"
    more = {name: getattr(each, name) for name in ("test_id", "before_status", "after_status")}
    return evidence.record(collection, each.evidence_id, text, TYPE, Evidence((item,)), run_id=run_id, **more)


def _parsed(ws: Workspace, file: NamedFile, parameter: str) -> dict[str, Status]:
    source = files.read(ws, file)
    try:
        return junit.parse(source.data)
    except OutputUnreadable as why:
        raise UsageInvalid(
            f"{source.name} {why}.",
            hint="Let the test runner write JUnit XML, for example: pytest --junitxml=results.xml",
            parameter=parameter,
            value=source.key,
        ) from None


def _changed(ws: Workspace, request: RunRequest) -> list[str]:
    """The files that differ between the commits, if both are given and here."""
    if not (request.commit_before and request.commit_after):
        return []
    try:
        before, after = (plumbing.resolve(ws.places, each) for each in (request.commit_before, request.commit_after))
    except GitReferenceMissing as why:
        ws.progress.note(f"{why.message} What changed is not recorded.")
        return []
    return history.changed_files(ws.places, before, after)[:MOST_NAMES]


def _run_text(counts: RunCounts, compared: RunComparison) -> str:
    ended = (
        f"{counts.passed} passed, {counts.failed} failed, {counts.errors} in error, {counts.skipped} skipped",
        *(f"{len(tests)} {what}: {', '.join(tests[:MOST_NAMES])}" for what, tests in _changes(compared) if tests),
    )
    return "\n".join((f"Test run of {counts.total} tests", *ended))


def _changes(compared: RunComparison) -> tuple[tuple[str, list[str]], ...]:
    return ("fixed", [each.test_id for each in compared.fixed]), ("regressions", compared.regressions)
