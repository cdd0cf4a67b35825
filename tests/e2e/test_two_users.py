"""Two people and a bare repository: knowledge goes where the code goes, with plain git and the
hooks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.support import people
from tests.support.cli import start
from tests.support.people import DATA, User, World
from tests.support.repos import ENGINE
from tests.support.terminal import SCRIPT
from vmrag_link import hints

shared, world = people.shared, people.world

COMING = "Fetching the knowledge base of this repository from origin.\n"
COPIES = "warning: 3 stored copies of tracked files may be outdated; run 'vmrag init && vmrag sources dedupe' to search the files instead\n"
NO_HOOKS = (
    "warning: vmrag's git hooks are not installed in this clone: 'git push' does not push the knowledge base, "
    "and 'git checkout' does not move it; run 'vmrag install' to install them\n"
)
LATER = "vmrag: syncing in the background; run 'vmrag status' to see the state"
SENT = "vmrag: pushed the documents that these commits pin to origin"


def assert_alike(one: User, other: User, *, answers: bool = False) -> None:
    """The same revision, and the same fingerprint of it, which decides the answers; those, too, if
    asked for.
    """
    assert one.pinned == other.pinned
    assert one.fingerprint() == other.fingerprint()  # this waits for what goes on in the background
    assert one.status()["state"] == other.status()["state"] == "in_sync"
    assert not answers or one.answers() == other.answers()


# -- a fresh clone ---------------------------------------------------------------------------------


def test_install_after_git_clone_fetches_knowledge(world):
    bob = world.join("bob")
    result = bob.start("install")
    assert result.code == 0
    assert result.err == COMING
    assert result.out.splitlines()[0].startswith("Installed in ")
    assert result.out.splitlines()[-1] == "Fetched the knowledge base that this code pins."
    assert_alike(world.ada, bob)
    assert bob.start("install").out == "Installed already.\n"


def test_query_after_git_clone_fetches_knowledge(world):
    bob = world.join("bob")
    result = bob.start("query", "certificates", "--json")
    assert (result.code, result.err.replace(COPIES, "")) == (0, COMING + NO_HOOKS)
    assert json.loads(result.out)["kb"]["commit"] == world.ada.pinned
    bob.vmrag("install")
    assert bob.start("query", "certificates").err == ""
    assert_alike(world.ada, bob)


def test_vmrag_clone_after_git_clone_fetches_and_prints_the_next_step(world):
    bob = world.join("bob")
    result = bob.start("clone")
    assert (result.code, result.err) == (0, COMING)
    assert result.out.splitlines() == [
        "Fetched the knowledge base from origin: main.",
        "hint: run 'vmrag install' to let git update and push it with the code",
    ]
    assert (
        bob.vmrag("clone", code=2).err.splitlines()[-1]
        == "hint: run 'vmrag fetch' to fetch the revision, or 'vmrag pull' to merge the newer revision"
    )
    assert_alike(world.ada, bob)


def test_init_after_git_clone_fetches_the_existing_knowledge_base(world):
    bob = world.join("bob")
    result = bob.start("init", "--knowledge-base", "--no-sources")
    assert (result.code, result.err) == (0, COMING)
    assert "Fetched the knowledge base from origin" in result.out.splitlines()
    assert bob.git("status", "--porcelain") == ""
    assert_alike(world.ada, bob)
    bob.write_document("bob.md", "Bob was here.")
    assert bob.said("push", "-q") == [SENT]


@pytest.mark.parametrize("options", [["--depth", "1"], ["--filter=blob:none"], ["--single-branch"]])
@pytest.mark.sample(1)
def test_clone_that_lacks_something_has_all_of_the_knowledge(world, options):
    world.ada.write_document("more.md", "More.")
    world.ada.git("push", "-q")
    world.hub.git("config", "uploadpack.allowFilter", "true")
    bob = world.join("bob", *options, url=f"file://{world.hub.top}")
    bob.vmrag("install")
    assert_alike(world.ada, bob)
    bob.write_document("bob.md", "Bob was here.")
    assert bob.said("push", "-q") == [SENT]
    world.ada.git("pull", "-q")
    assert_alike(world.ada, bob)
    assert bob.git("fsck", "--connectivity-only", "--no-dangling") == ""


def test_several_first_commands_at_once_fetch_it_once(world):
    bob = world.join("bob")
    bob.git("worktree", "add", "-q", "--detach", "../bob-too")
    other = User(world.top / "bob-too", bob.home)
    running = [start(user, "query", "certificates", "--json") for user in (bob, bob, other)]
    results = [command.done() for command in running]
    assert [command.code for command in results] == [0, 0, 0]
    assert "".join(command.err for command in results).replace(NO_HOOKS, "").replace(COPIES, "") == COMING
    assert (
        len(
            {
                str([(hit["doc_id"], hit["score"], hit["text"]) for hit in command.json["results"]])
                for command in results
            }
        )
        == 1
    )


def test_query_fetches_knowledge_that_was_pushed_after_the_code(world):
    ada = world.ada
    ada.write_document("late.md", "Ada forgot to push this.")
    ada.git("push", "-q", "--no-verify")
    bob = world.join("bob")
    *_, said, hint = bob.vmrag("install").out.splitlines()
    assert hint.startswith("hint: ask its author")
    assert said.startswith(f"Could not fetch the knowledge base: the pin names revision {ada.pinned}")
    assert bob.vmrag("query", "certificates", code=1).err.splitlines()[-1].startswith("hint: ask its author")
    ada.vmrag("push")
    assert bob.ask("query", "certificates")["kb"]["in_sync"]


# -- the whole story -------------------------------------------------------------------------------


def concluded(user: User, how: str) -> None:
    """Finish git's operation after a conflict was resolved."""
    user.git("add", "-A")
    if how == "rebase":
        user.git("rebase", "--continue")
    else:
        user.git("commit", "-q", "--no-edit")


