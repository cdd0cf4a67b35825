"""Export documents as files: `vmrag export` writes `COLLECTION/DOC` below a folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from vmrag_link.documents import export_paths
from vmrag_link.documents.export_paths import Folder, PathBlocked
from vmrag_link.errors import DocumentExists, UsageInvalid, enumerated, file_failures, plural, quoted
from vmrag_link.models import At, DocumentHeader, Record
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import reading
from vmrag_link.workspace.follow.provenance import AnswerOrigin, KbBlock, refuse_outdated

_SHOWN_FILES = 5
"""Number of changed files that an error names."""


class LeftOutDocument(Record, frozen=True):
    """A document that was not exported, and the reason."""

    collection: str
    doc_id: str
    reason: str


class ExportReport(Record, frozen=True):
    """Numbers of exported files."""

    folder: str
    written: int
    unchanged: int
    left_out: list[LeftOutDocument]
    kb: KbBlock
    notes: tuple[str, ...] = ()
    """Why the documents are not those of the pinned revision; empty if they are."""
    sources: tuple[str, ...] = ()
    """Collections that were not exported because they are files of the repository."""


def export_documents(
    ws: Workspace,
    folder: Path,
    *,
    requested: Sequence[str] = (),
    ref: str | None = None,
    force: bool = False,
    strict: bool = False,
) -> ExportReport:
    """Write the text of each document to `folder/COLLECTION/DOC`. Other files stay as they are.

    `requested`: collections; by default all except those in which tools write. `ref`: a name for
    `reading.read_at`. `strict`: refuse documents that are not those of the pinned revision.
    Documents whose names cannot be file names are left out.

    Raises `DocumentExists` if existing files have another text, unless `force` is true. Nothing is
    written then. Raises `UsageInvalid`, `CollectionMissing` and `FileFailed`.
    """
    sources = tuple(source.collection for source in ws.sources.configured)
    if named := [name for name in requested if name in sources]:
        raise UsageInvalid(
            f"cannot export {enumerated(named)}: these documents are files of the repository.",
            hint="run 'vmrag sources' to list the files of the sources",
        )
    if folder.exists() and not folder.is_dir():
        raise UsageInvalid(f"{folder} is not a folder.", hint=f"run 'vmrag export {quoted(f'{folder}-2')}'")

    def export_at(origin: AnswerOrigin) -> ExportReport:
        refuse_outdated(ws, origin.notes, strict=strict)
        written = _write_export(ws, folder, requested, origin, force=force)
        return msgspec.structs.replace(written, sources=() if requested else sources)

    return reading.read_at(ws, ref, export_at)


def _write_export(
    ws: Workspace, folder: Path, requested: Sequence[str], origin: AnswerOrigin, *, force: bool
) -> ExportReport:
    names = reading.collection_names(ws.engine, origin.at, requested)
    target = Folder(folder)
    with file_failures():
        plan = _ExportPlan(
            target, (header for name in names for header in ws.engine.read_headers(origin.at, collection=name))
        )
        if plan.changed and not force:
            raise _would_overwrite(folder, plan.changed)
        _write_files(ws, origin.at, target, plan)
    written = sum(map(len, plan.write.values()))
    return ExportReport(
        folder=str(folder),
        written=written,
        unchanged=plan.unchanged,
        left_out=plan.left_out,
        kb=origin.kb,
        notes=origin.notes,
    )


class _ExportPlan:
    """Plans what happens to each document before anything is written.

    `write` has ids by collection.
    """

    def __init__(self, target: Folder, headers: Iterator[DocumentHeader]) -> None:
        self.write: dict[str, list[str]] = {}
        self.changed: list[str] = []
        self.unchanged = 0
        self.left_out: list[LeftOutDocument] = []
        self._files: dict[str, str] = {}
        self._folders: dict[str, str] = {}
        for header in headers:
            if reason := self._find_problem(target, header):
                self.left_out.append(LeftOutDocument(header.collection, header.doc_id, reason))

    def _find_problem(self, target: Folder, header: DocumentHeader) -> str | None:
        """Return why a document cannot be exported, or None. Plan its file."""
        parts = parts_of(*header.key)
        if reason := export_paths.find_name_problem(parts) or self._find_clash(parts):
            return reason
        try:
            digest = target.hash_file(parts)
        except PathBlocked:
            return "its path has a link, or something other than a file"
        if digest == header.content_hash:
            self.unchanged += 1
            return None
        if digest is not None:
            self.changed.append("/".join(parts))
        self.write.setdefault(header.collection, []).append(header.doc_id)
        return None

    def _find_clash(self, parts: Sequence[str]) -> str | None:
        """Return why a document's file clashes with earlier files, or None.

        On some systems two names are the same file, and a file cannot also be a folder.
        """
        name, file_key = "/".join(parts), export_paths.fold_case(parts)
        above = [parts[:length] for length in range(1, len(parts))]
        folders = {export_paths.fold_case(folder): "/".join(folder) for folder in above}
        if other := self._files.get(file_key) or self._folders.get(file_key):
            return f"has the same file as {other}"
        for key, folder in folders.items():
            if key in self._files:
                return f"needs a folder where {self._files[key]} is"
            if self._folders.get(key, folder) != folder:
                return f"needs a folder that some systems confuse with {self._folders[key]}"
        self._files[file_key] = name
        self._folders |= folders
        return None


def parts_of(collection: str, doc_id: str) -> tuple[str, ...]:
    return (collection, *doc_id.split("/"))


def _write_files(ws: Workspace, at: At, target: Folder, plan: _ExportPlan) -> None:
    with ws.progress.task("writing", sum(map(len, plan.write.values()))) as task:
        for collection, ids in plan.write.items():
            for document in ws.engine.read_documents(at, collection=collection, ids=ids):
                target.write_file(parts_of(*document.key), document.content.encode())
                task.advance()


def _would_overwrite(folder: Path, changed: Sequence[str]) -> DocumentExists:
    shown = enumerated(
        [*changed[:_SHOWN_FILES], *([f"{len(changed) - _SHOWN_FILES} more"] if len(changed) > _SHOWN_FILES else [])]
    )
    return DocumentExists(
        f"the export would overwrite {plural(len(changed), 'file')} in {folder}: {shown}. Nothing was written.",
        hint=f"run 'vmrag export {quoted(f'{folder}-2')}', or add --force to overwrite the files, which git may "
        "not have",
        files=list(changed),
    )
