"""`vmrag gc`: delete unused revisions, indexes and vectors."""

from __future__ import annotations

from collections.abc import Iterator

import click

from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import FAILED_CHECK, OK, UsageInvalid, plural, quoted
from vmrag_link.ops.gc import gc as operation
from vmrag_link.ops.gc.gc import GcReport
from vmrag_link.ops.gc.gc_remote import RemoteGcReport, gc_remote
from vmrag_link.ops.gc.gc_server import KEEP_DAYS, ServerGcReport, gc_server

MEGABYTE = 1_000_000


@vmrag_command("gc")
@click.option("--apply", is_flag=True, help="Delete. Without this option, the command only lists.")
@click.option(
    "--remote",
    is_flag=False,
    flag_value="",
    metavar="[REMOTE]",
    help="Rewrite the knowledge base on the remote without unused data instead. Also repairs a damaged one.",
)
@click.option(
    "--server", is_flag=True, help="Delete unused collections of this knowledge base from the Chroma server instead."
)
@click.option(
    "--days",
    type=click.IntRange(0, 36_500),
    metavar="N",
    help="With --server: keep collections younger than N days (default: 7).",
)
def command(invocation: Invocation, *, apply: bool, remote: str | None, server: bool, days: int | None) -> int:
    """Delete unused revisions, indexes and vectors.

    Unused are revisions that no pin needs, KB branches whose code branch is deleted, old
    indexes and old cached vectors. Uncommitted documents and every revision that git can
    still check out are kept.
    """
    if (server and remote is not None) or (days is not None and not server):
        raise UsageInvalid(
            "--days needs --server, and --server cannot be combined with --remote.",
            hint="run 'vmrag gc --help' to see its options",
        )
    if server:
        with invocation.workspace() as ws:
            dropped = gc_server(ws, apply=apply, days=KEEP_DAYS if days is None else days)
        invocation.emit_report(dropped, _server_lines(dropped))
        return OK
    if remote is not None:
        with invocation.workspace() as ws:
            remote_report = gc_remote(ws, remote or None, apply=apply)
        invocation.emit_report(remote_report, _remote_lines(remote_report))
        return OK
    with invocation.workspace() as ws:
        report = operation.gc(ws, apply=apply)
    invocation.emit_report(report, _format_report(report))
    return FAILED_CHECK if report.undone else OK


_REASONS = {
    "uncommitted": "has uncommitted documents",
    "set_aside": "has stashed documents",
    "remembered": "has uncommitted changes that return when the pin moves back",
}


def _format_report(report: GcReport) -> Iterator[str]:
    if report.anchored:
        anchor = "Anchored" if report.applied else "Would anchor"
        yield f"{anchor} {plural(len(report.anchored), 'pinned revision')} that no branch reaches."
    removed = "Removed" if report.applied else "Would remove"
    for branch in report.pruned:
        yield f"{removed} the branch {branch.name}, whose git branch no longer exists (its revision {branch.revision[:7]} is kept)."
    yield from (f"Kept the branch {kept.name}, which {_REASONS[kept.reason]}; {kept.hint}" for kept in report.kept)
    for noun, swept in (
        ("spare index part", report.leftovers.views),
        ("spare Chroma store", report.leftovers.chroma),
        ("old working copy", report.leftovers.working_copies),
        ("leftover file", report.leftovers.files),
        ("migration leftover", report.leftovers.replaced),
    ):
        if swept.names:
            yield f"{removed} {plural(len(swept.names), noun)} ({_format_megabytes(swept.bytes)})."
    if report.leftovers.vectors.number:
        vectors = report.leftovers.vectors
        yield f"{removed} {plural(vectors.number, 'cached vector')} ({_format_megabytes(vectors.bytes)})."
    yield from report.undone
    if report.applied:
        for label, sizes in (("Knowledge base", report.kb_bytes), ("Only on this machine", report.local_bytes)):
            if sizes.before:
                yield f"{label}: {_format_megabytes(sizes.before)} → {_format_megabytes(sizes.after)}."
    else:
        yield "hint: run 'vmrag gc --apply' to remove them"


def _remote_lines(report: RemoteGcReport) -> Iterator[str]:
    if report.damaged:
        yield report.damaged
    if report.before:
        yield f"{report.remote} has {_format_megabytes(report.before.bytes)}; pushed {plural(report.before.pushes, 'time')}."
    if report.after:
        yield f"Rewrote it: {_format_megabytes(report.after.bytes)}. The host deletes the rest when it collects garbage."
        if report.damaged:
            yield "It has what it had at the last fetch of this clone, and what the code of this clone pins."
            yield "hint: ask users who pushed since then to run 'vmrag push'"
    else:
        yield f"hint: run 'vmrag gc --remote {quoted(report.remote)} --apply' to rewrite it"


def _server_lines(report: ServerGcReport) -> Iterator[str]:
    verb = "Deleted" if report.applied else "Would delete"
    for dropped in report.dropped:
        details = f" ({dropped.collection}, {plural(dropped.records, 'record')})" if dropped.collection else ""
        yield f"{verb} {dropped.name}{details}."
    others = f" {plural(report.others, 'collection')} of other users stay." if report.others else ""
    yield f"{report.server}: {len(report.dropped)} to delete, {report.kept} needed or recent.{others}"
    if report.dropped and not report.applied:
        yield "hint: run 'vmrag gc --server --apply' to delete them"


def _format_megabytes(size: int) -> str:
    return f"{size / MEGABYTE:.1f} MB"
