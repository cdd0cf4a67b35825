"""Write notes: Markdown files of a writable source.

A change is planned under a lock of the work tree, checked as a whole, and then made file by file: a
temporary file, fsync, rename, and one `git update-index` for all. A kill leaves the old or the new
file. `undo` keeps a text that git does not have before it is replaced or deleted.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import posixpath
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vmrag_link import locks
from vmrag_link.conversion.limits import ContentUnreadable
from vmrag_link.documents.export_paths import Folder, PathBlocked, is_git_folder
from vmrag_link.errors import (
    ContentRefused,
    FileFailed,
    GitBusy,
    GitFailed,
    KnowledgeMoved,
    SourceReadOnly,
    file_failures,
    quoted,
)
from vmrag_link.git import configuration, note_index, plumbing, staging
from vmrag_link.git.objects import hash_blob
from vmrag_link.models import Record
from vmrag_link.paths import CONFIG_NAME
from vmrag_link.settings import SourceSettings
from vmrag_link.sources import attributes, notes, rules
from vmrag_link.sources.attributes import ENCODING
from vmrag_link.sources.notes import NoteText
from vmrag_link.sources.readable import decode_file_text
from vmrag_link.sources.secrets import find_secret
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import undo

TEMPORARY = "note.tmp"
"""The file in git's folder that becomes a note. A kill leaves nothing where `git add` looks."""


class NoteFile(NamedTuple):
    """A note as its file is now."""

    doc_id: str
    path: str
    data: bytes
    text: NoteText


class NoteChange(NamedTuple):
    """A change of a file. A new file has None as `before`, and a deleted one as `after`."""

    doc_id: str
    path: str
    before: bytes | None
    after: bytes | None


class NotesWritten(Record, frozen=True):
    """Files of notes that were written or deleted."""

    paths: tuple[str, ...] = ()
    """From the top of the repository."""
    kept: tuple[str, ...] = ()
    """Ids of notes whose former text git does not have. `vmrag restore --undo` restores it."""
    pending: str = ""
    """Why git's index does not have the files yet; empty if it does."""
    changes: tuple[NoteChange, ...] = ()


Plan = Callable[["NoteFolder"], Sequence[NoteChange]]


