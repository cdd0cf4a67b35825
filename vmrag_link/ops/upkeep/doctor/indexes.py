"""Derived files: the index that answers here, spare ones, working copies, the cache of vectors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vmrag_link import locks
from vmrag_link.embedding.cache import EmbeddingCache
from vmrag_link.errors import Busy, quoted
from vmrag_link.index import view
from vmrag_link.index.view import problem_of
from vmrag_link.ops.follow.sync import sync
from vmrag_link.ops.status.status import status
from vmrag_link.ops.upkeep.doctor.findings import DOCTOR, Finding, Topic
from vmrag_link.sync import background
from vmrag_link.workspace import Workspace

_COMMAND = "vmrag sync"


def synced(ws: Workspace) -> Iterator[Finding]:
    """Does the work tree answer from its pin? The topic of the pin says why it cannot."""
    if not ws.initialized:
        return
    report = status(ws)
    if report.state != "drift":
        return
    code = "NOT_SYNCED" if report.hint.startswith(_COMMAND) else "KB_ELSEWHERE"
    yield Finding(code, "warning", report.reasons[0], report.hint)
    failed = background.report(background.sync_of(ws.places))
    if failed and failed.error:
        message = f"The sync in the background gave up: {failed.error} (log: {background.sync_of(ws.places).log})"
        yield Finding("BACKGROUND_FAILED", "warning", message, _COMMAND, str(background.sync_of(ws.places).log))


def _sync(ws: Workspace, finding: Finding) -> str:
    report = sync(ws, rebuild="--rebuild" in finding.fix)
    return f"Brought knowledge base and index to {(report.to or '')[:7]}."


def views(ws: Workspace) -> Iterator[Finding]:
    """Every byte of the index that answers here, and of the spare ones.

    Whether it is the right one is a sync's business. Those of other formats are only in the way.
    """
    bound = ws.binding
    looked: dict[str, str] = {}
    for each in ws.views.all():
        here = bound is not None and each.path.name == bound.view
        with ws.views.reading(each.path):
            # What a sync finds in the index that answers here is reported by `synced`.
            named = "" if here else problem_of(each.path, revision=each.revision)
            problem = named or view.mismatch(each.path, looked)
        if not problem or not each.path.exists():  # another process removes it at this moment
            continue
        if here:
            message = f"The index that answers here is damaged: {problem}."
            yield Finding("INDEX_DAMAGED", "error", message, "vmrag sync --rebuild", str(each.path))
        else:
            message = f"The spare index of {each.revision[:7]} cannot be used: {problem}."
            yield Finding("SNAPSHOT_DAMAGED", "warning", message, f"rm -r {quoted(each.path)}", str(each.path))


def _drop_view(ws: Workspace, finding: Finding) -> str:
    if not ws.views.discard(Path(finding.subject)):
        raise Busy("Another process reads that index.", hint="Run it again when that has finished.")
    return "Removed it; it is built again when it is needed."


def copies(ws: Workspace) -> Iterator[Finding]:
    """The indexes of uncommitted documents, but for those that are being written."""
    if not ws.initialized:
        return
    for branch in ws.engine.branches():
        copy = ws.sync_context.working_copy(branch.name, branch.head)
        if not branch.dirty or not copy.path.exists() or locks.is_held(copy.path.with_name(f"{copy.path.name}.lock")):
            continue
        with copy.reading():  # one that only lies behind goes on from there when it is asked
            problem = copy.damage() or view.mismatch(copy.path)
        if problem:
            message = f"The index of the uncommitted documents of {branch.name!r} cannot be used: {problem}."
            yield Finding("WORKING_COPY_DAMAGED", "warning", message, DOCTOR, branch.name)


def _drop_copy(ws: Workspace, finding: Finding) -> str:
    branch = ws.engine.branch(finding.subject)
    if branch:
        with ws.sync_context.without_copy(branch.name, branch.head):
            pass
    return "Removed it; it is made again when it is needed."


def vectors(ws: Workspace) -> Iterator[Finding]:
    path = ws.places.embeddings
    damage = EmbeddingCache(path).damage()
    if damage:
        yield Finding("EMBEDDINGS_DAMAGED", "warning", damage, DOCTOR, str(path))


def _mend_vectors(ws: Workspace, _: Finding) -> str:
    ws.embedding_cache.mend()
    return "Kept the vectors that prove themselves; others are computed again when they are needed."


VIEWS = Topic("indexes", views, {"SNAPSHOT_DAMAGED": _drop_view, "INDEX_DAMAGED": _sync})
COPIES = Topic("working copies", copies, {"WORKING_COPY_DAMAGED": _drop_copy})
VECTORS = Topic("embeddings", vectors, {"EMBEDDINGS_DAMAGED": _mend_vectors})
SYNC = Topic("sync", synced, {"NOT_SYNCED": _sync, "BACKGROUND_FAILED": _sync})
