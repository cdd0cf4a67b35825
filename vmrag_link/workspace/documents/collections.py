"""Which collection a name means, and which table of documents; what collections and documents may
be called, and what a new collection is made of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from vmrag_link import clock
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
"""The settings of collections: rows, but no documents."""

PROJECTS = "projects"
"""What issue logs belong to: rows, but no documents."""

TABLES = (DOCUMENTS, *TABLE_OF_KIND.values())
"""All tables with documents."""


def table_of(kind: str) -> str:
    """Where the documents of a collection of this kind are."""
    return TABLE_OF_KIND.get(kind, DOCUMENTS)


def collection_name(table: str, identifier: str) -> str:
    """The collection that a project, a tool or a collection's name means in a table.

    Raises `TableMissing`.
    """
    require_table(table)
    kind = next((kind for kind, name in TABLE_OF_KIND.items() if name == table), "")
    return logical.collection_name(kind, identifier) if kind else identifier


def require_table(table: str) -> DocumentTable:
    """The table with documents of this name. Raises `TableMissing`."""
    if table not in TABLES:
        raise TableMissing(
            f"There is no table {table!r} with documents.", hint=f"It is one of {enumerated(TABLES)}.", table=table
        )
    return table  # type: ignore[return-value]  # one of these


def find_collection(ws: ReadableStore, at: At, name: str) -> Collection:
    """The collection that a name means at a place of the checked-out branch.

    Some clients put `_BRANCH` after the name; that is taken off where it names the branch that is
    checked out and no collection has the whole name. Raises `CollectionMissing`.
    """
    from vmrag_link.workspace.pins import kb_branches

    there = {collection.name: collection for collection in ws.engine.list_collections(at)}
    if name in there:
        return there[name]
    if not isinstance(ws, Workspace):
        from vmrag_link.workspace.source_tree import SourceStore

        if isinstance(ws, SourceStore):
            return _of_files(ws, name, there)
        raise no_collection(name, list(there))
    if any(each.collection == name for each in ws.sources.configured):
        raise source_read_only(name)
    own = ws.read_trigger().branch
    rows = kb_branches.list_branches(ws).branches
    current = [own, *(row.name for row in rows if row.current)]
    for bare in _bare(name, current):
        if bare in there:
            return there[bare]
    raise _missing(ws, name, list(there), own, [row for row in rows if not row.current])


def _of_files(ws: SourceStore, name: str, there: Mapping[str, Collection]) -> Collection:
    for bare in list_possible_names(ws, name):
        if bare in there:
            return there[bare]
    if why := ws.opened.unavailable.get(name):
        raise unreadable_source(name, why, list(there))
    raise no_collection(name, list(there))


def unreadable_source(name: str, why: str, there: Sequence[str]) -> CollectionMissing:
    """For a source, of whose files nothing can be read here. `there`: the collections that can."""
    from vmrag_link.code.languages import EXTRA_HINT

    return CollectionMissing(
        f"The collection {name!r}, of files of this repository, cannot be read here: {why}.",
        hint=EXTRA_HINT if EXTRA_HINT in why else "vmrag sources   (shows what can be read here)",
        collection_name=name,
        collections=[*there],
    )


def list_possible_names(ws: ReadableStore, name: str) -> list[str]:
    """A name that clients gave a collection, and what it is without the git branch's name."""
    return [name, *_bare(name, [read_trigger(ws.places).branch])]


def source_read_only(collection: str, path: str = "") -> SourceReadOnly:
    what = f"{collection}/{path}" if path else f"The collection {collection!r}"
    return SourceReadOnly(
        f"{what} is made of files of this repository (sources in .vmrag.yaml), and is not stored.",
        hint=f"Edit the file {path}" if path else "Edit the files: vmrag list --collection " + quoted(collection),
        collection_name=collection,
        path=path,
    )


def find_exact(ws: ReadableStore, at: At, name: str) -> Collection | None:
    """The collection of exactly this name; None if there is none."""
    return next((collection for collection in ws.engine.list_collections(at) if collection.name == name), None)


def make_placeholder(ws: Workspace, name: str) -> Collection:
    """A collection that is not there yet, for what is looked up in it. Raises `SourceReadOnly` for
    the name of a source.
    """
    if any(each.collection == name for each in ws.sources.configured):
        raise source_read_only(name)
    return Collection(name, import_base=ROOT)


def _missing(
    ws: Workspace, name: str, there: list[str], own: str | None, others: list[kb_branches.BranchRow]
) -> CollectionMissing:
    for each in others:
        code = each.code_branch or each.name
        held = {collection.name for collection in ws.engine.list_collections(each.revision)}
        if any(bare in held for bare in _bare(name, [code, each.name])):
            return CollectionMissing(
                f"{name!r} belongs to branch {code!r}, and {own or 'no branch'!r} is checked out.",
                hint=f"git switch {quoted(code)}",
                collection_name=name,
                branch=own,
                collections=there,
            )
    error = no_collection(name, there)
    error.details["branch"] = own
    return error


def _bare(name: str, names: Sequence[str | None]) -> Iterator[str]:
    """The name without the suffix of one of these branches, if it has one."""
    for branch in dict.fromkeys(names):
        for suffix in {f"_{branch}", f"_{re.sub('[/_]', '-', branch)}"} if branch else ():
            if name.endswith(suffix):
                yield name.removesuffix(suffix)


def require_open(collection: Collection) -> None:
    """Raises `UsageInvalid` for a library or a project's mirror, whose documents are what files and
    pages hold, and as `require_plain`.
    """
    if collection.kind == COMPOUNDING:
        raise UsageInvalid(
            f"Collection {collection.name!r} mirrors a project's files: what is put there goes with the next look at them.",
            hint="Write a file into the project's folder; index_document takes it in at once.",
            collection_name=collection.name,
        )
    require_plain(collection)
    if collection.kind == LIBRARY:
        raise UsageInvalid(
            f"Collection {collection.name!r} is a library: its documents come from files and pages.",
            hint=f"vmrag import FILE --library {quoted(collection.name)}; tools: ingest_file, ingest_url",
            collection_name=collection.name,
        )


def require_plain(collection: Collection) -> None:
    """Raises `UsageInvalid` where the documents are rows of a table of their own, and the
    collection's name follows from them.
    """
    if collection.kind == ISSUES:
        what, hint = "the issue logs of a project", "vmrag issue --help; tools: add_issue_log, update_issue_log"
    elif collection.kind == KNOWLEDGE:
        what, hint = "documents about a tool", "vmrag doc --help; tools: add_knowledge_doc, update_knowledge_doc"
    else:
        return
    raise UsageInvalid(
        f"Collection {collection.name!r} holds {what}, which have fields of their own.",
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
    """A new collection, whose documents the model embeds; `metadata` is canonical JSON."""
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
    """`option`: what the hint calls it. Raises `NameInvalid`."""
    if not is_collection_name(collection):
        raise NameInvalid(
            f"{collection!r} cannot name a collection: 2 to 255 letters, digits, '.', '_' or '-', "
            "with a letter or digit at both ends.",
            hint=f"For example: {option} {similar_name(collection)}",
            collection_name=collection,
        )


def similar_name(text: str) -> str:
    """A name that a collection can have, made of a text."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("._-")
    return name if is_collection_name(name) else "handbook"


def require_document_id(doc_id: str) -> None:
    """Raises `NameInvalid`."""
    if not doc_id or find_id_problem(doc_id):
        raise NameInvalid(
            f"{doc_id!r} cannot name a document: 1 to {MAX_ID} characters without control characters.",
            hint="For example: --id guide/setup.md",
            doc_id=doc_id,
        )
