"""Results of test runs in JUnit XML, as pytest and many other runners write it, and their changes.

A file can be untrusted. Entities that it declares are refused: a few lines of them can expand to
gigabytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal, NoReturn
from xml.parsers import expat

import msgspec

from vmrag_link.errors import GitReferenceMissing, UsageInvalid
from vmrag_link.git import history, plumbing
from vmrag_link.models import Document, Record
from vmrag_link.ops.stores import stores
from vmrag_link.toolsets.learning import evidence_records as evidence
from vmrag_link.toolsets.learning.evidence_records import Evidence, EvidenceItem
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import named_files as files
from vmrag_link.workspace.documents.named_files import NamedFile
from vmrag_link.workspace.documents.writing import WriteResult

RUN = "test_run"
TYPE: evidence.EvidenceType = "test_transition"

MOST_RECORDS = 1000
"""Maximum number of tests of a run that become separate evidence. After a broken build, all tests
start to pass.
"""

MOST_NAMES = 50
"""Maximum number of stored names of tests or changed files."""


class OutputUnreadable(Exception):
    """The file cannot be read. The message is the end of `FILE …`."""


Status = Literal["pass", "fail", "error", "skip"]

MOST_TESTS = 200_000
MOST_NAME = 1000
"""Maximum number of characters of a test's id."""

_ROOTS = ("testsuites", "testsuite")
_OUTCOMES: Mapping[str, Status] = {"failure": "fail", "error": "error", "skipped": "skip"}
_WORST_LAST: tuple[Status, ...] = ("skip", "pass", "fail", "error")


class RunCounts(Record, frozen=True):
    """Numbers of tests."""

    total: int
    passed: int
    failed: int
    errors: int
    skipped: int


class Transition(Record, frozen=True):
    """A test whose outcome changed."""

    test_id: str
    before_status: Status
    after_status: Status


class RunComparison(Record, frozen=True):
    """Changed outcomes.

    `fixed` tests failed before and pass now; `regressions` are the opposite.
    """

    fixed: list[Transition]
    regressions: list[str]


def parse_report(data: bytes) -> dict[str, Status]:
    """Return the outcome of each test by its id, `classname.name`. Raises `OutputUnreadable`.

    If a report has a test more than once, for example with a failed teardown, the worst outcome is
    used.
    """
    reader = _Reader()
    parser = expat.ParserCreate()
    parser.StartElementHandler = reader.start_element
    parser.EndElementHandler = reader.end_element
    parser.EntityDeclHandler = reader.reject_entity
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, LookupError, ValueError) as error:
        raise OutputUnreadable(f"is not valid XML ({error})") from None
    return reader.found


class _Reader:
    """Handles the events of one file. It stores only the depth of an element."""

    def __init__(self) -> None:
        self.found: dict[str, Status] = {}
        self._depth = 0
        self._case: tuple[str, int] | None = None
        self._status: Status = "pass"

    def start_element(self, name: str, attributes: Mapping[str, str]) -> None:
        self._depth += 1
        if self._depth == 1 and name not in _ROOTS:
            raise OutputUnreadable(f"is not JUnit XML: it begins with <{name[:80]}>, not with <testsuites>")
        if name == "testcase" and self._case is None:
            names = (attributes.get("classname", ""), attributes.get("name", ""))
            self._case, self._status = (".".join(filter(None, names))[:MOST_NAME], self._depth), "pass"
        elif self._case and self._depth == self._case[1] + 1 and name in _OUTCOMES:
            outcome = _OUTCOMES[name]
            self._status = outcome if self._status == "pass" else _choose_worse(self._status, outcome)

    def end_element(self, _: str) -> None:
        if self._case and self._depth == self._case[1]:
            test = self._case[0]
            self.found[test] = _choose_worse(self.found[test], self._status) if test in self.found else self._status
            self._case = None
            if len(self.found) > MOST_TESTS:
                raise OutputUnreadable(f"has more than {MOST_TESTS:,} tests")
        self._depth -= 1

    @staticmethod
    def reject_entity(*_: Any) -> NoReturn:
        raise OutputUnreadable("declares entities, which are not read")


def _choose_worse(one: Status, other: Status) -> Status:
    return max(one, other, key=_WORST_LAST.index)


def count_results(run: Mapping[str, Status]) -> RunCounts:
    number = Counter(run.values())
    return RunCounts(len(run), number["pass"], number["fail"], number["error"], number["skip"])


def compare_runs(before: Mapping[str, Status], after: Mapping[str, Status]) -> RunComparison:
    """Return the changes of the tests in both runs, sorted by id."""
    both = [(test, before[test], after[test]) for test in sorted(before.keys() & after.keys())]
    return RunComparison(
        [Transition(*row) for row in both if row[1] in ("fail", "error") and row[2] == "pass"],
        [test for test, was, now in both if was == "pass" and now in ("fail", "error")],
    )


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
        for transition in compared.fixed[:MOST_RECORDS]
    ]
    if len(compared.fixed) > MOST_RECORDS:
        ws.progress.note(f"{len(compared.fixed)} tests pass now that did not; the first {MOST_RECORDS} are evidence.")
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
        "failed_tests": [test for test, status in after.items() if status in ("fail", "error")][:MOST_NAMES],
        **{name: commit for name, commit in commits.items() if commit},
    }
    if changed := _list_changed_files(ws, request):
        more["changed_files"] = changed

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
        before, after = (
            plumbing.resolve_commit(ws.places, ref) for ref in (request.commit_before, request.commit_after)
        )
    except GitReferenceMissing as why:
        ws.progress.note(f"{why.message} What changed is not recorded.")
        return []
    return history.list_changed_files(ws.places, before, after)[:MOST_NAMES]


def _format_run(counts: RunCounts, compared: RunComparison) -> str:
    ended = (
        f"{counts.passed} passed, {counts.failed} failed, {counts.errors} in error, {counts.skipped} skipped",
        *(f"{len(tests)} {what}: {', '.join(tests[:MOST_NAMES])}" for what, tests in _list_changes(compared) if tests),
    )
    return "\n".join((f"Test run of {counts.total} tests", *ended))


def _list_changes(compared: RunComparison) -> tuple[tuple[str, list[str]], ...]:
    return ("fixed", [transition.test_id for transition in compared.fixed]), ("regressions", compared.regressions)
