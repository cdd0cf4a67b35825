"""The check of `pre-commit` and `pre-merge-commit`: is the pin of the coming commit right?"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Literal

from vmrag_link import config
from vmrag_link.engines import migrated
from vmrag_link.errors import ConfigInvalid, PinMalformed, plural, quoted
from vmrag_link.git import pin_conflict, pin_merge, plumbing, versions
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

MESSAGE = "Documents of the next code commit"
_PARTIAL = re.compile(r"next-index-\d+\.lock")


class CommitFinding(Record, frozen=True):
    """`blocks`: git must not commit."""

    code: Code
    message: str
    hint: str
    blocks: bool = True


class CommitCheckReport(Record, frozen=True):
    """`committed`: the revision that `hooks.on_dirty: commit` has made, pinned and staged. `alone`:
    nothing else was staged, so git may have decided before that there is nothing to commit.
    """

    findings: tuple[CommitFinding, ...]
    committed: str | None = None
    alone: bool = False


def check_commit(ws: Workspace) -> CommitCheckReport:
    """Check the pin of the coming commit.

    It is read from `ws.index_file`: git gives a commit of some paths an index of its own.

    A pin that a parent has already is no mistake of this commit, wherever its revision is. Then
    only dropped sides of a merge and uncommitted documents are checked. Without a knowledge base
    only the pin's text is.
    """
    partial = _is_partial(ws.index_file)
    committed, alone = _commit_documents(ws) if ws.is_initialized and not partial else (None, False)
    staged = pin_merge.read_staged_pin(ws.places, index_file=ws.index_file)
    findings = _pin(ws, staged, partial=partial)
    if ws.is_initialized and not committed:
        findings += _uncommitted_documents(ws)
    if ws.is_initialized and not any(finding.blocks for finding in findings):
        findings += _unstaged_sources(ws, staged)
    return CommitCheckReport(tuple(findings), committed, alone)


def _is_partial(index_file: Path | None) -> bool:
    """Whether git commits named paths only, whatever else is staged."""
    return index_file is not None and _PARTIAL.fullmatch(index_file.name) is not None


def _pin(ws: Workspace, staged: bytes | None, *, partial: bool) -> list[CommitFinding]:
    parents = pin_merge.list_coming_parents(ws.places)
    before = [plumbing.read_blob(ws.places, f"{parent}:{PIN_NAME}") for parent in parents]
    merge = len(parents) > 1
    unchanged = staged == before[0] if before else staged is None
    found = plumbing.read_pin_bytes(ws.places)
    if unchanged and not merge:
        return [_unstaged_finding(blocks=False)] if staged and found != staged and not partial else []
    if staged is None:
        return []
    inherited = staged in before
    try:
        pin = migrated.read_pin(ws.places.kb, staged, source=f"the staged {PIN_NAME}")
    except PinMalformed as error:
        whole = found and migrated.try_read_pin(ws.places.kb, found)
        hint = f"git add --force {PIN_NAME}" if whole else pin_conflict.restore_hint(ws.places)
        return [] if inherited else [CommitFinding("PIN_MALFORMED", error.message, hint)]
    findings = [] if unchanged or found == staged or partial else [_unstaged_finding(blocks=True)]
    if not ws.is_initialized:
        return findings
    if ws.engine.has_revision(pin.dolt_commit):
        drops = _dropped_sides(ws, pin, parents, before) if merge else _dropped_beside(ws, pin, before)
        return findings + drops
    if not inherited:  # else: a colleague's, whose knowledge has not come yet; what it contains nobody here can say
        message = f"The pin names revision {pin.dolt_commit[:12]}, which is not in this knowledge base."
        findings.append(CommitFinding("PIN_REVISION_MISSING", message, "vmrag pin (pins what is here)"))
    return findings


def _unstaged_finding(*, blocks: bool) -> CommitFinding:
    """Committing another pin than the one that answers is a mistake; code alone may be meant."""
    message = f"The {PIN_NAME} of this work tree is not the one that goes into the commit."
    return CommitFinding("PIN_NOT_STAGED", message, f"git add {PIN_NAME}", blocks)


def _dropped_sides(ws: Workspace, pin: Pin, parents: list[str], before: list[bytes | None]) -> list[CommitFinding]:
    sides = [revision for each in before if (revision := _revision(ws, each))]
    bases = [
        plumbing.read_blob(ws.places, f"{base}:{PIN_NAME}") for base in pin_merge.list_merge_bases(ws.places, parents)
    ]
    sides = [each for each in sides if not revisions.accepts_loss(ws.engine, pin.dolt_commit, each)]
    known = {revision for each in bases if (revision := _revision(ws, each))}
    undecided = pin_conflict.find_undecided(ws.places)
    repair = "git commit --no-edit --no-verify && vmrag merge --repair HEAD (without the second, it is dropped)"
    return [
        CommitFinding(
            "KNOWLEDGE_DROPPED",
            f"This merge drops knowledge: its pin {pin.dolt_commit[:12]} does not contain {side[:12]}, which one side pins.",
            "vmrag resolve" if undecided else repair,
        )
        for side in pinning.find_dropped(ws.engine, pin.dolt_commit, bases=known, sides=sides)
    ]


def _dropped_beside(ws: Workspace, pin: Pin, before: list[bytes | None]) -> list[CommitFinding]:
    """What another work tree on this branch has committed meanwhile: git moved HEAD here, too, and
    neither the pin nor the files.
    """
    symbolic, sides = ws.read_trigger().symbolic, [revision for each in before if (revision := _revision(ws, each))]
    if pinning.judge_pin(ws.engine, pin.dolt_commit, sides=sides).way != "dropped" or symbolic is None:
        return []
    beside = lease.find_other_work_tree(ws.places, symbolic)
    if beside is None:
        return []
    branch = symbolic.removeprefix(BRANCHES)
    message = (
        f"This commit drops knowledge: its pin {pin.dolt_commit[:12]} does not contain {sides[0][:12]}, which is committed on "
        f"{branch!r}, as by the work tree {lease.find_work_tree(beside)}."
    )
    return [CommitFinding("KNOWLEDGE_DROPPED", message, f"vmrag merge {quoted(branch)}")]


def _revision(ws: Workspace, data: bytes | None) -> str | None:
    """None for a parent's pin that cannot be read: it says nothing about this commit."""
    try:
        return migrated.read_pin(ws.places.kb, data).dolt_commit if data is not None else None
    except PinMalformed:
        return None


