"""The formats that can be converted, how to find the format of a file by its name or media type,
and how to decode its bytes.
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
"""The process that converts a format: `here`, this process, if the text is stored unchanged;
`child`, the child process, because an untrusted file may keep a parser busy for hours; `extra`, the
child process with packages of an extra.
"""


class Format(Record, frozen=True):
    """A format of files."""

    file_type: str
    """The name of the format in documents."""

    where: ConverterPlace
    suffixes: tuple[str, ...]
    media_types: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    """Modules of the `extra`."""

    extra: str = "convert"
    reader: str = ""
    """A function of a toolset that converts the bytes to Markdown."""


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
    Format(
        file_type="pdf",
        where="extra",
        suffixes=(".pdf",),
        media_types=("application/pdf",),
        needs=("pypdfium2",),
        extra="pdf",
    ),
    Format("docx", "extra", (".docx",), (f"{_OPEN_XML}.wordprocessingml.document",), (_MARKITDOWN, "mammoth")),
    Format("pptx", "extra", (".pptx",), (f"{_OPEN_XML}.presentationml.presentation",), (_MARKITDOWN, "pptx")),
    Format("xlsx", "extra", (".xlsx",), (f"{_OPEN_XML}.spreadsheetml.sheet",), ("openpyxl",)),
    Format("epub", "extra", (".epub",), ("application/epub+zip",), (_MARKITDOWN,)),
)

_NOT_MANUAL = re.compile(r"(?:\d|\.(?:log|so|out|bak|old))\Z")
"""End of a file name before a number that is not the section of a manual: `app.log.1`, `v1.2`."""

_BY_SUFFIX = {suffix: file_format for file_format in FORMATS for suffix in file_format.suffixes}
_BY_MEDIA_TYPE = {media_type: file_format for file_format in FORMATS for media_type in file_format.media_types}
_UNSPECIFIC = frozenset(("", "text/plain", "application/octet-stream", "binary/octet-stream", "application/zip"))
"""Media types that servers send for unknown files. The name of the file is more specific."""


def find_by_suffix(name: str) -> Format | None:
    """Return the format for the suffix of a file name in any case: a built-in format, or else one
    of a toolset.
    """
    suffix = _read_suffix(strip_template_suffix(name))
    return _BY_SUFFIX.get(suffix) or (_load_toolset_formats().get(suffix) if suffix else None)


def find_built_in(name: str) -> Format | None:
    """Return the built-in format for the suffix of a file name. Formats of toolsets take long to
    find.
    """
    return _BY_SUFFIX.get(_read_suffix(strip_template_suffix(name)))


TEMPLATES = frozenset(
    ".ejs .eex .erb .gotmpl .hbs .in .j2 .jinja .jinja2 .liquid .mustache .njk .template .tmpl .tpl".split()
)
"""Suffixes of templates. They follow the suffix of the file that a template generates."""


def strip_template_suffix(name: str) -> str:
    """Return the name of the file that a template generates: `README.md` for `README.md.erb`.

    Other names, and names of templates for files that are not text, stay unchanged.
    """
    stem, suffix = os.path.splitext(name)  # noqa: PTH122  creating a path takes a tenth of the time of reading a file
    if suffix.lower() not in TEMPLATES:
        return name
    file_format = _BY_SUFFIX.get(_read_suffix(stem))
    return stem if file_format and file_format.where == "here" else name


@functools.cache
def _load_toolset_formats() -> Mapping[str, Format]:
    from vmrag_link import toolset  # files of built-in formats do not need it

    return {
        suffix: Format(suffix.removeprefix("."), "child", (suffix,), reader=installed.absolute(reference))
        for installed in toolset.installed().toolsets.values()
        for suffix, reference in installed.documents.items()
    }


def _read_suffix(name: str) -> str:
    stem, suffix = os.path.splitext(name)  # noqa: PTH122  creating a path takes a tenth of the time of reading a file
    if suffix[1:].isdigit() and _NOT_MANUAL.search(stem):
        return ""
    return suffix.lower()


def detect_format(name: str, media_type: str = "") -> Format:
    """Return the format of a file.

    A specific media type takes precedence over the name, because a login page may have the name
    `x.pdf`. Raises `FormatUnsupported` for a format that cannot be converted, or that needs a
    missing extra.
    """
    media_type = media_type.partition(";")[0].strip().lower()
    if media_type in _UNSPECIFIC:
        file_format = find_by_suffix(name) or _BY_MEDIA_TYPE.get(media_type)
    else:
        file_format = _BY_MEDIA_TYPE.get(media_type) or _find_by_structure(media_type) or find_by_suffix(name)
    if file_format is None:
        raise _make_unsupported_error(name, media_type)
    if missing := find_missing_extra(file_format):
        hint = extras.suggest_install(file_format.extra)
        raise FormatUnsupported(
            f"{escape_line(name)} {missing}.", hint=hint, reason=missing, file_type=file_format.file_type
        )
    return file_format


@functools.cache
def find_missing_extra(file_format: Format) -> str:
    """Return which extra a format needs, to follow the name of a file; empty if nothing is
    missing.
    """
    if all(importlib.util.find_spec(module) for module in file_format.needs):
        return ""
    return f"needs the extra {file_format.extra!r} to be read ({extras.format_install_command(file_format.extra)})"


def _find_by_structure(media_type: str) -> Format | None:
    """Return the format of a structured media type: XML for `application/rss+xml`. Images in XML
    are excluded.
    """
    if media_type.startswith("image/"):
        return None
    suffix = media_type.rpartition("+")[2] if "+" in media_type else ""
    return _BY_SUFFIX.get(f".{suffix}") if suffix in ("xml", "json") else None


def _make_unsupported_error(name: str, media_type: str) -> FormatUnsupported:
    kind = media_type if media_type not in _UNSPECIFIC else _read_suffix(name)
    reason = f"is {escape_line(shortened(kind))}, which cannot be converted" if kind else "has no file type"
    return FormatUnsupported(
        f"{escape_line(name)} {reason}.",
        hint=f"convert it to one of these formats first: {', '.join(file_format.file_type for file_format in FORMATS)}",
        reason=reason,
    )


_META_WITHIN = 1024
_META_CHARSET = rb"(?i)<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_:.-]{1,40})"
"""Browsers also search it in the first 1024 bytes."""

_CHARSETS = frozenset(
    (
        "utf-8 utf-16 utf-16-le utf-16-be utf-32 ascii iso8859-1 cp874 cp866 koi8-r koi8-u mac-roman mac-cyrillic gb2312 gbk gb18030 "
        "big5 big5hkscs euc_jp iso2022_jp shift_jis cp932 euc_kr cp949 johab"
    ).split()
) | {f"{family}{number}" for family, numbers in (("iso8859-", range(2, 17)), ("cp125", range(9))) for number in numbers}
"""Python's names of the encodings of pages and files. Other encodings have other purposes, and some
of them take quadratic time.
"""

_LATIN = ("ascii", "iso8859-1")
"""Pages with these encodings are Windows-1252, like in browsers."""


def decode_text(data: bytes, charset: str = "", *, is_html: bool = False) -> str:
    """Return the text without a byte order mark.

    Without a `charset`, the encoding is UTF-8, or for a page that is not UTF-8, the one in its
    `<meta>`. Raises `ContentUnreadable` for other bytes, and for a NUL, which no engine stores.
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
        if declared is None or (name := _find_python_name(declared[1].decode())) in (None, "utf-8"):
            raise ContentUnreadable(f"is not UTF-8 (byte {error.start})") from None
        return _decode_as(data, name)


def _decode_as(data: bytes, charset: str) -> str:
    name = _find_python_name(charset)
    if name is None:
        raise ContentUnreadable(f"has the unknown encoding {charset!r}")
    if name in _LATIN:
        try:
            return data.decode("cp1252")
        except UnicodeDecodeError:  # cp1252 does not define five bytes
            return data.decode("latin-1")
    try:
        return data.decode(name)
    except UnicodeDecodeError as error:
        raise ContentUnreadable(f"is not {charset} (byte {error.start})") from None


def _find_python_name(charset: str) -> str | None:
    try:
        name = codecs.lookup(charset).name
    except (LookupError, ValueError):
        return None
    return name if name in _CHARSETS else None
