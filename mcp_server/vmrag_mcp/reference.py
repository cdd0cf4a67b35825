"""`python -m vmrag_mcp.reference` writes every `tools.json` from the tools' declarations; with the
name of a package, that of the toolsets which it declares.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from vmrag_link import toolset
from vmrag_mcp.arguments import parameters
from vmrag_mcp.registry import CATALOGUE, ToolDeclaration, ToolInfo, toolsets


def tools_of_module(name: str, package: str) -> Iterator[ToolInfo]:
    """The tools of a module as it declares them now, for the toolsets of a package."""
    having = tuple(each.name for each in toolsets().values() if each.package == package and name in each.modules)
    found_in = importlib.import_module(name)
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
            having,
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


def catalogue_json(package: str) -> bytes:
    """What `tools.json` of a package has to hold."""
    having = [each for each in toolsets().values() if each.package == package]
    modules = dict.fromkeys(name for each in having for name in each.modules)
    rows = [tool for name in modules for tool in tools_of_module(name, package)]
    return msgspec.json.format(msgspec.json.encode(rows), indent=1) + b"\n"


def packages() -> list[str]:
    """Those that declare toolsets."""
    return list(dict.fromkeys(each.package for each in toolsets().values()))


def main() -> None:
    for package in sys.argv[1:] or packages():
        (toolset.folder(package) / CATALOGUE).write_bytes(catalogue_json(package))


if __name__ == "__main__":
    main()
