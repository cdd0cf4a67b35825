"""Whether a document says what its file said before: then the file was changed since it was
imported, and the document was not.

What a file said before is known from what this work tree has seen, and from git's history. A
document whose text is none of these was edited in the knowledge base, and is not spoken of.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from vmrag_link.documents.seen_files import FileRecord, SeenText, converted, line_end_variants
from vmrag_link.models import DocumentHeader, Record, metadata_of
from vmrag_link.paths import Places

if TYPE_CHECKING:
    from vmrag_link.conversion.converter import Converter

HISTORY_SECONDS = 10.0
"""For converting what files said before, unless somebody waits for that alone: a stranger's history
may hold a thousand versions, each of which takes the converter a minute.
"""


class Differing(Record, frozen=True):
    """A document, and its file with another text; `path`: the file's, below the root of the
    repository, or an absolute one.
    """

    path: str
    header: DocumentHeader


def says(header: DocumentHeader, text: SeenText) -> bool:
    """Whether a document has what its file says; `vmrag add --metadata` may have said more."""
    if header.content_hash != text.content_hash:
        return False
    if text.metadata in ("{}", header.metadata):
        return True
    stored = metadata_of(header)
    return all(key in stored and stored[key] == value for key, value in metadata_of(text).items())


def says_content(header: DocumentHeader, path: str, content: bytes, converter: Converter | None) -> bool | None:
    """As `says`, of a file of that content, whatever its line ends are; None where it cannot be
    converted here.
    """
    found = [converted(path, each, converter) for each in line_end_variants(content)]
    return None if found[0] is None else any(says(header, each) for each in found if each)


def imported_before(
    places: Places, seen: FileRecord, differing: Sequence[Differing], *, commit: str | None, converter: Converter | None
) -> set[tuple[str, str]]:
    """The keys of the documents that say what their files said before, here or in the history of a
    commit.

    `seen` is told what it did not know.
    """
    from vmrag_link.git import versions

    found = {each.header.key for each in differing if _was_seen(seen, each.header)}
    left = [each for each in differing if each.header.key not in found and not each.path.startswith("/")]
    keys = {each: (commit or "", each.header.content_hash, each.header.metadata) for each in left}
    left = [each for each in left if commit and not seen.is_edited(each.path, keys[each])]
    if not left or not commit:
        return found
    of_file = versions.versions(places, commit, {each.path for each in left})
    held = _texts(places, of_file, seen, converter)
    for each in left:
        matching = [pair for blob in of_file.get(each.path, ()) for pair in held.get((each.path, blob), ())]
        match = next((pair for pair in matching if says(each.header, pair[1])), None)
        if match:
            seen.remember_version(*match)
            found.add(each.header.key)
        elif converter is None or not converter.late:
            seen.remember_edited(each.path, keys[each])
    return found


def _was_seen(seen: FileRecord, header: DocumentHeader) -> bool:
    return any(says(header, each) for each in seen.texts_of(header.content_hash))


def _texts(
    places: Places, of_file: Mapping[str, Iterable[str]], seen: FileRecord, converter: Converter | None
) -> dict[tuple[str, str], list[tuple[bytes, SeenText]]]:
    """What each blob of a path says, with each kind of line ends. Files that end alike say the
    same.
    """
    from vmrag_link.git import versions

    paths: dict[str, list[str]] = {}
    for path, blobs in of_file.items():
        for blob in blobs:
            paths.setdefault(blob, []).append(path)
    found = {}
    for blob, content in versions.contents(places, paths):
        by_ending: dict[str, list[tuple[bytes, SeenText]]] = {}
        for path in paths[blob]:
            ending = os.path.splitext(path)[1]  # noqa: PTH122  thousands of them
            if ending not in by_ending:
                by_ending[ending] = [
                    (each, text)
                    for each in line_end_variants(content)
                    if (text := seen.version(each) or converted(path, each, converter))
                ]
            found[path, blob] = by_ending[ending]
    if converter and converter.late:  # the next call goes on from here
        for pair in (pair for pairs in found.values() for pair in pairs):
            seen.remember_version(*pair)
    return found
