"""What is reported of files and their documents, and what to type to make documents as their files
are: apart from reading files, because a commit reports them, too, and seldom reads one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar

from vmrag_link.documents.import_base import ROOT, ImportBase, is_below, is_in
from vmrag_link.documents.importing import Skipped
from vmrag_link.documents.seen_files import FileSelection
from vmrag_link.errors import quoted
from vmrag_link.models import ChangeCounts, Record
from vmrag_link.workspace import Workspace

if TYPE_CHECKING:
    from vmrag_link.ops.documents.writing import WriteResult


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
    `ignored`: what git ignores and was taken all the same, because it was named. `hint`: what to do
    with skipped files that git tracks; empty for none.
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
    hint: str = ""

    @classmethod
    def of(cls, done: WriteResult[PutCounts]) -> ImportReport:
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


T = TypeVar("T")

_MOST = 100
"""Files that a command names one by one."""


def of_changes(
    ws: Workspace, collection: str, changes: Sequence[FileDifference], folders: Mapping[str, FileSelection]
) -> Iterator[str]:
    """What to type to make a collection's documents as the files are."""
    homes = {each: next((folder for folder in folders if is_in(each.path, folder)), None) for each in changes}
    into = ["--collection", quoted(collection)]
    for selection in dict.fromkeys(folders.values()):
        inside = {each: home for each, home in homes.items() if home is not None and folders[home] == selection}
        prune = ["--prune"] if any(each.kind == "removed" for each in inside) else []
        if inside:
            yield _typed(ws, "import", sorted({*inside.values()}), [*into, *_options(selection), *prune])
    yield from of_files(
        ws, collection, [each.path for each, home in homes.items() if home is None and each.kind != "removed"]
    )
    gone = [each for each, home in homes.items() if home is None and each.kind == "removed"]
    for some in _batches(gone):
        yield " ".join(["vmrag", "rm", *(quoted(f"{collection}/{each.doc_id}") for each in some)])


def of_moved_folders(
    ws: Workspace,
    base: ImportBase,
    collection: str,
    changes: Sequence[FileDifference],
    folders: Mapping[str, FileSelection],
) -> tuple[list[str], set[FileDifference]]:
    """What to type where whole folders are gone, and their files somewhere else, as git knows; and
    which changes that takes in.
    """
    if not folders:
        return [], set()
    from vmrag_link.git import versions

    gone = {each.path: each for each in changes if each.kind == "removed" and any(is_in(each.path, f) for f in folders)}
    there = versions.renamed(ws.places, list(gone)) if gone else {}
    followed: set[FileDifference] = set()
    commands = []
    for folder, selection in folders.items():
        pairs = {old: new for old, new in there.items() if is_in(old, folder)}
        # Of a folder that was renamed, each file keeps its path in it.
        tops = {new.removesuffix(old.removeprefix(folder)) for old, new in pairs.items()}
        whole = len(tops) == 1 and all(
            f"{top}{old.removeprefix(folder)}" == new for top in tops for old, new in pairs.items()
        )
        named = sorted(tops if whole else pairs.values())
        if pairs:
            inside = all(base.contains(base.top / each) for each in named)
            wider = [] if inside else ["--base", _from_here(ws, ROOT)]
            commands.append(
                _typed(ws, "import", named, ["--collection", quoted(collection), *wider, *_options(selection)])
            )
            followed |= {gone[old] for old in pairs}
    return commands, followed


def path_from_here(ws: Workspace, path: str) -> str:
    """Return a path below the root, or an absolute one, as one word for `command_here`."""
    return _from_here(ws, path)


def command_here(ws: Workspace, command: str, words: Sequence[str]) -> str:
    """Return a command as it can be typed in the current directory."""
    return _typed(ws, command, (), words)


def of_all(ws: Workspace) -> str:
    """The command that takes in every file that is newer than its document."""
    return _typed(ws, "import", (), ())


def of_files(ws: Workspace, collection: str, paths: Sequence[str]) -> Iterator[str]:
    """The commands that import these files and no others."""
    for some in _batches(sorted(paths)):
        yield _typed(ws, "import", some, ["--collection", quoted(collection)])


def _batches(everything: Sequence[T]) -> Iterator[Sequence[T]]:
    """As many as a command names."""
    for start in range(0, len(everything), _MOST):
        yield everything[start : start + _MOST]


def _options(selection: FileSelection) -> Iterator[str]:
    for pattern in selection.exclude:
        yield from ("--exclude", quoted(pattern))
    if selection.include_ignored:
        yield "--include-ignored"
    if selection.include_generated:
        yield "--include-generated"


def _typed(ws: Workspace, command: str, paths: Sequence[str], more: Sequence[str]) -> str:
    """The command as it can be typed in the current directory."""
    top, here = os.path.realpath(ws.places.top), os.path.realpath(os.curdir)
    away = not is_below(here, top)
    named = [_from_here(ws, each) for each in paths]
    return " ".join(["vmrag", *(["-C", quoted(top)] if away else []), command, *named, *more])


def _from_here(ws: Workspace, path: str) -> str:
    """A path below the root, as one word of a command that `_typed` gives."""
    top, here = os.path.realpath(ws.places.top), os.path.realpath(os.curdir)
    return quoted(os.path.relpath(os.path.join(top, path), here if is_below(here, top) else top))  # noqa: PTH118
