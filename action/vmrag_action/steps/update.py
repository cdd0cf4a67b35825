"""`mode: update`: merge the base into pull requests that conflict only in the pin.

| event                                 | pull requests                                         |
|---------------------------------------|-------------------------------------------------------|
| `push` to a branch                    | the open ones with that base                          |
| by hand                               | that of the input `branch`, else as after a push      |
| `pull_request_target`, `pull_request` | that of the event, if its base is the default branch  |

GitHub runs no `pull_request` workflow while there are conflicts. The step checks out and runs
nothing of a pull request, and does not change the branch of a fork. An untrusted user can open a
pull request of two existing branches, so only users with write access cause a merge.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import NamedTuple

from vmrag_action import events, failures, findings, inputs, payload
from vmrag_action.github_api import GitHub
from vmrag_action.payload import PullRequest, PullRequestEvent
from vmrag_action.runner import Level, Runner, WorkflowJob
from vmrag_link import markdown_text
from vmrag_link.errors import OK, UsageInvalid, VmragError, first_of, plural, quoted
from vmrag_link.git import plumbing
from vmrag_link.git.refs import BRANCHES
from vmrag_link.ops.pull_requests import update_branch
from vmrag_link.ops.pull_requests.update_branch import BranchUpdate, HostedMerge
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.commits import deepen

TITLE = "Updated pull requests"
_OF_REQUESTS = ("pull_request", "pull_request_target")
_BY_HAND = "workflow_dispatch"
_SHOWN = 10
"""Maximum number of conflicting paths and documents in a message."""


class BranchLine(NamedTuple):
    """The result for a pull request, and the next command for its author.

    `code` is the exit code of the job, unless it is 0.
    """

    number: int
    branch: str
    level: Level | None
    message: str
    hint: str = ""
    updated: bool = False
    code: int = OK


def run(runner: Runner, job: WorkflowJob) -> int:
    with findings.open_workspace(runner, job) as ws:
        if reason := _nothing_to_do(ws, job):
            runner.set_output("updated", 0)
            return findings.report_no_work(runner, job, "update", TITLE, reason)
        # Forks are last, because they can be slow and would delay the others.
        requests = sorted(_list_requests(job), key=lambda request: not _is_own(request))
        lines = [_update_request(ws, request, job) for request in requests]
    for request in lines:
        if request.level:
            runner.annotate(
                request.level, f"#{request.number}: {request.message}", hint=request.hint, title="Update", at=None
            )
        else:
            runner.log_line(f"#{request.number}: {request.message}")
    updated = sum(request.updated for request in lines)
    runner.set_output("updated", updated)
    verdict = f"Checked {plural(len(lines), 'open pull request')}: {updated} updated."
    runner.log_line(verdict)
    runner.append_summary(markdown_text.format_facts(TITLE, [("Result", verdict)]) + _format_table(lines))
    return max((request.code for request in lines), default=OK)


def _format_table(lines: Sequence[BranchLine]) -> str:
    rows = [(f"#{line.number}", line.branch, line.message, line.hint) for line in lines]
    return markdown_text.format_table("Branches", ("", "Branch", "What", "Fix"), rows, limit=200_000) if rows else ""


# -- which ones


def _nothing_to_do(ws: Workspace, job: WorkflowJob) -> str:
    """Return why this event updates no branch; empty if it can."""
    if job.event not in (*_OF_REQUESTS, "push", _BY_HAND):
        return "it updates pull requests after a push to their base, or by hand."
    if job.event not in _OF_REQUESTS and not job.ref.startswith(BRANCHES):
        return f"{job.ref} is not a branch, so it is not the base of a pull request."
    if not events.is_own_checkout(os.environ, ws.places):
        return findings.OTHER_REPOSITORY
    return ""


def _list_requests(job: WorkflowJob) -> list[PullRequest]:
    if job.event in _OF_REQUESTS:
        event = payload.read_event(os.environ, PullRequestEvent)
        return [event.pull_request] if event.pull_request.state == "open" else []
    github = GitHub.from_job(inputs.take_token())
    if job.event == _BY_HAND and (branch := inputs.read_branch()):
        if requests := github.list_pull_requests(head=branch):
            return requests
        raise UsageInvalid(
            f"the branch {branch} has no open pull request.",
            hint="set the input 'branch' to the branch of an open pull request",
        )
    return github.list_pull_requests(base=job.ref.removeprefix(BRANCHES))


# -- one of them


def _update_request(ws: Workspace, request: PullRequest, job: WorkflowJob) -> BranchLine:
    base, name = request.base.ref, request.head.ref
    tell = functools.partial(BranchLine, request.number, name)
    if not all(plumbing.is_ref_name(ws.places, BRANCHES + branch) for branch in (base, name)):
        return tell("warning", "git does not allow a branch of that name.")
    try:
        if not _is_own(request):
            return _describe_fork(ws, request, tell)
        if reason := _find_reason_to_skip(request, job):
            return tell(None, reason)
        bring = functools.partial(deepen.make_comparable, ws.places)
        merge = HostedMerge(deepen.find_code_remote(ws.places), base, name, bring)
        return _describe_branch(tell, base, name, update_branch.update_branch(ws, merge))
    except VmragError as error:  # the others are still checked
        message = f"could not update {name}. {error.message}"
        if failures.is_pin_failure(error) or not _is_own(request):  # for its authors, not for this job
            return tell("warning", message, error.hint)
        return tell("error", message, error.hint, code=error.exit_code)


def _find_reason_to_skip(request: PullRequest, job: WorkflowJob) -> str:
    """Return why nothing is merged into a branch of the repository; empty if it can be."""
    base, name, default = request.base.ref, request.head.ref, events.read_default_branch(os.environ)
    if name == default:
        return f"{name} is the default branch, and this job merges nothing into it."
    if job.event in _OF_REQUESTS and base != default:  # its author also chooses the base
        return f"Its base {base} is not the default branch. Only a push to {base} updates {name}."
    if not (request.is_by_member or _may_write(request)):
        return f"Its author has no write access to the repository, so {name} is not changed."
    return ""


def _may_write(request: PullRequest) -> bool:
    return request.user is not None and GitHub.from_job(inputs.take_token()).can_write(request.user.login)


def _is_own(request: PullRequest) -> bool:
    source = request.head.repo
    return source is not None and source.full_name.lower() == payload.read_repository_name(os.environ).lower()


def _describe_branch(tell: functools.partial[BranchLine], base: str, name: str, update: BranchUpdate) -> BranchLine:
    by_hand = f"git fetch origin && git switch {quoted(name)} && git merge {quoted(f'origin/{base}')}"
    shown = first_of(update.conflicts, _SHOWN)
    match update.result:
        case "updated":
            message = (
                f"{base} is merged into {name} as {update.commit[:12]}, which pins revision {update.revision[:12]}."
            )
            return tell("notice", message, updated=True)
        case "knowledge":
            message = f"{name} and {base} changed the same parts of documents, so nothing was pushed: {shown}."
            return tell("warning", message, f"{by_hand}\nvmrag resolve, then git commit and git push")
        case "code":
            message = f"{name} conflicts with {base} in more than the pin, so nothing was pushed: {shown}."
            return tell("warning", message, f"{by_hand}\ngit push, after you have resolved the conflicts")
        case "contained":
            return tell(None, f"{name} has everything that {base} has.")
        case "gone":
            return tell(None, f"{name} or {base} no longer exists.")
        case "clean":
            return tell(None, f"{name} merges into {base} without conflicts.")


def _describe_fork(ws: Workspace, request: PullRequest, tell: functools.partial[BranchLine]) -> BranchLine:
    """Return the conflicts in a fork's branch, and the two commands for its author."""
    base, source = request.base.ref, request.head.repo
    if source is None:
        return tell(None, "Its fork no longer exists.")
    tip = update_branch.find_branch_tip(ws.places, deepen.find_code_remote(ws.places), base)
    if tip is None:
        return tell(None, f"{base} no longer exists.")
    preview = update_branch.inspect_merge(
        ws, tip, request.head.sha, functools.partial(deepen.make_comparable, ws.places)
    )
    if preview.result in ("contained", "clean"):
        return tell(None, f"{request.head.ref} of {source.full_name} merges into {base} without conflicts.")
    url = f"{payload.read_server(os.environ)}/{payload.read_repository_name(os.environ)}"
    message = (
        f"It comes from the fork {source.full_name}, to which this job does not push, and conflicts with {base} in "
        f"{first_of(preview.conflicts, _SHOWN)}. Its author runs these commands, in a clone with the hooks of `vmrag install`:"
    )
    return tell("notice", message, f"git pull --no-rebase {quoted(url)} {quoted(base)}\ngit push")
