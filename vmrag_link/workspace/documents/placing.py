"""Which document of a collection a file is: the one that came from it, under whatever path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from vmrag_link.documents.import_base import OUTSIDE, ImportBase, escapes_folder
from vmrag_link.documents.importing import ImportedDocument
from vmrag_link.errors import UsageInvalid, quoted
from vmrag_link.git import listing, versions
from vmrag_link.models import At, Record
from vmrag_link.paths import Places
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents.import_reports import RenamedDocument


class Placing(Record, frozen=True):
    """Documents under the ids that their files have already, if they have one.

    `moved`: those that were stored from a file elsewhere, which is gone; of the `renamed` among
    them it is known to be the same file.
    """

    documents: tuple[ImportedDocument, ...]
    moved: frozenset[str]
    renamed: tuple[RenamedDocument, ...]


def list_file_documents(ws: Workspace, at: At, collection: str, base: ImportBase) -> list[tuple[str, str]]:
    """The documents of the collection that came from files, with the sources of these files."""
    return base.list_sources(ws.engine.list_sources(at, collection))


def find_renamed_files(
    ws: Workspace, at: At, collection: str, base: ImportBase, documents: Sequence[ImportedDocument]
) -> dict[str, str]:
    """The former sources of files that were renamed, by the present ones.

    git is asked, and where it does not know, a file of the very text of exactly one that is gone
    is that one. Call it without a lock. Raises `GitFailed`.
    """
    there = list_file_documents(ws, at, collection, base)
    known = base.map_ids_by_source(there)
    new = {document.source: document for document in documents if document.source not in known}
    gone = {source: doc_id for doc_id, source in there if new and is_lost(base, source)}
    if base.recorded != OUTSIDE:
        gone = {source: gone[source] for source in gone.keys() - listing.list_absent_paths(ws.places, gone)}
    if not gone or not new:
        return {}
    found: dict[str, str] = {}
    if base.recorded != OUTSIDE:
        found = {now: old for old, now in versions.find_renames(ws.places, list(gone)).items() if now in new}
    left = {source: doc_id for source, doc_id in gone.items() if source not in found.values()}
    hashes = {
        header.doc_id: header.content_hash
        for header in ws.engine.read_headers(at, collection=collection, ids=left.values())
    }
    before = _unique({source: hashes.get(doc_id, "") for source, doc_id in left.items()})
    now = _unique(
        {source: each.content_hash for source, each in new.items() if source not in found and each.content.strip()}
    )
    return found | {now[text]: before[text] for text in now.keys() & before.keys()}


def place_documents(
    collection: str,
    documents: Sequence[ImportedDocument],
    base: ImportBase,
    there: Sequence[tuple[str, str]],
    followed: Mapping[str, str],
    *,
    copy: bool = False,
) -> Placing:
    """`there`: as `stored`; `followed`: as the function; `copy`: as the option of the command.

    Raises `UsageInvalid` for two files of one id.
    """
    known = base.map_ids_by_source(there)
    renamed = [
        RenamedDocument(known[old], old, now) for now, old in followed.items() if old in known and now not in known
    ]
    ids = known | {each.now: each.doc_id for each in renamed}
    placed: dict[str, ImportedDocument] = {}
    for document in documents:
        doc_id = ids.get(document.source, document.doc_id)
        if doc_id in placed:
            raise _one_id(base, collection, placed[doc_id], document, copy=copy)
        placed[doc_id] = document if doc_id == document.doc_id else msgspec.structs.replace(document, doc_id=doc_id)
    moved = (
        doc_id
        for doc_id, before in there
        if doc_id in placed and placed[doc_id].source != before and is_lost(base, before)
    )
    return Placing(tuple(placed.values()), frozenset(moved), tuple(sorted(renamed, key=lambda each: each.doc_id)))


def list_missing_documents(
    places: Places, base: ImportBase, there: Sequence[tuple[str, str]], folders: Sequence[Path]
) -> Iterator[str]:
    """Documents whose file lay in one of the folders and is there no more, unless git has it and
    this work tree need not. Raises `GitFailed`.
    """
    missing: dict[str, str] = {}
    for doc_id, source in there:
        path = base.origin / source
        below = ".." not in path.parts and any(path.is_relative_to(folder) for folder in folders)
        if below and _is_gone(path):
            missing[doc_id] = source
    hidden = listing.list_absent_paths(places, set(missing.values())) if base.recorded != OUTSIDE else set()
    yield from (doc_id for doc_id, source in missing.items() if source not in hidden)


def _unique(texts: Mapping[str, str]) -> dict[str, str]:
    """Sources by the hash of their text, where it has no other."""
    found: dict[str, list[str]] = {}
    for source, text in texts.items():
        found.setdefault(text, []).append(source)
    return {text: sources[0] for text, sources in found.items() if len(sources) == 1}


def _one_id(
    base: ImportBase, collection: str, one: ImportedDocument, other: ImportedDocument, *, copy: bool
) -> UsageInvalid:
    paths = [str(base.origin / each.source) for each in (one, other)]
    return UsageInvalid(
        f"{paths[0]} and {paths[1]} would both become the document {one.doc_id!r}.",
        hint=f"vmrag import {quoted(paths[1])} --collection {collection}-2{' --copy' * copy}",
        doc_id=one.doc_id,
        paths=paths,
    )


def is_lost(base: ImportBase, source: str) -> bool:
    """Whether a document's file is not there; not so of one that could lie anywhere."""
    return not escapes_folder(source) and _is_gone(base.origin / source)


def _is_gone(path: Path) -> bool:
    """Not so of a name, perhaps a stranger's, that the system refuses to look up."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False
    return False
