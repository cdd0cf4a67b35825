"""Answer a question from a project's documents, or from its other documentation, by the language
model that the settings name, if any; and find the file of a project that a path names.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Sequence
from typing import NamedTuple

from vmrag_link import env, terminal_text
from vmrag_link.errors import DocumentMissing, UsageInvalid, first_of
from vmrag_link.models import Record
from vmrag_link.retrieval.fusion import SearchPurpose
from vmrag_link.toolsets.compounding import answer, external, mirror, retrieval
from vmrag_link.toolsets.compounding.answer import ComposedAnswer, Passage, Synthesis
from vmrag_link.toolsets.compounding.chat_model import ChatModel, LlmSettings
from vmrag_link.toolsets.compounding.folder import SUFFIX
from vmrag_link.toolsets.compounding.mirror import ActiveProject
from vmrag_link.toolsets.compounding.project import USUAL_RESULTS, DocsProject
from vmrag_link.toolsets.compounding.retrieval import AnswerRequest
from vmrag_link.toolsets.compounding.search import Found, IncludedAs, shown_path
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow.provenance import KbBlock


class Answered(NamedTuple):
    """An answer, and the documents that it cites: the place of one in their list, from 1, is its
    citation.
    """

    answer: ComposedAnswer
    found: Found


def answer_question(ws: Workspace, project: DocsProject, wanted: AnswerRequest) -> Answered:
    """Raises as `retrieval.retrieve_documents`. That no language model answers is no error."""
    found = retrieval.retrieve_documents(ws, project, wanted)
    linked = [
        Passage(shown_path(project.docs, each.document.doc_id), each.document.title, each.document.content)
        for each in found.linked
    ]
    return _answered(ws, wanted.query, found, linked)


def ask_external(
    ws: Workspace, active: ActiveProject, project: DocsProject, query: str, *, sources: int | None, least: float | None
) -> Answered:
    """Raises as `external.find_nearest`."""
    most = project.config.retrieval.max_results if sources is None else sources
    return _answered(
        ws,
        query,
        external.find_nearest(ws, active, project, query, use=SearchPurpose.EXTERNAL, least=least, limit=most),
    )


def ask_collections(
    ws: Workspace, query: str, names: Sequence[str], *, sources: int | None, least: float | None
) -> Answered:
    """Answer from these collections (none: from all), of which sources cite their files. What these
    say is sent to no language model. Raises as `retrieval.of_collections`.
    """
    most = USUAL_RESULTS if sources is None else sources
    return _answered(ws, query, retrieval.of_collections(ws, query, names, sources=most, least=least))


class AskedSource(Record, frozen=True, omit_defaults=True):
    """A source of an answer, which cites it as `[citation]`; `excerpt`: of its nearest passage.
    `file`: as of `NearDocument`.
    """

    citation: int
    path: str
    title: str
    score: float
    included_as: IncludedAs
    excerpt: str
    file: str = ""


class AskReport(Record, frozen=True):
    """What a person is told. `notes`: why the answer is not a language model's that is configured,
    or not from the pinned revision.
    """

    answer: str
    synthesis: Synthesis
    model: str | None
    sources: list[AskedSource]
    kb: KbBlock
    notes: list[str]


def build_report(done: Answered, *notes: str) -> AskReport:
    sources = [
        AskedSource(
            number,
            document.path,
            document.document.title,
            document.match.score,
            document.included_as,
            document.match.excerpt,
            document.file,
        )
        for number, document in enumerate(done.found.documents, start=1)
    ]
    standing = done.found.standing
    said = [*standing.notes, done.answer.failure, *notes]
    return AskReport(
        done.answer.text, done.answer.synthesis, done.answer.model, sources, standing.kb, [*filter(None, said)]
    )


def ask_project(
    ws: Workspace, config_path: str, query: str, *, of_external: bool, sources: int | None, least: float | None
) -> AskReport:
    """Answer from the documents of the project with this configuration, as its files are now.

    Raises as `mirror.mirror_changes`, `ask` and `ask_external`.
    """
    active = ActiveProject(config_path)
    project = active.load_project(ws)
    if of_external:
        return build_report(ask_external(ws, active, project, query, sources=sources, least=least))
    mirrored = mirror.mirror_changes(ws, active, project, now=True)
    done = answer_question(ws, project, AnswerRequest(query, max_sources=sources, min_relevance_score=least))
    return build_report(done, mirrored.unwritten, mirrored.pending)


def _answered(ws: Workspace, query: str, found: Found, linked: Sequence[Passage] = ()) -> Answered:
    if not found.documents or not found.collection:
        return Answered(answer.nothing_found(found.best, found.least), found)
    sources = found.documents
    passages = [
        Passage(source.file or source.path, source.document.title, source.document.content) for source in sources
    ]
    files = [source.file for source in sources if source.file]
    refused = f"Files of the repository are sent to no language model: {first_of(files, 3)}." if files else ""
    chat, model = chat_model(ws), ws.models.load_for(found.collection)
    return Answered(answer.compose_answer(query, passages, linked, model, chat, refused=refused), found)


def chat_model(ws: Workspace) -> ChatModel | None:
    """The model that the settings name; None where none is configured, or the environment says that
    no service is asked.

    The settings of `llm` count only if this machine's person stated or agreed to them. Which
    variable holds a key, and that it goes to an address, the person says outside of any file of a
    repository.
    """
    loaded = ws.section("llm", LlmSettings)
    settings: LlmSettings = loaded.config.llm
    if settings.provider == "none" or env.forbids_services():
        return None
    variable = settings.api_key_env if "llm.api_key_env" in loaded.machine else ""
    return ChatModel(settings, keyed="llm.base_url" in loaded.machine, key_variable=variable)


class FilePlace(Record, frozen=True):
    """A file by its path in the project's folder of documents, or in that of `external` ones."""

    doc_id: str
    external: bool


def find_file(project: DocsProject, path: str) -> FilePlace:
    """The file that is meant: `./FOLDER/FILE`, relative to the documents, or absolute inside.

    Raises `UsageInvalid` for a path that leads elsewhere, `DocumentMissing` where no file is.
    """
    place = _place(project, path)
    folder = project.external_folder if place.external else project.docs_folder
    if not os.path.lexists(folder / place.doc_id):
        raise DocumentMissing(
            f"There is no file {shown_path(project.external if place.external else project.docs, place.doc_id)}.",
            hint="Take a path that semantic_search shows, or write the file first.",
            path=place.doc_id,
        )
    return place


def _place(project: DocsProject, path: str) -> FilePlace:
    if "\0" in path or not path.endswith(SUFFIX):
        raise _refusal(project, path)
    within = posixpath.normpath(os.path.relpath(path, project.root) if path.startswith("/") else path)
    if within == ".." or within.startswith(("../", "/")):
        raise _refusal(project, path)
    for folder, outside in ((project.docs, False), (project.external, True)):
        if folder and within.startswith(f"{folder}/"):
            return FilePlace(within.removeprefix(f"{folder}/"), outside)
    if path.startswith("/"):
        raise _refusal(project, path)
    return FilePlace(within, external=False)


def _refusal(project: DocsProject, path: str) -> UsageInvalid:
    name = terminal_text.escape_line(repr(path[:200]))
    return UsageInvalid(
        f"{name} is no Markdown file below {shown_path(project.docs, '')}",
        hint=f"For example: {shown_path(project.docs, 'problems/what-went-wrong.md')}",
        parameter="path",
        value=path[:200],
    )
