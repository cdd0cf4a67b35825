"""`dolt_clone`, `dolt_fetch`, `dolt_pull`, `dolt_push`: what they bring, what they count, what they
leave alone, and why they fail.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support import people
from tests.support.agent import run_story
from tests.support.mcp import Tools, Yes, warned
from tests.support.people import User, World
from tests.support.terminal import Project, new_project
from tests.support.travel import git_server
from vmrag_link.engines.base import Write
from vmrag_link.engines.doltlite.engine import DoltliteEngine
from vmrag_link.models import Document, content_hash
from vmrag_mcp.call_progress import CallProgress, Cancelled

pytestmark = pytest.mark.hooks("off")

shared, world, newcomer = people.shared, people.world, people.newcomer

FIRST = {"setup.md", "rest.md", "deep/tls.txt"}
NOBODY = "http://127.0.0.1:9/kb"


@pytest.fixture
def ada(world: World) -> User:
    return world.ada


@pytest.fixture
def tools(ada: User) -> Tools:
    return Tools(ada.top)


@pytest.fixture
def bob(world: World) -> User:
    """He has cloned and fetched all that Ada pushed, and can write."""
    return joined(world, "bob")


@pytest.fixture
def bobs(bob: User) -> Tools:
    return Tools(bob.top)


@pytest.fixture
def fresh(newcomer: Project) -> Tools:
    """Return tools of a newcomer who confirms each address."""
    return Tools(newcomer.top, agreed=Yes(newcomer))


@pytest.fixture
def settled(newcomer: Project) -> Tools:
    """Return tools of a newcomer who confirms addresses and lets vmrag remember them."""
    return Tools(newcomer.top, agreed=Yes(newcomer, remember=True))


def joined(world: World, name: str) -> User:
    user = world.join(name)
    user.vmrag("install", "-q")
    return user


def kb_url(world: World) -> str:
    return f"git+file://{world.hub.top}"


def published(user: User, name: str, text: str) -> str:
    revision = user.write_document(name, text)
    user.push("origin", "main")
    return revision


def everything(project: Project) -> Any:
    listing = (
        project.git("ls-files", "--stage"),
        project.git("status", "--porcelain"),
        project.git("config", "--local", "-l"),
    )
    kept = {"locks", "logs", "settings", "embeddings.sqlite"}
    below = (
        sorted(path.name for path in project.shared.iterdir() if path.name not in kept)
        if project.shared.is_dir()
        else []
    )
    return listing, below


def state(user: Project) -> Any:
    """All that a fetch must not change."""
    return user.ask("branch"), user.texts(), user.pinned, user.git("status", "--porcelain")


# -- clone


def test_clone_is_indexed_when_it_returns(world, ada, newcomer, fresh):
    made = fresh("dolt_clone", remote_url=kb_url(world))
    assert made["repository"]["remote_url"] == kb_url(world)
    assert made["checkout"]["branch"] == "main"
    assert made["checkout"]["commit"]["hash"] == ada.pinned == newcomer.pinned
    assert made["checkout"]["commit"]["message"] == "first"
    assert made["checkout"]["commit"]["timestamp"].endswith("Z")
    assert made["sync_summary"] == {"documents_loaded": 3, "collections_created": ["handbook"]}
    assert (made["kb"]["in_sync"], made["kb"]["branch"]) == (True, "main")
    assert newcomer.answers() == ada.answers()
    assert newcomer.consistent()


def test_remote_of_the_clone_is_its_origin(world, ada, newcomer, settled):
    settled("dolt_clone", remote_url=kb_url(world))
    assert json.loads((newcomer.top / ".dolt-version").read_text())["dolt_remote"] == kb_url(world)
    later = published(ada, "new.md", "news")
    result = settled("dolt_fetch")
    assert result["updates"]["branches_updated"][0]["new_commit"] == later
    assert settled("dolt_pull", branch="main")["pull_result"]["to_commit"] == later


def test_clone_of_the_code_gets_the_pinned_revision(world, ada):
    published(ada, "new.md", "news")
    user = world.join("carol")
    user.git("switch", "-q", "-C", "old", "HEAD~1")
    made = Tools(user.top)("dolt_clone", remote_url="origin")
    assert made["sync_summary"]["documents_loaded"] == 3
    assert made["checkout"]["commit"]["hash"] == user.pinned
    assert user.git("status", "--porcelain") == ""
    assert made["repository"]["remote_url"] == str(world.hub.top)


def test_clone_by_the_url_of_the_code_uses_git(world):
    user = world.join("carol")
    made = Tools(user.top)("dolt_clone", remote_url=str(world.hub.top))
    assert made["sync_summary"]["documents_loaded"] == 3


def test_clone_goes_to_a_branch(world, ada, newcomer, settled):
    ada.git("switch", "-q", "-c", "topic")
    revision = ada.write_document("topic.md", "of the topic")
    ada.push("-u", "origin", "topic")
    made = settled("dolt_clone", remote_url=kb_url(world), branch="topic")
    assert (made["checkout"]["branch"], made["checkout"]["commit"]["hash"]) == ("topic", revision)
    assert newcomer.git("config", "branch.main.vmragBranch") == "topic"
    newcomer.put("mine.md", "mine")
    assert settled("dolt_fetch")["current_branch_status"] == {"branch": "topic", "behind": 0, "ahead": 0}


def test_commit_precedes_a_branch_and_may_be_read_detached(world, ada, newcomer, fresh):
    first = ada.pinned
    published(ada, "new.md", "news")
    made = fresh("dolt_clone", remote_url=kb_url(world), branch="main", commit=first[:8])
    assert made["checkout"]["branch"] is None
    assert made["checkout"]["commit"]["hash"] == first == newcomer.pinned
    assert made["sync_summary"]["documents_loaded"] == 3
    assert made["kb"]["branch"] is None
    newcomer.put("mine.md", "mine")  # the first document makes the branch
    assert set(newcomer.texts()) == {*FIRST, "mine.md"}


def test_commit_at_which_a_branch_is_becomes_that_branch(world, ada, fresh):
    assert fresh("dolt_clone", remote_url=kb_url(world), commit=ada.pinned)["checkout"]["branch"] == "main"


def test_clone_refuses_a_short_prefix_of_a_commit(world, ada, fresh):
    error = fresh.error("COMMIT_NOT_FOUND", "dolt_clone", remote_url=kb_url(world), commit=ada.pinned[:3])
    assert "shorter than 4 characters" in error["message"]


def test_failed_clone_leaves_nothing_and_the_corrected_call_succeeds(world, newcomer, fresh):
    before = everything(newcomer)
    (world.top / "notes.txt").write_text("no knowledge base, only words\n" * 300)
    for code, arguments in (
        ("BRANCH_NOT_FOUND", {"branch": "absent"}),
        ("COMMIT_NOT_FOUND", {"commit": "0" * 40}),
        ("INVALID_REMOTE_URL", {"remote_url": "ext::sh -c id"}),
        ("REMOTE_UNREACHABLE", {"remote_url": NOBODY}),
        ("REMOTE_UNREACHABLE", {"remote_url": f"git+{NOBODY}"}),
        ("INVALID_REMOTE_URL", {"remote_url": "absent"}),
        ("REMOTE_NOT_FOUND", {"remote_url": "git+file:///nowhere/at/all"}),
        ("REMOTE_NOT_FOUND", {"remote_url": f"git+file://{world.bare('empty.git').top}"}),
        ("REMOTE_DAMAGED", {"remote_url": f"file://{world.top}/notes.txt"}),
    ):
        fresh.error(code, "dolt_clone", **({"remote_url": kb_url(world)} | arguments))
    assert everything(newcomer) == before
    assert fresh("dolt_clone", remote_url=kb_url(world))["sync_summary"]["documents_loaded"] == 3


def _document(collection: str, doc_id: str) -> Any:
    return Document(collection=collection, doc_id=doc_id, title="", content="text", content_hash=content_hash("text"))


def test_trap_20_empty_knowledge_base_does_not_block_a_clone(world, newcomer, fresh):
    for name in ("chroma_list_collections", "dolt_fetch", "dolt_push"):
        fresh.error("NOT_INITIALIZED", name)
    assert not (newcomer.shared / "kb" / "kb.doltlite").exists()
    fresh.error("INVALID_REMOTE_URL", "dolt_init", remote_url="ext::sh -c id")
    DoltliteEngine.create(newcomer.shared / "kb", author="A <a@b>", date="2020-01-01T00:00:00Z").close()  # then killed
    assert fresh("dolt_clone", remote_url=kb_url(world))["sync_summary"]["documents_loaded"] == 3


def test_clone_from_a_remote_of_git_that_is_not_the_nearest(world, ada, newcomer, fresh):
    newcomer.git("remote", "add", "origin", str(world.bare("empty.git").top))
    newcomer.git("remote", "add", "team", str(world.hub.top))
    made = fresh("dolt_clone", remote_url="team")
    assert (made["checkout"]["branch"], made["checkout"]["commit"]["hash"]) == ("main", ada.pinned)
    assert json.loads((newcomer.top / ".dolt-version").read_text())["dolt_remote"].startswith("git:")
    newcomer.record("mine", mine="mine")
    result = fresh("dolt_push")
    assert (result["push_result"]["remote"], result["push_result"]["to_url"]) == ("team", str(world.hub.top))
    assert world.holds(newcomer.pinned)


@pytest.mark.parametrize("name", ["dolt_fetch", "dolt_pull"])
def test_every_git_remote_can_be_named_and_origin_means_git_origin(world, ada, bob, bobs, name):
    other = world.bare("other.git")
    bob.git("remote", "add", "team", str(world.hub.top))
    bob.git("remote", "set-url", "origin", str(other.top))
    bob.git("config", "vmrag.remote", "team")
    bob.git("fetch", "-q", "team")
    if name == "dolt_fetch":
        assert bobs(name)["remote"] == "team"
    bobs(name, remote="team")
    bobs.error("REMOTE_NOT_FOUND", name, remote="origin")  # empty, and not what `git:` means here


FIRST_CALLS = [
    ("dolt_fetch", {}),
    ("dolt_fetch", {"remote": "origin", "branch": "main"}),
    ("dolt_pull", {}),
    ("dolt_status", {}),
    ("dolt_branches", {}),
    ("dolt_show", {"commit": "HEAD"}),
    ("dolt_clone", {"remote_url": "origin"}),
    ("dolt_checkout", {"target": "main"}),
    ("dolt_reset", {}),
    ("get_sync_status", {}),
    ("get_branch_status", {}),
    ("sync_all", {}),
    ("get_diff", {}),
    ("merge_branch", {"source": "main"}),
    ("create_branch", {"name": "x"}),
    ("chroma_list_collections", {}),
    ("chroma_query_documents", {"query_texts": ["tls"]}),
]


@pytest.mark.parametrize(("name", "arguments"), FIRST_CALLS)
@pytest.mark.sample(5)
def test_each_tool_can_be_the_first_call_in_a_fresh_clone(world, ada, name, arguments):
    bob = world.join("bob")
    result = Tools(bob.top)(name, **arguments)
    assert (result["kb"]["commit"], result["kb"]["in_sync"]) == (ada.pinned, True)
    if name == "dolt_clone":
        assert result["checkout"]["branch"] == "main"


def test_server_in_a_fresh_clone_answers_a_fetch_first(world, ada):
    """Call it over stdio, as its client does."""
    bob = world.join("bob")

    async def story(call: Any) -> None:
        answer = await call("dolt_fetch")
        assert (answer["success"], answer["kb"]["commit"]) == (True, ada.pinned)
        assert (await call("dolt_pull"))["pull_result"]["merge_type"] == "already_up_to_date"

    with bob._here():
        run_story(bob, story, toolsets="default")


# -- fetch


def test_fetch_counts_new_commits_and_moves_nothing(ada, bob, bobs):
    old = ada.pinned
    ada.write_document("one.md", "one")
    new = published(ada, "two.md", "two")
    before = state(bob)
    answer = bobs("dolt_fetch")
    assert answer["remote"] == "origin"
    assert answer["updates"] == {
        "branches_updated": [{"name": "main", "old_commit": old, "new_commit": new, "commits_fetched": 2}],
        "new_branches": [],
        "total_commits_fetched": 2,
    }
    assert answer["current_branch_status"] == {"branch": None, "behind": 2, "ahead": 0}
    assert state(bob) == before
    again = bobs("dolt_fetch")
    assert again["updates"] == {"branches_updated": [], "new_branches": [], "total_commits_fetched": 0}
    bobs.error("BRANCH_NOT_FOUND", "dolt_fetch", branch="vmrag_root")
    assert state(bob) == before


def test_fetch_reports_new_branch_with_its_own_commits(ada, bob, bobs):
    ada.git("switch", "-q", "-c", "topic")
    new = ada.write_document("topic.md", "of the topic")
    ada.push("-u", "origin", "topic")
    updates = bobs("dolt_fetch", branch="topic")["updates"]
    assert updates["new_branches"] == ["topic"]
    assert updates["branches_updated"] == [
        {"name": "topic", "old_commit": None, "new_commit": new, "commits_fetched": 1}
    ]


def test_fetch_from_shared_folder_reports_updates(world, ada, bob):
    """A shared folder, to which the engine talks by itself."""
    place = f"file://{world.top}/shared.doltlite"
    tools, bobs = Tools(ada.top, agreed=Yes(ada)), Tools(bob.top, agreed=Yes(bob))
    tools("dolt_push", remote=place)
    assert bobs("dolt_fetch", remote=place)["updates"]["new_branches"] == ["main"]
    ada.write_document("one.md", "one")
    tools("dolt_push", remote=place)
    assert [
        update["commits_fetched"] for update in bobs("dolt_fetch", remote=place)["updates"]["branches_updated"]
    ] == [1]


@pytest.mark.long  # test_mcp_status counts a hundred
def test_trap_25_ahead_and_behind_count_every_commit(world, ada, bob, bobs):
    bob.write_document("mine.md", "mine")
    _many(bob, 104)
    published(ada, "one.md", "one")
    current_branch_status = bobs("dolt_fetch")["current_branch_status"]
    assert (current_branch_status["ahead"], current_branch_status["behind"]) == (105, 1)


def _many(user: Project, number: int) -> None:
    """That many commits on the KB branch, of which the last is pinned."""
    engine = DoltliteEngine.open(user.shared / "kb")
    branch = engine.find_branch("main")
    assert branch is not None
    head = branch.head
    for index in range(number):
        engine.write("main", Write(put_documents=[_document("handbook", f"n{index}")]), expected=head)
        head = engine.commit("main", message="n", author="A <a@b>", date="2026-01-02T03:04:05Z", expected=head)
    engine.close()
    user.vmrag("pin")


# -- pull


def test_pull_merges_the_revision_pinned_upstream(ada, bob, bobs):
    old, new = ada.pinned, published(ada, "new.md", "news")
    bob.git("fetch", "-q")
    answer = bobs("dolt_pull")
    assert answer["action_taken"] == {"uncommitted_handling": "none", "pre_commit": {"created": False, "hash": None}}
    assert answer["pull_result"] == {
        "merge_type": "fast_forward",
        "commits_merged": 1,
        "from_commit": old,
        "to_commit": new,
    }
    assert answer["sync_summary"] == {
        "documents_added": 1,
        "documents_modified": 0,
        "documents_deleted": 0,
        "total_changes": 1,
    }
    assert answer["kb"]["commit"] == new == bob.pinned
    again = bobs("dolt_pull")
    assert again["pull_result"] == {
        "merge_type": "already_up_to_date",
        "commits_merged": 0,
        "from_commit": new,
        "to_commit": new,
    }
    assert bob.consistent()


def test_pull_merges_documents_of_both_sides_with_metadata(ada, bob, bobs):
    bob.write("docs/mine.md", "---\nowner: bob\n---\nmine\n")
    bob.vmrag("import", "docs/mine.md", "--collection", "handbook", "--copy")
    bob.record("mine")
    published(ada, "new.md", "news")
    assert bobs("dolt_fetch")["current_branch_status"] == {"branch": "main", "behind": 1, "ahead": 1}
    bob.git("fetch", "-q")
    pull_result = bobs("dolt_pull")["pull_result"]
    assert (pull_result["merge_type"], pull_result["commits_merged"]) == ("merge", 1)
    listed = {document["doc_id"]: document["metadata"] for document in bob.ask("list")["documents"]}
    assert {*FIRST, "new.md"} < set(listed)
    assert {"owner": "bob"} in listed.values()
    assert bob.consistent()


def test_trap_9_a_pull_brings_all_collections(ada, bob, bobs):
    for name in ("alpha", "beta", "gamma"):
        ada.put("doc.md", f"text of {name}", collection=name)
    ada.record("three more", last="handbook, too")
    ada.push()
    bob.git("fetch", "-q")
    bobs("dolt_pull")
    assert {document["collection"] for document in bob.ask("list")["documents"]} == {
        "handbook",
        "alpha",
        "beta",
        "gamma",
    }
    for name in ("alpha", "beta", "gamma"):
        results = bob.ask("query", f"text of {name}", "--collection", name)["results"]
        assert [document["doc_id"] for document in results] == ["doc.md"]


def test_pull_merges_the_remote_branch_beyond_the_upstream(ada, bob, bobs):
    """A colleague has pushed knowledge, and the code that pins it is not fetched, or was never
    pushed.
    """
    old, new = ada.pinned, ada.write_document("new.md", "news")
    ada.vmrag("push")
    bobs("dolt_fetch")
    assert bobs("dolt_status")["sync_state"] == {"ahead": 0, "behind": 1, "diverged": False}
    answer = bobs("dolt_pull")
    assert answer["pull_result"] == {
        "merge_type": "fast_forward",
        "commits_merged": 1,
        "from_commit": old,
        "to_commit": new,
    }
    assert (answer["sync_summary"]["documents_added"], bob.pinned, warned(answer)) == (1, new, set())
    assert bobs("dolt_status")["sync_state"] == {"ahead": 0, "behind": 0, "diverged": False}
    assert bob.consistent()


def test_pull_counts_upstream_and_further_commits_together(ada, bob, bobs):
    old = bob.pinned
    bob.write_document("mine.md", "mine")
    mine = bob.pinned
    published(ada, "one.md", "one")
    two = ada.write_document("two.md", "two")
    ada.vmrag("push")
    bob.git("fetch", "-q")
    answer = bobs("dolt_pull")
    assert (answer["pull_result"]["merge_type"], answer["pull_result"]["commits_merged"]) == ("merge", 2)
    assert (answer["pull_result"]["from_commit"], answer["sync_summary"]["documents_added"]) == (mine, 2)
    assert answer["pull_result"]["to_commit"] == bob.pinned != old
    assert {"one.md", "two.md", "mine.md"} <= set(bob.texts())
    assert two in {revision["revision"] for revision in bob.ask("log")["revisions"]}
    assert bobs("dolt_pull")["pull_result"]["merge_type"] == "already_up_to_date"
    assert bobs("dolt_status")["sync_state"]["behind"] == 0
    assert bob.consistent()


def test_pull_does_not_restore_knowledge_that_the_code_left(ada, bob, bobs):
    """A commit reverted the pin; the remote's branch is still at the old revision."""
    revision = published(ada, "new.md", "news")
    bob.git("pull", "-q")
    bob.vmrag("sync")
    bob.git("revert", "--no-edit", "HEAD")
    bob.vmrag("sync")
    assert bob.pinned != revision
    answer = bobs("dolt_pull")
    assert (answer["pull_result"]["merge_type"], warned(answer)) == ("already_up_to_date", {"NOTE"})
    assert "new.md" not in bob.texts()
    assert bobs("dolt_pull", branch="main")["kb"]["commit"] == revision == bob.pinned


