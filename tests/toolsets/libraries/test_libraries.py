"""Libraries: files become documents, stay the same ones when they change, and are found."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import msgspec
import pytest

from tests.support import notes
from tests.support.mcp import Tools
from tests.support.office_files import pdf
from tests.support.terminal import Project
from tests.support.websites import Page, website
from vmrag_link.documents import library_origin
from vmrag_link.embedding.hash_model import HashModel
from vmrag_link.engines.base import Write
from vmrag_link.errors import EmbeddingFailed, FileFailed
from vmrag_link.models import content_hash
from vmrag_link.retrieval.query import Query
from vmrag_link.workspace.answers import query
from vmrag_link.workspace.documents import named_files as files
from vmrag_link.workspace.documents import writing
from vmrag_link.workspace.documents.writing import Planned

pytestmark = pytest.mark.hooks("off")

template, project, tools = notes.template, notes.project, notes.tools

GUIDE = "# Guide\n\nOwls sleep in hollow trees.\n"


@pytest.fixture
def guide(project: Project) -> Path:
    path = project.top / "docs" / "guide.md"
    path.parent.mkdir()
    path.write_text(GUIDE)
    return path


def took(tools: Tools, path: Path | str, **arguments: Any) -> dict[str, Any]:
    return tools("ingest_file", path=str(path), **arguments)


def found(tools: Tools, query: str, **arguments: Any) -> list[dict[str, Any]]:
    return tools("search", query=query, **arguments)["results"]


def test_file_is_taken_skipped_and_replaced_and_stays_one_document(tools, guide):
    first = took(tools, guide)
    assert (first["status"], first["library"], first["source"], first["chunk_count"]) == (
        "indexed",
        "default",
        str(guide),
        1,
    )
    again = took(tools, "docs/guide.md", metadata={"team": "birds"})
    assert (again["status"], again["doc_id"], again["chunk_count"]) == ("skipped", first["doc_id"], 1)
    guide.write_text(GUIDE.replace("Owls", "Bats") + "word " * 1000)
    new = took(tools, guide, metadata={"team": "bats"})
    assert (new["status"], new["doc_id"]) == ("replaced", first["doc_id"])
    assert new["chunk_count"] > 1
    whole = tools("get_document", doc_id=first["doc_id"])
    assert whole["content"] == guide.read_text()
    assert whole["title"] == "Guide"
    assert whole["metadata"] == {"team": "bats"}
    assert [document["library"] for document in tools("list_documents")["documents"]] == ["default"]
    guide.write_text(GUIDE)
    took(tools, guide)
    assert tools("get_document", doc_id=first["doc_id"])["metadata"] == {"team": "bats"}, "given before, it stays"


def test_stored_document_names_no_path_of_the_machine(tools, project, guide):
    took(tools, guide, library="handbook")
    with notes.opened(project) as ws:
        [stored] = ws.engine.read_documents(ws.locate_documents(), collection="handbook")
    assert (stored.source, stored.source_key, stored.file_type) == ("docs/guide.md", "docs/guide.md", "markdown")
    assert str(project.top) not in str(stored)
    made_of = library_origin.read_origin(stored)
    assert made_of is not None
    assert made_of.hash == content_hash(GUIDE)


def test_merge_of_two_new_versions_knows_that_it_is_neither_file(tools, project, guide):
    guide.write_text("# Guide\n\n" + "".join(f"Line {number}.\n" for number in range(20)))
    taken = took(tools, guide)
    project.vmrag("commit", "-m", "guide")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "guide")
    for branch, line in (("side", 2), ("main", 17)):
        if branch == "side":
            project.git("switch", "-q", "-c", branch)
        else:
            project.git("switch", "-q", branch)
        guide.write_text(guide.read_text().replace(f"Line {line}.", f"Written on {branch}."))
        assert took(tools, guide)["status"] == "replaced"
        project.vmrag("commit", "-m", branch)
        project.git("commit", "-q", "-a", "-m", branch)
    merged = tools("merge_branch", source="side")
    assert merged["conflicts"] == []
    text = tools("get_document", doc_id=taken["doc_id"])["content"]
    assert "Written on main." in text
    assert "Written on side." in text
    with notes.opened(project) as ws:
        [stored] = ws.engine.read_documents(ws.locate_documents(), collection="default")
    assert library_origin.read_origin(stored) is None
    assert took(tools, guide)["status"] == "replaced", "the file of this branch is another one"


# -- what may be read ------------------------------------------------------------------------------


def test_agent_reads_only_below_the_roots_despite_links(tools, project, guide, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    secret = outside / "secret.md"
    secret.write_text("# Secret\n")
    (guide.parent / "link.md").symlink_to(secret)
    (guide.parent / "folder").symlink_to(outside)
    (guide.parent / "inside.md").symlink_to(guide)
    for path in (
        secret,
        "docs/link.md",
        "docs/folder/secret.md",
        f"docs/../../{outside.name}/secret.md",
        outside / "no",
    ):
        error = tools.error("ACCESS_DENIED", "ingest_file", path=str(path))
        assert str(project.top) in error["details"]["allowed"]
    for path in (".git/config", ".GIT/config"):  # the same file on macOS
        tools.error("ACCESS_DENIED", "ingest_file", path=path)
    tools.error("INVALID_PARAMETER", "ingest_file", path="docs/a\0b")
    assert took(tools, "docs/inside.md")["source"] == str(guide.parent / "inside.md"), "a document of its own"
    project.git("config", "vmrag.ingest.allowed-roots", str(outside))
    assert took(Tools(project.top), secret)["source"] == str(secret)
    Tools(project.top).error("ACCESS_DENIED", "ingest_file", path="docs/guide.md")


@pytest.mark.parametrize("list_", [".gitignore", "docs/.gitignore", ".git/info/exclude", "core.excludesFile", "folder"])
def test_agent_takes_nothing_that_git_ignores(tools, project, guide, tmp_path, list_):
    """Stored documents are pushed with the knowledge base; files that git ignores stay local."""
    secret = guide.parent / "private" / "secrets.json"
    secret.parent.mkdir()
    secret.write_text('{"key": "opensesame"}')
    (guide.parent / "link.json").symlink_to(secret)
    project.git("add", "docs/link.json", "docs/guide.md")
    if list_ == "core.excludesFile":
        (tmp_path / "own").write_text("secrets.json\n")
        project.git("config", "core.excludesFile", str(tmp_path / "own"))
    elif list_ == "folder":
        project.write(".gitignore", "private/\n")
    else:
        (project.top / list_).parent.mkdir(exist_ok=True)
        (project.top / list_).write_text("secrets.json\n")
    for path in ("docs/private/secrets.json", "docs/link.json"):
        error = tools.error("ACCESS_DENIED", "ingest_file", path=path)
        assert "secrets.json" in error["message"]
    assert "opensesame" not in project.vmrag("grep", "opensesame", code=1).out
    assert took(tools, guide)["status"] == "indexed"
    project.git("add", "--force", str(secret))
    assert took(tools, "docs/private/secrets.json")["status"] == "indexed", (
        "what git tracks is no secret of this machine"
    )


def test_repository_in_a_folder_that_git_ignores_is_ignored_with_it(tools, project, guide):
    """Another clone in that folder does not ignore its own files."""
    project.write(".gitignore", "private/\n")
    for folder in ("private/other", "private/other/third", "beside"):
        project.write(f"{folder}/secrets.json", '{"key": "opensesame"}')
        project.git("init", "-q", folder)
    for folder in ("private/other", "private/other/third"):
        tools.error("ACCESS_DENIED", "ingest_file", path=f"{folder}/secrets.json")
    assert took(tools, "beside/secrets.json")["status"] == "indexed", "nothing ignores it"


def test_user_imports_an_ignored_file_by_name(tools, project, guide):
    project.write(".gitignore", "guide.md\n")
    [hint] = tools.error("ACCESS_DENIED", "ingest_file", path="docs/guide.md")["suggestions"]
    assert "vmrag import docs/guide.md --library default" in hint
    project.vmrag("import", "docs/guide.md", "--library", "default")
    assert "Owls sleep" in project.vmrag("grep", "Owls").out


def test_undecodable_file_name_is_rejected_without_stopping_others(project, guide):
    odd = os.fsencode(guide.parent) + b"/caf\xe9.md"
    Path(os.fsdecode(odd)).write_text(GUIDE)
    said = project.vmrag("import", os.fsdecode(odd), "--library", "shelf", "--json", code=3).error
    assert (said["code"], "UTF-8" in said["message"]) == ("FILE_SYSTEM_ERROR", True)
    assert "1 document added" in project.vmrag("import", "docs", "--library", "shelf").out


def test_only_regular_files_of_a_bearable_size_are_read(tools, project, guide, monkeypatch):
    folder = guide.parent
    os.mkfifo(folder / "pipe.md")
    with socket.socket(socket.AF_UNIX) as made:
        monkeypatch.chdir(folder)  # the name of a socket must be short
        made.bind("socket.md")
        project.git("config", "vmrag.ingest.allowed-roots", f"/dev,{project.top}")
        tools = Tools(project.top)
        said = {}
        for name in ("pipe.md", "socket.md", "/dev/zero", str(folder), "absent.md"):
            said[name] = tools.error("FILE_SYSTEM_ERROR", "ingest_file", path=name)["message"]
    assert ["pipe" in said["pipe.md"], "socket" in said["socket.md"], "device" in said["/dev/zero"]] == [True] * 3
    assert "folder" in said[str(folder)]
    project.git("config", "vmrag.ingest.max-bytes", str(len(GUIDE) - 1))
    assert "bytes" in Tools(project.top).error("FILE_SYSTEM_ERROR", "ingest_file", path="docs/guide.md")["message"]


def test_file_that_changes_while_it_is_read_is_read_again(project, guide, monkeypatch):
    """Its bytes, its time and its hash are from one moment, or the import fails."""
    fstat, remaining = os.fstat, [3]

    def growing(descriptor: int) -> os.stat_result:
        if remaining[0] and os.path.realpath(f"/proc/self/fd/{descriptor}") == str(guide):
            remaining[0] -= 1
            guide.write_text(guide.read_text() + "More.\n")
        return fstat(descriptor)

    with notes.opened(project) as ws:
        monkeypatch.setattr(os, "fstat", growing)
        whole = files.read_file(ws, files.resolve_file(guide))
        assert whole.data == guide.read_bytes()
        remaining[0] = 100
        with pytest.raises(FileFailed):
            files.read_file(ws, files.resolve_file(guide))


# -- what is kept --------------------------------------------------------------------------------


def test_failed_ingestion_keeps_the_old_version(tools, project, guide, monkeypatch):
    doc_id = took(tools, guide)["doc_id"]
    guide.write_bytes(b"\xff\xfe\x00broken")
    tools.error("INGESTION_FAILED", "ingest_file", path="docs/guide.md")
    guide.write_text("---\nchunk_index: 1\n---\nAll new.\n")
    tools.error("INVALID_METADATA", "ingest_file", path="docs/guide.md")

    def failing(*_: object) -> None:
        raise EmbeddingFailed("No model today.")

    guide.write_text("# Guide\n\nNever embedded.\n")
    with monkeypatch.context() as patch:
        patch.setattr(HashModel, "embed", failing)
        tools.error("EMBEDDING_SERVICE_ERROR", "ingest_file", path="docs/guide.md")
    assert tools("get_document", doc_id=doc_id)["content"] == GUIDE
    assert found(tools, "owls")[0]["content"] == GUIDE


def test_front_matter_is_merged_with_given_metadata(tools, guide):
    guide.write_text("---\ntags: [a, b]\ndraft: true\n---\n# Guide\n\nText.\n")
    doc_id = took(tools, guide, metadata={"team": {"name": "core"}, "draft": False})["doc_id"]
    assert tools("get_document", doc_id=doc_id)["metadata"] == {
        "tags": ["a", "b"],
        "team": {"name": "core"},
        "draft": False,
    }
    guide.write_text("---\nkind: new\n---\n# Guide\n\nText.\n")
    took(tools, guide)
    assert tools("get_document", doc_id=doc_id)["metadata"] == {"kind": "new", "team": {"name": "core"}, "draft": False}


def test_document_keeps_its_source_after_a_rename_of_its_library(tools, project, guide):
    first = took(tools, guide, library="one")
    tools("chroma_modify_collection", collection_name="one", new_name="two")
    assert took(tools, guide, library="two")["doc_id"] == first["doc_id"]
    other = took(tools, guide, library="one")  # a new library of the old name: the same id, in another collection
    assert other["status"] == "indexed"
    with notes.opened(project) as ws:
        [stored] = ws.engine.read_documents(ws.locate_documents(), collection="one")
        strange = msgspec.structs.replace(stored, source="elsewhere.md", source_key="elsewhere.md")
        writing.write_rows(ws, lambda _: Planned(Write(put_documents=[strange]), None), "a test")
    again = took(tools, guide, library="one")
    assert again["status"] == "indexed"
    assert again["doc_id"] not in (stored.doc_id, first["doc_id"])
    assert took(tools, guide, library="one") == again | {"status": "skipped", "message": ANY}


def test_library_gets_documents_only_from_sources_and_allows_deletion(tools, project, guide):
    doc_id = took(tools, guide, library="handbook")["doc_id"]
    for name, arguments in (
        ("chroma_add_documents", {"documents": ["x"]}),
        ("chroma_add_document", {"document": "x"}),
    ):
        found_ = tools.error("INVALID_PARAMETER", name, collection_name="handbook", **arguments)
        assert "--library handbook" in found_["suggestions"][-1]
    project.vmrag("add", str(guide), "--collection", "handbook", code=2)
    project.vmrag("import", "docs", "--collection", "handbook", code=2)
    tools("chroma_update_documents", collection_name="handbook", ids=[doc_id], metadatas=[{"team": "core"}])
    [shown] = tools("chroma_get_documents", collection_name="handbook")["documents"]
    assert shown["metadata"] == {"team": "core"}
    assert took(tools, guide, library="handbook")["status"] == "skipped", "it is known all the same what it was made of"
    [match] = tools("chroma_query_documents", collection_name="handbook", query_texts=["owls"])["results"][0]["matches"]
    assert "origin" not in match["metadata"]
    tools("chroma_delete_documents", collection_name="handbook", ids=[doc_id])
    assert took(tools, guide, library="handbook")["status"] == "indexed"


# -- pages ---------------------------------------------------------------------------------------


def test_page_is_revalidated_and_converted_by_its_type(tools, project):
    project.git("config", "vmrag.ingest.allow-private-urls", "127.0.0.1")
    tools = Tools(project.top)
    with website() as site:
        stamps = {"ETag": '"1"', "Last-Modified": "Sun, 22 Nov 2026 10:00:00 GMT"}

        def page(text: str) -> Page:
            return 200, {"Content-Type": "text/markdown; charset=latin-1", **stamps}, text.encode("latin-1")

        site.pages["/guide"] = page("# Führer\n\nEulen schlafen.\n")
        url = site.url("/guide") + "#top"
        first = tools("ingest_url", url=url, metadata={"team": "core"})
        assert (first["status"], first["source"]) == ("indexed", site.url("/guide"))
        site.pages["/guide"] = (304, {}, b"")
        assert tools("ingest_url", url=url)["status"] == "skipped"
        assert site.requests[-1].headers["if-none-match"] == '"1"'
        site.pages["/guide"] = page("# Führer\n\nEulen schlafen.\n")
        assert tools("ingest_url", url=url)["status"] == "skipped", "the same bytes, although they were sent"
        stamps["ETag"] = '"2"'
        site.pages["/guide"] = page("# Führer\n\nEulen wachen.\n")
        again = tools("ingest_url", url=url)
        assert (again["status"], again["doc_id"]) == ("replaced", first["doc_id"])
        site.pages["/guide"] = (500, {}, b"")
        assert tools.error("FETCH_FAILED", "ingest_url", url=url)["details"]["http_status"] == 500
    [hit] = found(tools, "Eulen", filter={"file_type": "url", "last_modified": "2026-11-22T11:00:00+01:00"})
    assert (hit["title"], hit["content"], hit["last_modified"]) == (
        "Führer",
        "# Führer\n\nEulen wachen.\n",
        "2026-11-22T10:00:00Z",
    )
    assert hit["metadata"] == {"team": "core"}


# -- search and listing --------------------------------------------------------------------------


@pytest.fixture
def stocked(tools, project, guide) -> Tools:
    """Two libraries: `birds` with guide.md and long.md, `rocks` with rocks.txt."""
    (guide.parent / "long.md").write_text("# Long\n\n" + 2 * notes.LONG)
    (project.top / "rocks.txt").write_text("Granite is hard, and owls do not eat it.\n")
    took(tools, guide, library="birds", metadata={"team": "core"})
    took(tools, "docs/long.md", library="birds")
    took(tools, "rocks.txt", library="rocks")
    return tools


def test_search_ranks_the_passages_of_libraries_alone_by_words_and_meaning(stocked, project):
    stocked("chroma_add_documents", collection_name="notes", documents=["owls and granite"])
    hits = found(stocked, "owls granite", top_k=100)
    assert {hit["library"] for hit in hits} == {"birds", "rocks"}
    assert hits[0]["title"] == "rocks.txt"
    assert [hit["score"] for hit in hits] == sorted((hit["score"] for hit in hits), reverse=True)
    with notes.opened(project) as ws:
        both_libraries = Query("owls granite", ("birds", "rocks"), 100)
        ours = query.search_index(ws, lambda searcher, _: searcher.search(both_libraries))
    assert [(hit["doc_id"], hit["chunk_index"], hit["score"]) for hit in hits] == [
        (hit.doc_id, hit.chunk, hit.score) for hit in ours
    ]
    assert [passage["library"] for passage in found(stocked, "owls granite", library="rocks")] == ["rocks"]
    assert found(stocked, "owls", library="notes") == [], "no library"
    assert found(stocked, "owls", library="rocks", filter={"library": "birds"}) == []


def test_filter_takes_every_key_of_the_specification(stocked, project):
    long = next(passage for passage in found(stocked, "number 39", top_k=100) if passage["chunk_index"] == 1)
    [row] = [document for document in stocked("list_documents")["documents"] if document["doc_id"] == long["doc_id"]]
    one = {
        "doc_id": long["doc_id"],
        "source": str(project.top / "docs" / "long.md"),
        "content_hash": row["content_hash"],
        "title": "Long",
    }
    for key, value in one.items():
        assert {document["doc_id"] for document in found(stocked, "owls", filter={key: value})} == {long["doc_id"]}, key
    assert {document["doc_id"] for document in found(stocked, "owls", filter={"source": "docs/long.md"})} == {
        long["doc_id"]
    }
    whole = {"content": long["content"], "id": f"{long['doc_id']}_chunk_1"}
    for key, value in whole.items():
        assert [passage["chunk_index"] for passage in found(stocked, "owls", filter={key: value})] == [1], key
    assert {passage["chunk_index"] for passage in found(stocked, "owls", top_k=100, filter={"chunk_index": "1"})} == {1}
    assert {document["file_type"] for document in found(stocked, "owls", top_k=100, filter={"file_type": "text"})} == {
        "text"
    }
    same = {"created_at": row["created_at"].replace("Z", "+00:00"), "page": 0, "library": "birds"}
    assert {passage["library"] for passage in found(stocked, "owls", filter=same)} == {"birds"}
    for none in ({"page": 3}, {"title": "Absent"}, {"doc_id": "absent"}, {"last_modified": "yesterday"}):
        assert found(stocked, "owls", filter=none) == [], none
    for wrong in ({"team": "core"}, {"title": True}, {"title": 1.5}, {"title": {"$ne": "x"}}, {"title": None}):
        stocked.error("INVALID_FILTER", "search", query="owls", filter=wrong)


def test_passage_has_its_page_if_the_text_has_pages(tools, project):
    pages = ["Owls sleep.", "", "Bats wake. " * 250, "Foxes run."]
    project.write("paper.txt", "\n\f".join(pages))
    (project.top / "paper.pdf").write_bytes(pdf("Herons stand still.", pages=3))
    took(tools, "paper.txt")
    took(tools, "paper.pdf")
    paged = {
        passage["chunk_index"]: passage["page"]
        for passage in found(tools, "bats", top_k=100, filter={"title": "paper.txt"})
    }
    assert [page for _, page in sorted(paged.items())] == [1, 3, 3, 4]
    assert sorted(
        passage["chunk_index"] for passage in found(tools, "bats", top_k=100, filter={"page": 3, "file_type": "text"})
    ) == [1, 2]
    herons = found(tools, "herons", filter={"file_type": "pdf"})
    assert {heron["page"]: heron["content"].strip() for heron in herons} == dict.fromkeys(
        (1, 2, 3), "Herons stand still."
    )
    assert found(tools, "bats", filter={"page": 2, "file_type": "text"}) == []
    assert found(tools, "bats", filter={"page": 0}) == []


def test_listings_count_pages_documents_and_chunks(stocked):
    listed = stocked("list_documents", library="birds")
    assert (listed["count"], listed["total"]) == (2, 2)
    assert {document["source"].rpartition("/")[2]: document["chunk_count"] for document in listed["documents"]} == {
        "guide.md": 1,
        "long.md": 3,
    }
    page = stocked("list_documents", limit=1, offset=1)
    assert (page["count"], page["total"]) == (1, 3)
    assert stocked("list_documents", library="absent")["documents"] == []
    assert stocked("list_documents", table="documents")["total"] == 6
    assert stocked("list_documents", table="issue_logs")["total"] == 0
    assert stocked("list_libraries")["libraries"] == [
        {"library": "birds", "document_count": 2, "chunk_count": 4},
        {"library": "rocks", "document_count": 1, "chunk_count": 1},
    ]


def test_document_is_found_by_id_in_libraries_first(stocked):
    doc_id = stocked("list_documents", library="rocks")["documents"][0]["doc_id"]
    stocked("chroma_add_documents", collection_name="notes", documents=["another"], ids=[doc_id])
    assert stocked("get_document", doc_id=doc_id)["library"] == "rocks"
    assert stocked("get_document", doc_id=f"{doc_id}_chunk_0")["doc_id"] == doc_id
    assert stocked("get_document", id="a")["library"] == "notes"
    stocked("chroma_create_collection", collection_name="second")
    stocked("chroma_add_documents", collection_name="second", documents=["twice"], ids=["a"])
    refused = stocked.error("INVALID_PARAMETER", "delete_document", doc_id="a")
    assert refused["details"]["collections"] == ["notes", "second"]
    gone = stocked("delete_document", doc_id=doc_id)
    assert (gone["status"], gone["deleted_chunks"], gone["table"]) == ("deleted", 1, "documents")
    assert stocked("get_document", doc_id=doc_id)["library"] == "notes"
    stocked.error("DOCUMENT_NOT_FOUND", "delete_document", doc_id=doc_id, table="issue_logs")


# -- the command line ----------------------------------------------------------------------------


def test_person_imports_files_folders_and_pages_into_library(project, guide, tmp_path):
    project.write("docs/deep/rocks.txt", "Granite is hard.\n")
    project.write("docs/.hidden.md", "hidden")
    project.write("docs/broken.md", "\n")
    elsewhere = tmp_path / "elsewhere.md"
    elsewhere.write_text("# Elsewhere\n\nFar away.\n")
    project.git("config", "vmrag.ingest.allow-private-urls", "127.0.0.1")
    with website() as site:
        site.pages["/page"] = (200, {"Content-Type": "text/html"}, b"<title>Web</title><p>Spiders sit in the web.")
        sources = ("docs", "docs/guide.md", str(elsewhere), site.url("/page"), site.url("/gone"))
        result = project.vmrag("import", *sources, "--library", "shelf", "--metadata", '{"team": "core"}', code=1)
        assert "shelf: 4 documents added, 0 unchanged" in result.out
        assert "404" in result.out
        assert "broken.md" in result.out
        assert ".hidden.md: is hidden" in result.out
        assert "4 unchanged" in project.vmrag("import", *sources, "--library", "shelf", code=1).out
        alone = project.vmrag("import", site.url("/page")).out
        assert "default: 1 document added" in alone, "pages have a library without being told"
    taken = project.ask("import", "docs", "--library", "shelf")["taken"]
    assert {passage["source"] for passage in taken} == {str(guide), str(project.top / "docs" / "deep" / "rocks.txt")}
    [best, *_] = project.ask("query", "spiders in the web", "--where", '{"team": "core"}')["results"]
    assert best["collection"] == "shelf"
    shown = project.ask("show", f"shelf/{best['doc_id']}")
    assert "Spiders sit" in shown["content"]
    assert shown["metadata"]["origin"].keys() == {"hash", "media_type"}
