"""Documents that say what their files said before (`STALE_DOCUMENT`): in an answer from the work
tree, and in a commit's tree.

Mostly none does, which is known without what `stale_files` takes to load.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Collection as Several
from pathlib import Path
from typing import TYPE_CHECKING

from vmrag_link.conversion.limits import MAX_BYTES, ContentUnreadable
from vmrag_link.documents.import_base import OUTSIDE
from vmrag_link.errors import first_of
from vmrag_link.models import At, Collection, Document, Record
from vmrag_link.ops.documents.source_files import SourcedDocument, base_of, shown_path, source_file
from vmrag_link.paths import read_regular
from vmrag_link.workspace import DocumentStore, Workspace

if TYPE_CHECKING:
    from vmrag_link.ops.documents.file_changes import FileChanges

CODE = "STALE_DOCUMENT"
_NAMED = 3


class StaleDocument(Record, frozen=True):
    """`path`: its file's, below the root of the repository, or an absolute one."""

    collection: str
    doc_id: str
    path: str


class StaleReport(Record, frozen=True):
    """`hint` is the command that takes the files in."""

    documents: tuple[StaleDocument, ...]
    message: str
    hint: str

    @property
    def sentence(self) -> str:
        return f"{self.message} Next: {self.hint}"


def report(ws: Workspace, found: Sequence[StaleDocument], commands: Sequence[str] | None = None) -> StaleReport | None:
    """None where there are none. `commands`: what takes the files in, where that is known."""
    if not found:
        return None
    from vmrag_link.ops.documents import import_reports

    names = first_of([f"{each.collection}/{each.doc_id}" for each in found], _NAMED)
    some = "1 document says what its file" if len(found) == 1 else f"{len(found)} documents say what their files"
    if commands is None:
        paths: dict[str, list[str]] = {}
        for each in found:
            paths.setdefault(each.collection, []).append(each.path)
        commands = [each for name, some in paths.items() for each in import_reports.of_files(ws, name, some)]
    return StaleReport(tuple(found), f"{some} said before: {names}.", " && ".join(commands))


def of_changes(ws: Workspace, changes: FileChanges) -> StaleReport | None:
    """What `file_changes` found."""
    found = [StaleDocument(each.collection, each.doc_id, each.path) for each in changes.files if each.stale]
    alone = len(found) == len(changes.files) and len(changes.commands) == 1 < len({each.collection for each in found})
    return report(ws, found, changes.commands if alone else None)


def among(ws: DocumentStore, at: At, names: Iterable[tuple[str, str]]) -> tuple[StaleDocument, ...]:
    """Which of these documents, by collection and id, say what their files said before; the files
    of the work tree.

    Raises as the engine.
    """
    wanted: dict[str, dict[str, None]] = {}
    for collection, doc_id in names:
        wanted.setdefault(collection, {})[doc_id] = None
    if not wanted or not isinstance(ws, Workspace):
        return ()
    rows = {each.name: each for each in ws.engine.collections(at)}
    return among_documents(
        ws,
        (
            (rows[name], document)
            for name, ids in wanted.items()
            if name in rows
            for document in ws.engine.documents(at, collection=name, ids=ids)
        ),
    )


def among_documents(ws: Workspace, documents: Iterable[tuple[Collection, Document]]) -> tuple[StaleDocument, ...]:
    """As `among`, of documents that are read already."""
    suspects = [
        (collection, document)
        for collection, document in documents
        if base_of(ws.places, collection)
        and (path := source_file(ws.places, collection, document))
        and not _is_as_written(path, document)
    ]
    if not suspects:
        return ()
    from vmrag_link.ops.documents import file_changes

    return _report_rows(file_changes.stale_in_work_tree(ws, suspects))


def _is_as_written(path: Path, document: Document) -> bool:
    """Whether the file is the document's text, byte by byte: then it is not older."""
    from vmrag_link.conversion.formats import decode

    with contextlib.suppress(OSError, ContentUnreadable):
        return decode(read_regular(path, MAX_BYTES)) == document.content
    return False


def in_tree(
    ws: Workspace,
    at: At,
    files: Mapping[str, str],
    *,
    commit: str | None,
    touched: Several[str] | None = None,
    changed: Several[tuple[str, str]] = (),
) -> tuple[StaleDocument, ...]:
    """Which documents at a place say what their files said before; the files of a tree or an index.

    `files`: the blobs by path. `commit`: in whose history files are looked up. `touched`: only of
    these files, and of the documents that are `changed`, by key; None: of all.
    """
    if not files:
        return ()
    asked = list(
        _imported_documents(
            ws, at, lambda source, key: source in files and (touched is None or source in touched or key in changed)
        )
    )
    if not asked:
        return ()
    from vmrag_link.ops.documents import file_changes

    return _report_rows(file_changes.stale_in_tree(ws, asked, files, commit=commit))


def _report_rows(found: Iterable[SourcedDocument]) -> tuple[StaleDocument, ...]:
    return tuple(StaleDocument(*each.header.key, shown_path(each.base, each.source)) for each in found)


def _imported_documents(
    ws: Workspace, at: At, wanted: Callable[[str, tuple[str, str]], bool]
) -> Iterator[SourcedDocument]:
    """The `wanted` ones, by source and key, of the documents that came from files of the
    repository.
    """
    for collection in ws.engine.collections(at):
        base = base_of(ws.places, collection)
        if base is None or base.recorded == OUTSIDE:
            continue
        stored = base.stored_sources(ws.engine.sources(at, collection.name))
        sources = {doc_id: source for doc_id, source in stored if wanted(source, (collection.name, doc_id))}
        ids = sources if len(sources) < len(stored) else None  # each that is named is looked up
        for header in ws.engine.headers(at, collection=collection.name, ids=ids) if sources else ():
            if header.doc_id in sources:
                yield SourcedDocument(base, sources[header.doc_id], header)
