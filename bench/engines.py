"""The same work on each engine, and by Dolt's own program on the same rows.

Nothing is measured of Dolt where its program is not on PATH.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from bench import engine_step, knowledge, timing
from bench.switch import remove_views
from bench.timing import Figure, Run, Sample
from vmrag_link.engines import records
from vmrag_link.engines.dolt.connection import quote_literals
from vmrag_link.engines.dolt.schema import TABLES
from vmrag_link.models import Document

ENGINES = ("doltlite", "dolt")
PROGRAM = "dolt's program"
IMPORT = 2.0
"""How often an import of 10,000 documents may take what bare inserts take."""

STEPS = ("import", "commit", "diff", "push", "fetch")


def run(folder: Path, sizes: list[int], rounds: int, env: dict[str, str]) -> list[Figure]:
    if shutil.which("dolt") is None:
        print("dolt is not on PATH: nothing is measured of it", file=sys.stderr)
        return []
    env = env | {"DOLT_ROOT_PATH": env["HOME"], "PATH": os.environ["PATH"]}
    figures: list[Figure] = []
    for size in (count for count in sizes if count <= 10_000):
        work = Work(folder / f"engines-{size}", size, env)
        for step in STEPS:
            timed = timing.in_turn(work.doing(step), rounds)
            limit = IMPORT if (step, size) == ("import", 10_000) else None
            figures.append(figure(step, size, timed, limit))
        figures.append(switched(folder, size, rounds, env))
    return figures


def switched(folder: Path, size: int, rounds: int, env: dict[str, str]) -> Figure:
    """A switch, as `bench.switch` measures it, on both engines."""
    repos = {name: knowledge.make(folder, size, env, engine_name=name) for name in ENGINES}

    def there(repo: Path) -> Run:
        knowledge.git(repo, "switch", "-q", "feature", env=env)
        remove_views(repo, knowledge.pinned(repo, "feature", env))
        sync_run = timing.once([*knowledge.VMRAG, "sync", "-q"], cwd=repo, env=env)
        knowledge.git(repo, "switch", "-q", "main", env=env)
        timing.once([*knowledge.VMRAG, "sync", "-q"], cwd=repo, env=env)
        return sync_run

    timed = timing.in_turn({name: lambda repo=repo: there(repo) for name, repo in repos.items()}, rounds)
    seconds = {name: sample.wall for name, sample in timed.items()}
    name = f"switch, {size:,} documents, 100 differ: in Dolt, against the embedded engine"
    return Figure(name, seconds["dolt"] / seconds["doltlite"], None, seconds)


def figure(step: str, size: int, timed: dict[str, Sample], limit: float | None) -> Figure:
    seconds = {name: sample.wall for name, sample in timed.items()}
    what = f"{step} of {size if step == 'import' else engine_step.CHANGED:,} documents"
    of = "" if step == "import" else f" of {size:,}"
    return Figure(f"{what}{of} in Dolt, against {PROGRAM} alone", seconds["dolt"] / seconds[PROGRAM], limit, seconds)


class Work:
    """Knowledge bases before each step, which is done on a copy."""

    def __init__(self, folder: Path, size: int, env: dict[str, str]) -> None:
        self.folder, self.size, self.env = folder, size, env
        self.number = itertools.count()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self._prepare_inserts()
        self.states: dict[str, dict[str, Path]] = {"import": {}, "commit": {}, "diff": {}}
        for name in (*ENGINES, PROGRAM):
            self._prepare(name)

    def doing(self, step: str) -> dict[str, Callable[[], Run]]:
        return {name: lambda name=name: self._step(name, step) for name in (*ENGINES, PROGRAM)}

    def _step(self, name: str, step: str) -> Run:
        work = self.folder / f"copy-{next(self.number)}"
        copy = work / "kb"
        shutil.copytree(self.states["diff" if step == "diff" else step if step == "import" else "commit"][name], copy)
        try:
            url = self._share(name, copy, step) if step in ("push", "fetch") else ""
            return self._timed(name, step, copy, url)
        finally:
            shutil.rmtree(work)

    def _share(self, name: str, copy: Path, step: str) -> str:
        """Return a remote that the copy knows: it has pushed everything except its last commit.

        Before a push, the copy makes that commit. Before a fetch, a colleague makes and pushes it.
        """
        remote = copy.with_name("remote.doltlite" if name == "doltlite" else "remote")
        if name != "doltlite":
            remote.mkdir()
        url = f"file://{remote}"
        self._timed(name, "push", copy, url)
        writer = copy
        if step == "fetch":
            writer = copy.with_name("colleague") / "kb"
            shutil.copytree(copy, writer)
        self._timed(name, "commit", writer)
        if step == "fetch":
            self._timed(name, "push", writer, url)
        return url

    def _timed(self, name: str, step: str, kb: Path, url: str = "") -> Run:
        if name == PROGRAM:
            return self._by_program(step, kb, url)
        argument = str(self.folder / f"{step}.json") if step in ("import", "commit") else url
        return timing.once(
            [sys.executable, "-m", "bench.engine_step", name, step, str(kb), *([argument] if argument else [])],
            cwd=Path(__file__).parents[1],
            env=self.env,
        )

    def _by_program(self, step: str, kb: Path, url: str) -> Run:
        if step == "diff":
            query = "SELECT * FROM dolt_diff('HEAD~1', 'HEAD', 'documents')"
            return timing.once(["dolt", "sql", "-r", "json", "-q", query], cwd=kb, env=self.env)
        if step in ("push", "fetch"):
            remotes = subprocess.run(
                ["dolt", "remote"], cwd=kb, env=self.env, capture_output=True, text=True, check=True
            )
            if "there" not in remotes.stdout:
                subprocess.run(["dolt", "remote", "add", "there", url], cwd=kb, env=self.env, check=True)
            return timing.once(["dolt", step, "there", *(["main"] if step == "push" else [])], cwd=kb, env=self.env)
        return timing.once(["dolt", "sql", "-f", str(self.folder / f"{step}.sql")], cwd=kb, env=self.env)

    def _prepare(self, name: str) -> None:
        kb = self.folder / f"{name.replace(' ', '-')}" / "kb"
        kb.mkdir(parents=True)
        if name == PROGRAM:
            identity = ["--name", "Bench", "--email", "bench@example.com"]
            subprocess.run(
                ["dolt", "init", *identity, "-b", "main"], cwd=kb, env=self.env, check=True, capture_output=True
            )
            subprocess.run(["dolt", "sql", "-q", TABLES["documents"]], cwd=kb, env=self.env, check=True)
            subprocess.run(["dolt", "commit", "-Am", "tables"], cwd=kb, env=self.env, check=True, capture_output=True)
        else:
            self._timed(name, "create", kb)
        for state, step in (("import", "import"), ("commit", "commit"), ("diff", "")):
            self.states[state][name] = kb.with_name(f"before-{state}" if state != "diff" else "whole")
            shutil.copytree(kb, self.states[state][name])
            if step:
                self._timed(name, step, kb)

    def _prepare_inserts(self) -> None:
        """Write the documents, and the same rows as statements, 400 in one: what a person would
        feed to the program.
        """
        for step, rows in (
            ("import", engine_step.documents(self.size)),
            ("commit", engine_step.documents(engine_step.CHANGED, seed=8)),
        ):
            inserts = ";\n".join(_insert(rows[at : at + 400]) for at in range(0, len(rows), 400))
            commit = "CALL dolt_commit('-Am', 'changed')"
            (self.folder / f"{step}.json").write_bytes(msgspec.json.encode(rows))
            (self.folder / f"{step}.sql").write_text(f"START TRANSACTION;\n{inserts};\n{commit};\n")


def _insert(rows: list[Document]) -> str:
    values = ", ".join(f"({quote_literals(records.document_row(row))})" for row in rows)
    return f"REPLACE INTO documents VALUES {values}"
