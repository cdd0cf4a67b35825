"""Find the work tree around a directory, or raise an error that explains why none exists.

Other modules call `plumbing.locate_work_tree`. In a jj workspace without `.git`, `jj` finds it. If
git cannot read the file that `hook_config` wrote for it, that file is repaired here, because no
other git command would work.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from vmrag_link.errors import GitConfigInvalid, GitFailed, GitRepositoryMissing, quoted
from vmrag_link.file_access import read_regular
from vmrag_link.git.run import build_failure, run_git_in
from vmrag_link.paths import Places

_NO_HOOKS_PATH = "empty string is not a valid path"  # for `core.hooksPath =`, which some users set to disable hooks
_BAD_CONFIG = (
    r"(?i)bad config |bad [a-z]+ config value|bad config file|unable to access '[^'\n]*config[^'\n]*'"
    r"|maximum include depth|expected git repo version|unknown repository extension|invalid (?:section|key|value) .*config"
)
_CORRECT_CONFIG = "correct .git/config or the file in this message in an editor, or restore it from a backup"
_LINK = rb"(?s)gitdir: (?P<repository>.+)/worktrees/[^/]+\n?"
"""Content of the `.git` of a linked work tree."""
_MAX_LINK_BYTES = 4096


def locate_work_tree(start: Path, *, repair: bool = True) -> Places:
    """Return the work tree around a directory and its hooks directory, with one git call. Linked
    work trees, submodules and jj workspaces are included.

    In a bare repository with work trees, and in the folder that contains both, it is the work tree
    of HEAD's branch, else the first one.

    If the hooks file that git includes is damaged, no git command works. Then the file is written
    again, unless `repair` is false. Raises `GitRepositoryMissing` outside of a repository and in
    another bare one, `GitConfigInvalid` if git cannot read its configuration, and `GitFailed` if
    git refuses.
    """
    if not start.is_dir():
        raise GitRepositoryMissing(f"{start} is not a directory.", hint="name a directory inside a git working tree")
    arguments = ("rev-parse", "--path-format=absolute", "--show-toplevel", "--git-dir", "--git-common-dir")
    finished = run_git_in(start, *arguments, "--git-path", "hooks")
    if _NO_HOOKS_PATH in finished.error_text:
        finished = run_git_in(start, *arguments)
    if finished.returncode == 0:
        lines = finished.stdout.removesuffix(b"\n").split(b"\n")
        if len(lines) not in (3, 4):  # without and with the hooks directory
            raise GitFailed(f"the path {str(start)!r} has a line break in it.", hint="rename the directory")
        top, git_dir, common, *hooks = (Path(os.fsdecode(line)) for line in lines)
        return Places(top, git_dir, common, hooks=hooks[0] if hooks else None)
    complaint = finished.error_text
    if _repair_configuration(start, complaint, repair=repair):
        return locate_work_tree(start, repair=False)
    if "not a git repository" in complaint:
        return _locate_without_git(start)
    if "must be run in a work tree" in complaint:
        return _locate_in_container(start)
    configure = re.search(r"git config --global --add safe\.directory .+", complaint)
    raise build_failure(arguments, finished, hint=f"run '{configure[0]}' to trust this repository" if configure else "")


def _locate_without_git(start: Path) -> Places:
    """Return the jj workspace around a directory in which git finds no repository.

    Raises `GitRepositoryMissing`.
    """
    if lost := _find_lost_link(start):
        raise lost
    from vmrag_link.git import jj

    if workspace := jj.locate_workspace(start):
        return workspace
    raise GitRepositoryMissing(
        f"{start} is not in a git repository.",
        hint="change to a folder of your repository, or run 'git init' to create one",
        path=str(start),
    )


def _locate_in_container(start: Path) -> Places:
    """Return the work tree that commands work on in a bare repository. Raises
    `GitRepositoryMissing` if it has none.
    """
    if tree := _find_work_tree(start):
        return tree
    raise GitRepositoryMissing(
        f"{start} is in a git repository, but not in a working tree (the repository is bare, or this is inside .git).",
        hint="run the command in a working tree, or run 'git worktree add DIR BRANCH' to add one to a bare repository",
        path=str(start),
    )


def _find_work_tree(start: Path) -> Places | None:
    """Return the work tree of HEAD's branch in a bare repository, else the first one, or None."""
    listing = run_git_in(start, "worktree", "list", "--porcelain").text
    blocks = [dict(line.partition(" ")[::2] for line in block.splitlines()) for block in listing.split("\n\n") if block]
    repository, *trees = blocks or [{}]
    trees = [tree for tree in trees if Path(tree["worktree"], ".git").exists()]
    if "bare" not in repository or not trees:
        return None
    branch = run_git_in(start, "symbolic-ref", "--quiet", "HEAD").text.strip()
    chosen = next((tree for tree in trees if tree.get("branch") == branch), trees[0])
    places = locate_work_tree(Path(chosen["worktree"]))
    common = run_git_in(start, "rev-parse", "--path-format=absolute", "--git-common-dir").stdout.removesuffix(b"\n")
    # A bare repository may name any folder as its work tree, so the folder must name the
    # repository.
    return places if places.common.samefile(os.fsdecode(common)) else None


