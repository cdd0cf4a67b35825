"""The tool `history`: what changed, when, by whom and why, and what differs from a branch, tag or
commit. It works for a file, a folder, stored documents or everything.

git answers for files, and the knowledge base for stored documents. Each entry is one line, whatever
a message, a name or a path contains.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import Match, SequenceMatcher
from itertools import islice
from typing import Annotated, NamedTuple

import msgspec

from vmrag_link import terminal_text
from vmrag_link.errors import (
    CollectionMissing,
    DocumentMissing,
    GitFailed,
    NotInitialized,
    PinMissing,
    UsageInvalid,
    VmragError,
    plural,
)
from vmrag_link.git import file_log, path_changes, plumbing, raw_changes, renames
from vmrag_link.git.file_log import CommitInfo, LoggedChange
from vmrag_link.git.history import read_shallow_boundary
from vmrag_link.git.path_changes import CONTEXT, FilePatch, PatchHunk, PathChange
from vmrag_link.merging.text import find_matching_blocks
from vmrag_link.models import Record, WorkingSet
from vmrag_link.sources import notes
from vmrag_link.toolsets.essential import history_targets, pages, texts
from vmrag_link.toolsets.essential.history_targets import HistoryStart, HistoryTarget, Lines, StoredPlace
from vmrag_link.workspace import Workspace, reasons
from vmrag_link.workspace.follow.provenance import AnswerOrigin, SourceBlock, find_git_origin
from vmrag_link.workspace.history import compare, moved_history
from vmrag_link.workspace.history import diff as diffs
from vmrag_link.workspace.history import document_history as revision_log
from vmrag_link.workspace.history.document_names import DocumentName
from vmrag_link.workspace.history.log import PinnedRevision
from vmrag_mcp.arguments import Given, Ref
from vmrag_mcp.call import Call
from vmrag_mcp.registry import tool
from vmrag_mcp.results import TextResult, fence_text

_MAX_STEPS = 100

MAX_LISTED_CHANGES = 50
"""Maximum number of listed changes since a ref."""

_MAX_SEARCHED_REVISIONS = 500
"""Maximum number of revisions to search for changes of a collection."""

_MAX_BODY_LINES = 12
_MAX_LINE_CHARS = 2_000
"""Maximum number of characters of a changed line."""
_MAX_SUBJECT_CHARS = 200
_MAX_AUTHOR_CHARS = 60
_MAX_FOLDERS = 5


@tool(
    "R",
    title="Show history",
    reads_files=True,
    reads_git=True,
    includes=("dolt_commits", "dolt_show", "get_diff"),
    same_effect=("dolt_commits", "dolt_show", "get_diff"),
)
def history(
    call: Call,
    *,
    name: Annotated[str, Given("name such as src/ or decisions/retry-policy")] = "",
    since: Ref = "",
    limit: Annotated[int, Given("commits", low=1, high=_MAX_STEPS, clamped=True)] = 10,
) -> TextResult:
    """List what changed, when, by whom and why: in a file, document, folder or collection, or in
    everything. since=v1.0 lists what differs now.
    """
    target, start = history_targets.find_target(call, name, since)
    if start and not start.commit and not target.is_stored:
        raise texts.unknown_ref(call.ws, since)  # files have no revision of the knowledge base
    stored = _open_stored(call, target, start) if target.is_stored else None
    call.set_origin(_find_origin(call.ws, target, stored))
    steps, has_older = _list_steps(call, target, start, stored, limit)
    lines = [*_list_new_paths(call.ws, target, steps), *_format_steps(steps, with_body=target.is_single)]
    sentences = [_count_steps(steps, target)]
    if has_older:
        is_most = limit >= _MAX_STEPS
        sentences.append("There are older ones." if is_most else f"Older ones: limit={min(_MAX_STEPS, 5 * limit)}.")
    if target.in_git and read_shallow_boundary(call.ws.places):
        sentences.append("The clone is shallow: it has no older commits.")
    difference = sentence = ""
    if start and target.is_single:
        patch = _compare_document(call.ws, target, stored)
        patch = patch or _read_patch(call.ws, target, start, [] if has_older else steps)
        difference, sentence = _show_patch(call, target, start, patch, lines)
    elif start:
        difference, sentence = _compare_several(call, target, start, stored)
    text = "\n\n".join(filter(None, (difference, "\n".join(lines))))
    return TextResult(text=text, message=" ".join(filter(None, (*sentences, sentence))))


def _find_origin(ws: Workspace, target: HistoryTarget, stored: StoredPlace | None) -> AnswerOrigin:
    """Return the origin of the answer: git's HEAD, the knowledge base, or both."""
    if not target.in_git and stored:
        return stored.origin
    origin = stored.origin if stored else find_git_origin(ws)
    block = msgspec.structs.replace(origin.kb, sources=SourceBlock(plumbing.read_head(ws.places).commit, ()))
    return msgspec.structs.replace(origin, kb=block)


