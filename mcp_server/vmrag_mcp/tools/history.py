"""The state and history of the knowledge base: status, branches and commits."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Literal

from msgspec import UNSET, structs

from vmrag_link import clock
from vmrag_link.errors import UsageInvalid, plural
from vmrag_link.ops import branch_list as branches
from vmrag_link.ops.status import kb_status
from vmrag_link.workspace.commits import revisions
from vmrag_link.workspace.commits.revisions import AheadBehind
from vmrag_link.workspace.follow.provenance import AnswerOrigin
from vmrag_link.workspace.history import revparse
from vmrag_link.workspace.history.log import list_log, made_between, read_info
from vmrag_link.workspace.merge import conflict_rows
from vmrag_link.workspace.merge.conflict_rows import OpenMerge
from vmrag_link.workspace.remotes.destinations import Upstream, find_upstream
from vmrag_mcp.arguments import RESULTS, Given, Offset
from vmrag_mcp.call import Call
from vmrag_mcp.registry import tool
from vmrag_mcp.tools import diff
from vmrag_mcp.tools import history_results as results
from vmrag_mcp.tools.diff import ChangeEntry, Changes, Summary

MAX_LISTED_DOCUMENTS = 1000
"""Maximum number of listed documents of one commit, or of uncommitted documents."""


@tool("RN", title="Knowledge base status")
def dolt_status(
    call: Call, *, verbose: Annotated[bool, Given("also list the uncommitted documents")] = False
) -> results.DoltStatusResult:
    """Show branch, commit, uncommitted documents and conflicts, and compare them with remote,
    index and pin. Call it before a commit, or if in_sync is false.
    """
    changes = find_uncommitted(call)
    remote = find_upstream(call.ws)
    problem = kb_status.probe_remote(call.ws, remote) if remote else ""
    if problem:
        call.warn("REMOTE_UNREACHABLE", problem)
    call.warn_of_push()
    status = status_result(call, changes, remote, connected=not problem)
    local = _local_changes(call, changes, verbose=verbose)
    return results.DoltStatusResult(**structs.asdict(status) | {"local_changes": local})


def find_uncommitted(call: Call) -> Changes:
    """Follow the pin, and return the uncommitted changes."""
    origin = call.find_origin()
    return diff.find_changes(call.ws.engine, origin.revision, origin.at)


def status_result(
    call: Call, changes: Changes, remote: Upstream | None, *, connected: bool | None
) -> results.StatusResult:
    """Return the status.

    `connected`: whether the remote answers, or None if it was not contacted.
    """
    ws, origin = call.ws, call.find_origin()
    merge = conflict_rows.find_open_merge(ws)
    if merge and merge.problem:
        call.warn("NOTE", merge.problem)
    distance = kb_status.count_ahead_behind(ws, origin, remote)
    return results.StatusResult(
        engine=ws.engine.name,
        branch=origin.kb.branch,
        commit=results.CommitSummary.from_report(ws.engine.read_revision(origin.revision)),
        remote=results.RemoteStatus(remote.name, remote.url, connected) if remote else None,
        local_changes=results.LocalChangesSummary(not changes.is_empty, Summary.from_report(changes.diff.changes)),
        sync_state=results.SyncState.from_report(distance),
        merge_in_progress=merge is not None,
        conflicts=list(merge.conflicts) if merge else [],
        index=kb_status.build_index_block(ws, origin),
        link=kb_status.build_pin_status(ws, origin),
        message=_status_message(origin, changes, distance, merge),
    )


def _local_changes(call: Call, changes: Changes, *, verbose: bool) -> results.UncommittedDocuments:
    documents = changes.diff.documents
    summary = Summary.from_report(changes.diff.changes)
    if not verbose:
        return results.UncommittedDocuments(not changes.is_empty, summary)
    # The answer names each document twice.
    room = call.behaviour.page_chars // 2
    listed = diff.build_entries(call.ws.engine, changes.diff, documents[:MAX_LISTED_DOCUMENTS], characters=room)
    if more := len(documents) - len(listed):
        call.warn(
            "NOTE",
            f"{more} more documents are uncommitted{call.format_tail(f'get_diff lists them: offset={len(listed)}')}.",
        )
    return results.UncommittedDocuments(
        not changes.is_empty,
        summary,
        documents=[entry.doc_id for entry in listed],
        changes=[ChangeEntry.from_report(entry) for entry in listed],
    )


def _status_message(origin: AnswerOrigin, changes: Changes, distance: AheadBehind, merge: OpenMerge | None) -> str:
    branch = f"On {origin.kb.branch!r}" if origin.kb.branch else "Not on a branch"
    total = len(changes.diff.documents)
    parts = [f"{branch} at {origin.revision[:7]}", f"{plural(total, 'uncommitted document')}"]
    if changes.collections and not total:
        parts.append("a changed collection")
    if distance.ahead or distance.behind:
        parts.append(f"{distance.ahead} ahead of and {distance.behind} behind the remote")
    if merge:
        parts.append(f"a merge in progress with {plural(len(merge.conflicts), 'conflict')}")
    return f"{', '.join(parts)}."


@tool("RN", title="List branches")
def dolt_branches(
    call: Call,
    *,
    include_local: Annotated[bool, Given("false: only branches of the remote")] = True,
    filter: Annotated[str, Given("glob such as feature/*")] = "",  # noqa: A002  the clients' name
) -> results.DoltBranchesResult:
    """List the local and remote branches of the knowledge base."""
    listed = branches.list_branches(call.ws, call.find_origin(), local=include_local, pattern=filter)
    if listed.doubt:
        call.warn("STALE_REFS", f"The remote's branches are from the last fetch: {listed.doubt}")
    rows = [results.ListedBranch.from_report(branch) for branch in listed.branches]
    return results.DoltBranchesResult(
        current_branch=listed.current, branches=rows, total_count=len(rows), message=f"{plural(len(rows), 'branch')}."
    )


@tool("R", title="List commits")
def dolt_commits(
    call: Call,
    *,
    branch: Annotated[str, Given("branch, tag or commit; default: the current branch")] = "",
    limit: Annotated[int, Given(RESULTS, low=1, high=100)] = 20,
    offset: Offset = 0,
    since: Annotated[str, Given("first date, as 2026-01-31")] = "",
    until: Annotated[str, Given("last date")] = "",
) -> results.DoltCommitsResult:
    """List the commits of a branch, newest first, with author, message and numbers of changed
    documents.
    """
    origin, ws = call.find_origin(), call.ws
    is_in_range = made_between(_parse_time("since", since), _parse_time("until", until, end=True))
    start = revparse.resolve_tool_branch_rev(ws, branch, origin) if branch else origin.revision
    page = list_log(ws, start, limit=limit, offset=offset, matches=is_in_range)
    name = branch or origin.kb.branch
    return results.DoltCommitsResult(
        branch=name,
        commits=[results.CommitWithStats.from_report(entry) for entry in page.entries],
        total_commits=page.total,
        has_more=offset + len(page.entries) < page.total,
        message=f"{len(page.entries)} of {page.total} commits{f' of {name}' if name else ''}.",
    )


def _parse_time(parameter: str, text: str, *, end: bool = False) -> dt.datetime | None:
    """Return the time of a parameter; None for an empty text. Raises `UsageInvalid`."""
    if not text:
        return None
    try:
        return clock.parse_time(text, end=end)
    except ValueError:
        raise UsageInvalid(
            f"{parameter} must be a time in ISO 8601, such as 2026-01-31 or 2026-01-31T12:00:00Z, not {text[:80]!r}.",
            hint=f"send {parameter} as 2026-01-31",
            parameter=parameter,
            value=text,
        ) from None


@tool("R", title="Show commit")
def dolt_show(
    call: Call,
    *,
    commit: Annotated[str, Given("hash, branch, tag or HEAD~1")],
    include_diff: Annotated[bool, Given("also show the texts")] = False,
    diff_limit: Annotated[int, Given("maximum number of documents with texts", low=1, high=100, clamped=True)] = 10,
) -> results.DoltShowResult:
    """Show one commit: the documents that it changed and the branches that contain it."""
    origin, ws = call.find_origin(), call.ws
    shown = results.CommitWithParent.from_report(read_info(ws.engine, revparse.resolve_tool_rev(ws, commit, origin)))
    changed = diff.find_changes(ws.engine, shown.parent, shown.revision)
    documents = changed.diff.documents
    total = len(documents)
    rows = diff.build_entries(
        ws.engine,
        changed.diff,
        documents[:MAX_LISTED_DOCUMENTS],
        texts=diff_limit if include_diff else 0,
        characters=call.behaviour.page_chars,
    )
    if more := total - len(rows):
        between = f"from_ref={shown.parent}, to_ref={shown.revision}, offset={len(rows)}"
        call.warn("NOTE", f"{more} more documents were changed{call.format_tail(f'get_diff lists them: {between}')}.")
    changes = results.CommitChanges(
        summary=Summary.from_report(changed.diff.changes),
        documents=[row.in_commit for row in rows],
        diff_truncated=total > min(diff_limit, len(rows)) if include_diff else UNSET,
        collections=list(changed.collections) or UNSET,
    )
    return results.DoltShowResult(
        commit=shown,
        changes=changes,
        branches=revisions.list_holding_heads(ws.engine, shown.revision, branches.list_heads(ws, origin)),
        message=f"{shown.short} {shown.message.partition(chr(10))[0]!r} changed {plural(total, 'document')}.",
    )


@tool("R", title="Find commits")
def dolt_find(
    call: Call,
    *,
    query: Annotated[str, Given("start of a hash, or part of a message")],
    search_type: Annotated[Literal["all", "hash", "message"], Given("where to search")] = "all",
    branch: Annotated[str, Given("branch; default: all")] = "",
    limit: Annotated[int, Given(RESULTS, low=1, high=100, clamped=True)] = 10,
) -> results.DoltFindResult:
    """Find commits of the knowledge base by the start of a hash or by part of a message."""
    origin, ws = call.find_origin(), call.ws
    heads = {**branches.list_heads(ws, origin), "HEAD": origin.revision}
    if branch:
        heads = {branch: revparse.resolve_tool_branch_rev(ws, branch, origin)}
    matches = revisions.find_commits(
        ws.engine, query, heads, by=("hash", "message") if search_type == "all" else (search_type,)
    )
    total = len(matches)
    return results.DoltFindResult(
        query=query,
        results=[results.CommitMatch.from_report(match) for match in matches[:limit]],
        total_found=total,
        message=f"{plural(total, 'commit')} found.",
    )
