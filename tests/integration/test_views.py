"""Views and segments that several processes share."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.support import knowledge
from tests.support.knowledge import Knowledge, child, collection, doc, end, said
from vmrag_link import locks
from vmrag_link.errors import Busy, FileFailed, IndexFailed
from vmrag_link.index import directories, draft, flat_files, view, views
from vmrag_link.index.view import find_index_problem
from vmrag_link.index.views import list_segments

kb = knowledge.kb


@pytest.fixture
def revision(kb: Knowledge) -> str:
    made = kb.commit(*[doc(f"d{n}", f"text number {n}") for n in range(20)], collections=[collection()])
    kb.index(made)
    return made


def shelf(kb: Knowledge) -> str:
    """Code that opens the same views in a child."""
    return f"shelf = Views(Path({str(kb.views.root)!r}))\n"


def segments(kb: Knowledge, revision: str) -> list[Path]:
    """List the segments of the view of a revision, in its order."""
    return [kb.views.segments.root / part.segment for part in view.read_view(kb.views.view_path(revision)).parts]


def building(kb: Knowledge) -> list[str]:
    return [path.name for path in kb.views.root.iterdir() if path.name.startswith(directories.BUILDING_PREFIX)]


def provide(kb: Knowledge, revision: str) -> str:
    """Return how the view of a revision was provided, in turn with other processes."""
    with kb.views.hold_turn(revision, timeout=60):
        return kb.index(revision).how


def test_finding_a_usable_view_of_that_name_is_success(kb, revision):
    before = kb.views.view_path(revision).stat().st_ino
    with kb.views.temporary_folder() as folder:
        kb.fresh(revision, folder)
        assert kb.views.publish(folder, revision) == kb.views.view_path(revision)
    assert kb.views.view_path(revision).stat().st_ino == before
    assert building(kb) == []


@pytest.mark.parametrize("broken", ["the view", "its segment"])
def test_broken_view_is_replaced(kb, revision, broken):
    place = (
        kb.views.view_path(revision) / view.VIEW_FILE
        if broken == "the view"
        else segments(kb, revision)[0] / flat_files.MANIFEST_FILE
    )
    place.write_bytes(b"garbage")
    assert kb.views.find_problem(revision)
    assert kb.index(revision).how == "fresh"
    assert kb.views.find_problem(revision) == ""
    assert building(kb) == []


def test_broken_view_in_use_raises_index_failed(kb, revision):
    path = kb.views.view_path(revision)
    reader = child(
        shelf(kb)
        + f"with shelf.lock_for_reading(Path({str(path)!r})):\n    print('reading', flush=True); sys.stdin.read()"
    )
    assert said(reader) == "reading"
    (segments(kb, revision)[0] / "words-1.idx").unlink()
    with pytest.raises(IndexFailed):
        kb.index(revision)
    assert building(kb) == []
    end(reader)
    assert kb.index(revision).how == "fresh"


def test_view_in_use_and_its_segments_are_not_removed(kb, revision):
    path = kb.views.view_path(revision)
    reader = child(
        shelf(kb)
        + f"with shelf.lock_for_reading(Path({str(path)!r})):\n    print('reading', flush=True); sys.stdin.read()"
    )
    assert said(reader) == "reading"
    assert kb.views.remove_if_unused(path) is False
    assert kb.views.evict_spare(bound=list, keep_bytes=0) == []
    assert kb.views.segments.collect_garbage([kb.views.root]) == []
    assert kb.views.find_problem(revision) == ""
    end(reader)
    assert kb.views.remove_if_unused(path) is True
    assert kb.views.find_problem(revision) == "it does not exist"
    assert kb.views.remove_if_unused(path) is True  # gone already


def test_killed_builder_is_swept_and_one_at_work_is_left_alone(kb, revision):
    body = shelf(kb) + (
        "with shelf.temporary_folder() as folder:\n    folder.mkdir(); (folder / 'half').write_text('x')\n"
        "    print(folder, flush=True); sys.stdin.read()"
    )
    killed, alive = child(body), child(body)
    gone, kept = Path(said(killed)), Path(said(alive))
    assert kb.views.remove_unfinished() == []
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert kb.views.remove_unfinished() == [gone]
    assert (kept / "half").exists()
    end(alive)
    assert building(kb) == []
    assert kb.views.find_problem(revision) == ""


def test_process_that_waits_for_its_turn_finds_the_view_finished(kb, monkeypatch):
    monkeypatch.setattr(views, "TURN_SECONDS", 60)
    revision = kb.commit(doc("a", "a text"), collections=[collection()])
    builder = child(
        shelf(kb) + f"with shelf.hold_turn({revision!r}, timeout=0):\n    print('mine', flush=True); sys.stdin.read()"
    )
    assert said(builder) == "mine"
    waiting = threading.Thread(target=lambda: ways.append(provide(kb, revision)))
    ways: list[str] = []
    waiting.start()
    with kb.views.temporary_folder() as folder:
        kb.fresh(revision, folder)
        kb.views.publish(folder, revision)
    assert ways == []
    end(builder)
    waiting.join()
    assert ways == ["reused"]
    assert building(kb) == []


@pytest.mark.parametrize("builder", ["killed", "stopped"])
def test_view_is_built_if_the_process_before_does_not_finish_it(kb, monkeypatch, builder):
    monkeypatch.setattr(views, "TURN_SECONDS", 60 if builder == "killed" else 0.1)
    revision = kb.commit(doc("a", "a text"), collections=[collection()])
    process = child(
        shelf(kb) + f"with shelf.hold_turn({revision!r}, timeout=0):\n    print('mine', flush=True); sys.stdin.read()"
    )
    assert said(process) == "mine"
    process.send_signal(signal.SIGKILL if builder == "killed" else signal.SIGSTOP)
    assert provide(kb, revision) == "fresh"
    process.kill()
    process.wait()


def test_command_without_patience_builds_next_to_another_process(kb, monkeypatch):
    monkeypatch.setattr(views, "TURN_SECONDS", 3600)
    revision = kb.commit(doc("a", "a text"), collections=[collection()])
    builder = child(
        shelf(kb) + f"with shelf.hold_turn({revision!r}, timeout=0):\n    print('mine', flush=True); sys.stdin.read()"
    )
    assert said(builder) == "mine"
    with kb.views.hold_turn(revision, timeout=0):  # as in hooks
        assert kb.index(revision).how == "fresh"
    end(builder)


def test_two_processes_that_sweep_at_once_do_not_disturb_each_other(kb, revision):
    def litter(number: int) -> None:
        for place in range(30):
            (kb.views.root / f"{directories.BUILDING_PREFIX}{number}-{place}" / "deep").mkdir(parents=True)

    litter(0)
    sweepers = [
        child(
            shelf(kb)
            + "sys.stdin.readline()\nfor _ in range(40): shelf.remove_unfinished(); shelf.list_views()\nprint('done', flush=True)"
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
    kb.views.remove_unfinished()
    assert building(kb) == []


def test_eviction_keeps_bound_and_recently_used_views_within_the_limit(kb, revision):
    paths = [kb.views.view_path(revision)]
    before = revision
    for number in range(5):
        after = kb.commit(doc("edited", str(number)))
        paths.append(kb.index(after, base=before).path)
        before = after
    for age, path in enumerate(reversed(paths)):
        os.utime(path, ns=(0, 10**18 - age * 10**9))
    kb.views.mark_used(paths[1])
    size = [sum(list_segments(path).values()) for path in paths]
    assert sum(map(len, map(list_segments, paths))) == len(set().union(*map(list_segments, paths))), "each has its own"
    for less in (1, 0):
        enough = size[1] + size[5] - less
        stay = {paths[0], paths[1]} if less else {paths[0], paths[1], paths[5]}
        assert {*kb.views.list_spare(bound=[paths[0]], keep_bytes=enough)} == {*paths} - stay
    assert {*kb.views.evict_spare(bound=lambda: [paths[0]], keep_bytes=size[1] + size[5])} == {
        paths[2],
        paths[3],
        paths[4],
    }
    assert {file.path for file in kb.views.list_views()} == {paths[0], paths[1], paths[5]}


def test_spare_with_shared_segments_takes_no_bytes(kb, revision):
    removed = kb.commit(remove=[("guide", "d3")])
    spare = kb.index(removed, base=revision).path
    assert segments(kb, removed) == segments(kb, revision)
    assert kb.views.evict_spare(bound=lambda: [kb.views.view_path(revision)], keep_bytes=0) == []
    assert kb.views.evict_spare(bound=list, keep_bytes=0) == [spare, kb.views.view_path(revision)]


def test_segments_that_spares_share_with_each_other_take_their_bytes_once(kb, revision):
    removed = kb.index(kb.commit(remove=[("guide", "d3")]), base=revision).path
    spares = {removed, kb.views.view_path(revision)}
    assert list_segments(removed) == list_segments(kb.views.view_path(revision))
    size = sum(list_segments(removed).values())
    assert kb.views.list_spare(bound=[], keep_bytes=size) == []
    assert {*kb.views.list_spare(bound=[], keep_bytes=size - 1)} == spares


def test_view_that_is_bound_while_it_is_evicted_stays(kb, revision):
    requests = []

    def bound() -> list[Path]:
        """Return another answer the second time, when the lock is held: another process has bound
        the view.
        """
        requests.append(kb.views.view_path(revision))
        return requests[1:]

    assert kb.views.evict_spare(bound=bound, keep_bytes=0) == []
    assert requests[1:]
    assert kb.views.find_problem(revision) == ""


def test_view_of_another_format_and_its_segments_stay_untouched(kb, revision):
    ours = kb.views.view_path(revision)
    other = ours.with_name(f"{revision}-00000000")
    shutil.copytree(ours, other)
    theirs = kb.views.segments.root / "abc-00000000"
    shutil.copytree(segments(kb, revision)[0], theirs)
    assert {file.path for file in kb.views.list_views()} == {ours}
    assert kb.index(kb.commit(doc("new", "something new")), base=revision).how == "delta"
    assert other not in kb.views.evict_spare(bound=lambda: [ours], keep_bytes=0)
    kb.views.segments.collect_garbage([kb.views.root])
    assert other.is_dir()
    assert theirs.is_dir()


def test_copy_of_a_view_verifies_and_can_be_copied(kb, revision):
    target = kb.copied(revision, "copy")
    assert find_index_problem(target, revision=revision) == ""
    with kb.draft(target) as changing:
        changing.publish(target, revision=revision)
    assert find_index_problem(target, revision=revision) == ""
    assert view.read_view(target) == view.read_view(kb.views.view_path(revision))


def test_missing_source_or_impossible_target_of_view_is_an_error(kb, revision):
    with pytest.raises(IndexFailed):
        view.read_view(kb.views.root / "absent")
    with pytest.raises(FileFailed):
        directories.copy_tree(kb.views.view_path(revision), kb.folder / "no" / "such" / "folder")


# -- segments that views share ---------------------------------------------------------------------


@pytest.fixture
def apart(monkeypatch) -> None:
    """No segment is so small that the next one takes it in."""
    monkeypatch.setattr(draft, "SMALL_SEGMENT", 0)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "proven.json"}


@pytest.mark.usefixtures("apart")
def test_derived_view_shares_unchanged_segments_of_its_base(kb, revision):
    [whole] = segments(kb, revision)
    before = contents(whole)
    later = kb.commit(doc("d1", "another text"), doc("new", "new"), remove=[("guide", "d2")])
    assert kb.index(later, base=revision).how == "delta"
    [shared, added] = segments(kb, later)
    assert shared == whole
    assert contents(whole) == before
    assert (
        view.read_view(kb.views.view_path(later)).count_totals(),
        view.read_view(kb.views.view_path(revision)).count_totals(),
    ) == (
        (20, 20),
        (20, 20),
    )
    assert [part.documents for part in view.read_view(kb.views.view_path(later)).parts] == [18, 2]
    assert kb.views.remove_if_unused(kb.views.view_path(revision))
    assert kb.views.segments.collect_garbage([kb.views.root]) == []
    assert kb.views.find_problem(later) == ""
    assert added.is_dir()


@pytest.mark.usefixtures("apart")
def test_segments_that_no_view_counts_are_removed_wherever_the_views_lie(kb, revision):
    later = kb.commit(doc("new", "new"))
    kb.index(later, base=revision)
    [whole, added] = segments(kb, later)
    copied = kb.copied(later, "elsewhere")
    for head in (revision, later):
        assert kb.views.remove_if_unused(kb.views.view_path(head))
    roots = [kb.views.root, copied.parent, kb.folder / "absent"]
    assert kb.views.segments.collect_garbage(roots) == []
    assert {*kb.views.segments.list_spare(roots, without=[copied])} == {whole, added}
    assert find_index_problem(copied, revision=later) == ""
    assert {*kb.views.segments.collect_garbage([kb.views.root])} == {whole, added}
    assert kb.views.segments.list_newest_first() == []
    assert find_index_problem(copied, revision=later) != ""


def test_segment_is_not_removed_while_a_view_is_derived(kb, revision):
    body = shelf(kb) + "with shelf.segments.pause_collection():\n    print('making', flush=True); sys.stdin.read()"
    maker = child(body)
    assert said(maker) == "making"
    assert kb.views.remove_if_unused(kb.views.view_path(revision))
    assert len(kb.views.segments.list_spare([kb.views.root])) == 1
    assert kb.views.segments.collect_garbage([kb.views.root]) == []
    end(maker)
    assert len(kb.views.segments.collect_garbage([kb.views.root])) == 1


@pytest.mark.usefixtures("apart")
def test_only_documents_of_a_damaged_segment_are_indexed_again(kb, revision):
    later = kb.commit(doc("d1", "another text"), doc("new", "new"))
    kb.index(later, base=revision)
    [whole, added] = segments(kb, later)
    (added / "words-1.idx").write_bytes(b"garbage")
    assert "words-1.idx" in kb.views.find_problem(later)
    assert kb.views.find_problem(revision) == "", "it does not count what is damaged"
    built = kb.index(later, base=later)
    assert (built.how, built.changes.added, built.chunks.added) == ("delta", 2, 2)
    assert kb.views.find_problem(later) == ""
    assert whole in segments(kb, later)
    assert added not in segments(kb, later)
    (whole / "vectors-1.i8").unlink()
    assert kb.views.find_problem(later) != ""
    assert kb.views.find_problem(revision) != ""
    assert kb.index(later, base=later).changes.added == 19


# -- locks of what is gone -------------------------------------------------------------------------


def test_locks_of_views_that_are_gone_go_and_the_others_stay(kb, revision):
    path, gone = kb.views.view_path(revision), kb.views.root / "gone-12345678.lock"
    with kb.views.lock_for_reading(path):
        pass
    gone.touch()
    assert directories.list_orphaned_files(kb.views.root) == [gone]
    directories.remove_orphaned_lock(gone)
    directories.remove_orphaned_lock(path.with_name(path.name + ".lock"))
    assert [path.name for path in kb.views.root.glob("*.lock")] == [f"{path.name}.lock"]
    assert directories.list_orphaned_files(kb.views.root / "absent") == []


def test_held_lock_is_kept_without_its_view(kb):
    path = kb.views.root / "gone-12345678"
    with kb.views.lock_for_reading(path):
        [lock] = directories.list_orphaned_files(kb.views.root)
        directories.remove_orphaned_lock(lock)
        assert lock.exists()
    with kb.views.temporary_folder() as folder:
        directories.remove_orphaned_lock(folder.with_name(folder.name + ".lock"))
        assert folder.with_name(folder.name + ".lock").exists()
    directories.remove_orphaned_lock(lock)
    assert not lock.exists()


def test_lock_is_held_on_the_file_that_others_find(tmp_path):
    lock = tmp_path / "name.lock"
    body = (
        f"from vmrag_link import locks\nlock = Path({str(lock)!r})\nprint('waiting', flush=True)\n"
        "with locks.hold_exclusive(lock, purpose='test', timeout=30):\n    print('held', flush=True); sys.stdin.read()"
    )
    with locks.hold_exclusive(lock, purpose="remove it", timeout=0):
        waiter = child(body)
        assert said(waiter) == "waiting"
        time.sleep(0.1)
        lock.unlink()
    assert said(waiter) == "held"
    with pytest.raises(Busy), locks.hold_exclusive(lock, purpose="test", timeout=0):
        pass
    end(waiter)
    with locks.hold_exclusive(lock, purpose="test", timeout=0):
        pass
