"""Whole-number vectors and their exact scores."""

from __future__ import annotations

import random
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmrag_link.index import flat, vectors
from vmrag_link.index import floats as stored
from vmrag_link.retrieval.exact import BLOCK, EXACT_IN_FLOAT32, ExactVectors


def floats(*numbers: float) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


def signed(*numbers: int) -> bytes:
    return struct.pack(f"{len(numbers)}b", *numbers)


def written(folder: Path, rows: list[bytes], dimensions: int, dead: list[int] | None = None) -> ExactVectors:
    vectors.append(folder, 1, b"".join(rows), slots=0, dimensions=dimensions)
    return ExactVectors(folder / vectors.file_name(1), slots=len(rows), dimensions=dimensions, dead=dead or [])


def test_unit_vectors_become_whole_numbers_and_large_ones_are_clipped():
    assert vectors.quantise(floats(0.0, 0.1, -0.1, 1.0, -1.0)) == signed(0, 32, -32, 127, -127)


def test_halves_are_rounded_as_numpy_rounds_them():
    values = [number / 4096 for number in range(-1600, 1600)]
    expected = np.clip(np.rint(np.array(values, dtype=np.float32).astype(np.float64) * vectors.SCALE), -127, 127)
    assert vectors.quantise(floats(*values)) == expected.astype(np.int8).tobytes()


@pytest.mark.parametrize("numpy", [np, None], ids=["numpy", "no numpy"])
def test_many_vectors_are_rounded_as_few_are(monkeypatch, numpy):
    dice = random.Random(2)
    few = [floats(*(dice.gauss(0, 0.1 * number) for _ in range(10_000))) for number in range(1, 25)]
    assert max(map(len, few)) < vectors.MANY < len(b"".join(few))
    monkeypatch.setitem(sys.modules, "numpy", numpy)
    assert vectors.quantise(b"".join(few)) == b"".join(map(vectors.quantise, few))


def test_rows_are_appended_and_what_a_killed_process_left_behind_is_overwritten(tmp_path):
    vectors.append(tmp_path, 1, b"aaaabbbb", slots=0, dimensions=4)
    vectors.append(tmp_path, 1, b"lost" * 3, slots=2, dimensions=4)
    vectors.append(tmp_path, 1, b"cccc", slots=2, dimensions=4)
    assert (tmp_path / vectors.file_name(1)).read_bytes() == b"aaaabbbbcccc"
    assert [flat.size(tmp_path / vectors.file_name(number)) for number in (1, 2)] == [12, 0]


@pytest.mark.parametrize(("rows", "dimensions"), [(1, 3), (50, 256), (20, EXACT_IN_FLOAT32), (20, 1536)])
def test_scores_are_exact_at_every_size(tmp_path, rows, dimensions):
    dice = random.Random(rows)
    table = [[dice.choice([-127, 127, dice.randint(-127, 127)]) for _ in range(dimensions)] for _ in range(rows)]
    table[0] = [127] * dimensions
    exact = written(tmp_path, [signed(*row) for row in table], dimensions)
    for query in (table[0], table[-1], [-127] * dimensions):
        expected = [sum(a * b for a, b in zip(row, query, strict=True)) for row in table]
        assert exact.scores(signed(*query)).astype(np.int64).tolist() == expected


def test_blocks_leave_no_row_out(tmp_path):
    rows = [signed(number % 127, 1) for number in range(BLOCK * 2 + 3)]
    scores = written(tmp_path, rows, 2).scores(signed(1, 0))
    assert scores.astype(int).tolist() == [number % 127 for number in range(len(rows))]


def test_the_best_come_with_all_that_tie_with_the_last(tmp_path):
    exact = written(tmp_path, [signed(each) for each in (5, 3, 9, 3, 1, 3)], 1)
    assert sorted(exact.best(signed(1), 3)) == [(0, 5), (1, 3), (2, 9), (3, 3), (5, 3)]
    assert sorted(exact.best(signed(1), 1)) == [(2, 9)]
    assert len(exact.best(signed(1), 6)) == len(exact.best(signed(1), 600)) == 6


def test_dead_slots_and_those_not_asked_for_never_come(tmp_path):
    exact = written(tmp_path, [signed(each) for each in (5, 3, 9, 3)], 1, dead=[2])
    assert sorted(exact.best(signed(1), 2)) == [(0, 5), (1, 3), (3, 3)]
    assert sorted(exact.best(signed(1), 4)) == [(0, 5), (1, 3), (3, 3)]
    assert exact.best(signed(1), 2, among=[3]) == [(3, 3)]
    assert exact.best(signed(1), 2, among=[2]) == []
    assert exact.best(signed(1), 2, among=[]) == []


def test_no_rows_and_only_dead_rows_give_nothing(tmp_path):
    none = ExactVectors(tmp_path / "absent", slots=0, dimensions=4, dead=[])
    assert none.best(signed(1, 1, 1, 1), 3) == []
    assert written(tmp_path, [signed(1)], 1, dead=[0]).best(signed(1), 3) == []


@given(st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=300))
def test_any_components_become_what_rounding_and_clipping_one_by_one_gives(numbers):
    expected = [max(-vectors.LIMIT, min(vectors.LIMIT, round(vectors.SCALE * number))) for number in numbers]
    assert vectors.quantise(floats(*numbers)) == signed(*expected)


@pytest.mark.parametrize(
    "edge", [127, -127, 127.49, -127.49, 127.5, -127.5, 128, -128, 129, -129, 255, -255, 317, -317]
)
def test_one_component_beyond_the_limit_is_clipped_and_leaves_its_neighbours_alone(edge):
    whole = max(-vectors.LIMIT, min(vectors.LIMIT, round(edge)))
    assert vectors.quantise(floats(0.1, edge / vectors.SCALE, -0.1)) == signed(32, whole, -32)


# -- float32 ---------------------------------------------------------------------------------------


def test_a_vector_is_there_where_it_was_written_and_nowhere_else(tmp_path):
    one, other = floats(1.0, 0.0, 0.0), floats(0.0, 0.6, -0.8)
    assert stored.read(tmp_path, 1, range(9), dimensions=3) == {}
    stored.write(tmp_path, 1, {7: one})
    stored.write(tmp_path, 1, {2: other})
    assert stored.read(tmp_path, 1, range(9), dimensions=3) == {2: other, 7: one}
    assert stored.read(tmp_path, 1, [0, 7], dimensions=3) == {7: one}
    assert [flat.size(tmp_path / stored.file_name(number)) for number in (1, 2)] == [8 * 3 * stored.FLOAT32, 0]


def test_one_given_vector_among_many_takes_the_space_of_one(tmp_path):
    stored.write(tmp_path, 1, {100_000: floats(*[0.1] * 100)})
    assert (tmp_path / stored.file_name(1)).stat().st_blocks * 512 < 100_000
