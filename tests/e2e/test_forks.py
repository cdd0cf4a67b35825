"""A repository, a fork of it, and the people at both: real clones, real hooks, plain git commands
wherever git has one.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.support import people, recipes
from tests.support.people import DATA, User, World
from tests.support.repos import Repo, isolate
from tests.support.templates import build_once
from tests.support.travel import Clone

pytestmark = pytest.mark.hooks("off")

shared, world = people.shared, people.world

PULL_REQUEST = "refs/pull/12/head"
TO_FORK = "vmrag: pushed the documents that these commits pin to origin"


@dataclass
class Forked:
    """`ada` maintains what is in `upstream`; `cleo` has cloned her `fork` of it, the branches and
    tags of which are `upstream`'s.
    """

    world: World
    fork: Repo
    cleo: User

    @property
    def ada(self) -> User:
        return self.world.ada

    @property
    def upstream(self) -> Repo:
        return self.world.hub

    def opens_pull_request(self) -> None:
        """Open a pull request as a host does: the commits of the fork's branch are also upstream,
        but nothing else of the fork is.
        """
        self.upstream.git("fetch", "-q", str(self.fork.top), f"+refs/heads/topic:{PULL_REQUEST}")

    def checks_it_out(self) -> None:
        self.ada.git("fetch", "-q", "origin", f"{PULL_REQUEST}:pr-12")
        self.ada.git("switch", "-q", "pr-12")


def fork(world: World) -> Forked:
    world.ada.vmrag("install")
    made = world.top / "fork.git"
    Repo(world.top).git("clone", "-q", "--bare", str(world.hub.top), str(made))
    cleo = world.join("cleo", url=str(made))
    cleo.git("remote", "add", "upstream", str(world.hub.top))
    cleo.vmrag("install")
    return Forked(world, Repo(made), cleo)


def propose(forked: Forked) -> None:
    forked.cleo.git("switch", "-q", "-c", "topic")
    forked.cleo.write_document("pears.md", "# Pears\n\nPears ripen in September.")
    forked.cleo.write_document("plums.md", "# Plums\n\nPlums ripen in August.")
    assert forked.cleo.said("push", "-q", "-u", "origin", "topic") == [TO_FORK]
    forked.opens_pull_request()


def arrive(source: Path, top: Path) -> Forked:
    """The same people at another place."""
    world = people.copy_world(source, top)
    made = Forked(world, Repo(top / "fork.git"), people.add_member(world, "cleo"))
    made.cleo.git("remote", "set-url", "origin", str(made.fork.top))
    made.cleo.git("remote", "set-url", "upstream", str(world.hub.top))
    return made


@pytest.fixture(scope="session")
def _forked(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_once(tmp_path_factory, "forked", lambda folder: fork(people.copy_world(shared, folder)))


@pytest.fixture(scope="session")
def _proposed(_forked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_once(tmp_path_factory, "proposed", lambda folder: propose(arrive(_forked, folder)))


@pytest.fixture
def forked(_forked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Forked:
    isolate(monkeypatch, tmp_path / "home")
    return arrive(_forked, tmp_path / "world")


@pytest.fixture
def proposed(_proposed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Forked:
    """Cleo has opened a pull request of two commits."""
    isolate(monkeypatch, tmp_path / "home")
    return arrive(_proposed, tmp_path / "world")


def data_of(repo: Repo) -> str:
    return repo.git("for-each-ref", "--format=%(objectname)", DATA)


# -- who contributes -------------------------------------------------------------------------------


def test_contributor_reads_from_upstream_and_pushes_to_the_fork(forked):
    assert data_of(forked.fork) == ""
    assert forked.cleo.pinned == forked.ada.pinned
    assert forked.cleo.answers() == forked.ada.answers()
    before = data_of(forked.upstream)
    forked.cleo.git("switch", "-q", "-c", "topic")
    forked.cleo.write_document("pears.md", "Pears ripen in September.")
    assert forked.cleo.said("push", "-q", "-u", "origin", "topic") == [TO_FORK]
    assert data_of(forked.upstream) == before
    assert forked.world.holds(forked.cleo.pinned, at=forked.fork)


def test_waiting_clone_prints_the_remotes_that_it_contacts(forked):
    dora = forked.world.join("dora", url=str(forked.fork.top))
    assert "origin has no knowledge base yet" in dora.start("query", "certificates").err
    dora.git("remote", "add", "upstream", str(forked.upstream.top))
    result = dora.start("query", "certificates", "--json")
    assert result.code == 0
    first = result.err.splitlines()[0]
    assert first == "Fetching the knowledge base of this repository from origin or upstream."


def test_remotes_are_contacted_in_the_order_of_git(forked):
    cleo = forked.cleo
    cleo.git("remote", "add", "colleague", str(forked.fork.top))
    names = lambda: [remote["name"] for remote in cleo.ask("remote")["remotes"]]  # noqa: E731
    cleo.git("branch", "--unset-upstream", "main")
    assert names() == ["upstream", "origin"]
    cleo.git("branch", "-u", "origin/main", "main")
    assert names() == ["origin", "upstream"]
    cleo.git("config", "vmrag.remote", "colleague")
    assert names() == ["colleague", "origin", "upstream"]
    cleo.git("config", "vmrag.remote", "nobody")
    assert "vmrag.remote" in cleo.ask("remote")["problem"]


def test_git_pull_from_upstream_brings_its_new_knowledge(forked):
    forked.ada.write_document("news.md", "News of upstream.")
    forked.ada.push()
    forked.cleo.git("pull", "-q", "upstream", "main")
    assert forked.cleo.pinned == forked.ada.pinned
    assert forked.cleo.answers() == forked.ada.answers()


def test_push_of_code_alone_brings_no_knowledge_to_the_fork(forked):
    forked.cleo.write("code.py", "pass\n")
    forked.cleo.git("add", "-A")
    forked.cleo.git("commit", "-q", "-m", "code")
    forked.upstream.top.rename(forked.upstream.top.with_name("away.git"))  # and does not contact upstream
    assert forked.cleo.said("push", "-q", "origin", "main") == []
    assert data_of(forked.fork) == ""


def test_clone_of_fork_has_knowledge_of_all_branches(world):
    world.ada.git("switch", "-q", "-c", "release")
    world.ada.write_document("release.md", "Only in the release.")
    release = world.ada.pinned
    world.ada.push("-u", "origin", "release")
    world.ada.git("switch", "-q", "main")
    world.ada.vmrag("install")
    fork = world.top / "fork.git"
    Repo(world.top).git("clone", "-q", "--bare", str(world.hub.top), str(fork))
    cleo = world.join("cleo", url=str(fork))
    cleo.git("remote", "add", "upstream", str(world.hub.top))
    cleo.vmrag("install")
    cleo.git("switch", "-q", "-c", "topic")
    cleo.write_document("pears.md", "Pears ripen in September.")
    assert cleo.said("push", "-q", "origin", "topic") == [TO_FORK]
    dora = world.join("dora", url=str(fork))
    dora.vmrag("install")
    for branch, pin in (("main", world.ada.pinned), ("topic", cleo.pinned), ("release", release)):
        dora.git("switch", "-q", branch)
        assert dora.ask("query", "ripen")["kb"]["commit"] == pin, branch
    assert dora.status()["in_sync"]


def test_fork_synced_by_host_gets_hint_to_add_upstream(world):
    """The host brings the branches, and no other ref."""
    fork = world.top / "fork.git"
    Repo(world.top).git("clone", "-q", "--bare", str(world.hub.top), str(fork))
    world.ada.write_document("news.md", "News of upstream.")
    world.ada.push()
    Repo(fork).git("fetch", "-q", str(world.hub.top), "+refs/heads/main:refs/heads/main")
    cleo = world.join("cleo", url=str(fork))
    hint = (
        cleo.vmrag("init", "--knowledge-base", "--no-sources", "--json", code=None).err
        + cleo.vmrag("sync", "--json", code=None).err
    )
    assert "git remote add upstream URL && vmrag sync" in hint
    cleo.git("remote", "add", "upstream", str(world.hub.top))
    cleo.vmrag("sync")
    assert cleo.status()["in_sync"]
    assert cleo.answers() == world.ada.answers()


# -- who maintains ---------------------------------------------------------------------------------


def test_checked_out_pull_request_answers_from_old_revision_with_a_hint(proposed):
    before = proposed.ada.pinned
    proposed.checks_it_out()
    result = proposed.ada.vmrag("query", "pears", "--json")
    assert result.json["kb"]["commit"] == before
    assert result.json["kb"]["in_sync"] is False
    assert "vmrag adopt" in proposed.ada.vmrag("sync", code=1).err
    assert proposed.ada.status()["state"] == "missing"


def test_verify_finds_it_names_the_command_and_is_content_afterwards(proposed):
    proposed.checks_it_out()
    proposed.ada.git("switch", "-q", "main")
    command = ("verify", "--pull-request", "origin/main", "pr-12", "--remote", "origin")
    assert proposed.ada.vmrag(*command, code=1).out.count("vmrag adopt") >= 1
    proposed.ada.vmrag("adopt", str(proposed.fork.top), "pr-12")
    assert proposed.ada.vmrag(*command).code == 0


def test_workflow_started_by_a_label_adopts_the_labelled_commit(proposed):
    """Run ci/github/adopt.yml in a checkout of the base."""
    text = (recipes.WORKFLOWS / "adopt.yml").read_text()
    job = yaml.safe_load(text)["jobs"]["adopt"]
    environ = {
        "NUMBER": "12",
        "COMMIT": proposed.upstream.git("rev-parse", PULL_REQUEST),
        "FORK": str(proposed.fork.top),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    assert set(job["steps"][-1]["env"]) < set(environ)
    argv = ["bash", "-eo", "pipefail", "-c", job["steps"][-1]["run"]]
    home = {"HOME": str(proposed.ada.home), "GIT_CONFIG_GLOBAL": str(proposed.ada.home / "gitconfig")}
    for number, code in (("1;id", 1), ("12", 0)):
        given = os.environ | environ | home | {"NUMBER": number}
        assert subprocess.run(argv, cwd=proposed.ada.top, env=given, check=False).returncode == code
        assert proposed.world.holds(proposed.cleo.pinned) is (code == 0)


def test_adopt_makes_proposed_revision_reachable_upstream_and_locally(proposed):
    proposed.checks_it_out()
    proposed.ada.git("remote", "add", "cleo", str(proposed.fork.top))
    result = proposed.ada.start("adopt", "cleo")
    code = proposed.ada.git("rev-parse", "--short=7", "HEAD")
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines() == [
        f"Took 2 revisions from cleo, 2 of them pinned up to {code}.",
        f"origin has them now: {code} can be merged.",
    ]
    assert proposed.ada.pinned == proposed.cleo.pinned
    assert proposed.ada.answers() == proposed.cleo.answers()
    assert proposed.ada.status()["in_sync"]
    assert proposed.world.holds(proposed.cleo.pinned)
    assert not (proposed.ada.shared / "quarantine").exists()


@pytest.mark.parametrize(
    "how", [["merge", "-q", "--squash"], ["merge", "-q", "--no-ff", "-m", "merge"], ["rebase", "-q"]]
)
@pytest.mark.sample(1)
def test_upstream_can_query_after_a_merge_without_the_driver(proposed, how):
    """Merge as a host's merge button does: in a repository without vmrag."""
    proposed.ada.git("fetch", "-q", "origin", f"{PULL_REQUEST}:pr-12")
    proposed.ada.vmrag("adopt", str(proposed.fork.top), "pr-12")
    button = proposed.world.join("button")
    button.git("fetch", "-q", "origin", f"{PULL_REQUEST}:pr-12")
    button.git(*how, "pr-12")
    if "--squash" in how:
        button.git("commit", "-q", "-m", "squashed")
    button.push("origin", "main")
    shutil.rmtree(proposed.fork.top)  # forks go away
    bob = proposed.world.join("bob")
    bob.vmrag("install")
    assert bob.pinned == proposed.cleo.pinned
    assert bob.answers() == proposed.cleo.answers()
    assert bob.vmrag("verify", "--remote", "origin", "HEAD").code == 0
    proposed.ada.git("pull", "-q")
    assert proposed.ada.answers() == bob.answers()
    assert proposed.ada.fingerprint() == bob.fingerprint()


