"""A Chroma server: where it is, what it is told besides, how much it takes, and how much of an
answer is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, TypeVar

import msgspec

from vmrag_link.models import Record

LOCAL_URL = "http://localhost:8000"
CLOUD_URL = "https://api.trychroma.com"


class ServerAddress(Record, frozen=True):
    """A Chroma server that this machine's person agreed to.

    `headers` hold a key, if it may be sent there, and no message shows the `secrets` in them.
    `seconds`: how long an answer may take. `flaw`: why it cannot be asked, if so: answers do not
    need it, so only what asks fails.
    """

    mode: Literal["http", "cloud"]
    url: str
    tenant: str
    database: str
    seconds: float
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    flaw: str = ""

    @property
    def display_text(self) -> str:
        """As people read it."""
        from urllib.parse import urlsplit  # a checkout should not wait for it

        return f"{urlsplit(self.url).netloc}, database {self.database}"

    @property
    def database_url(self) -> str:
        """The address of the database."""
        return f"{self.url.rstrip('/')}/api/v2/tenants/{self.tenant}/databases/{self.database}"

    @property
    def file_key(self) -> str:
        """A short name of the database for files."""
        import hashlib

        return hashlib.sha256(self.database_url.encode()).hexdigest()[:16]


BATCH_RECORDS = 1_000
BATCH_BYTES = 4_000_000
"""Of texts and vectors in one request; servers refuse bodies of 40 MB."""

SHORT_ANSWER = 1_000_000
"""Bytes of an answer without records."""

LISTED_BYTES = 20_000
"""Bytes that one collection takes in a list: the server writes its whole schema."""

NUMBER_BYTES = 32
"""The longest way to write a float32 in JSON, with its comma."""

ESCAPE_BYTES = 6
"""The longest way to write a byte of UTF-8 in JSON."""

RECORD_BYTES = 1_000


class ServerLimits(Record, frozen=True):
    """`records` in one request or page; `text_bytes` of one text, None without a limit."""

    records: int
    text_bytes: int | None = None
    metadata: bool = True
    """Whether a document's own metadata go with its chunks, or their place alone."""


CLOUD = ServerLimits(records=300, text_bytes=16_384, metadata=False)
"""Chroma Cloud's. Ids, names (128 bytes), predicates (8), and readers and writers of a collection
(10) are within its limits whatever a knowledge base holds: ours are hashes, no request has a
filter, and a client sends one request at a time.
"""


T = TypeVar("T")


def split_batches(records: Iterable[tuple[T, int]], most: int) -> Iterator[list[T]]:
    """At most so many records at once, and no more than `BATCH_BYTES` of them; each comes with its
    bytes.
    """
    batch, size = list[T](), 0
    for record, length in records:
        if batch and (len(batch) == most or size + length > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += length
    if batch:
        yield batch


def estimate_page_bytes(texts: int, records: int, dimensions: int) -> int:
    """The most bytes of a page of records whose texts have so many bytes together."""
    return SHORT_ANSWER + texts * ESCAPE_BYTES + records * (RECORD_BYTES + dimensions * NUMBER_BYTES)
