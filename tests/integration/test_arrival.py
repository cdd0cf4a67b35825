"""Messages, proposals and retries if the pinned revision is missing, and after it has arrived."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.support import dolt, people
from tests.support.mcp import ALL, Tools, connected
from tests.support.people import DATA, User, World
from vmrag_link import hints
from vmrag_mcp.call import Behaviour
from vmrag_mcp.options import ToolChoice, select_tools
from vmrag_mcp.server import KnowledgeServer
from vmrag_mcp.session import Session

pytestmark = pytest.mark.hooks("off")

shared, world = people.shared, people.world

NOBODY = "http://127.0.0.1:9/handbook"
ANEW = "vmrag init --new"


def refused(user: User, *command: str) -> dict[str, Any]:
    return user.vmrag(*command, "--json", code=2).error


@pytest.fixture
def bob(world: World) -> User:
    """Clone a remote that no longer answers."""
    user = world.join("bob")
    user.git("remote", "set-url", "origin", NOBODY)
    return user


# -- a new knowledge base is proposed only where there is none to be had


@pytest.mark.parametrize("command", ["query certificates", "list", "sync", "init --knowledge-base"])
def test_unreachable_remote_hint_suggests_clone_not_restart(bob, command):
    error = refused(bob, *command.split())
    assert error["hint"] == "run 'git ls-remote origin' to check the address, then 'vmrag clone'"


def test_inaccessible_or_missing_remote_hint_does_not_suggest_a_restart(world, bob):
    (world.top / "ssh").write_text("#!/bin/sh\necho 'Permission denied (publickey).' >&2\nexit 255\n")
    (world.top / "ssh").chmod(0o755)
    bob.git("remote", "set-url", "origin", "ssh://hub/code.git")
    error = refused(bob, "query", "certificates")
    assert (error["code"], error["details"]["cause"]) == ("NOT_INITIALIZED", "AUTHENTICATION_FAILED")
    assert ANEW not in error["hint"]
    (world.top / "ssh").write_text(
        "#!/bin/sh\necho 'ERROR: Repository not found.' >&2\nexit 255\n"
    )  # in GitHub's wording
    error = refused(bob, "query", "certificates")
    assert error["details"]["cause"] == "REMOTE_NOT_FOUND"
    assert ANEW not in error["hint"]


def test_missing_revision_reports_failed_authentication_as_its_cause(world):
    bob = world.join("bob")
    bob.vmrag("clone")
    world.ada.write_document("later.md", "Later.")
    world.ada.git("push", "-q")
    bob.git("pull", "-q")
    (world.top / "ssh").write_text("#!/bin/sh\necho 'Permission denied (publickey).' >&2\nexit 255\n")
    (world.top / "ssh").chmod(0o755)
    bob.git("remote", "set-url", "origin", "ssh://hub/code.git")
    error = bob.vmrag("sync", "--json", code=None).error
    assert (error["code"], error["details"]["cause"]) == ("PIN_MISSING_REVISION", "AUTHENTICATION_FAILED")


def test_install_and_status_suggest_only_working_commands(bob):
    out = bob.vmrag("install").out
    assert "cannot be reached" in out
    assert ANEW not in out
    assert bob.status()["hint"] == "run 'vmrag clone' to fetch the knowledge base"


def test_remote_that_answers_that_it_has_none_is_one(world):
    world.hub.git("update-ref", "-d", DATA)
    bob = world.join("bob")
    for command in ("query certificates", "init --knowledge-base"):
        hint = refused(bob, *command.split())["hint"]
        assert hints.list_commands(hint)[-1].endswith(f"&& {ANEW}")


def test_pin_made_by_dolt_suggests_a_server(world):
    dolt.require()
    world.hub.git("update-ref", "-d", DATA)
    bob = world.join("bob")
    pin = bob.top / ".dolt-version"
    pin.write_text(json.dumps(json.loads(pin.read_text()) | {"dolt_commit": "v" * 32}))
    hint_text = "git config vmrag.dolt.server HOST:PORT && vmrag clone"
    assert hint_text in refused(bob, "query", "certificates")["hint"]
    bob.git("config", "vmrag.dolt.server", "127.0.0.1:9")
    assert hint_text not in refused(bob, "query", "certificates")["hint"]


def test_unanswered_remote_leaves_the_existence_of_knowledge_unknown(world):
    world.hub.git("update-ref", "-d", DATA)
    bob = world.join("bob")
    bob.git("remote", "add", "upstream", NOBODY)
    assert ANEW not in refused(bob, "query", "certificates")["hint"]


def test_ambiguous_remote_hint_suggests_setting_not_restart(world):
    bob = world.join("bob")
    bob.git("remote", "rename", "origin", "one")
    bob.git("remote", "add", "two", NOBODY)
    bob.git("switch", "-q", "-c", "topic", "--no-track")
    error = refused(bob, "query", "certificates")
    assert "git config vmrag.remote NAME" in error["hint"]
    assert ANEW not in error["hint"]


def test_init_next_to_unfetchable_pins_starts_nothing(bob):
    bob.git("switch", "-q", "--orphan", "empty")
    assert (
        refused(bob, "init", "--knowledge-base")["hint"]
        == "run 'git ls-remote origin' to check the address, then 'vmrag init --knowledge-base'"
    )


# -- asking again


def test_clone_without_a_knowledge_base_waits_once_for_a_silent_remote(world, bob):
    refused(bob, "query", "certificates")
    bob.git("remote", "set-url", "origin", str(world.hub.top))
    note = bob.shared / "remotes" / "unreached.json"
    refused(bob, "query", "certificates")
    tried = json.loads(note.read_text())
    note.write_text(json.dumps(tried | {"at": tried["at"] - 60}))
    assert bob.ask("query", "certificates")["kb"]["in_sync"]


@pytest.mark.parametrize("command", ["clone", "sync", "install", "init --knowledge-base"])
def test_explicit_command_fetches_again_after_a_failed_fetch(world, bob, command):
    refused(bob, "query", "certificates")
    bob.git("remote", "set-url", "origin", str(world.hub.top))
    bob.vmrag(*command.split())
    assert bob.ask("query", "certificates")["kb"]["in_sync"]


def assert_asked_again(world: World, command: str) -> None:
    """Ask a remote that did not have the revision, and now does."""
    ada, bob = world.ada, world.join("bob")
    bob.vmrag("install")
    ada.write_document("late.md", "Ada forgot to push this.")
    ada.git("push", "-q", "--no-verify")
    bob.git("pull", "-q")
    bob.vmrag("query", "certificates")
    missing = bob.vmrag("status", code=1).out
    assert missing.count("the remote does not have it either") == 1, missing
    ada.vmrag("push")
    result = bob.vmrag(*command.split(), code=None)
    assert "the remote does not have it" not in result.out + result.err, result
    assert bob.ask("query", "certificates")["kb"]["in_sync"]


@pytest.mark.parametrize("command", ["status", "query certificates", "list"])
def test_command_contacts_the_remote_again_for_a_missing_revision(world, command):
    assert_asked_again(world, command)


@pytest.mark.hooks("on")
def test_status_reports_missing_revision_once_after_background_sync(world):
    assert_asked_again(world, "status")


# -- hints of fetch


@pytest.mark.hooks("on")
def test_fetch_proposes_a_sync_only_if_that_would_move_something(world):
    ada, bob = world.ada, world.join("bob")
    bob.vmrag("install")
    bob.git("config", "vmrag.hooks.sync", "foreground")  # a pull's sync in the background may fetch before us
    ada.write_document("ada.md", "Ada keeps bees.")
    ada.git("push", "-q")
    assert "git pull" in bob.vmrag("fetch").out
    assert "vmrag sync" not in bob.vmrag("fetch").out
    ada.write_document("late.md", "Ada forgot to push this.")
    ada.git("push", "-q", "--no-verify")
    bob.git("pull", "-q")
    ada.vmrag("push")
    report = bob.ask("fetch")
    assert (report["here"], report["arrived"]) == (True, True)
    ada.write_document("later.md", "This, too.")
    ada.git("push", "-q", "--no-verify")
    bob.git("pull", "-q")
    ada.vmrag("push")
    assert bob.vmrag("fetch").out.endswith("hint: run 'vmrag sync' to sync to the pin\n")


# -- files answer without the knowledge base

SOURCES = """\
sources:
  - collection: pages
    paths: [pages/]
