"""Writes the page about libraries: `python -m tests.toolsets.libraries.document`."""

from __future__ import annotations

from tests.support import pages
from tests.support.terminal import Project

PAGE = pages.DOCS / "toolsets" / "libraries.md"

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


def page() -> str:
    """docs/toolsets/libraries.md with what the program prints today."""
    with pages.newcomer({}) as project:
        for name, text in FILES.items():
            project.write(name, text)  # git does not track them
        printed = pages.session(STEPS, lambda program, arguments: _run(project, program, arguments))
    return pages.filled(PAGE, {"printed": pages.console(printed)})


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
    PAGE.write_text(page())
