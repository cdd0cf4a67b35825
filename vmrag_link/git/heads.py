"""Where HEAD points, and what git is in the middle of: read from git's files, in microseconds."""

from __future__ import annotations

import os
import re
from pathlib import Path

from vmrag_link.errors import GitFailed
from vmrag_link.git.run import demand, git
from vmrag_link.models import Record
from vmrag_link.paths import Places

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


def head(places: Places) -> Head:
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


def stands_at(places: Places, ref: str) -> str | None:
    """The object that a full name such as `refs/tags/v1` names; None for no such ref."""
    name = os.fsencode(ref)
    found = _loose(places.common, name) or _packed_ref(places.common, name)
    if found and re.fullmatch(_NAME, found):
        return found.decode()
    if found is None and not (places.common / "reftable").exists():
        return None
    return git(places, "rev-parse", "--verify", "--quiet", "--end-of-options", ref).text.strip() or None


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
    name = git(places, "symbolic-ref", "--quiet", "HEAD")
    commit = git(places, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    if name.returncode != 0 and commit.returncode != 0:
        demand(places, "rev-parse", "HEAD")  # neither branch nor commit: let git say why
    return Head(name.text.strip() or None, commit.text.strip() or None)


def index_locked(places: Places) -> bool:
    """Whether git writes the index right now (or died doing so)."""
    return (places.git_dir / "index.lock").exists()


def busy(places: Places) -> str | None:
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


def busy_hint(what: str) -> str:
    """The commands that end what `busy` named."""
    return _HINTS[what]
