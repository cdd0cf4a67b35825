"""Commits and pins of a merge in progress, and pins that are staged for the next commit."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from vmrag_link import env
from vmrag_link.git.refs import read_head
from vmrag_link.git.run import build_failure, check_git, run_git
from vmrag_link.paths import PIN_NAME, PIN_READ_LIMIT, Places


def is_merge(places: Places) -> bool:
    """Return whether git merges branches now, rather than picking, reverting or rebasing a commit.

    `git merge` and `git pull` put their heads into the environment, and write MERGE_HEAD only if
    they stop. A rebase that recreates merges writes MERGE_HEAD before it commits.
    """
    return bool(env.list_merge_heads()) or (places.git_dir / "MERGE_HEAD").exists()


def list_parents(places: Places, commit: str) -> list[str]:
    """Return the parents of a commit by full hash."""
    return check_git(places, "rev-list", "--parents", "-n", "1", commit, "--").text.split()[1:]


def read_staged_pin(places: Places, *, index_file: Path | None = None) -> bytes | None:
    """Return the pin in the index, at most 8 KiB. None if the index has no pin, or one in conflict.

    `index_file`: the index of a commit in progress.
    """
    arguments = ("ls-files", "--stage", "-z", "--", PIN_NAME)
    finished = run_git(places, *arguments, index_file=index_file)
    if finished.returncode:
        raise build_failure(arguments, finished)
    for line in filter(None, finished.text.split("\0")):
        _, blob, stage = line.partition("\t")[0].split(" ")
        if stage == "0":
            return check_git(places, "cat-file", "blob", blob).stdout[:PIN_READ_LIMIT]
    return None


def withdraw_pin(places: Places) -> Literal["kept", "restored", "removed"]:
    """Remove a pin that was never committed from the index and the work tree. HEAD's pin is
    restored if it exists.
    """
    finished = run_git(places, "cat-file", "blob", f"HEAD:{PIN_NAME}")
    if finished.returncode:  # HEAD has no pin or no commit yet
        check_git(places, "rm", "--cached", "--force", "--quiet", "--ignore-unmatch", "--", PIN_NAME)
        places.pin.unlink(missing_ok=True)
        return "removed"
    is_staged = finished.stdout == read_staged_pin(places)
    if is_staged and places.pin.is_file() and places.pin.read_bytes() == finished.stdout:
        return "kept"
    check_git(places, "checkout", "--quiet", "HEAD", "--", PIN_NAME)
    return "restored"


def list_coming_parents(places: Places) -> list[str]:
    """Return the parents that the commit in progress will have: HEAD, and the merged heads.

    `pre-merge-commit` runs before MERGE_HEAD is written. Then `git merge` has put its heads into
    the environment.
    """
    head_commit = read_head(places).commit
    try:
        merged = (places.git_dir / "MERGE_HEAD").read_text().split()
    except FileNotFoundError:
        merged = env.list_merge_heads()
    return [commit for commit in [head_commit, *merged] if commit]


def list_merge_bases(places: Places, commits: list[str]) -> list[str]:
    """Return all best common ancestors of the first commit and the others."""
    return run_git(places, "merge-base", "--all", *commits).text.split()
