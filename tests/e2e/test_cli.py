"""The command as it is installed: started as a process, in shells, and beside other programs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.chroma import needs_chroma
from tests.support.terminal import SCRIPT, Project
from vmrag_link import __version__, extras
from vmrag_link.cli import commands
from vmrag_link.cli.commands import COMMANDS, EVERYDAY, TOPICS

template, project = terminal.template, terminal.project


def test_version_and_help(project):
    said = project.start("--version").out.splitlines()
    assert said == [f"vmrag, version {__version__}", f"extras: {', '.join(extras.list_installed_extras())}"]
    shown = project.start("--help")
    assert shown.code == 0
    assert [name for name in COMMANDS if f"  {name} " in shown.out] == [name for name in COMMANDS if name in EVERYDAY]
    assert len(EVERYDAY) <= 25
    assert project.start("-h").out == shown.out
    assert [line[:-1] for line in shown.out.splitlines() if re.fullmatch(r"\w.*:", line)] == ["Options", *[*TOPICS][:5]]


def test_help_all_lists_every_command(project):
    listed = project.start("help", "--all").out
    assert [name for name in commands.list_names() if f"  {name} " not in listed] == []
    assert [topic for topic in TOPICS if f"{topic}:" not in listed.splitlines()] == []
    assert project.vmrag("help", "--all", "query", "--json", code=2).error["code"] == "INVALID_PARAMETER"


def test_help_explains_a_command_as_its_own_option_does(project):
    assert project.vmrag("help").out == project.vmrag("--help").out
    for words in (["query"], ["issue", "add"]):
        assert project.vmrag("help", *words).out == project.vmrag(*words, "--help").out
    assert "'status'" in project.vmrag("help", "staus", code=2).err
    assert project.vmrag("help", "query", "add", "--json", code=2).error["code"] == "INVALID_PARAMETER"


@pytest.mark.parametrize("name", sorted(COMMANDS))
@pytest.mark.sample(12)
def test_every_command_explains_itself_and_takes_the_common_options(project, name):
    shown = project.vmrag(name, "--help").out
    assert shown.splitlines()[-1].split(": ")[1] == "-C, -q, -v, --json, -h"
    assert len(shown.splitlines()) <= 40
    assert len(shown.splitlines()[2].strip()) <= 60


def test_mistyped_command_names_the_one_that_was_meant(project):
    result = project.start("staus")
    assert (result.code, result.out) == (2, "")
    assert "Did you mean 'status'?" in result.err


def test_whole_loop_in_processes_of_their_own(project, tmp_path):
    home = Project(tmp_path / "mine")
    home.top.mkdir()
    home.git("init", "-q")
    home.write(".vmrag.yaml", "embedding:\n  model: hash\n")
    home.write("docs/setup.md", "# Setup\n\nInstall the program.\n")
    for arguments in (
        ["init", "--knowledge-base", "--no-sources"],
        ["import", "docs", "--collection", "handbook", "--copy", "--base", "docs"],
        ["commit", "-m", "first"],
        ["status"],
    ):
        result = home.start(*arguments)
        assert (result.code, result.err) == (0, ""), result
    home.git("commit", "-q", "-m", "first")
    home.git("switch", "-q", "-c", "other")
    assert home.start("add", "-", "--collection", "handbook", "--id", "new", stdin="Grüße 🌍").code == 0
    answer = json.loads(home.start("query", "Grüße", "--json").out)
    assert answer["results"][0]["text"] == "Grüße 🌍"
    assert home.start("show", "handbook/new").out == "Grüße 🌍\n"
    assert home.start("commit", "-m", "second").code == 0
    assert home.start("status", "-q").out == ""


def test_output_is_plain_without_a_terminal_and_errors_go_to_stderr(project):
    for arguments in (["status"], ["list"], ["query", "rest"], ["log"], ["diff", "main", "feature"]):
        result = project.start(*arguments)
        assert "\x1b" not in result.out
        assert result.err == ""
    failed = project.start("show", "handbook/setpu.md")
    assert (failed.code, failed.out) == (3, "")
    assert failed.err.splitlines() == [
        "error: no document 'setpu.md' in collection 'handbook'. Did you mean 'setup.md'?",
        "hint: use one of the closest names: setup.md, rest.md, or run 'vmrag list --collection handbook' to list the names",
    ]


def test_exit_codes(project, tmp_path):
    assert project.start("status").code == 0
    assert project.start("commit", "-m", "nothing").code == 1
    assert project.start("query").code == 2
    assert project.start("query", "x", "--collection", "none").code == 3
    project.git("reset", "-q", "--hard", "feature")
    assert project.start("status").code == 1
    assert project.start("query", "x").code == 0
    assert Project(tmp_path).start("status").code == 2


def test_log_accepts_a_closed_pipe(project):
    result = subprocess.run(
        f"'{SCRIPT}' log | head -n 1; echo ${{PIPESTATUS[0]}}",
        shell=True,
        executable=shutil.which("bash"),
        cwd=project.top,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stderr == ""
    assert result.stdout.splitlines()[-1] == "0"


def test_bug_leaves_a_log_and_a_way_to_report_it(project):
    program = (
        "import sys; from vmrag_link.ops import listing; from vmrag_link.cli.main import main\n"
        "listing.list_documents = lambda *_: 1 / 0\nmain(sys.argv[1:])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, "list"], cwd=project.top, capture_output=True, text=True, check=False
    )
    assert result.returncode == 4
    assert result.stderr.startswith("bug: ZeroDivisionError")
    assert "Traceback" not in result.stderr
    log = result.stderr.rsplit(": ", 1)[1].strip()
    assert "ZeroDivisionError" in Path(log).read_text()


def test_directory_option_before_and_behind_the_command(project, tmp_path):
    elsewhere = Project(tmp_path)
    expected = project.start("list").out
    assert elsewhere.start("-C", "project", "list").out == expected
    assert elsewhere.start("list", "-C", "project").out == expected
    assert elsewhere.start("-C", "project", "list", "-C", "docs").out == expected


# -- completion ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_printed(project, shell):
    result = project.start("completion", shell)
    assert result.code == 0
    assert "_VMRAG_COMPLETE" in result.out
    if shutil.which(shell):
        checked = subprocess.run([shell, "-n"], input=result.out, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stderr


def test_bash_completes_commands_options_references_and_documents(project):
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")

    project.put("$(touch stolen)", "A name that runs.")
    project.put("two words", "A name that is two.")
    project.git("branch", "rel/1.0")
    project.git("branch", "rel$(touch${IFS}stolen)")

    script = project.start("completion", "bash").out  # what people write as: eval "$(vmrag completion bash)"
    environ = os.environ | {"PATH": f"{SCRIPT.parent}:{os.environ['PATH']}", "SCRIPT": script}

    def completed(*words: str) -> set[str]:
        quoted = " ".join(f"'{word}'" for word in words)
        program = (
            f'eval "$SCRIPT"; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; '
            '_vmrag_completion vmrag; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        result = subprocess.run(
            [bash, "-c", program], env=environ, cwd=project.top, capture_output=True, text=True, check=True
        )
        return set(result.stdout.split())

    assert completed("vmrag", "qu") == {"query"}
    assert completed("vmrag", "i") == {"import", "init", "install", "issue"}
    assert completed("vmrag", "issue", "s") == {"search", "show"}
    assert {"--mode", "--where", "--at"} <= completed("vmrag", "query", "--")
    assert completed("vmrag", "query", "x", "--mode", "") == {"hybrid", "vector", "keyword"}
    assert completed("vmrag", "help", "qu") == {"query"}
    assert completed("vmrag", "query", "x", "--at", "") == {"main", "feature", "first", "rel/1.0"}
    assert completed("vmrag", "list", "--collection", "") == {"handbook"}
    documents = {"handbook/deep/tls.txt", "handbook/faq.md", "handbook/rest.md", "handbook/setup.md"}
    assert completed("vmrag", "show", "hand") == completed("vmrag", "rm", "") == documents
    assert completed("vmrag", "show", "") >= documents | {"first"}
    assert completed("vmrag", "log", "v1...f") == {"v1...feature", "v1...first"}
    assert completed("vmrag", "diff", "main..rel") == {"main..rel/1.0"}
    assert completed("vmrag", "show", "handbook/s") == {"handbook/setup.md"}
    assert completed("vmrag", "rm", "--collection", "handbook", "re") == {"rest.md"}
    assert completed("vmrag", "show", "-C", "/", "") == set()  # empty HOME, and no output
    assert not (project.top / "stolen").exists()


# -- other programs --------------------------------------------------------------------------------


@needs_chroma
def test_any_chroma_client_opens_the_printed_path(project):
    lines = dict(
        line.split(maxsplit=1)
        for line in project.start("path", "chroma", env={"VMRAG_INDEX_CHROMA": "follow"}).out.splitlines()
    )
    program = (
        "import chromadb, json, sys\n"
        "path, tenant, database = sys.argv[1:]\n"
        "settings = chromadb.Settings(anonymized_telemetry=False)\n"
        "client = chromadb.PersistentClient(path, settings=settings, tenant=tenant, database=database)\n"
        "collection = client.get_collection('handbook', embedding_function=None)\n"
        "found = collection.get(where_document={'$contains': 'frequent'}, include=['documents', 'metadatas'])\n"
        "print(json.dumps([[each.name for each in client.list_collections()], collection.count(), found], default=str))"
    )
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, lines["path"], lines["tenant"], lines["database"]],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    names, count, content = json.loads(result.stdout)
    assert (names, count) == (["handbook"], 4)
    assert content["documents"] == ["A frequent question."]
    assert content["ids"] == ["faq.md_chunk_0"]
    assert content["metadatas"][0]["source_id"] == "faq.md"
    assert project.status()["state"] == "in_sync"
    assert project.consistent()


def test_path_prints_connection_data_for_other_programs(project):
    report = project.ask("path")
    assert report["kb"] == str(project.shared / "kb")
    assert report["index"].startswith(str(project.shared / "views"))
    assert project.vmrag("path", "kb").out.strip() == report["kb"]
    assert project.vmrag("path", "index").out.strip() == report["index"]
    project.put("draft.md", "A draft.")
    assert project.ask("path")["index"].startswith(str(project.shared / "uncommitted"))
