"""The table of tools equals the contract (`tests/contract/`), and each tool accepts and rejects
arguments accordingly.

Arguments are checked before anything is opened: these calls are made outside of any repository,
where legal ones fail.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract import golden
from tests.contract.reading import (
    CODES,
    COMMON,
    TOOLS,
    WARNINGS,
    Expected,
    broken_failure,
    declared,
    examples,
    refusals,
)
from tests.support.mcp import Tools
from vmrag_link.toolset import folder
from vmrag_link.toolsets.essential.pages import estimate_tokens
from vmrag_mcp.answer_schemas import result_keys
from vmrag_mcp.arguments import parse_arguments, read_parameters
from vmrag_mcp.options import ToolChoice, select_tools
from vmrag_mcp.reference import build_catalogue, list_packages
from vmrag_mcp.registry import CATALOGUE, CORE, import_function, list_toolsets, load_catalogue
from vmrag_mcp.server import protocol_tools

LIST_LIMITS = {"essential": (1_200, 1.095), "default": (5_500, 1.125), "all": (14_500, 1.14)}
"""Tokens (o200k) that every conversation pays for the tools of these toolsets.

The second number is what `estimate_tokens` gives for each of these tokens, because it is too high
for JSON. It was measured with the package gpt-tokenizer.
"""

RULES = COMMON["parameter_rules"]

# -- the contract in itself ------------------------------------------------------------------------


@pytest.mark.parametrize("name", TOOLS)
def test_contract_of_each_tool_is_consistent(name):
    contract = TOOLS[name]
    assert set(contract["effect"]) <= set(COMMON["effects"])
    assert contract["defaults"].keys() <= contract["parameters"].keys()
    assert set(contract["errors"]) <= CODES
    assert set(contract["warnings"]) <= WARNINGS
    clamped = any(parameter.get("above_maximum") == "clamped" for parameter in contract["parameters"].values())
    assert not clamped or "IGNORED_SETTING" in contract["warnings"]
    assert {key.partition(".")[0] for key in contract.get("result", {})} <= {
        result_key.path for result_key in result_keys(declared(name))
    }
    assert load_catalogue()[name].plain_text == any(example.prints for example in examples(name)), "one printed answer"
    texts = any(parameter["type"] in RULES["json_string"] for parameter in contract["parameters"].values())
    assert texts == ("json" in contract["common_errors"])
    for item in [*examples(name), *refusals(name)]:
        assert item.given in COMMON["given"]
        parameter_names = {
            *contract["parameters"],
            *(alias for p in contract["parameters"].values() for alias in p.get("aliases", ())),
        }
        assert item.call.keys() <= parameter_names
        assert all(value[1:-1] in COMMON["values"] for value in item.call.values() if re.fullmatch("<.+>", str(value)))
    assert all({"call", "cannot", "provoke"} & error.keys() for error in contract["errors"].values())


# -- the table -------------------------------------------------------------------------------------


def test_toolsets_hold_exactly_the_tools_of_the_contract():
    result = {
        name: [tool.name for tool in load_catalogue().values() if name in tool.toolsets] for name in list_toolsets()
    }
    expected = {name: [tool["name"] for tool in TOOLS.values() if name in tool["toolsets"]] for name in list_toolsets()}
    assert {name: sorted(tools) for name, tools in result.items()} == {
        name: sorted(tools) for name, tools in expected.items()
    }
    assert {name: len(tools) for name, tools in result.items()} == {
        name: toolset["tools"] for name, toolset in COMMON["toolsets"].items()
    }
    assert list(CORE) == [name for name, toolset in COMMON["toolsets"].items() if toolset["default"]]


def test_read_only_server_has_exactly_the_reading_tools():
    reading = {name for name, tool in TOOLS.items() if set(tool["effect"]) <= {"R", "N"} or tool.get("on_read_only")}
    assert set(select_tools(ToolChoice(toolsets="all", read_only=True)).tools) == reading


@pytest.mark.parametrize("package", list_packages())
def test_served_catalogue_equals_the_declared_tools(package: str):
    assert (folder(package) / CATALOGUE).read_bytes() == build_catalogue(package), (
        "python -m vmrag_mcp.reference writes it; look at what changes for clients"
    )


@pytest.mark.parametrize("toolsets", LIST_LIMITS)
def test_list_of_tools_stays_within_its_budget(toolsets):
    listed = protocol_tools(select_tools(ToolChoice(toolsets=toolsets)))
    compact = [tool.model_dump(by_alias=True, exclude_none=True, mode="json") for tool in listed]
    tokens, ratio = LIST_LIMITS[toolsets]
    estimate = estimate_tokens(json.dumps(compact, separators=(",", ":"), ensure_ascii=False))
    assert estimate <= tokens * ratio


@pytest.mark.parametrize("name", TOOLS)
def test_listed_tool_matches_the_contract(name):
    contract, listed = TOOLS[name], load_catalogue()[name]
    assert sorted(listed.effect) == sorted(contract["effect"])
    assert listed.on_read_only == contract.get("on_read_only", False)
    reads = set(contract["effect"]) <= {"R", "N"}
    hints = {"readOnlyHint": True} if reads else {"destructiveHint": not {"D", "O"}.isdisjoint(contract["effect"])}
    hints |= {"idempotentHint": True} if contract.get("idempotent") and not reads else {}
    assert listed.annotations == hints | ({} if "N" in contract["effect"] else {"openWorldHint": False})
    assert listed.schema["type"] == "object"
    assert set(listed.schema["properties"]) == set(contract["parameters"]), "aliases are taken, not shown"
    required = [name for name, says in contract["parameters"].items() if says.get("required")]
    assert sorted(listed.schema.get("required", [])) == sorted(required)
    assert listed.description


@pytest.mark.parametrize("name", TOOLS)
def test_tool_that_can_replace_or_delete_has_the_destructive_hint(name):
    verbs = ("update", "modify", "rename", "replace", "delete", "forget", "remember", "resolve", "reset", "ingest")
    if any(verb in name for verb in verbs):
        assert load_catalogue()[name].annotations.get("destructiveHint"), name


def test_golden_schemas_are_those_of_the_tools():
    """If this fails: run `python -m tests.contract.golden` and review what changes for clients."""
    assert golden.TOOLS.read_text() == golden.tools_json()


# -- arguments -------------------------------------------------------------------------------------


def sample(says: dict[str, Any]) -> Any:
    """Some legal value of a parameter."""
    if choices := says.get("choices"):
        return choices[:1] if says["type"].startswith("array") else choices[0]
    if says["type"] in ("integer", "number"):
        return says.get("minimum", 1)
    return {
        "string": "some text",
        "boolean": True,
        "object": {"n": 1},
        "array of string": ["one", "two"],
        "array of string|null": ["one", None],
        "array of object": [{"n": 1}, {}],
        "array of object|null": [{"n": 1}, None],
        "array of vector|null": [[0.5, 1], None],
    }[says["type"]]


def usual(name: str) -> dict[str, Any]:
    """Arguments of which none is wrong."""
    return {key: sample(says) for key, says in TOOLS[name]["parameters"].items() if says.get("required")}


MISSING = object()
"""In place of a value: the argument is not given."""

BAD, NOT_JSON = "INVALID_PARAMETER", "INVALID_JSON"
WHERE = {"parameter"}
BOUNDS = {"parameter", "value", "minimum", "maximum"}

Wrong = tuple[str, Any, str, set[str]]
"""Problem, value, code of the error, and keys of its details."""


def with_value(name: str, parameter: str, value: Any) -> dict[str, Any]:
    others = {key: given for key, given in usual(name).items() if key != parameter}
    return others if value is MISSING else others | {parameter: value}


def illegal(says: dict[str, Any]) -> Iterator[Wrong]:
    """Values that a parameter does not take."""
    kind = says["type"]
    for wrong in RULES["wrong_values"][kind]:
        yield f"{wrong!r}", wrong, BAD, WHERE
    if says.get("required"):
        yield "nothing", MISSING, BAD, WHERE
        yield "null", None, BAD, WHERE
        if "empty" not in says:
            yield "empty", "", BAD, WHERE
    if kind in RULES["json_string"]:
        yield "broken JSON", "{broken", NOT_JSON, WHERE
        yield "other JSON", "5", NOT_JSON, WHERE
    yield from _beyond(says)
    yield from _strange(says)


def _beyond(says: dict[str, Any]) -> Iterator[Wrong]:
    if "minimum" in says:
        yield "small", says["minimum"] - (1 if says["type"] == "integer" else 0.5), BAD, BOUNDS
        yield "very small", -(10**25), BAD, BOUNDS
    if says.get("above_maximum") == "refused":
        yield "large", says["maximum"] + 1, BAD, BOUNDS
        yield "very large", 10**25, BAD, BOUNDS


def _strange(says: dict[str, Any]) -> Iterator[Wrong]:
    array = says["type"].startswith("array")
    if "choices" in says:
        yield "no choice", ["no such"] if array else "no such", BAD, {"parameter", "value"}
    if says.get("min_items"):
        yield "no elements", [], BAD, WHERE
    if "empty_items" in says:
        yield "an empty element", ["one", ""], BAD, WHERE


def legal(says: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Values that a parameter takes."""
    kind, value = says["type"], sample(says)
    array = kind.startswith("array")
    yield "a value", value
    if not says.get("required"):
        yield from (("null", None), ("empty", ""))
    for choice in (*says.get("choices", ()), *says.get("tolerated", ())):
        yield f"{choice!r}", [choice] if array else choice
    if "unset" in says:
        yield from (("none", says["unset"]), ("none as a text", f"{says['unset']}.0"))
    match kind:
        case "integer" | "number":
            yield from (("a text", f" {value}"), ("a float", float(value)))
            if "maximum" in says:
                yield "the largest", says["maximum"]
            if says.get("above_maximum") == "clamped":
                yield from (("large", says["maximum"] + 1), ("very large", 10**25))
        case "boolean":
            yield from (("a text", "true"), ("another text", "False"))
    if kind in RULES["json_string"] or kind in RULES["scalar_for_list"]:
        yield "JSON", json.dumps(value)
    if kind in RULES["scalar_for_list"]:
        yield "one text", value[0]
        yield "many", value[:1] * 10_000


