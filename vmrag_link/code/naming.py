"""What a node of the tree declares: its name, its kind and its signature."""

from __future__ import annotations

import re
from typing import NamedTuple

from tree_sitter import Node

from vmrag_link.code.grammars import FUNCTION_VALUES, Grammar
from vmrag_link.code.languages import LONGEST_SIGNATURE

LONGEST_NAME = 100
_BYTES = 1000
"""Of a node that are looked at for a name or a signature."""

_LEVELS = 12
"""Of declarators around a name, and of wrappers around a symbol; more are no code that is read."""

_MOST_IN_WRAPPER = 8

_UNNAMED = {
    "companion_object": "Companion",
    "conversion_operator_declaration": "operator",
    "deinit_declaration": "deinit",
    "indexer_declaration": "this",
    "init_declaration": "init",
    "secondary_constructor": "constructor",
    "subscript_declaration": "subscript",
}
"""What is called by its keyword."""

_NAMED_BY_TYPE = frozenset(("impl_item", "type_alias"))
"""Whose name is the field `type`, if no other is."""

_PROTOTYPES = frozenset(("declaration", "field_declaration"))
"""In C: symbols where they declare a function."""

_C_TYPES = _PROTOTYPES | {"function_definition", "type_definition"}
_BODIES = ("body", "accessors", "value")
_BODY_TYPES = frozenset(
    "class_body enum_class_body function_body declaration_list column_definitions create_query block".split()
)
_PATTERNS = frozenset(("object_pattern", "array_pattern"))
_OF_LISTS = frozenset(
    "map filter reduce reduceRight find findIndex findLast some every sort toSorted flatMap forEach then catch finally".split()
)
"""Methods that take a function and return a value."""

_TEST_MACROS = frozenset("TEST TEST_F TEST_P TYPED_TEST TYPED_TEST_P FRIEND_TEST".split())
"""Macros of gtest that name a suite and a test."""

_KIND_WORDS = re.compile(r"\b(enum|struct|extension|actor|interface|annotation)\b")
_OWNER = re.compile(r"^(?:module\.exports|exports|window|globalThis|this|self)\.|\bprototype\.")
_GENERIC = re.compile(r"<[^<>]*>|\[[^\[\]]*\]")
_SPACE = re.compile(r"\s+")
_BLANKS = re.compile(rb"\s*")


class DescribedSymbol(NamedTuple):
    """What a node declares. `nodes` are the identities of all that are the same symbol: its own,
    and those of what it wraps. `row`: that of the declaration, below decorators and attributes,
    from 0. `body`: the first byte of its body, or its own where no body is known.
    """

    name: str
    kind: str
    signature: str
    row: int
    body: int
    nodes: tuple[int, ...]


def describe_symbol(node: Node, grammar: Grammar, data: bytes, *, with_calls: bool = False) -> DescribedSymbol | None:
    """Describe the symbol that a node declares; None if it declares none, or has no name.

    `with_calls`: a name that is given to the result of a call is a symbol if the call takes a
    function or a template, as `memo` and `styled` do.
    """
    chain = [node]
    while node.type in grammar.wrappers and len(chain) < _LEVELS:
        inside = _only_symbol(node, grammar)
        if inside is None:
            return _default_export(node, data, with_calls=with_calls)
        chain.append(node := inside)
    found = _name_of(node, grammar, data) or (_name_of_call(node, grammar, data) if with_calls else None)
    if not found:
        return None
    name, kind, value = found
    described = _described(name, kind, chain, value or node, data)
    if kind == "class" and (word := _KIND_WORDS.search(described.signature.partition(name)[0])):
        described = described._replace(kind=word[1])
    return described if value is None else described._replace(nodes=(*described.nodes, value.id))


def _described(name: str, kind: str, chain: list[Node], node: Node, data: bytes) -> DescribedSymbol:
    """`chain`: what is the same symbol, from outside; `node`: what has its body."""
    body = next((found for each in _BODIES if (found := node.child_by_field_name(each))), None) or _first(
        node, *_BODY_TYPES
    )
    first = _declaration(chain, data)
    signature = _signature(first, node, body, data)
    row, nodes = _row(chain[0], first, data), tuple(each.id for each in chain)
    return DescribedSymbol(name, kind, signature, row, (body or node).start_byte, nodes)


def read_scope_name(node: Node, data: bytes) -> str:
    """Of a namespace; empty: it has none."""
    name = node.child_by_field_name("name")
    return _clean(_text(name, data)) if name else ""


