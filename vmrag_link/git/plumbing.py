"""Find the work tree, and read objects, the pin and commits. Also names of `refs` and
`configuration`.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from vmrag_link.errors import (
    GitConfigInvalid,
    GitFailed,
    GitReferenceMissing,
    GitRepositoryMissing,
    PinMalformed,
    quoted,
    shortened,
)
from vmrag_link.file_access import FileStamp, read_file_stamp, read_regular
from vmrag_link.git.configuration import (
    find_kb_branch,
    forget_kb_branch,
    format_tree_key,
    list_kb_mappings,
    read_kb_branches,
    read_kb_owners,
    read_section,
    set_kb_branch,
)
from vmrag_link.git.refs import (
    COMMIT_NAME,
    Head,
    find_operation,
    get_finish_command,
    is_index_locked,
    read_head,
    suggest_finish,
)
from vmrag_link.git.run import build_failure, check_git, is_for_agent, run_git, run_git_in
from vmrag_link.models import Record
from vmrag_link.paths import PIN_NAME, PIN_READ_LIMIT, Places

__all__ = [
    "Head",
    "find_kb_branch",
    "find_operation",
    "forget_kb_branch",
    "format_tree_key",
    "get_finish_command",
    "is_index_locked",
    "is_ref_name",
    "list_kb_mappings",
    "locate_work_tree",
    "read_blob",
    "read_head",
    "read_kb_branches",
    "read_kb_owners",
    "read_pin_bytes",
    "read_section",
    "resolve_commit",
    "set_kb_branch",
    "suggest_finish",
]

_NO_HOOKS_PATH = "empty string is not a valid path"  # for `core.hooksPath =`, which some users set to disable hooks


def locate_work_tree(start: Path, *, repair: bool = True) -> Places:
    """Return the work tree around a directory and its hooks directory, with one git call. Linked
    work trees, submodules and jj workspaces are included.

    In a bare repository with work trees, and in the folder that contains both, it is the work tree
    of HEAD's branch, else the first one.

    If the hooks file that git includes is damaged, no git command works. Then the file is written
    again, unless `repair` is false. Raises `GitRepositoryMissing` outside of a repository and in
    another bare one, `GitConfigInvalid` if git cannot read its configuration, and `GitFailed` if
    git refuses.
    """
    if not start.is_dir():
        raise GitRepositoryMissing(f"{start} is not a directory.", hint="name a directory inside a git working tree")
    arguments = ("rev-parse", "--path-format=absolute", "--show-toplevel", "--git-dir", "--git-common-dir")
    finished = run_git_in(start, *arguments, "--git-path", "hooks")
    if _NO_HOOKS_PATH in finished.error_text:
        finished = run_git_in(start, *arguments)
    if finished.returncode == 0:
        lines = finished.stdout.removesuffix(b"\n").split(b"\n")
        if len(lines) not in (3, 4):  # without and with the hooks directory
            raise GitFailed(f"the path {str(start)!r} has a line break in it.", hint="rename the directory")
        top, git_dir, common, *hooks = (Path(os.fsdecode(line)) for line in lines)
        return Places(top, git_dir, common, hooks=hooks[0] if hooks else None)
    complaint = finished.error_text
    if _repair_configuration(start, complaint, repair=repair):
        return locate_work_tree(start, repair=False)
    if "not a git repository" in complaint:
        return _locate_without_git(start)
    if "must be run in a work tree" in complaint:
        return _locate_in_container(start)
    configure = re.search(r"git config --global --add safe\.directory .+", complaint)
    raise build_failure(arguments, finished, hint=f"run '{configure[0]}' to trust this repository" if configure else "")


def _locate_without_git(start: Path) -> Places:
    """Return the jj workspace around a directory in which git finds no repository.

    Raises `GitRepositoryMissing`.
    """
    if lost := _find_lost_link(start):
        raise lost
    from vmrag_link.git import jj

    if workspace := jj.locate_workspace(start):
        return workspace
    raise GitRepositoryMissing(
        f"{start} is not in a git repository.",
        hint="change to a folder of your repository, or run 'git init' to create one",
        path=str(start),
    )


def _locate_in_container(start: Path) -> Places:
    """Return the work tree that commands work on in a bare repository. Raises
    `GitRepositoryMissing` if it has none.
    """
    if tree := _find_work_tree(start):
        return tree
    raise GitRepositoryMissing(
        f"{start} is in a git repository, but not in a working tree (the repository is bare, or this is inside .git).",
        hint="run the command in a working tree, or run 'git worktree add DIR BRANCH' to add one to a bare repository",
        path=str(start),
    )


def _find_work_tree(start: Path) -> Places | None:
    """Return the work tree of HEAD's branch in a bare repository, else the first one, or None."""
    listed = run_git_in(start, "worktree", "list", "--porcelain").text.split("\n\n")
    repository, *trees = [
        dict(line.partition(" ")[::2] for line in block.splitlines()) for block in listed if block
    ] or [{}]
    trees = [tree for tree in trees if Path(tree["worktree"], ".git").exists()]
    if "bare" not in repository or not trees:
        return None
    branch = run_git_in(start, "symbolic-ref", "--quiet", "HEAD").text.strip()
    chosen = next((tree for tree in trees if tree.get("branch") == branch), trees[0])
    places = locate_work_tree(Path(chosen["worktree"]))
    common = run_git_in(start, "rev-parse", "--path-format=absolute", "--git-common-dir").stdout.removesuffix(b"\n")
    # A bare repository may name any folder as its work tree, so the folder must name the
    # repository.
    return places if places.common.samefile(os.fsdecode(common)) else None


