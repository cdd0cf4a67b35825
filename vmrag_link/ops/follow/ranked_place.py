"""The place that a query asks instead of the work tree: a commit's pin and its files."""

from __future__ import annotations

import contextlib

from vmrag_link.errors import KnowledgeElsewhere, NotInitialized, PinMissing, VmragError
from vmrag_link.git import plumbing
from vmrag_link.models import Record
from vmrag_link.ops.follow import lazy_fetch
from vmrag_link.settings import Config, RetrievalSettings
from vmrag_link.workspace import Workspace


class RankedRevision(Record, frozen=True):
    """A place that is asked instead of the work tree: a revision, and the settings that rank.

    `commit` and `config`: whose files are asked, too, as its own `sources` say; where the revision
    is empty, they alone are.
    """

    revision: str
    retrieval: RetrievalSettings
    commit: str | None = None
    config: Config | None = None


def files_alone(ws: Workspace, why: VmragError) -> bool:
    """Whether files of sources answer by themselves, where that is why no documents can be read."""
    missing = isinstance(why, NotInitialized | PinMissing) and not isinstance(why, KnowledgeElsewhere)
    return missing and bool(ws.sources.configured)


def ranked_at(ws: Workspace, ref: str) -> RankedRevision:
    """What a git ref pins, asked as its own settings say. Raises as `lazy_fetch.pinned_at`, and
    `ConfigInvalid`.
    """
    return ranked_commit(ws, ref, ws.sources.config_at(ref))


def ranked_commit(ws: Workspace, ref: str, config: Config) -> RankedRevision:
    """As `ranked_at`, of a commit whose settings are known."""
    if not config.sources:
        return RankedRevision(lazy_fetch.pinned_at(ws, ref), config.retrieval)
    commit, revision = plumbing.resolve(ws.places, ref), ""
    with contextlib.suppress(PinMissing):  # its files are there without any pin
        revision = lazy_fetch.pinned_at(ws, ref)
    return RankedRevision(revision, config.retrieval, commit, config)
