"""Vouchers: which vectors on a Chroma server are correct, according to people who may write to the
knowledge base.

A service's vectors cannot be computed again for a comparison. So someone with write access vouches
for them: a voucher is the digest of the vectors of one collection with these contents. Vouchers are
rows of the reserved branch `vmrag_vectors`. No pin names them, they change no document, and every
push includes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from vmrag_link import clock
from vmrag_link.engines.base import Engine, Write
from vmrag_link.engines.own_branches import VECTORS_BRANCH, read_root
from vmrag_link.models import Collection, Document, content_hash
from vmrag_link.transport import quarantine

COLLECTION = "vectors"
_AUTHOR = "vmrag <vmrag@localhost>"
_MESSAGE = "Vouch for vectors on a Chroma server"
_DIGEST = r"[0-9a-f]{64}"


def read_digests(engine: Engine, contents: str) -> set[str]:
    """Return the digests of the vectors of these contents with a voucher here, or in the knowledge
    base that was fetched last. Vouchers of a fork that is only being inspected are
    ignored.
    """
    rows = (engine.list_ids(head, COLLECTION, prefix=f"{contents}-") for head in _list_heads(engine))
    digests = (identifier.partition("-")[2] for ids in rows for identifier in ids)
    return {digest for digest in digests if re.fullmatch(_DIGEST, digest)}


def vouch_digests(engine: Engine, vectors: Mapping[str, str], *, timeout: float) -> None:
    """Record digests by contents, unless they are recorded already."""
    with engine.write_lock("vouch for vectors", timeout=timeout):
        new = [
            f"{contents}-{digest}"
            for contents, digest in vectors.items()
            if digest not in read_digests(engine, contents)
        ]
        if not new:
            return
        branch = engine.find_branch(VECTORS_BRANCH)
        if branch is None:
            engine.create_branch(VECTORS_BRANCH, read_root(engine))
        head = branch.head if branch else read_root(engine)
        engine.write(VECTORS_BRANCH, _build_rows(new), expected=head)
        engine.commit(VECTORS_BRANCH, message=_MESSAGE, author=_AUTHOR, date=clock.now(), expected=head)


def build_head(engine: Engine, remote_head: str | None) -> str | None:
    """Return the head to push to a remote whose branch is at `remote_head`: with its rows and ours.
    None if it already has all our rows.
    """
    branch = engine.find_branch(VECTORS_BRANCH)
    if branch is None or (remote_head and engine.is_ancestor(branch.head, remote_head)):
        return None
    if remote_head is None or engine.is_ancestor(remote_head, branch.head):
        return branch.head
    existing = set(_list_ids(engine, remote_head))
    lacking = [identifier for identifier in _list_ids(engine, branch.head) if identifier not in existing]
    if not lacking:
        return None
    with engine.write_lock("vouch for vectors"):
        return engine.commit_onto(
            remote_head, [_build_rows(lacking)], message=_MESSAGE, author=_AUTHOR, date=clock.now()
        )


def _list_heads(engine: Engine) -> list[str]:
    branch = engine.find_branch(VECTORS_BRANCH)
    heads = engine.all_remote_heads(VECTORS_BRANCH) - {
        engine.remote_heads(quarantine.QUARANTINE_KEY).get(VECTORS_BRANCH, "")
    }
    return [head for head in sorted(heads | ({branch.head} if branch else set())) if engine.has_revision(head)]


def _list_ids(engine: Engine, head: str) -> list[str]:
    return [header.doc_id for header in engine.read_headers(head, collection=COLLECTION)]


def _build_rows(ids: Iterable[str]) -> Write:
    now, nothing = clock.now(), content_hash("")
    documents = [
        Document(COLLECTION, identifier, "", "", nothing, created_at=now, updated_at=now) for identifier in ids
    ]
    return Write(put_collections=[Collection(COLLECTION, created_at=now)], put_documents=documents)
