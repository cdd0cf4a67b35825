"""The public signatures of the Python API, written by `python -m tests.contract.signatures`.

Each class, method, field and function of `vmrag_link.api` has a line in `python-api.txt`. A changed
or removed line breaks programs, so it needs a new major version. Review the difference.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from vmrag_link import api

FILE = Path(__file__).parent / "python-api.txt"


def list_signatures() -> Iterator[str]:
    for name in sorted(api.__all__):
        value = getattr(api, name)
        if not inspect.isclass(value):
            yield f"{name}{inspect.signature(value)}"
            continue
        bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
        yield f"class {name}({bases})"
        yield from (f"{name}.{line}" for line in sorted(_list_members(value)))


def _list_members(value: type) -> Iterator[str]:
    if issubclass(value, msgspec.Struct):
        for field in msgspec.structs.fields(value):
            default = "" if field.required else f" = {field.default!r}"
            yield f"{field.name}: {value.__annotations__[field.name]}{default}"
    for name, member in inspect.getmembers(value):
        owner = next(base for base in value.__mro__ if name in vars(base))
        if name.startswith("_") or not owner.__module__.startswith("vmrag_link.api"):
            continue
        if isinstance(member, property):
            yield f"{name}: {_return_type(member.fget)} (property)"
        elif inspect.isfunction(member):
            yield f"{name}{inspect.signature(member)}"


def _return_type(function: Any) -> str:
    return str(inspect.signature(function).return_annotation)


if __name__ == "__main__":
    FILE.write_text("".join(f"{line}\n" for line in list_signatures()))
