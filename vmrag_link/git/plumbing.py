"""The few git calls of the hot path, and the names of `heads` and `settings`."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from vmrag_link import env
from vmrag_link.errors import (
    GitConfigInvalid,
    GitFailed,
    GitReferenceMissing,
    GitRepositoryMissing,
    PinMalformed,
    quoted,
    shortened,
)
from vmrag_link.git.configuration import (
    find_kb_branch,
    forget_kb_branch,
    format_tree_key,
    list_entries,
    list_kb_mappings,
    read_kb_branches,
    read_kb_owners,
    read_section,
    set_kb_branch,
)
from vmrag_link.git.refs import COMMIT_NAME, Head, find_operation, is_index_locked, operation_hint, read_head
from vmrag_link.git.run import build_failure, check_git, is_for_agent, run_git, run_git_in
from vmrag_link.models import Record
from vmrag_link.paths import PIN_NAME, PIN_READ_LIMIT, FileStamp, Places, read_file_stamp, read_regular

__all__ = [
    "Head",
    "find_kb_branch",
    "find_operation",
    "forget_kb_branch",
    "format_tree_key",
    "is_index_locked",
    "is_ref_name",
    "list_kb_mappings",
    "locate_work_tree",
    "operation_hint",
    "read_blob",
    "read_configured_identity",
    "read_head",
    "read_identity",
    "read_kb_branches",
    "read_kb_owners",
    "read_pin_bytes",
    "read_section",
    "resolve_commit",
    "set_kb_branch",
    "stage_path",
]

INDEX_LOCK_SECONDS = 2.0
_POLL_SECONDS = 0.02
_NO_HOOKS_PATH = "empty string is not a valid path"  # of `core.hooksPath =`, by which some switch hooks off


def locate_work_tree(start: Path, *, repair: bool = True) -> Places:
    """The work tree around a directory, linked work trees, submodules and jj's workspaces included,
    and its hooks directory, by one git call. In a bare repository with work trees, and in the
    folder that contains both, it is the work tree of HEAD's branch, else the first one.

    If the hooks file that git includes is damaged, no git command works: write it again, unless
    `repair` is false. Raises `GitRepositoryMissing` outside of one and in another bare repository,
    `GitConfigInvalid` if git cannot read its configuration, `GitFailed` where git refuses.
    """
    if not start.is_dir():
        raise GitRepositoryMissing(f"{start} is not a directory.", hint="Name a directory inside a git work tree.")
    asked = ("rev-parse", "--path-format=absolute", "--show-toplevel", "--git-dir", "--git-common-dir")
    done = run_git_in(start, *asked, "--git-path", "hooks")
    if _NO_HOOKS_PATH in done.error_text:
        done = run_git_in(start, *asked)
    if done.returncode == 0:
        lines = done.stdout.removesuffix(b"\n").split(b"\n")
        if len(lines) not in (3, 4):  # what was asked
            raise GitFailed(f"The path {str(start)!r} has a line break in it.", hint="Rename the directory.")
        top, git_dir, common, *hooks = (Path(os.fsdecode(line)) for line in lines)
        return Places(top, git_dir, common, hooks=hooks[0] if hooks else None)
    said = done.error_text
    if _repairs_configuration(start, said, repair=repair):
        return locate_work_tree(start, repair=False)
    if "not a git repository" in said:
        return _locate_without_git(start)
    if "must be run in a work tree" in said:
        return _locate_in_container(start)
    cure = re.search(r"git config --global --add safe\.directory .+", said)
    raise build_failure(asked, done, hint=cure[0] if cure else "")


def _locate_without_git(start: Path) -> Places:
    """Return the jj workspace around a directory in which git finds no repository.

    Raises `GitRepositoryMissing`.
    """
    if lost := _lost_link(start):
        raise lost
    from vmrag_link.git import jj

    if workspace := jj.locate_workspace(start):
        return workspace
    raise GitRepositoryMissing(f"{start} is not in a git repository.", hint="git init", path=str(start))


def _locate_in_container(start: Path) -> Places:
    """Return the work tree that commands work on in a bare repository. Raises
    `GitRepositoryMissing` if it has none.
    """
    if tree := _work_tree_of_container(start):
        return tree
    raise GitRepositoryMissing(
        f"{start} belongs to a git repository, but to no work tree of it (it is bare, or inside .git).",
        hint="Run the command in a work tree; a bare repository gets one by: git worktree add DIR BRANCH",
        path=str(start),
    )


def _work_tree_of_container(start: Path) -> Places | None:
    """Return the work tree of HEAD's branch in a bare repository, else the first; None without."""
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
    # A bare repository may name any folder as its work tree. The folder must name the repository.
    return places if places.common.samefile(os.fsdecode(common)) else None