def _open_stored(call: Call, target: HistoryTarget, start: HistoryStart | None) -> StoredPlace | None:
    """Return the place to read stored documents.

    Returns None, with a warning, if git answers alone.
    """
    try:
        return history_targets.open_stored(call, start)
    except VmragError as error:
        if not target.in_git or (start and not start.commit):
            raise
        if type(error) is not NotInitialized:
            for note in reasons.explain_missing_documents(error) or (error.message,):
                call.warn(error.code, note)
        return None


# -- commits and revisions


class HistoryStep(Record, frozen=True):
    """A commit of git, or a revision of the knowledge base."""

    kind: str
    id: str
    date: str
    author: str
    message: str
    note: str = ""
    """The kind of change of the target, and the commit that pins a revision."""
    old_path: str = ""
    """The path of the file before the step."""


def _list_steps(
    call: Call, target: HistoryTarget, start: HistoryStart | None, stored: StoredPlace | None, limit: int
) -> tuple[list[HistoryStep], bool]:
    """Return the newest steps, and whether there are older ones."""
    commits = _list_commits(call, target, start, limit)
    revisions, older = _list_revisions(call.ws, target, stored, limit) if stored else ([], False)
    if start is None and target.is_single:
        revisions += _list_steps_before_move(call, target, limit)
    steps = [*commits, *revisions]
    if len({step.kind for step in steps}) > 1:
        steps.sort(key=lambda step: step.date, reverse=True)
    return steps[:limit], older or len(steps) > limit


def _list_commits(call: Call, target: HistoryTarget, start: HistoryStart | None, limit: int) -> list[HistoryStep]:
    """Return the commits, up to one more than `limit`."""
    places = call.ws.places
    head = plumbing.read_head(places).commit
    if not head or not target.in_git or (start and not start.commit):
        return []
    commit_range = [f"{start.commit}..{head}" if start else head]
    if not target.path:
        infos = file_log.read_commit_log(places, commit_range, target.pathspecs, limit=limit + 1)
        return [_build_commit_step(info) for info in infos]
    if target.lines:
        return [_build_commit_step(info) for info in _read_line_log(call.ws, target, target.lines, commit_range, limit)]
    path = target.committed_path or target.path
    return [_build_file_step(change) for change in file_log.read_file_log(places, commit_range, path, limit=limit + 1)]


def _read_line_log(
    ws: Workspace, target: HistoryTarget, lines: Lines, commit_range: Sequence[str], limit: int
) -> list[CommitInfo]:
    try:
        return file_log.read_line_log(ws.places, commit_range, target.path, lines, limit=limit + 1)
    except GitFailed as error:
        if "No commit specified" in error.message:  # an empty range
            return []
        if "has only" not in error.message and "no path" not in error.message:
            raise
        raise UsageInvalid(
            f"the commit has no lines {lines[0]} to {lines[1]} of {target.path}.",
            hint=f"pass name={target.path}",
            parameter="name",
            value=target.name,
        ) from None


def _build_commit_step(info: CommitInfo, note: str = "", old_path: str = "") -> HistoryStep:
    return HistoryStep(
        kind="commit",
        id=info.commit,
        date=info.date,
        author=info.author,
        message=info.message,
        note=note,
        old_path=old_path,
    )


def _build_file_step(change: LoggedChange) -> HistoryStep:
    notes_by_status = {"A": "added", "D": "removed", "R": f"renamed from {change.old_path}"}
    return _build_commit_step(change.info, notes_by_status.get(change.status, ""), change.old_path)


def _list_revisions(
    ws: Workspace, target: HistoryTarget, stored: StoredPlace, limit: int
) -> tuple[list[HistoryStep], bool]:
    """Return the revisions that changed stored documents, and whether there are older ones."""
    new = stored.origin.revision
    revision_range = new if stored.old is None else f"{stored.old}..{new}"
    if target.document:
        return _list_document_revisions(ws, revision_range, target.document, limit)
    if not target.collection:
        log = revision_log.list_history(ws, [revision_range], limit=limit)
        return [_build_revision_step(step.info) for step in log.steps], log.more
    log = revision_log.list_history(ws, [revision_range], limit=_MAX_SEARCHED_REVISIONS)
    changed = list(islice((step.info for step in log.steps if _changes_target(ws, step.info, target)), limit + 1))
    return [_build_revision_step(info) for info in changed[:limit]], len(changed) > limit or log.more


