"""Find the names of constants and variables outside of functions, and of members of interfaces.

A name has no piece of its own. The piece around it declares it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from tree_sitter import Node

from vmrag_link.code.grammars import FUNCTION_VALUES

CONSTANT, VARIABLE = "constant", "variable"

_MOST_CHILDREN = 64
"""Maximum number of parts of a declaration that is read. A longer declaration is data."""

_LEVELS = 12
_MOST_BYTES = 200
_IMPORT = re.compile(rb"(?:await\s+)?(?:require|import)\s*\(")
_EXPORTED = re.compile(rb"(?:module\.)?exports\.\w+\Z")


class NamedValue(NamedTuple):
    """A name and its kind. `node`: the node that ends with the value."""

    name: str
    kind: str
    node: Node


def find_named_values(node: Node, rule: str, data: bytes) -> Iterator[NamedValue]:
    """Yield the names that a node gives to values. `rule`: a value of `Grammar.values`."""
    for name, kind, value_node in _RULES[rule](node, data):
        text = _text_of(name, data)
        if text and text != "_":
            yield NamedValue(text, kind, value_node)


_NamedNodes = Iterator[tuple[Node, str, Node]]


def _python_values(node: Node, data: bytes) -> _NamedNodes:
    """Yield names of Python. In a class, `x = 1` is a field of its objects, and only `LIMIT = 1` is
    a constant.
    """
    assigned = _first_child(node)
    for _ in range(_LEVELS):
        if assigned is None or assigned.type != "assignment":
            return
        target, value = assigned.child_by_field_name("left"), assigned.child_by_field_name("right")
        if target is None or value is None:
            return
        for name in [target] if target.type == "identifier" else _children_of(target, "identifier"):
            is_tuple = target.type in ("pattern_list", "tuple_pattern", "list_pattern")
            if target is name or is_tuple:
                kind = "function" if value.type == "lambda" else _find_kind_by_case(name, data)
                yield name, kind, node
        assigned = value


def _find_kind_by_case(name: Node, data: bytes) -> str:
    return CONSTANT if _text_of(name, data).isupper() else VARIABLE


def _script_values(node: Node, data: bytes) -> _NamedNodes:
    """Yield names of JavaScript, except functions (they are symbols) and imports."""
    for inner in _children_of(node, "lexical_declaration", "variable_declaration"):  # inside an export
        node = inner
    kind = CONSTANT if data[node.start_byte : node.start_byte + 5] == b"const" else VARIABLE
    for declarator in _children_of(node, "variable_declarator"):
        name, value = declarator.child_by_field_name("name"), declarator.child_by_field_name("value")
        if name is None or name.type != "identifier" or (value and value.type in FUNCTION_VALUES):
            continue
        if value is None or not _IMPORT.match(data, value.start_byte):
            yield name, kind, declarator


def _script_export(node: Node, data: bytes) -> _NamedNodes:
    assigned = _first_child(node)
    if assigned is None or assigned.type != "assignment_expression":
        return
    target, value = assigned.child_by_field_name("left"), assigned.child_by_field_name("right")
    if target is None or value is None or value.type in FUNCTION_VALUES or target.type != "member_expression":
        return
    name = target.child_by_field_name("property")
    if name and _EXPORTED.match(data, target.start_byte, target.end_byte) and not _IMPORT.match(data, value.start_byte):
        yield name, CONSTANT, node


def _script_field(node: Node, data: bytes) -> _NamedNodes:
    """Yield a static field of a class, if its value is not a function."""
    name = node.child_by_field_name("name") or node.child_by_field_name("property")
    value = node.child_by_field_name("value")
    if name is None or value is None or value.type in FUNCTION_VALUES:
        return
    words = data[node.start_byte : name.start_byte].split()
    if b"static" in words:
        yield name, CONSTANT if b"readonly" in words else VARIABLE, node


def _script_member(node: Node, _data: bytes) -> _NamedNodes:
    name, around = node.child_by_field_name("name"), node.parent
    if name and around and around.type in ("interface_body", "object_type"):
        yield name, "property" if node.type == "property_signature" else "method", node


def _go_values(node: Node, _data: bytes) -> _NamedNodes:
    kind = CONSTANT if node.type == "const_declaration" else VARIABLE
    for part in node.named_children:
        for spec in part.named_children if part.type == "var_spec_list" else (part,):
            if spec.type in ("const_spec", "var_spec"):
                yield from ((name, kind, spec) for name in spec.children_by_field_name("name") if name.is_named)


def _rust_values(node: Node, _data: bytes) -> _NamedNodes:
    name = node.child_by_field_name("name")
    if name:
        yield name, VARIABLE if _children_of(node, "mutable_specifier") else CONSTANT, node


def _c_macro(node: Node, _data: bytes) -> _NamedNodes:
    """Yield a macro with a value. A macro without a value guards a header."""
    name = node.child_by_field_name("name")
    if name and node.child_by_field_name("value"):
        yield name, "macro", node


def _c_values(node: Node, data: bytes) -> _NamedNodes:
    """Yield names of C and C++, except `extern` declarations. Fields of C++ are included only if
    they are static constants.
    """
    words = {_text_of(part, data) for part in _children_of(node, "storage_class_specifier", "type_qualifier")}
    is_constant = not words.isdisjoint(("const", "constexpr", "constinit"))
    if node.type == "field_declaration" and not (is_constant and "static" in words):
        return
    for declarator in node.children_by_field_name("declarator"):
        if "extern" in words and declarator.type != "init_declarator":
            continue
        if name := _declared_variable(declarator):
            yield name, CONSTANT if is_constant else VARIABLE, node


def _declared_variable(node: Node) -> Node | None:
    for _ in range(_LEVELS):
        if node.type in ("identifier", "field_identifier"):
            return node
        inner = node.child_by_field_name("declarator")
        if inner is None or node.type == "function_declarator":
            return None
        node = inner
    return None


def _static_fields(node: Node, data: bytes) -> _NamedNodes:
    """Yield the static fields of Java and C# that are never assigned again."""
    words = {word for part in _children_of(node, "modifiers", "modifier") for word in _text_of(part, data).split()}
    is_constant = node.type == "constant_declaration" or "const" in words
    if not is_constant and not ("static" in words and words & {"final", "readonly"}):
        return
    declared = [node, *_children_of(node, "variable_declaration")]
    for declarator in (row for part in declared for row in _children_of(part, "variable_declarator")):
        if name := declarator.child_by_field_name("name"):
            yield name, CONSTANT, node


