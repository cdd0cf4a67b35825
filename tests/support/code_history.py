"""Code whose commits pin revisions: histories made by git's plumbing, for what looks at pins."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.knowledge import AUTHOR, DATE, doc
from tests.support.repos import isolate
from tests.support.templates import build_once, copy_tree
from tests.support.terminal import Project, new_project
from vmrag_link import pin as pins
from vmrag_link.engines.base import Write
from vmrag_link.pin import Pin
from vmrag_link.progress import QUIET
from vmrag_link.workspace import Workspace

NUMBERS = itertools.count()
"""In the messages of commits, which would be the same commit otherwise."""


class World(Project):
    """`old` - `base`, which `main` pins, and what is written on top: revisions by the engine,
    commits of the code by hand.
    """

    @contextlib.contextmanager
    def opened(self) -> Iterator[Workspace]:
        workspace = Workspace.open(self.top, QUIET)
        yield workspace
        workspace.close()

    def on(self, revision: str, *, joining: str | None = None, message: str = "m", **texts: str) -> str:
        """A revision on top of another one."""
        rows = Write(put_documents=[doc(name, text, collection="handbook") for name, text in texts.items()])
        with self.opened() as workspace:
            return workspace.engine.commit_onto(
                revision, [rows], joining=joining, message=message, author=AUTHOR, date=DATE
            )

    def code(self, pin: str | bytes | None, *parents: str, mode: str = "100644", kind: str = "blob") -> str:
        """Commit code with this pin: a revision, the bytes of a file (or an object of `mode` and
        `kind`), or none.
        """
        name = ""
        if kind == "blob" and pin is not None:
            content = pin if isinstance(pin, bytes) else pin_of(pin)
            name = self.git("hash-object", "-w", "--stdin", stdin=content.decode())
        elif pin is not None:
            name = pin if isinstance(pin, str) else pin.decode()
        tree = self.git("mktree", "--missing", stdin=f"{mode} {kind} {name}\t.dolt-version\n" if name else "")
        return self.git("commit-tree", tree, *[f"-p{parent}" for parent in parents], "-m", f"commit {next(NUMBERS)}")

    def moves(self, message: str, **texts: str) -> str:
        """A revision on top of what is pinned, pinned by a commit on the branch; returns the
        revision.
        """
        revision = self.on(self.pinned, **texts)
        self.commit(message, pin=pin_of(revision))
        return revision

    def revision(self, ref: str) -> str:
        return json.loads(self.git("show", f"{ref}:.dolt-version"))["dolt_commit"]

    def verified(self, *arguments: str) -> dict[str, Any]:
        result = self.vmrag("verify", *arguments, "--json", code=None)
        report: dict[str, Any] = result.json
        errors = [finding for finding in report["findings"] if finding["level"] == "error"]
        assert result.code == (1 if errors else 0)
        return report

    def found(self, *arguments: str) -> list[tuple[str, str]]:
        """Level and code of each finding."""
        return [(finding["level"], finding["code"]) for finding in self.verified(*arguments)["findings"]]

    def only(self, *arguments: str) -> dict[str, Any]:
        (finding,) = self.verified(*arguments)["findings"]
        return finding


def pin_of(revision: str, *, date: str = DATE) -> bytes:
    return pins.format_pin(Pin("git:", "main", revision, date))


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_once(tmp_path_factory, "verify", lambda folder: build(folder / "project")) / "project"


def build(top: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VMRAG", "0")
        new_project(top)
        world = World(top)
        world.vmrag("init", "--knowledge-base", "--no-sources")
        for name in ("old", "base"):
            world.vmrag("add", "-", "--collection", "handbook", "--id", name, stdin=name)
            world.vmrag("commit", "-m", name)
            world.git("add", "-A")
            world.git("commit", "--no-verify", "-qm", name)
            world.git("tag", name)


@pytest.fixture
def world(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return copied(built, tmp_path, monkeypatch)


def copied(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    isolate(monkeypatch, tmp_path / "home")
    monkeypatch.setenv("VMRAG", "0")  # without hooks and without the merge driver
    world = World(copy_tree(template, tmp_path / "project"))
    world.git("update-index", "-q", "--refresh")
    return world


@pytest.fixture(scope="session")
def forked_once(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    def build(folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("VMRAG", "0")
            world = World(copy_tree(built, folder / "project"))
            world.git("switch", "-qc", "side")
            world.moves("side 1", b="B.")
            world.moves("side 2", more="More.")
            world.git("switch", "-q", "main")
            world.moves("main", a="A.")

    return build_once(tmp_path_factory, "verify-forked", build) / "project"


@pytest.fixture
def forked(forked_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """`side` and `main` have both moved since `base`; HEAD on `main`."""
    return copied(forked_once, tmp_path, monkeypatch)
