"""Model and reality side by side: every action is done in both, and what a person then sees must be
the same.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from tests.model.driver import PIN, Real, listing
from tests.model.model import Docs, Key, Model, Unsaved, changed
from tests.support.compare import assert_whole
from tests.support.terminal import Done, Project
from vmrag_link.engines.own_branches import CARRIED_SUFFIX
from vmrag_link.models import WorkingSet

ASIDE = re.compile(r"vmrag/wip/[^\s'\"`,;:)\\]+")
QUIET = {"VMRAG": "0"}
IMPORTED = ("c.txt", "d.txt")
"""The ids that `vmrag import` stores; all others come by `vmrag add`."""


class World:
    """One sequence. `seen` counts what happened, by name."""

    def __init__(self, real: Real, model: Model, scratch: Path, seen: Counter[str]) -> None:
        self.real, self.model, self.scratch, self.seen = real, model, scratch, seen
        self.number = 0
        self.memories = real.memories()

    def next(self) -> int:
        self.number += 1
        return self.number

    @property
    def docs(self) -> Docs:
        """Return the documents of the checked-out code branch, once its uncommitted documents have
        followed the pin.
        """
        return self.model.visible(self.real.branch, self.real.pin)

    # -- what must hold ----------------------------------------------------------------------------

    def look(self, said: str = "", *, killed: bool = False) -> None:
        """Run the next ordinary command: its output, or `said`, names stashed documents, and all
        documents exist.
        """
        self.real.remove_locks()
        conflict = self.follow()
        result = self.real.vmrag("list", "--json")
        self.put_aside(conflict, said + result.err, killed=killed)
        assert listing(result) == self.expected()
        self.memories = self.real.memories()

    def follow(self) -> tuple[str, Unsaved] | None:
        """A conflict by its KB branch, with the documents that must be put aside."""
        code, pin = self.real.branch, self.real.pin
        kb = self.model.kb_branch(code)
        held = self.model.unsaved.get(kb) if kb else None
        with self.real.engine() as engine:
            conflict = self.model.follow(code, pin, self.memories.get(kb or ""), engine.is_ancestor)
        if held and held.base != pin:
            self.seen["replay in conflict" if conflict else "replay"] += 1
        return (conflict, held) if conflict and held else None

    def put_aside(self, conflict: tuple[str, Unsaved] | None, said: str, *, killed: bool = False) -> None:
        """Check that `vmrag branch` lists the stash whose message a killed process could not
        print.
        """
        if conflict is None:
            return
        kb, held = conflict
        said += self.real.vmrag("branch").out if killed else ""
        names = {match.rstrip(".") for match in ASIDE.findall(said) if match.removeprefix("vmrag/wip/").startswith(kb)}
        with self.real.engine() as engine:
            heads = {
                branch.name: branch.head
                for branch in engine.list_branches()
                if not branch.name.endswith(CARRIED_SUFFIX)
            }
            names = {
                name
                for name in names & heads.keys()
                if {document.key: document.content for document in engine.read_documents(heads[name])} == held.docs
            }
        assert names, (
            f"uncommitted documents of {kb} are in conflict with the pin, and nothing says where they are: {said}"
        )
        self.model.kept[max(names - self.model.kept.keys())] = held

    def expected(self, docs: Docs | None = None) -> dict[Key, tuple[str, str | None]]:
        """Return the expected output of `vmrag list`, with uncommitted documents marked."""
        pinned = self.model.revisions[self.real.pin]
        docs = self.docs if docs is None else docs
        marks = changed(pinned, docs)
        return {key: (_hash(text), marks.get(key)) for key, text in ({**pinned, **docs}).items()}

    def observe(self, *expected: Docs) -> None:
        """Take in the commits that came into being: each pins what is known, or one of the expected
        sets.
        """
        new = [commit for commit in self.real.commits() if commit not in self.model.commits]
        self.real.name(new)
        pins = self.real.pins(new)
        self.admit(pins.values(), expected)
        self.model.commits |= pins

    def admit(self, revisions: Iterable[str], expected: Collection[Docs]) -> None:
        unknown = sorted({revision for revision in revisions if revision not in self.model.revisions})
        for revision, docs in zip(unknown, self.real.docs(*unknown), strict=True):
            assert docs in expected, f"revision {revision} holds {docs}; expected {expected}"
            self.model.revisions[revision] = docs

    def steady(self) -> None:
        """Check the invariants: no uncommitted document is lost, and branches have their KB
        branches.
        """
        self.memories = self.real.memories()
        assert self.real.claims() == self.model.claims
        with self.real.engine() as engine:
            branches = {branch.name: branch for branch in engine.list_branches()}
            for kb, held in self.model.unsaved.items():
                assert {
                    document.key: document.content for document in engine.read_documents(WorkingSet(kb))
                } == held.docs, kb
            for kb, held in self.model.kept.items():
                assert {
                    document.key: document.content for document in engine.read_documents(branches[kb].head)
                } == held.docs, kb

    def finish(self) -> None:
        """Everything is where it must be: in every work tree, on every branch, at every commit that
        git still knows.
        """
        for top in [self.real.main.top, *self.trees()]:
            self.real.go(Project(top))
            self.look()
            self.whole()
        self.real.go(self.real.main)
        for code, tree in self.real.branches().items():
            if tree is None and self.model.kb_branch(code) in self.model.unsaved:
                self.look(self.real.git("switch", "-q", "-f", code).err)
                self.whole()
        self.observe()
        places: dict[str, str] = {}
        for commit in self.real.commits():
            places.setdefault(self.model.commits[commit], commit)
        for commit in places.values():
            self.real.git("checkout", "-q", "-f", "--detach", commit, env=QUIET)
            assert self.real.pin == self.model.commits[commit]
            self.look()
        self.steady()

    def whole(self) -> None:
        folder = self.scratch / f"fresh-{self.next()}"
        folder.mkdir(parents=True)
        assert assert_whole(self.real.here, folder) == set(self.docs)

    def trees(self) -> list[Path]:
        """The linked work trees."""
        lines = self.real.ask("worktree", "list", "--porcelain")
        return [Path(line.removeprefix("worktree ")) for line in lines if line.startswith("worktree ")][1:]

    # -- documents ---------------------------------------------------------------------------------

    def put(self, key: Key, text: str) -> None:
        self.write(lambda docs: {**docs, key: text}, *self.incoming(key, text))

    def incoming(self, key: Key, text: str) -> tuple[str, ...]:
        """The command that stores a document. Where it comes from is part of a document, so each
        comes the same way always.
        """
        collection, doc_id = key
        imported = doc_id in IMPORTED  # an import names documents by their path
        file = doc_id if imported else f"in/{collection}/{doc_id}"
        self.real.write(file, text)
        if imported:
            return "import", file, "--collection", collection
        title = doc_id.removesuffix(".txt")
        return "add", file, "--collection", collection, "--id", doc_id, "--title", title

    def write(self, after: Callable[[Docs], Docs], *arguments: str) -> None:
        """`vmrag add`, `rm` or `import`."""
        if self.real.branch is None:
            self.refused(*arguments)
            return
        conflict = self.follow()
        docs = after(self.docs)
        result = self.real.vmrag(*arguments)
        self.put_aside(conflict, result.err)
        self.written(docs)

    def written(self, docs: Docs) -> None:
        self.claimed(required=docs != self.docs)
        kb = self.model.kb_branch(self.real.branch)
        if kb:
            self.model.store(kb, self.real.pin, docs)

    def claimed(self, *, required: bool) -> None:
        """Check that only one branch claims the KB branch made by the first write."""
        code = self.real.branch
        if code is None or self.model.kb_branch(code):
            return
        mine = [kb for claimant, kb in self.real.claims() if claimant == code and self.model.owner(kb) in (None, code)]
        assert mine or not required
        for kb in mine:
            assert kb not in self.model.unsaved
            self.model.claim(code, kb)

    def refused(self, *arguments: str, why: tuple[str, int] = ("GIT_BUSY", 3)) -> None:
        """Because git is in the middle of something: nothing changes."""
        before = self.real.state()
        result = self.real.vmrag(*arguments, "--json", code=why[1])
        assert result.error["code"] == why[0]
        assert self.real.state() == before
        self.seen["refused"] += 1

    def commit_knowledge(self, message: str) -> None:
        if self.real.branch is None:
            self.refused("commit", "-m", message)
            return
        conflict = self.follow()
        docs, dirty = self.docs, self.model.kb_branch(self.real.branch) in self.model.unsaved
        result = self.real.vmrag("commit", "-m", message, code=None)
        self.put_aside(conflict, result.err)
        assert result.code == 0 if dirty else result.code in (0, 1), result
        if result.code == 0:  # what differs in times only may be committed, too
            self.committed(docs)
            assert self.real.ask("diff", "--name-only", "--", PIN) == []

    def committed(self, docs: Docs) -> None:
        self.admit([self.real.pin], [docs])
        kb = self.model.kb_branch(self.real.branch)
        if kb:
            self.model.unsaved.pop(kb, None)

    def record(self, *options: str) -> None:
        """A code commit that touches a file of its own, with what is staged."""
        number = self.next()
        self.real.write(f"code-{number}.txt", f"{number}\n")
        self.real.git("add", f"code-{number}.txt")
        said = self.real.git("commit", "-q", "-m", f"code {number}", *options).err
        self.observe()
        if "--amend" in options:
            self.look(said)

    def tidy(self) -> None:
        """git's larger commands want a work tree without changes."""
        if not self.real.clean:
            self.real.git("add", "-A")
            self.record()

    # -- kills -------------------------------------------------------------------------------------

    def killed(self, seconds: float, *arguments: str) -> Done:
        result = self.real.kill(seconds, *arguments)
        self.seen[f"killed {arguments[0]}" if result.code == -9 else f"{arguments[0]} that outran its killer"] += 1
        return result

    def killed_write(self, seconds: float, docs: Callable[[Docs], Docs], *arguments: str) -> None:
        """Afterwards it has happened, or it has not."""
        if self.real.branch is None:
            return
        conflict = self.follow()
        before, after = self.docs, docs(self.docs)
        killed = self.killed(seconds, *arguments)
        result = self.real.vmrag("list", "--json")
        self.put_aside(conflict, killed.err + result.err, killed=True)
        documents = listing(result)
        assert documents in (self.expected(before), self.expected(after)), killed
        happened = documents == self.expected(after)
        assert happened or killed.code != 0, killed
        self.claimed(required=False)
        if happened:
            self.written(after)

    def killed_commit(self, seconds: float, message: str) -> None:
        """Afterwards the new revision is pinned and staged, or the documents are uncommitted as
        before.
        """
        if self.real.branch is None:
            return
        conflict = self.follow()
        before, docs = self.real.pin, self.docs
        killed = self.killed(seconds, "commit", "-m", message)
        result = self.real.vmrag("list", "--json")
        self.put_aside(conflict, killed.err + result.err, killed=True)
        if self.real.pin != before:
            self.committed(docs)
        assert listing(result) == self.expected()


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
