"""JSON, JSON Lines and Jupyter notebooks as text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from vmrag_link.conversion.formats import decode_text
from vmrag_link.conversion.limits import ContentUnreadable
from vmrag_link.conversion.reading import MAX_LEVELS, FileText, Outline, convert_text, make_path_part, too_deep


class _Pairs(list[tuple[str, Any]]):
    """An object with all its pairs in their order; a name may come twice."""


def convert_json(data: bytes, charset: str, limit: int) -> FileText:
    """One line a value, `names.that.lead.there: value`; an object in a list is a paragraph.

    A list of values without names is one line. The title is what the outermost object calls so.
    Raises `ContentUnreadable`.
    """
    outline = Outline(limit)
    values = _values(decode_text(data, charset))
    title = _title(values[0]) if len(values) == 1 else ""
    for value in values:
        outline.begin_paragraph()
        _add(outline, "", value, 0)
    return FileText(title, outline.text(), {})


def parse_json(text: str) -> Any:
    """Objects are `_Pairs`. Numbers are texts: 1.10 and 12345678901234567890 stay what they are.

    Raises `ContentUnreadable`.
    """
    try:
        return _decoder().decode(text)
    except RecursionError:
        raise too_deep() from None
    except ValueError as error:
        raise ContentUnreadable(f"is no JSON ({error})") from None


def _decoder() -> json.JSONDecoder:
    return json.JSONDecoder(object_pairs_hook=_Pairs, parse_int=str, parse_float=str, parse_constant=str)


def _values(text: str) -> list[Any]:
    """The one value of JSON, or those of the lines of JSON Lines."""
    try:
        return [parse_json(text)]
    except ContentUnreadable:
        lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        if len(lines) < 2 or not _is_value(lines[0][1]):  # noqa: PLR2004  one line is JSON
            raise
    values = []
    for number, line in lines:
        try:
            values.append(parse_json(line))
        except ContentUnreadable as error:
            raise ContentUnreadable(f"line {number}: {error.reason}") from None
    return values


def _is_value(line: str) -> bool:
    try:
        parse_json(line)
    except ContentUnreadable:
        return False
    return True


def _title(value: Any) -> str:
    if isinstance(value, _Pairs):
        for name, each in value:
            if name == "title" and isinstance(each, str):
                return " ".join(each.split())
    return ""


def _add(outline: Outline, path: str, value: Any, level: int) -> None:
    if level > MAX_LEVELS:
        raise too_deep()
    if isinstance(value, _Pairs) and value:
        _add_object(outline, path, value, level)
    elif isinstance(value, list) and value:
        if any(isinstance(each, list) for each in value):
            _add_list(outline, path, value, level)
        else:
            outline.add_value(path, ", ".join(map(_scalar, value)))
    else:
        outline.add_value(path, _scalar(value))


def _add_object(outline: Outline, path: str, value: _Pairs, level: int) -> None:
    """The parts of the outermost object are paragraphs."""
    for name, each in value:
        apart = level == 0 and isinstance(each, list) and bool(each)
        if apart:
            outline.begin_paragraph()
        _add(outline, f"{path}.{make_path_part(name)}" if path else make_path_part(name), each, level + 1)
        if apart:
            outline.begin_paragraph()


def _add_list(outline: Outline, path: str, values: list[Any], level: int) -> None:
    for value in values:
        if isinstance(value, _Pairs):
            outline.begin_paragraph()
        _add(outline, path, value, level + 1)
        if isinstance(value, _Pairs):
            outline.begin_paragraph()


def _scalar(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case _Pairs():
            return "{}"
        case list():
            return "[]"
        case _:
            return str(value)


_DATA_URI = re.compile(r"data:[\w.+-]{1,50}/[\w.+-]{1,100}(?:;[\w=.-]{1,50}){0,5};base64,[A-Za-z0-9+/=%\s]*+")
_TERMINAL_CODES = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")
_LEVELS = 6
_OUTPUT_FORMS = ("text/markdown", "text/plain")
"""Of one output in several forms, the first that is there. Pictures and widgets have no other."""


def convert_notebook(data: bytes, charset: str, limit: int) -> FileText:
    """Code and outputs stand in fences; pictures are left out.

    A raw first cell may hold front matter. Raises `ContentUnreadable`.
    """
    import msgspec

    try:
        notebook = msgspec.json.decode(decode_text(data, charset))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ContentUnreadable(f"is no notebook ({error})") from None
    cells = list(_cells(notebook))
    metadata = _mapping(_mapping(notebook).get("metadata"))
    outline = Outline(limit)
    for cell in cells:
        for block in _blocks(cell, _language(metadata)):
            outline.begin_paragraph()
            outline.add_line(block)
    found = convert_text(outline.text(), "markdown")
    title = metadata.get("title")
    return FileText(" ".join(title.split()) if isinstance(title, str) else found.title, found.content, found.metadata)


def _cells(notebook: Any) -> Iterator[dict[str, Any]]:
    """Those of format 4, or of the worksheets of format 3."""
    sheets = [notebook, *_list(_mapping(notebook).get("worksheets"))]
    if not any("cells" in _mapping(sheet) for sheet in sheets):
        raise ContentUnreadable("is no notebook (it has no cells)")
    for sheet in sheets:
        yield from map(_mapping, _list(_mapping(sheet).get("cells")))


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
    for media_type in _OUTPUT_FORMS:
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
    return "".join(line for line in lines if isinstance(line, str))
