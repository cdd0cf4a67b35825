"""`python -m vmrag_mcp.reference` writes `tools.json` from the tools' declarations."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import msgspec

from vmrag_mcp.arguments import parameters
from vmrag_mcp.registry import CATALOGUE, TOOLSETS, ToolDeclaration, ToolInfo, module


def tools_of_module(name: str) -> Iterator[ToolInfo]:
    """The tools of a module as it declares them now."""
    toolsets = tuple(toolset for toolset, each in TOOLSETS.items() if name in each.modules)
    found_in = module(name)
    for function in vars(found_in).values():
        declared = getattr(function, "declared", None)
        if not isinstance(declared, ToolDeclaration) or function.__module__ != found_in.__name__:
            continue  # what a module takes from another one is the other one's tool
        found = parameters(function)
        schema: dict[str, Any] = {"type": "object", "properties": {each.name: each.schema() for each in found}}
        if required := [each.name for each in found if each.required]:
            schema["required"] = required
        about = " ".join((inspect.getdoc(function) or "").split())
        yield ToolInfo(
            function.__name__,
            toolsets,
            name,
            declared.effect,
            about,
            schema,
            declared.idempotent,
            declared.on_read_only,
            declared.alias_of,
            declared.includes,
            declared.by_argument,
        )


def catalogue_json() -> bytes:
    """What `tools.json` has to hold."""
    modules = dict.fromkeys(name for each in TOOLSETS.values() for name in each.modules)
    rows = [tool for name in modules for tool in tools_of_module(name)]
    return msgspec.json.format(msgspec.json.encode(rows), indent=1) + b"\n"


def main() -> None:
    CATALOGUE.write_bytes(catalogue_json())


if __name__ == "__main__":
    main()
