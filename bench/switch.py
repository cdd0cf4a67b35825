"""Moving between two revisions of which 100 documents differ, and building an index afresh.

A switch is compared with a bare start of Python (`bare_start.py`), a fresh build with its bare
parts (`bare_build.py`).
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench import knowledge, timing
from bench.knowledge import VMRAG
from bench.timing import Figure, Run, Sample
from vmrag_link.embedding import registry
from vmrag_link.file_access import measure_size
from vmrag_link.index.views import Views, list_segments

BARE_START = Path(__file__).with_name("bare_start.py")
BARE_BUILD = Path(__file__).with_name("bare_build.py")

STARTS = {10_000: 4.5, 100_000: 7.0}
"""How many bare starts a switch may take, by the number of documents."""

FRESH = {10_000: 1.3}
"""How often a fresh build may take what its bare parts take."""

INDEX_MB = {100_000: 150}
GROWTH = 2.0
MEMORY = 1.5
BACK = 1.5
START = 2.0
IMPORT = ["import", "docs", "--collection", "handbook", "--copy"]


def run(folder: Path, sizes: list[int], rounds: int, env: dict[str, str]) -> list[Figure]:
    figures = [start(folder, rounds, env), *commands(folder, rounds, env)]
    switched: dict[int, Sample] = {}
    built: dict[int, Sample] = {}
    starts: dict[int, float] = {}
    for size in sizes:
        switched[size], ratios = switch(folder, size, rounds, env)
        starts[size] = ratios[0].ratio
        built[size], more = fresh(folder, size, rounds, env)
        figures += [*ratios, *more, index(folder, size, env)]
    # In bare starts, because a machine may have become slower from one size to the next.
    figures += timing.growths({"switch, in bare starts,": starts}, GROWTH)
    figures += peaks("a switch", switched, MEMORY) + peaks("a fresh build", built, None)
    return figures


def peaks(name: str, samples: dict[int, Sample], limit: float | None) -> list[Figure]:
    """The peak memory at 100,000 documents against that at 10,000, where both were measured."""
    if not {10_000, 100_000} <= samples.keys():
        return []
    megabytes = {f"{size:,} documents, MB": samples[size].peak_mb for size in (10_000, 100_000)}
    small, large = megabytes.values()
    return [Figure(f"peak memory of {name}, 100,000 documents against 10,000", large / small, limit, megabytes)]


def start(folder: Path, rounds: int, env: dict[str, str]) -> Figure:
    """Measure `vmrag --version`."""
    timed = timing.in_turn(
        {
            "vmrag --version": lambda: timing.once([*VMRAG, "--version"], cwd=folder, env=env),
            "bare start": lambda: bare_start(folder, env),
        },
        3 * rounds,
    )
    seconds = {name: sample.wall for name, sample in timed.items()}
    return Figure("start", seconds["vmrag --version"] / seconds["bare start"], START, seconds)


IN_STARTS = {"status": 2.0, "log": 2.5, "import": 4.0, "commit": 3.0, "query": None}
"""How many starts of `vmrag --version` a command may take: CPU, with its processes of git."""


def commands(folder: Path, rounds: int, env: dict[str, str]) -> list[Figure]:
    """Measure commands in a folder of 300 pages. Each import has one changed page."""
    repo = folder / "pages"
    if not repo.exists():
        knowledge.git(folder, "init", "-q", "-b", "main", str(repo), env=env)
        (repo / "docs").mkdir()
        for number in range(300):
            (repo / f"docs/{number}.md").write_text(f"# Page {number}\n\n" + "What is known of it.\n" * 40)
        for arguments in (["init", "--knowledge-base", "--no-sources", "-q"], IMPORT, ["commit", "-m", "first"]):
            timing.once([*VMRAG, *arguments], cwd=repo, env=env)
        knowledge.git(repo, "add", "-A", env=env)
        knowledge.git(repo, "commit", "-q", "-m", "first", env=env | {"VMRAG": "0"})
    number = iter(range(1_000_000))

    def imported() -> Run:
        (repo / "docs/1.md").write_text(f"# Page 1\n\nEdition {next(number)} of {time.time_ns()}.\n")
        return timing.once([*VMRAG, *IMPORT], cwd=repo, env=env)

    def command(*arguments: str) -> Callable[[], Run]:
        return lambda: timing.once([*VMRAG, *arguments], cwd=repo, env=env)

    timed = timing.in_turn(
        {
            "start": command("--version"),
            "status": command("status"),
            "log": command("log"),
            "query": command("query", "--mode", "keyword", "known"),
            "import": imported,
            "commit": command("commit", "-m", "edited"),
        },
        max(rounds, 15),
    )
    start = timed.pop("start").cpu
    return [
        Figure(f"vmrag {name}, CPU in starts", sample.cpu / start, IN_STARTS[name], {name: sample.cpu, "start": start})
        for name, sample in timed.items()
    ]


def bare_start(folder: Path, env: dict[str, str]) -> Run:
    return timing.once([sys.executable, str(BARE_START)], cwd=folder, env=env)


def switch(folder: Path, size: int, rounds: int, env: dict[str, str]) -> tuple[Sample, list[Figure]]:
    """The way there (its view is not there yet) and the way back (it is)."""
    repo = knowledge.make(folder, size, env)

    def there() -> Run:
        knowledge.git(repo, "switch", "-q", "feature", env=env)
        remove_views(repo, knowledge.pinned(repo, "feature", env))
        return timing.once([*VMRAG, "sync", "-q"], cwd=repo, env=env)

    def back() -> Run:
        knowledge.git(repo, "switch", "-q", "main", env=env)
        return timing.once([sys.executable, "-P", "-m", "vmrag_hooks", "post-checkout"], cwd=repo, env=env)

    timed = timing.in_turn(
        {
            "vmrag sync": there,
            "back": back,
            "bare start": lambda: bare_start(repo, env),
            "vmrag --version": lambda: timing.once([*VMRAG, "--version"], cwd=repo, env=env),
            "git": lambda: timing.once(["git", "rev-parse", "HEAD"], cwd=repo, env=env),
        },
        rounds,
    )
    seconds = {name: sample.wall for name, sample in timed.items()}
    there_figure = Figure(
        f"switch, {size:,} documents, 100 differ: against a bare start",
        seconds["vmrag sync"] / seconds["bare start"],
        STARTS.get(size),
        {name: seconds[name] for name in ("vmrag sync", "bare start")},
    )
    # Three git calls: where the work tree is, its configuration, and the KB branch of the code
    # branch.
    back_figure = Figure(
        f"back to a view that is there, {size:,} documents: against one start + git",
        (seconds["back"] - 3 * seconds["git"]) / seconds["vmrag --version"],
        BACK,
        {name: seconds[name] for name in ("back", "vmrag --version", "git")},
    )
    return timed["vmrag sync"], [there_figure, back_figure]


def fresh(folder: Path, size: int, rounds: int, env: dict[str, str]) -> tuple[Sample, list[Figure]]:
    """Building the index of one revision from cached vectors."""
    repo, bare = knowledge.make(folder, size, env), folder / "bare"
    knowledge.git(repo, "switch", "-q", "main", env=env)
    kept = repo / ".git/vmrag"
    revision, model = knowledge.pinned(repo, "main", env), registry.load_model("default").fingerprint
    argv = [kept / "kb/kb.doltlite", revision, kept / "embeddings.sqlite", model, bare]

    def ours() -> Run:
        remove_views(repo, "")
        return timing.once([*VMRAG, "sync", "-q"], cwd=repo, env=env)

    def parts() -> Run:
        shutil.rmtree(bare, ignore_errors=True)
        return timing.once([sys.executable, str(BARE_BUILD), *map(str, argv)], cwd=repo, env=env)

    timed = timing.in_turn({"vmrag sync": ours, "bare parts": parts}, rounds)
    seconds = {name: sample.wall for name, sample in timed.items()}
    ratio = seconds["vmrag sync"] / seconds["bare parts"]
    figure = Figure(
        f"fresh build of {size:,} cached documents, against its bare parts", ratio, FRESH.get(size), seconds
    )
    return timed["vmrag sync"], [figure]


def index(folder: Path, size: int, env: dict[str, str]) -> Figure:
    """Measure the size of a view and of all segments that it uses."""
    repo = knowledge.make(folder, size, env)
    revision = knowledge.pinned(repo, "main", env)
    [path] = (entry for entry in (repo / ".git/vmrag/views").glob(f"{revision}-*") if entry.is_dir())
    megabytes = (measure_size(path) + sum(list_segments(path).values())) / 1_000_000
    allowed = INDEX_MB.get(size)
    name = f"index of {size:,} documents, MB"
    return Figure(
        f"{name}, of {allowed}" if allowed else name,
        megabytes / (allowed or 1),
        1.0 if allowed else None,
        {"MB": megabytes},
    )


def remove_views(repo: Path, revision: str) -> None:
    """Remove the views of a revision, and the segments that only they use.

    An empty `revision` removes all views.
    """
    views = Views(repo / ".git/vmrag/views")
    for path in views.root.glob(f"{revision}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    views.segments.collect_garbage([views.root, views.root.with_name("uncommitted")])
