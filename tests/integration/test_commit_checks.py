"""Warnings about the pin in git's own commits and pushes, through installed hooks."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.support import terminal, traced
from tests.support.repos import DATABASE_FILE
from tests.support.terminal import Project
from tests.support.traced import hook_processes
from vmrag_hooks import checks
from vmrag_link import hints
from vmrag_link.git import plumbing
from vmrag_link.ops.hook_checks.push_check import Push, PushedRef
from vmrag_link.sync import background

template, project = terminal.template, terminal.project

NOWHERE = "0" * 40
COMMITS = {
    "commit": ("commit", "-m", "x"),
    "-a": ("commit", "-a", "-m", "x"),
    "-i": ("commit", "-m", "x", "-i", "code.py"),
    "-- path": ("commit", "-m", "x", "--", "code.py"),
    "amend": ("commit", "--amend", "-m", "x"),
}


def pin_naming(project: Project, revision: str) -> None:
    pin = json.loads((project.top / ".dolt-version").read_text())
    project.write(".dolt-version", json.dumps(pin | {"dolt_commit": revision}, indent=2) + "\n")


def commit(project: Project, *arguments: str, **environ: str) -> tuple[int, list[str]]:
    """The exit code, and our lines on stderr."""
    result = project.run(*arguments, env=environ)
    return result.returncode, [line for line in result.stderr.splitlines() if line.startswith("vmrag: ")]


def edited(project: Project) -> None:
    project.write("code.py", "2")
    project.git("add", "code.py")


@pytest.fixture
def coded(project: Project) -> Project:
    """`code.py` is tracked, and changed in the index."""
    project.commit("code", **{"code.py": "1"})
    edited(project)
    return project


@pytest.mark.parametrize(
    ("bad", "said"),
    [("{", "is not JSON"), ("<<<<<<< ours\n", "merge conflict"), (NOWHERE, "this knowledge base does not have")],
    ids=["malformed", "conflict", "missing"],
)
def test_bad_pin_is_not_committed_and_the_reason_is_printed(project, bad, said):
    before = project.git("rev-parse", "HEAD")
    if bad == NOWHERE:
        pin_naming(project, NOWHERE)
    else:
        project.write(".dolt-version", bad)
    project.git("add", ".dolt-version")
    code, lines = commit(project, "commit", "-m", "bad")
    assert (code, len(lines)) == (1, 1)
    assert said in lines[0]
    assert project.git("rev-parse", "HEAD") == before
    assert commit(project, "commit", "-m", "bad", VMRAG="0") == (0, [])


def test_committed_pin_is_the_one_that_answers(project):
    pin_naming(project, project.git("show", "feature:.dolt-version").split('"dolt_commit": "')[1][:40])
    project.git("add", ".dolt-version")
    pin_naming(project, json.loads(project.git("show", "first:.dolt-version"))["dolt_commit"])
    code, lines = commit(project, "commit", "-m", "x")
    assert (code, len(lines)) == (1, 1)
    assert "differs from the staged one; run 'git add .dolt-version'" in lines[0]
    project.git("add", ".dolt-version")
    assert commit(project, "commit", "-m", "x")[0] == 0


@pytest.mark.parametrize("kind", COMMITS)
@pytest.mark.sample(2)
def test_code_is_committed_next_to_an_unstaged_pin(coded, kind):
    """For each form of `git commit` the pin in it is the earlier one, except with -a, which stages
    it.
    """
    pinned = coded.git("show", "HEAD:.dolt-version")
    pin_naming(coded, coded.git("show", "feature:.dolt-version").split('"dolt_commit": "')[1][:40])
    code, lines = commit(coded, *COMMITS[kind])
    assert code == 0
    said = [line for line in lines if "differs from the staged one" in line]
    assert len(said) == (0 if kind in ("-a", "-- path") else 1)
    assert (coded.git("show", "HEAD:.dolt-version") == pinned) == (kind != "-a")
    assert coded.git("show", "HEAD:code.py") == "2"


def test_repository_without_the_knowledge_base_commits_freely(project):
    (project.shared / "kb").rename(project.shared / "elsewhere")
    pin_naming(project, NOWHERE)
    assert commit(project, "commit", "-a", "-m", "x") == (0, [])


def test_pin_text_is_checked_without_the_knowledge_base(project, monkeypatch, capsys):
    """The pre-commit framework does so in a clone without a knowledge base."""
    (project.shared / "kb").rename(project.shared / "elsewhere")
    monkeypatch.chdir(project.top)
    pin_naming(project, NOWHERE)
    project.git("add", ".dolt-version")
    assert not checks.check_commit(None)
    project.write(".dolt-version", "{")
    project.git("add", ".dolt-version")
    assert checks.check_commit(None)
    assert "is not JSON" in capsys.readouterr().err


def test_locked_knowledge_base_stops_no_commit(coded):
    coded.put("new.md", "new")
    kb = coded.shared / "kb" / DATABASE_FILE
    kb.write_bytes(b"")
    code, lines = commit(coded, "commit", "-m", "x")
    assert (code, len(lines)) == (0, 1)


# -- uncommitted documents


@pytest.mark.parametrize("kind", COMMITS)
@pytest.mark.sample(2)
def test_uncommitted_documents_are_mentioned(coded, kind):
    coded.put("new.md", "new")
    code, lines = commit(coded, *COMMITS[kind])
    assert code == 0
    assert len(lines) == 1
    assert "documents of 'main' are not committed" in lines[0]
    assert hints.list_commands(lines[0])[-1] == 'vmrag commit -m "What changed in the documents"'
    assert commit(coded, "commit", "--allow-empty", "-m", "x", VMRAG_HOOKS_QUIET="1") == (0, lines), "always said"
    coded.vmrag("commit", "-m", "new")
    assert commit(coded, "commit", "-m", "x") == (0, [])


def test_uncommitted_documents_of_another_branch_are_not_mentioned(coded):
    coded.put("new.md", "new")
    coded.git("stash", "-q")
    coded.git("switch", "-q", "feature")
    assert commit(coded, "commit", "--allow-empty", "-m", "x") == (0, [])


@pytest.mark.parametrize("kind", COMMITS)
@pytest.mark.sample(2)
def test_uncommitted_documents_stop_a_commit_if_configured(coded, kind):
    coded.put("new.md", "new")
    code, lines = commit(coded, *COMMITS[kind], VMRAG_HOOKS_ON_DIRTY="block")
    assert (code, len(lines)) == (1, 1)
    assert "commit stopped: documents of 'main' are not committed, and hooks.on_dirty is block" in lines[0]
    assert "vmrag commit" in lines[0]
    assert coded.git("show", "HEAD:code.py") == "1"
    assert coded.marks()["new.md"] == "added"


@pytest.mark.parametrize("kind", COMMITS)
@pytest.mark.sample(2)
def test_uncommitted_documents_are_included_in_a_commit_if_configured(coded, kind):
    coded.put("new.md", "new")
    before = coded.pinned
    code, lines = commit(coded, *COMMITS[kind], VMRAG_HOOKS_ON_DIRTY="commit")
    assert (code, len(lines)) == (0, 1)
    if kind == "-- path":  # git has made that commit's index already, and the next one's
        assert coded.pinned == before
        assert coded.marks()["new.md"] == "added"
        return
    assert coded.pinned != before
    assert json.loads(coded.git("show", "HEAD:.dolt-version"))["dolt_commit"] == coded.pinned
    assert coded.marks()["new.md"] is None
    assert coded.git("status", "--porcelain") == ""
    assert coded.status()["state"] == "in_sync"


def test_commit_hook_prints_next_command_if_git_has_nothing_to_commit(coded):
    coded.git("reset", "-q", "--hard")
    coded.put("new.md", "new")
    before = coded.git("rev-parse", "HEAD")
    code, lines = commit(coded, "commit", "-m", "x", VMRAG_HOOKS_ON_DIRTY="commit")
    assert (code, coded.git("rev-parse", "HEAD")) == (1, before)
    assert "this commit pins" not in lines[0]
    assert lines[0].endswith("and staged .dolt-version; run 'git commit' again if git reports 'nothing to commit'")
    assert commit(coded, "commit", "-m", "x", VMRAG_HOOKS_ON_DIRTY="commit") == (0, [])
    assert json.loads(coded.git("show", "HEAD:.dolt-version"))["dolt_commit"] == coded.pinned
    assert coded.status()["state"] == "in_sync"


def test_commit_hook_prints_notes_of_background_sync(coded):
    coded.put("new.md", "new")
    background.WatchedProgress(background.get_sync_job(plumbing.locate_work_tree(coded.top)), print).note(
        "Back: vmrag merge vmrag/wip/main"
    )
    code, lines = commit(coded, "commit", "-m", "x", VMRAG_HOOKS_ON_DIRTY="commit")
    assert (code, lines[-1]) == (0, "vmrag: Back: vmrag merge vmrag/wip/main")


# -- merges


@pytest.fixture
def parted(project: Project) -> Project:
    """Move the pins of `main` and `feature`, so that git cannot merge them without a decision."""
    project.git("config", "--remove-section", "merge.vmrag")
    return project


def test_merge_that_drops_one_sides_knowledge_is_stopped_before_git_commits(parted):
    code, lines = commit(parted, "merge", "-s", "ours", "-m", "x", "feature")
    assert (code, len(lines)) == (1, 1)
    assert "this merge drops documents" in lines[0]
    assert commit(parted, "commit", "--no-verify", "-m", "x")[0] == 0


def test_conflict_closed_with_one_side_is_also_stopped(parted):
    assert commit(parted, "merge", "feature")[0] == 1
    parted.git("checkout", "--ours", ".dolt-version")
    parted.git("add", ".dolt-version")
    code, lines = commit(parted, "commit", "-m", "x")
    assert (code, len(lines)) == (1, 1)
    assert "this merge drops documents" in lines[0]


@pytest.mark.parametrize("way", ["conflict", "strategy"])
def test_hint_of_a_dropping_merge_repairs_it(parted, monkeypatch, way):
    if way == "conflict":
        parted.run("merge", "feature")
        parted.git("checkout", "--ours", ".dolt-version")
        parted.git("add", ".dolt-version")
        _, lines = commit(parted, "commit", "-m", "x")
    else:
        _, lines = commit(parted, "merge", "-s", "ours", "feature")
    monkeypatch.setenv("PATH", str(terminal.SCRIPT.parent), prepend=":")
    command = hints.list_commands(lines[0])[-1]
    assert command == "vmrag resolve", "the merge goes on, and is one commit"
    result = subprocess.run(command, shell=True, cwd=parted.top, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert commit(parted, "commit", "-m", "x")[0] == 0
    assert {"faq.md", "uv.md"} <= parted.texts().keys()


def test_merges_with_the_right_pin_pass(project):
    assert commit(project, "merge", "-m", "both", "feature")[0] == 0
    project.git("switch", "-q", "-c", "behind", "first")
    project.commit("code", **{"code.py": "1"})
    assert commit(project, "merge", "-m", "one side moved", "feature")[0] == 0
    assert project.git("show", "HEAD:.dolt-version") == project.git("show", "feature:.dolt-version")
    project.git("switch", "-q", "-c", "same", "main")
    project.commit("code", **{"more.py": "1"})
    project.git("switch", "-q", "main")
    assert commit(project, "merge", "--no-ff", "-m", "neither moved", "same") == (0, [])


NO_HOOKS = {"VMRAG": "0"}


def theirs(project: Project, pin: str, *, start: str = "main") -> None:
    """A colleague's branch `theirs`, whose pin is nothing that could be read here; on `main` code
    goes on.
    """
    project.git("switch", "-q", "-c", "theirs", start, env=NO_HOOKS)
    if pin == NOWHERE:
        pin_naming(project, NOWHERE)
    else:
        project.write(".dolt-version", pin)
    project.git("commit", "-q", "--no-verify", "-a", "-m", "theirs", env=NO_HOOKS)
    project.git("switch", "-q", "main", env=NO_HOOKS)
    project.commit("ours", **{"code.py": "1"})


@pytest.mark.parametrize("way", ["merge", "commit"])
@pytest.mark.parametrize("pin", [NOWHERE, "{"], ids=["missing", "malformed"])
@pytest.mark.sample(2)
def test_merge_accepts_missing_or_malformed_pin_of_the_other_side(project, pin, way):
    theirs(project, pin)
    if way == "commit":
        project.git("merge", "-q", "--no-commit", "theirs")
    result = project.run(way, "--no-edit", *["theirs"] * (way == "merge"))
    assert result.returncode == 0, result.stderr
    assert project.git("show", "HEAD:.dolt-version") == project.git("show", "theirs:.dolt-version")
    assert len(project.git("rev-list", "--parents", "-n", "1", "HEAD").split()) == 3


@pytest.mark.parametrize(("side", "code"), [("--theirs", 0), ("--ours", 1)])
def test_merge_check_cannot_compare_pins_without_their_revision(parted, side, code):
    theirs(parted, NOWHERE, start="first")
    assert commit(parted, "merge", "theirs")[0] == 1
    parted.git("checkout", side, ".dolt-version")
    parted.git("add", ".dolt-version")
    result = parted.run("commit", "-q", "--no-edit")
    assert result.returncode == code
    assert ("this merge drops documents" in result.stderr) == (side == "--ours")


@pytest.mark.parametrize("way", ["merge", "commit"])
@pytest.mark.parametrize("on_dirty", ["block", "commit"])
@pytest.mark.sample(2)
def test_uncommitted_documents_follow_a_merge_with_any_setting(project, on_dirty, way):
    """git has fixed the tree of the merge before it asks, and what `vmrag commit` would write is
    refused meanwhile.
    """
    project.put("new.md", "new")
    environ = {"VMRAG_HOOKS_ON_DIRTY": on_dirty}
    if way == "merge":
        code, lines = commit(project, "merge", "--no-edit", "feature", **environ)
    else:
        project.git("merge", "--no-commit", "feature")
        code, lines = commit(project, "commit", "--no-edit", **environ)
    assert (code, len(lines)) == (0, 1)
    assert "1 uncommitted document of 'main' moved to" in lines[0]
    assert project.git("status", "--porcelain") == ""
    assert json.loads(project.git("show", "HEAD:.dolt-version"))["dolt_commit"] == project.pinned
    assert project.marks()["new.md"] == "added"
    assert project.status()["state"] == "in_sync"


# -- pushes


PUSHED = "vmrag: pushed the documents that these commits pin to {}"


@pytest.fixture
def remote(project: Project, tmp_path) -> Project:
    project.git("init", "-q", "--bare", str(tmp_path / "remote.git"))
    project.git("remote", "add", "origin", str(tmp_path / "remote.git"))
    return project


def test_pushed_branch_must_pin_an_existing_revision(remote):
    assert commit(remote, "push", "origin", "main", "feature") == (0, [PUSHED.format("origin")])
    pin_naming(remote, NOWHERE)
    remote.git("commit", "-q", "--no-verify", "-a", "-m", "bad")
    code, lines = commit(remote, "push", "origin", "main")
    assert (code, len(lines)) == (1, 1)
    assert "000000000000, which this knowledge base does not have" in lines[0]
    remote.git("revert", "--no-edit", "HEAD")
    code, lines = commit(remote, "push", "origin", "main")
    assert (code, len(lines)) == (0, 1), "an old mistake is mentioned; nobody can mend it"
    assert commit(remote, "push", "origin", "main", ":feature") == (0, [])


def test_push_sends_pins_of_one_remote_to_another(remote, tmp_path):
    remote.git("push", "-q", "origin", "main")
    theirs(remote, NOWHERE)
    remote.git("push", "-q", "--no-verify", "origin", "theirs:main")
    remote.git("branch", "-q", "-D", "theirs")
    remote.git("update-ref", "-d", "refs/remotes/origin/main")
    assert remote.run("pull", "-q", "--no-rebase", "--no-edit", "origin", "main").returncode == 0
    assert NOWHERE in remote.git("show", "HEAD:.dolt-version")
    remote.git("init", "-q", "--bare", str(tmp_path / "fork.git"))
    remote.git("remote", "add", "fork", str(tmp_path / "fork.git"))
    assert commit(remote, "push", "fork", "main") == (0, [PUSHED.format("fork")])


def test_push_of_many_tags_starts_as_many_git_processes_as_few(remote, monkeypatch, tmp_path):
    commits = [remote.commit(str(number), **{"code.py": str(number)}) for number in range(3)]
    pin_naming(remote, NOWHERE)
    remote.git("commit", "-q", "--no-verify", "-a", "-m", "bad")
    remote.git("tag", "-a", "-m", "bad", "bad")
    tips = [*commits, remote.git("rev-parse", "bad")]

    def git_processes(tips: list[str]) -> int:
        monkeypatch.setenv("GIT_TRACE", str(tmp_path / "trace"))
        monkeypatch.chdir(remote.top)
        refs = tuple(PushedRef("refs/tags/x", tip, "refs/tags/x", None) for tip in tips)
        assert checks.check_push(Push(refs, "origin", str(tmp_path / "remote.git")))
        result = (tmp_path / "trace").read_text().count("trace: built-in: git")
        (tmp_path / "trace").unlink()
        return result

    git_processes(tips)  # what git is configured with is remembered from here on
    assert git_processes(tips) == git_processes(tips[-1:]) <= 5


@pytest.mark.parametrize("way", ["git:", "a folder"])
def test_push_starts_few_processes(remote, tmp_path, way):
    traced.require()
    if way == "a folder":
        remote.write(".vmrag.yaml", f"remote: file://{tmp_path / 'kb.doltlite'}\nembedding:\n  model: hash\n")
        remote.git("config", "--add", "vmrag.fileRoot", str(tmp_path))
        remote.vmrag("trust", "--yes")
        remote.vmrag("pin")
        remote.commit("elsewhere", **{".vmrag.yaml": (remote.top / ".vmrag.yaml").read_text()})
    for pushed in ("first", "next"):
        remote.record(pushed, faq=f"{pushed}\n")
        loud = hook_processes(remote, "pre-push", "push", "-q", "-u", "origin", "main")
        assert any("vmrag_hooks pre-push" in line for line in loud)
        assert len(loud) <= 30, loud
    remote.commit("code", **{"code.py": "1"})
    silent = hook_processes(remote, "pre-push", "push", "-q")
    assert 1 <= len(silent) <= 10, silent


def test_push_without_a_new_pin_starts_no_python(remote):
    remote.git("push", "-q", "origin", "main")
    remote.commit("code", **{"code.py": "1"})
    (remote.shared / "interpreter").write_text("/bin/false\n")
    assert commit(remote, "push", "origin", "main") == (0, [])
    code, lines = commit(remote, "push", "origin", "feature")
    assert (code, len(lines)) == (1, 2), "here it is asked, and cannot answer"
    assert "nothing was pushed" in lines[-1]
