"""The blobs that files are, in commits and in git's index, by path from the top; and where files
went that are gone, as git detects renames.

Nothing is fetched: what a partial clone does not have counts as not there.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from vmrag_link.git.run import build_failure, check_git, run_git
from vmrag_link.paths import Places
from vmrag_link.proc import FinishedProcess

MOST_BYTES = 64 << 20
"""Of all contents that are read at once."""

_FILES = ("100644", "100755")


def has_staged_changes(places: Places, *, index_file: Path | None = None) -> bool:
    """Return True if the index differs from HEAD."""
    return bool(_run(places, "diff", "--cached", "--name-only", "-z", "--no-ext-diff", index_file=index_file).stdout)


def list_staged_files(places: Places) -> list[str]:
    """Return the paths of files that differ between HEAD and the index."""
    listed = _run(places, "diff", "--cached", "--name-only", "-z", "--no-ext-diff", "--no-renames").stdout
    return [os.fsdecode(path) for path in listed.split(b"\0") if path]


def has_unstaged_changes(places: Places, path: str, *, index_file: Path | None = None) -> bool:
    """Whether a file is there that is not what the index has, or that git does not track."""
    listed = _run(places, "ls-files", "--modified", "--others", "-z", "--", path, index_file=index_file)
    return bool(listed.stdout) and (places.top / path).is_file()


def read_staged_file(places: Places, path: str, *, index_file: Path | None = None) -> bytes | None:
    """What the index has of a file; None for none, or one in conflict."""
    entries = _run(places, "ls-files", "--stage", "-z", "--", path, index_file=index_file).stdout.split(b"\0")
    blobs = [entry.split()[1].decode() for entry in entries if entry.split()[2:3] == [b"0"]]
    return dict(read_blobs(places, blobs)).get(blobs[0]) if blobs else None


def list_tree_files(places: Places, commit: str) -> dict[str, str]:
    """The files of a commit's tree."""
    listed = _run(places, "ls-tree", "-r", "-z", "--full-tree", commit).stdout.split(b"\0")
    found = (each.partition(b"\t") for each in listed if each)
    return {os.fsdecode(path): about.split()[2].decode() for about, _, path in found if about[:6].decode() in _FILES}


def read_blobs(places: Places, blobs: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """The blobs that are here, as far as they have at most `MOST_BYTES` together."""
    asked = dict.fromkeys(blobs)
    sizes = _run(places, "cat-file", "--batch-check", stdin=_lines(asked)).text.splitlines()
    left, wanted = MOST_BYTES, list[str]()
    for line in sizes:
        match line.split(" "):
            case [name, "blob", size] if int(size) <= left:
                left -= int(size)
                wanted.append(name)
    answer = _run(places, "cat-file", "--batch", stdin=_lines(wanted)).stdout
    at = 0
    for name in wanted:
        start = answer.index(b"\n", at) + 1
        at = start + int(answer[at:start].split(b" ")[2])
        yield name, answer[start:at]
        at += 1


def _run(
    places: Places, *arguments: str, stdin: bytes | None = None, index_file: Path | None = None
) -> FinishedProcess:
    # A repository that a stranger packed must not name a program: core.fsmonitor would be one.
    options = ("--literal-pathspecs", "--no-optional-locks", "-c", "core.fsmonitor=false")
    done = run_git(places, *options, *arguments, stdin=stdin, index_file=index_file, extra={"GIT_NO_LAZY_FETCH": "1"})
    if done.returncode != 0:
        raise build_failure(arguments, done)
    return done


def _lines(names: Iterable[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode()


_MOST = 32
"""Commits that are compared with: files that went one by one, each in its own, cost one each."""


def find_renames(places: Places, gone: Collection[str]) -> dict[str, str]:
    """The paths of today of these paths that are gone, from the top of the work tree.

    The index counts as today: `git mv` says it there, and `mv` alone says it after `git add`. A
    file that was removed in a commit is looked for by what it was right before. Raises `GitFailed`.
    """
    found: dict[str, str] = {}
    left = set(gone)
    for before in _states_with(places, left):
        for old, new in _compared(places, before):
            if old in left:
                found[old] = new
                left.remove(old)
        if not left:
            break
    return found


def _states_with(places: Places, paths: Collection[str]) -> Iterator[str]:
    """Commits that had some of the paths: HEAD, then those before each removal, newest first.

    The paths may get fewer meanwhile.
    """
    if run_git(places, "rev-parse", "--verify", "--quiet", "HEAD").returncode:
        return  # no commit yet
    yield "HEAD"
    asked = "".join(f"{line}\n" for line in ("HEAD", "--", *paths))
    # What a merge removed, one of its parents had removed. The names are no patterns.
    options = ("--no-merges", "--diff-filter=D", "--no-renames", "--name-only", "-z", "--format=%x01%H", "--stdin")
    said = check_git(places, "--literal-pathspecs", "log", *options, stdin=asked.encode()).text if paths else ""
    removals = (each.split("\0") for each in said.split("\1") if each)
    states = (f"{commit}^" for commit, *names in removals if any(name.strip("\n") in paths for name in names))
    yield from itertools.islice(states, _MOST)


def _compared(places: Places, before: str) -> Iterator[tuple[str, str]]:
    """The renames from a commit to the index."""
    options = ("--cached", "-M", "--diff-filter=R", "--name-status", "-z", "--no-ext-diff", "--ignore-submodules")
    said = check_git(places, "diff", *options, before, "--").text.split("\0")
    yield from zip(said[1::3], said[2::3], strict=False)  # a score, the old path, the new one
