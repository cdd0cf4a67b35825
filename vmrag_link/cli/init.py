"""`vmrag init`."""

from __future__ import annotations

import click
from vmrag_hooks import installer

from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import AlreadyInitialized, HooksRefused, IndexExtraMissing
from vmrag_link.ops import init as operation
from vmrag_link.paths import Places


@vmrag_command("init")
@click.option("--no-hooks", is_flag=True, help="Do not install the git hooks.")
def command(invocation: Invocation, *, no_hooks: bool) -> None:
    """Start a knowledge base for this repository: the base itself, .vmrag.yaml, the first pin, git hooks and merge driver."""
    with invocation.workspace() as ws:
        report = operation.init(ws)
        hooks, said = (False, []) if no_hooks else _hooks(ws.places)
        if not report.written and not hooks:
            raise AlreadyInitialized("This repository has a knowledge base already.", hint="vmrag status")
        lines = [f"Started a knowledge base in {report.kb}"] if report.started else []
        lines += [*_written(report), *said]
        try:
            ws.reconcile()
        except IndexExtraMissing as missing:  # a base installation: the knowledge base is there, searching can wait
            lines.append(f"Made no index: {missing.message} ({missing.hint})")
    lines.append("Next: vmrag import docs/ --collection handbook")
    invocation.emit(report, lines)


def _hooks(places: Places) -> tuple[bool, list[str]]:
    """Whether hooks were missing and are there now, and what to say about it."""
    try:
        hooks = installer.install(places)
    except HooksRefused as refused:
        return False, [f"Did not install the git hooks: {refused.message} ({refused.hint})"]
    return bool(hooks.written or hooks.driver), [f"Installed the git hooks in {hooks.folder} and the merge driver"]


def _written(report: operation.InitReport) -> list[str]:
    names = report.written
    if not names:
        return []
    staged, busy = (
        f"Wrote and staged {', '.join(names)}",
        f"Wrote {', '.join(names)}; git was busy, so: git add {' '.join(names)}",
    )
    return [staged if report.staged else busy]
