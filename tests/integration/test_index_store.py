"""One index, a view and its segments: what it holds, what it refuses to serve."""

from __future__ import annotations

import shutil
import struct
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.support import knowledge
from tests.support.knowledge import BRANCH, Knowledge, collection, doc, open_files
from vmrag_link.errors import IndexFailed, MassDeletion
from vmrag_link.index import contents, flat_files, seal, view
from vmrag_link.index.contents import IndexedRow, read_rows
from vmrag_link.index.draft import Draft
from vmrag_link.index.flat_files import MANIFEST_FILE
from vmrag_link.index.metadata import build_document_metadata, chunk_id
from vmrag_link.index.postings import DOCUMENT_FIELDS, BlockWriter
from vmrag_link.index.segment import SegmentWriter
from vmrag_link.index.view import find_index_problem, segments_folder
from vmrag_link.models import Chunking, WorkingSet

kb = knowledge.kb

LONG = " ".join(f"word{number}" for number in range(400))


def chunk_ids(folder: Path, name: str = "guide") -> list[str]:
    return sorted(held_chunks(folder, name))


def held_chunks(folder: Path, name: str) -> dict[str, IndexedRow]:
    """Text and vector of each chunk."""
    rows = read_rows(folder, name)
    return {chunk_id(doc_id, number): row for doc_id, held in rows.items() for number, row in enumerate(held)}


def assert_whole(kb: Knowledge, folder: Path, revision: str) -> None:
    """The parts hold the same chunks, whatever way the index came about."""
    fresh = kb.folder / "copies" / "compare"
    kb.fresh(revision, fresh)
    seen = []
    for path in (folder, fresh):
        held = contents.read_contents(path)
        chunks = {name: held_chunks(path, name) for name in held.collections}
        seen.append((held.headers, held.chunks, dict(held.collections), chunks))
    shutil.rmtree(fresh)
    assert seen[0] == seen[1]


def segments(folder: Path) -> list[Path]:
    """List the segments of a view, in its order."""
    return [segments_folder(folder) / part.segment for part in view.read_view(folder).parts]


# -- contents --------------------------------------------------------------------------------------


def test_documents_with_equal_texts_keep_their_own_chunks(kb):
    revision = kb.commit(
        doc("a", LONG), doc("b", LONG), doc("c", "short"), doc("d", "short"), collections=[collection()]
    )
    path = kb.index(revision).path
    hits = kb.search(path, "word7 word8", k=20)
    assert {name for hit in hits for name in (hit.doc_id, *hit.also_in)} == {"a", "b", "c", "d"}
    edited = kb.commit(remove=[("guide", "a")])
    after = kb.index(edited, base=revision)
    assert after.how == "delta"
    assert {name.partition("_chunk_")[0] for name in chunk_ids(after.path)} == {"b", "c", "d"}
    assert {hit.doc_id for hit in kb.search(after.path, "word7 word8", mode="keyword", k=20)} == {"b"}
    assert_whole(kb, after.path, edited)


def test_document_ids_that_look_like_chunk_names_do_not_collide(kb):
    revision = kb.commit(
        doc("a", LONG), doc("a_chunk_0", "short"), doc("a_chunk_0_chunk_1"), collections=[collection()]
    )
    path = kb.index(revision).path
    hits = kb.search(path, "short", k=50, where={"source_id": "a_chunk_0"})
    assert [(hit.doc_id, hit.chunk) for hit in hits] == [("a_chunk_0", 0)]


def test_edit_removal_and_addition_equal_a_fresh_index(kb):
    first = kb.commit(*[doc(f"d{n}", LONG + str(n)) for n in range(9)], collections=[collection()])
    kb.index(first)
    second = kb.commit(doc("d1", "short now"), doc("new", LONG), remove=[("guide", "d2")])
    built = kb.index(second, base=first)
    assert (built.how, built.changes.added, built.changes.modified, built.changes.removed) == ("delta", 1, 1, 1)
    assert_whole(kb, built.path, second)


def test_document_of_five_megabytes(kb):
    sentence = "Every chunk of this long document says the same thing again and again. "
    revision = kb.commit(
        doc("big", sentence * 70_000), collections=[collection(chunking=Chunking(size=20_000, overlap=10))]
    )
    path = kb.index(revision).path
    names = chunk_ids(path)
    assert len(names) > 200
    assert kb.search(path, "chunk", mode="vector", k=3)[0].doc_id == "big"


