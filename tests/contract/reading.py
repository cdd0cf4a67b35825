"""The contract of all tools, read from the files next to this one, and its checks.

`_common.yaml` explains how the files are read.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import yaml

from tests.contract.golden import Exactly
from vmrag_mcp.answer_schemas import answer_schema, result_keys, result_type
from vmrag_mcp.envelope import LAST_RESORT
from vmrag_mcp.registry import import_function, load_catalogue
from vmrag_mcp.results import ToolResult

FOLDER = Path(__file__).parent
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The quick one where PyYAML has it: every worker reads all files while it collects tests."""


def _read(name: str) -> Any:
    """A file beside this one, or in the tests of its toolset."""
    result = [FOLDER / f"{name}.yaml", *FOLDER.parent.glob(f"toolsets/*/{name}.yaml")]
    return yaml.load(next(path for path in result if path.exists()).read_text(), LOADER)


COMMON: dict[str, Any] = _read("_common")

GOLDEN: dict[str, dict[str, Any]] = json.loads((FOLDER / "tools.json").read_text())

TOOLS: dict[str, dict[str, Any]] = {
    tool["name"]: {"defaults": {}, "parameters": GOLDEN[tool["name"]]["parameters"], **tool}
    for toolset in COMMON["toolsets"]
    for tool in _read(toolset)
}
"""Every tool by its name; its parameters are those of the golden schemas (`golden.py`)."""

CODES = {*COMMON["error_codes"], *COMMON["own_error_codes"]}
WARNINGS = {*COMMON["warning_codes"], *COMMON["own_warning_codes"]}


class Expected(msgspec.Struct, frozen=True):
    """One call and what comes of it: `code` of the error, or "" for success."""

    tool: str
    given: str
    call: dict[str, Any]
    code: str = ""
    details: tuple[str, ...] = ()
    prints: str = ""
    """The whole answer of a tool that answers with text; empty if the contract does not show it."""


def examples(tool: str) -> list[Expected]:
    """The calls that succeed."""
    return [
        Expected(tool, example.get("given", "notes"), example["call"], prints=example.get("prints", ""))
        for example in TOOLS[tool]["examples"]
    ]


def refusals(tool: str) -> list[Expected]:
    """The calls that fail with an error of the tool or of its groups.

    Errors that take more than a call have tests of their own.
    """
    contract = TOOLS[tool]
    result = list(_failing(tool, contract["errors"], examples(tool)[0].call, case_errors_only=True))
    usual = contract.get("usual", examples(tool)[0].call)
    for group in contract["common_errors"]:
        result += _failing(tool, COMMON["error_groups"][group], usual, case_errors_only=False)
    return result


def _failing(tool: str, errors: dict[str, Any], usual: dict[str, Any], *, case_errors_only: bool) -> Iterator[Expected]:
    for code, error in errors.items():
        if "cannot" in error or "provoke" in error:
            continue
        states = _states(error.get("given", "notes" if case_errors_only else ()))
        if tool in REPRESENTATIVES:
            states += _states(error.get("given_kinds", ()))
        for state in states:
            yield Expected(tool, state, error.get("call", usual), code, tuple(error.get("details", ())))


