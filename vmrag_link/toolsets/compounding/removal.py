"""Delete the rows that mirror a project, on one branch of the knowledge base or on all; no file.

A code branch's pin is the head of its KB branch: a commit there that no pin names would be left
behind by the next checkout. So rows of such a branch are deleted as uncommitted documents, which
stay with it; a KB branch without a code branch gets a commit.
"""

from __future__ import annotations

from typing import NamedTuple

from vmrag_link import clock
from vmrag_link.engines.base import Write, reserved
from vmrag_link.errors import DocumentMissing
from vmrag_link.git import plumbing
from vmrag_link.git.refs import BRANCHES
from vmrag_link.models import At, KbBranch, Record, Working
from vmrag_link.ops.branches import uncommitted
from vmrag_link.ops.documents import writing
from vmrag_link.ops.documents.document_selection import chunks_of
from vmrag_link.ops.documents.writing import Planned
from vmrag_link.ops.follow.follow_pin import read_consistently
from vmrag_link.ops.follow.provenance import standing
from vmrag_link.sync import lease
from vmrag_link.toolsets.compounding import mirror
from vmrag_link.toolsets.compounding.project import collection_of
from vmrag_link.workspace import Workspace


class BranchRemoval(Record, frozen=True):
    """What goes from a branch, which is called as git calls it where git has it. `commit`: None
    where the rows go uncommitted, and in a preview.
    """

    branch: str
    documents: int
    chunks: int
    commit: str | None = None


class Removed(Record, frozen=True):
    """`pending`: why the index does not follow yet."""

    branches: tuple[BranchRemoval, ...]
    pending: str = ""

    @property
    def documents(self) -> int:
        return sum(each.documents for each in self.branches)

    @property
    def chunks(self) -> int:
        return sum(each.chunks for each in self.branches)


class _Place(NamedTuple):
    """`other`: the KB branch, if it is not the one that is checked out; `code`: its code branch."""

    shown: str
    at: At
    other: KbBranch | None
    code: str | None


def remove(ws: Workspace, name: str, *, branch: str | None, dry_run: bool) -> Removed:
    """Delete what a project has mirrored on the local branches, or on the one of this name.

    Raises `DocumentMissing` for a project that no branch knows, `Uncommitted` where another branch
    has uncommitted documents, `BranchInUse` where another work tree writes on it: then nothing is
    deleted. And as `writing.write`.
    """
    places = _places(ws)
    if not any(mirror.mirror_of(ws, each.at, name) for each in places):
        raise DocumentMissing(
            f"No local branch has documents of a project {name!r}.",
            hint="activate_project names the project; chroma_list_collections shows compounding_…",
            project_name=name,
        )
    found = [
        (place, ids, removal)
        for place in places
        if branch in (None, place.shown, place.other and place.other.name)
        for ids, removal in [_find_rows(ws, place, name)]
        if ids
    ]
    removals = [removal for _, _, removal in found]
    if dry_run or not found:
        return Removed(tuple(removals))
    for place, _, _ in found:
        _require_free(ws, place)
    pending = ""
    for number, (place, ids, removal) in enumerate(found):
        if place.other is None:
            pending = _here(ws, name)
        else:
            removals[number] = BranchRemoval(
                removal.branch, removal.documents, removal.chunks, _there(ws, place, place.other, name, ids)
            )
    return Removed(tuple(removals), pending)


def _places(ws: Workspace) -> list[_Place]:
    """The branch that is checked out first, then the others."""
    here = read_consistently(ws, lambda: standing(ws), index=False)
    current = ws.kb_branch()
    codes = plumbing.kb_owners(ws.places)
    own = ws.trigger().branch or here.kb.branch or ""
    others = [
        _Place(
            codes.get(each.name, each.name), Working(each.name) if each.dirty else each.head, each, codes.get(each.name)
        )
        for each in ws.engine.branches()
        if not reserved(each.name) and not (current and each.name == current.name)
    ]
    return [_Place(own, here.at, None, None), *others]


def _find_rows(ws: Workspace, place: _Place, name: str) -> tuple[list[str], BranchRemoval]:
    collection = mirror.mirror_of(ws, place.at, name)
    rows = [*ws.engine.documents(place.at, collection=collection.name)] if collection else []
    chunks = sum(len(chunks_of(ws, collection, each)) for each in rows) if collection else 0
    return [each.doc_id for each in rows], BranchRemoval(place.shown, len(rows), chunks)


def _require_free(ws: Workspace, place: _Place) -> None:
    """Raises `Uncommitted`, `BranchInUse`."""
    if place.other is None:
        return
    if place.other.dirty:
        raise uncommitted.refusal(ws, place.other)
    symbolic = f"{BRANCHES}{place.code}"
    if place.code and (holder := lease.holder(ws.places, symbolic)):
        raise lease.in_use(holder, symbolic)


def _here(ws: Workspace, name: str) -> str:
    def plan(at: At) -> Planned[None]:
        collection = mirror.mirror_of(ws, at, name)
        headers = ws.engine.headers(at, collection=collection.name) if collection else ()
        keys = [each.key for each in headers]
        return Planned(Write(remove_documents=keys) if keys else None, None)

    return writing.write(ws, plan, f"delete the documents of {name}").pending


def _there(ws: Workspace, place: _Place, branch: KbBranch, name: str, ids: list[str]) -> str | None:
    """Delete rows of a branch that is not checked out; returns its commit, if it gets one."""
    purpose = f"Delete the documents of {name}"
    rows = Write(remove_documents=[(collection_of(name), doc_id) for doc_id in ids])
    with ws.sync_context.without_copy(branch.name, branch.head), ws.engine.writing(purpose):
        if place.code:
            ws.engine.write(branch.name, rows, expected=branch.head)
            return None
        # Made first, and then moved to: nobody would ever commit what a kill left uncommitted here.
        author = plumbing.identity(ws.places)
        made = ws.engine.commit_onto(branch.head, [rows], message=purpose, author=author, date=clock.now())
        ws.engine.move_branch(branch.name, made, expected=branch.head)
        return made
