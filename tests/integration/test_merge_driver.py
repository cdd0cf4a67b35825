"""The merge driver of the pin, called by real git in whatever command merges."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.support.cli import start
from tests.support.knowledge import doc
from tests.support.repos import isolate, make_repo
from tests.support.templates import build_once, copy_tree
from tests.support.terminal import Project, new_project
from vmrag_hooks import shims
from vmrag_link import pin as pins
from vmrag_link.engines.base import Write
from vmrag_link.models import RevisionInfo
from vmrag_link.progress import QUIET
from vmrag_link.workspace import Workspace

pytestmark = pytest.mark.hooks("off")

Texts = dict[str, str]

ADA, BEA, DATE = "Ada <ada@example.org>", "Bea <bea@example.org>", "2026-01-02T03:04:05Z"


@contextlib.contextmanager
def opened(project: Project) -> Iterator[Workspace]:
    workspace = Workspace.open(project.top, QUIET)
    yield workspace
    workspace.close()


class Story(Project):
    """Code branches whose knowledge is written without the slow way around: engine, pin, git
    commit.
    """

    def tell(self, message: str, /, _by: str = ADA, _at: str = DATE, **documents: str | None) -> str:
        """Commit knowledge on top of the pin, `None` removing a document, and the pin to git;
        returns the revision.
        """
        revision = self.write_knowledge(message, _by, _at, **documents)
        self.quiet("commit", "-qam", message)
        return revision

    def write_knowledge(self, message: str, _by: str = ADA, _at: str = DATE, **documents: str | None) -> str:
        """Commit knowledge without a git commit."""
        with opened(self) as workspace:
            rows = Write(
                put_documents=[
                    doc(name, text, collection="handbook") for name, text in documents.items() if text is not None
                ],
                remove_documents=[("handbook", name) for name, text in documents.items() if text is None],
            )
            pin = pins.parse_pin((self.top / ".dolt-version").read_bytes())
            revision = workspace.engine.commit_onto(pin.dolt_commit, [rows], message=message, author=_by, date=_at)
            self.repin(workspace, revision)
        return revision

    def repin(self, workspace: Workspace, revision: str, *, remote: str = "") -> None:
        pin = pins.parse_pin((self.top / ".dolt-version").read_bytes())
        date = workspace.engine.read_revision(revision).date
        made = pins.update_pin(
            pin, remote=remote or pin.dolt_remote, branch=pin.dolt_branch, commit=revision, committed_at=date
        )
        self.write(".dolt-version", pins.format_pin(made))

    def quiet(self, *arguments: str) -> str:
        """Run git without hooks and without the merge driver."""
        return self.git(*arguments, env={"VMRAG": "0"})

    def does(self, *arguments: str, code: int = 0) -> str:
        """Run git without hooks; return its stderr."""
        result = self.run(*arguments, env={"VMRAG": "0"})
        assert result.returncode == code, (result.stdout, result.stderr)
        return result.stderr

    def texts(self, revision: str = "") -> Texts:
        with opened(self) as workspace:
            documents = workspace.engine.read_documents(revision or self.pinned, collection="handbook")
            return {document.doc_id: document.content for document in documents}

    def info(self, revision: str = "") -> RevisionInfo:
        with opened(self) as workspace:
            return workspace.engine.read_revision(revision or self.pinned)

    def heads(self) -> dict[str, str]:
        with opened(self) as workspace:
            return {
                branch.name: branch.head for branch in workspace.engine.list_branches() if branch.name != "vmrag_keep"
            }

    def revision(self, ref: str) -> str:
        return json.loads(self.git("show", f"{ref}:.dolt-version"))["dolt_commit"]

    # -- what must hold

    def joined(self, ours: str, theirs: str) -> None:
        assert self.info().parents == (ours, theirs)

    def picked(self, ours: str, *, base: str, theirs: str) -> None:
        info = self.info()
        assert info.parents == (ours,)
        assert f"\nVmrag-Base: {base}\nVmrag-Theirs: {theirs}\n" in info.message + "\n"

    def plain_conflict(self, ours: bytes) -> None:
        """A conflict in the pin alone, which stays ours, and no trace of it when the merge is given
        up.
        """
        assert self.git("diff", "--name-only", "--diff-filter=U") == ".dolt-version"
        assert (self.top / ".dolt-version").read_bytes() == ours
        pins.parse_pin(ours)

    @property
    def pin(self) -> bytes:
        return (self.top / ".dolt-version").read_bytes()


BASE = {"a": "Text a.", "b": "Text b.", "c": "Text c."}


def build(top: Path) -> Story:
    """main: base - ours;  side: base - theirs - more;  clash: base - clash. HEAD on `main`."""
    new_project(top)
    story = Story(top)
    story.vmrag("init", "--knowledge-base", "--no-sources")
    story.vmrag("add", "-", "--collection", "handbook", "--id", "seed", stdin="Seed.")
    story.vmrag("commit", "-m", "seed")
    story.quiet("add", "-A")
    story.quiet("commit", "-qm", "seed")
    story.tell("base", seed=None, **BASE)
    story.quiet("tag", "base")
    for branch, commits in {
        "side": [{"b": "Their b.", "new": "Theirs."}, {"more": "More."}],
        "clash": [{"a": "Clashing a.", "b": "Another b."}],
    }.items():
        story.quiet("switch", "-qc", branch, "base")
        for documents in commits:
            story.tell(branch, **documents)
    story.quiet("switch", "-q", "main")
    story.tell("ours", a="Our a.", c=None)
    return story


MERGED = {"a": "Our a.", "b": "Their b.", "new": "Theirs.", "more": "More."}


@pytest.fixture(scope="session")
def template_repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_once(tmp_path_factory, "merge-driver", lambda folder: build(folder / "project")) / "project"


@pytest.fixture
def story(template_repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Story]:
    """Return a copy; after the test no visible branch may have moved, and no hidden one may
    remain.
    """
    isolate(monkeypatch, tmp_path / "home")
    story = copied(template_repo, tmp_path / "project")
    before = story.heads()
    yield story
    assert story.heads() == before


def copied(template_folder: Path, top: Path) -> Story:
    story = Story(copy_tree(template_folder, top))
    story.git("update-index", "-q", "--refresh")
    return story


# -- messages of replayed revisions ----------------------------------------------------------------


@pytest.mark.parametrize(
    "command", [("rebase", "main"), ("rebase", "--apply", "main"), ("pull", "-q", "--rebase", ".", "main")], ids=str
)
@pytest.mark.sample(1)
def test_replayed_revision_keeps_message_author_and_date(story, command):
    story.quiet("switch", "-qc", "topic", "base")
    said = {}
    for name, by, at in (("one", BEA, "2025-03-04T05:06:07Z"), ("two", ADA, "2025-04-04T05:06:07Z")):
        said[name] = story.tell(f"Words of {name}\n\nThe reason.\n\nReviewed-by: Carl", by, at, **{name: name})
    story.does(*command)
    for ref, name, base in (("HEAD", "two", said["one"]), ("HEAD~1", "one", story.revision("base"))):
        made, before = story.info(story.revision(ref)), story.info(said[name])
        assert (made.author, made.date) == (before.author, before.date)
        words, _, trailers = made.message.partition("\n\nVmrag-Base: ")
        assert words == before.message.strip()
        assert f"Vmrag-Base: {trailers}".splitlines()[:2] == [f"Vmrag-Base: {base}", f"Vmrag-Theirs: {said[name]}"]


def test_repeated_cherry_pick_keeps_the_message_and_names_the_last_pick(story):
    story.quiet("switch", "-qc", "topic", "base")
    first = story.tell("Its words", BEA, "2025-03-04T05:06:07Z", one="One.")
    story.does("cherry-pick", "main")
    story.quiet("switch", "-q", "main")
    story.does("cherry-pick", "topic~1")
    story.quiet("switch", "-q", "clash")
    story.does("cherry-pick", "main")
    info = story.info()
    assert (info.author, info.date) == (BEA, "2025-03-04T05:06:07Z")
    assert info.message.splitlines()[0] == "Its words"
    assert info.message.count("Vmrag-Theirs: ") == 1
    assert first not in info.message
    assert story.texts()["one"] == "One."
    assert not json.loads(story.vmrag("verify", "base..HEAD", "--json").out)["findings"]


def test_pin_moved_by_several_revisions_is_replayed_as_one(story):
    story.quiet("switch", "-qc", "topic", "base")
    for number, by in ((1, ADA), (2, BEA), (3, BEA)):
        story.write_knowledge(
            f"Step {number}\n\nWhy {number}.", by, f"2025-03-0{number}T00:00:00Z", **{f"s{number}": "x"}
        )
    theirs = story.pinned
    story.quiet("commit", "-qam", "three at once")
    before = story.info()
    story.does("rebase", "main")
    info = story.info()
    assert (info.author, info.date) == (before.author, before.date)
    assert info.message.strip() == (
        "Step 3\n\nWhy 3.\n\nReplayed with it:\n- Step 2\n- Step 1 (Ada <ada@example.org>)\n\n"
        f"Vmrag-Base: {story.revision('base')}\nVmrag-Theirs: {theirs}\nVmrag-Merge: lines-1"
    )


def test_revert_message_names_the_reverted_commit(story):
    story.tell("later", later="Later.")
    story.does("revert", "--no-edit", "HEAD~1")
    assert story.info().message.startswith('Revert "ours"\n\nVmrag-Base: ')


def test_replayed_revision_names_the_deciding_user_and_its_author(story):
    story.quiet("switch", "-q", "clash")
    before = story.info()
    story.does("rebase", "main", code=1)
    story.vmrag("resolve", "--theirs")
    info = story.info()
    assert (info.author, info.date) == (before.author, before.date)
    assert info.message.startswith(before.message.strip())
    assert "\nVmrag-Decided-By: Ada Lovelace <ada@example.com>" in info.message


# -- merges of branches ----------------------------------------------------------------------------

MERGES = {
    "merge": ("merge", "--no-edit", "side"),
    "merge -s recursive": ("merge", "--no-edit", "-s", "recursive", "side"),
    "merge -s ort": ("merge", "--no-edit", "-s", "ort", "side"),
    "merge --no-commit": ("merge", "--no-commit", "side"),
    "merge --squash": ("merge", "--squash", "side"),
    "merge -X ours": ("merge", "--no-edit", "-X", "ours", "side"),
    "merge -X theirs": ("merge", "--no-edit", "-X", "theirs", "side"),
    "pull": ("pull", "--no-rebase", "--no-edit", ".", "side"),
    "merge of a commit": ("merge", "--no-edit", "side~0"),
    "checkout -B, then merge": ("merge", "--no-ff", "--no-edit", "side"),
}


@pytest.mark.parametrize("command", MERGES.values(), ids=MERGES)
@pytest.mark.sample(6)
def test_merge_of_branches_joins_their_documents(story, command):
    ours, theirs = story.revision("main"), story.revision("side")
    story.does(*command)
    assert story.texts() == MERGED
    story.joined(ours, theirs)
    assert pins.format_pin(pins.parse_pin(story.pin)) == story.pin
    assert story.git("diff", "--name-only") == ""  # the index equals the working tree


def test_rebase_of_merges_joins_the_knowledge(story):
    story.quiet("switch", "-qc", "topic", "base")
    story.tell("one", one="One.")
    story.quiet("switch", "-qc", "inner", "base")
    inner = story.tell("two", two="Two.")
    story.quiet("switch", "-q", "topic")
    story.does("merge", "-q", "--no-edit", "inner")
    story.does("rebase", "-q", "--rebase-merges", "main")
    assert story.texts() == {"a": "Our a.", "b": "Text b.", "one": "One.", "two": "Two."}
    first, second = story.git("rev-parse", "HEAD^1", "HEAD^2").split()
    story.joined(story.revision(first), story.revision(second))
    assert story.revision(second) != inner


def test_merge_tree_merges_repeatedly_without_work_tree(story):
    before = story.git("status", "--porcelain"), story.pin
    trees = {story.git("merge-tree", "--write-tree", "main", "side") for _ in range(2)}
    (tree,) = trees
    merged = story.revision(tree)
    assert story.texts(merged) == MERGED
    assert story.info(merged).parents == (story.revision("main"),)  # git does not pass the merged branches
    assert (story.git("status", "--porcelain"), story.pin) == before


def test_octopus_fails_as_git_does_without_harm(story):
    story.quiet("switch", "-qc", "third", "base")
    story.tell("third", third="Third.")
    story.quiet("switch", "-q", "main")
    before = story.pin
    result = story.run("merge", "--no-edit", "side", "third", env={"VMRAG": "0"})
    assert result.returncode in (1, 2)
    assert "octopus" in result.stdout + result.stderr
    story.quiet("reset", "-q", "--hard")
    assert story.pin == before


def test_repeated_merge_and_merge_back_create_nothing(story):
    story.does("merge", "-q", "--no-edit", "side")
    merged = story.pinned
    story.quiet("switch", "-q", "side")
    story.does("merge", "-q", "--no-ff", "--no-edit", "main")
    assert story.pinned == merged


def test_criss_cross_merge_has_a_base_made_of_both(story):
    story.quiet("branch", "left", "main")
    story.quiet("branch", "right", "side")
    story.quiet("switch", "-q", "left")
    story.does("merge", "-q", "--no-edit", "side")
    story.tell("left", left="Left.", b="Left's b.")
    story.quiet("switch", "-q", "right")
    story.does("merge", "-q", "--no-edit", "main")
    story.tell("right", right="Right.", a="Right's a.")
    for strategy in ("ort", "recursive"):
        story.quiet("switch", "-q", "-C", f"cross-{strategy}", "right")
        story.does("merge", "-q", "--no-edit", "-s", strategy, "left")
        assert story.texts() == MERGED | {"left": "Left.", "right": "Right.", "a": "Right's a.", "b": "Left's b."}
        story.joined(story.revision("right"), story.revision("left"))


def crossed(story: Story, **agreed: str) -> None:
    """Merge two branches into each other, and settle the conflict in `a` as `left` and `right`, and
    also in `b`.
    """
    for branch, other, documents in (("left", "clash", {"a": "Left's a."}), ("right", "main", {"a": "Right's a."})):
        story.quiet("switch", "-qc", branch, "main" if branch == "left" else "clash")
        story.does("merge", "--no-edit", other, code=1)
        with opened(story) as workspace:
            mine, theirs = (story.revision(project) for project in ("HEAD", other))
            rows = Write(
                put_documents=[
                    doc(k, v, collection="handbook") for k, v in ({"b": "Another b."} | documents | agreed).items()
                ],
                remove_documents=[("handbook", "c")],
            )
            made = workspace.engine.commit_onto(
                mine,
                [rows],
                joining=theirs,
                message="settled",
                author="Ada <ada@example.org>",
                date="2026-01-02T03:04:05Z",
            )
            story.repin(workspace, made)
        story.quiet("commit", "-qam", "settled")


@pytest.mark.parametrize("strategy", ["ort", "recursive"])
def test_criss_cross_merge_over_a_base_in_conflict(story, strategy):
    crossed(story, a="Settled a.")
    story.does("merge", "-q", "--no-edit", "-s", strategy, "left")
    assert story.texts() == {"a": "Settled a.", "b": "Another b."}


def test_criss_cross_merge_with_different_resolutions_conflicts(story):
    crossed(story)
    before = story.pin
    said = story.does("merge", "--no-edit", "left", code=1)
    assert "a conflict in handbook/a" in said
    story.plain_conflict(before)


def retitled(story: Story, title: str) -> None:
    with opened(story) as workspace:
        rows = Write(put_documents=[msgspec.structs.replace(doc("b", "Text b.", collection="handbook"), title=title)])
        made = workspace.engine.commit_onto(
            story.pinned, [rows], message=title, author="Ada <ada@example.org>", date="2026-01-02T03:04:05Z"
        )
        story.repin(workspace, made)
    story.quiet("commit", "-qam", title)


@pytest.mark.parametrize("strategy", ["ort", "recursive"])
def test_criss_cross_merge_with_different_titles_conflicts(story, strategy):
    for branch in ("left", "right"):
        story.quiet("switch", "-qc", branch, "base")
        retitled(story, branch)
        story.quiet("tag", f"{branch}-before")
    for branch, other in (("left", "right-before"), ("right", "left-before")):
        story.quiet("switch", "-q", branch)
        story.does("merge", "--no-edit", other, code=1)
        story.vmrag("resolve", "--ours")
        story.quiet("commit", "-qm", "settled")
    before = story.pin
    said = story.does("merge", "--no-edit", "-s", strategy, "left", code=1)
    assert "a conflict in handbook/b" in said
    story.plain_conflict(before)


def moved(story: Story, branch: str, remote: str) -> None:
    """A branch at `base` that pins another remote, and nothing else."""
    story.quiet("switch", "-qc", branch, "base")
    with opened(story) as workspace:
        story.repin(workspace, story.pinned, remote=remote)
    story.quiet("commit", "-qam", branch)


@pytest.mark.parametrize("settled", ["org/left", "org/right"])
def test_remote_changed_on_both_sides_needs_the_choice_of_a_person(story, settled):
    moved(story, "left", "org/left")
    moved(story, "right", "org/right")
    story.tell("more", more="More.")
    before = story.pin
    assert "both sides changed dolt_remote" in story.does("merge", "--no-edit", "left", code=1)
    story.plain_conflict(before)
    error = story.vmrag("resolve", "--theirs", "--json", code=1).error
    assert (error["code"], ".vmrag.yaml" in error["hint"]) == ("MERGE_CONFLICT", True)
    story.plain_conflict(before)
    config = (story.top / ".vmrag.yaml").read_text()
    story.write(".vmrag.yaml", f"{config}\nremote: {settled}\n")
    story.vmrag("trust", "--yes")
    story.vmrag("resolve")
    assert pins.parse_pin(story.pin).dolt_remote == settled
    assert story.texts() == {**BASE, "more": "More."}
    assert story.git("ls-files", "--unmerged") == ""


def test_criss_cross_merge_with_different_remotes_conflicts(story):
    for branch in ("left", "right"):
        moved(story, branch, f"org/{branch}")
        story.quiet("tag", f"{branch}-before")
    for branch, other in (("left", "right-before"), ("right", "left-before")):
        story.quiet("switch", "-q", branch)
        story.does("merge", "--no-edit", other, code=1)
        story.quiet("checkout", "--ours", ".dolt-version")
        story.quiet("commit", "-qam", "settled")
    assert "both sides changed dolt_remote" in story.does("merge", "--no-edit", "left", code=1)


def test_virtual_base_that_cannot_be_made_drops_nobodys_documents(story):
    """git goes on after a driver that fails there; the settings are broken for the inner merge
    only.
    """
    crossed(story, a="Settled a.")
    command = story.git("config", "merge.vmrag.driver")
    story.git("config", "merge.vmrag.driver", f"if [ %L -gt 7 ]; then export VMRAG_LOCK_TIMEOUT_S=never; fi; {command}")
    story.quiet("switch", "-q", "left")
    story.tell("more", left="Left.")
    story.quiet("switch", "-q", "-")
    story.tell("others", right="Right.")
    said = story.run("merge", "--no-edit", "left")
    assert "lock_timeout_s must be" in said.stderr
    if said.returncode:
        story.vmrag("resolve", "--ours")
    assert {"left": "Left.", "right": "Right."}.items() <= story.texts().items()


def test_sides_with_own_pins_are_kept_without_a_virtual_base(story):
    """One of the two pins would be git's base then, and equal to its side's: git would not even ask
    the driver.
    """
    for branch in ("left", "right"):
        story.quiet("switch", "-qc", branch, "base")
        story.tell(branch, **{branch: f"{branch}."})
        story.quiet("tag", f"{branch}-before")
    for branch, other in (("left", "right-before"), ("right", "left-before")):
        story.quiet("switch", "-q", branch)
        story.quiet("merge", "-q", "-s", "ours", "--no-verify", "-m", "kept", other)
    command = story.git("config", "merge.vmrag.driver")
    story.git("config", "merge.vmrag.driver", f"if [ %L -gt 7 ]; then export VMRAG_LOCK_TIMEOUT_S=never; fi; {command}")
    said = story.run("merge", "--no-edit", "left")
    assert "lock_timeout_s must be" in said.stderr
    assert {"left": "left.", "right": "right."}.items() <= story.texts().items()


def test_long_conflict_markers_do_not_look_like_a_virtual_base(story):
    (story.top / ".git/info/attributes").write_text("* conflict-marker-size=32\n")
    before = story.pin
    said = story.does("merge", "--no-edit", "clash", code=1)
    assert "a conflict in handbook/a" in said
    story.plain_conflict(before)
    story.does("merge", "--abort")
    crossed(story, a="Settled a.")
    story.does("merge", "-q", "--no-edit", "left")
    assert story.texts() == {"a": "Settled a.", "b": "Another b."}


def test_pins_added_on_both_sides_merge_from_the_knowledge_base_ancestor(story):
    for branch in ("main", "side"):
        story.quiet("switch", "-q", "--orphan", f"new-{branch}")
        story.quiet("checkout", branch, "--", ".")
        story.quiet("commit", "-qm", branch)
    story.does("merge", "-q", "--no-edit", "--allow-unrelated-histories", "new-main")
    assert story.texts() == MERGED
    story.joined(story.revision("side"), story.revision("main"))


# -- picks: theirs against its own parent ----------------------------------------------------------


def test_cherry_pick_applies_the_changes_of_the_commit(story):
    ours = story.pinned
    story.does("cherry-pick", "side")
    assert story.texts() == {"a": "Our a.", "b": "Text b.", "more": "More."}
    story.picked(ours, base=story.revision("side~1"), theirs=story.revision("side"))


def test_cherry_pick_of_a_range(story):
    story.does("cherry-pick", "base..side")
    assert story.texts() == MERGED
    story.picked(story.revision("HEAD~1"), base=story.revision("side~1"), theirs=story.revision("side"))


def test_cherry_pick_that_is_not_committed(story):
    ours = story.pinned
    story.does("cherry-pick", "-n", "side")
    assert story.texts() == {"a": "Our a.", "b": "Text b.", "more": "More."}
    story.picked(ours, base=story.revision("side~1"), theirs=story.revision("side"))


def test_merge_is_picked_against_the_parent_that_is_named(story):
    story.quiet("switch", "-qc", "merged", "clash")
    story.tell("apart", apart="Apart.", a="Text a.", b="Text b.")
    story.does("merge", "-q", "--no-edit", "side")
    story.quiet("switch", "-q", "main")
    ours = story.pinned
    story.does("cherry-pick", "-m", "1", "merged")
    assert story.texts() == MERGED
    story.picked(ours, base=story.revision("merged^1"), theirs=story.revision("merged"))


def test_revert_undoes_the_changes_of_the_commit(story):
    story.does("merge", "-q", "--no-edit", "side")
    story.tell("later", later="Later.")
    ours = story.pinned
    story.does("revert", "--no-edit", "side~1")
    assert story.texts() == {"a": "Our a.", "b": "Text b.", "more": "More.", "later": "Later."}
    story.picked(ours, base=story.revision("side~1"), theirs=story.revision("base"))


def test_merge_is_reverted_and_the_revert_is_reverted(story):
    story.does("merge", "-q", "--no-edit", "side")
    story.tell("later", later="Later.")
    story.does("revert", "--no-edit", "-m", "1", "HEAD~1")
    assert story.texts() == {"a": "Our a.", "b": "Text b.", "later": "Later."}
    story.tell("still later", later="Still later.")
    story.does("revert", "--no-edit", "HEAD~1")
    assert story.texts() == MERGED | {"later": "Still later."}


@pytest.mark.parametrize("options", [(), ("--apply",), ("--merge",), ("--force-rebase",)])
@pytest.mark.sample(1)
def test_rebase_replays_the_changes_of_each_commit(story, options):
    story.quiet("switch", "-q", "side")
    story.does("rebase", "-q", *options, "main")
    assert story.texts() == MERGED
    assert story.texts(story.revision("HEAD~1")) == {name: text for name, text in MERGED.items() if name != "more"}
    assert story.info().parents == (story.revision("HEAD~1"),)
    assert story.info(story.revision("HEAD~1")).parents == (story.revision("main"),)


def test_pull_rebase(story):
    story.quiet("switch", "-q", "side")
    story.does("pull", "-q", "--rebase", ".", "main")
    assert story.texts() == MERGED
    assert story.info().parents == (story.revision("HEAD~1"),)


TODO = {
    "reorder": ("sed -i '1{h;d};2G'", MERGED),
    "squash": ("sed -i '2s/^pick/fixup/'", MERGED),
    "drop": ("sed -i 1d", {"a": "Our a.", "b": "Text b.", "more": "More."}),
}


@pytest.mark.parametrize(("editor", "expected"), TODO.values(), ids=TODO)
@pytest.mark.sample(1)
def test_interactive_rebase(story, editor, expected):
    story.quiet("switch", "-q", "side")
    story.does("-c", f"sequence.editor={editor}", "rebase", "-q", "-i", "main")
    assert story.texts() == expected
    with opened(story) as workspace:
        assert workspace.engine.is_ancestor(story.revision("main"), story.pinned)


def stashed(story: Story) -> str:
    """A pin that is staged and stashed on `main`, which moves on; returns the stashed revision."""
    head = story.git("rev-parse", "HEAD")
    stashed = story.tell("stash", stashed="Stashed.")
    story.quiet("reset", "-q", "--soft", head)
    story.quiet("stash", "-q")
    return stashed


def test_stash_pop_merges_a_pin_that_moved_on(story):
    base, theirs = story.pinned, stashed(story)
    ours = story.tell("moved on", later="Later.")
    story.does("stash", "pop", "-q")
    assert story.texts() == {"a": "Our a.", "b": "Text b.", "stashed": "Stashed.", "later": "Later."}
    story.picked(ours, base=base, theirs=theirs)


def test_checkout_m_carries_a_pin_over_to_another_branch(story):
    base, head = story.pinned, story.git("rev-parse", "HEAD")
    theirs = story.tell("work", work="Work.")
    story.quiet("reset", "-q", head)
    assert story.pinned == theirs
    story.does("checkout", "-q", "-m", "side")
    assert story.texts() == {**BASE, "b": "Their b.", "new": "Theirs.", "more": "More.", "work": "Work."}
    story.picked(story.revision("side"), base=base, theirs=theirs)


def test_pin_in_conflict_is_merged_again_by_checkout_m(story):
    """Use `git checkout -m -- FILE` after a wrong resolution; in a merge it is a conflict of
    branches.
    """
    ours, theirs = story.revision("main"), story.revision("side")
    story.git("config", "--remove-section", "merge.vmrag")
    story.does("merge", "--no-edit", "side", code=1)
    story.vmrag("install")
    story.does("checkout", "-q", "-m", "--", ".dolt-version")
    assert story.texts() == MERGED
    story.joined(ours, theirs)


# -- places ----------------------------------------------------------------------------------------


def test_driver_merges_in_a_linked_worktree(story, tmp_path):
    story.quiet("worktree", "add", "-q", "-b", "linked", str(tmp_path / "linked"), "main")
    linked = Story(tmp_path / "linked")
    linked.does("merge", "-q", "--no-edit", "side")
    assert linked.texts() == MERGED
    linked.joined(story.revision("main"), story.revision("side"))


def test_driver_merges_in_a_submodule(story, tmp_path):
    outer = make_repo(tmp_path / "outer")
    outer.git("submodule", "add", "-q", str(story.top), "inner", env={"VMRAG": "0"})
    inner = Story(outer.top / "inner")
    inner.quiet("branch", "-q", "side", "origin/side")
    subprocess.run(["cp", "-a", story.shared, inner.shared], check=True)
    inner.vmrag("install")
    inner.does("merge", "-q", "--no-edit", "side")
    assert inner.texts() == MERGED


def test_from_a_folder_below_and_with_git_dir_given(story):
    (story.top / "below").mkdir()
    below = Story(story.top / "below")
    below.does("merge", "-q", "--no-edit", "side")
    assert story.texts() == MERGED
    story.quiet("reset", "-q", "--hard", "HEAD~1")
    story.does(f"--git-dir={story.top}/.git", f"--work-tree={story.top}", "merge", "-q", "--no-edit", "side")
    assert story.texts() == MERGED


def test_equal_merges_on_two_machines_give_the_same_bytes(template_repo, story, tmp_path):
    other = copied(template_repo, tmp_path / "other")
    other.vmrag("gc", "--apply")
    for machine in (story, other):
        machine.git("config", "user.name", machine.top.name)
        machine.does("merge", "-q", "--no-edit", "side")
    assert story.pin == other.pin
    for machine in (story, other):
        machine.quiet("reset", "-q", "--hard", "HEAD~1")
        machine.does("cherry-pick", "side")
    assert story.pin == other.pin


def test_merged_revision_survives_gc_before_the_commit(story):
    story.does("merge", "-q", "--no-commit", "side")
    merged = story.pin
    story.quiet("merge", "--abort")
    story.vmrag("gc", "--apply")
    story.does("merge", "-q", "--no-commit", "side")
    story.vmrag("gc", "--apply")
    assert story.pin == merged
    assert story.texts() == MERGED


def test_two_merges_at_once_in_two_work_trees(story, tmp_path):
    trees = []
    for name in ("one", "two"):
        story.quiet("worktree", "add", "-q", "-b", name, str(tmp_path / name), "main")
        trees.append(Story(tmp_path / name))
    merge = ("merge", "-q", "--no-edit")
    running = [
        start(tree, *merge, branch, program=("git",), VMRAG="0")
        for tree, branch in zip(trees, ("side", "side~1"), strict=True)
    ]
    assert [process.done().code for process in running] == [0, 0]
    assert trees[0].texts() == MERGED
    assert trees[1].texts() == {name: text for name, text in MERGED.items() if name != "more"}


@pytest.mark.hooks("on")
def test_merged_knowledge_is_available_at_once_with_hooks(story):
    story.git("switch", "-qc", "mine")
    result = story.run("merge", "--no-edit", "side")
    assert result.returncode == 0
    assert [line for line in result.stderr.splitlines() if "vmrag" in line] == [
        f"vmrag: the knowledge base is now at {story.pinned[:7]} (+2 ~1 -0 documents)"
    ]
    assert story.status()["state"] == "in_sync"


# -- where it cannot merge, git is left with a plain conflict --------------------------------------


def failed(story: Story, *arguments: str, **options: str) -> str:
    """Check a plain conflict that `git merge --abort` ends; return the output."""
    before, head = story.pin, story.git("rev-parse", "HEAD")
    result = story.run("merge", "--no-edit", *(arguments or ("side",)), env={"VMRAG": "0"} | options)
    assert result.returncode == 1, (result.stdout, result.stderr)
    story.plain_conflict(before)
    story.does("merge", "--abort")
    assert (story.git("status", "--porcelain"), story.pin, story.git("rev-parse", "HEAD")) == ("", before, head)
    said = [line for line in result.stderr.splitlines() if line.startswith("vmrag:")]
    assert len(said) <= 1
    return said[0] if said else ""


def test_conflict_of_documents_is_named_and_resolve_is_the_hint(story):
    assert (
        failed(story, "clash")
        == "vmrag: the knowledge bases of the two sides have a conflict in handbook/a; run 'vmrag resolve' to resolve the conflicts"
    )


def test_revision_that_is_missing_on_one_side(story):
    story.quiet("switch", "-qc", "stranger", "side")
    pin = msgspec.structs.replace(pins.parse_pin(story.pin), dolt_commit="0" * 40)
    story.write(".dolt-version", pins.format_pin(pin))
    story.quiet("commit", "-qam", "stranger")
    story.quiet("switch", "-q", "main")
    assert "their side pins revision 0000" in failed(story, "stranger")


def test_malformed_pin_on_one_side(story):
    story.quiet("switch", "-qc", "malformed", "side")
    story.write(".dolt-version", '{"dolt_commit": 5}\n')
    story.quiet("commit", "-qam", "malformed")
    story.quiet("switch", "-q", "main")
    assert "their pin" in failed(story, "malformed")


def test_unrelated_knowledge_bases(story, tmp_path):
    other = new_project(tmp_path / "unrelated")
    other.vmrag("init", "--knowledge-base", "--no-sources")
    other.git("add", "-A")
    other.git("commit", "-qm", "unrelated")
    story.quiet("fetch", "-q", str(other.top), "main:unrelated")
    said = failed(story, "--allow-unrelated-histories", "-X", "ours", "unrelated")
    assert "is not in this knowledge base" in said


def test_clone_without_the_knowledge_base(story, tmp_path):
    subprocess.run(["git", "clone", "-q", story.top, tmp_path / "clone"], check=True, env=os.environ | {"VMRAG": "0"})
    clone = Story(tmp_path / "clone")
    clone.vmrag("install")
    assert "not on this machine" in failed(clone, "origin/side")
    assert not (clone.shared / "kb").exists()


def test_knowledge_base_that_another_process_writes(story):
    with opened(story) as workspace, workspace.engine.write_lock("test"):
        assert "held write.lock" in failed(story, VMRAG_LOCK_TIMEOUT_S="0")
    story.does("merge", "-q", "--no-edit", "side")


def test_settings_that_cannot_be_read(story):
    story.write(".vmrag.yaml", "embedding: [\n")
    story.quiet("commit", "-qam", "settings")
    assert ".vmrag.yaml" in failed(story)
    story.quiet("reset", "-q", "--hard", "HEAD~1")


def dying(story: Story, tmp_path: Path, body: str) -> None:
    """An interpreter that does something else than it should."""
    python = tmp_path / 'it\'s 100% "mine" $HOME' / "python"
    python.parent.mkdir()
    python.write_text(f"#!/bin/sh\n{body}\n")
    python.chmod(0o755)
    story.git("config", "merge.vmrag.driver", shims.format_driver_command(str(python)))


@pytest.mark.parametrize("body", ["kill -9 $$", "kill -SEGV $$", "exit 2", "exit 129", "echo oh >&2; exit 255"])
@pytest.mark.sample(2)
def test_driver_that_dies_leaves_a_plain_conflict(story, tmp_path, body):
    dying(story, tmp_path, body)
    failed(story)


def test_interpreter_that_is_gone(story):
    story.git("config", "merge.vmrag.driver", shims.format_driver_command("/nowhere/at all/python"))
    failed(story)


def test_interpreter_with_any_name(story, tmp_path):
    dying(story, tmp_path, f'exec {sys.executable} "$@"')
    story.does("merge", "-q", "--no-edit", "side")
    assert story.texts() == MERGED


def test_driver_killed_in_the_middle_leaves_nothing_behind(story, tmp_path):
    """Between the revision and the pin: the next merge makes the same again."""
    dying(
        story,
        tmp_path,
        f'exec {sys.executable} -P -c "import os, sys, signal, vmrag_hooks.merge_driver as m\n'
        "from pathlib import Path\n"
        'Path.write_bytes = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\nm.main(sys.argv[3:])" "$@"',
    )
    failed(story)
    story.vmrag("install")
    story.does("merge", "-q", "--no-edit", "side")
    assert story.texts() == MERGED


def test_merge_driver_works_with_hooks_switched_off(story):
    """Without it every merge of knowledge would be in conflict."""
    story.git("merge", "-q", "--no-edit", "side", env={"VMRAG": "0"})
    assert story.texts() == MERGED


def test_git_merges_lines_after_uninstall(story):
    story.vmrag("uninstall")
    assert story.git("config", "--get-regexp", "^merge[.]", check=False) == ""
    result = story.run("merge", "--no-edit", "side")
    assert result.returncode == 1
    assert "CONFLICT (content): Merge conflict in .dolt-version" in result.stdout
    story.quiet("merge", "--abort")
    story.vmrag("install")
    story.does("merge", "-q", "--no-edit", "side")


def test_attributes_without_a_driver_are_harmless(template_repo, story, tmp_path):
    subprocess.run(["git", "clone", "-q", template_repo, tmp_path / "clone"], check=True)
    clone = Project(tmp_path / "clone")
    assert clone.git("check-attr", "merge", ".dolt-version").endswith(": vmrag")
    assert clone.run("merge", "--no-edit", "origin/side").returncode == 1
    assert "<<<<<<<" in (clone.top / ".dolt-version").read_text()
    clone.git("merge", "--abort")


def test_driver_without_attributes_is_not_called(story):
    story.quiet("rm", "-q", ".gitattributes")
    story.quiet("commit", "-qm", "no attributes")
    assert story.run("merge", "--no-edit", "side", env={"VMRAG": "0"}).returncode == 1
    assert "<<<<<<<" in (story.top / ".dolt-version").read_text()


# -- `vmrag init` names it in .gitattributes -------------------------------------------------------

LINE = b".dolt-version merge=vmrag -text\n"


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Project:
    isolate(monkeypatch, tmp_path / "home")
    return new_project(tmp_path / "fresh")


@pytest.mark.parametrize(
    ("content", "result"),
    [
        (b"*.md text", b"*.md text\n" + LINE.rstrip()),
        (b"*.md text\r\n*.sh eol=lf\r\n", b"*.md text\r\n*.sh eol=lf\r\n" + LINE),
        (b"", LINE),
    ],
)
def test_init_appends_one_line_to_the_attributes(fresh, content, result):
    fresh.commit("attributes", **{".gitattributes": content})
    report = fresh.ask("init", "--knowledge-base", "--no-sources")
    assert (fresh.top / ".gitattributes").read_bytes() == result
    assert ".gitattributes" in report["written"]
    assert report["staged"] is True
    assert ".gitattributes" in fresh.git("diff", "--cached", "--name-only").split()
    assert fresh.git("check-attr", "merge", "text", "--", ".dolt-version").split()[2::3] == ["vmrag", "unset"]
    assert (
        fresh.vmrag("init", "--knowledge-base", "--no-sources", "--json", code=2).error["code"] == "ALREADY_INITIALIZED"
    )
    assert (fresh.top / ".gitattributes").read_bytes() == result


def test_init_does_not_stage_edited_files(fresh):
    fresh.commit("attributes", **{".gitattributes": "*.md text\n"})
    fresh.write(".gitattributes", "*.md text\n*.sh eol=lf\n")
    report = fresh.ask("init", "--knowledge-base", "--no-sources")
    assert (fresh.top / ".gitattributes").read_bytes() == b"*.md text\n*.sh eol=lf\n" + LINE
    assert report["staged"] is False
    assert ".gitattributes" not in fresh.git("diff", "--cached", "--name-only").split()


def test_init_leaves_attributes_alone_that_name_the_driver_already(fresh):
    fresh.write(".gitattributes", "/.dolt-version   merge=vmrag\n")
    fresh.ask("init", "--knowledge-base", "--no-sources")
    assert (fresh.top / ".gitattributes").read_bytes() == b"/.dolt-version   merge=vmrag\n"


@pytest.mark.parametrize("elsewhere", [".dolt-version merge=vmrag\n", ".dolt-version merge=union\n"])
def test_init_writes_the_shared_file_once_despite_local_attributes(fresh, elsewhere):
    (fresh.top / ".git/info/attributes").write_text(elsewhere)
    for _ in range(2):
        fresh.vmrag("init", "--knowledge-base", "--no-sources", code=None)
        assert (fresh.top / ".gitattributes").read_bytes() == LINE
