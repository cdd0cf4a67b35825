"""The events of a YAML file that a person writes and a stranger may have: YAML's tricks are refused
before anything is built of them.

No object is constructed and no alias is expanded; tags, anchors and merge keys are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from vmrag_link.pin_values import shown

# What YAML does not allow, and the three characters that end a line for YAML 1.1 but for no editor.
_STRANGE = "[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"

MERGE_KEY = "<<"


class YamlRefused(Exception):
    """`reason` completes `FILE, line N: …`, counted from 1; `hint` is empty where the reader of the
    file knows a better one.
    """

    def __init__(self, reason: str, line: int, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line
        self.hint = hint


def decode(data: bytes, most: int) -> str:
    """The text of at most `most` bytes, without a byte order mark. Raises `YamlRefused`."""
    if len(data) > most:
        raise YamlRefused(f"the file has {len(data)} bytes; at most {most} are read", 1)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise YamlRefused("is not UTF-8", line, "Save the file as UTF-8.") from None
    plain = text.translate({ord(each): None for each in "\t\n\r"}).isprintable()
    if not plain and (strange := re.search(_STRANGE, text)):  # compiling it takes longer than anything else here
        line = text.count("\n", 0, strange.start()) + 1
        raise YamlRefused(f"holds a control character: {shown(strange[0])}", line)
    return text


def is_blank(text: str) -> bool:
    """Whether there are only comments. YAML would take as long to load as all else that a checkout
    needs.
    """
    return all(line.lstrip(" ").startswith("#") or not line.strip() for line in text.splitlines())


def events(text: str) -> Iterator[Any]:
    """The events between the brackets of stream and document. Raises `YamlRefused` on the way."""
    import yaml

    frame = (yaml.StreamStartEvent, yaml.StreamEndEvent, yaml.DocumentStartEvent, yaml.DocumentEndEvent)
    documents = 0
    try:
        found: Iterator[Any] = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        for event in found:
            line = event.start_mark.line + 1
            if getattr(event, "anchor", None) is not None:
                raise YamlRefused("anchors and aliases (&, *) are not read", line)
            if getattr(event, "tag", None) is not None:
                raise YamlRefused(f"tags are not read: {shown(event.tag)}", line)
            documents += isinstance(event, yaml.DocumentStartEvent)
            if isinstance(event, frame):
                continue
            if documents > 1:
                raise YamlRefused("a second YAML document begins here", line)
            yield event
    except yaml.MarkedYAMLError as error:
        lines = text.splitlines()
        # What is missing at the end is reported on a line that is not there.
        line = min(error.problem_mark.line + 1 if error.problem_mark else 1, len(lines))
        problem = error.problem or "cannot be parsed"
        raise YamlRefused(f"is not YAML: {problem}", line, _syntax_hint(lines[line - 1], problem)) from None


def _syntax_hint(content: str, problem: str) -> str:
    if "\t" in content:
        return "Indent with spaces instead of the tab."
    if "mapping values" in problem:
        return 'Put a value that holds a colon into quotes, such as remote: "git:"'
    return ""
