"""Check the pin of the coming commit, for git's hooks `pre-commit` and `pre-merge-commit`.

A finding may block the commit. The hook prints it, and `git commit --no-verify` skips the check.
"""

from __future__ import annotations

import re
from typing import Literal

from vmrag_link import config
from vmrag_link.engines import migrated
from vmrag_link.errors import ConfigInvalid, PinMalformed, plural, quoted
from vmrag_link.git import git_operation, pin_conflict, pin_merge, plumbing, versions
from vmrag_link.git.refs import BRANCHES
from vmrag_link.merging import revisions
from vmrag_link.models import Record
from vmrag_link.ops.commit.commit import commit
from vmrag_link.paths import CONFIG_NAME, PIN_NAME
from vmrag_link.pin import Pin
from vmrag_link.sync import lease
from vmrag_link.workspace import Workspace, twins
from vmrag_link.workspace.documents.leaving_out import DerivedFiles
from vmrag_link.workspace.pins import pinning

Code = Literal[
    "PIN_MALFORMED",
    "PIN_NOT_STAGED",
    "PIN_REVISION_MISSING",
    "KNOWLEDGE_DROPPED",
    "KNOWLEDGE_DELETED",
    "KNOWLEDGE_NOT_PUSHED",
    "UNCOMMITTED_CHANGES",
    "SOURCES_NOT_STAGED",
]

_MESSAGE = "Documents of the next code commit"
_PARTIAL = re.compile(r"next-index-\d+\.lock")
"""The name of the index that git makes for a commit of named paths."""


class CommitFinding(Record, frozen=True):
    """A problem of the coming commit."""

    code: Code
    message: str
    hint: str
    blocks: bool = True
    """True if git must not commit."""


class CommitCheckReport(Record, frozen=True):
    """The result of `check_commit`."""

    findings: tuple[CommitFinding, ...]
    committed: str | None = None
    """The revision that `hooks.on_dirty: commit` made, pinned and staged."""
    alone: bool = False
    """True if nothing else was staged, so that git may have found nothing to commit."""


def check_commit(ws: Workspace) -> CommitCheckReport:
    """Check the pin of the coming commit.

    The pin is read from `ws.index_file`, because git gives a commit of some paths a separate index.

    If a parent already has the pin, only dropped sides of a merge and uncommitted documents are
    checked, even if the revision is missing. Without a knowledge base, only the text of the pin is
    checked.
    """
    partial = ws.index_file is not None and _PARTIAL.fullmatch(ws.index_file.name) is not None
    revision = None
    nothing_else_staged = False
    if ws.is_initialized and not partial and _commits_documents(ws):
        nothing_else_staged = not versions.has_staged_changes(ws.places, index_file=ws.index_file)
        revision = commit(ws, _MESSAGE).revision
    staged_pin = pin_merge.read_staged_pin(ws.places, index_file=ws.index_file)
    findings = _check_pin(ws, staged_pin, partial=partial)
    if ws.is_initialized and not revision:
        findings += _check_uncommitted(ws)
    if ws.is_initialized and not any(finding.blocks for finding in findings):
        findings += _check_unstaged_sources(ws, staged_pin)
    return CommitCheckReport(tuple(findings), committed=revision, alone=nothing_else_staged)


def _commits_documents(ws: Workspace) -> bool:
    """Return whether the hook commits uncommitted documents (`hooks.on_dirty: commit`)."""
    if ws.config.hooks.on_dirty != "commit" or _is_git_busy(ws):
        return False
    branch = ws.find_kb_branch()
    return branch is not None and branch.dirty


def _is_git_busy(ws: Workspace) -> bool:
    """Return whether a git operation is in progress.

    `vmrag commit` would be refused, or a merge already fixed its tree. Uncommitted documents then
    neither enter the commit nor stop it: the sync moves them to its pin.
    """
    return pin_merge.is_merge(ws.places) or git_operation.find_operation(ws.places) is not None


