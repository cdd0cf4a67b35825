"""Notes that may be outdated, because a file or lines that they cite changed after their last
commit.

One `git log` of the notes and of the cited files provides everything. It ends as soon as the last
commit of each note and all later ones are read. Uncommitted states are its first commit
(`line_history.uncommitted_commit`).

Cited lines are followed from the note's last commit to the newest commit, through the hunks of each
commit. A merge changes them only if it differs there from each parent, like in `git log -L`. If the
history is unknown, a note is not reported: in a shallow or partial clone, after `SECONDS`, and for
files that git converts.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from vmrag_link.errors import GitError, LimitExceeded, plural
from vmrag_link.git import configuration, history, line_history
from vmrag_link.git.line_history import LineHunk, LoggedCommit, LoggedFileChange
from vmrag_link.models import Record
from vmrag_link.paths import Places
from vmrag_link.sources import attributes
from vmrag_link.sources.attributes import TreeAttributes
from vmrag_link.sources.citations import Citation, find_citations
from vmrag_link.sources.disk import Disk

SECONDS = 2.0
"""Time limit of the git process for one answer."""

MOST_PATHS = 200
"""Maximum number of cited files that one git process compares."""

_NOTES_AT_ONCE = 50
_MOST_FILE_BYTES = 2_000_000
_MOST_BYTES = 20_000_000


class ChangedCitation(Record, frozen=True):
    """A cited place that changed, such as `src/auth.py:10-42`."""

    place: str
    commits: int
    """Number of commits that changed it after the note's last commit."""
    uncommitted: bool = False
    """True if it also differs between the working tree and the newest commit."""
    deleted: bool = False
    """True if the file no longer exists."""

    def __str__(self) -> str:
        if self.deleted:
            return f"{self.place}, which no longer exists"
        if not self.commits:
            return f"{self.place}, changed since in the working tree"
        also = " and in the working tree" if self.uncommitted else ""
        return f"{self.place}, changed since in {plural(self.commits, 'commit')}{also}"


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
                walk = _LogWalk(cited.keys() - unread, tip, history.read_shallow_boundary(places))
                log = line_history.read_log(places, tip, list(paths), walk.wants_more, seconds=seconds, objects=objects)
        except (GitError, LimitExceeded, OSError):
            return NoteCheck({}, tuple(cited))
    if working_tree and tip in log:
        log[tip] = _without_files(log[tip], unread)
    outdated: dict[str, OutdatedNote] = {}
    for trace in walk.complete:
        lines = _LineHistory(log, trace, tip, committed=not working_tree)
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


def find_citing_notes(
    places: Places, notes: Mapping[str, str], start: str, head: str, *, seconds: float = 60.0
) -> tuple[CitingNote, ...]:
    """Return the notes that cite changes of a pull request, and that it does not edit.

    `notes`: path → text at `head`. `start`: the full hash of the commit where the pull request and
    its base diverged. Lines are followed from the note's last commit to `start`. Places for which
    that is impossible are left out. Raises `GitFailed`, and `LimitExceeded` after `seconds`.
    """
    changes = line_history.read_diff(places, start, head, seconds=seconds)
    touched: dict[str, list[tuple[Citation, str]]] = {}
    for note, text in notes.items():
        pairs = [(c, path) for c in find_citations(note, text) for path in c.paths if path in changes]
        if pairs and note not in changes:
            touched[note] = pairs
    histories = _follow_notes(
        places, {note: pairs for note, pairs in touched.items() if any(c.first for c, _ in pairs)}, start, seconds
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
) -> dict[str, _LineHistory]:
    """Return the changes of files between the last commits of notes and `tip`, by note."""
    until = time.monotonic() + seconds
    notes = list(cited)
    histories: dict[str, _LineHistory] = {}
    for first in range(0, len(notes), _NOTES_AT_ONCE):
        group = notes[first : first + _NOTES_AT_ONCE]
        paths = dict.fromkeys((*group, *(path for note in group for _, path in cited[note][:MOST_PATHS])))
        walk = _LogWalk(group, tip, history.read_shallow_boundary(places))
        remaining = max(0.0, until - time.monotonic())
        log = line_history.read_log(places, tip, list(paths), walk.wants_more, seconds=remaining)
        histories |= {trace.note: _LineHistory(log, trace, tip, committed=True) for trace in walk.complete}
    return histories


