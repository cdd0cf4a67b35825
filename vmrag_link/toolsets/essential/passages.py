"""What answers a question, or defines a name: places with their lines, here or at a git ref."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from vmrag_link import terminal_text
from vmrag_link.errors import NO_DOCUMENTS, CollectionMissing, VmragError, refuses_writing
from vmrag_link.git import plumbing
from vmrag_link.models import Record
from vmrag_link.ops.query.packed_answer import PackRequest, packed_answer
from vmrag_link.ops.query.relations import Relation, RelationReport, list_related
from vmrag_link.ops.query.similar import SimilarRequest, find_similar
from vmrag_link.ops.query.symbols import SymbolReport, find_symbols
from vmrag_link.ops.query.word_search import WordQuestion, WordSearch
from vmrag_link.retrieval.narrowing import Narrowing, combine_narrowings, make_narrowing, parse_query
from vmrag_link.retrieval.query import LEAST_BUDGET, MOST_HITS, Mode, Query
from vmrag_link.sync import background
from vmrag_link.toolsets.essential import index_build
from vmrag_link.toolsets.essential.index_build import TooManyDocuments
from vmrag_link.workspace import Workspace, reasons, source_tree
from vmrag_link.workspace.answers.packing import PackedPassage
from vmrag_link.workspace.answers.query import with_untracked_matches
from vmrag_link.workspace.follow.provenance import (
    AnswerOrigin,
    KbBlock,
    RankedRevision,
    add_sources,
    find_git_origin,
    ranked_at,
)
from vmrag_link.workspace.source_tree import SourceTree
from vmrag_link.workspace.sources import build_without_index
from vmrag_link.workspace.worktree import OpenSources

ANSWER_SECONDS = 3.5
"""A search without an index answers about within this time."""

_SYMBOL = re.compile(
    r"(?:(?:async\s+)?def\s+|class\s+|func(?:tion)?\s+|fn\s+)?"
    r"(?:(?P<path>[^:()\s]+\.\w+)::)?(?P<name>[^()\s]+)\s*(?:\(.*)?:?",
    re.DOTALL,
)
"""A symbol as models write it: `def refresh(self):`, `src/session.py::Session::refresh`."""

T = TypeVar("T")


class NarrowedQuestion(Record, frozen=True):
    """`words` are never empty. `symbol`: a definition is asked for, and nothing else. `collection`
    and `ref`: empty for all, and for the work tree.
    """

    words: str
    narrowed: Narrowing | None
    symbol: str
    collection: str
    ref: str


class Passages(Record, frozen=True):
    """`left_out`: so many more answer, and did not fit. `standing`: where they come from.
    `notice`: the sentence about an index that is not complete yet.
    """

    found: Sequence[PackedPassage]
    tokens: int
    left_out: int
    standing: AnswerOrigin
    notice: str = ""
    weak: bool = False
    """True if no passage helps (`retrieval.weakness`)."""


def parse_question(
    query: str, *, path: str = "", lang: str = "", symbol: str = "", kind: str = "", collection: str = "", ref: str = ""
) -> NarrowedQuestion:
    """Return the question. A symbol may be a definition's first line, or `PATH::NAME` as pytest
    writes it. Raises `UsageInvalid` for a language or kind that does not exist.
    """
    if form := _SYMBOL.fullmatch(symbol):
        symbol, path = form["name"], path or form["path"] or ""
    given = make_narrowing(paths=_some(path), languages=_some(lang), symbols=_some(symbol), kinds=_some(kind))
    words, prefixed = parse_query(query)
    narrowed = combine_narrowings(given, prefixed)
    alone = symbol if symbol and not words.strip() else ""
    return NarrowedQuestion(words.strip() or (narrowed.words if narrowed else ""), narrowed, alone, collection, ref)


def _some(value: str) -> tuple[str, ...]:
    return (value,) if value else ()


def find_passages(ws: Workspace, asked: NarrowedQuestion, budget: int) -> Passages:
    """Return the best passages of documents and code. If the index takes long to build, a process
    builds it, and words and names answer. The errors are those of `query.query` and `ranked_at`.
    """
    return _ready_or_quick(
        ws,
        asked,
        lambda: _answer(ws, asked, budget),
        lambda deadline: _quick_answer(ws, asked, budget, deadline),
    )


def _ready_or_quick(ws: Workspace, asked: NarrowedQuestion, ready: Callable[[], T], quick: Callable[[float], T]) -> T:
    """Return what `ready` returns if the index is complete or soon is, else what `quick` returns,
    which gets the time by which it should end.
    """
    start = time.monotonic()
    commit = plumbing.resolve_commit(ws.places, asked.ref) if asked.ref else ""
    job = background.get_index_job(ws.places, commit)
    background.report_notes(job, ws.progress.note)
    failed = background.read_report(job)
    if failed and failed.error:
        job.report.unlink(missing_ok=True)
        return ready()  # it raises what is wrong, or knows another way
    while True:
        try:
            with index_build.refusing_long_work(ws):
                return ready()
        except TooManyDocuments as work:
            try:
                index_build.ensure_build(job, ws.places, commit)
            except OSError as error:
                if not refuses_writing(error):
                    raise
                return ready()
            seconds = start + index_build.WAIT_SECONDS - time.monotonic() if work.size <= index_build.SOON else 0
            if not background.wait_for_end(job, within=max(0.0, seconds)):
                return quick(start + ANSWER_SECONDS)
            if background.read_report(job):
                return ready()


def _answer(ws: Workspace, asked: NarrowedQuestion, budget: int, *, files: bool = True) -> Passages:
    from vmrag_link.ops.stores import stores

    if asked.ref:
        at = ranked_at(ws, asked.ref, or_files=files)
        return _answer_at(ws, asked, budget, at if files else replace(at, commit=None, config=None))
    store = stores.find_readable(ws, asked.collection) if asked.collection else ws
    mode = Mode(ws.config.retrieval.mode)
    request = SimilarRequest(
        MOST_HITS, mode, narrowing=asked.narrowed, pack=PackRequest(budget, frugal=True), files=files
    )
    found = find_similar(store, asked.collection or None, [asked.words], request)
    assert found.packed is not None  # noqa: S101  the request asks for it
    collections = (asked.collection,) if asked.collection else None
    query = Query(asked.words, collections, ws.config.retrieval.k, mode, narrowing=asked.narrowed)
    kb = with_untracked_matches(ws, query, found.origin.kb)
    stands = replace(found.origin, kb=kb)
    return Passages(found.packed.passages, found.packed.tokens, found.packed.left_out, stands, weak=all(found.weak))


def _quick_answer(ws: Workspace, asked: NarrowedQuestion, budget: int, deadline: float) -> Passages:
    """Return passages of files by words, and of stored documents if their index is complete."""
    tree, opened, stored, notice = _without_files(ws, asked, budget // 2)
    share = budget - stored.tokens if stored else budget
    packed = None
    if tree and not _is_stored(tree, asked):
        words = WordQuestion(asked.words, asked.collection, asked.narrowed)
        packed = WordSearch(ws, tree, words, deadline).find_passages(share)
    passages = [*(packed.passages if packed else ()), *(stored.found if stored else ())]
    left_out = (packed.left_out if packed else 0) + (stored.left_out if stored else 0)
    standing = add_sources(stored.standing if stored else find_git_origin(ws), opened)
    return Passages(passages, budget - share + (packed.tokens if packed else 0), left_out, standing, notice)


def _without_files(
    ws: Workspace, asked: NarrowedQuestion, budget: int
) -> tuple[SourceTree | None, OpenSources | None, Passages | None, str]:
    """Return the files that are asked, what they are at this place, what stored documents answer,
    and the sentence about what is not searched.
    """
    if asked.ref:
        tree = source_tree.read_commit(ws, plumbing.resolve_commit(ws.places, asked.ref))
        state = f"the index at {asked.ref} is being built"
    else:
        tree = source_tree.read_work_tree(ws)
        state = f"the index is at {ws.sources.percent_indexed(tree) if tree else 0} %"
    notice = f"{terminal_text.escape_line(state)}: these results come from words and names only"
    stored = None
    missing: VmragError | None = None
    if ws.is_initialized:
        try:
            with index_build.refusing_long_work(ws):
                stored = _answer(ws, asked, budget, files=False)
        except TooManyDocuments:
            notice += ", and stored documents are not searched yet"
        except CollectionMissing:
            pass  # the files alone answer
        except NO_DOCUMENTS as error:
            missing = error
    else:
        missing = ws.elsewhere or reasons.explain_uninitialized(ws)
    notice = "; ".join([notice, *reasons.explain_missing_documents(missing)] if missing else [notice])
    return tree, build_without_index(tree) if tree else None, stored, f"{notice}."


def _is_stored(tree: SourceTree, asked: NarrowedQuestion) -> bool:
    return bool(asked.collection) and tree.find_source(asked.collection) is None


def _answer_at(ws: Workspace, asked: NarrowedQuestion, budget: int, at: RankedRevision) -> Passages:
    query = Query(
        text=asked.words,
        collections=(asked.collection,) if asked.collection else None,
        k=MOST_HITS,
        mode=Mode(at.retrieval.mode),
        narrowing=asked.narrowed,
    )
    found = packed_answer(ws, query, PackRequest(budget, frugal=True), at=at)
    return Passages(
        found.passages, found.tokens, found.left_out, build_origin(found.kb, found.notes), weak=found.weak is True
    )


def definitions_soon(ws: Workspace, asked: NarrowedQuestion) -> tuple[SymbolReport, AnswerOrigin, str]:
    """As `definitions`. If the index takes long to build, names in the files answer, and the last
    text is the sentence about it.
    """

    def answer_from_index() -> tuple[SymbolReport, AnswerOrigin, str]:
        return *find_definitions(ws, asked), ""

    def answer_from_words(deadline: float) -> tuple[SymbolReport, AnswerOrigin, str]:
        tree, opened, _, notice = _without_files(ws, asked, LEAST_BUDGET)
        standing, found = add_sources(find_git_origin(ws), opened), []
        if tree and not _is_stored(tree, asked):
            words = WordQuestion("", asked.collection, _without_symbol(asked))
            found = WordSearch(ws, tree, words, deadline).find_definitions(asked.symbol)
        return SymbolReport(asked.symbol, found, standing.kb), standing, notice

    return _ready_or_quick(ws, asked, answer_from_index, answer_from_words)


def related_code(ws: Workspace, asked: NarrowedQuestion, relation: Relation) -> tuple[RelationReport, AnswerOrigin]:
    """Return the callers or callees of the symbol.

    The errors are those of `list_related` and `ranked_at`.
    """
    at = ranked_at(ws, asked.ref, or_files=True) if asked.ref else None
    names = [asked.collection] if asked.collection else None
    found = list_related(ws, asked.symbol, relation, collections=names, among=_without_symbol(asked), at=at)
    return found, build_origin(found.kb, found.notes)


def _without_symbol(asked: NarrowedQuestion) -> Narrowing | None:
    return asked.narrowed and Narrowing(asked.narrowed.paths, asked.narrowed.languages, (), asked.narrowed.kinds)


def find_definitions(ws: Workspace, asked: NarrowedQuestion) -> tuple[SymbolReport, AnswerOrigin]:
    """Where the name is defined. Raises as `symbols`, and `ranked_at`."""
    at = ranked_at(ws, asked.ref, or_files=True) if asked.ref else None
    names = [asked.collection] if asked.collection else None
    found = find_symbols(ws, asked.symbol, collections=names, among=_without_symbol(asked), at=at)
    return found, build_origin(found.kb, found.notes)


def build_origin(kb: KbBlock, notes: Sequence[str]) -> AnswerOrigin:
    """Where an answer comes from whose documents are not looked at any more."""
    return AnswerOrigin(kb.commit, kb.commit, kb, tuple(notes))
