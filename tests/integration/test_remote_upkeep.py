"""Growth and rewriting of a remote, checks for CI, and the origin of a repository's knowledge
base.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.terminal import Project
from tests.support.travel import git_server
from vmrag_link import hints
from vmrag_link.engines.doltlite.engine import DoltliteEngine
from vmrag_link.engines.own_branches import KEEP_BRANCH
from vmrag_link.git import plumbing
from vmrag_link.ops import buglog
from vmrag_link.sync import background
from vmrag_link.transport import address

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project

DATA = "refs/vmrag/data"


@pytest.fixture
def bare(project: Project) -> Path:
    path = project.top.parent / "remote.git"
    project.git("init", "-q", "--bare", str(path))
    project.git("remote", "add", "origin", str(path))
    return path


def there(bare: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", bare, *arguments], check=True, capture_output=True, text=True).stdout.strip()


def cloned(bare: Path, name: str) -> Project:
    """A plain git clone of `main`."""
    top = bare.parent / name
    subprocess.run(["git", "clone", "-q", "-b", "main", bare, top], check=True, capture_output=True)
    return Project(top)


def heads(project: Project) -> dict[str, str]:
    engine = DoltliteEngine.open(project.shared / "kb")
    remote_heads = engine.remote_heads(
        address.parse_remote(plumbing.locate_work_tree(project.top), "origin", branch="main")[0].key
    )
    engine.close()
    return remote_heads


def pushed(project: Project) -> list[str]:
    """Four pushes with the hooks; the last one by force, so that something is kept that no branch
    reaches.
    """
    revisions = []
    for number in range(3):
        revisions.append(project.record(f"push {number}", faq=f"Answer {number}. " * 200))
        project.push("origin", "main", "feature")
    project.git("reset", "-q", "--hard", "HEAD~1")
    project.vmrag("sync")
    revisions.append(project.record("instead", faq="Another answer."))
    project.push("--force", "origin", "main")
    return revisions


# -- gc --remote


def test_rewritten_remote_holds_the_same_heads_in_one_commit(project, bare):
    revisions = pushed(project)
    before, size = heads(project), int(there(bare, "rev-list", "--count", DATA))
    assert KEEP_BRANCH in before
    assert size == 4
    report = project.ask("gc", "--remote")
    assert (report["applied"], report["before"]["pushes"]) == (False, 4)
    assert there(bare, "rev-list", "--count", DATA) == "4"
    report = project.ask("gc", "--remote", "origin", "--apply")
    assert report["after"]["pushes"] == 1
    assert report["after"]["bytes"] <= report["before"]["bytes"]
    assert there(bare, "rev-list", "--count", DATA) == "1"
    assert heads(project) == before
    other = cloned(bare, "other")
    other.vmrag("clone")
    assert set(revisions) <= _reachable(other)


def _reachable(project: Project) -> set[str]:
    head_revisions = heads(project).values()
    engine = DoltliteEngine.open(project.shared / "kb")
    revisions = {revision.revision for head in head_revisions for revision in engine.log(head)}
    engine.close()
    return revisions


def test_earlier_clones_continue_with_the_rewritten_remote(project, bare):
    pushed(project)
    other = cloned(bare, "other")
    other.vmrag("install")
    project.vmrag("gc", "--remote", "--apply")
    revision = other.record("theirs", theirs="From the other clone.")
    other.push("origin", "main")
    project.git("pull", "-q", "origin", "main")
    assert project.pinned == revision
    assert project.texts()["theirs.md"] == "From the other clone."


def test_damaged_remote_is_replaced_by_its_last_fetched_state(project, bare):
    revisions = pushed(project)
    before = heads(project)
    there(bare, "update-ref", DATA, "refs/heads/main")
    assert project.vmrag("fetch", "--json", code=3).error["code"] == "REMOTE_DAMAGED"
    report = project.ask("gc", "--remote")
    assert report["damaged"]
    assert report["before"] is None
    project.vmrag("gc", "--remote", "--apply")
    assert heads(project) == before
    other = cloned(bare, "other")
    other.vmrag("clone")
    assert set(revisions) <= _reachable(other)


def test_remote_of_newer_format_is_never_replaced(project, bare):
    pushed(project)
    manifest = json.loads(there(bare, "cat-file", "blob", f"{DATA}:manifest.json"))
    blob = subprocess.run(
        ["git", "-C", bare, "hash-object", "-w", "--stdin"],
        input=json.dumps(manifest | {"format": 2}),
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    tree = subprocess.run(
        ["git", "-C", bare, "mktree"],
        input=f"100644 blob {blob}\tmanifest.json\n",
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    newer = there(bare, "-c", "user.name=x", "-c", "user.email=x", "commit-tree", tree, "-m", "x")
    there(bare, "update-ref", DATA, newer)
    for options in ((), ("--apply",)):
        error = project.vmrag("gc", "--remote", *options, "--json", code=3).error
        assert error["code"] == "SCHEMA_TOO_NEW"
    assert there(bare, "rev-parse", DATA) == newer


def test_damaged_remote_is_repaired_by_an_unrelated_clone(project, bare):
    never = project.record("never published", never="Never published.")
    project.git("reset", "-q", "--hard", "HEAD~1")
    project.vmrag("sync")
    shared = project.record("shared", shared="Shared.")
    project.push("--no-verify", "origin", "main")
    there(bare, "update-ref", DATA, "refs/heads/main")
    assert project.ask("gc", "--remote")["damaged"]
    result = project.vmrag("gc", "--remote", "--apply")
    assert "ask users who pushed since then to run 'vmrag push'" in result.out
    other = cloned(bare, "other")
    other.vmrag("clone")
    assert other.answers() == project.answers()
    assert shared in _reachable(other)
    assert never not in _reachable(other)
    project.vmrag("push")
    other.vmrag("fetch")
    assert heads(other) == heads(project)


def test_damaged_remote_is_kept_if_nothing_can_repair_it(project, bare):
    project.push("--no-verify", "origin", "main")
    there(bare, "update-ref", DATA, "refs/heads/main")
    empty = terminal.new_project(bare.parent / "empty")
    empty.vmrag("init", "--knowledge-base", "--no-sources", "--new")
    empty.git("remote", "add", "origin", str(bare))
    before = there(bare, "rev-parse", DATA)
    assert empty.vmrag("gc", "--remote", "--apply", "--json", code=3).error["code"] == "REMOTE_DAMAGED"
    assert there(bare, "rev-parse", DATA) == before


def test_gc_remote_rejects_remotes_without_git(project, bare):
    file = bare.with_name("kb.doltlite")
    project.vmrag("push", f"file://{file}")
    error = project.vmrag("gc", "--remote", f"file://{file}", "--json", code=2).error
    assert error["code"] == "INVALID_REMOTE_URL"


# -- verify --remote


def test_pinned_revision_missing_on_remote_is_found_until_pushed(project, bare):
    project.push("-u", "origin", "main")
    project.record("more", more="More.")
    project.push("--no-verify", "origin", "main:topic")
    runner = cloned(bare, "runner")
    arguments = ("verify", "--remote", "origin", "--pull-request", "origin/main", "origin/topic")
    report = runner.ask(*arguments, code=1)
    assert [finding["code"] for finding in report["findings"]] == ["NOT_ON_REMOTE"]
    assert "vmrag adopt" in report["findings"][0]["hint"]
    local = project.ask("verify", "--remote", "origin", "origin/main..HEAD", code=1)
    assert [finding["code"] for finding in local["findings"]] == ["NOT_ON_REMOTE"], "here, and not there"
    assert project.ask("verify", "origin/main..HEAD")["findings"] == []
    project.vmrag("push")
    assert runner.ask(*arguments)["findings"] == []


@pytest.mark.parametrize("scope", [(), ("HEAD..HEAD",), ("HEAD~1..HEAD",)], ids=["alone", "nothing new", "no new pin"])
@pytest.mark.sample(1)
def test_last_commit_of_the_default_branch_is_checked_on_the_remote(project, bare, scope):
    project.vmrag("push")
    project.record("more", more="More.")
    project.commit("code alone", code="x")
    project.push("--no-verify", "origin", "main")
    runner = cloned(bare, "runner")
    report = runner.ask("verify", "--remote", "origin", *scope, code=1)
    result = [(finding["code"], finding["commit"]) for finding in report["findings"]]
    assert result == [("NOT_ON_REMOTE", runner.git("rev-parse", "HEAD"))]
    project.ask("verify", "--remote", "origin", *scope, code=1)
    project.vmrag("push")
    assert runner.ask("verify", "--remote", "origin", *scope)["findings"] == []


# -- where a knowledge base comes from


def test_init_in_a_clone_fetches_instead_of_starting_another_one(project, bare):
    project.push("origin", "main")
    other = cloned(bare, "other")
    report = other.ask("init", "--knowledge-base", "--no-sources")
    assert (report["cloned"], report["started"]) == ("origin", False)
    assert other.pinned == project.pinned
    assert other.answers() == project.answers()


def test_init_on_an_older_branch_fetches_revisions_pinned_elsewhere(project, bare):
    project.push("origin", "main")
    other = cloned(bare, "other")
    other.git("switch", "-q", "--orphan", "empty")
    refused = other.vmrag("init", "--knowledge-base", "--no-sources", "--json", code=1)
    assert "from origin" in refused.err
    assert refused.error["code"] == "NO_PIN"
    assert "vmrag init --empty" in refused.error["hint"]
    other.vmrag("init", "--knowledge-base", "--no-sources", "--empty")
    other.git("commit", "-q", "-m", "start")
    other.record("theirs", theirs="From here.")
    other.push("origin", "empty")


def test_init_starts_another_knowledge_base_on_request(project, bare):
    project.push("--no-verify", "origin", "main")
    other = cloned(bare, "other")
    other.git("switch", "-q", "--orphan", "empty")
    error = other.vmrag("init", "--knowledge-base", "--no-sources", "--json", code=2).error
    assert error["code"] == "ALREADY_INITIALIZED"
    assert "vmrag init --new" in error["hint"]
    assert other.ask("init", "--knowledge-base", "--no-sources", "--new")["started"]


@pytest.mark.hooks("on")
def test_clone_with_the_template_prints_its_pin(project, bare):
    project.push("origin", "main")
    project.vmrag("init", "--knowledge-base", "--no-sources", "--template", "../template")
    result = subprocess.run(
        ["git", "clone", "-q", "--template=template", "-b", "main", bare, "hooked"],
        cwd=bare.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stderr == "vmrag: this code pins a knowledge base; run 'vmrag clone' to fetch it\n"
    hooked = Project(bare.parent / "hooked")
    hooked.vmrag("clone")
    assert hooked.status()["state"] == "in_sync"


def test_unrelated_knowledge_base_is_refused(project, bare):
    project.vmrag("push")
    stranger = terminal.new_project(bare.parent / "stranger")
    stranger.git("remote", "add", "origin", str(bare))
    stranger.vmrag("init", "--knowledge-base", "--no-sources", "--new")
    error = stranger.vmrag("push", "--json", code=3).error
    assert error["code"] == "REMOTE_REJECTED"


def test_rejected_fetch_hint_moves_to_the_other_knowledge_base(project, bare):
    project.push("origin", "main")
    stranger = terminal.new_project(bare.parent / "stranger")
    stranger.git("remote", "add", "origin", str(bare))
    stranger.vmrag("init", "--knowledge-base", "--no-sources", "--new")
    stranger.git("fetch", "-q", "origin")
    stranger.git("checkout", "-q", "-B", "main", "-f", "origin/main")
    error = stranger.vmrag("fetch", "--json", code=3).error
    [_, replacement, _] = hints.list_commands(error["hint"])
    assert stranger.status()["state"] != "in_sync"
    move, _, clone = replacement.partition(" && ")
    assert background.wait_for_end(background.get_sync_job(plumbing.locate_work_tree(stranger.top)), within=60)
    subprocess.run(move, shell=True, check=True, cwd=stranger.top)
    stranger.vmrag(*clone.split()[1:])
    stranger.vmrag("sync")
    assert stranger.pinned == project.pinned
    assert stranger.answers() == project.answers()


def test_doctor_finds_a_pin_of_another_knowledge_base(project):
    other = terminal.new_project(project.top.parent / "other")
    other.vmrag("init", "--knowledge-base", "--no-sources", "--new")
    other.put("strange.md", "Strange.")
    revision = other.ask("commit", "-m", "strange")["revision"]
    engine = DoltliteEngine.open(project.shared / "kb")
    engine.fetch("url-strange", f"file://{other.shared / 'kb' / 'kb.doltlite'}")
    engine.close()
    shutil.copy(other.top / ".dolt-version", project.top / ".dolt-version")
    topics = project.ask("doctor", code=1)["topics"]
    findings_by_code = {finding["code"]: finding for topic in topics for finding in topic["findings"]}
    assert revision[:12] in findings_by_code["PIN_FOREIGN"]["message"]
    assert "&& vmrag clone" in findings_by_code["PIN_FOREIGN"]["fix"]


def test_log_of_a_bug_holds_no_password(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    tempfile.tempdir = None
    url = "https://ada:s3cret-phrase@host/repo"
    path = buglog.write_log(ValueError(f"cannot reach {url}"), ["push", url])
    assert path.parent == tmp_path
    text = path.read_text()
    assert "s3cret" not in text
    assert text.count("https://host/repo") == 2


# -- no prompts in the background


@pytest.mark.hooks("on")
def test_background_sync_shows_no_dialog(project, bare):
    project.push("origin", "main")
    other = cloned(bare, "other")
    other.vmrag("install")
    other.vmrag("sync")
    revision = project.record("next", next="Next.")
    project.push("origin", "main")
    other.git("fetch", "-q")
    dialog = bare.with_name("dialog")
    dialog.write_text('#!/bin/sh\ntouch "$0.asked"\necho phrase\n')
    dialog.chmod(0o755)
    marker = bare.with_name("dialog.asked")
    with git_server(bare.parent, user="ada", password="phrase") as server:
        other.git("remote", "set-url", "origin", f"{server.with_user('ada')}/{bare.name}")
        result = other.run(
            "reset", "-q", "--hard", "origin/main", env={"GIT_ASKPASS": str(dialog), "VMRAG_HOOKS_SYNC": "background"}
        )
        assert result.returncode == 0
        other.run("checkout", "-q", "-b", "x", env={"GIT_ASKPASS": str(dialog), "VMRAG_HOOKS_SYNC": "background"})
        assert background.wait_for_end(background.get_sync_job(plumbing.locate_work_tree(other.top)), within=60)
        assert server.seen
        assert not marker.exists()
        other.start("fetch", env={"GIT_ASKPASS": str(dialog)})
        assert marker.exists()
    assert DoltliteEngine.open(other.shared / "kb").has_revision(revision)
