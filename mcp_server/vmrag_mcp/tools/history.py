"""What the knowledge base was, and where it stands: status, branches, commits."""

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
from vmrag_mcp.registry import tool
from vmrag_mcp.session import Call
from vmrag_mcp.tools import diff
from vmrag_mcp.tools import history_results as results
from vmrag_mcp.tools.diff import ChangeEntry, Changes, Summary

LISTED = 1000
"""Documents of one commit, or uncommitted ones, that are named."""


@tool("RN", title="Knowledge base status")
def dolt_status(
    call: Call, *, verbose: Annotated[bool, Given("also list the uncommitted documents")] = False
) -> results.DoltStatusResult:
    """Show branch, commit, uncommitted documents and conflicts, and compare them with remote,
    index and pin. Call it before a commit, or if in_sync is false.
    """
    changes, remote = find_uncommitted(call), find_upstream(call.ws)
    problem = kb_status.probe_remote(call.ws, remote) if remote else ""
    if problem:
        call.warn("REMOTE_UNREACHABLE", problem)
    call.warn_of_push()
    status = status_result(call, changes, remote, connected=not problem)
    local = _local_changes(call, changes, verbose=verbose)
    return results.DoltStatusResult(**structs.asdict(status) | {"local_changes": local})


def find_uncommitted(call: Call) -> Changes:
    """Follows the pin first."""
    here = call.find_origin()
    return diff.find_changes(call.ws.engine, here.revision, here.at)


def status_result(
    call: Call, changes: Changes, remote: Upstream | None, *, connected: bool | None
) -> results.StatusResult:
    """`connected`: whether the remote answers, None where it was not asked."""
    ws, here = call.ws, call.find_origin()
    merge = conflict_rows.find_open_merge(ws)
    if merge and merge.problem:
        call.warn("NOTE", merge.problem)
    apart = kb_status.count_ahead_behind(ws, here, remote)
    return results.StatusResult(
        engine=ws.engine.name,
        branch=here.kb.branch,
        commit=results.CommitSummary.from_report(ws.engine.read_revision(here.revision)),
        remote=results.RemoteStatus(remote.name, remote.url, connected) if remote else None,
        local_changes=results.LocalChangesSummary(not changes.is_empty, Summary.from_report(changes.diff.changes)),
        sync_state=results.SyncState.from_report(apart),
        merge_in_progress=merge is not None,
        conflicts=list(merge.conflicts) if merge else [],
        index=kb_status.build_index_block(ws, here),
        link=kb_status.build_pin_status(ws, here),
        message=_status_message(here, changes, apart, merge),
    )


def _local_changes(call: Call, changes: Changes, *, verbose: bool) -> results.UncommittedDocuments:
    documents, summary = changes.diff.documents, Summary.from_report(changes.diff.changes)
    if not verbose:
        return results.UncommittedDocuments(not changes.is_empty, summary)
    # Each is named twice.
    room = call.behaviour.page_chars // 2
    listed = diff.build_entries(call.ws.engine, changes.diff, documents[:LISTED], characters=room)
    if more := len(documents) - len(listed):
        call.warn(
            "NOTE",
            f"{more} more documents are uncommitted{call.format_tail(f'get_diff lists them: offset={len(listed)}')}.",
        )
    return results.UncommittedDocuments(
        not changes.is_empty,
        summary,
        documents=[each.doc_id for each in listed],
        changes=[ChangeEntry.from_report(each) for each in listed],
    )


def _status_message(here: AnswerOrigin, changes: Changes, apart: AheadBehind, merge: OpenMerge | None) -> str:
    where = f"On {here.kb.branch!r}" if here.kb.branch else "On no branch"
    total = len(changes.diff.documents)
    parts = [f"{where} at {here.revision[:7]}", f"{plural(total, 'uncommitted document')}"]
    if changes.collections and not total:
        parts.append("a collection is changed")
    if apart.ahead or apart.behind:
        parts.append(f"{apart.ahead} ahead of and {apart.behind} behind the remote")
    if merge:
        parts.append(f"a merge is open with {plural(len(merge.conflicts), 'conflict')}")
    return f"{', '.join(parts)}."


