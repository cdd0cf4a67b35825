"""Set one value in a settings file. Everything else in it stays byte for byte."""

from __future__ import annotations

import re

import msgspec

from vmrag_link import settings_file
from vmrag_link.errors import ConfigInvalid
from vmrag_link.paths import CONFIG_NAME


def with_value(data: bytes, key: str, value: str) -> bytes:
    """The file with this text as the value of a top-level key, in place of what stood there, or at
    its end.

    Raises `ConfigInvalid` for a file that cannot be read, or that a line cannot be written into.
    """
    before = {each.key: each.text for each in settings_file.read(data, CONFIG_NAME)}
    if before.get(key) == value:
        return data
    written = f"{key}: {msgspec.json.encode(value).decode()}"
    changed = _replace(data.decode(), key, written) if key in before else _append(data.decode(), written)
    try:
        after = {each.key: each.text for each in settings_file.read(changed.encode(), CONFIG_NAME)}
    except ConfigInvalid:
        after = {}
    if after != before | {key: value}:
        raise ConfigInvalid(
            f"{CONFIG_NAME} is written in a way in which {key!r} cannot be set.",
            hint=f"Write it there yourself, as a line of its own: {written}",
            file=CONFIG_NAME,
            key=key,
        )
    return changed.encode()


def _replace(text: str, key: str, written: str) -> str:
    line = re.compile(rf"^(\ufeff?){re.escape(key)}[ \t]*:[^\r\n]*?([ \t]+#[^\r\n]*)?(?=\r?$)", re.MULTILINE)
    return line.sub(lambda found: f"{found[1]}{written}{found[2] or ''}", text, count=1)


def _append(text: str, written: str) -> str:
    line_end = "\r\n" if "\r\n" in text else "\n"
    between = "" if not text or text.endswith("\n") else line_end
    return f"{text}{between}{written}{line_end}"
