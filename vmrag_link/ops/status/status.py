"""`vmrag status`: check if pin, knowledge base and index agree, and if not, suggest a command.

A work tree has *drift* if one of them is elsewhere than the pin. A `Target` is what HEAD and the
pin request: the revision to read and the KB branch to write (`sync.target`). The status changes
only caches of file states, and needs no index extra.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from vmrag_link import hints, locks
from vmrag_link.engines import migrated
from vmrag_link.engines.own_branches import ASIDE_PREFIX
from vmrag_link.errors import IndexFailed, PinMalformed, PinRevisionMissing, RowsInvalid, VmragError, enumerated, quoted
from vmrag_link.git import git_operation, history, objects, pin_conflict, pin_merge, plumbing
from vmrag_link.index import view as views
from vmrag_link.index.view import FORMAT
from vmrag_link.models import Record, WorkingSet
from vmrag_link.ops.status.cautions import check_path_length, list_cautions
from vmrag_link.ops.status.changes import PendingChanges, SourcesStatus, collect_changes, read_sources_status
from vmrag_link.paths import PIN_NAME
from vmrag_link.sync import background, lease
from vmrag_link.sync.chroma_state import ChromaState, SharingState
from vmrag_link.sync.target import Target, describe_held, describe_unpinned, form_pin_hint
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
"""`files`: the repository has no knowledge base and no pin, so that only its files answer."""

RESOLVE = "run 'vmrag resolve' to resolve the conflicts"


class GitBlock(Record, frozen=True):
    head: str | None
    branch: str | None


class KbStatus(Record, frozen=True):
    """The knowledge base."""

    engine: str | None = None
    revision: str | None = None
    """The head of the KB branch or, if `detached`, the revision that is read."""
    branch: str | None = None
    detached: bool = True
    dirty: bool = False
    documents: int = 0
    """Number of documents, including uncommitted ones."""
    pinned: bool = False
    """True if HEAD's commit pins the revision."""


class BoundIndex(Record, frozen=True):
    """The index that answers."""

    revision: str | None = None
    format: str | None = None
    """The format of the index."""
    documents: int = 0
    chunks: int = 0
    path: str | None = None
    working_copy: str | None = None
    """The index of uncommitted documents; None if there is none."""


class StatusReport(Record, frozen=True):
    """The result of `status`."""

    state: State
    in_sync: bool
    git: GitBlock
    pin: PinBlock | None
    kb: KbStatus
    index: BoundIndex
    background: background.JobReport | None
    """The sync that runs in the background, or why the last one failed."""
    reasons: list[str]
    hint: str
    chroma: ChromaState | None = None
    """Chroma's store of the bound index, which affects neither answers nor `state`. None if no
    index is bound.
    """
    server: SharingState | None = None
    """The same for the Chroma server, if the settings name one."""
    changes: PendingChanges | None = None
    """None if they were not requested, or without a knowledge base."""
    sources: SourcesStatus | None = None
    """None if they were not requested, or if none are configured."""


class _Verdict(NamedTuple):
    state: State
    reasons: list[str]
    """Why the work tree is not in sync."""
    hint: str


def status(ws: Workspace, *, with_changes: bool = False, ask_remote: bool = False) -> StatusReport:
    """Return what `vmrag status` shows.

    `with_changes` adds the changes, which takes time. With `ask_remote`, if the remote did not have
    the pinned revision, it is contacted again.
    """
    if ask_remote:
        lazy_fetch.retry_fetch(ws)
    head = plumbing.read_head(ws.places)
    git = GitBlock(head.commit, head.branch)
    sources = read_sources_status(ws) if with_changes else None
    if not ws.is_initialized:
        return _report_files(ws, git, sources) if ws.stores_nothing else _report_missing_base(ws, git, sources)
    target = ws.resolve_target()
    index, damage = _read_index(ws, target)
    verdict = _judge_sync(ws, target, damage)
    job = background.read_report(background.get_sync_job(ws.places))
    if job and job.error and verdict.state == "in_sync":
        job = None  # nothing is left to do, because HEAD moved back
    reasons = [*verdict.reasons, *_list_warnings(ws)]
    merge, merge_error = _read_open_merge(ws)
    if verdict.state == "in_sync":
        verdict = _judge_unfinished_work(ws, target, git.head, merge, merge_error)
        reasons += verdict.reasons
    state = verdict.state
    hint = verdict.hint
    pinned = is_pinned(ws, target)
    reasons += _describe_interrupted_commit(ws)
    reasons += [merge_error.sentence] if merge_error else []
    reasons += _list_tasks(ws, target, merge)
    reasons += [] if pinned else _explain_uncommitted_pin(ws, target)
    reasons += _warn_conflicted_commit(ws, git.head) if state != "dropped" else []
    reasons += _describe_job(ws, job) if job else []
    reasons += [f"warning: {caution.sentence}" for caution in list_cautions(ws)]
    changes = None
    try:
        if with_changes:
            changes = collect_changes(ws, target)
    except RowsInvalid as error:  # another program wrote an invalid row
        state = "drift"
        hint = error.hint
        reasons.append(error.message)
    if changes and changes.copies:
        reasons.append(f"warning: {copies.form_sentence(changes.copies, copies.suggest_removal(ws))}")
    if with_changes:
        reasons += kb_branches.list_branch_warnings(ws, target)
    if state == "drift" and merge and not merge.written:  # the result of the merge moves the pin
        hint = RESOLVE
    return StatusReport(
        state=state,
        in_sync=state == "in_sync",
        git=git,
        pin=pinning.form_block(target.pin) if target.pin else None,
        kb=_build_kb_status(ws, target, pinned=pinned),
        index=index,
        background=job,
        reasons=reasons,
        hint=hint,
        chroma=_read_chroma_state(ws),
        server=ws.chroma.sharing.read_state() if ws.binding and ws.chroma.server else None,
        changes=changes,
        sources=sources,
    )


