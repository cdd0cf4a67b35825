"""Documents: looking at them, asking for what is near, adding, changing and deleting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET

from vmrag_link.documents.origin import without_origin
from vmrag_link.errors import LengthMismatch, UsageInvalid, plural
from vmrag_link.index.metadata import chunk_id
from vmrag_link.ops.documents import document_pages
from vmrag_link.ops.documents.document_pages import DocumentPage, PageRequest
from vmrag_link.ops.documents.document_selection import Selection
from vmrag_link.ops.documents.drafts import New, new_documents
from vmrag_link.ops.documents.put import PutCounts, PutRequest, put
from vmrag_link.ops.documents.remove import remove
from vmrag_link.ops.documents.update import DocumentUpdate, UpdateCounts, update
from vmrag_link.ops.documents.writing import Landed
from vmrag_link.ops.index import similar
from vmrag_link.ops.index.passages import PassagePlace
from vmrag_link.ops.index.similar import SimilarReport
from vmrag_link.ops.system import stores
from vmrag_link.retrieval.query import Hit, Near, distance
from vmrag_mcp.arguments import Given
from vmrag_mcp.registry import tool
from vmrag_mcp.results.documents import (
    ChromaAddDocumentsResult,
    ChromaDeleteDocumentsResult,
    ChromaGetDocumentsResult,
    ChromaPeekCollectionResult,
    ChromaQueryDocumentsResult,
    ChromaUpdateDocumentsResult,
    FoundDocument,
    PeekedDocument,
    QueryMatch,
    QueryMatches,
)
from vmrag_mcp.session import Call
from vmrag_mcp.tools import outcome

PEEKED = 500
"""Characters of a text in a glance at a collection."""

LISTED = 2000
"""Characters of a text in an answer that lists several."""

Texts = Annotated[list[str], Given(least=1, full=True)]
Ids = Annotated[list[str] | None, Given("of documents or chunks")]
Filter = Annotated[dict[str, Any] | None, Given('on metadata, e.g. {"team": "core", "year": {"$gte": 2024}}')]
TextFilter = Annotated[dict[str, Any] | None, Given('on texts, e.g. {"$contains": "TLS"}')]
Parts = list[Literal["documents", "metadatas", "embeddings", "ids"]]
MatchPart = Literal["documents", "metadatas", "distances", "embeddings", "provenance"]


@tool("R", of_files=True, includes=("chroma_get_documents",))
def chroma_peek_collection(
    call: Call, *, collection_name: str, limit: Annotated[int, Given(low=1, high=20, clamped=True)] = 5
) -> ChromaPeekCollectionResult:
    """Look at the first documents of a collection, cut to 500 characters: what they are like,
    and which metadata filters can use.
    """
    page = paged(call, collection_name, Selection(), PageRequest(limit=limit))
    cut = [(each.text or "")[:PEEKED] for each in page.items]
    return ChromaPeekCollectionResult(
        collection_name=page.collection.name,
        documents=[
            PeekedDocument(each.name, text, each.metadata, truncated=len(each.text or "") > PEEKED)
            for each, text in zip(page.items, cut, strict=True)
        ],
        total_in_collection=page.total,
        limit=limit,
        message=f"{len(page.items)} of {page.total} documents in {page.collection.name!r}.",
    )


@tool("R", of_files=True)
def chroma_query_documents(
    call: Call,
    *,
    query_texts: Texts,
    collection_name: Annotated[str | None, Given("left out: all")] = None,
    n_results: Annotated[int, Given(low=1, high=100, clamped=True)] = 5,
    where: Filter = None,
    where_document: TextFilter = None,
    include: Annotated[list[MatchPart], Given("provenance: table and hash of the document")] = (  # type: ignore[assignment]
        "documents",
        "metadatas",
        "distances",
    ),
) -> ChromaQueryDocumentsResult:
    """Search by meaning, before you answer a question about the project: the nearest chunks of
    documents to each text, best first. Without collection_name all collections are searched.
    Uncommitted documents are found, too.
    """
    report = similar.similar(
        call.ws if collection_name is None else call.readable(collection_name),
        collection_name,
        query_texts,
        k=n_results,
        where=where,
        where_document=where_document,
        embeddings="embeddings" in include,
    )
    call.stands(report.standing)
    call.quotes((each.hit.collection, each.hit.doc_id) for found in report.matches for each in found)
    everywhere = collection_name is None
    results = [
        QueryMatches(
            text, [_match(each, report, include, named=everywhere) for each in zip(found, places, strict=True)]
        )
        for text, found, places in zip(query_texts, report.matches, report.places, strict=True)
    ]
    results = _that_fit(call, results)
    shown_matches = [found[: len(each.matches)] for each, found in zip(results, report.matches, strict=False)]
    distances = [[_distance(each, report) for each in found] for found in shown_matches]
    names = [*report.collections]
    where_found = plural(len(names), "collection") if everywhere else repr(names[0])
    return ChromaQueryDocumentsResult(
        collection_name=None if everywhere else names[0],
        results=results,
        ids=[[shown(each.hit) for each in found] for found in shown_matches],
        distances=distances if "distances" in include else UNSET,
        message=f"{plural(sum(map(len, report.matches)), 'match')} in {where_found}.",
    )


def _that_fit(call: Call, results: list[QueryMatches]) -> list[QueryMatches]:
    """As many texts, with as many of their matches, as an answer holds; one match at least."""
    room = call.behaviour.page_chars
    kept: list[QueryMatches] = []
    for text in results:
        matches: list[QueryMatch] = []
        for each in text.matches:
            room -= len(msgspec.json.encode(each).decode())
            if room < 0 and (kept or matches):
                break
            matches.append(each)
        if matches or not text.matches:
            kept.append(QueryMatches(text.query, matches))
        if len(matches) < len(text.matches):
            break
    if left := sum(len(each.matches) for each in results) - sum(len(each.matches) for each in kept):
        texts = f" and {plural(len(results) - len(kept), 'text')}" * (len(kept) < len(results))
        call.warn(
            "LEFT_OUT",
            f"The answer would be longer than {call.behaviour.page_chars:,} characters (mcp.page_chars); left out: "
            f"{plural(left, 'match')}{texts}. Fewer texts at a time, or a smaller n_results, show them.",
        )
    return kept


def _distance(near: Near, report: SimilarReport) -> float:
    return distance(report.collections[near.hit.collection].distance, near.cosine)


def _match(
    found: tuple[Near, PassagePlace | None], report: SimilarReport, include: Sequence[str], *, named: bool
) -> QueryMatch:
    near, place = found
    hit = near.hit
    texts, distances = "documents" in include, "distances" in include
    about = hit.placed_metadata if "provenance" in include else hit.shown_metadata
    return QueryMatch(
        id=shown(hit),
        collection=hit.collection if named else UNSET,
        document=hit.text[:LISTED] if texts else UNSET,
        truncated=True if texts and len(hit.text) > LISTED else UNSET,
        metadata=without_origin(about) if "metadatas" in include else UNSET,
        distance=_distance(near, report) if distances else UNSET,
        similarity=near.similarity if distances else UNSET,
        embedding=report.embeddings[hit.collection, chunk_id(hit.doc_id, hit.chunk)]
        if "embeddings" in include
        else UNSET,
        path=place.path if place else UNSET,
        lines=list(place.lines) if place and place.lines else UNSET,
        symbol=(place.symbol if place else "") or UNSET,
        heading=(place.heading if place else "") or UNSET,
        uncommitted=(place.uncommitted if place else "") or UNSET,
    )


def shown(hit: Hit) -> str:
    """A chunk's id as clients see it: its document's, where that has no other."""
    return hit.doc_id if hit.chunks == 1 else chunk_id(hit.doc_id, hit.chunk)


@tool("R", of_files=True)
def chroma_get_documents(
    call: Call,
    *,
    collection_name: str,
    ids: Ids = None,
    where: Filter = None,
    where_document: TextFilter = None,
    include: Parts = ("documents", "metadatas"),  # type: ignore[assignment]
    limit: Annotated[int, Given(low=1, high=1000, clamped=True)] = 100,
    offset: Annotated[int, Given(low=0)] = 0,
) -> ChromaGetDocumentsResult:
    """Get whole documents by ids or filters, or page through a collection: to read on after a
    search, or to list what has some metadata.
    """
    wanted = PageRequest(limit, offset, call.behaviour.page_chars, "documents" in include, "embeddings" in include)
    page = paged(call, collection_name, Selection(ids, where, where_document), wanted)
    rows = [
        FoundDocument(
            id=each.name,
            document=each.text or "" if "documents" in include else UNSET,
            metadata=each.metadata if "metadatas" in include else UNSET,
            embedding=each.embeddings or [] if "embeddings" in include else UNSET,
        )
        for each in page.items
    ]
    return ChromaGetDocumentsResult(
        collection_name=page.collection.name,
        documents=rows,
        total_matching=page.total,
        has_more=page.more(offset),
        missing_ids=page.missing,
        message=told(page, offset),
    )


def paged(call: Call, name: str, selection: Selection, wanted: PageRequest) -> DocumentPage:
    """For all tools that get documents."""
    page = document_pages.get(call.readable(name), name, selection, wanted)
    call.stands(page.standing)
    call.quotes((page.collection.name, each.doc_id) for each in page.items)
    return page


def told(page: DocumentPage, offset: int) -> str:
    """What a page says of itself."""
    count = f"{len(page.items)} of {page.total} documents"
    if not page.more(offset):
        return f"{count}."
    why = "; the texts of more would not fit into one answer" if page.cut else ""
    return f"{count}{why}; more with offset={offset + len(page.items)}."


@tool("W")
def chroma_add_documents(
    call: Call,
    *,
    collection_name: str,
    documents: Texts,
    ids: list[str] | None = None,
    metadatas: Annotated[list[dict[str, Any]] | None, Given('e.g. [{"team": "core", "year": 2025}]')] = None,
) -> ChromaAddDocumentsResult:
    """Write down what should be known later: adds documents to a collection, all or none;
    queries find them at once. Keep them with dolt_commit.
    """
    _same_length(documents=documents, ids=ids, metadatas=metadatas)
    new = [
        New(text, ids[number] if ids else None, metadatas[number] if metadatas else {})
        for number, text in enumerate(documents)
    ]
    ids, done = added(call, collection_name, new)
    name = done.report.collection
    return ChromaAddDocumentsResult(
        collection_name=name,
        documents_added=len(ids),
        ids=ids,
        chunks_created=done.chunks,
        message=f"{plural(len(ids), 'document')} added to {name!r}{call.tail('dolt_commit keeps them')}.",
    )


def added(call: Call, name: str, new: Sequence[New], *, follow: bool = True) -> tuple[list[str], Landed[PutCounts]]:
    """For all tools that add: the ids of what is new now, in the order given."""
    stores.require_versioned(call.ws, name, [each.doc_id for each in new if each.doc_id])
    documents = new_documents(new)
    done = put(call.ws, PutRequest(name, documents, embed_first=follow, follow=follow))
    call.pending(done.pending)
    return [each.doc_id for each in documents], done


@tool("W")
def chroma_update_documents(
    call: Call,
    *,
    collection_name: str,
    ids: Annotated[list[str], Given(least=1)],
    documents: Annotated[list[str | None] | None, Given("new texts; null leaves one as it is")] = None,
    metadatas: Annotated[list[dict[str, Any] | None] | None, Given("each replaces the old one")] = None,
    embeddings: list[list[float] | None] | None = None,
) -> ChromaUpdateDocumentsResult:
    """Correct documents instead of adding others that say otherwise: texts, metadata or both,
    all or none.
    """
    if documents is None and metadatas is None and embeddings is None:
        raise UsageInvalid(
            "Nothing says what is to change.",
            hint="Give documents, metadatas or embeddings.",
            parameter="documents",
        )
    _same_length(ids=ids, documents=documents, metadatas=metadatas, embeddings=embeddings)
    nothing = [None] * len(ids)
    changes = [
        DocumentUpdate(name, text, metadata, embedding)
        for name, text, metadata, embedding in zip(
            ids, documents or nothing, metadatas or nothing, embeddings or nothing, strict=True
        )
    ]
    report = updated(call, collection_name, changes)
    if any(embeddings or ()):
        call.warn("CUSTOM_EMBEDDING", "The embeddings are this machine's; building the index again replaces them.")
    unchanged = f", {len(report.unchanged)} were like that already." if report.unchanged else "."
    return ChromaUpdateDocumentsResult(
        collection_name=report.collection,
        documents_updated=len(report.ids),
        ids=report.ids,
        unchanged_ids=report.unchanged,
        message=f"{plural(len(report.ids), 'document')} changed in {report.collection!r}{unchanged}",
    )


def updated(call: Call, name: str, changes: Sequence[DocumentUpdate]) -> UpdateCounts:
    """For all tools that change documents."""
    stores.require_versioned(call.ws, name, [each.name for each in changes])
    done = update(call.ws, name, changes)
    call.pending(done.pending)
    return done.report


@tool("WD")
def chroma_delete_documents(
    call: Call, *, collection_name: str, ids: Ids = None, where: Filter = None, where_document: TextFilter = None
) -> ChromaDeleteDocumentsResult:
    """Delete documents that are wrong or outdated, by ids or filters; what is given must all
    hold.
    """
    stores.require_stored(call.ws, collection_name, ids or ())
    done = remove(call.store(collection_name), collection_name, Selection(ids, where, where_document))
    report = outcome.landed(call, done)
    missing = f"; {len(report.missing)} ids name nothing" if report.missing else ""
    return ChromaDeleteDocumentsResult(
        collection_name=report.collection,
        documents_deleted=len(report.ids),
        ids_deleted=report.ids,
        missing_ids=report.missing,
        message=f"{plural(len(report.ids), 'document')} deleted from {report.collection!r}{missing}.",
    )


def _same_length(**lists: Sequence[Any] | None) -> None:
    lengths = {name: len(each) for name, each in lists.items() if each is not None}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{name} has {count}" for name, count in lengths.items())
        raise LengthMismatch(f"The lists must be equally long: {said}.", lengths=lengths)
