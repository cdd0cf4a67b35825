"""Ten calls by the program of each client: what its model sees of our answers.

The model is a fake on loopback that makes the calls of a script. `tests/data/client-views` has the
head and the tail of what it got. `VMRAG_RECORD=1` writes these files.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support import client_programs, npm, terminal
from tests.support.scripted_model import FINISHED, Call, ScriptedModel, listening
from tests.support.terminal import Project

template, programs = terminal.template, client_programs.programs

pytestmark = [pytest.mark.long, pytest.mark.hooks("off")]

RECORD = "VMRAG_RECORD" in os.environ
VIEWS = Path(__file__).parents[1] / "data" / "client-views"
NOTE = "A request is retried three times, because the gateway drops one in a hundred."
CODE = """\
class Client:
    \"\"\"A connection to the gateway.\"\"\"

    def send(self, request):
        \"\"\"Send a request, and retry it if the gateway drops it.\"\"\"
        for attempt in range(3):
            if self.deliver(request):
                return attempt
        raise ConnectionError("the gateway dropped the request three times")
"""
SCRIPT: Sequence[Call] = (
    ("status", {}),
    ("search", {"query": "why is a request sent three times", "max_tokens": 300}),
    ("search", {"symbol": "Client.send"}),
    ("read", {"name": "docs/manual.md"}),
    ("read", {"symbol": "Client.send"}),
    ("grep", {"pattern": "gateway dropped", "fixed": True}),
    ("history", {"name": "src/client.py"}),
    ("read", {"name": "docs/manuel.md"}),
    ("remember", {"name": "notes/retries", "text": NOTE}),
    ("forget", {"name": "notes/retries"}),
)
ENDS = 3
"""Lines of a result that are recorded at each end."""


@pytest.fixture
def project(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    terminal.isolate(monkeypatch, tmp_path / "home")
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)  # Codex passes none of them to a server
    project = terminal.new_project(tmp_path / "project", settings="")
    (project.top / ".vmrag.yaml").unlink()
    project.write("docs/manual.md", "# Manual\n" + "".join(map(_section, range(1, 400))))
    project.write("src/client.py", CODE)
    project.git("add", "docs", "src")
    project.git("commit", "-q", "-m", "Retry what the gateway drops")
    project.vmrag("init", "-q")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "Set up vmrag")
    return project


def _section(number: int) -> str:
    return f"\n## Setting {number}\n\nThe setting number {number} limits how long the client waits for the gateway.\n"


def use_codex(project: Project, model: ScriptedModel) -> tuple[list[str], dict[str, str]]:
    provider = f'{{name="fake", base_url="{model.url}/v1", wire_api="responses"}}'
    settings = ['model="gpt-5.5"', 'model_provider="fake"', f"model_providers.fake={provider}"]
    settings += ["mcp_servers.vmrag.required=true", 'mcp_servers.vmrag.default_tools_approval_mode="approve"']
    return ["exec", *(part for setting in settings for part in ("-c", setting)), "go"], {}


def use_gemini(project: Project, model: ScriptedModel) -> tuple[list[str], dict[str, str]]:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"disableAutoUpdate": True},
    }
    _write_home(".gemini/settings.json", settings)
    return ["-y", "-m", "gemini-2.5-flash", "-p", "go"], {"GOOGLE_GEMINI_BASE_URL": model.url, "GEMINI_API_KEY": "fake"}


def use_opencode(project: Project, model: ScriptedModel) -> tuple[list[str], dict[str, str]]:
    options = {"baseURL": f"{model.url}/v1", "apiKey": "fake"}
    models = {"fake": {"name": "fake", "tool_call": True}}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "fake", "options": options, "models": models}
    settings = {"autoupdate": False, "share": "disabled", "provider": {"fake": provider}}
    _write_home(".config/opencode/opencode.json", settings)
    return ["run", "--model", "fake/fake", "go"], {"OPENCODE_DISABLE_MODELS_FETCH": "1"}


def use_goose(project: Project, model: ScriptedModel) -> tuple[list[str], dict[str, str]]:
    options = {"GOOSE_PROVIDER": "openai", "GOOSE_MODEL": "fake", "OPENAI_HOST": model.url, "GOOSE_MODE": "auto"}
    environ = {**options, "OPENAI_API_KEY": "fake", "GOOSE_DISABLE_KEYRING": "1", "GOOSE_TELEMETRY_ENABLED": "false"}
    return ["run", "--no-session", "-t", "go"], environ


def use_qwen(project: Project, model: ScriptedModel) -> tuple[list[str], dict[str, str]]:
    settings = json.loads(project.vmrag("mcp", "install", "--print").out)
    settings |= {"security": {"auth": {"selectedType": "openai"}}, "privacy": {"usageStatisticsEnabled": False}}
    _write_home(".qwen/settings.json", settings)
    environ = {"OPENAI_BASE_URL": f"{model.url}/v1", "OPENAI_API_KEY": "fake", "OPENAI_MODEL": "fake"}
    return ["-y", "-p", "go"], environ


CLIENTS: dict[str, Callable[[Project, ScriptedModel], tuple[list[str], dict[str, str]]]] = {
    "codex": use_codex,
    "gemini": use_gemini,
    "opencode": use_opencode,
    "goose": use_goose,
    "qwen": use_qwen,
}


def _write_home(name: str, settings: dict[str, object]) -> None:
    path = Path(os.environ["HOME"]) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings))


@pytest.mark.parametrize("name", CLIENTS)
def test_model_of_a_client_sees_the_recorded_answers(project: Project, programs, name):
    if name not in programs:
        pytest.skip(f"no program of {name} for this machine")
    for folder in (".codex", ".gemini", ".config/opencode", ".config/goose"):
        (Path(os.environ["HOME"]) / folder).mkdir(parents=True, exist_ok=True)
    with listening(ScriptedModel(SCRIPT)) as model:
        arguments, environ = CLIENTS[name](project, model)
        if name != "qwen":
            project.vmrag("mcp", "install", "--client", name, *(["--user"] if name == "codex" else []))
        environ |= {
            "PWD": str(project.top),
            "PATH": f"{npm.node().parent}:{terminal.SCRIPT.parent}:{os.environ['PATH']}",
        }
        environ |= {"GEMINI_CLI_TRUST_WORKSPACE": "true"}
        result = subprocess.run(
            [*programs[name], *arguments],
            cwd=project.top,
            env=os.environ | environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
    assert result.returncode == 0, result
    assert FINISHED in result.stdout
    views = [_describe(call, text, project) for call, text in zip(SCRIPT, model.seen, strict=True)]
    view = "\n".join([f"=== {model.listed} tools are described in the request", "", *views])
    path = VIEWS / f"{name}.txt"
    if RECORD:
        path.parent.mkdir(exist_ok=True)
        path.write_text(view)
    assert view == path.read_text()


def _describe(call: Call, text: str, project: Project) -> str:
    """Return the head and the tail of a result. Ids, dates, times and folders are replaced."""
    text = text.replace(str(project.top), "PROJECT").replace(str(project.top.parent), "FOLDER")
    text = text.replace(f"{terminal.SCRIPT.parent}/", "")
    text = re.sub(r"\b(?=[0-9a-f]*\d)[0-9a-f]{7,64}\b", "ID", text)
    text = re.sub(r"\d{4}-\d\d-\d\d(T[\d:.]+Z?)?", "DATE", text)
    text = re.sub(r"\d+\.\d+ seconds", "N seconds", text)
    lines = text.splitlines()
    shown = lines if len(lines) <= 2 * ENDS else [*lines[:ENDS], "…", *lines[-ENDS:]]
    shown = [line if len(line) <= 200 else f"{line[:100]} … {line[-100:]}" for line in shown]
    title = f"=== {call[0]} {json.dumps(call[1], ensure_ascii=False)}: {len(lines)} lines, {len(text)} characters"
    return "\n".join([title, *shown, ""])
