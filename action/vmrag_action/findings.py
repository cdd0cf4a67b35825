"""The findings of a step: as annotations, a table, a number, an exit code, and files for other
programs.

Each mode that checks something calls `report_findings`. A mode with nothing to do for this event
calls `report_no_work`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vmrag_action import failures, inputs
from vmrag_action.inputs import Mode
from vmrag_action.runner import PIN, Level, Runner, SourceLine, WorkflowJob
from vmrag_link import markdown_text
from vmrag_link.documents.export_paths import Folder
from vmrag_link.errors import FAILED_CHECK, OK, FileFailed
from vmrag_link.ops.case_files.case_formats import FORMATS
from vmrag_link.ops.case_files.cases import CaseList
from vmrag_link.ops.verify.verify_commits import Code, PinFinding
from vmrag_link.ops.verify.verify_commits import Level as Severity

RESULTS = {"junit": "junit.xml", "sarif": "sarif"}
"""Formats for other programs than GitHub's runners, with the ends of their file names."""

OTHER_REPOSITORY = "the checkout is not of the job's own repository, the only one to which a job pushes."
"""Why a mode that pushes does nothing."""

MAX_TABLE_BYTES = 900_000
"""Maximum size of the table in the summary. The rest is for other steps of the job."""

_ENVIRONMENTAL: tuple[Code, ...] = ("NOT_COMPARABLE",)
"""Findings that do not concern a pin: the history for a comparison is missing."""

CODES_BY_LOSS: tuple[str, ...] = (
    "KNOWLEDGE_DROPPED",
    "PIN_REMOVED",
    "PIN_MALFORMED",
    "PIN_REVISION_MISSING",
    "NOT_ON_REMOTE",
    "NOT_COMPARABLE",
    "LOSS_ACCEPTED",
    "MOVED_BACK",
)
"""The findings of `verify`, ordered by the loss."""


def keep_results(job: WorkflowJob, cases: CaseList) -> None:
    """Write the results of a step for later steps, if the workflow wants them.

    It follows no link in the workspace, because a pull request can have added the link. Raises
    `UsageInvalid` for a folder outside the workspace, and `FileFailed` for a link.
    """
    folders = inputs.read_result_folders(job.workspace)
    if folders is None:
        return
    for kind, ending in RESULTS.items():
        parts = (*folders, f"{cases.command}.{ending}")
        path = job.workspace.joinpath(*parts)
        try:
            Folder(job.workspace).write_file(parts, FORMATS[kind](cases).encode())
        except OSError as error:
            raise FileFailed(
                f"results-path: cannot write {path}: {error.strerror}.",
                hint="set the input 'results-path' to a folder that the repository does not have",
                path=str(path),
            ) from error


class ActionFinding(NamedTuple):
    """A finding of a step, with its text for annotations and the summary."""

    severity: Severity
    code: str
    where: str
    """The commit or the query of the finding."""
    message: str
    hint: str
    place: SourceLine | None = PIN
    """The line to annotate; None if no file causes the finding."""

    @classmethod
    def from_pin_finding(cls, finding: PinFinding) -> ActionFinding:
        """Convert a finding of `verify`.

        It is at the pin, unless the environment prevented the check.
        """
        place = None if finding.code in _ENVIRONMENTAL else PIN
        return cls(
            severity=finding.level,
            code=finding.code,
            where=finding.commit[:12],
            message=finding.message,
            hint=finding.hint,
            place=place,
        )

    @property
    def title(self) -> str:
        return self.code if self.place else failures.ENVIRONMENT + self.code


def report_findings(runner: Runner, title: str, findings: Sequence[ActionFinding], verdict: str) -> int:
    """Show the findings, and return the exit code.

    It is 1 if a finding is at least as bad as `fail-on`. The output `findings` also counts those of
    earlier steps.
    """
    fail_on = inputs.read_fail_on()
    fatal = {"error": ("error",), "information": ("error", "information"), "never": ()}[fail_on]
    ordered = sorted(findings, key=_rank_finding)
    by_level: dict[Level, list[ActionFinding]] = {"error": [], "warning": [], "notice": []}
    for finding in ordered:
        if finding.severity in fatal:
            by_level["error"].append(finding)
        else:
            by_level["warning" if finding.severity == "error" else "notice"].append(finding)
    for level, level_findings in by_level.items():
        _annotate_findings(runner, level, level_findings)
    runner.log_line(verdict)
    runner.set_output("findings", len(findings) + inputs.count_earlier_findings())
    rows = [(finding.severity, finding.code, finding.where, finding.message, finding.hint) for finding in ordered]
    text = markdown_text.format_facts(title, [("Result", verdict), ("Findings", len(findings))])
    if rows:
        text += markdown_text.format_table(
            "Findings", ("", "Code", "Where", "What", "Fix"), rows, limit=MAX_TABLE_BYTES
        )
    runner.append_summary(text)
    return FAILED_CHECK if any(finding.severity in fatal for finding in findings) else OK


def report_no_work(runner: Runner, job: WorkflowJob, mode: Mode, title: str, reason: str) -> int:
    """Report why a mode has nothing to do for this event. The job passes.

    `reason` is a sentence that begins in lower case.
    """
    sentence = f"mode: {mode} has nothing to do on {job.event}: {reason}"
    runner.log_line(sentence)
    runner.append_summary(markdown_text.format_facts(title, [("Result", sentence)]))
    return OK


def _rank_finding(finding: ActionFinding) -> tuple[bool, int]:
    """Return a sort key: errors come first, and those of `verify` in the order of their loss.

    A code that is not in `CODES_BY_LOSS` is as bad as its first one. Equal findings keep their
    order.
    """
    loss = CODES_BY_LOSS.index(finding.code) if finding.code in CODES_BY_LOSS else 0
    return finding.severity != "error", loss


def _annotate_findings(runner: Runner, level: Level, findings: Sequence[ActionFinding]) -> None:
    """Show the findings as annotations.

    The runner drops more than a number of one level without a message. So the last annotation
    counts the others, which are in the log.
    """
    capacity = runner.count_free_annotations(level)
    excess = len(findings) - capacity
    for number, finding in enumerate(findings, 1):
        rest = f"and {excess} more: see the summary" if excess > 0 and number == capacity else ""
        hint = "\n".join(line for line in (finding.hint, rest) if line)
        runner.annotate(level, finding.message, hint=hint, title=finding.title, at=finding.place)
