"""Agents in separate worktrees: a memory that a tool acknowledged is on main after the pull request
of its branch, and on no other branch before.

`VMRAG_AGENT_HISTORIES=100` makes a hundred, as `tests/check.py --long` does.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support import terminal
from tests.support.mcp import Tools
from tests.support.repos import ON
from tests.support.terminal import Project, opened

HISTORIES = int(os.environ.get("VMRAG_AGENT_HISTORIES") or 2)
OFF = {"VMRAG": "0"}
STEPS = 4
"""Things that each agent does before its pull request."""

NOTES = "notes"
CLIENT = """
import json, sys
from pathlib import Path
from tests.support.mcp import Tools
tools = Tools(Path.cwd())
print("ready", flush=True)
sys.stdin.readline()
tools(*json.loads(sys.argv[1]), **json.loads(sys.argv[2]))
print("remembered", flush=True)
"""

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project


@dataclass
class Agent:
    """`memories` were acknowledged; `doubtful`: the agent was killed while it wrote these."""

    name: str
    tree: Project
    memories: dict[str, str] = field(default_factory=dict)
    doubtful: set[str] = field(default_factory=set)

    @property
    def ids(self) -> set[str]:
        return self.memories.keys() | self.doubtful


class World:
    """A server, a host that merges there without a driver, and a clone with the agents' work trees.

    `commits`: whether what tools write is committed by itself; agents commit at the end of a turn
    otherwise.
    """

    def __init__(self, project: Project, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.project, self.folder = project, folder
        self.commits = self.random.random() < 0.7
        self.merged: dict[str, str] = {}
        self.agents: list[Agent] = []
        self.done: list[str] = []
        self.number = 0
        project.git("init", "-q", "--bare", str(folder / "server.git"))
        project.git("remote", "add", "origin", str(folder / "server.git"))
        project.push("-u", "origin", "main")
        project.git("clone", "-q", str(folder / "server.git"), str(folder / "host"))
        self.host = Project(folder / "host")
        if self.commits:
            project.git("config", "vmrag.mcp.auto-commit", "write")
        project.vmrag("add", "-", "--collection", NOTES, "--id", "first.md", stdin="The first note.")
        self.human_commits("notes")

    def play(self) -> None:
        for number in range(self.random.randint(2, 6)):
            self.begins(f"agent-{number}")
        turns = [agent for agent in self.agents for _ in range(STEPS)]
        self.random.shuffle(turns)
        for number, agent in enumerate(turns):
            step = self.random.choices(
                (
                    self.writes,
                    self.changes,
                    self.saves,
                    self.is_killed,
                    self.commit_is_killed,
                    self.loses_its_tree,
                    self.updates,
                ),
                weights=(6, 2, 4, 1, 1, 1, 1),
            )[0]
            self.note(step.__name__, agent)
            step(agent)
            if all(turn is not agent for turn in turns[number + 1 :]):
                self.pull_request(agent)
        if self.random.random() < 0.5:
            self.project.vmrag("gc", "--apply")
            self.on_main()

    def note(self, step: str, agent: Agent) -> None:
        self.done.append(f"{agent.name} {step}")

    @property
    def hooks(self) -> dict[str, str]:
        """Agents skip hooks, and programs that run none move HEAD."""
        return ON if self.random.random() < 0.3 else OFF

    # -- what an agent does

    def begins(self, name: str) -> None:
        self.project.git("worktree", "add", "-q", "-b", name, str(self.folder / name), "main", env=self.hooks)
        self.agents.append(Agent(name, Project(self.folder / name)))

    def writes(self, agent: Agent) -> None:
        self.number += 1
        name, text = f"{agent.name}-{self.number}.md", f"Memory {self.number} of {agent.name}."
        Tools(agent.tree.top)("chroma_add_documents", **self.added(name, text))
        agent.memories[name] = text

    @staticmethod
    def added(name: str, text: str) -> dict[str, Any]:
        return {"collection_name": NOTES, "documents": [text], "ids": [name]}

    def changes(self, agent: Agent) -> None:
        if not agent.memories:
            return self.writes(agent)
        self.number += 1
        name, text = self.random.choice(sorted(agent.memories)), f"Edition {self.number} of {agent.name}."
        Tools(agent.tree.top)("chroma_update_documents", collection_name=NOTES, documents=[text], ids=[name])
        agent.memories[name] = text
        return None

    def saves(self, agent: Agent) -> None:
        """A commit of the code, by which a turn ends."""
        if not self.commits and agent.tree.status()["kb"]["dirty"]:
            Tools(agent.tree.top)("dolt_commit", message=f"What {agent.name} knows")
        self.number += 1
        agent.tree.write(f"{agent.name}.py", f"STEP = {self.number}\n")
        agent.tree.git("add", "-A")
        flag = self.random.choice(([], ["--no-verify"]))
        agent.tree.git("commit", "-q", *flag, "-m", f"{agent.name} works", env=self.hooks)

    def is_killed(self, agent: Agent) -> None:
        """Kill the agent while it writes; then remove the locks of processes that git started."""
        self.number += 1
        name, text = f"{agent.name}-{self.number}.md", f"Memory {self.number} of {agent.name}."
        argv = [sys.executable, "-c", CLIENT, json.dumps(["chroma_add_documents"]), json.dumps(self.added(name, text))]
        environ = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(argv, cwd=agent.tree.top, env=environ, text=True, **pipes) as process:
            assert process.stdout
            assert process.stdin
            assert process.stdout.readline() == "ready\n", process.communicate()
            process.stdin.write("\n")
            process.stdin.flush()
            time.sleep(self.random.uniform(0, 1.5))
            process.kill()
            said = process.communicate()[0]
        if "remembered" in said:
            agent.memories[name] = text
        else:
            agent.doubtful.add(name)
        self.remove_locks(agent)

    def commit_is_killed(self, agent: Agent) -> None:
        """git with its hooks, while it commits the code."""
        self.number += 1
        agent.tree.write(f"{agent.name}.py", f"STEP = {self.number}\n")
        argv = ["git", "commit", "-q", "-a", "-m", "killed"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
        with subprocess.Popen(argv, cwd=agent.tree.top, env=os.environ | ON, **quiet) as process:
            time.sleep(self.random.uniform(0, 1))
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        self.remove_locks(agent)
        self.sees_its_memories(agent)

    def remove_locks(self, agent: Agent) -> None:
        refs = (self.project.top / ".git/refs").rglob("*.lock")
        parent = agent.tree.own.parent
        for lock in (parent / "index.lock", parent / "HEAD.lock", self.project.top / ".git/config.lock", *refs):
            lock.unlink(missing_ok=True)

    def loses_its_tree(self, agent: Agent) -> None:
        """Remove the agent's worktree; the agent continues in a new one on its branch."""
        if self.random.random() < 0.5:
            self.project.git("worktree", "remove", "--force", str(agent.tree.top))
        else:
            shutil.rmtree(agent.tree.top)
            self.project.git("worktree", "prune")
        said = "\n".join(self.project.status()["reasons"])
        agent.tree = Project(self.folder / f"{agent.name}-{len(self.done)}")
        self.project.git("worktree", "add", "-q", str(agent.tree.top), agent.name, env=self.hooks)
        self.sees_its_memories(agent, said)

    def updates(self, agent: Agent) -> None:
        """It takes in what main has by now."""
        self.saves(agent)
        agent.tree.git("fetch", "-q")
        agent.tree.git("merge", "-q", "--no-edit", "origin/main", env=self.hooks)

    def pull_request(self, agent: Agent) -> None:
        self.saves(agent)
        self.sees_its_memories(agent)
        self.nobody_else_sees(agent)
        agent.tree.push("origin", agent.name)
        how = self.random.choice((self.merge_commit, self.squash, self.rebase))
        self.note(how.__name__, agent)
        repaired = False
        if not how(agent.name):
            if how == self.merge_commit and self.random.random() < 0.5:
                side = self.random.choice(("ours", "theirs"))
                self.note(f"web editor takes {side}", agent)
                repaired = self.merge_commit(agent.name, "-X", side)
            else:
                self.catches_up(agent, rebases=how == self.rebase or self.random.random() < 0.5)
                assert how(agent.name), self.done
        self.host.git("push", "-q", "origin", "main")
        self.project.git("pull", "-q", "--ff-only", env=self.hooks)
        if repaired:
            self.project.vmrag("merge", "--repair", "HEAD")
            self.human_commits("repair")
        self.merged |= agent.memories
        self.on_main()
        self.agents.remove(agent)
        if self.random.random() < 0.7:
            self.project.git("worktree", "remove", "--force", str(agent.tree.top))
            if self.random.random() < 0.7:
                self.project.git("branch", "-q", "-D", agent.name)

    def catches_up(self, agent: Agent, *, rebases: bool) -> None:
        """Update the branch as a host demands for a branch in conflict."""
        agent.tree.git("fetch", "-q")
        self.note("rebases" if rebases else "merges main", agent)
        how = ("rebase", "-q") if rebases else ("merge", "-q", "--no-edit")
        agent.tree.git(*how, "origin/main", env=self.hooks)
        agent.tree.push("-f", "origin", agent.name)

    # -- what a host does, which knows no driver

    def merge_commit(self, branch: str, *options: str) -> bool:
        self.host.git("pull", "-q", "--ff-only")
        result = self.host.run("merge", "-q", "--no-ff", "--no-edit", *options, f"origin/{branch}")
        if result.returncode:
            self.host.git("merge", "--abort")
        return result.returncode == 0

    def squash(self, branch: str) -> bool:
        self.host.git("pull", "-q", "--ff-only")
        result = self.host.run("merge", "-q", "--squash", f"origin/{branch}")
        if result.returncode:
            self.host.git("reset", "-q", "--hard")
            return False
        self.host.git("commit", "-q", "-m", f"{branch}, squashed")
        return True

    def rebase(self, branch: str) -> bool:
        self.host.git("pull", "-q", "--ff-only")
        self.host.git("switch", "-q", "-C", "request", f"origin/{branch}")
        result = self.host.run("rebase", "-q", "main")
        if result.returncode:
            self.host.git("rebase", "--abort")
        self.host.git("switch", "-q", "main")
        if result.returncode == 0:
            self.host.git("merge", "-q", "--ff-only", "request")
        return result.returncode == 0

    def human_commits(self, message: str) -> None:
        """In the main work tree."""
        if self.project.status()["kb"]["dirty"]:
            self.project.vmrag("commit", "-m", message)
        self.project.git("commit", "-q", "--allow-empty", "-m", message, env=OFF)
        self.project.push("origin", "main")

    # -- what has to hold

    def sees_its_memories(self, agent: Agent, said: str = "") -> None:
        notes = self.notes(agent.tree)
        assert agent.memories.items() <= notes.items(), (self.done, said, agent.memories, notes)

    def nobody_else_sees(self, agent: Agent) -> None:
        for tree in (self.project, *(colleague.tree for colleague in self.agents if colleague is not agent)):
            assert not agent.ids & self.notes(tree).keys(), (self.done, tree.top.name, agent.ids)

    def on_main(self) -> None:
        notes = self.notes(self.project)
        assert self.merged.items() <= notes.items(), (self.done, self.merged, notes)

    @staticmethod
    def notes(tree: Project) -> dict[str, str]:
        """Return the documents that a query would find in a worktree, including uncommitted
        ones.
        """
        tree.vmrag("list", "--json")  # it follows the pin first
        with opened(tree) as ws:
            return {
                document.doc_id: document.content
                for document in ws.engine.read_documents(ws.locate_documents(), collection=NOTES)
            }


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_each_acknowledged_memory_reaches_main_only_with_its_pull_request(project, tmp_path, seed):
    world = World(project, tmp_path, seed)
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: print("\n".join(world.done)))
        world.play()