def _check_pin(ws: Workspace, staged: bytes | None, *, partial: bool) -> list[CommitFinding]:
    """Check the pin in the index. None means that it has none."""
    parents = pin_merge.list_coming_parents(ws.places)
    parent_pins = [plumbing.read_blob(ws.places, f"{parent}:{PIN_NAME}") for parent in parents]
    is_merge = len(parents) > 1
    is_unchanged = staged == parent_pins[0] if parent_pins else staged is None
    worktree_pin = plumbing.read_pin_bytes(ws.places)
    is_unstaged = worktree_pin != staged and not partial
    if is_unchanged and not is_merge:
        return [_build_unstaged(blocks=False)] if staged and is_unstaged else []
    if staged is None:
        return []
    is_inherited = staged in parent_pins
    try:
        pin = migrated.read_pin(ws.places.kb, staged, source=f"the staged {PIN_NAME}")
    except PinMalformed as error:
        if is_inherited:
            return []
        is_valid = worktree_pin and migrated.try_read_pin(ws.places.kb, worktree_pin)
        hint = f"run 'git add --force {PIN_NAME}' to stage it" if is_valid else pin_conflict.restore_hint(ws.places)
        return [CommitFinding("PIN_MALFORMED", error.message, hint)]
    findings = [_build_unstaged(blocks=True)] if is_unstaged and not is_unchanged else []
    if not ws.is_initialized:
        return findings
    if not ws.engine.has_revision(pin.dolt_commit):
        if not is_inherited:  # an inherited pin may be a colleague's, whose revision was not fetched yet
            message = f"the pin names revision {pin.dolt_commit[:12]}, which this knowledge base does not have."
            findings.append(CommitFinding("PIN_REVISION_MISSING", message, "run 'vmrag pin' to write the pin"))
    elif is_merge:
        findings += _find_dropped_sides(ws, pin, parents, parent_pins)
    else:
        findings += _find_dropped_concurrent(ws, pin, parent_pins)
    return findings


def _build_unstaged(*, blocks: bool) -> CommitFinding:
    """Build the finding of an unstaged pin. It blocks if the commit changes the pin, and is a
    warning for a commit of code.
    """
    message = f"{PIN_NAME} in the working tree differs from the staged one."
    return CommitFinding("PIN_NOT_STAGED", message, f"run 'git add {PIN_NAME}' to stage it", blocks)


def _find_dropped_sides(
    ws: Workspace, pin: Pin, parents: list[str], parent_pins: list[bytes | None]
) -> list[CommitFinding]:
    """Find the pins of parents whose documents the pin of a merge lacks."""
    bases = pin_merge.list_merge_bases(ws.places, parents)
    base_pins = [plumbing.read_blob(ws.places, f"{base}:{PIN_NAME}") for base in bases]
    base_revisions = set(_read_revisions(ws, base_pins))
    sides = [
        side
        for side in _read_revisions(ws, parent_pins)
        if not revisions.accepts_loss(ws.engine, pin.dolt_commit, side)
    ]
    undecided = pin_conflict.find_undecided(ws.places)
    repair = "run 'git commit --no-edit --no-verify && vmrag merge --repair HEAD' to merge the documents"
    return [
        CommitFinding(
            "KNOWLEDGE_DROPPED",
            f"this merge drops documents: its pin {pin.dolt_commit[:12]} does not contain {side[:12]}, which one side pins.",
            "run 'vmrag resolve' to resolve the conflicts" if undecided else repair,
        )
        for side in pinning.find_dropped(ws.engine, pin.dolt_commit, bases=base_revisions, sides=sides)
    ]