def _list_document_revisions(
    ws: Workspace, revision_range: str, document: DocumentName, limit: int
) -> tuple[list[HistoryStep], bool]:
    try:
        log = revision_log.list_history(ws, [revision_range, f"{document.collection}//{document.doc_id}"], limit=limit)
    except (CollectionMissing, DocumentMissing):  # removed before these revisions
        return [], False
    steps = []
    for step in log.steps:
        kind = step.document.kind if step.document else ""
        steps.append(_build_revision_step(step.info, "" if kind == "modified" else kind))
    return steps, log.more


def _changes_target(ws: Workspace, info: PinnedRevision, target: HistoryTarget) -> bool:
    """Return whether a revision changed documents of a target, compared with its first parent."""
    if not info.parents:
        return any(map(target.covers_document, (header.key for header in ws.engine.read_headers(info.revision))))
    return any(
        target.covers_document(change.key)
        for change in ws.engine.diff_headers(info.parents[0], info.revision).documents
    )


def _build_revision_step(info: PinnedRevision, note: str = "") -> HistoryStep:
    if info.commits:
        pin = f"pinned by {info.commits[0].commit[:7]} {info.commits[0].subject}"
        note = ", ".join(filter(None, [note, pin]))
    if len(info.commits) > 1:
        note += f" and {len(info.commits) - 1} more"
    return HistoryStep(
        kind="revision", id=info.revision, date=info.date, author=info.author, message=info.message, note=note
    )


def _list_steps_before_move(call: Call, target: HistoryTarget, limit: int) -> list[HistoryStep]:
    """Return the steps of a note while it was a stored document, or of a document while it was a
    note. `vmrag move` changes one into the other.
    """
    ws = call.ws
    if target.document:
        path = moved_history.find_note_path(ws, target.document)
        head = plumbing.read_head(ws.places).commit
        changes = file_log.read_file_log(ws.places, [head], path, limit=limit + 1) if path and head else []
        return [_build_file_step(change) for change in changes]
    source = history_targets.note_source(ws, target.path) if ws.is_initialized else None
    if source is None:
        return []
    note = DocumentName(source.collection, notes.path_id(source.folder, target.path))
    with contextlib.suppress(NotInitialized, PinMissing):
        revision = moved_history.find_stored_revision(ws, note)
        if revision:
            return _list_document_revisions(ws, revision, note, limit)[0]
    return []


def _format_steps(steps: Sequence[HistoryStep], *, with_body: bool) -> Iterator[str]:
    """Yield a line for each step. `with_body`: then yield the rest of the newest step's message."""
    for number, step in enumerate(steps):
        subject, _, body = step.message.strip().partition("\n")
        author_name = step.author.rpartition(" <")[0] or step.author
        author = terminal_text.cut_text(terminal_text.escape_line(author_name), _MAX_AUTHOR_CHARS)
        subject = terminal_text.cut_text(terminal_text.escape_line(subject), _MAX_SUBJECT_CHARS)
        note = f" ({terminal_text.escape_line(step.note)})" if step.note else ""
        yield f"{step.kind} {step.id[:7]} {step.date[:10]} {author}: {subject}{note}"
        if with_body and number == 0 and body.strip():
            lines = terminal_text.mark_lines(body.strip(), "    ")
            yield from (terminal_text.cut_text(line, _MAX_LINE_CHARS) for line in lines[:_MAX_BODY_LINES])
            yield from ["    …"] if len(lines) > _MAX_BODY_LINES else []


def _list_new_paths(ws: Workspace, target: HistoryTarget, steps: Sequence[HistoryStep]) -> Iterator[str]:
    """Yield a line with the current path of a renamed file."""
    if target.path and steps and steps[0].note == "removed" and not (ws.places.top / target.path).exists():
        for path in renames.find_renames(ws.places, [target.path]).values():
            yield f"{terminal_text.escape_line(target.path)} was renamed to {terminal_text.escape_line(path)}"


