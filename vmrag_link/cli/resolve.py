"""`vmrag resolve`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click

from vmrag_link.cli import conflict_view, output
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.cli.common import FAILED_CHECK
from vmrag_link.documents import given
from vmrag_link.errors import ContentRefused, UsageInvalid, plural, quoted
from vmrag_link.merging.conflicts import Side
from vmrag_link.ops.merge import resolve as operation
from vmrag_link.workspace import Workspace


@vmrag_command("resolve")
@click.argument("conflicts", nargs=-1, metavar="[COLLECTION/DOC]...")
@click.option(
    "--ours", "side", flag_value="ours", help="Take our side of these conflicts (by default of all open ones)."
)
@click.option("--theirs", "side", flag_value="theirs", help="Take their side.")
@click.option(
    "--file", type=click.Path(path_type=Path, allow_dash=True), help="Take this file's text; - reads standard input."
)
@click.option(
    "--field",
    "fields",
    multiple=True,
    metavar="FIELD=ours|theirs",
    help="Decide about one field; may be given several times.",
)
@click.option("--list", "only_list", is_flag=True, help="Show the conflicts and ask nothing.")
def command(
    invocation: Invocation,
    *,
    conflicts: tuple[str, ...],
    side: Side | None,
    file: Path | None,
    fields: tuple[str, ...],
    only_list: bool,
) -> int:
    """Decide about the documents that both sides of a merge changed. On a terminal: one after the
    other.

    Works for git's own merges and for vmrag merge. Decisions are kept; it can be left and gone on
    with later. Exit code 1 while something is undecided.
    """
    deciding = bool(side or fields or file)
    if deciding and only_list:
        raise UsageInvalid("--list decides nothing.", hint="vmrag resolve --list")
    text = _text(file) if file else None
    if text is not None and len(conflicts) != 1:
        raise UsageInvalid("A file resolves one conflict.", hint="vmrag resolve COLLECTION/DOC --file FILE")
    asks = not (deciding or only_list) and _asks(invocation)
    if conflicts and not (deciding or only_list or asks):
        raise UsageInvalid(
            "What should become of it?",
            hint=f"vmrag resolve {quoted(conflicts[0])} --ours (or --theirs, --file, --field)",
        )
    with invocation.workspace() as ws:
        if deciding:
            report = operation.resolve(ws, conflicts, side=side, fields=_fields(fields), text=text)
        else:
            report = operation.conflicts(ws, conflicts)
            if asks:
                report = _ask(ws, report, conflicts)
    invocation.emit(report, _lines(report, shown=only_list or not (deciding or asks)))
    return FAILED_CHECK if report.conflicts or not report.staged else 0


def _asks(invocation: Invocation) -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and not invocation.as_json


def _text(path: Path) -> str:
    return given.stream_text(sys.stdin.buffer) if str(path) == "-" else given.file_text(path)


def _fields(given: tuple[str, ...]) -> dict[str, Side]:
    fields: dict[str, Side] = {}
    for each in given:
        name, _, side = each.partition("=")
        if side not in ("ours", "theirs"):
            raise UsageInvalid(f"--field {each}: say which side.", hint=f"--field {name or 'title'}=ours")
        fields[name] = "ours" if side == "ours" else "theirs"
    return fields


def _ask(ws: Workspace, report: operation.ResolveReport, wanted: tuple[str, ...]) -> operation.ResolveReport:
    """Ask about one conflict after the other, and store each answer, until the person stops.

    An answer may settle others, too, and end the merge, so the open ones are read again each time.
    """
    asked: set[str] = set()
    drafts: dict[str, str] = {}
    while rows := [each for each in report.conflicts if each.id not in asked and (not wanted or each.id in wanted)]:
        row = rows[0]
        asked.add(row.id)
        output.print_lines(conflict_view.lines(row))
        offers = {"o": "[o]urs", "t": "[t]heirs", "e": "[e]dit", "s": "[s]kip", "q": "[q]uit"}
        if not row.has_text:
            del offers["e"]
        answer = output.choose(
            f"({len(asked)} of {len(asked) + len(rows) - 1}) {', '.join(offers.values())}", list(offers)
        )
        if answer == "q":
            break
        if answer in ("o", "t"):
            taken: Side = "ours" if answer == "o" else "theirs"
            report = operation.resolve(ws, [row.id], fields=dict.fromkeys(row.open, taken))
        elif answer == "e":
            edited = _edit(drafts.get(row.id) or conflict_view.template(row))
            if edited is None:
                continue
            try:
                report = operation.resolve(ws, [row.id], text=edited)
            except ContentRefused as refused:
                drafts[row.id] = edited  # nobody types it again
                asked.discard(row.id)
                output.complain(
                    f"{refused.message} (e edits the text as you left it.) {refused.hint}", "error:", fg="red"
                )
    return report


def _edit(text: str) -> str | None:
    """The text as edited by a person, byte for byte; None if it was not changed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "conflict.md"
        path.write_bytes(text.encode())
        click.edit(filename=str(path))
        edited = _text(path)
    return edited if edited != text else None


def _lines(report: operation.ResolveReport, *, shown: bool) -> list[str]:
    lines = []
    for row in report.conflicts:
        lines += conflict_view.lines(row) if shown else [f"{output.style('conflict', fg='red')}  {row.id}"]
    if report.conflicts:
        decided = f", {report.decided} decided" if report.decided else ""
        lines.append(
            f"{plural(len(report.conflicts), 'conflict')} open{decided}. Ours is {report.ours[:7]}, theirs {report.theirs[:7]}."
        )
        lines.append("Next: vmrag resolve COLLECTION/DOC --ours (or --theirs, --file FILE, --field FIELD=theirs)")
    elif report.pin:
        lines.append(
            f"Pinned {report.pin.dolt_commit[:7]} in .dolt-version{', which is staged' * report.staged}. Next: {report.next}"
        )
    else:
        lines.append(f"All conflicts are decided. Next: {report.next}")
    return lines
