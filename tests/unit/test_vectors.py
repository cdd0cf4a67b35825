"""Whole-number vectors and their exact scores."""

from __future__ import annotations

import itertools
import math
import mmap
import operator
import random
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import simsimd
from hypothesis import given
from hypothesis import strategies as st

from vmrag_link.index import flat_files, keywords
from vmrag_link.retrieval import vectors as exact_vectors
from vmrag_link.retrieval.vectors import DEAD_SCORE, ExactVectors, VectorPiece


def floats(*numbers: float) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


def signed(*numbers: int) -> bytes:
    return struct.pack(f"{len(numbers)}b", *numbers)


def piece(
    folder: Path, rows: Sequence[bytes], *, segment: int = 0, number: int = 1, dead: Sequence[int] = ()
) -> VectorPiece:
    """Return the piece of a view for a collection, the `number`th, in its `segment`th segment."""
    (place := folder / str(segment)).mkdir()
    flat_files.append_vectors(place, number, b"".join(rows))
    bits = sum(1 << slot for slot in dead).to_bytes((len(rows) + 7) // 8, "little") if dead else b""
    return VectorPiece(
        keywords.pack_row(number, 0, segment),
        flat_files.map_file(place / flat_files.vectors_name(number)),
        len(rows),
        bits,
    )


def written(folder: Path, rows: Sequence[bytes], dimensions: int, dead: Sequence[int] = ()) -> ExactVectors:
    return ExactVectors([piece(folder, rows, dead=dead)], dimensions=dimensions)


def row(slot: int, segment: int = 0, number: int = 1) -> int:
    return keywords.pack_row(number, slot, segment)


def in_first(scores: dict[int, int]) -> dict[int, int]:
    """The scores by row, of rows that are given by their slots in the first segment."""
    return {row(slot): score for slot, score in scores.items()}


def test_unit_vectors_become_whole_numbers_and_large_ones_are_clipped():
    assert flat_files.quantise(floats(0.0, 0.1, -0.1, 1.0, -1.0)) == signed(0, 32, -32, 127, -127)


def test_halves_are_rounded_as_numpy_rounds_them():
    values = [number / 4096 for number in range(-1600, 1600)]
    expected = np.clip(np.rint(np.array(values, dtype=np.float32).astype(np.float64) * flat_files.SCALE), -127, 127)
    assert flat_files.quantise(floats(*values)) == expected.astype(np.int8).tobytes()


@pytest.mark.parametrize("numpy", [np, None], ids=["numpy", "no numpy"])
def test_many_vectors_are_rounded_as_few_are(monkeypatch, numpy):
    dice = random.Random(2)
    few = [floats(*(dice.gauss(0, 0.1 * number) for _ in range(10_000))) for number in range(1, 25)]
    assert max(map(len, few)) < flat_files.NUMPY_BYTES < len(b"".join(few))
    monkeypatch.setitem(sys.modules, "numpy", numpy)
    assert flat_files.quantise(b"".join(few)) == b"".join(map(flat_files.quantise, few))


def test_rows_are_appended_and_replaced_by_slot(tmp_path):
    flat_files.append_vectors(tmp_path, 1, b"aaaabbbb")
    flat_files.append_vectors(tmp_path, 1, b"")
    flat_files.append_vectors(tmp_path, 1, b"cccc")
    assert (tmp_path / flat_files.vectors_name(1)).read_bytes() == b"aaaabbbbcccc"
    assert [flat_files.read_size(tmp_path / flat_files.vectors_name(number)) for number in (1, 2)] == [12, 0]
    flat_files.replace_vectors(tmp_path, 1, {2: b"CCCC", 0: b"AAAA"})
    assert (tmp_path / flat_files.vectors_name(1)).read_bytes() == b"AAAAbbbbCCCC"


CAPABILITIES = ("sapphire", "turin", "genoa", "ice", "skylake", "haswell", "sve_i8", "neon_i8", "sve", "neon")
"""Kernels of simsimd, the best first. Without all of them it computes serially."""


@pytest.fixture(params=["", *CAPABILITIES, "numpy"])
def kernel(request, monkeypatch) -> Iterator[str]:
    """Compute without the kernels up to this one, or by numpy."""
    exact_vectors._load_kernel.cache_clear()
    if request.param == "numpy":
        monkeypatch.setitem(sys.modules, "simsimd", None)
        yield request.param
        exact_vectors._load_kernel.cache_clear()
        return
    disabled = [
        name
        for name in CAPABILITIES[: CAPABILITIES.index(request.param) + 1 if request.param else 0]
        if simsimd.get_capabilities().get(name)
    ]
    for name in disabled:
        simsimd.disable_capability(name)
    yield request.param
    for name in disabled:
        simsimd.enable_capability(name)


@pytest.mark.parametrize(("rows", "dimensions"), [(1, 3), (50, 256), (20, 257), (20, 384), (20, 1041), (5, 4096)])
def test_scores_are_exact_with_every_kernel(tmp_path, kernel, rows, dimensions):
    dice = random.Random(rows)
    table = [[dice.choice([-127, 127, dice.randint(-127, 127)]) for _ in range(dimensions)] for _ in range(rows)]
    table[0] = [127] * dimensions
    exact = written(tmp_path, [signed(*row) for row in table], dimensions)
    for query in (table[0], table[-1], [-127] * dimensions, [-128] * dimensions):
        expected = [sum(a * b for a, b in zip(row, query, strict=True)) for row in table]
        assert exact.score_slots(signed(*query)).tolist() == expected
        assert exact.score_rows(signed(*query), [row(number) for number in range(rows)]) == expected


@given(data=st.data(), dimensions=st.integers(1, 700))
def test_scores_equal_the_products_of_whole_numbers(tmp_path_factory, data, dimensions):
    vector = st.binary(min_size=dimensions, max_size=dimensions)
    rows, query = data.draw(st.lists(vector, min_size=1, max_size=5)), data.draw(vector)
    exact = ExactVectors([VectorPiece(row(0), b"".join(rows), len(rows), b"")], dimensions=dimensions)
    numbers = [memoryview(row).cast("b") for row in rows]
    expected = [sum(map(operator.mul, number, memoryview(query).cast("b"))) for number in numbers]
    assert exact.score_slots(query).tolist() == expected


def test_blocks_of_numpy_leave_no_row_out(tmp_path, monkeypatch):
    exact_vectors._load_kernel.cache_clear()
    monkeypatch.setitem(sys.modules, "simsimd", None)
    rows = [signed(number % 127, 1) for number in range(exact_vectors._BLOCK * 2 + 3)]
    scores = written(tmp_path, rows, 2).score_slots(signed(1, 0))
    exact_vectors._load_kernel.cache_clear()
    assert scores.tolist() == [number % 127 for number in range(len(rows))]


@pytest.mark.parametrize("many", [0, exact_vectors.NUMPY_SCORES], ids=["numpy", "heap"])
def test_best_are_the_same_however_they_are_selected(tmp_path, monkeypatch, many):
    monkeypatch.setattr(exact_vectors, "NUMPY_SCORES", many)
    values = [random.Random(4).choice((3, 5, 9, 7)) for _ in range(400)]
    exact = written(tmp_path, [signed(value) for value in values], 1, dead=[1, 4])
    ranked = sorted((value for slot, value in enumerate(values) if slot not in (1, 4)), reverse=True)
    for depth in (1, 20, 399, 400, 500):
        lowest = ranked[min(depth, len(ranked)) - 1]
        expected = {slot: value for slot, value in enumerate(values) if value >= lowest and slot not in (1, 4)}
        assert exact.select_best(signed(1), depth) == in_first(expected)


def test_best_come_with_all_that_tie_with_the_last(tmp_path):
    exact = written(tmp_path, [signed(number) for number in (5, 3, 9, 3, 1, 3)], 1)
    assert exact.select_best(signed(1), 3) == in_first({0: 5, 1: 3, 2: 9, 3: 3, 5: 3})
    assert exact.select_best(signed(1), 1) == in_first({2: 9})
    assert len(exact.select_best(signed(1), 6)) == len(exact.select_best(signed(1), 600)) == 6


def test_dead_and_unrequested_slots_are_never_returned(tmp_path):
    exact = written(tmp_path, [signed(number) for number in (5, 3, 9, 3)], 1, dead=[2])
    assert exact.select_best(signed(1), 2) == in_first({0: 5, 1: 3, 3: 3})
    assert exact.select_best(signed(1), 4) == in_first({0: 5, 1: 3, 3: 3})
    assert exact.select_best(signed(1), 2, among=[row(3)]) == in_first({3: 3})
    assert exact.select_best(signed(1), 2, among=[row(2)]) == {}
    assert exact.select_best(signed(1), 2, among=[]) == {}


def test_every_bit_of_the_dead_is_that_of_its_slot(tmp_path):
    dead = [0, 7, 8, 15, 17]
    exact = written(tmp_path, [signed(slot) for slot in range(18)], 1, dead=dead)
    assert exact.select_best(signed(1), 18) == in_first({slot: slot for slot in range(18) if slot not in dead})


def test_absent_and_dead_rows_give_nothing(tmp_path):
    none = ExactVectors([], dimensions=4)
    assert none.select_best(signed(1, 1, 1, 1), 3) == none.select_best(signed(1, 1, 1, 1), 3, among=[]) == {}
    assert written(tmp_path, [signed(1)], 1, dead=[0]).select_best(signed(1), 3) == {}


def test_large_files_are_mapped_small_files_read_and_both_survive_removal(tmp_path, monkeypatch):
    for large in (3, 4):
        monkeypatch.setattr(flat_files, "MAPPED_BYTES", large)
        flat_files.append_vectors(tmp_path, large, signed(5, -3, 9))
        path = tmp_path / flat_files.vectors_name(large)
        content = flat_files.map_file(path)
        path.unlink()
        assert isinstance(content, mmap.mmap if large == 3 else bytes)
        exact = ExactVectors([VectorPiece(row(0), content, 3, b"")], dimensions=1)
        assert exact.select_best(signed(1), 3) == in_first({0: 5, 1: -3, 2: 9})


# -- several segments


@pytest.fixture
def segments(tmp_path: Path) -> ExactVectors:
    """A collection in the segments 0, 2 and 5 of a view, in each with a number of its own."""
    first = piece(tmp_path, [signed(5, 1), signed(3, 2)], segment=0, number=1)
    second = piece(tmp_path, [signed(9, 3), signed(3, 4), signed(8, 5)], segment=2, number=7, dead=[2])
    third = piece(tmp_path, [signed(7, 6)], segment=5, number=2)
    return ExactVectors([first, second, third], dimensions=2)


def test_best_of_several_segments_have_their_rows(segments):
    every = {row(0): 5, row(1): 3, row(0, 2, 7): 9, row(1, 2, 7): 3, row(0, 5, 2): 7}
    assert segments.score_slots(signed(1, 0)).tolist() == [5, 3, 9, 3, DEAD_SCORE, 7]
    assert segments.select_best(signed(1, 0), 6) == segments.select_best(signed(1, 0), 60) == every
    assert segments.select_best(signed(1, 0), 2) == {row(0, 2, 7): 9, row(0, 5, 2): 7}
    assert segments.select_best(signed(1, 0), 4) == every


def test_requested_rows_are_found_in_their_segments_in_order(segments):
    rows = [row(0, 5, 2), row(1, 2, 7), row(0), row(0, 2, 7), row(1)]
    assert segments.score_rows(signed(0, 1), rows) == [6, 4, 1, 3, 2]
    assert segments.score_rows(signed(0, 1), []) == []
    assert segments.select_best(signed(1, 0), 9, among=rows[:2]) == {row(0, 5, 2): 7, row(1, 2, 7): 3}
    assert segments.select_best(signed(1, 0), 1, among=rows[1:3]) == {row(0): 5}
    assert segments.select_best(signed(1, 0), 9, among=[row(2, 2, 7)]) == {}
    expected = [(7 * 1 + 6 * 2) / math.sqrt((49 + 36) * 5), (5 * 1 + 1 * 2) / math.sqrt((25 + 1) * 5)]
    assert segments.compute_cosines(signed(1, 2), [rows[0], rows[2]]) == pytest.approx(expected, abs=1e-15)
    mean = (12 * 1 + 7 * 2) / math.sqrt((144 + 49) * 5)
    assert segments.compute_mean_cosine(signed(1, 2), [rows[0], rows[2]]) == pytest.approx(mean, abs=1e-15)


def test_how_rows_are_shared_out_to_segments_does_not_show(tmp_path):
    dice = random.Random(7)
    table = [signed(*(dice.randint(-127, 127) for _ in range(3))) for _ in range(500)]
    query = signed(100, -3, 55)
    (whole_folder := tmp_path / "whole").mkdir()
    whole = written(whole_folder, table, 3).score_slots(query)
    cuts = [0, 1, 102, 103, len(table)]
    pieces = [
        piece(tmp_path, table[start:stop], segment=number)
        for number, (start, stop) in enumerate(itertools.pairwise(cuts))
    ]
    assert ExactVectors(pieces, dimensions=3).score_slots(query) == whole


# -- rounding


@given(st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=300))
def test_components_equal_rounding_and_clipping_one_by_one(numbers):
    expected = [max(-flat_files.LIMIT, min(flat_files.LIMIT, round(flat_files.SCALE * number))) for number in numbers]
    assert flat_files.quantise(floats(*numbers)) == signed(*expected)


