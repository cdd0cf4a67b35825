"""Shorter names for tools of `dolt`, and the results that differ from those tools."""

from __future__ import annotations

from typing import Annotated

from msgspec import structs

from vmrag_link.engines.own_branches import is_reserved
from vmrag_link.models import Record
from vmrag_link.ops.branch import branches
from vmrag_link.ops.branch.branches import BranchPosition
from vmrag_link.ops.commit import commit as committing
from vmrag_link.ops.status import kb_status
from vmrag_link.workspace.remotes.destinations import find_upstream
from vmrag_mcp.arguments import RESULTS, Given
from vmrag_mcp.call import Call
from vmrag_mcp.registry import CLEARING, tool
from vmrag_mcp.results import ToolAnswer, ToolResult
from vmrag_mcp.tools import history, working
from vmrag_mcp.tools.history_results import CommitWithStats, StatusResult
from vmrag_mcp.tools.sync import SyncTotals
from vmrag_mcp.tools.working import Carrying, CommitResult, DoltCheckoutResult, Message


class CommitAliasResult(CommitResult, frozen=True):
    """A commit.

    `sync` has the numbers of the commit; its chunks belong to added and modified documents.
    """

    linked: None
    sync: SyncTotals


class BranchHead(Record, frozen=True):
    name: str
    is_current: bool
    short_hash: str


class GetBranchStatusResult(StatusResult, frozen=True):
    """The status. `branches` are the local branches."""

    branches: list[BranchHead]


class GetLogResult(ToolResult, frozen=True):
    commits: list[CommitWithStats]


@tool("VF", title="Commit documents", alias_of="dolt_commit")
def commit(
    call: Call, *, message: Message, sync: Annotated[bool, Given("also update the index")] = True
) -> CommitAliasResult:
    """Commit all uncommitted documents. Like dolt_commit."""
    report = committing.commit(call.ws, message, follow=sync)
    chunks = committing.count_chunks(call.ws, report)
    changes = report.changes
    return CommitAliasResult(
        **structs.asdict(working.commit_result(call, report)),
        linked=None,
        sync=SyncTotals(changes.added, changes.modified, changes.removed, chunks),
    )


@tool("V", includes=("dolt_checkout",))
def create_branch(
    call: Call,
    *,
    name: Annotated[str, Given("name of the branch such as feature/api")],
    from_: Annotated[str, Given("start of the branch such as main", wire="from")] = "HEAD",
) -> ToolAnswer[BranchPosition]:
    """Create a branch of the knowledge base without switching to it."""
    made = branches.create_branch(call.ws, name, from_)
    return ToolAnswer(made, message=f"Made the branch {name!r} at {made.commit[:7]}.")


@tool("WVD", alias_of="dolt_checkout", by_argument={"create=true": "create_branch", **CLEARING})
def switch_branch(
    call: Call,
    *,
    branch: Annotated[str, Given("branch such as feature/api", aliases=("name",))],
    create: Annotated[bool, Given("create the branch")] = False,
    if_uncommitted: Carrying = "abort",
) -> DoltCheckoutResult:
    """Switch to another branch of the knowledge base. Like dolt_checkout."""
    return working.dolt_checkout(call, target=branch, create_branch=create, if_uncommitted=if_uncommitted)


@tool("VD")
def delete_branch(
    call: Call,
    *,
    branch: Annotated[str, Given("branch such as feature/api", aliases=("name",))],
    force: Annotated[bool, Given("also delete an unmerged branch and its uncommitted documents")] = False,
) -> ToolAnswer[BranchPosition]:
    """Delete a local branch of the knowledge base that was merged. The remote keeps its branch."""
    result = branches.delete_branch(call.ws, branch, force=force)
    back = call.format_tail(f"create_branch with from={result.commit} brings it back")
    return ToolAnswer(result, message=f"Deleted {result.branch!r}, which was at {result.commit[:7]}{back}.")


@tool("R", alias_of="dolt_status")
def get_branch_status(call: Call) -> GetBranchStatusResult:
    """Show the state of the knowledge base and its local branches, without network."""
    changes, remote = history.find_uncommitted(call), find_upstream(call.ws)
    connected = kb_status.read_probe(call.ws, remote) if remote else None
    status = history.status_result(call, changes, remote, connected=connected)
    rows = [
        BranchHead(branch.name, branch.name == status.branch, branch.head[:7])
        for branch in call.ws.engine.list_branches()
        if not is_reserved(branch.name)
    ]
    return GetBranchStatusResult(**structs.asdict(status), branches=rows)


@tool("R", title="List commits", alias_of="dolt_commits")
def get_log(call: Call, *, limit: Annotated[int, Given(RESULTS, low=1, high=100, clamped=True)] = 20) -> GetLogResult:
    """List the commits of the current branch, newest first. dolt_commits lists other branches."""
    commits = history.dolt_commits(call, limit=limit)
    return GetLogResult(commits.commits, message=commits.message)
