"""One store of segments, and a view for each revision."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import knowledge
from tests.support.bits import flip
from tests.support.knowledge import Knowledge, child, collection, doc, end, said
from tests.support.long import LONG, examples
from vmrag_link.file_access import measure_size
from vmrag_link.index import draft, upkeep
from vmrag_link.index import view as views
from vmrag_link.index.reader import IndexReader
from vmrag_link.models import Chunking
from vmrag_link.retrieval.query import Mode, Query

kb = knowledge.kb

WORDS = [f"word{number}" for number in range(40)]
QUERIES = [
    *(Query(text, k=30, mode=mode) for mode in Mode for text in ("word1 word2 word3", "word7 word11", "nowhere")),
    Query("word5 word6", k=30, collections=("notes",)),
    Query("word5 word6", k=30, where={"chunk_index": {"$gt": 0}}, where_document={"$contains": "word1"}),
    Query("word9 snake_case", k=30, where={"even": True}),
]


def text(rng: random.Random) -> str:
    return " ".join(rng.choices([*WORDS, "snake_case"], k=rng.randrange(1, 260)))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few documents make several segments."""
    monkeypatch.setattr(draft, "SMALL_SEGMENT", 3)


def parts(kb: Knowledge, revision: str) -> list[str]:
    return [part.segment for part in views.read_view(kb.views.view_path(revision)).parts]


def segments(kb: Knowledge) -> set[str]:
    return {path.name for path in kb.views.segments.list_newest_first()}


def collect(kb: Knowledge) -> None:
    kb.views.segments.collect_garbage([kb.views.root])


def history(kb: Knowledge, rng: random.Random, revisions: int) -> Iterator[str]:
    """Revisions with their views, each derived from the one before. Documents come, go and change
    in two collections, one of which is cut otherwise now and then.
    """
    before = None
    for number in range(revisions):
        names = [f"d{rng.randrange(25)}" for _ in range(rng.randrange(1, 12))]
        documents = [
            doc(name, text(rng), collection=rng.choice(("guide", "notes")), metadata={"even": rng.random() < 0.5})
            for name in dict.fromkeys(names)
        ]
        keys = [(header.collection, header.doc_id) for header in kb.engine.read_headers(before)] if before else []
        put = {document.key for document in documents}
        gone = [key for key in rng.sample(keys, min(len(keys), rng.randrange(4))) if key not in put]
        sizes = rng.choice((400, 400, 400, 90))
        again = [collection(), collection("notes", chunking=Chunking(size=sizes, overlap=10))]
        revision = kb.commit(*documents, collections=again if number % 4 == 0 else (), remove=gone)
        kb.index(revision, base=before)
        before = revision
        yield revision


def grown(kb: Knowledge, rng: random.Random, revisions: int = 14) -> list[str]:
    """Revisions that each change some of many documents, and the settings of a collection once."""
    before = None
    made = []
    for number in range(revisions):
        changed = range(100) if before is None else rng.sample(range(100), 4)
        cut = [collection(), collection("notes", chunking=Chunking(size=90 if number < 5 else 400, overlap=10))]
        documents = [
            doc(f"d{item}", text(rng), collection="notes" if item < 10 else "guide", metadata={"even": item % 2 == 0})
            for item in changed
        ]
        revision = kb.commit(*documents, collections=cut if number in (0, 5) else ())
        kb.index(revision, base=before)
        made.append(revision)
        before = revision
    return made


@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
@pytest.mark.long
def test_any_split_of_documents_into_segments_gives_identical_ranking(small, tmp_path, seed):
    folder = tmp_path / str(seed)
    folder.mkdir()
    made = Knowledge(folder)
    try:
        seen = 0
        for number, revision in enumerate(history(made, random.Random(seed), 9)):
            fresh = folder / "fresh" / str(number)
            made.fresh(revision, fresh)
            assert made.answers(made.views.view_path(revision), QUERIES) == made.answers(fresh, QUERIES)
            held = views.read_view(made.views.view_path(revision))
            assert held.collections == views.read_view(fresh).collections
            seen = max(seen, len(held.parts))
            with IndexReader.open(made.views.view_path(revision)) as one, IndexReader.open(fresh) as other:
                assert one.read_headers() == other.read_headers()
                assert one.count_chunks_by_document() == other.count_chunks_by_document()
        assert seen > 1
    finally:
        made.close()
        shutil.rmtree(folder)


