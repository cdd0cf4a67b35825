"""A prepared repository, and what an operation does in a copy of it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.operations.table import Operation
from tests.support.compare import Contents
from tests.support.terminal import Project, new_project
from vmrag_link.engines.base import Engine
from vmrag_link.git import plumbing
from vmrag_link.models import At, WorkingSet
from vmrag_link.progress import QUIET
from vmrag_link.sync import binding as bindings
from vmrag_link.sync.binding import Binding
from vmrag_link.sync.target import Trigger, read_trigger
from vmrag_link.workspace import Workspace

OURS = "vmrag: "
WITHOUT_HOOKS = {"VMRAG": "0"}
STATE = "git status --porcelain --branch; git rev-parse HEAD; git for-each-ref; git stash list"
REFRESH = "git update-index -q --refresh"
"""After a copy, whose files have other inodes than git has written down."""

COLLECTION = "handbook"
PAGES = {
    "setup.md": "# Setup\n\nInstall the program with pip.\n",
    "rest.md": "# Rest\n\nTake a rest, and sleep well.\n",
    "limits.md": "# Limits\n\nRequests time out after thirty seconds.\n",
    "tls.md": "# TLS\n\nCertificates are renewed every month.\n",
    "winter.md": "# Winter\n\nIn winter the garden kettle hangs in the harbour.\n",
    "anchor.md": "# Anchor\n\nAn anchor and a lantern.\n",
}
NEVER_REST = {"rest.md": "# Rest\n\nNever rest.\n"}
NO_LIMITS = {"limits.md": "# Limits\n\nRequests never time out.\n"}
SECOND = {
    "limits.md": "# Limits\n\nRequests time out after five seconds.\n",
    "faq.md": "# FAQ\n\nA frequent question.\n",
}
DRAFTS = {name: {f"draft-{name}.md": f"# Draft\n\nWritten on {name}.\n"} for name in ("main", "topic")}
"""The uncommitted document of each of these branches."""

MAIN = PAGES | SECOND


def _without_tls(pages: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in pages.items() if name != "tls.md"}


CONTENTS = {
    "first": PAGES,
    "main": MAIN,
    "main+draft": MAIN | DRAFTS["main"],
    "feature": _without_tls(PAGES | NEVER_REST),
    "main+feature": _without_tls(MAIN | NEVER_REST),
    "rival": PAGES | NO_LIMITS,
    "main+rival": MAIN | NO_LIMITS,
}
"""Contents that may be pinned: on a branch, or after its merge into `main` (with `rival`: their
side of the conflict).
"""


@dataclass(frozen=True)
class World:
    """`root/project` and its surroundings. `revisions`: what the branches pin. `built`: fresh
    indexes, for `compare`.
    """

    root: Path
    revisions: dict[str, str]
    built: dict[Any, Contents] = field(default_factory=dict)


def build(root: Path) -> World:
    """Code branches, each of which has one file of code per commit of code, and their knowledge:

        main     first - second (limits modified, faq added) - code
        same     … main - code
        topic    first - code - code
        behind   first
        feature  first - feature (rest modified, tls removed) - code
        rival    first - rival (limits modified otherwise than in second)
        plain    a root of its own, with neither pin nor settings

    HEAD is on main; main and topic have an uncommitted document. Beside it: `origin.git`, which has
    all of them but `rival`;
    `template`, which `vmrag init --template` has made; `outer`, a repository with a clone as its
    submodule `inner`, at main, and at first
    in the commit before.
    """
    project = new_project(root / "project")
    for name, text in PAGES.items():
        project.write(f"docs/{name}", text)
    project.write(".gitignore", "docs/\n")
    project.write("a.txt", "1\n")
    project.write("b.txt", "1\n")
    for sample in (project.top / ".git/hooks").iterdir():
        sample.unlink()
    project.vmrag("init", "--knowledge-base", "--no-sources")
    project.vmrag("import", "docs", "--collection", COLLECTION, "--base", "docs")
    revisions = {"first": project.ask("commit", "-m", "first")["revision"]}
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "first")
    project.git("tag", "first")
    project.git("branch", "behind")

    project.git("switch", "-q", "-c", "topic", env=WITHOUT_HOOKS)
    project.commit("topic: one", **{"one.txt": "1\n"})
    project.commit("topic: two", **{"two.txt": "2\n"})
    _store(project, DRAFTS["topic"])

    project.git("switch", "-q", "-c", "feature", "first")
    _store(project, NEVER_REST)
    project.drop("tls.md")
    revisions["feature"] = project.record("feature")
    project.commit("feature: code", **{"b.txt": "2\n"})

    project.git("switch", "-q", "-c", "rival", "first")
    _store(project, NO_LIMITS)
    revisions["rival"] = project.record("rival")

    project.git("switch", "-q", "main")
    _store(project, SECOND)
    revisions["main"] = project.record("second")
    project.commit("code", **{"a.txt": "2\n"})
    project.git("branch", "same")

    project.git("switch", "-q", "same", env=WITHOUT_HOOKS)
    project.commit("same: code", **{"b.txt": "3\n"})
    project.git("switch", "-q", "--orphan", "plain", env=WITHOUT_HOOKS)
    project.commit("plain", **{"plain.txt": "1\n"})
    project.git("switch", "-q", "main", env=WITHOUT_HOOKS)
    _store(project, DRAFTS["main"])
    _surround(project)
    shutil.rmtree(project.top / "docs")
    project.git("gc", "-q", "--prune=now")  # few files: every operation copies them twice
    return World(root, revisions)


def _store(project: Project, pages: Mapping[str, str]) -> None:
    for name, text in pages.items():
        project.put(name, text, collection=COLLECTION)


def _surround(project: Project) -> None:
    project.git("clone", "-q", "--bare", "--template=", ".", "../origin.git")
    origin = Project(project.top.parent / "origin.git")
    origin.git("branch", "-q", "-D", "rival")
    origin.git("remote", "remove", "origin")
    project.git("remote", "add", "origin", "../origin.git")
    project.git("fetch", "-q", "origin")
    project.vmrag("push", "--all")

    project.vmrag("init", "--knowledge-base", "--no-sources", "--template", "../template")

    outer = Project(project.top.parent / "outer")
    outer.top.mkdir()
    inner = Project(outer.top / "inner")
    outer.git("init", "-q", "--template=")
    outer.git("submodule", "--quiet", "add", "../origin.git", "inner")
    inner.git("checkout", "-q", "first")
    outer.git("commit", "-q", "-a", "-m", "first")
    inner.git("checkout", "-q", "main")
    outer.git("commit", "-q", "-a", "-m", "main")
    inner.vmrag("install")
    inner.vmrag("sync")


@dataclass(frozen=True)
class Step:
    """Results of one command: `err` without vmrag's lines, and `ours` with only these."""

    command: str
    code: int
    out: str
    err: str
    ours: tuple[str, ...]


