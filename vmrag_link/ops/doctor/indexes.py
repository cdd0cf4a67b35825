"""Check indexes and the cache of vectors for `vmrag doctor`. Both can be rebuilt.

A view is the index of one revision, or of the files of a commit. A working copy is the index of a
branch's uncommitted documents. The bound view is the one that answers queries in this work tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vmrag_link import hints, locks
from vmrag_link.embedding.cache import EmbeddingCache
from vmrag_link.errors import quoted
from vmrag_link.index import view
from vmrag_link.index.directories import lock_path
from vmrag_link.index.view import find_index_problem
from vmrag_link.ops.doctor.findings import DOCTOR_HINT, Finding, Topic, build_busy
from vmrag_link.ops.status.status import status
from vmrag_link.sync import background
from vmrag_link.workspace import Workspace, source_tree
from vmrag_link.workspace.follow.sync import sync_to_pin

_SYNC_HINT = "run 'vmrag sync'"

MAX_NOTES = 20_000
MAX_NOTES_BYTES = 100_000_000
"""Above these limits, a stored collection is faster, because `git status` checks each file."""


def _check_sync(ws: Workspace) -> Iterator[Finding]:
    """Check that queries here use the pinned revision. The topic `pin` reports why they cannot."""
    if not ws.is_initialized:
        return
    report = status(ws)
    if report.state != "drift":
        return
    code = "NOT_SYNCED" if report.hint.startswith(_SYNC_HINT) else "KB_ELSEWHERE"
    yield Finding(code, "warning", report.reasons[0], report.hint)
    job = background.get_sync_job(ws.places)
    job_report = background.read_report(job)
    if job_report and job_report.error:
        message = f"the background sync failed: {job_report.error} (log: {job.log})"
        yield Finding("BACKGROUND_FAILED", "warning", message, _SYNC_HINT, str(job.log))


def _sync_index(ws: Workspace, finding: Finding) -> str:
    report = sync_to_pin(ws, rebuild="--rebuild" in finding.fix)
    return f"updated knowledge base and index to {(report.to or '')[:7]}."


def _check_views(ws: Workspace) -> Iterator[Finding]:
    """Check every byte of the bound index and of the spare ones, also of other formats."""
    binding = ws.binding
    checked_segments: dict[str, str] = {}
    for revision_view in ws.views.list_views():
        path = revision_view.path
        revision = revision_view.revision
        is_bound = binding is not None and path.name == binding.view
        with ws.views.lock_for_reading(path):
            # `_check_sync` reports the problems that a sync finds in the bound index.
            problem = "" if is_bound else find_index_problem(path, revision=revision)
            problem = problem or view.find_mismatch(path, checked_segments)
        if not problem or not path.exists():  # another process is removing it
            continue
        if is_bound:
            message = f"the bound index is damaged: {problem}."
            fix = "run 'vmrag sync --rebuild' to build the index again"
            yield Finding("INDEX_DAMAGED", "error", message, fix, str(path))
        else:
            message = f"the spare index of {revision[:7]} cannot be used: {problem}."
            yield Finding("SNAPSHOT_DAMAGED", "warning", message, f"run 'rm -r {quoted(path)}' to remove it", str(path))


def _drop_view(ws: Workspace, finding: Finding) -> str:
    if not ws.views.remove_if_unused(Path(finding.subject)):
        raise build_busy("index")
    return "removed it; it is rebuilt when it is needed."


def _check_copies(ws: Workspace) -> Iterator[Finding]:
    """Check the indexes of uncommitted documents, except those that are being written."""
    if not ws.is_initialized:
        return
    for branch in ws.engine.list_branches():
        copy = ws.sync_context.working_copy(branch.name, branch.head)
        if not branch.dirty or not copy.path.exists():
            continue
        if locks.is_held(copy.path.with_name(f"{copy.path.name}.lock")):  # it is being written
            continue
        with copy.lock_for_reading():  # an outdated one is updated when it is used
            problem = copy.find_damage() or view.find_mismatch(copy.path)
        if problem:
            message = f"the index of the uncommitted documents of {branch.name!r} cannot be used: {problem}."
            yield Finding("WORKING_COPY_DAMAGED", "warning", message, DOCTOR_HINT, branch.name)


def _drop_copy(ws: Workspace, finding: Finding) -> str:
    branch = ws.engine.find_branch(finding.subject)
    if branch:
        with ws.sync_context.without_copy(branch.name, branch.head):
            pass
    return "removed it; it is rebuilt when it is needed."


def _check_sources(ws: Workspace) -> Iterator[Finding]:
    """Check every byte of the indexes of files of the code's tree."""
    source_views = ws.source_index.views
    checked_segments: dict[str, str] = {}
    for source_view in source_views.list_views():
        path = source_view.path
        with source_views.lock_for_reading(path):
            problem = find_index_problem(path, revision=source_view.revision)
            problem = problem or view.find_mismatch(path, checked_segments)
        if problem and path.exists():  # another process may remove it now
            message = f"an index of sources is damaged: {problem}."
            yield Finding("SOURCES_DAMAGED", "warning", message, DOCTOR_HINT, str(path))