def story(ada: User, bob: User, how: str) -> None:
    """Different documents, then the same one, on one branch."""
    pull = ("pull", "-q", "--rebase" if how == "rebase" else "--no-rebase", "--no-edit")
    theirs = ada.write_document("ada.md", "Ada keeps bees.")
    ada.git("push", "-q")
    bob.write_document("bob.md", "Bob keeps goats.")
    assert bob.run("push", "-q").returncode != 0  # Ada was faster; her knowledge is not here yet
    bob.git(*pull)
    assert bob.pinned != theirs
    bob.git("push", "-q")
    ada.git("pull", "-q")
    assert_alike(ada, bob)
    texts = bob.texts()
    assert (texts["ada.md"], texts["bob.md"]) == ("Ada keeps bees.", "Bob keeps goats.")

    ada.write_document("setup.md", "Install it with uv.\n")
    ada.git("push", "-q")
    bob.write_document("setup.md", "Install it with conda.\n")
    result = bob.run(*pull)
    assert result.returncode != 0
    assert (
        "vmrag: the knowledge bases of the two sides have a conflict in handbook/setup.md; run 'vmrag resolve' to resolve the conflicts"
        in result.stderr
    )
    report = bob.ask("resolve", "--list", code=1)
    assert [conflict["id"] for conflict in report["conflicts"]] == ["handbook/setup.md"]
    both = "Install it with uv or conda.\n"
    bob.write("docs/setup.md", both)
    bob.vmrag("resolve", "handbook/setup.md", "--file", "docs/setup.md")
    concluded(bob, how)
    bob.git("push", "-q")
    ada.git("pull", "-q")
    assert_alike(ada, bob, answers=True)
    assert ada.texts()["setup.md"] == both


@pytest.mark.long  # two_people_edit_on_one_branch merges, too
def test_branch_of_one_is_merged_by_the_other(world):
    ada, bob = world.ada, world.join("bob")
    bob.vmrag("install")
    bob.git("switch", "-q", "-c", "topic")
    bob.write_document("topic.md", "A topic of its own.")
    bob.git("push", "-q", "-u", "origin", "topic")
    ada.write_document("ada.md", "Ada keeps bees and ducks.")
    ada.git("fetch", "-q")
    ada.git("merge", "-q", "--no-edit", "origin/topic")
    ada.git("push", "-q")
    bob.git("switch", "-q", "main")
    bob.git("pull", "-q")
    assert_alike(ada, bob)
    assert bob.texts()["topic.md"] == "A topic of its own."
    assert bob.texts()["ada.md"] == "Ada keeps bees and ducks."


@pytest.mark.parametrize("how", ["merge", "rebase"])
@pytest.mark.sample(1)
def test_two_people_edit_one_branch_and_get_equal_knowledge(world, how):
    bob = world.join("bob")
    bob.vmrag("install")
    story(world.ada, bob, how)
    assert world.hub.git("fsck", "--full") == ""


