"""Remove the rows that mirror a project, on one branch of the knowledge base or on all branches.

No file is removed. The rows of the checked-out branch are removed like any others; another branch
gets a commit if git does not have it.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from vmrag_link import clock
from vmrag_link.engines.base import Write
from vmrag_link.engines.own_branches import is_reserved
from vmrag_link.errors import DocumentMissing
from vmrag_link.git import identity, own_keys
from vmrag_link.git.refs import BRANCHES
from vmrag_link.models import At, KbBranch, Record, WorkingSet
from vmrag_link.ops import uncommitted
from vmrag_link.sync import lease
from vmrag_link.toolsets.compounding import mirror
from vmrag_link.toolsets.compounding.project import collection_of
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import writing
from vmrag_link.workspace.documents.document_selection import chunks_of
from vmrag_link.workspace.documents.writing import Planned
from vmrag_link.workspace.follow.follow_pin import read_consistently
from vmrag_link.workspace.follow.provenance import find_origin


class BranchRemoval(Record, frozen=True):
    """The removal on a branch, with git's name of the branch if git has it.

    `commit` is None for an uncommitted removal, and in a preview.
    """

    branch: str
    documents: int
    chunks: int
    commit: str | None = None


class MirrorRemoval(Record, frozen=True):
    """A removal. `pending` is the reason why the index is not up to date."""

    branches: tuple[BranchRemoval, ...]
    pending: str = ""

    @property
    def documents(self) -> int:
        return sum(branch.documents for branch in self.branches)

    @property
    def chunks(self) -> int:
        return sum(branch.chunks for branch in self.branches)


class _Branch(NamedTuple):
    """A branch with its documents."""

    name: str
    """git's name of the branch if git has it."""
    at: At
    kb_branch: KbBranch | None
    """None for the checked-out branch."""
    code_branch: str | None


class _BranchRows(NamedTuple):
    """The rows of a project on a branch."""

    branch: _Branch
    ids: list[str]
    removal: BranchRemoval


def remove_mirrored(ws: Workspace, name: str, *, branch: str | None, dry_run: bool) -> MirrorRemoval:
    """Delete the rows of a project on all local branches, or on one.

    Raises `DocumentMissing` for an unknown project, `Uncommitted` if another branch has uncommitted
    documents, `BranchInUse` if another work tree writes to it, and the errors of
    `writing.write_rows`. Then nothing is deleted.
    """
    branches = _list_branches(ws)
    if not any(mirror.mirror_of(ws, listed.at, name) for listed in branches):
        raise DocumentMissing(
            f"no local branch has documents of a project {name!r}.",
            hint="call activate_project with the name of the project, or chroma_list_collections to list the "
            "collections compounding_…",
            project_name=name,
        )
    chosen = [
        listed for listed in branches if branch in (None, listed.name, listed.kb_branch and listed.kb_branch.name)
    ]
    rows = [found_rows for listed in chosen if (found_rows := _find_rows(ws, listed, name)).ids]
    if dry_run or not rows:
        return MirrorRemoval(tuple(branch_rows.removal for branch_rows in rows))
    for branch_rows in rows:
        _require_free(ws, branch_rows.branch)
    removals: list[BranchRemoval] = []
    pending = ""
    for branch_rows in rows:
        if branch_rows.branch.kb_branch is None:
            pending = _remove_here(ws, name)
            removals.append(branch_rows.removal)
        else:
            commit = _remove_elsewhere(ws, branch_rows.branch, branch_rows.branch.kb_branch, name, branch_rows.ids)
            removals.append(msgspec.structs.replace(branch_rows.removal, commit=commit))
    return MirrorRemoval(tuple(removals), pending)


def _list_branches(ws: Workspace) -> list[_Branch]:
    """Return the checked-out branch, then the other branches."""
    origin = read_consistently(ws, lambda: find_origin(ws), index=False)
    current = ws.find_kb_branch()
    code_branches = own_keys.read_kb_owners(ws.places)
    current_name = ws.read_trigger().branch or origin.kb.branch or ""
    branches = [_Branch(current_name, origin.at, None, None)]
    for branch in ws.engine.list_branches():
        if not is_reserved(branch.name) and not (current and branch.name == current.name):
            at = WorkingSet(branch.name) if branch.dirty else branch.head
            code_branch = code_branches.get(branch.name)
            branches.append(_Branch(code_branch or branch.name, at, branch, code_branch))
    return branches


def _find_rows(ws: Workspace, branch: _Branch, name: str) -> _BranchRows:
    collection = mirror.mirror_of(ws, branch.at, name)
    rows = [*ws.engine.read_documents(branch.at, collection=collection.name)] if collection else []
    chunks = sum(len(chunks_of(ws, collection, row)) for row in rows) if collection else 0
    return _BranchRows(branch, [row.doc_id for row in rows], BranchRemoval(branch.name, len(rows), chunks))


def _require_free(ws: Workspace, branch: _Branch) -> None:
    """Raise `Uncommitted` and `BranchInUse`."""
    if branch.kb_branch and branch.kb_branch.dirty:
        raise uncommitted.build_uncommitted_error(ws, branch.kb_branch)
    symbolic = f"{BRANCHES}{branch.code_branch}"
    holder = lease.find_holder(ws.places, symbolic) if branch.code_branch else None
    if holder:
        raise lease.build_in_use_error(holder, symbolic)


def _remove_here(ws: Workspace, name: str) -> str:
    def plan_rows(at: At) -> Planned[None]:
        collection = mirror.mirror_of(ws, at, name)
        headers = ws.engine.read_headers(at, collection=collection.name) if collection else ()
        keys = [header.key for header in headers]
        return Planned(Write(remove_documents=keys) if keys else None, None)

    return writing.write_rows(ws, plan_rows, f"delete the documents of {name}").pending


def _remove_elsewhere(ws: Workspace, branch: _Branch, kb_branch: KbBranch, name: str, ids: list[str]) -> str | None:
    """Delete rows of a branch that is not checked out. Return its commit, if one was made."""
    purpose = f"Delete the documents of {name}"
    rows = Write(remove_documents=[(collection_of(name), doc_id) for doc_id in ids])
    with ws.sync_context.without_copy(kb_branch.name, kb_branch.head), ws.engine.write_lock(purpose):
        if branch.code_branch:
            ws.engine.write(kb_branch.name, rows, expected=kb_branch.head)
            return None
        # Commit first, and then move the branch: a kill must not leave uncommitted rows here.
        author = identity.read_identity(ws.places)
        commit = ws.engine.commit_onto(kb_branch.head, [rows], message=purpose, author=author, date=clock.now())
        ws.engine.move_branch(kb_branch.name, commit, expected=kb_branch.head)
        return commit
