"""`vmrag adopt`: take in the knowledge that a fork's code pins, after a check in quarantine.

The check asks of each row that a stranger wrote whether our own commands could have written it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import NamedTuple

from vmrag_link.documents import import_base
from vmrag_link.documents.chunking import require_safe_sizes, require_valid_sizes
from vmrag_link.embedding import registry
from vmrag_link.embedding.base import SERVICES
from vmrag_link.engines import migrated
from vmrag_link.engines.base import Engine
from vmrag_link.engines.limits import USUAL_LIMITS, Limits
from vmrag_link.engines.migrated import try_read_pin
from vmrag_link.errors import (
    ContentRefused,
    EmbeddingMismatch,
    GitReferenceMissing,
    KnowledgeRefused,
    NameInvalid,
    PinMissing,
    PinRevisionMissing,
    RemoteError,
    UsageInvalid,
    quoted,
)
from vmrag_link.git import history, plumbing, remotes, transfer
from vmrag_link.git.refs import BRANCHES
from vmrag_link.git.remotes import Peer
from vmrag_link.index.metadata import RESERVED_METADATA
from vmrag_link.models import Collection, Document, Project, Record, Row, content_hash, metadata_from_row
from vmrag_link.ops.push import publish_to
from vmrag_link.paths import PIN_NAME, Places
from vmrag_link.progress import FETCHING
from vmrag_link.settings import EmbeddingSettings
from vmrag_link.transport import address, connection, quarantine
from vmrag_link.transport.address import Address
from vmrag_link.transport.publish import PublishRequest
from vmrag_link.transport.quarantine import Quarantine
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import collections
from vmrag_link.workspace.follow.recovery import recover
from vmrag_link.workspace.remotes import destinations


class AdoptReport(Record, frozen=True):
    """`revision`: what the code `commit` pins.

    `pinned`: the revisions that were taken because commits pin them, newest first. `revisions`:
    their number with their ancestors. `missing`: pins of earlier commits that the fork lacks.
    `remote`: where the pinned revisions are reachable now (None: not asked); `pushed`: they were
    not before.
    """

    source: str
    commit: str
    revision: str
    pinned: tuple[str, ...]
    revisions: int
    missing: tuple[str, ...]
    remote: str | None
    pushed: bool


class _Adopted(NamedTuple):
    """The `pinned` revisions that came, those that the fork lacks, and how many came in all."""

    pinned: tuple[str, ...]
    missing: tuple[str, ...]
    revisions: int


def adopt(
    ws: Workspace,
    source: str,
    commit: str = "HEAD",
    *,
    start: Path | None = None,
    push: bool = True,
    ask: bool = True,
    limits: Limits = USUAL_LIMITS,
    services: Iterable[str] = (),
) -> AdoptReport:
    """Take what a commit pins, and what its ancestors pin that the base repository lacks.

    `source`: the fork, as `git fetch` takes it; a path counts from `start`. `commit`: one that is
    here, else a branch of the fork. `services`: further paid services that may embed documents of
    collections. `ask`: a person may be asked for a password.

    Everything that the knowledge base of the base repository does not reach is checked first; then
    it is anchored here and (`push`) kept reachable there. Raises `KnowledgeRefused`,
    `RemoteMissing`, `RemoteDamaged` (then nothing was taken), `PinMissing`, `PinMalformed`,
    `PinRevisionMissing`, `GitReferenceMissing`, and as `ops.publish.push.push`.
    """
    recover(ws)
    peer = _peer(ws, source, start or ws.places.top)._replace(may_ask=ask)
    base = _base(ws, source, peer, push=push)
    known = _accepted_heads(ws, base, ask=push)
    with quarantine.open_quarantine(ws.places, timeout=ws.lock_timeout) as room:
        where, found = _commit(ws, room, peer, commit)
        pinned = _pins(ws, where, found, base)
        taken = _take(ws, room, peer, pinned, known=known, limits=limits, services=frozenset(services))
    if pinned[0] in taken.missing:
        raise PinRevisionMissing(
            f"Commit {found[:12]} pins revision {pinned[0][:12]}, which {remotes.redact_url(source)} does not have either.",
            hint="Ask who made the commit to push its knowledge, too: vmrag push",
            revision=pinned[0],
        )
    places = address.list_push_targets(ws.places, base) if push and base else []
    done = [publish_to(ws, place, PublishRequest({}, taken.pinned)) for place in places]
    return AdoptReport(
        remotes.redact_url(source),
        found,
        pinned[0],
        taken.pinned,
        taken.revisions,
        taken.missing,
        remote=" and ".join(place.text for place in places) or None,
        pushed=any(not each.empty for each in done),
    )


# -- fork and base repository


def _peer(ws: Workspace, source: str, start: Path) -> Peer:
    """The fork, as git names it; it holds the knowledge base where the base repository does."""
    ref = destinations.find_code_ref(ws)
    if source in remotes.list_remotes(ws.places):
        return Peer(source, may_ask=True, ref=ref)
    if source.startswith("git+"):
        found = address.parse_url(source, engine=ws.engine.name, ask=True).peer
        assert found is not None  # noqa: S101  such a URL is git's
        return found
    path = start / source
    return Peer(str(path) if path.exists() else source, may_ask=True, ref=ref)


def _base(ws: Workspace, source: str, peer: Peer, *, push: bool) -> Address | None:
    """The repository that was forked. HEAD's branch and pin do not say: they may be the fork's."""
    accepted = ws.settings.read_accepted_remote()
    ref = destinations.find_own_ref(ws, accepted)
    if ref is None:
        return destinations.list_trusted_addresses(ws, accepted, ask=True)[0]
    with contextlib.suppress(RemoteError):
        for each in address.list_code_addresses(ws.places, None, ref=ref, ask=True):
            if peer.remote not in (each.text, remotes.read_url(ws.places, each.text)):
                return each
    if not push:
        return None
    raise UsageInvalid(
        f"There is no other git remote than {remotes.redact_url(source)[:80]!r} that its knowledge could go to.",
        hint="git remote add upstream URL (several: git config vmrag.remote NAME); to take it here only: "
        f"vmrag adopt --no-push {quoted(remotes.redact_url(source))}",
    )


def _accepted_heads(ws: Workspace, base: Address | None, *, ask: bool) -> list[str]:
    """The heads of the base repository's knowledge base: what they reach was accepted there."""
    if base is None:
        return []
    with connection.open_transport(ws.places, ws.engine, base, timeout=ws.lock_timeout) as there:
        if ask:
            there.fetch()
        return list(there.read_heads().values())


