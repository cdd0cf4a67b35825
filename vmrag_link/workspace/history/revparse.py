"""Resolve the name of a revision, in the same order for the command line and tools.

1. the full hash of a revision
2. a git ref: the revision that it pins
3. a KB branch
4. a KB branch of a remote as last fetched, `origin/x`
5. the first characters of a revision's hash

If a KB branch has the name of a git ref and is at another revision, a warning is printed. If a
remote's branch contains the pin of the git ref, it was fetched later and is used, because its
revision has no other name.

On the command line `HEAD` and `~n` refer to git. In the tools they refer to the knowledge base, as
the specification of the tools demands. In a tool a KB branch also has priority over a git ref,
because tools commit to it, and it moves before git commits its pin. A branch that only a remote has
is used last.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator

from vmrag_link import pin as pins
from vmrag_link.engines.own_branches import is_reserved
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

HEAD = "HEAD"
WORKING = "WORKING"
"""The name of the work tree with its uncommitted documents."""

MIN_PREFIX_CHARACTERS = 4
MAX_LISTED_CANDIDATES = 20
"""Maximum number of revisions that an error for an ambiguous prefix lists."""

_REF_AND_NAME = re.compile(r"(?P<ref>(?:\{[^{}]*+\}|[^:])++):(?P<name>.+)", re.DOTALL)
_STEPS = re.compile(r"(?P<name>.+?)(?P<steps>(?:~\d{0,9}|\^)+)", re.DOTALL)
_PREFIX = re.compile(r"[0-9a-z]+")
_HASH_CHARACTERS = 12
"""Number of characters of a hash in a message. They must be enough to find the revision."""


def separate_ref(name: str) -> tuple[str, str] | None:
    """Return REF and NAME of `REF:NAME`; None for a name without a ref.

    A ref has no colon outside of braces (`HEAD@{10:00}`), so it ends at the first such colon.
    """
    match = _REF_AND_NAME.fullmatch(name)
    return (match["ref"], match["name"]) if match else None


# -- the command line


def resolve_rev(ws: Workspace, name: str) -> str:
    """Return the revision that a name on the command line means.

    Any git expression is a git ref. A missing pinned revision is fetched. Raises
    `GitReferenceMissing` for an unknown name. Raises `PinMissing`, `PinMalformed` or
    `PinRevisionMissing` for a git ref without a usable pin, and `RevisionAmbiguous` for a prefix of
    several revisions.
    """
    try:
        return _look_up(ws, name, lambda: lazy_fetch.pinned_at(ws, name))
    except GitReferenceMissing as error:
        raise GitReferenceMissing(
            f"{name!r} is neither a git ref nor a revision or branch of the knowledge base.",
            hint="run 'vmrag branch' to list the KB branches, or 'vmrag log' to list the revisions",
            ref=name,
        ) from error


# -- the tools


def resolve_tool_at(ws: Workspace, name: str, origin: AnswerOrigin | None = None) -> At:
    """Return the revision that a name in a tool means, or the KB branch for `WORKING`.

    `WORKING` is the work tree with its uncommitted documents. Raises the errors of
    `resolve_tool_rev`.
    """
    if name == WORKING:
        return origin.at if origin else ws.locate_documents()
    return resolve_tool_rev(ws, name, origin)


def resolve_tool_rev(ws: Workspace, name: str, origin: AnswerOrigin | None = None) -> str:
    """Return the revision that a name in a tool means.

    `HEAD` is the revision of the workspace. `~n` and `^` follow first parents in the knowledge
    base. For git, only names of refs and full hashes are allowed. `origin`: the origin of an answer
    that the tool has already read. Nothing is fetched. Raises `RevisionMissing`,
    `RevisionAmbiguous`, and `PinMalformed` for a git ref.
    """
    match = _STEPS.fullmatch(name)
    base = match["name"] if match else name
    try:
        if base != HEAD:
            revision = _look_up_for_tool(ws, base)
        elif origin:
            revision = origin.revision
        else:
            revision = ws.require_stored_revision()
    except GitReferenceMissing:
        raise _no_commit(name) from None
    except PinMissing as error:
        if base == HEAD:
            raise
        raise RevisionMissing(error.message, hint="run 'vmrag log' to list the revisions", revision=name) from None
    for step in re.findall(r"[~^](\d*)", match["steps"]) if match else ():
        revision = _find_ancestor(ws, revision, int(step or 1), name)
    return revision


def resolve_tool_branch_rev(ws: Workspace, name: str, origin: AnswerOrigin | None = None) -> str:
    """Return the revision that a branch parameter of a tool means. Raises `BranchMissing`."""
    try:
        return resolve_tool_rev(ws, name, origin)
    except RevisionAmbiguous:
        raise
    except RevisionMissing as error:
        raise no_branch(ws, name) from error


def find_tool_branch(ws: Workspace, name: str) -> KbBranch | None:
    """Return the KB branch that a tool's parameter names, or None.

    If a git ref of the same name pins another revision, print a warning.
    """
    branch = _find_kb_branch(ws, name)
    if branch:
        with contextlib.suppress(GitReferenceMissing, PinError, RevisionMissing):
            pinned = _read_local_pin(ws, name)
            if pinned != branch.head:
                ws.progress.note(
                    f"{name!r} is the KB branch, at {branch.head[:_HASH_CHARACTERS]}; the git ref of that name pins "
                    f"{pinned[:_HASH_CHARACTERS]} (to use it, write that hash)."
                )
    return branch


def find_remote_only(ws: Workspace, name: str) -> str | None:
    """Return the head of a remote's branch of this name as of the last fetch, or None."""
    remote_names = dict.fromkeys(("origin", *remotes.list_remotes(ws.places)))
    heads = (find_remote_head(ws, f"{remote}/{name}") for remote in remote_names)
    return next(filter(None, heads), None)


