"""Moving between two revisions of which 100 documents differ, against the bare work
(`bare_switch`).
"""

from __future__ import annotations

import array
import contextlib
import hashlib
import random
import shutil
import sqlite3
import sys
from pathlib import Path

from bench import knowledge, timing
from bench.knowledge import VMRAG
from bench.timing import Figure, Run
from vmrag_link.chroma.bindings import Rows, open_store
from vmrag_link.engines.doltlite.connection import Connection

BARE = Path(__file__).with_name("bare_switch.py")
AGAINST_BARE = 1.6
AGAINST_FRESH = 30
GROWTH = 4.0
BACK = 1.5
START = 2.0


def run(folder: Path, sizes: list[int], rounds: int, env: dict[str, str]) -> list[Figure]:
    figures = [start(folder, rounds, env)]
    switches = {size: switch(folder, size, rounds, env) for size in sizes}
    figures += [figure for pair in switches.values() for figure in pair]
    if len(sizes) > 1:
        small, large = min(sizes), max(sizes)
        seconds = {f"{size:,} documents": switches[size][0].seconds["vmrag sync"] for size in (small, large)}
        ratio = seconds[f"{large:,} documents"] / seconds[f"{small:,} documents"]
        figures.append(Figure(f"growth of a switch from {small:,} to {large:,} documents", ratio, GROWTH, seconds))
    middle = 10_000
    if middle in sizes:
        figures.append(fresh(folder, middle, switches[middle][0].seconds["vmrag sync"], env))
    return figures


def start(folder: Path, rounds: int, env: dict[str, str]) -> Figure:
    """What it costs to say hello."""
    timed = timing.in_turn(
        {
            "vmrag --version": lambda: timing.once([*VMRAG, "--version"], cwd=folder, env=env),
            "python -c 'import click'": lambda: timing.once(
                [sys.executable, "-c", "import click"], cwd=folder, env=env
            ),
        },
        3 * rounds,
    )
    seconds = {name: sample.wall for name, sample in timed.items()}
    return Figure("start", seconds["vmrag --version"] / seconds["python -c 'import click'"], START, seconds)


def switch(folder: Path, size: int, rounds: int, env: dict[str, str]) -> list[Figure]:
    """The way there (its snapshot is not there yet) and the way back (it is)."""
    bare = prepared(folder, size)
    repo = knowledge.make(folder, size, env)
    shelf = repo / ".git/vmrag/snapshots"

    def there() -> Run:
        knowledge.git(repo, "switch", "-q", "feature", env=env)
        pinned = next(line for line in (repo / ".dolt-version").read_text().splitlines() if "dolt_commit" in line)
        revision = pinned.split('"')[3]
        for path in shelf.glob(f"{revision}-*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        return timing.once([*VMRAG, "sync", "-q"], cwd=repo, env=env)

    def back() -> Run:
        knowledge.git(repo, "switch", "-q", "main", env=env)
        return timing.once([sys.executable, "-P", "-m", "vmrag_hooks", "post-checkout"], cwd=repo, env=env)

    def bare_switch() -> Run:
        shutil.rmtree(bare / "snapB", ignore_errors=True)
        return timing.once([sys.executable, str(BARE), str(bare)], cwd=bare, env=env)

    timed = timing.in_turn(
        {
            "bare switch": bare_switch,
            "vmrag sync": there,
            "back": back,
            "vmrag --version": lambda: timing.once([*VMRAG, "--version"], cwd=repo, env=env),
            "git": lambda: timing.once(["git", "rev-parse", "HEAD"], cwd=repo, env=env),
        },
        rounds,
    )
    seconds = {name: sample.wall for name, sample in timed.items()}
    allowed = seconds["bare switch"] * AGAINST_BARE + seconds["vmrag --version"]
    there_figure = Figure(
        f"switch, {size:,} documents, 100 differ: against {AGAINST_BARE} x bare switch + start",
        seconds["vmrag sync"] / allowed,
        1.0,
        {name: seconds[name] for name in ("vmrag sync", "bare switch", "vmrag --version")},
    )
    # Three git calls: where the work tree is, its configuration, and the KB branch of the code
    # branch.
    one_start = seconds["vmrag --version"]
    back_figure = Figure(
        f"back to a snapshot that is there, {size:,} documents: against one start + git",
        (seconds["back"] - 3 * seconds["git"]) / one_start,
        BACK,
        {name: seconds[name] for name in ("back", "vmrag --version", "git")},
    )
    return [there_figure, back_figure]


def fresh(folder: Path, size: int, switched: float, env: dict[str, str]) -> Figure:
    """Building the index of one revision from cached vectors."""
    repo = knowledge.make(folder, size, env)
    shutil.rmtree(repo / ".git/vmrag/snapshots")
    built = timing.once([*VMRAG, "sync", "-q"], cwd=repo, env=env).wall
    seconds = {"built afresh": built, "vmrag sync": switched}
    name = f"a switch is faster than building afresh, {size:,} documents"
    return Figure(name, built / switched, AGAINST_FRESH, seconds, at_least=True)


def prepared(folder: Path, size: int) -> Path:
    """The folder that `bare_switch` works on; made once.

    Documents of about 480 characters, one chunk each, in a knowledge base whose branch `feature`
    has 100 others; random vectors for all of them; and a store of `main`.
    """
    made = folder / f"prototype-{size}"
    if (made / "cid").exists():
        return made
    shutil.rmtree(made, ignore_errors=True)
    (made / "snapA").mkdir(parents=True)
    rng = random.Random(7)
    words = [f"word{number}" for number in range(5000)]
    text = lambda: " ".join(rng.choices(words, k=55))  # noqa: E731  the words of one page
    documents = {f"d{number:07d}": text() for number in range(size)}
    edits = {f"d{number * (size // 100):07d}": text() for number in range(100)}
    keys = {each: hashlib.sha256(each.encode()).hexdigest() for each in (*documents.values(), *edits.values())}
    vectors = {key: array.array("f", (rng.gauss(0, 1) for _ in range(256))).tobytes() for key in keys.values()}

    with Connection(made / "kb.db", access="create") as kb:
        kb.execute("CREATE TABLE documents (doc_id TEXT PRIMARY KEY, content TEXT, content_hash TEXT)")
        for branch, rows in (("main", documents), ("feature", edits)):
            if branch != "main":
                kb.execute("SELECT dolt_checkout('-b', ?)", (branch,))
            with kb.transaction():
                values = [(name, content, keys[content]) for name, content in rows.items()]
                kb.executemany("INSERT OR REPLACE INTO documents VALUES (?, ?, ?)", values)
                kb.execute("SELECT dolt_commit('-A', '-m', ?)", (branch,))
    with contextlib.closing(sqlite3.connect(made / "emb.sqlite")) as cache, cache:
        cache.execute("CREATE TABLE v (k BLOB UNIQUE, v BLOB)")
        cache.executemany("INSERT INTO v VALUES (?, ?)", [(bytes.fromhex(key), blob) for key, blob in vectors.items()])
    with contextlib.closing(open_store(made / "snapA")) as store:
        collection = store.create("documents", space="cosine", metadata={"made_by": "bench"})
        store.add(
            collection,
            Rows(
                [keys[content][:32] for content in documents.values()],
                [vectors[keys[content]] for content in documents.values()],
                [{"source_id": name, "chunk_index": 0} for name in documents],
                [*documents.values()],
            ),
        )
    (made / "cid").write_text(collection)
    return made
