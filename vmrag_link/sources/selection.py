"""Select the files that become documents of the sources, by the rules of `rules` and by attributes.

`commit_files` and `survey` call `select_files` with the files that the sources name. Each file
becomes a document, is left out with a reason, or is missing in this clone. A reason completes
`PATH is left out: it …`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from vmrag_link import terminal_text
from vmrag_link.errors import LimitExceeded
from vmrag_link.file_access import FileStamp
from vmrag_link.git.raw_changes import LINK, MOST_FILES, REGULAR, SUBMODULE
from vmrag_link.settings import SourceSettings
from vmrag_link.sources import rules
from vmrag_link.sources.attributes import ENCODING, TreeAttributes, Value, find_attribute_flaw, is_handwritten
from vmrag_link.sources.listings import LeftOutFile, SourceListing, TreeFile, Uncommitted

_MAX_TOTAL_BYTES = 2_000_000_000
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
    """Why a file on disk cannot be read, or an empty text."""


def select_files(
    sources: Sequence[SourceSettings],
    candidates: Sequence[Mapping[str, Candidate]],
    attributes: TreeAttributes,
    sizes: Mapping[str, int],
    *,
    max_bytes: int,
    read: Callable[[Candidate], Candidate] | None = None,
) -> SourceListing:
    """Return the files that become documents, and why others do not.

    `candidates`: of each source, by path. `sizes`: of the blobs in this clone. `read` gets files on
    disk that no rule leaves out, and returns them with their blob and its size. Raises
    `LimitExceeded` for too many files or bytes, and the errors of `TreeAttributes.get_values`.
    """
    number = sum(map(len, candidates))
    if number > MOST_FILES:
        raise build_too_many_error(number)
    files: dict[str, dict[str, TreeFile]] = {source.collection: {} for source in sources}
    left_out: dict[str, str] = {}
    missing: set[str] = set()
    total_bytes = 0
    for source, source_candidates in zip(sources, candidates, strict=True):
        selected = files[source.collection]
        # If several paths fold to the same text, the first is selected.
        paths_by_folded = {rules.fold_path(path): path for path in selected}
        for path in sorted(source_candidates):
            if path in selected:
                continue
            candidate = source_candidates[path]
            flaw = rules.find_name_flaw(path) or _find_mode_flaw(candidate.mode)
            values = {} if flaw else attributes.get_values(path)
            flaw = flaw or _find_content_flaw(path, values, source.kind)
            size = sizes.get(candidate.blob) if candidate.size is None else candidate.size
            if not flaw and size is not None:
                flaw = rules.find_size_flaw(size, rules.get_byte_limit(path, max_bytes))
            if not flaw and read and candidate.size is not None:
                candidate = read(candidate)
                size = candidate.size
                flaw = candidate.flaw
            if not flaw:
                first = paths_by_folded.setdefault(rules.fold_path(path), path)
                flaw = "" if first == path else format_twin_flaw(first)
            if flaw:
                left_out.setdefault(path, flaw)
            elif size is None:
                missing.add(path)
            else:
                selected[path] = _build_file(candidate, size, values, max_bytes)
                total_bytes += size
                require_few_bytes(total_bytes)
    selected_paths = {path for selected in files.values() for path in selected}
    return SourceListing(
        files={collection: sorted(selected.values()) for collection, selected in files.items()},
        left_out=tuple(
            LeftOutFile(terminal_text.escape_line(path), flaw)
            for path, flaw in sorted(left_out.items())
            if path not in selected_paths
        ),
        missing=tuple(sorted(missing)),
    )


def _find_mode_flaw(mode: str) -> str:
    if mode in REGULAR:
        return ""
    return {LINK: "is a link", SUBMODULE: "is a submodule"}.get(mode, "is not a regular file")


def _find_content_flaw(path: str, values: Mapping[str, Value], kind: str) -> str:
    """Return why attributes or the file type leave out a file, or an empty text."""
    return find_attribute_flaw(values) or rules.find_kind_flaw(path, kind, is_handwritten=is_handwritten(values))


def format_twin_flaw(path: str) -> str:
    return f"has the same path as {path} on systems that ignore letter case or accents"


def _build_file(candidate: Candidate, size: int, values: Mapping[str, Value], max_bytes: int) -> TreeFile:
    encoding = values.get(ENCODING)
    return TreeFile(
        path=candidate.path,
        blob=candidate.blob,
        size=size,
        uncommitted=candidate.uncommitted,
        handwritten=is_handwritten(values),
        encoding=encoding if isinstance(encoding, str) else "",
        text_limit=max_bytes if size > max_bytes else 0,
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
    if total <= _MAX_TOTAL_BYTES:
        return
    raise LimitExceeded(
        f"the files of the sources have more than {_MAX_TOTAL_BYTES:,} bytes together.",
        hint="leave out folders with `exclude` in `sources` of .vmrag.yaml, or large files with `sources_max_bytes`",
        most=_MAX_TOTAL_BYTES,
    )
