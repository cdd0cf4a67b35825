"""Find where code defines a name (`vmrag query --symbols NAME`).

A *piece* is a part of a file of code that was indexed as one chunk. It lists the symbols that it
declares, with their lines (`models.IndexedPiece`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from vmrag_link.code.languages import LONGEST_SIGNATURE, SymbolDeclaration
from vmrag_link.errors import UsageInvalid, no_collection
from vmrag_link.index.reader import IndexReader, damage_errors
from vmrag_link.models import Document, IndexedPiece, Record, parse_pieces
from vmrag_link.retrieval.narrowing import Narrowing, compile_symbol, make_narrowing, normalize_symbol
from vmrag_link.retrieval.narrowing_filter import NarrowingFilter, SymbolFilter
from vmrag_link.retrieval.search import Searcher
from vmrag_link.workspace.answers.query import require_readable, search_index
from vmrag_link.workspace.follow.provenance import KbBlock, find_view_origin
from vmrag_link.workspace.follow.search_scope import RankedRevision

if TYPE_CHECKING:
    from vmrag_link.workspace import ReadableStore, View

_MAX_MODULE_PARTS = 12


class SymbolDefinition(Record, frozen=True, omit_defaults=True):
    """A definition."""

    path: str
    """From the top of the repository."""
    line: int
    """First line of the declaration, from 1."""
    last_line: int
    """Last line of the declaration."""
    symbol: str
    kind: str
    signature: str
    collection: str
    uncommitted: str = ""
    """How the file differs from the commit."""


class SymbolReport(Record, frozen=True):
    """The definitions of a name."""

    name: str
    definitions: list[SymbolDefinition]
    """Names with the same case are first, then sorted by path and line."""
    kb: KbBlock
    notes: tuple[str, ...] = ()
    """Why the answer is not from the pinned revision; empty if it is."""


def find_symbols(
    ws: ReadableStore,
    name: str,
    *,
    collections: Sequence[str] | None = None,
    among: Narrowing | None = None,
    at: RankedRevision | None = None,
) -> SymbolReport:
    """Return the definitions whose last parts are a name (`Session.refresh`).

    `*` matches any letters. Case is significant if the name has capital letters. If no symbol has
    the name, its first parts may be those of a module (`app.session.Session.refresh`).
    `collections`: None for all collections of code. Raises `CollectionMissing`, and `UsageInvalid`
    for a name without a letter or `*`.
    """
    parsed = make_narrowing(symbols=[name])
    symbol_name = parsed.symbols[0] if parsed else ""
    if not re.search(r"[\w*]", symbol_name):
        raise UsageInvalid(
            f"invalid symbol {name!r}.",
            hint="run 'vmrag query --symbols Session.refresh' to search for a name",
            parameter="symbols",
        )

    def find_matches(searcher: Searcher, view: View) -> SymbolReport:
        names = code_collections(searcher, view, collections)
        uncommitted = view.sources.uncommitted if view.sources else {}
        parts = symbol_name.split(".")
        with damage_errors(view.folder), IndexReader.open(view.folder, *view.more) as index:
            for start in range(min(len(parts), _MAX_MODULE_PARTS)):  # parts before `start` name a module
                symbol = ".".join(parts[start:])
                definitions = [
                    row
                    for collection in names
                    for row in _find_definitions(index, collection, symbol, among or Narrowing())
                ]
                matches = _select_in_module(definitions, parts[:start])
                if matches:
                    break
        matches = sort_definitions(
            symbol, matches, lambda definition: uncommitted.get(definition.collection, {}).get(definition.path, "")
        )
        return SymbolReport(name, matches, find_view_origin(ws, view).kb, view.notes)

    return search_index(ws, find_matches, at=at)


def sort_definitions(
    name: str, definitions: Iterable[SymbolDefinition], state_of: Callable[[SymbolDefinition], str]
) -> list[SymbolDefinition]:
    """Return definitions in the order of a report, each with the state of its file."""
    exact = re.compile(compile_symbol(name, within=False).pattern)
    rows = [msgspec.structs.replace(definition, uncommitted=state_of(definition)) for definition in definitions]
    return sorted(
        rows, key=lambda row: (not exact.search(normalize_symbol(row.symbol)), row.path, row.line, row.collection)
    )


def definitions_in(document: Document, symbol: SymbolFilter, narrowed: NarrowingFilter) -> Iterator[SymbolDefinition]:
    """Return the definitions of a name in a document that was just cut."""
    pieces = parse_pieces(document)
    ends = [*(piece.start for piece in pieces[1:]), len(document.content)]
    for piece, end in zip(pieces, ends, strict=True):
        for declared in _list_declarations(piece, symbol, narrowed):
            yield _form_definition(document.key, piece, declared, document.content[piece.start : end])


def _select_in_module(definitions: Sequence[SymbolDefinition], module: Sequence[str]) -> list[SymbolDefinition]:
    """Return the definitions in files of a module such as `app.session`; if none is in such a file,
    those in a package of that name, which may export them (`app.Session`).
    """
    size = len(module)
    files: list[SymbolDefinition] = []
    packages: list[SymbolDefinition] = []
    for definition in definitions:
        parts = definition.path.rpartition(".")[0].split("/")
        parts = parts[:-1] if parts[-1] in ("__init__", "index", "mod") else parts
        if not module or parts[-size:] == [*module]:
            files.append(definition)
        elif any(parts[first : first + size] == [*module] for first in range(len(parts) - size)):
            packages.append(definition)
    return files or packages


def code_collections(searcher: Searcher, view: View, names: Sequence[str] | None) -> list[str]:
    """Return the collections of code among some names, or all. Raises `CollectionMissing`."""
    collections_by_name = {collection.name: collection for collection in searcher.list_collections()}
    for name in names or ():
        if name not in collections_by_name:
            require_readable(view, name, list(collections_by_name))
            raise no_collection(name, list(collections_by_name))
    return [
        name for name, collection in collections_by_name.items() if collection.is_code and (not names or name in names)
    ]


def _find_definitions(index: IndexReader, collection: str, name: str, among: Narrowing) -> Iterator[SymbolDefinition]:
    """Yield the definitions in a collection."""
    symbol = SymbolFilter(name, within=False)
    narrowed = NarrowingFilter(among)
    matches = []
    rows_to_read = set[int]()
    for document in narrowed.list_documents(index, collection):
        if symbol.may_be_in_metadata(document.metadata):
            for row, piece in enumerate(parse_pieces(document), document.first):
                for declared in _list_declarations(piece, symbol, narrowed):
                    matches.append((document.doc_id, row, piece, declared))
                    if declared != _find_declaration(piece):
                        rows_to_read.add(row)
    texts = index.read_texts(rows_to_read)
    for path, row, piece, declared in matches:
        yield _form_definition((collection, path), piece, declared, texts.get(row, ""))


def _list_declarations(
    piece: IndexedPiece, symbol: SymbolFilter, narrowed: NarrowingFilter
) -> Iterator[SymbolDeclaration]:
    """Yield the declarations in a piece that pass both filters."""
    for row in piece.declared:
        declared = SymbolDeclaration(*row)
        if symbol.accepts_symbol(declared.symbol) and narrowed.accepts_symbol(declared.symbol, declared.kind):
            yield declared


def _form_definition(
    key: tuple[str, str], piece: IndexedPiece, declared: SymbolDeclaration, text: str
) -> SymbolDefinition:
    """Return a definition. `text`: that of the piece, if the declaration is not the piece's own."""
    is_own = declared == _find_declaration(piece)
    signature = piece.signature if is_own else _form_signature(text, declared.line - piece.line)
    collection, path = key
    return SymbolDefinition(
        path=path,
        line=declared.line,
        last_line=declared.last_line,
        symbol=declared.symbol,
        kind=declared.kind,
        signature=signature,
        collection=collection,
    )


def _find_declaration(piece: IndexedPiece) -> tuple[str, str, int, int] | None:
    """Return the declaration of a piece's symbol if it starts in the piece, or None."""
    return next((declared for declared in piece.declared if declared[:2] == (piece.symbol, piece.kind)), None)


def _form_signature(text: str, row: int) -> str:
    """Return a declaration's line of a text, without the start of its body."""
    line = " ".join(text.split("\n")[row].split())
    return line.rstrip("{").strip()[:LONGEST_SIGNATURE].strip()
