"""Set a value in a settings file, or add sources. Everything else in it stays byte for byte."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from vmrag_link import settings_file
from vmrag_link.errors import ConfigInvalid
from vmrag_link.paths import CONFIG_NAME
from vmrag_link.settings import SourceSettings
from vmrag_link.settings_file import SettingEntry

_SOURCES = "sources"
_PLAIN_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]{3,}")
"""What no YAML parser takes for anything but a text, but for a few words."""

_NO_TEXTS = frozenset(("true", "false", "null"))


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


def with_sources(data: bytes, sources: Sequence[SourceSettings]) -> bytes:
    """The file with these sources at its end. Raises `ConfigInvalid` for a file that cannot be
    read, that states sources, or to which they cannot be appended.
    """
    if not sources:
        return data
    before = settings_file.read(data, CONFIG_NAME)
    section = sources_section(sources)
    apart = "\n" if data.strip() else ""
    changed = _append(data.decode(), apart + section.rstrip("\n")).encode()
    try:
        after = settings_file.read(changed, CONFIG_NAME)
    except ConfigInvalid:
        after = []
    if [*before] != after[:-1] or _sources(after) != tuple(sources):
        raise ConfigInvalid(
            f"{CONFIG_NAME} is written in a way in which sources cannot be added to it.",
            hint=f"Write them there yourself: {section}",
            file=CONFIG_NAME,
            key=_SOURCES,
        )
    return changed


def sources_section(sources: Sequence[SourceSettings]) -> str:
    """As a file states them; empty for none."""
    lines = [f"{_SOURCES}:"] if sources else []
    for each in sources:
        lines.append(f"  - collection: {_word(each.collection)}")
        lines += [f"    kind: {each.kind}"] if each.kind != "document" else []
        lines.append(f"    paths: {_words(each.paths)}")
        lines += [f"    exclude: {_words(each.exclude)}"] if each.exclude else []
    return "".join(f"{line}\n" for line in lines)


def _word(text: str) -> str:
    plain = _PLAIN_WORD.fullmatch(text) and text.lower() not in _NO_TEXTS
    return text if plain else msgspec.json.encode(text).decode()


def _words(texts: Sequence[str]) -> str:
    return f"[{', '.join(msgspec.json.encode(each).decode() for each in texts)}]"


def _sources(entries: Sequence[SettingEntry]) -> tuple[SourceSettings, ...]:
    """What the last entry states."""
    if not entries or entries[-1].key != _SOURCES:
        return ()
    try:
        return msgspec.json.decode(entries[-1].text or "", type=tuple[SourceSettings, ...])
    except (UnicodeDecodeError, msgspec.DecodeError):
        return ()


def _replace(text: str, key: str, written: str) -> str:
    line = re.compile(rf"^(\ufeff?){re.escape(key)}[ \t]*:[^\r\n]*?([ \t]+#[^\r\n]*)?(?=\r?$)", re.MULTILINE)
    return line.sub(lambda found: f"{found[1]}{written}{found[2] or ''}", text, count=1)


def _append(text: str, written: str) -> str:
    line_end = "\r\n" if "\r\n" in text else "\n"
    written = written.replace("\n", line_end)
    between = "" if not text or text.endswith("\n") else line_end
    return f"{text}{between}{written}{line_end}"
