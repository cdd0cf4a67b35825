"""Which engine a clone fetches, where nothing is here yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import dolt
from tests.support.repos import isolate
from tests.support.terminal import Project, new_project


def test_branch_that_pins_nothing_yet_finds_the_engine_that_others_pin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dolt.require()
    isolate(monkeypatch, tmp_path / "home")
    ada = new_project(tmp_path / "ada")
    ada.git("init", "-q", "--bare", str(tmp_path / "hub"))
    ada.git("remote", "add", "origin", str(tmp_path / "hub"))
    ada.commit("a start")
    ada.git("push", "-q", "origin", "main")
    ada.git("switch", "-q", "-c", "other")
    ada.vmrag("init", "--knowledge-base", "--no-sources", "--engine", "dolt")
    revision = ada.record("first", faq="A kettle boils water.")
    ada.push("origin", "other")
    ada.git("clone", "-q", "-b", "main", str(tmp_path / "hub"), str(tmp_path / "bob"))
    bob = Project(tmp_path / "bob")
    assert not (bob.top / ".dolt-version").exists()

    bob.vmrag("clone")
    bob.git("switch", "-qf", "other")
    assert (bob.pinned, bob.texts()) == (revision, {"faq.md": "A kettle boils water."})
