"""Files as documents: `vmrag import`, and `vmrag add FILE` without an id."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from vmrag_link.conversion.converter import Converter
from vmrag_link.conversion.limits import MAX_BYTES, limits_of
from vmrag_link.documents import importing
from vmrag_link.documents.import_base import ROOT, ImportBase, leads_out
from vmrag_link.documents.importing import ImportedDocument, Skipped
from vmrag_link.errors import KnowledgeMoved, UsageInvalid, quoted
from vmrag_link.models import At, ChangeCounts, Collection, Record
from vmrag_link.ops.documents import collections, import_bases, names, writing
from vmrag_link.ops.documents.import_bases import BaseRequest
from vmrag_link.ops.documents.put import Arranged, Existing, PutCounts, PutRequest, put
from vmrag_link.ops.documents.writing import Landed
from vmrag_link.workspace import Workspace


class ImportReport(Record, frozen=True):
    """Numbers of documents; `skipped` files with the reasons.

    `pending`: why the index did not follow yet. `base`: from where ids count, as a path below the
    root of the repository, `..` for a folder outside of it; empty for what came from no file.
    """

    collection: str
    created: bool
    changes: ChangeCounts
    unchanged: int
    skipped: tuple[Skipped, ...]
    branch: str | None
    pending: str = ""
    base: str = ""

    @classmethod
    def of(cls, done: Landed[PutCounts], skipped: tuple[Skipped, ...] = (), base: str = "") -> ImportReport:
        counts = done.report
        return cls(
            counts.collection,
            counts.created,
            counts.changes,
            counts.unchanged,
            skipped,
            done.branch,
            done.pending,
            base,
        )


def import_files(
    ws: Workspace,
    sources: Sequence[Path],
    collection: str,
    *,
    base: Path | None = None,
    prune: bool = False,
    replace: bool = False,
) -> ImportReport:
    """Store files as documents, one each.

    A file that is a document of the collection already stays that document; a new one's id is its
    path below the import base, which is recorded with the collection (`base`: take this folder).
    `prune` removes the documents whose file in one of the named folders is gone. Raises
    `UsageInvalid` where the base is not known or a source does not lie in it, `DocumentExists`
    where a document came from another file, unless `replace` is given; then nothing is stored.
    Raises as `put`, and `FileFailed`.
    """
    names.check(collection)
    named = tuple(map(importing.existing, sources))
    request = BaseRequest(named, base, replace)
    at = writing.place(writing.writable(ws))
    row = next((each for each in ws.engine.collections(at) if each.name == collection), None)
    row = row or Collection(collection, import_base=ROOT)
    collections.require_open(row)
    found = import_bases.decide(ws, at, row, request)
    scan = importing.scan(named, found)
    skipped = list(scan.skipped)
    documents: list[ImportedDocument] = []
    limits = msgspec.structs.replace(limits_of(ws.config.ingest), max_bytes=MAX_BYTES)
    with ws.progress.task("reading", len(scan.files)) as task, Converter(limits) as converter:
        for file in scan.files:
            read = importing.read(file, converter)
            skipped.append(read) if isinstance(read, Skipped) else documents.append(read)
            task.advance()

    def arrange(at: At, now: Collection) -> Arranged:
        if base is None and now.import_base not in (row.import_base, found.recorded):
            raise KnowledgeMoved(
                f"The import base of collection {collection!r} changed while files were read; nothing was written.",
                hint="Run the command again.",
            )
        folders = [each for each in named if each.is_dir()] if prune else []
        stored = _stored(ws, at, collection, found, all_of_them=bool(folders))
        placed = _placed(collection, documents, found, stored)
        kept = {each.doc_id for each in placed}
        gone = [doc_id for doc_id in _gone(found, stored, folders) if doc_id not in kept]
        return Arranged(found, placed, gone, insist=base is not None, moved=_moved(found, stored, placed))

    existing: Existing = "replace" if replace else "replace_same_file"
    done = put(ws, PutRequest(collection, (), existing, create=True, skipped=skipped, arrange=arrange))
    import_bases.remember(ws, collection, found)
    return ImportReport.of(done, tuple(skipped), found.recorded)


def add_file(ws: Workspace, file: Path, collection: str, document: ImportedDocument) -> tuple[ImportReport, str]:
    """Store a document that was read from a file, under the id that an import would give it.

    Returns that id, too; it is the title if the document has none. Raises as `import_files`.
    """
    named = importing.existing(file)
    command = f"vmrag add {quoted(file)} --collection {quoted(collection)} --id {quoted(file.name)}"
    request = BaseRequest((named,), alternative=command)
    bases: list[ImportBase] = []
    ids: list[str] = []

    def arrange(at: At, now: Collection) -> Arranged:
        base = import_bases.decide(ws, at, now, request)
        new = msgspec.structs.replace(document, doc_id=base.doc_id(named), source=base.source(named))
        [placed] = _placed(collection, [new], base, _stored(ws, at, collection, base))
        names.check_document(placed.doc_id)
        bases[:], ids[:] = [base], [placed.doc_id]
        titled = msgspec.structs.replace(placed, title=placed.title or placed.doc_id)
        return Arranged(base, [titled], [], insist=False)

    done = put(ws, PutRequest(collection, (), "replace", create=True, arrange=arrange))
    return ImportReport.of(done, base=bases[0].recorded), ids[0]


def _stored(
    ws: Workspace, at: At, collection: str, base: ImportBase, *, all_of_them: bool = False
) -> list[tuple[str, str]]:
    """The documents of the collection that came from files, with the sources of these files.

    Unless `all_of_them` are asked for: none, where each has the id that the base gives its file.
    """
    if not all_of_them and not ws.engine.sources(at, collection, unless=base.prefix):
        return []
    return base.stored_sources(ws.engine.sources(at, collection))


def _placed(
    collection: str, documents: Sequence[ImportedDocument], base: ImportBase, stored: Sequence[tuple[str, str]]
) -> list[ImportedDocument]:
    """The documents under the ids that their files have already.

    Raises `UsageInvalid` for two files of one id.
    """
    known = base.ids_by_source(stored)
    placed: dict[str, ImportedDocument] = {}
    for each in documents:
        doc_id = known.get(each.source, each.doc_id)
        if doc_id in placed:
            raise _one_id(base, collection, placed[doc_id], each)
        placed[doc_id] = each if doc_id == each.doc_id else msgspec.structs.replace(each, doc_id=doc_id)
    return list(placed.values())


def _one_id(base: ImportBase, collection: str, one: ImportedDocument, other: ImportedDocument) -> UsageInvalid:
    paths = [str(base.origin / each.source) for each in (one, other)]
    return UsageInvalid(
        f"{paths[0]} and {paths[1]} would both become the document {one.doc_id!r}.",
        hint=f"vmrag import {quoted(paths[1])} --collection {collection}-2",
        doc_id=one.doc_id,
        paths=paths,
    )


def _gone(base: ImportBase, stored: Sequence[tuple[str, str]], folders: Sequence[Path]) -> Iterator[str]:
    """Documents whose file lay in one of the folders and is there no more."""
    for doc_id, source in stored:
        path = base.origin / source
        below = ".." not in path.parts and any(path.is_relative_to(folder) for folder in folders)
        if below and _is_gone(path):
            yield doc_id


def _moved(base: ImportBase, stored: Sequence[tuple[str, str]], placed: Sequence[ImportedDocument]) -> frozenset[str]:
    """Documents that were stored from a file elsewhere, which is gone."""
    now = {each.doc_id: each.source for each in placed}
    return frozenset(
        doc_id
        for doc_id, before in stored
        if now.get(doc_id, before) != before and not leads_out(before) and _is_gone(base.origin / before)
    )


def _is_gone(path: Path) -> bool:
    """Not so of a name, perhaps a stranger's, that the system refuses to look up."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False
    return False
