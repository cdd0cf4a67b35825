"""Writes the page about libraries: `python -m tests.toolsets.libraries.document`."""

from __future__ import annotations

from pathlib import Path

from tests.support import pages
from tests.support.terminal import Project

PAGE = pages.DOCS / "toolsets.md"
PRINTED = Path(__file__).with_name("printed.txt")
SHOWN = (0, 4, 5)
"""Steps that the page shows. `printed.txt` has all."""

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


FILES = {"docs/deploying.md": GUIDE, "docs/questions.html": FAQ}


def printed() -> str:
    """Run all steps, and return what they print."""
    with pages.newcomer({}) as project:
        for name, text in FILES.items():
            project.write(name, text)  # git does not track them
        return pages.session(STEPS, lambda program, arguments: _run(project, program, arguments))


def page(text: str) -> str:
    """Return docs/toolsets.md with the shown steps of `text`."""
    return pages.fill_page(PAGE, {"library": pages.console(pages.printed_by(text, SHOWN))})


def _run(project: Project, program: str, arguments: list[str]) -> str:
    match program:
        case "vmrag":
            return project.vmrag(*arguments).out
        case "git":
            project.git(*arguments)
        case "sed":
            project.write("docs/deploying.md", CHANGED)
    return ""


if __name__ == "__main__":
    now = printed()
    PAGE.write_text(page(now))
    PRINTED.write_text(now)