_BAD_CONFIG = (
    r"(?i)bad config |bad [a-z]+ config value|bad config file|unable to access '[^'\n]*config[^'\n]*'"
    r"|maximum include depth|expected git repo version|unknown repository extension|invalid (?:section|key|value) .*config"
)


_CORRECT_CONFIG = "correct .git/config, or the file in this message, in an editor, or restore it from a backup"


def _repairs_configuration(start: Path, said: str, *, repair: bool) -> bool:
    """If git cannot read the hooks file that it includes, write it again. False: another failure.

    Raises `GitConfigInvalid` if another file is damaged, and without `repair`.
    """
    if ours := _damaged_hook_config(start, said):
        if not repair:
            raise _unreadable_configuration(said, hint="vmrag doctor --fix", repairable=True)
        from vmrag_link.git import hook_config

        hook_config.rebuild_config(ours)
        return True
    if re.search(_BAD_CONFIG, said):
        raise _unreadable_configuration(said, hint=_CORRECT_CONFIG)
    return False


def _unreadable_configuration(said: str, *, hint: str, repairable: bool = False) -> GitConfigInvalid:
    reason = re.sub(r"^(?:fatal|error|warning): |\s+(?=\s)", "", said.replace("\n", " ")).strip()
    return GitConfigInvalid(f"git cannot read its configuration: {reason}", hint=hint, said=said, repairable=repairable)


def _damaged_hook_config(start: Path, said: str) -> Path | None:
    """Return the hooks file that git includes, if git complains of it. git does not run then."""
    from vmrag_link.git import hook_config  # rarely needed, and a checkout waits for imports

    if hook_config.INCLUDED_FILE not in said:
        return None
    common = next(filter(None, (_common_folder(folder / ".git") for folder in (start, *start.parents))), None)
    path = common / hook_config.INCLUDED_FILE if common else None
    return path if path and path.is_file() else None


def _common_folder(git: Path) -> Path | None:
    """Return the common git directory of a work tree whose `.git` this is."""
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


def _lost_link(start: Path) -> GitRepositoryMissing | None:
    """The reason why a linked work tree is broken: its repository was moved without the link."""
    for folder in (start, *start.parents):
        try:
            link = re.fullmatch(_LINK, read_regular(folder / ".git", _LINK_BYTES))
        except OSError:
            continue
        if link is None:
            return None
        before = os.fsdecode(link["repository"])
        return GitRepositoryMissing(
            f"{folder} is a linked work tree of {before}, which does not know it or was moved: join them where it is now.",
            hint=f"git -C PATH_OF_THE_REPOSITORY worktree repair {quoted(folder)}",
            path=str(folder),
        )
    return None


def read_blob(places: Places, spec: str, *, limit: int | None = None) -> bytes | None:
    """Contents of `:path` (index), `HEAD:path` or `REF:path`; None if that path does not exist.

    Raises `GitReferenceMissing` for a missing REF, `GitFailed` for a directory and above `limit`
    bytes.
    """
    reference, _, path = spec.partition(":")
    found = _look_up(places, spec)
    if found is None:
        if reference and _look_up(places, reference) is None:
            raise _reference_missing(reference)
        return None
    name, kind, size = found
    if kind != "blob":
        raise GitFailed(f"{spec} is a {kind}, not a file.", hint=f"git rm -r --cached -- {path}", spec=spec)
    if limit is not None and size > limit:
        raise GitFailed(f"{spec} has {size} bytes; at most {limit} are read.", hint=f"git show {spec}", spec=spec)
    return check_git(places, "cat-file", "blob", name).stdout


class FoundObject(NamedTuple):
    """`kind`: `blob`, `tree`, `commit` (a submodule, too) or `tag`; `size` in bytes."""

    name: str
    kind: str
    size: int


def find_objects(places: Places, specs: Sequence[str]) -> list[FoundObject | None]:
    """Return the object for each of these names, such as `HEAD:path` or `:path`; None if it is
    missing. One process of git answers all. Raises `GitFailed`.
    """
    if not all(_can_be_asked(spec) for spec in specs):
        return [find_objects(places, [spec])[0] if _can_be_asked(spec) else None for spec in specs]
    query = b"".join(os.fsencode(spec) + b"\n" for spec in specs)
    # A repository that a stranger packed must not name a program: core.fsmonitor would be one.
    quietly = ("-c", "core.fsmonitor=false")
    lines = check_git(places, *quietly, "cat-file", "--batch-check", stdin=query, bounded=True).text.split("\n")
    return [_read_object(line) for line in lines[: len(specs)]]


