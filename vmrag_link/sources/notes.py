"""Notes: the documents of a writable source, which are Markdown files below one folder.

The id of a note is `id` in its front matter, else its path below the folder without `.md`. If two
files claim one id, the file with that name gets it.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from vmrag_link.conversion import front_matter
from vmrag_link.conversion.limits import ContentUnreadable
from vmrag_link.documents import export_paths
from vmrag_link.documents.import_base import find_id_problem
from vmrag_link.errors import ContentRefused
from vmrag_link.settings import SourceSettings
from vmrag_link.sources.listings import SourceListing, TreeFile
from vmrag_link.sources.readable import LFS_POINTER, SourceText, decode_file_text

SUFFIX = ".md"
ID_KEY = "id"

_ID_LINE = re.compile(r"^[\"']?id[\"']?[ \t]*:", re.MULTILINE)


def path_id(folder: str, path: str) -> str:
    """Return the id of a file in a folder according to its path alone."""
    return path.removeprefix(f"{folder}/").removesuffix(SUFFIX)


def read_claimed_id(text: str) -> str:
    """Return the id in the front matter of a note, or an empty text if it has none.

    A text whose front matter cannot be read claims no id.
    """
    block = front_matter.locate_block(text)
    if block is None or not _ID_LINE.search(text, *block):
        return ""
    try:
        metadata, _ = front_matter.split_front_matter(text)
    except ContentUnreadable:
        return ""
    return read_id(metadata)


def read_id(metadata: Mapping[str, Any]) -> str:
    """Return the id in front matter, or an empty text if it has none that is valid."""
    value = metadata.get(ID_KEY)
    doc_id = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    return "" if not doc_id or find_id_problem(doc_id) else doc_id


def identify_notes(
    sources: Sequence[SourceSettings],
    listing: SourceListing,
    read: Callable[[Sequence[TreeFile]], Iterator[tuple[TreeFile, SourceText]]],
    before: SourceListing | None = None,
) -> SourceListing:
    """Return the listing with the ids of notes.

    `read` reads texts of files. `before`: an earlier listing, whose texts are not read again.
    """
    writable = [source for source in sources if source.write and listing.files.get(source.collection)]
    if not writable:
        return listing
    files, claims = dict(listing.files), dict[str, str]()
    claimed = _read_claims(writable, before) if before else {}
    for source in writable:
        notes = [file._replace(handwritten=True) for file in files[source.collection]]
        new = [file for file in notes if file.blob not in claimed]
        claimed |= {file.blob: read_claimed_id(text.text or "") for file, text in (read(new) if new else ())}
        ids = assign_ids(
            source, (file.path for file in notes), {file.path: claimed.get(file.blob, "") for file in notes}
        )
        files[source.collection] = [file._replace(note_id=ids[file.path]) for file in notes]
        claims |= {file.blob: claimed[file.blob] for file in notes if claimed.get(file.blob)}
    return msgspec.structs.replace(listing, files=files, claims=claims)


def _read_claims(sources: Sequence[SourceSettings], listing: SourceListing) -> dict[str, str]:
    """Return the ids that notes of a listing claim, by blob; empty texts for notes without one."""
    files = (file for source in sources for file in listing.files.get(source.collection, ()) if file.note_id)
    return {file.blob: listing.claims.get(file.blob, "") for file in files}


def assign_ids(source: SourceSettings, paths: Iterable[str], claims: Mapping[str, str]) -> dict[str, str]:
    """Return the id of each file of a writable source, by path.

    `claims`: the ids in front matter, by path. If several files claim an id, the file of that name
    gets it, else the file whose name was derived from it. A file whose claim is refused gets the id
    of its path, or its whole path if another note has that id.
    """
    folder = source.folder
    ordered = sorted(paths, key=lambda path: (not path.endswith(SUFFIX), path))
    by_path = {path: path_id(folder, path) for path in ordered}
    owners: dict[str, str] = {}
    for path in ordered:
        if claims.get(path, "") in ("", by_path[path]):
            owners.setdefault(by_path[path], path)
    claimants = [path for path in ordered if claims.get(path)]
    for path in sorted(claimants, key=lambda path: path != hashed_path(source, claims[path])):
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


# -- file names

_MAX_NAME_BYTES = 200
"""Maximum bytes of an id that is used unchanged as a file name."""

_MAX_SLUG_CHARACTERS = 60
_RISKY = re.compile(r'[<>:"|?*\\]')
"""Characters that Windows does not allow in file names."""


def note_path(source: SourceSettings, doc_id: str) -> str:
    """Return the path, from the top of the repository, for a note with this id."""
    return natural_path(source, doc_id) or hashed_path(source, doc_id)


def natural_path(source: SourceSettings, doc_id: str) -> str:
    """Return the path of the file with the note's name, or an empty text if some system does not
    allow such a file.

    The id `a.md` gets the file `a.md`, whose front matter has the id.
    """
    name = f"{doc_id.removesuffix(SUFFIX)}{SUFFIX}"
    parts = name.split("/")
    is_risky = any(
        part.startswith((".", " ")) or _RISKY.search(part) or unicodedata.normalize("NFC", part) != part
        for part in parts
    )
    if (
        is_risky
        or doc_id.endswith((".", " "))
        or len(doc_id.encode()) > _MAX_NAME_BYTES
        or export_paths.find_name_problem(parts)
    ):
        return ""
    path = f"{source.folder}/{name}"
    return "" if find_id_problem(path) else path


def plain_path(source: SourceSettings, doc_id: str) -> str:
    """Return the path of a file with the note's name on this system, or an empty text if it cannot
    be below the folder.

    A user may have written such a file. The program writes `natural_path` or `hashed_path`.
    """
    path = f"{source.folder}/{doc_id}{SUFFIX}"
    parts = path.split("/")
    is_outside = any(part in ("", ".", "..") or export_paths.is_git_folder(part) for part in parts)
    is_too_long = any(len(part.encode()) > export_paths.MAX_NAME_BYTES for part in parts)
    return "" if is_outside or is_too_long or find_id_problem(path) else path


def hashed_path(source: SourceSettings, doc_id: str) -> str:
    """Return the path of a note whose id cannot be the name of a file, or is the name of another
    one.
    """
    digest = hashlib.sha256(doc_id.encode()).hexdigest()[:8]
    return f"{source.folder}/{make_slug(doc_id)[: _MAX_SLUG_CHARACTERS // 2]}-{digest}{SUFFIX}"


def make_slug(text: str) -> str:
    """Return a text as an id: letters and digits in lower case, with dashes between words."""
    beginning = text[: 10 * _MAX_SLUG_CHARACTERS]  # NFKC takes n² steps for n combining marks
    words = re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", beginning).casefold())
    joined = unicodedata.normalize("NFC", "-".join(words))
    return joined[:_MAX_SLUG_CHARACTERS].strip("-") or "note"


def first_line(text: str) -> str:
    """Return the first line with words, without the markup of a heading or a list."""
    lines = (line.strip().lstrip("#>*-+ \t") for line in text.splitlines())
    return next((line for line in lines if re.search(r"\w", line)), "")


# -- content of files


class NoteText(NamedTuple):
    """Content of a note's file."""

    metadata: dict[str, Any]
    """Front matter without the id of the note."""
    content: str
    block: str
    """Front matter as written, including its lines of dashes. Empty if there is none."""


