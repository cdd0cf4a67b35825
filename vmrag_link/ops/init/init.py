"""`vmrag init`: make files of the repository documents of each commit.

It writes the settings file and stages it. It does not create a pin, a knowledge base, a hook or a
ref. `knowledge_base.start_knowledge_base` creates those.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from vmrag_link import locks
from vmrag_link.file_access import require_files, require_folders
from vmrag_link.git import folder_modes, listing, note_index, staging
from vmrag_link.models import Record
from vmrag_link.ops import trust
from vmrag_link.ops.init import own_settings
from vmrag_link.ops.sources.sources_report import count_endings, count_untracked_offers, find_extra, find_uncovered
from vmrag_link.settings import SourceSettings
from vmrag_link.settings.flaws import NOTES, NOTES_FOLDER
from vmrag_link.sources import rules
from vmrag_link.workspace import Workspace

NoNotes = Literal["", "stored", "ignored"]
NOTES_SOURCE = SourceSettings(NOTES, (NOTES_FOLDER,), write=True)


class NewSource(Record, frozen=True):
    """A source that was written into the settings file."""

    collection: str
    kind: str
    paths: tuple[str, ...]
    exclude: tuple[str, ...]
    files: Mapping[str, int]
    """Number of tracked files by the ending of their names, such as `.md`, most frequent first."""


class InitReport(Record, frozen=True):
    """Changes of `vmrag init`."""

    sources: tuple[NewSource, ...]
    """Sources that were added. Empty if the file has sources, or if no file can be one."""
    uncovered: Mapping[str, int]
    """Number of tracked files that no source names or excludes, by the ending of their names. Most
    frequent first.
    """
    untracked: int
    """Number of files that could be documents if git tracked them. 0 if the file has sources."""
    written: bool
    """True if the settings file was created or changed."""
    staged: bool
    """True if the settings file was staged now. A file that a user wrote is not."""
    ignored: bool
    """True if the settings file was written, and git ignores it."""
    busy: bool
    """True if another git command held the index, so that the file was not staged."""
    requires: str
    """The version of vmrag-link that the file requires only now. Empty for none."""
    notes: str = ""
    """The folder of the source for notes that was added; empty if none was."""
    no_notes: NoNotes = ""
    """Why no source for notes was added: the knowledge base stores a collection of that name, or
    git ignores the folder. Empty if it was added, exists, or was not wanted.
    """
    needs_extra: str = ""
    """How to install what reads the code among the uncovered files; empty if nothing is missing."""


def init(ws: Workspace, *, with_sources: bool = True, with_notes: bool = True) -> InitReport:
    """Write the proposed sources, and one for notes, into the settings file.

    The file is staged, unless a user wrote it.

    `with_sources`: if false, the sources of existing files are left out; `with_notes`: the one for
    notes. The file is trusted if no commit has it, otherwise only the new source for notes. Raises
    `FileFailed` for links in place of the file, and `ConfigInvalid` for a file into which sources
    cannot be written.
    """
    require_files(ws.places.config)
    require_folders(ws.places.shared, ws.places.work_tree_folder)
    tracked = listing.list_tracked_files(ws.places)
    configured = ws.config.sources  # raises an error for an unreadable settings file
    required_before = ws.config.requires
    remaining = find_uncovered(configured, tracked)
    proposed: tuple[SourceSettings, ...] = ()
    if with_sources and not configured:
        proposed = ws.sources.propose()
    elif with_sources and all(source.write for source in configured):  # a note needs no other source
        names = {*ws.list_stored_collections(), *(source.collection for source in configured)}
        proposed = ws.sources.propose_for(remaining, names)
    obstacle = _find_obstacle(ws)
    has_notes = any(source.collection == NOTES or source.write for source in configured)
    adds_notes = with_notes and not obstacle and not has_notes
    new_sources = (*proposed, NOTES_SOURCE) if adds_notes else proposed
    folder_modes.prepare_folders(ws.places)
    with locks.hold_exclusive(ws.places.workspace_lock, purpose="init", timeout=ws.lock_timeout):
        is_ours = not ws.places.config.exists() or own_settings.is_written_by_us(ws)
        content_before = ws.places.config.read_bytes() if ws.places.config.exists() else None
        own_settings.write_settings(ws, sources=new_sources)
        written = ws.places.config.read_bytes() != content_before
        ignored = written and bool(listing.Repositories(ws.places).find_ignored([ws.places.config]))
        should_stage = written and is_ours and not ignored
        staged = should_stage and staging.stage_path(ws.places, ws.places.config)
    if not trust.trust_own_settings(ws) and adds_notes:
        trust.trust_source(ws, NOTES_SOURCE)
    sources = (*configured, *proposed)
    uncovered = find_uncovered(sources, tracked)
    return InitReport(
        sources=tuple(_describe_source(source, remaining) for source in proposed),
        uncovered=count_endings(uncovered),
        untracked=0 if any(not source.write for source in sources) else count_untracked_offers(ws),
        written=written,
        staged=staged,
        ignored=ignored,
        busy=should_stage and not staged,
        requires=ws.config.requires if ws.config.requires != required_before else "",
        notes=NOTES_SOURCE.folder if adds_notes else "",
        no_notes=obstacle if with_notes else "",
        needs_extra=find_extra(uncovered),
    )


def _find_obstacle(ws: Workspace) -> NoNotes:
    """Return why this repository cannot have the usual source for notes."""
    if NOTES in ws.list_stored_collections():
        return "stored"
    ignored = note_index.list_ignored_files(ws.places, [f"{NOTES_SOURCE.folder}/note.md"])
    return "ignored" if ignored else ""


def _describe_source(source: SourceSettings, tracked: Iterable[str]) -> NewSource:
    files = count_endings(path for path in tracked if rules.find_source([source], path))
    return NewSource(source.collection, source.kind, source.paths, source.exclude, files)