@tool("RN", title="List branches")
def dolt_branches(
    call: Call,
    *,
    include_local: Annotated[bool, Given("false: only branches of the remote")] = True,
    filter: Annotated[str, Given("glob such as feature/*")] = "",  # noqa: A002  the clients' name
) -> results.DoltBranchesResult:
    """List the local and remote branches of the knowledge base."""
    found = branches.list_branches(call.ws, call.find_origin(), local=include_local, pattern=filter)
    if found.doubt:
        call.warn("STALE_REFS", f"The remote's branches are as of the last fetch: {found.doubt}")
    rows = [results.ListedBranch.from_report(branch) for branch in found.branches]
    return results.DoltBranchesResult(
        current_branch=found.current, branches=rows, total_count=len(rows), message=f"{plural(len(rows), 'branch')}."
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
    here, ws = call.find_origin(), call.ws
    wanted = made_between(_moment("since", since), _moment("until", until, end=True))
    start = revparse.resolve_tool_branch_rev(ws, branch, here) if branch else here.revision
    page = list_log(ws, start, limit=limit, offset=offset, matches=wanted)
    name = branch or here.kb.branch
    return results.DoltCommitsResult(
        branch=name,
        commits=[results.CommitWithStats.from_report(entry) for entry in page.entries],
        total_commits=page.total,
        has_more=offset + len(page.entries) < page.total,
        message=f"{len(page.entries)} of {page.total} commits{f' of {name}' if name else ''}.",
    )


def _moment(parameter: str, text: str, *, end: bool = False) -> dt.datetime | None:
    """As `clock.moment`; None for an empty text."""
    if not text:
        return None
    try:
        return clock.parse_time(text, end=end)
    except ValueError:
        raise UsageInvalid(
            f"{parameter} must be a time in ISO 8601, such as 2026-01-31 or 2026-01-31T12:00:00Z, not {text[:80]!r}.",
            hint=f"Send {parameter} as 2026-01-31.",
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
    here, ws = call.find_origin(), call.ws
    shown = results.CommitWithParent.from_report(read_info(ws.engine, revparse.resolve_tool_rev(ws, commit, here)))
    found = diff.find_changes(ws.engine, shown.parent, shown.revision)
    documents = found.diff.documents
    total = len(documents)
    rows = diff.build_entries(
        ws.engine,
        found.diff,
        documents[:LISTED],
        texts=diff_limit if include_diff else 0,
        characters=call.behaviour.page_chars,
    )
    if more := total - len(rows):
        between = f"from_ref={shown.parent}, to_ref={shown.revision}, offset={len(rows)}"
        call.warn("NOTE", f"{more} more documents were changed{call.format_tail(f'get_diff lists them: {between}')}.")
    changes = results.CommitChanges(
        summary=Summary.from_report(found.diff.changes),
        documents=[row.in_commit for row in rows],
        diff_truncated=total > min(diff_limit, len(rows)) if include_diff else UNSET,
        collections=list(found.collections) or UNSET,
    )
    return results.DoltShowResult(
        commit=shown,
        changes=changes,
        branches=revisions.list_holding_heads(ws.engine, shown.revision, branches.list_heads(ws, here)),
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
    here, ws = call.find_origin(), call.ws
    heads = {**branches.list_heads(ws, here), "HEAD": here.revision}
    if branch:
        heads = {branch: revparse.resolve_tool_branch_rev(ws, branch, here)}
    found = revisions.find_commits(
        ws.engine, query, heads, by=("hash", "message") if search_type == "all" else (search_type,)
    )
    total = len(found)
    return results.DoltFindResult(
        query=query,
        results=[results.CommitMatch.from_report(each) for each in found[:limit]],
        total_found=total,
        message=f"{plural(total, 'commit')} found.",
    )
