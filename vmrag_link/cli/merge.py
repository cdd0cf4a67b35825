"""`vmrag merge`: merge other documents into those of the checked-out code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import FAILED_CHECK, UsageInvalid, quoted

if TYPE_CHECKING:
    from vmrag_link.ops.merge.merge import MergeReport


@vmrag_command("merge")
@click.argument("source", required=False, metavar="[REF|REVISION|KB-BRANCH]")
@click.option("--no-commit", is_flag=True, help="Leave the result uncommitted.")
@click.option("--continue", "proceed", is_flag=True, help="Finish the open merge after its conflicts are resolved.")
@click.option("--abort", is_flag=True, help="Abort the open merge.")
@click.option(
    "--repair",
    metavar="COMMIT",
    help="Bring back the documents that this git commit dropped (see 'vmrag verify').",
)
def command(
    invocation: Invocation, *, source: str | None, no_commit: bool, proceed: bool, abort: bool, repair: str | None
) -> int:
    """Merge the documents of another ref, revision or KB branch.

    Name a git ref (its pin is merged), a revision or a KB branch. A name that begins
    with vmrag/wip/ restores stashed documents. The exit code is 1 if documents are in
    conflict; 'vmrag resolve' resolves them.
    """
    if sum(map(bool, (source, proceed, abort, repair))) != 1 or (no_commit and not source):
        raise UsageInvalid(
            "merge needs exactly one of a source, --continue, --abort and --repair.",
            hint="run 'vmrag merge --help' to see its options",
        )
    from vmrag_link.ops.merge import merge as operation
    from vmrag_link.ops.merge import repair as repairing

    with invocation.workspace() as ws:
        if source:
            report = operation.merge(ws, source, commit=not no_commit)
        elif repair:
            report = repairing.repair_commit(ws, repair)
        else:
            report = operation.continue_merge(ws) if proceed else operation.abort_merge(ws)
    invocation.emit_report(report, describe_merge(report))
    return FAILED_CHECK if report.result == "conflict" or not report.staged else 0


def describe_merge(report: MergeReport) -> list[str]:
    revision = (report.revision or "")[:7]
    match report.result:
        case "already_up_to_date":
            lines = [f"Nothing to merge: {revision} already contains {report.source}."]
        case "aborted":
            lines = [f"Aborted the merge of {report.source}."]
        case "conflict":
            lines = [f"{output.style_text('conflict', fg='red')}  {conflict}" for conflict in report.conflicts]
            lines.append(
                "hint: run 'vmrag resolve', then 'vmrag merge --continue', or 'vmrag merge --abort' to abort the merge"
            )
        case "uncommitted":
            lines = [f"Merged {report.source}: {report.changes.text}, not committed yet."]
            lines.append("hint: run 'vmrag commit -m \"What changed in the documents\"' to commit the documents")
        case _:
            lines = [f"Merged {report.source}: {report.changes.text}. Revision {revision} is pinned."]
            lines.append(
                "hint: run 'git commit -m \"…\"' to commit the pin"
                if report.staged
                else "hint: run 'git add .dolt-version' to stage the pin"
            )
    if report.code_behind and report.result in ("already_up_to_date", "fast_forward", "merge"):
        lines.append(f"hint: run 'git merge {quoted(report.source)}' to merge the code of a pull request as well")
    if report.pending:
        lines.append(f"warning: {report.pending}")
    return [*lines, *report.notes]
