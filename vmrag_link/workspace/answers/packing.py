"""The best pieces of several documents in a budget of tokens, as text for a language model.

Tokens are estimated without a model: four bytes of UTF-8 are one, rounded up for each passage with
its head line. Equal answers are packed equally on every machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from msgspec.structs import replace

from vmrag_link import terminal_text
from vmrag_link.documents.chunking import HeaderPaths
from vmrag_link.documents.table_headers import TableHeaders
from vmrag_link.models import ContentKind, IndexedPiece, Record

CHARACTERS_OF_TOKEN = 4
"""About; of ASCII. Of other text so many bytes."""

_WHOLE_SYMBOL = 4
"""A symbol that was cut comes whole if it takes no more than one part in so many of the budget."""

_FULL = 20
"""The budget counts as full if less than one part in so many is left."""

_FIRST_OF_OTHER_KIND, _FURTHER_OF_OTHER_KIND = 2, 3
"""Divisor of the budget: the maximum part for the less likely kind, unless the first kind leaves
more.
"""

_MOST_MISSES = 50
"""So many pieces in a row that did not fit end the search for smaller ones."""

_LONGEST_LINE = 2000
"""Characters. A piece within a longer line does not bring the whole line along."""

_NAMED_SYMBOLS, _MOST_NAMES = 4, 12

_LONGEST_ESCAPE = len(r"\U000e0041")

_INDENT = "  "
"""The beginning of each line of a document. A head line has none."""

Span = tuple[int, int]
"""Characters of a text: the first one, and the one behind the last."""

Cut = Literal["", "to fit", "within a line"]


class PackedPassage(Record, frozen=True):
    """Lines of a document, as they are in it.

    `path`: the file below the top of the repository whose lines these are; None: the document came
    from no such file. `lines`: the first and the last line there, or in the document's text, from
    1; None if that cannot be read. `symbol`: what of code it is, with its parents; `signature`:
    that of a long symbol, or the header row of a table, whose beginning is not in the passage.
    `heading`: the headings above, with ` > ` between them. `commit`: of a file, whose state there
    `uncommitted` says; `revision`: of a stored document. `name`: as in `shown_names`. `rank`: of
    the best piece in it. `cut`: `to fit` for one that alone exceeds the budget; `within a line` if
    it begins or ends there. `tokens`: estimated, with the head line.
    """

    rank: int
    collection: str
    doc_id: str
    path: str | None
    lines: tuple[int, int] | None
    symbol: str
    signature: str
    heading: str
    commit: str | None
    revision: str | None
    uncommitted: str
    cut: Cut
    tokens: int
    text: str
    name: str = ""
    outdated: str = ""
    """Changed places that a note cites; empty for other documents."""
    kind: ContentKind = "document"

    also_in: tuple[str, ...] = ()
    """As in `Hit`."""

    @property
    def shown_place(self) -> str:
        """The name, with lines if known. A stored document of a file has the file's path."""
        name = self.path if self.path and self.revision else self.name or self.path
        name = name or f"{self.collection}/{self.doc_id}"
        if self.lines is None:
            return name
        first, last = self.lines
        return f"{name}:{first}" if first == last else f"{name}:{first}-{last}"

    @property
    def head(self) -> str:
        """`src/session.py:10-42  Session.refresh  (1a2b3c4)`."""
        cut = f"cut {self.cut}" if self.cut else ""
        origin = (self.commit or self.revision or "")[:7] or ("not committed" if self.path else "not versioned")
        state = ", ".join(filter(None, (origin, "uncommitted" if self.uncommitted else "", cut)))
        return "  ".join(filter(None, (self.shown_place, self.symbol or self.heading, f"({state})")))

    @property
    def shown_lines(self) -> list[str]:
        """The passage as text: its head, and indented, the signature above it, and its lines."""
        above = [f"{_INDENT}… {self.signature}"] if self.signature else []
        above += [f"{_INDENT}({self.outdated})"] if self.outdated else []
        above += [f"{_INDENT}({also_in_line(self.also_in)})"] if self.also_in else []
        return [self.head, *above, *terminal_text.mark_lines(self.text, _INDENT)]


class PackableDocument(Record, frozen=True):
    """A document of which passages are packed, or a piece whose document cannot be read.

    `path`: as in `PackedPassage`; `above`: so many lines of the file are not of the text, which
    follows them; None where no lines are known. `pieces`: those of code.
    `headings`, `table_headers`: None for code. Other fields are as in `PackedPassage`.
    """

    collection: str
    doc_id: str
    text: str
    path: str | None
    above: int | None
    pieces: Sequence[IndexedPiece] = ()
    headings: HeaderPaths | None = None
    table_headers: TableHeaders | None = None
    commit: str | None = None
    revision: str | None = None
    uncommitted: str = ""
    name: str = ""
    kind: ContentKind = "document"


class PackableHit(Record, frozen=True):
    """A ranked piece: `spans` are what of its document to pack, the best first: the first that fits
    is taken. `beside`: its neighbours, which come along if they fit.
    """

    rank: int
    key: Hashable
    spans: tuple[Span, ...]
    beside: tuple[Span, ...] = ()


