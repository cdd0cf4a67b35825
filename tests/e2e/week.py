"""A week of a team whose files are documents, and that stores nothing.

`python -m tests.e2e.week` types all days in a new folder. `test_week.py` types them in the suite.

Each command is typed twice: in a repository that `vmrag init` set up, and in a twin without vmrag.
git must print and do the same in both. After each command, `vmrag query` and `vmrag show` must
answer from the files that git tracks, as they are in the working tree. The team types no other
command of vmrag.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.operations.world import STATE
from tests.support.repos import isolate
from tests.support.terminal import Project

WORD = "weekday"
"""A word of every page and of every file of code."""

FUNCTIONS = rf"""
put() {{ mkdir -p "$(dirname "$1")" && printf '# %s\n\n%s on a {WORD}.\n' "$1" "$2" > "$1"; }}
code() {{ mkdir -p "$(dirname "$1")" && printf 'def run():\n    return "%s on a {WORD}"\n' "$2" > "$1"; }}
"""
"""Shell functions that write a page, and a file of code."""

BEGIN = """
.    git init -q --bare hub.git
.    git clone -q hub.git bob
bob  git remote set-url origin ../hub.git
bob  put README.md "Read this"; put docs/setup.md "Install it"; put docs/limits.md "It ends after 30 seconds"
bob  put docs/rest.md "Take a rest"; put docs/old.md "Delete this"; code src/client.py "Connect"
bob  code src/server.py "Listen"; printf 'build/\\n' > .gitignore; printf '\\0\\1' > logo.png
bob  git add -A; git commit -qm "Begin"; git tag v0.9
bob  put docs/limits.md "It ends after 20 seconds"; git commit -qam "Shorter"
bob  git push -q origin main v0.9
"""
"""The history before vmrag."""

DAYS = {
    "Monday: edit and move": """
.    git clone hub.git ada
ada  git remote set-url origin ../hub.git
ada  git commit -m "Set up vmrag"
ada  git push
ada  put docs/setup.md "Install it with pip"
ada  git add docs/setup.md
ada  put docs/setup.md "Install it with uv"
ada  git diff
ada  git commit -m "Install with pip"
ada  git commit -am "Install with uv"
ada  put docs/draft.md "An idea"
ada  put build/page.md "Built"
ada  git add -N docs/draft.md
ada  git add docs/draft.md
ada  git commit -m "Draft"
ada  git mv docs/draft.md docs/guide.md
ada  git commit -m "Rename"
ada  mv docs/rest.md docs/sleep.md
ada  git add -A
ada  git commit -m "Move"
ada  git rm docs/old.md
ada  git commit -m "Remove"
ada  rm src/server.py
ada  git restore src/server.py
ada  chmod +x src/client.py
ada  git commit -am "Mode"
ada  mkdir -p notes && git mv docs/guide.md notes/ && git mv notes manual
ada  git commit -m "Move a folder"
ada  git rm --cached src/server.py
ada  git reset
ada  git add -f build/page.md
ada  git rm -f build/page.md
ada  git push
""",
    "Tuesday: switch and stash": """
ada  git switch -c timeouts
ada  put docs/limits.md "It ends after 5 seconds"
ada  git switch main
ada  git switch -
ada  git commit -am "Five seconds"
ada  git switch main
ada  git checkout timeouts -- docs/limits.md
ada  git reset --hard
ada  git checkout -
ada  code src/retry.py "Try again"; git add .
ada! git switch main --discard-changes --no-such-option
ada  git stash
ada  git stash pop
ada  put docs/loose.md "Loose"
ada  git stash -u
ada  git switch main
ada  git stash apply
ada  git checkout -f timeouts
ada  git clean -fd
ada  git stash branch tried
ada  git add -A; git commit -m "Tried"
ada  git switch main
ada  put README.md "Read this twice"
ada  git stash push -m "half" README.md
ada  git stash list
ada  git stash drop
ada  put README.md "Read this now"; git commit -am "Now"
ada  git reset --soft HEAD~1
ada  git commit -C ORIG_HEAD
ada  git reset HEAD~1
ada  git restore .
ada  git reset --hard ORIG_HEAD
ada  git merge --no-ff --no-edit timeouts
ada  git branch -d timeouts
ada  git reset --hard HEAD~1
ada  git reset --hard HEAD@{1}
ada  git checkout -p HEAD~1 -- docs </dev/null
ada  git branch -m tried kept
ada  git push origin main kept
""",
    "Wednesday: a colleague": """
