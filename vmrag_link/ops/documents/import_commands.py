"""What to type to make documents as their files are."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from vmrag_link.documents.import_base import ROOT, ImportBase, is_below, is_in
from vmrag_link.documents.seen_files import FileSelection
from vmrag_link.errors import quoted
from vmrag_link.ops.documents.import_reports import FileDifference
from vmrag_link.workspace import Workspace

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
