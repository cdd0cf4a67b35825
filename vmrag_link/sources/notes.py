"""Notes: the documents of a writable source, which are Markdown files below one folder.

The id of a note is `id` in its front matter, else its path below the folder without `.md`. If two
files claim one id, the file with that name has it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from vmrag_link.conversion import front_matter
from vmrag_link.conversion.limits import ContentUnreadable
from vmrag_link.documents.import_base import id_problem
from vmrag_link.settings import SourceSettings
from vmrag_link.sources.readable import SourceListing, SourceText, TreeFile

SUFFIX = ".md"
ID_KEY = "id"

_ID_LINE = re.compile(r"^[\"']?id[\"']?[ \t]*:", re.MULTILINE)


def path_id(folder: str, path: str) -> str:
    """Return the id that a file of a folder has by its path alone."""
    return path.removeprefix(f"{folder}/").removesuffix(SUFFIX)


def claimed_id(text: str) -> str:
    """Return the id in the front matter of a note, or an empty text if it has none.

    A text whose front matter cannot be read claims no id.
    """
    block = front_matter.block_of(text)
    if block is None or not _ID_LINE.search(text, *block):
        return ""
    try:
        metadata, _ = front_matter.split(text)
    except ContentUnreadable:
        return ""
    return id_in(metadata)


def id_in(metadata: Mapping[str, Any]) -> str:
    """Return the id that front matter states, or an empty text if it states none that can be one."""
    value = metadata.get(ID_KEY)
    doc_id = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    return "" if not doc_id or id_problem(doc_id) else doc_id


def identify(
    sources: Sequence[SourceSettings],
    listing: SourceListing,
    read: Callable[[Sequence[TreeFile]], Iterator[tuple[TreeFile, SourceText]]],
    before: SourceListing | None = None,
) -> SourceListing:
    """Return the listing with the ids of notes.

    `read` reads texts of files. `before`: an earlier listing; texts that it had are not read again.
    """
    writable = [source for source in sources if source.write and listing.files.get(source.collection)]
    if not writable:
        return listing
    files, claims = dict(listing.files), dict[str, str]()
    known = _claims_of(writable, before) if before else {}
    for source in writable:
        notes = files[source.collection]
        new = [file for file in notes if file.blob not in known]
        known |= {file.blob: claimed_id(found.text or "") for file, found in (read(new) if new else ())}
        ids = assign_ids(source, (file.path for file in notes), {file.path: known.get(file.blob, "") for file in notes})
        files[source.collection] = [file._replace(note_id=ids[file.path]) for file in notes]
        claims |= {file.blob: known[file.blob] for file in notes if known.get(file.blob)}
    return msgspec.structs.replace(listing, files=files, claims=claims)


def _claims_of(sources: Sequence[SourceSettings], listing: SourceListing) -> dict[str, str]:
    """Return the ids that notes of a listing claim, by blob; empty texts for notes without one."""
    files = (file for source in sources for file in listing.files.get(source.collection, ()) if file.note_id)
    return {file.blob: listing.claims.get(file.blob, "") for file in files}


def assign_ids(source: SourceSettings, paths: Iterable[str], claims: Mapping[str, str]) -> dict[str, str]:
    """Return the id of each file of a writable source, by path.

    `claims`: the ids in front matter, by path. A file whose claim is refused has the id of its
    path; if another note has that as well, its whole path.
    """
    folder = source.folder
    ordered = sorted(paths, key=lambda path: (not path.endswith(SUFFIX), path))
    by_path = {path: path_id(folder, path) for path in ordered}
    owners: dict[str, str] = {}
    for path in ordered:
        if claims.get(path, "") in ("", by_path[path]):
            owners.setdefault(by_path[path], path)
    for path in ordered:
        if claims.get(path):
            owners.setdefault(claims[path], path)
    ids = {path: doc_id for doc_id, path in owners.items()}
    for path in ordered:
        if path not in ids:
            ids[path] = path if by_path[path] in owners else by_path[path]
            owners[ids[path]] = path
    return ids


def disputed_ids(ids: Mapping[str, str], claims: Mapping[str, str]) -> dict[str, str]:
    """Return the claims that were refused because another file has the id, by path."""
    return {path: claim for path, claim in claims.items() if claim and path in ids and ids[path] != claim}
