"""The few requests of Chroma's REST API that sharing takes, one at a time.

Everything that comes back is a stranger's: it is bounded, decoded into the shapes below, and an id
becomes part of an address only if it is one.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from vmrag_link import endpoint, extras
from vmrag_link.chroma_server.server import (
    BATCH_RECORDS,
    CLOUD,
    LISTED_BYTES,
    SHORT_ANSWER,
    ServerAddress,
    ServerLimits,
    estimate_page_bytes,
)
from vmrag_link.errors import ChromaServerFailed, shortened
from vmrag_link.models import Record
from vmrag_link.terminal_text import escape_line

NOT_FOUND, CONFLICT = 404, 409
LIST_PAGE = 100
MOST_COLLECTIONS = 100_000
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"

T = TypeVar("T")


class SharedRow(NamedTuple):
    """A chunk as a server holds it; `vector` of float32. `text` None: it is not there."""

    id: str
    vector: bytes
    text: str | None
    metadata: Mapping[str, Any]


class RemoteCollection(Record, frozen=True):
    """A collection on a server. Of its configuration nothing is read."""

    id: str
    name: str
    metadata: dict[str, Any] | None = None


class _Checks(Record, frozen=True):
    max_batch_size: int


class _Page(Record, frozen=True):
    ids: list[str]
    embeddings: list[list[float] | None] | None = None
    documents: list[str | None] | None = None


class ChromaClient:
    """One database of a server. Calls raise `ChromaServerFailed`, and `IndexExtraMissing`."""

    def __init__(self, address: ServerAddress) -> None:
        self.address = address
        self._limits: ServerLimits | None = None

    @property
    def limits(self) -> ServerLimits:
        """The server is asked once how much it takes in a batch."""
        if self._limits is None:
            if self.address.mode == "cloud":
                self._limits = CLOUD
            else:
                said = self._decoded(self._ask("GET", f"{self._base}/api/v2/pre-flight-checks"), _Checks)
                self._limits = ServerLimits(max(1, min(BATCH_RECORDS, said.max_batch_size)))
        return self._limits

    # -- collections -------------------------------------------------------------------------------

    def require_database(self) -> None:
        """Raise `ChromaServerFailed` if there is none. A list of its collections would be empty."""
        try:
            self._ask("GET", self.address.database_url)
        except ChromaServerFailed as error:
            if error.details.get("status") != NOT_FOUND:
                raise
            raise self.make_error(
                f"has no database {self.address.database!r} of tenant {self.address.tenant!r}",
                hint="Make it there, or name another one: git config vmrag.chroma.database NAME",
            ) from error

    def find_collection(self, name: str) -> RemoteCollection | None:
        """The collection of this name."""
        try:
            answer = self._ask("GET", f"{self._collections}/{name}")
        except ChromaServerFailed as error:
            if error.details.get("status") == NOT_FOUND:
                return None
            raise
        found = self._decoded(answer, RemoteCollection)
        if found.name != name:
            raise self.make_error(f"answered with the collection {escape_text(found.name)} in place of {name}")
        return found

    def create_collection(self, name: str, metadata: Mapping[str, Any]) -> RemoteCollection | None:
        """Make a collection; None where there is one of that name: only one of many makes it.

        Its vectors come back as they were given, which those of a space `cosine` do not.
        """
        body = {
            "name": name,
            "get_or_create": False,
            "metadata": metadata,
            "configuration": {"hnsw": {"space": "l2"}},
        }
        try:
            answer = self._ask("POST", self._collections, body)
        except ChromaServerFailed as error:
            if error.details.get("status") == CONFLICT:
                return None
            raise
        return self._decoded(answer, RemoteCollection)

    def update_collection(
        self, collection: RemoteCollection, *, name: str | None = None, metadata: Mapping[str, Any]
    ) -> bool:
        """Give a collection another name, which only one can have, and other metadata, in one step.

        False where it is gone or the name is taken, and where nobody knows whether it was done.
        """
        body = {"new_metadata": metadata} | ({"new_name": name} if name else {})
        try:
            self._ask("PUT", self._at(collection), body, once=name is not None)
        except ChromaServerFailed as error:
            if name is not None or error.details.get("status") == NOT_FOUND:
                return False  # servers answer 500 where a name is taken
            raise
        return True

    def delete_collection(self, name: str) -> bool:
        """Whether there was one to delete."""
        try:
            self._ask("DELETE", f"{self._collections}/{name}", once=True)
        except ChromaServerFailed as error:
            if error.details.get("status") == NOT_FOUND:
                return False
            raise
        return True

    def list_collections(self) -> list[RemoteCollection]:
        """All of the database, other people's included."""
        self.require_database()
        found = list[RemoteCollection]()
        while True:
            query = f"{self._collections}?limit={LIST_PAGE}&offset={len(found)}"
            page = self._decoded(self._ask("GET", query, most=LIST_PAGE * LISTED_BYTES), list[RemoteCollection])
            found += page
            if len(page) < LIST_PAGE:
                return found
            if len(found) > MOST_COLLECTIONS:
                raise self.make_error(f"lists more than {MOST_COLLECTIONS} collections")

    def count_records(self, collection: RemoteCollection) -> int:
        return self._decoded(self._ask("GET", f"{self._at(collection)}/count"), int)

    # -- records -----------------------------------------------------------------------------------

    def add_records(self, collection: RemoteCollection, rows: Sequence[SharedRow]) -> None:
        """Add records, no more than `limits.records`. Ones that are there stay as they are."""
        body = {
            "ids": [row.id for row in rows],
            "embeddings": [base64.b64encode(row.vector).decode() for row in rows],
            "documents": [row.text for row in rows],
            "metadatas": [row.metadata for row in rows],
        }
        self._ask("POST", f"{self._at(collection)}/add", body)

    def read_records(
        self, collection: RemoteCollection, texts: Mapping[str, int], *, dimensions: int
    ) -> dict[str, tuple[bytes, str | None]]:
        """Vectors and texts of records, by id; `texts` gives the bytes of the texts that are asked
        for, no more than `limits.records`.

        Whatever is not exactly that, of these dimensions and of numbers, is refused.
        """
        body = {"ids": [*texts], "include": ["embeddings", "documents"]}
        most = estimate_page_bytes(sum(texts.values()), len(texts), dimensions)
        answer = self._ask("POST", f"{self._at(collection)}/get", body, most=most)
        page = self._decoded(answer, _Page)
        vectors, documents = page.embeddings or [], page.documents or [None] * len(page.ids)
        if len(page.ids) != len(vectors) or len(page.ids) != len(documents) or {*page.ids} != texts.keys():
            raise self.make_error(
                f"lacks records of the collection {escape_text(collection.name)}: it answered with {len(page.ids)} for {len(texts)}"
            )
        return {
            name: (self._packed(vector, dimensions), text)
            for name, vector, text in zip(page.ids, vectors, documents, strict=True)
        }

    # -- asking ------------------------------------------------------------------------------------

    def make_error(self, reason: str, *, hint: str = "", status: int | None = None) -> ChromaServerFailed:
        """An error about this server; `reason` ends a sentence."""
        details = {"url": self.address.url} | ({} if status is None else {"status": status})
        return ChromaServerFailed(
            f"The Chroma server ({self.address.display_text}) {escape_line(reason).rstrip('.')}.",
            hint=hint or "See whether it runs; to do without it: git config vmrag.chroma.mode embedded",
            **details,
        )

    @property
    def _base(self) -> str:
        return self.address.url.rstrip("/")

    @property
    def _collections(self) -> str:
        return f"{self.address.database_url}/collections"

    def _at(self, collection: RemoteCollection) -> str:
        """The address of a collection, from which no id leads elsewhere."""
        if not re.fullmatch(_UUID, collection.id):
            raise self.make_error(f"answered with the collection id {escape_text(collection.id)}")
        return f"{self._collections}/{collection.id}"

    def _ask(
        self, method: str, url: str, body: object = None, *, most: int = SHORT_ANSWER, once: bool = False
    ) -> bytes:
        address = self.address
        if address.flaw:
            raise self.make_error(
                f"cannot be asked: {address.flaw}", hint="Set it anew for whoever runs this: export NAME=KEY"
            )
        try:
            return endpoint.send_request(
                method,
                url,
                body,
                headers=address.headers,
                secrets=address.secrets,
                seconds=address.seconds,
                most=most,
                circuit=address.database_url,
                once=once,
            )
        except ModuleNotFoundError as error:
            raise extras.missing_extra_error(
                "web", "A Chroma server cannot be asked: httpx is not installed."
            ) from error
        except endpoint.NoAnswer as error:
            if error.status in endpoint.REFUSALS:
                hint = "Name the address in git config (vmrag.chroma.url, https), and set CHROMA_API_KEY or CHROMA_CLIENT_AUTH_CREDENTIALS."
                raise self.make_error(error.reason, hint=hint, status=error.status) from error
            raise self.make_error(error.reason, status=error.status) from error

    def _decoded(self, answer: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(answer, type=kind)
        except (UnicodeDecodeError, msgspec.DecodeError, RecursionError) as error:
            raise self.make_error(
                f"answered with something else than Chroma does ({error})",
                hint="See what vmrag.chroma.url names: it does not speak as Chroma 1.x does.",
            ) from error

    def _packed(self, vector: list[float] | None, dimensions: int) -> bytes:
        if vector is None or len(vector) != dimensions:
            raise self.make_error(
                f"answered with a vector of {len(vector) if vector else 0} dimensions in place of {dimensions}"
            )
        try:
            return struct.pack(f"<{dimensions}f", *vector)
        except (OverflowError, struct.error) as error:
            raise self.make_error("answered with numbers that are none") from error


def escape_text(text: str) -> str:
    """A stranger's text in a message."""
    return repr(shortened(escape_line(text)))
