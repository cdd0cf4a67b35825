"""Travel of a knowledge base of the engine dolt through git: two users, a bare repository.

The parts of the transport are equal for both engines; the tests of travel cover them on the
embedded one: credentials, redirections, timeouts, damaged objects.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import dolt, people, travel
from tests.support.engines import document, head, store
from tests.support.people import World
from tests.support.repos import Repo, isolate
from tests.support.templates import build_once, copy_tree
from tests.support.travel import PATIENCE, Clone, Pair, bare, child, git_clone
from vmrag_link.engines.dolt import inspection
from vmrag_link.engines.limits import Limits
from vmrag_link.engines.own_branches import KEEP_BRANCH
from vmrag_link.errors import KnowledgeRefused, RemoteDamaged, RemoteDiverged, RemoteInvalid, RemoteRejected
from vmrag_link.git import plumbing
from vmrag_link.pin_values import DATA_REF, DOLT_DATA_REF
from vmrag_link.transport import address, copies, git_transport

home = travel.home


@pytest.fixture(scope="session")
def _dolt_pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    dolt.require()
    return build_once(tmp_path_factory, "dolt-pair", lambda folder: travel.build_pair(folder, "dolt"))


@pytest.fixture
def pair(_dolt_pair: Path, tmp_path: Path, home: Path) -> Iterator[Pair]:
    """The copies' remotes are other places than those that were fetched from: both fetch once."""
    for name in ("hub.git", "ada", "bob"):
        copy_tree(_dolt_pair / name, tmp_path / name)
    ada, bob = Clone(tmp_path / "ada", kind="dolt"), Clone(tmp_path / "bob", kind="dolt")
    yield Pair(tmp_path, ada, bob, Repo(tmp_path / "hub.git"))
    ada.close()
    bob.close()


def test_two_users_work_through_the_remote_of_the_code_without_branches(pair: Pair) -> None:
    refs = set(pair.hub.git("for-each-ref", "--format=%(refname)").split())
    assert refs == {"refs/heads/main", DOLT_DATA_REF}
    pair.bob.engine.create_branch("main", pair.bob.heads()["main"])
    theirs = pair.bob.record("two")
    assert [
        (branch.branch, branch.new)
        for destination in pair.bob.push("origin", "main")
        for branch in destination.branches
    ] == [("main", theirs)]
    assert pair.ada.fetch()
    assert pair.ada.heads()["main"] == theirs
    assert pair.ada.engine.find_document(theirs, "guide", "two") == document("two", "text")
    assert set(pair.hub.git("for-each-ref", "--format=%(refname)").split()) == refs
    said = pair.hub.git("log", "--format=%an <%ae> %cn <%ce>", DOLT_DATA_REF)
    assert set(said.splitlines()) == {"vmrag <vmrag@localhost> vmrag <vmrag@localhost>"}


def test_plain_dolt_clones_the_remote(pair: Pair, tmp_path: Path) -> None:
    assert count_in_plain_clone(pair, tmp_path) == 1


