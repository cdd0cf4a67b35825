"""`dolt_init`: a knowledge base begins, alone or with what another program's Chroma store holds; a
call that fails leaves nothing.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.chroma import needs_chroma
from tests.support.mcp import Tools, Yes, warned
from tests.support.repos import isolate
from tests.support.terminal import Project, new_project
from vmrag_link import settings_edit
from vmrag_link.chroma import bindings
from vmrag_link.engines.doltlite.engine import DoltliteEngine
from vmrag_link.errors import ConfigInvalid
from vmrag_link.models import Chunking, content_hash
from vmrag_link.ops.new_knowledge_base import import_chroma

pytestmark = pytest.mark.hooks("off")

TEXT = "The rivers rise in the mountains. They run through the hills and into the sea, where the salt begins."


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A git repository with one commit and without a knowledge base."""
    isolate(monkeypatch, tmp_path / "home")
    monkeypatch.delenv("CHROMA_DATA_DIR", raising=False)
    project = new_project(tmp_path / "project")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "code")
    return project


@pytest.fixture
def tools(bare: Project) -> Tools:
    return Tools(bare.top, agreed=Yes(bare))


def everything(project: Project) -> Any:
    """Return the state that a failed call must keep."""
    listing = (
        project.git("ls-files", "--stage"),
        project.git("status", "--porcelain"),
        project.git("config", "--local", "-l"),
    )
    files = sorted(str(path) for path in project.top.rglob("*") if ".git/" not in str(path))
    kept = {"locks", "logs", "settings", "embeddings.sqlite"}
    below = (
        sorted(path.name for path in project.shared.iterdir() if path.name not in kept)
        if project.shared.is_dir()
        else []
    )
    return listing, files, below


# -- an empty one


def test_knowledge_base_begins_and_is_staged_for_the_next_git_commit(bare, tools):
    tools.error("NOT_INITIALIZED", "chroma_list_collections")
    made = tools("dolt_init")
    assert made["repository"]["branch"] == "main"
    assert made["repository"]["commit"] == {"hash": bare.pinned, "message": "Create the knowledge base"}
    assert made["remote"] == {"configured": False, "name": None, "url": None}
    assert made["import_summary"] == {"documents_imported": 0, "collections": []}
    assert (made["kb"]["commit"], made["kb"]["branch"], made["kb"]["in_sync"]) == (bare.pinned, "main", True)
    assert bare.git("diff", "--cached", "--name-only").split() == [".dolt-version", ".gitattributes"]
    assert tools("chroma_list_collections")["total_count"] == 0
    bare.put("a.md", "alpha")
    assert bare.record("first", b="beta") == bare.pinned


def test_missing_pinned_knowledge_base_gets_no_proposal_to_start_one(bare, tools):
    tools("dolt_init")
    bare.record("first", a="alpha")
    shutil.rmtree(bare.shared)
    for refused in (
        tools.error("PIN_MISSING_REVISION", "dolt_status"),
        tools.error("ALREADY_INITIALIZED", "dolt_init"),
    ):
        assert refused["suggestions"][0].startswith("dolt_clone")
        assert not any(
            name in suggestion
            for suggestion in refused["suggestions"]
            for name in ("dolt_init", "dolt_fetch", "dolt_reset")
        )


def test_branch_of_the_knowledge_base_is_called_as_wanted(bare, tools):
    bare.git("switch", "-q", "-c", "work")
    made = tools("dolt_init", initial_branch="knowledge")
    assert (
        made["repository"]["branch"]
        == "knowledge"
        == json.loads((bare.top / ".dolt-version").read_text())["dolt_branch"]
    )
    assert bare.git("config", "branch.work.vmragBranch") == "knowledge"
    bare.record("first", a="alpha")
    rows = {branch["name"]: branch["code_branch"] for branch in bare.ask("branch")["branches"]}
    assert rows == {"knowledge": "work"}


def test_unnamed_branch_is_named_like_the_code_branch(bare, tools):
    bare.git("switch", "-q", "-c", "work")
    assert tools("dolt_init")["repository"]["branch"] == "work"