def _ruby_values(node: Node, _data: bytes) -> _NamedNodes:
    target = node.child_by_field_name("left")
    if target is not None and node.child_by_field_name("right"):
        names = [target] if target.type == "constant" else _children_of(target, "constant")
        if target.type in ("constant", "left_assignment_list"):
            yield from ((name, CONSTANT, node) for name in names)


def _php_values(node: Node, _data: bytes) -> _NamedNodes:
    for element in _children_of(node, "const_element"):
        if name := _first_child(element):
            yield name, CONSTANT, element


def _php_define(node: Node, data: bytes) -> _NamedNodes:
    called = _first_child(node)
    if called is None or called.type != "function_call_expression":
        return
    function, arguments = called.child_by_field_name("function"), called.child_by_field_name("arguments")
    if function and arguments and _text_of(function, data).lower() == "define":
        first = _first_child(arguments)
        texts = _children_of(first, "string", "encapsed_string") if first else []
        yield from ((name, CONSTANT, node) for text in texts for name in _children_of(text, "string_content"))


_RULES: Mapping[str, Callable[[Node, bytes], _NamedNodes]] = {
    "c": _c_values,
    "c macro": _c_macro,
    "fields": _static_fields,
    "go": _go_values,
    "php": _php_values,
    "php define": _php_define,
    "python": _python_values,
    "ruby": _ruby_values,
    "rust": _rust_values,
    "script": _script_values,
    "script export": _script_export,
    "script field": _script_field,
    "script member": _script_member,
}


def _children_of(node: Node, *types: str) -> list[Node]:
    """Return the children of these types; none if a node has so many children that it is
    generated.
    """
    if node.named_child_count > _MOST_CHILDREN:
        return []
    return [child for child in node.named_children if child.type in types]


def _first_child(node: Node) -> Node | None:
    return node.named_child(0) if node.named_child_count else None


def _text_of(node: Node, data: bytes) -> str:
    return data[node.start_byte : min(node.end_byte, node.start_byte + _MOST_BYTES)].decode(errors="ignore")
