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
from vmrag_link.chroma.bindings import find_unsupported
from vmrag_link.chroma.check import OpenIndex
from vmrag_link.chroma.stores import read_seal
from vmrag_link.chroma_server import contents
from vmrag_link.chroma_server.client import ChromaClient
from vmrag_link.chroma_server.contents import SharedContents
from vmrag_link.chroma_server.share import find_difference, remove_collection
from vmrag_link.embedding.base import SERVICES
from vmrag_link.embedding.cache import EmbeddingCache
from vmrag_link.engines.base import Engine
from vmrag_link.errors import Busy, ChromaServerFailed, IndexExtraMissing, UsageInvalid, quoted
from vmrag_link.index import view
from vmrag_link.index.directories import lock_path
from vmrag_link.index.view import find_index_problem, read_unembedded
from vmrag_link.ops.doctor.findings import DOCTOR, Finding, Topic
from vmrag_link.ops.status.status import status
from vmrag_link.sync import background, chroma_sharing, shared_vectors
from vmrag_link.sync.chroma_state import RETRY, ChromaStores, find_problem
from vmrag_link.workspace import Workspace, source_tree
from vmrag_link.workspace.follow.sync import sync_to_pin, wait_for_server

_COMMAND = "vmrag sync"


def check_sync(ws: Workspace) -> Iterator[Finding]:
    """Does the work tree answer from its pin? The topic of the pin says why it cannot."""
    if not ws.is_initialized:
        return
    report = status(ws)
    if report.state != "drift":
        return
    code = "NOT_SYNCED" if report.hint.startswith(_COMMAND) else "KB_ELSEWHERE"
    yield Finding(code, "warning", report.reasons[0], report.hint)
    failed = background.read_report(background.get_sync_job(ws.places))
    if failed and failed.error:
        message = f"The sync in the background gave up: {failed.error} (log: {background.get_sync_job(ws.places).log})"
        yield Finding("BACKGROUND_FAILED", "warning", message, _COMMAND, str(background.get_sync_job(ws.places).log))


def _sync(ws: Workspace, finding: Finding) -> str:
    report = sync_to_pin(ws, rebuild="--rebuild" in finding.fix)
    return f"Brought knowledge base and index to {(report.to or '')[:7]}."


def check_views(ws: Workspace) -> Iterator[Finding]:
    """Every byte of the index that answers here, and of the spare ones.

    Whether it is the right one is a sync's business. Those of other formats are only in the way.
    """
    bound = ws.binding
    looked: dict[str, str] = {}
    for each in ws.views.list_views():
        here = bound is not None and each.path.name == bound.view
        with ws.views.lock_for_reading(each.path):
            # What a sync finds in the index that answers here is reported by `synced`.
            named = "" if here else find_index_problem(each.path, revision=each.revision)
            problem = named or view.find_mismatch(each.path, looked)
        if not problem or not each.path.exists():  # another process removes it at this moment
            continue
        if here:
            message = f"The index that answers here is damaged: {problem}."
            yield Finding("INDEX_DAMAGED", "error", message, "vmrag sync --rebuild", str(each.path))
        else:
            message = f"The spare index of {each.revision[:7]} cannot be used: {problem}."
            yield Finding("SNAPSHOT_DAMAGED", "warning", message, f"rm -r {quoted(each.path)}", str(each.path))


def _drop_view(ws: Workspace, finding: Finding) -> str:
    if not ws.views.remove_if_unused(Path(finding.subject)):
        raise Busy("Another process reads that index.", hint="Run it again when that has finished.")
    return "Removed it; it is built again when it is needed."


def check_copies(ws: Workspace) -> Iterator[Finding]:
    """The indexes of uncommitted documents, but for those that are being written."""
    if not ws.is_initialized:
        return
    for branch in ws.engine.list_branches():
        copy = ws.sync_context.working_copy(branch.name, branch.head)
        if not branch.dirty or not copy.path.exists() or locks.is_held(copy.path.with_name(f"{copy.path.name}.lock")):
            continue
        with copy.lock_for_reading():  # one that only lies behind goes on from there when it is asked
            problem = copy.find_damage() or view.find_mismatch(copy.path)
        if problem:
            message = f"The index of the uncommitted documents of {branch.name!r} cannot be used: {problem}."
            yield Finding("WORKING_COPY_DAMAGED", "warning", message, DOCTOR, branch.name)


