"""Any git repository, bare ones included, as `vmrag link` names it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from vmrag_link.errors import AccessDenied, GitReferenceMissing, GitRepositoryMissing, quoted, shortened
from vmrag_link.git.plumbing import LONGEST_REF, can_name_commit, locate_work_tree
from vmrag_link.git.run import run_git_in
from vmrag_link.paths import Places

_CREDENTIALS = re.compile(r"^([a-z][a-z0-9+.-]*://)[^/@]*@", re.IGNORECASE)


class CodeCommit(NamedTuple):
    """A commit of a repository. `places` None: the repository is bare.

    `branch` is HEAD's, if HEAD is this commit. `url` is `origin`'s without credentials, empty if
    there is none.
    """

    commit: str
    branch: str | None
    url: str
    places: Places | None


def find_commit(path: Path, ref: str) -> CodeCommit:
    """Raises `GitRepositoryMissing`, `GitReferenceMissing`, and `AccessDenied` for a repository
    inside another one's files.
    """
    bare = run_git_in(path, "rev-parse", "--is-bare-repository") if path.is_dir() else None
    if bare is None or bare.returncode:
        raise GitRepositoryMissing(f"{path} is not a git repository.", hint="git init", path=str(path))
    _require_own_configuration(path)
    places = None if bare.text.strip() == "true" else locate_work_tree(path)
    query = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    found = _answer(path, *query) if can_name_commit(ref) else ""
    if not found:
        raise GitReferenceMissing(
            f"{shortened(repr(ref))} is not a commit of {path}.",
            hint=f"git -C {quoted(path)} log --oneline --all",
            ref=ref[:LONGEST_REF],
            path=str(path),
        )
    head = _answer(path, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    branch = _answer(path, "symbolic-ref", "--quiet", "--short", "HEAD") if head == found else ""
    return CodeCommit(found, branch or None, _origin(path), places)


def _require_own_configuration(path: Path) -> None:
    """Refuse a repository that came as files of another one: its configuration names programs for
    git to start.

    No clone carries a `.git`, but it may carry a folder that is built like one. So a repository
    outside of any `.git` must not lie in another one's work tree. Raises `AccessDenied`.
    """
    folder, common = _folders(path) or (path, path)
    if ".git" in folder.parts or (
        folder.is_relative_to(common) and _folders(common.parent) in (None, (common, common))
    ):
        return
    raise AccessDenied(
        f"{folder} is a git repository that lies among the files of another one: whoever wrote them says what git starts there.",
        hint=f"git clone {quoted(folder)} DIR   (and name that, if you know whose it is)",
        path=str(path),
    )


def _folders(path: Path) -> tuple[Path, Path] | None:
    """The git directory and the common one of the repository around a folder, links resolved, or
    None.
    """
    done = run_git_in(path, "rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir")
    if done.returncode:
        return None
    folder, common = (Path(os.fsdecode(line)).resolve() for line in done.stdout.removesuffix(b"\n").split(b"\n"))
    return folder, common


def read_origin_url(places: Places) -> str:
    """The URL of the remote `origin` without credentials; empty where there is none."""
    return _origin(places.top)


def _origin(path: Path) -> str:
    return _CREDENTIALS.sub(r"\1", _answer(path, "config", "--get", "remote.origin.url"))


def _answer(path: Path, *arguments: str) -> str:
    done = run_git_in(path, *arguments, bounded=True)
    return done.text.strip() if done.returncode == 0 else ""
