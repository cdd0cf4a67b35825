"""The languages and kinds to which a query can be narrowed, and their other names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from vmrag_link.code import languages
from vmrag_link.code.grammars import CLASSES, GRAMMAR_RULES
from vmrag_link.code.languages import VALUE_KINDS
from vmrag_link.conversion import formats
from vmrag_link.errors import UsageInvalid, nearest, shortened

CODE, DOCUMENT = "code", "document"

_SYMBOL_KINDS = {
    *CLASSES,
    *VALUE_KINDS,
    *(kind for grammar in GRAMMAR_RULES.values() for kind in grammar.symbols.values()),
    "annotation",
    "method",
}

KINDS = (CODE, DOCUMENT, *sorted(_SYMBOL_KINDS))
"""Kinds of documents (code or not), and kinds of symbols."""

LANGUAGES = tuple(sorted({*languages.LANGUAGES, *(file_format.file_type for file_format in formats.FORMATS)}))
"""Languages of code, and types of other files."""

_OTHER_NAMES = {
    "c#": "c_sharp",
    "csharp": "c_sharp",
    "docker": "dockerfile",
    "ecmascript": "javascript",
    "f#": "fsharp",
    "golang": "go",
    "jupyter": "notebook",
    "makefile": "make",
    "node": "javascript",
    "objc": "objective_c",
    "plaintext": "text",
    "restructuredtext": "rst",
    "shell": "bash",
}
_OTHER_KINDS = {"doc": DOCUMENT, "docs": DOCUMENT, "documents": DOCUMENT, "func": "function"}


def parse_language(given: str) -> str:
    """Return one of `LANGUAGES`, such as `python` for `py`. Raises `UsageInvalid`."""
    name = re.sub(r"[-\s]", "_", given.lower().lstrip("."))
    if name in LANGUAGES:
        return name
    if language := _OTHER_NAMES.get(name) or languages.detect_language(f"x.{name}"):
        return language
    if file_format := formats.find_by_suffix(f"x.{name}"):
        return file_format.file_type
    raise _make_error("lang", "language", given, LANGUAGES)


def parse_kind(given: str) -> str:
    """Return one of `KINDS`. Raises `UsageInvalid`."""
    name = given.lower()
    name = _OTHER_KINDS.get(name, name)
    if name not in KINDS:
        raise _make_error("kind", "kind", given, KINDS)
    return name


def _make_error(field: Literal["lang", "kind"], what: str, given: str, valid: Sequence[str]) -> UsageInvalid:
    near = nearest(given.lower(), valid)
    return UsageInvalid(
        f"unknown {what} {given!r}." + (f" Did you mean {near!r}?" if near else ""),
        hint=f"use one of: {', '.join(valid)}",
        parameter=field,
        value=shortened(given),
    )
