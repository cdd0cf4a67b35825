"""`vmrag gc` and `migrate`: the knowledge base made smaller, and moved to another engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import FAILED_CHECK, OK, UsageInvalid, plural, quoted
from vmrag_link.ops.upkeep import gc as operation
from vmrag_link.ops.upkeep.gc import GcReport
from vmrag_link.ops.upkeep.gc_shared import DAYS, RemoteGcReport, ServerGcReport, gc_remote, gc_server

if TYPE_CHECKING:
    from vmrag_link.ops.migration.migrate import MigrateReport, UndoReport
    from vmrag_link.ops.migration.references import Changed

MEGABYTE = 1_000_000


@vmrag_command("gc")
@click.option("--apply", is_flag=True, help="Do it; without this, only say what would be done.")
@click.option(
    "--remote",
    is_flag=False,
    flag_value="",
    metavar="[REMOTE]",
    help="Write anew what the remote holds instead, without what it has gathered; mends one that is damaged.",
)
@click.option(
    "--server", is_flag=True, help="Drop what the Chroma server has of this knowledge base and no pin reaches, instead."
)
@click.option(
    "--days",
    type=click.IntRange(0, 36_500),
    metavar="N",
    help=f"With --server: keep what is younger than N days, {DAYS} by default.",
)
def command(invocation: Invocation, *, apply: bool, remote: str | None, server: bool, days: int | None) -> int:
    """Drop revisions that no pin needs, branches whose code branch is gone, spare indexes and old
    vectors.

    Every revision that git can still check out is kept, and all uncommitted documents; on a remote,
    everything that it reaches.
    """
    if (server and remote is not None) or (days is not None and not server):
        raise UsageInvalid("--days goes with --server, and --server without --remote.", hint="vmrag gc --help")
    if server:
        with invocation.workspace() as ws:
            dropped = gc_server(ws, apply=apply, days=DAYS if days is None else days)
        invocation.emit(dropped, _server_lines(dropped))
        return OK
    if remote is not None:
        with invocation.workspace() as ws:
            there = gc_remote(ws, remote or None, apply=apply)
        invocation.emit(there, _remote_lines(there))
        return OK
    with invocation.workspace() as ws:
        report = operation.gc(ws, apply=apply)
    invocation.emit(report, _lines(report))
    return FAILED_CHECK if report.undone else OK


_REASONS = {
    "uncommitted": "has uncommitted documents. To bring them back",
    "set_aside": "holds documents that were set aside. To bring them back",
    "remembered": "remembers uncommitted changes that return when the pin goes back. To list it",
}


def _lines(report: GcReport) -> Iterator[str]:
    if report.anchored:
        anchor = "Anchored" if report.applied else "Would anchor"
        yield f"{anchor} {plural(len(report.anchored), 'pinned revision')} that no branch reaches."
    removed = "Removed" if report.applied else "Would remove"
    for branch in report.pruned:
        yield f"{removed} the branch {branch.name}, whose code branch is gone (its revision {branch.revision[:7]} is kept)."
    yield from (f"The branch {kept.name} stays. It {_REASONS[kept.reason]}: {kept.hint}" for kept in report.kept)
    for noun, swept in (
        ("spare index part", report.leftovers.snapshots),
        ("spare Chroma store", report.leftovers.chroma),
        ("old working copy", report.leftovers.working_copies),
        ("leftover file", report.leftovers.files),
        ("migration leftover", report.leftovers.replaced),
    ):
        if swept.names:
            yield f"{removed} {plural(len(swept.names), noun)} ({_megabytes(swept.bytes)})."
    if report.leftovers.vectors.number:
        vectors = report.leftovers.vectors
        yield f"{removed} {plural(vectors.number, 'cached vector')} ({_megabytes(vectors.bytes)})."
    yield from report.undone
    if report.applied:
        for what, sizes in (("Knowledge base", report.kb_bytes), ("On this machine alone", report.local_bytes)):
            if sizes.before:
                yield f"{what}: {_megabytes(sizes.before)} → {_megabytes(sizes.after)}."
    else:
        yield "Next: vmrag gc --apply"


def _remote_lines(report: RemoteGcReport) -> Iterator[str]:
    if report.damaged:
        yield report.damaged
    if report.before:
        yield f"{report.remote} holds {_megabytes(report.before.bytes)}; pushed {plural(report.before.pushes, 'time')}."
    if report.after:
        yield f"Written anew: {_megabytes(report.after.bytes)}. The host drops the rest when it collects garbage."
        if report.damaged:
            yield "It holds what it held when it was last fetched here, and what the code here pins."
            yield "Whoever pushed since then runs again: vmrag push"
    else:
        yield f"Next: vmrag gc --remote {quoted(report.remote)} --apply"


def _server_lines(report: ServerGcReport) -> Iterator[str]:
    verb = "Dropped" if report.applied else "Would drop"
    for each in report.dropped:
        what = f" ({each.collection}, {plural(each.records, 'record')})" if each.collection else ""
        yield f"{verb} {each.name}{what}."
    others = f" {plural(report.others, 'collection')} of others stay." if report.others else ""
    yield f"{report.server}: {len(report.dropped)} to drop, {report.kept} needed or young.{others}"
    if report.dropped and not report.applied:
        yield "Next: vmrag gc --server --apply"


def _megabytes(size: int) -> str:
    return f"{size / MEGABYTE:.1f} MB"


_NAMES = {"doltlite": "the embedded engine", "dolt": "Dolt"}


@vmrag_command("migrate")
@click.option("--to", type=click.Choice(["dolt", "doltlite"]), help="The engine that is to store it.")
@click.option("--dry-run", is_flag=True, help="Only say what would be carried, and how long it may take.")
@click.option("--undo", is_flag=True, help="Go back to the knowledge base of before, while nothing new was committed.")
def migrate(invocation: Invocation, *, to: str | None, dry_run: bool, undo: bool) -> int:
    """Move the knowledge base to another engine, with every revision that branches and pins reach.

    Pins of old commits go on meaning what they meant. A run that was stopped goes on when it is
    started again, and the knowledge base of before stays until `vmrag gc --apply`.
    """
    if undo == (to is not None) or (undo and dry_run):
        raise UsageInvalid("Say either where to move it, or --undo.", hint="vmrag migrate --to dolt --dry-run")
    from vmrag_link.ops.migration import migrate as migrating

    with invocation.workspace() as ws:
        if to is None:
            back = migrating.undo(ws)
            invocation.emit(back, _undone(back))
        else:
            report = migrating.migrate(ws, "dolt" if to == "dolt" else "doltlite", dry_run=dry_run)
            invocation.emit(report, _migrated_lines(report))
    return OK


def _migrated_lines(report: MigrateReport) -> Iterator[str]:
    what = f"{plural(report.revisions, 'revision')} and {plural(len(report.branches), 'branch')}"
    if report.absent:
        which = "1 pinned revision is" if report.absent == 1 else f"{report.absent} pinned revisions are"
        after = "" if report.applied else "; to take along what the remote has: vmrag fetch"
        yield f"{which} not in this clone, and left to whoever has them{after}."
    if not report.applied:
        yield f"Would move {what} ({report.bytes / 1e6:.1f} MB) to {_NAMES[report.to]}, in about {report.seconds:g} s."
        yield f"Next: vmrag migrate --to {report.to}"
        return
    yield f"Moved {what} to {_NAMES[report.to]}; {report.made} were made by this run."
    yield from _files(report.changed)
    if report.remote:
        yield f"The remote {report.remote} holds the knowledge base of before. Name another one in .vmrag.yaml, then: vmrag pin"
    if report.changed.written or report.changed.left:
        yield f'Next: git commit -m "Store the knowledge with {report.to}", then vmrag push'
    else:
        yield "The pin names the new revision already: there is nothing to commit."
    yield "To go back: vmrag migrate --undo"


def _undone(report: UndoReport) -> Iterator[str]:
    yield f"The knowledge base is stored by {_NAMES[report.engine]} again, as it was."
    yield from _files(report.changed)


def _files(changed: Changed) -> Iterator[str]:
    staged = [each for each in changed.written if each not in changed.unstaged]
    if staged:
        yield f"Changed and staged: {', '.join(staged)}."
    if changed.unstaged:
        yield f"Changed, but not staged: git add {' '.join(map(quoted, changed.unstaged))}"
    if changed.left:
        yield f"Left as they are, because they were changed since: {', '.join(changed.left)}."