@pytest.fixture
def dirty(ada: User, bob: User) -> User:
    """Bob has an uncommitted document, one changed and one removed; Ada has pushed one."""
    published(ada, "new.md", "news")
    bob.git("fetch", "-q")
    bob.put("mine.md", "mine")
    bob.put("rest.md", "never rest")
    bob.drop("deep/tls.txt")
    return bob


def test_commit_first_commits_them_and_merges(dirty, bobs):
    answer = bobs("dolt_pull", if_uncommitted="commit_first", commit_message="Mine")
    made = answer["action_taken"]["pre_commit"]
    assert (made["created"], answer["pull_result"]["merge_type"]) == (True, "merge")
    assert answer["pull_result"]["from_commit"] == made["hash"]
    assert set(dirty.texts()) == {"setup.md", "rest.md", "mine.md", "new.md"}
    assert {*dirty.marks().values()} == {None}
    assert dirty.ask("log", made["hash"])["revisions"][0]["message"] == "Mine"


# -- push


def test_push_counts_commits_new_to_the_remote(world, ada, tools):
    ada.write_document("one.md", "one")
    new = ada.write_document("two.md", "two")
    answer = tools("dolt_push")
    assert answer["push_result"] == {
        "remote": "origin",
        "branch": "main",
        "commits_pushed": 2,
        "from_commit": new,
        "to_url": str(world.hub.top),
    }
    assert answer["remote_state"] == {"remote_branch": "main", "remote_commit": new}
    assert world.holds(new)
    nothing = tools.error("NO_COMMITS_TO_PUSH", "dolt_push")
    assert nothing["details"]["branch"] == "main"


