"""Blobs, trees and commits, and the fetching of those that a partial clone lacks. git itself reads
them, because all of them may be a stranger's; in repositories of ours, hundreds are written
without a process for each.
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
from vmrag_link.git import configuration
from vmrag_link.git.configuration import read_config_entries
from vmrag_link.git.run import build_failure, check_git, run_git
from vmrag_link.models import Record
from vmrag_link.paths import Places, write_atomically

_SHA256_DIGITS = 64

BATCH = 64
"""How many blobs are in memory at a time."""


class TreeEntry(Record, frozen=True):
    """A file of a tree: the blob's name and its size in bytes, or -1 if it is no plain file or
    missing.
    """

    name: str
    size: int


def write_blob(places: Places, content: bytes) -> str:
    return check_git(places, "hash-object", "-w", "--stdin", stdin=content).text.strip()


def hash_blob(content: bytes, *, like: str) -> str:
    """How git names a blob, in a repository where objects have names like that one."""
    algorithm = hashlib.sha256 if len(like) == _SHA256_DIGITS else hashlib.sha1
    return algorithm(b"blob %d\0%b" % (len(content), content), usedforsecurity=False).hexdigest()


class ObjectWriter:
    """Writes into a repository of ours beside the code's, as `git hash-object -w` does: a file for
    each object, which takes the place of one that is damaged. `folder`: write there instead.
    """

    def __init__(self, places: Places, folder: Path | None = None) -> None:
        self._objects = folder or places.common / "objects"
        self._format = configuration.read_object_format(places.code_places or places)

    def write_blob(self, content: bytes) -> str:
        return self._write(b"blob", content)

    def write_commit(self, entries: Mapping[str, str], *, parent: str | None, message: str, signature: str) -> str:
        """A commit whose tree holds these blobs by path; no ref moves.

        `signature`, for author and committer: `Name <email>`.
        """
        tree = self._write_tree(entries)
        parents = f"parent {parent}\n" if parent else ""
        signed = f"{signature} {int(time.time())} +0000"
        text = f"tree {tree}\n{parents}author {signed}\ncommitter {signed}\n\n{message}\n"
        return self._write(b"commit", text.encode())

    def _write_tree(self, entries: Mapping[str, str]) -> str:
        folders: dict[str, dict[str, str]] = {}
        rows: list[tuple[bytes, bytes, str]] = []
        for path, blob in entries.items():
            name, slash, inner = path.partition("/")
            if slash:
                folders.setdefault(name, {})[inner] = blob
            else:
                rows.append((os.fsencode(name), b"100644", blob))
        # git sorts folders as if their names ended with a slash.
        rows += [(os.fsencode(name) + b"/", b"40000", self._write_tree(inner)) for name, inner in folders.items()]
        parts = (
            b"%b %b\0%b" % (mode, name.rstrip(b"/"), bytes.fromhex(object_)) for name, mode, object_ in sorted(rows)
        )
        return self._write(b"tree", b"".join(parts))

    def _write(self, kind: bytes, content: bytes) -> str:
        data = b"%b %d\0%b" % (kind, len(content), content)
        name = hashlib.new(self._format, data, usedforsecurity=False).hexdigest()
        write_atomically(self._objects / name[:2] / name[2:], zlib.compress(data, 1), durable=False)
        return name


def commit_tree(places: Places, tree: str, *, parents: Sequence[str], message: str, signature: str) -> str:
    """Make a commit of a tree, or of that of another commit, as `ObjectWriter.commit` does."""
    name, _, email = signature.removesuffix(">").partition(" <")
    identity = {
        f"GIT_{role}_{field}": value
        for role in ("AUTHOR", "COMMITTER")
        for field, value in (("NAME", name), ("EMAIL", email))
    }
    named = [word for parent in parents for word in ("-p", f"{parent}^{{commit}}")]
    arguments = ("commit-tree", f"{tree}^{{tree}}", "-m", message, *named)
    done = run_git(places, *arguments, extra=identity)
    if done.returncode != 0:
        raise build_failure(arguments, done)
    return done.text.strip()


def add_file_to_tree(places: Places, tree: str, name: str, blob: str) -> str:
    """Make the tree that a tree, or that of a commit, becomes with this file at its top.

    What is in it need not be here: nothing but its top level is read.
    """
    listing = check_git(places, "ls-tree", "-z", "--full-tree", f"{tree}^{{tree}}").stdout
    path = name.encode()
    kept = [each for each in listing.split(b"\0") if each and each.partition(b"\t")[2] != path]
    made = b"\0".join([*kept, b"100644 blob %b\t%b" % (blob.encode(), path), b""])
    return check_git(places, "mktree", "-z", "--missing", stdin=made).text.strip()


def find_missing_commits(places: Places, commits: Iterable[str]) -> list[str]:
    """The full names that name no commit here.

    A partial clone would fetch such a commit with its whole history as soon as it is looked at, so
    git is asked in the one way that fetches nothing.
    """
    asked = list(dict.fromkeys(commits))
    options = ("--no-walk=unsorted", "--ignore-missing", "--missing=print", "--stdin")
    here = check_git(places, "rev-list", *options, stdin="".join(f"{each}\n" for each in asked).encode()).text.split()
    return [each for each in asked if each not in here]


def read_parents(places: Places, commit: str) -> list[str]:
    """The parents that a commit names, whether a shallow clone has them or not."""
    header = check_git(places, "cat-file", "commit", commit).stdout.partition(b"\n\n")[0].decode(errors="replace")
    lines = (line.partition(" ") for line in header.split("\n"))
    return [value for key, _, value in lines if key == "parent"]


def read_trailers(places: Places, commit: str, key: str) -> list[str]:
    """What stands behind a trailer of a commit's message, which anybody can write."""
    shown = f"--format=%(trailers:key={key},valueonly)"
    return check_git(places, "log", "-1", "--no-show-signature", shown, commit, "--").text.split()


