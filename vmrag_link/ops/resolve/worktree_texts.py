"""Read the texts that git has already merged, for documents that were imported from files of the
repository.

If you resolved the file, you need not resolve the document again.
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
    """Return the texts of the conflicts whose documents came from files of this work tree, by id.

    Raises `UsageInvalid` if there are none or if git has not merged one of the files yet, and
    `ContentRefused` for a file with git's conflict markers or one that is no longer a document.
    """
    bases = {
        collection.name: collection.import_base for collection in ws.engine.list_collections(ws.locate_documents())
    }
    top = locate_path(ws.places.top)
    all_files = {row.id: _find_file(row.conflict, top, bases) for row in report.conflicts}
    files = {name: file for name, file in all_files.items() if file}
    if not files:
        raise UsageInvalid(
            "no conflicting document came from a file of this working tree.",
            hint="run 'vmrag resolve COLLECTION/DOC --file FILE'",
        )
    _require_merged(ws, files.values())
    conflicts = {row.id: row.conflict for row in report.conflicts}
    with Converter() as converter:
        return {name: _read_text(file, conflicts[name], converter) for name, file in files.items()}


def _find_file(conflict: Conflict, top: Path, bases: Mapping[str, str]) -> SourceFile | None:
    """Return the document's file in the work tree at `top`.

    `bases`: by collection, the folder to which the paths of its documents are relative.
    """
    row = conflict.ours or conflict.theirs
    if find_text_field(conflict) is None or not isinstance(row, Document):
        return None
    if not row.source or escapes_folder(row.source) or bases.get(row.collection, ROOT) == OUTSIDE:
        return None
    path = top / row.source
    if not locate_path(path).is_relative_to(top) or path.is_symlink() or not path.is_file():
        return None
    return SourceFile(row.doc_id, row.source, path) if formats.find_by_suffix(path.name) else None


def _require_merged(ws: Workspace, files: Iterable[SourceFile]) -> None:
    names = [file.source for file in files]
    output = check_git(
        ws.places, "--literal-pathspecs", "diff", "--name-only", "--diff-filter=U", "-z", "--", *names
    ).text
    unmerged = sorted({*filter(None, output.split("\0"))})
    if unmerged:
        raise UsageInvalid(
            f"{unmerged[0]} still has a merge conflict in git.",
            hint=f"run 'git add {quoted(unmerged[0])} && vmrag resolve --from-worktree' after you resolved it",
            files=unmerged,
        )


def _read_text(file: SourceFile, conflict: Conflict, converter: Converter) -> str:
    result = importing.read_file(file, converter)
    if isinstance(result, SkippedFile):
        raise ContentRefused(
            f"{file.source} {result.reason}.", hint=f"run 'vmrag resolve {quoted(conflict.id)} --ours'"
        )
    marked_before = sum(count_git_conflicts(read_text(row)) for row in (conflict.ours, conflict.theirs))
    if count_git_conflicts(result.content) > marked_before:
        raise ContentRefused(
            f"{file.source} contains git's conflict markers.",
            hint=f"run 'git add {quoted(file.source)} && vmrag resolve --from-worktree' after you resolved it",
            file=file.source,
        )
    return result.content


def count_git_conflicts(text: str) -> int:
    """Count the conflicts that git has marked.

    This reads each marker once. One regular expression for all three markers would take hours for
    an untrusted text with only opening markers.
    """
    order = ("<", "=", ">")
    count = position = 0
    for match in _MARKER.finditer(text):
        if match[0][0] == order[position]:
            position = (position + 1) % len(order)
            count += position == 0
    return count
