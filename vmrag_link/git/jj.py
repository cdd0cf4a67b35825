"""Workspaces of jj (Jujutsu) that have no `.git`.

jj is not run: it would take a snapshot of the folder. Its own files say which git repository is a
workspace's, and which commit is checked out. They may be a stranger's. They are read only where git
found nothing and the folder is this user's; names of objects are nothing but that, and git itself
decides whether the repository that they name may be used, by its owner and `safe.bareRepository`.
Its hooks, filters and remotes are untrusted. So every git call in such a workspace is
guarded as in `git.beside`: here, and in `git.run.git` for all other modules.

git gets a directory for the workspace below ours, as it has one for each linked work tree: a HEAD,
which as jj does it is the parent of the working copy's commit, and an index with what that commit
holds.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from vmrag_link import env
from vmrag_link.errors import GitFailed, GitRepositoryMissing, quoted
from vmrag_link.git.beside import run_readonly
from vmrag_link.git.refs import COMMIT_NAME
from vmrag_link.git.run import GUARDS, run_git_in
from vmrag_link.paths import JJ_WORKSPACES, PIN_NAME, Places, read_regular, write_atomically
from vmrag_link.permissions import make_folder

_FOLDER = ".jj"
_CONFLICT = ".jjconflict"
_LONGEST_PATH = 4096
_FATAL = 128
_MOST = 16_000_000
"""Bytes of a file of jj's; a view names each bookmark and each head."""

_STATED = "checkout"
"""In our directory: what jj's file of that name said when HEAD and index were made."""

_BARE_REFUSED = "safe.bareRepository"
_BARE_HINT = "jj git colocation enable   (in the workspace that has the repository: git finds its .git then)"

_OPERATION, _NAME = 2, 3  # of Checkout, in jj's local_working_copy.proto
_VIEW_OF_OPERATION, _COMMITS_OF_VIEW = 1, 8  # in its simple_op_store.proto
_KEY, _VALUE = 1, 2


def locate_workspace(start: Path) -> Places | None:
    """The workspace around a folder in which git has found nothing; None where jj has none either.

    Raises `GitRepositoryMissing` for one that cannot be read.
    """
    folder = start.resolve()
    top = next((parent for parent in (folder, *folder.parents) if (parent / _FOLDER).is_dir()), None)
    if top is None:
        return None
    try:
        repo = _repository(top)
        common = _git_directory(repo)
        own = common / JJ_WORKSPACES / hashlib.sha256(os.fsencode(top)).hexdigest()[:16]
        places = Places(top, own, common)
        _bring(places, repo)
    except (OSError, ValueError, LookupError, GitFailed) as why:
        raise GitRepositoryMissing(
            f"{top} is a workspace of jj whose git repository cannot be read ({why}).",
            hint=_BARE_HINT
            if _BARE_REFUSED in str(why)
            else "jj git root   (then work in the folder of jj's that has a .git)",
            path=str(top),
        ) from why
    return places


def main_folder_hint(places: Places, command: str) -> str:
    """Return the command for the folder that has the `.git`."""
    if places.common.name == ".git":
        return f"cd {quoted(places.common.parent)} && {command}"
    return f"jj git colocation enable   (in the workspace that has the repository, then: {command})"


def _repository(top: Path) -> Path:
    """The folder `repo`, which another workspace may have."""
    folder = top / _FOLDER
    for each in (top, folder):
        if each.lstat().st_uid != os.geteuid():
            raise ValueError(f"{each} belongs to another user")
    repo = folder / "repo"
    if not repo.is_dir():
        repo = folder / os.fsdecode(read_regular(repo, _LONGEST_PATH))
    return repo.resolve(strict=True)