def _states(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def kind(tool: str) -> tuple[Any, ...]:
    """Tools of one kind do the same sorts of things and answer the same groups of errors."""
    contract = TOOLS[tool]
    return frozenset(contract["effect"]), frozenset(contract["common_errors"]) - {"json"}


REPRESENTATIVES = frozenset({kind(tool): tool for tool in reversed(TOOLS)}.values())
"""The first tool of each kind."""


# -- results


def broken(tool: str, result: dict[str, Any] | str, prints: str = "") -> list[str]:
    """Return the problems of a successful answer: missing keys, other keys, other types and values.

    A text is a problem if it differs from the text that the contract prints.
    """
    if isinstance(result, str):
        return _broken_text(tool, result, prints)
    contract = TOOLS[tool]
    found_values = [f"{error.json_path}: {error.message}" for error in _answers(tool).iter_errors(result)]
    found_values += _broken(result, _tree(contract.get("result", {}), open=True), "")
    legal = {*contract["warnings"], *COMMON["own_warning_codes"]}
    found_values += [
        f"warning {warning['code']}" for warning in result.get("warnings", ()) if warning["code"] not in legal
    ]
    return found_values


_CHANGING = re.compile(r"(?m)(^ *(?=[a-v]*\d)|(?:commit|revision|--source) )[0-9a-v]{7,40}\b|\b\d{4}-\d\d-\d\d\b")
"""Abbreviated commits and revisions, and dates, which differ from run to run."""


def _broken_text(tool: str, answer: str, prints: str) -> list[str]:
    if not load_catalogue()[tool].plain_text:
        return ["the answer is a text"]
    expected, actual = (_CHANGING.sub(r"\1…", text).splitlines() for text in (prints, answer))
    if not actual or not actual[-1]:
        return ["the answer does not end with a message"]
    return list(difflib.unified_diff(expected, actual, "the contract", "the answer", lineterm="")) if prints else []


@cache
def _answers(tool: str) -> Any:
    """The validator of the tool's successful answers."""
    return Exactly(answer_schema(declared(tool)))


@cache
def declared(tool: str) -> type[ToolResult]:
    """Return the result type of the tool's function."""
    return result_type(import_function(load_catalogue()[tool]))


def result_shape(tool: str) -> dict[str, str | None]:
    """The keys of a tool's result, each with its condition in words; None: always there."""
    result = {
        result_key.path: None if result_key.always else result_key.when for result_key in result_keys(declared(tool))
    }
    for key, says in TOOLS[tool].get("result", {}).items():
        result[key] = says.get("when") if isinstance(says, dict) else None
    return result


def broken_failure(envelope: dict[str, Any], expected: Expected) -> list[str]:
    """Return the problems of the envelope of a failed call."""
    result = list(_broken(envelope, _tree(COMMON["failure"]), ""))
    result += [f"details.{key} is missing" for key in expected.details if key not in envelope["details"]]
    if envelope["error"] != expected.code or envelope["code"] != expected.code:
        result.append(f"{envelope['error']}: {envelope['message']}")
    if envelope["error"] not in CODES:
        result.append(f"{envelope['error']} is no code")
    uncommitted = expected.code == "UNCOMMITTED_CHANGES"
    if uncommitted != ("local_changes" in envelope) or (uncommitted and "local_changes" not in envelope["details"]):
        result.append("local_changes")
    if envelope["suggestions"] in ([], [LAST_RESORT]):
        result.append("nothing is suggested")
    if re.search(r"Traceback|File \"", envelope["message"]):
        result.append("the message shows a stack trace")
    return result


def conditional(tool: str) -> set[str]:
    """The keys of the tool's result that are not always there."""
    return {key for key, when in result_shape(tool).items() if when is not None}


def seen(result: Any, where: str = "") -> set[str]:
    """All keys of a result, as the contract writes them."""
    if isinstance(result, list):
        return {key for element in result for key in seen(element, f"{where}[]")}
    if not isinstance(result, dict):
        return set()
    names = {key: f"{where}.{key}" if where else key for key in result}
    return {*names.values(), *(key for key_name, name in names.items() for key in seen(result[key_name], name))}


class _Node(msgspec.Struct):
    """A key of a result: its description in the contract, and the keys below it."""

    says: dict[str, Any]
    below: dict[str, _Node]


def _tree(keys: dict[str, Any], *, open: bool = False) -> _Node:  # noqa: A002  as the contract calls it
    """Build a tree of keys: `a[].b` and `a.b` are both below `a`."""
    root = _Node({"type": "object", "open": open}, {})
    for path, says in keys.items():
        node = root
        *above, last = path.replace("[]", "").split(".")
        for key in above:
            node = node.below[key]
        node.below[last] = _Node(says if isinstance(says, dict) else {"type": says}, {})
    return root


def _broken(value: Any, node: _Node, where: str) -> Iterator[str]:
    kind = node.says["type"]
    if not fits(kind, value):
        yield f"{where or 'it'} is no {kind}: {value!r:.100}"
        return
    if "values" in node.says and value not in node.says["values"]:
        yield f"{where} is {value!r}, not one of {node.says['values']}"
    if "equals" in node.says and value != node.says["equals"]:
        yield f"{where} is {value!r}, not {node.says['equals']!r}"
    if isinstance(value, list):
        for at, element in enumerate(value):
            if node.below and isinstance(element, dict):
                yield from _object(element, node, f"{where}[{at}]")
    elif isinstance(value, dict) and node.below:
        yield from _object(value, node, where)


def _object(value: dict[str, Any], node: _Node, where: str) -> Iterator[str]:
    for key, below in node.below.items():
        name = f"{where}.{key}" if where else key
        if key in value:
            yield from _broken(value[key], below, name)
        elif "when" not in below.says:
            yield f"{name} is missing"
    free = node.says.get("open")
    for key in value if not free else ():
        if key not in node.below:
            yield f"{where}.{key} is too much" if where else f"{key} is too much"


_PLAIN = {"string": str, "boolean": bool, "object": dict, "null": type(None)}


@cache
def _choices(kind: str) -> tuple[str, ...]:
    return tuple(kind.split("|"))


def fits(kind: str, value: Any) -> bool:
    """Return whether a JSON value has a type of the contract.

    In `array of A|B` each element has one of the types.
    """
    if kind.startswith("array of "):
        return isinstance(value, list) and all(fits(kind.removeprefix("array of "), element) for element in value)
    return any(_is(choice, value) for choice in _choices(kind))


def _is(kind: str, value: Any) -> bool:
    match kind:
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "vector":
            return isinstance(value, list) and all(_is("number", element) for element in value)
    return isinstance(value, _PLAIN[kind])
