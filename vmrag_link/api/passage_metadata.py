"""Passages as retrieval frameworks have them: a text, an id and flat metadata."""

from __future__ import annotations

from typing import Any

from vmrag_link.api.results import FoundPassage


def passage_id(passage: FoundPassage) -> str:
    """Return an id that is equal on every machine that has the same version."""
    version = passage.commit or passage.revision
    return f"{version}:{passage.place}" if version else passage.place


def list_metadata(passage: FoundPassage) -> dict[str, Any]:
    """Return the metadata of the document, with the place and the version of the passage.

    `lines` is a list of the first and the last line, or None. A key of the document that has the
    same name is replaced.
    """
    return {
        **passage.metadata,
        "source": passage.place,
        "path": passage.path,
        "lines": None if passage.lines is None else list(passage.lines),
        "commit": passage.commit,
        "revision": passage.revision,
        "symbol": passage.symbol,
        "heading": passage.heading,
        "collection": passage.collection,
        "doc_id": passage.doc_id,
        "score": passage.score,
    }
