"""Uncommitted documents follow when the pin of their code branch moves, or are stashed; kills at
any step do not lose them.
"""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.support import terminal
from tests.support.cli import error_of, run_patched, start
from tests.support.compare import assert_whole
from tests.support.engines import AUTHOR, DATE, Engines, document, head, store
from tests.support.knowledge import doc
from tests.support.long import crossed, examples
from tests.support.repos import ENGINE
from tests.support.terminal import Project
from vmrag_link import hints
from vmrag_link.engines.base import Write
from vmrag_link.engines.own_branches import ASIDE_PREFIX, CARRIED_SUFFIX
from vmrag_link.journal import Journal
from vmrag_link.merging import replay
from vmrag_link.models import KbBranch, WorkingSet
from vmrag_link.ops.reset import reset
from vmrag_link.progress import QUIET
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.pins import kb_branches as named

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project

OFF = {"VMRAG": "0"}
Texts = dict[str, str]


@contextlib.contextmanager
def opened(project: Project) -> Iterator[Workspace]:
    workspace = Workspace.open(project.top, QUIET)
    yield workspace
    workspace.close()


def texts(project: Project, at: str | WorkingSet) -> Texts:
    """Every document's text at a revision or on a KB branch, by `collection/id`."""
    with opened(project) as workspace:
        return {"/".join(document.key): document.content for document in workspace.engine.read_documents(at)}


def branches(project: Project) -> dict[str, KbBranch]:
    """The hidden ones included."""
    with opened(project) as workspace:
        return {branch.name: branch for branch in workspace.engine.list_branches()}


def aside(project: Project) -> dict[str, Texts]:
    """Return the stashed documents by the name that restores them."""
    return {
        name: texts(project, branch.head) for name, branch in branches(project).items() if name.startswith(ASIDE_PREFIX)
    }


def silently(project: Project, *arguments: str) -> None:
    """git without hooks: the next command notices."""
    project.git(*arguments, env=OFF)


def journal(project: Project) -> list[str]:
    folder = project.shared / "journal"
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []


def whole(project: Project, tmp_path: Path) -> None:
    """In sync, with an index like a fresh one, and nothing left to do."""
    scratch = tmp_path / f"scratch-{len(list(tmp_path.glob('scratch-*')))}"
    scratch.mkdir()
    assert_whole(project, scratch)
    assert project.status()["state"] == "in_sync"
    assert journal(project) == []


def went_along(project: Project, tmp_path: Path, *, branch: str = "main", **edits: str | None) -> None:
    """The documents are those of the pin and the edits, uncommitted; None removes. `draft=…` is
    handbook/draft.md.
    """
    expected = texts(project, project.pinned)
    for name, text in edits.items():
        expected.pop(f"handbook/{name}.md", None)
        if text is not None:
            expected[f"handbook/{name}.md"] = text
    project.vmrag("list")  # a reading command moves to the pin first
    stashed = branches(project)
    assert (stashed[branch].head, stashed[branch].dirty) == (project.pinned, True)
    assert texts(project, WorkingSet(branch)) == expected
    assert aside(project) == {}
    whole(project, tmp_path)


EDITS = {"draft": "A draft.", "setup": "Set up by hand."}


@pytest.fixture
def edited(project: Project) -> Project:
    """On `main`, with a document added and one edited."""
    for name, text in EDITS.items():
        project.put(f"{name}.md", text)
    project.git("update-index", "-q", "--refresh")  # the template was copied, so the inodes are others
    return project


# -- every way in which the pin moves --------------------------------------------------------------


def back_on_a_moved_branch(project: Project) -> None:
    silently(project, "switch", "-q", "feature")
    project.vmrag("list")
    silently(project, "branch", "-q", "-f", "main", "first")
    silently(project, "switch", "-q", "main")


def amended(project: Project) -> None:
    silently(project, "checkout", "first", "--", ".dolt-version")
    silently(project, "commit", "-q", "--amend", "--allow-empty", "-m", "without the question")


