"""Store a test run as evidence: its counts, and each test that it fixed."""

from __future__ import annotations

import msgspec

from vmrag_link.errors import GitReferenceMissing, UsageInvalid
from vmrag_link.git import history, plumbing
from vmrag_link.models import Document, Record
from vmrag_link.ops.stores import stores
from vmrag_link.toolsets.learning import evidence_records as evidence
from vmrag_link.toolsets.learning.evidence_records import Evidence, EvidenceItem
from vmrag_link.toolsets.learning.junit import (
    OutputUnreadable,
    RunComparison,
    RunCounts,
    Status,
    compare_runs,
    count_results,
    parse_report,
)
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import named_files as files
from vmrag_link.workspace.documents.named_files import NamedFile
from vmrag_link.workspace.documents.writing import WriteResult

RUN = "test_run"
TYPE: evidence.EvidenceType = "test_transition"

MAX_RECORDS = 1000
"""Maximum number of tests of a run that become separate evidence. After a broken build, all tests
start to pass.
"""

MAX_NAMES = 50
"""Maximum number of stored names of tests or changed files."""


class RunRequest(Record, frozen=True):
    """A run.

    `xml` is its JUnit XML; `before` is the JUnit XML of an earlier run. Commits are git commits.
    """

    xml: NamedFile
    before: NamedFile | None = None
    commit_before: str = ""
    commit_after: str = ""
    collection_name: str = stores.TEST_RESULTS


class StoredTransition(Record, frozen=True):
    evidence_id: str
    test_id: str
    before_status: Status
    after_status: Status


class RunReport(Record, frozen=True):
    """A stored run. `evidence_id` equals `run_id`: the run with all transitions and regressions."""

    run_id: str
    tests: RunCounts
    transitions: list[StoredTransition]
    regressions: list[str]
    validation_score: float
    meets_threshold: bool
    evidence_id: str


def log_test_results(ws: Workspace, request: RunRequest) -> WriteResult[RunReport]:
    """Store a run, and each test that failed before and passes now.

    Raises `UsageInvalid` for invalid JUnit XML, and the errors of `named_files.read_file` and
    `evidence_records.store_records`.
    """
    after = _parse_file(ws, request.xml, "xml_path")
    before = _parse_file(ws, request.before, "before_xml") if request.before else {}
    compared = compare_runs(before, after)
    run_id = evidence.create_id()
    stored = [
        StoredTransition(evidence.create_id(), *msgspec.structs.astuple(transition))
        for transition in compared.fixed[:MAX_RECORDS]
    ]
    if len(compared.fixed) > MAX_RECORDS:
        ws.progress.note(f"{len(compared.fixed)} tests pass now that did not; the first {MAX_RECORDS} are evidence.")
    items = tuple(EvidenceItem(transition.evidence_id, TYPE, evidence.FIXED) for transition in stored)
    whole = Evidence(items, tuple(compared.regressions))
    counts = count_results(after)
    report = RunReport(
        run_id=run_id,
        tests=counts,
        transitions=stored,
        regressions=compared.regressions,
        validation_score=whole.score,
        meets_threshold=whole.score >= evidence.THRESHOLD,
        evidence_id=run_id,
    )
    commits = {"commit_before": request.commit_before, "commit_after": request.commit_after}
    more = {
        "xml_path": files.key_of(ws.places, request.xml),
        "tests": msgspec.to_builtins(counts),
        "failed_tests": [test for test, status in after.items() if status in ("fail", "error")][:MAX_NAMES],
        **{name: commit for name, commit in commits.items() if commit},
    }
    changed_files = _list_changed_files(ws, request)
    if changed_files:
        more["changed_files"] = changed_files

    def build_rows(collection: str) -> list[Document]:
        fixed = [
            _build_transition(collection, run_id, transition, item)
            for transition, item in zip(stored, items, strict=True)
        ]
        return [*fixed, evidence.build_record(collection, run_id, _format_run(counts, compared), RUN, whole, **more)]

    return evidence.store_records(ws, request.collection_name, build_rows, report, "write down test results")


def _build_transition(collection: str, run_id: str, transition: StoredTransition, item: EvidenceItem) -> Document:
    text = f"{transition.test_id}: {transition.before_status}, and now {transition.after_status}"
    more = {name: getattr(transition, name) for name in ("test_id", "before_status", "after_status")}
    return evidence.build_record(
        collection, transition.evidence_id, text, TYPE, Evidence((item,)), run_id=run_id, **more
    )


def _parse_file(ws: Workspace, file: NamedFile, parameter: str) -> dict[str, Status]:
    source = files.read_file(ws, file)
    try:
        return parse_report(source.data)
    except OutputUnreadable as why:
        raise UsageInvalid(
            f"{source.name} {why}.",
            hint="let the test runner write JUnit XML, such as 'pytest --junitxml=results.xml'",
            parameter=parameter,
            value=source.key,
        ) from None


def _list_changed_files(ws: Workspace, request: RunRequest) -> list[str]:
    """Return the files that differ between the commits, if both are given and available."""
    if not (request.commit_before and request.commit_after):
        return []
    try:
        before = plumbing.resolve_commit(ws.places, request.commit_before)
        after = plumbing.resolve_commit(ws.places, request.commit_after)
    except GitReferenceMissing as why:
        ws.progress.note(f"{why.message} What changed is not recorded.")
        return []
    return history.list_changed_files(ws.places, before, after)[:MAX_NAMES]


def _format_run(counts: RunCounts, compared: RunComparison) -> str:
    lines = [
        f"Test run of {counts.total} tests",
        f"{counts.passed} passed, {counts.failed} failed, {counts.errors} in error, {counts.skipped} skipped",
    ]
    fixed = [transition.test_id for transition in compared.fixed]
    for kind, tests in (("fixed", fixed), ("regressions", compared.regressions)):
        if tests:
            lines.append(f"{len(tests)} {kind}: {', '.join(tests[:MAX_NAMES])}")
    return "\n".join(lines)