def _count_steps(steps: Sequence[HistoryStep], target: HistoryTarget) -> str:
    counts = Counter(step.kind for step in steps)
    counted = " and ".join(plural(number, kind) for kind, number in sorted(counts.items())) or plural(0, "commit")
    lines = f"lines {target.lines[0]} to {target.lines[1]} of " if target.lines else ""
    return f"{counted} changed {lines}{terminal_text.escape_line(target.name)}." if target.name else f"{counted}."


# -- what differs from a ref


def _compare_several(
    call: Call, target: HistoryTarget, start: HistoryStart, stored: StoredPlace | None
) -> tuple[str, str]:
    """Return the changes since the start as lines, and the sentence that counts them."""
    changes = sorted([*_list_file_changes(call.ws, target, start), *(_list_stored_changes(call.ws, target, stored))])
    listed = changes[:MAX_LISTED_CHANGES]
    lines = [f"{change.kind} {terminal_text.escape_line(change.name)}{change.marks}" for change in listed]
    sentence = f"{plural(len(changes), 'change')} since {terminal_text.escape_line(start.ref)}."
    rest = [change.name for change in changes[MAX_LISTED_CHANGES:]]
    if rest:
        folders = Counter(name.partition(" -> ")[2].partition("/")[0] or name.partition("/")[0] for name in rest)
        largest = ", ".join(
            f"{terminal_text.escape_line(name)} ({number})" for name, number in folders.most_common(_MAX_FOLDERS)
        )
        sentence += f" {len(rest)} more, which name=FOLDER lists: {largest}."
    return "\n".join(lines), sentence


class _Change(NamedTuple):
    """A difference of several. Changes sort by name."""

    name: str
    """The printed name."""
    kind: str
    marks: str


def _list_file_changes(ws: Workspace, target: HistoryTarget, start: HistoryStart) -> Iterator[_Change]:
    if not start.commit or not target.in_git:
        return
    head = plumbing.read_head(ws.places).commit or start.commit
    changes = path_changes.list_changes(ws.places, start.commit, target.pathspecs)
    uncommitted = changes if head == start.commit else path_changes.list_changes(ws.places, head, target.pathspecs)
    edited = {path for change in uncommitted for path in (change.path, change.old_path)}
    for change in changes:
        yield _Change(_format_name(change), change.kind, _format_marks(uncommitted=change.path in edited))
    for path in _list_untracked_notes(ws, target):
        yield _Change(path, "added", _format_marks(uncommitted=True))


def _list_untracked_notes(ws: Workspace, target: HistoryTarget) -> list[str]:
    """Return the notes that git does not track yet. They are also documents."""
    folders = [f":(top,glob){source.folder}/" for source in ws.config.sources if source.write]
    paths = raw_changes.list_untracked(ws.places, folders) if folders else []
    if not target.pathspecs or not paths:
        return paths
    return [path for path in paths if path in {*raw_changes.list_untracked(ws.places, target.pathspecs)}]


def _format_name(change: PathChange) -> str:
    return f"{change.old_path} -> {change.path}" if change.old_path else change.path


def _format_marks(*, uncommitted: bool, stored: bool = False) -> str:
    marks = ["stored"] * stored + ["uncommitted"] * uncommitted
    return f" ({', '.join(marks)})" if marks else ""


def _list_stored_changes(ws: Workspace, target: HistoryTarget, stored: StoredPlace | None) -> Iterator[_Change]:
    if stored is None:
        return
    new = stored.origin.at
    uncommitted = _find_uncommitted_keys(ws, stored)
    for change in compare.stored_diff(ws, stored.old, new).documents:
        if target.covers_document(change.key):
            marks = _format_marks(uncommitted=change.key in uncommitted, stored=True)
            yield _Change(str(DocumentName(*change.key)), change.kind, marks)


def _find_uncommitted_keys(ws: Workspace, stored: StoredPlace) -> set[tuple[str, str]]:
    at = stored.origin.at
    if not isinstance(at, WorkingSet):
        return set()
    return {change.key for change in diffs.diff_documents(ws.engine, stored.origin.revision, at).documents}


# -- the lines of one file or document


class _Row(NamedTuple):
    """A line of a diff."""

    number: int
    """Number of the line in the new text, or of the next line for a removed one."""
    text: str


