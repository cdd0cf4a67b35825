"""Check all topics, mend what can be mended without asking, and check again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vmrag_link.errors import VmragError, system_failure
from vmrag_link.models import Record
from vmrag_link.ops.upkeep.doctor.findings import Finding, Level, Topic
from vmrag_link.workspace import Workspace

_LEVELS: tuple[Level, ...] = ("ok", "note", "warning", "error")


class Looked(Record, frozen=True):
    """A topic and what was found in it; `level` is the worst of it."""

    name: str
    level: Level
    findings: tuple[Finding, ...]


class Mended(Record, frozen=True):
    """A finding that is gone, and what was done about it."""

    finding: Finding
    done: str


class DoctorReport(Record, frozen=True):
    """`healthy`: no warning and no error is left.

    `topics` as of the end, `mended` by `fix`.
    """

    healthy: bool
    topics: tuple[Looked, ...]
    mended: tuple[Mended, ...] = ()


def doctor(ws: Workspace, topics: Sequence[Topic], *, fix: bool = False) -> DoctorReport:
    """Without `fix` nothing is changed.

    A repair that fails leaves its finding, and its reason as a note of the progress.
    """
    looked = _look(ws, topics)
    if not fix:
        return DoctorReport(_healthy(looked), looked)
    tried = list(_repaired(ws, topics, looked))
    looked = _look(ws, topics)
    left = {finding for each in looked for finding in each.findings}
    return DoctorReport(_healthy(looked), looked, tuple(each for each in tried if each.finding not in left))


def _look(ws: Workspace, topics: Sequence[Topic]) -> tuple[Looked, ...]:
    """An error that several topics meet (unreadable settings, say) is reported by the first."""
    seen: set[tuple[str, str]] = set()
    looked = []
    for topic in topics:
        new = [each for each in _findings(ws, topic) if (each.code, each.message) not in seen]
        seen.update((each.code, each.message) for each in new)
        worst = max(("ok", *(each.level for each in new)), key=_LEVELS.index)
        looked.append(Looked(topic.name, worst, tuple(new)))
    return tuple(looked)


def _findings(ws: Workspace, topic: Topic) -> Iterator[Finding]:
    try:
        yield from topic.check(ws)
    except (VmragError, OSError) as error:
        known = _known(error)
        yield Finding(known.code, "error", known.message, known.hint)


def _repaired(ws: Workspace, topics: Sequence[Topic], looked: Sequence[Looked]) -> Iterator[Mended]:
    for topic, found in zip(topics, looked, strict=True):
        for finding in found.findings:
            repair = topic.repairs.get(finding.code)
            if repair is None:
                continue
            try:
                yield Mended(finding, repair(ws, finding))
            except (VmragError, OSError) as error:
                known = _known(error)
                ws.progress.note(f"{finding.code} is left: {known.message} {known.hint}".rstrip())


def _known(error: VmragError | OSError) -> VmragError:
    """Raises an `OSError` that is a bug of ours."""
    known = error if isinstance(error, VmragError) else system_failure(error)
    if known is None:
        raise error
    return known


def _healthy(looked: Sequence[Looked]) -> bool:
    return all(each.level in ("ok", "note") for each in looked)
