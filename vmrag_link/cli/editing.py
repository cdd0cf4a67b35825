"""A text in the editor or the merge tool of the person at the terminal."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path, PurePosixPath

from vmrag_link.documents import given
from vmrag_link.git import programs
from vmrag_link.merging.conflicts import Conflict
from vmrag_link.models import text_of
from vmrag_link.workspace import Workspace

_PLAIN = re.compile(r"\.[A-Za-z0-9]{1,10}")
_DEFAULT_SUFFIX = ".md"


def suffix_of(conflict: Conflict) -> str:
    """Of the document's id, for an editor's highlighting.

    A shell reads it, and a stranger may have written it.
    """
    suffix = PurePosixPath(conflict.doc_id).suffix
    return suffix if _PLAIN.fullmatch(suffix) else _DEFAULT_SUFFIX


def edited(ws: Workspace, text: str, *, name: str = "conflict", suffix: str = _DEFAULT_SUFFIX) -> str | None:
    """The text as a person left it in a file of that name, byte for byte; None if it was not
    changed.

    The editor is git's: `GIT_EDITOR`, `core.editor`, `VISUAL`, `EDITOR`, in that order. Raises
    `UsageInvalid` if there is none, or if it fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}{suffix}"
        path.write_bytes(text.encode())
        programs.edit_file(ws.places, path)
        after = given.file_text(path)
    return after if after != text else None


def merged_by_tool(ws: Workspace, conflict: Conflict, tool: str) -> str | None:
    """The text that a merge tool of git's makes of the three versions; None if it gave up.

    `tool`: as `git mergetool` names it; empty for the configured one.
    """
    versions = [text_of(row) for row in (conflict.base, conflict.ours, conflict.theirs)]
    return programs.merge_by_tool(ws.places, f"conflict{suffix_of(conflict)}", versions, tool=tool)
