"""`vmrag init`."""

from __future__ import annotations

import click
from vmrag_hooks import installer

from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import HooksRefused, IndexExtraMissing
from vmrag_link.ops import init as operation


@vmrag_command("init")
@click.option("--no-hooks", is_flag=True, help="Do not install the git hooks.")
def command(invocation: Invocation, *, no_hooks: bool) -> None:
    """Start a knowledge base for this repository: the base itself, .vmrag.yaml, the first pin and the git hooks."""
    with invocation.workspace() as ws:
        report = operation.init(ws)
        lines = [
            f"Started a knowledge base in {report.kb}",
            f"Wrote and staged {', '.join(report.written)}"
            if report.staged
            else f"Wrote {', '.join(report.written)}; git was busy, so: git add {' '.join(report.written)}",
        ]
        if not no_hooks:
            try:
                hooks = installer.install(ws.places)
                lines.append(f"Installed the git hooks in {hooks.folder}")
            except HooksRefused as refused:
                lines.append(f"Did not install the git hooks: {refused.message} ({refused.hint})")
        try:
            ws.reconcile()
        except IndexExtraMissing as missing:  # a base installation: the knowledge base is there, searching can wait
            lines.append(f"Made no index: {missing.message} ({missing.hint})")
    lines.append("Next: vmrag import docs/ --collection handbook")
    invocation.emit(report, lines)
