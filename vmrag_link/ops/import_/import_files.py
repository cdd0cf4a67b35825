"""Import files as documents: `vmrag import` and `vmrag add FILE`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from vmrag_link import terminal_text
from vmrag_link.conversion.converter import Converter
from vmrag_link.conversion.limits import MAX_BYTES, read_limits
from vmrag_link.documents import importing
from vmrag_link.documents.import_base import ImportBase
from vmrag_link.documents.importing import FileSelection, ImportedDocument, Scan, SkippedFile
from vmrag_link.errors import KnowledgeMoved, SourceReadOnly, quoted
from vmrag_link.models import At, Collection, Record, encode_canonical_json, parse_metadata
from vmrag_link.ops.import_ import import_bases
from vmrag_link.ops.import_.import_bases import BaseRequest
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import collections, leaving_out, placing, writing
from vmrag_link.workspace.documents.import_reports import ImportReport
from vmrag_link.workspace.documents.leaving_out import ImportFilter
from vmrag_link.workspace.documents.placing import Placing
from vmrag_link.workspace.documents.put import Existing, PlacedFiles, PutRequest, put_documents
from vmrag_link.workspace.documents.tracked_files import TrackedFiles


def import_files(
    ws: Workspace,
    sources: Sequence[Path],
    collection: str,
    *,
    base: Path | None = None,
    prune: bool = False,
    replace: bool = False,
    selection: FileSelection | None = None,
    copy: bool = False,
) -> ImportReport:
    """Store each file as a document.

    A file that is already a document of the collection stays that document, also after a rename.
    The id of a new document is its path below the import base, which is recorded with the
    collection. `base`: use this folder. `prune` removes the documents whose file in a named folder
    is gone. Files that git tracks and that sources can read are refused, unless `copy` is true.

    Raises `SourceReadOnly` if all named files are refused, `UsageInvalid` for an unknown base or a
    source outside of it, and `DocumentExists` if a document came from another file, unless
    `replace` is true. Nothing is stored then. Raises the errors of `put_documents` and
    `ImportFilter`, and `FileFailed`.
    """
    named = tuple(map(importing.require_existing, sources))
    tracked = None if copy else TrackedFiles(ws, named, collection)
    if tracked and all(path.is_file() for path in named):
        tracked.require_other(named)
    reader = _FileReader(ws, named, selection or FileSelection(), tracked)
    if not ws.is_initialized and (guess := import_bases.guess_base(ws, named, base)):
        scan, _ = reader.scan_files(guess)
        if refusal := reader.find_refusal(scan):  # a refused import must not create a knowledge base
            raise refusal
    read = functools.partial(reader.read_files, prune=prune)
    request = BaseRequest(named, base, replace, copy=copy)
    existing: Existing = "replace" if replace else "replace_same_file"
    report, _ = _store_files(ws, collection, request, read, existing, prune=prune)
    return msgspec.structs.replace(report, hint=tracked.hint if tracked else "")


class FileRequest(Record, frozen=True):
    """The user's settings for a file."""

    doc_id: str | None = None
    """None for the id that an import would give."""
    title: str = ""
    """Empty for the file's own title."""
    metadata: str = "{}"
    """Metadata in addition to the file's own, as canonical JSON."""


def add_file(
    ws: Workspace, file: Path, collection: str, request: FileRequest, *, copy: bool = False
) -> tuple[ImportReport, str]:
    """Store one file as an import does. Return the report and the id.

    A document with that id is replaced. A file of an unknown format is read as text. With a given
    id the document has no source file. Raises the errors of `import_files`, `ConversionFailed` and
    `NameInvalid`.
    """
    with create_converter(ws) as converter:
        content = importing.read_named_file(file, converter)
    metadata = encode_canonical_json(parse_metadata(content) | parse_metadata(request))
    title = request.title or content.title or request.doc_id or file.stem
    content = msgspec.structs.replace(content, title=title, metadata=metadata)
    named = importing.require_existing(file)
    if not copy:
        TrackedFiles(ws, [named], collection, texts=True).require_other([named])
    if request.doc_id is not None:
        collections.require_document_id(request.doc_id)
        document = msgspec.structs.replace(content, doc_id=request.doc_id)
        result = put_documents(ws, PutRequest(collection, [document], "replace", create=True))
        return ImportReport.from_result(result), request.doc_id

    def read_file(base: ImportBase) -> _ReadFiles:
        doc_id, source = base.make_doc_id(named), base.make_source(named)
        return _ReadFiles([msgspec.structs.replace(content, doc_id=doc_id, source=source)])

    command = f"vmrag add {quoted(file)} --collection {quoted(collection)} --id {quoted(file.name)}{' --copy' * copy}"
    base_request = BaseRequest((named,), alternative=command, copy=copy)
    report, placed = _store_files(ws, collection, base_request, read_file, "replace")
    return report, placed.documents[0].doc_id


def create_converter(ws: Workspace) -> Converter:
    """Return a converter with the size limit of imports, which is higher than for other files."""
    return Converter(read_limits(ws.config.ingest)._replace(max_bytes=MAX_BYTES))


