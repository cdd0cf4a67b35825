"""`vmrag uninstall --all` leaves no files of vmrag, and never removes the only copy of
knowledge.
"""

from pathlib import Path

import pytest

from tests.support import people, terminal
from tests.support.cli import run_patched
from tests.support.people import World
from tests.support.repos import isolate
from tests.support.screen import Screen
from tests.support.terminal import Project
from vmrag_hooks import lefthook
from vmrag_link import agreements
from vmrag_link.engines.own_branches import ASIDE_PREFIX
from vmrag_link.git import hook_config, plumbing

shared, world, newcomer = people.shared, people.world, people.newcomer
template, project = terminal.template, terminal.project

DISCARD = "vmrag uninstall --all --discard-knowledge"


def files(folder: Path) -> dict[str, bytes]:
    """All of a git directory that is not git's own business."""
    git_folders = ("objects", "logs", "refs", "worktrees")
    paths = (
        path for path in folder.rglob("*") if path.is_file() and path.relative_to(folder).parts[0] not in git_folders
    )
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths if path.name not in ("index", "HEAD")}


def test_uninstall_all_removes_pushed_knowledge_that_a_query_restores(world: World) -> None:
    ada, plain = world.ada, world.join("plain")
    ada.vmrag("trust", "--service", "ollama")
    ada.git("branch", "side")
    ada.git("worktree", "add", "-q", "../linked", "side")
    linked = people.User(world.top / "linked", ada.home)
    linked.vmrag("query", "uv")
    ada.git("config", "vmrag.retrieval.k", "3")
    ada.vmrag("push")  # in this copy the hub is at another path
    answers = ada.answers()
    places = plumbing.locate_work_tree(ada.top)
    with ada._here():
        assert agreements.read_agreements(places).services
        remembered = agreements.list_files(places)[1]

    report = ada.ask("uninstall", "--all")

    everything = report["everything"]
    assert set(report["hooks"]["removed"]) == set(hook_config.HOOKS)
    assert (everything["changed"], everything["kept"], everything["lost"]) == (
        [".gitattributes", ".vmrag.yaml", ".dolt-version"],
        [],
        None,
    )
    assert (everything["agreed"], everything["knowledge"]) == (True, str(places.kb))
    assert ada.git("status", "--porcelain") == "D .dolt-version\n D .gitattributes\n D .vmrag.yaml"
    assert not any(
        "vmrag" in line for line in ada.git("config", "--local", "--name-only", "--list").lower().splitlines()
    )
    ours = {name for name in files(ada.top / ".git") if "vmrag" in name}
    assert (ours, plumbing.locate_work_tree(linked.top).work_tree_folder.exists(), remembered.exists()) == (
        set(),
        False,
        False,
    )
    assert set((ada.top / ".git" / "hooks").iterdir()) <= {
        ada.top / ".git" / "hooks" / path.name for path in (plain.top / ".git" / "hooks").iterdir()
    }
    assert ada.ask("uninstall", "--all")["everything"]["knowledge"] is None

    ada.git("checkout", "--", ".")
    ada.vmrag("query", "uv")
    assert ada.answers() == answers


def uncommitted(project: Project) -> str:
    project.put("new.md", "not committed")
    return "uncommitted documents on 'main'"


def set_aside(project: Project) -> str:
    with terminal.opened(project) as ws:
        ws.engine.create_branch(f"{ASIDE_PREFIX}main", ws.require_revision())
    return f"stashed documents ({ASIDE_PREFIX}main)"


def unpushed(_: Project) -> str:
    return ""


UNPUSHED = "commits of the knowledge base on 'feature', 'main' (as of the last fetch: this repository has no git remote"


@pytest.mark.parametrize("lose", [uncommitted, set_aside, unpushed], ids=lambda function: function.__name__)
def test_uninstall_all_requires_confirmation_to_discard_knowledge(project: Project, lose) -> None:
    what = lose(project)
    before = files(project.top / ".git"), project.git("status", "--porcelain")
    error = project.vmrag("uninstall", "--all", "--json", code=1).error
    assert error["code"] == "KNOWLEDGE_NOT_PUSHED"
    assert what in error["message"]
    assert UNPUSHED in error["message"]
    assert error["hint"].endswith(", or add --discard-knowledge to lose that for good")
    assert lose is not unpushed or "git remote add origin URL && vmrag push --all" in error["hint"]
    after = files(project.top / ".git"), project.git("status", "--porcelain")
    assert {name: after[0][name] for name in before[0]} == before[0]
    assert after[1] == before[1]
    lost = project.ask(*DISCARD.split()[1:])["everything"]["lost"]
    assert lost["branches"] == ["feature", "main"]
    assert lost["uncommitted"] == (["main"] if lose is uncommitted else [])
    assert not (project.top / ".git" / "vmrag").exists()


