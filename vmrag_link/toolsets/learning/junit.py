"""Read results of test runs in JUnit XML, as pytest and many other runners write it, and compare
them.

A file can be untrusted. Entities that it declares are refused: a few lines of them can expand to
gigabytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, NoReturn
from xml.parsers import expat

from vmrag_link.models import Record


class OutputUnreadable(Exception):
    """The file cannot be read. The message is the end of `FILE …`."""


Status = Literal["pass", "fail", "error", "skip"]

MAX_TESTS = 200_000
MAX_ID_CHARS = 1000
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
    return reader.outcomes


class _OpenTest(NamedTuple):
    """A test whose element has not ended yet."""

    test_id: str
    depth: int


class _Reader:
    """Handles the events of one file. It stores only the depth of an element."""

    def __init__(self) -> None:
        self.outcomes: dict[str, Status] = {}
        self._depth = 0
        self._test: _OpenTest | None = None
        self._status: Status = "pass"

    def start_element(self, name: str, attributes: Mapping[str, str]) -> None:
        self._depth += 1
        if self._depth == 1 and name not in _ROOTS:
            raise OutputUnreadable(f"is not JUnit XML: it begins with <{name[:80]}>, not with <testsuites>")
        if name == "testcase" and self._test is None:
            names = (attributes.get("classname", ""), attributes.get("name", ""))
            self._test = _OpenTest(".".join(filter(None, names))[:MAX_ID_CHARS], self._depth)
            self._status = "pass"
        elif self._test and self._depth == self._test.depth + 1 and name in _OUTCOMES:
            outcome = _OUTCOMES[name]
            self._status = outcome if self._status == "pass" else _choose_worse(self._status, outcome)

    def end_element(self, _: str) -> None:
        if self._test and self._depth == self._test.depth:
            test_id = self._test.test_id
            self.outcomes[test_id] = _choose_worse(self.outcomes.get(test_id, self._status), self._status)
            self._test = None
            if len(self.outcomes) > MAX_TESTS:
                raise OutputUnreadable(f"has more than {MAX_TESTS:,} tests")
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
    failed = ("fail", "error")
    tests = sorted(before.keys() & after.keys())
    return RunComparison(
        fixed=[
            Transition(test, before[test], after[test])
            for test in tests
            if before[test] in failed and after[test] == "pass"
        ],
        regressions=[test for test in tests if before[test] == "pass" and after[test] in failed],
    )
