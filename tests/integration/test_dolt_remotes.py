"""How a knowledge base of the engine dolt travels: between two folders, as the engine does it.

`tests/integration/test_dolt_travel.py` has the same through the commands and through git.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from tests.support import dolt
from tests.support.engines import Engines, document, head, root, store
from vmrag_link.engines.base import Engine
from vmrag_link.engines.dolt import program, remotes
from vmrag_link.engines.dolt.engine import DoltEngine
from vmrag_link.engines.limits import USUAL_LIMITS, Limits
from vmrag_link.engines.own_branches import KEEP_BRANCH, ROOT_BRANCH
from vmrag_link.errors import (
    AlreadyInitialized,
    KnowledgeRefused,
    RemoteDamaged,
    RemoteMissing,
    RemoteMoved,
    RemoteUnreachable,
)
from vmrag_link.models import Row

DOLT = Engines("dolt")


@dataclass
class Two:
    """Ada's knowledge base, a place, and what Bob cloned from there."""

    ada: Engine
    bob: Engine
    url: str
    place: Path

    def refetch(self, limits: Limits) -> Engine:
        """Bob's, opened with other limits."""
        self.bob.close()
        self.bob = DoltEngine.open(self.bob.folder, limits=limits)
        return self.bob


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a folder with both knowledge bases and the remote, and a copy of it; a copy that is
    copied back is at the path of the remotes.
    """
    dolt.require()
    folder = tmp_path_factory.mktemp("two")
    ada, url = DOLT.create(folder / "ada"), f"file://{folder / 'a place'}"
    main = store(ada, "main", document("one"))
    ada.push("there", url, {ROOT_BRANCH: root(ada), "main": main})
    ada.close()
    DoltEngine.clone(folder / "bob", "there", url).close()
    saved = folder.with_name(f"{folder.name}-saved")
    shutil.copytree(folder, saved)
    return folder, saved


@pytest.fixture
def two(prepared: tuple[Path, Path]) -> Iterator[Two]:
    folder, saved = prepared
    shutil.rmtree(folder)
    shutil.copytree(saved, folder)
    place = folder / "a place"
    made = Two(DOLT.open(folder / "ada"), DOLT.open(folder / "bob"), f"file://{place}", place)
    yield made
    made.ada.close()
    made.bob.close()


def raw(engine: Engine, branch: str, *statements: str) -> str:
    """Change a branch with Dolt itself and commit, as an attacker could; return the revision."""
    engine.close()
    sql = [f"CALL dolt_checkout('{branch}')", *statements, "CALL dolt_commit('-A', '--allow-empty', '-m', 'strange')"]
    said = subprocess.run(
        ["dolt", "sql"], cwd=engine.folder, input=";\n".join(sql).encode() + b";", capture_output=True, check=False
    )
    assert said.returncode == 0, said.stderr
    assert b"error" not in said.stderr, said.stderr
    return head(engine, branch)


def strangers_push(engine: Engine, url: str, head: str) -> None:
    """Push to `main` with another program: vmrag checks before its own push."""
    assert isinstance(engine, DoltEngine)
    session = engine._session
    remotes.push(session.connection, "there", url, {"main": head}, force=False, user="", check=lambda: None)


def test_clone_has_the_root_as_its_branch_and_knows_the_others(two: Two) -> None:
    assert [branch.name for branch in two.bob.list_branches()] == [ROOT_BRANCH]
    assert root(two.bob) == root(two.ada)
    assert two.bob.remote_heads("there") == {ROOT_BRANCH: root(two.ada), "main": head(two.ada, "main")}
    assert two.bob.find_document(head(two.ada, "main"), "guide", "one") == document("one")
    with pytest.raises(AlreadyInitialized):
        DoltEngine.clone(two.bob.folder, "there", two.url)


def test_branches_pushed_by_one_are_fetched_and_extended_by_other(two: Two) -> None:
    two.bob.create_branch("main", two.bob.remote_heads("there")["main"])
    theirs = store(two.bob, "main", document("two"))
    two.bob.push("there", two.url, {"main": theirs, "side": theirs})
    two.ada.fetch("there", two.url)
    assert two.ada.remote_heads("there") == {ROOT_BRANCH: root(two.ada), "main": theirs, "side": theirs}
    assert two.ada.peek_heads(two.url) == two.ada.remote_heads("there")
    assert [branch.name for branch in two.ada.list_branches()] == ["main", ROOT_BRANCH]  # no local branch has moved
    assert head(two.ada, "main") != theirs
    assert two.ada.count_documents(theirs) == 2
    two.ada.push("there", two.url, {"side": ""})
    two.bob.fetch("there", two.url)
    assert "side" not in two.bob.remote_heads("there")


def test_push_is_a_fast_forward_or_refused(two: Two) -> None:
    two.bob.create_branch("main", two.bob.remote_heads("there")["main"])
    two.bob.push("there", two.url, {"main": store(two.bob, "main", document("two"))})
    ours = store(two.ada, "main", document("three"))
    with pytest.raises(RemoteMoved):
        two.ada.push("there", two.url, {"new": ours, "main": ours})
    assert two.ada.remote_heads("there")["new"] == ours  # one after the other: this one arrived
    assert (two.ada.peek_heads(two.url) or {})["main"] == head(two.bob, "main")


def test_forced_push_needs_the_state_that_was_fetched_last(two: Two) -> None:
    two.bob.create_branch("main", two.bob.remote_heads("there")["main"])
    theirs = store(two.bob, "main", document("two"))
    two.bob.push("there", two.url, {"main": theirs})
    ours = store(two.ada, "main", document("three"))
    with pytest.raises(RemoteMoved):
        two.ada.push("there", two.url, {"main": ours}, force=True)
    assert (two.ada.peek_heads(two.url) or {})["main"] == theirs
    two.ada.push("there", two.url, {"main": ours}, force=True)  # now it was fetched
    assert (two.ada.peek_heads(two.url) or {})["main"] == ours


def test_anchor_of_the_remote_grows_from_its_remote_state(two: Two) -> None:
    base = two.bob.remote_heads("there")["main"]
    two.bob.create_branch("main", base)
    apart = store(two.bob, "main", document("two"))
    with two.bob.write_lock("push"):
        two.bob.push("there", two.url, {KEEP_BRANCH: two.bob.build_keep_head(None, apart, reason="pinned")})
    other = store(two.ada, "main", document("three"))
    two.ada.fetch("there", two.url)
    with two.ada.write_lock("push"):
        kept = two.ada.build_keep_head(two.ada.remote_heads("there")[KEEP_BRANCH], other, reason="pinned")
        two.ada.push("there", two.url, {KEEP_BRANCH: kept})
    two.bob.fetch("there", two.url)
    two.bob.collect_garbage()  # what the remote's heads reach stays
    assert two.bob.find_unreachable([apart, other], heads=[two.bob.remote_heads("there")[KEEP_BRANCH]]) == []
    assert two.bob.count_documents(other) == 2


def test_forgotten_remote_is_known_after_the_next_fetch(two: Two) -> None:
    two.bob.forget_remote("there")
    two.bob.forget_remote("never-known")
    assert two.bob.remote_heads("there") == {}
    assert two.bob.remote_heads("never-known") == {}
    two.bob.fetch("there", two.url)
    assert two.bob.remote_heads("there")["main"] == head(two.ada, "main")


def test_place_that_holds_nothing_is_missing_and_stays_as_it_is(two: Two, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    for act in (two.ada.peek_heads, lambda url: two.ada.fetch("new", url)):
        with pytest.raises(RemoteMissing):
            act(f"file://{nothing}")
    with pytest.raises(RemoteMissing):
        DoltEngine.clone(tmp_path / "kb", "there", f"file://{nothing}")
    assert not nothing.exists()
    assert not DoltEngine.exists(tmp_path / "kb")


@pytest.mark.parametrize("name", ["a#b", "a%20b", "50%", "a?b", "a\\b"])
def test_dolt_works_at_path_with_character_of_urls(two: Two, tmp_path: Path, name: str) -> None:
    url = f"file://{tmp_path}/{name}/remote"
    two.ada.push("odd", url, {ROOT_BRANCH: root(two.ada), "main": head(two.ada, "main")})
    clone = DoltEngine.clone(tmp_path / name / "kb", "odd", url)
    try:
        assert clone.remote_heads("odd")["main"] == head(two.ada, "main")
        store(two.ada, "main", document("later"))
        two.ada.push("odd", url, {"main": head(two.ada, "main")})
        clone.fetch("odd", url)
        assert clone.remote_heads("odd")["main"] == head(two.ada, "main")
    finally:
        clone.close()
    program.check_repository(tmp_path / name / "kb")


def test_server_that_does_not_answer_is_unreachable(two: Two) -> None:
    with pytest.raises(RemoteUnreachable):
        two.ada.fetch("server", "http://127.0.0.1:9/kb")
    assert two.ada.remote_heads("server") == {}


@pytest.mark.parametrize("what", ["manifest", "tables"])
def test_damage_is_damage_and_nothing_is_taken(two: Two, what: str) -> None:
    store(two.ada, "main", document("two", "much " * 1000))
    two.ada.push("there", two.url, {"main": head(two.ada, "main")})
    if what == "manifest":
        (two.place / "manifest").write_bytes(b"5:garbage")
    else:
        for file in two.place.iterdir():
            if file.is_file() and file.name not in ("LOCK", "manifest"):
                file.write_bytes(file.read_bytes()[:-40])
    remote_heads = two.bob.remote_heads("there")
    with pytest.raises(RemoteDamaged):
        two.bob.fetch("there", two.url)
    assert two.bob.remote_heads("there") == remote_heads
    assert two.bob.count_documents(remote_heads["main"]) == 1


def test_repository_in_use_is_unchanged_if_used_as_remote(two: Two) -> None:
    two.ada.close()
    used = two.ada.folder / ".dolt" / "noms"
    journal = used / ("v" * 32)
    appending = journal.read_bytes() + b"\0\0\0\x40half of a rec"
    journal.write_bytes(appending)
    with pytest.raises(RemoteDamaged):
        two.bob.peek_heads(f"file://{used}")
    assert journal.read_bytes() == appending


STRANGE = {
    "a foreign table": (["CREATE TABLE theirs (k int primary key)"], "'theirs'"),
    "a trigger": (
        ["CREATE TRIGGER t BEFORE INSERT ON documents FOR EACH ROW SET new.content = 'evil'"],
        "dolt_schemas",
    ),
    "a view in place of a table": (["DROP TABLE documents", "CREATE VIEW documents AS SELECT 1"], "dolt_schemas"),
    "a column more": (["ALTER TABLE documents ADD COLUMN theirs int"], "'documents'"),
    "a row that is no record": (["UPDATE documents SET metadata = '[]'"], "metadata is not the JSON of an object"),
    "a document without an id": (["UPDATE documents SET doc_id = ''"], "doc_id is empty"),
    "two of one name": (
        [
            "INSERT INTO issue_logs SELECT 'i', 'x', 1, title, content, content_hash, '', '', '', '{}' FROM documents LIMIT 1",
            "UPDATE documents SET collection_name = 'issues_x', doc_id = 'i' LIMIT 1",
        ],
        "same name as a document",
    ),
    "no version": (["DELETE FROM vmrag_meta"], "schema"),
}


@pytest.mark.parametrize("what", STRANGE)
def test_content_that_vmrag_never_makes_is_rejected_and_removed(two: Two, what: str) -> None:
    statements, reason = STRANGE[what]
    remote_heads = two.bob.remote_heads("there")
    strange = raw(two.ada, "main", *statements)
    strangers_push(two.ada, two.url, strange)
    with pytest.raises(KnowledgeRefused, match=reason):
        two.bob.fetch("there", two.url)
    assert not two.bob.has_revision(strange)
    assert two.bob.remote_heads("there") == remote_heads
    assert two.bob.count_documents(remote_heads["main"]) == 1


def test_revision_with_replaced_content_on_the_remote_is_rejected(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    fair, forged = "Pay Zoe 17 coins", "Pay Bob 93 coins"
    monkeypatch.setenv("DOLT_ARCHIVE_PULL_STREAMER", "0")  # files that are easy to forge
    made = store(two.ada, "main", msgspec.structs.replace(document("two"), title=fair))
    two.ada.push("there", two.url, {"main": made})
    assert sum(forge(file, fair.encode(), forged.encode()) for file in two.place.iterdir()) == 1
    with pytest.raises(KnowledgeRefused, match="forged"):
        two.bob.fetch("there", two.url)
    assert not two.bob.has_revision(made)
    with pytest.raises(KnowledgeRefused, match="forged"):
        DoltEngine.clone(two.bob.folder.with_name("new"), "there", two.url)


@pytest.mark.parametrize("then", ["", "gc"], ids=["killed", "killed-collected"])
def test_fetch_refuses_forged_content_that_killed_fetch_brought(
    two: Two, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    fair, forged = "Pay Zoe 17 coins", "Pay Bob 93 coins"
    monkeypatch.setenv("DOLT_ARCHIVE_PULL_STREAMER", "0")  # files that are easy to forge
    two.bob.fetch("there", two.url)  # it checks all tables
    made = store(two.ada, "main", msgspec.structs.replace(document("two"), title=fair))
    two.ada.push("there", two.url, {"main": made})
    assert sum(forge(file, fair.encode(), forged.encode()) for file in two.place.iterdir()) == 1
    two.bob.close()
    for command in (["fetch", "at-there"], *([[then]] if then else [])):
        subprocess.run(["dolt", *command], cwd=two.bob.folder, check=True, capture_output=True)
    with pytest.raises(KnowledgeRefused, match="forged"):
        two.bob.fetch("there", two.url)
    assert two.bob.remote_heads("there")["main"] != made


def test_fetch_checks_only_new_revisions(two: Two) -> None:
    main = store(two.ada, "main", *(document(f"d{number}") for number in range(50)))
    two.ada.push("there", two.url, {"main": main})
    two.bob.fetch("there", two.url)
    checked = {*msgspec.json.decode((two.bob.folder / "checked-tables.json").read_bytes())}
    two.ada.push("there", two.url, {"main": store(two.ada, "main", document("one", "changed"))})
    for name in checked:  # a second look at these would find them missing
        (two.bob.folder / ".dolt/noms" / name).rename(two.bob.folder / ".dolt/noms" / f"{name}.away")
        (two.bob.folder / ".dolt/noms" / name).symlink_to(f"{name}.away")
    two.bob.fetch("there", two.url)
    now = {*msgspec.json.decode((two.bob.folder / "checked-tables.json").read_bytes())}
    assert checked < now


def forge(file: Path, text: bytes, by: bytes) -> bool:
    """Replace a text in one of Dolt's table files by another text of the same length; return
    whether it was found.

    Chunks with their checksums come first; an index and a footer are at the end.
    """
    content = file.read_bytes() if file.is_file() else b""
    if text not in content:
        return False
    count = int.from_bytes(content[-20:-16])
    index = len(content) - 20 - count * 28
    lengths = [int.from_bytes(content[at : at + 4]) for at in range(index + count * 12, index + count * 16, 4)]
    made = bytearray(content.replace(text, by))
    end = 0
    for length in lengths:
        end += length
        made[end - 4 : end] = crc32c(made[end - length : end - 4]).to_bytes(4)
    file.chmod(0o600)
    file.write_bytes(made)
    return True


def crc32c(data: bytes) -> int:
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def test_fetch_imports_no_tag_that_keeps_rejected_revisions(two: Two) -> None:
    strange = raw(two.ada, "main", "CREATE TABLE theirs (k int primary key)", "CALL dolt_tag('v1', 'main')")
    strangers_push(two.ada, two.url, strange)
    subprocess.run(["dolt", "push", "at-there", "v1"], cwd=two.ada.folder, check=True, capture_output=True)
    with pytest.raises(KnowledgeRefused, match="theirs"):
        two.bob.fetch("there", two.url)
    assert not two.bob.has_revision(strange)


def test_push_rejects_revisions_that_fetch_would_reject(two: Two) -> None:
    heads = two.ada.peek_heads(two.url)
    strange = raw(two.ada, "main", "CREATE TABLE theirs (k int primary key)")
    with pytest.raises(KnowledgeRefused):
        two.ada.push("there", two.url, {"main": strange})
    assert two.ada.peek_heads(two.url) == heads


def test_rejected_revision_is_rejected_again_and_not_cloned(two: Two) -> None:
    strangers_push(two.ada, two.url, raw(two.ada, "main", "CREATE TABLE theirs (k int primary key)"))
    for _ in range(2):
        with pytest.raises(KnowledgeRefused, match="theirs"):
            two.bob.fetch("there", two.url)
    new = DoltEngine.clone(two.bob.folder.with_name("new"), "there", two.url)
    assert "main" not in new.remote_heads("there")
    with pytest.raises(KnowledgeRefused, match="theirs"):
        new.count_documents(new.foreign_heads("there")["main"])
    new.close()


def test_more_than_is_taken_is_refused_and_does_not_stay(two: Two) -> None:
    many = store(two.ada, "main", *(document(f"d{number}", "text " * 200) for number in range(20)))
    two.ada.push("there", two.url, {"main": many, "side": many})
    for limits, reason in {
        Limits(documents=20): "more than 20 documents",
        Limits(text_bytes=999): "MB",
        Limits(branches=2): "branches",
        Limits(file_bytes=1000): "MB",
    }.items():
        bob = two.refetch(limits)
        with pytest.raises(KnowledgeRefused, match=reason):
            bob.fetch("there", two.url)
        assert not bob.has_revision(many)
    bob = two.refetch(USUAL_LIMITS)
    bob.fetch("there", two.url)
    assert bob.count_documents(many) == 21


def test_killed_fetch_keeps_the_known_heads(two: Two) -> None:
    remote_heads = two.bob.remote_heads("there")
    strange = raw(two.ada, "main", "CREATE TABLE theirs (k int primary key)")
    strangers_push(two.ada, two.url, strange)
    subprocess.run(  # the state of a fetch that is killed before its first check
        ["dolt", "fetch", "at-there"], cwd=two.bob.folder, check=True, capture_output=True
    )
    assert two.bob.remote_heads("there") == remote_heads
    with pytest.raises(KnowledgeRefused):
        two.bob.fetch("there", two.url)
    assert not two.bob.has_revision(strange)


# -- what a fork has, in quarantine


def no_objection(row: Row) -> None:
    pass


def test_sound_revisions_leave_the_quarantine(two: Two, tmp_path: Path) -> None:
    known_head = head(two.ada, "main")
    first = store(two.ada, "main", document("two"))
    second = store(two.ada, "main", document("three"))
    two.ada.push("there", two.url, {"main": second})
    seen: list[Row] = []
    into = tmp_path / "room" / "vetted"
    into.parent.mkdir()
    new = two.bob.vet_revisions(
        two.url, [second, "v" * 32], known_heads=[known_head], into=into, limits=USUAL_LIMITS, check_row=seen.append
    )
    assert sorted(new) == sorted([first, second])
    assert {header.key for header in seen} == {("guide", "one"), ("guide", "two"), ("guide", "three")}
    assert not two.bob.has_revision(second)
    two.bob.fetch("quarantine", f"file://{into}")
    two.bob.anchor_revision(second, reason="adopted")
    two.bob.forget_remote("quarantine")
    two.bob.collect_garbage()
    assert two.bob.count_documents(second) == 3


@pytest.mark.parametrize("what", ["a foreign table", "a row that is no record", "no version", "the first is strange"])
def test_strange_revisions_do_not_leave_the_quarantine(two: Two, tmp_path: Path, what: str) -> None:
    known_head = head(two.ada, "main")
    if what == "the first is strange":
        raw(two.ada, "main", *STRANGE["a foreign table"][0])
        strange = raw(two.ada, "main", "DROP TABLE theirs")
    else:
        strange = raw(two.ada, "main", *STRANGE[what][0])
    strangers_push(two.ada, two.url, strange)
    into = tmp_path / "room" / "vetted"
    into.parent.mkdir()
    with pytest.raises(KnowledgeRefused):
        two.bob.vet_revisions(
            two.url, [strange], known_heads=[known_head], into=into, limits=USUAL_LIMITS, check_row=no_objection
        )
    assert not into.exists()
    assert not two.bob.has_revision(strange)


def test_unrelated_knowledge_base_is_rejected_in_quarantine(two: Two, tmp_path: Path) -> None:
    other = DOLT.create(tmp_path / "other")
    strange = store(other, "main", document("x"))
    url = f"file://{tmp_path / 'elsewhere'}"
    other.push("there", url, {ROOT_BRANCH: root(other), "main": strange})
    other.close()
    into = tmp_path / "room" / "vetted"
    into.parent.mkdir()
    with pytest.raises(KnowledgeRefused):
        two.bob.vet_revisions(url, [strange], known_heads=[], into=into, limits=USUAL_LIMITS, check_row=no_objection)
