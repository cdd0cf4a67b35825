"""The pins of the whole history. Each question is put to git in one batch: asked for one object at
a time, 500 pins take eight times as long.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from vmrag_link.errors import GitFailed
from vmrag_link.git import objects
from vmrag_link.git.run import check_git, run_git
from vmrag_link.models import Record
from vmrag_link.paths import PIN_NAME, PIN_READ_LIMIT, Places
from vmrag_link.proc import FinishedProcess

ACCEPT_DROP = "Vmrag-Accept-Drop"
"""The trailer by which a code commit accepts that another one drops knowledge."""
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_ACCEPT_DROP = re.compile(rf"^{ACCEPT_DROP}: ([0-9a-f]{{40,64}})$", re.MULTILINE)


class PinEntry(Record, frozen=True):
    """What stands at `.dolt-version`: git's mode and the object's name."""

    mode: str
    name: str

    @property
    def is_file(self) -> bool:
        """Links, directories and submodules are none."""
        return self.mode.startswith("100")


class PinChange(Record, frozen=True):
    """A commit whose pin differs from a parent's, or a root with a pin.

    `before`: the pin of each parent; None for no pin.
    """

    commit: str
    parents: tuple[str, ...]
    before: tuple[PinEntry | None, ...]
    after: PinEntry | None


class Walk(Record, frozen=True):
    """The commits of a range with their parents, and the changes of the pin; parents before
    children.

    `contents`: of the files among the pins by name, up to 8 KiB. `cut`: commits whose parents a
    shallow clone lacks.
    """

    parents: dict[str, tuple[str, ...]]
    changes: tuple[PinChange, ...]
    contents: dict[str, bytes]
    cut: frozenset[str]


def walk_range(places: Places, tip: str, *, without: str | None = None) -> Walk:
    """The commits that the tip reaches, and `without` does not."""
    parents = _reached(places, [tip], without)
    changes = tuple(_changes(places, parents))
    entries = {entry for change in changes for entry in (change.after, *change.before) if entry and entry.is_file}
    objects.fetch_blobs(places, (entry.name for entry in entries))
    names = _small(places, sorted(entry.name for entry in entries))
    contents = dict(zip(names, _contents(places, names), strict=True))
    return Walk(parents, changes, contents, frozenset(parents.keys() & read_shallow_boundary(places)))


def list_commits(places: Places, tips: Iterable[str], *, without: str | None = None) -> dict[str, tuple[str, ...]]:
    """The commits that the tips reach, and `without` does not, with their parents; parents before
    children. Parents that a shallow clone lacks are left out.
    """
    return _reached(places, tips, without)


def read_accepted_drops(places: Places, tip: str, *, without: str | None = None) -> dict[str, str]:
    """The commits whose loss of knowledge a commit of the range accepts by its trailer
    `Vmrag-Accept-Drop: COMMIT`, each with the commit that accepts it.
    """
    tips = [tip, *([f"^{without}"] if without else [])]
    said = check_git(places, "log", "--format=%x1e%H%n%B", f"--grep=^{ACCEPT_DROP}: ", *tips, "--").text
    found: dict[str, str] = {}
    for record in said.split("\x1e")[1:]:
        commit, _, message = record.partition("\n")
        found |= dict.fromkeys(_ACCEPT_DROP.findall(message), commit)
    return found


def read_verified(places: Places) -> str:
    """The commit up to which nothing was found to drop knowledge; empty if it is unknown."""
    try:
        content = places.verified.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return content if _COMMIT.fullmatch(content) else ""


def read_shallow_boundary(places: Places) -> set[str]:
    """The commits whose parents this clone lacks, because it is shallow."""
    try:
        return set((places.common / "shallow").read_text().split())
    except FileNotFoundError:
        return set()


def list_pins(places: Places, *, reflogs: bool = True, also: Iterable[str] = ()) -> dict[bytes, list[str]]:
    """Every content of `.dolt-version` in commits that a ref or a work tree's HEAD reaches, or
    (`reflogs`) reached.

    Mapped to the commits that introduced it, newest first; a merge counts only where it equals none
    of its parents. Contents above 8 KiB pin nothing and are left out. `also`: further commits,
    which may be gone. The index and the work tree are no commits.
    """
    touching = _touching(places, also, before=("--all", "--reflog") if reflogs else ("--all",))
    objects.fetch_blobs_at(places, touching, PIN_NAME)
    return _by_content(_read(places, touching)[0])


class LoggedPins(NamedTuple):
    """The pins that commits introduced, mapped to these commits, newest first; the pin of each tip;
    and the subjects of all commits that touch the pin.
    """

    introduced: dict[bytes, list[str]]
    by_tip: dict[str, bytes]
    subjects: dict[str, str]


def read_logged_pins(places: Places, tips: Iterable[str], *, also: Iterable[str] = ()) -> LoggedPins:
    """Read the pins for a log; `also` as in `pins`. Raises `GitFailed`."""
    lines = _list_touching(places, also, before=("--all", "--encoding=UTF-8"), also_shown="%x00%s")
    touching: dict[str, list[str]] = {}
    subjects: dict[str, str] = {}
    for line in lines:
        names, _, subject = line.partition("\0")
        commit, *parents = names.split()
        touching[commit], subjects[commit] = parents, subject
    objects.fetch_blobs_at(places, touching, PIN_NAME)
    introduced, at = _read(places, touching, tips)
    return LoggedPins(_by_content(introduced), at, subjects)


def list_new_pins(places: Places, tips: Iterable[str]) -> dict[bytes, list[str]]:
    """As `pins`, of the commits that the tips reach and no remote-tracking branch reaches."""
    return _by_content(_read(places, _touching(places, tips, *_NO_REMOTE))[0])


def list_reachable_pins(places: Places, tips: Iterable[str]) -> dict[bytes, list[str]]:
    """As `pins`, of the commits that the tips reach.

    A tip that begins with ^ excludes what it reaches.
    """
    return _by_content(_read(places, _touching(places, tips))[0])


class PushedPins(Record, frozen=True):
    """`new` as `new_pins`; `coming`: of the commits that nothing reaches which was there before;
    `at` as `pins_of` the tips. `read`: what each commit introduces that was looked at.
    """

    new: dict[bytes, list[str]]
    incoming: dict[bytes, list[str]]
    by_tip: dict[str, bytes]
    by_commit: dict[str, bytes | None]

    def list_reachable(self, places: Places, tips: Iterable[str]) -> dict[bytes, list[str]]:
        """As `reachable_pins`; git is asked for what is not known yet."""
        touching = _touching(places, tips)
        found = self.by_commit | _read(places, {each: touching[each] for each in touching.keys() - self.by_commit})[0]
        return _by_content({each: pin for each in touching if (pin := found.get(each)) is not None})


def read_pushed_pins(places: Places, tips: Iterable[str], before: Iterable[str]) -> PushedPins:
    """What a push of these tips is about, in place of commits that the other side has `before`."""
    asked = list(dict.fromkeys(tips))
    new = _touching(places, asked, *_NO_REMOTE)
    coming = _touching(places, [*asked, *(f"^{each}" for each in before)])
    found, at = _read(places, new | coming, asked)
    first, second = (_by_content({each: found[each] for each in some if each in found}) for some in (new, coming))
    return PushedPins(first, second, at, {each: found.get(each) for each in (*new, *coming)})


def list_pins_after(places: Places, commit: str) -> dict[str, bytes]:
    """The pins that descendants of a commit introduce, by commit, oldest first; of those that a ref
    reaches.
    """
    options = ("--all", "--ancestry-path", "--full-history", "--date-order", "--reverse", f"^{commit}")
    return read_introduced_pins(places, _answer(places, "rev-list", *options, "--", PIN_NAME).text.split())


_NO_REMOTE = ("--not", "--remotes")


def _touching(places: Places, tips: Iterable[str], *without: str, before: tuple[str, ...] = ()) -> dict[str, list[str]]:
    """The commits that touch the pin, newest first, with their parents."""
    lines = _list_touching(places, tips, *without, before=before)
    return {commit: parents for commit, *parents in map(str.split, lines)}


def _list_touching(
    places: Places, tips: Iterable[str], *without: str, before: tuple[str, ...] = (), also_shown: str = ""
) -> list[str]:
    """List the commits that touch the pin, newest first: the names of the commit and its parents,
    then `also_shown` in git's format.
    """
    # Without --full-history git skips side branches whose pin a merge dropped. --parents would name
    # the next ones that touch the pin. --stdin first: some versions of git would take its lines for
    # exclusions as well.
    shown = f"--format=%H %P{also_shown}"
    options = (*before, "--full-history", "--ignore-missing", shown, "--stdin", *without, "--", PIN_NAME)
    lines = _answer(places, "rev-list", *options, lines=tips).stdout.decode(errors="replace").split("\n")
    return [line for line in lines if line and not line.startswith("commit ")]


def collect_pins(places: Places, tips: Iterable[str]) -> set[bytes]:
    """The pins of these commits, or of what tags name; `pins` says which count."""
    return set(read_pins(places, tips).values())


def read_pins(places: Places, commits: Iterable[str]) -> dict[str, bytes]:
    """As `pins_at`, by the given name. Commits without a pin are left out."""
    return _read(places, {}, commits)[1]


def read_introduced_pins(places: Places, commits: Iterable[str]) -> dict[str, bytes]:
    """The pins that these commits introduce, by commit, in the sense of `pins`.

    Missing commits are left out.
    """
    return _read(places, _parents(places, commits))[0]


def _read(
    places: Places, parents: Mapping[str, Sequence[str]], tips: Iterable[str] = ()
) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """As `introduced` by the commits with these parents, and as `pins_of` the tips."""
    ends = list(tips)
    trees = dict.fromkeys([*parents, *itertools.chain(*parents.values()), *ends])
    blobs = dict(zip(trees, _pin_blobs(places, trees), strict=True))
    new = {
        commit: blob
        for commit, before in parents.items()
        if (blob := blobs[commit]) and blob not in [blobs[each] for each in before]
    }
    at = {tip: blob for tip in ends if (blob := blobs[tip])}
    names = dict.fromkeys([*new.values(), *at.values()])
    contents = dict(zip(names, _contents(places, names), strict=True))
    return {commit: contents[blob] for commit, blob in new.items()}, {tip: contents[blob] for tip, blob in at.items()}


def _by_content(pins: dict[str, bytes]) -> dict[bytes, list[str]]:
    commits: dict[bytes, list[str]] = {}
    for commit, content in pins.items():
        commits.setdefault(content, []).append(commit)
    return commits


class Description(NamedTuple):
    """What people see of a commit: `author` with the address, `date` the author's day (ISO 8601),
    `subject` the first paragraph of its message on one line.
    """

    author: str
    date: str
    subject: str


def describe_commits(places: Places, commits: Iterable[str]) -> dict[str, Description]:
    """The commits newest first."""
    if not (asked := list(commits)):  # git would take that for a mistake
        return {}
    options = ("--no-walk=sorted", "--stdin", "--encoding=UTF-8", "--format=%H%x00%an <%ae>%x00%as%x00%s")
    answers = _answer(places, "rev-list", *options, lines=asked).stdout
    lines = (line.split("\0") for line in answers.decode(errors="replace").split("\n"))
    return {line[0]: Description(*line[1:]) for line in lines if len(line) > 1}


def list_changing_commits(places: Places, tip: str, pathspecs: Iterable[str], *, limit: int) -> list[str]:
    """Commits of the first-parent history of `tip` that changed something there, newest first."""
    options = ("--first-parent", f"--max-count={limit}", tip, "--")
    return _answer(places, "rev-list", *options, *pathspecs).text.split()


def list_changed_files(places: Places, before: str, after: str) -> list[str]:
    """The paths that differ between two commits, given by their hashes."""
    from vmrag_link.git.console import open_console  # GitPython takes 170 ms to import

    with open_console(places) as git_of_these:
        names = git_of_these.diff("--name-only", "--no-renames", "-z", before, after, stdout_as_string=False)
    assert isinstance(names, bytes)  # noqa: S101  because of stdout_as_string=False
    return [name.decode(errors="replace") for name in names.split(b"\0") if name]


def _answer(places: Places, *arguments: str, lines: Iterable[str] | None = None) -> FinishedProcess:
    """What git says, to lines on its standard input. Raises `GitFailed`."""
    stdin = None if lines is None else "".join(f"{line}\n" for line in lines).encode()
    done = run_git(places, *arguments, stdin=stdin)
    if done.returncode != 0:
        said = done.failure
        raise GitFailed(f"Cannot read the history of {PIN_NAME}: {said}", hint="git fsck", said=said)
    return done


def _reached(places: Places, tips: Iterable[str], without: str | None) -> dict[str, tuple[str, ...]]:
    asked = [*tips, *([f"^{without}"] if without else [])]
    lines = _answer(places, "rev-list", "--topo-order", "--reverse", "--parents", *asked).text.splitlines()
    return {commit: tuple(before) for commit, *before in map(str.split, lines)}


def _changes(places: Places, parents: dict[str, tuple[str, ...]]) -> Iterator[PinChange]:
    """Compare the trees' own entries with each parent's: a merge that takes one side's pin differs
    from the other.
    """
    questions = (f"{commit} {each}" for commit, before in parents.items() for each in before or ("",))
    options = ("--stdin", "--always", "--root", "--raw", "--no-abbrev", "--no-renames", "--", PIN_NAME)
    lines = _answer(places, "diff-tree", *options, lines=questions).text.splitlines()
    at = 0
    for commit, parent in parents.items():
        sides: list[tuple[PinEntry | None, PinEntry | None] | None] = []
        for _ in parent or ("",):
            at, side = _read_comparison(lines, at + 1)
            sides.append(side)
        if changed := [side for side in sides if side]:
            after = changed[0][1]
            yield PinChange(
                commit, parent, tuple(side[0] if side else after for side in sides) if parent else (), after
            )


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


def _small(places: Places, names: Iterable[str]) -> list[str]:
    """The blobs that are small enough for a pin.

    Raises `GitFailed` for a missing one.
    """
    small = []
    for line in _objects(places, "--batch-check", dict.fromkeys(names)).decode().splitlines():
        name, kind, *size = line.split()
        if kind == "missing":
            raise GitFailed(f"The object {name} of the history of {PIN_NAME} is missing.", hint="git fsck")
        if int(size[0]) <= PIN_READ_LIMIT:
            small.append(name)
    return small


def _parents(places: Places, commits: Iterable[str]) -> dict[str, list[str]]:
    """The parents of the commits that are there, in the order given; as a shallow clone sees
    them.
    """
    if not (asked := list(commits)):  # git would take that for a mistake
        return {}
    options = ("--no-walk=unsorted", "--ignore-missing", "--stdin", "--parents")
    answers = _answer(places, "rev-list", *options, lines=asked).text.splitlines()
    return {commit: before for commit, *before in map(str.split, answers)}


def _pin_blobs(places: Places, commits: Iterable[str]) -> Iterator[str | None]:
    """The blob's hash for each commit; None if there is no pin, or something else in its place."""
    answers = _objects(places, "--batch-check", [f"{commit}:{PIN_NAME}" for commit in commits])
    for line in answers.decode().splitlines():
        match line.split(" "):
            case [name, "blob", size] if int(size) <= PIN_READ_LIMIT:
                yield name
            case _:
                yield None


def _contents(places: Places, names: Collection[str]) -> Iterator[bytes]:
    rest = _objects(places, "--batch", names)
    while rest:
        header, _, rest = rest.partition(b"\n")
        size = int(header.split(b" ")[2])
        yield rest[:size]
        rest = rest[size + 1 :]


def _objects(places: Places, mode: str, names: Collection[str]) -> bytes:
    return _answer(places, "cat-file", mode, lines=names).stdout if names else b""
