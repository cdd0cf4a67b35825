"""Refs and HEAD: the names that users see (branches, tags, remote branches), the tracking branches,
the content of work trees that no ref and no reflog names, the target of HEAD, and the git operation
in progress.

HEAD and its state are read from git's files, in microseconds.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from vmrag_link import hints
from vmrag_link.errors import GitFailed
from vmrag_link.file_access import read_regular
from vmrag_link.git.run import check_git, run_git
from vmrag_link.models import Record
from vmrag_link.paths import JJ_WORKSPACES, PIN_NAME, PIN_READ_LIMIT, Places

BRANCHES = "refs/heads/"
REMOTES = "refs/remotes/"
COMMIT_NAME = r"[0-9a-f]{40}(?:[0-9a-f]{24})?"
"""Pattern of a full hash, SHA-1 or SHA-256, of any git object."""

_TAGS = "refs/tags/"
_TIP_FORMAT = "%(refname)%00%(objectname)%00%(*objectname)%00%(symref)"
_NAME = COMMIT_NAME.encode()
_NAME_AT_LINE_START = rf"(?m)^{COMMIT_NAME}\b".encode()
_REFTABLE = b"ref: refs/heads/.invalid"  # content of HEAD if refs are not files

_FINISH_COMMANDS = {
    "rebase": "git rebase --continue",
    "am": "git am --continue",
    "merge": "git commit",
    "cherry-pick": "git cherry-pick --continue",
    "revert": "git revert --continue",
    "bisect": "git bisect reset",
}

# Files with the commits with which a merge, rebase, bisect or fetch continues, or to which it
# returns.
_OPERATION_FILES = ("*_HEAD", "MERGE_AUTOSTASH", "rebase-*/orig-head", "rebase-*/onto", "rebase-*/autostash")
_OWN_REFS = ("refs/bisect/*", "refs/worktree/*", "refs/rewritten/*")  # `--all` includes those of one work tree only

_SETTLED_SECONDS = 1.0
"""Two changes within one tick of the file system's clock have the same time."""


class Head(Record, frozen=True):
    """HEAD of a work tree.

    `symbolic` such as `refs/heads/main`, None if detached.
    """

    symbolic: str | None
    commit: str | None
    """Full hash, None on an unborn branch."""

    @property
    def branch(self) -> str | None:
        return None if self.symbolic is None else self.symbolic.removeprefix(BRANCHES)


def read_head(places: Places) -> Head:
    """Return HEAD of this work tree. A git process is started only if git's files are not enough.

    Raises `GitFailed`.
    """
    try:
        content = (places.git_dir / "HEAD").read_bytes().rstrip()
    except OSError as error:
        raise GitFailed(f"cannot read HEAD: {error}", hint="run 'git fsck' to find damaged objects") from error
    if re.fullmatch(_NAME, content):
        return Head(None, content.decode())
    symbolic = content.removeprefix(b"ref:").strip()
    if content == _REFTABLE or not symbolic.startswith(BRANCHES.encode()):
        return _read_head_by_git(places)
    commit = _read_loose_ref(places.common, symbolic)
    if commit is None:  # read after the loose file, because git packs a ref before it removes the file
        commit = _read_packed_ref(places.common, symbolic)
    elif not re.fullmatch(_NAME, commit):  # a branch that points to another one
        return _read_head_by_git(places)
    return Head(os.fsdecode(symbolic), commit.decode() if commit else None)


def read_ref(places: Places, ref: str) -> str | None:
    """Return the object that a full name such as `refs/tags/v1` points to, or None if the ref does
    not exist.
    """
    name = os.fsencode(ref)
    object_name = _read_loose_ref(places.common, name) or _read_packed_ref(places.common, name)
    if object_name and re.fullmatch(_NAME, object_name):
        return object_name.decode()
    if object_name is None and not (places.common / "reftable").exists():
        return None
    return run_git(places, "rev-parse", "--verify", "--quiet", "--end-of-options", ref).text.strip() or None


def _read_loose_ref(common: Path, ref: bytes) -> bytes | None:
    try:
        return (common / os.fsdecode(ref)).read_bytes().rstrip()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def _read_packed_ref(common: Path, ref: bytes) -> bytes | None:
    try:
        lines = (common / "packed-refs").read_bytes()
    except FileNotFoundError:
        return None
    match = re.search(rb"^(" + _NAME + rb") " + re.escape(ref) + rb"$", lines, re.MULTILINE) if ref in lines else None
    return match and match[1]


