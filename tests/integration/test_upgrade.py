"""Repositories that version 0.1.0 set up: each command works, and each removed form names its
replacement. `tests/data/setup-0.1.sh` makes them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import formerly
from tests.support.formerly import Formerly
from tests.support.repos import ON, isolate
from tests.support.templates import build_once, copy_tree
from tests.support.terminal import Project, new_project
from vmrag_link import hints
from vmrag_link.cli import commands
from vmrag_link.formats import SOURCES_VERSION
from vmrag_link.settings.keys import REMOVED

pytestmark = pytest.mark.hooks("off")

REMOVED_SETTING = "import.on_stale was removed; run 'vmrag sources dedupe' to remove stored copies of tracked files"
DEDUPE = "vmrag sources dedupe"
NOTES = 'sources:\n  - collection: notes\n    paths: [".vmrag/notes/"]\n    write: true\n'
ADD_SOURCE = "vmrag sources add docs --collection handbook"


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_once(tmp_path_factory, "setup-0.1", lambda folder: formerly.unpack_setup(folder / "world"))


@pytest.fixture
def world(unpacked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Formerly:
    isolate(monkeypatch, tmp_path / "home")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return Formerly(copy_tree(unpacked / "world", tmp_path / "world"))


# -- commands, in a clone with imported files, a moved file, an uncommitted document and old hooks

WORKING = {
    "add": (["add", "-", "--collection", "web", "--id", "new"], 0, "1 document added"),
    "adopt": (["adopt", "origin", "topic"], 2, "no git remote except 'origin'"),
    "ask": (["ask", "when do requests time out"], 0, "thirty seconds"),
    "blame": (["blame", "handbook/rest.md"], 0, "sleep well"),
    "branch": (["branch"], 0, "topic"),
    "check": (["check"], 0, "1 query answered as expected"),
    "clone": (["clone"], 2, "hint: run 'vmrag fetch' to fetch the revision"),
    "commit": (["commit", "-m", "Owls"], 0, "1 document added"),
    "completion": (["completion", "bash"], 0, "_vmrag_completion"),
    "demo": (["demo", "--help"], 0, "Usage: vmrag demo"),
    "diff": (["diff", "main..topic"], 0, "M  handbook/rest.md"),
    "doc": (["doc", "--help"], 0, "Usage: vmrag doc"),
    "doctor": (["doctor"], 1, DEDUPE),
    "edit": (["edit", "handbook/rest.md"], 0, "handbook/rest.md"),
    "export": (["export", "../out"], 0, "6 files written"),
    "fetch": (["fetch"], 0, "Nothing new at origin."),
    "fingerprint": (["fingerprint"], 0, ""),
    "gc": (["gc"], 0, "run 'vmrag gc --apply' to remove them"),
    "grep": (["grep", "kettles"], 0, "web/kettles:1"),
    "help": (["help", "import"], 0, "--copy"),
    "import": (["import", "../shelf", "--collection", "web", "--base", "../shelf"], 0, "1 document added"),
    "init": (["init"], 0, "Added the source docs: 4 files"),
    "install": (["install"], 0, "Installed in"),
    "issue": (["issue", "--help"], 0, "Usage: vmrag issue"),
    "learning": (["learning", "--help"], 0, "Usage: vmrag learning"),
    "link": (["link"], 0, "Linked"),
    "links": (["links"], 0, "pin  topic"),
    "list": (["list"], 0, "handbook/tls.md"),
    "log": (["log"], 0, "The handbook"),
    "mcp": (["mcp", "install", "--client", "vscode"], 0, "vscode"),
    "merge": (["merge", "topic"], 1, "hint: run 'vmrag commit' to commit the documents"),
    "migrate": (["migrate", "--to", "doltlite"], None, "doltlite"),
    "move": (["move", "web", "--to", "files"], 0, ".vmrag/web"),
    "path": (["path"], 0, "kb"),
    "pin": (["pin"], 0, "is already pinned"),
    "pull": (["pull"], 1, "hint: run 'vmrag commit' to commit the documents"),
    "push": (["push"], 0, "origin has everything already"),
    "query": (["query", "kettles"], 0, "web/kettles"),
    "refresh": (["refresh", "web"], None, ""),
    "remote": (["remote"], 0, "origin"),
    "report": (["report", "v1"], 2, "delete the setting"),
    "resolve": (["resolve"], 1, "no merge is open."),
    "restore": (["restore", "--yes"], 0, "1 document removed"),
    "rm": (["rm", "handbook/rest.md"], 0, "1 document removed"),
    "show": (["show", "handbook/rest.md"], 0, "Take a rest"),
    "sources": (["sources"], 0, "run 'vmrag init' to write these lines"),
    "status": (["status"], None, DEDUPE),
    "sync": (["sync"], 0, "The knowledge base is"),
    "trust": (["trust", "--yes"], 0, ""),
    "uninstall": (["uninstall"], 0, "Removed from"),
    "verify": (["verify"], 2, "delete the setting"),
}
"""Name → arguments, exit code and a part of what is printed."""


def test_each_command_is_tried() -> None:
    assert WORKING.keys() == set(commands.list_names())


@pytest.mark.parametrize("name", WORKING)
def test_command_works_in_a_repository_of_version_0_1(name: str, world: Formerly) -> None:
    (world.top / "shelf").mkdir()
    (world.top / "shelf" / "page.md").write_text("# Page\n\nA page outside of the repository.\n")
    arguments, code, expected = WORKING[name]
    result = world.ada.vmrag(*arguments, code=code, stdin="# New\n")
    assert expected in result.out + result.err, result


# -- what was removed, or changed


@pytest.mark.parametrize(
    ("arguments", "replacement"),
    [
        (["import"], "'vmrag sources add PATH'"),
        (["import", "--prune"], "'vmrag sources add PATH'"),
        (["import", "docs", "--collection", "handbook", "--base", "docs"], ADD_SOURCE),
        (["import", "docs/rest.md", "--collection", "handbook"], "vmrag sources add docs/rest.md"),
        (["add", "docs/rest.md", "--collection", "handbook"], "vmrag sources add docs/rest.md"),
        (["commit", "-a", "-m", "all"], "vmrag commit -m all"),
        (["commit", "-am", "all"], "vmrag commit -m all"),
        (["sources", "adopt"], DEDUPE),
        (["verify"], "delete the setting .vmrag.yaml, line 6"),
        (["report", "v1"], "delete the setting .vmrag.yaml, line 6"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_removed_form_fails_and_names_its_replacement(arguments: list[str], replacement: str, world: Formerly) -> None:
    before = world.ada.ask("list")["documents"]
    assert replacement in world.ada.vmrag(*arguments, code=2).err.split("hint: ")[1]
    assert world.ada.ask("list")["documents"] == before


def test_init_accepts_its_old_option(world: Formerly) -> None:
    assert "Added the source docs: 4 files" in world.ada.vmrag("init", "--sources").out


def test_removed_setting_is_named_by_each_command_that_reads_settings(world: Formerly) -> None:
    for arguments in (["list"], ["query", "rest"], ["sync"], ["sources"], ["log"]):
        assert REMOVED_SETTING in world.ada.vmrag(*arguments).err
    settings = (world.ada.top / ".vmrag.yaml").read_text()
    world.ada.write(".vmrag.yaml", settings.replace("import:\n  on_stale: fail\n", ""))
    assert REMOVED_SETTING not in world.ada.vmrag("list").err
    assert "nothing is lost" in world.ada.vmrag("verify").out


def test_copies_are_named_until_sources_replace_them(world: Formerly) -> None:
    ada = world.ada
    answer = ada.vmrag("query", "when do requests time out")
    assert "thirty seconds" in answer.out, "the copy does not follow the file"
    assert (
        "3 stored copies of tracked files may be outdated; run 'vmrag init && vmrag sources dedupe' to search the files instead"
        in answer.out
    )
    ada.vmrag("commit", "-m", "Owls")
    assert "hint: run 'vmrag sources dedupe' to remove the stored copies" in ada.vmrag(*ADD_SOURCE.split()[1:]).out
    deduplication = ada.vmrag("sources", "dedupe").out
    assert "has 1 other document, so the source of that name is not read" in deduplication, "its file was moved"
    assert "vmrag rm handbook" in deduplication
    ada.vmrag("rm", "handbook", "--yes")
    ada.vmrag("commit", "-m", "Remove the last copy")
    ada.git("add", "-A")
    ada.git("commit", "-q", "-m", "Files answer")
    answer = ada.vmrag("query", "when do requests time out")
    assert "five seconds" in answer.out
    assert "stored copies of tracked" not in answer.out
    assert "1 query answered as expected" in ada.vmrag("check", "--update").out
    assert "handbook/docs/limits.md" in (ada.top / ".vmrag" / "queries.yaml").read_text()
    ada.git("switch", "-q", "topic")
    assert "Never rest" in ada.vmrag("query", "rest").out
    ada.git("checkout", "-q", "v1")
    assert "thirty seconds" in ada.vmrag("query", "when do requests time out").out


def test_version_0_1_prints_the_upgrade_after_a_colleague_adds_sources(
    world: Formerly, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.ada.vmrag(*ADD_SOURCE.split()[1:])
    monkeypatch.setattr("vmrag_link.formats.__version__", "0.1.0")
    error = world.ada.vmrag("query", "rest", code=2).err
    assert "requires vmrag-link 0.2.0 or newer; this is 0.1.0" in error
    assert "hint: run 'python -m pip install --upgrade \"vmrag-link>=0.2.0\"'" in error


@pytest.mark.parametrize(
    "setting", ["chroma:\n  sources: all\n", "sources_untracked: ask\n", "sources_submodules: true\n", NOTES]
)
@pytest.mark.parametrize("stated", ["", 'requires: "0.1"\n'], ids=["none", "0.1"])
@pytest.mark.sample(3)
def test_doctor_finds_new_settings_that_require_no_version(setting: str, stated: str, world: Formerly) -> None:
    dan = world.person("dan")
    dan.write(".vmrag.yaml", f"embedding:\n  model: hash\n{stated}{setting}")
    topics = dan.ask("doctor", code=None)["topics"]
    (fix,) = [row["fix"] for topic in topics for row in topic["findings"] if row["code"] == "VERSION_NOT_REQUIRED"]
    if stated:
        assert fix == 'write requires: "0.2.0" in line 3'
        return
    [command] = hints.list_commands(fix)
    subprocess.run(command, shell=True, cwd=dan.top, check=True)
    assert "VERSION_NOT_REQUIRED" not in dan.vmrag("doctor", code=None).out
    assert (dan.top / ".vmrag.yaml").read_text().endswith('\nrequires: "0.2.0"\n')


def test_doctor_accepts_old_settings_without_a_version(world: Formerly) -> None:
    world.person("dan").write(
        ".vmrag.yaml", 'sources_untracked: true\nsources: [{collection: "write", paths: [docs/]}]\n'
    )
    assert "VERSION_NOT_REQUIRED" not in world.person("dan").vmrag("doctor", code=None).out


# -- hooks that version 0.1.0 installed


def read_ours(project: Project, *arguments: str) -> list[str]:
    """Return the lines of vmrag while git runs with its hooks."""
    result = project.run(*arguments, env=ON)
    assert result.returncode == 0, result
    return [line for line in result.stderr.splitlines() if line.startswith("vmrag: ")]


@pytest.mark.parametrize("renewed", [False, True], ids=["as they were", "renewed"])
@pytest.mark.parametrize("name", ["ada", "ben", "cleo"])
@pytest.mark.sample(2)
def test_old_hooks_move_and_push_the_knowledge(name: str, renewed: bool, world: Formerly) -> None:
    project = world.person(name)
    branch = project.git("branch", "--show-current")
    if renewed:
        project.vmrag("install")
        assert "HOOK_OUTDATED" not in project.vmrag("doctor", code=None).out
    project.vmrag("sync")
    if name == "ada":
        project.vmrag("commit", "-m", "Owls")
    project.write("docs/rest.md", "# Rest\n\nRest a lot.\n")
    project.vmrag("add", "-", "--collection", "web", "--id", "foxes", stdin="About foxes.\n")
    project.vmrag("commit", "-m", "Foxes")
    assert read_ours(project, "commit", "-q", "-am", "Foxes") == []
    assert read_ours(project, "push", "-q", "-u", "origin", branch) == [
        "vmrag: pushed the documents that these commits pin to origin"
    ]
    read_ours(project, "checkout", "-q", "HEAD~1")
    assert project.status()["state"] == "in_sync", "the hook has moved the knowledge"
    read_ours(project, "checkout", "-q", branch)
    assert "About foxes." in project.vmrag("query", "foxes").out
    ran = project.top / ".git" / "ran"
    assert (ran.read_text().split() if ran.exists() else []) == {"ada": [], "ben": ["team"], "cleo": ["framework"]}[
        name
    ]


def test_clone_of_a_repository_of_version_0_1_needs_sync_only(world: Formerly) -> None:
    world.hub.git("clone", "-q", ".", str(world.top / "eve"))
    eve = world.person("eve")
    eve.vmrag("sync", "--hooks")
    assert eve.status()["state"] == "in_sync"
    read_ours(eve, "switch", "-q", "topic")
    assert "Never rest" in eve.vmrag("query", "rest").out


# -- an empty pin


def test_files_answer_next_to_a_pin_without_documents(world: Formerly) -> None:
    dan = world.person("dan")
    assert "from commit" in dan.vmrag("query", "pip").out
    status = dan.vmrag("status").out
    assert "1 file in 1 source" in status
    assert "0 documents" not in status
    dan.write("docs/setup.md", "# Setup\n\nInstall the program with uv.\n")
    assert "with uv" in dan.vmrag("query", "install").out
    read_ours(dan, "commit", "-q", "-am", "uv")
    read_ours(dan, "push", "-q")
    assert "with pip" in dan.vmrag("query", "install", "--at", "HEAD~1").out
    assert "nothing is lost" in dan.vmrag("verify").out


EMPTY = "' to remove the pin, which has no documents"


@pytest.mark.parametrize("command", ["query pip", "status", "sync"])
def test_removal_of_an_empty_pin_is_printed_once(command: str, world: Formerly) -> None:
    dan = world.person("dan")
    dan.vmrag("sync", "--json")
    first, second = (dan.vmrag(*command.split()) for _ in range(2))
    assert EMPTY in first.out + first.err
    for later in (second, dan.vmrag("query", "pip"), dan.vmrag("status"), dan.vmrag("sync")):
        assert EMPTY not in later.out + later.err
    assert "PIN_EMPTY" in dan.vmrag("doctor", code=None).out


def test_removed_empty_pin_leaves_files_only_to_each_colleague(world: Formerly) -> None:
    dan, eve = world.person("dan"), world.person("eve")
    dan.git("clone", "-q", "../files.git", "../eve")
    eve.vmrag("sync", "--hooks")
    [removal] = hints.list_commands(dan.vmrag("query", "pip").err)
    assert dan.run("-c", f"alias.remove=!{removal}", "remove").returncode == 0
    dan.git("push", "-q")
    assert dan.git("ls-files").split() == [".vmrag.yaml", "docs/setup.md"]
    assert "files of the repository, no stored documents" in dan.vmrag("status").out
    eve.git("pull", "-q")
    status = eve.ask("status", code=1)
    [removal] = hints.list_commands(status["hint"])
    assert (status["state"], removal) == ("no_pin", "vmrag uninstall --all && git checkout -- .vmrag.yaml")
    assert eve.run("-c", f"alias.remove=!{removal}", "remove").returncode == 0
    for person in (dan, eve):
        assert person.git("status", "--porcelain") == ""
        assert person.ask("status")["state"] == "files"
        assert person.vmrag("query", "pip").err == ""
        person.git("checkout", "-q", "v0")
        assert person.ask("status")["state"] == "files"


def test_pin_is_not_called_empty_while_a_ref_pins_documents(world: Formerly) -> None:
    dan = world.person("dan")
    dan.git("switch", "-q", "-c", "stored")
    dan.vmrag("add", "-", "--collection", "web", "--id", "owls", stdin="About owls.\n")
    dan.vmrag("commit", "-m", "Owls")
    dan.git("commit", "-q", "-m", "Owls")
    dan.git("switch", "-q", "main")
    for command in ("query", "status", "sync"):
        result = dan.vmrag(command, *(["pip"] if command == "query" else []))
        assert EMPTY not in result.out + result.err
    assert "PIN_EMPTY" not in dan.vmrag("doctor", code=None).out


def test_new_knowledge_base_is_not_called_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isolate(monkeypatch, tmp_path / "home")
    project = new_project(tmp_path / "project")
    project.commit("begin", **{"docs/setup.md": "# Setup\n"})
    project.vmrag("init", "--knowledge-base")
    for command in ("query", "status", "sync"):
        result = project.vmrag(command, *(["setup"] if command == "query" else []))
        assert EMPTY not in result.out + result.err


# -- the page


def test_changelog_names_each_removed_setting_and_form() -> None:
    top = Path(__file__).parents[2]
    changes = (top / "CHANGELOG.md").read_text().split("\n### Upgrade from 0.1\n")[1].partition("\n## ")[0]
    removed = {*REMOVED, "vmrag commit -a", "vmrag sources adopt", "STALE_DOCUMENT", "SOURCE_SHADOWS", "shadowed"}
    for name in removed:
        assert f"`{name}" in changes or f".{name}`" in changes, name
    assert f'requires: "{SOURCES_VERSION}"' in (top / "docs" / "installing.md").read_text()
