"""`python -m vmrag_mcp.reference` writes every `tools.json` from the tools' declarations; with the
name of a package, that of the toolsets which it declares.

`result_schema` derives the JSON Schema of a tool's whole answer from the record that its function
returns. Tests hold answers against it, and `docs/tools.md` is written from it. Clients do not get
it as `outputSchema`: those of the 33 default tools take 57 kB at least, the whole list of tools 18
kB, and every conversation would pay for them.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
from msgspec import inspect as type_info

from vmrag_link import toolset
from vmrag_mcp.arguments import read_parameters
from vmrag_mcp.registry import CATALOGUE, ToolDeclaration, ToolInfo, list_toolsets
from vmrag_mcp.results import KbAnswer, ServerResult, TextResult, ToolAnswer, ToolResult, ToolWarning


def read_module_tools(name: str, package: str) -> Iterator[ToolInfo]:
    """The tools of a module as it declares them now, for the toolsets of a package."""
    having = tuple(each.name for each in list_toolsets().values() if each.package == package and name in each.modules)
    found_in = importlib.import_module(name)
    for function in vars(found_in).values():
        declared = getattr(function, "declared", None)
        if not isinstance(declared, ToolDeclaration) or function.__module__ != found_in.__name__:
            continue  # what a module takes from another one is the other one's tool
        found = read_parameters(function)
        schema: dict[str, Any] = {"type": "object", "properties": {each.name: each.build_schema() for each in found}}
        if required := [each.name for each in found if each.required]:
            schema["required"] = required
        about = " ".join((inspect.getdoc(function) or "").split())
        same = {
            struct_field: getattr(declared, struct_field)
            for struct_field in ToolInfo.__struct_fields__
            if hasattr(declared, struct_field)
        }
        plain = issubclass(get_origin(result_type(function)) or result_type(function), TextResult)
        yield ToolInfo(
            name=function.__name__,
            toolsets=having,
            module=name,
            description=about,
            schema=schema,
            plain_text=plain,
            **same,
        )


def build_catalogue(package: str) -> bytes:
    """What `tools.json` of a package has to hold."""
    having = [each for each in list_toolsets().values() if each.package == package]
    modules = dict.fromkeys(name for each in having for name in each.modules)
    rows = [tool for name in modules for tool in read_module_tools(name, package)]
    return msgspec.json.format(msgspec.json.encode(rows), indent=1) + b"\n"


def list_packages() -> list[str]:
    """Those that declare toolsets."""
    return list(dict.fromkeys(each.package for each in list_toolsets().values()))


def main() -> None:
    for package in sys.argv[1:] or list_packages():
        (toolset.folder(package) / CATALOGUE).write_bytes(build_catalogue(package))


_REF = "#/$defs/"

Schema = dict[str, Any]

COMMON = ("success", "message", "kb", "left_out", "warnings")
"""The keys of every answer; one about the server itself has no `kb`."""

_LEFT_OUT = {"type": "object", "additionalProperties": {"type": "integer"}}


class ResultKey(msgspec.Struct, frozen=True):
    """A key of an answer.

    `path`: `a.b` is the key b of the object a, `a[].b` the key b of each object in the list a.
    `always`: it is always there; else `when` says in words when it is.
    """

    path: str
    always: bool
    when: str


def result_type(function: Callable[..., ToolResult]) -> type[ToolResult]:
    """What a tool's function returns; for `ToolAnswer` with the record that it is made of."""
    found: type[ToolResult] = get_type_hints(function)["return"]
    return found


def answer_schema(result: type[ToolResult]) -> Schema:
    """Of a successful answer. No object has other keys, unless it is free-form."""
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
    for record in set(_records(type_info.multi_type_info(kinds))):
        _close(components[record.__name__], record)
    return schemas, components


def result_keys(result: type[ToolResult]) -> list[ResultKey]:
    """The keys that are the tool's own, in the order of the wire."""
    schema = answer_schema(result)
    return [
        key for key in _keys(schema, schema["$defs"], "") if key.path.partition("[")[0].partition(".")[0] not in COMMON
    ]


def _close(component: Schema, record: type[msgspec.Struct]) -> None:
    """Require what the record always writes, and allow nothing else.

    For msgspec a field with a default is optional. The record writes it all the same, unless the
    field is UNSET or the record omits its defaults, which then never appear.
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
                schema["anyOf"] = [each for each in schema["anyOf"] if each != {"type": "null"}]


def _records(kinds: Any) -> Iterator[type[msgspec.Struct]]:
    """All records within some types."""
    for kind in kinds:
        match kind:
            case type_info.StructType(cls=cls, fields=fields):
                yield cls
                yield from _records(field.type for field in fields)
            case (
                type_info.ListType(item_type=item)
                | type_info.VarTupleType(item_type=item)
                | type_info.Metadata(type=item)
            ):
                yield from _records((item,))
            case type_info.DictType(value_type=value):
                yield from _records((value,))
            case type_info.UnionType(types=types):
                yield from _records(types)


def _keys(schema: Schema, components: dict[str, Schema], where: str) -> Iterator[ResultKey]:
    for each in schema.get("anyOf", ()):
        yield from _keys(each, components, where)
    if "items" in schema:
        yield from _keys(schema["items"], components, f"{where}[]")
    if "$ref" in schema:
        schema = components[schema["$ref"].removeprefix(_REF)]
    for name, below in schema.get("properties", {}).items():
        path = f"{where}.{name}" if where else name
        yield ResultKey(path, name in schema["required"], below.get("description", ""))
        yield from _keys(below, components, path)


if __name__ == "__main__":
    main()
