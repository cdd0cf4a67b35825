"""Writes what the commands of docs/libraries.md print: `python -m tests.libraries.document`.

Ids depend on library and path alone. A revision holds the time, so what stands for one depends on
its place.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import tempfile
from pathlib import Path

import pytest

from tests.support.repos import isolate
from tests.support.terminal import Project, new_project

PAGE = Path(__file__).parents[2] / "docs" / "libraries.md"

GUIDE = "# Deploying\n\nA release is deployed on Tuesdays.\n\nAsk Ada for the key of the server.\n"
CHANGED = GUIDE.replace("Tuesdays", "Thursdays")
FAQ = "<title>Questions</title><h1>Questions</h1><p>Backups are kept for thirty days.</p>"

STEPS = (
    'vmrag import docs --library handbook --metadata \'{"team": "core"}\'',
    'vmrag commit -m "The handbook"',
    'git commit -qam "The handbook"',
    "git switch -qc thursdays",
    "sed -i s/Tuesdays/Thursdays/ docs/deploying.md",
    "vmrag import docs --library handbook",
    "vmrag diff",
    'vmrag commit -m "Deploy on Thursdays"',
    'git commit -qam "Deploy on Thursdays"',
    'vmrag query "when is a release deployed" -k 1',
    "git switch -q main",
    'vmrag query "when is a release deployed" -k 1',
)


def page() -> str:
    """docs/libraries.md with what the program prints today."""
    text, found = re.subn(
        r"(?s)(<!-- printed -->\n).*?(<!-- end of printed -->)",
        lambda between: f"{between[1]}\n```console\n{printed()}```\n\n{between[2]}",
        PAGE.read_text(),
    )
    assert found == 1, "docs/libraries.md has no place for what is printed"
    return text


def printed() -> str:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        isolate(patch, Path(folder, "home"))
        patch.setenv("GIT_TEMPLATE_DIR", "")
        project = new_project(Path(folder, "project"), settings="")
        project.write("docs/deploying.md", GUIDE)
        project.write("docs/questions.html", FAQ)
        project.vmrag("init")
        project.git("add", "-A")
        project.git("commit", "-q", "-m", "begin")
        return steady("".join(f"$ {step}\n{_run(project, step)}" for step in STEPS))


def _run(project: Project, step: str) -> str:
    program, *arguments = shlex.split(step)
    match program:
        case "vmrag":
            return project.vmrag(*arguments).out
        case "git":
            project.git(*arguments)
        case "sed":
            project.write("docs/deploying.md", CHANGED)
    return ""


def steady(text: str) -> str:
    """Each revision replaced by one that depends only on where it stands first."""
    names: dict[str, str] = {}

    def name(found: re.Match[str]) -> str:
        return names.setdefault(found[0], hashlib.sha256(str(len(names)).encode()).hexdigest()[: len(found[0])])

    return re.sub(r"(?<![0-9a-f-])(?:[0-9a-f]{7}|[0-9a-f]{40})(?![0-9a-f-])", name, text)


if __name__ == "__main__":
    PAGE.write_text(page())
