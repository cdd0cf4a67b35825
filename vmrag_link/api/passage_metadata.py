"""Convert passages for retrieval frameworks: a text, an id and flat metadata."""

from __future__ import annotations

from typing import Any

from vmrag_link.api.results import FoundPassage


def passage_id(passage: FoundPassage) -> str:
    """Return an id of the passage. It is the same on every machine with the same version."""
    version = passage.commit or passage.revision
    return f"{version}:{passage.place}" if version else passage.place


def list_metadata(passage: FoundPassage) -> dict[str, Any]:
    """Return the metadata of the document, and the place and version of the passage.

    `lines` is a list of the first and the last line, or None. If the document has a key of the same
    name, the value of the passage wins.
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
