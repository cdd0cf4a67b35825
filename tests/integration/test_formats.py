"""Data of version 1 of each format still work; data of a newer version are rejected or rebuilt."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import formerly
from tests.support.formerly import Formerly, entries, program, version
from tests.support.repos import isolate
from tests.support.terminal import Project
from vmrag_link import models
from vmrag_link.engines.base import Write
from vmrag_link.engines.doltlite.engine import DoltliteEngine
from vmrag_link.errors import SchemaTooNew
from vmrag_link.models import WorkingSet

pytestmark = pytest.mark.hooks("off")

OLD = {"often.md", "backup.md", "install.md", "sleep.md"}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Formerly:
    isolate(monkeypatch, tmp_path / "home")
    return formerly.unpack(tmp_path / "world")


def knowledge(person: Project) -> DoltliteEngine:
    return DoltliteEngine.open(person.shared / "kb")


def schema_of(person: Project, at: str) -> int:
    engine = knowledge(person)
    try:
        return version(engine, at)
    finally:
        engine.close()


def upgrade(person: Project, name: str) -> str:
    """A write that version 1 cannot hold, committed, pinned and committed to git; returns the
    revision.
    """
    engine = knowledge(person)
    branch = engine.find_branch("main")
    assert branch is not None
    engine.write("main", Write(put_projects=[models.Project(name)]), expected=branch.head)
    engine.close()
    person.vmrag("commit", "-m", f"Project {name}")
    person.git("commit", "-q", "-am", f"Project {name}")
    return person.pinned


def marks(person: Project) -> dict[str, str | None]:
    return {document["doc_id"]: document["uncommitted"] for document in person.ask("list")["documents"]}


# -- version 1 of everything, under this program


def test_old_knowledge_base_is_queried_without_a_change(world: Formerly) -> None:
    before = {name: (world.person(name).shared / "kb" / "kb.doltlite").read_bytes() for name in ("ada", "bob", "carol")}
    for person in (world.ada, world.bob, world.carol):
        assert person.status()["kb"]["revision"] == person.pinned
        (first, *_) = person.ask("query", "how long to rest")["results"]
        assert (first["doc_id"], "six hours" in first["text"]) == ("sleep.md", True)
        assert {revision["message"].strip() for revision in person.ask("log")["revisions"]} >= {
            "The handbook",
            "Less sleep",
        }
        assert person.consistent()
    assert {name: (world.person(name).shared / "kb" / "kb.doltlite").read_bytes() for name in before} == before
    assert schema_of(world.ada, world.ada.pinned) == 1


def test_uncommitted_documents_with_working_copy_are_kept_and_committed(world: Formerly) -> None:
    bob = world.bob
    assert {name: mark for name, mark in marks(bob).items() if mark} == {"backup.md": "removed", "plants.md": "added"}
    assert bob.ask("query", "plants on Mondays")["results"][0]["doc_id"] == "plants.md"
    bob.vmrag("commit", "-m", "Plants")
    assert set(marks(bob)) == OLD - {"backup.md"} | {"plants.md"}
    assert schema_of(bob, bob.pinned) == 1, "version 1 can hold it"
    assert bob.consistent()


def test_cached_vectors_are_used(world: Formerly) -> None:
    counts = world.bob.ask("sync", "--rebuild")["chunks"]
    assert (counts["embedded"], counts["cached"] > 0) == (0, True)
    assert not list(world.bob.shared.glob("embeddings.sqlite.corrupt*"))


def test_open_merge_of_git_is_resolved_with_its_former_decision(world: Formerly) -> None:
    ada = world.ada
    ada.vmrag("install")
    listed = ada.ask("resolve", "--list", code=1)
    assert ([conflict["id"] for conflict in listed["conflicts"]], listed["decided"]) == (["handbook/sleep.md"], 1)
    ada.vmrag("resolve", "handbook/sleep.md", "--theirs")
    ada.git("commit", "-q", "--no-edit")
    texts = ada.texts()
    assert "twice" in texts["install.md"], "ours, as was decided before"
    assert ("nine hours" in texts["sleep.md"], "snow.md" in texts) == (True, True)
    assert ada.consistent()
    ada.git("push", "-q", "origin", "main")


def test_open_merge_of_vmrag_is_resolved_with_its_former_decision(world: Formerly) -> None:
    carol = world.carol
    carol.vmrag("resolve", "handbook/sleep.md", "--ours")
    carol.vmrag("merge", "--continue")
    texts = carol.texts()
    assert "indoors" in texts["install.md"], "theirs, as was decided before"
    assert ("six hours" in texts["sleep.md"], "snow.md" in texts) == (True, True)
    assert carol.consistent()


def test_interrupted_commit_is_finished(world: Formerly) -> None:
    dan = world.dan
    before = dan.pinned
    assert "Finished an interrupted commit" in dan.vmrag("sync").err
    assert dan.pinned != before
    assert set(marks(dan)) == OLD | {"pencils.md"}
    assert not list((dan.shared / "journal").iterdir())


def test_queue_of_links_is_processed_and_old_links_are_kept(world: Formerly) -> None:
    ada = world.ada
    assert len(ada.ask("links")["links"]) == 3
    ada.vmrag("links", "rebuild")
    assert len(ada.ask("links")["links"]) == 3


def test_old_knowledge_base_travels_by_git_and_by_file(world: Formerly) -> None:
    bob = world.bob
    bob.vmrag("commit", "-m", "Plants")
    bob.git("commit", "-q", "-am", "Plants")
    bob.vmrag("push")
    bob.git("push", "-q", "origin", "main")
    dan = world.dan
    dan.vmrag("sync")
    dan.git("checkout", "-q", "--", ".")
    dan.vmrag("fetch", world.shelf)
    newcomer = Project(world.top / "eve")
    newcomer.top.mkdir()
    newcomer.git("clone", "-q", str(world.hub.top), ".")
    newcomer.vmrag("clone", "origin")
    assert "plants.md" in marks(newcomer)
    assert newcomer.answers() == bob.answers()


# -- the way to version 2, and back


def test_first_write_that_needs_it_upgrades_and_keeps_everything(world: Formerly) -> None:
    bob = world.bob
    old = bob.pinned
    new = upgrade(bob, "vmrag")
    assert (schema_of(bob, old), schema_of(bob, new)) == (1, 2)
    assert set(marks(bob)) == OLD - {"backup.md"} | {"plants.md"}, "what was uncommitted went along"
    assert bob.consistent()
    bob.git("checkout", "-q", "HEAD~1")
    bob.vmrag("sync")
    assert (bob.pinned, set(marks(bob))) == (old, OLD)
    assert bob.consistent()
    bob.git("switch", "-q", "main")
    assert (bob.pinned, bob.consistent()) == (new, True)


def goes_on_and_upgrades(dan: Project, project_id: str) -> None:
    """Finish and commit operations that were killed in version 1; then store a row that needs
    version 2.
    """
    dan.vmrag("sync")
    dan.git("commit", "-q", "-am", "Pencils")
    dan.vmrag("install")
    upgrade(dan, project_id)
    dan.git("push", "-q", "origin", "main")


@pytest.mark.hooks("on")
@pytest.mark.long
def test_two_upgrades_on_two_clones_meet_without_a_conflict(world: Formerly) -> None:
    dan, carol = world.dan, world.carol
    goes_on_and_upgrades(dan, "of-dan")
    carol.vmrag("merge", "--abort")
    carol.vmrag("install")
    carol.put("knots.md", "A bowline never slips.")
    upgrade(carol, "of-carol")
    assert carol.run("pull", "-q", "--no-rebase", "--no-edit", "origin", "main").returncode == 0
    engine = knowledge(carol)
    assert [entry.key for entry in entries(engine, carol.pinned)] == ["of-carol", "of-dan"]
    engine.close()
    assert set(marks(carol)) == OLD | {"pencils.md", "knots.md"}
    assert carol.consistent()
    carol.git("push", "-q", "origin", "main")
    dan.git("pull", "-q", "--ff-only", "origin", "main")
    assert (dan.pinned, dan.consistent()) == (carol.pinned, True)


@pytest.mark.hooks("on")
def test_merge_opened_in_version_1_accepts_an_upgraded_side(world: Formerly) -> None:
    carol, bob = world.carol, world.bob
    bob.vmrag("install")
    upgrade(bob, "vmrag")
    bob.git("push", "-q", "origin", "main")
    carol.vmrag("install")
    carol.vmrag("resolve", "handbook/sleep.md", "--ours")
    carol.vmrag("merge", "--continue")
    carol.git("commit", "-q", "-am", "Winter comes")
    assert schema_of(carol, carol.pinned) == 1
    carol.git("pull", "-q", "--no-rebase", "--no-edit", "origin", "main")
    assert schema_of(carol, carol.pinned) == 2
    assert set(marks(carol)) == OLD - {"backup.md"} | {"plants.md", "snow.md"}
    assert carol.consistent()


@pytest.mark.hooks("on")
def test_uncommitted_documents_of_version_1_follow_a_pin_of_version_2(world: Formerly) -> None:
    bob, dan = world.bob, world.dan
    goes_on_and_upgrades(dan, "vmrag")
    bob.vmrag("install")
    bob.git("pull", "-q", "--ff-only", "origin", "main")
    bob.vmrag("sync")
    assert {name: mark for name, mark in marks(bob).items() if mark} == {"backup.md": "removed", "plants.md": "added"}
    engine = knowledge(bob)
    assert [entry.key for entry in entries(engine, WorkingSet("main"))] == ["vmrag"]
    engine.close()
    assert bob.consistent()


@pytest.mark.hooks("on")
def test_program_of_version_1_rejects_only_upgraded_data(world: Formerly) -> None:
    bob = world.bob
    bob.vmrag("install")
    old = bob.pinned
    new = upgrade(bob, "vmrag")
    bob.git("push", "-q", "origin", "main")
    dan = world.dan
    dan.vmrag("sync")
    dan.git("checkout", "-q", "--", ".")
    with program(1):
        engine = knowledge(bob)
        assert engine.count_documents(old) == 4
        with pytest.raises(SchemaTooNew, match="schema version 2; this program supports versions up to 1"):
            engine.list_collections(new)
        engine.close()
        for command in (["list"], ["diff", old], ["add", "-", "--collection", "faq", "--id", "x"]):
            error = bob.vmrag(*command, "--json", code=3, stdin="x").error
            assert (error["code"], "pip install --upgrade" in error["hint"]) == ("SCHEMA_TOO_NEW", True)
        bob.git("-c", "core.hooksPath=/dev/null", "checkout", "-q", "HEAD~1")
        bob.forget_indexes()
        assert set(marks(bob)) == OLD, "rolled back, it works"
        assert bob.consistent()
        assert bob.vmrag("pin", new, "--json", code=3).error["code"] == "SCHEMA_TOO_NEW"
        assert bob.pinned == old
        carol = world.carol
        carol.vmrag("merge", "--abort")
        carol.git("fetch", "-q")
        carol.vmrag("fetch", "origin")
        assert carol.vmrag("merge", "origin/main", "--json", code=3).error["code"] == "SCHEMA_TOO_NEW"
        assert (carol.pinned, carol.texts().keys()) == (old, OLD)


# -- a newer version than this program's


def newer(path: Path, **changed: object) -> bytes:
    data = json.dumps(json.loads(path.read_bytes()) | {"format": 99} | changed).encode()
    path.write_bytes(data)
    return data


def test_journal_entry_of_a_newer_program_is_its_own_to_finish(world: Formerly) -> None:
    (path,) = (world.dan.shared / "journal").iterdir()
    data = newer(path, type="commit-of-tomorrow", more=[1])
    for command in (["commit", "-m", "x"], ["add", "-", "--collection", "faq", "--id", "x"], ["sync"]):
        error = world.dan.vmrag(*command, "--json", code=3, stdin="x").error
        assert (error["code"], "format 99" in error["message"]) == ("SCHEMA_TOO_NEW", True)
    assert path.read_bytes() == data


@pytest.mark.parametrize(("name", "file"), [("ada", "merge-git.json"), ("carol", "merge.json")])
def test_open_merge_of_a_newer_program_is_its_own_to_finish(world: Formerly, name: str, file: str) -> None:
    person = world.person(name)
    data = newer(person.own / file, kind="octopus")
    for command in (["resolve", "--list"], ["resolve", "--ours"], ["merge", "--continue"]):
        assert person.vmrag(*command, "--json", code=3).error["code"] == "SCHEMA_TOO_NEW"
    assert (person.own / file).read_bytes() == data


def test_agreements_of_a_newer_program_are_not_taken_for_none(world: Formerly) -> None:
    bob = world.bob
    bob.write(".vmrag.yaml", "embedding:\n  model: hash\nhooks:\n  quiet: true\n")
    bob.vmrag("trust", "--yes")
    (path,) = (
        path for path in world.top.parent.rglob("*.json") if "agreed" in path.read_text() and ".git" not in path.parts
    )
    data = newer(path, agreed={"of": "tomorrow"})
    for command in (["status"], ["trust", "--yes"]):
        assert bob.vmrag(*command, "--json", code=3).error["code"] == "SCHEMA_TOO_NEW"
    assert path.read_bytes() == data


def test_binding_of_a_newer_program_is_made_again(world: Formerly) -> None:
    bob = world.bob
    bob.vmrag("sync")
    newer(bob.own / "workspace.json", view={"of": "tomorrow"})
    assert bob.ask("query", "plants on Mondays")["results"][0]["doc_id"] == "plants.md"
    assert json.loads((bob.own / "workspace.json").read_bytes())["revision"] == bob.pinned


def test_cache_of_another_format_is_set_aside_and_made_again(world: Formerly) -> None:
    bob = world.bob
    cache = bob.shared / "embeddings.sqlite"
    data = bytearray(cache.read_bytes())
    data[68:72] = b"vmed"  # the application id
    cache.write_bytes(data)
    assert not (bob.shared / "views").exists(), "no index is there that would answer without it"
    assert bob.consistent()
    assert (bob.shared / "embeddings.sqlite.corrupt-1").read_bytes() == bytes(data)


def test_repository_that_requires_a_newer_program_is_left_alone(world: Formerly) -> None:
    bob = world.bob
    bob.write(".vmrag.yaml", "requires: 99.1\nembedding:\n  model: of-tomorrow\n")
    before = (bob.shared / "kb" / "kb.doltlite").read_bytes()
    for command in (["list"], ["query", "rest"], ["commit", "-m", "x"], ["sync"]):
        error = bob.vmrag(*command, "--json", code=2).error
        assert (error["code"], error["hint"]) == (
            "SCHEMA_TOO_NEW",
            "run 'python -m pip install --upgrade \"vmrag-link>=99.1\"' to upgrade vmrag-link",
        )
    assert (bob.shared / "kb" / "kb.doltlite").read_bytes() == before
