"""A week of pull requests with notes: two clones and a bare remote, merged as GitHub merges, by
plain git without merge drivers and hooks.

A twin repository has the same files, written by hand. Pull requests may conflict only where plain
git finds a conflict in the twin. VMRAG_TEST_SEED repeats a week whose seed was printed.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.long import LONG
from tests.support.repos import Repo, isolate, make_repo
from tests.support.terminal import Project, new_project

pytestmark = pytest.mark.hooks("off")

SEED = int(os.environ.get("VMRAG_TEST_SEED") or random.SystemRandom().randrange(10**6))
PAIRS = 40 if LONG else 2
FOLDER = ".vmrag/notes"
SETTINGS = f"""\
embedding:
  model: hash
sources:
  - collection: notes
    paths: ["{FOLDER}/"]
    write: true
"""
LINES = 5
WAYS = ("merge", "squash", "rebase")
LOG = "log"
"""A note to which people append."""


class Change(NamedTuple):
    """A change of a note. `line`: of an edit; `text`: of the new line or note."""

    what: str
    doc_id: str
    line: int = 0
    text: str = ""


def begin(doc_id: str) -> str:
    return "".join(f"{doc_id} has line {number}.\n" for number in range(LINES))


def word(number: int) -> str:
    """A word that no other text has."""
    return "zq" + "".join(chr(ord("a") + int(digit)) for digit in str(number))


@dataclass
class Person:
    """A clone in which notes are written by vmrag."""

    project: Project
    hub: Repo

    def branch(self, name: str, changes: list[Change]) -> None:
        git = self.project.git
        git("fetch", "-q")
        git("switch", "-q", "--no-track", "-c", name, "origin/main")
        for change in changes:
            self.apply(change)
        git("commit", "-q", "-m", f"Notes of {name}")
        git("push", "-q", "origin", name)

    def apply(self, change: Change) -> None:
        match change.what:
            case "add":
                metadata = ["--metadata", f'{{"word": "{change.text}"}}']
                self.project.vmrag("add", "-m", added_text(change), "--id", change.doc_id, *metadata)
            case "append":
                self.project.vmrag("add", "-m", f"{change.text}.", "--id", change.doc_id, "--append")
            case "edit":
                editor = f"sed -i '{change.line + 1}s/.*/{change.text}./'"
                self.project.vmrag("edit", f"notes/{change.doc_id}", env={"GIT_EDITOR": editor})
            case "rm":
                self.project.vmrag("rm", f"notes/{change.doc_id}")

    def require_notes(self, expected: dict[str, str], changed: list[Change]) -> None:
        """Require that vmrag shows the notes of main as its commit has them."""
        project = self.project
        project.git("fetch", "-q")
        project.git("switch", "-q", "--detach", "origin/main")
        assert project.git("status", "--porcelain") == ""
        rows = project.ask("list", "--collection", "notes")["documents"]
        assert sorted(row["doc_id"] for row in rows) == sorted(expected)
        for change in changed:
            if change.doc_id not in expected:
                error = project.vmrag("show", f"notes/{change.doc_id}", "--json", code=3).error
                assert error["code"] == "DOCUMENT_NOT_FOUND"
                continue
            text = expected[change.doc_id]
            assert project.vmrag("show", f"notes/{change.doc_id}").out == text.rpartition("---\n")[2]
            if change.text and change.text in text:
                result = project.ask("query", change.text)["results"][0]
                assert (result["doc_id"], change.text in result["text"]) == (change.doc_id, True)


def added_text(change: Change) -> str:
    return f"# {change.doc_id}\n\nWe chose {change.text}.\n"


class Twin(Repo):
    """The same files, written by hand."""

    def branch(self, name: str, changes: list[Change]) -> None:
        self.git("switch", "-q", "-c", name, "main")
        for change in changes:
            path = self.top / FOLDER / f"{change.doc_id}.md"
            match change.what:
                case "add":
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(f"---\nword: {change.text}\n---\n{added_text(change)}")
                case "append":
                    path.write_text(f"{path.read_text()}{change.text}.\n")
                case "edit":
                    lines = path.read_text().splitlines(keepends=True)
                    lines[change.line] = f"{change.text}.\n"
                    path.write_text("".join(lines))
                case "rm":
                    path.unlink()
        self.git("add", "-A")
        self.git("commit", "-q", "-m", f"Notes of {name}")
        self.git("switch", "-q", "main")

    def notes(self) -> dict[str, str]:
        folder = self.top / FOLDER
        return {str(path.relative_to(folder))[:-3]: path.read_text() for path in folder.rglob("*.md")}


def merged(repo: Repo, branch: str, way: str) -> bool:
    """Merge a pull request into main as GitHub does; return whether that was possible."""
    if way == "rebase":
        repo.git("switch", "-q", "--detach", branch)
        is_merged = repo.run("rebase", "-q", "main").returncode == 0
        if not is_merged:
            repo.git("rebase", "--abort")
        commit = repo.git("rev-parse", "HEAD")
        repo.git("switch", "-q", "main")
        if is_merged:
            repo.git("merge", "-q", "--ff-only", commit)
        return is_merged
    option = "--squash" if way == "squash" else "--no-ff"
    is_merged = repo.run("merge", "-q", option, "-m", f"Merge {branch}", branch).returncode == 0
    if not is_merged:
        repo.git("reset", "-q", "--hard")
    elif way == "squash":
        repo.git("commit", "-q", "--allow-empty", "-m", f"Notes of {branch}")
    return is_merged


@dataclass
class Team:
    people: list[Person]
    github: Repo
    twin: Twin


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Team:
    isolate(monkeypatch, tmp_path / "home")
    first = new_project(tmp_path / "begin", settings=SETTINGS)
    names = [*(f"decisions/n{number}" for number in range(8)), *(f"findings/n{number}" for number in range(6)), LOG]
    twin = Twin(make_repo(tmp_path / "twin").top)
    for repo in (first, twin):
        for name in names:
            repo.write(f"{FOLDER}/{name}.md", begin(name))
        repo.git("add", "-A")
        repo.git("commit", "-q", "-m", "begin")
    hub = tmp_path / "hub.git"
    subprocess.run(["git", "clone", "-q", "--bare", first.top, hub], check=True)
    clones = [tmp_path / name for name in ("ada", "bob", "github")]
    for clone in clones:
        subprocess.run(["git", "clone", "-q", hub, clone], check=True)
    people = [Person(Project(clone), Repo(hub)) for clone in clones[:2]]
    for person in people:
        person.project.vmrag("trust", "--yes")
    return Team(people, Repo(clones[2]), twin)


def draw_changes(dice: random.Random, pair: int, person: int, notes: dict[str, str]) -> Iterator[Change]:
    """Draw the changes of a branch. Sometimes both people take the same note."""
    text = word(pair * 10 + person)
    same = dice.random() < 0.1
    yield Change("add", f"decisions/new-{pair}{'' if same else f'-{person}'}", text=text)
    plain = sorted(name for name, content in notes.items() if not content.startswith("---") and name != LOG)
    edited, removed = dice.sample(plain, 2)
    yield Change("edit", edited, dice.randrange(LINES), word(pair * 10 + person + 2))
    if dice.random() < 0.2:
        yield Change("append", LOG, text=word(pair * 10 + person + 4))
    if dice.random() < 0.4 and len(plain) > 8:
        yield Change("rm", removed)


def test_pull_requests_with_notes_conflict_only_if_their_files_do(team):
    print(f"VMRAG_TEST_SEED={SEED}")
    dice = random.Random(SEED)
    conflicts = 0
    for pair in range(PAIRS):
        notes = team.twin.notes()
        branches = []
        for number, person in enumerate(team.people):
            changes = [*draw_changes(dice, pair, number, notes)]
            branches.append((f"pr-{pair}-{number}", changes))
            person.branch(*branches[-1])
            team.twin.branch(*branches[-1])
        for number, (branch, changes) in enumerate(branches):
            way = dice.choice(WAYS)
            team.github.git("fetch", "-q")
            team.github.git("branch", "-q", "--no-track", branch, f"origin/{branch}")
            expected = merged(team.twin, branch, way)
            assert merged(team.github, branch, way) == expected, (branch, way)
            conflicts += not expected
            team.github.git("push", "-q", "origin", "main")
            trees = [repo.git("rev-parse", f"HEAD:{FOLDER}") for repo in (team.github, team.twin)]
            assert trees[0] == trees[1], (branch, way)
            team.people[1 - number].require_notes(team.twin.notes(), changes if expected else [])
    if PAIRS > 10:  # two pairs can both conflict
        assert conflicts < PAIRS
    for person in team.people:
        assert not (person.project.shared / "kb").exists()
        assert ".dolt-version" not in person.project.git("ls-files")


CONFLICTS = {
    "the same new id": (Change("add", "both", text="zqone"), Change("add", "both", text="zqtwo")),
    "the same line": (Change("edit", "decisions/n1", 2, "zqone"), Change("edit", "decisions/n1", 2, "zqtwo")),
    "edited and deleted": (Change("edit", "decisions/n1", 2, "zqone"), Change("rm", "decisions/n1")),
    "appended twice": (Change("append", LOG, text="zqone"), Change("append", LOG, text="zqtwo")),
}
FREE = {
    "distant lines": (Change("edit", "decisions/n1", 0, "zqone"), Change("edit", "decisions/n1", 4, "zqtwo")),
    "two new ids": (Change("add", "both-1", text="zqone"), Change("add", "both-2", text="zqtwo")),
    "deleted twice": (Change("rm", "decisions/n1"), Change("rm", "decisions/n1")),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.sample(1)
@pytest.mark.long
def test_pair_conflicts_as_the_files_do(team, way):
    for count, (name, changes) in enumerate([*CONFLICTS.items(), *FREE.items()]):
        main = [repo.git("rev-parse", "main") for repo in (team.github, team.twin)]
        for number, (person, change) in enumerate(zip(team.people, changes, strict=True)):
            branch = f"{count}-{number}"
            extra = Change("add", f"extra-{branch}", text=word(count * 10 + number))
            person.branch(branch, [change, extra])
            team.twin.branch(branch, [change, extra])
        team.github.git("fetch", "-q")
        for number in range(2):
            branch = f"{count}-{number}"
            team.github.git("branch", "-q", "--no-track", branch, f"origin/{branch}")
            possible = number == 0 or name in FREE
            assert merged(team.twin, branch, way) == possible, name
            assert merged(team.github, branch, way) == possible, name
            assert team.github.git("rev-parse", f"HEAD:{FOLDER}") == team.twin.git("rev-parse", f"HEAD:{FOLDER}")
        for repo, commit in zip((team.github, team.twin), main, strict=True):
            repo.git("reset", "-q", "--hard", commit)
