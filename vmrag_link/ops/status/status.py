"""`vmrag status`: do pin, knowledge base and index agree, and if not, what to type.

Changes nothing but what is remembered of files; needs no index extra.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from vmrag_link import locks
from vmrag_link.engines import migrated
from vmrag_link.engines.base import ASIDE_PREFIX
from vmrag_link.errors import IndexFailed, PinMalformed, PinRevisionMissing, RowsInvalid, VmragError, enumerated, quoted
from vmrag_link.git import history, objects, pin_conflict, pin_merge, plumbing
from vmrag_link.index import view as views
from vmrag_link.index.view import FORMAT
from vmrag_link.models import Record, WorkingSet
from vmrag_link.ops.status.cautions import check_path_length, list_cautions
from vmrag_link.ops.status.changes import PendingChanges, SourcesStatus, collect_changes, read_sources_status
from vmrag_link.paths import PIN_NAME
from vmrag_link.sync import background, lease
from vmrag_link.sync.chroma_state import ChromaState, SharingState
from vmrag_link.sync.target import Target, describe_held, describe_unpinned, restore_command
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import copies
from vmrag_link.workspace.documents.misplaced import describe_misplaced
from vmrag_link.workspace.follow import lazy_fetch
from vmrag_link.workspace.follow.recovery import list_pending
from vmrag_link.workspace.merge import merge_state
from vmrag_link.workspace.merge.merge_state import MergeState
from vmrag_link.workspace.pins import kb_branches, pinning
from vmrag_link.workspace.pins.pinning import PinBlock
from vmrag_link.workspace.reasons import explain_uninitialized

if TYPE_CHECKING:
    from vmrag_link.ops.verify.verify_commits import PinFinding

State = Literal["in_sync", "merging", "drift", "missing", "no_pin", "malformed", "dropped", "not_initialized", "files"]
"""`files`: there is no knowledge base and no pin, so that files of the repository answer alone."""

RESOLVE = "vmrag resolve"


class GitBlock(Record, frozen=True):
    head: str | None
    branch: str | None


class KbStatus(Record, frozen=True):
    """`revision`: the KB branch's head or, if `detached`, what is read.

    `documents` counts the uncommitted ones, too.
    """

    engine: str | None = None
    revision: str | None = None
    branch: str | None = None
    detached: bool = True
    dirty: bool = False
    documents: int = 0
    pinned: bool = False
    """Whether HEAD's commit pins the revision."""


class BoundIndex(Record, frozen=True):
    """`format` of the index; `working_copy`: the one of uncommitted documents, if there is one."""

    revision: str | None = None
    format: str | None = None
    documents: int = 0
    chunks: int = 0
    path: str | None = None
    working_copy: str | None = None


class StatusReport(Record, frozen=True):
    """`background`: the sync that works now while nobody waits, or why the last one gave up.

    `chroma`: its store of the bound index, on which no answer and no `state` depends; None where
    no index is bound. `server`: the same of the Chroma server, if the settings name one. `changes`
    if they were asked for, and there is a knowledge base; `sources` if they were asked for, and
    some are configured.
    """

    state: State
    in_sync: bool
    git: GitBlock
    pin: PinBlock | None
    kb: KbStatus
    index: BoundIndex
    background: background.JobReport | None
    reasons: list[str]
    hint: str
    chroma: ChromaState | None = None
    server: SharingState | None = None
    changes: PendingChanges | None = None
    sources: SourcesStatus | None = None


