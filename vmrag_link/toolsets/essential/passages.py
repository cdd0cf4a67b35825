"""What answers a question, or defines a name: places with their lines, here or at a git ref."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from vmrag_link.models import Record
from vmrag_link.ops.follow.provenance import KbBlock, RankedRevision, Standing, ranked_at
from vmrag_link.ops.index.packed_answer import PackRequest, packed_answer
from vmrag_link.ops.index.packing import PackedPassage
from vmrag_link.ops.index.query import with_untracked_matches
from vmrag_link.ops.index.similar import SimilarRequest, similar
from vmrag_link.ops.index.symbols import SymbolReport, symbols
from vmrag_link.retrieval.narrowing import Narrowing, combine, narrowing, parse
from vmrag_link.retrieval.query import MOST_HITS, Mode, Query
from vmrag_link.workspace import Workspace


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
    """`left_out`: so many more answer, and did not fit. `standing`: where they come from."""

    found: Sequence[PackedPassage]
    tokens: int
    left_out: int
    standing: Standing


def question(
    query: str, *, path: str = "", lang: str = "", symbol: str = "", kind: str = "", collection: str = "", ref: str = ""
) -> NarrowedQuestion:
    """Raises `UsageInvalid` for a language or kind that there is not."""
    given = narrowing(paths=_some(path), languages=_some(lang), symbols=_some(symbol), kinds=_some(kind))
    words, prefixed = parse(query)
    narrowed = combine(given, prefixed)
    alone = symbol if symbol and not words.strip() else ""
    return NarrowedQuestion(words.strip() or (narrowed.words if narrowed else ""), narrowed, alone, collection, ref)


def _some(value: str) -> tuple[str, ...]:
    return (value,) if value else ()


def answer(ws: Workspace, asked: NarrowedQuestion, budget: int) -> Passages:
    """The best passages of documents and code. Raises as `query.query`, and `ranked_at`."""
    from vmrag_link.ops.system import stores

    if asked.ref:
        return _answer_at(ws, asked, budget, ranked_at(ws, asked.ref))
    store = stores.readable(ws, asked.collection) if asked.collection else ws
    mode = Mode(ws.config.retrieval.mode)
    request = SimilarRequest(MOST_HITS, mode, narrowing=asked.narrowed, pack=PackRequest(budget))
    found = similar(store, asked.collection or None, [asked.words], request)
    assert found.packed is not None  # noqa: S101  the request asks for it
    collections = (asked.collection,) if asked.collection else None
    query = Query(asked.words, collections, ws.config.retrieval.k, mode, narrowing=asked.narrowed)
    kb = with_untracked_matches(ws, query, found.standing.kb)
    stands = replace(found.standing, kb=kb)
    return Passages(found.packed.passages, found.packed.tokens, found.packed.left_out, stands)


def _answer_at(ws: Workspace, asked: NarrowedQuestion, budget: int, at: RankedRevision) -> Passages:
    query = Query(
        text=asked.words,
        collections=(asked.collection,) if asked.collection else None,
        k=MOST_HITS,
        mode=Mode(at.retrieval.mode),
        narrowing=asked.narrowed,
    )
    found = packed_answer(ws, query, PackRequest(budget), at=at)
    return Passages(found.passages, found.tokens, found.left_out, stood(found.kb, found.notes))


def definitions(ws: Workspace, asked: NarrowedQuestion) -> tuple[SymbolReport, Standing]:
    """Where the name is defined. Raises as `symbols`, and `ranked_at`."""
    at = ranked_at(ws, asked.ref) if asked.ref else None
    among = asked.narrowed and Narrowing(asked.narrowed.paths, asked.narrowed.languages, (), asked.narrowed.kinds)
    found = symbols(ws, asked.symbol, collections=[asked.collection] if asked.collection else None, among=among, at=at)
    return found, stood(found.kb, found.notes)


def stood(kb: KbBlock, notes: Sequence[str]) -> Standing:
    """Where an answer comes from whose documents are not looked at any more."""
    return Standing(kb.commit, kb.commit, kb, tuple(notes))
