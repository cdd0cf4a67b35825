"""Parse a text, and find its symbols: functions, classes and other named parts of a program.

`cutting` calls `parse_tree` and then `find_symbols`. Both count operations instead of time, so the
result is the same on every machine.
"""

from __future__ import annotations

import functools
import importlib
from importlib.machinery import PathFinder
from types import ModuleType
from typing import NamedTuple

from tree_sitter import Language, Node, Parser, Point, Tree

from vmrag_link.code.grammars import CLASSES, LOCALS, Grammar, compile_words
from vmrag_link.code.languages import GRAMMARS
from vmrag_link.code.layout import LONGEST_LINE, Lines, SymbolRows
from vmrag_link.code.naming import describe_symbol, read_scope_name
from vmrag_link.code.values import VARIABLE, find_named_values

MOST_NODES = 400_000
"""Maximum number of visited nodes of a tree. Code has about one for fifty bytes. As many more may
be inside symbols that fit, where they do not affect pieces.
"""

MOST_SYMBOLS = 10_000
"""Maximum number of declared symbols of a text."""

_MOST_LEVELS = 16
"""Maximum depth of symbols inside symbols. Deeper symbols are ignored."""

_LONGEST_SYMBOL = 200

_FUNCTIONS = frozenset(("function", "method", "property"))
"""Kinds in which a node that looks like a symbol may be a variable (`LOCALS`)."""


_HOLDERS = CLASSES | {"module", "type"}
"""Kinds of symbols whose values belong to them."""


class TooManyNodes(Exception):
    """The tree has more than `MOST_NODES`."""


class TextSymbols(NamedTuple):
    """The symbols of a text."""

    root: SymbolRows
    """The whole text as a symbol without a name."""

    declared: list[SymbolRows]
    """All symbols, including those inside symbols that fit, and names of values outside of
    functions. At most `MOST_SYMBOLS`.
    """


def find_symbols(tree: Tree, grammar: Grammar, data: bytes, lines: Lines, size: int) -> TextSymbols:
    """Return the symbols of a text. `data`: the text, as it was parsed. `size`: the characters of a
    piece. Raises `TooManyNodes`.
    """
    return _SymbolWalk(tree, grammar, data, lines, size).find_symbols()


class _Level:
    """The position of the walk in the children of a node.

    `owner`: the symbol around them. `prefix`: the beginning of their names. `is_local`: values here
    are variables of a function or block. `lead`, `lead_end`: the rows of the comments and
    decorators that were visited last, which belong to the symbol below.
    """

    __slots__ = ("is_local", "lead", "lead_end", "owner", "prefix")

    def __init__(
        self, owner: SymbolRows, prefix: str, lead: int = -1, lead_end: int = -1, *, is_local: bool = False
    ) -> None:
        self.owner = owner
        self.prefix = prefix
        self.lead = lead
        self.lead_end = lead_end
        self.is_local = is_local or (owner.level > 0 and owner.kind not in _HOLDERS)


