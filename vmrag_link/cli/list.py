"""`vmrag list`: list the documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import plural

if TYPE_CHECKING:
    from vmrag_link.workspace import DocumentStore, Workspace


UNCOMMITTED = {None: " ", "added": "+", "modified": "~", "removed": "-"}


@vmrag_command("list")
@click.option("--collection", help="Only this collection.")
@click.option("--outdated", is_flag=True, help="Only notes whose cited files or lines changed after they were written.")
def command(invocation: Invocation, *, collection: str | None, outdated: bool) -> None:
    """List the documents.

    The marks + ~ - show added, modified and removed documents that are not committed.
    """
    from vmrag_link.ops import listing

    with invocation.workspace() as ws:
        if outdated:
            _list_outdated(invocation, ws, collection)
            return
        store = _find_store(ws, collection) if collection else ws
        report = listing.list_documents(store, collection)
        unnamed = not report.documents and store is ws and _has_proposals(ws)
    lines = [
        f"{UNCOMMITTED[document.uncommitted]} {document.name}  {output.style_text(document.title, dim=True)}"
        for document in sorted(report.documents, key=lambda row: row.name)
    ]
    then = "vmrag init" if unnamed else "vmrag import PATH --collection NAME"
    invocation.emit_report(report, lines or ["No documents yet.", f"hint: run '{then}'"])


def _find_store(ws: Workspace, collection: str) -> DocumentStore:
    from vmrag_link.ops.stores import stores

    return stores.find_store(ws, collection)


def _has_proposals(ws: Workspace) -> bool:
    from vmrag_link.ops.sources.sources_report import propose_sources

    return bool(propose_sources(ws))


def _list_outdated(invocation: Invocation, ws: Workspace, collection: str | None) -> None:
    from vmrag_link.workspace.documents.outdated_marks import list_outdated

    report = list_outdated(ws, collection)
    lines = [f"{row.name}: cites {citation}" for row in report.notes for citation in row.citations]
    if report.unknown:
        lines.append(f"{plural(len(report.unknown), 'note')} could not be compared with git's history.")
    invocation.emit_report(report, lines or ["No note cites a place that changed since."])
