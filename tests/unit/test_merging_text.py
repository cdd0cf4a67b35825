"""Texts merge by line: against git on random triples, and what must hold of every merge."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.long import LONG, examples
from vmrag_link.merging.text import Hunk, Labels, Markers, MergedText, find_matching_blocks, merge_texts, split_lines
from vmrag_link.ops.resolve.worktree_texts import count_git_conflicts

TRIPLES = 5000 if LONG else 800  # git merges each, too
RECORDED = Path(__file__).parents[1] / "data" / "merged-texts.jsonl"
LINES = st.lists(st.sampled_from("abcdef"), max_size=12).map(lambda letters: "".join(f"{line}\n" for line in letters))
ANY = st.text(st.sampled_from("ab<=>| \r\n\x0b\u2028"), max_size=30)


def merged(base: str, ours: str, theirs: str) -> str:
    texts = merge_texts(base, ours, theirs)
    assert not texts.hunks
    return texts.resolve_text({})


def triple(dice: random.Random, words: int) -> tuple[str, str, str]:
    """A page of 5 to 25 lines of so many different ones, edited one to three times on each side."""
    base = [f"line {dice.randrange(words)}\n" for _ in range(dice.randint(5, 25))]
    return "".join(base), edited(dice, base, words), edited(dice, base, words)


def edited(dice: random.Random, lines: list[str], words: int) -> str:
    lines = list(lines)
    for _ in range(dice.randint(1, 3)):
        at, end = sorted((dice.randint(0, len(lines)), dice.randint(0, len(lines))))
        end = min(end, at + 2)
        new = [f"new {dice.randrange(words)}\n" for _ in range(dice.randint(1, 2))]
        lines[at:end] = dice.choice([new, new, []]) if end > at else new
    return "".join(lines)


def by_git(folder: Path, base: str, ours: str, theirs: str) -> str | None:
    """Return the result of `git merge-file`; None for a conflict."""
    for name, text in zip("bot", (base, ours, theirs), strict=True):
        (folder / name).write_text(text)
    result = subprocess.run(
        ["git", "merge-file", "-p", "o", "b", "t"], cwd=folder, capture_output=True, text=True, check=False
    )
    return result.stdout if result.returncode == 0 else None


@pytest.mark.parametrize("words", [1000, 60], ids=["few lines repeat", "lines repeat"])
def test_merge_agrees_with_git_on_clean_merges(tmp_path, words):
    """Clean merges are equal, without exception.

    Conflicts differ in one of a hundred at most: if lines repeat, git matches other lines.
    """
    dice = random.Random(words)
    clean = differ = 0
    for _ in range(TRIPLES // 2):
        texts = triple(dice, words)
        expected, result = by_git(tmp_path, *texts), merge_texts(*texts)
        if expected is not None and not result.hunks:
            assert result.resolve_text({}) == expected, texts
            clean += 1
        differ += (expected is None) != bool(result.hunks)
    assert clean > TRIPLES // 8
    assert differ <= TRIPLES // 200


def test_texts_merge_as_the_recorded_revisions_did():
    """A merged revision is made again on other machines and must be the same there. These results,
    parts and names of hunks, were recorded from version 0.1.0, which merged by another library.
    """
    for line in RECORDED.read_text().splitlines():
        content = json.loads(line)
        parts = [part if isinstance(part, str) else Hunk(*part) for part in content.pop("parts")]
        assert [*merge_texts(**content).parts] == parts


@settings(max_examples=examples(600), deadline=None)
@given(LINES, LINES, LINES)
def test_swapped_sides_give_the_same_text_and_the_same_hunks(base, ours, theirs):
    one, other = merge_texts(base, ours, theirs), merge_texts(base, theirs, ours)
    assert [hunk.key for hunk in one.hunks] == [hunk.key for hunk in other.hunks]
    assert [(hunk.ours, hunk.theirs) for hunk in one.hunks] == [(hunk.theirs, hunk.ours) for hunk in other.hunks]
    texts = {hunk.key: "" for hunk in one.hunks}
    assert one.resolve_text(texts) == other.resolve_text(texts)


@settings(max_examples=examples(600), deadline=None)
@given(ANY, ANY, ANY)
def test_merged_text_contains_only_lines_of_its_sides(base, ours, theirs):
    """In particular no marker, whatever ends a line elsewhere."""
    texts = merge_texts(base, ours, theirs)
    lines = set(split_lines(ours)) | set(split_lines(theirs))
    for part in texts.parts:
        if isinstance(part, str):
            assert set(split_lines(part)) <= lines
    for take in ("ours", "theirs"):
        whole = texts.resolve_text({hunk.key: hunk.get_side(take) for hunk in texts.hunks})
        assert set(split_lines(whole)) <= lines


@settings(max_examples=examples(600), deadline=None)
@given(LINES, LINES)
def test_side_that_changed_nothing_takes_the_other(base, changed):
    assert merged(base, base, changed) == merged(base, changed, base) == merged(base, changed, changed) == changed


@settings(max_examples=examples(600), deadline=None)
@given(
    st.lists(st.sampled_from("abcdef"), unique=True), st.lists(st.integers(0, 17), min_size=3, max_size=3, unique=True)
)
def test_three_branches_that_do_not_meet_merge_in_any_order(start, places):
    """Each changes one line of its own in a page of different lines, with others between."""
    base = [f"{number} {'x'.join(start)}\n" for number in range(54)]
    one, two, three = ("".join([*base[: 3 * at], f"by {at}\n", *base[3 * at + 1 :]]) for at in places)
    page = "".join(base)
    assert merged(page, merged(page, one, two), three) == merged(page, one, merged(page, two, three))


@settings(max_examples=examples(600), deadline=None)
@given(LINES, LINES)
def test_matching_blocks_are_equal_and_ordered(first, second):
    a, b = split_lines(first), split_lines(second)
    blocks = find_matching_blocks(a, b)
    assert blocks[-1] == (len(a), len(b), 0)
    for i, j, n in blocks:
        assert a[i : i + n] == b[j : j + n]
    for (i, j, n), (later_i, later_j, _) in itertools.pairwise(blocks):
        assert n
        assert i + n <= later_i
        assert j + n <= later_j
        assert (i + n, j + n) != (later_i, later_j) or not blocks[-1][2]


def test_many_equal_lines_are_given_up_by_their_number():
    """A hostile page of one line a million times must not take minutes."""
    left_lines, right_lines = ["x\n"] * 3000, ["y\n", *["x\n"] * 2500, "z\n"]
    assert find_matching_blocks(["a\n", *left_lines], ["b\n", *right_lines]) == [(3001, 2503, 0)]


def test_matching_between_unique_lines_is_abandoned_above_a_work_limit():
    """difflib takes minutes for 8 KB of them: it finds one pair at a time, and looks at all the
    others for each.
    """
    left_lines, right_lines = ([line for n in range(1000) for line in ("x\n", f"{side}{n}\n")] for side in "ab")
    a, b = [*left_lines, "anchor\n", *left_lines, "end\n"], [*right_lines, "anchor\n", *right_lines, "end\n"]
    blocks = find_matching_blocks(a, b)
    assert {(2000, 2000, 1), (4001, 4001, 1)} <= {*blocks}
    assert sum(n for _, _, n in blocks) < 20


def test_paragraphs_far_apart_merge_and_the_same_paragraph_has_one_hunk():
    base = "# Title\n\nOne.\n\nTwo.\n\nThree.\n"
    ours, theirs = base.replace("One", "1"), base.replace("Three", "3")
    assert merged(base, ours, theirs) == "# Title\n\n1.\n\nTwo.\n\n3.\n"
    [hunk] = merge_texts(base, ours, base.replace("One", "I").replace("Three", "3")).hunks
    assert (hunk.line, hunk.base, hunk.ours, hunk.theirs) == (3, "One.\n", "1.\n", "I.\n")


def test_hunk_excludes_equal_ends_of_both_sides():
    [hunk] = merge_texts("", "# Title\nours\nend\n", "# Title\ntheirs\nend\n").hunks
    assert (hunk.line, hunk.ours, hunk.theirs) == (2, "ours\n", "theirs\n")


def test_equal_hunks_of_a_text_have_names_of_their_own():
    page = [f"{number}\n" for number in range(9)]
    both = [merge_texts(*("".join([text, *page, text]) for text in ("old\n", "ours\n", "theirs\n"))).hunks]
    [first, second] = both[0]
    assert second.key == f"{first.key}-2"


def test_hunk_keeps_both_texts_separate_without_final_newline():
    texts = merge_texts("a", "b", "c")
    assert resolved(texts, "union") == "b\nc"
    assert resolved(texts, "ours") == "b"


def resolved(merged: MergedText, take: str) -> str:
    return merged.resolve_text({hunk.key: hunk.get_side(take) for hunk in merged.hunks})


def test_carriage_return_belongs_to_its_line():
    base = "a\r\nb\r\nc\r\n"
    assert merged(base, base.replace("a", "A"), base.replace("c", "C")) == "A\r\nb\r\nC\r\n"


# -- markers ---------------------------------------------------------------------------------------


def test_sides_and_base_are_between_markers_with_final_newlines():
    markers = Markers(Labels("main", "feature"))
    assert markers.format_conflict("a", "b\r\n") == "<<<<<<< main\na\n=======\nb\r\n>>>>>>> feature\n"
    assert (
        markers.format_conflict("", "b\n", base="0") == "<<<<<<< main\n||||||| base\n0\n=======\nb\n>>>>>>> feature\n"
    )


@settings(max_examples=examples(600), deadline=None)
@given(ANY, ANY, ANY)
def test_own_markers_are_found_only_in_written_conflicts(base, ours, theirs):
    markers = Markers.from_texts((base, ours, theirs), Labels(ours="m"))
    assert all(markers.find_marker(revision, middle=True) is None for revision in (base, ours, theirs))
    written = markers.format_conflict(ours, theirs, base=base)
    assert markers.find_marker(written) == (1, written.partition("\n")[0])
    for line in ("|", "=", ">"):
        rest = written[written.index(line * markers.size) :]
        assert markers.find_marker(rest, middle=True)[0] == 1


def test_line_of_a_megabyte_makes_no_marker_as_long():
    assert Markers.from_texts(("<" * 1_000_000, f"{'=' * 50} ")).size == 51


def test_conflicts_that_git_marked_are_counted_in_one_look():
    whole = "<<<<<<< ours\n=======\n>>>>>>> theirs\n"
    assert count_git_conflicts(f"=======\n{whole}a\n<<<<<<< {whole}<<<<<<< \n") == 2
    assert count_git_conflicts("<<<<<<< \n" * 1_000_000) == 0


def test_line_under_a_heading_is_a_marker_only_after_an_editor():
    markers = Markers.from_texts(("a", "b"))
    assert markers.find_marker("Install\n=======\n") is None
    assert markers.find_marker("Install\n=======\n", middle=True) == (2, "=======")
    longer = Markers.from_texts(("Install\n=======\n", "b"))
    assert longer.find_marker("Install\n=======\n", middle=True) is None
