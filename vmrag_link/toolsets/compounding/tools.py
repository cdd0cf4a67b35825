"""Tools for documents of a project that are files of the work tree: activate, search,
ask, promote.
"""

from __future__ import annotations

from typing import Annotated

from vmrag_link.errors import ExternalDocsNotPromotable, ProjectInactive, plural
from vmrag_link.models import parse_metadata
from vmrag_link.retrieval.thresholds import SearchPurpose
from vmrag_link.toolsets.compounding import (
    activation,
    ask,
    external,
    mirror,
    promote,
    removal,
    results,
    retrieval,
    search,
)
from vmrag_link.toolsets.compounding.ask import CitedAnswer
from vmrag_link.toolsets.compounding.doc_types import Level
from vmrag_link.toolsets.compounding.documents import find_summary
from vmrag_link.toolsets.compounding.mirror import ActiveProject, MirrorResult
from vmrag_link.toolsets.compounding.project import CONFIG, DocsProject
from vmrag_link.toolsets.compounding.retrieval import AnswerRequest, Limit, Relevance, SearchRequest, Sources
from vmrag_mcp.arguments import Given, QueryText, fields_as_keywords
from vmrag_mcp.call import Call
from vmrag_mcp.registry import tool

Path = Annotated[str, Given("file in the project's folder of documents")]


@tool("W", idempotent=True, on_read_only=True)
def activate_project(
    call: Call,
    *,
    config_path: Annotated[str, Given(f"absolute path of {CONFIG}")],
    branch_name: Annotated[str, Given("git's current branch such as main")],
) -> results.ActivateProjectResult:
    """Activate a project, whose Markdown files with front matter the other tools of this toolset
    search. Indexes changed files. Call it first.
    """
    active = ActiveProject(config_path, read_only=call.read_only)
    result = activation.activate_project(call.ws, active, branch_name)
    call.state.toolset_values[__package__] = active
    call.set_origin(result.origin)
    _warn_pending(call, result.mirrored)
    if result.differs:
        call.warn("BRANCH_DIFFERS", result.differs)
    for note in result.notes:
        call.warn("IGNORED_SETTING", note)
    skipped = f"; {plural(len(result.mirrored.skipped), 'file')} skipped" if result.mirrored.skipped else ""
    return results.ActivateProjectResult(
        status="activated",
        project_name=result.project.name,
        branch_name=branch_name,
        path_hash=result.project.path_hash,
        doc_types=[results.DocTypeCount.from_report(count) for count in result.types],
        total_docs=result.total,
        skipped=list(result.mirrored.skipped),
        indexed=result.mirrored.indexed,
        removed=result.mirrored.removed,
        dolt_branch=result.origin.kb.branch,
        message=f"{result.project.name!r} is active, with {plural(result.total, 'document')}{skipped}.",
    )


@tool("RN", title="Answer question")
@fields_as_keywords
def rag_query(call: Call, request: AnswerRequest) -> results.RagQueryResult:
    """Answer a question from the project's documents, with citations. Without a language model,
    the answer quotes the nearest sentences.
    """
    project = _load_project(call)
    answered = ask.answer_question(call.ws, project, request)
    call.set_origin(answered.result.origin)
    _warn_answer(call, answered)
    return results.RagQueryResult(
        answer=answered.answer.text,
        sources=_list_sources(answered),
        linked_docs=[
            results.AnswerLink(
                search.shown_path(project.docs, linked.document.doc_id),
                linked.document.title,
                len(linked.document.content),
                search.shown_path(project.docs, linked.linked_from),
            )
            for linked in answered.result.linked
        ],
        synthesis=answered.answer.synthesis,
        model=answered.answer.model,
        message=_describe_answer(answered),
    )


@tool("R")
@fields_as_keywords
def semantic_search(call: Call, request: SearchRequest) -> results.SemanticSearchResult:
    """Find the project's documents that are nearest to a text, one result for each document."""
    result = retrieval.search_semantic(call.ws, _load_project(call), request)
    call.set_origin(result.origin)
    hits = []
    for document in result.documents:
        metadata = parse_metadata(document.document)
        date = metadata.get("date")
        hits.append(
            results.SemanticHit(
                path=document.path,
                title=document.document.title,
                summary=find_summary(document.document, metadata),
                char_count=len(document.document.content),
                relevance_score=document.match.score,
                doc_type=metadata["doc_type"],
                date=date if isinstance(date, str) else None,
                promotion_level=metadata["promotion_level"],
                best_chunk=results.BestChunk(document.headings, document.match.excerpt),
            )
        )
    return results.SemanticSearchResult(
        results=hits,
        total_matches=result.total,
        message=_count_documents(call, result.total, result.best, result.min_score),
    )


