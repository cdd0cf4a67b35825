"""Which files differ from the documents that were imported from them, and which documents say what
their files said before.

The first is cheap enough for each `vmrag status`: what has not changed since it was last read is
not read again. For the second, files are converted and git's history is asked.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from vmrag_link.conversion import formats
from vmrag_link.conversion.limits import MAX_BYTES, limits_of
from vmrag_link.documents import import_base
from vmrag_link.documents.import_base import OUTSIDE, ImportBase, is_below, is_in, leads_out
from vmrag_link.documents.seen_files import FileRecord, FileSelection, SeenText
from vmrag_link.git import listing, refs, versions
from vmrag_link.models import At, Collection, Document, DocumentHeader, Record
from vmrag_link.ops.documents import import_reports, leaving_out
from vmrag_link.ops.documents.earlier_texts import HISTORY_SECONDS, Differing, imported_before, says, says_content
from vmrag_link.ops.documents.import_reports import FileDifference, Kind
from vmrag_link.ops.documents.leaving_out import DerivedFiles, LeavingOut
from vmrag_link.ops.documents.source_files import SourcedDocument, base_of, shown_path
from vmrag_link.paths import Places, read_regular
from vmrag_link.workspace import Workspace

if TYPE_CHECKING:
    from vmrag_link.conversion.converter import Converter

CONVERTING_SECONDS = 2.0
"""How long files are converted that another process has to convert; the next time goes on."""
TREE_SECONDS = 60.0
"""As `HISTORY_SECONDS`, where a commit, a push or a CI job waits."""


class FileChanges(Record, frozen=True):
    """`commands` make the documents as the files are.

    `unknown`: how many files have not been compared, because converting them would take long or is
    not possible here.
    """

    files: tuple[FileDifference, ...] = ()
    commands: tuple[str, ...] = ()
    unknown: int = 0


def file_changes(ws: Workspace, at: At) -> FileChanges:
    """Compare the files with the documents at a place.

    A file differs if its text does, or if the document lacks something of its front matter.
    """
    from vmrag_link.conversion.converter import Converter

    seen = FileRecord(ws.places.seen_files)
    found: list[FileDifference] = []
    commands: list[str] = []
    unknown, private = 0, False
    with Converter(limits_of(ws.config.ingest), seconds=HISTORY_SECONDS) as converter:
        comparison = FileComparison(ws.places, seen, converter)
        for collection in ws.engine.collections(at):
            base = base_of(ws.places, collection)
            if base is None:
                continue
            documents = base.stored_sources(ws.engine.sources(at, collection.name))
            if not documents:
                continue
            headers = {each.doc_id: each for each in ws.engine.headers(at, collection=collection.name)}
            folders = seen.folders(collection.name) if base.recorded != OUTSIDE else {}
            documents += files_beside(ws, base, folders, documents, headers)
            kinds = [(*each, comparison.kind(base, each[1], headers.get(each[0]))) for each in documents]
            removed = {source for _, source, kind in kinds if kind == "removed"}
            if removed and base.recorded != OUTSIDE:
                hidden = listing.not_checked_out(ws.places, removed)
                kinds = [each for each in kinds if each[1] not in hidden]
            unknown += sum(kind == "unknown" for _, _, kind in kinds)
            modified = [(source, headers[doc_id]) for doc_id, source, kind in kinds if kind == "modified"]
            stale = comparison.stale(base, modified)
            changes = [
                FileDifference(
                    collection.name, shown_path(base, source), doc_id, kind, (collection.name, doc_id) in stale
                )
                for doc_id, source, kind in kinds
                if kind and kind != "unknown"
            ]
            here, left = {}, []
            for folder, selection in folders.items():
                if os.path.isdir(base.top / folder):  # noqa: PTH112
                    here[folder] = selection
                elif any(is_in(source, folder) for _, source in documents):
                    left.append(folder)
                else:
                    seen.forget_folder(collection.name, folder)
            moved, followed = import_reports.of_moved_folders(
                ws, base, collection.name, changes, {each: folders[each] for each in left}
            )
            commands += moved
            rest = [each for each in changes if each not in followed]
            commands += import_reports.of_changes(ws, collection.name, rest, here)
            found += sorted(changes, key=lambda each: each.path)
            private |= bool(leaving_out.private(ws.places, base, [source for source, _ in modified], folders))
    if len(commands) > 1 and not private and all(each.stale for each in found):
        commands = [import_reports.of_all(ws)]
    seen.forget_gone(import_base.located(ws.places.top), comparison.asked)
    seen.save()
    return FileChanges(tuple(found), tuple(commands), unknown)


class FileComparison:
    """Compares files of the work tree with documents. `asked`: the paths that were looked at.

    `seconds`: for the conversion of files.
    """

    def __init__(self, places: Places, seen: FileRecord, converter: Converter, *, seconds: float | None = None) -> None:
        self._places, self.seen, self._converter = places, seen, converter
        self.asked: set[str] = set()
        self._git_dirs = [os.path.realpath(each) for each in (places.git_dir, places.common)]
        self._until = time.monotonic() + (CONVERTING_SECONDS if seconds is None else seconds)
        self._inside: dict[str, bool] = {}
        self._unknown: set[tuple[int, int, str]] = set()

    def kind(self, base: ImportBase, source: str, header: DocumentHeader | None) -> Kind | Literal["unknown"] | None:
        """None for a file that is as its document, and for what cannot be a file here."""
        path = f"{base.origin}/{source}"
        self.asked.add(path)
        if leads_out(source) or not self._lies_in(str(base.origin), path):
            return None
        try:
            status = _status(path, str(base.origin))
        except (FileNotFoundError, NotADirectoryError):
            return "removed" if header and self.seen.known(path) else None
        if status is None or header is None:
            return "added" if status and stat.S_ISREG(status.st_mode) else None
        text = self._text(path, status)
        if text is None:
            return "unknown"
        return None if says(header, text) else "modified"

    def stale(self, base: ImportBase, modified: Sequence[tuple[str, DocumentHeader]]) -> set[tuple[str, str]]:
        """The keys of the documents that were not edited themselves; their files are `modified`."""
        differing = self.differing(base, modified)
        if not differing:
            return set()
        commit = refs.head(self._places).commit
        return imported_before(self._places, self.seen, differing, commit=commit, converter=self._in_time)

    def differing(self, base: ImportBase, modified: Sequence[tuple[str, DocumentHeader]]) -> list[Differing]:
        """Those of the `modified` files that differ from their documents by more than line ends."""
        return [
            difference(base, source, header)
            for source, header in modified
            if not self._says_the_same(f"{base.origin}/{source}", header)
        ]

    def _says_the_same(self, path: str, header: DocumentHeader) -> bool:
        """Whether a file differs from its document in line ends alone."""
        try:
            content = read_regular(Path(path), MAX_BYTES)
        except OSError:
            return True
        return says_content(header, path, content, self._in_time) is not False

    @property
    def _in_time(self) -> Converter | None:
        return self._converter if time.monotonic() < self._until else None

    def _text(self, path: str, status: os.stat_result) -> SeenText | None:
        """A file that holds no text is read once, however many documents, and links, name it."""
        file = (status.st_dev, status.st_ino, os.path.splitext(path)[1])  # noqa: PTH122
        if file in self._unknown:
            return None
        text = self.seen.text(path, status, self._in_time)
        if text is None:
            self._unknown.add(file)
        return text

    def _lies_in(self, origin: str, path: str) -> bool:
        """Not so where a link, perhaps a stranger's, leads out, and in git's own directories, whose
        files nobody should be told to import. Each folder is looked up once.
        """
        folder = os.path.dirname(path)  # noqa: PTH120
        if folder not in self._inside:
            real = os.path.realpath(folder)
            self._inside[folder] = is_below(real, origin) and not any(is_below(real, each) for each in self._git_dirs)
        return self._inside[folder]


def difference(base: ImportBase, source: str, header: DocumentHeader) -> Differing:
    """A document that its file does not say, or not any more."""
    return Differing(f"{base.origin}/{source}" if base.recorded == OUTSIDE else source, header)


def _status(path: str, origin: str) -> os.stat_result | None:
    """None for a link that leads out, and for a name, perhaps a stranger's, that cannot be one.

    Raises `FileNotFoundError` and `NotADirectoryError`.
    """
    try:
        found = os.lstat(path)
        if not stat.S_ISLNK(found.st_mode):
            return found
        return os.stat(path) if is_below(os.path.realpath(path), origin) else None  # noqa: PTH116  thousands of them
    except (FileNotFoundError, NotADirectoryError):
        raise
    except (OSError, ValueError):
        return None


def files_beside(
    ws: Workspace,
    base: ImportBase,
    folders: Mapping[str, FileSelection],
    documents: Sequence[tuple[str, str]],
    headers: Mapping[str, DocumentHeader],
) -> Iterator[tuple[str, str]]:
    """The other files of imported folders that an import would take, with the id of the document
    that it would replace; empty if there is none.
    """
    derived = DerivedFiles(ws)
    known = {source for _, source in documents}
    taken = {doc_id for doc_id, _ in documents}
    for folder, selection in folders.items():
        below = (
            each for each in listing.files_below(ws.places, [folder]) if each not in known and _is_importable(each)
        )
        files = [base.top / each for each in below]
        left_out = (
            LeavingOut(ws.places, selection, base.top, derived=derived.reasons)([], files, False) if files else {}
        )
        for path in (base.source(each) for each in files if each not in left_out):
            doc_id = path.removeprefix(base.prefix)
            yield (doc_id if doc_id in headers and doc_id not in taken else "", path)
            known.add(path)


def _is_importable(path: str) -> bool:
    if path.startswith(".") or "/." in path:  # hidden
        return False
    found = formats.by_suffix(path)
    return found is not None and not formats.missing_extra(found)


def stale_in_work_tree(ws: Workspace, documents: Iterable[tuple[Collection, Document]]) -> list[SourcedDocument]:
    """Which of these documents say what their files in the work tree said before."""
    from vmrag_link.conversion.converter import Converter

    by_collection: dict[str, tuple[Collection, list[Document]]] = {}
    for collection, document in documents:
        by_collection.setdefault(collection.name, (collection, []))[1].append(document)
    seen = FileRecord(ws.places.seen_files)
    found: list[SourcedDocument] = []
    with Converter(limits_of(ws.config.ingest), seconds=HISTORY_SECONDS) as converter:
        comparison = FileComparison(ws.places, seen, converter)
        for collection, some in by_collection.values():
            base = base_of(ws.places, collection)
            if base is None:
                continue
            headers = {each.doc_id: each.header for each in some}
            sources = base.stored_sources([(each.doc_id, each.source) for each in some])
            modified = [
                (source, headers[doc_id])
                for doc_id, source in sources
                if comparison.kind(base, source, headers[doc_id]) == "modified"
            ]
            stale = comparison.stale(base, modified)
            found += [SourcedDocument(base, *each) for each in modified if each[1].key in stale]
    seen.save()
    return found


def stale_in_tree(
    ws: Workspace, documents: Sequence[SourcedDocument], files: Mapping[str, str], *, commit: str | None
) -> list[SourcedDocument]:
    """Which of these documents say what their `files`, blobs by path, said before.

    `commit`: in whose history files are looked up.
    """
    from vmrag_link.conversion.converter import Converter

    seen = FileRecord(ws.places.seen_files)
    with Converter(limits_of(ws.config.ingest), seconds=TREE_SECONDS) as converter:
        held = dict(versions.contents(ws.places, {files[each.source] for each in documents}))
        differing = [
            Differing(each.source, each.header)
            for each in documents
            if (content := held.get(files[each.source])) is not None
            and says_content(each.header, each.source, content, converter) is False
        ]
        if differing:
            other = versions.converted_on_checkout(ws.places, [each.path for each in differing])
            differing = [each for each in differing if each.path not in other]
        stale = imported_before(ws.places, seen, differing, commit=commit, converter=converter)
    seen.save()
    return [each for each in documents if each.header.key in stale]