@pytest.mark.long
def test_remote_without_git_works_like_a_git_remote(world):
    ada = world.ada
    folder = world.top / "knowledge"
    folder.mkdir()
    url = f"file://{folder}/handbook"
    ada.write(".vmrag.yaml", f"{people.SETTINGS}remote: {url}\n")
    ada.vmrag("remote", "--trust", url)
    ada.git("commit", "-q", "-am", "the knowledge lies elsewhere")
    ada.write_document("where.md", "The knowledge lies elsewhere.")
    assert json.loads((ada.top / ".dolt-version").read_text())["dolt_remote"] == url
    assert ada.said("push", "-q") == [f"vmrag: pushed the documents that these commits pin to {url}"]

    bob = world.join("bob")
    result = bob.vmrag("query", "where", code=2)
    assert "did not contact the untrusted remote" in result.err
    bob.vmrag("trust", "--yes")
    result = bob.vmrag("query", "where", code=2)  # the settings name it, but not on Bob's machine
    trust, clone = hints.list_commands(result.err.splitlines()[-1])
    assert (trust, clone) == (f"vmrag remote --trust {url}", "vmrag clone")
    bob.vmrag(*trust.split()[1:])
    assert bob.start("install").err == COMING.replace("origin", url)
    assert_alike(ada, bob)
    story(ada, bob, "merge")


# -- without a network, or without what was to come ------------------------------------------------


def test_commands_without_network_continue_from_local_data(world):
    ada = world.ada
    ada.git("switch", "-q", "-c", "topic")
    topic = ada.write_document("topic.md", "A topic.")
    ada.git("push", "-q", "--no-verify", "origin", "topic")
    bob = world.join("bob")
    bob.vmrag("install")
    first = bob.pinned
    world.hub.top.rename(world.top / "gone.git")
    assert bob.said("switch", "-q", "topic") == [LATER]
    result = bob.vmrag("query", "certificates", "--json")
    assert result.json["kb"] | {"commit": first, "in_sync": False} == result.json["kb"]
    assert bob.pinned == topic
    note = (
        f"no git repository at origin), so this answer comes from revision {first[:7]}; run 'vmrag fetch' to fetch it"
    )
    assert result.json["notes"] == [f"the pinned revision is not in this knowledge base ({note}"]
    assert bob.status()["state"] == "missing"
    assert bob.vmrag("sync", code=1).err.splitlines()[0].endswith("no git repository at origin.")
    assert bob.vmrag("fetch", code=3).err.splitlines()[0] == "error: no git repository at origin."
    bob.git("switch", "-q", "main")
    assert bob.status()["state"] == "in_sync"
    bob.write_document("bob.md", "Bob works on the train.")
    assert bob.run("push", "-q").returncode != 0
    assert bob.vmrag("push", code=3).err.splitlines()[0] == "error: no git repository at origin."
    (world.top / "gone.git").rename(world.hub.top)
    assert bob.said("push", "-q") == [SENT]


@pytest.mark.parametrize("policy", ["block", "warn"])
def test_push_with_unreachable_knowledge_is_rejected_or_warned_about(world, policy):
    ada = world.ada
    url = "http://127.0.0.1:9/handbook"
    ada.write(".vmrag.yaml", f"{people.SETTINGS}remote: {url}\nhooks:\n  on_unreachable: {policy}\n")
    ada.vmrag("trust", "--yes")
    ada.write_document("where.md", "The knowledge lies elsewhere.")
    before = world.hub.git("rev-parse", "main")
    blocks = policy == "block"
    (line,) = ada.said("push", "-q", code=int(blocks))
    assert line.startswith(f"vmrag: the documents that these commits pin were not pushed: cannot reach {url}")
    assert line.endswith(", or 'git push --no-verify' to push only the code")
    assert (world.hub.git("rev-parse", "main") == before) == blocks


@pytest.mark.parametrize("command", ["fetch", "sync"])
@pytest.mark.sample(1)
def test_unpushed_knowledge_is_missing_until_it_is_pushed(world, command):
    ada, bob = world.ada, world.join("bob")
    bob.vmrag("install")
    first = bob.pinned
    revision = ada.write_document("late.md", "Ada forgot to push this.")
    ada.git("push", "-q", "--no-verify")
    bob.git("pull", "-q")
    answer = bob.vmrag("query", "certificates", "--json").json
    assert (answer["kb"]["commit"], answer["kb"]["in_sync"]) == (first, False)
    assert "(the remote does not have it either)" in answer["notes"][0]
    assert bob.status()["state"] == "missing"
    result = bob.vmrag(command, code=1)
    assert f"{revision[:7]}" in result.out + result.err
    assert "vmrag push" in result.out + result.err
    assert bob.git("log", "-1", "--format=%an", "--", ".dolt-version") == "ada"
    ada.vmrag("push")
    assert bob.vmrag(command).code == 0
    assert_alike(ada, bob)