class _SymbolWalk:
    """Walks through a tree with a cursor, because recursion would fail at a thousand brackets."""

    def __init__(self, tree: Tree, grammar: Grammar, data: bytes, lines: Lines, size: int) -> None:
        self._tree = tree
        self._grammar = grammar
        self._data = data
        self._lines = lines
        self._size = size
        self._declared: list[SymbolRows] = []
        self._types = frozenset((*grammar.symbols, *grammar.wrappers, *grammar.assigned))
        """Types of nodes that may be symbols."""

        self._claimed: set[int] = set()
        """Ids of nodes that are part of a symbol that was visited."""

        self._values: set[str] = set()
        """Names of values that are already declared, because a variable may be assigned again."""

        self._skips = tree.root_node.descendant_count <= MOST_NODES and LOCALS.isdisjoint(grammar.symbols)
        """True if a long function without introducing words may be skipped. `LOCALS` would be
        symbols in it.
        """

    def find_symbols(self) -> TextSymbols:
        root = SymbolRows(0, self._lines.count)
        result = TextSymbols(root, self._declared)
        levels = [_Level(root, "")]
        cursor = self._tree.walk()
        if not cursor.goto_first_child():
            return result
        budget = spare_budget = MOST_NODES
        while budget:
            node = cursor.node
            level = levels[-1]
            assert node is not None  # noqa: S101  the cursor always has a node
            if level.owner.fits:
                spare_budget -= 1
            else:
                budget -= 1
            inner = self._visit_node(node, level)
            if inner and (spare_budget > 0 or not inner.owner.fits) and cursor.goto_first_child():
                levels.append(inner)
                continue
            while not cursor.goto_next_sibling():
                levels.pop()
                if not levels or not cursor.goto_parent():
                    return result
        raise TooManyNodes

    def _visit_node(self, node: Node, level: _Level) -> _Level | None:
        """Process a node. Return the level for its children, or None to skip them."""
        owner = level.owner
        first, end = _find_rows(node)
        if node.type in self._grammar.leading:
            if not owner.fits and self._begins_row(node):
                level.lead = level.lead if level.lead_end == first else first
                level.lead_end = end
            return None
        is_candidate = node.type in self._types and node.id not in self._claimed
        is_local = node.type in LOCALS and owner.kind in _FUNCTIONS
        described = None
        if is_candidate and not (is_local and owner.fits) and self._may_be_symbol(first, end, level):
            described = describe_symbol(node, self._grammar, self._data, with_calls=not level.is_local)
        if described is None:
            has_values = node.type in self._grammar.values and not level.is_local
            if has_values and self._may_be_symbol(first, end, level):
                self._declare_values(node, level)
            return self._enter_node(node, first, end, level)
        self._claimed.update(described.nodes)
        begin = level.lead if level.lead_end == first else first
        end = min(end, self._lines.count)
        is_method = described.kind == "function" and owner.kind in CLASSES
        rows = SymbolRows(
            begin,
            end,
            symbol=f"{level.prefix}{described.name}"[-_LONGEST_SYMBOL:],
            kind="method" if is_method else described.kind,
            signature=described.signature,
            level=owner.level + 1,
            row=described.row,
            body=described.body,
            fits=owner.fits or self._lines.count_characters(begin, end) <= self._size,
        )
        if not is_local and len(self._declared) < MOST_SYMBOLS:
            self._declared.append(rows)
        if not owner.fits:
            owner.inside.append(rows)
            level.lead_end = -1
        return _Level(rows, f"{rows.symbol}.") if self._may_have_symbols(rows, described.body, node.end_byte) else None

    def _declare_values(self, node: Node, level: _Level) -> None:
        """Declare the names that a node gives to values. Fields of a class are declared only if
        they are constants.
        """
        rule = self._grammar.values[node.type]
        for name, kind, whole in find_named_values(node, rule, self._data):
            symbol = f"{level.prefix}{name}"[-_LONGEST_SYMBOL:]
            is_field = rule == "python" and level.owner.level > 0 and kind == VARIABLE
            if is_field or symbol in self._values or len(self._declared) >= MOST_SYMBOLS:
                continue
            self._values.add(symbol)
            first, end = _find_rows(whole)
            rows = SymbolRows(
                first, min(end, self._lines.count), symbol=symbol, kind=kind, level=level.owner.level + 1, row=first
            )
            self._declared.append(rows)

    def _may_have_symbols(self, rows: SymbolRows, first: int, end: int) -> bool:
        """Return whether a symbol may contain symbols in its body between these bytes. Most
        functions do not.
        """
        introduced = self._grammar.introduced
        if not introduced or not (rows.fits or self._skips) or rows.kind not in _FUNCTIONS:
            return True
        return compile_words(introduced).search(self._data, first, end) is not None

    def _may_be_symbol(self, first: int, end: int, level: _Level) -> bool:
        """Return whether these rows may be a symbol. Nodes in one very long line are not symbols,
        because the line is split anywhere.
        """
        is_long = end - first == 1 and self._lines.count_characters(first, end) > LONGEST_LINE
        return not is_long and level.owner.level < _MOST_LEVELS

    def _enter_node(self, node: Node, first: int, end: int, level: _Level) -> _Level | None:
        """Return the level for the children of a node that is not a symbol, or None to skip
        them.
        """
        owner = level.owner
        is_body = owner.fits and node.start_byte == owner.body
        if end - first < 2 and not is_body and not self._may_be_inline(node, level):  # noqa: PLR2004  a single line
            return None
        prefix = level.prefix
        if node.type in self._grammar.scopes and (name := read_scope_name(node, self._data)):
            prefix = f"{prefix}{name}."[-_LONGEST_SYMBOL:]
        is_local = level.is_local or node.type in self._grammar.blocks
        return _Level(owner, prefix, level.lead, level.lead_end, is_local=is_local)

    def _may_be_inline(self, node: Node, level: _Level) -> bool:
        """Return whether a node of a single line, such as an object, may contain a symbol."""
        if node.type not in self._grammar.inline or (level.owner.level and level.owner.kind not in _HOLDERS):
            return False
        text = self._data[node.start_byte : min(node.end_byte, node.start_byte + LONGEST_LINE + 1)]
        return len(text) <= LONGEST_LINE and (b"{" in text or b"=>" in text or node.type == "block")

    def _begins_row(self, node: Node) -> bool:
        start = node.start_byte
        return not self._data[start - node.start_point.column : start].strip()


