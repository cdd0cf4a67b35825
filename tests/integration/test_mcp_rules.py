"""`vmrag mcp install --rules`: the section for agents in AGENTS.md, CLAUDE.md and GEMINI.md."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support import terminal
from vmrag_mcp.clients.rules import BEGIN, BEGIN_NEW, END, TEXT, with_section, without_section

template, project = terminal.template, terminal.project

pytestmark = pytest.mark.hooks("off")

FILES = ("AGENTS.md", "CLAUDE.md", "GEMINI.md", ".claude/CLAUDE.md")


def edit(project, action="install", *options, code=0):
    return project.vmrag("mcp", action, *options, "--rules", code=code)


def written(project):
    return {name: (project.top / name).read_bytes() for name in FILES if os.path.lexists(project.top / name)}


def test_section_has_at_most_eight_lines():
    section = with_section(None).decode()
    assert section == f"{BEGIN_NEW}\n{TEXT}\n{END}\n"
    assert len(section.splitlines()) <= 8


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"# Rules\n",
        b"# Rules\n\n",
        b"# Rules",
        b"# Rules\r\n\r\nUse tabs.\r\n",
        b"# Rules\r\nUse tabs.",
        b"one\r\ntwo\nthree\n",
        b"\xef\xbb\xbf# Rules\n",
        b"caf\xe9\n",
        b"An agent reads `<!-- vmrag: begin -->`.\n",
    ],
)
def test_removal_restores_every_byte(content):
    installed = with_section(content)
    assert installed.startswith(content)
    assert with_section(installed) == installed
    assert installed.count(BEGIN.encode() + b"\r") == (b"\r" in content)
    assert installed.endswith(b"\n") == (content.endswith(b"\n") or not content)
    assert without_section(installed) == content


def test_text_outside_of_the_markers_stays_wherever_the_section_is():
    section = with_section(b"").decode()
    content = f"# Above\n\n{section.replace(TEXT, 'outdated')}Below, without an empty line"
    assert with_section(content.encode()).decode() == f"# Above\n\n{section}Below, without an empty line"
    assert without_section(content.encode()) == b"# Above\nBelow, without an empty line"


def test_install_creates_the_file_once_and_uninstall_deletes_it(project):
    assert "Wrote the section for agents into AGENTS.md." in edit(project).out
    assert written(project) == {"AGENTS.md": with_section(None)}
    modified = (project.top / "AGENTS.md").stat().st_mtime_ns
    assert "AGENTS.md already has the section for agents." in edit(project).out
    assert (project.top / "AGENTS.md").stat().st_mtime_ns == modified
    assert edit(project, "uninstall").out.strip() == "Removed the section for agents from AGENTS.md."
    assert written(project) == {}
    assert edit(project, "uninstall").out.strip() == "No file has the section for agents."


def test_uninstall_keeps_file_with_other_text_and_empty_project_file(project):
    project.write("CLAUDE.md", "")
    edit(project)
    with (project.top / "AGENTS.md").open("a") as file:
        file.write("\nMine.\n")
    edit(project, "uninstall")
    assert written(project) == {"AGENTS.md": b"\nMine.\n", "CLAUDE.md": b""}


@pytest.mark.parametrize(
    ("client", "files"),
    [
        ("claude-code", {"AGENTS.md", "CLAUDE.md"}),
        ("gemini", {"AGENTS.md", "GEMINI.md"}),
        ("codex", {"AGENTS.md"}),
        ("cursor", {"AGENTS.md"}),
    ],
)
def test_install_of_a_client_writes_the_file_that_it_reads(project, client, files):
    report = project.ask("mcp", "install", "--client", client, "--rules")
    assert {file["file"] for file in report["rules"] if file["changed"]} == files == set(written(project))
    assert project.ask("mcp", "install", "--client", client)["rules"] == []
    assert {file["file"] for file in project.ask("mcp", "uninstall", "--client", client)["rules"]} == files
    assert written(project) == {}


@pytest.mark.parametrize("text", ["@AGENTS.md\n", "Read @./AGENTS.md first.\n", "# Mine\n@../AGENTS.md\n"])
def test_file_that_imports_agents_md_stays(project, text):
    project.write("CLAUDE.md", text)
    project.ask("mcp", "install", "--client", "claude-code", "--rules")
    assert written(project)["CLAUDE.md"] == text.encode()


@pytest.mark.parametrize("text", ["See AGENTS.md\n", "`@AGENTS.md`\n", "```\n@AGENTS.md\n```\n", "me@AGENTS.md\n"])
def test_file_that_only_mentions_agents_md_gets_the_section(project, text):
    project.write("CLAUDE.md", text)
    edit(project)
    assert written(project)["CLAUDE.md"] == with_section(text.encode())


def test_claude_file_in_its_folder_is_the_one_that_is_edited(project):
    project.write(".claude/CLAUDE.md", "Mine.\n")
    project.ask("mcp", "install", "--client", "claude-code", "--rules")
    assert set(written(project)) == {"AGENTS.md", ".claude/CLAUDE.md"}


@pytest.mark.parametrize(("link", "target"), [("CLAUDE.md", "AGENTS.md"), ("AGENTS.md", "CLAUDE.md")])
def test_link_between_the_files_is_one_file(project, link, target):
    project.write(target, "Mine.\n")
    (project.top / link).symlink_to(target)
    project.ask("mcp", "install", "--client", "claude-code", "--rules")
    assert (project.top / link).is_symlink()
    assert (project.top / target).read_bytes() == with_section(b"Mine.\n")
    project.ask("mcp", "uninstall", "--client", "claude-code")
    assert (project.top / target).read_bytes() == b"Mine.\n"


@pytest.mark.parametrize("options", [(), ("--client", "claude-code"), ("--client", "codex")])
def test_link_out_of_the_repository_is_refused_and_nothing_is_written(project, tmp_path, options):
    outside = tmp_path / "outside.md"
    outside.write_text("Theirs.\n")
    (project.top / "AGENTS.md").symlink_to(outside)
    error = project.vmrag("mcp", "install", *options, "--rules", "--json", code=2).error
    assert "AGENTS.md: it is a link to" in error["message"]
    assert outside.read_text() == "Theirs.\n"
    assert project.git("status", "--porcelain").strip() == "?? AGENTS.md"


def test_linked_folder_is_refused(project, tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "CLAUDE.md").write_text("Theirs.\n")
    (project.top / ".claude").symlink_to(tmp_path / "theirs")
    edit(project, code=2)
    assert (tmp_path / "theirs" / "CLAUDE.md").read_text() == "Theirs.\n"
    assert not (project.top / "AGENTS.md").exists()


@pytest.mark.parametrize(
    "content",
    [
        BEGIN,
        END,
        f"{END}\n{BEGIN}",
        f"{BEGIN}\n{BEGIN}\n{END}",
        f"{BEGIN}\n{END}\n{BEGIN}\n{END}",
        f"{BEGIN_NEW}\nMine.",
    ],
)
def test_broken_markers_are_an_error_and_nothing_is_written(project, content):
    project.write("CLAUDE.md", f"Mine.\n{content}\n")
    before = written(project)
    for words in (
        ("install", "--client", "claude-code"),
        ("install",),
        ("uninstall",),
        ("uninstall", "--client", "claude-code"),
    ):
        error = project.vmrag("mcp", *words, "--rules", "--json", code=2).error
        assert "CLAUDE.md" in error["message"]
        assert error["hint"]
        assert written(project) == before
        assert not (project.top / ".mcp.json").exists()


def test_binary_and_read_only_files_are_refused(project):
    path = project.write("AGENTS.md", "# Rules\n".encode("utf-16"))
    edit(project, code=2)
    path.write_text("# Rules\n")
    path.chmod(0o444)
    edit(project, code=2)
    assert path.read_text() == "# Rules\n"


def test_section_stays_in_agents_md_while_another_client_has_the_server(project):
    for client in ("claude-code", "cursor"):
        project.ask("mcp", "install", "--client", client, "--rules")
    (Path(os.environ["HOME"]) / ".codex").mkdir()
    project.ask("mcp", "install", "--client", "codex", "--user")
    project.ask("mcp", "uninstall", "--client", "codex", "--user")
    project.ask("mcp", "uninstall", "--client", "claude-code")
    assert set(written(project)) == {"AGENTS.md"}
    project.ask("mcp", "uninstall", "--client", "cursor")
    assert written(project) == {}


def test_all_forms_of_uninstall_remove_the_section(project):
    project.write("CLAUDE.md", "Mine.\n")
    for words in (("mcp", "uninstall", "--all"), ("uninstall", "--all", "--discard-knowledge")):
        edit(project)
        assert TEXT in (project.top / "AGENTS.md").read_text()
        assert "Removed the section for agents from CLAUDE.md." in project.vmrag(*words).out
        assert written(project) == {"CLAUDE.md": b"Mine.\n"}


def test_section_is_printed_and_goes_into_the_top_of_the_repository(project):
    assert edit(project, "install", "--print").out.strip() == TEXT
    assert written(project) == {}
    (project.top / "deep").mkdir()
    assert json.loads(project.vmrag("-C", "deep", "mcp", "install", "--rules", "--json").out) == {
        "rules": [{"file": "AGENTS.md", "changed": True}]
    }


@pytest.mark.parametrize(
    "words", [("install", "--user"), ("install", "--read-only"), ("uninstall", "--print"), ("install", "--replace")]
)
def test_options_of_a_client_are_refused_without_one(project, words):
    edit(project, *words, code=2)
    assert written(project) == {}


def test_directory_outside_of_a_repository_is_refused(project, tmp_path):
    (tmp_path / "plain").mkdir()
    project.vmrag("mcp", "install", "--rules", "--repo", str(tmp_path / "plain"), code=None)
    assert list((tmp_path / "plain").iterdir()) == []
