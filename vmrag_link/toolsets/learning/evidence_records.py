"""Evidence as documents, and the names that its reports share.

A record has items with weights from 0 to 1.

The record of one test, error or check has one item, itself. The record of a run or of a validation
has the items of its parts. An item that occurs twice counts once. Items combine like independent
probabilities: 1 minus the product of the complements. One fixed test alone reaches the default
threshold of 0.7. Each regression takes 30 % away.
"""

from __future__ import annotations

import math
import os.path
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec

from vmrag_link import clock
from vmrag_link.errors import DocumentMissing
from vmrag_link.models import SYSTEM, At, Document, Record, parse_metadata
from vmrag_link.ops.stores import stores
from vmrag_link.ops.stores.stores import EVIDENCE, TEST_RESULTS, build_document
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import writing
from vmrag_link.workspace.documents.writing import Planned, WriteResult

if TYPE_CHECKING:
    from vmrag_link.workspace import DocumentStore

R = TypeVar("R")

FIXED = 0.7
"""Weight of a test that failed or had an error, and now passes."""

VERIFIED = 0.6
"""Weight of an error whose resolution was verified."""

UNVERIFIED = 0.2
"""Weight of an error with an unverified resolution."""

QUALITY = 0.4
"""Maximum weight of a check with fewer messages."""

FULL_PERCENT = 20
"""Decrease of a number of messages, in percent, for all of `QUALITY`."""

FULL_POINTS = 10
"""Increase of coverage, in points, for all of `QUALITY`."""

REGRESSION = 0.7
"""Factor for each regression."""

THRESHOLD = 0.7
"""Default of the required score."""

Share = Annotated[float, msgspec.Meta(description="lowest score that is enough", ge=0, le=1)]
StoredIn = Annotated[str, msgspec.Meta(description="collection that stores the result")]
Names = Annotated[Sequence[str], msgspec.Meta(description="list, or one text with commas")]

EvidenceType = Literal["test_transition", "runtime_error_resolution", "code_quality_improvement"]

_Weight = Annotated[float, msgspec.Meta(ge=0, le=1)]


def combine_weights(weights: Iterable[float], regressions: int) -> float:
    """Return the score of items, to 4 digits."""
    score = (1 - math.prod(1 - weight for weight in weights)) * REGRESSION**regressions
    return round(score, 4)


def weigh_resolution(text: str, *, verified: bool) -> float:
    """Return the weight of an error with this resolution."""
    if not text.strip():
        return 0.0
    return VERIFIED if verified else UNVERIFIED


def weigh_transition(before: str, after: str) -> float:
    return FIXED if before in ("fail", "error") and after == "pass" else 0.0


def weigh_check(improvement: float | None, *, points: bool) -> float:
    """Return the weight of a check.

    `improvement` is in percent, or in `points` of coverage; None: unknown.
    """
    share = (improvement or 0) / (FULL_POINTS if points else FULL_PERCENT)
    return round(QUALITY * min(1.0, max(0.0, share)), 4)


def compute_improvement(before: float, after: float, *, points: bool) -> float:
    """Return the improvement, in percent of `before`, or in points if a larger value is better."""
    if points:
        return round(after - before, 2)
    if not before:
        return -100.0 if after else 0.0
    return round(100 * (before - after) / before, 2)


class EvidenceItem(Record, frozen=True):
    """A piece of evidence.

    `id` is the id of its record or in its file. `weight` is between 0 and 1.
    """

    id: str
    type: EvidenceType
    weight: _Weight


class Evidence(Record, frozen=True):
    """Evidence with one score. `regressions` are ids of tests that passed before."""

    items: tuple[EvidenceItem, ...] = ()
    regressions: tuple[str, ...] = ()

    @property
    def score(self) -> float:
        return combine_weights((item.weight for item in self.items), len(self.regressions))

    @property
    def types(self) -> list[str]:
        return sorted({item.type for item in self.items})


def merge_evidence(parts: Iterable[Evidence]) -> Evidence:
    """Return all evidence as one, without duplicate items and regressions."""
    items: dict[str, EvidenceItem] = {}
    regressions: set[str] = set()
    for part in parts:
        items |= {item.id: item for item in part.items}
        regressions.update(part.regressions)
    return Evidence(tuple(items.values()), tuple(sorted(regressions)))


def create_id() -> str:
    return str(uuid.uuid4())


def build_record(collection: str, doc_id: str, text: str, kind: str, items: Evidence, **more: Any) -> Document:
    """Return a document to store. `more` are keys of the metadata for its kind."""
    return build_document(
        collection,
        doc_id,
        text,
        {"evidence_type": kind, "score": items.score, "timestamp": clock.now(), **msgspec.to_builtins(items), **more},
    )


def store_records(
    ws: Workspace, name: str, rows: Callable[[str], list[Document]], report: R, purpose: str
) -> WriteResult[R]:
    """Store the documents that `rows` returns for a collection, which is created if it is missing.

    Raises the errors of `stores.find_or_define`, `stores.prepare_write` and `write_rows`.
    """
    store = stores.find_tools_store(ws, name)

    def plan_record(at: At) -> Planned[R]:
        collection, new = stores.find_or_define(store, at, name)
        put = stores.CollectionPut(collection, new, rows(collection.name))
        return Planned(stores.prepare_write(store, [put]), report)

    return writing.write_rows(store, plan_record, purpose)


def find_evidence(store: DocumentStore, at: At, ids: Sequence[str]) -> dict[str, Evidence]:
    """Return the evidence of these records, in any store. Raises `DocumentMissing`."""
    evidence_by_id: dict[str, Evidence] = {}
    names = [
        collection.name
        for collection in store.engine.list_collections(at)
        if collection.kind == SYSTEM or collection.name in (EVIDENCE, TEST_RESULTS)
    ]
    for name in names if ids else ():
        for document in store.engine.read_documents(at, collection=name, ids=ids):
            if (evidence := _parse_evidence(document)) is not None:
                evidence_by_id[document.doc_id] = evidence
    if missing := [identifier for identifier in dict.fromkeys(ids) if identifier not in evidence_by_id]:
        missing_names = ", ".join(map(repr, missing[:3])) + (" …" if missing[3:] else "")
        raise DocumentMissing(
            f"no evidence has the id {missing_names}.",
            hint=f"run 'vmrag list --collection {EVIDENCE}', or 'vmrag list --collection {TEST_RESULTS}', to list the ids",
            ids=missing,
        )
    return evidence_by_id


def _parse_evidence(document: Document) -> Evidence | None:
    """Return the evidence of a document; None for another document, which any tool can add."""
    metadata = parse_metadata(document)
    if "evidence_type" not in metadata:
        return None
    try:
        return msgspec.convert(metadata, type=Evidence)
    except msgspec.ValidationError:
        return None


def split_names(texts: Iterable[str]) -> list[str]:
    """Return the distinct names. An element can contain several, separated by commas."""
    parts = (part.strip() for text in texts for part in text.split(","))
    return [*dict.fromkeys(part for part in parts if part)]


def format_path(name: str, top: Path) -> str:
    """Return a file's path relative to the top of the work tree, or the path itself for other
    files.
    """
    path = Path(os.path.normpath(name))
    return path.relative_to(top).as_posix() if path.is_relative_to(top) else path.as_posix()