def test_collections_come_go_and_change_their_definition(kb):
    rows = [collection(), collection("notes")]
    first = kb.commit(doc("a", LONG), doc("b", LONG, collection="notes"), collections=rows)
    kb.index(first)
    changed = [
        {"chunking": Chunking(size=100, overlap=10)},
        {"chunking": Chunking(size=100, overlap=10), "distance": "l2"},
        {"chunking": Chunking(size=100, overlap=10), "distance": "l2", "metadata": '{"about":"redefined"}'},
    ]
    before = first
    for fields in changed:
        revision = kb.commit(doc("c", str(fields)), collections=[collection(**fields)])
        path = kb.copied(before, "changed")
        with kb.draft(path) as draft:
            brought = kb.indexer.update_index(draft, revision, base=before)
            draft.clear_touched()
            draft.publish(path, revision=revision)
        assert_whole(kb, path, revision)
        assert brought.plan.drop == (("guide",) if "about" not in str(fields) else ())
        before = revision
        path.rename(kb.views.view_path(revision))
    dropped = kb.commit(drop=["notes"])
    last = kb.index(dropped, base=before)
    assert_whole(kb, last.path, dropped)


def test_index_follows_uncommitted_documents_and_their_revert(kb):
    revision = kb.commit(doc("a", LONG), doc("b", LONG), collections=[collection()])
    kb.index(revision)
    path = kb.copied(revision, "working")
    kb.write(doc("a", "edited"), doc("new", "added"), remove=[("guide", "b")])
    kb.bring_working(path, revision)
    assert set(chunk_ids(path)) == {"a_chunk_0", "new_chunk_0"}
    kb.write(doc("a", LONG), doc("b", LONG), remove=[("guide", "new")])
    kb.bring_working(path, revision)
    assert chunk_ids(path) == chunk_ids(kb.views.view_path(revision))
    assert_whole(kb, path, revision)


def test_published_index_leaves_no_open_file(kb):
    revision = kb.commit(doc("a"), collections=[collection()])
    path = kb.index(revision).path
    kb.search(path, "text", where={"source_id": "a"})
    deadline = time.monotonic() + 5
    roots = (kb.views.root, kb.views.segments.root)
    while any(map(open_files, roots)) and time.monotonic() < deadline:
        time.sleep(0.001)
    assert [*map(open_files, roots)] == [[], []]


# -- metadata --------------------------------------------------------------------------------------


@given(st.dictionaries(st.text(max_size=5), st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2), max_leaves=6)))  # fmt: skip
def test_any_metadata_becomes_something_that_chroma_takes(metadata):
    row = build_document_metadata(doc("a", metadata=metadata).header, "documents")
    for key, value in row.items():
        assert not key.startswith(("$", "#", "chroma:"))
        assert key
        assert isinstance(value, str | bool | float | int) or (value and len({type(element) for element in value}) == 1)
        for number in value if isinstance(value, list) else [value]:
            assert isinstance(number, str | float) or -(2**63) <= number < 2**63


# -- sealing finds what does not agree -------------------------------------------------------------


def _extra_words(writer: SegmentWriter) -> None:
    writer._words[1].add_chunks([("extra",)])


def _missing_words(writer: SegmentWriter) -> None:
    writer._words[1] = BlockWriter(DOCUMENT_FIELDS)
    writer._words[1].add_chunks([("another",)])


def _cut_ends_of_texts(writer: SegmentWriter) -> None:
    path = writer.folder / flat_files.texts_names(1)[1]
    path.write_bytes(path.read_bytes()[:-1])


def _vectors_cut(writer: SegmentWriter) -> None:
    path = writer.folder / flat_files.vectors_name(1)
    path.write_bytes(path.read_bytes()[:-1])


def _vectors_gone(writer: SegmentWriter) -> None:
    (writer.folder / flat_files.vectors_name(1)).unlink()


def _lengths_cut(writer: SegmentWriter) -> None:
    path = writer.folder / flat_files.lengths_name(1)
    path.write_bytes(path.read_bytes()[:-1])


def _document_row_lost(writer: SegmentWriter) -> None:
    writer._manifest.connection.execute("DELETE FROM documents WHERE doc_id = 'b'")


def _more_floats_than_rows(writer: SegmentWriter) -> None:
    flat_files.write_floats(writer.folder, 1, {2: struct.pack("<256f", *[0.0625] * 256)})


BREAKS = [
    _extra_words, _missing_words, _cut_ends_of_texts, _vectors_cut, _vectors_gone, _lengths_cut, _document_row_lost,
    _more_floats_than_rows,
]  # fmt: skip