def test_uninstall_all_refuses_after_the_remote_lost_the_knowledge(world: World) -> None:
    ada = world.ada
    ada.vmrag("push")
    world.hub.git("update-ref", "-d", people.DATA)
    error = ada.vmrag("uninstall", "--all", "--json", code=1).error
    assert error["code"] == "KNOWLEDGE_NOT_PUSHED"
    assert "'vmrag push --all'" in error["hint"]


def test_pin_that_was_never_committed_goes_with_its_knowledge(world: World) -> None:
    """Such a pin, committed later, would name a lost revision; a pushed one stays."""
    ada, pushed = world.ada, world.ada.pinned
    ada.vmrag("push")  # in this copy the hub is at another path
    for discarded in (True, False):
        ada.put("new.md", "News.")
        revision = ada.ask("commit", "-m", "news")["revision"]
        if not discarded:
            ada.vmrag("push")
        report = ada.ask("uninstall", "--all", *["--discard-knowledge"] * discarded)
        assert report["everything"]["pin"] == ("restored" if discarded else "kept")
        assert not (ada.top / ".dolt-version").exists()
        ada.git("checkout", "--", ".dolt-version", ".gitattributes", ".vmrag.yaml")
        assert ada.pinned == (pushed if discarded else revision)
        ada.vmrag("clone", code=None)


def test_first_pin_that_was_never_committed_goes_with_its_knowledge(newcomer: Project) -> None:
    newcomer.vmrag("init", "--knowledge-base", "--no-sources")
    newcomer.put("a.md", "A.")
    newcomer.vmrag("commit", "-m", "a")
    assert newcomer.ask(*DISCARD.split()[1:])["everything"]["pin"] == "removed"
    assert not (newcomer.top / ".dolt-version").exists()
    assert ".dolt-version" not in newcomer.git("status", "--porcelain")


def test_uninstall_all_reports_that_discarded_revision_is_gone(project: Project) -> None:
    result = project.vmrag(*DISCARD.split()[1:])
    assert "pins a deleted revision" in result.out
    assert "git settings" in result.out
    assert "To come back" not in result.out


@pytest.mark.parametrize("discard", [False, True])
def test_uninstall_keeps_knowledge_while_the_pin_is_in_conflict(project: Project, discard: bool) -> None:
    project.record("rest", rest="Rest often.")
    project.git("merge", "feature", check=False)
    before = (project.top / ".dolt-version").read_bytes()
    error = project.vmrag("uninstall", "--all", *["--discard-knowledge"] * discard, "--json", code=1).error
    assert (error["code"], error["hint"].split(", ")[0]) == (
        "MERGE_CONFLICT",
        "run 'vmrag resolve' to resolve the conflicts",
    )
    project.vmrag("resolve", "--theirs")
    assert (project.top / ".dolt-version").read_bytes() != before


def test_uninstall_all_keeps_lines_of_others(project: Project) -> None:
    project.write(".gitattributes", f"*.png binary\n{(project.top / '.gitattributes').read_text()}*.jpg binary\n")
    project.write(".vmrag.yaml", "embedding:\n  model: hash\nretrieval:\n  k: 3\n")
    result = project.vmrag(*DISCARD.split()[1:])
    assert (project.top / ".gitattributes").read_text() == "*.png binary\n*.jpg binary\n"
    assert ".vmrag.yaml stays: it has settings that were never committed." in result.out
    assert "k: 3" in (project.top / ".vmrag.yaml").read_text()
    assert not (project.top / ".dolt-version").exists()


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--all", "--worktree"], "run 'vmrag uninstall --all'"),
        (["--all", "--hooks", "pre-push"], "run 'vmrag uninstall --all'"),
        (["--discard-knowledge"], "run 'vmrag uninstall --all' to list what would be lost"),
        (["--remote", "origin"], "run 'vmrag uninstall --all --remote REMOTE'"),
        (["--all", "--remote"], "run 'vmrag uninstall --all --remote origin'"),
    ],
)
def test_contradicting_options_are_rejected(project: Project, arguments, hint) -> None:
    assert project.vmrag("uninstall", "--json", *arguments, code=2).error["hint"] == hint


