"""The work tree of the job, as every step opens it, and what steps found there: as annotations, a
table, a number and an exit code.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vmrag_action import events, failures, github_api, inputs
from vmrag_action.events import Comparison
from vmrag_action.inputs import Mode
from vmrag_action.runner import PIN, Level, Runner, SourceLine, WorkflowJob
from vmrag_link import env, markdown_text
from vmrag_link.documents.export_paths import Folder
from vmrag_link.errors import FAILED_CHECK, OK, FileFailed
from vmrag_link.git import plumbing
from vmrag_link.ops.case_files.case_formats import FORMATS
from vmrag_link.ops.case_files.cases import CaseList
from vmrag_link.ops.verify.verify_commits import Code, PinFinding
from vmrag_link.ops.verify.verify_commits import Level as Severity
from vmrag_link.workspace import Workspace

CHROMA = env.setting_variable("index.chroma")
SHARE = env.setting_variable("chroma.share")
REMOTE = env.setting_variable("remote")


RESULTS = {"junit": "junit.xml", "sarif": "sarif"}
"""The formats that programs beside GitHub's runners read, and how their files' names end."""


@contextlib.contextmanager
def open_workspace(runner: Runner, job: WorkflowJob) -> Iterator[Workspace]:
    """With git's way in, in the environment that `prepare` has set for all steps, and without the
    keys of services where none may be asked.

    Raises `UsageInvalid`, `GitRepositoryMissing`, `ConfigInvalid`.
    """
    secret = inputs.take_token()
    for form in github_api.list_secret_forms(secret):
        runner.mask_secret(form)
    folder = inputs.read_directory(job.workspace)
    env.add_variables(github_api.allow_directory(folder))
    env.add_variables(github_api.build_git_environment(plumbing.locate_work_tree(folder), secret))
    if env.forbids_services():
        env.remove_variables((*env.SERVICE_KEYS, env.CHROMA_KEY, env.CHROMA_CREDENTIALS))
    workspace = Workspace.open(folder, runner)
    try:
        yield workspace
    finally:
        workspace.close()


def compare_event(workspace: Workspace) -> Comparison:
    """What the event is about. Raises as `events.comparison`."""
    return events.read_comparison(os.environ, workspace.places)


def keep_results(job: WorkflowJob, found: CaseList) -> None:
    """Write what a step looked at for later steps, where the workflow wants that.

    No link in the workspace is followed: a pull request can have put it there. Raises
    `UsageInvalid` for a folder outside of the workspace, `FileFailed` for one that is a link.
    """
    folders = inputs.read_result_folders(job.workspace)
    if folders is None:
        return
    for kind, ending in RESULTS.items():
        parts = (*folders, f"{found.command}.{ending}")
        path = job.workspace.joinpath(*parts)
        try:
            Folder(job.workspace).write_file(parts, FORMATS[kind](found).encode())
        except OSError as error:
            raise FileFailed(
                f"results-path: cannot write {path}: {error.strerror}.",
                hint="with: results-path: a folder that the repository does not have",
                path=str(path),
            ) from error


def list_job_variables(comparison: Comparison) -> dict[str, str]:
    """What the job's later steps have to see, too, ours and the workflow's: which settings count,
    whether services may be asked, that no process in the background builds a store for Chroma that
    nobody reads, and that nothing is put on a Chroma server, because it may be a stranger's. The
    keys of services stay: other programs may need them.
    """
    found = dict(comparison.environment)
    if inputs.wants_chroma():
        found[CHROMA] = "wait"
    elif env.read_variable(CHROMA) is None:
        found[CHROMA] = "off"
    if env.read_variable(SHARE) is None:
        found[SHARE] = "off"
    if remote := inputs.read_remote():
        found[REMOTE] = remote
    return found


OTHER_REPOSITORY = "the checkout is of another repository than the job's own, which alone is pushed to."
"""Why a mode that pushes has nothing to do there."""

MOST_BYTES = 900_000
"""Of the table in the summary: other steps of the job have something to say, too."""

_ENVIRONMENTAL: tuple[Code, ...] = ("NOT_COMPARABLE",)
"""Findings that say nothing about a pin: the history to compare it with is not there."""

WORST: tuple[str, ...] = (
    "KNOWLEDGE_DROPPED",
    "PIN_REMOVED",
    "PIN_MALFORMED",
    "PIN_REVISION_MISSING",
    "NOT_ON_REMOTE",
    "NOT_COMPARABLE",
    "LOSS_ACCEPTED",
    "MOVED_BACK",
)
"""The findings of `verify`, by how much is lost."""


class ActionFinding(NamedTuple):
    """`where`: the commit or the query that it is about; `place`: what is annotated, None for what
    is no file's fault.
    """

    severity: Severity
    code: str
    where: str
    message: str
    hint: str
    place: SourceLine | None = PIN

    @classmethod
    def from_error(cls, found: PinFinding) -> ActionFinding:
        """At the pin, unless it is the environment that does not let anybody look."""
        place = None if found.code in _ENVIRONMENTAL else PIN
        return cls(found.level, found.code, found.commit[:12], found.message, found.hint, place)

    @property
    def title(self) -> str:
        return self.code if self.place else failures.ENVIRONMENT + self.code


def report_findings(runner: Runner, title: str, found: Sequence[ActionFinding], verdict: str) -> int:
    """Returns the exit code: 1 if one of them is what `fail-on` names, or worse.

    The output `findings` counts those of earlier steps, too.
    """
    fail_on = inputs.read_fail_on()
    fatal = {"error": ("error",), "information": ("error", "information"), "never": ()}[fail_on]
    ordered = sorted(found, key=_rank)
    by_level: dict[Level, list[ActionFinding]] = {"error": [], "warning": [], "notice": []}
    for each in ordered:
        level: Level = "error" if each.severity in fatal else "warning" if each.severity == "error" else "notice"
        by_level[level].append(each)
    for level, some in by_level.items():
        _annotate(runner, level, some)
    runner.log_line(verdict)
    runner.set_output("findings", len(found) + inputs.count_earlier_findings())
    rows = [(each.severity, each.code, each.where, each.message, each.hint) for each in ordered]
    text = markdown_text.format_facts(title, [("Result", verdict), ("Findings", len(found))])
    if rows:
        text += markdown_text.format_table(
            "Findings", ("", "Code", "Where", "What", "What helps"), rows, limit=MOST_BYTES
        )
    runner.append_summary(text)
    return FAILED_CHECK if any(each.severity in fatal for each in found) else OK


def report_no_work(runner: Runner, job: WorkflowJob, mode: Mode, title: str, why: str) -> int:
    """Say why a mode has nothing to do on this event. The job passes.

    `why`: a sentence, which begins like the rest of one.
    """
    said = f"mode: {mode} has nothing to do on {job.event}: {why}"
    runner.log_line(said)
    runner.append_summary(markdown_text.format_facts(title, [("Result", said)]))
    return OK


def _rank(found: ActionFinding) -> tuple[bool, int]:
    """The worst first, of equal ones the earlier commit."""
    return found.severity != "error", WORST.index(found.code) if found.code in WORST else 0


def _annotate(runner: Runner, level: Level, found: Sequence[ActionFinding]) -> None:
    """The runner shows so many of a level in a step and drops the others silently, so the last one
    that it shows names them; the log has them all.
    """
    room = runner.count_free_annotations(level)
    more = len(found) - room
    for number, each in enumerate(found, 1):
        rest = f"and {more} more: see the summary" if more > 0 and number == room else ""
        hint = "\n".join(line for line in (each.hint, rest) if line)
        runner.annotate(level, each.message, hint=hint, title=each.title, at=each.place)
