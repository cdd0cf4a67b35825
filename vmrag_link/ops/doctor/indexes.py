"""Check derived files: indexes, working copies, the cache of vectors, Chroma's stores, and the
Chroma server.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from vmrag_link import hints, locks
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

_COMMAND = "run 'vmrag sync'"


def check_sync(ws: Workspace) -> Iterator[Finding]:
    """Check that the work tree answers from its pin. The topic of the pin reports why it cannot."""
    if not ws.is_initialized:
        return
    report = status(ws)
    if report.state != "drift":
        return
    code = "NOT_SYNCED" if report.hint.startswith(_COMMAND) else "KB_ELSEWHERE"
    yield Finding(code, "warning", report.reasons[0], report.hint)
    failed = background.read_report(background.get_sync_job(ws.places))
    if failed and failed.error:
        message = f"the background sync failed: {failed.error} (log: {background.get_sync_job(ws.places).log})"
        yield Finding("BACKGROUND_FAILED", "warning", message, _COMMAND, str(background.get_sync_job(ws.places).log))


def _sync_index(ws: Workspace, finding: Finding) -> str:
    report = sync_to_pin(ws, rebuild="--rebuild" in finding.fix)
    return f"updated knowledge base and index to {(report.to or '')[:7]}."


def check_views(ws: Workspace) -> Iterator[Finding]:
    """Check every byte of the bound index and of the spare ones.

    The sync decides which index is bound. Indexes of other formats are also reported.
    """
    bound = ws.binding
    checked: dict[str, str] = {}
    for revision_view in ws.views.list_views():
        is_bound = bound is not None and revision_view.path.name == bound.view
        with ws.views.lock_for_reading(revision_view.path):
            # `check_sync` reports the problems that a sync finds in the bound index.
            header_problem = "" if is_bound else find_index_problem(revision_view.path, revision=revision_view.revision)
            problem = header_problem or view.find_mismatch(revision_view.path, checked)
        if not problem or not revision_view.path.exists():  # another process is removing it
            continue
        if is_bound:
            message = f"the bound index is damaged: {problem}."
            yield Finding(
                "INDEX_DAMAGED",
                "error",
                message,
                "run 'vmrag sync --rebuild' to build the index again",
                str(revision_view.path),
            )
        else:
            message = f"the spare index of {revision_view.revision[:7]} cannot be used: {problem}."
            yield Finding(
                "SNAPSHOT_DAMAGED",
                "warning",
                message,
                f"run 'rm -r {quoted(revision_view.path)}' to remove it",
                str(revision_view.path),
            )


def _drop_view(ws: Workspace, finding: Finding) -> str:
    if not ws.views.remove_if_unused(Path(finding.subject)):
        raise Busy(
            "another process is reading this index.",
            hint="run 'vmrag doctor --fix' to repair it when the other process has finished",
        )
    return "removed it; it is rebuilt when it is needed."


def check_copies(ws: Workspace) -> Iterator[Finding]:
    """Check the indexes of uncommitted documents, except those that are being written."""
    if not ws.is_initialized:
        return
    for branch in ws.engine.list_branches():
        copy = ws.sync_context.working_copy(branch.name, branch.head)
        if not branch.dirty or not copy.path.exists() or locks.is_held(copy.path.with_name(f"{copy.path.name}.lock")):
            continue
        with copy.lock_for_reading():  # an outdated one is updated when it is used
            problem = copy.find_damage() or view.find_mismatch(copy.path)
        if problem:
            message = f"the index of the uncommitted documents of {branch.name!r} cannot be used: {problem}."
            yield Finding("WORKING_COPY_DAMAGED", "warning", message, DOCTOR, branch.name)


def _drop_copy(ws: Workspace, finding: Finding) -> str:
    branch = ws.engine.find_branch(finding.subject)
    if branch:
        with ws.sync_context.without_copy(branch.name, branch.head):
            pass
    return "removed it; it is rebuilt when it is needed."


def _check_sources(ws: Workspace) -> Iterator[Finding]:
    """Check every byte of the indexes of files of the code's tree."""
    views_of_sources = ws.source_index.views
    checked: dict[str, str] = {}
    for source_view in views_of_sources.list_views():
        with views_of_sources.lock_for_reading(source_view.path):
            problem = find_index_problem(source_view.path, revision=source_view.revision) or view.find_mismatch(
                source_view.path, checked
            )
        if problem and source_view.path.exists():  # another process may remove it now
            message = f"an index of sources is damaged: {problem}."
            yield Finding("SOURCES_DAMAGED", "warning", message, DOCTOR, str(source_view.path))


