"""Files as documents: `vmrag import`, and `vmrag add FILE`."""

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
    """What files hold. `aside`: sources of what is there and left out; `ignored`: as reported.
    `refusal`: why nothing is stored, unless documents are pruned.
    """

    documents: Sequence[ImportedDocument]
    skipped: Sequence[SkippedFile] = ()
    aside: Several[str] = ()
    ignored: tuple[str, ...] = ()
    refusal: SourceReadOnly | None = None


class _Outcome(Record, frozen=True):
    """What the last arrangement found in the collection."""

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
    """Store files as documents, one each.

    A file that is a document of the collection already stays that document, a renamed one too; a
    new one's id is its path below the import base, which is recorded with the collection (`base`:
    take this folder). `prune` removes the documents whose file in one of the named folders is gone.
    Files that git tracks and that sources can read are refused; `copy` stores them.

    Raises `SourceReadOnly` if only refused files are named, `UsageInvalid` if the base is not known
    or a source is outside of it, `DocumentExists` if a document came from another file, unless
    `replace` is given; then nothing is stored. Raises as `put`, `LeavingOut`, and `FileFailed`.
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
        refusal = scan_from(guess)[2]  # an import that is refused starts no knowledge base
        if refusal:
            raise refusal

    def read(found: ImportBase) -> _ReadFiles:
        scan, leave_out, refusal = scan_from(found)
        if refusal and not prune:
            raise refusal
        skipped = list(scan.skipped)
        documents: list[ImportedDocument] = []
        with ws.progress.task("reading", len(scan.files)) as task, converter_of(ws) as converter:
            for file in scan.files:
                one = importing.read_file(file, converter)
                skipped.append(one) if isinstance(one, SkippedFile) else documents.append(one)
                task.advance()
        aside = {f"{found.prefix}{each.name}" for each in scan.skipped if each.reason in leaving_out.REASONS}
        ignored = sorted(terminal_text.escape_line(found.make_doc_id(each)) for each in leave_out.named_ignored)
        return _ReadFiles(documents, skipped, aside, tuple(ignored), refusal)

    existing: Existing = "replace" if replace else "replace_same_file"
    report, _ = _store(ws, collection, BaseRequest(named, base, replace, copy=copy), read, existing, prune=prune)
    return msgspec.structs.replace(report, hint=tracked.hint if tracked else "")


class FileRequest(Record, frozen=True):
    """What a person says of a file: `doc_id` (None: as an import forms it), `title` (empty: the
    file's own), and `metadata` beside the file's own, as canonical JSON.
    """

    doc_id: str | None = None
    title: str = ""
    metadata: str = "{}"


def add_file(
    ws: Workspace, file: Path, collection: str, request: FileRequest, *, copy: bool = False
) -> tuple[ImportReport, str]:
    """Store one file as an import does; returns its id, too. The document of that id is replaced.

    A file of a format that no import knows is taken as text. With an id that is given the document
    counts as coming from no file. Raises as `import_files`, and `ConversionFailed`, `NameInvalid`.
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
        own = msgspec.structs.replace(content, doc_id=request.doc_id)
        return ImportReport.from_result(
            put_documents(ws, PutRequest(collection, [own], "replace", create=True))
        ), request.doc_id
    command = f"vmrag add {quoted(file)} --collection {quoted(collection)} --id {quoted(file.name)}{' --copy' * copy}"

    def read(found: ImportBase) -> _ReadFiles:
        return _ReadFiles(
            [msgspec.structs.replace(content, doc_id=found.make_doc_id(named), source=found.make_source(named))]
        )

    report, placed = _store(ws, collection, BaseRequest((named,), alternative=command, copy=copy), read, "replace")
    return report, placed.documents[0].doc_id


def _store(
    ws: Workspace,
    collection: str,
    request: BaseRequest,
    read: Callable[[ImportBase], _ReadFiles],
    existing: Existing,
    *,
    prune: bool = False,
) -> tuple[ImportReport, Placing]:
    """Store what `read` finds from an import base, as the documents that these files are."""
    collections.require_name(collection)
    at = writing.require_writable(ws).at
    row = collections.find_exact(ws, at, collection) or collections.make_placeholder(ws, collection)
    collections.require_open(row)
    base = import_bases.decide_base(ws, at, row, request)
    files = read(base)
    followed = placing.find_renamed_files(ws, at, collection, base, files.documents)
    folders = [each for each in request.sources if each.is_dir()]
    outcomes: list[_Outcome] = []

    def arrange(at: At, now: Collection) -> PlacedFiles:
        if request.given is None and now.import_base not in (row.import_base, base.recorded):
            raise KnowledgeMoved(
                f"The import base of collection {collection!r} changed while files were read; nothing was written.",
                hint="Run the command again.",
            )
        there = placing.list_file_documents(ws, at, collection, base)
        placed = placing.place_documents(collection, files.documents, base, there, followed, copy=request.copy)
        for document in placed.documents:
            collections.require_document_id(document.doc_id)
        kept = {document.doc_id for document in placed.documents}
        gone = tuple(
            doc_id for doc_id in placing.list_missing_documents(ws.places, base, there, folders) if doc_id not in kept
        )
        left_out = tuple(doc_id for doc_id, source in there if doc_id not in kept and _is_below(source, files.aside))
        if files.refusal and not gone:
            raise files.refusal
        outcomes.append(_Outcome(placed, gone, left_out))
        return PlacedFiles(base, placed, gone if prune else (), insist=request.given is not None)

    done = put_documents(ws, PutRequest(collection, (), existing, create=True, skipped=files.skipped, arrange=arrange))
    import_bases.remember_folder(ws, collection, base)
    last = outcomes[-1]
    report = msgspec.structs.replace(
        ImportReport.from_result(done),
        skipped=tuple(files.skipped),
        base=base.recorded,
        renamed=last.placing.renamed,
        gone=() if prune else last.gone,
        left_out=last.left_out,
        ignored=files.ignored,
    )
    return report, last.placing


def _is_below(source: str, aside: Several[str]) -> bool:
    """Whether a source is one of these, or lies in one."""
    return bool(aside) and any(str(parent) in aside for parent in (Path(source), *Path(source).parents))


def converter_of(ws: Workspace) -> Converter:
    """For files that are imported, which may be larger than others."""
    return Converter(read_limits(ws.config.ingest)._replace(max_bytes=MAX_BYTES))