def status(ws: Workspace, *, with_changes: bool = False, ask_remote: bool = False) -> StatusReport:
    """What `vmrag status` shows; `with_changes`, which take time, also what differs.

    `ask_remote`: if the remote did not have the pinned revision, ask the remote again.
    """
    if ask_remote:
        lazy_fetch.retry_fetch(ws)
    head = plumbing.read_head(ws.places)
    git = GitBlock(head.commit, head.branch)
    files = read_sources_status(ws) if with_changes else None
    if not ws.is_initialized:
        return _status_without_knowledge_base(ws, git, files)
    target = ws.resolve_target()
    index, damage = _index(ws, target)
    state, reasons, hint = _state(ws, target, damage)
    reasons += _warnings(ws)
    pin = pinning.form_block(target.pin) if target.pin else None
    pinned = is_pinned(ws, target)
    behind = background.read_report(background.get_sync_job(ws.places))
    if behind and behind.error and state == "in_sync":
        behind = None  # it did not have to be made up for: HEAD went back
    merge, unmergeable = _open_merge(ws)
    if state == "in_sync" and (finish := _way_to_finish(merge, unmergeable, target)):
        state, hint = "merging", finish
    if state == "in_sync" and (drops := _open_drops(ws, git.head)):
        state, hint = "dropped", drops[0].hint
        reasons += [f"{drop.message} To restore it: {drop.hint}; to accept the loss: {_accept(drop)}" for drop in drops]
    reasons += (
        _interrupted_commit(ws)
        + ([unmergeable.sentence] if unmergeable else [])
        + _waiting(ws, target, merge)
        + ([] if pinned else _uncommitted_pin(ws, target))
        + (_half_merged(ws, git.head) if state != "dropped" else [])
    )
    reasons += _background(ws, behind) if behind else []
    reasons += [f"warning: {caution.sentence}" for caution in list_cautions(ws)]
    chroma = _read_chroma_state(ws)
    server = ws.chroma.sharing.read_state() if ws.binding and ws.chroma.server else None
    try:
        found = collect_changes(ws, target) if with_changes else None
    except RowsInvalid as error:  # another program wrote it
        state, found, hint = "drift", None, error.hint
        reasons.append(error.message)
    if found and found.copies:
        reasons.append(f"warning: {copies.form_sentence(found.copies)}")
    if with_changes:
        reasons += kb_branches.list_branch_warnings(ws, target)
    if merge and not merge.written:  # what it brings moves the pin
        hint = RESOLVE if state == "drift" else hint
    return StatusReport(
        state,
        state == "in_sync",
        git,
        pin,
        _kb(ws, target, pinned=pinned),
        index,
        behind,
        reasons,
        hint,
        chroma,
        server,
        found,
        files,
    )


def _way_to_finish(merge: MergeState | None, unmergeable: VmragError | None, target: Target) -> str:
    """Return the command that finishes an open merge of this branch. Empty without such a merge."""
    if unmergeable:
        return unmergeable.hint
    if merge and (merge.kind == "git" or merge.symbolic == target.trigger.symbolic):
        return _finishing(merge)
    return ""


def _status_without_knowledge_base(ws: Workspace, git: GitBlock, files: SourcesStatus | None) -> StatusReport:
    """Return the status of a work tree whose knowledge base does not exist on this machine."""
    if ws.stores_nothing:
        return _status_of_files(ws, git, files)
    why = explain_uninitialized(ws)
    pin, flaws = _pin_alone(ws)
    reasons = [why.message, *flaws, *_files_answer(ws), *_warnings(ws)]
    return StatusReport(
        "not_initialized", False, git, pin, KbStatus(), BoundIndex(), None, reasons, why.hint, sources=files
    )


def _open_drops(ws: Workspace, head: str | None) -> tuple[PinFinding, ...]:
    """The commits that drop knowledge which the pin of the work tree does not contain either."""
    if head is None or history.read_verified(ws.places) == head:
        return ()
    from vmrag_link.ops.verify import verify  # only needed after HEAD has moved

    return verify.find_open_drops(ws)


def _accept(finding: PinFinding) -> str:
    return f"git commit --allow-empty -m 'Accept the loss' -m '{history.ACCEPT_DROP}: {finding.commit}'"


def _status_of_files(ws: Workspace, git: GitBlock, files: SourcesStatus | None) -> StatusReport:
    """Return the status of a repository that stores no documents."""
    reasons, hint = _warnings(ws), "" if ws.sources.configured and not ws.sources.is_proposed else "vmrag init"
    in_sync = not (files and files.problem)
    return StatusReport(
        "files",
        in_sync,
        git,
        None,
        KbStatus(),
        BoundIndex(),
        None,
        reasons,
        hint,
        _read_chroma_state(ws),
        sources=files,
    )


def _read_chroma_state(ws: Workspace) -> ChromaState | None:
    """Return the state of Chroma's store. None if nothing is bound that it could hold."""
    chroma = ws.chroma.local
    return chroma.read_state() if ws.binding or chroma.follows_files else None


def _warnings(ws: Workspace) -> list[str]:
    error = check_path_length(ws)
    too_long = [f"warning: {error.message} {error.hint}"] if error else []
    return [f"warning: {warning}" for warning in ws.settings.loaded.warnings] + too_long