# -- what it pins


def _commit(ws: Workspace, room: Quarantine, peer: Peer, name: str) -> tuple[Places, str]:
    """The commit, and the repository that has it."""
    try:
        return ws.places, plumbing.resolve_commit(ws.places, name)
    except GitReferenceMissing as missing:
        ref = name if name.startswith("refs/") else BRANCHES + name
        if found := room.fetch_code(peer, ref) if plumbing.is_ref_name(ws.places, ref) else None:
            return room.places, found
        source = remotes.redact_url(peer.remote)
        raise GitReferenceMissing(
            f"{name[:80]!r} is no commit that is here, and no branch of {source}.",
            hint=f"git ls-remote --heads {quoted(source)}",
            **missing.details,
        ) from missing


def _pins(ws: Workspace, where: Places, commit: str, base: Address | None) -> list[str]:
    """What the commits pin that no branch of the base repository has; its own pin comes first."""
    own = next(iter(history.collect_pins(where, [commit])), None)
    if own is None:
        raise PinMissing(f"Commit {commit[:12]} pins no knowledge.", hint=f"git log --oneline -- {PIN_NAME}")
    without = remotes.list_tracked_commits(ws.places, base.text) if base and base.peer else []
    earlier = history.list_reachable_pins(where, [commit, *(f"^{each}" for each in without)])
    found = [
        migrated.read_pin(ws.places.kb, own, source=f"{commit[:12]}:{PIN_NAME}"),
        *(pin for data in earlier if (pin := try_read_pin(ws.places.kb, data))),
    ]
    return list(dict.fromkeys(pin.dolt_commit for pin in found))


# -- taking it


