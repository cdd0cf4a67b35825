"""Refs and HEAD: the names that people see (branches, tags, branches of remotes), the tracking
branches that say where code was pushed to, what the work trees hold that no ref and no reflog
names, where HEAD points, and what git is in the middle of.

HEAD and its state are read from git's files, in microseconds.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from vmrag_link.errors import GitFailed
from vmrag_link.git.run import check_git, run_git
from vmrag_link.models import Record
from vmrag_link.paths import JJ_WORKSPACES, PIN_NAME, PIN_READ_LIMIT, Places, read_regular

BRANCHES = "refs/heads/"
COMMIT_NAME = r"[0-9a-f]{40}(?:[0-9a-f]{24})?"
"""The pattern of a full hash, SHA-1 or SHA-256, of a commit or any other of git's objects."""

_NAME = COMMIT_NAME.encode()
_REFTABLE = b"ref: refs/heads/.invalid"  # what HEAD says where refs are not files

_TO_GIVE_UP = " (git status names the way to give it up, which costs what was staged since)"
_HINTS = {
    "rebase": "git rebase --continue" + _TO_GIVE_UP,
    "am": "git am --continue" + _TO_GIVE_UP,
    "merge": "git commit" + _TO_GIVE_UP,
    "cherry-pick": "git cherry-pick --continue" + _TO_GIVE_UP,
    "revert": "git revert --continue" + _TO_GIVE_UP,
    "bisect": "git bisect reset",
}


class Head(Record, frozen=True):
    """`symbolic` such as `refs/heads/main`, None when detached.

    `commit`: full hash, None on an unborn branch.
    """

    symbolic: str | None
    commit: str | None

    @property
    def branch(self) -> str | None:
        return None if self.symbolic is None else self.symbolic.removeprefix(BRANCHES)


def read_head(places: Places) -> Head:
    """HEAD of this work tree. git itself is asked only where its files are not enough."""
    try:
        content = (places.git_dir / "HEAD").read_bytes().rstrip()
    except OSError as error:
        raise GitFailed(f"Cannot read HEAD: {error}", hint="git fsck") from error
    if re.fullmatch(_NAME, content):
        return Head(None, content.decode())
    symbolic = content.removeprefix(b"ref:").strip()
    if content == _REFTABLE or not symbolic.startswith(BRANCHES.encode()):
        return _ask_git(places)
    commit = _loose(places.common, symbolic)
    if commit is None:  # looked up after the loose file: git packs a ref first and removes the file then
        commit = _packed_ref(places.common, symbolic)
    elif not re.fullmatch(_NAME, commit):  # a branch that points to another one
        return _ask_git(places)
    return Head(os.fsdecode(symbolic), commit.decode() if commit else None)


def read_ref(places: Places, ref: str) -> str | None:
    """The object that a full name such as `refs/tags/v1` names; None for no such ref."""
    name = os.fsencode(ref)
    found = _loose(places.common, name) or _packed_ref(places.common, name)
    if found and re.fullmatch(_NAME, found):
        return found.decode()
    if found is None and not (places.common / "reftable").exists():
        return None
    return run_git(places, "rev-parse", "--verify", "--quiet", "--end-of-options", ref).text.strip() or None


def _loose(common: Path, ref: bytes) -> bytes | None:
    try:
        return (common / os.fsdecode(ref)).read_bytes().rstrip()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def _packed_ref(common: Path, ref: bytes) -> bytes | None:
    try:
        lines = (common / "packed-refs").read_bytes()
    except FileNotFoundError:
        return None
    found = re.search(rb"^(" + _NAME + rb") " + re.escape(ref) + rb"$", lines, re.MULTILINE) if ref in lines else None
    return found and found[1]


