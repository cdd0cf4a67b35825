"""Distributions of this server by others: the entry of a registry, a bundle, a plugin, links."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import re
import tomllib
import zipfile
from pathlib import Path
from urllib.parse import quote

import jsonschema
import pytest
import yaml

import vmrag_link
from vmrag_mcp.clients import server_command
from vmrag_mcp.clients.table import CLIENTS
from vmrag_mcp.options import Flags, ToolChoice, select_tools

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "clients" / "claude-code"
BUNDLE = ROOT / "clients" / "mcpb"
VERSION = vmrag_link.__version__
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FIRST_TOOLS = ["--default-toolsets", "essential"]
"""Arguments that each way of installation passes."""


def read(*parts: str) -> dict:
    return json.loads(ROOT.joinpath(*parts).read_text())


def require_valid(value: dict, schema: str) -> None:
    content = read("tests", "data", schema)
    jsonschema.validators.validator_for(content)(content).validate(value)


@pytest.fixture
def bundle():
    spec = importlib.util.spec_from_file_location("bundle", ROOT / "clients" / "bundle.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_version_is_the_same_everywhere():
    server, project = read("server.json"), tomllib.loads((BUNDLE / "pyproject.toml").read_text())["project"]
    assert {server["version"], server["packages"][0]["version"]} == {VERSION}
    assert read("clients", "mcpb", "manifest.json")["version"] == VERSION
    assert (project["version"], project["dependencies"]) == (VERSION, [f"vmrag-link[mcp]=={VERSION}"])
    assert read("clients", "claude-code", ".claude-plugin", "plugin.json")["version"] == VERSION
    arguments = read("clients", "claude-code", ".mcp.json")["mcpServers"]["vmrag"]["args"]
    assert arguments[-3:] == [f"vmrag-link@{VERSION}", *FIRST_TOOLS]


def test_registry_entry_fits_its_schema_and_the_readme_proves_ownership():
    server = read("server.json")
    require_valid(server, "mcp-server.schema.json")
    assert f"<!-- mcp-name: {server['name']} -->\n" in (ROOT / "README.md").read_text()
    package = server["packages"][0]
    assert package["identifier"] == PROJECT["name"]
    assert PROJECT["scripts"][package["identifier"]] == PROJECT["scripts"]["vmrag-mcp"]  # what `uvx PACKAGE` starts
    named = {argument["name"]: argument.get("value") for argument in package["packageArguments"]}
    assert [FIRST_TOOLS[0], named[FIRST_TOOLS[0]]] == FIRST_TOOLS
    from vmrag_link.cli.mcp import command

    assert named.keys() <= {option for parameter in command.params for option in parameter.opts}


def test_bundle_fits_its_schema_and_contains_its_program(bundle, tmp_path):
    manifest = read("clients", "mcpb", "manifest.json")
    require_valid(manifest, "mcpb-manifest.schema.json")
    path = bundle.bundle(tmp_path)
    with zipfile.ZipFile(path) as made:
        assert set(made.namelist()) >= {"manifest.json", "pyproject.toml", manifest["server"]["entry_point"]}
        assert json.loads(made.read("manifest.json")) == manifest
    again = bundle.bundle(tmp_path / "..")
    assert again.read_bytes() == path.read_bytes()
    again.unlink()
    assert manifest["server"]["mcp_config"]["args"][-2:] == FIRST_TOOLS
    assert manifest["compatibility"]["runtimes"]["python"] == PROJECT["requires-python"]
    assert {path.name for path in BUNDLE.iterdir()} == set(bundle.FILES)


def test_release_names_the_bundle_with_its_checksum(bundle, tmp_path, monkeypatch):
    monkeypatch.setattr(bundle.sys, "argv", ["bundle.py", str(tmp_path / "out")])
    bundle.main()
    server = json.loads((tmp_path / "out" / "server.json").read_text())
    require_valid(server, "mcp-server.schema.json")
    (path,) = (tmp_path / "out").glob("*.mcpb")
    package = server["packages"][-1]
    assert package["fileSha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert package["identifier"].endswith(f"/releases/download/v{VERSION}/{path.name}")
    assert server["packages"][:-1] == read("server.json")["packages"]


def test_plugin_has_server_skill_and_commands_with_existing_tools():
    assert read(".claude-plugin", "marketplace.json")["plugins"][0]["source"] == f"./{PLUGIN.relative_to(ROOT)}"
    (skill,) = PLUGIN.glob("skills/*/SKILL.md")
    head = yaml.safe_load(skill.read_text().split("---")[1])
    assert head["name"] == skill.parent.name
    assert "before you answer" in head["description"]
    texts = [skill, *PLUGIN.glob("commands/*.md")]
    assert len(texts) == 4
    for text in texts:
        assert yaml.safe_load(text.read_text().split("---")[1])["description"]
        named = set(re.findall(r"`(\w+)`", text.read_text())) - {"vmrag", "symbol", "ref", "landed"}
        assert named <= select_tools(ToolChoice("essential")).tools.keys(), text


def test_documented_links_start_the_server():
    """Links for editors: https://cursor.com/docs/context/mcp/install-links (a page, because many
    pages show only web links) and https://code.visualstudio.com/api/extension-guides/ai/mcp.
    """
    page = (ROOT / "CONTRIBUTING.md").read_text()
    options = server_command.format_options(Flags())
    server = {"command": "uvx", "args": ["--with", "vmrag-link[mcp]", PROJECT["name"], *options]}
    text = json.dumps(server, separators=(",", ":"))
    config = quote(base64.b64encode(text.encode()).decode(), safe="")
    assert f"https://cursor.com/en/install-mcp?name=vmrag&config={config}" in page
    named = json.dumps({"name": "vmrag", **server}, separators=(",", ":"))
    assert f"vscode:mcp/install?{quote(named, safe='')}" in page
    assert f"https://insiders.vscode.dev/redirect/mcp/install?name=vmrag&config={quote(text, safe='')}" in page
    assert list(options) == FIRST_TOOLS


def test_every_client_is_documented_with_its_files():
    page = (ROOT / "docs" / "mcp.md").read_text()
    for name, client in CLIENTS.items():
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
        assert client.title in row
        for file in (client.project.names if client.project else ()) + (
            client.personal.names if client.personal else ()
        ):
            shown = file.replace("{config}", "~/.config").replace("{codex}", "~/.codex")
            assert f"`{shown}`" in row, f"{name} reads {shown}"


@pytest.mark.parametrize("name", CLIENTS)
def test_every_client_names_its_documentation(name):
    assert re.match(r"https://\S", CLIENTS[name].source)
    assert CLIENTS[name].project or CLIENTS[name].personal
    assert CLIENTS[name].folders
