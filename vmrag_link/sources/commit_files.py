"""List the files of the sources at a commit, from its tree and blobs alone.

The work tree is not read, so a commit has the same documents in each clone. `workspace.sources` and
`submodule_files` call `list_at_commit`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
from collections.abc import Iterator, Sequence

from vmrag_link.errors import GitFailed, GitReferenceMissing, HistoryMissing
from vmrag_link.git import raw_changes, readonly
from vmrag_link.git.objects import find_missing_commits
from vmrag_link.git.raw_changes import REGULAR, RawChange
from vmrag_link.git.refs import COMMIT_NAME
from vmrag_link.paths import Places
from vmrag_link.settings import SourceSettings
from vmrag_link.sources import attributes, rules
from vmrag_link.sources.attributes import TreeAttributes
from vmrag_link.sources.listings import SourceListing
from vmrag_link.sources.selection import Candidate, select_files

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
    listing = select_files(sources, candidates, tree_attributes, sizes, max_bytes=max_bytes)
    if not any(source.write for source in sources):
        return listing
    from vmrag_link.sources import documents, notes

    return notes.identify_notes(sources, listing, functools.partial(documents.read_texts_at_commit, places), before)


def _read_attributes(places: Places, commit: str) -> TreeAttributes:
    """Return the attributes of a tree. Files that are missing in this clone are ignored."""
    files = {
        file.path: file.blob for file in _list_files(places, commit, (attributes.PATHSPEC,)) if file.mode in REGULAR
    }
    return TreeAttributes(read_attribute_files(places, files), attributes.FOR_LISTING)


def read_attribute_files(places: Places, files: dict[str, str]) -> dict[str, bytes]:
    """Return the contents of attribute files by path. `files`: their blobs. Raises
    `LimitExceeded`.
    """
    sizes = readonly.read_blob_sizes(places, files.values())
    attributes.require_few_bytes(sum(sizes.get(blob, 0) for blob in files.values()))
    small = {
        path: blob
        for path, blob in files.items()
        if sizes.get(blob, attributes.MAX_FILE_BYTES) < attributes.MAX_FILE_BYTES
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