def _files_answer(ws: Workspace) -> list[str]:
    """What answers without a knowledge base."""
    names = [each.collection for each in ws.sources.configured]
    return [f"Files of the sources {enumerated(names)} are searched (see: vmrag sources)."] if names else []


def _pin_alone(ws: Workspace) -> tuple[PinBlock | None, list[str]]:
    """The pin without a knowledge base to look it up in, and what is wrong with it."""
    data = plumbing.read_pin_bytes(ws.places)
    try:
        return (pinning.form_block(migrated.read_pin(ws.places.kb, data)) if data is not None else None), []
    except PinMalformed as malformed:
        return None, [malformed.message]


def _kb(ws: Workspace, target: Target, *, pinned: bool) -> KbStatus:
    branch, stood = target.kb_branch, ws.current_revision
    stands = stood if stood and ws.engine.has_revision(stood) else None
    wanted = target.revision if target.state == "pinned" else stands
    detached = branch is None or branch.head != wanted
    revision = stands if detached or branch is None else branch.head
    dirty = branch is not None and branch.dirty
    documents = 0
    if branch and dirty and not detached:
        documents = ws.engine.count_documents(WorkingSet(branch.name))
    elif revision:
        documents = ws.engine.count_documents(revision)
    name = branch.name if branch else None
    pinned = pinned and revision == target.revision
    return KbStatus(ws.engine.name, revision, name, detached, dirty, documents, pinned)


def _index(ws: Workspace, target: Target) -> tuple[BoundIndex, str]:
    """What the index holds, and why it cannot be read although it verifies; empty if it can."""
    bound = ws.binding
    if bound is None:
        return BoundIndex(), ""
    path = ws.views.view_path(bound.revision)
    documents, chunks, damage = 0, 0, ""
    if not ws.views.find_problem(bound.revision):
        try:
            documents, chunks = views.read_view(path).count_totals()
        except IndexFailed as error:  # damaged since it was proven
            damage = error.message
    working = None
    if target.kb_branch:
        copy = ws.sync_context.working_copy(target.kb_branch.name, bound.revision)
        working = str(copy.path) if copy.path.is_dir() else None
    return BoundIndex(bound.revision, FORMAT, documents, chunks, str(path), working), damage


def _state(ws: Workspace, target: Target, damage: str) -> tuple[State, list[str], str]:
    """The state, why, and what to type."""
    if target.state == "no_pin":
        from vmrag_link.workspace.pins import empty_pin  # no other state needs it

        reason = "This code commit pins no knowledge; the knowledge base stays where it is."
        is_empty = empty_pin.is_empty(ws)
        hint = empty_pin.describe_uninstall(ws) if is_empty else lazy_fetch.unusable_pin(ws, target).hint
        return "no_pin", [reason, *([empty_pin.MESSAGE] if is_empty else [])], hint
    if target.problem and target.state in ("malformed", "missing"):
        return target.state, [target.problem.message], target.problem.hint
    if target.state == "missing":
        problem = lazy_fetch.unusable_pin(ws, target)
        return "missing", [problem.message], problem.hint
    reasons = _drift(ws, target)
    if damage:
        return "drift", [damage, *reasons], "vmrag sync --rebuild"
    if not reasons:
        return "in_sync", [], ""
    stays = target.attachment in ("held", "behind") and ws.position.is_followed
    return "drift", reasons, restore_command(target.kb_branch) if target.kb_branch and stays else "vmrag sync"


def _drift(ws: Workspace, target: Target) -> list[str]:
    position = ws.position
    stands = position.binding.revision if position.binding else ""
    reasons = []
    gap = position.find_gap(ws.views)
    if gap == "unbound":
        reasons.append("No index is bound to this work tree yet.")
    elif gap == "index_elsewhere":
        reasons.append(f"The index stands at {stands[:7]}, the pin names {target.revision[:7]}.")
    elif gap == "index_unusable":
        reasons.append(f"The index of {stands[:7]} cannot be served: {ws.views.find_problem(stands)}.")
    elif gap == "moved" and not position.is_renamed:
        under_way = plumbing.find_operation(ws.places)
        reasons.append(
            f"HEAD has moved since the last sync{f'; hooks wait for the end of a {under_way}' if under_way else ''}."
        )
    if target.kb_branch and target.attachment == "held":
        reasons.append(describe_held(target.kb_branch, target.revision))
    elif target.kb_branch and target.attachment == "behind":
        reasons.append(describe_unpinned(target.kb_branch, target.revision))
    return reasons


