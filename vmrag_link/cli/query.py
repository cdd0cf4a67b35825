"""`vmrag query`."""

from __future__ import annotations

import textwrap

import click

from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation, title_beside
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.ops.follow.provenance import KbBlock
from vmrag_link.ops.index import query as operation
from vmrag_link.retrieval import filters
from vmrag_link.retrieval.query import Mode, Query

WIDTH = 100
LINES = 3


@vmrag_command("query")
@click.argument("text")
@click.option(
    "--collection",
    multiple=True,
    help="Only this collection; may be given several times. By default all but those of `learning` and thoughts.",
)
@click.option("-k", type=click.IntRange(1, 1000), help="How many chunks (default: retrieval.k).")
@click.option("--mode", type=click.Choice(["hybrid", "vector", "keyword"]), help="Default: retrieval.mode.")
@click.option("--where", metavar="JSON", help='Filter over metadata, e.g. \'{"team": "core"}\'.')
@click.option("--where-document", metavar="JSON", help='Filter over texts, e.g. \'{"$contains": "TLS"}\'.')
@click.option("--at", "ref", metavar="REF", help="Answer from what this git ref pins, ranked as its settings say.")
def command(
    invocation: Invocation,
    *,
    text: str,
    collection: tuple[str, ...],
    k: int | None,
    mode: str | None,
    where: str | None,
    where_document: str | None,
    ref: str | None,
) -> None:
    """Search the knowledge of the code that is checked out.

    The score of a chunk depends on the mode. hybrid: its share of the best scores of this query, 1
    for the best by words and by meaning. vector: nearly the cosine. keyword: BM25 of its own words
    and, weighted, of its document's.
    """
    with invocation.workspace() as ws:
        at = operation.ranked_at(ws, ref) if ref is not None else None
        settings = at.retrieval if at else ws.config.retrieval
        asked = Query(
            text=text,
            collections=collection or None,
            k=k or settings.k,
            mode=Mode(mode or settings.mode),
            where=filters.parse(where) if where else None,
            where_document=filters.parse(where_document) if where_document else None,
        )
        report = operation.query(ws, asked, at=at)
    for note in report.notes:
        output.complain(note, "warning:")
    invocation.emit(report, _lines(report))


def _lines(report: operation.QueryReport) -> list[str]:
    lines = []
    for hit in report.results:
        title = title_beside(hit.doc_id, hit.metadata.get("title"))
        place = output.style(f"{hit.collection}/{hit.doc_id}", bold=True)
        lines.append(f"{hit.rank}. {place} #{hit.chunk}  {output.style(f'{hit.score:g}', dim=True)}{title}")
        lines += passage_lines(hit.text)
    lines.append(standing_line(report.kb))
    return lines if report.results else ["Nothing found.", *lines]


def passage_lines(text: str) -> list[str]:
    """How a chunk begins, below the line that names it."""
    return textwrap.wrap(
        " ".join(text.split()),
        WIDTH,
        max_lines=LINES,
        placeholder=" …",
        initial_indent="   ",
        subsequent_indent="   ",
    )


def standing_line(kb: KbBlock) -> str:
    """Where an answer comes from."""
    state = "uncommitted documents included" if kb.dirty else "as committed"
    return output.style(f"from revision {kb.commit[:7]}, {state}", dim=True)