def _only_symbol(node: Node, grammar: Grammar) -> Node | None:
    if node.named_child_count > _MOST_IN_WRAPPER:
        return None
    found = [
        named_child
        for named_child in node.named_children
        if named_child.type in grammar.symbols
        or named_child.type in grammar.wrappers
        or named_child.type in grammar.assigned
    ]
    return found[0] if len(found) == 1 else None


def _default_export(node: Node, data: bytes, *, with_calls: bool) -> DescribedSymbol | None:
    value = node.child_by_field_name("value") if node.type == "export_statement" else None
    if value is None:
        return None
    kind = ("class" if value.type == "class" else "function") if value.type in FUNCTION_VALUES else ""
    if not kind and with_calls and value.type == "call_expression":
        kind = _kind_of_call(value, data)
    if not kind:
        return None
    return _described("default", kind, [node], value, data)._replace(nodes=(node.id, value.id))


def _name_of(node: Node, grammar: Grammar, data: bytes) -> tuple[str, str, Node | None] | None:
    """Name, kind, and the function that the name is given to."""
    if node.type in grammar.assigned:
        left, right = (node.child_by_field_name(each) for each in grammar.assigned[node.type])
        if left is None or right is None or right.type not in FUNCTION_VALUES:
            return None
        name = _clean(_OWNER.sub("", _text(left, data)).strip("'\"$"))
        return (name, "class" if right.type == "class" else "function", right) if name else None
    kind = grammar.symbols.get(node.type, "")
    if not kind or (node.type in grammar.bodied and not node.child_by_field_name("body")):
        return None
    name = _name(node, data)
    if node.type == "type_definition" and (struct := node.child_by_field_name("type")):
        kind = grammar.symbols.get(struct.type, kind)
    return (name, kind, None) if name else None


def _name_of_call(node: Node, grammar: Grammar, data: bytes) -> tuple[str, str, Node | None] | None:
    """Return name, kind and value for `const Card = memo(function …)` and ``const Button =
    styled.a`…` ``.
    """
    if node.type not in grammar.assigned:
        return None
    left, right = map(node.child_by_field_name, grammar.assigned[node.type])
    if left is None or right is None or right.type != "call_expression" or left.type in _PATTERNS:
        return None
    kind = _kind_of_call(right, data)
    name = _clean(_OWNER.sub("", _text(left, data)).strip("'\"$")) if kind else ""
    return (name, kind, right) if name else None


def _kind_of_call(node: Node, data: bytes) -> str:
    """Return True if a call returns a function: it takes one, and does not go over a list."""
    called, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
    if called is None or arguments is None:
        return ""
    if arguments.type == "template_string":
        return "constant" if node.end_point.row > node.start_point.row else ""
    for _ in range(_LEVELS):
        if not 0 < arguments.named_child_count <= _MOST_IN_WRAPPER:
            return ""
        given = arguments.named_children[0]
        if given.type in FUNCTION_VALUES:
            method = called.child_by_field_name("property")
            over_list = method and called.type == "member_expression" and _text(method, data) in _OF_LISTS
            return "" if over_list else "function"
        inner = given.child_by_field_name("arguments") if given.type == "call_expression" else None
        if inner is None:
            return ""
        arguments = inner
    return ""


def _name(node: Node, data: bytes) -> str:
    if node.type in _C_TYPES and node.child_by_field_name("declarator"):
        return _test_name(node, data) or _declared(node, data)
    found = node.child_by_field_name("name")
    if found is None and node.type in _NAMED_BY_TYPE:
        found = node.child_by_field_name("type")
    found = found or _first(node, "object_reference", "variable_declaration", "identifier")
    if node.type == "create_index":
        found = node.child_by_field_name("column")
    if found is not None and node.type.startswith("create_"):
        return _sql_name(found, data)
    if node.type == "operator_declaration":
        return _operator_name(node, data)
    if found is None or (node.type in _UNNAMED and found.type != "identifier"):
        return _UNNAMED.get(node.type, "")
    if found.type == "variable_declaration":
        found = _first(found, "identifier") or found
    name = _clean(_text(found, data))
    receiver = node.child_by_field_name("receiver")
    owner = f"{_receiver(receiver, data)}." if receiver else ""
    return f"~{name}" if node.type == "destructor_declaration" else f"{owner}{name}".lstrip(".")


