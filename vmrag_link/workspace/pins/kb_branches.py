"""List KB branches, choose the KB branch of each code branch, and warn about forgotten documents.

The mapping from code branches to KB branches is in git's configuration, so git renames and deletes
it with the code branch. If two work trees are on the same code branch, the second one gets a
separate KB branch. Documents are forgotten if their work tree or branch was removed, or if no
commit pins their revision. Each warning has the command that recovers them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from vmrag_link import locks
from vmrag_link.engines.base import Engine
from vmrag_link.engines.own_branches import ASIDE_PREFIX, RESERVED_PREFIX, is_reserved
from vmrag_link.errors import BranchExists, BranchInUse, NameInvalid, quoted
from vmrag_link.git import own_keys, work_trees
from vmrag_link.git.own_keys import KbMapping
from vmrag_link.models import KbBranch, Record
from vmrag_link.pin_values import REVISION
from vmrag_link.sync import lease
from vmrag_link.sync.target import Target
from vmrag_link.workspace import Workspace

_LIKE_A_HASH = f"(?i){REVISION}"
"""Names that this or another engine takes for a revision."""

_LIKE_A_REF = ("refs/", "origin/")
"""Prefixes of git refs and of the remote's branches."""


class BranchRow(Record, frozen=True):
    """A KB branch."""

    name: str
    revision: str
    dirty: bool
    code_branch: str | None
    """The code branch that writes its documents here; None if no code branch does."""
    current: bool
    """True for HEAD's KB branch."""


class BranchesReport(Record, frozen=True):
    """The result of `vmrag branch`."""

    branches: list[BranchRow]


def list_branches(ws: Workspace) -> BranchesReport:
    """Return all KB branches, and the branches of stashed documents.

    Other branches with reserved names are left out.
    """
    code_branches = own_keys.read_kb_owners(ws.places)
    current = ws.read_trigger().branch
    rows = []
    for branch in ws.engine.list_branches():
        if branch.name.startswith(RESERVED_PREFIX) and not branch.name.startswith(ASIDE_PREFIX):
            continue
        code_branch = code_branches.get(branch.name)
        is_current = code_branch is not None and code_branch == current
        rows.append(BranchRow(branch.name, branch.head, branch.dirty, code_branch, is_current))
    return BranchesReport(rows)


def prepare_branch(ws: Workspace, target: Target) -> str:
    """Return the name of the KB branch to which this work tree writes, and record the mapping.

    The first write creates the KB branch.
    """
    code = target.trigger.branch
    assert code is not None  # noqa: S101  `require_writable` refuses a detached HEAD
    if target.kb_branch:
        return target.kb_branch.name
    # Two work trees must not choose names that the engine treats as equal, such as Topic and
    # topic.
    is_separate = target.in_use_by is not None
    with locks.hold_exclusive(ws.places.mapping_lock, purpose="name a KB branch", timeout=ws.lock_timeout):
        mapped = own_keys.find_kb_branch(ws.places, code, of_tree=is_separate)
        used_names = {kb.lower() for kb in own_keys.read_kb_owners(ws.places) if kb != mapped}
        if mapped and mapped.lower() not in used_names and ws.engine.is_legal_branch_name(mapped):
            return mapped
        if is_separate:
            used_names.add(code.lower())
        name = find_free_name(ws.engine, code, used_names)
        own_keys.set_kb_branch(ws.places, code, name, of_tree=is_separate)
    if target.in_use_by:
        ws.progress.note(lease.describe_shared(target.in_use_by, code, name))
    return name


def require_new(ws: Workspace, name: str) -> None:
    """Require that a new KB branch can have this name.

    Raises `NameInvalid`, `BranchExists`, and `BranchInUse` if the name is reserved for a code
    branch that has no KB branch yet.
    """
    reserved = name.lower().startswith(RESERVED_PREFIX)
    mistaken = re.fullmatch(_LIKE_A_HASH, name) or name.startswith(_LIKE_A_REF)
    if reserved or mistaken or not ws.engine.is_legal_branch_name(name):
        reason = (
            f"names with the prefix {RESERVED_PREFIX} are reserved"
            if reserved
            else "it looks like a hash or a ref, or has characters that are not allowed"
        )
        raise NameInvalid(
            f"invalid name of a KB branch {name[:80]!r}: {reason}.", hint="choose another name", branch=name
        )
    for branch in ws.engine.list_branches():
        if branch.name.lower() == name.lower():
            raise BranchExists(
                f"the KB branch {branch.name!r} already exists.",
                hint="run 'vmrag branch' to list the KB branches",
                branch=branch.name,
            )
    for kb, code in own_keys.read_kb_owners(ws.places).items():
        if kb.lower() == name.lower() and code != ws.read_trigger().branch:
            raise BranchInUse(
                f"the name {kb!r} is reserved for the code branch {code!r}.",
                hint="choose another name",
                branch=kb,
                holder=code,
            )


