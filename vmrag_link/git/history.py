"""The pins of the whole history, on GitPython, which takes 170 ms to import.

GitPython runs the commands, and their answers are read in one batch each. Its objects (`Commit`,
`Tree`) ask git for one object at a time: for 500 pins they take eight times as long.
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Iterable, Iterator
from typing import IO, TYPE_CHECKING, NamedTuple

from vmrag_link.errors import GitFailed
from vmrag_link.git import partial
from vmrag_link.paths import PIN_NAME, PIN_READ_LIMIT, Places

if TYPE_CHECKING:
    from vmrag_link.git.console import Console


class PinEntry(NamedTuple):
    """What stands at `.dolt-version`: git's mode and the object's name."""

    mode: str
    name: str

    @property
    def is_file(self) -> bool:
        """Links, directories and submodules are none."""
        return self.mode.startswith("100")


class PinChange(NamedTuple):
    """A commit whose pin differs from a parent's, or a root with a pin.

    `before`: the pin of each parent; None for no pin.
    """

    commit: str
    parents: tuple[str, ...]
    before: tuple[PinEntry | None, ...]
    after: PinEntry | None


class Walk(NamedTuple):
    """The commits of a range with their parents, and the changes of the pin; parents before
    children.

    `contents`: of the files among the pins by name, up to 8 KiB. `cut`: commits whose parents a
    shallow clone lacks.
    """

    parents: dict[str, tuple[str, ...]]
    changes: tuple[PinChange, ...]
    contents: dict[str, bytes]
    cut: frozenset[str]


def walk(places: Places, tip: str, *, without: str | None = None) -> Walk:
    """The commits that the tip reaches, and `without` does not."""
    with _git(places) as console:
        parents = _reached(console, [tip], without)
        changes = tuple(_changes(console, parents))
        entries = {entry for change in changes for entry in (change.after, *change.before) if entry and entry.is_file}
        partial.bring(places, (entry.name for entry in entries))
        names = _small(console, sorted(entry.name for entry in entries))
        contents = dict(zip(names, _contents(console, names), strict=True))
    return Walk(parents, changes, contents, frozenset(parents.keys() & boundary(places)))


def commits(places: Places, tips: Iterable[str], *, without: str | None = None) -> dict[str, tuple[str, ...]]:
    """The commits that the tips reach, and `without` does not, with their parents; parents before
    children. Parents that a shallow clone lacks are left out.
    """
    with _git(places) as console:
        return _reached(console, tips, without)


def boundary(places: Places) -> set[str]:
    """The commits whose parents this clone lacks, because it is shallow."""
    try:
        return set((places.common / "shallow").read_text().split())
    except FileNotFoundError:
        return set()


def pins(places: Places, *, reflogs: bool = True, also: Iterable[str] = ()) -> dict[bytes, list[str]]:
    """Every content of `.dolt-version` in commits that a ref or a work tree's HEAD reaches, or
    (`reflogs`) reached.

    Mapped to the commits that introduced it, newest first; a merge counts only where it equals none
    of its parents. Contents above 8 KiB pin nothing and are left out. `also`: further commits,
    which may be gone. The index and the work tree are no commits.
    """
    with _git(places) as console:
        commits = _commits_that_touch_the_pin(console, also, reflogs=reflogs)
        partial.bring_at(places, commits, PIN_NAME)
        return _by_content(_introduced_pins(console, commits))


def new_pins(places: Places, tips: Iterable[str]) -> dict[bytes, list[str]]:
    """As `pins`, of the commits that the tips reach and no remote-tracking branch reaches."""
    return _pins_of(places, tips, "--not", "--remotes")


def reachable_pins(places: Places, tips: Iterable[str]) -> dict[bytes, list[str]]:
    """As `pins`, of the commits that the tips reach.

    A tip that begins with ^ excludes what it reaches.
    """
    return _pins_of(places, tips)


def pins_after(places: Places, commit: str) -> dict[str, bytes]:
    """The pins that descendants of a commit introduce, by commit, oldest first; of those that a ref
    reaches.
    """
    with _git(places) as console:
        options = ("--all", "--ancestry-path", "--full-history", "--date-order", "--reverse", f"^{commit}")
        return _introduced_pins(console, str(console.rev_list(*options, "--", PIN_NAME)).split())


def _pins_of(places: Places, tips: Iterable[str], *without: str) -> dict[bytes, list[str]]:
    with _git(places) as console, _lines(tips) as asked:
        # --stdin first: some versions of git would take its lines for exclusions as well.
        options = ("--full-history", "--ignore-missing", "--stdin", *without, "--", PIN_NAME)
        return _by_content(_introduced_pins(console, str(console.rev_list(*options, istream=asked)).split()))


def pins_at(places: Places, tips: Iterable[str]) -> set[bytes]:
    """The pins of these commits, or of what tags name; `pins` says which count."""
    return set(pins_of(places, tips).values())


def pins_of(places: Places, commits: Iterable[str]) -> dict[str, bytes]:
    """As `pins_at`, by the given name. Commits without a pin are left out."""
    asked = list(dict.fromkeys(commits))
    with _git(places) as console:
        blobs = {commit: blob for commit, blob in zip(asked, _pin_blobs(console, asked), strict=True) if blob}
        return dict(zip(blobs, _contents(console, blobs.values()), strict=True))


def introduced(places: Places, commits: Iterable[str]) -> dict[str, bytes]:
    """The pins that these commits introduce, by commit, in the sense of `pins`.

    Missing commits are left out.
    """
    with _git(places) as console:
        return _introduced_pins(console, commits)


def _introduced_pins(console: Console, commits: Iterable[str]) -> dict[str, bytes]:
    parents = _parents(console, commits)
    trees = dict.fromkeys([*parents, *itertools.chain(*parents.values())])
    blobs = dict(zip(trees, _pin_blobs(console, trees), strict=True))
    new = {
        commit: blob
        for commit, before in parents.items()
        if (blob := blobs[commit]) and blob not in [blobs[each] for each in before]
    }
    names = dict.fromkeys(new.values())
    contents = dict(zip(names, _contents(console, names), strict=True))
    return {commit: contents[blob] for commit, blob in new.items()}


def _by_content(pins: dict[str, bytes]) -> dict[bytes, list[str]]:
    commits: dict[bytes, list[str]] = {}
    for commit, content in pins.items():
        commits.setdefault(content, []).append(commit)
    return commits


class Description(NamedTuple):
    """Of a commit: `author` with the address, `date` the author's day (ISO 8601), `subject` the
    first paragraph of its message on one line.
    """

    author: str
    date: str
    subject: str


def subjects(places: Places, commits: Iterable[str]) -> dict[str, str]:
    """The first paragraph of each commit's message on one line; the commits newest first."""
    return {commit: found.subject for commit, found in descriptions(places, commits).items()}


