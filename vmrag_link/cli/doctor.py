"""`vmrag doctor`: find problems, and print the commands that fix them."""

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
from vmrag_link.ops.doctor.findings import (
    DoctorReport,
    Finding,
    RepairedFinding,
    Topic,
    doctor,
    report_without_git,
)
from vmrag_link.progress import Progress
from vmrag_link.workspace import Workspace

TOPICS = (*operation.TOPICS, *hooks.TOPICS)
PATIENCE = 5.0
"""Seconds to wait for a lock. It is a constant, because the settings can be the problem."""

_MARKS = {"ok": ("ok", "green"), "note": ("note", "cyan"), "warning": ("warning", "yellow"), "error": ("error", "red")}
_WIDTH = 9


@vmrag_command("doctor")
@click.option("--fix", is_flag=True, help="Fix what can be fixed without losing anything.")
def command(invocation: Invocation, *, fix: bool) -> int:
    """Find problems, and print the commands that fix them.

    It checks the pin, the knowledge base, the indexes, the hooks, the remotes and this machine.

    The exit code is 1 if a warning or an error remains.
    """
    with invocation.progress() as progress:
        try:
            report = _examine_folder(invocation.directory, progress, fix=fix)
        except GitConfigInvalid as error:
            report = report_without_git(error)
            if fix and error.repairable:
                repaired = report.topics[0].findings[0]
                report = _examine_folder(invocation.directory, progress, fix=True, repair=True)
                mended = (RepairedFinding(repaired, "wrote it again."), *report.mended)
                report = msgspec.structs.replace(report, mended=mended)
    invocation.emit_report(report, _format_report(report, every=invocation.verbosity > 0))
    return 0 if report.healthy else FAILED_CHECK


def _examine_folder(directory: Path, progress: Progress, *, fix: bool, repair: bool = False) -> DoctorReport:
    """Examine a folder.

    `repair` rewrites the hooks file that git includes, without which git does not run.
    """
    workspace = Workspace.open(directory, progress, patience=PATIENCE, repair=repair)
    try:
        return doctor(workspace, [*TOPICS, *_list_toolset_topics()], fix=fix)
    finally:
        workspace.close()


def _list_toolset_topics() -> Iterator[Topic]:
    for installed_toolset in toolset.installed().toolsets.values():
        yield from (installed_toolset.load(check) for check in installed_toolset.checks)


def _format_report(report: DoctorReport, *, every: bool) -> Iterator[str]:
    """Yield the lines of a report.

    With `every`, they also name the topics without problems.
    """
    for repaired in report.mended:
        yield f"{_format_mark('ok', 'fixed')}{repaired.finding.message.rstrip('.')} → {repaired.repair}"
    for topic in report.topics:
        if topic.findings:
            yield from (line for finding in topic.findings for line in _format_finding(finding))
        elif every:
            yield f"{_format_mark('ok')}{topic.name}"
    count = sum(len(topic.findings) for topic in report.topics)
    yield f"Checked {plural(len(report.topics), 'topic')}: {plural(count, 'finding') if count else 'no problems'}."


def _format_finding(finding: Finding) -> Iterator[str]:
    yield f"{_format_mark(finding.level)}{finding.message} {output.style_text(finding.code, dim=True)}"
    if finding.fix:
        yield f"{' ' * _WIDTH}{finding.fix}"


def _format_mark(level: str, text: str = "") -> str:
    name, colour = _MARKS[level]
    return output.style_text((text or name).ljust(_WIDTH), fg=colour, bold=True)
