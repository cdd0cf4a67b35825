"""One step of work on a knowledge base, as a process of its own: `ENGINE STEP FOLDER [FILE|URL]`.

FILE has the documents to store, so that their random texts are not part of the measured time.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import msgspec

from vmrag_link.engines import opening
from vmrag_link.engines.base import Engine, Write
from vmrag_link.engines.own_branches import ROOT_BRANCH
from vmrag_link.models import Document, content_hash

AUTHOR, DATE = "Bench <bench@example.com>", "2026-01-02T03:04:05Z"
BRANCH = "main"
CHARACTERS = 2000
CHANGED = 100


def documents(number: int, seed: int = 7) -> list[Document]:
    """Documents of CHARACTERS each; another seed gives the same documents other texts."""
    dice = random.Random(seed)
    words = [f"word{index}" for index in range(5000)]
    texts = (" ".join(dice.choices(words, k=CHARACTERS // 8))[:CHARACTERS] for _ in range(number))
    return [
        Document("documents", f"d{at:07d}", f"d{at:07d}", text, content_hash(text)) for at, text in enumerate(texts)
    ]


def head(engine: Engine, branch: str) -> str:
    state = engine.find_branch(branch)
    assert state is not None
    return state.head


def commit(engine: Engine, rows: list[Document]) -> None:
    engine.write(BRANCH, Write(put_documents=rows), expected=head(engine, BRANCH))
    engine.commit(BRANCH, message="changed", author=AUTHOR, date=DATE, expected=head(engine, BRANCH))


def main(name: str, step: str, folder: Path, argument: str = "") -> None:
    if step == "create":
        engine = opening.create_engine(name, folder, author=AUTHOR, date=DATE)  # type: ignore[arg-type]
        engine.create_branch(BRANCH, head(engine, ROOT_BRANCH))
    else:
        engine = opening.open_engine(folder)
    if step in ("import", "commit"):
        commit(engine, msgspec.json.decode(Path(argument).read_bytes(), type=list[Document]))
    elif step == "diff":
        newer, older = [entry.revision for entry in engine.log(head(engine, BRANCH), limit=2)]
        assert engine.diff(older, newer).count_changes().total == CHANGED
    elif step == "push":
        heads = {branch.name: branch.head for branch in engine.list_branches() if branch.name in (ROOT_BRANCH, BRANCH)}
        engine.push("bench", argument, heads)
    elif step == "fetch":
        engine.fetch("bench", argument)
    engine.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])
