"""Export documents as files: `vmrag export` writes `COLLECTION/DOC` below a folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from vmrag_link.documents import export_paths
from vmrag_link.documents.export_paths import Folder, PathBlocked
from vmrag_link.errors import DocumentExists, UsageInvalid, enumerated, file_failures, plural, quoted
from vmrag_link.models import At, DocumentHeader, Record
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import reading
from vmrag_link.workspace.follow.provenance import AnswerOrigin, KbBlock, refuse_outdated

_MAX_NAMED_FILES = 5
"""Maximum number of changed files in an error."""


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
    requested_sources = [name for name in requested if name in sources]
    if requested_sources:
        raise UsageInvalid(
            f"cannot export {enumerated(requested_sources)}: these documents are files of the repository.",
            hint="run 'vmrag sources' to list the files of the sources",
        )
    if folder.exists() and not folder.is_dir():
        raise UsageInvalid(f"{folder} is not a folder.", hint=f"run 'vmrag export {quoted(f'{folder}-2')}'")

    def export_at(origin: AnswerOrigin) -> ExportReport:
        refuse_outdated(ws, origin.notes, strict=strict)
        report = _write_export(ws, folder, requested, origin, force=force)
        return msgspec.structs.replace(report, sources=() if requested else sources)

    return reading.read_at(ws, ref, export_at)


def _write_export(
    ws: Workspace, folder: Path, requested: Sequence[str], origin: AnswerOrigin, *, force: bool
) -> ExportReport:
    names = reading.collection_names(ws.engine, origin.at, requested)
    headers = (header for name in names for header in ws.engine.read_headers(origin.at, collection=name))
    target = Folder(folder)
    with file_failures():
        plan = _plan_export(target, headers)
        if plan.changed and not force:
            raise _would_overwrite(folder, plan.changed)
        _write_files(ws, origin.at, target, plan)
    return ExportReport(
        folder=str(folder),
        written=plan.count_files(),
        unchanged=plan.unchanged,
        left_out=plan.left_out,
        kb=origin.kb,
        notes=origin.notes,
    )


class _ExportPlan(NamedTuple):
    """The effect of an export on each document."""

    ids_by_collection: dict[str, list[str]]
    """The documents whose files are written."""
    changed: list[str]
    """The paths of files that are overwritten."""
    unchanged: int
    left_out: list[LeftOutDocument]

    def count_files(self) -> int:
        return sum(map(len, self.ids_by_collection.values()))


def _plan_export(target: Folder, headers: Iterable[DocumentHeader]) -> _ExportPlan:
    ids_by_collection: dict[str, list[str]] = {}
    changed: list[str] = []
    unchanged = 0
    left_out: list[LeftOutDocument] = []
    paths = _ExportedPaths()
    for header in headers:
        parts = parts_of(*header.key)
        problem = export_paths.find_name_problem(parts) or paths.find_clash(parts)
        digest = None
        if not problem:
            paths.add_file(parts)
            try:
                digest = target.hash_file(parts)
            except PathBlocked:
                problem = "its path has a link, or something other than a file"
        if problem:
            left_out.append(LeftOutDocument(header.collection, header.doc_id, problem))
        elif digest == header.content_hash:
            unchanged += 1
        else:
            if digest is not None:
                changed.append("/".join(parts))
            ids_by_collection.setdefault(header.collection, []).append(header.doc_id)
    return _ExportPlan(ids_by_collection, changed, unchanged, left_out)


class _ExportedPaths:
    """The paths of an export.

    On some systems two names are the same file, and a file cannot also be a folder.
    """

    def __init__(self) -> None:
        # Names by the form in which all systems distinguish them.
        self._files: dict[str, str] = {}
        self._folders: dict[str, str] = {}

    def find_clash(self, parts: Sequence[str]) -> str | None:
        """Return why a file clashes with earlier files, or None."""
        key = export_paths.fold_case(parts)
        other = self._files.get(key) or self._folders.get(key)
        if other:
            return f"has the same file as {other}"
        for folder_key, folder in _list_folders(parts).items():
            if folder_key in self._files:
                return f"needs a folder where {self._files[folder_key]} is"
            if self._folders.get(folder_key, folder) != folder:
                return f"needs a folder that some systems confuse with {self._folders[folder_key]}"
        return None

    def add_file(self, parts: Sequence[str]) -> None:
        self._files[export_paths.fold_case(parts)] = "/".join(parts)
        self._folders |= _list_folders(parts)


def _list_folders(parts: Sequence[str]) -> dict[str, str]:
    folders = [parts[:length] for length in range(1, len(parts))]
    return {export_paths.fold_case(folder): "/".join(folder) for folder in folders}


def parts_of(collection: str, doc_id: str) -> tuple[str, ...]:
    return (collection, *doc_id.split("/"))


def _write_files(ws: Workspace, at: At, target: Folder, plan: _ExportPlan) -> None:
    with ws.progress.task("writing", plan.count_files()) as task:
        for collection, ids in plan.ids_by_collection.items():
            for document in ws.engine.read_documents(at, collection=collection, ids=ids):
                target.write_file(parts_of(*document.key), document.content.encode())
                task.advance()


def _would_overwrite(folder: Path, changed: Sequence[str]) -> DocumentExists:
    names = [*changed[:_MAX_NAMED_FILES]]
    if len(changed) > _MAX_NAMED_FILES:
        names.append(f"{len(changed) - _MAX_NAMED_FILES} more")
    return DocumentExists(
        f"the export would overwrite {plural(len(changed), 'file')} in {folder}: {enumerated(names)}. Nothing was written.",
        hint=f"run 'vmrag export {quoted(f'{folder}-2')}', or add --force to overwrite the files, which git may "
        "not have",
        files=list(changed),
    )