def test_name_that_no_branch_can_have_leaves_nothing(bare, tools):
    before = everything(bare)
    for name in ("vmrag_keep", "a..b", "HEAD"):
        tools.error("INVALID_NAME", "dolt_init", initial_branch=name)
        assert everything(bare) == before
    tools("dolt_init")


def test_init_succeeds_after_a_killed_one(bare, tools):
    DoltliteEngine.create(bare.shared / "kb", author="A <a@b>", date="2020-01-01T00:00:00Z").close()
    assert tools("dolt_init")["kb"]["in_sync"]


def test_knowledge_base_with_documents_is_pinned_and_kept(bare, tools):
    tools("dolt_init")
    revision = bare.record("first", a="alpha")
    bare.git("rm", "-q", "--cached", ".dolt-version")
    (bare.top / ".dolt-version").unlink()
    bare.git("commit", "-q", "-m", "no pin")
    made = tools("dolt_init")
    assert made["repository"]["commit"]["hash"] == revision == bare.pinned


# -- the remote


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("vmrag/knowledge", "https://doltremoteapi.dolthub.com/vmrag/knowledge"),
        ("https://example.org/kb", "https://example.org/kb"),
        ("git+ssh://git@example.org/kb.git", "git+ssh://git@example.org/kb.git"),
        ("file:///srv/kb", "file:///srv/kb"),
    ],
)
@pytest.mark.sample(1)
def test_remote_is_stored_in_settings_and_pin_without_contact(bare, tools, given, url):
    made = tools("dolt_init", remote_url=given)
    assert made["remote"] == {"configured": True, "name": "origin", "url": url}
    settings = (bare.top / ".vmrag.yaml").read_text()
    assert settings == f'embedding:\n  model: hash\nremote: "{url}"\n'
    assert json.loads((bare.top / ".dolt-version").read_text())["dolt_remote"] == url
    assert bare.run("config", "vmrag.trustedRemote").returncode == 1  # nothing is agreed to by this


def test_url_of_the_codes_own_remote_is_that_remote(bare, tools):
    bare.git("remote", "add", "origin", "git@example.org:code.git")
    assert tools("dolt_init", remote_url="git@example.org:code.git")["remote"]["url"] == "git:"
    assert bare.run("config", "vmrag.trustedRemote").returncode == 1


def test_settings_file_that_is_made_is_staged_with_the_remote(bare, tools):
    bare.git("rm", "-q", ".vmrag.yaml")
    bare.git("commit", "-q", "-m", "no settings")
    tools("dolt_init", remote_url="https://example.org/kb")
    assert ".vmrag.yaml" in bare.git("diff", "--cached", "--name-only").split()
    assert (bare.top / ".vmrag.yaml").read_text().endswith('\nremote: "https://example.org/kb"\n')


def test_init_with_invalid_remote_changes_nothing(bare, tools):
    before = everything(bare)
    for url in ("ext::sh -c id", "nonsense", "-oProxyCommand=id", "aws://bucket/kb"):
        tools.error("INVALID_REMOTE_URL", "dolt_init", remote_url=url)
    tools.error("ADDRESS_WITH_CREDENTIALS", "dolt_init", remote_url="https://me:secret@example.org/kb")
    assert everything(bare) == before


# -- one key of foreign settings


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", 'remote: "x"\n'),
        ("index.keep_mb: 3", 'index.keep_mb: 3\nremote: "x"\n'),
        ("index:\r\n  keep: 3\r\n", 'index:\r\n  keep: 3\r\nremote: "x"\r\n'),
        ("# one\nremote: git+file:///a  # why\nindex.keep_mb: 3\n", '# one\nremote: "x"  # why\nindex.keep_mb: 3\n'),
        ('remote: "git:"\n', 'remote: "x"\n'),
        ("remote: 'x' # as it is\n", "remote: 'x' # as it is\n"),
        ("{index.keep_mb: 3}\n", '{remote: "x", index.keep_mb: 3}\n'),
    ],
)
def test_single_value_is_set_and_the_rest_of_the_file_stays(before, after):
    assert settings_edit.set_value(before.encode(), "remote", "x").decode() == after


