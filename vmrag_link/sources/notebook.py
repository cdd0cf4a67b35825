"""The cells of a Jupyter notebook as Markdown, without what they printed: that is no source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from vmrag_link.conversion.limits import ContentUnreadable

_LONGEST = 4_000_000
"""Characters of one that is read. An empty cell takes 3, and 90 bytes of memory."""

_MOST_CELLS = 20_000
_LANGUAGE = re.compile(r"[\w+#-]{1,40}")
_PICTURE = re.compile(r"data:[\w.+-]{1,50}/[\w.+-]{1,100}(?:;[\w=.-]{1,50}){0,5};base64,[A-Za-z0-9+/=%\s]*+")


def cells(text: str) -> str:
    """Code stands in fences. Raises `ContentUnreadable`."""
    if len(text) > _LONGEST:
        raise ContentUnreadable(f"has more than {_LONGEST:,} characters")
    try:
        notebook = _mapping(msgspec.json.decode(text))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ContentUnreadable(f"is no notebook ({error})") from None
    found = [
        each for sheet in (notebook, *_list(notebook.get("worksheets"))) for each in _list(_mapping(sheet).get("cells"))
    ]
    if not found and not any("cells" in _mapping(each) for each in (notebook, *_list(notebook.get("worksheets")))):
        raise ContentUnreadable("is no notebook (it has no cells)")
    if len(found) > _MOST_CELLS:
        raise ContentUnreadable(f"has more than {_MOST_CELLS:,} cells")
    blocks = _blocks(map(_mapping, found), _language(_mapping(notebook.get("metadata"))))
    return "\n\n".join(blocks).replace("\0", "\ufffd")  # JSON writes it as an escape


def _blocks(found: Iterator[dict[str, Any]], language: str) -> Iterator[str]:
    for cell in found:
        source = _joined(cell.get("source", cell.get("input"))).replace("\r\n", "\n").strip("\n")
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


def _language(metadata: dict[str, Any]) -> str:
    for place, name in (("language_info", "name"), ("kernelspec", "language")):
        language = _mapping(metadata.get(place)).get(name)
        if isinstance(language, str) and _LANGUAGE.fullmatch(language):
            return language
    return ""


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _joined(value: Any) -> str:
    """A text, which notebooks may write as a list of its lines."""
    return "".join(each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str))
