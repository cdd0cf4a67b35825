"""List the code that calls a name, or what its code calls (`vmrag query --callers`, `--callees`).

No types are known. The index returns the files that contain a word, `code.calls` finds the calls
in them, and `CallMatcher` decides by names and imports which definition a call may mean.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec.structs import replace

from vmrag_link.code.calls import CallSite, list_called_names
from vmrag_link.code.languages import SymbolDeclaration
from vmrag_link.errors import UsageInvalid, closest, quoted
from vmrag_link.index.reader import IndexReader, damage_errors
from vmrag_link.models import Record
from vmrag_link.ops.query.call_matching import CallMatcher
from vmrag_link.ops.query.code_files import CodeFile, CodeFiles, Definition
from vmrag_link.ops.query.symbols import code_collections
from vmrag_link.retrieval.narrowing import Narrowing, make_narrowing
from vmrag_link.retrieval.narrowing_filter import NarrowingFilter
from vmrag_link.retrieval.search import Searcher
from vmrag_link.workspace.answers.query import search_index
from vmrag_link.workspace.follow.provenance import KbBlock, find_view_origin
from vmrag_link.workspace.follow.search_scope import RankedRevision

if TYPE_CHECKING:
    from vmrag_link.workspace import ReadableStore, View

Relation = Literal["callers", "callees"]
RELATIONS: tuple[Relation, ...] = ("callers", "callees")

MAX_RELATED = 1_000
"""Maximum number of callers or callees of one answer."""

MAX_CALL_LINES = 20
"""Maximum number of lines of one caller or callee."""

_MAX_LINE_CHARACTERS = 200


class CallLine(Record, frozen=True):
    """A line that calls. `line` starts at 1."""

    path: str
    line: int
    text: str


class RelatedCode(Record, frozen=True, omit_defaults=True):
    """A caller, or the definition of a callee."""

    path: str
    line: int
    last_line: int
    symbol: str
    """Empty for code outside of all definitions. Its lines are then those of its calls."""
    kind: str
    collection: str
    calls: list[CallLine]
    """The lines that call, up to `MAX_CALL_LINES`."""
    uncommitted: str = ""
    """How the file differs from the commit; empty if it does not."""


class RelationReport(Record, frozen=True):
    """The callers or callees of a name."""

    name: str
    relation: Relation
    by: Literal["name"]
    definitions: int
    """Number of definitions of the name."""
    related: list[RelatedCode]
    """Sorted by path and line, up to `MAX_RELATED`."""
    left_out: int
    """Number of callers or callees beyond `MAX_RELATED`."""
    kb: KbBlock
    notes: tuple[str, ...] = ()
    """Why the answer is not from the pinned revision; empty if it is."""


def list_related(
    ws: ReadableStore,
    name: str,
    relation: Relation,
    *,
    collections: Sequence[str] | None = None,
    among: Narrowing | None = None,
    at: RankedRevision | None = None,
) -> RelationReport:
    """Return the callers or callees of a name (`Session.refresh`, or `refresh` of any class).

    `collections`: None for all collections of code. `among`: a filter for the callers or callees.
    Raises `CollectionMissing`, and `UsageInvalid` if no code defines the name.
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
            files = CodeFiles(index, names)
            definitions = files.definitions_of(symbol)
            if not definitions:
                raise _undefined_name(name, relation, closest(symbol, list(dict.fromkeys(files.declared_names()))))
            find = _find_callers if relation == "callers" else _find_callees
            related = [code for code in find(files, definitions) if _passes_filter(code, among)]
        related.sort(key=lambda code: (code.path, code.line, code.symbol, code.collection))
        return RelationReport(
            name=name,
            relation=relation,
            by="name",
            definitions=len(definitions),
            related=[
                replace(code, uncommitted=uncommitted.get(code.collection, {}).get(code.path, ""))
                for code in related[:MAX_RELATED]
            ],
            left_out=max(0, len(related) - MAX_RELATED),
            kb=find_view_origin(ws, view).kb,
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


def _passes_filter(code: RelatedCode, among: Narrowing | None) -> bool:
    if among is None:
        return True
    narrowed = NarrowingFilter(among)
    return (
        narrowed.accepts_symbol(code.symbol, code.kind)
        and narrowed.accepts_kind(is_code=True)
        and narrowed.accepts_file((code.path,), is_code=True)
    )


class _FileLine(NamedTuple):
    file: CodeFile
    line: int


def _find_callers(files: CodeFiles, definitions: Sequence[Definition]) -> Iterator[RelatedCode]:
    """Yield the code that calls one of these definitions."""
    matcher = CallMatcher(files)
    by_name = defaultdict[str, list[Definition]](list)
    for definition in definitions:
        by_name[definition.name].append(definition)
    candidates = dict.fromkeys(file for name in by_name for file in files.with_word(name))
    for file in candidates:
        names = {name: name for name in by_name}
        names |= {
            alias: imported.name
            for alias, imported in file.imports.items()
            if imported.name in by_name and "*" not in alias
        }
        lines_by_caller = defaultdict[SymbolDeclaration | None, list[int]](list)
        for site in file.find_calls(names):
            if any(matcher.may_call(site, file, definition) for definition in by_name[site.name]):
                line = file.line_of(site.start)
                lines_by_caller[file.innermost_around(line)].append(line)
        for caller, lines in lines_by_caller.items():
            calls = [_FileLine(file, line) for line in lines]
            yield _form_related(file, caller or SymbolDeclaration("", "", lines[0], lines[-1]), calls)


def _form_related(file: CodeFile, code: SymbolDeclaration, calls: Sequence[_FileLine]) -> RelatedCode:
    lines = [
        CallLine(call.file.path, call.line, call.file.text_of(call.line).strip()[:_MAX_LINE_CHARACTERS])
        for call in dict.fromkeys(calls)
    ]
    return RelatedCode(
        path=file.path,
        line=code.line,
        last_line=code.last_line,
        symbol=code.symbol,
        kind=code.kind,
        collection=file.collection,
        calls=lines[:MAX_CALL_LINES],
    )


def _find_callees(files: CodeFiles, definitions: Sequence[Definition]) -> Iterator[RelatedCode]:
    """Yield the definitions that the code of these definitions calls."""
    matcher = CallMatcher(files)
    calls_by_callee = defaultdict[tuple[CodeFile, SymbolDeclaration], list[_FileLine]](list)
    for caller, site in _find_calls_within(definitions):
        for file in files.with_word(site.name, declared_only=True):
            for declaration in file.declarations_by_name.get(site.name, ()):
                if matcher.may_call(site, caller, file.form_definition(declaration)):
                    calls_by_callee[file, declaration].append(_FileLine(caller, caller.line_of(site.start)))
    for (file, declaration), calls in calls_by_callee.items():
        yield _form_related(file, declaration, calls)


def _find_calls_within(definitions: Sequence[Definition]) -> Iterator[tuple[CodeFile, CallSite]]:
    """Yield the calls in the code of some definitions, each with its file."""
    callers_by_file = defaultdict[CodeFile, list[Definition]](list)
    for definition in definitions:
        callers_by_file[definition.file].append(definition)
    for file, callers in callers_by_file.items():
        names = list_called_names(file.code, file.language)
        names |= {alias: imported.name for alias, imported in file.imports.items() if alias in names and imported.name}
        for site in file.find_calls(names):
            line = file.line_of(site.start)
            if any(caller.line <= line <= caller.last_line for caller in callers):
                yield file, site
