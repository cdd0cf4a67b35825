"""`vmrag sync`: bring the knowledge base and the index to the checked-out commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import plural

if TYPE_CHECKING:
    from vmrag_link.sync.apply import SyncReport
    from vmrag_link.workspace import Workspace
    from vmrag_link.workspace.follow.sync import FilesReport


@vmrag_command("sync")
@click.option(
    "--rebuild",
    is_flag=True,
    help="Build the index of the pinned revision again.",
)
@click.option(
    "--wait",
    is_flag=True,
    help="Also wait for Chroma's store and the Chroma server.",
)
@click.option("--hooks", is_flag=True, help="Install missing git hooks. At a terminal, this is the default.")
def command(invocation: Invocation, *, rebuild: bool, wait: bool, hooks: bool) -> None:
    """Fetch and build everything that the commit needs.

    It fetches the knowledge base that .dolt-version pins and builds the index. At a terminal, it
    installs missing hooks, unless you removed or declined them. Without a pin, it only builds
    the index of the files.
    """
    from vmrag_link.workspace.follow import sync as operation
    from vmrag_link.workspace.pins.empty_pin import describe_once

    with invocation.workspace() as ws:
        shows_chroma = wait or ws.chroma.local.is_set
        report: FilesReport | SyncReport
        if ws.stores_nothing:
            report = operation.sync_files(ws, wait=wait)
            lines = [_describe_files(report)]
        else:
            report = operation.sync_to_pin(ws, rebuild=rebuild, wait=wait)
            lines = _sync_lines(report)
        if shows_chroma and report.chroma and report.chroma.path:
            lines.append(f"Chroma's store is ready: {report.chroma.path}")
        if hooks or invocation.is_interactive:
            lines += _install_missing_hooks(ws)
        if not invocation.as_json and (empty := describe_once(ws)):
            lines.append(f"hint: {empty}")
    invocation.emit_report(report, lines)


def _describe_files(report: FilesReport) -> str:
    commit = f"commit {report.commit[:7]}" if report.commit else "the working tree"
    indexed = "" if report.indexed == 100 else f" The index has {report.indexed} % of them."  # noqa: PLR2004
    sources = plural(len(report.sources), "source")
    return f"The index is at {commit}: {plural(report.files, 'file')} in {sources}.{indexed}"


def _install_missing_hooks(ws: Workspace) -> list[str]:
    """Install the hooks that git does not run here, and return lines that describe them."""
    from vmrag_link.ops.status.cautions import find_missing_hooks, misses_hooks_for_files

    files_only = misses_hooks_for_files(ws)
    if find_missing_hooks(ws) is None and not files_only:
        return []
    from vmrag_hooks import installer
    from vmrag_link.errors import HooksRefused

    try:
        report = installer.install_hooks(ws.places, place=ws.config.hooks.place, files_only=files_only)
    except HooksRefused as refused:
        return [f"Did not install the git hooks: {refused.message}", f"hint: {refused.hint}"]
    return [f"Installed the git hooks in {report.folder}."] if report.written else []


def _sync_lines(report: SyncReport) -> list[str]:
    to = (report.to or "")[:7]
    server: list[str] = []
    if report.server and report.server.state == "ready":
        server = [f"The index is on the Chroma server: {report.server.server}"]
    if not report.seconds:
        return [f"The knowledge base is at {to}, as pinned; nothing to do.", *server]
    chunks = report.chunks
    lines = [f"The knowledge base is now at {to}: {report.plan.text} ({report.seconds['total']:.2f} s)."]
    if chunks.added or chunks.removed:
        lines.append(
            f"Index: {plural(chunks.added, 'chunk')} added ({chunks.embedded} embedded), {chunks.removed} removed."
        )
    return lines + server
