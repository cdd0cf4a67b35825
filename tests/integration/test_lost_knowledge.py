"""A pin whose revision is lost: the hint, the record of the loss, and its display.

Bob pushes his code without his knowledge, and his machine is gone.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import people
from tests.support.people import User, World
from tests.support.repos import ON, isolate
from tests.support.templates import build_once
from tests.support.terminal import opened
from vmrag_link import hints
from vmrag_link.env import SWITCH
from vmrag_link.merging import revisions

pytestmark = pytest.mark.hooks("off")

shared = people.shared


class Loss:
    """`lost` is what `commit` of main pins, `good` what its parent does. Ada has the code."""

    def __init__(self, world: World) -> None:
        self.world, self.ada = world, world.ada
        self.good, self.first = self.ada.pinned, self.ada.git("rev-parse", "HEAD")
        self.bob = people.add_member(world, "bob")
        self.lost, self.commit = self.bob.pinned, self.bob.git("rev-parse", "HEAD")

    def gone(self) -> None:
        shutil.rmtree(self.bob.top)

    def pulled(self) -> User:
        self.ada.git("pull", "-q")
        return self.ada


def lose(world: World) -> None:
    """Let Bob push his code only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, "0")
        world.ada.vmrag("install", "-q")
        bob = world.join("bob")
        bob.vmrag("install", "-q")
        bob.write_document("new.md", "Words of Bob.", message="Bob's news")
        bob.git("push", "-q", "origin", "main")


