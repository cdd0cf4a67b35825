"""Tools for thoughts: store them step by step, and find earlier thoughts and sessions
by meaning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from vmrag_link.errors import plural
from vmrag_link.models import DocumentHeader, Record, parse_metadata
from vmrag_link.ops.stores import stores
from vmrag_link.ops.stores.stores import THOUGHTS
from vmrag_link.retrieval.query import Mode, NearHit, Query, to_similarity
from vmrag_link.retrieval.search import Searcher
from vmrag_link.retrieval.thresholds import SearchPurpose, choose_threshold
from vmrag_link.toolsets.thinking import think
from vmrag_link.toolsets.thinking.think import NewThought, Thought, ThoughtReport
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.answers.query import search_index
from vmrag_link.workspace.follow.follow_pin import read_consistently
from vmrag_link.workspace.follow.provenance import AnswerOrigin, find_origin, find_view_origin
from vmrag_mcp.arguments import RESULTS, Given, QueryText, fields_as_keywords
from vmrag_mcp.call import Call
from vmrag_mcp.registry import tool
from vmrag_mcp.results import ToolAnswer
from vmrag_mcp.tools import outcome

if TYPE_CHECKING:
    from vmrag_link.workspace import DocumentStore, View

Branches = Annotated[bool, Given("include thoughts on branches")]
Results = Annotated[int, Given(RESULTS, low=1, high=100, clamped=True)]
Threshold = Annotated[float | None, Given("lowest similarity; default: set by the model", low=0, high=1, unset=-1)]


@tool("WO")
@fields_as_keywords
def chroma_sequential_thinking(call: Call, request: NewThought) -> ToolAnswer[ThoughtReport]:
    """Store a thought of a session and show the thoughts before it, for problems of many steps.
    The same number replaces a thought.
    """
    result = think.store_thought(call.ws, request)
    number, session = result.report.thought_number, result.report.session_id
    return outcome.kept_answer(call, result, f"Thought {number} of session {session!r} is written down")


@tool("R")
def chroma_find_similar_thoughts(
    call: Call,
    *,
    query: QueryText,
    n_results: Results = 5,
    threshold: Threshold = None,
    session_id: Annotated[str, Given("id of the session; default: all")] = "",
    include_branches: Branches = True,
) -> ToolAnswer[SimilarThoughts]:
    """Find earlier thoughts that are similar to a text."""
    report = call.accept_read(
        similar_thoughts(
            call.ws, query, k=n_results, threshold=threshold, session=session_id, branches=include_branches
        )
    )
    count = plural(report.total_found, "thought")
    return ToolAnswer(report, message=_describe_similar(count, report.threshold_used, report.best_similarity))


@tool("R")
def chroma_get_session_summary(
    call: Call, *, session_id: Annotated[str, Given("id of the session")], include_branches: Branches = True
) -> ToolAnswer[SessionThoughts]:
    """Read the thoughts of a session in order."""
    thoughts = call.accept_read(session_thoughts(call.ws, session_id, branches=include_branches))
    count = plural(thoughts.total_thoughts_in_session, "thought")
    return ToolAnswer(thoughts, message=f"{count} in session {session_id!r}.")


@tool("R")
def chroma_find_similar_sessions(
    call: Call, *, query: QueryText, n_results: Results = 5, threshold: Threshold = None
) -> ToolAnswer[SimilarSessions]:
    """Find earlier sessions that are similar to a text."""
    report = call.accept_read(similar_sessions(call.ws, query, k=n_results, threshold=threshold))
    count = plural(report.total_found, "session")
    return ToolAnswer(report, message=_describe_similar(count, report.threshold_used, report.best_similarity))


def _describe_similar(count_text: str, threshold: float, best: float | None) -> str:
    if best is None:
        return "Nothing is written down yet that could be found."
    nearest = f"; the nearest has {best}, so threshold={best} finds it" if best < threshold else ""
    return f"{count_text} with a similarity of at least {threshold}{nearest}."


MAX_SUMMARY_CHARS = 300
"""Maximum number of characters of a session's summary."""


class SimilarThought(Thought, frozen=True):
    """A thought. `similarity` is between 0 and 1."""

    similarity: float


class SimilarThoughts(Record, frozen=True):
    """Similar thoughts.

    `best_similarity` is the best of all searched thoughts; None if there are none.
    """

    similar_thoughts: list[SimilarThought]
    total_found: int
    threshold_used: float
    best_similarity: float | None


class SimilarSession(Record, frozen=True):
    """A session.

    `summary` is the begin and the end of its trunk. `thought_count` includes branches.
    """

    session_id: str
    summary: str
    similarity_score: float
    thought_count: int


class SimilarSessions(Record, frozen=True):
    """Similar sessions. `best_similarity` is the best of all sessions; None if there are none."""

    similar_sessions: list[SimilarSession]
    total_found: int
    threshold_used: float
    best_similarity: float | None


class SessionThoughts(Record, frozen=True):
    session_id: str
    session_thoughts: list[Thought]
    total_thoughts_in_session: int