class NoteFolder:
    """The files of one writable source in a work tree. Links below the top are never followed."""

    def __init__(self, ws: Workspace, source: SourceSettings) -> None:
        self.source = source
        self._ws = ws
        self._files = Folder(ws.places.top)
        self._claims: dict[str, str] | None = None
        self._new: list[str] = []

    def find_note(self, doc_id: str) -> NoteFile | None:
        """Return the note of this id, or None. Raises `FileFailed`, `SourceReadOnly` for links."""
        for path in self._files_called(doc_id):
            note = self._read_note(path)
            if note and note.doc_id == doc_id:
                return note
        claims = self._claimed_ids()
        named = {path for name in {doc_id, *claims.values()} for path in self._files_called(name)}
        paths = claims.keys() | filter(self._is_file, named)
        ids = notes.assign_ids(self.source, paths, claims)
        path = next((path for path in paths if ids[path] == doc_id), "")
        note = self._read_note(path) if path else None
        return note and note._replace(doc_id=doc_id)

    def plan_change(
        self, doc_id: str, metadata: Mapping[str, Any], content: str, before: NoteFile | None
    ) -> NoteChange:
        """Return the change to this text. Raises `ContentRefused`."""
        if not content.strip():
            raise ContentRefused(f"the note {doc_id!r} has no text.", hint="write some text", doc_id=doc_id)
        path = before.path if before else self._free_path(doc_id)
        if before and before.text.metadata == metadata and before.text.block:
            text = before.text.block + content  # front matter stays as the user wrote it
        else:
            text = notes.render_note(self.source, path, doc_id, metadata, content)
        after, max_bytes = text.encode(), self._ws.config.sources_max_bytes
        if len(after) > max_bytes:
            raise ContentRefused(
                f"the note {doc_id!r} has {len(after):,} bytes. At most {max_bytes:,} are read.",
                hint="split the note, or run 'vmrag add --collection NAME' to store it",
                doc_id=doc_id,
            )
        return NoteChange(doc_id, path, before.data if before else None, after)

    def plan_removal(self, note: NoteFile) -> NoteChange:
        """Return the change that deletes a note."""
        return NoteChange(note.doc_id, note.path, note.data, None)

    def read_file(self, path: str) -> bytes | None:
        """Return the bytes of a file, or None. Raises `FileFailed`, `SourceReadOnly`."""
        if self._is_blocked(path):
            return None
        try:
            with file_failures():
                return self._files.read_file(path.split("/"), self._ws.config.sources_max_bytes + 1)
        except PathBlocked as error:
            raise _link_in_the_way(path) from error
        except OSError as error:
            raise _read_failure(path, error) from error

    def apply_change(self, change: NoteChange) -> None:
        """Write or delete one file. Raises `FileFailed`, `SourceReadOnly`."""
        parts = change.path.split("/")
        try:
            with file_failures():
                if change.after is None:
                    self._files.remove_file(parts)
                else:
                    self._files.replace_file(parts, change.after, self._ws.places.work_tree_folder / TEMPORARY)
        except PathBlocked as error:
            raise _link_in_the_way(change.path) from error
        except OSError as error:
            raise FileFailed(
                f"cannot write {change.path}: {error.strerror}.",
                hint=f"check that {posixpath.dirname(change.path)} is a folder that you may write",
                path=change.path,
            ) from error

    def _files_called(self, doc_id: str) -> list[str]:
        """Return the paths that a note of this id may have if its front matter does not decide."""
        plain = notes.plain_path(self.source, doc_id)
        other = plain.removesuffix(notes.SUFFIX)  # a file of another format
        named = [plain, notes.hashed_path(self.source, doc_id)]
        named += [path for path in (other, doc_id) if path and self._is_file(path)]
        return [path for path in named if path and rules.is_named(self.source, path)]

    def _read_note(self, path: str) -> NoteFile | None:
        """Return the note that a file is, with the id that the file alone decides, or None."""
        data = self.read_file(path)
        if data is None:
            return None
        try:
            whole = decode_file_text(data)
            doc_id = notes.read_claimed_id(whole) or notes.path_id(self.source.folder, path)
            return NoteFile(doc_id, path, data, notes.parse_note(whole, doc_id))
        except ContentUnreadable as error:
            raise FileFailed(
                f"cannot read the note {path}: it {error}.", hint=f"edit the file {quoted(path)}", path=path
            ) from None

    def _claimed_ids(self) -> dict[str, str]:
        """Return the ids in front matter, by path. One git process finds the files."""
        if self._claims is None:
            large = self._files_above(self._ws.config.sources_max_bytes)
            paths = note_index.list_files_with_id(self._ws.places, self.source.folder, without=large)
            texts = {path: self.read_file(path) for path in paths if rules.is_named(self.source, path)}
            self._claims = {path: notes.read_claimed_id(_decode_text(data)) for path, data in texts.items() if data}
        return self._claims

    def _files_above(self, size: int) -> list[str]:
        """Return the files that are too large to be notes. git would read each of them whole."""
        large, folders = list[str](), [self._ws.places.top / self.source.folder]
        while folders:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(Path(entry.path))
                    elif entry.stat(follow_symlinks=False).st_size > size:
                        large.append(os.path.relpath(entry.path, self._ws.places.top))
        return large

    def _free_path(self, doc_id: str) -> str:
        """Return where a new note of this id is written."""
        natural = notes.natural_path(self.source, doc_id)
        path = natural if natural and not self._is_taken(natural) else notes.hashed_path(self.source, doc_id)
        if self.read_file(path) is not None:
            raise _refuse_file(
                path, f"another note has the file that {doc_id!r} would get", f"run 'cat {quoted(path)}' to see it"
            )
        self._new.append(path)
        return path

    def _is_taken(self, path: str) -> bool:
        """Return whether a file system may take another file for this one, or cannot have it."""
        parts = path.split("/")
        for planned in self._new:  # in the same call
            pairs = itertools.takewhile(
                lambda pair: rules.fold_path(pair[0]) == rules.fold_path(pair[1]),
                zip(planned.split("/"), parts, strict=False),
            )
            if planned == path or any(one != other for one, other in pairs):
                return True
        for depth in range(len(self.source.folder.split("/")), len(parts)):
            part, last = parts[depth], depth == len(parts) - 1
            for name in self._files.list_names(parts[:depth]):
                if name != part and rules.fold_path(name) == rules.fold_path(part):
                    return True
                if name == part and (last or not self._is_folder(parts[: depth + 1])):
                    return True
        return False

    def _is_blocked(self, path: str) -> bool:
        """Return whether another note is where a folder of this file belongs, or a folder is where
        the file belongs.
        """
        inner = self._ws.places.top
        *folders, name = path.split("/")
        for folder in folders:
            inner /= folder
            if stat.S_ISREG(_read_mode(inner)):
                return True
        return stat.S_ISDIR(_read_mode(inner / name))

    def _is_file(self, path: str) -> bool:
        return stat.S_ISREG(_read_mode(self._ws.places.top / path))

    def _is_folder(self, parts: Sequence[str]) -> bool:
        return stat.S_ISDIR(_read_mode(self._ws.places.top.joinpath(*parts)))


