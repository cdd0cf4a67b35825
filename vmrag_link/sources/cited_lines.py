"""Follow cited lines from the last commit of a note to the newest commit, through the hunks of each
commit.

`outdated` calls `read_histories`, which reads one `git log` of the notes and the cited files. A
merge changes lines only if they differ there from each parent, like in `git log -L`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from vmrag_link.errors import plural
from vmrag_link.git import history, line_history
from vmrag_link.git.line_history import LineHunk, LoggedCommit, LoggedFileChange
from vmrag_link.models import Record
from vmrag_link.paths import Places
from vmrag_link.sources.citations import Citation


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


def read_histories(
    places: Places,
    notes: Collection[str],
    tip: str,
    paths: Sequence[str],
    *,
    seconds: float,
    objects: Path | None = None,
    unread: Collection[str] = (),
) -> dict[str, LineHistory]:
    """Return the changes of files since the last commit of each note, by note.

    `tip`: the newest commit. `paths`: the notes and the files that they cite. If `tip` is the
    uncommitted state (`line_history.uncommitted_commit`), `objects` is the folder of its objects,
    and `unread` are files that it lacks although they may exist. Starts one git process. A note is
    missing if its last commit is not found within `seconds`, or is missing in a shallow clone.
    Raises `GitFailed`.
    """
    walk = _LogWalk(notes, tip, history.read_shallow_boundary(places))
    log = line_history.read_log(places, tip, paths, walk.wants_more, seconds=seconds, objects=objects)
    if tip in log:
        log[tip] = _without_files(log[tip], unread)
    return {
        trace.note: LineHistory(log, trace.last, trace.ancestors, tip, committed=objects is None)
        for trace in walk.complete
    }


def _without_files(commit: LoggedCommit, paths: Collection[str]) -> LoggedCommit:
    changes = {
        side: {path: change for path, change in files.items() if path not in paths}
        for side, files in commit.changes.items()
    }
    return LoggedCommit(commit.parents, changes)


class _LineSpan(NamedTuple):
    """Lines of a file from `start` up to `end`, counted from 0. For the whole file, `end` has no
    value.
    """

    start: int
    end: int | None
    clean: bool = True
    """True if no commit changed them since the note's last one."""
    deleted: str = ""
    """The blob of the file when a commit deleted or moved it. Empty while the file exists."""
    was_clean: bool = True
    """The value of `clean` before the file was deleted."""


class _MovedSpan(NamedTuple):
    """The position of lines on the other side of a change."""

    touched: bool
    """True if the change touches them."""
    span: _LineSpan


class LineHistory:
    """The changes of files by the commits after a note's last one, from `read_histories`.

    `log`: all commits that were read. `last_commit`: the note's, with its `ancestors`. `committed`:
    whether the newest commit, `tip`, exists in git.
    """

    def __init__(
        self,
        log: Mapping[str, LoggedCommit],
        last_commit: str,
        ancestors: Collection[str],
        tip: str,
        *,
        committed: bool,
    ) -> None:
        self._last_commit = last_commit
        self._log = log
        self._tip = tip
        self._committed = committed
        self._order = list(_list_later_commits(log, tip, {*ancestors, last_commit}))
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

    def is_touched_next(self, citation: Citation, path: str, change: LoggedFileChange) -> bool:
        """Return whether a change after the newest commit touches the cited lines of a file."""
        return _move_span(change, self._follow_spans(citation, path)[self._tip]).touched

    def _follow_spans(self, citation: Citation, path: str) -> dict[str, _LineSpan]:
        """Return the positions of the cited lines in each descendant of the note's last commit."""
        end = citation.last if citation.first else None
        spans = {self._last_commit: _LineSpan(max(0, citation.first - 1), end)}
        for name in self._order:
            commit = self._log[name]
            sides = [
                _move_span(commit.compare_with(parent, path), spans[parent])
                for parent in commit.parents
                if parent in spans
            ]
            untouched = [side for side in sides if not side.touched]
            if untouched:
                spans[name] = untouched[0].span
            elif sides:
                spans[name] = sides[0].span._replace(clean=False)
        return spans

    def _list_changing_commits(self, path: str, spans: Mapping[str, _LineSpan]) -> set[str]:
        """Return the commits that changed the lines, starting from the newest one.

        If a parent has the same lines, only that parent's history is followed.
        """
        changing: set[str] = set()
        waiting = [(self._tip, spans[self._tip])]
        seen = {self._tip}
        while waiting:
            name, span = waiting.pop()
            commit = self._log[name]
            sides: list[tuple[str, _MovedSpan]] = []
            for parent in sorted(commit.sides, key=lambda side: side not in spans):
                change = commit.compare_with(parent, path)
                if parent in spans:
                    touched = _move_span(change, spans[parent]).touched
                    sides.append((parent, _MovedSpan(touched, spans[parent])))
                else:
                    sides.append((parent, _move_back(change, span)))
            same = [(parent, before) for parent, before in sides if not before.touched]
            if not same:
                changing.add(name)
            for parent, before in same[:1] or sides:
                if parent in self._later and parent not in seen:
                    seen.add(parent)
                    waiting.append((parent, before.span))
        # A merge can restore lines that are older than the note. Then no other commit changed them.
        return changing or {self._last_commit}


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


def _move_span(change: LoggedFileChange | None, span: _LineSpan) -> _MovedSpan:
    """Return the position of lines after a change, and whether it touches them."""
    if change is None:
        return _MovedSpan(touched=False, span=span)
    if change.status == "D":
        return _MovedSpan(touched=True, span=span._replace(deleted=change.old_blob, was_clean=span.clean))
    if change.status == "A" and change.new_blob == span.deleted and span.end is not None:
        return _MovedSpan(
            touched=False, span=span._replace(deleted="", clean=span.was_clean)
        )  # the file was moved back
    if change.status != "M" or change.hunks is None or span.end is None:
        return _MovedSpan(touched=True, span=span._replace(deleted=""))
    return _move_lines(change.hunks, span)


def _move_back(change: LoggedFileChange | None, span: _LineSpan) -> _MovedSpan:
    """Return the position of lines before a change, and whether it touches them."""
    if change is None or change.status != "M" or change.hunks is None or span.end is None:
        return _MovedSpan(touched=change is not None, span=span)
    return _move_lines([hunk.swap_sides() for hunk in change.hunks], span)


def _move_lines(hunks: Sequence[LineHunk], span: _LineSpan) -> _MovedSpan:
    """Return the position of lines after these hunks. Lines inserted right before or after the span
    do not touch it.
    """
    start = new_start = span.start
    end = new_end = span.end or 0
    touched = False
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
    return _MovedSpan(touched, span._replace(start=new_start, end=max(new_start, new_end)))


class _LogWalk:
    """Stops reading the log after all commits are read that are not ancestors of some note's last
    commit. Then `complete` has the notes whose last commit was found.
    """

    def __init__(self, notes: Collection[str], tip: str, boundary: Collection[str]) -> None:
        self.complete: list[_NoteTrace] = []
        self._open = [_NoteTrace(note, tip) for note in sorted(notes)]
        self._boundary = boundary
        self._pending = {tip}

    def wants_more(self, commits: Mapping[str, LoggedCommit], name: str) -> bool:
        """Return whether to read the log further than the commit `name`."""
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


class _NoteTrace:
    """The last commit of a note, searched while the log is read."""

    def __init__(self, note: str, tip: str) -> None:
        self.note = note
        self.last = ""
        """The last commit that changed the note, as soon as it is read."""
        self.ancestors: set[str] = set()
        """The ancestors of `last` that were read, and their parents."""
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
