"""Links that came with a remote's knowledge base, on its branch `vmrag_links`.

Who wrote them may be anybody who can push there. The fetch has looked at each row by itself
(`engines.inspection.require_link`); here they are held against git's history.
"""

from __future__ import annotations

from collections.abc import Sequence

from vmrag_link import clock
from vmrag_link.engines.base import LINKS_BRANCH
from vmrag_link.errors import SchemaTooNew
from vmrag_link.git import history, objects
from vmrag_link.merging.rows import LINK_AUTHOR, link_additions
from vmrag_link.models import Link
from vmrag_link.ops.pins.pinning import parsed
from vmrag_link.paths import PIN_NAME
from vmrag_link.transport.address import Address
from vmrag_link.workspace import Workspace


def take_in(ws: Workspace, address: Address) -> int:
    """Add the remote's links, as of its last fetch, to ours; returns how many rows changed."""
    head = ws.engine.remote_heads(address.key).get(LINKS_BRANCH)
    if head is None:
        return 0
    try:
        there = ws.engine.links(at=head)
    except SchemaTooNew as error:
        ws.progress.note(f"The links of {address.text} are left out: {error.message}")
        return 0
    fresh = _believable(ws, link_additions(ws.engine.links(), there))
    if fresh:
        ws.engine.write_links(fresh, message=f"Take in links from {address.text}", author=LINK_AUTHOR, date=clock.now())
    return len(fresh)


def _believable(ws: Workspace, rows: Sequence[Link]) -> list[Link]:
    """Without links of the source `pin` that the tree of their commit denies, if it is here."""
    asked = [each.git_commit for each in rows if each.source == "pin"]
    if not asked:
        return list(rows)
    missing = set(objects.missing_commits(ws.places, asked))
    here = [each for each in asked if each not in missing]
    objects.bring_at(ws.places, here, PIN_NAME)
    told = {commit: parsed(ws.places.kb, data) for commit, data in history.pins_of(ws.places, here).items()}
    return [
        each
        for each in rows
        if each.source == "manual"
        or each.git_commit in missing
        or ((pin := told.get(each.git_commit)) and pin.dolt_commit == each.dolt_commit)
    ]
