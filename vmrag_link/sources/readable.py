"""Read the text of a file, or the reason why it has none.

The text of a Jupyter notebook is its cells, as Markdown. Their output is ignored.
"""

from __future__ import annotations

import codecs
import posixpath
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from vmrag_link.conversion.formats import decode_text, find_built_in
from vmrag_link.conversion.limits import BINARY_WITHIN, ContentUnreadable
from vmrag_link.sources.listings import TreeFile
from vmrag_link.sources.rules import NOTEBOOK

LFS_POINTER = b"version https://git-lfs.github.com/spec/v1"
POINTER_BYTES = 1024
_MARKED_WITHIN = 1000
_MAX_LINE_CHARACTERS = 20_000

_GENERATED = re.compile(r"^[^\w\n]{0,20}@generated\b|^.{0,20}\bCode generated\b.{0,200}\bDO NOT EDIT\b", re.MULTILINE)
"""Marks in comments. Prose may mention such words elsewhere."""

# UTF-32's mark first, because it begins with UTF-16's.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class SourceText(NamedTuple):
    """Text of a file with line feeds only, without byte order mark and NUL.

    Without `text`, the file is left out, and `reason` completes `PATH is left out: it …`.
    """

    text: str | None
    reason: str = ""


def convert_blob(file: TreeFile, data: bytes) -> SourceText:
    """Return the text of a file. `data`: all bytes of its blob, which are UTF-8 even if the file
    has another encoding.
    """
    if len(data) < POINTER_BYTES and data.startswith(LFS_POINTER):
        return SourceText(None, "is kept in Git LFS")
    try:
        text = decode_file_text(data)
        if is_notebook(file.path):
            text = read_cells(text, file.text_limit)
    except ContentUnreadable as error:
        return SourceText(None, str(error))
    if not text.strip():
        return SourceText(None, "has no text")
    if not file.handwritten and _GENERATED.search(text, 0, _MARKED_WITHIN):
        return SourceText(None, "is marked as generated")
    if not file.handwritten and _is_dense(file.path, text):
        return SourceText(None, f"has a line of more than {_MAX_LINE_CHARACTERS:,} characters")
    return SourceText(text)


def decode_file_text(data: bytes, encoding: str = "") -> str:
    """Return the text of a file. Raises `ContentUnreadable`."""
    marked = detect_encoding(data)
    if not (marked or encoding) and b"\0" in data[:BINARY_WITHIN]:
        raise ContentUnreadable("is not text")
    text = decode_text(data, marked or encoding)
    return text.replace("\r\n", "\n") if "\r" in text else text


def detect_encoding(data: bytes) -> str:
    """Return the encoding of a byte order mark other than UTF-8's, or an empty text."""
    return next((name for mark, name in _MARKS if data.startswith(mark)), "")


def is_notebook(path: str) -> bool:
    return path.lower().endswith(".ipynb")


def _is_dense(path: str, text: str) -> bool:
    """Return whether a file has a very long line. Only prose has such handwritten lines: a
    paragraph, or a picture.
    """
    file_format = find_built_in(posixpath.basename(path))
    if len(text) <= _MAX_LINE_CHARACTERS or (
        file_format is not None and (file_format.where == "here" or file_format.file_type == NOTEBOOK)
    ):
        return False
    return max(map(len, text.split("\n"))) > _MAX_LINE_CHARACTERS


_MAX_NOTEBOOK_CHARACTERS = 4_000_000
"""Maximum characters of a notebook without pictures. An empty cell takes 3 characters, and 90 bytes
of memory.
"""

_LARGE_NOTEBOOK_CHARACTERS = 100_000
"""Characters above which a notebook may have pictures, and a value is data."""

_ENCODED = re.compile(r"(?<![A-Za-z0-9+/])(?:[A-Za-z0-9+/]|\\n){1000,}+={0,2}")
_VALUE = re.compile(r'(?<!\\)"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)

_MAX_CELLS = 20_000
_LANGUAGE = re.compile(r"[\w+#-]{1,40}")
_PICTURE = re.compile(r"data:[\w.+-]{1,50}/[\w.+-]{1,100}(?:;[\w=.-]{1,50}){0,5};base64,[A-Za-z0-9+/=%\s]*+")


def read_cells(text: str, limit: int = 0) -> str:
    """Return the cells of a notebook as Markdown, code in fences.

    Raises `ContentUnreadable`, also for more than `limit` bytes of text if `limit` is not 0.
    """
    if len(text) > _LARGE_NOTEBOOK_CHARACTERS:
        text = _discard_pictures(text)
    if len(text) > _MAX_NOTEBOOK_CHARACTERS:
        raise ContentUnreadable(f"has more than {_MAX_NOTEBOOK_CHARACTERS:,} characters besides its pictures")
    try:
        notebook = _as_mapping(msgspec.json.decode(text))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ContentUnreadable(f"is not a notebook ({error})") from None
    cells = [
        item
        for sheet in (notebook, *_as_list(notebook.get("worksheets")))
        for item in _as_list(_as_mapping(sheet).get("cells"))
    ]
    if not cells and not any(
        "cells" in _as_mapping(item) for item in (notebook, *_as_list(notebook.get("worksheets")))
    ):
        raise ContentUnreadable("is not a notebook (it has no cells)")
    if len(cells) > _MAX_CELLS:
        raise ContentUnreadable(f"has more than {_MAX_CELLS:,} cells")
    blocks = _format_cells(map(_as_mapping, cells), _find_language(_as_mapping(notebook.get("metadata"))))
    content = "\n\n".join(blocks).replace("\0", "\ufffd")  # JSON writes it as an escape
    if limit and len(content.encode(errors="replace")) > limit:
        raise ContentUnreadable(f"has text of more than {limit:,} bytes")
    return content


def _discard_pictures(text: str) -> str:
    """Return the JSON of a notebook without encoded data. If it is still long, values that are
    longer than cells are also removed, such as plots in HTML.
    """
    text = _ENCODED.sub("", text)
    if len(text) <= _MAX_NOTEBOOK_CHARACTERS:
        return text
    return _VALUE.sub(lambda value: value[0] if len(value[0]) <= _LARGE_NOTEBOOK_CHARACTERS else '""', text)


def _format_cells(cells: Iterator[dict[str, Any]], language: str) -> Iterator[str]:
    for cell in cells:
        source = _join_lines(cell.get("source", cell.get("input"))).replace("\r\n", "\n").strip("\n")
        if not source.strip():
            continue
        match cell.get("cell_type"):
            case "code":
                fence = "`" * (max(map(len, re.findall("`{3,}", source)), default=2) + 1)
                yield f"{fence}{language}\n{source}\n{fence}"
            case "heading":
                level = cell.get("level")
                yield f"{'#' * (level if isinstance(level, int) and 1 <= level <= 6 else 1)} {source}"  # noqa: PLR2004
            case _:
                yield _PICTURE.sub("", source) if "base64," in source else source


def _find_language(metadata: dict[str, Any]) -> str:
    for place, name in (("language_info", "name"), ("kernelspec", "language")):
        language = _as_mapping(metadata.get(place)).get(name)
        if isinstance(language, str) and _LANGUAGE.fullmatch(language):
            return language
    return ""


def _as_mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _join_lines(value: Any) -> str:
    """Return a text that a notebook may store as a list of its lines."""
    return "".join(part for part in (value if isinstance(value, list) else [value]) if isinstance(part, str))