@pytest.mark.parametrize("damage", BREAKS, ids=lambda function: function.__name__.strip("_"))
def test_parts_that_disagree_are_never_sealed(kb, damage):
    revision = kb.commit(doc("a", "short"), doc("b", "short"), collections=[collection()])
    path = kb.folder / "copies" / "index"
    with kb.draft() as draft:
        kb.indexer.update_index(draft, revision, base=None)
        assert draft._writer is not None
        damage(draft._writer)
        with pytest.raises(IndexFailed):
            draft.publish(path, revision=revision)
    assert find_index_problem(path, revision=revision) != ""
    assert kb.views.segments.list_newest_first() == []


@pytest.mark.parametrize("wrong", ["documents", "chunks"])
def test_view_with_wrong_totals_is_never_published(kb, wrong):
    revision = kb.commit(doc("a", "short"), doc("b", "short"), collections=[collection()])
    kb.index(revision)
    path = kb.copied(revision, "changed")
    stored_view = view.read_view(path)
    held = {"guide": structs.replace(stored_view.collections["guide"], **{wrong: 3})}
    changed = structs.replace(stored_view, collections=held)
    with Draft(segments_folder(path), changed) as draft, pytest.raises(IndexFailed, match=r"hold \(2, 2\)"):
        draft.publish(path, revision=revision)
    assert view.read_view(path) == stored_view
    assert find_index_problem(path, revision=revision) == ""


def test_index_answers_as_before_until_a_draft_is_published(kb):
    revision = kb.commit(doc("a", "the owl"), doc("b", "an owl"), collections=[collection()])
    kb.index(revision)
    path = kb.copied(revision, "changed")

    def found() -> set[str]:
        assert find_index_problem(path, revision=revision) == ""
        return {hit.doc_id for hit in kb.search(path, "owl", mode="keyword")}

    for published in (False, True):
        with kb.draft(path) as draft:
            draft.remove_documents("guide", ["a"])
            assert found() == {"a", "b"}
            if published:
                draft.publish(path, revision=revision)
        assert found() == ({"b"} if published else {"a", "b"})
        assert not kb.views.segments.list_unfinished()


def test_view_that_was_never_sealed_is_not_served(kb):
    revision = kb.commit(doc("a"), collections=[collection()])
    kb.index(revision)
    path = kb.copied(revision, "unfinished")
    (path / seal.SEAL).unlink()
    assert find_index_problem(path, revision=revision) == "it was never finished"


