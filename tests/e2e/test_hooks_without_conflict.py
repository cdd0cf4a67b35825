"""Other hook managers from their registries, on the installed git and on a git that runs hooks from
its configuration: each gate of the manager and each vmrag hook runs exactly once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import hooks as support
from tests.support import npm
from tests.support.hooks import Log, add_foreign_hook, expect_each, run_all_events
from tests.support.repos import Repo
from vmrag_hooks import installer
from vmrag_link.git import hooks, plumbing

log, new_git = support.log, support.new_git

THEIRS = ("pre-commit", "post-checkout", "post-merge", "pre-push")
PROGRAMS = Path(sys.executable).parent
PACKAGES = {"husky": "9.1.7", "husky8": "npm:husky@8.0.3", "lefthook": "2.2.2"}


@pytest.fixture(scope="session")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs from npm, installed once."""
    folder = tmp_path_factory.mktemp("npm")
    (folder / "package.json").write_text(json.dumps({"private": True, "devDependencies": PACKAGES}))
    npm.install(folder)
    return folder / "node_modules"


class Place:
    """A repository that is pushed to `origin`, or a linked work tree of it, and what managers are
    to write into the log.
    """

    def __init__(self, repo: Repo, log: Log, branch: str, request: pytest.FixtureRequest) -> None:
        self.repo, self.log, self.branch = repo, log, branch
        self._request = request

    def runs(self, *words: str | Path) -> None:
        result = subprocess.run(words, cwd=self.repo.top, check=False, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr

    def node(self, script: str, *arguments: str) -> None:
        self.runs(npm.node(), self._request.getfixturevalue("modules") / script, *arguments)

    def says(self, hook: str) -> str:
        return f"echo 'theirs {hook}' >>'{self.log.path}'"

    def commit(self, **files: str) -> None:
        self.repo.commit("a team's hooks", **files)


def nobody(_: Place) -> None:
    pass


def by_hand(place: Place) -> None:
    for hook in THEIRS:
        add_foreign_hook(
            plumbing.locate_work_tree(place.repo.top).common / "hooks", place.log.folder, hook, name=f"theirs {hook}"
        )


def for_all_repositories(place: Place) -> None:
    folder = place.log.folder / "global hooks"
    folder.mkdir()
    for hook in THEIRS:
        add_foreign_hook(folder, place.log.folder, hook, name=f"theirs {hook}")
    place.repo.git("config", "--global", "core.hooksPath", str(folder))


def _framework(program: str) -> Callable[[Place], None]:
    def install(place: Place) -> None:
        kinds = [
            f"  - {{id: {hook}, name: {hook}, language: system, stages: [{hook}], always_run: true, "
            f'pass_filenames: false, entry: sh -c "{place.says(hook)}"}}\n'
            for hook in THEIRS
        ]
        text = f"default_install_hook_types: [{', '.join(THEIRS)}]\nrepos:\n- repo: local\n  hooks:\n{''.join(kinds)}"
        place.commit(**{".pre-commit-config.yaml": text})
        place.runs(PROGRAMS / program, "install", "--allow-missing-config")

    return install


def husky_9(place: Place) -> None:
    place.commit(**{f".husky/{hook}": f"{place.says(hook)}\n" for hook in THEIRS})
    place.node("husky/bin.js")


def husky_8(place: Place) -> None:
    start = '#!/usr/bin/env sh\n. "$(dirname -- "$0")/_/husky.sh"\n'
    for hook in THEIRS:
        place.repo.write(f".husky/{hook}", f"{start}{place.says(hook)}\n").chmod(0o755)
    place.repo.git("add", ".husky")
    place.node("husky8/lib/bin.js", "install")
    place.repo.git("commit", "-q", "--no-verify", "-m", "a team's hooks")


def lefthook(place: Place) -> None:
    commands = (f'{hook}:\n  jobs:\n    - run: "{place.says(hook)}"\n' for hook in THEIRS)
    place.commit(**{"lefthook.yml": "".join(commands), ".gitignore": "lefthook-local.yml\n"})
    place.node("lefthook/bin/index.js", "install")


MANAGERS = {
    "nobody": nobody,
    "by hand": by_hand,
    "for all repositories": for_all_repositories,
    "pre-commit": _framework("pre-commit"),
    "prek": _framework("prek"),
    "husky 9": husky_9,
    "husky 8": husky_8,
    "lefthook": lefthook,
}
FROM_NPM = ("husky 9", "husky 8", "lefthook")
WAYS = ("this git", "newer git", "newer git, after files")
TREES = ("repository", "linked work tree")


@pytest.fixture
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: Log) -> Place:
    way, tree = request.param
    repo = support.pinned_repo(monkeypatch, tmp_path)
    path = request.getfixturevalue("new_git") if way.startswith("newer") else os.environ["PATH"]
    monkeypatch.setenv("PATH", os.pathsep.join([str(PROGRAMS), str(npm.node().parent), path]))
    monkeypatch.setenv("PRE_COMMIT_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PREK_HOME", str(tmp_path / "cache-prek"))
    repo.git("init", "-q", "--bare", "../remote.git")
    repo.git("remote", "add", "origin", "../remote.git")
    repo.git("push", "-q", "origin", "main")
    if tree == "repository":
        return Place(repo, log, "main", request)
    repo.git("worktree", "add", "-q", "-b", "topic", "../linked tree")
    linked = Repo(tmp_path / "linked tree")
    return Place(linked, log, "topic", request)


def _install(place: Place, to: str) -> installer.InstallReport:
    """Into files, too, where other repositories run them."""
    places = plumbing.locate_work_tree(place.repo.top)
    return installer.install_hooks(places, python=str(place.log.recorder), place=to, force=True)


CASES = [
    pytest.param((way, tree), manager, id=f"{manager}, {way}, {tree}", marks=[pytest.mark.long] * (manager in FROM_NPM))
    for manager in MANAGERS
    for way in WAYS
    for tree in TREES
]


@pytest.mark.parametrize(("place", "manager"), CASES, indirect=["place"])
@pytest.mark.sample(8)
def test_hooks_of_manager_and_vmrag_run_exactly_once(place: Place, manager: str, request) -> None:
    way = request.node.callspec.params["place"][0]
    MANAGERS[manager](place)
    if way == "newer git, after files":
        _install(place, "files")
    report = _install(place, "auto" if way != "this git" else "files")
    assert report.configured == (way != "this git")
    if report.scripts:  # husky's: a team commits the lines, else a checkout takes them away
        place.repo.git("add", *report.scripts)
        place.repo.git("commit", "-q", "--no-verify", "-m", "husky starts ours")
    assert hooks.find_missing_hooks(plumbing.locate_work_tree(place.repo.top)) is None
    names = ("vmrag",) if manager == "nobody" else ("vmrag", "theirs")
    ran = run_all_events(place.repo, place.log, branch=place.branch)
    assert {hook: sorted(" ".join(line.split()[:2]) for line in lines) for hook, lines in ran.items()} == {
        hook: sorted(lines) for hook, lines in expect_each(*names).items()
    }