def descriptions(places: Places, commits: Iterable[str]) -> dict[str, Description]:
    """The commits newest first."""
    if not (asked := list(commits)):  # git would take that for a mistake
        return {}
    with _git(places) as console, _lines(asked) as questions:
        answers = console.rev_list(
            "--no-walk=sorted",
            "--stdin",
            "--encoding=UTF-8",
            "--format=%H%x00%an <%ae>%x00%as%x00%s",
            istream=questions,
            stdout_as_string=False,
        )
    assert isinstance(answers, bytes)  # noqa: S101  because of stdout_as_string=False
    lines = (line.split("\0") for line in answers.decode(errors="replace").split("\n"))
    return {line[0]: Description(*line[1:]) for line in lines if len(line) > 1}


def changed_files(places: Places, before: str, after: str) -> list[str]:
    """The paths that differ between two commits, given by their hashes."""
    with _git(places) as console:
        names = console.diff("--name-only", "--no-renames", "-z", before, after, stdout_as_string=False)
    assert isinstance(names, bytes)  # noqa: S101  because of stdout_as_string=False
    return [name.decode(errors="replace") for name in names.split(b"\0") if name]


@contextlib.contextmanager
def _git(places: Places) -> Iterator[Console]:
    """GitPython's git on this repository. Its errors become `GitFailed`."""
    from vmrag_link.git.console import CommandError, Console

    try:
        yield Console(places)
    except CommandError as error:
        said = str(error.stderr).strip()
        raise GitFailed(f"Cannot read the history of {PIN_NAME}: {said}", hint="git fsck", said=said) from error


def _commits_that_touch_the_pin(console: Console, also: Iterable[str], *, reflogs: bool) -> list[str]:
    sources = ("--all", "--reflog") if reflogs else ("--all",)
    with _lines(also) as more:
        # Without --full-history git skips side branches whose pin a merge dropped.
        options = ("--ignore-missing", "--stdin", "--full-history")
        return str(console.rev_list(*sources, *options, "--", PIN_NAME, istream=more)).split()


