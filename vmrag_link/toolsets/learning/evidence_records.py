"""Evidence as documents. Each record says which items it counts, and what each is worth.

A record of one test, error or check has one item, itself; one of a whole run, or of a validation,
has those of its parts. So an item that comes twice counts once.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

import msgspec

from vmrag_link import clock
from vmrag_link.errors import DocumentMissing
from vmrag_link.models import SYSTEM, At, Document, Record, metadata_of
from vmrag_link.ops.system.collections import EVIDENCE, TEST_RESULTS, entry
from vmrag_link.toolsets.learning.evidence import score
from vmrag_link.workspace import DocumentStore

EvidenceType = Literal["test_transition", "runtime_error_resolution", "code_quality_improvement"]

_Weight = Annotated[float, msgspec.Meta(ge=0, le=1)]


class EvidenceItem(Record, frozen=True):
    """`id`: of the record that it is about, or of what a file says. `weight`: 0 to 1."""

    id: str
    type: EvidenceType
    weight: _Weight


class Evidence(Record, frozen=True):
    """What counts together. `regressions`: the ids of tests that passed before."""

    items: tuple[EvidenceItem, ...] = ()
    regressions: tuple[str, ...] = ()

    @property
    def score(self) -> float:
        return score.combined((each.weight for each in self.items), len(self.regressions))

    @property
    def types(self) -> list[str]:
        return sorted({each.type for each in self.items})


def together(parts: Iterable[Evidence]) -> Evidence:
    """All parts as one, each item and regression once."""
    items: dict[str, EvidenceItem] = {}
    regressions: set[str] = set()
    for part in parts:
        items |= {each.id: each for each in part.items}
        regressions.update(part.regressions)
    return Evidence(tuple(items.values()), tuple(sorted(regressions)))


def new_id() -> str:
    return str(uuid.uuid4())


def record(collection: str, doc_id: str, text: str, kind: str, found: Evidence, **more: Any) -> Document:
    """A row to store. `more`: keys of its metadata that are its kind's own."""
    return entry(
        collection,
        doc_id,
        text,
        {"evidence_type": kind, "score": found.score, "timestamp": clock.now(), **msgspec.to_builtins(found), **more},
    )


def look_up(store: DocumentStore, at: At, ids: Sequence[str]) -> dict[str, Evidence]:
    """What these records count, wherever they were written down. Raises `DocumentMissing`."""
    found: dict[str, Evidence] = {}
    names = [
        each.name
        for each in store.engine.collections(at)
        if each.kind == SYSTEM or each.name in (EVIDENCE, TEST_RESULTS)
    ]
    for name in names if ids else ():
        for document in store.engine.documents(at, collection=name, ids=ids):
            if (evidence := _parse(document)) is not None:
                found[document.doc_id] = evidence
    if missing := [each for each in dict.fromkeys(ids) if each not in found]:
        shown = ", ".join(map(repr, missing[:3])) + (" …" if missing[3:] else "")
        raise DocumentMissing(
            f"There is no evidence with the id {shown}.",
            hint=f"vmrag list --collection {EVIDENCE} shows what there is; so does --collection {TEST_RESULTS}.",
            ids=missing,
        )
    return found


def _parse(document: Document) -> Evidence | None:
    """None for a document that is no evidence: any tool may add some."""
    metadata = metadata_of(document)
    if "evidence_type" not in metadata:
        return None
    try:
        return msgspec.convert(metadata, type=Evidence)
    except msgspec.ValidationError:
        return None