def is_pinned(ws: Workspace, target: Target) -> bool:
    """Return whether HEAD's commit has the pin of the work tree."""
    pin = target.trigger.pin
    if pin is None or target.state != "pinned" or plumbing.read_head(ws.places).commit is None:
        return False
    committed = plumbing.read_pin_entries(ws.places).head
    return committed is not None and committed.name == objects.hash_blob(pin, like=committed.name)


def _report_files(ws: Workspace, git: GitBlock, sources: SourcesStatus | None) -> StatusReport:
    """Return the status of a repository that stores no documents."""
    has_sources = ws.sources.configured and not ws.sources.is_proposed
    return StatusReport(
        state="files",
        in_sync=not (sources and sources.problem),
        git=git,
        pin=None,
        kb=KbStatus(),
        index=BoundIndex(),
        background=None,
        reasons=_list_warnings(ws),
        hint="" if has_sources else "run 'vmrag init' to set up this repository",
        chroma=_read_chroma_state(ws),
        sources=sources,
    )


def _report_missing_base(ws: Workspace, git: GitBlock, sources: SourcesStatus | None) -> StatusReport:
    """Return the status of a work tree whose knowledge base does not exist on this machine."""
    error = explain_uninitialized(ws)
    pin, problems = _read_pin(ws)
    names = [source.collection for source in ws.sources.configured]
    if names:
        problems.append(f"files of the sources {enumerated(names)} are searched; run 'vmrag sources' to list them")
    return StatusReport(
        state="not_initialized",
        in_sync=False,
        git=git,
        pin=pin,
        kb=KbStatus(),
        index=BoundIndex(),
        background=None,
        reasons=[error.message, *problems, *_list_warnings(ws)],
        hint=error.hint,
        sources=sources,
    )


def _read_pin(ws: Workspace) -> tuple[PinBlock | None, list[str]]:
    """Return the pin, and the problem that prevents it as a list of at most one sentence."""
    data = plumbing.read_pin_bytes(ws.places)
    try:
        return (pinning.form_block(migrated.read_pin(ws.places.kb, data)) if data is not None else None), []
    except PinMalformed as malformed:
        return None, [malformed.message]


def _judge_sync(ws: Workspace, target: Target, damage: str) -> _Verdict:
    """Return whether knowledge base and index are at the pin. `damage`: that of `_read_index`."""
    if target.state == "no_pin":
        from vmrag_link.workspace.pins import empty_pin  # only this state needs it

        reason = "this commit has no pin, so the knowledge base stays at its revision."
        if empty_pin.is_empty(ws):
            hint = hints.suggest_command(empty_pin.form_uninstall(ws), "remove it")
            return _Verdict("no_pin", [reason, empty_pin.MESSAGE], hint)
        return _Verdict("no_pin", [reason], lazy_fetch.unusable_pin(ws, target).hint)
    if target.state != "pinned":
        problem = lazy_fetch.unusable_pin(ws, target)
        return _Verdict(target.state, [problem.message], problem.hint)
    reasons = _explain_drift(ws, target)
    if damage:
        return _Verdict("drift", [damage, *reasons], "run 'vmrag sync --rebuild' to build the index again")
    if not reasons:
        return _Verdict("in_sync", [], "")
    is_held = target.attachment in ("held", "behind") and ws.position.is_followed
    hint = form_pin_hint(target.kb_branch) if target.kb_branch and is_held else "run 'vmrag sync' to sync to the pin"
    return _Verdict("drift", reasons, hint)