class _ReadFiles(Record, frozen=True):
    """The contents of files."""

    documents: Sequence[ImportedDocument]
    skipped: Sequence[SkippedFile] = ()
    left_out: frozenset[str] = frozenset()
    """Sources of existing files that were left out."""
    ignored: tuple[str, ...] = ()
    """Paths for `ImportReport.ignored`."""
    refusal: SourceReadOnly | None = None
    """The error if nothing can be stored. It is not raised if documents are pruned."""


class _FileReader(NamedTuple):
    """Finds and reads the files of one import."""

    ws: Workspace
    sources: Sequence[Path]
    selection: FileSelection
    tracked: TrackedFiles | None

    def scan_files(self, base: ImportBase) -> tuple[Scan, ImportFilter]:
        """Return the files to import, and the filter that selected them."""
        find_reasons = self.tracked.find_reasons if self.tracked else None
        selected = ImportFilter(self.ws.places, self.selection, base.origin, derived=find_reasons)
        return importing.scan_sources(self.sources, base, selected), selected

    def find_refusal(self, scan: Scan) -> SourceReadOnly | None:
        """Return the error for a scan that left out all files because git tracks them."""
        return self.tracked.form_refusal() if self.tracked and self.tracked.hint and not scan.files else None

    def read_files(self, base: ImportBase, *, prune: bool) -> _ReadFiles:
        """Return the contents of the files. Raises `SourceReadOnly` if all are refused, unless
        documents are to be pruned.
        """
        scan, selected = self.scan_files(base)
        refusal = self.find_refusal(scan)
        if refusal and not prune:
            raise refusal
        skipped = list(scan.skipped)
        documents: list[ImportedDocument] = []
        with self.ws.progress.task("reading", len(scan.files)) as task, create_converter(self.ws) as converter:
            for file in scan.files:
                document = importing.read_file(file, converter)
                skipped.append(document) if isinstance(document, SkippedFile) else documents.append(document)
                task.advance()
        left_out = frozenset(f"{base.prefix}{file.name}" for file in scan.skipped if file.reason in leaving_out.REASONS)
        ignored = sorted(terminal_text.escape_line(base.make_doc_id(path)) for path in selected.named_ignored)
        return _ReadFiles(documents, skipped, left_out, tuple(ignored), refusal)


class _PlacedImport(Record, frozen=True):
    """The documents of an import with their ids, and other documents of the collection."""

    placing: Placing
    gone: tuple[str, ...]
    """Ids of documents whose file is missing in a named folder."""
    left_out: tuple[str, ...]
    """Ids of documents whose file was left out."""


def _store_files(
    ws: Workspace,
    collection: str,
    request: BaseRequest,
    read: Callable[[ImportBase], _ReadFiles],
    existing: Existing,
    *,
    prune: bool = False,
) -> tuple[ImportReport, Placing]:
    """Store the documents that `read` returns for an import base."""
    collections.require_name(collection)
    at = writing.require_writable(ws).at
    row = collections.find_exact(ws, at, collection) or collections.make_placeholder(ws, collection)
    collections.require_open(row)
    base = import_bases.decide_base(ws, at, row, request)
    files = read(base)
    followed = placing.find_renamed_files(ws, at, collection, base, files.documents)
    folders = [source for source in request.sources if source.is_dir()]
    plans: list[_PlacedImport] = []

    def place_files(at: At, now: Collection) -> PlacedFiles:
        if request.given is None and now.import_base not in (row.import_base, base.recorded):
            raise KnowledgeMoved(
                f"another process changed the import base of collection {collection!r}; nothing was stored.",
                hint="run the command again",
            )
        stored = placing.list_file_documents(ws, at, collection, base)
        placed = placing.place_documents(collection, files.documents, base, stored, followed, copy=request.copy)
        for document in placed.documents:
            collections.require_document_id(document.doc_id)
        kept = {document.doc_id for document in placed.documents}
        others = [(doc_id, source) for doc_id, source in stored if doc_id not in kept]
        gone = tuple(placing.list_missing_documents(ws.places, base, others, folders))
        if files.refusal and not gone:
            raise files.refusal
        left_out = tuple(doc_id for doc_id, source in others if _is_below(source, files.left_out))
        plans.append(_PlacedImport(placed, gone, left_out))
        return PlacedFiles(base, placed, gone if prune else (), insist=request.given is not None)

    put_request = PutRequest(collection, (), existing, create=True, skipped=files.skipped, arrange=place_files)
    result = put_documents(ws, put_request)
    import_bases.remember_folder(ws, collection, base)
    plan = plans[-1]  # the write is planned again if another process has written
    report = msgspec.structs.replace(
        ImportReport.from_result(result),
        skipped=tuple(files.skipped),
        base=base.recorded,
        renamed=plan.placing.renamed,
        gone=() if prune else plan.gone,
        left_out=plan.left_out,
        ignored=files.ignored,
    )
    return report, plan.placing


def _is_below(source: str, paths: frozenset[str]) -> bool:
    """Return whether a source is one of these paths, or is in one of them."""
    return bool(paths) and any(str(parent) in paths for parent in (Path(source), *Path(source).parents))
