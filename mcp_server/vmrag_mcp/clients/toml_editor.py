"""Add, change and remove one table of a TOML file. Everything else in it stays byte for byte.

A table is a run of lines below its header, so Python's own reader suffices: it says before and
after what the text means, and a table in any other form is left alone.
"""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

from vmrag_mcp.clients.edits import Addition, Entry, TextRefused, line_end, not_built_so

_HEADER = re.compile(r"^[ \t]*\[", re.MULTILINE)


class TomlEditor:
    """Sections are tables, such as `mcp_servers`, and entries tables in them."""

    def read(self, text: str) -> dict[str, Any]:
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise TextRefused(f"it is not TOML: {error}") from None

    def add(self, text: str, section: str, name: str, entry: Entry) -> tuple[str, Addition]:
        if not isinstance(self.read(text).get(section, {}), dict):
            raise not_built_so(section)
        end = line_end(text)
        if not text.strip():
            return _table(section, name, entry, end), Addition("document", text)
        closed = text.endswith("\n")
        apart = end if closed else end * 2
        made = _table(section, name, entry, end)
        return text + apart + (made if closed else made.removesuffix(end)), Addition("entry", apart)

    def change(self, text: str, section: str, name: str, values: Entry) -> str:
        start, end = _lines(text, section, name)
        table = text[start:end]
        for key, value in values.items():
            line = re.compile(
                rf"^([ \t]*{re.escape(key)}[ \t]*=[ \t]*)[^\r\n]*?([ \t]+#[^\"'\r\n]*)?(?=\r?$)", re.MULTILINE
            )
            written = _value(value).replace("\\", r"\\")
            table, count = line.subn(rf"\g<1>{written}\g<2>", table)
            if count != 1:
                raise TextRefused(f"{key} of {section}.{name} is not written on one line")
        return text[:start] + table + text[end:]

    def remove(self, text: str, section: str, name: str, added: Addition | None) -> str:
        start, end = _lines(text, section, name)
        apart = added.blank if added and added.made == "entry" else line_end(text)
        if added and added.made == "document" and not (text[:start] + text[end:]).strip():
            return added.blank
        if start and text[:start].endswith(apart):
            start -= len(apart)
        rest = text[end:]
        if start and rest and not text[:start].endswith("\n"):  # what was added behind it goes on a line of its own
            start += len(line_end(text))
        return text[:start] + rest


def _table(section: str, name: str, entry: Entry, end: str) -> str:
    lines = [f"[{section}.{name}]", *(f"{key} = {_value(value)}" for key, value in entry.items())]
    return "".join(f"{line}{end}" for line in lines)


def _value(value: Any) -> str:
    """As in JSON, but for a character that stands for itself there and not in TOML."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _lines(text: str, section: str, name: str) -> tuple[int, int]:
    """From the header to behind the last line with a value: comments below it may be about what
    follows.
    """
    names = [
        rf"[ \t]*(?:{re.escape(each)}|\"{re.escape(each)}\"|'{re.escape(each)}')[ \t]*" for each in (section, name)
    ]
    headers = list(re.finditer(rf"^[ \t]*\[{names[0]}\.{names[1]}\][^\r\n]*(?:\r?\n|\Z)", text, re.MULTILINE))
    if len(headers) != 1:
        raise TextRefused(f"{section}.{name} is not a table of its own")
    start, place = headers[0].span()
    following = _HEADER.search(text, place)
    limit = following.start() if following else len(text)
    end = place
    for line in re.finditer(r"[^\r\n]*(?:\r?\n|\Z)", text[place:limit]):
        if (content := line[0].strip()) and not content.startswith("#"):
            end = place + line.end()
    return start, end