def test_both_have_written_and_the_contributor_merges_upstream_first(proposed):
    proposed.ada.write_document("news.md", "News of upstream.")
    proposed.ada.push()
    proposed.cleo.git("fetch", "-q", "upstream")
    proposed.cleo.git("merge", "-q", "-m", "merge upstream", "upstream/main")
    proposed.cleo.push()
    proposed.opens_pull_request()
    proposed.checks_it_out()
    proposed.ada.vmrag("adopt", str(proposed.fork.top))
    proposed.ada.git("switch", "-q", "main")
    proposed.ada.git("merge", "-q", "--ff-only", "pr-12")
    assert proposed.ada.said("push", "-q") == [TO_FORK]  # her origin is upstream
    bob = proposed.world.join("bob")
    bob.vmrag("install")
    assert {"pears.md", "plums.md", "news.md"} <= bob.texts().keys()
    assert bob.answers() == proposed.ada.answers() == proposed.cleo.answers()


def test_base_stays_origin_if_branch_tracks_the_fork(proposed):
    proposed.ada.git("remote", "add", "cleo", str(proposed.fork.top))
    proposed.ada.git("fetch", "-q", "cleo")
    proposed.ada.git("switch", "-q", "-c", "topic", "--track", "cleo/topic")
    assert proposed.ada.ask("adopt", "cleo")["remote"] == "origin"
    assert proposed.world.holds(proposed.cleo.pinned)


