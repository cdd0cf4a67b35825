"""One contract for both ways to Chroma: the Rust bindings, whose API is private, and the public client."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.knowledge import ROOT, Knowledge, collection, doc, open_files
from vmrag_link.errors import FilterInvalid, IndexExtraMissing, IndexFailed
from vmrag_link.index import chroma
from vmrag_link.index.chroma import BindingsStore, ChromaStore, PublicStore, Rows, open_store

STORES = {"bindings": BindingsStore, "public": PublicStore}
DIMENSIONS = 4


@pytest.fixture(params=sorted(STORES))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ChromaStore]:
    made = STORES[request.param](tmp_path)
    yield made
    made.close()


def other(store: ChromaStore) -> type[ChromaStore]:
    return PublicStore if isinstance(store, BindingsStore) else BindingsStore


def vector(number: int) -> bytes:
    return struct.pack("<4f", 1.0, float(number % 7), float(number % 11), float(number % 13))


def rows(names: list[str], *, texts: bool = True, **metadata) -> Rows:
    return Rows(
        list(names),
        [vector(number) for number in range(len(names))],
        [{"number": number, **metadata} for number in range(len(names))],
        [f"text of {name}" for name in names] if texts else None,
    )


def made(store: ChromaStore, name: str = "guide") -> str:
    return store.create(name, space="cosine", metadata={"embedding_model": "m"})


def test_rows_come_and_go(store):
    guide = made(store)
    store.add(guide, rows(["a", "b", "c"]))
    assert (store.count(guide), sorted(store.ids(guide))) == (3, ["a", "b", "c"])
    assert store.ids(guide, among=["b", "nobody"]) == ["b"]
    store.delete(guide, ["b", "nobody"])
    store.delete(guide, [])
    assert sorted(store.ids(guide)) == ["a", "c"]
    assert store.ids(guide, among=[]) == []


def test_a_row_that_was_deleted_can_be_added_again(store):
    guide = made(store)
    store.add(guide, rows(["a"], state="old"))
    store.delete(guide, ["a"])
    store.add(guide, rows(["a"], state="new"))
    assert store.ids(guide, where={"state": "new"}) == ["a"]
    assert store.ids(guide, where={"state": "old"}) == []


def test_more_rows_than_one_call_takes_come_back_whole(store):
    guide = made(store)
    names = [f"document {number}" for number in range(chroma.BATCH + 300)]
    store.add(guide, rows(names, texts=False))
    assert sorted(store.ids(guide)) == sorted(names)
    assert sorted(store.ids(guide, among=names)) == sorted(names)
    assert len(store.ids(guide, where={"number": {"$gte": 100}})) == len(names) - 100
    store.delete(guide, names[:-2])
    assert sorted(store.ids(guide)) == sorted(names[-2:])


def test_vectors_are_read_by_the_names_of_their_rows(store):
    guide = made(store)
    store.add(guide, rows(["a", "b", "c"]))
    found = store.embeddings(guide, ["c", "a", "nobody"])
    assert {name: struct.pack("<4f", *numbers) for name, numbers in found.items()} == {"a": vector(0), "c": vector(2)}
    assert all(type(number) is float for numbers in found.values() for number in numbers)
    assert store.embeddings(guide, []) == {}
    names = [f"document {number}" for number in range(chroma.BATCH + 2)]
    store.add(guide, rows(names, texts=False))
    assert len(store.embeddings(guide, names)) == len(names)


def test_a_row_gets_another_vector_and_keeps_the_rest(store):
    guide = made(store)
    store.add(guide, rows(["a", "b"], state="open"))
    store.embed(guide, {"a": vector(5)})
    store.embed(guide, {})
    found = store.embeddings(guide, ["a", "b"])
    assert {name: struct.pack("<4f", *numbers) for name, numbers in found.items()} == {"a": vector(5), "b": vector(1)}
    assert store.ids(guide, among=["a"], where={"state": "open"}, where_document={"$contains": "of a"}) == ["a"]
    assert store.count(guide) == 2


def test_filters_on_metadata_and_text(store):
    guide = made(store)
    store.add(guide, rows(["a", "b"], state="open"))
    store.add(guide, rows(["c"]))
    assert sorted(store.ids(guide, where={"state": "open"})) == ["a", "b"]
    assert store.ids(guide, where={"state": {"$ne": "open"}}) == ["c"]
    assert store.ids(guide, where_document={"$contains": "of b"}) == ["b"]
    assert store.ids(guide, where={"state": "open"}, where_document={"$not_contains": "of b"}) == ["a"]
    assert store.ids(guide, among=["a", "c"], where={"state": "open"}) == ["a"]


def test_a_filter_that_chroma_refuses_is_a_filter_error(store):
    guide = made(store)
    store.add(guide, rows(["a"]))
    with pytest.raises(FilterInvalid):
        store.ids(guide, where_document={"$regex": "("})


def test_unicode_and_lists_survive(store):
    guide = made(store)
    store.add(
        guide, rows(["Füße/🦉_chunk_0", "C:\\new\n"], tags=["ä", "🦉"], numbers=[1, 2], flags=[True], key="naïve")
    )
    assert sorted(store.ids(guide)) == ["C:\\new\n", "Füße/🦉_chunk_0"]
    assert len(store.ids(guide, where={"tags": {"$contains": "🦉"}})) == 2
    assert store.ids(guide, where_document={"$contains": "🦉"}) == ["Füße/🦉_chunk_0"]


def test_collections_are_listed_described_and_dropped(store):
    assert store.collections() == {}
    one, two = made(store, "one-collection"), made(store, "two-collection")
    store.describe(one, {"revision": "r1"})
    assert store.collections() == {"one-collection": one, "two-collection": two}
    store.add(one, rows(["a"]))
    store.drop("one-collection")
    assert store.collections() == {"two-collection": two}
    again = made(store, "one-collection")
    assert (again != one, store.count(again)) == (True, 0)


def test_a_collection_says_what_its_hnsw_index_was_made_with_and_keeps_it_when_it_is_described_anew(store):
    one = store.create("one-collection", space="ip", metadata={"a": "b"}, hnsw={"max_neighbors": 32})
    store.describe(one, {"number": 1, "half": 0.5, "yes": True})
    expected = {"space": "ip", "max_neighbors": 32, "ef_construction": 100, "ef_search": 100}
    assert expected.items() <= store.hnsw("one-collection").items()


def test_more_collections_than_a_page_holds_are_all_listed(store):
    names = {f"collection-{number}" for number in range(120)}
    assert {name: made(store, name) for name in names} == store.collections()


@pytest.mark.parametrize("unknown", ["00000000-0000-0000-0000-000000000000", "nonsense"])
def test_an_unknown_collection_is_an_index_failure(store, unknown):
    for action in (
        lambda: store.count(unknown),
        lambda: store.ids(unknown),
        lambda: store.add(unknown, rows(["a"])),
        lambda: store.delete(unknown, ["a"]),
        lambda: store.drop(unknown),
    ):
        with pytest.raises(IndexFailed):
            action()


def test_a_collection_is_not_made_twice(store):
    made(store)
    with pytest.raises(IndexFailed, match="guide"):
        made(store)


def test_a_store_written_by_one_way_is_read_by_the_other(store, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    first = type(store)(home)
    guide = made(first)
    first.add(guide, rows(["a", "b"], state="open"))
    first.close()
    reopened = other(store)(home)
    try:
        assert reopened.collections() == {"guide": guide}
        assert sorted(reopened.ids(guide, where={"state": "open"}, where_document={"$contains": "text"})) == ["a", "b"]
        reopened.delete(guide, ["a"])
    finally:
        reopened.close()
    first = type(store)(home)
    assert first.ids(guide) == ["b"]
    first.close()


def test_a_closed_store_can_be_renamed_copied_and_opened_again(store, tmp_path):
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("open files are listed in /proc only")
    home = tmp_path / "home"
    home.mkdir()
    one = type(store)(home)
    guide = made(one)
    one.add(guide, rows(["a"]))
    assert open_files(home)
    one.close()
    deadline = time.monotonic() + 5  # the bindings' worker threads close the last handles about a millisecond later
    while open_files(home) and time.monotonic() < deadline:
        time.sleep(0.001)
    assert open_files(home) == []
    home.rename(tmp_path / "moved")
    shutil.copytree(tmp_path / "moved", home)
    for place in (home, tmp_path / "moved"):
        again = type(store)(place)
        assert again.ids(guide) == ["a"]
        again.add(guide, rows(["b"]))
        again.close()


def test_a_folder_that_holds_no_store_is_an_index_failure(tmp_path):
    (tmp_path / chroma.DATABASE_FILE).write_bytes(b"no database at all, but long enough to be looked at" * 100)
    for kind in STORES.values():
        with pytest.raises(IndexFailed):
            kind(tmp_path)


def test_the_bindings_are_used_only_for_the_versions_they_were_tried_with(tmp_path, monkeypatch):
    store = open_store(tmp_path)
    assert isinstance(store, BindingsStore)
    store.close()
    monkeypatch.setattr(chroma, "_installed_version", lambda: "1.6.0")
    store = open_store(tmp_path)
    assert isinstance(store, PublicStore)
    store.close()


def test_without_chromadb_the_error_names_the_extra(tmp_path):
    program = (
        "import sys\n"
        "import importlib.util as util\n"
        "found = util.find_spec\n"
        "util.find_spec = lambda name: None if name.startswith('chromadb') else found(name)\n"
        "from pathlib import Path\n"
        "from vmrag_link.errors import IndexExtraMissing\n"
        "from vmrag_link.index.chroma import open_store\n"
        "try: open_store(Path(sys.argv[1]))\n"
        "except IndexExtraMissing as error: print(error.hint)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "pip install 'vmrag-link[index]'", done.stderr


def test_a_chromadb_that_cannot_be_imported_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "chromadb", None)
    with pytest.raises(IndexExtraMissing, match="cannot be imported"):
        PublicStore(tmp_path)


def test_an_outside_client_finds_documents_in_a_snapshot_and_leaves_it_sound(tmp_path):
    import chromadb

    kb = Knowledge(tmp_path)
    texts = {"owl": "owls hunt at night", "fox": "foxes sleep by day"}
    revision = kb.commit(*[doc(name, text) for name, text in texts.items()], collections=[collection()])
    path = kb.index(revision).path
    client = chromadb.PersistentClient(str(path / "chroma"))
    query = list(struct.unpack("<256f", kb.models["hash"].embed(["owls at night"])[0]))
    guide = client.get_collection("guide")
    found = guide.query(query_embeddings=[query], n_results=1)
    assert (found["ids"], found["documents"]) == ([["owl_chunk_0"]], [["owls hunt at night"]])
    assert guide.metadata["revision"] == revision
    assert found["metadatas"][0][0]["source_id"] == "owl"
    client.close()
    assert kb.snapshots.problem(revision) == ""
    kb.close()
