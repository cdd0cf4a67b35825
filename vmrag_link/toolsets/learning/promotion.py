"""Promote a finding to a learning, with its evidence if there is any."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from vmrag_link import clock
from vmrag_link.errors import DocumentMissing, ValidationMissing, ValidationTooLow
from vmrag_link.models import LEARNINGS, LONGEST_TEXT, At, Document, Record, parse_metadata
from vmrag_link.ops.stores import stores
from vmrag_link.ops.stores.stores import build_document, update_metadata
from vmrag_link.toolsets.learning import evidence_records as evidence
from vmrag_link.toolsets.learning.evidence_records import split_names
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import writing
from vmrag_link.workspace.documents.collections import find_exact
from vmrag_link.workspace.documents.writing import Planned, WriteResult

if TYPE_CHECKING:
    from vmrag_link.workspace import DocumentStore

CONTEXT = ("code_context", "diff_summary", "tool_sequence", "modification_type")
"""Keys that a learning copies from its chat."""


class PromotionRequest(Record, frozen=True):
    description: Annotated[str, Meta(description="what was learnt", max_length=LONGEST_TEXT)]
    pattern: Annotated[str, Meta(description="pattern to apply again", max_length=LONGEST_TEXT)] = ""
    code_ref: Annotated[str, Meta(description="place in code, as path:commit:line")] = ""
    tags: evidence.Names = ()
    confidence: Annotated[float, Meta(description="confidence", ge=0, le=1)] = 0.5
    source_chat_id: Annotated[str, Meta(description="id of the chat")] = ""
    collection_name: evidence.StoredIn = LEARNINGS
    chat_collection_name: Annotated[str, Meta(description="collection of the chat")] = stores.CHATS
    include_chat_context: Annotated[bool, Meta(description="also store the chat's context")] = False
    require_validation: Annotated[bool, Meta(description="refuse a lower score, or none")] = False
    validation_evidence_id: Annotated[str, Meta(description="id of the evidence")] = ""
    validation_score: Annotated[float | None, Meta(description="score without evidence", ge=0, le=1)] = None
    validation_threshold: evidence.Share = evidence.THRESHOLD


class Validation(Record, frozen=True):
    """The validation of a learning. `evidence_id` is None for a given score."""

    score: float
    evidence_id: str | None
    meets_threshold: bool
    evidence_types: list[str]


class PromotionReport(Record, frozen=True):
    """A stored learning. `validation` is None without evidence and score."""

    learning_id: str
    collection_name: str
    validation: Validation | None
    source_chat_updated: bool


def store_learning(ws: Workspace, request: PromotionRequest) -> WriteResult[PromotionReport]:
    """Store a learning, and record in its chat that it was promoted; both or neither.

    Evidence has priority over a given score. Raises `ValidationMissing`, `ValidationTooLow`,
    `DocumentMissing` for a missing chat or evidence, and the errors of `stores.find_or_define`,
    `stores.prepare_write` and `write_rows`.
    """
    doc_id = evidence.create_id()

    store = stores.find_tools_store(ws, request.collection_name, request.chat_collection_name)

    def plan_promotion(at: At) -> Planned[PromotionReport]:
        validation = _find_validation(store, at, request)
        chat = _find_chat(store, at, request) if request.source_chat_id else None
        collection, new = stores.find_or_define(store, at, request.collection_name)
        learning = build_document(
            collection.name, doc_id, request.description, _build_metadata(request, validation, chat)
        )
        puts = [stores.CollectionPut(collection, new, [learning])]
        if chat:
            promoted = update_metadata(chat, status="promoted", derived_learning_id=doc_id)
            chats, new = stores.find_or_define(store, at, request.chat_collection_name)
            puts.append(stores.CollectionPut(chats, new, [promoted]))
        report = PromotionReport(doc_id, collection.name, validation, source_chat_updated=chat is not None)
        return Planned(stores.prepare_write(store, puts), report)

    return writing.write_rows(store, plan_promotion, "promote a learning")


def _find_validation(store: DocumentStore, at: At, request: PromotionRequest) -> Validation | None:
    """Return the validation.

    Raises `DocumentMissing`, `ValidationMissing` and `ValidationTooLow`.
    """
    threshold = request.validation_threshold
    evidence_id = request.validation_evidence_id
    if evidence_id:
        items = evidence.find_evidence(store, at, [evidence_id])[evidence_id]
        validation = Validation(items.score, evidence_id, items.score >= threshold, items.types)
    elif request.validation_score is not None:
        validation = Validation(request.validation_score, None, request.validation_score >= threshold, [])
    elif request.require_validation:
        raise ValidationMissing(
            "a validation is required, but neither evidence nor a score is given.",
            hint="run 'vmrag learning validate-evidence' to get an id for --validation-evidence-id",
        )
    else:
        return None
    if request.require_validation and not validation.meets_threshold:
        raise ValidationTooLow(
            f"the validation's score is {validation.score:g}, and {threshold:g} is required.",
            hint="gather more evidence, or promote without --require-validation",
            score=validation.score,
            threshold=threshold,
        )
    return validation


def _find_chat(store: DocumentStore, at: At, request: PromotionRequest) -> Document:
    """Return the chat. Raises `DocumentMissing`."""
    collection = find_exact(store, at, request.chat_collection_name)
    chat = store.engine.find_document(at, collection.name, request.source_chat_id) if collection else None
    if chat is None:
        raise DocumentMissing(
            f"the collection {request.chat_collection_name!r} has no chat {request.source_chat_id!r}.",
            hint=f"run 'vmrag list --collection {stores.CHATS}' to list its documents",
            doc_id=request.source_chat_id,
            collection_name=request.chat_collection_name,
        )
    return chat


def _build_metadata(
    request: PromotionRequest, validation: Validation | None, chat: Document | None
) -> dict[str, object]:
    """Return the metadata without unknown values."""
    metadata: dict[str, object] = {
        "pattern": request.pattern,
        "code_ref": request.code_ref,
        "tags": split_names(request.tags),
        "source_chat_id": request.source_chat_id,
    }
    if validation:
        metadata["validation_evidence_id"] = validation.evidence_id
        metadata["evidence_types"] = validation.evidence_types
    if chat and request.include_chat_context:
        before = parse_metadata(chat)
        metadata |= {name: before[name] for name in CONTEXT if name in before}
    score = {"validation_score": validation.score} if validation else {}
    stated = {name: value for name, value in metadata.items() if value}
    return {"confidence": request.confidence, "timestamp": clock.now()} | stated | score