def _open_merge(ws: Workspace) -> tuple[MergeState | None, VmragError | None]:
    """The merge that is open, or why it cannot be made."""
    try:
        return merge_state.read_merge(ws), None
    except VmragError as error:  # a side that cannot be merged: the pin is in conflict all the same
        return None, error


def _waiting(ws: Workspace, target: Target, merge: MergeState | None) -> list[str]:
    """What waits for a person, and is no drift."""
    found = []
    if merge:
        found.append(f"The merge of {merge.source} is open: {_finishing(merge)}")
    if target.in_use_by:
        own = target.kb_branch.name if target.has_own_branch and target.kb_branch else ""
        found.append(lease.describe_shared(target.in_use_by, target.trigger.branch or "", own))
    if elsewhere := describe_misplaced(ws, committed=False):
        found.append(elsewhere)
    aside = ASIDE_PREFIX + (target.kb_branch.name if target.kb_branch else "/")
    names = [
        branch.name
        for branch in ws.engine.list_branches()
        if branch.name == aside or branch.name.startswith(aside + "-")
    ]
    back = (f"vmrag merge {quoted(name)}" for name in names)
    return found + [f"Uncommitted documents were set aside; to bring them back: {each}" for each in back]


def _finishing(merge: MergeState | None) -> str:
    return "vmrag commit, or vmrag merge --abort" if merge and merge.written else RESOLVE


def is_pinned(ws: Workspace, target: Target) -> bool:
    """Return whether HEAD's commit has the pin of the work tree."""
    pin = target.trigger.pin
    if pin is None or target.state != "pinned" or plumbing.read_head(ws.places).commit is None:
        return False
    committed = plumbing.read_pin_entries(ws.places).head
    return committed is not None and committed.name == objects.hash_blob(pin, like=committed.name)


def _uncommitted_pin(ws: Workspace, target: Target) -> list[str]:
    """Return how to commit the pin: git commits the files that one names, and nothing else that is
    staged.
    """
    if target.state != "pinned" or pin_conflict.find_undecided(ws.places):
        return []
    pin = target.trigger.pin
    if (ws.places.top / ".jj").is_dir():  # it commits what lies there, staged or not
        return ["The pin is in no commit yet: jj commit"]
    if pin_merge.read_staged_pin(ws.places) == pin:
        which = "" if pin_merge.is_merge(ws.places) else f" {PIN_NAME}"  # git refuses paths in a merge
        return [f"The pin is staged, and in no commit yet: git commit{which}"]
    return [f"The pin is in no commit yet, and not staged: git add {PIN_NAME}"]


def _half_merged(ws: Workspace, head: str | None) -> list[str]:
    """Whether the pin is one side's of a conflict that jj has committed."""
    if head is None or not pin_conflict.is_jj_conflict(ws.places):
        return []
    if len({*pin_conflict.read_jj_conflict_pins(ws.places, head)[1]}) < 2:  # noqa: PLR2004  nothing is in conflict
        return []
    return [
        f"warning: HEAD is a commit of jj's with conflicts, and its pin that of one side alone. Next: jj new {head[:12]}"
    ]


def _background(ws: Workspace, report: background.JobReport) -> list[str]:
    """Sentences about the background sync. The state has a missing revision, as of now."""
    if report.code == PinRevisionMissing.code:
        return list(report.unsaid)
    if report.unsaid and not report.error:
        return list(report.unsaid)
    if report.error:
        return [f"The sync in the background gave up: {report.error} (log: {background.get_sync_job(ws.places).log})"]
    done = f": {report.doing}, {report.done} of {report.total}" if report.total else ""
    return [f"A sync runs in the background{done} (process {report.pid})."]


def _interrupted_commit(ws: Workspace) -> list[str]:
    """A commit that is under way, or was killed."""
    if not list_pending(ws):
        return []
    holder = locks.read_holder(ws.places.workspace_lock)
    doing = f" (process {holder[0]} is at work)" if holder else ""
    return [f"A commit is not finished yet{doing}; the next command finishes it."]
