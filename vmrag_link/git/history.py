"""Pins in the whole history.

A commit *introduces* a pin if none of its parents has the same pin. So a merge that takes the pin
of one side introduces none. git answers each question in one batch, because reading 500 pins one
object at a time takes eight times as long.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from vmrag_link.errors import GitFailed
from vmrag_link.git import objects
from vmrag_link.git.run import check_git, join_lines, run_git
from vmrag_link.models import Record
from vmrag_link.paths import PIN_NAME, PIN_READ_LIMIT, Places
from vmrag_link.proc import FinishedProcess

ACCEPT_DROP = "Vmrag-Accept-Drop"
"""The trailer by which a code commit accepts that another one drops documents."""
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_ACCEPT_DROP = re.compile(rf"^{ACCEPT_DROP}: ([0-9a-f]{{40,64}})$", re.MULTILINE)


class PinEntry(Record, frozen=True):
    """git's mode and object name of `.dolt-version` in a tree."""

    mode: str
    name: str

    @property
    def is_file(self) -> bool:
        """True if it is a regular file, not a link, directory or submodule."""
        return self.mode.startswith("100")


class PinChange(Record, frozen=True):
    """A commit whose pin differs from a parent's pin, or a root commit with a pin."""

    commit: str
    parents: tuple[str, ...]
    before: tuple[PinEntry | None, ...]
    """The pin of each parent, or None for a parent without a pin."""
    after: PinEntry | None


class Walk(Record, frozen=True):
    """The commits of a range with their parents, and the changes of the pin. Parents come before
    children.
    """

    parents: dict[str, tuple[str, ...]]
    changes: tuple[PinChange, ...]
    contents: dict[str, bytes]
    """The contents of the pins that are files, by object name, up to 8 KiB each."""
    cut: frozenset[str]
    """The commits whose parents are missing in a shallow clone."""


def walk_range(places: Places, tip: str, *, without: str | None = None) -> Walk:
    """Return the commits that `tip` reaches and `without` does not, with the changes of the pin.

    Raises `GitFailed`.
    """
    parents = list_commits(places, [tip], without=without)
    changes = tuple(_list_changes(places, parents))
    entries = {entry for change in changes for entry in (change.after, *change.before) if entry and entry.is_file}
    objects.fetch_blobs(places, (entry.name for entry in entries))
    names = _filter_small(places, sorted(entry.name for entry in entries))
    contents = dict(zip(names, _read_contents(places, names), strict=True))
    return Walk(parents, changes, contents, frozenset(parents.keys() & read_shallow_boundary(places)))


def list_commits(places: Places, tips: Iterable[str], *, without: str | None = None) -> dict[str, tuple[str, ...]]:
    """Return the commits that the tips reach and `without` does not, with their parents.

    Parents come before children. Parents that a shallow clone lacks are left out. Raises
    `GitFailed`.
    """
    revisions = [*tips, *([f"^{without}"] if without else [])]
    lines = _run_history(places, "rev-list", "--topo-order", "--reverse", "--parents", *revisions).text.splitlines()
    return {commit: tuple(parents) for commit, *parents in map(str.split, lines)}


def read_accepted_drops(places: Places, tip: str, *, without: str | None = None) -> dict[str, str]:
    """Return the commits whose loss of documents is accepted in the range, each with the commit
    that accepts it.

    A commit accepts a loss with the trailer `Vmrag-Accept-Drop: COMMIT`.
    """
    tips = [tip, *([f"^{without}"] if without else [])]
    output = check_git(places, "log", "--format=%x1e%H%n%B", f"--grep=^{ACCEPT_DROP}: ", *tips, "--").text
    accepting: dict[str, str] = {}
    for record in output.split("\x1e")[1:]:
        commit, _, message = record.partition("\n")
        accepting |= dict.fromkeys(_ACCEPT_DROP.findall(message), commit)
    return accepting


def read_verified(places: Places) -> str:
    """Return the commit up to which no dropped documents were found, or an empty text if it is
    unknown.
    """
    try:
        content = places.verified.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return content if _COMMIT.fullmatch(content) else ""


def read_shallow_boundary(places: Places) -> set[str]:
    """Return the commits whose parents this clone lacks because it is shallow."""
    try:
        return set((places.common / "shallow").read_text().split())
    except FileNotFoundError:
        return set()