def test_branch_new_to_the_remote_is_pushed(ada, tools):
    ada.git("switch", "-q", "-c", "topic")
    new = ada.write_document("topic.md", "of the topic")
    answer = tools("dolt_push", set_upstream=False)
    assert (answer["push_result"]["from_commit"], answer["push_result"]["commits_pushed"]) == (new, 1)
    assert answer["remote_state"] == {"remote_branch": "topic", "remote_commit": new}


def test_push_overwrites_remote_commits_only_by_force(world, ada, tools, bob, bobs):
    theirs = ada.write_document("new.md", "news")
    tools("dolt_push")
    bob.write_document("mine.md", "mine")
    refused = bobs.error("REMOTE_REJECTED", "dolt_push")
    assert refused["details"]["branch"] == "main"
    assert any("dolt_pull with branch" in suggestion for suggestion in refused["suggestions"])
    answer = bobs("dolt_push", force=True)
    assert answer["remote_state"]["remote_commit"] == answer["push_result"]["from_commit"] == bob.pinned
    assert world.holds(theirs)


def test_shown_texts_contain_no_password(world, ada, tools):
    ada.write_document("one.md", "one")
    with git_server(world.top, user="ada", password="secret") as server:
        ada.git("remote", "set-url", "origin", f"{server.with_user('ada:secret')}/code.git")
        answer = tools("dolt_push")
    assert "secret" not in json.dumps(answer)
    assert answer["push_result"]["commits_pushed"] == 1


