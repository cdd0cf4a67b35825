"""Print revisions, for `vmrag diff`, `log`, `show` and `blame`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import click

from vmrag_link import terminal_text
from vmrag_link.cli import output
from vmrag_link.cli.base import read_subject

if TYPE_CHECKING:
    from vmrag_link.workspace.history.file_history import FileCommit
    from vmrag_link.workspace.history.log import GitCommit, PinnedRevision
    from vmrag_link.workspace.history.word_diff import Detail


Form = Literal["names", "status", "stat", "text"]

DETAILS: dict[Form, Detail] = {"names": "names", "status": "names", "stat": "stat", "text": "text"}
"""The details to read for each form."""


def form_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options `--stat`, `--name-only` and `--name-status`, which are `form` of the
    function.
    """
    stat = click.option("--stat", "form", flag_value="stat", help="Count the words that each document gained and lost.")
    names = click.option(
        "--name-only", "form", flag_value="names", help="Print only the names of the changed documents."
    )
    status = click.option("--name-status", "form", flag_value="status", help="Print the names with A, M or D.")
    return stat(names(status(function)))


SHORT, SHORT_COMMIT = 7, 10
"""Number of characters of a revision and of a git commit."""

_NAMED = 2
"""Maximum number of commits in one line."""


def format_revision_line(info: PinnedRevision) -> Iterator[str]:
    """Yield the line of a revision, with its refs and the git commits that pin it."""
    shown = (
        f"{output.style_text(info.revision[:SHORT], fg='yellow')}{_format_refs(info.refs)} {read_subject(info.message)}"
    )
    yield f"{shown}{_format_pinning_commits(info)}"


def format_revision_entry(info: PinnedRevision, change_text: str) -> Iterator[str]:
    """Yield the entry of a revision. `change_text` is the text about its changes."""
    yield _title_line(info)
    yield f"    {read_subject(info.message)}  ({change_text})"
    yield from _format_pins(info.commits)


def format_commit_line(commit: FileCommit) -> Iterator[str]:
    """Yield the line of a git commit, with its refs and another path of the file."""
    moved = f"  ({_file_change(commit)})" if commit.old_path else ""
    yield f"{output.style_text(commit.commit[:SHORT_COMMIT], fg='yellow')}{_format_refs(commit.refs)} {read_subject(commit.message)}{moved}"


def format_commit_entry(commit: FileCommit) -> Iterator[str]:
    yield f"{output.style_text(commit.commit, fg='yellow')}{_format_refs(commit.refs)}  {commit.date}  {commit.author}"
    yield f"    {read_subject(commit.message)}  ({_file_change(commit)})"


def _file_change(commit: FileCommit) -> str:
    return f"{commit.old_path} -> {commit.path}" if commit.old_path else commit.kind


def format_full_revision(info: PinnedRevision) -> Iterator[str]:
    """Yield all details of a revision and its whole message, like `git show`."""
    yield _title_line(info)
    if len(info.parents) > 1:
        yield f"    merge of {' '.join(parent[:SHORT] for parent in info.parents)}"
    yield from _format_pins(info.commits)
    yield ""
    yield from (f"    {line}".rstrip() for line in terminal_text.split_lines(info.message.strip()))
    yield ""


def _title_line(info: PinnedRevision) -> str:
    return f"{output.style_text(info.revision, fg='yellow')}{_format_refs(info.refs)}  {info.date}  {info.author}"


def _format_pins(commits: Sequence[GitCommit]) -> Iterator[str]:
    for commit in commits:
        yield f"    pinned by {output.style_text(commit.commit[:SHORT_COMMIT], fg='yellow')} {commit.subject}"


def _format_refs(refs: Sequence[str]) -> str:
    return f" ({output.style_text(', '.join(refs), fg='green')})" if refs else ""


def _format_pinning_commits(info: PinnedRevision) -> str:
    """Return the git commits that pin a revision.

    A subject that equals the message of the revision is not repeated.
    """
    if not info.commits:
        return ""
    subject = read_subject(info.message)
    named = [
        output.style_text(commit.commit[:SHORT_COMMIT], fg="yellow")
        + ("" if commit.subject == subject else f" {commit.subject}")
        for commit in info.commits[:_NAMED]
    ]
    rest = len(info.commits) - len(named)
    more = f" and {rest} more" if rest else ""
    return f"  <- {', '.join(named)}{more}"
