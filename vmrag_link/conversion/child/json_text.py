"""Convert JSON, JSON Lines and Jupyter notebooks to text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from vmrag_link.conversion.child.text_builder import MAX_LEVELS, TextBuilder, make_path_part, too_deep
from vmrag_link.conversion.formats import decode_text
from vmrag_link.conversion.limits import ContentUnreadable
from vmrag_link.conversion.reading import FileText, convert_text


class _Pairs(list[tuple[str, Any]]):
    """An object as its pairs in their order. A name may occur twice."""


def convert_json(data: bytes, charset: str, limit: int) -> FileText:
    """Return one line for each value: `names.leading.to.it: value`. An object in a list is a
    paragraph.

    A list of values without names is one line. The title is the value `title` of the outermost
    object. Raises `ContentUnreadable`.
    """
    builder = TextBuilder(limit)
    values = _parse_values(decode_text(data, charset))
    title = _find_title(values[0]) if len(values) == 1 else ""
    for value in values:
        builder.begin_paragraph()
        _add_value(builder, "", value, 0)
    return FileText(title, builder.text(), {})


def parse_json(text: str) -> Any:
    """Parse JSON. Objects become `_Pairs`. Numbers become texts, so 1.10 and 12345678901234567890
    stay exact.

    Raises `ContentUnreadable`.
    """
    try:
        return _make_decoder().decode(text)
    except RecursionError:
        raise too_deep() from None
    except ValueError as error:
        raise ContentUnreadable(f"is not JSON ({error})") from None


def _make_decoder() -> json.JSONDecoder:
    return json.JSONDecoder(object_pairs_hook=_Pairs, parse_int=str, parse_float=str, parse_constant=str)


def _parse_values(text: str) -> list[Any]:
    """Return the value of JSON, or the values of the lines of JSON Lines."""
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


def _find_title(value: Any) -> str:
    if isinstance(value, _Pairs):
        for name, item in value:
            if name == "title" and isinstance(item, str):
                return " ".join(item.split())
    return ""


def _add_value(builder: TextBuilder, path: str, value: Any, level: int) -> None:
    if level > MAX_LEVELS:
        raise too_deep()
    if isinstance(value, _Pairs) and value:
        _add_object(builder, path, value, level)
    elif isinstance(value, list) and value:
        if any(isinstance(item, list) for item in value):
            _add_list(builder, path, value, level)
        else:
            builder.add_value(path, ", ".join(map(_format_scalar, value)))
    else:
        builder.add_value(path, _format_scalar(value))


def _add_object(builder: TextBuilder, path: str, value: _Pairs, level: int) -> None:
    """Add the items of an object. Lists in the outermost object are paragraphs."""
    for name, item in value:
        is_paragraph = level == 0 and isinstance(item, list) and bool(item)
        if is_paragraph:
            builder.begin_paragraph()
        _add_value(builder, f"{path}.{make_path_part(name)}" if path else make_path_part(name), item, level + 1)
        if is_paragraph:
            builder.begin_paragraph()


def _add_list(builder: TextBuilder, path: str, values: list[Any], level: int) -> None:
    for value in values:
        if isinstance(value, _Pairs):
            builder.begin_paragraph()
        _add_value(builder, path, value, level + 1)
        if isinstance(value, _Pairs):
            builder.begin_paragraph()


def _format_scalar(value: Any) -> str:
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
"""Media types of outputs, the preferred one first. Pictures and widgets have no other."""


def convert_notebook(data: bytes, charset: str, limit: int) -> FileText:
    """Return a notebook as Markdown. Code and outputs are in fences, and pictures are left out.

    A raw first cell may contain front matter. Raises `ContentUnreadable`.
    """
    import msgspec

    try:
        notebook = msgspec.json.decode(decode_text(data, charset))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ContentUnreadable(f"is not a notebook ({error})") from None
    cells = list(_list_cells(notebook))
    metadata = _as_mapping(_as_mapping(notebook).get("metadata"))
    builder = TextBuilder(limit)
    for cell in cells:
        for block in _list_blocks(cell, _find_language(metadata)):
            builder.begin_paragraph()
            builder.add_line(block)
    document = convert_text(builder.text(), "markdown")
    title = metadata.get("title")
    return FileText(
        " ".join(title.split()) if isinstance(title, str) else document.title, document.content, document.metadata
    )


def _list_cells(notebook: Any) -> Iterator[dict[str, Any]]:
    """Yield the cells of format 4, or of the worksheets of format 3."""
    sheets = [notebook, *_as_list(_as_mapping(notebook).get("worksheets"))]
    if not any("cells" in _as_mapping(sheet) for sheet in sheets):
        raise ContentUnreadable("is not a notebook (it has no cells)")
    for sheet in sheets:
        yield from map(_as_mapping, _as_list(_as_mapping(sheet).get("cells")))


def _find_language(metadata: dict[str, Any]) -> str:
    for section, name in (("language_info", "name"), ("kernelspec", "language")):
        if re.fullmatch(r"[\w+#-]{1,40}", language := _join_lines(_as_mapping(metadata.get(section)).get(name))):
            return language
    return ""


def _list_blocks(cell: dict[str, Any], language: str) -> Iterator[str]:
    source = _join_lines(cell.get("source", cell.get("input"))).strip("\n")
    match cell.get("cell_type"):
        case "code":
            if source:
                yield _fence_text(source, language)
            yield from filter(None, map(_format_output, map(_as_mapping, _as_list(cell.get("outputs")))))
        case "heading":
            level = cell.get("level")
            yield f"{'#' * (level if isinstance(level, int) and 1 <= level <= _LEVELS else 1)} {source}"
        case _:
            if text := _remove_pictures(source):
                yield text


def _format_output(output: dict[str, Any]) -> str:
    """Return the output of a cell, in a fence unless it is Markdown; empty for a picture."""
    if output.get("output_type") in ("error", "pyerr"):
        trace = "\n".join(_join_lines(line) for line in _as_list(output.get("traceback")))
        return _fence_text(trace or f"{_join_lines(output.get('ename'))}: {_join_lines(output.get('evalue'))}")
    forms = _as_mapping(output.get("data")) or {"text/plain": output.get("text")}
    for media_type in _OUTPUT_FORMS:
        if text := _join_lines(forms.get(media_type)):
            return _remove_pictures(text).strip("\n") if media_type == "text/markdown" else _fence_text(text)
    return ""


def _fence_text(text: str, language: str = "") -> str:
    """Return a text in a fence that is longer than all fences in it, without terminal codes and
    pictures.
    """
    text = _remove_pictures(_TERMINAL_CODES.sub("", text)).strip("\n")
    longest = max(map(len, re.findall("`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}" if text else ""


def _remove_pictures(text: str) -> str:
    return _DATA_URI.sub("", text) if "base64," in text else text


def _as_mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _join_lines(value: Any) -> str:
    """Return a text that notebooks may write as a list of lines."""
    lines: Iterable[Any] = value if isinstance(value, list) else [value]
    return "".join(line for line in lines if isinstance(line, str))
