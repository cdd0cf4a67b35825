"""What an import reports, and commands for hints about files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vmrag_link.documents.import_base import is_below
from vmrag_link.documents.importing import SkippedFile
from vmrag_link.errors import quoted
from vmrag_link.models import ChangeCounts, Record
from vmrag_link.workspace import Workspace

if TYPE_CHECKING:
    from vmrag_link.workspace.documents.writing import WriteResult


class RenamedDocument(Record, frozen=True):
    """A document whose file was renamed: sources, as `ImportBase.source` forms them."""

    doc_id: str
    before: str
    now: str


class PutCounts(Record, frozen=True):
    """Numbers of documents; `created`: whether the collection is new."""

    collection: str
    created: bool
    changes: ChangeCounts
    unchanged: int


class ImportReport(Record, frozen=True):
    """Numbers of documents; `skipped` files with the reasons.

    `pending`: why the index did not follow yet. `base`: from where ids count, as a path below the
    root of the repository, `..` for a folder outside of it; empty for what came from no file.
    `renamed`: documents that followed their files. `gone`: those whose file is gone from a folder
    that was named, unless they were removed. `left_out`: those whose file is left out now.
    `ignored`: what git ignores and was taken all the same, because it was named. `hint`: what to do
    with skipped files that git tracks; empty for none.
    """

    collection: str
    created: bool
    changes: ChangeCounts
    unchanged: int
    skipped: tuple[SkippedFile, ...]
    branch: str | None
    pending: str = ""
    base: str = ""
    renamed: tuple[RenamedDocument, ...] = ()
    gone: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    hint: str = ""

    @classmethod
    def from_result(cls, done: WriteResult[PutCounts]) -> ImportReport:
        counts = done.report
        return cls(counts.collection, counts.created, counts.changes, counts.unchanged, (), done.branch, done.pending)


def command_here(ws: Workspace, command: str, words: Sequence[str]) -> str:
    """Return a command as it can be typed in the current directory."""
    top, here = os.path.realpath(ws.places.top), os.path.realpath(os.curdir)
    away = [] if is_below(here, top) else ["-C", quoted(top)]
    return " ".join(["vmrag", *away, command, *words])


def path_from_here(ws: Workspace, path: str) -> str:
    """Return a path below the root, or an absolute one, as one word for `command_here`."""
    top, here = os.path.realpath(ws.places.top), os.path.realpath(os.curdir)
    return quoted(os.path.relpath(os.path.join(top, path), here if is_below(here, top) else top))  # noqa: PTH118
