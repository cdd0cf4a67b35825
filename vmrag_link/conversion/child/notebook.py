"""Jupyter notebooks as Markdown: cells, and what they printed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from vmrag_link.conversion.child.outline import Outline
from vmrag_link.conversion.reading import FileText, page
from vmrag_link.conversion.text_bytes import decode
from vmrag_link.conversion.unreadable import ContentUnreadable

_DATA_URI = re.compile(r"data:[\w.+-]{1,50}/[\w.+-]{1,100}(?:;[\w=.-]{1,50}){0,5};base64,[A-Za-z0-9+/=%\s]*+")
_TERMINAL_CODES = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")
_LEVELS = 6
_SHOWN = ("text/markdown", "text/plain")
"""Of one output in several forms, the first that is there. Pictures and widgets have no other."""


def notebook_text(data: bytes, charset: str, limit: int) -> FileText:
    """Code and outputs stand in fences; pictures are left out.

    A raw first cell may hold front matter. Raises `ContentUnreadable`.
    """
    import msgspec

    try:
        notebook = msgspec.json.decode(decode(data, charset))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ContentUnreadable(f"is no notebook ({error})") from None
    cells = list(_cells(notebook))
    metadata = _mapping(_mapping(notebook).get("metadata"))
    outline = Outline(limit)
    for cell in cells:
        for block in _blocks(cell, _language(metadata)):
            outline.paragraph()
            outline.line(block)
    found = page(outline.text(), "markdown")
    title = metadata.get("title")
    return FileText(" ".join(title.split()) if isinstance(title, str) else found.title, found.content, found.metadata)


def _cells(notebook: Any) -> Iterator[dict[str, Any]]:
    """Those of format 4, or of the worksheets of format 3."""
    sheets = [notebook, *_list(_mapping(notebook).get("worksheets"))]
    if not any("cells" in _mapping(each) for each in sheets):
        raise ContentUnreadable("is no notebook (it has no cells)")
    for each in sheets:
        yield from map(_mapping, _list(_mapping(each).get("cells")))


def _language(metadata: dict[str, Any]) -> str:
    for place, name in (("language_info", "name"), ("kernelspec", "language")):
        if re.fullmatch(r"[\w+#-]{1,40}", language := _joined(_mapping(metadata.get(place)).get(name))):
            return language
    return ""


def _blocks(cell: dict[str, Any], language: str) -> Iterator[str]:
    source = _joined(cell.get("source", cell.get("input"))).strip("\n")
    match cell.get("cell_type"):
        case "code":
            if source:
                yield _fenced(source, language)
            yield from filter(None, map(_output, map(_mapping, _list(cell.get("outputs")))))
        case "heading":
            level = cell.get("level")
            yield f"{'#' * (level if isinstance(level, int) and 1 <= level <= _LEVELS else 1)} {source}"
        case _:
            if text := _without_pictures(source):
                yield text


def _output(output: dict[str, Any]) -> str:
    """What a cell printed, in a fence unless it is Markdown; empty for a picture."""
    if output.get("output_type") in ("error", "pyerr"):
        trace = "\n".join(_joined(line) for line in _list(output.get("traceback")))
        return _fenced(trace or f"{_joined(output.get('ename'))}: {_joined(output.get('evalue'))}")
    forms = _mapping(output.get("data")) or {"text/plain": output.get("text")}
    for media_type in _SHOWN:
        if text := _joined(forms.get(media_type)):
            return _without_pictures(text).strip("\n") if media_type == "text/markdown" else _fenced(text)
    return ""


def _fenced(text: str, language: str = "") -> str:
    """A fence longer than all within. Codes for terminals are no text, nor are pictures."""
    text = _without_pictures(_TERMINAL_CODES.sub("", text)).strip("\n")
    longest = max(map(len, re.findall("`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}" if text else ""


def _without_pictures(text: str) -> str:
    return _DATA_URI.sub("", text) if "base64," in text else text


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _joined(value: Any) -> str:
    """A text, which notebooks may write as a list of its lines."""
    lines: Iterable[Any] = value if isinstance(value, list) else [value]
    return "".join(each for each in lines if isinstance(each, str))
