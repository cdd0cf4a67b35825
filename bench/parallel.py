"""Sixteen agents at once, each in a work tree with a server of its own, on one knowledge base: they
ask once a second, write, commit, check out and pull for ten minutes.

`python -m bench --only parallel`. A new server looks for lost writes after all agents have ended.
"""

from __future__ import annotations

import random
import shutil
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench import knowledge
from bench.knowledge import VMRAG
from bench.mcp_process import OURS, Server
from bench.timing import Figure

AGENTS = 16
DOCUMENTS = 1_000
SECONDS = 600.0
ALONE = 100

EVERY = 1.0
"""Seconds from one question of an agent to its next."""

BUSY = 0.2
"""How many of the questions are followed by something else."""

SLOWER = 10.0
FLAT = 1.25
NOTES = "notes"


class Agent:
    """One work tree with two code branches and its server. `written`: what its tools acknowledged,
    by branch.
    """

    def __init__(self, repo: Path, tree: Path, number: int, env: dict[str, str]) -> None:
        self.tree, self.env, self.name = tree, env, f"agent-{number}"
        self.random = random.Random(number)
        self.branches = [self.name, f"{self.name}-other"]
        self.here = self.name
        self.written: dict[str, dict[str, str]] = {branch: {} for branch in self.branches}
        self.seconds: list[float] = []
        self.failures: list[str] = []
        self.steps = 0
        knowledge.git(repo, "branch", self.branches[1], "main", env=env)
        knowledge.git(repo, "worktree", "add", "-q", "-b", self.name, str(tree), "main", env=env)
        self.server = Server(OURS, tree, env)
        self.server.greet()

    def lives(self, until: float) -> None:
        """Until then; a step that takes longer than a second delays the next question."""
        turn = time.perf_counter() + self.random.uniform(0, EVERY)
        while turn < until:
            time.sleep(max(0.0, turn - time.perf_counter()))
            self.tried(self.asks)
            if self.random.random() < BUSY:
                weights = {self.writes: 6, self.commits: 2, self.checks_out: 2, self.pulls: 1}
                self.tried(self.random.choices(list(weights), list(weights.values()))[0])
                self.steps += 1
            turn = max(turn + EVERY, time.perf_counter())

    def tried(self, step: Callable[[], Any]) -> None:
        try:
            step()
        except SystemExit as error:
            self.failures.append(f"{self.name}, {step.__name__}: {error}")

    def asks(self) -> None:
        text = " ".join(f"word{self.random.randrange(5000)}" for _ in range(6))
        begun = time.perf_counter()
        self.server.call("chroma_query_documents", collection_name="documents", query_texts=[text], n_results=5)
        self.seconds.append(time.perf_counter() - begun)

    def writes(self) -> None:
        name, text = f"{self.here}-{self.steps}", f"The note {self.steps} of {self.here}."
        self.server.call("chroma_add_documents", collection_name=NOTES, documents=[text], ids=[name])
        self.written[self.here][name] = text

    def commits(self) -> None:
        if knowledge_is_dirty(self.server):
            self.server.call("dolt_commit", message=f"What {self.here} knows by {self.steps}")
        (self.tree / f"{self.here}.py").write_text(f"STEP = {self.steps}\n")
        knowledge.git(self.tree, "add", "-A", env=self.env)
        knowledge.git(self.tree, "commit", "-q", "-m", f"{self.here} {self.steps}", env=self.env)

    def checks_out(self) -> None:
        """The pin is committed with the documents, so that git lets go of it."""
        self.commits()
        self.here = self.branches[self.here == self.name]
        knowledge.git(self.tree, "switch", "-q", self.here, env=self.env)

    def pulls(self) -> None:
        self.commits()
        knowledge.git(self.tree, "pull", "-q", "--no-rebase", "--no-edit", "origin", "main", env=self.env)

    def lost(self) -> Iterator[str]:
        """Yield each note that a new server does not find on its branch."""
        for branch, notes in self.written.items():
            knowledge.git(self.tree, "stash", "-q", "--include-untracked", env=self.env)
            knowledge.git(self.tree, "switch", "-q", branch, env=self.env)
            server = Server(OURS, self.tree, self.env)
            server.greet()
            for name, text in notes.items():
                answer = server.call("chroma_get_documents", collection_name=NOTES, ids=[name])["structuredContent"]
                if [document["document"] for document in answer["documents"]] != [text]:
                    yield f"{branch}: {name}"
            server.close()


def knowledge_is_dirty(server: Server) -> bool:
    return bool(server.call("dolt_status")["structuredContent"]["kb"]["dirty"])


