"""Read the text files that git tracks, in the work tree or at a commit, whether they belong to a
source or not.

Searches by text (`grep`) and tools that show a file read them. git lists them. They are read
unchanged: no filter runs, and no link is followed.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import posixpath
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from vmrag_link.conversion.limits import BINARY_WITHIN, ContentUnreadable
from vmrag_link.git import raw_changes, readonly
from vmrag_link.git.raw_changes import LINK, REGULAR, RawChange
from vmrag_link.paths import Places
from vmrag_link.sources import attributes, commit_files, readable, rules
from vmrag_link.sources.attributes import DIFF, ENCODING, TEXT, TreeAttributes, Value
from vmrag_link.sources.disk import Disk

if TYPE_CHECKING:
    from vmrag_link.git.submodules import Submodule

MOST_BYTES = 32_000_000
"""Maximum size of a file that is read as text."""

NOT_TEXT = "is not text"
ABSENT = "is not in the working tree"
POINTER = "is a pointer to a file in Git LFS"
MISSING = "is not in this partial clone"
HINTS = {
    ABSENT: "pass 'ref=HEAD', or run 'vmrag show HEAD:PATH', to read it at a commit",
    MISSING: "run 'git fetch --refetch', or 'git show REF:PATH' to fetch this file alone",
    POINTER: "run 'git lfs pull' to download it",
}
"""How to get the text of a file, by the reason why it was not read."""

OTHERWISE = "open it with another program, or use history to list its commits"
"""The hint for other reasons."""

_EXPECTED = (NOT_TEXT, ABSENT, POINTER, attributes.BINARY)
_BATCH_BYTES = 32_000_000
_BATCH_FILES = 2_000


class TrackedText(NamedTuple):
    """A text file. If it cannot be read as text, `reason` completes `PATH …` instead."""

    path: str
    text: str | None
    reason: str = ""

    @property
    def is_skipped(self) -> bool:
        """True if a search must report that it did not read this file."""
        return bool(self.reason) and self.reason not in _EXPECTED


class TrackedTexts:
    """The tracked text files of a repository.

    `commit`: its full hash, empty for the work tree. `untracked`: untracked files of the work tree
    that are documents. `only`: the path of the only file that is needed. `submodules`: submodules
    whose files are also read. Raises `GitFailed`, `LimitExceeded`, `HistoryMissing` and
    `GitReferenceMissing`.
    """

    def __init__(
        self,
        places: Places,
        commit: str = "",
        *,
        untracked: Iterable[str] = (),
        only: str = "",
        submodules: Iterable[Submodule] = (),
    ) -> None:
        self._places = places
        self.commit = commit
        self._texts_by_submodule: dict[str, TrackedTexts] = {}
        """The files of submodules, by the submodule's path with a slash."""

        for submodule in submodules:
            prefix = f"{submodule.path}/"
            if submodule.places and (not only or only.startswith(prefix)):
                inner_commit = submodule.commit if commit else None
                self._texts_by_submodule[prefix] = TrackedTexts(
                    submodule.places, inner_commit or "", only=only.removeprefix(prefix)
                )
        pathspecs = [f":(top,literal){only}", attributes.PATHSPEC] if only else []
        entries = [
            *(_list_commit(places, commit, pathspecs) if commit else raw_changes.list_entries(places, pathspecs))
        ]
        tracked = {entry.path: entry.blob for entry in entries if entry.mode in REGULAR}
        self._links = {entry.path: entry.blob for entry in entries if entry.mode == LINK}
        self._blobs = dict.fromkeys(untracked, "") | tracked
        """The blobs of the files by path, empty for untracked files."""

        submodule_paths = [prefix + path for prefix, texts in self._texts_by_submodule.items() for path in texts.paths]
        self.paths: list[str] = sorted({*self._blobs, *submodule_paths})
        """All files, including those of submodules."""

        attribute_files = {
            path: blob for path, blob in self._blobs.items() if path.rpartition("/")[2] == attributes.FILE_NAME
        }
        self._attributes = TreeAttributes(self._read_attribute_files(attribute_files), (ENCODING, TEXT, DIFF))

    def __contains__(self, path: str) -> bool:
        texts, inner = self._find_submodule(path)
        return inner in texts if texts else path in self._blobs

    def is_tracked(self, path: str) -> bool:
        texts, inner = self._find_submodule(path)
        return texts.is_tracked(inner) if texts else bool(self._blobs.get(path))

    def _find_submodule(self, path: str) -> tuple[TrackedTexts | None, str]:
        """Return the texts of the submodule that tracks a file, and the file's path there."""
        for prefix, texts in self._texts_by_submodule.items():
            inner_path = path.removeprefix(prefix)
            if inner_path != path and texts.is_tracked(inner_path):
                return texts, inner_path
        return None, path

    def read_link_target(self, path: str) -> str:
        """Return the path, from the top, that a symbolic link names, or an empty text if it is not
        a link.
        """
        blob = self._links.get(path)
        if not blob:
            return ""
        try:
            if self.commit:
                target = os.fsdecode(readonly.read_blobs(self._places, [blob])[blob])
            else:
                target = str((self._places.top / path).readlink())
        except (OSError, KeyError):
            return ""
        return posixpath.normpath(posixpath.join(posixpath.dirname(path), target))

    def read_texts(self, paths: Sequence[str]) -> Iterator[TrackedText]:
        """Yield the texts of these files, which should be sorted.

        Raises `GitFailed` and `LimitExceeded`.
        """
        for texts, group in itertools.groupby(paths, lambda path: self._find_submodule(path)[0]):
            group_paths = [*group]
            if texts is None:
                yield from self._read_commit(group_paths) if self.commit else self._read_disk(group_paths)
                continue
            names = {self._find_submodule(path)[1]: path for path in group_paths}
            for text in texts.read_texts([*names]):
                yield text._replace(path=names[text.path])

    def _read_disk(self, paths: Sequence[str]) -> Iterator[TrackedText]:
        with Disk(self._places.top) as disk:
            for path, data, size in disk.read_many(paths, MOST_BYTES):
                if size < 0:
                    yield TrackedText(path, None, _describe_error(-size))
                else:
                    yield self._read_text(path, data, size)

    def _read_commit(self, paths: Sequence[str]) -> Iterator[TrackedText]:
        sizes = readonly.read_blob_sizes(self._places, (self._blobs[path] for path in paths))
        for batch in _split_batches(paths, [sizes.get(self._blobs[path], 0) for path in paths]):
            blobs = [self._blobs[path] for path in batch]
            contents = readonly.read_blobs(self._places, (blob for blob in blobs if sizes.get(blob, 0) <= MOST_BYTES))
            for path, blob in zip(batch, blobs, strict=True):
                if blob in sizes:
                    yield self._read_text(path, contents.get(blob, b""), sizes[blob])
                else:
                    yield TrackedText(path, None, MISSING)

    def _read_text(self, path: str, data: bytes, size: int) -> TrackedText:
        values = self._attributes.get_values(path)
        encoding = "" if self.commit else _find_encoding(values)
        if _is_binary(data, encoding):
            return TrackedText(path, None, NOT_TEXT)
        if attributes.is_binary(values):
            return TrackedText(path, None, attributes.BINARY)
        if size > MOST_BYTES:
            return TrackedText(path, None, rules.find_size_flaw(size, MOST_BYTES))
        if data.startswith(readable.LFS_POINTER) and size < readable.POINTER_BYTES:
            return TrackedText(path, None, POINTER)
        text = decode_text(path, data, encoding)
        return TrackedText(path, text, NOT_TEXT if text is None else "")

    def _read_attribute_files(self, files: dict[str, str]) -> dict[str, bytes]:
        if self.commit:
            return commit_files.read_attribute_files(self._places, files)
        with Disk(self._places.top) as disk:
            contents = list(disk.read_many(sorted(files), attributes.MAX_FILE_BYTES))
        attributes.require_few_bytes(sum(len(data) for _, data, _ in contents))
        return {path: data for path, data, size in contents if 0 <= size <= attributes.MAX_FILE_BYTES}