class Stand(NamedTuple):
    """Position of a worktree according to its files.

    `written` changes after each applied change.
    """

    trigger: Trigger
    applied: Trigger | None
    written: int
    bound: Binding | None


class Copy:
    """A copy of the prepared repository, for one operation."""

    def __init__(self, root: Path, operation: Operation) -> None:
        self.root = root
        self.project = Project(root / "project")
        self.operation = operation

    @classmethod
    def prepared(cls, world: World, root: Path, operation: Operation) -> Copy:
        """Prepare a copy for the operation, in sync."""
        copy = cls._of(world.root, root, operation)
        if operation.start != "main":
            copy.project.git("checkout", "-q", operation.start, env=WITHOUT_HOOKS)
        for result in copy.run(operation.before, WITHOUT_HOOKS):
            assert result.code == 0, result
        copy.project.vmrag("sync", code=None)
        return copy

    def twin(self, root: Path) -> Copy:
        return self._of(self.root, root, self.operation)

    @classmethod
    def _of(cls, source: Path, root: Path, operation: Operation) -> Copy:
        root.mkdir()
        named = " ".join(operation.commands)
        expected = [source / name for name in ("origin.git", "template", "outer") if name.removesuffix(".git") in named]
        subprocess.run(["cp", "-a", source / "project", *expected, root], check=True)
        copy = cls(root, operation)
        copy.project.run(*REFRESH.split()[1:])
        return copy

    @property
    def where(self) -> Project:
        """The work tree to look at afterwards."""
        return Project(Path(os.path.normpath(self.project.top / self.operation.where)))

    def run(self, commands: Sequence[str], env: Mapping[str, str]) -> list[Step]:
        """Type shell commands in `project`; `vmrag …` runs in this process."""
        return [self._run(command, env) for command in commands]

    def _run(self, command: str, env: Mapping[str, str]) -> Step:
        if command.startswith("vmrag "):
            result = self.project.vmrag(*command.split()[1:], code=None)
            return Step(command, result.code, "", "", ())
        ran = self._shell(command, self.project, env)
        lines = self._named(ran.stderr).splitlines(keepends=True)
        ours = tuple(line.rstrip("\n") for line in lines if line.startswith(OURS))
        theirs = "".join(line for line in lines if not line.startswith(OURS))
        return Step(command, ran.returncode, self._named(ran.stdout), theirs, ours)

    def state(self) -> str:
        """Return git's state of the working tree and its refs."""
        return self._named(self._shell(STATE, self.where, {}).stdout)

    def _named(self, text: str) -> str:
        return text.replace(str(self.root), "ROOT")

    @staticmethod
    def _shell(command: str, project: Project, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", command],
            cwd=project.top,
            env=os.environ | env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def stand(self) -> Stand | None:
        """None before there is a work tree."""
        if not any((self.where.top / name).exists() for name in (".git", ".jj")):
            return None
        places = plumbing.locate_work_tree(self.where.top)
        written = places.applied.stat().st_mtime_ns if places.applied.exists() else 0
        return Stand(read_trigger(places), bindings.read_applied(places), written, bindings.read_binding(places))

    def uncommitted(self) -> dict[str, dict[str, str | None]]:
        """The uncommitted documents by KB branch, None for removed ones."""
        with self._engine() as engine:
            result = {
                branch.name: engine.diff(branch.head, WorkingSet(branch.name))
                for branch in engine.list_branches()
                if branch.dirty
            }
        return {
            name: {change.key[1]: change.after.content if change.after else None for change in difference.documents}
            for name, difference in result.items()
        }

    def texts(self, at: At) -> dict[str, str]:
        """Return the texts of the knowledge base of `project`."""
        with self._engine() as engine:
            return {document.doc_id: document.content for document in engine.read_documents(at)}

    def head(self, kb_branch: str) -> str:
        with self._engine() as engine:
            branch = engine.find_branch(kb_branch)
        assert branch
        return branch.head

    @contextlib.contextmanager
    def _engine(self) -> Iterator[Engine]:
        workspace = Workspace.open(self.project.top, QUIET)
        try:
            yield workspace.engine
        finally:
            workspace.close()


def hooks_run(trace: Path) -> tuple[str, ...]:
    """The hooks that git started, each once, in order (`trace`: what GIT_TRACE2_EVENT wrote)."""
    events = map(json.loads, trace.read_text().splitlines()) if trace.exists() else ()
    return tuple(dict.fromkeys(event["hook_name"] for event in events if event.get("child_class") == "hook"))
