"""What `pre-push` asks before git pushes: do the pins among the pushed commits name knowledge that somebody has?"""

from __future__ import annotations

from collections.abc import Sequence

from vmrag_link import pin as pins
from vmrag_link.errors import PinMalformed
from vmrag_link.git import history
from vmrag_link.ops.commit_check import Finding
from vmrag_link.paths import PIN_NAME
from vmrag_link.workspace import Workspace


def check(ws: Workspace, tips: Sequence[str]) -> tuple[Finding, ...]:
    """Look at every pin that the commits introduce which no remote has yet. Asks no network.

    Only the pins that the pushed branches end with can stop a push: old mistakes cannot be mended any more.
    """
    new = history.new_pins(ws.places, tips)
    last = history.pins_at(ws.places, tips) if new else set()
    return tuple(found for data, commits in new.items() if (found := _flaw(ws, data, commits[0], blocks=data in last)))


def _flaw(ws: Workspace, data: bytes, commit: str, *, blocks: bool) -> Finding | None:
    try:
        revision = pins.parse(data, source=f"{commit[:12]}:{PIN_NAME}").dolt_commit
    except PinMalformed as error:
        return Finding("PIN_MALFORMED", error.message, error.hint, blocks)
    if ws.engine.has_revision(revision):
        return None
    message = f"Commit {commit[:12]} pins revision {revision[:12]}, which is not in this knowledge base."
    return Finding("PIN_REVISION_MISSING", message, "vmrag pin (or push all the same: git push --no-verify)", blocks)