@tool("WO", idempotent=True)
def index_document(call: Call, *, path: Path) -> results.IndexDocumentResult:
    """Index one file of the project again, even if it did not change."""
    active, project = _update_active(call)
    place = ask.find_file(project, path)
    if place.external:
        indexed = external.index_file(call.ws, active, project, place.doc_id)
    else:
        result = mirror.index_file(call.ws, active, project, place.doc_id)
        call.warn_pending(result.pending)
        indexed = result.report
    shown = search.shown_path(project.external if place.external else project.docs, place.doc_id)
    return results.IndexDocumentResult(
        status="indexed",
        path=shown,
        embedding_dimensions=indexed.collection.embedding_dimensions,
        chunk_count=indexed.chunks,
        changed=indexed.changed,
        message=f"{shown} is indexed{'' if indexed.changed else ', as it was'}.",
    )


@tool("R", title="List document types")
def list_doc_types(call: Call) -> results.ListDocTypesResult:
    """List the types of the project's documents with folders and numbers of documents."""
    project = _load_project(call)
    types, total = activation.count_documents(call.ws, call.find_origin().at, project)
    return results.ListDocTypesResult(
        doc_types=list(types), message=f"{plural(len(types), 'type')}, {plural(total, 'document')}."
    )


@tool("R")
def search_external_docs(
    call: Call, *, query: QueryText, limit: Limit = None, min_relevance_score: Relevance = None
) -> results.SearchExternalDocsResult:
    """Find files of the project's external documentation that are nearest to a text."""
    active, project = _update_active(call)
    maximum = project.config.semantic_search.default_limit if limit is None else limit
    result = external.find_nearest(
        call.ws, active, project, query, use=SearchPurpose.EXTERNAL, min_score=min_relevance_score, limit=maximum
    )
    call.set_origin(result.origin)
    return results.SearchExternalDocsResult(
        results=[
            results.ExternalHit(
                document.path,
                document.document.title,
                find_summary(document.document, parse_metadata(document.document)),
                len(document.document.content),
                document.match.score,
            )
            for document in result.documents
        ],
        total_matches=result.total,
        external_docs_path=f"./{project.external}",
        message=_count_documents(call, result.total, result.best, result.min_score),
    )


@tool("RN", title="Answer from external docs")
def rag_query_external(
    call: Call, *, query: QueryText, max_sources: Sources = None, min_relevance_score: Relevance = None
) -> results.RagQueryExternalResult:
    """Answer a question from the project's external documentation, with citations."""
    active, project = _update_active(call)
    answered = ask.ask_external(call.ws, active, project, query, sources=max_sources, min_score=min_relevance_score)
    call.set_origin(answered.result.origin)
    _warn_answer(call, answered)
    return results.RagQueryExternalResult(
        answer=answered.answer.text,
        sources=_list_sources(answered),
        external_docs_path=f"./{project.external}",
        synthesis=answered.answer.synthesis,
        model=answered.answer.model,
        message=_describe_answer(answered),
    )


@tool("WVD", title="Delete project documents", includes=("chroma_delete_documents",))
def delete_documents(
    call: Call,
    *,
    project_name: Annotated[str, Given("name of the project")],
    branch_name: Annotated[str | None, Given("branch; default: all local branches")] = None,
    path_hash: Annotated[str | None, Given("hash of the project's path; default: any")] = None,
    dry_run: Annotated[bool, Given("only count the documents")] = False,
) -> results.DeleteDocumentsResult:
    """Delete all stored documents of a project, on one branch or on all. Its files stay."""
    project = _require_active(call).load_project(call.ws)
    matches = path_hash in (None, project.path_hash)
    removed = removal.remove_mirrored(call.ws, project_name, branch=branch_name, dry_run=dry_run or not matches)
    shown = removed if matches else removal.MirrorRemoval(())
    call.warn_pending(shown.pending)
    would = {"would_delete_count": shown.documents, "would_delete_chunks": shown.chunks} if dry_run else {}
    back = (
        " Its files bring them back with the next call, while the project is active."
        if project_name == project.name
        else ""
    )
    said = f"{plural(shown.documents, 'document')} of {project_name!r} on {plural(len(shown.branches), 'branch')}"
    return results.DeleteDocumentsResult(
        status="preview" if dry_run else "deleted",
        deleted_count=shown.documents,
        deleted_chunks=shown.chunks,
        project_name=project_name,
        branch_name=branch_name,
        path_hash=path_hash,
        dry_run=dry_run,
        per_branch=list(shown.branches),
        message=f"{said} would be deleted." if dry_run else f"{said} deleted; no file was touched.{back}",
        **would,
    )