def _read_mode(path: Path) -> int:
    try:
        return path.lstat().st_mode
    except OSError:
        return 0


def _decode_text(data: bytes) -> str:
    try:
        return decode_file_text(data)
    except ContentUnreadable:
        return ""


# -- the change


def change_notes(
    ws: Workspace, source: SourceSettings, plan: Plan, *, allow_secret: bool = False, trusted: bool = False
) -> NotesWritten:
    """Make the planned changes of notes, in the order of the plan, and stage them.

    `trusted`: the user named the source in this command. Raises `SourceReadOnly` for an untrusted
    source, and for files that must not be written. Raises `GitBusy` during a rebase, a bisect or a
    merge, and the errors of `plan`. Nothing is written then.
    """
    if not trusted:
        require_trust(ws, source)
    with locks.hold_exclusive(
        ws.places.work_tree_folder / "notes.lock", purpose="write a note", timeout=ws.lock_timeout
    ):
        _refuse_git_operation(ws)
        folder = NoteFolder(ws, source)
        changes = [change for change in plan(folder) if change.after != change.before]
        if not changes:
            return NotesWritten()
        _refuse_unwritable(ws, source, changes)
        if not allow_secret:
            _refuse_secrets(changes)
        _require_unchanged(folder, changes)
        kept = _keep_for_undo(ws, source, changes)
        for change in changes:
            folder.apply_change(change)
        paths = [change.path for change in changes]
        return NotesWritten(tuple(paths), kept, _stage_files(ws, paths), tuple(changes))


def require_trust(ws: Workspace, source: SourceSettings) -> None:
    """Raise `SourceReadOnly` unless the user trusts that vmrag writes to this folder."""
    if not ws.settings.loaded.may_write(source):
        raise SourceReadOnly(
            f"the source {source.collection!r} may write files to {source.folder}/, which you have not trusted.",
            hint="run 'vmrag trust' to trust the settings",
            collection_name=source.collection,
        )


def _require_unchanged(folder: NoteFolder, changes: Sequence[NoteChange]) -> None:
    """Raise `KnowledgeMoved` if another program changed one of the files since it was read."""
    for change in changes:
        if folder.read_file(change.path) != change.before:
            raise KnowledgeMoved(
                f"another program changed {change.path}, so nothing was written.",
                hint="run the command again",
            )


def _refuse_git_operation(ws: Workspace) -> None:
    operation = plumbing.find_operation(ws.places)
    if operation:
        raise GitBusy(
            f"a {operation} is in progress, so vmrag cannot write notes now.",
            hint=plumbing.suggest_finish(operation),
            operation=operation,
        )
    if unmerged := note_index.list_unmerged_files(ws.places):
        raise GitBusy(
            f"git's index has unmerged files, such as {unmerged[0]}, so vmrag cannot write notes now.",
            hint="run 'git status' to see the state",
            operation="merge",
        )


