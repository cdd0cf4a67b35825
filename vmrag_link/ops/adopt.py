"""`vmrag adopt`: import the documents that a fork's code pins, after a check.

A contributor pushes code and documents to a fork. A maintainer adopts the documents before the code
is merged into the base repository, which was forked. The fork is fetched into a temporary
repository, the quarantine. There, each new row must be one that vmrag's own commands could write.
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


class ServiceUse(NamedTuple):
    """How a collection is embedded."""

    collection: str
    embedding_function: str
    embedding_model: str


class AdoptReport(Record, frozen=True):
    """The result of `adopt`."""

    source: str
    commit: str
    revision: str
    """The revision that the code `commit` pins."""
    pinned: tuple[str, ...]
    """The imported revisions that commits pin, newest first."""
    revisions: int
    """Number of imported revisions, including ancestors."""
    missing: tuple[str, ...]
    """Revisions that earlier commits pin and the fork does not have."""
    remote: str | None
    """The remote that has the pinned revisions now; None without a push."""
    pushed: bool
    """True if the remote did not have them before."""


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
    """Import the revision that a commit pins, and those that its ancestors pin, as far as the base
    repository lacks them.

    * `source`: the fork, as `git fetch` takes it. A path is relative to `start`.
    * `commit`: a commit of this repository, or a branch of the fork.
    * `services`: further paid services that may embed documents of collections.
    * `ask`: git may ask for a password.

    Everything that the knowledge base of the base repository does not reach is checked first. Then
    it is anchored here and, with `push`, in the base repository. Raises `KnowledgeRefused`,
    `RemoteMissing` and `RemoteDamaged` (nothing was imported then), `PinMissing`, `PinMalformed`,
    `PinRevisionMissing`, `GitReferenceMissing`, and the errors of `push`.
    """
    recover(ws)
    peer = _find_fork(ws, source, start or ws.places.top)._replace(may_ask=ask)
    base = _find_base_repository(ws, source, peer, push=push)
    accepted_heads = _list_accepted_heads(ws, base, ask=push)
    with quarantine.open_quarantine(ws.places, timeout=ws.lock_timeout) as room:
        repository, commit_hash = _find_commit(ws, room, peer, commit)
        pinned = _list_pins(ws, repository, commit_hash, base)
        adopted = _import_revisions(
            ws, room, peer, pinned, accepted_heads=accepted_heads, limits=limits, services=frozenset(services)
        )
    if pinned[0] in adopted.missing:
        raise PinRevisionMissing(
            f"commit {commit_hash[:12]} pins the revision {pinned[0][:12]}, which {remotes.redact_url(source)} does not have either.",
            hint="run 'vmrag push' in the clone of the author of the commit",
            revision=pinned[0],
        )
    addresses = address.list_push_targets(ws.places, base) if push and base else []
    results = [publish_to(ws, target, PublishRequest({}, adopted.pinned)) for target in addresses]
    return AdoptReport(
        source=remotes.redact_url(source),
        commit=commit_hash,
        revision=pinned[0],
        pinned=adopted.pinned,
        revisions=adopted.revisions,
        missing=adopted.missing,
        remote=" and ".join(target.text for target in addresses) or None,
        pushed=any(not result.empty for result in results),
    )


def check_row(
    row: Row, *, allowed: AbstractSet[str] = frozenset(), expected: AbstractSet[ServiceUse] = frozenset()
) -> None:
    """Check a row of an untrusted knowledge base.

    Raises `ContentRefused`, and `KnowledgeRefused` for an unexpected paid service, which would
    embed the collection on the account of every reader. A service is expected if it is in
    `allowed`, or if `expected` contains it for this collection.

    Ollama is not a paid service: it runs at an address of the reader, and needs neither a key nor
    money.
    """
    label = f"collection {row.name!r}" if isinstance(row, Collection) else f"document {'/'.join(row.key)}"
    if isinstance(row, Collection):
        _check_service(row, allowed, expected)
    try:
        match row:
            case Collection():
                _check_collection(row)
            case Document():
                _check_document(row)
            case Project():
                collections.require_document_id(row.project_id)
                metadata_from_row(row.metadata)
    except (EmbeddingMismatch, NameInvalid, UsageInvalid, ValueError) as error:
        raise ContentRefused(f"{label}: {error}") from error


def _find_fork(ws: Workspace, source: str, start: Path) -> Peer:
    """Return the fork. It has the knowledge base at the same ref as the base repository."""
    ref = destinations.find_code_ref(ws)
    if source in remotes.list_remotes(ws.places):
        return Peer(source, may_ask=True, ref=ref)
    if source.startswith("git+"):
        peer = address.parse_url(source, engine=ws.engine.name, ask=True).peer
        assert peer is not None  # noqa: S101  such a URL names a git repository
        return peer
    path = start / source
    return Peer(str(path) if path.exists() else source, may_ask=True, ref=ref)


def _find_base_repository(ws: Workspace, source: str, peer: Peer, *, push: bool) -> Address | None:
    """Return the repository that was forked.

    HEAD's branch and pin do not tell, because they may be those of the fork.
    """
    accepted = ws.settings.read_accepted_remote()
    ref = destinations.find_own_ref(ws, accepted)
    if ref is None:
        return destinations.list_trusted_addresses(ws, accepted, ask=True)[0]
    with contextlib.suppress(RemoteError):
        for candidate in address.list_code_addresses(ws.places, None, ref=ref, ask=True):
            if peer.remote not in (candidate.text, remotes.read_url(ws.places, candidate.text)):
                return candidate
    if not push:
        return None
    raise UsageInvalid(
        f"no git remote except {remotes.redact_url(source)[:80]!r} to push the documents to.",
        hint=f"run 'git remote add upstream URL', or 'vmrag adopt --no-push {quoted(remotes.redact_url(source))}' "
        "to import without a push",
    )


def _list_accepted_heads(ws: Workspace, base: Address | None, *, ask: bool) -> list[str]:
    """Return the heads of the base repository's knowledge base. All that they reach is already
    accepted.
    """
    if base is None:
        return []
    with connection.open_transport(ws.places, ws.engine, base, timeout=ws.lock_timeout) as transport:
        if ask:
            transport.fetch()
        return list(transport.read_heads().values())


def _find_commit(ws: Workspace, room: Quarantine, peer: Peer, name: str) -> tuple[Places, str]:
    """Return the commit, and the repository that has it."""
    try:
        return ws.places, plumbing.resolve_commit(ws.places, name)
    except GitReferenceMissing as missing:
        ref = name if name.startswith("refs/") else BRANCHES + name
        commit = room.fetch_code(peer, ref) if plumbing.is_ref_name(ws.places, ref) else None
        if commit:
            return room.places, commit
        source = remotes.redact_url(peer.remote)
        raise GitReferenceMissing(
            f"{name[:80]!r} is neither a commit of this repository nor a branch of {source}.",
            hint=f"run 'git ls-remote --heads {quoted(source)}' to check the address",
            **missing.details,
        ) from missing


def _list_pins(ws: Workspace, repository: Places, commit: str, base: Address | None) -> list[str]:
    """Return the revisions that the commits pin and no branch of the base repository has, the
    commit's own first.
    """
    own_pin = next(iter(history.collect_pins(repository, [commit])), None)
    if own_pin is None:
        raise PinMissing(
            f"commit {commit[:12]} has no pin.",
            hint=f"run 'git log --oneline -- {PIN_NAME}' to list the commits with a pin",
        )
    without = remotes.list_tracked_commits(ws.places, base.text) if base and base.peer else []
    revisions = [migrated.read_pin(ws.places.kb, own_pin, source=f"{commit[:12]}:{PIN_NAME}").dolt_commit]
    for data in history.list_reachable_pins(repository, [commit, *(f"^{ref}" for ref in without)]):
        pin = try_read_pin(ws.places.kb, data)
        if pin:
            revisions.append(pin.dolt_commit)
    return list(dict.fromkeys(revisions))


class _Adopted(NamedTuple):
    """The imported revisions. The fields are those of `AdoptReport`."""

    pinned: tuple[str, ...]
    missing: tuple[str, ...]
    revisions: int


def _import_revisions(
    ws: Workspace,
    room: Quarantine,
    peer: Peer,
    pinned: list[str],
    *,
    accepted_heads: list[str],
    limits: Limits,
    services: frozenset[str],
) -> _Adopted:
    """Check the revisions of the fork that are not imported yet, copy them, and anchor them."""
    engine = ws.engine
    accepted_revisions = engine.map_parents(accepted_heads)
    missing = [revision for revision in pinned if revision not in accepted_revisions]
    if not missing:
        transfer.read_remote_ref(room.places, peer, peer.ref)  # raises an error for a source that does not exist
        return _Adopted(pinned=(), missing=(), revisions=0)
    with ws.progress.task(FETCHING, total=1) as task:
        theirs = room.fetch_knowledge(engine.name, peer, limits=limits)
        task.advance(1)
    check_new_row = functools.partial(
        check_row, allowed=services, expected=_list_services_in_use(engine, accepted_heads)
    )
    new = engine.vet_revisions(
        theirs, missing, known_heads=accepted_heads, into=room.vetted, limits=limits, check_row=check_new_row
    )
    imported = [revision for revision in missing if revision in new]
    if imported:
        _anchor_revisions(engine, room, imported)
    not_found = tuple(revision for revision in missing if revision not in new)
    return _Adopted(pinned=tuple(imported), missing=not_found, revisions=len(new))


def _list_services_in_use(engine: Engine, heads: Iterable[str]) -> frozenset[ServiceUse]:
    """Return the services that embed the base repository's collections."""
    return list_services(
        row for head in heads if not engine.find_refusal(head) for row in engine.list_collections(head)
    )


