"""Text that the user writes in git's editor.

The policy:

* The editor is the one that git would open: `GIT_EDITOR`, `core.editor`, `VISUAL`, `EDITOR`, or
  git's default.
* An editor needs a terminal. Without one, only the editor of `GIT_EDITOR` runs, because scripts set
  this variable for exactly one command. Any other editor would wait forever for keys.
* A draft is a file below `.git/vmrag/drafts`. vmrag removes it after the command has used the text.
  If the editor or the command fails, an edited draft stays, and the error names its path.
* A draft that a killed command left is removed after 30 days.
* In a message, lines that begin with git's comment character are removed. An empty message aborts.
* An editor that fails changes nothing, whatever it wrote.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from vmrag_link import env
from vmrag_link.cli import output
from vmrag_link.documents import named_files
from vmrag_link.errors import MessageMissing, UsageInvalid, VmragError
from vmrag_link.file_access import write_atomically
from vmrag_link.git import programs
from vmrag_link.paths import Places

DEFAULT_SUFFIX = ".md"
KEPT_SECONDS = 30 * 24 * 3600
_PLAIN_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,10}")
_MESSAGE_NAME = "COMMIT_EDITMSG"
"""Editors highlight a file of this name as a message of a commit."""
_MESSAGE_HINT = "run 'vmrag commit -m \"What changed in the documents\"' to commit the documents"
_INSTRUCTIONS = """
Please enter the message for your changes. Lines that begin with
this character are ignored, and an empty message aborts the commit.
"""


def find_suffix(doc_id: str) -> str:
    """Return the suffix of a document's id, so that the editor highlights the text.

    A shell reads it, and an untrusted user may have written it.
    """
    suffix = PurePosixPath(doc_id).suffix
    return suffix if _PLAIN_SUFFIX.fullmatch(suffix) else DEFAULT_SUFFIX


@contextlib.contextmanager
def open_edited_text(places: Places, text: str, *, name: str, instead: str = "") -> Iterator[str | None]:
    """Open a text in the editor and yield the result; None if the user changed nothing.

    The draft stays if the block fails. `instead` is the hint without a terminal. Raises
    `UsageInvalid` if no editor can run or if it fails, and `FileFailed` if the result is not UTF-8.
    """
    if not _can_edit():
        raise UsageInvalid("cannot open an editor without a terminal", hint=instead)
    with open_draft(places, name, text) as path:
        programs.edit_file(places, path)
        after = named_files.read_text(path)
        yield after if after != text else None


def edit_text(places: Places, text: str, *, name: str) -> str | None:
    """Return a text as the user edited it, byte for byte; None if the user changed nothing.

    Raises `UsageInvalid` if no editor can run or if it fails, and `FileFailed` if the result is not
    UTF-8.
    """
    with open_edited_text(places, text, name=name) as after:
        return after


@contextlib.contextmanager
def open_new_text(places: Places, text: str | None, *, name: str) -> Iterator[str]:
    """Yield the given text, or one that the user writes in the editor.

    The draft stays if the block fails. Raises `UsageInvalid` if the user wrote nothing, if no
    editor can run or if it fails, and `FileFailed` if the result is not UTF-8.
    """
    if text is not None:
        yield text
        return
    instead = "use '-m TEXT' or '-F FILE'"
    with open_edited_text(places, "", name=name, instead=instead) as written:
        if written is None or not written.strip():
            raise UsageInvalid("no text was written, so nothing is stored", hint=instead)
        yield written


@contextlib.contextmanager
def open_edited_message(places: Places, contents: str) -> Iterator[tuple[str, Path]]:
    """Open an empty message in the editor, and yield it without comments, and its file.

    `contents` lists below the instructions what the commit contains. The draft stays if the block
    fails. Raises `MessageMissing` if the message is empty or there is no terminal, `UsageInvalid`
    if the editor fails, and `FileFailed` if the result is not UTF-8.
    """
    if not _can_edit():
        raise MessageMissing("missing commit message, and cannot open an editor without a terminal", hint=_MESSAGE_HINT)
    template = "\n" + programs.format_comments(places, f"{_INSTRUCTIONS.strip()}\n\n{contents}")
    with open_draft(places, _MESSAGE_NAME, template) as path:
        programs.edit_file(places, path)
        text = programs.strip_comments(places, named_files.read_text(path))
        if not text.strip():
            path.unlink()
            raise MessageMissing("the message is empty, so nothing was committed", hint=_MESSAGE_HINT)
        write_atomically(path, text.encode(), durable=False)
        yield text.removesuffix("\n"), path


@contextlib.contextmanager
def open_written_message(places: Places, text: str) -> Iterator[Path]:
    """Yield a file with a message. It stays if the block fails."""
    with open_draft(places, _MESSAGE_NAME, text, keep=True) as path:
        yield path


@contextlib.contextmanager
def open_draft(places: Places, name: str, text: str, *, keep: bool = False) -> Iterator[Path]:
    """Write a text to a file of this name, and remove the file after the block.

    If the block fails, an edited file stays and the error names it. With `keep`, an unedited file
    also stays.
    """
    _remove_old_drafts(places.drafts)
    folder = places.drafts / os.urandom(8).hex()
    path = folder / name
    write_atomically(path, text.encode(), durable=False)
    try:
        yield path
    except BaseException as error:
        if not keep and not _has_new_text(path, text):
            shutil.rmtree(folder, ignore_errors=True)
        elif isinstance(error, VmragError):
            error.message += f"\nThe text is in {path}"
            error.details["draft"] = str(path)
        else:
            output.print_warning(f"The text is in {path}", "note:")
        raise
    shutil.rmtree(folder, ignore_errors=True)


def _has_new_text(path: Path, before: str) -> bool:
    try:
        return path.read_bytes().strip() not in (b"", before.encode().strip())
    except FileNotFoundError:  # the editor removed it
        return False


def _remove_old_drafts(folder: Path) -> None:
    for path in folder.glob("*/*"):
        with contextlib.suppress(OSError):  # another command was faster
            if time.time() - path.stat().st_mtime > KEPT_SECONDS:
                shutil.rmtree(path.parent, ignore_errors=True)


def _can_edit() -> bool:
    return env.has_git_editor() or (output.has_input_terminal() and sys.stdout.isatty())
