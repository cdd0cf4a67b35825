"""`vmrag fingerprint`: where it is equal, equal queries get equal answers."""

from __future__ import annotations

from vmrag_link.models import At, Record, Working
from vmrag_link.ops.follow import lazy_fetch
from vmrag_link.ops.follow.follow_pin import sync_and_warn
from vmrag_link.retrieval import fingerprint as retrieval
from vmrag_link.retrieval import fusion
from vmrag_link.retrieval.fusion import Ranking
from vmrag_link.trust import settings as trusted
from vmrag_link.workspace import Workspace


class FingerprintReport(Record, frozen=True):
    """`ranking`: the version and the settings that rank. Two programs of different versions rank
    equal documents differently, and their fingerprints differ.
    """

    fingerprint: str
    revision: str
    ranking: Ranking
    dirty: bool


def fingerprint(ws: Workspace, *, ref: str | None = None) -> FingerprintReport:
    """Of the workspace, uncommitted documents included, or of the revision that a git ref pins,
    ranked as its own settings say.
    """
    if ref is None:
        sync_and_warn(ws)
    at: At = ws.at() if ref is None else lazy_fetch.pinned_at(ws, ref)
    ranking = ws.ranking if ref is None else fusion.ranking(trusted.load_at(ws.places, ref).config.retrieval)
    value = retrieval.fingerprint(ranking, ws.engine.collections(at), ws.engine.headers(at))
    revision = at if isinstance(at, str) else ws.revision()
    return FingerprintReport(value, revision, ranking, dirty=isinstance(at, Working))