def _find_dropped_concurrent(ws: Workspace, pin: Pin, parent_pins: list[bytes | None]) -> list[CommitFinding]:
    """Find what another work tree committed on this branch in the meantime.

    git moved HEAD here too, but neither the pin nor the files.
    """
    symbolic = ws.read_trigger().symbolic
    sides = _read_revisions(ws, parent_pins)
    if pinning.judge_pin(ws.engine, pin.dolt_commit, sides=sides).way != "dropped" or symbolic is None:
        return []
    other_worktree = lease.find_other_work_tree(ws.places, symbolic)
    if other_worktree is None:
        return []
    branch = symbolic.removeprefix(BRANCHES)
    message = (
        f"this commit drops documents: its pin {pin.dolt_commit[:12]} does not contain {sides[0][:12]}, which the working tree "
        f"{lease.find_work_tree(other_worktree)} committed on {branch!r}."
    )
    return [CommitFinding("KNOWLEDGE_DROPPED", message, f"run 'vmrag merge {quoted(branch)}' to merge it")]


def _read_revisions(ws: Workspace, pins: list[bytes | None]) -> list[str]:
    return [revision for revision in (_read_revision(ws, data) for data in pins) if revision]


def _read_revision(ws: Workspace, data: bytes | None) -> str | None:
    """Return the pinned revision; None for an invalid pin of a parent, which does not affect this
    commit.
    """
    try:
        return migrated.read_pin(ws.places.kb, data).dolt_commit if data is not None else None
    except PinMalformed:
        return None


def _check_uncommitted(ws: Workspace) -> list[CommitFinding]:
    target = ws.resolve_target()
    branch = target.kb_branch
    if branch is None or not branch.dirty:
        return []
    blocks = ws.config.hooks.on_dirty == "block" and not _is_git_busy(ws)
    if not blocks and target.attachment == "held" and not ws.position.is_followed:
        return []  # the sync after the commit moves them to the new pin and reports it
    message = f"documents of {branch.name!r} are not committed, so this commit does not pin them."
    if blocks:
        message = f"commit stopped: documents of {branch.name!r} are not committed, and hooks.on_dirty is block."
    hint = "run 'vmrag commit -m \"What changed in the documents\"' to commit the documents"
    return [CommitFinding("UNCOMMITTED_CHANGES", message, hint, blocks)]


def _check_unstaged_sources(ws: Workspace, pin: bytes | None) -> list[CommitFinding]:
    """Find documents that the coming pin drops because their files answer, if the sources are not
    staged.

    Without the settings in the commit, the files do not answer elsewhere.
    """
    head = plumbing.read_head(ws.places).commit
    before = _read_revision(ws, plumbing.read_blob(ws.places, f"{head}:{PIN_NAME}")) if head else None
    coming = _read_revision(ws, pin)
    if not before or not coming or before == coming or not ws.config.sources:
        return []
    if not versions.has_unstaged_changes(ws.places, CONFIG_NAME, index_file=ws.index_file):
        return []
    staged = versions.read_staged_file(ws.places, CONFIG_NAME, index_file=ws.index_file)
    if _read_sources(staged) == _read_sources(config.read_settings_file(ws.places.config)):
        return []
    if not all(ws.engine.has_revision(revision) for revision in (before, coming)):
        return []
    paths = DerivedFiles(ws).paths
    twins_before = set(twins.find_twins(ws, ws.engine, before, paths))
    dropped = twins_before.difference(twins.find_twins(ws, ws.engine, coming, paths))
    if not dropped:
        return []
    documents = f"{plural(len(dropped), 'document')} that the sources in {CONFIG_NAME} replace"
    return [
        CommitFinding(
            "SOURCES_NOT_STAGED",
            f"this commit drops {documents}, but {CONFIG_NAME} is not staged.",
            f"run 'git add {CONFIG_NAME} && git commit --amend --no-edit' to include it",
            blocks=False,
        )
    ]


def _read_sources(text: bytes | None) -> str | None:
    """Return the `sources` of a settings file as text; None if it has none or is invalid."""
    from vmrag_link.settings import file as settings_file  # YAML, which few commits need

    try:
        entries = settings_file.read_entries(text or b"", CONFIG_NAME)
    except ConfigInvalid:
        return None
    return next((entry.text for entry in entries if entry.key == "sources"), None)