def _git_directory(repo: Path) -> Path:
    store = repo / "store"
    folder = (store / os.fsdecode(read_regular(store / "git_target", _LONGEST_PATH))).resolve(strict=True)
    if not folder.is_dir():
        raise ValueError(f"{folder} is no directory")
    asked = ("rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir")
    # git finds it and is not told its name: so git checks its owner and `safe.bareRepository`.
    done = run_git_in(folder, *GUARDS, *asked, extra=env.GIT_OFFLINE)
    lines = done.stdout.removesuffix(b"\n").split(b"\n")
    if done.returncode or len(lines) != 2:  # noqa: PLR2004  what was asked
        raise ValueError(done.failure)
    own, common = (Path(os.fsdecode(line)).resolve() for line in lines)
    if own != folder:
        raise ValueError(f"{folder} is no git directory")
    return common


def _bring(places: Places, repo: Path) -> None:
    """HEAD and index as jj has left the workspace; nothing where that is known already."""
    own, stated = places.git_dir, read_regular(places.top / _FOLDER / "working_copy" / "checkout", _LONGEST_PATH)
    with contextlib.suppress(OSError):
        if read_regular(own / _STATED, _LONGEST_PATH) == stated:
            return
    commit, by_common = _checked_out(repo, stated), places._replace(git_dir=places.common)
    parent = _object_name(by_common, f"{commit}^1")
    make_folder(own)
    fresh = own / f"index-{os.getpid()}"
    run_readonly(by_common, "read-tree", commit, index_file=fresh)
    _stage_conflict(by_common, commit, fresh)
    fresh.replace(own / "index")
    write_atomically(own / "commondir", b"../../..\n", durable=False)
    write_atomically(own / "HEAD", (parent or commit).encode() + b"\n", durable=False)
    write_atomically(own / _STATED, stated, durable=False)


def _stage_conflict(places: Places, commit: str, index: Path) -> None:
    """Stage the pin's versions, as jj itself does it where it shares a folder with git."""
    versions = [f"{commit}:{_CONFLICT}-{which}/{PIN_NAME}" for which in ("base-0", "side-0", "side-1")]
    blobs = [_object_name(places, version) for version in versions]
    if len({*blobs}) == len(blobs) and all(blobs):
        gone = f"0 {'0' * len(commit)}\t{PIN_NAME}\n"
        stages = "".join(f"100644 {blob} {number}\t{PIN_NAME}\n" for number, blob in enumerate(blobs, 1))
        run_readonly(places, "update-index", "--index-info", stdin=(gone + stages).encode(), index_file=index)


def _object_name(places: Places, spec: str) -> str:
    """Return the hash of an object, or an empty text if the repository does not have it."""
    return run_readonly(places, "rev-parse", "--verify", "--quiet", spec, fine=(0, 1, _FATAL)).text.strip()


def _checked_out(repo: Path, stated: bytes) -> str:
    """The working copy's commit: that of the workspace's name in the view of its operation."""
    said, store = dict(_fields(stated)), repo / "op_store"
    operation = dict(_fields(read_regular(store / "operations" / said[_OPERATION].hex(), _MOST)))
    view = read_regular(store / "views" / operation[_VIEW_OF_OPERATION].hex(), _MOST)
    for number, entry in _fields(view):
        if number == _COMMITS_OF_VIEW:
            named = dict(_fields(entry))
            if named.get(_KEY) == said[_NAME] and re.fullmatch(COMMIT_NAME, named[_VALUE].hex()):
                return named[_VALUE].hex()
    raise ValueError("no commit is checked out in it")


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Texts, bytes and messages in a message of protobuf, by number."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        match key & 7:
            case 0:
                _, at = _varint(message, at)
            case 1 | 5 as fixed:
                at += 8 if fixed == 1 else 4
            case 2:
                size, at = _varint(message, at)
                if at + size > len(message):
                    raise ValueError("a file of jj's is cut off")
                yield key >> 3, message[at : at + size]
                at += size
            case _:
                raise ValueError("a file of jj's has another form")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        value |= (message[at] & 0x7F) << shift
        at += 1
        if message[at - 1] < 0x80:  # noqa: PLR2004  the last byte
            return value, at
    raise ValueError("a file of jj's has another form")
