"""`vmrag restore`."""

from __future__ import annotations

from collections.abc import Iterator

import click
from msgspec.structs import asdict

from vmrag_link.cli import output
from vmrag_link.cli.base import NEXT_COMMIT, Invocation, kept_line
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import FAILED_CHECK, OK, plural
from vmrag_link.ops.branches import restore as operation
from vmrag_link.ops.branches.restore import Restoration
from vmrag_link.ops.history.document_names import EVERYTHING, command_of


class RestoreReport(Restoration, frozen=True):
    """The command's JSON. `branch` None: everything was so already."""

    branch: str | None
    pending: str


@vmrag_command("restore")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "-s", "--source", "ref", metavar="REF", help="Take them as they are there, instead of as they were committed."
)
@click.option("--collection", help="The collection that they are in; names are ids then.")
@click.option("--yes", is_flag=True, help="Do not ask, also where everything is given up that is not committed.")
def command(
    invocation: Invocation, *, names: tuple[str, ...], ref: str | None, collection: str | None, yes: bool
) -> int:
    """Take documents as they were committed, or as they are in another place: a git ref, a
    revision, a branch of the knowledge base.

    NAME is a document, a folder, a COLLECTION or a pattern, as in 'vmrag rm'; without any, all are
    meant. What was added or changed since is given up; texts that were never committed are kept in
    a revision, which is printed with the command that brings them back. With --source the result is
    uncommitted; 'vmrag commit' pins it.
    """
    with invocation.workspace() as ws:
        done = invocation.ask(
            lambda confirmed: operation.restore(ws, names, source=ref, within=collection, confirmed=confirmed),
            question="Give them up?",
            yes=yes,
        )
    if done is None:
        output.complain("Nothing was changed.")
        return FAILED_CHECK
    found = done.report
    report = RestoreReport(**asdict(found), branch=done.branch, pending=done.pending)
    lines = [*_lines(found)]
    if found.kept:
        back = command_of("restore", names or (EVERYTHING,), collection, source=found.kept[:12])
        lines.append(kept_line(len(found.unsaved), back))
    if ref is not None and done.branch:
        lines.append(NEXT_COMMIT)
    invocation.emit(report, lines)
    return OK


def _lines(found: Restoration) -> Iterator[str]:
    at = found.source[:7]
    if not found.documents and not found.collections:
        yield f"Nothing differs from {at}."
        return
    removed = sum(each.kind == "removed" for each in found.documents)
    taken = len(found.documents) - removed
    if taken:
        yield f"{plural(taken, 'document')} restored from {at}"
    if removed:
        yield f"{plural(removed, 'document')} removed, which {at} does not have"
    for each in found.collections:
        yield f"collection {each.name}: {'removed' if each.kind == 'removed' else 'restored'}"
