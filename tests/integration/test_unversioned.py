"""`system.versioned: false`: thoughts, chats, evidence and learnings stay on this machine."""

from __future__ import annotations

import json

import pytest

from tests.support import editors, unversioned
from tests.support.contract_states import DATA_FOLDER
from tests.support.mcp import Tools
from tests.support.repos import isolate
from tests.support.terminal import new_project, opened
from tests.support.unversioned import SETTING, find_files_with, read_texts, think
from vmrag_link import hints
from vmrag_link.ops.stores import stores
from vmrag_mcp.call_progress import CallProgress

pytestmark = pytest.mark.hooks("off")

template, project, tools = unversioned.template, unversioned.project, unversioned.tools
make_editor = editors.make_editor

CHANGE = {"file_path": "src/parser.py", "before_content": "a\n", "after_content": "b\n"}


def test_unversioned_documents_are_found_and_not_in_the_knowledge_base(tools, project, tmp_path):
    before = (project.marks(), project.ask("fingerprint"), project.ask("list"), project.ask("status"))
    for name in ("own-before.xml", "own-after.xml"):
        project.write(f"out/{name}", (DATA_FOLDER / name).read_text())
    first = think(tools, "owls are called swordfish", 1)
    assert (first["kb"]["versioned"], first["kb"]["branch"], first["kb"]["commit"]) == (False, None, "")
    assert first["message"].endswith("stays on this machine, not versioned.")
    assert think(tools, "bats are not", 2)["previous_thoughts_count"] == 1
    answer = tools("chroma_find_similar_thoughts", query="swordfish owls", threshold=0.1)
    assert ([thought["id"] for thought in answer["similar_thoughts"]], answer["kb"]["versioned"]) == (
        ["thought_plan_1"],
        False,
    )
    think(tools, "bats are called swordfish", 2)
    again = tools("chroma_find_similar_thoughts", query="swordfish bats", threshold=0.1)
    assert again["similar_thoughts"][0]["content"] == "bats are called swordfish", "the index follows every write"
    [session] = tools("chroma_find_similar_sessions", query="swordfish", threshold=0)["similar_sessions"]
    assert (session["session_id"], session["thought_count"]) == ("plan", 2)
    assert len(tools("chroma_get_session_summary", session_id="plan")["session_thoughts"]) == 2

    chat = tools("chroma_log_chat", prompt_summary="Say swordfish", response_summary="Said", raw_prompt="swordfish")
    run = tools("learning_log_test_results", xml_path="out/own-after.xml", before_xml="out/own-before.xml")
    tools("learning_log_error", error_type="E", error_message="swordfish")
    checked = tools("learning_validate_evidence", test_transitions=[run["evidence_id"]])
    learning = tools(
        "learning_promote",
        description="Never say swordfish.",
        source_chat_id=chat["chat_id"],
        require_validation=True,
        validation_evidence_id=checked["evidence_id"],
    )
    name = {"collection_name": "derived_learnings_v1"}
    assert tools("chroma_query_documents", **name, query_texts=["swordfish"])["ids"] == [[learning["learning_id"]]]
    [row] = tools("chroma_get_documents", **name)["documents"]
    assert row["metadata"]["validation_score"] == checked["score"]
    assert tools("chroma_peek_collection", **name)["total_in_collection"] == 1
    assert tools("chroma_get_collection_count", **name)["count"] == 1
    assert tools("chroma_get_collection_info", **name)["index_status"] == "synced"
    kinds = {collection["kind"] for collection in tools("chroma_list_collections")["collections"]}
    assert kinds == {"chroma"}

    now = (project.marks(), project.ask("fingerprint"), project.ask("list"), project.ask("status"))
    assert now == before
    project.git("init", "-q", "--bare", str(tmp_path / "hub.git"))
    project.git("remote", "add", "origin", str(tmp_path / "hub.git"))
    project.put("d", "delta", collection="notes")
    project.vmrag("commit", "-m", "delta")
    project.git("commit", "-qam", "delta")
    project.git("push", "-q", "origin", "main")
    project.vmrag("push")
    for folder in ("kb", "views", "segments", "remotes", "remotes.git"):
        assert not find_files_with(project.shared / folder, b"swordfish"), folder
    assert find_files_with(project.shared / "local", b"swordfish")
    project.git("clone", "-q", str(tmp_path / "hub.git"), str(tmp_path / "clone"))
    clone = Tools(tmp_path / "clone")
    assert clone("chroma_find_similar_thoughts", query="swordfish", threshold=0)["similar_thoughts"] == []


def test_every_worktree_and_branch_shares_unversioned_documents(tools, project, tmp_path):
    think(tools, "owls sleep by day", 1)
    project.git("worktree", "add", "-q", str(tmp_path / "aside"), "-b", "aside")
    other = Tools(tmp_path / "aside")
    assert think(other, "bats, too", 2)["previous_thoughts_count"] == 1
    project.git("checkout", "-q", "--detach")
    assert think(tools, "foxes do not", 3)["previous_thoughts_count"] == 2
    similar_thoughts = other("chroma_find_similar_thoughts", query="foxes", threshold=0.1)["similar_thoughts"]
    assert [thought["id"] for thought in similar_thoughts] == ["thought_plan_3"]


