"""Every tool in the states of the contract (`tests/contract/`): calls that succeed have exactly its result, and each of its errors comes."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from tests.contract.reading import (
    COMMON,
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
from tests.support.contract_world import World
from tests.support.mcp import Tools, Yes, warned
from vmrag_link.engines.doltlite.engine import DoltliteEngine
from vmrag_link.errors import VmragError
from vmrag_mcp import envelope
from vmrag_mcp.options import Chosen, selection
from vmrag_mcp.registry import catalogue, function_of
from vmrag_mcp.session import NOTHING

templates, world = contract_world.templates, contract_world.world

READING = [name for name, each in TOOLS.items() if set(each["effect"]) <= {"R", "N"}]


def made(world: World, expected: Expected) -> tuple[dict[str, Any], bool, State]:
    """The call, its result, whether it failed, and the state that it was made in."""
    state = world.state(expected.given)
    asked = expected.code not in ("REMOTE_NOT_TRUSTED", "ACCESS_DENIED") and (state.top / ".git").exists()
    tools = Tools(state.top, agreed=Yes(state) if asked else NOTHING)
    result, failed = tools.run(expected.tool, world.call(expected.call, state))
    return result, failed, state


@pytest.mark.parametrize("name", TOOLS)
def test_a_call_that_succeeds_has_exactly_the_result_of_the_contract(world, name):
    problems, found, warnings = [], set(), {"INDEX_PENDING"}  # see the damaged index below
    for each in examples(name):
        result, failed, _ = made(world, each)
        found |= seen(result)
        warnings |= warned(result)
        if failed:
            problems.append((each, f"{result['error']}: {result['message']}", result["details"]))
        elif wrong := broken(name, result):
            problems.append((each, wrong))
        elif each.given not in ("nothing", "pending") and not result["kb"]["in_sync"]:
            problems.append((each, result["kb"]))
    assert not problems, "\n".join(map(str, problems))
    assert conditional(name) <= found, "a key that no example has"
    possible = {code for code, each in TOOLS[name]["warnings"].items() if "provoke" not in each}
    assert possible <= warnings, "a warning that no example has"


@pytest.mark.parametrize("name", TOOLS)
def test_every_error_of_a_tool_comes_in_the_envelope(world, name):
    problems = []
    for each in refusals(name):
        result, failed, _ = made(world, each)
        if not failed:
            problems.append((each, "it succeeds", result))
        elif wrong := broken_failure(result, each):
            problems.append((each, wrong, result["details"]))
    assert not problems, "\n".join(map(str, problems))


@pytest.mark.parametrize("state", ["malformed", "missing"])
def test_a_tool_that_reads_says_when_its_answer_is_not_from_the_pinned_revision(world, state):
    top = world.state(state).top
    tools = Tools(top)
    for name in READING:
        result = tools(name, **examples(name)[0].call)
        assert (name, result["kb"]["in_sync"]) == (name, False)
        assert "NOT_IN_SYNC" in warned(result), name


@pytest.mark.parametrize("name", [name for name, each in TOOLS.items() if "CHROMADB_ERROR" in each["errors"]])
def test_a_damaged_index_is_no_failure_of_a_tool_but_built_again(world, name):
    if "cannot" not in TOOLS[name]["errors"]["CHROMADB_ERROR"]:
        return
    state = world.state("broken_index")
    tools = Tools(state.top)
    result = tools(name, **examples(name)[0].call)
    assert broken(name, result) == []
    if name not in READING:
        assert "INDEX_PENDING" in warned(result)
        assert tools("sync_all")["failed"] == []
    assert tools("get_sync_status")["in_sync"]


# -- errors that every tool can have ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TOOLS)
def test_a_bug_is_told_without_its_trace_which_is_in_the_log(world, name, monkeypatch):
    function = function_of(catalogue()[name])

    @functools.wraps(function)  # so its parameters are the tool's
    def failing(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setitem(function.__globals__, name, failing)
    tools = Tools(world.state("nothing" if "knowledge" not in TOOLS[name]["common_errors"] else "notes").top)
    found = tools.error("INTERNAL_ERROR", name, **usual(name))
    assert broken_failure(found, Expected(name, "", {}, "INTERNAL_ERROR", ("incident", "log"))) == []
    assert "secret" not in str(found)
    assert "a secret" in Path(found["details"]["log"]).read_text()


def usual(name: str) -> dict[str, Any]:
    """A legal call without values that a state has to give."""
    return {key: "x" if str(value)[:1] == "<" else value for key, value in examples(name)[0].call.items()}


def test_a_full_disk_is_told_and_costs_nothing_that_was_stored(world):
    state = world.state("dirty")
    with small_disk(state.shared, kilobytes=8000) as fill:
        tools = Tools(state.top)
        before = tools("chroma_get_documents", collection_name="notes")["documents"]
        fill(0)
        long = {"collection_name": "notes", "documents": ["long " * 100_000]}
        found = tools.error("FILE_SYSTEM_ERROR", "chroma_add_documents", **long)
        assert broken_failure(found, Expected("chroma_add_documents", "", {}, "FILE_SYSTEM_ERROR")) == []
        assert tools("chroma_get_documents", collection_name="notes")["documents"] == before
        (state.shared / "filler").unlink()
        assert tools("dolt_commit", message="m")["changes_committed"]["total"] == 1


@pytest.mark.parametrize("name", ["dolt_commit", "commit"])
def test_a_commit_that_comes_too_late_for_its_pin_says_so(world, name, monkeypatch):
    state = world.state("dirty")
    commit = DoltliteEngine.commit

    def overtaken(*arguments: Any, **keywords: Any) -> str:
        revision = commit(*arguments, **keywords)
        state.git("switch", "-q", "-c", "elsewhere", env=OFF)  # in another terminal
        return revision

    with monkeypatch.context() as patch:
        patch.setattr(DoltliteEngine, "commit", overtaken)
        found = Tools(state.top).error("UNPINNED_REVISION", name, message="m")
    assert broken_failure(found, Expected(name, "", {}, "UNPINNED_REVISION")) == []
    state.git("switch", "-q", "main", env=OFF)
    tools = Tools(state.top)
    assert "NOTE" in warned(tools("dolt_status")), "the interrupted commit was finished"
    assert tools("dolt_status")["link"]["state"] == "in_sync"


# -- names that are no tools ----------------------------------------------------------------------------------------------


def refused(chosen: Chosen, name: str) -> dict[str, Any]:
    with pytest.raises(VmragError) as caught:
        selection(chosen).tool(name)
    return envelope.failure(caught.value)


def test_a_tool_that_is_switched_off_says_which_flag_switches_it_on():
    for name, each in TOOLS.items():
        if not COMMON["toolsets"][each["toolsets"][0]]["default"]:
            found = refused(Chosen(), name)
            assert broken_failure(found, Expected(name, "", {}, "TOOL_DISABLED", ("enable_with",))) == []
            flag, _, value = found["details"]["enable_with"].partition("=")
            assert flag == "--toolsets"
            assert name in selection(Chosen(toolsets=value)).tools
    assert refused(Chosen(exclude_tools="dolt_push"), "dolt_push")["details"]["enable_with"]


def test_a_name_that_is_no_tool_gets_the_nearest_one():
    found = refused(Chosen(), "chroma_list_collection")
    assert broken_failure(found, Expected("", "", {}, "TOOL_NOT_FOUND")) == []
    assert "chroma_list_collections" in found["suggestions"]


@pytest.mark.parametrize("name", [name for name in TOOLS if name not in READING])
def test_a_server_that_is_read_only_denies_what_writes(name):
    found = refused(Chosen(toolsets="all", read_only=True), name)
    assert broken_failure(found, Expected(name, "", {}, "ACCESS_DENIED")) == []
