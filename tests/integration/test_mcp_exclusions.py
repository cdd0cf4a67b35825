"""Excluded tools are unreachable under each name: other tools, values of arguments, toolsets
enabled later, resources, prompts and proposals.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from tests.support import branching as support
from tests.support.branching import kb_branches, put
from tests.support.mcp import ALL, TextAnswer, Tools, connected
from vmrag_link.errors import ToolDisabled
from vmrag_mcp import registry
from vmrag_mcp.call import Behaviour
from vmrag_mcp.options import ToolChoice, select_tools
from vmrag_mcp.prompts import list_prompts
from vmrag_mcp.registry import import_function, load_catalogue
from vmrag_mcp.server import KnowledgeServer
from vmrag_mcp.session import Session

pytestmark = pytest.mark.hooks("off")

template, notes, tools = support.template, support.notes, support.tools

both_eras = pytest.mark.parametrize("era", ["legacy", "auto"])


def names(**options: Any) -> set[str]:
    return set(select_tools(ToolChoice(toolsets="all", **options)).tools)


# -- names of tools

ADDING = {
    "remember",
    "chroma_add_documents",
    "chroma_add_document",
    "chroma_add_document_with_id",
    "chroma_add_document_with_metadata",
    "chroma_add_document_with_id_and_metadata",
}
UPDATING = {
    "remember",
    "chroma_update_documents",
    "chroma_update_document_content",
    "chroma_update_document_metadata",
}
DELETING = {
    "forget",
    "chroma_delete_documents",
    "chroma_delete_document_by_id",
    "chroma_delete_documents_by_where_filter",
    "chroma_delete_documents_by_document_filter",
    "delete_document",
    "chroma_delete_collection",
    "delete_documents",
}
QUERYING = {
    "search_documents",
    "chroma_query_documents",
    "chroma_query_documents_with_where_filter",
    "chroma_query_documents_with_document_filter",
}
READING = {
    "read",
    "grep",
    "chroma_get_documents",
    "chroma_get_documents_by_ids",
    "chroma_get_documents_with_where_filter",
    "chroma_get_documents_with_document_filter",
    "chroma_get_all_documents",
    "get_document",
    "chroma_peek_collection",
    "chroma_get_collection",
    "chroma_rename_collection",
}


@pytest.mark.parametrize(
    ("excluded", "gone"),
    [
        ("dolt_commit", {"dolt_commit", "commit"}),
        ("commit", {"dolt_commit", "commit"}),
        ("dolt_checkout", {"dolt_checkout", "switch_branch", "create_branch"}),
        ("switch_branch", {"dolt_checkout", "switch_branch", "create_branch"}),
        ("create_branch", {"create_branch"}),
        ("merge_branch", {"merge_branch", "dolt_pull"}),
        ("dolt_fetch", {"dolt_fetch", "dolt_pull", "dolt_clone"}),
        ("sync_all", {"sync_all", "sync_collection", "force_full_resync"}),
        ("dolt_pull", {"dolt_pull"}),
        ("chroma_delete_documents", DELETING),
        ("chroma_delete_collection", {"chroma_delete_collection"}),
        ("chroma_query_documents", QUERYING),
        ("search", {"search", "search_documents", *QUERYING}),
        ("search_documents", {"search_documents", *QUERYING}),
        ("forget", DELETING),
        ("remember", {*ADDING, *UPDATING}),
        ("chroma_add_documents", ADDING),
        ("chroma_update_document_content", UPDATING),
        ("read", READING),
        ("grep", READING),
        ("status", {"status", "dolt_status", "get_branch_status"}),
        ("history", {"history", "dolt_commits", "get_log", "dolt_show", "get_diff"}),
        ("chroma_peek_collection", {"chroma_peek_collection", "chroma_get_collection", "chroma_rename_collection"}),
    ],
)
def test_exclusion_applies_to_each_name_of_a_tool(excluded, gone):
    assert names() - names(exclude_tools=excluded) == gone
    assert not gone & names(exclude_tools=excluded, tools=",".join(gone))
    for name in gone:
        with pytest.raises(ToolDisabled, match="excluded") as caught:
            select_tools(ToolChoice(toolsets="all", exclude_tools=excluded)).require_tool(name)
        assert caught.value.details["enable_with"] == f"--exclude-tools without {excluded}"


HELPERS = {
    "answers.index_status.collection_id",
    "answers.index_status.read_held_now",
    "answers.query.search_index",
    "branch_list.list_heads",
    "collection_metadata.shown_metadata",
    "compounding.ask.find_file",
    "compounding.mirror.mirror_changes",
    "documents.collections.source_read_only",
    "documents.collections.table_of",
    "documents.document_selection.chunks_of",
    "documents.named_files.find_file",
    "documents.named_files.shown_source",
    "documents.note_names.find_note_id",
    "essential.pages.fit_lines",
    "essential.passages.parse_question",
    "essential.texts.naming_refs",
    "essential.texts.relative_path",
    "follow.follow_pin.read_consistently",
    "follow.provenance.find_git_origin",
    "follow.provenance.find_origin",
    "follow.provenance.find_view_origin",
    "history.diff.diff_documents",
    "history.diff.read_sides",
    "history.diff.renamed_collections",
    "history.diff.stored_texts",
    "history.log.read_info",
    "history.revparse.resolve_tool_branch_rev",
    "libraries.ingest.ingest_sources",
    "libraries.ingest.open_converter",
    "show.show_file",
    "status.changes.list_uncommitted",
    "status.changes.read_sources_status",
    "status.status.is_pinned",
    "stores.stores.find_readable",
    "stores.stores.find_tools_store",
    "stores.stores.require_stored",
    "stores.stores.require_versioned",
    "thinking.think.load_settings",
    "thinking.think.parse_thought",
    "thinking.think.read_sessions",
}
"""Functions of `ops` that several tools call on their way: none of them is what a tool is for."""


def test_tools_of_one_operation_are_listed_as_aliases():
    """A new tool on the operation of an existing one must be listed with its other name, its parts,
    or the value of the argument that does the same; otherwise the function is a helper and is
    listed above.
    """
    users = defaultdict(set)
    for tool in load_catalogue().values():
        for operation in operations(import_function(tool)):
            users[operation].add(tool.name)
    for operation, sharing in users.items():
        if operation in HELPERS or len(sharing) == 1:
            continue
        does = [registry.tools_within(name) | set(load_catalogue()[name].by_argument.values()) for name in sharing]
        assert frozenset.intersection(*map(frozenset, does)), f"{operation} is what {sorted(sharing)} do"
    assert users.keys() >= HELPERS


def operations(function: Callable[..., Any], seen: set[Any] | None = None) -> Iterator[str]:
    """Yield the functions of operations that a function of a tool calls.

    It calls them directly or through other functions of tools.
    """
    seen = set() if seen is None else seen
    tools = {tool.module for tool in load_catalogue().values()}
    functions = function.__globals__
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
        match node:
            case ast.Name(id=name):
                result = functions.get(name)
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if isinstance(functions.get(name), ModuleType):
                result = getattr(functions[name], attribute, None)
            case _:
                continue
        if not isinstance(result, FunctionType) or result in seen:
            continue
        seen.add(result)
        if result.__module__.startswith("vmrag_mcp.tools") or result.__module__ in tools:
            yield from operations(result, seen)
        elif re.match(r"vmrag_link\.(?:ops|toolsets|workspace\.\w+)\.", result.__module__):
            yield f"{result.__module__.split('.', 2)[2]}.{result.__name__}"


def test_alias_has_the_effects_of_its_tool_for_each_value():
    for tool in load_catalogue().values():
        if tool.alias_of:
            same = load_catalogue()[tool.alias_of]
            assert {*tool.effect} - {"N"} == {*same.effect} - {"N"}, tool.name
        for name, shape in tool.schema["properties"].items():
            for value, does in (("commit_first", "dolt_commit"), ("reset_first", "dolt_reset")):
                if value in shape.get("enum", ()):
                    assert tool.by_argument[f"{name}={value}"] == does, tool.name
        for text, does in tool.by_argument.items():
            assert text.partition("=")[0] in tool.schema["properties"]
            assert does in load_catalogue()


@pytest.mark.parametrize(
    ("excluded", "name", "arguments"),
    [
        ("dolt_commit", "dolt_checkout", {"target": "topic", "create_branch": True, "if_uncommitted": "commit_first"}),
        ("commit", "switch_branch", {"branch": "topic", "create": True, "if_uncommitted": "commit_first"}),
        ("dolt_commit", "dolt_pull", {"if_uncommitted": "commit_first"}),
        ("dolt_commit", "merge_branch", {"source": "topic", "if_uncommitted": "commit_first"}),
        ("dolt_commit", "resolve_conflicts", {"table": "all", "strategy": "ours", "commit": True}),
        ("dolt_reset", "dolt_checkout", {"target": "topic", "create_branch": True, "if_uncommitted": "reset_first"}),
        ("dolt_reset", "merge_branch", {"source": "topic", "if_uncommitted": "reset_first"}),
        ("create_branch", "dolt_checkout", {"target": "topic", "create_branch": "true"}),
        ("create_branch", "switch_branch", {"name": "topic", "create": True}),
        ("dolt_link_git", "dolt_commit", {"message": "m", "auto_link_git": True}),
    ],
)
def test_argument_values_cannot_do_excluded_work(notes, excluded, name, arguments):
    put(notes, d="delta")
    before = kb_branches(notes), notes.texts()
    refused = Tools(notes.top, chosen=ToolChoice(toolsets="all", exclude_tools=excluded)).error(
        "TOOL_DISABLED", name, **arguments
    )
    assert excluded in refused["details"]["enable_with"]
    assert (kb_branches(notes), notes.texts()) == before


# -- toolsets that come later


def talk(
    directory: Any, chosen: ToolChoice, toolset: str, *, era: str = "auto", answer: Any = None, asks: bool = True
) -> tuple[TextAnswer, list[str], set[str]]:
    """Return the answer of `enable_toolset`, the questions to the user, and the tools available
    then.
    """
    questions: list[str] = []

    async def person(_: Any, params: Any) -> types.ElicitResult:
        questions.append(params.message)
        return types.ElicitResult(action="accept" if answer else "decline", content=answer or {"confirm": True})

    async def run() -> tuple[TextAnswer, set[str]]:
        server = KnowledgeServer(Session(directory, Behaviour()), select_tools(chosen))
        async with Client(server.sdk, mode=era, elicitation_callback=person if asks else None) as client:
            outcome = await client.call_tool("enable_toolset", {"toolset": toolset})
            return TextAnswer(outcome.content[0].text), {tool.name for tool in (await client.list_tools()).tools}

    result, tools = anyio.run(run)
    return result, questions, tools


@both_eras
def test_deleting_and_network_tools_require_confirmation(tmp_path, era):
    for no in (None, {"confirm": False}):
        partial, questions, outcome = talk(tmp_path, ToolChoice(), "ingest", era=era, answer=no)
        assert ("off: ingest_url, delete_document: " in partial, len(questions)) == (True, 1)
        assert "ingest_url" in questions[0]
        assert "delete_document" in questions[0]
        assert not {"ingest_url", "delete_document"} & outcome
        assert {"ingest_file", "search"} <= {*partial.switched_on} & outcome
    result, questions, outcome = talk(tmp_path, ToolChoice(), "ingest", era=era, answer={"confirm": True})
    assert "off: " not in result
    assert {"ingest_url", "delete_document", "search"} <= {*result.switched_on} & outcome
    result, questions, outcome = talk(tmp_path, ToolChoice(), "thinking", era=era)
    assert ("off: " in result, questions) == (False, [])


@both_eras
@pytest.mark.parametrize("toolset", ["ingest", "chroma_variants", "all"])
def test_answer_without_a_person_names_the_start_option_that_works(tmp_path, era, toolset):
    answer, questions, outcome = talk(tmp_path, ToolChoice(), toolset, era=era, asks=False)
    default, whole = select_tools(ToolChoice()).tools, select_tools(ToolChoice()).with_toolset(toolset).tools
    expected = {name for name, tool in whole.items() if not tool.needs_consent} | default.keys()
    assert (questions, outcome) == ([], expected)
    option = re.search(r"add '(--toolsets=\S+)' to", answer)[1]
    assert {*select_tools(ToolChoice(toolsets=option.partition("=")[2])).tools} == {*whole}


def test_enable_toolset_takes_no_argument_that_confirms(tmp_path):
    for argument in ("confirm", "agreed"):
        tools = Tools(tmp_path, chosen=ToolChoice())
        tools.error("INVALID_PARAMETER", "enable_toolset", toolset="ingest", **{argument: True})


def test_toolset_brings_back_nothing_that_was_excluded(tmp_path):
    chosen = ToolChoice(exclude_tools="chroma_delete_documents,dolt_commit,dolt_push")
    _, _, outcome = talk(tmp_path, chosen, "all", answer={"confirm": True})
    assert not {"chroma_delete_document_by_id", "delete_document", "delete_documents", "commit"} & outcome
    assert outcome == names(exclude_tools=chosen.exclude_tools)


@both_eras
def test_exclusion_of_an_essential_tool_holds_for_every_toolset(tmp_path, era):
    chosen = ToolChoice(toolsets="essential,toolsets", exclude_tools="remember,chroma_delete_documents")
    for toolset in ("chroma", "chroma_variants", "knowledge", "all"):
        _, _, listed_tools = talk(tmp_path, chosen, toolset, era=era, answer={"confirm": True})
        assert not (ADDING | UPDATING | DELETING) & listed_tools
    for name in ADDING | UPDATING | DELETING:
        with pytest.raises(ToolDisabled, match="excluded"):
            select_tools(chosen).require_tool(name)


def test_resource_follows_the_exclusion_of_the_essential_tool(notes):
    for excluded, uri in (("read", DOCUMENT), ("status", "vmrag://status")):
        server = KnowledgeServer(
            Session(notes.top, Behaviour()), select_tools(ToolChoice(toolsets="all", exclude_tools=excluded))
        )
        with connected(server) as client, pytest.raises(MCPError, match="excluded"):
            client.read_resource(uri)


def test_toolset_on_a_read_only_server_adds_reading_tools(tmp_path):
    listed = load_catalogue()["enable_toolset"]
    assert "readOnlyHint" not in listed.annotations
    assert listed.is_available(read_only=True)
    result, questions, outcome = talk(tmp_path, ToolChoice(read_only=True), "chroma_variants", asks=False)
    assert ("chroma_delete_document_by_id" in result, "the server was started without them" in result, questions) == (
        True,
        True,
        [],
    )
    assert "chroma_get_all_documents" in outcome
    assert "chroma_delete_document_by_id" not in outcome
    partial, _, outcome = talk(tmp_path, ToolChoice(read_only=True), "compounding", asks=False)
    assert ("user has not confirmed" in partial, "rag_query" in outcome) == (True, False)
    everything = ",".join(name for name, tool in load_catalogue().items() if "thinking" in tool.toolsets)
    refused, *_ = talk(tmp_path, ToolChoice(exclude_tools=everything), "thinking")
    assert refused.startswith("error ACCESS_DENIED: this server was started without")


# -- resources, prompts, proposals

DOCUMENT = "vmrag://documents/notes/a"


def test_resource_shows_nothing_that_an_excluded_tool_would_show(notes, tools):
    uris = {
        "dolt_status": ["vmrag://status"],
        "chroma_list_collections": ["vmrag://collections"],
        "chroma_get_collection_info": ["vmrag://collections/notes"],
        "chroma_get_documents": [DOCUMENT, "vmrag://collections/notes"],
        "get_document": [DOCUMENT, "vmrag://collections/notes"],
    }
    every = {uri for found_uris in uris.values() for uri in found_uris}
    with connected(KnowledgeServer(Session(notes.top, Behaviour()), select_tools(ALL))) as client:
        for uri in every:
            assert client.read_resource(uri).contents
    for excluded, gone in uris.items():
        server = KnowledgeServer(
            Session(notes.top, Behaviour()), select_tools(ToolChoice(toolsets="all", exclude_tools=excluded))
        )
        with connected(server) as client:
            for uri in every:
                if uri in gone:
                    with pytest.raises(MCPError, match="excluded") as caught:
                        client.read_resource(uri)
                    assert caught.value.error.data["code"] == "TOOL_DISABLED"
                else:
                    assert client.read_resource(uri).contents
            listed = {str(resource.uri) for resource in client.list_resources().resources}
            assert not listed & {*gone}
            templates = {
                resource_template.uri_template
                for resource_template in client.list_resource_templates().resource_templates
            }
            assert ("vmrag://documents/{collection}/{+doc_id}" in templates) == (DOCUMENT not in gone)


def test_resources_are_hidden_if_no_callable_tool_shows_them(notes):
    for chosen, shown in (
        (ToolChoice(toolsets="knowledge"), False),
        (ToolChoice(toolsets="", tools="search_issues"), False),
        (ToolChoice(toolsets="knowledge,toolsets"), True),  # one call of enable_toolset away
        (ToolChoice(read_only=True), True),
    ):
        with connected(KnowledgeServer(Session(notes.top, Behaviour()), select_tools(chosen))) as client:
            result = {str(resource.uri) for resource in client.list_resources().resources}
            assert ("vmrag://collections/notes" in result) == shown, chosen


def test_proposals_and_prompts_name_nothing_that_is_excluded(notes):
    def proposed(chosen: ToolChoice) -> tuple[list[str], list[str]]:
        template = "vmrag://documents/{collection}/{+doc_id}"
        reference = types.ResourceTemplateReference(uri=template)
        with connected(KnowledgeServer(Session(notes.top, Behaviour()), select_tools(chosen))) as client:
            collections = client.complete(reference, {"name": "collection", "value": ""})
            documents = client.complete(reference, {"name": "doc_id", "value": ""}, {"collection": "notes"})
            return collections.completion.values, documents.completion.values

    assert proposed(ALL) == (["notes"], ["a", "b", "c"])
    assert proposed(ToolChoice(toolsets="all", exclude_tools="chroma_get_documents")) == ([], [])
    assert list_prompts(select_tools(ToolChoice(exclude_tools="get_diff"))) == []
    assert [prompt.name for prompt in list_prompts(select_tools(ToolChoice(exclude_tools="commit")))] == [
        "knowledge_changes"
    ]
