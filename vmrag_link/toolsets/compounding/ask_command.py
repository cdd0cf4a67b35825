"""`vmrag ask`."""

from __future__ import annotations

import click

from vmrag_link.cli import answering
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import UsageInvalid
from vmrag_link.toolsets.compounding import ask as operation
from vmrag_link.workspace.follow import provenance


@vmrag_command("ask")
@click.argument("question")
@click.option("--collection", multiple=True, help="Only this collection. Can be repeated.")
@click.option(
    "--project", "config", metavar="CONFIG", help="Search the documents of the project with this configuration."
)
@click.option("--external", is_flag=True, help="With --project: search its external documentation.")
@click.option("--sources", type=click.IntRange(1, 100), help="Maximum number of documents (default: 3).")
@click.option(
    "--min-score",
    type=click.FloatRange(0, 1),
    help="Minimum similarity of a document (default: depends on the embedding model).",
)
@answering.strict_option
def command(
    invocation: Invocation,
    *,
    question: str,
    collection: tuple[str, ...],
    config: str | None,
    external: bool,
    sources: int | None,
    min_score: float | None,
    strict: bool,
) -> None:
    """Answer a question from the documents, with citations.

    The answer quotes the most similar sentences of each document. If the settings name a
    language model (llm.provider, llm.model), it writes the answer instead. Files of sources
    are never sent to a language model, so it cannot cite them.
    """
    if (external and not config) or (config and collection):
        raise UsageInvalid(
            "--external needs --project, and --project goes without --collection.",
            hint="run 'vmrag ask QUESTION --project FOLDER/config.json --external'",
        )
    with invocation.workspace() as ws:
        if config:
            path = str(invocation.directory / config)
            report = operation.ask_project(
                ws, path, question, of_external=external, sources=sources, min_score=min_score
            )
        else:
            answered = operation.ask_collections(ws, question, collection, sources=sources, min_score=min_score)
            report = operation.build_report(answered)
        if not report.kb.in_sync:
            provenance.refuse_outdated(ws, report.notes, strict=strict)
    lines = [*report.answer.splitlines(), "", answering.describe_position(report.kb)]
    answering.emit_answer(invocation, report, lines, [*report.notes, *provenance.source_warnings(report.kb)])