def test_gc_leaves_no_trace_of_removed_documents(tools, project):
    think(tools, "the password is swordfish", 1)
    tools("chroma_find_similar_thoughts", query="swordfish", threshold=0.1)
    think(tools, "bats are not", 2)
    tools("chroma_find_similar_thoughts", query="bats", threshold=0.1)
    assert find_files_with(project.shared / "local" / "segments", b"swordfish")
    project.vmrag("rm", "thinking_sessions_v1/thought_plan_1")
    project.vmrag("gc", "--apply")
    assert not find_files_with(project.shared / "local", b"swordfish")


def test_user_reads_and_removes_unversioned_documents_by_commands(project):
    error = ("--error-type", "E", "--error-message", "swordfish is wrong")
    result = project.vmrag("learning", "log-error", *error)
    assert result.out.splitlines()[-1] == "This stays on this machine: system.versioned is false."
    named = ("--collection", "validation_evidence_v1")
    [row] = project.ask("list", *named)["documents"]
    assert (row["title"], row["uncommitted"]) == ("E: swordfish is wrong", None)
    output = project.vmrag("query", "swordfish", *named).out
    assert "E: swordfish is wrong" in output
    assert "from this machine alone, not versioned" in output
    assert "swordfish" in project.vmrag("show", f"validation_evidence_v1/{row['doc_id']}").out
    project.vmrag("show", "validation_evidence_v1/absent", code=3)
    both = project.vmrag("query", "swordfish", *named, "--collection", "notes", "--json", code=2)
    assert "together" in both.error["message"]
    gone = project.vmrag("rm", f"validation_evidence_v1/{row['doc_id']}")
    assert gone.out == "validation_evidence_v1: 1 document removed\n", "nothing of it is kept in a revision"
    project.vmrag("learning", "log-error", *error)
    refused = project.vmrag("uninstall", "--all", "--json", code=None).error
    assert refused["details"].get("local") is True, refused
    [again] = project.ask("list", *named)["documents"]
    project.vmrag("rm", again["doc_id"], *named)
    assert project.ask("list", *named)["documents"] == []
    assert project.ask("query", "swordfish", *named)["results"] == []
    assert find_files_with(project.shared / "local" / "kb", b"swordfish")
    sizes = project.ask("gc", "--apply")["local_bytes"]
    assert 0 < sizes["after"] <= sizes["before"]
    assert not find_files_with(project.shared / "local", b"swordfish")


def test_chat_links_changed_code_and_pushed_documents_do_not_link_back(tools, project):
    made = tools("learning_setup_collections")
    assert len(made["created"]) == 6
    code = {"file_path": "src/parser.py"}
    tools("chroma_add_documents", collection_name="codebase_v1", ids=["one"], documents=["parse()"], metadatas=[code])
    tools("dolt_commit", message="code")
    before = project.marks()
    chat = tools("chroma_log_chat", prompt_summary="Fix", response_summary="Done", file_changes=[CHANGE])
    assert chat["bidirectional_links"] == {"chunk_ids": ["one"], "files": ["src/parser.py"], "unmatched_files": []}
    [row] = tools("chroma_get_documents", collection_name="chat_history_v1")["documents"]
    assert row["metadata"]["related_code_chunks"] == ["one"]
    project.vmrag("learning", "index", "--all", "--collection-name", "chat_history_v1", code=2)
    [chunk] = tools("chroma_get_documents", collection_name="codebase_v1")["documents"]
    assert (chunk["metadata"].get("related_chat_ids"), project.marks()) == (None, before)


def test_setting_changed_during_a_call_applies_to_next_call(tools, project):
    with tools.session._open_workspace(CallProgress()) as ws:
        assert ws.config.retrieval.k != 3
        project.git("config", "vmrag.retrieval.k", "3")
    with tools.session._open_workspace(CallProgress()) as ws:
        assert ws.config.retrieval.k == 3
        before = ws
    with tools.session._open_workspace(CallProgress()) as ws:
        assert ws is before


def test_other_tools_cannot_move_unversioned_chats_into_knowledge_base(tools, project):
    name = {"collection_name": "chat_history_v1"}
    tools.error("INVALID_PARAMETER", "chroma_create_collection", **name)
    tools.error("INVALID_PARAMETER", "chroma_add_documents", **name, documents=["x"])
    tools.error("INVALID_PARAMETER", "chroma_update_documents", **name, ids=["x"], documents=["y"])
    said = {"prompt_summary": "a", "response_summary": "b"}
    refused = tools.error("INVALID_PARAMETER", "chroma_log_chat", **said, collection_name="notes")
    assert "system.versioned is false" in refused["message"]
    tools.error("INVALID_PARAMETER", "chroma_log_chat", **said, collection_name="codebase_v1")
    chat = tools("chroma_log_chat", **said, collection_name="ours")["chat_id"]
    assert tools("chroma_get_documents", collection_name="ours", ids=[chat])["total_matching"] == 1
    tools.error("INVALID_PARAMETER", "chroma_add_documents", collection_name="ours", documents=["x"])
    tools("learning_promote", description="d", source_chat_id=chat, chat_collection_name="ours")
    deleted = tools("chroma_delete_documents", collection_name="ours", ids=[chat])
    assert (deleted["documents_deleted"], deleted["kb"]["versioned"]) == (1, False)


