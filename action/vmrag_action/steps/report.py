"""`mode: report`: what the event's commits do to the knowledge, in the job's summary and as a
page.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping

import msgspec

from vmrag_action import failures, findings, inputs, payload
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

TITLE = "What changes in the knowledge"

PAGE = "vmrag-report.html"
"""In RUNNER_TEMP."""

_QUEUE = "merge_group"
"""The event of a merge queue, whose commits were reported already: nobody reads a page of it."""

_WITH_SECRETS = "pull_request_target"
"""The event whose job can have secrets: no fork is contacted there."""

_OF_REQUESTS = ("pull_request", _WITH_SECRETS)
"""The events after which there is a pull request to comment on."""

_LACKS: Mapping[str, Code] = {PinRevisionMissing.code: "PIN_REVISION_MISSING", PinMalformed.code: "PIN_MALFORMED"}
"""What is missing where a pin is at fault; elsewhere it is knowledge that this repository lacks."""


def run(runner: Runner, job: WorkflowJob) -> int:
    with findings.open_workspace(runner, job) as ws:
        about = findings.compare_event(ws)
        if about.base is None:
            return findings.report_no_work(runner, job, "report", TITLE, "there is no base to compare with.")
        try:
            return _compared(runner, job, ws, about, about.base)
        except VmragError as error:
            runner.append_summary(
                markdown_text.format_facts(TITLE, [(error.cause, error.message), ("What helps", error.hint)])
            )
            if failures.is_pin_failure(error):
                lacks = _LACKS.get(error.cause, "NOT_ON_REMOTE")
                _leave(runner, job, lambda number: build_without_report(number, about.head, lacks))
            raise


def _compared(runner: Runner, job: WorkflowJob, ws: Workspace, about: Comparison, base: str) -> int:
    deepen.make_comparable(ws.places, base, about.head)
    pins = history.read_pins(ws.places, [base, about.head])
    if not pins and not _name_sources(ws, base, about.head):
        why = f"neither {base[:12]} nor {about.head[:12]} pins any knowledge."
        _leave(runner, job, lambda number: CommentData(number, about.head, questions=None))
        return findings.report_no_work(runner, job, "report", TITLE, why)
    verified = verify_between(ws, base, about.head, base_name=about.base_name, fork=about.fork)
    try:
        foreign = _take_from_fork(ws, about, pins.get(about.head))
    except (AuthenticationFailed, RemoteMissing) as why:
        if isinstance(why, RemoteEmpty):  # that the fork has none is its author's to mend
            raise
        return _out_of_reach(runner, job, about, why)
    ends = NamedEnd(base, about.base_name or base[:12]), NamedEnd(about.head, about.head[:12])
    with gather_report(ws, *ends, findings=verified.findings) as report:
        _say(runner, report, foreign)
        pin_conflict = _conflicts_in_pin(ws, job, about.head)
        _leave(
            runner,
            job,
            lambda number: msgspec.structs.replace(
                build_comment_data(number, report.summary, about.head), pin_conflict=pin_conflict
            ),
        )
        if about.event != _QUEUE:
            path = job.temp / PAGE
            write_text(path, render_page(report))
            runner.set_output("report-path", str(path))
    return OK


def _conflicts_in_pin(ws: Workspace, job: WorkflowJob, head: str) -> bool:
    """Return whether a pull request conflicts with its base branch in the pin alone."""
    if not inputs.wants_comment() or job.event not in _OF_REQUESTS:
        return False
    base = payload.read_event(os.environ, PullRequestEvent).pull_request.base.sha
    try:
        merge = update_branch.inspect_merge(ws, base, head, functools.partial(deepen.make_comparable, ws.places))
    except VmragError:  # the job that merges them tells why
        return False
    return merge.result == "knowledge"


def _out_of_reach(runner: Runner, job: WorkflowJob, about: Comparison, why: VmragError) -> int:
    """A private fork, which no token of this repository opens. That is nobody's fault."""
    said = f"The knowledge of {about.head[:12]} is in a fork that this job may not read, so it is not compared. {why.message}"
    fork = about.fork.url if about.fork else "FORK"
    hint = f"Who may read it: git fetch origin {about.head} && vmrag adopt {quoted(fork)} {about.head}"
    runner.annotate("notice", said, hint=hint, title=TITLE, at=PIN)
    runner.append_summary(markdown_text.format_facts(TITLE, [("Result", said), ("What helps", hint)]))
    _leave(runner, job, lambda number: build_without_report(number, about.head, "NOT_ON_REMOTE"))
    return OK


def _name_sources(ws: Workspace, *commits: str) -> bool:
    """Whether files are documents, as settings say; what would be proposed is nobody's wish."""
    return not ws.sources.is_proposed and any(ws.sources.read_config_at(commit).sources for commit in commits)


def _say(runner: Runner, report: KnowledgeReport, foreign: str) -> None:
    found = report.summary
    sentences = [*judge_report(found).sentences, *([foreign] if foreign else [])]
    for sentence in sentences:
        runner.log_line(sentence)
    if not found.empty:
        runner.annotate("notice", " ".join(sentences), title=TITLE, at=PIN)
    runner.set_output("documents-changed", found.counts.total)
    runner.set_output("queries-changed", found.queries.answered_otherwise)
    said = f"{markdown_text.escape_markdown(foreign)}\n" if foreign else ""
    runner.append_summary(format_markdown(report, limit=markdown_text.MAX_BYTES - len(said.encode())) + said)


def _leave(runner: Runner, job: WorkflowJob, data: Callable[[int], CommentData]) -> None:
    """The data of the comment on pull request NUMBER: for the next step, or, where this job has to
    do with a fork and so may write nothing, for a job of the base.
    """
    if not inputs.wants_comment() or job.event not in _OF_REQUESTS:
        return
    request = payload.read_event(os.environ, PullRequestEvent).pull_request
    if request.state != "open":
        return
    path = job.temp / FILE
    path.write_bytes(msgspec.json.encode(data(request.number)))
    is_own = request.head.repo is not None and request.head.repo.full_name == request.base.repo.full_name
    runner.set_output("comment-path", str(path))
    runner.set_output("comment" if is_own or job.event == _WITH_SECRETS else "hand-over", True)


def _take_from_fork(ws: Workspace, about: Comparison, pin: bytes | None) -> str:
    """Let the job's own knowledge base have what a fork pins and this repository lacks, after a
    check in quarantine; a sentence about it, empty if nothing was taken.

    Raises as `adopt`.
    """
    pinned = try_read_pin(ws.places.kb, pin)
    if about.fork is None or about.event == _WITH_SECRETS:
        return ""
    if pinned is None or ws.engine.has_revision(pinned.dolt_commit):
        return ""
    taken = adopt(ws, about.fork.url, about.head, push=False, ask=False)
    return (
        f"The knowledge of {about.head[:12]} is not in this repository yet: for this report it was taken from {taken.source}, "
        "and checked in quarantine."
    )