def _drop_copy(ws: Workspace, finding: Finding) -> str:
    branch = ws.engine.find_branch(finding.subject)
    if branch:
        with ws.sync_context.without_copy(branch.name, branch.head):
            pass
    return "Removed it; it is made again when it is needed."


def _check_sources(ws: Workspace) -> Iterator[Finding]:
    """Every byte of the indexes of files of the code's tree."""
    kept = ws.sources.views
    read: dict[str, str] = {}
    for each in kept.list_views():
        with kept.lock_for_reading(each.path):
            problem = find_index_problem(each.path, revision=each.revision) or view.find_mismatch(each.path, read)
        if problem and each.path.exists():  # another process may remove it now
            message = f"An index of sources is damaged: {problem}."
            yield Finding("SOURCES_DAMAGED", "warning", message, DOCTOR, str(each.path))


def _drop_sources(ws: Workspace, finding: Finding) -> str:
    if not ws.sources.views.remove_if_unused(Path(finding.subject)):
        raise Busy("Another process reads that index.", hint="Run it again when that has finished.")
    ws.views.segments.collect_garbage(ws.places.view_folders)
    return "Removed it; the next query builds it again."


def _check_local(ws: Workspace) -> Iterator[Finding]:
    """Every byte of the index of the documents that stay on this machine."""
    if not ws.local.exists or not ws.places.local_index.is_dir():
        return
    index = ws.local.get_index()
    if not index.path.exists() or locks.is_held(lock_path(index.path)):
        return
    with index.lock_for_reading():
        problem = index.find_damage() or view.find_mismatch(index.path)
    if problem:
        message = f"The index of the documents that stay on this machine is damaged: {problem}."
        yield Finding("LOCAL_INDEX_DAMAGED", "warning", message, DOCTOR, str(index.path))


def _drop_local(ws: Workspace, _: Finding) -> str:
    index = ws.local.get_index()
    with index.lock_for_writing():
        index.remove_copy()
    return "Removed it; the next search builds it again."


def check_vectors(ws: Workspace) -> Iterator[Finding]:
    path = ws.places.embeddings
    damage = EmbeddingCache(path).find_damage()
    if damage:
        yield Finding("EMBEDDINGS_DAMAGED", "warning", damage, DOCTOR, str(path))


def _mend_vectors(ws: Workspace, _: Finding) -> str:
    ws.embedding_cache.repair()
    return "Kept the vectors that prove themselves; others are computed again when they are needed."


VIEWS = Topic("indexes", check_views, {"SNAPSHOT_DAMAGED": _drop_view, "INDEX_DAMAGED": _sync})
COPIES = Topic("working copies", check_copies, {"WORKING_COPY_DAMAGED": _drop_copy})
MAX_NOTES, MAX_NOTE_BYTES = 20_000, 100_000_000
"""Above these, a stored collection is cheaper than files, because `git status` looks at each."""


def _check_notes(ws: Workspace) -> Iterator[Finding]:
    """Recommend a stored collection instead of very many notes."""
    writable = [source for source in ws.sources.configured if source.write]
    tree = source_tree.read_work_tree(ws) if writable else None
    for source in writable if tree else ():
        files = tree.listing.files.get(source.collection, ()) if tree else ()
        size = sum(file.size for file in files)
        if len(files) > MAX_NOTES or size > MAX_NOTE_BYTES:
            what = f"{source.collection} has {len(files):,} notes with {size / 1_000_000:,.0f} MB, which slow git down."
            move = f"vmrag move {quoted(source.collection)} --to store"
            yield Finding("NOTES_MANY", "note", what, move, source.collection)


NOTES = Topic("notes", _check_notes)
SOURCES = Topic("indexes of sources", _check_sources, {"SOURCES_DAMAGED": _drop_sources})
LOCAL_INDEX = Topic("this machine's index", _check_local, {"LOCAL_INDEX_DAMAGED": _drop_local})
VECTORS = Topic("embeddings", check_vectors, {"EMBEDDINGS_DAMAGED": _mend_vectors})
SYNC = Topic("sync", check_sync, {"NOT_SYNCED": _sync, "BACKGROUND_FAILED": _sync})


# -- Chroma


