"""Every tool in the states of the contract (`tests/contract/`): calls that succeed have exactly its
result, and each of its errors comes.
"""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path
from typing import Any

import pytest

from tests.contract.reading import (
    COMMON,
    REPRESENTATIVES,
    TOOLS,
    Expected,
    broken,
    broken_failure,
    conditional,
    examples,
    refusals,
    seen,
)
from tests.support import contract_world
from tests.support.cli import small_disk
from tests.support.contract_states import OFF, State
from tests.support.contract_world import World, open_tools
from tests.support.long import LONG
from tests.support.mcp import Tools, Yes, warned
from vmrag_link.engines.doltlite.engine import DoltliteEngine
from vmrag_link.errors import VmragError
from vmrag_link.models import WorkingSet
from vmrag_mcp import envelope
from vmrag_mcp.call import NO_CONSENT
from vmrag_mcp.options import ToolChoice, select_tools
from vmrag_mcp.registry import import_function, load_catalogue

pytestmark = pytest.mark.hooks("off")

templates, world = contract_world.templates, contract_world.world

READING = [
    name for name, tool in TOOLS.items() if set(tool["effect"]) <= {"R", "N"} and "server" not in tool["common_errors"]
]


STRANGERS = ("REMOTE_NOT_TRUSTED", "ACCESS_DENIED")
"""Errors for missing confirmation of the user."""

REFUSED: dict[str, list[Expected]] = {}
"""All calls that fail, by the state in which they are made."""
for _refusal in (refusal for name in TOOLS for refusal in refusals(name)):
    REFUSED.setdefault(_refusal.given, []).append(_refusal)


def run(world: World, expected: Expected, state: State) -> tuple[dict[str, Any], bool]:
    """Return the call's result and whether it failed.

    The user confirms each question, unless the missing confirmation is the expected error.
    """
    asks_user = expected.code not in STRANGERS and (state.top / ".git").exists()
    tools = open_tools(state, expected.tool, given=expected.given, agreed=Yes(state) if asks_user else NO_CONSENT)
    return tools.run(expected.tool, world.call(expected.call, state))


@pytest.mark.parametrize("name", TOOLS)
def test_call_that_succeeds_has_exactly_the_result_of_the_contract(world, name):
    problems, found_values, warnings = [], set(), {"INDEX_PENDING"}  # see the damaged index below
    for example in examples(name):
        result, failed = run(
            world, example, world.reading(example.given) if name in READING else world.state(example.given)
        )
        found_values |= seen(result)
        if failed:
            problems.append((example, f"{result['error']}: {result['message']}", result["details"]))
            continue
        text = isinstance(result, str)
        warnings |= TOOLS[name]["warnings"].keys() if text else warned(result)  # a text does not show codes
        if wrong := broken(name, result, example.prints):
            problems.append((example, "\n".join(wrong)))
        elif (
            not text
            and example.given not in ("nothing", "pending")
            and not result.get("kb", {"in_sync": True})["in_sync"]
        ):
            problems.append((example, result["kb"]))
    assert not problems, "\n".join(map(str, problems))
    assert conditional(name) <= found_values, "a key that no example has"
    possible = {code for code, warning in TOOLS[name]["warnings"].items() if "provoke" not in warning}
    assert possible <= warnings, "a warning that no example has"


@pytest.mark.parametrize("given", REFUSED)
def test_every_tool_error_has_the_envelope_and_changes_nothing(world, given):
    problems = []
    for strangers in (True, False):  # in this order: a confirmation is written into git's configuration
        calls = [result for result in REFUSED[given] if (result.code in STRANGERS) is strangers]
        if not LONG:  # each error in this state, by a fifth of its tools
            calls = [call for code in {call.code for call in calls} for call in select_calls(calls, code)]
        state = world.state(given)
        before = holds(state)
        for call in calls:
            result, failed = run(world, call, state)
            if not failed:
                problems.append((call, "it succeeds", result))
            elif wrong := broken_failure(result, call):
                problems.append((call, wrong, result["details"]))
        if (after := holds(state)) != before:
            problems.append(("a refused call has changed something", before, after))
    assert not problems, "\n".join(map(str, problems))


def select_calls(calls: list[Expected], code: str) -> list[Expected]:
    """Return every fifth call with an error, the first included."""
    return [call for call in calls if call.code == code][::5]


def holds(state: State) -> tuple[Any, ...]:
    """Return the state that no rejected call may change: the pin, git's refs, index and working
    tree, the branches of the knowledge base, its documents.
    """
    if not (state.top / ".git").exists():
        return tuple(state.top.iterdir())
    pin = state.top / ".dolt-version"
    code = (
        pin.exists() and pin.read_bytes(),
        state.git("for-each-ref"),
        state.git("status", "--porcelain=v2", "--branch"),
    )
    return *code, *_knowledge(state.shared / "kb")


def _knowledge(folder: Path) -> tuple[Any, ...]:
    if not DoltliteEngine.exists(folder):
        return ()
    try:
        engine = DoltliteEngine.open(folder)
    except VmragError as error:
        return (error.code,)
    with contextlib.closing(engine):
        return tuple(
            (branch, list(engine.read_documents(WorkingSet(branch.name)))) for branch in engine.list_branches()
        )


@pytest.mark.parametrize("state", ["malformed", "missing"])
def test_reading_tool_reports_an_answer_from_another_revision(world, state):
    top = world.state(state).top
    for name in READING:
        result = open_tools(State(top), name)(name, **examples(name)[0].call)
        if load_catalogue()[name].plain_text:
            assert "\nwarning: " in f"\n{result}", name
            continue
        assert (name, result["kb"]["in_sync"]) == (name, False)
        assert "NOT_IN_SYNC" in warned(result), name


