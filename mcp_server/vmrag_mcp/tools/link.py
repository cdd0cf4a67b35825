"""Which commit of the knowledge base belongs to a commit of the code."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from vmrag_link.ops import link
from vmrag_link.paths import PIN_NAME
from vmrag_mcp.arguments import Given
from vmrag_mcp.registry import tool
from vmrag_mcp.session import Call


@tool("VF")
def dolt_link_git(
    call: Call,
    *,
    git_repo_path: Annotated[str, Given("relative to the work tree")] = ".",
    git_commit: str = "HEAD",
    bidirectional: Annotated[bool, Given("write and stage link_file, too")] = False,
    link_file: Annotated[str, Given("relative to the repository root")] = PIN_NAME,
) -> dict[str, Any]:
    """Record which commit of the knowledge base belongs to a git commit; a second time replaces that."""
    report = link.link(
        call.ws,
        git_repo_path=call.ws.places.top / git_repo_path,
        git_commit=git_commit,
        bidirectional=bidirectional,
        link_file=link_file,
    )
    for each in report.warnings:
        call.warn(each.code, each.message)
    made, written = report.link, report.bidirectional
    message = f"Git commit {made.git_commit[:7]} is linked to {made.dolt_commit[:7]} of the knowledge base."
    if written.staged:
        message += f" {link_file} is staged: it will be part of the next git commit."
    return {"link": msgspec.to_builtins(made), "bidirectional": msgspec.to_builtins(written), "message": message}
