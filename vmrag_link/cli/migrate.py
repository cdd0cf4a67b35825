"""`vmrag migrate`: move the knowledge base to another engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import OK, UsageInvalid, plural, quoted

if TYPE_CHECKING:
    from vmrag_link.ops.migrate.migrate import MigrateReport, UndoReport
    from vmrag_link.ops.migrate.references import ChangedFiles


_NAMES = {"doltlite": "the embedded engine", "dolt": "Dolt"}


@vmrag_command("migrate")
@click.option("--to", type=click.Choice(["dolt", "doltlite"]), help="Engine to move to.")
@click.option("--dry-run", is_flag=True, help="Only print what would be copied, and an estimate of the time.")
@click.option("--undo", is_flag=True, help="Return to the old knowledge base, if nothing new was committed.")
def command(invocation: Invocation, *, to: str | None, dry_run: bool, undo: bool) -> int:
    """Move the knowledge base to another engine.

    It copies every revision that branches and pins reach. Pins of old commits stay valid. An
    interrupted run continues when you start it again. The old knowledge base stays until
    'vmrag gc --apply'.
    """
    if undo == (to is not None) or (undo and dry_run):
        raise UsageInvalid("missing option '--to' or '--undo'", hint="run 'vmrag migrate --to dolt --dry-run'")
    from vmrag_link.ops.migrate import migrate as migrating

    with invocation.workspace() as ws:
        if to is None:
            back = migrating.undo_migration(ws)
            invocation.emit_report(back, _undone_lines(back))
        else:
            report = migrating.migrate(ws, "dolt" if to == "dolt" else "doltlite", dry_run=dry_run)
            invocation.emit_report(report, _migrated_lines(report))
    return OK


def _migrated_lines(report: MigrateReport) -> Iterator[str]:
    amount = f"{plural(report.revisions, 'revision')} and {plural(len(report.branches), 'branch')}"
    if report.absent:
        which = "1 pinned revision is" if report.absent == 1 else f"{report.absent} pinned revisions are"
        after = "" if report.applied else "; run 'vmrag fetch' first to copy them too"
        yield f"{which} not in this clone, so the migration does not copy them{after}"
    if not report.applied:
        yield f"Would move {amount} ({report.bytes / 1e6:.1f} MB) to {_NAMES[report.to]}, in about {report.seconds:g} s."
        yield f"hint: run 'vmrag migrate --to {report.to}' to migrate it"
        return
    yield f"Moved {amount} to {_NAMES[report.to]}; {report.made} were made by this run."
    yield from _file_lines(report.changed)
    if report.remote:
        yield f"The remote {report.remote} has the old knowledge base."
        yield "hint: set another remote in .vmrag.yaml, then run 'vmrag pin' to write it into the pin"
    if report.changed.written or report.changed.skipped:
        yield f"hint: run 'git commit -m \"Store the documents with {report.to}\"', then 'vmrag push'"
    else:
        yield "The pin already names the new revision, so there is nothing to commit."
    yield "hint: run 'vmrag migrate --undo' to return to the old knowledge base"


def _undone_lines(report: UndoReport) -> Iterator[str]:
    yield f"The knowledge base is stored by {_NAMES[report.engine]} again, as it was."
    yield from _file_lines(report.changed)


def _file_lines(changed: ChangedFiles) -> Iterator[str]:
    staged = [row for row in changed.written if row not in changed.unstaged]
    if staged:
        yield f"Changed and staged: {', '.join(staged)}."
    if changed.unstaged:
        yield f"Changed, but not staged: {', '.join(changed.unstaged)}."
        yield f"hint: run 'git add {' '.join(map(quoted, changed.unstaged))}' to stage them"
    if changed.skipped:
        yield f"Left as they are, because they were changed since: {', '.join(changed.skipped)}."
