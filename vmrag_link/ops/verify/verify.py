"""`vmrag verify`: do the pins of git's history lose knowledge? CI asks that before a merge, as
hooks and merge driver may not have run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from vmrag_link.engines.migrated import try_read_pin
from vmrag_link.errors import ConfigInvalid, GitReferenceMissing, UsageInvalid, quoted
from vmrag_link.git import history, objects, pin_conflict, plumbing, transfer
from vmrag_link.git.history import Walk
from vmrag_link.models import Record
from vmrag_link.ops.verify.verify_commits import (
    ConflictedCommit,
    Examination,
    Flaw,
    Fork,
    PinFinding,
    build_not_comparable,
)
from vmrag_link.ops.verify.verify_pins import PinHistory, ReadPins
from vmrag_link.paths import Places, write_atomically
from vmrag_link.pin_values import parse_git_ref
from vmrag_link.transport.address import Address
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.commits import deepen as deepening
from vmrag_link.workspace.commits.ancestry import Ancestry, MergeBases, carry_bits
from vmrag_link.workspace.remotes import destinations
from vmrag_link.workspace.remotes.clone import clone_from
from vmrag_link.workspace.remotes.fetch import fetch_from


class VerifyReport(Record, frozen=True):
    """`commits`: how many were looked at; `pins`: how many of them have another pin than a parent.

    Findings: parents before children.

    `shallow`: of a whole history, some commits could not be compared with their parents, which this
    clone does not have. Of a range that is an error among the findings.
    """

    range: str
    commits: int
    pins: int
    findings: tuple[PinFinding, ...]
    shallow: bool = False
    unpinned: bool = False
    """No commit of the range has a pin, so that no document can be lost."""

    @property
    def clean(self) -> bool:
        return not any(finding.level == "error" for finding in self.findings)


_LAST = "HEAD^..HEAD"


class VerifyScope(NamedTuple):
    """What `tip` reaches and `without` does not; `shown` is how git names that.

    `base`: what people call `without`, if the tip's pin has to hold what that pins.
    """

    shown: str
    tip: str
    without: str | None = None
    base: str = ""

    @property
    def ends(self) -> list[str]:
        return [self.tip, *([self.without] if self.without else [])]


def verify(
    ws: Workspace,
    revisions: str | None = None,
    *,
    pull_request: tuple[str, str] | None = None,
    remote: str | None = None,
    reachable: Callable[[Collection[str]], Collection[str]] | None = None,
    deepen: bool = False,
) -> VerifyReport:
    """Compare the pin of each commit of a range with those of its parents.

    Only what the range brings is reported. A range without pins has nothing to lose: it needs no
    knowledge base.

    `revisions`: `A..B`, or a commit, which stands for its whole history; by default what HEAD has
    and the remote's default branch has not. Where that is nothing, HEAD with what it merged, and
    the commits of its whole history that drop knowledge.
    `pull_request`: the names of base and head instead; then the head's pin is compared with that of
    the base's tip, too. `remote`: fetch from it, and report revisions that the range or its last
    commit pins and that it does not reach; a fresh clone also gets its knowledge base from there.
    `reachable` replaces the fetch: it returns which of the given revisions the remote lacks.
    A range that a shallow clone cannot compare is an error among the findings, unless it may
    `deepen` the history, which no ref notices. Raises `UsageInvalid`, `GitReferenceMissing`,
    `NotInitialized`, `HistoryMissing` if the history cannot be fetched, and with `remote` the
    errors of `fetch`.
    """
    _refuse_removed_settings(ws)
    scope = _scope(ws, revisions, pull_request, deepening.resolve_name if deepen else plumbing.resolve_commit)
    if deepen:
        scope = _deepened(ws, scope, whole=revisions is not None)
    walk, pins = _read(ws, scope)
    if pins.empty:
        return _unpinned(ws, scope, walk)
    if remote:
        reachable = _lacking(ws, destinations.list_fetch_addresses(ws, remote)[0])
    report = _report(ws, scope, walk, pins, reachable=reachable)
    if revisions or pull_request or scope.shown != _LAST:
        return report
    known = {finding.commit for finding in report.findings}
    earlier = (drop for drop in _drops(ws, scope.tip) if drop.commit not in known)
    return msgspec.structs.replace(report, findings=(*earlier, *report.findings))


def find_open_drops(ws: Workspace) -> tuple[PinFinding, ...]:
    """The commits of HEAD's history that drop knowledge which neither a later pin nor the one of
    the work tree contains, and whose loss no commit accepts (see `history.accepted_drops`).

    Only commits since the last answer without findings are read. Asks no remote.
    """
    head = plumbing.read_head(ws.places).commit
    if head is None or not ws.is_initialized:
        return ()
    verified = history.read_verified(ws.places)
    if verified == head:
        return ()
    here = verified and transfer.contains_commit(ws.places, verified, verified)
    without = verified if here else None  # else the file is damaged, or git removed the commit
    pin = ws.resolve_target().pin
    findings = _drops(ws, head, without=without, present=pin.dolt_commit if pin else None)
    if not findings:
        with contextlib.suppress(OSError):  # the next call reads the commits again
            write_atomically(ws.places.verified, f"{head}\n".encode(), durable=False)
    return findings


def _drops(
    ws: Workspace, tip: str, *, without: str | None = None, present: str | None = None
) -> tuple[PinFinding, ...]:
    scope = VerifyScope(tip[:12], tip, without)
    walk, pins = _read(ws, scope)
    findings = _report(ws, scope, walk, pins, reachable=None, present=present).findings
    return tuple(finding for finding in findings if finding.code == "KNOWLEDGE_DROPPED" and finding.level == "error")


def verify_between(
    ws: Workspace, base: str | None, head: str, *, base_name: str = "", fork: Fork | None = None, ask: bool = True
) -> VerifyReport:
    """Verify what `head` has and `base` has not, for CI, which knows them by full names.

    `base` None: the head is compared with its parents. `base_name`: how messages call the base of a
    pull request, whose pin the head's has to contain, too; empty: what was rewritten is not missed.
    The remote is the code's own, if the head's pin says so, else that of the settings; nobody is
    asked for a password. Where no commit pins anything, and where `ask` is false, no remote is
    asked at all. Raises the errors of `verify`.
    """
    _refuse_removed_settings(ws)
    without = base or next(iter(objects.read_parents(ws.places, head)), None)
    scope = VerifyScope(f"{without[:12]}..{head[:12]}" if without else head[:12], head, without, base_name)
    walk, pins = _read(ws, scope)
    if pins.empty:
        return _unpinned(ws, scope, walk)
    lacking = _lacking(ws, destinations.list_trusted_addresses(ws, find_knowledge_remote(ws, head))[0]) if ask else None
    return _report(ws, scope, walk, pins, reachable=lacking, fork=fork)


def _unpinned(ws: Workspace, scope: VerifyScope, walk: Walk) -> VerifyReport:
    """Report a range without pins. A shallow clone may lack the commits that have one."""
    findings = _not_comparable(ws, scope, walk, MergeBases(ws.places, *scope.ends))
    return VerifyReport(scope.shown, len(walk.parents), 0, tuple(findings), unpinned=True)


def find_landing_drop(ws: Workspace, landed: str, proposed: str) -> PinFinding | None:
    """What a pull request's head pinned, if the commit that it became does not contain it, or if
    nobody can say so.

    A squash that kept the base's pin changes no pin: of the base's commits alone nobody sees it.
    """
    pins = history.read_pins(ws.places, [landed, proposed])
    there, theirs = (try_read_pin(ws.places.kb, pins.get(each)) for each in (landed, proposed))
    if theirs is None or (there and there.dolt_commit == theirs.dolt_commit):
        return None
    revision = theirs.dolt_commit
    message = f"The pull request pinned {revision[:12]}, and {landed[:12]}, as which it was merged, "
    if there is None:
        message += "pins nothing that can be read."
    elif not all(ws.is_initialized and ws.engine.has_revision(each) for each in (revision, there.dolt_commit)):
        message += (
            f"pins {there.dolt_commit[:12]}: whether that contains it cannot be said, because one of them is nowhere."
        )
        return PinFinding("PIN_REVISION_MISSING", "error", landed, message, "Who pinned it pushes it: vmrag push")
    elif ws.engine.is_ancestor(revision, there.dolt_commit):
        return None
    else:
        message += f"pins {there.dolt_commit[:12]}, which does not contain it."
    return PinFinding("KNOWLEDGE_DROPPED", "error", landed, message, f"vmrag merge {revision}")


def find_knowledge_remote(ws: Workspace, head: str) -> str:
    """Where CI looks for what a commit pins: a ref of the code's own remote, if its pin says so,
    else what the settings name, whatever the pin says.
    """
    pin = try_read_pin(ws.places.kb, history.read_pins(ws.places, [head]).get(head))
    return pin.dolt_remote if pin and parse_git_ref(pin.dolt_remote) else ws.settings.read_accepted_remote()


def _refuse_removed_settings(ws: Workspace) -> None:
    """Raise `ConfigInvalid` for a removed setting that made this check fail."""
    removed = ws.settings.loaded.removed.get("import.on_stale")
    if removed and removed.value == "fail":
        raise ConfigInvalid(
            f"{removed.place}: import.on_stale was removed, and 'vmrag verify' no longer compares files with copies.",
            hint=f"Delete the setting: {removed.place}   (to remove copies of tracked files: vmrag sources dedupe)",
            key="import.on_stale",
        )


def _lacking(ws: Workspace, address: Address) -> Callable[[Collection[str]], Collection[str]]:
    """Fetch everything from a remote; tells which revisions it does not reach."""
    if not ws.is_initialized:
        clone_from(ws, [address])
    fetch_from(ws, address)
    heads = ws.engine.remote_heads(address.key).values()
    return lambda asked: ws.engine.find_unreachable(asked, heads=heads)


def _read(ws: Workspace, scope: VerifyScope) -> tuple[Walk, ReadPins]:
    walk = history.walk_range(ws.places, scope.tip, without=scope.without)
    return walk, ReadPins.from_walk(ws.places.kb, walk, history.read_pins(ws.places, scope.ends))


def _report(
    ws: Workspace,
    scope: VerifyScope,
    walk: Walk,
    pins: ReadPins,
    *,
    reachable: Callable[[Collection[str]], Collection[str]] | None,
    fork: Fork | None = None,
    present: str | None = None,
) -> VerifyReport:
    """Report on a range. `present`: a pin after the range, which can restore what was dropped."""
    merge_bases, past = MergeBases(ws.places, *scope.ends), PinHistory(ws.places, scope.tip)
    asked_remote, halves = reachable is not None, _half_merged(ws, scope)
    ancestry = Ancestry(
        ws.engine, [*pins.revisions, *(side for halve in halves for side in halve.sides), *filter(None, [present])]
    )
    examination = Examination(pins, ancestry, merge_bases, past, tip=scope.tip, of_remote=asked_remote, fork=fork)
    flaws = [flaw for change in walk.changes if (flaw := examination.examine_commit(change))]
    known = {each.finding.commit for each in flaws}
    flaws += [flaw for halve in halves if halve.commit not in known and (flaw := halve.flaw)]
    if reachable:
        flaws += examination.list_unreached(walk.changes, reachable)
    findings = _with_accepted(ws, scope, _with_mended(walk, flaws, examination, present))
    if scope.base and scope.without and (found := examination.compare_with_base(scope.without, scope.base)):
        findings.append(found)
    findings += _not_comparable(ws, scope, walk, merge_bases, cut=examination.cut)
    findings += examination.list_accepted_losses(scope.without)
    shallow = scope.without is None and (bool(walk.cut) or examination.cut)
    return VerifyReport(scope.shown, len(walk.parents), len(walk.changes), tuple(findings), shallow)


def _half_merged(ws: Workspace, scope: VerifyScope) -> list[ConflictedCommit]:
    commits = pin_conflict.list_jj_conflict_commits(ws.places, scope.tip, scope.without)
    found = {each: pin_conflict.read_jj_conflict_pins(ws.places, each) for each in commits}
    return [ConflictedCommit(commit, *(_revisions(ws, pins) for pins in both)) for commit, both in found.items()]


def _revisions(ws: Workspace, pins: Iterable[bytes]) -> tuple[str, ...]:
    return tuple(pin.dolt_commit for data in pins if (pin := try_read_pin(ws.places.kb, data)))


def _not_comparable(
    ws: Workspace, scope: VerifyScope, walk: Walk, merge_bases: MergeBases, *, cut: bool = False
) -> Iterator[PinFinding]:
    """The error of a shallow clone that does not have what decides about a range, or of a whole
    history nothing but commits without their parents. Of one that goes further it is only said
    that it is cut.
    """
    alone = not scope.without and walk.parents.keys() <= walk.cut
    lacking = alone and any(
        objects.read_parents(ws.places, parent) for parent in walk.parents
    )  # git cuts at a root, too
    if lacking or (scope.without and (cut or not merge_bases.is_settled(scope.tip, scope.without, walk.parents))):
        yield build_not_comparable(scope.tip, scope.shown)


def _deepened(ws: Workspace, scope: VerifyScope, *, whole: bool) -> VerifyScope:
    """The scope with the history that it needs. `whole`: it is a whole history because somebody
    said so.
    """
    if scope.without is None and not whole:  # perhaps because the parents of HEAD are not here
        deepening.make_comparable(ws.places, None, scope.tip)
        news = _news(ws)
        scope = news if news.without else _last(ws)  # a checkout of one commit knows no branch, either
    if scope.without:
        deepening.make_comparable(ws.places, scope.without, scope.tip)
    else:
        deepening.fetch_all_history(ws.places, scope.tip)
    return scope


def _scope(
    ws: Workspace,
    revisions: str | None,
    pull_request: tuple[str, str] | None,
    resolve: Callable[[Places, str], str],
) -> VerifyScope:
    if pull_request:
        base, head = pull_request
        if revisions:
            raise UsageInvalid(
                "Give a range or a pull request, not both.",
                hint=f"vmrag verify --pull-request {quoted(base)} {quoted(head)}",
            )
        return _between(ws, base, head, resolve)._replace(base=base)
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
        return _between(ws, left or "HEAD", right or "HEAD", resolve)
    return VerifyScope(revisions, resolve(ws.places, revisions))


def _between(
    ws: Workspace, left: str, right: str, resolve: Callable[[Places, str], str] = plumbing.resolve_commit
) -> VerifyScope:
    tip, without = resolve(ws.places, right), resolve(ws.places, left)
    return VerifyScope(f"{left}..{right}", tip, without)


def _news(ws: Workspace) -> VerifyScope:
    """HEAD without the remote's default branch or, if that is unknown, without the branch's
    upstream. HEAD alone, if that is empty.
    """
    for accepted in ("refs/remotes/origin/HEAD", "@{upstream}"):
        with contextlib.suppress(GitReferenceMissing):
            news = _between(ws, accepted, "HEAD")
            there = news.without is not None and transfer.contains_commit(ws.places, news.without, news.tip)
            return _last(ws) if there else news
    return VerifyScope("HEAD", plumbing.resolve_commit(ws.places, "HEAD"))


def _last(ws: Workspace) -> VerifyScope:
    """HEAD, with what it merged if it is a merge."""
    with contextlib.suppress(GitReferenceMissing):  # a root, or the end of a shallow clone
        return _between(ws, "HEAD^", "HEAD")
    return VerifyScope("HEAD", plumbing.resolve_commit(ws.places, "HEAD"))


def _with_mended(
    walk: Walk, flaws: Sequence[Flaw], examination: Examination, present: str | None = None
) -> list[PinFinding]:
    """The findings; one whose loss a later commit made good is information.

    Every commit carries a bit for each flaw at or before it.
    """
    own: dict[str, int] = {}
    for number, flaw in enumerate(flaws):
        own[flaw.finding.commit] = own.get(flaw.finding.commit, 0) | 1 << number
    bits = carry_bits(walk.parents, own)
    mended: dict[int, str] = {}
    for change in walk.changes:
        before = 0
        for parent in change.parents:
            before |= bits.get(parent, 0)
        holds = examination.holding(change)
        left = (number for number in _numbers(before) if number not in mended and holds(flaws[number].needs))
        mended |= dict.fromkeys(left, change.commit)
    holds = examination.holding_pin(present)
    mended |= {n: "the work tree" for n, flaw in enumerate(flaws) if n not in mended and holds(flaw.needs)}
    return list(_findings(flaws, mended))


def _with_accepted(ws: Workspace, scope: VerifyScope, findings: Sequence[PinFinding]) -> list[PinFinding]:
    """The findings; a drop that a commit accepts by name is information.

    What the commits of a pull request accept does not apply to themselves, but a reviewer sees it.
    """
    found = [*findings]
    dropping = [number for number, each in enumerate(found) if each.code == "KNOWLEDGE_DROPPED" and each.hint]
    tip = scope.without if scope.base else scope.tip
    accepted = history.read_accepted_drops(ws.places, tip) if dropping and tip else {}
    for number in dropping:
        finding = found[number]
        if by := accepted.get(finding.commit):
            message = f"{finding.message} Commit {by[:12]} accepts this."
            found[number] = msgspec.structs.replace(finding, level="information", message=message, hint="")
    if scope.base and scope.without:
        for commit, by in history.read_accepted_drops(ws.places, scope.tip, without=scope.without).items():
            message = f"Commit {by[:12]} accepts that commit {commit[:12]} drops knowledge."
            found.append(PinFinding("LOSS_ACCEPTED", "information", by, message, f"git show {by[:12]}"))
    return found


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
