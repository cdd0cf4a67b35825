"""The time that knowledge adds to a git merge: the driver on 10 changed documents a side, a replay,
and one long page.

The replay has 10 uncommitted documents follow a moved pin.
"""

from __future__ import annotations

import datetime as dt
import shutil
import sys
from pathlib import Path

from bench import knowledge, timing
from bench.knowledge import VMRAG
from bench.timing import Figure, Run
from vmrag_hooks import shims
from vmrag_link import pin as pins
from vmrag_link.engines.base import Write
from vmrag_link.engines.doltlite.engine import DoltliteEngine
from vmrag_link.git import merge_driver
from vmrag_link.models import Document, content_hash

CHANGED = 10
GROWTH = 2.0
LINES = 2_000
PAGE = 10_000
"""Lines of a page, of which each side has changed a hundred."""

PAGES = {
    "each line once": lambda number: f"line {number} of the page",
    "every second line empty": lambda number: f"line {number} of the page" if number % 2 else "",
    "twenty lines that repeat": lambda number: f"line {number * number % 20}",
}


def run(folder: Path, sizes: list[int], rounds: int, env: dict[str, str]) -> list[Figure]:
    figures: list[Figure] = []
    seconds: dict[str, dict[int, float]] = {"driver": {}, "replay": {}}
    for size in sizes:
        repo = prepared(folder, size, env)
        for name, figure in measured(repo, size, rounds, env).items():
            figures.append(figure)
            seconds[name][size] = figure.seconds[name]
    return figures + [page(folder, kind, rounds, env) for kind in PAGES] + timing.growths(seconds, GROWTH)


