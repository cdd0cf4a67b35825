"""`vmrag mcp install` and `uninstall` for every known client, in a home of its own."""

from __future__ import annotations

import json
import os
import threading
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.support import terminal
from vmrag_link import hints
from vmrag_mcp.clients import entries, install, settings_file
from vmrag_mcp.clients.settings_file import SettingsFile, TextRefused
from vmrag_mcp.clients.table import CLIENTS

template, project = terminal.template, terminal.project

pytestmark = pytest.mark.hooks("off")

PROJECT = [name for name, client in CLIENTS.items() if client.project]
PERSON = [name for name, client in CLIENTS.items() if client.personal]
NO_FILE_OF_THE_PROJECT = [name for name in PERSON if name not in PROJECT]
FILES = [*((name, False) for name in PROJECT), *((name, True) for name in PERSON)]
SAMPLES = {
    "json": '{\n    "theme" : "x",\n\n    "SECTION": {\n        "other": {"command": "y", "n": [1,2 ]}\n    }\n}',
    "jsonc": '// mine\n{\n\t"theme": "x", // dark\n\t"SECTION": {\n\t\t"other": {"command": "y"}, // theirs\n\t},\n}\n',
    "toml": '# mine\nmodel = "o3" # best\n\n[SECTION.other]\ncommand = "y"\n\n[tui]\nx = 1',
    "yaml": "# mine\nGOOSE_MODEL: x # best\nSECTION:\n  other:\n    enabled: true\n    cmd: y\n\nlast: 'z'\n",
}
LOAD = {"json": json.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}


