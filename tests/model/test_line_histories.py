"""A page is a file in git and a document: through random histories of edits, merges, picks, reverts
and rebases, git and the merge driver make the same text of it.

`VMRAG_LINE_HISTORIES=200` makes it two hundred, as `tests/check.py --long` does.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable

import pytest

from tests.support import terminal
from tests.support.terminal import Project
from vmrag_link.engines import opening
from vmrag_link.engines.base import Engine, Write
from vmrag_link.models import Document, content_hash

template, project = terminal.template, terminal.project

HISTORIES = int(os.environ.get("VMRAG_LINE_HISTORIES") or 2)
STEPS = 12
BRANCHES = ("main", "left", "right")
DATE = "2026-03-04T05:06:07Z"


class Histories:
    """One work tree; `seen` counts what happened."""

    def __init__(self, project: Project, engine: Engine, dice: random.Random, seen: Counter[str]) -> None:
        self.project, self.engine, self.dice, self.seen = project, engine, dice, seen
        self.lines = 0

    def begin(self, name: str) -> None:
        """A page of its own lines, from which all branches start."""
        self.git("checkout", "-q", "--detach", "first")
        self.write([f"{name}: line {number}" for number in range(self.dice.randint(12, 30))])
        for branch in ("start", *BRANCHES):
            self.git("branch", "-f", branch)
        self.git("checkout", "-q", self.dice.choice(BRANCHES))

    def step(self) -> None:
        self.dice.choice([self.edit, self.edit, self.merge, self.pick, self.revert, self.rebase, self.switch])()
        assert self.page == self.document, "git and the driver agree"

    # -- what happens ------------------------------------------------------------------------------

    def edit(self) -> None:
        lines = self.page.splitlines()
        for _ in range(self.dice.randint(1, 2)):
            at = self.dice.randrange(len(lines) + 1)
            new = [self.new_line() for _ in range(self.dice.randint(0, 2))]
            lines[at : at + self.dice.randint(0, 1 if len(lines) > 6 else 0)] = new
        self.write(lines)

    def switch(self) -> None:
        self.git("checkout", "-q", self.dice.choice(BRANCHES))

    def merge(self) -> None:
        self.run("merge", "-q", "--no-edit", self.dice.choice(BRANCHES))

    def pick(self) -> None:
        if commit := self.single():
            self.run("cherry-pick", "--allow-empty", "--keep-redundant-commits", commit)

    def revert(self) -> None:
        if commit := self.single():
            self.run("revert", "--no-edit", commit)

    def rebase(self) -> None:
        self.run("rebase", "-q", "--empty=keep", "--reapply-cherry-picks", self.dice.choice(BRANCHES))

    # -- how ---------------------------------------------------------------------------------------

    def run(self, command: str, *arguments: str) -> None:
        result = self.project.run(command, *arguments, env={"GIT_EDITOR": "true"})
        if result.returncode == 0:
            self.seen[command] += 1
            return
        unmerged = set(self.git("diff", "--name-only", "--diff-filter=U").split())
        self.seen[f"{command} in conflict" if unmerged else f"{command} of nothing"] += 1
        if len(unmerged) == 1:
            self.seen[f"{unmerged.pop()} alone in conflict"] += 1
        if unmerged:
            self.git(command, "--abort")
        self.git("reset", "-q", "--hard")  # git leaves nothing to abort for a change that exists already

    def single(self) -> str | None:
        """Any commit with one parent since the page was made, if there is one."""
        commits = self.git("rev-list", "--no-merges", "--max-count=20", *BRANCHES, "--not", "start").split()
        return self.dice.choice(commits) if commits else None

    def write(self, lines: list[str]) -> None:
        text = "".join(f"{line}\n" for line in lines)
        rows = Write(put_documents=[Document("handbook", "page.md", "page", text, content_hash(text))])
        revision = self.engine.commit_onto(self.pinned, [rows], message="edit", author="Ada <a@b.c>", date=DATE)
        pin = json.loads((self.project.top / ".dolt-version").read_text()) | {"dolt_commit": revision}
        self.project.write("page.md", text)
        self.project.write(".dolt-version", json.dumps(pin, indent=2) + "\n")
        self.git("add", "page.md", ".dolt-version")
        self.git("commit", "-q", "--allow-empty", "-m", "edit")

    def new_line(self) -> str:
        self.lines += 1
        return f"new line {self.lines}"

    def git(self, *arguments: str) -> str:
        return self.project.git(*arguments)

    @property
    def pinned(self) -> str:
        return self.project.pinned

    @property
    def page(self) -> str:
        return (self.project.top / "page.md").read_text()

    @property
    def document(self) -> str:
        result = self.engine.find_document(self.pinned, "handbook", "page.md")
        assert result is not None
        return result.content


@pytest.fixture
def engine(project: Project, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Engine]:
    monkeypatch.setenv("VMRAG", "0")
    return lambda: opening.open_engine(project.shared / "kb")


def test_page_has_equal_lines_in_git_and_knowledge_base(project, engine):
    seen: Counter[str] = Counter()
    opened = engine()
    try:
        for number in range(HISTORIES):
            histories = Histories(project, opened, random.Random(number), seen)
            histories.begin(f"page {number}")
            for _ in range(STEPS):
                histories.step()
    finally:
        opened.close()
    print(dict(seen))
    alone = sum(count for name, count in seen.items() if name.endswith("alone in conflict"))
    assert alone <= seen.total() // 100, "what is a conflict differs in few cases"
    assert seen["merge"]
