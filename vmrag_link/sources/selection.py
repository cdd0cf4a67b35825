"""Select the files of a tree for the sources: each file becomes a document, is left out with a
reason, or is missing in this clone. A commit is read by its tree alone, as blobs.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from vmrag_link import terminal_text
from vmrag_link.errors import GitFailed, GitReferenceMissing, HistoryMissing, LimitExceeded
from vmrag_link.file_access import FileStamp
from vmrag_link.git import raw_changes, readonly
from vmrag_link.git.objects import find_missing_commits
from vmrag_link.git.raw_changes import LINK, MOST_FILES, REGULAR, SUBMODULE, RawChange
from vmrag_link.git.refs import COMMIT_NAME
from vmrag_link.paths import Places
from vmrag_link.settings import SourceSettings
from vmrag_link.sources import attributes, rules
from vmrag_link.sources.attributes import ENCODING, TreeAttributes, Value, find_attribute_flaw, is_handwritten
from vmrag_link.sources.listings import LeftOutFile, SourceListing, TreeFile

Uncommitted = Literal["", "added", "modified", "unmerged"]


_MOST_BYTES = 2_000_000_000
"""Limit for all files together, because one blob of a megabyte may have a thousand names."""


class Candidate(NamedTuple):
    """A file that a source names."""

    path: str
    mode: str
    blob: str
    """Name of its content in git. For a file on disk that is not read yet, it is the blob in HEAD,
    or empty.
    """
    uncommitted: Uncommitted = ""
    size: int | None = None
    """Size in bytes on disk. None means the size of its blob."""
    stamp: FileStamp | None = None
    """Stamp of a file on disk."""
    flaw: str = ""
    """Why it cannot be read, or an empty text."""


class SelectedFiles(NamedTuple):
    """The result for the candidates of all sources."""

    files: dict[str, list[TreeFile]]
    left_out: tuple[LeftOutFile, ...]
    missing: tuple[str, ...]

    def build_listing(self, *, removed: Iterable[str] = (), untracked: int = 0) -> SourceListing:
        removed_paths = tuple(sorted(terminal_text.escape_line(path) for path in removed))
        return SourceListing(self.files, self.left_out, self.missing, removed_paths, untracked)


def select_files(
    sources: Sequence[SourceSettings],
    candidates: Sequence[Mapping[str, Candidate]],
    attributes: TreeAttributes,
    sizes: Mapping[str, int],
    *,
    max_bytes: int,
    read: Callable[[Candidate], Candidate] | None = None,
) -> SelectedFiles:
    """Select the files that become documents.

    `candidates`: of each source, by path. `sizes`: of the blobs in this clone. `read` gets files on
    disk that no rule leaves out, and returns them with their blob and its size. Raises
    `LimitExceeded` for too many files or bytes, and the errors of `TreeAttributes.get_values`.
    """
    files: dict[str, dict[str, TreeFile]] = {source.collection: {} for source in sources}
    left_out: dict[str, str] = {}
    missing: set[str] = set()
    number, total_bytes = sum(map(len, candidates)), 0
    if number > MOST_FILES:
        raise build_too_many_error(number)
    for source, named in zip(sources, candidates, strict=True):
        selected = files[source.collection]
        # If several paths fold to the same text, the first is selected.
        seen = {rules.fold_path(path): path for path in selected}
        for path in sorted(named):
            if path in selected:
                continue
            candidate = named[path]
            values, why = _check_candidate(candidate, attributes, source.kind)
            size = sizes.get(candidate.blob) if candidate.size is None else candidate.size
            if not why and size is not None:
                why = rules.find_size_flaw(size, rules.get_byte_limit(path, max_bytes))
            if not why and read and candidate.size is not None:
                candidate = read(candidate)
                size, why = candidate.size, candidate.flaw
            if not why and (twin := seen.setdefault(rules.fold_path(path), path)) != path:
                why = format_twin_flaw(twin)
            if why:
                left_out.setdefault(path, why)
            elif size is None:
                missing.add(path)
            else:
                selected[path] = _build_file(candidate, size, values)._replace(
                    text_limit=max_bytes if size > max_bytes else 0
                )
                total_bytes += size
                require_few_bytes(total_bytes)
    selected_paths = {path for selected in files.values() for path in selected}
    return SelectedFiles(
        {collection: sorted(selected.values()) for collection, selected in files.items()},
        tuple(
            LeftOutFile(terminal_text.escape_line(path), why)
            for path, why in sorted(left_out.items())
            if path not in selected_paths
        ),
        tuple(sorted(missing)),
    )


def format_twin_flaw(path: str) -> str:
    return f"has the same path as {path} on systems that ignore letter case or accents"


def _check_candidate(candidate: Candidate, attributes: TreeAttributes, kind: str) -> tuple[Mapping[str, Value], str]:
    """Return the attributes of a file, and why it is left out. Attributes are not read if it is
    left out anyway.
    """
    path = candidate.path
    if why := candidate.flaw or rules.find_name_flaw(path) or _find_mode_flaw(candidate.mode):
        return {}, why
    values = attributes.get_values(path)
    by_hand = is_handwritten(values)
    return values, find_attribute_flaw(values) or rules.find_kind_flaw(path, kind, is_handwritten=by_hand)


def _build_file(candidate: Candidate, size: int, values: Mapping[str, Value]) -> TreeFile:
    if not values:
        return TreeFile(candidate.path, candidate.blob, size, candidate.uncommitted)
    encoding = values.get(ENCODING)
    file_encoding = encoding if isinstance(encoding, str) else ""
    return TreeFile(
        path=candidate.path,
        blob=candidate.blob,
        size=size,
        uncommitted=candidate.uncommitted,
        handwritten=is_handwritten(values),
        encoding=file_encoding,
    )


def build_too_many_error(number: int) -> LimitExceeded:
    return LimitExceeded(
        f"the sources name {number:,} files, more than {MOST_FILES:,}.",
        hint="name fewer files in `sources` of .vmrag.yaml, or leave out folders with `exclude`",
        number=number,
        most=MOST_FILES,
    )


def require_few_bytes(total: int) -> None:
    """Raise `LimitExceeded` if the files of all sources have too many bytes."""
    if total <= _MOST_BYTES:
        return
    raise LimitExceeded(
        f"the files of the sources have more than {_MOST_BYTES:,} bytes together.",
        hint="leave out folders with `exclude` in `sources` of .vmrag.yaml, or large files with `sources_max_bytes`",
        most=_MOST_BYTES,
    )


_SHA1_DIGITS = 40


@readonly.share_deadline()
def list_at_commit(
    places: Places,
    commit: str,
    sources: Sequence[SourceSettings],
    *,
    max_bytes: int,
    before: SourceListing | None = None,
) -> SourceListing:
    """Return the files of the sources at a commit, given by its full hash. Files above `max_bytes`
    are left out.

    `before`: another listing, whose notes are not read again. Raises `GitReferenceMissing` if the
    commit is missing, `HistoryMissing` for missing trees, `LimitExceeded` for a tree that is too
    large, and `GitFailed`.
    """
    if not re.fullmatch(COMMIT_NAME, commit):
        raise _build_commit_error(commit)
    with readable_tree(places, commit):
        raw_changes.require_countable(places, commit)
        files_by_source = [_list_files(places, commit, rules.build_pathspecs(source)) for source in sources]
        tree_attributes = _read_attributes(places, commit)
    candidates = [
        {file.path: Candidate(file.path, file.mode, file.blob) for file in files} for files in files_by_source
    ]
    blobs = (file.blob for files in files_by_source for file in files if file.mode in REGULAR)
    sizes = readonly.read_blob_sizes(places, blobs)
    listing = select_files(sources, candidates, tree_attributes, sizes, max_bytes=max_bytes).build_listing()
    if not any(source.write for source in sources):
        return listing
    from vmrag_link.sources import documents, notes

    return notes.identify_notes(sources, listing, functools.partial(documents.read_texts_at_commit, places), before)


def _read_attributes(places: Places, commit: str) -> attributes.TreeAttributes:
    """Return the attributes of a tree. Files that are missing in this clone are ignored."""
    files = {
        file.path: file.blob for file in _list_files(places, commit, (attributes.PATHSPEC,)) if file.mode in REGULAR
    }
    return attributes.TreeAttributes(read_attribute_files(places, files), attributes.FOR_LISTING)


def read_attribute_files(places: Places, files: dict[str, str]) -> dict[str, bytes]:
    """Return the contents of attribute files by path. `files`: their blobs. Raises
    `LimitExceeded`.
    """
    sizes = readonly.read_blob_sizes(places, files.values())
    attributes.require_few_bytes(sum(sizes.get(blob, 0) for blob in files.values()))
    small = {
        path: blob for path, blob in files.items() if sizes.get(blob, attributes.MOST_BYTES) < attributes.MOST_BYTES
    }
    contents = readonly.read_blobs(places, small.values())
    return {path: contents[blob] for path, blob in small.items() if blob in contents}


def _list_files(places: Places, commit: str, arguments: Sequence[str]) -> list[RawChange]:
    return list(raw_changes.list_tree_files(places, commit, get_empty_tree(commit), arguments))


@contextlib.contextmanager
def readable_tree(places: Places, commit: str) -> Iterator[None]:
    """Convert git's errors about a missing commit or tree to `GitReferenceMissing` and
    `HistoryMissing`.
    """
    try:
        yield
    except GitFailed as error:
        if find_missing_commits(places, [commit]):
            raise _build_commit_error(commit) from error
        raise HistoryMissing(
            f"the tree of {commit[:12]} cannot be read: {error.message}",
            hint=f"run 'git fetch --refetch --filter=blob:none', or 'git fsck {commit[:12]}' to find damage",
            commit=commit,
        ) from error


def get_empty_tree(name: str) -> str:
    """Return the name of the empty tree, in a repository whose object names look like `name`. git
    knows this tree even if it is not stored.
    """
    algorithm = hashlib.sha1 if len(name) == _SHA1_DIGITS else hashlib.sha256
    return algorithm(b"tree 0\0", usedforsecurity=False).hexdigest()


def _build_commit_error(commit: str) -> GitReferenceMissing:
    return GitReferenceMissing(
        f"{commit[:64]!r} is not a commit of this repository.",
        hint="run 'git fetch', or 'git branch -a' to list branches",
        ref=commit,
    )


def _find_mode_flaw(mode: str) -> str:
    if mode in REGULAR:
        return ""
    return {LINK: "is a link", SUBMODULE: "is a submodule"}.get(mode, "is not a regular file")