def _drop_sources(ws: Workspace, finding: Finding) -> str:
    if not ws.source_index.views.remove_if_unused(Path(finding.subject)):
        raise Busy(
            "another process is reading this index.",
            hint="run 'vmrag doctor --fix' to repair it when the other process has finished",
        )
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
        yield Finding("LOCAL_INDEX_DAMAGED", "warning", message, DOCTOR, str(index.path))


def _drop_local(ws: Workspace, _: Finding) -> str:
    index = ws.local.get_index()
    with index.lock_for_writing():
        index.remove_copy()
    return "removed it; the next query rebuilds it."


def check_vectors(ws: Workspace) -> Iterator[Finding]:
    """Check the cache of vectors."""
    path = ws.places.embeddings
    damage = EmbeddingCache(path).find_damage()
    if damage:
        yield Finding("EMBEDDINGS_DAMAGED", "warning", damage, DOCTOR, str(path))


def _repair_vectors(ws: Workspace, _: Finding) -> str:
    ws.embedding_cache.repair()
    return "kept the valid vectors; the others are computed again when they are needed."


VIEWS = Topic("indexes", check_views, {"SNAPSHOT_DAMAGED": _drop_view, "INDEX_DAMAGED": _sync_index})
COPIES = Topic("working copies", check_copies, {"WORKING_COPY_DAMAGED": _drop_copy})
MAX_NOTES, MAX_NOTE_BYTES = 20_000, 100_000_000
"""Above these limits, a stored collection is faster, because `git status` checks each file."""


def _check_notes(ws: Workspace) -> Iterator[Finding]:
    """Recommend a stored collection instead of very many notes."""
    writable = [source for source in ws.sources.configured if source.write]
    tree = source_tree.read_work_tree(ws) if writable else None
    for source in writable if tree else ():
        files = tree.listing.files.get(source.collection, ()) if tree else ()
        size = sum(file.size for file in files)
        if len(files) > MAX_NOTES or size > MAX_NOTE_BYTES:
            message = (
                f"{source.collection} has {len(files):,} notes with {size / 1_000_000:,.0f} MB, which slow git down."
            )
            move = hints.suggest_command(f"vmrag move {quoted(source.collection)} --to store", "store them")
            yield Finding("NOTES_MANY", "note", message, move, source.collection)


NOTES = Topic("notes", _check_notes)
SOURCES = Topic("indexes of sources", _check_sources, {"SOURCES_DAMAGED": _drop_sources})
LOCAL_INDEX = Topic("this machine's index", _check_local, {"LOCAL_INDEX_DAMAGED": _drop_local})
VECTORS = Topic("embeddings", check_vectors, {"EMBEDDINGS_DAMAGED": _repair_vectors})
SYNC = Topic("sync", check_sync, {"NOT_SYNCED": _sync_index, "BACKGROUND_FAILED": _sync_index})


# -- Chroma


