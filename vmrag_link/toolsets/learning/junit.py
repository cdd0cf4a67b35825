"""JUnit XML, as pytest and many other runners write it. It may come from a stranger.

Entities that the file declares are refused: a few lines of them make gigabytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal, NoReturn
from xml.parsers import expat

from vmrag_link.models import Record


class OutputUnreadable(Exception):
    """Its text completes `FILE …`."""


Status = Literal["pass", "fail", "error", "skip"]

MOST_TESTS = 200_000
MOST_NAME = 1000
"""Characters of a test's id."""

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
    """A test that ended otherwise than before."""

    test_id: str
    before_status: Status
    after_status: Status


class RunComparison(Record, frozen=True):
    """`fixed`: failed or in error before, passed now. `regressions`: the other way."""

    fixed: list[Transition]
    regressions: list[str]


def parse(data: bytes) -> dict[str, Status]:
    """How each test ended, by its id: `classname.name`.

    A test that is reported more than once, such as one that failed and then could not clean up, has
    the worst of its outcomes. Raises `OutputUnreadable`.
    """
    reader = _Reader()
    parser = expat.ParserCreate()
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.EntityDeclHandler = reader.entity
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, LookupError, ValueError) as error:
        raise OutputUnreadable(f"is no XML that can be read ({error})") from None
    return reader.found


class _Reader:
    """Takes the events of one file. Only the depth of an element is kept, however deep it lies."""

    def __init__(self) -> None:
        self.found: dict[str, Status] = {}
        self._depth = 0
        self._case: tuple[str, int] | None = None
        self._status: Status = "pass"

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        self._depth += 1
        if self._depth == 1 and name not in _ROOTS:
            raise OutputUnreadable(f"is no JUnit XML: it begins with <{name[:80]}>, not with <testsuites>")
        if name == "testcase" and self._case is None:
            names = (attributes.get("classname", ""), attributes.get("name", ""))
            self._case, self._status = (".".join(filter(None, names))[:MOST_NAME], self._depth), "pass"
        elif self._case and self._depth == self._case[1] + 1 and name in _OUTCOMES:
            outcome = _OUTCOMES[name]
            self._status = outcome if self._status == "pass" else _worse(self._status, outcome)

    def end(self, _: str) -> None:
        if self._case and self._depth == self._case[1]:
            test = self._case[0]
            self.found[test] = _worse(self.found[test], self._status) if test in self.found else self._status
            self._case = None
            if len(self.found) > MOST_TESTS:
                raise OutputUnreadable(f"has more than {MOST_TESTS:,} tests")
        self._depth -= 1

    @staticmethod
    def entity(*_: Any) -> NoReturn:
        raise OutputUnreadable("declares entities, which are not read")


def _worse(one: Status, other: Status) -> Status:
    return max(one, other, key=_WORST_LAST.index)


def counts(run: Mapping[str, Status]) -> RunCounts:
    number = Counter(run.values())
    return RunCounts(len(run), number["pass"], number["fail"], number["error"], number["skip"])


def compare(before: Mapping[str, Status], after: Mapping[str, Status]) -> RunComparison:
    """Of the tests in both runs, in the order of their ids."""
    both = [(test, before[test], after[test]) for test in sorted(before.keys() & after.keys())]
    return RunComparison(
        [Transition(*each) for each in both if each[1] in ("fail", "error") and each[2] == "pass"],
        [test for test, was, now in both if was == "pass" and now in ("fail", "error")],
    )
