"""To what `vmrag query` is narrowed, and the definitions that it lists instead of searching."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vmrag_link.cli import answering, output
from vmrag_link.cli.answering import ShownAnswer
from vmrag_link.cli.base import Invocation
from vmrag_link.errors import quoted
from vmrag_link.ops.follow import provenance
from vmrag_link.ops.system import stores
from vmrag_link.retrieval.narrowing import Narrowing, combine, narrowing, parse

if TYPE_CHECKING:
    from vmrag_link.ops.follow.provenance import RankedRevision
    from vmrag_link.ops.index.symbols import SymbolReport
    from vmrag_link.retrieval.query import Query
    from vmrag_link.workspace import Workspace


def narrowing_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--path`, `--lang`, `--symbol` and `--kind`, as `narrowed` of the function."""

    @functools.wraps(function)
    def wrapped(
        *rest: Any,
        path: tuple[str, ...],
        lang: tuple[str, ...],
        symbol: tuple[str, ...],
        kind: tuple[str, ...],
        **given: Any,
    ) -> Any:
        narrowed = narrowing(paths=path, languages=lang, symbols=symbol, kinds=kind)
        return function(*rest, narrowed=narrowed, **given)

    for name, metavar, about in reversed(_OPTIONS):
        wrapped = click.option(name, multiple=True, metavar=metavar, help=about)(wrapped)
    return wrapped


_OPTIONS = (
    ("--path", "PATTERN", "Only paths with this in them: src/auth, /docs (at the top), '*.py', 'src/**/test_*.py'."),
    ("--lang", "LANGUAGE", "Only code in this language, or files of this type: python, ts, markdown."),
    ("--symbol", "NAME", "Only code of this class or function, or within it: Session, Session.refresh, '*Error'."),
    ("--kind", "KIND", "Only code or document, or symbols of a kind: class, function, method, …"),
)


def parse_text(text: str | None, narrowed: Narrowing | None) -> tuple[str, Narrowing | None]:
    """The words of a query, and what the prefixes in its text and the options narrow it to."""
    if text is None and narrowed is None:
        raise click.UsageError("Missing argument 'TEXT'.")
    words, prefixed = parse(text or "")
    narrowed = combine(prefixed, narrowed)
    return words or (narrowed.words if text is None and narrowed else ""), narrowed


def definitions(
    invocation: Invocation, ws: Workspace, name: str, asked: Query, at: RankedRevision | None, *, strict: bool
) -> ShownAnswer:
    """Of a name, in the collections of a query and what it is narrowed to."""
    from vmrag_link.ops.index.symbols import symbols  # searches do not need it

    store = ws if at else stores.holding_all(ws, asked.collections or ())
    report = symbols(store, name, collections=asked.collections, among=asked.narrowing, at=at)
    provenance.refuse_outdated(ws, report.notes, strict=strict)
    commit = report.kb.sources.commit if at and report.kb.sources else None
    notes = [*report.notes, *provenance.source_warnings(report.kb)]
    return ShownAnswer(report, _lines(report, invocation, commit or ""), notes)


def _lines(report: SymbolReport, invocation: Invocation, commit: str) -> Iterator[str]:
    """`commit`: whose files answer, if not those of the work tree."""
    if not report.definitions:
        more = f"vmrag query --symbols {quoted(f'*{report.name}*')}"
        hint = "" if "*" in report.name else f" With * for any letters: {more}"
        yield f"No definition of {report.name!r} found.{hint}"
    top = Path(report.kb.worktree)
    for each in report.definitions:
        path = f"{commit[:7]}:{each.path}" if commit else os.path.relpath(top / each.path, invocation.directory)
        changed = output.style(f"  ({each.uncommitted})", fg="yellow") if each.uncommitted else ""
        parent = each.symbol.rpartition(".")[0]
        kind = f"{each.kind} of {parent}" if parent else each.kind
        yield f"{output.style(f'{path}:{each.line}', bold=True)}  {kind}  {each.signature}{changed}"
    yield answering.standing_line(report.kb)