bob  git pull
bob  put docs/limits.md "It ends after 10 seconds"; git commit -am "Ten"
bob  git push
ada  put docs/setup.md "Install it twice"; git commit -am "Twice"
ada! git push
ada  git fetch
ada  git pull --rebase
ada  git push
bob  put docs/faq.md "A question"; git add -A; git commit -m "Question"
bob  git pull --no-rebase --no-edit
bob  git push
ada  git pull --ff-only
ada  put docs/limits.md "It ends after 11 seconds"; git commit -am "Eleven"
bob  put docs/limits.md "It ends after 12 seconds"; git commit -am "Twelve"; git push
ada! git pull --no-rebase
ada  git merge --abort
ada! git pull --no-rebase
ada  git checkout --theirs docs/limits.md
ada  put docs/limits.md "It ends after 11 or 12 seconds"
ada  git add docs/limits.md
ada  git commit --no-edit
ada  git push
bob  git pull
bob  git switch -c rename && git mv docs/setup.md docs/install.md && git commit -m "Install"
bob  git push -u origin rename
ada  git fetch
ada  put docs/setup.md "Install it thrice"; git commit -am "Thrice"
ada  git merge --no-edit origin/rename
ada  git push origin main
ada  git push origin --delete rename
bob  git switch main
bob  git pull --prune
bob  git branch -D rename
""",
    "Thursday: rewrite": """
ada  git switch -c feature HEAD~2
ada  code src/cache.py "Keep it"; git add -A; git commit -m "Cache"
ada  put docs/faq.md "Two questions"; git commit -am "Questions"
ada  git rebase main
ada  GIT_SEQUENCE_EDITOR="sed -i s/^pick/edit/" git rebase -i HEAD~2
ada  code src/cache.py "Keep it long"; git commit -a --amend --no-edit
ada  git rebase --continue
ada  git rebase --continue
ada  code src/cache.py "Keep it short"; git commit -a --fixup :/Cache
ada  GIT_SEQUENCE_EDITOR=: git rebase -i --autosquash main
ada  git switch main
ada  put docs/faq.md "Three questions"; git commit -am "Three"
ada  git switch feature
ada! git rebase main
ada  git rebase --abort
ada! git rebase main
ada  put docs/faq.md "Two or three questions"; git add -A
ada  git rebase --continue
ada  git switch main
ada  git cherry-pick feature~1
ada! git cherry-pick feature~4 feature
ada  git cherry-pick --abort
ada  git revert --no-edit HEAD
ada  git revert --no-edit HEAD
ada  git revert -n HEAD~2
ada  git revert --abort
ada  git format-patch -1 feature -o ../patches
ada  git apply ../patches/0001-*
ada  git checkout .
ada  git am ../patches/0001-*
ada  git commit --amend -m "Mail"
ada  git rebase --onto HEAD~1 HEAD~1 feature
ada  git switch main
ada  git merge --squash feature
ada  git reset --hard
ada  git merge -s ours --no-edit feature
ada  git branch -D feature
ada  git push --force-with-lease origin main
bob  git fetch
bob  git reset --hard origin/main
""",
    "Friday: old versions": """
