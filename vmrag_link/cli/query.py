"""`vmrag query`: search the documents and code of the commit."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from vmrag_link.cli import answering, output, passage_view
from vmrag_link.cli.answering import ShownAnswer
from vmrag_link.cli.base import Invocation, format_relative_path, format_title
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import UsageInvalid, plural, quoted
from vmrag_link.index.keywords import find_matches
from vmrag_link.retrieval.narrowing import Narrowing
from vmrag_link.retrieval.query import (
    MAX_BUDGET_TOKENS,
    MAX_NEIGHBOURS,
    MAX_PACKED_HITS,
    MIN_BUDGET_TOKENS,
    Mode,
    Query,
    group_by_kind,
)
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.answers import passages as operation
from vmrag_link.workspace.answers.passage_places import PlacedPassage
from vmrag_link.workspace.answers.passages import PassageReport
from vmrag_link.workspace.answers.query import describe_setup
from vmrag_link.workspace.documents.copies import form_sentence, suggest_removal
from vmrag_link.workspace.follow import provenance
from vmrag_link.workspace.follow.search_scope import RankedRevision, ranked_at

if TYPE_CHECKING:
    from vmrag_link.ops.query.packed_answer import PackedReport
    from vmrag_link.workspace import ReadableStore


_SECTIONS = {
    "Filters": (
        *("--collection", "--path", "--lang", "--symbol", "--kind"),
        *("--where", "--where-document", "--untracked"),
    ),
    "Search": ("-k", "--mode", "--at", "--since", "--strict"),
    "Instead of a search": ("--symbols", "--callers", "--callees"),
    "Output": ("--full", "--context", "--neighbours", "--budget", "--open"),
}


@vmrag_command("query", sections=_SECTIONS)
@click.argument("text", required=False)
@click.option(
    "--collection",
    multiple=True,
    metavar="NAME",
    help="Only this collection (default: all except chats).",
)
@click.option("-k", type=click.IntRange(1, 1000), metavar="N", help="Maximum number of results (default: retrieval.k).")
@click.option(
    "--mode",
    type=click.Choice(["hybrid", "vector", "keyword"]),
    metavar="MODE",
    help="Rank by vector (meaning), keyword or hybrid (both).",
)
@click.option("--where", metavar="JSON", help='Filter by metadata: \'{"team": "core"}\'')
@click.option("--where-document", metavar="JSON", help='Filter by text: \'{"$contains": "TLS"}\'')
@answering.narrowing_options
@click.option("--symbols", metavar="NAME", help="List where the code defines this name.")
@click.option("--callers", metavar="NAME", help="List code that calls this name (found by imports).")
@click.option("--callees", metavar="NAME", help="List definitions that this name calls.")
@click.option("--at", "ref", metavar="REF", help="Search this git ref with its settings, such as v1.0.")
@click.option("--since", metavar="REF", help="Show how the answer changed since this git ref.")
@click.option("--full", is_flag=True, help="Print whole chunks (passages) with line numbers.")
@click.option(
    "-U",
    "--context",
    type=click.IntRange(0, 10_000),
    metavar="N",
    help="Print chunks with N lines around.",
)
@click.option(
    "--neighbours",
    type=click.IntRange(0, MAX_NEIGHBOURS),
    default=0,
    metavar="N",
    help="Print chunks with N chunks around.",
)
@click.option(
    "--budget",
    type=click.IntRange(MIN_BUDGET_TOKENS, MAX_BUDGET_TOKENS),
    metavar="TOKENS",
    help="Print this much text for a model.",
)
@click.option(
    "--open",
    "opened",
    is_flag=False,
    flag_value="1",
    type=click.IntRange(1, 1000),
    metavar="[N]",
    help="Open the file of result N (default: 1).",
)
@click.option("--untracked", is_flag=True, help="Also files that git neither tracks nor ignores.")
@answering.strict_option
def command(
    invocation: Invocation,
    *,
    text: str | None,
    collection: tuple[str, ...],
    k: int | None,
    mode: str | None,
    where: str | None,
    where_document: str | None,
    narrowed: Narrowing | None,
    symbols: str | None,
    callers: str | None,
    callees: str | None,
    ref: str | None,
    since: str | None,
    full: bool,
    context: int | None,
    neighbours: int,
    budget: int | None,
    opened: int | None,
    untracked: bool,
    strict: bool,
) -> None:
    """Search the documents and code of the commit.

    Each result shows its place and an excerpt. Documents and code are separate groups. -v also
    shows scores. TEXT can contain filters, for example 'path:src/auth lang:python how it expires'.
    A part in double quotes contains no filters, so "path:src" is searched as text.
    """
    _refuse_together(click.get_current_context())
    named_lists = {"symbols": symbols, "callers": callers, "callees": callees}
    listed = next((_NamedList(kind, name) for kind, name in named_lists.items() if name is not None), None)
    words, narrowed = ("", narrowed) if listed else answering.parse_query_text(text, narrowed)
    with invocation.workspace() as ws, ws.sources.searching_untracked() if untracked else contextlib.nullcontext():
        at = ranked_at(ws, ref, or_files=True) if ref is not None else None
        settings = at.retrieval if at else ws.config.retrieval
        query = Query(
            text=words,
            collections=collection or None,
            k=k or (MAX_PACKED_HITS if budget else settings.k),
            mode=Mode(mode or settings.mode),
            where=_parse_filter(where),
            where_document=_parse_filter(where_document),
            narrowing=narrowed,
        )
        search = _Search(invocation, ws, query, at, strict)
        if listed:
            shown = _list_code(search, listed)
        elif since is not None:
            shown = _compare_answers(search, since)
        elif budget is not None:
            shown = _pack_answer(search, budget, neighbours)
        else:
            shown = _show_passages(search, 0 if full and context is None else context, neighbours, opened)
    answering.emit_answer(invocation, shown.report, shown.lines, shown.notes)
    if shown.hint:
        output.print_warning(shown.hint, "hint:")


_EXCLUSIONS = {
    "--untracked": (
        "--at",
        "searches files of the working tree, but {} names a commit",
        "run 'vmrag query TEXT --untracked'",
    ),
    "--symbols": (
        "TEXT -k --mode --where --where-document --since --full --context --neighbours --budget --open",
        "lists the definitions of a name, but {} is for a search",
        "run 'vmrag query --symbols NAME', also with --path, --lang, --kind, --collection and --at",
    ),
    "--callers": (
        "TEXT -k --mode --where --where-document --symbols --callees --since --full --context --neighbours --budget --open",
        "lists code that calls a name, which excludes {}",
        "run 'vmrag query --callers NAME', also with --path, --lang, --kind, --collection and --at",
    ),
    "--callees": (
        "TEXT -k --mode --where --where-document --symbols --since --full --context --neighbours --budget --open",
        "lists what the code of a name calls, which excludes {}",
        "run 'vmrag query --callees NAME', also with --path, --lang, --kind, --collection and --at",
    ),
    "--since": (
        "--at --full --context --neighbours --budget --open",
        "compares two answers, but {} is for one",
        "run 'vmrag query TEXT --since REF'",
    ),
    "--budget": (
        "--full --context --open",
        "packs whole lines, but {} is for single results",
        "run 'vmrag query TEXT --budget 2000'",
    ),
}
"""For an option: options that it excludes, the reason, and a hint."""


def _refuse_together(context: click.Context) -> None:
    """Raise `UsageInvalid` for options that exclude each other."""
    typed = [
        param
        for param in context.command.params
        if context.get_parameter_source(param.name or "") == ParameterSource.COMMANDLINE
    ]
    names = [param.human_readable_name if isinstance(param, click.Argument) else param.opts[-1] for param in typed]
    for option, (others, reason, hint) in _EXCLUSIONS.items():
        for other in others.split() if option in names else ():
            if other in names:
                raise UsageInvalid(f"{option} {reason.format(other)}.", hint=hint)


class _NamedList(NamedTuple):
    """A list of code in place of a search: the definitions, callers or callees of a name."""

    kind: str
    name: str


class _Search(NamedTuple):
    """A search, and the position where it happens."""

    invocation: Invocation
    ws: Workspace
    query: Query
    at: RankedRevision | None
    """The searched commit; None for the working tree."""
    strict: bool


def _list_code(search: _Search, listed: _NamedList) -> ShownAnswer:
    invocation, ws, query, at, strict = search
    if listed.kind == "symbols":
        return answering.find_definitions(invocation, ws, listed.name, query, at, strict=strict)
    related = answering.RelatedName("callers" if listed.kind == "callers" else "callees", listed.name)
    return answering.show_related(invocation, ws, related, query, at, strict=strict)


def _compare_answers(search: _Search, since: str) -> ShownAnswer:
    from vmrag_link.cli.query_since import compare_answers  # the history, which other queries do not load

    return compare_answers(search.ws, search.query, since, strict=search.strict)


def _pack_answer(search: _Search, budget: int, neighbours: int) -> ShownAnswer:
    from vmrag_link.ops.query.packed_answer import PackRequest, packed_answer

    report = packed_answer(_choose_store(search), search.query, PackRequest(budget, neighbours), at=search.at)
    provenance.refuse_outdated(search.ws, report.notes, strict=search.strict)
    nothing = "" if report.passages else _describe_nothing(search)
    return _build_answer(search, report, _packed_lines(report, nothing))


def _show_passages(search: _Search, context: int | None, neighbours: int, opened: int | None) -> ShownAnswer:
    """Return the answer with its lines, and edit the file of the result `opened`."""
    report = operation.find_passages(
        _choose_store(search), search.query, at=search.at, context=context, neighbours=neighbours
    )
    provenance.refuse_outdated(search.ws, report.notes, strict=search.strict)
    if opened is not None:
        _open_result(search.ws, report.results, opened)
    search.invocation.warn_about_hooks(search.ws)
    nothing = "" if report.results else _describe_nothing(search)
    return _build_answer(search, report, _format_answer(search, report, nothing))


def _choose_store(search: _Search) -> ReadableStore:
    if search.at or not search.query.collections:
        return search.ws
    from vmrag_link.ops.stores import stores

    return stores.find_common_store(search.ws, search.query.collections)


def _build_answer(search: _Search, report: PassageReport | PackedReport, lines: Iterator[str]) -> ShownAnswer:
    invocation = search.invocation
    copies = []
    if report.copies and not invocation.is_quiet:
        copies = [form_sentence(report.copies, suggest_removal(search.ws))]
    notes = [*report.notes, *copies, *provenance.source_warnings(report.kb)]
    hint = "" if invocation.as_json or invocation.is_quiet else describe_setup(search.ws, report.kb)
    return ShownAnswer(report, lines, notes, hint)


def _packed_lines(report: PackedReport, nothing: str) -> Iterator[str]:
    if nothing:
        yield nothing
    for title, passage in group_by_kind(report.passages):
        yield from _title_lines(title)
        head, *lines = passage.shown_lines
        yield output.style_text(head, bold=True)
        yield from lines
        yield ""
    yield from _weak_lines(report)
    yield output.style_text(
        f"{answering.describe_position_plainly(report.kb)}; about {report.tokens:,} of {report.budget:,} tokens",
        dim=True,
    )
    notice = provenance.untracked_notice(report.kb)
    if notice:
        yield notice


def _title_lines(title: str) -> Iterator[str]:
    if title:
        yield output.style_text(f"{title}:", underline=True)


def _weak_lines(report: PassageReport | PackedReport) -> Iterator[str]:
    if report.weak:
        from vmrag_link.retrieval.weakness import WEAK_NOTE  # most answers are not weak

        yield WEAK_NOTE


def _describe_nothing(search: _Search) -> str:
    from vmrag_link.ops.sources.sources_report import propose_sources  # other answers do not need it

    query = search.query
    searches_all = not (search.at or query.collections)
    has_files = searches_all and not search.ws.list_stored_collections() and propose_sources(search.ws)
    narrowed = f" with {query.narrowing.display_text}" if query.narrowing else ""
    proposal = "\nhint: run 'vmrag init' to search files of the repository" if has_files else ""
    return f"Nothing found{narrowed}.{proposal}"


def _format_answer(search: _Search, report: PassageReport, nothing: str) -> Iterator[str]:
    if nothing:
        yield nothing
    for number, (title, hit) in enumerate(group_by_kind(report.results), start=1):
        yield from _title_lines(title)
        head, *others = _head_lines(search, report, hit)
        yield f"{number}. {head}"
        yield from (f"{passage_view.INDENT}{line}" for line in others)
        if hit.excerpt:
            spans = find_matches(search.query.text, ["\n".join(hit.excerpt.lines)])[0]
            yield from passage_view.number_lines(hit.excerpt.first, hit.excerpt.lines, spans)
        elif "last_line" in hit.metadata:
            yield from passage_view.cut_code_lines(hit.text, hit.best, hit.matches)
        else:
            yield from passage_view.cut_lines(hit.text, hit.best, hit.matches)
    yield from _weak_lines(report)
    yield answering.describe_position(report.kb)
    notice = provenance.untracked_notice(report.kb)
    if notice:
        yield notice


def _head_lines(search: _Search, report: PassageReport, hit: PlacedPassage) -> Iterator[str]:
    """Yield the lines above the text of a result: its name, and what is known about it."""
    invocation = search.invocation
    sources = report.kb.sources
    commit = sources.commit if search.at and sources else None
    of_files = sources.collections if sources else ()
    name, place = _name_and_place(hit, Path(report.kb.worktree), invocation.directory, commit or "", of_files)
    heading = hit.symbol or hit.header_path
    heading_text = output.style_text(f"  {heading}", dim=True) if heading and not place else ""
    score = output.style_text(f"  #{hit.chunk} {hit.score:g}", dim=True) if invocation.verbosity > 0 else ""
    own_title = format_title(hit.doc_id, hit.metadata.get("title"))
    changed = output.style_text(f"  ({hit.uncommitted})", fg="yellow") if hit.uncommitted else ""
    yield f"{output.style_text(name, bold=True)}{heading_text}{score}{own_title}{changed}"
    if place:
        yield output.style_text("  ".join(filter(None, (place, heading))), dim=True)
    if hit.outdated:
        yield output.style_text(hit.outdated, fg="yellow")
    if hit.also_in:
        from vmrag_link.workspace.answers.packing import also_in_line  # few results have translations or copies

        yield output.style_text(also_in_line(hit.also_in), dim=True)
    if hit.signature and not hit.excerpt:
        yield f"… {hit.signature}"


def _name_and_place(
    hit: PlacedPassage, top: Path, directory: Path, commit: str, sources: Collection[str]
) -> tuple[str, str]:
    """Return the name of a result, and the position of its text below that name.

    A file of a source has its line in its name: `docs/setup.md:12`, or `1a2b3c4:docs/setup.md:12`
    in a commit.
    """
    line = f":{hit.file_line}" if hit.file_line else ""
    commit = commit if hit.collection in sources else ""
    place = f"line {hit.line}" if hit.line and hit.line > 1 else ""
    if hit.file:
        path = hit.file if commit else format_relative_path(directory, top / hit.file)
        place = f"{commit[:7]}:{path}{line}" if commit else f"{path}{line}"
    return (place, "") if hit.file and hit.name == hit.file else (hit.name, place)


def _open_result(ws: Workspace, results: Sequence[PlacedPassage], number: int) -> None:
    from vmrag_link.git import programs

    if number > len(results):
        raise UsageInvalid(
            f"result {number} does not exist: the answer has {plural(len(results), 'result')}.",
            hint=f"use a smaller number, or add '-k {number}' to get more results",
        )
    _, hit = group_by_kind(results)[number - 1]  # as the terminal numbers them
    if hit.file is None or not (ws.places.top / hit.file).is_file():  # a file of a commit can be deleted
        raise UsageInvalid(
            f"{hit.name} is not a file in this working tree.", hint=f"run 'vmrag show {quoted(hit.name)}' to see it"
        )
    programs.edit_file(ws.places, ws.places.top / hit.file, line=hit.file_line)


def _parse_filter(text: str | None) -> dict[str, Any] | None:
    """Return the filter of an option; None without the option."""
    if not text:
        return None
    from vmrag_link.retrieval import filters  # most queries have no filter

    return filters.parse_filter(text)
