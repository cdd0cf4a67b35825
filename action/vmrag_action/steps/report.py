"""`mode: report`: show how the commits of the event change the documents, in the summary of the job
and as a page.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping

import msgspec

from vmrag_action import failures, findings, inputs, payload, work_tree
from vmrag_action.events import Comparison
from vmrag_action.payload import PullRequestEvent
from vmrag_action.runner import PIN, Runner, WorkflowJob
from vmrag_action.steps.comment import FILE
from vmrag_link import markdown_text
from vmrag_link.engines.migrated import try_read_pin
from vmrag_link.errors import (
    OK,
    AuthenticationFailed,
    PinMalformed,
    PinRevisionMissing,
    RemoteEmpty,
    RemoteMissing,
    VmragError,
    quoted,
)
from vmrag_link.git import history
from vmrag_link.ops.adopt import adopt
from vmrag_link.ops.pull_requests import update_branch
from vmrag_link.ops.report.comment_data import CommentData, build_comment_data, build_without_report
from vmrag_link.ops.report.ends import NamedEnd
from vmrag_link.ops.report.files import write_text
from vmrag_link.ops.report.gather import gather_report
from vmrag_link.ops.report.html import render_page
from vmrag_link.ops.report.markdown import format_markdown
from vmrag_link.ops.report.records import KnowledgeReport
from vmrag_link.ops.report.wording import judge_report
from vmrag_link.ops.verify.verify import verify_between
from vmrag_link.ops.verify.verify_commits import Code
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.commits import deepen

TITLE = "Changed documents"

PAGE = "vmrag-report.html"
"""The name of the file in RUNNER_TEMP."""

_MERGE_QUEUE = "merge_group"
"""The event of a merge queue. Its commits were already reported, so it needs no page."""

_SECRETS_EVENT = "pull_request_target"
"""The event whose job can have secrets. It contacts no fork."""

_REQUEST_EVENTS = ("pull_request", _SECRETS_EVENT)
"""The events with a pull request to comment on."""

_FINDING_CODES: Mapping[str, Code] = {
    PinRevisionMissing.code: "PIN_REVISION_MISSING",
    PinMalformed.code: "PIN_MALFORMED",
}
"""Findings for pins that cause an error. For other errors, this repository lacks a revision."""


def run(runner: Runner, job: WorkflowJob) -> int:
    with work_tree.open_workspace(runner, job) as ws:
        comparison = work_tree.compare_event(ws)
        if comparison.base is None:
            return findings.report_no_work(runner, job, "report", TITLE, "there is no base to compare with.")
        try:
            return _compare_commits(runner, job, ws, comparison, comparison.base)
        except VmragError as error:
            runner.append_summary(
                markdown_text.format_facts(TITLE, [(error.cause, error.message), ("Fix", error.hint)])
            )
            if failures.is_pin_failure(error):
                missing_code = _FINDING_CODES.get(error.cause, "NOT_ON_REMOTE")
                _store_comment_data(
                    runner, job, lambda number: build_without_report(number, comparison.head, missing_code)
                )
            raise


def _compare_commits(runner: Runner, job: WorkflowJob, ws: Workspace, comparison: Comparison, base: str) -> int:
    deepen.make_comparable(ws.places, base, comparison.head)
    pins = history.read_pins(ws.places, [base, comparison.head])
    # Files that settings make documents; a mere proposal is not used.
    commits = () if ws.sources.is_proposed else (base, comparison.head)
    if not pins and not any(ws.sources.read_config_at(commit).sources for commit in commits):
        error = f"neither {base[:12]} nor {comparison.head[:12]} has a pin."
        _store_comment_data(runner, job, lambda number: CommentData(number, comparison.head, questions=None))
        return findings.report_no_work(runner, job, "report", TITLE, error)
    verified = verify_between(ws, base, comparison.head, base_name=comparison.base_name, fork=comparison.fork)
    try:
        import_sentence = _import_from_fork(ws, comparison, pins.get(comparison.head))
    except (AuthenticationFailed, RemoteMissing) as error:
        if isinstance(error, RemoteEmpty):  # the author of the fork has to fix that
            raise
        return _report_unreadable_fork(runner, job, comparison, error)
    base_end = NamedEnd(base, comparison.base_name or base[:12])
    head_end = NamedEnd(comparison.head, comparison.head[:12])
    with gather_report(ws, base_end, head_end, findings=verified.findings) as report:
        _print_report(runner, report, import_sentence)
        pin_conflict = _conflicts_in_pin(ws, job, comparison.head)

        def build_data(number: int) -> CommentData:
            data = build_comment_data(number, report.summary, comparison.head)
            return msgspec.structs.replace(data, pin_conflict=pin_conflict)

        _store_comment_data(runner, job, build_data)
        if comparison.event != _MERGE_QUEUE:
            path = job.temp / PAGE
            write_text(path, render_page(report))
            runner.set_output("report-path", str(path))
    return OK


def _conflicts_in_pin(ws: Workspace, job: WorkflowJob, head: str) -> bool:
    """Return whether a pull request conflicts with its base branch only in the pin."""
    if not inputs.wants_comment() or job.event not in _REQUEST_EVENTS:
        return False
    base = payload.read_event(os.environ, PullRequestEvent).pull_request.base.sha
    try:
        merge = update_branch.inspect_merge(ws, base, head, functools.partial(deepen.make_comparable, ws.places))
    except VmragError:  # the job that merges them reports why
        return False
    return merge.result == "knowledge"


def _report_unreadable_fork(runner: Runner, job: WorkflowJob, comparison: Comparison, error: VmragError) -> int:
    """Report a private fork, which no token of this repository can read. The job passes."""
    sentence = f"The documents of {comparison.head[:12]} are in a fork that this job cannot read, so they are not compared. {error.message}"
    fork = comparison.fork.url if comparison.fork else "FORK"
    hint = f"run 'git fetch origin {comparison.head} && vmrag adopt {quoted(fork)} {comparison.head}' if you can read the fork"
    runner.annotate("notice", sentence, hint=hint, title=TITLE, at=PIN)
    runner.append_summary(markdown_text.format_facts(TITLE, [("Result", sentence), ("Fix", hint)]))
    _store_comment_data(runner, job, lambda number: build_without_report(number, comparison.head, "NOT_ON_REMOTE"))
    return OK


def _print_report(runner: Runner, report: KnowledgeReport, import_sentence: str) -> None:
    summary = report.summary
    sentences = [*judge_report(summary).sentences]
    if import_sentence:
        sentences.append(import_sentence)
    for sentence in sentences:
        runner.log_line(sentence)
    if not summary.empty:
        runner.annotate("notice", " ".join(sentences), title=TITLE, at=PIN)
    runner.set_output("documents-changed", summary.counts.total)
    runner.set_output("queries-changed", summary.queries.answered_otherwise)
    import_line = f"{markdown_text.escape_markdown(import_sentence)}\n" if import_sentence else ""
    runner.append_summary(
        format_markdown(report, limit=markdown_text.MAX_BYTES - len(import_line.encode())) + import_line
    )


def _store_comment_data(runner: Runner, job: WorkflowJob, build: Callable[[int], CommentData]) -> None:
    """Store the data of the comment on a pull request. `build` takes the number of the pull
    request.

    The next step reads them. A job for a fork has no write access, so a job of the base reads them.
    """
    if not inputs.wants_comment() or job.event not in _REQUEST_EVENTS:
        return
    request = payload.read_event(os.environ, PullRequestEvent).pull_request
    if request.state != "open":
        return
    path = job.temp / FILE
    path.write_bytes(msgspec.json.encode(build(request.number)))
    is_own = request.head.repo is not None and request.head.repo.full_name == request.base.repo.full_name
    runner.set_output("comment-path", str(path))
    runner.set_output("comment" if is_own or job.event == _SECRETS_EVENT else "hand-over", True)


def _import_from_fork(ws: Workspace, comparison: Comparison, pin: bytes | None) -> str:
    """Import the revisions that a fork pins and this repository lacks, after a check in quarantine.

    Returns a sentence about it, or an empty text if nothing was imported. Raises `VmragError` like
    `adopt`.
    """
    pinned = try_read_pin(ws.places.kb, pin)
    if comparison.fork is None or comparison.event == _SECRETS_EVENT:
        return ""
    if pinned is None or ws.engine.has_revision(pinned.dolt_commit):
        return ""
    adoption = adopt(ws, comparison.fork.url, comparison.head, push=False, ask=False)
    return (
        f"The documents of {comparison.head[:12]} are not in this repository yet. For this report, they were imported from "
        f"{adoption.source}, after a check in quarantine."
    )