@pytest.fixture(scope="session")
def lost(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_once(tmp_path_factory, "lost", lambda top: lose(people.copy_world(shared, top)), by=lose)


@pytest.fixture
def loss(lost: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loss:
    isolate(monkeypatch, tmp_path / "home")
    return Loss(people.copy_world(lost, tmp_path / "world"))


def commit(user: User, message: str) -> None:
    """With the hooks, which have nothing against it."""
    result = user.run("commit", "-q", "-m", message, env=ON)
    assert result.returncode == 0, result


def verified(user: User, *arguments: str, code: int = 0) -> set[tuple[str, str]]:
    return {(finding["level"], finding["code"]) for finding in user.ask("verify", *arguments, code=code)["findings"]}


ACCEPTED = ("information", "LOSS_ACCEPTED")
ACCEPT = " to accept the loss"
GIVEN_UP = "vmrag pin --accept-loss REVISION"


def test_loss_is_accepted_by_name_and_recorded_for_all(loss):
    ada = loss.pulled()
    loss.gone()
    assert GIVEN_UP in ada.vmrag("sync", "--json", code=1).error["hint"]
    assert GIVEN_UP in ada.status()["hint"]
    assert GIVEN_UP in ada.vmrag("doctor", code=None).out
    refused = ada.vmrag("pin", "--accept-loss", "--json", code=2).error
    assert refused["code"] == "INVALID_PARAMETER"
    said = ada.vmrag("pin", "--accept-loss", loss.good).out
    assert f"Lost: {loss.lost}" in said
    assert f"- {loss.commit[:12]} " in said
    assert "bob <bob@example.com>: Bob's news" in said
    assert "Not found at origin." in said
    commit(ada, "Go on without it")
    assert ada.status()["in_sync"]
    assert set(ada.texts()) == set(people.DOCUMENTS)
    with opened(ada) as ws:
        info = ws.engine.read_revision(ada.pinned)
    assert (info.parents, info.author) == ((loss.good,), "ada <ada@example.com>")
    assert revisions.read_accepted_losses(info.message) == [loss.lost]
    assert "bob <bob@example.com>: Bob's news" in info.message
    assert ada.said("push", "-q") == ["vmrag: pushed the documents that these commits pin to origin"]
    carol = loss.world.join("carol")
    carol.vmrag("clone")
    for user in (ada, carol):
        for scope in ((f"{loss.commit}..HEAD",), ("HEAD", "--remote", "origin")):
            assert ACCEPTED in verified(user, *scope)
    shown = carol.vmrag("report", loss.first, "HEAD").out
    assert "1 revision accepts a loss of knowledge" in shown
    assert "LOSS_ACCEPTED" in shown


def test_missing_record_makes_the_same_step_an_error(loss):
    ada = loss.pulled()
    loss.gone()
    ada.vmrag("pin", loss.good)
    ada.git("commit", "-q", "-m", "As if nothing had been")
    assert ("error", "PIN_REVISION_MISSING") in verified(ada, f"{loss.commit}..HEAD", code=1)
    ada.vmrag("pin", "--accept-loss", loss.good)  # from the middle of the history
    commit(ada, "Say so")
    assert verified(ada, f"{loss.commit}..HEAD") == {("information", "PIN_REVISION_MISSING"), ACCEPTED}


def test_accept_loss_is_rejected_if_a_remote_has_the_revision(loss):
    loss.bob.vmrag("push")
    ada = loss.pulled()
    refused = ada.vmrag("pin", "--accept-loss", loss.good, "--json", code=1).error
    assert (refused["code"], refused["hint"]) == ("NO_CHANGES", "run 'vmrag sync' to sync to the pin")
    assert ada.pinned == loss.lost
    assert "new.md" in ada.texts()


def test_unreachable_remote_may_still_have_the_revision(loss):
    ada = loss.pulled()
    loss.gone()
    ada.git("remote", "set-url", "origin", str(loss.world.top / "nowhere.git"))
    refused = ada.vmrag("pin", "--accept-loss", loss.good, "--json", code=3).error
    assert "--offline" in refused["hint"]
    assert ada.pinned == loss.lost
    assert "Did not contact any remote." in ada.vmrag("pin", "--accept-loss", loss.good, "--offline").out
    with opened(ada) as ws:
        assert revisions.accepts_loss(ws.engine, ada.pinned, loss.lost)


def test_merge_with_a_lost_side_continues_with_the_other(loss):
    ada = loss.ada
    ours = ada.write_document("mine.md", "Words of Ada.")
    loss.gone()
    assert ada.run("pull", "-q", "--no-rebase", "--no-edit").returncode
    refused = ada.vmrag("resolve", "--json", code=1).error
    assert "vmrag resolve --accept-loss" in refused["hint"]
    assert GIVEN_UP not in refused["hint"]
    assert "vmrag resolve --accept-loss" in ada.vmrag("pin", "--accept-loss", ours, "--json", code=1).error["hint"]
    report = ada.ask("resolve", "--accept-loss")
    assert report["losses"]["instead"] == ours
    assert [loss["revision"] for loss in report["losses"]["lost"]] == [loss.lost]
    commit(ada, "Merge without it")
    assert "mine.md" in ada.texts()
    assert verified(ada, f"{ours and loss.first}..HEAD") <= {("information", "PIN_REVISION_MISSING"), ACCEPTED}
    assert ada.ask("merge", "--repair", "HEAD")["result"] == "already_up_to_date"


def test_rebase_onto_a_lost_revision_continues_with_replayed_documents(loss):
    ada = loss.ada
    mine = ada.write_document("mine.md", "Words of Ada.", message="Ada's words")
    loss.gone()
    assert ada.run("pull", "-q", "--rebase").returncode
    ada.vmrag("resolve", "--accept-loss")
    assert ada.run("rebase", "--continue", env=ON | {"GIT_EDITOR": "true"}).returncode == 0
    assert "mine.md" in ada.texts()
    with opened(ada) as ws:
        assert ws.engine.is_ancestor(mine, ada.pinned)
    assert verified(ada, f"{loss.commit}..HEAD") == {ACCEPTED}


def test_merge_of_two_lost_sides_continues_from_their_base(loss):
    carol = loss.world.join("carol")
    carol.git("reset", "-q", "--hard", loss.first)
    carol.vmrag("install", "-q")
    hers = carol.write_document("hers.md", "Words of Carol.")
    carol.git("push", "-q", "origin", "HEAD:carol")
    shutil.rmtree(carol.top)
    loss.gone()
    ada = loss.pulled()
    assert ada.run("merge", "--no-edit", "origin/carol").returncode
    report = ada.ask("resolve", "--accept-loss")
    assert report["losses"]["instead"] == loss.good
    assert {loss["revision"] for loss in report["losses"]["lost"]} == {loss.lost, hers}
    commit(ada, "Merge without both")
    assert set(ada.texts()) == set(people.DOCUMENTS)


def test_accepted_loss_needs_no_confirmation_by_others(loss):
    """One still pins what is lost; another has gone on from it, too, so the base is lost."""
    ada = loss.pulled()
    loss.gone()
    ada.git("branch", "stale")
    ada.git("branch", "other")
    ada.vmrag("pin", "--accept-loss", loss.good)
    commit(ada, "Go on without it")
    ada.git("switch", "-q", "stale")
    ada.write("a.txt", "code")
    ada.git("add", "a.txt")
    ada.git("commit", "-q", "-m", "code alone")
    ada.git("cherry-pick", "main")
    assert set(ada.texts()) == set(people.DOCUMENTS)
    ada.git("switch", "-q", "other")
    ada.vmrag("pin", "--accept-loss", loss.good)
    commit(ada, "Go on without it, here, too")
    ada.write_document("more.md", "More.")
    ada.git("switch", "-q", "main")
    ada.write_document("main.md", "Main.")
    assert ada.run("merge", "--no-edit", "other", env=ON).returncode == 0
    assert {"more.md", "main.md"} <= ada.texts().keys()
    assert ("error", "KNOWLEDGE_DROPPED") not in verified(ada, "HEAD")


def test_replayed_record_is_still_one(loss):
    ada = loss.pulled()
    loss.gone()
    ada.git("switch", "-q", "-c", "topic")
    ada.vmrag("pin", "--accept-loss", loss.good)
    commit(ada, "Go on without it")
    ada.git("switch", "-q", "main")
    ada.git("reset", "-q", "--hard", loss.first)
    ada.write_document("main.md", "Main.")
    ada.git("switch", "-q", "topic")
    assert ada.run("cherry-pick", "main").returncode == 0
    with opened(ada) as ws:
        assert revisions.accepts_loss(ws.engine, ada.pinned, loss.lost)
    assert "main.md" in ada.texts()


def forged_record(loss: Loss, of: str) -> str:
    """Create a foreign revision in Ada's knowledge base, such as one from a fork."""
    with opened(loss.ada) as ws:
        return revisions.record_loss(
            ws.engine,
            loss.good,
            message=f"Tidy up\n\nVmrag-Lost: {of}",
            author="Eve <e@x.org>",
            date="2026-01-01T00:00:00Z",
        )


def test_forged_record_drops_no_existing_knowledge_and_is_shown(loss):
    """A foreign pull request records knowledge of main as lost, although it exists."""
    ada = loss.ada
    kept = ada.write_document("kept.md", "Kept.")
    before = ada.git("rev-parse", "HEAD")
    ada.git("switch", "-q", "-c", "forged")
    forged = forged_record(loss, kept)
    ada.vmrag("pin", forged)
    ada.git("commit", "-q", "-m", "Tidy up")
    report = ada.ask("verify", "--pull-request", "main", "HEAD", code=1)["findings"]
    assert ("error", "KNOWLEDGE_DROPPED") in {(finding["level"], finding["code"]) for finding in report}
    (accepted,) = [result for result in report if result["code"] == "LOSS_ACCEPTED"]
    assert "Eve <e@x.org>" in accepted["message"]
    assert f"This has no effect on revisions that exist: {kept[:12]}" in accepted["message"]
    assert ("error", "KNOWLEDGE_DROPPED") in verified(ada, f"{before}..HEAD", code=1)


def test_record_drops_nothing_that_a_remote_has(loss):
    """A foreign revision records main's revision as lost, although it only has not arrived yet."""
    loss.bob.vmrag("push")
    ada = loss.ada
    ada.git("switch", "-q", "-c", "forged")
    forged = forged_record(loss, loss.lost)
    ada.vmrag("pin", forged)
    ada.git("commit", "-q", "-m", "Tidy up")
    ada.git("fetch", "-q", "origin")
    with opened(ada) as ws:
        assert not ws.engine.has_revision(loss.lost)
    assert ada.run("merge", "-q", "--no-edit", "origin/main", env=ON).returncode == 0
    assert "new.md" in ada.texts()
    assert verified(ada, "origin/main..HEAD") == {ACCEPTED}


def test_repair_ignores_records_about_existing_revisions(loss):
    loss.bob.vmrag("push")
    ada = loss.ada
    ada.git("fetch", "-q", "origin")
    forged = forged_record(loss, loss.lost)
    ada.git("switch", "-q", "-c", "forged")
    ada.vmrag("pin", forged)
    ada.git("commit", "-q", "-m", "Tidy up")
    ada.git("merge", "-q", "--no-edit", "-s", "ours", "origin/main")
    assert ada.ask("merge", "--repair", "HEAD")["result"] != "already_up_to_date"
    assert "new.md" in ada.texts()


def forged_branch(loss: Loss) -> User:
    """Ada on `forged`, whose pin records the loss of what main pins, which she does not have."""
    loss.bob.vmrag("push")
    ada = loss.ada
    ada.git("fetch", "-q", "origin")
    ada.git("switch", "-q", "-c", "forged")
    ada.vmrag("pin", forged_record(loss, loss.lost))
    ada.git("commit", "-q", "-m", "Tidy up")
    return ada


def out_of_reach(loss: Loss) -> str:
    url = loss.ada.git("remote", "get-url", "origin")
    loss.ada.git("remote", "set-url", "origin", str(loss.world.top / "nowhere.git"))
    return url


def test_merge_does_not_believe_record_if_remote_is_unreachable(loss):
    ada = forged_branch(loss)
    url = out_of_reach(loss)
    assert ada.run("merge", "-q", "--no-edit", "origin/main", env=ON).returncode != 0
    refused = ada.vmrag("resolve", "--json", code=1).error
    assert f"git config --add vmrag.acceptedLoss {loss.lost}" in refused["hint"]
    ada.git("remote", "set-url", "origin", url)
    ada.vmrag("resolve")
    assert "new.md" in ada.texts()


def test_merge_believes_record_offline_if_person_accepted_loss_here(loss):
    ada = forged_branch(loss)
    out_of_reach(loss)
    assert ada.run("merge", "-q", "--no-edit", "origin/main", env=ON).returncode != 0
    ada.git("config", "--add", "vmrag.acceptedLoss", loss.lost)
    ada.vmrag("resolve")
    commit(ada, "Merge without it")
    assert set(ada.texts()) == set(people.DOCUMENTS)


@pytest.mark.parametrize("accept", ["pin", "resolve"])
def test_accept_loss_is_remembered_for_merges_offline(loss, accept):
    ada = loss.pulled() if accept == "pin" else loss.ada
    loss.gone()
    if accept == "pin":
        ada.vmrag("pin", "--accept-loss", loss.good)
    else:
        ada.write_document("mine.md", "Words of Ada.")
        assert ada.run("pull", "-q", "--no-rebase", "--no-edit").returncode
        ada.vmrag("resolve", "--accept-loss")
    assert ada.git("config", "--get-all", "vmrag.acceptedLoss") == loss.lost


def test_repair_does_not_believe_record_if_remote_is_unreachable(loss):
    ada = forged_branch(loss)
    ada.git("merge", "-q", "--no-edit", "-s", "ours", "origin/main")
    url = out_of_reach(loss)
    refused = ada.vmrag("merge", "--repair", "HEAD", "--json", code=1).error
    assert refused["code"] == "PIN_MISSING_REVISION"
    ada.git("remote", "set-url", "origin", url)
    ada.vmrag("merge", "--repair", "HEAD")
    assert "new.md" in ada.texts()


def test_base_is_not_lost_before_a_remote_was_checked(loss):
    """Both sides continue from main's pin and record its loss: the records are forged."""
    ada = loss.pulled()
    loss.bob.vmrag("push")
    url = out_of_reach(loss)
    forged = forged_record(loss, loss.lost)
    for branch, name in (("one", "one.md"), ("other", "other.md")):
        ada.git("switch", "-q", "-C", branch, loss.commit)
        ada.vmrag("pin", forged)
        ada.git("commit", "-q", "-m", f"Tidy up on {branch}")
        ada.write_document(name, "Words.")
    assert ada.run("merge", "-q", "--no-edit", "one", env=ON).returncode != 0
    ada.git("remote", "set-url", "origin", url)
    ada.vmrag("resolve")


def test_fetch_reports_remote_that_it_could_not_ask_although_another_answered(loss):
    """`git:` stands for two remotes: the first answers without the revision."""
    ada = loss.pulled()
    ada.git("remote", "add", "upstream", str(loss.world.top / "nowhere.git"))
    error = ada.vmrag("sync", "--json", code=None).error
    assert "the remote does not have it either" not in error["message"]
    assert "no git repository at upstream" in error["message"]


def test_verify_names_records_without_a_checked_remote(loss):
    ada = forged_branch(loss)
    for remote in (False, True):
        findings = ada.ask("verify", "origin/main..HEAD", *["--remote", "origin"] * remote, code=int(remote))[
            "findings"
        ]
        (record,) = [result for result in findings if result["code"] == "LOSS_ACCEPTED"]
        assert ("to check whether a remote has them" in record["message"]) is not remote


# -- commits that drop documents -------------------------------------------------------------------


@pytest.fixture
def dropping(loss) -> User:
    """Ada on main, which is pushed: a merge there dropped `new.md`, and one more commit follows."""
    loss.bob.vmrag("push")
    ada = loss.ada
    ada.write_document("mine.md", "Words of Ada.")
    ada.git("fetch", "-q", "origin")
    ada.git("merge", "-q", "--no-edit", "-s", "ours", "origin/main")
    ada.write("code.py", "1")
    ada.git("add", "code.py")
    ada.git("commit", "-q", "-m", "One commit later")
    ada.vmrag("push")
    ada.git("push", "-q", "--no-verify", "origin", "main")
    ada.git("remote", "set-head", "origin", "main")
    ada.vmrag("sync")
    return ada


def status_of(user: User) -> dict:
    return user.ask("status", code=int("dropped" in user.vmrag("status", code=None).out))


DROPPED = ("error", "KNOWLEDGE_DROPPED")


def test_status_and_verify_report_drop_until_it_is_repaired(dropping):
    merge = dropping.git("rev-parse", "HEAD~1")
    for _ in range(2):
        status = status_of(dropping)
        assert (status["state"], status["in_sync"]) == ("dropped", False)
        assert status["hint"] == f"run 'vmrag merge --repair {merge[:12]}' to restore the documents"
        assert merge[:12] in status["reasons"][0]
        assert DROPPED in verified(dropping, code=1)
    dropping.vmrag(*shlex.split(hints.list_commands(status["hint"])[0])[1:])
    assert status_of(dropping)["state"] == "in_sync"
    commit(dropping, "Repair")
    assert status_of(dropping)["state"] == "in_sync"
    assert DROPPED not in verified(dropping)
    dropping.vmrag("push")
    dropping.git("push", "-q", "origin", "main")
    assert DROPPED not in verified(dropping)


def test_status_and_verify_report_drop_until_commit_accepts_it(dropping, loss):
    message = status_of(dropping)["reasons"][0]
    command = hints.list_commands(message)[-1]
    said = dropping.vmrag("verify", code=1).out.splitlines()
    [same] = [hints.list_commands(line)[0] for line in said if line.endswith(ACCEPT)]
    assert shlex.split(same) == shlex.split(command)
    subprocess.run(command, shell=True, cwd=dropping.top, check=True)
    assert status_of(dropping)["state"] == "in_sync"
    assert DROPPED not in verified(dropping)
    dropping.git("push", "-q", "origin", "main")
    assert DROPPED not in verified(dropping)
    assert ("information", "KNOWLEDGE_DROPPED") in verified(dropping, "HEAD")
    carol = loss.world.join("carol")
    carol.vmrag("clone")
    assert status_of(carol)["state"] == "in_sync"


def test_status_reports_drop_after_switch_to_another_branch_and_back(dropping):
    assert status_of(dropping)["state"] == "dropped"
    dropping.git("switch", "-q", "-c", "before", "HEAD~2")
    assert status_of(dropping)["state"] == "in_sync"
    dropping.git("switch", "-q", "main")
    assert status_of(dropping)["state"] == "dropped"


@pytest.mark.parametrize("content", [b"", bytes(40), b"ab" * 20, b"\xff\n"])
@pytest.mark.sample(1)
def test_status_reports_drop_if_its_note_is_damaged(dropping, content):
    (dropping.top / ".git/vmrag/verified").write_bytes(content)
    assert status_of(dropping)["state"] == "dropped"


def test_pull_request_cannot_accept_its_own_drop(loss):
    ada, before = loss.ada, loss.ada.git("rev-parse", "HEAD")
    loss.bob.vmrag("push")
    ada.write_document("mine.md", "Words of Ada.")
    ada.git("fetch", "-q", "origin")
    ada.git("switch", "-q", "-c", "topic")
    ada.git("merge", "-q", "--no-edit", "-s", "ours", "origin/main")
    merge = ada.git("rev-parse", "HEAD")
    ada.git("commit", "-q", "--allow-empty", "-m", "Accept", "-m", f"Vmrag-Accept-Drop: {merge}")
    ada.vmrag("fetch")
    result = {(finding["level"], finding["code"]) for finding in ada.ask("verify", f"{before}..HEAD")["findings"]}
    assert ("information", "KNOWLEDGE_DROPPED") in result
    result = {
        (finding["level"], finding["code"])
        for finding in ada.ask("verify", "--pull-request", before, "HEAD", code=1)["findings"]
    }
    assert {DROPPED, ACCEPTED} <= result


def test_push_does_not_believe_record_if_remote_is_unreachable(loss):
    ada = forged_branch(loss)
    ada.git("branch", "-q", "copy", "origin/main")
    ada.git("update-ref", "-d", "refs/remotes/origin/main")
    ada.git("init", "-q", "--bare", str(loss.world.top / "other.git"))
    ada.git("remote", "add", "other", str(loss.world.top / "other.git"))
    url = out_of_reach(loss)
    refused = ada.run("push", "-q", "other", "forged", "copy", env=ON)
    assert refused.returncode != 0
    assert f"pins the revision {loss.lost[:12]}" in refused.stderr
    ada.git("remote", "set-url", "origin", url)
    ada.vmrag("fetch")
    assert ada.run("push", "-q", "other", "forged", "copy", env=ON).returncode == 0


def test_push_believes_record_offline_if_person_accepted_loss_here(loss):
    ada = forged_branch(loss)
    ada.git("branch", "-q", "copy", "origin/main")
    ada.git("update-ref", "-d", "refs/remotes/origin/main")
    ada.git("init", "-q", "--bare", str(loss.world.top / "other.git"))
    ada.git("remote", "add", "other", str(loss.world.top / "other.git"))
    out_of_reach(loss)
    ada.git("config", "--add", "vmrag.acceptedLoss", loss.lost)
    assert ada.run("push", "-q", "other", "forged", "copy", env=ON).returncode == 0
