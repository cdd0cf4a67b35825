"""Changes of an index: pure, and equal from a difference and from all rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmrag_link.errors import MassDeletion
from vmrag_link.models import ChangeCounts, Chunking, Collection, DocumentHeader
from vmrag_link.sync import plan as planning

NAMES = ["guide", "notes", "old"]
Key = tuple[str, str]


def header(key: Key, content: str = "x") -> DocumentHeader:
    return DocumentHeader(*key, "", content, "{}")


def collections(*names: str, **fields) -> dict[str, Collection]:
    return {name: Collection(name, **fields) for name in names}


def test_equal_states_need_nothing():
    rows = {("guide", "a"): header(("guide", "a"))}
    plan = planning.make_plan(collections("guide"), collections("guide"), rows, rows)
    assert plan.is_empty
    assert plan.changes == ChangeCounts()


def test_documents_are_added_replaced_and_removed():
    before = {("guide", name): header(("guide", name)) for name in "abc"}
    after = {
        ("guide", "a"): before["guide", "a"],
        ("guide", "b"): header(("guide", "b"), "y"),
        ("guide", "d"): header(("guide", "d")),
    }
    plan = planning.make_plan(collections("guide"), collections("guide"), before, after)
    assert (plan.remove, plan.add) == ((("guide", "b"), ("guide", "c")), (("guide", "b"), ("guide", "d")))
    assert plan.changes == ChangeCounts(added=1, modified=1, removed=1)


@pytest.mark.parametrize(
    "field", [{"distance": "l2"}, {"chunking": Chunking(size=9)}, {"embedding_model": "new"}], ids=str
)
def test_collection_with_other_index_settings_is_rebuilt(field):
    rows = {("guide", "a"): header(("guide", "a"))}
    expected = collections("guide", **field)
    plan = planning.make_plan(collections("guide"), expected, rows, rows)
    assert (plan.drop, plan.create, plan.remove, plan.add) == (("guide",), (expected["guide"],), (), (("guide", "a"),))
    assert plan.changes == ChangeCounts()


def test_collection_with_other_metadata_is_only_redefined():
    expected = collections("guide", metadata='{"about":"x"}')
    plan = planning.make_plan(collections("guide"), expected, {}, {})
    assert (plan.drop, plan.create, plan.redefine) == ((), (), (expected["guide"],))


def test_documents_of_a_dropped_collection_go_with_it():
    rows = {("old", "a"): header(("old", "a"))}
    plan = planning.make_plan(collections("old"), {}, rows, {})
    assert (plan.drop, plan.remove, plan.changes) == (("old",), (), ChangeCounts(removed=1))


KEYS = st.tuples(st.sampled_from(NAMES), st.sampled_from("abcd"))
KINDS = st.fixed_dictionaries({}, optional={name: st.sampled_from([50, 60]) for name in NAMES})
CONTENTS = st.dictionaries(KEYS, st.sampled_from("xyz"))
State = tuple[dict[str, Collection], dict[Key, DocumentHeader]]


def state(kinds: dict[str, int], contents: dict[Key, str]) -> State:
    rows = {name: Collection(name, chunking=Chunking(size=size, overlap=0)) for name, size in kinds.items()}
    return rows, {key: header(key, text) for key, text in contents.items() if key[0] in rows}


@given(st.builds(state, KINDS, CONTENTS), st.builds(state, KINDS, CONTENTS), st.builds(state, KINDS, CONTENTS))
def test_difference_and_all_rows_give_the_same_plan(base: State, index: State, target: State):
    """`index` is the current content: `base` with its touched documents.

    The difference is that of `base` and `target`.
    """
    (held, present), (expected, rows) = index, target
    keys = base[1].keys() | present.keys() | rows.keys()
    touched = {key for key in keys if base[1].get(key) != present.get(key)}
    candidates = touched | {key for key in keys if base[1].get(key) != rows.get(key)}
    fresh = planning.list_rebuilt(held, expected)
    narrowed = planning.make_plan(
        held,
        expected,
        {key: row for key, row in present.items() if key in candidates or key[0] in fresh or key[0] not in expected},
        {key: row for key, row in rows.items() if key in candidates or key[0] in fresh},
    )
    whole = planning.make_plan(held, expected, present, rows)
    assert narrowed == whole
    after = {key: row for key, row in present.items() if key not in whole.remove and key[0] not in whole.drop}
    assert not after.keys() & set(whole.add)
    assert after | {key: rows[key] for key in whole.add} == rows


@pytest.mark.parametrize(
    ("removed", "documents", "refused"),
    [(100, 100, False), (101, 200, True), (101, 202, False), (102, 202, True), (0, 0, False)],
)
def test_mass_deletion_is_refused_above_half_and_above_hundred(removed, documents, refused):
    plan = planning.Plan((), (), (), (), (), ChangeCounts(removed=removed))
    if refused:
        with pytest.raises(MassDeletion, match=f"{removed} of {documents}"):
            planning.refuse_mass_deletion(plan, documents)
    else:
        planning.refuse_mass_deletion(plan, documents)
