"""KB branches: the one that belongs to each code branch, the list of all, and what a work tree, a
branch or a commit that is gone has left on its own, with the command that brings it back.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from vmrag_link import locks
from vmrag_link.engines.base import ASIDE_PREFIX, RESERVED_PREFIX, Engine, is_reserved
from vmrag_link.errors import BranchExists, BranchInUse, NameInvalid, quoted
from vmrag_link.git import plumbing, refs
from vmrag_link.git.configuration import KbMapping
from vmrag_link.models import KbBranch, Record
from vmrag_link.pin_values import REVISION
from vmrag_link.sync import lease
from vmrag_link.sync.target import Target
from vmrag_link.workspace import Workspace

_LIKE_A_HASH = f"(?i){REVISION}"
"""What this or another engine takes for a revision."""

_LIKE_A_REF = ("refs/", "origin/")
"""How references to git, and to the branches of the remote, begin."""


class BranchRow(Record, frozen=True):
    """A KB branch; `code_branch` writes its documents on it, None if no code branch does."""

    name: str
    revision: str
    dirty: bool
    code_branch: str | None
    current: bool


class BranchesReport(Record, frozen=True):
    branches: list[BranchRow]


def list_branches(ws: Workspace) -> BranchesReport:
    """All KB branches, those of documents that were set aside included; no other reserved ones."""
    mapped = plumbing.read_kb_owners(ws.places)
    current = ws.read_trigger().branch
    rows = [
        BranchRow(
            branch.name, branch.head, branch.dirty, mapped.get(branch.name), mapped.get(branch.name, "") == current
        )
        for branch in ws.engine.list_branches()
        if not branch.name.startswith(RESERVED_PREFIX) or branch.name.startswith(ASIDE_PREFIX)
    ]
    return BranchesReport(rows)


def prepare_branch(ws: Workspace, target: Target) -> str:
    """The name of the KB branch for HEAD's code branch, recorded in git config.

    The branch itself is made at the first write. git carries the mapping along when the code branch
    is renamed, and drops it with it.
    """
    code = target.trigger.branch
    assert code is not None  # noqa: S101  `writable` refuses a detached HEAD
    if target.kb_branch:
        return target.kb_branch.name
    # Two work trees at once must not choose names that the engine takes for the same: Topic and
    # topic.
    own = target.in_use_by is not None
    with locks.hold_exclusive(ws.places.locks / "mapping.lock", purpose="name a KB branch", timeout=ws.lock_timeout):
        mapped = plumbing.find_kb_branch(ws.places, code, of_tree=own)
        taken = {kb.lower() for kb in plumbing.read_kb_owners(ws.places) if kb != mapped}
        if mapped and mapped.lower() not in taken and ws.engine.is_legal_branch_name(mapped):
            return mapped
        name = find_free_name(ws.engine, code, taken | ({code.lower()} if own else set()))
        plumbing.set_kb_branch(ws.places, code, name, of_tree=own)
    if target.in_use_by:
        ws.progress.note(lease.describe_shared(target.in_use_by, code, name))
    return name


def require_new(ws: Workspace, name: str) -> None:
    """Check that a KB branch may be made under this name.

    Raises `NameInvalid`, `BranchExists`, and `BranchInUse` for a name that is kept for a code
    branch without a KB branch yet.
    """
    reserved = name.lower().startswith(RESERVED_PREFIX)
    mistaken = re.fullmatch(_LIKE_A_HASH, name) or name.startswith(_LIKE_A_REF)
    if reserved or mistaken or not ws.engine.is_legal_branch_name(name):
        why = (
            f"names that begin with {RESERVED_PREFIX} are reserved"
            if reserved
            else "it would be taken for something else"
        )
        raise NameInvalid(
            f"A KB branch cannot be called {name[:80]!r}: {why}.", hint="Choose another name.", branch=name
        )
    for branch in ws.engine.list_branches():
        if branch.name.lower() == name.lower():
            raise BranchExists(
                f"The knowledge base has a branch {branch.name!r} already.", hint="vmrag branch", branch=branch.name
            )
    for kb, code in plumbing.read_kb_owners(ws.places).items():
        if kb.lower() == name.lower() and code != ws.read_trigger().branch:
            raise BranchInUse(
                f"The name {kb!r} is kept for the code branch {code!r}.",
                hint="Choose another name.",
                branch=kb,
                holder=code,
            )


def find_free_name(engine: Engine, code: str, taken: set[str]) -> str:
    """The code branch's own name if it is legal and free, else `b/<slug>-<hash8>`."""
    used = taken | {branch.name.lower() for branch in engine.list_branches()}
    reserved = code.lower().startswith(RESERVED_PREFIX)
    if (
        engine.is_legal_branch_name(code)
        and code.lower() not in used
        and not reserved
        and not re.fullmatch(_LIKE_A_HASH, code)
    ):
        return code
    slug = re.sub(r"[^a-z0-9]+", "-", code.lower()).strip("-")[:40] or "branch"
    for salt in range(len(used) + 1):
        digest = hashlib.sha256(f"{code}\0{salt}".encode(errors="surrogateescape")).hexdigest()[:8]
        name = f"b/{slug}-{digest}"
        if name not in used:
            return name
    raise AssertionError  # more names than branches were tried


