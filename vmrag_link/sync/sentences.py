"""How a work tree and its KB branch stand to the pin, in sentences for a person."""

from __future__ import annotations

from vmrag_link.errors import quoted
from vmrag_link.models import KbBranch
from vmrag_link.sync.target import Target


def left_behind(target: Target) -> tuple[str, ...]:
    """What of HEAD's KB branch the pin does not show, with the command that brings it back."""
    branch = target.kb_branch
    if branch is None or target.attachment not in ("held", "behind"):
        return ()
    what = held(branch, target.revision) if target.attachment == "held" else unpinned(branch, target.revision)
    return (f"{what} To go back there: {way_back(branch)} (and here again: vmrag pin {target.revision})",)


def held(branch: KbBranch, pinned: str) -> str:
    return f"Uncommitted documents of {branch.name!r} were written on revision {branch.head[:7]}, while the pin names {pinned[:7]}."


def unpinned(branch: KbBranch, pinned: str) -> str:
    return f"KB branch {branch.name!r} is at {branch.head[:7]}, while the pin names {pinned[:7]}."


def way_back(branch: KbBranch) -> str:
    """The command after which the pin names the branch's head again."""
    return f"vmrag pin {branch.head}" if branch.dirty else "vmrag pin"


def left_revision(branch: KbBranch) -> str:
    """A reset is gone back on by a pin; a rebase that dropped knowledge is mended by a merge."""
    back = f"To go back: vmrag pin {branch.head}; to have what it holds here, too: vmrag merge {branch.head}"
    return f"{branch.name!r} left revision {branch.head[:7]}, which is kept. {back}"


def stay_behind(code_branch: str) -> str:
    there = quoted(code_branch)
    return f"uncommitted documents stay with {code_branch!r}; they are there again after: git switch {there}"
