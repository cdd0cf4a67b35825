"""Is a work tree current? Hooks, sync, queries and status all ask here.

It is when HEAD's name and the pin are as they were applied last, and the bound index stands at the
pinned revision and verifies. The shims answer the first half by comparing texts
(`vmrag_hooks.shim_parts.SYNC`), because they may not start Python for it. An index that lags behind
does not start one: the next query brings it.
"""

from __future__ import annotations

from typing import Literal

from vmrag_link.index.views import Views
from vmrag_link.paths import Places
from vmrag_link.sync import binding as bindings
from vmrag_link.sync.binding import Binding
from vmrag_link.sync.target import Target, Trigger, pinned, read_trigger

Gap = Literal["unbound", "index_elsewhere", "index_unusable", "moved"]


def gap(places: Places, views: Views, trigger: Trigger, bound: Binding | None) -> Gap | None:
    """What a work tree lacks to be current; None: it is current. `trigger`: HEAD's name and pin;
    `bound`: its index.

    `unbound`: no index was ever bound. `index_elsewhere`: it stands at another revision than the
    pinned one. `index_unusable`: it does not verify. `moved`: HEAD or the pin is not what was
    applied last. The first that holds is returned.
    """
    if bound is None:
        return "unbound"
    if pinned(places, trigger) not in (None, bound.revision):
        return "index_elsewhere"
    if views.problem(bound.revision):
        return "index_unusable"
    return None if is_applied(places, trigger) else "moved"


def is_current(places: Places, views: Views) -> bool:
    """Whether a sync has nothing to do."""
    return gap(places, views, read_trigger(places), bindings.read(places)) is None


def is_applied(places: Places, trigger: Trigger) -> bool:
    """Whether the knowledge base has followed HEAD and the pin there; the index may be behind."""
    return bindings.applied(places) == trigger


def renamed(places: Places, trigger: Trigger) -> bool:
    """Whether HEAD has another name than was applied last, and the pin is the same: where no
    uncommitted documents are involved, hooks leave that to the next command.
    """
    before = bindings.applied(places)
    return before is not None and before.pin == trigger.pin and before != trigger


def is_pinned(target: Target, revision: str) -> bool:
    """Whether what is read at `revision` is the knowledge that the checked-out code pins."""
    return target.state == "pinned" and target.revision == revision
