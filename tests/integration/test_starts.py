"""Modules that a command loads and processes that it starts: counts that do not depend on the
machine, in place of seconds.

Users wait for each of these again and again. A change that needs another module or process on one
of these paths raises the number here, with a reason. Only vmrag's modules are counted, because
those of Python differ from version to version; for libraries of others the table lists the
permitted ones.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support import dolt, traced
from tests.support.long import LONG
from tests.support.repos import isolate
from tests.support.templates import build_once, copy_tree
from tests.support.terminal import Project, new_project

pytestmark = pytest.mark.hooks("off")

PROGRAM = """
import json, os, sys
processes = []
sys.addaudithook(lambda event, args: event == "subprocess.Popen" and processes.append(" ".join(args[1])))
from vmrag_link import startup
startup.prepare_start()
said, kind, *arguments = sys.argv[1:]
if kind == "hook":
    from vmrag_hooks.run import main as run
else:
    from vmrag_link.cli.main import run
def finish(code):
    files = {name.partition(".")[0]: getattr(module, "__file__", None) or "" for name, module in sys.modules.items()}
    libraries = sorted(name for name, file in files.items() if "site-packages" in file)
    found = {"code": code, "ours": sorted(each for each in sys.modules if each.startswith("vmrag_"))}
    with open(said, "w") as file:
        json.dump(found | {"libraries": libraries, "processes": processes}, file)
    leave(code)
leave, os._exit = os._exit, finish  # the MCP server ends so
finish(run(arguments))
"""

OF_HOOKS = 4 if LONG else 0
"""In long runs the hooks are on, so commands also check them, which needs these modules."""

NOT_COUNTED = {"_distutils_hack", "sitecustomize", "msgspec", "click", "vmrag_hooks", "vmrag_link"}
"""Modules of each start, and modules that an environment adds."""


class Budget(NamedTuple):
    """Maximum numbers of vmrag modules and of processes; `libraries`: the permitted libraries."""

    modules: int
    processes: int
    libraries: str = ""


def build(top: Path, engine: str = "doltlite") -> Project:
    """Two code branches whose knowledge differs, pushed; all has the default model's vectors."""
    project = new_project(top / "project", settings="index:\n  chroma: 'off'\n")
    for name in ("setup", "rest", "tls"):
        project.write(f"docs/{name}.md", f"# {name}\n\nWhat there is to know of {name}.\n")
    project.vmrag("init", "--knowledge-base", "--no-sources", "--engine", engine)
    project.vmrag("import", "docs", "--collection", "handbook")
    project.vmrag("commit", "-m", "first")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "first")
    project.git("switch", "-q", "-c", "feature")
    project.record("more", more="# More")
    project.git("switch", "-q", "main")
    project.vmrag("sync")
    project.git("init", "-q", "--bare", str(top / "remote.git"))
    project.git("remote", "add", "origin", "../remote.git")
    project.git("push", "-q", "--no-verify", "-u", "origin", "main")
    project.vmrag("push")
    return project


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_once(tmp_path_factory, "starts", build)


