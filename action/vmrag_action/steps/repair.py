"""`mode: repair`: what a merge button dropped of the knowledge is taken in again, and pushed."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote

from vmrag_action import events, failures, findings, inputs, payload
from vmrag_action.events import Comparison
from vmrag_action.findings import ActionFinding
from vmrag_action.github_api import GitHub, Proposal
from vmrag_action.runner import Runner, WorkflowJob
from vmrag_link import markdown_text
from vmrag_link.errors import VmragError, enumerated, first_of, plural, quoted
from vmrag_link.git import objects, transfer
from vmrag_link.ops.pull_requests.repair_branch import BranchRepair, HostedBranch, RepairConflict, repair_branch
from vmrag_link.ops.verify.verify_commits import Level as Severity
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.commits import deepen

TITLE = "Repair of the knowledge"
_MOST_BYTES = 60_000
"""Of a table beside that of the findings."""

_SHOWN = 20
"""Documents in conflict that a message names."""


class _Offer(NamedTuple):
    """A repair on a branch of its own: `command` opens its pull request, `page` too; `number` is
    that of an open one. `failure`: why this job could not open it.
    """

    command: str
    page: str
    number: int | None = None
    failure: VmragError | None = None


def run(runner: Runner, job: WorkflowJob) -> int:
    runner.set_output("repaired", False)
    with findings.open_workspace(runner, job) as ws:
        if reason := _nothing_to_do(ws):
            return _idle(runner, job, reason)
        about = findings.compare_event(ws)
        report = _repair(ws, about)
        if report.tip is None:
            return _idle(runner, job, f"the branch {report.branch} is gone.")
        if transfer.contains_commit(ws.places, report.tip, about.head):
            runner.set_output(
                "branch-head", report.commit if report.commit and report.result == "repaired" else report.tip
            )
    runner.set_output("repaired", report.result == "repaired")
    offer = None
    if report.offered_on:
        runner.set_output("repair-branch", report.offered_on)
        offer = _offer(report)
    return _told(runner, report, offer)


def _nothing_to_do(ws: Workspace) -> str:
    """Why this job repairs nothing; empty if it may."""
    name = events.read_pushed_branch(os.environ)
    if name is None:
        return "only what is pushed to a branch is repaired."
    wanted = inputs.list_repair_branches() or (events.read_default_branch(os.environ),)
    if name not in wanted:
        return f"the branch {name} is left alone; the input `repair-branches` names {enumerated(wanted)}."
    if not events.is_own_checkout(os.environ, ws.places):
        return findings.OTHER_REPOSITORY
    return ""


def _idle(runner: Runner, job: WorkflowJob, reason: str) -> int:
    runner.set_output("findings", inputs.count_earlier_findings())
    return findings.report_no_work(runner, job, "repair", TITLE, reason)


def _repair(ws: Workspace, about: Comparison) -> BranchRepair:
    deepen.fetch_commits(ws.places, [about.head])
    since = about.base or next(iter(objects.read_parents(ws.places, about.head)), None)
    bring = functools.partial(deepen.make_comparable, ws.places)
    name = events.read_pushed_branch(os.environ) or ""
    return repair_branch(ws, HostedBranch(deepen.find_code_remote(ws.places), name, since, bring))


# -- where the branch refused the repair


def _offer(report: BranchRepair) -> _Offer:
    repository = payload.read_repository_name(os.environ)
    server = payload.read_server(os.environ)
    wanted = _proposal(report)
    words = ("gh", "pr", "create", "--repo", repository, "--base", wanted.base, "--head", wanted.head)
    command = " ".join(map(quoted, (*words, "--title", wanted.title, "--body", wanted.body)))
    between = f"{quote(wanted.base, safe='/')}...{quote(wanted.head, safe='/')}"
    offer = _Offer(command, f"{server}/{repository}/compare/{between}?expand=1")
    if not inputs.wants_pull_request():
        return offer
    try:
        number, _ = GitHub.from_job(inputs.take_token()).ensure_pull_request(wanted)
    except VmragError as failure:  # the branch is there; what is left is said
        return offer._replace(failure=failure)
    return offer._replace(number=number, page=f"{server}/{repository}/pull/{number}")


def _proposal(report: BranchRepair) -> Proposal:
    commits = list(dict.fromkeys(each.commit[:12] for each in report.dropped))
    body = f"Merged without its knowledge: {enumerated(commits)}. This takes it in again: {report.changes.text}."
    return Proposal(report.offered_on, report.branch, "Take in the knowledge that a merge dropped", body)


# -- what is said


def _told(runner: Runner, report: BranchRepair, offer: _Offer | None) -> int:
    found = list(_findings(report, offer))
    if "verify" not in inputs.read_modes():  # else that step says so, too
        found += [ActionFinding.from_error(each) for each in report.others]
    if report.result == "repaired":
        for each in report.dropped:
            runner.log_line(f"Repaired: {each.message}")
    if offer and offer.failure:
        failures.annotate_error(runner, offer.failure)
    code = findings.report_findings(runner, TITLE, found, _verdict(report, offer))
    rows = [(each.commit[:12], each.message, f"mended by {(each.mended_by or '')[:12]}") for each in report.mended]
    if not offer:  # else the findings say it
        done = "repaired" if report.result == "repaired" else "not repaired yet"
        rows += [(each.commit[:12], each.message, done) for each in report.dropped]
    if rows:
        runner.append_summary(
            markdown_text.format_table("What was dropped", ("Commit", "What", ""), rows, limit=_MOST_BYTES)
        )
    if offer:
        label = "The pull request" if offer.number else "Open the pull request"
        runner.append_summary(
            f"{markdown_text.format_link(label, offer.page)}, or type:\n\n{markdown_text.format_command(offer.command)}"
        )
    return offer.failure.exit_code if offer and offer.failure else code


def _verdict(report: BranchRepair, offer: _Offer | None) -> str:
    dropped = f"{plural(len(report.dropped), 'commit')} of {report.branch} dropped knowledge"
    if report.result == "repaired":
        made = f"commit {(report.commit or '')[:12]} takes it in again ({report.changes.text})"
        return f"{dropped}; {made}, and is pushed."
    if report.result == "conflict":
        return f"{dropped}, which is in conflict with what is pinned now; nothing was pushed."
    if offer:
        where = f"pull request #{offer.number}" if offer.number else f"the branch {report.offered_on}"
        return f"{dropped}; {report.branch} refused the repair, which waits on {where}."
    if report.others:
        return f"Nothing that could be repaired on {report.branch}, and {plural(len(report.others), 'finding')} for a person."
    if report.mended:
        return f"What was dropped on {report.branch} is repaired already."
    return f"Nothing was dropped on {report.branch}."


def _findings(report: BranchRepair, offer: _Offer | None) -> Iterator[ActionFinding]:
    """What a person has to do."""
    if report.conflict:
        yield _in_conflict(report.branch, report.conflict)
    if offer:
        waits = (
            f"{report.branch} refused it, so the repair waits on {report.offered_on}. The host said: {report.refusal}"
        )
        hint = f"Merge pull request #{offer.number}: {offer.page}" if offer.number else offer.command
        for each in report.dropped:
            severity: Severity = "information" if offer.number else "error"
            yield ActionFinding(severity, each.code, each.commit[:12], f"{each.message} {waits}", hint)


def _in_conflict(branch: str, conflict: RepairConflict) -> ActionFinding:
    names = conflict.documents
    documents = f"{plural(len(names), 'document')}: {first_of(names, _SHOWN)}"
    message = (
        f"The knowledge that {conflict.commit[:12]} dropped, and what {branch} pins now, changed the same parts of "
        f"{documents}. A person has to decide, so nothing was pushed."
    )
    commands = (
        f"git switch {quoted(branch)} && git pull && vmrag merge --repair {conflict.commit[:12]}",
        "vmrag resolve, then vmrag merge --continue",
        f"git commit -m 'Take in dropped knowledge' && git push origin {quoted(branch)}",
    )
    return ActionFinding("error", "MERGE_CONFLICT", conflict.commit[:12], message, "\n".join(commands))
