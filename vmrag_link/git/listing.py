"""Files of a work tree, as git lists them: tracked, ignored, generated.

A folder that is imported may contain other repositories, as submodules, or be inside one, or in
none. So each path is looked up in the repository that contains it, with one git process for all
paths of a repository.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from vmrag_link import env, proc, terminal_text
from vmrag_link.errors import AccessDenied
from vmrag_link.git.run import build_failure, check_git, run_git, run_git_in
from vmrag_link.models import Record
from vmrag_link.paths import Places
from vmrag_link.proc import FinishedProcess

_GENERATED = "linguist-generated"
"""Attribute that makes GitHub's and other diffs fold generated files."""

_MAX_PATH_ARGUMENTS = 100
"""Up to this number, the paths are passed to git. Above, git lists all files."""

_HEADER_BYTES = 12

_SAFELY = ("-c", "core.fsmonitor=false")
"""An untrusted repository must not name a program to run."""

_LIST_INDEX = (*_SAFELY, "ls-files", "-z", "-t", "--stage")


class IndexListing(Record, frozen=True):
    """The index as paths from the top."""

    tracked: frozenset[str]
    """Files and links."""
    hidden: frozenset[str]
    """Tracked files that a sparse checkout leaves out of the work tree (skip-worktree)."""
    submodules: frozenset[str]
    """Paths of submodules."""


def list_absent_paths(places: Places, paths: Collection[str]) -> set[str]:
    """Return the paths, from the top, that may be missing in the work tree although git has them.

    They are left out by a sparse checkout, here or in a submodule, or their submodule is not
    checked out. Raises `GitFailed`.
    """
    if not paths:
        return set()
    listing = _parse_listing(run_git(places, *_LIST_INDEX, extra=env.GIT_OFFLINE))
    return _find_absent_paths(listing, places.top, paths)


def _find_absent_paths(listing: IndexListing, top: Path, paths: Collection[str]) -> set[str]:
    absent = {path for path in paths if path in listing.hidden}
    for submodule in listing.submodules:
        start, folder = f"{submodule}/", top / submodule
        inside = {path.removeprefix(start): path for path in paths if path.startswith(start)}
        if inside and not os.path.lexists(folder / ".git"):
            absent.update(inside.values())
        elif inside:
            nested = _parse_listing(run_git_in(folder, *_LIST_INDEX, extra=env.GIT_OFFLINE))
            absent.update(inside[path] for path in _find_absent_paths(nested, folder, inside))
    return absent


def _parse_listing(finished: FinishedProcess) -> IndexListing:
    if finished.returncode != 0:
        raise build_failure(_LIST_INDEX[len(_SAFELY) :], finished)
    tracked, hidden, submodules = set[str](), set[str](), set[str]()
    for entry in finished.stdout.split(b"\0"):
        about, _, name = entry.partition(b"\t")  # H 100644 <object> <stage>
        path = os.fsdecode(name)
        if about[2:8] == b"160000":
            submodules.add(path)
        elif path:
            tracked.add(path)
            if about[:1] == b"S":
                hidden.add(path)
    return IndexListing(frozenset(tracked), frozenset(hidden), frozenset(submodules))


def list_tracked_files(places: Places, paths: Collection[str] = ()) -> list[str]:
    """Return the paths of regular files from the top, without links and submodules.

    If `paths` is given, the result contains these if they are tracked, and possibly others.
    """
    options = (*_SAFELY, "--literal-pathspecs", "ls-files", "--stage", "-z", "--")
    arguments = paths if len(paths) <= _MAX_PATH_ARGUMENTS else ()
    entries = check_git(places, *options, *arguments).stdout.split(b"\0")
    files = (os.fsdecode(entry.partition(b"\t")[2]) for entry in entries if entry.startswith(b"100"))
    return list(dict.fromkeys(files))


def tracks_files(places: Places) -> bool:
    """Return whether git's index names a file. Links and submodules may count.

    The index begins with `DIRC`, a version and the number of its entries (`git help
    format-index`). If that number is 0, git lists the files, because a split index has its entries
    in another file.
    """
    try:
        with places.index_file.open("rb") as index:
            header = index.read(_HEADER_BYTES)
    except OSError:
        header = b""
    if header[:4] == b"DIRC" and any(header[8:]):
        return True
    return bool(list_tracked_files(places))


def read_index_entries(places: Places, paths: Sequence[Path]) -> bytes:
    """Return the index's entries of these files at the top of the work tree, for
    `restore_index_entries`.
    """
    return check_git(places, "--literal-pathspecs", "ls-files", "--stage", "-z", "--", *_list_names(paths)).stdout


def restore_index_entries(places: Places, paths: Sequence[Path], entries: bytes) -> None:
    """Restore entries that `read_index_entries` returned.

    Raises `GitFailed`, for example while another git command locks the index.
    """
    if read_index_entries(places, paths) != entries:
        check_git(places, "update-index", "--force-remove", "--", *_list_names(paths))
        check_git(places, "update-index", "-z", "--index-info", stdin=entries)


def _list_names(paths: Sequence[Path]) -> list[str]:
    return [path.name for path in paths]


