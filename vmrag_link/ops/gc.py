"""`vmrag gc`: give back the space of what nothing needs, after everything that is still pinned somewhere is anchored."""

from __future__ import annotations

from pathlib import Path

from vmrag_link import pin as pins
from vmrag_link.errors import PinMalformed
from vmrag_link.git import history
from vmrag_link.models import Record
from vmrag_link.ops.recover import recover
from vmrag_link.sync import apply as syncing
from vmrag_link.workspace import Workspace


class GcReport(Record, frozen=True):
    """`applied` False: nothing was done, this is what would be. Sizes in bytes; `anchored` are revisions."""

    applied: bool
    anchored: tuple[str, ...]
    snapshots: tuple[str, ...]
    kb_bytes_before: int
    kb_bytes_after: int
    snapshot_bytes: int


def gc(ws: Workspace, *, apply: bool = False) -> GcReport:
    """Anchor every pin that git's refs and reflogs can still check out, then drop unreachable revisions and spare snapshots."""
    recover(ws)
    engine = ws.engine
    wanted = tuple(sorted(each for each in pinned(ws) if engine.has_revision(each) and not engine.reachable(each)))

    def bound() -> set[Path]:
        return syncing.bound_snapshots(ws.places, ws.shelf)

    spare = ws.shelf.spare(bound=bound(), keep=ws.config.index.keep)
    before, freed = _size(ws.places.kb), sum(_size(each.path) for each in spare)
    if apply:
        for revision in wanted:
            engine.anchor(revision, reason="pinned in git history")
        engine.collect_garbage()
        ws.shelf.sweep()
        spare = ws.shelf.evict(bound=bound, keep=ws.config.index.keep)
    names = tuple(each.path.name for each in spare)
    return GcReport(apply, wanted, names, before, _size(ws.places.kb), freed)


def pinned(ws: Workspace) -> set[str]:
    """The revisions that some commit of git's refs or reflogs pins."""
    revisions = set()
    for data in history.pins(ws.places):
        try:
            revisions.add(pins.parse(data).dolt_commit)
        except PinMalformed:
            continue  # a commit whose pin nobody could follow keeps nothing alive
    return revisions


def _size(path: Path) -> int:
    return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