def _can_be_asked(spec: str) -> bool:
    """No object has such a name, and on standard input it would be two."""
    return "\n" not in spec and "\0" not in spec


def _read_object(line: str) -> FoundObject | None:
    match line.split(" "):
        case [name, kind, size] if re.fullmatch(COMMIT_NAME, name) and size.isdecimal():
            return FoundObject(name, kind, int(size))
    return None


def _look_up(places: Places, *specs: str) -> FoundObject | None:
    """Return the first of these objects that exists."""
    return next(filter(None, find_objects(places, specs)), None)


class PinEntries(Record, frozen=True):
    """What is at `.dolt-version`: `head` in HEAD's commit, `stages` in the index by stage."""

    head: FoundObject | None
    stages: dict[int, FoundObject]


_read_entries: dict[Path, tuple[tuple[FileStamp | None, Head], PinEntries]] = {}
"""By git directory: the stamp of its index and HEAD before git read them, and the result."""


def read_pin_entries(places: Places) -> PinEntries:
    """Read what HEAD and the index have at `.dolt-version` with one process of git.

    A command asks several times. git reads them again after the index or HEAD changed. Raises
    `GitFailed`.
    """
    before = read_file_stamp(places.git_dir / "index"), read_head(places)
    read = _read_entries.get(places.git_dir)
    if read and before[0] and read[0] == before:
        return read[1]
    committed, *staged = find_objects(places, [f"HEAD:{PIN_NAME}", *(f":{stage}:{PIN_NAME}" for stage in range(4))])
    entries = PinEntries(committed, {stage: found for stage, found in enumerate(staged) if found})
    _read_entries[places.git_dir] = before, entries
    return entries


def read_pin_bytes(places: Places) -> bytes | None:
    """At most 8 KiB of the pin: the file, else the index entry, else the blob in HEAD, else None.

    Raises `PinMalformed` for anything in its place that is not a file, links included: a pin comes
    from strangers. `GitFailed`: the file is there, and cannot be read.
    """
    try:
        descriptor = os.open(places.pin, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return _committed_pin(places)
    except OSError as error:
        if places.pin.is_symlink():
            raise _not_a_file("a symbolic link") from error
        raise GitFailed(f"Cannot read {PIN_NAME}: {error.strerror}", hint=f"git checkout -- {PIN_NAME}") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _not_a_file("not a regular file")
        return os.read(descriptor, PIN_READ_LIMIT)
    finally:
        os.close(descriptor)


def _committed_pin(places: Places) -> bytes | None:
    """In sparse work trees the file is absent."""
    entries = read_pin_entries(places)
    found = entries.stages.get(0) or entries.head
    if found is None:
        return None
    name, kind, size = found
    if kind != "blob":
        raise _not_a_file(f"a {kind}")
    if size > PIN_READ_LIMIT:
        raise PinMalformed(f"{PIN_NAME} has {size} bytes: that is no pin.", hint=f"git log -- {PIN_NAME}")
    return check_git(places, "cat-file", "blob", name).stdout


def _not_a_file(what: str) -> PinMalformed:
    return PinMalformed(f"{PIN_NAME} is {what}; it must be a file.", hint=f"git log -- {PIN_NAME}")


def resolve_commit(places: Places, ref: str) -> str:
    """The full hash of the commit that a branch, tag or other revision names.

    Raises `GitReferenceMissing`, `LimitExceeded`; within `answering_agent` also for a search.
    """
    if not can_name_commit(ref):
        raise _reference_missing(ref)
    done = run_git(places, "rev-parse", "--verify", "--quiet", "--end-of-options", ref + "^{commit}", bounded=True)
    commit = done.text.strip()
    if done.returncode != 0 or not re.fullmatch(COMMIT_NAME, commit):
        raise _reference_missing(ref)
    return commit


LONGEST_REF = 4096
"""Characters; a ref is the path of a file."""


def can_name_commit(ref: str) -> bool:
    """Return True if git can resolve this text: no option, exclusion, or search for an agent."""
    if not ref or ref[0] in "-^" or "\0" in ref or len(ref) > LONGEST_REF:
        return False
    return not (is_for_agent() and searches_messages(ref))


def searches_messages(ref: str) -> bool:
    """Return True if git would search the messages of commits for this expression."""
    return "^{/" in ref or ":/" in ref


def is_ref_name(places: Places, name: str) -> bool:
    """Whether a ref may be called so."""
    if len(name) > LONGEST_REF or "\0" in name:
        return False
    return run_git(places, "check-ref-format", name, bounded=True).returncode == 0


def _reference_missing(ref: str) -> GitReferenceMissing:
    shown = shortened(repr(ref))
    return GitReferenceMissing(
        f"{shown} is not a branch, a tag or a commit of this repository.",
        hint="git fetch (or see what is there: git branch -a)",
        ref=ref[:LONGEST_REF],
    )


def stage_path(places: Places, path: Path, *, index_file: Path | None = None) -> bool:
    """`git add` of one path, ignored and sparse ones included. False if index.lock is held for 2 s.

    `index_file`: the index of the commit under way, from a commit hook; otherwise the work tree's
    own.
    """
    # Written through, because commands acknowledge it. Forced, because a path that we are told to
    # stage belongs into the commit even where `.*` is ignored.
    return _write_index(places, "--literal-pathspecs", "add", "--force", "--sparse", "--", str(path), file=index_file)


def stage_files(places: Places, paths: Sequence[str]) -> bool:
    """Stage files of the work tree as they are, deleted ones as well. `paths` are from the top.

    Returns False if another process holds index.lock for 2 s. Raises `GitFailed`.
    """
    names = b"".join(os.fsencode(path) + b"\0" for path in paths)
    return _write_index(places, "update-index", "--add", "--remove", "-z", "--stdin", stdin=names)


def _write_index(places: Places, *arguments: str, file: Path | None = None, stdin: bytes | None = None) -> bool:
    durable = ("-c", "core.fsync=added")
    deadline = time.monotonic() + INDEX_LOCK_SECONDS
    while True:
        result = run_git(places, *durable, *arguments, index_file=file, stdin=stdin)
        if result.returncode == 0:
            return True
        if not re.search(r"index.*\.lock': File exists", result.error_text):
            raise build_failure(arguments[1:], result)
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)


