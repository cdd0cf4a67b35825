"""The cache of vectors on real files, with real processes."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.long import LONG
from tests.support.pace import slack
from vmrag_link.embedding import registry
from vmrag_link.embedding.cache import BATCH, EmbeddingCache, EmbeddingCounts, Excess, embed_texts
from vmrag_link.errors import FileFailed
from vmrag_link.models import content_hash
from vmrag_link.progress import Quiet, Task

ONE, OTHER = b"\1" * 16, b"\2" * 16


class Notes(Quiet):
    """Keeps what was noted and how far tasks came."""

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self.steps: list[int] = []

    def note(self, sentence: str) -> None:
        self.sentences.append(sentence)

    @contextlib.contextmanager
    def task(self, description: str, total: int) -> Iterator[Task]:
        class Counter:
            def advance(_self, steps: int = 1) -> None:  # noqa: N805
                self.steps.append(steps)

        yield Counter()


def test_stored_vectors_are_found_through_another_instance(tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path / "shared" / "e.sqlite")
    cache.store_vectors("model", {"a": ONE, "b": OTHER})
    second = EmbeddingCache(tmp_path / "shared" / "e.sqlite")
    assert second.read_vectors("model", ["b", "c", "a"], dimensions=4) == {"a": ONE, "b": OTHER}


def test_vectors_of_one_model_are_not_found_for_another(tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path / "e.sqlite")
    cache.store_vectors("model", {"a": ONE})
    assert cache.read_vectors("another", ["a"], dimensions=4) == {}


def test_vector_of_the_wrong_length_counts_as_absent_and_is_replaced(tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path / "e.sqlite")
    cache.store_vectors("model", {"a": ONE[:5]})
    assert cache.read_vectors("model", ["a"], dimensions=4) == {}
    cache.store_vectors("model", {"a": ONE})
    assert cache.read_vectors("model", ["a"], dimensions=4) == {"a": ONE}


def test_thousands_are_stored_and_found_at_once(tmp_path: Path) -> None:
    vectors = {f"{number}": number.to_bytes(16, "big") for number in range(5000)}
    cache = EmbeddingCache(tmp_path / "e.sqlite")
    cache.store_vectors("model", vectors)
    assert cache.read_vectors("model", [*vectors, "absent"], dimensions=4) == vectors
    assert cache.read_vectors("model", [], dimensions=4) == {}


def test_corrupt_cache_file_is_renamed_with_a_note(tmp_path: Path) -> None:
    path, notes = tmp_path / "e.sqlite", Notes()
    for number in (1, 2):
        path.write_bytes(b"not a database " * 100)
        cache = EmbeddingCache(path, progress=notes)
        cache.store_vectors("model", {"a": ONE})
        assert cache.read_vectors("model", ["a"], dimensions=4) == {"a": ONE}
        assert (tmp_path / f"e.sqlite.corrupt-{number}").read_bytes().startswith(b"not a database")
    assert ["corrupt-1" in notes.sentences[0], "corrupt-2" in notes.sentences[1]] == [True, True]


def test_database_of_another_program_is_set_aside_whole(tmp_path: Path) -> None:
    path, notes = tmp_path / "e.sqlite", Notes()
    with contextlib.closing(sqlite3.connect(path)) as theirs, theirs:
        theirs.execute("CREATE TABLE vectors (key, vector)")
    assert EmbeddingCache(path, progress=notes).read_vectors("model", ["a"], dimensions=4) == {}
    assert "another program" in notes.sentences[0]
    with contextlib.closing(sqlite3.connect(tmp_path / "e.sqlite.corrupt-1")) as kept:
        assert kept.execute("SELECT count(*) FROM vectors").fetchone() == (0,)


def test_empty_file_is_a_new_cache(tmp_path: Path) -> None:
    (tmp_path / "e.sqlite").touch()
    notes = Notes()
    cache = EmbeddingCache(tmp_path / "e.sqlite", progress=notes)
    cache.store_vectors("model", {"a": ONE})
    assert notes.sentences == []


def test_damage_deep_in_the_file_is_met_by_a_fresh_cache(tmp_path: Path) -> None:
    path, notes = tmp_path / "e.sqlite", Notes()
    vectors = {f"{number}": number.to_bytes(1024, "big") for number in range(500)}
    cache = EmbeddingCache(path)
    cache.store_vectors("model", vectors)
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(os.urandom(path.stat().st_size - 8192))
    cache = EmbeddingCache(path, progress=notes)
    second = EmbeddingCache(path, progress=notes)
    assert cache.read_vectors("model", list(vectors), dimensions=256) == {}
    cache.store_vectors("model", vectors)
    assert cache.read_vectors("model", list(vectors), dimensions=256) == vectors
    assert second.read_vectors("model", list(vectors), dimensions=256) in ({}, vectors)
    cache = EmbeddingCache(path, progress=notes)
    assert cache.read_vectors("model", list(vectors), dimensions=256) == vectors
    assert len(notes.sentences) == 1


def test_folder_in_the_place_of_the_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "e.sqlite").mkdir()
    with pytest.raises(FileFailed):
        EmbeddingCache(tmp_path / "e.sqlite").store_vectors("model", {"a": ONE})


WRITER = """
    import sys
    from pathlib import Path
    from vmrag_link.embedding.cache import EmbeddingCache
    path, name, batches = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    cache = EmbeddingCache(path)
    for batch in range(batches):
        cache.store_vectors("model", {f"{name}-{batch}-{n}": n.to_bytes(1024, "big") for n in range(50)})
        print(batch, flush=True)
