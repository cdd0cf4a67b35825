"""Collections whose vectors a service computes: made, filled and queried, here and on machines that
have no key.

The services are one local server that speaks as they do (tests/support/services.py): the real ones
need keys and a network.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support import services as support
from tests.support import terminal
from tests.support.mcp import Tools, warned
from tests.support.services import KEY, KEYS, NAMES, Services
from tests.support.terminal import Project
from vmrag_link import endpoint
from vmrag_link.errors import ContentRefused
from vmrag_link.models import Collection
from vmrag_link.ops import adopt

pytestmark = pytest.mark.hooks("off")

template, project, services = terminal.template, terminal.project, support.services

TEXTS = {"river": "rivers flow to the sea", "bread": "bread is baked in an oven"}


def address(project: Project, services: Services, *names: str) -> None:
    for name in names:
        project.git("config", f"vmrag.embedding.{name}-url", services.base(name))


def filled(project: Project, services: Services, name: str = "openai") -> Tools:
    """Create a collection `api` of that service with both texts, uncommitted; forget the requests
    for it.
    """
    address(project, services, name)
    tools = Tools(project.top)
    tools("chroma_create_collection", collection_name="api", embedding_function=name)
    tools("chroma_add_documents", collection_name="api", documents=list(TEXTS.values()), ids=list(TEXTS))
    services.requests.clear()
    return tools


def recorded(project: Project, services: Services) -> None:
    filled(project, services)
    project.vmrag("commit", "-m", "api")
    project.git("commit", "-q", "-a", "-m", "api")


def another_machine(project: Project, folder: Path) -> Project:
    """Return a clone on another machine: no index, no vectors, and only the committed settings."""
    shutil.copytree(project.top, folder, symlinks=True)
    other = Project(folder)
    other.forget_indexes()
    (other.shared / "embeddings.sqlite").unlink()
    (other.own / "workspace.json").unlink()
    (other.own / "applied").unlink()
    for name in NAMES:
        other.run("config", "--unset", f"vmrag.embedding.{name}-url")
    other.git("config", "--add", "vmrag.trustedService", "openai")
    return other


def nearest(tools: Tools, text: str) -> str:
    return tools("chroma_query_documents", collection_name="api", query_texts=[text], n_results=1)["ids"][0][0]


# -- who has a key


@pytest.mark.parametrize("name", NAMES)
def test_collection_of_a_service_is_made_filled_and_queried(project, services, monkeypatch, name):
    if name in KEYS:
        monkeypatch.setenv(KEYS[name], KEY)
    address(project, services, name)
    tools = Tools(project.top)
    tools("chroma_create_collection", collection_name="api", embedding_function=name)
    assert len(services.requests) == 1
    tools("chroma_add_documents", collection_name="api", documents=list(TEXTS.values()), ids=list(TEXTS))
    assert services.requests[1].texts == list(TEXTS.values())
    assert (nearest(tools, "the sea"), nearest(tools, "an oven")) == ("river", "bread")
    info = tools("chroma_get_collection_info", collection_name="api")
    assert (info["embedding_function"], info["embedding_dimensions"]) == (name, 256)
    assert {request.key for request in services.requests} == {KEY if name in KEYS else None}
    assert all(KEY.encode() not in path.read_bytes() for path in project.shared.rglob("*") if path.is_file())


def test_project_may_choose_a_service_for_new_collections(project, services):
    address(project, services, "ollama")
    project.git("config", "vmrag.embedding.model", "ollama")
    project.put("river", TEXTS["river"], collection="api")
    assert project.ask("query", "sea", "--collection", "api")["results"][0]["doc_id"] == "river"
    assert {request.path for request in services.requests} == {"/api/embed"}


def test_embedded_text_is_never_sent_again(project, services):
    recorded(project, services)
    project.forget_indexes()
    project.git("switch", "-q", "feature")
    project.ask("query", "x", "--collection", "handbook")
    project.git("switch", "-q", "main")
    Tools(project.top)("chroma_modify_collection", collection_name="api", new_name="renamed")
    assert services.requests == []
    project.ask("query", "sea", "--collection", "renamed")
    assert [request.texts for request in services.requests] == [["sea"]]


def test_collection_keeps_its_model_when_the_settings_name_another(project, services):
    tools = filled(project, services)
    project.git("config", "vmrag.embedding.openai-model", "text-embedding-3-large")
    services.models += ("text-embedding-3-large",)
    assert nearest(tools, "the sea") == "river"
    tools("chroma_create_collection", collection_name="newer", embedding_function="openai")
    tools("chroma_add_documents", collection_name="api", documents=["cheese"])
    assert [request.body["model"] for request in services.requests] == [
        "text-embedding-3-small",
        "text-embedding-3-large",
        "text-embedding-3-small",
    ]


def test_collections_of_several_models_answer_together(project, services):
    filled(project, services)
    results = project.ask("query", "rest by the sea", "-k", "10")["results"]
    assert {result["collection"] for result in results} == {"api", "handbook"}


def test_index_keeps_vectors_of_a_service_without_new_requests(project, services):
    recorded(project, services)
    expected = {"collection_name": "api", "ids": ["river"], "include": ["embeddings"]}
    [before] = Tools(project.top)("chroma_get_documents", **expected)["documents"]
    project.git("switch", "-q", "feature")
    project.git("switch", "-q", "main")
    (project.shared / "embeddings.sqlite").unlink()
    [after] = Tools(project.top)("chroma_get_documents", **expected)["documents"]
    assert (len(after["embedding"][0]), after) == (256, before)
    assert services.requests == []


# -- who has none


@pytest.mark.parametrize("name", KEYS)
def test_collection_of_a_service_without_a_key_is_not_created(project, services, monkeypatch, name):
    monkeypatch.setattr(endpoint, "post_json", None)
    project.vmrag("trust", "--service", name)
    tools = Tools(project.top)
    error = tools.error(
        "EMBEDDING_SERVICE_ERROR", "chroma_create_collection", collection_name="api", embedding_function=name
    )
    assert KEYS[name] in error["message"]
    assert f"export {KEYS[name]}=KEY" in error["suggestions"][0]
    assert tools("chroma_list_collections")["total_count"] == 1


def test_missing_model_is_reported_when_the_collection_is_made(project, services):
    address(project, services, "ollama")
    services.models = ()
    error = Tools(project.top).error(
        "EMBEDDING_SERVICE_ERROR", "chroma_create_collection", collection_name="api", embedding_function="ollama"
    )
    assert error["suggestions"][0] == "run 'ollama pull bge-m3'"


def test_model_of_sentence_transformers_is_minilm_by_another_name(project, services):
    tools = Tools(project.top)
    tools("chroma_create_collection", collection_name="api", embedding_function="sentence_transformer")
    info = tools("chroma_get_collection_info", collection_name="api")
    assert (info["embedding_function"], info["embedding_dimensions"]) == ("minilm", 384)
    listed = tools.enabled.selection.require_tool("chroma_create_collection").schema["properties"]["embedding_function"]
    assert "sentence_transformer" not in listed["enum"]


def test_documents_that_cannot_be_embedded_are_not_stored(project, services):
    tools = filled(project, services)
    services.models = ()
    tools.error("EMBEDDING_SERVICE_ERROR", "chroma_add_documents", collection_name="api", documents=["cheese"])
    assert tools("chroma_get_collection_count", collection_name="api")["count"] == 2


def test_missing_key_disables_only_queries_by_meaning(project, services):
    recorded(project, services)
    project.git("config", "--unset", "vmrag.embedding.openai-url")
    project.vmrag("trust", "--service", "openai")
    for mode in ("vector", "hybrid"):
        failed = project.vmrag("query", "sea", "--collection", "api", "--mode", mode, "--json", code=3)
        assert failed.error["code"] == "EMBEDDING_SERVICE_ERROR"
    assert found_by_words(project) == ["river"]
    assert project.ask("query", "rest", "--collection", "handbook")["results"]
    project.forget_indexes()
    assert found_by_words(project) == ["river"]
    assert services.requests == []


def found_by_words(project: Project) -> list[str]:
    return [result["doc_id"] for result in project.ask("query", "sea", "--mode", "keyword")["results"]]


def test_machine_without_a_key_works_except_for_vectors(project, services, tmp_path):
    recorded(project, services)
    other = another_machine(project, tmp_path / "other")
    said = other.vmrag("query", "sea", "--mode", "keyword")
    assert "api/river" in said.out
    assert said.err == (
        "the embedding service openai (api.openai.com) requires a key, but OPENAI_API_KEY is not set. "
        "Until this is fixed, 'api' is searched by words only.\n"
    )
    assert other.vmrag("show", "api/river", "--raw").out == TEXTS["river"]
    assert other.ask("query", "rest", "--collection", "handbook")["results"]
    other.git("switch", "-q", "feature")
    other.git("switch", "-q", "main")
    tools = Tools(other.top)
    answer = tools("chroma_get_documents", collection_name="api", where_document={"$contains": "sea"})
    assert [document["id"] for document in answer["documents"]] == ["river"]
    tools("chroma_add_documents", collection_name="handbook", documents=["Take a walk."], ids=["walk"])
    for arguments in ({"query_texts": ["sea"]}, {"query_texts": ["sea"], "include": ["embeddings"]}):
        error = tools.error("EMBEDDING_SERVICE_ERROR", "chroma_query_documents", collection_name="api", **arguments)
        assert error["details"]["variable"] == "OPENAI_API_KEY"
    tools.error("EMBEDDING_SERVICE_ERROR", "chroma_get_documents", collection_name="api", include=["embeddings"])
    tools.error("EMBEDDING_SERVICE_ERROR", "chroma_add_documents", collection_name="api", documents=["x"])
    assert services.requests == []


def test_next_query_by_meaning_finds_everything_once_the_key_exists(project, services, tmp_path):
    recorded(project, services)
    expected = project.ask("query", "sea", "--collection", "api", "--mode", "vector")["results"]
    other = another_machine(project, tmp_path / "other")
    assert found_by_words(other) == ["river"]
    address(other, services, "openai")
    result = other.vmrag("query", "sea", "--collection", "api", "--mode", "vector", "--json")
    assert "could not be embedded when the index was built" in result.err
    assert result.json["results"] == expected
    services.requests.clear()
    assert other.ask("query", "sea", "--collection", "api", "--mode", "vector")["results"] == expected
    assert [request.texts for request in services.requests] == [["sea"]]
    assert other.consistent()


def test_documents_without_vectors_are_found_by_words_until_service_embeds_them(project, services):
    recorded(project, services)
    services.models = ()
    project.put("cheese", "cheese by the sea", collection="api")
    assert found_by_words(project) == ["cheese", "river"]
    failed = project.vmrag("query", "sea", "--mode", "vector", "--json", code=3)
    assert failed.error["code"] == "EMBEDDING_SERVICE_ERROR"
    services.models = Services().models
    assert project.ask("query", "cheese", "--mode", "vector", "-k", "1")["results"][0]["doc_id"] == "cheese"
    assert project.consistent()


def test_index_without_vectors_gets_them_with_the_next_revision(project, services, tmp_path):
    recorded(project, services)
    other = another_machine(project, tmp_path / "other")
    assert found_by_words(other) == ["river"]
    address(other, services, "openai")
    other.record("more", more="One more page.")
    services.requests.clear()
    assert other.ask("query", "sea", "--collection", "api", "--mode", "vector")["results"][0]["doc_id"] == "river"
    assert [request.texts for request in services.requests] == [["sea"]]


def test_service_with_another_model_of_that_name_is_never_mixed_in(project, services):
    tools = filled(project, services)
    services.dimensions = 128
    tools.error("EMBEDDING_MISMATCH", "chroma_query_documents", collection_name="api", query_texts=["sea"])
    tools.error("EMBEDDING_MISMATCH", "chroma_add_documents", collection_name="api", documents=["x"])
    assert tools("chroma_get_collection_count", collection_name="api")["count"] == 2


@pytest.mark.hooks("on")
def test_git_waits_for_no_service(project, services):
    recorded(project, services)
    project.git("config", "vmrag.hooks.sync", "auto")
    revision = project.pinned
    project.git("switch", "-q", "feature")
    project.forget_indexes()
    (project.shared / "embeddings.sqlite").unlink()
    services.hang = 0.5
    assert "syncing in the background" in project.run("switch", "-q", "main").stderr
    assert json.loads(project.vmrag("query", "sea", "--collection", "api", "--json").out)["kb"]["commit"] == revision


# -- who must not decide where texts go


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("embedding.model: ollama", "embedding.model"),
        ("embedding.model: openai", "embedding.model"),
        ("embedding.ollama_url: {url}", "embedding.ollama_url"),
        ("embedding.openai_model: mallory/model", "embedding.openai_model"),
    ],
)
def test_service_settings_of_a_branch_are_ignored(project, services, line, key):
    address(project, services, "openai")
    project.write(".vmrag.yaml", line.format(url=services.url) + "\n")
    result = project.vmrag("add", "-", "--collection", "new", "--id", "x", stdin="A text.")
    assert f"ignoring untrusted setting {key} (line 1) of .vmrag.yaml" in result.err
    assert services.requests == []


def test_local_model_needs_no_agreement(project):
    project.write(".vmrag.yaml", "embedding.model: hash\n")
    assert "agree" not in project.vmrag("add", "-", "--collection", "new", "--id", "x", stdin="A text.").err


def test_collection_of_a_service_spends_nothing_before_this_machines_person_agreed(
    project, services, monkeypatch, tmp_path
):
    recorded(project, services)
    other = another_machine(project, tmp_path / "other")
    other.git("config", "--unset-all", "vmrag.trustedService")
    with monkeypatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", KEY)
        patch.setattr(endpoint, "post_json", lambda *_, **__: pytest.fail("a service was asked"))
        tools = Tools(other.top)
        assert found_by_words(other) == ["river"]
        assert "'vmrag query --mode keyword' to search by words alone" in other.vmrag("query", "sea", code=None).err
        error = tools.error("SERVICE_NOT_TRUSTED", "chroma_query_documents", collection_name="api", query_texts=["sea"])
        assert "Only the user can trust a service" in error["suggestions"][0], (
            "an agent with a shell could type what follows"
        )
        assert error["suggestions"][1] == "run 'vmrag trust --service openai'"
        tools.error(
            "SERVICE_NOT_TRUSTED", "chroma_create_collection", collection_name="more", embedding_function="cohere"
        )
    other.vmrag("trust", "--service", "openai")
    address(other, services, "openai")
    assert nearest(Tools(other.top), "the sea") == "river"


@pytest.mark.parametrize(
    ("function", "model", "dimensions"),
    [
        ("openai", "hash-words-triples-256 v1", 256),
        ("openai", "openai m 256 unit v1", 255),
        ("openai", "openai m 999999999 unit v1", 999_999_999),
        ("huggingface", "huggingface ../../other 256 unit v1", 256),
    ],
)
def test_foreign_collection_must_name_a_possible_model_of_a_service(function, model, dimensions):
    row = Collection("api", embedding_function=function, embedding_model=model, embedding_dimensions=dimensions)
    with pytest.raises(ContentRefused):
        adopt.check_row(row, allowed={function})


def test_foreign_collection_may_use_a_service():
    row = Collection(
        "api", embedding_function="ollama", embedding_model="ollama bge-m3 1024 unit v1", embedding_dimensions=1024
    )
    adopt.check_row(row)


def test_index_status_lists_collections_without_vectors(project, services, tmp_path):
    recorded(project, services)
    other = another_machine(project, tmp_path / "other")
    tools = Tools(other.top)
    assert found_by_words(other) == ["river"]  # brings the index, which no list does
    rows = {collection["collection_name"]: collection for collection in tools("get_sync_status")["collections"]}
    assert (rows["api"]["sync_status"], rows["handbook"]["sync_status"]) == ("error", "synced")
    assert "OPENAI_API_KEY" in rows["api"]["error_message"]
    assert tools("chroma_get_collection_info", collection_name="api")["index_status"] == "error"
    tools.error("EMBEDDING_SERVICE_ERROR", "sync_collection", source_table="documents", identifier="api")
    failed = tools("sync_all")
    assert [collection["collection"] for collection in failed["failed"]] == ["api"]
    assert "INDEX_PENDING" in warned(failed)
    address(other, services, "openai")
    assert tools("sync_all")["failed"] == []
    assert tools("get_sync_status")["in_sync"]
