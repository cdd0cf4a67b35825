"""The address and the limits of a Chroma server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, TypeVar

import msgspec

from vmrag_link.models import Record

LOCAL_URL = "http://localhost:8000"
CLOUD_URL = "https://api.trychroma.com"


class ServerAddress(Record, frozen=True):
    """A Chroma server that the user of this machine trusts."""

    mode: Literal["http", "cloud"]
    url: str
    tenant: str
    database: str
    seconds: float
    """The timeout of a request."""

    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    """They contain a key if the key may be sent to this server."""

    secrets: tuple[str, ...] = ()
    """Parts of the headers that no message may show."""

    flaw: str = ""
    """Why the server cannot be used; empty if it can. Answers do not need the server, so only
    requests fail.
    """

    @property
    def display_text(self) -> str:
        """The server as people read it."""
        from urllib.parse import urlsplit  # a checkout should not wait for it

        return f"{urlsplit(self.url).netloc}, database {self.database}"

    @property
    def database_url(self) -> str:
        """The URL of the database."""
        return f"{self.url.rstrip('/')}/api/v2/tenants/{self.tenant}/databases/{self.database}"

    @property
    def file_key(self) -> str:
        """A short name of the database for file names."""
        import hashlib

        return hashlib.sha256(self.database_url.encode()).hexdigest()[:16]


BATCH_RECORDS = 1_000
BATCH_BYTES = 4_000_000
"""Bytes of texts and vectors in one request. Servers reject bodies of 40 MB."""

SHORT_ANSWER = 1_000_000
"""Maximum number of bytes of an answer without records."""

LISTED_BYTES = 20_000
"""Maximum number of bytes of one collection in a list. The server writes its whole schema."""

NUMBER_BYTES = 32
"""Maximum number of bytes of a float32 in JSON, with its comma."""

ESCAPE_BYTES = 6
"""Maximum number of bytes in JSON of a byte of UTF-8."""

RECORD_BYTES = 1_000


class ServerLimits(Record, frozen=True):
    """How much a server accepts."""

    records: int
    """Maximum number of records in one request or page."""

    text_bytes: int | None = None
    """Maximum number of bytes of one text; None without a limit."""

    metadata: bool = True
    """True if a chunk has the metadata of its document, or only its own position."""


CLOUD = ServerLimits(records=300, text_bytes=16_384, metadata=False)
"""The limits of Chroma Cloud. Other limits cannot be reached, whatever a knowledge base has: ids
and names (128 bytes) are hashes, no request has a filter (8 predicates), and a client sends one
request at a time (10 readers and writers of a collection).
"""


T = TypeVar("T")


def split_batches(records: Iterable[tuple[T, int]], limit: int) -> Iterator[list[T]]:
    """Yield records in batches of at most `limit` records and `BATCH_BYTES` bytes. Each record is
    given with its bytes.
    """
    batch: list[T] = []
    size = 0
    for record, length in records:
        if batch and (len(batch) == limit or size + length > BATCH_BYTES):
            yield batch
            batch = []
            size = 0
        batch.append(record)
        size += length
    if batch:
        yield batch


def estimate_page_bytes(texts: int, records: int, dimensions: int) -> int:
    """Return the maximum bytes of a page of records whose texts have `texts` bytes together."""
    return SHORT_ANSWER + texts * ESCAPE_BYTES + records * (RECORD_BYTES + dimensions * NUMBER_BYTES)