def _reached(console: Console, tips: Iterable[str], without: str | None) -> dict[str, tuple[str, ...]]:
    asked = [*tips, *([f"^{without}"] if without else [])]
    lines = str(console.rev_list("--topo-order", "--reverse", "--parents", *asked)).splitlines()
    return {commit: tuple(before) for commit, *before in map(str.split, lines)}


def _changes(console: Console, parents: dict[str, tuple[str, ...]]) -> Iterator[PinChange]:
    """Compare the trees' own entries with each parent's: a merge that takes one side's pin differs
    from the other.
    """
    questions = (f"{commit} {each}" for commit, before in parents.items() for each in before or ("",))
    with _lines(questions) as asked:
        options = ("--stdin", "--always", "--root", "--raw", "--no-abbrev", "--no-renames", "--", PIN_NAME)
        lines = str(console.diff_tree(*options, istream=asked)).splitlines()
    at = 0
    for commit, each in parents.items():
        sides: list[tuple[PinEntry | None, PinEntry | None] | None] = []
        for _ in each or ("",):
            at, side = _read_comparison(lines, at + 1)
            sides.append(side)
        if changed := [side for side in sides if side]:
            after = changed[0][1]
            yield PinChange(commit, each, tuple(side[0] if side else after for side in sides) if each else (), after)


def _read_comparison(lines: list[str], at: int) -> tuple[int, tuple[PinEntry | None, PinEntry | None] | None]:
    """The lines after a commit's name: none for equal pins, one, or two where a directory replaces
    a file.
    """
    old = new = None
    start = at
    while at < len(lines) and lines[at].startswith(":"):
        mode_before, mode, name_before, name, _ = lines[at].removeprefix(":").split(None, 4)
        old = PinEntry(mode_before, name_before) if int(mode_before) else old
        new = PinEntry(mode, name) if int(mode) else new
        at += 1
    return at, (old, new) if at > start else None


def _small(console: Console, names: Iterable[str]) -> list[str]:
    """Those of these blobs that are small enough for a pin.

    Raises `GitFailed` for a missing one.
    """
    small = []
    for line in _cat_file(console, "--batch-check", dict.fromkeys(names)).decode().splitlines():
        name, kind, *size = line.split()
        if kind == "missing":
            raise GitFailed(f"The object {name} of the history of {PIN_NAME} is missing.", hint="git fsck")
        if int(size[0]) <= PIN_READ_LIMIT:
            small.append(name)
    return small


def _parents(console: Console, commits: Iterable[str]) -> dict[str, list[str]]:
    """Of the commits that are there, in the order given; as a shallow clone sees them."""
    if not (asked := list(commits)):  # git would take that for a mistake
        return {}
    with _lines(asked) as questions:
        options = ("--no-walk=unsorted", "--ignore-missing", "--stdin", "--parents")
        answers = str(console.rev_list(*options, istream=questions)).splitlines()
    return {commit: before for commit, *before in map(str.split, answers)}


def _pin_blobs(console: Console, commits: Iterable[str]) -> Iterator[str | None]:
    """The blob's hash for each commit; None if there is no pin, or something else in its place."""
    answers = _cat_file(console, "--batch-check", (f"{commit}:{PIN_NAME}" for commit in commits))
    for line in answers.decode().splitlines():
        match line.split(" "):
            case [name, "blob", size] if int(size) <= PIN_READ_LIMIT:
                yield name
            case _:
                yield None


def _contents(console: Console, names: Iterable[str]) -> Iterator[bytes]:
    rest = _cat_file(console, "--batch", names)
    while rest:
        header, _, rest = rest.partition(b"\n")
        size = int(header.split(b" ")[2])
        yield rest[:size]
        rest = rest[size + 1 :]


def _cat_file(console: Console, mode: str, objects: Iterable[str]) -> bytes:
    with _lines(objects) as questions:
        answers = console.cat_file(mode, istream=questions, stdout_as_string=False, strip_newline_in_stdout=False)
    assert isinstance(answers, bytes)  # noqa: S101  because of stdout_as_string=False
    return answers


@contextlib.contextmanager
def _lines(names: Iterable[str]) -> Iterator[IO[bytes]]:
    """Names on standard input: GitPython hands git a file, not bytes."""
    with tempfile.TemporaryFile() as file:
        file.write("".join(f"{name}\n" for name in names).encode())
        file.seek(0)
        yield file
