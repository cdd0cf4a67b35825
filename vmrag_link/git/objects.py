"""Read and write blobs, trees and commits, and fetch those that a partial clone lacks.

git itself reads them, because they may come from untrusted people. vmrag's own repositories
(`sidecar_repo`) get hundreds of objects, which are written without a git process for each.
"""

from __future__ import annotations

import hashlib
import os
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from vmrag_link.errors import RemoteDamaged
from vmrag_link.file_access import write_atomically
from vmrag_link.git import configuration
from vmrag_link.git.configuration import read_config_entries
from vmrag_link.git.run import build_failure, check_git, join_lines, run_git
from vmrag_link.models import Record
from vmrag_link.paths import Places

_SHA256_DIGITS = 64

BATCH = 64
"""Number of blobs that are in memory at a time."""

_FETCH = ("fetch", "--no-tags", "--no-write-fetch-head", "--recurse-submodules=no", "--filter=blob:none", "--stdin")

# Without `--missing=print` git would fetch missing objects. With it, git lists them after a
# question mark.
_LIST_OBJECTS = ("--objects", "--no-object-names", "--no-walk", "--ignore-missing", "--missing=print", "--stdin")


class TreeEntry(Record, frozen=True):
    """A file of a tree: the blob's name and its size in bytes. The size is -1 if it is missing or
    not a regular file.
    """

    name: str
    size: int


def write_blob(places: Places, content: bytes) -> str:
    return check_git(places, "hash-object", "-w", "--stdin", stdin=content).text.strip()


def hash_blob(content: bytes, *, like: str) -> str:
    """Return git's name of a blob, in a repository whose object names look like `like`."""
    algorithm = hashlib.sha256 if len(like) == _SHA256_DIGITS else hashlib.sha1
    return algorithm(b"blob %d\0%b" % (len(content), content), usedforsecurity=False).hexdigest()


class ObjectWriter:
    """Write objects into a repository of `sidecar_repo`, like `git hash-object -w`.

    Each object is a file, which replaces a damaged one. `folder`: write there instead.
    """

    def __init__(self, places: Places, folder: Path | None = None) -> None:
        self._objects = folder or places.common / "objects"
        self._format = configuration.read_object_format(places.code_places or places)

    def write_blob(self, content: bytes) -> str:
        return self._write_object(b"blob", content)

    def write_commit(self, entries: Mapping[str, str], *, parent: str | None, message: str, signature: str) -> str:
        """Write a commit whose tree contains these blobs by path, and return its name. No ref
        moves.

        `signature`, for author and committer: `Name <email>`.
        """
        tree = self._write_tree(entries)
        parents = f"parent {parent}\n" if parent else ""
        signed = f"{signature} {int(time.time())} +0000"
        text = f"tree {tree}\n{parents}author {signed}\ncommitter {signed}\n\n{message}\n"
        return self._write_object(b"commit", text.encode())

    def _write_tree(self, entries: Mapping[str, str]) -> str:
        folders: dict[str, dict[str, str]] = {}
        rows: dict[bytes, bytes] = {}  # git sorts folders as if their names ended with a slash
        for path, blob in entries.items():
            name, slash, inner_path = path.partition("/")
            if slash:
                folders.setdefault(name, {})[inner_path] = blob
            else:
                rows[os.fsencode(name)] = b"100644 %b\0%b" % (os.fsencode(name), bytes.fromhex(blob))
        for name, inner_entries in folders.items():
            tree = self._write_tree(inner_entries)
            rows[os.fsencode(name) + b"/"] = b"40000 %b\0%b" % (os.fsencode(name), bytes.fromhex(tree))
        return self._write_object(b"tree", b"".join(row for _, row in sorted(rows.items())))

    def _write_object(self, kind: bytes, content: bytes) -> str:
        data = b"%b %d\0%b" % (kind, len(content), content)
        name = hashlib.new(self._format, data, usedforsecurity=False).hexdigest()
        write_atomically(self._objects / name[:2] / name[2:], zlib.compress(data, 1), durable=False)
        return name


def commit_tree(places: Places, tree: str, *, parents: Sequence[str], message: str, signature: str) -> str:
    """Write a commit of a tree, or of another commit's tree, and return its name.

    `signature`, for author and committer: `Name <email>`. Raises `GitFailed`.
    """
    name, _, email = signature.removesuffix(">").partition(" <")
    identity = {
        f"GIT_{role}_{field}": value
        for role in ("AUTHOR", "COMMITTER")
        for field, value in (("NAME", name), ("EMAIL", email))
    }
    parent_options = [word for parent in parents for word in ("-p", f"{parent}^{{commit}}")]
    arguments = ("commit-tree", f"{tree}^{{tree}}", "-m", message, *parent_options)
    finished = run_git(places, *arguments, extra=identity)
    if finished.returncode != 0:
        raise build_failure(arguments, finished)
    return finished.text.strip()


