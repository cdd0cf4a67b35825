"""The tools for documents: list, read, search, add, change and delete them.

The functions without `@tool` and without an underscore also serve the tools of other toolsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET

from vmrag_link.documents.library_origin import remove_origin
from vmrag_link.errors import LengthMismatch, UsageInvalid, plural
from vmrag_link.index.metadata import chunk_id
from vmrag_link.models import LONGEST_QUERY, LONGEST_TEXT
from vmrag_link.ops.query import similar
from vmrag_link.ops.query.packed_answer import PackRequest
from vmrag_link.ops.query.similar import SimilarReport, SimilarRequest
from vmrag_link.ops.rm import Removal, remove_selected
from vmrag_link.ops.stores import stores
from vmrag_link.ops.update import DocumentUpdate, UpdateCounts, update_documents
from vmrag_link.retrieval.narrowing import Narrowing, make_narrowing
from vmrag_link.retrieval.narrowing_values import KINDS, LANGUAGES, parse_kind, parse_language
from vmrag_link.retrieval.query import (
    MAX_NEIGHBOURS,
    MAX_PACKED_HITS,
    MIN_BUDGET_TOKENS,
    Mode,
    to_distance,
    to_similarity,
)
from vmrag_link.workspace.answers.packing import BYTES_PER_TOKEN, Packed, PackedPassage
from vmrag_link.workspace.documents import document_selection
from vmrag_link.workspace.documents.document_selection import DocumentPage, PageRequest, Selection
from vmrag_link.workspace.documents.drafts import NewDocument, new_documents
from vmrag_link.workspace.documents.import_reports import PutCounts
from vmrag_link.workspace.documents.put import PutRequest, put_documents
from vmrag_link.workspace.documents.writing import WriteResult
from vmrag_mcp.arguments import DOCUMENTS, FILTER, TEXT_FILTER, CollectionName, Given, Offset
from vmrag_mcp.call import Call
from vmrag_mcp.registry import tool
from vmrag_mcp.results import ToolAnswer
from vmrag_mcp.tools import document_results as answers
from vmrag_mcp.tools import outcome

MAX_PEEK_CHARACTERS = 500
"""Maximum length of each text in a glance at a collection."""

MAX_MATCH_CHARACTERS = 2000
"""Maximum length of each text in a list of matches."""

DEFAULT_RESULTS = 5
"""Default number of matches of a text."""

Queries = Annotated[
    list[str], Given("questions or words to search for", min_items=1, max_items=100, full=True, longest=LONGEST_QUERY)
]
Texts = Annotated[list[str], Given("texts of the documents", min_items=1, full=True, longest=LONGEST_TEXT)]
Ids = Annotated[list[str] | None, Given("ids of documents or chunks")]
Parts = Annotated[list[Literal["documents", "metadatas", "embeddings", "ids"]], Given("parts to return")]
Filter = Annotated[dict[str, Any] | None, FILTER]
TextFilter = Annotated[dict[str, Any] | None, TEXT_FILTER]
MatchPart = Literal["documents", "metadatas", "distances", "embeddings", "provenance"]
Ranked = Literal["hybrid", "vector", "keyword"]


@tool("R", reads_files=True, includes=("chroma_get_documents",))
def chroma_peek_collection(
    call: Call,
    *,
    collection_name: CollectionName,
    limit: Annotated[int, Given(DOCUMENTS, low=1, high=20, clamped=True)] = 5,
) -> answers.ChromaPeekCollectionResult:
    """Show the first documents of a collection, cut to 500 characters, with the metadata that
    filters can use.
    """
    page = read_page(call, collection_name, Selection(), PageRequest(limit=limit))
    texts = [item.text or "" for item in page.items]
    return answers.ChromaPeekCollectionResult(
        collection_name=page.collection.name,
        documents=[
            answers.PeekedDocument(
                item.name, text[:MAX_PEEK_CHARACTERS], item.metadata, truncated=len(text) > MAX_PEEK_CHARACTERS
            )
            for item, text in zip(page.items, texts, strict=True)
        ],
        total_in_collection=page.total,
        limit=limit,
        message=f"{len(page.items)} of {page.total} documents in {page.collection.name!r}.",
    )


@tool("R", reads_files=True)
def chroma_query_documents(
    call: Call,
    *,
    query_texts: Queries,
    collection_name: Annotated[str | None, Given("collection; default: all")] = None,
    n_results: Annotated[
        int | None, Given("maximum number of matches for each text", low=1, high=100, clamped=True, omitted=None)
    ] = DEFAULT_RESULTS,
    mode: Annotated[
        Ranked | None, Given("ranking; default: from the settings, vector in a named stored collection")
    ] = None,
    path: Annotated[list[str] | None, Given("parts of paths or globs such as src/auth or *.md")] = None,
    lang: Annotated[list[str] | None, Given("languages such as python", choices=LANGUAGES, read=parse_language)] = None,
    symbol: Annotated[list[str] | None, Given("names of definitions such as Session.refresh")] = None,
    kind: Annotated[list[str] | None, Given("kinds such as code or function", choices=KINDS, read=parse_kind)] = None,
    max_tokens: Annotated[
        int | None,
        Given("size of the answer; whole passages replace chunks", low=MIN_BUDGET_TOKENS, high=100_000, clamped=True),
    ] = None,
    neighbours: Annotated[
        int, Given("chunks to add around each match", low=0, high=MAX_NEIGHBOURS, clamped=True, aliases=("neighbors",))
    ] = 0,
    where: Filter = None,
    where_document: TextFilter = None,
    include: Annotated[list[MatchPart], Given("parts to return; provenance: table and hash")] = (  # type: ignore[assignment]
        "documents",
        "metadatas",
        "distances",
    ),
) -> answers.ChromaQueryDocumentsResult:
    """Search documentation, code and stored documents by meaning and words. Call it before you
    answer about the project or edit it. symbol finds definitions. max_tokens returns whole passages
    with path and lines. Uncommitted changes are included.
    """
    pack = _request_passages(call, max_tokens, neighbours)
    narrowing = make_narrowing(paths=path or (), languages=lang or (), symbols=symbol or (), kinds=kind or ())
    report = similar.find_similar(
        call.ws if collection_name is None else stores.find_readable(call.ws, collection_name),
        collection_name,
        query_texts,
        SimilarRequest(
            k=n_results or (MAX_PACKED_HITS if max_tokens else DEFAULT_RESULTS),
            mode=Mode(mode) if mode else None,
            where=where,
            where_document=where_document,
            narrowing=narrowing,
            embeddings="embeddings" in include and pack is None,
            pack=pack,
        ),
    )
    call.set_origin(report.origin)
    name = None if collection_name is None else next(iter(report.collections))
    scope = _describe_scope(report, name, narrowing)
    if report.packed:
        return _build_passages_result(call, report, report.packed, name=name, scope=scope)
    return _build_matches_result(call, report, query_texts, include, name=name, scope=scope)


def _request_passages(call: Call, max_tokens: int | None, neighbours: int) -> PackRequest | None:
    """Return the request for passages; None if the caller wants chunks.

    Neighbours are part of passages. A passage is never longer than an answer can be, because the
    best passage would otherwise be left out.
    """
    if max_tokens is None and not neighbours:
        return None
    room = call.behaviour.page_chars // BYTES_PER_TOKEN
    if max_tokens and max_tokens > room:
        call.warn(
            "IGNORED_SETTING",
            f"max_tokens can be at most {room:,} (mcp.page_chars); used {room:,} instead of {max_tokens:,}.",
        )
    return PackRequest(min(max_tokens or room, room), neighbours)


def _describe_scope(report: SimilarReport, name: str | None, narrowing: Narrowing | None) -> str:
    """Return what was searched, with the narrowing if it left no results."""
    scope = plural(len(report.collections), "collection") if name is None else repr(name)
    has_results = report.packed.passages if report.packed else any(report.matches)
    return f"{scope} with {narrowing.display_text}" if narrowing and not has_results else scope


def _build_passages_result(
    call: Call, report: SimilarReport, packed: Packed, *, name: str | None, scope: str
) -> answers.ChromaQueryDocumentsResult:
    call.add_quoted((passage.collection, passage.doc_id) for passage in packed.passages)
    more = f"; {plural(packed.left_out, 'match')} left out" if packed.left_out else ""
    return answers.ChromaQueryDocumentsResult(
        collection_name=name,
        mode=report.mode,
        results=[],
        ids=[],
        passages=[_build_passage(passage) for passage in packed.passages],
        tokens=packed.tokens,
        weak=True if all(report.weak) else UNSET,
        message=f"{plural(len(packed.passages), 'passage')} from {scope}, about {packed.tokens:,} tokens{more}.",
    )


def _build_passage(packed: PackedPassage) -> answers.QueryPassage:
    has_path = packed.path is not None
    return answers.QueryPassage(
        collection=packed.collection,
        path=packed.path if packed.path is not None else UNSET,
        lines=list(packed.lines) if packed.lines and has_path else UNSET,
        id=UNSET if has_path else packed.doc_id,
        symbol=packed.symbol or UNSET,
        signature=packed.signature or UNSET,
        heading=packed.heading or UNSET,
        commit=packed.commit[:7] if packed.commit else UNSET,
        revision=packed.revision[:7] if packed.revision else UNSET,
        uncommitted=packed.uncommitted or UNSET,
        outdated=packed.outdated or UNSET,
        also_in=list(packed.also_in) or UNSET,
        cut=packed.cut or UNSET,
        text=packed.text,
    )


def _build_matches_result(
    call: Call, report: SimilarReport, texts: Sequence[str], include: Sequence[str], *, name: str | None, scope: str
) -> answers.ChromaQueryDocumentsResult:
    call.add_quoted((match.collection, match.doc_id) for matches in report.matches for match in matches)
    results = _limit_matches(
        call,
        [
            answers.QueryMatches(
                text,
                [
                    _build_match(report, row, column, include, with_collection=name is None)
                    for column in range(len(hits))
                ],
                weak=True if report.weak[row] else UNSET,
            )
            for row, (text, hits) in enumerate(zip(texts, report.matches, strict=True))
        ],
    )
    with_distances = "distances" in include and report.cosines is not None
    return answers.ChromaQueryDocumentsResult(
        collection_name=name,
        mode=report.mode,
        results=results,
        ids=[[match.id for match in result.matches] for result in results],
        distances=[[match.distance for match in result.matches] for result in results] if with_distances else UNSET,  # type: ignore[misc]
        message=f"{plural(sum(map(len, report.matches)), 'match')} in {scope}.",
    )


def _limit_matches(call: Call, results: list[answers.QueryMatches]) -> list[answers.QueryMatches]:
    """Return as many texts and matches as fit into an answer, with at least one match."""
    remaining_characters = call.behaviour.page_chars
    fitting: list[answers.QueryMatches] = []
    for result in results:
        matches: list[answers.QueryMatch] = []
        for match in result.matches:
            remaining_characters -= len(msgspec.json.encode(match).decode())
            if remaining_characters < 0 and (fitting or matches):
                break
            matches.append(match)
        if matches or not result.matches:
            fitting.append(answers.QueryMatches(result.query, matches, result.weak))
        if len(matches) < len(result.matches):
            break
    left_out = sum(len(result.matches) for result in results) - sum(len(result.matches) for result in fitting)
    if left_out:
        texts = f" and {plural(len(results) - len(fitting), 'text')}" if len(fitting) < len(results) else ""
        call.warn(
            "LEFT_OUT",
            f"The answer would be longer than {call.behaviour.page_chars:,} characters (mcp.page_chars); left out: "
            f"{plural(left_out, 'match')}{texts}. Send fewer texts at a time, or a smaller n_results.",
        )
    return fitting


def _build_match(
    report: SimilarReport, row: int, column: int, include: Sequence[str], *, with_collection: bool
) -> answers.QueryMatch:
    """Return a match from the report: rows are texts, columns are their matches."""
    hit = report.matches[row][column]
    location = report.places[row][column]
    chunk = chunk_id(hit.doc_id, hit.chunk)
    with_text = "documents" in include
    cosine = report.cosines[row][column] if report.cosines and "distances" in include else None
    metadata = hit.placed_metadata if "provenance" in include else hit.shown_metadata
    return answers.QueryMatch(
        id=hit.doc_id if hit.chunks == 1 else chunk,
        collection=hit.collection if with_collection else UNSET,
        document=hit.text[:MAX_MATCH_CHARACTERS] if with_text else UNSET,
        truncated=True if with_text and len(hit.text) > MAX_MATCH_CHARACTERS else UNSET,
        metadata=remove_origin(metadata) if "metadatas" in include else UNSET,
        distance=UNSET if cosine is None else to_distance(report.collections[hit.collection].distance, cosine),
        similarity=UNSET if cosine is None else to_similarity(cosine),
        embedding=report.embeddings[hit.collection, chunk] if "embeddings" in include else UNSET,
        also_in=list(hit.also_in) or UNSET,
        **(msgspec.structs.asdict(location) if location else {}),
    )


@tool("R", reads_files=True)
def chroma_get_documents(
    call: Call,
    *,
    collection_name: CollectionName,
    ids: Ids = None,
    where: Filter = None,
    where_document: TextFilter = None,
    include: Parts = ("documents", "metadatas"),  # type: ignore[assignment]
    limit: Annotated[int, Given(DOCUMENTS, low=1, high=1000, clamped=True)] = 100,
    offset: Offset = 0,
) -> answers.ChromaGetDocumentsResult:
    """Read whole documents by ids or filters, or list a collection page by page."""
    request = PageRequest(limit, offset, call.behaviour.page_chars, "documents" in include, "embeddings" in include)
    page = read_page(call, collection_name, Selection(ids, where, where_document), request)
    rows = [
        answers.FoundDocument(
            id=item.name,
            document=item.text or "" if "documents" in include else UNSET,
            metadata=item.metadata if "metadatas" in include else UNSET,
            embedding=item.embeddings or [] if "embeddings" in include else UNSET,
        )
        for item in page.items
    ]
    return answers.ChromaGetDocumentsResult(
        collection_name=page.collection.name,
        documents=rows,
        total_matching=page.total,
        has_more=page.has_more(offset),
        missing_ids=page.missing,
        message=describe_page(page, offset),
    )


def read_page(call: Call, name: str, selection: Selection, request: PageRequest) -> DocumentPage:
    """Return a page of documents, for all tools that get documents."""
    page = document_selection.get_page(stores.find_readable(call.ws, name), name, selection, request)
    call.set_origin(page.origin)
    call.add_quoted((page.collection.name, item.doc_id) for item in page.items)
    return page


def describe_page(page: DocumentPage, offset: int) -> str:
    """Return the message about a page."""
    count = f"{len(page.items)} of {page.total} documents"
    if not page.has_more(offset):
        return f"{count}."
    reason = "; more texts would not fit into one answer" if page.cut else ""
    return f"{count}{reason}; more with offset={offset + len(page.items)}."


@tool("W", reads_files=True)
def chroma_add_documents(
    call: Call,
    *,
    collection_name: CollectionName,
    documents: Texts,
    ids: Annotated[list[str] | None, Given("ids of the texts; default: generated")] = None,
    metadatas: Annotated[list[dict[str, Any]] | None, Given('metadata of the texts such as [{"team": "core"}]')] = None,
) -> answers.ChromaAddDocumentsResult:
    """Store new documents in a collection, all or none. Searches find them at once. dolt_commit
    makes a revision of them.
    """
    _require_same_length(documents=documents, ids=ids, metadatas=metadatas)
    new = [
        NewDocument(text, ids[number] if ids else None, metadatas[number] if metadatas else {})
        for number, text in enumerate(documents)
    ]
    ids, result = store_documents(call, collection_name, new)
    name = result.report.collection
    return answers.ChromaAddDocumentsResult(
        collection_name=name,
        documents_added=len(ids),
        ids=ids,
        chunks_created=result.chunks,
        message=f"{plural(len(ids), 'document')} added to {name!r}{outcome.describe_commit(call, result, 'them')}.",
    )


def store_documents(
    call: Call, name: str, new: Sequence[NewDocument], *, follow: bool = True
) -> tuple[list[str], WriteResult[PutCounts]]:
    """Store new documents, for all tools that add.

    Returns their ids in the given order, and the result.
    """
    if not call.ws.sources.find_writable(name):
        stores.require_versioned(call.ws, name, [document.doc_id for document in new if document.doc_id])
    documents = new_documents(new)
    result = put_documents(call.ws, PutRequest(name, documents, embed_first=follow, follow=follow))
    outcome.warn_pending(call, result)
    return [document.doc_id for document in documents], result


@tool("WO", reads_files=True)
def chroma_update_documents(
    call: Call,
    *,
    collection_name: CollectionName,
    ids: Annotated[list[str], Given("ids of documents or chunks", min_items=1)],
    documents: Annotated[list[str | None] | None, Given("new texts; null keeps a text", longest=LONGEST_TEXT)] = None,
    metadatas: Annotated[
        list[dict[str, Any] | None] | None, Given("metadata that replaces the old metadata; null keeps it")
    ] = None,
    embeddings: Annotated[list[list[float] | None] | None, Given("vectors for the index of this machine")] = None,
) -> answers.ChromaUpdateDocumentsResult:
    """Change texts or metadata of stored documents, all or none. Correct a document instead of
    adding one that contradicts it.
    """
    if documents is None and metadatas is None and embeddings is None:
        raise UsageInvalid(
            "no changes are given.", hint="send documents, metadatas or embeddings", parameter="documents"
        )
    _require_same_length(ids=ids, documents=documents, metadatas=metadatas, embeddings=embeddings)
    nothing = [None] * len(ids)
    changes = [
        DocumentUpdate(name, text, metadata, embedding)
        for name, text, metadata, embedding in zip(
            ids, documents or nothing, metadatas or nothing, embeddings or nothing, strict=True
        )
    ]
    report = change_documents(call, collection_name, changes).report
    if any(embeddings or ()):
        call.warn(
            "CUSTOM_EMBEDDING",
            "The embeddings are only in the index of this machine; rebuilding the index replaces them.",
        )
    unchanged = f", {len(report.unchanged)} unchanged." if report.unchanged else "."
    return answers.ChromaUpdateDocumentsResult(
        collection_name=report.collection,
        documents_updated=len(report.ids),
        ids=report.ids,
        unchanged_ids=report.unchanged,
        message=f"{plural(len(report.ids), 'document')} changed in {report.collection!r}{unchanged}",
    )


def change_documents(call: Call, name: str, changes: Sequence[DocumentUpdate]) -> WriteResult[UpdateCounts]:
    """Change documents, for all tools that change documents."""
    if not call.ws.sources.find_writable(name):
        stores.require_versioned(call.ws, name, [change.name for change in changes])
    result = update_documents(call.ws, name, changes)
    outcome.warn_pending(call, result)
    return result


@tool("WD", reads_files=True)
def chroma_delete_documents(
    call: Call,
    *,
    collection_name: CollectionName,
    ids: Ids = None,
    where: Filter = None,
    where_document: TextFilter = None,
) -> ToolAnswer[Removal]:
    """Delete documents that are wrong or outdated, by ids or filters. Documents must match
    everything that is given.
    """
    if not call.ws.sources.find_writable(collection_name):
        stores.require_stored(call.ws, collection_name, ids or ())
    result = remove_selected(
        stores.find_store(call.ws, collection_name), collection_name, Selection(ids, where, where_document)
    )
    report = outcome.stored_report(call, result)
    missing = f"; {len(report.missing_ids)} ids not found" if report.missing_ids else ""
    count = plural(report.documents_deleted, "document")
    return ToolAnswer(report, message=f"{count} deleted from {report.collection_name!r}{missing}.")


def _require_same_length(**lists: Sequence[Any] | None) -> None:
    lengths = {name: len(values) for name, values in lists.items() if values is not None}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{name} has {count}" for name, count in lengths.items())
        raise LengthMismatch(f"the lists must have the same length: {counts}.", lengths=lengths)
