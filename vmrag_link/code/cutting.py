"""Split the text of a program: by its symbols, or by its lines.

A symbol that fits is one piece, with its comments, decorators and attributes. A longer symbol has a
piece for its head, pieces for the symbols inside, and pieces for the rows between them. Pieces that
are still too long are split by lines. If a language has no grammar here, or if a parser fails in a
file, the first words of a line show what it declares. The result does not depend on time or on the
machine.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from vmrag_link.code.grammars import GRAMMAR_RULES
from vmrag_link.code.languages import BY_LINES, MOST_DECLARED, VALUE_KINDS, CodePiece, SymbolDeclaration
from vmrag_link.code.layout import Lines, build_pieces

MOST_BYTES = 1 << 19
"""Maximum size of a text that is parsed. Longer ones are generated, and are split by lines."""


def needs_parser(text: str, language: str) -> bool:
    """Return whether `cut_code` parses a text. Other texts need no package and no separate
    process.
    """
    return language in GRAMMAR_RULES and 0 < len(text) <= MOST_BYTES and len(_encode_text(text)) <= MOST_BYTES


def cut_code(text: str, language: str, size: int) -> list[CodePiece]:
    """Return the pieces of a text, of about `size` characters each. An empty text has one empty
    piece.

    A run of small symbols (three rows) is one piece. It has the symbol around them, or at the top
    of a file the first of them.
    """
    if not text:
        return [CodePiece(0, 0)]
    lines = Lines(text)
    pieces = _cut_by_symbols(text, language, lines, size) if needs_parser(text, language) else None
    if pieces is None:
        spans = lines.split_rows(0, lines.count, size)
        pieces = add_declaring_lines([CodePiece(*span) for span in spans], text, language)
        if language in GRAMMAR_RULES:
            pieces[0] = pieces[0]._replace(kind=BY_LINES)
    return pieces


def _cut_by_symbols(text: str, language: str, lines: Lines, size: int) -> list[CodePiece] | None:
    """Return the pieces of a text; None if the text is too difficult.

    A tree with errors is better than none. The lines show what the tree lost.
    """
    from vmrag_link.code.symbols import TooManyNodes, find_symbols, parse_tree

    data = _encode_text(text)
    tree = parse_tree(data, language)
    if tree is None:
        return None
    try:
        symbols = find_symbols(tree, GRAMMAR_RULES[language], data, lines, size)
    except TooManyNodes:
        return None
    pieces = build_pieces(symbols.root, symbols.declared, lines, size)
    return add_declaring_lines(pieces, text, language) if tree.root_node.has_error else pieces


def _encode_text(text: str) -> bytes:
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
"""Words that declare what follows them in a line."""


@functools.cache
def _compile_declaring() -> re.Pattern[str]:
    """Return a pattern of up to four words such as `public`, a declaring word, type parameters, and
    the name.

    Compiling it takes 5 ms, and most texts do not need it.
    """
    return re.compile(
        rf"^[ \t]*(?:(?:{'|'.join(_BEFORE)})(?:\([a-z ]+\))?[ \t]+){{0,4}}(?P<word>{'|'.join(_KINDS)})[ \t]+"
        r"(?:<[^<>\n]{1,80}>[ \t]+)?(?:[A-Za-z]\w*[.:])*(?P<name>[A-Za-z_]\w{0,199})(?=[ \t]*(?:[(\[{<:=,;]|extends\b|do\b|where\b|$))",
        re.MULTILINE,
    )


_QUOTED = r"""(?:\[[^\]\n]{1,100}\]|"[^"\n]{1,100}"|`[^`\n]{1,100}`|\w{1,100})"""


@functools.cache
def _compile_declaring_sql() -> re.Pattern[str]:
    return re.compile(
        r"^[ \t]*create[ \t]+(?:or[ \t]+(?:replace|alter)[ \t]+)?(?:(?:materialized|unique|temp|temporary)[ \t]+)?"
        r"(?P<word>table|view|function|procedure|trigger|type|index|schema|sequence|policy)[ \t]+(?:if[ \t]+not[ \t]+exists[ \t]+)?"
        rf"(?P<name>(?:{_QUOTED}\.){{0,3}}{_QUOTED})",
        re.MULTILINE | re.IGNORECASE,
    )


@functools.cache
def _compile_declaring_c() -> re.Pattern[str]:
    """Return a pattern of macros, functions and tables (`static const int ages[] =`) that begin a
    line.
    """
    return re.compile(
        r"^(?:#[ \t]*(?P<macro>define)[ \t]+(?P<defined>[A-Za-z_]\w{0,99})(?=[ \t(])"
        r"|(?!(?:return|else|case|goto|typedef)\b)(?P<words>(?:[A-Za-z_]\w{0,99}[ \t*]+){1,6})(?P<name>[A-Za-z_]\w{0,99})"
        r"[ \t]*(?:(?P<function>\()|(?:\[[^\]\n]{0,80}\][ \t]*){0,4}=(?!=))"
        r"|(?P<below>[a-z_]\w{0,99})\([^;\n]{0,200}$)",  # the type is in the line above
        re.MULTILINE,
    )


def add_declaring_lines(pieces: Sequence[CodePiece], text: str, language: str = "") -> list[CodePiece]:
    """Return the pieces, and add to pieces without a symbol what their lines declare.

    The grammar of SQL skips statements with brackets, so for SQL the lines add to every piece.
    """
    complete, line = [], 1
    for piece in pieces:
        piece_text, declared = text[piece.start : piece.end], piece.declared
        if language == "sql" or not (piece.symbol or any(row.kind not in VALUE_KINDS for row in declared)):
            names = {row.symbol for row in declared}
            more = (row for row in _find_declarations(piece_text, line, language) if row.symbol not in names)
            declared = tuple(sorted([*declared, *more], key=lambda row: row.line)[:MOST_DECLARED])
        complete.append(piece._replace(declared=declared))
        line += piece_text.count("\n")
    return complete


def _find_declarations(text: str, line: int, language: str) -> list[SymbolDeclaration]:
    """Return the declarations in the lines of a text. `line`: the number of its first line."""
    found_names: list[tuple[int, str, str]] = []
    if language == "sql":
        for match in _compile_declaring_sql().finditer(text):
            parts = (part.strip('[]"`') for part in re.findall(_QUOTED, match["name"]))
            found_names.append((match.start("name"), ".".join(parts), match["word"].lower()))
    else:
        found_names += [
            (match.start("name"), match["name"], _KINDS[match["word"]]) for match in _compile_declaring().finditer(text)
        ]
    for match in _compile_declaring_c().finditer(text) if language in ("c", "cpp") else ():
        name = next(group for group in ("defined", "name", "below") if match[group])
        found_names.append((match.start(name), match[name], _find_kind_in_c(match)))
    declared, end = [], 0
    for start, name, kind in sorted(found_names)[:MOST_DECLARED]:
        line += text.count("\n", end, start)
        end = start
        declared.append(SymbolDeclaration(name, kind, line, line))
    return declared


def _find_kind_in_c(match: re.Match[str]) -> str:
    if match["macro"]:
        return "macro"
    if match["function"] or match["below"]:
        return "function"
    return "constant" if "const" in match["words"].split() else "variable"