def _explain_drift(ws: Workspace, target: Target) -> list[str]:
    """Return how index and KB branch differ from the pin."""
    position = ws.position
    bound_revision = position.binding.revision if position.binding else ""
    reasons = []
    gap = position.find_gap(ws.views)
    if gap == "unbound":
        reasons.append("this working tree has no index yet.")
    elif gap == "index_elsewhere":
        reasons.append(f"the index is at {bound_revision[:7]}, but the pin names {target.revision[:7]}.")
    elif gap == "index_unusable":
        reasons.append(f"the index of {bound_revision[:7]} cannot be used: {ws.views.find_problem(bound_revision)}.")
    elif gap == "moved" and not position.is_renamed:
        operation = git_operation.find_operation(ws.places)
        reasons.append(
            f"HEAD has moved since the last sync{f'; hooks wait for the end of a {operation}' if operation else ''}."
        )
    if target.kb_branch and target.attachment == "held":
        reasons.append(describe_held(target.kb_branch, target.revision))
    elif target.kb_branch and target.attachment == "behind":
        reasons.append(describe_unpinned(target.kb_branch, target.revision))
    return reasons


def _judge_unfinished_work(
    ws: Workspace, target: Target, head: str | None, merge: MergeState | None, merge_error: VmragError | None
) -> _Verdict:
    """Return whether a work tree that is at its pin has an open merge or lost documents."""
    if merge_error and merge_error.hint:
        return _Verdict("merging", [], merge_error.hint)
    if merge and (merge.kind == "git" or merge.symbolic == target.trigger.symbolic):
        return _Verdict("merging", [], _suggest_finish(merge))
    drops = _find_open_drops(ws, head)
    if not drops:
        return _Verdict("in_sync", [], "")
    reasons = [hints.append_to(drop.message, _suggest_drop_remedy(drop)) for drop in drops]
    return _Verdict("dropped", reasons, drops[0].hint)


def _read_open_merge(ws: Workspace) -> tuple[MergeState | None, VmragError | None]:
    """Return the open merge, or the error that prevents it."""
    try:
        return merge_state.read_merge(ws), None
    except VmragError as error:  # a side cannot be merged, but the pin has a conflict
        return None, error


def _suggest_finish(merge: MergeState) -> str:
    """Return the hint that finishes an open merge."""
    return "run 'vmrag commit' to finish it, or 'vmrag merge --abort' to abort it" if merge.written else RESOLVE


def _find_open_drops(ws: Workspace, head: str | None) -> tuple[PinFinding, ...]:
    """Return the commits that drop documents which the pin of the work tree does not contain
    either.
    """
    if head is None or history.read_verified(ws.places) == head:
        return ()
    from vmrag_link.ops.verify import verify  # only needed after HEAD has moved

    return verify.find_open_drops(ws)


def _suggest_drop_remedy(drop: PinFinding) -> str:
    accept = f'git commit --allow-empty -m "Accept the loss" -m "{history.ACCEPT_DROP}: {drop.commit}"'
    return hints.join_alternatives(drop.hint, hints.suggest_command(accept, "accept the loss"))


def _read_index(ws: Workspace, target: Target) -> tuple[BoundIndex, str]:
    """Return the state of the index, and why it cannot be read although it was verified; empty if
    it can.
    """
    bound = ws.binding
    if bound is None:
        return BoundIndex(), ""
    path = ws.views.view_path(bound.revision)
    documents = chunks = 0
    damage = ""
    if not ws.views.find_problem(bound.revision):
        try:
            documents, chunks = views.read_view(path).count_totals()
        except IndexFailed as error:  # damaged since it was verified
            damage = error.message
    working = None
    if target.kb_branch:
        copy = ws.sync_context.working_copy(target.kb_branch.name, bound.revision)
        working = str(copy.path) if copy.path.is_dir() else None
    return BoundIndex(
        revision=bound.revision, format=FORMAT, documents=documents, chunks=chunks, path=str(path), working_copy=working
    ), damage


