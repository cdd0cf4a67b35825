"""Which revision of the knowledge base a name means, in one order for the command line and tools.

1. the full hash of a revision;
2. a git ref: the revision that it pins, because the pin is the head;
3. a KB branch;
4. a KB branch of a remote as last fetched, `origin/x`;
5. the first characters of a revision's hash.

A KB branch with the name of a git ref is named in a warning if it stands elsewhere. A remote's
branch that contains what git's pins was fetched later, and is taken then: what a fetch brought
has no other name.

`HEAD` and `~n` belong to git on the command line, and to the knowledge base in the tools, as their
specification says. So do the names of branches: in a tool a KB branch goes before a git ref,
because tools commit on it, and it moves before git commits its pin. A branch that only a remote has
is found last.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator

from vmrag_link import pin as pins
from vmrag_link.engines.base import is_reserved
from vmrag_link.errors import (
    BranchMissing,
    GitReferenceMissing,
    PinError,
    PinMissing,
    RemoteError,
    RevisionAmbiguous,
    RevisionMissing,
    nearest,
)
from vmrag_link.git import remotes
from vmrag_link.git.refs import COMMIT_NAME
from vmrag_link.models import At, KbBranch
from vmrag_link.transport import address
from vmrag_link.transport.address import Address
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.commits import revisions
from vmrag_link.workspace.follow import lazy_fetch
from vmrag_link.workspace.follow.provenance import AnswerOrigin

HEAD, WORKING = "HEAD", "WORKING"
SHORTEST_HASH = 4
CANDIDATES = 20
"""How many of the revisions with an ambiguous prefix are named."""

_REF_AND_NAME = re.compile(r"(?P<ref>(?:\{[^{}]*+\}|[^:])++):(?P<name>.+)", re.DOTALL)
_STEPS = re.compile(r"(?P<name>.+?)(?P<steps>(?:~\d{0,9}|\^)+)", re.DOTALL)
_PREFIX = re.compile(r"[0-9a-z]+")
_SHOWN = 12
"""Characters of the hash by which a warning names a revision: it has to be found by them."""


def separate_ref(name: str) -> tuple[str, str] | None:
    """Return REF and NAME of `REF:NAME`; None for a name without a ref.

    A ref has no colon outside of braces (`HEAD@{10:00}`), so it ends at the first such colon.
    """
    match = _REF_AND_NAME.fullmatch(name)
    return (match["ref"], match["name"]) if match else None


# -- the command line


def resolve_at(ws: Workspace, name: str) -> At:
    """`WORKING`: the workspace with its uncommitted documents; else as `resolve_rev`."""
    return ws.locate_documents() if name == WORKING else resolve_rev(ws, name)


def resolve_rev(ws: Workspace, name: str) -> str:
    """A revision by its name on the command line, where any expression of git's is a git ref.

    A pinned revision that is not here is fetched. Raises `GitReferenceMissing` for a name that
    means nothing; `PinMissing`, `PinMalformed`, `PinRevisionMissing` for a git ref that leads
    nowhere; `RevisionAmbiguous` for a prefix of several.
    """
    try:
        return _lookup(ws, name, lambda: lazy_fetch.pinned_at(ws, name))
    except GitReferenceMissing as error:
        raise GitReferenceMissing(
            f"{name!r} is neither a git ref, nor a revision or branch of the knowledge base.",
            hint="git branch -a, vmrag branch, vmrag log",
            ref=name,
        ) from error


# -- the tools


def resolve_tool_at(ws: Workspace, name: str, here: AnswerOrigin | None = None) -> At:
    """`WORKING`: the workspace with its uncommitted documents; else as `tool_rev`."""
    if name == WORKING:
        return here.at if here else ws.locate_documents()
    return resolve_tool_rev(ws, name, here)


def resolve_tool_rev(ws: Workspace, name: str, here: AnswerOrigin | None = None) -> str:
    """A revision by its name in a tool.

    `HEAD` is where the workspace stands; `~n` and `^` are first parents in the knowledge base.

    Of git, the names of refs and full hashes count, and no other expressions. `here`: where the
    workspace stands, if known. Nothing is fetched. Raises `RevisionMissing`, `RevisionAmbiguous`,
    and `PinMalformed` of a git ref.
    """
    match = _STEPS.fullmatch(name)
    base = match["name"] if match else name
    try:
        found = _head(ws, here) if base == HEAD else _tool_lookup(ws, base)
    except GitReferenceMissing:
        raise _no_commit(name) from None
    except PinMissing as error:
        if base == HEAD:
            raise
        raise RevisionMissing(error.message, hint="vmrag log", revision=name) from None
    for step in re.findall(r"[~^](\d*)", match["steps"]) if match else ():
        found = _ancestor(ws, found, int(step or 1), name)
    return found


def resolve_tool_branch_rev(ws: Workspace, name: str, here: AnswerOrigin | None = None) -> str:
    """As `tool_rev`, for a parameter that names a branch. Raises `BranchMissing`."""
    try:
        return resolve_tool_rev(ws, name, here)
    except RevisionAmbiguous:
        raise
    except RevisionMissing as error:
        raise no_branch(ws, name) from error


def find_tool_branch(ws: Workspace, name: str) -> KbBranch | None:
    """The KB branch that a tool's parameter names. A git ref of that name that pins something else
    is named in a warning.
    """
    branch = _kb_branch(ws, name)
    if branch:
        with contextlib.suppress(GitReferenceMissing, PinError, RevisionMissing):
            pinned = _pinned_here(ws, name)
            if pinned != branch.head:
                ws.progress.note(
                    f"{name!r} is the branch of the knowledge base, at {branch.head[:_SHOWN]}; git's ref of that name pins "
                    f"{pinned[:_SHOWN]} (to mean it, write that hash)."
                )
    return branch


def find_remote_only(ws: Workspace, name: str) -> str | None:
    """The head of a remote's branch of that name, as of the last fetch."""
    there = dict.fromkeys(("origin", *remotes.list_remotes(ws.places)))
    return next((head for each in there if (head := find_remote_head(ws, f"{each}/{name}"))), None)


