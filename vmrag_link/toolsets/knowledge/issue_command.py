"""`vmrag issue`: what was found out about an issue of a project, and what was done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from vmrag_link.cli import answering, output
from vmrag_link.cli.base import NEXT_COMMIT, Invocation, group, rest_line
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.cli.passage_view import lines_from
from vmrag_link.cli.texts import edited, given_text, metadata_object, text_options, warn_pending, written_text
from vmrag_link.index.keywords import matches
from vmrag_link.ops.follow import provenance
from vmrag_link.ops.follow.follow_pin import move_and_warn
from vmrag_link.toolsets.knowledge import issue_logs, listing, records, search
from vmrag_link.toolsets.knowledge.issue_logs import LogChange, NewLog
from vmrag_link.toolsets.knowledge.records import LOG_TYPES, LogFields, LogType
from vmrag_link.toolsets.knowledge.search import IssueHits

command = group(
    "issue",
    "Write down what was found out about an issue, and find it. LOG is PROJECT#NUMBER, or NUMBER where there is one project, with "
    ":TYPE behind it where the issue has several logs; or how the log's id begins.",
)
_type = click.Choice(LOG_TYPES)


@vmrag_command("add")
@click.argument("issue", metavar="[PROJECT#]NUMBER", required=True)
@text_options
@click.option("--type", "log_type", type=_type, default="implementation", help="One log of each for an issue.")
@click.option("--title", default="", help="By default the first heading, else how the text begins.")
@click.option(
    "--metadata", metavar="JSON", default="{}", help='An object, e.g. \'{"author": "Ada", "tags": ["cache"]}\'.'
)
def add(
    invocation: Invocation,
    *,
    issue: str,
    text: str | None,
    file: Path | None,
    log_type: LogType,
    title: str,
    metadata: str,
) -> None:
    """Log what was found out about an issue of a project, or done; a new project is made."""
    content, values = given_text(invocation.directory, text, file), metadata_object(metadata)
    with invocation.workspace() as ws:
        move_and_warn(ws)
        project, number = listing.issue_named(ws, issue)
        content = written_text(ws, "log") if content is None else content
        done = issue_logs.add(ws, NewLog(project, number, content, title, log_type, values))
    warn_pending(done.pending)
    said = f"{project}#{number}:{log_type}  {done.report.title}"
    invocation.emit(records.added_log(done), [said, NEXT_COMMIT])


@vmrag_command("edit")
@click.argument("log")
@text_options
@click.option("--type", "log_type", type=_type, help="Another type.")
@click.option("--title", help="Another title.")
@click.option("--metadata", metavar="JSON", help="An object that takes the place of the metadata.")
def edit(
    invocation: Invocation,
    *,
    log: str,
    text: str | None,
    file: Path | None,
    log_type: LogType | None,
    title: str | None,
    metadata: str | None,
) -> None:
    """Change a log: what is given, or its text in git's editor."""
    content = given_text(invocation.directory, text, file)
    values = None if metadata is None else metadata_object(metadata)
    change = LogChange(content, title or None, log_type, values)
    with invocation.workspace() as ws:
        log_id = listing.id_of_log(ws, log)
        if change == LogChange():
            before = listing.issue_log(ws, log_id)[0].content
            change = LogChange(edited(ws, before, name="log") or before)
        done = issue_logs.update(ws, log_id, change)
    warn_pending(done.pending)
    row = records.updated_log(done)
    said = f"{_name(row)}  {row.title}"
    invocation.emit(row, [said, NEXT_COMMIT] if row.changed else [f"{said}: nothing has changed"])


@vmrag_command("show")
@click.argument("log")
@click.option("--raw", is_flag=True, help="The exact bytes, to a terminal and in a CI job, too.")
def show(invocation: Invocation, *, log: str, raw: bool) -> None:
    """Print the text of a log. --json has all its fields."""
    with invocation.workspace() as ws:
        row, _ = listing.issue_log(ws, listing.id_of_log(ws, log))
    if invocation.as_json or invocation.verbosity < 0:
        invocation.emit(row)
    else:
        output.print_exactly(row.content, raw=raw)


def _filter_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Which logs: but for `project`, their values are those of `issue_filter.KEYS`."""
    options = (
        click.option("--project", help="Only of this project."),
        click.option("--issue", "issue_number", type=int, metavar="NUMBER", help="Only of this issue."),
        click.option("--type", "log_type", type=_type, help="Only of this type."),
        click.option("--since", metavar="TIME", help="Changed then or later: 2026-01-31, or 2026-01-31T12:00:00Z."),
        click.option("--until", metavar="TIME", help="Changed then or earlier; a day counts to its end."),
        click.option("--author", help="Whose metadata has this author."),
        click.option("--tag", help="Whose metadata has this among its tags."),
        click.option("--title", "title_contains", metavar="TEXT", help="Whose title has this in it."),
    )
    for option in reversed(options):
        function = option(function)
    return function


@vmrag_command("list")
@_filter_options
@click.option("-n", "--limit", type=click.IntRange(1), default=50, help="How many at the most; by default 50.")
@click.option("--offset", type=click.IntRange(0), default=0, help="How many to pass over.")
def list_(invocation: Invocation, *, project: str | None, limit: int, offset: int, **filters: Any) -> None:
    """List the logs, the latest change first."""
    with invocation.workspace() as ws:
        page, here = listing.issue_logs(ws, project_id=project, filters=filters, limit=limit, offset=offset)
    lines = [f"{_name(each)}  {each.title}  {_rest(each)}" for each in page.logs]
    if page.has_more:
        lines.append(rest_line(len(page.logs), page.total_count, offset))
    asked = project is not None or any(each is not None for each in filters.values())
    nothing = "No such log." if asked or offset else "No issue logs yet. Next: vmrag issue add my-project#1"
    answering.emit(invocation, page, lines or [nothing], here.notes)


def _name(log: LogFields) -> str:
    return output.style(f"{log.project_id}#{log.issue_number}:{log.log_type}", bold=True)


def _rest(log: LogFields) -> str:
    return output.style(f"{log.updated_at[:10]} {log.log_id[:8]}", dim=True)


@vmrag_command("search")
@click.argument("query")
@_filter_options
@click.option("-k", "limit", type=click.IntRange(1, 100), default=5, help="How many passages; by default 5.")
@answering.strict_option
def search_(
    invocation: Invocation, *, query: str, project: str | None, limit: int, strict: bool, **filters: Any
) -> None:
    """Search the logs by meaning and by words: has this been seen before, and what was done?"""
    with invocation.workspace() as ws:
        found, here = search.issues(ws, query, project_id=project, filters=filters, limit=limit)
        provenance.refuse_outdated(ws, here.notes, strict=strict)
    answering.emit(invocation, found, [*_hits(found, query), answering.standing_line(here.kb)], here.notes)


def _hits(found: IssueHits, query: str) -> Iterator[str]:
    spans = matches(query, [each.content for each in found.results])
    for rank, (hit, own) in enumerate(zip(found.results, spans, strict=True), start=1):
        of = hit.metadata
        name = output.style(f"{of['project_id']}#{of['issue_number']}:{of['log_type']}", bold=True)
        yield f"{rank}. {name}  {of.get('title', '')}  {output.style(f'{hit.score:g} {hit.log_id[:8]}', dim=True)}"
        yield from lines_from(hit.content, own[0][0] if own else 0, own)
    if not found.results:
        yield "Nothing found."


for each in (add, edit, show, list_, search_):
    command.add_command(each)