def read_tree(places: Places, commit: str, *, deep: bool = False) -> dict[str, TreeEntry]:
    """The top level of a commit's tree by name; with `deep`, all files by path.

    Raises `RemoteDamaged` if the commit is none, or missing.
    """
    options = ("-r", "-l", "-z") if deep else ("-l", "-z")
    done = run_git(places, "ls-tree", *options, "--full-tree", f"{commit}^{{commit}}")
    if done.returncode != 0:
        raise RemoteDamaged(f"git cannot read {commit[:12]}: {done.error_text}", hint="git fsck")
    entries = {}
    for line in done.stdout.decode(errors="replace").split("\0"):
        if not line:
            continue
        described, _, name = line.partition("\t")
        mode, kind, blob, size = described.split()
        plain = kind == "blob" and mode in ("100644", "100755") and size.isdecimal()
        entries[name] = TreeEntry(blob, int(size) if plain else -1)
    return entries


def read_blob(places: Places, name: str) -> bytes:
    return next(read_blobs(places, [name]))


def read_blobs(places: Places, names: Iterable[str]) -> Iterator[bytes]:
    """The contents of blobs, in the given order.

    Raises `RemoteDamaged` for a missing one, and `GitFailed` if git cannot read it.
    """
    left = iter(names)
    while some := list(islice(left, BATCH)):
        answer = check_git(places, "cat-file", "--batch", stdin="".join(f"{name}\n" for name in some).encode()).stdout
        at = 0
        for name in some:
            end = answer.find(b"\n", at)
            match answer[at:end].split(b" "):
                case [_, b"blob", size]:
                    start = end + 1
                    at = start + int(size) + 1
                    yield answer[start : at - 1]
                case _:
                    raise RemoteDamaged(f"git does not have the object {name}.", hint="git fsck", object=name)


_FETCH = ("fetch", "--no-tags", "--no-write-fetch-head", "--recurse-submodules=no", "--filter=blob:none", "--stdin")

# Without `--missing=print` this would fetch them, too; with it, they come behind a question mark.
_OBJECTS = ("--objects", "--no-object-names", "--no-walk", "--ignore-missing", "--missing=print", "--stdin")


def fetch_blobs_at(places: Places, commits: Iterable[str], path: str) -> None:
    """As `bring`, of what these commits, by full hash, have at a path."""
    asked = dict.fromkeys(commits)
    remote = _promisor(places)
    if remote is None or not asked:
        return
    said = check_git(places, "rev-list", *_OBJECTS, "--", path, stdin=_lines(asked)).text.split()
    _fetch(places, remote, [each.removeprefix("?") for each in said if each.startswith("?")])


def fetch_blobs(places: Places, blobs: Iterable[str]) -> None:
    """Fetch the missing ones of these blobs at once; git itself would fetch one after the other.

    Does nothing in other clones. If it fails, git tries again when it needs them, and reports why.
    """
    remote = _promisor(places)
    asked = dict.fromkeys(blobs)
    if remote is None or not asked:
        return
    here = set(check_git(places, "rev-list", *_OBJECTS, stdin=_lines(asked)).text.split())
    _fetch(places, remote, [each for each in asked if each not in here])


def _fetch(places: Places, remote: str, blobs: Sequence[str]) -> None:
    if blobs:
        run_git(places, "-c", "fetch.negotiationAlgorithm=noop", *_FETCH, remote, stdin=_lines(blobs))


def _promisor(places: Places) -> str | None:
    """The remote that has what is missing here; None in other clones."""
    keys = [key for key, _ in read_config_entries(places, r"remote\..*\.promisor")]
    return keys[0].removeprefix("remote.").removesuffix(".promisor") if keys else None


def _lines(names: Iterable[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode()
