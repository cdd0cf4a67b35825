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
from vmrag_link.code.languages import BY_LINES, MOST_DECLARED, VALUE_KINDS, CodePiece, SymbolDeclaration
from vmrag_link.code.layout import Layout, Lines

MOST_BYTES = 1 << 19
"""Of a text that is parsed; longer ones, made by machines, are cut by lines."""


def needs_parser(text: str, language: str) -> bool:
    """Whether `cut` parses such a text; others need no package, and no process of their own."""
    return language in GRAMMAR_RULES and 0 < len(text) <= MOST_BYTES and len(_bytes(text)) <= MOST_BYTES


def cut_code(text: str, language: str, size: int) -> list[CodePiece]:
    """The pieces of a text, of about `size` characters each; of an empty one an empty piece.

    A run of small symbols (three rows) is one piece, with the symbol around them; at the top of a
    file with the first one's.
    """
    if not text:
        return [CodePiece(0, 0)]
    lines = Lines(text)
    found = _by_symbols(text, language, lines, size) if needs_parser(text, language) else None
    if found is None:
        spans = lines.split_rows(0, lines.count, size)
        found = add_declaring_lines([CodePiece(*span) for span in spans], text, language)
        if language in GRAMMAR_RULES:
            found[0] = found[0]._replace(kind=BY_LINES)
    return found


def _by_symbols(text: str, language: str, lines: Lines, size: int) -> list[CodePiece] | None:
    """None: it is too hard. A tree with errors is better than none; what it lost, lines tell."""
    from vmrag_link.code.symbols import SymbolWalk, TooManyNodes, parse_tree

    data = _bytes(text)
    tree = parse_tree(data, language)
    if tree is None:
        return None
    walk = SymbolWalk(tree, GRAMMAR_RULES[language], data, lines, size)
    try:
        root = walk.build_root()
    except TooManyNodes:
        return None
    pieces = Layout(lines, size).build_pieces(root, walk.declared)
    return add_declaring_lines(pieces, text, language) if tree.root_node.has_error else pieces


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


_QUOTED = r"""(?:\[[^\]\n]{1,100}\]|"[^"\n]{1,100}"|`[^`\n]{1,100}`|\w{1,100})"""


@functools.cache
def _declaring_sql() -> re.Pattern[str]:
    return re.compile(
        r"^[ \t]*create[ \t]+(?:or[ \t]+(?:replace|alter)[ \t]+)?(?:(?:materialized|unique|temp|temporary)[ \t]+)?"
        r"(?P<word>table|view|function|procedure|trigger|type|index|schema|sequence|policy)[ \t]+(?:if[ \t]+not[ \t]+exists[ \t]+)?"
        rf"(?P<name>(?:{_QUOTED}\.){{0,3}}{_QUOTED})",
        re.MULTILINE | re.IGNORECASE,
    )


@functools.cache
def _declaring_c() -> re.Pattern[str]:
    """Match macros, functions and tables (`static const int ages[] =`) that begin a line."""
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
        inside, declared = text[piece.start : piece.end], piece.declared
        if language == "sql" or not (piece.symbol or any(row.kind not in VALUE_KINDS for row in declared)):
            names = {row.symbol for row in declared}
            more = (row for row in _find_declarations(inside, line, language) if row.symbol not in names)
            declared = tuple(sorted([*declared, *more], key=lambda row: row.line)[:MOST_DECLARED])
        complete.append(piece._replace(declared=declared))
        line += inside.count("\n")
    return complete


def _find_declarations(text: str, line: int, language: str) -> list[SymbolDeclaration]:
    """Return the declarations in the lines of a text. `line`: the number of its first line."""
    named: list[tuple[int, str, str]] = []
    if language == "sql":
        for match in _declaring_sql().finditer(text):
            parts = (part.strip('[]"`') for part in re.findall(_QUOTED, match["name"]))
            named.append((match.start("name"), ".".join(parts), match["word"].lower()))
    else:
        named += [(match.start("name"), match["name"], _KINDS[match["word"]]) for match in _declaring().finditer(text)]
    for match in _declaring_c().finditer(text) if language in ("c", "cpp") else ():
        name = next(group for group in ("defined", "name", "below") if match[group])
        named.append((match.start(name), match[name], _kind_in_c(match)))
    declared, at = [], 0
    for start, name, kind in sorted(named)[:MOST_DECLARED]:
        line += text.count("\n", at, start)
        at = start
        declared.append(SymbolDeclaration(name, kind, line, line))
    return declared


def _kind_in_c(match: re.Match[str]) -> str:
    if match["macro"]:
        return "macro"
    if match["function"] or match["below"]:
        return "function"
    return "constant" if "const" in match["words"].split() else "variable"