def _is_touched(citation: Citation, path: str, change: LoggedFileChange, lines: _LineHistory | None) -> bool:
    if not citation.first:
        return True
    span = lines.follow_citation(citation, path) if lines else None
    return span is not None and _move_span(change, span).touched


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


# -- needed commits


class _NoteTrace:
    """The last commit of a note, found while the log is read. `ancestors`: its ancestors that were
    read, and their parents.
    """

    def __init__(self, note: str, tip: str) -> None:
        self.note = note
        self.last = ""
        self.ancestors: set[str] = set()
        self.is_cut = False
        """The note does not exist, or its last commit is missing in a shallow clone."""
        self._next = tip

    def read_commit(self, commits: Mapping[str, LoggedCommit], name: str, boundary: Collection[str]) -> None:
        """Follow the note after `name` was read, along the first parent with the same note."""
        if self.last:
            if name in self.ancestors:
                self._add_ancestors(commits, name)
            return
        while not self.is_cut and not self.last and self._next in commits:
            commit = commits[self._next]
            same = [side for side in commit.sides if not commit.compare_with(side, self.note)]
            if not same and self._next not in boundary:
                self.last = self._next
                self._add_ancestors(commits, self.last)
            elif same and commit.parents:
                self._next = same[0]
            else:
                self.is_cut = True

    def _add_ancestors(self, commits: Mapping[str, LoggedCommit], name: str) -> None:
        names = [name]
        while names:
            commit = commits.get(names.pop())
            parents = [parent for parent in commit.parents if parent not in self.ancestors] if commit else []
            self.ancestors.update(parents)
            names += parents


class _LogWalk:
    """Stop reading the log after all commits are read that are not ancestors of some note's last
    commit.
    """

    def __init__(self, notes: Collection[str], tip: str, boundary: Collection[str]) -> None:
        self.complete: list[_NoteTrace] = []
        self._open = [_NoteTrace(note, tip) for note in sorted(notes)]
        self._boundary = boundary
        self._pending = {tip}

    def wants_more(self, commits: Mapping[str, LoggedCommit], name: str) -> bool:
        self._pending.discard(name)
        self._pending.update(parent for parent in commits[name].parents if parent not in commits)
        still_open = []
        for trace in self._open:
            trace.read_commit(commits, name, self._boundary)
            if trace.last and self._pending <= trace.ancestors:
                self.complete.append(trace)
            elif not trace.is_cut:
                still_open.append(trace)
        self._open = still_open
        return bool(still_open)


# -- positions of lines


class _Span(NamedTuple):
    """Lines of a file from `start` up to `end`, counted from 0. For the whole file, `end` has no
    value.
    """

    start: int
    end: int | None
    clean: bool = True
    """True if no commit changed them since the note's last one."""
    deleted: str = ""
    """The blob of the file when a commit deleted or moved it."""
    was_clean: bool = True
    """True if the value of `clean` before that."""


class _Moved(NamedTuple):
    touched: bool
    span: _Span


