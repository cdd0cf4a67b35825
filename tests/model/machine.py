"""The sequences that hypothesis draws.

No rule depends on the current state, so a sequence stays the same after a kill: numbers choose
among existing objects, and if there are none, a step that creates one takes its place.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.model.driver import PIN, Real
from tests.model.merging import Merging
from tests.model.model import Docs, Key, Model
from tests.model.world import IMPORTED
from tests.support.terminal import Project

T = TypeVar("T")

KEYS: list[Key] = [(collection, f"{name}.txt") for collection in ("guide", "notes") for name in "abcd"]
TEXTS = ("garden kettle", "lantern harbour", "winter anchor", "copper meadow")
NAMES = ("topic", "Topic", "größe/x")  # engines take the first two for the same, and refuse the third

number = st.integers(0, 9)
key = st.sampled_from(KEYS)
text = st.sampled_from(TEXTS)
side = st.sampled_from(["ours", "theirs", "abort"])
flag = st.booleans()
moment = st.integers(0, 22)  # twentieths of what an unharmed run takes

SEEN: Counter[str] = Counter()
"""Counts of events in all sequences of this process."""


def step(**strategies: Any) -> Callable[[Callable[..., None]], Any]:
    """A rule whose failure shows the whole sequence as shell commands."""

    def decorate(function: Callable[..., None]) -> Any:
        @functools.wraps(function)
        def run(self: Sequences, **drawn: Any) -> None:
            SEEN["steps"] += 1
            with_script(self, functools.partial(function, self, **drawn))

        return rule(**strategies)(run)

    return decorate


def with_script(machine: Sequences, action: Callable[[], None]) -> None:
    try:
        action()
    except BaseException as error:
        machine.failed = True
        error.add_note("\nThe sequence:\n\n" + "\n".join(machine.world.real.script))
        raise


class Sequences(RuleBasedStateMachine):
    """Starts from a copy of `template`, made once."""

    template: Real
    model: Model
    folder: Path
    duration: float
    failed = False

    def __init__(self) -> None:
        super().__init__()
        SEEN["sequences"] += 1
        self.place = Path(tempfile.mkdtemp(dir=self.folder))
        top = self.place / "project"
        subprocess.run(["cp", "-a", self.template.main.top, top], check=True)
        self.real = Real(top, self.template.script)
        self.real.names = dict(self.template.names)
        self.world = Merging(self.real, deepcopy(self.model), self.place / "scratch", SEEN)
        self.world.number = 10  # the template has its own commits

    def teardown(self) -> None:
        if not self.failed:
            with_script(self, self.world.finish)
        shutil.rmtree(self.place)

    @invariant()
    def steady(self) -> None:
        with_script(self, self.world.steady)

    # -- choices -----------------------------------------------------------------------------------

    def fresh(self) -> str:
        made = self.world.next()
        return f"{NAMES[made % len(NAMES)]}-{made // len(NAMES)}"

    def other(self, choice: int) -> str:
        """A code branch that is checked out nowhere; made if there is none."""
        free = [name for name, tree in self.real.branches().items() if tree is None]
        if not free:
            free = [self.fresh()]
            self.real.git("branch", free[0])
        return free[choice % len(free)]

    def commit(self, choice: int) -> str:
        report = self.real.ask("rev-list", "--branches", "HEAD", "--topo-order")
        return report[choice % len(report)]

    def change(self, choice: int, *where: str) -> str | None:
        """A commit with a parent."""
        report = self.real.ask("rev-list", "--min-parents=1", "--topo-order", *where)
        return report[choice % len(report)] if report else None

    def document(self, choice: int) -> Key | None:
        """Return an existing document."""
        docs = sorted(self.world.docs)
        return docs[choice % len(docs)] if docs else None

    def on_branch(self) -> None:
        if self.real.branch is None:
            name = self.fresh()
            self.world.look(self.real.git("switch", "-q", "-c", name).err)

    # -- documents ---------------------------------------------------------------------------------

    @step(key=key, text=text)
    def add(self, key: Key, text: str) -> None:
        self.world.put(key, text)

    @step(choice=number, text=text)
    def edit(self, choice: int, text: str) -> None:
        self.world.put(self.document(choice) or KEYS[0], text)

    @step(choice=number)
    def remove(self, choice: int) -> None:
        gone = self.document(choice)
        if gone:
            self.world.write(lambda docs: without(docs, gone), "rm", gone[1], "--collection", gone[0])

    @step(choice=number, one=text, other=text)
    def import_folder(self, choice: int, one: str, other: str) -> None:
        collection = KEYS[choice % len(KEYS)][0]
        files = {(collection, doc_id): text for doc_id, text in zip(IMPORTED, (one, other), strict=True)}
        paths = [self.world.incoming(key, text)[1] for key, text in files.items()]
        self.world.write(lambda docs: {**docs, **files}, "import", *paths, "--collection", collection)

    @step()
    def commit_knowledge(self) -> None:
        self.world.commit_knowledge(f"revision {self.world.next()}")

    @step(choice=number, text=text, more=flag)
    def edit_and_commit(self, choice: int, text: str, more: bool) -> None:
        self.on_branch()
        self.world.put(self.document(choice) or KEYS[0], text)
        if more:
            self.world.put(KEYS[(choice * 3) % len(KEYS)], TEXTS[choice % len(TEXTS)])
        self.world.commit_knowledge(f"revision {self.world.next()}")
        self.world.record()

    # -- git: commits ------------------------------------------------------------------------------

    @step(everything=flag)
    def commit_code(self, everything: bool) -> None:
        self.world.record(*(["-a"] if everything else []))

    @step()
    def amend(self) -> None:
        self.world.record("--amend", "--no-edit")

    @step(choice=number, mode=st.sampled_from(["--hard", "--soft", "--mixed", "--keep"]), look=flag)
    def reset(self, choice: int, mode: str, look: bool) -> None:
        """No hook runs: several resets may follow each other before a command checks the state."""
        target = self.commit(choice)
        if self.real.git("reset", "-q", mode, target, code=None).code and mode != "--keep":
            raise AssertionError(mode)
        self.world.observe()
        if look:
            self.world.look()

    @step(choice=number, look=flag)
    def back_one(self, choice: int, look: bool) -> None:
        if self.real.parents("HEAD"):
            self.real.git("reset", "-q", ["--hard", "--soft", "--mixed"][choice % 3], "HEAD~1")
        if look:
            self.world.look()

    @step(choice=number)
    def check_out_pin(self, choice: int) -> None:
        self.world.look(self.real.git("checkout", "-q", self.commit(choice), "--", PIN).err)

    # -- git: branches -----------------------------------------------------------------------------

    @step(choice=number)
    def switch(self, choice: int) -> None:
        """git refuses where the pin is edited and the other branch's differs."""
        self.world.look(self.real.git("switch", "-q", self.other(choice), code=None).err)

    @step(choice=number)
    def switch_tidily(self, choice: int) -> None:
        self.world.tidy()
        self.world.look(self.real.git("switch", "-q", self.other(choice)).err)

    @step()
    def switch_to_new(self) -> None:
        self.world.look(self.real.git("switch", "-q", "-c", self.fresh()).err)

    @step(choice=number)
    def detach(self, choice: int) -> None:
        self.world.look(self.real.git("switch", "-q", "--detach", self.commit(choice), code=None).err)

    @step(choice=number, current=flag, look=flag)
    def rename_branch(self, choice: int, current: bool, look: bool) -> None:
        old = self.real.branch if current and self.real.branch else self.other(choice)
        new = self.fresh()
        self.real.git("branch", "-m", old, new)
        self.world.model.rename_branch(old, new)
        if look:
            self.world.look()

    @step(choice=number)
    def copy_branch(self, choice: int) -> None:
        old, new = self.real.branch or self.other(choice), self.fresh()
        self.real.git("branch", "-c", old, new)
        self.world.model.copy_branch(old, new)

    @step(choice=number)
    def delete_branch(self, choice: int) -> None:
        name = self.other(choice)
        self.real.git("branch", "-q", "-D", name)
        self.world.model.delete_branch(name)

    # -- git: what makes changes once more ---------------------------------------------------------

    @step(choice=number, side=side)
    def merge(self, choice: int, side: str) -> None:
        self.world.merge(self.real.ask("rev-parse", self.other(choice))[0], side)

    @step(choice=number, side=side)
    def cherry_pick(self, choice: int, side: str) -> None:
        commit = self.change(choice, "--branches", "HEAD")
        if commit:
            self.world.pick(commit, side, revert=False)

    @step(choice=number, side=side)
    def revert(self, choice: int, side: str) -> None:
        commit = self.change(choice, "HEAD")
        if commit:
            self.world.pick(commit, side, revert=True)

    @step(choice=number, side=side, how=st.sampled_from(["plain", "reorder", "squash"]))
    def rebase(self, choice: int, side: str, how: str) -> None:
        onto = self.other(choice)
        if not self.real.ask("rev-list", "--no-merges", f"{onto}..HEAD"):
            how = "plain"
        self.world.rebase(onto, side, how)

    @step(choice=number, side=side, how=st.sampled_from(["reorder", "squash"]))
    def rebase_here(self, choice: int, side: str, how: str) -> None:
        """The last commits in another order, or as one."""
        result = self.real.ask("rev-list", "--first-parent", "HEAD")[1 : 3 + choice % 3]
        if result and self.real.ask("rev-list", "--no-merges", f"{result[-1]}..HEAD"):
            self.world.rebase(result[-1], side, how)

    # -- git: stash --------------------------------------------------------------------------------

    @step(look=flag)
    def stash(self, look: bool) -> None:
        if not self.real.ask("diff", "HEAD", "--name-only"):
            self.world.look(self.real.git("checkout", "-q", self.commit(1), "--", PIN).err)
        self.real.git("stash", "push", "-q")
        self.world.observe()
        if look:
            self.world.look()

    @step(side=side)
    def stash_pop(self, side: str) -> None:
        if self.real.ask("stash", "list"):
            self.world.stash_pop(side)

    # -- git: work trees ---------------------------------------------------------------------------

    @step(choice=number)
    def add_worktree(self, choice: int) -> None:
        """At most two more; then one of them goes."""
        trees = self.world.trees()
        self.real.go(self.real.main)
        if len(trees) == 2:
            self.real.git("worktree", "remove", "--force", f"../{trees[choice % 2].name}")
            return
        name = f"tree-{self.world.next()}"
        said = self.real.git("worktree", "add", "-q", f"../{name}", self.other(choice)).err
        self.real.go(Project(self.place / name))
        self.world.look(said)

    @step(choice=number)
    def go(self, choice: int) -> None:
        trees = [self.real.main.top, *self.world.trees()]
        self.real.go(Project(trees[choice % len(trees)]))
        self.world.look()

    # -- knowledge on its own ----------------------------------------------------------------------

    @step(choice=number, side=side)
    def merge_knowledge(self, choice: int, side: str) -> None:
        self.world.merge_knowledge(self.other(choice), side)

    @step(choice=number, side=side)
    def bring_back(self, choice: int, side: str) -> None:
        """Merge documents that a conflict has stashed; make a conflict if there are none."""
        kept = sorted(self.world.model.kept)
        if kept:
            self.world.bring_back(kept[choice % len(kept)], side)
            return
        self.on_branch()
        self.world.put(KEYS[0], TEXTS[choice % len(TEXTS)])
        self.world.look(self.real.git("checkout", "-q", self.commit(choice), "--", PIN).err)

    # -- housekeeping and kills --------------------------------------------------------------------

    @step()
    def collect_garbage(self) -> None:
        self.real.vmrag("gc", "--apply")

    @step(moment=moment, key=key, text=text)
    def kill_add(self, moment: int, key: Key, text: str) -> None:
        arguments = self.world.incoming(key, text)
        self.world.killed_write(self.seconds(moment), lambda docs: {**docs, key: text}, *arguments)

    @step(moment=moment, choice=number, text=text)
    def kill_commit(self, moment: int, choice: int, text: str) -> None:
        self.world.put(self.document(choice) or KEYS[0], text)
        self.world.killed_commit(self.seconds(moment), f"revision {self.world.next()}")

    @step(moment=moment, choice=number, collect=flag)
    def kill_sync(self, moment: int, choice: int, collect: bool) -> None:
        self.real.git("reset", "-q", "--hard", self.commit(choice))
        self.world.observe()
        command = ("gc", "--apply") if collect else ("sync",)
        self.world.look(self.world.killed(self.seconds(moment), *command).err, killed=True)

    @step(moment=moment, choice=number)
    def kill_hook(self, moment: int, choice: int) -> None:
        seconds = f"{self.seconds(moment) / 2:.3f}"
        said = self.real.git("switch", "-q", self.other(choice), code=None, env={"VMRAG_TEST_KILL": seconds}).err
        SEEN["killed hook"] += 1
        self.world.look(said, killed=True)

    def seconds(self, moment: int) -> float:
        return moment / 20 * self.duration


def without(docs: Docs, key: Key) -> Docs:
    return {name: text for name, text in docs.items() if name != key}
