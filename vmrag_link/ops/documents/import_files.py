"""`vmrag import`: files as documents."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from vmrag_link.documents import importing
from vmrag_link.documents.importing import ImportedDocument, Skipped
from vmrag_link.models import ChangeCounts, Record
from vmrag_link.ops.documents import names, writing
from vmrag_link.ops.documents.put import Existing, PutCounts, PutRequest, put
from vmrag_link.ops.documents.writing import Landed
from vmrag_link.workspace import Workspace


class ImportReport(Record, frozen=True):
    """Numbers of documents; `skipped` files with the reasons.

    `pending`: why the index did not follow yet.
    """

    collection: str
    created: bool
    changes: ChangeCounts
    unchanged: int
    skipped: tuple[Skipped, ...]
    branch: str | None
    pending: str = ""

    @classmethod
    def of(cls, done: Landed[PutCounts], skipped: tuple[Skipped, ...] = ()) -> ImportReport:
        counts = done.report
        return cls(
            counts.collection, counts.created, counts.changes, counts.unchanged, skipped, done.branch, done.pending
        )


def import_files(
    ws: Workspace, sources: Sequence[Path], collection: str, *, prune: bool = False, replace: bool = False
) -> ImportReport:
    """Store files as documents, one each.

    `prune` removes the documents of the collection whose file is gone. Raises `DocumentExists`
    where a document came from another file, unless `replace` is given: then nothing is stored, as
    with two files of one id. Raises as `put`, and `FileFailed`.
    """
    names.check(collection)
    writing.writable(ws)
    scan = importing.scan(sources)
    skipped = list(scan.skipped)
    documents: list[ImportedDocument] = []
    with ws.progress.task("reading", len(scan.files)) as task:
        for file in scan.files:
            read = importing.read(file, work_tree=ws.places.top)
            skipped.append(read) if isinstance(read, Skipped) else documents.append(read)
            task.advance()
    folders = [Path(os.path.abspath(source)) for source in sources if source.is_dir()] if prune else []  # noqa: PTH100
    existing: Existing = "replace" if replace else "replace_same_file"
    request = PutRequest(collection, documents, existing, create=True, skipped=skipped, prune=folders)
    return ImportReport.of(put(ws, request), tuple(skipped))
