"""Write what commands print at old tags: `python -m tests.old_tags.document`.

The sessions are in stories.md in this folder. docs/merging.md shows the commands of the first one.
"""

from __future__ import annotations

from pathlib import Path

from tests.support import pages
from tests.support.repos import make_repo
from tests.support.terminal import Project

PAGE = Path(__file__).with_name("stories.md")

TIMEOUTS = "# Timeouts\n\nRequests time out after {} seconds.\n"

STORIES = {
    "release": (
        "git switch -qc knowledge/v1 v1",
        "vmrag init --empty --no-sources",
        "vmrag import docs --collection handbook --copy",
        'vmrag commit --git -m "The handbook of release 1"',
        "git tag v1-knowledge",
        "git push -q origin knowledge/v1 v1-knowledge",
    ),
    "answers": (
        "git switch -q main",
        'vmrag query "when do requests time out" -k 1',
        'vmrag query "when do requests time out" -k 1 --at v1-knowledge',
    ),
    "today": (
        "git switch -qc hotfix v2",
        "vmrag pin",
    ),
    "clone": (
        "git clone -q ../hub.git ../clone",
        "cd ../clone",
        "git switch -qc hotfix v2",
        "vmrag init --knowledge-base",
        "vmrag init --empty --no-sources",
    ),
}


def page() -> str:
    """Return the page with what the program prints today."""
    return pages.fill_page(PAGE, {name: pages.console(text) for name, text in printed().items()})


def printed() -> dict[str, str]:
    """Return the output of each story. All stories are typed in one repository."""
    with pages.folder() as folder:
        return pages.run_stories(STORIES, _project(folder), _run, folder)


def _project(folder: Path) -> Project:
    """Two releases, and knowledge since then."""
    project = Project(make_repo(folder / "project").top)
    project.write("docs/proxies.md", "# Proxies\n\nThere are none.\n")
    for number, seconds in enumerate((5, 10), 1):
        project.commit(f"Release {number}", **{"docs/timeouts.md": TIMEOUTS.format(seconds)})
        project.git("add", "-A")
        project.git("commit", "-q", "--amend", "--no-edit")
        project.git("tag", f"v{number}")
    project.write("docs/timeouts.md", TIMEOUTS.format(30))
    project.vmrag("init", "--knowledge-base", "--no-sources")
    pages.import_docs(project, "The handbook")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "Pin the knowledge")
    project.git("init", "-q", "--bare", str(folder / "hub.git"))
    project.git("remote", "add", "origin", "../hub.git")
    project.push("origin", "main", "--tags")
    return project


def _run(project: Project, step: str) -> str:
    program, *arguments = pages.split_command(step)
    if program == "git":
        project.git(*arguments)
        return ""
    return pages.run_vmrag(project, arguments)


if __name__ == "__main__":
    PAGE.write_text(page())
