"""The git operation in progress in a work tree, read from git's files, and how to finish it."""

from __future__ import annotations

from pathlib import Path

from vmrag_link import hints
from vmrag_link.paths import Places

_FINISH_COMMANDS = {
    "rebase": "git rebase --continue",
    "am": "git am --continue",
    "merge": "git commit",
    "cherry-pick": "git cherry-pick --continue",
    "revert": "git revert --continue",
    "bisect": "git bisect reset",
}


def is_index_locked(places: Places) -> bool:
    """Return whether git is writing the index, or was killed while it did."""
    return (places.git_dir / "index.lock").exists()


def find_operation(places: Places) -> str | None:
    """Return the git operation in progress: rebase, am, merge, cherry-pick, revert, bisect, or
    None.
    """
    git_dir = places.git_dir
    if (git_dir / "rebase-merge").is_dir():
        return "rebase"  # first, because a stopped rebase also leaves CHERRY_PICK_HEAD
    if (git_dir / "rebase-apply").is_dir():
        return "am" if (git_dir / "rebase-apply" / "applying").exists() else "rebase"
    for name, operation in (("MERGE_HEAD", "merge"), ("CHERRY_PICK_HEAD", "cherry-pick"), ("REVERT_HEAD", "revert")):
        if (git_dir / name).exists():
            return operation
    return _find_sequence(git_dir) or ("bisect" if (git_dir / "BISECT_LOG").exists() else None)


def _find_sequence(git_dir: Path) -> str | None:
    """Return "cherry-pick" or "revert" if git is between two commits of a series, or else None."""
    try:
        todo = (git_dir / "sequencer" / "todo").read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return "revert" if todo.startswith((b"revert", b"r ")) else "cherry-pick"


def get_finish_command(operation: str) -> str:
    """Return the command that finishes an operation of `find_operation`."""
    return _FINISH_COMMANDS[operation]


def suggest_finish(operation: str) -> str:
    """Return the hint to finish an operation of `find_operation`, or to abort it."""
    finish = hints.suggest_command(get_finish_command(operation), "finish it")
    if operation == "bisect":
        return finish
    return hints.join_alternatives(finish, hints.suggest_command("git status", "see how to abort it"))
