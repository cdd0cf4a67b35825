"""Derived files: the index that answers here, spare ones, working copies, the cache of vectors; and
Chroma's stores and the Chroma server: does each hold what its index holds?
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from vmrag_link import locks
from vmrag_link.chroma import DATABASE_FILE, check
from vmrag_link.chroma.bindings import unsupported
from vmrag_link.chroma.check import OpenIndex
from vmrag_link.chroma.stores import read_seal
from vmrag_link.chroma_server import contents
from vmrag_link.chroma_server.client import ChromaClient
from vmrag_link.chroma_server.contents import SharedContents
from vmrag_link.chroma_server.share import difference, give_up
from vmrag_link.embedding.base import SERVICES
from vmrag_link.embedding.cache import EmbeddingCache
from vmrag_link.engines.base import Engine
from vmrag_link.errors import Busy, ChromaServerFailed, IndexExtraMissing, UsageInvalid, quoted
from vmrag_link.index import view
from vmrag_link.index.directories import lock_of
from vmrag_link.index.view import problem_of, unembedded
from vmrag_link.ops.follow.sync import sync, wait_for_server
from vmrag_link.ops.status.status import status
from vmrag_link.ops.upkeep.doctor.findings import DOCTOR, Finding, Topic
from vmrag_link.sync import background, chroma_sharing, shared_vectors
from vmrag_link.sync.chroma_state import RETRY, ChromaStores, find_problem
from vmrag_link.workspace import Workspace, source_tree

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


def _check_sources(ws: Workspace) -> Iterator[Finding]:
    """Every byte of the indexes of files of the code's tree."""
    kept = ws.sources.views
    read: dict[str, str] = {}
    for each in kept.all():
        with kept.reading(each.path):
            problem = problem_of(each.path, revision=each.revision) or view.mismatch(each.path, read)
        if problem and each.path.exists():  # another process may remove it now
            message = f"An index of sources is damaged: {problem}."
            yield Finding("SOURCES_DAMAGED", "warning", message, DOCTOR, str(each.path))


def _drop_sources(ws: Workspace, finding: Finding) -> str:
    if not ws.sources.views.discard(Path(finding.subject)):
        raise Busy("Another process reads that index.", hint="Run it again when that has finished.")
    ws.views.segments.collect(ws.places.view_folders)
    return "Removed it; the next query builds it again."


def _check_local(ws: Workspace) -> Iterator[Finding]:
    """Every byte of the index of the documents that stay on this machine."""
    if not ws.local.there or not ws.places.local_index.is_dir():
        return
    index = ws.local.index()
    if not index.path.exists() or locks.is_held(lock_of(index.path)):
        return
    with index.reading():
        problem = index.damage() or view.mismatch(index.path)
    if problem:
        message = f"The index of the documents that stay on this machine is damaged: {problem}."
        yield Finding("LOCAL_INDEX_DAMAGED", "warning", message, DOCTOR, str(index.path))


def _drop_local(ws: Workspace, _: Finding) -> str:
    index = ws.local.index()
    with index.writing():
        index.drop()
    return "Removed it; the next search builds it again."


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
MOST_NOTES, MOST_NOTE_BYTES = 20_000, 100_000_000
"""Above these, a stored collection is cheaper than files, because `git status` looks at each."""


def _check_notes(ws: Workspace) -> Iterator[Finding]:
    """Recommend a stored collection instead of very many notes."""
    writable = [source for source in ws.sources.configured if source.write]
    tree = source_tree.in_work_tree(ws) if writable else None
    for source in writable if tree else ():
        files = tree.listing.files.get(source.collection, ()) if tree else ()
        size = sum(file.size for file in files)
        if len(files) > MOST_NOTES or size > MOST_NOTE_BYTES:
            what = f"{source.collection} has {len(files):,} notes with {size / 1_000_000:,.0f} MB, which slow git down."
            move = f"vmrag move {quoted(source.collection)} --to store"
            yield Finding("NOTES_MANY", "note", what, move, source.collection)


NOTES = Topic("notes", _check_notes)
SOURCES = Topic("indexes of sources", _check_sources, {"SOURCES_DAMAGED": _drop_sources})
LOCAL_INDEX = Topic("this machine's index", _check_local, {"LOCAL_INDEX_DAMAGED": _drop_local})
VECTORS = Topic("embeddings", vectors, {"EMBEDDINGS_DAMAGED": _mend_vectors})
SYNC = Topic("sync", synced, {"NOT_SYNCED": _sync, "BACKGROUND_FAILED": _sync})


# -- Chroma


