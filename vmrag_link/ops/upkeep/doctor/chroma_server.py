"""The Chroma server: does it have the bound index, and is that what was put there?"""

from __future__ import annotations

from collections.abc import Iterator

from vmrag_link.chroma_server import names
from vmrag_link.chroma_server.check import difference
from vmrag_link.chroma_server.client import ChromaClient
from vmrag_link.chroma_server.contents import SharedContents
from vmrag_link.chroma_server.lease import give_up
from vmrag_link.embedding.protocols import SERVICES
from vmrag_link.engines.base import Engine
from vmrag_link.errors import ChromaServerFailed, UsageInvalid
from vmrag_link.ops.follow import chroma_server
from vmrag_link.ops.upkeep.doctor.findings import DOCTOR, Finding, Topic
from vmrag_link.sync import chroma_sharing, shared_vectors
from vmrag_link.workspace import Workspace


def collections(ws: Workspace) -> Iterator[Finding]:
    """Every record of the bound index's collections."""
    bound = ws.binding if ws.initialized else None
    if bound is None or ws.chroma.server is None or ws.views.problem(bound.revision):
        return
    client = ChromaClient(ws.chroma.server)
    try:
        client.require_database()
        with chroma_sharing.contents_of(ws.chroma.sharing, bound.revision, ws.chroma.publisher) as shared:
            for contents in shared:
                for finding in _looked_at(client, contents, ws.engine, bound.revision):
                    if finding.code != "CHROMA_SERVER_LACKS" or ws.config.chroma.share != "off":
                        yield finding
    except ChromaServerFailed as error:
        yield Finding("CHROMA_SERVER_FAILED", "warning", error.message, error.hint)


def _looked_at(client: ChromaClient, contents: SharedContents, engine: Engine, revision: str) -> Iterator[Finding]:
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
    if ws.chroma.server and names.is_sealed_name(finding.subject):
        client = ChromaClient(ws.chroma.server)
        if finding.code == "CHROMA_SERVER_CHANGED" and (found := client.find(finding.subject)):
            give_up(client, found)
    chroma_server.wait(ws)
    return "Put it there anew."


TOPIC = Topic("Chroma server", collections, {"CHROMA_SERVER_LACKS": _share, "CHROMA_SERVER_CHANGED": _share})
