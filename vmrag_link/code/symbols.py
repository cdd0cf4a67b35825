"""The symbols of a tree, in the order of the text."""

from __future__ import annotations

from dataclasses import dataclass

from tree_sitter import Node, Tree

from vmrag_link.code.grammars import CLASSES, Grammar
from vmrag_link.code.layout import SymbolRows
from vmrag_link.code.lines import LONGEST_LINE, Lines
from vmrag_link.code.naming import describe, scope_name

MOST_NODES = 400_000
"""Of a tree that are visited: code has about one for fifty bytes."""

_MOST_LEVELS = 16
"""Of symbols within symbols; deeper ones are not told apart."""

_LONGEST_SYMBOL = 200


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
        self._named = {*grammar.symbols, *grammar.wrappers, *grammar.assigned}
        self._claimed: set[int] = set()

    def root(self) -> SymbolRows:
        """The whole text, as a symbol without a name. Raises `TooManyNodes`."""
        root = SymbolRows(0, self._lines.count)
        levels = [_Level(root, "")]
        cursor = self._tree.walk()
        if not cursor.goto_first_child():
            return root
        for _ in range(MOST_NODES):
            node = cursor.node
            assert node is not None  # noqa: S101  the cursor stands somewhere
            inner = self._visit(node, levels[-1])
            if inner and cursor.goto_first_child():
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
        if node.type in self._grammar.leading:
            if self._begins_row(node):
                level.lead = level.lead if level.lead_end == first else first
                level.lead_end = end
            return None
        found = None
        if node.type in self._named and node.id not in self._claimed and self._may_be_symbol(first, end, level):
            found = describe(node, self._grammar, self._data)
        if found is None:
            return self._through(node, first, end, level)
        self._claimed.update(found.nodes)
        kind = "method" if found.kind == "function" and level.owner.kind in CLASSES else found.kind
        symbol = f"{level.prefix}{found.name}"[-_LONGEST_SYMBOL:]
        begin = level.lead if level.lead_end == first else first
        rows = SymbolRows(begin, min(end, self._lines.count), symbol, kind, found.signature, level.owner.level + 1)
        level.owner.inside.append(rows)
        level.lead_end = -1
        if self._lines.length(begin, rows.end) <= self._size:
            return None
        return _Level(rows, f"{symbol}.")

    def _may_be_symbol(self, first: int, end: int, level: _Level) -> bool:
        """All that is in one long line belongs to no symbol: the line is cut anywhere."""
        is_long = end - first == 1 and self._lines.length(first, end) > LONGEST_LINE
        return not is_long and level.owner.level < _MOST_LEVELS

    def _through(self, node: Node, first: int, end: int, level: _Level) -> _Level | None:
        if end - first < 2:  # noqa: PLR2004  no symbol inside of it has a line of its own
            return None
        prefix = level.prefix
        if node.type in self._grammar.scopes and (name := scope_name(node, self._data)):
            prefix = f"{prefix}{name}."[-_LONGEST_SYMBOL:]
        return _Level(level.owner, prefix, level.lead, level.lead_end)

    def _begins_row(self, node: Node) -> bool:
        start = node.start_byte
        return not self._data[start - node.start_point.column : start].strip()
