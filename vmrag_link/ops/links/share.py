"""Which links a remote may have.

Those of the source `pin` go as far as the code does: a commit that is only here is nobody else's
business.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from vmrag_link.git import history, plumbing, repository
from vmrag_link.models import Link
from vmrag_link.ops.links import link_queue
from vmrag_link.ops.pins.pinning import parsed
from vmrag_link.workspace import Workspace


def of_head(ws: Workspace) -> list[Link]:
    """All links made by hand, and those of HEAD and its ancestors."""
    link_queue.flush(ws)
    head = plumbing.head(ws.places).commit
    manual = [each for each in ws.engine.links() if each.source == "manual"]
    return manual + (of_commits(ws, head) if head else [])


def of_commits(ws: Workspace, tip: str, *, without: str | None = None, branch: str = "") -> list[Link]:
    """The links of the commits that the tip reaches, and `without` does not, as the pins that they
    introduce say. `branch`: that of a commit of which nothing here says on which it was made.

    A commit whose parents a shallow clone lacks may have its pin from them: it is left out.
    """
    tips = [tip, *([f"^{without}"] if without else [])]
    return list(_derived(ws, tips, branch))


def _derived(ws: Workspace, tips: list[str], branch: str) -> Iterator[Link]:
    found, cut = history.reachable_pins(ws.places, tips), history.boundary(ws.places)
    known = {each.git_commit: each for each in ws.engine.links()} if found else {}
    url = repository.origin(ws.places)
    for data, commits in found.items():
        if pin := parsed(ws.places.kb, data):
            for commit in (each for each in commits if each not in cut):
                row = Link(commit, pin.dolt_commit, pin.dolt_branch, branch, url, pin.linked_at)
                there = known.get(commit)
                if there is None:
                    yield row
                elif there.source == "pin":
                    yield replace(row, git_branch=there.git_branch or branch, superseded_by=there.superseded_by)
