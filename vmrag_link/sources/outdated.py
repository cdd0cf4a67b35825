"""Notes that may be outdated, because a file or lines that they cite changed after their last
commit.

Answers and reports mark such notes. `citations` finds what a note cites, and `cited_lines` follows
the cited lines through the history. One `git log` of the notes and the cited files provides
everything. For the working tree, it begins with a temporary commit of the files on disk.

A note is not reported if its history is unknown: in a shallow or partial clone, after the time
limit, and for files that git converts.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from vmrag_link.errors import GitError, LimitExceeded, plural
from vmrag_link.git import configuration, line_history
from vmrag_link.git.line_history import LoggedFileChange
from vmrag_link.models import Record
from vmrag_link.paths import Places
from vmrag_link.sources import attributes
from vmrag_link.sources.attributes import TreeAttributes
from vmrag_link.sources.citations import Citation, find_citations
from vmrag_link.sources.cited_lines import ChangedCitation, LineHistory, read_histories
from vmrag_link.sources.disk import Disk

_ANSWER_SECONDS = 2.0
"""Time limit of the git process for one answer."""

_REPORT_SECONDS = 60.0
"""Time limit of each step for a pull request: to read its diff, and to follow lines of notes."""

_MAX_CITED_FILES = 200
"""Maximum number of cited files that are compared for one answer, and for each note of a pull
request.
"""

_NOTES_PER_PROCESS = 50
_MAX_FILE_BYTES = 2_000_000
_MAX_TOTAL_BYTES = 20_000_000


class OutdatedNote(Record, frozen=True):
    """A note with changed citations."""

    path: str
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
    places: Places, notes: Mapping[str, str], head: str | None, *, working_tree: bool, seconds: float = _ANSWER_SECONDS
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
        for citations in cited.values():
            paths |= dict.fromkeys(path for citation in citations for path in citation.paths)
        try:
            if working_tree:
                histories = _read_histories_to_disk(places, disk, head, cited.keys(), list(paths), seconds=seconds)
            else:
                histories = read_histories(places, cited.keys(), head, list(paths), seconds=seconds)
        except (GitError, LimitExceeded, OSError):
            return NoteCheck({}, unknown=tuple(cited))
    outdated: dict[str, OutdatedNote] = {}
    for note, history in histories.items():
        changed = tuple(filter(None, map(history.check_citation, cited[note])))
        if changed:
            outdated[note] = OutdatedNote(note, changed)
    return NoteCheck(outdated, unknown=tuple(note for note in cited if note not in histories))


def _select_citations(disk: Disk, notes: Mapping[str, str]) -> dict[str, list[Citation]]:
    """Return the citations to compare, by note: first those of existing files, up to the limit.

    If a citation may mean several files, the first one that exists is selected.
    """
    selected: dict[str, list[Citation]] = {}
    absent: list[tuple[str, Citation]] = []
    paths: set[str] = set()
    for note, text in notes.items():
        for citation in find_citations(note, text):
            states = {path: disk.read_state(path) for path in citation.paths}
            files = [path for path, state in states.items() if state and (state.is_regular or state.is_link)]
            missing = tuple(path for path, state in states.items() if not state)
            if files and (files[0] in paths or len(paths) < _MAX_CITED_FILES):
                paths.add(files[0])
                selected.setdefault(note, []).append(Citation((files[0],), citation.first, citation.last))
            elif missing:
                absent.append((note, Citation(missing, citation.first, citation.last)))
    for note, citation in absent:
        if len(paths.union(citation.paths)) <= _MAX_CITED_FILES:
            paths.update(citation.paths)
            selected.setdefault(note, []).append(citation)
    return selected


def _read_histories_to_disk(
    places: Places, disk: Disk, head: str, notes: Collection[str], paths: Sequence[str], *, seconds: float
) -> dict[str, LineHistory]:
    """Return the histories of notes that end with the uncommitted state of these files."""
    files = _read_files(places, disk, paths)
    with line_history.uncommitted_commit(places, head, files.contents) as (tip, objects):
        readable_notes = [note for note in notes if note not in files.unread]
        return read_histories(places, readable_notes, tip, paths, seconds=seconds, objects=objects, unread=files.unread)


class _DiskFiles(NamedTuple):
    """Files of the working tree."""

    contents: dict[str, bytes]
    unread: set[str]
    """Files that git would convert, that are too large, or that a sparse checkout leaves out."""


def _read_files(places: Places, disk: Disk, paths: Sequence[str]) -> _DiskFiles:
    """Read files of the working tree. Raises `LimitExceeded` for too many attributes."""
    converting = _read_attributes(places, disk, paths)
    sparse = dict(configuration.list_entries(places)).get("core.sparsecheckout", "")
    is_sparse = sparse.lower() in ("true", "yes", "on", "1")
    files = _DiskFiles({}, set())
    size = 0
    for path in paths:
        if disk.read_state(path) is None:
            if is_sparse:  # a sparse checkout also leaves out files that were not deleted
                files.unread.add(path)
            continue
        content = None
        if size < _MAX_TOTAL_BYTES and not converting.get_values(path):
            with contextlib.suppress(OSError):
                content, _ = disk.read_file(path, _MAX_FILE_BYTES)
        if content is None:
            files.unread.add(path)
        else:
            files.contents[path] = content
            size += len(content)
    return files


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
                f"{folder}{attributes.FILE_NAME}", attributes.MAX_FILE_BYTES
            )[0]
    with contextlib.suppress(OSError), (places.common / "info" / "attributes").open("rb") as file:
        private = file.read(attributes.MAX_FILE_BYTES)
        contents[attributes.FILE_NAME] = contents.get(attributes.FILE_NAME, b"") + b"\n" + private
    return TreeAttributes(contents, (attributes.FILTER, attributes.ENCODING))


def check_all_notes(places: Places, notes: Mapping[str, str], head: str | None, *, seconds: float) -> NoteCheck:
    """Check any number of notes of the working tree like `check_notes`, with several git processes.

    `seconds`: time limit of all processes together.
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
    """Yield batches of notes with up to `_MAX_CITED_FILES` cited files each, or single notes."""
    batch: dict[str, str] = {}
    paths: set[str] = set()
    for note, text in notes.items():
        cited = {path for citation in find_citations(note, text) for path in citation.paths}
        if batch and len(paths | cited) > _MAX_CITED_FILES:
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
    cited_by_note: dict[str, list[_CitedPath]] = {}
    for note, text in notes.items():
        cited = [
            _CitedPath(citation, path)
            for citation in find_citations(note, text)
            for path in citation.paths
            if path in changes
        ]
        if cited and note not in changes:
            cited_by_note[note] = cited
    citing_lines = {
        note: cited for note, cited in cited_by_note.items() if any(citation.first for citation, _ in cited)
    }
    histories = _read_histories_to_start(places, citing_lines, start)
    citing = []
    for note, cited in cited_by_note.items():
        changed_places = dict.fromkeys(
            citation.name_place(path)
            for citation, path in cited
            if _is_touched(citation, path, changes[path], histories.get(note))
        )
        if changed_places:
            citing.append(CitingNote(note, tuple(changed_places)))
    return tuple(citing)


class _CitedPath(NamedTuple):
    """A citation, and the one of its possible files that is compared."""

    citation: Citation
    path: str


def _read_histories_to_start(
    places: Places, cited_by_note: Mapping[str, Sequence[_CitedPath]], start: str
) -> dict[str, LineHistory]:
    """Return the histories of notes that end at a commit. Raises `GitFailed`."""
    until = time.monotonic() + _REPORT_SECONDS
    notes = list(cited_by_note)
    histories: dict[str, LineHistory] = {}
    for first in range(0, len(notes), _NOTES_PER_PROCESS):
        batch = notes[first : first + _NOTES_PER_PROCESS]
        paths = dict.fromkeys(batch)
        for note in batch:
            paths |= dict.fromkeys(path for _, path in cited_by_note[note][:_MAX_CITED_FILES])
        remaining = max(0.0, until - time.monotonic())
        histories |= read_histories(places, batch, start, list(paths), seconds=remaining)
    return histories


def _is_touched(citation: Citation, path: str, change: LoggedFileChange, history: LineHistory | None) -> bool:
    """Return whether a pull request changes the cited lines. `history`: None if it is unknown."""
    if not citation.first:
        return True
    return history is not None and history.is_touched_next(citation, path, change)
