"""Reciprocal rank fusion."""

from __future__ import annotations

from vmrag_link.retrieval.fusion import K, fuse


def test_what_several_rankings_place_high_comes_first():
    scores = fuse([["a", "b", "c"], ["c", "b", "d"]])
    assert max(scores, key=scores.__getitem__) == "c"
    assert scores["b"] == 2 / (K + 2)
    assert scores["a"] == 1 / (K + 1)
    assert scores["d"] == 1 / (K + 3)


def test_the_order_of_two_rankings_does_not_matter():
    one, other = [f"x{n}" for n in range(100)], [f"x{n}" for n in range(99, -1, -3)]
    assert fuse([one, other]) == fuse([other, one])


def test_nothing_ranked_gives_nothing():
    assert fuse([]) == {}
    assert fuse([[], ["a"]]) == {"a": 1 / (K + 1)}