def list_pins(places: Places, *, reflogs: bool = True, also: Iterable[str] = ()) -> dict[bytes, list[str]]:
    """Return the contents of `.dolt-version` in all commits that a ref or a work tree's HEAD
    reaches, each with the commits that introduced it, newest first.

    With `reflogs`, commits that a ref reached in the past are included. Contents above 8 KiB are
    not pins and are left out. `also` names further commits, which may be missing. The index and the
    work tree are not read. Raises `GitFailed`.
    """
    touching = _read_touching(places, also, before=("--all", "--reflog") if reflogs else ("--all",))
    objects.fetch_blobs_at(places, touching, PIN_NAME)
    return _group_by_content(_read_pins(places, touching).introduced)


class LoggedPins(NamedTuple):
    """Pins for a log."""

    introduced: dict[bytes, list[str]]
    """The commits that introduced a pin, newest first, by pin."""
    by_tip: dict[str, bytes]
    """The pin of each tip."""
    subjects: dict[str, str]
    """The subjects of all commits that touch the pin."""


def read_logged_pins(places: Places, tips: Iterable[str], *, also: Iterable[str] = ()) -> LoggedPins:
    """Return the pins for a log. `also` is used as in `list_pins`. Raises `GitFailed`."""
    lines = _list_touching(places, also, before=("--all", "--encoding=UTF-8"), also_shown="%x00%s")
    touching: dict[str, list[str]] = {}
    subjects: dict[str, str] = {}
    for line in lines:
        names, _, subject = line.partition("\0")
        commit, *parents = names.split()
        touching[commit], subjects[commit] = parents, subject
    objects.fetch_blobs_at(places, touching, PIN_NAME)
    pins = _read_pins(places, touching, tips)
    return LoggedPins(_group_by_content(pins.introduced), pins.by_tip, subjects)


def list_new_pins(places: Places, tips: Iterable[str]) -> dict[bytes, list[str]]:
    """Return the pins, as in `list_pins`, of the commits that the tips reach and no remote-tracking
    branch reaches.
    """
    return _group_by_content(_read_pins(places, _read_touching(places, tips, *_NO_REMOTE)).introduced)


def list_reachable_pins(places: Places, tips: Iterable[str]) -> dict[bytes, list[str]]:
    """Return the pins, as in `list_pins`, of the commits that the tips reach.

    A tip that begins with ^ excludes the commits that it reaches.
    """
    return _group_by_content(_read_pins(places, _read_touching(places, tips)).introduced)


class PushedPins(Record, frozen=True):
    """Pins of the commits that a push transfers."""

    new: dict[bytes, list[str]]
    """The pins that `list_new_pins` returns."""
    incoming: dict[bytes, list[str]]
    """The pins of commits that were not reachable from the other side before."""
    by_tip: dict[str, bytes]
    """The pin of each tip."""
    by_commit: dict[str, bytes | None]
    """The pin that each of the examined commits introduces, or None."""

    def list_reachable(self, places: Places, tips: Iterable[str]) -> dict[bytes, list[str]]:
        """Return the pins like `list_reachable_pins`. git reads only commits that are not in
        `by_commit` yet.
        """
        touching = _read_touching(places, tips)
        unread = {commit: touching[commit] for commit in touching.keys() - self.by_commit}
        by_commit = self.by_commit | _read_pins(places, unread).introduced
        return _group_by_content({commit: pin for commit in touching if (pin := by_commit.get(commit)) is not None})


def read_pushed_pins(places: Places, tips: Iterable[str], before: Iterable[str]) -> PushedPins:
    """Return the pins that a push of these tips transfers to a remote that has the commits
    `before`.
    """
    distinct_tips = list(dict.fromkeys(tips))
    new = _read_touching(places, distinct_tips, *_NO_REMOTE)
    incoming = _read_touching(places, [*distinct_tips, *(f"^{commit}" for commit in before)])
    pins = _read_pins(places, new | incoming, distinct_tips)
    return PushedPins(
        new=_group_by_content(_select_pins(pins.introduced, new)),
        incoming=_group_by_content(_select_pins(pins.introduced, incoming)),
        by_tip=pins.by_tip,
        by_commit={commit: pins.introduced.get(commit) for commit in (*new, *incoming)},
    )


def _select_pins(pins: Mapping[str, bytes], commits: Iterable[str]) -> dict[str, bytes]:
    """Return the pins of these commits, in the order of the commits."""
    return {commit: pins[commit] for commit in commits if commit in pins}


def list_pins_after(places: Places, commit: str) -> dict[str, bytes]:
    """Return the pins that descendants of a commit introduce, by commit, oldest first. Only commits
    that a ref reaches are included.
    """
    options = ("--all", "--ancestry-path", "--full-history", "--date-order", "--reverse", f"^{commit}")
    return read_introduced_pins(places, _run_history(places, "rev-list", *options, "--", PIN_NAME).text.split())


_NO_REMOTE = ("--not", "--remotes")


