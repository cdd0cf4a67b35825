"""Code files as documents of `codebase_v1`, to which chats are linked.

A document is a file of the work tree, under its path. Only files that git tracks are stored,
because the knowledge base is pushed.
"""

from __future__ import annotations

import os.path
import stat
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from vmrag_link import terminal_text
from vmrag_link.documents.import_base import find_id_problem
from vmrag_link.documents.importing import SkippedFile
from vmrag_link.errors import UsageInvalid, quoted
from vmrag_link.git import listing
from vmrag_link.models import CODEBASE, At, ChangeCounts, Document, Record, content_hash, parse_metadata
from vmrag_link.ops.stores import stores
from vmrag_link.ops.stores.stores import build_document
from vmrag_link.paths import PIN_NAME
from vmrag_link.toolsets.learning.chats import FILE, file_of
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import named_files as files
from vmrag_link.workspace.documents import writing
from vmrag_link.workspace.documents.writing import Planned, WriteResult


class CodeIndexRequest(Record, frozen=True):
    """The files to index.

    `paths` are absolute paths of files and folders; empty for all tracked files.
    """

    paths: Sequence[Path]
    collection_name: str = CODEBASE


class CodeIndexReport(Record, frozen=True):
    """Numbers of documents, and `skipped` files with reasons."""

    collection_name: str
    changes: ChangeCounts
    unchanged: int
    skipped: list[SkippedFile]


def index_code(ws: Workspace, request: CodeIndexRequest) -> WriteResult[CodeIndexReport]:
    """Store the tracked files at or below the paths, and remove documents of files no longer
    tracked.

    A document keeps its chats. Raises `UsageInvalid` for an unknown path and for a collection of
    this machine alone, `FileFailed` for an unreadable file, and the errors of
    `stores.find_or_define`, `stores.prepare_write` and `write_rows`.
    """
    stores.require_versioned(ws, request.collection_name)
    scope = {path: _relative_scope(ws, path) for path in request.paths}
    tracked = [name for name in listing.list_tracked_files(ws.places) if _is_in_scope(name, scope.values())]
    texts, skipped = _read_texts(ws, [name for name in tracked if name != PIN_NAME])

    def plan_rows(at: At) -> Planned[CodeIndexReport]:
        stored = {header.doc_id: header for header in ws.engine.read_headers(at, collection=request.collection_name)}
        indexed = [name for name, document in stored.items() if file_of(document) == name]
        for given, path in scope.items():
            if not any(_is_in_scope(name, [path]) for name in (*tracked, *indexed)):
                raise _build_unknown_path(given)
        gone = [name for name in indexed if name not in tracked and _is_in_scope(name, scope.values())]
        changed = [
            name
            for name, text in texts.items()
            if name not in indexed or stored[name].content_hash != content_hash(text)
        ]
        added = sum(name not in stored for name in changed)
        report = CodeIndexReport(
            collection_name=request.collection_name,
            changes=ChangeCounts(added, len(changed) - added, len(gone)),
            unchanged=len(texts) - len(changed),
            skipped=skipped,
        )
        if not report.changes.total:
            return Planned(None, report)
        chunking = stores.read_chunking(ws)
        collection, new = stores.find_or_define(ws, at, request.collection_name, chunking=chunking)
        before = _read_documents(ws, at, collection.name, [name for name in changed if name in stored])
        rows = [_build_row(collection.name, name, texts[name], before.get(name)) for name in changed]
        write = stores.prepare_write(ws, [stores.CollectionPut(collection, new, rows)])
        removed = [(collection.name, name) for name in gone]
        return Planned(msgspec.structs.replace(write, remove_documents=removed), report)

    return writing.write_rows(ws, plan_rows, "index code")


def _relative_scope(ws: Workspace, path: Path) -> str:
    """Return the path in git's form; empty for the whole work tree. Raises `UsageInvalid`."""
    real = files.resolve_file(path).path
    top = os.path.realpath(ws.places.top)
    if not real.is_relative_to(top):
        raise UsageInvalid(
            f"{terminal_text.escape_line(str(path))} is not in the working tree {top}.",
            hint="name files and folders of the repository, or add --all",
            path=str(path),
        )
    return "" if real == Path(top) else real.relative_to(top).as_posix()


def _is_in_scope(name: str, scope: Collection[str]) -> bool:
    """Return whether a path is in a scope. Without a scope, every path is."""
    return not scope or any(not path or name == path or name.startswith(f"{path}/") for path in scope)


def _build_unknown_path(path: Path) -> UsageInvalid:
    shown = terminal_text.escape_line(str(path))
    return UsageInvalid(
        f"git tracks no file at {shown}, and none was indexed.",
        hint=f"run 'git add {quoted(path)}' if it exists",
        path=shown,
    )


def _read_texts(ws: Workspace, names: Sequence[str]) -> tuple[dict[str, str], list[SkippedFile]]:
    """Return the texts by path, and the files without a text. Raises the errors of `read_file`."""
    texts: dict[str, str] = {}
    skipped = []
    with ws.progress.task("reading", len(names)) as task:
        for name in names:
            path = ws.places.top / name
            problem = _find_problem(ws, name, path)
            text = "" if problem else _decode_text(files.read_file(ws, files.resolve_file(path)).data)
            if text:
                texts[name] = text
            else:
                shown_name = terminal_text.escape_line(name) if problem else name
                skipped.append(SkippedFile(shown_name, problem or "has no text"))
            task.advance()
    return texts, skipped


def _find_problem(ws: Workspace, name: str, path: Path) -> str | None:
    """Return the reason why a file is left out."""
    id_problem = find_id_problem(name)
    if id_problem:
        return f"its path {id_problem}"
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return "is not in the working tree"
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    if files.resolve_file(path).path != Path(os.path.realpath(ws.places.top), name):
        return "is behind a link"  # as in git: it may be outside this repository
    max_bytes = ws.config.ingest.max_bytes
    return f"has more than {max_bytes:,} bytes" if status.st_size > max_bytes else None


def _decode_text(data: bytes) -> str:
    """Return a file's text; empty for a file that is not a text."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return ""
    return "" if "\0" in text or not text.strip() else text


def _read_documents(ws: Workspace, at: At, collection: str, names: Sequence[str]) -> dict[str, Document]:
    documents = ws.engine.read_documents(at, collection=collection, ids=names) if names else ()
    return {document.doc_id: document for document in documents}


def _build_row(collection: str, name: str, text: str, before: Document | None) -> Document:
    metadata = parse_metadata(before) if before else {}
    row = build_document(collection, name, text, metadata | {FILE: name}, before=before)
    return msgspec.structs.replace(row, title=name)
