"""Snapshots shared by several processes."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.support import knowledge
from tests.support.knowledge import Knowledge, child, collection, doc, end, said
from vmrag_link import locks
from vmrag_link.errors import Busy, FileFailed, IndexFailed
from vmrag_link.index import directories, snapshots
from vmrag_link.index.manifest import FILE
from vmrag_link.index.verify import problem_of

kb = knowledge.kb


@pytest.fixture
def revision(kb: Knowledge) -> str:
    made = kb.commit(*[doc(f"d{n}", f"text number {n}") for n in range(20)], collections=[collection()])
    kb.index(made)
    return made


def shelf(kb: Knowledge) -> str:
    """Code that opens the same snapshots in a child."""
    return f"shelf = Snapshots(Path({str(kb.snapshots.root)!r}))\n"


def build(kb: Knowledge, revision: str, folder: Path) -> None:
    with kb.store(folder, create=True) as store:
        kb.indexer.update(store, revision, base=None)
        store.manifest.forget_touched()
        store.seal(revision=revision)


def building(kb: Knowledge) -> list[str]:
    return [path.name for path in kb.snapshots.root.iterdir() if path.name.startswith(directories.BUILDING)]


def test_finding_a_usable_snapshot_of_that_name_is_success(kb, revision):
    before = kb.snapshots.path(revision).stat().st_ino
    with kb.snapshots.building() as folder:
        build(kb, revision, folder)
        assert kb.snapshots.publish(folder, revision) == kb.snapshots.path(revision)
    assert kb.snapshots.path(revision).stat().st_ino == before
    assert building(kb) == []


def test_a_broken_snapshot_is_replaced(kb, revision):
    (kb.snapshots.path(revision) / FILE).write_bytes(b"garbage")
    assert kb.snapshots.problem(revision)
    assert kb.index(revision).how == "fresh"
    assert kb.snapshots.problem(revision) == ""
    assert building(kb) == []


def test_a_broken_snapshot_that_somebody_reads_is_an_error_that_says_so(kb, revision):
    path = kb.snapshots.path(revision)
    reader = child(
        shelf(kb) + f"with shelf.reading(Path({str(path)!r})):\n    print('reading', flush=True); sys.stdin.read()"
    )
    assert said(reader) == "reading"
    (path / "keywords.sqlite").unlink()
    with pytest.raises(IndexFailed, match="another process reads it"):
        kb.index(revision)
    assert building(kb) == []
    end(reader)
    assert kb.index(revision).how == "fresh"


def test_a_snapshot_that_another_process_reads_is_not_removed(kb, revision):
    path = kb.snapshots.path(revision)
    reader = child(
        shelf(kb) + f"with shelf.reading(Path({str(path)!r})):\n    print('reading', flush=True); sys.stdin.read()"
    )
    assert said(reader) == "reading"
    assert kb.snapshots.discard(path) is False
    assert kb.snapshots.evict(bound=list, keep=0) == []
    assert kb.snapshots.problem(revision) == ""
    end(reader)
    assert kb.snapshots.discard(path) is True
    assert kb.snapshots.problem(revision) == "it is not there"
    assert kb.snapshots.discard(path) is True  # gone already


def test_a_killed_builder_is_swept_and_one_at_work_is_left_alone(kb, revision):
    body = shelf(kb) + (
        "with shelf.building() as folder:\n    folder.mkdir(); (folder / 'half').write_text('x')\n"
        "    print(folder, flush=True); sys.stdin.read()"
    )
    killed, alive = child(body), child(body)
    gone, kept = Path(said(killed)), Path(said(alive))
    assert kb.snapshots.sweep() == []
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert kb.snapshots.sweep() == [gone]
    assert (kept / "half").exists()
    end(alive)
    assert building(kb) == []
    assert kb.snapshots.problem(revision) == ""


def test_two_processes_that_sweep_at_once_do_not_disturb_each_other(kb, revision):
    def litter(number: int) -> None:
        for place in range(30):
            (kb.snapshots.root / f"{directories.BUILDING}{number}-{place}" / "deep").mkdir(parents=True)

    litter(0)
    sweepers = [
        child(
            shelf(kb)
            + "sys.stdin.readline()\nfor _ in range(40): shelf.sweep(); shelf.all()\nprint('done', flush=True)"
        )
        for _ in range(2)
    ]
    for sweeper in sweepers:
        assert sweeper.stdin is not None
        sweeper.stdin.write("go\n")
        sweeper.stdin.flush()
    for number in range(1, 5):
        litter(number)
    assert [said(sweeper) for sweeper in sweepers] == ["done", "done"]
    for sweeper in sweepers:
        end(sweeper)
    kb.snapshots.sweep()
    assert building(kb) == []


def test_eviction_keeps_what_is_bound_and_the_spares_that_were_used_last(kb, revision):
    paths = [kb.snapshots.path(revision)]
    before = revision
    for number in range(5):
        after = kb.commit(doc("edited", str(number)))
        paths.append(kb.index(after, base=before).path)
        before = after
    for age, path in enumerate(reversed(paths)):
        os.utime(path, ns=(0, 10**18 - age * 10**9))
    kb.snapshots.touch(paths[1])
    spare = kb.snapshots.spare(bound=[paths[0]], keep=2)
    assert {each.path for each in spare} == {paths[2], paths[3], paths[4]}
    assert {each.path for each in kb.snapshots.evict(bound=lambda: [paths[0]], keep=2)} == {
        paths[2],
        paths[3],
        paths[4],
    }
    assert {each.path for each in kb.snapshots.all()} == {paths[0], paths[1], paths[5]}


def test_a_snapshot_that_is_bound_while_it_is_evicted_stays(kb, revision):
    asked = []

    def bound() -> list[Path]:
        """The second answer comes when the lock is held: somebody bound the snapshot meanwhile."""
        asked.append(kb.snapshots.path(revision))
        return asked[1:]

    assert kb.snapshots.evict(bound=bound, keep=0) == []
    assert kb.snapshots.problem(revision) == ""


def test_a_snapshot_of_another_format_is_left_alone_and_evicted_like_any_other(kb, revision):
    ours = kb.snapshots.path(revision)
    other = ours.with_name(f"{revision}-00000000")
    shutil.copytree(ours, other)
    assert {each.path for each in kb.snapshots.all()} == {ours, other}
    assert kb.index(kb.commit(doc("new", "something new")), base=revision).how == "delta"
    assert {each.path for each in kb.snapshots.evict(bound=lambda: [ours], keep=0)} >= {other}
    assert not other.exists()


def test_a_copy_of_a_snapshot_verifies_and_can_be_sealed(kb, revision):
    target = kb.copied(revision, "copy")
    assert problem_of(target, revision=revision) == ""
    with kb.store(target) as store:
        store.seal(revision=revision, added=store.manifest.headers())
    assert problem_of(target, revision=revision) == ""


def test_a_source_that_is_gone_or_a_target_that_cannot_be_made_is_an_error(kb, revision):
    with pytest.raises(IndexFailed, match="it is not there"):
        snapshots.copy(kb.snapshots.root / "absent", kb.folder / "target")
    with pytest.raises(FileFailed, match="cannot be copied"):
        snapshots.copy(kb.snapshots.path(revision), kb.folder / "no" / "such" / "folder")


# -- locks of what is gone -------------------------------------------------------------------------


def test_the_locks_of_snapshots_that_are_gone_go_and_the_others_stay(kb, revision):
    path, gone = kb.snapshots.path(revision), kb.snapshots.root / "gone-12345678.lock"
    with kb.snapshots.reading(path):
        pass
    gone.touch()
    assert directories.lonely(kb.snapshots.root) == [gone]
    directories.remove_orphaned_lock(gone)
    directories.remove_orphaned_lock(path.with_name(path.name + ".lock"))
    assert [each.name for each in kb.snapshots.root.glob("*.lock")] == [f"{path.name}.lock"]
    assert directories.lonely(kb.snapshots.root / "absent") == []


def test_a_lock_that_somebody_holds_stays_though_its_snapshot_is_gone(kb):
    path = kb.snapshots.root / "gone-12345678"
    with kb.snapshots.reading(path):
        [lock] = directories.lonely(kb.snapshots.root)
        directories.remove_orphaned_lock(lock)
        assert lock.exists()
    with kb.snapshots.building() as folder:
        directories.remove_orphaned_lock(folder.with_name(folder.name + ".lock"))
        assert folder.with_name(folder.name + ".lock").exists()
    directories.remove_orphaned_lock(lock)
    assert not lock.exists()


def test_who_waited_for_a_lock_file_that_was_removed_holds_the_one_that_others_find(tmp_path):
    lock = tmp_path / "name.lock"
    body = (
        f"from vmrag_link import locks\nlock = Path({str(lock)!r})\nprint('waiting', flush=True)\n"
        "with locks.exclusive(lock, purpose='test', timeout=30):\n    print('held', flush=True); sys.stdin.read()"
    )
    with locks.exclusive(lock, purpose="remove it", timeout=0):
        waiter = child(body)
        assert said(waiter) == "waiting"
        time.sleep(0.1)
        lock.unlink()
    assert said(waiter) == "held"
    with pytest.raises(Busy), locks.exclusive(lock, purpose="test", timeout=0):
        pass
    end(waiter)
    with locks.exclusive(lock, purpose="test", timeout=0):
        pass