def parse_note(text: str, doc_id: str) -> NoteText:
    """Return the content of a note's file. Raises `ContentUnreadable` for invalid front matter."""
    metadata, content = front_matter.split_front_matter(text)
    if metadata.get(ID_KEY) is not None and read_id(metadata) == doc_id:
        del metadata[ID_KEY]
    return NoteText(metadata, content, text[: len(text) - len(content)])


def render_note(source: SourceSettings, path: str, doc_id: str, metadata: Mapping[str, Any], content: str) -> str:
    """Return the text of a note's file.

    Raises `ContentRefused` if reading the file would not return the same metadata and content.
    """
    if ID_KEY in metadata:
        raise ContentRefused(
            f"the metadata of the note {doc_id!r} has the key {ID_KEY!r}, which is reserved for the id in front matter.",
            hint="use another key, or run 'vmrag add --collection NAME' to use a stored collection",
            doc_id=doc_id,
            key=ID_KEY,
        )
    front = dict(metadata)
    is_ambiguous = content.startswith(("---", "\ufeff", LFS_POINTER.decode()))
    if path_id(source.folder, path) != doc_id or (is_ambiguous and not front):
        front = {ID_KEY: doc_id, **front}
    text = f"---\n{front_matter.format_block(front)}---\n{content}" if front else content
    try:
        reread, rest = front_matter.split_front_matter(decode_file_text(text.encode()))
    except (ContentUnreadable, UnicodeEncodeError) as error:
        raise _build_inexact_error(doc_id, str(error)) from None
    if (reread, rest) != (front, content.replace("\r\n", "\n")):
        raise _build_inexact_error(doc_id, "its metadata or text would be read differently")
    return text


def _build_inexact_error(doc_id: str, why: str) -> ContentRefused:
    return ContentRefused(
        f"the note {doc_id!r} cannot be a file: {why}.",
        hint="run 'vmrag add --collection NAME' to store the document in a stored collection",
        doc_id=doc_id,
    )
