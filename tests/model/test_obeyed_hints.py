"""An agent that runs what each error, warning and suggestion tells it to, whatever has gone wrong
before: nothing that was stored, and no edit of a file, is lost by that.

`VMRAG_OBEYED_FAULTS=1000` goes through a thousand faults, as `tests/check.py --long` does.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import resource
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import hints, terminal
from tests.support.cli import run_killed
from tests.support.mcp import Tools
from tests.support.repos import ON
from tests.support.terminal import SCRIPT, Done, Project
from vmrag_link.engines import opening
from vmrag_link.engines.own_branches import LINKS_BRANCH
from vmrag_link.models import WorkingSet

FAULTS = int(os.environ.get("VMRAG_OBEYED_FAULTS") or 8)
AT_ONCE = 8
"""Faults of one history: after each, less is as it should be."""

OFF = {"VMRAG": "0"}
DEPTH = 4
"""Hints of hints that are followed."""

NOBODY_HAS = "0123456789abcdefghijklmnopqrstuv"
TOOL = re.compile(r"\b(?:dolt|chroma|sync|resolve|merge|force)_[a-z_]+\b")
FLAG = re.compile(r"\b([a-z_]+)=(true|[a-z_]+)\b")
ARGUMENTS: dict[str, dict[str, Any]] = {
    "chroma_create_collection": {"collection_name": "made"},
    "chroma_get_collection_info": {"collection_name": "handbook"},
    "chroma_get_documents": {"collection_name": "handbook"},
    "dolt_checkout": {"target": "feature"},
    "dolt_commit": {"message": "as suggested"},
    "dolt_find": {"query": "faq"},
    "dolt_reset": {"target": "HEAD"},
    "merge_branch": {"source": "feature"},
    "resolve_conflicts": {"resolutions": [], "strategy": "ours"},
}
"""Arguments for a call of a suggested tool."""

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project


class Ledger:
    """Stored documents that must be found while one branch, kept revision or working set of the
    knowledge base has them; the same for files and git.
    """

    def __init__(self, project: Project) -> None:
        self.project = project
        self.documents: set[str] = set()
        self.files: set[str] = set()
        self._read: dict[str, set[str]] = {}

    def found(self) -> tuple[set[str], set[str]]:
        return self._in_knowledge(), self._in_git()

    def _in_knowledge(self) -> set[str]:
        engine = opening.open_engine(self.project.shared / "kb")
        texts: set[str] = set()
        with contextlib.closing(engine):
            for branch in engine.list_branches():
                if branch.name == LINKS_BRANCH:
                    continue
                texts |= {document.content for document in engine.read_documents(WorkingSet(branch.name))}
                for revision in engine.log(branch.head):
                    if revision.revision not in self._read:
                        self._read[revision.revision] = {it.content for it in engine.read_documents(revision.revision)}
                    texts |= self._read[revision.revision]
        return texts

    def _in_git(self) -> set[str]:
        output = self.project.run("rev-list", "--objects", "--all", "--reflog", "--indexed-objects").stdout
        ids = "".join(f"{line.split()[0]}\n" for line in output.splitlines())
        argv = ["git", "cat-file", "--batch"]
        blobs = subprocess.run(
            argv, cwd=self.project.top, input=ids, capture_output=True, text=True, errors="replace", check=True
        ).stdout
        trees = self.project.run("worktree", "list", "--porcelain").stdout
        tops = [Path(line.removeprefix("worktree ")) for line in trees.splitlines() if line.startswith("worktree ")]
        lying = "".join(path.read_text() for top in tops for path in top.glob("work-*.txt"))
        return set(re.findall(r"^Edit \d+\.$", blobs + lying, re.MULTILINE))


class Obedient:
    """One history: a fault, a few jobs, and the commands that their answers suggest."""

    def __init__(self, project: Project, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.project, self.folder = project, folder
        self.ledger = Ledger(project)
        self.script: list[str] = []
        self.number = 0
        self.server = folder / "server.git"
        project.git("init", "-q", "--bare", str(self.server))
        project.git("remote", "add", "origin", str(self.server))
        project.push("-u", "origin", "main", "feature")
        project.git("clone", "-q", str(self.server), str(folder / "colleague"), env=OFF)
        self.colleague = Project(folder / "colleague")
        self.colleague.vmrag("init", "--knowledge-base", "--no-sources")
        self.faults = [
            self.killed,
            self.pin_is_broken,
            self.settings_are_broken,
            self.index_is_broken,
            self.git_is_locked,
            self.head_moves,
            self.branch_goes,
            self.git_merge_stops,
            self.knowledge_merge_stops,
            self.remote_moves,
            self.colleague_pushes,
            self.tree_goes,
            self.disk_is_full,
        ]
        self.jobs = [
            "status",
            "status --json",
            "query garden",
            "list",
            "sync",
            "verify",
            "check",
            "doctor",
            "commit -m obedient",
            "merge feature",
            "merge --continue",
            "merge --abort",
            "merge --repair HEAD",
            "pin feature",
            "pull",
            "push",
            "fetch",
            "diff",
            "restore --yes",
            "restore faq.md",
            "import docs --collection handbook --base docs",
            "links rebuild",
            "remote",
            "rm faq.md --collection handbook",
            "gc --apply",
            "init",
            "--knowledge-base",
            "--no-sources",
            "install",
            "resolve --ours",
            "log",
            "pin",
        ]
        self.calls: list[tuple[str, dict[str, Any]]] = [
            ("dolt_status", {}),
            ("dolt_pull", {}),
            ("dolt_push", {}),
            ("dolt_checkout", {"target": "feature"}),
            ("dolt_checkout", {"target": "feature", "if_uncommitted": "reset_first"}),
            ("dolt_commit", {"message": "by a tool"}),
            ("merge_branch", {"source": "feature"}),
            ("dolt_reset", {"target": "HEAD"}),
            ("chroma_query_documents", {"collection_name": "handbook", "query_texts": ["rest"]}),
        ]

    def play(self, faults: int) -> None:
        for _ in range(faults):
            fault = self.random.choice(self.faults)
            self.note(f"-- {fault.__name__}")
            fault()
            self.nothing_is_lost()
            for step in self.random.choices(
                (self.types, self.calls_a_tool, self.stores, self.edits), weights=(6, 4, 2, 2), k=4
            ):
                step()
                self.nothing_is_lost()
            self.person_tidies_up()

    def note(self, step: str) -> None:
        self.script.append(step)

    def next(self) -> int:
        self.number += 1
        return self.number

    # -- what the agent does

    def types(self) -> None:
        self.obeys(self.run_vmrag(self.random.choice(self.jobs)), DEPTH)

    def stores(self) -> None:
        """Require that documents acknowledged from now on are found."""
        text = f"Memory {self.next()}."
        result = self.run_vmrag(f"add - --collection handbook --id memory-{self.number}.md", stdin=text)
        if result.code == 0:
            self.ledger.documents.add(text)
        self.obeys(result, DEPTH)

    def edits(self) -> None:
        """A line of a file of the code's, which stays uncommitted, is staged, or is committed."""
        text = f"Edit {self.next()}."
        path = self.project.top / f"work-{self.random.randrange(3)}.txt"
        with path.open("a") as file:
            file.write(f"{text}\n")
        self.ledger.files.add(text)
        self.note(f"edit {path}")
        if self.random.random() < 0.5:
            self.project.run("add", str(path))
        if self.random.random() < 0.2:
            self.run_shell("git commit -q -m work", ON)

    def calls_a_tool(self) -> None:
        name, arguments = self.random.choice(self.calls)
        self.asks(name, arguments, DEPTH)

    def asks(self, name: str, arguments: dict[str, Any], depth: int) -> None:
        self.note(f"{name} {arguments}")
        tools = Tools(self.project.top)
        answer, failed = tools.run(name, arguments)
        said = [*answer.get("suggestions", ()), *(str(warning) for warning in answer.get("warnings", ()))]
        self.note(f"   {'failed' if failed else 'done'}: {answer['message'][:200]} {said}")
        if not said or not depth:
            return
        suggestion = self.random.choice(said)
        flags = {key: value == "true" or value for key, value in FLAG.findall(suggestion)}
        named = [match for match in TOOL.findall(suggestion) if match in tools.enabled.selection.tools]
        if named:
            self.asks(named[0], {**ARGUMENTS.get(named[0], {}), **flags}, depth - 1)
        elif flags:
            self.asks(name, arguments | flags, depth - 1)
        else:
            self.obeys(Done(1, "", f"hint: {suggestion}"), depth)

    def obeys(self, result: Done, depth: int) -> None:
        """Follow one of the ways out of an answer, completely and literally."""
        ways = [way for line in (result.err + result.out).splitlines() for way in hints.list_ways(line, self.by_itself)]
        if not ways or not depth:
            return
        for command in self.random.choice(ways):
            run = self.run_shell(command, OFF if self.random.random() < 0.5 else ON)
            if run.code:
                self.obeys(run, depth - 1)

    @staticmethod
    def by_itself(command: str) -> str:
        """A command that asks a person for something, as an agent types it."""
        if command.startswith(("vmrag commit", "git commit")) and " -m" not in command:
            return f"{command} -m obeyed"
        if command.count('"') % 2 or command.startswith(
            ("vmrag mcp", "vmrag demo", "vmrag trust")
        ):  # they ask, or wait for ever
            return ""
        return f"{command} --ours" if command == "vmrag resolve" else command

    def run_vmrag(self, line: str, stdin: str = "") -> Done:
        self.note(f"vmrag {line}")
        result = self.project.vmrag(*shlex.split(line), code=None, stdin=stdin)
        self.note(f"   {result.code}: {result.err.strip()}")
        assert "Traceback" not in result.err
        return result

    def run_shell(self, command: str, environ: dict[str, str]) -> Done:
        self.note(f"$ {command}")
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        run = subprocess.run(
            command,
            shell=True,
            cwd=self.project.top,
            env=os.environ | environ | {"PATH": path, "GIT_EDITOR": "true"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        self.note(f"   {run.returncode}: {run.stderr.strip()}")
        return Done(run.returncode, run.stdout, run.stderr)

    # -- what goes wrong

    def killed(self) -> None:
        line = self.random.choice(
            ("commit -m killed", "sync", "merge feature", "pin feature", "pull", "push", "gc --apply")
        )
        self.note(f"vmrag {line}, killed")
        self.run_vmrag(f"add - --collection handbook --id killed-{self.next()}.md", stdin="A draft.")
        run_killed(self.project, self.random.uniform(0, 0.9), *shlex.split(line))

    def pin_is_broken(self) -> None:
        pin = self.project.top / ".dolt-version"
        old = pin.read_text() if pin.is_file() else "{}"
        kind = self.random.choice(("gone", "{", "", "unknown", "conflict", "older"))
        self.note(f"pin {kind}")
        if kind == "gone":
            pin.unlink(missing_ok=True)
        elif kind == "unknown":
            pin.write_text(re.sub(r"[0-9a-v]{32,40}", NOBODY_HAS, old))
        elif kind == "conflict":
            pin.write_text(f"<<<<<<< ours\n{old}=======\n{old}>>>>>>> theirs\n")
        elif kind == "older":
            self.project.run("checkout", "-q", "first", "--", ".dolt-version")
        else:
            pin.write_text(kind)
        if self.random.random() < 0.4:
            self.project.run("add", "-A", ".dolt-version")

    def settings_are_broken(self) -> None:
        self.project.write(
            ".vmrag.yaml", self.random.choice(("retrieval:\n  k: many\n", "\t", "engine: postgres\n", ""))
        )

    def index_is_broken(self) -> None:
        files = [
            path for name in ("views", "segments") for path in (self.project.shared / name).rglob("*") if path.is_file()
        ]
        if not files or self.random.random() < 0.3:
            self.project.forget_indexes() if (self.project.shared / "views").is_dir() else None
            return
        victim = self.random.choice(files)
        size = victim.stat().st_size
        os.truncate(victim, self.random.randrange(size + 1))

    def git_is_locked(self) -> None:
        name = self.random.choice(("index.lock", "config.lock", "HEAD.lock", "refs/heads/main.lock"))
        self.note(name)
        (self.project.top / ".git" / name).touch()

    def head_moves(self) -> None:
        how = self.random.choice(
            (
                "switch -q --detach",
                "reset -q --keep HEAD~1",
                "switch -q feature",
                "switch -q main",
                "checkout -q -b new-NUMBER",
                "stash -q",
                "stash pop -q",
                "commit -q --amend -m amended",
                "rebase -q feature",
            )
        ).replace("NUMBER", str(self.next()))
        self.note(f"git {how}")
        self.project.run(*how.split(), env=self.random.choice((ON, OFF)))

    def branch_goes(self) -> None:
        """Delete a branch with uncommitted documents in its working set."""
        name = f"gone-{self.next()}"
        self.project.run("switch", "-q", "-c", name, env=OFF)
        self.stores()
        self.project.run("switch", "-q", "main", env=self.random.choice((ON, OFF)))
        self.project.run("branch", "-q", "-D", name)

    def git_merge_stops(self) -> None:
        self.contested("merge-conflict", "merge", "-q", "--no-edit")

    def knowledge_merge_stops(self) -> None:
        self.contested("knowledge-conflict")

    def contested(self, name: str, *merge: str) -> None:
        """Both sides change one document; git merges them, or `vmrag merge`."""
        side = f"{name}-{self.next()}"
        for branch, text in ((side, "theirs"), ("main", "ours")):
            self.project.run("switch", "-q", *(["-c"] if branch == side else []), branch, env=OFF)
            stored = f"# Rest\n\n{text} {self.number}.\n"
            result = self.run_vmrag("add - --collection handbook --id rest.md", stdin=stored)
            if self.run_vmrag(f"commit -m {text}").code == result.code == 0:
                self.ledger.documents.add(stored)
            self.project.run("commit", "-q", "-a", "-m", text, env=OFF)
        if merge:
            self.note(f"git merge {side}")
            self.project.run(*merge, side, env=self.random.choice((ON, OFF)))
        else:
            self.run_vmrag(f"merge {side}")

    def remote_moves(self) -> None:
        url = self.random.choice((self.server, self.folder / "nowhere.git", "file:///dev/null"))
        self.note(f"remote {url}")
        self.project.run("remote", "set-url", "origin", str(url))

    def colleague_pushes(self) -> None:
        colleague = self.colleague
        colleague.run("fetch", "-q", "origin", env=ON)
        colleague.run("reset", "-q", "--hard", "origin/main", env=ON)
        result = colleague.vmrag(
            "add", "-", "--collection", "handbook", "--id", f"theirs-{self.next()}.md", stdin="Theirs.", code=None
        )
        if result.code == 0 and colleague.vmrag("commit", "-m", "theirs", code=None).code == 0:
            colleague.run("commit", "-q", "-a", "-m", "theirs", env=ON)
            colleague.run(
                "push", "-q", *(["--force"] if self.random.random() < 0.3 else []), "origin", "HEAD:main", env=ON
            )

    def tree_goes(self) -> None:
        """A work tree with an uncommitted document."""
        tree = Project(self.folder / f"tree-{self.next()}")
        if self.project.run("worktree", "add", "-q", "-b", tree.top.name, str(tree.top), env=OFF).returncode:
            return
        text = f"Memory {self.number}."
        result = tree.vmrag(
            "add", "-", "--collection", "handbook", "--id", f"memory-{self.number}.md", stdin=text, code=None
        )
        if result.code == 0:
            self.ledger.documents.add(text)
        self.project.run("worktree", "remove", "--force", str(tree.top))

    def disk_is_full(self) -> None:
        """Simulate a full disk for a process: no file grows beyond a few bytes."""
        line = self.random.choice(
            ("commit -m full", "sync", "merge feature", "pin feature", "pull", "push", "gc --apply")
        )
        self.run_vmrag(f"add - --collection handbook --id full-{self.next()}.md", stdin="A draft.")
        most = self.random.choice((0, 4_000, 60_000))
        self.note(f"vmrag {line}, with files of at most {most} bytes")
        limited = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))  # noqa: E731
        run = subprocess.run(
            [SCRIPT, *shlex.split(line)],
            cwd=self.project.top,
            preexec_fn=limited,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        self.note(f"   {run.returncode}: {run.stderr.strip()}")
        self.obeys(Done(run.returncode, run.stdout, run.stderr), DEPTH)

    # -- between faults

    def person_tidies_up(self) -> None:
        """Do the work that no tool does: remove locks of dead processes, and repair the remote's
        address and the settings; open operations are aborted with the loss that git names.
        """
        for lock in (self.project.top / ".git").rglob("*.lock"):
            lock.unlink()
        self.project.run("remote", "set-url", "origin", str(self.server))
        self.project.run("checkout", "-q", "HEAD", "--", ".vmrag.yaml")
        if self.random.random() < 0.5:
            return
        for give_up in ("merge", "rebase", "cherry-pick"):
            self.project.run(give_up, "--abort", env=OFF)
        self.run_vmrag("merge --abort")
        self.project.run("checkout", "-q", "HEAD", "--", ".dolt-version")
        self.project.run("switch", "-q", "main", env=OFF)
        self.ledger.files &= self.ledger.found()[1]

    def nothing_is_lost(self) -> None:
        documents, files = self.ledger.found()
        assert self.ledger.documents <= documents, self.ledger.documents - documents
        assert self.ledger.files <= files, self.ledger.files - files


@pytest.mark.parametrize("seed", range(-(-FAULTS // AT_ONCE)))
def test_agent_that_obeys_each_hint_loses_nothing(project: Project, tmp_path: Path, seed: int) -> None:
    agent = Obedient(project, tmp_path, seed)
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: print("\n".join(agent.script)))
        agent.play(min(AT_ONCE, FAULTS - seed * AT_ONCE))