def _build_kb_status(ws: Workspace, target: Target, *, pinned: bool) -> KbStatus:
    """Describe the knowledge base. `pinned`: HEAD's commit has the pin of the work tree."""
    branch = target.kb_branch
    current = ws.current_revision
    readable = current if current and ws.engine.has_revision(current) else None
    expected = target.revision if target.state == "pinned" else readable
    detached = branch is None or branch.head != expected
    revision = readable if detached or branch is None else branch.head
    dirty = branch is not None and branch.dirty
    documents = 0
    if branch and dirty and not detached:
        documents = ws.engine.count_documents(WorkingSet(branch.name))
    elif revision:
        documents = ws.engine.count_documents(revision)
    return KbStatus(
        engine=ws.engine.name,
        revision=revision,
        branch=branch.name if branch else None,
        detached=detached,
        dirty=dirty,
        documents=documents,
        pinned=pinned and revision == target.revision,
    )


def _read_chroma_state(ws: Workspace) -> ChromaState | None:
    """Return the state of Chroma's store. None if nothing is bound that it could hold."""
    chroma = ws.chroma.local
    return chroma.read_state() if ws.binding or chroma.follows_files else None


def _list_warnings(ws: Workspace) -> list[str]:
    warnings = [*ws.settings.loaded.warnings]
    error = check_path_length(ws)
    if error:
        warnings.append(error.sentence)
    return [f"warning: {warning}" for warning in warnings]


def _describe_interrupted_commit(ws: Workspace) -> list[str]:
    """Return a sentence about a commit that is in progress or was killed."""
    if not list_pending(ws):
        return []
    holder = locks.read_holder(ws.places.workspace_lock)
    doing = f" (process {holder[0]} is running)" if holder else ""
    return [f"a commit is not finished{doing}; the next command finishes it."]


def _list_tasks(ws: Workspace, target: Target, merge: MergeState | None) -> list[str]:
    """Return tasks for the user that do not count as drift."""
    sentences = []
    if merge:
        sentences.append(hints.append_to(f"the merge of {merge.source} is open", _suggest_finish(merge)))
    if target.in_use_by:
        branch_name = target.kb_branch.name if target.has_own_branch and target.kb_branch else ""
        sentences.append(lease.describe_shared(target.in_use_by, target.trigger.branch or "", branch_name))
    misplaced = describe_misplaced(ws, committed=False)
    if misplaced:
        sentences.append(misplaced)
    stash = ASIDE_PREFIX + (target.kb_branch.name if target.kb_branch else "/")
    for branch in ws.engine.list_branches():
        if branch.name == stash or branch.name.startswith(f"{stash}-"):
            command = f"vmrag merge {quoted(branch.name)}"
            sentences.append(f"uncommitted documents were stashed; run '{command}' to restore them")
    return sentences


def _explain_uncommitted_pin(ws: Workspace, target: Target) -> list[str]:
    """Return how to commit the pin.

    `git commit PATH` commits only the given files, and nothing else that is staged.
    """
    if target.state != "pinned" or pin_conflict.find_undecided(ws.places):
        return []
    pin = target.trigger.pin
    if (ws.places.top / ".jj").is_dir():  # jj commits all files, staged or not
        return ["the pin is not committed; run 'jj commit' to commit it"]
    if pin_merge.read_staged_pin(ws.places) == pin:
        path = "" if pin_merge.is_merge(ws.places) else f" {PIN_NAME}"  # git refuses paths in a merge
        return [f"the pin is staged, but not committed; run 'git commit{path}' to commit it"]
    return [f"the pin is neither staged nor committed; run 'git add {PIN_NAME}' to stage it"]


def _warn_conflicted_commit(ws: Workspace, head: str | None) -> list[str]:
    """Return a warning if the pin is that of one side of a conflict that jj has committed."""
    if head is None or not pin_conflict.is_jj_conflict(ws.places):
        return []
    _, sides = pin_conflict.read_jj_conflict_pins(ws.places, head)
    if len({*sides}) < 2:  # noqa: PLR2004  the pin has no conflict
        return []
    statement = "warning: HEAD is a jj commit with conflicts, and its pin is that of one side"
    return [hints.append_to(statement, hints.suggest_command(f"jj new {head[:12]}", "resolve them"))]


def _describe_job(ws: Workspace, report: background.JobReport) -> list[str]:
    """Return sentences about the background sync. A missing revision is part of the state."""
    if report.code == PinRevisionMissing.code or (report.unsaid and not report.error):
        return list(report.unsaid)
    if report.error:
        return [f"the background sync failed: {report.error} (log: {background.get_sync_job(ws.places).log})"]
    progress = f": {report.doing}, {report.completed} of {report.total}" if report.total else ""
    return [f"a sync runs in the background{progress} (process {report.pid})."]
