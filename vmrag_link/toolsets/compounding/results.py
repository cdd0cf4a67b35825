"""Results of the tools for the documents of a project."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from vmrag_link.models import Record
from vmrag_link.toolsets.compounding.activation import TypeCount
from vmrag_link.toolsets.compounding.answer import Synthesis
from vmrag_link.toolsets.compounding.doc_types import Level
from vmrag_link.toolsets.compounding.folder import SkippedDoc
from vmrag_link.toolsets.compounding.removal import BranchRemoval
from vmrag_link.toolsets.compounding.search import IncludedAs
from vmrag_mcp.results import DerivedRecord, ToolResult


class DocTypeCount(DerivedRecord, frozen=True):
    name: str
    doc_count: int
    custom: bool


class ActivateProjectResult(ToolResult, frozen=True):
    """An activated project.

    `path_hash` is the hash of the root's path on this machine. `indexed` and `removed` count the
    documents that this call added and removed. `skipped` are files that are not documents, with
    reasons.
    """

    status: Literal["activated"]
    project_name: str
    branch_name: str
    path_hash: str
    doc_types: list[DocTypeCount]
    total_docs: int
    skipped: list[SkippedDoc]
    indexed: int
    removed: int
    dolt_branch: str | None


class AnswerSource(Record, frozen=True):
    """A document that the answer cites as `[citation]`. `excerpt` is from its nearest passage."""

    path: str
    title: str
    char_count: int
    relevance_score: float
    citation: int
    excerpt: str
    included_as: IncludedAs


class AnswerLink(Record, frozen=True):
    """A document that `linked_from` refers to, directly or through other documents."""

    path: str
    title: str
    char_count: int
    linked_from: str


class RagQueryExternalResult(ToolResult, frozen=True):
    """An answer. `model` is the language model that wrote it, if any."""

    answer: str
    sources: list[AnswerSource]
    external_docs_path: str
    synthesis: Synthesis
    model: str | None


class RagQueryResult(ToolResult, frozen=True):
    """An answer. `model` is the language model that wrote it, if any."""

    answer: str
    sources: list[AnswerSource]
    linked_docs: list[AnswerLink]
    synthesis: Synthesis
    model: str | None


class BestChunk(Record, frozen=True):
    """A chunk. `header_path` has the headings above it, with ` > ` between them."""

    header_path: str
    excerpt: str


class ExternalHit(Record, frozen=True):
    path: str
    title: str
    summary: str
    char_count: int
    relevance_score: float


class SemanticHit(ExternalHit, frozen=True):
    """A document. `date` is the date of its front matter, or null."""

    doc_type: str
    date: str | None
    promotion_level: Level
    best_chunk: BestChunk


class SemanticSearchResult(ToolResult, frozen=True):
    """One entry for each document, best first.

    `total_matches` also counts the matches that are left out.
    """

    results: list[SemanticHit]
    total_matches: int


class SearchExternalDocsResult(ToolResult, frozen=True):
    """One entry for each document, best first.

    `total_matches` also counts the matches that are left out.
    """

    results: list[ExternalHit]
    total_matches: int
    external_docs_path: str


class IndexDocumentResult(ToolResult, frozen=True):
    """An indexed document. `changed`: it differs from the version before."""

    status: Literal["indexed"]
    path: str
    embedding_dimensions: int
    chunk_count: int
    changed: bool


class ListDocTypesResult(ToolResult, frozen=True):
    doc_types: list[TypeCount]


class DeleteDocumentsResult(ToolResult, frozen=True):
    """A removal.

    A preview has `would_delete_…` with the same numbers. `per_branch` has the `commit` of each
    branch, if one was made.
    """

    status: Literal["deleted", "preview"]
    deleted_count: int
    deleted_chunks: int
    project_name: str
    branch_name: str | None
    path_hash: str | None
    dry_run: bool
    per_branch: list[BranchRemoval]
    would_delete_count: int | UnsetType = UNSET
    would_delete_chunks: int | UnsetType = UNSET


class UpdatePromotionLevelResult(ToolResult, frozen=True):
    """A changed level. `document_path` is relative to the documents of the project."""

    status: Literal["updated"]
    document_path: str
    previous_level: Level
    new_level: Level