_NAMED = 3


def list_active_mappings(ws: Workspace) -> list[KbMapping]:
    """The mappings whose code branch, and work tree if it is one's own, are there."""
    existing = refs.list_code_branches(ws.places)
    trees = {"", *map(plumbing.format_tree_key, refs.list_git_dirs(ws.places))}
    return [
        kb_mapping
        for kb_mapping in plumbing.list_kb_mappings(ws.places)
        if kb_mapping.code in existing and kb_mapping.tree in trees
    ]


def list_abandoned(ws: Workspace, target: Target) -> list[KbBranch]:
    """KB branches with uncommitted documents that nobody writes on any more: their code branch or
    their work tree is gone, or this one writes on its own and the one that wrote there has left.
    """
    dirty = _dirty_elsewhere(ws, target)
    if not dirty:
        return []
    left = target.trigger.branch if target.has_own_branch and not target.in_use_by else None
    known = {each.kb_branch for each in list_active_mappings(ws) if each.tree or each.code != left}
    return [each for each in dirty if each.name not in known]


def form_recovery_command(ws: Workspace, target: Target, left: KbBranch) -> str:
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
    return [
        branch
        for branch in ws.engine.list_branches()
        if branch.dirty and branch.name != own and not is_reserved(branch.name)
    ]


def list_branch_warnings(ws: Workspace, target: Target) -> Iterator[str]:
    """What waits in no work tree, for people: a line for each of the first few."""
    found = [*_uncommitted(ws, target), *_unpinned(ws, target)]
    yield from found[:_NAMED]
    if len(found) > _NAMED:
        yield f"{len(found) - _NAMED} more branches have such documents: vmrag branch, vmrag gc"


def _uncommitted(ws: Workspace, target: Target) -> Iterator[str]:
    dirty = _dirty_elsewhere(ws, target)
    if not dirty:
        return
    gone = {each.name for each in list_abandoned(ws, target)}
    codes, out = plumbing.read_kb_owners(ws.places), refs.list_checked_out(ws.places)
    for each in dirty:
        what = f"Uncommitted documents of {each.name!r}"
        if each.name in gone:
            yield f"{what}, whose branch or work tree is gone: {form_recovery_command(ws, target, each)}"
        elif codes[each.name] not in out:
            yield f"{what}, which is checked out nowhere: git switch {quoted(codes[each.name])}"


def _unpinned(ws: Workspace, target: Target) -> Iterator[str]:
    """Branches that are checked out nowhere, with a revision that no commit of git's ever pinned:
    the next work tree on them pins it (`ops.follow.recovery`).
    """
    codes = {kb: code for code, kb in plumbing.read_kb_branches(ws.places).items()}
    own = target.kb_branch.name if target.kb_branch else None
    heads = {
        codes[branch.name]: branch
        for branch in ws.engine.list_branches()
        if branch.name in codes and branch.name != own
    }
    if not heads:
        return
    from vmrag_link.workspace.pins import history_pins

    pins = history_pins.read_branch_pins(ws.places, heads)
    ahead = {code: head for code, head in heads.items() if code in pins and pins[code] != head.head}
    ahead = {code: each for code, each in ahead.items() if history_pins.is_unpinned(ws, pins[code], each.head)}
    out = refs.list_checked_out(ws.places) if ahead else set()
    for code, each in ahead.items():
        if code not in out:
            yield f"Revision {each.head[:7]} of {each.name!r} is in no commit of its code: git switch {quoted(code)}"
