"""Workspaces of jj (Jujutsu) that have no `.git`.

jj is not run, because it would take a snapshot of the folder. Its own files name the git repository
of a workspace and the commit that is checked out. These files may come from someone else. They are
read only if git found nothing and the folder belongs to this user. They only provide names of
objects, and git itself decides by owner and `safe.bareRepository` whether the repository may be
used. Its hooks, filters and remotes are untrusted. So each git command in such a workspace is
guarded as in `git.readonly`: here, and in `git.run.run_git` for all other modules.

git gets a directory for the workspace inside ours, like the one for each linked work tree. It
contains a HEAD, which like in jj is the parent of the working copy's commit, and an index with the
content of that commit.
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
from vmrag_link.file_access import read_regular, write_atomically
from vmrag_link.git.readonly import run_readonly
from vmrag_link.git.refs import COMMIT_NAME
from vmrag_link.git.run import GUARDS, run_git_in
from vmrag_link.paths import JJ_WORKSPACES, PIN_NAME, Places
from vmrag_link.permissions import make_folder

_FOLDER = ".jj"
_CONFLICT = ".jjconflict"
_FATAL = 128  # exit code of git
_MAX_PATH_BYTES = 4096
_MAX_FILE_BYTES = 16_000_000
"""Limit for the files of an operation: its view contains each bookmark and each head of jj."""

_CHECKOUT = "checkout"
"""jj's file that names the operation of the working copy. In our directory, a copy of it from when
HEAD and index were written.
"""

_BARE_REFUSED = "safe.bareRepository"
_BARE_HINT = "run 'jj git colocation enable' in the workspace that has the repository"

# Numbers of fields in jj's files, from its local_working_copy.proto and simple_op_store.proto.
_CHECKOUT_OPERATION = 2
_CHECKOUT_WORKSPACE = 3
_OPERATION_VIEW = 1
_VIEW_COMMITS = 8
_COMMIT_WORKSPACE = 1
_COMMIT_NAME = 2


def locate_workspace(start: Path) -> Places | None:
    """Return the jj workspace around a folder in which git has found nothing, or None.

    Raises `GitRepositoryMissing` for a workspace that cannot be read.
    """
    folder = start.resolve()
    top = next((parent for parent in (folder, *folder.parents) if (parent / _FOLDER).is_dir()), None)
    if top is None:
        return None
    try:
        repo = _find_repo(top)
        common = _find_git_directory(repo)
        git_dir = common / JJ_WORKSPACES / hashlib.sha256(os.fsencode(top)).hexdigest()[:16]
        places = Places(top, git_dir, common)
        _update_index(places, repo)
    except (OSError, ValueError, LookupError, GitFailed) as why:
        raise GitRepositoryMissing(
            f"{top} is a jj workspace whose git repository cannot be read ({why}).",
            hint=_BARE_HINT
            if _BARE_REFUSED in str(why)
            else "run 'jj git root', then work in the jj workspace that has a .git",
            path=str(top),
        ) from why
    return places


def main_folder_hint(places: Places, command: str) -> str:
    """Return the command for the folder that has the `.git`."""
    if places.common.name == ".git":
        return f"run 'cd {quoted(places.common.parent)} && {command}'"
    return f"run 'jj git colocation enable' in the workspace that has the repository, then '{command}'"


def _find_repo(top: Path) -> Path:
    """Return jj's folder `repo`, which may be in another workspace."""
    folder = top / _FOLDER
    for path in (top, folder):
        if path.lstat().st_uid != os.geteuid():
            raise ValueError(f"{path} belongs to another user")
    repo = folder / "repo"
    if not repo.is_dir():
        repo = folder / os.fsdecode(read_regular(repo, _MAX_PATH_BYTES))
    return repo.resolve(strict=True)


def _find_git_directory(repo: Path) -> Path:
    store = repo / "store"
    folder = (store / os.fsdecode(read_regular(store / "git_target", _MAX_PATH_BYTES))).resolve(strict=True)
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a directory")
    arguments = ("rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir")
    # git must find the directory itself, so that it checks the owner and `safe.bareRepository`.
    finished = run_git_in(folder, *GUARDS, *arguments, extra=env.GIT_OFFLINE)
    lines = finished.stdout.removesuffix(b"\n").split(b"\n")
    if finished.returncode or len(lines) != 2:  # noqa: PLR2004  two directories were requested
        raise ValueError(finished.failure)
    git_dir, common = (Path(os.fsdecode(line)).resolve() for line in lines)
    if git_dir != folder:
        raise ValueError(f"{folder} is not a git directory")
    return common


