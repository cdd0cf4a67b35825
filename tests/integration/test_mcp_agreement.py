"""Confirmation of agent calls: which addresses their arguments may name, who confirms them, and
what is remembered of the answer.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client import Client

from tests.support import people
from tests.support.mcp import ALL, Tools, Yes
from tests.support.terminal import Project
from vmrag_mcp.call import Behaviour
from vmrag_mcp.options import select_tools
from vmrag_mcp.registry import load_catalogue
from vmrag_mcp.server import KnowledgeServer
from vmrag_mcp.session import Session

pytestmark = pytest.mark.hooks("off")

shared, world, newcomer = people.shared, people.world, people.newcomer

both_eras = pytest.mark.parametrize("era", ["legacy", "auto"])
BEGIN = ("dolt_init", "dolt_clone")
TRAVEL = ("dolt_fetch", "dolt_pull", "dolt_push")


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def nobody_came(listener: socket.socket) -> bool:
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return True
    return False


def trusted(project: Project) -> list[str]:
    return project.run("config", "--get-all", "vmrag.trustedRemote").stdout.split()


def below(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*")} if folder.exists() else set()


def named(name: str, remote: str) -> dict[str, str]:
    return {"remote_url" if name in BEGIN else "path" if name == "ingest_file" else "remote": remote}


def test_untrusted_address_is_neither_contacted_nor_stored(world, newcomer, listener, tmp_path):
    port, outside = listener.getsockname()[1], tmp_path / "outside"
    outside.mkdir()
    (outside / "victim").write_text("not a remote")
    before = below(outside)
    for project, names in ((newcomer, BEGIN), (world.ada, TRAVEL)):
        tools, config = Tools(project.top), project.git("config", "--local", "-l")
        for name in names:
            for remote in (
                f"http://127.0.0.1:{port}/kb",
                f"git+http://127.0.0.1:{port}/kb.git",
                f"file://{outside}/new",
                f"file://{outside}/victim",
                f"git+file://{outside}/new.git",
            ):
                refused = tools.error("REMOTE_NOT_TRUSTED", name, **named(name, remote))
                assert refused["details"]["remote"] == remote
                assert "vmrag remote --trust" in str(refused["suggestions"])
            for argument in ("confirm", "trust", "agreed"):
                tools.error("INVALID_PARAMETER", name, **named(name, remote), **{argument: True})
        assert project.git("config", "--local", "-l") == config
    assert nobody_came(listener)
    assert below(outside) == before
    assert not (newcomer.shared / "kb").exists()


def test_force_does_not_make_an_address_trusted(world, listener):
    Tools(world.ada.top).error(
        "REMOTE_NOT_TRUSTED", "dolt_push", remote=f"http://127.0.0.1:{listener.getsockname()[1]}/kb", force=True
    )
    assert nobody_came(listener)


def test_folder_is_opened_only_below_a_root_and_without_links(world, tmp_path):
    ada, root, outside = world.ada, tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "way").symlink_to(outside)
    tools = Tools(ada.top, agreed=Yes(ada))
    ada.git("config", "vmrag.fileRoot", str(root))
    for place in (
        f"file://{outside}/kb",
        f"file://{root}/way/kb",
        f"file://{root}/../outside/kb",
        f"file://{root}/%2e%2e/outside/kb",
    ):
        for name in ("dolt_push", "dolt_fetch"):
            assert "ask" not in tools.error("REMOTE_NOT_TRUSTED", name, remote=place)["details"]
    assert below(outside) == set()
    tools("dolt_push", remote=f"file://{root}/kb")
    assert tools("dolt_fetch", remote=f"file://{root}/kb")["updates"]["new_branches"] == []


def test_remote_of_the_code_is_named_by_its_name_or_url(world):
    tools = Tools(world.ada.top)
    for remote in ("origin", str(world.hub.top), "git:"):
        tools("dolt_fetch", remote=remote)
    world.ada.git("remote", "add", "other", f"file://{world.hub.top}")
    for remote in ("other", f"file://{world.hub.top}", f"git+file://{world.hub.top}"):
        tools("dolt_fetch", remote=remote)


def talk(project: Project, era: str, name: str, remote: str, answer: Any) -> tuple[dict[str, Any], list[Any]]:
    """Return the result of a call and the questions to the user."""
    questions: list[Any] = []

    async def person(_: Any, params: Any) -> types.ElicitResult:
        questions.append(params)
        return types.ElicitResult(action="accept" if answer else "decline", content=answer or {"confirm": True})

    async def run() -> dict[str, Any]:
        server = KnowledgeServer(Session(project.top, Behaviour()), select_tools(ALL))
        async with Client(server.sdk, mode=era, elicitation_callback=person) as client:
            return (await client.call_tool(name, named(name, remote))).structured_content

    return anyio.run(run), questions


@both_eras
def test_person_sees_the_whole_address_and_their_yes_counts_once(world, newcomer, era):
    remote = f"git+file://{world.hub.top}"
    newcomer.git("config", "vmrag.fileRoot", str(world.top))
    for no in (None, {"confirm": False, "remember": True}, {"confirm": "yes"}):
        refused, questions = talk(newcomer, era, "dolt_clone", remote, no)
        assert refused["code"] == "REMOTE_NOT_TRUSTED"
        assert len(questions) == 1
        assert f"\n{remote}\n" in questions[0].message
    assert not (newcomer.shared / "kb").exists()
    result, _ = talk(newcomer, era, "dolt_clone", remote, {"confirm": True})
    assert result["success"], result
    assert trusted(newcomer) == []
    Tools(newcomer.top).error("REMOTE_NOT_TRUSTED", "dolt_fetch")
    Tools(newcomer.top).error("REMOTE_NOT_TRUSTED", "dolt_fetch", remote=remote)


@both_eras
def test_person_alone_takes_a_file_that_git_ignores(newcomer, era):
    newcomer.write("secret.txt", "open sesame")
    newcomer.write(".gitignore", "secret.txt\n")
    Tools(newcomer.top)("dolt_init")
    refused, questions = talk(newcomer, era, "ingest_file", "secret.txt", None)
    assert refused["code"] == "ACCESS_DENIED"
    assert f"\n{newcomer.top}/secret.txt\n" in questions[0].message
    result, _ = talk(newcomer, era, "ingest_file", "secret.txt", {"confirm": True})
    assert result["success"], result
    Tools(newcomer.top).error("ACCESS_DENIED", "ingest_file", path="secret.txt")


def test_address_is_remembered_if_the_user_agrees(world, newcomer):
    remote = f"git+file://{world.hub.top}"
    newcomer.git("config", "vmrag.fileRoot", str(world.top))
    result, _ = talk(newcomer, "auto", "dolt_clone", remote, {"confirm": True, "remember": True})
    assert result["success"], result
    assert trusted(newcomer) == [remote]
    assert Tools(newcomer.top)("dolt_fetch")["current_branch_status"]["behind"] == 0


def test_address_is_not_remembered_if_the_client_sends_the_empty_box(world, newcomer):
    newcomer.git("config", "vmrag.fileRoot", str(world.top))
    answer = {"confirm": True, "remember": False}
    result, _ = talk(newcomer, "auto", "dolt_clone", f"git+file://{world.hub.top}", answer)
    assert result["success"], result
    assert trusted(newcomer) == []


def test_lookalike_letters_are_shown_escaped(newcomer):
    _, questions = talk(newcomer, "legacy", "dolt_init", "https://example.org/\u0430dmin", None)
    assert "\nhttps://example.org/\\u0430dmin\n" in questions[0].message


def test_unusual_spelling_of_a_host_is_shown_normalized(newcomer):
    for host in ("0177.0.0.1", "0x7f000001", "2130706433", "127.1"):
        _, questions = talk(newcomer, "legacy", "dolt_init", f"http://{host}:9/kb", None)
        assert f"\nhttp://{host}:9/kb\n" in questions[0].message
        assert "Its host is 127.0.0.1." in questions[0].message
    _, questions = talk(newcomer, "legacy", "dolt_init", "https://example.org/kb", None)
    assert "Its host" not in questions[0].message


def test_invalid_address_is_rejected_without_a_question(newcomer):
    for remote in ("ext::sh -c id", "ftp://b/kb", "http://a/\u202egro.elpmaxe"):
        refused, questions = talk(newcomer, "legacy", "dolt_clone", remote, {"confirm": True})
        assert (refused["code"], questions) == ("INVALID_REMOTE_URL", [])


@both_eras
@pytest.mark.parametrize(
    "remote",
    [
        "https://me:secret@example.org/kb",
        "https://token@example.org/kb",
        "git+https://" + "x" * 1500 + ":y@example.org/kb.git",
        "git+ssh://drop:secret@example.org/kb.git",
        "git+ssh://secret@example.org/kb.git",
        "ssh://git:secret@example.org/kb",
        "secret@example.org:kb.git",
        "git+ssh://secret?x@example.org/kb.git",
        "ssh://secret#x@example.org/kb",
        "secret?x@example.org:kb.git",
        "//secret@example.org/kb",
    ],
)
@pytest.mark.sample(5)
def test_addresses_with_users_are_refused_without_a_question(newcomer, world, era, remote):
    for project, names in ((newcomer, BEGIN), (world.ada, TRAVEL)):
        for name in names:
            refused, questions = talk(project, era, name, remote, {"confirm": True})
            assert (refused["code"], questions) == ("ADDRESS_WITH_CREDENTIALS", [])
            assert "secret" not in str(refused)


def test_question_shows_a_long_address_whole(newcomer):
    remote = "https://example.org/" + "x" * 900 + "/kb"
    _, questions = talk(newcomer, "legacy", "dolt_init", remote, None)
    assert f"\n{remote}\n" in questions[0].message


def test_list_contains_each_argument_for_addresses_and_files():
    """A new one is bounded first: by `Call.require_agreed`, by the work tree and `vmrag.fileRoot`,
    by `ops.links.link`, by `ingest.allowed_roots` (`ops.libraries.files`), `web.addresses`, or a
    project's folder (`ops.compounding.project`, `paths`).
    """
    telling = re.compile(r"remote|url|uri|host|server|endpoint|address|path|file|folder|(^|_)dir|repo|root")
    result = {
        (tool, name)
        for tool, value in load_catalogue().items()
        for name in value.schema["properties"]
        if telling.search(name)
    }
    assert result == {
        ("dolt_init", "remote_url"),
        ("dolt_clone", "remote_url"),
        ("dolt_fetch", "remote"),
        ("dolt_pull", "remote"),
        ("dolt_push", "remote"),
        ("dolt_link_git", "git_repo_path"),
        ("dolt_link_git", "link_file"),
        ("ingest_file", "path"),
        ("ingest_url", "url"),
        ("learning_log_test_results", "xml_path"),
        ("learning_validate_evidence", "evidence_file"),
        ("learning_validate_evidence", "output_file"),
        ("activate_project", "config_path"),
        ("index_document", "path"),
        ("update_promotion_level", "document_path"),
        # Texts that are stored, a hash, and parts of paths that the index has; nothing is opened.
        ("chroma_query_documents", "path"),
        ("search_documents", "path"),
        ("grep", "path"),
        ("chroma_log_chat", "file_changes"),
        ("learning_log_error", "affected_files"),
        ("delete_documents", "path_hash"),
    }


def test_confirmation_key_differs_for_each_address():
    from vmrag_mcp.confirmation import _ask_address

    first, second = (
        _ask_address("dolt_clone", "https://a.example/kb"),
        _ask_address("dolt_clone", "https://b.example/kb"),
    )
    assert first.key != second.key
