"""Cost of importing a hostile text, against words of the same size.

HTML is not among them: a confined process converts it, within `ingest.convert_s`.
"""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

from bench import knowledge, timing
from bench.knowledge import VMRAG
from bench.timing import Figure, Run

SIZE = 1 << 20
LIMIT = 1.5
WORDS = "lorem ipsum dolor sit amet consetetur sadipscing elitr sed diam nonumy eirmod "


def filled(piece: str, *, before: str = "") -> str:
    return (before + piece * (SIZE // len(piece) + 1))[:SIZE]


TEXTS = {
    "words": ("words.md", filled(WORDS)),
    "`# [[[[…`": ("brackets.md", filled("[", before="# ")),
    "`#\\n`": ("empty-headings.md", filled("#\n")),
    "`# ![![…`": ("images.md", filled("![", before="# ")),
    "link definitions": ("definitions.md", filled("[a]: b\n") + "# [x"),
}


def run(folder: Path, rounds: int, env: dict[str, str]) -> list[Figure]:
    empty = folder / "importing"
    if not (empty / "done").exists():
        empty.mkdir(parents=True)
        knowledge.git(empty, "init", "-q", "-b", "main", env=env)
        timing.once([*VMRAG, "init", "--knowledge-base", "--no-sources", "-q", "--no-hooks"], cwd=empty, env=env)
        (empty / "done").touch()
    number = itertools.count()

    def imported(name: str, text: str) -> Run:
        """Into a knowledge base of its own each time: no vector is known already."""
        repo = folder / f"importing-{next(number)}"
        shutil.copytree(empty, repo)
        (repo / name).write_text(text)
        try:
            return timing.once([*VMRAG, "import", name, "--collection", "texts"], cwd=repo, env=env)
        finally:
            shutil.rmtree(repo)

    timed = timing.in_turn({what: lambda file=file: imported(*file) for what, file in TEXTS.items()}, rounds)
    seconds = {what: sample.cpu for what, sample in timed.items()}
    return [
        Figure(
            f"CPU to import 1 MB of {what}, against 1 MB of words",
            seconds[what] / seconds["words"],
            LIMIT,
            {what: seconds[what], "words": seconds["words"]},
        )
        for what in TEXTS
        if what != "words"
    ]
