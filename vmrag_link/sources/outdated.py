"""Notes that may be outdated, because a file or lines that they cite changed after their last
commit.

One `git log` of the notes and of the cited files provides everything. It ends as soon as the last
commit of each note and all later ones are read. Uncommitted states are its first commit
(`line_history.uncommitted_commit`).

`cited_lines` follows the lines. If the history is unknown, a note is not reported: in a shallow or
partial clone, after `SECONDS`, and for files that git converts.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator, Mapping, Sequence

from vmrag_link.errors import GitError, LimitExceeded, plural
from vmrag_link.git import configuration, history, line_history
from vmrag_link.git.line_history import LoggedCommit, LoggedFileChange
from vmrag_link.models import Record
from vmrag_link.paths import Places
from vmrag_link.sources import attributes
from vmrag_link.sources.attributes import TreeAttributes
from vmrag_link.sources.citations import Citation, find_citations
from vmrag_link.sources.cited_lines import ChangedCitation, LineHistory, LogWalk, move_span
from vmrag_link.sources.disk import Disk

SECONDS = 2.0
"""Time limit of the git process for one answer."""

_REPORT_SECONDS = 60.0
"""Time limit of each git process for a pull request."""

MOST_PATHS = 200
"""Maximum number of cited files that one git process compares."""

_NOTES_AT_ONCE = 50
_MOST_FILE_BYTES = 2_000_000
_MOST_BYTES = 20_000_000


class OutdatedNote(Record, frozen=True):
    """A note with changed citations."""

    path: str
    commit: str
    """The last one that changed the note."""
    citations: tuple[ChangedCitation, ...]

    def __str__(self) -> str:
        return f"cites {self.citations[0]}{_count_others(self.citations)}"


class NoteCheck(Record, frozen=True):
    """Result of a check."""

    outdated: dict[str, OutdatedNote]
    """Outdated notes by path."""
    unknown: tuple[str, ...] = ()
    """Notes whose citations could not be compared."""


class CitingNote(Record, frozen=True):
    """A note that cites places that a pull request changes, such as `src/auth.py:10-42`."""

    path: str
    places: tuple[str, ...]

    def __str__(self) -> str:
        return f"cites {self.places[0]}{_count_others(self.places)}"


def _count_others(cited: Sequence[object]) -> str:
    return f", and {plural(len(cited) - 1, 'more place')}" if len(cited) > 1 else ""


def check_notes(
    places: Places, notes: Mapping[str, str], head: str | None, *, working_tree: bool, seconds: float = SECONDS
) -> NoteCheck:
    """Return the notes that cite files or lines that changed after the note's last commit.

    `notes`: path → text. `head`: the full hash of the commit whose history is read, or None on an
    unborn branch. `working_tree`: that commit is HEAD, and the working tree is also compared.
    Starts one git process, or none if no note cites a path.
    """
    with Disk(places.top) as disk:
        cited = _select_citations(disk, notes)
        if head is None or not cited:
            return NoteCheck({})
        paths = dict.fromkeys(cited)
        paths |= dict.fromkeys(
            path for citations in cited.values() for citation in citations for path in citation.paths
        )
        try:
            with contextlib.ExitStack() as stack:
                tip, objects, unread = head, None, frozenset[str]()
                if working_tree:
                    files, unread = _read_files(places, disk, list(paths))
                    tip, objects = stack.enter_context(line_history.uncommitted_commit(places, head, files))
                walk = LogWalk(cited.keys() - unread, tip, history.read_shallow_boundary(places))
                log = line_history.read_log(places, tip, list(paths), walk.wants_more, seconds=seconds, objects=objects)
        except (GitError, LimitExceeded, OSError):
            return NoteCheck({}, tuple(cited))
    if working_tree and tip in log:
        log[tip] = _without_files(log[tip], unread)
    outdated: dict[str, OutdatedNote] = {}
    for trace in walk.complete:
        lines = LineHistory(log, trace, tip, committed=not working_tree)
        if changed := tuple(filter(None, map(lines.check_citation, cited[trace.note]))):
            outdated[trace.note] = OutdatedNote(trace.note, trace.last, changed)
    complete = {trace.note for trace in walk.complete}
    return NoteCheck(outdated, tuple(note for note in cited if note not in complete))


def check_all_notes(places: Places, notes: Mapping[str, str], head: str | None, *, seconds: float) -> NoteCheck:
    """Check any number of notes of the working tree like `check_notes`, `MOST_PATHS` files at a
    time.

    `seconds`: time limit of all git processes together.
    """
    until = time.monotonic() + seconds
    outdated: dict[str, OutdatedNote] = {}
    unknown: tuple[str, ...] = ()
    for batch in _split_notes(notes):
        remaining = max(0.0, until - time.monotonic())
        check = check_notes(places, batch, head, working_tree=True, seconds=remaining)
        outdated |= check.outdated
        unknown += check.unknown
    return NoteCheck(outdated, unknown)


def _split_notes(notes: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yield groups of notes that together cite at most `MOST_PATHS` files, or single notes."""
    batch: dict[str, str] = {}
    paths: set[str] = set()
    for note, text in notes.items():
        cited = {path for citation in find_citations(note, text) for path in citation.paths}
        if batch and len(paths | cited) > MOST_PATHS:
            yield batch
            batch, paths = {}, set()
        batch[note] = text
        paths |= cited
    yield batch