def count_in_plain_clone(pair: Pair, tmp_path: Path) -> int:
    url = f"git+file://{pair.hub.top}"
    subprocess.run(
        ["dolt", "clone", "--ref", DOLT_DATA_REF, "--branch", "main", url, "plain"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        env=os.environ | {"DOLT_REMOTE_INFO_BRANCH": ""},
    )
    counted = ["dolt", "sql", "-r", "csv", "-q", "SELECT count(*) FROM documents"]
    said = subprocess.run(counted, cwd=tmp_path / "plain", check=True, capture_output=True, text=True)
    return int(said.stdout.split()[-1])


def test_large_file_travels_in_parts_that_plain_dolt_reads(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "_PART_BYTES", 1000)
    revision = pair.ada.record("two", os.urandom(5000).hex())
    pair.ada.push("origin", "main")
    parts = [path for path in pair.hub.git("ls-tree", "-r", "--name-only", DOLT_DATA_REF).split() if "/" in path]
    assert len(parts) > 4
    assert pair.bob.fetch()
    assert pair.bob.heads()["main"] == revision
    assert pair.bob.engine.count_documents(revision) == 2
    key = pair.bob.at().key
    assert git_transport.find_copy_damage(pair.bob.places, "dolt", key) == ""
    assert count_in_plain_clone(pair, tmp_path) == 2


def test_fetch_reads_only_new_files_of_remote(pair: Pair) -> None:
    assert pair.bob.fetch()
    copy = pair.bob.places.remotes / pair.bob.at().key / copies.DOLT_NAME
    before = {path.name: path.stat() for path in copy.iterdir()}
    pair.ada.record("two")
    pair.ada.push("origin", "main")
    assert pair.bob.fetch()
    after = {path.name: path.stat() for path in copy.iterdir()}
    tables = [name for name in before if len(name.partition(".")[0]) == 32]
    assert tables
    assert all(after[name].st_mtime_ns == before[name].st_mtime_ns for name in tables)
    assert len(after) > len(before)


def test_damaged_copy_of_remote_is_found_and_made_again(pair: Pair) -> None:
    assert pair.bob.fetch()
    key = pair.bob.at().key
    folder = pair.bob.places.remotes / key / copies.DOLT_NAME
    table = max(folder.iterdir(), key=lambda path: path.stat().st_size)
    content = bytearray(table.read_bytes())
    content[len(content) // 2] ^= 1
    stamp = table.stat()
    table.write_bytes(content)
    os.utime(table, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert git_transport.find_copy_damage(pair.bob.places, "dolt", key) == f"{table.name} differs from the fetched data"
    os.utime(table)
    revision = pair.ada.record("two")
    pair.ada.push("origin", "main")
    assert pair.bob.fetch()
    assert pair.bob.engine.count_documents(revision) == 2
    assert git_transport.find_copy_damage(pair.bob.places, "dolt", key) == ""


def test_copy_of_earlier_version_is_replaced(pair: Pair) -> None:
    """Earlier versions let Dolt use a git repository as the copy."""
    assert pair.bob.fetch()
    key = pair.bob.at().key
    folder = pair.bob.places.remotes / key
    pair.bob.close()
    former = bare(folder / "remote.git")
    url = f"git+file://{former.top}"
    dolt.run(pair.bob.places.kb, "remote", "remove", f"at-{key}")
    dolt.run(pair.bob.places.kb, "remote", "add", "--ref", DOLT_DATA_REF, f"at-{key}", url)
    notes = pair.bob.places.kb / "remotes.json"
    notes.write_text(notes.read_text().replace(f"file://{folder / copies.DOLT_NAME}", url))
    shutil.rmtree(folder / copies.DOLT_NAME)
    revision = pair.ada.record("two")
    pair.ada.push("origin", "main")
    assert pair.bob.fetch()
    assert pair.bob.heads()["main"] == revision
    assert pair.bob.engine.count_documents(revision) == 2
    assert not former.top.exists()


def test_fetch_without_news_contacts_only_git(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pair.bob.fetch()
    monkeypatch.setattr(type(pair.bob.engine), "fetch", lambda *_: pytest.fail("the engine was asked"))
    assert pair.bob.fetch()


def test_concurrent_pushes_lose_nothing(pair: Pair) -> None:
    body = "me = Clone(Path({top!r}), kind='dolt')\nfor number in range(2):\n    me.record(f'{name}-{{number}}', branch={name!r})\n    me.push('origin', {name!r})\nme.close()"
    running = [child(body.format(top=str(pair.folder / who), name=f"of-{who}")) for who in ("ada", "bob")]
    for process in running:
        _, complaint = process.communicate(timeout=300)
        assert process.returncode == 0, complaint
    cleo = git_clone(pair.hub.top, pair.folder / "cleo", kind="dolt")
    assert cleo.clone_knowledge()
    heads = cleo.heads()
    for who in ("ada", "bob"):
        doc_ids = {header.doc_id for header in cleo.engine.read_headers(heads[f"of-{who}"])}
        assert {f"of-{who}-0", f"of-{who}-1"} <= doc_ids
    cleo.close()


def test_diverged_branch_is_rejected_and_force_keeps_the_old_head(pair: Pair) -> None:
    pair.bob.engine.create_branch("main", pair.bob.heads()["main"])
    theirs = pair.bob.record("two")
    pair.bob.push("origin", "main")
    ours = pair.ada.record("three")
    with pytest.raises(RemoteDiverged):
        pair.ada.push("origin", "main")
    pair.ada.push("origin", "main", force=True)
    assert pair.bob.fetch()
    assert pair.bob.heads()["main"] == ours
    kept = pair.bob.engine.remote_heads(pair.bob.at().key)[KEEP_BRANCH]
    assert pair.bob.engine.find_unreachable([theirs], heads=[kept]) == []


def test_strange_content_is_refused_and_is_nowhere_afterwards(pair: Pair) -> None:
    assert pair.bob.fetch()
    heads = pair.bob.heads()
    pair.ada.close()
    sql = b"CALL dolt_checkout('main'); CREATE TABLE theirs (k int primary key); CALL dolt_commit('-Am', 'strange');"
    subprocess.run(["dolt", "sql"], cwd=pair.ada.places.kb, input=sql, check=True, capture_output=True)
    strange = head(pair.ada.engine, "main")
    with pytest.MonkeyPatch.context() as patch:  # another program looks at nothing before it pushes
        patch.setattr(inspection, "require_sound_heads", lambda *_, **__: None)
        pair.ada.push("origin", "main")
    for _ in range(2):  # the second one is refused unfetched
        with pytest.raises(KnowledgeRefused, match="theirs"):
            pair.bob.fetch()
    assert not pair.bob.engine.has_revision(strange)
    assert pair.bob.heads() == heads
    assert pair.bob.store.run("cat-file", "-e", pair.tip).returncode != 0
    assert not list(pair.bob.places.kb.glob(".dolt/git-remote-cache/*"))
    assert pair.bob.engine.count_documents(heads["main"]) == 1
    cleo = git_clone(pair.hub.top, pair.folder / "cleo", kind="dolt")
    cleo.clone_knowledge()  # without the branch, whose content is not read
    assert "main" not in cleo.heads()
    with pytest.raises(KnowledgeRefused, match="theirs"):
        cleo.engine.count_documents(strange)
    cleo.close()


def test_unrelated_knowledge_base_is_rejected(pair: Pair) -> None:
    assert pair.bob.fetch()
    heads = pair.bob.heads()
    eve = Clone(pair.folder / "eve", create=True, kind="dolt")
    store(eve.engine, "main", document("one", "another"))
    eve.repo.git("remote", "add", "origin", str(pair.hub.top))
    pair.hub.git("update-ref", "-d", DOLT_DATA_REF)
    eve.push("origin", "main")
    theirs = head(eve.engine, "main")
    eve.close()
    with pytest.raises(RemoteRejected):
        pair.bob.fetch()
    assert not pair.bob.engine.has_revision(theirs)
    assert pair.bob.engine.count_documents(heads["main"]) == 1


@pytest.mark.parametrize("what", ["no manifest", "a manifest of nothing", "another file", "too large"])
def test_ref_that_holds_something_else_is_damaged(pair: Pair, what: str) -> None:
    tree = pair.hub.git("ls-tree", DOLT_DATA_REF)
    lines = [line for line in tree.splitlines() if "manifest" not in line or what in ("another file", "too large")]
    if what == "a manifest of nothing":
        empty = subprocess.run(
            ["git", "hash-object", "-w", "--stdin"], cwd=pair.hub.top, input=b"5:x", capture_output=True, check=True
        )
        lines.append(f"100644 blob {empty.stdout.decode().strip()}\tmanifest")
    if what == "another file":
        lines.append(lines[0].partition("\t")[0] + "\t..evil name")
    made = subprocess.run(
        ["git", "mktree"], cwd=pair.hub.top, input=("\n".join(lines) + "\n").encode(), capture_output=True, check=True
    )
    commit = pair.hub.git("commit-tree", "-m", "x", made.stdout.decode().strip(), "-p", DOLT_DATA_REF)
    pair.hub.git("update-ref", DOLT_DATA_REF, commit)
    remote_heads = pair.bob.engine.remote_heads(pair.bob.at().key)
    if what == "too large":
        pair.bob.reopen(Limits(file_bytes=100))
    with pytest.raises(KnowledgeRefused if what == "too large" else RemoteDamaged):
        pair.bob.fetch()
    assert pair.bob.engine.remote_heads(pair.bob.at().key) == remote_heads


@pytest.mark.parametrize("name", ["we#ird", "a%20b\\c"])
def test_knowledge_travels_by_git_at_path_with_character_of_urls(pair: Pair, name: str) -> None:
    (pair.folder / name).mkdir()
    cleo = git_clone(pair.hub.top, pair.folder / name / "cleo", kind="dolt")
    assert cleo.clone_knowledge()
    cleo.engine.create_branch("main", cleo.heads()["main"])
    theirs = cleo.record("two")
    cleo.push("origin", "main")
    assert pair.ada.fetch()
    assert pair.ada.heads()["main"] == theirs
    cleo.close()


def test_copy_of_remote_is_sound_after_project_moves(pair: Pair) -> None:
    pair.ada.record("two")
    pair.ada.push("origin", "main")
    assert pair.bob.fetch()
    key = pair.bob.at().key
    assert git_transport.find_copy_damage(pair.bob.places, "dolt", key) == ""
    pair.bob.close()
    moved = (pair.folder / "bob").rename(pair.folder / "moved")
    assert git_transport.find_copy_damage(plumbing.locate_work_tree(moved), "dolt", key) == ""


# -- kills


MOMENTS = {
    "the engine pushed": "from vmrag_link.transport.copies import DoltCopy\nDoltCopy.store_commit = die",
    "git pushed": "from vmrag_link.git import transfer\nreal = transfer.set_ref\n"
    "transfer.set_ref = lambda where, ref, to: die() if 'remotes' in ref else real(where, ref, to)",
    "the note was written": "from vmrag_link.transport.copies import DoltCopy\nDoltCopy.record_commit = die",
}
"""Step of a push before which the process is killed."""


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_push_is_done_by_the_next_one_or_was_done(pair: Pair, moment: str) -> None:
    assert pair.ada.fetch()
    revision = pair.ada.record("two")
    pair.ada.close()
    body = (
        "def die(*_, **__):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        f"{MOMENTS[moment]}\nClone(Path({str(pair.ada.repo.top)!r}), kind='dolt').push('origin', 'main')"
    )
    killed = child(body)
    killed.communicate(timeout=PATIENCE)
    assert killed.returncode == -signal.SIGKILL
    pair.ada.push("origin", "main")
    assert pair.ada.heads()["main"] == revision
    assert pair.bob.fetch()
    assert pair.bob.heads()["main"] == revision
    assert pair.bob.engine.count_documents(revision) == 2


def test_killed_fetch_is_done_by_the_next_one(pair: Pair) -> None:
    pair.bob.engine.create_branch("main", pair.bob.heads()["main"])
    revision = pair.bob.record("two")
    pair.bob.push("origin", "main")
    remote_heads = pair.ada.engine.remote_heads(pair.ada.at().key)
    pair.ada.close()
    body = (
        "from vmrag_link.engines.dolt import inspection\n"
        "inspection.find_foreign_heads = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"Clone(Path({str(pair.ada.repo.top)!r}), kind='dolt').fetch()"
    )
    killed = child(body)
    killed.communicate(timeout=PATIENCE)
    assert killed.returncode == -signal.SIGKILL
    assert pair.ada.engine.remote_heads(pair.ada.at().key) == remote_heads
    assert pair.ada.fetch()
    assert pair.ada.heads()["main"] == revision


def test_killed_clone_leaves_no_knowledge_base(pair: Pair) -> None:
    cleo = git_clone(pair.hub.top, pair.folder / "cleo", kind="dolt")
    body = (
        "from vmrag_link.engines.dolt import inspection\n"
        "inspection.find_foreign_heads = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"Clone(Path({str(cleo.repo.top)!r}), kind='dolt').clone_knowledge()"
    )
    killed = child(body)
    killed.communicate(timeout=PATIENCE)
    assert killed.returncode == -signal.SIGKILL
    assert travel.opening.detect_engine(cleo.places.kb) is None
    assert cleo.clone_knowledge()
    assert cleo.heads() == pair.ada.heads()
    cleo.close()


# -- what a remote is for this engine


@pytest.mark.parametrize(
    "text", ["org/repo", "aws://bucket/db", "https://doltremoteapi.dolthub.com/org/repo", "gs://bucket/db"]
)
def test_remotes_for_dolt_only_are_rejected_for_the_embedded_engine(text: str) -> None:
    assert address.parse_url(text, engine="dolt").url == text
    if not text.startswith("https"):
        with pytest.raises(RemoteInvalid):
            address.parse_url(text)


def test_each_engine_has_its_own_ref_in_git_repository(pair: Pair) -> None:
    text = f"git+file://{pair.hub.top}"
    ours, theirs = address.parse_url(text, engine="dolt"), address.parse_url(text)
    assert (ours.peer.ref, theirs.peer.ref) == (DOLT_DATA_REF, DATA_REF)  # type: ignore[union-attr]  # git carries both
    assert ours.key != theirs.key


# -- the commands


def build_world(top: Path) -> None:
    people.build(top, "--engine", "dolt")


@pytest.fixture(scope="session")
def _dolt_world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    dolt.require()
    return build_once(tmp_path_factory, "dolt-people", build_world)


@pytest.fixture
def world(_dolt_world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Ada has begun on Dolt, imported three documents, and pushed them."""
    isolate(monkeypatch, tmp_path / "home")
    return people.copy_world(_dolt_world, tmp_path / "world")


def test_git_push_includes_knowledge_and_git_pull_fetches_it(world: World) -> None:
    ada, bob = world.ada, world.join("bob")
    missing = bob.vmrag("clone", code=None, env={"VMRAG_DOLT_BINARY": "/nowhere/dolt"})
    assert "cannot run /nowhere/dolt" in missing.err
    assert not bob.top.joinpath(".git/vmrag/remotes.git").exists()  # the check came before the fetch
    assert bob.vmrag("clone").out.startswith("Fetched the knowledge base from origin")
    bob.vmrag("install", "-q")
    theirs = bob.write_document("new.md", "news of Bob")
    assert bob.said("push", "-q") == ["vmrag: pushed the documents that these commits pin to origin"]
    ada.git("pull", "-q")
    ada.vmrag("fetch")
    ada.vmrag("sync")
    assert ada.pinned == theirs
    assert ada.texts() == bob.texts()
    assert ada.fingerprint() == bob.fingerprint()
    assert ada.vmrag("verify").code == 0
    refs = world.hub.git("for-each-ref", "--format=%(refname)").split()
    assert refs == ["refs/heads/main", DOLT_DATA_REF]


def test_forks_knowledge_is_adopted_from_quarantine(world: World) -> None:
    fork = world.bare("fork.git")
    eve = world.join("eve")
    eve.vmrag("clone")
    eve.vmrag("install", "-q")
    eve.git("remote", "set-url", "origin", str(fork.top))
    eve.git("switch", "-q", "-c", "topic")
    theirs = eve.write_document("eve.md", "what Eve knows")
    eve.git("push", "-q", "-u", "origin", "topic")
    ada = world.ada
    ada.git("remote", "add", "eve", str(fork.top))
    ada.git("fetch", "-q", "eve")
    said = ada.vmrag("adopt", "eve", "eve/topic").out
    assert "Took 1 revision from eve" in said
    assert not list(ada.top.glob(".git/vmrag/quarantine/*"))
    assert world.holds(theirs)


def test_gc_remote_rewrites_the_data_ref_as_one_commit(world: World) -> None:
    ada = world.ada
    for number in range(3):
        ada.write_document("new.md", f"news {number} " * 200)
        ada.git("push", "-q")
    count = int(world.hub.git("rev-list", "--count", DOLT_DATA_REF))
    assert count == 4  # one a push
    assert "pushed 4 times" in ada.vmrag("gc", "--remote").out
    ada.vmrag("gc", "--remote", "--apply")
    assert int(world.hub.git("rev-list", "--count", DOLT_DATA_REF)) == 1
    bob = world.join("bob")
    bob.vmrag("clone")
    assert bob.texts() == ada.texts()