def _operator_name(node: Node, data: bytes) -> str:
    operator = node.child_by_field_name("operator")
    return f"operator{_text(operator, data)}" if operator else "operator"


def _test_name(node: Node, data: bytes) -> str:
    """Return the name of a test of gtest: `Suite.Test` for `TEST(Suite, Test)`; empty for other
    functions.
    """
    declarator = node.child_by_field_name("declarator")
    name, given = (declarator and declarator.child_by_field_name(field) for field in ("declarator", "parameters"))
    if name is None or given is None or _text(name, data) not in _TEST_MACROS or given.named_child_count != 2:  # noqa: PLR2004
        return ""
    return ".".join(_clean(_text(part, data)) for part in given.named_children)


def _sql_name(node: Node, data: bytes) -> str:
    """Return the parts of a name without quotes and brackets."""
    parts = [node] if node.type != "object_reference" else [part for part in node.named_children if not part.is_error]
    names = (_SPACE.sub(" ", _text(part, data).strip("\"'`[]")) for part in parts)
    return ".".join(filter(None, names))[:LONGEST_NAME]


def _receiver(node: Node, data: bytes) -> str:
    """Go: `(s *Server[T])` is `Server`."""
    words = re.findall(r"\w+", _GENERIC.sub("", _text(node, data)))
    return words[-1] if words else ""


def _declared(node: Node, data: bytes) -> str:
    """C: what is inside of pointers, references, parameters and parentheses."""
    prototype, is_function = node.type in _PROTOTYPES, False
    for _ in range(_LEVELS):
        inner = node.child_by_field_name("declarator") or _declarator_inside(node)
        if inner is None:
            break
        if node.type == "function_declarator":
            if prototype and inner.type == "parenthesized_declarator":
                return ""  # a variable that holds a function
            is_function = True
        node = inner
    if prototype and not is_function:
        return ""
    text = _text(node, data)
    if "operator" in text:
        return _SPACE.sub(" ", text.partition("(")[0] or text).replace("::", ".").strip()[:LONGEST_NAME]
    return _clean(text)


def _declarator_inside(node: Node) -> Node | None:
    if not node.type.endswith("_declarator") or node.named_child_count > _MOST_IN_WRAPPER:
        return None
    return next(
        (
            named_child
            for named_child in node.named_children
            if named_child.type.endswith(("_declarator", "identifier", "_name"))
        ),
        None,
    )


def _declaration(chain: list[Node], data: bytes) -> int:
    """Behind which byte a symbol is declared: the last one of its decorators."""
    first = _after_attributes(chain[0])
    if b"\n" in data[first : chain[-1].start_byte].strip():
        first = _after_attributes(chain[-1])
    return first


def _row(node: Node, byte: int, data: bytes) -> int:
    """The row of what follows a byte of this node and blanks there."""
    blanks = _BLANKS.match(data, byte)
    return node.start_point.row + data.count(b"\n", node.start_byte, blanks.end() if blanks else byte)


def _signature(first: int, node: Node, body: Node | None, data: bytes) -> str:
    """From this byte to the body, as one line."""
    end = min(first + _BYTES, body.start_byte if body else node.end_byte)
    if (comment := _first(node, "comment", "line_comment")) and first < comment.start_byte < end:
        end = comment.start_byte
    text = data[first:end].decode(errors="ignore")
    if body is None or body.start_byte <= first:
        text = text.strip().partition("\n")[0]
    return _SPACE.sub(" ", text).strip().rstrip("{").strip()[:LONGEST_SIGNATURE].strip()


def _after_attributes(node: Node) -> int:
    """Where the declaration begins behind annotations on lines of their own."""
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


def _first(node: Node, *types: str) -> Node | None:
    """Its first child of the first of these types that it has."""
    if node.named_child_count > 4 * _MOST_IN_WRAPPER:
        return None
    children = node.named_children
    return next((child for kind in types for child in children if child.type == kind), None)


def _text(node: Node, data: bytes) -> str:
    return data[node.start_byte : min(node.end_byte, node.start_byte + _BYTES)].decode(errors="ignore")


def _clean(name: str) -> str:
    """Without parameters of types, dotted."""
    while name != (shorter := _GENERIC.sub("", name)):
        name = shorter
    name = _SPACE.sub("", name).replace("::", ".").replace("\\", ".").strip(".\"'`[]&*")
    return name[:LONGEST_NAME]
