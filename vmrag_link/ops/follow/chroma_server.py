"""The bound index on the Chroma server of the settings, for those that wait for it."""

from __future__ import annotations

from vmrag_link.errors import VmragError
from vmrag_link.sync import chroma_sharing
from vmrag_link.sync.chroma_sharing import NotShared
from vmrag_link.workspace import Workspace


def wait(ws: Workspace) -> None:
    """Share the bound index, if there is a server and it is not there.

    What failed before is tried again. Raises why it cannot be done.
    """
    if ws.chroma.server is None or ws.config.chroma.share == "off" or ws.binding is None:
        return
    revision = ws.indexed_revision()
    with ws.reader.index_of(revision):
        pass  # one that does not verify was built again
    try:
        chroma_sharing.share_revision(ws.chroma.sharing, revision, ws.chroma.publisher, progress=ws.progress)
    except VmragError as error:
        ws.chroma.sharing.note(revision, NotShared(error.message, error.hint))
        raise