def session_thoughts(ws: Workspace, session: str, *, branches: bool = True) -> tuple[SessionThoughts, AnswerOrigin]:
    """Return the thoughts of a session: the trunk by number, then each branch."""
    store = stores.find_tools_store(ws)

    def read_thoughts() -> tuple[SessionThoughts, AnswerOrigin]:
        origin = find_origin(store)
        thoughts = think.read_sessions(store, origin.at, [session])
        shown = [thought for thought in thoughts if branches or not thought.place.branch_id]
        return SessionThoughts(session, shown, len(shown)), origin

    return read_consistently(store, read_thoughts, index=False)


def similar_thoughts(
    ws: Workspace, text: str, *, k: int, threshold: float | None = None, session: str = "", branches: bool = True
) -> tuple[SimilarThoughts, AnswerOrigin]:
    """Return the thoughts nearest to a text that are similar enough, of one session or of all.

    Without `branches`, only thoughts of the trunk. Raises the errors of `Searcher.find_nearest`.
    """
    where: list[Mapping[str, Any]] = [{"thought_number": {"$gte": 1}}]
    if session:
        where.append({"session_id": session})
    if not branches:
        where.append({"branch_id": ""})
    store = stores.find_tools_store(ws)

    def search_view(searcher: Searcher, view: View) -> tuple[SimilarThoughts, AnswerOrigin]:
        minimum = _choose_threshold(ws, searcher, threshold)
        if searcher.find_collection(THOUGHTS) is None:
            return SimilarThoughts([], 0, minimum, None), find_view_origin(store, view)
        query = Query(text, (THOUGHTS,), k, Mode.VECTOR, {"$and": where} if len(where) > 1 else where[0])
        scored = [
            SimilarThought(thought.id, thought.content, thought.place, to_similarity(near.cosine))
            for near in searcher.find_nearest(query, per_document=1)
            if (thought := _read_thought(store, view, near))
        ]
        best = scored[0].similarity if scored else None
        similar = [thought for thought in scored if thought.similarity >= minimum]
        return SimilarThoughts(similar, len(similar), minimum, best), find_view_origin(store, view)

    return search_index(store, search_view, files=False)


def _read_thought(store: DocumentStore, view: View, near: NearHit) -> Thought | None:
    """Return the whole thought of a chunk."""
    if near.hit.chunks == 1:
        return think.parse_thought(near.hit.doc_id, near.hit.text, near.hit.metadata)
    document = store.engine.find_document(view.at, THOUGHTS, near.hit.doc_id)
    return think.thought_of(document) if document else None


def similar_sessions(
    ws: Workspace, text: str, *, k: int, threshold: float | None = None
) -> tuple[SimilarSessions, AnswerOrigin]:
    """Return the sessions nearest to a text that are similar enough.

    The vector of a session is the mean of its thoughts' vectors. Raises the errors of
    `Searcher.rank_groups`.
    """
    store = stores.find_tools_store(ws)

    def search_view(searcher: Searcher, view: View) -> tuple[SimilarSessions, AnswerOrigin]:
        minimum = _choose_threshold(ws, searcher, threshold)
        near = searcher.rank_groups(THOUGHTS, text, _find_session)
        best = next(iter(near.values()), None)
        names = [name for name, nearness in near.items() if nearness >= minimum][:k]
        thoughts = think.read_sessions(store, view.at, names)
        rows = [
            _build_session(name, near[name], [thought for thought in thoughts if thought.place.session_id == name])
            for name in names
        ]
        return SimilarSessions(rows, len(rows), minimum, best), find_view_origin(store, view)

    return search_index(store, search_view, files=False)


def _find_session(header: DocumentHeader) -> str | None:
    thought = think.parse_thought(header.doc_id, "", parse_metadata(header))
    return thought.place.session_id if thought else None


def _build_session(name: str, similarity: float, thoughts: Sequence[Thought]) -> SimilarSession:
    trunk = [thought for thought in thoughts if not thought.place.branch_id] or thoughts
    return SimilarSession(name, _build_summary([thought.content for thought in trunk]), similarity, len(thoughts))


def _build_summary(texts: Sequence[str]) -> str:
    """Return the beginnings of the first and the last text, shortened to fit."""
    if len(texts) < 2:  # noqa: PLR2004  a first and a last one
        return "".join(texts)[:MAX_SUMMARY_CHARS]
    between = " … "
    room = MAX_SUMMARY_CHARS - len(between)
    last = texts[-1][: max(room // 2, room - len(texts[0]))]
    return texts[0][: room - len(last)] + between + last


def _choose_threshold(ws: Workspace, searcher: Searcher, given: float | None) -> float:
    collection = searcher.find_collection(THOUGHTS)
    model = collection.embedding_function if collection else ws.config.embedding.model
    return choose_threshold(
        SearchPurpose.THOUGHTS, model, given=given, configured=think.load_settings(ws).threshold or None
    )
