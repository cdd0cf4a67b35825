"""HEAD, refs and their names: branches, tags and tracking branches.

A tracking branch is git's record of a remote's branch, such as `refs/remotes/origin/main`. HEAD and
single refs are read from git's files in microseconds, and by git itself where files are not enough.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from vmrag_link.errors import GitFailed
from vmrag_link.git.run import check_git, run_git
from vmrag_link.models import Record
from vmrag_link.paths import Places

BRANCHES = "refs/heads/"
REMOTES = "refs/remotes/"
COMMIT_NAME = r"[0-9a-f]{40}(?:[0-9a-f]{24})?"
"""Pattern of a full hash, SHA-1 or SHA-256, of any git object."""

_TAGS = "refs/tags/"
_TIP_FORMAT = "%(refname)%00%(objectname)%00%(*objectname)%00%(symref)"
_NAME = COMMIT_NAME.encode()
_REFTABLE = b"ref: refs/heads/.invalid"  # content of HEAD if refs are not files

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


def list_refs(places: Places, prefix: str) -> list[str]:
    """Return the names of this repository's refs below a prefix."""
    return check_git(places, "for-each-ref", "--format=%(refname)", prefix).text.split()
