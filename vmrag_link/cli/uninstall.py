"""`vmrag uninstall`: remove the git hooks, or everything that vmrag wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click
import msgspec

from vmrag_hooks import installer
from vmrag_link import env, hints
from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import UsageInvalid, plural, quoted
from vmrag_link.git import hooks, merge_driver, remotes
from vmrag_link.paths import CONFIG_NAME as SETTINGS
from vmrag_link.paths import PIN_NAME
from vmrag_link.workspace import Workspace

if TYPE_CHECKING:
    from vmrag_link.ops.uninstall import RemovalReport


@vmrag_command("uninstall")
@click.option("--worktree", is_flag=True, help="Remove them for this worktree only, after 'vmrag install --worktree'.")
@click.option("--hooks", metavar="NAME,…", help="Remove only these hooks.")
@click.option("--force", is_flag=True, help="Also remove them from a hooks directory outside the repository.")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Also remove the merge driver, settings, trust, the server in MCP clients, and the knowledge base if it is pushed.",
)
@click.option(
    "--discard-knowledge",
    "discard",
    is_flag=True,
    help="With --all: also delete documents that exist only on this machine.",
)
@click.option(
    "--remote",
    is_flag=False,
    flag_value="",
    metavar="REMOTE",
    help="With --all: also delete the knowledge base on this git remote, for all users.",
)
def command(
    invocation: Invocation,
    *,
    worktree: bool,
    hooks: str | None,
    force: bool,
    everything: bool,
    discard: bool,
    remote: str | None,
) -> None:
    """Remove the git hooks and restore the earlier ones.

    The knowledge base stays, except with --all. --all removes nothing if documents would be
    lost, and lists them. It keeps your own files, such as golden queries.
    """
    if worktree and hooks is not None:
        raise UsageInvalid("--worktree and --hooks cannot be combined.", hint="run 'vmrag uninstall --worktree'")
    if everything and (worktree or hooks is not None):
        raise UsageInvalid("--all cannot be combined with --worktree or --hooks.", hint="run 'vmrag uninstall --all'")
    if discard and not everything:
        raise UsageInvalid(
            "--discard-knowledge needs --all.", hint="run 'vmrag uninstall --all' to list what would be lost"
        )
    if remote is not None and not everything:
        raise UsageInvalid("--remote needs --all.", hint="run 'vmrag uninstall --all --remote REMOTE'")
    names = installer.parse_hooks(hooks)
    if not everything:
        with invocation.workspace(warn=False) as ws:
            _replace_invalid_settings(invocation, ws)
            report = installer.uninstall_hooks(ws.places, hooks=names, force=force, worktree=worktree, everything=False)
        invocation.emit_report(report, _uninstall_hooks(report))
        return
    from vmrag_link.cli import mcp
    from vmrag_link.ops import uninstall
    from vmrag_mcp.clients import uninstall as clients

    with invocation.workspace(warn=False) as ws:
        _replace_invalid_settings(invocation, ws)
        remote = _ask_remote(ws) if remote == "" else remote
        losses = uninstall.require_saved(ws, discard=discard)
        refs = uninstall.list_remote_refs(ws, remote) if remote else {}
        if not invocation.as_json and not invocation.is_quiet:
            output.print_lines(_list_plan(ws, remote, refs))
        report = installer.uninstall_hooks(ws.places, hooks=names, force=force, worktree=worktree, everything=True)
        removed = uninstall.uninstall(ws, losses)
        files = clients.uninstall_all(ws.places.top, everywhere=False)
        uninstall.remove_empty_folders()
        if remote:
            removed = msgspec.structs.replace(removed, refs=uninstall.delete_refs(ws, remote, refs))
    lines = [*_uninstall_hooks(report), *_uninstall_everything(report, removed)]
    if remote:
        lines.append(f"Deleted on {remote}: {', '.join(removed.refs) or 'nothing, it has no knowledge'}")
    lines += [line for client in files.clients for line in mcp.describe_uninstall(client)] + mcp.describe_removed_rules(
        files.rules
    )
    lines += mcp.describe_refusals(files.refused)
    invocation.emit_report({"hooks": report, "everything": removed, "clients": files}, lines)


def _replace_invalid_settings(invocation: Invocation, ws: Workspace) -> None:
    error = ws.settings.replace_invalid()
    if error and not invocation.is_quiet:
        output.print_warning(f"ignoring the invalid settings: {error.message}", "warning:")


def _list_plan(ws: Workspace, remote: str | None, refs: Mapping[str, str]) -> Iterator[str]:
    """List everything that is going to be removed."""
    from vmrag_link.ops import uninstall
    from vmrag_mcp.clients import uninstall as clients

    plan = uninstall.plan_removal(ws.places)
    data = env.data_home() / "vmrag"
    removals = clients.uninstall_all(ws.places.top, everywhere=False, dry_run=True)
    parts = {
        "hooks": installer.list_installed_hooks(ws.places, hooks.find_hooks_folder(ws.places)),
        "working tree": [*plan.files, *installer.list_shared_files(ws.places)],
        "git config": [*plan.settings, *(f"merge.vmrag.{key}" for key in merge_driver.read_driver(ws.places))],
        "refs": plan.refs,
        "folders": [*plan.folders, *([f"{data} (if it is empty)"] if data.is_dir() else [])],
        "MCP clients": [entry.file for entry in removals.clients if entry.removed],
        "instructions": [f"the section in {file.file}" for file in removals.rules],
        "agreements": ["what you trusted in this repository"] if plan.agreed else [],
        f"on {remote}": list(refs),
    }
    if any(parts.values()):
        yield "This command removes:"
    yield from (f"  {part + ':':<14}{', '.join(names)}" for part, names in parts.items() if names)


def _ask_remote(ws: Workspace) -> str:
    """Ask for the name of the remote, because its documents are deleted for all users."""
    names = remotes.list_remotes(ws.places)
    if not names or not output.has_input_terminal():
        raise UsageInvalid(
            "--remote needs the name of a git remote.", hint="run 'vmrag uninstall --all --remote origin'"
        )
    return output.ask_choice("Delete the knowledge base for everyone on which git remote? Type its name", names)


def _uninstall_hooks(report: installer.UninstallReport) -> Iterator[str]:
    if report.elsewhere:
        yield "The hooks are off in this worktree. Other worktrees still use them."
    else:
        yield f"Removed from {report.folder}: {', '.join(report.removed)}" if report.removed else "Nothing to remove."
    yield from (f"Restored the earlier {name} hook." for name in report.restored)
    if report.kept:
        yield f"These hooks belong to the team. They stay, but are off here: {', '.join(report.kept)}"


def _uninstall_everything(hooks: installer.UninstallReport, report: RemovalReport) -> Iterator[str]:
    parts = ["the merge driver"] if hooks.driver else []
    parts += [plural(len(report.settings), "git setting")] if report.settings else []
    parts += ["your trust in settings"] if report.agreed else []
    parts += [f"the knowledge base and its indexes in {report.knowledge}"] if report.knowledge else []
    if parts:
        yield f"Removed {', '.join(parts)}"
    if report.settings:
        yield f"Removed from git's configuration: {', '.join(report.settings)}"
    if report.folders:
        yield f"Removed the folders {', '.join(report.folders)}"
    changed = [*report.changed, *hooks.scripts]
    if changed:
        files = " ".join(map(quoted, changed))
        yield f"Removed from the working tree: {', '.join(changed)}"
        remove = hints.suggest_command(
            f'git add -A -- {files} && git commit -m "Remove vmrag"', "remove vmrag for the team"
        )
        keep = hints.suggest_command(f"git stash push -- {files}", "remove it only here")
        yield f"hint: {hints.join_alternatives(remove, keep)}"
    if SETTINGS in report.kept:
        yield f"{SETTINGS} stays: it has settings that were never committed."
    written = [name for name in report.kept if name != SETTINGS]
    if written:
        yield f"You wrote these files, and they stay: {', '.join(written)}"
    if report.pin == "restored":
        yield "git's index has HEAD's pin again, because the staged pin named a revision that no remote has."
    elif report.lost and report.lost.pin and PIN_NAME in report.changed:
        yield "HEAD's .dolt-version pins a deleted revision. Commit its removal, so that others do not get this pin."
    elif report.knowledge and PIN_NAME in report.changed:
        yield ("hint: run 'git checkout HEAD -- .dolt-version .gitattributes .vmrag.yaml && vmrag clone' to undo this")