def test_configured_remote_is_the_origin_of_the_knowledge_base(world, tmp_path):
    """A knowledge base that is somewhere else than the code: `origin` is its own remote, not
    git's.
    """
    project = new_project(world.top / "separate")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "code")
    project.git("remote", "add", "origin", "http://127.0.0.1:9/code.git")
    place = f"git+file://{world.bare('kb.git').top}"
    tools = Tools(project.top, agreed=Yes(project, remember=True))
    tools("dolt_init", remote_url=place)
    project.record("first", a="alpha")
    answer = tools("dolt_push")
    assert (answer["push_result"]["to_url"], answer["push_result"]["from_commit"]) == (place, project.pinned)
    assert answer["push_result"]["commits_pushed"] == 1  # the tables came with the branch that every knowledge base has
    assert tools("dolt_fetch")["current_branch_status"] == {"branch": "main", "behind": 0, "ahead": 0}


def test_clone_reads_folder_remote_of_the_engine_directly(world, ada, newcomer, settled):
    place = f"file://{world.top}/shared.doltlite"
    Tools(ada.top, agreed=Yes(ada))("dolt_push", remote=place)
    made = settled("dolt_clone", remote_url=place)
    assert (made["repository"]["remote_url"], made["checkout"]["commit"]["hash"]) == (place, ada.pinned)
    newcomer.record("mine", mine="mine")
    assert settled("dolt_push")["remote_state"]["remote_commit"] == newcomer.pinned


def test_clone_that_is_given_up_leaves_nothing(world, newcomer, fresh):
    before = everything(newcomer)
    progress = CallProgress()
    progress.cancelled.set()
    with pytest.raises(Cancelled):
        fresh.session.run_tool(
            fresh.enabled.selection.require_tool("dolt_clone"), {"remote_url": kb_url(world)}, progress, fresh.agreed
        )
    assert everything(newcomer) == before
    assert fresh("dolt_clone", remote_url=kb_url(world))["kb"]["in_sync"]


def test_second_concurrent_init_reports_already_initialized(newcomer):
    with ThreadPoolExecutor(2) as pool:
        outcome = list(pool.map(lambda tools: tools.run("dolt_init", {}), [Tools(newcomer.top), Tools(newcomer.top)]))
    assert sorted(result.get("code", "") for result, _ in outcome) == ["", "ALREADY_INITIALIZED"]
    assert newcomer.status()["in_sync"]
