"""`vmrag commit --git`: the git commit that contains the new pin.

It follows a commit to the knowledge base and adds one step: `git commit` of the index. If that step
fails or is killed, the revision exists and its pin is staged, so a `git commit` by the user
finishes. No journal is needed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from vmrag_link import hints
from vmrag_link.errors import GitFailed, NoChanges, UsageInvalid, quoted
from vmrag_link.git import plumbing, programs, versions
from vmrag_link.ops.commit.commit import CommitReport
from vmrag_link.paths import PIN_NAME, Places
from vmrag_link.workspace import Workspace


@contextlib.contextmanager
def prepare_git_commit(ws: Workspace, message: str | None) -> Iterator[None]:
    """Run a commit that `commit_to_git` follows.

    Raises `UsageInvalid` if the setting `auto_pin` is off, because git would commit no pin. If no
    documents have changed, the hint of the error is the `git commit` of what is staged.
    """
    option = f" -m {quoted(message.strip())}" if message else ""
    if not ws.config.auto_pin:
        raise UsageInvalid(
            "--git needs the setting auto_pin, which is off",
            hint=f"run 'vmrag commit{option} && vmrag pin && git commit{option}'",
        )
    try:
        yield
    except NoChanges as error:
        if versions.has_staged_changes(ws.places):
            error.hint = f"run 'git commit{option}' to commit the staged files"
        raise


def commit_to_git(
    places: Places, report: CommitReport, message: str, *, file: Path | None, author: str | None, show: bool
) -> str:
    """Commit what is staged, including the pin, and return the git commit.

    `file` also contains the message. If `show` is set, the user sees what git and its hooks print.
    Raises `GitFailed` with the command that finishes: the revision exists, and its pin is staged
    unless another git command held the index. A `KeyboardInterrupt` also contains this command.
    """
    stored = f"revision {report.revision[:7]} is committed to the knowledge base"
    finish = _form_command(message, file, author)
    if not report.staged:
        raise GitFailed(
            f"{stored}, but another git command has locked the index, so no git commit was made",
            hint=f"run 'git add :/{PIN_NAME} && {finish}'",
            revision=report.revision,
        )
    try:
        programs.commit_index(places, message, author=author, show=show)
    except GitFailed as error:
        raise GitFailed(
            f"{stored} and its pin is staged, but git commit failed: {error.message}",
            hint=hints.suggest_command(finish, "finish it"),
            revision=report.revision,
            **error.details,
        ) from error
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"Revision {report.revision[:7]} is committed, and its pin is staged. To finish: {finish}"
        ) from None
    return plumbing.read_head(places).commit or ""


def _form_command(message: str, file: Path | None, author: str | None) -> str:
    """Return the command that commits what is staged with this message."""
    text = message.strip()
    option = f"-F {quoted(file)}" if file and "\n" in text else f"-m {quoted(text)}"
    return f"git commit {option}{f' --author={quoted(author)}' if author else ''}"
