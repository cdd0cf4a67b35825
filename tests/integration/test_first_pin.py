"""A commit that pins nothing, in a repository where others do: an old tag, or another root."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import screen
from tests.support.mcp import Tools
from tests.support.repos import isolate
from tests.support.templates import build_once, copy_tree
from tests.support.terminal import Project, new_project
from vmrag_link import hints

pytestmark = pytest.mark.hooks("off")

screens = screen.screens

LINE = ".dolt-version merge=vmrag -text"


def build(folder: Path) -> Project:
    """`v1` pins nothing, `first` one document, `main` two; the remote beside it has all of them."""
    project = new_project(folder / "project")
    project.write("docs/setup.md", "# Setup\n\nOf version 1.\n")
    project.commit(
        "v1", **{"docs/setup.md": "# Setup\n\nOf version 1.\n", ".vmrag.yaml": "embedding:\n  model: hash\n"}
    )
    project.git("tag", "v1")
    project.vmrag("init", "--knowledge-base", "--no-sources")
    project.git("commit", "-q", "-m", "begin")
    project.record("first", setup="Of version 2.")
    project.git("tag", "first")
    project.record("second", more="More.")
    project.git("init", "-q", "--bare", str(folder / "hub.git"))
    project.git("remote", "add", "origin", "../hub.git")
    project.push("origin", "main", "v1")
    return project


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_once(tmp_path_factory, "first pin", build)


@pytest.fixture
def project(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """On a branch from `v1`, coming from `main`."""
    isolate(monkeypatch, tmp_path / "home")
    copy_tree(template, tmp_path / "all")
    project = Project(tmp_path / "all" / "project")
    project.vmrag("status")
    project.git("switch", "-q", "-c", "old", "v1")
    return project


@pytest.fixture
def clone(project: Project, tmp_path: Path) -> Project:
    """Return a clone of a user who was never on `main`."""
    project.git("clone", "-q", "-b", "v1", "../hub.git", str(tmp_path / "clone"))
    clone = Project(tmp_path / "clone")
    clone.git("switch", "-q", "-c", "old")
    return clone


def pinned(project: Project, ref: str) -> str:
    return project.ask("log", ref, "-n", "1")["revisions"][0]["revision"]


def staged(project: Project) -> list[str]:
    return project.git("diff", "--cached", "--name-only").split()


def test_pin_uses_the_answering_revision_and_lists_alternatives(project):
    first, second = pinned(project, "first"), pinned(project, "main")
    said = project.vmrag("pin").out.splitlines()
    assert said == [
        f"This git commit had no pin. It gets {second[:7]}: 2 documents, of main.",
        f"  instead: vmrag pin {first} (1 document, of commit {project.git('rev-parse', '--short=7', 'first')})",
        "  instead: vmrag pin --empty (begin without documents)",
        f"Pinned {second[:7]} in .dolt-version, which is staged with .gitattributes.",
        "hint: run 'git commit -m \"…\"' to commit the pin",
    ]
    assert (project.pinned, staged(project)) == (second, [".dolt-version", ".gitattributes"])
    assert (project.top / ".gitattributes").read_text() == f"{LINE}\n"


def test_other_choices_remain_after_the_first(project):
    project.vmrag("pin")
    project.vmrag("pin", pinned(project, "first"))
    assert project.texts() == {"setup.md": "Of version 2."}
    report = project.ask("pin", "--empty")
    assert (report["first"], report["staged"], project.texts()) == (None, True, {})
    project.put("setup.md", "Of version 1.")
    project.vmrag("commit", "-m", "version 1")
    project.git("commit", "-q", "-m", "version 1")
    project.git("switch", "-q", "main")
    assert project.texts() == {"setup.md": "Of version 2.", "more.md": "More."}
    assert project.consistent()


def test_attributes_with_other_changes_are_not_staged(project):
    project.write(".gitattributes", "*.md text\n")
    report = project.ask("pin")
    assert (staged(project), report["staged"]) == ([".dolt-version"], True)
    assert report["first"]["attributes"] == {"written": True, "edited": True, "staged": False}
    assert (project.top / ".gitattributes").read_text() == f"*.md text\n{LINE}\n"


def test_pin_rejects_gitattributes_that_is_a_link(project, tmp_path):
    (tmp_path / "key").write_text("secret")
    (project.top / ".gitattributes").symlink_to(tmp_path / "key")
    assert "is a link to" in project.vmrag("pin", "--json", code=None).error["message"]
    assert (project.top / ".gitattributes").is_symlink()
    assert (staged(project), (project.top / ".dolt-version").exists()) == ([], False)


def test_init_asks_the_user_at_a_terminal(project, screens):
    first, second = pinned(project, "first"), pinned(project, "main")
    opened = screen.Screen(project, "init", "--knowledge-base", "--no-sources")
    screens.append(opened)
    prompt = opened.expect("Which?")
    assert f"1  {second[:7]}: 2 documents, of main" in prompt
    assert f"2  {first[:7]}: 1 document, of commit" in prompt
    assert "0  begin without documents" in prompt
    opened.answer("2\n")
    assert opened.end() == 0
    assert f"instead: vmrag pin {second} (2 documents, of main)" in opened.said
    assert project.pinned == first
    assert staged(project) == [".dolt-version", ".gitattributes"]
    assert [branch["name"] for branch in project.ask("branch")["branches"]] == ["main", "old"]


def test_init_without_terminal_reports_an_error_and_changes_nothing(project):
    error = project.vmrag("init", "--knowledge-base", "--no-sources", "--json", code=1).error
    second = pinned(project, "main")
    assert error["code"] == "NO_PIN"
    assert hints.list_commands(error["hint"]) == [f"vmrag pin {second}", "vmrag init --empty"]
    assert f"{second} (2 documents, of main) and {pinned(project, 'first')} (1 document, of commit" in error["message"]
    assert project.git("status", "--porcelain") == ""
    assert "hint: run 'vmrag add FILE" in project.vmrag("init", "--no-sources", "--empty").out
    assert (project.texts(), project.vmrag("list").out) == (
        {},
        "No documents yet.\nhint: run 'vmrag init'\n",
    )


def test_fresh_clone_imports_only_chosen_revisions(clone, project):
    first = pinned(project, "first")
    assert (
        clone.vmrag("pin", "--json", code=2).error["hint"]
        == "run 'vmrag init --knowledge-base' to create a knowledge base"
    )
    result = clone.vmrag("init", "--knowledge-base", "--no-sources", "--json", code=1)
    assert hints.list_commands(result.error["hint"]) == [f"vmrag pin {first}", "vmrag init --empty"]
    error = clone.vmrag("pin", "--json", code=1).error
    assert hints.list_commands(error["hint"]) == [f"vmrag pin {first}", "vmrag pin --empty"]
    assert f"{first} (1 document, of commit" in error["message"]
    assert f" and {pinned(project, 'main')} (2 documents" in error["message"]
    assert not (clone.top / ".dolt-version").exists()
    clone.vmrag("pin", first)
    assert clone.texts() == {"setup.md": "Of version 2."}


def test_different_root_may_use_the_newest_pinned_revision(clone, project):
    clone.vmrag("init", "--knowledge-base", "--no-sources", code=1)
    clone.git("switch", "-q", "--orphan", "other")
    error = clone.vmrag("init", "--knowledge-base", "--no-sources", "--json", code=1).error
    assert error["details"]["offers"] == [{"revision": pinned(project, "main"), "documents": 2}]


def test_init_pins_without_asking_if_no_commit_pins_documents(tmp_path, monkeypatch):
    isolate(monkeypatch, tmp_path / "home")
    project = new_project(tmp_path / "project")
    project.commit("code")
    project.vmrag("init", "--knowledge-base", "--no-sources")
    project.git("commit", "-q", "-m", "begin")
    project.git("switch", "-q", "-c", "old", "HEAD~1")
    assert "Pinned revision" in project.vmrag("init", "--knowledge-base", "--no-sources").out


def test_dolt_init_starts_without_documents_and_lists_existing_ones(project):
    second = pinned(project, "main")
    tools = Tools(project.top)
    made = tools("dolt_init")
    assert made["repository"]["commit"]["message"] == "Create the knowledge base"
    notes = [warning["message"] for warning in made["warnings"] if warning["code"] == "NOTE"]
    assert any(
        f"dolt_checkout with target {second} switches to existing documents: 2 documents, of main." in note
        for note in notes
    )
    tools("dolt_checkout", target=second)
    assert (project.pinned, len(project.texts())) == (second, 2)


# -- what a knowledge base begins with


@pytest.mark.parametrize("by", ["init", "dolt_init"])
def test_new_one_has_the_branch_of_the_code(tmp_path, monkeypatch, by):
    isolate(monkeypatch, tmp_path / "home")
    monkeypatch.delenv("CHROMA_DATA_DIR", raising=False)
    project = new_project(tmp_path / "project")
    project.git("switch", "-q", "-c", "work")
    project.commit("code")
    tools = Tools(project.top)
    project.vmrag("init", "--knowledge-base", "--no-sources") if by == "init" else tools("dolt_init")
    [branch] = project.ask("branch")["branches"]
    assert (branch["name"], branch["revision"], branch["code_branch"], branch["current"]) == (
        "work",
        project.pinned,
        "work",
        True,
    )
    assert [branch["name"] for branch in tools("dolt_branches")["branches"]] == ["work"]
    project.vmrag("branch", "--switch", "work")
    assert tools("dolt_checkout", target="work")["checkout_result"]["to_branch"] == "work"
    assert project.status()["kb"]["branch"] == "work"
