"""How a knowledge base begins, and how it travels."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from vmrag_link import env
from vmrag_link.errors import plural
from vmrag_link.ops.branches import pull
from vmrag_link.ops.publish import push
from vmrag_link.ops.remotes import fetch
from vmrag_link.ops.setup import bootstrap
from vmrag_mcp.arguments import Given
from vmrag_mcp.registry import tool
from vmrag_mcp.session import Call
from vmrag_mcp.tools import outcome

ORIGIN = "origin"
"""How tools call the knowledge base's own remote, whatever it is called elsewhere."""

Remote = Annotated[str, Given("origin: the knowledge base's own; else a git remote, or a URL that the user agreed to")]


@tool("WVN", founds=True)
def dolt_init(
    call: Call,
    *,
    remote_url: Annotated[str, Given("is not contacted; a URL that the user agreed to")] = "",
    initial_branch: Annotated[str, Given("default: the git branch's name")] = "",
    import_existing: Annotated[bool, Given("the Chroma store that CHROMA_DATA_DIR names")] = True,
    commit_message: str = "Initial import from ChromaDB",
) -> dict[str, Any]:
    """Start a knowledge base in this git repository."""
    done = bootstrap.found(
        call.ws,
        url=remote_url or None,
        allow=call.require_agreed,
        branch=initial_branch or None,
        store=env.imported() if import_existing else None,
        message=commit_message,
    )
    outcome.warn(call, pending=done.pending, staged=done.staged)
    if done.standing:
        call.stands(done.standing)
    if done.taken.left_out:
        call.warn("NOTE", f"{done.taken.left_out} rows without text, or with an id that is none here, were left out.")
    if done.cloned:
        call.warn(
            "NOTE", f"Commits of this repository pin a knowledge base already; it was fetched from {done.cloned}."
        )
    count = len(done.taken.documents)
    return {
        "repository": {
            "path": done.path,
            "branch": done.branch,
            "commit": {"hash": done.commit.revision, "message": done.commit.message},
        },
        "remote": {
            "configured": bool(done.remote),
            "name": ORIGIN if done.remote else None,
            "url": done.remote or None,
        },
        "import_summary": {
            "documents_imported": count,
            "collections": [each.name for each in done.taken.collections],
        },
        "message": f"The knowledge base is there, with {plural(count, 'imported document')}; its pin is staged for the next git commit.",
    }


@tool("WVN", founds=True)
def dolt_clone(
    call: Call,
    *,
    remote_url: Annotated[str, Given("a git remote, or a URL that the user agreed to")],
    branch: str = "",
    commit: Annotated[str, Given("wins over branch")] = "",
) -> dict[str, Any]:
    """Fetch a knowledge base into this git repository, and index it."""
    done = bootstrap.found_from(
        call.ws, remote_url, allow=call.require_agreed, branch=branch or None, commit=commit or None
    )
    info = done.commit
    outcome.warn(call, pending="", staged=done.staged)
    return {
        "repository": {"path": done.path, "remote_url": done.url},
        "checkout": {
            "branch": done.branch,
            "commit": {"hash": info.revision, "message": info.message, "timestamp": info.date},
        },
        "sync_summary": {"documents_loaded": done.documents, "collections_created": list(done.collections)},
        "message": f"{plural(done.documents, 'document')} at {info.revision[:7]} came from {done.url}.",
    }


@tool("VN", idempotent=True)
def dolt_fetch(
    call: Call, *, remote: Remote = ORIGIN, branch: Annotated[str, Given("default: all")] = ""
) -> dict[str, Any]:
    """Fetch the commits of a remote. Documents and branches here stay as they are."""
    done = fetch.fetch_branches(call.ws, _named(call, remote), branch=branch or None)
    return {
        "remote": done.remote,
        "updates": {
            "branches_updated": [
                {
                    "name": each.name,
                    "old_commit": each.old,
                    "new_commit": each.new,
                    "commits_fetched": each.commits,
                }
                for each in done.branches
            ],
            "new_branches": [each.name for each in done.branches if each.old is None],
            "total_commits_fetched": done.commits,
        },
        "current_branch_status": {"branch": done.branch, "behind": done.behind, "ahead": done.ahead},
        "message": f"{plural(done.commits, 'commit')} fetched from {done.remote}: {done.behind} behind, {done.ahead} ahead.",
    }


@tool("WVND")
def dolt_pull(
    call: Call,
    *,
    remote: Remote = ORIGIN,
    branch: Annotated[str, Given("of the remote; default: what the upstream of the git branch pins")] = "",
    if_uncommitted: Annotated[
        Literal["abort", "commit_first", "reset_first", "stash"], Given("reset_first discards")
    ] = "abort",
    commit_message: str = "Auto-commit before pull",
) -> dict[str, Any]:
    """Fetch, and merge what others have added."""
    done = pull.pull_and_clear(
        call.ws, _named(call, remote), branch=branch or None, how=if_uncommitted, message=commit_message
    )
    merged, source = done.report.merge, done.report.remote
    outcome.warn(call, pending=merged.pending, staged=merged.staged)
    if done.more:
        call.warn(
            "NOTE",
            f"The remote's branch {done.more!r} holds commits that the upstream of the git branch does not pin, as git fetched it last. "
            f"branch={done.more!r} merges them.",
        )
    made = done.cleared.commit
    nothing = f"{source} pins nothing new." if done.more else f"{source} has nothing new."
    return {
        "action_taken": {
            "uncommitted_handling": done.cleared.handling,
            "pre_commit": {"created": made is not None, "hash": made.revision if made else None},
        },
        "pull_result": {
            "merge_type": merged.result,
            "commits_merged": done.commits,
            "from_commit": merged.ours,
            "to_commit": merged.revision,
        },
        "sync_summary": outcome.sync_summary(merged.changes),
        "message": f"{plural(done.commits, 'commit')} merged from {source}." if done.commits else nothing,
    }


@tool("VND")
def dolt_push(
    call: Call,
    *,
    remote: Remote = ORIGIN,
    branch: Annotated[str, Given("default: the current one")] = "",
    set_upstream: bool = True,  # noqa: ARG001  see below
    force: bool = False,
) -> dict[str, Any]:
    """Push what is committed. A branch's upstream is always the remote's of the same name, whatever set_upstream is."""
    done = push.push_branch(call.ws, _named(call, remote), branch=branch or None, force=force)
    if done.uncommitted:
        call.warn("UNCOMMITTED_CHANGES", "There are uncommitted documents, which were not pushed.")
    return {
        "push_result": {
            "remote": done.remote,
            "branch": done.branch,
            "commits_pushed": done.commits,
            "from_commit": done.old,
            "to_url": done.url,
        },
        "remote_state": {"remote_branch": done.branch, "remote_commit": done.head},
        "message": f"{plural(done.commits, 'commit')} of {done.branch} pushed to {done.remote}.",
    }


def _named(call: Call, remote: str) -> str | None:
    """What operations call it. Raises `RemoteNotTrusted` for an address that nobody agreed to."""
    if remote == ORIGIN:
        return None
    call.require_agreed(remote)
    return remote