class Packed(Record, frozen=True):
    """`left_out`: so many of the ranked pieces did not fit."""

    passages: tuple[PackedPassage, ...]
    tokens: int
    left_out: int


def signature_above(pieces: Sequence[IndexedPiece], number: int) -> str:
    """The signature of the symbol that this piece belongs to, if it begins in an earlier piece."""
    own = pieces[number]
    begun, within = (own.symbol, own.kind), f"{own.symbol}."
    if not own.symbol or any(declared[:2] == begun for declared in own.declared):
        return ""
    for piece in reversed(pieces[:number]):
        if _same_symbol(piece, own) or any(declared[:2] == begun for declared in piece.declared):
            return own.signature
        if not piece.symbol.startswith(within):
            break
    return ""


def whole_symbol(pieces: Sequence[IndexedPiece], number: int) -> range:
    """The pieces around this one that are parts of the same symbol, with nothing between them."""
    own = pieces[number]
    first, end = number, number + 1
    while own.symbol and first > 0 and _same_symbol(pieces[first - 1], own):
        first -= 1
    while own.symbol and end < len(pieces) and _same_symbol(pieces[end], own):
        end += 1
    return range(first, end)


def _same_symbol(one: IndexedPiece, other: IndexedPiece) -> bool:
    return (one.symbol, one.kind, one.signature) == (other.symbol, other.kind, other.signature)


def also_in_line(names: Sequence[str]) -> str:
    """Return other places of a result, such as `also in: fr, zh-cn, examples/a.md`, or nothing."""
    if not names:
        return ""
    more = [f"{len(names) - _MOST_NAMES} more"] if len(names) > _MOST_NAMES else []
    return f"also in: {', '.join([*map(terminal_text.escape_line, names[:_MOST_NAMES]), *more])}"


def estimate_tokens(text: str) -> int:
    """An estimate: see above."""
    return -(-len(text.encode(errors="replace")) // CHARACTERS_OF_TOKEN)


def _block(passage: PackedPassage) -> str:
    """A passage as it stands in an answer, with an empty line behind it."""
    return "".join(f"{each}\n" for each in [*passage.shown_lines, ""])


def _shown_bytes(text: str) -> int:
    """Return the length of a text with its indentation and escapes."""
    return len("\n".join(terminal_text.mark_lines(text, _INDENT)).encode(errors="replace"))


def pack_hits(hits: Sequence[PackableHit], documents: Mapping[Hashable, PackableDocument], budget: int) -> Packed:
    """The best hits, in the order given, that have no more than `budget` tokens together.

    Those of one document that touch or overlap are one passage. The first hit is always there, cut
    if need be. One that does not fit is left out for smaller ones that do. The documents come in
    the order of their best hits, the passages of each in that of its text.
    """
    packer = _Packer(documents, budget)
    fitted = misses = 0
    left: list[PackableHit] = []
    for hit in hits:
        if packer.takes(hit):
            fitted, misses = fitted + 1, 0
        elif not fitted:
            return Packed((packer.cut(hit),), packer.used, len(hits) - 1)
        else:
            misses += 1
            left.append(hit)
        if misses >= _MOST_MISSES or packer.is_full:
            break
    packer.lift_share()
    for hit in left[:_MOST_MISSES]:
        fitted += not packer.is_full and packer.takes(hit)
    return Packed(tuple(packer.passages()), packer.used, len(hits) - fitted)


@dataclass(slots=True)
class _Held:
    """What is packed of one document; `cost`: the tokens of its passages."""

    text: _Passages
    ranks: dict[Span, int] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)
    cost: int = 0


class _Packer:
    """Takes hits until the budget is full."""

    def __init__(self, documents: Mapping[Hashable, PackableDocument], budget: int) -> None:
        self._documents, self._budget = documents, budget
        self._held: dict[Hashable, _Held] = {}
        self._first_kind: ContentKind | None = None
        self._shared = True
        self._used = Counter[ContentKind]()
        self.used = 0

    @property
    def is_full(self) -> bool:
        return (self._budget - self.used) * _FULL < self._budget

    def lift_share(self) -> None:
        """Let hits of each kind use the rest of the budget."""
        self._shared = False

    def _token_limit(self, kind: ContentKind) -> int:
        """Return how many tokens passages of a kind may have."""
        self._first_kind = self._first_kind or kind
        if kind == self._first_kind or not self._shared:
            return self._budget
        return self._budget // (_FURTHER_OF_OTHER_KIND if self._used[kind] else _FIRST_OF_OTHER_KIND)

    def takes(self, hit: PackableHit) -> bool:
        held = self._held.get(hit.key) or _Held(_Passages(self._documents[hit.key]))
        whole = self._budget // _WHOLE_SYMBOL
        *larger, least = dict.fromkeys(hit.spans)
        if not (any(self._add(hit, held, each, whole) for each in larger) or self._add(hit, held, least)):
            return False
        self._held.setdefault(hit.key, held)
        for each in hit.beside:
            self._add(hit, held, each)
        return True

    def _add(self, hit: PackableHit, held: _Held, span: Span, most: int | None = None) -> bool:
        """Whether this part of a document fits, in `most` tokens of its own."""
        spans = held.text.joined([*held.spans, held.text.whole_lines(span)])
        cost = sum(held.text.passage(each).tokens for each in spans)
        more = cost - held.cost
        kind = self._documents[hit.key].kind
        if self.used + more > self._budget or (most is not None and more > most):
            return False
        if self._used[kind] + more > self._token_limit(kind):
            return False
        held.ranks.setdefault(held.text.whole_lines(span), hit.rank)
        held.spans, held.cost = spans, cost
        self._used[kind] += more
        self.used += more
        return True

    def cut(self, hit: PackableHit) -> PackedPassage:
        """As much of a hit as fits."""
        text = _Passages(self._documents[hit.key])
        found = text.cut(text.whole_lines(hit.spans[-1]), hit.rank, self._budget)
        self.used = found.tokens
        return found

    def passages(self) -> Iterator[PackedPassage]:
        for held in self._held.values():
            for start, end in held.spans:
                rank = min(rank for (one, other), rank in held.ranks.items() if start <= one and other <= end)
                yield replace(held.text.passage((start, end)), rank=rank)