@pytest.fixture(autouse=True)
def home(project, monkeypatch) -> Path:
    """Every client was started once; none of this machine's programs is seen."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("CODEX_HOME", raising=False)
    for client in CLIENTS.values():
        if client.personal:
            for path in (*client.personal.list_paths(), *client.list_folders()[:1]):
                (path if path in client.list_folders() else path.parent).mkdir(parents=True, exist_ok=True)
    return Path(os.environ["HOME"])


def file_of(project, name: str, personal: bool) -> Path:
    client = CLIENTS[name]
    return client.personal.list_paths()[0] if personal else project.top / client.project.names[0]


def arguments(name: str, personal: bool) -> list[str]:
    return ["--client", name, *(["--user"] if personal else [])]


def read(path: Path, name: str) -> dict:
    return entries.EDITORS[CLIENTS[name].format].read_values(path.read_text())


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and "data" not in path.parts}


# -- each client, each of its files


@pytest.mark.parametrize(("name", "personal"), FILES)
def test_new_file_is_made_and_goes_again_with_its_folder(project, name, personal):
    path = file_of(project, name, personal)
    folder_was_there = path.parent.exists()
    report = project.ask("mcp", "install", *arguments(name, personal))
    client = CLIENTS[name]
    assert (report["changed"], report["shared"], report["file"]) == (
        True,
        not personal,
        str(path) if personal else client.project.names[0],
    )
    load = LOAD.get(client.format, json.loads)  # a new file is plain, for every parser
    assert load(path.read_text()) == {client.section: {report["name"]: report["server"]}}
    before = path.read_bytes(), path.stat().st_mtime_ns
    assert project.ask("mcp", "install", *arguments(name, personal))["changed"] is False
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert project.ask("mcp", "uninstall", *arguments(name, personal))["removed"] is True
    assert not path.exists()
    assert path.parent.exists() == (folder_was_there or path.parent == project.top)
    assert project.ask("mcp", "uninstall", *arguments(name, personal))["removed"] is False


@pytest.mark.parametrize(("name", "personal"), FILES)
def test_user_file_is_restored_to_the_last_byte(project, name, personal):
    client, path = CLIENTS[name], file_of(project, name, personal)
    before = SAMPLES[client.format].replace("SECTION", client.section).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(before)
    path.chmod(0o640)
    report = project.ask("mcp", "install", *arguments(name, personal))
    content = read(path, name)
    assert content[client.section][report["name"]] == report["server"]
    assert content[client.section]["other"]
    assert set(before.splitlines()) - set(path.read_bytes().splitlines()) in (
        set(),
        {before.splitlines()[4]},
    )  # a comma
    assert path.stat().st_mode & 0o777 == 0o640
    project.ask("mcp", "uninstall", *arguments(name, personal))
    assert path.read_bytes() == before
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(("name", "personal"), FILES)
def test_uninstall_keeps_later_edits_of_the_user(project, name, personal):
    client, path = CLIENTS[name], file_of(project, name, personal)
    text = SAMPLES[client.format].replace("SECTION", client.section)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    project.ask("mcp", "install", *arguments(name, personal))
    after = path.read_text()
    assert after.count('"y"' if client.format != "yaml" else "cmd: y") == 1
    path.write_text(after.replace('"y"', '"why"').replace("cmd: y", "cmd: why"))
    project.ask("mcp", "uninstall", *arguments(name, personal))
    assert path.read_text() == text.replace('"y"', '"why"').replace("cmd: y", "cmd: why")


@pytest.mark.parametrize(("name", "personal"), FILES)
def test_uninstall_keeps_entry_that_was_edited_by_hand(project, name, personal):
    path = file_of(project, name, personal)
    project.ask("mcp", "install", *arguments(name, personal), "--read-only")
    before = path.read_text()
    assert "--read-only" in before
    path.write_text(before.replace("--read-only", "--toolsets=dolt"))
    report = project.ask("mcp", "uninstall", *arguments(name, personal))
    assert (report["removed"], report["kept"]) == (False, "changed")
    assert "with your own changes" in project.vmrag("mcp", "uninstall", *arguments(name, personal)).out
    assert path.read_text() == before.replace("--read-only", "--toolsets=dolt")


@pytest.mark.parametrize(("name", "personal"), FILES)
def test_new_options_change_the_entry_which_still_comes_out(project, name, personal):
    path = file_of(project, name, personal)
    project.ask("mcp", "install", *arguments(name, personal))
    first = path.read_bytes()
    report = project.ask("mcp", "install", *arguments(name, personal), "--read-only")
    assert report["changed"]
    assert b"--read-only" in path.read_bytes()
    assert project.ask("mcp", "install", *arguments(name, personal))["changed"] is False  # options stay
    assert path.read_bytes() != first
    assert project.ask("mcp", "uninstall", *arguments(name, personal))["removed"]
    assert not path.exists()


@pytest.mark.parametrize(("name", "personal"), FILES)
@pytest.mark.sample(2)
def test_broken_file_is_kept_and_the_hint_shows_the_entry(project, name, personal):
    path = file_of(project, name, personal)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{ broken = [\n")
    for command in ("install", "uninstall"):
        error = project.vmrag("mcp", command, *arguments(name, personal), "--json", code=2).error
        assert "vmrag" in error["hint"]
    assert path.read_text() == "{ broken = [\n"


# -- which repository a person's file names


@pytest.mark.parametrize("name", PERSON)
def test_user_file_names_program_path_and_repository(project, name):
    report = project.ask("mcp", "install", "--client", name, "--user")
    text = json.dumps(report["server"])
    program = report["server"].get("cmd") or report["server"]["command"]
    assert Path(program[0] if isinstance(program, list) else program).is_absolute()
    finds = CLIENTS[name].personal.finds
    assert (str(project.top) in text) is not finds
    assert report["name"] == ("vmrag" if finds else f"vmrag-{project.top.name}")


def test_second_repository_gets_an_entry_of_its_own(project, tmp_path):
    project.ask("mcp", "install", "--client", "windsurf")
    other = terminal.new_project(tmp_path / "Other Work")
    assert other.ask("mcp", "install", "--client", "windsurf")["name"] == "vmrag-other-work"
    namesake = terminal.new_project(tmp_path / "again" / "Other Work")
    report = namesake.ask("mcp", "install", "--client", "windsurf")
    assert (report["kept"], report["changed"]) == (True, False)
    assert namesake.ask("mcp", "uninstall", "--client", "windsurf")["kept"] == "foreign"
    assert other.ask("mcp", "uninstall", "--client", "windsurf")["removed"]
    assert list(read(file_of(project, "windsurf", True), "windsurf")["mcpServers"]) == ["vmrag-project"]


# -- links, read-only files, other programs


def test_user_file_that_is_a_link_is_changed_at_its_target(project, home):
    path, real = file_of(project, "kiro", True), home / "dotfiles" / "kiro.json"
    real.parent.mkdir()
    real.write_text("{}\n")
    path.symlink_to(real)
    project.ask("mcp", "install", "--client", "kiro")
    assert path.is_symlink()
    assert "vmrag-project" in real.read_text()
    project.ask("mcp", "uninstall", "--client", "kiro")
    assert (path.is_symlink(), real.read_text()) == (True, "{}\n")


@pytest.mark.parametrize("folder", [".codex", ".gemini", ".zed"])
def test_project_folders_are_not_followed_outside(project, tmp_path, folder):
    name = {".codex": "codex", ".gemini": "gemini", ".zed": "zed"}[folder]
    (tmp_path / "elsewhere").mkdir()
    (project.top / folder).symlink_to(tmp_path / "elsewhere")
    error = project.vmrag("mcp", "install", "--client", name, "--json", code=2).error
    assert f"{folder} is a link" in error["message"]
    assert not any((tmp_path / "elsewhere").iterdir())


def test_read_only_file_stays(project):
    path = file_of(project, "kiro", True)
    path.write_text("{}")
    path.chmod(0o444)
    assert "read-only" in project.vmrag("mcp", "install", "--client", "kiro", "--json", code=2).error["message"]
    assert path.read_text() == "{}"


def test_oversized_file_is_not_truncated(project, monkeypatch):
    path = file_of(project, "codex", True)
    path.write_text("a = 1\n" * 100)
    monkeypatch.setattr(settings_file, "MAX_FILE_BYTES", 60)
    project.vmrag("mcp", "install", "--client", "codex", "--user", code=2)
    assert path.read_text() == "a = 1\n" * 100


def test_settings_file_rejects_writes_after_concurrent_change(tmp_path):
    file = SettingsFile(tmp_path / "a.json", "a.json", None)
    file.path.write_text("{}")
    before = file.read_content()
    file.path.write_text('{"theirs": 1}')
    with pytest.raises(TextRefused):
        file.replace_content(before, b'{"ours": 1}')
    with pytest.raises(TextRefused):
        file.delete_file(before, ())
    assert file.path.read_text() == '{"theirs": 1}'


def test_installations_at_the_same_time_all_arrive(project, tmp_path):
    others = [terminal.new_project(tmp_path / f"p{number}") for number in range(5)]
    from vmrag_mcp.clients.install import install_server
    from vmrag_mcp.options import Flags

    threads = [threading.Thread(target=install_server, args=(other.top, "kiro", Flags())) for other in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    content = read(file_of(project, "kiro", True), "kiro")["mcpServers"]
    assert sorted(content) == [f"vmrag-p{number}" for number in range(5)]


# -- clients that are not there


@pytest.mark.parametrize("name", PERSON)
def test_client_that_was_never_started_gets_no_file_of_the_persons(project, name, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "empty" / "xdg"))
    (tmp_path / "empty").mkdir()
    error = project.vmrag("mcp", "install", "--client", name, "--user", "--json", code=2).error
    assert f"--client {name} --print" in error["hint"]
    assert not any((tmp_path / "empty").iterdir())


def test_claude_code_user_state_is_unchanged_and_hint_is_its_command(project, home):
    error = project.vmrag("mcp", "install", "--client", "claude-code", "--user", "--json", code=2).error
    [command] = hints.list_commands(error["hint"])
    assert command.startswith("claude mcp add --scope user")
    assert command.endswith("--default-toolsets essential")
    assert not (home / ".claude.json").exists()


def test_all_selects_the_installed_clients(project, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "other"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "other" / ".config"))
    (tmp_path / "other").mkdir()
    error = project.vmrag("mcp", "install", "--all", "--json", code=2).error
    assert "claude-code, claude-desktop" in error["hint"]
    (tmp_path / "other" / ".cursor").mkdir()
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "goose").write_text("#!/bin/sh\n")
    (programs / "goose").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    report = project.ask("mcp", "install", "--all")
    assert [(client["client"], client["shared"]) for client in report["clients"]] == [
        ("cursor", True),
        ("goose", False),
    ]
    report = project.ask("mcp", "install", "--all", "--user")
    assert [(client["client"], client["changed"]) for client in report["clients"]] == [
        ("cursor", True),
        ("goose", False),
    ]


def test_install_all_and_uninstall_restore_files_despite_a_broken_one(project, home):
    broken = file_of(project, "zed", False)
    broken.parent.mkdir()
    broken.write_text("{")
    for name in ("cursor", "opencode"):
        path = file_of(project, name, True)
        path.write_text(SAMPLES["jsonc"].replace("SECTION", CLIENTS[name].section))
    before = snapshot(home), snapshot(project.top)
    first = project.ask("mcp", "install", "--all", code=1)
    assert [client["client"] for client in first["refused"]] == ["zed"]
    assert len(first["clients"]) == len(CLIENTS) - 1 - (not install.is_installed(CLIENTS["claude-code"]))
    assert "zed" in project.vmrag("mcp", "install", "--all", "--user", code=0).out
    assert (snapshot(home), snapshot(project.top)) != before
    project.ask("mcp", "uninstall", "--all", code=1)
    assert (snapshot(home), snapshot(project.top)) == before


DEEP = {
    "codex": ["a = " + "[" * 5000, "a = " + "[" * 300 + "]" * 300, ".".join("a" * 5000) + " = 1", "x = " + "9" * 5000],
    "zed": ["[" * 5000, '{"a":' * 300 + "1" + "}" * 300, '{"context_servers": {"vmrag": {"command": "\\ud800"}}}'],
    "goose": ["[" * 5000, "a: \x00\n", 'a: "\\U00110000"\n'],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in DEEP.items() for text in texts])
@pytest.mark.sample(3)
def test_install_and_uninstall_of_all_refuse_one_deep_file_and_continue(project, name, text):
    path = file_of(project, name, personal=name == "goose")
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    installed = project.ask("mcp", "install", "--all", code=1)
    assert [client["client"] for client in installed["refused"]] == [name]
    assert "cursor" in [client["client"] for client in installed["clients"]]
    removed = project.ask("mcp", "uninstall", "--all", code=1)
    assert [client["client"] for client in removed["refused"]] == [name]
    assert len(removed["clients"]) == len(installed["clients"])
    assert path.read_text() == text


def test_uninstall_removes_entry_without_a_receipt(project, home):
    project.ask("mcp", "install", "--client", "cursor")
    for path in (home / "data" / "vmrag" / "clients").glob("*.json"):
        path.unlink()
    assert project.ask("mcp", "uninstall", "--client", "cursor")["removed"]
    assert json.loads(file_of(project, "cursor", False).read_text()) == {"mcpServers": {}}


def test_uninstall_all_removes_project_servers_and_keeps_the_user_server(project):
    project.ask("mcp", "install", "--client", "claude-code")
    project.ask("mcp", "install", "--client", "kiro")
    project.ask("mcp", "install", "--client", "cursor", "--user")
    report = project.ask("uninstall", "--all", "--discard-knowledge")
    assert [(client["client"], client["removed"]) for client in report["clients"]["clients"]] == [
        ("claude-code", True),
        ("kiro", True),
    ]
    assert file_of(project, "cursor", True).exists()


def test_file_with_the_other_name_is_the_one_that_is_taken(project):
    project.write("opencode.jsonc", "// mine\n{}\n")
    assert project.ask("mcp", "install", "--client", "opencode")["file"] == "opencode.jsonc"
    assert not (project.top / "opencode.json").exists()


@pytest.mark.parametrize("name", CLIENTS)
def test_install_prints_the_text_that_it_writes(project, name):
    printed = project.vmrag("mcp", "install", "--client", name, "--print").out
    report = project.ask("mcp", "install", "--client", name) if name != "claude-desktop" else None
    if report:
        path = file_of(project, name, name in NO_FILE_OF_THE_PROJECT)
        assert printed.strip() == path.read_text().strip()


@pytest.mark.parametrize(
    "words",
    [
        ("install",),
        ("uninstall",),
        ("install", "--client", "zed", "--all"),
        ("install", "--all", "--print"),
        ("uninstall", "--client", "zed", "--read-only"),
        ("uninstall", "--client", "zed", "--print"),
        ("--user",),
    ],
)
def test_words_that_do_not_go_together_are_refused(project, words):
    project.vmrag("mcp", *words, code=2)


# -- names and messages


@pytest.mark.parametrize(
    ("alias", "name"),
    [("claude", "claude-code"), ("Claude Code", "claude-code"), ("code", "vscode"), ("gemini-cli", "gemini")],
)
def test_install_and_uninstall_accept_short_names_of_clients(project, alias, name):
    assert project.ask("mcp", "install", "--client", alias)["client"] == name
    assert file_of(project, name, personal=False).exists()
    project.vmrag("mcp", "uninstall", "--client", alias)
    assert not file_of(project, name, personal=False).exists()


@pytest.mark.parametrize("name", CLIENTS)
def test_install_accepts_the_name_of_a_clients_program(project, name):
    for program in CLIENTS[name].programs:
        assert project.vmrag("mcp", "install", "--client", program, "--print").code == 0


def test_install_suggests_no_commit_of_an_ignored_file(project):
    project.write(".gitignore", ".mcp.json\n")
    shown = project.vmrag("mcp", "install", "--client", "claude").out
    assert shown.startswith("Wrote .mcp.json. Only this computer has it, because git ignores the file. ")
    assert "Commit it" not in shown
    assert project.ask("mcp", "install", "--client", "claude")["ignored"] is True
    project.git("add", "-f", ".mcp.json")
    assert project.ask("mcp", "install", "--client", "claude")["ignored"] is False
