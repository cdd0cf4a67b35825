"""The topics of `vmrag doctor`: what one is made of, and the run over all of them, which checks,
mends what can be mended without asking, and checks again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from vmrag_link.errors import GitConfigInvalid, VmragError, system_failure
from vmrag_link.models import Record
from vmrag_link.workspace import Workspace

Level = Literal["ok", "note", "warning", "error"]

DOCTOR = "vmrag doctor --fix"
"""The `fix` of what no other command mends."""


class Finding(Record, frozen=True):
    """Something that is not as it should be.

    `note`: nothing fails because of it; `warning`: something is worse than it could be, or will
    fail; `error`: something fails now. `fix` is a command line that mends it, or a sentence where
    only a person can. `subject`: the path or name that it is about.
    """

    code: str
    level: Level
    message: str
    fix: str
    subject: str = ""


Check = Callable[[Workspace], Iterator[Finding]]
"""Looks for findings, and changes nothing.

A `VmragError` or an `OSError` that stops it becomes a finding.
"""

Repair = Callable[[Workspace, Finding], str]
"""Mends a finding, and returns what was done. Can be run again; removes only what can be remade.

Raises as a check does.
"""


class Topic(NamedTuple):
    """`repairs` by the code of the finding: all others are left to the user."""

    name: str
    check: Check
    repairs: Mapping[str, Repair] = {}


_LEVELS: tuple[Level, ...] = ("ok", "note", "warning", "error")


class TopicReport(Record, frozen=True):
    """A topic and what was found in it; `level` is the worst of it."""

    name: str
    level: Level
    findings: tuple[Finding, ...]


class RepairedFinding(Record, frozen=True):
    """A finding that is gone, and what was done about it."""

    finding: Finding
    done: str


class DoctorReport(Record, frozen=True):
    """`healthy`: no warning and no error is left.

    `topics` as of the end, `mended` by `fix`.
    """

    healthy: bool
    topics: tuple[TopicReport, ...]
    mended: tuple[RepairedFinding, ...] = ()


def doctor(ws: Workspace, topics: Sequence[Topic], *, fix: bool = False) -> DoctorReport:
    """Without `fix` nothing is changed.

    A repair that fails leaves its finding, and its reason as a note of the progress.
    """
    looked = _look(ws, topics)
    if not fix:
        return DoctorReport(_healthy(looked), looked)
    tried = list(_mend(ws, topics, looked))
    looked = _look(ws, topics)
    left = {finding for each in looked for finding in each.findings}
    return DoctorReport(_healthy(looked), looked, tuple(each for each in tried if each.finding not in left))


def report_without_git(error: GitConfigInvalid) -> DoctorReport:
    """Return a report of the one finding that keeps everything else from being examined."""
    finding = Finding("GIT_CONFIG_DAMAGED", "error", error.message, error.hint)
    return DoctorReport(False, (TopicReport("git's configuration", "error", (finding,)),))


def _look(ws: Workspace, topics: Sequence[Topic]) -> tuple[TopicReport, ...]:
    """An error that several topics meet (unreadable settings, say) is reported by the first."""
    seen: set[tuple[str, str]] = set()
    looked = []
    for topic in topics:
        new = [finding for finding in _findings(ws, topic) if (finding.code, finding.message) not in seen]
        seen.update((each.code, each.message) for each in new)
        worst = max(("ok", *(each.level for each in new)), key=_LEVELS.index)
        looked.append(TopicReport(topic.name, worst, tuple(new)))
    return tuple(looked)


def _findings(ws: Workspace, topic: Topic) -> Iterator[Finding]:
    try:
        yield from topic.check(ws)
    except (VmragError, OSError) as error:
        known = _as_known_error(error)
        yield Finding(known.code, "error", known.message, known.hint)


def _mend(ws: Workspace, topics: Sequence[Topic], looked: Sequence[TopicReport]) -> Iterator[RepairedFinding]:
    for topic, found in zip(topics, looked, strict=True):
        for finding in found.findings:
            repair = topic.repairs.get(finding.code)
            if repair is None:
                continue
            try:
                yield RepairedFinding(finding, repair(ws, finding))
            except (VmragError, OSError) as error:
                known = _as_known_error(error)
                ws.progress.note(f"{finding.code} is left: {known.message} {known.hint}".rstrip())


def _as_known_error(error: VmragError | OSError) -> VmragError:
    """Raises an `OSError` that is a bug of ours."""
    known = error if isinstance(error, VmragError) else system_failure(error)
    if known is None:
        raise error
    return known


def _healthy(looked: Sequence[TopicReport]) -> bool:
    return all(each.level in ("ok", "note") for each in looked)
