"""The few requests of Chroma's REST API that sharing needs. One request is sent at a time.

Answers are untrusted: their size is limited, they are decoded into the types below, and an id is
used in a URL only if it is valid.
"""

from __future__ import annotations

import base64
import functools
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

NOT_FOUND = 404
CONFLICT = 409
PAGE_COLLECTIONS = 100
MAX_COLLECTIONS = 100_000
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"

T = TypeVar("T")


class SharedRow(NamedTuple):
    """A chunk on a server."""

    id: str
    vector: bytes
    """Little-endian float32."""

    text: str | None
    """None if the server does not have it."""

    metadata: Mapping[str, Any]


class RemoteCollection(Record, frozen=True):
    """A collection on a server. Its configuration is not read."""

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
    """A client of one database of a server. The methods raise `ChromaServerFailed` and
    `IndexExtraMissing`.
    """

    def __init__(self, address: ServerAddress) -> None:
        self.address = address

    @functools.cached_property
    def limits(self) -> ServerLimits:
        """The limits of requests to the server. This asks the server once."""
        if self.address.mode == "cloud":
            return CLOUD
        answer = self._request("GET", f"{self.address.url.rstrip('/')}/api/v2/pre-flight-checks")
        checks = self._decode_answer(answer, _Checks)
        return ServerLimits(max(1, min(BATCH_RECORDS, checks.max_batch_size)))

    # -- collections -------------------------------------------------------------------------------

    def require_database(self) -> None:
        """Raise `ChromaServerFailed` if the database does not exist. (The list of its collections
        would be empty.)
        """
        try:
            self._request("GET", self.address.database_url)
        except ChromaServerFailed as error:
            if error.details.get("status") != NOT_FOUND:
                raise
            raise self.make_error(
                f"has no database {self.address.database!r} of tenant {self.address.tenant!r}",
                hint="create it on the server, or run 'git config vmrag.chroma.database NAME' to use another one",
            ) from error

    def find_collection(self, name: str) -> RemoteCollection | None:
        """Return the collection with this name; None if it does not exist."""
        try:
            answer = self._request("GET", f"{self._collections_url}/{name}")
        except ChromaServerFailed as error:
            if error.details.get("status") == NOT_FOUND:
                return None
            raise
        collection = self._decode_answer(answer, RemoteCollection)
        if collection.name != name:
            raise self.make_error(f"returned the collection {escape_text(collection.name)} instead of {name}")
        return collection

    def create_collection(self, name: str, metadata: Mapping[str, Any]) -> RemoteCollection | None:
        """Create a collection. Return None if one with this name exists, so only one of several
        clients creates it.

        The space is l2, because the server returns such vectors unchanged. Vectors of the space
        `cosine` are changed.
        """
        body = {
            "name": name,
            "get_or_create": False,
            "metadata": metadata,
            "configuration": {"hnsw": {"space": "l2"}},
        }
        try:
            answer = self._request("POST", self._collections_url, body)
        except ChromaServerFailed as error:
            if error.details.get("status") == CONFLICT:
                return None
            raise
        return self._decode_answer(answer, RemoteCollection)

    def update_collection(
        self, collection: RemoteCollection, *, name: str | None = None, metadata: Mapping[str, Any]
    ) -> bool:
        """Give a collection another name and other metadata in one step, and return whether it was
        done.

        Only one collection can have a name. The result is False if the collection does not exist,
        if the name is used, and if the outcome is unknown.
        """
        body = {"new_metadata": metadata} | ({"new_name": name} if name else {})
        try:
            self._request("PUT", self._make_collection_url(collection), body, once=name is not None)
        except ChromaServerFailed as error:
            if name is not None or error.details.get("status") == NOT_FOUND:
                return False  # a server answers 500 if the name is already used
            raise
        return True

    def delete_collection(self, name: str) -> bool:
        """Delete a collection, and return whether it existed."""
        try:
            self._request("DELETE", f"{self._collections_url}/{name}", once=True)
        except ChromaServerFailed as error:
            if error.details.get("status") == NOT_FOUND:
                return False
            raise
        return True

    def list_collections(self) -> list[RemoteCollection]:
        """Return all collections of the database, including those of other users."""
        self.require_database()
        collections = list[RemoteCollection]()
        while True:
            query = f"{self._collections_url}?limit={PAGE_COLLECTIONS}&offset={len(collections)}"
            page = self._decode_answer(
                self._request("GET", query, max_bytes=PAGE_COLLECTIONS * LISTED_BYTES), list[RemoteCollection]
            )
            collections += page
            if len(page) < PAGE_COLLECTIONS:
                return collections
            if len(collections) > MAX_COLLECTIONS:
                raise self.make_error(f"lists more than {MAX_COLLECTIONS} collections")

    def count_records(self, collection: RemoteCollection) -> int:
        return self._decode_answer(self._request("GET", f"{self._make_collection_url(collection)}/count"), int)

    # -- records -----------------------------------------------------------------------------------

    def add_records(self, collection: RemoteCollection, rows: Sequence[SharedRow]) -> None:
        """Add at most `limits.records` records. Existing records stay the same."""
        body = {
            "ids": [row.id for row in rows],
            "embeddings": [base64.b64encode(row.vector).decode() for row in rows],
            "documents": [row.text for row in rows],
            "metadatas": [row.metadata for row in rows],
        }
        self._request("POST", f"{self._make_collection_url(collection)}/add", body)

    def read_records(
        self, collection: RemoteCollection, texts: Mapping[str, int], *, dimensions: int
    ) -> dict[str, tuple[bytes, str | None]]:
        """Return vectors and texts of records, by id.

        `texts`: the bytes of the text of each requested record, for at most `limits.records`
        records. Raises `ChromaServerFailed` unless the answer has exactly these records, with
        numeric vectors of these dimensions.
        """
        body = {"ids": [*texts], "include": ["embeddings", "documents"]}
        max_bytes = estimate_page_bytes(sum(texts.values()), len(texts), dimensions)
        answer = self._request("POST", f"{self._make_collection_url(collection)}/get", body, max_bytes=max_bytes)
        page = self._decode_answer(answer, _Page)
        vectors = page.embeddings or []
        documents = page.documents or [None] * len(page.ids)
        if len(page.ids) != len(vectors) or len(page.ids) != len(documents) or {*page.ids} != texts.keys():
            raise self.make_error(
                f"lacks records of the collection {escape_text(collection.name)}: it returned {len(page.ids)} of {len(texts)}"
            )
        return {
            name: (self._pack_vector(vector, dimensions), text)
            for name, vector, text in zip(page.ids, vectors, documents, strict=True)
        }

    # -- requests ----------------------------------------------------------------------------------

    def make_error(self, reason: str, *, hint: str = "", status: int | None = None) -> ChromaServerFailed:
        """Return an error about this server. `reason` completes a sentence that begins with the
        server.
        """
        details = {"url": self.address.url} | ({} if status is None else {"status": status})
        return ChromaServerFailed(
            f"the Chroma server ({self.address.display_text}) {escape_line(reason).rstrip('.')}.",
            hint=hint or "check that the server runs, or run 'git config vmrag.chroma.mode embedded' to do without it",
            **details,
        )

    @property
    def _collections_url(self) -> str:
        return f"{self.address.database_url}/collections"

    def _make_collection_url(self, collection: RemoteCollection) -> str:
        """Return the URL of a collection. Raises `ChromaServerFailed` for an invalid id, which
        could lead elsewhere.
        """
        if not re.fullmatch(_UUID, collection.id):
            raise self.make_error(f"returned the invalid collection id {escape_text(collection.id)}")
        return f"{self._collections_url}/{collection.id}"

    def _request(
        self, method: str, url: str, body: object = None, *, max_bytes: int = SHORT_ANSWER, once: bool = False
    ) -> bytes:
        """Return the body of the answer to a request. `once`: do not repeat it after a failure."""
        address = self.address
        if address.flaw:
            raise self.make_error(
                f"cannot be used: {address.flaw}",
                hint="run 'export NAME=KEY' to set the key in the environment of this program",
            )
        try:
            return endpoint.send_request(
                method,
                url,
                body,
                headers=address.headers,
                secrets=address.secrets,
                seconds=address.seconds,
                max_bytes=max_bytes,
                circuit=address.database_url,
                once=once,
            )
        except ModuleNotFoundError as error:
            raise extras.missing_extra_error(
                "web", "cannot use a Chroma server: the package httpx is not installed."
            ) from error
        except endpoint.NoAnswer as error:
            if error.status in endpoint.REFUSALS:
                hint = (
                    "set vmrag.chroma.url (https) in git config, and CHROMA_API_KEY or CHROMA_CLIENT_AUTH_CREDENTIALS in "
                    "the environment"
                )
                raise self.make_error(error.reason, hint=hint, status=error.status) from error
            raise self.make_error(error.reason, status=error.status) from error

    def _decode_answer(self, answer: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(answer, type=kind)
        except (UnicodeDecodeError, msgspec.DecodeError, RecursionError) as error:
            raise self.make_error(
                f"returned an invalid answer ({error})",
                hint="check that vmrag.chroma.url is the address of a Chroma 1.x server",
            ) from error

    def _pack_vector(self, vector: list[float] | None, dimensions: int) -> bytes:
        if vector is None or len(vector) != dimensions:
            raise self.make_error(
                f"returned a vector of {len(vector) if vector else 0} dimensions instead of {dimensions}"
            )
        try:
            return struct.pack(f"<{dimensions}f", *vector)
        except (OverflowError, struct.error) as error:
            raise self.make_error("returned a vector with invalid numbers") from error


def escape_text(text: str) -> str:
    """Return an untrusted text for a message."""
    return repr(shortened(escape_line(text)))
