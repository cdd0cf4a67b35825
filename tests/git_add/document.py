"""Write what commands print after `git add` into stories.md: `python -m tests.git_add.document`."""

from __future__ import annotations

from pathlib import Path

from tests.support import pages
from tests.support.repos import ON
from tests.support.terminal import Project, new_project

PAGES = {
    Path(__file__).with_name("stories.md"): ("merge", "rebase", "pick", "revert", "stash", "checkout", "late"),
}

TIMEOUTS = "# Timeouts\n\nRequests time out after {} seconds.\n"

STORIES = {
    "merge": (
        "git merge -q topic",
        "git checkout -q --theirs docs/timeouts.md",
        "git add -A",
        "git commit -q --no-edit",
        "vmrag resolve --from-worktree",
        "git commit -q --no-edit",
        "vmrag grep seconds",
    ),
    "rebase": (
        "git switch -q topic",
        "git rebase -q main",
        "git checkout -q --theirs docs/timeouts.md",
        "git add -A",
        "vmrag status",
        "vmrag resolve --from-worktree",
        "git rebase --continue",
        "vmrag grep seconds",
    ),
    "pick": (
        "git cherry-pick topic",
        "git checkout -q --theirs docs/timeouts.md",
        "git add -A",
        "vmrag resolve --from-worktree",
        "git cherry-pick --continue",
        "vmrag grep seconds",
    ),
    "revert": (
        "git revert --no-edit shorter",
        "git checkout -q --theirs docs/timeouts.md",
        "git add -A",
        "vmrag resolve --from-worktree",
        "git revert --continue",
        "vmrag grep seconds",
    ),
    "stash": (
        "git stash pop -q",
        "git checkout -q --theirs docs/timeouts.md",
        "git add -A",
        "vmrag resolve --from-worktree",
        'git commit -qm "Measured once more"',
        "git stash drop -q",
        "vmrag grep seconds",
    ),
    "checkout": (
        "git checkout -q -m topic",
        "git add -A",
        "git checkout -q -m -- .dolt-version",
        "vmrag resolve --theirs",
        'git commit -qm "Measured once more"',
        "vmrag grep seconds",
    ),
    "late": (
        "git rebase -q main",
        "git checkout -q --theirs docs/timeouts.md",
        "git add -A",
        "git rebase --continue",
        "vmrag grep seconds",
        "vmrag merge ORIG_HEAD",
        "vmrag resolve --theirs",
        "vmrag merge --continue",
        'git commit -qm "Take in what the rebase dropped"',
        "vmrag grep seconds",
    ),
}


def write() -> dict[Path, str]:
    """Return the pages with what the program prints today."""
    with pages.folder() as folder:
        stories = pages.run_stories(STORIES, _project(folder), _run, folder, _begin)
    return {
        page: pages.fill_page(page, {name: pages.console(stories[name]) for name in names})
        for page, names in PAGES.items()
    }


def _project(folder: Path) -> Project:
    """`main` and `topic` changed the same line of the handbook."""
    project = new_project(folder / "project", settings="")
    project.vmrag("init", "--knowledge-base", "--no-sources")
    _record(project, 30, "The handbook")
    project.git("switch", "-qc", "topic", env=ON)
    _record(project, 5, "Measured")
    project.git("switch", "-q", "main", env=ON)
    _record(project, 20, "Shorter time-outs")
    for branch in ("main", "topic"):
        project.git("tag", f"{branch}-begins", branch)
    return project


def _begin(project: Project, story: str) -> None:
    """Bring the branches back to where they were, and make what the story carries along."""
    project.git("reset", "-q", "--hard")
    for branch in ("topic", "main"):
        project.git("switch", "-q", "-C", branch, f"{branch}-begins", env=ON)
    match story:
        case "revert":
            project.git("tag", "shorter")
            _record(project, 10, "Shorter still")
        case "stash":
            _know(project, 9, "Measured once more")
            project.git("stash", "-q")
            project.git("switch", "-q", "topic", env=ON)
        case "checkout":
            _know(project, 9, "Measured once more")
            project.git("reset", "-q")
        case "late":
            project.git("switch", "-q", "topic", env=ON)
    project.vmrag("sync")  # prints now which revisions the reset left


def _know(project: Project, seconds: int, message: str) -> None:
    project.write("docs/timeouts.md", TIMEOUTS.format(seconds))
    pages.import_docs(project, message)


def _record(project: Project, seconds: int, message: str) -> None:
    project.write("docs/timeouts.md", TIMEOUTS.format(seconds))
    pages.record(project, message)


def _run(project: Project, step: str) -> str:
    program, *arguments = pages.split_command(step)
    if program == "vmrag":
        return pages.run_vmrag(project, arguments)
    result = project.run(*arguments, env=ON)
    lines = (result.stdout + result.stderr).splitlines(keepends=True)
    return "".join(line for line in lines if line.startswith(("CONFLICT", "vmrag:")))


if __name__ == "__main__":
    for path, text in write().items():
        path.write_text(text)