@pytest.mark.parametrize("name", TOOLS)
def test_tool_rejects_illegal_arguments_with_the_reason(name, tmp_path):
    tools = Tools(tmp_path)
    cases = [("one more", usual(name) | {"no_such": 1}, BAD, {"unknown", "allowed"})]
    for parameter, says in TOOLS[name]["parameters"].items():
        cases += [
            (f"{parameter}: {what}", with_value(name, parameter, value), code, keys)
            for what, value, code, keys in illegal(says)
        ]
    for what, arguments, code, keys in cases:
        envelope, failed = tools.run(name, arguments)
        assert failed, what
        assert broken_failure(envelope, Expected(name, "", {}, code, tuple(keys))) == [], (what, envelope)
        assert envelope["details"]["error_type"] == "ValidationError"
        if "parameter" in keys:
            assert envelope["details"]["parameter"] == what.split(":")[0], (what, envelope)


@pytest.mark.parametrize("name", TOOLS)
@pytest.mark.sample(20)
def test_tool_takes_legal_arguments_in_every_form(name, tmp_path):
    tools = Tools(tmp_path)
    contract = TOOLS[name]["parameters"]
    cases = [("the least", usual(name)), ("everything", {name: sample(says) for name, says in contract.items()})]
    for parameter, says in contract.items():
        cases += [(f"{parameter}: {what}", with_value(name, parameter, value)) for what, value in legal(says)]
        for alias in says.get("aliases", ()):
            cases.append((alias, with_value(name, parameter, MISSING) | {alias: sample(says)}))
    for what, arguments in cases:
        envelope, failed = tools.run(name, arguments)
        if "server" in TOOLS[name]["common_errors"]:  # it gets by without a repository
            assert not failed or "no such toolset" in envelope["message"], (what, envelope)
            continue
        assert failed, what
        assert envelope["error"] == "GIT_REPO_NOT_FOUND", (what, envelope)


