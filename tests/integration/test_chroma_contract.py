"""The adapter of Chroma's Rust bindings, whose API is private, does what the public client does."""

from __future__ import annotations

import contextlib
import shutil
import struct
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from tests.support.chroma import hnsw_of, list_passing_ids, needs_chroma
from tests.support.knowledge import ROOT, open_files
from vmrag_link.chroma import bindings
from vmrag_link.chroma.bindings import ChromaStore, RowBatch, StoredRow, open_store
from vmrag_link.errors import IndexExtraMissing, IndexFailed

pytestmark = needs_chroma

DIMENSIONS = 4


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ChromaStore]:
    made = open_store(tmp_path)
    yield made
    made.close()


def vector(number: int) -> bytes:
    return struct.pack("<4f", 1.0, float(number % 7), float(number % 11), float(number % 13))


def rows(names: list[str], *, texts: bool = True, **metadata) -> RowBatch:
    return RowBatch(
        list(names),
        [vector(number) for number in range(len(names))],
        [{"number": number, **metadata} for number in range(len(names))],
        [f"text of {name}" for name in names] if texts else None,
    )


def made(store: ChromaStore, name: str = "guide") -> str:
    return store.create_collection(name, space="cosine", metadata={"embedding_model": "m"})


def read(store: ChromaStore, collection_id: str, names: list[str]) -> list[StoredRow]:
    """Return the existing rows among these names, with their vectors."""
    pages = store.read_pages(collection_id, bindings.BATCH, among=names, with_vectors=True)
    return [row for page in pages for row in page]


def test_rows_come_and_go(store):
    guide = made(store)
    store.add_rows(guide, rows(["a", "b", "c"]))
    assert sorted(store.list_ids(guide)) == ["a", "b", "c"]
    assert [row.id for row in read(store, guide, ["b", "nobody"])] == ["b"]
    store.delete_rows(guide, ["b", "nobody"])
    store.delete_rows(guide, [])
    assert sorted(store.list_ids(guide)) == ["a", "c"]
    assert read(store, guide, []) == []


def test_row_that_was_deleted_can_be_added_again(store):
    guide = made(store)
    store.add_rows(guide, rows(["a"], state="old"))
    store.delete_rows(guide, ["a"])
    store.add_rows(guide, rows(["a"], state="new"))
    assert list_passing_ids(store, guide, {"state": "new"}) == {"a"}
    assert list_passing_ids(store, guide, {"state": "old"}) == set()


def test_more_rows_than_one_call_takes_come_back_whole(store):
    guide = made(store)
    names = [f"document {number}" for number in range(bindings.BATCH + 300)]
    store.add_rows(guide, rows(names, texts=False))
    assert sorted(store.list_ids(guide)) == sorted(names)
    assert sorted(row.id for row in read(store, guide, names)) == sorted(names)
    assert len(list_passing_ids(store, guide, {"number": {"$gte": 100}})) == len(names) - 100
    store.delete_rows(guide, names[:-2])
    assert sorted(store.list_ids(guide)) == sorted(names[-2:])


def test_vectors_are_read_by_the_names_of_their_rows(store):
    guide = made(store)
    store.add_rows(guide, rows(["a", "b", "c"]))
    content = read(store, guide, ["c", "a", "nobody"])
    assert {row.id: struct.pack("<4f", *row.vector) for row in content} == {"a": vector(0), "c": vector(2)}
    assert all(type(number) is float for row in content for number in row.vector)


def test_filters_on_metadata_and_text(store):
    guide = made(store)
    store.add_rows(guide, rows(["a", "b"], state="open"))
    store.add_rows(guide, rows(["c"]))
    assert list_passing_ids(store, guide, {"state": "open"}) == {"a", "b"}
    assert list_passing_ids(store, guide, {"state": {"$ne": "open"}}) == {"c"}
    assert list_passing_ids(store, guide, None, {"$contains": "of b"}) == {"b"}
    assert list_passing_ids(store, guide, {"state": "open"}, {"$not_contains": "of b"}) == {"a"}


def test_unicode_and_lists_survive(store):
    guide = made(store)
    store.add_rows(
        guide, rows(["Füße/🦉_chunk_0", "C:\\new\n"], tags=["ä", "🦉"], numbers=[1, 2], flags=[True], key="naïve")
    )
    assert sorted(store.list_ids(guide)) == ["C:\\new\n", "Füße/🦉_chunk_0"]
    assert len(list_passing_ids(store, guide, {"tags": {"$contains": "🦉"}})) == 2
    assert list_passing_ids(store, guide, None, {"$contains": "🦉"}) == {"Füße/🦉_chunk_0"}


def test_collections_are_listed_described_and_dropped(store):
    assert store.list_collection_ids() == {}
    one, two = made(store, "one-collection"), made(store, "two-collection")
    store.replace_metadata(one, {"revision": "r1"})
    assert store.list_collection_ids() == {"one-collection": one, "two-collection": two}
    store.add_rows(one, rows(["a"]))
    store.drop_collection("one-collection")
    assert store.list_collection_ids() == {"two-collection": two}
    again = made(store, "one-collection")
    assert (again != one, store.list_ids(again)) == (True, [])


def test_collection_keeps_hnsw_configuration_when_described_again(store):
    one = store.create_collection("one-collection", space="ip", metadata={"a": "b"}, hnsw={"max_neighbors": 32})
    store.replace_metadata(one, {"number": 1, "half": 0.5, "yes": True})
    expected = {"space": "ip", "max_neighbors": 32, "ef_construction": 100, "ef_search": 100}
    assert expected.items() <= hnsw_of(store, "one-collection").items()