"""


def writer(path: Path, name: str, batches: int) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", textwrap.dedent(WRITER), str(path), name, str(batches)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_several_processes_may_start_and_fill_one_cache_together(tmp_path: Path) -> None:
    path = tmp_path / "e.sqlite"
    writers = [writer(path, f"w{number}", 10) for number in range(4)]
    failures = [process.communicate(timeout=60)[1] for process in writers]
    assert failures == [""] * 4
    names = [f"w{number}-{batch}-{n}" for number in range(4) for batch in range(10) for n in range(50)]
    cache = EmbeddingCache(path)
    assert len(cache.read_vectors("model", names, dimensions=256)) == 2000


def test_killed_writer_loses_at_most_the_batch_it_was_at(tmp_path: Path) -> None:
    path, notes = tmp_path / "e.sqlite", Notes()
    process = writer(path, "w", 100_000)
    assert process.stdout
    result = [process.stdout.readline() for _ in range(5)]
    time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    cache = EmbeddingCache(path, progress=notes)
    names = [f"w-{int(batch)}-{n}" for batch in result for n in range(50)]
    assert len(cache.read_vectors("model", names, dimensions=256)) == 250
    cache.store_vectors("model", {"after": bytes(1024)})
    assert notes.sentences == []
    with contextlib.closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_only_texts_never_seen_before_are_embedded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmrag_link.embedding.cache.LOCAL_BATCH", BATCH)
    model, progress = registry.load_model("hash"), Notes()
    texts = {content_hash(text): text for text in (f"text number {number}" for number in range(BATCH + 10))}
    some = dict(list(texts.items())[:5])
    cache = EmbeddingCache(tmp_path / "e.sqlite")
    assert embed_texts(cache, model, some)[1] == EmbeddingCounts(embedded=5, cached=0)
    vectors, counts = embed_texts(cache, model, texts, progress)
    assert counts == EmbeddingCounts(embedded=BATCH + 5, cached=5)
    assert progress.steps == [BATCH, 5]
    assert vectors == dict(zip(texts, model.embed(list(texts.values())), strict=True))
    again = Notes()
    assert embed_texts(cache, model, texts, again) == (vectors, EmbeddingCounts(embedded=0, cached=BATCH + 10))
    assert again.steps == []


# -- size and age ----------------------------------------------------------------------------------


@pytest.fixture
def days(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets the clock so many days ahead of now."""
    now = time.time()

    def ahead(number: int) -> None:
        monkeypatch.setattr(time, "time", lambda: now + number * 86_400)

    return ahead


def large(name: str, number: int) -> dict[str, bytes]:
    """Vectors of 1 KiB."""
    return {f"{name}-{place}": place.to_bytes(1024, "big") for place in range(number)}


def test_prune_removes_vectors_not_used_for_days(tmp_path, days):
    path = tmp_path / "e.sqlite"
    cache, old, used = EmbeddingCache(path), large("old", 1000), large("used", 1000)
    cache.store_vectors("model", old)
    cache.store_vectors("model", used)
    days(50)
    assert cache.read_vectors("model", list(used), dimensions=256) == used
    days(100)
    assert cache.measure_excess(megabytes=0, days=0).number == 0
    assert cache.measure_excess(megabytes=0, days=100).number == 0
    planned = cache.measure_excess(megabytes=0, days=99)
    assert 1000 - 64 <= planned.number <= 1000  # a block of 64 may hold some of both
    before = path.stat().st_size
    result = cache.prune(megabytes=0, days=99)
    assert (result.number, result.bytes) == (planned.number, before - path.stat().st_size)
    assert result.bytes > 900_000
    assert cache.read_vectors("model", list(used), dimensions=256) == used
    assert len(cache.read_vectors("model", list(old), dimensions=256)) == 1000 - result.number
    assert cache.prune(megabytes=0, days=99).number == 0
    cache.store_vectors("model", old)
    assert cache.read_vectors("model", [*old, *used], dimensions=256) == old | used
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.sqlite", "e.sqlite.lock"]


