"""Chroma's stores: do they hold what their indexes hold, and why is one not there?"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from vmrag_link.chroma import check
from vmrag_link.chroma.bindings import unsupported
from vmrag_link.chroma.open_index import OpenIndex
from vmrag_link.chroma.stores import read_seal
from vmrag_link.errors import Busy, IndexExtraMissing
from vmrag_link.index import view
from vmrag_link.index.view import unembedded
from vmrag_link.ops.upkeep.doctor.findings import DOCTOR, Finding, Topic
from vmrag_link.sync.chroma_state import RETRY, ChromaStores
from vmrag_link.workspace import Workspace


def stores(ws: Workspace) -> Iterator[Finding]:
    """Every byte that is sealed, and every row against the index.

    Stores of other formats and settings are only in the way.
    """
    if not ws.initialized:
        return
    chroma = ws.chroma.local
    for path in chroma.stores.newest():
        if not path.name.endswith(f"-{chroma.stores.settings}"):
            continue
        problem = _problem(chroma, path)
        if problem and path.exists():  # else another process removes it at this moment
            message = f"Chroma's store {path.name} is damaged: {problem}."
            yield Finding("CHROMA_DAMAGED", "warning", message, DOCTOR, str(path))
    state = chroma.state() if ws.binding and not unsupported() else None  # which another topic tells
    if state and state.state == "failed":
        message = f"Chroma's store of {(state.revision or '')[:7]} could not be made: {state.error}"
        yield Finding("CHROMA_FAILED", "warning", message, RETRY)


def _problem(chroma: ChromaStores, path: Path) -> str:
    seal = read_seal(path)
    if seal is None:
        return "it was never finished"
    index = chroma.views.path(seal.revision)
    with contextlib.ExitStack() as locked:
        comparable = path == chroma.stores.path(seal.revision) and index.is_dir()
        if comparable:
            locked.enter_context(chroma.views.reading(index))
        locked.enter_context(chroma.stores.reading(path))
        if problem := chroma.stores.mismatch(path):
            return problem
        if not comparable or chroma.views.problem(seal.revision) or view.mismatch(index):
            return ""  # there is nothing to compare it with; another topic tells of a damaged index
        if problem := chroma.stores.problem(path, lambda: unembedded(index)):
            return problem
        with contextlib.suppress(IndexExtraMissing), contextlib.closing(OpenIndex(index)) as opened:
            return check.difference(path, opened, with_texts=chroma.stores.store_documents)
    return ""  # what is missing is another topic's, too


def _drop(ws: Workspace, finding: Finding) -> str:
    if not ws.chroma.local.stores.discard(Path(finding.subject)):
        raise Busy("Another process reads that store.", hint="Run it again when that has finished.")
    ws.chroma.local.follow()
    return "Removed it; it is made again where it is needed."


TOPIC = Topic("Chroma", stores, {"CHROMA_DAMAGED": _drop})