@pytest.fixture
def project(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    isolate(monkeypatch, tmp_path / "home")
    return copy_project(built, tmp_path)


def copy_project(built: Path, tmp_path: Path) -> Project:
    copied = Project(copy_tree(built, tmp_path / "copy") / "project")
    for path in (copied.top / ".git/refs/remotes").rglob(""):  # pushed a while ago
        os.utime(path, (time.time() - 60,) * 2)
    copied.vmrag("status", code=None)  # what was copied has other stamps
    return copied


def load(project: Project, *arguments: str, kind: str = "command", stdin: str = "") -> dict[str, Any]:
    said = project.top.parent / "said.json"
    argv = [sys.executable, "-P", "-c", PROGRAM, str(said), kind, *arguments]
    result = subprocess.run(argv, cwd=project.top, input=stdin, capture_output=True, text=True, check=False)
    assert said.exists(), result.stderr
    return json.loads(said.read_text()) | {"answers": result.stdout.splitlines()}


def require(counts: dict[str, Any], budget: Budget) -> None:
    libraries = set(counts["libraries"]) - NOT_COUNTED
    numbers = (len(counts["ours"]), len(counts["processes"]), " ".join(sorted(libraries)))
    detail = "\n".join((*counts["ours"], *counts["processes"]))
    assert counts["code"] in (0, None), detail
    assert numbers[0] <= budget.modules + OF_HOOKS, f"{numbers}\n{detail}"
    assert numbers[1] <= budget.processes, f"{numbers}\n{detail}"
    assert libraries <= set(budget.libraries.split()), f"{numbers}\n{detail}"


BUDGETS = {
    "--version": Budget(11, 0),
    "status": Budget(135, 6),
    "log": Budget(100, 6),
    "query --mode keyword setup": Budget(149, 3),
    "query setup": Budget(156, 3, "simsimd"),  # records, translations and copies
}


FILES = {
    "status": Budget(131, 5, "yaml"),
    "query --mode keyword setup": Budget(152, 5, "yaml"),  # translations and copies fill one result
    "list": Budget(143, 5, "yaml"),
    "sync": Budget(110, 5, "yaml"),
}
"""In a repository without a knowledge base, in which no Chroma store is in use."""


@pytest.mark.parametrize("line", FILES)
@pytest.mark.sample(2)
def test_command_loads_no_part_of_chroma_in_a_repository_of_files(tmp_path, monkeypatch, line):
    isolate(monkeypatch, tmp_path / "home")
    monkeypatch.delenv("VMRAG_INDEX_CHROMA")
    files = new_project(tmp_path / "files", settings='sources:\n  - collection: docs\n    paths: ["docs/"]\n')
    files.write("docs/setup.md", "# Setup\n\nWhat there is to know.\n")
    files.git("add", "-A")
    files.git("commit", "-q", "-m", "first")
    files.vmrag("sync")
    loaded = load(files, *line.split())
    require(loaded, FILES[line])
    assert "vmrag_link.chroma.bindings" not in loaded["ours"]


@pytest.mark.parametrize("line", BUDGETS)
def test_command_that_reads_stays_in_its_budget(project, line):
    require(load(project, *line.split()), BUDGETS[line])


def test_import_of_one_changed_file_and_commit_stay_within_budget(project):
    project.write("docs/rest.md", "# Rest\n\nTake one.\n")
    require(load(project, "import", "docs", "--collection", "handbook", "--copy"), Budget(160, 5))
    require(load(project, "commit", "-m", "rest"), Budget(139, 5))


PROCESSES = {
    "doltlite": {"import": (3, 0), "commit": (4, 0), "push": (12, 0), "fetch": (11, 0)},
    "dolt": {"import": (4, 1), "commit": (5, 1), "push": (11, 1), "fetch": (12, 2)},
}
"""By engine: the processes that a command may start, and how many of them may be Dolt's program.
Three of a push and a fetch read pins of tracking branches that moved within the last second.
"""


@pytest.mark.parametrize("engine", PROCESSES)
def test_command_that_moves_documents_stays_in_its_budget_of_processes(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    if engine == "dolt":
        dolt.require()
    isolate(monkeypatch, tmp_path / "home")
    built = build_once(tmp_path_factory, f"starts-{engine}", lambda top: build(top, engine))
    ada, notes = copy_project(built, tmp_path), tmp_path / "notes"
    ada.git("clone", "-q", str(ada.top.parent / "remote.git"), str(tmp_path / "bob"))
    bob = Project(tmp_path / "bob")
    bob.vmrag("clone")
    notes.mkdir()
    loaded: dict[str, dict[str, Any]] = {}
    for number in range(2):  # the first import makes the collection, the first push the copy of the remote
        (notes / "one.md").write_text(f"# One\n\nText {number}.\n")
        loaded["import"] = load(ada, "import", str(notes), "--collection", "notes", "--base", str(notes))
        loaded["commit"] = load(ada, "commit", "-m", "notes")
        ada.git("commit", "-qam", "notes")
        loaded["push"] = load(ada, "push")
        loaded["fetch"] = load(bob, "fetch")
    for command, (processes, programs) in PROCESSES[engine].items():
        started = loaded[command]["processes"]
        assert loaded[command]["code"] in (0, None), command
        assert len(started) <= processes, "\n".join((command, *started))
        assert sum(line.split()[0].endswith("/dolt") or " dolt " in line for line in started) <= programs, started


def test_checkout_hook_stays_within_budget_with_and_without_work(project):
    require(load(project, "post-checkout", kind="hook"), Budget(83, 2))
    project.git("switch", "-q", "feature")
    require(load(project, "post-checkout", kind="hook"), Budget(92, 2))
    assert project.pinned == project.status()["index"]["revision"]


HOOKS = {
    "post-checkout": (("switch", "-q", "-c", "topic"), 1),
    "pre-commit": (("commit", "-q", "-a", "-m", "code"), 2),
    "post-commit": (("commit", "-q", "-a", "-m", "code"), 1),
    "post-rewrite": (("commit", "-q", "-a", "--amend", "-m", "code"), 1),
    "pre-push": (("push", "-q"), 2),
}
"""Processes of git, and of the hook if it has nothing to do: its shell, and git."""


@pytest.mark.parametrize("hook", HOOKS)
def test_hook_with_nothing_to_do_starts_at_most_one_program(project, hook):
    traced.require()
    project.commit("code", **{"code.py": "1"})
    project.write("code.py", "2")
    command, processes = HOOKS[hook]
    started = traced.hook_processes(project, hook, *command)
    assert [line.split()[0] for line in started[1:] if line] in ([], ["git"]), started
    assert len(started) == processes, started


META = "io.modelcontextprotocol/"
ENVELOPE = {"_meta": {f"{META}protocolVersion": "2026-07-28", f"{META}clientCapabilities": {}}}
CLIENT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
ERAS = {
    "handshake": [("initialize", CLIENT), ("ping", {}), ("tools/list", {})],
    "modern": [("server/discover", ENVELOPE), ("tools/list", ENVELOPE)],
}


@pytest.mark.parametrize("toolsets", ["essential", "all"])
@pytest.mark.parametrize("era", ERAS)
def test_mcp_server_answers_the_list_of_tools_without_the_sdk(project, era, toolsets):
    rows = [
        {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        for number, (method, params) in enumerate(ERAS[era])
    ]
    loaded = load(project, "mcp", "--toolsets", toolsets, stdin="".join(json.dumps(row) + "\n" for row in rows))
    require(loaded, Budget(55, 2))
    answers = [json.loads(line) for line in loaded["answers"]]
    assert [answer["id"] for answer in answers] == [*range(len(rows))]
    assert answers[-1]["result"]["tools"]