def _read_touching(
    places: Places, tips: Iterable[str], *without: str, before: tuple[str, ...] = ()
) -> dict[str, list[str]]:
    """Return the commits that touch the pin, newest first, with their parents."""
    lines = _list_touching(places, tips, *without, before=before)
    return {commit: parents for commit, *parents in map(str.split, lines)}


def _list_touching(
    places: Places, tips: Iterable[str], *without: str, before: tuple[str, ...] = (), also_shown: str = ""
) -> list[str]:
    """Return a line for each commit that touches the pin, newest first: the names of the commit and
    its parents, then `also_shown` in git's format.
    """
    # Without --full-history git skips side branches whose pin a merge dropped. --parents would
    # print the next commits that touch the pin instead of the parents. --stdin comes before --not,
    # because some versions of git would also exclude its lines.
    shown = f"--format=%H %P{also_shown}"
    options = (*before, "--full-history", "--ignore-missing", shown, "--stdin", *without, "--", PIN_NAME)
    lines = _run_history(places, "rev-list", *options, lines=tips).stdout.decode(errors="replace").split("\n")
    return [line for line in lines if line and not line.startswith("commit ")]


def collect_pins(places: Places, tips: Iterable[str]) -> set[bytes]:
    """Return the distinct pins of these commits or tags."""
    return set(read_pins(places, tips).values())


def read_pins(places: Places, commits: Iterable[str]) -> dict[str, bytes]:
    """Return the pins of these commits or tags by the given name. Commits without a pin are left
    out.
    """
    return _read_pins(places, {}, commits).by_tip


def read_introduced_pins(places: Places, commits: Iterable[str]) -> dict[str, bytes]:
    """Return the pins that these commits introduce, by commit. Missing commits are left out."""
    return _read_pins(places, _read_parents(places, commits)).introduced


class _Pins(NamedTuple):
    introduced: dict[str, bytes]
    """The pin that a commit introduces, by commit."""
    by_tip: dict[str, bytes]


def _read_pins(places: Places, parents: Mapping[str, Sequence[str]], tips: Iterable[str] = ()) -> _Pins:
    """Return the pins that the commits with these parents introduce, and the pins of the tips."""
    tips = list(tips)
    commits = dict.fromkeys([*parents, *itertools.chain(*parents.values()), *tips])
    blobs = dict(zip(commits, _pin_blobs(places, commits), strict=True))
    introduced: dict[str, str] = {}
    for commit, before in parents.items():
        blob = blobs[commit]
        if blob and all(blob != blobs[parent] for parent in before):
            introduced[commit] = blob
    by_tip = {tip: blob for tip in tips if (blob := blobs[tip])}
    names = dict.fromkeys([*introduced.values(), *by_tip.values()])
    contents = dict(zip(names, _read_contents(places, names), strict=True))
    return _Pins(
        {commit: contents[blob] for commit, blob in introduced.items()},
        {tip: contents[blob] for tip, blob in by_tip.items()},
    )


def _group_by_content(pins: dict[str, bytes]) -> dict[bytes, list[str]]:
    commits: dict[bytes, list[str]] = {}
    for commit, content in pins.items():
        commits.setdefault(content, []).append(commit)
    return commits


class Description(NamedTuple):
    """Author, date and subject of a commit as users see them.

    `author` includes the address, `date` is the author's day (ISO 8601), and `subject` is the first
    paragraph of the message on one line.
    """

    author: str
    date: str
    subject: str


def describe_commits(places: Places, commits: Iterable[str]) -> dict[str, Description]:
    """Return the descriptions of the commits, newest first."""
    if not (names := list(commits)):  # git reports an empty list as an error
        return {}
    options = ("--no-walk=sorted", "--stdin", "--encoding=UTF-8", "--format=%H%x00%an <%ae>%x00%as%x00%s")
    answers = _run_history(places, "rev-list", *options, lines=names).stdout
    lines = (line.split("\0") for line in answers.decode(errors="replace").split("\n"))
    return {line[0]: Description(*line[1:]) for line in lines if len(line) > 1}


def list_changing_commits(places: Places, tip: str, pathspecs: Iterable[str], *, limit: int) -> list[str]:
    """Return commits of the first-parent history of `tip` that changed files of these pathspecs,
    newest first.
    """
    options = ("--first-parent", f"--max-count={limit}", tip, "--")
    return _run_history(places, "rev-list", *options, *pathspecs).text.split()


def list_changed_files(places: Places, before: str, after: str) -> list[str]:
    """Return the paths that differ between two commits, given by their hashes."""
    from vmrag_link.git.console import open_console  # GitPython takes 170 ms to import

    with open_console(places) as console_git:
        names = console_git.diff("--name-only", "--no-renames", "-z", before, after, stdout_as_string=False)
    assert isinstance(names, bytes)  # noqa: S101  because of stdout_as_string=False
    return [name.decode(errors="replace") for name in names.split(b"\0") if name]