def add_file_to_tree(places: Places, tree: str, name: str, blob: str) -> str:
    """Write a copy of a tree, or of a commit's tree, with this file at its top, and return its
    name.

    Only the top level of the tree is read, so its other objects may be missing.
    """
    listing = check_git(places, "ls-tree", "-z", "--full-tree", f"{tree}^{{tree}}").stdout
    path = name.encode()
    others = [entry for entry in listing.split(b"\0") if entry and entry.partition(b"\t")[2] != path]
    listing_with_file = b"\0".join([*others, b"100644 blob %b\t%b" % (blob.encode(), path), b""])
    return check_git(places, "mktree", "-z", "--missing", stdin=listing_with_file).text.strip()


def find_missing_commits(places: Places, commits: Iterable[str]) -> list[str]:
    """Return the full names that are not names of commits in this clone.

    A partial clone would fetch a missing commit with its whole history as soon as git reads it, so
    git is called in the one way that fetches nothing.
    """
    names = list(dict.fromkeys(commits))
    options = ("--no-walk=unsorted", "--ignore-missing", "--missing=print", "--stdin")
    existing = check_git(places, "rev-list", *options, stdin=join_lines(names)).text.split()
    return [name for name in names if name not in existing]


def read_parents(places: Places, commit: str) -> list[str]:
    """Return the parents that a commit names, even if a shallow clone lacks them."""
    header = check_git(places, "cat-file", "commit", commit).stdout.partition(b"\n\n")[0].decode(errors="replace")
    lines = (line.partition(" ") for line in header.split("\n"))
    return [value for key, _, value in lines if key == "parent"]


def read_trailers(places: Places, commit: str, key: str) -> list[str]:
    """Return the values of a trailer in a commit's message, which anyone can write."""
    shown = f"--format=%(trailers:key={key},valueonly)"
    return check_git(places, "log", "-1", "--no-show-signature", shown, commit, "--").text.split()


def read_tree(places: Places, commit: str, *, deep: bool = False) -> dict[str, TreeEntry]:
    """Return the top level of a commit's tree by name or, with `deep`, all files by path.

    Raises `RemoteDamaged` if the commit is missing or not a commit.
    """
    options = ("-r", "-l", "-z") if deep else ("-l", "-z")
    finished = run_git(places, "ls-tree", *options, "--full-tree", f"{commit}^{{commit}}")
    if finished.returncode != 0:
        raise RemoteDamaged(
            f"git cannot read {commit[:12]}: {finished.error_text}", hint="run 'git fsck' to find damaged objects"
        )
    entries = {}
    for line in finished.stdout.decode(errors="replace").split("\0"):
        if not line:
            continue
        described, _, name = line.partition("\t")
        mode, kind, blob, size = described.split()
        is_regular = kind == "blob" and mode in ("100644", "100755") and size.isdecimal()
        entries[name] = TreeEntry(blob, int(size) if is_regular else -1)
    return entries


def read_blob(places: Places, name: str) -> bytes:
    return next(read_blobs(places, [name]))


def read_blobs(places: Places, names: Iterable[str]) -> Iterator[bytes]:
    """Yield the contents of blobs, in the given order.

    Raises `RemoteDamaged` for a missing blob, and `GitFailed` if git cannot read one.
    """
    remaining = iter(names)
    while batch := list(islice(remaining, BATCH)):
        answer = check_git(places, "cat-file", "--batch", stdin=join_lines(batch)).stdout
        position = 0
        for name in batch:
            end = answer.find(b"\n", position)
            match answer[position:end].split(b" "):
                case [_, b"blob", size]:
                    start = end + 1
                    position = start + int(size) + 1
                    yield answer[start : position - 1]
                case _:
                    raise RemoteDamaged(
                        f"git does not have the object {name}.",
                        hint="run 'git fsck' to find damaged objects",
                        object=name,
                    )


def fetch_blobs_at(places: Places, commits: Iterable[str], path: str) -> None:
    """Fetch the missing blobs that these commits, by full hash, have at a path, like
    `fetch_blobs`.
    """
    names = dict.fromkeys(commits)
    remote = _find_promisor(places)
    if remote is None or not names:
        return
    listed = check_git(places, "rev-list", *_LIST_OBJECTS, "--", path, stdin=join_lines(names)).text.split()
    _fetch_objects(places, remote, [name.removeprefix("?") for name in listed if name.startswith("?")])


def fetch_blobs(places: Places, blobs: Iterable[str]) -> None:
    """Fetch those of these blobs that are missing in one request. git itself would fetch them one
    by one.

    Does nothing in clones that are not partial. If it fails, git tries again when it needs the
    blobs, and reports why.
    """
    remote = _find_promisor(places)
    names = dict.fromkeys(blobs)
    if remote is None or not names:
        return
    existing = set(check_git(places, "rev-list", *_LIST_OBJECTS, stdin=join_lines(names)).text.split())
    _fetch_objects(places, remote, [name for name in names if name not in existing])


def _fetch_objects(places: Places, remote: str, blobs: Sequence[str]) -> None:
    if blobs:
        run_git(places, "-c", "fetch.negotiationAlgorithm=noop", *_FETCH, remote, stdin=join_lines(blobs))


def _find_promisor(places: Places) -> str | None:
    """Return the remote that has the missing objects of a partial clone. None in other clones."""
    keys = [key for key, _ in read_config_entries(places, r"remote\..*\.promisor")]
    return keys[0].removeprefix("remote.").removesuffix(".promisor") if keys else None
