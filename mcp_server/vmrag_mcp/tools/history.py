"""What the knowledge base was, and where it stands: status, branches, commits."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any, Literal

import msgspec

from vmrag_link.errors import UsageInvalid, plural
from vmrag_link.models import Record
from vmrag_link.ops.branches import branch_list
from vmrag_link.ops.commits import revisions
from vmrag_link.ops.commits.revisions import Match
from vmrag_link.ops.history import revparse
from vmrag_link.ops.history.log import LogEntry, log, made_between
from vmrag_link.ops.merge import conflict_rows
from vmrag_link.ops.status import kb_status
from vmrag_link.ops.status.kb_status import Situation
from vmrag_mcp.arguments import Given
from vmrag_mcp.registry import tool
from vmrag_mcp.session import Call
from vmrag_mcp.tools import diff, outcome
from vmrag_mcp.tools.outcome import CommitSummary, CommitWithParent

LISTED = 1000
"""Documents of one commit, or uncommitted ones, that are named."""


class Stats(Record, frozen=True):
    """Against the first parent."""

    documents_added: int
    documents_modified: int
    documents_deleted: int


class CommitWithStats(CommitWithParent, frozen=True):
    stats: Stats


class FoundCommit(CommitSummary, frozen=True):
    """`branch`: one that holds the commit."""

    branch: str
    match_type: Match


@tool("RN")
def dolt_status(
    call: Call, *, verbose: Annotated[bool, Given("list the uncommitted documents")] = False
) -> dict[str, Any]:
    """Show branch and commit, uncommitted documents, conflicts, and how the remote, the index and the pin .dolt-version compare."""
    found = kb_status.situation(call.ws, call.standing())
    connected = None
    if found.remote:
        asked = kb_status.reached(call.ws, found.remote)
        connected = asked.connected
        if asked.problem:
            call.warn("REMOTE_UNREACHABLE", asked.problem)
    return status_fields(call, found, connected=connected, verbose=verbose)


def status_fields(call: Call, found: Situation, *, connected: bool | None, verbose: bool = False) -> dict[str, Any]:
    """The result for a situation. `connected`: whether the remote answers, None where it was not asked."""
    for note in found.notes:
        call.warn("NOTE", note)
    here, engine = call.standing(), call.ws.engine
    changes = diff.changes(engine, here.revision, here.at)
    documents = changes.diff.documents
    local: dict[str, Any] = {
        "has_changes": bool(documents or changes.collections),
        "summary": outcome.summary(changes.diff.changes),
    }
    if verbose:
        listed = diff.documents(engine, changes.diff, documents[:LISTED])
        local["documents"] = [each.doc_id for each in listed]
        local["changes"] = msgspec.to_builtins(listed)
        if more := len(documents) - len(listed):
            call.warn("NOTE", f"{more} more documents are uncommitted; get_diff lists them: offset={LISTED}.")
    apart, remote = found.apart, found.remote
    return {
        "branch": found.branch,
        "commit": found.commit,
        "remote": {"name": remote.name, "url": remote.url, "connected": connected} if remote else None,
        "local_changes": local,
        "sync_state": {
            "ahead": apart.ahead,
            "behind": apart.behind,
            "diverged": apart.ahead > 0 and apart.behind > 0,
        },
        "merge_in_progress": found.merge_in_progress,
        "conflicts": conflict_rows.as_json(found.conflicts),
        "index": msgspec.to_builtins(found.index),
        "link": msgspec.to_builtins(found.link),
        "message": _message(found, changes),
    }


def _message(found: Situation, changes: diff.Changes) -> str:
    where = f"On {found.branch!r}" if found.branch else "On no branch"
    total, apart = len(changes.diff.documents), found.apart
    parts = [f"{where} at {found.commit[:7]}", f"{plural(total, 'uncommitted document')}"]
    if changes.collections and not total:
        parts.append("a collection is changed")
    if apart.ahead or apart.behind:
        parts.append(f"{apart.ahead} ahead of and {apart.behind} behind the remote")
    if found.merge_in_progress:
        parts.append(f"a merge is open with {plural(len(found.conflicts), 'conflict')}")
    return f"{', '.join(parts)}."


@tool("RN")
def dolt_branches(
    call: Call,
    *,
    include_local: Annotated[bool, Given("false: only those that the remote has")] = True,
    filter: Annotated[str, Given("glob, such as feature/*")] = "",  # noqa: A002  the clients' name
) -> dict[str, Any]:
    """List the branches of the knowledge base, here and on the remote."""
    found = branch_list.branch_list(call.ws, call.standing(), local=include_local, pattern=filter)
    if found.doubt:
        call.warn("STALE_REFS", f"The remote's branches are as of the last dolt_fetch: {found.doubt}")
    rows = []
    for each in found.branches:
        row = {
            "name": each.name,
            "is_current": each.current,
            "is_local": each.local,
            "is_remote": each.remote,
            "latest_commit": {
                "hash": each.head.revision,
                "short_hash": each.head.revision[: outcome.SHORT],
                "message": each.head.message,
                "timestamp": each.head.date,
            },
        }
        rows.append(row | (msgspec.to_builtins(each.apart) if each.apart else {}))
    total = len(rows)
    return {
        "current_branch": found.current,
        "branches": rows,
        "total_count": total,
        "message": f"{plural(total, 'branch')}.",
    }


@tool("R")
def dolt_commits(
    call: Call,
    *,
    branch: Annotated[str, Given("or any reference; default: the current branch")] = "",
    limit: Annotated[int, Given(low=1, high=100)] = 20,
    offset: Annotated[int, Given(low=0)] = 0,
    since: Annotated[str, Given("ISO 8601")] = "",
    until: Annotated[str, Given("ISO 8601; a day counts to its end")] = "",
) -> dict[str, Any]:
    """List the commits of a branch, newest first, with numbers of documents that each changed."""
    here, ws = call.standing(), call.ws
    wanted = made_between(ws.engine, _moment("since", since), _moment("until", until, end=True))
    start = revparse.tool_branch_rev(ws, branch, here) if branch else here.revision
    page = log(ws, start, limit=limit, offset=offset, wanted=wanted)
    total = page.total or 0
    name = branch or here.kb.branch
    return {
        "branch": name,
        "commits": msgspec.to_builtins([_with_stats(call, each) for each in page.entries]),
        "total_commits": total,
        "has_more": offset + len(page.entries) < total,
        "message": f"{len(page.entries)} of {total} commits{f' of {name}' if name else ''}.",
    }


def _with_stats(call: Call, entry: LogEntry) -> CommitWithStats:
    commit, changes = outcome.commit_with_parent(call, entry), entry.changes
    stats = Stats(changes.added, changes.modified, changes.removed)
    return CommitWithStats(**msgspec.structs.asdict(commit), stats=stats)


def _moment(parameter: str, text: str, *, end: bool = False) -> dt.datetime | None:
    """A time in ISO 8601, UTC unless it says otherwise; a day alone is its beginning, or its `end`."""
    if not text:
        return None
    try:
        found = dt.datetime.combine(dt.date.fromisoformat(text), dt.time.max if end else dt.time.min)
    except ValueError:
        try:
            found = dt.datetime.fromisoformat(text)
        except ValueError:
            raise UsageInvalid(
                f"{parameter} must be a time in ISO 8601, such as 2026-01-31 or 2026-01-31T12:00:00Z, not {text[:80]!r}.",
                parameter=parameter,
                value=text,
            ) from None
    return found if found.tzinfo else found.replace(tzinfo=dt.UTC)


@tool("R")
def dolt_show(
    call: Call,
    *,
    commit: Annotated[str, Given("hash or its first characters, HEAD, HEAD~1, branch, tag")],
    include_diff: bool = False,
    diff_limit: Annotated[int, Given("documents with texts", low=1, high=100, clamped=True)] = 10,
) -> dict[str, Any]:
    """Show one commit: what it changed, optionally with the texts, and which branches hold it."""
    here, ws = call.standing(), call.ws
    shown = outcome.commit_with_parent(call, ws.engine.info(revparse.tool_rev(ws, commit, here)))
    found = diff.changes(ws.engine, shown.parent_hash, shown.hash)
    documents = found.diff.documents
    total = len(documents)
    if total > LISTED:
        between = f"from_ref={shown.parent_hash}, to_ref={shown.hash}, offset={LISTED}"
        call.warn("NOTE", f"{total - LISTED} more documents were changed; get_diff lists them: {between}.")
    rows = diff.documents(ws.engine, found.diff, documents[:LISTED], texts=diff_limit if include_diff else 0)
    changes: dict[str, Any] = {
        "summary": outcome.summary(found.diff.changes),
        "documents": msgspec.to_builtins(rows),
        **({"diff_truncated": total > diff_limit} if include_diff else {}),
        **diff.collections_field(found),
    }
    return {
        "commit": msgspec.to_builtins(shown),
        "changes": changes,
        "branches": revisions.holding(ws.engine, shown.hash, branch_list.named_heads(ws, here)),
        "message": f"{shown.short_hash} {shown.message.partition(chr(10))[0]!r} changed {plural(total, 'document')}.",
    }


@tool("R")
def dolt_find(
    call: Call,
    *,
    query: Annotated[str, Given("the beginning of a hash, or a part of a message")],
    search_type: Literal["all", "hash", "message"] = "all",
    branch: Annotated[str, Given("default: all branches")] = "",
    limit: Annotated[int, Given(low=1, high=100, clamped=True)] = 10,
) -> dict[str, Any]:
    """Find commits of the knowledge base by hash or message."""
    here, ws = call.standing(), call.ws
    heads = {**branch_list.named_heads(ws, here), "HEAD": here.revision}
    if branch:
        heads = {branch: revparse.tool_branch_rev(ws, branch, here)}
    found = revisions.find(ws.engine, query, heads, by=("hash", "message") if search_type == "all" else (search_type,))
    total = len(found)
    return {
        "query": query,
        "results": msgspec.to_builtins([_found(each) for each in found[:limit]]),
        "total_found": total,
        "message": f"{plural(total, 'commit')} found.",
    }


def _found(match: revisions.CommitMatch) -> FoundCommit:
    fields = msgspec.structs.asdict(outcome.commit_summary(match.info))
    return FoundCommit(**fields, branch=match.branch, match_type=match.match)
