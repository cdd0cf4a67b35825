"""JSON and JSON Lines as text."""

from __future__ import annotations

import json
from typing import Any

from vmrag_link.conversion.child.outline import MAX_LEVELS, Outline, path_part, too_deep
from vmrag_link.conversion.reading import FileText
from vmrag_link.conversion.text_bytes import decode
from vmrag_link.conversion.unreadable import ContentUnreadable


class _Pairs(list[tuple[str, Any]]):
    """An object with all its pairs in their order; a name may come twice."""


def json_text(data: bytes, charset: str, limit: int) -> FileText:
    """One line a value, `names.that.lead.there: value`; an object in a list is a paragraph.

    A list of values without names is one line. The title is what the outermost object calls so.
    Raises `ContentUnreadable`.
    """
    outline = Outline(limit)
    values = _values(decode(data, charset))
    title = _title(values[0]) if len(values) == 1 else ""
    for value in values:
        outline.paragraph()
        _add(outline, "", value, 0)
    return FileText(title, outline.text(), {})


def parse(text: str) -> Any:
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
        return [parse(text)]
    except ContentUnreadable:
        lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        if len(lines) < 2 or not _is_value(lines[0][1]):  # noqa: PLR2004  one line is JSON
            raise
    values = []
    for number, line in lines:
        try:
            values.append(parse(line))
        except ContentUnreadable as error:
            raise ContentUnreadable(f"line {number}: {error.reason}") from None
    return values


def _is_value(line: str) -> bool:
    try:
        parse(line)
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
            outline.value(path, ", ".join(map(_scalar, value)))
    else:
        outline.value(path, _scalar(value))


def _add_object(outline: Outline, path: str, value: _Pairs, level: int) -> None:
    """The parts of the outermost object are paragraphs."""
    for name, each in value:
        apart = level == 0 and isinstance(each, list) and bool(each)
        if apart:
            outline.paragraph()
        _add(outline, f"{path}.{path_part(name)}" if path else path_part(name), each, level + 1)
        if apart:
            outline.paragraph()


def _add_list(outline: Outline, path: str, values: list[Any], level: int) -> None:
    for each in values:
        if isinstance(each, _Pairs):
            outline.paragraph()
        _add(outline, path, each, level + 1)
        if isinstance(each, _Pairs):
            outline.paragraph()


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
