"""Answer a question from a project's documents, or from its other documentation."""

from __future__ import annotations

from collections.abc import Sequence

from vmrag_link.models import Collection, Document, Record
from vmrag_link.ops.compounding import answer, external, paths, retrieval
from vmrag_link.ops.compounding.answer import ComposedAnswer, Passage
from vmrag_link.ops.compounding.mirror import ActiveProject
from vmrag_link.ops.compounding.project import DocsProject
from vmrag_link.ops.compounding.retrieval import AnswerRequest, IncludedAs, LinkedDocument
from vmrag_link.ops.compounding.search import Match
from vmrag_link.ops.follow.provenance import Standing
from vmrag_link.retrieval.thresholds import Use
from vmrag_link.trust.language_model import chat_model
from vmrag_link.workspace import Workspace


class CitedDocument(Record, frozen=True):
    """A source of the answer; its place in the list, from 1, is its citation."""

    path: str
    document: Document
    match: Match
    included_as: IncludedAs


class Answered(Record, frozen=True):
    """`best`, `least`: as of `search.Matches`."""

    answer: ComposedAnswer
    sources: tuple[CitedDocument, ...]
    linked: tuple[LinkedDocument, ...]
    best: float | None
    least: float
    standing: Standing


def ask(ws: Workspace, project: DocsProject, wanted: AnswerRequest) -> Answered:
    """Raises as `retrieval.retrieve`. That no language model answers is no error."""
    found = retrieval.retrieve(ws, project, wanted)
    sources = tuple(
        CitedDocument(paths.shown(project.docs, each.document.doc_id), each.document, each.match, each.included_as)
        for each in found.sources
    )
    linked = [
        Passage(paths.shown(project.docs, each.document.doc_id), each.document.title, each.document.content)
        for each in found.linked
    ]
    written = answer.nothing_found(found.best, found.least)
    if sources and found.collection:
        written = _written(ws, found.collection, wanted.query, sources, linked)
    return Answered(written, sources, found.linked, found.best, found.least, found.standing)


def ask_external(
    ws: Workspace, active: ActiveProject, project: DocsProject, query: str, *, sources: int | None, least: float | None
) -> Answered:
    """Raises as `external.nearest`."""
    most = project.config.retrieval.max_results if sources is None else sources
    found = external.nearest(ws, active, project, query, use=Use.EXTERNAL, least=least, limit=most)
    cited = tuple(
        CitedDocument(paths.shown(project.external, each.document.doc_id), each.document, each.match, "match")
        for each in found.documents
    )
    written = answer.nothing_found(found.matches.best, found.matches.least)
    if cited:
        written = _written(ws, found.collection, query, cited, [])
    return Answered(written, cited, (), found.matches.best, found.matches.least, found.standing)


def _written(
    ws: Workspace, collection: Collection, query: str, sources: Sequence[CitedDocument], linked: Sequence[Passage]
) -> ComposedAnswer:
    passages = [Passage(each.path, each.document.title, each.document.content) for each in sources]
    return answer.compose(query, passages, linked, ws.models.of(collection), chat_model(ws.settings.loaded))
