"""Import files as documents: `vmrag import` and `vmrag add FILE`.

Both read files without a lock, and give each its id below the collection's import base (see
`import_bases`). A document's *source* is the path of its file.
"""

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
    paths = tuple(map(importing.require_existing, sources))
    tracked = None if copy else TrackedFiles(ws, paths, collection)
    if tracked and all(path.is_file() for path in paths):
        tracked.require_other(paths)
    reader = _FileReader(ws, paths, selection or FileSelection(), tracked)
    likely_base = None if ws.is_initialized else import_bases.guess_base(ws, paths, base)
    if likely_base:  # a refused import must not create a knowledge base
        scan, _ = reader.scan_files(likely_base)
        refusal = reader.find_refusal(scan)
        if refusal:
            raise refusal
    report, _ = _store_files(
        ws,
        collection,
        BaseRequest(paths, base, replace, copy=copy),
        functools.partial(reader.read_files, prune=prune),
        "replace" if replace else "replace_same_file",
        prune=prune,
    )
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
    path = importing.require_existing(file)
    if not copy:
        TrackedFiles(ws, [path], collection, texts=True).require_other([path])
    if request.doc_id is not None:
        collections.require_document_id(request.doc_id)
        document = msgspec.structs.replace(content, doc_id=request.doc_id)
        result = put_documents(ws, PutRequest(collection, [document], "replace", create=True))
        return ImportReport.from_result(result), request.doc_id

    def read_file(base: ImportBase) -> _ReadFiles:
        document = msgspec.structs.replace(content, doc_id=base.make_doc_id(path), source=base.make_source(path))
        return _ReadFiles([document])

    command = f"vmrag add {quoted(file)} --collection {quoted(collection)} --id {quoted(file.name)}{' --copy' * copy}"
    base_request = BaseRequest((path,), alternative=command, copy=copy)
    report, placement = _store_files(ws, collection, base_request, read_file, "replace")
    return report, placement.documents[0].doc_id


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
        file_filter = ImportFilter(self.ws.places, self.selection, base.source_folder, derived=find_reasons)
        return importing.scan_sources(self.sources, base, file_filter), file_filter

    def find_refusal(self, scan: Scan) -> SourceReadOnly | None:
        """Return the error for a scan that left out all files because git tracks them."""
        return self.tracked.form_refusal() if self.tracked and self.tracked.hint and not scan.files else None

    def read_files(self, base: ImportBase, *, prune: bool) -> _ReadFiles:
        """Return the contents of the files. Raises `SourceReadOnly` if all are refused, unless
        documents are to be pruned.
        """
        scan, file_filter = self.scan_files(base)
        refusal = self.find_refusal(scan)
        if refusal and not prune:
            raise refusal
        skipped = list(scan.skipped)
        documents: list[ImportedDocument] = []
        with self.ws.progress.task("reading", len(scan.files)) as task, create_converter(self.ws) as converter:
            for file in scan.files:
                result = importing.read_file(file, converter)
                if isinstance(result, SkippedFile):
                    skipped.append(result)
                else:
                    documents.append(result)
                task.advance()
        left_out = frozenset(f"{base.prefix}{file.name}" for file in scan.skipped if file.reason in leaving_out.REASONS)
        ignored = sorted(terminal_text.escape_line(base.make_doc_id(path)) for path in file_filter.named_ignored)
        return _ReadFiles(documents, skipped, left_out=left_out, ignored=tuple(ignored), refusal=refusal)


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
    """Store the documents that `read` returns for an import base.

    `place_files` gives them their ids during the write. It is called again if another process has
    written in between.
    """
    collections.require_name(collection)
    at = writing.require_writable(ws).at
    row = collections.find_exact(ws, at, collection) or collections.make_placeholder(ws, collection)
    collections.require_open(row)
    base = import_bases.decide_base(ws, at, row, request)
    files = read(base)
    former_sources = placing.find_renamed_files(ws, at, collection, base, files.documents)
    folders = [source for source in request.sources if source.is_dir()]
    placed_imports: list[_PlacedImport] = []

    def place_files(at: At, present_row: Collection) -> PlacedFiles:
        if request.given is None and present_row.import_base not in (row.import_base, base.recorded):
            raise KnowledgeMoved(
                f"another process changed the import base of collection {collection!r}; nothing was stored.",
                hint="run the command again",
            )
        stored = placing.list_file_documents(ws, at, collection, base)
        placement = placing.place_documents(
            collection, files.documents, base, stored, former_sources, copy=request.copy
        )
        for document in placement.documents:
            collections.require_document_id(document.doc_id)
        imported_ids = {document.doc_id for document in placement.documents}
        others = [(doc_id, source) for doc_id, source in stored if doc_id not in imported_ids]
        gone = tuple(placing.list_missing_documents(ws.places, base, others, folders))
        if files.refusal and not gone:
            raise files.refusal
        left_out = tuple(doc_id for doc_id, source in others if _is_below(source, files.left_out))
        placed_imports.append(_PlacedImport(placement, gone, left_out))
        return PlacedFiles(base, placement, gone if prune else (), insist=request.given is not None)

    put_request = PutRequest(collection, (), existing, create=True, skipped=files.skipped, arrange=place_files)
    result = put_documents(ws, put_request)
    import_bases.remember_folder(ws, collection, base)
    final = placed_imports[-1]
    report = msgspec.structs.replace(
        ImportReport.from_result(result),
        skipped=tuple(files.skipped),
        base=base.recorded,
        renamed=final.placing.renamed,
        gone=() if prune else final.gone,
        left_out=final.left_out,
        ignored=files.ignored,
    )
    return report, final.placing


def _is_below(source: str, paths: frozenset[str]) -> bool:
    """Return whether a source is one of these paths, or is in one of them."""
    return bool(paths) and any(str(parent) in paths for parent in (Path(source), *Path(source).parents))
