"""Which files of a tree the sources take: each becomes a document, is left out with a reason, or is
missing here. A commit is asked by its tree alone, as blobs.
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
from vmrag_link.git import beside, raw_changes
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
"""Of all files together: one blob of a megabyte may have a thousand names."""


class Candidate(NamedTuple):
    """A file that a source names.

    `size` None: its blob's, if that is here. `blob` empty: it is to be read. `flaw`: why it cannot.
    """

    path: str
    mode: str
    blob: str
    uncommitted: Uncommitted = ""
    size: int | None = None
    flaw: str = ""


def build_unread(candidate: Candidate) -> Candidate:
    """Candidates for files that are known by their blobs."""
    return candidate


class SelectedFiles(NamedTuple):
    """What becomes of the candidates of all sources."""

    files: dict[str, list[TreeFile]]
    left_out: tuple[LeftOutFile, ...]
    missing: tuple[str, ...]

    def build_listing(self, *, removed: Iterable[str] = (), untracked: int = 0) -> SourceListing:
        gone = tuple(sorted(terminal_text.escape_line(path) for path in removed))
        return SourceListing(self.files, self.left_out, self.missing, gone, untracked)


def select_files(
    sources: Sequence[SourceSettings],
    candidates: Sequence[Mapping[str, Candidate]],
    attributes: TreeAttributes,
    sizes: Mapping[str, int],
    *,
    max_bytes: int,
    read: Callable[[Candidate], Candidate] = build_unread,
) -> SelectedFiles:
    """`candidates`: of each source, by path. `sizes`: of blobs that are here. `read` gets
    those with a size that no rule leaves out, and gives them with the blob.

    Raises `LimitExceeded` for too many files or bytes, and as `TreeAttributes.of`.
    """
    files: dict[str, dict[str, TreeFile]] = {source.collection: {} for source in sources}
    left_out: dict[str, str] = {}
    missing: set[str] = set()
    number, together = sum(map(len, candidates)), 0
    if number > MOST_FILES:
        raise build_too_many_error(number)
    for source, named in zip(sources, candidates, strict=True):
        taken = files[source.collection]
        # Of paths that fold to one, the first stays.
        seen = {rules.fold_path(path): path for path in taken}
        for path in sorted(named):
            if path in taken:
                continue
            candidate = named[path]
            values, why = _known(candidate, attributes, source.kind)
            size = sizes.get(candidate.blob) if candidate.size is None else candidate.size
            if not why and size is not None:
                why = rules.find_size_flaw(size, rules.get_byte_limit(path, max_bytes))
            if not why and candidate.size is not None:
                candidate = read(candidate)
                size, why = candidate.size, candidate.flaw
            if not why and (twin := seen.setdefault(rules.fold_path(path), path)) != path:
                why = format_twin_flaw(twin)
            if why:
                left_out.setdefault(path, why)
            elif size is None:
                missing.add(path)
            else:
                taken[path] = _file(candidate, size, values)._replace(text_limit=max_bytes if size > max_bytes else 0)
                together += size
                require_few_bytes(together)
    some = {path for taken in files.values() for path in taken}
    return SelectedFiles(
        {collection: sorted(taken.values()) for collection, taken in files.items()},
        tuple(
            LeftOutFile(terminal_text.escape_line(path), why)
            for path, why in sorted(left_out.items())
            if path not in some
        ),
        tuple(sorted(missing)),
    )


def format_twin_flaw(path: str) -> str:
    return f"cannot be told from {path} where letter case or accents do not count"


def _known(candidate: Candidate, attributes: TreeAttributes, kind: str) -> tuple[Mapping[str, Value], str]:
    """What attributes say of a file, and why it is left out. They are not asked of what is left out
    anyway.
    """
    path = candidate.path
    if why := candidate.flaw or rules.find_name_flaw(path) or _flaw_of_mode(candidate.mode):
        return {}, why
    values = attributes.get_values(path)
    by_hand = is_handwritten(values)
    return values, find_attribute_flaw(values) or rules.find_kind_flaw(path, kind, by_hand=by_hand)


def _file(candidate: Candidate, size: int, values: Mapping[str, Value]) -> TreeFile:
    if not values:
        return TreeFile(candidate.path, candidate.blob, size, candidate.uncommitted)
    encoding = values.get(ENCODING)
    stated = encoding if isinstance(encoding, str) else ""
    return TreeFile(candidate.path, candidate.blob, size, candidate.uncommitted, is_handwritten(values), stated)


def build_too_many_error(number: int) -> LimitExceeded:
    return LimitExceeded(
        f"The sources name {number:,} files; at most {MOST_FILES:,} are read.",
        hint="Name fewer files in `sources` of .vmrag.yaml, or leave folders out by `exclude`.",
        number=number,
        most=MOST_FILES,
    )


def require_few_bytes(together: int) -> None:
    """Raise `LimitExceeded` if the files of all sources have too many bytes."""
    if together <= _MOST_BYTES:
        return
    raise LimitExceeded(
        f"The files of the sources have more bytes together than are read: at most {_MOST_BYTES:,}.",
        hint="Leave folders out by `exclude` in `sources` of .vmrag.yaml, or large files by `sources_max_bytes`.",
        most=_MOST_BYTES,
    )


_SHA1_DIGITS = 40


@beside.share_deadline()
def list_at_commit(
    places: Places,
    commit: str,
    sources: Sequence[SourceSettings],
    *,
    max_bytes: int,
    before: SourceListing | None = None,
) -> SourceListing:
    """`commit` by its full hash. Files above `max_bytes` are left out. `before`: another listing;
    its notes are not read again.

    Raises `GitReferenceMissing` if it is not here, `HistoryMissing` for trees that are not,
    `LimitExceeded` for a tree that is too large, `GitFailed`.
    """
    if not re.fullmatch(COMMIT_NAME, commit):
        raise _no_commit(commit)
    with readable_tree(places, commit):
        raw_changes.require_countable(places, commit)
        found = [_files(places, commit, rules.build_pathspecs(source)) for source in sources]
        stated = _attributes(places, commit)
    candidates = [{file.path: Candidate(file.path, file.mode, file.blob) for file in files} for files in found]
    blobs = (file.blob for files in found for file in files if file.mode in REGULAR)
    sizes = beside.read_blob_sizes(places, blobs)
    listing = select_files(sources, candidates, stated, sizes, max_bytes=max_bytes).build_listing()
    if not any(source.write for source in sources):
        return listing
    from vmrag_link.sources import documents, notes

    return notes.identify_notes(sources, listing, functools.partial(documents.read_texts_at_commit, places), before)


def _attributes(places: Places, commit: str) -> attributes.TreeAttributes:
    """The tree's attributes: files that are missing here say nothing."""
    files = {file.path: file.blob for file in _files(places, commit, (attributes.PATHSPEC,)) if file.mode in REGULAR}
    return attributes.TreeAttributes(read_attribute_files(places, files), attributes.FOR_LISTING)


