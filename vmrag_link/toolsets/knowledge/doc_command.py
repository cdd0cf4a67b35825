"""`vmrag doc`: what should be known of a tool, a library or a framework."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from vmrag_link.cli import answering, output
from vmrag_link.cli.base import NEXT_COMMIT, Invocation, group, rest_line
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.cli.passage_view import lines_from
from vmrag_link.cli.texts import edited, given_text, metadata_object, text_options, warn_pending, written_text
from vmrag_link.index.keywords import matches
from vmrag_link.ops.follow import provenance
from vmrag_link.toolsets.knowledge import knowledge_docs, listing, records, search
from vmrag_link.toolsets.knowledge.knowledge_docs import DocChange, NewDoc
from vmrag_link.toolsets.knowledge.records import DocFields
from vmrag_link.toolsets.knowledge.search import DocHits

command = group(
    "doc",
    "Write down what should be known of a tool, a library or a framework, and find it. DOC is the document's id, or how it begins.",
)


@vmrag_command("add")
@click.argument("tool")
@text_options
@click.option("--title", default="", help="By default the first heading, else how the text begins.")
@click.option("--category", required=True, help="What it is about, e.g. api, framework, tooling.")
@click.option("--tool-version", default="", metavar="VERSION", help="The version of the tool that it is about.")
@click.option("--metadata", metavar="JSON", default="{}", help='An object, e.g. \'{"source_url": "https://…"}\'.')
def add(
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
    content, values = given_text(invocation.directory, text, file), metadata_object(metadata)
    with invocation.workspace() as ws:
        content = written_text(ws, "doc") if content is None else content
        done = knowledge_docs.add(ws, NewDoc(tool, title, content, category, tool_version, values))
    warn_pending(done.pending)
    row = records.added_doc(done)
    invocation.emit(row, [f"{tool}  {done.report.title}  {row.doc_id}", NEXT_COMMIT])


@vmrag_command("edit")
@click.argument("doc")
@text_options
@click.option("--title", help="Another title.")
@click.option("--category", help="Another category.")
@click.option("--tool", help="Another tool; the document keeps its id.")
@click.option("--tool-version", metavar="VERSION", help="Another version of the tool.")
@click.option("--metadata", metavar="JSON", help="An object that takes the place of the metadata.")
def edit(
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
    """Change a document: what is given, or its text in git's editor."""
    content = given_text(invocation.directory, text, file)
    values = None if metadata is None else metadata_object(metadata)
    change = DocChange(content, title or None, category, tool, tool_version, values)
    with invocation.workspace() as ws:
        doc_id = listing.id_of_doc(ws, doc)
        if change == DocChange():
            before = listing.knowledge_document(ws, doc_id)[0].content
            change = DocChange(edited(ws, before, name="doc") or before)
        done = knowledge_docs.update(ws, doc_id, change)
    warn_pending(done.pending)
    row = records.updated_doc(done)
    invocation.emit(row, [_line(row), NEXT_COMMIT] if row.changed else [f"{_line(row)}: nothing has changed"])


@vmrag_command("show")
@click.argument("doc")
@click.option("--raw", is_flag=True, help="The exact bytes, to a terminal and in a CI job, too.")
def show(invocation: Invocation, *, doc: str, raw: bool) -> None:
    """Print the text of a document. --json has all its fields."""
    with invocation.workspace() as ws:
        row, _ = listing.knowledge_document(ws, listing.id_of_doc(ws, doc))
    if invocation.as_json or invocation.verbosity < 0:
        invocation.emit(row)
    else:
        output.print_exactly(row.content, raw=raw)


@vmrag_command("list")
@click.option("--tool", help="Only about this tool.")
@click.option("--category", help="Only of this category.")
@click.option("-n", "--limit", type=click.IntRange(1), default=50, help="How many at the most; by default 50.")
@click.option("--offset", type=click.IntRange(0), default=0, help="How many to pass over.")
def list_(invocation: Invocation, *, tool: str | None, category: str | None, limit: int, offset: int) -> None:
    """List the documents, the latest change first."""
    with invocation.workspace() as ws:
        page, here = listing.knowledge_documents(ws, tool_name=tool, category=category, limit=limit, offset=offset)
    lines = [_line(each) for each in page.docs]
    if page.has_more:
        lines.append(rest_line(len(page.docs), page.total_count, offset))
    asked = tool is not None or category is not None or offset
    nothing = "No such document." if asked else "No documents yet. Next: vmrag doc add TOOL --category api"
    answering.emit(invocation, page, lines or [nothing], here.notes)


def _line(doc: DocFields) -> str:
    about = " ".join(filter(None, (doc.tool_name, doc.tool_version)))
    rest = output.style(f"{doc.category} {doc.updated_at[:10]} {doc.doc_id[:8]}", dim=True)
    return f"{output.style(about, bold=True)}  {doc.title}  {rest}"


@vmrag_command("search")
@click.argument("query")
@click.option("--tool", help="Only about this tool.")
@click.option("--category", help="Only of this category.")
@click.option("-k", "limit", type=click.IntRange(1, 100), default=5, help="How many passages; by default 5.")
@answering.strict_option
def search_(
    invocation: Invocation, *, query: str, tool: str | None, category: str | None, limit: int, strict: bool
) -> None:
    """Search the documents by meaning and by words."""
    with invocation.workspace() as ws:
        found, here = search.knowledge(ws, query, tool_name=tool, category=category, limit=limit)
        provenance.refuse_outdated(ws, here.notes, strict=strict)
    answering.emit(invocation, found, [*_hits(found, query), answering.standing_line(here.kb)], here.notes)


def _hits(found: DocHits, query: str) -> Iterator[str]:
    spans = matches(query, [each.content for each in found.results])
    for rank, (hit, own) in enumerate(zip(found.results, spans, strict=True), start=1):
        name = output.style(str(hit.metadata["tool_name"]), bold=True)
        title = hit.metadata.get("title", "")
        yield f"{rank}. {name}  {title}  {output.style(f'{hit.score:g} {hit.doc_id[:8]}', dim=True)}"
        yield from lines_from(hit.content, own[0][0] if own else 0, own)
    if not found.results:
        yield "Nothing found."


for each in (add, edit, show, list_, search_):
    command.add_command(each)