@tool("WFO", idempotent=True)
def update_promotion_level(
    call: Call, *, document_path: Path, promotion_level: Annotated[Level, Given("new level")]
) -> results.UpdatePromotionLevelResult:
    """Set the promotion level of a document, in its file and in the index."""
    active, project = _update_active(call)
    place = ask.find_file(project, document_path)
    if place.external:
        raise ExternalDocsNotPromotable(
            f"{document_path} is external documentation, which has no promotion levels.",
            hint="write a document of the project that refers to it, and promote that",
            path=document_path,
        )
    result = promote.promote_document(call.ws, active, project, place.doc_id, promotion_level)
    call.warn_pending(result.pending)
    said = f"is {promotion_level} now; commit the file with git" if result.changed else f"is {promotion_level} already"
    return results.UpdatePromotionLevelResult(
        status="updated",
        document_path=place.doc_id,
        previous_level=result.previous,
        new_level=promotion_level,
        message=f"{place.doc_id} {said}.",
    )


def _update_active(call: Call) -> tuple[ActiveProject, DocsProject]:
    """Return the active project after its rows were updated.

    Raises `ProjectInactive`, and the errors of `mirror.mirror_changes`.
    """
    active = _require_active(call)
    project = active.load_project(call.ws)
    _warn_pending(call, mirror.mirror_changes(call.ws, active, project))
    return active, project


def _require_active(call: Call) -> ActiveProject:
    """Return the active project. Raises `ProjectInactive`."""
    active = call.state.toolset_values.get(__package__)
    if not isinstance(active, ActiveProject):
        raise ProjectInactive(
            "no project is active in this server.",
            hint=f"call activate_project with config_path={call.ws.places.top / CONFIG} and branch_name",
        )
    return active


def _warn_pending(call: Call, mirrored: MirrorResult) -> None:
    call.warn_pending(mirrored.pending)
    if mirrored.unwritten:
        call.warn("FILES_PENDING", mirrored.unwritten)


def _load_project(call: Call) -> DocsProject:
    return _update_active(call)[1]


def _list_sources(answered: CitedAnswer) -> list[results.AnswerSource]:
    return [
        results.AnswerSource(
            path=document.path,
            title=document.document.title,
            char_count=len(document.document.content),
            relevance_score=document.match.score,
            citation=number,
            excerpt=document.match.excerpt,
            included_as=document.included_as,
        )
        for number, document in enumerate(answered.result.documents, start=1)
    ]


def _warn_answer(call: Call, answered: CitedAnswer) -> None:
    if answered.answer.synthesis == "none":
        _warn_below(call, answered.result.best, answered.result.min_score)
    elif answered.answer.failure:
        call.warn("LLM_ERROR", answered.answer.failure)
    elif answered.answer.synthesis == "extractive":
        call.warn("LLM_NOT_CONFIGURED", "No language model is configured: llm.provider in git config, with llm.model.")


def _warn_below(call: Call, best: float | None, min_score: float) -> None:
    if best is not None:
        call.warn("BELOW_THRESHOLD", f"The best score is {best}; min_relevance_score is {min_score}.")


def _count_documents(call: Call, total: int, best: float | None, min_score: float) -> str:
    if not total:
        _warn_below(call, best, min_score)
    return f"{plural(total, 'document')} with a score of {min_score} or more."


def _describe_answer(answered: CitedAnswer) -> str:
    count = len(answered.result.documents)
    return f"Answered from {plural(count, 'document')}." if count else "No document is near enough."