def _anchor_revisions(engine: Engine, room: Quarantine, revisions: list[str]) -> None:
    with engine.write_lock("adopt knowledge"):
        try:
            engine.fetch(quarantine.QUARANTINE_KEY, f"file://{room.vetted}")
            for revision in revisions:
                engine.anchor_revision(revision, reason="adopted from a fork")
        finally:
            engine.forget_remote(quarantine.QUARANTINE_KEY)


def list_services(rows: Iterable[Collection]) -> frozenset[ServiceUse]:
    """Return the services that embed these collections."""
    return frozenset(ServiceUse(row.name, row.embedding_function, row.embedding_model) for row in rows)


def _check_service(row: Collection, allowed: AbstractSet[str], expected: AbstractSet[ServiceUse]) -> None:
    service = SERVICES.get(row.embedding_function)
    is_paid = service is not None and service.key is not None
    if not is_paid or row.embedding_function in allowed or list_services([row]) <= expected:
        return
    raise KnowledgeRefused(
        f"the collection {row.name[:80]!a} would send its documents and queries to the paid service {row.embedding_function}, "
        "on the account of every reader. Nothing was imported.",
        hint=f"run 'vmrag adopt --allow-service {row.embedding_function} SOURCE COMMIT' to allow this",
        collection=row.name,
        service=row.embedding_function,
    )


def _check_collection(row: Collection) -> None:
    collections.require_name(row.name)
    metadata_from_row(row.metadata)
    if row.embedding_function not in registry.MODEL_NAMES:
        raise ValueError(f"unknown embedding model {row.embedding_function!r}")
    registry.choose_stored_model(row, EmbeddingSettings())
    require_valid_sizes(row.chunking)
    require_safe_sizes(row.chunking)
    problem = import_base.find_base_problem(row.import_base) if row.import_base else None
    if problem:
        raise ValueError(f"its import base {problem}")


def _check_document(row: Document) -> None:
    collections.require_name(row.collection)
    collections.require_document_id(row.doc_id)
    if row.content_hash != content_hash(row.content):
        raise ValueError("its content_hash does not match its content")
    reserved = RESERVED_METADATA.intersection(metadata_from_row(row.metadata))
    if reserved:
        raise ValueError(f"its metadata uses {', '.join(sorted(reserved))}, which the index reserves")
