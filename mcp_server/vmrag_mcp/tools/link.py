"""Links between commits of the code and of the knowledge base."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from vmrag_link.errors import AccessDenied, UsageInvalid, quoted
from vmrag_link.ops.links import link
from vmrag_link.ops.links.link import Bidirectional, LinkBlock
from vmrag_link.paths import PIN_NAME
from vmrag_link.transport import address
from vmrag_mcp.arguments import Given, Ref
from vmrag_mcp.call import Call
from vmrag_mcp.registry import tool
from vmrag_mcp.results import DerivedRecord, ToolAnswer


class LinkedCommit(DerivedRecord, frozen=True):
    """A `LinkReport` without its warnings."""

    link: LinkBlock
    bidirectional: Bidirectional


@tool("VF", title="Link git commit")
def dolt_link_git(
    call: Call,
    *,
    git_repo_path: Annotated[str, Given("folder in the working tree")] = ".",
    git_commit: Ref = "HEAD",
    bidirectional: Annotated[bool, Given("also write and stage link_file")] = False,
    link_file: Annotated[str, Given("path of the link file, NAME.dolt-version")] = PIN_NAME,
) -> ToolAnswer[LinkedCommit]:
    """Link a git commit to the current commit of the knowledge base. Replaces an earlier link."""
    report = link.link(
        call.ws,
        git_repo_path=_require_allowed(call, git_repo_path),
        git_commit=git_commit,
        bidirectional=bidirectional,
        link_file=link_file,
    )
    for warning in report.warnings:
        call.warn(warning.code, warning.message)
    made, written = report.link, report.bidirectional
    message = f"Linked git commit {made.git_commit[:7]} to {made.dolt_commit[:7]} of the knowledge base."
    if written.staged:
        message += f" {link_file} is staged for the next git commit."
    return ToolAnswer(LinkedCommit.from_report(report), message=message)


def _require_allowed(call: Call, git_repo_path: str) -> Path:
    """Return the path of the repository to link.

    It must be in the work tree, or in a folder that this machine's user allows. A link file is
    written there, and git uses its configuration.
    """
    places = call.ws.places
    if "\0" in git_repo_path:
        raise UsageInvalid("the path contains a NUL character.", parameter="git_repo_path", value=git_repo_path)
    path = places.top / git_repo_path
    real = Path(os.path.realpath(path))  # accepts circular links
    if real.is_relative_to(os.path.realpath(places.top)) or address.is_below_root(places, path):
        return path
    raise AccessDenied(
        f"{git_repo_path!r} is outside the working tree.",
        hint=f"run 'git config --add {address.ROOTS_KEY} {quoted(real)}' to allow agents to use this folder",
        path=str(path),
    )
