"""Everything by which changes of documents are made once more elsewhere: merge, cherry-pick,
revert, rebase, stash, `vmrag merge`.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from tests.model.driver import PIN
from tests.model.model import Docs, Join, Key, settled, three_way, virtual_base
from tests.model.world import World


class Pick(NamedTuple):
    """A change that git is to make once more: what turns `base` into `theirs`; the commit it comes
    from.
    """

    base: Docs
    theirs: Docs
    commit: str


EDITORS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "plain": ((), {}),
    "reorder": (("-i",), {"GIT_SEQUENCE_EDITOR": 'f() { grep ^pick "$1" | tac > "$1.new"; mv "$1.new" "$1"; }; f'}),
    "squash": (("-i",), {"GIT_SEQUENCE_EDITOR": "sed -i -e '2,$s/^pick/squash/'"}),
}


class Merging(World):
    """Merges whose results follow from three document sets with git's base; `vmrag merge` may use a
    newer one.
    """

    stashing = False

    def merge(self, other: str, side: str) -> None:
        self.tidy()
        head = self.real.head
        bases = self.real.merge_bases(head, other)
        if not bases:  # the first commit of one of them was amended
            self.real.git("merge", "-q", "--no-edit", other, code=128)
            return
        base = virtual_base(bases, self.model.docs, self.real.merge_bases)
        before = self.real.pin
        pick = Pick(base, self.model.docs(other), other)
        join = three_way(base, self.model.docs(head), pick.theirs)
        result = self.real.git("merge", "-q", "--no-edit", other, code=1 if join.conflicts else 0)
        said = result.err
        docs = join.docs
        if join.conflicts:
            assert self.real.pin == before
            if side == "abort":
                self.conflict(before)
                said += self.real.git("merge", "--abort").err
                docs = self.model.docs(head)
            else:
                docs, outcome = self.resolve(pick, before, side)
                said += outcome + self.real.git("commit", "-q", "--no-edit").err
        self.arrived("merge", join, docs, said)

    def arrived(self, what: str, join: Join, docs: Docs, said: str, *between: Docs) -> None:
        self.seen[f"{what} in conflict" if join.conflicts else what] += 1
        self.observe(docs, *between)
        assert self.real.clean
        assert self.model.revisions[self.real.pin] == docs
        self.look(said)

    def conflict(self, ours: str) -> None:
        """git has stopped: the pin is ours and can be read, nothing is written meanwhile."""
        assert self.real.unmerged
        json.loads((self.real.here.top / PIN).read_text())
        assert self.real.pin == ours
        busy = ("MERGE_CONFLICT", 1) if self.stashing else ("GIT_BUSY", 3)
        self.refused(*self.incoming(("guide", "a.txt"), "too early"), why=busy)

    def resolve(self, pick: Pick, ours: str, side: str) -> tuple[Docs, str]:
        """Decide all conflicts for one side, which stages the pin.

        Returns the pinned documents and the output.
        """
        self.conflict(ours)
        docs = settled(pick.base, self.model.revisions[ours], pick.theirs, side)
        said = self.real.vmrag("resolve", f"--{side}").err
        assert not self.real.unmerged
        self.admit([self.real.pin], [docs])
        assert self.model.revisions[self.real.pin] == docs
        return docs, said

    def pick(self, commit: str, side: str, *, revert: bool) -> None:
        """`git cherry-pick` or `git revert` of one commit; of a merge against its first parent."""
        self.tidy()
        verb = "revert" if revert else "cherry-pick"
        parents = self.real.parents(commit)
        states = self.model.docs(parents[0]), self.model.docs(commit)
        pick = Pick(*(reversed(states) if revert else states), commit)
        before = self.real.pin
        join = three_way(pick.base, self.model.revisions[before], pick.theirs)
        options = ["--no-edit"] if revert else ["--allow-empty", "--keep-redundant-commits"]
        options += ["-m", "1"] if len(parents) > 1 else []
        result = self.real.git(verb, *options, commit, code=None)
        said, docs = result.err, join.docs
        if join.conflicts:
            assert result.code == 1, result
            if side == "abort":
                self.conflict(before)
                said += self.real.git(verb, "--abort").err
                docs = self.model.revisions[before]
            else:
                docs, outcome = self.resolve(pick, before, side)
                ended = self.real.git(verb, "--continue", code=None)
                said += outcome + ended.err
                if ended.code:  # nothing is left of the change
                    self.real.git(verb, "--skip")
        elif result.code:
            assert docs == self.model.revisions[before], result
            assert not self.real.unmerged, result
            self.real.git(verb, "--skip", code=None)
        self.arrived(verb, join, docs, said)

    def rebase(self, onto: str, side: str, how: str) -> None:
        self.tidy()
        if not self.real.merge_bases("HEAD", onto):
            return
        head, start = self.real.head, self.real.pin
        commits = self.real.ask("rev-list", "--reverse", "--topo-order", "--no-merges", f"{onto}..{head}")
        commits = commits[::-1] if how == "reorder" else commits
        said = self.real.git(
            "rebase",
            "-q",
            "--empty=keep",
            "--reapply-cherry-picks",
            *EDITORS[how][0],
            onto,
            code=None,
            env=EDITORS[how][1],
        )
        if not self.real.ask("rev-list", "-1", f"{onto}..{head}") and how == "plain":
            assert said.code == 0, said
        docs, between, conflicts, text = (
            self.model.docs(self.real.ask("rev-parse", onto)[0]),
            [],
            frozenset[Key](),
            said.err,
        )
        for commit in commits:
            ours, parent = docs, self.real.parents(commit)[0]
            pick = Pick(self.model.docs(parent), self.model.docs(commit), commit)
            join = three_way(pick.base, ours, pick.theirs)
            docs = join.docs
            if join.conflicts and self.emptied(how):
                break
            if join.conflicts:
                conflicts |= join.conflicts
                assert self.real.ask("rev-parse", "REBASE_HEAD") == [commit]
                self.admit([self.real.pin], [ours, *between])
                assert self.model.revisions[self.real.pin] == ours
                if side == "abort":
                    self.conflict(self.real.pin)
                    text += self.real.git("rebase", "--abort").err
                    assert (self.real.head, self.real.pin) == (head, start)
                    self.observe(*between)
                    self.arrived("rebase", join, self.model.revisions[start], text)
                    return
                docs, outcome = self.resolve(pick, self.real.pin, side)
                between.append(docs)
                text += outcome + self.real.git("rebase", "--continue", code=None).err
            between.append(docs)
        if self.emptied(how):
            text += self.real.git("rebase", "--abort").err
            self.observe(*between)
            docs = self.model.revisions[start]
        self.arrived(f"rebase ({how})", Join(docs, conflicts), docs, text, *between)

    def emptied(self, how: str) -> bool:
        """git stops where a squash leaves nothing of two commits."""
        stopped = (self.real.git_dir / "rebase-merge").exists() and not self.real.unmerged
        assert not stopped or how == "squash"
        return stopped

    # -- stash -------------------------------------------------------------------------------------

    def stash_pop(self, side: str) -> None:
        """Pop the newest stash onto a working tree without changes."""
        self.tidy()
        stash = self.real.ask("rev-parse", "stash@{0}")[0]
        before = self.real.pin
        pick = Pick(self.model.docs(f"{self.real.parents(stash)[0]}"), self.model.docs(stash), stash)
        join = three_way(pick.base, self.model.revisions[before], pick.theirs)
        result = self.real.git("stash", "pop", "-q", code=1 if join.conflicts else 0)
        docs, said = join.docs, result.err
        if join.conflicts:
            self.stashing = True
            docs, outcome = self.resolve(pick, before, "ours" if side == "abort" else side)
            said += outcome
            self.stashing = False
            self.real.git("stash", "drop", "-q")
        self.seen["stash pop in conflict" if join.conflicts else "stash pop"] += 1
        self.admit([self.real.pin], [docs])
        assert self.model.revisions[self.real.pin] == docs
        self.look(said)

    # -- knowledge on its own ----------------------------------------------------------------------

    def merge_knowledge(self, ref: str, side: str) -> None:
        """`vmrag merge REF`, whose base is git's, or the engine's if that is newer: what was merged
        without git.
        """
        if self.real.branch is None:
            self.refused("merge", ref)
            return
        conflict = self.follow()
        ours, theirs = self.real.pin, self.real.pins(self.real.ask("rev-parse", ref)).popitem()[1]
        dirty = self.model.kb_branch(self.real.branch) in self.model.unsaved
        bases = self.real.merge_bases("HEAD", ref)
        base = self.real.kb_base(ours, theirs, [self.model.commits[base] for base in bases])
        if base is None:
            base = virtual_base(bases, self.model.docs, self.real.merge_bases)
        pick = self.model.revisions[theirs]
        join = three_way(base, self.model.revisions[ours], pick)
        result = self.real.vmrag("merge", ref, code=None)
        self.put_aside(conflict, result.err)
        if dirty or (
            result.code == 1 and "uncommitted" in result.err
        ):  # what differs in times only may be in the way, too
            assert result.code == 1
            assert self.real.pin == ours
            return
        assert result.code == (1 if join.conflicts else 0), result
        self.seen["vmrag merge in conflict" if join.conflicts else "vmrag merge"] += 1
        docs = join.docs
        if join.conflicts and side == "abort":
            self.real.vmrag("merge", "--abort")
            docs = self.model.revisions[ours]
        elif join.conflicts:
            docs = settled(base, self.model.revisions[ours], pick, side)
            self.real.vmrag("resolve", f"--{side}")
            self.real.vmrag("merge", "--continue")
        self.admit([self.real.pin], [docs])
        assert self.model.revisions[self.real.pin] == docs
        self.look()

    def bring_back(self, name: str, side: str) -> None:
        """`vmrag merge vmrag/wip/…`: what was put aside becomes uncommitted again."""
        if self.real.branch is None:
            self.refused("merge", name)
            return
        conflict = self.follow()
        base, theirs = self.model.kept[name]
        before = self.model.revisions[base]
        join = three_way(before, self.docs, theirs)
        result = self.real.vmrag("merge", name, code=1 if join.conflicts else 0)
        self.put_aside(conflict, result.err)
        self.seen["brought back in conflict" if join.conflicts else "brought back"] += 1
        docs = join.docs
        if join.conflicts and side == "abort":
            self.real.vmrag("merge", "--abort")
            self.look()
            return
        if join.conflicts:
            docs = settled(before, self.docs, theirs, side)
            self.real.vmrag("resolve", f"--{side}")
            self.real.vmrag("merge", "--continue")
        del self.model.kept[name]
        self.written(docs)
        self.look()
