"""`vmrag uninstall`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from vmrag_hooks import installer
from vmrag_hooks.installer import UninstallReport
from vmrag_link.cli import mcp
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import UsageInvalid, plural, quoted
from vmrag_link.models import Record
from vmrag_link.ops.setup import removal
from vmrag_link.ops.setup.removal import RemovalReport
from vmrag_mcp.clients import uninstall as clients
from vmrag_mcp.clients.uninstall import ClientRemovals


class CompleteRemoval(Record, frozen=True):
    """What `--all` did. `clients`: the files of MCP clients that had the server."""

    hooks: UninstallReport
    everything: RemovalReport
    clients: ClientRemovals


@vmrag_command("uninstall")
@click.option("--worktree", is_flag=True, help="Only for this work tree, after `vmrag install --worktree`.")
@click.option("--hooks", metavar="NAME,…", help="Remove only these.")
@click.option("--force", is_flag=True, help="Also from a hooks directory outside of the repository.")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Also the merge driver and its attribute, settings, what you agreed to, the server in the files of MCP clients, and the "
    "knowledge base, if it is pushed.",
)
@click.option(
    "--discard-knowledge", "discard", is_flag=True, help="With --all: also knowledge that only this machine has."
)
def command(
    invocation: Invocation, *, worktree: bool, hooks: str | None, force: bool, everything: bool, discard: bool
) -> None:
    """Remove the git hooks and put back what was there before. The knowledge base stays, but for
    --all.

    --all removes nothing where something would be lost, and says what.
    """
    if worktree and hooks is not None:
        raise UsageInvalid("--worktree takes all hooks.", hint="vmrag uninstall --worktree")
    if everything and (worktree or hooks is not None):
        raise UsageInvalid("--all takes all hooks, of all work trees.", hint="vmrag uninstall --all")
    if discard and not everything:
        raise UsageInvalid("--discard-knowledge needs --all.", hint="vmrag uninstall --all")
    names = installer.parse_hooks(hooks)
    with invocation.workspace(warn=not everything) as ws:
        losses = removal.require_saved(ws, discard=discard) if everything else None
        report = installer.uninstall(ws.places, hooks=names, force=force, worktree=worktree, everything=everything)
        removed = removal.remove(ws, losses) if everything else None
        files = clients.uninstall_all(ws.places.top, everywhere=False) if everything else None
    lines = [*_hooks(report), *(_everything(report, removed) if removed else ())]
    if removed and files:
        lines += [line for each in files.clients for line in mcp.uninstalled(each)]
        lines += mcp.refusals(files.refused)
        invocation.emit(CompleteRemoval(report, removed, files), lines)
    else:
        invocation.emit(report, lines)


def _hooks(report: UninstallReport) -> Iterator[str]:
    if report.elsewhere:
        yield "The hooks do nothing in this work tree any more; others use them."
    else:
        yield f"Removed from {report.folder}: {', '.join(report.removed)}" if report.removed else "Nothing to remove."
    yield from (f"The {name} hook that was there before is back." for name in report.restored)
    if report.kept:
        yield f"These are the team's, and do nothing here any more: {', '.join(report.kept)}"


def _everything(hooks: UninstallReport, report: RemovalReport) -> Iterator[str]:
    parts = ["the merge driver"] if hooks.driver else []
    parts += [f"{plural(len(report.settings), 'setting')} of git's configuration"] if report.settings else []
    parts += ["what you agreed to"] if report.agreed else []
    parts += [f"the knowledge base and its indexes in {report.knowledge}"] if report.knowledge else []
    if parts:
        yield f"Removed {', '.join(parts)}"
    changed = [*report.changed, *hooks.scripts]
    if changed:
        files = " ".join(map(quoted, changed))
        yield f"Taken out of the work tree: {', '.join(changed)}"
        yield f"Next, if the team gives it up as well: git add -A -- {files} && git commit -m 'Remove vmrag'"
        yield f"   or, if you alone do: git stash push -- {files}"
    if report.kept:
        yield f"{', '.join(report.kept)} stays: it has settings that were never committed."
    if report.pin != "kept":
        back = "names again what HEAD pins" if report.pin == "restored" else "is gone"
        yield f".dolt-version {back}: nobody has what it named, and it was not committed."
    elif report.lost and report.lost.pin:
        yield ".dolt-version stays, and names knowledge that is gone: git rm .dolt-version (before others miss it)"
    elif report.knowledge:
        yield ".dolt-version stays: it names the knowledge of this code, which `vmrag clone` brings back."