def _run_history(places: Places, *arguments: str, lines: Iterable[str] | None = None) -> FinishedProcess:
    """Run git with these lines on its standard input, and return what it left. Raises
    `GitFailed`.
    """
    stdin = None if lines is None else join_lines(lines)
    finished = run_git(places, *arguments, stdin=stdin)
    if finished.returncode != 0:
        reason = finished.failure
        raise GitFailed(
            f"cannot read the history of {PIN_NAME}: {reason}",
            hint="run 'git fsck' to find damaged objects",
            said=reason,
        )
    return finished


class _Side(NamedTuple):
    """A commit's pin and that of one parent, if they differ."""

    before: PinEntry | None
    after: PinEntry | None


def _list_changes(places: Places, parents: dict[str, tuple[str, ...]]) -> Iterator[PinChange]:
    """Yield the commits whose pin differs from a parent's. Trees are compared with each parent,
    because a merge that takes one side's pin differs from the other side.
    """
    questions = (f"{commit} {parent_name}" for commit, before in parents.items() for parent_name in before or ("",))
    options = ("--stdin", "--always", "--root", "--raw", "--no-abbrev", "--no-renames", "--", PIN_NAME)
    comparisons = iter(
        _group_comparisons(_run_history(places, "diff-tree", *options, lines=questions).text.splitlines())
    )
    for commit, parent_names in parents.items():
        sides = [_parse_comparison(next(comparisons)) for _ in parent_names or ("",)]
        changed = [side for side in sides if side]
        if changed:
            after = changed[0].after
            before = tuple(side.before if side else after for side in sides) if parent_names else ()
            yield PinChange(commit, parent_names, before, after)


def _group_comparisons(lines: Iterable[str]) -> list[list[str]]:
    """Return the lines of each comparison, without the commit's name with which it begins."""
    groups: list[list[str]] = []
    for line in lines:
        if line.startswith(":"):
            groups[-1].append(line)
        else:
            groups.append([])
    return groups


def _parse_comparison(lines: list[str]) -> _Side | None:
    """Parse no line if the pins are equal, one line, or two if a directory replaces a file."""
    old = new = None
    for line in lines:
        mode_before, mode, name_before, name, _ = line.removeprefix(":").split(None, 4)
        old = PinEntry(mode_before, name_before) if int(mode_before) else old
        new = PinEntry(mode, name) if int(mode) else new
    return _Side(old, new) if lines else None


def _filter_small(places: Places, names: Iterable[str]) -> list[str]:
    """Return the blobs that are small enough for a pin.

    Raises `GitFailed` for a missing blob.
    """
    small = []
    for line in _read_objects(places, "--batch-check", dict.fromkeys(names)).decode().splitlines():
        name, kind, *size = line.split()
        if kind == "missing":
            raise GitFailed(
                f"the object {name} of the history of {PIN_NAME} is missing.",
                hint="run 'git fsck' to find damaged objects",
            )
        if int(size[0]) <= PIN_READ_LIMIT:
            small.append(name)
    return small


def _read_parents(places: Places, commits: Iterable[str]) -> dict[str, list[str]]:
    """Return the parents of the existing commits, in the given order. In a shallow clone, parents
    that are cut off are missing.
    """
    if not (names := list(commits)):  # git reports an empty list as an error
        return {}
    options = ("--no-walk=unsorted", "--ignore-missing", "--stdin", "--parents")
    answers = _run_history(places, "rev-list", *options, lines=names).text.splitlines()
    return {commit: before for commit, *before in map(str.split, answers)}


def _pin_blobs(places: Places, commits: Iterable[str]) -> Iterator[str | None]:
    """Yield the blob's hash for each commit, or None if the commit has no pin or something else in
    its place.
    """
    answers = _read_objects(places, "--batch-check", [f"{commit}:{PIN_NAME}" for commit in commits])
    for line in answers.decode().splitlines():
        match line.split(" "):
            case [name, "blob", size] if int(size) <= PIN_READ_LIMIT:
                yield name
            case _:
                yield None


def _read_contents(places: Places, names: Collection[str]) -> Iterator[bytes]:
    rest = _read_objects(places, "--batch", names)
    while rest:
        header, _, rest = rest.partition(b"\n")
        size = int(header.split(b" ")[2])
        yield rest[:size]
        rest = rest[size + 1 :]


def _read_objects(places: Places, mode: str, names: Collection[str]) -> bytes:
    return _run_history(places, "cat-file", mode, lines=names).stdout if names else b""