def _look_up_for_tool(ws: Workspace, name: str) -> str:
    """Return the revision of a name, in the order for tools."""
    if branch := find_tool_branch(ws, name):
        return branch.head
    try:
        return _look_up(ws, name, lambda: _read_local_pin(ws, name))
    except (GitReferenceMissing, PinMissing):
        if head := find_remote_only(ws, name):
            return head
        raise


def no_branch(ws: Workspace, name: str) -> BranchMissing:
    """Return the error for a missing KB branch."""
    names = [branch.name for branch in ws.engine.list_branches() if not is_reserved(branch.name)]
    similar = nearest(name, names)
    return BranchMissing(
        f"no such KB branch {name[:80]!r}." + (f" Did you mean {similar!r}?" if similar else ""),
        hint="run 'vmrag branch' to list them",
        branch=name,
        branches=names,
    )


def _read_local_pin(ws: Workspace, name: str) -> str:
    """Return the revision that a git ref or a full hash pins. Nothing is fetched.

    Raises `RevisionMissing` and `GitReferenceMissing`.
    """
    for ref in _list_git_refs(name):
        try:
            revision = lazy_fetch.pin_at(ws, ref, shown=name, limit=pins.MAX_BYTES).dolt_commit
        except GitReferenceMissing:
            continue
        if not ws.engine.has_revision(revision):
            raise RevisionMissing(
                f"{name} pins revision {revision}, which is not in this knowledge base.",
                hint="run 'vmrag fetch' to fetch the revision",
                revision=revision,
            )
        return revision
    raise GitReferenceMissing(f"no such git ref {name[:80]!r}.", ref=name)


def _list_git_refs(name: str) -> tuple[str, ...]:
    """Return the full names of the git refs that a name may mean.

    A prefix of a hash belongs to the knowledge base, never to git.
    """
    if re.fullmatch(COMMIT_NAME, name) or name.startswith("refs/"):
        return (name,)
    return tuple(f"refs/{kind}/{name}" for kind in ("tags", "heads", "remotes"))


def _find_ancestor(ws: Workspace, start: str, steps: int, name: str) -> str:
    """Follow first parents for some steps. Raises `RevisionMissing`. `name`: for its message."""
    revision = start
    for _ in range(steps):
        parent = revisions.find_parent(ws.engine, ws.engine.read_revision(revision))
        if parent is None:
            raise _no_commit(name)
        revision = parent
    return revision


def _no_commit(name: str) -> RevisionMissing:
    return RevisionMissing(
        f"the knowledge base has no commit {name[:80]!r}.", hint="run 'vmrag log' to list the revisions", revision=name
    )


# -- both