def find_citing_notes(places: Places, notes: Mapping[str, str], start: str, head: str) -> tuple[CitingNote, ...]:
    """Return the notes that cite changes of a pull request, and that it does not edit.

    `notes`: path → text at `head`. `start`: the full hash of the commit where the pull request and
    its base diverged. Lines are followed from the note's last commit to `start`. Places for which
    that is impossible are left out. Raises `GitFailed`, and `LimitExceeded` after
    `_REPORT_SECONDS`.
    """
    changes = line_history.read_diff(places, start, head, seconds=_REPORT_SECONDS)
    touched: dict[str, list[tuple[Citation, str]]] = {}
    for note, text in notes.items():
        pairs = [(c, path) for c in find_citations(note, text) for path in c.paths if path in changes]
        if pairs and note not in changes:
            touched[note] = pairs
    histories = _follow_notes(
        places,
        {note: pairs for note, pairs in touched.items() if any(c.first for c, _ in pairs)},
        start,
        _REPORT_SECONDS,
    )
    citing = []
    for note, pairs in touched.items():
        lines = histories.get(note)
        named = (c.name_place(path) for c, path in pairs if _is_touched(c, path, changes[path], lines))
        if cited := tuple(dict.fromkeys(named)):
            citing.append(CitingNote(note, cited))
    return tuple(citing)


def _follow_notes(
    places: Places, cited: Mapping[str, Sequence[tuple[Citation, str]]], tip: str, seconds: float
) -> dict[str, LineHistory]:
    """Return the changes of files between the last commits of notes and `tip`, by note."""
    until = time.monotonic() + seconds
    notes = list(cited)
    histories: dict[str, LineHistory] = {}
    for first in range(0, len(notes), _NOTES_AT_ONCE):
        group = notes[first : first + _NOTES_AT_ONCE]
        paths = dict.fromkeys((*group, *(path for note in group for _, path in cited[note][:MOST_PATHS])))
        walk = LogWalk(group, tip, history.read_shallow_boundary(places))
        remaining = max(0.0, until - time.monotonic())
        log = line_history.read_log(places, tip, list(paths), walk.wants_more, seconds=remaining)
        histories |= {trace.note: LineHistory(log, trace, tip, committed=True) for trace in walk.complete}
    return histories


def _is_touched(citation: Citation, path: str, change: LoggedFileChange, lines: LineHistory | None) -> bool:
    if not citation.first:
        return True
    span = lines.follow_citation(citation, path) if lines else None
    return span is not None and move_span(change, span).touched


# -- compared files


def _select_citations(disk: Disk, notes: Mapping[str, str]) -> dict[str, list[Citation]]:
    """Return the citations that are compared, by note, beginning with those of existing files."""
    present: dict[str, list[Citation]] = {}
    absent: dict[str, list[Citation]] = {}
    paths: set[str] = set()
    for note, text in notes.items():
        for citation in find_citations(note, text):
            states = {path: disk.read_state(path) for path in citation.paths}
            files = [path for path, state in states.items() if state and (state.is_regular or state.is_link)]
            if files and (files[0] in paths or len(paths) < MOST_PATHS):
                paths.add(files[0])
                present.setdefault(note, []).append(Citation((files[0],), citation.first, citation.last))
            elif missing := tuple(path for path, state in states.items() if not state):
                absent.setdefault(note, []).append(Citation(missing, citation.first, citation.last))
    for note, citations in absent.items():
        for citation in citations:
            if len(paths.union(citation.paths)) <= MOST_PATHS:
                paths.update(citation.paths)
                present.setdefault(note, []).append(citation)
    return present


def _read_files(places: Places, disk: Disk, paths: Sequence[str]) -> tuple[dict[str, bytes], frozenset[str]]:
    """Return the contents of files of the working tree, and the paths that could not be read.

    Raises `LimitExceeded` for too many attributes.
    """
    converted = _read_attributes(places, disk, paths)
    is_sparse = dict(configuration.list_entries(places)).get("core.sparsecheckout", "").lower() in (
        "true",
        "yes",
        "on",
        "1",
    )
    files: dict[str, bytes] = {}
    unread: set[str] = set()
    size = 0
    for path in paths:
        state = disk.read_state(path)
        if state is None:
            if is_sparse:  # a sparse checkout also leaves out files that were not deleted
                unread.add(path)
            continue
        content = None
        if size < _MOST_BYTES and not converted.get_values(path):
            with contextlib.suppress(OSError):
                content, _ = disk.read_file(path, _MOST_FILE_BYTES)
        if content is None:
            unread.add(path)
        else:
            files[path] = content
            size += len(content)
    return files, frozenset(unread)


def _read_attributes(places: Places, disk: Disk, paths: Sequence[str]) -> TreeAttributes:
    """Return the attributes by which git converts files when it stores them, except line ends."""
    folders = {""}
    for path in paths:
        parts = path.split("/")[:-1]
        folders.update("".join(f"{part}/" for part in parts[: number + 1]) for number in range(len(parts)))
    contents: dict[str, bytes] = {}
    for folder in folders:
        with contextlib.suppress(OSError):
            contents[f"{folder}{attributes.FILE_NAME}"] = disk.read_file(
                f"{folder}{attributes.FILE_NAME}", attributes.MOST_BYTES
            )[0]
    with contextlib.suppress(OSError), (places.common / "info" / "attributes").open("rb") as file:
        private = file.read(attributes.MOST_BYTES)
        contents[attributes.FILE_NAME] = contents.get(attributes.FILE_NAME, b"") + b"\n" + private
    return TreeAttributes(contents, (attributes.FILTER, attributes.ENCODING))


def _without_files(commit: LoggedCommit, paths: Collection[str]) -> LoggedCommit:
    kept = {
        side: {path: change for path, change in changes.items() if path not in paths}
        for side, changes in commit.changes.items()
    }
    return LoggedCommit(commit.parents, kept)
