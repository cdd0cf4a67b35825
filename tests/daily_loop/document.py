"""Writes what the commands of docs/daily-loop.md print: `python -m tests.daily_loop.document`.

All parts of the page are one session in one repository.
"""

from __future__ import annotations

import re

from tests.support import pages
from tests.support.terminal import Project

PAGE = pages.DOCS / "daily-loop.md"

DEPLOYING = """\
# Deploying

## When

A release is deployed on Tuesdays, after the tests have run.

## Keys

Ask Ada for the key of the server.
"""
BACKUPS = "# Backups\n\nBackups are kept for thirty days. Restoring one takes an hour.\n"
FILES = {"wiki/deploying.md": DEPLOYING, "wiki/backups.md": BACKUPS}

PARTS = {
    "begin": (
        "vmrag import wiki --collection ops --base wiki",
        'vmrag commit -m "How we run it"',
        'git commit -qam "How we run it"',
    ),
    "ask": (
        'vmrag query "who has the key" -k 1',
        'vmrag query "who has the key" -k 1 --context 1',
        "vmrag grep -i key",
    ),
    "change": (
        "git switch -qc thursdays",
        "sed -i s/Tuesdays/Thursdays/ wiki/deploying.md",
        "vmrag import wiki --collection ops",
        "vmrag status",
        "vmrag diff",
    ),
    "keep": (
        'vmrag commit --git -m "Deploy on Thursdays"',
        'vmrag grep "deployed on"',
        "git switch -q main",
        'vmrag grep "deployed on"',
        'vmrag grep "deployed on" --at thursdays',
    ),
    "look back": (
        "vmrag log --oneline thursdays",
        "vmrag diff --stat main..thursdays",
        "vmrag show thursdays:ops/deploying.md",
    ),
    "undo": (
        "vmrag rm ops/backups.md",
        "vmrag restore ops/backups.md",
        "vmrag restore --source thursdays ops/deploying.md",
        "vmrag status",
        "vmrag restore --yes",
    ),
    "take away": (
        "vmrag export out",
        "vmrag export old --at thursdays",
    ),
}


def page() -> str:
    """docs/daily-loop.md with what the program prints today."""
    with pages.newcomer({}) as project:
        for name, content in FILES.items():
            project.write(name, content)
        printed = {mark: "".join(f"$ {step}\n{_run(project, step)}" for step in steps) for mark, steps in PARTS.items()}
    text = re.sub(pages.TIME, "2026-01-31T12:00:00Z", _BETWEEN.join(printed.values()))
    steady = pages.steady(text).split(_BETWEEN)
    return pages.filled(PAGE, dict(zip(printed, map(pages.console, steady), strict=True)))


_BETWEEN = "\n\0\n"


def _run(project: Project, step: str) -> str:
    program, *arguments = pages.words(step)
    match program:
        case "vmrag":
            return re.sub(r"\(\d+\.\d+ s\)", "(0.12 s)", pages.vmrag_says(project, arguments))
        case "git":
            return project.run(*arguments).stdout
        case "sed":
            old, new = arguments[1].split("/")[1:3]
            file = project.top / arguments[2]
            file.write_text(file.read_text().replace(old, new))
    return ""


if __name__ == "__main__":
    PAGE.write_text(page())
