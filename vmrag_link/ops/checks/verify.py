"""`vmrag verify`: do the pins of git's history lose knowledge? CI asks that before a merge, as
hooks and merge driver may not have run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from vmrag_link.errors import GitReferenceMissing, UsageInvalid, quoted
from vmrag_link.git import history, plumbing, transfer
from vmrag_link.git.history import Walk
from vmrag_link.models import Record
from vmrag_link.ops.checks.verify_commits import Examination, Flaw, PinFinding
from vmrag_link.ops.checks.verify_pins import ReadPins
from vmrag_link.ops.commits.ancestry import Ancestry, carried
from vmrag_link.ops.remotes import destinations
from vmrag_link.ops.remotes.clone import clone
from vmrag_link.ops.remotes.fetch import fetch_from
from vmrag_link.workspace import Workspace


class VerifyReport(Record, frozen=True):
    """`commits`: how many were looked at; `pins`: how many of them have another pin than a parent.

    Findings: parents before children.

    `shallow`: some of the commits could not be compared with their parents, which this clone does
    not have.
    """

    range: str
    commits: int
    pins: int
    findings: tuple[PinFinding, ...]
    shallow: bool = False

    @property
    def clean(self) -> bool:
        return not any(each.level == "error" for each in self.findings)


class Scope(NamedTuple):
    """What `tip` reaches and `without` does not; `shown` is how git names that."""

    shown: str
    tip: str
    without: str | None = None


def verify(
    ws: Workspace,
    revisions: str | None = None,
    *,
    pull_request: tuple[str, str] | None = None,
    reachable: Callable[[Collection[str]], Collection[str]] | None = None,
) -> VerifyReport:
    """Compare the pin of each commit of a range with those of its parents (`pins.rules`).

    Only what the range brings is reported.

    `revisions`: `A..B`, or a commit, which stands for its whole history; by default what HEAD has
    and the remote's default branch has not, and where that is nothing, HEAD with what it merged.
    `pull_request`: the names of base and head instead; then the head's pin is compared with that of
    the base's tip, too. `reachable`: says which of the revisions that the range pins, its last
    commit in any case, the knowledge base's remote does NOT reach; without it nobody is asked.
    Raises `UsageInvalid`, `GitReferenceMissing`, `NotInitialized`.
    """
    engine = ws.engine
    scope = _scope(ws, revisions, pull_request)
    walk = history.walk(ws.places, scope.tip, without=scope.without)
    ends = [scope.tip, *([scope.without] if pull_request and scope.without else [])]
    pins = ReadPins.of(walk, history.pins_of(ws.places, ends))
    ancestry = Ancestry(engine, pins.revisions)
    examination = Examination(ws.places, pins, ancestry, tip=scope.tip, of_remote=reachable is not None)
    flaws = [flaw for change in walk.changes if (flaw := examination.examined(change))]
    if reachable:
        flaws += examination.unreached(walk.changes, reachable)
    findings = _with_mended(walk, flaws, examination)
    if pull_request and scope.without and (found := examination.against(scope.without, pull_request[0])):
        findings.append(found)
    shallow = bool(walk.cut) or examination.cut
    return VerifyReport(scope.shown, len(walk.parents), len(walk.changes), tuple(findings), shallow)


def verify_on(
    ws: Workspace, remote: str, revisions: str | None = None, *, pull_request: tuple[str, str] | None = None
) -> VerifyReport:
    """As `verify`, after a fetch of everything from a remote.

    The pins of the range and of its last commit must be reachable there.

    In a fresh clone the knowledge base comes from there, too. Raises as `ops.remotes.fetch.fetch`.
    """
    if not ws.initialized:
        clone(ws, remote)
    address = destinations.asked(ws, remote)[0]
    fetch_from(ws, address)
    heads = ws.engine.remote_heads(address.key).values()

    def lacking(asked: Collection[str]) -> Collection[str]:
        return ws.engine.unreachable(asked, heads=heads)

    return verify(ws, revisions, pull_request=pull_request, reachable=lacking)


def _scope(ws: Workspace, revisions: str | None, pull_request: tuple[str, str] | None) -> Scope:
    if pull_request:
        base, head = pull_request
        if revisions:
            raise UsageInvalid(
                "Give a range or a pull request, not both.",
                hint=f"vmrag verify --pull-request {quoted(base)} {quoted(head)}",
            )
        return _between(ws, base, head)
    if revisions is None:
        return _news(ws)
    if "..." in revisions:
        left, _, right = revisions.partition("...")
        raise UsageInvalid(
            f"{revisions} is a comparison of two tips; here the commits of one are looked at.",
            hint=f"vmrag verify --pull-request {quoted(left or 'HEAD')} {quoted(right or 'HEAD')}",
        )
    if ".." in revisions:
        left, _, right = revisions.partition("..")
        return _between(ws, left or "HEAD", right or "HEAD")
    return Scope(revisions, plumbing.resolve(ws.places, revisions))


def _between(ws: Workspace, left: str, right: str) -> Scope:
    tip, without = plumbing.resolve(ws.places, right), plumbing.resolve(ws.places, left)
    return Scope(f"{left}..{right}", tip, without)


def _news(ws: Workspace) -> Scope:
    """HEAD without the remote's default branch or, if that is unknown, without the branch's
    upstream. HEAD alone, if that is empty.
    """
    for accepted in ("refs/remotes/origin/HEAD", "@{upstream}"):
        with contextlib.suppress(GitReferenceMissing):
            news = _between(ws, accepted, "HEAD")
            there = news.without is not None and transfer.contains(ws.places, news.without, news.tip)
            return _last(ws) if there else news
    return Scope("HEAD", plumbing.resolve(ws.places, "HEAD"))


def _last(ws: Workspace) -> Scope:
    """HEAD, with what it merged if it is a merge."""
    with contextlib.suppress(GitReferenceMissing):  # a root, or the end of a shallow clone
        return _between(ws, "HEAD^", "HEAD")
    return Scope("HEAD", plumbing.resolve(ws.places, "HEAD"))


def _with_mended(walk: Walk, flaws: Sequence[Flaw], examination: Examination) -> list[PinFinding]:
    """The findings; one whose loss a later commit made good is information.

    Every commit carries a bit for each flaw at or before it.
    """
    own: dict[str, int] = {}
    for number, flaw in enumerate(flaws):
        own[flaw.finding.commit] = own.get(flaw.finding.commit, 0) | 1 << number
    bits = carried(walk.parents, own)
    mended: dict[int, str] = {}
    for change in walk.changes:
        before = 0
        for parent in change.parents:
            before |= bits.get(parent, 0)
        holds = examination.holding(change)
        left = (number for number in _numbers(before) if number not in mended and holds(flaws[number].needs))
        mended |= dict.fromkeys(left, change.commit)
    return list(_findings(flaws, mended))


def _numbers(bits: int) -> Iterator[int]:
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def _findings(flaws: Sequence[Flaw], mended: Mapping[int, str]) -> Iterator[PinFinding]:
    for number, flaw in enumerate(flaws):
        by = mended.get(number)
        if by and flaw.finding.level == "error":
            yield msgspec.structs.replace(flaw.finding, level="information", hint="", mended_by=by)
        else:
            yield flaw.finding
