"""Write the report as a comment on the pull request, in the only step with a token for it.

| event            | data                                  | pull request                        |
|------------------|---------------------------------------|-------------------------------------|
| `pull_request`   | from the step `report` of this job    | that of the event                   |
| `workflow_run`   | untrusted artifact of a fork's run    | that of the data, after a check     |

The step checks out nothing of the pull request, opens no repository and starts no program. It
compares the artifact with GitHub's data of the run: the pull request must be open, in this
repository, and at the commit and in the repository of that run.
"""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib

from vmrag_action import findings, git_access, inputs, payload
from vmrag_action.comments import CommentApi
from vmrag_action.payload import CompletedRun, HostedRepository, PullRequest, PullRequestEvent, WorkflowRunEvent
from vmrag_action.runner import Runner, WorkflowJob
from vmrag_link.errors import OK, UsageInvalid, quoted
from vmrag_link.file_access import read_regular
from vmrag_link.ops.report.comment import MARKER, format_comment
from vmrag_link.ops.report.comment_data import MAX_BYTES, CommentData, parse_comment_data

TITLE = "The comment on the pull request"
ARTIFACT = "vmrag-comment"
FILE = f"{ARTIFACT}.json"
"""The name of the file in RUNNER_TEMP and in the artifact."""

_MAX_ARCHIVE_BYTES = 100_000
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)

_OUTCOME_SENTENCES = {
    "silent": "The answers for agents do not change, and no comment exists.",
    "unchanged": "The comment is up to date.",
    "edited": "The comment was edited.",
    "created": "The comment was written.",
}


def run(runner: Runner, job: WorkflowJob) -> int:
    secret = inputs.take_token()
    for form in git_access.list_secret_forms(secret):
        runner.mask_secret(form)
    api = CommentApi.from_job(secret)
    if job.event == inputs.COMPLETED:
        return _comment_for_run(runner, job, api)
    request = payload.read_event(os.environ, PullRequestEvent).pull_request
    data = parse_comment_data(read_regular(job.temp / FILE, MAX_BYTES + 1))
    this_run = CompletedRun(payload.read_run_number(os.environ), job.event, request.head.sha, request.head.repo)
    return _update_comment(runner, job, api, data, this_run, of_fork=False)


def _comment_for_run(runner: Runner, job: WorkflowJob, api: CommentApi) -> int:
    """Write the comment for another run.

    Invalid data of an untrusted run makes no job fail.
    """
    other_run = payload.read_event(os.environ, WorkflowRunEvent).workflow_run
    if other_run.event != "pull_request":
        return _report_no_work(runner, job, f"run {other_run.id} was not for a pull request.")
    archive = api.download_artifact(other_run.id, ARTIFACT, _MAX_ARCHIVE_BYTES)
    if archive is None:
        return _report_no_work(runner, job, f"run {other_run.id} has no artifact {ARTIFACT}, or a too large one.")
    try:
        data = parse_comment_data(unpack_artifact(archive))
    except UsageInvalid as error:
        runner.annotate("warning", error.message, hint=error.hint, title=TITLE)
        return _report_no_work(runner, job, f"the artifact of run {other_run.id} is not from this Action.")
    return _update_comment(runner, job, api, data, other_run, of_fork=True)


def unpack_artifact(content: bytes) -> bytes:
    """Return the only file of an archive, or one byte more than is allowed.

    Raises `UsageInvalid`.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            if [(entry.filename, entry.compress_type in _COMPRESSIONS) for entry in entries] == [(FILE, True)]:
                with archive.open(entries[0]) as file:
                    return file.read(MAX_BYTES + 1)
        flaw = f"it does not contain exactly {FILE}"
    except (ValueError, RuntimeError, EOFError, OSError, zipfile.BadZipFile, zlib.error, struct.error) as error:
        flaw = str(error) or type(error).__name__
    raise UsageInvalid(
        f"could not unpack the artifact: {flaw}.", hint="use the same version in both workflows, such as 'uses: …@SHA'"
    )


def _update_comment(
    runner: Runner, job: WorkflowJob, api: CommentApi, data: CommentData, run: CompletedRun, *, of_fork: bool
) -> int:
    request = api.read_pull_request(data.number)
    if obstacle := _find_obstacle(request, data, run):
        return _report_no_work(runner, job, obstacle)
    page = f"{payload.read_server(os.environ)}/{api.github.repository}/actions/runs/{run.id}"
    outcome = api.update_comment(
        data.number,
        MARKER,
        format_comment(data, page, of_fork=of_fork, pull=_describe_pull(api, request)),
        speaks=data.has_news,
    )
    runner.log_line(f"#{data.number}: {_OUTCOME_SENTENCES[outcome]}")
    return OK


def _describe_pull(api: CommentApi, request: PullRequest | None) -> str:
    """Return the command that merges the base branch into the branch of a pull request."""
    if request is None:
        return ""
    is_own = request.head.repo is not None and _is_same_repository(request.base.repo, request.head.repo.full_name)
    peer = "origin" if is_own else f"{payload.read_server(os.environ)}/{api.github.repository}"
    return f"git pull --no-rebase {quoted(peer)} {quoted(request.base.ref)}"


def _find_obstacle(request: PullRequest | None, data: CommentData, run: CompletedRun) -> str:
    """Return why no comment is written on a pull request; empty if GitHub's data of the run match
    it.
    """
    repository = payload.read_repository_name(os.environ)
    if request is None or not _is_same_repository(request.base.repo, repository):
        return f"{repository} has no pull request #{data.number}."
    source = run.head_repository
    if data.head != run.head_sha or source is None or not _is_same_repository(request.head.repo, source.full_name):
        return f"run {run.id} was not for #{data.number}."
    if request.state != "open":
        return f"#{data.number} is no longer open."
    if request.head.sha != run.head_sha:
        return f"#{data.number} has a newer commit, which another run reports."
    return ""


def _is_same_repository(repository: HostedRepository | None, name: str) -> bool:
    return repository is not None and repository.full_name.lower() == name.lower()


def _report_no_work(runner: Runner, job: WorkflowJob, reason: str) -> int:
    return findings.report_no_work(runner, job, "report", TITLE, reason)
