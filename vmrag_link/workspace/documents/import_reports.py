"""Reports of imports, and commands for hints that work in the user's current directory."""

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
    """A document whose file was renamed. The paths are relative to the import base."""

    doc_id: str
    before: str
    now: str


class PutCounts(Record, frozen=True):
    """Numbers of stored documents."""

    collection: str
    created: bool
    """True if the collection is new."""
    changes: ChangeCounts
    unchanged: int


class ImportReport(Record, frozen=True):
    """Numbers of imported documents."""

    collection: str
    created: bool
    changes: ChangeCounts
    unchanged: int
    skipped: tuple[SkippedFile, ...]
    """Skipped files with the reasons."""
    branch: str | None
    pending: str = ""
    """Why the index was not updated; empty if it was."""
    base: str = ""
    """The folder that ids are relative to, from the top of the repository.

    `..` means a folder outside of it. Empty for documents without files.
    """
    renamed: tuple[RenamedDocument, ...] = ()
    """Documents that followed renamed files."""
    gone: tuple[str, ...] = ()
    """Documents whose file is missing in a named folder, unless they were removed."""
    left_out: tuple[str, ...] = ()
    """Documents whose file is now left out."""
    ignored: tuple[str, ...] = ()
    """Files that git ignores, and that were imported because the user named them."""
    hint: str = ""
    """A command for skipped files that git tracks; empty if there are none."""

    @classmethod
    def from_result(cls, result: WriteResult[PutCounts]) -> ImportReport:
        """Return the report for stored documents, without facts about files."""
        counts = result.report
        return cls(
            collection=counts.collection,
            created=counts.created,
            changes=counts.changes,
            unchanged=counts.unchanged,
            skipped=(),
            branch=result.branch,
            pending=result.pending,
        )


def command_here(ws: Workspace, command: str, words: Sequence[str]) -> str:
    """Return a command of vmrag, with `-C` if the current directory is outside of the work tree."""
    top = os.path.realpath(ws.places.top)
    options = [] if is_below(os.path.realpath(os.curdir), top) else ["-C", quoted(top)]
    return " ".join(["vmrag", *options, command, *words])


def path_from_here(ws: Workspace, path: str) -> str:
    """Return a path from the top, or an absolute path, as an argument for `command_here`."""
    top = os.path.realpath(ws.places.top)
    current = os.path.realpath(os.curdir)
    start = current if is_below(current, top) else top
    return quoted(os.path.relpath(os.path.join(top, path), start))  # noqa: PTH118