def _check_stores(ws: Workspace) -> Iterator[Finding]:
    """Every byte that is sealed, and every row against the index.

    Stores of other formats and settings are only in the way.
    """
    chroma = ws.chroma.local
    for path in chroma.stores.newest():
        if not path.name.endswith(f"-{chroma.stores.settings}"):
            continue
        problem = _find_damage(chroma, path)
        if problem and path.exists():  # else another process removes it at this moment
            message = f"Chroma's store {path.name} is damaged: {problem}."
            yield Finding("CHROMA_DAMAGED", "warning", message, DOCTOR, str(path))
    state = chroma.state() if chroma.is_set and not unsupported() else None  # which another topic tells
    if state and state.state == "failed":
        message = f"Chroma's store of {(state.revision or state.commit or '')[:7]} could not be made: {state.error}"
        yield Finding("CHROMA_FAILED", "warning", message, RETRY)


def _find_damage(chroma: ChromaStores, path: Path) -> str:
    seal = read_seal(path)
    if seal is None:
        return "it was never finished"
    views = chroma.views_of(seal.revision)
    with contextlib.ExitStack() as locked:
        comparable = path == chroma.stores.path(seal.revision) and all(index.is_dir() for index in views)
        for index in views if comparable else ():
            locked.enter_context(chroma.views.reading(index))
        locked.enter_context(chroma.stores.reading(path))
        if problem := chroma.stores.mismatch(path):
            return problem
        # Chroma cannot read what it cannot write, which the topic "disk" reports.
        comparable = comparable and os.access(path / DATABASE_FILE, os.W_OK)
        if not comparable or any(find_problem(index) or view.mismatch(index) for index in views):
            return ""  # there is nothing to compare it with; another topic tells of a damaged index
        if problem := chroma.stores.problem(path, lambda: {name for index in views for name in unembedded(index)}):
            return problem
        with contextlib.suppress(IndexExtraMissing), contextlib.closing(OpenIndex(*views)) as opened:
            return check.difference(path, opened, with_texts=chroma.stores.store_documents)
    return ""  # what is missing is another topic's, too


def _drop(ws: Workspace, finding: Finding) -> str:
    if not ws.chroma.local.stores.discard(Path(finding.subject)):
        raise Busy("Another process reads that store.", hint="Run it again when that has finished.")
    ws.chroma.local.follow()
    return "Removed it; it is made again where it is needed."


def _check_server(ws: Workspace) -> Iterator[Finding]:
    """Every record of the bound index's collections."""
    bound = ws.binding if ws.initialized else None
    if bound is None or ws.chroma.server is None or ws.views.problem(bound.revision):
        return
    client = ChromaClient(ws.chroma.server)
    try:
        client.require_database()
        with chroma_sharing.contents_of(ws.chroma.sharing, bound.revision, ws.chroma.publisher) as shared:
            for contents in shared:
                for finding in _compare(client, contents, ws.engine, bound.revision):
                    if finding.code != "CHROMA_SERVER_LACKS" or ws.config.chroma.share != "off":
                        yield finding
    except ChromaServerFailed as error:
        yield Finding("CHROMA_SERVER_FAILED", "warning", error.message, error.hint)


def _compare(client: ChromaClient, contents: SharedContents, engine: Engine, revision: str) -> Iterator[Finding]:
    where = f"{contents.label!r} of {revision[:7]} on the Chroma server ({client.address.shown})"
    found = client.find(contents.name)
    if found is None:
        yield Finding("CHROMA_SERVER_LACKS", "note", f"Collection {where} is not there.", DOCTOR, contents.name)
        return
    paid = contents.held.collection.embedding_function in SERVICES
    vouched = shared_vectors.digests(engine, contents.contents) if paid else None
    if why := difference(client, found, contents, vouched):
        message = f"Collection {where} is not what was put there: {why}."
        yield Finding("CHROMA_SERVER_CHANGED", "warning", message, DOCTOR, contents.name)


def _share(ws: Workspace, finding: Finding) -> str:
    """Put it there; what stands in its place goes first."""
    if ws.config.chroma.share == "off":
        raise UsageInvalid(
            "This machine puts nothing on the Chroma server (chroma.share: off).",
            hint="git config vmrag.chroma.share follow",
        )
    if ws.chroma.server and contents.is_sealed_name(finding.subject):
        client = ChromaClient(ws.chroma.server)
        if finding.code == "CHROMA_SERVER_CHANGED" and (found := client.find(finding.subject)):
            give_up(client, found)
    wait_for_server(ws)
    return "Put it there anew."


STORES = Topic("Chroma", _check_stores, {"CHROMA_DAMAGED": _drop})
SERVER = Topic("Chroma server", _check_server, {"CHROMA_SERVER_LACKS": _share, "CHROMA_SERVER_CHANGED": _share})
