"""Cost of files of the tree as documents: two releases of Django, switched, edited, asked from
other work trees, and 50,000 small files.

The releases come from the package index (`pip download`): this part needs a network once for each
folder.
"""

from __future__ import annotations

import contextlib
import random
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from bench import timing
from bench.knowledge import VMRAG, git
from bench.timing import Figure, Run, once
from vmrag_link.progress import QUIET
from vmrag_link.retrieval.query import Mode, Query
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.answers.query import search_index

RELEASES = {"v51": "django==5.1", "v52": "django==5.2"}
QUESTION = "where are sessions refreshed"
SETTINGS = """\
sources:
  - collection: code
    kind: code
    paths: ["**/*.py"]
"""
FILES = 50_000
CHECKOUTS, QUESTIONS = 50, 40
FIRST, BACK, TREE, EDIT, MANY = 1.5, 1.3, 1.3, 1.3, 1.3
SWITCH = 2.2
"""Against parsing what changed and embedding what is new: 1.3 s where that took .6."""


def run(folder: Path, rounds: int, env: dict[str, str]) -> list[Figure]:
    repo = _django(folder, env)
    return [_first(repo, env), *_moved(repo, rounds, env), _stale(repo, env), *_many(folder, rounds, env)]


def _django(folder: Path, env: dict[str, str]) -> Path:
    repo = folder / "django"
    if (repo / ".git" / "ready").exists():
        return repo
    shutil.rmtree(repo, ignore_errors=True)
    repo.mkdir(parents=True)
    git(repo, "init", "-q", env=env)
    for tag, release in RELEASES.items():
        wheels = folder / f"wheel-{tag}"
        argv = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", release, "-d", str(wheels)]
        subprocess.run(argv, check=True)
        shutil.rmtree(repo / "django", ignore_errors=True)
        zipfile.ZipFile(next(wheels.glob("*.whl"))).extractall(repo)
        (repo / ".vmrag.yaml").write_text(SETTINGS)
        git(repo, "add", "-A", env=env)
        git(repo, "commit", "-q", "-m", tag, env=env)
        git(repo, "tag", tag, env=env)
    (repo / ".git" / "ready").touch()
    return repo


def _ask(repo: Path, env: dict[str, str]) -> Run:
    return once([*VMRAG, "query", QUESTION], cwd=repo, env=env)


def _first(repo: Path, env: dict[str, str]) -> Figure:
    git(repo, "checkout", "-qf", "v51", env=env)
    ratios = []
    for _ in range(3):
        shutil.rmtree(repo / ".git" / "vmrag", ignore_errors=True)
        ours = _ask(repo, env)
        again = _ask(repo, env)
        bare, _ = _bare(repo, "v51", env)
        ratios.append(((ours.cpu - again.cpu) / bare, ours.cpu - again.cpu, bare))
    ratio, ours_cpu, bare = sorted(ratios)[1]
    seconds = {"index": ours_cpu, "parse and embed": bare}
    return Figure("first index of Django's 879 files, CPU, against parsing and embedding alone", ratio, FIRST, seconds)


def _bare(repo: Path, commit: str, env: dict[str, str], *before: str) -> tuple[float, int]:
    argv = [sys.executable, str(Path(__file__).with_name("bare_sources.py")), str(repo), commit, *before]
    path = {"PYTHONPATH": str(Path(__file__).parent.parent)}
    said = subprocess.run(argv, env=env | path, capture_output=True, text=True, check=True).stdout.split()
    return float(said[0]), int(said[1])


