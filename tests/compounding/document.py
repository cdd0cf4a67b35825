"""Writes what the commands of docs/compounding.md print: `python -m tests.compounding.document`."""

from __future__ import annotations

import re
import shlex
import tempfile
from pathlib import Path

import pytest

from tests.libraries.document import steady
from tests.support.repos import isolate
from tests.support.terminal import Project, new_project

PAGE = Path(__file__).parents[2] / "docs" / "compounding.md"

FILES = {
    ".vmrag-docs/config.json": '{"project_name": "shop", "external_docs": {"path": "./handbook"}}\n',
    "vmrag-docs/problems/pool.md": """\
---
title: The connection pool ran empty
date: 2026-03-02
summary: Background jobs kept their connections
significance: correctness
related_docs: [styles/jobs.md]
---
The pool ran out of connections an hour after each start. Background jobs opened connections and never closed them.
Each job closes its connection now.
""",
    "vmrag-docs/styles/jobs.md": """\
---
title: How jobs are written
promotion_level: important
---
A job opens what it needs in a `with` block, so that nothing stays open when it fails.
""",
    "handbook/backups.md": "# Backups\n\nA backup of the database is made every night. It is kept for thirty days.\n",
}

STEPS = (
    "cat .vmrag-docs/config.json",
    "cat vmrag-docs/problems/pool.md",
    'vmrag ask "why did the pool run out of connections" --project .vmrag-docs/config.json',
    'vmrag ask "how long is a backup kept" --project .vmrag-docs/config.json --external',
    "vmrag list",
)


def page() -> str:
    """docs/compounding.md with what the program prints today."""
    text, found = re.subn(
        r"(?s)(<!-- printed -->\n).*?(<!-- end of printed -->)",
        lambda between: f"{between[1]}\n```console\n{printed()}```\n\n{between[2]}",
        PAGE.read_text(),
    )
    assert found == 1, "docs/compounding.md has no place for what is printed"
    return text


def printed() -> str:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        isolate(patch, Path(folder, "home"))
        patch.setenv("GIT_TEMPLATE_DIR", "")
        project = new_project(Path(folder, "project"), settings="")
        for name, text in FILES.items():
            project.write(name, text)
        project.vmrag("init")
        project.git("add", "-A")
        project.git("commit", "-q", "-m", "begin")
        return steady("".join(f"$ {step}\n{_run(project, step)}" for step in STEPS))


def _run(project: Project, step: str) -> str:
    program, *arguments = shlex.split(step)
    return FILES[arguments[0]] if program == "cat" else project.vmrag(*arguments).out


if __name__ == "__main__":
    PAGE.write_text(page())
