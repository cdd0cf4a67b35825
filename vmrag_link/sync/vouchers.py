"""Which vectors of services a Chroma server has to serve: digests of them, in the knowledge base.

Vectors of a service cannot be made again to compare them, so a download counts only if somebody who
may write this knowledge base vouches for it. Digests are rows of the reserved branch
`vmrag_vectors`, one per collection and its contents: no pin names them, no document changes, and
they travel with every push.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from vmrag_link import clock
from vmrag_link.engines.base import VECTORS_BRANCH, Engine, Write, root_of
from vmrag_link.models import Collection, Document, content_hash
from vmrag_link.transport import quarantine

COLLECTION = "vectors"
_AUTHOR = "vmrag <vmrag@localhost>"
_MESSAGE = "Vouch for vectors on a Chroma server"
_DIGEST = r"[0-9a-f]{64}"


def digests(engine: Engine, contents: str) -> set[str]:
    """The digests of the vectors of these contents (`names.contents_of`) that somebody vouches for:
    here, or in what was last fetched. A fork that is only looked at vouches for nothing.
    """
    rows = (engine.ids(head, COLLECTION, prefix=f"{contents}-") for head in _heads(engine))
    found = (each.partition("-")[2] for ids in rows for each in ids)
    return {each for each in found if re.fullmatch(_DIGEST, each)}


def vouch(engine: Engine, vectors: Mapping[str, str], *, timeout: float) -> None:
    """Note digests by contents, unless they are noted already."""
    with engine.writing("vouch for vectors", timeout=timeout):
        new = [f"{each}-{digest}" for each, digest in vectors.items() if digest not in digests(engine, each)]
        if not new:
            return
        branch = engine.branch(VECTORS_BRANCH)
        if branch is None:
            engine.create_branch(VECTORS_BRANCH, root_of(engine))
        head = branch.head if branch else root_of(engine)
        engine.write(VECTORS_BRANCH, _rows(new), expected=head)
        engine.commit(VECTORS_BRANCH, message=_MESSAGE, author=_AUTHOR, date=clock.now(), expected=head)


def head_for(engine: Engine, there: str | None) -> str | None:
    """The head to push to a remote whose branch stands at `there`: with its rows and ours. None
    where it has all of ours.
    """
    branch = engine.branch(VECTORS_BRANCH)
    if branch is None or (there and engine.is_ancestor(branch.head, there)):
        return None
    if there is None or engine.is_ancestor(there, branch.head):
        return branch.head
    known = set(_ids(engine, there))
    lacking = [each for each in _ids(engine, branch.head) if each not in known]
    if not lacking:
        return None
    with engine.writing("vouch for vectors"):
        return engine.commit_onto(there, [_rows(lacking)], message=_MESSAGE, author=_AUTHOR, date=clock.now())


def _heads(engine: Engine) -> list[str]:
    branch = engine.branch(VECTORS_BRANCH)
    found = engine.known_heads(VECTORS_BRANCH) - {engine.remote_heads(quarantine.KEY).get(VECTORS_BRANCH, "")}
    return [each for each in sorted(found | ({branch.head} if branch else set())) if engine.has_revision(each)]


def _ids(engine: Engine, head: str) -> list[str]:
    return [each.doc_id for each in engine.headers(head, collection=COLLECTION)]


def _rows(ids: Iterable[str]) -> Write:
    now, nothing = clock.now(), content_hash("")
    documents = [Document(COLLECTION, each, "", "", nothing, created_at=now, updated_at=now) for each in ids]
    return Write(put_collections=[Collection(COLLECTION, created_at=now)], put_documents=documents)