def _moved(repo: Path, rounds: int, env: dict[str, str]) -> list[Figure]:
    """After a checkout, after going back, from a new work tree, after an edit: each beside a query
    that saw nothing of it.
    """
    cpu_by_case: dict[str, list[float]] = {name: [] for name in ("same", "other", "back", "tree", "edited")}
    for number in range(rounds):
        shutil.rmtree(repo / ".git" / "vmrag", ignore_errors=True)
        git(repo, "checkout", "-qf", "v51", env=env)
        _ask(repo, env)
        cpu_by_case["same"].append(_ask(repo, env).cpu)
        git(repo, "checkout", "-q", "v52", env=env)
        cpu_by_case["other"].append(_ask(repo, env).cpu)
        git(repo, "checkout", "-q", "v51", env=env)
        cpu_by_case["back"].append(_ask(repo, env).cpu)
        tree = repo.with_name(f"tree-{number}")
        git(repo, "worktree", "add", "-qf", str(tree), "v52", env=env)
        cpu_by_case["tree"].append(_ask(tree, env).cpu)
        git(repo, "worktree", "remove", "--force", str(tree), env=env)
        path = repo / "django" / "shortcuts.py"
        path.write_text(f"{path.read_text()}\n# edited {number}\n")
        cpu_by_case["edited"].append(_ask(repo, env).cpu)
        git(repo, "checkout", "-q", "--", ".", env=env)
    median = {name: sorted(times)[len(times) // 2] for name, times in cpu_by_case.items()}
    same, more = median["same"], median["other"] - median["same"]
    bare, _ = _bare(repo, "v52", env, "v51")
    seconds = median | {"parse and embed": bare}
    return [
        Figure(
            "what a switch of 220 files adds to a query, against parsing and embedding it", more / bare, SWITCH, seconds
        ),
        Figure("query after going back", median["back"] / same, BACK, {"back": median["back"], "same": same}),
        Figure("first query of a new work tree", median["tree"] / same, TREE, {"tree": median["tree"], "same": same}),
        Figure(
            "query after editing one file", median["edited"] / same, EDIT, {"edited": median["edited"], "same": same}
        ),
    ]


def _stale(repo: Path, env: dict[str, str]) -> Figure:
    """Ask about symbols that moved between the releases, at random checkouts, and count the hits
    that differ from the text of their file.
    """
    shutil.rmtree(repo / ".git" / "vmrag", ignore_errors=True)
    chance, moved = random.Random(5), sorted(_moved_symbols(repo, env))
    hits = stale = 0
    for _ in range(CHECKOUTS):
        git(repo, "checkout", "-qf", chance.choice(["v51", "v52"]), env=env)
        with contextlib.closing(Workspace.open(repo, QUIET)) as ws:
            queries = [Query(symbol, None, 5, Mode.KEYWORD) for symbol in chance.sample(moved, QUESTIONS)]
            results = search_index(
                ws, lambda searcher, _, queries=queries: [searcher.search(query) for query in queries]
            )
        for hit in (hit for hits_of_query in results for hit in hits_of_query):
            lines = (repo / hit.doc_id).read_text().splitlines(keepends=True)
            first, last = hit.metadata["line"], hit.metadata["last_line"]
            hits += 1
            stale += "".join(lines[first - 1 : last]).rstrip() != hit.text.rstrip()
    git(repo, "checkout", "-qf", "v51", env=env)
    title = f"stale ones among {hits:,} hits of {CHECKOUTS * QUESTIONS:,} questions at {CHECKOUTS} checkouts"
    return Figure(title, stale, 0, {})


def _moved_symbols(repo: Path, env: dict[str, str]) -> set[str]:
    """Names that are defined in both releases, in other lines or files."""
    places: dict[str, set[str]] = {}
    for tag in RELEASES:
        said = git(repo, "grep", "-nE", r"^ *(def|class) \w+", tag, "--", "*.py", env=env)
        for line in said.splitlines():
            _, path, number, text = line.split(":", 3)
            name = re.match(r" *(?:def|class) (\w+)", text)[1]
            places.setdefault(name, set()).add(f"{tag} {path} {number}")
    both = {
        name
        for name, mentions in places.items()
        if len({mention.split(" ")[0] for mention in mentions}) == len(RELEASES)
    }
    old = {name: {mention.split(" ", 1)[1] for mention in places[name] if mention.startswith("v51 ")} for name in both}
    new = {name: {mention.split(" ", 1)[1] for mention in places[name] if mention.startswith("v52 ")} for name in both}
    return {name for name in both if old[name] != new[name] and len(name) > 6}


def _many(folder: Path, rounds: int, env: dict[str, str]) -> list[Figure]:
    """Compare the time that 50,000 files add to a query with one `git diff-index HEAD`."""
    repo = folder / "many"
    if not (repo / ".git" / "ready").exists():
        shutil.rmtree(repo, ignore_errors=True)
        for number in range(FILES):
            path = repo / f"docs/{number % 200}/page{number}.md"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"# Page {number}\n\nword{number}\n")
        git(repo, "init", "-q", env=env)
        git(repo, "add", "-A", env=env)
        git(repo, "commit", "-q", "-m", "many", env=env)
        (repo / ".git" / "ready").touch()
    (repo / ".vmrag.yaml").write_text("embedding:\n  model: hash\nsources:\n  - collection: docs\n    paths: [docs/]\n")
    few = _few(folder, env)
    word = [*VMRAG, "query", "--mode", "keyword", "-k", "1", "word7"]
    once(word, cwd=repo, env=env)
    look = ["git", "--no-optional-locks", "diff-index", "HEAD"]
    things = {
        "query": lambda: once(word, cwd=repo, env=env),
        "git": lambda: once(look, cwd=repo, env=env),
        "few": lambda: once(word, cwd=few, env=env),
    }
    figures = []
    for state in ("as they were", "all touched"):
        if state == "all touched":
            subprocess.run(["find", "docs", "-name", "*.md", "-exec", "touch", "{}", "+"], cwd=repo, check=True)
            once(word, cwd=repo, env=env)
        samples = timing.in_turn(things, rounds)
        seconds = {name: sample.cpu for name, sample in samples.items()}
        title = f"what 50,000 files add to a query, {state}, against git's own look"
        figures.append(Figure(title, (seconds["query"] - seconds["few"]) / seconds["git"], MANY, seconds))
    return figures


def _few(folder: Path, env: dict[str, str]) -> Path:
    repo = folder / "few"
    if not repo.exists():
        (repo / "docs").mkdir(parents=True)
        (repo / "docs/page7.md").write_text("# Page\n\nword7\n")
        (repo / ".vmrag.yaml").write_text(
            "embedding:\n  model: hash\nsources:\n  - collection: docs\n    paths: [docs/]\n"
        )
        git(repo, "init", "-q", env=env)
        git(repo, "add", "-A", env=env)
        git(repo, "commit", "-q", "-m", "few", env=env)
    return repo
