"""Change one key of a file's front matter. Everything else in it stays byte for byte: a person
wrote it.

The places come from the parser (`yaml_tree`), and the result is read again before it counts.
"""

from __future__ import annotations

import codecs

from vmrag_link.conversion import front_matter, text_bytes
from vmrag_link.conversion.unreadable import ContentUnreadable
from vmrag_link.yaml_events import YamlRefused
from vmrag_link.yaml_tree import MappingNode, ScalarNode, parse


class NotEditable(Exception):
    """`reason` completes a sentence that begins with the file."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def with_key(data: bytes, key: str, value: str) -> bytes:
    """The file with a plain word for a key of its front matter; without a block it gets one.

    Raises `NotEditable`.
    """
    mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    try:
        text = text_bytes.decode(data)
        before, content = front_matter.split(text)
        written = _edited(text, front_matter.block_of(text), key, value)
        after, same = front_matter.split(written)
    except ContentUnreadable as error:
        raise NotEditable(error.reason) from None
    except YamlRefused as error:
        raise NotEditable(f"has front matter that cannot be edited: line {error.line + 1} {error.reason}") from None
    # An empty block was text before, and is none afterwards.
    kept = same == content or (not before and content.endswith(same))
    if after != before | {key: value} or not kept:
        raise NotEditable(f"has front matter that is written in a way in which {key} cannot be set")
    return mark + written.encode()


def _edited(text: str, block: tuple[int, int] | None, key: str, value: str) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    line = f"{key}: {value}{newline}"
    if block is None:
        return f"---{newline}{line}---{newline}{text}"
    start, end = block
    root = parse(text[start:end])
    if root is None:
        return text[:end] + line + text[end:]
    if not isinstance(root, MappingNode) or root.flow or root.column:
        raise NotEditable("has front matter that is no list of keys, one a line")
    there = root.entries.get(key)
    if there is None:
        return text[:end] + line + text[end:]
    if not isinstance(there.value, ScalarNode):
        raise NotEditable(f"has a {key} that is no word")
    first, last = start + there.value.start, start + there.value.end
    space = "" if text[first - 1 : first] in (" ", "\t") else " "
    return text[:first] + space + value + text[last:]
