"""Edits of an existing `.vmrag.yaml`, which keep every other byte of the file.

Each edit reads the changed file again, and raises `ConfigInvalid` if it does not have exactly the
new settings. Then a hint has the lines that the user can write.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

import msgspec

from vmrag_link import yaml_tree
from vmrag_link.errors import ConfigInvalid
from vmrag_link.formats import is_below
from vmrag_link.paths import CONFIG_NAME
from vmrag_link.settings import SourceSettings
from vmrag_link.settings import file as settings_file
from vmrag_link.settings.entries import SettingEntry
from vmrag_link.yaml_tree import MappingNode, ScalarNode, SequenceNode

_REQUIRES = "requires"
_REQUIRES_COMMENT = "# An older version of vmrag-link stops here, and prints how to upgrade it."
_SOURCES = "sources"
_PLAIN_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]{3,}")
"""A word that every YAML parser reads as a text, except the words in `_NO_TEXTS`."""

_NO_TEXTS = frozenset(("true", "false", "null"))


def set_requirement(data: bytes, version: str) -> bytes:
    """Return the file with `requires` at this version or above.

    Raises `ConfigInvalid` if the file cannot be read, or the line cannot be added.
    """
    stated = next(
        (entry.text for entry in settings_file.read_entries(data, CONFIG_NAME) if entry.key == _REQUIRES), None
    )
    if stated is not None and not is_below(stated, version):
        return data
    return set_value(data, _REQUIRES, version, comment=_REQUIRES_COMMENT)


def set_value(data: bytes, key: str, value: str, *, comment: str = "") -> bytes:
    """Return the file with this text as the value of a top-level key.

    It replaces the old value, or is added at the end of the file, below the comment. Raises
    `ConfigInvalid` if the file cannot be read, or the line cannot be added.
    """
    before = {entry.key: entry.text for entry in settings_file.read_entries(data, CONFIG_NAME)}
    if before.get(key) == value:
        return data
    written = f"{key}: {msgspec.json.encode(value).decode()}"
    changed = (
        _replace_line(data.decode(), key, written) if key in before else _insert_key(data.decode(), written, comment)
    )
    try:
        after = {entry.key: entry.text for entry in settings_file.read_entries(changed.encode(), CONFIG_NAME)}
    except ConfigInvalid:
        after = {}
    if after != before | {key: value}:
        raise ConfigInvalid(
            f"cannot set {key!r} in {CONFIG_NAME} automatically.",
            hint=f"write it there yourself, as a line of its own: {written}",
            file=CONFIG_NAME,
            key=key,
        )
    return changed.encode()


def add_sources(data: bytes, sources: Sequence[SourceSettings]) -> bytes:
    """Return the file with these sources, after its own, or at its end.

    Raises `ConfigInvalid` if the file cannot be read, or the sources cannot be added.
    """
    if not sources:
        return data
    before = settings_file.read_entries(data, CONFIG_NAME)
    if any(entry.key == _SOURCES for entry in before):
        return functools.reduce(add_source, sources, data)
    section = format_sources(sources)
    blank_line = "\n" if data.strip() else ""
    changed = _append_text(data.decode(), blank_line + section.rstrip("\n")).encode()
    try:
        after = settings_file.read_entries(changed, CONFIG_NAME)
    except ConfigInvalid:
        after = []
    if [*before] != after[:-1] or _parse_sources(after) != tuple(sources):
        raise ConfigInvalid(
            f"cannot add sources to {CONFIG_NAME} automatically.",
            hint=f"write them there yourself: {section}",
            file=CONFIG_NAME,
            key=_SOURCES,
        )
    return changed


def add_source(data: bytes, source: SourceSettings) -> bytes:
    """Return the file with the paths of this source in the entry of its collection, or in a new
    entry.

    All other text stays, including comments. Raises `ConfigInvalid` if the file cannot be read, or
    the paths cannot be added.
    """
    before = settings_file.read_entries(data, CONFIG_NAME)
    stated = next((entry for entry in before if entry.key == _SOURCES), None)
    if stated is None:
        return add_sources(data, [source])
    sources = _add_paths(_parse_sources([stated]), source)
    text = data.decode("utf-8-sig")
    changed = _add_to_text(text, source)
    try:
        after = settings_file.read_entries(changed.encode(), CONFIG_NAME)
    except ConfigInvalid:
        after = []
    others = [(entry.key, entry.text) for entry in before if entry.key != _SOURCES]
    written = _parse_sources([entry for entry in after if entry.key == _SOURCES])
    if written != sources or [(entry.key, entry.text) for entry in after if entry.key != _SOURCES] != others:
        raise _not_editable(source)
    return data[: len(data) - len(text.encode())] + changed.encode()


def remove_source(data: bytes, collection: str) -> bytes:
    """Return the file without the entry of a source. All other text stays.

    Raises `ConfigInvalid` if the entry cannot be found or deleted.
    """
    before = settings_file.read_entries(data, CONFIG_NAME)
    stated = [entry for entry in before if entry.key == _SOURCES]
    kept = tuple(source for source in _parse_sources(stated) if source.collection != collection)
    text = data.decode("utf-8-sig")
    root = yaml_tree.parse_document(text)
    node = root.entries[_SOURCES].value if isinstance(root, MappingNode) and _SOURCES in root.entries else None
    changed = _remove_item(text, node, collection) if isinstance(node, SequenceNode) else text
    try:
        after = settings_file.read_entries(changed.encode(), CONFIG_NAME)
    except ConfigInvalid:
        after = []
    if _parse_sources([entry for entry in after if entry.key == _SOURCES]) != kept or len(kept) == len(
        _parse_sources(stated)
    ):
        raise ConfigInvalid(
            f"the source {collection!r} cannot be deleted from {CONFIG_NAME}.",
            hint=f"delete its entry below 'sources:' in {CONFIG_NAME}, then run the command again",
            file=CONFIG_NAME,
            key=_SOURCES,
        )
    return data[: len(data) - len(text.encode())] + changed.encode()


def _remove_item(text: str, sequence: SequenceNode, collection: str) -> str:
    """Return the text without the item of a block sequence that names a collection."""
    if text[sequence.start] == "[":
        return text
    starts = [text.rfind("\n", 0, item.start) + 1 for item in sequence.items]
    ends = [*starts[1:], text.find("\n", sequence.items[-1].end) + 1 or len(text)]
    for item, start, end in zip(sequence.items, starts, ends, strict=True):
        name = item.entries.get("collection") if isinstance(item, MappingNode) else None
        if name and isinstance(name.value, ScalarNode) and name.value.text == collection:
            rest = text[:start] + text[end:]
            if len(sequence.items) > 1:
                return rest
            return re.sub(rf"^({_SOURCES}[ \t]*:)[ \t]*$", r"\1 []", rest, count=1, flags=re.MULTILINE)
    return text


def _add_paths(sources: Sequence[SourceSettings], source: SourceSettings) -> tuple[SourceSettings, ...]:
    """Return the sources with the paths of one source added."""
    names = [entry.collection for entry in sources]
    if source.collection not in names:
        return (*sources, source)
    return tuple(
        msgspec.structs.replace(entry, paths=(*entry.paths, *source.paths))
        if entry.collection == source.collection
        else entry
        for entry in sources
    )


def _add_to_text(text: str, source: SourceSettings) -> str:
    """Return the text of a file that has sources, with this one added."""
    root = yaml_tree.parse_document(text)
    node = root.entries[_SOURCES].value if isinstance(root, MappingNode) and _SOURCES in root.entries else None
    if isinstance(node, ScalarNode) or (isinstance(node, SequenceNode) and not node.items):
        items = "".join(f"\n{line}" for line in _item_lines(source, "  "))
        return _splice_text(text, len(text[: node.start].rstrip(" ")), node.end, items)
    if not isinstance(node, SequenceNode):
        raise _not_editable(source)
    for item in node.items:
        if not isinstance(item, MappingNode):
            raise _not_editable(source)
        name, paths = (item.entries.get(key) for key in ("collection", "paths"))
        if name and isinstance(name.value, ScalarNode) and name.value.text == source.collection:
            if not (paths and isinstance(paths.value, SequenceNode) and paths.value.items):
                raise _not_editable(source)
            words = [msgspec.json.encode(entry).decode() for entry in source.paths]
            return _append_items(text, paths.value, [[f"- {word}"] for word in words], words)
    return _append_items(text, node, [_item_lines(source, "")], [_flow_item(source)])


def _append_items(text: str, sequence: SequenceNode, blocks: Sequence[Sequence[str]], flows: Sequence[str]) -> str:
    """Return the text with items at the end of a sequence.

    The items are `flows` if the sequence has brackets, otherwise the lines of `blocks`.
    """
    end = sequence.items[-1].end
    if text[sequence.start] == "[":
        return text[:end] + "".join(f", {item}" for item in flows) + text[end:]
    dash = text.rfind("-", 0, sequence.items[-1].start)
    indent = " " * (dash - text.rfind("\n", 0, dash) - 1)
    line_end = text.find("\n", end)
    line_end = len(text) if line_end < 0 else line_end
    line_end -= text[:line_end].endswith("\r")
    new = "".join(f"\n{indent}{line}" for block in blocks for line in block)
    return _splice_text(text, line_end, line_end, new)


def _splice_text(text: str, start: int, end: int, new: str) -> str:
    """Return the text with `new` from `start` to `end`, with the line ends of the text."""
    return text[:start] + new.replace("\n", "\r\n" if "\r\n" in text else "\n") + text[end:]


def _item_lines(source: SourceSettings, indent: str) -> list[str]:
    """Return an entry of `sources` as lines of a block."""
    return [f"{indent}{line[2:]}" for line in format_sources([source]).splitlines()[1:]]


def _flow_item(source: SourceSettings) -> str:
    """Return an entry of `sources` in braces."""
    return f"{{{', '.join(line[4:] for line in format_sources([source]).splitlines()[1:])}}}"


def _not_editable(source: SourceSettings) -> ConfigInvalid:
    return ConfigInvalid(
        f"cannot add sources to {CONFIG_NAME} automatically.",
        hint=f"write the source into {CONFIG_NAME} yourself: {_flow_item(source)}",
        file=CONFIG_NAME,
        key=_SOURCES,
    )


def format_sources(sources: Sequence[SourceSettings]) -> str:
    """Format the section `sources` of a file; an empty text without sources."""
    lines = [f"{_SOURCES}:"] if sources else []
    for source in sources:
        lines.append(f"  - collection: {_format_word(source.collection)}")
        lines += [f"    kind: {source.kind}"] if source.kind != "document" else []
        lines.append(f"    paths: {_format_words(source.paths)}")
        lines += [f"    exclude: {_format_words(source.exclude)}"] if source.exclude else []
        lines += ["    write: true"] if source.write else []
    return "".join(f"{line}\n" for line in lines)


def _format_word(text: str) -> str:
    plain = _PLAIN_WORD.fullmatch(text) and text.lower() not in _NO_TEXTS
    return text if plain else msgspec.json.encode(text).decode()


def _format_words(texts: Sequence[str]) -> str:
    return f"[{', '.join(msgspec.json.encode(text).decode() for text in texts)}]"


def _parse_sources(entries: Sequence[SettingEntry]) -> tuple[SourceSettings, ...]:
    """Return the sources of the last entry."""
    if not entries or entries[-1].key != _SOURCES:
        return ()
    try:
        return msgspec.json.decode(entries[-1].text or "", type=tuple[SourceSettings, ...], strict=False)
    except (UnicodeDecodeError, msgspec.DecodeError):
        return ()


def _replace_line(text: str, key: str, written: str) -> str:
    line = re.compile(rf"^(\ufeff?){re.escape(key)}[ \t]*:[^\r\n]*?([ \t]+#[^\r\n]*)?(?=\r?$)", re.MULTILINE)
    return line.sub(lambda match: f"{match[1]}{written}{match[2] or ''}", text, count=1)


def _insert_key(text: str, written: str, comment: str) -> str:
    """Return the text with a new key: at its end, or first in the braces around the file."""
    start = re.match(r"\ufeff?(?:[ \t]*(?:#[^\r\n]*)?\r?\n)*(?:---[ \t\r\n]+)?\{", text)
    if start:
        between = "" if re.match(r"\s*\}", text[start.end() :]) else ", "
        return f"{text[: start.end()]}{written}{between}{text[start.end() :]}"
    blank_line = "\n" if comment and text.strip() else ""
    return _append_text(text, blank_line + (f"{comment}\n" if comment else "") + written)


def _append_text(text: str, written: str) -> str:
    line_end = "\r\n" if "\r\n" in text else "\n"
    written = written.replace("\n", line_end)
    between = "" if not text or text.endswith("\n") else line_end
    return f"{text}{between}{written}{line_end}"
