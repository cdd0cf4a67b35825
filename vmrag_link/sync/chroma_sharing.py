"""Put the collections of bound views on a Chroma server, once each, in the background.

Answers do not wait for it and do not come from there, because the view is the index.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from vmrag_link import hints
from vmrag_link.errors import Busy, FileSystemError, VmragError, file_failures
from vmrag_link.file_access import write_atomically
from vmrag_link.index.views import Views
from vmrag_link.models import Record
from vmrag_link.paths import Places
from vmrag_link.progress import Progress
from vmrag_link.sync import background
from vmrag_link.sync import binding as bindings
from vmrag_link.sync.chroma_state import SharingState

if TYPE_CHECKING:
    from vmrag_link.chroma.open_index import VectorSource
    from vmrag_link.chroma_server.client import ChromaClient
    from vmrag_link.chroma_server.contents import SharedContents
    from vmrag_link.chroma_server.server import ServerAddress
    from vmrag_link.engines.base import Engine

RETRY = "run 'vmrag sync --wait' to build it again"
ELSEWHERE_SECONDS = 600.0
"""Time for which the background process waits for another client that builds a collection."""

_POLL_SECONDS = 1.0
_DONE = ""

Mode = Literal["follow", "wait", "off"]


class NotShared(Record, frozen=True):
    """Why a view is not on the server. With an empty message it is on the server."""

    message: str = _DONE
    hint: str = ""


class Sharing(NamedTuple):
    """The views of a repository's work trees, and a server, if `address` names one."""

    places: Places
    views: Views
    address: ServerAddress | None
    mode: Mode
    """The setting `chroma.share`."""

    def list_unshared(self) -> list[str]:
        """Return the bound revisions that are not recorded as shared or failed."""
        if self.address is None or self.mode == "off":
            return []
        noted = self._read_notes()
        return [
            revision
            for revision in self._list_bound_revisions()
            if self._build_key(revision) not in noted and not self.views.find_problem(revision)
        ]

    def read_state(self) -> SharingState:
        """Return the state of this work tree's index on the server."""
        bound = bindings.read_binding(self.places)
        if self.address is None or self.mode == "off":
            return SharingState("off", self.address.display_text if self.address else "")
        result = self._read_notes().get(self._build_key(bound.revision)) if bound else None
        revision = bound.revision if bound else None
        if result is None:
            return SharingState("following", self.address.display_text, revision)
        if result.message == _DONE:
            return SharingState("ready", self.address.display_text, revision)
        return SharingState("failed", self.address.display_text, revision, result.message, result.hint)

    def record_result(self, revision: str, failure: NotShared | None) -> None:
        """Record the result for a bound revision. None means that it must be tried again."""
        names = {self._build_key(bound_revision) for bound_revision in self._list_bound_revisions()} | {
            self._build_key(revision)
        }
        before = self._read_notes()
        after = {name: note for name, note in before.items() if name in names and name != self._build_key(revision)}
        if failure:
            after[self._build_key(revision)] = failure
        if after != before:
            write_atomically(self._notes, msgspec.json.encode(after), durable=False)

    def start_sharing(self, start: Callable[[], int]) -> None:
        """Let the process that builds Chroma's stores share the missing views. `start` starts
        it.
        """
        if self.mode != "follow" or not self.list_unshared():
            return
        job = background.get_chroma_job(self.places)
        with contextlib.suppress(FileSystemError), file_failures():  # `read_state` reports that it is missing
            background.request_or_start(job, start)

    def _list_bound_revisions(self) -> list[str]:
        bound = bindings.list_bindings(self.places)
        revisions = (item.revision for item in bound if item.view == self.views.view_path(item.revision).name)
        return list(dict.fromkeys(revisions))

    def _build_key(self, revision: str) -> str:
        return f"{self.views.view_path(revision).name}@{self.address.file_key if self.address else ''}"

    @property
    def _notes(self) -> Path:
        return self.places.builder / "shared.json"

    def _read_notes(self) -> Mapping[str, NotShared]:
        with contextlib.suppress(OSError, UnicodeDecodeError, msgspec.DecodeError):  # then the views are shared again
            return msgspec.json.decode(self._notes.read_bytes(), type=dict[str, NotShared])
        return {}