def _refuse_unwritable(ws: Workspace, source: SourceSettings, changes: Sequence[NoteChange]) -> None:
    """Raise `SourceReadOnly` for files that the source would not read or git would not track."""
    written = [change.path for change in changes if change.after is not None]
    for change in changes:
        if change.after is not None and not rules.is_named(source, change.path):
            raise _refuse_file(
                change.path,
                f"the source {source.collection!r} excludes it",
                "run 'vmrag sources' to list the files of the sources",
            )
    _refuse_other_repositories(ws, written)
    if ignored := note_index.list_ignored_files(ws.places, written):
        raise _refuse_file(
            ignored[0], "git ignores it", f"run 'git check-ignore -v {quoted(ignored[0])}' to see the rule"
        )
    stated = note_index.read_attributes(ws.places, [change.path for change in changes], attributes.FOR_LISTING)
    for path, values in stated.items():
        flaw = attributes.find_attribute_flaw(values) or (
            "has another encoding than UTF-8" if ENCODING in values else ""
        )
        if flaw:
            raise _refuse_file(path, f"it {flaw}", f"run 'git check-attr -a {quoted(path)}' to see its attributes")
    settings = dict(configuration.list_entries(ws.places))
    if settings.get("core.sparsecheckout") == "true" and not note_index.is_checked_out(ws.places, source.folder):
        raise _refuse_file(
            written[0] if written else changes[0].path,
            "this sparse checkout leaves its folder out",
            f"run 'git sparse-checkout add {quoted(source.folder)}' to include it",
        )


def _refuse_other_repositories(ws: Workspace, paths: Sequence[str]) -> None:
    """Raise `SourceReadOnly` for files in git's own folder, a submodule or a repository below."""
    hint = f"name another folder in `sources` of {CONFIG_NAME}"
    for path in paths:
        folders = posixpath.dirname(path).split("/")
        if any(map(is_git_folder, folders)):
            raise _refuse_file(path, "git keeps its own data there", hint)
        inner = ["/".join(folders[: depth + 1]) for depth in range(len(folders))]
        if other := next((folder for folder in inner if (ws.places.top / folder / ".git").exists()), ""):
            raise _refuse_file(path, f"{other} is a repository of its own", hint)


def _refuse_secrets(changes: Sequence[NoteChange]) -> None:
    for change in changes:
        kind = find_secret(change.after.decode()) if change.after else ""
        if kind and (change.before is None or find_secret(change.before.decode(errors="replace")) != kind):
            raise ContentRefused(
                f"the note {change.doc_id!r} contains {kind}, and git would keep it.",
                hint="remove it from the text, or run 'vmrag add --allow-secret' if it is not a secret",
                doc_id=change.doc_id,
            )


def _keep_for_undo(ws: Workspace, source: SourceSettings, changes: Sequence[NoteChange]) -> tuple[str, ...]:
    """Keep the present texts that no commit has. Return the ids of these notes."""
    before = [change for change in changes if change.before is not None]
    if not before:
        return ()
    head = plumbing.read_head(ws.places).commit
    committed = note_index.list_blobs(ws.places, head, [change.path for change in before]) if head else {}
    kept = []
    for change in before:
        data = change.before or b""
        blob = committed.get(change.path, "")
        forms = {data, data.replace(b"\r\n", b"\n")}
        if not blob or blob not in {hash_blob(form, like=blob) for form in forms}:
            note = undo.KeptNote(source.collection, change.doc_id, change.path, data, str(ws.places.git_dir))
            undo.keep_text(ws.places, note)
            kept.append(change.doc_id)
    return tuple(kept)


def _stage_files(ws: Workspace, paths: Sequence[str]) -> str:
    command = f"git add -A -- {' '.join(map(quoted, paths[:3]))}"
    try:
        staged = staging.stage_files(ws.places, paths)
    except GitFailed as error:
        return (
            f"the note is written, but git could not stage it: {error.message.rstrip('.')}; run '{command}' to stage it"
        )
    return (
        "" if staged else f"the note is written, but another git command holds the index; run '{command}' to stage it"
    )


def _refuse_file(path: str, reason: str, hint: str) -> SourceReadOnly:
    return SourceReadOnly(f"cannot write {path}: {reason}.", hint=hint, path=path)


def _link_in_the_way(path: str) -> SourceReadOnly:
    return _refuse_file(
        path,
        "its path contains a link or is not a regular file",
        f"run 'ls -ld {quoted(path)}' to check its permissions",
    )


def _read_failure(path: str, error: OSError) -> FileFailed:
    return FileFailed(
        f"cannot read {path}: {error.strerror}.", hint=f"run 'ls -l {quoted(path)}' to check its permissions", path=path
    )
