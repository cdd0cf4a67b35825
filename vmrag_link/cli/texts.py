"""What the commands for issue logs and for documents about tools share: the text that a person
gives, as an argument, in a file, on standard input or in the editor; and warnings.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from vmrag_link.cli import output
from vmrag_link.cli.editing import edited
from vmrag_link.documents import given
from vmrag_link.errors import UsageInvalid
from vmrag_link.workspace import Workspace


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
    return given.stream_text(sys.stdin.buffer) if str(file) == "-" else given.file_text(directory / file)


def written_text(ws: Workspace, name: str) -> str:
    """A new text from the editor. Raises `UsageInvalid` if nothing was written there."""
    text = edited(ws, "", name=name)
    if text is None or not text.strip():
        raise UsageInvalid("No text was written, so nothing is stored.", hint="-m TEXT or -F FILE gives it, too")
    return text


def warn_pending(why: str) -> None:
    """`why` the index did not follow what was stored; empty if it did."""
    if why:
        output.complain(why, "warning:")
