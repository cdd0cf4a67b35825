"""Make a project the one that a process works with, and say what it holds."""

from __future__ import annotations

from collections import Counter

from vmrag_link.errors import AccessDenied, FileFailed
from vmrag_link.models import At, Record, metadata_of
from vmrag_link.ops.follow.follow_pin import read_consistently
from vmrag_link.ops.follow.provenance import Standing, standing
from vmrag_link.toolsets.compounding import external, mirror
from vmrag_link.toolsets.compounding.doc_types import DocType
from vmrag_link.toolsets.compounding.mirror import ActiveProject, Mirrored
from vmrag_link.toolsets.compounding.project import DocsProject
from vmrag_link.workspace import Workspace


class TypeCount(Record, frozen=True):
    """How many documents of a type are mirrored."""

    type: DocType
    documents: int


class Activated(Record, frozen=True):
    """`differs`: why the branch that was named is not the one that is worked on, if so. `notes`:
    what could not be done.
    """

    project: DocsProject
    mirrored: Mirrored
    types: tuple[TypeCount, ...]
    total: int
    standing: Standing
    differs: str
    notes: tuple[str, ...]


def activate(ws: Workspace, active: ActiveProject, branch: str) -> Activated:
    """Take in all files of the project, its own and external ones. No branch is switched.

    Raises `AccessDenied`, `FileFailed`, `UsageInvalid`, `CollectionExists`, `Embedding` errors.
    """
    found = active.load(ws)
    mirrored = mirror.reconcile(ws, active, found, now=True)
    notes = [f"The configuration's {each!r} means nothing here." for each in found.unknown]
    if found.external:
        try:
            external.bring(ws, active, found)
        except (AccessDenied, FileFailed) as error:
            notes.append(f"The external documents are not indexed: {error.sentence}")
    here = read_consistently(ws, lambda: standing(ws), index=False)
    types, total = counts(ws, here.at, found)
    return Activated(found, mirrored, types, total, here, _differs(ws, branch), tuple(notes))


def counts(ws: Workspace, at: At, found: DocsProject) -> tuple[tuple[TypeCount, ...], int]:
    """Of all types, those without documents too; and of all documents."""
    mirrored = mirror.mirror_of(ws, at, found.name)
    headers = [*ws.engine.headers(at, collection=mirrored.name)] if mirrored else []
    held = Counter(str(metadata_of(each).get("doc_type")) for each in headers)
    return tuple(TypeCount(each, held[each.name]) for each in found.types), len(headers)


def _differs(ws: Workspace, branch: str) -> str:
    current, here = ws.trigger().branch, ws.kb_branch()
    if branch != current:
        return (
            f"git's branch is {current!r}, not {branch!r}: documents are read and written there."
            if current
            else (f"git's HEAD is detached, and not on {branch!r}: documents are read where it stands.")
        )
    named = ws.engine.branch(branch) if ws.engine.legal_branch_name(branch) else None
    if named and here and named.name != here.name:
        return f"The knowledge base's branch {branch!r} is another one than that of this git branch, {here.name!r}."
    return ""