"""


def write_page(user: User, text: str) -> None:
    """Commit and push a page, which is a file of a source."""
    user.write("pages/tide.md", f"# Tide\n\n{text}\n")
    user.git("add", "-A")
    user.git("commit", "-q", "-m", "page")
    user.git("push", "-q")


@pytest.fixture
def sourced(world: World) -> World:
    settings = world.ada.top / ".vmrag.yaml"
    settings.write_text(settings.read_text() + SOURCES)
    write_page(world.ada, "The tide gauge is read at noon.")
    return world


@pytest.fixture(params=["unreachable", "without-remote", "fork", "outdated", "other-worktree"])
def cut_off(sourced: World, request: pytest.FixtureRequest) -> User:
    """A clone in which the pinned revision is missing and cannot be fetched."""
    user = sourced.join("bob")
    user.vmrag("trust", "--yes")
    if request.param in ("outdated", "other-worktree"):
        user.vmrag("clone")
        user.vmrag("query", "certificates")
        sourced.ada.write_document("later.md", "Later, the beacon is lit.")
        sourced.ada.git("push", "-q")
        user.git("pull", "-q")
    match request.param:
        case "without-remote":
            user.git("remote", "remove", "origin")
        case "fork":
            fork = sourced.bare("fork.git")
            user.git("push", "-q", str(fork.top), "main")
            user.git("remote", "set-url", "origin", str(fork.top))
        case _:
            user.git("remote", "set-url", "origin", NOBODY)
    if request.param == "other-worktree":  # no index was ever bound there
        user.git("worktree", "add", "-q", "--detach", str(user.top / "../side"))
        user = User(user.top.parent / "side", user.home)
        user.vmrag("trust", "--yes")
    return user


def is_bound(user: User) -> bool:
    return user.status()["kb"]["revision"] is not None


ANSWERS_FROM_FILES: list[tuple[str, dict[str, Any], str]] = [
    ("search", {"query": "tide gauge"}, "read at noon"),
    ("search", {"symbol": "", "query": "noon", "collection": "pages"}, "read at noon"),
    ("search", {"query": "tide gauge", "ref": "HEAD"}, "read at noon"),
    ("read", {"name": "pages/tide.md"}, "read at noon"),
    ("read", {"name": "pages/tide.md", "ref": "HEAD"}, "read at noon"),
    ("grep", {"pattern": "noon"}, "pages/tide.md:3:"),
    ("grep", {"pattern": "noon", "ref": "HEAD"}, "pages/tide.md:3:"),
    ("history", {}, "page"),
    ("history", {"name": "pages/tide.md"}, "page"),
    ("status", {}, "commit"),
    ("chroma_query_documents", {"query_texts": ["tide gauge"]}, "read at noon"),
    ("chroma_get_documents", {"collection_name": "pages"}, "read at noon"),
    ("chroma_list_collections", {}, "pages"),
    ("get_document", {"doc_id": "pages/tide.md"}, "read at noon"),
]
OF_FILES_ALONE = ("pages/tide.md", "pages")
"""Names that mean files: whether stored documents are missing does not matter to these calls."""
STORED: list[tuple[str, dict[str, Any]]] = [
    ("search", {"query": "certificates", "collection": "handbook"}),
    ("read", {"name": "handbook/rest.md"}),
    ("grep", {"pattern": "certificates", "collection": "handbook"}),
    ("history", {"name": "handbook"}),
    ("chroma_query_documents", {"query_texts": ["certificates"], "collection_name": "handbook"}),
    ("chroma_get_documents", {"collection_name": "handbook"}),
    ("get_document", {"doc_id": "rest.md"}),
]
DELETES = re.compile(r"\brm\b|--new|--force|--accept-loss|--delete|dolt_reset|--hard|branch -D")


def text_of(answer: Any) -> str:
    return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)


def test_clone_without_its_knowledge_base_answers_from_files_in_every_tool(cut_off):
    bound = is_bound(cut_off)
    with cut_off._here():
        tools = Tools(cut_off.top, chosen=ToolChoice(toolsets="default,essential", tools="get_document"))
        for name, arguments, expected in ANSWERS_FROM_FILES:
            answer = text_of(tools(name, **arguments))
            assert expected in answer, (name, arguments, answer)
            named = any(value in OF_FILES_ALONE for value in arguments.values())
            match = re.search(r"vmrag (fetch|clone|status)", answer)
            assert named or match, (name, arguments, answer)
            assert not DELETES.search(answer), (name, answer)
        for name, arguments in STORED:
            if bound:
                assert tools.run(name, arguments)[1] is False, (name, tools.run(name, arguments))
                continue
            error = tools.error("PIN_MISSING_REVISION", name, **arguments)
            assert re.search(r"vmrag (fetch|clone)", str(error["suggestions"])), (name, error)
            assert not DELETES.search(str(error["suggestions"])), (name, error)


@pytest.mark.sample(2)
def test_resources_of_a_clone_without_its_knowledge_base_show_files(cut_off):
    with cut_off._here(), connected(KnowledgeServer(Session(cut_off.top, Behaviour()), select_tools(ALL))) as client:
        (listed,) = client.read_resource("vmrag://collections").contents
        assert "pages" in listed.text
        (page,) = client.read_resource("vmrag://documents/pages/pages/tide.md").contents
        assert "read at noon" in page.text


@pytest.mark.sample(2)
def test_commands_in_a_clone_without_its_knowledge_base_answer_from_files(cut_off):
    bound = is_bound(cut_off)
    for command, expected in {
        ("query", "tide gauge"): "read at noon",
        ("grep", "noon"): "pages/tide.md:3:",
        ("show", "pages/tide.md"): "read at noon",
        ("list",): "pages/tide.md",
        ("status",): "pin  ",
        ("diff",): "no documents changed",
    }.items():
        result = cut_off.vmrag(*command, code=None)
        assert expected in result.out, (command, result)
        assert (
            "vmrag fetch" in result.out + result.err or "vmrag clone" in result.out + result.err or command[0] == "show"
        )
    for command in (("query", "certificates", "--collection", "handbook"), ("show", "handbook/rest.md")):
        result = cut_off.vmrag(*command, code=None)
        assert (result.code == 0) == bound, result


def test_fork_is_contacted_once_per_call(sourced):
    bob = sourced.join("bob")
    bob.git("remote", "set-url", "origin", str(sourced.bare("fork.git").top))
    bob.vmrag("trust", "--yes")
    with bob._here():
        tools = Tools(bob.top, chosen=ToolChoice(toolsets="essential"))
        assert str(tools("status")).count("not on this machine") == 1
        answer = tools("read", name="pages/tide.md")
        assert [line for line in answer.warnings if "only files answer" in line] == answer.warnings