@pytest.mark.parametrize("text", ["{remote: y}\n", "remote: >\n  git+file:///a\n  b\n", "index.keep_mb: 3\n...\n"])
def test_unwritable_settings_file_is_named(text):
    with pytest.raises(ConfigInvalid) as raised:
        settings_edit.set_value(text.encode(), "remote", "x")
    assert raised.value.hint.endswith('remote: "x"')


# -- what another program's store holds


def store_at(folder: Path, **collections: list[tuple[str, str | None, dict[str, Any] | None]]) -> Path:
    """A Chroma store as another program makes one; rows are (id, text, metadata)."""
    import chromadb

    client = chromadb.PersistentClient(str(folder), settings=chromadb.Settings(anonymized_telemetry=False))
    for name, rows in collections.items():
        made = client.create_collection(
            name,
            metadata={"about": name, "hnsw:space": "l2"},
            configuration={"hnsw": {"space": "ip"}},
            embedding_function=None,
        )
        if rows:
            made.add(
                ids=[row[0] for row in rows],
                embeddings=[[1.0, 2.0]] * len(rows),
                documents=[row[1] for row in rows] if any(row[1] for row in rows) else None,
                metadatas=[row[2] for row in rows],
            )
    client.close()
    return folder


def pieces(name: str, text: str, *cuts: tuple[int, int], **metadata: Any) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (
            f"{name}-{number}",
            text[start:end],
            {"source_id": name, "chunk_index": number, "total_chunks": len(cuts)} | metadata,
        )
        for number, (start, end) in enumerate(cuts)
    ]


@pytest.fixture(scope="session")
def _store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    guide = pieces("guide", TEXT, (0, 40), (28, 70), (58, len(TEXT)), lang="en", content_hash="of something else")
    return store_at(
        tmp_path_factory.mktemp("foreign") / "chroma",
        api_docs=[*reversed(guide), ("solo", "alone", {"stars": 3, "draft": True})],
        empty=[],
        vectors=[("v", None, {"k": 1})],
    )


@pytest.fixture
def store(_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(_store, tmp_path / "chroma")
    monkeypatch.setenv("CHROMA_DATA_DIR", str(tmp_path / "chroma"))
    return tmp_path / "chroma"


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@needs_chroma
def test_documents_of_a_store_become_the_first_commit(bare, tools, store):
    before = bytes_of(store)
    made = tools("dolt_init", commit_message="From elsewhere")
    assert made["import_summary"] == {"documents_imported": 2, "collections": ["api_docs", "empty", "vectors"]}
    assert made["repository"]["commit"] == {"hash": bare.pinned, "message": "From elsewhere"}
    assert "NOTE" in warned(made)  # the row without a text
    assert made["kb"] == {"branch": "main", "commit": bare.pinned, "dirty": False, "in_sync": True}
    assert bytes_of(store) == before
    assert bare.texts() == {"guide": TEXT, "solo": "alone"}
    assert bare.ask("show", "api_docs/guide")["metadata"] == {"lang": "en"}
    assert bare.ask("show", "api_docs/solo")["metadata"] == {"stars": 3, "draft": True}
    assert bare.ask("query", "rivers in the mountains")["results"][0]["doc_id"] == "guide"
    assert bare.consistent()


@needs_chroma
def test_collections_keep_their_metadata_and_their_distance(bare, tools, store):
    tools("dolt_init")
    engine = DoltliteEngine.open(bare.shared / "kb")
    result = {collection.name: collection for collection in engine.list_collections(bare.pinned)}
    engine.close()
    assert {value.distance for value in result.values()} == {"ip"}
    assert json.loads(result["empty"].metadata) == {"about": "empty"}
    assert result["api_docs"].embedding_function == "hash"


@needs_chroma
def test_import_is_skipped_if_unwanted_or_without_a_name(bare, tools, store, monkeypatch):
    assert tools("dolt_init", import_existing=False)["import_summary"] == {"documents_imported": 0, "collections": []}


@needs_chroma
def test_init_with_invalid_store_changes_nothing_and_can_be_repeated(bare, tools, tmp_path, monkeypatch):
    before = everything(bare)
    monkeypatch.setenv("CHROMA_DATA_DIR", str(tmp_path / "absent"))
    tools.error("CHROMADB_ERROR", "dolt_init")
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / bindings.DATABASE_FILE).write_bytes(b"no database at all, but long enough to be looked at" * 100)
    monkeypatch.setenv("CHROMA_DATA_DIR", str(folder))
    tools.error("CHROMADB_ERROR", "dolt_init")
    assert everything(bare) == before
    tools("dolt_init", import_existing=False)


