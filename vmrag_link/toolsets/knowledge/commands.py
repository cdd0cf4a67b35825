"""`vmrag issue` and `vmrag doc`: logs about issues of projects, and documents about tools."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from vmrag_link.cli import answering, editor, output
from vmrag_link.cli.base import NEXT_COMMIT, Invocation, group
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.cli.passage_view import cut_lines
from vmrag_link.cli.texts import parse_metadata_option, read_given_text, text_options, warn_pending
from vmrag_link.index.keywords import find_matches
from vmrag_link.toolsets.knowledge import issue_logs, knowledge_docs, listing, names, records, search
from vmrag_link.toolsets.knowledge.issue_logs import LogChange, NewLog
from vmrag_link.toolsets.knowledge.knowledge_docs import DocChange, NewDoc
from vmrag_link.toolsets.knowledge.records import LOG_TYPES, DocFields, IssueLog, KnowledgeDoc, LogFields, LogType
from vmrag_link.toolsets.knowledge.search import KnowledgeHit
from vmrag_link.workspace.follow import provenance
from vmrag_link.workspace.follow.follow_pin import follow_and_warn

_TEXT_HINT = "use '-m TEXT' or '-F FILE'"
_RAW = click.option("--raw", is_flag=True, help="Print the exact bytes, also on a terminal and in a CI job.")
_LIMIT = click.option(
    "-n", "--limit", type=click.IntRange(1), default=50, help="Maximum number of results (default: 50)."
)
_OFFSET = click.option("--offset", type=click.IntRange(0), default=0, help="Number of results to skip.")
_PASSAGES = click.option(
    "-k", "limit", type=click.IntRange(1, 100), default=5, help="Maximum number of passages (default: 5)."
)
_TOOL = click.option("--tool", help="Only documents about this tool.")
_CATEGORY = click.option("--category", help="Only documents of this category.")
_NEW_METADATA = click.option("--metadata", metavar="JSON", help="JSON object that replaces the metadata.")


def _describe_rest(shown: int, total: int, offset: int) -> str:
    """Return the line below a page of a list that continues."""
    return f"{shown} of {total}; more: --offset {offset + shown}"


def _print_whole(invocation: Invocation, row: IssueLog | KnowledgeDoc, *, raw: bool) -> None:
    if invocation.as_json or invocation.is_quiet:
        invocation.emit_report(row)
    else:
        output.print_exactly(row.content, raw=raw)


def _format_hits(hits: Sequence[tuple[str, str, KnowledgeHit]], query: str) -> Iterator[str]:
    """Yield the lines of hits. Each hit has its name and its id."""
    spans = find_matches(query, [hit.content for _, _, hit in hits])
    for rank, ((name, row_id, hit), spans_of_hit) in enumerate(zip(hits, spans, strict=True), start=1):
        heading = f"{output.style_text(name, bold=True)}  {hit.metadata.get('title', '')}"
        yield f"{rank}. {heading}  {output.style_text(f'{hit.score:g} {row_id[:8]}', dim=True)}"
        yield from cut_lines(hit.content, spans_of_hit[0][0] if spans_of_hit else 0, spans_of_hit)
    if not hits:
        yield "Nothing found."


issue = group(
    "issue",
    "Write and find logs about issues.\n\nLOG is PROJECT#NUMBER, or NUMBER if there is one project, with :TYPE if the issue has "
    "several logs. The beginning of the log's id also works.",
)
_type = click.Choice(LOG_TYPES)


@vmrag_command("add")
@click.argument("issue", metavar="[PROJECT#]NUMBER", required=True)
@text_options
@click.option(
    "--type",
    "log_type",
    type=_type,
    default="implementation",
    help="Type of the log. An issue has one log of each type.",
)
@click.option("--title", default="", help="Title (default: the first heading, or the beginning of the text).")
@click.option(
    "--metadata",
    metavar="JSON",
    default="{}",
    help='JSON object, for example \'{"author": "Ada", "tags": ["cache"]}\'.',
)
def add_log(
    invocation: Invocation,
    *,
    issue: str,
    text: str | None,
    file: Path | None,
    log_type: LogType,
    title: str,
    metadata: str,
) -> None:
    """Store a log about an issue of a project.

    A project that does not exist is created.
    """
    content = read_given_text(invocation.directory, text, file)
    values = parse_metadata_option(metadata)
    with invocation.workspace() as ws:
        follow_and_warn(ws)
        project, number = names.issue_named(ws, issue)
        with editor.open_new_text(ws.places, content, name="log.md") as new:
            result = issue_logs.add_log(
                ws,
                NewLog(
                    project_id=project,
                    issue_number=number,
                    content=new,
                    title=title,
                    log_type=log_type,
                    metadata=values,
                ),
            )
    warn_pending(result.pending)
    line = f"{project}#{number}:{log_type}  {result.report.title}"
    invocation.emit_report(records.added_log(result), [line, NEXT_COMMIT])


@vmrag_command("edit")
@click.argument("log")
@text_options
@click.option("--type", "log_type", type=_type, help="New type.")
@click.option("--title", help="New title.")
@_NEW_METADATA
def edit_log(
    invocation: Invocation,
    *,
    log: str,
    text: str | None,
    file: Path | None,
    log_type: LogType | None,
    title: str | None,
    metadata: str | None,
) -> None:
    """Change a log.

    Without options, its text opens in git's editor.
    """
    content = read_given_text(invocation.directory, text, file)
    values = None if metadata is None else parse_metadata_option(metadata)
    change = LogChange(content, title or None, log_type, values)
    with invocation.workspace() as ws, contextlib.ExitStack() as drafts:
        log_id = names.id_of_log(ws, log)
        if change == LogChange():
            before = listing.issue_log(ws, log_id)[0].content
            after = editor.open_edited_text(ws.places, before, name="log.md", instead=_TEXT_HINT)
            change = LogChange(drafts.enter_context(after) or before)
        result = issue_logs.update_log(ws, log_id, change)
    warn_pending(result.pending)
    row = records.updated_log(result)
    line = f"{_format_name(row)}  {row.title}"
    invocation.emit_report(row, [line, NEXT_COMMIT] if row.changed else [f"{line}: nothing has changed"])


@vmrag_command("show")
@click.argument("log")
@_RAW
def show_log(invocation: Invocation, *, log: str, raw: bool) -> None:
    """Print the text of a log.

    --json prints all fields.
    """
    with invocation.workspace() as ws:
        row, _ = listing.issue_log(ws, names.id_of_log(ws, log))
    _print_whole(invocation, row, raw=raw)


def _filter_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a filter.

    Except for `project`, their values are the values of `listing.KEYS`.
    """
    options = (
        click.option("--project", help="Only logs of this project."),
        click.option("--issue", "issue_number", type=int, metavar="NUMBER", help="Only logs of this issue."),
        click.option("--type", "log_type", type=_type, help="Only logs of this type."),
        click.option(
            "--since",
            metavar="TIME",
            help="Only logs changed at this time or later, such as 2026-01-31 or 2026-01-31T12:00:00Z.",
        ),
        click.option(
            "--until", metavar="TIME", help="Only logs changed at this time or earlier. A day ends at midnight."
        ),
        click.option("--author", help="Only logs whose metadata has this author."),
        click.option("--tag", help="Only logs whose metadata has this tag."),
        click.option("--title", "title_contains", metavar="TEXT", help="Only logs whose title contains this text."),
    )
    for option in reversed(options):
        function = option(function)
    return function


