"""Pack the best pieces of several documents into a budget of tokens, as text for a language model.

Tokens are estimated without a model: four bytes of UTF-8 are one token, rounded up for each passage
with its head line. Equal answers are packed equally on every machine.
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

BYTES_PER_TOKEN = 4
"""Approximate number of ASCII characters per token; for other text, the number of bytes."""

_WHOLE_SYMBOL = 4
"""A cut symbol is packed whole if it needs at most this fraction (1/N) of the budget."""

_FULL = 20
"""The budget is full if less than this fraction (1/N) is left."""

_FIRST_OF_OTHER_KIND, _FURTHER_OF_OTHER_KIND = 2, 3
"""Divisor of the budget: the maximum part for the less likely kind, unless the first kind leaves
more.
"""

_MOST_MISSES = 50
"""After this number of pieces in a row that do not fit, no smaller ones are tried."""

_LONGEST_LINE = 2000
"""Characters. A piece within a longer line does not include the whole line."""

_NAMED_SYMBOLS, _MOST_NAMES = 4, 12

_LONGEST_ESCAPE = len(r"\U000e0041")

_INDENT = "  "
"""Start of each line of a document. A head line has none."""

Span = tuple[int, int]
"""Characters of a text: the first, and the one after the last."""

Cut = Literal["", "to fit", "within a line"]


class PackedPassage(Record, frozen=True):
    """Lines of a document, as they are in it."""

    rank: int
    """Rank of the best piece in it."""
    collection: str
    doc_id: str
    path: str | None
    """The file with these lines, from the top of the repository; None if the document is not such a
    file.
    """
    lines: tuple[int, int] | None
    """First and last line in the file or in the document's text, from 1; None if unknown."""
    symbol: str
    """Symbols of code in the passage, with their parents."""
    signature: str
    """Signature of a long symbol, or header row of a table, whose start is not in the passage."""
    heading: str
    """Headings above, separated by ` > `."""
    commit: str | None
    """Commit of a file."""
    revision: str | None
    """Revision of a stored document."""
    uncommitted: str
    """How the file differs from the commit."""
    cut: Cut
    """`to fit` if it alone exceeds the budget; `within a line` if it starts or ends within one."""
    tokens: int
    """Estimated, with the head line."""
    text: str
    name: str = ""
    """The name for messages (`shown_names`)."""
    outdated: str = ""
    """Changed places that a note cites; empty for other documents."""
    kind: ContentKind = "document"

    also_in: tuple[str, ...] = ()
    """The same as in `Hit`."""

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
        """For example `src/session.py:10-42  Session.refresh  (1a2b3c4)`."""
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
    """A document to pack, or a piece whose document cannot be read.

    Other fields are as in `PackedPassage`.
    """

    collection: str
    doc_id: str
    text: str
    path: str | None
    above: int | None
    """Number of lines of the file above the text; None if no lines are known."""
    pieces: Sequence[IndexedPiece] = ()
    """Pieces of code."""
    headings: HeaderPaths | None = None
    """None for code, as is `table_headers`."""
    table_headers: TableHeaders | None = None
    commit: str | None = None
    revision: str | None = None
    uncommitted: str = ""
    name: str = ""
    kind: ContentKind = "document"


class PackableHit(Record, frozen=True):
    """A ranked piece."""

    rank: int
    key: Hashable
    spans: tuple[Span, ...]
    """Alternatives to pack, the best first. The first that fits is used."""
    beside: tuple[Span, ...] = ()
    """Neighbours, which are added if they fit."""


class Packed(Record, frozen=True):
    """A packed answer. `left_out`: the number of ranked pieces that did not fit."""

    passages: tuple[PackedPassage, ...]
    tokens: int
    left_out: int


def signature_above(pieces: Sequence[IndexedPiece], number: int) -> str:
    """Return the signature of a piece's symbol if the symbol starts in an earlier piece, or ""."""
    piece = pieces[number]
    declaration, within = (piece.symbol, piece.kind), f"{piece.symbol}."
    if not piece.symbol or any(declared[:2] == declaration for declared in piece.declared):
        return ""
    for earlier in reversed(pieces[:number]):
        if _is_same_symbol(earlier, piece) or any(declared[:2] == declaration for declared in earlier.declared):
            return piece.signature
        if not earlier.symbol.startswith(within):
            break
    return ""


