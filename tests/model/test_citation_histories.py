"""Through random histories of notes and the files that they cite, each note is marked exactly if
what it cites changed after the note's last commit: `git log` and `git log -L` decide.

`VMRAG_CITATION_HISTORIES=200` makes it two hundred, as `tests/check.py --long` does.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.support.repos import Repo, isolate, make_repo
from vmrag_link.git import plumbing
from vmrag_link.sources.citations import Citation, find_citations
from vmrag_link.sources.cited_lines import ChangedCitation
from vmrag_link.sources.outdated import check_notes

HISTORIES = int(os.environ.get("VMRAG_CITATION_HISTORIES") or 8)
STEPS = 22
BRANCHES = ("main", "left", "right")
FILES = ("src/a.py", "src/b.py", "lib/c.txt")
SPARE = ("src/moved.py", "lib/moved.txt")
NOTES = ("notes/one.md", "notes/two.md")


class History:
    """One repository. Each line of a file begins with an id of its own that edits keep."""

    def __init__(self, repo: Repo, dice: random.Random, seen: Counter[str]) -> None:
        self.repo, self.dice, self.seen = repo, dice, seen
        self.number = 0
        for path in FILES:
            repo.write(path, "".join(self.new_line() for _ in range(dice.randint(8, 25))))
        self.write_note()
        self.commit_all("begin")
        for branch in BRANCHES[1:]:
            repo.git("branch", branch)

    # -- what happens

    def take_step(self) -> None:
        steps = [self.edit_file] * 4 + [self.merge_branch] * 3 + [self.switch_branch] * 2
        steps += [
            self.rename_file,
            self.delete_file,
            self.write_note,
            self.write_note,
            self.squash_branch,
            self.pick_commit,
        ]
        step = self.dice.choice(steps)
        step()
        self.seen[step.__name__] += 1

    def edit_file(self) -> None:
        for _ in range(self.dice.randint(1, 2)):
            self.change_lines()
        if self.dice.random() < 0.2:
            self.write_note()
        self.commit_all("edit")

    def change_lines(self) -> None:
        if not (paths := [path for path in (*FILES, *SPARE) if (self.repo.top / path).exists()]):
            return
        path = self.dice.choice(paths)
        lines = (self.repo.top / path).read_text().splitlines(keepends=True)
        for _ in range(self.dice.randint(1, 3)):
            at = self.dice.randrange(len(lines) + 1)
            kind = self.dice.choice(("insert", "insert", "change", "change", "delete"))
            if kind == "insert":
                lines[at:at] = [self.new_line() for _ in range(self.dice.randint(1, 4))]
            elif kind == "delete" and len(lines) > 6:
                del lines[at : at + self.dice.randint(1, 2)]
            elif at < len(lines):
                self.number += 1
                lines[at] = f"{lines[at].split()[0]} version {self.number}\n"
        self.repo.write(path, "".join(lines))

    def write_note(self) -> None:
        note = self.dice.choice(NOTES)
        cited = []
        for path in FILES:
            if (self.repo.top / path).exists() and self.dice.random() < 0.7:
                number = len((self.repo.top / path).read_text().splitlines())
                first = self.dice.randint(1, number)
                last = self.dice.randint(first, min(number, first + 5))
                cited.append(self.dice.choice((path, f"{path}:{first}-{last}", f"{path}:{first}-{last}")))
        self.number += 1
        self.repo.write(note, f"Note {self.number}\n\n" + "".join(f"* see `{place}`\n" for place in cited))
        if self.dice.random() < 0.8:
            self.commit_all("note")

    def rename_file(self) -> None:
        path, other = self.dice.choice(FILES), self.dice.choice((*FILES, *SPARE))
        if (self.repo.top / path).exists() and not (self.repo.top / other).exists():
            (self.repo.top / other).parent.mkdir(exist_ok=True)
            self.repo.git("mv", path, other)
            if self.dice.random() < 0.3:
                self.change_lines()
            self.commit_all("rename")

    def delete_file(self) -> None:
        if self.dice.random() < 0.3:
            (self.repo.top / self.dice.choice(FILES)).unlink(missing_ok=True)
            self.commit_all("delete")

    def switch_branch(self) -> None:
        self.commit_all("before switch")
        self.repo.git("checkout", "-q", self.dice.choice(BRANCHES))

    def merge_branch(self) -> None:
        self.commit_all("before merge")
        strategy = self.dice.choice((["-X", "ours"], ["-X", "theirs"]))
        self.run_or_abort(
            "merge", "--no-edit", *self.dice.choice(([], ["--no-ff"])), *strategy, self.dice.choice(BRANCHES)
        )

    def squash_branch(self) -> None:
        self.commit_all("before squash")
        self.run_or_abort("merge", "-q", "--squash", "-X", "theirs", self.dice.choice(BRANCHES))
        self.commit_all("squash")

    def pick_commit(self) -> None:
        self.commit_all("before pick")
        commits = self.repo.git("rev-list", "--no-merges", "--max-count=5", self.dice.choice(BRANCHES)).split()
        command = self.dice.choice((["cherry-pick"], ["revert", "--no-edit"]))
        self.run_or_abort(*command, self.dice.choice(commits))

    # -- how

    def new_line(self) -> str:
        self.number += 1
        return f"id{self.number} version 0\n"

    def commit_all(self, message: str) -> None:
        self.repo.git("add", "-A")
        if self.repo.run("diff", "--cached", "--quiet").returncode:
            self.repo.git("commit", "-q", "-m", message)

    def run_or_abort(self, *command: str) -> None:
        if self.repo.run(*command).returncode:
            self.repo.git("reset", "-q", "--hard")
            self.repo.run("cherry-pick", "--quit")
            self.repo.run("revert", "--quit")

    # -- what is right

    def text_at(self, commit: str, path: str) -> list[str] | None:
        """Return the lines of a file at a commit."""
        shown = self.repo.run("show", f"{commit}:{path}")
        return shown.stdout.splitlines() if shown.returncode == 0 else None

    def list_commits(self, last: str, path: str, lines: tuple[int, int] | None) -> list[str]:
        if last == self.repo.git("rev-parse", "HEAD"):
            return []  # `git log -L` refuses an empty range
        after = f"{last}..HEAD"
        if lines is None:
            return self.repo.git("log", "--format=%H", after, "--", path).split()
        return self.repo.git("log", "-s", "--format=%H", f"-L{lines[0]},{lines[1]}:{path}", after).split()

    def expect(self, last: str, citation: Citation) -> tuple[bool, list[str] | None]:
        """Return whether the citation changed, and in which commits, if git tells it: of lines that
        are gone it does not.
        """
        [path] = citation.paths
        then, now = (self.text_at(commit, path) for commit in (last, "HEAD"))
        assert then is not None
        if now is None:
            return True, None
        if not citation.first:
            commits = self.list_commits(last, path, None)
            return bool(commits), commits
        ids = [line.split()[0] for line in then[citation.first - 1 : citation.last]]
        if (lines := find_range(now, ids)) is None:
            return True, None
        commits = self.list_commits(last, path, lines)
        complete = [line.split()[0] for line in now[lines[0] - 1 : lines[1]]] == ids
        return bool(commits) or not complete, commits if complete else None


def find_range(text: list[str], ids: list[str]) -> tuple[int, int] | None:
    """Return the first and the last line with one of these ids."""
    numbers = [number for number, line in enumerate(text, 1) if line.split()[0] in ids]
    return (min(numbers), max(numbers)) if numbers else None


def check_history(history: History) -> None:
    repo = history.repo
    places = plumbing.locate_work_tree(repo.top)
    notes = {note: (repo.top / note).read_text() for note in NOTES if (repo.top / note).exists()}
    head = repo.git("rev-parse", "HEAD")
    check = check_notes(places, notes, head, working_tree=False, seconds=60)
    assert check == check_notes(places, notes, head, working_tree=True, seconds=60), "all is committed"
    assert not check.unknown
    for note, text in notes.items():
        last = repo.git("log", "-1", "--format=%H", "--", note)
        marks = {mark.place: mark for mark in check.outdated[note].citations} if note in check.outdated else {}
        for citation in find_citations(note, text):
            [path] = citation.paths
            then = history.text_at(last, path)
            if then is not None and citation.last <= len(then):  # else a merge gave the note another file
                compare_mark(history, last, citation, marks.get(citation.name_place(path)))


def compare_mark(history: History, last: str, citation: Citation, mark: ChangedCitation | None) -> None:
    changed, commits = history.expect(last, citation)
    message = f"{history.repo.top}: {citation} after {last[:8]}: {mark}, expected {changed} {commits}"
    assert bool(mark) == changed, message
    history.seen["marked" if mark else "not marked"] += 1
    if mark and commits is not None and not history.repo.git("rev-list", "--merges", f"{last}..HEAD"):
        # If a hunk replaces one line by three, all three count as the cited line.
        assert mark.commits >= len(commits), message
        assert citation.first or mark.commits == len(commits), message
        history.seen["same count" if mark.commits == len(commits) else "more"] += 1


@pytest.mark.parametrize("seed", range(HISTORIES))
@pytest.mark.sample(3)
def test_mark_agrees_with_git_log_in_random_history(tmp_path: Path, monkeypatch, seed: int):
    isolate(monkeypatch, tmp_path / "home")
    seen = Counter[str]()
    history = History(make_repo(tmp_path / "work"), random.Random(seed), seen)
    for _ in range(STEPS):
        history.take_step()
    history.commit_all("end")
    check_history(history)
