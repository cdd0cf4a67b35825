"""Errors of running code, and their resolutions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from vmrag_link.models import LONGEST_QUERY, LONGEST_TEXT, Document, Record
from vmrag_link.ops.stores import stores
from vmrag_link.toolsets.learning import evidence_records as evidence
from vmrag_link.toolsets.learning.evidence_records import Evidence, EvidenceItem, format_path, split_names
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents.writing import WriteResult

TYPE: evidence.EvidenceType = "runtime_error_resolution"

MAX_TRACE_CHARS = 20_000
"""Maximum number of stored characters of a stack trace. Its end is kept."""

_FRAMES = re.compile(
    r'File "(?P<python>[^"\n]{1,500})", line \d+'
    r"|\((?P<call>[^()\n:]{1,500}\.\w{1,10}):\d+(?::\d+)?\)"
    r"|^[ \t]*(?:at[ \t]+)?(?P<plain>[^\s:()]{1,500}\.\w{1,10}):\d+",
    re.MULTILINE,
)
"""A file in a frame of Python, Java, JavaScript, Go and most other languages."""


class ErrorRequest(Record, frozen=True):
    error_type: Annotated[str, Meta(description="type such as ValueError")]
    error_message: Annotated[str, Meta(description="message of the error", max_length=LONGEST_QUERY)]
    stacktrace: Annotated[str, Meta(description="stack trace", max_length=LONGEST_TEXT)] = ""
    affected_files: evidence.Names = ()
    resolution: Annotated[str, Meta(description="how the error was fixed", max_length=LONGEST_QUERY)] = ""
    resolution_verified: Annotated[bool, Meta(description="true if the fix was checked")] = False
    collection_name: evidence.StoredIn = stores.EVIDENCE


class ErrorReport(Record, frozen=True):
    """A stored error.

    `error_id` equals `evidence_id`. Default of `affected_files`: from the stack trace.
    """

    evidence_id: str
    error_id: str
    evidence_type: str
    score: float
    affected_files: list[str]


def log_error(ws: Workspace, request: ErrorRequest) -> WriteResult[ErrorReport]:
    """Store an error. Raises the errors of `evidence_records.store_records`."""
    doc_id = evidence.create_id()
    weight = evidence.weigh_resolution(request.resolution, verified=request.resolution_verified)
    evidence_of_error = Evidence((EvidenceItem(doc_id, TYPE, weight),))
    trace = request.stacktrace[-MAX_TRACE_CHARS:]
    files = split_names(request.affected_files) or files_of(trace, ws.places.top)
    text = "\n\n".join(filter(None, (f"{request.error_type}: {request.error_message}", request.resolution)))

    def build_rows(collection: str) -> list[Document]:
        row = evidence.build_record(
            collection,
            doc_id,
            text,
            TYPE,
            evidence_of_error,
            error_type=request.error_type,
            error_message=request.error_message,
            stacktrace=trace,
            affected_files=files,
            resolution=request.resolution,
            resolution_verified=request.resolution_verified,
        )
        return [row]

    report = ErrorReport(doc_id, doc_id, TYPE, evidence_of_error.score, files)
    return evidence.store_records(ws, request.collection_name, build_rows, report, "write down an error")


def files_of(stacktrace: str, top: Path) -> list[str]:
    """Return the distinct files of a stack trace.

    Files of the work tree are relative to its top.
    """
    names = (next(filter(None, match.groups())) for match in _FRAMES.finditer(stacktrace))
    return [*dict.fromkeys(format_path(name, top) for name in names if not name.startswith("<"))]
