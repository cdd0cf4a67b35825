"""Wait for Chroma: for the store of the index that answers here, and for that index on the Chroma
server of the settings.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from vmrag_link.errors import VmragError
from vmrag_link.workspace import Workspace


def wait_for_store(ws: Workspace, *, lend: bool = False) -> Path:
    """The store of the bound index, of pinned documents only, as soon as it is there.

    `lend`: it is handed out, and stays for `LEASE_SECONDS` at least. Raises why there can be none,
    and `UsageInvalid` or `IndexExtraMissing` where it is off.
    """
    from vmrag_link.sync import chroma_builder  # a third of what a switch imports, and most do not wait

    chroma_builder.require_on(ws.chroma.local)
    revision = ws.indexed_revision()
    with ws.reader.index_of(revision):
        pass  # one that does not verify was built again
    return chroma_builder.bring(
        ws.chroma.local, ws.chroma.local.of(revision), vectors=ws.vectors, progress=ws.progress, lend=lend
    )


def wait_if_set(ws: Workspace) -> None:
    """Wait where `index.chroma` says so. Raises `IndexExtraMissing` where a store is wanted that
    cannot be made without the extra.
    """
    from vmrag_link.chroma import bindings

    chroma, bound = ws.chroma.local, ws.binding
    if bound is None or chroma.mode == "off":
        return
    if chroma.mode == "wait":
        wait_for_store(ws)
    elif not chroma.usable(chroma.of(bound.revision)):
        bindings.require_supported()


def store_of_working_copy(ws: Workspace) -> Path:
    """A store of the documents as they are now, uncommitted ones included; as `wait_for_store`
    where there are none. It is made for this call, and stays while it is lent.
    """
    from vmrag_link.sync import chroma_builder

    chroma_builder.require_on(ws.chroma.local)
    with contextlib.ExitStack() as until_built:
        with ws.reader.view() as view:
            held = until_built.enter_context(chroma_builder.held(view.folder)) if view.dirty else None
        if held is not None:
            return chroma_builder.bring_held(ws.chroma.local, held, vectors=ws.vectors, progress=ws.progress)
    return wait_for_store(ws, lend=True)


def wait_for_server(ws: Workspace) -> None:
    """Share the bound index, if there is a server and it is not there.

    What failed before is tried again. Raises why it cannot be done.
    """
    if ws.chroma.server is None or ws.config.chroma.share == "off" or ws.binding is None:
        return
    from vmrag_link.sync import chroma_sharing  # as above

    revision = ws.indexed_revision()
    with ws.reader.index_of(revision):
        pass  # one that does not verify was built again
    try:
        chroma_sharing.share_revision(ws.chroma.sharing, revision, ws.chroma.publisher, progress=ws.progress)
    except VmragError as error:
        ws.chroma.sharing.note(revision, chroma_sharing.NotShared(error.message, error.hint))
        raise
