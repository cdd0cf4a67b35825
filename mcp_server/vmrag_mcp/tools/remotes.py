"""Create a knowledge base, and exchange it with remotes."""

from __future__ import annotations

from typing import Annotated, Literal

from vmrag_link import env
from vmrag_link.errors import plural
from vmrag_link.git import remotes
from vmrag_link.models import Record
from vmrag_link.ops import pull, push
from vmrag_link.ops.new_knowledge_base import bootstrap
from vmrag_link.workspace.remotes import fetch
from vmrag_link.workspace.remotes.fetch import BranchFetched
from vmrag_mcp.arguments import IF_UNCOMMITTED, Given, Message
from vmrag_mcp.call import Call
from vmrag_mcp.registry import CLEARING, tool
from vmrag_mcp.results import DerivedRecord, ToolResult
from vmrag_mcp.tools import outcome
from vmrag_mcp.tools.outcome import SyncSummary


class FirstCommit(DerivedRecord, frozen=True, rename={"revision": "hash"}):
    revision: str
    message: str


class NewRepository(DerivedRecord, frozen=True):
    path: str
    branch: str
    commit: FirstCommit


class ConfiguredRemote(Record, frozen=True):
    """A remote. `name` and `url` are null if none is configured."""

    configured: bool
    name: str | None
    url: str | None


class ImportSummary(Record, frozen=True):
    documents_imported: int
    collections: list[str]


class DoltInitResult(ToolResult, frozen=True):
    repository: NewRepository
    remote: ConfiguredRemote
    import_summary: ImportSummary


class ClonedRepository(DerivedRecord, frozen=True, rename={"url": "remote_url"}):
    path: str
    url: str


class ClonedCommit(FirstCommit, frozen=True, rename={"date": "timestamp"}):
    date: str


class ClonedCheckout(DerivedRecord, frozen=True):
    """A check-out. `branch` is null if no branch points to the commit."""

    branch: str | None
    commit: ClonedCommit


class LoadSummary(
    DerivedRecord, frozen=True, rename={"documents": "documents_loaded", "collections": "collections_created"}
):
    documents: int
    collections: list[str]


class DoltCloneResult(ToolResult, frozen=True):
    repository: ClonedRepository
    checkout: ClonedCheckout
    sync_summary: LoadSummary


class FetchUpdates(
    DerivedRecord, frozen=True, rename={"branches": "branches_updated", "commits": "total_commits_fetched"}
):
    branches: list[BranchFetched]
    new_branches: list[str]
    commits: int


class CurrentBranchStatus(DerivedRecord, frozen=True):
    """Numbers of commits against the remote's branch."""

    branch: str | None
    behind: int
    ahead: int


class DoltFetchResult(ToolResult, frozen=True):
    remote: str
    updates: FetchUpdates
    current_branch_status: CurrentBranchStatus


class PreCommit(Record, frozen=True):
    """The commit of documents that were uncommitted before."""

    created: bool
    hash: str | None


class PullAction(Record, frozen=True):
    """The handling of uncommitted documents."""

    uncommitted_handling: Literal["none", "commit_first", "reset_first", "stash"]
    pre_commit: PreCommit


class PullSummary(Record, frozen=True):
    merge_type: Literal["fast_forward", "merge", "already_up_to_date"]
    commits_merged: int
    from_commit: str
    to_commit: str


class DoltPullResult(ToolResult, frozen=True):
    action_taken: PullAction
    pull_result: PullSummary
    sync_summary: SyncSummary


class PushSummary(
    DerivedRecord, frozen=True, rename={"commits": "commits_pushed", "ours": "from_commit", "url": "to_url"}
):
    """A push. `from_commit` is the local commit that was pushed."""

    remote: str
    branch: str
    commits: int
    ours: str
    url: str


class RemoteState(DerivedRecord, frozen=True, rename={"branch": "remote_branch", "head": "remote_commit"}):
    branch: str
    head: str


class DoltPushResult(ToolResult, frozen=True):
    push_result: PushSummary
    remote_state: RemoteState


ORIGIN = "origin"
"""Name for tools of the knowledge base's own remote, whatever its name in git is."""

Remote = Annotated[
    str,
    Given("git remote, or URL that the user agreed to; default: the knowledge base's", address=True, omitted=""),
]


@tool("WVN", title="Create knowledge base", without_kb=True)
def dolt_init(
    call: Call,
    *,
    remote_url: Annotated[str, Given("URL that the user agreed to; it is not contacted", address=True)] = "",
    initial_branch: Annotated[str, Given("name of the branch; default: git's")] = "",
    import_existing: Annotated[bool, Given("import the Chroma store in CHROMA_DATA_DIR")] = True,
    commit_message: Message = "Initial import from ChromaDB",
) -> DoltInitResult:
    """Create a knowledge base in this git repository if it has none and pins none."""
    result = bootstrap.start_and_pin(
        call.ws,
        url=remote_url or None,
        allow=call.require_agreed,
        branch=initial_branch or None,
        store=env.read_import_folder() if import_existing else None,
        message=commit_message,
    )
    outcome.warn_unfinished(call, pending=result.pending, staged=result.staged)
    if result.origin:
        call.set_origin(result.origin)
    if result.imported.left_out:
        call.warn("NOTE", f"Skipped {result.imported.left_out} rows without text or with an invalid id.")
    if result.cloned:
        call.warn(
            "NOTE", f"Commits of this repository already pin a knowledge base; it was fetched from {result.cloned}."
        )
    for other in result.other_starts:
        call.warn(
            "NOTE",
            "This git commit had no pin, and starts without documents. "
            f"dolt_checkout with target {other.revision} switches to existing documents: {other.described}.",
        )
    count = len(result.imported.documents)
    return DoltInitResult(
        repository=NewRepository.from_report(result),
        remote=ConfiguredRemote(
            configured=bool(result.remote), name=ORIGIN if result.remote else None, url=result.remote or None
        ),
        import_summary=ImportSummary(count, [collection.name for collection in result.imported.collections]),
        message=f"Created the knowledge base with {plural(count, 'imported document')}; "
        "its pin is staged for the next git commit.",
    )


