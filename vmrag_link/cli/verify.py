"""`vmrag verify`: find git commits whose pin drops documents."""

from __future__ import annotations

from collections.abc import Iterator

import click

from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.cli.case_files import CaseFiles, case_options
from vmrag_link.errors import FAILED_CHECK, plural
from vmrag_link.git import history
from vmrag_link.ops.case_files import cases
from vmrag_link.ops.verify import verify as operation
from vmrag_link.ops.verify.verify import VerifyReport
from vmrag_link.ops.verify.verify_commits import PinFinding

_WIDTH = 13


@vmrag_command("verify")
@click.argument("revisions", required=False, metavar="[RANGE]")
@click.option(
    "--pull-request",
    nargs=2,
    metavar="BASE HEAD",
    help="Check the commits of HEAD, and the commits that BASE gained since HEAD branched off.",
)
@click.option("--remote", metavar="REMOTE", help="Fetch from this remote, and find pinned revisions that it lacks.")
@click.option("--deepen", is_flag=True, help="In a shallow clone, fetch the missing history.")
@case_options
def command(
    invocation: Invocation,
    *,
    revisions: str | None,
    pull_request: tuple[str, str] | None,
    remote: str | None,
    deepen: bool,
    files: CaseFiles,
) -> int:
    """Find git commits whose pin drops documents.

    A merge without the merge driver can drop the documents of one side. RANGE is A..B, or a
    commit with its whole history (default: commits of HEAD that origin's default branch
    lacks). Losses repaired later, or accepted by a trailer
    'Vmrag-Accept-Drop: COMMIT', are listed but do not fail the check.

    The exit code is 1 if documents were dropped, a pin is wrong, or a shallow clone lacks
    history; --deepen fetches it.
    """
    files.require_writable(invocation)
    with invocation.workspace() as ws:
        report = operation.verify(ws, revisions, pull_request=pull_request, remote=remote, deepen=deepen)
    lines = _format_report(report, acceptable=pull_request is None)
    files.write_files(
        invocation, report, lines, lambda: cases.list_verify_cases(report, asked_remote=remote is not None)
    )
    return 0 if report.clean else FAILED_CHECK


def _format_report(report: VerifyReport, *, acceptable: bool) -> Iterator[str]:
    """Yield the findings.

    If they are `acceptable`, a commit can accept a loss; a pull request cannot.
    """
    for finding in report.findings:
        yield from _format_finding(finding)
    drops = [
        finding.commit
        for finding in report.findings
        if finding.code == "KNOWLEDGE_DROPPED" and finding.level == "error"
    ]
    if drops and acceptable:
        trailers = " ".join(f'-m "{history.ACCEPT_DROP}: {drop}"' for drop in dict.fromkeys(drops))
        yield f"hint: run 'git commit --allow-empty -m \"Accept the loss\" {trailers}' to accept the loss"
    if report.shallow:
        yield f"{_format_mark('information', 'cyan')}The clone is shallow, so some commits could not be compared."
        yield f"{' ' * _WIDTH}run 'git fetch --unshallow' to fetch the history"
    if report.unpinned and report.clean:
        yield f"No commit has a pin ({report.range}): nothing to verify."
        return
    summary = f"Checked {plural(report.commits, 'commit')} ({report.range}), {report.pins} with another pin"
    yield f"{summary}: {_format_verdict(report)}."


def _format_verdict(report: VerifyReport) -> str:
    errors = sum(finding.level == "error" for finding in report.findings)
    if errors:
        return plural(errors, "error")
    if not report.commits:
        return "nothing to compare"
    return "nothing is lost in those that could be compared" if report.shallow else "nothing is lost"


def _format_finding(finding: PinFinding) -> Iterator[str]:
    mended = f" Repaired by {finding.mended_by[:12]}." if finding.mended_by else ""
    mark = _format_mark(finding.level, "red" if finding.level == "error" else "cyan")
    yield f"{mark}{finding.message}{mended} {output.style_text(finding.code, dim=True)}"
    if finding.hint:
        yield f"{' ' * _WIDTH}{finding.hint}"


def _format_mark(level: str, colour: str) -> str:
    return output.style_text(level.ljust(_WIDTH), fg=colour, bold=True)