def _ask_git(places: Places) -> Head:
    name = run_git(places, "symbolic-ref", "--quiet", "HEAD")
    commit = run_git(places, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    if name.returncode != 0 and commit.returncode != 0:
        check_git(places, "rev-parse", "HEAD")  # neither branch nor commit: let git say why
    return Head(name.text.strip() or None, commit.text.strip() or None)


def is_index_locked(places: Places) -> bool:
    """Whether git writes the index right now (or died doing so)."""
    return (places.git_dir / "index.lock").exists()


def find_operation(places: Places) -> str | None:
    """The operation that git is in the middle of: rebase, am, merge, cherry-pick, revert, bisect,
    or None.
    """
    own = places.git_dir
    if (own / "rebase-merge").is_dir():
        return "rebase"  # first: a rebase that stops leaves CHERRY_PICK_HEAD, too
    if (own / "rebase-apply").is_dir():
        return "am" if (own / "rebase-apply" / "applying").exists() else "rebase"
    for name, what in (("MERGE_HEAD", "merge"), ("CHERRY_PICK_HEAD", "cherry-pick"), ("REVERT_HEAD", "revert")):
        if (own / name).exists():
            return what
    return _sequence(own) or ("bisect" if (own / "BISECT_LOG").exists() else None)


def _sequence(own: Path) -> str | None:
    """A cherry-pick or revert of several commits, between two of them."""
    try:
        todo = (own / "sequencer" / "todo").read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return "revert" if todo.startswith((b"revert", b"r ")) else "cherry-pick"


def operation_hint(what: str) -> str:
    """The commands that end what `busy` named."""
    return _HINTS[what]


REMOTES = "refs/remotes/"
_TAGS = "refs/tags/"
_FORMAT = "%(refname)%00%(objectname)%00%(*objectname)%00%(symref)"


def list_tips(places: Places) -> dict[str, str]:
    """What each name stands on, in the order in which git decorates its log: `main`, `tag: v1`,
    `origin/main`. Names that only point to others, such as `origin/HEAD`, are left out.
    """
    text = check_git(places, "for-each-ref", f"--format={_FORMAT}", BRANCHES, _TAGS, REMOTES).text
    found = (line.split("\0") for line in text.splitlines())
    known = {name: peeled or commit for name, commit, peeled, symbolic in found if not symbolic}
    shown = (
        (_decoration(name), commit)
        for prefix in (BRANCHES, _TAGS, REMOTES)
        for name, commit in known.items()
        if name.startswith(prefix)
    )
    return dict(shown)


def _decoration(ref: str) -> str:
    if ref.startswith(_TAGS):
        return f"tag: {ref.removeprefix(_TAGS)}"
    return ref.removeprefix(BRANCHES).removeprefix(REMOTES)


_SETTLED_SECONDS = 1.0
"""Two changes within one tick of the file system's clock look alike."""


def list_pushed_branches(places: Places) -> dict[str, str]:
    """The tracking branches that are called as a branch here, with their commits."""
    lines = check_git(places, "for-each-ref", "--format=%(objectname) %(refname)", BRANCHES, REMOTES).text.splitlines()
    refs = {name: commit for commit, _, name in (line.partition(" ") for line in lines)}
    here = {name.removeprefix(BRANCHES) for name in refs if name.startswith(BRANCHES)}
    return {name: commit for name, commit in refs.items() if name.startswith(REMOTES) and _branch_of(name) in here}


def _branch_of(tracking: str) -> str:
    """A remote's name may have slashes, which git advises against: it then counts as another."""
    return tracking.removeprefix(REMOTES).partition("/")[2]


def read_stamp(places: Places) -> str:
    """A text that changes when a tracking branch does; empty where that cannot be told yet."""
    common = places.common
    files = [common / "packed-refs", common / "reftable" / "tables.list", *_folders(common / REMOTES)]
    found = [(str(path), at) for path in files if (at := _changed_ns(path))]
    if any(time.time_ns() - at < _SETTLED_SECONDS * 1e9 for _, at in found):
        return ""
    return "\n".join(f"{at} {path}" for path, at in found) or "none"


def _folders(top: Path) -> list[Path]:
    return [Path(folder) for folder, _, _ in os.walk(top)]


def _changed_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        return 0


_COMMIT = rf"(?m)^{COMMIT_NAME}\b".encode()
# What a merge, rebase, bisect or fetch will go on with, or back to.
_NOTES = ("*_HEAD", "MERGE_AUTOSTASH", "rebase-*/orig-head", "rebase-*/onto", "rebase-*/autostash")
_OWN_REFS = ("refs/bisect/*", "refs/worktree/*", "refs/rewritten/*")  # `--all` knows those of one work tree only


def list_git_dirs(places: Places) -> list[Path]:
    """The main (or bare) repository's work tree and each linked one, whether its directory exists
    or not.
    """
    return [places.common, *sorted(head.parent for head in places.common.glob("worktrees/*/HEAD"))]


def list_tops(places: Places) -> list[Path]:
    """The directories of the work trees that are there now."""
    listed = (Path(value) for key, value in _worktree_list(places) if key == "worktree")
    return [places.top, *(top for top in listed if top != places.top and (top / ".git").exists())]


def list_code_branches(places: Places) -> set[str]:
    """Every branch, also unborn ones of work trees, which their next commit creates."""
    born = check_git(places, "for-each-ref", "--format=%(refname)", BRANCHES).text.splitlines()
    checked_out = (value for key, value in _worktree_list(places) if key == "branch")
    return {name.removeprefix(BRANCHES) for name in (*born, *checked_out)}


def list_checked_out(places: Places) -> set[str]:
    """The code branches of the work trees that are there now."""
    found, there = set[str](), False
    for key, value in _worktree_list(places):
        there = (Path(value) / ".git").exists() if key == "worktree" else there
        if key == "branch" and there:
            found.add(value.removeprefix(BRANCHES))
    return found


def _worktree_list(places: Places) -> Iterator[tuple[str, str]]:
    for line in check_git(places, "worktree", "list", "--porcelain").text.splitlines():
        key, _, value = line.partition(" ")
        yield key, value


def list_noted_commits(places: Places) -> list[str]:
    """Commits that git noted outside of refs and reflogs for operations under way in any work tree.

    Some may be gone, or be other objects.
    """
    found: dict[str, None] = {}
    for folder in list_git_dirs(places):
        for pattern in (*_NOTES, *_OWN_REFS):
            for path in folder.glob(pattern):
                if path.is_file():
                    found.update(dict.fromkeys(name.decode() for name in re.findall(_COMMIT, path.read_bytes())))
    return list(found)


def list_uncommitted_pins(places: Places) -> list[bytes]:
    """Every `.dolt-version` in the index of a work tree (every stage of a conflict) and in work
    trees; of a workspace of jj's (`jj`) what is staged.
    """
    found: dict[bytes, None] = {}
    for folder in (*list_git_dirs(places), *(head.parent for head in places.common.glob(f"{JJ_WORKSPACES}/*/HEAD"))):
        # The repository of a jj workspace is untrusted: its monitor of files may be any program.
        list_pin = ("-c", "core.fsmonitor=false", "ls-files", "--stage", "-z", "--", PIN_NAME)
        staged = check_git(places._replace(git_dir=folder), *list_pin)
        for entry in filter(None, staged.stdout.split(b"\0")):
            found[check_git(places, "cat-file", "blob", entry.split(b" ")[1].decode()).stdout[:PIN_READ_LIMIT]] = None
    for top in list_tops(places):
        try:
            found[read_regular(top / PIN_NAME, PIN_READ_LIMIT)] = None
        except OSError:
            continue  # not there, or something that cannot be a pin
    return list(found)


def list_refs(places: Places, prefix: str) -> list[str]:
    """The names of this repository's refs below a prefix."""
    return check_git(places, "for-each-ref", "--format=%(refname)", prefix).text.split()