def _repair_configuration(start: Path, complaint: str, *, repair: bool) -> bool:
    """Rewrite the hooks file that git includes, if `complaint` is about it. Returns False if it is
    not about git's configuration.

    Raises `GitConfigInvalid` if another file is damaged, and without `repair`.
    """
    if damaged := _find_damaged_hook_config(start, complaint):
        if not repair:
            raise _build_configuration_error(complaint, hint="run 'vmrag doctor --fix' to repair it", repairable=True)
        from vmrag_link.git import hook_config

        hook_config.rebuild_config(damaged)
        return True
    if re.search(_BAD_CONFIG, complaint):
        raise _build_configuration_error(complaint, hint=_CORRECT_CONFIG)
    return False


def _build_configuration_error(complaint: str, *, hint: str, repairable: bool = False) -> GitConfigInvalid:
    reason = re.sub(r"^(?:fatal|error|warning): |\s+(?=\s)", "", complaint.replace("\n", " ")).strip()
    return GitConfigInvalid(
        f"git cannot read its configuration: {reason}", hint=hint, said=complaint, repairable=repairable
    )


def _find_damaged_hook_config(start: Path, complaint: str) -> Path | None:
    """Return the hooks file that git includes, if git complains about it. git itself does not run
    then.
    """
    from vmrag_link.git import hook_config  # rarely needed, and a checkout waits for imports

    if hook_config.INCLUDED_FILE not in complaint:
        return None
    for folder in (start, *start.parents):
        if common := _find_common_folder(folder / ".git"):
            path = common / hook_config.INCLUDED_FILE
            return path if path.is_file() else None
    return None


def _find_common_folder(git: Path) -> Path | None:
    """Return the common git directory of the working tree to which this `.git` belongs."""
    if git.is_dir():
        return git
    with contextlib.suppress(OSError):
        link = read_regular(git, _MAX_LINK_BYTES)
        folder = git.parent / os.fsdecode(link.removeprefix(b"gitdir: ").strip())
        try:
            return folder / os.fsdecode(read_regular(folder / "commondir", _MAX_LINK_BYTES).strip())
        except FileNotFoundError:
            return folder if link.startswith(b"gitdir: ") else None
    return None


def _find_lost_link(start: Path) -> GitRepositoryMissing | None:
    """Return the error for a linked work tree whose repository was moved without the link."""
    for folder in (start, *start.parents):
        try:
            link = re.fullmatch(_LINK, read_regular(folder / ".git", _MAX_LINK_BYTES))
        except OSError:
            continue
        if link is None:
            return None
        before = os.fsdecode(link["repository"])
        return GitRepositoryMissing(
            f"{folder} is a linked worktree of {before}, which was moved or does not list it.",
            hint=f"run 'git -C PATH_OF_THE_REPOSITORY worktree repair {quoted(folder)}' to link it again",
            path=str(folder),
        )
    return None