def _tool_lookup(ws: Workspace, name: str) -> str:
    if branch := find_tool_branch(ws, name):
        return branch.head
    try:
        return _lookup(ws, name, lambda: _pinned_here(ws, name))
    except (GitReferenceMissing, PinMissing):
        if head := find_remote_only(ws, name):
            return head
        raise


def no_branch(ws: Workspace, name: str) -> BranchMissing:
    there = [branch.name for branch in ws.engine.list_branches() if not is_reserved(branch.name)]
    near = nearest(name, there)
    return BranchMissing(
        f"The knowledge base has no branch {name[:80]!r}." + (f" Is it {near!r}?" if near else ""),
        hint="vmrag branch (lists them)",
        branch=name,
        branches=there,
    )


def _head(ws: Workspace, here: AnswerOrigin | None) -> str:
    return here.revision if here else ws.require_stored_revision()


def _pinned_here(ws: Workspace, name: str) -> str:
    """As `lazy_fetch.pinned_at`, of git's refs and full hashes.

    Nothing is fetched: raises `RevisionMissing`.
    """
    for ref in _git_refs(name):
        try:
            revision = lazy_fetch.pin_at(ws, ref, shown=name, limit=pins.MAX_BYTES).dolt_commit
        except GitReferenceMissing:
            continue
        if not ws.engine.has_revision(revision):
            raise RevisionMissing(
                f"{name} pins revision {revision}, which is not in this knowledge base.",
                hint="vmrag fetch",
                revision=revision,
            )
        return revision
    raise GitReferenceMissing(f"{name[:80]!r} is no ref of git's.", ref=name)


def _git_refs(name: str) -> tuple[str, ...]:
    """The refs that git may have under this name.

    The prefix of a hash is one of the knowledge base's, never of git's.
    """
    if re.fullmatch(COMMIT_NAME, name) or name.startswith("refs/"):
        return (name,)
    return tuple(f"refs/{kind}/{name}" for kind in ("tags", "heads", "remotes"))


def _ancestor(ws: Workspace, start: str, steps: int, name: str) -> str:
    found = start
    for _ in range(steps):
        parent = revisions.find_parent(ws.engine, ws.engine.read_revision(found))
        if parent is None:
            raise _no_commit(name)
        found = parent
    return found


