"""Check for `vmrag doctor` what is derived for Chroma's clients: the stores, and the shared server.

Both have the documents of an index in Chroma's own format. vmrag never reads them for answers.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from vmrag_link.chroma import DATABASE_FILE, check
from vmrag_link.chroma.bindings import find_unsupported
from vmrag_link.chroma.open_index import OpenIndex
from vmrag_link.chroma.stores import read_seal
from vmrag_link.chroma_server import contents
from vmrag_link.chroma_server.client import ChromaClient
from vmrag_link.chroma_server.contents import SharedContents
from vmrag_link.chroma_server.share import find_difference, remove_collection
from vmrag_link.embedding.base import SERVICES
from vmrag_link.engines.base import Engine
from vmrag_link.errors import ChromaServerFailed, IndexExtraMissing, UsageInvalid
from vmrag_link.index import view
from vmrag_link.index.view import read_unembedded
from vmrag_link.ops.doctor.findings import DOCTOR_HINT, Finding, Topic, build_busy
from vmrag_link.sync import chroma_sharing, vouchers
from vmrag_link.sync.chroma_state import RETRY, ChromaStores, find_problem
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow.sync import wait_for_server


def _check_stores(ws: Workspace) -> Iterator[Finding]:
    """Check every byte of Chroma's stores against its checksum, and every row against the index.

    Stores of other formats and settings are ignored.
    """
    chroma = ws.chroma.local
    for path in chroma.stores.list_newest_first():
        has_present_settings = path.name.endswith(f"-{chroma.stores.settings}")
        problem = _find_damage(chroma, path) if has_present_settings else ""
        if problem and path.exists():  # otherwise another process is removing it
            message = f"Chroma's store {path.name} is damaged: {problem}."
            yield Finding("CHROMA_DAMAGED", "warning", message, DOCTOR_HINT, str(path))
    # Another topic reports a missing chromadb.
    state = chroma.read_state() if chroma.is_set and not find_unsupported() else None
    if state and state.state == "failed":
        message = f"Chroma's store of {(state.revision or state.commit or '')[:7]} could not be built: {state.error}"
        yield Finding("CHROMA_FAILED", "warning", message, RETRY)


def _find_damage(chroma: ChromaStores, path: Path) -> str:
    """Return why a store is damaged; empty if it is not, or if nothing can be compared.

    Other topics report damaged indexes, missing packages and missing permissions.
    """
    seal = read_seal(path)  # it names the revision and has the checksums
    if seal is None:
        return "it was never finished"
    views = chroma.list_views(seal.revision)
    has_views = path == chroma.stores.store_path(seal.revision) and all(index.is_dir() for index in views)
    with contextlib.ExitStack() as read_locks:
        for index in views if has_views else ():
            read_locks.enter_context(chroma.views.lock_for_reading(index))
        read_locks.enter_context(chroma.stores.lock_for_reading(path))
        problem = chroma.stores.find_mismatch(path)
        can_open = os.access(path / DATABASE_FILE, os.W_OK)  # Chroma also writes when it reads
        if problem or not has_views or not can_open:
            return problem
        if any(find_problem(index) or view.find_mismatch(index) for index in views):
            return ""
        problem = chroma.stores.find_problem(path, lambda: {name for index in views for name in read_unembedded(index)})
        if problem:
            return problem
        with contextlib.suppress(IndexExtraMissing), contextlib.closing(OpenIndex(*views)) as opened:
            return check.find_difference(path, opened, with_texts=chroma.stores.store_documents)
    return ""


def _check_server(ws: Workspace) -> Iterator[Finding]:
    """Check every record that the server has of the collections of this work tree's index."""
    binding = ws.binding if ws.is_initialized else None
    if binding is None or ws.chroma.server is None or ws.views.find_problem(binding.revision):
        return
    is_sharing = ws.config.chroma.share != "off"
    client = ChromaClient(ws.chroma.server)
    try:
        client.require_database()
        with chroma_sharing.read_contents(ws.chroma.sharing, binding.revision, ws.chroma.publisher) as collections:
            for expected in collections:
                for finding in _compare_collection(client, expected, ws.engine, binding.revision):
                    if finding.code != "CHROMA_SERVER_LACKS" or is_sharing:
                        yield finding
    except ChromaServerFailed as error:
        yield Finding("CHROMA_SERVER_FAILED", "warning", error.message, error.hint)


def _compare_collection(
    client: ChromaClient, expected: SharedContents, engine: Engine, revision: str
) -> Iterator[Finding]:
    """Compare a collection of the server with its expected contents."""
    label = f"{expected.label!r} of {revision[:7]} on the Chroma server ({client.address.display_text})"
    remote_collection = client.find_collection(expected.name)
    if remote_collection is None:
        yield Finding(
            "CHROMA_SERVER_LACKS", "note", f"the collection {label} does not exist.", DOCTOR_HINT, expected.name
        )
        return
    # Others share vectors of paid services. The knowledge base has digests of the valid ones.
    is_paid = expected.indexed.collection.embedding_function in SERVICES
    digests = vouchers.read_digests(engine, expected.fingerprint) if is_paid else None
    changes = find_difference(client, remote_collection, expected, digests)
    if changes:
        message = f"the collection {label} was changed: {changes}."
        yield Finding("CHROMA_SERVER_CHANGED", "warning", message, DOCTOR_HINT, expected.name)


def _drop_store(ws: Workspace, finding: Finding) -> str:
    if not ws.chroma.local.stores.remove_if_unused(Path(finding.subject)):
        raise build_busy("store")
    ws.chroma.local.start_following()
    return "removed it; it is rebuilt when it is needed."


def _share_again(ws: Workspace, finding: Finding) -> str:
    """Write the collection to the server again. A changed one is deleted first."""
    if ws.config.chroma.share == "off":
        raise UsageInvalid(
            "this machine does not write to the Chroma server (chroma.share: off).",
            hint="run 'git config vmrag.chroma.share follow'",
        )
    if ws.chroma.server and contents.is_sealed_name(finding.subject):
        client = ChromaClient(ws.chroma.server)
        changed = client.find_collection(finding.subject) if finding.code == "CHROMA_SERVER_CHANGED" else None
        if changed:
            remove_collection(client, changed)
    wait_for_server(ws)
    return "wrote it again."


STORES = Topic("Chroma", _check_stores, {"CHROMA_DAMAGED": _drop_store})
SERVER = Topic(
    "Chroma server", _check_server, {"CHROMA_SERVER_LACKS": _share_again, "CHROMA_SERVER_CHANGED": _share_again}
)
