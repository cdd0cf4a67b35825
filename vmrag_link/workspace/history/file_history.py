"""Find the git commits of a file of a source: `vmrag log` and `vmrag blame` of such a document.

Stored documents have a history in the knowledge base (`document_history`). A file has only the
history of git, which also follows renames.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from vmrag_link.errors import GitFailed, UsageInvalid, quoted
from vmrag_link.git import file_log, plumbing, readonly
from vmrag_link.git.file_log import LoggedChange
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
    from vmrag_link.workspace.history.named_places import FoundFile
    from vmrag_link.workspace.source_tree import SourceTree

_MAX_NAMES = 2


class FileCommit(Record, frozen=True):
    """A git commit that changed the file."""

    commit: str
    parents: tuple[str, ...]
    message: str
    author: str
    date: str
    refs: tuple[str, ...]
    """Refs that point to the commit."""
    kind: ChangeKind
    name: str
    """The name of the document in the commit, or before it was removed."""
    old_name: str
    """The former name if the commit renamed it; otherwise empty."""
    path: str
    old_path: str
    """The former path of the file if the commit renamed it; otherwise empty."""


class FileCommitReport(FileCommit, frozen=True):
    """A commit with its `diff`, if requested."""

    diff: DiffReport | None


class FileStep(Record, frozen=True):
    """A commit with the change of the file in git."""

    info: FileCommit
    change: LoggedChange


class LoggedFile(NamedTuple):
    """A document of a source, with the present or last path of its file."""

    name: DocumentName
    source: SourceSettings
    path: str
    exists: bool


class FileHistory:
    """The commits of a file. Each diff is computed on demand. `more`: there are older commits."""

    def __init__(self, ws: Workspace, file: LoggedFile, changes: Sequence[LoggedChange], limit: int) -> None:
        self._ws = ws
        self._source = file.source
        self._path = file.path
        self.name = file.name
        self.is_note = file.source.write
        self.more = len(changes) > limit
        self.steps = [FileStep(file_commit(file.name, file.path, change), change) for change in changes[:limit]]

    def diff_step(self, step: FileStep, detail: Detail) -> WordDiff:
        """Return what a commit changed in the document, compared with its first parent."""
        from vmrag_link.workspace.history import compare

        change = step.change
        commits = (step.info.parents[0] if step.info.parents else "", step.info.commit)
        blobs = []
        if change.old_mode in REGULAR:
            blobs.append(change.old_blob)
        if change.mode in REGULAR:
            blobs.append(change.blob)
        sizes = readonly.read_blob_sizes(self._ws.places, blobs)
        if any(blob not in sizes for blob in blobs):
            nothing = Diff(None, "", (), (), commits, missing=(change.path,))
            return WordDiff(DiffTexts(lambda _: {}, lambda _: {}), nothing, detail)
        before = self._read_document(change.old_path, change.old_blob, sizes.get(change.old_blob, 0))
        after = self._read_document(change.path, change.blob, sizes.get(change.blob, 0))
        header_change = compare.change_of(
            compare.header_of(before) if before else None, compare.header_of(after) if after else None
        )
        changes = () if header_change.before == header_change.after else (header_change,)
        texts = DiffTexts(
            lambda _: {before.key: before} if before else {}, lambda _: {after.key: after} if after else {}
        )
        sources = frozenset({self.name.collection})
        return WordDiff(texts, Diff(None, "", changes, (), commits, sources=sources), detail)

    def list_reports(self, detail: Detail | None) -> Iterator[FileCommitReport]:
        for step in self.steps:
            diff = self.diff_step(step, detail).form_report() if detail else None
            yield FileCommitReport(**msgspec.structs.asdict(step.info), diff=diff)

    def _read_document(self, path: str, blob: str, size: int) -> Document | None:
        """Return the document in a blob. None if the blob is empty, too large or not a text."""
        from vmrag_link.sources import documents

        if not 0 < size <= self._ws.config.sources_max_bytes:
            return None
        note_id = document_id(self.name, self._path, path) if self._source.write else ""
        file = TreeFile(path, blob, size, handwritten=True, note_id=note_id)
        (_, text), *_ = documents.read_texts_at_commit(self._ws.places, [file])
        document = documents.build_document(self._source, file, text)
        return None if isinstance(document, NoDocument) else document


def file_history(ws: Workspace, names: Sequence[str], *, limit: int) -> FileHistory | None:
    """Return up to `limit` commits of a file, newest first. `names`: `[RANGE] DOCUMENT`.

    Return None if the name does not mean a file of a source. Raises `GitReferenceMissing` for a
    range that git does not know, `DocumentAmbiguous`, and the errors of `file_log.read_file_log`.
    """
    if not names or len(names) > _MAX_NAMES:
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
    """Yield the files that a name may mean: an existing one, otherwise removed ones."""
    from vmrag_link.workspace.history import named_places

    named_range = ranges.parse_range(reach) if reach else None
    ref = named_range.new if named_range else reach
    for name in dict.fromkeys((f"{ref}:{document}" if ref else document, document)):
        file = named_places.find_file(ws, name)
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
            hint=f"run 'git -C {quoted(submodule.path)} {command} -- {quoted(inner)}'",
        )


def removed_documents(ws: Workspace, document: str) -> Iterator[LoggedFile]:
    """Yield the files that the name of a removed document may mean: paths, then full names."""
    from vmrag_link.sources import notes, rules

    path = document_names.without_line(document)
    for source in ws.sources.configured:
        if rules.is_named(source, path):
            doc_id = notes.path_id(source.folder, path) if source.write else path
            yield LoggedFile(DocumentName(source.collection, doc_id), source, path, exists=False)
    for source in ws.sources.configured:
        doc_id = document.removeprefix(f"{source.collection}/")
        if doc_id and doc_id != document:
            doc_id = doc_id.removeprefix("/")
            file_path = notes.note_path(source, doc_id) if source.write else doc_id
            yield LoggedFile(DocumentName(source.collection, doc_id), source, file_path, exists=False)


def reached_commits(ws: Workspace, reach: str | None) -> list[str]:
    """Return the arguments for `git log` that mean a range. Empty before the first commit."""
    if reach is None or reach == WORKING:
        head = plumbing.read_head(ws.places).commit
        return [head] if head else []
    named_range = ranges.parse_range(reach)
    if named_range is None:
        return [plumbing.resolve_commit(ws.places, reach)]
    old = plumbing.resolve_commit(ws.places, HEAD if named_range.old == WORKING else named_range.old)
    new = plumbing.resolve_commit(ws.places, HEAD if named_range.new == WORKING else named_range.new)
    return [f"{old}{named_range.dots}{new}"]


def document_id(document: DocumentName, path: str, earlier: str) -> str:
    """Return the id that a document had at the path `earlier`. `path`: where its file is now."""
    if path == document.doc_id:
        return earlier
    from vmrag_link.sources import notes  # imported here, because few documents are notes

    folder = path.removesuffix(f"{document.doc_id}{notes.SUFFIX}").rstrip("/")
    return document.doc_id if earlier == path else notes.path_id(folder, earlier)


def file_commit(document: DocumentName, path: str, change: LoggedChange) -> FileCommit:
    """Return what a commit did to a document. `path`: where its file is now."""
    kinds: dict[str, ChangeKind] = {"A": "added", "D": "removed"}
    name = str(DocumentName(document.collection, document_id(document, path, change.path)))
    old_name = str(DocumentName(document.collection, document_id(document, path, change.old_path)))
    is_renamed = old_name != name
    return FileCommit(
        commit=change.info.commit,
        parents=change.info.parents,
        message=change.info.message,
        author=change.info.author,
        date=change.info.date,
        refs=change.info.refs,
        kind=kinds.get(change.status, "modified"),
        name=name,
        old_name=old_name if is_renamed else "",
        path=change.path,
        old_path=change.old_path if is_renamed else "",
    )


# -- lines


class BlamedFileLine(Record, frozen=True):
    """A line with its origin."""

    text: str
    commit: str
    """The commit that wrote it; `WORKING` if it is uncommitted."""
    name: str
    """The name of the document in that commit."""
    number: int
    """The number of the line in that commit, from 1."""


class BlamedCommit(Record, frozen=True):
    """A commit of a blamed line."""

    commit: str
    message: str
    """The first line of the message."""
    author: str
    date: str


class FileBlame(Record, frozen=True):
    """All lines of the file, including lines that are not part of the document's text."""

    collection: str
    doc_id: str
    commit: str
    """The commit of the file, or `WORKING`."""
    lines: list[BlamedFileLine]
    commits: list[BlamedCommit]
    """Commits that the lines name, newest first."""