def test_change_of_another_collection_reorders_nothing(kb):
    rng = random.Random(3)
    rows = [doc(f"d{number}", text(rng)) for number in range(20)]
    first = kb.commit(*rows, doc("n", "word1", collection="notes"), collections=[collection(), collection("notes")])
    kb.index(first)
    others = [doc(f"n{number}", text(rng), collection="notes") for number in range(60)]
    second = kb.commit(*others)
    kb.index(second, base=first)
    alone = [
        Query(query.text, k=30, mode=query.mode, collections=("guide",))
        for query in QUERIES
        if query.collections is None
    ]
    assert kb.answers(kb.views.view_path(first), alone) == kb.answers(kb.views.view_path(second), alone)
    for query in QUERIES[:9]:
        long_query = Query(query.text, k=200, mode=query.mode)
        ours = [
            [
                (hit.doc_id, hit.chunk)
                for hit in kb.search(kb.views.view_path(at), long_query.text, k=200, mode=long_query.mode)
                if hit.collection == "guide"
            ]
            for at in (first, second)
        ]
        shared = [hit for hit in ours[0] if hit in set(ours[1])]
        assert [hit for hit in ours[1] if hit in set(ours[0])] == shared


def test_revision_adds_only_changes_and_the_way_back_adds_nothing(kb):
    first = kb.commit(
        *[doc(f"d{number}", "text " * 50 + str(number)) for number in range(300)], collections=[collection()]
    )
    kb.index(first)
    [base] = parts(kb, first)
    second = kb.commit(doc("d1", "other"), remove=[("guide", "d2")])
    kb.index(second, base=first)
    kept, added = parts(kb, second)
    assert kept == base
    root = kb.views.segments.root
    assert measure_size(root / added) < measure_size(root / base) / 5
    before = segments(kb)
    third = kb.commit(doc("d1", "text " * 50 + "1"), remove=[("guide", "d3")])
    kb.engine.move_branch(knowledge.BRANCH, first, expected=third)
    assert kb.index(first).how == "reused"
    assert segments(kb) == before


def test_removal_writes_no_segment(kb):
    first = kb.commit(*[doc(f"d{number}") for number in range(300)], collections=[collection()])
    kb.index(first)
    second = kb.commit(remove=[("guide", "d7")])
    kb.index(second, base=first)
    assert parts(kb, second) == parts(kb, first)
    assert kb.search(kb.views.view_path(second), "text", where={"source_id": "d7"}) == []
    assert len(kb.search(kb.views.view_path(first), "text", where={"source_id": "d7"})) == 1


def test_first_uncommitted_document_copies_nothing(kb):
    first = kb.commit(*[doc(f"d{number}") for number in range(300)], collections=[collection()])
    kb.index(first)
    working = kb.copied(first, "working")
    before = segments(kb)
    kb.write(doc("new"))
    kb.bring_working(working, first)
    [added] = segments(kb) - before
    held = views.read_view(working)
    assert [part.segment for part in held.parts] == [*parts(kb, first), added]
    assert held.unsynced == (added,)
    for number in range(5):  # each absorbs the one before, which no other view uses
        kb.write(doc(f"new{number}"))
        kb.bring_working(working, first)
    assert len(segments(kb) - before) == 1


