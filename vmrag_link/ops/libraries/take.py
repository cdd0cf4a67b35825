"""What a person or an agent names, taken into a library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vmrag_link.ops.documents.writing import Landed
from vmrag_link.ops.libraries import files
from vmrag_link.ops.libraries.converting import convert
from vmrag_link.ops.libraries.ingest import Ingested, ingest
from vmrag_link.ops.libraries.source import Source
from vmrag_link.workspace import Workspace


def file(ws: Workspace, library: str, path: str, *, metadata: Mapping[str, Any] | None = None) -> Landed[Ingested]:
    """Take the file that an agent names. Raises as `files.find`, `files.read` and `ingest`."""
    return _one(ws, library, files.read(ws, files.find(ws, path)), metadata)


def _one(ws: Workspace, library: str, source: Source, metadata: Mapping[str, Any] | None) -> Landed[Ingested]:
    done = ingest(ws, library, [source], convert, metadata=metadata)
    return done._replace(report=done.report[0])  # type: ignore[return-value, arg-type]  # of one
