"""The texts that git has merged already: documents that were imported from files of the repository.

A person who has resolved the file need not resolve the document again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from vmrag_link.conversion import formats
from vmrag_link.conversion.converter import Converter
from vmrag_link.documents import importing
from vmrag_link.documents.import_base import OUTSIDE, ROOT, escapes_folder, locate_path
from vmrag_link.documents.importing import SkippedFile, SourceFile
from vmrag_link.errors import ContentRefused, UsageInvalid, quoted
from vmrag_link.git.run import check_git
from vmrag_link.merging.conflicts import Conflict, find_text_field
from vmrag_link.models import Document, read_text
from vmrag_link.ops.resolve.resolve import ResolveReport
from vmrag_link.workspace import Workspace

_MARKER = re.compile(r"^(?:<{7} |={7}$|>{7} )", re.MULTILINE)


def read_worktree_texts(ws: Workspace, report: ResolveReport) -> dict[str, str]:
    """The texts of the conflicts whose documents came from files of this work tree, by id.

    Raises `UsageInvalid` where there is none, or where git has not merged one of the files yet, and
    `ContentRefused` for a file with git's conflict in it, or one that is no document any more.
    """
    bases = {
        collection.name: collection.import_base for collection in ws.engine.list_collections(ws.locate_documents())
    }
    top = locate_path(ws.places.top)
    files = {row.id: file for row in report.conflicts if (file := _file(row.conflict, top, bases))}
    if not files:
        raise UsageInvalid(
            "No document in conflict came from a file of this work tree.",
            hint="vmrag resolve COLLECTION/DOC --file FILE",
        )
    _require_merged(ws, files.values())
    conflicts = {row.id: row.conflict for row in report.conflicts}
    with Converter() as converter:
        return {name: _text(file, conflicts[name], converter) for name, file in files.items()}


def _file(conflict: Conflict, top: Path, bases: Mapping[str, str]) -> SourceFile | None:
    """The file in the work tree at `top`; `bases` are the import bases of collections, by name."""
    row = conflict.ours or conflict.theirs
    if (
        find_text_field(conflict) is None
        or not isinstance(row, Document)
        or not row.source
        or escapes_folder(row.source)
    ):
        return None
    if bases.get(row.collection, ROOT) == OUTSIDE:
        return None
    path = top / row.source
    inside = locate_path(path).is_relative_to(top) and not path.is_symlink() and path.is_file()
    return SourceFile(row.doc_id, row.source, path) if formats.find_by_suffix(path.name) and inside else None


def _require_merged(ws: Workspace, files: Iterable[SourceFile]) -> None:
    names = [file.source for file in files]
    left = check_git(
        ws.places, "--literal-pathspecs", "diff", "--name-only", "--diff-filter=U", "-z", "--", *names
    ).text
    if unmerged := sorted({*filter(None, left.split("\0"))}):
        raise UsageInvalid(
            f"git has not merged {unmerged[0]} yet.",
            hint=f"Resolve it, then: git add {quoted(unmerged[0])} && vmrag resolve --from-worktree",
            files=unmerged,
        )


def _text(file: SourceFile, conflict: Conflict, converter: Converter) -> str:
    read = importing.read_file(file, converter)
    if isinstance(read, SkippedFile):
        raise ContentRefused(f"{file.source} {read.reason}.", hint=f"vmrag resolve {quoted(conflict.id)} --ours")
    known = sum(count_git_conflicts(read_text(row)) for row in (conflict.ours, conflict.theirs))
    if count_git_conflicts(read.content) > known:
        raise ContentRefused(
            f"{file.source} holds git's conflict markers.",
            hint=f"Resolve it, then: git add {quoted(file.source)} && vmrag resolve --from-worktree",
            file=file.source,
        )
    return read.content


def count_git_conflicts(text: str) -> int:
    """How many conflicts git has marked there. Looks at each marker once: one expression for all
    three would take hours for a stranger's page of nothing but beginnings.
    """
    order = ("<", "=", ">")
    found = at = 0
    for match in _MARKER.finditer(text):
        if match[0][0] == order[at]:
            at = (at + 1) % len(order)
            found += at == 0
    return found
