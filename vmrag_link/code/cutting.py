"""How the text of a program is cut: by its symbols, else by its lines.

A symbol that fits is one piece, with its comments, decorators and attributes. Of a longer one there
is a piece for its head, pieces for the symbols within it, and pieces for what lies between them;
what remains too long is cut by lines. Where no grammar tells, in a language that has none here or
where a parser has lost its way in a file, the first words of a line say what it declares. Nothing
here depends on time, or on the machine.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from vmrag_link.code.grammars import GRAMMAR_RULES
from vmrag_link.code.languages import MOST_DECLARED, CodePiece, SymbolDeclaration
from vmrag_link.code.layout import Layout, Lines

MOST_BYTES = 1 << 19
"""Of a text that is parsed; longer ones, made by machines, are cut by lines."""


def is_parsed(text: str, language: str) -> bool:
    """Whether `cut` parses such a text; others need no package, and no process of their own."""
    return language in GRAMMAR_RULES and 0 < len(text) <= MOST_BYTES and len(_bytes(text)) <= MOST_BYTES


def cut(text: str, language: str, size: int) -> list[CodePiece]:
    """The pieces of a text, of about `size` characters each; of an empty one an empty piece.

    A run of small symbols (three rows) is one piece, with the symbol around them; at the top of a
    file with the first one's.
    """
    if not text:
        return [CodePiece(0, 0)]
    lines = Lines(text)
    found = _by_symbols(text, language, lines, size) if is_parsed(text, language) else None
    if found is None:
        found = with_lines_that_declare([CodePiece(*span) for span in lines.parts(0, lines.count, size)], text)
    return found


def _by_symbols(text: str, language: str, lines: Lines, size: int) -> list[CodePiece] | None:
    """None: it is too hard. A tree with errors is better than none; what it lost, lines tell."""
    from vmrag_link.code.symbols import SymbolWalk, TooManyNodes, parse

    data = _bytes(text)
    tree = parse(data, language)
    if tree is None:
        return None
    walk = SymbolWalk(tree, GRAMMAR_RULES[language], data, lines, size)
    try:
        root = walk.root()
    except TooManyNodes:
        return None
    pieces = Layout(lines, size).pieces(root, walk.declared)
    return with_lines_that_declare(pieces, text) if tree.root_node.has_error else pieces


def _bytes(text: str) -> bytes:
    return text.encode(errors="replace")


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

DECLARING_WORDS = tuple(_KINDS)
"""The words that declare what follows them in a line."""


@functools.cache
def _declaring() -> re.Pattern[str]:
    """Match up to four words such as `public`, the one that declares, type parameters, the name.

    To compile it takes five milliseconds, and most texts do not need it.
    """
    return re.compile(
        rf"^[ \t]*(?:(?:{'|'.join(_BEFORE)})(?:\([a-z ]+\))?[ \t]+){{0,4}}(?P<word>{'|'.join(_KINDS)})[ \t]+"
        r"(?:<[^<>\n]{1,80}>[ \t]+)?(?:[A-Za-z]\w*[.:])*(?P<name>[A-Za-z_]\w{0,199})(?=[ \t]*(?:[(\[{<:=,;]|extends\b|do\b|where\b|$))",
        re.MULTILINE,
    )


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
    for each in _declaring().finditer(text):
        line += text.count("\n", at, each.start("name"))
        at = each.start("name")
        found.append(SymbolDeclaration(each["name"], _KINDS[each["word"]], line, line))
        if len(found) == MOST_DECLARED:
            break
    return tuple(found)