@needs_chroma
def test_import_that_fails_in_the_end_leaves_nothing(bare, tools, tmp_path, monkeypatch):
    """A text that no engine stores exactly."""
    bad = store_at(tmp_path / "bad", bad_rows=[("ok", "fine", {"k": 1}), ("nul", "a\0b", {"k": 1})])
    monkeypatch.setenv("CHROMA_DATA_DIR", str(bad))
    before = everything(bare)
    tools.error("INVALID_METADATA", "dolt_init", remote_url="https://example.org/kb")
    assert everything(bare) == before
    monkeypatch.delenv("CHROMA_DATA_DIR")
    tools("dolt_init")


@needs_chroma
def test_init_without_usable_model_changes_nothing(bare, tools, store):
    bare.write(".vmrag.yaml", "embedding:\n  model: minilm\n")
    bare.git("config", "vmrag.embedding.model-path", str(bare.top / "absent"))
    before = everything(bare)
    tools.error("EMBEDDING_SERVICE_ERROR", "dolt_init")
    assert everything(bare) == before


@needs_chroma
def test_store_is_read_as_chroma_wrote_it(store):
    opened = bindings.open_store(store)
    result = {
        collection.name: (
            collection.space,
            collection.metadata,
            sorted(opened.read_texts(collection.id), key=lambda row: row[0]),
        )
        for collection in opened.describe_collections()
    }
    opened.close()
    assert list(result) == ["api_docs", "empty", "vectors"]
    assert result["empty"] == ("ip", {"about": "empty", "hnsw:space": "l2"}, [])
    assert result["vectors"][2] == [("v", None, {"k": 1})]
    assert [row[0] for row in result["api_docs"][2]] == ["guide-0", "guide-1", "guide-2", "solo"]


def joined(*texts: str, whole: str = "") -> str:
    hashed = {"content_hash": content_hash(whole)} if whole else {}
    return import_chroma.join_pieces([import_chroma._Piece(at, text, hashed) for at, text in enumerate(texts)])


def test_joined_chunks_contain_overlaps_once():
    assert joined("one two three four", "three four five") == "one two three four five"
    assert joined("a b", "b c") == "a bb c"  # too short to recognize an overlap
    assert joined("a b", "b c", whole="a b c") == "a b c"
    assert joined("over and over and ", "over and over again", whole="over and over and over and over again") == (
        "over and over and over and over again"
    )
    assert joined("alone") == "alone"


def test_joined_chunks_of_own_index_equal_the_text(bare, tools, tmp_path, monkeypatch):
    from vmrag_link.documents.chunking import split_text

    text = "".join(f"Line {number} of a longer text, with more words in it.\n\n" for number in range(60))
    cut = split_text(text, Chunking())
    assert len(cut) > 3
    assert joined(*(passage.text for passage in cut)) == text


# -- where the history has one


def test_init_is_rejected_if_other_commits_pin_a_knowledge_base(bare, tools, tmp_path):
    tools("dolt_init")
    bare.record("first", a="alpha")
    bare.git("switch", "-q", "--orphan", "other")
    shutil.rmtree(bare.shared)
    tools.error("ALREADY_INITIALIZED", "dolt_init")


def test_knowledge_base_pinned_by_the_history_is_fetched(bare, tools, tmp_path):
    hub = tmp_path / "hub.git"
    subprocess.run(["git", "init", "-q", "--bare", hub], check=True)
    bare.git("remote", "add", "origin", str(hub))
    tools("dolt_init")
    revision = bare.record("first", a="alpha")
    bare.git("push", "-q", "origin", "main")
    bare.vmrag("push")
    subprocess.run(["git", "clone", "-q", hub, tmp_path / "clone"], check=True)
    made = Tools(tmp_path / "clone")("dolt_init")
    assert made["repository"]["commit"]["hash"] == revision
    assert "NOTE" in warned(made)
