"""Two people, each with a home directory, a name and a clone of their own, and the bare repository
between them.

A test module takes the fixtures with `shared, world = people.shared, people.world`.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.repos import ENGINE, ON, UNTENDED, Repo, isolate, make_repo
from tests.support.templates import build_once, copy_tree
from tests.support.terminal import DOCUMENTS, Done, Project, new_project

DATA = {"doltlite": "refs/vmrag/data", "dolt": "refs/vmrag/dolt"}[ENGINE]
SETTINGS = "embedding:\n  model: hash\n"
CONFIG = """[user]
	name = {name}
	email = {name}@example.com
[init]
	defaultBranch = main
[advice]
	detachedHead = false
[protocol "file"]
	allow = always
[core]
	sshCommand = {ssh}
"""


@dataclass(frozen=True)
class User(Project):
    """A person at their own machine."""

    home: Path

    @contextlib.contextmanager
    def _here(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HOME", str(self.home))
            patch.setenv("XDG_CONFIG_HOME", str(self.home / "xdg"))
            patch.setenv("GIT_CONFIG_GLOBAL", str(self.home / "gitconfig"))
            yield

    def run(self, *arguments: str, env: dict[str, str] | None = None, stdin: str = ""):
        with self._here():
            return super().run(*arguments, env=env, stdin=stdin)

    def vmrag(self, *arguments: str, code: int | None = 0, stdin: str = "", env: dict[str, str] | None = None) -> Done:
        with self._here():
            return super().vmrag(*arguments, code=code, stdin=stdin, env=env)

    def start(self, *arguments: str, stdin: str = "", env: dict[str, str] | None = None) -> Done:
        with self._here():
            return super().start(*arguments, stdin=stdin, env=env)

    def run_quietly(self, *arguments: str) -> Done:
        with self._here():
            return super().run_quietly(*arguments)

    def said(self, *arguments: str, code: int = 0) -> list[str]:
        """Our lines while git runs, with its hooks."""
        result = self.run(*arguments, env=ON)
        assert result.returncode == code, result
        return [line for line in result.stderr.splitlines() if line.startswith("vmrag: ")]

    def write_document(self, name: str, text: str, *, message: str = "") -> str:
        """Edit a document, import it, commit the knowledge and the code; returns the revision."""
        self.write(f"docs/{name}", text)
        self.vmrag("import", "docs", "--collection", "handbook", "--copy", "--base", "docs")
        self.vmrag("commit", "-m", message or f"{name}: {text[:20]}")
        self.git("add", "-A")
        self.git("commit", "-q", "--no-verify", "-m", message or name)
        return self.pinned

    def fingerprint(self) -> str:
        return self.vmrag("fingerprint").out.strip()


@dataclass(frozen=True)
class World:
    """`hub` is the bare repository from which both clone."""

    top: Path

    @property
    def hub(self) -> Repo:
        return Repo(self.top / "code.git")

    @property
    def ada(self) -> User:
        return User(self.top / "ada", self.top / "home-ada")

    def join(self, name: str, *options: str, url: str = "") -> User:
        """Clone as a new user, without further steps."""
        user = add_member(self, name)
        user.top.mkdir()
        user.git("clone", "-q", *options, url or str(self.hub.top), ".")
        return user

    def bare(self, name: str) -> Repo:
        """Another bare repository, empty."""
        made = make_repo(self.top / name)
        shutil.rmtree(made.top)
        made.top.mkdir()
        made.git("init", "-q", "--bare")
        return made

    def holds(self, revision: str, *, at: Repo | None = None) -> bool:
        """Return whether the knowledge base on a bare repository reaches a revision, as seen by a
        new clone.
        """
        looker = self.top / "looker"
        shutil.rmtree(looker, ignore_errors=True)
        user = User(looker, _home(self.top, "looker"))
        user.top.mkdir()
        user.git("clone", "-q", str((at or self.hub).top), ".")
        user.vmrag("clone", "origin", code=None)
        return user.vmrag("log", revision, "-n", "1", code=None).code == 0


def add_member(world: World, name: str) -> User:
    """Return a user of this world, with a home directory."""
    return User(world.top / name, _home(world.top, name))


def _home(top: Path, name: str) -> Path:
    home = top / f"home-{name}"
    home.mkdir(exist_ok=True)
    (home / "gitconfig").write_text(CONFIG.format(name=name, ssh=top / "ssh") + UNTENDED)
    return home


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ada has begun, imported three documents, and pushed them."""
    return build_once(tmp_path_factory, "people", build)


def build(top: Path, *options: str) -> None:
    """`options` of `vmrag init`."""
    world = World(top)
    world.bare("code.git")
    ada = world.join("ada")
    ada.write(".vmrag.yaml", SETTINGS)
    for name, text in DOCUMENTS.items():
        ada.write(f"docs/{name}", text)
    ada.vmrag("init", "--knowledge-base", "--no-sources", *options)
    ada.vmrag("import", "docs", "--collection", "handbook", "--copy", "--base", "docs")
    ada.vmrag("commit", "-m", "first")
    ada.git("add", "-A")
    ada.git("commit", "-q", "--no-verify", "-m", "first")
    ada.git("push", "-q", "-u", "origin", "main")


@pytest.fixture
def world(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A copy of it."""
    isolate(monkeypatch, tmp_path / "home")
    return copy_world(shared, tmp_path / "world")


def copy_world(source: Path, top: Path) -> World:
    """The same world at another place."""
    made = World(copy_tree(source, top))
    for home in top.glob("home-*"):
        user = add_member(made, home.name.removeprefix("home-"))
        if user.top.is_dir():
            user.git("remote", "set-url", "origin", str(made.hub.top))
    return made


@pytest.fixture
def newcomer(world: World) -> Project:
    """Return a git repository without remotes and without a knowledge base."""
    project = new_project(world.top / "newcomer")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "code")
    return project
