"""Passages that answer a question, and definitions of a name, with their lines, here or at a git
ref.

The tools `search` and `read` call this module. A client ends a call that takes long, so a question
never waits for a long build of the index: another process builds it, and the words and names in
files answer until it is complete.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

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
from vmrag_link.retrieval.query import MAX_PACKED_HITS, MIN_BUDGET_TOKENS, Mode, Query
from vmrag_link.sync import background
from vmrag_link.toolsets.essential import index_build
from vmrag_link.toolsets.essential.index_build import TooManyDocuments
from vmrag_link.workspace import Workspace, reasons, source_tree
from vmrag_link.workspace.answers.packing import PackedPassage
from vmrag_link.workspace.answers.query import with_untracked_matches
from vmrag_link.workspace.follow.provenance import AnswerOrigin, KbBlock, add_sources, find_git_origin
from vmrag_link.workspace.follow.search_scope import RankedRevision, ranked_at
from vmrag_link.workspace.source_index import build_without_index
from vmrag_link.workspace.source_tree import SourceTree
from vmrag_link.workspace.worktree import OpenSources

ANSWER_SECONDS = 3.5
"""Approximate maximum time of a search without an index."""

_SYMBOL = re.compile(
    r"(?:(?:async\s+)?def\s+|class\s+|func(?:tion)?\s+|fn\s+)?"
    r"(?:(?P<path>[^:()\s]+\.\w+)::)?(?P<name>[^()\s]+)\s*(?:\(.*)?:?",
    re.DOTALL,
)
"""A symbol in the forms that models use: `def refresh(self):`,
`src/session.py::Session::refresh`.
"""

T = TypeVar("T")


class NarrowedQuestion(Record, frozen=True):
    """A question with its filters. Without other words, `words` are those of the filters.

    `symbol` is the name if the question is only about its definition. An empty `collection` means
    all, and an empty `ref` means the work tree.
    """

    words: str
    narrowed: Narrowing | None
    symbol: str
    collection: str
    ref: str


class Passages(Record, frozen=True):
    """The passages of an answer.

    `left_out` counts passages that did not fit. `origin` names the revision and files that have
    the passages. `notice` is the sentence about an incomplete index.
    """

    passages: Sequence[PackedPassage]
    tokens: int
    left_out: int
    origin: AnswerOrigin
    notice: str = ""
    weak: bool = False
    """True if no passage helps (`retrieval.weakness`)."""


def parse_question(
    query: str, *, path: str = "", lang: str = "", symbol: str = "", kind: str = "", collection: str = "", ref: str = ""
) -> NarrowedQuestion:
    """Return the question. Raises `UsageInvalid` for an unknown language or kind.

    A symbol can be the first line of a definition, or `PATH::NAME` as in pytest.
    """
    form = _SYMBOL.fullmatch(symbol)
    if form:
        symbol = form["name"]
        path = path or form["path"] or ""
    given = make_narrowing(
        paths=_as_tuple(path), languages=_as_tuple(lang), symbols=_as_tuple(symbol), kinds=_as_tuple(kind)
    )
    words, prefixed = parse_query(query)
    narrowed = combine_narrowings(given, prefixed)
    return NarrowedQuestion(
        words=words.strip() or (narrowed.words if narrowed else ""),
        narrowed=narrowed,
        symbol="" if words.strip() else symbol,
        collection=collection,
        ref=ref,
    )


def _as_tuple(value: str) -> tuple[str, ...]:
    return (value,) if value else ()


def find_passages(ws: Workspace, question: NarrowedQuestion, budget: int) -> Passages:
    """Return the best passages of documents and code.

    `budget`: the maximum number of tokens. Raises the errors of `query.query` and `ranked_at`.
    """
    return _answer_in_time(
        ws,
        question,
        from_index=lambda: _answer_from_index(ws, question, budget),
        from_words=lambda deadline: _answer_from_words(ws, question, budget, deadline),
    )


def _answer_in_time(
    ws: Workspace, question: NarrowedQuestion, *, from_index: Callable[[], T], from_words: Callable[[float], T]
) -> T:
    """Return the answer of the index if it is complete or soon will be, or else of words.

    `from_words` gets the time by which it must end (`time.monotonic`).
    """
    start = time.monotonic()
    commit = plumbing.resolve_commit(ws.places, question.ref) if question.ref else ""
    job = background.get_index_job(ws.places, commit)
    background.report_notes(job, ws.progress.note)
    failed = background.read_report(job)
    if failed and failed.error:
        job.report.unlink(missing_ok=True)
        return from_index()  # it raises what is wrong, or knows another way
    while True:
        try:
            with index_build.refusing_long_work(ws):
                return from_index()
        except TooManyDocuments as work:
            try:
                index_build.ensure_build(job, ws.places, commit)
            except OSError as error:
                if not refuses_writing(error):
                    raise
                return from_index()
            is_short = work.size <= index_build.MAX_AWAITED_DOCUMENTS
            seconds = start + index_build.WAIT_SECONDS - time.monotonic() if is_short else 0
            if not background.wait_for_end(job, within=max(0.0, seconds)):
                return from_words(start + ANSWER_SECONDS)
            if background.read_report(job):
                return from_index()


def _answer_from_index(ws: Workspace, question: NarrowedQuestion, budget: int, *, files: bool = True) -> Passages:
    """Return the best passages. Without `files`, only stored documents answer."""
    from vmrag_link.ops.stores import stores

    if question.ref:
        at = ranked_at(ws, question.ref, or_files=files)
        return _answer_at(ws, question, budget, at if files else replace(at, commit=None, config=None))
    store = stores.find_readable(ws, question.collection) if question.collection else ws
    mode = Mode(ws.config.retrieval.mode)
    request = SimilarRequest(
        MAX_PACKED_HITS, mode, narrowing=question.narrowed, pack=PackRequest(budget, frugal=True), files=files
    )
    report = find_similar(store, question.collection or None, [question.words], request)
    assert report.packed is not None  # noqa: S101  the request asks for it
    collections = (question.collection,) if question.collection else None
    query = Query(question.words, collections, ws.config.retrieval.k, mode, narrowing=question.narrowed)
    kb = with_untracked_matches(ws, query, report.origin.kb)
    origin = replace(report.origin, kb=kb)
    return Passages(report.packed.passages, report.packed.tokens, report.packed.left_out, origin, weak=all(report.weak))


def _answer_from_words(ws: Workspace, question: NarrowedQuestion, budget: int, deadline: float) -> Passages:
    """Return passages of files by words, and of stored documents if their index is complete."""
    unindexed = _read_unindexed(ws, question, budget // 2)
    stored = unindexed.stored or Passages((), 0, 0, find_git_origin(ws))
    origin = add_sources(stored.origin, unindexed.sources)
    if unindexed.tree is None:
        return replace(stored, origin=origin, notice=unindexed.notice, weak=False)
    words = WordQuestion(question.words, question.collection, question.narrowed)
    packed = WordSearch(ws, unindexed.tree, words, deadline).find_passages(budget - stored.tokens)
    return Passages(
        passages=[*packed.passages, *stored.passages],
        tokens=packed.tokens + stored.tokens,
        left_out=packed.left_out + stored.left_out,
        origin=origin,
        notice=unindexed.notice,
    )


class _Unindexed(NamedTuple):
    """Everything that answers while the index of files is being built."""

    tree: SourceTree | None
    """The files to search; None if the question is about a stored collection."""
    sources: OpenSources | None
    """The state of the files, for the origin of the answer."""
    stored: Passages | None
    """The answer of stored documents, if their index is complete."""
    notice: str
    """The sentence about files and documents that are not searched."""


def _read_unindexed(ws: Workspace, question: NarrowedQuestion, budget: int) -> _Unindexed:
    if question.ref:
        tree = source_tree.read_commit(ws, plumbing.resolve_commit(ws.places, question.ref))
        state = f"the index at {question.ref} is being built"
    else:
        tree = source_tree.read_work_tree(ws)
        state = f"the index is at {ws.source_index.percent_indexed(tree) if tree else 0} %"
    notice = f"{terminal_text.escape_line(state)}: these results come from words and names only"
    stored = None
    missing: VmragError | None = None
    if ws.is_initialized:
        try:
            with index_build.refusing_long_work(ws):
                stored = _answer_from_index(ws, question, budget, files=False)
        except TooManyDocuments:
            notice += ", and stored documents are not searched yet"
        except CollectionMissing:
            pass  # the files alone answer
        except NO_DOCUMENTS as error:
            missing = error
    else:
        missing = ws.clone_error or reasons.explain_uninitialized(ws)
    notice = "; ".join([notice, *reasons.explain_missing_documents(missing)] if missing else [notice])
    sources = build_without_index(tree) if tree else None
    if tree and question.collection and tree.find_source(question.collection) is None:
        tree = None
    return _Unindexed(tree, sources, stored, f"{notice}.")


def _answer_at(ws: Workspace, question: NarrowedQuestion, budget: int, at: RankedRevision) -> Passages:
    query = Query(
        text=question.words,
        collections=(question.collection,) if question.collection else None,
        k=MAX_PACKED_HITS,
        mode=Mode(at.retrieval.mode),
        narrowing=question.narrowed,
    )
    answer = packed_answer(ws, query, PackRequest(budget, frugal=True), at=at)
    origin = _build_origin_at(ws, question.ref, answer.kb, answer.notes)
    return Passages(answer.passages, answer.tokens, answer.left_out, origin, weak=answer.weak is True)


def definitions_soon(ws: Workspace, question: NarrowedQuestion) -> tuple[SymbolReport, AnswerOrigin, str]:
    """Return the definitions of a name (`find_definitions`), and a sentence about the index.

    If building the index takes long, names in the files answer. Otherwise the sentence is empty.
    """

    def answer_from_index() -> tuple[SymbolReport, AnswerOrigin, str]:
        return *find_definitions(ws, question), ""

    def answer_from_words(deadline: float) -> tuple[SymbolReport, AnswerOrigin, str]:
        unindexed = _read_unindexed(ws, question, MIN_BUDGET_TOKENS)
        origin = add_sources(find_git_origin(ws), unindexed.sources)
        definitions = []
        if unindexed.tree:
            words = WordQuestion("", question.collection, _without_symbol(question))
            definitions = WordSearch(ws, unindexed.tree, words, deadline).find_definitions(question.symbol)
        return SymbolReport(question.symbol, definitions, origin.kb), origin, unindexed.notice

    return _answer_in_time(ws, question, from_index=answer_from_index, from_words=answer_from_words)


def related_code(ws: Workspace, question: NarrowedQuestion, relation: Relation) -> tuple[RelationReport, AnswerOrigin]:
    """Return the callers or callees of the symbol.

    Raises the errors of `list_related` and `ranked_at`.
    """
    at = ranked_at(ws, question.ref, or_files=True) if question.ref else None
    names = [question.collection] if question.collection else None
    report = list_related(ws, question.symbol, relation, collections=names, among=_without_symbol(question), at=at)
    return report, _build_origin_at(ws, question.ref, report.kb, report.notes)


def _without_symbol(question: NarrowedQuestion) -> Narrowing | None:
    return question.narrowed and Narrowing(
        question.narrowed.paths, question.narrowed.languages, (), question.narrowed.kinds
    )


def find_definitions(ws: Workspace, question: NarrowedQuestion) -> tuple[SymbolReport, AnswerOrigin]:
    """Return the definitions of the name. Raises the errors of `find_symbols` and `ranked_at`."""
    at = ranked_at(ws, question.ref, or_files=True) if question.ref else None
    names = [question.collection] if question.collection else None
    report = find_symbols(ws, question.symbol, collections=names, among=_without_symbol(question), at=at)
    return report, _build_origin_at(ws, question.ref, report.kb, report.notes)


def _build_origin_at(ws: Workspace, ref: str, kb: KbBlock, notes: Sequence[str]) -> AnswerOrigin:
    """Return the origin of an answer from `ref`, or from the work tree if it is empty.

    Without sources, the block names git's HEAD, which is another commit.
    """
    if ref and kb.sources is None:
        kb = replace(kb, git_head=plumbing.resolve_commit(ws.places, ref))
    return build_origin(kb, notes)


def build_origin(kb: KbBlock, notes: Sequence[str]) -> AnswerOrigin:
    """Return the origin of an answer whose documents are not read again."""
    return AnswerOrigin(kb.commit, kb.commit, kb, tuple(notes))
