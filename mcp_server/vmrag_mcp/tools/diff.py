"""What differs between two places in the knowledge base."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from vmrag_link.errors import plural
from vmrag_link.ops.commits import diff
from vmrag_link.ops.commits.tables import TABLES
from vmrag_link.ops.history import revparse
from vmrag_mcp.arguments import Given
from vmrag_mcp.registry import tool
from vmrag_mcp.session import Call


@tool("R")
def get_diff(
    call: Call,
    *,
    from_ref: Annotated[str, Given("branch, tag, hash, HEAD~n, WORKING, origin/x")] = "HEAD",
    to_ref: str = "WORKING",
    table: Annotated[str, Given(f"{', '.join(TABLES)}, or a collection")] = "",
    include_content: bool = False,
    limit: Annotated[int, Given(low=1, high=1000, clamped=True)] = 100,
    offset: Annotated[int, Given(low=0)] = 0,
) -> dict[str, Any]:
    """Compare two commits, or a commit with the uncommitted documents: which documents and collections differ, and how."""
    here, ws = call.standing(), call.ws
    old, new = (revparse.tool_at(ws, name, here) for name in (from_ref, to_ref))
    found = diff.changed(ws.engine, old, new, table=table or None)
    rows = diff.shown(
        ws.engine,
        found,
        found.documents[offset:][:limit],
        texts=limit if include_content else 0,
        characters=call.behaviour.page_chars,
        tables=True,
    )
    total = found.summary.total
    fields = {
        "from_ref": from_ref,
        "to_ref": to_ref,
        "from_commit": _commit(from_ref, old),
        "to_commit": _commit(to_ref, new),
        "summary": msgspec.to_builtins(found.summary),
        "documents": msgspec.to_builtins(rows),
        "has_more": offset + len(rows) < total,
        "message": f"{plural(total, 'document')} of {to_ref} differ{'s' * (total == 1)} from {from_ref}.",
    }
    return fields | collections(found)


def collections(found: diff.Changed) -> dict[str, Any]:
    """The field with the collections that were themselves changed, if there is one."""
    return {"collections": msgspec.to_builtins(list(found.collections))} if found.collections else {}


def _commit(name: str, at: object) -> str | None:
    return at if isinstance(at, str) and name != revparse.WORKING else None
