"""Which files a work tree has, as git lists them: tracked, ignored, generated.

A folder that is imported may hold other repositories, as submodules, or lie in one, or in none. So
each path is a question to the repository that it lies in, and all paths of one repository are asked
at once.
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

_INDEX = ("-c", "core.fsmonitor=false", "ls-files", "-z", "-t", "--stage")
"""A repository that a stranger packed must not name a program: core.fsmonitor would be one."""


class IndexListing(Record, frozen=True):
    """What git's index has, as paths from the top: `tracked` files and links; `hidden`, those of
    them that a sparse checkout leaves out of the work tree (skip-worktree); `submodules`.
    """

    tracked: frozenset[str]
    hidden: frozenset[str]
    submodules: frozenset[str]


def read_index(places: Places) -> IndexListing:
    """Raises `GitFailed`."""
    return _parse_listing(run_git(places, *_INDEX, extra=env.GIT_OFFLINE))


def list_absent_paths(places: Places, paths: Collection[str]) -> set[str]:
    """The paths, from the top, that may be missing though git has them: a sparse checkout hides
    them, here or in a submodule, or their submodule is not checked out.

    Raises `GitFailed`.
    """
    return _not_checked_out(read_index(places), places.top, paths) if paths else set()


def _not_checked_out(listing: IndexListing, top: Path, paths: Collection[str]) -> set[str]:
    found = {path for path in paths if path in listing.hidden}
    for submodule in listing.submodules:
        start, folder = f"{submodule}/", top / submodule
        inside = {path.removeprefix(start): path for path in paths if path.startswith(start)}
        if inside and not os.path.lexists(folder / ".git"):
            found.update(inside.values())
        elif inside:
            own = _parse_listing(run_git_in(folder, *_INDEX, extra=env.GIT_OFFLINE))
            found.update(inside[each] for each in _not_checked_out(own, folder, inside))
    return found


def _parse_listing(done: FinishedProcess) -> IndexListing:
    if done.returncode != 0:
        raise build_failure(_INDEX[2:], done)
    tracked, hidden, submodules = set[str](), set[str](), set[str]()
    for entry in done.stdout.split(b"\0"):
        about, _, name = entry.partition(b"\t")  # H 100644 <object> <stage>
        path = os.fsdecode(name)
        if about[2:8] == b"160000":
            submodules.add(path)
        elif path:
            tracked.add(path)
            if about[:1] == b"S":
                hidden.add(path)
    return IndexListing(frozenset(tracked), frozenset(hidden), frozenset(submodules))


_FEW = 100
"""Number of paths up to which git is asked for these alone."""


def list_tracked_files(places: Places, paths: Collection[str] = ()) -> list[str]:
    """Return the paths of regular files from the top: no links, no submodules.

    `paths`: only these matter; others may be among the result.
    """
    # A repository that a stranger packed must not name a program: core.fsmonitor would be one.
    options = ("-c", "core.fsmonitor=false", "--literal-pathspecs", "ls-files", "--stage", "-z", "--")
    entries = check_git(places, *options, *(paths if len(paths) <= _FEW else ())).stdout.split(b"\0")
    found = (entry.partition(b"\t") for entry in entries if entry.startswith(b"100"))
    return [*dict.fromkeys(os.fsdecode(path) for _, _, path in found)]


def read_index_entries(places: Places, paths: Sequence[Path]) -> bytes:
    """The index's entries of these files at the top of the work tree, for `put_back`."""
    return check_git(places, "--literal-pathspecs", "ls-files", "--stage", "-z", "--", *_names(paths)).stdout


def restore_index_entries(places: Places, paths: Sequence[Path], entries: bytes) -> None:
    """Raises `GitFailed`, as while another git command holds the index."""
    if read_index_entries(places, paths) != entries:
        check_git(places, "update-index", "--force-remove", "--", *_names(paths))
        check_git(places, "update-index", "-z", "--index-info", stdin=entries)


def _names(paths: Sequence[Path]) -> list[str]:
    return [path.name for path in paths]


_GENERATED = "linguist-generated"
"""The attribute by which GitHub's and others' diffs fold files that nobody wrote."""


def refuse_ignored(
    places: Places, paths: Iterable[Path], *, hint: str, agreed: Collection[str] = (), ask: bool = False
) -> None:
    """Raise `AccessDenied` for a path of the work tree that git ignores, which nobody but a person
    takes into the knowledge base: what is stored is pushed. Raises `GitFailed`.

    `agreed`: paths to which the person said yes. `ask`: they may be asked.
    """
    top = Path(os.path.realpath(places.top))
    real = (Path(os.path.realpath(each.parent), each.name) for each in paths)  # git looks behind no link
    for path in Repositories(places).find_hidden(each for each in real if each.is_relative_to(top)):
        if str(path) not in agreed:
            raise build_ignored_error(path, hint=hint, ask=ask)


