"""Write what commands print around a host's merge buttons: `python -m tests.hosting.document`.

The stories are in `printed.txt`. docs/pull-requests.md has the commands of the story `merge`.

GitHub cannot be here. A bare repository stands for it, and a clone in which no merge driver is set
up for its buttons, which run the same git commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.support import pages
from tests.support.repos import ON, Repo
from tests.support.terminal import Project, new_project

PRINTED = Path(__file__).with_name("printed.txt")

FILES = {
    "timeouts": "Requests time out after {} seconds.",
    "retries": "A request is tried {} times.",
    "proxies": "{} proxies are asked.",
    "limits": "A page has {} entries.",
}

STORIES = {
    "conflict": (
        '# GitHub: "Squash and merge" of shorter',
        '# GitHub: "Squash and merge" of retries',
    ),
    "switch": (
        "git switch -q retries",
        "git fetch -q",
    ),
    "merge": (
        "vmrag verify --pull-request origin/main HEAD",
        "git merge -q --no-edit origin/main",
        "vmrag verify --pull-request origin/main HEAD",
        "git push -q",
        '# GitHub: "Squash and merge" of retries',
    ),
    "pull": (
        "git switch -q main",
        "git pull -q",
        'vmrag grep "seconds|times"',
    ),
    "dropped": (
        '# GitHub: "Resolve conflicts" of proxies in the web editor, with the branch\'s .dolt-version; "Squash and merge"',
        "git pull -q",
        "vmrag verify origin/main",
        "vmrag merge --repair HEAD",
        'git commit -qm "Restore dropped documents"',
        "git push -q",
    ),
    "restored": (
        "vmrag verify origin/main..HEAD",
        'vmrag grep "seconds|proxies"',
    ),
    "alone": (
        "git switch -q limits",
        "vmrag merge origin/main",
        'git commit -qm "Merge the documents of main"',
        "git push -q",
        '# GitHub: "Create a merge commit" of limits',
        "git merge -q --no-edit origin/main",
        "git push -q",
        '# GitHub: "Create a merge commit" of limits',
    ),
}


def stories() -> dict[str, str]:
    """Run all stories, and return what their commands print."""
    with pages.folder() as folder:
        return pages.run_stories(STORIES, _project(folder), _run, folder)


def printed(outputs: Mapping[str, str]) -> str:
    """Return the text of `printed.txt`."""
    return "\n".join(f"== {name}\n{text}" for name, text in outputs.items())


def _project(folder: Path) -> Project:
    """A handbook on `main`, and four branches of which each changes one page; all are pushed."""
    project = new_project(folder / "project", settings="")
    for name in FILES:
        _write(project, name, "3")
    project.vmrag("init", "--knowledge-base", "--no-sources")
    pages.record(project, "The handbook")
    project.git("init", "-q", "--bare", str(folder / "github.git"))
    project.git("remote", "add", "origin", str(folder / "github.git"))
    project.push("-u", "origin", "main")
    for branch, name in (("shorter", "timeouts"), ("retries", "retries"), ("proxies", "proxies"), ("limits", "limits")):
        project.git("switch", "-qc", branch, "main", env=ON)
        _write(project, name, "5")
        pages.record(project, f"Five in {name}")
        project.push("-u", "origin", branch)
    project.git("clone", "-q", str(folder / "github.git"), str(folder / "buttons"))
    return project


def _write(project: Project, name: str, number: str) -> None:
    project.write(f"docs/{name}.md", f"# {name.title()}\n\n{FILES[name].format(number)}\n")


def _run(project: Project, step: str) -> str:
    if step.startswith("# GitHub:"):
        return _press(Repo(project.top.parent / "buttons"), step)
    program, *arguments = pages.split_command(step)
    if program == "vmrag":
        return pages.run_vmrag(project, arguments)
    return _said(project.run(*arguments, env=ON).stderr)


def _press(github: Repo, step: str) -> str:
    """Return the output of merging a branch on the host: git's own conflicts, as the host shows
    them.
    """
    branch = step.partition(" of ")[2].split()[0]
    github.git("fetch", "-q")
    github.git("reset", "-q", "--hard", "origin/main")
    squashed = "Squash" in step
    result = github.run("merge", *(["--squash"] if squashed else ["--no-ff", "--no-edit"]), f"origin/{branch}")
    if "web editor" in step:
        github.git("checkout", "--theirs", "--", ".dolt-version")
        github.git("add", "-A")
    elif result.returncode != 0:
        return "".join(f"  {line}\n" for line in result.stdout.splitlines() if line.startswith("CONFLICT"))
    if squashed:
        github.git("commit", "-q", "-m", branch)
    github.git("push", "-q", "origin", "HEAD:main")
    return "  merged\n"


def _said(stderr: str) -> str:
    """Return vmrag's lines of the output of git commands."""
    return "".join(line for line in stderr.splitlines(keepends=True) if line.startswith("vmrag:"))


if __name__ == "__main__":
    PRINTED.write_text(printed(stories()))