def _drop_sources(ws: Workspace, finding: Finding) -> str:
    if not ws.source_index.views.remove_if_unused(Path(finding.subject)):
        raise build_busy("index")
    ws.views.segments.collect_garbage(ws.places.view_folders)
    return "removed it; the next query rebuilds it."


def _check_local(ws: Workspace) -> Iterator[Finding]:
    """Check every byte of the index of the documents that stay on this machine."""
    if not ws.local.exists or not ws.places.local_index.is_dir():
        return
    index = ws.local.get_index()
    if not index.path.exists() or locks.is_held(lock_path(index.path)):
        return
    with index.lock_for_reading():
        problem = index.find_damage() or view.find_mismatch(index.path)
    if problem:
        message = f"the index of the documents that stay on this machine is damaged: {problem}."
        yield Finding("LOCAL_INDEX_DAMAGED", "warning", message, DOCTOR_HINT, str(index.path))


def _drop_local(ws: Workspace, _: Finding) -> str:
    index = ws.local.get_index()
    with index.lock_for_writing():
        index.remove_copy()
    return "removed it; the next query rebuilds it."


def _check_vectors(ws: Workspace) -> Iterator[Finding]:
    """Check the cache of vectors."""
    path = ws.places.embeddings
    damage = EmbeddingCache(path).find_damage()
    if damage:
        yield Finding("EMBEDDINGS_DAMAGED", "warning", damage, DOCTOR_HINT, str(path))


def _repair_vectors(ws: Workspace, _: Finding) -> str:
    ws.embedding_cache.repair()
    return "kept the valid vectors; the others are computed again when they are needed."


def _check_notes(ws: Workspace) -> Iterator[Finding]:
    """Recommend a stored collection instead of very many notes."""
    sources_of_notes = [source for source in ws.sources.configured if source.write]
    tree = source_tree.read_work_tree(ws) if sources_of_notes else None
    if tree is None:
        return
    for source in sources_of_notes:
        files = tree.listing.files.get(source.collection, ())
        size = sum(file.size for file in files)
        if len(files) > MAX_NOTES or size > MAX_NOTES_BYTES:
            message = (
                f"{source.collection} has {len(files):,} notes with {size / 1_000_000:,.0f} MB, which slow git down."
            )
            move = hints.suggest_command(f"vmrag move {quoted(source.collection)} --to store", "store them")
            yield Finding("NOTES_MANY", "note", message, move, source.collection)


VIEWS = Topic("indexes", _check_views, {"SNAPSHOT_DAMAGED": _drop_view, "INDEX_DAMAGED": _sync_index})
COPIES = Topic("working copies", _check_copies, {"WORKING_COPY_DAMAGED": _drop_copy})
NOTES = Topic("notes", _check_notes)
SOURCES = Topic("indexes of sources", _check_sources, {"SOURCES_DAMAGED": _drop_sources})
LOCAL_INDEX = Topic("this machine's index", _check_local, {"LOCAL_INDEX_DAMAGED": _drop_local})
VECTORS = Topic("embeddings", _check_vectors, {"EMBEDDINGS_DAMAGED": _repair_vectors})
SYNC = Topic("sync", _check_sync, {"NOT_SYNCED": _sync_index, "BACKGROUND_FAILED": _sync_index})