def build_ignored_error(path: Path, *, hint: str, ask: bool = False) -> AccessDenied:
    name = terminal_text.escape_line(str(path))
    message = f"{name} was not taken: git ignores it, and what the knowledge base holds is pushed."
    asking = {"ask": True, "ignored": str(path)} if ask else {}
    return AccessDenied(message, hint=hint, path=name, **asking)


class Repositories:
    """The work tree `places` and all others around paths; remembers where each folder belongs."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._top = Path(os.path.realpath(places.top))
        self._roots: dict[Path, Path | None] = {}

    def find_ignored(self, paths: Iterable[Path]) -> set[Path]:
        """The paths that git ignores: by a `.gitignore`, `info/exclude`, or the person's own list.
        A tracked file is none. Raises `GitFailed`.
        """
        found: set[Path] = set()
        for root, names in self._by_root(paths):
            done = self._ask(root, ("check-ignore", "-z", "--stdin"), names, fine=(0, 1))  # 1: none is ignored
            found.update(root / os.fsdecode(name) for name in done.stdout.split(b"\0") if name)
        return found

    def find_hidden(self, paths: Iterable[Path]) -> set[Path]:
        """As `ignored`, and those in a repository whose folder is ignored by the one around it.

        Raises `GitFailed`.
        """
        asked = list(paths)
        within = {root for each in asked if (root := self._root(each.parent)) and root != self._top}
        hidden_roots = self.find_hidden(within) if within else set()
        return self.find_ignored(asked) | {each for each in asked if self._root(each.parent) in hidden_roots}

    def read_generated(self, files: Iterable[Path]) -> dict[Path, bool]:
        """The files of which `.gitattributes` says whether they are generated.

        Raises `GitFailed`.
        """
        values = self.read_attributes(files, (_GENERATED,))
        return {file: stated[_GENERATED] in (True, "true") for file, stated in values.items()}

    def read_attributes(self, files: Iterable[Path], names: Sequence[str]) -> dict[Path, dict[str, bool | str]]:
        """Return the specified values of these attributes by file.

        Raises `GitFailed`.
        """
        values: dict[Path, dict[str, bool | str]] = {}
        for root, paths in self._by_root(files):
            fields = self._ask(root, ("check-attr", "-z", "--stdin", *names), paths).stdout.split(b"\0")
            for path, name, value in zip(fields[::3], fields[1::3], fields[2::3], strict=False):
                if value != b"unspecified":
                    stated = value == b"set" if value in (b"set", b"unset") else os.fsdecode(value)
                    values.setdefault(root / os.fsdecode(path), {})[os.fsdecode(name)] = stated
        return values

    def _ask(
        self, root: Path, arguments: tuple[str, ...], names: list[bytes], *, fine: tuple[int, ...] = (0,)
    ) -> proc.FinishedProcess:
        # A repository that a stranger packed must not name a program. The monitor of its files is
        # one, and so is the ssh that would fetch a `.gitattributes` of which it has only the name.
        safely = ("-c", "core.fsmonitor=false", *arguments)
        stdin = b"".join(name + b"\0" for name in names)
        if root == self._top:  # named outright: a work tree of core.worktree has no .git of its own
            done = run_git(self._places, *safely, stdin=stdin, extra=env.GIT_OFFLINE)
        else:
            done = run_git_in(root, *safely, stdin=stdin, extra=env.GIT_OFFLINE)
        if done.returncode not in fine:
            raise build_failure(arguments, done)
        return done

    def _by_root(self, paths: Iterable[Path]) -> Iterator[tuple[Path, list[bytes]]]:
        names: dict[Path, list[bytes]] = {}
        places: dict[str, tuple[Path, bytes] | None] = {}
        for path in paths:
            folder, name = os.path.split(path)
            if folder not in places:
                places[folder] = self._place(Path(folder))
            if place := places[folder]:
                names.setdefault(place[0], []).append(place[1] + os.fsencode(name))
        yield from names.items()

    def _place(self, folder: Path) -> tuple[Path, bytes] | None:
        """The top around a folder, and what the names of its files begin with there: "./", because
        a name that begins with ":" would be a pattern.
        """
        if not (root := self._root(folder)):
            return None
        within = folder.relative_to(root)
        return root, b"./" + (os.fsencode(within) + b"/" if within.parts else b"")

    def _root(self, folder: Path) -> Path | None:
        """The top of the work tree that a folder lies in; None in no repository."""
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
