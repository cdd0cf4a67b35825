"""Names of collections and documents: what is allowed."""

from __future__ import annotations

import re

from vmrag_link.documents.doc_ids import MAX_ID, id_problem
from vmrag_link.errors import NameInvalid

COLLECTION = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])")
COLLECTION_LENGTH = range(2, 256)
ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")


def check(collection: str, *, option: str = "--collection") -> None:
    """Chroma's rule for collections, cut to what fits into a key of the knowledge base. Names of
    two characters are legal, too; Chroma has others for them (`index.metadata.chroma_name`).

    `option`: what the hint calls it. Raises `NameInvalid`.
    """
    if not _legal(collection):
        raise NameInvalid(
            f"{collection!r} cannot name a collection: 2 to 255 letters, digits, '.', '_' or '-', "
            "with a letter or digit at both ends.",
            hint=f"For example: {option} {similar(collection)}",
            collection_name=collection,
        )


def similar(text: str) -> str:
    """A name that a collection can have, made of a text."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("._-")
    return name if _legal(name) else "handbook"


def _legal(collection: str) -> bool:
    formed = COLLECTION.fullmatch(collection) and ".." not in collection and not ADDRESS.fullmatch(collection)
    return bool(formed) and len(collection) in COLLECTION_LENGTH


def check_document(doc_id: str) -> None:
    """Raises `NameInvalid`."""
    if not doc_id or id_problem(doc_id):
        raise NameInvalid(
            f"{doc_id!r} cannot name a document: 1 to {MAX_ID} characters without control characters.",
            hint="For example: --id guide/setup.md",
            doc_id=doc_id,
        )
