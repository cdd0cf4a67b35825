"""Describe the symbol that a node of the tree declares: its name, its kind and its signature.

`symbols` calls `describe_symbol` for each node that may be a symbol (`grammars`). `data` is the
text, as it was parsed. Nodes count its bytes.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tree_sitter import Node

from vmrag_link.code.grammars import FUNCTION_VALUES, Grammar
from vmrag_link.code.languages import LONGEST_SIGNATURE

LONGEST_NAME = 100
_BYTES = 1000
"""Maximum number of bytes of a node that are read for a name or a signature."""

_LEVELS = 12
"""Maximum number of declarators around a name, and of wrappers around a symbol. Code that people
read has fewer.
"""

_MOST_IN_WRAPPER = 8

_KEYWORD_NAMES = {
    "companion_object": "Companion",
    "conversion_operator_declaration": "operator",
    "deinit_declaration": "deinit",
    "indexer_declaration": "this",
    "init_declaration": "init",
    "secondary_constructor": "constructor",
    "subscript_declaration": "subscript",
}
"""Names of symbols that have only a keyword."""

_NAMED_BY_TYPE = frozenset(("impl_item", "type_alias"))
"""Types whose name is in the field `type` if they have no other name."""

_PROTOTYPES = frozenset(("declaration", "field_declaration"))
"""Types of C that are symbols if they declare a function."""

_C_TYPES = _PROTOTYPES | {"function_definition", "type_definition"}
_BODIES = ("body", "accessors", "value")
_BODY_TYPES = frozenset(
    "class_body enum_class_body function_body declaration_list column_definitions create_query block".split()
)
_PATTERNS = frozenset(("object_pattern", "array_pattern"))
_OF_LISTS = frozenset(
    "map filter reduce reduceRight find findIndex findLast some every sort toSorted flatMap forEach then catch finally".split()
)
"""Methods of lists that take a function and return a value."""

_TEST_MACROS = frozenset("TEST TEST_F TEST_P TYPED_TEST TYPED_TEST_P FRIEND_TEST".split())
"""Macros of gtest that name a suite and a test."""

_KIND_WORDS = re.compile(r"\b(enum|struct|extension|actor|interface|annotation)\b")
_OWNER = re.compile(r"^(?:module\.exports|exports|window|globalThis|this|self)\.|\bprototype\.")
_GENERIC = re.compile(r"<[^<>]*>|\[[^\[\]]*\]")
_SPACE = re.compile(r"\s+")
_BLANKS = re.compile(rb"\s*")


class DescribedSymbol(NamedTuple):
    """A symbol that a node declares."""

    name: str
    kind: str
    signature: str
    row: int
    """The row of the declaration, below decorators and attributes, from 0."""

    body: int
    """The first byte of the body, or of the node if it has no known body."""

    nodes: tuple[int, ...]
    """Ids of all nodes that are the same symbol: the node itself, and the nodes that it wraps."""


def describe_symbol(node: Node, grammar: Grammar, data: bytes, *, with_calls: bool = False) -> DescribedSymbol | None:
    """Describe the symbol that a node declares; None if it declares none, or has no name.

    `with_calls`: a name that is assigned the result of a call is a symbol if the call takes a
    function or a template, like `memo` and `styled`.
    """
    chain = [node]
    while node.type in grammar.wrappers and len(chain) < _LEVELS:
        inside = _find_only_symbol(node, grammar)
        if inside is None:
            return _describe_default_export(node, data, with_calls=with_calls)
        node = inside
        chain.append(node)
    named = _find_name(node, grammar, data)
    if named is None and with_calls:
        named = _find_name_of_call(node, grammar, data)
    if named is None:
        return None
    described = _make_symbol(named.name, named.kind, chain, named.value or node, data)
    if named.kind == "class" and (word := _KIND_WORDS.search(described.signature.partition(named.name)[0])):
        described = described._replace(kind=word[1])
    return described if named.value is None else described._replace(nodes=(*described.nodes, named.value.id))


def _make_symbol(name: str, kind: str, chain: list[Node], node: Node, data: bytes) -> DescribedSymbol:
    """Return a description of a symbol.

    `chain`: the nodes that are the same symbol, the outermost first. `node`: the node with its
    body.
    """
    body = next(filter(None, map(node.child_by_field_name, _BODIES)), None) or _find_first_child(node, *_BODY_TYPES)
    first = _find_declaration_start(chain, data)
    return DescribedSymbol(
        name=name,
        kind=kind,
        signature=_read_signature(first, node, body, data),
        row=_find_row(chain[0], first, data),
        body=(body or node).start_byte,
        nodes=tuple(wrapped.id for wrapped in chain),
    )


def read_scope_name(node: Node, data: bytes) -> str:
    """Return the name of a namespace; empty if it has none."""
    name = node.child_by_field_name("name")
    return _clean_name(_read_text(name, data)) if name else ""


def _find_only_symbol(node: Node, grammar: Grammar) -> Node | None:
    if node.named_child_count > _MOST_IN_WRAPPER:
        return None
    types = (grammar.symbols, grammar.wrappers, grammar.assigned)
    symbols = [child for child in node.named_children if any(child.type in group for group in types)]
    return symbols[0] if len(symbols) == 1 else None


def _describe_default_export(node: Node, data: bytes, *, with_calls: bool) -> DescribedSymbol | None:
    value = node.child_by_field_name("value") if node.type == "export_statement" else None
    if value is None:
        return None
    kind = ("class" if value.type == "class" else "function") if value.type in FUNCTION_VALUES else ""
    if not kind and with_calls and value.type == "call_expression":
        kind = _find_kind_of_call(value, data)
    if not kind:
        return None
    return _make_symbol("default", kind, [node], value, data)._replace(nodes=(node.id, value.id))


class _Name(NamedTuple):
    """The name and the kind of a symbol."""

    name: str
    kind: str
    value: Node | None
    """The function or class that is assigned to the name, or the call that returns it."""


def _find_name(node: Node, grammar: Grammar, data: bytes) -> _Name | None:
    if node.type in grammar.assigned:
        target, value = (node.child_by_field_name(field) for field in grammar.assigned[node.type])
        if target is None or value is None or value.type not in FUNCTION_VALUES:
            return None
        name = _clean_name(_OWNER.sub("", _read_text(target, data)).strip("'\"$"))
        return _Name(name, "class" if value.type == "class" else "function", value) if name else None
    kind = grammar.symbols.get(node.type, "")
    if not kind or (node.type in grammar.bodied and not node.child_by_field_name("body")):
        return None
    name = _read_name(node, data)
    if node.type == "type_definition" and (struct := node.child_by_field_name("type")):
        kind = grammar.symbols.get(struct.type, kind)
    return _Name(name, kind, None) if name else None


def _find_name_of_call(node: Node, grammar: Grammar, data: bytes) -> _Name | None:
    """Return the name in code such as `const Card = memo(function …)` and ``const Button =
    styled.a`…` ``.
    """
    if node.type not in grammar.assigned:
        return None
    target, value = map(node.child_by_field_name, grammar.assigned[node.type])
    if target is None or value is None or value.type != "call_expression" or target.type in _PATTERNS:
        return None
    kind = _find_kind_of_call(value, data)
    name = _clean_name(_OWNER.sub("", _read_text(target, data)).strip("'\"$")) if kind else ""
    return _Name(name, kind, value) if name else None


def _find_kind_of_call(node: Node, data: bytes) -> str:
    """Return the kind of the value that a call returns; empty if it is not a symbol.

    The value is a function if the call takes a function, unless the call is a method of a list.
    """
    called = node.child_by_field_name("function")
    arguments = node.child_by_field_name("arguments")
    if called is None or arguments is None:
        return ""
    if arguments.type == "template_string":
        return "constant" if node.end_point.row > node.start_point.row else ""
    for _ in range(_LEVELS):
        if not 0 < arguments.named_child_count <= _MOST_IN_WRAPPER:
            return ""
        argument = arguments.named_children[0]
        if argument.type in FUNCTION_VALUES:
            method = called.child_by_field_name("property")
            over_list = method and called.type == "member_expression" and _read_text(method, data) in _OF_LISTS
            return "" if over_list else "function"
        inner = argument.child_by_field_name("arguments") if argument.type == "call_expression" else None
        if inner is None:
            return ""
        arguments = inner
    return ""


def _read_name(node: Node, data: bytes) -> str:
    if node.type in _C_TYPES and node.child_by_field_name("declarator"):
        return _read_test_name(node, data) or _read_declared_name(node, data)
    name_node = node.child_by_field_name("name")
    if name_node is None and node.type in _NAMED_BY_TYPE:
        name_node = node.child_by_field_name("type")
    name_node = name_node or _find_first_child(node, "object_reference", "variable_declaration", "identifier")
    if node.type == "create_index":
        name_node = node.child_by_field_name("column")
    if name_node is not None and node.type.startswith("create_"):
        return _read_sql_name(name_node, data)
    if node.type == "operator_declaration":
        return _read_operator_name(node, data)
    if name_node is None or (node.type in _KEYWORD_NAMES and name_node.type != "identifier"):
        return _KEYWORD_NAMES.get(node.type, "")
    if name_node.type == "variable_declaration":
        name_node = _find_first_child(name_node, "identifier") or name_node
    name = _clean_name(_read_text(name_node, data))
    receiver = node.child_by_field_name("receiver")
    owner = f"{_read_receiver(receiver, data)}." if receiver else ""
    return f"~{name}" if node.type == "destructor_declaration" else f"{owner}{name}".lstrip(".")


def _read_operator_name(node: Node, data: bytes) -> str:
    operator = node.child_by_field_name("operator")
    return f"operator{_read_text(operator, data)}" if operator else "operator"


def _read_test_name(node: Node, data: bytes) -> str:
    """Return the name of a test of gtest: `Suite.Test` for `TEST(Suite, Test)`; empty for other
    functions.
    """
    declarator = node.child_by_field_name("declarator")
    name, parameters = (declarator and declarator.child_by_field_name(field) for field in ("declarator", "parameters"))
    if (
        name is None
        or parameters is None
        or _read_text(name, data) not in _TEST_MACROS
        or parameters.named_child_count != 2  # noqa: PLR2004
    ):
        return ""
    return ".".join(_clean_name(_read_text(part, data)) for part in parameters.named_children)


def _read_sql_name(node: Node, data: bytes) -> str:
    """Return the parts of a name without quotes and brackets."""
    parts = [node] if node.type != "object_reference" else [part for part in node.named_children if not part.is_error]
    names = (_SPACE.sub(" ", _read_text(part, data).strip("\"'`[]")) for part in parts)
    return ".".join(filter(None, names))[:LONGEST_NAME]


def _read_receiver(node: Node, data: bytes) -> str:
    """Return the type of a receiver in Go: `Server` for `(s *Server[T])`."""
    words = re.findall(r"\w+", _GENERIC.sub("", _read_text(node, data)))
    return words[-1] if words else ""


def _read_declared_name(node: Node, data: bytes) -> str:
    """Return the name in C that is inside pointers, references, parameters and parentheses."""
    is_prototype = node.type in _PROTOTYPES
    is_function = False
    for _ in range(_LEVELS):
        inner = node.child_by_field_name("declarator") or _find_inner_declarator(node)
        if inner is None:
            break
        if node.type == "function_declarator":
            if is_prototype and inner.type == "parenthesized_declarator":
                return ""  # a variable that holds a function
            is_function = True
        node = inner
    if is_prototype and not is_function:
        return ""
    text = _read_text(node, data)
    if "operator" in text:
        return _SPACE.sub(" ", text.partition("(")[0] or text).replace("::", ".").strip()[:LONGEST_NAME]
    return _clean_name(text)


def _find_inner_declarator(node: Node) -> Node | None:
    if not node.type.endswith("_declarator") or node.named_child_count > _MOST_IN_WRAPPER:
        return None
    endings = ("_declarator", "identifier", "_name")
    return next((child for child in node.named_children if child.type.endswith(endings)), None)


def _find_declaration_start(chain: list[Node], data: bytes) -> int:
    """Return the byte at which the declaration of a symbol begins, after its decorators."""
    first = _skip_attributes(chain[0])
    if b"\n" in data[first : chain[-1].start_byte].strip():
        first = _skip_attributes(chain[-1])
    return first


def _find_row(node: Node, byte: int, data: bytes) -> int:
    """Return the row of the first text after a byte of this node, without blanks."""
    blanks = _BLANKS.match(data, byte)
    return node.start_point.row + data.count(b"\n", node.start_byte, blanks.end() if blanks else byte)


def _read_signature(first: int, node: Node, body: Node | None, data: bytes) -> str:
    """Return the text from a byte to the body, as one line."""
    end = min(first + _BYTES, body.start_byte if body else node.end_byte)
    if (comment := _find_first_child(node, "comment", "line_comment")) and first < comment.start_byte < end:
        end = comment.start_byte
    text = data[first:end].decode(errors="ignore")
    if body is None or body.start_byte <= first:
        text = text.strip().partition("\n")[0]
    return _SPACE.sub(" ", text).strip().rstrip("{").strip()[:LONGEST_SIGNATURE].strip()


def _skip_attributes(node: Node) -> int:
    """Return the byte after annotations on lines of their own."""
    first = node.start_byte
    for named_child in node.named_children[:_MOST_IN_WRAPPER] if node.named_child_count <= 4 * _MOST_IN_WRAPPER else ():
        if named_child.type == "modifiers" and named_child.named_child_count <= _MOST_IN_WRAPPER:
            marks = [
                part for part in named_child.named_children if "annotation" in part.type or part.type == "attribute"
            ]
            if marks and marks[-1].end_point.row < node.end_point.row:
                first = marks[-1].end_byte
        elif named_child.type in ("attribute_list", "decorator", "comment"):
            first = named_child.end_byte
        else:
            break
    return first


def _find_first_child(node: Node, *types: str) -> Node | None:
    """Return the first child of the first of these types that occurs; None for a node with many
    children.
    """
    if node.named_child_count > 4 * _MOST_IN_WRAPPER:
        return None
    children = node.named_children
    return next((child for kind in types for child in children if child.type == kind), None)


def _read_text(node: Node, data: bytes) -> str:
    return data[node.start_byte : min(node.end_byte, node.start_byte + _BYTES)].decode(errors="ignore")


def _clean_name(name: str) -> str:
    """Return a dotted name without type parameters."""
    while name != (shorter := _GENERIC.sub("", name)):
        name = shorter
    name = _SPACE.sub("", name).replace("::", ".").replace("\\", ".").strip(".\"'`[]&*")
    return name[:LONGEST_NAME]
