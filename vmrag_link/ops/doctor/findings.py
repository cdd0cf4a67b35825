"""Run the topics of `vmrag doctor`: check, repair what can be repaired safely, and check again.

The other modules of this package define the topics. Each topic has a check, which changes nothing,
and perhaps repairs, which lose nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from vmrag_link.errors import Busy, GitConfigInvalid, VmragError, system_failure
from vmrag_link.models import Record
from vmrag_link.workspace import Workspace

Level = Literal["ok", "note", "warning", "error"]
_LEVELS: tuple[Level, ...] = ("ok", "note", "warning", "error")

DOCTOR_HINT = "run 'vmrag doctor --fix' to repair it"
"""The `fix` of a finding that no other command repairs."""


class Finding(Record, frozen=True):
    """A problem."""

    code: str
    level: Level
    """`note`: nothing fails because of it. `warning`: something is worse than it could be, or will
    fail. `error`: something fails now.
    """
    message: str
    fix: str
    """A hint that repairs it, in the form of `vmrag_link.hints`."""
    subject: str = ""
    """The path or name that it is about."""


Check = Callable[[Workspace], Iterator[Finding]]
"""A function that yields findings and changes nothing.

A `VmragError` or an `OSError` that it raises becomes a finding.
"""

Repair = Callable[[Workspace, Finding], str]
"""A function that repairs a finding and returns what it did.

It can be repeated, and removes only what can be rebuilt. It may raise the same errors as a check.
"""


class Topic(NamedTuple):
    """A topic of the doctor."""

    name: str
    check: Check
    repairs: Mapping[str, Repair] = {}
    """The repairs by the code of the finding. Other findings are left to the user."""


class TopicReport(Record, frozen=True):
    """A topic and its findings."""

    name: str
    level: Level
    """The highest level of its findings."""
    findings: tuple[Finding, ...]


class RepairedFinding(Record, frozen=True, rename={"repair": "done"}):
    """A finding that no longer exists, and what was done about it."""

    finding: Finding
    repair: str


class DoctorReport(Record, frozen=True):
    """The result of `doctor`."""

    healthy: bool
    """True if there is no warning and no error."""
    topics: tuple[TopicReport, ...]
    """The topics after the repairs."""
    mended: tuple[RepairedFinding, ...] = ()
    """The findings that `fix` repaired."""


def doctor(ws: Workspace, topics: Sequence[Topic], *, fix: bool = False) -> DoctorReport:
    """Check the topics and, with `fix`, repair their findings.

    If a repair fails, its finding stays, and the reason is printed as a note of the progress.
    """
    reports = _check_topics(ws, topics)
    if not fix:
        return DoctorReport(_is_healthy(reports), reports)
    repairs = list(_repair_findings(ws, topics, reports))
    reports_after = _check_topics(ws, topics)
    remaining = {finding for report in reports_after for finding in report.findings}
    repaired = tuple(repair for repair in repairs if repair.finding not in remaining)
    return DoctorReport(_is_healthy(reports_after), reports_after, repaired)


def report_without_git(error: GitConfigInvalid) -> DoctorReport:
    """Return a report of the one finding that keeps everything else from being examined."""
    finding = Finding("GIT_CONFIG_DAMAGED", "error", error.message, error.hint)
    return DoctorReport(False, (TopicReport("git's configuration", "error", (finding,)),))


def build_busy(kind: str) -> Busy:
    """Return the error of a repair of derived files that another process reads."""
    return Busy(
        f"another process is reading this {kind}.",
        hint="run 'vmrag doctor --fix' to repair it when the other process has finished",
    )


def _check_topics(ws: Workspace, topics: Sequence[Topic]) -> tuple[TopicReport, ...]:
    """Check the topics. A finding of several topics (such as unreadable settings) occurs once."""
    reported: set[tuple[str, str]] = set()
    reports = []
    for topic in topics:
        findings = [finding for finding in _list_findings(ws, topic) if (finding.code, finding.message) not in reported]
        reported.update((finding.code, finding.message) for finding in findings)
        level = max(("ok", *(finding.level for finding in findings)), key=_LEVELS.index)
        reports.append(TopicReport(topic.name, level, tuple(findings)))
    return tuple(reports)


def _list_findings(ws: Workspace, topic: Topic) -> Iterator[Finding]:
    try:
        yield from topic.check(ws)
    except (VmragError, OSError) as error:
        vmrag_error = _as_known_error(error)
        yield Finding(vmrag_error.code, "error", vmrag_error.message, vmrag_error.hint)


def _repair_findings(
    ws: Workspace, topics: Sequence[Topic], reports: Sequence[TopicReport]
) -> Iterator[RepairedFinding]:
    for topic, report in zip(topics, reports, strict=True):
        for finding in report.findings:
            repair = topic.repairs.get(finding.code)
            if repair is None:
                continue
            try:
                yield RepairedFinding(finding, repair(ws, finding))
            except (VmragError, OSError) as error:
                vmrag_error = _as_known_error(error)
                ws.progress.note(f"{finding.code} was not repaired: {vmrag_error.sentence}")


def _as_known_error(error: VmragError | OSError) -> VmragError:
    """Return the error as a `VmragError`. Raise it if it is an `OSError` that is a bug."""
    vmrag_error = error if isinstance(error, VmragError) else system_failure(error)
    if vmrag_error is None:
        raise error
    return vmrag_error


def _is_healthy(reports: Sequence[TopicReport]) -> bool:
    return all(report.level in ("ok", "note") for report in reports)
