"""`vmrag ask`."""

from __future__ import annotations

import click

from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import UsageInvalid
from vmrag_link.ops.compounding import ask as operation


@vmrag_command("ask")
@click.argument("question")
@click.option("--collection", multiple=True, help="Only this collection; may be given several times.")
@click.option("--project", "config", metavar="CONFIG", help="The documents of the project with this configuration.")
@click.option("--external", is_flag=True, help="With --project: its other documentation.")
@click.option("--sources", type=click.IntRange(1, 100), help="How many documents at most (default: 3).")
@click.option(
    "--min-score",
    type=click.FloatRange(0, 1),
    help="How similar a document must be (default: what suits the embedding model).",
)
def command(
    invocation: Invocation,
    *,
    question: str,
    collection: tuple[str, ...],
    config: str | None,
    external: bool,
    sources: int | None,
    min_score: float | None,
) -> None:
    """Answer a question from the documents, with citations.

    The nearest sentences of each document are quoted, word for word. A language model writes the
    answer instead where the settings name one: llm.provider, llm.model.
    """
    if (external and not config) or (config and collection):
        raise UsageInvalid(
            "--external needs --project, and --project goes without --collection.",
            hint="vmrag ask QUESTION --project FOLDER/config.json --external",
        )
    with invocation.workspace() as ws:
        if config:
            path = str(invocation.directory / config)
            done = operation.ask_project(ws, path, question, of_external=external, sources=sources, least=min_score)
        else:
            found = operation.ask_collections(ws, question, collection, sources=sources, least=min_score)
            done = operation.report(found)
    for note in done.notes:
        output.complain(note, "warning:")
    invocation.emit(done, [*done.answer.splitlines(), "", output.style(_origin(done), dim=True)])


def _origin(done: operation.AskReport) -> str:
    state = "uncommitted documents included" if done.kb.dirty else "as committed"
    return f"from revision {done.kb.commit[:7]}, {state}"