@pytest.mark.parametrize("how", ["checkout", "pull"])
@pytest.mark.sample(1)
def test_git_does_not_wait_for_a_slow_network(world, how):
    """git itself has just asked, and what a hook would ask for after that comes in the
    background.
    """
    ada, ssh = world.ada, SlowSsh(world)
    bob = world.join("bob", url=f"ssh://hub{world.hub.top}")
    bob.vmrag("install")
    first = bob.pinned
    ada.write_document("ada.md", "Ada keeps bees.")
    ada.git("push", "-q")
    if how == "checkout":
        bob.git("fetch", "-q")
    ssh.stops_after(int(how == "pull"))
    assert bob.said(*(("pull", "-q") if how == "pull" else ("checkout", "-q", "origin/main"))) == [LATER]
    while (bob.status()["background"] or {}).get("doing") != "fetching":
        assert bob.status()["state"] == "missing"
    answer = bob.ask("query", "certificates", env={"VMRAG_HOOKS_WAIT_S": "0"})
    assert answer["kb"]["commit"] == first
    assert "and the index follows in the background, so this answer comes from" in answer["notes"][0]
    ssh.goes_on()
    assert_alike(ada, bob)


class SlowSsh:
    """A program that git runs in place of ssh: it needs no host, and may stop until the test
    continues it.
    """

    def __init__(self, world: World) -> None:
        self.script = world.top / "ssh"
        self.quick, self.go = world.top / "ssh.quick", world.top / "ssh.go"
        self.script.write_text(
            "#!/bin/sh\n"
            'quick=$(cat "$0.quick" 2>/dev/null || echo 1000)\n'
            'echo $((quick - 1)) >"$0.quick"\n'
            'until [ "$quick" -gt 0 ] || [ -e "$0.go" ] || [ ! -e "$0" ]; do sleep 0.1; done\n'
            'for command; do :; done; exec sh -c "$command"\n'
        )
        self.script.chmod(0o755)

    def stops_after(self, calls: int) -> None:
        self.quick.write_text(str(calls))

    def goes_on(self) -> None:
        self.go.touch()


def test_merge_that_needs_their_knowledge_without_a_network_is_resolved_later(world):
    ada, bob = world.ada, world.join("bob")
    bob.vmrag("install")
    ada.write_document("ada.md", "Ada keeps bees.")
    ada.git("push", "-q")
    bob.write_document("bob.md", "Bob keeps goats.")
    bob.git("fetch", "-q")
    world.hub.top.rename(world.top / "gone.git")
    (line, *_) = bob.said("merge", "-q", "--no-edit", "origin/main", code=1)
    assert line.startswith(
        f"vmrag: their side pins revision {ada.pinned}, which is not in this knowledge base: no git repository"
    )
    assert "no git repository at origin." in bob.vmrag("resolve", code=1).err
    (world.top / "gone.git").rename(world.hub.top)
    bob.vmrag("resolve")
    bob.git("commit", "-q", "--no-edit")
    bob.git("push", "-q")
    ada.git("pull", "-q")
    assert_alike(ada, bob)
    assert {"ada.md", "bob.md"} < set(ada.texts())


def test_revision_of_other_branch_is_fetched_on_demand(world):
    ada, bob = world.ada, world.join("bob")
    bob.vmrag("install")
    ada.git("switch", "-q", "-c", "topic")
    ada.write_document("topic.md", "A topic of its own.")
    ada.git("push", "-q", "origin", "topic")
    bob.git("fetch", "-q")
    assert bob.ask("query", "topic of its own", "--at", "origin/topic")["results"][0]["doc_id"] == "topic.md"
    ada.write_document("topic.md", "Another topic.")
    ada.git("push", "-q", "origin", "topic")
    bob.git("fetch", "-q")
    assert bob.ask("merge", "origin/topic")["revision"] == bob.pinned == ada.pinned
    ada.write_document("topic.md", "A topic that Ada keeps for herself.")
    ada.git("push", "-q", "--no-verify", "origin", "topic")
    bob.git("fetch", "-q")
    said = bob.vmrag("query", "topic", "--at", "origin/topic", code=1).err
    assert said.startswith(f"error: origin/topic pins revision {ada.pinned}, which is not in this knowledge base: ")


