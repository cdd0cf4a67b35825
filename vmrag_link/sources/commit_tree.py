"""Which files the sources have at a commit: of its tree alone, as blobs."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator, Sequence

from vmrag_link.errors import GitFailed, GitReferenceMissing, HistoryMissing
from vmrag_link.git import beside, own_index
from vmrag_link.git.heads import COMMIT_NAME
from vmrag_link.git.objects import missing_commits
from vmrag_link.git.own_index import REGULAR, RawChange
from vmrag_link.paths import Places
from vmrag_link.settings import SourceSettings
from vmrag_link.sources import attributes, pathspecs
from vmrag_link.sources.files import SourceListing
from vmrag_link.sources.selection import Candidate, select

_SHA1_DIGITS = 40


@beside.one_deadline()
def at_commit(places: Places, commit: str, sources: Sequence[SourceSettings], *, max_bytes: int) -> SourceListing:
    """`commit` by its full hash. Files above `max_bytes` are left out.

    Raises `GitReferenceMissing` if it is not here, `HistoryMissing` for trees that are not,
    `LimitExceeded` for a tree that is too large, `GitFailed`.
    """
    if not re.fullmatch(COMMIT_NAME, commit):
        raise _no_commit(commit)
    with _readable(places, commit):
        own_index.require_countable(places, commit)
        found = [_files(places, commit, pathspecs.arguments(source)) for source in sources]
        stated = _attributes(places, commit)
    candidates = [{each.path: Candidate(each.path, each.mode, each.blob) for each in files} for files in found]
    blobs = (each.blob for files in found for each in files if each.mode in REGULAR)
    sizes = beside.sizes(places, blobs)
    return select(sources, candidates, stated, sizes, max_bytes=max_bytes).listing()


def _attributes(places: Places, commit: str) -> attributes.TreeAttributes:
    """Those of files that are missing here say nothing."""
    files = {each.path: each.blob for each in _files(places, commit, (attributes.PATHSPEC,)) if each.mode in REGULAR}
    return attributes.TreeAttributes(attribute_contents(places, files), attributes.FOR_LISTING)


def attribute_contents(places: Places, files: dict[str, str]) -> dict[str, bytes]:
    """The contents of attribute files by path; `files`: their blobs. Raises `LimitExceeded`."""
    sizes = beside.sizes(places, files.values())
    attributes.require_few_bytes(sum(sizes.get(blob, 0) for blob in files.values()))
    small = {
        path: blob for path, blob in files.items() if sizes.get(blob, attributes.MOST_BYTES) < attributes.MOST_BYTES
    }
    contents = beside.contents(places, small.values())
    return {path: contents[blob] for path, blob in small.items() if blob in contents}


def _files(places: Places, commit: str, arguments: Sequence[str]) -> list[RawChange]:
    return list(own_index.tree_files(places, commit, empty_tree(commit), arguments))


@contextlib.contextmanager
def _readable(places: Places, commit: str) -> Iterator[None]:
    try:
        yield
    except GitFailed as error:
        if missing_commits(places, [commit]):
            raise _no_commit(commit) from error
        raise HistoryMissing(
            f"The tree of {commit[:12]} cannot be read here: {error.message}",
            hint=f"git fetch --refetch --filter=blob:none   (or see what is damaged: git fsck {commit[:12]})",
            commit=commit,
        ) from error


def empty_tree(name: str) -> str:
    """The empty tree, in a repository where objects have names like that one; git knows it without
    having it.
    """
    algorithm = hashlib.sha1 if len(name) == _SHA1_DIGITS else hashlib.sha256
    return algorithm(b"tree 0\0", usedforsecurity=False).hexdigest()


def _no_commit(commit: str) -> GitReferenceMissing:
    return GitReferenceMissing(
        f"{commit[:64]!r} names no commit of this repository.",
        hint="git fetch (or see what is there: git branch -a)",
        ref=commit,
    )
