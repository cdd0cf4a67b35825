"""Rows of the cache of vectors that are not what was stored."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.integration.test_embedding_cache import Notes
from tests.support.bits import flip
from vmrag_link.embedding.cache import EmbeddingCache, embed_texts
from vmrag_link.errors import EmbeddingFailed

DIMENSIONS = 64
VECTORS = {
    name: struct.pack("<64f", *[number + place / 100 for place in range(64)]) for number, name in enumerate("abcdef")
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "e.sqlite"


@pytest.fixture
def cache(path: Path) -> EmbeddingCache:
    cache = EmbeddingCache(path)
    cache.store_vectors("model", VECTORS)
    return cache


def found(cache: EmbeddingCache) -> dict[str, bytes]:
    return cache.read_vectors("model", list(VECTORS), dimensions=DIMENSIONS)


def test_vector_with_a_flipped_bit_is_absent_and_is_replaced(cache: EmbeddingCache, path: Path) -> None:
    content = path.read_bytes()
    at = content.index(VECTORS["c"])
    assert content.count(VECTORS["c"]) == 1
    flip(path, at + 100, 3)
    assert found(cache) == {name: vector for name, vector in VECTORS.items() if name != "c"}
    assert "1 damaged vector" in cache.find_damage()
    cache.store_vectors("model", {"c": VECTORS["c"]})
    assert (found(cache), cache.find_damage()) == (VECTORS, "")


def test_flipped_bit_in_the_file_never_changes_a_vector(cache: EmbeddingCache, path: Path) -> None:
    """Headers, schema, index and rows: what is found is what was stored, the rest is stored again,
    and nothing fails.
    """
    sound = path.read_bytes()
    for number in range(0, 8 * len(sound), 8 * len(sound) // 61):
        path.write_bytes(sound)
        flip(path, number // 8, number % 8)
        notes = Notes()
        seen = EmbeddingCache(path, progress=notes)
        vectors = found(seen)
        assert vectors.items() <= VECTORS.items()
        seen.store_vectors("model", VECTORS)
        assert found(seen) == VECTORS
        seen.prune(megabytes=1000, days=1)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_non_finite_vectors_are_not_cached_and_fail_embedding(tmp_path: Path, wrong: float) -> None:
    cache = EmbeddingCache(tmp_path / "e.sqlite")
    vector = struct.pack("<64f", wrong, *[0.0] * 63)
    cache.store_vectors("model", VECTORS | {"a": vector})
    assert "a" not in found(cache)

    class Broken:
        fingerprint, dimensions, local, name = "broken", DIMENSIONS, True, "broken"

        def embed(self, texts):
            return [vector for _ in texts]

    with pytest.raises(EmbeddingFailed):
        embed_texts(cache, Broken(), {"x": "a text"})


def test_rebuilt_cache_file_keeps_rows_with_a_valid_checksum(cache: EmbeddingCache, path: Path) -> None:
    flip(path, 68, 0)  # the number in the header that identifies the owner of the file
    notes = Notes()
    assert found(EmbeddingCache(path, progress=notes)) == VECTORS
    assert "6 undamaged vectors were kept" in notes.sentences[0]


def test_doctor_removes_only_corrupt_rows(cache: EmbeddingCache, path: Path) -> None:
    flip(path, path.read_bytes().index(VECTORS["d"]), 1)
    cache.repair()
    assert cache.find_damage() == ""
    assert found(cache) == {name: vector for name, vector in VECTORS.items() if name != "d"}