@vmrag_command("list")
@_filter_options
@_LIMIT
@_OFFSET
def list_logs(invocation: Invocation, *, project: str | None, limit: int, offset: int, **filters: Any) -> None:
    """List the logs, last changed first."""
    with invocation.workspace() as ws:
        page, origin = listing.issue_logs(ws, project_id=project, filters=filters, limit=limit, offset=offset)
    lines = [f"{_format_name(log)}  {log.title}  {_format_rest(log)}" for log in page.logs]
    if page.has_more:
        lines.append(_describe_rest(len(page.logs), page.total_count, offset))
    is_filtered = project is not None or any(value is not None for value in filters.values())
    if not lines and not is_filtered and not offset:
        lines = ["No issue logs yet.", "hint: run 'vmrag issue add my-project#1' to add one"]
    answering.emit_answer(invocation, page, lines or ["No such log."], origin.notes)


def _format_name(log: LogFields) -> str:
    return output.style_text(f"{log.project_id}#{log.issue_number}:{log.log_type}", bold=True)


def _format_rest(log: LogFields) -> str:
    return output.style_text(f"{log.updated_at[:10]} {log.log_id[:8]}", dim=True)


@vmrag_command("search")
@click.argument("query")
@_filter_options
@_PASSAGES
@answering.strict_option
def search_logs(
    invocation: Invocation, *, query: str, project: str | None, limit: int, strict: bool, **filters: Any
) -> None:
    """Search the logs by meaning and by words."""
    with invocation.workspace() as ws:
        hits, origin = search.search_logs(ws, query, project_id=project, filters=filters, limit=limit)
        provenance.refuse_outdated(ws, origin.notes, strict=strict)
    name = "{project_id}#{issue_number}:{log_type}"
    named = [(name.format(**result.metadata), result.log_id, result) for result in hits.results]
    answering.emit_answer(
        invocation, hits, [*_format_hits(named, query), answering.describe_position(origin.kb)], origin.notes
    )


for subcommand in (add_log, edit_log, show_log, list_logs, search_logs):
    issue.add_command(subcommand)


doc = group(
    "doc",
    "Write and find documents about tools and libraries.\n\nDOC is the document's id, or its beginning.",
)


