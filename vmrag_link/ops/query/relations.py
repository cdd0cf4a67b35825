"""Find callers and callees of a name by names and imports, without types.

The index returns the files that contain a word. Then the imports of these files decide which
definition a call means.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from vmrag_link.code.calls import CallSite, find_calls, list_called_names
from vmrag_link.errors import UsageInvalid, closest, quoted
from vmrag_link.index.reader import IndexReader, damage_errors
from vmrag_link.models import Record
from vmrag_link.ops.query.call_matching import CallMatcher
from vmrag_link.ops.query.code_files import CodeFile, CodeFiles, Declared, Definition, definitions_among
from vmrag_link.ops.query.symbols import code_collections
from vmrag_link.retrieval.narrowed import NarrowingFilter
from vmrag_link.retrieval.narrowing import Narrowing, make_narrowing
from vmrag_link.retrieval.search import Searcher
from vmrag_link.workspace.answers.query import search_index
from vmrag_link.workspace.follow.provenance import KbBlock, RankedRevision, find_view_origin

if TYPE_CHECKING:
    from vmrag_link.workspace import ReadableStore, View

Relation = Literal["callers", "callees"]
RELATIONS: tuple[Relation, ...] = ("callers", "callees")

MOST_RELATED = 1_000
"""Maximum number of callers or callees of one answer."""

MOST_CALLS = 20
"""Maximum number of lines of one caller or callee."""

_LONGEST_LINE = 200


class CallLine(Record, frozen=True):
    """A line that calls. `line` starts at 1."""

    path: str
    line: int
    text: str


class RelatedCode(Record, frozen=True, omit_defaults=True):
    """A caller, or the definition of a callee.

    `symbol` and `kind`: empty for code outside of all definitions, whose lines are those of its
    calls. `calls`: the lines that call, up to 20.
    """

    path: str
    line: int
    last_line: int
    symbol: str
    kind: str
    collection: str
    calls: list[CallLine]
    uncommitted: str = ""


class RelationReport(Record, frozen=True):
    """The callers or callees of a name.

    `related`: sorted by path and line, up to 1,000. `left_out`: the number of further ones.
    `definitions`: the number of definitions of the name.
    """

    name: str
    relation: Relation
    by: Literal["name"]
    definitions: int
    related: list[RelatedCode]
    left_out: int
    kb: KbBlock
    notes: tuple[str, ...] = ()


def list_related(
    ws: ReadableStore,
    name: str,
    relation: Relation,
    *,
    collections: Sequence[str] | None = None,
    among: Narrowing | None = None,
    at: RankedRevision | None = None,
) -> RelationReport:
    """Return the callers or callees of a name.

    `among`: only those in these files. Raises `CollectionMissing`, and `UsageInvalid` if no code
    defines the name.
    """
    parsed = make_narrowing(symbols=[name])
    symbol = parsed.symbols[0] if parsed else ""
    if not re.search(r"\w", symbol):
        raise UsageInvalid(
            f"invalid symbol {name!r}.", hint=f"run 'vmrag query --{relation} Session.refresh'", parameter=relation
        )

    def find_related(searcher: Searcher, view: View) -> RelationReport:
        names = code_collections(searcher, view, collections)
        uncommitted = view.sources.uncommitted if view.sources else {}
        with damage_errors(view.folder), IndexReader.open(view.folder, *view.more) as index:
            code = CodeFiles(index, names)
            definitions = code.definitions_of(symbol)
            if not definitions:
                raise _undefined_name(name, relation, closest(symbol, list(dict.fromkeys(code.declared_names()))))
            find = _find_callers if relation == "callers" else _find_callees
            related = [row for row in find(code, definitions) if _is_among(row, among)]
        related.sort(key=lambda row: (row.path, row.line, row.symbol, row.collection))
        first_rows = [
            _with_state(row, uncommitted.get(row.collection, {}).get(row.path, "")) for row in related[:MOST_RELATED]
        ]
        left_out, kb = len(related) - len(first_rows), find_view_origin(ws, view).kb
        return RelationReport(
            name=name,
            relation=relation,
            by="name",
            definitions=len(definitions),
            related=first_rows,
            left_out=left_out,
            kb=kb,
            notes=view.notes,
        )

    return search_index(ws, find_related, at=at)


def _undefined_name(name: str, relation: Relation, similar: Sequence[str]) -> UsageInvalid:
    hint = (
        f"run 'vmrag query --{relation} {quoted(similar[0])}', or use one of these names: {', '.join(similar)}"
        if similar
        else f"run 'vmrag grep {quoted(name)}'"
    )
    return UsageInvalid(f"no code here defines {name!r}", hint=hint, parameter=relation, value=name)


def _is_among(row: RelatedCode, among: Narrowing | None) -> bool:
    if among is None:
        return True
    narrowed = NarrowingFilter(among)
    is_named = narrowed.accepts_symbol(row.symbol, row.kind)
    return is_named and narrowed.accepts_kind(is_code=True) and narrowed.accepts_file((row.path,), is_code=True)


def _with_state(row: RelatedCode, uncommitted: str) -> RelatedCode:
    return replace(row, uncommitted=uncommitted) if uncommitted else row


# -- callers


def _find_callers(files: CodeFiles, definitions: Sequence[Definition]) -> Iterator[RelatedCode]:
    """Return the code that calls one of these definitions."""
    matcher = CallMatcher(files)
    by_name = defaultdict[str, list[Definition]](list)
    for definition in definitions:
        by_name[definition.name].append(definition)
    candidates = dict.fromkeys(file for name in by_name for file in files.with_word(name))
    for file in candidates:
        names = {name: name for name in by_name}
        names |= {alias: row.name for alias, row in file.imports.items() if row.name in by_name and "*" not in alias}
        calls = defaultdict[Declared, list[int]](list)
        for site in find_calls(file.code, file.language, names):
            line = file.line_of(site.start)
            if not file.declares_at(site.name, site.start) and any(
                matcher.may_call(site, file, row) for row in by_name[site.name]
            ):
                calls[file.innermost_around(line)].append(line)
        for row, lines in calls.items():
            symbol, *_ = row
            extent = row if symbol else ("", "", lines[0], lines[-1])
            yield _relate_code(file, extent, [(file, line) for line in lines])


def _relate_code(file: CodeFile, row: Declared, calls: Sequence[tuple[CodeFile, int]]) -> RelatedCode:
    symbol, kind, line, last_line = row
    lines = [
        CallLine(at.path, number, at.text_of(number).strip()[:_LONGEST_LINE]) for at, number in dict.fromkeys(calls)
    ]
    return RelatedCode(
        path=file.path,
        line=line,
        last_line=last_line,
        symbol=symbol,
        kind=kind,
        collection=file.collection,
        calls=lines[:MOST_CALLS],
    )


# -- callees


def _find_callees(files: CodeFiles, definitions: Sequence[Definition]) -> Iterator[RelatedCode]:
    """Return the definitions that the code of these definitions calls."""
    matcher = CallMatcher(files)
    calls = defaultdict[tuple[CodeFile, Declared], list[tuple[CodeFile, int]]](list)
    for caller, sites in _calls_within(files, definitions).items():
        for site in sites:
            candidates = list(files.with_word(site.name, names=True))
            for file in candidates:
                for definition in definitions_among([file], site.name):
                    row = (definition.symbol, definition.kind, definition.line, definition.last_line)
                    if matcher.may_call(site, caller, definition):
                        calls[file, row].append((caller, caller.line_of(site.start)))
    yield from (_relate_code(file, row, lines) for (file, row), lines in calls.items())


def _calls_within(files: CodeFiles, definitions: Sequence[Definition]) -> dict[CodeFile, list[CallSite]]:
    """Return the calls in the code of some definitions, in their files."""
    sites = defaultdict[CodeFile, list[CallSite]](list)
    places = {(row.collection, row.path) for row in definitions}
    for file in files.files_at(places):
        spans = [
            (row.line, row.last_line)
            for row in definitions
            if (row.collection, row.path) == (file.collection, file.path)
        ]
        names = list_called_names(file.code, file.language)
        names |= {alias: row.name for alias, row in file.imports.items() if alias in names and row.name}
        for site in find_calls(file.code, file.language, names):
            line = file.line_of(site.start)
            if any(first <= line <= last for first, last in spans) and not file.declares_at(site.name, site.start):
                sites[file].append(site)
    return sites
