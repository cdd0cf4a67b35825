"""`vmrag sync`."""

from __future__ import annotations

import click

from vmrag_link.cli.base import Invocation, described
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import plural
from vmrag_link.ops.follow import sync as operation
from vmrag_link.sync.apply import SyncReport


@vmrag_command("sync")
@click.option(
    "--rebuild",
    is_flag=True,
    help="Build the index of the pinned revision again, from the documents and such cached vectors as prove themselves.",
)
@click.option(
    "--wait",
    is_flag=True,
    help="Wait for Chroma's store and the Chroma server, too, which otherwise follow in the background.",
)
def command(invocation: Invocation, *, rebuild: bool, wait: bool) -> None:
    """Bring knowledge base and index to what .dolt-version pins."""
    with invocation.workspace() as ws:
        report = operation.sync(ws, rebuild=rebuild, wait=wait)
    invocation.emit(report, _lines(report))


def _lines(report: SyncReport) -> list[str]:
    to = (report.to or "")[:7]
    chroma = [f"Chroma's store is ready: {report.chroma.path}"] if report.chroma and report.chroma.path else []
    if report.server and report.server.state == "ready":
        chroma.append(f"The index is on the Chroma server: {report.server.server}")
    if not report.seconds:
        return [f"Knowledge is at {to}, as pinned; nothing to do.", *chroma]
    chunks = report.chunks
    lines = [f"Knowledge is at {to} now: {described(report.plan)} ({report.seconds['total']:.2f} s)."]
    if chunks.added or chunks.removed:
        lines.append(
            f"Index: {plural(chunks.added, 'chunk')} added ({chunks.embedded} embedded), {chunks.removed} removed."
        )
    return lines + chroma
