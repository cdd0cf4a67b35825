"""Commit the working set, go to another branch or commit, go back."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from vmrag_link.errors import VmragError, plural
from vmrag_link.ops.branches import commit as committing
from vmrag_link.ops.branches import reset as resetting
from vmrag_link.ops.branches import switch as switching
from vmrag_link.ops.links import link as linking
from vmrag_mcp.arguments import Given
from vmrag_mcp.registry import tool
from vmrag_mcp.results.commits import CommitSummary
from vmrag_mcp.session import Call
from vmrag_mcp.tools import outcome

Message = Annotated[str, Given(blank=True)]
Carrying = Literal["abort", "commit_first", "reset_first", "carry"]


@tool("VF")
def dolt_commit(
    call: Call,
    *,
    message: Message,
    author: Annotated[str | None, Given("Name <mail>, or one of them; default: git's")] = None,
    auto_link_git: Annotated[bool, Given("link git's HEAD to the commit")] = False,
) -> dict[str, Any]:
    """Commit all uncommitted documents, or close a resolved merge. Stages the pin: commit that with git."""
    report = committing.commit(call.ws, message, author=author)
    return committed(call, report, linked=_linked(call) if auto_link_git else None)


def committed(call: Call, report: committing.CommitReport, *, linked: dict[str, Any] | None = None) -> dict[str, Any]:
    outcome.warn(call, pending=report.pending, staged=report.staged or report.pin is None)
    then = "the pin is staged for git" if report.pin else "the pin stays (auto_pin is off)"
    return {
        "commit": outcome.commit(call, report.revision),
        "changes_committed": outcome.summary(report.changes),
        "linked": linked,
        "message": f"Committed {plural(report.changes.total, 'document')} as {report.revision[:7]} to {report.branch!r}; {then}.",
    }


def _linked(call: Call) -> dict[str, Any] | None:
    """The commit stands, whether git's can be linked to it or not."""
    try:
        report = linking.link(call.ws, git_repo_path=call.ws.places.top)
    except VmragError as error:
        call.warn("IGNORED_SETTING", f"The commit is made, but git's was not linked to it: {error.message}")
        return None
    for each in report.warnings:
        call.warn(each.code, each.message)
    return {"link": msgspec.to_builtins(report.link), "bidirectional": msgspec.to_builtins(report.bidirectional)}


@tool("WVD")
def dolt_checkout(
    call: Call,
    *,
    target: Annotated[str, Given("branch, tag, hash, HEAD~3, origin/x")],
    create_branch: bool = False,
    from_: Annotated[str | None, Given("where the new branch starts; default: HEAD", wire="from")] = None,
    if_uncommitted: Annotated[Carrying, Given("reset_first discards")] = "abort",
    commit_message: Annotated[str | None, Given("for commit_first")] = None,
) -> dict[str, Any]:
    """Go to another branch of the knowledge base, or read a commit. The pin changes and is staged; git's branch stays."""
    if from_ is not None and not create_branch:
        call.warn("IGNORED_SETTING", "from means nothing without create_branch.")
    start = from_ if create_branch else None
    report = switching.checkout(
        call.ws, target, create=create_branch, start=start, how=if_uncommitted, message=commit_message or ""
    )
    outcome.warn(call, pending=report.pending, staged=report.staged)
    where = (
        f"{report.to_branch!r} at {report.to_commit[:7]}" if report.to_branch else f"{report.to_commit[:7]}, detached"
    )
    return {
        "action_taken": {"uncommitted_handling": report.handling, "branch_created": report.created},
        "checkout_result": {
            "from_branch": report.from_branch,
            "from_commit": report.from_commit,
            "to_branch": report.to_branch,
            "to_commit": report.to_commit,
        },
        "sync_summary": outcome.sync_summary(report.changes),
        "detached": report.to_branch is None,
        "message": f"On {where}; {plural(report.changes.total, 'changed document')}.",
    }


@tool("WVD")
def dolt_reset(
    call: Call,
    *,
    target: Annotated[str, Given("hash, HEAD~1, branch, origin/main")] = "HEAD",
    confirm_discard: Annotated[bool, Given("must be true with uncommitted changes or an open merge")] = False,
) -> dict[str, Any]:
    """Take the branch back to a commit. Discards uncommitted changes and gives up an open merge."""
    report = resetting.reset(call.ws, target, confirmed=confirm_discard)
    outcome.warn(call, pending=report.pending, staged=report.staged)
    left = f"; on no branch any more: {plural(len(report.orphaned), 'commit')}" if report.orphaned else ""
    return {
        "reset_result": {
            "from_commit": report.from_commit,
            "to_commit": report.to_commit,
            "discarded_changes": outcome.summary(report.discarded),
        },
        "sync_summary": {
            "documents_restored": report.changes.added + report.changes.modified,
            "documents_removed": report.changes.removed,
        },
        "orphaned_commits": msgspec.to_builtins([CommitSummary.of(each) for each in report.orphaned]),
        "message": f"At {report.to_commit[:7]}; {plural(report.discarded.total, 'uncommitted document')} discarded{left}.",
    }
