"""`mode: repair`: restore documents that a merge button dropped, and push them.

A host that merges pull requests cannot merge pins, so a merge can keep the pin of one side and drop
the documents of the other. If the branch refuses the push, the repair is *offered*: it is pushed to
a branch of its own, for a pull request.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote

from vmrag_action import events, failures, findings, inputs, payload, work_tree
from vmrag_action.events import Comparison
from vmrag_action.findings import ActionFinding
from vmrag_action.github_api import GitHub, Proposal
from vmrag_action.runner import Runner, WorkflowJob
from vmrag_link import hints, markdown_text
from vmrag_link.errors import VmragError, enumerated, first_of, plural, quoted
from vmrag_link.git import objects, transfer
from vmrag_link.ops.pull_requests.repair_branch import BranchRepair, HostedBranch, RepairConflict, repair_branch
from vmrag_link.ops.verify.verify_commits import Level as Severity
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.commits import deepen

TITLE = "Repair of the knowledge"
_MAX_TABLE_BYTES = 60_000
"""Maximum size of a table next to the table of the findings."""

_MAX_SHOWN_DOCUMENTS = 20
"""Maximum number of conflicting documents in a message."""


class _Offer(NamedTuple):
    """A repair on its own branch."""

    command: str
    """The command that opens the pull request."""
    page: str
    """The page of the pull request or, without a number, the page that opens it."""
    number: int | None = None
    """The number of an open pull request."""
    failure: VmragError | None = None
    """Why this job could not open the pull request."""


def run(runner: Runner, job: WorkflowJob) -> int:
    """Repair the pushed branch, and return the exit code of the step."""
    runner.set_output("repaired", False)
    with work_tree.open_workspace(runner, job) as ws:
        if reason := _find_obstacle(ws):
            return _report_idle(runner, job, reason)
        comparison = work_tree.compare_event(ws)
        report = _repair_branch(ws, comparison)
        if report.tip is None:
            return _report_idle(runner, job, f"the branch {report.branch} no longer exists.")
        if transfer.contains_commit(ws.places, report.tip, comparison.head):
            runner.set_output(
                "branch-head", report.commit if report.commit and report.result == "repaired" else report.tip
            )
    runner.set_output("repaired", report.result == "repaired")
    offer = None
    if report.offered_on:
        runner.set_output("repair-branch", report.offered_on)
        offer = _offer_repair(report)
    return _report_repair(runner, report, offer)


def _find_obstacle(ws: Workspace) -> str:
    """Return why this job repairs nothing; empty if it can."""
    name = events.read_pushed_branch(os.environ)
    if name is None:
        return "only pushes to a branch are repaired."
    branches = inputs.list_repair_branches() or (events.read_default_branch(os.environ),)
    if name not in branches:
        return f"the branch {name} is not in the input `repair-branches`, which names {enumerated(branches)}."
    if not events.is_own_checkout(os.environ, ws.places):
        return findings.OTHER_REPOSITORY
    return ""


def _report_idle(runner: Runner, job: WorkflowJob, reason: str) -> int:
    runner.set_output("findings", inputs.count_earlier_findings())
    return findings.report_no_work(runner, job, "repair", TITLE, reason)


def _repair_branch(ws: Workspace, comparison: Comparison) -> BranchRepair:
    deepen.fetch_commits(ws.places, [comparison.head])
    since = comparison.base or next(iter(objects.read_parents(ws.places, comparison.head)), None)
    fetch_history = functools.partial(deepen.make_comparable, ws.places)
    name = events.read_pushed_branch(os.environ) or ""
    return repair_branch(ws, HostedBranch(deepen.find_code_remote(ws.places), name, since, fetch_history))


# -- if the branch refused the repair


def _offer_repair(report: BranchRepair) -> _Offer:
    repository = payload.read_repository_name(os.environ)
    server = payload.read_server(os.environ)
    proposal = _build_proposal(report)
    words = ("gh", "pr", "create", "--repo", repository, "--base", proposal.base, "--head", proposal.head)
    command = " ".join(map(quoted, (*words, "--title", proposal.title, "--body", proposal.body)))
    between = f"{quote(proposal.base, safe='/')}...{quote(proposal.head, safe='/')}"
    offer = _Offer(command, f"{server}/{repository}/compare/{between}?expand=1")
    if not inputs.wants_pull_request():
        return offer
    try:
        number, _ = GitHub.from_job(inputs.take_token()).ensure_pull_request(proposal)
    except VmragError as failure:  # the branch exists, and the report has the rest
        return offer._replace(failure=failure)
    return offer._replace(number=number, page=f"{server}/{repository}/pull/{number}")


def _build_proposal(report: BranchRepair) -> Proposal:
    commits = list(dict.fromkeys(drop.commit[:12] for drop in report.dropped))
    body = f"These commits were merged without their documents: {enumerated(commits)}. This restores them: {report.changes.text}."
    return Proposal(report.offered_on, report.branch, "Restore documents that a merge dropped", body)


# -- the report


def _report_repair(runner: Runner, report: BranchRepair, offer: _Offer | None) -> int:
    reported = list(_list_findings(report, offer))
    if "verify" not in inputs.read_modes():  # else that step also reports them
        reported += [ActionFinding.from_pin_finding(other) for other in report.others]
    if report.result == "repaired":
        for other in report.dropped:
            runner.log_line(f"Repaired: {other.message}")
    if offer and offer.failure:
        failures.annotate_error(runner, offer.failure)
    code = findings.report_findings(runner, TITLE, reported, _describe_verdict(report, offer))
    rows = [
        (other.commit[:12], other.message, f"repaired by {(other.mended_by or '')[:12]}") for other in report.mended
    ]
    if not offer:  # else the findings show it
        state = "repaired" if report.result == "repaired" else "not repaired yet"
        rows += [(other.commit[:12], other.message, state) for other in report.dropped]
    if rows:
        runner.append_summary(
            markdown_text.format_table("Dropped documents", ("Commit", "What", ""), rows, limit=_MAX_TABLE_BYTES)
        )
    if offer:
        label = "The pull request" if offer.number else "Open the pull request"
        runner.append_summary(
            f"{markdown_text.format_link(label, offer.page)}, or type:\n\n{markdown_text.format_command(offer.command)}"
        )
    return offer.failure.exit_code if offer and offer.failure else code


def _describe_verdict(report: BranchRepair, offer: _Offer | None) -> str:
    dropped = f"{plural(len(report.dropped), 'commit')} of {report.branch} dropped documents"
    if report.result == "repaired":
        restored = f"commit {(report.commit or '')[:12]} restores them ({report.changes.text})"
        return f"{dropped}. {restored}, and was pushed."
    if report.result == "conflict":
        return f"{dropped}, which conflict with the current pin. Nothing was pushed."
    if offer:
        where = f"pull request #{offer.number}" if offer.number else f"the branch {report.offered_on}"
        return f"{dropped}. {report.branch} refused the repair, which is on {where}."
    if report.others:
        return f"Nothing to repair on {report.branch}. {plural(len(report.others), 'finding')} for you to fix."
    if report.mended:
        return f"All drops on {report.branch} are already repaired."
    return f"No documents were dropped on {report.branch}."


def _list_findings(report: BranchRepair, offer: _Offer | None) -> Iterator[ActionFinding]:
    """Yield findings about steps for the user."""
    if report.conflict:
        yield _build_conflict_finding(report.branch, report.conflict)
    if offer:
        waits = (
            f"{report.branch} refused it, so the repair is on {report.offered_on}. Answer of the host: {report.refusal}"
        )
        hint = (
            f"merge pull request #{offer.number}: {offer.page}"
            if offer.number
            else hints.suggest_command(offer.command, "open the pull request")
        )
        for drop in report.dropped:
            severity: Severity = "information" if offer.number else "error"
            yield ActionFinding(severity, drop.code, drop.commit[:12], f"{drop.message} {waits}", hint)


def _build_conflict_finding(branch: str, conflict: RepairConflict) -> ActionFinding:
    names = conflict.documents
    documents = f"{plural(len(names), 'document')}: {first_of(names, _MAX_SHOWN_DOCUMENTS)}"
    message = (
        f"The documents that {conflict.commit[:12]} dropped conflict with the current pin of {branch} in "
        f"{documents}. Resolve the conflict by hand. Nothing was pushed."
    )
    commands = (
        f"git switch {quoted(branch)} && git pull && vmrag merge --repair {conflict.commit[:12]}",
        "vmrag resolve, then vmrag merge --continue",
        f"git commit -m 'Restore dropped documents' && git push origin {quoted(branch)}",
    )
    return ActionFinding("error", "MERGE_CONFLICT", conflict.commit[:12], message, "\n".join(commands))