def page(folder: Path, kind: str, rounds: int, env: dict[str, str]) -> Figure:
    """Compare our whole process with git's. git needs no interpreter, so its time includes a start
    of our process, on empty texts.
    """
    pages = folder / "page"
    pages.mkdir(exist_ok=True)
    lines = [PAGES[kind](number) for number in range(PAGE)]
    for name, first in (("base", PAGE), ("ours", 0), ("theirs", PAGE // 2)):
        for number in range(first, min(first + PAGE // 2, PAGE), PAGE // 200):
            lines[number : number + 1] = [f"{name} {number}"]
        (pages / name).write_text("\n".join(lines) + "\n")
        lines = [PAGES[kind](number) for number in range(PAGE)]
    ours = [sys.executable, "-m", "bench.merge_text", *(str(pages / name) for name in ("base", "ours", "theirs"))]
    theirs = ["git", "merge-file", "-p", *(str(pages / name) for name in ("ours", "base", "theirs"))]
    current_folder = Path.cwd()
    timed = timing.in_turn(
        {
            "merge": lambda: timing.once(ours, cwd=current_folder, env=env),
            "git merge-file": lambda: timing.once(theirs, cwd=current_folder, env=env),
            "start": lambda: timing.once([*ours[:3], *["/dev/null"] * 3], cwd=current_folder, env=env),
        },
        rounds,
    )
    seconds = {name: sample.wall for name, sample in timed.items()}
    return Figure(
        f"merge of a page of {PAGE:,} lines ({kind}): against three of git merge-file + start",
        seconds["merge"] / (3 * seconds["git merge-file"] + seconds["start"]),
        1.0,
        seconds,
    )


def measured(repo: Path, size: int, rounds: int, env: dict[str, str]) -> dict[str, Figure]:
    def reset(to: str) -> None:
        knowledge.git(repo, "reset", "-q", "--hard", to, env=env)

    def merge(ours: str, theirs: str) -> Run:
        reset(ours)
        return timing.once(["git", "merge", "-q", "-m", "merge", theirs], cwd=repo, env=env)

    def replay() -> Run:
        """To and fro between two pins with views.

        `git reset` fires no hook, so nothing else is timed.
        """
        knowledge.git(repo, "symbolic-ref", "HEAD", "refs/heads/mine", env=env)
        head, start = knowledge.git(repo, "rev-parse", "HEAD", "main", env=env).split()
        reset("uncommitted-there" if head == start else "main")
        hook = [sys.executable, "-P", "-m", "vmrag_hooks", "post-checkout"]
        return timing.once(hook, cwd=repo, env=env)

    def driver() -> Run:
        knowledge.git(repo, "symbolic-ref", "HEAD", "refs/heads/merging", env=env)
        return merge("left", "right")

    def text() -> Run:
        knowledge.git(repo, "symbolic-ref", "HEAD", "refs/heads/merging", env=env)
        return merge("left-text", "right-text")

    timed = timing.in_turn(
        {
            "driver": driver,
            "git merge of two texts": text,
            "vmrag --version": lambda: timing.once([*VMRAG, "--version"], cwd=repo, env=env),
            "replay": replay,
        },
        rounds,
    )
    seconds = {name: sample.wall for name, sample in timed.items()}
    base = {name: seconds[name] for name in ("git merge of two texts", "vmrag --version")}
    return {
        name: Figure(
            f"{name}, {CHANGED} changed of {size:,} documents: against a git merge of two texts + start",
            seconds[name] / sum(base.values()),
            None,
            {name: seconds[name], **base},
        )
        for name in ("driver", "replay")
    }


def prepared(folder: Path, size: int, env: dict[str, str]) -> Path:
    """A copy of the repository with branches to merge, and uncommitted documents on the code branch
    `mine`.
    """
    source, repo = knowledge.make(folder, size, env), folder / f"merge-{size}"
    if (repo / "done").exists():
        shutil.rmtree(repo)
    shutil.copytree(source, repo, symlinks=True)
    knowledge.git(repo, "config", "merge.vmrag.driver", shims.format_driver_command(sys.executable), env=env)
    knowledge.git(repo, "config", "core.hooksPath", "/dev/null", env=env)  # what hooks cost is measured elsewhere
    (repo / ".git/info/attributes").write_text(merge_driver.ATTRIBUTE + "\n")
    engine = DoltliteEngine.open(repo / ".git/vmrag/kb")
    start = knowledge.head(engine, "main")
    knowledge.git(repo, "switch", "-q", "main", env=env)
    texts(repo, "both", env)
    for side, first in (("left", 0), ("right", CHANGED)):
        knowledge.git(repo, "switch", "-q", "-c", side, "main", env=env)
        commit(repo, engine, start, side, first=first, env=env)
        knowledge.git(repo, "switch", "-q", "-c", f"{side}-text", "main", env=env)
        texts(repo, side, env)
    knowledge.git(repo, "switch", "-q", "-c", "uncommitted-there", "main", env=env)
    commit(repo, engine, start, "there", first=2 * CHANGED, env=env)
    knowledge.git(repo, "switch", "-q", "-c", "mine", "main", env=env)
    knowledge.git(repo, "config", "branch.mine.vmragBranch", "mine", env=env)
    engine.create_branch("mine", start)
    engine.write("mine", Write(put_documents=[edited(number, "mine") for number in range(CHANGED)]), expected=start)
    engine.close()
    for branch in ("uncommitted-there", "mine"):
        knowledge.git(repo, "switch", "-q", branch, env=env)
        timing.once([*VMRAG, "sync", "-q"], cwd=repo, env=env)
    return repo


def commit(repo: Path, engine: DoltliteEngine, start: str, side: str, *, first: int, env: dict[str, str]) -> None:
    """A revision in which ten documents are others, pinned by a commit."""
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    rows = Write(put_documents=[edited(number, side) for number in range(first, first + CHANGED)])
    author = "Bench <bench@example.com>"
    revision = engine.commit_onto(start, [rows], message=side, author=author, date=now)
    pin = pins.update_pin(None, remote="git:", branch=side, commit=revision, committed_at=now)
    (repo / ".dolt-version").write_bytes(pins.format_pin(pin))
    knowledge.git(repo, "commit", "-q", "-a", "-m", side, env=env)


def texts(repo: Path, side: str, env: dict[str, str]) -> None:
    """Both sides change both files, at places of their own."""
    place = {"left": 10, "right": LINES - 10}.get(side, 0)
    for name in ("one.txt", "two.txt"):
        lines = [f"line {number}" for number in range(LINES)]
        lines[place] += side
        (repo / name).write_text("\n".join(lines) + "\n")
    knowledge.git(repo, "add", "one.txt", "two.txt", env=env)
    knowledge.git(repo, "commit", "-q", "-m", side, env=env)


def edited(number: int, side: str) -> Document:
    text = f"{side} has changed this one, number {number}"
    return Document("documents", f"d{number:07d}", f"d{number:07d}", text, content_hash(text))
