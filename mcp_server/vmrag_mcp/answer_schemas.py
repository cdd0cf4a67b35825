"""The JSON Schema of a tool's whole answer, from the record that its function returns.

Tests check answers against it, and `docs/tools.md` is generated from it. Clients do not get it as
`outputSchema`: the schemas of the 33 default tools have at least 57 kB, the whole list of tools has
18 kB, and every conversation would pay for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
from msgspec import inspect as type_info

from vmrag_mcp.results import KbAnswer, ServerResult, ToolAnswer, ToolResult, ToolWarning

_REF = "#/$defs/"

Schema = dict[str, Any]

COMMON = ("success", "message", "kb", "left_out", "warnings")
"""The keys of every answer. An answer about the server itself has no `kb`."""

_LEFT_OUT = {"type": "object", "additionalProperties": {"type": "integer"}}


class ResultKey(msgspec.Struct, frozen=True):
    """A key of an answer."""

    path: str
    """`a.b` is the key b of the object a; `a[].b` is the key b of each object in the list a."""
    always: bool
    """The key is always present."""
    when: str
    """Describes when the key is present, if not always."""


def result_type(function: Callable[..., ToolResult]) -> type[ToolResult]:
    """Return the type of a tool's result, for `ToolAnswer` with the record of its report."""
    annotation: type[ToolResult] = get_type_hints(function)["return"]
    return annotation


def answer_schema(result: type[ToolResult]) -> Schema:
    """Return the JSON Schema of a successful answer. Only free-form objects allow other keys."""
    record = get_args(result)[0] if get_origin(result) is ToolAnswer else result
    (top, kb, warnings), components = record_schemas(record, KbAnswer, list[ToolWarning])
    answer = components[record.__name__]
    block = {} if issubclass(record, ServerResult) else {"kb": kb}
    answer["properties"] = {
        "success": {"const": True},
        **answer["properties"],
        "message": {"type": "string"},
        **block,
        "left_out": _LEFT_OUT,
        "warnings": warnings,
    }
    answer["required"] = [*dict.fromkeys(("success", *answer["required"], "message", *block))]
    return {**top, "$defs": components}


def record_schemas(*kinds: Any) -> tuple[tuple[Schema, ...], dict[str, Schema]]:
    """Return the schema of each type, and the schemas of their records by name."""
    schemas, components = msgspec.json.schema_components(kinds)
    for record in set(_list_records(type_info.multi_type_info(kinds))):
        _close_schema(components[record.__name__], record)
    return schemas, components


def result_keys(result: type[ToolResult]) -> list[ResultKey]:
    """Return the tool's own keys, in the order of the answer."""
    schema = answer_schema(result)
    return [
        key
        for key in _list_keys(schema, schema["$defs"], "")
        if key.path.partition("[")[0].partition(".")[0] not in COMMON
    ]


def _close_schema(component: Schema, record: type[msgspec.Struct]) -> None:
    """Require what the record always writes, and allow nothing else.

    For msgspec, a field with a default is optional. The record still writes it, unless the field is
    UNSET or the record omits its defaults, which then never appear.
    """
    component["additionalProperties"] = False
    omits = record.__struct_config__.omit_defaults
    for field in msgspec.structs.fields(record):
        schema = component["properties"][field.encode_name]
        if "default" in schema:
            del schema["default"]
            if not omits:
                component["required"].append(field.encode_name)
            elif "anyOf" in schema:
                schema["anyOf"] = [option for option in schema["anyOf"] if option != {"type": "null"}]


def _list_records(kinds: Any) -> Iterator[type[msgspec.Struct]]:
    """Yield all records within some types."""
    for kind in kinds:
        match kind:
            case type_info.StructType(cls=cls, fields=fields):
                yield cls
                yield from _list_records(field.type for field in fields)
            case (
                type_info.ListType(item_type=item)
                | type_info.VarTupleType(item_type=item)
                | type_info.Metadata(type=item)
            ):
                yield from _list_records((item,))
            case type_info.DictType(value_type=value):
                yield from _list_records((value,))
            case type_info.UnionType(types=types):
                yield from _list_records(types)


def _list_keys(schema: Schema, components: dict[str, Schema], where: str) -> Iterator[ResultKey]:
    for option in schema.get("anyOf", ()):
        yield from _list_keys(option, components, where)
    if "items" in schema:
        yield from _list_keys(schema["items"], components, f"{where}[]")
    if "$ref" in schema:
        schema = components[schema["$ref"].removeprefix(_REF)]
    for name, member in schema.get("properties", {}).items():
        path = f"{where}.{name}" if where else name
        yield ResultKey(path, name in schema["required"], member.get("description", ""))
        yield from _list_keys(member, components, path)
