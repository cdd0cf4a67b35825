"""How revisions are printed: by `vmrag diff`, `log`, `show` and `blame`."""

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
"""What has to be read for each form."""


def form_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--stat`, `--name-only` and `--name-status`: `form` of the function, None without them."""
    stat = click.option("--stat", "form", flag_value="stat", help="Count the words that each document gained and lost.")
    names = click.option(
        "--name-only", "form", flag_value="names", help="Print only the names of the changed documents."
    )
    status = click.option("--name-status", "form", flag_value="status", help="Print the names with A, M or D.")
    return stat(names(status(function)))


SHORT, SHORT_COMMIT = 7, 10
"""Characters of a revision and of a commit of git's."""

_NAMED = 2
"""Commits that one line names."""


def format_revision_line(each: PinnedRevision) -> Iterator[str]:
    """The revision, what stands on it, and beside it the code that pins it."""
    shown = f"{output.style_text(each.revision[:SHORT], fg='yellow')}{_refs(each.refs)} {read_subject(each.message)}"
    yield f"{shown}{_commits_beside(each)}"


def format_revision_entry(each: PinnedRevision, said: str) -> Iterator[str]:
    """Some lines; `said`: what it changed."""
    yield _title_line(each)
    yield f"    {read_subject(each.message)}  ({said})"
    yield from _pins(each.commits)


def format_commit_line(each: FileCommit) -> Iterator[str]:
    """Of git's, what stands on it, and what the file was called otherwise."""
    moved = f"  ({_file_change(each)})" if each.old_path else ""
    yield f"{output.style_text(each.commit[:SHORT_COMMIT], fg='yellow')}{_refs(each.refs)} {read_subject(each.message)}{moved}"


def format_commit_entry(each: FileCommit) -> Iterator[str]:
    yield f"{output.style_text(each.commit, fg='yellow')}{_refs(each.refs)}  {each.date}  {each.author}"
    yield f"    {read_subject(each.message)}  ({_file_change(each)})"


def _file_change(each: FileCommit) -> str:
    return f"{each.old_path} -> {each.path}" if each.old_path else each.kind


def format_full_revision(each: PinnedRevision) -> Iterator[str]:
    """All that is known of it, with its whole message, as `git show` has it."""
    yield _title_line(each)
    if len(each.parents) > 1:
        yield f"    merge of {' '.join(parent[:SHORT] for parent in each.parents)}"
    yield from _pins(each.commits)
    yield ""
    yield from (f"    {line}".rstrip() for line in terminal_text.split_lines(each.message.strip()))
    yield ""


def _title_line(each: PinnedRevision) -> str:
    return f"{output.style_text(each.revision, fg='yellow')}{_refs(each.refs)}  {each.date}  {each.author}"


def _pins(commits: Sequence[GitCommit]) -> Iterator[str]:
    for commit in commits:
        yield f"    pinned by {output.style_text(commit.commit[:SHORT_COMMIT], fg='yellow')} {commit.subject}"


def _refs(refs: Sequence[str]) -> str:
    return f" ({output.style_text(', '.join(refs), fg='green')})" if refs else ""


def _commits_beside(each: PinnedRevision) -> str:
    """The commits that pin it; a subject that is the revision's own message is not said twice."""
    if not each.commits:
        return ""
    own = read_subject(each.message)
    named = [
        output.style_text(one.commit[:SHORT_COMMIT], fg="yellow") + ("" if one.subject == own else f" {one.subject}")
        for one in each.commits[:_NAMED]
    ]
    rest = len(each.commits) - len(named)
    more = f" and {rest} more" if rest else ""
    return f"  <- {', '.join(named)}{more}"
