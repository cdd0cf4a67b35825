"""Write notes: Markdown files of a source with `write`, which vmrag may change.

`change_notes` makes a change in four steps, under a lock of the work tree: plan all files, check
all, write them one by one, and stage them. A file is replaced atomically, so a kill leaves the old
or the new one. If git does not have the old text, it is kept for `vmrag restore --undo`.
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
from vmrag_link.git import configuration, git_operation, note_index, plumbing, staging
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
    """From the top of the repository, as all paths here."""
    data: bytes
    text: NoteText


class NoteChange(NamedTuple):
    """A change of a file."""

    doc_id: str
    path: str
    before: bytes | None
    """None for a new file."""
    after: bytes | None
    """None for a file to delete."""


class NotesWritten(Record, frozen=True):
    """Files of notes that were written or deleted."""

    paths: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    """Ids of notes whose former text git does not have. `vmrag restore --undo` restores it."""
    pending: str = ""
    """Why git's index does not have the files yet; empty if it does."""
    changes: tuple[NoteChange, ...] = ()


Plan = Callable[["NoteFolder"], Sequence[NoteChange]]
"""Return the changes to make, from the present files."""


def change_notes(
    ws: Workspace, source: SourceSettings, plan: Plan, *, allow_secret: bool = False, trusted: bool = False
) -> NotesWritten:
    """Make the changes of a plan, in its order, and stage the files.

    `allow_secret`: write a text even if it seems to contain a key. `trusted`: the user named the
    source in this command, so its setting needs no trust.

    Nothing is written if this raises `SourceReadOnly` for an untrusted source or a file that must
    not be written, `GitBusy` during a rebase, a bisect or a merge, `ContentRefused` for a secret,
    `KnowledgeMoved` if a file changed since it was planned, or the errors of `plan`.
    """
    if not trusted:
        require_trust(ws, source)
    lock = ws.places.work_tree_folder / "notes.lock"
    with locks.hold_exclusive(lock, purpose="write a note", timeout=ws.lock_timeout):
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
    """Raise `GitBusy` during an operation of git, or while the index has unmerged files."""
    operation = git_operation.find_operation(ws.places)
    if operation:
        raise GitBusy(
            f"a {operation} is in progress, so vmrag cannot write notes now.",
            hint=git_operation.suggest_finish(operation),
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
    for path in written:
        if not rules.is_named(source, path):
            excluded = f"the source {source.collection!r} excludes it"
            raise _refuse_file(path, excluded, "run 'vmrag sources' to list the files of the sources")
    _refuse_other_repositories(ws, written)
    if ignored := note_index.list_ignored_files(ws.places, written):
        raise _refuse_file(
            ignored[0], "git ignores it", f"run 'git check-ignore -v {quoted(ignored[0])}' to see the rule"
        )
    all_attributes = note_index.read_attributes(ws.places, [change.path for change in changes], attributes.FOR_LISTING)
    for path, values in all_attributes.items():
        flaw = attributes.find_attribute_flaw(values)
        if not flaw and ENCODING in values:
            flaw = "has another encoding than UTF-8"
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
        for folder in itertools.accumulate(folders, posixpath.join):
            if folder and (ws.places.top / folder / ".git").exists():
                raise _refuse_file(path, f"{folder} is a repository of its own", hint)


def _refuse_secrets(changes: Sequence[NoteChange]) -> None:
    """Raise `ContentRefused` for a text with a secret that its file does not have yet."""
    for change in changes:
        kind = find_secret(change.after.decode()) if change.after else ""
        if kind and (change.before is None or find_secret(change.before.decode(errors="replace")) != kind):
            raise ContentRefused(
                f"the note {change.doc_id!r} contains {kind}, and git would keep it.",
                hint="remove it from the text, or run 'vmrag add --allow-secret' if it is not a secret",
                doc_id=change.doc_id,
            )


def _keep_for_undo(ws: Workspace, source: SourceSettings, changes: Sequence[NoteChange]) -> tuple[str, ...]:
    """Keep the present texts that HEAD's commit does not have. Return the ids of these notes."""
    texts = {change: change.before for change in changes if change.before is not None}
    if not texts:
        return ()
    head = plumbing.read_head(ws.places).commit
    committed = note_index.list_blobs(ws.places, head, [change.path for change in texts]) if head else {}
    kept = []
    for change, data in texts.items():
        blob = committed.get(change.path, "")
        # git may store a file with CRLF as LF.
        is_committed = blob and blob in {
            hash_blob(data, like=blob),
            hash_blob(data.replace(b"\r\n", b"\n"), like=blob),
        }
        if not is_committed:
            note = undo.KeptNote(source.collection, change.doc_id, change.path, data, str(ws.places.git_dir))
            undo.keep_text(ws.places, note)
            kept.append(change.doc_id)
    return tuple(kept)


def _stage_files(ws: Workspace, paths: Sequence[str]) -> str:
    """Stage the files. Return why they are not staged, or ""."""
    hint = f"run 'git add -A -- {' '.join(map(quoted, paths[:3]))}' to stage it"
    try:
        if staging.stage_files(ws.places, paths):
            return ""
    except GitFailed as error:
        return f"the note is written, but git could not stage it: {error.message.rstrip('.')}; {hint}"
    return f"the note is written, but another git command holds the index; {hint}"


class NoteFolder:
    """The files of one writable source in a work tree, by the ids of their notes.

    The id of a note is in its front matter, or follows from its path. Symbolic links below the top
    are never followed.
    """

    def __init__(self, ws: Workspace, source: SourceSettings) -> None:
        self.source = source
        self._ws = ws
        self._files = Folder(ws.places.top)
        self._claims: dict[str, str] | None = None
        """Ids in front matter by path, read once."""
        self._planned_paths: list[str] = []
        """Paths of new files that were planned before."""

    def find_note(self, doc_id: str) -> NoteFile | None:
        """Return the note of this id, or None. Raises `FileFailed`, `SourceReadOnly` for links."""
        for path in self._list_paths(doc_id):  # the usual paths first, without reading other files
            note = self._read_note(path)
            if note and note.doc_id == doc_id:
                return note
        # If several files claim an id, `assign_ids` decides which one has it.
        claims = self._claimed_ids()
        paths = {*claims}
        for other_id in {doc_id, *claims.values()}:
            paths.update(filter(self._is_file, self._list_paths(other_id)))
        ids = notes.assign_ids(self.source, paths, claims)
        path = next((path for path in paths if ids[path] == doc_id), "")
        note = self._read_note(path) if path else None
        return note and note._replace(doc_id=doc_id)

    def plan_change(
        self, doc_id: str, metadata: Mapping[str, Any], content: str, before: NoteFile | None
    ) -> NoteChange:
        """Return the change that writes a note. Raises `ContentRefused`, `SourceReadOnly`.

        `before`: the note as it is now, None for a new one. The front matter stays as the user
        wrote it if `metadata` is unchanged.
        """
        if not content.strip():
            raise ContentRefused(f"the note {doc_id!r} has no text.", hint="write some text", doc_id=doc_id)
        path = before.path if before else self._free_path(doc_id)
        if before and before.text.metadata == metadata and before.text.block:
            text = before.text.block + content
        else:
            text = notes.render_note(self.source, path, doc_id, metadata, content)
        after = text.encode()
        max_bytes = self._ws.config.sources_max_bytes
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

    def _list_paths(self, doc_id: str) -> list[str]:
        """Return the paths that a note without an id in its front matter may have."""
        plain = notes.plain_path(self.source, doc_id)
        paths = [plain, notes.hashed_path(self.source, doc_id)]
        other_format = plain.removesuffix(notes.SUFFIX)
        paths += [path for path in (other_format, doc_id) if path and self._is_file(path)]
        return [path for path in paths if path and rules.is_named(self.source, path)]

    def _read_note(self, path: str) -> NoteFile | None:
        """Return the note in a file, with the id from its front matter or path, or None."""
        data = self.read_file(path)
        if data is None:
            return None
        try:
            text = decode_file_text(data)
            doc_id = notes.read_claimed_id(text) or notes.path_id(self.source.folder, path)
            return NoteFile(doc_id, path, data, notes.parse_note(text, doc_id))
        except ContentUnreadable as error:
            raise FileFailed(
                f"cannot read the note {path}: it {error}.", hint=f"edit the file {quoted(path)}", path=path
            ) from None

    def _claimed_ids(self) -> dict[str, str]:
        """Return the ids in front matter, by path. One git process finds the files."""
        if self._claims is None:
            claims = {}
            large = self._list_large_files(self._ws.config.sources_max_bytes)
            for path in note_index.list_files_with_id(self._ws.places, self.source.folder, without=large):
                data = self.read_file(path) if rules.is_named(self.source, path) else None
                if data:
                    claims[path] = notes.read_claimed_id(_decode_text(data))
            self._claims = claims
        return self._claims

    def _list_large_files(self, size: int) -> list[str]:
        """Return the files with more bytes, which are not notes. git would read each of them."""
        large: list[str] = []
        folders = [self._ws.places.top / self.source.folder]
        while folders:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(Path(entry.path))
                    elif entry.stat(follow_symlinks=False).st_size > size:
                        large.append(os.path.relpath(entry.path, self._ws.places.top))
        return large

    def _free_path(self, doc_id: str) -> str:
        """Return the path for a new note of this id. Raises `SourceReadOnly` if it is used."""
        natural = notes.natural_path(self.source, doc_id)
        path = natural if natural and not self._is_taken(natural) else notes.hashed_path(self.source, doc_id)
        if self.read_file(path) is not None:
            raise _refuse_file(
                path, f"another note has the file that {doc_id!r} would get", f"run 'cat {quoted(path)}' to see it"
            )
        self._planned_paths.append(path)
        return path

    def _is_taken(self, path: str) -> bool:
        """Return whether some file system cannot have this file next to the existing ones.

        For example, macOS and Windows regard names that differ in case as the same name.
        """
        parts = path.split("/")
        for planned in self._planned_paths:
            if planned == path:
                return True
            for name, part in zip(planned.split("/"), parts, strict=False):
                if rules.fold_path(name) != rules.fold_path(part):
                    break
                if name != part:
                    return True
        for depth in range(len(self.source.folder.split("/")), len(parts)):
            part = parts[depth]
            last = depth == len(parts) - 1
            for name in self._files.list_names(parts[:depth]):
                if name != part and rules.fold_path(name) == rules.fold_path(part):
                    return True
                if name == part and (last or not self._is_folder(parts[: depth + 1])):
                    return True
        return False

    def _is_blocked(self, path: str) -> bool:
        """Return whether a path component is a file instead of a folder, or the last a folder."""
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
    """Return the mode of a file, without following a link. 0 if it does not exist."""
    try:
        return path.lstat().st_mode
    except OSError:
        return 0


def _decode_text(data: bytes) -> str:
    """Return the text of a file, or "" if it cannot be decoded."""
    try:
        return decode_file_text(data)
    except ContentUnreadable:
        return ""


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
