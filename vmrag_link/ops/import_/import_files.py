"""Import files as documents: `vmrag import` and `vmrag add FILE`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Collection as Several
from pathlib import Path

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


class _ReadFiles(Record, frozen=True):
    """The contents of files."""

    documents: Sequence[ImportedDocument]
    skipped: Sequence[SkippedFile] = ()
    aside: Several[str] = ()
    """Sources of existing files that were left out."""
    ignored: tuple[str, ...] = ()
    """Paths for `ImportReport.ignored`."""
    refusal: SourceReadOnly | None = None
    """The error if nothing can be stored. It is not raised if documents are pruned."""


class _Outcome(Record, frozen=True):
    """The state of the collection in the last plan of the import."""

    placing: Placing
    gone: tuple[str, ...]
    left_out: tuple[str, ...]


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
    selected = selection or FileSelection()
    tracked = None if copy else TrackedFiles(ws, named, collection)
    if tracked and all(path.is_file() for path in named):
        tracked.require_other(named)

    def scan_from(origin: ImportBase) -> tuple[Scan, ImportFilter, SourceReadOnly | None]:
        leave_out = ImportFilter(ws.places, selected, origin.origin, derived=tracked.find_reasons if tracked else None)
        scan = importing.scan_sources(named, origin, leave_out)
        return scan, leave_out, tracked.form_refusal() if tracked and tracked.hint and not scan.files else None

    if not ws.is_initialized and (guess := import_bases.guess_base(ws, named, base)):
        refusal = scan_from(guess)[2]  # a refused import must not create a knowledge base
        if refusal:
            raise refusal

    def read_files(origin: ImportBase) -> _ReadFiles:
        scan, leave_out, refusal = scan_from(origin)
        if refusal and not prune:
            raise refusal
        skipped = list(scan.skipped)
        documents: list[ImportedDocument] = []
        with ws.progress.task("reading", len(scan.files)) as task, converter_of(ws) as converter:
            for file in scan.files:
                document = importing.read_file(file, converter)
                skipped.append(document) if isinstance(document, SkippedFile) else documents.append(document)
                task.advance()
        aside = {
            f"{origin.prefix}{skipped_file.name}"
            for skipped_file in scan.skipped
            if skipped_file.reason in leaving_out.REASONS
        }
        ignored = sorted(terminal_text.escape_line(origin.make_doc_id(path)) for path in leave_out.named_ignored)
        return _ReadFiles(documents, skipped, aside, tuple(ignored), refusal)

    existing: Existing = "replace" if replace else "replace_same_file"
    report, _ = _store_files(
        ws, collection, BaseRequest(named, base, replace, copy=copy), read_files, existing, prune=prune
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
    with converter_of(ws) as converter:
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
        return ImportReport.from_result(
            put_documents(ws, PutRequest(collection, [document], "replace", create=True))
        ), request.doc_id
    command = f"vmrag add {quoted(file)} --collection {quoted(collection)} --id {quoted(file.name)}{' --copy' * copy}"

    def read_one(origin: ImportBase) -> _ReadFiles:
        return _ReadFiles(
            [msgspec.structs.replace(content, doc_id=origin.make_doc_id(named), source=origin.make_source(named))]
        )

    report, placed = _store_files(
        ws, collection, BaseRequest((named,), alternative=command, copy=copy), read_one, "replace"
    )
    return report, placed.documents[0].doc_id


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
    outcomes: list[_Outcome] = []

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
        gone = tuple(
            doc_id for doc_id in placing.list_missing_documents(ws.places, base, stored, folders) if doc_id not in kept
        )
        left_out = tuple(doc_id for doc_id, source in stored if doc_id not in kept and _is_below(source, files.aside))
        if files.refusal and not gone:
            raise files.refusal
        outcomes.append(_Outcome(placed, gone, left_out))
        return PlacedFiles(base, placed, gone if prune else (), insist=request.given is not None)

    result = put_documents(
        ws, PutRequest(collection, (), existing, create=True, skipped=files.skipped, arrange=place_files)
    )
    import_bases.remember_folder(ws, collection, base)
    last = outcomes[-1]
    report = msgspec.structs.replace(
        ImportReport.from_result(result),
        skipped=tuple(files.skipped),
        base=base.recorded,
        renamed=last.placing.renamed,
        gone=() if prune else last.gone,
        left_out=last.left_out,
        ignored=files.ignored,
    )
    return report, last.placing


def _is_below(source: str, aside: Several[str]) -> bool:
    """Return whether a source is one of these paths, or is in one of them."""
    return bool(aside) and any(str(parent) in aside for parent in (Path(source), *Path(source).parents))


def converter_of(ws: Workspace) -> Converter:
    """Return a converter with the size limit of imports, which is higher than for other files."""
    return Converter(read_limits(ws.config.ingest)._replace(max_bytes=MAX_BYTES))