@pytest.mark.parametrize(
    "edge", [127, -127, 127.49, -127.49, 127.5, -127.5, 128, -128, 129, -129, 255, -255, 317, -317]
)
def test_oversized_component_is_clipped_without_changing_others(edge):
    whole = max(-flat_files.LIMIT, min(flat_files.LIMIT, round(edge)))
    assert flat_files.quantise(floats(0.1, edge / flat_files.SCALE, -0.1)) == signed(32, whole, -32)


# -- float32 ---------------------------------------------------------------------------------------


def held(folder: Path, slots: Iterable[int]) -> dict[int, bytes]:
    """The vectors of three numbers that the file holds for these slots."""
    path = folder / flat_files.floats_name(1)
    return flat_files.find_floats(path.read_bytes() if path.exists() else b"", slots, dimensions=3)


def test_vector_is_only_at_its_place(tmp_path):
    one, other = floats(1.0, 0.0, 0.0), floats(0.0, 0.6, -0.8)
    assert held(tmp_path, range(9)) == {}
    flat_files.write_floats(tmp_path, 1, {7: one})
    flat_files.write_floats(tmp_path, 1, {2: other})
    assert held(tmp_path, range(9)) == {2: other, 7: one}
    assert held(tmp_path, [0, 7]) == {7: one}
    mapped = flat_files.map_file(tmp_path / flat_files.floats_name(1))
    assert flat_files.find_floats(mapped, range(9), dimensions=3) == {2: other, 7: one}
    assert [flat_files.read_size(tmp_path / flat_files.floats_name(number)) for number in (1, 2)] == [
        8 * 3 * flat_files.FLOAT32,
        0,
    ]


def test_single_given_vector_takes_the_space_of_one(tmp_path):
    flat_files.write_floats(tmp_path, 1, {100_000: floats(*[0.1] * 100)})
    assert (tmp_path / flat_files.floats_name(1)).stat().st_blocks * 512 < 100_000