def _check_stores(ws: Workspace) -> Iterator[Finding]:
    """Check every sealed byte of Chroma's stores, and every row against the index.

    Stores of other formats and settings are ignored.
    """
    chroma = ws.chroma.local
    for path in chroma.stores.list_newest_first():
        if not path.name.endswith(f"-{chroma.stores.settings}"):
            continue
        problem = _find_damage(chroma, path)
        if problem and path.exists():  # otherwise another process is removing it
            message = f"Chroma's store {path.name} is damaged: {problem}."
            yield Finding("CHROMA_DAMAGED", "warning", message, DOCTOR, str(path))
    # Another topic reports a missing chromadb.
    state = chroma.read_state() if chroma.is_set and not find_unsupported() else None
    if state and state.state == "failed":
        message = f"Chroma's store of {(state.revision or state.commit or '')[:7]} could not be built: {state.error}"
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
        # Chroma cannot read a store without write permission. The topic "disk" reports that.
        comparable = comparable and os.access(path / DATABASE_FILE, os.W_OK)
        if not comparable or any(find_problem(index) or view.find_mismatch(index) for index in views):
            return ""  # there is nothing to compare with; another topic reports a damaged index
        if problem := chroma.stores.find_problem(
            path, lambda: {name for index in views for name in read_unembedded(index)}
        ):
            return problem
        with contextlib.suppress(IndexExtraMissing), contextlib.closing(OpenIndex(*views)) as opened:
            return check.find_difference(path, opened, with_texts=chroma.stores.store_documents)
    return ""  # another topic reports what is missing


def _drop_store(ws: Workspace, finding: Finding) -> str:
    if not ws.chroma.local.stores.remove_if_unused(Path(finding.subject)):
        raise Busy(
            "another process is reading this store.",
            hint="run 'vmrag doctor --fix' to repair it when the other process has finished",
        )
    ws.chroma.local.start_following()
    return "removed it; it is rebuilt when it is needed."


def _check_server(ws: Workspace) -> Iterator[Finding]:
    """Check every record of the bound index's collections."""
    bound = ws.binding if ws.is_initialized else None
    if bound is None or ws.chroma.server is None or ws.views.find_problem(bound.revision):
        return
    client = ChromaClient(ws.chroma.server)
    try:
        client.require_database()
        with chroma_sharing.read_contents(ws.chroma.sharing, bound.revision, ws.chroma.publisher) as shared:
            for contents in shared:
                for finding in _compare_collection(client, contents, ws.engine, bound.revision):
                    if finding.code != "CHROMA_SERVER_LACKS" or ws.config.chroma.share != "off":
                        yield finding
    except ChromaServerFailed as error:
        yield Finding("CHROMA_SERVER_FAILED", "warning", error.message, error.hint)


def _compare_collection(
    client: ChromaClient, contents: SharedContents, engine: Engine, revision: str
) -> Iterator[Finding]:
    label = f"{contents.label!r} of {revision[:7]} on the Chroma server ({client.address.display_text})"
    remote_collection = client.find_collection(contents.name)
    if remote_collection is None:
        yield Finding("CHROMA_SERVER_LACKS", "note", f"the collection {label} does not exist.", DOCTOR, contents.name)
        return
    paid = contents.indexed.collection.embedding_function in SERVICES
    vouched = shared_vectors.read_digests(engine, contents.fingerprint) if paid else None
    if changes := find_difference(client, remote_collection, contents, vouched):
        message = f"the collection {label} was changed: {changes}."
        yield Finding("CHROMA_SERVER_CHANGED", "warning", message, DOCTOR, contents.name)


def _share_again(ws: Workspace, finding: Finding) -> str:
    """Write the collection to the server again. A changed one is deleted first."""
    if ws.config.chroma.share == "off":
        raise UsageInvalid(
            "this machine does not write to the Chroma server (chroma.share: off).",
            hint="run 'git config vmrag.chroma.share follow'",
        )
    if ws.chroma.server and contents.is_sealed_name(finding.subject):
        client = ChromaClient(ws.chroma.server)
        if finding.code == "CHROMA_SERVER_CHANGED" and (remote_collection := client.find_collection(finding.subject)):
            remove_collection(client, remote_collection)
    wait_for_server(ws)
    return "wrote it again."


STORES = Topic("Chroma", _check_stores, {"CHROMA_DAMAGED": _drop_store})
SERVER = Topic(
    "Chroma server", _check_server, {"CHROMA_SERVER_LACKS": _share_again, "CHROMA_SERVER_CHANGED": _share_again}
)
