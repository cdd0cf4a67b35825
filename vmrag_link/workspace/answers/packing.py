"""Pack the best pieces of several documents into a budget of tokens, as text for a language model.

`vmrag query --pack` and the tools call `pack_hits` with ranked hits. It takes them in their order
while they fit, so equal answers are packed equally on every machine. Tokens are estimated without a
model: four bytes of UTF-8 are one token, rounded up for each passage with its head line.

A *piece* is a chunk of a document. Hits are pieces, given by their *spans*: positions of characters
in the text. A *passage* is a part of a document in the packed text: whole lines around one or more
pieces.
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

_WHOLE_SYMBOL_DIVISOR = 4
"""A larger span of a hit, such as a whole symbol, must need at most 1/N of the budget."""

_FULL_DIVISOR = 20
"""The budget is full if less than 1/N of it is left."""

_FIRST_SHARE_DIVISOR = 2
"""If the best hit is code, the first document gets at most 1/N of the budget, and the reverse."""

_FURTHER_SHARE_DIVISOR = 3
"""All passages of the other kind get at most 1/N of the budget, if it has one already."""

_MAX_MISSES = 50
"""After this number of pieces in a row that do not fit, no smaller ones are tried."""

_MAX_LINE_CHARACTERS = 2000
"""A piece within a longer line does not include the whole line."""

_MAX_NAMED_SYMBOLS = 4
_MAX_ALSO_IN_NAMES = 12
_MAX_ESCAPE_CHARACTERS = len(r"\U000e0041")

_INDENT = "  "
"""Start of each line of a document. A head line has none."""

Span = tuple[int, int]
"""Characters of a text: the first, and the one after the last."""

Cut = Literal["", "to fit", "within a line"]


class PackedPassage(Record, frozen=True):
    """Whole lines of a document that are in the answer. Only long lines are cut."""

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
    """Estimated number of tokens, with the head line."""
    text: str
    name: str = ""
    """The name for messages (`shown_names`)."""
    outdated: str = ""
    """Changed places that a note cites; empty for other documents."""
    kind: ContentKind = "document"
    also_in: tuple[str, ...] = ()
    """Names of other documents with the same text (`Hit.also_in`)."""

    @property
    def shown_place(self) -> str:
        """The name of the document, with the lines if they are known.

        A stored document that was imported from a file has the file's path.
        """
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
    """A document to pack, or a single piece whose document cannot be read.

    Fields without a description are those of `PackedPassage`.
    """

    collection: str
    doc_id: str
    text: str
    path: str | None
    above: int | None
    """Number of lines of the file above the text; None if no lines are known."""
    pieces: Sequence[IndexedPiece] = ()
    """The pieces of a document of code."""
    headings: HeaderPaths | None = None
    """None for code, as is `table_headers`."""
    table_headers: TableHeaders | None = None
    commit: str | None = None
    revision: str | None = None
    uncommitted: str = ""
    name: str = ""
    kind: ContentKind = "document"


class PackableHit(Record, frozen=True):
    """A ranked piece of a document."""

    rank: int
    key: Hashable
    """The key of its document."""
    spans: tuple[Span, ...]
    """Alternatives to pack, the best first. The first that fits is used."""
    beside: tuple[Span, ...] = ()
    """Spans of neighbouring pieces, which are added if they fit."""


class Packed(Record, frozen=True):
    """A packed answer."""

    passages: tuple[PackedPassage, ...]
    tokens: int
    left_out: int
    """Number of hits that did not fit."""


def pack_hits(hits: Sequence[PackableHit], documents: Mapping[Hashable, PackableDocument], budget: int) -> Packed:
    """Return the best hits, in the given order, that fit into `budget` tokens.

    Hits of one document that touch or overlap become one passage. The first hit is always included,
    cut if necessary. A hit that does not fit is left out in favour of smaller ones. Documents are
    in the order of their best hits, and the passages of each in the order of its text.

    Code and text share the budget (`_FIRST_SHARE_DIVISOR`). In a second pass, hits that exceeded
    this share can use the rest.
    """
    packer = _Packer(documents, budget)
    fitting_count = 0
    misses_in_a_row = 0
    missed: list[PackableHit] = []
    for hit in hits:
        if packer.add_hit(hit, is_shared=True):
            fitting_count += 1
            misses_in_a_row = 0
        elif not fitting_count:
            passage = _cut_hit(hit, documents[hit.key], budget)
            return Packed((passage,), passage.tokens, len(hits) - 1)
        else:
            misses_in_a_row += 1
            missed.append(hit)
        if misses_in_a_row >= _MAX_MISSES or packer.is_full:
            break
    for hit in missed[:_MAX_MISSES]:
        if not packer.is_full and packer.add_hit(hit, is_shared=False):
            fitting_count += 1
    return Packed(tuple(packer.list_passages()), packer.used, len(hits) - fitting_count)


def _cut_hit(hit: PackableHit, document: PackableDocument, budget: int) -> PackedPassage:
    """Return the first lines of a hit that fit, or the first characters of its first line."""
    text = _DocumentText(document)
    start, end = text.whole_lines(hit.spans[-1])
    frame = replace(text.make_passage((start, end), cut="to fit"), text="")
    max_bytes = max(0, budget * BYTES_PER_TOKEN - len(_form_block(frame).encode(errors="replace")) - 1)
    fitting = document.text[start:end].encode(errors="replace")[:max_bytes].decode(errors="ignore")
    while (excess := _count_shown_bytes(fitting) - max_bytes) > 0:
        fitting = fitting[: -max(1, excess // _MAX_ESCAPE_CHARACTERS)]
    length = fitting.rfind("\n") if "\n" in fitting else len(fitting)
    return replace(text.make_passage((start, start + length), cut="to fit"), rank=hit.rank)


@dataclass(slots=True)
class _PackedDocument:
    """The parts of one document that are packed."""

    text: _DocumentText
    ranks: dict[Span, int] = field(default_factory=dict)
    """Rank of each added hit, by its whole lines."""
    spans: list[Span] = field(default_factory=list)
    """Spans of the passages."""
    tokens: int = 0
    """Tokens of the passages."""


class _Packer:
    """Take hits until the budget is full."""

    def __init__(self, documents: Mapping[Hashable, PackableDocument], budget: int) -> None:
        self._documents = documents
        self._budget = budget
        self._packed: dict[Hashable, _PackedDocument] = {}
        self._first_kind: ContentKind | None = None
        """The kind of the best hit: code or text."""
        self._used_by_kind = Counter[ContentKind]()

    @property
    def used(self) -> int:
        """The number of tokens of all passages."""
        return self._used_by_kind.total()

    @property
    def is_full(self) -> bool:
        return (self._budget - self.used) * _FULL_DIVISOR < self._budget

    def add_hit(self, hit: PackableHit, *, is_shared: bool) -> bool:
        """Add a hit with its neighbours if it fits. Return whether it does.

        `is_shared`: the kind of the best hit has priority, so the other kind gets only a share.
        """
        document = self._documents[hit.key]
        self._first_kind = self._first_kind or document.kind
        packed = self._packed.get(hit.key) or _PackedDocument(_DocumentText(document))
        symbol_limit = self._budget // _WHOLE_SYMBOL_DIVISOR
        *larger, least = dict.fromkeys(hit.spans)
        is_added = any(self._add_span(hit, packed, span, symbol_limit, is_shared=is_shared) for span in larger)
        if not is_added and not self._add_span(hit, packed, least, self._budget, is_shared=is_shared):
            return False
        self._packed.setdefault(hit.key, packed)
        for span in hit.beside:
            self._add_span(hit, packed, span, self._budget, is_shared=is_shared)
        return True

    def _add_span(
        self, hit: PackableHit, packed: _PackedDocument, span: Span, max_tokens: int, *, is_shared: bool
    ) -> bool:
        """Add a part of a document if it fits, and if it needs at most `max_tokens` more tokens.

        Return whether it was added.
        """
        lines = packed.text.whole_lines(span)
        spans = packed.text.join_spans([*packed.spans, lines])
        tokens = sum(packed.text.form_passage(joined_span).tokens for joined_span in spans)
        more = tokens - packed.tokens
        kind = self._documents[hit.key].kind
        kind_limit = self._limit_kind(kind) if is_shared else self._budget
        if more > max_tokens or self.used + more > self._budget or self._used_by_kind[kind] + more > kind_limit:
            return False
        packed.ranks.setdefault(lines, hit.rank)
        packed.spans = spans
        packed.tokens = tokens
        self._used_by_kind[kind] += more
        return True

    def _limit_kind(self, kind: ContentKind) -> int:
        """Return how many tokens the passages of a kind may have while the budget is shared."""
        if kind == self._first_kind:
            return self._budget
        return self._budget // (_FURTHER_SHARE_DIVISOR if self._used_by_kind[kind] else _FIRST_SHARE_DIVISOR)

    def list_passages(self) -> Iterator[PackedPassage]:
        """Yield the passages, each with the best rank of its hits."""
        for packed in self._packed.values():
            for start, end in packed.spans:
                ranks = (rank for (first, last), rank in packed.ranks.items() if start <= first and last <= end)
                yield replace(packed.text.form_passage((start, end)), rank=min(ranks))


class _DocumentText:
    """Make passages of the text of one document."""

    def __init__(self, document: PackableDocument) -> None:
        self._document = document
        self._passages_by_span: dict[Span, PackedPassage] = {}

    def whole_lines(self, span: Span) -> Span:
        """Extend a part of the text to whole lines, without blank lines at its ends."""
        text = self._document.text
        start, end = span
        line_start = text.rfind("\n", 0, start) + 1
        if start - line_start <= _MAX_LINE_CHARACTERS:
            start = line_start
        line_end = _find_line_end(text, max(span[0], end - 1), len(text))
        if line_end - end <= _MAX_LINE_CHARACTERS:
            end = line_end
        trimmed = text[start:end].rstrip()
        blank_length = len(trimmed) - len(trimmed.lstrip())
        first = start + trimmed.rfind("\n", 0, blank_length) + 1
        return first, _find_line_end(text, start + len(trimmed), end)

    def join_spans(self, spans: Sequence[Span]) -> list[Span]:
        """Join parts of the text with only blanks between them, in the order of the text."""
        joined: list[Span] = []
        for start, end in sorted(spans):
            previous_start, previous_end = joined[-1] if joined else (0, 0)
            if joined and not self._document.text[previous_end:start].strip():
                joined[-1] = previous_start, max(previous_end, end)
            else:
                joined.append((start, end))
        return joined

    def form_passage(self, span: Span) -> PackedPassage:
        """Return the passage of a part of the text, without a rank."""
        if span not in self._passages_by_span:
            self._passages_by_span[span] = self.make_passage(span)
        return self._passages_by_span[span]

    def make_passage(self, span: Span, *, cut: Cut = "") -> PackedPassage:
        """Return the passage of a part of the text, without a rank. `cut`: why the part ends."""
        document = self._document
        start, end = span
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
        pieces = self._document.pieces
        start, end = span
        if not pieces:
            return "", ""
        first = max(number for number, piece in enumerate(pieces) if piece.start <= start)
        symbols = (piece.symbol for piece in pieces[first:] if piece.start < max(end, start + 1))
        names = list(dict.fromkeys(filter(None, symbols)))
        more = ["…"] if len(names) > _MAX_NAMED_SYMBOLS else []
        return ", ".join([*names[:_MAX_NAMED_SYMBOLS], *more]), signature_above(pieces, first)


def _find_line_end(text: str, start: int, end: int) -> int:
    """Return the position of the first line break in this part of the text, or `end`."""
    line_end = text.find("\n", start, end)
    return end if line_end < 0 else line_end


def estimate_tokens(text: str) -> int:
    """Return the estimated number of tokens of a text."""
    return -(-len(text.encode(errors="replace")) // BYTES_PER_TOKEN)


def _form_block(passage: PackedPassage) -> str:
    """Return a passage as it is in an answer, with an empty line after it."""
    return "".join(f"{line}\n" for line in [*passage.shown_lines, ""])


def _count_shown_bytes(text: str) -> int:
    """Return the number of bytes of a text with its indentation and escapes."""
    return len("\n".join(terminal_text.mark_lines(text, _INDENT)).encode(errors="replace"))


def signature_above(pieces: Sequence[IndexedPiece], number: int) -> str:
    """Return the signature of a piece's symbol if the symbol starts in an earlier piece, or ""."""
    piece = pieces[number]
    declaration = (piece.symbol, piece.kind)
    if not piece.symbol or any(declared[:2] == declaration for declared in piece.declared):
        return ""
    for earlier in reversed(pieces[:number]):
        if _is_same_symbol(earlier, piece) or any(declared[:2] == declaration for declared in earlier.declared):
            return piece.signature
        if not earlier.symbol.startswith(f"{piece.symbol}."):  # no part of this symbol
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
    """Return a line with other documents of a result, such as `also in: fr, zh-cn`, or ""."""
    if not names:
        return ""
    more = [f"{len(names) - _MAX_ALSO_IN_NAMES} more"] if len(names) > _MAX_ALSO_IN_NAMES else []
    return f"also in: {', '.join([*map(terminal_text.escape_line, names[:_MAX_ALSO_IN_NAMES]), *more])}"