@vmrag_command("add")
@click.argument("tool")
@text_options
@click.option("--title", default="", help="Title (default: the first heading, or the beginning of the text).")
@click.option("--category", required=True, help="Category, such as api, framework or tooling.")
@click.option("--tool-version", default="", metavar="VERSION", help="Version of the tool.")
@click.option(
    "--metadata", metavar="JSON", default="{}", help='JSON object, for example \'{"source_url": "https://…"}\'.'
)
def add_doc(
    invocation: Invocation,
    *,
    tool: str,
    text: str | None,
    file: Path | None,
    title: str,
    category: str,
    tool_version: str,
    metadata: str,
) -> None:
    """Store a document about a tool."""
    content = read_given_text(invocation.directory, text, file)
    values = parse_metadata_option(metadata)
    with invocation.workspace() as ws, editor.open_new_text(ws.places, content, name="doc.md") as new:
        result = knowledge_docs.add_document(
            ws,
            NewDoc(
                tool_name=tool, title=title, content=new, category=category, tool_version=tool_version, metadata=values
            ),
        )
    warn_pending(result.pending)
    row = records.added_doc(result)
    invocation.emit_report(row, [f"{tool}  {result.report.title}  {row.doc_id}", NEXT_COMMIT])


@vmrag_command("edit")
@click.argument("doc")
@text_options
@click.option("--title", help="New title.")
@click.option("--category", help="New category.")
@click.option("--tool", help="New tool. The document keeps its id.")
@click.option("--tool-version", metavar="VERSION", help="New version of the tool.")
@_NEW_METADATA
def edit_doc(
    invocation: Invocation,
    *,
    doc: str,
    text: str | None,
    file: Path | None,
    title: str | None,
    category: str | None,
    tool: str | None,
    tool_version: str | None,
    metadata: str | None,
) -> None:
    """Change a document.

    Without options, its text opens in git's editor.
    """
    content = read_given_text(invocation.directory, text, file)
    values = None if metadata is None else parse_metadata_option(metadata)
    change = DocChange(
        content=content,
        title=title or None,
        category=category,
        tool_name=tool,
        tool_version=tool_version,
        metadata=values,
    )
    with invocation.workspace() as ws, contextlib.ExitStack() as drafts:
        doc_id = names.id_of_doc(ws, doc)
        if change == DocChange():
            before = listing.knowledge_document(ws, doc_id)[0].content
            after = editor.open_edited_text(ws.places, before, name="doc.md", instead=_TEXT_HINT)
            change = DocChange(drafts.enter_context(after) or before)
        result = knowledge_docs.update_document(ws, doc_id, change)
    warn_pending(result.pending)
    row = records.updated_doc(result)
    invocation.emit_report(
        row, [_format_doc(row), NEXT_COMMIT] if row.changed else [f"{_format_doc(row)}: nothing has changed"]
    )


@vmrag_command("show")
@click.argument("doc")
@_RAW
def show_doc(invocation: Invocation, *, doc: str, raw: bool) -> None:
    """Print the text of a document.

    --json prints all fields.
    """
    with invocation.workspace() as ws:
        row, _ = listing.knowledge_document(ws, names.id_of_doc(ws, doc))
    _print_whole(invocation, row, raw=raw)


@vmrag_command("list")
@_TOOL
@_CATEGORY
@_LIMIT
@_OFFSET
def list_docs(invocation: Invocation, *, tool: str | None, category: str | None, limit: int, offset: int) -> None:
    """List the documents, last changed first."""
    with invocation.workspace() as ws:
        page, origin = listing.knowledge_documents(ws, tool_name=tool, category=category, limit=limit, offset=offset)
    lines = [_format_doc(document) for document in page.docs]
    if page.has_more:
        lines.append(_describe_rest(len(page.docs), page.total_count, offset))
    is_filtered = tool is not None or category is not None or offset
    if not lines and not is_filtered:
        lines = ["No documents yet.", "hint: run 'vmrag doc add TOOL --category api' to add one"]
    answering.emit_answer(invocation, page, lines or ["No such document."], origin.notes)


def _format_doc(doc: DocFields) -> str:
    about = " ".join(filter(None, (doc.tool_name, doc.tool_version)))
    rest = output.style_text(f"{doc.category} {doc.updated_at[:10]} {doc.doc_id[:8]}", dim=True)
    return f"{output.style_text(about, bold=True)}  {doc.title}  {rest}"


@vmrag_command("search")
@click.argument("query")
@_TOOL
@_CATEGORY
@_PASSAGES
@answering.strict_option
def search_docs(
    invocation: Invocation, *, query: str, tool: str | None, category: str | None, limit: int, strict: bool
) -> None:
    """Search the documents by meaning and by words."""
    with invocation.workspace() as ws:
        hits, origin = search.search_docs(ws, query, tool_name=tool, category=category, limit=limit)
        provenance.refuse_outdated(ws, origin.notes, strict=strict)
    named = [(str(result.metadata["tool_name"]), result.doc_id, result) for result in hits.results]
    answering.emit_answer(
        invocation, hits, [*_format_hits(named, query), answering.describe_position(origin.kb)], origin.notes
    )


for subcommand in (add_doc, edit_doc, show_doc, list_docs, search_docs):
    doc.add_command(subcommand)