_BAD_CONFIG = (
    r"(?i)bad config |bad [a-z]+ config value|bad config file|unable to access '[^'\n]*config[^'\n]*'"
    r"|maximum include depth|expected git repo version|unknown repository extension|invalid (?:section|key|value) .*config"
)


_CORRECT_CONFIG = "correct .git/config or the file in this message in an editor, or restore it from a backup"


def _repair_configuration(start: Path, complaint: str, *, repair: bool) -> bool:
    """Rewrite the hooks file that git includes, if git cannot read it. Returns False for another
    failure.

    Raises `GitConfigInvalid` if another file is damaged, and without `repair`.
    """
    if damaged := _find_damaged_hook_config(start, complaint):
        if not repair:
            raise _build_configuration_error(complaint, hint="run 'vmrag doctor --fix' to repair it", repairable=True)
        from vmrag_link.git import hook_config

        hook_config.rebuild_config(damaged)
        return True
    if re.search(_BAD_CONFIG, complaint):
        raise _build_configuration_error(complaint, hint=_CORRECT_CONFIG)
    return False


def _build_configuration_error(complaint: str, *, hint: str, repairable: bool = False) -> GitConfigInvalid:
    reason = re.sub(r"^(?:fatal|error|warning): |\s+(?=\s)", "", complaint.replace("\n", " ")).strip()
    return GitConfigInvalid(
        f"git cannot read its configuration: {reason}", hint=hint, said=complaint, repairable=repairable
    )


def _find_damaged_hook_config(start: Path, complaint: str) -> Path | None:
    """Return the hooks file that git includes, if git complains about it. git itself does not run
    then.
    """
    from vmrag_link.git import hook_config  # rarely needed, and a checkout waits for imports

    if hook_config.INCLUDED_FILE not in complaint:
        return None
    common = next(filter(None, (_find_common_folder(folder / ".git") for folder in (start, *start.parents))), None)
    path = common / hook_config.INCLUDED_FILE if common else None
    return path if path and path.is_file() else None


def _find_common_folder(git: Path) -> Path | None:
    """Return the common git directory of the working tree to which this `.git` belongs."""
    if git.is_dir():
        return git
    with contextlib.suppress(OSError):
        link = read_regular(git, _LINK_BYTES)
        folder = git.parent / os.fsdecode(link.removeprefix(b"gitdir: ").strip())
        try:
            return folder / os.fsdecode(read_regular(folder / "commondir", _LINK_BYTES).strip())
        except FileNotFoundError:
            return folder if link.startswith(b"gitdir: ") else None
    return None


