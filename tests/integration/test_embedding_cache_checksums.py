"""Rows of the cache of vectors that are not what was stored, and files of before there were
checksums.
"""

from __future__ import annotations

import contextlib
import sqlite3
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.test_embedding_cache import Notes
from tests.support.bits import flip
from vmrag_link.embedding.cache import EmbeddingCache
from vmrag_link.embedding.texts import Counts, vectors_for
from vmrag_link.errors import EmbeddingFailed

DIMENSIONS = 64
VECTORS = {
    name: struct.pack("<64f", *[number + place / 100 for place in range(64)]) for number, name in enumerate("abcdef")
}
OLD = "CREATE TABLE vectors (key BLOB NOT NULL UNIQUE, vector BLOB NOT NULL)"
OLD_STORE = "INSERT OR REPLACE INTO vectors (key, vector) VALUES (?, ?)"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "e.sqlite"


@pytest.fixture
def cache(path: Path) -> EmbeddingCache:
    cache = EmbeddingCache(path)
    cache.put("model", VECTORS)
    return cache


def found(cache: EmbeddingCache, **options: bool) -> dict[str, bytes]:
    return cache.get("model", list(VECTORS), dimensions=DIMENSIONS, **options)


def older(path: Path) -> None:
    """The file as a program without checksums made it."""
    EmbeddingCache(path).put("model", VECTORS)
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("ALTER TABLE vectors RENAME TO newer")
        database.execute(OLD)
        database.execute("INSERT INTO vectors SELECT key, vector FROM newer")
        database.execute("DROP TABLE newer")


@pytest.mark.parametrize("adopt", [False, True])
def test_a_vector_with_a_flipped_bit_is_absent_and_is_replaced(cache: EmbeddingCache, path: Path, adopt: bool) -> None:
    content = path.read_bytes()
    at = content.index(VECTORS["c"])
    assert content.count(VECTORS["c"]) == 1
    flip(path, at + 100, 3)
    assert found(cache, adopt=adopt) == {name: vector for name, vector in VECTORS.items() if name != "c"}
    assert "1 vector" in cache.damage()
    cache.put("model", {"c": VECTORS["c"]})
    assert (found(cache), cache.damage()) == (VECTORS, "")


def test_no_flipped_bit_in_the_file_makes_another_vector(cache: EmbeddingCache, path: Path) -> None:
    """Headers, schema, index and rows: what is found is what was stored, the rest is stored again,
    and nothing fails.
    """
    sound = path.read_bytes()
    for number in range(0, 8 * len(sound), 8 * len(sound) // 61):
        path.write_bytes(sound)
        flip(path, number // 8, number % 8)
        notes = Notes()
        seen = EmbeddingCache(path, progress=notes)
        there = found(seen, adopt=True)
        assert there.items() <= VECTORS.items()
        seen.put("model", VECTORS)
        assert found(seen) == VECTORS
        seen.prune(megabytes=1000, days=1)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_absent_and_no_model_may_answer_with_them(tmp_path: Path, wrong: float) -> None:
    cache = EmbeddingCache(tmp_path / "e.sqlite")
    vector = struct.pack("<64f", wrong, *[0.0] * 63)
    cache.put("model", VECTORS | {"a": vector})
    assert "a" not in found(cache)

    class Broken:
        fingerprint, dimensions, local, name = "broken", DIMENSIONS, True, "broken"

        def embed(self, texts):
            return [vector for _ in texts]

    with pytest.raises(EmbeddingFailed, match="no numbers"):
        vectors_for(cache, Broken(), {"x": "a text"})


def test_of_an_older_cache_what_was_paid_for_is_taken_over_and_what_was_made_here_is_made_again(path: Path) -> None:
    older(path)

    class Model:
        fingerprint, dimensions, name = "model", DIMENSIONS, "some"

        def __init__(self, *, local: bool) -> None:
            self.local = local

        def embed(self, texts):
            return [VECTORS[text] for text in texts]

    texts = {name: name for name in VECTORS}
    cache = EmbeddingCache(path)
    assert vectors_for(cache, Model(local=True), {"a": "a"})[1] == Counts(embedded=1, cached=0)
    assert vectors_for(cache, Model(local=False), texts) == (VECTORS, Counts(embedded=0, cached=6))
    assert found(cache) == VECTORS  # they prove themselves now
    with contextlib.closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM vectors WHERE checksum IS NULL").fetchone() == (0,)


def test_an_older_program_goes_on_with_the_file_and_what_it_stores_counts_as_older(
    cache: EmbeddingCache, path: Path
) -> None:
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        [key] = database.execute("SELECT key FROM vectors WHERE vector = ?", (VECTORS["b"],)).fetchone()
        database.execute(OLD_STORE, (key, VECTORS["a"]))
    assert found(cache) == {name: vector for name, vector in VECTORS.items() if name != "b"}
    assert found(cache, adopt=True) == VECTORS | {"b": VECTORS["a"]}


def test_several_processes_take_over_an_older_cache_together(path: Path) -> None:
    older(path)
    body = (
        "import sys\nfrom pathlib import Path\nfrom vmrag_link.embedding.cache import EmbeddingCache\n"
        f"cache = EmbeddingCache(Path({str(path)!r}))\nprint('ready', flush=True)\nsys.stdin.readline()\n"
        f"print(len(cache.get('model', list('abcdef'), dimensions={DIMENSIONS}, adopt=True)))"
    )
    others = [
        subprocess.Popen([sys.executable, "-c", body], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for other in others:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
    assert [other.communicate("go\n")[0].strip() for other in others] == ["6", "6", "6"]
    assert found(EmbeddingCache(path)) == VECTORS


def test_a_file_that_has_to_be_made_again_keeps_the_rows_that_prove_themselves(
    cache: EmbeddingCache, path: Path
) -> None:
    flip(path, 68, 0)  # the number in the header that says whose file it is
    notes = Notes()
    assert found(EmbeddingCache(path, progress=notes)) == VECTORS
    assert "6 vectors that prove themselves were kept" in notes.sentences[0]


def test_doctor_removes_only_the_rows_that_are_not_what_was_stored(cache: EmbeddingCache, path: Path) -> None:
    flip(path, path.read_bytes().index(VECTORS["d"]), 1)
    cache.mend()
    assert cache.damage() == ""
    assert found(cache) == {name: vector for name, vector in VECTORS.items() if name != "d"}
