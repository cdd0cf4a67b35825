"""The languages and kinds that a query can be narrowed to, and what else they are called."""

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
"""Of a document: code or not; and of symbols."""

LANGUAGES = tuple(sorted({*languages.LANGUAGES, *(each.file_type for each in formats.FORMATS)}))
"""Of code, and the types of other files."""

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
    """One of `LANGUAGES`: `python` for `py`. Raises `UsageInvalid`."""
    name = re.sub(r"[-\s]", "_", given.lower().lstrip("."))
    if name in LANGUAGES:
        return name
    if found := _OTHER_NAMES.get(name) or languages.detect_language(f"x.{name}"):
        return found
    if known := formats.find_by_suffix(f"x.{name}"):
        return known.file_type
    raise _unknown("lang", "language", given, LANGUAGES)


def parse_kind(given: str) -> str:
    """One of `KINDS`. Raises `UsageInvalid`."""
    name = given.lower()
    name = _OTHER_KINDS.get(name, name)
    if name not in KINDS:
        raise _unknown("kind", "kind", given, KINDS)
    return name


def _unknown(field: Literal["lang", "kind"], what: str, given: str, there: Sequence[str]) -> UsageInvalid:
    near = nearest(given.lower(), there)
    return UsageInvalid(
        f"There is no {what} {given!r}." + (f" Is it {near!r}?" if near else ""),
        hint=f"There are: {', '.join(there)}.",
        parameter=field,
        value=shortened(given),
    )
