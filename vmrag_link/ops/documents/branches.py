"""KB branches: the one that belongs to each code branch, and the list of all."""

from __future__ import annotations

import hashlib
import re

from vmrag_link import locks
from vmrag_link.engines.base import ASIDE_PREFIX, RESERVED_PREFIX, Engine
from vmrag_link.errors import BranchExists, BranchInUse, NameInvalid
from vmrag_link.git import plumbing
from vmrag_link.models import Record
from vmrag_link.pin_values import REVISION
from vmrag_link.sync import lease
from vmrag_link.sync.target import Target
from vmrag_link.workspace import Workspace

_LIKE_A_HASH = re.compile(REVISION, re.IGNORECASE)
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


def branches(ws: Workspace) -> BranchesReport:
    """All KB branches, those of documents that were set aside included; no other reserved ones."""
    mapped = plumbing.kb_owners(ws.places)
    current = ws.trigger().branch
    rows = [
        BranchRow(each.name, each.head, each.dirty, mapped.get(each.name), mapped.get(each.name, "") == current)
        for each in ws.engine.branches()
        if not each.name.startswith(RESERVED_PREFIX) or each.name.startswith(ASIDE_PREFIX)
    ]
    return BranchesReport(rows)


def prepare(ws: Workspace, target: Target) -> str:
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
    with locks.exclusive(ws.places.locks / "mapping.lock", purpose="name a KB branch", timeout=ws.lock_timeout):
        mapped = plumbing.kb_branch_of(ws.places, code, own=own)
        taken = {kb.lower() for kb in plumbing.kb_owners(ws.places) if kb != mapped}
        if mapped and mapped.lower() not in taken and ws.engine.legal_branch_name(mapped):
            return mapped
        name = free_name(ws.engine, code, taken | ({code.lower()} if own else set()))
        plumbing.set_kb_branch(ws.places, code, name, own=own)
    if target.in_use_by:
        ws.progress.note(lease.shared(target.in_use_by, code, name))
    return name


def require_new(ws: Workspace, name: str) -> None:
    """Check that a KB branch may be made under this name.

    Raises `NameInvalid`, `BranchExists`, and `BranchInUse` for a name that is kept for a code
    branch without a KB branch yet.
    """
    reserved = name.lower().startswith(RESERVED_PREFIX)
    mistaken = _LIKE_A_HASH.fullmatch(name) or name.startswith(_LIKE_A_REF)
    if reserved or mistaken or not ws.engine.legal_branch_name(name):
        why = (
            f"names that begin with {RESERVED_PREFIX} are reserved"
            if reserved
            else "it would be taken for something else"
        )
        raise NameInvalid(
            f"A KB branch cannot be called {name[:80]!r}: {why}.", hint="Choose another name.", branch=name
        )
    for each in ws.engine.branches():
        if each.name.lower() == name.lower():
            raise BranchExists(
                f"The knowledge base has a branch {each.name!r} already.", hint="vmrag branch", branch=each.name
            )
    for kb, code in plumbing.kb_owners(ws.places).items():
        if kb.lower() == name.lower() and code != ws.trigger().branch:
            raise BranchInUse(
                f"The name {kb!r} is kept for the code branch {code!r}.",
                hint="Choose another name.",
                branch=kb,
                holder=code,
            )


def free_name(engine: Engine, code: str, taken: set[str]) -> str:
    """The code branch's own name if it is legal and free, else `b/<slug>-<hash8>`."""
    used = taken | {each.name.lower() for each in engine.branches()}
    reserved = code.lower().startswith(RESERVED_PREFIX)
    if (
        engine.legal_branch_name(code)
        and code.lower() not in used
        and not reserved
        and not _LIKE_A_HASH.fullmatch(code)
    ):
        return code
    slug = re.sub(r"[^a-z0-9]+", "-", code.lower()).strip("-")[:40] or "branch"
    for salt in range(len(used) + 1):
        digest = hashlib.sha256(f"{code}\0{salt}".encode(errors="surrogateescape")).hexdigest()[:8]
        name = f"b/{slug}-{digest}"
        if name not in used:
            return name
    raise AssertionError  # more names than branches were tried