def _find_rows(node: Node) -> tuple[int, int]:
    """Return the first row of a node, and the row after its last one."""
    first = node.start_point.row
    last = node.end_point
    # Some nodes end with the line feed.
    return first, last.row + 1 if last.column or last.row == first else last.row


_SPARE_STEPS, _BYTES_PER_STEP = 500, 64
"""Steps of the parser that a text may take, in total and per byte. A step is about a hundred
operations.

4,300 files of fifteen languages took one step for 80 to 190 bytes, and none exceeded one for 64 by
more than 431. Malicious files take one for 10.
"""

_BLOCK = 1024
_SPARE_READS, _BYTES_PER_READ = 2000, 20
"""Blocks that the parser may read, in total and per byte.

A scanner that searches the end of a string again and again reads blocks without a step. Files took
one block for 230 bytes or more, and none exceeded one for 50 by more than 175.
"""


class _Budget:
    """The operations that the parser may spend on a text. They do not depend on time."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._steps = self._reads = self._reached = 0
        self.is_spent = False

    def step(self, offset: int, _failed: bool) -> bool:
        """Return whether the parser should stop."""
        self._steps += 1
        self._reached = max(self._reached, offset)
        if self._steps > _SPARE_STEPS + self._reached // _BYTES_PER_STEP:
            self.is_spent = True
        return self.is_spent

    def read(self, offset: int, _point: Point) -> memoryview:
        """Return a block of the text. Return an empty block, the end of the text, if too much was
        read.
        """
        self._reads += 1
        self._reached = max(self._reached, offset)
        if self._reads > _SPARE_READS + self._reached // _BYTES_PER_READ:
            self.is_spent = True
        return self._data[:0] if self.is_spent else self._data[offset : offset + _BLOCK]


def parse_tree(data: bytes, language: str) -> Tree | None:
    """Return the tree of a text; None if the text is too difficult.

    The result depends only on the text and the grammar.
    """
    budget, parser = _Budget(data), _load_parser(language)
    try:
        tree = parser.parse(budget.read, progress_callback=budget.step)
    except ValueError:
        if not budget.is_spent:
            raise
        parser.reset()
        return None
    return None if budget.is_spent else tree


@functools.cache
def _load_parser(language: str) -> Parser:
    package = GRAMMARS[language]
    return Parser(Language(getattr(_load_binding(package.module), package.function)()))


def _load_binding(package: str) -> ModuleType:
    """Load the module of a grammar without its package, which imports ten modules to find its
    queries.
    """
    name = f"{package}._binding"
    package_spec = PathFinder.find_spec(package)
    spec = PathFinder.find_spec(name, package_spec.submodule_search_locations) if package_spec else None
    if spec is None or spec.loader is None:
        return importlib.import_module(package)
    module = spec.loader.create_module(spec)
    assert module is not None  # noqa: S101  the loader of modules in C makes one
    spec.loader.exec_module(module)
    return module