class Publisher(NamedTuple):
    """Data for putting an index on a server: `engine` identifies its owner, `vectors` returns its
    float32 vectors.
    """

    engine: Engine
    vectors: VectorSource
    with_texts: bool
    lock_timeout: float


@contextlib.contextmanager
def read_contents(sharing: Sharing, revision: str, publisher: Publisher) -> Iterator[list[SharedContents]]:
    """Yield the collections of a view in the form that a server stores.

    Collections with zero vectors, and empty ones, are not shared. Raises `IndexFailed`.
    """
    from vmrag_link.chroma.open_index import OpenIndex
    from vmrag_link.chroma_server import contents
    from vmrag_link.chroma_server.contents import SharedContents
    from vmrag_link.engines.own_branches import read_root

    owner = contents.make_owner_mark(read_root(publisher.engine))
    path = sharing.views.view_path(revision)
    with sharing.views.lock_for_reading(path):  # only while it is opened, so that another process can rebuild it
        index = OpenIndex(path)
    with contextlib.closing(index):
        yield [
            SharedContents(index, held, owner, publisher.vectors, publisher.with_texts)
            for held in index.collections.values()
            if held.chunks and held.collection.name not in index.stand_ins
        ]


def share_bound_views(
    sharing: Sharing, publisher: Publisher, *, progress: Progress, log: Callable[[str], None] = lambda _: None
) -> None:
    """Share the missing views. The reason of a failure is recorded, and the next view is shared."""
    for revision in sharing.list_unshared():
        try:
            share_revision(sharing, revision, publisher, progress=progress, log=log)
        except VmragError as error:
            log(f"not shared: {error.message}")
            sharing.record_result(revision, NotShared(error.message, hints.join_steps(error.hint, RETRY)))


def share_revision(
    sharing: Sharing,
    revision: str,
    publisher: Publisher,
    *,
    progress: Progress,
    log: Callable[[str], None] = lambda _: None,
) -> None:
    """Put the collections of a bound view on the server, and vouch for the vectors of services.

    Raises `ChromaServerFailed`, and `Busy` if another client builds a collection for too long.
    """
    from vmrag_link.chroma_server.client import ChromaClient

    if sharing.address is None:
        return
    client = ChromaClient(sharing.address)
    client.require_database()
    with file_failures(), read_contents(sharing, revision, publisher) as collections:
        made = set[str]()
        for contents in collections:
            how = _share_collection(client, contents, progress)
            log(f"{how}: {contents.name} ({contents.label!r})")
            made |= {contents.name} if how == "made" else set()
        vouch_vectors(collections, publisher, made)
    sharing.record_result(revision, NotShared())


def vouch_vectors(
    collections: Iterable[SharedContents], publisher: Publisher, made: AbstractSet[str] = frozenset()
) -> None:
    """Record in the knowledge base which service vectors a server must serve: those that were just
    `made` there, and those without a voucher.
    """
    from vmrag_link.embedding.base import SERVICES
    from vmrag_link.sync import vouchers

    paid = (collection for collection in collections if collection.indexed.collection.embedding_function in SERVICES)
    new = [
        collection
        for collection in paid
        if collection.name in made or not vouchers.read_digests(publisher.engine, collection.fingerprint)
    ]
    if new:
        digests = {collection.fingerprint: collection.digest_vectors() for collection in new}
        vouchers.vouch_digests(publisher.engine, digests, timeout=publisher.lock_timeout)


def _share_collection(client: ChromaClient, contents: SharedContents, progress: Progress) -> str:
    from vmrag_link.chroma_server.share import share_collection

    name, seal, deadline = contents.name, contents.make_seal(), time.monotonic() + ELSEWHERE_SECONDS
    while (how := share_collection(client, contents, name, seal, progress=progress)) == "elsewhere":
        if time.monotonic() > deadline:
            raise Busy(f"another client has been building {name} for more than {ELSEWHERE_SECONDS:.0f} s.", hint=RETRY)
        time.sleep(_POLL_SECONDS)
    return how
