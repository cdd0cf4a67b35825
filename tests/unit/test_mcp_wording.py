"""Texts of a server name only tools that its clients can call."""

from __future__ import annotations

import collections
import re

import pytest

from tests.english import CONSTRUCTIONS
from vmrag_link.errors import CollectionMissing, DocumentMissing, IndexFailed, NoChanges, UsageInvalid, VmragError
from vmrag_link.toolsets.essential.pages import estimate_tokens
from vmrag_mcp import envelope
from vmrag_mcp.advice import adapt_text, find_mentioned
from vmrag_mcp.options import ToolChoice, ToolSelection, select_tools
from vmrag_mcp.prompts import PROMPTS, list_prompts
from vmrag_mcp.registry import list_toolsets, load_catalogue
from vmrag_mcp.server import protocol_tools

LONGEST_DESCRIPTION = 260
"""Characters of the description of a tool."""

SERVERS = [
    ToolChoice(),
    ToolChoice(read_only=True),
    ToolChoice(toolsets="all", read_only=True),
    *(ToolChoice(toolsets=toolset) for toolset in list_toolsets()),
    *(ToolChoice(toolsets="all", exclude_tools=tool) for tool in load_catalogue()),
]


def texts(server: ToolSelection) -> list[str]:
    """Return all texts that a client of the server gets before its first call, and the suggestions
    of errors.
    """
    result = [server.write_instructions(), *(prompt.about for prompt in list_prompts(server))]
    for protocol_tool in protocol_tools(server):
        shapes = protocol_tool.input_schema["properties"].values()
        result += [protocol_tool.description, *(shape["description"] for shape in shapes if "description" in shape)]
    for kind in (NoChanges, CollectionMissing, DocumentMissing, IndexFailed):
        result += envelope.build_failure(kind("It failed."), server)["suggestions"]
    return result


@pytest.mark.parametrize(
    "chosen", SERVERS, ids=lambda chosen: f"{chosen.toolsets}-{chosen.exclude_tools}-{chosen.read_only}"
)
@pytest.mark.sample(20)
def test_server_texts_name_only_its_own_tools(chosen):
    server = select_tools(chosen)
    result = texts(server)
    assert {name for text in result for name in find_mentioned(text)} <= server.tools.keys()
    assert all(result), "no text is empty"
    assert not any(text.endswith((";", ",", ":")) for text in result)


@pytest.mark.parametrize("read_only", [False, True])
def test_instructions_explain_that_source_documents_are_files(read_only):
    instructions = select_tools(ToolChoice(read_only=read_only)).write_instructions()
    assert "collections of kind 'source' are files in the working tree" in instructions
    assert "edit its file; the next query uses it." in instructions


@pytest.mark.parametrize("tool", protocol_tools(select_tools(ToolChoice(toolsets="all"))), ids=lambda tool: tool.name)
def test_tool_and_parameters_have_plain_descriptions(tool):
    assert 1 <= len(tool.title.split()) <= 4, "a title has two to four words, or one that is the name"
    parameters = {name: shape.get("description") for name, shape in tool.input_schema["properties"].items()}
    assert all(parameters.values()), (
        f"without a description: {[name for name, about in parameters.items() if not about]}"
    )
    for text in (tool.title, tool.description, *parameters.values()):
        assert [name for name, pattern in CONSTRUCTIONS.items() if pattern.search(text)] == [], text
    assert tool.description.endswith("."), "sentences"
    assert len(tool.description) <= LONGEST_DESCRIPTION


@pytest.mark.parametrize("name", [name for name, tool in load_catalogue().items() if "essential" in tool.toolsets])
def test_beginning_of_a_description_suffices_to_choose_the_tool(name):
    """Qwen Code shows about 160 characters."""
    first = re.split(r"(?<=[.;]) ", load_catalogue()[name].description)[0]
    assert len(first) <= 160


def test_parameters_of_a_name_have_one_wording():
    shared = {"collection_name", "offset", "where", "where_document", "ref"}
    wordings = collections.defaultdict(set)
    for tool in load_catalogue().values():
        for name, shape in tool.schema["properties"].items():
            if name in shared and "learning" not in tool.toolsets:
                wordings[name].add(shape["description"])
    assert {name: len(wording) for name, wording in wordings.items() if name != "collection_name"} == dict.fromkeys(
        shared - {"collection_name"}, 1
    )
    assert wordings["collection_name"] == {
        "collection such as handbook",
        "name such as handbook",
        "collection; default: all",
    }


def test_instructions_of_essential_tools_are_short():
    instructions = select_tools(ToolChoice("essential")).write_instructions()
    assert estimate_tokens(instructions) <= 200
    assert "'kb'" not in instructions, "answers in text have no such block"
    assert [name for name, pattern in CONSTRUCTIONS.items() if pattern.search(instructions)] == []


def test_text_names_tools_as_the_clients_of_the_server_call_them():
    server = select_tools(ToolChoice(prefix="kb_"))
    assert "kb_chroma_query_documents" in server.write_instructions()
    assert all(f"kb_{name}" in text for text in texts(server) for name in find_mentioned(text.replace("kb_", "")))
    assert envelope.build_failure(NoChanges("x"), server)["suggestions"] == [
        "kb_dolt_status shows uncommitted documents"
    ]


def test_sentences_about_missing_tools_are_left_out_and_parameters_stay():
    text = "It is stored; dolt_commit keeps it. create_branch=true makes one. Search first."
    assert adapt_text(text, ["dolt_commit"], "") == text
    assert adapt_text(text, [], "") == "It is stored. create_branch=true makes one. Search first."
    assert adapt_text("dolt_commit keeps it.", [], "") == ""
    assert adapt_text("vmrag add --help; tools: chroma_add_documents", [], "") == "vmrag add --help"


def test_prompt_that_needs_a_tool_is_not_listed_without_it():
    assert [prompt.name for prompt in list_prompts(select_tools(ToolChoice()))] == [*PROMPTS]
    assert "prepare_knowledge_commit" not in {
        prompt.name for prompt in list_prompts(select_tools(ToolChoice(read_only=True)))
    }


@pytest.mark.parametrize("kind", [NoChanges, IndexFailed, VmragError])
def test_error_always_suggests_something(kind):
    nothing = select_tools(ToolChoice(toolsets="toolsets"))
    assert all(envelope.build_failure(kind("It failed."), nothing)["suggestions"])


def test_error_repeats_the_ends_of_an_overlong_value():
    long = f"a{'x' * 9000}z"
    error = UsageInvalid(f"{long!r} is no name.", hint=f"Not {long}", value=long, unknown=[long], kept=7)
    answer = envelope.build_failure(error)
    assert len(str(answer)) < 5000
    assert answer["message"].startswith("'axxx")
    assert answer["message"].endswith("xxxz' is no name.")
    assert answer["details"]["unknown"] == [answer["details"]["value"]]
    assert answer["details"]["kept"] == 7
