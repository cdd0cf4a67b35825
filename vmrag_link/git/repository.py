"""Any git repository, including bare ones, for `vmrag link`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from vmrag_link.errors import AccessDenied, GitReferenceMissing, GitRepositoryMissing, quoted, shortened
from vmrag_link.git.plumbing import MAX_REF_LENGTH, can_name_commit, locate_work_tree
from vmrag_link.git.run import run_git_in
from vmrag_link.paths import Places

_CREDENTIALS = re.compile(r"^([a-z][a-z0-9+.-]*://)[^/@]*@", re.IGNORECASE)


class CodeCommit(NamedTuple):
    """A commit of a repository. A bare repository has no `places`."""

    commit: str
    branch: str | None
    """HEAD's branch, if HEAD is this commit."""
    url: str
    """The URL of `origin` without credentials, or empty."""
    places: Places | None


def find_commit(path: Path, ref: str) -> CodeCommit:
    """Return the commit that a ref names in the repository at a path.

    Raises `GitRepositoryMissing`, `GitReferenceMissing`, and `AccessDenied` for a repository inside
    another one's files.
    """
    bare = run_git_in(path, "rev-parse", "--is-bare-repository") if path.is_dir() else None
    if bare is None or bare.returncode:
        raise GitRepositoryMissing(
            f"{path} is not a git repository.", hint="run 'git init' to create a repository", path=str(path)
        )
    _require_own_configuration(path)
    places = None if bare.text.strip() == "true" else locate_work_tree(path)
    query = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    commit = _ask_git(path, *query) if can_name_commit(ref) else ""
    if not commit:
        raise GitReferenceMissing(
            f"{shortened(repr(ref))} is not a commit of {path}.",
            hint=f"run 'git -C {quoted(path)} log --oneline --all' to list its commits",
            ref=ref[:MAX_REF_LENGTH],
            path=str(path),
        )
    head = _ask_git(path, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    branch = _ask_git(path, "symbolic-ref", "--quiet", "--short", "HEAD") if head == commit else ""
    return CodeCommit(commit, branch or None, _read_origin(path), places)


def _require_own_configuration(path: Path) -> None:
    """Reject a repository that came as files of another one, because its configuration names
    programs for git to start.

    A clone does not contain a `.git`, but it may contain a folder with the same content. So a
    repository outside of any `.git` must not be in another one's work tree. Raises `AccessDenied`.
    """
    folder, common = _find_folders(path) or (path, path)
    if ".git" in folder.parts or (
        folder.is_relative_to(common) and _find_folders(common.parent) in (None, (common, common))
    ):
        return
    raise AccessDenied(
        f"{folder} is a git repository among the files of another one, so its configuration is untrusted: it can start programs.",
        hint=f"run 'git clone {quoted(folder)} DIR' if you trust its author, then name DIR",
        path=str(path),
    )


def _find_folders(path: Path) -> tuple[Path, Path] | None:
    """Return the git directory and the common directory of the repository around a folder, links
    resolved, or None.
    """
    finished = run_git_in(path, "rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir")
    if finished.returncode:
        return None
    folder, common = (Path(os.fsdecode(line)).resolve() for line in finished.stdout.removesuffix(b"\n").split(b"\n"))
    return folder, common


def read_origin_url(places: Places) -> str:
    """Return the URL of the remote `origin` without credentials, or an empty text."""
    return _read_origin(places.top)


def _read_origin(path: Path) -> str:
    return _CREDENTIALS.sub(r"\1", _ask_git(path, "config", "--get", "remote.origin.url"))


def _ask_git(path: Path, *arguments: str) -> str:
    finished = run_git_in(path, *arguments, bounded=True)
    return finished.text.strip() if finished.returncode == 0 else ""
