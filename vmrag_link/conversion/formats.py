"""The formats that can be converted, how a file's name or media type tells which one it is, and
which encoding its bytes have.
"""

from __future__ import annotations

import codecs
import functools
import importlib.util
import os
import re
from collections.abc import Mapping
from typing import Literal

from vmrag_link import extras
from vmrag_link.conversion.limits import ContentUnreadable
from vmrag_link.errors import FormatUnsupported, shortened
from vmrag_link.models import Record
from vmrag_link.terminal_text import escape_line

ConverterPlace = Literal["here", "child", "extra"]
"""Who converts: this process, for what is stored as it is written; the child process, where a
stranger's file may keep a parser busy for hours; or the child process with what only an extra
installs.
"""


class Format(Record, frozen=True):
    """`file_type` is the name that documents bear; `needs`: the modules without which its `extra`
    is not installed. `reader`: a toolset's function that makes Markdown of the bytes.
    """

    file_type: str
    where: ConverterPlace
    suffixes: tuple[str, ...]
    media_types: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    extra: str = "convert"
    reader: str = ""


_OPEN_XML = "application/vnd.openxmlformats-officedocument"
_MARKITDOWN = "markitdown"

FORMATS = (
    Format("markdown", "here", (".md", ".markdown"), ("text/markdown", "text/x-markdown")),
    Format("text", "here", (".txt",), ("text/plain",)),
    Format("rst", "here", (".rst",), ("text/x-rst", "text/prs.fallenstein.rst")),
    Format("html", "child", (".html", ".htm", ".xhtml"), ("text/html", "application/xhtml+xml")),
    Format("asciidoc", "here", (".adoc", ".asciidoc"), ("text/asciidoc", "text/x-asciidoc")),
    Format("mdx", "here", (".mdx",), ("text/mdx",)),
    Format("org", "here", (".org",), ("text/org", "text/x-org")),
    Format("mediawiki", "here", (".mediawiki", ".wiki")),
    Format("textile", "here", (".textile",)),
    Format("man", "here", (*(f".{section}" for section in range(1, 10)), ".mdoc"), ("text/troff",)),
    Format("yaml", "here", (".yaml", ".yml"), ("application/yaml", "text/yaml", "application/x-yaml")),
    Format("csv", "child", (".csv", ".tsv"), ("text/csv", "text/tab-separated-values")),
    Format(
        "json",
        "child",
        (".json", ".jsonl", ".ndjson"),
        ("application/json", "text/json", "application/jsonl", "application/x-ndjson"),
    ),
    Format("xml", "child", (".xml",), ("application/xml", "text/xml")),
    Format("notebook", "child", (".ipynb",), ("application/x-ipynb+json",)),
    Format("pdf", "extra", (".pdf",), ("application/pdf",), ("pypdfium2",), "pdf"),
    Format("docx", "extra", (".docx",), (f"{_OPEN_XML}.wordprocessingml.document",), (_MARKITDOWN, "mammoth")),
    Format("pptx", "extra", (".pptx",), (f"{_OPEN_XML}.presentationml.presentation",), (_MARKITDOWN, "pptx")),
    Format("xlsx", "extra", (".xlsx",), (f"{_OPEN_XML}.spreadsheetml.sheet",), ("openpyxl",)),
    Format("epub", "extra", (".epub",), ("application/epub+zip",), (_MARKITDOWN,)),
)

_NO_MANUAL = re.compile(r"(?:\d|\.(?:log|so|out|bak|old))\Z")
"""End of a file name before a number that is not the section of a manual: `app.log.1`, `v1.2`."""

_BY_SUFFIX = {suffix: each for each in FORMATS for suffix in each.suffixes}
_BY_MEDIA_TYPE = {media_type: each for each in FORMATS for media_type in each.media_types}
_UNSPECIFIC = frozenset(("", "text/plain", "application/octet-stream", "binary/octet-stream", "application/zip"))
"""What servers say of a file that they do not know; its name tells more."""