def _no_commit(name: str) -> RevisionMissing:
    return RevisionMissing(f"The knowledge base has no commit {name[:80]!r}.", hint="vmrag log", revision=name)


# -- both


def _lookup(ws: Workspace, name: str, pinned: Callable[[], str]) -> str:
    """In the order above; `pinned` gives what git's ref of that name pins.

    Raises what it raises if nothing has the name.
    """
    if ws.engine.has_revision(name):
        return name
    branch = _kb_branch(ws, name)
    head = branch.head if branch else find_remote_head(ws, name)
    try:
        revision = pinned()
    except (GitReferenceMissing, PinMissing):
        if found := head or _by_prefix(ws, name):
            return found
        raise
    if head is None or head == revision:
        return revision
    if branch is None and ws.engine.is_ancestor(revision, head):
        ws.progress.note(
            f"{name!r} is the branch of the knowledge base, as last fetched, at {head[:_SHOWN]}; git's ref of that name pins the "
            f"older {revision[:_SHOWN]} (to mean it, write that hash)."
        )
        return head
    ws.progress.note(
        f"{name!r} is the git ref, which pins {revision[:_SHOWN]}; the branch of that name in the knowledge base is at "
        f"{head[:_SHOWN]} (to mean it, write that hash)."
    )
    return revision


def _kb_branch(ws: Workspace, name: str) -> KbBranch | None:
    return ws.engine.find_branch(name) if ws.engine.is_legal_branch_name(name) else None


def find_remote_head(ws: Workspace, name: str) -> str | None:
    """The head of `REMOTE/BRANCH` as of the last fetch.

    The remote is one of git's, or `origin` for the pinned one.
    """
    from vmrag_link.workspace.remotes import destinations

    remote, _, branch = name.partition("/")
    if not branch or is_reserved(branch):
        return None
    known = remotes.list_remotes(ws.places)
    # A remote's name may have slashes, too.
    for each in sorted((each for each in known if name.startswith(f"{each}/")), key=len, reverse=True):
        heads = ws.engine.remote_heads(address.remote_address(ws.places, each, ref=destinations.find_code_ref(ws)).key)
        if found := heads.get(name.removeprefix(f"{each}/")):
            return found
    if remote != "origin" or remote in known:
        return None
    return next((head for each in _pinned_remote(ws) if (head := ws.engine.remote_heads(each.key).get(branch))), None)


def list_visible_heads(ws: Workspace, *, without: str = "") -> Iterator[str]:
    """The heads that people see, but for the branch `without`.

    Those of branches and of remotes as last fetched, what is read, and what the index answers from.
    """
    yield from (
        branch.head for branch in ws.engine.list_branches() if not is_reserved(branch.name) and branch.name != without
    )
    if ws.current_revision is not None:
        yield ws.current_revision
    if ws.binding is not None:
        yield ws.binding.revision
    for each in _pinned_remote(ws):
        yield from ws.engine.remote_heads(each.key).values()


def _pinned_remote(ws: Workspace) -> list[Address]:
    """The addresses of the remote of pin or settings.

    None if it is unclear or not trusted: nothing was fetched from it then.
    """
    from vmrag_link.workspace.remotes import destinations

    try:
        return destinations.list_trusted_addresses(ws, destinations.read_stated_remote(ws))
    except RemoteError:
        return []


def _by_prefix(ws: Workspace, name: str) -> str | None:
    """The only revision whose hash begins so.

    One that only an anchor keeps counts where no other fits.
    """
    if len(name) < SHORTEST_HASH or not _PREFIX.fullmatch(name.lower()):
        return None
    for heads in (list(list_visible_heads(ws)), [branch.head for branch in ws.engine.list_branches()]):
        found = sorted(parent for parent in ws.engine.map_parents(heads) if parent.startswith(name.lower()))
        if len(found) > 1:
            raise RevisionAmbiguous(
                f"{len(found)} revisions begin with {name!r}.",
                hint="Write more of the hash.",
                revision=name,
                candidates=found[:CANDIDATES],
            )
        if found:
            return found[0]
    return None
