"""Where code defines what a name means."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from vmrag_link.code.languages import LONGEST_SIGNATURE
from vmrag_link.errors import UsageInvalid, no_collection
from vmrag_link.index.reader import IndexReader, damage_errors
from vmrag_link.models import Document, IndexedPiece, Record, parse_pieces
from vmrag_link.retrieval.narrowed import NarrowingFilter, SymbolFilter
from vmrag_link.retrieval.narrowing import Narrowing, compile_symbol, make_narrowing, normalize_symbol
from vmrag_link.retrieval.search import Searcher
from vmrag_link.workspace.answers.query import require_readable, search_index
from vmrag_link.workspace.follow.provenance import KbBlock, RankedRevision, find_view_origin

if TYPE_CHECKING:
    from vmrag_link.workspace import ReadableStore, View


class SymbolDefinition(Record, frozen=True, omit_defaults=True):
    """`path` from the top of the repository; `line` is that of the declaration, `last_line` where
    it ends, from 1. `uncommitted`: how the file differs from the commit.
    """

    path: str
    line: int
    last_line: int
    symbol: str
    kind: str
    signature: str
    collection: str
    uncommitted: str = ""


class SymbolReport(Record, frozen=True):
    """`definitions` of a name: first those in which its letters have the same case, by path and
    line. `notes`: why the answer is not from the pinned revision, if so.
    """

    name: str
    definitions: list[SymbolDefinition]
    kb: KbBlock
    notes: tuple[str, ...] = ()


def find_symbols(
    ws: ReadableStore,
    name: str,
    *,
    collections: Sequence[str] | None = None,
    among: Narrowing | None = None,
    at: RankedRevision | None = None,
) -> SymbolReport:
    """The definitions of which a name is the last part, or the last ones (`Session.refresh`), with
    `*` for any letters. Case counts where the name has capital letters. If no symbol has that name,
    its first parts may be those of a module (`app.session.Session.refresh`).

    `collections`: None for all that are code. Raises `CollectionMissing`, and `UsageInvalid` for a
    name without a letter or `*`.
    """
    asked = make_narrowing(symbols=[name])
    wanted = asked.symbols[0] if asked else ""
    if not re.search(r"[\w*]", wanted):
        raise UsageInvalid(
            f"{name!r} names no symbol.", hint="vmrag query --symbols Session.refresh", parameter="symbols"
        )

    def look(searcher: Searcher, view: View) -> SymbolReport:
        names = code_collections(searcher, view, collections)
        uncommitted = view.sources.uncommitted if view.sources else {}
        parts = wanted.split(".")
        with damage_errors(view.folder), IndexReader.open(view.folder, *view.more) as index:
            for start in range(min(len(parts), _MOST_MODULE_PARTS)):  # parts before `start` name a module
                symbol = ".".join(parts[start:])
                definitions = [
                    row for collection in names for row in _definitions(index, collection, symbol, among or Narrowing())
                ]
                if found := _in_module(definitions, parts[:start]):
                    break
        found = sort_definitions(symbol, found, lambda each: uncommitted.get(each.collection, {}).get(each.path, ""))
        return SymbolReport(name, found, find_view_origin(ws, view).kb, view.notes)

    return search_index(ws, look, at=at)


def sort_definitions(
    wanted: str, found: Iterable[SymbolDefinition], state_of: Callable[[SymbolDefinition], str]
) -> list[SymbolDefinition]:
    """Return definitions in the order of a report, each with the state of its file."""
    exact = re.compile(compile_symbol(wanted, within=False).pattern)
    rows = [msgspec.structs.replace(each, uncommitted=state_of(each)) for each in found]
    return sorted(
        rows, key=lambda row: (not exact.search(normalize_symbol(row.symbol)), row.path, row.line, row.collection)
    )


def definitions_in(document: Document, wanted: SymbolFilter, narrowed: NarrowingFilter) -> Iterator[SymbolDefinition]:
    """Return the definitions of a name in a document that was just cut."""
    pieces = parse_pieces(document)
    ends = [*(piece.start for piece in pieces[1:]), len(document.content)]
    for piece, end in zip(pieces, ends, strict=True):
        for declared in piece.declared:
            if wanted.accepts_symbol(declared[0]) and narrowed.accepts_symbol(declared[0], declared[1]):
                yield _definition(document.key, piece, declared, document.content[piece.start : end])


_MOST_MODULE_PARTS = 12


def _in_module(definitions: Sequence[SymbolDefinition], module: Sequence[str]) -> list[SymbolDefinition]:
    """Return the definitions in files of a module such as `app.session`; if none is in such a file,
    those in a package of that name, which may export them (`app.Session`).
    """
    size, files, packages = len(module), list[SymbolDefinition](), list[SymbolDefinition]()
    for definition in definitions:
        parts = definition.path.rpartition(".")[0].split("/")
        parts = parts[:-1] if parts[-1] in ("__init__", "index", "mod") else parts
        if not module or parts[-size:] == [*module]:
            files.append(definition)
        elif any(parts[at : at + size] == [*module] for at in range(len(parts) - size)):
            packages.append(definition)
    return files or packages


def code_collections(searcher: Searcher, view: View, names: Sequence[str] | None) -> list[str]:
    """Return the collections of code among some names, or all. Raises `CollectionMissing`."""
    there = {collection.name: collection for collection in searcher.list_collections()}
    for name in names or ():
        if name not in there:
            require_readable(view, name, list(there))
            raise no_collection(name, list(there))
    return [name for name, each in there.items() if each.is_code and (not names or name in names)]


def _definitions(index: IndexReader, collection: str, name: str, among: Narrowing) -> Iterator[SymbolDefinition]:
    """Those in a collection."""
    wanted, narrowed = SymbolFilter(name, within=False), NarrowingFilter(among)
    found = [
        (document.doc_id, row, piece, declared)
        for document in narrowed.list_documents(index, collection)
        if wanted.may_be_in_metadata(document.metadata)
        for row, piece in enumerate(parse_pieces(document), document.first)
        for declared in piece.declared
        if wanted.accepts_symbol(declared[0]) and narrowed.accepts_symbol(declared[0], declared[1])
    ]
    texts = index.read_texts({row for _, row, piece, declared in found if declared != _own(piece)})
    for path, row, piece, declared in found:
        yield _definition((collection, path), piece, declared, texts.get(row, ""))


def _definition(
    key: tuple[str, str], piece: IndexedPiece, declared: tuple[str, str, int, int], text: str
) -> SymbolDefinition:
    symbol, kind, line, last_line = declared
    signature = piece.signature if declared == _own(piece) else _signature(text, line - piece.line)
    collection, path = key
    return SymbolDefinition(path, line, last_line, symbol, kind, signature, collection)


def _own(piece: IndexedPiece) -> tuple[str, str, int, int] | None:
    """The declaration of the symbol that a piece is of, if that begins in it."""
    return next((each for each in piece.declared if each[:2] == (piece.symbol, piece.kind)), None)


def _signature(text: str, row: int) -> str:
    """What a declaration's row of a text says, without what opens its body."""
    found = " ".join(text.split("\n")[row].split())
    return found.rstrip("{").strip()[:LONGEST_SIGNATURE].strip()
