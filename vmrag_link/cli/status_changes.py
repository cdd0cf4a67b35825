"""How `vmrag status` shows what is not committed, not imported and not pushed."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from vmrag_link.cli import output
from vmrag_link.cli.base import title_beside
from vmrag_link.errors import enumerated, plural
from vmrag_link.ops.status.changes import PendingChanges, Unpushed

if TYPE_CHECKING:
    from vmrag_link.ops.documents.file_changes import FileChanges

SHOWN = 20
"""Lines of each list."""

_COLOURS = {"added": "green", "modified": "yellow", "removed": "red"}
_OF_COLLECTION = {"added": "a new collection", "modified": "the collection's settings", "removed": "the collection"}
_INDENT = "    "
_WIDTH = max(map(len, _COLOURS)) + 3


class _Line(NamedTuple):
    """`group`: what must be seen of, however many others there are."""

    kind: str
    group: Hashable
    text: str


def unpushed(found: Unpushed) -> str:
    """For the line of the remote."""
    if found.revisions is None:
        return f"{found.remote}: {found.problem}"
    if not found.revisions:
        return f"{found.remote}, nothing to push"
    return f"{found.remote}, {plural(found.revisions, 'revision')} not pushed: vmrag push"


def change_lines(changes: PendingChanges, most: int | None) -> Iterator[str]:
    """The lists, with what to type; `most` lines each, None for all."""
    yield from _uncommitted(changes, most)
    yield from _files(changes.files, most)


def _uncommitted(changes: PendingChanges, most: int | None) -> Iterator[str]:
    lines = [_Line(each.kind, "", f"{each.name}/ ({_OF_COLLECTION[each.kind]})") for each in changes.collections]
    lines += [
        _Line(
            each.kind,
            (each.collection, each.kind),
            f"{each.collection}/{each.doc_id}{title_beside(each.doc_id, each.title)}",
        )
        for each in changes.documents
    ]
    if lines:
        yield ""
        yield "Documents not committed:"
        yield '  (use "vmrag diff" to see, "vmrag commit" to keep them)'
        yield '  (use "vmrag restore NAME" to discard them)'
        yield from _cut(lines, most)


def _files(files: FileChanges, most: int | None) -> Iterator[str]:
    if files.files:
        yield ""
        yield "Files that differ from their documents:"
        yield from (f'  (use "{command}")' for command in files.commands)
        lines = (_Line(each.kind, (each.collection, each.kind), each.path) for each in files.files)
        yield from _cut(list(lines), most)
    if files.unknown:
        yield ""
        yield f"Not compared with their documents, because they have to be converted first: {plural(files.unknown, 'file')}."


def _cut(lines: Sequence[_Line], most: int | None) -> Iterator[str]:
    """Each group gets as many lines as any other; what one does not need is shared by the rest."""
    groups: dict[Hashable, list[_Line]] = {}
    for each in lines:
        groups.setdefault(each.group, []).append(each)
    left = len(lines) if most is None else most
    hidden: dict[str, int] = {}
    shares: dict[Hashable, int] = {}
    for number, group in enumerate(sorted(groups, key=lambda each: len(groups[each]))):
        shares[group] = min(len(groups[group]), max(1, left // (len(groups) - number)))
        left -= shares[group]
    for group, members in groups.items():
        yield from (_shown(each) for each in members[: shares[group]])
        for each in members[shares[group] :]:
            hidden[each.kind] = hidden.get(each.kind, 0) + 1
    if hidden:
        more = enumerated([f"{number} more {kind}" for kind, number in hidden.items()])
        yield f"{_INDENT}… and {more} (-v shows all)"


def _shown(line: _Line) -> str:
    label = output.style(f"{line.kind}:".ljust(_WIDTH), fg=_COLOURS[line.kind])
    return f"{_INDENT}{label}{line.text}"