def find_by_suffix(name: str) -> Format | None:
    """The format that the ending of a file's name tells, whatever its case: one of ours, or else
    one that a toolset reads.
    """
    suffix = _suffix(strip_template_suffix(name))
    return _BY_SUFFIX.get(suffix) or (_of_toolsets().get(suffix) if suffix else None)


def find_built_in(name: str) -> Format | None:
    """As `by_suffix`, without the formats of toolsets, which take long to find."""
    return _BY_SUFFIX.get(_suffix(strip_template_suffix(name)))


TEMPLATES = frozenset(
    ".ejs .eex .erb .gotmpl .hbs .in .j2 .jinja .jinja2 .liquid .mustache .njk .template .tmpl .tpl".split()
)
"""Endings of templates, which follow the ending of the file that a template generates."""


def strip_template_suffix(name: str) -> str:
    """Return the name of the file that a template generates: `README.md` for `README.md.erb`.

    Other names, and names of templates for files that are not text, stay as they are.
    """
    stem, suffix = os.path.splitext(name)  # noqa: PTH122  a path costs a tenth of reading a file
    if suffix.lower() not in TEMPLATES:
        return name
    known = _BY_SUFFIX.get(_suffix(stem))
    return stem if known and known.where == "here" else name


@functools.cache
def _of_toolsets() -> Mapping[str, Format]:
    from vmrag_link import toolset  # nothing waits for it that has only files of ours

    return {
        suffix: Format(suffix.removeprefix("."), "child", (suffix,), reader=each.absolute(reference))
        for each in toolset.installed().toolsets.values()
        for suffix, reference in each.documents.items()
    }


def _suffix(name: str) -> str:
    stem, suffix = os.path.splitext(name)  # noqa: PTH122  a path costs a tenth of reading a file
    if suffix[1:].isdigit() and _NO_MANUAL.search(stem):
        return ""
    return suffix.lower()


def detect_format(name: str, media_type: str = "") -> Format:
    """A media type that says something goes before the name: a login page may be called `x.pdf`.

    Raises `FormatUnsupported` for a format that cannot be converted, or not without the extra.
    """
    media_type = media_type.partition(";")[0].strip().lower()
    if media_type in _UNSPECIFIC:
        found = find_by_suffix(name) or _BY_MEDIA_TYPE.get(media_type)
    else:
        found = _BY_MEDIA_TYPE.get(media_type) or _by_structure(media_type) or find_by_suffix(name)
    if found is None:
        raise _unsupported(name, media_type)
    if why := find_missing_extra(found):
        hint = extras.format_install_command(found.extra)
        raise FormatUnsupported(f"{escape_line(name)} {why}.", hint=hint, reason=why, file_type=found.file_type)
    return found


@functools.cache
def find_missing_extra(found: Format) -> str:
    """What a file of this format lacks here to be converted, to follow its name; empty if
    nothing.
    """
    if all(importlib.util.find_spec(need) for need in found.needs):
        return ""
    return f"needs the extra {found.extra!r} to be read ({extras.format_install_command(found.extra)})"


def _by_structure(media_type: str) -> Format | None:
    """`application/rss+xml` is XML. Pictures in XML are not meant."""
    if media_type.startswith("image/"):
        return None
    suffix = media_type.rpartition("+")[2] if "+" in media_type else ""
    return _BY_SUFFIX.get(f".{suffix}") if suffix in ("xml", "json") else None


def _unsupported(name: str, media_type: str) -> FormatUnsupported:
    kind = media_type if media_type not in _UNSPECIFIC else _suffix(name)
    reason = f"is {escape_line(shortened(kind))}, which cannot be converted" if kind else "has no file type"
    return FormatUnsupported(
        f"{escape_line(name)} {reason}.",
        hint=f"These can: {', '.join(each.file_type for each in FORMATS)}. Convert it to one of them first.",
        reason=reason,
    )


_META_WITHIN = 1024
_META_CHARSET = rb"(?i)<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_:.-]{1,40})"
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


def decode_text(data: bytes, charset: str = "", *, is_html: bool = False) -> str:
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
        declared = re.search(_META_CHARSET, data[:_META_WITHIN]) if is_html else None
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