ada  git tag -a v1.0 -m "Version 1"
ada  git push origin v1.0
ada  git checkout v0.9
ada  put docs/limits.md "It ends after 29 seconds"; git commit -am "Old"
ada  git switch -c support
ada  git switch --detach v1.0~1
ada  git switch main
ada  git bisect start
ada  git bisect bad
ada  git bisect good v0.9
ada  git bisect skip
ada  git bisect reset
ada  git bisect start HEAD v0.9
ada  git bisect run grep -q "20 sec" docs/limits.md
ada  git bisect reset
ada  git worktree add ../hotfix support
hotfix  put docs/limits.md "It ends after 28 seconds"; git commit -am "Hot"
hotfix  git rebase v1.0~1 -X ours
ada  git worktree add --detach ../look v1.0
look git switch --detach v0.9
ada  git worktree move ../hotfix ../fixed
fixed  git merge -X theirs --no-edit main
ada  git worktree remove ../look
ada  git merge --no-edit support
ada  git sparse-checkout set docs
ada  put docs/limits.md "It ends after 9 seconds"; git commit -am "Nine"
ada  git sparse-checkout disable
ada  git checkout --orphan fresh
ada  git rm -rfq docs; git commit -m "Fresh"
ada  git switch main
ada  git branch -D fresh
ada  git gc -q
ada  git push
.    git clone --depth 1 "file://$PWD/hub.git" short
short  put README.md "Read this last"; git commit -am "Last"; git push
bob  git pull
ada  git pull
ada  git fsck
""",
}
"""The commands of the team, each after the name of its typist. `!` follows the name if it fails."""


class Step(NamedTuple):
    """`who` types `command` in a folder of that name, and it ends with 0 unless it `fails`."""

    who: str
    fails: bool
    command: str


def read_steps(text: str) -> Iterator[Step]:
    for line in text.strip().splitlines():
        who, command = line.split(maxsplit=1)
        yield Step(who.removesuffix("!"), who.endswith("!"), command)


@dataclass
class Week:
    """Two folders with the same repositories: `ours`, and `twin` without vmrag."""

    ours: Path
    twin: Path
    typed: int = 0
    answers: int = 0
    shown: Iterator[int] = field(default_factory=itertools.count)

    def type_days(self, days: Iterable[str]) -> None:
        """Type the history before vmrag, the set-up and these days."""
        for step in read_steps(BEGIN):
            self.type_in_both(step)
        for day in days:
            for step in read_steps(DAYS[day]):
                if step.command == 'git commit -m "Set up vmrag"':
                    self.set_up()
                self.type_in_both(step)
                self.check_answers(step)
            self.check_refs()
        self.check_traces()

    def set_up(self) -> None:
        """Run `vmrag init` in our clone, and write the same file in the twin."""
        ada, other = (Project(root / "ada") for root in (self.ours, self.twin))
        before = read_tree(ada.top)
        ada.vmrag("init")
        after = read_tree(ada.top)
        changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        assert changed == {".vmrag.yaml", ".git/index"}, changed
        assert ada.git("status", "--porcelain") == "A  .vmrag.yaml"
        other.write(".vmrag.yaml", after[".vmrag.yaml"])
        other.git("add", ".vmrag.yaml")

    def type_in_both(self, step: Step) -> None:
        """Type a command in both folders: git does and prints the same."""
        self.typed += 1
        ours, twin = (type_command(root, step, self.typed) for root in (self.ours, self.twin))
        assert ours == twin, f"{step.who}$ {step.command}: {ours} {twin}"
        assert (ours[0] != 0) == step.fails, f"{step.who}$ {step.command}: {ours}"

    def check_answers(self, step: Step) -> None:
        """Compare what vmrag answers in the working tree of a step with its files."""
        top = self.ours / (step.command.split()[-1] if "git clone" in step.command else step.who)
        if not (top / ".git").exists():
            return
        project, typed = Project(top), f"{step.who}$ {step.command}"
        files, head = read_files(project), project.git("rev-parse", "--verify", "-q", "HEAD", check=False)
        result = project.vmrag("query", WORD, "-k", "1000", "--mode", "keyword", "--json")
        report = result.json
        assert result.err == "", typed
        assert report["notes"] == [], typed
        texts = {row["file"]: row["text"] for row in report["results"]}
        assert texts == files, f"{typed}: {texts} {files}"
        edited = {row["file"] for row in report["results"] if row["uncommitted"]}
        base = head or project.git("hash-object", "-t", "tree", os.devnull)
        lines = project.git("diff", "--numstat", "--no-renames", base).splitlines()
        changed = {line.split("\t")[2] for line in lines if not line.startswith("0\t0\t")}
        assert edited == changed & files.keys(), (typed, edited, changed)
        commit = report["kb"]["sources"]["commit"]
        assert commit == (head or None), f"{typed}: {commit}"
        untracked = project.git("ls-files", "--others", "--exclude-standard").splitlines()
        assert report["kb"]["sources"].get("untracked", 0) == len([*filter(is_document, untracked)]), typed
        shown = sorted(files)[next(self.shown) % len(files)]
        assert project.vmrag("show", shown).out == files[shown], typed
        self.answers += 1

    def check_refs(self) -> None:
        """Compare the answers at each branch and tag with the files of its commit."""
        ada = Project(self.ours / "ada")
        for ref in ada.git("for-each-ref", "--format=%(refname)", "refs/heads", "refs/tags").splitlines():
            names = filter(is_document, ada.git("ls-tree", "-r", "--name-only", ref).splitlines())
            report = ada.ask("query", WORD, "-k", "1000", "--mode", "keyword", "--at", ref)
            texts = {row["file"].partition(":")[2] or row["file"]: row["text"] for row in report["results"]}
            assert texts == {name: f"{ada.git('show', f'{ref}:{name}')}\n" for name in names}, ref
            self.answers += 1

    def check_traces(self) -> None:
        """Nothing of vmrag is in a ref, a hook or a configuration, here or at the remote."""
        for name in ("hub.git", "bob/.git", "ada/.git"):
            ours, twin = (
                {
                    path: re.sub(rb"/(ours|twin)/", b"/ROOT/", content)
                    for path, content in read_tree(root / name).items()
                    if path == "config" or path.startswith(("hooks/", "refs/", "info/"))
                }
                for root in (self.ours, self.twin)
            )
            assert ours == twin, name


def is_document(path: str) -> bool:
    return path.endswith((".md", ".py"))


def read_files(project: Project) -> dict[str, str]:
    """Return the texts of the tracked documents in the working tree."""
    paths = filter(is_document, set(project.git("ls-files").splitlines()))
    return {path: (project.top / path).read_text() for path in paths if (project.top / path).is_file()}


def read_tree(top: Path) -> Mapping[str, bytes]:
    """Return all files of a folder, without git's objects and logs and what vmrag derives."""
    paths = (path for path in top.rglob("*") if path.is_file())
    names = {path.relative_to(top).as_posix(): path for path in paths}
    derived = (".git/vmrag/", "vmrag/", ".git/logs/", ".git/objects/", "objects/")
    return {name: path.read_bytes() for name, path in names.items() if not name.startswith(derived)}


