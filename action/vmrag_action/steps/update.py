"""`mode: update`: pull requests that only the pin keeps from being merged get their base merged in.

| event                                 | which pull requests                                   |
|---------------------------------------|-------------------------------------------------------|
| `push` to a branch                    | the open ones with that base                          |
| by hand                               | of the input `branch`, else as a push of the branch   |
| `pull_request_target`, `pull_request` | the event's own, if its base is the default branch    |

GitHub runs no `pull_request` workflow while there are conflicts. Nothing of a pull request is
checked out or run here, and the branch of a fork is only looked at. A stranger may open a pull
request of two branches that are there: nothing is merged on their word.
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

TITLE = "Pull requests brought up to date"
_OF_REQUESTS = ("pull_request", "pull_request_target")
_BY_HAND = "workflow_dispatch"
_SHOWN = 10
"""Paths and documents in conflict that a message names."""


class BranchLine(NamedTuple):
    """What became of a pull request, and what its people type. `code`: of the job, if not 0."""

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
        # Forks last: what they make slow keeps nobody else waiting.
        wanted = sorted(_requests(job), key=lambda request: not _is_own(request))
        found = [_told(ws, each, job) for each in wanted]
    for each in found:
        if each.level:
            runner.annotate(each.level, f"#{each.number}: {each.message}", hint=each.hint, title="Update", at=None)
        else:
            runner.log_line(f"#{each.number}: {each.message}")
    updated = sum(each.updated for each in found)
    runner.set_output("updated", updated)
    verdict = f"Looked at {plural(len(found), 'open pull request')}: {updated} updated."
    runner.log_line(verdict)
    runner.append_summary(markdown_text.format_facts(TITLE, [("Result", verdict)]) + _table(found))
    return max((each.code for each in found), default=OK)


def _table(found: Sequence[BranchLine]) -> str:
    rows = [(f"#{each.number}", each.branch, each.message, each.hint) for each in found]
    return (
        markdown_text.format_table("Branches", ("", "Branch", "What", "What helps"), rows, limit=200_000)
        if rows
        else ""
    )


# -- which ones


def _nothing_to_do(ws: Workspace, job: WorkflowJob) -> str:
    """Why this event brings no branch up to date; empty if it may."""
    if job.event not in (*_OF_REQUESTS, "push", _BY_HAND):
        return "it brings pull requests up to date when their base was pushed to, or by hand."
    if job.event not in _OF_REQUESTS and not job.ref.startswith(BRANCHES):
        return f"{job.ref} is no branch, so no pull request has it for its base."
    if not events.is_own_checkout(os.environ, ws.places):
        return findings.OTHER_REPOSITORY
    return ""


def _requests(job: WorkflowJob) -> list[PullRequest]:
    if job.event in _OF_REQUESTS:
        event = payload.read_event(os.environ, PullRequestEvent)
        return [event.pull_request] if event.pull_request.state == "open" else []
    github = GitHub.from_job(inputs.take_token())
    if job.event == _BY_HAND and (branch := inputs.read_branch()):
        if found := github.list_pull_requests(head=branch):
            return found
        raise UsageInvalid(
            f"No pull request from the branch {branch} is open.", hint="with: branch: the branch of an open one"
        )
    return github.list_pull_requests(base=job.ref.removeprefix(BRANCHES))


# -- one of them


def _told(ws: Workspace, request: PullRequest, job: WorkflowJob) -> BranchLine:
    base, name = request.base.ref, request.head.ref
    tell = functools.partial(BranchLine, request.number, name)
    if not all(plumbing.is_ref_name(ws.places, BRANCHES + each) for each in (base, name)):
        return tell("warning", "git cannot have a branch of that name.")
    try:
        if not _is_own(request):
            return _of_fork(ws, request, tell)
        if why := _left_alone(request, job):
            return tell(None, why)
        bring = functools.partial(deepen.make_comparable, ws.places)
        wanted = HostedMerge(deepen.find_code_remote(ws.places), base, name, bring)
        return _of_branch(tell, base, name, update_branch.update_branch(ws, wanted))
    except VmragError as error:  # the others are looked at all the same
        message = f"{name} could not be updated. {error.message}"
        if failures.is_pin_failure(error) or not _is_own(request):  # its people's, not this job's
            return tell("warning", message, error.hint)
        return tell("error", message, error.hint, code=error.exit_code)


def _left_alone(request: PullRequest, job: WorkflowJob) -> str:
    """Why nothing is merged into a branch of the repository; empty if it may."""
    base, name, default = request.base.ref, request.head.ref, events.read_default_branch(os.environ)
    if name == default:
        return f"{name} is the default branch, into which this job merges nothing."
    if job.event in _OF_REQUESTS and base != default:  # whoever opens it chooses that, too
        return f"Its base {base} is not the default branch: only a push to {base} updates {name}."
    if not (request.is_by_member or _may_write(request)):
        return f"It was opened by somebody who is none of the repository's people; {name} stays as it is."
    return ""


def _may_write(request: PullRequest) -> bool:
    return request.user is not None and GitHub.from_job(inputs.take_token()).can_write(request.user.login)


def _is_own(request: PullRequest) -> bool:
    source = request.head.repo
    return source is not None and source.full_name.lower() == payload.read_repository_name(os.environ).lower()


def _of_branch(tell: functools.partial[BranchLine], base: str, name: str, done: BranchUpdate) -> BranchLine:
    by_hand = f"git fetch origin && git switch {quoted(name)} && git merge {quoted(f'origin/{base}')}"
    shown = first_of(done.conflicts, _SHOWN)
    match done.result:
        case "updated":
            message = f"{base} is merged into {name} as {done.commit[:12]}, which pins revision {done.revision[:12]}."
            return tell("notice", message, updated=True)
        case "knowledge":
            message = f"{name} and {base} changed the same parts of documents, so nothing was pushed: {shown}."
            return tell("warning", message, f"{by_hand}\nvmrag resolve, then git commit and git push")
        case "code":
            message = f"{name} conflicts with {base} in more than the pin, so nothing was pushed: {shown}."
            return tell("warning", message, f"{by_hand}\ngit push, once its conflicts are resolved")
        case "contained":
            return tell(None, f"{name} has everything that {base} has.")
        case "gone":
            return tell(None, f"{name} or {base} is gone.")
        case "clean":
            return tell(None, f"{name} can be merged into {base} as it is.")


def _of_fork(ws: Workspace, request: PullRequest, tell: functools.partial[BranchLine]) -> BranchLine:
    """What is in conflict there, and the two commands that its author types."""
    base, source = request.base.ref, request.head.repo
    if source is None:
        return tell(None, "The fork that it came from is gone.")
    tip = update_branch.find_branch_tip(ws.places, deepen.find_code_remote(ws.places), base)
    if tip is None:
        return tell(None, f"{base} is gone.")
    found = update_branch.inspect_merge(ws, tip, request.head.sha, functools.partial(deepen.make_comparable, ws.places))
    if found.result in ("contained", "clean"):
        return tell(None, f"{request.head.ref} of {source.full_name} can be merged into {base} as it is.")
    url = f"{payload.read_server(os.environ)}/{payload.read_repository_name(os.environ)}"
    message = (
        f"It comes from the fork {source.full_name}, to which this job does not push, and conflicts with {base} in "
        f"{first_of(found.conflicts, _SHOWN)}. Its author types, in a clone where `vmrag install` was run:"
    )
    return tell("notice", message, f"git pull --no-rebase {quoted(url)} {quoted(base)}\ngit push")
