"""Where a Chroma server is, and what it is told besides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

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
    def shown(self) -> str:
        """As people read it."""
        from urllib.parse import urlsplit  # a checkout should not wait for it

        return f"{urlsplit(self.url).netloc}, database {self.database}"

    @property
    def root(self) -> str:
        """The address of the database."""
        return f"{self.url.rstrip('/')}/api/v2/tenants/{self.tenant}/databases/{self.database}"

    @property
    def key(self) -> str:
        """A short name of the database for files."""
        import hashlib

        return hashlib.sha256(self.root.encode()).hexdigest()[:16]