# -- what `git push` takes along -------------------------------------------------------------------


def branches_at_remote(user: User) -> dict[str, str]:
    """Return the current KB branches of the first remote."""
    user.vmrag("fetch")
    return user.ask("remote")["remotes"][0]["branches"]


@pytest.mark.long  # test_travel_races and test_mcp_remotes force a push
def test_forced_push_works_and_keeps_the_replaced_knowledge(world):
    ada = world.ada
    first = ada.pinned
    given_up = ada.write_document("idea.md", "An idea.")
    assert ada.said("push", "-q") == [SENT]
    ada.git("commit", "-q", "--amend", "-m", "the same idea")
    ada.said("push", "-q", "--force-with-lease")
    assert branches_at_remote(ada) == {"main": given_up}
    ada.git("reset", "-q", "--hard", "HEAD~1")
    assert ada.pinned == first
    better = ada.write_document("idea.md", "A better idea.")
    assert ada.run("push", "-q").returncode != 0  # git's own rule
    assert branches_at_remote(ada) == {"main": given_up}
    assert ada.said("push", "-q", "-f") == [SENT]
    assert branches_at_remote(ada) == {"main": better}
    ada.git("reset", "-q", "--hard", "HEAD~1")
    assert ada.said("push", "-q", "-f") == [SENT]  # nothing new: the KB branch goes back with the code
    assert branches_at_remote(ada) == {"main": first}
    assert world.holds(given_up)
    assert world.holds(better)
    bob = world.join("bob")
    bob.vmrag("install")
    ada.vmrag("sync")
    assert_alike(ada, bob)


def test_every_kind_of_ref_includes_its_knowledge(world):
    ada = world.ada
    ada.git("switch", "-q", "-c", "topic")
    topic = ada.write_document("topic.md", "A topic.")
    ada.git("switch", "-q", "--detach")
    ada.git("switch", "-q", "-c", "side")
    tagged = ada.write_document("tagged.md", "Tagged.")
    ada.git("tag", "-a", "v1", "-m", "v1")
    ada.git("switch", "-q", "main")
    ada.git("branch", "-q", "-D", "side")
    ahead = ada.write_document("main.md", "Main.")
    assert ada.said("push", "-q", "origin", "main", "topic", "v1", "topic:renamed") == [SENT]
    assert branches_at_remote(ada) == {"main": ahead, "topic": topic}
    assert ada.said("push", "-q", "origin", ":renamed", ":v1", "v1:refs/tags/v2") == []
    assert ada.said("push", "-q", "origin", "--delete", "topic") == []
    assert all(world.holds(revision) for revision in (topic, tagged, ahead))
    kept = ada.write_document("rare.md", "Under a name of no branch.")
    assert ada.said("push", "-q", "origin", "HEAD:refs/for/main") == [SENT]
    assert world.holds(kept)


def test_dry_run_pushes_no_code_but_unpinned_knowledge(world):
    """git does not tell its hook that nothing is to happen."""
    ada = world.ada
    before = world.hub.git("rev-parse", "main")
    revision = ada.write_document("dry.md", "Dry.")
    assert ada.said("push", "-q", "--dry-run") == [SENT]
    assert world.hub.git("rev-parse", "main") == before
    assert world.holds(revision)


def test_push_without_new_pins_uses_no_network_and_no_python(world):
    ada = world.ada
    url = "http://127.0.0.1:9/handbook"
    ada.write(".vmrag.yaml", f"{people.SETTINGS}remote: {url}\n")
    ada.vmrag("trust", "--yes")
    ada.write_document("where.md", "The knowledge lies elsewhere.")
    ada.git("push", "-q", "--no-verify")
    started = world.top / "started"
    recorder = world.top / "recorder"
    recorder.write_text(f"#!/bin/sh\ntouch {started}\n")
    recorder.chmod(0o755)
    (ada.shared / "interpreter").write_text(f"{recorder}\n")
    ada.commit("code", code="1")
    ada.git("tag", "code")
    assert ada.said("push", "-q", "origin", "main", "main:copy", "code", "HEAD~1:refs/heads/old") == []
    assert ada.said("push", "-q", "origin", ":copy") == []
    ada.git("commit", "-q", "--amend", "-m", "other code")
    assert ada.said("push", "-q", "-f") == []
    assert not started.exists()


