"""Parts that several search commands use: the position of an answer, the filters of a search, and
the comparison of rankings.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from vmrag_link import env
from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation, format_relative_path
from vmrag_link.errors import plural, quoted
from vmrag_link.models import Record
from vmrag_link.workspace.follow import provenance
from vmrag_link.workspace.follow.provenance import KbBlock, SourceBlock

if TYPE_CHECKING:
    from vmrag_link.golden.queries import RankedChunk
    from vmrag_link.ops.query.relations import Relation, RelationReport
    from vmrag_link.ops.query.symbols import SymbolReport
    from vmrag_link.retrieval.narrowing import Narrowing
    from vmrag_link.retrieval.query import Query
    from vmrag_link.workspace import Workspace
    from vmrag_link.workspace.follow.search_scope import RankedRevision


class ShownAnswer(Record, frozen=True):
    """The arguments of `emit_answer`, and a hint for the next command."""

    report: Any
    lines: Iterable[str]
    notes: Sequence[str]
    hint: str = ""


def strict_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option `--strict`, which is `strict` of the function."""
    about = f"Fail if not at the pinned revision ({env.STRICT})."
    return click.option("--strict", is_flag=True, default=env.is_strict, help=about)(function)


def emit_answer(invocation: Invocation, report: Any, lines: Iterable[str], notes: Sequence[str]) -> None:
    """Print an answer.

    `notes` tell why the answer differs from the current code. They are printed before all lines, or
    on standard error if a program reads the answer.
    """
    if invocation.as_json or invocation.is_quiet:
        for note in notes:
            output.print_warning(note, "warning:")
        invocation.emit_report(report)
    else:
        invocation.emit_report(
            report, [*(f"{output.style_text('warning:', fg='yellow')} {note}" for note in notes), *lines]
        )


def describe_position(kb: KbBlock) -> str:
    """Return the line with the revision and the files of an answer."""
    return output.style_text(describe_position_plainly(kb), dim=True)


def describe_position_plainly(kb: KbBlock) -> str:
    """Return the revision and the files of an answer, without colours.

    A revision alone means that the answer has no uncommitted documents.
    """
    if not kb.versioned:
        return "from this machine alone, not versioned"
    places = [_describe_files(kb.sources)] if kb.sources else []
    if kb.commit and not kb.empty:
        owner = " of the knowledge base" if kb.sources else ""
        uncommitted = ", uncommitted documents included" if kb.dirty else ""
        places.append(f"revision {kb.commit[:7]}{owner}{uncommitted}")
    return f"from {', and '.join(places)}"


def _describe_files(files: SourceBlock) -> str:
    """Name the commit whose files answer, and count the files that differ from it."""
    counts = {"edited": len(files.uncommitted), "removed": len(files.removed)}
    differing = [f"{number} {state}" for state, number in counts.items() if number]
    untracked = f" ({files.untracked} untracked not searched)" if files.untracked else ""
    return ", ".join([f"commit {files.commit[:7]}" if files.commit else "the working tree", *differing]) + untracked


