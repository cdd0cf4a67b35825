"""Counts and ids of a branch's uncommitted documents, for the details of a refusal."""

from __future__ import annotations

from typing import Any

from vmrag_link.engines.base import Engine
from vmrag_link.models import KbBranch, Working

LISTED = 1000
"""Documents that a refusal names in its details."""


def local_changes(engine: Engine, branch: KbBranch) -> dict[str, Any]:
    """`added`, `modified`, `deleted` and `total` count documents; `documents` are ids."""
    found = engine.diff(branch.head, Working(branch.name))
    counts = found.counts()
    return {
        "added": counts.added,
        "modified": counts.modified,
        "deleted": counts.removed,
        "total": counts.total,
        "documents": [each.key[1] for each in found.documents[:LISTED]],
    }
