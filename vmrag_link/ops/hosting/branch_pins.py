"""What a hosted branch itself has pinned.

A pull request may hold a commit with knowledge that its own later commits take back: its reviewers
saw nothing of that, and the branch never had it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from vmrag_link.git import history, objects
from vmrag_link.ops.pins.pinning import parsed
from vmrag_link.workspace import Workspace


def unseen(ws: Workspace, commits: Collection[str], *, since: str | None, tip: str) -> set[str]:
    """Those of some commits that have a parent whose pin no tip contains that the branch stood at,
    or that was merged into it, from `since` to `tip`.

    Raises as the engine.
    """
    sides = {commit: objects.parents(ws.places, commit) for commit in commits}
    stood = _tips(history.commits(ws.places, [tip], without=since), tip) | ({since} if since else set())
    pins = _revisions(ws, stood.union(*sides.values()))
    heads = [revision for commit, revision in pins.items() if commit in stood]
    strange = set(ws.engine.unreachable(set(pins.values()), heads=heads))
    return {commit for commit, parents in sides.items() if any(pins.get(each) in strange for each in parents)}


def _tips(known: Mapping[str, tuple[str, ...]], tip: str) -> set[str]:
    """The first parents from a tip on, and what they merged."""
    found, commit = {tip}, tip
    while parents := known.get(commit):
        found.update(parents)
        commit = parents[0]
    return found


def _revisions(ws: Workspace, commits: Collection[str]) -> dict[str, str]:
    """What commits pin, as far as it is here."""
    read = {commit: parsed(ws.places.kb, data) for commit, data in history.pins_of(ws.places, commits).items()}
    return {commit: pin.dolt_commit for commit, pin in read.items() if pin and ws.engine.has_revision(pin.dolt_commit)}
