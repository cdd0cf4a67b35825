"""What changed, when and why: of a document, a file, a collection or everything."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from vmrag_link.errors import CollectionMissing, DocumentMissing, GitReferenceMissing, UsageInvalid
from vmrag_link.models import Record
from vmrag_link.ops.follow.follow_pin import move_and_warn
from vmrag_link.ops.history import file_history, known
from vmrag_link.ops.history.compare import compare
from vmrag_link.ops.history.file_history import FileHistory
from vmrag_link.ops.history.history import history
from vmrag_link.ops.history.log import PinnedRevision
from vmrag_link.ops.history.revparse import WORKING
from vmrag_link.ops.history.word_diff import DiffReport
from vmrag_link.toolsets.essential.texts import FIND
from vmrag_link.workspace import Workspace

_SEARCHED = 500
"""Revisions that are looked through for those that changed a collection."""


class KnownStep(Record, frozen=True):
    """A commit of git's that changed a file, or a revision of the knowledge base. `kind`: what it
    did to the document that was asked for. `commits` of git that pin the revision, as `HASH
    SUBJECT`.
    """

    id: str
    date: str
    author: str
    message: str
    kind: str = ""
    commits: tuple[str, ...] = ()


class KnownSteps(Record, frozen=True):
    """Newest first; `more`: there are older ones."""

    steps: Sequence[KnownStep]
    more: bool


def steps(ws: Workspace, name: str, since: str, limit: int) -> KnownSteps:
    """The latest `limit` steps of a document or collection, of everything for an empty name;
    `since`: those after this ref, none for a folder or a collection of files.

    Raises `DocumentMissing` for another name, and as `file_history` and `history`.
    """
    try:
        return _steps(ws, name, since, limit)
    except (CollectionMissing, DocumentMissing, GitReferenceMissing):
        if not name:
            raise
        if since:  # what differs was found: it is the name of several files
            return KnownSteps((), more=False)
        if any(name.rstrip("/") == each.collection for each in ws.sources.configured):
            raise UsageInvalid(
                f"{name!r} is made of files, whose history is git's.",
                hint="since=v1.0 says what differs; of one file, name its path",
                parameter="name",
            ) from None
        raise DocumentMissing(f"Nothing here is or was called {name!r}.", hint=FIND, doc_id=name) from None


def _steps(ws: Workspace, name: str, since: str, limit: int) -> KnownSteps:
    reach = [f"{since}..{WORKING}"] if since else []
    if not name:
        found = history(ws, _reached(reach), limit=limit) if ws.initialized else None
        return KnownSteps([_revision(each.info) for each in found.steps] if found else (), bool(found and found.more))
    if name.rstrip("/") in _collections(ws):
        return _of_collection(ws, name.rstrip("/"), _reached(reach), limit)
    if file := file_history.file_history(ws, [*reach, name], limit=limit):
        return _of_file(file)
    with known.naming_files(ws, name):
        found = history(ws, [*_reached(reach), name], limit=limit)
    return KnownSteps(
        [_revision(each.info, each.document.kind if each.document else "") for each in found.steps], found.more
    )


def _reached(reach: Sequence[str]) -> Sequence[str]:
    """A log ends at a revision: `HEAD` is what the checked-out commit pins."""
    return [each.removesuffix(WORKING) for each in reach]


def _collections(ws: Workspace) -> set[str]:
    if not ws.initialized:
        return set()
    move_and_warn(ws)
    return {each.name for each in ws.engine.collections(ws.at())}


def _of_collection(ws: Workspace, name: str, reach: Sequence[str], limit: int) -> KnownSteps:
    every = history(ws, reach, limit=_SEARCHED)
    changed = (each.info for each in every.steps if _changed(ws, each.info, name))
    found = list(islice(changed, limit + 1))
    return KnownSteps([_revision(each) for each in found[:limit]], len(found) > limit or every.more)


def _changed(ws: Workspace, info: PinnedRevision, name: str) -> bool:
    """Whether a revision changed documents of a collection, against its first parent."""
    if not info.parents:
        return ws.engine.count(info.revision, collection=name) > 0
    found = ws.engine.diff_headers(info.parents[0], info.revision)
    return any(each.key[0] == name for each in found.documents)


def _of_file(found: FileHistory) -> KnownSteps:
    made = [
        KnownStep(each.info.commit, each.info.date, each.info.author, each.info.message, each.info.kind)
        for each in found.steps
    ]
    return KnownSteps(made, found.more)


def _revision(info: PinnedRevision, kind: str = "") -> KnownStep:
    commits = tuple(f"{each.commit[:7]} {each.subject}" for each in info.commits)
    return KnownStep(info.revision, info.date, info.author, info.message, kind, commits)


def differing(ws: Workspace, name: str, since: str) -> DiffReport:
    """The documents that differ from those at a ref, uncommitted ones among them. Raises as
    `compare`.
    """
    return compare(ws, [since], only=[name] if name else (), detail="stat", code=True).report()
