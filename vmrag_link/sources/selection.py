"""Files that sources name become documents, are left out with a reason, or are missing here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from vmrag_link import terminal_text
from vmrag_link.errors import LimitExceeded
from vmrag_link.git.own_index import MOST_FILES
from vmrag_link.settings import SourceSettings
from vmrag_link.sources import rules
from vmrag_link.sources.attributes import ENCODING, TreeAttributes, Value
from vmrag_link.sources.files import LeftOutFile, SourceListing, TreeFile

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


def unread(candidate: Candidate) -> Candidate:
    """For files that are known by their blobs."""
    return candidate


class SelectedFiles(NamedTuple):
    """What becomes of the candidates of all sources."""

    files: dict[str, list[TreeFile]]
    left_out: tuple[LeftOutFile, ...]
    missing: tuple[str, ...]

    def listing(self, *, removed: Iterable[str] = (), untracked: int = 0) -> SourceListing:
        gone = tuple(sorted(terminal_text.one_line(path) for path in removed))
        return SourceListing(self.files, self.left_out, self.missing, gone, untracked)


def select(
    sources: Sequence[SourceSettings],
    candidates: Sequence[Mapping[str, Candidate]],
    attributes: TreeAttributes,
    sizes: Mapping[str, int],
    *,
    max_bytes: int,
    read: Callable[[Candidate], Candidate] = unread,
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
        raise too_many(number)
    for source, named in zip(sources, candidates, strict=True):
        taken = files[source.collection]
        # Of paths that fold to one, the first stays.
        seen = {rules.folded(path): path for path in taken}
        for path in sorted(named):
            if path in taken:
                continue
            candidate = named[path]
            values, why = _known(candidate, attributes, source.kind)
            size = sizes.get(candidate.blob) if candidate.size is None else candidate.size
            if not why and size is not None:
                why = rules.flaw_of_size(size, max_bytes)
            if not why and candidate.size is not None:
                candidate = read(candidate)
                size, why = candidate.size, candidate.flaw
            if not why and (twin := seen.setdefault(rules.folded(path), path)) != path:
                why = f"cannot be told from {twin} where letter case or accents do not count"
            if why:
                left_out.setdefault(path, why)
            elif size is None:
                missing.add(path)
            else:
                taken[path] = _file(candidate, size, values)
                together += size
                _require_few_bytes(together)
    some = {path for taken in files.values() for path in taken}
    return SelectedFiles(
        {collection: sorted(taken.values()) for collection, taken in files.items()},
        tuple(
            LeftOutFile(terminal_text.one_line(path), why) for path, why in sorted(left_out.items()) if path not in some
        ),
        tuple(sorted(missing)),
    )


def _known(candidate: Candidate, attributes: TreeAttributes, kind: str) -> tuple[Mapping[str, Value], str]:
    """What attributes say of a file, and why it is left out. They are not asked of what is left out
    anyway.
    """
    path = candidate.path
    if why := candidate.flaw or rules.flaw_of_name(path) or rules.flaw_of_mode(candidate.mode):
        return {}, why
    values = attributes.of(path)
    by_hand = rules.handwritten(values)
    return values, rules.flaw_of_attributes(values) or rules.flaw_of_kind(path, kind, by_hand=by_hand)


def _file(candidate: Candidate, size: int, values: Mapping[str, Value]) -> TreeFile:
    if not values:
        return TreeFile(candidate.path, candidate.blob, size, candidate.uncommitted)
    encoding = values.get(ENCODING)
    stated = encoding if isinstance(encoding, str) else ""
    return TreeFile(candidate.path, candidate.blob, size, candidate.uncommitted, rules.handwritten(values), stated)


def too_many(number: int) -> LimitExceeded:
    return LimitExceeded(
        f"The sources name {number:,} files; at most {MOST_FILES:,} are read.",
        hint="Name fewer files in `sources` of .vmrag.yaml, or leave folders out by `exclude`.",
        number=number,
        most=MOST_FILES,
    )


def _require_few_bytes(together: int) -> None:
    if together <= _MOST_BYTES:
        return
    raise LimitExceeded(
        f"The files of the sources have more bytes together than are read: at most {_MOST_BYTES:,}.",
        hint="Leave folders out by `exclude` in `sources` of .vmrag.yaml, or large files by `sources_max_bytes`.",
        most=_MOST_BYTES,
    )
