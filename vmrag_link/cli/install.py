"""`vmrag install`: install the git hooks."""

from __future__ import annotations

import click

from vmrag_hooks import installer
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import VmragError, quoted
from vmrag_link.git.hooks import LEFTHOOK_LOCAL
from vmrag_link.ops.status.cautions import needs_hooks_for_files
from vmrag_link.workspace import Workspace, reasons
from vmrag_link.workspace.follow import lazy_fetch
from vmrag_link.workspace.follow.follow_pin import follow


@vmrag_command("install")
@click.option("--worktree", is_flag=True, help="Install the hooks for this worktree only.")
@click.option(
    "--hooks",
    metavar="NAME,…",
    help="Install only these hooks, such as post-checkout,post-merge. The choice is remembered.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Allow a hooks directory outside the repository, or one with files that git tracks.",
)
def command(invocation: Invocation, *, worktree: bool, hooks: str | None, force: bool) -> None:
    """Install the git hooks and the merge driver.

    Run it once in each clone. It also fetches the knowledge base that the code pins. Existing
    hooks are kept and also run.
    """
    names = installer.parse_hooks(hooks)
    with invocation.workspace() as ws:
        files_only = needs_hooks_for_files(ws)
        report = installer.install_hooks(
            ws.places, hooks=names, force=force, worktree=worktree, place=ws.config.hooks.place, files_only=files_only
        )
        if ws.chroma.local.is_set:
            ws.chroma.start_following()
        fetch_lines = [] if files_only else _fetch_knowledge_base(ws)
    lines = [f"Installed in {report.folder}: {', '.join(report.written)}" if report.written else "Installed already."]
    lines += [f"The existing {name} hook runs first." for name in report.chained]
    if report.limited:
        lines.append("They act only in worktrees in which `vmrag install --worktree` was run, such as this one.")
    elif worktree:
        lines.append("They still act in all worktrees.")
        lines.append("hint: run 'vmrag uninstall && vmrag install --worktree' to use them in this one only")
    lines += describe_hook_tools(report)
    if report.driver:
        lines.append("Registered the merge driver of .dolt-version.")
    if not report.attributed and not files_only:
        lines.append("git does not use the merge driver yet, because .gitattributes does not name it.")
        lines.append("hint: run 'vmrag init --knowledge-base' to create a knowledge base")
    invocation.emit_report(report, [*lines, *fetch_lines])


def describe_hook_tools(report: installer.InstallReport) -> list[str]:
    """Return lines about other tools that start the hooks, and about the remaining steps."""
    if report.configured:
        lines = ["git runs them from its configuration, next to the hooks of other tools."]
        lines += (
            ["Removed vmrag's files from the hooks directory, and restored the earlier hooks."] if report.moved else []
        )
        return lines + ([f"These do not run them: {', '.join(report.older)}"] if report.older else [])
    if report.older:
        return [
            *_by_tools(report),
            f"They are files, because this machine also has an older git: {', '.join(report.older)}",
        ]
    return _by_tools(report)


def _by_tools(report: installer.InstallReport) -> list[str]:
    if report.scripts:
        files = " ".join(map(quoted, report.scripts))
        return [
            f"husky's scripts start them: {', '.join(report.scripts)}. In a clone without vmrag the new lines do nothing.",
            f"hint: run 'git add {files} && git commit -m \"husky starts the hooks of vmrag\"'",
        ]
    if report.husky and report.scripts is None:
        return [
            "husky rewrites its folder with every 'npm install'.",
            "hint: run 'vmrag install' on a branch to add the hooks to husky's scripts too",
        ]
    if report.lefthook:
        return [f"lefthook starts these, by {LEFTHOOK_LOCAL[0]}, which is not committed: {', '.join(report.lefthook)}"]
    return []


def _fetch_knowledge_base(ws: Workspace) -> list[str]:
    """Fetch the knowledge base of a fresh clone.

    A failure does not keep the hooks from being installed.
    """
    if ws.is_initialized:
        return []
    try:
        is_fetched = lazy_fetch.fetch_pinned(ws, insist=True)
        report = follow(ws) if is_fetched else None
        if report and report.state == "missing":
            raise reasons.explain_unusable(ws, ws.resolve_target())
    except VmragError as error:
        return [f"Could not fetch the knowledge base: {error.message}", f"hint: {error.hint}"]
    return ["Fetched the knowledge base that this code pins."] if is_fetched else []
