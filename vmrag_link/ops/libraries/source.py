"""What a library is made of: the bytes of a file or a page, and by what they are known."""

from __future__ import annotations

import hashlib

from vmrag_link.models import Record


class Source(Record, frozen=True):
    """`key`: by what a library knows it, the same on every machine where that can be: the path of a
    file below the top of the work tree, else its absolute path; a page's URL without credentials.

    `hash` is SHA-256 of the bytes. `data` is empty where a server says that they are those of the
    document that is there. `name`: what a converter and a missing title take for its file's name.
    `file_type`: empty where the converter decides. `last_modified`: ISO 8601 UTC, empty if not
    known. The rest is what a server said.
    """

    key: str
    name: str
    hash: str
    data: bytes
    last_modified: str = ""
    file_type: str = ""
    media_type: str = ""
    charset: str = ""
    etag: str = ""


def hash_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
