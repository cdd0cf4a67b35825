"""Find the collection or table that a name means, check names, and create collections.

A table has the documents of one kind of collection. Most collections are in the table `documents`.
Toolsets have their own, for example for issues. A source is a collection of files, which is not
stored, so commands that change documents refuse its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from vmrag_link import clock, hints
from vmrag_link.documents.import_base import MAX_ID, ROOT, find_id_problem
from vmrag_link.engines import logical
from vmrag_link.errors import (
    CollectionMissing,
    NameInvalid,
    SourceReadOnly,
    TableMissing,
    UsageInvalid,
    enumerated,
    no_collection,
    quoted,
)
from vmrag_link.models import (
    COMPOUNDING,
    ISSUES,
    KNOWLEDGE,
    LIBRARY,
    TABLE_OF_KIND,
    At,
    Chunking,
    Collection,
    Distance,
    DocumentTable,
)
from vmrag_link.settings.flaws import is_collection_name
from vmrag_link.sync.target import read_trigger
from vmrag_link.workspace import Workspace

if TYPE_CHECKING:
    from vmrag_link.embedding.base import Model
    from vmrag_link.workspace import ReadableStore, SourceStore
    from vmrag_link.workspace.pins import kb_branches


DOCUMENTS = "documents"
COLLECTIONS = "collections"
"""Table with the settings of collections; it has no documents."""

PROJECTS = "projects"
"""Table with the projects of issue logs; it has no documents."""

TABLES = (DOCUMENTS, *TABLE_OF_KIND.values())
"""All tables with documents."""


def table_of(kind: str) -> str:
    """Return the table with the documents of this kind of collection."""
    return TABLE_OF_KIND.get(kind, DOCUMENTS)


def collection_name(table: str, identifier: str) -> str:
    """Return the collection with the documents of an identifier in a table. Raises `TableMissing`.

    In `documents`, the identifier is the collection. In other tables it is a project or a tool.
    """
    require_table(table)
    for kind, name in TABLE_OF_KIND.items():
        if name == table:
            return logical.collection_name(kind, identifier)
    return identifier


def require_table(table: str) -> DocumentTable:
    """Return the name of a table with documents. Raises `TableMissing`."""
    if table not in TABLES:
        raise TableMissing(
            f"no such table with documents: {table!r}.", hint=f"use one of {enumerated(TABLES)}", table=table
        )
    return table  # type: ignore[return-value]  # one of these


def find_collection(ws: ReadableStore, at: At, name: str) -> Collection:
    """Return the collection that a name means on the checked-out branch.

    Some clients append `_BRANCH` to the name. If no collection has the whole name, the suffix of
    the checked-out branch is removed. Raises `CollectionMissing`, and `SourceReadOnly` for a
    source.
    """
    from vmrag_link.workspace.pins import kb_branches

    collections_by_name = {collection.name: collection for collection in ws.engine.list_collections(at)}
    if name in collections_by_name:
        return collections_by_name[name]
    if not isinstance(ws, Workspace):
        from vmrag_link.workspace.source_tree import SourceStore

        if isinstance(ws, SourceStore):
            return _find_among_files(ws, name, collections_by_name)
        raise no_collection(name, list(collections_by_name))
    if any(source.collection == name for source in ws.sources.configured):
        raise source_read_only(name)
    branch = ws.read_trigger().branch
    rows = kb_branches.list_branches(ws).branches
    current_names = [branch, *(row.name for row in rows if row.current)]
    for bare_name in _strip_branches(name, current_names):
        if bare_name in collections_by_name:
            return collections_by_name[bare_name]
    raise _missing_collection(ws, name, list(collections_by_name), branch, [row for row in rows if not row.current])


def _find_among_files(ws: SourceStore, name: str, collections_by_name: Mapping[str, Collection]) -> Collection:
    """Return the collection of files that a name means. Raises `CollectionMissing`."""
    for possible_name in list_possible_names(ws, name):
        if possible_name in collections_by_name:
            return collections_by_name[possible_name]
    if reason := ws.opened.unavailable.get(name):
        raise unreadable_source(name, reason, list(collections_by_name))
    raise no_collection(name, list(collections_by_name))


def unreadable_source(name: str, reason: str, readable: Sequence[str]) -> CollectionMissing:
    """Return the error for a source whose files cannot be read here.

    `readable`: the other collections.
    """
    from vmrag_link.code.languages import EXTRA_HINT

    return CollectionMissing(
        f"cannot read the source {name!r} (files of this repository) here: {reason}.",
        hint=EXTRA_HINT if EXTRA_HINT in reason else "run 'vmrag sources' to list the readable sources",
        collection_name=name,
        collections=[*readable],
    )


def list_possible_names(ws: ReadableStore, name: str) -> list[str]:
    """Return the name that a client gave, and this name without the suffix of the git branch."""
    return [name, *_strip_branches(name, [read_trigger(ws.places).branch])]


def source_read_only(collection: str, path: str = "") -> SourceReadOnly:
    """Return the error for changing a source, or one of its files, as if it were stored."""
    subject = f"the collection {collection!r}"
    hint = hints.suggest_command(f"vmrag list --collection {quoted(collection)}", "list the files to edit")
    if path:
        subject = f"{collection}/{path}"
        hint = f"edit the file {path}"
    return SourceReadOnly(
        f"{subject} is not stored, because it comes from files of this repository (`sources` in .vmrag.yaml).",
        hint=hint,
        collection_name=collection,
        path=path,
    )


def find_exact(ws: ReadableStore, at: At, name: str) -> Collection | None:
    """Return the collection with exactly this name, or None."""
    return next((collection for collection in ws.engine.list_collections(at) if collection.name == name), None)


def make_placeholder(ws: Workspace, name: str) -> Collection:
    """Return an empty collection that is not stored yet. Raises `SourceReadOnly` for a source."""
    if any(source.collection == name for source in ws.sources.configured):
        raise source_read_only(name)
    return Collection(name, import_base=ROOT)


def _missing_collection(
    ws: Workspace, name: str, stored: list[str], branch: str | None, others: list[kb_branches.BranchRow]
) -> CollectionMissing:
    """Return the error for a missing collection. It has the branch if another branch has it.

    `stored`: the collections on this branch. `others`: the KB branches of other code branches.
    """
    for row in others:
        code = row.code_branch or row.name
        names = {collection.name for collection in ws.engine.list_collections(row.revision)}
        if not names.isdisjoint(_strip_branches(name, [code, row.name])):
            return CollectionMissing(
                f"{name!r} belongs to branch {code!r}, but {branch or 'no branch'!r} is checked out.",
                hint=f"run 'git switch {quoted(code)}' to check it out",
                collection_name=name,
                branch=branch,
                collections=stored,
            )
    error = no_collection(name, stored)
    error.details["branch"] = branch
    return error


def _strip_branches(name: str, names: Sequence[str | None]) -> Iterator[str]:
    """Yield the name without the suffix of each branch, if it has one."""
    for branch in dict.fromkeys(names):
        for suffix in {f"_{branch}", f"_{re.sub('[/_]', '-', branch)}"} if branch else ():
            if name.endswith(suffix):
                yield name.removesuffix(suffix)


def require_open(collection: Collection) -> None:
    """Require a collection in which users can store documents.

    Raises `UsageInvalid` for a library, for the mirror of a project's files, and for a table with
    its own fields.
    """
    if collection.kind == COMPOUNDING:
        raise UsageInvalid(
            f"the collection {collection.name!r} mirrors a project's files; the next sync would delete anything else.",
            hint="write a file into the project's folder, then call index_document",
            collection_name=collection.name,
        )
    require_plain(collection)
    if collection.kind == LIBRARY:
        raise UsageInvalid(
            f"the collection {collection.name!r} is a library, whose documents come from files and pages.",
            hint=f"run 'vmrag import FILE --library {quoted(collection.name)}', or call the tools ingest_file and "
            "ingest_url",
            collection_name=collection.name,
        )


def require_plain(collection: Collection) -> None:
    """Require a collection whose documents have no fields of their own.

    Raises `UsageInvalid` for issue logs and documents about tools, whose rows decide the
    collection's name.
    """
    if collection.kind == ISSUES:
        content, hint = (
            "the issue logs of a project",
            "run 'vmrag issue --help', or call the tools add_issue_log and update_issue_log",
        )
    elif collection.kind == KNOWLEDGE:
        content, hint = (
            "documents about a tool",
            "run 'vmrag doc --help', or call the tools add_knowledge_doc and update_knowledge_doc",
        )
    else:
        return
    raise UsageInvalid(
        f"the collection {collection.name!r} has {content}, which have their own fields.",
        hint=hint,
        collection_name=collection.name,
    )


def make_collection(
    name: str,
    model: Model,
    chunking: Chunking,
    *,
    kind: str = "chroma",
    metadata: str = "{}",
    distance: Distance = "cosine",
) -> Collection:
    """Return a new collection for documents that the model embeds. `metadata`: canonical JSON."""
    return Collection(
        name=name,
        kind=kind,
        metadata=metadata,
        embedding_function=model.name,
        embedding_model=model.fingerprint,
        embedding_dimensions=model.dimensions,
        distance=distance,
        chunking=chunking,
        created_at=clock.now(),
        import_base=ROOT,
    )


def require_name(collection: str, *, option: str = "--collection") -> None:
    """Require a valid name of a collection.

    `option`: what the hint calls it. Raises `NameInvalid`.
    """
    if not is_collection_name(collection):
        raise NameInvalid(
            f"invalid collection name {collection!r}: use 2 to 255 letters, digits, '.', '_' or '-', "
            "with a letter or digit at both ends.",
            hint=f"use a name such as '{option} {similar_name(collection)}'",
            collection_name=collection,
        )


def similar_name(text: str) -> str:
    """Return a valid collection name made from a text."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("._-")
    return name if is_collection_name(name) else "handbook"


def require_document_id(doc_id: str) -> None:
    """Require a valid document id. Raises `NameInvalid`."""
    if not doc_id or find_id_problem(doc_id):
        raise NameInvalid(
            f"invalid document id {doc_id!r}: use 1 to {MAX_ID} characters without control characters.",
            hint="use a name such as '--id guide/setup.md'",
            doc_id=doc_id,
        )