@pytest.mark.parametrize("name", TOOLS)
def test_arguments_above_a_maximum_are_clamped_with_a_warning(name):
    declared = read_parameters(import_function(load_catalogue()[name]))
    for parameter, says in TOOLS[name]["parameters"].items():
        if says.get("above_maximum") == "clamped":
            warned: list[tuple[str, str]] = []
            taken = parse_arguments(
                declared, usual(name) | {parameter: says["maximum"] + 1}, lambda *warning, to=warned: to.append(warning)
            )
            assert taken[parameter] == says["maximum"]
            assert [code for code, _ in warned] == [RULES["above_maximum"]["clamped"]["warning"]]


@pytest.mark.parametrize("name", TOOLS)
def test_empty_or_null_argument_is_like_a_missing_one(name):
    declared = read_parameters(import_function(load_catalogue()[name]))
    plain = parse_arguments(declared, usual(name), _no_warning)
    for parameter, says in TOOLS[name]["parameters"].items():
        nothing = [*RULES["optional_null_like"], *([says["unset"]] if "unset" in says else [])]
        for absent in nothing if not says.get("required") else ():
            assert parse_arguments(declared, usual(name) | {parameter: absent}, _no_warning) == plain


def _no_warning(code: str, sentence: str) -> None:
    raise AssertionError(f"{code}: {sentence}")