def read_attribute_files(places: Places, files: dict[str, str]) -> dict[str, bytes]:
    """The contents of attribute files by path; `files`: their blobs. Raises `LimitExceeded`."""
    sizes = beside.read_blob_sizes(places, files.values())
    attributes.require_few_bytes(sum(sizes.get(blob, 0) for blob in files.values()))
    small = {
        path: blob for path, blob in files.items() if sizes.get(blob, attributes.MOST_BYTES) < attributes.MOST_BYTES
    }
    contents = beside.read_blobs(places, small.values())
    return {path: contents[blob] for path, blob in small.items() if blob in contents}


def _files(places: Places, commit: str, arguments: Sequence[str]) -> list[RawChange]:
    return list(raw_changes.list_tree_files(places, commit, get_empty_tree(commit), arguments))


@contextlib.contextmanager
def readable_tree(places: Places, commit: str) -> Iterator[None]:
    try:
        yield
    except GitFailed as error:
        if find_missing_commits(places, [commit]):
            raise _no_commit(commit) from error
        raise HistoryMissing(
            f"The tree of {commit[:12]} cannot be read here: {error.message}",
            hint=f"git fetch --refetch --filter=blob:none   (or see what is damaged: git fsck {commit[:12]})",
            commit=commit,
        ) from error


def get_empty_tree(name: str) -> str:
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


def _flaw_of_mode(mode: str) -> str:
    if mode in REGULAR:
        return ""
    return {LINK: "is a link", SUBMODULE: "is a submodule"}.get(mode, "is no regular file")
