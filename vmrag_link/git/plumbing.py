"""Objects, commits and the pin, in the form that most commands need.

It also passes on `locate_work_tree` (`discovery`) and `read_head` (`refs`), so that callers import
one module.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from vmrag_link.errors import GitFailed, GitReferenceMissing, PinMalformed, quoted, shortened
from vmrag_link.file_access import FileStamp, read_file_stamp
from vmrag_link.git import discovery, refs
from vmrag_link.git.refs import COMMIT_NAME, Head
from vmrag_link.git.run import check_git, is_for_agent, run_git
from vmrag_link.models import Record
from vmrag_link.paths import PIN_NAME, PIN_READ_LIMIT, Places

MAX_REF_LENGTH = 4096
"""Maximum number of characters. A ref is the path of a file."""

locate_work_tree = discovery.locate_work_tree
read_head = refs.read_head


def read_blob(places: Places, spec: str, *, limit: int | None = None) -> bytes | None:
    """Return the content of `:path` (index), `HEAD:path` or `REF:path`, or None if that path does
    not exist.

    Raises `GitReferenceMissing` for a missing REF, and `GitFailed` for a directory and above
    `limit` bytes.
    """
    reference, _, path = spec.partition(":")
    object_ = _find_object(places, spec)
    if object_ is None:
        if reference and _find_object(places, reference) is None:
            raise _build_reference_error(places, reference)
        return None
    name, kind, size = object_
    if kind != "blob":
        raise GitFailed(
            f"{spec} is a {kind}, not a file.", hint=f"run 'git rm -r --cached -- {quoted(path)}'", spec=spec
        )
    if limit is not None and size > limit:
        raise GitFailed(
            f"{spec} has {size} bytes, more than {limit}.", hint=f"run 'git show {quoted(spec)}' to see it", spec=spec
        )
    return check_git(places, "cat-file", "blob", name).stdout


class FoundObject(NamedTuple):
    """An object. `size` in bytes."""

    name: str
    kind: str
    """`blob`, `tree`, `commit` (also for a submodule) or `tag`."""
    size: int


def find_objects(places: Places, specs: Sequence[str]) -> list[FoundObject | None]:
    """Return the object for each of these names, such as `HEAD:path` or `:path`, or None if it is
    missing.

    One git process reads all of them. Raises `GitFailed`.
    """
    if not all(_is_single_line(spec) for spec in specs):
        return [find_objects(places, [spec])[0] if _is_single_line(spec) else None for spec in specs]
    query = b"".join(os.fsencode(spec) + b"\n" for spec in specs)
    # An untrusted repository must not name a program to run, as in core.fsmonitor.
    safely = ("-c", "core.fsmonitor=false")
    lines = check_git(places, *safely, "cat-file", "--batch-check", stdin=query, bounded=True).text.split("\n")
    return [_parse_object(line) for line in lines[: len(specs)]]


def _is_single_line(spec: str) -> bool:
    """Return whether git can read the name on one line. Objects have no other names."""
    return "\n" not in spec and "\0" not in spec


def _parse_object(line: str) -> FoundObject | None:
    match line.split(" "):
        case [name, kind, size] if re.fullmatch(COMMIT_NAME, name) and size.isdecimal():
            return FoundObject(name, kind, int(size))
    return None


def _find_object(places: Places, *specs: str) -> FoundObject | None:
    """Return the first of these objects that exists."""
    return next(filter(None, find_objects(places, specs)), None)


class PinEntries(Record, frozen=True):
    """Entries of `.dolt-version`: `head` in HEAD's commit, `stages` in the index by stage.

    The stage is 0, or 1 to 3 for the versions of a conflict.
    """

    head: FoundObject | None
    stages: dict[int, FoundObject]


class _CachedEntries(NamedTuple):
    index_stamp: FileStamp
    """The stamp of the index before git read it."""
    head: Head
    entries: PinEntries


_CACHED_ENTRIES: dict[Path, _CachedEntries] = {}
"""By git directory."""


def read_pin_entries(places: Places) -> PinEntries:
    """Return the entries of `.dolt-version` in HEAD and the index, read with one git process.

    A command calls this several times. The result is cached until the index or HEAD changes. Raises
    `GitFailed`.
    """
    index_stamp, head = read_file_stamp(places.git_dir / "index"), read_head(places)
    cached = _CACHED_ENTRIES.get(places.git_dir)
    if cached and cached.index_stamp == index_stamp and cached.head == head:
        return cached.entries
    committed, *staged = find_objects(places, [f"HEAD:{PIN_NAME}", *(f":{stage}:{PIN_NAME}" for stage in range(4))])
    entries = PinEntries(committed, {stage: object_ for stage, object_ in enumerate(staged) if object_})
    if index_stamp:
        _CACHED_ENTRIES[places.git_dir] = _CachedEntries(index_stamp, head, entries)
    return entries


def read_pin_bytes(places: Places) -> bytes | None:
    """Return at most 8 KiB of the pin: the file, else the index entry, else the blob in HEAD, else
    None.

    Raises `PinMalformed` if its path is not a regular file. Links are rejected, because a pin may
    come from untrusted people. Raises `GitFailed` if the file exists and cannot be read.
    """
    try:
        descriptor = os.open(places.pin, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return _read_committed_pin(places)
    except OSError as error:
        if places.pin.is_symlink():
            raise _build_pin_error("a symbolic link") from error
        raise GitFailed(
            f"cannot read {PIN_NAME}: {error.strerror}", hint=f"run 'git checkout -- {PIN_NAME}' to restore it"
        ) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _build_pin_error("not a regular file")
        return os.read(descriptor, PIN_READ_LIMIT)
    finally:
        os.close(descriptor)


def _read_committed_pin(places: Places) -> bytes | None:
    """Return the pin of the index or HEAD, for sparse work trees without the file."""
    entries = read_pin_entries(places)
    entry = entries.stages.get(0) or entries.head
    if entry is None:
        return None
    name, kind, size = entry
    if kind != "blob":
        raise _build_pin_error(f"a {kind}")
    if size > PIN_READ_LIMIT:
        raise PinMalformed(
            f"{PIN_NAME} has {size} bytes, too many for a pin.", hint=f"run 'git log -- {PIN_NAME}' to list its commits"
        )
    return check_git(places, "cat-file", "blob", name).stdout


def _build_pin_error(what: str) -> PinMalformed:
    return PinMalformed(
        f"{PIN_NAME} is {what}; it must be a file.", hint=f"run 'git log -- {PIN_NAME}' to list its commits"
    )


def resolve_commit(places: Places, ref: str) -> str:
    """Return the full hash of the commit that a branch, tag or other revision names.

    Raises `GitReferenceMissing` and `LimitExceeded`. In a block of `run.answering_agent`, a search
    in messages also raises `GitReferenceMissing`.
    """
    if not can_name_commit(ref):
        raise _build_reference_error(places, ref)
    finished = run_git(places, "rev-parse", "--verify", "--quiet", "--end-of-options", ref + "^{commit}", bounded=True)
    commit = finished.text.strip()
    if finished.returncode != 0 or not re.fullmatch(COMMIT_NAME, commit):
        raise _build_reference_error(places, ref)
    return commit


def can_name_commit(ref: str) -> bool:
    """Return whether git can resolve this text. Options, exclusions and searches by an agent are
    rejected.
    """
    if not ref or ref[0] in "-^" or "\0" in ref or len(ref) > MAX_REF_LENGTH:
        return False
    return not (is_for_agent() and searches_messages(ref))


def searches_messages(ref: str) -> bool:
    """Return whether git would search the messages of commits for this expression."""
    return "^{/" in ref or ":/" in ref


def is_ref_name(places: Places, name: str) -> bool:
    """Return whether git accepts this name for a ref."""
    if len(name) > MAX_REF_LENGTH or "\0" in name:
        return False
    return run_git(places, "check-ref-format", name, bounded=True).returncode == 0


def _build_reference_error(places: Places, ref: str) -> GitReferenceMissing:
    shown = shortened(repr(ref))
    fetch = "git fetch --unshallow" if (places.common / "shallow").exists() else "git fetch"
    return GitReferenceMissing(
        f"{shown} is not a branch, a tag or a commit of this repository.",
        hint=f"run '{fetch}', or 'git branch -a' to list branches",
        ref=ref[:MAX_REF_LENGTH],
    )
