"""Commit notes with git, and nothing else that is staged."""

from __future__ import annotations

from collections.abc import Sequence

from vmrag_link import hints
from vmrag_link.errors import GitFailed, UsageInvalid, quoted
from vmrag_link.git import identity, plumbing
from vmrag_link.git.run import run_git
from vmrag_link.models import Record
from vmrag_link.workspace import Workspace

IDENTITY_HINT = "run 'git config user.name NAME && git config user.email EMAIL' to set your name and address"


class NoteCommit(Record, frozen=True):
    """A git commit that holds notes alone."""

    commit: str
    message: str
    paths: tuple[str, ...]


def commit_notes(ws: Workspace, paths: Sequence[str], message: str) -> NoteCommit:
    """Commit these files by `git commit --only`, which runs the user's hooks.

    Other staged files stay staged. Raises `GitFailed` with the command that repeats the commit. The
    notes are already written and staged then.
    """
    if not message.strip():
        raise UsageInvalid("the commit message is empty.", hint="give the note a title")
    files = " ".join(map(quoted, paths))
    command = f"git commit -m {quoted(message)} --only -- {files}"
    if identity.read_configured_identity(ws.places) is None:
        raise GitFailed("git does not know who you are, so the note is not committed.", hint=IDENTITY_HINT)
    result = run_git(ws.places, "--literal-pathspecs", "commit", "--quiet", "-m", message, "--only", "--", *paths)
    if result.returncode != 0:
        raise GitFailed(
            f"the note is written, but not committed: {result.failure}",
            hint=hints.suggest_command(command, "commit it"),
        )
    commit = plumbing.read_head(ws.places).commit or ""
    return NoteCommit(commit, message, tuple(paths))
