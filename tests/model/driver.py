"""The real thing: git, `vmrag` and its hooks in real work trees, with every command written down as
a person would type it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.model.model import Docs, Key, Memory
from tests.support.cli import run_killed
from tests.support.terminal import Done, Project
from vmrag_link.engines import opening
from vmrag_link.engines.base import Engine
from vmrag_link.engines.own_branches import ASIDE_PREFIX, CARRIED_SUFFIX
from vmrag_link.models import At, WorkingSet

PIN = ".dolt-version"
HOOK_KILLER = """#!/bin/sh
# The interpreter of the hooks: dies by SIGKILL after as many seconds as VMRAG_TEST_KILL says.
[ -n "$VMRAG_TEST_KILL" ] && exec timeout -s KILL "$VMRAG_TEST_KILL" "{python}" "$@"
exec "{python}" "$@"
"""


class Real:
    """A repository and the work tree that commands are typed in."""

    def __init__(self, top: Path, script: Sequence[str] = ()) -> None:
        self.main = self.here = Project(top)
        self.script = list(script)
        self.names: dict[str, str] = {}

    # -- what a person does ------------------------------------------------------------------------

    def git(self, *arguments: str, code: int | None = 0, env: Mapping[str, str] | None = None) -> Done:
        """`code` None: whatever it is."""
        self._note(("git", *arguments), env)
        ran = self.here.run(*arguments, env=dict(env or {}))
        result = Done(ran.returncode, ran.stdout, ran.stderr)
        assert code in (None, result.code), f"git {' '.join(arguments)}: {result}"
        return result

    def vmrag(self, *arguments: str, code: int | None = 0) -> Done:
        """In this process."""
        self._note(("vmrag", *arguments))
        return self.here.vmrag(*arguments, code=code)

    def kill(self, seconds: float, *arguments: str) -> Done:
        """A `vmrag` of its own that dies by SIGKILL, unless it is done before; what git's killed
        children leave is removed.
        """
        self._note(("timeout", "-s", "KILL", f"{seconds:.3f}", "vmrag", *arguments))
        result = run_killed(self.here, seconds, *arguments)
        self.remove_locks()
        return result

    def remove_locks(self) -> None:
        for lock in (self.git_dir / "index.lock", self.common / "config.lock"):
            if lock.exists():
                self._note(("rm", os.path.relpath(lock, self.here.top)))
                lock.unlink()

    def write(self, name: str, text: str) -> None:
        self._note(("mkdir", "-p", os.path.dirname(name) or "."))  # noqa: PTH120
        self._note(("printf", "%s", text, ">", name))
        self.here.write(name, text)

    def go(self, project: Project) -> None:
        """To another work tree."""
        self.here = project
        self._note(("cd", f"../{project.top.name}"))

    def name(self, commits: Collection[str]) -> None:
        """Refer to commits by variable: hashes differ when a user pastes the commands."""
        for back, commit in enumerate(self.ask("rev-list", "--first-parent", "HEAD")):
            if commit in commits:
                self.names[commit] = f"c{len(self.names)}"
                self.script.append(f"{self.names[commit]}=$(git rev-parse HEAD~{back})")

    def _note(self, arguments: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        words = [f"{name}={shlex.quote(value)}" for name, value in (env or {}).items()]
        words += [self._word(argument) for argument in arguments]
        self.script.append(" ".join(words))

    def _word(self, text: str) -> str:
        if text in self.names:
            return f"${self.names[text]}"
        return text if text == ">" else shlex.quote(text)

    # -- what there is -----------------------------------------------------------------------------

    def ask(self, *arguments: str) -> list[str]:
        """The lines of a git command that changes nothing; it is not written down."""
        return self.here.git(*arguments).splitlines()

    @property
    def git_dir(self) -> Path:
        return Path(self.ask("rev-parse", "--path-format=absolute", "--git-dir")[0])

    @property
    def common(self) -> Path:
        return self.main.top / ".git"

    @property
    def branch(self) -> str | None:
        head = (self.git_dir / "HEAD").read_text().strip()
        return head.removeprefix("ref: refs/heads/") if head.startswith("ref:") else None

    @property
    def head(self) -> str:
        return self.ask("rev-parse", "HEAD")[0]

    @property
    def pin(self) -> str:
        """The revision that the work tree's pin names."""
        return json.loads((self.here.top / PIN).read_text())["dolt_commit"]

    @property
    def clean(self) -> bool:
        return not self.ask("status", "--porcelain")

    @property
    def unmerged(self) -> bool:
        return bool(self.ask("ls-files", "-u"))

    def branches(self) -> dict[str, str | None]:
        """Code branches, with the work tree that has them checked out."""
        lines = self.ask("for-each-ref", "--format=%(refname:short)%09%(worktreepath)", "refs/heads")
        return {name: tree or None for name, _, tree in (line.partition("\t") for line in lines)}

    def commits(self) -> list[str]:
        """Everything that refs and reflogs reach, newest first."""
        return self.ask("rev-list", "--all", "--reflog", "--topo-order")

    def parents(self, commit: str) -> list[str]:
        return self.ask("rev-list", "--parents", "-1", commit)[0].split()[1:]

    def merge_bases(self, one: str, other: str) -> list[str]:
        return self.here.git("merge-base", "--all", one, other, check=False).split()

    def pins(self, commits: Sequence[str]) -> dict[str, str]:
        """The revision that each commit pins."""
        result = subprocess.run(
            ["git", "cat-file", "--batch"],
            cwd=self.here.top,
            input="".join(f"{commit}:{PIN}\n" for commit in commits).encode(),
            capture_output=True,
            check=True,
        )
        found_values, rest = {}, result.stdout
        for commit in commits:
            header, _, rest = rest.partition(b"\n")
            size = int(header.split()[2])
            found_values[commit] = json.loads(rest[:size])["dolt_commit"]
            rest = rest[size + 1 :]
        return found_values

    def claims(self) -> list[tuple[str, str]]:
        """(code branch, KB branch) as git's configuration has them."""
        result = self.here.run("config", "--null", "--get-regexp", r"^branch\..*\.vmragbranch$")
        pairs = (entry.partition("\n") for entry in result.stdout.split("\0") if entry)
        return [(key.removeprefix("branch.").removesuffix(".vmragbranch"), kb) for key, _, kb in pairs]

    @contextlib.contextmanager
    def engine(self) -> Iterator[Engine]:
        engine = opening.open_engine(self.common / "vmrag" / "kb")
        try:
            yield engine
        finally:
            engine.close()

    def docs(self, *places: At) -> list[Docs]:
        """Return the documents of the knowledge base at revisions and in working sets."""
        with self.engine() as engine:
            return [{document.key: document.content for document in engine.read_documents(place)} for place in places]

    def memories(self) -> dict[str, Memory]:
        """Remembered changes by KB branch, as `merging.replay` describes them."""
        with self.engine() as engine:
            heads = {branch.name: branch.head for branch in engine.list_branches()}
            return {
                name.removeprefix(ASIDE_PREFIX).removesuffix(CARRIED_SUFFIX): self._memory(engine, head)
                for name, head in heads.items()
                if name.startswith(ASIDE_PREFIX) and name.endswith(CARRIED_SUFFIX)
            }

    def _memory(self, engine: Engine, revision: str) -> Memory:
        base, shown = engine.read_revision(revision).parents
        docs, visible = (
            {document.key: document.content for document in engine.read_documents(at)} for at in (revision, shown)
        )
        return Memory(base, docs, engine.read_revision(shown).parents[0], visible)

    def kb_base(self, one: str, other: str, others: Sequence[str]) -> Docs | None:
        """The documents of the engine's own merge base, if that contains all these revisions."""
        with self.engine() as engine:
            base = engine.merge_base(one, other)
            assert base is not None
            newer = all(engine.is_ancestor(other, base) for other in others)
        return self.docs(base)[0] if newer else None

    def state(self) -> Any:
        """Return the state that a rejected command must keep."""
        with self.engine() as engine:
            return engine.list_branches(), self.claims(), self.ask("status", "--porcelain"), self.pin, self.head

    def holds(self, kb_branch: str) -> Docs:
        """The working set of a KB branch."""
        return self.docs(WorkingSet(kb_branch))[0]


def listing(result: Done) -> dict[Key, tuple[str, str | None]]:
    """Parse `vmrag list --json`: content hash and mark of each document."""
    rows = result.json["documents"]
    return {(row["collection"], row["doc_id"]): (row["content_hash"], row["uncommitted"]) for row in rows}


def hook_killer(folder: Path) -> Path:
    """Return an interpreter for `vmrag install` that dies on request."""
    path = folder / "python"
    path.write_text(HOOK_KILLER.format(python=sys.executable))
    path.chmod(0o755)
    return path


def stock(top: Path, killer: Path) -> Real:
    """A repository with three documents in two collections, hooks installed; HEAD on `main`."""
    top.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["git", "init", "-q", str(top)], check=True)
    real = Real(top, [f"git init -q {top.name} && cd {top.name}"])
    real.write(".vmrag.yaml", "embedding:\n  model: hash\n")
    real.write(".gitignore", "in/\n/c.txt\n/d.txt\n")
    real.git("config", "merge.renames", "false")  # our files are so small that any two may look alike
    real.vmrag("init", "--knowledge-base", "--no-sources")
    real.vmrag("install")
    (real.common / "vmrag" / "interpreter").write_text(f"{killer}\n")
    return real