def _uncommitted_documents(ws: Workspace) -> list[CommitFinding]:
    target = ws.resolve_target()
    branch, blocks = target.kb_branch, ws.config.hooks.on_dirty == "block" and not _under_way(ws)
    if branch is None or not branch.dirty:
        return []
    if not blocks and target.attachment == "held" and not ws.position.is_followed:
        return []  # they go along to a pin that has just moved, as in a merge: the sync after the commit says so
    message = f"Documents of {branch.name!r} are not committed: this commit does not pin them."
    if blocks:
        message = (
            f"This commit was stopped: documents of {branch.name!r} are not committed, and hooks.on_dirty is block."
        )
    hint = 'vmrag commit -m "What changed in the knowledge"'
    return [CommitFinding("UNCOMMITTED_CHANGES", message, hint, blocks)]


def _unstaged_sources(ws: Workspace, pin: bytes | None) -> list[CommitFinding]:
    """Documents that the coming pin drops because their files answer, which they do by settings
    that do not go into the commit.
    """
    head = plumbing.read_head(ws.places).commit
    before = _revision(ws, plumbing.read_blob(ws.places, f"{head}:{PIN_NAME}")) if head else None
    coming = _revision(ws, pin)
    if not (before and coming) or before == coming or not ws.config.sources:
        return []
    if not versions.has_unstaged_changes(ws.places, CONFIG_NAME, index_file=ws.index_file):
        return []
    staged = versions.read_staged_file(ws.places, CONFIG_NAME, index_file=ws.index_file)
    if _stated_sources(staged) == _stated_sources(config.read_settings_file(ws.places.config)):
        return []
    if not all(ws.engine.has_revision(each) for each in (before, coming)):
        return []
    paths = DerivedFiles(ws).paths
    was, now = (set(twins.find_twins(ws, ws.engine, each, paths)) for each in (before, coming))
    if not (dropped := len(was - now)):
        return []
    which = f"{plural(dropped, 'document')} that sources of {CONFIG_NAME} answer"
    return [
        CommitFinding(
            "SOURCES_NOT_STAGED",
            f"This commit drops {which}, and not these sources: {CONFIG_NAME} is not staged.",
            f"git add {CONFIG_NAME} && git commit --amend --no-edit",
            blocks=False,
        )
    ]


def _stated_sources(text: bytes | None) -> str | None:
    """As a settings file states them; None for none, and where it cannot be read."""
    from vmrag_link.settings import file as settings_file  # YAML, which few commits need

    with contextlib.suppress(ConfigInvalid):
        return next(
            (each.text for each in settings_file.read_entries(text or b"", CONFIG_NAME) if each.key == "sources"), None
        )
    return None


def _under_way(ws: Workspace) -> bool:
    """Whether git is in the middle of something.

    `vmrag commit` would be refused, or a merge has fixed its tree already.

    Uncommitted documents then neither go into the commit nor stop it: they follow its pin.
    """
    return pin_merge.is_merge(ws.places) or plumbing.find_operation(ws.places) is not None


def _commit_documents(ws: Workspace) -> tuple[str | None, bool]:
    """`hooks.on_dirty: commit`: pin the uncommitted documents in the index that is committed.

    Returns the revision, if one was made, and whether nothing else was staged.
    """
    if ws.config.hooks.on_dirty != "commit" or _under_way(ws):
        return None, False
    branch = ws.find_kb_branch()
    if not (branch and branch.dirty):
        return None, False
    alone = not versions.has_staged_changes(ws.places, index_file=ws.index_file)
    return commit(ws, MESSAGE).revision, alone