def run(
    folder: Path, env: dict[str, str], *, count: int = AGENTS, seconds: float = SECONDS, alone_for: int = ALONE
) -> list[Figure]:
    """`alone_for`: number of questions to one server while all others are idle."""
    repo, trees = _repository(folder, env), folder / "parallel-trees"
    agents = [Agent(repo, trees / f"{number}", number, env) for number in range(count)]
    servers = [agent.server for agent in agents]
    try:
        for agent in agents:
            for _ in range(3):  # the first answer opens the index
                agent.asks()
            agent.seconds.clear()
        alone = _alone(agents[0], alone_for)
        began, until = time.perf_counter(), time.perf_counter() + seconds
        threads = [threading.Thread(target=agent.lives, args=(until,)) for agent in agents]
        stop = threading.Event()
        colleague = threading.Thread(target=_pushes, args=(folder / "parallel-colleague", env, stop))
        for thread in (*threads, colleague):
            thread.start()
        time.sleep(seconds / 5)
        early = sum(map(_resident, servers))
        for thread in threads:
            thread.join()
        late = sum(map(_resident, servers))
        stop.set()
        colleague.join()
    finally:
        for server in servers:
            server.close()
    lost = [note for agent in agents for note in agent.lost()]
    failures = [failure for agent in agents for failure in agent.failures]
    print("\n".join([*failures, *lost]))
    together = _p99([second for agent in agents for second in agent.seconds])
    writes = sum(len(notes) for agent in agents for notes in agent.written.values())
    lasted = time.perf_counter() - began
    name = f"{count} agents in {count} work trees for {lasted:.0f} s"
    values = {"alone, p99": alone, "together, p99": together, "questions": sum(len(agent.seconds) for agent in agents)}
    return [
        Figure(f"{name}: p99 of a question, against one agent alone", together / alone, SLOWER, values),
        Figure(f"{name}: of {writes} writes lost", len(lost), 0, {}),
        Figure(f"{name}: of {sum(agent.steps for agent in agents)} other steps failed", len(failures), 0, {}),
        Figure("memory of all servers at the end, against a fifth of the time", late / early, FLAT, {"MB": late}),
        Figure("processes that are left", len(_left(folder)), 0, {}),
        Figure("locks and unfinished files that are left", len(_unfinished(repo)), 0, {}),
    ]


def _repository(folder: Path, env: dict[str, str]) -> Path:
    """With our hooks, a remote, and a colleague's clone of it."""
    source, repo = knowledge.make(folder, DOCUMENTS, env), folder / "parallel"
    for name in ("parallel", "parallel-trees", "parallel-server.git", "parallel-colleague"):
        shutil.rmtree(folder / name, ignore_errors=True)
    shutil.copytree(source, repo, symlinks=True)
    server = folder / "parallel-server.git"
    knowledge.git(repo, "switch", "-q", "main", env=env)
    knowledge.git(repo, "init", "-q", "--bare", "-b", "main", str(server), env=env)
    knowledge.git(repo, "remote", "add", "origin", str(server), env=env)
    subprocess.run([*VMRAG, "install", "-q"], cwd=repo, env=env, check=True)
    _note(repo, 0, env)
    knowledge.git(repo, "push", "-q", "-u", "origin", "main", env=env)
    knowledge.git(folder, "clone", "-q", str(server), "parallel-colleague", env=env)
    subprocess.run(
        [*VMRAG, "init", "--knowledge-base", "--no-sources", "-q"],
        cwd=folder / "parallel-colleague",
        env=env,
        check=True,
    )
    return repo


def _note(repo: Path, number: int, env: dict[str, str]) -> None:
    add = [*VMRAG, "add", "-", "--collection", NOTES, "--id", f"colleague-{number}", "-q"]
    subprocess.run(add, cwd=repo, env=env, input=f"The colleague's note {number}.".encode(), check=True)
    subprocess.run([*VMRAG, "commit", "-q", "-m", f"note {number}"], cwd=repo, env=env, check=True)
    knowledge.git(repo, "add", "-A", env=env)
    knowledge.git(repo, "commit", "-q", "-m", f"note {number}", env=env)


def _pushes(clone: Path, env: dict[str, str], stop: threading.Event) -> None:
    number = 0
    while not stop.wait(10):
        number += 1
        _note(clone, number, env)
        knowledge.git(clone, "push", "-q", "origin", "main", env=env)


def _alone(agent: Agent, questions: int) -> float:
    for _ in range(questions):
        time.sleep(EVERY)
        agent.asks()
    p99 = _p99(agent.seconds)
    agent.seconds.clear()
    return p99


def _p99(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=100)[98]


def _resident(server: Server) -> float:
    """MB that the process has in memory."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS"))


def _left(folder: Path) -> list[str]:
    """Processes that still work somewhere below the folder."""
    process_ids = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            at = (path / "cwd").readlink()
        except OSError:  # it has ended, or belongs to another user
            continue
        if at.is_relative_to(folder.resolve()):
            process_ids.append(path.name)
    return process_ids


def _unfinished(repo: Path) -> list[Path]:
    """Return git's locks and vmrag's unfinished files.

    vmrag's own lock files are not included, because they always stay.
    """
    git, ours = repo / ".git", repo / ".git/vmrag"
    locks = [path for path in git.rglob("*.lock") if "vmrag" not in path.relative_to(git).parts]
    return [*locks, *ours.glob("journal/*"), *ours.rglob("*.tmp")]
