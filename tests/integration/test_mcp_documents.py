"""The tools that add, get, change and delete documents."""

from __future__ import annotations

import threading
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.support import notes
from tests.support.mcp import Tools, warned
from tests.support.notes import LONG, TEXTS
from vmrag_link.engines.base import Write
from vmrag_link.models import Document
from vmrag_link.progress import QUIET
from vmrag_link.workspace import Workspace
from vmrag_mcp.call import Behaviour
from vmrag_mcp.options import ToolChoice

pytestmark = pytest.mark.hooks("off")

template, project, tools = notes.template, notes.project, notes.tools

NOTES = {"collection_name": "notes"}


def got(tools: Tools, **arguments: Any) -> dict[str, str]:
    """Ids and texts, in the order of the answer."""
    answer = tools("chroma_get_documents", **NOTES, **arguments)
    return {document["id"]: document["document"] for document in answer["documents"]}


def found(tools: Tools, text: str, **arguments: Any) -> list[str]:
    """Ids of the documents of which chunks are near to a text, best first."""
    answer = tools("chroma_query_documents", **NOTES, query_texts=[text], **arguments)
    return [match["metadata"]["source_id"] for match in answer["results"][0]["matches"]]


def metadata_of(tools: Tools, doc_id: str) -> dict[str, Any]:
    [document] = tools("chroma_get_documents", **NOTES, ids=[doc_id])["documents"]
    return document["metadata"]


def dirty(tools: Tools) -> bool:
    return bool(tools("chroma_get_collection_count", **NOTES)["kb"]["dirty"])


# -- adding ----------------------------------------------------------------------------------------


def test_added_documents_are_found_before_any_commit(tools):
    added = tools("chroma_add_documents", **NOTES, documents=["owls hunt at night", LONG], ids=["owl", "long"])
    assert (added["documents_added"], added["ids"], added["kb"]["dirty"]) == (2, ["owl", "long"], True)
    assert added["chunks_created"] > 2
    assert "dolt_commit" in added["message"]
    assert found(tools, "owls hunt at night")[0] == "owl"


def test_document_without_an_id_gets_a_uuid(tools):
    one, other = tools("chroma_add_documents", **NOTES, documents=["x", "y"])["ids"]
    assert one != other
    assert uuid.UUID(one).version == uuid.UUID(other).version == 4


def test_invalid_item_rejects_the_batch(tools):
    for code, wrong, details in (
        ("DUPLICATE_ID", {"ids": ["fresh", "a"]}, {"ids": ["a"]}),
        ("DUPLICATE_ID", {"ids": ["same", "same"]}, {"ids": ["same"]}),
        ("LENGTH_MISMATCH", {"ids": ["one"]}, {}),
        ("LENGTH_MISMATCH", {"metadatas": [{}, {}, {}]}, {}),
        ("INVALID_METADATA", {"metadatas": [{}, {"source_id": "z"}]}, {}),
        ("INVALID_METADATA", {"metadatas": [{}, {"tags": ["x"]}]}, {}),
        ("INVALID_METADATA", {"metadatas": [{}, {"deep": {"x": 1}}]}, {}),
        ("INVALID_METADATA", {"metadatas": [{}, {"n": float("nan")}]}, {}),
        ("INVALID_METADATA", {"metadatas": [{}, {"n": 2**70}]}, {}),
        ("INVALID_METADATA", {"metadatas": [{}, {"n": "\ud800"}]}, {}),
        ("INVALID_NAME", {"ids": ["fine", "\n"]}, {}),
        ("INVALID_PARAMETER", {"documents": ["fine", ""]}, {"parameter": "documents"}),
        ("COLLECTION_NOT_FOUND", {"collection_name": "absent"}, {"collection_name": "absent", "branch": "main"}),
    ):
        error = tools.error(code, "chroma_add_documents", **(NOTES | {"documents": ["x", "y"]} | wrong))
        assert details.items() <= error["details"].items()
    assert (got(tools), dirty(tools)) == (TEXTS, False)


