"""`vmrag trust`: its output, where it stores agreements, and how they are revoked."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.repos import make_repo
from tests.support.terminal import Project, new_project
from vmrag_link import agreements, trust
from vmrag_link.git import plumbing
from vmrag_link.toolsets.compounding.chat_model import LlmSettings
from vmrag_mcp.call import Behaviour
from vmrag_mcp.call_progress import CallProgress
from vmrag_mcp.session import Session

template, project = terminal.template, terminal.project

WIDE = "embedding.model: hash\nhooks:\n  on_dirty: commit\nremote: file:///srv/kb\n"


def stated(project: Project, text: str) -> None:
    project.write(".vmrag.yaml", text)


def counting(project: Project) -> tuple[str, str]:
    with terminal.opened(project) as ws:
        return ws.config.hooks.on_dirty, ws.config.remote


def test_trust_shows_stated_and_present_values(project):
    stated(project, WIDE)
    result = project.vmrag("trust", code=1)
    assert "line 3: hooks.on_dirty: commit   (now: warn)" in result.out
    assert "line 4: remote: file:///srv/kb   (now: git:)" in result.out
    assert "embedding.model" not in result.out
    assert result.out.rstrip().endswith("hint: run 'vmrag trust --yes' to trust these settings")
    assert counting(project) == ("warn", "git:")


def test_value_imitates_none_of_our_words(project):
    stated(project, "embedding.model_path: /usr/lib   (now x)\n")
    assert 'embedding.model_path: "/usr/lib   (now x)"   (now: "")' in project.vmrag("trust", code=1).out


def test_agreement_applies_until_it_is_revoked(project):
    stated(project, WIDE)
    project.vmrag("trust", "--yes")
    assert counting(project) == ("commit", "file:///srv/kb")
    assert project.vmrag("status").err == ""
    assert "Trusted settings of .vmrag.yaml:" in project.vmrag("trust").out
    assert "hooks.on_dirty: commit" in project.vmrag("trust", "--list").out
    project.vmrag("trust", "--revoke")
    assert counting(project) == ("warn", "git:")
    assert project.vmrag("trust", "--list").out == "No settings are trusted on this machine.\n"
    assert project.ask("trust", "--revoke") == {"revoked": False}


def test_changed_settings_require_new_agreement_with_one_warning(project):
    stated(project, WIDE)
    project.vmrag("trust", "--yes")
    stated(project, WIDE.replace("/srv/kb", "/srv/evil"))
    assert counting(project) == ("commit", "file:///srv/kb")
    said = project.vmrag("list").err
    assert said.count("\n") == 1
    assert "using the last trusted value of setting remote (line 4) of .vmrag.yaml; run 'vmrag trust'" in said
    project.vmrag("trust", code=1)
    project.vmrag("trust", "--yes")
    assert counting(project) == ("commit", "file:///srv/evil")


def test_setting_that_is_gone_counts_on_until_that_is_agreed_to(project):
    stated(project, "mcp.read_only: true\n")
    project.vmrag("trust", "--yes")
    stated(project, "")
    assert "mcp.read_only: false   (now: true)" in project.vmrag("trust", code=1).out
    project.vmrag("trust", "--yes")
    with terminal.opened(project) as ws:
        assert not ws.config.mcp.read_only


OLD = (
    "embedding.model: hash\nllm:\n  provider: openai\n  base_url: http://abandoned.example/v1\nhooks.on_dirty: block\n"
)
NEW = "embedding.model: hash\nmcp.read_only: true\nhooks.on_dirty: warn\n"


def agreed_on_two_branches(project: Project) -> None:
    """`old` has a file that was agreed to first, `main` the one that was agreed to last."""
    for branch, text in (("old", OLD), ("main", NEW)):
        project.git("checkout", "-q", "-B", branch)
        stated(project, text)
        project.git("add", "-A")
        project.git("commit", "-q", "-m", f"settings of {branch}")
        project.vmrag("trust", "--yes")


def reins(project: Project) -> tuple[bool, str, str, str]:
    with terminal.opened(project) as ws:
        config, llm = ws.config, ws.section("llm", LlmSettings).config.llm
        return config.mcp.read_only, llm.provider, llm.base_url, config.hooks.on_dirty


def test_older_trusted_file_does_not_revoke_the_latest_trust(project):
    """An untrusted branch may restore a file from years ago; its narrower values apply."""
    agreed_on_two_branches(project)
    project.git("checkout", "-q", "old")
    assert reins(project) == (True, "none", "", "block")
    said = project.vmrag("list").err
    assert said.count("\n") == 1
    assert "the last trusted value of setting mcp.read_only (gone)" in said
    with terminal.opened(project) as ws:
        (said,) = ws.settings.section("llm", LlmSettings).warnings
    assert "the last trusted value of settings llm.provider (line 3) and llm.base_url (line 4)" in said
    shown = project.vmrag("trust", code=1).out
    assert "llm.provider: openai   (now: none)" in shown
    assert "mcp.read_only: false   (now: true)" in shown


def test_agreement_on_an_old_branch_becomes_the_latest(project):
    agreed_on_two_branches(project)
    project.git("checkout", "-q", "old")
    project.vmrag("trust", "--yes")
    assert reins(project) == (False, "openai", "http://abandoned.example/v1", "block")
    assert project.vmrag("list").err == ""
    project.git("checkout", "-q", "main")
    assert reins(project) == (True, "none", "http://abandoned.example/v1", "block")
    assert "hooks.on_dirty (line 3)" in project.vmrag("list").err


def test_work_trees_share_the_latest_trust_and_neither_widens_it(project, tmp_path):
    agreed_on_two_branches(project)
    project.git("worktree", "add", "-q", str(tmp_path / "linked"), "old")
    linked = Project(tmp_path / "linked")
    assert (reins(project), reins(linked)) == ((True, "none", "", "warn"), (True, "none", "", "block"))
    linked.vmrag("trust", "--yes")
    assert reins(project)[0], "its own file restricts it whatever was agreed to elsewhere"
    project.git("config", "extensions.worktreeConfig", "true")
    project.git("config", "--worktree", "vmrag.hooks.on-dirty", "warn")
    assert (reins(project)[3], reins(linked)[3]) == ("warn", "block"), "a setting for one work tree is git's"


def test_narrowing_file_is_shown_as_applied(project):
    stated(project, "mcp.read_only: true\n")
    assert "and all of them are in effect:" in project.vmrag("trust", code=1).out


def test_latest_of_several_old_agreements_applies(project):
    agreed_on_two_branches(project)
    (file,) = (Path(os.environ["XDG_DATA_HOME"]) / "vmrag" / "trust").iterdir()
    kept = json.loads(file.read_bytes())
    old = {"settings": {"hooks.on_dirty": "commit"}, "date": kept["agreed"][-1]["date"]}
    file.write_text(json.dumps(kept | {"agreed": [old, *kept["agreed"]]}))
    stated(project, "hooks.on_dirty: commit\n")
    assert reins(project) == (True, "none", "", "warn")


def test_different_repository_at_the_same_path_inherits_no_agreement(project, tmp_path):
    stated(project, WIDE)
    project.vmrag("trust", "--yes")
    shutil.rmtree(project.top)
    other = new_project(project.top, settings=WIDE)
    other.git("commit", "-q", "--allow-empty", "-m", "x")
    assert counting(other) == ("warn", "git:")


def test_copy_elsewhere_inherits_nothing(project, tmp_path):
    stated(project, WIDE)
    project.vmrag("trust", "--yes")
    shutil.copytree(project.top, tmp_path / "copy", symlinks=True)
    assert counting(Project(tmp_path / "copy")) == ("warn", "git:")


def test_linked_worktree_shares_agreements(project, tmp_path):
    stated(project, WIDE)
    project.vmrag("trust", "--yes")
    project.git("worktree", "add", "-q", "--detach", str(tmp_path / "linked"))
    linked = Project(tmp_path / "linked")
    stated(linked, WIDE)
    assert counting(linked) == ("commit", "file:///srv/kb")


def test_agreements_are_stored_for_the_user_only(project):
    stated(project, WIDE)
    project.vmrag("trust", "--yes")
    folder = Path(os.environ["XDG_DATA_HOME"]) / "vmrag" / "trust"
    (file,) = folder.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert json.loads(file.read_bytes())["repository"] == str(project.top / ".git")


@pytest.mark.parametrize("damaged", [b"{", b'{"repository": "\xff"}'])
def test_damaged_agreements_file_is_an_error_that_names_it(project, damaged):
    stated(project, WIDE)
    project.vmrag("trust", "--yes")
    (file,) = (Path(os.environ["XDG_DATA_HOME"]) / "vmrag" / "trust").iterdir()
    file.write_bytes(damaged)
    error = project.vmrag("status", "--json", code=2).error
    assert (error["code"], str(file) in error["hint"]) == ("CONFIG_INVALID", True)


def test_trust_fails_if_agreements_cannot_be_stored(project, monkeypatch):
    stated(project, WIDE)
    monkeypatch.setenv("XDG_DATA_HOME", str(project.top / "README"))
    project.write("README", "a file")
    assert project.vmrag("trust", "--yes", "--json", code=None).error["code"] == "FILE_SYSTEM_ERROR"
    assert counting(project) == ("warn", "git:")


def test_init_agrees_to_the_settings_of_its_user(tmp_path, monkeypatch):
    terminal.isolate(monkeypatch, tmp_path / "home")
    mine = new_project(tmp_path / "mine", settings="embedding.model: hash\nhooks.on_dirty: commit\n")
    assert "agree" not in mine.vmrag("init", "--knowledge-base", "--no-sources", "--no-hooks").err
    assert counting(mine)[0] == "commit"


def test_first_pin_names_the_remote_of_ones_own_settings(tmp_path, monkeypatch):
    terminal.isolate(monkeypatch, tmp_path / "home")
    mine = new_project(tmp_path / "mine", settings="embedding.model: hash\nremote: http://127.0.0.1:9/kb\n")
    mine.vmrag("init", "--knowledge-base", "--no-sources", "--no-hooks")
    assert json.loads((mine.top / ".dolt-version").read_text())["dolt_remote"] == "http://127.0.0.1:9/kb"


def test_for_want_of_an_agreement_no_pin_goes_to_another_remote(project):
    stated(project, "embedding.model: hash\nremote: http://127.0.0.1:9/kb\n")
    project.vmrag("trust", "--yes")
    project.record("one", one="One.")
    project.vmrag("trust", "--revoke")
    project.record("two", two="Two.")
    assert json.loads((project.top / ".dolt-version").read_text())["dolt_remote"] == "http://127.0.0.1:9/kb"


def test_starting_a_knowledge_base_in_a_clone_agrees_to_nothing(tmp_path, monkeypatch):
    terminal.isolate(monkeypatch, tmp_path / "home")
    theirs = new_project(tmp_path / "theirs", settings="embedding.model: hash\nhooks.on_dirty: commit\n")
    theirs.git("add", "-A")
    theirs.git("commit", "-q", "-m", "settings")
    theirs.git("clone", "-q", str(theirs.top), str(tmp_path / "clone"))
    clone = Project(tmp_path / "clone")
    assert (
        "untrusted setting hooks.on_dirty (line 2)"
        in clone.vmrag("init", "--knowledge-base", "--no-sources", "--no-hooks").err
    )
    assert counting(clone)[0] == "warn"


@pytest.mark.parametrize(
    "way", ["bare clone", "pull", "pull request", "no remote any more", "a tag before its removal"]
)
@pytest.mark.sample(2)
def test_init_trusts_no_committed_settings_from_any_origin(tmp_path, monkeypatch, way):
    terminal.isolate(monkeypatch, tmp_path / "home")
    theirs, mine = make_repo(tmp_path / "theirs"), tmp_path / "mine"
    theirs.git("commit", "-q", "--allow-empty", "-m", "first")
    theirs.git("checkout", "-q", "-b", "side")
    (theirs.top / ".vmrag.yaml").write_text("embedding.model: hash\nhooks.on_dirty: commit\n")
    theirs.git("add", "-A")
    theirs.git("commit", "-q", "-m", "settings")
    match way:
        case "bare clone":
            theirs.git("clone", "-q", "--bare", ".", str(tmp_path / "bare"))
            theirs.git("-C", str(tmp_path / "bare"), "worktree", "add", "-q", str(mine), "side")
        case "pull":
            make_repo(mine).git("pull", "-q", str(theirs.top), "side")
        case "pull request":
            theirs.git("update-ref", "refs/pull/5/head", "side")
            theirs.git("checkout", "-q", "main")
            theirs.git("branch", "-q", "-D", "side")
            theirs.git("clone", "-q", ".", str(mine))
            theirs.git("-C", str(mine), "fetch", "-q", "origin", "pull/5/head:five")
            theirs.git("-C", str(mine), "checkout", "-q", "five")
        case "no remote any more":
            theirs.git("clone", "-q", ".", str(mine))
            theirs.git("-C", str(mine), "remote", "remove", "origin")
        case "a tag before its removal":
            theirs.git("tag", "v1")
            theirs.git("rm", "-q", ".vmrag.yaml")
            theirs.git("commit", "-q", "-m", "gone")
            theirs.git("checkout", "-q", "main")
            theirs.git("merge", "-q", "--no-ff", "-m", "merged", "side")
            theirs.git("branch", "-q", "-D", "side")
            theirs.git("clone", "-q", ".", str(mine))
            theirs.git("-C", str(mine), "checkout", "-q", "v1")
    project = Project(mine)
    assert (
        "untrusted setting hooks.on_dirty (line 2)"
        in project.vmrag("init", "--knowledge-base", "--no-sources", "--no-hooks").err
    )
    assert counting(project)[0] == "warn"


def test_trust_shows_settings_removed_from_the_file(project):
    """A trusted wider value applies only while its line exists; a narrower one always applies."""
    stated(project, WIDE + "index.keep_mb: 9\n")
    project.vmrag("trust", "--yes")
    stated(project, "embedding.model: hash\n")
    assert counting(project) == ("warn", "file:///srv/kb")  # knowledge does not go elsewhere because a line is missing
    shown = project.vmrag("trust", code=1).out.splitlines()
    assert "  hooks.on_dirty: warn" in shown
    assert "  remote: git:   (now: file:///srv/kb)" in shown
    assert "  index.keep_mb: 500   (now: 9)" in shown


def test_status_lists_ignored_settings_once(project):
    stated(project, "index.keep_mb: 9\n")
    for arguments in (("status",), ("status", "--json")):
        result = project.vmrag(*arguments)
        assert (result.out + result.err).count("ignoring untrusted setting") == 1


def test_untrusted_remote_of_missing_revision_leads_to_trust_hint(project):
    """Not `vmrag fetch` or `vmrag clone`, which would be refused."""
    pin = json.loads((project.top / ".dolt-version").read_text())
    project.write(".dolt-version", json.dumps(pin | {"dolt_remote": "http://kb.example/kb", "dolt_commit": "f" * 40}))
    trust = "vmrag remote --trust http://kb.example/kb"
    assert project.ask("status", code=1)["hint"].startswith(f"run '{trust}'")
    assert trust in project.vmrag("doctor", code=1).out.replace("\n", " ").split("PIN_REVISION_MISSING")[1][:80]
    (project.top / ".git" / "vmrag" / "kb").rename(project.top / ".git" / "vmrag" / "away")
    assert project.vmrag("status", code=1).out.splitlines()[-1].startswith(f"hint: run '{trust}'")


def test_service_that_was_agreed_to_is_shown(project):
    stated(project, "index.keep_mb: 9\n")
    project.vmrag("trust", "--yes")
    project.vmrag("trust", "--service", "openai")
    assert "can use openai" in project.vmrag("trust").out


def test_agreeing_to_settings_leaves_the_services_as_they_were(project):
    project.vmrag("trust", "--service", "openai")
    for number in (8, 9):
        stated(project, f"embedding.model_path: /srv/{number}\n")
        project.vmrag("trust", "--yes")
        assert "can use openai" in project.vmrag("trust").out
        assert "openai" in project.vmrag("trust", "--list").out


def test_separately_trusted_remote_may_be_in_the_settings(project):
    stated(project, "remote: file:///srv/kb\n")
    project.vmrag("remote", "--trust", "file:///srv/kb")
    assert counting(project)[1] == "file:///srv/kb"


@pytest.mark.parametrize("options", [("--yes", "--revoke"), ("--list", "--service", "openai")])
def test_trust_accepts_one_action_at_a_time(project, options):
    assert project.vmrag("trust", *options, "--json", code=None).error["code"] == "INVALID_PARAMETER"


def test_trust_rejects_unknown_service(project):
    assert project.vmrag("trust", "--service", "mallory", "--json", code=None).error["code"] == "INVALID_PARAMETER"


def test_files_outside_of_the_repository_are_not_read_without_agreement(project, monkeypatch):
    monkeypatch.setattr(agreements.env, "data_home", lambda: pytest.fail("looked at home"))
    assert agreements.read_agreements(plumbing.locate_work_tree(project.top)).agreed == ()


def test_local_model_needs_no_trust_and_does_not_read_it(project, monkeypatch):
    monkeypatch.setattr(trust, "permit_services", lambda *_: pytest.fail("looked which services are allowed"))
    assert project.vmrag("query", "zebras", "--json").json["results"]


def test_running_agent_server_follows_agreements_and_revocations(project):
    project.write(".vmrag.yaml", "embedding.model: hash\nremote: file:///srv/kb\n")
    session = Session(project.top, Behaviour())

    def remote() -> str:
        with session.open_call(CallProgress()) as call:
            return call.ws.config.remote

    result = [remote()]
    for change in ("--yes", "--revoke"):
        project.vmrag("trust", change)
        result.append(remote())
    assert result == ["git:", "file:///srv/kb", "git:"]
