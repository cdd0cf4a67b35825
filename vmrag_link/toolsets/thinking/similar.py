"""Find thoughts and whole sessions by what they are about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta

from vmrag_link.models import DocumentHeader, Record, metadata_of
from vmrag_link.ops.follow.follow_pin import read_consistently
from vmrag_link.ops.follow.provenance import Standing, standing, viewed
from vmrag_link.ops.index.query import searching
from vmrag_link.ops.system import stores
from vmrag_link.ops.system.collections import THOUGHTS
from vmrag_link.retrieval import thresholds
from vmrag_link.retrieval.query import Mode, Near, Query, similarity
from vmrag_link.retrieval.search import Searcher
from vmrag_link.toolsets.thinking import think
from vmrag_link.toolsets.thinking.think import Thought
from vmrag_link.workspace import DocumentStore, View, Workspace


class ThinkingSettings(Record, frozen=True):
    threshold: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="How similar a thought or a session must be to be found, where a call says nothing; 0: what suits the "
            "embedding model.",
        ),
    ] = 0.0


SUMMARY = 300
"""Characters of a session's summary."""


class SimilarThought(Record, frozen=True):
    """`similarity`: 0 to 1."""

    thought: Thought
    similarity: float


class SimilarThoughts(Record, frozen=True):
    """`best`: the highest similarity of any thought that was asked, None if there is none."""

    found: list[SimilarThought]
    threshold: float
    best: float | None
    standing: Standing


class SimilarSession(Record, frozen=True):
    """`summary`: how its trunk begins and ends. `thoughts` counts those of branches, too."""

    session: str
    summary: str
    similarity: float
    thoughts: int


class SimilarSessions(Record, frozen=True):
    """As `SimilarThoughts`."""

    found: list[SimilarSession]
    threshold: float
    best: float | None
    standing: Standing


class SessionThoughts(Record, frozen=True):
    thoughts: list[Thought]
    standing: Standing


def session_thoughts(ws: Workspace, session: str, *, branches: bool = True) -> SessionThoughts:
    """The thoughts of a session, trunk by number and then each branch; none of an unknown one."""
    store = stores.for_tools(ws)

    def read() -> SessionThoughts:
        here = standing(store)
        found = think.of_sessions(store, here.at, [session])
        return SessionThoughts([each for each in found if branches or not each.place.branch_id], here)

    return read_consistently(store, read, index=False)


def similar_thoughts(
    ws: Workspace, text: str, *, k: int, threshold: float | None = None, session: str = "", branches: bool = True
) -> SimilarThoughts:
    """The thoughts nearest to a text, of one session or of all, that are similar enough.

    Without `branches` those of the trunk alone. Raises as `Searcher.nearest`.
    """
    where: list[Mapping[str, Any]] = [{"thought_number": {"$gte": 1}}]
    where += [{"session_id": session}] if session else []
    where += [] if branches else [{"branch_id": ""}]
    store = stores.for_tools(ws)

    def look(searcher: Searcher, view: View) -> SimilarThoughts:
        least = _threshold(ws, searcher, threshold)
        if searcher.collection(THOUGHTS) is None:
            return SimilarThoughts([], least, None, viewed(store, view))
        asked = Query(text, (THOUGHTS,), k, Mode.VECTOR, {"$and": where} if len(where) > 1 else where[0])
        scored = [
            SimilarThought(thought, similarity(near.cosine))
            for near in searcher.nearest(asked, per_document=1)
            if (thought := _thought(store, view, near))
        ]
        best = scored[0].similarity if scored else None
        return SimilarThoughts([each for each in scored if each.similarity >= least], least, best, viewed(store, view))

    return searching(store, look, files=False)


def _thought(store: DocumentStore, view: View, near: Near) -> Thought | None:
    """The whole thought, of which a long one's chunk was found."""
    if near.hit.chunks == 1:
        return think.parse(near.hit.doc_id, near.hit.text, near.hit.metadata)
    document = store.engine.document(view.at, THOUGHTS, near.hit.doc_id)
    return think.thought_of(document) if document else None


def similar_sessions(ws: Workspace, text: str, *, k: int, threshold: float | None = None) -> SimilarSessions:
    """The sessions nearest to a text that are similar enough.

    A session's vector is the mean of its thoughts'. Raises as `Searcher.nearest_groups`.
    """
    store = stores.for_tools(ws)

    def look(searcher: Searcher, view: View) -> SimilarSessions:
        least = _threshold(ws, searcher, threshold)
        near = searcher.nearest_groups(THOUGHTS, text, _session_of)
        best = next(iter(near.values()), None)
        found = [name for name, nearness in near.items() if nearness >= least][:k]
        held = think.of_sessions(store, view.at, found)
        rows = [_session(name, near[name], [each for each in held if each.place.session_id == name]) for name in found]
        return SimilarSessions(rows, least, best, viewed(store, view))

    return searching(store, look, files=False)


def _session_of(header: DocumentHeader) -> str | None:
    thought = think.parse(header.doc_id, "", metadata_of(header))
    return thought.place.session_id if thought else None


def _session(name: str, similarity: float, held: Sequence[Thought]) -> SimilarSession:
    trunk = [each.content for each in held if not each.place.branch_id] or [each.content for each in held]
    return SimilarSession(name, _summary(trunk), similarity, len(held))


def _summary(texts: Sequence[str]) -> str:
    if len(texts) < 2:  # noqa: PLR2004  a first and a last one
        return "".join(texts)[:SUMMARY]
    between = " … "
    room = SUMMARY - len(between)
    last = texts[-1][: max(room // 2, room - len(texts[0]))]
    return texts[0][: room - len(last)] + between + last


def _threshold(ws: Workspace, searcher: Searcher, given: float | None) -> float:
    collection = searcher.collection(THOUGHTS)
    model = collection.embedding_function if collection else ws.config.embedding.model
    return thresholds.threshold(thresholds.Use.THOUGHTS, model, given=given, configured=_settings(ws).threshold or None)


def _settings(ws: Workspace) -> ThinkingSettings:
    found: ThinkingSettings = ws.section("thinking", ThinkingSettings).config.thinking
    return found
