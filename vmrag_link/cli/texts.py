"""A text that a person gives: as an argument, in a file, on standard input, in the editor or in a
merge tool; and the options that take it.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import click

from vmrag_link.cli import output
from vmrag_link.documents import export_paths
from vmrag_link.errors import UsageInvalid
from vmrag_link.git import programs
from vmrag_link.merging.conflicts import Conflict
from vmrag_link.models import json_from_user, text_of
from vmrag_link.workspace import Workspace

_PLAIN = re.compile(r"\.[A-Za-z0-9]{1,10}")
_DEFAULT_SUFFIX = ".md"
_METADATA = """--metadata '{"team": "core", "year": 2024}'"""


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
        after = export_paths.file_text(path)
    return after if after != text else None


def merged_by_tool(ws: Workspace, conflict: Conflict, tool: str) -> str | None:
    """The text that a merge tool of git's makes of the three versions; None if it gave up.

    `tool`: as `git mergetool` names it; empty for the configured one.
    """
    versions = [text_of(row) for row in (conflict.base, conflict.ours, conflict.theirs)]
    return programs.merge_by_tool(ws.places, f"conflict{suffix_of(conflict)}", versions, tool=tool)


def text_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`-m` and `-F`, as git has them for messages: `text` and `file` of the function."""
    kind = click.Path(path_type=Path, allow_dash=True)
    file = click.option("-F", "--file", type=kind, help="The file that holds the text; - is standard input.")
    text = click.option("-m", "--text", help="The text. Without it and without --file, git's editor opens.")
    return text(file(function))


def given_text(directory: Path, text: str | None, file: Path | None) -> str | None:
    """The text that the options give; None if they give none.

    Raises `UsageInvalid`, `FileFailed`.
    """
    if text is not None and file is not None:
        raise UsageInvalid("--text and --file both give the text.", hint="Leave one of them out.")
    if file is None:
        return text
    return export_paths.stream_text(sys.stdin.buffer) if str(file) == "-" else export_paths.file_text(directory / file)


def written_text(ws: Workspace, name: str) -> str:
    """A new text from the editor. Raises `UsageInvalid` if nothing was written there."""
    text = edited(ws, "", name=name)
    if text is None or not text.strip():
        raise UsageInvalid("No text was written, so nothing is stored.", hint="-m TEXT or -F FILE gives it, too")
    return text


def metadata_object(text: str) -> dict[str, Any]:
    """What `--metadata` holds. Raises `UsageInvalid`."""
    try:
        value = json_from_user(text)
    except ValueError as error:
        raise UsageInvalid(f"--metadata {error}.", hint=_METADATA) from None
    if not isinstance(value, dict):
        raise UsageInvalid("--metadata is not a JSON object.", hint=_METADATA)
    return value


def warn_pending(why: str) -> None:
    """`why` the index did not follow what was stored; empty if it did."""
    if why:
        output.complain(why, "warning:")