def find_free_name(engine: Engine, code: str, taken: set[str]) -> str:
    """Return a name for the KB branch of a code branch.

    This is the name of the code branch if it is valid and unused, otherwise `b/<slug>-<hash8>`.
    `taken`: names in lower case that cannot be used.
    """
    used = taken | {branch.name.lower() for branch in engine.list_branches()}
    is_free = engine.is_legal_branch_name(code) and code.lower() not in used
    is_confusing = code.lower().startswith(RESERVED_PREFIX) or re.fullmatch(_LIKE_A_HASH, code)
    if is_free and not is_confusing:
        return code
    slug = re.sub(r"[^a-z0-9]+", "-", code.lower()).strip("-")[:40] or "branch"
    for salt in range(len(used) + 1):
        digest = hashlib.sha256(f"{code}\0{salt}".encode(errors="surrogateescape")).hexdigest()[:8]
        name = f"b/{slug}-{digest}"
        if name not in used:
            return name
    raise AssertionError  # more names than branches were tried


_MAX_WARNINGS = 3


def list_active_mappings(ws: Workspace) -> list[KbMapping]:
    """Return the mappings whose code branch exists.

    A mapping of a single work tree is left out if the work tree no longer exists.
    """
    code_branches = work_trees.list_code_branches(ws.places)
    trees = {"", *map(own_keys.format_tree_key, work_trees.list_git_dirs(ws.places))}
    mappings = own_keys.list_kb_mappings(ws.places)
    return [mapping for mapping in mappings if mapping.code in code_branches and mapping.tree in trees]


def list_abandoned(ws: Workspace, target: Target) -> list[KbBranch]:
    """Return the KB branches with uncommitted documents to which no work tree writes.

    The code branch or the work tree was removed. Or this work tree writes to a separate KB branch,
    and the work tree that wrote to the other one has switched to another code branch.
    """
    dirty = _list_dirty_branches(ws, target)
    if not dirty:
        return []
    shared_code = target.trigger.branch if target.has_own_branch and not target.in_use_by else None
    active_names = {
        mapping.kb_branch for mapping in list_active_mappings(ws) if mapping.tree or mapping.code != shared_code
    }
    return [branch for branch in dirty if branch.name not in active_names]


def form_recovery_command(ws: Workspace, target: Target, branch: KbBranch) -> str:
    """Return the command that recovers the uncommitted documents of an abandoned branch.

    If the branch also has commits that the pin lacks, the command switches to it, because a merge
    would import them.
    """
    is_pinned = target.state == "pinned"
    can_merge = not ws.engine.shared and is_pinned and ws.engine.is_ancestor(branch.head, target.revision)
    return f"vmrag {'merge' if can_merge else 'branch --switch'} {quoted(branch.name)}"


def _list_dirty_branches(ws: Workspace, target: Target) -> list[KbBranch]:
    """Return the other KB branches with uncommitted documents.

    The list is empty on a shared server, because another repository may be writing there.
    """
    if ws.engine.shared:
        return []
    current_name = target.kb_branch.name if target.kb_branch else None
    return [
        branch
        for branch in ws.engine.list_branches()
        if branch.dirty and branch.name != current_name and not is_reserved(branch.name)
    ]


def list_branch_warnings(ws: Workspace, target: Target) -> Iterator[str]:
    """Yield warnings about forgotten documents: the first few, then the number of others."""
    warnings = [*_warn_uncommitted(ws, target), *_warn_unpinned(ws, target)]
    yield from warnings[:_MAX_WARNINGS]
    if len(warnings) > _MAX_WARNINGS:
        yield f"{len(warnings) - _MAX_WARNINGS} more branches have such documents; run 'vmrag branch' to list them"


def _warn_uncommitted(ws: Workspace, target: Target) -> Iterator[str]:
    """Yield a warning for each branch whose uncommitted documents no work tree shows."""
    dirty = _list_dirty_branches(ws, target)
    if not dirty:
        return
    abandoned_names = {branch.name for branch in list_abandoned(ws, target)}
    code_branches = own_keys.read_kb_owners(ws.places)
    checked_out = work_trees.list_checked_out(ws.places)
    for branch in dirty:
        subject = f"{branch.name!r} has uncommitted documents"
        if branch.name in abandoned_names:
            command = form_recovery_command(ws, target, branch)
            yield f"{subject}, but its branch or worktree no longer exists; run '{command}' to restore them"
        elif (code := code_branches[branch.name]) not in checked_out:
            yield f"{subject}, but no worktree has it; run 'git switch {quoted(code)}' to return to them"


def _warn_unpinned(ws: Workspace, target: Target) -> Iterator[str]:
    """Yield a warning for each branch that is not checked out and whose head no commit pins.

    The next work tree of the branch pins this head (`workspace.follow.recovery`).
    """
    code_branches = {kb: code for code, kb in own_keys.read_kb_branches(ws.places).items()}
    current_name = target.kb_branch.name if target.kb_branch else None
    others = {
        code_branches[branch.name]: branch
        for branch in ws.engine.list_branches()
        if branch.name in code_branches and branch.name != current_name
    }
    if not others:
        return
    from vmrag_link.workspace.pins import history_pins

    pins = history_pins.read_branch_pins(ws.places, others)
    ahead = {code: branch for code, branch in others.items() if code in pins and pins[code] != branch.head}
    unpinned = {code: branch for code, branch in ahead.items() if history_pins.is_unpinned(ws, pins[code], branch.head)}
    checked_out = work_trees.list_checked_out(ws.places) if unpinned else set()
    for code, branch in unpinned.items():
        if code not in checked_out:
            yield f"no commit of {code!r} pins revision {branch.head[:7]} of {branch.name!r}; run 'git switch {quoted(code)}' to pin it"