@pytest.mark.long  # test_travel_transports pushes to two places
def test_each_place_that_code_is_pushed_to_gets_its_knowledge(world):
    ada = world.ada
    fork, backup = world.bare("fork.git"), world.bare("backup.git")
    one = ada.write_document("one.md", "One.")
    assert ada.said("push", "-q", str(fork.top), "main") == [SENT.replace("origin", str(fork.top))]
    ada.git("remote", "add", "fork", f"file://{fork.top}")
    two = ada.write_document("two.md", "Two.")
    assert ada.said("push", "-q", "fork", "main") == [SENT.replace("origin", "fork")]
    assert world.holds(one, at=fork)
    assert world.holds(two, at=fork)
    assert not world.holds(two)
    for place in (world.hub, backup):  # one name, two places
        ada.git("remote", "set-url", "--add", "--push", "origin", str(place.top))
    three = ada.write_document("three.md", "Three.")
    assert ada.said("push", "-q", "origin", "main") == [SENT, SENT.replace("origin", str(backup.top))]
    assert world.holds(three)
    assert world.holds(three, at=backup)
    four = ada.write_document("four.md", "Four.")
    assert ada.vmrag("push").out.splitlines()[0] == f"To origin and {backup.top}:"
    assert world.holds(four)
    assert world.holds(four, at=backup)


@pytest.mark.long
def test_pre_commit_framework_also_pushes_knowledge(world):
    ada = world.ada
    entry = f"{sys.executable} -P -E -m vmrag_hooks.framework push"
    hook = f"{{id: vmrag-push, name: vmrag-push, entry: {entry}, language: system, stages: [pre-push], always_run: true, pass_filenames: false}}"
    ada.write(".pre-commit-config.yaml", f"repos:\n- repo: local\n  hooks:\n  - {hook}\n")
    ada.vmrag("uninstall")
    home = {"PRE_COMMIT_HOME": str(world.top / "framework")}
    framework = [SCRIPT.with_name("pre-commit"), "install", "-t", "pre-push"]
    subprocess.run(framework, cwd=ada.top, capture_output=True, env=os.environ | home, check=True)
    revision = ada.write_document("framework.md", "Framework.")
    ada.git("push", "-q", env=home)
    assert world.holds(revision)
    ada.git("switch", "-q", "-c", "topic")
    new = ada.write_document("topic.md", "Topic.")
    ada.git("push", "-q", "-u", "origin", "topic", env=home)
    assert world.holds(new)
    given_up = ada.write_document("topic.md", "Another topic.")
    ada.git("push", "-q", env=home)
    ada.git("reset", "-q", "--hard", "HEAD~1")
    ada.vmrag("sync")
    better = ada.write_document("topic.md", "A better topic.")
    ada.git("push", "-q", "-f", env=home)
    assert branches_at_remote(ada)["topic"] == better
    assert world.holds(given_up)
    ada.write(".vmrag.yaml", f"{people.SETTINGS}remote: http://127.0.0.1:9/handbook\n")
    ada.vmrag("remote", "--trust", "http://127.0.0.1:9/handbook")
    ada.write_document("topic.md", "Nobody hears of it.")
    result = ada.run("push", "-q", env=home)
    assert result.returncode != 0
    assert "the documents that these commits pin were not pushed" in result.stdout + result.stderr


def test_push_of_code_is_stopped_if_server_rejects_knowledge(world):
    world.hub.write(
        "hooks/pre-receive",
        "#!/bin/sh\nwhile read -r _ _ ref; do\n    case $ref in refs/vmrag/*) echo closed; exit 1 ;; esac\ndone\n",
    ).chmod(0o755)
    ada, before = world.ada, world.hub.git("rev-parse", "main")
    ada.write_document("ada.md", "Ada keeps bees.")
    (line,) = ada.said("push", "-q", code=1)
    branch = (
        " (or set 'remote: git:refs/heads/vmrag/data' in .vmrag.yaml and run 'vmrag pin' to push to a branch instead)"
    )
    assert line.endswith(
        f"; ask who runs it to allow pushes to {DATA}{branch if ENGINE == 'doltlite' else ''}, or run 'git push --no-verify' to push only the code"
    )
    assert world.hub.git("rev-parse", "main") == before
