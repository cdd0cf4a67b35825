"""Texts from arguments, files, standard input and merge tools, and the options for them.

`editor` has the texts from editors.
"""

from __future__ import annotations

import contextlib
import os
import select
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vmrag_link.cli import output
from vmrag_link.documents import named_files
from vmrag_link.errors import UsageInvalid
from vmrag_link.models import parse_user_json, read_text

if TYPE_CHECKING:
    from vmrag_link.merging.conflicts import Conflict
    from vmrag_link.workspace import Workspace

_PATIENCE = 1.0
"""Seconds without a text on standard input before a note shows that the command waits."""
_PIPE_HINT = "run 'printf TEXT | vmrag … -', or name a file"
_METADATA = """pass JSON, such as --metadata '{"team": "core", "year": 2024}'"""


def merge_with_tool(ws: Workspace, conflict: Conflict, tool: str) -> str | None:
    """Merge the three versions in a merge tool of git; None if it gave up.

    `tool` is the name for `git mergetool`, or empty for the configured tool.
    """
    versions = [read_text(row) for row in (conflict.base, conflict.ours, conflict.theirs)]
    from vmrag_link.cli import editor
    from vmrag_link.git import programs

    return programs.merge_by_tool(ws.places, f"conflict{editor.find_suffix(conflict.doc_id)}", versions, tool=tool)


def text_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options `-m` and `-F` of git commit, which are `text` and `file` of the function."""
    kind = click.Path(path_type=Path, allow_dash=True)
    file = click.option("-F", "--file", type=kind, help="File with the text. - reads standard input.")
    text = click.option("-m", "--text", help="Text. Without it and without --file, git's editor opens.")
    return text(file(function))


def read_given_text(directory: Path, text: str | None, file: Path | None) -> str | None:
    """Return the text of the options, or None without them.

    Raises `UsageInvalid` and `FileFailed`.
    """
    if text is not None and file is not None:
        raise UsageInvalid("--text and --file both give the text.", hint="leave one of them out")
    if file is None:
        return text
    return read_standard_input() if str(file) == "-" else named_files.read_text(directory / file)


def has_piped_input() -> bool:
    """Return True if standard input is a pipe, a socket or a file.

    It is False for a terminal, a device such as /dev/null, and closed input.
    """
    if sys.stdin is None or sys.stdin.closed:
        return False
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except OSError:  # a program that calls vmrag in its process replaced it
        return True
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISREG(mode)


def read_standard_input() -> str:
    """Return the text of standard input, to its end.

    A note shows after a while that the command waits for it. Raises `UsageInvalid` if it is closed,
    `FileFailed` if it is too long or not UTF-8.
    """
    if sys.stdin is None or sys.stdin.closed:
        raise UsageInvalid("cannot read a text: standard input is closed", hint=_PIPE_HINT)
    with contextlib.suppress(OSError, ValueError):  # it has no descriptor
        if not select.select([sys.stdin.fileno()], [], [], _PATIENCE)[0]:
            output.print_warning("Waiting for the text on standard input. Ctrl-D ends it, Ctrl-C aborts.", "note:")
    return named_files.read_stream(sys.stdin.buffer)


def parse_metadata_option(text: str) -> dict[str, Any]:
    """Parse the value of `--metadata`.

    Raises `UsageInvalid`.
    """
    try:
        value = parse_user_json(text)
    except ValueError as error:
        raise UsageInvalid(f"--metadata {error}.", hint=_METADATA) from None
    if not isinstance(value, dict):
        raise UsageInvalid("--metadata is not a JSON object.", hint=_METADATA)
    return value


def warn_pending(reason: str) -> None:
    """Print that the index did not follow.

    `reason` is empty if the index is complete.
    """
    if reason:
        output.print_warning(reason, "warning:")
