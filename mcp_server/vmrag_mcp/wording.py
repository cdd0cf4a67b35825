"""Texts that name tools, as a client of one server reads them.

A server may lack tools: of toolsets that are off, excluded ones, all that write. A sentence that
names one of those sends an agent into a refusal, so it is left out.
"""

from __future__ import annotations

import re
from collections.abc import Container
from functools import cache

from vmrag_mcp.registry import catalogue

_PARTS = re.compile(r"(?<=[.;])\s+")
"""Between sentences, and between the parts of one that a semicolon separates."""


@cache
def _names() -> re.Pattern[str]:
    """Names of tools within a text.

    `commit` and `search` are words, too, and `create_branch` before `=` or ` (` is a parameter.
    """
    names = "|".join(name for name in catalogue() if "_" in name)
    return re.compile(rf"(?<![\w.])(?:{names})(?![\w=]| \()")


def mentioned(text: str) -> set[str]:
    """The tools that a text names, by their names in the catalogue."""
    return {*_names().findall(text)}


def worded(text: str, there: Container[str], prefix: str) -> str:
    """A text without what names a tool that is not there; other tools by the names that clients
    call. Empty if nothing is left.

    `there`: the tools of the server, by those names.
    """
    if not mentioned(text):
        return text
    kept: list[str] = []
    for part in _PARTS.split(text):
        if all(f"{prefix}{name}" in there for name in mentioned(part)):
            kept.append(part)
        elif kept and kept[-1].endswith(";"):
            kept[-1] = kept[-1][:-1] + (part[-1] if part.endswith((".", ";")) else "")
    return _names().sub(lambda found: f"{prefix}{found[0]}", " ".join(kept))
