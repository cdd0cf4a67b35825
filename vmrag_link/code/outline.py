"""What lines declare by their first words, where no grammar tells: in a language that has none
here, and where a parser has lost its way in a file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from vmrag_link.code.pieces import MOST_DECLARED, CodePiece, SymbolDeclaration

_BEFORE = (
    "abstract async case const data default export extern external final implicit inline inner internal lazy local open "
    "opaque override partial private protected pub public pure sealed static suspend unsafe value virtual"
).split()

_KINDS = {
    "class": "class",
    "def": "function",
    "defmacro": "macro",
    "defmodule": "module",
    "defp": "function",
    "enum": "enum",
    "fn": "function",
    "fun": "function",
    "func": "function",
    "function": "function",
    "interface": "interface",
    "macro": "macro",
    "module": "module",
    "object": "class",
    "proc": "function",
    "protocol": "protocol",
    "record": "record",
    "struct": "struct",
    "sub": "function",
    "trait": "trait",
    "type": "type",
}

_DECLARING = re.compile(
    rf"^[ \t]*(?:(?:{'|'.join(_BEFORE)})(?:\([a-z ]+\))?[ \t]+){{0,4}}(?P<word>{'|'.join(_KINDS)})[ \t]+"
    r"(?:<[^<>\n]{1,80}>[ \t]+)?(?:[A-Za-z]\w*[.:])*(?P<name>[A-Za-z_]\w{0,199})(?=[ \t]*(?:[(\[{<:=,;]|extends\b|do\b|where\b|$))",
    re.MULTILINE,
)
"""Up to four words such as `public`, the one that declares, type parameters, and the name."""


def with_lines_that_declare(pieces: Sequence[CodePiece], text: str) -> list[CodePiece]:
    """The same pieces; those that are of no symbol, with what their lines declare."""
    found, line = [], 1
    for piece in pieces:
        inside = text[piece.start : piece.end]
        known = piece.symbol or piece.declared
        found.append(piece if known else piece._replace(declared=_declared(inside, line)))
        line += inside.count("\n")
    return found


def _declared(text: str, line: int) -> tuple[SymbolDeclaration, ...]:
    found: list[SymbolDeclaration] = []
    at = 0
    for each in _DECLARING.finditer(text):
        line += text.count("\n", at, each.start("name"))
        at = each.start("name")
        found.append(SymbolDeclaration(each["name"], _KINDS[each["word"]], line, line))
        if len(found) == MOST_DECLARED:
            break
    return tuple(found)
