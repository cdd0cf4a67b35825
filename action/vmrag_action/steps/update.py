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

from vmrag_action import events, failures, findings, inputs, payload, work_tree
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
_REQUEST_EVENTS = ("pull_request", "pull_request_target")
_BY_HAND = "workflow_dispatch"
_MAX_SHOWN_NAMES = 10
"""Maximum number of conflicting paths and documents in a message."""


class BranchLine(NamedTuple):
    """The result for a pull request."""

    number: int
    branch: str
    level: Level | None
    """The level of the annotation; None for a line of the log."""
    message: str
    hint: str = ""
    """The next command for its author."""
    updated: bool = False
    code: int = OK
    """The exit code of the job is the highest one of all lines."""


def run(runner: Runner, job: WorkflowJob) -> int:
    with work_tree.open_workspace(runner, job) as ws:
        if reason := _nothing_to_do(ws, job):
            runner.set_output("updated", 0)
            return findings.report_no_work(runner, job, "update", TITLE, reason)
        # Forks are last, because they can be slow and would delay the others.
        requests = sorted(_list_requests(job), key=lambda request: not _is_own(request))
        lines = [_update_request(ws, request, job) for request in requests]
    for line in lines:
        message = f"#{line.number}: {line.message}"
        if line.level:
            runner.annotate(line.level, message, hint=line.hint, title="Update", at=None)
        else:
            runner.log_line(message)
    updated = sum(line.updated for line in lines)
    runner.set_output("updated", updated)
    verdict = f"Checked {plural(len(lines), 'open pull request')}: {updated} updated."
    runner.log_line(verdict)
    runner.append_summary(markdown_text.format_facts(TITLE, [("Result", verdict)]) + _format_table(lines))
    return max((line.code for line in lines), default=OK)


def _format_table(lines: Sequence[BranchLine]) -> str:
    rows = [(f"#{line.number}", line.branch, line.message, line.hint) for line in lines]
    return markdown_text.format_table("Branches", ("", "Branch", "What", "Fix"), rows, limit=200_000) if rows else ""


# -- which ones


def _nothing_to_do(ws: Workspace, job: WorkflowJob) -> str:
    """Return why this event updates no branch; empty if it can."""
    if job.event not in (*_REQUEST_EVENTS, "push", _BY_HAND):
        return "it updates pull requests after a push to their base, or by hand."
    if job.event not in _REQUEST_EVENTS and not job.ref.startswith(BRANCHES):
        return f"{job.ref} is not a branch, so it is not the base of a pull request."
    if not events.is_own_checkout(os.environ, ws.places):
        return findings.OTHER_REPOSITORY
    return ""


def _list_requests(job: WorkflowJob) -> list[PullRequest]:
    if job.event in _REQUEST_EVENTS:
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
    build_line = functools.partial(BranchLine, request.number, name)
    if not all(plumbing.is_ref_name(ws.places, BRANCHES + branch) for branch in (base, name)):
        return build_line("warning", "git does not allow a branch of that name.")
    try:
        if not _is_own(request):
            return _describe_fork(ws, request, build_line)
        if reason := _find_reason_to_skip(request, job):
            return build_line(None, reason)
        fetch_history = functools.partial(deepen.make_comparable, ws.places)
        merge = HostedMerge(deepen.find_code_remote(ws.places), base, name, fetch_history)
        return _describe_branch(build_line, base, name, update_branch.update_branch(ws, merge))
    except VmragError as error:  # the others are still checked
        message = f"could not update {name}. {error.message}"
        if failures.is_pin_failure(error) or not _is_own(request):  # for its authors, not for this job
            return build_line("warning", message, error.hint)
        return build_line("error", message, error.hint, code=error.exit_code)


def _find_reason_to_skip(request: PullRequest, job: WorkflowJob) -> str:
    """Return why nothing is merged into a branch of the repository; empty if it can be."""
    base, name, default = request.base.ref, request.head.ref, events.read_default_branch(os.environ)
    if name == default:
        return f"{name} is the default branch, and this job merges nothing into it."
    if job.event in _REQUEST_EVENTS and base != default:  # its author also chooses the base
        return f"Its base {base} is not the default branch. Only a push to {base} updates {name}."
    if not (request.is_by_member or _may_write(request)):
        return f"Its author has no write access to the repository, so {name} is not changed."
    return ""


def _may_write(request: PullRequest) -> bool:
    return request.user is not None and GitHub.from_job(inputs.take_token()).can_write(request.user.login)


def _is_own(request: PullRequest) -> bool:
    source = request.head.repo
    return source is not None and source.full_name.lower() == payload.read_repository_name(os.environ).lower()


def _describe_branch(
    build_line: functools.partial[BranchLine], base: str, name: str, update: BranchUpdate
) -> BranchLine:
    by_hand = f"git fetch origin && git switch {quoted(name)} && git merge {quoted(f'origin/{base}')}"
    conflicts = first_of(update.conflicts, _MAX_SHOWN_NAMES)
    match update.result:
        case "updated":
            message = (
                f"{base} is merged into {name} as {update.commit[:12]}, which pins revision {update.revision[:12]}."
            )
            return build_line("notice", message, updated=True)
        case "knowledge":
            message = f"{name} and {base} changed the same parts of documents, so nothing was pushed: {conflicts}."
            return build_line("warning", message, f"{by_hand}\nvmrag resolve, then git commit and git push")
        case "code":
            message = f"{name} conflicts with {base} in more than the pin, so nothing was pushed: {conflicts}."
            return build_line("warning", message, f"{by_hand}\ngit push, after you have resolved the conflicts")
        case "contained":
            return build_line(None, f"{name} has everything that {base} has.")
        case "gone":
            return build_line(None, f"{name} or {base} no longer exists.")
        case "clean":
            return build_line(None, f"{name} merges into {base} without conflicts.")


def _describe_fork(ws: Workspace, request: PullRequest, build_line: functools.partial[BranchLine]) -> BranchLine:
    """Return the conflicts in a fork's branch, and the two commands for its author."""
    base, source = request.base.ref, request.head.repo
    if source is None:
        return build_line(None, "Its fork no longer exists.")
    tip = update_branch.find_branch_tip(ws.places, deepen.find_code_remote(ws.places), base)
    if tip is None:
        return build_line(None, f"{base} no longer exists.")
    preview = update_branch.inspect_merge(
        ws, tip, request.head.sha, functools.partial(deepen.make_comparable, ws.places)
    )
    if preview.result in ("contained", "clean"):
        return build_line(None, f"{request.head.ref} of {source.full_name} merges into {base} without conflicts.")
    url = f"{payload.read_server(os.environ)}/{payload.read_repository_name(os.environ)}"
    message = (
        f"It comes from the fork {source.full_name}, to which this job does not push, and conflicts with {base} in "
        f"{first_of(preview.conflicts, _MAX_SHOWN_NAMES)}. Its author runs these commands, in a clone with the hooks of `vmrag install`:"
    )
    return build_line("notice", message, f"git pull --no-rebase {quoted(url)} {quoted(base)}\ngit push")