def whole_symbol(pieces: Sequence[IndexedPiece], number: int) -> range:
    """Return the adjacent pieces around this one that are parts of the same symbol."""
    piece = pieces[number]
    first, end = number, number + 1
    while piece.symbol and first > 0 and _is_same_symbol(pieces[first - 1], piece):
        first -= 1
    while piece.symbol and end < len(pieces) and _is_same_symbol(pieces[end], piece):
        end += 1
    return range(first, end)


def _is_same_symbol(one: IndexedPiece, other: IndexedPiece) -> bool:
    return (one.symbol, one.kind, one.signature) == (other.symbol, other.kind, other.signature)


def also_in_line(names: Sequence[str]) -> str:
    """Return other places of a result, such as `also in: fr, zh-cn, examples/a.md`, or nothing."""
    if not names:
        return ""
    more = [f"{len(names) - _MOST_NAMES} more"] if len(names) > _MOST_NAMES else []
    return f"also in: {', '.join([*map(terminal_text.escape_line, names[:_MOST_NAMES]), *more])}"


def estimate_tokens(text: str) -> int:
    """Estimate the number of tokens of a text, as described above."""
    return -(-len(text.encode(errors="replace")) // BYTES_PER_TOKEN)


def _form_block(passage: PackedPassage) -> str:
    """Return a passage as it is in an answer, with an empty line after it."""
    return "".join(f"{line}\n" for line in [*passage.shown_lines, ""])


def _count_shown_bytes(text: str) -> int:
    """Return the length of a text with its indentation and escapes."""
    return len("\n".join(terminal_text.mark_lines(text, _INDENT)).encode(errors="replace"))


def pack_hits(hits: Sequence[PackableHit], documents: Mapping[Hashable, PackableDocument], budget: int) -> Packed:
    """Return the best hits, in the given order, that fit into `budget` tokens.

    Hits of one document that touch or overlap become one passage. The first hit is always included,
    cut if necessary. A hit that does not fit is left out in favour of smaller ones. Documents are
    in the order of their best hits, and the passages of each in the order of its text.
    """
    packer = _Packer(documents, budget)
    fitted = misses = 0
    missed: list[PackableHit] = []
    for hit in hits:
        if packer.add_hit(hit):
            fitted, misses = fitted + 1, 0
        elif not fitted:
            return Packed((packer.cut_hit(hit),), packer.used, len(hits) - 1)
        else:
            misses += 1
            missed.append(hit)
        if misses >= _MOST_MISSES or packer.is_full:
            break
    packer.lift_share()
    for hit in missed[:_MOST_MISSES]:
        fitted += not packer.is_full and packer.add_hit(hit)
    return Packed(tuple(packer.list_passages()), packer.used, len(hits) - fitted)


@dataclass(slots=True)
class _Held:
    """The packed parts of one document. `cost`: the tokens of its passages."""

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

    def add_hit(self, hit: PackableHit) -> bool:
        """Add a hit with its neighbours if it fits. Return whether it does."""
        held = self._held.get(hit.key) or _Held(_Passages(self._documents[hit.key]))
        whole = self._budget // _WHOLE_SYMBOL
        *larger, least = dict.fromkeys(hit.spans)
        if not (any(self._add_span(hit, held, span, whole) for span in larger) or self._add_span(hit, held, least)):
            return False
        self._held.setdefault(hit.key, held)
        for span in hit.beside:
            self._add_span(hit, held, span)
        return True

    def _add_span(self, hit: PackableHit, held: _Held, span: Span, max_tokens: int | None = None) -> bool:
        """Add a part of a document if it fits, and if it needs at most `max_tokens` more tokens.

        Return whether it was added.
        """
        spans = held.text.join_spans([*held.spans, held.text.whole_lines(span)])
        cost = sum(held.text.form_passage(joined_span).tokens for joined_span in spans)
        more = cost - held.cost
        kind = self._documents[hit.key].kind
        if self.used + more > self._budget or (max_tokens is not None and more > max_tokens):
            return False
        if self._used[kind] + more > self._token_limit(kind):
            return False
        held.ranks.setdefault(held.text.whole_lines(span), hit.rank)
        held.spans, held.cost = spans, cost
        self._used[kind] += more
        self.used += more
        return True

    def cut_hit(self, hit: PackableHit) -> PackedPassage:
        """Return as much of a hit as fits."""
        text = _Passages(self._documents[hit.key])
        passage = text.cut_hit(text.whole_lines(hit.spans[-1]), hit.rank, self._budget)
        self.used = passage.tokens
        return passage

    def list_passages(self) -> Iterator[PackedPassage]:
        for held in self._held.values():
            for start, end in held.spans:
                rank = min(rank for (one, other), rank in held.ranks.items() if start <= one and other <= end)
                yield replace(held.text.form_passage((start, end)), rank=rank)


class _Passages:
    """Makes passages of one document."""

    def __init__(self, document: PackableDocument) -> None:
        self._document = document
        self._passages_by_span: dict[Span, PackedPassage] = {}

    def whole_lines(self, span: Span) -> Span:
        """Extend a part of the text to whole lines, without blank lines at its ends."""
        text = self._document.text
        start, end = span
        first, line_end = text.rfind("\n", 0, start) + 1, text.find("\n", max(start, end - 1))
        start = first if start - first <= _LONGEST_LINE else start
        line_end = len(text) if line_end < 0 else line_end
        end = line_end if line_end - end <= _LONGEST_LINE else end
        trimmed = text[start:end].rstrip()
        blank = len(trimmed) - len(trimmed.lstrip())
        line_end = text.find("\n", start + len(trimmed), end)
        return start + trimmed.rfind("\n", 0, blank) + 1, end if line_end < 0 else line_end

    def join_spans(self, spans: Sequence[Span]) -> list[Span]:
        """Join parts of the text with only blanks between them, in the order of the text."""
        joined: list[Span] = []
        for start, end in sorted(spans):
            if joined and not self._document.text[joined[-1][1] : start].strip():
                joined[-1] = joined[-1][0], max(joined[-1][1], end)
            else:
                joined.append((start, end))
        return joined

    def form_passage(self, span: Span) -> PackedPassage:
        """Return the passage of a part of the text, without a rank."""
        if span not in self._passages_by_span:
            self._passages_by_span[span] = self._make_passage(span)
        return self._passages_by_span[span]

    def cut_hit(self, span: Span, rank: int, budget: int) -> PackedPassage:
        """Return as many lines of a part as the budget allows, or as many characters of the first
        line.

        The head line is always included.
        """
        start, _ = span
        frame = replace(self._make_passage(span, cut="to fit"), text="")
        room = max(0, budget * BYTES_PER_TOKEN - len(_form_block(frame).encode(errors="replace")) - 1)
        text = self._document.text[start : span[1]]
        fitting = text.encode(errors="replace")[:room].decode(errors="ignore")
        while (excess := _count_shown_bytes(fitting) - room) > 0:
            fitting = fitting[: -max(1, excess // _LONGEST_ESCAPE)]
        length = fitting.rfind("\n") if "\n" in fitting else len(fitting)
        return replace(self._make_passage((start, start + length), cut="to fit"), rank=rank)

    def _make_passage(self, span: Span, *, cut: Cut = "") -> PackedPassage:
        document, (start, end) = self._document, span
        text = document.text[start:end]
        starts_within = start > 0 and document.text[start - 1] != "\n"
        if not cut and (starts_within or document.text[end : end + 1] not in ("", "\n")):
            cut = "within a line"
        lines = None
        if document.above is not None:
            first = document.above + document.text.count("\n", 0, start) + 1
            lines = first, first + text.count("\n")
        symbol, signature = self._find_symbols(span)
        if document.table_headers:
            signature = document.table_headers.find_header(start)
        passage = PackedPassage(
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
        return replace(passage, tokens=estimate_tokens(_form_block(passage)))

    def _find_symbols(self, span: Span) -> tuple[str, str]:
        """Return the symbols in a part of the text, and the signature above it."""
        pieces, (start, end) = self._document.pieces, span
        if not pieces:
            return "", ""
        first = max(number for number, piece in enumerate(pieces) if piece.start <= start)
        inside = (piece.symbol for piece in pieces[first:] if piece.start < max(end, start + 1))
        names = list(dict.fromkeys(filter(None, inside)))
        more = ["…"] if len(names) > _NAMED_SYMBOLS else []
        return ", ".join([*names[:_NAMED_SYMBOLS], *more]), signature_above(pieces, first)