def test_damaged_segment_is_built_again_alone(kb, small):
    rows = [doc(f"d{number}", f"word{number} text") for number in range(40)]
    first = kb.commit(*rows, collections=[collection(), collection("notes")])
    kb.index(first)
    second = kb.commit(*[doc(f"e{number}", f"word{number} more") for number in range(10)])
    kb.index(second, base=first)
    answers = kb.answers(kb.views.view_path(second), QUERIES)
    base, added = parts(kb, second)
    flip(kb.views.segments.root / added / "vectors-1.i8", 5, 1)
    views.require_verification(kb.views.view_path(second))
    assert "vectors-1.i8 is not what was written" in kb.views.find_problem(second)
    built = kb.index(second, base=second)
    assert (built.how, built.changes.added, built.changes.total) == ("delta", 10, 10)
    assert kb.views.find_problem(second) == ""
    assert parts(kb, second)[0] == base
    assert added not in parts(kb, second)
    assert kb.answers(kb.views.view_path(second), QUERIES) == answers
    assert kb.views.find_problem(first) == ""


@pytest.mark.parametrize("updates", [1, 2])
@pytest.mark.parametrize("discarded", [{"drop": ["notes"]}, {"remove": [("notes", "draft")]}], ids=["drop", "remove"])
def test_revision_keeps_no_text_of_collection_discarded_before_commit(kb, discarded, updates):
    first = kb.commit(*[doc(f"d{number}") for number in range(40)], collections=[collection()])
    kb.index(first)
    working = kb.copied(first, "working")
    kb.write(doc("new", "committed"), doc("draft", "discarded", collection="notes"), collections=[collection("notes")])
    kb.bring_working(working, first)
    kb.write(**discarded)
    if updates == 2:  # a query between the removal and the commit
        kb.bring_working(working, first)
    second = kb.commit()
    with kb.draft(working) as derived:
        kb.indexer.update_index(derived, second, base=first)
        derived.publish(kb.views.view_path(second), revision=second)
    texts = [path.read_bytes() for name in parts(kb, second) for path in (kb.views.segments.root / name).iterdir()]
    assert any(b"committed" in text for text in texts)
    assert not any(b"discarded" in text for text in texts)


# -- unused segments -------------------------------------------------------------------------------


def test_segments_that_no_view_counts_go_and_all_others_stay(kb, small):
    revisions = list(history(kb, random.Random(1), 6))
    working = kb.copied(revisions[-1], "working")
    kb.write(doc("uncommitted"))
    kb.bring_working(working, revisions[-1])
    for revision in revisions[:-1]:
        assert kb.views.remove_if_unused(kb.views.view_path(revision))
    kb.views.segments.collect_garbage([kb.views.root, working.parent])
    counted = {
        part.segment
        for folder in (kb.views.view_path(revisions[-1]), working)
        for part in views.read_view(folder).parts
    }
    assert segments(kb) == counted
    assert views.find_index_problem(working, revision=revisions[-1]) == ""


def test_segment_is_not_removed_before_its_view_is_published(kb):
    """A process that is stopped there, and one that is killed there."""
    revision = kb.commit(*[doc(f"d{number}") for number in range(20)], collections=[collection()])
    body = (
        f"from vmrag_link.index import draft\nkb = Knowledge(Path({str(kb.folder)!r}))\n"
        "def stop(*_): print('between', flush=True); sys.stdin.readline()\n"
        "sealing = draft.seal_view\ndraft.seal_view = lambda *given: (stop(), sealing(*given))\n"
        f"print(kb.index({revision!r}).how, flush=True)\n"
    )
    builder = child(body)
    assert said(builder) == "between"
    assert len(segments(kb)) == 1
    collect(kb)
    assert len(segments(kb)) == 1
    assert builder.stdin is not None
    builder.stdin.write("\n")
    builder.stdin.flush()
    assert said(builder) == "fresh"
    end(builder)
    assert kb.views.find_problem(revision) == ""
    kb.views.remove_if_unused(kb.views.view_path(revision))
    killed = child(body)
    assert said(killed) == "between"
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    collect(kb)
    assert segments(kb) == set()
    kb.views.remove_unfinished()
    kb.views.segments.remove_unfinished()
    assert kb.index(revision).how == "fresh"


