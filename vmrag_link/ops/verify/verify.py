"""`vmrag verify`: find commits whose pins lose knowledge.

CI runs it before a merge, because the hooks and the merge driver may not have run. `verify_scope`
chooses the commits, and `verify_commits` examines each pin. This module joins the results: a loss
is only information if a later commit restores it, or a commit accepts it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import msgspec

from vmrag_link.engines.migrated import try_read_pin
from vmrag_link.errors import ConfigInvalid
from vmrag_link.file_access import write_atomically
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
from vmrag_link.ops.verify.verify_scope import LAST, VerifyScope, choose_scope
from vmrag_link.pin_values import parse_git_ref
from vmrag_link.transport.address import Address
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.commits.ancestry import Ancestry, MergeBases, carry_bits
from vmrag_link.workspace.remotes import destinations
from vmrag_link.workspace.remotes.clone import clone_from
from vmrag_link.workspace.remotes.fetch import fetch_from


class VerifyReport(Record, frozen=True):
    """The result of `verify`. The findings of parents come before those of children."""

    range: str
    commits: int
    """Number of verified commits."""
    pins: int
    """Number of commits whose pin differs from that of a parent."""
    findings: tuple[PinFinding, ...]
    shallow: bool = False
    """True if some commits of a whole history could not be compared, because this shallow clone
    lacks their parents.

    For a range, that is an error among the findings.
    """
    unpinned: bool = False
    """No commit of the range has a pin, so that no document can be lost."""

    @property
    def clean(self) -> bool:
        return not any(finding.level == "error" for finding in self.findings)


def verify(
    ws: Workspace,
    revisions: str | None = None,
    *,
    pull_request: tuple[str, str] | None = None,
    remote: str | None = None,
    deepen: bool = False,
) -> VerifyReport:
    """Compare the pin of each commit of a range with those of its parents.

    Only what the range adds is reported. A range without pins cannot lose knowledge, so it needs no
    knowledge base.

    * `revisions`: `A..B`, or a commit, which means its whole history. The default is what HEAD has
      and the remote's default branch does not. If that is empty, it is HEAD with what it merged,
      and the commits of its whole history that drop documents.
    * `pull_request`: the names of base and head instead. Then the head's pin is also compared with
      the pin of the base's tip.
    * `remote`: fetch from it, and report revisions that the range or its last commit pins and that
      the remote does not have. A fresh clone also gets its knowledge base from there.
    * `deepen`: fetch the history that a shallow clone lacks, without changing a ref. Otherwise a
      range that cannot be compared is an error among the findings.

    Raises `UsageInvalid`, `GitReferenceMissing`, `NotInitialized`, `HistoryMissing` if the history
    cannot be fetched, and with `remote` the errors of `fetch`.
    """
    _refuse_removed_settings(ws)
    scope = choose_scope(ws, revisions, pull_request, deepen=deepen)
    walk, pins = _read_pins(ws, scope)
    if pins.empty:
        return _report_unpinned(ws, scope, walk)
    list_lacking = _fetch_and_check(ws, destinations.list_fetch_addresses(ws, remote)[0]) if remote else None
    report = _report_range(ws, scope, walk, pins, list_lacking=list_lacking)
    if revisions or pull_request or scope.shown != LAST:
        return report
    reported = {finding.commit for finding in report.findings}
    earlier = (drop for drop in _list_drops(ws, scope.tip) if drop.commit not in reported)
    return msgspec.structs.replace(report, findings=(*earlier, *report.findings))


def find_open_drops(ws: Workspace) -> tuple[PinFinding, ...]:
    """Return the commits of HEAD's history whose dropped documents are still missing.

    They are in no later pin, nor in the pin of the work tree, and no commit accepts their loss
    (`history.read_accepted_drops`). Only commits since the last result without findings are read.
    This does not use the network.
    """
    head = plumbing.read_head(ws.places).commit
    if head is None or not ws.is_initialized:
        return ()
    verified = history.read_verified(ws.places)
    if verified == head:
        return ()
    exists = verified and transfer.contains_commit(ws.places, verified, verified)
    without = verified if exists else None  # otherwise the file is damaged, or git removed the commit
    pin = ws.resolve_target().pin
    findings = _list_drops(ws, head, without=without, present=pin.dolt_commit if pin else None)
    if not findings:
        with contextlib.suppress(OSError):  # the next call reads the commits again
            write_atomically(ws.places.verified, f"{head}\n".encode(), durable=False)
    return findings


def _list_drops(
    ws: Workspace, tip: str, *, without: str | None = None, present: str | None = None
) -> tuple[PinFinding, ...]:
    """Return the drops in the history of a commit. `present`: a revision that may contain them."""
    scope = VerifyScope(tip[:12], tip, without)
    walk, pins = _read_pins(ws, scope)
    findings = _report_range(ws, scope, walk, pins, list_lacking=None, present=present).findings
    return tuple(finding for finding in findings if finding.code == "KNOWLEDGE_DROPPED" and finding.level == "error")


def verify_between(
    ws: Workspace, base: str | None, head: str, *, base_name: str = "", fork: Fork | None = None, ask: bool = True
) -> VerifyReport:
    """Verify what `head` has and `base` does not, for CI, which knows them by their full hashes.

    With `base` None, the head is compared with its parents. `base_name` is how messages name the
    base of a pull request, whose pin the head's pin must contain. If it is empty, rewritten commits
    are not missed.

    The remote is the code's own if the head's pin names it, and otherwise that of the settings. It
    is not contacted if no commit has a pin, or if `ask` is false, and git does not ask for
    passwords. Raises the errors of `verify`.
    """
    _refuse_removed_settings(ws)
    without = base or next(iter(objects.read_parents(ws.places, head)), None)
    scope = VerifyScope(f"{without[:12]}..{head[:12]}" if without else head[:12], head, without, base_name)
    walk, pins = _read_pins(ws, scope)
    if pins.empty:
        return _report_unpinned(ws, scope, walk)
    list_lacking = None
    if ask:
        addresses = destinations.list_trusted_addresses(ws, find_knowledge_remote(ws, head))
        list_lacking = _fetch_and_check(ws, addresses[0])
    return _report_range(ws, scope, walk, pins, list_lacking=list_lacking, fork=fork)


def _report_unpinned(ws: Workspace, scope: VerifyScope, walk: Walk) -> VerifyReport:
    """Report a range without pins. A shallow clone may lack the commits that have one."""
    findings = _check_comparable(ws, scope, walk, MergeBases(ws.places, *scope.ends))
    return VerifyReport(scope.shown, len(walk.parents), 0, tuple(findings), unpinned=True)


def find_landing_drop(ws: Workspace, landed: str, proposed: str) -> PinFinding | None:
    """Return a finding if a merged commit does not contain what its pull request pinned.

    `landed` is the commit that the pull request with the head `proposed` became. It is also a
    finding if the pins cannot be compared. A squash that keeps the base's pin changes no pin, so a
    check of the base's commits does not find this.
    """
    pins = history.read_pins(ws.places, [landed, proposed])
    landed_pin = try_read_pin(ws.places.kb, pins.get(landed))
    proposed_pin = try_read_pin(ws.places.kb, pins.get(proposed))
    if proposed_pin is None or (landed_pin and landed_pin.dolt_commit == proposed_pin.dolt_commit):
        return None
    revision = proposed_pin.dolt_commit
    message = f"the pull request pinned {revision[:12]}, and its merge {landed[:12]} "
    if landed_pin is None:
        message += "has no readable pin."
    elif not all(ws.is_initialized and ws.engine.has_revision(name) for name in (revision, landed_pin.dolt_commit)):
        message += (
            f"pins {landed_pin.dolt_commit[:12]}. These cannot be compared, because one of the revisions is missing."
        )
        return PinFinding(
            "PIN_REVISION_MISSING", "error", landed, message, "run 'vmrag push' in the clone that pinned it"
        )
    elif ws.engine.is_ancestor(revision, landed_pin.dolt_commit):
        return None
    else:
        message += f"pins {landed_pin.dolt_commit[:12]}, which does not contain it."
    return PinFinding("KNOWLEDGE_DROPPED", "error", landed, message, f"run 'vmrag merge {revision}' to merge it")


def find_knowledge_remote(ws: Workspace, head: str) -> str:
    """Return the remote where CI looks for what a commit pins.

    It is a ref of the code's own remote if the pin names one, and otherwise the remote of the
    settings.
    """
    pin = try_read_pin(ws.places.kb, history.read_pins(ws.places, [head]).get(head))
    return pin.dolt_remote if pin and parse_git_ref(pin.dolt_remote) else ws.settings.read_accepted_remote()


def _refuse_removed_settings(ws: Workspace) -> None:
    """Raise `ConfigInvalid` for a removed setting that made this check fail."""
    removed = ws.settings.loaded.removed.get("import.on_stale")
    if removed and removed.value == "fail":
        raise ConfigInvalid(
            f"{removed.place}: import.on_stale was removed, and 'vmrag verify' no longer compares files with copies.",
            hint=f"delete the setting {removed.place}, or run 'vmrag sources dedupe' to remove copies of tracked files",
            key="import.on_stale",
        )


ListLacking = Callable[[Collection[str]], Collection[str]]
"""A function that returns those of the given revisions that a remote lacks."""


def _fetch_and_check(ws: Workspace, address: Address) -> ListLacking:
    """Fetch everything from a remote, and return the function that lists what it lacks."""
    if not ws.is_initialized:
        clone_from(ws, [address])
    fetch_from(ws, address)
    heads = ws.engine.remote_heads(address.key).values()
    return lambda revisions: ws.engine.find_unreachable(revisions, heads=heads)


def _read_pins(ws: Workspace, scope: VerifyScope) -> tuple[Walk, ReadPins]:
    walk = history.walk_range(ws.places, scope.tip, without=scope.without)
    return walk, ReadPins.from_walk(ws.places.kb, walk, history.read_pins(ws.places, scope.ends))


def _report_range(
    ws: Workspace,
    scope: VerifyScope,
    walk: Walk,
    pins: ReadPins,
    *,
    list_lacking: ListLacking | None,
    fork: Fork | None = None,
    present: str | None = None,
) -> VerifyReport:
    """Report on a range.

    `list_lacking`: None if the remote is not asked. `present`: a revision that the work tree pins,
    which may contain what was dropped.
    """
    merge_bases = MergeBases(ws.places, *scope.ends)
    conflicted_commits = _list_conflicted_commits(ws, scope)
    conflicting_revisions = [side for commit in conflicted_commits for side in commit.sides]
    examination = Examination(
        pins,
        Ancestry(ws.engine, [*pins.revisions, *conflicting_revisions, *filter(None, [present])]),
        merge_bases,
        PinHistory(ws.places, scope.tip),
        tip=scope.tip,
        of_remote=list_lacking is not None,
        fork=fork,
    )
    flaws = examination.examine_commits(walk.changes)
    flawed_commits = {flaw.finding.commit for flaw in flaws}
    flaws += [commit.flaw for commit in conflicted_commits if commit.flaw and commit.commit not in flawed_commits]
    if list_lacking:
        flaws += examination.list_unreached(walk.changes, list_lacking)
    findings = _mark_accepted(ws, scope, _mark_restored(walk, pins, flaws, examination, present))
    if scope.base and scope.without:
        base_drop = examination.compare_with_base(scope.without, scope.base)
        findings += [base_drop] if base_drop else []
    findings += _check_comparable(ws, scope, walk, merge_bases, cut=examination.cut)
    findings += examination.list_accepted_losses(scope.without)
    shallow = scope.without is None and (bool(walk.cut) or examination.cut)
    return VerifyReport(scope.shown, len(walk.parents), len(walk.changes), tuple(findings), shallow)


def _list_conflicted_commits(ws: Workspace, scope: VerifyScope) -> list[ConflictedCommit]:
    conflicted_commits = []
    for commit in pin_conflict.list_jj_conflict_commits(ws.places, scope.tip, scope.without):
        bases, sides = pin_conflict.read_jj_conflict_pins(ws.places, commit)
        conflicted_commits.append(ConflictedCommit(commit, _list_revisions(ws, bases), _list_revisions(ws, sides)))
    return conflicted_commits


def _list_revisions(ws: Workspace, pins: Iterable[bytes]) -> tuple[str, ...]:
    readable_pins = filter(None, (try_read_pin(ws.places.kb, data) for data in pins))
    return tuple(pin.dolt_commit for pin in readable_pins)


def _check_comparable(
    ws: Workspace, scope: VerifyScope, walk: Walk, merge_bases: MergeBases, *, cut: bool = False
) -> Iterator[PinFinding]:
    """Yield an error if a shallow clone lacks the commits that decide about the range.

    For a whole history, it is an error only if all its commits lack their parents. Otherwise, the
    report is only marked as shallow.
    """
    if scope.without:
        is_unknown = cut or not merge_bases.is_settled(scope.tip, scope.without, walk.parents)
    else:  # git also cuts at a root, which has no parents
        is_only_cut = walk.parents.keys() <= walk.cut
        is_unknown = is_only_cut and any(objects.read_parents(ws.places, commit) for commit in walk.parents)
    if is_unknown:
        yield build_not_comparable(scope.tip, scope.shown)


def _mark_restored(
    walk: Walk, pins: ReadPins, flaws: Sequence[Flaw], examination: Examination, present: str | None
) -> list[PinFinding]:
    """Return the findings. A finding whose loss a later pin restores becomes information.

    A set of flaws is a number whose bits are the positions in `flaws`, because a history can have
    thousands of both.
    """
    own_flaws: dict[str, int] = {}
    for number, flaw in enumerate(flaws):
        own_flaws[flaw.finding.commit] = own_flaws.get(flaw.finding.commit, 0) | 1 << number
    flaws_so_far = carry_bits(walk.parents, own_flaws)
    restored_by: dict[int, str] = {}
    for change in walk.changes:
        earlier = 0
        for parent in change.parents:
            earlier |= flaws_so_far.get(parent, 0)
        pin = pins.find_revision(change.after)
        for number in _list_bits(earlier):
            if number not in restored_by and examination.restores_loss(pin, flaws[number]):
                restored_by[number] = change.commit
    findings = []
    for number, flaw in enumerate(flaws):
        by = restored_by.get(number) or ("the working tree" if examination.restores_loss(present, flaw) else None)
        if by and flaw.finding.level == "error":
            findings.append(msgspec.structs.replace(flaw.finding, level="information", hint="", mended_by=by))
        else:
            findings.append(flaw.finding)
    return findings


def _list_bits(bits: int) -> Iterator[int]:
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def _mark_accepted(ws: Workspace, scope: VerifyScope, findings: Sequence[PinFinding]) -> list[PinFinding]:
    """Return the findings. A drop that a commit accepts by name becomes information.

    Commits of a pull request cannot accept their own drops, but a reviewer sees what they accept.
    """
    marked = [*findings]
    dropping = [number for number, finding in enumerate(marked) if finding.code == "KNOWLEDGE_DROPPED" and finding.hint]
    tip = scope.without if scope.base else scope.tip
    accepted = history.read_accepted_drops(ws.places, tip) if dropping and tip else {}
    for number in dropping:
        finding = marked[number]
        by = accepted.get(finding.commit)
        if by:
            message = f"{finding.message} Commit {by[:12]} accepts this."
            marked[number] = msgspec.structs.replace(finding, level="information", message=message, hint="")
    if scope.base and scope.without:
        for commit, by in history.read_accepted_drops(ws.places, scope.tip, without=scope.without).items():
            message = f"commit {by[:12]} accepts that commit {commit[:12]} drops documents."
            marked.append(PinFinding("LOSS_ACCEPTED", "information", by, message, f"run 'git show {by[:12]}'"))
    return marked
