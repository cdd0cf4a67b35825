"""`vmrag export`: documents as files, `COLLECTION/DOC` below a folder."""

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

_NAMED = 5
"""Changed files that an error names."""


class LeftOutDocument(Record, frozen=True):
    """A document that became no file, and why."""

    collection: str
    doc_id: str
    reason: str


class ExportReport(Record, frozen=True):
    """Numbers of files; `notes`: why this is not the pinned revision, if so. `sources`: collections
    that are files of the repository already, of which nothing is written.
    """

    folder: str
    written: int
    unchanged: int
    left_out: list[LeftOutDocument]
    kb: KbBlock
    notes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


def export_documents(
    ws: Workspace,
    folder: Path,
    *,
    wanted: Sequence[str] = (),
    ref: str | None = None,
    force: bool = False,
    strict: bool = False,
) -> ExportReport:
    """Write the text of each document to `folder/COLLECTION/DOC`; no other file is touched.

    `wanted`: collections; by default all but those in which tools write for themselves. `ref`: as
    `revparse.resolve_at`. `strict`: none but the pinned ones. Documents whose names cannot be files
    are left out. Raises `DocumentExists` where files there have another text, unless `force` is
    given; then nothing is written. Raises `UsageInvalid`, `CollectionMissing`, `FileFailed`.
    """
    sources = tuple(each.collection for each in ws.sources.configured)
    if named := [each for each in wanted if each in sources]:
        raise UsageInvalid(
            f"{enumerated(named)}: these documents are files of the repository already; only stored ones are exported.",
            hint="vmrag sources",
        )
    if folder.exists() and not folder.is_dir():
        raise UsageInvalid(f"{folder} is no folder.", hint="Name another one, which need not be there yet.")

    def look(here: AnswerOrigin) -> ExportReport:
        refuse_outdated(ws, here.notes, strict=strict)
        written = _export(ws, folder, wanted, here, force=force)
        return msgspec.structs.replace(written, sources=() if wanted else sources)

    return reading.read_at(ws, ref, look)


def _export(ws: Workspace, folder: Path, wanted: Sequence[str], here: AnswerOrigin, *, force: bool) -> ExportReport:
    names = reading.collection_names(ws.engine, here.at, wanted)
    target = Folder(folder)
    with file_failures():
        plan = _Plan(target, (header for name in names for header in ws.engine.read_headers(here.at, collection=name)))
        if plan.changed and not force:
            raise _would_overwrite(folder, plan.changed)
        _write(ws, here.at, target, plan)
    written = sum(map(len, plan.write.values()))
    return ExportReport(str(folder), written, plan.unchanged, plan.left_out, here.kb, here.notes)


class _Plan:
    """What becomes of each document, decided before anything is written. `write`: ids by
    collection.
    """

    def __init__(self, target: Folder, headers: Iterator[DocumentHeader]) -> None:
        self.write: dict[str, list[str]] = {}
        self.changed: list[str] = []
        self.unchanged = 0
        self.left_out: list[LeftOutDocument] = []
        self._files: dict[str, str] = {}
        self._folders: dict[str, str] = {}
        for header in headers:
            if reason := self._look(target, header):
                self.left_out.append(LeftOutDocument(header.collection, header.doc_id, reason))

    def _look(self, target: Folder, header: DocumentHeader) -> str | None:
        """Why a document is left out."""
        parts = parts_of(*header.key)
        if reason := export_paths.find_name_problem(parts) or self._clash(parts):
            return reason
        try:
            digest = target.hash_file(parts)
        except PathBlocked:
            return "would go through a link, or to where something else than a file is"
        if digest == header.content_hash:
            self.unchanged += 1
            return None
        if digest is not None:
            self.changed.append("/".join(parts))
        self.write.setdefault(header.collection, []).append(header.doc_id)
        return None

    def _clash(self, parts: Sequence[str]) -> str | None:
        """Why a document cannot be there beside those before it: on some system they are one file,
        or one is the folder of the other.
        """
        name, own = "/".join(parts), export_paths.fold_case(parts)
        above = [parts[:length] for length in range(1, len(parts))]
        folders = {export_paths.fold_case(each): "/".join(each) for each in above}
        if other := self._files.get(own) or self._folders.get(own):
            return f"has the same file as {other}"
        for key, folder in folders.items():
            if key in self._files:
                return f"needs a folder where {self._files[key]} is"
            if self._folders.get(key, folder) != folder:
                return f"needs a folder that is {self._folders[key]} where letters are alike"
        self._files[own] = name
        self._folders |= folders
        return None


def parts_of(collection: str, doc_id: str) -> tuple[str, ...]:
    return (collection, *doc_id.split("/"))


def _write(ws: Workspace, at: At, target: Folder, plan: _Plan) -> None:
    with ws.progress.task("writing", sum(map(len, plan.write.values()))) as task:
        for collection, ids in plan.write.items():
            for document in ws.engine.read_documents(at, collection=collection, ids=ids):
                target.write_file(parts_of(*document.key), document.content.encode())
                task.advance()


def _would_overwrite(folder: Path, changed: Sequence[str]) -> DocumentExists:
    shown = enumerated([*changed[:_NAMED], *([f"{len(changed) - _NAMED} more"] if len(changed) > _NAMED else [])])
    return DocumentExists(
        f"{plural(len(changed), 'file')} below {folder} would be overwritten: {shown}. Nothing was written.",
        hint=f"vmrag export {quoted(f'{folder}-2')}   (… with --force these files are lost, where git does not have them)",
        files=list(changed),
    )
