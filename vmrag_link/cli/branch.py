"""`vmrag branch`: list KB branches, or switch to one."""

from __future__ import annotations

import click

from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.engines.own_branches import ASIDE_PREFIX, is_memory_branch
from vmrag_link.errors import FAILED_CHECK, quoted


@vmrag_command("branch")
@click.option(
    "--switch",
    "name",
    metavar="NAME|REVISION",
    help="Switch the documents of the checked-out code branch to this KB branch or revision.",
)
def command(invocation: Invocation, *, name: str | None) -> int:
    """List KB branches, or switch to another one.

    A KB branch is a branch of the knowledge base. It has the stored documents of one code
    branch, which the list shows. --switch changes and stages the pin, like a submodule. If you
    switch to a revision, the first document that you store creates a KB branch.
    """
    from vmrag_link.workspace.pins import kb_branches

    if name is not None:
        return _switch_branch(invocation, name)
    with invocation.workspace() as ws:
        report = kb_branches.list_branches(ws)
    lines = []
    for branch in report.branches:
        mark = "*" if branch.current else " "
        belongs = f"for {branch.code_branch}" if branch.code_branch else "of no code branch"
        if branch.name.startswith(ASIDE_PREFIX):
            belongs = f"stashed documents; run 'vmrag merge {quoted(branch.name)}' to restore them"
            if is_memory_branch(branch.name):
                belongs = "uncommitted changes that return when the pin moves back; 'vmrag commit' drops them"
        lines.append(f"{mark} {branch.name}  {branch.revision[:7]}  {belongs}{', uncommitted changes' * branch.dirty}")
    invocation.emit_report(report, lines or ["No KB branches yet: the first document that is stored makes one."])
    return 0


def _switch_branch(invocation: Invocation, name: str) -> int:
    from vmrag_link.ops.branch import switch as switching

    with invocation.workspace() as ws:
        report = switching.switch(ws, name)
    where = f"KB branch {report.branch}" if report.branch else "revision"
    lines = [f"{report.code_branch} is on {where} {report.pin.dolt_commit[:7]}, which is pinned.", *report.notes]
    lines.append(
        "hint: run 'git commit -m \"…\"' to commit the pin"
        if report.staged
        else "hint: run 'git add .dolt-version' to stage the pin"
    )
    if report.pending:
        lines.append(f"warning: {report.pending}")
    invocation.emit_report(report, lines)
    return 0 if report.staged else FAILED_CHECK