def refuse_ignored(
    places: Places, paths: Iterable[Path], *, hint: str, accepted: Collection[str] = (), may_ask: bool = False
) -> None:
    """Raise `AccessDenied` for a path of the work tree that git ignores. Only the user can store
    such a file, because stored documents are pushed.

    `accepted`: paths that the user accepted. `may_ask`: whether a question to the user is possible.
    Raises `GitFailed`.
    """
    top = Path(os.path.realpath(places.top))
    real = (Path(os.path.realpath(path.parent), path.name) for path in paths)  # git follows no links in paths
    for path in Repositories(places).find_hidden(path for path in real if path.is_relative_to(top)):
        if str(path) not in accepted:
            raise build_ignored_error(path, hint=hint, may_ask=may_ask)


def build_ignored_error(path: Path, *, hint: str, may_ask: bool = False) -> AccessDenied:
    name = terminal_text.escape_line(str(path))
    message = f"{name} was not imported: git ignores it, and documents of the knowledge base are pushed."
    asking = {"ask": True, "ignored": str(path)} if may_ask else {}
    return AccessDenied(message, hint=hint, path=name, **asking)


class Repositories:
    """The work tree `places` and all other repositories around paths. The repository of each folder
    is cached.
    """

    def __init__(self, places: Places) -> None:
        self._places = places
        self._top = Path(os.path.realpath(places.top))
        self._roots: dict[Path, Path | None] = {}

    def find_ignored(self, paths: Iterable[Path]) -> set[Path]:
        """Return the paths that git ignores by a `.gitignore`, `info/exclude`, or the user's own
        list. A tracked file is not ignored.

        Raises `GitFailed`.
        """
        ignored: set[Path] = set()
        for root, names in self._group_by_root(paths):
            finished = self._run_git(root, ("check-ignore", "-z", "--stdin"), names, fine=(0, 1))  # 1: none is ignored
            ignored.update(root / os.fsdecode(name) for name in finished.stdout.split(b"\0") if name)
        return ignored

    def find_hidden(self, paths: Iterable[Path]) -> set[Path]:
        """Return the paths that `find_ignored` returns, and those in a repository whose folder the
        repository around it ignores.

        Raises `GitFailed`.
        """
        paths = list(paths)
        roots = {root for path in paths if (root := self._find_root(path.parent)) and root != self._top}
        hidden_roots = self.find_hidden(roots) if roots else set()
        return self.find_ignored(paths) | {path for path in paths if self._find_root(path.parent) in hidden_roots}

    def read_generated(self, files: Iterable[Path]) -> dict[Path, bool]:
        """Return whether files are generated, for the files for which `.gitattributes` specifies
        it.

        Raises `GitFailed`.
        """
        values = self.read_attributes(files, (_GENERATED,))
        return {file: attributes[_GENERATED] in (True, "true") for file, attributes in values.items()}

    def read_attributes(self, files: Iterable[Path], names: Sequence[str]) -> dict[Path, dict[str, bool | str]]:
        """Return the specified values of these attributes by file.

        Raises `GitFailed`.
        """
        values: dict[Path, dict[str, bool | str]] = {}
        for root, paths in self._group_by_root(files):
            fields = self._run_git(root, ("check-attr", "-z", "--stdin", *names), paths).stdout.split(b"\0")
            for path, name, value in zip(fields[::3], fields[1::3], fields[2::3], strict=False):
                if value != b"unspecified":
                    decoded = value == b"set" if value in (b"set", b"unset") else os.fsdecode(value)
                    values.setdefault(root / os.fsdecode(path), {})[os.fsdecode(name)] = decoded
        return values

    def _run_git(
        self, root: Path, arguments: tuple[str, ...], names: list[bytes], *, fine: tuple[int, ...] = (0,)
    ) -> proc.FinishedProcess:
        # Offline, because git would otherwise start ssh to fetch a missing `.gitattributes`.
        stdin = b"".join(name + b"\0" for name in names)
        if root == self._top:  # passed explicitly, because a work tree of core.worktree has no .git
            finished = run_git(self._places, *_SAFELY, *arguments, stdin=stdin, extra=env.GIT_OFFLINE)
        else:
            finished = run_git_in(root, *_SAFELY, *arguments, stdin=stdin, extra=env.GIT_OFFLINE)
        if finished.returncode not in fine:
            raise build_failure(arguments, finished)
        return finished

    def _group_by_root(self, paths: Iterable[Path]) -> Iterator[tuple[Path, list[bytes]]]:
        """Yield each repository's top with the names of its paths, for git's standard input."""
        names: dict[Path, list[bytes]] = {}
        prefixes: dict[str, tuple[Path, bytes] | None] = {}
        for path in paths:
            folder, name = os.path.split(path)
            if folder not in prefixes:
                prefixes[folder] = self._find_prefix(Path(folder))
            if root_and_prefix := prefixes[folder]:
                root, prefix = root_and_prefix
                names.setdefault(root, []).append(prefix + os.fsencode(name))
        yield from names.items()

    def _find_prefix(self, folder: Path) -> tuple[Path, bytes] | None:
        """Return the top around a folder, and the prefix of its files' names there. The prefix
        begins with "./", because a name that begins with ":" would be a pattern.
        """
        if not (root := self._find_root(folder)):
            return None
        within = folder.relative_to(root)
        return root, b"./" + (os.fsencode(within) + b"/" if within.parts else b"")

    def _find_root(self, folder: Path) -> Path | None:
        """Return the top of the work tree that contains a folder, or None outside of a
        repository.
        """
        above: list[Path] = []
        root: Path | None = None
        for parent in (folder, *folder.parents):
            if parent in self._roots:
                root = self._roots[parent]
                break
            above.append(parent)
            if parent == self._top or os.path.lexists(parent / ".git"):
                root = parent
                break
        self._roots.update(dict.fromkeys(above, root))
        return root