MOVES: dict[str, Callable[[Project], object]] = {
    "reset --hard": lambda project: silently(project, "reset", "-q", "--hard", "first"),
    "reset --hard sideways": lambda project: silently(project, "reset", "-q", "--hard", "feature"),
    "reset --keep": lambda project: silently(project, "reset", "-q", "--keep", "first"),
    "switch -C": lambda project: silently(project, "switch", "-q", "-C", "main", "feature"),
    "merge": lambda project: project.git("merge", "-q", "--no-edit", "feature"),
    "cherry-pick": lambda project: project.git("cherry-pick", "feature"),
    "revert": lambda project: project.git("revert", "--no-edit", "HEAD"),
    "rebase": lambda project: project.git("rebase", "-q", "feature"),
    "commit --amend": amended,
    "checkout of the pin": lambda project: silently(project, "checkout", "first", "--", ".dolt-version"),
    "restore of the pin": lambda project: silently(project, "restore", "--source", "first", "-SW", ".dolt-version"),
    "vmrag pin": lambda project: project.vmrag(
        "pin", json.loads(project.git("show", "first:.dolt-version"))["dolt_commit"]
    ),
    "branch -f from elsewhere": back_on_a_moved_branch,
    "update-ref and reset": lambda project: (
        silently(project, "update-ref", "refs/heads/main", "first"),
        silently(project, "reset", "-q", "--hard"),
    ),
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
@pytest.mark.sample(1)
def test_uncommitted_documents_follow_each_move_of_the_pin(edited, tmp_path, move):
    before = edited.pinned
    move(edited)
    assert edited.pinned != before
    went_along(edited, tmp_path, **EDITS)
    assert edited.marks()["draft.md"] == "added"
    assert edited.marks()["setup.md"] == "modified"


@pytest.mark.parametrize("command", [("pull", "-q", "--ff-only", ".", "main"), ("merge", "-q", "--ff-only", "main")])
@pytest.mark.hooks("on")
def test_fast_forward_reports_followed_documents_in_one_line(project, tmp_path, command):
    silently(project, "switch", "-q", "-c", "behind", "first")
    project.put("draft.md", "A draft.")
    said = project.run(*command).stderr
    revision = project.pinned[:7]
    along = f"1 uncommitted document of 'behind' moved to revision {revision}."
    assert said == f"vmrag: the knowledge base is now at {revision} (+1 ~0 -0 documents); {along}\n"
    went_along(project, tmp_path, branch="behind", draft="A draft.")


@pytest.mark.hooks("on")
def test_rebase_over_other_knowledge_moves_documents_at_its_end(project, tmp_path):
    silently(project, "switch", "-q", "-c", "side", "first")
    project.put("draft.md", "A draft.")
    for name in ("a.py", "b.py"):
        project.commit(name, **{name: "1"})
    head = branches(project)["side"].head
    project.git("-c", "sequence.editor=sed -i 2s/^pick/edit/", "rebase", "-q", "-i", "feature")
    assert project.ask("query", "draft")["kb"]["commit"] == project.pinned != head
    assert (branches(project)["side"].head, branches(project)["side"].dirty) == (head, True)  # not in the middle of it
    said = project.run("rebase", "--continue").stderr
    assert "1 uncommitted document of 'side' moved to" in said
    went_along(project, tmp_path, branch="side", draft="A draft.")


def test_aborted_rebase_keeps_documents_in_place(edited, tmp_path):
    edited.git("-c", "sequence.editor=sed -i s/^pick/edit/", "rebase", "-q", "-i", "feature")
    edited.vmrag("list")
    edited.git("rebase", "--abort")
    went_along(edited, tmp_path, **EDITS)


def test_switching_there_and_back_restores_the_documents(edited, tmp_path):
    edited.drop("rest.md")
    before, result = texts(edited, WorkingSet("main")), edited.git("rev-parse", "HEAD")
    for _ in range(2):
        silently(edited, "reset", "-q", "--hard", "first")
        went_along(edited, tmp_path, **EDITS, rest=None)
        silently(edited, "reset", "-q", "--hard", result)
        went_along(edited, tmp_path, **EDITS, rest=None)
        assert texts(edited, WorkingSet("main")) == before


@pytest.mark.hooks("on")
def test_documents_written_after_a_move_follow_the_way_back(edited, tmp_path):
    result = edited.git("rev-parse", "HEAD")
    with opened(edited) as workspace:
        old = workspace.places.working_copies / next(
            path.name for path in workspace.places.working_copies.iterdir() if path.is_dir()
        )
    saved = tmp_path / "saved"
    subprocess.run(["cp", "-a", old, saved], check=True)
    silently(edited, "reset", "-q", "--hard", "first")
    edited.put("later.md", "Written later.")
    edited.put("draft.md", "Another draft.")
    if not old.exists():  # what a killed process had left
        subprocess.run(["cp", "-a", saved, old], check=True)
    silently(edited, "reset", "-q", "--hard", result)
    went_along(edited, tmp_path, draft="Another draft.", setup=EDITS["setup"], later="Written later.")


# -- changes that the other revision contains, too -------------------------------------------------


def rewrite(project: Project, change: Callable[[Write], Write], doc_id: str = "rest.md") -> None:
    """Write the collection and one document of it, changed, as uncommitted rows of `main`."""
    with opened(project) as workspace:
        engine, target = workspace.engine, workspace.resolve_target()
        name = named.prepare_branch(workspace, target)
        if engine.find_branch(name) is None:
            engine.create_branch(name, target.revision)
        at = WorkingSet(name)
        (collection,) = [collection for collection in engine.list_collections(at) if collection.name == "handbook"]
        document = engine.find_document(at, "handbook", doc_id)
        assert document is not None
        rows = change(Write(put_collections=[collection], put_documents=[document]))
        engine.write(name, rows, expected=target.revision)


def replaced(**fields: str) -> Callable[[Write], Write]:
    return lambda rows: Write(
        put_documents=[msgspec.structs.replace(put_document, **fields) for put_document in rows.put_documents]
    )


def moved(rows: Write) -> Write:
    (collection,), (document,) = rows.put_collections, rows.put_documents
    return Write(
        put_collections=[msgspec.structs.replace(collection, name="notes")],
        put_documents=[msgspec.structs.replace(document, collection="notes")],
        remove_documents=[document.key],
    )


def new_collection(rows: Write) -> Write:
    return Write(put_collections=[msgspec.structs.replace(rows.put_collections[0], name="notes")])


CHANGES: dict[str, Callable[[Project], object]] = {
    "removal": lambda project: project.drop("rest.md"),
    "text": lambda project: project.put("rest.md", "Rest for ten minutes."),
    "title": lambda project: rewrite(project, replaced(title="Resting")),
    "metadata": lambda project: rewrite(project, replaced(metadata='{"team":"birds"}')),
    "new document": lambda project: project.put("draft.md", "A draft."),
    "move to another collection": lambda project: rewrite(project, moved),
    "new collection": lambda project: rewrite(project, new_collection),
    "removed collection": lambda project: rewrite(project, lambda rows: Write(remove_collections=["handbook"])),
    "collection settings": lambda project: rewrite(
        project,
        lambda rows: Write(put_collections=[msgspec.structs.replace(rows.put_collections[0], metadata='{"a":1}')]),
    ),
}


def uncommitted(project: Project) -> tuple[list, list]:
    """All uncommitted rows of `main`, without their times."""
    with opened(project) as workspace:
        difference = workspace.engine.diff(head(workspace.engine, "main"), WorkingSet("main"))
    documents = [
        (document.key, document.after and (document.after.title, document.after.content, document.after.metadata))
        for document in difference.documents
    ]
    return documents, [
        (collection.key, collection.after and collection.after.metadata) for collection in difference.collections
    ]


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.sample(3)
def test_replay_restores_change_after_visit_to_revision_that_contains_it(project, tmp_path, change):
    result = project.git("rev-parse", "HEAD")
    silently(project, "switch", "-q", "-c", "other")
    change(project)
    project.vmrag("commit", "-m", "the same change")
    project.commit("with the change")
    silently(project, "switch", "-q", "main")
    change(project)
    project.put("setup.md", "Set up by hand.") if change is not CHANGES["removed collection"] else None
    before = uncommitted(project)
    for target in ("other", result, "first", "other", result):
        silently(project, "reset", "-q", "--hard", target)
        project.vmrag("list")
    assert uncommitted(project) == before
    assert aside(project) == {}
    whole(project, tmp_path)


def test_replay_restores_removal_if_branch_was_clean_in_between(project, tmp_path):
    """`first` does not have the document, and nothing else is uncommitted in between."""
    result = project.git("rev-parse", "HEAD")
    project.drop("faq.md")
    silently(project, "reset", "-q", "--hard", "first")
    said = project.vmrag("list").err
    assert not branches(project)["main"].dirty
    assert "uncommitted again if the pin moves back" in said
    silently(project, "reset", "-q", "--hard", result)
    went_along(project, tmp_path, faq=None)


def test_commit_ends_memory_of_changes_that_revision_contains(project):
    result = project.git("rev-parse", "HEAD")
    project.drop("faq.md")
    silently(project, "reset", "-q", "--hard", "first")
    project.put("draft.md", "A draft.")
    project.vmrag("commit", "-m", "a draft")
    assert aside(project) == {}
    silently(project, "reset", "-q", "--hard", result)
    project.vmrag("list")
    assert not branches(project)["main"].dirty


def test_merge_keeps_memory_of_changes_that_revision_contains(project, tmp_path):
    start = project.git("rev-parse", "HEAD")
    project.drop("faq.md")
    silently(project, "reset", "-q", "--hard", "first")
    project.vmrag("list")
    (name,) = aside(project)
    assert "return when the pin moves back" in project.vmrag("gc").out
    error = project.vmrag("uninstall", "--all", "--json", code=1).error
    assert hints.list_commands(error["hint"]) == ["vmrag branch"]
    project.vmrag("merge", name)
    silently(project, "reset", "-q", "--hard", start)
    went_along(project, tmp_path, faq=None)


def test_discard_ends_memory_of_changes_that_revision_contains(project):
    result = project.git("rev-parse", "HEAD")
    project.drop("faq.md")
    silently(project, "reset", "-q", "--hard", "first")
    project.put("draft.md", "A draft.")
    with opened(project) as workspace:
        reset(workspace, workspace.require_revision(), confirmed=True)
    assert aside(project) == {}
    silently(project, "reset", "-q", "--hard", result)
    project.vmrag("list")
    assert not branches(project)["main"].dirty


Values = dict[str, str | None]


class History:
    """A KB branch with uncommitted documents that moves between random revisions. `written` has the
    last value that the user gave to each document; None for a removed one.
    """

    def __init__(self, folder: Path, draw: random.Random) -> None:
        self.draw, self.folder = draw, folder
        self.engine = Engines("doltlite").create(folder / "kb")
        store(self.engine, "main", *(document(name, f"{name} 0") for name in "abc"))
        self.revisions = [head(self.engine, "main")]
        for number in range(4):
            self.revisions.append(self.grow(self.draw.choice(self.revisions), number))
        self.start = self.draw.choice(self.revisions)
        self.move(self.start)
        self.written: Values = {}

    def grow(self, parent: str, number: int) -> str:
        names = self.draw.sample("abcd", self.draw.randint(1, 3))
        doc_ids = {document.doc_id for document in self.engine.read_documents(parent)}
        gone = [("guide", name) for name in names if name in doc_ids and self.draw.random() < 0.5]
        new = [document(name, f"{name} {self.draw.randint(1, 2)}") for name in names if ("guide", name) not in gone]
        rows = Write(put_documents=new, remove_documents=gone)
        return self.engine.commit_onto(parent, [rows], message=f"{number}", author=AUTHOR, date=DATE)

    def shown(self) -> dict[str, str]:
        return {document.doc_id: document.content for document in self.engine.read_documents(WorkingSet("main"))}

    def edit(self) -> None:
        shown, name = self.shown(), self.draw.choice("abcd")
        if name in shown and self.draw.random() < 0.5:
            rows, self.written[name] = Write(remove_documents=[("guide", name)]), None
        else:
            text = f"{name} {self.draw.randint(1, 2)}"
            if shown.get(name) == text:
                return
            rows, self.written[name] = Write(put_documents=[document(name, text)]), text
        self.engine.write("main", rows, expected=head(self.engine, "main"))

    def move(self, to: str) -> None:
        branch = self.engine.find_branch("main")
        assert branch is not None
        if branch.head != to:
            replay.replay_branch(self.engine, Journal(self.folder / "journal"), branch, to, timeout=5)

    def has_asides(self) -> bool:
        names = [branch.name for branch in self.engine.list_branches() if branch.name.startswith(ASIDE_PREFIX)]
        return any(not name.endswith(CARRIED_SUFFIX) for name in names)


@pytest.mark.parametrize("part", range(4))
@pytest.mark.sample(2)
def test_replay_loses_no_change_in_random_histories_that_return(tmp_path, part):
    """Each document has the last value that the user gave it, or a branch keeps the changes."""
    whole_runs = 0
    for number in range(examples(45)):
        history = History(tmp_path / str(number), random.Random(part * 1000 + number))
        for _ in range(history.draw.randint(1, 3)):
            history.edit()
        for _ in range(history.draw.randint(1, 5)):
            if history.draw.random() < 0.3:
                history.edit()
            history.move(history.draw.choice(history.revisions))
        history.move(history.start)
        if not history.has_asides():
            whole_runs += 1
            shown = history.shown()
            assert {name: shown.get(name) for name in history.written} == history.written, (part, number)
        history.engine.close()
    assert whole_runs > 1


# -- what moves along ------------------------------------------------------------------------------


def test_removals_follow_the_pin(project, tmp_path):
    project.drop("rest.md")
    project.drop("deep/tls.txt")
    silently(project, "reset", "-q", "--hard", "first")
    project.vmrag("list")
    assert texts(project, WorkingSet("main")).keys() == {"handbook/setup.md"}
    whole(project, tmp_path)


def test_new_collection_follows_with_its_documents(project, tmp_path):
    project.put("one.md", "One.", collection="notes")
    project.put("two.md", "Two.", collection="notes")
    silently(project, "reset", "-q", "--hard", "feature")
    said = project.vmrag("list").err
    assert "2 uncommitted documents of 'main' moved to" in said
    expected = texts(project, project.pinned) | {"notes/one.md": "One.", "notes/two.md": "Two."}
    assert texts(project, WorkingSet("main")) == expected
    with opened(project) as workspace:
        assert [collection.name for collection in workspace.engine.list_collections(WorkingSet("main"))] == [
            "handbook",
            "notes",
        ]
    whole(project, tmp_path)


def change_settings(project: Project, **fields) -> None:
    """No command does this yet."""
    with opened(project) as workspace:
        target = workspace.resolve_target()
        name = named.prepare_branch(workspace, target)
        if workspace.engine.find_branch(name) is None:
            workspace.engine.create_branch(name, target.revision)
        (row,) = workspace.engine.list_collections(target.revision)
        rows = Write(put_collections=[msgspec.structs.replace(row, **fields)])
        workspace.engine.write(name, rows, expected=target.revision)


def settings_of(project: Project, at: str | WorkingSet):
    with opened(project) as workspace:
        return {collection.name: collection for collection in workspace.engine.list_collections(at)}


def test_changed_collection_settings_follow_the_pin(project, tmp_path):
    change_settings(project, metadata='{"team":"docs"}')
    silently(project, "reset", "-q", "--hard", "feature")
    project.vmrag("list")
    assert settings_of(project, WorkingSet("main"))["handbook"].metadata == '{"team":"docs"}'
    assert settings_of(project, project.pinned)["handbook"].metadata == "{}"
    assert texts(project, WorkingSet("main")) == texts(project, project.pinned)
    whole(project, tmp_path)


def remove_collection(project: Project) -> None:
    with opened(project) as workspace:
        target = workspace.resolve_target()
        workspace.engine.write("main", Write(remove_collections=["handbook"]), expected=target.revision)


def test_removed_collection_follows_if_unchanged_elsewhere(project, tmp_path):
    project.put("one.md", "One.", collection="notes")
    project.record("notes")
    silently(project, "branch", "-f", "feature", "HEAD")
    silently(project, "switch", "-q", "feature")
    project.put("two.md", "Two.", collection="notes")
    project.record("more notes")
    silently(project, "switch", "-q", "main")
    project.vmrag("list")
    remove_collection(project)
    silently(project, "reset", "-q", "--hard", "feature")
    project.vmrag("list")
    assert texts(project, WorkingSet("main")) == {"notes/one.md": "One.", "notes/two.md": "Two."}
    whole(project, tmp_path)


def test_documents_that_the_new_pin_has_already_leave_a_clean_branch(project, tmp_path):
    project.put("uv.md", "Use uv.")
    project.put("rest.md", "# Rest\n\nNever rest.\n")
    project.drop("deep/tls.txt")
    silently(project, "reset", "-q", "--hard", "feature")
    project.vmrag("list")
    assert (branches(project)["main"].head, branches(project)["main"].dirty) == (project.pinned, False)
    assert set(project.marks().values()) == {None}
    assert aside(project).keys() == {"vmrag/wip/main.carried"}
    assert "return when the pin moves back" in project.vmrag("branch").out
    whole(project, tmp_path)


def test_uncommitted_documents_of_other_branches_are_not_touched(edited, tmp_path):
    silently(edited, "switch", "-q", "feature")
    edited.put("mine.md", "Of feature.")
    silently(edited, "switch", "-q", "-c", "third", "first")
    edited.put("third.md", "Of third.")
    theirs = {name: (branches(edited)[name], texts(edited, WorkingSet(name))) for name in ("feature", "third")}
    silently(edited, "switch", "-q", "main")
    silently(edited, "reset", "-q", "--hard", "feature")
    went_along(edited, tmp_path, **EDITS)
    assert {name: (branches(edited)[name], texts(edited, WorkingSet(name))) for name in theirs} == theirs


def test_carried_documents_are_committed_on_the_new_pin(edited, tmp_path):
    silently(edited, "reset", "-q", "--hard", "feature")
    feature = edited.pinned
    report = edited.ask("commit", "-m", "draft")
    assert report["parent"] == feature
    assert report["changes"] == {"added": 1, "modified": 1, "removed": 0}
    whole(edited, tmp_path)


# -- conflicts -------------------------------------------------------------------------------------


def edit_edit(project: Project) -> None:
    project.put("rest.md", "Rest on Sundays.")


def delete_edit(project: Project) -> None:
    project.drop("rest.md")


def edit_delete(project: Project) -> None:
    project.put("deep/tls.txt", "Certificates last a year.")


def both_added(project: Project) -> None:
    project.put("uv.md", "uv is a program.")


def different_settings(project: Project) -> None:
    silently(project, "switch", "-q", "feature")
    change_settings(project, metadata='{"team":"ops"}')
    project.record("settings")
    silently(project, "switch", "-q", "main")
    project.vmrag("list")
    change_settings(project, metadata='{"team":"docs"}')


def removed_under_edits(project: Project) -> None:
    remove_collection(project)


CONFLICTS = (edit_edit, delete_edit, edit_delete, both_added, different_settings, removed_under_edits)


@pytest.mark.parametrize("make", CONFLICTS, ids=lambda function: function.__name__)
@pytest.mark.sample(1)
def test_conflict_leaves_a_clean_branch_and_names_the_stash(project, tmp_path, make):
    if make is not removed_under_edits:
        project.put("draft.md", "A draft.")
    make(project)
    held, kept = texts(project, WorkingSet("main")), settings_of(project, WorkingSet("main"))
    head = branches(project)["main"].head
    silently(project, "reset", "-q", "--hard", "feature")
    said = project.vmrag("list").err.splitlines()
    assert len(said) == 1
    assert said[0].endswith("and are kept; run 'vmrag merge vmrag/wip/main' to restore them")
    assert f"of 'main' conflict with revision {project.pinned[:7]}" in said[0]
    assert (branches(project)["main"].head, branches(project)["main"].dirty) == (project.pinned, False)
    assert aside(project) == {"vmrag/wip/main": held}
    assert settings_of(project, branches(project)["vmrag/wip/main"].head) == kept
    with opened(project) as workspace:
        assert workspace.engine.read_revision(branches(project)["vmrag/wip/main"].head).parents == (head,)
    assert project.vmrag("list").err == ""
    whole(project, tmp_path)


FIRST_COMMANDS = (
    ("add", "-", "--collection", "handbook", "--id", "new.md"),
    ("rm", "setup.md", "--collection", "handbook"),
    ("import", "docs", "--collection", "handbook", "--copy"),
    ("commit", "-m", "nothing"),
    ("query", "rest"),
    ("sync",),
    ("sync", "--rebuild"),
    ("list",),
    ("log",),
    ("path",),
    ("link",),
    ("pin", "feature"),
    ("merge", "first"),
)


@pytest.mark.parametrize("command", FIRST_COMMANDS, ids=" ".join)
@pytest.mark.sample(2)
def test_first_command_prints_once_where_stashed_documents_are(project, command):
    edit_edit(project)
    project.write("docs/new.md", "New.")
    silently(project, "reset", "-q", "--hard", "feature")
    said = project.vmrag(*command, code=None, stdin="New.")
    line = "run 'vmrag merge vmrag/wip/main' to restore them"
    assert said.err.splitlines()[0].endswith(line)
    assert (said.out + said.err).count(line) == 1
    assert line not in project.vmrag(*command, code=None, stdin="New.").err


@pytest.mark.parametrize("command", [("sync",), ("add", "-", "--collection", "handbook", "--id", "new.md")])
def test_json_output_has_the_message_on_stderr(project, command):
    edit_edit(project)
    silently(project, "reset", "-q", "--hard", "feature")
    result = project.vmrag(*command, "--json", stdin="New.")
    assert isinstance(result.json, dict)
    assert result.err.splitlines() == [result.err.strip()]
    assert result.err.strip().endswith("'vmrag merge vmrag/wip/main' to restore them")
    if command == ("sync",):
        assert result.json["notes"] == [result.err.strip()]


LOST = {False: "the index is there", True: "the index was lost"}


@pytest.mark.parametrize(
    ("lost", "command"),
    crossed(LOST, [("query", "rest"), ("list",), ("sync",), ("sync", "--rebuild"), ("diff",)]),
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else LOST[value],
)
def test_branch_that_is_ahead_of_its_pin_is_named_once(project, command, lost):
    project.git("config", "vmrag.auto-pin", "false")
    project.put("more.md", "More.")
    project.vmrag("commit", "-m", "more")
    if lost:
        project.forget_indexes()
    said = project.vmrag(*command)
    assert (said.out + said.err).count("KB branch 'main' is at") == 1


@pytest.mark.hooks("on")
def test_git_hook_prints_the_message_in_one_line(project):
    edit_edit(project)
    said = project.run("switch", "-q", "-C", "main", "feature").stderr.splitlines()
    assert len(said) == 1
    assert said[0].endswith("run 'vmrag merge vmrag/wip/main' to restore them")


def test_second_conflict_takes_a_name_of_its_own(project, tmp_path):
    edit_edit(project)
    first, result = texts(project, WorkingSet("main")), project.git("rev-parse", "HEAD")
    silently(project, "reset", "-q", "--hard", "feature")
    project.vmrag("list")
    silently(project, "reset", "-q", "--hard", result)
    project.vmrag("list")
    both_added(project)
    second = texts(project, WorkingSet("main"))
    silently(project, "reset", "-q", "--hard", "feature")
    assert project.vmrag("list").err.splitlines()[0].endswith("'vmrag merge vmrag/wip/main-2' to restore them")
    assert aside(project) == {"vmrag/wip/main": first, "vmrag/wip/main-2": second}
    whole(project, tmp_path)


def test_stashed_documents_survive_gc(project):
    edit_edit(project)
    held = texts(project, WorkingSet("main"))
    silently(project, "reset", "-q", "--hard", "feature")
    project.vmrag("list")
    silently(project, "reflog", "expire", "--expire=now", "--all")
    project.vmrag("gc", "--apply")
    assert aside(project) == {"vmrag/wip/main": held}


def test_overlong_name_is_stashed_under_another(project):
    long = "x" * 200
    silently(project, "switch", "-q", "-c", long)
    edit_edit(project)
    silently(project, "reset", "-q", "--hard", "feature")
    said = project.vmrag("list").err
    (name,) = aside(project)
    assert f"vmrag merge {name}" in said


# -- what cannot be done is not begun --------------------------------------------------------------

FULL = (
    "import errno\nimport vmrag_link.journal as m\n"
    "def full(*a, **k): raise OSError(errno.ENOSPC, 'No space left on device')\nm.write_atomically = full"
)


def test_full_disk_stops_it_before_anything_is_done(edited, tmp_path):
    before, held = branches(edited), texts(edited, WorkingSet("main"))
    silently(edited, "reset", "-q", "--hard", "first")
    result = run_patched(edited, FULL, "sync", "--json")
    assert (error_of(result)["code"], result.code) == ("FILE_SYSTEM_ERROR", 3)
    assert "nothing was done" in error_of(result)["message"]
    assert branches(edited) == before
    assert texts(edited, WorkingSet("main")) == held
    went_along(edited, tmp_path, **EDITS)


@pytest.mark.hooks("on")
def test_hook_leaves_documents_to_next_command_if_knowledge_base_is_locked(edited, tmp_path):
    before = branches(edited)
    with opened(edited) as workspace, workspace.engine.write_lock("test"):
        said = edited.run("switch", "-q", "-C", "main", "first").stderr.splitlines()
        assert len(said) == 1
        assert "cannot carry uncommitted documents" in said[0]
        assert branches(edited) == before
    went_along(edited, tmp_path, **EDITS)


def test_processes_that_replay_at_the_same_moment_do_it_once(edited, tmp_path):
    silently(edited, "reset", "-q", "--hard", "feature")
    running = [start(edited, "list", "--json") for _ in range(3)]
    result = [process.done() for process in running]
    assert [result.code for result in result] == [0, 0, 0], result
    said = [result.err for result in result if result.err]
    assert len(said) == 1, said
    assert "2 uncommitted documents of 'main' moved to" in said[0]
    assert len({result.out for result in result}) == 1
    went_along(edited, tmp_path, **EDITS)


# -- kills -----------------------------------------------------------------------------------------

DYING = """
import re
import vmrag_link.journal as journal, vmrag_link.sync.binding as binding
from vmrag_link.engines.{engine} as Spoken
changing = re.compile(r"BEGIN|COMMIT|DELETE|DROP|(SELECT|CALL) dolt_(branch|commit|merge|reset)")
passed = 0
def counted(owner, name):
    inner = getattr(owner, name)
    def around(*a, **k):
        global passed
        said = a[1] if name in {spoken} else ['COMMIT']
        if any(map(changing.match, [said] if isinstance(said, str) else said)):
            passed += 1
            if passed == {number}: die()
        return inner(*a, **k)
    setattr(owner, name, around)
counted(journal, 'write_atomically')
counted(journal.Journal, 'remove_entry')
counted(binding, 'write_atomically')
for each in {spoken}: counted(Spoken, each)
"""
"""Before each statement that changes the knowledge base and each change of a file, the process dies
at the one of that number.
"""

ENGINE_MODULE, SPOKEN = {
    "doltlite": ("doltlite.connection import Connection", ["execute"]),
    "dolt": ("dolt.shell_session import ShellSession", ["run_statements", "queue_statements"]),
}[ENGINE]

ALONG, CONFLICT, MOVED = {"doltlite": (15, 12, 11), "dolt": (26, 24, 23)}[ENGINE]
"""The numbers of steps without and with a conflict, and the number of the first step after the
branch was moved.

Until then nothing shows whether documents will conflict.
"""


def dies(project: Project, number: int, *arguments: str) -> bool:
    return (
        run_patched(project, DYING.format(number=number, engine=ENGINE_MODULE, spoken=SPOKEN), *arguments).code
        == -signal.SIGKILL
    )


@pytest.mark.parametrize("number", range(1, ALONG + 1))
@pytest.mark.sample(1)
def test_kill_at_any_step_leaves_documents_uncommitted_on_new_pin(edited, tmp_path, number):
    silently(edited, "reset", "-q", "--hard", "feature")
    assert dies(edited, number, "list")
    went_along(edited, tmp_path, **EDITS)
    assert edited.vmrag("list").err == ""


def test_these_are_all_the_steps(edited):
    silently(edited, "reset", "-q", "--hard", "feature")
    assert not dies(edited, ALONG + 1, "list")


@pytest.mark.parametrize("number", range(MOVED, CONFLICT + 1))
def test_kill_at_any_step_with_conflict_stashes_documents_once(project, tmp_path, number):
    edit_edit(project)
    held = texts(project, WorkingSet("main"))
    silently(project, "reset", "-q", "--hard", "feature")
    assert dies(project, number, "list")
    project.vmrag("list")
    assert aside(project) == {"vmrag/wip/main": held}
    assert (branches(project)["main"].head, branches(project)["main"].dirty) == (project.pinned, False)
    whole(project, tmp_path)


def test_these_are_all_the_steps_of_a_conflict(project):
    edit_edit(project)
    silently(project, "reset", "-q", "--hard", "feature")
    assert not dies(project, CONFLICT + 1, "list")


@pytest.mark.parametrize("number", range(2, ALONG + 1, 3))
@pytest.mark.sample(1)
def test_killed_and_reverted_move_keeps_the_documents(edited, tmp_path, number):
    result = edited.git("rev-parse", "HEAD")
    silently(edited, "reset", "-q", "--hard", "feature")
    assert dies(edited, number, "list")
    silently(edited, "reset", "-q", "--hard", result)
    went_along(edited, tmp_path, **EDITS)


@pytest.mark.parametrize("number", [7, 11])
def test_killed_replay_of_a_deleted_branch_is_finished_later(edited, number):
    silently(edited, "reset", "-q", "--hard", "feature")
    assert dies(edited, number, "list")
    silently(edited, "switch", "-q", "feature")
    silently(edited, "branch", "-q", "-D", "main")
    edited.vmrag("list")
    assert (
        texts(edited, WorkingSet("main")).items()
        >= {f"handbook/{name}.md": text for name, text in EDITS.items()}.items()
    )
    assert (aside(edited), journal(edited)) == ({}, [])
    assert "main" in [branch["name"] for branch in edited.ask("branch")["branches"] if branch["dirty"]]


def test_write_after_a_killed_move_keeps_carried_documents(edited, tmp_path):
    silently(edited, "reset", "-q", "--hard", "feature")
    assert dies(edited, MOVED, "list")
    with opened(edited) as workspace:
        assert not texts(edited, WorkingSet("main")).keys() & {"handbook/draft.md"}
        workspace.engine.write(
            "main", Write(put_documents=[doc("more.md", collection="handbook")]), expected=edited.pinned
        )
    went_along(edited, tmp_path, **EDITS, more="text")


REMEMBERED = 64
"""About how many steps remember changes, or restore them."""


def visit_revision_that_contains_changes(project: Project, leg: str) -> str:
    """Leave `main` one move before the one that is killed; return where that goes to."""
    start = project.git("rev-parse", "HEAD")
    project.drop("faq.md")  # `first` does not have it
    project.put("draft.md", "A draft.")
    moves = {"away": ["first"], "further": ["first", "feature"], "back": ["first", start]}[leg]
    for target in moves[:-1]:
        silently(project, "reset", "-q", "--hard", target)
        project.vmrag("list")
    return moves[-1]


@pytest.mark.parametrize("leg", ["away", "further", "back"])
@pytest.mark.parametrize("number", range(1, REMEMBERED + 1))
@pytest.mark.sample(6)
def test_replay_restores_remembered_changes_after_kill_at_any_step(project, tmp_path, leg, number):
    start = project.git("rev-parse", "HEAD")
    silently(project, "reset", "-q", "--hard", visit_revision_that_contains_changes(project, leg))
    dies(project, number, "list")
    project.vmrag("list")
    silently(project, "reset", "-q", "--hard", start)
    went_along(project, tmp_path, faq=None, draft="A draft.")


def test_commit_killed_before_it_forgets_remembered_changes_loses_none(project):
    start = project.git("rev-parse", "HEAD")
    project.drop("faq.md")
    silently(project, "reset", "-q", "--hard", "first")
    project.put("draft.md", "A draft.")
    killed = run_patched(
        project,
        "from vmrag_link.merging import replay\nreplay.forget_changes = lambda *_: die()",
        "commit",
        "-m",
        "a draft",
    )
    assert killed.code == -signal.SIGKILL
    project.git("commit", "-q", "-m", "a draft")
    committed = texts(project, project.pinned)
    assert committed["handbook/draft.md"] == "A draft."
    silently(project, "reset", "-q", "--hard", start)
    project.vmrag("list")
    kept = aside(project)
    assert [name for name, documents in kept.items() if "handbook/faq.md" not in documents] == list(kept) != []