def _look_up(ws: Workspace, name: str, pinned: Callable[[], str]) -> str:
    """Return the revision of a name, in the order of this module.

    `pinned` returns the pin of the git ref. Its error is raised if nothing has the name.
    """
    if ws.engine.has_revision(name):
        return name
    branch = _find_kb_branch(ws, name)
    head = branch.head if branch else find_remote_head(ws, name)
    try:
        revision = pinned()
    except (GitReferenceMissing, PinMissing):
        if match := head or _find_by_prefix(ws, name):
            return match
        raise
    if head is None or head == revision:
        return revision
    if branch is None and ws.engine.is_ancestor(revision, head):
        ws.progress.note(
            f"{name!r} is the KB branch as last fetched, at {head[:_HASH_CHARACTERS]}; the git ref of that name pins the "
            f"older {revision[:_HASH_CHARACTERS]} (to use it, write that hash)."
        )
        return head
    ws.progress.note(
        f"{name!r} is the git ref, which pins {revision[:_HASH_CHARACTERS]}; the KB branch of that name is at "
        f"{head[:_HASH_CHARACTERS]} (to use it, write that hash)."
    )
    return revision


def _find_kb_branch(ws: Workspace, name: str) -> KbBranch | None:
    return ws.engine.find_branch(name) if ws.engine.is_legal_branch_name(name) else None


def find_remote_head(ws: Workspace, name: str) -> str | None:
    """Return the head of `REMOTE/BRANCH` as of the last fetch, or None.

    The remote is a git remote, or `origin` for the pinned one.
    """
    from vmrag_link.workspace.remotes import destinations

    remote, _, branch = name.partition("/")
    if not branch or is_reserved(branch):
        return None
    remote_names = remotes.list_remotes(ws.places)
    # The name of a remote may also have slashes, so try the longest one first.
    matching = [remote_name for remote_name in remote_names if name.startswith(f"{remote_name}/")]
    for remote_name in sorted(matching, key=len, reverse=True):
        key = address.remote_address(ws.places, remote_name, ref=destinations.find_code_ref(ws)).key
        if head := ws.engine.remote_heads(key).get(name.removeprefix(f"{remote_name}/")):
            return head
    if matching or remote != "origin":
        return None
    heads = (ws.engine.remote_heads(pinned.key).get(branch) for pinned in _list_pinned_remotes(ws))
    return next(filter(None, heads), None)


def list_visible_heads(ws: Workspace, *, without: str = "") -> Iterator[str]:
    """Yield the heads that users see, except the branch `without`.

    These are the heads of branches and of remotes as last fetched, the revision that is read, and
    the revision of the index.
    """
    yield from (
        branch.head for branch in ws.engine.list_branches() if not is_reserved(branch.name) and branch.name != without
    )
    if ws.current_revision is not None:
        yield ws.current_revision
    if ws.binding is not None:
        yield ws.binding.revision
    for remote_address in _list_pinned_remotes(ws):
        yield from ws.engine.remote_heads(remote_address.key).values()


def _list_pinned_remotes(ws: Workspace) -> list[Address]:
    """Return the addresses of the remote in the pin or the settings.

    Return an empty list if the remote is unclear or untrusted, because nothing was fetched from it.
    """
    from vmrag_link.workspace.remotes import destinations

    try:
        return destinations.list_trusted_addresses(ws, destinations.read_stated_remote(ws))
    except RemoteError:
        return []


def _find_by_prefix(ws: Workspace, name: str) -> str | None:
    """Return the only revision whose hash has this prefix, or None.

    Revisions that only an anchor keeps are used if no other one matches. Raises
    `RevisionAmbiguous`.
    """
    if len(name) < MIN_PREFIX_CHARACTERS or not _PREFIX.fullmatch(name.lower()):
        return None
    for heads in (list(list_visible_heads(ws)), [branch.head for branch in ws.engine.list_branches()]):
        matches = sorted(parent for parent in ws.engine.map_parents(heads) if parent.startswith(name.lower()))
        if len(matches) > 1:
            raise RevisionAmbiguous(
                f"{len(matches)} revisions begin with {name!r}.",
                hint="use more characters of the hash",
                revision=name,
                candidates=matches[:MAX_LISTED_CANDIDATES],
            )
        if matches:
            return matches[0]
    return None