class _LineHistory:
    """The changes of files by the commits after a note's last one.

    `committed`: whether the newest commit, `tip`, exists in git.
    """

    def __init__(self, log: Mapping[str, LoggedCommit], trace: _NoteTrace, tip: str, *, committed: bool) -> None:
        self._log = log
        self._last = trace.last
        self._tip = tip
        self._committed = committed
        self._order = list(_list_later_commits(log, tip, trace.ancestors | {trace.last}))
        self._later = frozenset(self._order)
        self._changed = {path for name in self._order for changes in log[name].changes.values() for path in changes}

    def check_citation(self, citation: Citation) -> ChangedCitation | None:
        """Return how a citation changed, or None if it did not."""
        for path in citation.paths:
            if path not in self._changed:
                continue
            spans = self._follow_spans(citation, path)
            span = spans[self._tip]
            if not span.clean:
                commits = self._list_changing_commits(path, spans)
                uncommitted = not self._committed and self._tip in commits
                number = len(commits) - uncommitted
                return ChangedCitation(citation.name_place(path), number, uncommitted, bool(span.deleted))
        return None

    def follow_citation(self, citation: Citation, path: str) -> _Span:
        """Return the position of the cited lines in the newest commit."""
        return self._follow_spans(citation, path)[self._tip]

    def _follow_spans(self, citation: Citation, path: str) -> dict[str, _Span]:
        """Return the positions of the cited lines in each descendant of the note's last commit."""
        is_whole = not citation.first
        spans = {self._last: _Span(max(0, citation.first - 1), None if is_whole else citation.last)}
        for name in self._order:
            commit = self._log[name]
            options = [
                _move_span(commit.compare_with(parent, path), spans[parent])
                for parent in commit.parents
                if parent in spans
            ]
            if options:
                touched, span = next((moved for moved in options if not moved.touched), options[0])
                spans[name] = span._replace(clean=False) if touched else span
        return spans

    def _list_changing_commits(self, path: str, spans: Mapping[str, _Span]) -> set[str]:
        """Return the commits that changed the lines, starting from the newest one.

        If a parent has the same lines, only that parent's history is followed.
        """
        changing: set[str] = set()
        waiting, seen = [(self._tip, spans[self._tip])], {self._tip}
        while waiting:
            name, span = waiting.pop()
            commit = self._log[name]
            parents: list[tuple[str, _Span]] = []
            for parent in sorted(commit.sides, key=lambda side: side not in spans):
                change = commit.compare_with(parent, path)
                if parent in spans:
                    before, touched = spans[parent], _move_span(change, spans[parent]).touched
                else:
                    touched, before = _move_back(change, span)
                if not touched:
                    parents = [(parent, before)]
                    break
                parents.append((parent, before))
            else:
                changing.add(name)
            for parent, before in parents:
                if parent in self._later and parent not in seen:
                    seen.add(parent)
                    waiting.append((parent, before))
        # A merge can restore lines that are older than the note. Then no other commit changed them.
        return changing or {self._last}


def _list_later_commits(log: Mapping[str, LoggedCommit], tip: str, excluded: Collection[str]) -> Iterator[str]:
    """Yield the commits that `tip` reaches, parents first, without the excluded ones."""
    seen: set[str] = set()
    waiting = [(tip, False)]
    while waiting:
        name, has_parents = waiting.pop()
        if has_parents:
            yield name
        elif name not in seen and name not in excluded and name in log:
            seen.add(name)
            waiting.append((name, True))
            waiting += [(parent, False) for parent in log[name].parents]


def _move_span(change: LoggedFileChange | None, span: _Span) -> _Moved:
    """Return the position of lines after a change, and whether it touches them."""
    if change is None:
        return _Moved(touched=False, span=span)
    if change.status == "D":
        return _Moved(touched=True, span=span._replace(deleted=change.old_blob, was_clean=span.clean))
    if change.status == "A" and change.new_blob == span.deleted and span.end is not None:
        return _Moved(touched=False, span=span._replace(deleted="", clean=span.was_clean))  # the file was moved back
    if change.status != "M" or change.hunks is None or span.end is None:
        return _Moved(touched=True, span=span._replace(deleted=""))
    return _move_lines(change.hunks, span)


def _move_back(change: LoggedFileChange | None, span: _Span) -> _Moved:
    """Return the position of lines before a change, and whether it touches them."""
    if change is None or change.status != "M" or change.hunks is None or span.end is None:
        return _Moved(touched=change is not None, span=span)
    return _move_lines([hunk.swap_sides() for hunk in change.hunks], span)


def _move_lines(hunks: Sequence[LineHunk], span: _Span) -> _Moved:
    """Return the position of lines after these hunks. Lines inserted right before or after the span
    do not touch it.
    """
    start, end = span.start, span.end or 0
    new_start, new_end, touched = start, end, False
    for hunk in hunks:
        shift = hunk.added - hunk.removed
        if start == end:
            touched = touched or hunk.start <= start <= hunk.end
        elif hunk.removed:
            touched = touched or (hunk.start < end and hunk.end > start)
        else:
            touched = touched or start < hunk.start < end
        if hunk.end <= start:
            new_start += shift
        elif hunk.start <= start:
            new_start = hunk.new_start
        if hunk.end <= end and (hunk.removed or hunk.start < end):
            new_end += shift
        elif hunk.start < end < hunk.end:
            new_end = hunk.new_start + hunk.added
    return _Moved(touched, span._replace(start=new_start, end=max(new_start, new_end)))
