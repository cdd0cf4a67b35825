"""The lists of documents that the tool `read` shows for a folder or a collection.

A list contains the files that git tracks and the documents of the knowledge base, one on each line.
Only the lines of the requested page have titles, because titles of files are read from the files.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from vmrag_link import terminal_text
from vmrag_link.errors import NotInitialized, PinMissing
from vmrag_link.git import plumbing
from vmrag_link.git.raw_changes import MOST_FILES
from vmrag_link.git.readonly import list_fields
from vmrag_link.toolsets.essential.texts import Text, find_current_origin
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.history import named_places
from vmrag_link.workspace.history.named_places import NamedPlace, PlaceNames
from vmrag_link.workspace.source_tree import Key

MAX_TITLES = 1_000
"""Maximum number of titles on a page, which has fewer lines."""


def is_folder(name: str) -> bool:
    """Return whether a name can only mean a folder or a collection."""
    return name.endswith("/") or name == "."


def list_below(ws: Workspace, name: str, ref: str, first: int) -> Text | None:
    """Return the documents below a folder or in a collection, one on each line; None for neither.

    These are tracked files, documents of sources, notes and stored documents, here or at a git ref.
    `docs/` means the folder if a collection has the same name, and `docs` means both.
    The lines from `first` on have titles. Raises `GitReferenceMissing`.
    """
    folder = posixpath.normpath(name).lstrip("/") or "."
    if folder == ".." or folder.startswith("../"):
        return None  # git fails for it
    place = _look_up_place(ws, ref)
    commit = place.code if ref else ""
    names = PlaceNames(ws, place)
    headers = {header.key: header for header in names.rows.read_headers(names.places[0])}
    paths = {key: file.path for key, file in place.tree.files.items()} if place.tree else {}
    tracked = list(_tracked_files(ws, folder, commit))
    only_folder = bool(tracked) and name.endswith("/")
    below = [key for key in headers if _is_below(folder, key, paths.get(key, ""), only_folder=only_folder)]
    stored = names.shown_names(key for key in below if key not in paths)
    keys_by_name: dict[str, Key | None] = dict.fromkeys(tracked)
    """Documents by the name in the list; None for a file that is not a document."""
    keys_by_name |= {paths.get(key) or stored[key]: key for key in below}
    if not keys_by_name:
        return None
    shown_names = sorted(keys_by_name)
    titles = {stored[key]: headers[key].title for key in stored}
    on_page = shown_names[max(first, 1) - 1 :][:MAX_TITLES]
    titles |= _read_titles(place, {name: key for name in on_page if (key := keys_by_name[name]) and key in paths})
    lines = [_format_row(name, titles.get(name, "")) for name in shown_names]
    return Text(name=f"{folder}/", content="\n".join(lines), above=0, origin=find_current_origin(ws), commit=commit)


def _look_up_place(ws: Workspace, ref: str) -> NamedPlace:
    try:
        return named_places.find_named_place(ws, ref) if ref else named_places.find_working_place(ws)
    except (NotInitialized, PinMissing):  # git tracks files anyway
        return NamedPlace(None, code=plumbing.resolve_commit(ws.places, ref) if ref else "")


def _is_below(folder: str, key: Key, path: str, *, only_folder: bool) -> bool:
    """Return whether a document is in a folder, by its path, or in a collection, by its key."""
    if folder == "." or path.startswith(f"{folder}/"):
        return True
    return not only_folder and f"{'/'.join(key)}/".startswith(f"{folder}/")


def _tracked_files(ws: Workspace, folder: str, commit: str) -> Iterable[str]:
    """Return the files of a folder that git tracks, in a commit or in the work tree."""
    listing = ("ls-tree", "-r", "--name-only", "--full-tree", commit) if commit else ("ls-files",)
    names = list_fields(ws.places, "--literal-pathspecs", *listing, "-z", "--", folder, limit=MOST_FILES)
    paths = {os.fsdecode(name) for name in names} - {folder}
    return paths if commit else (path for path in paths if (ws.places.top / path).is_file())


def _read_titles(place: NamedPlace, keys: Mapping[str, Key]) -> dict[str, str]:
    """Return the titles of files by their names in the list."""
    documents = place.tree.read_documents(keys.values()) if place.tree else {}
    return {name: documents[key].title for name, key in keys.items() if key in documents}


def _format_row(name: str, title: str) -> str:
    """Return a line of the list. A title that repeats the name is left out."""
    path = PurePosixPath(name)
    return terminal_text.escape_line(name if title in ("", path.name, path.stem) else f"{name} · {title}")