# -- equal to a repository without vmrag


def everything_in(folder: Path) -> dict[str, bytes | None]:
    """Files with their content, and folders, without git's objects, logs and last message."""
    skipped = ("objects", "logs", "COMMIT_EDITMSG", "ORIG_HEAD", "index")
    paths = (path for path in folder.rglob("*") if path.relative_to(folder).parts[0] not in skipped)
    return {str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes() for path in paths}


def state_of(project: Project, home: Path) -> tuple[dict, dict, dict, str]:
    work_tree = {name: data for name, data in everything_in(project.top).items() if not name.startswith(".git/")}
    staged = project.git("ls-files", "--stage")
    return everything_in(project.top / ".git"), everything_in(home), work_tree, staged


@pytest.fixture
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A repository with a remote that never had vmrag, with attributes and excludes of its own."""
    isolate(monkeypatch, tmp_path / "home")
    top = tmp_path / "plain"
    top.mkdir()
    project = Project(top)
    project.git("init", "-q", "-b", "main")
    (tmp_path / "hub.git").mkdir()
    project.git("-C", str(tmp_path / "hub.git"), "init", "-q", "--bare", "-b", "main")
    project.git("remote", "add", "origin", str(tmp_path / "hub.git"))
    project.write(".gitattributes", "*.png binary")  # without a line end
    project.write("lefthook.yml", "pre-commit:\n  commands: {}\n")
    (top / ".git/info").mkdir(exist_ok=True)
    (top / ".git/info/exclude").write_bytes(b"*.log")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "code")
    project.git("push", "-q", "origin", "main")
    return project


def with_knowledge(project: Project) -> None:
    project.vmrag("init", "--knowledge-base", "--no-sources")
    project.write("a.md", "A.\n")
    project.vmrag("add", "a.md", "--collection", "guide")
    (project.top / "a.md").unlink()
    project.vmrag("trust", "--service", "ollama")
    for client in ("codex", "claude-code"):
        project.vmrag("mcp", "install", "--client", client)
    lefthook.write_configuration(plumbing.locate_work_tree(project.top), ["pre-push"])


def test_uninstall_all_leaves_repository_as_before_vmrag(plain, tmp_path):
    """Nothing of vmrag was committed to the code."""
    before = state_of(plain, tmp_path / "home")
    with_knowledge(plain)
    plain.vmrag("commit", "-m", "a document")
    plain.vmrag("push")
    printed = plain.vmrag("uninstall", "--all", "--remote", "origin").out
    after = state_of(plain, tmp_path / "home")
    for one, other in zip(before, after, strict=True):
        assert one == other
    assert plain.git("ls-remote", "origin").split()[1::2] == ["HEAD", "refs/heads/main"]
    assert "Deleted on origin: refs/vmrag/data" in printed


def test_fresh_clone_after_uninstall_all_behaves_like_one_without_vmrag(plain, tmp_path):
    with_knowledge(plain)
    plain.vmrag("commit", "-m", "a document")
    plain.git("add", "-A")
    plain.git("commit", "-q", "-m", "with knowledge")
    plain.push("origin", "main")
    plain.vmrag("uninstall", "--all", "--remote", "origin")
    plain.git("add", "-A")
    plain.git("commit", "-q", "-m", "Remove vmrag")
    assert plain.run("push", "-q", "origin", "main").stderr == ""
    clone = Project(tmp_path / "clone")
    plain.git("clone", "-q", str(tmp_path / "hub.git"), str(clone.top))
    assert clone.vmrag("status", code=None).out.startswith("files of the repository")
    assert sorted(path.name for path in clone.top.iterdir()) == [".git", ".gitattributes", "lefthook.yml"]
    assert (clone.top / ".gitattributes").read_text() == "*.png binary"


def test_uninstall_all_prints_removed_and_kept_files(plain, tmp_path):
    with_knowledge(plain)
    plain.write(".vmrag/queries.yaml", "queries: []\n")
    plain.vmrag("commit", "-m", "a document")
    plain.git("add", "-A")
    plain.git("commit", "-q", "-m", "with knowledge")
    plain.push("origin", "main")
    keys = plain.git("config", "--local", "--name-only", "--list").splitlines()
    out = plain.vmrag("uninstall", "--all").out
    for name in (".dolt-version", ".gitattributes", ".vmrag.yaml", str(plain.top / ".git/vmrag"), ".mcp.json"):
        assert name in out
    assert all(key in out for key in keys if key.startswith("vmrag."))
    assert "You wrote these files, and they stay: .vmrag/queries.yaml" in out
    assert (plain.top / ".vmrag/queries.yaml").exists()
    assert "refs/vmrag/data" in plain.git("ls-remote", "origin"), "it was not asked for by name"


def test_uninstall_all_refuses_unknown_remote_before_it_changes_anything(plain):
    with_knowledge(plain)
    plain.vmrag("commit", "-m", "a document")
    plain.vmrag("push")
    error = plain.vmrag("uninstall", "--all", "--remote", "nowhere", "--json", code=3).error
    assert (error["code"], error["hint"]) == ("REMOTE_NOT_FOUND", "run 'git remote -v' to list the remotes")
    assert (plain.top / ".git/vmrag/kb").is_dir()


DIE_BEFORE_REMOVAL = """
import os
from vmrag_hooks import installer
installer.uninstall_hooks = lambda *_, **__: os._exit(9)
"""


def test_uninstall_all_prints_everything_before_it_removes_anything(plain, tmp_path):
    with_knowledge(plain)
    plain.vmrag("commit", "-m", "a document")
    plain.vmrag("push")
    keys = [key for key in plain.git("config", "--local", "--name-only", "--list").splitlines() if "vmrag." in key]
    plain.git("update-ref", "refs/vmrag/mine", "HEAD")
    before = state_of(plain, tmp_path / "home")
    killed = run_patched(plain, DIE_BEFORE_REMOVAL, "uninstall", "--all", "--remote", "origin")
    assert killed.code == 9
    names = [".dolt-version", ".gitattributes", ".vmrag.yaml", str(plain.top / ".git/vmrag"), ".mcp.json"]
    names += [".codex/config.toml", "lefthook-local.yml", ".git/info/exclude", "pre-push"]
    names += ["refs/vmrag/mine", "refs/vmrag/data", "what you trusted", str(tmp_path / "home"), *keys]
    assert [name for name in names if name not in killed.out] == []
    for one, other in zip(before[1:], state_of(plain, tmp_path / "home")[1:], strict=True):
        assert one == other
    plain.vmrag("uninstall", "--all", "--remote", "origin")
    assert plain.git("for-each-ref", "refs/vmrag") == ""
    assert plain.ask("uninstall", "--all")["everything"]["refs"] == []


def test_uninstall_all_asks_for_the_remote_at_a_terminal(plain):
    """A bare `--remote` deletes only what the user then names."""
    with_knowledge(plain)
    plain.vmrag("commit", "-m", "a document")
    plain.vmrag("push")
    with Screen(plain, "uninstall", "--all", "--remote", columns=200) as screen:
        screen.expect("Type its name")
        assert "refs/vmrag/data" in plain.git("ls-remote", "origin")
        screen.answer("origin\n")
        screen.expect("Deleted on origin: refs/vmrag/data")
    assert plain.git("ls-remote", "origin").split()[1::2] == ["HEAD", "refs/heads/main"]


@pytest.mark.parametrize("damage", ["file", "git config", "agreement"])
@pytest.mark.parametrize("arguments", [(), ("--all",)], ids=["hooks", "all"])
@pytest.mark.sample(3)
def test_uninstall_works_with_invalid_settings(plain, tmp_path, damage, arguments):
    with_knowledge(plain)
    plain.vmrag("commit", "-m", "a document")
    plain.git("add", "-A")
    plain.git("commit", "-q", "-m", "with knowledge")
    plain.push("origin", "main")
    if damage == "file":
        plain.write(".vmrag.yaml", "embedding: [\n")
    elif damage == "git config":
        plain.git("config", "vmrag.retrieval.k", "many")
    else:
        next((tmp_path / "home").rglob("trust/*.json")).write_text("{")
    result = plain.vmrag("uninstall", *arguments)
    assert "warning: " in result.err
    assert not any((plain.top / ".git/hooks").glob("post-checkout"))
    assert (plain.top / ".git/vmrag").exists() == (arguments == ())
    assert (plain.top / ".vmrag.yaml").exists() == (damage == "file" or arguments == ())
