"""Activate a project: read all of its files, and count the documents of each type."""

from __future__ import annotations

from collections import Counter

from vmrag_link.errors import AccessDenied, FileFailed
from vmrag_link.models import At, Record, parse_metadata
from vmrag_link.toolsets.compounding import external, mirror
from vmrag_link.toolsets.compounding.mirror import ActiveProject, MirrorResult
from vmrag_link.toolsets.compounding.project import DocsProject
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow.follow_pin import read_consistently
from vmrag_link.workspace.follow.provenance import AnswerOrigin, find_origin


class TypeCount(Record, frozen=True, omit_defaults=True):
    """The number of mirrored documents of a type.

    `schema` is `built-in`, the path of a custom type's schema, or `none`. `custom` is present only
    if it is true.
    """

    name: str
    description: str
    folder: str
    schema: str
    doc_count: int
    custom: bool = False


class Activation(Record, frozen=True):
    """An activated project.

    `differs` is the reason why the named branch is not the current branch. `notes` are problems.
    """

    project: DocsProject
    mirrored: MirrorResult
    types: tuple[TypeCount, ...]
    total: int
    origin: AnswerOrigin
    differs: str
    notes: tuple[str, ...]


def activate_project(ws: Workspace, active: ActiveProject, branch: str) -> Activation:
    """Read all files of the project, its own and external ones. Does not switch branches.

    Raises `AccessDenied`, `FileFailed`, `UsageInvalid`, `CollectionExists` and `EmbeddingError`.
    """
    project = active.load_project(ws)
    mirrored = mirror.mirror_changes(ws, active, project, now=True)
    notes = [f"Unknown key in the configuration: {key!r}." for key in project.unknown]
    if project.external:
        try:
            external.ensure_index(ws, active, project)
        except (AccessDenied, FileFailed) as error:
            notes.append(f"The external documents are not indexed: {error.sentence}")
    origin = read_consistently(ws, lambda: find_origin(ws), index=False)
    types, total = count_documents(ws, origin.at, project)
    return Activation(
        project=project,
        mirrored=mirrored,
        types=types,
        total=total,
        origin=origin,
        differs=_explain_difference(ws, branch),
        notes=tuple(notes),
    )


def count_documents(ws: Workspace, at: At, project: DocsProject) -> tuple[tuple[TypeCount, ...], int]:
    """Return the number of documents of each type, including empty types, and of all documents."""
    mirrored = mirror.mirror_of(ws, at, project.name)
    headers = [*ws.engine.read_headers(at, collection=mirrored.name)] if mirrored else []
    counts = Counter(str(parse_metadata(header).get("doc_type")) for header in headers)
    types = (
        TypeCount(
            name=doc_type.name,
            description=doc_type.description,
            folder=doc_type.folder,
            schema=doc_type.shown,
            doc_count=counts[doc_type.name],
            custom=doc_type.custom,
        )
        for doc_type in project.types
    )
    return tuple(types), len(headers)


def _explain_difference(ws: Workspace, branch: str) -> str:
    """Return why the named branch is not the current branch; empty if it is."""
    current = ws.read_trigger().branch
    kb_branch = ws.find_kb_branch()
    if branch != current and not current:
        return f"git's HEAD is detached, and not on {branch!r}: documents are read at that commit."
    if branch != current:
        return f"git's branch is {current!r}, not {branch!r}: documents are read and written there."
    given_branch = ws.engine.find_branch(branch) if ws.engine.is_legal_branch_name(branch) else None
    if given_branch and kb_branch and given_branch.name != kb_branch.name:
        return (
            f"The knowledge base's branch {branch!r} is another one than that of this git branch, {kb_branch.name!r}."
        )
    return ""