def _show_patch(
    call: Call, target: HistoryTarget, start: HistoryStart, patch: FilePatch, lines_below: Sequence[str]
) -> tuple[str, str]:
    """Return the changed lines of a file or a document, and the sentence about them.

    `lines_below` are the other lines of the page.
    """
    ref = terminal_text.escape_line(start.ref)
    name = terminal_text.escape_line(target.name)
    change = patch.change
    if change is None:
        return "", f"{name} does not differ from {ref}."
    head = f"{change.kind} {terminal_text.escape_line(_format_name(change))} since {ref}"
    rows = [*_list_rows(patch.hunks, target.lines)]
    if not rows and not patch.hunks and change.kind == "modified":
        return head, "Its title or metadata differ." if target.document else "It is binary, or only its mode differs."
    if not rows:
        return head, "No lines differ."
    max_characters = call.behaviour.page_chars
    page = [*lines_below, head, *(row.text for row in rows)]
    count = max(pages.fit_lines(page, max_characters) - len(lines_below) - 1, 1)
    lines = "\n".join(row.text for row in rows[:count])
    text = f"{head}\n{fence_text(lines)}"
    if count == len(rows):
        return text, ""
    following = rows[count].number
    if following <= rows[0].number:
        return text, f"The rest: read name={terminal_text.escape_line(change.old_path or target.name)} ref={ref}."
    return text, f"Next lines: history name={name}:{following}-{max(rows[-1].number, following)} since={ref}."


def _read_patch(ws: Workspace, target: HistoryTarget, start: HistoryStart, steps: Sequence[HistoryStep]) -> FilePatch:
    """Return the difference of a file.

    `steps` are all steps since the start; none if they are too many.
    """
    old_path = target.path
    if not target.existed:
        old_paths = [step.old_path for step in steps if step.old_path]
        if not old_paths:
            changes = path_changes.list_changes(ws.places, start.commit)
            old_paths = [change.old_path for change in changes if change.path == target.path and change.old_path]
        old_path = old_paths[-1] if old_paths else target.committed_path or target.path
    return path_changes.read_patch(ws.places, start.commit, [*dict.fromkeys((target.path, old_path))])


def _compare_document(ws: Workspace, target: HistoryTarget, stored: StoredPlace | None) -> FilePatch | None:
    """Return the difference of a stored document; None for a file."""
    if target.document is None or stored is None:
        return None
    key = target.document.key
    new = stored.origin.at
    change = next((row for row in compare.stored_diff(ws, stored.old, new).documents if row.key == key), None)
    if change is None:
        return FilePatch(None, ())
    ((_, before, after),) = diffs.read_sides(diffs.stored_texts(ws.engine, stored.old, new), [change])
    hunks = _build_hunks(before.content if before else "", after.content if after else "")
    return FilePatch(PathChange(change.kind, str(target.document)), tuple(hunks))


class _LineMatcher(SequenceMatcher[str]):
    """Compares lines with the algorithm of merges, which takes seconds at most."""

    def __init__(self, before: list[str], after: list[str]) -> None:
        super().__init__(None, before, after, autojunk=False)
        self._blocks = [Match(*block) for block in find_matching_blocks(before, after)]

    def get_matching_blocks(self) -> list[Match]:
        return self._blocks


def _build_hunks(old: str, new: str) -> Iterator[PatchHunk]:
    """Yield the changed lines of two texts, as in a unified diff."""
    before = terminal_text.split_lines(old)
    after = terminal_text.split_lines(new)
    for group in _LineMatcher(before, after).get_grouped_opcodes(CONTEXT):
        _, old_start, _, new_start, _ = group[0]
        _, _, old_end, _, new_end = group[-1]
        lines = [f"@@ -{old_start + 1},{old_end - old_start} +{new_start + 1},{new_end - new_start} @@"]
        for kind, old_from, old_to, new_from, new_to in group:
            if kind == "equal":
                lines += [f" {line}" for line in before[old_from:old_to]]
                continue
            lines += [f"-{line}" for line in before[old_from:old_to]]
            lines += [f"+{line}" for line in after[new_from:new_to]]
        yield PatchHunk(new_start + 1, max(new_end, new_start + 1), tuple(lines))


def _list_rows(hunks: Sequence[PatchHunk], chosen: Lines | None) -> Iterator[_Row]:
    """Yield the lines of a diff, or those at the chosen lines of the new text."""
    for hunk in hunks:
        first, last = chosen or (hunk.start, hunk.end)
        if first > hunk.end or last < hunk.start:
            continue
        number = hunk.start
        header, *lines = hunk.lines
        yield _Row(max(number, first), header)
        for line in lines:
            if not chosen or first <= number <= last:
                yield _Row(number, terminal_text.cut_text(line, _MAX_LINE_CHARS))
            number += not line.startswith(("-", "\\"))
