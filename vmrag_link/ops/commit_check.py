"""What `pre-commit` and `pre-merge-commit` ask before git commits: is the pin that goes into the commit right?"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from vmrag_link import pin as pins
from vmrag_link.errors import PinMalformed
from vmrag_link.git import merging, plumbing
from vmrag_link.models import Record
from vmrag_link.ops import pin_rules
from vmrag_link.ops.commit import commit
from vmrag_link.paths import PIN_NAME
from vmrag_link.pin import Pin
from vmrag_link.workspace import Workspace

Code = Literal["PIN_MALFORMED", "PIN_NOT_STAGED", "PIN_REVISION_MISSING", "KNOWLEDGE_DROPPED", "UNCOMMITTED_CHANGES"]

MESSAGE = "Documents of the next code commit"
_PARTIAL = re.compile(r"next-index-\d+\.lock")


class Finding(Record, frozen=True):
    """`blocks`: git must not commit."""

    code: Code
    message: str
    hint: str
    blocks: bool = True


class CheckReport(Record, frozen=True):
    """`committed`: the revision that `hooks.on_dirty: commit` has made, pinned and staged."""

    findings: tuple[Finding, ...]
    committed: str | None = None

    @property
    def blocks(self) -> bool:
        return any(each.blocks for each in self.findings)


def check(ws: Workspace) -> CheckReport:
    """Look at the pin as the coming commit will have it, in `ws.index_file`: git gives a commit of some paths an index of its own.

    A commit that leaves the pin as it was is nobody's business but for what a merge drops and for uncommitted documents. Without a
    knowledge base only the pin's text can be looked at.
    """
    partial = _is_partial(ws.index_file)
    committed = _commit_documents(ws) if ws.initialized and not partial else None
    staged = merging.staged_pin(ws.places, index_file=ws.index_file)
    findings = _pin(ws, staged, partial=partial)
    if ws.initialized and not committed:
        findings += _uncommitted(ws)
    return CheckReport(tuple(findings), committed)


def _is_partial(index_file: Path | None) -> bool:
    """Whether git commits the paths that it was told, whatever else is staged: it knows what the user wants."""
    return index_file is not None and _PARTIAL.fullmatch(index_file.name) is not None


def _pin(ws: Workspace, staged: bytes | None, *, partial: bool) -> list[Finding]:
    parents = merging.coming_parents(ws.places)
    before = [plumbing.blob(ws.places, f"{parent}:{PIN_NAME}") for parent in parents]
    unchanged = staged == before[0] if before else staged is None
    found = plumbing.pin_bytes(ws.places)
    if unchanged and len(parents) < 2:  # noqa: PLR2004  no merge
        return [_unstaged(blocks=False)] if staged and found != staged and not partial else []
    if staged is None:
        return []
    try:
        pin = pins.parse(staged, source=f"the staged {PIN_NAME}")
    except PinMalformed as error:
        return [Finding("PIN_MALFORMED", error.message, error.hint)]
    findings = [] if unchanged or found == staged or partial else [_unstaged(blocks=True)]
    if not ws.initialized:
        return findings
    if not unchanged and not ws.engine.has_revision(pin.dolt_commit):
        message = f"The pin names revision {pin.dolt_commit[:12]}, which is not in this knowledge base."
        findings.append(Finding("PIN_REVISION_MISSING", message, "vmrag pin (pins what is here)"))
    elif len(parents) > 1:
        findings += _dropped(ws, pin, parents, before)
    return findings


def _unstaged(*, blocks: bool) -> Finding:
    """A commit of another pin than the one that answers here is a mistake; one of code alone may be meant."""
    message = f"The {PIN_NAME} of this work tree is not the one that goes into the commit."
    return Finding("PIN_NOT_STAGED", message, f"git add {PIN_NAME}", blocks)


def _dropped(ws: Workspace, pin: Pin, parents: list[str], before: list[bytes | None]) -> list[Finding]:
    sides = [revision for each in before if (revision := _revision(each))]
    bases = [plumbing.blob(ws.places, f"{base}:{PIN_NAME}") for base in merging.merge_bases(ws.places, parents)]
    known = {revision for each in bases if (revision := _revision(each))}
    return [
        Finding(
            "KNOWLEDGE_DROPPED",
            f"This merge drops knowledge: its pin {pin.dolt_commit[:12]} does not contain {side[:12]}, which one side pins.",
            "git commit --no-edit --no-verify && vmrag merge --repair HEAD (without the second, it is dropped)",
        )
        for side in pin_rules.dropped(ws.engine, pin.dolt_commit, bases=known, sides=sides)
    ]


def _revision(data: bytes | None) -> str | None:
    """None for a parent's pin that cannot be read: it says nothing about this commit."""
    try:
        return pins.parse(data).dolt_commit if data is not None else None
    except PinMalformed:
        return None


def _uncommitted(ws: Workspace) -> list[Finding]:
    target = ws.target()
    branch, blocks = target.kb_branch, ws.config.hooks.on_dirty == "block"
    if branch is None or not branch.dirty:
        return []
    if not blocks and target.attachment == "held" and ws.applied != target.trigger:
        return []  # they go along to a pin that has just moved, as in a merge: the sync after the commit says so
    message = f"Documents of {branch.name!r} are not committed: this commit does not pin them."
    hint = 'vmrag commit -m "What changed in the knowledge"'
    return [Finding("UNCOMMITTED_CHANGES", message, hint, blocks)]


def _commit_documents(ws: Workspace) -> str | None:
    """`hooks.on_dirty: commit`: pin the uncommitted documents with the code, in the very index that is committed."""
    if ws.config.hooks.on_dirty != "commit" or plumbing.busy(ws.places):
        return None
    branch = ws.kb_branch()
    return commit(ws, MESSAGE).revision if branch and branch.dirty else None