def test_adopt_imports_locally_if_upstream_rejects_the_push(proposed):
    proposed.checks_it_out()
    hook = proposed.upstream.top / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\necho protected\nexit 1\n")
    hook.chmod(0o755)
    error = proposed.ada.vmrag("adopt", str(proposed.fork.top), "--json", code=3).error
    assert error["code"] == "REMOTE_REJECTED"
    assert proposed.ada.answers() == proposed.cleo.answers()
    hook.unlink()
    assert proposed.ada.ask("adopt", str(proposed.fork.top))["pushed"]


def test_hostile_fork_is_refused_and_the_pull_request_stays_unusable(forked):
    cleo = forked.cleo
    cleo.git("switch", "-q", "-c", "topic")
    cleo.write_document("pears.md", "Pears.")
    poison(cleo)
    cleo.push("--no-verify", "origin", "topic")
    with contextlib.closing(Clone(cleo.top)) as engine:  # our own command would not push it
        engine.push("origin", cleo.git("config", "branch.topic.vmragBranch"))
    forked.opens_pull_request()
    forked.checks_it_out()
    before = data_of(forked.upstream), forked.ada.git("count-objects"), forked.ada.vmrag("log").out
    result = forked.ada.start("adopt", str(forked.fork.top))
    assert result.code == 3
    assert "nothing was imported: the trigger 'poison'" in result.err
    assert (data_of(forked.upstream), forked.ada.git("count-objects"), forked.ada.vmrag("log").out) == before
    assert forked.ada.status()["state"] == "missing"


def poison(user: User) -> None:
    """A trigger in the knowledge base, committed and pinned as if it were knowledge."""
    from vmrag_link.engines.doltlite.connection import Connection

    file: Path = user.shared / "kb" / "kb.doltlite"
    branch = user.git("config", "branch.topic.vmragBranch")
    with Connection(file, at=branch) as connection:
        connection.execute("CREATE TRIGGER poison AFTER INSERT ON documents BEGIN DELETE FROM documents; END")
        made = connection.execute("SELECT dolt_commit('-A', '-m', 'nothing to see')")[0][0]
    pin = json.loads((user.top / ".dolt-version").read_text()) | {"dolt_commit": made}
    user.write(".dolt-version", json.dumps(pin))
    user.git("commit", "-q", "--no-verify", "-am", "nothing to see")
