"""Branches of a hosted repository whose knowledge a merge button drops, and their landing on
`main`.

A test module takes `people.shared` and the fixtures of this one.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import people
from tests.support.people import User, World
from tests.support.repos import Repo, isolate
from tests.support.templates import build_once


class Landed(NamedTuple):
    """A push to `main`, and the commit in it that dropped something."""

    before: str
    after: str
    dropping: str


@pytest.fixture(scope="session")
def parted(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_once(tmp_path_factory, "dropping", lambda top: split_history(people.copy_world(shared, top)))


@pytest.fixture
def world(parted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    isolate(monkeypatch, tmp_path / "home")
    return people.copy_world(parted, tmp_path / "world")


def split_history(world: World) -> None:
    """All pushed with their knowledge: `main` changed rest.md, `clash` did so differently, `topic`
    added topic.md.
    """
    ada = world.ada
    ada.git("switch", "-q", "-c", "topic")
    ada.write_document("topic.md", "Only the topic knows of otters.")
    ada.push("origin", "topic")
    ada.git("switch", "-q", "-c", "clash", "main")
    ada.write_document("rest.md", "# Rest\n\nSleep at dusk.\n")
    ada.push("origin", "clash")
    ada.git("switch", "-q", "main")
    ada.write_document("rest.md", "# Rest\n\nSleep at noon.\n")
    ada.push("origin", "main")


def squash(ada: User, branch: str = "topic") -> Landed:
    """The branch as one commit on `main`, with its own pin: what `main` had pinned is dropped."""
    before = ada.git("rev-parse", "main")
    ada.git("switch", "-q", "--detach", "main")
    ada.git("checkout", "-q", branch, "--", "docs", ".dolt-version")
    ada.git("commit", "-q", "--no-verify", "-m", f"Squashed {branch} (#7)")
    return land(ada, before)


def resolve_in_the_web_editor(ada: User) -> Landed:
    """`main` merged into the branch, the conflict in the pin decided for the branch; then the
    button.
    """
    before = ada.git("rev-parse", "main")
    ada.git("switch", "-q", "--detach", "topic")
    ada.git("checkout", "-q", "main", "--", "docs/rest.md")
    tree = ada.git("write-tree")
    edited = ada.git("commit-tree", tree, "-p", "topic", "-p", "main", "-m", "Merge branch 'main' into topic")
    merged = ada.git("commit-tree", tree, "-p", "main", "-p", edited, "-m", "Merge pull request #7")
    ada.git("reset", "-q", "--hard", merged)
    return land(ada, before)._replace(dropping=edited)


def land(ada: User, before: str) -> Landed:
    """Put Ada's HEAD on the hosted `main`, and leave hers where it was."""
    after = ada.git("rev-parse", "HEAD")
    ada.git("push", "-q", "--no-verify", "origin", f"{after}:refs/heads/main")
    ada.git("switch", "-q", "main")
    return Landed(before, after, after)


def protect(hub: Repo, name: str = "main") -> None:
    """A protected branch, as far as a bare repository has one: a hook that refuses pushes."""
    said = "GH006: Protected branch update failed."
    hook = hub.write(
        "hooks/update", f'#!/bin/sh\ntest "$1" != "refs/heads/{name}" || {{ echo "{said}" >&2; exit 1; }}\n'
    )
    hook.chmod(0o755)


def documents(world: World, commit: str) -> dict[str, str]:
    """Return the documents of a new clone at a commit."""
    reader = world.join(f"reader-{len(list(world.top.iterdir()))}")
    reader.git("checkout", "-q", commit)
    return reader.texts()