def read_configured_identity(places: Places) -> str | None:
    """The author of a commit, as `Name <email>`, if somebody has said so; git would guess one."""
    done = run_git(places, "-c", "user.useConfigOnly=true", "var", "GIT_AUTHOR_IDENT")
    author = done.text.rsplit(" ", 2)[0]
    return author if done.returncode == 0 and not author.endswith("<>") else None


def read_identity(places: Places) -> str:
    """The author of a commit made now, as `Name <email>`."""
    if author := _identity_of_settings(places):
        return author
    arguments = ("var", "GIT_AUTHOR_IDENT")
    done = run_git(places, *arguments)
    hint = 'git config --global user.name "Your Name" && git config --global user.email you@example.com'
    if done.returncode != 0:
        raise build_failure(arguments, done, hint=hint)
    author = done.text.rsplit(" ", 2)[0]  # without seconds and time zone
    if author.endswith("<>"):
        raise GitFailed(f"git knows no e-mail address for {author.removesuffix(' <>')}.", hint=hint)
    return author


_WORD = r"[^\x00-\x20.,:;<>\"\\']"
_CLEAN = rf"{_WORD}(?:[^\x00-\x1f<>]*{_WORD})?"
"""A name or an address that git takes as it is. From others it removes blanks and punctuation at
both ends, and `<` and `>` everywhere.
"""


def _identity_of_settings(places: Places) -> str:
    """Return the author if environment and configuration name one completely; otherwise an empty
    text, and git must be asked.
    """
    configured = dict(list_entries(places))
    author = [
        configured.get(f"author.{key}", configured.get(f"user.{key}", "")) if given is None else given
        for key, given in zip(("name", "email"), env.git_author(), strict=True)
    ]
    return "{} <{}>".format(*author) if all(re.fullmatch(_CLEAN, value) for value in author) else ""


def unstage_files(places: Places, names: Sequence[str]) -> None:
    """Remove files from git's index that HEAD does not have, and stage those that are as in HEAD
    again.
    """
    new = [
        name
        for name in names
        if read_blob(places, f"HEAD:{name}") is None and read_blob(places, f":{name}") is not None
    ]
    if new:
        check_git(places, "rm", "--cached", "--force", "--quiet", "--ignore-unmatch", "--", *new)
    for path in (places.top / name for name in names if name not in new):
        if path.is_file() and path.read_bytes() == read_blob(places, f"HEAD:{path.name}"):
            stage_path(places, path)
