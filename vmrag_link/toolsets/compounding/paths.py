"""How a project's files are named to people, and what people name."""

from __future__ import annotations

import os
import posixpath

from vmrag_link import terminal_text
from vmrag_link.errors import DocumentMissing, UsageInvalid
from vmrag_link.models import Record
from vmrag_link.toolsets.compounding.folder import SUFFIX
from vmrag_link.toolsets.compounding.project import DocsProject


class FilePlace(Record, frozen=True):
    """A file by its path in the project's folder of documents, or in that of `external` ones."""

    doc_id: str
    external: bool


def shown(folder: str, doc_id: str) -> str:
    return f"./{folder}/{doc_id}"


def find(project: DocsProject, path: str) -> FilePlace:
    """The file that is meant: `./FOLDER/FILE`, relative to the documents, or absolute inside.

    Raises `UsageInvalid` for a path that leads elsewhere, `DocumentMissing` where no file is.
    """
    place = _place(project, path)
    folder = project.external_folder if place.external else project.docs_folder
    if not os.path.lexists(folder / place.doc_id):
        raise DocumentMissing(
            f"There is no file {shown(project.external if place.external else project.docs, place.doc_id)}.",
            hint="Take a path that semantic_search shows, or write the file first.",
            path=place.doc_id,
        )
    return place


def _place(project: DocsProject, path: str) -> FilePlace:
    if "\0" in path or not path.endswith(SUFFIX):
        raise _refusal(project, path)
    within = posixpath.normpath(os.path.relpath(path, project.root) if path.startswith("/") else path)
    if within == ".." or within.startswith(("../", "/")):
        raise _refusal(project, path)
    for folder, external in ((project.docs, False), (project.external, True)):
        if folder and within.startswith(f"{folder}/"):
            return FilePlace(within.removeprefix(f"{folder}/"), external)
    if path.startswith("/"):
        raise _refusal(project, path)
    return FilePlace(within, external=False)


def _refusal(project: DocsProject, path: str) -> UsageInvalid:
    name = terminal_text.one_line(repr(path[:200]))
    return UsageInvalid(
        f"{name} is no Markdown file below {shown(project.docs, '')}",
        hint=f"For example: {shown(project.docs, 'problems/what-went-wrong.md')}",
        parameter="path",
        value=path[:200],
    )