def test_more_collections_than_a_page_holds_are_all_listed(store):
    names = {f"collection-{number}" for number in range(120)}
    assert {name: made(store, name) for name in names} == store.list_collection_ids()


@pytest.mark.parametrize("unknown", ["00000000-0000-0000-0000-000000000000", "nonsense"])
def test_unknown_collection_is_an_index_failure(store, unknown):
    for action in (
        lambda: store.list_ids(unknown),
        lambda: store.add_rows(unknown, rows(["a"])),
        lambda: store.delete_rows(unknown, ["a"]),
        lambda: store.drop_collection(unknown),
    ):
        with pytest.raises(IndexFailed):
            action()


def test_collection_is_not_made_twice(store):
    made(store)
    with pytest.raises(IndexFailed, match="guide"):
        made(store)


def test_public_client_reads_and_changes_a_store(tmp_path):
    import chromadb

    first = open_store(tmp_path)
    guide = made(first)
    first.add_rows(guide, rows(["a", "b"], state="open"))
    first.close()
    client = chromadb.PersistentClient(str(tmp_path), settings=chromadb.Settings(anonymized_telemetry=False))
    (public,) = client.list_collections()
    assert (public.name, str(public.id), public.metadata) == ("guide", guide, {"embedding_model": "m"})
    value = public.get(where={"state": "open"}, where_document={"$contains": "of b"}, include=["embeddings"])
    assert value["ids"] == ["b"]
    assert value["embeddings"].tolist() == [list(struct.unpack("<4f", vector(1)))]
    public.delete(ids=["a"])
    public.add(ids=["c"], embeddings=[[1.0, 0.0, 0.0, 2.0]], documents=["text of c"], metadatas=[{"number": 2}])
    client.close()
    again = open_store(tmp_path)
    assert again.list_collection_ids() == {"guide": guide}
    assert list(again.read_texts(guide)) == [
        ("b", "text of b", {"number": 1, "state": "open"}),
        ("c", "text of c", {"number": 2}),
    ]
    assert [list(row.vector) for row in read(again, guide, ["c"])] == [[1.0, 0.0, 0.0, 2.0]]
    again.close()


def test_closed_store_can_be_renamed_copied_and_opened_again(tmp_path):
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("open files are listed in /proc only")
    home = tmp_path / "home"
    home.mkdir()
    one = open_store(home)
    guide = made(one)
    one.add_rows(guide, rows(["a"]))
    assert open_files(home)
    one.close()
    deadline = time.monotonic() + 5  # the bindings' worker threads close the last handles about a millisecond later
    while open_files(home) and time.monotonic() < deadline:
        time.sleep(0.001)
    assert open_files(home) == []
    home.rename(tmp_path / "moved")
    shutil.copytree(tmp_path / "moved", home)
    for place in (home, tmp_path / "moved"):
        again = open_store(place)
        assert again.list_ids(guide) == ["a"]
        again.add_rows(guide, rows(["b"]))
        again.close()


def test_folder_that_holds_no_store_is_an_index_failure(tmp_path):
    (tmp_path / bindings.DATABASE_FILE).write_bytes(b"no database at all, but long enough to be looked at" * 100)
    with pytest.raises(IndexFailed):
        open_store(tmp_path)


NEEDED = next(
    text
    for text in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["chroma"]
    if text.startswith("chromadb")
)


def installed(folder: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Python find a chromadb of this version first; an empty one has no metadata."""
    (folder / "chromadb").mkdir()
    (folder / "chromadb" / "__init__.py").touch()
    if version:
        (folder / f"chromadb-{version}.dist-info").mkdir()
    monkeypatch.delitem(sys.modules, "chromadb", raising=False)
    monkeypatch.syspath_prepend(folder)


@pytest.mark.parametrize("version", ["0.6.3", "1.5.3", "1.5.39", "1.5.4", "1.5.10", "1.50.4", "1.6.0", "2.0.0"])
@pytest.mark.sample(3)
def test_store_opens_with_exactly_the_versions_that_the_package_requires(tmp_path, monkeypatch, version):
    installed(tmp_path, version, monkeypatch)
    required = SpecifierSet(NEEDED.removeprefix("chromadb")).contains(version)
    with contextlib.nullcontext() if required else pytest.raises(IndexExtraMissing):
        open_store(tmp_path).close()


@pytest.mark.parametrize(("version", "named"), [("1.6.0", "chromadb 1.6.0"), ("", "chromadb of an unknown version")])
def test_error_for_unsupported_chroma_names_the_version_and_install_command(tmp_path, monkeypatch, version, named):
    installed(tmp_path, version, monkeypatch)
    with pytest.raises(IndexExtraMissing) as caught:
        open_store(tmp_path)
    assert caught.value.message == f"Chroma's store needs {NEEDED}, but {named} is installed."
    assert caught.value.hint == f"run 'pip install \"{NEEDED}\"' to install it"


def test_bindings_that_cannot_be_imported_are_an_error_that_names_them(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "chromadb_rust_bindings", None)
    with pytest.raises(
        IndexExtraMissing, match=r"cannot import chromadb, which Chroma.s store needs: .*chromadb_rust_bindings"
    ):
        open_store(tmp_path)
