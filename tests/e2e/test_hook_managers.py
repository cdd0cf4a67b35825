"""husky and lefthook from npm: our hooks run beside theirs, and survive `npm install`, `husky` and
`lefthook install`.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import npm
from tests.support.people import DATA
from tests.support.repos import Repo, isolate
from tests.support.terminal import Project, new_project
from vmrag_link.git import hooks, plumbing

pytestmark = pytest.mark.long


@dataclass(frozen=True)
class Manager:
    """`files` of a team that uses it. `tell`: what it starts before a push, which writes down what
    git told it. `again`: the reinstallations, by their arguments; none is `npm install`.
    """

    package: str
    files: dict[str, str]
    again: tuple[tuple[str, ...], ...]
    prepare: str = ""

    @property
    def name(self) -> str:
        return self.package.partition("@")[0]


HUSKY_8 = '#!/usr/bin/env sh\n. "$(dirname -- "$0")/_/husky.sh"\n\ncat >told\n'
LEFTHOOK = "pre-push:\n  commands:\n    tell:\n      run: cat >told\n      use_stdin: true\npre-commit:\n  jobs:\n    - run: exit 0\n"
AGAIN = ((), ("lefthook", "install"), ("lefthook", "install", "--force"))
MANAGERS = (
    Manager("husky@9.1.7", {".husky/pre-push": "cat >told\n"}, ((), ("husky",)), "husky"),
    Manager("husky@8.0.3", {".husky/pre-push": HUSKY_8}, ((), ("husky", "install")), "husky install"),
    Manager("lefthook@2.2.2", {"lefthook.yml": LEFTHOOK}, AGAIN, "lefthook install"),
    Manager("lefthook@1.13.6", {"lefthook.yml": LEFTHOOK}, AGAIN, "lefthook install"),
)


class Team:
    """A repository whose hooks are a manager's, and the bare one that it is pushed to."""

    def __init__(self, folder: Path, manager: Manager) -> None:
        self.manager = manager
        self.hub = folder / "code.git"
        self.project = new_project(folder / "work tree")
        self.project.git("init", "-q", "--bare", str(self.hub))
        self.project.git("remote", "add", "origin", str(self.hub))
        name, _, version = manager.package.partition("@")
        package = {"private": True, "scripts": {"prepare": manager.prepare}, "devDependencies": {name: version}}
        self.project.write("package.json", json.dumps(package))
        self.project.write(".gitignore", "node_modules\ntold\n")
        for path, text in manager.files.items():
            self.project.write(path, text)
            (self.project.top / path).chmod(0o755)
        npm.install(self.project.top)
        self.project.git("add", "-A")
        self.project.git("commit", "-q", "-m", "first")

    def again(self, arguments: tuple[str, ...]) -> None:
        if arguments:
            program = self.project.top / "node_modules" / ".bin" / arguments[0]
            subprocess.run([npm.node(), program, *arguments[1:]], cwd=self.project.top, check=True, capture_output=True)
        else:
            npm.install(self.project.top)

    def told(self, repo: Repo) -> str:
        path = repo.top / "told"
        content = path.read_text() if path.exists() else ""
        path.unlink(missing_ok=True)
        return content

    @property
    def knowledge(self) -> str:
        """Return the ref of the pushed knowledge base."""
        return self.project.git("ls-remote", "origin", DATA).partition("\t")[0]


@pytest.fixture(params=MANAGERS, ids=lambda manager: manager.package)
def team(request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Team:
    isolate(monkeypatch, tmp_path / "home")
    return Team(tmp_path, request.param)


def works(team: Team, doc_id: str) -> None:
    """Check that a push includes the knowledge, that the team's hook gets its input, and that a
    checkout moves the index.
    """
    project, before = team.project, team.knowledge
    assert hooks.find_missing_hooks(plumbing.locate_work_tree(project.top)) is None
    project.record(f"about {doc_id}", **{doc_id: f"what is known of {doc_id}"})
    result = project.run("push", "origin", "main")
    assert result.returncode == 0, result
    assert "pushed the documents that these commits pin to origin" in result.stderr + result.stdout
    assert team.knowledge not in ("", before)
    assert team.told(project).split()[::2] == ["refs/heads/main", "refs/heads/main"]
    before = project.pinned
    project.git("checkout", "-q", "-B", "back", "HEAD~1")
    assert before != project.pinned == project.status()["index"]["revision"]
    project.git("checkout", "-q", "main")
    assert project.pinned == before == project.status()["index"]["revision"]


def takes_another_branch_along(team: Team) -> None:
    """If HEAD has nothing to push, lefthook skips hooks that do not insist on running."""
    project = team.project
    project.git("push", "-q", "-u", "origin", "main")
    project.git("switch", "-q", "-c", "topic")
    project.record("topic", topic="on another branch")
    project.git("switch", "-q", "main")
    before = team.knowledge
    project.git("push", "-q", "origin", "topic")
    assert team.knowledge != before


def test_vmrag_hooks_run_with_the_manager_and_survive_its_reinstallation(team: Team) -> None:
    project = team.project
    project.vmrag("init", "--knowledge-base", "--no-sources")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "a knowledge base")
    assert "lefthook-local.yml" not in project.git("ls-files")
    works(team, "first")
    takes_another_branch_along(team)
    for number, arguments in enumerate(team.manager.again):
        team.again(arguments)
        works(team, f"again{number}")
    assert project.vmrag("install").out.startswith("Installed ")
    assert hooks.find_missing_hooks(plumbing.locate_work_tree(project.top)) is None
    team.again(team.manager.again[0])
    works(team, "last")
    assert project.git("status", "--porcelain") == ""

    project.vmrag("push", "--all")
    project.vmrag("uninstall", "--all")
    assert not [path for path in project.top.glob(".husky/*") if path.is_file() and b"vmrag" in path.read_bytes()]
    assert not list(project.top.glob("lefthook-local*"))
    team.again(team.manager.again[-1])


def test_colleague_without_our_program_notices_nothing(team: Team, tmp_path: Path) -> None:
    project = team.project
    project.vmrag("init", "--knowledge-base", "--no-sources")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "a knowledge base")
    project.git("push", "-q", "origin", "main")
    colleague = Project(tmp_path / "colleague")
    colleague.top.mkdir()
    colleague.git("clone", "-q", str(team.hub), ".")
    npm.install(colleague.top)
    for arguments in (("push", "origin", "HEAD"), ("checkout", "-b", "other"), ("push", "origin", "HEAD")):
        colleague.write("code.txt", f"{arguments} {colleague.git('rev-parse', 'HEAD')}")
        for command in (("add", "-A"), ("commit", "-q", "-m", "work"), arguments):
            result = colleague.run(*command)
            assert result.returncode == 0, result
            assert "vmrag" not in (result.stdout + result.stderr).replace(str(tmp_path), "")
    assert "refs/heads/other" in team.told(colleague)
