"""The import base of a collection: the folder to which the ids of imported documents are relative.

It is recorded with the collection. So a file becomes the same document on every machine, for every
user, and from the file or any folder above it. The base only determines ids, and the user's
arguments determine which files are read.
"""

from __future__ import annotations

import os
import unicodedata
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from vmrag_link.models import Record

MAX_ID = 255
"""Maximum number of characters of an id."""


def find_id_problem(text: str) -> str | None:
    """Return why a text cannot be part of an id, to follow a subject; None if it can."""
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
"""The record of a folder outside of the repository. Such a folder has another path on each machine.
"""


class ImportBase(Record, frozen=True):
    """The import base of a collection on this machine.

    `folder`, `top` and all paths that the methods take have no symbolic links (see `locate_path`).
    """

    recorded: str
    """The record in the collection: `ROOT`, the POSIX path of a folder below the root, or
    `OUTSIDE`.
    """

    folder: Path
    top: Path
    """The root of the work tree."""

    @property
    def source_folder(self) -> Path:
        """The folder to which sources are relative: the root, or a base outside of it.

        So a source is the same on every machine.
        """
        return self.folder if self.recorded == OUTSIDE else self.top

    @property
    def prefix(self) -> str:
        """The part of a source before the id of a document that got its id from this base."""
        return "" if self.recorded in (ROOT, OUTSIDE) else f"{self.recorded}/"

    def contains(self, path: Path) -> bool:
        return path.is_relative_to(self.folder)

    def make_doc_id(self, path: Path) -> str:
        """Return the id of a new document from a file in the base."""
        return path.relative_to(self.folder).as_posix()

    def make_source(self, path: Path) -> str:
        """Return `Document.source` for a file in the base."""
        return path.relative_to(self.source_folder).as_posix()

    def list_sources(self, documents: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return (id, source) of these documents in the current form, without documents that came
        from no file.

        Earlier versions stored the absolute path of a file outside of the repository, and a path
        through a symbolic link as it was typed. A source that cannot be converted stays the same.
        An absolute path is not looked up, because it is untrusted.
        """
        sources: list[tuple[str, str]] = []
        real_folders: dict[str, str | None] = {}
        for doc_id, source in documents:
            folder, _, name = source.rpartition("/")
            if not source:
                continue
            if source.startswith("/"):
                sources.append((doc_id, self._convert_absolute(doc_id, source)))
            elif self.recorded == OUTSIDE or ".." in source.split("/"):
                sources.append((doc_id, source))
            else:
                if folder not in real_folders:
                    real_folders[folder] = self._resolve_folder(folder)
                real = real_folders[folder]
                sources.append((doc_id, source if real is None else f"{real}{name}"))
        return sources

    def _convert_absolute(self, doc_id: str, stored: str) -> str:
        if self.recorded == OUTSIDE:
            return doc_id if stored.endswith(f"/{doc_id}") else stored
        return stored.removeprefix(f"{self.top}/")

    def _resolve_folder(self, folder: str) -> str | None:
        """Return the beginning of sources in this folder; None if a link leaves the repository."""
        real = Path(os.path.realpath(self.top / folder))
        if not real.is_relative_to(self.top):
            return None
        return "" if real == self.top else f"{real.relative_to(self.top).as_posix()}/"

    def map_ids_by_source(self, documents: Iterable[tuple[str, str]]) -> dict[str, str]:
        """Return the id of each file that is already a document, from the result of `list_sources`.

        If earlier versions stored a file under several ids, the result is the id that it would get
        now, or else the longest.
        """
        ids: dict[str, str] = {}
        for doc_id, source in documents:
            other = ids.setdefault(source, doc_id)
            if other != doc_id:
                expected = os.path.relpath(self.source_folder / source, self.folder)
                ids[source] = max(other, doc_id, key=lambda one: (one == expected, len(one), one))
        return ids


def locate_path(path: Path) -> Path:
    """Return the absolute path of a file or folder, which is the same for all symbolic links to it.

    A link to a file keeps its own name, because it is a separate document.
    """
    if path.is_dir():
        return Path(os.path.realpath(path))
    return Path(os.path.realpath(path.parent), path.name)


def make_base(folder: Path, top: Path) -> ImportBase:
    """Return the base for a folder. Both paths are results of `locate_path`."""
    inside = folder.is_relative_to(top)
    return ImportBase(folder.relative_to(top).as_posix() if inside else OUTSIDE, folder, top)


def restore_base(recorded: str, top: Path) -> ImportBase:
    """Return the base with this record, inside the repository. The record has no
    `find_base_problem`.
    """
    return ImportBase(recorded, top / recorded, top)


def find_base_problem(recorded: str) -> str | None:
    """Return why a record cannot be used as a base, to follow a subject; None if it can.

    The record is untrusted.
    """
    if recorded in (ROOT, OUTSIDE):
        return None
    if problem := find_id_problem(recorded):
        return problem
    if recorded.startswith("/"):
        return "is absolute"
    parts = recorded.split("/")
    if ".." in parts:
        return "leaves the repository"
    return "is not a normalised path" if "" in parts or "." in parts else None


def escapes_folder(stored: str) -> bool:
    """Return whether an untrusted source or id leaves the folder to which it is relative."""
    return stored.startswith("/") or ".." in stored.split("/")


def is_below(path: str, folder: str) -> bool:
    """Return whether a path is this folder, or below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def count_bases(documents: Iterable[tuple[str, str]]) -> Counter[str]:
    """Return the bases from which the ids of these documents were formed, each with a number of
    documents.

    `documents`: (id, source) as stored by a version that recorded no base. The base is the part of
    the source before the id, or an absolute path for a file outside of the repository. A document
    that came from no file, or that has another id, is ignored.
    """
    bases: Counter[str] = Counter()
    for doc_id, source in documents:
        if source == doc_id:
            bases[ROOT] += 1
        elif source.endswith(f"/{doc_id}"):
            folder = source.removesuffix(f"/{doc_id}") or "/"
            if folder.startswith("/") or find_base_problem(folder) is None:
                bases[folder] += 1
    return bases