@pytest.mark.parametrize("truncate", [False, True], ids=["deleted", "truncated"])
def test_every_file_of_a_sealed_index_is_missed(kb, truncate):
    revision = kb.commit(doc("a", LONG), doc("b", "short"), collections=[collection()])
    kb.index(revision)
    source = kb.copied(revision, "source")
    with kb.draft(source) as draft:
        draft.replace_vectors("guide", {"b": struct.pack("<256f", *[0.0625] * 256)})
        draft.publish(source, revision=revision)
    [segment] = segments(source)
    files = {path.name for path in segment.iterdir()}
    of_chunks = {"vectors-1.i8", "floats-1.f32", "lengths-1.u32", "texts-1.utf8", "texts-1.u64", "words-1.idx"}
    assert files == {MANIFEST_FILE, *of_chunks, seal.SEAL, seal.VERIFIED}
    assert {path.name for path in source.iterdir()} == {view.VIEW_FILE, seal.SEAL, seal.VERIFIED}
    places = [path.relative_to(kb.folder) for folder in (source, segment) for path in folder.iterdir()]
    for place in places:
        if place.name == seal.VERIFIED:  # which marks files that need no check
            continue
        damaged = kb.folder / "damaged"
        for folder in (source, segment):
            shutil.copytree(folder, damaged / folder.relative_to(kb.folder))
        path = damaged / source.relative_to(kb.folder)
        assert find_index_problem(path, revision=revision) == ""
        if truncate:
            with (damaged / place).open("r+b") as file:
                file.truncate((kb.folder / place).stat().st_size // 2)
        else:
            (damaged / place).unlink()
        assert find_index_problem(path, revision=revision) != "", place
        shutil.rmtree(damaged)


def test_view_that_lacks_a_segment_is_not_served(kb):
    revision = kb.commit(doc("a"), collections=[collection()])
    path = kb.index(revision).path
    assert find_index_problem(path, revision=revision) == ""
    [segment] = segments(path)
    shutil.rmtree(segment)
    assert find_index_problem(path, revision=revision) != ""
    with pytest.raises(IndexFailed):
        kb.search(path, "text")


def test_index_of_another_revision_or_format_is_not_served(kb):
    revision = kb.commit(doc("a"), collections=[collection()])
    path = kb.index(revision).path
    assert find_index_problem(path, revision=revision) == ""
    assert "was sealed as" in find_index_problem(path, revision="f" * 40)
    assert find_index_problem(path / "absent", revision=revision) == "it does not exist"
    changed = kb.copied(revision, "changed")
    sealed = seal.read_seal(changed)
    seal.write_seal(changed, format="1", revision=revision, segments=sealed.segments)
    assert "was sealed as" in find_index_problem(changed, revision=revision)
    seal.write_seal(changed, format=sealed.format, revision=revision, segments=sealed.segments)
    assert find_index_problem(changed, revision=revision) == ""
    (changed / seal.SEAL).write_text("garbage")
    assert "cannot be read" in find_index_problem(changed, revision=revision)


@pytest.mark.parametrize("content", [b"", b"garbage", b"garbage " * 1000])
def test_manifest_of_garbage_is_not_served_and_stays_as_it_is(kb, content):
    revision = kb.commit(doc("a"), collections=[collection()])
    path = kb.index(revision).path
    [segment] = segments(path)
    (segment / MANIFEST_FILE).write_bytes(content)
    assert "manifest.sqlite is not what was written" in find_index_problem(path, revision=revision)
    with pytest.raises(IndexFailed):
        kb.search(path, "text")
    assert (segment / MANIFEST_FILE).read_bytes() == content


@pytest.mark.parametrize("content", [b"", b"garbage", b"garbage " * 1000])
def test_view_of_garbage_is_not_served_and_stays_as_it_is(kb, content):
    revision = kb.commit(doc("a"), collections=[collection()])
    path = kb.index(revision).path
    (path / view.VIEW_FILE).write_bytes(content)
    assert "view is not what was written" in find_index_problem(path, revision=revision)
    with pytest.raises(IndexFailed, match="view cannot be read"):
        kb.search(path, "text")
    assert (path / view.VIEW_FILE).read_bytes() == content


def test_looking_at_a_folder_without_an_index_makes_none(kb, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    assert find_index_problem(empty, revision="r") == "it was never finished"
    with pytest.raises(IndexFailed):
        kb.search(empty, "text")
    assert list(empty.iterdir()) == []


# -- the plan --------------------------------------------------------------------------------------


def test_mass_deletion_that_no_history_explains_is_refused(kb):
    full = kb.commit(*[doc(f"d{n}") for n in range(201)], collections=[collection()])
    kb.index(full)
    path = kb.copied(full, "index")
    emptied = kb.commit(remove=[("guide", f"d{n}") for n in range(150)])
    with kb.draft(path) as draft, pytest.raises(MassDeletion):
        kb.indexer.update_index(draft, emptied, base=None)
    with kb.draft(path) as draft:
        assert kb.indexer.update_index(draft, emptied, base=full).plan.changes.removed == 150


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["put", "remove", "rechunk", "drop", "create"]),
        st.sampled_from(["guide", "notes"]),
        st.sampled_from(["a", "b", "c"]),
        st.integers(0, 2),
    ),
    max_size=6,
)


def _apply(kb: Knowledge, changes: list[tuple[str, str, str, int]]) -> None:
    names = {collection.name for collection in kb.engine.list_collections(WorkingSet(BRANCH))}
    for what, name, doc_id, number in changes:
        if what == "create" or (name not in names and what != "drop"):
            kb.write(collections=[collection(name)])
            names.add(name)
        if what == "put":
            kb.write(doc(doc_id, f"text {number}", collection=name))
        elif what == "remove" and kb.engine.find_document(WorkingSet(BRANCH), name, doc_id):
            kb.write(remove=[(name, doc_id)])
        elif what == "rechunk":
            kb.write(collections=[collection(name, chunking=Chunking(size=100 + number, overlap=0))])
        elif what == "drop" and name in names:
            kb.write(drop=[name])
            names.discard(name)


@given(base=CHANGES, touched=CHANGES, later=CHANGES)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_diff_of_engine_and_row_comparison_give_equal_plans(tmp_path_factory, base, touched, later):
    kb = Knowledge(tmp_path_factory.mktemp("kb"))
    kb.write(doc("z"), collections=[collection()])
    _apply(kb, base)
    revision = kb.commit(doc("marker", "1", collection="always"), collections=[collection("always")])
    path = kb.folder / "copies" / "index"
    kb.fresh(revision, path)
    _apply(kb, touched)
    kb.bring_working(path, revision)
    _apply(kb, later)
    with kb.draft(path) as draft:
        by_diff, _ = kb.indexer._plan_changes(draft, WorkingSet(BRANCH), revision)
        by_rows, _ = kb.indexer._plan_changes(draft, WorkingSet(BRANCH), None)
    assert by_diff == by_rows
    kb.bring_working(path, revision)
    assert contents.read_contents(path).headers == {
        header.key: header for header in kb.engine.read_headers(WorkingSet(BRANCH))
    }
    kb.close()
