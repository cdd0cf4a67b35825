"""Random histories of document sets, written straight into git and the knowledge base: nothing of
what is tested makes them.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.model.driver import PIN, Real
from tests.model.model import Docs, Model, changed, three_way
from tests.support.engines import AUTHOR, DATE
from vmrag_link.engines.base import Engine, Write
from vmrag_link.models import Document, content_hash

KEYS = [("guide", f"{name}.txt") for name in "abcdefghijklmnopqrst"]
TEXTS = ("garden kettle", "lantern harbour", "winter anchor", "copper meadow", "velvet orchard", "marble candle")


class Case(NamedTuple):
    """`head` is checked out; `other` is the commit, or the tip, that the command names."""

    head: str
    other: str


@dataclass
class Histories:
    """Commits under construction, named by whole numbers until git has them."""

    dice: random.Random
    parents: list[tuple[int, ...]] = field(default_factory=list)
    docs: list[Docs] = field(default_factory=list)

    def commit(self, docs: Docs, *parents: int) -> int:
        self.parents.append(parents)
        self.docs.append(docs)
        return len(self.docs) - 1

    def change(self, docs: Docs) -> Docs:
        """One to three documents added, edited or removed; something does change."""
        changed = dict(docs)
        for key in self.dice.sample(KEYS, self.dice.randint(1, 3)):
            if key in changed and self.dice.random() < 0.3:
                del changed[key]
            else:
                changed[key] = self.dice.choice(TEXTS)
        return changed if changed != docs else self.change(docs)

    def line(self, start: int, length: int) -> list[int]:
        """Commits one after the other; the start is among them."""
        line = [start]
        for _ in range(length):
            line.append(self.commit(self.change(self.docs[line[-1]]), line[-1]))
        return line

    def root(self) -> int:
        keys = self.dice.sample(KEYS, 14)
        return self.commit({key: self.dice.choice(TEXTS) for key in keys})

    # -- what is to be merged ----------------------------------------------------------------------

    def forked(self, ours: int, theirs: int) -> tuple[list[int], list[int]]:
        trunk = self.line(self.root(), self.dice.randint(0, 2))
        return self.line(trunk[-1], ours), self.line(trunk[-1], theirs)

    def merge(self) -> tuple[int, int]:
        ours, theirs = self.forked(self.dice.randint(1, 3), self.dice.randint(1, 3))
        return ours[-1], theirs[-1]

    def cherry_pick(self) -> tuple[int, int]:
        """Any commit of another branch, not its last one alone."""
        ours, theirs = self.forked(self.dice.randint(1, 3), self.dice.randint(2, 4))
        return ours[-1], self.dice.choice(theirs[1:])

    def revert(self) -> tuple[int, int]:
        """A commit that others follow."""
        line = self.line(self.root(), self.dice.randint(3, 6))
        return line[-1], self.dice.choice(line[1:-1])

    def merge_of_reverted(self) -> tuple[int, int]:
        """A branch was merged, the merge was reverted, and both sides went on."""
        before = len(self.docs)
        while True:
            ours, theirs = self.forked(self.dice.randint(1, 2), self.dice.randint(1, 2))
            join = three_way(self.docs[ours[0]], self.docs[ours[-1]], self.docs[theirs[-1]])
            if not join.conflicts and join.docs != self.docs[ours[-1]]:
                break
            del self.docs[before:], self.parents[before:]
        merged = self.commit(join.docs, ours[-1], theirs[-1])
        reverted = self.commit(self.docs[ours[-1]], merged)
        return self.line(reverted, self.dice.randint(0, 2))[-1], self.line(theirs[-1], self.dice.randint(1, 2))[-1]

    def rebase(self) -> tuple[int, int]:
        ours, theirs = self.forked(self.dice.choice([2, 2, 2, 3]), self.dice.randint(0, 2))
        return ours[-1], theirs[-1]

    # -- writing it down ---------------------------------------------------------------------------

    def write(self, real: Real, model: Model, cases: Sequence[tuple[int, int]]) -> list[Case]:
        """All commits into the knowledge base and git; the model learns them."""
        with real.engine() as engine:
            writer = _Writer(engine, real.pin)
            for docs, parents in zip(self.docs, self.parents, strict=True):
                before = self.docs[parents[0]] if parents else model.revisions[real.pin]
                writer.commit(_rows(before, docs), parents)
        revisions = writer.revisions
        hashes = self._fast_import(real, [_pin(revision) for revision in revisions])
        for commit, revision, docs in zip(hashes, revisions, self.docs, strict=True):
            model.commits[commit] = revision
            model.revisions[revision] = docs
        return [Case(hashes[head], hashes[other]) for head, other in cases]

    def _fast_import(self, real: Real, pins: Sequence[bytes]) -> list[str]:
        """Each commit has a file of its own besides the pin, so that none becomes empty; all are
        kept by one ref each.
        """
        stream = []
        for number, (parents, pin) in enumerate(zip(self.parents, pins, strict=True)):
            message = f"commit {number}".encode()
            stream += [b"commit refs/heads/h/%d" % number, b"mark :%d" % (number + 1)]
            stream += [b"committer Ada Lovelace <ada@example.com> 1767323045 +0000", b"data %d" % len(message), message]
            stream += [b"from :%d" % (parent + 1) for parent in parents[:1]] or [b"from refs/heads/main^0"]
            stream += [b"merge :%d" % (parent + 1) for parent in parents[1:]]
            for name, content in ((PIN.encode(), pin), (b"%d.txt" % number, b"%d\n" % number)):
                stream += [b"M 100644 inline %s" % name, b"data %d" % len(content), content]
            for parent in parents[1:]:  # what the merge brings besides the pin
                stream += [b"M 100644 inline %d.txt" % parent, b"data %d" % len(b"%d\n" % parent), b"%d\n" % parent]
        marks = real.main.top.parent / "marks"
        subprocess.run(
            ["git", "fast-import", "--quiet", f"--export-marks={marks}"],
            cwd=real.main.top,
            input=b"\n".join(stream) + b"\n",
            check=True,
        )
        result = dict(line.split() for line in marks.read_text().splitlines())
        return [result[f":{number + 1}"] for number in range(len(pins))]


class _Writer:
    """Revisions in the order in which they are committed; each line of them has a KB branch, which
    keeps it.
    """

    def __init__(self, engine: Engine, root: str) -> None:
        self._engine, self._root = engine, root
        self._branches: dict[str, str] = {}
        self.revisions: list[str] = []

    def commit(self, rows: Write, parents: Sequence[int]) -> None:
        above = [self.revisions[parent] for parent in parents] or [self._root]
        signed = {"message": f"{len(self.revisions)}", "author": AUTHOR, "date": DATE}
        if len(above) > 1:
            self.revisions.append(self._engine.commit_onto(above[0], [rows], joining=above[1], **signed))
            return
        branch = self._branches.pop(above[0], None)
        if branch is None:
            branch = f"line-{len(self.revisions)}"
            self._engine.create_branch(branch, above[0])
        self._engine.write(branch, rows, expected=above[0])
        self.revisions.append(self._engine.commit(branch, expected=above[0], **signed))
        self._branches[self.revisions[-1]] = branch


def _rows(before: Docs, docs: Docs) -> Write:
    kinds = changed(before, docs)
    return Write(
        put_documents=[
            Document(*key, key[1].removesuffix(".txt"), docs[key], content_hash(docs[key]), file_type="text")
            for key in sorted(kinds)
            if key in docs
        ],
        remove_documents=[key for key in sorted(kinds) if key not in docs],
    )


def _pin(revision: str) -> bytes:
    pin = {"dolt_remote": "git:", "dolt_branch": "main", "dolt_commit": revision, "linked_at": DATE}
    return (json.dumps(pin, indent=2) + "\n").encode()
