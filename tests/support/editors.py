"""Editors for tests: shell scripts that get the path of a file, as git starts them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

MakeEditor = Callable[[str], dict[str, str]]


@pytest.fixture
def make_editor(tmp_path: Path) -> MakeEditor:
    """Write an editor whose shell commands edit "$1"; returns the environment that names it."""

    def make(body: str) -> dict[str, str]:
        path = tmp_path / "an editor"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return {"GIT_EDITOR": f"'{path}'"}

    return make