def test_status_after_a_changed_setting_names_the_moving_command(tools, project):
    project.git("config", SETTING, "true")
    think(tools, "owls sleep by day", 1)
    think(tools, "bats sleep as well", 2)
    tools("chroma_log_chat", prompt_summary="Ask", response_summary="Answer", raw_prompt="raw")
    assert project.status()["reasons"] == []

    project.git("config", SETTING, "false")
    [reason] = project.status()["reasons"]
    assert reason.startswith("3 documents of chat_history_v1, thinking_sessions_v1 are in the knowledge base")
    tools("dolt_commit", message="thoughts")
    project.git("commit", "-qam", "thoughts")
    assert project.status()["reasons"] == [], "what is committed may be a colleague's"
    [note] = [
        finding
        for topic in project.ask("doctor")["topics"]
        for finding in topic["findings"]
        if "SYSTEM" in finding["code"]
    ]
    assert hints.list_commands(note["fix"]) == ["vmrag learning move"]
    assert think(tools, "owls do not sleep", 1)["previous_thoughts_count"] == 0, "those elsewhere are not mixed in"
    report = project.ask("learning", "move")
    assert report == {
        "versioned": False,
        "moved": {"chat_history_v1": 1, "thinking_sessions_v1": 1},
        "kept": {"thinking_sessions_v1": 1},
    }
    assert {"owls do not sleep", "bats sleep as well"} < {*read_texts(project).values()}
    thoughts = project.ask("list", "--collection", "notes")["documents"]
    assert len(thoughts) == 3, "of other collections nothing is moved"
    tools("dolt_commit", message="moved")
    project.git("commit", "-qam", "moved")

    project.git("config", SETTING, "true")
    [reason] = project.status()["reasons"]
    assert "only on this machine" in reason
    report = project.ask("learning", "move")
    assert (report["moved"], report["kept"]) == (
        {"chat_history_v1": 1, "thinking_sessions_v1": 1},
        {"thinking_sessions_v1": 1},
    )
    assert [*read_texts(project).values()] == ["owls do not sleep"]
    with opened(project) as ws:
        [chat] = ws.engine.read_documents(ws.locate_documents(), collection="chat_history_v1")
    assert json.loads(chat.source_key) == {"raw_prompt": "raw"}, "the whole row is moved"
    project.git("config", SETTING, "false")
    project.vmrag("rm", "thought_plan_1", "--collection", "thinking_sessions_v1")
    assert project.ask("learning", "move")["kept"] == {}
    assert project.vmrag("learning", "move").out == (
        "Everything is where it should be.\nThis stays on this machine: system.versioned is false.\n"
    )


def test_unversioned_documents_need_a_knowledge_base(tmp_path, monkeypatch):
    isolate(monkeypatch, tmp_path / "home")
    fresh = new_project(tmp_path / "fresh")
    fresh.git("config", SETTING, "false")
    error = ("--error-type", "E", "--error-message", "m", "--json")
    assert fresh.vmrag("learning", "log-error", *error, code=None).error["code"] == "NOT_INITIALIZED"
    assert not fresh.shared.exists()


def test_untrusted_settings_publish_nothing(tools, project):
    """`true` in a file needs agreement, and does not override settings of this machine."""
    project.git("config", "--unset", SETTING)
    settings = project.top / ".vmrag.yaml"
    settings.write_text(settings.read_text() + "system:\n  versioned: false\n")
    assert think(tools, "owls sleep by day", 1)["kb"]["versioned"] is False
    project.vmrag("trust", "--yes")
    settings.write_text(settings.read_text().replace("versioned: false", "versioned: true"))
    assert think(tools, "bats sleep as well", 2)["kb"]["versioned"] is False, "as last agreed"
    project.vmrag("trust", "--yes")
    assert "versioned" not in think(tools, "foxes do not", 3)["kb"]
    project.git("config", SETTING, "false")
    assert think(tools, "nor do badgers", 4)["kb"]["versioned"] is False


def test_edit_changes_document_of_this_machine(project, tools, make_editor):
    think(tools, "Owls nest.", 1)
    (doc_id,) = read_texts(project)
    report = project.ask("edit", f"{stores.THOUGHTS}/{doc_id}", env=make_editor('sed -i s/nest/fly/ "$1"'))
    assert (report["changed"], report["branch"]) == (True, None)
    assert read_texts(project) == {doc_id: "Owls fly."}
