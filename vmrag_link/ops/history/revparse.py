"""What a tool calls a commit of the knowledge base: `HEAD`, `HEAD~2`, a hash or the beginning of one, a branch, `origin/x`, a tag.

The names are those of the knowledge base, and git's come last. On the command line it is the other way round (`ops.history.history.place`):
there the code is what people think of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from vmrag_link import pin as pins
from vmrag_link.engines.base import reserved
from vmrag_link.errors import BranchMissing, GitReferenceMissing, RemoteError, RevisionAmbiguous, RevisionMissing
from vmrag_link.git import plumbing, remotes
from vmrag_link.models import At
from vmrag_link.ops.commits import revisions
from vmrag_link.ops.follow.provenance import Standing
from vmrag_link.ops.remotes import destinations
from vmrag_link.paths import PIN_NAME
from vmrag_link.suggest import nearest
from vmrag_link.transport import address
from vmrag_link.transport.address import Address
from vmrag_link.workspace import Workspace

HEAD, WORKING = "HEAD", "WORKING"
SHORTEST_HASH = 4
CANDIDATES = 20
"""How many of the revisions that a beginning fits are named."""

_BACK = re.compile(r"(?P<name>.+?)(?P<steps>(?:~\d{0,9}|\^)+)", re.DOTALL)
_GIT_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_BEGINNING = re.compile(r"[0-9a-z]+")


def place(ws: Workspace, name: str, here: Standing | None = None) -> At:
    """`WORKING`: the workspace with its uncommitted documents; else as `revision`."""
    if name == WORKING:
        return here.at if here else ws.at()
    return revision(ws, name, here)


def revision(ws: Workspace, name: str, here: Standing | None = None) -> str:
    """In this order: `HEAD` (where the workspace stands), a full hash, a KB branch, one of a remote (`origin/x`) as last fetched,
    the first characters of a hash, a git tag, branch or full hash (the revision that it pins). Each may be followed by `~n`, `^`:
    first parents. No part of this is git's language of expressions: `HEAD@{1}` would be the code's.

    `here`: where the workspace is known to stand. Nothing is fetched. Raises `RevisionMissing`, `RevisionAmbiguous` for the
    beginning of several hashes, and `PinMalformed` of a git ref.
    """
    stepped = _BACK.fullmatch(name)
    found = _named(ws, stepped["name"] if stepped else name, here)
    if found is None:
        raise _unknown(name)
    for step in re.findall(r"[~^](\d*)", stepped["steps"]) if stepped else ():
        found = _back(ws, found, int(step or 1), name)
    return found


def branch_revision(ws: Workspace, name: str, here: Standing | None = None) -> str:
    """As `revision`, where a branch is meant but anything will do. Raises `BranchMissing`."""
    try:
        return revision(ws, name, here)
    except RevisionAmbiguous:
        raise
    except RevisionMissing as error:
        raise no_branch(ws, name) from error


def no_branch(ws: Workspace, name: str) -> BranchMissing:
    there = [each.name for each in ws.engine.branches() if not reserved(each.name)]
    near = nearest(name, there)
    return BranchMissing(
        f"The knowledge base has no branch {name[:80]!r}." + (f" Is it {near!r}?" if near else ""),
        hint="vmrag branch (lists them)",
        branch=name,
        branches=there,
    )


def remote_head(ws: Workspace, name: str) -> str | None:
    """Where `REMOTE/BRANCH` was when the remote was last asked; the remote is one of git's, or `origin` for where knowledge travels."""
    remote, _, branch = name.partition("/")
    if not branch or reserved(branch):
        return None
    known = remotes.names(ws.places)
    # A remote's name may have slashes, too.
    for each in sorted((each for each in known if name.startswith(f"{each}/")), key=len, reverse=True):
        heads = ws.engine.remote_heads(address.of_remote(ws.places, each).key)
        if found := heads.get(name.removeprefix(f"{each}/")):
            return found
    if remote != "origin" or remote in known:
        return None
    return next((head for each in _travels(ws) if (head := ws.engine.remote_heads(each.key).get(branch))), None)


def _named(ws: Workspace, name: str, here: Standing | None) -> str | None:
    if name == HEAD:
        return here.revision if here else ws.revision_here()
    if ws.engine.has_revision(name):
        return name
    branch = ws.engine.branch(name) if ws.engine.legal_branch_name(name) else None
    if branch:
        return branch.head
    return remote_head(ws, name) or _begun(ws, name) or _pinned(ws, name)


def _begun(ws: Workspace, name: str) -> str | None:
    """The only revision whose hash begins so. What nothing but an anchor leads to counts where nothing else fits."""
    if len(name) < SHORTEST_HASH or not _BEGINNING.fullmatch(name.lower()):
        return None
    for heads in (list(visible(ws)), [each.head for each in ws.engine.branches()]):
        found = sorted(each for each in ws.engine.parents(heads) if each.startswith(name.lower()))
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


def visible(ws: Workspace) -> Iterator[str]:
    """The heads that people see: of branches, of what is read, of the index that answers, and of remotes as last fetched."""
    yield from (each.head for each in ws.engine.branches() if not reserved(each.name))
    if ws.standing_revision is not None:
        yield ws.standing_revision
    if ws.binding is not None:
        yield ws.binding.revision
    for each in _travels(ws):
        yield from ws.engine.remote_heads(each.key).values()


def _travels(ws: Workspace) -> list[Address]:
    """Where the knowledge base travels to; nowhere if that is not clear, or not trusted: then nothing was fetched from there."""
    try:
        return destinations.named(ws, destinations.pinned_remote(ws) or ws.config.remote)
    except RemoteError:
        return []


def _pinned(ws: Workspace, name: str) -> str | None:
    for ref in _git_refs(name):
        try:
            data = plumbing.blob(ws.places, f"{plumbing.resolve(ws.places, ref)}:{PIN_NAME}", limit=pins.MAX_BYTES)
        except GitReferenceMissing:
            continue
        if data is None:
            raise RevisionMissing(f"{name} pins no knowledge.", hint="vmrag log", revision=name)
        found = pins.parse(data, source=f"{name}:{PIN_NAME}").dolt_commit
        if not ws.engine.has_revision(found):
            raise RevisionMissing(
                f"{name} pins revision {found}, which is not in this knowledge base.",
                hint="vmrag fetch",
                revision=found,
            )
        return found
    return None


def _git_refs(name: str) -> tuple[str, ...]:
    """What of git's may be called so. The beginning of a hash is one of the knowledge base's, never of git's."""
    if _GIT_HASH.fullmatch(name) or name.startswith("refs/"):
        return (name,)
    return tuple(f"refs/{kind}/{name}" for kind in ("tags", "heads", "remotes"))


def _back(ws: Workspace, start: str, steps: int, name: str) -> str:
    found = start
    for _ in range(steps):
        before = revisions.parent(ws.engine, ws.engine.info(found))
        if before is None:
            raise _unknown(name)
        found = before
    return found


def _unknown(name: str) -> RevisionMissing:
    return RevisionMissing(f"The knowledge base has no commit {name[:80]!r}.", hint="vmrag log", revision=name)