def test_second_concurrent_add_of_an_id_is_rejected(project):
    calls = [Tools(project.top) for _ in range(2)]
    outcomes: list[tuple[dict[str, Any], bool]] = []

    def add(number: int) -> None:
        arguments = {**NOTES, "documents": [f"text {number}"], "ids": ["same"]}
        outcomes.append(calls[number].run("chroma_add_documents", arguments))

    threads = [threading.Thread(target=add, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(failed for _, failed in outcomes) == [False, True]
    assert next(result["code"] for result, failed in outcomes if failed) == "DUPLICATE_ID"


def test_title_comes_from_metadata_then_heading_then_beginning_of_text(project, tools):
    for doc_id, text, metadata, title in (
        ("w", "# Heading\n\ntext", {"title": "Stated"}, "Stated"),
        ("x", "Some words\n\n# Heading\n\ntext", {}, "Heading"),
        ("y", "no heading\n" + "word " * 40, {}, ("no heading " + "word " * 40)[:80]),
        ("z", "plain", {"title": 5}, "plain"),
    ):
        tools("chroma_add_documents", **NOTES, documents=[text], ids=[doc_id], metadatas=[metadata])
        assert project.ask("show", f"notes/{doc_id}")["title"] == title


def test_metadata_are_returned_unchanged(tools):
    metadata = {"text": "Füße 🦉", "n": -1, "x": 2.5, "yes": True, "nothing": None, "title": "T", "": "no name"}
    tools("chroma_add_documents", **NOTES, documents=["x", "y"], ids=["x", "y"], metadatas=[metadata, {}])
    assert metadata_of(tools, "x") == metadata
    assert metadata_of(tools, "y") == {}


def test_text_of_five_megabytes_is_returned_completely(project):
    tools = Tools(project.top, behaviour=Behaviour(page_chars=1_000))
    text = "".join(f"Line {number} of a long text.\n" for number in range(200_000))
    assert len(text) > 5_000_000
    tools("chroma_add_document_with_id", **NOTES, document=text, id="long", increment_index=False)
    assert got(tools, ids=["long"]) == {"long": text}


def test_every_part_of_a_long_text_is_found(tools):
    words = [f"zebra{number}" for number in range(20)]
    text = "\n\n".join(f"{word} crosses the savannah.\n\n{'Nothing happens here. ' * 60}" for word in words)
    tools("chroma_add_documents", **NOTES, documents=[text], ids=["long"])
    for word in words:
        assert found(tools, "savannah", where_document={"$contains": f"{word} "}, n_results=1) == ["long"]


# -- getting ---------------------------------------------------------------------------------------


def test_documents_come_in_the_order_of_the_ids_else_sorted(tools):
    assert list(got(tools, ids=["c", "a", "c"])) == ["c", "a"]
    assert got(tools) == TEXTS


def test_unknown_ids_are_listed_with_the_known_documents(tools):
    answer = tools("chroma_get_documents", **NOTES, ids=["a", "nobody", "a_chunk_7"])
    assert [document["id"] for document in answer["documents"]] == ["a"]
    assert (answer["missing_ids"], answer["total_matching"]) == (["nobody", "a_chunk_7"], 1)


def test_ids_and_filters_must_all_hold(tools):
    answer = tools(
        "chroma_get_documents",
        **NOTES,
        ids=["a", "c", "x"],
        where={"n": {"$gte": 2}},
        where_document={"$contains": "rivers"},
    )
    assert [document["id"] for document in answer["documents"]] == ["c"]
    assert (answer["total_matching"], answer["missing_ids"], answer["has_more"]) == (1, ["x"], False)


def test_filters_on_metadata(tools):
    for where, expected in (
        ({"n": 2}, ["b"]),
        ({"n": {"$gte": 2, "$lt": 3}}, ["b"]),
        ({"n": {"$gt": 1}, "title": {"$ne": "beta mountains"}}, ["c"]),
        ({"$and": [{"n": 1}]}, ["a"]),
        ({"source_id": "c"}, ["c"]),
        ('{"n": {"$in": [1, 3]}}', ["a", "c"]),
        ({"absent": {"$ne": 1}}, ["a", "b", "c"]),
        ({}, ["a", "b", "c"]),
    ):
        assert list(got(tools, where=where)) == expected


def test_filters_apply_to_whole_documents(tools):
    tools("chroma_add_documents", **NOTES, documents=[LONG], ids=["long"])
    assert list(got(tools, where_document={"$not_contains": "Paragraph 39"})) == ["a", "b", "c"]
    both = {"$and": [{"$contains": "Paragraph 0 "}, {"$contains": "Paragraph 39"}]}
    assert list(got(tools, where_document=both)) == ["long"]
    assert list(got(tools, where_document={"$regex": "(?s)Paragraph 0 .*Paragraph 39"})) == ["long"]


@pytest.mark.parametrize("tool", ["chroma_get_documents", "chroma_delete_documents"])
def test_malformed_filter_is_refused(tools, tool):
    for wrong in (
        {"where": {"n": {"$near": 1}}},
        {"where_document": {"$near": "x"}},
        {"where_document": {"$regex": "("}},
    ):
        tools.error("INVALID_FILTER", tool, **NOTES, **wrong)
    assert got(tools) == TEXTS


def test_pages_together_are_the_collection(tools):
    tools("chroma_add_documents", **NOTES, documents=["x"] * 8, ids=[f"d{number}" for number in range(8)])
    seen, offset, more = [], 0, True
    while more:
        page = tools("chroma_get_documents", **NOTES, limit=3, offset=offset, include=[])
        assert page["total_matching"] == 11
        assert all(document.keys() == {"id"} for document in page["documents"])
        seen += [document["id"] for document in page["documents"]]
        assert ("more with offset=" in page["message"]) is page["has_more"]
        assert not page["has_more"] or page["message"].endswith(f"more with offset={len(seen)}.")
        offset, more = len(seen), page["has_more"]
    assert seen == ["a", "b", "c", *(f"d{number}" for number in range(8))]
    assert tools("chroma_get_documents", **NOTES, offset=50)["documents"] == []


def test_page_ends_before_its_texts_exceed_the_limit(project):
    tools = Tools(project.top, behaviour=Behaviour(page_chars=30))
    page = tools("chroma_get_documents", **NOTES)
    assert [document["id"] for document in page["documents"]] == ["a", "b"]
    assert page["has_more"]
    assert "offset=2" in page["message"]
    rest = tools("chroma_get_documents", **NOTES, offset=2)
    assert ([document["id"] for document in rest["documents"]], rest["has_more"]) == (["c"], False)
    assert len(tools("chroma_get_documents", **NOTES, include=["metadatas"])["documents"]) == 3


def test_only_included_fields_are_shown(tools):
    [document] = tools("chroma_get_documents", **NOTES, ids=["a"], include=["ids", "metadatas"])["documents"]
    assert document == {"id": "a", "metadata": {"n": 1}}


def test_vector_of_each_chunk_is_returned_on_request(tools):
    tools("chroma_add_documents", **NOTES, documents=[LONG], ids=["long"])
    rows = tools("chroma_get_documents", **NOTES, ids=["long", "a", "long_chunk_1"], include=["embeddings"])[
        "documents"
    ]
    vectors = {row["id"]: row["embedding"] for row in rows}
    assert len(vectors["long"]) > 2
    assert (len(vectors["a"]), len(vectors["a"][0])) == (1, 256)
    assert vectors["long_chunk_1"] == [vectors["long"][1]]


def test_chunks_id_gives_that_chunk_unless_a_document_is_called_so(tools):
    tools("chroma_add_documents", **NOTES, documents=[LONG, "another"], ids=["long", "long_chunk_1"])
    rows = tools("chroma_get_documents", **NOTES, ids=["long_chunk_0", "long_chunk_1", "long_chunk_00"])
    chunk, document = rows["documents"]
    assert LONG.startswith(chunk["document"])
    assert chunk["metadata"].items() >= {"source_id": "long", "chunk_index": 0, "collection": "notes"}.items()
    assert document["document"] == "another"
    assert rows["missing_ids"] == ["long_chunk_00"]


def test_get_without_embeddings_needs_no_index(project, tools):
    damaged = list(project.shared.glob("segments/*/*.*"))
    assert damaged
    for path in damaged:
        path.write_bytes(b"\1" * path.stat().st_size)
    assert got(tools, ids=["a"], where={"n": 1}, where_document={"$contains": "alpha"}) == {"a": TEXTS["a"]}


def test_peeking_cuts_texts_and_shows_each_document_once(tools):
    tools("chroma_add_documents", **NOTES, documents=[LONG], ids=["0"])
    seen = tools("chroma_peek_collection", **NOTES, limit=2)
    first, second = seen["documents"]
    assert first == {"id": "0", "document": LONG[:500], "metadata": {}, "truncated": True}
    assert second == {"id": "a", "document": TEXTS["a"], "metadata": {"n": 1}, "truncated": False}
    assert str(seen).count(TEXTS["a"]) == 1
    assert (seen["total_in_collection"], seen["limit"]) == (4, 2)
    large = tools("chroma_peek_collection", **NOTES, limit=100)
    assert (large["limit"], warned(large)) == (20, {"IGNORED_SETTING"})


def test_message_names_an_available_tool_for_the_next_page(project, tools):
    assert tools("chroma_add_documents", **NOTES, documents=["x"])["message"].endswith("; dolt_commit keeps them.")
    alone = Tools(project.top, chosen=ToolChoice(toolsets="chroma"))
    assert alone("chroma_add_documents", **NOTES, documents=["y"])["message"] == "1 document added to 'notes'."
    prefixed = Tools(project.top, chosen=ToolChoice(prefix="kb_"))
    assert "; kb_dolt_commit keeps" in prefixed("kb_chroma_add_documents", **NOTES, documents=["z"])["message"]


def test_character_that_cannot_be_stored_is_named_with_its_place(tools):
    refused = tools.error("INVALID_PARAMETER", "chroma_add_documents", **NOTES, documents=["fine", "not\0fine"])
    assert refused["message"].startswith("documents[1] contains a NUL at character 4")


def test_branchs_name_behind_a_collections_is_understood(tools):
    answer = tools("chroma_get_documents", collection_name="notes_main", ids=["a"])
    assert answer["collection_name"] == "notes"


# -- changing --------------------------------------------------------------------------------------


def test_null_leaves_that_part_alone(tools):
    answer = tools(
        "chroma_update_documents", **NOTES, ids=["a", "b"], documents=["new", None], metadatas=[None, {"x": 2}]
    )
    assert answer["ids"] == ["a", "b"]
    assert (got(tools, ids=["a", "b"]), metadata_of(tools, "a")) == ({"a": "new", "b": TEXTS["b"]}, {"n": 1})


def test_update_with_equal_content_is_unchanged(tools):
    answer = tools("chroma_update_documents", **NOTES, ids=["a"], documents=[TEXTS["a"]], metadatas=[{"n": 1}])
    assert (answer["documents_updated"], answer["ids"], answer["unchanged_ids"]) == (0, [], ["a"])
    assert not dirty(tools)
    answer = tools("chroma_update_documents", **NOTES, ids=["a", "b"], documents=[TEXTS["a"], "new"])
    assert (answer["documents_updated"], answer["ids"], answer["unchanged_ids"]) == (1, ["b"], ["a"])


def test_update_that_is_refused_writes_nothing(tools):
    for code, wrong, details in (
        ("DOCUMENT_NOT_FOUND", {"ids": ["a", "absent"]}, {"ids": ["absent"]}),
        ("DOCUMENT_NOT_FOUND", {"ids": ["a", "a_chunk_1"]}, {"ids": ["a_chunk_1"]}),
        ("LENGTH_MISMATCH", {"documents": ["x"]}, {}),
        ("LENGTH_MISMATCH", {"metadatas": [{}]}, {}),
        ("INVALID_METADATA", {"metadatas": [{}, {"tags": ["x"]}]}, {}),
        ("INVALID_PARAMETER", {"documents": None}, {}),
        ("COLLECTION_NOT_FOUND", {"collection_name": "absent"}, {"branch": "main"}),
    ):
        given = NOTES | {"ids": ["a", "b"], "documents": ["x", "y"]} | wrong
        error = tools.error(code, "chroma_update_documents", **given)
        assert details.items() <= error["details"].items()
    assert (got(tools), dirty(tools)) == (TEXTS, False)


def test_chunks_id_means_its_document(tools):
    tools("chroma_add_documents", **NOTES, documents=[LONG], ids=["long"])
    answer = tools("chroma_update_documents", **NOTES, ids=["long_chunk_1"], metadatas=[{"x": 1}])
    assert (answer["ids"], metadata_of(tools, "long")) == (["long"], {"x": 1})
    gone = tools("chroma_delete_documents", **NOTES, ids=["long_chunk_0", "long_chunk_99"])
    assert (gone["ids_deleted"], gone["missing_ids"]) == (["long"], ["long_chunk_99"])


def test_title_follows_its_source(project, tools):
    tools("chroma_add_documents", **NOTES, documents=["# One"], ids=["x"])
    tools("chroma_update_documents", **NOTES, ids=["x"], documents=["# Two"])
    assert project.ask("show", "notes/x")["title"] == "Two"
    tools("chroma_update_documents", **NOTES, ids=["x"], metadatas=[{"title": "Stated"}])
    assert project.ask("show", "notes/x")["title"] == "Stated"
    project.vmrag("add", "-", "--collection", "notes", "--id", "y", "--title", "Given by hand", stdin="# One")
    tools("chroma_update_documents", **NOTES, ids=["y"], documents=["# Two"])
    assert project.ask("show", "notes/y")["title"] == "Given by hand"


def test_update_keeps_concurrent_writes_of_another_process(project, monkeypatch):
    """Another process stores a new text between reading a document and storing it."""
    tools, ws = Tools(project.top), Workspace.open(project.top, QUIET)
    tools("chroma_add_documents", **NOTES, documents=["before"], ids=["x"])
    from vmrag_link.workspace.pins import kb_branches

    prepare = kb_branches.prepare_branch

    def interrupted(*arguments: Any) -> str:
        monkeypatch.setattr(kb_branches, "prepare_branch", prepare)
        [row] = ws.engine.read_documents(ws.locate_documents(), collection="notes", ids=["x"])
        changed = Document(**{field: getattr(row, field) for field in row.__struct_fields__} | {"content": "meanwhile"})
        ws.engine.write("main", Write(put_documents=[changed]), expected=ws.require_revision())
        return prepare(*arguments)

    monkeypatch.setattr(kb_branches, "prepare_branch", interrupted)
    tools("chroma_update_documents", **NOTES, ids=["x"], metadatas=[{"m": 1}])
    ws.close()
    assert (got(tools, ids=["x"]), metadata_of(tools, "x")) == ({"x": "meanwhile"}, {"m": 1})


# -- embeddings of one's own -----------------------------------------------------------------------


def embedding_of(tools: Tools, doc_id: str) -> list[float]:
    [document] = tools("chroma_get_documents", **NOTES, ids=[doc_id], include=["embeddings"])["documents"]
    [vector] = document["embedding"]
    return vector


@pytest.fixture
def swapped(tools: Tools) -> list[float]:
    """`b` gets the embedding of `a`, three times as long; returns what it had."""
    before, other = embedding_of(tools, "b"), embedding_of(tools, "a")
    answer = tools(
        "chroma_update_documents", **NOTES, ids=["b", "c"], embeddings=[[3 * number for number in other], None]
    )
    assert (warned(answer), answer["ids"], answer["unchanged_ids"]) == ({"CUSTOM_EMBEDDING"}, ["b"], ["c"])
    return before


def test_given_embedding_counts_at_once_though_no_document_has_changed(tools, swapped):
    assert not dirty(tools)
    assert found(tools, TEXTS["a"], n_results=2) == ["a", "b"]
    assert embedding_of(tools, "b") == pytest.approx(embedding_of(tools, "a"))
    assert got(tools) == TEXTS


def test_given_embedding_survives_other_changes_on_the_working_copy(project, tools, swapped):
    tools("chroma_add_documents", **NOTES, documents=["owls"], ids=["owl"])
    tools("chroma_delete_documents", **NOTES, ids=["c"])
    assert embedding_of(tools, "b") == pytest.approx(embedding_of(tools, "a"))
    project.git("switch", "-q", "-c", "elsewhere")
    project.vmrag("status", code=None)
    project.git("switch", "-q", "main")
    assert embedding_of(tools, "b") == pytest.approx(embedding_of(tools, "a"))


def test_commit_and_a_rebuild_have_the_embeddings_of_the_texts(project, tools, swapped):
    project.vmrag("sync", "--rebuild")
    assert embedding_of(tools, "b") == pytest.approx(swapped)
    other = embedding_of(tools, "a")
    tools("chroma_update_documents", **NOTES, ids=["b"], embeddings=[other], documents=["changed, too"])
    assert embedding_of(tools, "b") == pytest.approx(other)
    project.vmrag("commit", "-m", "changed")
    project.git("commit", "-q", "-m", "changed")
    assert embedding_of(tools, "b") != pytest.approx(other)
    assert found(tools, "changed, too")[0] == "b"
    assert project.consistent()


def test_embedding_that_cannot_be_is_refused(tools):
    tools("chroma_add_documents", **NOTES, documents=[LONG], ids=["long"])
    fine = embedding_of(tools, "a")
    for doc_id, wrong in (
        ("a", [1.0, 2.0]),
        ("a", [0.0] * 256),
        ("a", [float("nan")] * 256),
        ("a", [1e200] * 256),
        ("long", fine),
    ):
        arguments = {**NOTES, "ids": [doc_id, "b"], "documents": [None, "x"], "embeddings": [wrong, None]}
        error = tools.error("INVALID_PARAMETER", "chroma_update_documents", **arguments)
        assert error["details"]["parameter"] == "embeddings"
    assert got(tools, ids=["b"]) == {"b": TEXTS["b"]}


# -- deleting --------------------------------------------------------------------------------------


def test_selectors_must_all_hold(tools):
    gone = tools(
        "chroma_delete_documents", **NOTES, ids=["a", "b"], where={"n": 1}, where_document={"$contains": "alpha"}
    )
    assert gone["ids_deleted"] == ["a"]
    gone = tools("chroma_delete_documents", **NOTES, where={"n": {"$gt": 7}})
    assert (gone["documents_deleted"], list(got(tools))) == (0, ["b", "c"])


def test_get_without_a_selection_is_rejected(tools):
    for nothing in ({}, {"where": {}}, {"ids": [], "where_document": {}}, {"where": "{}"}):
        tools.error("NO_SELECTION", "chroma_delete_documents", **NOTES, **nothing)
    assert got(tools) == TEXTS


# -- an index that cannot follow -------------------------------------------------------------------


def test_reading_does_not_write(project, tools):
    before = Path(project.shared / "kb").stat().st_mtime_ns
    got(tools)
    found(tools, "rivers")
    assert Path(project.shared / "kb").stat().st_mtime_ns == before
