"""`vmrag resolve`: resolve the documents that are in conflict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import click
import msgspec

from vmrag_link.cli import output, resolve_dialog, texts
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.cli.pin import describe_losses
from vmrag_link.documents import named_files
from vmrag_link.errors import FAILED_CHECK, UsageInvalid, plural, quoted
from vmrag_link.merging.conflicts import Decision, find_text_field, name_hunk_part
from vmrag_link.merging.text import Take
from vmrag_link.ops.resolve import resolve as operation
from vmrag_link.ops.resolve.resolve import ConflictRow, ResolveReport
from vmrag_link.ops.resolve.worktree_texts import read_worktree_texts
from vmrag_link.workspace import Workspace

_TAKES: tuple[Take, ...] = ("ours", "theirs", "union")

Way = Literal["decide", "worktree", "tool", "lost", "list", "ask"]
"""How to resolve: by options, with merged files, in a merge tool, without lost documents, by a list
only, or with questions on a terminal.
"""


@vmrag_command("resolve")
@click.argument("conflicts", nargs=-1, metavar="[[COLLECTION/]DOC]...")
@click.option("--ours", "side", flag_value="ours", help="Use our side of the named conflicts (default: all).")
@click.option("--theirs", "side", flag_value="theirs", help="Use their side of the named conflicts (default: all).")
@click.option("--union", "side", flag_value="union", help="Use both texts of each hunk, ours first.")
@click.option(
    "--hunk",
    "hunks",
    multiple=True,
    metavar="N=ours|theirs|union",
    help="Resolve one hunk of a text. Can be repeated.",
)
@click.option(
    "--field",
    "fields",
    multiple=True,
    metavar="FIELD=ours|theirs",
    help="Resolve one field, or one key such as metadata.KEY=theirs. Can be repeated.",
)
@click.option(
    "--file",
    type=click.Path(path_type=Path, allow_dash=True),
    help="Use the text of this file. - reads standard input.",
)
@click.option("--from-worktree", is_flag=True, help="Use the merged files that these documents came from.")
@click.option("--tool", metavar="TOOL", help="Resolve in this tool of 'git mergetool' ('' is the configured one).")
@click.option(
    "--accept-loss",
    is_flag=True,
    help="If no remote has the revision that one side pins, use the other side.",
)
@click.option("--offline", is_flag=True, help="With --accept-loss: do not contact the remotes.")
@click.option("--list", "only_list", is_flag=True, help="List the conflicts.")
def command(
    invocation: Invocation,
    *,
    conflicts: tuple[str, ...],
    side: Take | None,
    hunks: tuple[str, ...],
    fields: tuple[str, ...],
    file: Path | None,
    from_worktree: bool,
    tool: str | None,
    accept_loss: bool,
    offline: bool,
    only_list: bool,
) -> int:
    """Resolve conflicts in documents.

    On a terminal, the command shows one conflict after the other. Texts are merged by line,
    so only hunks that both sides changed are in conflict. It works for git's merges, also
    after 'git add', and for 'vmrag merge'. You can stop and continue later. The exit code is
    1 while a conflict remains.
    """
    hunk_takes = _parse_parts(hunks, "hunk", "1")
    parts = _parse_parts(fields, "field", "title")
    parts |= {name_hunk_part(number): take for number, take in hunk_takes.items()}
    decision = Decision(side=side, parts=parts, text=_read_text(file) if file else None)
    ways: dict[Way, bool] = {
        "decide": decision != Decision(),
        "worktree": from_worktree,
        "tool": tool is not None,
        "lost": accept_loss,
        "list": only_list,
    }
    selected_ways = [way for way, is_selected in ways.items() if is_selected]
    way = _choose_way(selected_ways, conflicts, attended=invocation.is_interactive)
    if len(conflicts) != 1:
        _refuse_single_options(file, hunks)
    if (accept_loss and conflicts) or (offline and not accept_loss):
        raise UsageInvalid(
            "--accept-loss takes no document, and --offline needs --accept-loss.",
            hint="run 'vmrag resolve --help' to see its options",
        )
    with invocation.workspace() as ws:
        ids = operation.find_conflict_ids(ws, conflicts)
        match way:
            case "decide":
                report = operation.resolve(ws, ids, decision)
            case "worktree":
                report = operation.resolve_texts(ws, read_worktree_texts(ws, _select_conflicts(ws, ids)))
            case "tool":
                report = _resolve_with_tool(ws, _select_conflicts(ws, ids), tool or "")
            case "ask":
                report = resolve_dialog.run_dialog(ws, operation.list_conflicts(ws, ids), ids)
            case "lost":
                report = operation.accept_loss(ws, offline=offline)
            case "list":
                report = operation.list_conflicts(ws, ids)
    invocation.emit_report(report, _format_report(report, shown=way == "list"))
    return FAILED_CHECK if report.conflicts or not report.staged else 0


def _choose_way(ways: Sequence[Way], conflicts: Sequence[str], *, attended: bool) -> Way:
    """Return the way that the options select. Without any, it asks the user or prints a list.

    Raises `UsageInvalid` for several ways, or for conflicts that no user can decide.
    """
    if len(ways) > 1 and "list" in ways:
        raise UsageInvalid(
            "--list cannot be combined with a resolution.", hint="run 'vmrag resolve --list' to list the conflicts"
        )
    if len(ways) > 1:
        raise UsageInvalid(
            "--from-worktree, --tool and --accept-loss cannot be combined with other resolutions.",
            hint="run 'vmrag resolve --help' to see its options",
        )
    if ways or attended:
        return ways[0] if ways else "ask"
    if conflicts:
        raise UsageInvalid(
            "no resolution given.",
            hint=f"run 'vmrag resolve {quoted(conflicts[0])} --ours', or 'vmrag resolve --help' to see the other "
            "options",
        )
    return "list"


def _refuse_single_options(file: Path | None, hunks: Sequence[str]) -> None:
    """Raise `UsageInvalid` for options that decide one document only."""
    if not file and not hunks:
        return
    option = "file" if file else "hunk"
    value = str(file) if file else hunks[0]
    raise UsageInvalid(
        f"--{option} needs the name of one document.",
        hint=f"run 'vmrag resolve --list' to list the conflicts, then 'vmrag resolve COLLECTION/DOC --{option} "
        f"{quoted(value)}'",
    )


def _read_text(path: Path) -> str:
    return texts.read_standard_input() if str(path) == "-" else named_files.read_text(path)


def _parse_parts(values: tuple[str, ...], option: str, example: str) -> dict[str, Take]:
    parts: dict[str, Take] = {}
    for part in values:
        name, _, side = part.rpartition("=")
        take = next((take for take in _TAKES if take == side), None)
        if take is None or not name:
            raise UsageInvalid(
                f"invalid value of --{option}: {part!r}.",
                hint=f"pass 'ours' or 'theirs', such as '--{option} {name or example}=ours'",
            )
        parts[name] = take
    return parts


def _select_conflicts(ws: Workspace, names: Sequence[str]) -> ResolveReport:
    """Return the open merge with the named conflicts, by default all."""
    report = operation.list_conflicts(ws, names)
    rows = tuple(conflict for conflict in report.conflicts if not names or conflict.id in names)
    return msgspec.structs.replace(report, conflicts=rows)


def _resolve_with_tool(ws: Workspace, report: ResolveReport, tool: str) -> ResolveReport:
    """Resolve the texts in a merge tool, one after the other.

    Each text is stored before the next one is opened.
    """
    rows = [conflict for conflict in report.conflicts if find_text_field(conflict.conflict)]
    if not rows:
        raise UsageInvalid("no texts are in conflict.", hint="run 'vmrag resolve --list' to list the conflicts")
    for row in rows:
        merged = texts.merge_with_tool(ws, row.conflict, tool)
        if merged is not None:
            report = operation.resolve(ws, [row.id], Decision(text=merged, edited=True))
    return operation.list_conflicts(ws) if report.conflicts else report


def _format_report(report: ResolveReport, *, shown: bool) -> Iterator[str]:
    if report.losses:
        yield from describe_losses(report.losses)
    for row in report.conflicts:
        if shown:
            yield from resolve_dialog.format_conflict(row, report.labels)
        else:
            yield f"{output.style_text('conflict', fg='red')}  {row.id}{_describe_open_parts(report, row)}"
    if report.conflicts:
        decided = f", {report.decided} decided" if report.decided else ""
        sides = (
            f"Ours is {report.labels.ours} at {report.ours[:7]}, theirs {report.labels.theirs} at {report.theirs[:7]}."
        )
        yield f"{plural(len(report.conflicts), 'conflict')} open{decided}. {sides}"
        yield f"hint: run '{_suggest_decision(report)}', or 'vmrag resolve --help' to see the other options"
    elif report.pin:
        staged = ", which is staged" if report.staged else ""
        yield f"Pinned {report.pin.dolt_commit[:7]} in .dolt-version{staged}."
        yield f"hint: run '{report.next}'"
    else:
        yield "All conflicts are resolved."
        yield f"hint: run '{report.next}'"


def _describe_open_parts(report: ResolveReport, row: ConflictRow) -> str:
    """Return the parts that are left, if the user has decided others; otherwise an empty text."""
    if not row.choices:
        return ""
    parts = [
        f"hunk {part.hunk}" if part.hunk else part.field for part in resolve_dialog.list_open_parts(report, [row.id])
    ]
    return f"  (open: {', '.join(parts)})"


def _suggest_decision(report: ResolveReport) -> str:
    """Return a command that decides the first conflict, and keeps the decisions about its parts."""
    row = report.conflicts[0]
    part = next(resolve_dialog.list_open_parts(report, [row.id]), None) if row.choices else None
    return f"vmrag resolve {quoted(row.id)} {part.format_option('ours') if part else '--ours'}"
