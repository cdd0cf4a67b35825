"""Names of collections and documents: what is allowed."""

from __future__ import annotations

import re

from vmrag_link.documents.import_base import MAX_ID, id_problem
from vmrag_link.errors import NameInvalid
from vmrag_link.settings_flaws import is_collection_name


def check(collection: str, *, option: str = "--collection") -> None:
    """`option`: what the hint calls it. Raises `NameInvalid`."""
    if not is_collection_name(collection):
        raise NameInvalid(
            f"{collection!r} cannot name a collection: 2 to 255 letters, digits, '.', '_' or '-', "
            "with a letter or digit at both ends.",
            hint=f"For example: {option} {similar(collection)}",
            collection_name=collection,
        )


def similar(text: str) -> str:
    """A name that a collection can have, made of a text."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("._-")
    return name if is_collection_name(name) else "handbook"


def check_document(doc_id: str) -> None:
    """Raises `NameInvalid`."""
    if not doc_id or id_problem(doc_id):
        raise NameInvalid(
            f"{doc_id!r} cannot name a document: 1 to {MAX_ID} characters without control characters.",
            hint="For example: --id guide/setup.md",
            doc_id=doc_id,
        )
