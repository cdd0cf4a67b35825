"""Which links a remote learns of.

Those of the source `pin` go as far as the code does: a commit that is only here is nobody else's
business.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from vmrag_link.git import history, plumbing, repository
from vmrag_link.models import Link
from vmrag_link.ops.links import links
from vmrag_link.ops.pins.pinning import parsed
from vmrag_link.paths import Places
from vmrag_link.pin import Pin
from vmrag_link.workspace import Workspace


def of_head(ws: Workspace) -> list[Link]:
    """All links made by hand, and those of HEAD and its ancestors."""
    links.flush(ws)
    head = plumbing.head(ws.places).commit
    manual = [each for each in ws.engine.links() if each.source == "manual"]
    return manual + (rows(ws, pins(ws.places, head)) if head else [])


def pins(places: Places, tip: str, *, without: str | None = None) -> dict[str, Pin]:
    """The pins that the commits introduce that the tip reaches, and `without` does not; by commit.

    A commit whose parents a shallow clone lacks may have its pin from them: it is left out.
    """
    found = history.reachable_pins(places, [tip, *([f"^{without}"] if without else [])])
    cut = history.boundary(places)
    return {
        commit: pin
        for data, commits in found.items()
        if (pin := parsed(places.kb, data))
        for commit in commits
        if commit not in cut
    }


def rows(ws: Workspace, pins: Mapping[str, Pin], *, branch: str = "") -> list[Link]:
    """The links of commits, by what they pin. A link made by hand stands in for its commit's.

    `branch`: for commits whose own branch is not known here.
    """
    known = {each.git_commit: each for each in ws.engine.links()}
    url = repository.origin(ws.places)
    found = []
    for commit, pin in pins.items():
        there = known.get(commit, Link(commit, "", ""))
        if there.source == "pin":
            row = Link(commit, pin.dolt_commit, pin.dolt_branch, there.git_branch or branch, url, pin.linked_at)
            found.append(replace(row, superseded_by=there.superseded_by))
    return found