_LINK = rb"(?s)gitdir: (?P<repository>.+)/worktrees/[^/]+\n?"
_LINK_BYTES = 4096


def _find_lost_link(start: Path) -> GitRepositoryMissing | None:
    """Return the error for a linked work tree whose repository was moved without the link."""
    for folder in (start, *start.parents):
        try:
            link = re.fullmatch(_LINK, read_regular(folder / ".git", _LINK_BYTES))
        except OSError:
            continue
        if link is None:
            return None
        before = os.fsdecode(link["repository"])
        return GitRepositoryMissing(
            f"{folder} is a linked worktree of {before}, which was moved or does not list it.",
            hint=f"run 'git -C PATH_OF_THE_REPOSITORY worktree repair {quoted(folder)}' to link it again",
            path=str(folder),
        )
    return None


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
    quietly = ("-c", "core.fsmonitor=false")
    lines = check_git(places, *quietly, "cat-file", "--batch-check", stdin=query, bounded=True).text.split("\n")
    return [_read_object(line) for line in lines[: len(specs)]]


def _is_single_line(spec: str) -> bool:
    """Return whether git can read the name on one line. Objects have no other names."""
    return "\n" not in spec and "\0" not in spec


def _read_object(line: str) -> FoundObject | None:
    match line.split(" "):
        case [name, kind, size] if re.fullmatch(COMMIT_NAME, name) and size.isdecimal():
            return FoundObject(name, kind, int(size))
    return None


def _find_object(places: Places, *specs: str) -> FoundObject | None:
    """Return the first of these objects that exists."""
    return next(filter(None, find_objects(places, specs)), None)


class PinEntries(Record, frozen=True):
    """Entries of `.dolt-version`: `head` in HEAD's commit, `stages` in the index by stage."""

    head: FoundObject | None
    stages: dict[int, FoundObject]


_CACHED_ENTRIES: dict[Path, tuple[tuple[FileStamp | None, Head], PinEntries]] = {}
"""By git directory: the stamp of its index and HEAD before git read them, and the result."""


def read_pin_entries(places: Places) -> PinEntries:
    """Return the entries of `.dolt-version` in HEAD and the index, read with one git process.

    A command calls this several times. The result is cached until the index or HEAD changes. Raises
    `GitFailed`.
    """
    before = read_file_stamp(places.git_dir / "index"), read_head(places)
    cached = _CACHED_ENTRIES.get(places.git_dir)
    if cached and before[0] and cached[0] == before:
        return cached[1]
    committed, *staged = find_objects(places, [f"HEAD:{PIN_NAME}", *(f":{stage}:{PIN_NAME}" for stage in range(4))])
    entries = PinEntries(committed, {stage: object_ for stage, object_ in enumerate(staged) if object_})
    _CACHED_ENTRIES[places.git_dir] = before, entries
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


LONGEST_REF = 4096
"""Maximum number of characters. A ref is the path of a file."""


def can_name_commit(ref: str) -> bool:
    """Return whether git can resolve this text. Options, exclusions and searches by an agent are
    rejected.
    """
    if not ref or ref[0] in "-^" or "\0" in ref or len(ref) > LONGEST_REF:
        return False
    return not (is_for_agent() and searches_messages(ref))


def searches_messages(ref: str) -> bool:
    """Return whether git would search the messages of commits for this expression."""
    return "^{/" in ref or ":/" in ref


def is_ref_name(places: Places, name: str) -> bool:
    """Return whether git accepts this name for a ref."""
    if len(name) > LONGEST_REF or "\0" in name:
        return False
    return run_git(places, "check-ref-format", name, bounded=True).returncode == 0


def _build_reference_error(places: Places, ref: str) -> GitReferenceMissing:
    shown = shortened(repr(ref))
    fetch = "git fetch --unshallow" if (places.common / "shallow").exists() else "git fetch"
    return GitReferenceMissing(
        f"{shown} is not a branch, a tag or a commit of this repository.",
        hint=f"run '{fetch}', or 'git branch -a' to list branches",
        ref=ref[:LONGEST_REF],
    )
