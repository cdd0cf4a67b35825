"""Find the document that an imported file belongs to, also if the file was renamed.

A document of a collection keeps its id when its file is renamed. An import calls
`find_renamed_files` before it has a lock, and `place_documents` when it plans the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from vmrag_link.documents.import_base import OUTSIDE, ImportBase, escapes_folder
from vmrag_link.documents.importing import ImportedDocument
from vmrag_link.errors import UsageInvalid, quoted
from vmrag_link.git import listing
from vmrag_link.git.renames import find_renames
from vmrag_link.models import At, Record
from vmrag_link.paths import Places
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents.import_reports import RenamedDocument


class Placing(Record, frozen=True):
    """Imported documents with their ids."""

    documents: tuple[ImportedDocument, ...]
    """Each has the id of the stored document of its file, or a new id."""
    moved: frozenset[str]
    """Ids of stored documents with another file than before, which no longer exists."""
    renamed: tuple[RenamedDocument, ...]
    """Documents whose file was renamed, by git or by an equal text."""


def list_file_documents(ws: Workspace, at: At, collection: str, base: ImportBase) -> list[tuple[str, str]]:
    """Return the ids of the collection's documents that came from files, with their sources."""
    return base.list_sources(ws.engine.list_sources(at, collection))


def find_renamed_files(
    ws: Workspace, at: At, collection: str, base: ImportBase, documents: Sequence[ImportedDocument]
) -> dict[str, str]:
    """Return the former source of each renamed file, by its present source.

    git reports renames of files that it tracks. Another file was renamed if its text is equal to
    the text of exactly one missing file. Call this without a lock. Raises `GitFailed`.
    """
    stored = list_file_documents(ws, at, collection, base)
    ids = base.map_ids_by_source(stored)
    new = {document.source: document for document in documents if document.source not in ids}
    lost = {source: doc_id for doc_id, source in stored if new and is_lost(base, source)}
    if base.recorded != OUTSIDE:
        lost = {source: lost[source] for source in lost.keys() - listing.list_absent_paths(ws.places, lost)}
    if not lost or not new:
        return {}
    renames: dict[str, str] = {}
    if base.recorded != OUTSIDE:
        renames = {now: old for old, now in find_renames(ws.places, list(lost)).items() if now in new}
    unmatched = {source: doc_id for source, doc_id in lost.items() if source not in renames.values()}
    headers = ws.engine.read_headers(at, collection=collection, ids=unmatched.values())
    hashes = {header.doc_id: header.content_hash for header in headers}
    old_by_hash = _select_unique({source: hashes.get(doc_id, "") for source, doc_id in unmatched.items()})
    remaining = [document for source, document in new.items() if source not in renames and document.content.strip()]
    new_by_hash = _select_unique({document.source: document.content_hash for document in remaining})
    for text_hash in new_by_hash.keys() & old_by_hash.keys():
        renames[new_by_hash[text_hash]] = old_by_hash[text_hash]
    return renames


def place_documents(
    collection: str,
    documents: Sequence[ImportedDocument],
    base: ImportBase,
    stored: Sequence[tuple[str, str]],
    followed: Mapping[str, str],
    *,
    copy: bool = False,
) -> Placing:
    """Return the documents with their ids. Raises `UsageInvalid` if two files have the same id.

    `stored`: the result of `list_file_documents`. `followed`: the result of `find_renamed_files`.
    `copy`: True if the user gave the option `--copy`, for the hint.
    """
    ids_by_source = base.map_ids_by_source(stored)
    renamed = [
        RenamedDocument(ids_by_source[old], old, now)
        for now, old in followed.items()
        if old in ids_by_source and now not in ids_by_source
    ]
    ids = ids_by_source | {pair.now: pair.doc_id for pair in renamed}
    placed: dict[str, ImportedDocument] = {}
    for document in documents:
        doc_id = ids.get(document.source, document.doc_id)
        if doc_id in placed:
            raise _same_id_error(base, collection, placed[doc_id], document, copy=copy)
        placed[doc_id] = document if doc_id == document.doc_id else msgspec.structs.replace(document, doc_id=doc_id)
    changed = [(doc_id, old) for doc_id, old in stored if doc_id in placed and placed[doc_id].source != old]
    moved = frozenset(doc_id for doc_id, old in changed if is_lost(base, old))
    return Placing(tuple(placed.values()), moved, tuple(sorted(renamed, key=lambda pair: pair.doc_id)))


def list_missing_documents(
    places: Places, base: ImportBase, stored: Sequence[tuple[str, str]], folders: Sequence[Path]
) -> Iterator[str]:
    """Yield the documents whose file in one of the folders is missing.

    A file that git has is not missing if this work tree does not check it out. Raises `GitFailed`.
    """
    missing: dict[str, str] = {}
    for doc_id, source in stored:
        path = base.source_folder / source
        below = ".." not in path.parts and any(path.is_relative_to(folder) for folder in folders)
        if below and _is_missing(path):
            missing[doc_id] = source
    hidden = listing.list_absent_paths(places, set(missing.values())) if base.recorded != OUTSIDE else set()
    yield from (doc_id for doc_id, source in missing.items() if source not in hidden)


def _select_unique(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the sources by hash, without hashes that occur twice. `texts`: hashes by source."""
    sources_by_text: dict[str, list[str]] = {}
    for source, text in texts.items():
        sources_by_text.setdefault(text, []).append(source)
    return {text: sources[0] for text, sources in sources_by_text.items() if len(sources) == 1}


def _same_id_error(
    base: ImportBase, collection: str, one: ImportedDocument, other: ImportedDocument, *, copy: bool
) -> UsageInvalid:
    paths = [str(base.source_folder / document.source) for document in (one, other)]
    return UsageInvalid(
        f"{paths[0]} and {paths[1]} have the same document id {one.doc_id!r}.",
        hint=f"run 'vmrag import {quoted(paths[1])} --collection {collection}-2{' --copy' * copy}'",
        doc_id=one.doc_id,
        paths=paths,
    )


def is_lost(base: ImportBase, source: str) -> bool:
    """Return whether the file of a document is missing. False for a path that leaves the base."""
    return not escapes_folder(source) and _is_missing(base.source_folder / source)


def _is_missing(path: Path) -> bool:
    """Return whether a path is missing; False for a name that the system refuses."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False
    return False
