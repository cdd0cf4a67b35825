"""Recognize man pages, OpenAPI descriptions and scripts by the first bytes of a file.

Other files also have names such as `tool.1`, `api.yaml` and `run`. Only the beginning of a file is
read, because no file was selected as a source yet.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from vmrag_link.conversion.limits import BINARY_WITHIN
from vmrag_link.git import readonly
from vmrag_link.paths import Places
from vmrag_link.sources.disk import Disk

_MAX_BLOB_BYTES = 1_000_000
"""Maximum size of a blob that is read. git can only print a whole blob."""

_MAX_TOTAL_BYTES = 50_000_000

_TROFF = re.compile(rb"""^(?:\.\\"|'\\"|[.'][ \t]*(?:TH|Dd|SH|so)[ \t])""", re.MULTILINE)
_OPENAPI_LINE = re.compile(rb"""^(["']?)(?:openapi|swagger)\1[ \t]*:[ \t]*["']?[1-9]""", re.MULTILINE)
# The last branch matches an unterminated text, so that each byte is read once.
_JSON_TOKEN = re.compile(rb"""[{}\[\]]|"(?:[^"\\]|\\.)*+"(?:\s*+:\s*+(?:"[^"]{0,20})?)?|".*""", re.DOTALL)
_OPENAPI_MEMBER = re.compile(rb"""^"(?:openapi|swagger)"\s*:\s*"[1-9]""")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def is_man_page(data: bytes) -> bool:
    """Return whether a text begins like troff with the macros of man pages."""
    return b"\0" not in data and _TROFF.search(data[:BINARY_WITHIN]) is not None


def is_script(data: bytes) -> bool:
    """Return whether a text begins with the program that runs it (`#!`)."""
    return b"\0" not in data and data.startswith(b"#!")


def is_openapi(data: bytes) -> bool:
    """Return whether YAML or JSON describes an API: its top level has `openapi` or `swagger`."""
    text = data[:BINARY_WITHIN].removeprefix(_BYTE_ORDER_MARK).lstrip()
    if text.startswith(b"{"):
        return _has_member(text)
    return b"\0" not in text and _OPENAPI_LINE.search(text) is not None


def _has_member(text: bytes) -> bool:
    """Return whether the outermost object has such a key.

    A nested object may also have one: `{"dependencies": {"swagger": "2.0.1"}}`.
    """
    depth = 0
    for token in _JSON_TOKEN.finditer(text):
        first = token[0][:1]
        if first in b"{[":
            depth += 1
        elif first in b"}]":
            depth -= 1
        elif depth == 1 and _OPENAPI_MEMBER.match(token[0]):
            return True
    return False


def read_in_work_tree(places: Places, paths: Iterable[str]) -> Mapping[str, bytes]:
    """Return the first bytes of files, by path. Unreadable files are left out."""
    with Disk(places.top) as disk:
        read = disk.read_many(sorted(paths), BINARY_WITHIN)
        return {path: data for path, data, size in read if size > 0}


def read_from_blobs(places: Places, blobs: Mapping[str, str], paths: Sequence[str]) -> Mapping[str, bytes]:
    """Return the first bytes of blobs, by path. Large blobs are left out. Raises `GitFailed`."""
    blobs_by_path = {path: blobs[path] for path in paths if path in blobs}
    room = _MAX_TOTAL_BYTES
    selected: set[str] = set()
    for blob, size in readonly.read_blob_sizes(places, blobs_by_path.values()).items():
        if size <= min(room, _MAX_BLOB_BYTES):
            room -= size
            selected.add(blob)
    contents = readonly.read_blobs(places, selected)
    return {path: contents[blob][:BINARY_WITHIN] for path, blob in blobs_by_path.items() if blob in contents}
