"""Answer a question from the documents of a project, or from its external documentation.

The language model of the settings writes the answer, if there is one. This module also finds the
file of a project for a path.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Sequence
from typing import NamedTuple

from vmrag_link import env, terminal_text
from vmrag_link.errors import DocumentMissing, UsageInvalid, first_of
from vmrag_link.models import Record
from vmrag_link.retrieval.thresholds import SearchPurpose
from vmrag_link.toolsets.compounding import answer, external, mirror, retrieval
from vmrag_link.toolsets.compounding.answer import ComposedAnswer, Passage, Synthesis
from vmrag_link.toolsets.compounding.chat_model import ChatModel, LlmSettings
from vmrag_link.toolsets.compounding.folder import SUFFIX
from vmrag_link.toolsets.compounding.mirror import ActiveProject
from vmrag_link.toolsets.compounding.project import USUAL_RESULTS, DocsProject
from vmrag_link.toolsets.compounding.retrieval import AnswerRequest
from vmrag_link.toolsets.compounding.search import IncludedAs, SearchResult, shown_path
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow.provenance import KbBlock


class CitedAnswer(NamedTuple):
    """An answer and the documents that it cites.

    A citation is the place of a document in the list, from 1.
    """

    answer: ComposedAnswer
    result: SearchResult


def answer_question(ws: Workspace, project: DocsProject, request: AnswerRequest) -> CitedAnswer:
    """Answer a question. Raises the errors of `retrieval.retrieve_documents`.

    A failure of the language model is not an error.
    """
    retrieved = retrieval.retrieve_documents(ws, project, request)
    linked = [
        Passage(shown_path(project.docs, link.document.doc_id), link.document.title, link.document.content)
        for link in retrieved.linked
    ]
    return _build_answered(ws, request.query, retrieved, linked)


def ask_external(
    ws: Workspace,
    active: ActiveProject,
    project: DocsProject,
    query: str,
    *,
    sources: int | None,
    min_score: float | None,
) -> CitedAnswer:
    """Answer from external documentation. Raises the errors of `external.find_nearest`."""
    limit = project.config.retrieval.max_results if sources is None else sources
    return _build_answered(
        ws,
        query,
        external.find_nearest(ws, active, project, query, use=SearchPurpose.EXTERNAL, min_score=min_score, limit=limit),
    )


def ask_collections(
    ws: Workspace, query: str, names: Sequence[str], *, sources: int | None, min_score: float | None
) -> CitedAnswer:
    """Answer from these collections, or from all. Sources cite their files.

    Their content is never sent to a language model. Raises the errors of
    `retrieval.search_collections`.
    """
    limit = USUAL_RESULTS if sources is None else sources
    return _build_answered(
        ws, query, retrieval.search_collections(ws, query, names, sources=limit, min_score=min_score)
    )


class AskedSource(Record, frozen=True, omit_defaults=True):
    """A source that the answer cites as `[citation]`.

    `excerpt` is from its nearest passage. `file` is as in `NearDocument`.
    """

    citation: int
    path: str
    title: str
    score: float
    included_as: IncludedAs
    excerpt: str
    file: str = ""


class AskReport(Record, frozen=True):
    """The report for people.

    `notes` explain why the language model of the settings did not write the answer, or why the
    answer is not from the pinned revision.
    """

    answer: str
    synthesis: Synthesis
    model: str | None
    sources: list[AskedSource]
    kb: KbBlock
    notes: list[str]


def build_report(answered: CitedAnswer, *notes: str) -> AskReport:
    sources = [
        AskedSource(
            citation=number,
            path=document.path,
            title=document.document.title,
            score=document.match.score,
            included_as=document.included_as,
            excerpt=document.match.excerpt,
            file=document.file,
        )
        for number, document in enumerate(answered.result.documents, start=1)
    ]
    origin = answered.result.origin
    return AskReport(
        answer=answered.answer.text,
        synthesis=answered.answer.synthesis,
        model=answered.answer.model,
        sources=sources,
        kb=origin.kb,
        notes=[*filter(None, [*origin.notes, answered.answer.failure, *notes])],
    )


def ask_project(
    ws: Workspace, config_path: str, query: str, *, of_external: bool, sources: int | None, min_score: float | None
) -> AskReport:
    """Answer from the current documents of the project with this configuration.

    Raises the errors of `mirror.mirror_changes`, `answer_question` and `ask_external`.
    """
    active = ActiveProject(config_path)
    project = active.load_project(ws)
    if of_external:
        return build_report(ask_external(ws, active, project, query, sources=sources, min_score=min_score))
    mirrored = mirror.mirror_changes(ws, active, project, now=True)
    answered = answer_question(ws, project, AnswerRequest(query, max_sources=sources, min_relevance_score=min_score))
    return build_report(answered, mirrored.unwritten, mirrored.pending)


def _build_answered(ws: Workspace, query: str, result: SearchResult, linked: Sequence[Passage] = ()) -> CitedAnswer:
    if not result.documents or not result.collection:
        return CitedAnswer(answer.nothing_found(result.best, result.min_score), result)
    sources = result.documents
    passages = [
        Passage(source.file or source.path, source.document.title, source.document.content) for source in sources
    ]
    files = [source.file for source in sources if source.file]
    refused = f"Files of the repository are sent to no language model: {first_of(files, 3)}." if files else ""
    model = ws.models.load_for(result.collection)
    return CitedAnswer(answer.compose_answer(query, passages, linked, model, chat_model(ws), refused=refused), result)


def chat_model(ws: Workspace) -> ChatModel | None:
    """Return the model of the settings; None if none is configured, or the environment forbids
    services.

    The settings of `llm` apply only if this machine's user set or trusted them. The variable of a
    key, and the permission to send it to an address, are set outside the files of a repository.
    """
    loaded = ws.section("llm", LlmSettings)
    settings: LlmSettings = loaded.config.llm
    if settings.provider == "none" or env.forbids_services():
        return None
    variable = settings.api_key_env if "llm.api_key_env" in loaded.machine else ""
    return ChatModel(settings, sends_key="llm.base_url" in loaded.machine, key_variable=variable)


class FilePlace(Record, frozen=True):
    """A file, by its path in the project's folder of documents or of `external` documentation."""

    doc_id: str
    external: bool