def type_command(root: Path, step: Step, number: int) -> tuple[int, str, str, str]:
    """Return exit code, output, errors, and git's state after the command."""
    moment = f"2026-03-02T09:{number // 60:02}:{number % 60:02}+00:00"
    folder = root / step.who
    environ = os.environ | {"GIT_AUTHOR_DATE": moment, "GIT_COMMITTER_DATE": moment, "NAME": step.who}
    code, out, err = run_shell(folder, FUNCTIONS + step.command, environ)
    state = run_shell(folder, STATE, environ)[1] if (folder / ".git").exists() else ""
    return code, *(text.replace(str(root), "ROOT") for text in (out, err, state))


def run_shell(folder: Path, script: str, environ: Mapping[str, str]) -> tuple[int, str, str]:
    result = subprocess.run(
        ["sh", "-c", script],
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return result.returncode, result.stdout, result.stderr


def prepare(folder: Path) -> Week:
    """Return a week in two new folders; call `isolate` first."""
    week = Week(folder / "ours", folder / "twin")
    week.ours.mkdir()
    week.twin.mkdir()
    return week


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        isolate(patch, Path(folder) / "home")
        week = prepare(Path(folder))
        week.type_days(DAYS)
    sys.stdout.write(f"{week.typed} commands typed, {week.answers} answers compared: no difference\n")


if __name__ == "__main__":
    main()
