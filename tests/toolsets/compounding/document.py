"""Writes the page about compounding: `python -m tests.toolsets.compounding.document`."""

from __future__ import annotations

from pathlib import Path

from tests.support import pages
from tests.support.terminal import Project

PAGE = pages.DOCS / "toolsets.md"
PRINTED = Path(__file__).with_name("printed.txt")
SHOWN = (2,)
"""Steps that the page shows. `printed.txt` has all."""

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


def printed() -> str:
    """Run all steps, and return what they print."""
    with pages.newcomer(FILES) as project:
        return pages.session(STEPS, lambda program, arguments: _run(project, program, arguments))


def page(text: str) -> str:
    """Return docs/toolsets.md with the shown steps of `text`."""
    return pages.fill_page(PAGE, {"answer": pages.console(pages.printed_by(text, SHOWN))})


def _run(project: Project, program: str, arguments: list[str]) -> str:
    return FILES[arguments[0]] if program == "cat" else project.vmrag(*arguments).out


if __name__ == "__main__":
    now = printed()
    PAGE.write_text(page(now))
    PRINTED.write_text(now)
