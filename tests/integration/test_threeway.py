"""Three-way merges of documents and collections, on real engines."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import engines as support
from tests.support.engines import AUTHOR, DATE, document, guide, root
from tests.support.long import examples
from vmrag_link.engines.base import Engine, Write
from vmrag_link.merging.choices import Choice, Decisions
from vmrag_link.merging.conflicts import COLLECTION, decide_all
from vmrag_link.merging.revisions import make_virtual_base, merge_revisions
from vmrag_link.merging.rows import merge_rows
from vmrag_link.merging.text import join_texts
from vmrag_link.merging.threeway import merge
from vmrag_link.models import (
    ISSUES,
    Chunking,
    Collection,
    Document,
    content_hash,
    encode_canonical_json,
    parse_metadata,
)

engine, engines = support.engine, support.engines

State = dict[str, str]
"""Texts by document, all in one collection."""


def revision(engine: Engine, state: State, *, collections: tuple[Collection, ...] = (guide(),), onto: str = "") -> str:
    """A revision that holds exactly this."""
    start = onto or root(engine)
    rows = Write(
        remove_collections=[collection.name for collection in engine.list_collections(start)],
        put_collections=collections,
        put_documents=[document(name, text) for name, text in state.items()],
    )
    return engine.commit_onto(start, [rows], message="state", author=AUTHOR, date=DATE)


def merged(engine: Engine, base: str, ours: str, theirs: str, decisions: Decisions | None = None) -> State | set[str]:
    """The texts of the result, or what is in conflict."""
    outcome = merge_revisions(engine, base=base, ours=ours, theirs=theirs, joins=False, decisions=decisions)
    if outcome.revision is None:
        return {conflict.id for conflict in outcome.conflicts}
    return {document.doc_id: document.content for document in engine.read_documents(outcome.revision)}


def expected(base: State, ours: State, theirs: State) -> State | set[str]:
    result, conflicts = {}, set()
    for name in base.keys() | ours.keys() | theirs.keys():
        before, value, right = base.get(name), ours.get(name), theirs.get(name)
        if right in (value, before):
            text = value
        elif value == before:
            text = right
        else:
            conflicts.add(f"guide/{name}")
            continue
        if text is not None:
            result[name] = text
    return conflicts or result


states = st.dictionaries(st.sampled_from("abcde"), st.sampled_from(["one", "two", "three"]), max_size=5)


@settings(
    max_examples=examples(60),
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(states, states, states, st.booleans())
def test_merge_matches_set_operations(engine: Engine, base: State, ours: State, theirs: State, related: bool) -> None:
    at_base = revision(engine, base)
    at_ours = revision(engine, ours, onto=at_base if related else "")
    at_theirs = revision(engine, theirs, onto=at_base if related else "")
    assert merged(engine, at_base, at_ours, at_theirs) == expected(base, ours, theirs)
    assert merged(engine, at_base, at_theirs, at_ours) == expected(base, theirs, ours)


@settings(
    max_examples=examples(20),
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(states, states, states, st.sampled_from(["ours", "theirs"]))
def test_decisions_for_one_side_take_its_documents(
    engine: Engine, base: State, ours: State, theirs: State, side: str
) -> None:
    at = [revision(engine, texts) for texts in (base, ours, theirs)]
    conflicts = merge(engine, base=at[0], ours=at[1], theirs=at[2]).conflicts
    decisions = {conflict.id: dict.fromkeys(conflict.fields, Choice(side)) for conflict in conflicts}
    result = merged(engine, *at, decisions)
    assert isinstance(result, dict)
    chosen = ours if side == "ours" else theirs
    for conflict in conflicts:
        assert result.get(conflict.doc_id) == chosen.get(conflict.doc_id)
    assert not merge(engine, base=at[0], ours=at[1], theirs=at[2], decisions=decisions).conflicts


def test_different_fields_of_a_document_merge(engine: Engine) -> None:
    base = document("a", "text", metadata='{"n":1}', updated_at="2026-01-01T00:00:00Z", source="x")
    ours = msgspec.structs.replace(base, title="ours", updated_at="2026-01-03T00:00:00Z")
    theirs = msgspec.structs.replace(
        base, content="theirs", content_hash=content_hash("theirs"), metadata="{}", updated_at="2026-01-02T00:00:00Z"
    )
    at = [_holding(engine, revision) for revision in (base, ours, theirs)]
    outcome = merge_revisions(engine, base=at[0], ours=at[1], theirs=at[2], joins=False)
    assert outcome.revision
    assert engine.find_document(outcome.revision, "guide", "a") == msgspec.structs.replace(
        theirs, title="ours", updated_at=ours.updated_at
    )


def test_field_that_both_changed_is_in_conflict_alone(engine: Engine) -> None:
    base = document("a", "text", title="base")
    ours = msgspec.structs.replace(base, title="ours", source="ours")
    theirs = msgspec.structs.replace(base, title="theirs", file_type="theirs")
    at = [_holding(engine, revision) for revision in (base, ours, theirs)]
    (conflict,) = merge(engine, base=at[0], ours=at[1], theirs=at[2]).conflicts
    assert (conflict.id, conflict.fields) == ("guide/a", ("title",))
    decided = merge(engine, base=at[0], ours=at[1], theirs=at[2], decisions={"guide/a": {"title": Choice("theirs")}})
    assert decided.rows.put_documents == (msgspec.structs.replace(ours, title="theirs", file_type="theirs"),)


def test_set_of_ids_merges_what_both_sides_added_and_removed() -> None:
    base, ours, theirs = (
        document("a", metadata=encode_canonical_json({"related_chat_ids": [*ids]})) for ids in ("abc", "bcd", "ace")
    )
    for sides in ((ours, theirs), (theirs, ours)):
        result = merge_rows(base, *sides)
        assert (parse_metadata(result.row), result.fields) == ({"related_chat_ids": [*"cde"]}, ())


def test_edited_text_is_the_content_whichever_side_removed_the_document(engine: Engine) -> None:
    for ours, theirs in ({"a": "ours"}, {}), ({}, {"a": "theirs"}), ({"a": "ours"}, {"a": "theirs"}):
        at = [revision(engine, texts) for texts in ({"a": "base"}, ours, theirs)]
        (conflict,) = merge(engine, base=at[0], ours=at[1], theirs=at[2]).conflicts
        decisions = {conflict.id: {conflict.fields[0]: Choice("edited", "by hand")}}
        assert merged(engine, *at, decisions) == {"a": "by hand"}


def log(doc_id: str, *, project: str = "p", text: str = "log", table: Any = "issue_logs") -> Document:
    return Document(
        collection=f"issues_{project}",
        doc_id=doc_id,
        title="t",
        content=text,
        content_hash=content_hash(text),
        metadata=encode_canonical_json({"project_id": project, "issue_number": 1, "log_type": "resolution"}),
        table=table,
    )


def logs(engine: Engine, *rows: Document, onto: str = "") -> str:
    made = [Collection(f"issues_{project}", kind=ISSUES) for project in "pq"]
    write = Write(put_collections=made, put_documents=rows)
    return engine.commit_onto(onto or root(engine), [write], message="logs", author=AUTHOR, date=DATE)


def test_two_new_rows_of_one_id_conflict_in_any_collections(engine: Engine) -> None:
    base = logs(engine, log("other"))
    ours, theirs = logs(engine, log("x"), onto=base), logs(engine, log("x", project="q"), onto=base)
    (conflict,) = merge(engine, base=base, ours=ours, theirs=theirs).conflicts
    assert (conflict.id, conflict.fields, conflict.keys) == ("issues_p/x", ("metadata",), ("project_id",))
    for take, project in (("ours", "p"), ("theirs", "q")):
        outcome = merge_revisions(
            engine,
            base=base,
            ours=ours,
            theirs=theirs,
            joins=False,
            decisions={conflict.id: {"metadata": Choice(take)}},
        )
        assert outcome.revision
        assert list(engine.read_documents(outcome.revision)) == [log("other"), log("x", project=project)]


@pytest.mark.parametrize("joins", [False, True])
def test_row_that_was_a_document_of_another_table_takes_its_place(engine: Engine, joins: bool) -> None:
    before, row = log("x", table="documents"), log("x", text="new")
    empty = logs(engine)
    base = logs(engine, before, onto=empty)
    theirs = logs(engine, row, onto=base)
    (change,) = engine.diff(base, theirs).documents
    assert (change.kind, change.after) == ("modified", row)
    ours = logs(engine, log("other"), onto=base)
    outcome = merge_revisions(engine, base=base, ours=ours, theirs=theirs, joins=joins)
    assert outcome.revision
    assert list(engine.read_documents(outcome.revision)) == [log("other"), row]
    for sides in ((base, logs(engine, log("x"), onto=empty)), (logs(engine, log("x"), onto=empty), base)):
        outcome = merge_revisions(engine, base=empty, ours=sides[0], theirs=sides[1], joins=joins)
        assert outcome.revision
        assert list(engine.read_documents(outcome.revision)) == [log("x")], "added on both sides: a log stays one"
    assert list(engine.read_documents(logs(engine, before, onto=theirs))) == [before]


SETTINGS = {
    "metadata": guide(metadata='{"a":1}'),
    "embedding": guide(embedding_function="hash", embedding_dimensions=64),
    "distance": guide(distance="l2"),
    "chunking": guide(chunking=Chunking(size=9, overlap=0)),
}


@pytest.mark.parametrize(("ours", "theirs"), list(itertools.permutations(SETTINGS, 2)))
def test_different_settings_of_a_collection_merge(engine: Engine, ours: str, theirs: str) -> None:
    at = [revision(engine, {}, collections=(row,)) for row in (guide(), SETTINGS[ours], SETTINGS[theirs])]
    outcome = merge_revisions(engine, base=at[0], ours=at[1], theirs=at[2], joins=False)
    assert outcome.revision
    (collection,) = engine.list_collections(outcome.revision)
    assert collection != guide()
    for name in (ours, theirs):
        changed = msgspec.structs.asdict(SETTINGS[name])
        plain = msgspec.structs.asdict(guide())
        assert all(getattr(collection, key) == value for key, value in changed.items() if value != plain[key])


def test_same_setting_changed_twice_is_a_conflict_unless_equally(engine: Engine) -> None:
    rows = guide(), guide(metadata='{"a":1}'), guide(metadata='{"a":2}')
    at = [revision(engine, {}, collections=(row,)) for row in rows]
    (conflict,) = merge(engine, base=at[0], ours=at[1], theirs=at[2]).conflicts
    assert (conflict.id, conflict.fields) == ("guide/", ("metadata",))
    assert not merge(engine, base=at[0], ours=at[1], theirs=at[1]).conflicts
    decided = merge(engine, base=at[0], ours=at[1], theirs=at[2], decisions={"guide/": {"metadata": Choice("theirs")}})
    assert decided.rows.put_collections == (rows[2],)


NOTES = Collection("notes")


def _with_notes(engine: Engine, *texts: str) -> str:
    rows = Write(
        put_collections=[guide(), NOTES],
        put_documents=[document(f"n{number}", text, collection="notes") for number, text in enumerate(texts)],
    )
    return engine.commit_onto(root(engine), [rows], message="notes", author=AUTHOR, date=DATE)


def _changed_notes(engine: Engine, base: str, change: str) -> str:
    """A revision on top of two notes, and in its collection some document or setting changed."""
    rows = {
        "a document added": Write(put_documents=[document("n2", "new", collection="notes")]),
        "a document edited": Write(put_documents=[document("n1", "edited", collection="notes")]),
        "one added, one removed": Write(
            put_documents=[document("n2", "new", collection="notes")], remove_documents=[("notes", "n0")]
        ),
        "settings": Write(put_collections=[msgspec.structs.replace(NOTES, distance="l2")]),
    }
    return engine.commit_onto(base, [rows[change]], message=change, author=AUTHOR, date=DATE)


NOTES_CHANGES = ("a document added", "a document edited", "one added, one removed", "settings")


@pytest.mark.parametrize("removing", ["ours", "theirs"])
@pytest.mark.parametrize("change", NOTES_CHANGES)
def test_collection_removed_on_one_side_and_written_on_other_is_atomic(
    engine: Engine, removing: str, change: str
) -> None:
    base = _with_notes(engine, "one", "two")
    without = revision(engine, {"a": "elsewhere"})
    wrote = _changed_notes(engine, base, change)
    kept = list(engine.read_documents(wrote, collection="notes"))
    ours, theirs = (without, wrote) if removing == "ours" else (wrote, without)
    (conflict,) = merge(engine, base=base, ours=ours, theirs=theirs).conflicts
    assert (conflict.id, conflict.fields, conflict.documents) == ("notes/", (COLLECTION,), len(kept))
    for side in ("ours", "theirs"):
        outcome = merge_revisions(
            engine, base=base, ours=ours, theirs=theirs, joins=False, decisions=decide_all([conflict], Choice(side))
        )
        assert outcome.revision
        stays = side != removing
        collections = {collection.name: collection for collection in engine.list_collections(outcome.revision)}
        assert collections.get("notes") == (
            {collection.name: collection for collection in engine.list_collections(wrote)}["notes"] if stays else None
        )
        assert list(engine.read_documents(outcome.revision, collection="notes")) == (kept if stays else [])
        assert [document.doc_id for document in engine.read_documents(outcome.revision, collection="guide")] == ["a"]


def test_collection_that_one_side_removed_goes_with_its_documents(engine: Engine) -> None:
    base, without = _with_notes(engine, "one", "two"), revision(engine, {"a": "new"})
    assert merged(engine, base, base, without) == {"a": "new"}
    ours = engine.commit_onto(
        base, [Write(put_documents=[document("b")])], message="elsewhere", author=AUTHOR, date=DATE
    )
    for one, other in ((ours, without), (without, ours)):
        outcome = merge_revisions(engine, base=base, ours=one, theirs=other, joins=False)
        assert outcome.revision
        assert [document.key for document in engine.read_documents(outcome.revision)] == [
            ("guide", "a"),
            ("guide", "b"),
        ]
        assert [collection.name for collection in engine.list_collections(outcome.revision)] == ["guide"]


def test_equal_merges_give_equal_revisions_with_parents_and_trailers(engine: Engine) -> None:
    base = revision(engine, {"a": "base"})
    ours, theirs = (revision(engine, {"a": "base", name: "new"}, onto=base) for name in ("b", "c"))
    for joins, parents in ((True, (ours, theirs)), (False, (ours,))):
        outcomes = {
            merge_revisions(engine, base=base, ours=ours, theirs=theirs, joins=joins).revision for _ in range(2)
        }
        (made,) = outcomes
        assert made
        info = engine.read_revision(made)
        assert info.parents == parents
        assert f"Vmrag-Base: {base}\nVmrag-Theirs: {theirs}" in info.message


def test_merge_returns_a_side_that_contains_the_other(engine: Engine) -> None:
    base = revision(engine, {"a": "base"})
    ours = revision(engine, {"a": "base", "b": "new"}, onto=base)
    theirs = revision(engine, {"a": "base", "b": "new", "c": "new"}, onto=ours)
    assert merge_revisions(engine, base=base, ours=ours, theirs=theirs, joins=True).revision == theirs
    assert merge_revisions(engine, base=base, ours=ours, theirs=base, joins=True).revision == ours


def test_source_of_a_document_is_decided_once(engine: Engine) -> None:
    rows = [document("a", "text", source=side, source_key=side) for side in ("base", "ours", "theirs")]
    at = [_holding(engine, row) for row in rows]
    (conflict,) = merge(engine, base=at[0], ours=at[1], theirs=at[2]).conflicts
    assert conflict.fields == ("source",)
    decisions = decide_all([conflict], Choice("theirs"))
    assert merge(engine, base=at[0], ours=at[1], theirs=at[2], decisions=decisions).rows.put_documents == (rows[2],)


def test_both_texts_are_between_markers_with_final_newlines() -> None:
    assert join_texts("a", "b\r\n") == "<<<<<<< ours\na\n=======\nb\r\n>>>>>>> theirs\n"
    assert join_texts("", "b\n") == "<<<<<<< ours\n=======\nb\n>>>>>>> theirs\n"


# -- a base that git makes of several --------------------------------------------------------------


def _row(engine: Engine, row: Document | Collection | None) -> str:
    """A revision with this document, or this collection, or none."""
    if isinstance(row, Collection):
        return revision(engine, {"a": "text"}, collections=(row,))
    return _holding(engine, row) if row else revision(engine, {})


def _text(text: str) -> Document:
    return document("a", text)


CROSSED: dict[str, tuple[Document | Collection | None, ...]] = {
    "title": tuple(document("a", title=side) for side in ("base", "left", "right")),
    "content": tuple(_text(side) for side in ("base", "left", "right")),
    "metadata": tuple(document("a", metadata=name) for name in ("{}", '{"n":1}', '{"n":2}')),
    "source": tuple(document("a", source=side, source_key=side) for side in ("base", "left", "right")),
    "file_type": tuple(document("a", file_type=side) for side in ("base", "left", "right")),
    "document added": (None, _text("left"), _text("right")),
    "removed on the left": (_text("base"), None, _text("right")),
    "removed on the right": (_text("base"), _text("left"), None),
    "kind": tuple(guide(kind=side) for side in ("base", "left", "right")),
    "settings": tuple(guide(metadata=name) for name in ("{}", '{"n":1}', '{"n":2}')),
    "embedding": tuple(guide(embedding_model=side) for side in ("base", "left", "right")),
    "distance": (guide(distance="cosine"), guide(distance="l2"), guide(distance="ip")),
    "distance added": (guide(distance="l2"), guide(distance="cosine"), guide(distance="ip")),
    "chunking": tuple(guide(chunking=Chunking(size=number)) for number in (300, 600, 900)),
    "overlap": tuple(guide(chunking=Chunking(overlap=number)) for number in (1, 2, 3)),
}


@pytest.mark.parametrize("what", CROSSED)
def test_conflict_between_two_bases_returns_unless_both_sides_agree(engine: Engine, what: str) -> None:
    base, left_side, right_side = (_row(engine, row) for row in CROSSED[what])
    (inner,) = merge(engine, base=base, ours=left_side, theirs=right_side).conflicts
    made = make_virtual_base(engine, base=base, ours=left_side, theirs=right_side)
    assert made == make_virtual_base(engine, base=base, ours=left_side, theirs=right_side)
    for ours, theirs in ((left_side, right_side), (right_side, left_side)):
        (conflict,) = merge(engine, base=made, ours=ours, theirs=theirs).conflicts
        assert (conflict.id, conflict.fields) == (inner.id, inner.fields)
    for side in (left_side, right_side):
        same = merge(engine, base=made, ours=side, theirs=side)
        assert (same.is_empty, same.conflicts) == (True, ())


@pytest.mark.parametrize("change", NOTES_CHANGES)
def test_virtual_base_conflicts_again_unless_both_sides_settled_collection_alike(engine: Engine, change: str) -> None:
    base = _with_notes(engine, "one", "two")
    wrote, without = _changed_notes(engine, base, change), revision(engine, {})
    for pair in ((wrote, without), (without, wrote)):
        made = make_virtual_base(engine, base=base, ours=pair[0], theirs=pair[1])
        for ours, theirs in (pair, pair[::-1]):
            (conflict,) = merge(engine, base=made, ours=ours, theirs=theirs).conflicts
            assert (conflict.id, conflict.fields) == ("notes/", (COLLECTION,))
        for side in pair:
            assert merge(engine, base=made, ours=side, theirs=side).is_empty


def test_virtual_base_keeps_changes_without_conflict(engine: Engine) -> None:
    base = revision(engine, {"a": "base", "b": "base"})
    left_side, right_side = revision(engine, {"a": "left", "b": "base"}), revision(engine, {"a": "right", "b": "right"})
    made = make_virtual_base(engine, base=base, ours=left_side, theirs=right_side)
    ours, theirs = revision(engine, {"a": "settled", "b": "right"}), revision(engine, {"a": "settled", "b": "new"})
    assert merged(engine, made, ours, theirs) == {"a": "settled", "b": "new"}


def _holding(engine: Engine, row: Document) -> str:
    rows = Write(put_collections=[guide()], put_documents=[row])
    return engine.commit_onto(root(engine), [rows], message="row", author=AUTHOR, date=DATE)
