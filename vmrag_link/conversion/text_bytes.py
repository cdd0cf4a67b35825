"""Bytes as text: which encoding they have."""

from __future__ import annotations

import codecs
import re

from vmrag_link.conversion.limits import ContentUnreadable

_META_WITHIN = 1024
_META_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_:.-]{1,40})", re.IGNORECASE)
"""As browsers look for it: in the first 1024 bytes."""

_CHARSETS = frozenset(
    (
        "utf-8 utf-16 utf-16-le utf-16-be utf-32 ascii iso8859-1 cp874 cp866 koi8-r koi8-u mac-roman mac-cyrillic gb2312 gbk gb18030 "
        "big5 big5hkscs euc_jp iso2022_jp shift_jis cp932 euc_kr cp949 johab"
    ).split()
) | {f"{family}{number}" for family, numbers in (("iso8859-", range(2, 17)), ("cp125", range(9))) for number in numbers}
"""Python's names of the encodings that pages and files have. Others are for other purposes, and
some of them take quadratic time.
"""

_LATIN = ("ascii", "iso8859-1")
"""Pages that say so are Windows-1252, as browsers read them."""


def decode(data: bytes, charset: str = "", *, is_html: bool = False) -> str:
    """The text without a byte order mark.

    Without a `charset` it is UTF-8, or, for a page that is not, what its `<meta>` says. Raises
    `ContentUnreadable` for what has not that encoding, and for a NUL, which no engine stores.
    """
    if charset and not data.startswith(codecs.BOM_UTF8):
        text = _decode_as(data, charset)
        if "\0" in text:
            raise ContentUnreadable("contains NUL characters")
        return text.removeprefix("\ufeff")
    if b"\0" in data:
        raise ContentUnreadable("contains NUL bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        declared = _META_CHARSET.search(data, 0, _META_WITHIN) if is_html else None
        if declared is None or (name := _python_name(declared[1].decode())) in (None, "utf-8"):
            raise ContentUnreadable(f"is not UTF-8 (byte {error.start})") from None
        return _decode_as(data, name)


def _decode_as(data: bytes, charset: str) -> str:
    name = _python_name(charset)
    if name is None:
        raise ContentUnreadable(f"has the encoding {charset!r}, which is not known here")
    if name in _LATIN:
        try:
            return data.decode("cp1252")
        except UnicodeDecodeError:  # of five bytes that stand for nothing there
            return data.decode("latin-1")
    try:
        return data.decode(name)
    except UnicodeDecodeError as error:
        raise ContentUnreadable(f"is not {charset} (byte {error.start})") from None


def _python_name(charset: str) -> str | None:
    try:
        name = codecs.lookup(charset).name
    except (LookupError, ValueError):
        return None
    return name if name in _CHARSETS else None
