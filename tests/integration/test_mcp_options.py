"""Which tools a server has, which repository it is for, and where it listens: flag, environment,
settings, default.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.mcp_process import run_to_end, serve
from vmrag_link.errors import AccessDenied, ConfigInvalid, GitRepositoryMissing, ToolDisabled, UsageInvalid, VmragError
from vmrag_link.settings import McpSettings
from vmrag_link.settings.keys import KEYS
from vmrag_mcp import repository
from vmrag_mcp.call_progress import CallProgress
from vmrag_mcp.client_tools import ClientTools, EnabledTools
from vmrag_mcp.deferred_setup import RepositorySession
from vmrag_mcp.options import Flags, ToolChoice, resolve_choice, select_tools
from vmrag_mcp.registry import CORE, list_toolsets, load_catalogue
from vmrag_mcp.repository import NamedDirectory, load_settings
from vmrag_mcp.server import protocol_tools
from vmrag_mcp.transport import http
from vmrag_mcp.transport.address import ListenAddress, parse_address, require_safe

template, project = terminal.template, terminal.project

LIST = "chroma_list_collections"


def names(**options) -> set[str]:
    return set(select_tools(ToolChoice(**options)).tools)


def settings(top: Path) -> McpSettings:
    result = load_settings(NamedDirectory(top))
    assert result.problem is None
    return result.config.mcp


# -- which tools


def test_server_without_options_has_the_default_toolsets():
    assert names() == {name for name, tool in load_catalogue().items() if set(tool.toolsets) & {*CORE}}
    assert names() == names(toolsets="default")


def test_toolsets_add_up_and_tools_add_single_ones():
    assert names(toolsets="all") == set(load_catalogue())
    assert names(toolsets="default, vcs_aliases") == names() | names(toolsets="vcs_aliases")
    assert names(toolsets="", tools=LIST) == {LIST}
    assert names(tools="commit") == names() | {"commit"}


def test_tool_of_two_toolsets_comes_with_either_and_once():
    shared = {name for name, tool in load_catalogue().items() if tool.toolsets[1:]}
    assert shared == {"get_document", "delete_document", "enable_toolset"}
    assert shared - {"enable_toolset"} == names(toolsets="knowledge") & names(toolsets="ingest")
    with pytest.raises(ToolDisabled, match="'ingest' and 'knowledge'") as caught:
        select_tools(ToolChoice()).require_tool("get_document")
    assert "get_document" in names(toolsets=caught.value.details["enable_with"].partition("=")[2])


def test_exclusions_come_last():
    assert names(toolsets="all", tools=LIST, exclude_tools=LIST) == set(load_catalogue()) - {LIST}


def test_read_only_beats_everything_else():
    reads = {name for name, tool in load_catalogue().items() if tool.reads or tool.on_read_only}
    assert names(toolsets="all", tools="dolt_commit", read_only=True) == reads
    assert [name for name, tool in load_catalogue().items() if tool.on_read_only] == [
        "enable_toolset",
        "activate_project",
    ]


def test_toolset_that_is_added_later_keeps_the_names_of_tools():
    at_start = select_tools(ToolChoice(toolsets="essential,ingest"))
    assert (at_start.require_tool("search").name, at_start.require_tool("search_documents").name) == (
        "search",
        "search_documents",
    )
    for prefix in ("", "kb_"):
        enabled = EnabledTools(select_tools(ToolChoice(toolsets="essential", prefix=prefix)))
        before = dict(enabled.selection.tools)
        later = enabled.enable_toolset("ingest", agreed=["ingest"])
        assert {name: later.tools[name] for name in before} == before
        assert (
            later.require_tool(f"{prefix}libraries_search")
            is later.require_tool("libraries_search")
            is load_catalogue()["search"]
        )
        assert later.require_tool("search").name == later.require_tool("search_documents").name == "search_documents"
        assert later.has_tool("search")
        assert (f"{prefix}libraries_search" in later.list_tools_of("ingest"), "ingest" in later.toolsets) == (
            True,
            True,
        )
        assert [*enabled.enable_toolset("all", agreed=["all"]).tools][: len(later.tools)] == [*later.tools]
    reverse = EnabledTools(select_tools(ToolChoice(toolsets="ingest,toolsets"))).enable_toolset("essential")
    assert (reverse.require_tool("search").name, reverse.require_tool("search_documents").name) == (
        "search",
        "search_documents",
    )
    with pytest.raises(ToolDisabled, match=r"^search is switched off"):
        select_tools(ToolChoice(toolsets="essential")).require_tool("libraries_search")
    with pytest.raises(ToolDisabled, match=r"^search is switched off: it is part of the toolset 'essential'"):
        select_tools(ToolChoice()).require_tool("search")


def test_settings_that_are_read_later_keep_the_names_of_tools():
    clients = ClientTools(select_tools(ToolChoice(toolsets="essential")))
    clients.begin_session("one", None)
    clients.find_enabled("one", None).enable_toolset("ingest")
    for settings in (
        ToolChoice(toolsets="essential,ingest"),
        ToolChoice(toolsets="dolt,toolsets"),
        ToolChoice(toolsets="all"),
    ):
        clients.replace_selection(select_tools(settings))
        session = clients.find_enabled("one", None).selection
        assert (session.require_tool("libraries_search").name, clients.shared.selection.has_tool("dolt_status")) == (
            "search",
            settings.toolsets != "essential,ingest",
        )
        assert "search" not in session.tools or session.require_tool("search").name == "search_documents"
    assert clients.shared.selection.require_tool("search").name == "search_documents"


def test_enum_of_enable_toolset_has_a_line_for_each_toolset():
    for names in ("essential", "default", "all"):
        (switch,) = (
            protocol_tool
            for protocol_tool in protocol_tools(select_tools(ToolChoice(toolsets=names)))
            if protocol_tool.name == "enable_toolset"
        )
        parameter = switch.input_schema["properties"]["toolset"]
        assert parameter["enum"] == [*list_toolsets(), "all"]
        assert [line.partition(":")[0] for line in parameter["description"].splitlines()] == [*list_toolsets()]
    thoughts = ",".join(name for name, tool in load_catalogue().items() if "thinking" in tool.toolsets)
    without = select_tools(ToolChoice(exclude_tools=thoughts)).build_schema(load_catalogue()["enable_toolset"])
    assert "thinking" not in without["properties"]["toolset"]["enum"]


def test_prefix_precedes_each_tool_name():
    chosen = select_tools(ToolChoice(prefix="kb_"))
    assert set(chosen.tools) == {f"kb_{name}" for name in names()}
    assert chosen.require_tool(f"kb_{LIST}").name == LIST


def test_disabled_tool_error_names_the_toolset_that_enables_it():
    with pytest.raises(ToolDisabled) as caught:
        select_tools(ToolChoice()).require_tool("commit")
    assert "vcs_aliases" in caught.value.details["enable_with"]
    with pytest.raises(AccessDenied):
        select_tools(ToolChoice(read_only=True)).require_tool("dolt_commit")


def test_flag_precedes_the_settings_and_exclusions_add_up():
    said = McpSettings(toolsets="merge", tools=LIST, exclude_tools="dolt_commit", tool_prefix="kb_")
    assert resolve_choice(Flags(), said) == ToolChoice("merge", LIST, "dolt_commit", read_only=False, prefix="kb_")
    assert resolve_choice(Flags(toolsets="", tools="", exclude_tools=""), said) == ToolChoice(
        "", "", "dolt_commit", prefix="kb_"
    )
    assert resolve_choice(Flags(exclude_tools=LIST), said).exclude_tools == f"{LIST},dolt_commit"
    assert resolve_choice(Flags(read_only=True), said).read_only
    assert resolve_choice(Flags(), McpSettings(read_only=True)).read_only


def test_environment_precedes_git_config_which_precedes_the_file(project, monkeypatch):
    project.write(".vmrag.yaml", "mcp:\n  toolsets: merge\n  page_chars: 5000\n")
    assert settings(project.top) == McpSettings()
    project.vmrag("trust", "--yes")
    assert (settings(project.top).toolsets, settings(project.top).page_chars) == ("merge", 5000)
    project.git("config", "vmrag.mcp.toolsets", "sync")
    assert settings(project.top).toolsets == "sync"
    for name, value in {"TOOLSETS": "dolt", "TOOLS": "a", "EXCLUDE_TOOLS": "b", "READ_ONLY": "1"}.items():
        monkeypatch.setenv(f"VMRAG_{name}", value)
    result = settings(project.top)
    assert (result.toolsets, result.tools, result.exclude_tools, result.read_only) == ("dolt", "a", "b", True)


@pytest.mark.parametrize("prefix", ["kb.", "ä", "x" * 21, '"a b"'])
def test_invalid_tool_prefix_is_a_settings_problem(project, prefix):
    project.write(".vmrag.yaml", f"mcp.tool_prefix: {prefix}\n")
    assert isinstance(load_settings(NamedDirectory(project.top)).problem, ConfigInvalid)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("--toolsets", "chroma,nonsense"), ("nonsense", "chroma", "dolt", "all", "default")),
        (("--tools", "chroma_list_colections"), ("chroma_list_colections", LIST)),
        (("--exclude-tools", "rm"), ("rm", LIST)),
    ],
)
def test_unknown_name_ends_the_start_with_the_valid_names(project, arguments, names):
    result = run_to_end(project.top, *arguments)
    assert (result.returncode, result.stdout) == (2, b"")
    assert all(name in result.stderr.decode() for name in names)


def test_unknown_name_in_a_setting_ends_the_start_as_well(project):
    project.write(".vmrag.yaml", "mcp.toolsets: nonsense\n")
    project.vmrag("trust", "--yes")
    assert run_to_end(project.top).returncode == 2
    assert run_to_end(project.top, env={"VMRAG_TOOLS": "nonsense"}).returncode == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("--client", "cursor"),
        ("--print",),
        ("install",),
        ("install", "--print", "--http", "1"),
        ("--http", "0.0.0.0:0"),
        ("--http", "nonsense"),
        ("--http", "0", "--token-env", "NOBODY_SETS_THIS"),
        ("--allow-remote",),
    ],
)
@pytest.mark.sample(4)
def test_options_that_do_not_fit_together_end_the_start(project, arguments):
    assert run_to_end(project.top, *arguments).returncode == 2


# -- which repository


def test_repository_comes_from_flag_then_environment_then_client_then_directory(monkeypatch, tmp_path):
    for name in ("flag", "own", "client", "here"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert repository.find_repository(None) == NamedDirectory(tmp_path / "here", "")
    monkeypatch.setenv("CLAUDE_PROJECT_DIR", str(tmp_path / "client"))
    assert repository.find_repository(None) == NamedDirectory(tmp_path / "client")
    monkeypatch.setenv("VMRAG_REPO", "../own")
    assert repository.find_repository(None).directory.samefile(tmp_path / "own")
    assert repository.find_repository(None).named_by == "person"
    assert repository.find_repository(tmp_path / "flag") == NamedDirectory(tmp_path / "flag", "person")


def test_home_and_root_directories_require_an_explicit_choice(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "link").symlink_to(tmp_path)
    for directory in (tmp_path, tmp_path / "link", Path("/")):
        settings = load_settings(NamedDirectory(directory))
        assert isinstance(settings.problem, GitRepositoryMissing)
        assert "--repo" in settings.problem.hint
    assert "--repo" not in load_settings(NamedDirectory(tmp_path, "person")).problem.hint


def test_settings_that_cannot_be_read_leave_those_of_the_environment(project, monkeypatch):
    monkeypatch.setenv("VMRAG_TOOLSETS", "merge")
    project.write(".vmrag.yaml", "nonsense: 1\n")
    settings = load_settings(NamedDirectory(project.top))
    assert isinstance(settings.problem, ConfigInvalid)
    assert settings.config.mcp.toolsets == "merge"
    monkeypatch.setenv("VMRAG_READ_ONLY", "perhaps")
    assert load_settings(NamedDirectory(project.top)).config.mcp == McpSettings()


# -- how it behaves


def test_untrusted_settings_cannot_disable_confirmations(project):
    def confirms() -> bool:
        session = RepositorySession(NamedDirectory(project.top))
        result, failed = session.run_tool(load_catalogue()[LIST], {}, CallProgress())
        assert not failed, result
        return session.behaviour.require_confirm

    project.write(".vmrag.yaml", "embedding.model: hash\nmcp.require_confirm: false\n")
    assert confirms()
    project.git("config", "vmrag.mcp.require-confirm", "false")
    assert not confirms()


def test_settings_reach_the_calls_that_come_after_them(project):
    session = RepositorySession(NamedDirectory(project.top))
    for size in (2000, 3000):
        project.write(".vmrag.yaml", f"embedding.model: hash\nmcp.page_chars: {size}\n")
        project.vmrag("trust", "--yes")
        session.run_tool(load_catalogue()[LIST], {}, CallProgress())
        assert session.behaviour.page_chars == size


# -- where it listens


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8765", ListenAddress("127.0.0.1", 8765)),
        (":0", ListenAddress("127.0.0.1", 0)),
        ("localhost:1", ListenAddress("localhost", 1)),
        ("[::1]:9", ListenAddress("::1", 9)),
        ("0.0.0.0:80", ListenAddress("0.0.0.0", 80)),
    ],
)
def test_address_is_a_port_or_a_host_with_one(text, expected):
    assert parse_address(text) == expected


@pytest.mark.parametrize("text", ["", "x", "1:2:3", "::1", "localhost", "localhost:", "1:65536", "1:-1", "1:²"])
def test_listen_address_rejects_invalid_text(text):
    with pytest.raises(UsageInvalid):
        parse_address(text)


def test_remote_access_requires_option_and_token():
    require_safe(ListenAddress("127.0.0.1", 1), allow_remote=False, token=None)
    require_safe(ListenAddress("::1", 1), allow_remote=False, token=None)
    require_safe(ListenAddress("0.0.0.0", 1), allow_remote=True, token="secret")
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.com"):
        with pytest.raises(UsageInvalid):
            require_safe(ListenAddress(host, 1), allow_remote=False, token="secret")
        with pytest.raises(UsageInvalid):
            require_safe(ListenAddress(host, 1), allow_remote=True, token=None)


def test_server_accepts_host_names_of_its_listen_address_and_port():
    assert http._list_hosts(ListenAddress("192.0.2.1", 5), ListenAddress("192.0.2.1", 5)) == {b"192.0.2.1:5"}
    assert http._list_hosts(ListenAddress("localhost", 5), ListenAddress("::1", 5)) == {b"localhost:5", b"[::1]:5"}
    assert http._list_hosts(ListenAddress("127.0.0.1", 80), ListenAddress("127.0.0.1", 80)) >= {
        b"127.0.0.1:80",
        b"localhost",
    }
    assert http._list_hosts(ListenAddress("::", 5), ListenAddress("::", 5)) == set()


# -- the guide


def codes(kind: type[VmragError]) -> set[str]:
    return {kind.code}.union(*(codes(subclass) for subclass in kind.__subclasses__()))


def test_guide_explains_every_toolset_and_every_setting():
    expected = set(list_toolsets()) | {name for name in KEYS if name.startswith("mcp.")}
    assert {name for name in expected if f"`{name}`" not in (DOCS / "mcp.md").read_text()} == set()


def test_tools_reference_explains_every_error_code():
    listed = (DOCS / "tools.md").read_text().partition("## Codes")[2]
    assert {
        code for code in codes(VmragError) if not re.search(rf"^\| `{code}` \| \S.+ \|$", listed, re.MULTILINE)
    } == set()


DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("how", [pytest.param("flag", marks=pytest.mark.long), "environment", "both"])
@pytest.mark.sample(1)
def test_default_embedding_function_is_that_of_collections_that_the_server_makes(project, how):
    flag = ["--default-ef", "sentence_transformer"] if how != "environment" else []
    env = {"flag": {}, "environment": {"CHROMA_DEFAULT_EF": "minilm"}, "both": {"CHROMA_DEFAULT_EF": "default"}}[how]
    with serve(project.top, *flag, "--cpu-execution-provider", "true", env=env) as server:
        server.call("chroma_create_collection", collection_name="fresh")
        info = server.call("chroma_get_collection_info", collection_name="fresh")
        assert (info["embedding_function"], server.call("chroma_list_collections")["success"]) == ("minilm", True)
        server.call("chroma_create_collection", collection_name="named", embedding_function="hash")
        assert server.call("chroma_get_collection_info", collection_name="named")["embedding_function"] == "hash"
    assert "ignoring --cpu-execution-provider" in server.said


def test_unknown_embedding_function_ends_the_start(project):
    result = run_to_end(project.top, "--default-ef", "absent")
    assert (result.returncode, b"'absent'" in result.stderr, b"minilm" in result.stderr) == (2, True, True)
    result = run_to_end(project.top, env={"CHROMA_DEFAULT_EF": "absent"})
    assert (result.returncode, b"CHROMA_DEFAULT_EF" in result.stderr) == (2, True)
