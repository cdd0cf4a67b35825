"""How a revision is printed: by `vmrag log` and `show`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vmrag_link import terminal_text
from vmrag_link.cli import output
from vmrag_link.cli.base import headline
from vmrag_link.ops.history.file_history import FileCommit
from vmrag_link.ops.history.log import PinnedRevision
from vmrag_link.ops.history.pinned_by import GitCommit

SHORT, SHORT_COMMIT = 7, 10
"""Characters of a revision and of a commit of git's."""

_NAMED = 2
"""Commits that one line names."""


def oneline(each: PinnedRevision) -> Iterator[str]:
    """The revision, what stands on it, and beside it the code that pins it."""
    shown = f"{output.style(each.revision[:SHORT], fg='yellow')}{_refs(each.refs)} {headline(each.message)}"
    yield f"{shown}{_beside(each)}"


def entry(each: PinnedRevision, said: str) -> Iterator[str]:
    """Some lines; `said`: what it changed."""
    yield _first(each)
    yield f"    {headline(each.message)}  ({said})"
    yield from _pins(each.commits)


def commit_oneline(each: FileCommit) -> Iterator[str]:
    """Of git's, what stands on it, and what the file was called otherwise."""
    moved = f"  ({_became(each)})" if each.old_name else ""
    yield f"{output.style(each.commit[:SHORT_COMMIT], fg='yellow')}{_refs(each.refs)} {headline(each.message)}{moved}"


def commit_entry(each: FileCommit) -> Iterator[str]:
    yield f"{output.style(each.commit, fg='yellow')}{_refs(each.refs)}  {each.date}  {each.author}"
    yield f"    {headline(each.message)}  ({_became(each)})"


def _became(each: FileCommit) -> str:
    return f"{each.old_name} -> {each.name}" if each.old_name else each.kind


def whole(each: PinnedRevision) -> Iterator[str]:
    """All that is known of it, with its whole message, as `git show` has it."""
    yield _first(each)
    if len(each.parents) > 1:
        yield f"    merge of {' '.join(parent[:SHORT] for parent in each.parents)}"
    yield from _pins(each.commits)
    yield ""
    yield from (f"    {line}".rstrip() for line in terminal_text.lines(each.message.strip()))
    yield ""


def _first(each: PinnedRevision) -> str:
    return f"{output.style(each.revision, fg='yellow')}{_refs(each.refs)}  {each.date}  {each.author}"


def _pins(commits: Sequence[GitCommit]) -> Iterator[str]:
    for each in commits:
        yield f"    pinned by {output.style(each.commit[:SHORT_COMMIT], fg='yellow')} {each.subject}"


def _refs(refs: Sequence[str]) -> str:
    return f" ({output.style(', '.join(refs), fg='green')})" if refs else ""


def _beside(each: PinnedRevision) -> str:
    """The commits that pin it; a subject that is the revision's own message is not said twice."""
    if not each.commits:
        return ""
    own = headline(each.message)
    named = [
        output.style(one.commit[:SHORT_COMMIT], fg="yellow") + ("" if one.subject == own else f" {one.subject}")
        for one in each.commits[:_NAMED]
    ]
    rest = len(each.commits) - len(named)
    more = f" and {rest} more" if rest else ""
    return f"  <- {', '.join(named)}{more}"