@tool("WVN", title="Clone knowledge base", without_kb=True, includes=("dolt_fetch",))
def dolt_clone(
    call: Call,
    *,
    remote_url: Annotated[str, Given("git remote, or URL that the user agreed to", address=True)],
    branch: Annotated[str, Given("branch to check out")] = "",
    commit: Annotated[str, Given("commit to check out instead")] = "",
) -> DoltCloneResult:
    """Fetch a knowledge base into this git repository and index it. A pinned one is fetched
    automatically, unless its URL needs the user's consent.
    """
    result = bootstrap.clone_and_index(
        call.ws, remote_url, allow=call.require_agreed, branch=branch or None, commit=commit or None
    )
    outcome.warn_unfinished(call, pending="", staged=result.staged)
    call.warn_of_push()
    return DoltCloneResult(
        repository=ClonedRepository.from_report(result),
        checkout=ClonedCheckout.from_report(result),
        sync_summary=LoadSummary.from_report(result),
        message=f"Cloned {plural(result.documents, 'document')} at {result.commit.short} from {result.url}.",
    )


@tool("VN", title="Fetch commits", idempotent=True)
def dolt_fetch(
    call: Call, *, remote: Remote = ORIGIN, branch: Annotated[str, Given("branch; default: all")] = ""
) -> DoltFetchResult:
    """Fetch new commits of a remote. Local documents and branches do not change."""
    result = fetch.fetch_branches(call.ws, _remote_name(call, remote), branch=branch or None)
    message = f"{plural(result.commits, 'commit')} fetched from {result.remote}: {result.behind} behind, {result.ahead} ahead."
    return DoltFetchResult(
        remote=result.remote,
        updates=FetchUpdates.from_report(result),
        current_branch_status=CurrentBranchStatus.from_report(result),
        message=message,
    )


@tool("WVND", title="Pull commits", includes=("dolt_fetch", "merge_branch"), by_argument=CLEARING)
def dolt_pull(
    call: Call,
    *,
    remote: Remote = ORIGIN,
    branch: Annotated[str, Given("branch of the remote; default: what the upstream git branch pins")] = "",
    if_uncommitted: Annotated[
        Literal["abort", "commit_first", "reset_first", "stash"], Given(IF_UNCOMMITTED)
    ] = "abort",
    commit_message: Message = "Auto-commit before pull",
) -> DoltPullResult:
    """Fetch new commits of a remote and merge them into the current branch."""
    result = pull.pull_and_clear(
        call.ws, _remote_name(call, remote), branch=branch or None, how=if_uncommitted, message=commit_message
    )
    merged, source = result.report.merge, result.report.remote
    outcome.warn_unfinished(call, pending=merged.pending, staged=merged.staged)
    if result.left_branch:
        call.warn(
            "NOTE",
            f"{result.left_branch} is at a revision that this code pinned earlier and has left; it was not merged. "
            "To merge it, call again with branch.",
        )
    commit = result.cleared.commit
    nothing = f"{source} has nothing new{' that this code has not left' if result.left_branch else ''}."
    return DoltPullResult(
        action_taken=PullAction(
            result.cleared.handling,  # type: ignore[arg-type]  # nothing is carried into a pull
            PreCommit(created=commit is not None, hash=commit.revision if commit else None),
        ),
        pull_result=PullSummary(
            merge_type=merged.result,  # type: ignore[arg-type]  # of a merge that ended well
            commits_merged=result.commits,
            from_commit=merged.ours,
            to_commit=merged.revision,  # type: ignore[arg-type]  # a merge that ended well has one
        ),
        sync_summary=SyncSummary.from_report(merged.changes),
        message=f"{plural(result.commits, 'commit')} merged from {source}." if result.commits else nothing,
    )


@tool("VND", title="Push commits")
def dolt_push(
    call: Call,
    *,
    remote: Remote = ORIGIN,
    branch: Annotated[str, Given("branch; default: the current one")] = "",
    set_upstream: Annotated[bool, Given("accepted without effect")] = True,  # noqa: ARG001  see below
    force: Annotated[bool, Given("replace commits of the remote")] = False,
) -> DoltPushResult:
    """Push committed documents to a remote, into the branch of the same name."""
    result = push.push_branch(call.ws, _remote_name(call, remote), branch=branch or None, force=force)
    if result.uncommitted:
        call.warn("UNCOMMITTED_CHANGES", "Uncommitted documents were not pushed.")
    return DoltPushResult(
        push_result=PushSummary.from_report(result),
        remote_state=RemoteState.from_report(result),
        message=f"{plural(result.commits, 'commit')} of {result.branch} pushed to {result.remote}.",
    )


def _remote_name(call: Call, remote: str) -> str | None:
    """Return the name of a remote for operations; None for the default.

    Raises `RemoteNotTrusted` for an address that the user has not trusted.
    """
    if not remote or (remote == ORIGIN and not remotes.find_name(call.ws.places, remote)):
        return None
    call.require_agreed(remote)
    return remote
