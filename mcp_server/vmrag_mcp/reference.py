"""`python -m vmrag_mcp.reference [PACKAGE…]` writes `tools.json` from the declarations of the
tools.

A package that declares toolsets has such a file (`registry`).
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from typing import Any, get_origin

import msgspec

from vmrag_link import toolset
from vmrag_mcp.answer_schemas import result_type
from vmrag_mcp.arguments import read_parameters
from vmrag_mcp.registry import CATALOGUE, ToolDeclaration, ToolInfo, list_toolsets
from vmrag_mcp.results import TextResult


def main() -> None:
    for package in sys.argv[1:] or list_packages():
        (toolset.folder(package) / CATALOGUE).write_bytes(build_catalogue(package))


def list_packages() -> list[str]:
    """Return the packages that declare toolsets."""
    return list(dict.fromkeys(toolset.package for toolset in list_toolsets().values()))


def build_catalogue(package: str) -> bytes:
    """Return the content of a package's `tools.json`."""
    declared = [toolset for toolset in list_toolsets().values() if toolset.package == package]
    modules = dict.fromkeys(name for toolset in declared for name in toolset.modules)
    rows = [tool for name in modules for tool in read_module_tools(name, package)]
    return msgspec.json.format(msgspec.json.encode(rows), indent=1) + b"\n"


def read_module_tools(name: str, package: str) -> Iterator[ToolInfo]:
    """Yield the tools of a module from their declarations, for the toolsets of a package."""
    names = tuple(
        toolset.name for toolset in list_toolsets().values() if toolset.package == package and name in toolset.modules
    )
    module = importlib.import_module(name)
    for function in vars(module).values():
        declaration = getattr(function, "declared", None)
        if not isinstance(declaration, ToolDeclaration) or function.__module__ != module.__name__:
            continue  # an imported tool belongs to its own module
        parameters = read_parameters(function)
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {parameter.name: parameter.build_schema() for parameter in parameters},
        }
        if required := [parameter.name for parameter in parameters if parameter.required]:
            schema["required"] = required
        description = " ".join((inspect.getdoc(function) or "").split())
        names_of_both = {*ToolInfo.__struct_fields__} & {*ToolDeclaration.__struct_fields__}
        fields: dict[str, Any] = {field: getattr(declaration, field) for field in names_of_both}
        result = result_type(function)
        yield ToolInfo(
            name=function.__name__,
            toolsets=names,
            module=name,
            description=description,
            schema=schema,
            plain_text=issubclass(get_origin(result) or result, TextResult),
            **fields,
        )


if __name__ == "__main__":
    main()