def narrowing_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options `--path`, `--lang`, `--symbol` and `--kind`, which are `narrowed` of the
    function.
    """

    @functools.wraps(function)
    def wrapped(
        *rest: Any,
        path: tuple[str, ...],
        lang: tuple[str, ...],
        symbol: tuple[str, ...],
        kind: tuple[str, ...],
        **arguments: Any,
    ) -> Any:
        from vmrag_link.retrieval.narrowing import make_narrowing  # other commands are not narrowed

        narrowed = make_narrowing(paths=path, languages=lang, symbols=symbol, kinds=kind)
        return function(*rest, narrowed=narrowed, **arguments)

    for name, metavar, about in reversed(_OPTIONS):
        wrapped = click.option(name, multiple=True, metavar=metavar, help=about)(wrapped)
    return wrapped


_OPTIONS = (
    ("--path", "PATTERN", "Only paths like src/auth, /docs (top) or '*.py'."),
    ("--lang", "LANGUAGE", "Only this language or type: python, ts, markdown."),
    ("--symbol", "NAME", "Only this class or function: Session, '*Error'."),
    ("--kind", "KIND", "Only document, code, class, function, method, …"),
)


def parse_query_text(text: str | None, narrowed: Narrowing | None) -> tuple[str, Narrowing | None]:
    """Return the words of a query, and the filters of its prefixes and options."""
    from vmrag_link.retrieval.narrowing import combine_narrowings, parse_query

    if text is None and narrowed is None:
        raise click.UsageError("missing argument 'TEXT'.")
    words, prefixed = parse_query(text or "")
    narrowed = combine_narrowings(prefixed, narrowed)
    return words or (narrowed.words if text is None and narrowed else ""), narrowed


def find_definitions(
    invocation: Invocation, ws: Workspace, name: str, query: Query, at: RankedRevision | None, *, strict: bool
) -> ShownAnswer:
    """Return the definitions of a name, in the collections and with the filters of a query."""
    from vmrag_link.ops.query.symbols import find_symbols  # searches do not need it
    from vmrag_link.ops.stores import stores

    store = ws if at else stores.find_common_store(ws, query.collections or ())
    report = find_symbols(store, name, collections=query.collections, among=query.narrowing, at=at)
    commit, notes = _check_position(ws, report, at, strict=strict)
    return ShownAnswer(report, _definition_lines(report, invocation, commit), notes)


def _check_position(
    ws: Workspace, report: SymbolReport | RelationReport, at: RankedRevision | None, *, strict: bool
) -> tuple[str, list[str]]:
    """Return the commit whose files answer (empty for the work tree), and the warnings."""
    provenance.refuse_outdated(ws, report.notes, strict=strict)
    commit = report.kb.sources.commit if at and report.kb.sources else None
    return commit or "", [*report.notes, *provenance.source_warnings(report.kb)]


def _describe_place(invocation: Invocation, kb: KbBlock, commit: str, path: str, line: int) -> str:
    if commit:
        return f"{commit[:7]}:{path}:{line}"
    return f"{format_relative_path(invocation.directory, Path(kb.worktree) / path)}:{line}"


def _definition_lines(report: SymbolReport, invocation: Invocation, commit: str) -> Iterator[str]:
    """Yield the lines of a list.

    `commit` is the commit that answers, or empty for the work tree.
    """
    if not report.definitions:
        more = f"vmrag query --symbols {quoted(f'*{report.name}*')}"
        yield f"No definition of {report.name!r} found."
        if "*" not in report.name:
            yield f"hint: run '{more}' to find longer names"
    for row in report.definitions:
        place = _describe_place(invocation, report.kb, commit, row.path, row.line)
        changed = output.style_text(f"  ({row.uncommitted})", fg="yellow") if row.uncommitted else ""
        parent = row.symbol.rpartition(".")[0]
        kind = f"{row.kind} of {parent}" if parent else row.kind
        yield f"{output.style_text(place, bold=True)}  {kind}  {row.signature}{changed}"
    yield describe_position(report.kb)


class RelatedName(Record, frozen=True):
    """A name, and the relation of the code to list."""

    relation: Relation
    name: str


def show_related(
    invocation: Invocation,
    ws: Workspace,
    related: RelatedName,
    query: Query,
    at: RankedRevision | None,
    *,
    strict: bool,
) -> ShownAnswer:
    """Return the callers or callees of a name, in the collections of a query."""
    from vmrag_link.ops.query.relations import list_related  # searches do not need it
    from vmrag_link.ops.stores import stores

    store = ws if at else stores.find_common_store(ws, query.collections or ())
    report = list_related(
        store, related.name, related.relation, collections=query.collections, among=query.narrowing, at=at
    )
    commit, notes = _check_position(ws, report, at, strict=strict)
    return ShownAnswer(report, _relation_lines(report, invocation, commit), notes)


def _relation_lines(report: RelationReport, invocation: Invocation, commit: str) -> Iterator[str]:
    """Yield the lines of a list.

    `commit` is the commit that answers, or empty for the work tree.
    """
    describe = functools.partial(_describe_place, invocation, report.kb, commit)
    for row in report.related:
        changed = output.style_text(f"  ({row.uncommitted})", fg="yellow") if row.uncommitted else ""
        symbol = f"  {row.kind} {row.symbol}" if row.symbol else ""
        yield f"{output.style_text(describe(row.path, row.line), bold=True)}{symbol}{changed}"
        for call in row.calls:
            is_beside = call.path == row.path and report.relation == "callers"
            place = str(call.line) if is_beside else describe(call.path, call.line)
            yield output.style_text(f"    {place}: ", dim=True) + call.text
    number = plural(len(report.related) + report.left_out, report.relation.removesuffix("s"))
    more = f", the first {len(report.related)}" if report.left_out else ""
    yield f"{number} of {report.name!r}, by name{more}"
    yield describe_position(report.kb)


def format_rankings(
    before: Sequence[RankedChunk], after: Sequence[RankedChunk], names: Mapping[str, str]
) -> Iterator[str]:
    """Yield a line for each chunk of either ranking (`compare_rankings`).

    `names` has the names to print for documents.
    """
    from vmrag_link.golden.queries import compare_rankings

    if not before and not after:
        yield "nothing is found"
    for change in compare_rankings(before, after):
        shown = replace(change, document=names.get(change.document, change.document))
        if shown.rank_after is None:
            yield output.style_text(str(shown), fg="red")
        elif shown.rank_before is None:
            yield output.style_text(str(shown), fg="green")
        else:
            yield output.style_text(str(shown), dim=True) if shown.is_same else str(shown)


def format_side_by_side(
    ends: tuple[str, str], before: Sequence[RankedChunk], after: Sequence[RankedChunk], names: Mapping[str, str]
) -> Iterator[str]:
    """Yield a line for each rank, below a line with both ends.

    `-` and `+` mark chunks that only this ranking has. `names` has the names to print for
    documents.
    """
    old_lines = _format_column(before, {(chunk.document, chunk.chunk) for chunk in after}, "-", names)
    new_lines = _format_column(after, {(chunk.document, chunk.chunk) for chunk in before}, "+", names)
    width = max(len(line) for line in (ends[0], *old_lines))
    yield f"{'':4}{ends[0]:<{width + 2}}  {ends[1]}"
    for rank, (old_line, new_line) in enumerate(itertools.zip_longest(old_lines, new_lines, fillvalue=""), start=1):
        shown = output.style_text(new_line, fg="green") if new_line.startswith("+") else new_line
        padded = old_line.ljust(width + 2)
        yield f"{rank:>3} {output.style_text(padded, fg='red') if old_line.startswith('-') else padded}  {shown}"


def _format_column(
    ranking: Sequence[RankedChunk], others: Collection[tuple[str, int]], mark: str, names: Mapping[str, str]
) -> list[str]:
    lines = []
    for chunk in ranking:
        sign = " " if (chunk.document, chunk.chunk) in others else mark
        lines.append(f"{sign} {names.get(chunk.document, chunk.document)} #{chunk.chunk}  {chunk.score:g}")
    return lines
