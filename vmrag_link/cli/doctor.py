"""`vmrag doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from vmrag_hooks import doctor as hooks
from vmrag_link import toolset
from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import FAILED_CHECK, GitConfigInvalid, plural
from vmrag_link.ops import doctor as operation
from vmrag_link.ops.doctor import DoctorReport, Finding, RepairedFinding, Topic
from vmrag_link.progress import Progress
from vmrag_link.workspace import Workspace

TOPICS = (*operation.TOPICS, *hooks.TOPICS)
PATIENCE = 5.0
"""Seconds to wait for a lock; given here, because the settings may be what is broken."""

_MARKS = {"ok": ("ok", "green"), "note": ("note", "cyan"), "warning": ("warning", "yellow"), "error": ("error", "red")}
_WIDTH = 9


@vmrag_command("doctor")
@click.option("--fix", is_flag=True, help="Fix what can be fixed without losing anything.")
def command(invocation: Invocation, *, fix: bool) -> int:
    """Find problems, and print the commands that fix them.

    The exit code is 1 if a warning or an error remains.
    """
    with invocation.progress() as progress:
        try:
            report = _examine_folder(invocation.directory, progress, fix=fix)
        except GitConfigInvalid as error:
            report = operation.report_without_git(error)
            if fix and error.repairable:
                repaired = report.topics[0].findings[0]
                report = _examine_folder(invocation.directory, progress, fix=True, repair=True)
                mended = (RepairedFinding(repaired, "Wrote it again."), *report.mended)
                report = msgspec.structs.replace(report, mended=mended)
    invocation.emit_report(report, _lines(report, every=invocation.verbosity > 0))
    return 0 if report.healthy else FAILED_CHECK


def _examine_folder(directory: Path, progress: Progress, *, fix: bool, repair: bool = False) -> DoctorReport:
    """`repair` writes the hooks file again that git includes: without it, git does not run."""
    workspace = Workspace.open(directory, progress, patience=PATIENCE, repair=repair)
    try:
        return operation.doctor(workspace, [*TOPICS, *_of_toolsets()], fix=fix)
    finally:
        workspace.close()


def _of_toolsets() -> Iterator[Topic]:
    for each in toolset.installed().toolsets.values():
        yield from (each.load(check) for check in each.checks)


def _lines(report: DoctorReport, *, every: bool) -> Iterator[str]:
    """`every`: the topics in which all is well, too."""
    for mended in report.mended:
        yield f"{_mark('ok', 'mended')}{mended.finding.message} → {mended.done}"
    for topic in report.topics:
        if topic.findings:
            yield from (line for finding in topic.findings for line in _finding(finding))
        elif every:
            yield f"{_mark('ok')}{topic.name}"
    count = sum(len(each.findings) for each in report.topics)
    yield f"Looked at {plural(len(report.topics), 'topic')}: {plural(count, 'finding') if count else 'all is well'}."


def _finding(finding: Finding) -> Iterator[str]:
    yield f"{_mark(finding.level)}{finding.message} {output.style_text(finding.code, dim=True)}"
    if finding.fix:
        yield f"{' ' * _WIDTH}{finding.fix}"


def _mark(level: str, text: str = "") -> str:
    name, colour = _MARKS[level]
    return output.style_text((text or name).ljust(_WIDTH), fg=colour, bold=True)
