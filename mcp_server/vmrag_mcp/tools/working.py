"""Commit the working set, switch to another branch or commit, and reset."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import structs

from vmrag_link.errors import VmragError, plural
from vmrag_link.models import LONGEST_QUERY, Record
from vmrag_link.ops import reset as resetting
from vmrag_link.ops.branch.checkout import checkout
from vmrag_link.ops.commit import commit as committing
from vmrag_link.ops.links import link as linking
from vmrag_link.workspace.history import log
from vmrag_mcp.arguments import IF_UNCOMMITTED, Given
from vmrag_mcp.call import Call
from vmrag_mcp.registry import CLEARING, tool
from vmrag_mcp.results import DerivedRecord, ToolResult
from vmrag_mcp.tools import outcome
from vmrag_mcp.tools.diff import Summary
from vmrag_mcp.tools.history_results import CommitSummary, CommitWithParent
from vmrag_mcp.tools.link import LinkedCommit
from vmrag_mcp.tools.outcome import SyncSummary


class CommitResult(ToolResult, frozen=True):
    """The result of all tools that commit."""

    commit: CommitWithParent
    changes_committed: Summary


class DoltCommitResult(CommitResult, frozen=True):
    """A commit. `linked` is the link to git's HEAD, if the call requested one and it succeeded."""

    linked: LinkedCommit | None


class CheckoutAction(
    DerivedRecord, frozen=True, rename={"handling": "uncommitted_handling", "created": "branch_created"}
):
    """The handling of uncommitted documents, and whether the branch was created."""

    handling: Literal["none", "commit_first", "reset_first", "carry"]
    created: bool


class CheckoutSummary(DerivedRecord, frozen=True):
    """A switch. A branch is null at a revision without a branch."""

    from_branch: str | None
    from_commit: str
    to_branch: str | None
    to_commit: str


class DoltCheckoutResult(ToolResult, frozen=True):
    action_taken: CheckoutAction
    checkout_result: CheckoutSummary
    sync_summary: SyncSummary
    detached: bool


class ResetSummary(DerivedRecord, frozen=True, rename={"discarded": "discarded_changes"}):
    from_commit: str
    to_commit: str
    discarded: Summary


class RestoreSummary(Record, frozen=True):
    """Numbers of documents that queries find again, or no longer find."""

    documents_restored: int
    documents_removed: int


class DoltResetResult(ToolResult, frozen=True):
    """A reset. No branch contains the `orphaned_commits`."""

    reset_result: ResetSummary
    sync_summary: RestoreSummary
    orphaned_commits: list[CommitSummary]


Message = Annotated[str, Given("message of the commit", blank=True, longest=LONGEST_QUERY)]
Carrying = Annotated[Literal["abort", "commit_first", "reset_first", "carry"], Given(IF_UNCOMMITTED)]


@tool("VF", title="Commit documents", by_argument={"auto_link_git=true": "dolt_link_git"})
def dolt_commit(
    call: Call,
    *,
    message: Message,
    author: Annotated[str | None, Given("author such as Ada <ada@example.org>; default: git's")] = None,
    auto_link_git: Annotated[bool, Given("also link git's HEAD to the commit")] = False,
) -> DoltCommitResult:
    """Commit all uncommitted documents, or close a resolved merge. Stages the pin .dolt-version:
    commit it with git, together with the code.
    """
    report = committing.commit(call.ws, message, author=author)
    result = commit_result(call, report)
    return DoltCommitResult(**structs.asdict(result), linked=_link_to_git(call) if auto_link_git else None)


def commit_result(call: Call, report: committing.CommitReport) -> CommitResult:
    """Return the result of a commit, for all tools that commit."""
    outcome.warn_unfinished(call, pending=report.pending, staged=report.staged or report.pin is None)
    call.warn_of_push()
    pin_state = "the pin is staged for git" if report.pin else "the pin stays (auto_pin is off)"
    where = f"{report.revision[:7]} to {report.branch!r}"
    return CommitResult(
        commit=CommitWithParent.from_report(log.read_info(call.ws.engine, report.revision)),
        changes_committed=Summary.from_report(report.changes),
        message=f"Committed {plural(report.changes.total, 'document')} as {where}; {pin_state}.",
    )


def _link_to_git(call: Call) -> LinkedCommit | None:
    """Link git's HEAD to the commit.

    If that fails, warn and return None: the commit is already made.
    """
    try:
        report = linking.link(call.ws, git_repo_path=call.ws.places.top)
    except VmragError as error:
        call.warn("IGNORED_SETTING", f"Committed, but could not link git's HEAD to the commit: {error.message}")
        return None
    for warning in report.warnings:
        call.warn(warning.code, warning.message)
    return LinkedCommit.from_report(report)


@tool("WVD", title="Switch branch", by_argument={"create_branch=true": "create_branch", **CLEARING})
def dolt_checkout(
    call: Call,
    *,
    target: Annotated[str, Given("branch, tag or hash such as origin/main")],
    create_branch: Annotated[bool, Given("create the branch target")] = False,
    from_: Annotated[str | None, Given("start of the new branch; default: HEAD", wire="from")] = None,
    if_uncommitted: Carrying = "abort",
    commit_message: Annotated[str | None, Given("message for commit_first", longest=LONGEST_QUERY)] = None,
) -> DoltCheckoutResult:
    """Switch the knowledge base to another branch or to a commit. Changes and stages the pin;
    git's branch stays. Not needed after git checkout.
    """
    if from_ is not None and not create_branch:
        call.warn("IGNORED_SETTING", "from has no effect without create_branch.")
    start = from_ if create_branch else None
    report = checkout(
        call.ws, target, create=create_branch, start=start, how=if_uncommitted, message=commit_message or ""
    )
    outcome.warn_unfinished(call, pending=report.pending, staged=report.staged)
    where = (
        f"{report.to_branch!r} at {report.to_commit[:7]}" if report.to_branch else f"{report.to_commit[:7]}, detached"
    )
    return DoltCheckoutResult(
        action_taken=CheckoutAction.from_report(report),
        checkout_result=CheckoutSummary.from_report(report),
        sync_summary=SyncSummary.from_report(report.changes),
        detached=report.to_branch is None,
        message=f"On {where}; {plural(report.changes.total, 'changed document')}.",
    )


@tool("WVD", title="Reset branch")
def dolt_reset(
    call: Call,
    *,
    target: Annotated[str, Given("branch, tag or hash such as HEAD~1")] = "HEAD",
    confirm_discard: Annotated[bool, Given("true to discard uncommitted documents or an open merge")] = False,
) -> DoltResetResult:
    """Move the branch back to a commit. Discards uncommitted documents and aborts an open merge."""
    report = resetting.reset(call.ws, target, confirmed=confirm_discard)
    outcome.warn_unfinished(call, pending=report.pending, staged=report.staged)
    orphaned = f"; {plural(len(report.orphaned), 'commit')} no longer on a branch" if report.orphaned else ""
    discarded = plural(report.discarded.total, "uncommitted document")
    return DoltResetResult(
        reset_result=ResetSummary.from_report(report),
        sync_summary=RestoreSummary(
            documents_restored=report.changes.added + report.changes.modified, documents_removed=report.changes.removed
        ),
        orphaned_commits=[CommitSummary.from_report(commit) for commit in report.orphaned],
        message=f"At {report.to_commit[:7]}; {discarded} discarded{orphaned}.",
    )