def test_concurrent_builds_of_a_revision_leave_one_view(kb):
    revision = kb.commit(*[doc(f"d{number}") for number in range(40)], collections=[collection()])
    body = f"kb = Knowledge(Path({str(kb.folder)!r}))\nsys.stdin.readline()\nprint(kb.index({revision!r}).how, flush=True)\n"
    builders = [child(body), child(body)]
    for builder in builders:
        assert builder.stdin is not None
        builder.stdin.write("\n")
        builder.stdin.flush()
    assert {said(builder) for builder in builders} <= {"fresh", "reused"}
    for builder in builders:
        end(builder)
    assert kb.views.find_problem(revision) == ""
    collect(kb)
    assert segments(kb) == set(parts(kb, revision))


# -- upkeep ----------------------------------------------------------------------------------------


def test_rewriting_keeps_all_answers_and_frees_duplicates(kb, monkeypatch):
    monkeypatch.setattr(draft, "SMALL_SEGMENT", 12)
    revisions = grown(kb, random.Random(5))
    answers = {revision: kb.answers(kb.views.view_path(revision), QUERIES) for revision in revisions}
    collect(kb)
    before, ages = (
        measure_size(kb.views.segments.root),
        {revision: kb.views.view_path(revision).stat().st_mtime_ns for revision in revisions},
    )
    assert upkeep.rewrite_segments(kb.views)
    collect(kb)
    assert measure_size(kb.views.segments.root) < 0.75 * before
    for revision in revisions:
        assert kb.views.find_problem(revision) == ""
        assert kb.answers(kb.views.view_path(revision), QUERIES) == answers[revision]
        assert kb.views.view_path(revision).stat().st_mtime_ns == ages[revision]
    assert upkeep.rewrite_segments(kb.views) == []
    following = kb.commit(doc("d1", "word1 after it"))
    kb.index(following, base=revisions[-1])
    kb.fresh(following, kb.folder / "fresh" / "following")
    assert kb.answers(kb.views.view_path(following), QUERIES) == kb.answers(kb.folder / "fresh" / "following", QUERIES)


def test_view_in_use_is_not_rewritten_and_keeps_its_segments(kb, monkeypatch):
    monkeypatch.setattr(draft, "SMALL_SEGMENT", 12)
    revisions = grown(kb, random.Random(5))
    held = next(revision for revision in reversed(revisions) if len(parts(kb, revision)) > 1)
    before, answers = parts(kb, held), kb.answers(kb.views.view_path(held), QUERIES)
    with kb.views.lock_for_reading(kb.views.view_path(held)):
        changed = upkeep.rewrite_segments(kb.views)
        collect(kb)
        assert kb.views.view_path(held) not in changed
        assert changed
        assert parts(kb, held) == before
        assert kb.answers(kb.views.view_path(held), QUERIES) == answers
    upkeep.rewrite_segments(kb.views)
    collect(kb)
    assert kb.answers(kb.views.view_path(held), QUERIES) == answers


def test_kill_while_segments_are_rewritten_loses_no_view(kb, monkeypatch):
    monkeypatch.setattr(draft, "SMALL_SEGMENT", 12)
    revisions = grown(kb, random.Random(5))
    answers = {revision: kb.answers(kb.views.view_path(revision), QUERIES) for revision in revisions}
    for stop_at in (0, 1, 3) if LONG else (1,):
        body = (
            f"from vmrag_link.index import upkeep\nkb = Knowledge(Path({str(kb.folder)!r}))\nseen = 0\n"
            f"replacing = upkeep._replace_view\ndef stop(*given):\n    global seen\n    if seen == {stop_at}:\n"
            "        print('here', flush=True); sys.stdin.readline()\n    seen += 1\n    return replacing(*given)\n"
            "upkeep._replace_view = stop\nupkeep.rewrite_segments(kb.views)\nprint('done', flush=True)\n"
        )
        process = child(body)
        stopped = said(process)
        process.send_signal(signal.SIGKILL)
        process.wait()
        collect(kb)
        kb.views.remove_unfinished()
        for revision in revisions:
            assert kb.views.find_problem(revision) == ""
            assert kb.answers(kb.views.view_path(revision), QUERIES) == answers[revision]
        if stopped == "done":
            break
    upkeep.rewrite_segments(kb.views)
    collect(kb)
    assert {revision: kb.answers(kb.views.view_path(revision), QUERIES) for revision in revisions} == answers


