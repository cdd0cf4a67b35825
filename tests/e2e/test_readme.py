"""The commands of README.md, typed from top to bottom in one repository."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.readme import document
from tests.support.mcp import TextAnswer, Tools
from tests.support.repos import isolate, make_repo
from vmrag_mcp.options import ToolChoice

README = Path(__file__).parents[2] / "README.md"


def find_commands(heading: str) -> str:
    """Return the shell commands of a section, and those that it shows with their output."""
    section = README.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    shown = "".join(re.findall(r"```console\n(.*?)```", section, re.DOTALL))
    typed = [line.removeprefix("$ ") for line in shown.splitlines() if line.startswith("$ ")]
    return "".join([*re.findall(r"```sh\n(.*?)```", section, re.DOTALL), *(f"{line}\n" for line in typed)])


def test_readme_commands_work_in_one_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isolate(monkeypatch, tmp_path / "home")
    repo = make_repo(tmp_path / "project")
    repo.commit(
        "begin", **{"docs/timeouts.md": "# Timeouts\n\nEach request has a time limit.\n", "README.md": "# Tool\n"}
    )
    script = "set -eu\n" + "".join(map(find_commands, ["Try it", "Notes", "Stored documents and the pin"]))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    result = subprocess.run(
        ["bash"],
        cwd=repo.top,
        input=script,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    first_answer, *_, last_answer = f"\n{result.stdout}".split("\n1. ")[1:]
    section = README.read_text().split("\n## Notes\n")[1].split("```console\n")[1].split("```")[0]
    shown = "".join(f"{line}\n" for line in section.splitlines() if not line.startswith("$ "))
    assert re.sub(r"\b[0-9a-f]{7}\b", "HASH", shown) in re.sub(r"\b[0-9a-f]{7}\b", "HASH", result.stdout)
    agents = README.read_text().split("\n## Agents\n")[1].split("\n## ")[0]
    answer = Tools(repo.top, chosen=ToolChoice("essential"))("search", query="why Pagefind", collection="notes")
    assert TextAnswer(agents.split("````text\n")[1].split("````")[0]).shown == answer.shown
    assert re.search(r"\ncommit \w{7}.*: 1 passage\.", answer)
    assert "docs/timeouts.md" in first_answer
    assert "30 seconds" in last_answer
    assert "5 seconds" not in last_answer
    assert repo.git("ls-tree", "--name-only", "main", ".vmrag.yaml", ".dolt-version").split() == [
        ".dolt-version",
        ".vmrag.yaml",
    ]


def test_readme_pictures_match_the_output_of_commands() -> None:
    lines = document.play()
    for theme, path in document.PICTURES.items():
        assert path.read_text() == document.draw(lines, theme), "run: python -m tests.readme.document"


def test_readme_has_at_most_120_lines() -> None:
    assert len(README.read_text().splitlines()) <= 120