def decode_text(path: str, data: bytes, encoding: str = "") -> str | None:
    """Return the text of a file, or None if it is binary. Bytes that are not UTF-8 become U+FFFD. A
    notebook's text is its cells.
    """
    try:
        text = readable.decode_file_text(data, encoding)
    except ContentUnreadable:
        if b"\0" in data[:BINARY_WITHIN]:
            return None
        text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\0", "\ufffd")
    with contextlib.suppress(ContentUnreadable):
        return readable.read_cells(text) if readable.is_notebook(path) else text
    return text


def count_texts(places: Places, paths: Iterable[str]) -> int:
    """Return how many of these files of the work tree are text, according to their beginnings."""
    with Disk(places.top) as disk:
        return sum(size > 0 and not _is_binary(data) for _, data, size in disk.read_many(sorted(paths), 0))


def _list_commit(places: Places, commit: str, pathspecs: Sequence[str]) -> Iterator[RawChange]:
    with commit_files.readable_tree(places, commit):
        if not pathspecs:
            raw_changes.require_countable(places, commit)
        yield from raw_changes.list_tree_files(places, commit, commit_files.get_empty_tree(commit), pathspecs)


def _split_batches(paths: Sequence[str], sizes: Sequence[int]) -> Iterator[Sequence[str]]:
    start = size = 0
    for number, more in enumerate(sizes):
        if number - start >= _BATCH_FILES or (size and size + more > _BATCH_BYTES):
            yield paths[start:number]
            start, size = number, 0
        size += more
    if start < len(paths):
        yield paths[start:]


def _is_binary(data: bytes, encoding: str = "") -> bool:
    """Return whether a file has a NUL near the beginning, like git. Files in UTF-16, in UTF-32, or
    in the `encoding` of their attributes are not binary.
    """
    return b"\0" in data[:BINARY_WITHIN] and not (encoding or readable.detect_encoding(data))


def _find_encoding(values: dict[str, Value]) -> str:
    encoding = values.get(ENCODING)
    return encoding if isinstance(encoding, str) else ""


def _describe_error(number: int) -> str:
    if number in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL):
        return ABSENT
    return f"cannot be read: {os.strerror(number)}"