def _update_index(places: Places, repo: Path) -> None:
    """Write HEAD and index to match jj's working copy, unless they match already."""
    checkout = read_regular(places.top / _FOLDER / "working_copy" / _CHECKOUT, _MAX_PATH_BYTES)
    git_dir = places.git_dir
    with contextlib.suppress(OSError):
        if read_regular(git_dir / _CHECKOUT, _MAX_PATH_BYTES) == checkout:
            return
    commit = _find_commit(repo, checkout)
    repository = places._replace(git_dir=places.common)
    parent = _object_name(repository, f"{commit}^1")
    make_folder(git_dir)
    new_index = git_dir / f"index-{os.getpid()}"
    run_readonly(repository, "read-tree", commit, index_file=new_index)
    _stage_conflict(repository, commit, new_index)
    new_index.replace(git_dir / "index")
    write_atomically(git_dir / "commondir", b"../../..\n", durable=False)
    write_atomically(git_dir / "HEAD", (parent or commit).encode() + b"\n", durable=False)
    write_atomically(git_dir / _CHECKOUT, checkout, durable=False)


def _stage_conflict(places: Places, commit: str, index: Path) -> None:
    """Stage the pin's versions, like jj does in a folder that it shares with git."""
    versions = [f"{commit}:{_CONFLICT}-{which}/{PIN_NAME}" for which in ("base-0", "side-0", "side-1")]
    blobs = [_object_name(places, version) for version in versions]
    if len({*blobs}) == len(blobs) and all(blobs):
        removal = f"0 {'0' * len(commit)}\t{PIN_NAME}\n"
        stages = "".join(f"100644 {blob} {number}\t{PIN_NAME}\n" for number, blob in enumerate(blobs, 1))
        run_readonly(places, "update-index", "--index-info", stdin=(removal + stages).encode(), index_file=index)


def _object_name(places: Places, spec: str) -> str:
    """Return the hash of an object, or an empty text if the repository does not have it."""
    return run_readonly(places, "rev-parse", "--verify", "--quiet", spec, fine=(0, 1, _FATAL)).text.strip()


def _find_commit(repo: Path, checkout: bytes) -> str:
    """Return the working copy's commit: the commit of the workspace's name in the view of its
    operation.
    """
    fields, store = dict(_parse_fields(checkout)), repo / "op_store"
    operation_file = store / "operations" / fields[_CHECKOUT_OPERATION].hex()
    operation = dict(_parse_fields(read_regular(operation_file, _MAX_FILE_BYTES)))
    view = read_regular(store / "views" / operation[_OPERATION_VIEW].hex(), _MAX_FILE_BYTES)
    for number, entry in _parse_fields(view):
        if number == _VIEW_COMMITS:
            commit = dict(_parse_fields(entry))
            name = commit[_COMMIT_NAME].hex() if commit.get(_COMMIT_WORKSPACE) == fields[_CHECKOUT_WORKSPACE] else ""
            if re.fullmatch(COMMIT_NAME, name):
                return name
    raise ValueError("no commit is checked out in it")


def _parse_fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the texts, bytes and messages in a protobuf message, by field number."""
    at = 0
    while at < len(message):
        key, at = _parse_varint(message, at)
        match key & 7:
            case 0:
                _, at = _parse_varint(message, at)
            case 1 | 5 as fixed:
                at += 8 if fixed == 1 else 4
            case 2:
                size, at = _parse_varint(message, at)
                if at + size > len(message):
                    raise ValueError("a jj file is truncated")
                yield key >> 3, message[at : at + size]
                at += size
            case _:
                raise ValueError("a jj file has an unknown format")


def _parse_varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        value |= (message[at] & 0x7F) << shift
        at += 1
        if message[at - 1] < 0x80:  # noqa: PLR2004  the last byte
            return value, at
    raise ValueError("a jj file has an unknown format")