def _take(
    ws: Workspace,
    room: Quarantine,
    peer: Peer,
    pinned: list[str],
    *,
    known: list[str],
    limits: Limits,
    services: frozenset[str],
) -> _Adopted:
    """Check the revisions that the fork has and that are not here, copy them, and anchor them."""
    engine = ws.engine
    here = engine.map_parents(known)
    wanted = [each for each in pinned if each not in here]
    if not wanted:
        transfer.read_remote_ref(room.places, peer, peer.ref)  # a source that does not exist is an error all the same
        return _Adopted((), (), 0)
    with ws.progress.task(FETCHING, total=1) as task:
        theirs = room.fetch_knowledge(engine.name, peer, limits=limits)
        task.advance(1)
    sound = functools.partial(check_row, allowed=services, known=_services_in_use(engine, known))
    new = engine.vet_revisions(theirs, wanted, known_heads=known, into=room.vetted, limits=limits, sound=sound)
    came = [each for each in wanted if each in new]
    if came:
        _anchor(engine, room, came)
    return _Adopted(tuple(came), tuple(each for each in wanted if each not in new), len(new))


def _services_in_use(engine: Engine, heads: Iterable[str]) -> frozenset[ServiceUse]:
    """How the base repository's collections are embedded."""
    return list_services(
        row for head in heads if not engine.find_refusal(head) for row in engine.list_collections(head)
    )


def _anchor(engine: Engine, room: Quarantine, revisions: list[str]) -> None:
    with engine.write_lock("adopt knowledge"):
        try:
            engine.fetch(quarantine.QUARANTINE_KEY, f"file://{room.vetted}")
            for revision in revisions:
                engine.anchor_revision(revision, reason="adopted from a fork")
        finally:
            engine.forget_remote(quarantine.QUARANTINE_KEY)


ServiceUse = tuple[str, str, str]
"""A collection's name, its embedding function and model."""


def list_services(rows: Iterable[Collection]) -> frozenset[ServiceUse]:
    return frozenset((row.name, row.embedding_function, row.embedding_model) for row in rows)


def check_row(
    row: Row, *, allowed: AbstractSet[str] = frozenset(), known: AbstractSet[ServiceUse] = frozenset()
) -> None:
    """Check a row; raises `ContentRefused`, and `KnowledgeRefused` for an unexpected paid service.

    A paid service would embed the collection on the account of every reader. It is expected if it
    is `allowed`, or the collection is `known` to use it.

    Ollama is not among those: it runs at an address of the reader's own, and takes neither key nor
    money.
    """
    what = f"collection {row.name!r}" if isinstance(row, Collection) else f"document {'/'.join(row.key)}"
    if isinstance(row, Collection):
        _require_agreed(row, allowed, known)
    try:
        match row:
            case Collection():
                _collection(row)
            case Document():
                _document(row)
            case Project():
                collections.require_document_id(row.project_id)
                metadata_from_row(row.metadata)
    except (EmbeddingMismatch, NameInvalid, UsageInvalid, ValueError) as error:
        raise ContentRefused(f"{what}: {error}") from error


def _require_agreed(row: Collection, allowed: AbstractSet[str], known: AbstractSet[ServiceUse]) -> None:
    service = SERVICES.get(row.embedding_function)
    if service is None or service.key is None or row.embedding_function in allowed or list_services([row]) <= known:
        return
    raise KnowledgeRefused(
        f"Collection {row.name[:80]!a} would send its documents, and every query for it, to the paid service {row.embedding_function}, "
        "on the account of everybody who reads it. Nothing was taken.",
        hint=f"If that is agreed: vmrag adopt --allow-service {row.embedding_function} SOURCE COMMIT",
        collection=row.name,
        service=row.embedding_function,
    )


def _collection(row: Collection) -> None:
    collections.require_name(row.name)
    metadata_from_row(row.metadata)
    if row.embedding_function not in registry.MODEL_NAMES:
        raise ValueError(f"nobody here knows the embedding model {row.embedding_function!r}")
    registry.choose_stored_model(row, EmbeddingSettings())
    require_valid_sizes(row.chunking)
    require_safe_sizes(row.chunking)
    if row.import_base and (why := import_base.find_base_problem(row.import_base)):
        raise ValueError(f"its import base {why}")


def _document(row: Document) -> None:
    collections.require_name(row.collection)
    collections.require_document_id(row.doc_id)
    if row.content_hash != content_hash(row.content):
        raise ValueError("its content_hash is not that of its content")
    if used := RESERVED_METADATA.intersection(metadata_from_row(row.metadata)):
        raise ValueError(f"its metadata uses {', '.join(sorted(used))}, which the index needs for itself")
