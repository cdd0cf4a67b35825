"""What a work tree, a branch or a commit that is gone has left on its KB branch, with the command
that brings it back.
"""

from __future__ import annotations

from collections.abc import Iterator

from vmrag_link.engines.base import reserved
from vmrag_link.errors import quoted
from vmrag_link.git import plumbing, refs
from vmrag_link.git.configuration import Mapping
from vmrag_link.models import KbBranch
from vmrag_link.ops.pins import history_pins
from vmrag_link.sync.target import Target
from vmrag_link.workspace import Workspace

_NAMED = 3


def living(ws: Workspace) -> list[Mapping]:
    """The mappings whose code branch, and work tree if it is one's own, are there."""
    existing = refs.code_branches(ws.places)
    trees = {"", *map(plumbing.tree_key, refs.git_dirs(ws.places))}
    return [each for each in plumbing.kb_mappings(ws.places) if each.code in existing and each.tree in trees]


def abandoned(ws: Workspace, target: Target) -> list[KbBranch]:
    """KB branches with uncommitted documents that nobody writes on any more: their code branch or
    their work tree is gone, or this one writes on its own and the one that wrote there has left.
    """
    dirty = _dirty_elsewhere(ws, target)
    if not dirty:
        return []
    left = target.trigger.branch if target.own and not target.in_use_by else None
    known = {each.kb_branch for each in living(ws) if each.tree or each.code != left}
    return [each for each in dirty if each.name not in known]


def way_back(ws: Workspace, target: Target, left: KbBranch) -> str:
    """The command that brings an abandoned branch's uncommitted documents back. Where they stand on
    committed ones that are not here, they are looked at there: a merge would bring these, too.
    """
    here = not ws.engine.shared and target.state == "pinned" and ws.engine.is_ancestor(left.head, target.revision)
    return f"vmrag {'merge' if here else 'branch --switch'} {quoted(left.name)}"


def _dirty_elsewhere(ws: Workspace, target: Target) -> list[KbBranch]:
    """None on a shared server: there somebody else's repository may be writing them."""
    if ws.engine.shared:
        return []
    own = target.kb_branch.name if target.kb_branch else None
    return [each for each in ws.engine.branches() if each.dirty and each.name != own and not reserved(each.name)]


def lines(ws: Workspace, target: Target) -> Iterator[str]:
    """What waits in no work tree, for people: a line for each of the first few."""
    found = [*_uncommitted(ws, target), *_unpinned(ws, target)]
    yield from found[:_NAMED]
    if len(found) > _NAMED:
        yield f"{len(found) - _NAMED} more branches have such documents: vmrag branch, vmrag gc"


def _uncommitted(ws: Workspace, target: Target) -> Iterator[str]:
    dirty = _dirty_elsewhere(ws, target)
    if not dirty:
        return
    gone = {each.name for each in abandoned(ws, target)}
    codes, out = plumbing.kb_owners(ws.places), refs.checked_out(ws.places)
    for each in dirty:
        what = f"Uncommitted documents of {each.name!r}"
        if each.name in gone:
            yield f"{what}, whose branch or work tree is gone: {way_back(ws, target, each)}"
        elif codes[each.name] not in out:
            yield f"{what}, which is checked out nowhere: git switch {quoted(codes[each.name])}"


def _unpinned(ws: Workspace, target: Target) -> Iterator[str]:
    """Branches that are checked out nowhere, with a revision that no commit of git's ever pinned:
    the next work tree on them pins it (`ops.follow.recovery`).
    """
    codes = {kb: code for code, kb in plumbing.kb_branches(ws.places).items()}
    own = target.kb_branch.name if target.kb_branch else None
    heads = {codes[each.name]: each for each in ws.engine.branches() if each.name in codes and each.name != own}
    if not heads:
        return
    pins = history_pins.pinned_at(ws.places, heads)
    ahead = {code: each for code, each in heads.items() if code in pins and pins[code] != each.head}
    ahead = {code: each for code, each in ahead.items() if history_pins.is_unpinned(ws, pins[code], each.head)}
    out = refs.checked_out(ws.places) if ahead else set()
    for code, each in ahead.items():
        if code not in out:
            yield f"Revision {each.head[:7]} of {each.name!r} is in no commit of its code: git switch {quoted(code)}"
