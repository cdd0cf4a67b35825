"""`vmrag log` and `vmrag blame` of a document of a source: git's commits of the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from vmrag_link.errors import GitFailed, UsageInvalid, quoted
from vmrag_link.git import beside, file_log, plumbing
from vmrag_link.git.file_log import CommitInfo, LoggedChange
from vmrag_link.git.raw_changes import REGULAR
from vmrag_link.models import ChangeKind, Document, Record
from vmrag_link.settings import SourceSettings
from vmrag_link.sources.listings import NoDocument, TreeFile
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.history import document_names, ranges
from vmrag_link.workspace.history.diff import Diff, DiffTexts
from vmrag_link.workspace.history.document_names import DocumentName
from vmrag_link.workspace.history.revparse import HEAD, WORKING
from vmrag_link.workspace.history.word_diff import Detail, DiffReport, WordDiff

if TYPE_CHECKING:
    from vmrag_link.workspace.history.known import FoundFile
    from vmrag_link.workspace.source_tree import SourceTree

_RANGE_AND_NAME = 2


class FileCommit(Record, frozen=True):
    """A git commit that changed the file. `name`: of the document there, or right before it
    was removed; `old_name`: what it was called before, if otherwise. `path`, `old_path`: of the
    file. `refs`: those that point to the commit.
    """

    commit: str
    parents: tuple[str, ...]
    message: str
    author: str
    date: str
    refs: tuple[str, ...]
    kind: ChangeKind
    name: str
    old_name: str
    path: str
    old_path: str


class FileCommitReport(FileCommit, frozen=True):
    """`diff`: if it was asked for."""

    diff: DiffReport | None


class FileStep(Record, frozen=True):
    info: FileCommit
    change: LoggedChange


class LoggedFile(NamedTuple):
    """A document of a source, and where its file is; or was, if it does not exist."""

    name: DocumentName
    source: SourceSettings
    path: str
    exists: bool


class FileHistory:
    """What is asked of a step is read then. `more`: there are older ones."""

    def __init__(self, ws: Workspace, file: LoggedFile, changes: Sequence[LoggedChange], limit: int) -> None:
        self._ws = ws
        self._source = file.source
        self._path = file.path
        self.name = file.name
        self.is_note = file.source.write
        self.more = len(changes) > limit
        self.steps = [FileStep(file_commit(file.name, file.path, change), change) for change in changes[:limit]]

    def diff_step(self, step: FileStep, detail: Detail) -> WordDiff:
        """What the commit changed of the document, against its first parent."""
        from vmrag_link.workspace.history import compare

        change = step.change
        commits = (step.info.parents[0] if step.info.parents else "", step.info.commit)
        sides = ((change.old_path, change.old_mode, change.old_blob), (change.path, change.mode, change.blob))
        blobs = [blob for _, mode, blob in sides if mode in REGULAR]
        sizes = beside.read_blob_sizes(self._ws.places, blobs)
        if any(blob not in sizes for blob in blobs):
            nothing = Diff(None, "", (), (), commits, missing=(change.path,))
            return WordDiff(DiffTexts(lambda _: {}, lambda _: {}), nothing, detail)
        before, after = (self._document(path, blob, sizes.get(blob, 0)) for path, _, blob in sides)
        was, now = (compare.header_of(each) if each else None for each in (before, after))
        changes = () if was == now else (compare.change_of(was, now),)
        read = DiffTexts(
            lambda _: {before.key: before} if before else {}, lambda _: {after.key: after} if after else {}
        )
        of_files = frozenset({self.name.collection})
        return WordDiff(read, Diff(None, "", changes, (), commits, sources=of_files), detail)

    def list_reports(self, detail: Detail | None) -> Iterator[FileCommitReport]:
        for step in self.steps:
            made = self.diff_step(step, detail).form_report() if detail else None
            yield FileCommitReport(**msgspec.structs.asdict(step.info), diff=made)

    @cached_property
    def _most_bytes(self) -> int:
        return self._ws.config.sources_max_bytes

    def _document(self, path: str, blob: str, size: int) -> Document | None:
        """None where there is no file, or it is no text."""
        from vmrag_link.sources import documents

        if not 0 < size <= self._most_bytes:
            return None
        note_id = document_id(self.name, self._path, path) if self._source.write else ""
        file = TreeFile(path, blob, size, handwritten=True, note_id=note_id)
        (_, text), *_ = documents.read_texts_at_commit(self._ws.places, [file])
        document = documents.build_document(self._source, file, text)
        return None if isinstance(document, NoDocument) else document


def file_history(ws: Workspace, names: Sequence[str], *, limit: int) -> FileHistory | None:
    """`limit` commits of the file that `[RANGE] DOCUMENT` means, newest first; None where no
    document of a source is meant.

    Raises `GitReferenceMissing` for a range that git does not know, `DocumentAmbiguous`, and as
    `file_log.file_log`.
    """
    if not names or len(names) > _RANGE_AND_NAME:
        return None
    reach = names[0] if len(names) > 1 else None
    if reach and ws.is_initialized and ws.engine.has_revision(reach):
        return None  # a revision of the knowledge base has no files
    for file in _find_documents(ws, names[-1], reach):
        reached = reached_commits(ws, reach)
        changes = file_log.read_file_log(ws.places, reached, file.path, limit=limit + 1) if reached else []
        if changes or file.exists:
            return FileHistory(ws, file, changes, limit)
    return None


def _find_documents(ws: Workspace, document: str, reach: str | None) -> Iterator[LoggedFile]:
    """Yield the files that a name may mean: a removed file has a history."""
    from vmrag_link.workspace.history import known

    end = ranges.parse_range(reach) if reach else None
    ref = end.new if end else reach
    for each in dict.fromkeys((f"{ref}:{document}" if ref else document, document)):
        file = known.find_file(ws, each)
        if file and (source := file.tree.find_source(file.name.collection)):
            path = file.tree.files[file.name.key].path
            require_own_file(file.tree, path, "log")
            yield LoggedFile(file.name, source, path, exists=True)
            return
    yield from removed_documents(ws, document)


def require_own_file(tree: SourceTree, path: str, command: str) -> None:
    """Raise `UsageInvalid` for a file of a submodule, whose history is in another repository."""
    if submodule := tree.find_submodule(path):
        inner = path.removeprefix(f"{submodule.path}/")
        raise UsageInvalid(
            f"{path} is a file of the submodule {submodule.path}, whose history is not in this repository.",
            hint=f"git -C {quoted(submodule.path)} {command} -- {quoted(inner)}",
        )


def removed_documents(ws: Workspace, document: str) -> Iterator[LoggedFile]:
    """Yield the files that a name of a removed document may have meant."""
    from vmrag_link.sources import notes, rules

    gone = document_names.without_line(document)
    for source in ws.sources.configured:
        if rules.is_named(source, gone):
            doc_id = notes.path_id(source.folder, gone) if source.write else gone
            yield LoggedFile(DocumentName(source.collection, doc_id), source, gone, exists=False)
    for source in ws.sources.configured:
        doc_id = document.removeprefix(f"{source.collection}/")
        if doc_id and doc_id != document:
            doc_id = doc_id.removeprefix("/")
            path = notes.note_path(source, doc_id) if source.write else doc_id
            yield LoggedFile(DocumentName(source.collection, doc_id), source, path, exists=False)


def reached_commits(ws: Workspace, reach: str | None) -> list[str]:
    """As `git log` takes them; none before the first commit."""
    if reach is None or reach == WORKING:
        head = plumbing.read_head(ws.places).commit
        return [head] if head else []
    asked = ranges.parse_range(reach)
    if asked is None:
        return [plumbing.resolve_commit(ws.places, reach)]
    old, new = (
        plumbing.resolve_commit(ws.places, HEAD if each == WORKING else each) for each in (asked.old, asked.new)
    )
    return [f"{old}{asked.dots}{new}"]


def document_id(document: DocumentName, path: str, earlier: str) -> str:
    """Return the id that a document had at an earlier path. `path`: where it is now."""
    if path == document.doc_id:
        return earlier
    from vmrag_link.sources import notes  # few documents are notes

    folder = path.removesuffix(f"{document.doc_id}{notes.SUFFIX}").rstrip("/")
    return document.doc_id if earlier == path else notes.path_id(folder, earlier)


def file_commit(document: DocumentName, path: str, change: LoggedChange) -> FileCommit:
    """Return what a commit did to a document. `path`: where its file is now."""
    kinds: dict[str, ChangeKind] = {"A": "added", "D": "removed"}
    name, old = (
        str(DocumentName(document.collection, document_id(document, path, changed_path)))
        for changed_path in (change.path, change.old_path)
    )
    kind = kinds.get(change.status, "modified")
    moved = old != name
    return FileCommit(
        *_facts(change.info), kind, name, old if moved else "", change.path, change.old_path if moved else ""
    )


def _facts(info: CommitInfo) -> tuple[str, tuple[str, ...], str, str, str, tuple[str, ...]]:
    return info.commit, info.parents, info.message, info.author, info.date, info.refs


# -- lines


class BlamedFileLine(Record, frozen=True):
    """`commit` wrote it, or it is uncommitted: `WORKING`; there the document was called `name`, and
    the line was its `number`th, from 1.
    """

    text: str
    commit: str
    name: str
    number: int


class BlamedCommit(Record, frozen=True):
    """`message`: its first line."""

    commit: str
    message: str
    author: str
    date: str


class FileBlame(Record, frozen=True):
    """The lines of the file, what is no part of the document's text among them. `commit`: whose
    file it is, or `WORKING`. `commits`: those that the lines name, newest first.
    """

    collection: str
    doc_id: str
    commit: str
    lines: list[BlamedFileLine]
    commits: list[BlamedCommit]


def blame_file(ws: Workspace, found: FoundFile) -> FileBlame:
    """Raises as `file_log.file_blame`."""
    tree, name = found
    file = tree.files[name.key]
    require_own_file(tree, file.path, "blame")
    # What the work tree does not change is asked of HEAD: no file is read for it.
    commit = tree.commit or (None if file.uncommitted else plumbing.read_head(ws.places).commit)
    try:
        blamed = file_log.blame_file(ws.places, file.path, commit)
    except GitFailed:
        if file.uncommitted != "added":
            raise
        blamed = _uncommitted(ws, file)  # git does not track it, or has no commit yet
    infos = sorted(blamed.commits.values(), key=lambda each: each.date, reverse=True)
    return FileBlame(
        *name.key,
        tree.commit or WORKING,
        [
            BlamedFileLine(
                line.text,
                line.commit or WORKING,
                str(DocumentName(name.collection, document_id(name, file.path, line.path))),
                line.number,
            )
            for line in blamed.lines
        ],
        [BlamedCommit(info.commit, info.message, info.author, info.date) for info in infos],
    )


def _uncommitted(ws: Workspace, file: TreeFile) -> file_log.BlamedFile:
    from vmrag_link.sources import documents

    (_, text), *_ = documents.read_texts_in_work_tree(ws.places, [file])
    lines = (text.text or "").splitlines()
    found = [file_log.FileLine(line, None, file.path, number) for number, line in enumerate(lines, start=1)]
    return file_log.BlamedFile(found, {})
