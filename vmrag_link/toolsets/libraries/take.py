"""One file or page that an agent names, taken into a library."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from vmrag_link.errors import quoted
from vmrag_link.git.ignored import refuse_ignored
from vmrag_link.ops.documents import named_files as files
from vmrag_link.ops.documents import writing
from vmrag_link.ops.documents.derived_files import DerivedFiles
from vmrag_link.ops.documents.named_files import Source
from vmrag_link.ops.documents.writing import Landed
from vmrag_link.toolsets.libraries import library, pages
from vmrag_link.toolsets.libraries.converting import converting
from vmrag_link.toolsets.libraries.ingest import Ingested, check, held, ingest
from vmrag_link.toolsets.libraries.page_hosts import Admit
from vmrag_link.workspace import Workspace


def file(
    ws: Workspace,
    name: str,
    path: str,
    *,
    agreed: Collection[str] = (),
    metadata: Mapping[str, Any] | None = None,
) -> Landed[Ingested]:
    """Take a file into the library of this name. `agreed`: as `refuse_ignored`.

    Raises `AccessDenied` for one that git ignores, `SourceReadOnly` for one that is a document of
    a source, and as `files.find`, `files.read` and `ingest`.
    """
    found = files.find(ws, path)
    own = f"vmrag import {quoted(path)} --library {quoted(name)}"
    hint = f"Only the user can take it all the same: {own}"
    refuse_ignored(ws.places, found, hint=hint, agreed=agreed, ask=True)
    if derived := DerivedFiles(ws).refusal([found.path]):
        raise derived
    return _one(ws, name, files.read(ws, found), metadata)


def page(
    ws: Workspace, name: str, url: str, *, admit: Admit, metadata: Mapping[str, Any] | None = None
) -> Landed[Ingested]:
    """Take the page at a URL into the library of this name; nobody is asked for one that cannot be
    stored. `admit`: as of `page_hosts`.

    Raises as `pages.read` and `ingest`.
    """
    check(name, metadata)
    key = pages.key_of(url)
    at = writing.place(writing.writable(ws))
    library.find(ws, at, name)
    return _one(ws, name, pages.read(ws, url, held(ws, at, name, key), admit), metadata)


def _one(ws: Workspace, name: str, source: Source, metadata: Mapping[str, Any] | None) -> Landed[Ingested]:
    with converting(ws) as convert:
        done = ingest(ws, name, [source], convert, metadata=metadata)
    return Landed(done.report[0], done.branch, done.pending, done.chunks)