@pytest.mark.parametrize(
    "name", [name for name, tool in TOOLS.items() if "cannot" in tool["errors"].get("CHROMADB_ERROR", ())]
)
@pytest.mark.sample(2)
def test_damaged_index_is_rebuilt_without_failing_a_tool(world, name):
    state = world.state("broken_index")
    tools = open_tools(state, name)
    result = tools(name, **examples(name)[0].call)
    assert broken(name, result) == []
    assert load_catalogue()[name].plain_text or "INDEX_PENDING" not in warned(result)
    assert tools("sync_all")["failed"] == []
    assert tools("get_sync_status")["in_sync"]


# -- errors that every tool can have ---------------------------------------------------------------


def test_session_requires_a_knowledge_base_except_for_tools_that_make_one():
    """If one tool of a kind is rejected without a sound knowledge base, all of them are."""
    for name, tool in TOOLS.items():
        declared = import_function(load_catalogue()[name]).__dict__["declared"]
        assert declared.about_server == ("server" in tool["common_errors"]) == ("any" not in tool["common_errors"]), (
            name
        )
        if not declared.about_server:
            assert declared.without_kb == ("knowledge" not in tool["common_errors"]), name


@pytest.mark.parametrize("name", sorted(REPRESENTATIVES))
@pytest.mark.sample(5)
def test_internal_error_hides_the_trace_and_logs_it(world, name, monkeypatch):
    function = import_function(load_catalogue()[name])

    @functools.wraps(function)  # so its parameters are the tool's
    def failing(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setitem(function.__globals__, name, failing)
    tools = Tools(world.state("nothing" if "knowledge" not in TOOLS[name]["common_errors"] else "notes").top)
    error = tools.error("INTERNAL_ERROR", name, **usual(name))
    assert broken_failure(error, Expected(name, "", {}, "INTERNAL_ERROR", ("incident", "log"))) == []
    assert "secret" not in str(error)
    assert "a secret" in Path(error["details"]["log"]).read_text()


def usual(name: str) -> dict[str, Any]:
    """A legal call without values that a state has to give."""
    return {key: "x" if str(value)[:1] == "<" else value for key, value in examples(name)[0].call.items()}


def test_full_disk_raises_database_error_and_keeps_stored_documents(world):
    state = world.state("dirty")
    with small_disk(state.shared, kilobytes=8000) as fill:
        tools = Tools(state.top)
        before = tools("chroma_get_documents", collection_name="notes")["documents"]
        fill(0)
        long = {"collection_name": "notes", "documents": ["long " * 100_000]}
        tools.error("DATABASE_ERROR", "chroma_add_documents", **long)
        assert tools("chroma_get_documents", collection_name="notes")["documents"] == before
        (state.shared / "filler").unlink()
        assert tools("dolt_commit", message="m")["changes_committed"]["total"] == 1


@pytest.mark.parametrize("name", ["dolt_commit", "commit"])
def test_commit_reports_unpinned_revision_after_concurrent_switch(world, name, monkeypatch):
    state = world.state("dirty")
    commit = DoltliteEngine.commit

    def overtaken(*arguments: Any, **keywords: Any) -> str:
        revision = commit(*arguments, **keywords)
        state.git("switch", "-q", "-c", "elsewhere", env=OFF)  # in another terminal
        return revision

    with monkeypatch.context() as patch:
        patch.setattr(DoltliteEngine, "commit", overtaken)
        error = Tools(state.top).error("UNPINNED_REVISION", name, message="m")
    assert broken_failure(error, Expected(name, "", {}, "UNPINNED_REVISION")) == []
    state.git("switch", "-q", "main", env=OFF)
    tools = Tools(state.top)
    assert "NOTE" in warned(tools("dolt_status")), "the interrupted commit was finished"
    assert tools("dolt_status")["link"]["state"] == "in_sync"


# -- invalid tool names ----------------------------------------------------------------------------


def refused(chosen: ToolChoice, name: str) -> dict[str, Any]:
    with pytest.raises(VmragError) as caught:
        select_tools(chosen).require_tool(name)
    return envelope.build_failure(caught.value)


def test_disabled_tool_error_names_the_flag_that_enables_it():
    for name, tool in TOOLS.items():
        if not COMMON["toolsets"][tool["toolsets"][0]]["default"]:
            error = refused(ToolChoice(), name)
            assert broken_failure(error, Expected(name, "", {}, "TOOL_DISABLED", ("enable_with",))) == []
            flag, _, value = error["details"]["enable_with"].partition("=")
            assert flag == "--toolsets"
            selected = select_tools(ToolChoice(toolsets=value)).tools
            assert name in {*selected, *(tool.name for tool in selected.values())}
    assert refused(ToolChoice(exclude_tools="dolt_push"), "dolt_push")["details"]["enable_with"]


def test_unknown_tool_name_gets_a_suggestion():
    error = refused(ToolChoice(), "chroma_list_collection")
    assert broken_failure(error, Expected("", "", {}, "TOOL_NOT_FOUND")) == []
    assert "call chroma_list_collections" in error["suggestions"]


@pytest.mark.parametrize(
    "name", [name for name, tool in TOOLS.items() if set(tool["effect"]) - {"R", "N"} and not tool.get("on_read_only")]
)
@pytest.mark.sample(11)
def test_read_only_server_denies_writing_tools(name):
    error = refused(ToolChoice(toolsets="all", read_only=True), name)
    assert broken_failure(error, Expected(name, "", {}, "ACCESS_DENIED")) == []
