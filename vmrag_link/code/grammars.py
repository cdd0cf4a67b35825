"""The types of nodes that are symbols, for each grammar."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import NamedTuple


class Grammar(NamedTuple):
    """The node types of a grammar, by their role."""

    symbols: Mapping[str, str]
    """Types of symbols, with the kind of each."""

    scopes: frozenset[str] = frozenset()
    """Types that add a prefix to the names in them, but are not symbols."""

    wrappers: frozenset[str] = frozenset()
    """Types that enclose one symbol, and are part of it."""

    assigned: Mapping[str, tuple[str, str]] = {}
    """Types that are symbols if they assign a function to a name, with the fields of the name and
    of the function.
    """

    leading: frozenset[str] = frozenset()
    """Types that belong to the symbol directly below."""

    bodied: frozenset[str] = frozenset()
    """Types that are symbols only if they have a body."""

    introduced: bytes = b""
    """Pattern of words that introduce a symbol within a function; empty if the language has no such
    words.
    """

    values: Mapping[str, str] = {}
    """Types that give names to constants, variables and members, with the rule of each in
    `code.values`.
    """

    blocks: frozenset[str] = frozenset()
    """Types in which values are local."""

    inline: frozenset[str] = frozenset()
    """Types that may contain a symbol in a single line."""


CLASSES = frozenset("class struct interface trait impl enum extension object protocol record union actor".split())
"""Kinds whose functions are methods."""

FUNCTION_VALUES = frozenset("arrow_function function_expression generator_function anonymous_function class".split())
"""Types of values that make a name a symbol."""

LOCALS = frozenset("declaration property_declaration".split())
"""Types of symbols that are variables inside a function."""


def _split_words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _make_word_pattern(words: str) -> bytes:
    return rf"\b(?:{words.replace(' ', '|')})\b".encode()


@functools.cache
def compile_words(words: bytes) -> re.Pattern[bytes]:
    """Compile the words of one grammar, because compiling those of all grammars takes longer than
    parsing a file.
    """
    return re.compile(words)


def _invert_kinds(**types: str) -> dict[str, str]:
    """Return the kind of each node type, from the node types of each kind."""
    return {node_type: kind for kind, names in types.items() for node_type in names.split()}


_C = _invert_kinds(
    function="function_definition declaration field_declaration",
    struct="struct_specifier",
    union="union_specifier",
    enum="enum_specifier",
    type="type_definition",
    macro="preproc_function_def",
)
_C_BODIED = "struct_specifier union_specifier enum_specifier"
_C_VALUES = {"declaration": "c", "preproc_def": "c macro"}
_C_BLOCKS = "compound_statement lambda_expression"

_JAVASCRIPT = Grammar(
    symbols=_invert_kinds(
        function="function_declaration generator_function_declaration",
        **{"class": "class_declaration"},
        method="method_definition",
    ),
    wrappers=_split_words("export_statement lexical_declaration variable_declaration expression_statement"),
    assigned={
        "variable_declarator": ("name", "value"),
        "field_definition": ("property", "value"),
        "pair": ("key", "value"),
        "assignment_expression": ("left", "right"),
    },
    leading=_split_words("comment html_comment decorator"),
    values={
        "lexical_declaration": "script",
        "variable_declaration": "script",
        "export_statement": "script",
        "expression_statement": "script export",
        "field_definition": "script field",
    },
    blocks=_split_words(
        "arrow_function function_expression generator_function statement_block for_statement for_in_statement"
    ),
    inline=_split_words(
        "export_statement lexical_declaration variable_declaration expression_statement assignment_expression object "
        "call_expression parenthesized_expression arguments function_expression arrow_function statement_block"
    ),
)

_TYPESCRIPT = _JAVASCRIPT._replace(
    symbols={
        **_JAVASCRIPT.symbols,
        **_invert_kinds(
            function="function_signature",
            method="abstract_method_signature",
            **{"class": "abstract_class_declaration"},
            interface="interface_declaration",
            type="type_alias_declaration",
            enum="enum_declaration",
        ),
    },
    scopes=_split_words("module internal_module"),
    wrappers=_JAVASCRIPT.wrappers | {"ambient_declaration"},
    assigned={**_JAVASCRIPT.assigned, "public_field_definition": ("name", "value")},
    values={
        **_JAVASCRIPT.values,
        "ambient_declaration": "script",
        "public_field_definition": "script field",
        "method_signature": "script member",
        "property_signature": "script member",
    },
    inline=_JAVASCRIPT.inline | {"ambient_declaration", "internal_module", "module"},
)

GRAMMAR_RULES: Mapping[str, Grammar] = {
    "bash": Grammar(symbols=_invert_kinds(function="function_definition"), leading=_split_words("comment")),
    "c": Grammar(
        symbols=_C,
        bodied=_split_words(_C_BODIED),
        leading=_split_words("comment"),
        introduced=_make_word_pattern("struct union enum typedef define"),
        values=_C_VALUES,
        blocks=_split_words(_C_BLOCKS),
        inline=_split_words("linkage_specification declaration_list"),
    ),
    "c_sharp": Grammar(
        symbols=_invert_kinds(
            **{"class": "class_declaration"},
            struct="struct_declaration",
            interface="interface_declaration",
            record="record_declaration",
            enum="enum_declaration",
            delegate="delegate_declaration",
            method="method_declaration constructor_declaration destructor_declaration operator_declaration "
            "conversion_operator_declaration indexer_declaration",
            function="local_function_statement",
            property="property_declaration",
            event="event_declaration",
        ),
        scopes=_split_words("namespace_declaration"),
        wrappers=_split_words("global_statement"),
        leading=_split_words("comment"),
        values={"field_declaration": "fields"},
        inline=_split_words("namespace_declaration declaration_list"),
    ),
    "cpp": Grammar(
        symbols={**_C, "class_specifier": "class", "alias_declaration": "type", "concept_definition": "concept"},
        scopes=_split_words("namespace_definition"),
        wrappers=_split_words("template_declaration"),
        leading=_split_words("comment"),
        bodied=_split_words(f"{_C_BODIED} class_specifier"),
        introduced=_make_word_pattern("struct union enum class typedef using concept define"),
        values={**_C_VALUES, "field_declaration": "c"},
        blocks=_split_words(_C_BLOCKS),
        inline=_split_words("namespace_definition linkage_specification declaration_list"),
    ),
    "go": Grammar(
        symbols=_invert_kinds(
            function="function_declaration", method="method_declaration", type="type_spec type_alias"
        ),
        wrappers=_split_words("type_declaration"),
        leading=_split_words("comment"),
        introduced=_make_word_pattern("type"),
        values={"const_declaration": "go", "var_declaration": "go"},
        blocks=_split_words("func_literal block"),
    ),
    "java": Grammar(
        symbols=_invert_kinds(
            **{"class": "class_declaration"},
            interface="interface_declaration annotation_type_declaration",
            enum="enum_declaration",
            record="record_declaration",
            method="method_declaration constructor_declaration compact_constructor_declaration",
        ),
        leading=_split_words("line_comment block_comment"),
        introduced=_make_word_pattern("class interface enum record new"),
        values={"field_declaration": "fields", "constant_declaration": "fields"},
    ),
    "javascript": _JAVASCRIPT,
    "kotlin": Grammar(
        symbols=_invert_kinds(
            **{"class": "class_declaration"},
            object="object_declaration companion_object",
            function="function_declaration",
            method="secondary_constructor",
            property="property_declaration",
            type="type_alias",
        ),
        leading=_split_words("line_comment block_comment"),
        introduced=_make_word_pattern("class interface object fun typealias constructor"),
    ),
    "php": Grammar(
        symbols=_invert_kinds(
            function="function_definition",
            **{"class": "class_declaration"},
            interface="interface_declaration",
            trait="trait_declaration",
            enum="enum_declaration",
            method="method_declaration",
        ),
        scopes=_split_words("namespace_definition"),
        wrappers=_split_words("expression_statement"),
        assigned={"assignment_expression": ("left", "right")},
        leading=_split_words("comment"),
        introduced=_make_word_pattern("(?i:function fn class interface trait enum)"),
        values={"const_declaration": "php", "expression_statement": "php define"},
        blocks=_split_words("anonymous_function arrow_function"),
    ),
    "python": Grammar(
        symbols=_invert_kinds(
            function="function_definition", **{"class": "class_definition"}, type="type_alias_statement"
        ),
        wrappers=_split_words("decorated_definition"),
        leading=_split_words("comment"),
        introduced=_make_word_pattern("def class type"),
        values={"expression_statement": "python"},
        inline=_split_words("block"),
        blocks=_split_words("for_statement while_statement"),
    ),
    "ruby": Grammar(
        symbols=_invert_kinds(**{"class": "class"}, module="module", method="method singleton_method"),
        leading=_split_words("comment"),
        introduced=_make_word_pattern("def class module"),
        values={"assignment": "ruby"},
        blocks=_split_words("do_block block lambda"),
    ),
    "rust": Grammar(
        symbols=_invert_kinds(
            function="function_item function_signature_item",
            struct="struct_item",
            union="union_item",
            enum="enum_item",
            trait="trait_item",
            impl="impl_item",
            module="mod_item",
            type="type_item",
            macro="macro_definition",
        ),
        leading=_split_words("line_comment block_comment attribute_item"),
        bodied=_split_words("mod_item"),
        introduced=_make_word_pattern("fn struct union enum trait impl mod type macro_rules"),
        values={"const_item": "rust", "static_item": "rust"},
        blocks=_split_words("block"),
    ),
    "sql": Grammar(
        symbols=_invert_kinds(
            table="create_table",
            view="create_view create_materialized_view",
            function="create_function",
            procedure="create_procedure",
            trigger="create_trigger",
            type="create_type",
            index="create_index",
            schema="create_schema",
            sequence="create_sequence",
            policy="create_policy",
        ),
        wrappers=_split_words("statement"),
        leading=_split_words("comment marginalia"),
    ),
    "swift": Grammar(
        symbols=_invert_kinds(
            **{"class": "class_declaration"},
            protocol="protocol_declaration",
            function="function_declaration protocol_function_declaration",
            method="init_declaration deinit_declaration subscript_declaration",
            property="property_declaration",
            type="typealias_declaration",
            macro="macro_declaration",
        ),
        leading=_split_words("comment multiline_comment"),
        introduced=_make_word_pattern(
            "class struct enum extension actor protocol func init deinit subscript typealias macro"
        ),
    ),
    "tsx": _TYPESCRIPT,
    "typescript": _TYPESCRIPT,
}