class _Passages:
    """Makes passages of one document."""

    def __init__(self, document: PackableDocument) -> None:
        self._document = document
        self._made: dict[Span, PackedPassage] = {}

    def whole_lines(self, span: Span) -> Span:
        """A part of the text up to the ends of its lines, without blank lines at its ends."""
        text = self._document.text
        start, end = span
        first, behind = text.rfind("\n", 0, start) + 1, text.find("\n", max(start, end - 1))
        start = first if start - first <= _LONGEST_LINE else start
        behind = len(text) if behind < 0 else behind
        end = behind if behind - end <= _LONGEST_LINE else end
        kept = text[start:end].rstrip()
        blank = len(kept) - len(kept.lstrip())
        behind = text.find("\n", start + len(kept), end)
        return start + kept.rfind("\n", 0, blank) + 1, end if behind < 0 else behind

    def joined(self, spans: Sequence[Span]) -> list[Span]:
        """In the order of the text; those with nothing but blanks between them together."""
        found: list[Span] = []
        for start, end in sorted(spans):
            if found and not self._document.text[found[-1][1] : start].strip():
                found[-1] = found[-1][0], max(found[-1][1], end)
            else:
                found.append((start, end))
        return found

    def passage(self, span: Span) -> PackedPassage:
        """Without a rank."""
        if span not in self._made:
            self._made[span] = self._passage(span)
        return self._made[span]

    def cut(self, span: Span, rank: int, budget: int) -> PackedPassage:
        """As many lines of a part of the text as the budget has room for, or, of the first line, as
        many characters; the head line comes in any case.
        """
        start, _ = span
        frame = replace(self._passage(span, cut="to fit"), text="")
        room = max(0, budget * CHARACTERS_OF_TOKEN - len(_block(frame).encode(errors="replace")) - 1)
        text = self._document.text[start : span[1]]
        fitting = text.encode(errors="replace")[:room].decode(errors="ignore")
        while (excess := _shown_bytes(fitting) - room) > 0:
            fitting = fitting[: -max(1, excess // _LONGEST_ESCAPE)]
        kept = fitting.rfind("\n") if "\n" in fitting else len(fitting)
        return replace(self._passage((start, start + kept), cut="to fit"), rank=rank)

    def _passage(self, span: Span, *, cut: Cut = "") -> PackedPassage:
        document, (start, end) = self._document, span
        text = document.text[start:end]
        starts_within = start > 0 and document.text[start - 1] != "\n"
        if not cut and (starts_within or document.text[end : end + 1] not in ("", "\n")):
            cut = "within a line"
        lines = None
        if document.above is not None:
            first = document.above + document.text.count("\n", 0, start) + 1
            lines = first, first + text.count("\n")
        symbol, signature = self._symbols(span)
        if document.table_headers:
            signature = document.table_headers.find_header(start)
        found = PackedPassage(
            rank=0,
            collection=document.collection,
            doc_id=document.doc_id,
            path=document.path,
            lines=lines,
            symbol=symbol,
            signature=signature,
            heading=document.headings.find_passage_path(start) if document.headings else "",
            commit=document.commit,
            revision=document.revision,
            uncommitted=document.uncommitted,
            cut=cut,
            tokens=0,
            text=text,
            name=document.name,
            kind=document.kind,
        )
        return replace(found, tokens=estimate_tokens(_block(found)))

    def _symbols(self, span: Span) -> tuple[str, str]:
        """Those in a part of the text, and the signature above it."""
        pieces, (start, end) = self._document.pieces, span
        if not pieces:
            return "", ""
        first = max(number for number, piece in enumerate(pieces) if piece.start <= start)
        inside = (piece.symbol for piece in pieces[first:] if piece.start < max(end, start + 1))
        names = list(dict.fromkeys(filter(None, inside)))
        more = ["…"] if len(names) > _NAMED_SYMBOLS else []
        return ", ".join([*names[:_NAMED_SYMBOLS], *more]), signature_above(pieces, first)
