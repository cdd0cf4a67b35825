"""Repositories and knowledge bases that programs of former versions wrote; `tests/data/README.md` says what is there."""

from __future__ import annotations

import functools
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

from tests.support.repos import Repo
from tests.support.terminal import Project

DATA = Path(__file__).parents[1] / "data"
PLACE = b"@WORLD@"


@dataclass(frozen=True)
class Formerly:
    """What was written by version 1 of every format."""

    top: Path

    @property
    def hub(self) -> Repo:
        return Repo(self.top / "code.git")

    @property
    def shelf(self) -> str:
        """The URL of the `file://` remote."""
        return f"file://{self.top / 'shelf.doltlite'}"

    def person(self, name: str) -> Project:
        return Project(self.top / name)

    ada = functools.cached_property(lambda self: self.person("ada"))
    bob = functools.cached_property(lambda self: self.person("bob"))
    carol = functools.cached_property(lambda self: self.person("carol"))
    dan = functools.cached_property(lambda self: self.person("dan"))


def unpack(top: Path) -> Formerly:
    """Unpack it below `top`, which does not exist yet; call `repos.isolate` first."""
    top.mkdir()
    with tarfile.open(DATA / "formats-1.tar.xz") as archive:
        archive.extractall(top, filter="tar")
    for path in top.glob("*/.git/vmrag/journal/*.json"):
        path.write_bytes(path.read_bytes().replace(PLACE, bytes(top)))
    return Formerly(top)


def checked_out(repo: Repo, commit: str) -> None:
    """As a program that knows nothing of us checks code out."""
    subprocess.run(["git", "-c", "core.hooksPath=/dev/null", "checkout", "-q", commit], cwd=repo.top, check=True)
