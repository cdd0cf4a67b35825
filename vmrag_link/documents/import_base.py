"""Where a document comes from: its id, counted from the import base of the collection, and what one
of a library was made of, in one reserved key of its metadata.

The base is a folder, recorded with the collection, so that a file becomes the same document whoever
imports it, on whatever machine, and whether the file is named or a folder above it. A base decides
names only: what is read is what the person named. The origin is versioned with the document, so
that every clone knows which bytes it holds already.
"""

from __future__ import annotations

import os
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from vmrag_link.models import Document, DocumentHeader, Record, parse_metadata

MAX_ID = 255
"""Characters."""


def find_id_problem(text: str) -> str | None:
    """The reason why a text cannot be part of an id, to follow a subject; None for one that can."""
    if len(text) > MAX_ID:
        return f"is longer than {MAX_ID} characters"
    for character in text:
        match unicodedata.category(character):
            case "Cs":
                return "is not UTF-8"
            case "Cc":
                return "has control characters"
    return None


ROOT = "."
OUTSIDE = ".."
"""What is recorded of a folder outside of the repository: it lies elsewhere on each machine."""


class ImportBase(Record, frozen=True):
    """`recorded` stands with the collection: `ROOT`, a folder's POSIX path below it, or `OUTSIDE`.

    `folder` is where that is here, `top` the root of the work tree; both free of symbolic links, as
    all paths that the methods take (see `located`).
    """

    recorded: str
    folder: Path
    top: Path

    @property
    def origin(self) -> Path:
        """The folder from which sources count: the root, or a base outside of it.

        So a source is the same on every machine.
        """
        return self.folder if self.recorded == OUTSIDE else self.top

    @property
    def prefix(self) -> str:
        """What a source has before the id of a document that got its id from this base."""
        return "" if self.recorded in (ROOT, OUTSIDE) else f"{self.recorded}/"

    def contains(self, path: Path) -> bool:
        return path.is_relative_to(self.folder)

    def make_doc_id(self, path: Path) -> str:
        """The id of a new document from a file in the base."""
        return path.relative_to(self.folder).as_posix()

    def make_source(self, path: Path) -> str:
        """What is stored as `Document.source` for a file in the base."""
        return path.relative_to(self.origin).as_posix()

    def list_sources(self, documents: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """(id, source) of these documents as `source` forms them now, without those of no file.

        Earlier programs stored the absolute path of a file outside of the repository, and the path
        through a symbolic link as it was typed. What cannot be known stays as it is; an absolute
        path is not looked up, because a stranger may have written it.
        """
        found: list[tuple[str, str]] = []
        folders: dict[str, str | None] = {}  # each is looked up once
        for doc_id, stored in documents:
            folder, _, name = stored.rpartition("/")
            if not stored:
                continue
            if stored.startswith("/"):
                found.append((doc_id, self._absolute(doc_id, stored)))
            elif self.recorded == OUTSIDE or ".." in stored.split("/"):
                found.append((doc_id, stored))
            else:
                if folder not in folders:
                    folders[folder] = self._real(folder)
                real = folders[folder]
                found.append((doc_id, stored if real is None else f"{real}{name}"))
        return found

    def _absolute(self, doc_id: str, stored: str) -> str:
        if self.recorded == OUTSIDE:
            return doc_id if stored.endswith(f"/{doc_id}") else stored
        return stored.removeprefix(f"{self.top}/")

    def _real(self, folder: str) -> str | None:
        """What a source in this folder begins with; None if a link leaves the repository."""
        real = Path(os.path.realpath(self.top / folder))
        if not real.is_relative_to(self.top):
            return None
        return "" if real == self.top else f"{real.relative_to(self.top).as_posix()}/"

    def map_ids_by_source(self, documents: Iterable[tuple[str, str]]) -> dict[str, str]:
        """The id of each file that is a document already; from `stored_sources`.

        A file that earlier programs stored under several ids counts as the one that it would get
        now, else as the longest.
        """
        found: dict[str, str] = {}
        for doc_id, source in documents:
            other = found.setdefault(source, doc_id)
            if other != doc_id:
                expected = os.path.relpath(self.origin / source, self.folder)
                found[source] = max(other, doc_id, key=lambda each: (each == expected, len(each), each))
        return found


def locate_path(path: Path) -> Path:
    """The absolute path of a file or folder, the same through whatever symbolic links it is named.

    A link to a file keeps its own name, because it is a document of its own.
    """
    if path.is_dir():
        return Path(os.path.realpath(path))
    return Path(os.path.realpath(path.parent), path.name)


def make_base(folder: Path, top: Path) -> ImportBase:
    """The base that a folder is; both as `located` has them."""
    inside = folder.is_relative_to(top)
    return ImportBase(folder.relative_to(top).as_posix() if inside else OUTSIDE, folder, top)


def restore_base(recorded: str, top: Path) -> ImportBase:
    """The base that is recorded, inside the repository; it has no `problem`."""
    return ImportBase(recorded, top / recorded, top)


def find_base_problem(recorded: str) -> str | None:
    """The reason why a recorded base cannot be used; any program may have written it."""
    if recorded in (ROOT, OUTSIDE):
        return None
    if why := find_id_problem(recorded):
        return why
    if recorded.startswith("/"):
        return "is absolute"
    parts = recorded.split("/")
    if ".." in parts:
        return "leaves the repository"
    return "is not a normalised path" if "" in parts or "." in parts else None


def escapes_folder(stored: str) -> bool:
    """Whether a source or an id, perhaps a stranger's, leaves the folder that it counts from."""
    return stored.startswith("/") or ".." in stored.split("/")


def is_below(path: str, folder: str) -> bool:
    """Whether a path is a folder's, or of something in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def is_source_below(source: str, folder: str) -> bool:
    """As `is_below`, of paths below the root; `ROOT` holds them all."""
    return folder == ROOT or is_below(source, folder)


def count_bases(documents: Iterable[tuple[str, str]]) -> Counter[str]:
    """The bases from which the ids of these documents count, each with their number.

    `documents` are (id, source) as stored by a program that recorded no base: the base is what the
    source has before the id, an absolute path for a file outside of the repository. A document
    that came from no file, or has been given another id, says nothing.
    """
    found: Counter[str] = Counter()
    for doc_id, source in documents:
        if source == doc_id:
            found[ROOT] += 1
        elif source.endswith(f"/{doc_id}"):
            folder = source.removesuffix(f"/{doc_id}") or "/"
            if folder.startswith("/") or find_base_problem(folder) is None:
                found[folder] += 1
    return found


KEY = "origin"
"""The reserved key."""


class Origin(Record, frozen=True, omit_defaults=True):
    """`hash`: SHA-256 of the bytes, lower-case hex. `etag`, `media_type`: as a server said them.

    `own`: the keys of the metadata that the bytes themselves had, such as front matter; the others
    were given by a person.
    """

    hash: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    etag: str = ""
    media_type: str = ""
    own: tuple[str, ...] = ()


def read_origin(document: Document | DocumentHeader) -> Origin | None:
    """None for a document that was not made of bytes, or whose origin is not recorded any more."""
    return _parse(_values(document).get(KEY))


def is_origin(text: bytes) -> bool:
    """Whether a value of metadata, as JSON, is an origin."""
    return _parse(msgspec.json.decode(text)) is not None


def add_origin(metadata: Mapping[str, Any], origin: Origin) -> dict[str, Any]:
    return {**metadata, KEY: msgspec.to_builtins(origin)}


def read_visible_metadata(document: Document | DocumentHeader) -> dict[str, Any]:
    """The metadata without the origin: what clients see."""
    return remove_origin(_values(document))


def remove_origin(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata without an origin; a value of that name that is none stays."""
    return {key: value for key, value in metadata.items() if key != KEY or _parse(value) is None}


def read_given_metadata(document: Document) -> dict[str, Any]:
    """The part of the metadata that a person gave."""
    found = read_origin(document)
    own = found.own if found else ()
    return {key: value for key, value in read_visible_metadata(document).items() if key not in own}


def _values(document: Document | DocumentHeader) -> dict[str, Any]:
    return parse_metadata(document)


def _parse(value: Any) -> Origin | None:
    try:
        return msgspec.convert(value, type=Origin)
    except msgspec.ValidationError:
        return None