def _check_stores(ws: Workspace) -> Iterator[Finding]:
    """Every byte that is sealed, and every row against the index.

    Stores of other formats and settings are only in the way.
    """
    chroma = ws.chroma.local
    for path in chroma.stores.list_newest_first():
        if not path.name.endswith(f"-{chroma.stores.settings}"):
            continue
        problem = _find_damage(chroma, path)
        if problem and path.exists():  # else another process removes it at this moment
            message = f"Chroma's store {path.name} is damaged: {problem}."
            yield Finding("CHROMA_DAMAGED", "warning", message, DOCTOR, str(path))
    state = chroma.read_state() if chroma.is_set and not find_unsupported() else None  # which another topic tells
    if state and state.state == "failed":
        message = f"Chroma's store of {(state.revision or state.commit or '')[:7]} could not be made: {state.error}"
        yield Finding("CHROMA_FAILED", "warning", message, RETRY)


def _find_damage(chroma: ChromaStores, path: Path) -> str:
    seal = read_seal(path)
    if seal is None:
        return "it was never finished"
    views = chroma.list_views(seal.revision)
    with contextlib.ExitStack() as locked:
        comparable = path == chroma.stores.store_path(seal.revision) and all(index.is_dir() for index in views)
        for index in views if comparable else ():
            locked.enter_context(chroma.views.lock_for_reading(index))
        locked.enter_context(chroma.stores.lock_for_reading(path))
        if problem := chroma.stores.find_mismatch(path):
            return problem
        # Chroma cannot read what it cannot write, which the topic "disk" reports.
        comparable = comparable and os.access(path / DATABASE_FILE, os.W_OK)
        if not comparable or any(find_problem(index) or view.find_mismatch(index) for index in views):
            return ""  # there is nothing to compare it with; another topic tells of a damaged index
        if problem := chroma.stores.find_problem(
            path, lambda: {name for index in views for name in read_unembedded(index)}
        ):
            return problem
        with contextlib.suppress(IndexExtraMissing), contextlib.closing(OpenIndex(*views)) as opened:
            return check.find_difference(path, opened, with_texts=chroma.stores.store_documents)
    return ""  # what is missing is another topic's, too


def _drop(ws: Workspace, finding: Finding) -> str:
    if not ws.chroma.local.stores.remove_if_unused(Path(finding.subject)):
        raise Busy("Another process reads that store.", hint="Run it again when that has finished.")
    ws.chroma.local.start_following()
    return "Removed it; it is made again where it is needed."


def _check_server(ws: Workspace) -> Iterator[Finding]:
    """Every record of the bound index's collections."""
    bound = ws.binding if ws.is_initialized else None
    if bound is None or ws.chroma.server is None or ws.views.find_problem(bound.revision):
        return
    client = ChromaClient(ws.chroma.server)
    try:
        client.require_database()
        with chroma_sharing.read_contents(ws.chroma.sharing, bound.revision, ws.chroma.publisher) as shared:
            for contents in shared:
                for finding in _compare(client, contents, ws.engine, bound.revision):
                    if finding.code != "CHROMA_SERVER_LACKS" or ws.config.chroma.share != "off":
                        yield finding
    except ChromaServerFailed as error:
        yield Finding("CHROMA_SERVER_FAILED", "warning", error.message, error.hint)


def _compare(client: ChromaClient, contents: SharedContents, engine: Engine, revision: str) -> Iterator[Finding]:
    where = f"{contents.label!r} of {revision[:7]} on the Chroma server ({client.address.display_text})"
    found = client.find_collection(contents.name)
    if found is None:
        yield Finding("CHROMA_SERVER_LACKS", "note", f"Collection {where} is not there.", DOCTOR, contents.name)
        return
    paid = contents.indexed.collection.embedding_function in SERVICES
    vouched = shared_vectors.read_digests(engine, contents.fingerprint) if paid else None
    if why := find_difference(client, found, contents, vouched):
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
        if finding.code == "CHROMA_SERVER_CHANGED" and (found := client.find_collection(finding.subject)):
            remove_collection(client, found)
    wait_for_server(ws)
    return "Put it there anew."


STORES = Topic("Chroma", _check_stores, {"CHROMA_DAMAGED": _drop})
SERVER = Topic("Chroma server", _check_server, {"CHROMA_SERVER_LACKS": _share, "CHROMA_SERVER_CHANGED": _share})
