"""The symbols of a tree, in the order of the text."""

from __future__ import annotations

from dataclasses import dataclass

from tree_sitter import Node, Tree

from vmrag_link.code.grammars import CLASSES, LOCALS, Grammar
from vmrag_link.code.layout import SymbolRows
from vmrag_link.code.lines import LONGEST_LINE, Lines
from vmrag_link.code.naming import describe, scope_name

MOST_NODES = 400_000
"""Of a tree that are visited: code has about one for fifty bytes. As many more may be in symbols
that fit, where they decide about no piece.
"""

MOST_SYMBOLS = 10_000
"""Of a text that are told of."""

_MOST_LEVELS = 16
"""Of symbols within symbols; deeper ones are not told apart."""

_LONGEST_SYMBOL = 200

_FUNCTIONS = frozenset(("function", "method", "property"))
"""Kinds in which what looks like a symbol may be a variable (`LOCALS`)."""


@dataclass(slots=True)
class _Level:
    """Where the walk is in the children of a node. `lead`, `lead_end`: rows of comments."""

    owner: SymbolRows
    prefix: str
    lead: int = -1
    lead_end: int = -1


class TooManyNodes(Exception):
    """The tree has more than `MOST_NODES`."""


class SymbolWalk:
    """Goes through a tree by a cursor: recursion would end at a thousand brackets."""

    def __init__(self, tree: Tree, grammar: Grammar, data: bytes, lines: Lines, size: int) -> None:
        self._tree, self._grammar, self._data, self._lines, self._size = tree, grammar, data, lines, size
        self._named = frozenset((*grammar.symbols, *grammar.wrappers, *grammar.assigned))
        self._claimed: set[int] = set()
        self.declared: list[SymbolRows] = []
        """All symbols, those within ones that fit, too, but no variables of functions; no more than
        `MOST_SYMBOLS`.
        """

    def root(self) -> SymbolRows:
        """The whole text, as a symbol without a name. Raises `TooManyNodes`."""
        root = SymbolRows(0, self._lines.count)
        levels = [_Level(root, "")]
        cursor = self._tree.walk()
        if not cursor.goto_first_child():
            return root
        left = spare = MOST_NODES
        while left:
            node, level = cursor.node, levels[-1]
            assert node is not None  # noqa: S101  the cursor stands somewhere
            if level.owner.fits:
                spare -= 1
            else:
                left -= 1
            inner = self._visit(node, level)
            if inner and (spare > 0 or not inner.owner.fits) and cursor.goto_first_child():
                levels.append(inner)
                continue
            while not cursor.goto_next_sibling():
                levels.pop()
                if not levels or not cursor.goto_parent():
                    return root
        raise TooManyNodes

    def _visit(self, node: Node, level: _Level) -> _Level | None:
        """With what its children are visited; None: they are not."""
        first, (last, column) = node.start_point.row, node.end_point
        end = last + 1 if column or last == first else last  # some end with the line feed
        kind, owner = node.type, level.owner
        if kind in self._grammar.leading:
            if not owner.fits and self._begins_row(node):
                level.lead = level.lead if level.lead_end == first else first
                level.lead_end = end
            return None
        found = None
        if kind in self._named and node.id not in self._claimed and self._may_be_symbol(first, end, level):
            is_local = kind in LOCALS and owner.kind in _FUNCTIONS
            found = None if is_local and owner.fits else describe(node, self._grammar, self._data)
        if found is None:
            return self._through(node, first, end, level)
        self._claimed.update(found.nodes)
        symbol = f"{level.prefix}{found.name}"[-_LONGEST_SYMBOL:]
        begin = level.lead if level.lead_end == first else first
        rows = SymbolRows(begin, min(end, self._lines.count), symbol, found.kind, found.signature, owner.level + 1)
        if found.kind == "function" and owner.kind in CLASSES:
            rows.kind = "method"
        rows.row, rows.body = found.row, found.body
        rows.fits = owner.fits or self._lines.length(begin, rows.end) <= self._size
        if not is_local and len(self.declared) < MOST_SYMBOLS:
            self.declared.append(rows)
        if not owner.fits:
            owner.inside.append(rows)
            level.lead_end = -1
        return _Level(rows, f"{symbol}.") if self._may_have_symbols(rows, found.body, node.end_byte) else None

    def _may_have_symbols(self, rows: SymbolRows, first: int, end: int) -> bool:
        """Of one that is `rows`, with a body between these bytes. Most functions have none."""
        introduced = self._grammar.introduced
        if not introduced or not rows.fits or rows.kind not in _FUNCTIONS:
            return True
        return introduced.search(self._data, first, end) is not None

    def _may_be_symbol(self, first: int, end: int, level: _Level) -> bool:
        """All that is in one long line belongs to no symbol: the line is cut anywhere."""
        is_long = end - first == 1 and self._lines.length(first, end) > LONGEST_LINE
        return not is_long and level.owner.level < _MOST_LEVELS

    def _through(self, node: Node, first: int, end: int, level: _Level) -> _Level | None:
        owner = level.owner
        is_body = owner.fits and node.start_byte == owner.body
        if end - first < 2 and not is_body:  # noqa: PLR2004  no symbol inside of it has a line of its own
            return None
        prefix = level.prefix
        if node.type in self._grammar.scopes and (name := scope_name(node, self._data)):
            prefix = f"{prefix}{name}."[-_LONGEST_SYMBOL:]
        return _Level(owner, prefix, level.lead, level.lead_end)

    def _begins_row(self, node: Node) -> bool:
        start = node.start_byte
        return not self._data[start - node.start_point.column : start].strip()