def find_file(project: DocsProject, path: str) -> FilePlace:
    """Return the file for `./FOLDER/FILE`, a path relative to the documents, or an absolute path
    inside.

    Raises `UsageInvalid` for a path outside, and `DocumentMissing` if there is no such file.
    """
    place = _locate_file(project, path)
    folder = project.external_folder if place.external else project.docs_folder
    if not os.path.lexists(folder / place.doc_id):
        raise DocumentMissing(
            f"no such file: {shown_path(project.external if place.external else project.docs, place.doc_id)}",
            hint="pass a path that semantic_search shows, or write the file first",
            path=place.doc_id,
        )
    return place


def _locate_file(project: DocsProject, path: str) -> FilePlace:
    if "\0" in path or not path.endswith(SUFFIX):
        raise _build_refusal(project, path)
    within = posixpath.normpath(os.path.relpath(path, project.root) if path.startswith("/") else path)
    if within == ".." or within.startswith(("../", "/")):
        raise _build_refusal(project, path)
    for folder, outside in ((project.docs, False), (project.external, True)):
        if folder and within.startswith(f"{folder}/"):
            return FilePlace(within.removeprefix(f"{folder}/"), outside)
    if path.startswith("/"):
        raise _build_refusal(project, path)
    return FilePlace(within, external=False)


def _build_refusal(project: DocsProject, path: str) -> UsageInvalid:
    name = terminal_text.escape_line(repr(path[:200]))
    return UsageInvalid(
        f"{name} is not a Markdown file below {shown_path(project.docs, '')}",
        hint=f"pass a path, such as {shown_path(project.docs, 'problems/what-went-wrong.md')}",
        parameter="path",
        value=path[:200],
    )