def blame_file(ws: Workspace, found_file: FoundFile) -> FileBlame:
    """Return the origins of the lines of a file. Raises the errors of `file_log.blame_file`."""
    tree, name = found_file
    file = tree.files[name.key]
    require_own_file(tree, file.path, "blame")
    # An unchanged file is blamed at HEAD, without reading the file of the work tree.
    commit = tree.commit or (None if file.uncommitted else plumbing.read_head(ws.places).commit)
    try:
        blamed = file_log.blame_file(ws.places, file.path, commit)
    except GitFailed:
        if file.uncommitted != "added":
            raise
        blamed = _blame_uncommitted(ws, file)  # git does not track it, or has no commit yet
    lines = []
    for line in blamed.lines:
        line_name = DocumentName(name.collection, document_id(name, file.path, line.path))
        lines.append(BlamedFileLine(line.text, line.commit or WORKING, str(line_name), line.number))
    infos = sorted(blamed.commits.values(), key=lambda info: info.date, reverse=True)
    return FileBlame(
        collection=name.collection,
        doc_id=name.doc_id,
        commit=tree.commit or WORKING,
        lines=lines,
        commits=[BlamedCommit(info.commit, info.message, info.author, info.date) for info in infos],
    )


def _blame_uncommitted(ws: Workspace, file: TreeFile) -> file_log.BlamedFile:
    """Return the lines of a file that no commit has."""
    from vmrag_link.sources import documents

    (_, text), *_ = documents.read_texts_in_work_tree(ws.places, [file])
    lines = (text.text or "").splitlines()
    file_lines = [file_log.FileLine(line, None, file.path, number) for number, line in enumerate(lines, start=1)]
    return file_log.BlamedFile(file_lines, {})
