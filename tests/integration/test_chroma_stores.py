"""Chroma's stores of sealed indexes: made from nothing or from another store, compared, handed out,
removed.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from tests.support import knowledge
from tests.support.bits import flip
from tests.support.chroma import hnsw_of, needs_chroma
from tests.support.knowledge import Knowledge, child, collection, doc, end, said
from vmrag_link.chroma import build as building
from vmrag_link.chroma import check, stores
from vmrag_link.chroma.bindings import BATCH, RowBatch, open_store
from vmrag_link.chroma.build import BuiltStore
from vmrag_link.chroma.open_index import OpenIndex
from vmrag_link.chroma.stores import Stores
from vmrag_link.embedding.base import make_uniform_vector
from vmrag_link.embedding.cache import embed_texts
from vmrag_link.errors import IndexFailed
from vmrag_link.index import directories, view
from vmrag_link.index.reader import IndexReader
from vmrag_link.index.seal import SEAL
from vmrag_link.index.view import IndexedCollection
from vmrag_link.models import content_hash

kb = knowledge.kb


def shelf(kb: Knowledge, *, store_documents: bool = True) -> Stores:
    return Stores(kb.folder / "chroma", store_documents=store_documents)


def problem(kept: Stores, path: Path, index: Path) -> str:
    return kept.find_problem(path, lambda: view.read_unembedded(index))


def vectors(kb: Knowledge):
    def of(_: IndexReader, held: IndexedCollection, texts: Mapping[int, str]) -> Mapping[int, bytes]:
        model = kb.model_for(held.collection)
        result, _ = embed_texts(kb.cache, model, {content_hash(text): text for text in texts.values()})
        return {row: result[content_hash(text)] for row, text in texts.items()}

    return of


def make(kb: Knowledge, revision: str, *, folder: Path | None = None, **given) -> BuiltStore:
    kept = given.pop("kept", None) or shelf(kb)
    kept.root.mkdir(exist_ok=True)
    with contextlib.closing(OpenIndex(folder or kb.views.view_path(revision))) as index:
        return building.build_store(
            kept, index, kept.store_path(revision), vectors=given.pop("vectors", vectors(kb)), **given
        )


def held(path: Path) -> dict[str, dict[str, tuple[str | None, dict, list[float]]]]:
    """Everything that a store holds, by collection and id."""
    with contextlib.closing(open_store(path)) as store:
        return {
            name: {row.id: (row.text, row.metadata, list(row.vector)) for row in page_rows(store, value)}
            for name, value in store.list_collection_ids().items()
        }


def page_rows(store, collection_id: str):
    for page in store.read_pages(collection_id, BATCH, with_vectors=True):
        yield from page


def grown(kb: Knowledge) -> tuple[str, str]:
    """Two revisions with their views: documents changed, added and removed, a collection
    redefined and one new.
    """
    rows = [doc(f"d{n}", f"text number {n}", title=f"t{n}", metadata={"even": n % 2 == 0}) for n in range(20)]
    old = [doc(f"o{n}", f"old {n}", collection="old") for n in range(3)]
    first = kb.commit(
        *rows,
        *old,
        doc("x", "x", collection="shape"),
        collections=[collection(), collection("old"), collection("shape")],
    )
    kb.index(first)
    changed = [
        doc("d1", "another text"),
        doc("d2", "text number 2", title="renamed"),
        doc("d3", "text number 3"),
        doc("new"),
    ]
    second = kb.commit(
        *changed,
        doc("y", collection="late"),
        collections=[collection("late"), collection("shape", metadata='{"hnsw:M":8,"team":"core"}')],
        remove=[("guide", "d4")],
        drop=["old"],
    )
    kb.index(second, base=first)
    return first, second


def test_store_has_the_rows_of_the_index_with_model_vectors(kb):
    first, _ = grown(kb)
    made = make(kb, first)
    assert (made.how, made.added, made.removed) == ("fresh", 24, 0)
    result = held(made.path)
    assert {name: len(rows) for name, rows in result.items()} == {"guide": 20, "old": 3, "shape": 1}
    text, metadata, vector = result["guide"]["d7_chunk_0"]
    assert (text, metadata["title"], metadata["even"], metadata["source_id"]) == ("text number 7", "t7", False, "d7")
    model = kb.model_for(collection())
    [expected] = model.embed(["text number 7"])

    assert vector == pytest.approx(array.array("f", expected).tolist(), abs=1e-6)
    assert make(kb, first).how == "reused"


def test_derived_store_equals_a_new_one(kb, tmp_path):
    first, second = grown(kb)
    make(kb, first)
    made = make(kb, second)
    assert made.how == "delta"
    assert (made.added, made.removed) == (4 + 2, 4)
    alone = Stores(tmp_path / "alone", store_documents=True)
    fresh = make(kb, second, kept=alone)
    assert fresh.how == "fresh"
    assert held(made.path) == held(fresh.path)
    with contextlib.closing(open_store(made.path)) as store:
        assert {
            collection.name: collection.metadata["revision"] for collection in store.describe_collections()
        } == dict.fromkeys(["guide", "late", "shape"], second)
        assert hnsw_of(store, "shape")["max_neighbors"] == 8
    back = make(kb, first, kept=Stores(tmp_path / "alone", store_documents=True))
    assert back.how == "delta"
    assert held(back.path) == held(shelf(kb).store_path(first))


def test_store_with_mostly_removed_rows_is_rebuilt(kb):
    revision = kb.commit(*[doc(f"d{n}", "first") for n in range(6)], collections=[collection()])
    kb.index(revision)
    make(kb, revision)
    hows = []
    for text in ("second", "third", "fourth", "fifth"):
        kb.commit(*[doc(f"d{n}", text) for n in range(2)])
        kb.index(kb.head)
        hows.append(make(kb, kb.head).how)
        shelf(kb).evict_spare(needed=lambda: [shelf(kb).store_path(kb.head)])
    assert hows == ["delta", "delta", "fresh", "delta"]


def test_stores_with_and_without_texts_differ(kb):
    first, _ = grown(kb)
    bare = shelf(kb, store_documents=False)
    made = make(kb, first, kept=bare)
    assert {text for text, *_ in held(made.path)["guide"].values()} == {None}
    assert made.path != shelf(kb).store_path(first)
    assert problem(bare, made.path, kb.views.view_path(first)) == ""
    assert make(kb, first).how == "fresh"


pytestmark = needs_chroma


@pytest.mark.parametrize("damage", ["the database", "an index file", "what it was made of", "the seal"])
@pytest.mark.sample(2)
def test_from_a_damaged_store_no_other_one_is_made(kb, damage):
    many = [doc(f"d{n}", f"text {n}") for n in range(1_100)]  # enough for Chroma to write its HNSW index out
    first = kb.commit(*many, collections=[collection()])
    kb.index(first)
    base = make(kb, first).path
    second = kb.commit(doc("d1", "changed"))
    kb.index(second, base=first)
    if damage == "the database":
        with contextlib.closing(open_store(base)) as store:
            store.delete_rows(store.list_collection_ids()["guide"], ["d5_chunk_0"])
    else:
        name = {"an index file": "data_level0.bin", "what it was made of": stores.CONTENTS_FILE, "the seal": SEAL}[
            damage
        ]
        [path] = base.rglob(name)
        flip(path, path.stat().st_size // 2, 3) if damage != "the seal" else path.write_bytes(path.read_bytes()[:-9])
    made = make(kb, second)
    assert made.how == "fresh"
    assert len(held(made.path)["guide"]) == 1_100


def test_unchanged_store_is_compared_once_after_each_boot(kb):
    first, second = grown(kb)
    base = make(kb, first).path
    with contextlib.closing(open_store(base)) as store:
        guide = store.list_collection_ids()["guide"]
        [row] = [row for row in page_rows(store, guide) if row.id == "d9_chunk_0"]
        store.delete_rows(guide, [row.id])
        store.add_rows(
            guide, RowBatch([row.id], [array.array("f", row.vector).tobytes()], [row.metadata], ["another text"])
        )
    made = make(kb, second)
    assert made.how == "delta", "nothing reads all rows again for a few that changed"
    shutil.rmtree(made.path)
    sealed = msgspec.json.decode((base / SEAL).read_bytes())
    (base / SEAL).write_bytes(msgspec.json.encode(sealed | {"boot": "an earlier one"}))
    assert make(kb, second).how == "fresh"
    assert held(made.path)["guide"]["d9_chunk_0"][0] == "text number 9"


def test_vectors_that_are_not_those_of_the_index_are_refused(kb):
    first, _ = grown(kb)

    def wrong(index: IndexReader, indexed: IndexedCollection, texts: Mapping[int, str]) -> Mapping[int, bytes]:
        result = dict(vectors(kb)(index, indexed, texts))
        first = index.find_rows([("guide", "d0")])
        return result | {row: result[max(result)] for rows in first.values() for row in rows if row in result}

    with pytest.raises(IndexFailed, match="vector of 'd0_chunk_0' of 'guide'"):
        make(kb, first, vectors=wrong)
    assert [path.name for path in shelf(kb).root.iterdir() if not path.name.endswith(".lock")] == []


@pytest.mark.parametrize("change", ["text", "metadata", "missing", "extra", "collection", "vector"])
@pytest.mark.sample(3)
def test_store_comparison_finds_each_kind_of_difference(kb, change):
    first, _ = grown(kb)
    path = make(kb, first).path
    with contextlib.closing(OpenIndex(kb.views.view_path(first))) as index:
        assert check.find_difference(path, index, with_texts=True) == ""
        with contextlib.closing(open_store(path)) as store:
            guide = store.list_collection_ids()["guide"]
            [row] = [row for row in page_rows(store, guide) if row.id == "d5_chunk_0"]
            if change == "collection":
                store.drop_collection("old")
            else:
                name = {"extra": "d99_chunk_0"}.get(change, "d5_chunk_0")
                if change != "extra":
                    store.delete_rows(guide, [name])
                if change != "missing":
                    text = "other" if change == "text" else row.text
                    metadata = row.metadata | ({"even": True} if change == "metadata" else {})
                    vector = array.array("f", row.vector).tobytes()
                    if change == "vector":
                        [vector] = kb.model_for(collection()).embed(["something else"])

                    store.add_rows(guide, RowBatch([name], [vector], [metadata], [text]))
        assert check.find_difference(path, index, with_texts=True) != ""


def test_store_of_placeholders_is_rebuilt_once_the_index_has_vectors(kb):
    first, _ = grown(kb)
    copied = kb.copied(first, "without")
    with kb.draft(copied) as draft:
        draft.note_unembedded({"old": "nobody answers"})
        stand_in = make_uniform_vector(collection().embedding_dimensions)
        draft.replace_vectors("old", {f"o{n}": stand_in for n in range(3)})
        draft._given_vectors = False
        draft.publish(copied, revision=first)
    made = make(kb, first, folder=copied)
    assert problem(shelf(kb), made.path, copied) == ""
    assert "is invalid" in problem(shelf(kb), made.path, kb.folder / "gone")
    assert problem(shelf(kb), made.path, kb.views.view_path(first)) == "vectors were computed in the meantime"
    again = make(kb, first)
    assert again.how == "delta"  # from itself: two collections stay
    assert again.added == 3
    assert problem(shelf(kb), made.path, kb.views.view_path(first)) == ""


# -- kills, readers, removal -----------------------------------------------------------------------

STEPS = {
    "before anything": "building.BATCH_CHUNKS = 5; die_at = 1",
    "between batches": "building.BATCH_CHUNKS = 5; die_at = 3",
    "before it is compared": "building.check.find_difference = die",
    "before it is sealed": "building.Stores.seal_store = die",
    "before it is named": "building.Stores.move_into_place = die",
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.sample(2)
def test_leftovers_of_a_kill_are_removed_by_the_next_sweep(kb, step):
    first, second = grown(kb)
    make(kb, first)
    killed = child(
        "import signal\nfrom tests.integration.test_chroma_stores import *\n"
        "def die(*_, **__): print('there', flush=True); os.kill(os.getpid(), signal.SIGKILL)\n"
        f"die_at = 0; {STEPS[step]}\ncalls = []\n"
        "def between():\n    calls.append(1)\n    if len(calls) == die_at: die()\n"
        f"make(Knowledge(Path({str(kb.folder)!r})), {second!r}, between=between)\n"
    )
    assert said(killed) == "there"
    assert killed.wait() == -signal.SIGKILL
    kept = shelf(kb)
    assert problem(kept, kept.store_path(second), kb.views.view_path(second)) == "it does not exist"
    assert len(kept.remove_unfinished()) == 1
    assert {path.name for path in kept.root.iterdir() if path.is_dir()} == {kept.store_path(first).name}
    assert make(kb, second).how == "delta"


def test_exception_between_batches_ends_build_and_leaves_nothing(kb):
    first, _ = grown(kb)

    def stop() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        make(kb, first, between=stop)
    assert not [path for path in shelf(kb).root.iterdir() if path.is_dir()]


def test_index_removed_during_reading_is_read_to_its_end(kb):
    first, _ = grown(kb)
    folder = kb.copied(first, "soon-gone")
    with contextlib.closing(OpenIndex(folder)) as index:
        shutil.rmtree(folder)
        shutil.rmtree(kb.views.segments.root)
        kept = shelf(kb)
        kept.root.mkdir()
        made = building.build_store(kept, index, kept.store_path(first), vectors=vectors(kb))
    assert len(held(made.path)["guide"]) == 20


def test_only_unused_and_unleased_stores_are_removed(kb, monkeypatch):
    first, second = grown(kb)
    paths = [make(kb, revision).path for revision in (first, second)]
    kept = shelf(kb)
    assert kept.evict_spare(needed=lambda: paths) == []
    kept.write_lease(paths[0])
    assert kept.evict_spare(needed=lambda: [paths[1]]) == []
    old = paths[0].with_name(paths[0].name + ".lease").stat().st_mtime - stores.LEASE_SECONDS - 1
    os.utime(paths[0].with_name(paths[0].name + ".lease"), (old, old))
    with kept.lock_for_reading(paths[0]):
        assert kept.evict_spare(needed=lambda: [paths[1]]) == []
    assert kept.evict_spare(needed=lambda: [paths[1]]) == [paths[0]]
    assert not list(kept.root.glob("*.lease"))
    assert paths[1].is_dir()


def test_lease_of_a_clock_that_was_wrong_runs_out(kb):
    first, _ = grown(kb)
    path = make(kb, first).path
    kept = shelf(kb)
    kept.write_lease(path)
    later = time.time() + 10 * stores.LEASE_SECONDS
    os.utime(path.with_name(path.name + ".lease"), (later, later))
    assert kept.evict_spare(needed=list) == [path]


def test_link_in_place_of_store_is_removed_without_its_target(kb, tmp_path):
    kept = shelf(kb)
    kept.root.mkdir(parents=True, exist_ok=True)
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/file").write_text("Mine.")
    for name in ("abc-123", f"{directories.BUILDING_PREFIX}abc"):
        (kept.root / name).symlink_to(tmp_path / "precious")
    assert kept.evict_spare(needed=list) == [kept.root / "abc-123"]
    kept.remove_unfinished()
    assert [path for path in kept.root.iterdir() if path.is_symlink()] == []
    assert (tmp_path / "precious/file").read_text() == "Mine."


def test_store_that_lacks_a_file_is_rebuilt_before_use(kb):
    first, _ = grown(kb)
    path = make(kb, first).path
    index = kb.views.view_path(first)
    size = (path / stores.CONTENTS_FILE).stat().st_size
    (path / stores.CONTENTS_FILE).unlink()
    assert problem(shelf(kb), path, index) == f"{stores.CONTENTS_FILE} has -1 bytes instead of {size}"
    assert make(kb, first).how != "reused"
    assert problem(shelf(kb), path, index) == ""
    seal = msgspec.json.decode((path / SEAL).read_bytes())
    assert seal["revision"] == first


def test_any_client_reads_a_store_and_it_verifies_afterwards(kb):
    first, _ = grown(kb)
    path = make(kb, first).path
    reader = child(
        "os.chdir('/')\nimport chromadb\n"
        f"client = chromadb.PersistentClient({str(path)!r}, settings=chromadb.Settings(anonymized_telemetry=False))\n"
        "guide = client.get_collection('guide', embedding_function=None)\n"
        "print(guide.count(), guide.query(query_embeddings=[guide.get(ids=['d7_chunk_0'], include=['embeddings'])"
        "['embeddings'][0]], n_results=1)['ids'][0], guide.get(where_document={'$contains': 'number 11'})['ids'],"
        " guide.metadata['revision'], guide.get(where={'source_id': 'd3'})['documents'])\n"
    )
    assert end(reader).strip() == f"20 ['d7_chunk_0'] ['d11_chunk_0'] {first} ['text number 3']"
    assert problem(shelf(kb), path, kb.views.view_path(first)) == ""
    with contextlib.closing(OpenIndex(kb.views.view_path(first))) as index:
        assert check.find_difference(path, index, with_texts=True) == ""


# -- metadata --------------------------------------------------------------------------------------

METADATA = {
    "text": "ä", "whole": 3, "real": 1.5, "flag": True, "nothing": None, "nested": {"b": 1, "a": [None]}, "empty": [],
    "words": ["x", "y"], "numbers": [1, 2], "reals": [0.5], "flags": [True, False], "mixed": [1, "x"], "ints and flags": [1, True],
    "huge": 2**63, "list of huge": [1, 2**70], "least": -(2**63), "": "no name", "$set": 1, "#document": "x", "chroma:document": "x",
    "title": "the user's own", "nulls": [None],
}  # fmt: skip


def test_metadata_of_every_kind_reaches_chroma_as_specified(kb):
    import chromadb

    revision = kb.commit(
        doc("a", "body", title="A title", metadata=METADATA), doc("b", title="B"), collections=[collection()]
    )
    path = kb.index(revision).path
    client = chromadb.PersistentClient(str(make(kb, revision).path))
    rows = client.get_collection("guide").get()
    result = dict(zip(rows["ids"], rows["metadatas"], strict=True))
    client.close()
    content_hash = doc("a", "body").content_hash
    assert result["a_chunk_0"] == {
        "text": "ä", "whole": 3, "real": 1.5, "flag": True, "nested": '{"a":[null],"b":1}', "empty": "[]",
        "words": ["x", "y"], "numbers": [1, 2], "reals": [0.5], "flags": [True, False], "mixed": '[1,"x"]',
        "ints and flags": "[1,true]", "huge": str(2**63), "list of huge": f"[1,{2**70}]", "least": -(2**63),
        "title": "the user's own", "nulls": "[null]",
        "source_id": "a", "chunk_index": 0, "total_chunks": 1, "content_hash": content_hash, "source_table": "documents",
        "collection": "guide",
    }  # fmt: skip
    assert result["b_chunk_0"]["title"] == "B"
    [hit] = kb.search(path, "body", where={"title": "the user's own"})
    assert hit.metadata == json.loads(json.dumps(METADATA))