def _read_head_by_git(places: Places) -> Head:
    name = run_git(places, "symbolic-ref", "--quiet", "HEAD")
    commit = run_git(places, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    if name.returncode != 0 and commit.returncode != 0:
        check_git(places, "rev-parse", "HEAD")  # neither branch nor commit: raises with git's reason
    return Head(name.text.strip() or None, commit.text.strip() or None)


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


def list_tips(places: Places) -> dict[str, str]:
    """Return the commit of each name, in the order in which git decorates its log: `main`, `tag:
    v1`, `origin/main`.

    Symbolic names such as `origin/HEAD` are left out.
    """
    text = check_git(places, "for-each-ref", f"--format={_TIP_FORMAT}", BRANCHES, _TAGS, REMOTES).text
    refs = (line.split("\0") for line in text.splitlines())
    commits = {name: peeled or commit for name, commit, peeled, symbolic in refs if not symbolic}
    decorated = (
        (_decorate_ref(name), commit)
        for prefix in (BRANCHES, _TAGS, REMOTES)
        for name, commit in commits.items()
        if name.startswith(prefix)
    )
    return dict(decorated)


def _decorate_ref(ref: str) -> str:
    if ref.startswith(_TAGS):
        return f"tag: {ref.removeprefix(_TAGS)}"
    return ref.removeprefix(BRANCHES).removeprefix(REMOTES)


def list_pushed_branches(places: Places) -> dict[str, str]:
    """Return the tracking branches that have the name of a local branch, with their commits."""
    lines = check_git(places, "for-each-ref", "--format=%(objectname) %(refname)", BRANCHES, REMOTES).text.splitlines()
    refs = {name: commit for commit, _, name in (line.partition(" ") for line in lines)}
    local = {name.removeprefix(BRANCHES) for name in refs if name.startswith(BRANCHES)}
    return {name: commit for name, commit in refs.items() if name.startswith(REMOTES) and _get_branch(name) in local}


def _get_branch(tracking: str) -> str:
    """Return the branch of a tracking branch. The name of a remote with slashes, which git advises
    against, is cut at the first slash.
    """
    return tracking.removeprefix(REMOTES).partition("/")[2]


def read_stamp(places: Places) -> str:
    """Return a text that changes when a tracking branch does. Empty if a change is too recent to
    tell.
    """
    common = places.common
    folders = (Path(folder) for folder, _, _ in os.walk(common / REMOTES))
    files = [common / "packed-refs", common / "reftable" / "tables.list", *folders]
    times = [(str(path), changed) for path in files if (changed := _read_changed_ns(path))]
    if any(time.time_ns() - changed < _SETTLED_SECONDS * 1e9 for _, changed in times):
        return ""
    return "\n".join(f"{changed} {path}" for path, changed in times) or "none"


def _read_changed_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        return 0


def list_git_dirs(places: Places) -> list[Path]:
    """Return the git directories of the main work tree (or the bare repository) and of each linked
    one, whether its directory exists or not.
    """
    return [places.common, *sorted(head.parent for head in places.common.glob("worktrees/*/HEAD"))]


def list_work_trees(places: Places) -> list[Path]:
    """Return the directories of the existing work trees."""
    tops = (Path(value) for key, value in _list_worktree_lines(places) if key == "worktree")
    return [places.top, *(top for top in tops if top != places.top and (top / ".git").exists())]


def list_code_branches(places: Places) -> set[str]:
    """Return all branches, including unborn ones of work trees, which their next commit creates."""
    existing = check_git(places, "for-each-ref", "--format=%(refname)", BRANCHES).text.splitlines()
    checked_out = (value for key, value in _list_worktree_lines(places) if key == "branch")
    return {name.removeprefix(BRANCHES) for name in (*existing, *checked_out)}


def list_checked_out(places: Places) -> set[str]:
    """Return the code branches of the existing work trees."""
    branches, exists = set[str](), False
    for key, value in _list_worktree_lines(places):
        exists = (Path(value) / ".git").exists() if key == "worktree" else exists
        if key == "branch" and exists:
            branches.add(value.removeprefix(BRANCHES))
    return branches


def _list_worktree_lines(places: Places) -> Iterator[tuple[str, str]]:
    for line in check_git(places, "worktree", "list", "--porcelain").text.splitlines():
        key, _, value = line.partition(" ")
        yield key, value


def list_noted_commits(places: Places) -> list[str]:
    """Return the commits that git noted for operations in progress in any work tree: outside of
    refs and reflogs, or in the refs of a single work tree.

    Some may be missing, or be other objects.
    """
    names: dict[str, None] = {}
    for folder in list_git_dirs(places):
        for pattern in (*_OPERATION_FILES, *_OWN_REFS):
            for path in folder.glob(pattern):
                if path.is_file():
                    matches = re.findall(_NAME_AT_LINE_START, path.read_bytes())
                    names.update(dict.fromkeys(name.decode() for name in matches))
    return list(names)


def list_uncommitted_pins(places: Places) -> list[bytes]:
    """Return every `.dolt-version` in the index of a work tree, including each stage of a conflict,
    and in work trees. For a jj workspace, the staged pins are returned.
    """
    pins: dict[bytes, None] = {}
    for folder in (*list_git_dirs(places), *(head.parent for head in places.common.glob(f"{JJ_WORKSPACES}/*/HEAD"))):
        # The repository of a jj workspace is untrusted: core.fsmonitor may name any program.
        list_pin = ("-c", "core.fsmonitor=false", "ls-files", "--stage", "-z", "--", PIN_NAME)
        staged = check_git(places._replace(git_dir=folder), *list_pin)
        for entry in filter(None, staged.stdout.split(b"\0")):
            pins[check_git(places, "cat-file", "blob", entry.split(b" ")[1].decode()).stdout[:PIN_READ_LIMIT]] = None
    for top in list_work_trees(places):
        try:
            pins[read_regular(top / PIN_NAME, PIN_READ_LIMIT)] = None
        except OSError:
            continue  # missing, or not a regular file
    return list(pins)


def list_refs(places: Places, prefix: str) -> list[str]:
    """Return the names of this repository's refs below a prefix."""
    return check_git(places, "for-each-ref", "--format=%(refname)", prefix).text.split()