def test_views_that_share_little_are_not_joined(kb, small):
    """Each would have more dead slots than chunks, and the next view would take them apart."""
    before = None
    for number in range(4):
        rows = [doc(f"d{item}", f"word{item} of {number}") for item in range(30)]
        revision = kb.commit(*rows, collections=[collection()] if before is None else ())
        kb.index(revision)
        before = revision
    segments_before = segments(kb)
    assert upkeep.rewrite_segments(kb.views) == []
    assert segments(kb) == segments_before


def test_view_replaced_during_segment_rewrite_stays_unchanged(kb, monkeypatch):
    monkeypatch.setattr(draft, "SMALL_SEGMENT", 12)
    revisions = grown(kb, random.Random(5))
    replacing, rebuilt = upkeep._replace_view, []

    def rebuild_first(kept, path, before, view):
        if not rebuilt:
            shutil.rmtree(path)
            kb.index(path.name.rpartition("-")[0])  # from nothing
            rebuilt.append((path, views.read_view(path)))
        return replacing(kept, path, before, view)

    monkeypatch.setattr(upkeep, "_replace_view", rebuild_first)
    changed = upkeep.rewrite_segments(kb.views)
    [(path, made)] = rebuilt
    assert path not in changed
    assert views.read_view(path) == made
    collect(kb)
    assert all(kb.views.find_problem(revision) == "" for revision in revisions)


def test_view_that_does_not_verify_is_left_out_of_a_rewriting(kb, monkeypatch):
    monkeypatch.setattr(draft, "SMALL_SEGMENT", 12)
    revisions = grown(kb, random.Random(5))
    alone = parts(kb, revisions[3])[-1]
    shutil.rmtree(kb.views.segments.root / alone)
    broken = [revision for revision in revisions if alone in parts(kb, revision)]
    changed = upkeep.rewrite_segments(kb.views)
    assert changed
    assert not {kb.views.view_path(item) for item in broken}.intersection(changed)
    assert all(kb.views.find_problem(revision) == "" for revision in revisions if revision not in broken)


# -- how much stays --------------------------------------------------------------------------------


def test_unbound_views_with_small_segments_stay(kb):
    revisions = []
    for number in range(4):
        revisions.append(
            kb.commit(doc(f"d{number}", f"{number} " * 3_000), collections=[collection()][: 1 - number] or ())
        )
        kb.index(revisions[-1])  # from nothing: no view shares a segment with another one
        at = 1_000_000_000 + number
        os.utime(kb.views.view_path(revisions[-1]), (at, at))
    bound = kb.views.view_path(revisions[0])
    sizes = [sum(measure_size(kb.views.segments.root / name) for name in parts(kb, revision)) for revision in revisions]
    spare = kb.views.list_spare(bound=[bound], keep_bytes=sizes[3] + sizes[2])
    assert spare == [kb.views.view_path(revisions[1])]
    assert kb.views.evict_spare(bound=lambda: [bound], keep_bytes=0) == [
        kb.views.view_path(revision) for revision in reversed(revisions[1:])
    ]
    collect(kb)
    assert segments(kb) == set(parts(kb, revisions[0]))


def test_view_that_shares_its_segments_with_a_bound_one_takes_nothing(kb):
    first = kb.commit(*[doc(f"d{number}") for number in range(20)], collections=[collection()])
    kb.index(first)
    second = kb.commit(remove=[("guide", "d1")])
    kb.index(second, base=first)
    assert kb.views.list_spare(bound=[kb.views.view_path(second)], keep_bytes=0) == []
