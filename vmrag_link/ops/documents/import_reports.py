"""What is reported of files and their documents: the records alone, because a commit reports them,
too, and seldom reads a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from vmrag_link.documents.importing import Skipped
from vmrag_link.models import ChangeCounts, Record

if TYPE_CHECKING:
    from vmrag_link.ops.documents.writing import Landed

Kind = Literal["added", "modified", "removed"]


class FileDifference(Record, frozen=True):
    """`path` below the root of the repository, or an absolute one.

    `added`: in an imported folder, and no document yet; `doc_id` is empty then. `removed`: gone
    since it was last seen here. `stale`: the document says what the file said before.
    """

    collection: str
    path: str
    doc_id: str
    kind: Kind
    stale: bool = False


class Renamed(Record, frozen=True):
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
    `ignored`: what git ignores and was taken all the same, because it was named.
    """

    collection: str
    created: bool
    changes: ChangeCounts
    unchanged: int
    skipped: tuple[Skipped, ...]
    branch: str | None
    pending: str = ""
    base: str = ""
    renamed: tuple[Renamed, ...] = ()
    gone: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    @classmethod
    def of(cls, done: Landed[PutCounts]) -> ImportReport:
        counts = done.report
        return cls(counts.collection, counts.created, counts.changes, counts.unchanged, (), done.branch, done.pending)


class KnownFilesReport(Record, frozen=True):
    """`collections`: those with documents from files, each as an import reports it.

    Not taken: `edited`, documents that were changed in the knowledge base, and of which it is not
    known which text is right; `private` files (see `leaving_out.private`); `new` ones in folders
    that were imported here. `commands` take these all the same. `elsewhere`: collections whose
    folder is not known here, or not there. `not_checked_out`: files that this work tree need not
    have; they count as unchanged.
    """

    collections: tuple[ImportReport, ...] = ()
    edited: tuple[FileDifference, ...] = ()
    private: tuple[FileDifference, ...] = ()
    new: tuple[FileDifference, ...] = ()
    commands: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    not_checked_out: tuple[str, ...] = ()

    @property
    def branch(self) -> str | None:
        """Where something was stored; None if nothing was."""
        return next((each.branch for each in self.collections if each.branch), None)

    @property
    def pending(self) -> str:
        """The last word on the index: a later write brings it up to date for all."""
        stored = [each.pending for each in self.collections if each.branch]
        return stored[-1] if stored else ""
