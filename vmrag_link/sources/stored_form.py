"""What git would store of a file in the work tree, so that both have one name.

Line ends and encodings, as attributes and `core.autocrlf` say; no filter, and no `ident`. Where git
knows better, as with line ends that the index has already, the name is another one than git's: that
costs one more look at an equal text. Whether a file is changed at all is asked of git.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from vmrag_link.conversion.limits import ContentUnreadable
from vmrag_link.conversion.text_bytes import decode
from vmrag_link.sources.attributes import ENCODING, EOL, TEXT, Value

_LONE_RETURN = re.compile(rb"\r(?!\n)")
_CONVERTING = ("true", "input", "yes", "on", "1")


def stored_form(data: bytes, values: Mapping[str, Value], autocrlf: str) -> bytes:
    """`values` of `attributes.FOR_STORING`. Raises `ContentUnreadable` for another encoding than is
    stated.
    """
    encoding = values.get(ENCODING)
    if isinstance(encoding, str):
        data = in_utf8(data, encoding)
    text = values.get(TEXT)
    if text is None and EOL in values:
        text = True
    if text is True:
        return _with_newlines(data)
    guessed = text == "auto" or (text is None and autocrlf.lower() in _CONVERTING)
    if guessed and b"\0" not in data and not _LONE_RETURN.search(data):
        return _with_newlines(data)
    return data


def possible_forms(data: bytes, encoding: str) -> Iterator[bytes]:
    """All that `stored_form` may give for these bytes, whatever attributes say of line ends.

    Raises `ContentUnreadable`.
    """
    if encoding:
        data = in_utf8(data, encoding)
    yield data
    if b"\r\n" in data:
        yield _with_newlines(data)


def in_utf8(data: bytes, encoding: str) -> bytes:
    """Raises `ContentUnreadable`."""
    name = encoding.upper().removesuffix("-BOM")
    if name in ("UTF-8", "UTF8"):
        return data
    try:
        return decode(data, name).encode()
    except UnicodeEncodeError:
        raise ContentUnreadable(f"is not {encoding}") from None


def _with_newlines(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n")