def test_beyond_its_size_the_oldest_go_first(tmp_path, days):
    path = tmp_path / "e.sqlite"
    cache = EmbeddingCache(path)
    groups = [large(f"day-{day}", 640) for day in range(5)]
    for day, group in enumerate(groups):
        days(day)
        cache.store_vectors("model", group)
    assert cache.read_vectors("model", list(groups[0]), dimensions=256) == groups[0]  # the oldest is used again
    assert cache.prune(megabytes=100, days=0).number == 0
    cache.prune(megabytes=2, days=0)
    assert 1_500_000 < path.stat().st_size <= 2_000_000
    counts = [len(cache.read_vectors("model", list(group), dimensions=256)) for group in groups]
    assert counts[1] <= 64
    assert counts[0] > 600
    assert counts[4] > 0


def test_uses_are_noted_once_a_day(tmp_path, days):
    path = tmp_path / "e.sqlite"
    cache, vectors = EmbeddingCache(path), large("v", 300)
    cache.store_vectors("model", vectors)
    before = path.read_bytes()
    cache.read_vectors("model", list(vectors), dimensions=256)
    assert path.read_bytes() == before
    days(1)
    cache.read_vectors("model", list(vectors), dimensions=256)
    noted = path.read_bytes()
    assert noted != before
    cache.read_vectors("model", list(vectors), dimensions=256)
    assert path.read_bytes() == noted


def test_vectors_are_read_while_another_process_writes_the_cache(tmp_path, days):
    path, vectors = tmp_path / "e.sqlite", large("v", 300)
    cache = EmbeddingCache(path)
    cache.store_vectors("model", vectors)
    days(1)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        since = time.monotonic()
        assert cache.read_vectors("model", list(vectors), dimensions=256) == vectors
        assert time.monotonic() - since < 5 * slack()


def test_measuring_excess_creates_no_cache(tmp_path):
    cache = EmbeddingCache(tmp_path / "e.sqlite")
    assert cache.measure_excess(megabytes=1, days=1) == cache.prune(megabytes=1, days=1) == Excess()
    assert list(tmp_path.iterdir()) == []


PRUNER = """
    import sys, time
    from pathlib import Path
    from vmrag_link.embedding.cache import EmbeddingCache
    print("started", flush=True)
    EmbeddingCache(Path(sys.argv[1])).prune(megabytes=3, days=0)
"""


@pytest.mark.long
def test_killed_prune_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path, notes, vectors = tmp_path / "e.sqlite", Notes(), large("v", 6000)
    for number in range(0, 8, 1 if LONG else 2):
        EmbeddingCache(path).store_vectors("model", vectors)
        arguments = [sys.executable, "-c", textwrap.dedent(PRUNER), str(path)]
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        assert process.stdout
        assert process.stdout.readline() == "started\n"
        time.sleep(number * 0.008)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        result = EmbeddingCache(path, progress=notes).read_vectors("model", list(vectors), dimensions=256)
        assert len(result) == 6000 or 2000 < len(result) < 3000
        assert result.items() <= vectors.items()
    assert notes.sentences == []


def test_concurrent_pruning_loses_only_excess_vectors(tmp_path: Path) -> None:
    path, notes = tmp_path / "e.sqlite", Notes()
    writers = [writer(path, f"w{number}", 20) for number in range(2)]
    while any(process.poll() is None for process in writers):
        EmbeddingCache(path, progress=notes).prune(megabytes=1, days=0)
    assert [process.communicate(timeout=60)[1] for process in writers] == ["", ""]
    assert notes.sentences == []
    with contextlib.closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_damage_check_keeps_the_file_and_discarding_starts_again(tmp_path: Path) -> None:
    path, vectors = tmp_path / "e.sqlite", large("v", 2000)
    cache = EmbeddingCache(path)
    assert cache.find_damage() == ""
    assert not path.exists()
    cache.store_vectors("model", vectors)
    assert cache.find_damage() == ""
    sound = path.read_bytes()
    for content in (b"no database", sound[:-4096], sound[:40960] + b"\xff" * 4096 + sound[45056:]):
        path.write_bytes(content)
        assert str(path) in cache.find_damage()
        assert path.read_bytes() == content
    path.unlink()
    cache.store_vectors("model", vectors)
    assert (cache.find_damage(), len(cache.read_vectors("model", list(vectors), dimensions=256))) == ("", 2000)
    assert not list(tmp_path.glob("*.corrupt-*"))
