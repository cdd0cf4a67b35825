"""The texts of files that were listed: blobs as git has them, edited files as they were seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vmrag_link.conversion.unreadable import ContentUnreadable
from vmrag_link.errors import FileFailed
from vmrag_link.git import beside
from vmrag_link.git.objects import blob_name
from vmrag_link.paths import Places
from vmrag_link.sources.disk import Disk
from vmrag_link.sources.files import TreeFile
from vmrag_link.sources.readable import SourceText, readable
from vmrag_link.sources.stored_form import possible_forms

__all__ = ["SourceText", "texts_at_commit", "texts_in_work_tree"]

_BATCH_FILES = 2_000
_BATCH_BYTES = 32_000_000

_MISSING = SourceText(None, "is not in this clone")

_SPARE_BYTES = 4
"""What an encoding takes more on the disk than as UTF-8, at most so many times."""


def texts_at_commit(places: Places, files: Sequence[TreeFile]) -> Iterator[tuple[TreeFile, SourceText]]:
    """In the order of the files; so many bytes are in memory at a time as one batch has.

    Raises as `git.beside.look`.
    """
    for batch in _batches(files):
        contents = beside.contents(places, (each.blob for each in batch))
        for file in batch:
            data = contents.get(file.blob)
            yield file, _MISSING if data is None else readable(file, data)


def texts_in_work_tree(places: Places, files: Sequence[TreeFile]) -> Iterator[tuple[TreeFile, SourceText]]:
    """As `texts_at_commit`. What git does not have comes from the file.

    Raises `FileFailed` for a file that is not any more what was listed: list again.
    """
    known = {each.blob for each in files if not each.uncommitted}
    known |= beside.sizes(places, (each.blob for each in files if each.uncommitted)).keys()
    with Disk(places.top) as disk:
        for batch in _batches(files):
            contents = beside.contents(places, (each.blob for each in batch if each.blob in known))
            for file in batch:
                data = contents.get(file.blob)
                if data is None and not (file.blob in known and file.uncommitted):
                    data = _from_disk(disk, file)
                yield file, _MISSING if data is None else readable(file, data)


def _from_disk(disk: Disk, file: TreeFile) -> bytes:
    try:
        data, _ = disk.read(file.path, 2 * file.size + _SPARE_BYTES * file.size * bool(file.encoding) + 1)
        for form in possible_forms(data, file.encoding):
            if blob_name(form, like=file.blob) == file.blob:
                return form
    except (OSError, ValueError, ContentUnreadable) as error:
        raise _moved(file) from error
    raise _moved(file)


def _moved(file: TreeFile) -> FileFailed:
    return FileFailed(f"{file.path} changed while it was read.", hint="Call again.", path=file.path)


def _batches(files: Sequence[TreeFile]) -> Iterator[Sequence[TreeFile]]:
    start = size = 0
    for number, file in enumerate(files):
        if number - start >= _BATCH_FILES or (size and size + file.size > _BATCH_BYTES):
            yield files[start:number]
            start, size = number, 0
        size += file.size
    if start < len(files):
        yield files[start:]
