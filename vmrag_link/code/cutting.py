"""How the text of a program is cut: by its symbols, else by its lines.

A symbol that fits is one piece, with its comments, decorators and attributes. Of a longer one there
is a piece for its head, pieces for the symbols within it, and pieces for what lies between them;
what remains too long is cut by lines. Nothing here depends on time, or on the machine.
"""

from __future__ import annotations

from vmrag_link.code.grammars import GRAMMAR_RULES
from vmrag_link.code.layout import Layout
from vmrag_link.code.lines import Lines
from vmrag_link.code.outline import with_lines_that_declare
from vmrag_link.code.pieces import CodePiece

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
    from vmrag_link.code.parsing import parse
    from vmrag_link.code.symbols import SymbolWalk, TooManyNodes

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
